"""`log`: the cost of the three durable verbs per URL, at batches of 1, 100 and 1,000, on a real directory.

Each call returns after its sync, so the disk determines the wall time of small batches. CPU time is the frontier's own.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.measuring import CACHE, sync_seconds
from bench.tables import Table
from outrider import Frontier

BATCHES = {1: 300, 100: 10_000, 1_000: 30_000}  # URLs per call: URLs in all
URLS_PER_HOST = 5


def tables() -> list[Table]:
    """Returns one row per verb and batch size: CPU µs and wall µs per URL, URLs per second."""
    CACHE.mkdir(parents=True, exist_ok=True)
    rows: list[tuple[object, ...]] = []
    for batch, count in BATCHES.items():
        directory = Path(tempfile.mkdtemp(prefix="log-", dir=CACHE))
        try:
            rows.extend(_verbs(directory / "frontier", batch, count))
        finally:
            shutil.rmtree(directory, ignore_errors=True)
    sync = sync_seconds(CACHE)
    notes = (
        f"One sync of this disk needs {sync * 1e3:.3f} ms (median of 200); {URLS_PER_HOST} URLs per host, no delay.",
        "lease + report: the largest number of leases per call, each reported done without links.",
    )
    columns = ("verb", "URLs a call", "CPU µs", "wall µs", "URLs a second")
    return [Table("log", "The durable verbs, for each URL", columns, tuple(rows), notes)]


def _verbs(path: Path, batch: int, count: int) -> list[tuple[object, ...]]:
    urls = [f"http://host{row // URLS_PER_HOST}.example.org/section/{row}.html" for row in range(count)]
    calls = [urls[begin : begin + batch] for begin in range(0, count, batch)]
    with Frontier.open(path, settings={"delay": 0.0, "delay_factor": 0.0}, robots="caller") as frontier:
        rows = [
            _row("discover, new", batch, count, lambda: _discover(frontier, calls)),
            _row("discover, known", batch, count, lambda: _discover(frontier, calls)),
            _row("lease + report", batch, count, lambda: _visit(frontier, batch, count)),
        ]
        assert frontier.finished(), "every URL was leased and reported"
    return rows


def _row(verb: str, batch: int, count: int, work: Callable[[], None]) -> tuple[object, ...]:
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return (verb, batch, cpu / count * 1e6, wall / count * 1e6, count / wall)


def _discover(frontier: Frontier, calls: Sequence[Sequence[str]]) -> None:
    for call in calls:
        frontier.discover(call)


def _visit(frontier: Frontier, batch: int, count: int) -> None:
    visited = 0
    while visited < count:
        leases = frontier.lease(want=batch, ttl_seconds=60)
        frontier.report([lease.done(seconds=0.0) for lease in leases])
        visited += len(leases)
