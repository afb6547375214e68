"""`Frontier.connect(FILE)`: the verbs of a served frontier, answered by the nodes of a cluster, in the same shapes."""

from __future__ import annotations

import asyncio

import pytest

from limiting import set_limits
from outrider import AsyncFrontier, Frontier, Link
from outrider.crawl.questions import cluster_frontier
from outrider.crawl.questions.cluster_frontier import ClusterFrontier
from outrider.engine.verbs import served_of
from outrider.errors import ClosedError, SettingsError
from outrider.journey import Code, State
from outrider.url import UrlBatch
from unit.test_cluster_words import HOSTS, Cluster


@pytest.fixture
def cluster():
    made = Cluster()
    made.brokers.close = lambda: None
    made.fill(per_host=3)
    made.live()
    yield made
    for stores, _ in made.nodes:
        stores.close()


@pytest.fixture
def frontier(cluster):
    return ClusterFrontier(cluster.asking, where="cluster.toml")


def test_questions_have_the_answers_of_one_frontier(cluster, frontier):
    url = f"http://{HOSTS[2]}/1"
    assert State.QUEUED == frontier.status(url).state
    assert State.UNKNOWN == frontier.status(f"http://{HOSTS[2]}/77").state
    assert (State.QUEUED, url) == (frontier.explain(url).state, frontier.explain(url).url)
    assert 3 * len(HOSTS) == frontier.count() == frontier.count(state="queued")
    assert 3 == frontier.count(host=HOSTS[5])
    found = frontier.statistics()
    assert (3 * len(HOSTS), len(HOSTS)) == (found["urls"]["queued"], found["hosts"]["known"])
    assert 3 * len(HOSTS) == found["accepted"]
    assert (HOSTS[1], False) == (frontier.host(HOSTS[1]).name, frontier.host(HOSTS[1]).paused)
    assert frontier.host("no.test") is None
    assert (False, False, 0.0) == (frontier.finished(), frontier.at_limit(), frontier.next_ready_seconds())
    assert 0 == frontier.waits().hosts
    assert [] == frontier.workers()
    assert "ready" == frontier.explain_idle().reason
    assert frontier.verify().ok
    assert 0 <= frontier.pressure() <= 1


def test_lists_have_the_rows_of_all_partitions_page_by_page(frontier):
    for verb, wanted in ((frontier.urls, 3 * len(HOSTS)), (frontier.hosts, len(HOSTS)), (frontier.queues, len(HOSTS))):
        rows, after = [], None
        while True:
            page = verb(limit=5, after=after)
            assert len(page) <= 5
            rows += page
            after = page.cursor
            if after is None:
                break
        assert wanted == len(rows)
    with pytest.raises(SettingsError, match="after is"):
        frontier.urls(after="nowhere")


def test_orders_are_carried_out_by_the_owners_and_counted(cluster, frontier):
    store = cluster.store(cluster.manifest.partition_of_host(HOSTS[0])).frontier
    assert 1 == frontier.pause(HOSTS[0])
    assert store.host(HOSTS[0]).paused
    assert 1 == frontier.resume(HOSTS[0])
    assert 1 == frontier.set_delay(7.0, HOSTS[0])
    assert 7.0 == store.host(HOSTS[0]).delay_seconds
    assert 0 == frontier.retry(error="timeout")
    assert 1 == frontier.delete(HOSTS[0])
    assert 3 * (len(HOSTS) - 1) == frontier.count(state="queued")


def test_workers_of_several_partitions_are_one(cluster, frontier):
    for number in range(2):
        cluster.store(number).frontier.lease(2, worker="w")
    (worker,) = frontier.workers()
    leases = [one for number in range(2) for one in cluster.store(number).frontier.workers()]
    assert sum(one.pages for one in leases) == worker.pages > 0
    assert min(one.first_deadline for one in leases) == worker.first_deadline
    assert max(one.last_deadline for one in leases) == worker.last_deadline


def test_links_are_sent_to_the_partitions_of_their_hosts(cluster, frontier):
    links = [f"http://{HOSTS[0]}/a", Link(f"http://{HOSTS[1]}/b", priority=0.9, depth=2, metadata={"x": 1}), "mailto:a"]
    assert [Code.HELD, Code.HELD, Code.INVALID] == frontier.discover(links)
    sent = [(partition, record["url"], record["depth"]) for partition, record in cluster.brokers.urls]
    numbers = [cluster.manifest.partition_of_host(host) for host in HOSTS[:2]]
    assert [(numbers[0], f"http://{HOSTS[0]}/a", 0), (numbers[1], f"http://{HOSTS[1]}/b", 2)] == sent
    assert [Code.HELD] == frontier.discover(UrlBatch.of([f"http://{HOSTS[3]}/c"]))
    with pytest.raises(SettingsError, match=r"unique_key of 'http://a\.test/' is not sent between the nodes"):
        frontier.discover([Link("http://a.test/", unique_key=b"k")])
    for wrong in ("http://a.test/", 7):
        with pytest.raises(SettingsError, match="discover takes a list of links"):
            frontier.discover(wrong)


def test_a_verb_that_needs_a_node_that_serves_says_how_to_start_one(frontier):
    way_out = r"cluster\.toml.*outrider serve DIR --cluster cluster\.toml --http"
    arguments = {"lease": (1,), "report": ([],), "extend": ([1], 5), "register": (), "release": ([1],)}
    for name, given in arguments.items():
        with pytest.raises(SettingsError, match=rf"^Refused: {name} .*{way_out}"):
            getattr(frontier, name)(*given)
    for name, given, instead in (("records", (), "use urls"), ("make_crawl", ("other",), "crawl=NAME makes")):
        with pytest.raises(SettingsError, match=rf"{name} is not possible in a cluster, and cluster\.toml.*{instead}"):
            getattr(frontier, name)(*given)


URLS = [f"http://{host}/{n}" for n in range(3) for host in HOSTS]


def test_orders_about_single_urls_are_carried_out_by_the_owner_of_each(cluster, frontier):
    unknown = [f"http://{HOSTS[4]}/never", "not a URL"]
    queued, missing = [State.QUEUED] * 12, [State.UNKNOWN] * 2
    assert [*queued, *missing] == frontier.delete_urls([*URLS[:12], *unknown])
    assert 24 == frontier.count()
    assert [State.UNKNOWN, State.QUEUED] == frontier.requeue([URLS[0], URLS[12]], priority=0.9)
    found = frontier.reprioritise({URLS[12]: 0.25, URLS[30]: 0.75, URLS[1]: 1.0})
    assert [State.QUEUED, State.QUEUED, State.UNKNOWN] == found
    assert [0.25, 0.75] == pytest.approx([frontier.status(URLS[row]).priority for row in (12, 30)], abs=0.01)
    assert [State.QUEUED] * 3 == frontier.reprioritise(URLS[20:23], 0.1)
    assert [] == frontier.requeue([])


def test_records_are_put_and_restored_by_the_owner_of_each(cluster, frontier):
    records = [{"url": url, "state": "done"} for url in URLS[:12]]
    assert [Code.KNOWN] * 12 == frontier.put(records)
    assert 12 == frontier.count(state="done")
    new = [{"url": f"http://{host}/restored", "state": "gone", "priority": 0.5} for host in HOSTS]
    assert 12 == frontier.restore([*new, *records])
    assert 12 == frontier.count(state="gone")
    with pytest.raises(SettingsError):
        frontier.put([{"url": URLS[0], "state": "asleep"}])
    assert State.DONE == frontier.status(URLS[0]).state


def test_a_large_order_is_cut_into_records_and_its_answers_keep_their_order(cluster, frontier, monkeypatch):
    set_limits(monkeypatch, CLUSTER_ORDER_BYTES=200)
    urls = [*URLS[:5], f"http://{HOSTS[0]}/never", *URLS[5:36]]
    assert [State.UNKNOWN if row == 5 else State.QUEUED for row in range(37)] == frontier.delete_urls(urls)
    assert 0 == frontier.count()
    assert sum(b'"ask":"delete_urls"' in one for one in cluster.brokers.words) > 3


def test_urls_by_unique_keys_and_rows_that_no_record_can_have_are_refused(frontier):
    for names in ([b"key"], [Link(URLS[0], key="other")], [Link("", unique_key=b"k")]):
        with pytest.raises(SettingsError, match="no crawls by unique keys; name each URL by its text"):
            frontier.delete_urls(names)
    with pytest.raises(SettingsError, match="no crawls by unique keys"):
        frontier.put([{"url": URLS[0], "state": "done", "unique": "caller"}])


def test_a_foreign_order_about_urls_is_answered_with_a_reason_and_changes_nothing(cluster):
    questions = (
        {}, {"urls": URLS[:2]}, {"urls": URLS[:2], "rows": {"0": [7], "1": ["x"], "2": 3, "3": [[]]}},
        {"urls": 7, "rows": {str(number): [0] for number in range(4)}}, {"urls": URLS[:2], "rows": [1]},
    )  # fmt: skip
    for question in questions:
        cluster.order("delete_urls", question)
    cluster.turn()
    assert [2] * 4 * len(questions) == [one.code for one in cluster.answers()]
    assert 36 == sum(cluster.store(number).frontier.count() for number in range(4))


def test_each_verb_of_a_served_frontier_is_answered_or_refused_by_its_name(frontier):
    """A verb that is declared later is not forgotten: its question reaches the nodes, or says that it does not."""
    for name in served_of(Frontier):
        assert callable(getattr(frontier, name)), name


def test_connect_takes_the_file_of_a_cluster_also_awaited(cluster, monkeypatch):
    files = []

    def questions_to(path, *, client):
        files.append(path)
        return cluster.asking

    monkeypatch.setattr(cluster_frontier, "questions_to", questions_to)
    with Frontier.connect("cluster.toml") as frontier:
        assert 3 * len(HOSTS) == frontier.count()
    with pytest.raises(ClosedError):
        frontier.count()

    async def awaited():
        async with AsyncFrontier.connect("other.toml") as frontier:
            return await frontier.status(f"http://{HOSTS[2]}/1")

    assert State.QUEUED == asyncio.run(awaited()).state
    assert ["cluster.toml", "other.toml"] == files
    with pytest.raises(SettingsError, match=r"token is for a server; .*cluster\.toml"):
        Frontier.connect("cluster.toml", token="secret")


def test_a_file_that_is_missing_is_named(tmp_path):
    with pytest.raises(SettingsError, match=r"none\.toml cannot be read"):
        Frontier.connect(str(tmp_path / "none.toml"))


def test_a_node_of_another_release_answers_an_unknown_question_with_an_error(cluster):
    with pytest.raises(SettingsError, match="unknown question 'dance'"):
        cluster.asking.ask("dance", {})
