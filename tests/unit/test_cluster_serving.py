"""A node of a cluster that serves workers: its leases, their ends, and reports for the owner of their partition."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from outrider.cluster.node_identity import node_name
from outrider.cluster.served_stores import ServedStores
from outrider.crawl.questions.crawl_queries import changing
from outrider.errors import ForeignStoreError, SettingsError, UnreachableError
from outrider.journey import Outcome, Settled, State, Verdict
from outrider.limits import TOKEN_BITS
from outrider.service.access import ServerNames, TokenRoles
from outrider.service.app import application
from outrider.service.node_frontier import AwaitedNode, NodeFrontier
from outrider.service.service_state import ServiceState
from outrider.storage.files import Directory
from served import Served
from unit.test_cluster_words import HOSTS, PARTITIONS, Cluster

SETTINGS = {"delay": 0.0, "delay_factor": 0.0}


@pytest.fixture
def cluster():
    made = Cluster(ServedStores)
    made.brokers.close = lambda: None
    made.fill(per_host=2)
    made.live()
    yield made
    for stores, _ in made.nodes:
        stores.close()


def node_of(cluster, number):
    """The frontier of one of the two nodes."""
    node = SimpleNamespace(stores=cluster.nodes[number][0], at_limit=lambda: False)
    return NodeFrontier(node, cluster.manifest, cluster.asking, SETTINGS, where="cluster.toml")


class Desk(Served):
    """The server of a node, and requests to it without a socket."""

    def __init__(self, frontier):
        self.frontier = frontier
        names = ServerNames(True)
        self.desk = ServiceState(AwaitedNode(frontier), hosts=names, tokens=TokenRoles(), audit=None)
        self.app = application(self.desk)


def done(leases):
    return [Outcome(lease.token, Verdict.DONE, seconds=0.0, links=[f"{lease.url}/next"]) for lease in leases]


def test_leases_come_from_the_partitions_of_the_node_and_a_repeated_request_gets_them_again(cluster):
    node = node_of(cluster, 0)
    leases = node.lease(50, worker="w", per_queue=2, request_id=("c", 1))
    assert {0, 2} >= {lease.token >> TOKEN_BITS for lease in leases} != set()
    assert leases.tokens == node.lease(50, worker="w", per_queue=2, request_id=("c", 1)).tokens
    assert [] == node.lease(50, worker="w", per_queue=2, request_id=("c", 2)).tokens
    assert {one.token for one in node.held(leases.tokens[0])} <= set(leases.tokens)
    assert len(leases) == node.statistics()["urls"]["leased"]
    (worker,) = node.workers()
    assert ("w", len(leases)) == (worker.name, worker.pages)
    assert [Settled.OK] * len(leases) == node.release(leases.tokens)


def test_leases_end_for_the_node_by_their_deadlines_unless_they_are_extended(cluster, monkeypatch):
    node = node_of(cluster, 0)
    leases = node.lease(50, worker="w", ttl_seconds=60)
    first = leases.tokens[0]
    assert [Settled.OK] == node.extend([first], 600)
    late = node.stores.now() + 120_000_000
    monkeypatch.setattr(node.stores, "now", lambda: late)
    node.stores.forget_ended()
    assert {first} == {token for store in node.stores.all() for token in store.leased}


def test_a_report_reaches_the_owner_of_its_partition_once(cluster):
    node = node_of(cluster, 0)
    leases = node.lease(50, worker="w")
    moved = leases.tokens[0] >> TOKEN_BITS
    cluster.close(moved)
    cluster.open(moved, 1)  # the leases of a named worker are still there
    report = node.report(done(leases), request_id=("http.report.3", 7))
    assert {Settled.OK} == set(report.outcomes)
    assert [1] * len(leases) == [len(row) for row in report.links]
    for other in (node_of(cluster, 0), node_of(cluster, 1)):  # after its node has died, to any node
        again = other.report(
            done([one for one in leases if one.token >> TOKEN_BITS == moved]), request_id=("http.report.3", 7)
        )
        assert {Settled.OK} == set(again.outcomes)
    assert {Settled.STALE} == set(node.report(done(leases), request_id=("http.report.3", 8)).outcomes)
    urls = [lease.url for lease in leases]
    assert [State.DONE] * len(urls) == [node.status(url).state for url in urls]


def test_a_repeated_report_has_its_answer_whichever_node_owns_the_partitions_by_then(cluster):
    node = node_of(cluster, 0)
    leases = node.lease(50, worker="w")
    numbers = sorted({lease.token >> TOKEN_BITS for lease in leases})
    assert 2 == len(numbers)
    first = node.report(done(leases), request_id=("http.report.1", 1))
    cluster.close(numbers[0])
    cluster.open(numbers[0], 1)
    assert first.outcomes == node.report(done(leases), request_id=("http.report.1", 1)).outcomes
    assert first.outcomes == node_of(cluster, 0).report(done(leases), request_id=("http.report.1", 1)).outcomes
    # `results` of a lease that has ended names one token for all rows: only the rows of its partition are known.
    same = [Outcome(leases.tokens[0], Verdict.DONE) for _ in leases]
    assert Settled.OK in node_of(cluster, 0).report(same, request_id=("http.report.1", 1)).outcomes


def test_a_token_that_no_partition_has_is_stale(cluster):
    outcomes = [Outcome(token, Verdict.DONE) for token in (1, (PARTITIONS << TOKEN_BITS) + 1, (1 << 62) + 5)]
    assert {Settled.STALE} == set(node_of(cluster, 0).report(outcomes).outcomes)


def test_questions_and_orders_of_a_node_are_for_the_whole_cluster(cluster):
    node = node_of(cluster, 0)
    assert 2 * len(HOSTS) == node.count()
    assert set(HOSTS) == {host.name for host in node.hosts(limit=100)}
    assert {1} == {node.pause(host) for host in HOSTS}
    assert {1} == {node.set_delay(3.0, host) for host in HOSTS}
    assert {3.0} == {node.host(host).delay_seconds for host in HOSTS}
    assert [State.QUEUED, State.UNKNOWN] == node.requeue(["http://site0.test/0", "http://site0.test/never"])
    with pytest.raises(SettingsError, match="make_crawl is not possible in a cluster"):
        node.make_crawl("other")


def test_the_paths_of_a_server_work_on_a_node(cluster):
    async def asked():
        desk = Desk(node_of(cluster, 0))
        status, _, given = await desk.asked("GET", "/api/v1/frontier/next?worker_id=w&batch_size=5&robots=worker")
        assert 200 == status
        tokens = [row["token"] for row in given["urls"]]
        assert given["lease_id"] == min(tokens)
        results = [{"token": token, "status": "success", "http_status": 200, "links": ["/a"]} for token in tokens]
        status, _, taken = await desk.asked(
            "POST", "/api/v1/frontier/results", {"lease_id": given["lease_id"], "results": results}
        )
        assert (200, len(tokens)) == (status, taken["accepted"])
        for path in ("status", "stats", "workers", "hosts", "urls?state=done", "why-idle", "frontier/ready"):
            status, _, answer = await desk.asked("GET", f"/api/v1/{path}")
            assert (200, path) == (status, path), answer
        status, _, text = await desk.asked("GET", "/metrics")
        assert 200 == status
        assert b"outrider_known_hosts" in text
        urls = [f"http://{host}/0" for host in HOSTS]
        status, _, found = await desk.asked("POST", "/api/v1/verbs/delete_urls", {"urls": [*urls, "http://no.test/"]})
        assert (200, len(HOSTS) + 1, "unknown") == (status, len(found["answer"]), found["answer"][-1])
        records = [{"url": url, "state": "done"} for url in urls]
        status, _, found = await desk.asked("POST", "/api/v1/verbs/put", {"records": records})
        assert (200, ["new"] * len(HOSTS)) == (status, found["answer"])
        status, _, refused = await desk.asked("POST", "/api/v1/verbs/make_crawl", {"name": "other"})
        assert 400 <= status < 500, refused
        status, _, found = await desk.asked("POST", "/api/v1/frontier/urls", {"urls": ["http://site0.test/new", "x:"]})
        assert (200, ["held", "invalid"]) == (status, found["codes"])

    asyncio.run(asked())


def test_a_waiting_call_gets_what_becomes_ready_and_a_cancelled_one_returns_its_leases(cluster):
    async def asked():
        node = node_of(cluster, 0)
        frontier = AwaitedNode(node)
        assert await frontier.lease(1, wait_seconds=5, worker="w")
        taken = asyncio.Event()
        lease, loop = node.lease, asyncio.get_running_loop()

        def leased(want, **how):
            found = lease(want, **how)
            loop.call_soon_threadsafe(taken.set)
            return found

        node.lease = leased
        before = node.statistics()["urls"]["leased"]
        waiting = asyncio.ensure_future(frontier.lease(1, wait_seconds=5, worker="w"))
        await asyncio.sleep(0)
        waiting.cancel()
        await taken.wait()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert before == node.statistics()["urls"]["leased"]

    asyncio.run(asked())


def test_a_cluster_that_is_out_of_reach_is_an_answer_that_a_worker_repeats(cluster, monkeypatch):
    def unreachable(*_, **__):
        raise UnreachableError("no broker answers")

    monkeypatch.setattr(cluster.asking, "ask", unreachable)

    async def asked():
        desk = Desk(node_of(cluster, 0))
        status, headers, problem = await desk.asked("GET", "/api/v1/hosts")
        assert (503, "1") == (status, headers["retry-after"])
        assert problem["type"].endswith("service-away")
        assert "no broker answers" in problem["detail"]

    asyncio.run(asked())


def test_a_crawl_at_its_limit_of_pages_has_work_left(cluster):
    node = node_of(cluster, 0)
    assert (False, False) == (node.finished(), node.at_limit())
    node.stores.is_finished = True
    assert (True, False) == (node.finished(), node.at_limit())
    node._node.at_limit = lambda: True
    assert (False, True) == (node.finished(), node.at_limit())
    assert node.next_ready_seconds() is None


def test_no_other_crawl_begins_in_the_directory_of_a_node(tmp_path):
    (tmp_path / "cluster").mkdir()
    (tmp_path / "outrider.toml").write_text("")
    with (
        pytest.raises(ForeignStoreError, match="belongs to a node of a cluster; add --cluster FILE"),
        changing(str(tmp_path), create=True),
    ):
        pass
    assert {"cluster", "outrider.toml"} == {path.name for path in tmp_path.iterdir()}


def test_a_directory_is_of_one_node_of_one_kind_and_one_cluster(cluster, tmp_path):
    own = Directory(str(tmp_path), create=True)
    file = SimpleNamespace(path="cluster.toml")
    name = node_name(own, "node", file, cluster.manifest, serves=True)
    assert name == node_name(own, "node", file, cluster.manifest, serves=True)
    with pytest.raises(ForeignStoreError, match=r"directory of a node of `outrider serve --cluster`; choose another"):
        node_name(own, "node", file, cluster.manifest)
    other = SimpleNamespace(cluster="ff" * 16)
    with pytest.raises(ForeignStoreError, match=r"belongs to another cluster than cluster\.toml"):
        node_name(own, "node", file, other, serves=True)
    own.close()
