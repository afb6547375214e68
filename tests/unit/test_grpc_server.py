"""The gRPC server: access, restarts, clients that vanish or read slowly, and what it counts."""

from __future__ import annotations

import asyncio
import json
import queue
import socket
import statistics
import threading
import time
from collections import Counter

import grpc
import pytest
from bench.joined_stream import JoinedStream, send_joined
from bench.urlfrontier_peer import item, octets
from prometheus_client import generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from grpc_client import PROTOCOL, Client, discovered, info, known, serving
from outrider import Frontier, Link
from outrider.engine.protobuf import MalformedMessageError, Protocol
from outrider.errors import SettingsError
from outrider.limits import MICROSECONDS
from outrider.service import grpc_server
from outrider.service.access import Listening, TokenRoles
from outrider.service.grpc_calls import ROLES
from outrider.service.grpc_server import GrpcServer, check_native
from outrider.service.grpc_status import GrpcError, GrpcStatus
from outrider.service.metrics import _of_urlfrontier
from outrider.service.open_calls import OpenCall, OpenCalls
from served import Served

OK, SKIPPED, FAIL = 0, 1, 2
LATER = 4_000_000_000
TOKENS = {role: f"{role}-0123456789abcdef" for role in ("read", "work", "operate", "admin")}
CANCELLED_CALLS = 9
DEADLINE_SECONDS = 0.2
NO_DELAY = {"delay": 0.0, "delay_factor": 0.0}


@pytest.fixture
def roles(tmp_path):
    path = tmp_path / "tokens"
    path.write_text("".join(f"{role} {token}\n" for role, token in TOKENS.items()))
    path.chmod(0o600)
    return TokenRoles.read(str(path))


def code_of(call):
    with pytest.raises(grpc.RpcError) as raised:
        call()
    return raised.value.code()


def waited(what, seconds=10.0):
    """Returns the answer of a function as soon as that is true, or at the end of the time."""
    until = time.monotonic() + seconds
    while not (found := what()) and time.monotonic() < until:
        time.sleep(0.005)
    return found


def test_each_call_needs_a_token_of_its_role(roles, tmp_path):
    with serving(roles=roles, directory=tmp_path) as address:
        assert code_of(lambda: Client(address).ask("GetStats")) is grpc.StatusCode.UNAUTHENTICATED
        wrong = Client(address, token="x" * 20)
        assert code_of(lambda: wrong.ask("GetStats")) is grpc.StatusCode.UNAUTHENTICATED
        read = Client(address, token=TOKENS["read"])
        assert read.ask("GetStats")["crawlID"] == "DEFAULT"
        assert code_of(lambda: read.get()) is grpc.StatusCode.PERMISSION_DENIED
        assert code_of(lambda: read.put(discovered("http://a.test/"))) is grpc.StatusCode.PERMISSION_DENIED
        work = Client(address, token=TOKENS["work"])
        assert work.put(discovered("http://a.test/", id="1")) == [("1", OK)]
        assert code_of(lambda: work.ask("DeleteCrawl")) is grpc.StatusCode.PERMISSION_DENIED
        operate = Client(address, token=TOKENS["operate"])
        assert operate.ask("SetDelay", {"key": "a.test", "delay_requestable": 5}) == {}
        assert code_of(lambda: operate.ask("SetLogLevel")) is grpc.StatusCode.PERMISSION_DENIED


def test_orders_are_in_the_audit(roles, tmp_path):
    with serving(roles=roles, directory=tmp_path) as address:
        operate = Client(address, token=TOKENS["operate"])
        operate.ask("SetDelay", {"key": "a.test", "delay_requestable": 5})
    (line,) = (tmp_path / "audit.jsonl").read_text().splitlines()
    told = json.loads(line)
    assert (told["order"], told["request_key"], told["request_delay_requestable"]) == ("SetDelay", "a.test", 5)
    assert len(told["who"]) == 8


def test_what_was_acknowledged_and_ordered_is_there_after_a_restart(tmp_path):
    with Frontier.open(tmp_path, robots="caller") as frontier, serving(frontier) as address:
        client = Client(address)
        client.put(*(discovered(f"http://{host}.test/{row}", m=["1"]) for host in "abcd" for row in range(3)))
        client.ask("BlockQueueUntil", {"key": "a.test", "time": LATER})
        client.ask("SetDelay", {"delay_requestable": 7})
        client.ask("SetDelay", {"key": "b.test", "delay_requestable": 0})
        client.ask("SetCrawlLimit", {"key": "c.test", "limit": 1})
        client.put(known("http://c.test/0", 0))
        assert sorted(client.get(max_urls_per_queue=1)) == ["http://b.test/0", "http://d.test/0"]
        client.ask("SetActive", {"state": False})
    with Frontier.open(tmp_path, robots="caller") as frontier, serving(frontier) as address:
        client = Client(address)
        assert client.ask("GetActive") == {}
        assert client.get() == []
        client.ask("SetActive", {"state": True})
        # b: its delay is 0, and its first URL is still handed out; d rests for its delay of 7 seconds.
        assert client.get(max_urls_per_queue=1) == []
        assert waited(lambda: client.get(max_urls_per_queue=2)) == ["http://b.test/1"]
        found = client.ask("GetStats")
        assert (found["size"], found["inProcess"], found["counts"]["completed"]) == (11, 3, 1)
        (queue,) = [one for one in frontier.queues(crawl="DEFAULT") if one.key == "d.test"]
        assert queue.delay_seconds == 7


def test_a_crawl_that_was_made_by_url_is_refused_with_the_reason():
    with Frontier.memory(robots="caller") as frontier:
        frontier.discover([Link("http://a.test/", crawl="rest")])
        with serving(frontier) as address:
            client = Client(address)
            with pytest.raises(grpc.RpcError) as raised:
                client.put(discovered("http://a.test/", "rest"))
            assert raised.value.code() is grpc.StatusCode.FAILED_PRECONDITION
            assert "made by URL" in raised.value.details()


def test_the_clock_of_a_host_is_shared_with_other_crawls():
    with Frontier.memory(robots="caller") as frontier:
        frontier.discover([Link("http://a.test/rest", crawl="rest")])
        with serving(frontier) as address:
            client = Client(address)
            client.put(discovered("http://a.test/"))
            assert len(frontier.lease(1, crawl="rest")) == 1
            assert client.get() == []


def test_the_clock_of_a_host_is_shared_with_a_crawl_over_rest():
    desk = Served()
    desk.add("http://a.test/rest")
    with serving(desk.frontier) as address:
        client = Client(address)
        client.put(*(discovered(f"http://a.test/{row}") for row in range(2)))
        leased = desk.next()
        assert [one["url"] for one in leased["urls"]] == ["http://a.test/rest"]
        assert client.get() == []
        desk.results(leased["lease_id"], {"url": "http://a.test/rest"})
        desk.now += MICROSECONDS - 1
        assert client.get() == []
        desk.now += 1
        assert client.get(max_urls_per_queue=1) == ["http://a.test/0"]
        desk.add("http://a.test/rest2")
        desk.now += MICROSECONDS - 1
        assert desk.next()["urls"] == []
        desk.now += 1
        assert [one["url"] for one in desk.next()["urls"]] == ["http://a.test/rest2"]
    desk.frontier.close()


def test_a_delay_of_a_second_is_a_second_also_across_restarts(tmp_path):
    now = 1_700_000_000 * MICROSECONDS
    handed = []

    def opened():
        return Frontier.open(tmp_path, robots="caller", clock=lambda: now)

    for _ in range(3):
        with opened() as frontier, serving(frontier) as address:
            client = Client(address)
            if not handed:
                client.put(*(discovered(f"http://a.test/{row}") for row in range(10)))
                client.ask("SetDelay", {"key": "a.test", "delay_requestable": 1})
            for _ in range(3):
                (url,) = client.get(max_urls_per_queue=1)
                handed.append(url)
                client.put(known(url, 0))
                now += MICROSECONDS - 1
                assert client.get() == []
                now += 1
    assert handed == [f"http://a.test/{row}" for row in range(9)]


def test_a_frontier_that_is_closed_fails_items_that_may_be_repeated():
    frontier = Frontier.memory(robots="caller")
    with serving(frontier) as address:
        client, hold = Client(address), threading.Event()

        def items():
            yield discovered("http://a.test/2", id="2")
            hold.wait(10)
            yield discovered("http://a.test/3", id="3")

        answers = client.stream("PutURLs", items())
        assert next(answers) == {"ID": "2"}
        frontier.close()
        hold.set()
        assert list(answers) == [{"ID": "3", "status": FAIL}]


@pytest.mark.parametrize("count", [4_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_updates_of_one_stream_are_applied_in_their_order_while_other_streams_write(count):
    """Each URL gets two updates, one after the other. The peer applied 83 of 5,000 such pairs in the wrong order."""
    with Frontier.memory(robots="caller") as frontier, serving(frontier) as address:
        client, over = Client(address), threading.Event()

        def others(number):
            row = 0
            while not over.is_set():
                client.put(*(known(f"http://o{number}.test/{row + place}", LATER, "other") for place in range(50)))
                row += 50

        threads = [threading.Thread(target=others, args=(number,)) for number in range(3)]
        urls = [f"http://h{row % 100}.test/{row}" for row in range(count // 2)]
        items = [item(url, known=True, date=LATER + place) for url in urls for place in range(2)]
        for thread in threads:
            thread.start()
        try:
            answers = send_joined(int(address.split(":")[1]), PROTOCOL.calls["PutURLs"].path, items)
        finally:
            over.set()
            for thread in threads:
                thread.join()
        assert answers == [octets(1, url.encode()) for url in urls for _ in range(2)], "all are OK"
        dates = Counter(one["due"] for one in frontier.records() if one["crawl"] == "DEFAULT")
        assert dates == {(LATER + 1) * MICROSECONDS: count // 2}


def test_a_slow_reader_gets_no_more_than_it_reads_and_the_rest_returns():
    with Frontier.memory(robots="caller", settings=NO_DELAY) as frontier, serving(frontier) as address:
        client = Client(address, window_grows=False)  # on a busy machine it would receive all
        count, filler = 3_000, "x" * 4_000
        for first in range(0, count, 500):
            client.put(*(discovered(f"http://h{row}.test/", m=[filler]) for row in range(first, first + 500)))
        answers = client.stream("GetURLs", {"max_urls_per_queue": 1})
        next(answers)
        assert waited(lambda: frontier.count(state="leased") >= 512)
        for _ in range(20):  # other calls are answered, and no URLs are handed out meanwhile
            assert client.ask("GetActive") == {"state": True}
        assert frontier.count(state="leased") < count
        answers.cancel()
        # What did not reach the client returns to its queue; what may have reached it stays handed out.
        assert waited(lambda: frontier.count(state="queued") > count // 3)
        urls = frontier.statistics()["urls"]  # one moment: more may return meanwhile
        assert urls["leased"] + urls["queued"] == count


def test_a_cancelled_call_is_forgotten_at_once():
    with Frontier.memory(robots="caller") as frontier, serving(frontier) as address:
        client, stop = Client(address), threading.Event()
        calls = [client.stream("PutURLs", (stop.wait(20) for _ in range(1))) for _ in range(50)]
        client.ask("GetActive")
        for call in calls:
            call.cancel()
        stop.set()
        assert client.ask("GetActive", seconds=5) == {"state": True}


def test_a_client_may_have_only_so_many_calls_and_other_clients_do_not_notice(roles, monkeypatch):
    monkeypatch.setattr(grpc_server, "CALLS_PER_CLIENT_MAX", 3)
    with serving(roles=roles) as address:
        work, stop = Client(address, token=TOKENS["work"]), threading.Event()
        calls = [work.stream("PutURLs", (stop.wait(20) for _ in range(1))) for _ in range(3)]
        other = Client(address, token=TOKENS["work"])
        assert waited(lambda: code_of_stats(other) is grpc.StatusCode.RESOURCE_EXHAUSTED)
        assert Client(address, token=TOKENS["read"]).ask("GetStats")["crawlID"] == "DEFAULT"
        for call in calls:
            call.cancel()
        stop.set()
        assert waited(lambda: code_of_stats(other) is None)


def test_a_client_may_begin_only_so_many_calls_a_second():
    seconds = 0.0
    calls = OpenCalls(100, 2, lambda: seconds)
    for stream in range(4):
        calls.add(stream, OpenCall("GetStats", "ann"))
    with pytest.raises(GrpcError, match="more than 2 calls a second") as refused:
        calls.add(4, OpenCall("GetStats", "ann"))
    assert refused.value.status is GrpcStatus.RESOURCE_EXHAUSTED
    calls.add(5, OpenCall("GetStats", "bob"))
    seconds = 0.5
    calls.add(6, OpenCall("GetStats", "ann"))
    with pytest.raises(GrpcError):
        calls.add(7, OpenCall("GetStats", "ann"))


def test_a_client_may_have_only_so_many_urls_in_process(roles, monkeypatch):
    monkeypatch.setattr(grpc_server, "LEASES_PER_CLIENT_MAX", 5)
    with serving(roles=roles) as address:
        client, other = Client(address, token=TOKENS["work"]), Client(address, token=TOKENS["admin"])
        urls = [f"http://h{number}.test/" for number in range(12)]
        client.put(*(discovered(url) for url in urls))
        first = client.get(max_urls_per_queue=1)
        assert len(first) == 5
        assert code_of(lambda: client.get(max_urls_per_queue=1)) is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert len(other.get(max_urls_per_queue=1, max_queues=3)) == 3
        client.put(*(known(url, 0) for url in first[:2]))
        assert len(client.get(max_urls_per_queue=1)) == 2


def code_of_stats(client):
    """The code of an error of `GetStats`; None without one."""
    try:
        client.ask("GetStats")
    except grpc.RpcError as error:
        return error.code()
    return None


def test_a_deadline_ends_a_call():
    with Frontier.memory(robots="caller") as frontier, serving(frontier) as address:
        client, stop = Client(address), threading.Event()
        answers = client.stream("PutURLs", (stop.wait(20) for _ in range(1)), seconds=0.2)
        assert code_of(lambda: list(answers)) is grpc.StatusCode.DEADLINE_EXCEEDED
        stop.set()


def test_at_the_deadline_the_server_sends_a_status_and_no_reset():
    """The client of this test has no deadline of its own, so it reads what the server sends. A reset raises."""
    with Frontier.memory(robots="caller") as frontier, serving(frontier) as address:
        path, port = PROTOCOL.calls["PutURLs"].path, int(address.split(":")[1])
        with JoinedStream(port, path, {"grpc-timeout": "50m"}) as stream:
            assert stream.answers_to_the_end() == []


@pytest.mark.parametrize("how", ["cancelled", "late"])
def test_a_call_without_a_client_is_free_within_a_tenth_of_a_second(how, monkeypatch):
    ended, forget = queue.SimpleQueue(), GrpcServer._forget

    def forgotten(server, stream, sent):
        forget(server, stream, sent)
        ended.put(time.monotonic())

    monkeypatch.setattr(GrpcServer, "_forget", forgotten)
    needed = []
    with serving() as address:
        client, stop = Client(address), threading.Event()
        for _ in range(CANCELLED_CALLS):
            begun = time.monotonic()
            answers = client.stream("PutURLs", (stop.wait(20) for _ in range(1)), seconds=DEADLINE_SECONDS)
            if how == "cancelled":
                client.ask("GetActive")
                begun = time.monotonic()
                answers.cancel()
                needed.append(ended.get(timeout=10) - begun)
            else:
                needed.append(ended.get(timeout=10) - begun - DEADLINE_SECONDS)
        stop.set()
    # The machine may be busy with other tests, so the median counts.
    assert statistics.median(needed) < 0.1


@pytest.mark.parametrize(
    ("name", "listed"),
    [("CountURLs", "urls"), ("ListURLs", "urls"), ("ListQueues", "queues"), ("PurgeURLs", "urls")],
)
def test_a_scan_ends_with_its_client(name, listed, monkeypatch):
    """The first piece waits until the client is gone; another one is not read, and no URL is deleted."""
    begun, gone, free, pieces = threading.Event(), threading.Event(), threading.Event(), []
    listing, forget, answer = getattr(Frontier, listed), GrpcServer._forget, GrpcServer._answer

    def piece(frontier, **how):
        pieces.append(how)
        begun.set()
        assert gone.wait(20)
        return listing(frontier, **(how | {"limit": 1}))

    def forgotten(server, stream, sent):
        forget(server, stream, sent)
        gone.set()

    def answered(server, *how):
        answer(server, *how)
        free.set()

    monkeypatch.setattr(GrpcServer, "_forget", forgotten)
    monkeypatch.setattr(GrpcServer, "_answer", answered)
    with serving() as address:
        client = Client(address)
        client.put(*(discovered(f"http://h{number}.test/") for number in range(5)))
        monkeypatch.setattr(Frontier, listed, piece)
        call = client.made(name)
        request = {"crawlID": "DEFAULT", **({"filter": "test"} if name in ("CountURLs", "ListURLs") else {})}
        waits = call(request) if name == "ListURLs" else call.future(request)
        assert begun.wait(20)
        waits.cancel()
        assert free.wait(20)
        assert len(pieces) == 1
        assert client.ask("GetStats")["size"] == 5


def test_a_client_of_http_1_gets_a_sentence():
    with serving() as address:
        host, port = address.split(":")
        with socket.create_connection((host, int(port)), timeout=10) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            answer = b""
            while some := plain.recv(4096):
                answer += some
        assert answer.startswith(b"HTTP/1.1 426 ")
        assert b"gRPC" in answer


def test_random_octets_close_the_connection_and_nothing_else():
    with serving() as address:
        host, port = address.split(":")
        for octets in (b"\x00" * 64, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 64):
            with socket.create_connection((host, int(port)), timeout=10) as plain:
                plain.sendall(octets)
                while plain.recv(4096):
                    pass
        assert Client(address).ask("GetActive") == {"state": True}


def test_the_health_of_the_server():
    with serving() as address, grpc.insecure_channel(address) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check", lambda one: one, lambda one: one)
        assert check(b"", timeout=10) == b"\x08\x01"


def test_without_the_native_build_the_option_is_refused_with_the_reason(monkeypatch):
    monkeypatch.setenv("OUTRIDER_KERNELS", "python")
    with pytest.raises(SettingsError, match="native build"):
        check_native()


def test_crawls_take_turns_at_being_first():
    with Frontier.memory(robots="caller") as frontier, serving(frontier) as address:
        client = Client(address)
        for crawl in ("one", "two", "three"):
            client.put(*(discovered(f"http://{crawl}{row}.test/", crawl) for row in range(9)))
        firsts = {client.infos(max_queues=1)[0]["crawlID"] for _ in range(6)}
        assert firsts == {"one", "two", "three"}


def test_the_counters_have_the_names_of_the_java_service():
    with Frontier.memory(robots="caller") as frontier:
        listener = socket.create_server(("127.0.0.1", 0))
        server = GrpcServer(frontier, Listening(*listener.getsockname()), listener, TokenRoles(), None)
        server.start()
        client = Client(server.address)
        client.put(discovered("http://a.test/"), discovered("http://a.test/"), known("http://b.test/", 0))
        list(client.stream("PutDiscovered", iter([{"items": [info("http://c.test/")]}])))
        client.get()
        server.close()

    class Found(Collector):
        def collect(self):
            return _of_urlfrontier(server)

    registry = CollectorRegistry()
    registry.register(Found())
    page = generate_latest(registry).decode()
    for line in (
        "frontier_getURLs_calls_total 1.0",
        "frontier_getURLs_total 2.0",
        "frontier_putURLs_calls_total 1.0",
        "frontier_putDiscovered_calls_total 1.0",
        "frontier_putURLs_total 4.0",
        'frontier_putURLs_discovered_total{discovered="true"} 3.0',
        'frontier_putURLs_discovered_total{discovered="false"} 1.0',
        "frontier_putURLs_ignored_total 1.0",
        "frontier_putURLs_completed_total 1.0",
        "frontier_putURLs_forward_notready_total 0.0",
        "frontier_getURLs_latency_seconds_count 1.0",
    ):
        assert line in page.splitlines(), page


def test_messages_are_read_as_they_were_written():
    protocol = Protocol.of("urlfrontier")
    item = {
        "known": {
            "info": {"url": "http://é/", "metadata": {"a": {"values": ["1", ""]}, "": {}}},
            "refetchable_from_date": (1 << 64) - 1,
        },
        "ID": "x",
    }
    assert protocol.read("URLItem", protocol.write("URLItem", item)) == item
    assert protocol.read("GetParams", protocol.write("GetParams", {"crawlID": ""})) == {"crawlID": ""}
    assert protocol.read("BatchAck", protocol.write("BatchAck", {"statuses": [0, 1, 2]})) == {"statuses": [0, 1, 2]}
    # Of a oneof the last one counts, and fields that are not known are passed over.
    both = protocol.write("GetParams", {"anyCrawlID": {}}) + protocol.write("GetParams", {"crawlID": "c"})
    assert protocol.read("GetParams", both + b"\xf8\x01\x05\xf9\x01" + b"1" * 8) == {"crawlID": "c"}


@pytest.mark.parametrize(
    "octets", [b"\x1a\x05a", b"\xff" * 11, b"\x00\x01", b"\x0b", b"\x1a\x01\xff", b"\x08", b"\x09a", b"\x18\x01"]
)
def test_octets_that_are_no_message_are_refused(octets):
    with pytest.raises(MalformedMessageError):
        Protocol.of("urlfrontier").read("GetParams", octets)


def test_all_calls_of_the_protocol_have_a_role():
    calls = Protocol.of("urlfrontier").calls
    assert len(calls) == 19
    assert set(calls) == set(ROLES)


def test_robots_files_are_requested_before_the_urls_of_their_host():
    """A server with REST reads robots.txt itself, also for clients of gRPC."""
    asked = []

    class Errands:
        async def take(self, leases):
            asked.extend(lease.url for lease in leases)
            frontier.report([lease.robots(200, b"User-agent: *\nDisallow: /private") for lease in leases])

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    with Frontier.memory(robots="errands", settings=NO_DELAY) as frontier:
        listener = socket.create_server(("127.0.0.1", 0))
        server = GrpcServer(frontier, Listening(*listener.getsockname()), listener, TokenRoles(), None)
        server.start(loop, Errands())
        client, found = Client(server.address), []
        client.put(discovered("http://a.test/private"), discovered("http://a.test/open"))
        assert waited(lambda: found.extend(client.get()) or found)
        server.close()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
    assert (found, asked) == (["http://a.test/open"], ["http://a.test/robots.txt"])
