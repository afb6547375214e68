"""`scale`: seen keys beyond their memory: CPU of a check, memory, disk, false rate and wrong answers, at 10⁷ keys or as
many as `--keys` says."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.measuring import CACHE, resident_bytes
from bench.tables import Table
from outrider import kernels
from outrider.frontier.stores.spilled_keys import SpilledKeys
from outrider.storage.files import Directory

KEYS = 10_000_000
BYTES_PER_KEY = 4
"""Memory for the seen-set on disk: two thirds of what the set in memory needs. Half of it is for the filter."""
BATCH = 100_000
SAMPLE = 1_000_000
Keys = tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint64]]


def keys_of(numbers: npt.NDArray[np.uint64]) -> Keys:
    """Keys that look like fingerprints, each number another one."""
    mixed = numbers * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ mixed >> np.uint64(shift)) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    slots = (mixed * np.uint64(0xD6E8FEB86659FD93)) >> np.uint64(52)
    return slots.astype(np.uint16), mixed & np.uint64((1 << 56) - 1)


def numbers(first: int, last: int) -> npt.NDArray[np.uint64]:
    return np.arange(first, last, dtype=np.uint64)


def batches(total: int) -> Iterator[tuple[int, int]]:
    for first in range(0, total, BATCH):
        yield first, min(first + BATCH, total)


def tables(keys: int | None = None) -> list[Table]:
    """Returns a row for the set in memory, and rows for the set on disk."""
    CACHE.mkdir(parents=True, exist_ok=True)
    path = Path(tempfile.mkdtemp(prefix="scale-", dir=CACHE))
    try:
        return [_table(keys or KEYS, path)]
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _table(total: int, path: Path) -> Table:
    on_disk, told = _on_disk(total, path)
    rows = [on_disk, _in_passes(total, told)]
    if total <= 10 * KEYS:
        rows.insert(0, _in_memory(total))
    told.close()
    columns = (
        *("seen keys", "keys", "insertion µs", "known key µs", "new key µs", "memory MB", "disk B a key"),
        *("false %", "wrong answers"),
    )
    notes = (
        f"CPU time. Keys in random order, in calls of {BATCH:,}; {SAMPLE:,} known and as many new keys are checked.",
        f"On disk: {BYTES_PER_KEY} bytes of memory a key, measured as the growth of the process.",
        "False: new keys that the filter did not deny.",
        "A pass compares a tenth as many keys as there are, 9 of 10 known, with all files in their order.",
    )
    return Table("scale", "Seen keys in memory and on disk", columns, tuple(rows), notes)


def _in_memory(total: int) -> tuple[object, ...]:
    made = kernels.FingerprintSet()
    inserted = 0.0
    for first, last in batches(total):
        keys = keys_of(numbers(first, last))
        begun = time.process_time()
        made.add(*keys)
        inserted += time.process_time() - begun
    known, new, wrong = _checks(made, total)
    return ("in memory", total, inserted / total * 1e6, known, new, made.statistics()["bytes"] / 1e6, None, None, wrong)


def _on_disk(total: int, path: Path) -> tuple[tuple[object, ...], SpilledKeys]:
    before, numbered = resident_bytes(), count(1)
    made = SpilledKeys(
        Directory(path, create=True),
        lambda: next(numbered),
        kernels.FingerprintSet(),
        bytes_max=BYTES_PER_KEY * total,
    )
    inserted, peak = 0.0, 0
    for first, last in batches(total):
        keys = keys_of(numbers(first, last))
        begun = time.process_time()
        made.add(*keys)
        inserted += time.process_time() - begun
        peak = max(peak, resident_bytes() - before)
    known, new, wrong = _checks(made, total)
    told = made.statistics()
    on_disk = sum(run.rows for run in made.runs)
    rate = told["filter_false"] / max(told["filter_false"] + told["filter_denied"], 1)
    row = (
        *("on disk, a read each", total, inserted / total * 1e6, known, new, peak / 1e6),
        *(told["disk_bytes"] / max(on_disk, 1), 100 * rate, wrong),
    )
    return row, made


def _checks(made: kernels.FingerprintSet | SpilledKeys, total: int) -> tuple[float, float, int]:
    """Returns µs for a known and for a new key, and how many answers were wrong."""
    draw = np.random.default_rng(1)
    spent, wrong = [], 0
    for first, expected in ((0, 1), (total, 0)):
        seconds = 0.0
        for _ in range(0, SAMPLE, BATCH):
            keys = keys_of(draw.integers(first, first + total, BATCH, np.uint64))
            begun = time.process_time()
            found = made.check(*keys)
            seconds += time.process_time() - begun
            wrong += sum(np.frombuffer(found, np.uint8) != expected)
        spent.append(seconds / SAMPLE * 1e6)
    return spent[0], spent[1], int(wrong)


def _in_passes(total: int, made: SpilledKeys) -> tuple[object, ...]:
    """One batched comparison with everything on disk, as DRUM makes it."""
    draw = np.random.default_rng(2)
    pending = max(total // 10, 1)
    drawn = draw.integers(0, total, pending, np.uint64)
    drawn[::10] += np.uint64(total)
    drawn = np.unique(drawn)
    keys = keys_of(drawn)
    begun = time.process_time()
    found = np.frombuffer(made.check(*keys), np.uint8)
    spent = time.process_time() - begun
    wrong = int(np.count_nonzero(found != (drawn < np.uint64(total))))
    return ("on disk, in one pass", total, None, spent / len(drawn) * 1e6, None, None, None, None, wrong)
