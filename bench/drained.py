"""`drained`: hosts with one queued URL each, the same with an address to find for each, the same with 50 hosts per
domain and a clock for each domain, and one host with as many URLs, within an amount of memory, to the last URL. With
more than two million hosts, only the first and the last of them.

    python -m bench drained [--hosts N] [--memory SIZE]

A cgroup confines the process to its memory and 300 MB. The clock is virtual, and each call of the drain is later by the
longest rest, so that every host is ready.
"""

from __future__ import annotations

import argparse
import hashlib
import ipaddress
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.confined import join
from bench.confined_frontier import VirtualClock, answer_of, check_room, where
from bench.frontier_engine import KEYS, LEASE_SECONDS, outcomes_of, store_bytes
from bench.made import BATCH, url_of
from bench.measuring import resident_bytes
from bench.scale_peer import StepProgress
from bench.tables import Table
from outrider import Frontier

HOSTS, MEMORY_BYTES = 1_000_000, 100_000_000
PROCESS_BYTES = 300_000_000
"""Memory of a confined process in addition to `memory_bytes`: Python, libraries, a call, and the pages of files."""
DISK_BYTES_PER_URL = 500
GROUPED_HOSTS_MAX = 2_000_000
"""Beyond it, only the first and the last kind are measured: hosts that share clocks take an hour for 10,000,000."""
PAUSE = 3_600_000_000
"""Microseconds from one call of the drain to the next."""
FETCH_SECONDS, DAY_SECONDS = 0.2, 86_400
KINDS = EACH, LOCATED, GROUPED, _ONE = ("a host each", "a host each, addresses", "a host each, domains", "one host")
MACHINES: dict[str, Any] = {"address": {"capacity": 2, "gap": 0.25}}
"""The clock that hosts at one address share."""
DOMAINS: dict[str, Any] = {"domain": {"capacity": 1, "gap": 1.0}}
HOSTS_PER_DOMAIN = 50


def tables(hosts: int | None = None, memory: int | None = None) -> list[Table]:
    """Returns a row for each kind of load. Raises NoRoomError, ChildFailedError."""
    total, memory = hosts or HOSTS, memory or MEMORY_BYTES
    check_room("drained", total, DISK_BYTES_PER_URL, "--hosts")
    rows, is_confined = [], False
    for kind in KINDS if total <= GROUPED_HOSTS_MAX else (EACH, _ONE):
        found = answer_of("drained", [kind, str(total), str(memory)], bytes_max=memory + PROCESS_BYTES)
        print(f"drained, {kind}: {json.dumps(found)}", file=sys.stderr, flush=True)  # a long run may end too early
        is_confined = found["confined"]
        memory_mb = tuple(found[name] / 1e6 for name in ("grown", "peak"))
        rows.append(
            (kind, *(found[name] for name in ("drained", "new", "visit", "longest")), *memory_mb, found["disk"])
        )
    columns = ("URLs", "drained", "new µs", "visit µs", "longest lease ms", "memory MB", "most MB", "disk B a URL")
    notes = (
        f"{total:,} URLs; memory_bytes is {memory:,}; " + where(is_confined, PROCESS_BYTES),
        (
            "CPU time of the process. Visit: lease and report of a URL, in calls of 1,000; the longest "
            "lease without other threads."
        ),
        "Memory: growth of the process when all are queued, and the most. Disk: after a checkpoint, all are queued.",
    )
    return [Table("drained", "Hosts with one URL, and one host with all URLs", columns, tuple(rows), notes)]


def _urls(kind: str, rows: range, urls: int) -> list[str]:
    if kind == GROUPED:
        return [f"http://h{row}.d{row % (urls // HOSTS_PER_DOMAIN)}.com/" for row in rows]
    return [url_of(row, 1 if kind == _ONE else urls) for row in rows]


def _address(host: str) -> str:
    """Returns an address of its own for each host."""
    return str(ipaddress.IPv6Address((0x2001_0DB8 << 96) + int.from_bytes(hashlib.sha256(host.encode()).digest()[:12])))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("urls", type=int)
    parser.add_argument("memory", type=int)
    parser.add_argument("store", type=Path)
    parser.add_argument("answer", type=Path)
    given = parser.parse_args()
    is_confined, clock = join(), VirtualClock()
    each, located = given.kind != _ONE, given.kind == LOCATED
    groups: dict[str, Any] = {LOCATED: {"group": MACHINES}, GROUPED: {"group": DOMAINS}}.get(given.kind, {})
    before = peak = resident_bytes()
    frontier = Frontier.open(
        given.store,
        clock=clock,
        keys=KEYS,
        robots="caller",
        addresses="errands" if located else "caller",
        settings={"memory_bytes": given.memory, **groups},
    )
    progress, began = StepProgress(f"drained, {given.kind}, new", given.urls, "URLs"), time.process_time()
    for first in range(0, given.urls, BATCH):
        rows = range(first, min(first + BATCH, given.urls))
        frontier.discover(_urls(given.kind, rows, given.urls))
        peak = max(peak, resident_bytes())
        progress.add(len(rows))
    new = (time.process_time() - began) / given.urls
    frontier.checkpoint()
    disk, grown = sum(store_bytes(given.store).values()), resident_bytes() - before
    progress, began = StepProgress(f"drained, {given.kind}", given.urls, "URLs"), time.process_time()
    drained, longest = 0, 0.0
    while True:
        begun = time.thread_time()
        leases = frontier.lease(BATCH, per_queue=1 if each else BATCH, ttl_seconds=LEASE_SECONDS, errands=located)
        longest = max(longest, time.thread_time() - begun)
        if not len(leases):
            break
        pages = len(leases)
        if located:
            outcomes = [
                lease.done(seconds=FETCH_SECONDS)
                if lease.kind == "page"
                else lease.located(_address(lease.host), ttl_seconds=DAY_SECONDS)
                for lease in leases
            ]
            pages = sum(lease.kind == "page" for lease in leases)
            frontier.report(outcomes)
        else:
            frontier.report(outcomes_of(leases, np.full(len(leases), FETCH_SECONDS), columns=True))
        drained += pages
        clock.at += PAUSE
        peak = max(peak, resident_bytes())
        if pages:
            progress.add(pages)
    answer = {
        "drained": drained,
        "new": new * 1e6,
        "visit": (time.process_time() - began) / max(drained, 1) * 1e6,
        "longest": longest * 1e3,
        "grown": grown,
        "peak": peak - before,
        "disk": disk / given.urls,
        "confined": is_confined,
    }
    assert frontier.finished(), frontier.statistics()["urls"]
    given.answer.write_text(json.dumps(answer))
    frontier.close()


if __name__ == "__main__":
    main()
