"""One crawl on three nodes and three brokers of a real Kafka, judged by the log of the web: nodes are killed, paused,
stopped and added."""

from __future__ import annotations

import gzip
import shutil
import signal
import time

import pytest

from e2e.crawling import HOSTS_ON_LOOPBACK, lines, web
from servers.cluster_nodes import HOSTS, Nodes

pytestmark = [
    pytest.mark.timeout(400),
    HOSTS_ON_LOOPBACK,
]


@pytest.fixture
def nodes(kafka, tmp_path):
    with web(tmp_path / "web", hosts=HOSTS, pages=400, suffix="test") as served:
        options = ["--archive", f"file:{tmp_path / 'archive'}", "--seal-seconds", "5"]
        running = Nodes(tmp_path, kafka, served, options=options)
        try:
            for name in "bc":
                running.start(name)
            running.until(lambda: all(running.has_partitions(name) for name in "bc"))
            running.start("a", f"@{served.seeds_file}")
            yield running
        finally:
            running.end()


@pytest.mark.long
def test_a_killed_node_whose_disk_is_lost_costs_requests_and_no_page(nodes):
    nodes.begin("b")
    dead = nodes.running.pop("b")
    dead.kill()
    dead.wait()
    shutil.rmtree(nodes.folder / "b")
    found = nodes.exported()
    for line in found:
        assert record_of(nodes.folder / "archive", line["warc"]).startswith(b"WARC/1.1\r\n")


def record_of(folder, place):
    with (folder / place["file"]).open("rb") as file:
        file.seek(place["offset"])
        return gzip.decompress(file.read(place["length"]))


def test_a_node_that_leaves_gives_its_partitions_away_and_at_most_its_open_requests_are_repeated(nodes):
    nodes.begin("b")
    nodes.start("d")
    nodes.running["b"].send_signal(signal.SIGTERM)
    assert nodes.finish() <= HOSTS  # a host has one request at a time
    assert [0, 4, 0, 0] == [nodes.running[name].returncode for name in "abcd"]
    parts = [len(lines(nodes.folder / name / "pages.jsonl")) for name in "abcd"]
    assert sum(parts) == len(nodes.served.web.must_fetch())


def test_a_node_that_is_paused_past_its_tenure_sends_nothing_and_writes_nothing_when_it_wakes(nodes):
    nodes.begin("b")
    before = nodes.told("b")
    nodes.running["b"].send_signal(signal.SIGSTOP)
    began = time.monotonic()
    nodes.until(lambda: time.monotonic() - began > 30)
    nodes.running["b"].send_signal(signal.SIGCONT)
    nodes.finish()
    assert [0, 0, 0] == [process.returncode for process in nodes.running.values()]
    assert "another node owns partition" in nodes.told("b")[len(before) :]


@pytest.mark.long
def test_all_nodes_are_killed_and_started_again(nodes):
    nodes.begin()
    for process in nodes.running.values():
        process.kill()
        process.wait()
    repeated_max = nodes.given_up_max(*nodes.running)
    for name in "abc":
        nodes.start(name)
    assert nodes.finish() <= repeated_max
    assert [0, 0, 0] == [process.returncode for process in nodes.running.values()]


@pytest.mark.long
def test_a_killed_broker_stalls_nothing_for_long(nodes, kafka):
    nodes.begin()
    kafka.brokers[0].kill()
    nodes.finish()
    kafka.start()
    assert [0, 0, 0] == [process.returncode for process in nodes.running.values()]


@pytest.mark.long
def test_the_crawl_waits_for_brokers_that_are_all_killed_and_goes_on(nodes, kafka):
    nodes.begin()
    for broker in kafka.brokers:
        broker.kill()
    killed = time.monotonic()
    nodes.until(lambda: time.monotonic() - killed > 15)
    asked = nodes.asked
    nodes.until(lambda: time.monotonic() - killed > 20)
    assert asked == nodes.asked  # the tenure is over
    kafka.start()
    nodes.finish()
    assert [0, 0, 0] == [process.returncode for process in nodes.running.values()]
