"""Failures of networks and of data in a crawl of three nodes: brokers and object storage behind relays that cut, halt,
slow or mute connections, messages that are no links, nodes that come and go or claim at once, a host with most of the
pages, and one whose robots.txt fails.

The log of the web is the judge."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time

import pytest

from e2e.crawling import HOSTS_ON_LOOPBACK, web
from outrider.cluster.description import read_cluster_file
from outrider.cluster.kafka import Brokers
from outrider.limits import TENURE_SECONDS
from outrider.sim.web import DemoServer, DemoWeb, WebAnswer
from servers.cluster_nodes import DELAY, HOSTS, Nodes
from servers.kafka import SESSION_SECONDS
from servers.relay import Relay
from servers.seaweed import OWNER, seaweed_server

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(400),
    HOSTS_ON_LOOPBACK,
]
BUCKET = "cluster-bucket"
BEYOND_TENURE = 20  # seconds: session of the group, tenure and some more
MARGIN = 10  # seconds, for a machine with other work
LONG_DELAY = 2.0  # seconds: so a node that is killed has hosts without an open request


@pytest.fixture
def served(tmp_path, request):
    with web(tmp_path / "web", hosts=HOSTS, pages=getattr(request, "param", 400), suffix="test") as running:
        yield running


@pytest.fixture
def nodes(kafka, served, tmp_path, request):
    """Three nodes; `b` reaches the brokers through relays. The parameter is their delay."""
    running = Nodes(tmp_path, kafka, served, delay=getattr(request, "param", DELAY))
    running.start("a", f"@{served.seeds_file}")
    running.start("b", file=running.relayed_file)
    running.start("c")
    yield running
    kafka.network("open")
    running.end()


def ends_well(nodes):
    again = nodes.finish()
    assert {0} == {process.returncode for process in nodes.running.values()}
    return again


@pytest.mark.parametrize("served", [5_000], indirect=True)  # so that it lasts until the third stop
def test_a_node_that_is_stopped_and_started_again_and_again_costs_at_most_its_open_requests(nodes):
    stops = 3
    for _ in range(stops):
        before = nodes.length("b")
        nodes.until(lambda before=before: nodes.length("b") > before)
        nodes.running["b"].send_signal(signal.SIGTERM)
        assert 4 == nodes.running["b"].wait(60)
        nodes.start("b")
    assert ends_well(nodes) <= stops * HOSTS  # a host has one request at a time


@pytest.mark.parametrize("state", ["cut", "half"])
def test_a_node_without_brokers_but_with_the_web_sends_nothing_after_its_tenure(nodes, kafka, state):
    nodes.begin("b")
    kafka.network(state)
    nodes.for_seconds(BEYOND_TENURE)
    before = nodes.length("b")
    nodes.for_seconds(3)
    assert before == nodes.length("b")
    repeated_max = nodes.given_up_max("b")
    kafka.network("open")
    assert ends_well(nodes) <= repeated_max


def test_a_slow_broker_slows_its_node_and_loses_nothing(nodes, kafka):
    nodes.begin("b")
    kafka.network("slow")
    repeated_max = [nodes.given_up_max("b")]
    began = time.monotonic()

    def is_over():
        repeated_max.append(nodes.given_up_max("b"))
        return time.monotonic() - began > BEYOND_TENURE

    nodes.until(is_over)
    kafka.network("open")
    assert ends_well(nodes) <= max(repeated_max)


def test_a_network_that_comes_and_goes_loses_nothing(nodes, kafka):
    nodes.begin("b")
    repeated_max = 0
    for _ in range(4):
        kafka.network("cut")
        nodes.for_seconds(2)
        repeated_max = max(repeated_max, nodes.given_up_max("b"))
        kafka.network("open")
        nodes.for_seconds(3)
    assert ends_well(nodes) <= repeated_max


def test_brokers_whose_acknowledgements_are_lost_have_each_record_once(nodes, kafka):
    nodes.begin("b")
    repeated_max = 0
    for _ in range(2):
        kafka.network("mute")
        nodes.for_seconds(3)
        repeated_max += nodes.given_up_max("b")
        kafka.network("cut")
        nodes.for_seconds(1)
        kafka.network("open")
        nodes.for_seconds(3)
    assert ends_well(nodes) <= repeated_max


def test_nodes_that_are_paused_and_woken_together_have_one_owner_for_each_partition(nodes):
    nodes.begin()
    repeated_max = nodes.given_up_max(*nodes.running)
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for process in nodes.running.values():
            process.send_signal(number)
        if number is signal.SIGSTOP:
            nodes.for_seconds(BEYOND_TENURE)  # the group has no member then
    assert ends_well(nodes) <= repeated_max


def test_a_node_with_a_copied_directory_ends_and_the_others_go_on(nodes):
    nodes.begin("a")
    nodes.running["a"].send_signal(signal.SIGSTOP)
    shutil.copytree(nodes.folder / "a", nodes.folder / "copy")
    nodes.running["a"].send_signal(signal.SIGCONT)
    nodes.start("copy")
    nodes.until(lambda: nodes.running["copy"].poll() is not None)
    assert 2 == nodes.running.pop("copy").returncode
    assert "another node with the name" in nodes.told("copy")
    nodes.exported()


@pytest.mark.parametrize("nodes", [LONG_DELAY], indirect=True)
def test_the_hosts_of_a_killed_node_are_visited_again_after_session_tenure_and_delay(nodes):
    nodes.begin("b")
    dead = nodes.running.pop("b")
    dead.kill()
    killed = time.monotonic()
    dead.wait()
    waiting = nodes.waiting_hosts("b")
    nodes.exported()
    assert waiting
    late = {host: nodes.first_asked(host, killed) - killed for host in waiting}
    assert max(late.values()) <= SESSION_SECONDS + TENURE_SECONDS + LONG_DELAY + MARGIN, late


@pytest.fixture
def stored(kafka, served, tmp_path, project):
    """Two nodes, the relay through which they reach SeaweedFS, and its server."""
    with seaweed_server(project, tmp_path / "weed") as server:
        server.make_bucket(BUCKET)
        relay = Relay(int(server.address.rpartition(":")[2]))
        nodes = Nodes(
            tmp_path, kafka, served, objects=f"s3://{BUCKET}/x", **OWNER, AWS_ENDPOINT_URL=f"http://127.0.0.1:{relay.port}"
        )  # fmt: skip
        try:
            nodes.start("a", f"@{served.seeds_file}")
            nodes.start("b")
            nodes.begin()
            yield nodes, relay, server
        finally:
            nodes.end()
            relay.close()


@pytest.mark.parametrize("state", ["slow", "cut"])
def test_the_crawl_goes_on_with_slow_object_storage_or_without_it(stored, state):
    nodes, relay, server = stored
    relay.state = state
    asked = nodes.asked
    nodes.for_seconds(5)
    assert nodes.asked > asked + HOSTS
    relay.state = "open"
    assert 0 == ends_well(nodes)
    assert any(key.endswith(".json") and "/snapshots/" in key for key in server.keys(BUCKET))


def test_nodes_that_end_without_object_storage_say_so_and_seal_their_lines_later(stored):
    nodes, relay, _ = stored
    relay.state = "cut"
    nodes.until(lambda: all(process.poll() is not None for process in nodes.running.values()))
    assert {8} == {process.returncode for process in nodes.running.values()}
    assert all("its last pages are not sealed: start this node again" in nodes.told(name) for name in "ab")
    relay.state = "open"
    for name in "ab":
        nodes.start(name)
    ends_well(nodes)


def test_messages_that_are_no_links_or_come_twice_and_late_change_nothing(nodes):
    nodes.begin()
    brokers = Brokers(read_cluster_file(str(nodes.file)), client="poison")
    try:
        poison = [b"", b"\xff\xfe", b"{", b"[" * 90_000, os.urandom(5_000), b'{"from": 0, "links": [[1, 2]]}']
        poison += [json.dumps({"url": url}).encode() for url in ("", "javascript:1", "http://[", "x" * 20_000)]
        topic = brokers.file.topic("urls")
        known = [octets for partition in range(8) for _, octets in brokers.records("urls", partition).read(0)]
        assert known
        for number, octets in enumerate([*poison, *reversed(known)]):
            brokers.send(topic, number % 8, octets).offset()
        words = brokers.records("words")
        for octets in (
            *poison,
            b'{"ask":"urls","mark":"m","question":{"limit":"many"}}',
            b'{"ask":"put","mark":"n","question":{}}',
        ):
            words.send(octets).offset()
        assert ends_well(nodes) <= HOSTS
        refused = [json.loads(octets) for _, octets in brokers.records("dead").read(0)]
        assert len(refused) >= 6
        assert all(one["reason"] for one in refused)
    finally:
        brokers.close()


class HotWeb(DemoWeb):
    """One host has most of the pages."""

    def _counts(self):
        counts = super()._counts()
        return {host: 5 if row else sum(counts.values()) for row, host in enumerate(counts)}


class FaultyRobots(DemoWeb):
    """One host answers requests of robots.txt with 503 at first."""

    def answer(self, host, path, now, *, takes_gzip=False):
        if host == self.hosts[0] and path == "/robots.txt" and now < 8:
            return WebAnswer(503, (("Content-Type", "text/plain"),), b"later\n", 0.0)
        return super().answer(host, path, now, takes_gzip=takes_gzip)


def test_a_host_whose_robots_txt_fails_is_closed_until_it_answers_and_others_go_on(kafka, tmp_path):
    web = DemoServer(lambda port: FaultyRobots(3, HOSTS, 200, port=port, quirks=False, suffix="test"), tmp_path / "web")
    with web as served:
        nodes = Nodes(tmp_path, kafka, served)
        try:
            nodes.start("a", f"@{served.seeds_file}")
            nodes.start("b")
            assert ends_well(nodes) <= HOSTS
            records = [json.loads(line) for line in served.log_file.read_text().splitlines()]
            own = [record for record in records if record["host"] == served.web.hosts[0]]
            statuses = [record["status"] for record in own if record["path"] == "/robots.txt"]
            assert [503, 503, 200] == statuses[:3]
            assert ["/robots.txt"] * 3 == [record["path"] for record in own[:3]]
            opened = own[2]["end"]
            assert sum(record["start"] < opened for record in records) > len(records) / 2
        finally:
            nodes.end()


def test_a_host_with_most_of_the_pages_keeps_its_gap_while_partitions_move(kafka, tmp_path):
    web = DemoServer(lambda port: HotWeb(3, HOSTS, 200, port=port, quirks=False, suffix="test"), tmp_path / "web")
    with web as served:
        nodes = Nodes(tmp_path, kafka, served)
        try:
            for name in "bc":
                nodes.start(name)
            nodes.until(lambda: all(nodes.has_partitions(name) for name in "bc"))
            nodes.start("a", f"@{served.seeds_file}")
            nodes.begin()
            nodes.start("d")  # its share of the partitions moves, maybe that of the host
            assert ends_well(nodes) <= HOSTS
            hot = served.web.hosts[0]
            assert 200 == sum(f"//{hot}:" in line["url"] for name in nodes.running for line in nodes.pages_of(name))
        finally:
            nodes.end()


def test_a_limit_of_pages_is_kept_exactly_by_all_nodes(kafka, served, tmp_path):
    nodes = Nodes(tmp_path, kafka, served)
    try:
        for name, seeds in (("a", [f"@{served.seeds_file}"]), ("b", [])):
            nodes.start(name, *seeds, "--max-pages", "120")
        nodes.until(lambda: all(process.poll() is not None for process in nodes.running.values()))
        assert {3} == {process.returncode for process in nodes.running.values()}
        assert 120 == sum(nodes.length(name) for name in "ab")
    finally:
        nodes.end()


def test_pages_that_wait_for_their_next_visit_are_fetched_again_after_a_lost_disk(kafka, served, tmp_path):
    nodes = Nodes(tmp_path, kafka, served, options=("--revisit", "halving"))
    try:
        nodes.start("b")
        nodes.until(lambda: nodes.has_partitions("b"))
        nodes.start("a", f"@{served.seeds_file}")
        nodes.begin("b")
        dead = nodes.running.pop("b")
        dead.kill()
        dead.wait()
        repeated_max = nodes.given_up_max("b")
        shutil.rmtree(nodes.folder / "b")
        nodes.until(lambda: served.web.must_fetch() <= {line["url"] for line in nodes.export()})
        assert nodes.running["a"].poll() is None  # such a crawl does not end
        nodes.running["a"].send_signal(signal.SIGTERM)
        nodes.exported(code=4)
        assert 0 < nodes.repeated() <= repeated_max
    finally:
        nodes.end()
