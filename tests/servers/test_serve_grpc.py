"""A frontier that a process serves over gRPC: signals, kills, and connections that are cut or half-open."""

from __future__ import annotations

import signal
import socket
import threading

import pytest

from e2e.crawling import wait_for
from outrider import Frontier
from outrider.errors import OutriderError, UnreachableError
from outrider.journey import Code
from servers.relay import failing_relay
from servers.served import servers
from servers.test_serve import get

PATIENCE_SECONDS = 60.0


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@pytest.fixture
def served(tmp_path):
    """Starts servers of one directory at one port."""
    port = free_port()
    with servers() as start:

        def begun(*flags):
            process, line = start(tmp_path / "crawl", "--grpc", f"127.0.0.1:{port}", *flags)
            assert "serving gRPC at" in line, line
            return process, port

        yield begun


def connect(port):
    return Frontier.connect(f"grpc://127.0.0.1:{port}", worker="ann", patience_seconds=PATIENCE_SECONDS)


def urls(count, first=0):
    return [f"http://h{number}.test/" for number in range(first, first + count)]


def test_a_killed_server_has_all_that_it_answered_and_its_leases_continue(served):
    process, port = served()
    with connect(port) as frontier:
        assert set(frontier.discover(urls(50))) == {Code.NEW}
        leases = list(frontier.lease(20, ttl_seconds=300))
        process.kill()
        process.wait()
        late = threading.Thread(target=served)  # while the client repeats its call
        late.start()
        assert list(frontier.report([one.done(links=[f"{one.url}next"]) for one in leases])) == ["ok"] * 20
        late.join()
        counts = frontier.statistics()["urls"]
        assert (counts["done"], counts["queued"], counts["leased"]) == (20, 50, 0)


def test_sigterm_ends_waits_accepts_reports_and_ends_with_4_where_work_is_left(served):
    process, port = served("--drain", "30", "--http", "127.0.0.1:0")
    http = process.stderr.readline().split()[-1]
    with connect(port) as frontier:
        frontier.discover(urls(2))
        leases = list(frontier.lease(2, errands=True))
        ended = []

        def wait():
            with (
                Frontier.connect(f"grpc://127.0.0.1:{port}", patience_seconds=0) as other,
                pytest.raises(OutriderError) as raised,
            ):
                other.lease(1, wait_seconds=60)
            ended.append(raised.value)

        waiting = threading.Thread(target=wait)
        waiting.start()
        wait_for(lambda: get(f"{http}/api/v1/stats")["waiting_requests"])
        process.send_signal(signal.SIGTERM)
        waiting.join(20)
        assert isinstance(ended[0], UnreachableError)
        assert list(frontier.report([one.robots(404, b"") for one in leases])) == ["ok", "ok"]
        assert process.wait(30) == 4


@pytest.mark.parametrize("states", [("cut",), ("half", "cut")], ids=["cut", "half"])
def test_connections_that_fail_lose_and_repeat_no_url(served, states):
    _, port = served()
    codes = []
    with failing_relay(port, states) as relay, connect(relay.port) as frontier:
        for part in range(15):
            codes += frontier.discover(urls(25, part * 25))
            for lease in frontier.lease(5):
                codes += frontier.report([lease.done()]).outcomes
    assert codes.count(Code.NEW) == 375
    with connect(port) as frontier:
        counts = frontier.statistics()["urls"]
        assert counts["done"] == codes.count("ok") > 0
        assert sum(counts.values()) == 375
