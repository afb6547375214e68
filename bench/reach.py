"""`reach`: the cost of orders about single URLs, by the number of URLs that wait or are queued beside them."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.measuring import CACHE
from bench.tables import Table
from outrider import Frontier, Link

SIZES = (10_000, 400_000, 1_000_000)
START = 1_700_000_000_000_000
HOUR = 3_600_000_000
HOSTS = 997
BATCH = 10_000
CALLS = 31
MANY = 1_000


def tables() -> list[Table]:
    """Returns one row for each verb and kind of place."""
    CACHE.mkdir(parents=True, exist_ok=True)
    amounts = [f"{size:,}: {many}, ms" for many in ("one", f"{MANY:,}") for size in SIZES]
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for size in SIZES:
        for place in ("waiting", "queued on one host"):
            path = Path(tempfile.mkdtemp(prefix="reach-", dir=CACHE))
            try:
                for verb, times in measured(path, size, place).items():
                    found.setdefault((verb, place), []).append(times)
            finally:
                shutil.rmtree(path, ignore_errors=True)
    rows = tuple(
        (*key, *(round(one, 2) for one, _ in times), *(round(many, 1) for _, many in times))
        for key, times in found.items()
    )
    notes = (f"CPU of one call: the median of {CALLS}, and for {MANY:,} URLs the second call.",)
    return [Table("reach", "Orders about URLs that are known by name", ("order", "URLs", *amounts), rows, notes)]


def measured(path: Path, size: int, place: str) -> dict[str, tuple[float, float]]:
    """Returns the milliseconds of CPU that each verb needs for one URL and for many, among `size` URLs."""
    waiting = place == "waiting"

    def name(number: int) -> str:
        return f"http://h{number % HOSTS if waiting else 0}.test/p{number}"

    with Frontier.open(path, clock=lambda: START, robots="caller") as frontier:
        for first in range(0, size, BATCH):
            frontier.discover(
                [
                    Link(name(n), not_before=START + HOUR + n * 1_000_000 if waiting else None)
                    for n in range(first, first + BATCH)
                ]
            )

        def put(urls: list[str], priority: float) -> object:
            state, due = ("waiting", START + 2 * HOUR) if waiting else ("queued", None)
            return frontier.put([{"url": url, "state": state, "due": due, "priority": priority} for url in urls])

        verbs: dict[str, Callable[[list[str], float], object]] = {
            "reprioritise": lambda urls, priority: frontier.reprioritise(urls, priority),
            "requeue": lambda urls, priority: frontier.requeue(urls, at=START + 3 * HOUR, priority=priority),
            "put": put,
        }
        found = {verb: _of_verb(call, name, size, step) for step, (verb, call) in enumerate(verbs.items())}
        assert frontier.verify().ok
        return found


def _of_verb(
    call: Callable[[list[str], float], object], name: Callable[[int], str], size: int, step: int
) -> tuple[float, float]:
    """Returns the milliseconds of a call of one URL, and of one of many."""
    times = sorted(
        _milliseconds(partial(call, [name(n * 7_919 * (step + 1) % size)], n / 100)) for n in range(1, CALLS + 1)
    )
    many = [[name((n * (size // MANY) + 3 * step + row) % size) for n in range(MANY)] for row in range(2)]
    call(many[0], 0.3)
    return times[CALLS // 2], _milliseconds(partial(call, many[1], 0.3))


def _milliseconds(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return (time.thread_time() - began) * 1e3
