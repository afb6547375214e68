"""Limits and orders of a crawl of several nodes on a real Kafka, judged by the log of the web."""

from __future__ import annotations

import json
from bisect import bisect_left

import pytest

from e2e.crawling import HOSTS_ON_LOOPBACK, web
from outrider import Frontier
from outrider.crawl.questions.cluster_status import cluster_status
from outrider.journey import Code
from servers.cluster_nodes import HOSTS, PARTITIONS, Nodes

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(400),
    HOSTS_ON_LOOPBACK,
]


RATE = 2


def pages_of(served):
    """When the requests for pages began, in microseconds, by the log of the web."""
    records = [json.loads(line) for line in served.log_file.read_text().splitlines()]
    return sorted(one["start"] for one in records if one["path"] != "/robots.txt")


def most_in_a_minute(served):
    """The most requests for pages in a minute."""
    pages = pages_of(served) if served.log_file.exists() else []
    return max((bisect_left(pages, at + 60_000_000) - place for place, at in enumerate(pages)), default=0)


def test_a_rate_is_kept_in_each_minute_by_all_nodes(kafka, tmp_path):
    with web(tmp_path / "web", hosts=HOSTS, pages=300, suffix="test") as served:
        nodes = Nodes(tmp_path, kafka, served, options=["--rate", str(RATE)])
        try:
            nodes.start("a", f"@{served.seeds_file}")
            nodes.start("b")
            nodes.for_seconds(100)
            nodes.running["b"].kill()
            nodes.for_seconds(60)
            assert most_in_a_minute(served) <= RATE * 60
            assert len(pages_of(served)) > 100
        finally:
            nodes.end()


def test_an_idle_node_lends_its_rate_to_a_busy_one(kafka, tmp_path):
    with web(tmp_path / "web", hosts=2, pages=1_000, suffix="test") as served:
        nodes = Nodes(tmp_path, kafka, served, options=["--rate", str(RATE), "--scope", "host"])

        def owned():
            found = cluster_status(str(nodes.file))
            return sorted(len(node["partitions"]) for node in found["nodes"] if node["runs"])

        try:
            for name in "ab":
                nodes.start(name)
            half = PARTITIONS // 2
            nodes.until(lambda: [half, half] == owned())
            (seed, *_) = served.seeds_file.read_text().split()
            with Frontier.connect(str(nodes.file)) as frontier:
                assert [Code.HELD] == frontier.discover([seed])  # all work is in one partition
            own = RATE * 60 // 2
            nodes.until(lambda: most_in_a_minute(served) > own)
            nodes.for_seconds(60)
            assert most_in_a_minute(served) <= RATE * 60
            assert 1 == sum(nodes.length(name) > 0 for name in "ab")
        finally:
            nodes.end()
