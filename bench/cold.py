"""`cold`: hosts that were visited once and have no URLs: their bytes in memory and on disk, and the cost of bringing
one back."""

from __future__ import annotations

import shutil
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench.measuring import CACHE, resident_bytes
from bench.tables import Table
from outrider import Frontier
from outrider.crawl.setup.group_settings import machines as shared_machines
from outrider.journey import Lease, Outcome, OutcomeBatch

HOSTS = 300_000
MEMORY_BYTES = 50_000_000
"""Fifty thousand hosts may be in memory."""
BATCH = 1_000
RECALLS = 300
_WORDS = ("shop", "blog", "news", "the", "my", "web", "data", "art", "city", "green", "house", "car", "book", "media")
_ENDINGS = ("com", "net", "org", "de", "fr", "co.uk", "io")


def tables(hosts: int | None = None) -> list[Table]:
    """Returns one row for each number of known hosts, with their bytes."""
    CACHE.mkdir(parents=True, exist_ok=True)
    path = Path(tempfile.mkdtemp(prefix="cold-", dir=CACHE))
    columns = ("hosts known", "in memory", "RSS MB", "disk bytes per cold host", "longest call ms")
    found = []
    try:
        for name, machines in (("cold", False), ("cold.machines", True)):
            rows, notes = steps(path / name, hosts or HOSTS, machines=machines)
            title = "Hosts with nothing due, each of one URL that is done"
            found.append(Table(name, title + (", and clocks of machines" if machines else ""), columns, rows, notes))
    finally:
        shutil.rmtree(path, ignore_errors=True)
    return found


def names(first: int, last: int) -> Iterator[str]:
    """Returns host names that look like real ones: about twenty letters, two in three with `www`."""
    for number in range(first, last):
        mixed = number * 0x9E3779B97F4A7C15 & (1 << 64) - 1
        words = f"{_WORDS[mixed % 14]}{_WORDS[(mixed >> 8) % 14]}{number:x}"
        yield f"{'www.' if (mixed >> 16) % 3 else ''}{words}.{_ENDINGS[(mixed >> 24) % 7]}"


class _Clock:
    """A clock that is moved."""

    def __init__(self) -> None:
        self.at = 1_700_000_000_000_000

    def __call__(self) -> int:
        return self.at


def steps(
    path: Path, hosts: int, *, machines: bool = False, memory_bytes: int = MEMORY_BYTES
) -> tuple[tuple[tuple[object, ...], ...], tuple[str, ...]]:
    """Returns one row for a quarter, a half and all of these known hosts, and notes. machines: uses the clock of shared
    machines as `crawl` does, with four hosts per address; errands request the addresses."""
    clock, draw = _Clock(), np.random.default_rng(7)
    before = resident_bytes()
    settings = {"memory_bytes": memory_bytes} | ({"group": shared_machines()} if machines else {})
    frontier = Frontier.open(
        path, clock=clock, settings=settings, addresses="errands" if machines else "caller", robots="caller"
    )
    rows: list[tuple[object, ...]] = []
    longest = 0.0
    marks = {hosts // 4, hosts // 2, hosts}
    known = 0
    while some := list(names(known, min(known + 50 * BATCH, hosts))):
        for first in range(0, len(some), BATCH):
            batch = [f"http://{name}/" for name in some[first : first + BATCH]]
            longest = max(longest, _seconds(lambda batch=batch: frontier.discover(batch)))  # type: ignore[misc]
            while leases := frontier.lease(BATCH, errands=machines):
                durations = draw.lognormal(-1.6, 1.0, len(leases))
                outcomes: Any = OutcomeBatch(tokens=leases.tokens, verdicts="done", seconds=durations, statuses=200)
                if machines:
                    outcomes = [
                        _located(lease, hosts) if lease.kind == "address" else lease.done(seconds=seconds, status=200)
                        for lease, seconds in zip(leases, durations.tolist(), strict=True)
                    ]
                longest = max(longest, _seconds(lambda outcomes=outcomes: frontier.report(outcomes)))  # type: ignore[misc]
            clock.at += 1_000_000
        known += len(some)
        if any(known - len(some) < mark <= known for mark in marks):
            clock.at += 120_000_000
            frontier.checkpoint()  # it may end a pass over the hosts that began long ago
            frontier.checkpoint()
            rows.append(_row(frontier, path, known, before, longest))
    times = []
    for number in draw.integers(0, hosts, RECALLS).tolist():
        url = f"http://{next(names(number, number + 1))}/again"
        times.append(_seconds(lambda url=url: frontier.discover([url])))  # type: ignore[misc]
    frontier.close()
    began = time.perf_counter()
    Frontier.open(path, clock=clock, settings=settings, robots="caller").close()
    opening = time.perf_counter() - began
    times.sort()
    middle, most = times[RECALLS // 2] * 1e3, times[-1] * 1e3
    notes = (
        f"At most {memory_bytes // 1_000:,} hosts may be in memory.",
        f"A new URL of a cold host recalls it: {middle:.2f} ms of CPU (median; {most:.1f} at most).",
        f"Opening the store needs {opening / hosts * 1e6:.2f} s per million hosts and their URLs.",
    )
    return tuple(rows), notes


def _located(lease: Lease, hosts: int) -> Outcome:
    """Returns the answer to an errand for an address. Hosts that are leased together are on different machines."""
    at = zlib.crc32(lease.url.encode()) % max(1, hosts // 4)
    return lease.located(f"93.{at >> 16}.{at >> 8 & 255}.{at & 255}", ttl_seconds=3600)


def _seconds(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


def _row(frontier: Frontier, path: Path, known: int, before: int, longest: float) -> tuple[object, ...]:
    hot = frontier.statistics()["structures"]["hosts"]["rows"]  # type: ignore[index]
    disk = sum(file.stat().st_size for file in path.glob("cold-*.run"))
    resident = (resident_bytes() - before) / 1e6
    return known, hot, round(resident), round(disk / max(1, known - hot), 1), round(longest * 1e3, 1)
