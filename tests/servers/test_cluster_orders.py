"""Limits and orders of a crawl of several nodes on a real Kafka, judged by the log of the web."""

from __future__ import annotations

import json
from bisect import bisect_left

import pytest

from e2e.crawling import HOSTS_ON_LOOPBACK, web
from servers.cluster_nodes import HOSTS, Nodes

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(400),
    HOSTS_ON_LOOPBACK,
]


def test_a_rate_is_kept_in_each_minute_by_all_nodes(kafka, tmp_path):
    with web(tmp_path / "web", hosts=HOSTS, pages=300, suffix="test") as served:
        nodes = Nodes(tmp_path, kafka, served, options=["--rate", "2"])
        try:
            nodes.start("a", f"@{served.seeds_file}")
            nodes.start("b")
            nodes.for_seconds(100)
            nodes.running["b"].kill()
            nodes.for_seconds(60)
            records = [json.loads(line) for line in served.log_file.read_text().splitlines()]
            pages = sorted(one["start"] for one in records if one["path"] != "/robots.txt")
            most = max(bisect_left(pages, at + 60_000_000) - place for place, at in enumerate(pages))
            assert most <= 120
            assert len(pages) > 100
        finally:
            nodes.end()
