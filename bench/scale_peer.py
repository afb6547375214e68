"""Measures a set of seen keys: `scale_peer METHOD KEYS MEMORY FOLDER ANSWER` adds keys, then checks known and new ones.
Its progress goes to standard error."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from bench.confined import join
from bench.measuring import Spent, resident_bytes

BYTES_PER_KEY = 4
"""Memory for a set on disk: two thirds of what the set in memory needs."""
BATCH = 100_000
SAMPLE = 1_000_000
ALONE = 2_000
PASS_KEYS_MAX = 10_000_000
PASS_CALL_KEYS = 500_000
PROGRESS_EVERY_SECONDS = 10
FILTER_BITS = 12
SLOTS = 4_096
KEY = np.dtype([("slot", ">u2"), ("fingerprint", ">u8")])
Keys = tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint64]]
Columns = npt.NDArray[np.bool_]


class Seen(Protocol):
    """A set of keys. `prepare` makes of columns what the set takes; its time does not count. `settle` ends the
    insertion."""

    def prepare(self, keys: Keys) -> Any: ...
    def add(self, prepared: Any) -> None: ...
    def settle(self) -> None: ...
    def check(self, prepared: Any) -> Columns: ...
    def facts(self) -> dict[str, float]: ...
    def close(self) -> None: ...


class InMemory:
    """The set within its memory."""

    def __init__(self, memory: int, folder: Path) -> None:
        from outrider import kernels

        self.made: Any = kernels.FingerprintSet()

    def prepare(self, keys: Keys) -> Keys:
        return keys

    def add(self, prepared: Keys) -> None:
        self.made.add(*prepared)

    def settle(self) -> None:
        pass

    def check(self, prepared: Keys) -> Columns:
        return np.frombuffer(self.made.check(*prepared), np.bool_)

    def facts(self) -> dict[str, float]:
        return {}

    def close(self) -> None:
        pass


class OnDisk(InMemory):
    """The set beyond its memory."""

    def __init__(self, memory: int, folder: Path) -> None:
        from outrider import kernels
        from outrider.frontier.stores.spilled_keys import SpilledKeys
        from outrider.storage.files import Directory

        numbered = count(1)
        self.made = SpilledKeys(
            Directory(folder, create=True),
            lambda: next(numbered),
            kernels.FingerprintSet(),
            bytes_max=memory,
        )

    def facts(self) -> dict[str, float]:
        found = self.made.statistics()
        return {
            "false": 100 * found["filter_false"] / max(found["filter_false"] + found["filter_denied"], 1),
            "disk": found["disk_bytes"] / max(sum(map(len, self.made.runs)), 1),  # without a merge that is not finished
        }

    def close(self) -> None:
        self.made.close()


class RocksDB:
    """Keys of ten bytes without values: no write-ahead log, no compression, and the same filter bits and memory."""

    def __init__(self, memory: int, folder: Path) -> None:
        from rocksdict import BlockBasedOptions, Cache, Options, Rdict

        options, blocks = Options(raw_mode=True), BlockBasedOptions()
        options.create_if_missing(True)
        options.set_db_write_buffer_size(memory // 4)
        blocks.set_block_cache(Cache(memory * 3 // 4))
        blocks.set_cache_index_and_filter_blocks(True)
        blocks.set_bloom_filter(FILTER_BITS, False)
        options.set_block_based_table_factory(blocks)
        self.made = Rdict(str(folder), options)

    def prepare(self, keys: Keys) -> list[bytes]:
        rows = np.empty(len(keys[0]), KEY)
        rows["slot"], rows["fingerprint"] = keys
        octets = rows.tobytes()
        return [octets[place : place + KEY.itemsize] for place in range(0, len(octets), KEY.itemsize)]

    def add(self, prepared: Sequence[bytes]) -> None:
        from rocksdict import WriteBatch, WriteOptions

        batch = WriteBatch(raw_mode=True)
        for key in prepared:
            batch.put(key, b"")
        unlogged = WriteOptions()
        unlogged.disable_wal = True
        self.made.write(batch, unlogged)

    def check(self, prepared: Sequence[bytes]) -> Columns:
        return np.array([value is not None for value in self.made.get(prepared)])

    def settle(self) -> None:
        self.made.flush()

    def facts(self) -> dict[str, float]:
        return {}

    def close(self) -> None:
        self.made.close()


METHODS: dict[str, type[Seen]] = {"in memory": InMemory, "on disk": OnDisk, "RocksDB": RocksDB}


def keys_of(numbers: npt.NDArray[np.uint64]) -> Keys:
    """Keys that look like fingerprints, each number another one."""
    mixed = numbers * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ mixed >> np.uint64(shift)) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    slots = (mixed * np.uint64(0xD6E8FEB86659FD93)) >> np.uint64(52)
    return slots.astype(np.uint16), mixed & np.uint64((1 << 56) - 1)


def batches(total: int) -> Iterator[npt.NDArray[np.uint64]]:
    for first in range(0, total, BATCH):
        yield np.arange(first, min(first + BATCH, total), dtype=np.uint64)


def forget_pages(folder: Path) -> None:
    """Asks the system to drop the pages of all files from its cache."""
    for path in folder.rglob("*"):
        if path.is_file() and hasattr(os, "posix_fadvise"):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def read_bytes() -> int:
    """Returns how many bytes this process has read from disks, or 0 without /proc."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return 0
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes:"))


class StepProgress:
    """Writes to standard error how far a step is, every ten seconds: share, rate of the last seconds, and the rest of
    the time at the rate of all."""

    def __init__(self, step: str, total: int, unit: str = "keys") -> None:
        self._step, self._total, self._unit = step, total, unit
        self._done = self._said_done = 0
        self._begun = self._said = time.monotonic()

    def add(self, count: int) -> None:
        self._done += count
        now = time.monotonic()
        if now - self._said < PROGRESS_EVERY_SECONDS:
            return
        rate = (self._done - self._said_done) / (now - self._said)
        left = (self._total - self._done) * (now - self._begun) / self._done
        print(
            f"{self._step}: {100 * self._done / self._total:.1f} % of {self._total:,} {self._unit}, "
            f"{rate:,.0f} {self._unit}/s, {left / 60:.1f} min left",
            file=sys.stderr,
            flush=True,
        )
        self._said, self._said_done = now, self._done


def measured(method: str, total: int, folder: Path, memory: int) -> dict[str, float]:
    """Returns CPU microseconds of an insertion (the work of its threads included) and of checks of known and of new
    keys, the growth of the process in bytes, bytes read for a known key, bytes on disk for a key, wrong answers."""
    before = resident_bytes()
    seen = METHODS[method](memory, folder)
    inserted, peak = 0.0, 0
    progress = StepProgress(f"scale: {method}, insertion", total)
    for numbers in batches(total):
        prepared = seen.prepare(keys_of(numbers))
        begun = time.process_time()
        seen.add(prepared)
        inserted += time.process_time() - begun
        peak = max(peak, resident_bytes() - before)
        progress.add(len(numbers))
    seen.settle()
    forget_pages(folder)
    found: dict[str, float] = {"insertion": inserted / total * 1e6, "wrong": 0}
    _say(method, found | {"memory": peak})
    draw = np.random.default_rng(1)
    for name, first, expected in (("known", 0, True), ("new", total, False)):
        seconds, read = 0.0, read_bytes()
        progress = StepProgress(f"scale: {method}, checks of {name} keys", SAMPLE)
        for _ in range(0, SAMPLE, BATCH):
            prepared = seen.prepare(keys_of(draw.integers(first, first + total, BATCH, np.uint64)))
            begun = time.process_time()
            answers = seen.check(prepared)
            seconds += time.process_time() - begun
            found["wrong"] += int(np.count_nonzero(answers != expected))
            progress.add(BATCH)
        peak = max(peak, resident_bytes() - before)
        found[name], found[f"{name}_read"] = seconds / SAMPLE * 1e6, (read_bytes() - read) / SAMPLE
    found |= {"memory": peak, "disk": _size(folder) / total, **seen.facts()}
    _say(method, found)
    if method == "on disk":
        forget_pages(folder)
        found |= _one_by_one(seen, total)
        forget_pages(folder)
        found |= _in_one_pass(seen, total)
    seen.close()
    return found


def _say(method: str, found: dict[str, float]) -> None:
    """Writes figures to standard error, because a long run may end before its last step."""
    print(f"scale: {method}: {json.dumps(found)}", file=sys.stderr, flush=True)


def _size(folder: Path) -> int:
    return sum(512 * file.stat().st_blocks for file in folder.rglob("*") if file.is_file())


def _one_by_one(seen: Seen, total: int) -> dict[str, float]:
    """Checks of random known keys in calls of one key, after the pages of files were dropped."""
    drawn = np.random.default_rng(3).integers(0, total, ALONE, np.uint64)
    prepared = [seen.prepare(keys_of(drawn[place : place + 1])) for place in range(ALONE)]
    spent, read = Spent(), read_bytes()
    answers = [spent.call(lambda some=one: bool(seen.check(some)[0])) for one in prepared]
    return _costs("alone", spent, read_bytes() - read, ALONE) | {"alone_wrong": answers.count(False)}


def _in_one_pass(seen: Seen, total: int) -> dict[str, float]:
    """One comparison of many keys with everything on disk, 9 of 10 known, as DRUM makes it: in the order of the runs,
    in calls of about `PASS_CALL_KEYS`."""
    count = min(max(total // 10, 1), PASS_KEYS_MAX)
    pieces = -(-count // PASS_CALL_KEYS)
    progress = StepProgress("scale: pass", count)
    spent, read, wrong = Spent(), read_bytes(), 0
    for piece in range(pieces):
        some = np.concatenate(list(_drawn_of(piece, pieces, count, total)))
        prepared = seen.prepare(keys_of(some))
        answers = spent.call(lambda keys=prepared: seen.check(keys))
        wrong += int(np.count_nonzero(answers != (some < np.uint64(total))))
        progress.add(len(some))
    return _costs("pass", spent, read_bytes() - read, count) | {"pass_wrong": wrong}


def _costs(way: str, spent: Spent, read: int, keys: int) -> dict[str, float]:
    """Returns what each of these keys cost: CPU and wall microseconds, bytes read."""
    cpu, wall = (seconds / keys * 1e6 for seconds in (spent.end().cpu, spent.wall))
    return {f"{way}_keys": keys, f"{way}_cpu": cpu, f"{way}_wall": wall, f"{way}_read": read / keys}


def _drawn_of(piece: int, pieces: int, count: int, total: int) -> Iterator[npt.NDArray[np.uint64]]:
    """Numbers whose keys are in one part of the slots. All are drawn again for each part: memory is confined."""
    draw = np.random.default_rng(2)
    for first in range(0, count, BATCH):
        drawn = draw.integers(0, total, min(BATCH, count - first), np.uint64)
        drawn[::10] += np.uint64(total)
        yield drawn[keys_of(drawn)[0].astype(np.uint32) * pieces // SLOTS == piece]


def main(method: str, total: int, memory: int, folder: Path, answer: Path) -> None:
    is_confined = join()
    folder.mkdir(parents=True)
    answer.write_text(json.dumps(measured(method, total, folder, memory) | {"confined": is_confined}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]), Path(sys.argv[5]))
