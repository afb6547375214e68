"""A Java client with stubs of our own proto text leases, extends, returns, reports and looks at URLs of a server."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from outrider import engine
from servers.programs import java_program
from servers.served import servers

CLIENT = Path(__file__).parent / "frontier_client"
PROTO = Path(engine.__file__).with_name("frontier.proto")
HOSTS, PAGES = 12, 6
PROBLEM = "urn:outrider:problem:"


def test_a_java_client_crawls_by_leases_with_stubs_of_our_proto(tmp_path):
    java = java_program(CLIENT, tmp_path / "client", "grpc-java and protoc", PROTO)
    with servers() as start:
        _, line = start(tmp_path / "crawl", "--grpc", "127.0.0.1:0")
        assert "serving gRPC at" in line, line
        work = [*java, "Work", line.split()[-1], str(HOSTS), str(PAGES)]
        done = subprocess.run(work, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout) == {
        "added": HOSTS,
        "repeated_alike": True,
        "first_url": "http://h0.example/0",
        "extended": HOSTS,
        "extended_ms": 120_000,
        "returned": HOSTS,
        "late": f"FAILED_PRECONDITION {PROBLEM}lease-ended",
        "nameless": f"INVALID_ARGUMENT {PROBLEM}invalid-query",
        "deadline": "DEADLINE_EXCEEDED",
        "fetched": HOSTS * PAGES,
        "twice": 0,
        "stale": 0,
        "links": HOSTS * (PAGES - 1),
        "tokens_extended": HOSTS * PAGES,
        "finished": True,
        "explained": "done",
        "done": HOSTS * PAGES,
    }
