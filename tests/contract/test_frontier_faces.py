"""One suite for every frontier that a program may use: in this process, awaited, and of a server over HTTP or gRPC."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import itertools
import json
import socket
import subprocess
import sys
import threading
from urllib.parse import quote, unquote, urlsplit

import msgspec
import pytest

from grpc_client import serving
from limiting import set_limits
from outrider import Frontier, Link
from outrider.engine import AsyncFrontier
from outrider.engine.grpc_requests import GrpcConnection
from outrider.engine.http_requests import Connections, RepeatedRequests, SentRequest, ServerAnswer, parsed
from outrider.engine.remote import RemoteFrontier
from outrider.errors import ClosedError, InvalidUrlError, SettingsError, UnreachableError
from outrider.frontier.priority import weighted
from outrider.journey import Code, GroupStatus, Kind, Outcome, PriorityPart, State, Verdict
from outrider.service.access import ServerNames, TokenRoles
from outrider.service.app import application
from outrider.service.service_state import ServiceState
from outrider.url.traps import Traps

NOW = 1_700_000_000_000_000
A, B = "http://a.com/", "http://b.com/"


class Wire:
    """Calls an application without a socket; `lose` answers are lost after the server, one after the other."""

    def __init__(self, frontier):
        self.app = application(
            ServiceState(AsyncFrontier(frontier), hosts=ServerNames(True), tokens=TokenRoles(), audit=None)
        )
        self.lose, self.asked = 0, []

    def __call__(self, sent):
        self.asked.append((sent.method, urlsplit(sent.path).path, sent.key))
        answered = asyncio.run(self._made(sent))
        if self.lose:
            self.lose -= 1
            raise http.client.RemoteDisconnected
        return answered

    async def _made(self, sent):
        path, _, query = sent.path.partition("?")
        headers = {"host": "127.0.0.1:7070", "content-type": "application/json", "idempotency-key": sent.key}
        scope = {
            "type": "http", "http_version": "1.1", "method": sent.method, "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(), "scheme": "http", "root_path": "", "client": ("127.0.0.1", 5),
            "server": ("127.0.0.1", 7070),
            "headers": [(name.encode(), value.encode()) for name, value in headers.items() if value is not None],
        }  # fmt: skip
        requests = [{"type": "http.request", "body": sent.body or b"", "more_body": False}]
        told = []

        async def receive():
            while not requests:
                await asyncio.Event().wait()
            return requests.pop()

        async def send(message):
            told.append(message)

        await self.app(scope, receive, send)
        headers = {name.decode(): value.decode() for name, value in told[0]["headers"]}
        body = b"".join(one.get("body", b"") for one in told[1:])
        after = headers.get("retry-after")
        return ServerAnswer(told[0]["status"], body, float(after) if after else None)


class World:
    """A frontier in memory on a virtual clock, and the face under test."""

    def __init__(self, kind, robots="caller", **settings):
        self.now, self.slept = NOW, []
        self.behind = Frontier.memory(
            clock=lambda: self.now,
            robots=robots,
            settings={"delay": 1, "delay_factor": 0, "user_agent": "tester", **settings},
        )
        self.ending = contextlib.ExitStack()
        if kind == "embedded":
            self.face = self.behind
            return
        if kind == "grpc":
            address = f"grpc://{self.ending.enter_context(serving(self.behind))}"
            self.wire = GrpcConnection(address)
            self.ending.callback(self.wire.close)
        else:
            address, self.wire = "http://127.0.0.1:7070", Wire(self.behind)
        keys = itertools.count()
        remote = RepeatedRequests(
            address,
            self.wire,
            chance=lambda: 0.0,
            key_bytes=lambda length: next(keys).to_bytes(length, "big"),
            sleep=self.sleep,
            clock=lambda: self.now / 1_000_000,
        )
        self.face = RemoteFrontier(remote, worker="w", ticks=lambda: self.now)

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += round(seconds * 1_000_000)


@pytest.fixture(params=["embedded", "remote", "grpc"])
def world(request):
    world = World(request.param)
    with world.ending:
        yield world


def test_discover_returns_a_code_for_each_link_of_any_accepted_type(world):
    links = [A, "HTTP://A.com", "ftp://a.com/", Link(B, priority=0.9, depth=3, metadata={"a": 1}, referrer=A)]
    assert [Code.NEW, Code.KNOWN, Code.INVALID, Code.NEW] == world.face.discover(links)
    (lease,) = [one for one in world.face.lease(10) if one.url == B]
    assert (0.9, 3, {"a": 1}, A) == (lease.priority, lease.depth, lease.metadata, lease.referrer)


def test_a_lease_has_all_that_an_embedded_one_has(world):
    world.face.discover([A])
    (lease,) = world.face.lease(1, ttl_seconds=30, worker="w")
    told = (lease.kind, lease.key, lease.authority, lease.host, lease.crawl, lease.attempt, lease.deadline)
    assert (Kind.PAGE, "a.com", "http://a.com", "a.com", "default", 1, NOW + 30_000_000) == told
    world.now += 500_000
    world.face.report([lease.done(seconds=0.5, links=[A + "2"])])
    world.now += 1_000_000
    world.face.set_limit(2, "a.com")
    (second,) = world.face.lease(1, worker="w")
    assert (A, 1, "floor", 1.0, NOW + 500_000, 2) == (
        second.referrer, second.depth, second.gap_reason, second.gap_seconds, second.ended_before, second.capacity
    )  # fmt: skip


SPELLINGS = (
    ("h.test", "h.test"), ("H.TEST", "h.test"), ("H.test.", "h.test"), ("h.test:80", "h.test"),
    (" h.test:8443 ", "h.test"), ("b\u00fccher.test", "xn--bcher-kva.test"),
    ("XN--BCHER-KVA.test", "xn--bcher-kva.test"),
    ("B\u00dcCHER\u3002TEST", "xn--bcher-kva.test"), ("127.1", "127.0.0.1"), ("0x7f000001", "127.0.0.1"),
    ("::1", "[::1]"), ("[0:0::1]:80", "[::1]"), ("%68.test", "h.test"), ("Team A", "Team A"), ("My/Team", "My/Team"),
)  # fmt: skip


@pytest.mark.parametrize(("typed", "key"), SPELLINGS, ids=[typed for typed, _ in SPELLINGS])
def test_a_lease_accepts_a_key_in_every_spelling_that_operators_may_use(world, typed, key):
    hosts = ("h.test", "xn--bcher-kva.test", "127.0.0.1", "[::1]", "other.test")
    world.face.discover([*(f"http://{host}/" for host in hosts), Link(A, key="Team A"), Link(B, key="My/Team")])
    assert [key] == [lease.key for lease in world.face.lease(10, key=typed)]


@pytest.mark.parametrize("typed", ["http://h.test/", "h.test/1", "a b", "", "h..test:x", "user@h.test", "[::1"])
def test_a_lease_refuses_a_key_that_no_queue_can_have(world, typed):
    world.face.discover([A])
    with pytest.raises(SettingsError, match="key"):
        world.face.lease(1, key=typed)
    with pytest.raises(SettingsError, match="key"):
        world.face.lease(1, key=typed, wait_seconds=5)
    assert [A] == [lease.url for lease in world.face.lease(1)]


def test_a_key_of_an_unknown_host_returns_no_lease_yet(world):
    assert [] == list(world.face.lease(1, key="LATER.test"))
    world.face.discover(["http://later.test/"])
    assert ["later.test"] == [lease.key for lease in world.face.lease(1, key="LATER.test")]


def test_a_waiting_host_returns_no_lease_and_says_until_when(world):
    world.face.discover([A, A + "2"])
    leases = world.face.lease(10)
    assert 1 == len(leases)
    world.face.report([leases[0].done(seconds=0.1)])
    assert ([], 1.0) == (list(world.face.lease(10)), world.face.next_ready_seconds())
    world.now += 1_000_000
    assert [A + "2"] == world.face.lease(10).urls


def test_report_returns_codes_for_outcomes_and_for_their_links(world):
    world.face.discover([A])
    (lease,) = world.face.lease(1)
    report = world.face.report([lease.done(links=[B, A, "nonsense:"])])
    assert (["ok"], [["new", "known", "invalid"]]) == (list(report), [list(row) for row in report.links])
    assert ["stale"] == list(world.face.report([lease.done()]))
    assert (State.DONE, State.QUEUED) == (world.face.status(A).state, world.face.status(B).state)


@pytest.mark.parametrize(
    ("told", "fetched"),
    [({}, 60), ({"repeats": True}, 48), ({"duplicate": True}, 48), ({"duplicate": True, "first_copy": True}, 60)],
)
@pytest.mark.parametrize("kind", ["embedded", "remote"])
def test_pages_without_new_content_count_by_what_an_outcome_says_of_them(kind, told, fetched):
    """Over HTTP the word `repeats` was lost, so that workers fetched a calendar without end."""
    world = World(kind, delay=0, traps=Traps(returns_min=0.03))
    world.face.discover([Link(f"{A}day/{number}", depth=1) for number in range(60)])
    found = 0
    while leases := list(world.face.lease(1)):
        world.face.report([Outcome(lease.token, Verdict.DONE, 0.0, 200, **told) for lease in leases])
        found += len(leases)
    assert fetched == found


def test_every_verdict_means_what_it_means_here(world):
    world.face.discover([f"http://{name}.com/" for name in "abcd"])
    leases = {one.host[0]: one for one in world.face.lease(10)}
    world.face.report(
        [
            leases["a"].retry(error="timeout", after_seconds=5),
            leases["b"].gone(status=404),
            leases["c"].again(at=NOW + 60_000_000, seconds=0.1),
            leases["d"].done(location="http://d.com/2", status=301, digest=b"1" * 20),
        ]
    )
    states = {name: world.face.status(f"http://{name}.com/").state for name in "abcd"}
    assert {"a": "waiting", "b": "gone", "c": "waiting", "d": "done"} == states
    assert (NOW + 60_000_000, "timeout") == (
        world.face.status("http://c.com/").due, world.face.status("http://a.com/").error
    )  # fmt: skip
    assert "queued" == world.face.status("http://d.com/2").state
    assert [True, False] == world.face.seen_content([b"1" * 20, b"2" * 20])


def test_a_robots_txt_of_any_bytes_is_reported_and_judges():
    for kind in ("embedded", "remote"):
        world = World(kind, robots="errands")
        world.face.discover([A, A + "no", A + "\u00e9"])
        (errand,) = world.face.lease(10, errands=True)
        assert (Kind.ROBOTS, "http://a.com/robots.txt") == (errand.kind, errand.url)
        world.face.report([errand.robots(200, b"# \xff\xfe\nUser-agent: *\nDisallow: /no\n", seconds=0.1)])
        assert [True, False, None] == world.face.robots_allow([A, A + "no", B])
        world.now += 1_000_000
        assert 1 == len(world.face.lease(10, errands=True))


def test_a_request_that_is_over_frees_its_host_and_its_outcome_follows(world):
    world.face.discover([A, A + "2", B])
    first, other = world.face.lease(2, worker="w")
    world.now += 500_000
    assert ["ok", "ok", "stale"] == world.face.rest([first.token, other.token, 5], seconds=[0.5, None, None])
    assert ["ok"] == world.face.rest((first.token,), 0.2, world.now)
    world.now += 999_999
    assert [] == list(world.face.lease(1, worker="w"))
    world.now += 1
    (second,) = world.face.lease(1, worker="w", key="a.com")
    assert (A + "2", NOW + 500_000, "floor") == (second.url, second.ended_before, second.gap_reason)
    assert State.LEASED == world.face.status(A).state
    assert ("ok", "ok") == world.face.report([first.done(seconds=0.2), second.done(seconds=0.2)]).outcomes
    assert [] == world.face.rest([])
    assert world.behind.verify().ok


def test_leases_are_extended_and_given_back(world):
    world.face.discover([A])
    (lease,) = world.face.lease(1, ttl_seconds=10)
    assert ["ok", "stale"] == world.face.extend([lease.token, 77], 60)
    world.now += 30_000_000
    assert ["ok"] == world.face.release([lease.token])
    assert [A] == world.face.lease(1).urls


def test_a_call_with_a_request_id_is_made_once(world):
    assert [Code.NEW] == world.face.discover([A], request_id=("c", 1))
    assert [Code.NEW] == world.face.discover([A], request_id=("c", 1))
    assert [Code.KNOWN] == world.face.discover([A], request_id=("c", 2))
    first = world.face.lease(1, request_id=("c", 3))
    assert list(first.tokens) == list(world.face.lease(1, request_id=("c", 3)).tokens)
    assert ["ok"] == list(world.face.report([first[0].done()], request_id=("c", 4)))
    assert ["ok"] == list(world.face.report([first[0].done()], request_id=("c", 4)))


def test_hosts_are_ruled_and_lists_are_returned(world):
    world.face.discover([A, B])
    assert 1 == world.face.pause("a.com")
    assert (True, None) == (world.face.host("a.com").paused, world.face.host("c.com"))
    assert [B] == world.face.lease(10).urls
    assert 1 == world.face.resume("a.com")
    assert 1 == world.face.set_delay(7.0, "a.com")
    assert 1 == world.face.set_limit(3, "a.com")
    assert (7.0, 3) == (world.face.host("a.com").delay_seconds, world.face.host("a.com").limit)
    world.face.block_until(NOW + 5_000_000, "a.com")
    assert [] == world.face.lease(10).urls
    assert ["a.com", "b.com"] == sorted(one.name for one in world.face.hosts())
    assert {A, B} == {one.url for one in world.face.urls(limit=10)}
    page = world.face.urls(limit=1)
    assert 1 == len(world.face.urls(limit=10, after=page.cursor))
    assert 2 == world.face.statistics()["accepted"]
    assert 0 == world.face.retry(error="timeout")


def test_answers_are_known_before_threads_decode_them():
    """Two threads that decode a type for the first time can crash the interpreter (msgspec 0.22)."""
    names = ["Explanation", "Idle", "HostStatus", "UrlStatus", "QueueStatus", "WorkerStatus", "Waits", "Verification"]
    code = f"import outrider.engine.remote, outrider.journey as j\nfor name in {names}:\n"
    code += "    print(name if hasattr(getattr(j, name), '__msgspec_cache__') else '')\n"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert names == ran.stdout.split()


def test_an_explanation_is_the_same_through_every_face():
    """Groups, holder, instants, place and priority, as the frontier has them."""
    settings = {"group": ("domain",), "priority": weighted(signals={"page_rank": 0.25})}
    one, two = "http://a.example.org/", "http://b.example.org/"
    for kind in ("embedded", "remote"):
        world = World(kind, **settings)
        world.face.discover([one, two, one + "2", Link(one + "3", priority=0.1)])
        (lease,) = world.face.lease(10, worker="ann", ttl_seconds=60)
        other, third = (two, one + "2") if lease.url == one else (one, one + "2")
        found = world.face.explain(other)
        assert (GroupStatus("example.org", None, 1, 1),) == found.held_by
        assert (NOW, None, 0) == (found.discovered_at, found.fetched_at, found.before)
        parts = {part.name: part.value for part in found.ranking.parts}
        assert ("function", 0.25, 1.0) == (found.ranking.source, parts["page_rank"], parts["depth"])
        assert PriorityPart("page_rank", 0.25, pytest.approx(0.3)) in found.ranking.parts
        assert ("ann", NOW + 60_000_000) == (
            world.face.explain(lease.url).worker,
            world.face.explain(lease.url).lease_until,
        )
        assert world.face.explain(one + "3").before >= 1
        world.now += 3_000_000
        world.face.report([lease.done(seconds=0.1, status=200)])
        (group,) = world.face.explain(third).held_by
        assert ("example.org", 0) == (group.name, group.in_flight)
        assert group.rest_until > world.now
        assert NOW + 3_000_000 == world.face.explain(lease.url).fetched_at
        assert (None, None) == (found.archived, found.duplicate_of)


@pytest.mark.parametrize("kind", ["embedded", "remote"])
def test_every_face_returns_an_explanation_of_the_same_types(kind):
    world = World(kind, group=("domain",))
    world.face.discover([A, A + "2"])
    world.face.lease(1, worker="ann")
    for url in (A, A + "2", B):
        assert world.behind.explain(url) == world.face.explain(url)


def test_a_url_and_an_idle_frontier_are_explained(world):
    world.face.discover([A])
    found = world.face.explain(A)
    assert (A, "queued", "a.com", "a.com") == (found.url, found.state, found.queue.key, found.host.name)
    assert "unknown" == world.face.explain(B).state
    assert (1, False, False) == (world.face.explain_idle().known, world.face.finished(), world.face.at_limit())


def test_bad_input_raises_what_it_raises_here(world):
    for wrong in (
        lambda: world.face.discover("http://a.com/"),
        lambda: world.face.discover([Link(A, priority=2)]),
        lambda: world.face.lease(1, ttl_seconds=0),
        lambda: world.face.urls(after="nonsense"),
        lambda: world.face.set_limit(0, "a.com"),
    ):
        with pytest.raises(SettingsError):
            wrong()
    with pytest.raises((SettingsError, InvalidUrlError), match="nonsense"):
        world.face.explain("nonsense")
    world.face.close()
    with pytest.raises(ClosedError):
        world.face.finished()


# -- what only a frontier elsewhere has to do --------------------------------------------------------------------------


def test_a_lost_answer_is_requested_again_and_the_call_is_made_once():
    world = World("remote")
    world.wire.lose = 3
    assert [Code.NEW, Code.NEW] == world.face.discover([A, B])
    assert [0.05, 0.1, 0.2] == world.slept
    assert 1 == len({key for method, path, key in world.wire.asked if path.endswith("/urls")})
    world.wire.lose = 1
    leases = world.face.lease(10)
    assert 2 == len(leases)
    world.wire.lose = 1
    assert ["ok", "ok"] == list(world.face.report([one.done() for one in leases]))


def test_a_server_that_stays_away_is_reported_as_out_of_reach_after_the_patience():
    world = World("remote")
    world.wire.lose = 1_000
    began = world.now
    with pytest.raises(UnreachableError, match=r"http://127\.0\.0\.1:7070"):
        world.face.finished()
    assert 20_000_000 < world.now - began <= 30_000_000


def test_a_closing_store_is_waited_for_and_then_reported():
    world = World("remote")
    world.behind.close()
    with pytest.raises(UnreachableError, match="closed"):
        world.face.discover([A])
    assert len(world.slept) > 3


def test_a_crawl_as_another_product_is_refused():
    world = World("remote")
    assert "tester" == world.face.register("Tester").user_agent
    with pytest.raises(SettingsError, match="tester"):
        world.face.register("other")


def test_a_long_call_is_sent_in_pieces(monkeypatch):
    set_limits(monkeypatch, REMOTE_ROWS_MAX=2)
    world = World("remote")
    assert [Code.NEW] * 5 == world.face.discover([f"http://{name}.com/" for name in "abcde"], request_id=("c", 9))
    assert 3 == len({key for _, path, key in world.wire.asked if path.endswith("/urls")})
    leases = world.face.lease(10)
    assert ["ok"] * 5 == list(world.face.report([one.done(links=[one.url + "x"]) for one in leases]))


def test_a_deadline_is_never_later_than_the_servers():
    world = World("remote")
    world.face.discover([A])
    (lease,) = world.face.lease(1, ttl_seconds=10)
    world.now += 9_000_000
    assert 1_000_000 == lease.deadline - world.face.now()


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("127.0.0.1:7070", "use http://"),
        ("ftp://a.com", "use http://"),
        ("http://a.com/x", "use http://"),
        ("http://a.com:99999", "use http://"),
        ("http://u:secret@a.com", "pass the token separately"),
    ],
)
def test_an_invalid_address_is_refused_without_its_secret(address, words):
    with pytest.raises(SettingsError, match=words) as refused:
        parsed(address)
    assert "secret" not in str(refused.value)


def test_a_token_never_travels_in_clear_to_another_machine():
    with pytest.raises(SettingsError, match="sent unencrypted"):
        Connections("http://192.168.1.7:7070", token="a" * 16)
    Connections("http://127.0.0.1:7070", token="a" * 16)


def test_another_kind_of_server_is_named_in_the_error():
    remote = RepeatedRequests("http://127.0.0.1:1", lambda sent: ServerAnswer(200, b"<html>"))
    with pytest.raises(UnreachableError, match="another language"):
        remote.get("/x", dict)
    remote = RepeatedRequests("http://127.0.0.1:1", lambda sent: ServerAnswer(404, b"<html>"))
    with pytest.raises(UnreachableError, match="no frontier"):
        remote.get("/x", dict)
    remote = RepeatedRequests(
        "http://127.0.0.1:1", lambda sent: ServerAnswer(401, json.dumps({"type": "x:token-wrong"}).encode())
    )
    with pytest.raises(SettingsError):
        remote.get("/x", dict)


def answering(*answers):
    """A server that sends the next answer on each connection, to any request, and closes; yields its address."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        with listener:
            for answer in answers:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(65_536)
                    connection.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize(
    "cut",
    [
        b'HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n{"now": 1',
        b"HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n",
        b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\ne\r\n{"now": 1',
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"",
    ],
)
def test_an_answer_that_a_dying_server_cut_is_requested_again(cut):
    """A cut body with a length once counted as whole: a worker ended with 8 as its server was killed."""
    whole = b'HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n{"now": 12345}'
    address = answering(cut, whole)
    connections = Connections(address)
    remote = RepeatedRequests(address, connections, sleep=lambda _: None)
    assert {"now": 12345} == remote.get("/x", dict)
    connections.close()


def test_a_kept_connection_carries_the_next_request_and_each_is_sent_once():
    """Each second request was sent, not answered, and sent again after a pause."""
    listener = socket.create_server(("127.0.0.1", 0))
    heard = []

    def serve():
        connection, _ = listener.accept()
        with listener, connection:
            while question := connection.recv(65_536):
                heard.append(question.split()[1].decode())
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    serving = threading.Thread(target=serve, daemon=True)
    serving.start()
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    connections = Connections(address)
    slept = []
    remote = RepeatedRequests(address, connections, sleep=slept.append)
    assert [{}] * 4 == [remote.get(f"/{number}", dict) for number in range(4)]
    connections.close()
    serving.join(60)
    assert (["/0", "/1", "/2", "/3"], []) == (heard, slept)


def test_a_question_longer_than_a_server_reads_is_refused_before_it_is_sent():
    """A server closes such a connection, and the client once said that no server answers."""
    sent = []
    remote = RepeatedRequests("http://127.0.0.1:1", lambda one: sent.append(one) or ServerAnswer(200, b"{}"))
    with pytest.raises(SettingsError, match=r"of 1,048,\d+ bytes, with host=aaa.*…, is longer than a server"):
        remote.get("/x", dict, url=A, host="a" * (1 << 20))
    assert [] == sent
    longest = "http://a.com/" + "%C3" * ((8_192 - 13) // 3)
    assert {} == remote.get("/x", dict, url=quote(longest, safe=""))


def test_the_same_verbs_are_awaited_of_a_server(monkeypatch):
    world = World("remote")
    monkeypatch.setattr("outrider.engine.remote.connect", lambda *given, **named: world.face)

    async def crawl():
        async with AsyncFrontier.connect("http://127.0.0.1:7070") as frontier:
            await frontier.discover([A])
            (lease,) = await frontier.lease(1)
            return list(await frontier.report([lease.done()]))

    assert ["ok"] == asyncio.run(crawl())


@pytest.mark.parametrize("count", [0, 1, 1_000, 2_345])
def test_records_are_copied_in_their_order_with_their_states(world, count):
    world.face.discover([Link(f"http://h{n % 9}.com/{n}", metadata={"n": n}, referrer=A) for n in range(count)])
    if count:
        (lease,) = world.face.lease(1, worker="w")
        world.face.report([lease.done(digest=b"abc", etag='"e"')])
    records = list(world.face.records())
    assert list(world.behind.records()) == records
    copy = World("remote" if world.face is not world.behind else "embedded")
    assert (count, 0) == (copy.face.restore(records), copy.face.restore(iter(records)))
    assert records == list(copy.face.records())


def test_a_reading_continues_after_a_lost_answer_and_ends_when_it_is_forgotten():
    world = World("remote")
    world.face.discover([f"http://h{n}.com/" for n in range(2_100)])
    everything = list(world.behind.records())
    first = world.face._get(("records",), after=None)
    again = [world.face._get(("records",), after=first["cursor"]) for _ in range(2)]
    assert again[0] == again[1] == {"rows": everything[1_000:2_000], "cursor": again[0]["cursor"]}
    assert {"rows": everything[2_000:], "cursor": None} == world.face._get(("records",), after=again[0]["cursor"])
    for cursor in (first["cursor"], "x", "x.1", first["cursor"].partition(".")[0] + ".9"):
        with pytest.raises(SettingsError, match="read the records again"):
            world.face._get(("records",), after=cursor)
    kept = world.face._get(("records",), after=None)["cursor"]
    for _ in range(4):
        world.face._get(("records",), after=None)
    with pytest.raises(SettingsError, match="read the records again"):
        world.face._get(("records",), after=kept)


def test_records_that_are_put_move_known_urls_and_end_their_leases(world):
    world.face.discover([Link(A, metadata={"a": 1}), Link(B, priority=0.25)])
    (lease,) = world.face.lease(1, worker="w")
    due = world.face.now() + 60_000_000
    records = [
        {"url": A, "state": "waiting", "due": due, "priority": 0.75},
        {"url": B, "state": "done", "metadata": {"b": 2}},
        {"url": "http://new.com/", "state": "queued"},
        {"url": "http://new.com/", "state": "gone", "reason": "status", "status": 410},
    ]
    assert ["known", "known", "new", "known"] == [str(code) for code in world.face.put(iter(records))]
    assert ["stale"] == list(world.face.report([lease.done()]))
    found = {record["url"]: record for record in world.face.records()}
    told = {url: (one["state"], one["due"], one["priority"], one["metadata"]) for url, one in found.items()}
    assert ("waiting", due, 0.75, {"a": 1}) == told[A]
    assert ("done", 0.25, {"b": 2}) == (told[B][0], *told[B][2:])
    assert ("gone", 410) == (found["http://new.com/"]["state"], found["http://new.com/"]["status"])
    assert world.behind.verify().ok


def test_nothing_is_put_if_one_record_makes_no_sense(world):
    world.face.discover([A])
    with pytest.raises(SettingsError, match="no url"):
        world.face.put([{"url": A, "state": "done"}, {"url": "no url", "state": "done"}])
    assert "queued" == world.face.status(A).state


def test_known_urls_are_queued_again_in_any_state(world):
    world.face.discover([A, B])
    leases = {lease.url: lease for lease in world.face.lease(2, worker="w")}
    world.face.report([leases[A].done()])
    at = world.face.now() + 60_000_000
    states = world.face.requeue([A, B, "http://unknown.com/"], at=at, priority=0.75)
    assert ["done", "leased", "unknown"] == [str(state) for state in states]
    world.face.report([leases[B].done()])
    assert [("waiting", at, 0.75)] * 2 == [
        (str(one.state), one.due, one.priority) for one in map(world.face.status, [A, B])
    ]


def test_whole_numbers_are_priorities_of_a_crawl_with_an_exact_order(world):
    world.face.make_crawl("c", order="exact")
    links = [Link(f"http://a.com/{number}", crawl="c", priority=number) for number in (-1, 7, 1 << 40)]
    assert ["new"] * 3 == [str(code) for code in world.face.discover(links)]
    (lease,) = world.face.lease(1, crawl="c")
    assert ("http://a.com/1099511627776", 1 << 40) == (lease.url, lease.priority)
    found = Link("http://a.com/found", crawl="c", priority=-5)
    assert [["new"]] == [
        [str(code) for code in codes] for codes in world.face.report([lease.done()], [(0, found)]).links
    ]
    assert -5 == world.face.status(found.url, crawl="c").priority
    assert ["queued"] == [str(state) for state in world.face.reprioritise([found.url], -9, crawl="c")]
    with pytest.raises(SettingsError, match="whole number"):
        world.face.discover([Link("http://a.com/half", crawl="c", priority=0.5)])


def test_deleted_urls_are_unknown_and_new_again(world):
    world.face.discover([A, B])
    leases = {lease.url: lease for lease in world.face.lease(2, worker="w")}
    world.face.report([leases[A].done()])
    states = world.face.delete_urls([A, B, "http://unknown.com/"])
    assert ["done", "leased", "unknown"] == [str(state) for state in states]
    assert ["stale"] == list(world.face.report([leases[B].done()]))
    assert ["unknown", "unknown"] == [str(world.face.status(url).state) for url in (A, B)]
    assert 0 == world.face.count()
    assert ["new", "new"] == [str(code) for code in world.face.discover([A, B])]
    with pytest.raises(SettingsError, match="list of URLs"):
        world.face.delete_urls({A: 0.5})


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (5, "is not a record"),
        ({"url": A, "state": "lost"}, "lost"),
        ({"url": A, "state": "done", "digest": "xyz"}, "hex digits"),
        ({"url": A, "state": "done", "etag": "\ud800"}, "half a surrogate"),
        ({"url": "no url", "state": "done"}, "is not an http or https URL"),
        ({"url": A, "state": "done", "metadata": {"a": 1j}}, "cannot be kept"),
    ],
)
def test_a_record_that_makes_no_sense_is_refused_in_the_same_words(world, record, words):
    with pytest.raises(SettingsError, match=words):
        world.face.restore([record])
    assert [] == list(world.behind.records())


def of_caller(url, unique_key=None, **more):
    return Link(url, crawl="c", unique_key=unique_key, **more)


POSTS = (
    of_caller(A, b"\x00\xff 1", metadata={"body": "1"}), of_caller(A, b"2" * 16_384, metadata={"body": "2"}),
    of_caller("HTTP://A.com/\u00fc#x"), of_caller("notaurl", key="k"), of_caller("notaurl"),
)  # fmt: skip


def test_a_crawl_is_made_once_with_its_rule(world):
    assert [True, False] == [world.face.make_crawl("c", unique="caller") for _ in range(2)]
    with pytest.raises(SettingsError, match="crawl 'c' was made with unique='caller', not 'url'"):
        world.face.make_crawl("c")
    with pytest.raises(SettingsError, match="crawl 'default' was made with unique='url', not 'caller'"):
        world.face.make_crawl("default", unique="caller")


def test_a_crawl_by_unique_keys_keeps_texts_and_tells_posts_to_one_url_apart(world):
    world.face.make_crawl("c", unique="caller")
    assert [Code.NEW] * 5 == world.face.discover(POSTS)
    assert [Code.KNOWN] * 6 == world.face.discover([*POSTS, of_caller("http://other.com/", b"2" * 16_384)])
    found = []
    for _ in range(4):
        leases = list(world.face.lease(9, worker="w"))
        assert leases == list(world.face.held(leases[0].token)) if leases else True
        found += [(one.url, one.unique_key, one.key, one.metadata) for one in leases]
        links = [Link(B, unique_key=b"found"), Link(B, unique_key=b"found"), "HTTP://b.com"]
        world.face.report([one.done(seconds=0.0, links=links) for one in leases[:1]])
        world.face.report([one.done(seconds=0.0) for one in leases[1:]])
        world.now += 1_000_000
    keys = [link.key or ("notaurl" if link.url == "notaurl" else "a.com") for link in POSTS]
    named = {(link.url, link.unique_key, key) for link, key in zip(POSTS, keys, strict=True)}
    assert named | {(B, b"found", "b.com"), ("HTTP://b.com", None, "b.com")} == {one[:3] for one in found}
    assert [{"body": "1"}, {"body": "2"}] == [told for *_, told in found if told]


def test_queries_and_orders_accept_unique_keys_and_texts_with_keys(world):
    world.face.make_crawl("c", unique="caller")
    world.face.discover(POSTS)
    names = [link.unique_key or link.url for link in POSTS[:3]] + [Link("notaurl", key="k"), "notaurl"]
    for name, link in zip(names, POSTS, strict=True):
        told, why = world.face.status(name, crawl="c"), world.face.explain(name, crawl="c")
        assert (link.url, link.unique_key, State.QUEUED) == (told.url, told.unique_key, told.state)
        assert (link.url, told) == (why.url, why.status)
    assert [State.QUEUED] * 5 + [State.UNKNOWN] == world.face.reprioritise([*names, b"9"], 0.7, crawl="c")
    wishes = {names[0]: 0.8, names[3]: 0.9, names[4]: 0.1, "x": 0.2}
    assert [State.QUEUED] * 3 + [State.UNKNOWN] == world.face.reprioritise(wishes, crawl="c")
    assert [0.8, 0.7, 0.7, 0.9, 0.1] == [world.face.status(name, crawl="c").priority for name in names]
    assert [State.QUEUED] == world.face.reprioritise(names[0], 0.3, crawl="c")
    later = world.now + 1_000_000
    assert [State.QUEUED, State.QUEUED, State.UNKNOWN] == world.face.requeue(
        [names[0], names[3], b"9"], at=later, crawl="c"
    )
    waiting = [world.face.status(name, crawl="c").state is State.WAITING for name in names]
    assert [True, False, False, True, False] == waiting
    assert {link.unique_key for link in POSTS} == {one.unique_key for one in world.face.urls(crawl="c")}
    assert ["waiting", "unknown"] == [str(state) for state in world.face.delete_urls([names[3], b"9"], crawl="c")]
    assert State.UNKNOWN is world.face.status(names[3], crawl="c").state
    assert ["new"] == [str(code) for code in world.face.discover([POSTS[3]])]
    assert (State.UNKNOWN, State.UNKNOWN) == (
        world.face.status(b"9", crawl="c").state, world.face.explain(b"9", crawl="c").state
    )  # fmt: skip


def test_records_of_a_crawl_by_unique_keys_are_copied(world):
    world.face.make_crawl("c", unique="caller")
    world.face.discover([*POSTS, A])
    records = list(world.face.records())
    copy = World("remote" if world.face is not world.behind else "embedded")
    assert (6, 0) == (copy.face.restore(records), copy.face.restore(records))
    assert records == list(copy.face.records())
    assert [Code.KNOWN] * 5 == copy.face.discover(POSTS)
    assert 2 == copy.face.delete(crawl="c") - 1
    assert [A] == [one["url"] for one in copy.face.records()]


@pytest.mark.parametrize("bytes_each", [100, 1_000_000])
def test_calls_and_answers_with_long_metadata_stay_bounded(world, bytes_each):
    world.face.make_crawl("c", unique="caller")
    links = [of_caller(f"http://h{number}.com/", metadata={"a": "x" * bytes_each}) for number in range(40)]
    assert [Code.NEW] * 40 == world.face.discover(links)
    found = []
    while leases := list(world.face.lease(40, worker="w")):
        assert (len(leases) == 40) == (bytes_each == 100)
        world.face.report([one.done(seconds=0.0, metadata={"b": one.metadata["a"]}) for one in leases])
        found += leases
    assert 40 == len({lease.url for lease in found})
    assert [bytes_each] * 40 == [len(record["metadata"]["b"]) for record in world.face.records()]


def test_a_crawl_by_unique_keys_is_awaited():
    async def crawl():
        async with AsyncFrontier.memory(clock=lambda: NOW, robots="caller") as frontier:
            assert await frontier.make_crawl("c", unique="caller")
            codes = await frontier.discover(POSTS)
            leases = await frontier.lease(9)
            await frontier.report([one.done(seconds=0.0) for one in leases])
            return codes, await frontier.status(POSTS[0].unique_key, crawl="c")

    codes, status = asyncio.run(crawl())
    assert ([Code.NEW] * 5, State.DONE) == (codes, status.state)


REFUSED = {
    "empty": (of_caller(A, b""), "unique_key b'': it must be 1 to 16,384 bytes"),
    "too long": (of_caller(A, b"k" * 16_385), "unique_key has 16,385 bytes; it may have 16,384"),
    "a text": (of_caller(A, "k"), "unique_key 'k': it must be 1 to 16,384 bytes"),
    "in a crawl by URLs": (Link(A, unique_key=b"k"), "unique_key: crawl 'default' tells URLs apart by their canonical"),
    "in another crawl by URLs": (Link(A, crawl="u", unique_key=b"k"), "unique_key: crawl 'u' tells URLs apart"),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=list(REFUSED))
def test_an_invalid_unique_key_is_refused_by_name_before_anything_is_logged(world, case):
    bad, words = case
    world.face.make_crawl("c", unique="caller")
    world.face.discover([Link(B, crawl="u")])
    lsn = world.behind._log.appended_lsn
    with pytest.raises(SettingsError) as refused:
        world.face.discover([of_caller(B), bad])
    assert words in str(refused.value)
    with pytest.raises(SettingsError) as refused:
        asyncio.run(AsyncFrontier(world.behind).discover([of_caller(B), bad]))
    assert words in str(refused.value)
    for verb in (world.face.status, world.face.explain, world.face.reprioritise):
        more = (0.5,) if verb == world.face.reprioritise else ()
        with pytest.raises(SettingsError, match="unique_key"):
            verb(bad, *more, crawl=bad.crawl)
    assert (lsn, 1) == (world.behind._log.appended_lsn, world.behind.count())


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("frontier/urls", {"crawl_id": "c", "urls": [{"url": A, "unique_key": ""}]}, "1 to 16,384 bytes"),
        ("frontier/urls", {"crawl_id": "c", "urls": [{"url": A, "unique_key": "ayA" * 9_000}]}, "unique_key has "),
        ("frontier/urls", {"crawl_id": "c", "urls": [{"url": A, "unique_key": "!"}]}, "base64"),
        ("frontier/urls", {"urls": [{"url": A, "unique_key": "aw=="}]}, "crawl 'default' tells URLs apart"),
        ("make_crawl", {"name": "c"}, "crawl 'c' was made with unique='caller', not 'url'"),
        ("make_crawl", {"name": "default", "unique": "caller"}, "was made with unique='url', not 'caller'"),
        ("make_crawl", {"name": "d", "unique": "both"}, "unique 'both': use one of url, caller"),
        ("make_crawl", {"name": "d", "order": "fifo"}, "order 'fifo': use one of classes, exact, lifo"),
        ("make_crawl", {"name": "c", "unique": "caller", "order": "lifo"}, "was made with order='classes', not 'lifo'"),
        ("make_crawl", {"name": ""}, "crawl"),
        ("status", {"url": {"unique_key": "aw=="}}, "crawl 'default' tells URLs apart"),
        ("reprioritise", {"urls": [{"unique_key": ""}], "priority": 0.5, "crawl": "c"}, "1 to 16,384 bytes"),
    ],
)
def test_bad_unique_keys_and_rules_are_refused_over_http_before_anything_is_logged(path, body, words):
    world = World("remote")
    world.behind.make_crawl("c", unique="caller")
    lsn = world.behind._log.appended_lsn
    path = path if path.startswith("frontier/") else f"verbs/{path}"
    answer = world.wire(SentRequest("POST", f"/api/v1/{path}", msgspec.json.encode(body)))
    assert (True, True) == (answer.status in (400, 422), words in answer.body.decode()), answer
    assert lsn == world.behind._log.appended_lsn
