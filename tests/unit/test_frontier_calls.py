"""`outrider.v1.Frontier`: its calls, access, errors, waits and repetitions, over a real connection."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import msgspec
import pytest

from grpc_client import Client, serving
from outrider import AsyncFrontier, Frontier, Link
from outrider.engine.grpc_requests import GrpcConnection, call_of
from outrider.engine.http_requests import RepeatedRequests, SentRequest
from outrider.engine.protobuf import Protocol
from outrider.engine.service_calls import CALLS, PROBLEM, SERVICE
from outrider.errors import SettingsError, UnreachableError
from outrider.journey import Code
from outrider.service import grpc_server
from outrider.service.problems import Problem
from outrider.service.routes import ROUTES
from unit.test_grpc_server import TOKENS, roles, waited  # noqa: F401 - a fixture

A, B = "http://a.test/", "http://b.test/"
NO_DELAY = {"delay": 0.0, "delay_factor": 0.0}
PROTOCOL = Protocol.of("frontier", "outrider.engine")


def raw(client, name, document, key="", seconds=20.0):
    """The answer of a call as a program without Outrider makes it."""
    call = client.channel.unary_unary(SERVICE + name)
    request = PROTOCOL.write("Request", {"json": json.dumps(document), "idempotency_key": key})
    return json.loads(PROTOCOL.read("Answer", call(request, timeout=seconds, metadata=client.metadata))["json"])


def refusal(call):
    """The code and the problem that end a call."""
    with pytest.raises(grpc.RpcError) as raised:
        call()
    problems = [msgspec.json.decode(value) for name, value in raised.value.trailing_metadata() if name == PROBLEM]
    return raised.value.code(), *problems


def test_the_file_is_made_of_the_requests_of_rest(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "scripts"))
    import frontier_proto

    written = Path(sys.modules["outrider.engine.service_calls"].__file__).with_name("frontier.proto").read_text("utf-8")
    assert frontier_proto.text() == written, "python scripts/frontier_proto.py writes it"


def test_each_call_carries_one_request_of_rest():
    requests = {(route.method, route.path) for route in ROUTES}
    assert set(CALLS) <= requests
    assert len(set(CALLS.values())) == len(CALLS)
    assert {call.path for call in PROTOCOL.calls.values()} == {SERVICE + name for name in CALLS.values()}


def test_a_request_becomes_its_call_with_parameters_and_body_together():
    assert call_of(SentRequest("GET", "/api/v1/frontier/next?worker_id=a%20b&batch_size=5")) == (
        "Lease", b'{"worker_id":"a b","batch_size":"5"}'
    )  # fmt: skip
    assert call_of(SentRequest("POST", "/api/v1/hosts/a.test%3A80/delay", b'{"value":2}')) == (
        "CommandHost", b'{"value":2,"host":"a.test:80","order":"delay"}'
    )  # fmt: skip
    with pytest.raises(SettingsError, match="has no call"):
        call_of(SentRequest("GET", "/api/v1/nothing"))


def test_a_program_without_outrider_leases_extends_and_returns_by_the_id_of_its_lease():
    with Frontier.memory(robots="caller", settings=NO_DELAY) as frontier, serving(frontier) as address:
        client = Client(address)
        assert raw(client, "Discover", {"urls": [A, {"url": B, "priority": 0.75}]})["accepted"] == 2
        leased = raw(client, "Lease", {"worker_id": "java", "batch_size": 2, "ttl_ms": 1_500})
        assert [one["url"] for one in leased["urls"]] == [B, A]
        lease = leased["lease_id"]
        assert raw(client, "ExtendLease", {"lease_id": lease, "ttl_ms": 60_000})["open"] == 2
        result = {"url": B, "status": "success", "http_status": 200, "links": ["/1", "/2"]}
        told = raw(client, "ReportResults", {"lease_id": lease, "results": [result]})
        assert told["links"]["accepted"] == 2
        assert raw(client, "ReturnLease", {"lease_id": str(lease)}) == {"returned": 1}
        code, problem = refusal(lambda: raw(client, "ExtendLease", {"lease_id": lease, "ttl_ms": 1_000}))
        assert (code, problem["type"]) == (grpc.StatusCode.FAILED_PRECONDITION, "urn:outrider:problem:lease-ended")


def test_a_repeated_call_with_a_key_has_the_first_answer_and_another_request_is_refused():
    with serving() as address:
        client = Client(address)
        assert [raw(client, "Discover", {"urls": [A]}, "k")["accepted"] for _ in range(2)] == [1, 1]
        code, problem = refusal(lambda: raw(client, "Discover", {"urls": [B]}, "k"))
        assert (code, problem["status"]) == (grpc.StatusCode.INVALID_ARGUMENT, 422)
        code, problem = refusal(lambda: raw(client, "Discover", {"urls": [B]}, "a b"))
        assert "Idempotency-Key 'a b'" in problem["detail"]


@pytest.mark.parametrize(
    ("name", "octets", "words"),
    [
        ("Discover", b"\x0a\x01{", "malformed-body"),
        ("Discover", b"\x0a\x02\xff\xff", "invalid-argument"),
        ("Discover", b"\x0a\xff\x7f", "invalid-argument"),
        ("Discover", b"\x0a\x02[]", "invalid-body"),
        ("Lease", b'\x0a\x10{"worker_id": 7}', "invalid-query"),
        ("Lease", b"\x0a\x02[]", "invalid-body"),
        ("ExtendLease", b"", "invalid-body"),
        ("ExtendLease", b'\x0a\x10{"lease_id": []}', "invalid-body"),
        ("Release", b'\x0a\x0e{"tokens": [A]', "malformed-body"),
    ],
)
def test_a_message_that_cannot_be_read_is_refused_with_its_reason(name, octets, words):
    with serving() as address:
        call = Client(address).channel.unary_unary(SERVICE + name)
        code, problem = refusal(lambda: call(octets, timeout=20))
        assert (code, problem["type"].rpartition(":")[2]) == (grpc.StatusCode.INVALID_ARGUMENT, words)


def test_a_long_reason_is_cut_so_that_a_client_can_read_it():
    refused = ["http://é.test/" * 100] * 100
    octets = base64.b64decode(Problem("address-refused", "é" * 5_000, refused=refused).trailer())
    assert 2_000 < len(octets) < 5_000
    assert json.loads(octets)["detail"] == "é" * 1_000
    assert json.loads(base64.b64decode(Problem("closing", "x", codes=["ok"]).trailer()))["codes"] == ["ok"]


def test_each_call_needs_a_token_of_its_role_and_orders_are_in_the_audit(roles, tmp_path):  # noqa: F811
    with serving(roles=roles, directory=tmp_path) as address:
        for token, words in ((None, "Authorization"), ("x" * 20, "not in the file"), (TOKENS["read"], "role work")):
            with Frontier.connect(f"grpc://{address}", token=TOKENS["read"]) as reader:
                reader._remote._asks = GrpcConnection(f"grpc://{address}", token=token)
                with pytest.raises(SettingsError, match=words):
                    reader.discover([A])
        with Frontier.connect(f"grpc://{address}", token=TOKENS["operate"]) as operator:
            operator.discover([A])
            assert operator.pause("a.test") == 1
    (line,) = (tmp_path / "audit.jsonl").read_text().splitlines()
    assert json.loads(line).items() >= {"order": "pause", "key": "a.test"}.items()


def test_a_lease_waits_for_a_link_and_returns_it():
    with serving() as address, Frontier.connect(f"grpc://{address}") as face:
        found = []
        waiting = threading.Thread(target=lambda: found.extend(face.lease(1, wait_seconds=20).urls))
        waiting.start()
        assert waited(lambda: address.state.frontier.waiting_leases == 1)
        face.discover([A])
        waiting.join(20)
        assert found == [A]


def test_a_cancelled_wait_leases_nothing():
    with Frontier.memory(robots="caller") as frontier, serving(frontier) as address:
        client = Client(address)
        call = client.channel.unary_unary(SERVICE + "Lease")
        octets = PROTOCOL.write("Request", {"json": '{"worker_id":"java","timeout_ms":60000}'})
        waiting = call.future(octets)
        assert waited(lambda: address.state.frontier.waiting_leases == 1)
        waiting.cancel()
        cancelled = time.monotonic()
        assert waited(lambda: address.state.frontier.waiting_leases == 0)
        assert time.monotonic() - cancelled < 2  # 0.1 s on a machine that does nothing else
        raw(client, "Discover", {"urls": [A]})
        assert frontier.status(A).state == "queued"


def test_a_wait_is_cut_off_from_another_thread():
    with serving() as address:
        connection = GrpcConnection(f"grpc://{address}")
        asked = []

        def ask():
            with pytest.raises(ConnectionError, match="cut off"):
                asked.append(connection(SentRequest("GET", "/api/v1/frontier/next?worker_id=a&timeout_ms=60000")))

        waiting = threading.Thread(target=ask)
        waiting.start()
        assert waited(lambda: connection._open)
        connection.cut()
        waiting.join(20)
        assert not waiting.is_alive()
        assert asked == []
        with pytest.raises(ConnectionError, match="cut off"):
            connection(SentRequest("GET", "/api/v1/frontier/ready"))
        connection.close()


def test_a_body_may_be_larger_than_a_message_of_urlfrontier():
    links = [f"http://a.test/{row:05}/{'x' * 1_500}" for row in range(4_000)]
    with serving() as address, Frontier.connect(f"grpc://{address}") as face:
        assert set(face.discover(links)) == {Code.NEW}


def test_calls_whose_unfinished_messages_fill_the_memory_are_ended_and_short_ones_are_not(monkeypatch):
    monkeypatch.setattr(grpc_server, "UNFINISHED_BYTES_MAX", 1 << 20)
    with serving() as address:
        client = Client(address)
        code = refusal(lambda: raw(client, "Discover", {"urls": ["http://a.test/" + "x" * (3 << 20)]}))[0]
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert raw(client, "Discover", {"urls": [A]})["accepted"] == 1
        assert raw(client, "Discover", {"urls": [A + "x" * 500_000, B]})["accepted"] == 1


def test_a_call_is_repeated_until_the_server_is_back_and_has_its_effect_once():
    with Frontier.memory(robots="caller") as frontier:
        with serving(frontier) as address:
            face = Frontier.connect(f"grpc://{address}", patience_seconds=20)
            codes = face.discover([A], request_id=("ann", 1))
        found = []
        late = threading.Thread(target=lambda: found.extend(face.discover([A], request_id=("ann", 1))))
        late.start()
        assert waited(lambda: face._remote is not None and late.is_alive())
        with serving(frontier, port=int(address.rpartition(":")[2])):
            late.join(20)
            assert (found, codes) == ([Code.NEW], [Code.NEW])
            face.close()


def test_other_servers_are_named_in_the_error():
    with pytest.raises(UnreachableError, match=r"no answer from grpc://127\.0\.0\.1:1 "):
        Frontier.connect("grpc://127.0.0.1:1", patience_seconds=0)
    with serving(frontier_calls=False) as address, pytest.raises(UnreachableError, match=r"no frontier of Outrider's"):
        Frontier.connect(f"grpc://{address}", patience_seconds=0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        connection = GrpcConnection(f"grpc://127.0.0.1:{silent.getsockname()[1]}")
        remote = RepeatedRequests("grpc://x", connection, patience_seconds=0)
        with pytest.raises(UnreachableError, match="no answer from"):
            remote.made(SentRequest("GET", "/api/v1/frontier/ready", seconds_max=0.2))
        connection.close()


def test_an_address_for_grpc_is_named_if_it_is_written_as_one_for_rest():
    with serving() as address, pytest.raises(UnreachableError, match=f"write grpc://{address}, or give its address"):
        Frontier.connect(f"http://{address}", patience_seconds=0)


def test_another_server_of_grpc_is_named_too():
    """The first bytes of its answer are a frame of HTTP/2 (RFC 9113 section 3.4)."""
    settings = bytes.fromhex("000000040000000000")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20)

        def answer() -> None:
            with server.accept()[0] as client:
                client.sendall(settings + b"\r\n")

        answering = threading.Thread(target=answer)
        answering.start()
        with pytest.raises(UnreachableError, match=r"speaks no HTTP/1\.1; an address for gRPC begins with grpc://"):
            Frontier.connect(f"http://127.0.0.1:{server.getsockname()[1]}", patience_seconds=0)
        answering.join()


@contextmanager
def foreign(answer):
    """A server of gRPC that answers each call in its own way."""

    class Calls(grpc.GenericRpcHandler):
        def service(self, _details):
            return grpc.unary_unary_rpc_method_handler(answer)

    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers([Calls()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"grpc://127.0.0.1:{port}"
    finally:
        server.stop(None)


@pytest.mark.parametrize("octets", [b"\xff", b"\x0a\x01\xff", b"\x0a\x02[]"])
def test_an_answer_in_another_language_is_named(octets):
    with foreign(lambda _request, _context: octets) as address:
        with pytest.raises(UnreachableError, match="answered in another language"):
            Frontier.connect(address, patience_seconds=0)


@pytest.mark.parametrize("problem", [b"\xff\xfe", b"[]", b'{"status": "x"}', b"{" * 5_000])
def test_a_problem_that_cannot_be_read_is_an_error_of_its_status(problem):
    def refuses(_request, context):
        context.set_trailing_metadata([(PROBLEM, problem)])
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too large")

    with foreign(refuses) as address, pytest.raises(SettingsError, match="too large"):
        Frontier.connect(address, patience_seconds=0)


@pytest.mark.parametrize(
    ("address", "named", "words"),
    [
        ("grpc://192.168.1.7:7071", {"token": "a" * 16}, "unencrypted; use grpcs://"),
        ("grpc://127.0.0.1:7071", {"ca": "file"}, "use grpcs://"),
        ("grpcs://127.0.0.1:7071", {"ca": "/nowhere"}, "no certificates"),
        ("grpc://127.0.0.1:7071/x", {}, "use http://HOST:PORT, https"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused(address, named, words):
    with pytest.raises(SettingsError, match=words):
        Frontier.connect(address, **named)


def test_without_grpcio_the_command_that_installs_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(SettingsError, match=r"needs grpcio.*pip install 'outrider\[grpc\]'"):
        Frontier.connect("grpc://127.0.0.1:7071")


def test_the_same_verbs_are_awaited():
    async def crawl(address):
        async with AsyncFrontier.connect(f"grpc://{address}") as frontier:
            await frontier.discover([A, Link(B, priority=0.75)])
            (lease,) = await frontier.lease(1)
            return lease.url, lease.priority, list(await frontier.report([lease.done(links=[A + "2"])]))

    with serving() as address:
        assert asyncio.run(crawl(address)) == (B, 0.75, ["ok"])


def test_a_call_of_a_closed_frontier_is_unavailable():
    with Frontier.memory(robots="caller") as frontier, serving(frontier) as address:
        frontier.close()
        code, problem = refusal(lambda: raw(Client(address), "Discover", {"urls": [A]}))
        assert (code, problem["retry_after_seconds"]) == (grpc.StatusCode.UNAVAILABLE, 1)
