"""A served frontier among hostile or faulty clients, over real sockets: it keeps answering all other clients."""

from __future__ import annotations

import asyncio
import json
import resource
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from contextlib import suppress

import pytest

from limiting import set_limits
from outrider.service import http_server
from outrider.service.access import Listening
from served import API, A, B, Served

HOST = b"Host: 127.0.0.1\r\n"
GET = b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n"


class Server:
    """A server in a thread of its own, and sockets to it."""

    def __init__(self, certificate=None, key=None):
        self.served = Served()
        self._at = Listening("127.0.0.1", 0, certificate, key)
        self._listener = http_server.bound(self._at)
        self.port = self._listener.getsockname()[1]
        self.sockets = []
        self._begun = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()
        self._begun.wait()

    async def _run(self):
        self._server = http_server.server_of(self.served.desk, self._at)
        self._begun.set()
        await self._server.serve([self._listener])

    def close(self):
        for one in self.sockets:
            one.close()
        self._server.should_exit = self._server.force_exit = True
        self._thread.join()

    def connected(self, sent=b"", seconds=10):
        found = socket.create_connection(("127.0.0.1", self.port), timeout=seconds)
        self.sockets.append(found)
        found.sendall(sent)
        return found

    def asked(self, sent, seconds=10):
        """The answers to these octets, up to the end of the connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=seconds) as connection:
            connection.sendall(sent)
            return read(connection)

    def get(self, path="/healthz", *lines):
        head = b"GET " + path.encode() + b" HTTP/1.1\r\nConnection: close\r\n" + b"".join(lines or (HOST,)) + b"\r\n"
        return answered(self.asked(head))

    def post(self, path, body):
        octets = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nConnection: close\r\nContent-Type: application/json\r\n".encode() + HOST
        return answered(self.asked(head + b"Content-Length: %d\r\n\r\n" % len(octets) + octets))


def read(connection):
    """All octets up to the end. A reset ends them as well."""
    found = b""
    try:
        while piece := connection.recv(65_536):
            found += piece
    except ConnectionError:
        pass
    return found


def answered(octets):
    """(status, JSON)"""
    head, _, body = octets.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body) if body.startswith(b"{") else body


def kind(octets):
    """(status, the last word of the problem's type)"""
    status, found = answered(octets)
    return status, found["type"].rpartition(":")[2]


def until(connection, word):
    """Reads up to a word of the answer."""
    found = b""
    while word not in found:
        found += (piece := connection.recv(65_536))
        assert piece, found


def drips(connection, piece):
    """The seconds until a connection that is sent piece after piece is closed, 8 at the most."""
    began = time.monotonic()
    with suppress(OSError):
        while time.monotonic() < began + 8:
            connection.sendall(piece)
            time.sleep(0.02)
    return time.monotonic() - began


@pytest.fixture(scope="module")
def quick():
    """Limits that let these tests be quick."""
    patch = pytest.MonkeyPatch()
    set_limits(
        patch,
        SERVICE_HEAD_SECONDS_MAX=0.4,
        SERVICE_BODY_SECONDS_MAX=0.6,
        SERVICE_REST_SECONDS_MAX=0.3,
        SERVICE_ANSWER_SECONDS_MAX=0.4,
        SERVICE_WATCH_SECONDS=0.05,
    )
    yield
    patch.undo()


@pytest.fixture
def limits(quick, monkeypatch):
    """Further limits, of one test."""
    return lambda **more: set_limits(monkeypatch, **more)


@pytest.fixture
def silent(capfd, caplog):
    """Strangers make a server write nothing, on standard error or into a log."""
    yield
    assert [] == [one for one in caplog.records if one.name.startswith("outrider")]
    assert "" == capfd.readouterr().err


@pytest.fixture(scope="module")
def server(quick):
    server = Server()
    yield server
    server.close()


# -- half a request ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (b"", b""),
        (b"G", (408, "slow-head")),
        (b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ", (408, "slow-head")),
        (b"POST /x HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n", (408, "slow-head")),
    ],
)
def test_half_a_head_ends_its_connection_in_time(sent, told, server, silent):
    began = time.monotonic()
    found = server.asked(sent)
    assert told == (kind(found) if found else found)
    assert 0.3 < time.monotonic() - began < 5


def test_a_head_that_drips_has_no_longer_than_one_that_stops(server, silent):
    connection = server.connected(b"GET /healthz HTTP/1.1\r\n")
    assert drips(connection, b"X: y\r\n") < 5


def test_the_time_of_a_head_begins_anew_with_each_request(server, silent):
    connection = server.connected(GET)
    until(connection, b"serving")
    time.sleep(0.5)  # longer than a head may last: the connection is idle, and uvicorn's own limit applies
    connection.sendall(GET)
    until(connection, b"serving")
    connection.sendall(GET[:20])
    assert (408, "slow-head") == kind(read(connection))


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_drips_is_broken_off(chunked, server, silent):
    framing = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: 100000"
    head = b"POST /api/v1/frontier/urls HTTP/1.1\r\nContent-Type: application/json\r\n" + HOST + framing + b"\r\n\r\n"
    connection, began = server.connected(head), time.monotonic()
    connection.setblocking(False)
    found = b""
    while b"}" not in found and time.monotonic() < began + 8:
        connection.sendall(b"1\r\n \r\n" if chunked else b" ")
        time.sleep(0.02)
        try:
            found += connection.recv(65_536)
        except BlockingIOError:
            continue
    assert (408, "slow-body") == kind(found)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("host", [b"127.0.0.1", b"evil.test"])
def test_the_rest_of_a_refused_body_keeps_no_connection(host, server, silent):
    head = b"POST /nothing HTTP/1.1\r\nHost: " + host + b"\r\nContent-Length: 100000000\r\n\r\n"
    assert drips(server.connected(head), b"x" * 100) < 5


def test_answers_that_no_client_reads_are_not_kept(server, silent):
    server.post(f"{API}/frontier/urls", {"urls": [f"http://h{n}.test/{'x' * 7_000}" for n in range(1_000)]})
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    connection.connect(("127.0.0.1", server.port))
    connection.settimeout(10)
    server.sockets.append(connection)
    connection.sendall((b"GET /api/v1/urls?limit=1000 HTTP/1.1\r\n" + HOST + b"\r\n") * 20)
    own, ends = connection.getsockname(), time.monotonic() + 8
    while own in (left := {one.client for one in set(server._server.server_state.connections)}):
        assert time.monotonic() < ends, left
        time.sleep(0.05)
    assert 200 == server.get()[0]


# -- crowds ------------------------------------------------------------------------------------------------------------


def waiting_request(ms):
    """Requests one URL, and waits for it up to this time."""
    return f"GET {API}/frontier/next?worker_id=w&batch_size=1&timeout_ms={ms} HTTP/1.1\r\n".encode() + HOST + b"\r\n"


HALF_BODY = b"POST /api/v1/retry HTTP/1.1\r\n" + HOST + b"Content-Length: 9\r\n\r\n"


@pytest.mark.parametrize("sent", [b"", b"GET /heal", GET, HALF_BODY])
def test_connections_that_send_nothing_more_lock_no_client_out(sent, limits, silent):
    limits(SERVICE_CONNECTIONS_MAX=20, SERVICE_HEAD_SECONDS_MAX=60, SERVICE_BODY_SECONDS_MAX=60)
    server = Server()
    try:
        for _ in range(100):
            server.connected(sent)
        began = time.monotonic()
        assert [200] * 5 == [server.get()[0] for _ in range(5)]
        assert time.monotonic() - began < 5
        assert len(server._server.server_state.connections) <= 21
    finally:
        server.close()


def test_requests_that_are_being_answered_are_not_dropped_for_new_connections(limits, silent):
    limits(SERVICE_CONNECTIONS_MAX=10)
    server = Server()
    try:
        wait = waiting_request(3000)
        waiting = [server.connected(wait) for _ in range(5)]
        for _ in range(50):
            server.connected()
        assert 200 == server.get()[0]
        server.post(f"{API}/frontier/urls", {"urls": [f"http://h{n}.test/" for n in range(5)]})
        assert [b"HTTP/1.1 200"] * 5 == [one.recv(12) for one in waiting]
    finally:
        server.close()


def test_unfinished_bodies_use_a_bounded_number_of_bytes(limits, silent):
    limits(SERVICE_BODIES_BYTES_MAX=2_000_000, SERVICE_BODY_SECONDS_MAX=60)
    server = Server()
    try:
        head = b"POST /api/v1/frontier/urls HTTP/1.1\r\nContent-Type: application/json\r\n" + HOST
        for _ in range(40):
            server.connected(head + b"Content-Length: 16000000\r\n\r\n" + b" " * 150_000)
        time.sleep(0.2)
        urls = [f"http://h{n}.test/{'x' * 300}" for n in range(1_000)]
        assert (200, 1_000) == ((found := server.post(f"{API}/frontier/urls", {"urls": urls}))[0], found[1]["accepted"])
        assert server.served.desk.bodies.held <= 2_000_000
    finally:
        server.close()


def test_a_body_in_chunks_of_one_octet_is_read_and_delays_no_other_client(server, limits, silent):
    limits(SERVICE_BODY_SECONDS_MAX=30)
    body = json.dumps({"urls": [f"http://h{n}.test/" for n in range(400)]}).encode()
    head = b"POST /api/v1/frontier/urls HTTP/1.1\r\nContent-Type: application/json\r\nConnection: close\r\n" + HOST
    sent = head + b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(b"1\r\n%c\r\n" % one for one in body) + b"0\r\n\r\n"
    set_aside = []
    crowd = [threading.Thread(target=lambda: set_aside.append(server.asked(sent, 30))) for _ in range(4)]
    for one in crowd:
        one.start()
    took = []
    while any(one.is_alive() for one in crowd):
        began = time.monotonic()
        assert 200 == server.get()[0]
        took.append(time.monotonic() - began)
    assert {200} == {answered(one)[0] for one in set_aside}
    assert 400 == sum(answered(one)[1]["accepted"] for one in set_aside)
    assert max(took) < 0.5


def test_many_requests_at_once_on_one_connection_are_all_answered(server, silent):
    found = server.asked(GET * 500 + GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    assert 501 == found.count(b"HTTP/1.1 200")


DESCRIPTORS = 100


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/fd tells what is open")
def test_a_lack_of_descriptors_is_reported_once_and_the_store_continues(tmp_path):
    command = [
        sys.executable,
        "-m",
        "outrider",
        "serve",
        str(tmp_path / "crawl"),
        "--http",
        "127.0.0.1:0",
        "--drain",
        "0",
    ]
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS)),
    )
    crowd = []
    try:
        port = int(process.stderr.readline().rpartition(":")[2])
        wait = waiting_request(2000)
        for number in range(2 * DESCRIPTORS):
            crowd.append(socket.create_connection(("127.0.0.1", port), timeout=20))
            crowd[-1].sendall(wait if number < DESCRIPTORS // 2 else b"GET /half")
        octets = json.dumps({"urls": [A, B]}).encode()
        head = b"POST /api/v1/frontier/urls HTTP/1.1\r\nContent-Type: application/json\r\nConnection: close\r\n" + HOST
        with socket.create_connection(("127.0.0.1", port), timeout=20) as honest:
            honest.sendall(head + b"Content-Length: %d\r\n\r\n" % len(octets) + octets)
            assert (200, 2) == ((found := answered(read(honest)))[0], found[1]["accepted"])
    finally:
        for one in crowd:
            one.close()
        process.terminate()
        said = process.communicate(timeout=30)[1]
    assert 4 == process.returncode
    assert "Traceback" not in said
    assert ["descriptors" in said, len(said.splitlines()) <= 3] == [True, True], said


@pytest.mark.skipif(shutil.which("openssl") is None, reason="the certificate is made by openssl")
def test_handshakes_that_never_end_are_ended_and_lock_no_client_out(limits, silent, tmp_path):
    limits(SERVICE_CONNECTIONS_MAX=20)
    certificate, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key,
         "-out", certificate, "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"],
        check=True, capture_output=True,
    )  # fmt: skip
    server = Server(certificate, key)
    context = ssl.create_default_context(cafile=certificate)
    try:
        crowd = [server.connected(b"\x16\x03\x01\x02\x00\x01"[: number % 7]) for number in range(60)]
        crowd += [context.wrap_socket(server.connected(), server_hostname="127.0.0.1") for _ in range(5)]
        server.sockets += crowd[60:]
        crowd[-1].sendall(b"GET /half")
        with context.wrap_socket(server.connected(), server_hostname="127.0.0.1") as honest:
            honest.sendall(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            assert read(honest).startswith(b"HTTP/1.1 200")
        assert (408, "slow-head") == kind(read(crowd[-1]))
        for one in crowd[:60:10]:
            one.settimeout(5)
            read(one)  # up to its end, where the server closes it
    finally:
        server.close()


# -- targets and heads that are odd ------------------------------------------------------------------------------------


def test_a_target_in_absolute_form_is_read_and_its_authority_replaces_host(server, silent):
    for target in ("http://127.0.0.1/healthz", "HTTP://LOCALHOST:7070/healthz?", "http://[::1]:80/healthz"):
        assert 200 == server.get(target, b"Host: evil.test\r\n")[0]
        assert 200 == server.get(target)[0]
    found = server.get("http://127.0.0.1/api/v1/frontier/next?worker_id=w&crawl_id=none")
    assert (200, []) == (found[0], found[1]["urls"])
    for target in ("http://evil.test/healthz", "http://127.0.0.1.evil.test/healthz", "http://evil.test:7070/nothing"):
        sent = f"GET {target} HTTP/1.1\r\nConnection: close\r\n".encode() + HOST + b"\r\n"
        assert (421, "wrong-host") == kind(server.asked(sent))
    found = server.asked(b"GET http://127.0.0.1/healthz HTTP/1.0\r\n\r\n")
    assert found.startswith(b"HTTP/1.1 200")
    assert 404 == server.get("http://127.0.0.1")[0]


def test_the_origin_of_a_request_in_absolute_form_is_that_of_its_target(server, silent):
    own = (HOST, b"Origin: http://localhost:7070\r\n")
    assert 200 == server.get("http://localhost:7070/healthz", *own)[0]
    assert 403 == server.get("http://127.0.0.1:7070/healthz", *own)[0]


@pytest.mark.parametrize(
    ("request_line", "status", "name"),
    [
        (b"GET http:///healthz HTTP/1.1", 400, "no-request"),
        (b"GET http://user@127.0.0.1/healthz HTTP/1.1", 400, "no-request"),
        (b"GET http://127.0.0.1:7070:1/healthz HTTP/1.1", 400, "no-request"),
        (b"GET http://127.0.0.1/healthz#part HTTP/1.1", 400, "no-request"),
        (b"GET ftp://127.0.0.1/healthz HTTP/1.1", 400, "no-request"),
        (b"GET https://127.0.0.1/healthz HTTP/1.1", 421, "wrong-host"),
        (b"GET healthz HTTP/1.1", 400, "no-request"),
        (b"GET * HTTP/1.1", 400, "no-request"),
        (b"GET ?x=1 HTTP/1.1", 400, "no-request"),
        (b"CONNECT 127.0.0.1:80 HTTP/1.1", 400, "no-request"),
        (b"OPTIONS * HTTP/1.1", 405, "wrong-method"),
        (b"OPTIONS http://127.0.0.1 HTTP/1.1", 405, "wrong-method"),
        (b"OPTIONS /healthz HTTP/1.1", 405, "wrong-method"),
        (b"TRACE /healthz HTTP/1.1", 405, "wrong-method"),
        (b"GET //evil.test/healthz HTTP/1.1", 404, "unknown-path"),
        (b"GET /" + b"a" * 100_000 + b" HTTP/1.1", 431, "head-too-large"),
        (b"GET /healthz?" + b"a=b&" * 30_000 + b" HTTP/1.1", 431, "head-too-large"),
        (b"GET /healthz HTTP/1.1\r\n" + b"a:b\r\n" * 30_000, 431, "head-too-large"),
        (b"GET /healthz HTTP/1.1\r\nHost: a", 400, "no-request"),
        (b"POST /nothing HTTP/1.1\r\nTransfer-Encoding: gzip", 400, "no-request"),
    ],
    ids=lambda one: one[:40] if isinstance(one, bytes) else None,
)
def test_an_odd_head_has_a_status_and_a_type(request_line, status, name, server, silent):
    found = server.asked(request_line + b"\r\n" + HOST + b"Connection: close\r\n\r\n")
    if found or name != "head-too-large":  # a client that still sends when the connection closes may read nothing
        assert (status, name) == kind(found)
    assert 200 == server.get()[0]


@pytest.mark.parametrize(
    "sent",
    [
        b"POST /nothing HTTP/1.1\r\nHost: evil.test\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"POST /nothing HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxx\r\n",
        b"POST /api/v1/frontier/urls HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        GET + b"\x00\x01\x02\r\n\r\n",
        GET + b"GET http://user@127.0.0.1/ HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET /healthz HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade, close\r\n" + HOST + b"\r\n",
        b"GET /healthz HTTP/1.1\r\nUpgrade: h2c\r\nConnection: Upgrade, close\r\n" + HOST + b"\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 500 + b"\r\n\r\n",
    ],
    ids=lambda one: one[:40],
)
def test_any_request_of_a_stranger_gets_an_answer_and_no_line_on_standard_error(sent, server, silent):
    assert server.asked(sent).startswith(b"HTTP/1.1 ")
    assert 200 == server.get()[0]
