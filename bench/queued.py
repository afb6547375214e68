"""`queued`: many queued URLs on a million hosts within an amount of memory: bytes of disk, and the cost of new URLs and
of visits against those of the first million, in turns.

    python -m bench queued [--urls N] [--memory SIZE]

Each host gets one URL. Then the hosts get the others in sizes by Zipf's law with exponent 1. A cgroup confines the
process to its memory and 600 MB. The clock is virtual. While the last tenth is added, and around the visits after it,
another process adds and visits the first million in a store of its own, TURNS + 2 times.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import mean

import numpy as np
import numpy.typing as npt

from bench.confined import join
from bench.confined_frontier import VirtualClock, answer_of, check_room, where
from bench.frontier_engine import KEYS, LEASE_SECONDS, outcomes_of, store_bytes
from bench.made import BATCH, url_of
from bench.measuring import resident_bytes
from bench.scale_peer import StepProgress
from bench.tables import Table, ratio
from bench.turns import Turns
from outrider import Frontier
from outrider.limits import MEMORY_BYTES

URLS = 10_000_000
HOSTS = 1_000_000
PROCESS_BYTES = 600_000_000
"""Memory of a confined process in addition to `memory_bytes`: Python, libraries, a call, the pages of files, a million
hosts with queued URLs, and the records of the ledger that arrive during a checkpoint."""
DISK_BYTES_PER_URL = 300
"""Free space that is needed: a merge has old and new files at once."""
LAST_PART = 10
"""The cost is measured for the last tenth of the URLs, but for no less than a million: it includes its part of large
merges."""
LAST_URLS_MIN = 1_000_000
TURNS = 4
VISIT_CALLS, VISIT_URLS = 500, 100
VISIT_PAUSE = 1_000_000
"""Microseconds from one call to the next."""
FETCH_SECONDS = 0.2


def tables(urls: int | None = None, memory: int | None = None) -> list[Table]:
    """Returns a row for the first million URLs, and one for all. Raises NoRoomError, ChildFailedError."""
    total, memory = urls or URLS, memory or MEMORY_BYTES
    check_room("queued", total + HOSTS, DISK_BYTES_PER_URL, "--urls")
    marks = answer_of("queued", [str(total), str(memory)], bytes_max=memory + PROCESS_BYTES)
    rows = []
    for mark in marks:
        firsts = mark["firsts"] or [marks[0]]
        against = (ratio(mark[name], mean(first[name] for first in firsts)) for name in ("new", "visit"))
        rows.append((mark["urls"], mark["new"], mark["visit"], *against, mark["disk"], mark["memory"] / 1e6))
    firsts = marks[-1]["firsts"]
    turns = [f"{name} {', '.join(f'{first[name]:.1f}' for first in firsts)} µs" for name in ("new", "visit")]
    readings = "; ".join(turns) if firsts else "no turns with so few URLs"
    columns = ("URLs", "new µs", "visit µs", "to the first", "to the first", "disk B a URL", "memory MB")
    notes = (
        f"CPU time of the process. {HOSTS:,} hosts; memory_bytes is {memory:,}; "
        + where(marks[0]["confined"], PROCESS_BYTES),
        f"New: of the last tenth of the URLs, and no less than a million, in calls of {BATCH:,}.",
        f"Visit: lease and report of a URL, in calls of {VISIT_URLS}.",
        f"To the first: to the mean of a first million in turns, in a store of its own: {readings}.",
        "Disk: after a checkpoint. Memory: growth of the process.",
    )
    return [Table("queued", "Queued URLs beyond the memory", columns, tuple(rows), notes)]


def calls(first: int, last: int) -> Iterator[list[str]]:
    """Yields the URLs of these rows. The first million rows have a host each."""
    draw = np.random.default_rng(first)
    for begin in range(first, last, BATCH):
        rows = np.arange(begin, min(begin + BATCH, last))
        hosts: npt.NDArray[np.int64] = rows
        if begin >= HOSTS:
            hosts = (HOSTS ** draw.random(len(rows))).astype(np.int64) - 1
        yield [url_of(row * HOSTS + host, HOSTS) for row, host in zip(rows.tolist(), hosts.tolist(), strict=True)]


def added(frontier: Frontier, first: int, last: int, progress: StepProgress, turns: Turns | None) -> float:
    """Adds URLs. Returns the CPU seconds of the process for each of the last ones, without the making of the URLs."""
    spent, measured = 0.0, min(last - first, max(LAST_URLS_MIN, last // LAST_PART))
    begun = {(last - measured + turn * measured // TURNS) // BATCH * BATCH for turn in range(TURNS)}
    for place, urls in zip(range(first, last, BATCH), calls(first, last), strict=True):
        began = time.process_time()
        if turns is not None and place in begun:
            turns.take()  # merges in other threads continue meanwhile, and count
        frontier.discover(urls)
        if place >= last - measured:
            spent += time.process_time() - began
        progress.add(len(urls))
    return spent / measured


def visits(frontier: Frontier, clock: VirtualClock) -> float:
    """Leases and reports. Returns the CPU seconds for each URL."""
    began, visited = time.process_time(), 0
    for _ in range(VISIT_CALLS):
        leases = frontier.lease(VISIT_URLS, ttl_seconds=LEASE_SECONDS)
        frontier.report(outcomes_of(leases, np.full(len(leases), FETCH_SECONDS), columns=True))
        visited += len(leases)
        clock.at += VISIT_PAUSE
    assert visited == VISIT_CALLS * VISIT_URLS, "hosts are always ready"
    return (time.process_time() - began) / visited


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("urls", type=int)
    parser.add_argument("memory", type=int)
    parser.add_argument("store", type=Path)
    parser.add_argument("answer", type=Path)
    given = parser.parse_args()
    turns = None
    if given.urls > HOSTS:
        turns = Turns("queued", [str(HOSTS), str(given.memory)], bytes_max=given.memory + PROCESS_BYTES)
    is_confined, clock = join(), VirtualClock()
    before, marks = resident_bytes(), []
    frontier = Frontier.open(
        given.store, clock=clock, keys=KEYS, robots="caller", settings={"memory_bytes": given.memory}
    )
    progress, first = StepProgress("queued", given.urls, "URLs"), 0
    for last in sorted({min(HOSTS, given.urls), given.urls}):
        taken = turns if first else None
        new = added(frontier, first, last, progress, taken)
        frontier.checkpoint()
        disk = sum(store_bytes(given.store).values())
        memory = resident_bytes() - before
        if taken is not None:
            taken.take()
        visit = visits(frontier, clock)
        if taken is not None:
            taken.take()
        marks.append(
            {
                "urls": last,
                "new": new * 1e6,
                "visit": visit * 1e6,
                "disk": disk / last,
                "memory": memory,
                "confined": is_confined,
                "firsts": [marks_of[0] for marks_of in taken.answers] if taken is not None else [],
            }
        )
        first = last
    given.answer.write_text(json.dumps(marks))
    frontier.close()
    if turns is not None:
        turns.close()


if __name__ == "__main__":
    main()
