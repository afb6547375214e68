"""Java clients with stubs of our own proto texts: one leases, extends, returns, reports and looks at URLs of a server.
Another one sends URLs in the protocol URLFrontier, with the calls that the published Java artifact lacks."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from outrider import engine, service
from servers.programs import java_program
from servers.served import servers

pytestmark = pytest.mark.timeout(400)  # Maven builds the programs
CLIENT = Path(__file__).parent / "frontier_client"
PROTOS = (
    Path(engine.__file__).with_name("frontier.proto"),
    Path(service.__file__).with_name("urlfrontier.proto"),
)
HOSTS, PAGES = 12, 6
IN_FLIGHT = 100_000
BATCHES, BATCH = 20, 256
PROBLEM = "urn:outrider:problem:"


@pytest.fixture(scope="module")
def java(tmp_path_factory):
    return java_program(CLIENT, tmp_path_factory.mktemp("java") / "client", "grpc-java and protoc", *PROTOS)


def answers(java, directory, name, *words):
    """Runs a program with a new server, and returns the document that it prints."""
    with servers() as start:
        _, line = start(directory / "crawl", "--grpc", "127.0.0.1:0")
        assert "serving gRPC at" in line, line
        program = [*java, name, line.split()[-1], *map(str, words)]
        done = subprocess.run(program, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_a_java_client_sends_100_000_items_without_waiting_and_batches_and_purges_them(java, tmp_path):
    urls = BATCHES * BATCH
    assert answers(java, tmp_path, "Sends", IN_FLIGHT, BATCHES) == {
        "in_flight": f"{{OK={IN_FLIGHT}}} of {IN_FLIGHT}",  # the program waits a minute
        "new": f"{{OK={urls}}} of {BATCHES}",
        "known": f"{{SKIPPED={urls}}} of {BATCHES}",
        "purged": urls,
    }


def test_a_java_client_crawls_by_leases_with_stubs_of_our_proto(java, tmp_path):
    assert answers(java, tmp_path, "Work", HOSTS, PAGES) == {
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
