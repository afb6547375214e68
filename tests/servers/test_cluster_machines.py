"""Faults of one machine in a crawl of several nodes: a wrong clock, a full disk.

The log of the web is the judge."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from crash.mounting import fill, tmpfs
from e2e.crawling import HOSTS_ON_LOOPBACK, lines, web
from servers.cluster_nodes import HOSTS, Nodes

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(400),
    HOSTS_ON_LOOPBACK,
]
DAY = 86_400  # seconds
MEGABYTES = 64  # of the disk that becomes full


@pytest.fixture
def nodes(kafka, tmp_path):
    with web(tmp_path / "web", hosts=HOSTS, pages=300, suffix="test") as served:
        running = Nodes(tmp_path, kafka, served)
        try:
            yield running
        finally:
            running.end()


@pytest.fixture
def moved(tmp_path):
    """Returns the variables that move the wall clock of a process."""
    source, library = Path(__file__).with_name("wall_clock.c"), tmp_path / "wall_clock.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True, timeout=60)
    return lambda seconds: {"LD_PRELOAD": str(library), "WALL_CLOCK_SECONDS": str(seconds)}


def test_clocks_that_are_a_day_fast_and_a_day_slow_change_nothing(nodes, moved):
    nodes.start("b", **moved(DAY))
    nodes.start("c", **moved(-DAY))
    nodes.until(lambda: all(nodes.has_partitions(name) for name in "bc"))
    nodes.start("a", f"@{nodes.served.seeds_file}")
    assert nodes.finish() <= HOSTS  # partitions move when `a` joins; a host has one request at a time
    assert [0, 0, 0] == [nodes.running[name].returncode for name in "abc"]
    days = {name: {line["fetched_at"][:10] for line in lines(nodes.folder / name / "pages.jsonl")} for name in "abc"}
    assert all(days.values())
    assert len({max(some) for some in days.values()}) == 3, days


def test_a_node_whose_disk_is_full_ends_and_the_others_fetch_its_pages(nodes):
    with tmpfs(nodes.folder, MEGABYTES) as disk:
        full = disk.name  # a node of this name has its directory there
        nodes.start(full)
        nodes.until(lambda: nodes.has_partitions(full))
        nodes.start("a", f"@{nodes.served.seeds_file}")
        nodes.begin(full)
        fill(disk)
        nodes.until(lambda: nodes.running[full].poll() is not None)
        assert 7 == nodes.running.pop(full).returncode
        assert "is full" in nodes.told(full)
        nodes.exported()
