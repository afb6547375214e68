"""A served frontier with a crowd of idle workers: requests that wait, and one that reads its answer slowly."""

from __future__ import annotations

import http.client
import json
import os
import resource
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

API = "/api/v1/frontier"
CROWD = 2_000
CALLS = 400
TURNS = 3


def lease_seconds(port):
    """The time that 99 of 100 leases do not exceed; each is given back."""
    connection, found = http.client.HTTPConnection("127.0.0.1", port, timeout=60), []

    def asked(method, path, body=None):
        connection.request(method, API + path, body, {"Content-Type": "application/json"} if body else {})
        answer = connection.getresponse()
        content = answer.read()
        assert 200 == answer.status, content[:300]
        return json.loads(content)

    for _ in range(CALLS):
        begun = time.perf_counter()
        lease = asked("GET", "/next?worker_id=busy&batch_size=1")
        found.append(time.perf_counter() - begun)
        assert 1 == len(lease["urls"])
        asked("POST", "/release", json.dumps({"tokens": [lease["urls"][0]["token"]]}))
    connection.close()
    return sorted(found)[len(found) * 99 // 100]


def waiting_requests(port):
    """The number of requests that wait, by the server's own count."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/stats", timeout=60) as answer:
        return json.load(answer)["waiting_requests"]


def until_waiting(port, count):
    """Returns once this number of requests wait."""
    ends = time.monotonic() + 50
    while waiting_requests(port) != count:
        assert time.monotonic() < ends
        time.sleep(0.2)


def waiting(port):
    """A request for a URL of an empty queue, on a connection of its own."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    path = f"{API}/next?worker_id=idle&queue_key=nothing&timeout_ms=60000"
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    return connection


def reading_slowly(port):
    """A client that has requested lists again and again, and reads no answer."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    connection.connect(("127.0.0.1", port))
    connection.sendall(b"GET /api/v1/urls?limit=1000 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 50)
    return connection


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="as many connections at once are Linux' to give")
def test_two_thousand_idle_requests_and_a_slow_reader_leave_leases_as_fast_as_they_were(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limits[1] != resource.RLIM_INFINITY and limits[1] < 2 * CROWD:
        pytest.skip(f"this machine permits {limits[1]} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], 2 * CROWD), limits[1]))
    command = [sys.executable, "-m", "outrider", "serve", str(tmp_path / "crawl"), "--http", "127.0.0.1:0"]
    variables = {**os.environ, "OUTRIDER_DELAY": "0", "OUTRIDER_DELAY_FACTOR": "0"}
    server = subprocess.Popen([*command, "--drain", "0"], stderr=subprocess.PIPE, text=True, env=variables)
    crowd = []
    try:
        port = int(server.stderr.readline().rpartition(":")[2])
        urls = json.dumps({"urls": [f"http://h{number}.test/{'x' * 300}" for number in range(3_000)]}).encode()
        asked = urllib.request.Request(f"http://127.0.0.1:{port}{API}/urls", urls, {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked, timeout=60) as answer:
            assert 3_000 == json.load(answer)["accepted"]
        alone, beside = [], []
        for _ in range(TURNS):
            alone.append(lease_seconds(port))
            crowd += [waiting(port) for _ in range(CROWD)]
            crowd.append(reading_slowly(port))
            until_waiting(port, CROWD)
            beside.append(lease_seconds(port))
            for one in crowd:
                one.close()
            crowd = []
            until_waiting(port, 0)  # a client that disconnects waits no more
        # The best turn of each: a neighbour's load must not decide.
        assert min(beside) <= 2 * min(alone), (alone, beside)
    finally:
        for one in crowd:
            one.close()
        server.terminate()
        server.communicate(timeout=60)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
