"""Keys with values on disk, compared in batches: the disk repository with update management (DRUM) of IRLbot.

A request has a key, an operation, a value and a payload. Requests collect in buckets by the upper bits of their keys,
first in memory and then in one file for each bucket. A merge reads these files one after the other and the sorted keys
once in their order, so all reads and writes are sequential. It answers the requests of each bucket in the order in
which they were made. Until then, their keys are neither known nor new. In addition to its limit of memory, a merge
needs the keys of one bucket: all keys divided by the number of buckets.

The files are scratch: another process that opens them removes them. A file contains blocks, | crc32c of the rest u32 |
number of the block u32 | rows |, little endian. All of them have equally many rows, but the last one of a run may have
fewer. Sorted keys are immutable runs, the oldest first. A merge writes a run of the keys that it changed, and every few
merges one of all keys.

Lee, Leonard, Wang, Loguinov: "IRLbot: Scaling to 6 Billion Pages and Beyond", 2008.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from outrider import kernels
from outrider.errors import DamagedStoreError, SettingsError
from outrider.storage.files import File, Files, remove_if_possible
from outrider.storage.scratch import SUFFIX

Keys = npt.NDArray[np.uint64]
Values = npt.NDArray[np.uint64]
Payloads = npt.NDArray[np.void]
_PREFIX = "drum-"
BUFFER_BYTES: Final = 32 << 10
BUFFER_BYTES_MIN: Final = 1 << 10
PAYLOAD_BYTES_MAX: Final = 16 << 10
BUCKETS_MAX: Final = 4_096
CHUNK_BYTES: Final = 64 << 10  # of rows in a block of a run, which is read at once
_HEAD: Final = struct.Struct("<II")
_COVERED: Final = struct.Struct("<I")


class Operation(IntEnum):
    """The kinds of requests. A check asks whether its key is there; an update writes its value, and adds the key if it
    is missing; the third does both, in this order. An append adds its value to that of the key, modulo 2⁶⁴; a missing
    key is added with 0 before."""

    CHECK = 1
    UPDATE = 2
    CHECK_UPDATE = 3
    APPEND = 4


@dataclass(frozen=True, slots=True)
class Answers:
    """Requests of one bucket in their order. known, values: whether their key was there before them, and its value then
    (0 for a missing key)."""

    keys: Keys
    operations: npt.NDArray[np.uint8]
    known: npt.NDArray[np.bool_]
    values: Values
    payloads: Payloads


class Drum:
    """memory_bytes: half of it is for reading one bucket, half for buffers of `buffer_bytes`, so it decides the number
    of buckets. payload_bytes: the size of each payload. valued: otherwise keys have no values, and all are 0.
    merges_per_rewrite: after this number of merges one run of all keys is written. Raises SettingsError."""

    def __init__(
        self,
        files: Files,
        *,
        memory_bytes: int,
        payload_bytes: int = 0,
        valued: bool = True,
        buffer_bytes: int = BUFFER_BYTES,
        merges_per_rewrite: int = 10,
    ) -> None:
        if not 0 <= payload_bytes <= PAYLOAD_BYTES_MAX:
            raise SettingsError(f"payload_bytes is {payload_bytes}: use 0 to {PAYLOAD_BYTES_MAX}")
        if buffer_bytes < BUFFER_BYTES_MIN or memory_bytes < 8 * buffer_bytes:
            raise SettingsError(
                f"memory_bytes is {memory_bytes}, buffer_bytes {buffer_bytes}: "
                f"use buffers of {BUFFER_BYTES_MIN} bytes or more, and memory for 8 of them"
            )
        if merges_per_rewrite < 1:
            raise SettingsError(f"merges_per_rewrite is {merges_per_rewrite}: use 1 or more")
        value: list[Any] = [("value", np.uint64)] if valued else []
        self._sorted = np.dtype([("key", np.uint64), *value])
        self._request = np.dtype(
            [("key", np.uint64), *value, ("operation", np.uint8), ("payload", np.dtype((np.void, payload_bytes)))]
        )
        self._valued = valued
        self._merges_per_rewrite = merges_per_rewrite
        self._bits = min(memory_bytes // (4 * buffer_bytes), BUCKETS_MAX).bit_length() - 1
        self._buffered = max(buffer_bytes * 2 // self._request.itemsize, 1)
        self._full = memory_bytes // 2 // self._request.itemsize
        self._files = files
        self._number = 0
        self._runs: list[_RowBlocks] = []
        self._merging = False
        for name in files.names():
            if name.startswith(_PREFIX) and name.endswith(SUFFIX):
                remove_if_possible(files, name)
        self._buckets = [
            _RowBlocks(files, f"{_PREFIX}bucket{n:04x}{SUFFIX}", self._request, self._buffered)
            for n in range(self.buckets)
        ]

    @property
    def buckets(self) -> int:
        """How many buckets there are: a power of two."""
        return 1 << self._bits

    @property
    def waiting(self) -> int:
        """How many requests have no answer yet."""
        return sum(len(bucket) for bucket in self._buckets)

    @property
    def is_full(self) -> bool:
        """Whether some bucket has no room for more requests in the memory of a merge: merge now."""
        return any(len(bucket) >= self._full for bucket in self._buckets)

    def __len__(self) -> int:
        """An upper bound of the number of keys: a key that changed may count in several runs."""
        return sum(map(len, self._runs))

    def add(
        self, operation: Operation, keys: Keys, *, values: Values | None = None, payloads: Payloads | None = None
    ) -> None:
        """Adds requests. Raises ValueError while a merge goes on, StoreFullError, StoreFailedError; the requests of a
        call that failed may be there in part, as if they had been made."""
        if self._merging:
            raise ValueError("requests cannot be added while a merge goes on: use all of its answers first")
        requests = np.zeros(len(keys), self._request)
        requests["key"], requests["operation"] = keys, operation
        if values is not None:
            if not self._valued:
                raise ValueError("these keys have no values: make the Drum with valued=True")
            requests["value"] = values
        if payloads is not None:
            requests["payload"] = payloads
        places = self._places(requests["key"])
        order = np.argsort(places, kind="stable")
        cuts = np.searchsorted(places[order], np.arange(self.buckets + 1))
        for place in np.flatnonzero(np.diff(cuts)).tolist():
            self._buckets[place].append(requests[order[cuts[place] : cuts[place + 1]]])

    def _places(self, keys: Keys) -> npt.NDArray[np.int64]:
        if not self._bits:
            return np.zeros(len(keys), np.int64)
        return (keys >> np.uint64(64 - self._bits)).astype(np.int64)

    def merge(self) -> Iterator[Answers]:
        """Answers all requests, bucket by bucket. Raises DamagedStoreError, StoreFullError, StoreFailedError.

        If it fails or is not used to its end, the keys are those of before and all requests remain: the next merge
        answers them again."""
        self._merging = True
        whole = len(self._runs) >= self._merges_per_rewrite
        self._number += 1
        with ExitStack() as undo:
            undo.callback(setattr, self, "_merging", False)
            name = f"{_PREFIX}run{self._number:08x}{SUFFIX}"
            writer = _RowBlocks(self._files, name, self._sorted, CHUNK_BYTES // self._sorted.itemsize)
            discard = undo.enter_context(ExitStack())
            discard.callback(writer.remove)
            readers = [_RunReader(run) for run in self._runs]
            for place, bucket in enumerate(self._buckets):
                bound = (place + 1) << (64 - self._bits)
                yield from self._answered(bucket.read(), readers, bound, writer, whole=whole)
            writer.finish()
            discard.pop_all()
            old = self._runs if whole else []
            self._runs = [*([] if whole else self._runs), writer]
            for gone in (*old, *self._buckets):
                gone.remove()

    def _answered(
        self, requests: npt.NDArray[Any], readers: list[_RunReader], bound: int, writer: _RowBlocks, *, whole: bool
    ) -> Iterator[Answers]:
        """Answers the requests of one bucket, and writes its keys."""
        keys = np.unique(requests["key"])
        found = np.zeros(len(keys), np.bool_)
        values = np.zeros(len(keys), np.uint64)
        changed = np.unique(requests["key"][requests["operation"] != Operation.CHECK])
        older: list[npt.NDArray[Any]] = []
        for reader in readers:  # the oldest first: a newer value replaces it
            for some in reader.until(bound):
                places = np.minimum(np.searchsorted(keys, some["key"]), max(len(keys) - 1, 0))
                if len(keys):
                    there = keys[places] == some["key"]
                    found[places[there]] = True
                    if self._valued:
                        values[places[there]] = some["value"][there]
                if whole:
                    older.append(some[~np.isin(some["key"], changed, assume_unique=True)])
        answers, last = self._in_order(requests, keys, found, values)
        if len(requests):
            yield answers
        updated = np.zeros(len(changed), self._sorted)
        updated["key"] = changed
        if self._valued:
            updated["value"] = last[np.isin(keys, changed, assume_unique=True)]
        writer.append(_newest([*older, updated]))

    def _in_order(
        self, requests: npt.NDArray[Any], keys: Keys, found: npt.NDArray[np.bool_], values: Values
    ) -> tuple[Answers, Values]:
        """Applies requests in their order to what the runs have. Returns their answers, and the last value of each
        key."""
        order = np.argsort(requests["key"], kind="stable")
        groups = np.searchsorted(keys, requests["key"][order])
        operations = requests["operation"][order]
        given = requests["value"][order] if self._valued else np.zeros(len(order), np.uint64)
        rows = np.arange(len(order))
        starts = np.searchsorted(groups, np.arange(len(keys)))
        first = starts[groups]
        # The value after a request: that of the last update of its key, or the old one, and all appended since.
        sets = (operations == Operation.UPDATE) | (operations == Operation.CHECK_UPDATE)
        added = np.where(operations == Operation.APPEND, given, np.uint64(0))
        total = np.cumsum(added, dtype=np.uint64)
        update = np.maximum.accumulate(np.where(sets, rows, -1))
        is_updated = update >= first
        base = np.where(is_updated, given[update], values[groups])
        after = base + total - np.where(is_updated, total[update], total[first] - added[first])
        written = np.maximum.accumulate(np.where(operations != Operation.CHECK, rows, -1))
        before = np.concatenate([[-1], written[:-1]]).astype(np.int64)[: len(order)]
        known = np.empty(len(order), np.bool_)
        known[order] = (before >= first) | found[groups]
        old = np.empty(len(order), np.uint64)
        old[order] = np.where(rows == first, values[groups], after[rows - 1])
        ends = np.concatenate([starts[1:], [len(order)]]).astype(np.int64)[: len(keys)] - 1
        return Answers(requests["key"], requests["operation"], known, old, requests["payload"]), after[ends]

    def close(self) -> None:
        """Removes its files."""
        for one in (*self._runs, *self._buckets):
            one.remove()
        self._runs = []


def _newest(parts: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Rows in the order of their keys, the last one for each key."""
    rows = np.concatenate(parts)
    rows = rows[np.argsort(rows["key"], kind="stable")]
    newest: npt.NDArray[Any] = rows[np.append(rows["key"][1:] != rows["key"][:-1], True)[: len(rows)]]
    return newest


class _RowBlocks:
    """A file of rows in blocks with checksums; rows of a block that is not complete are in memory."""

    def __init__(self, files: Files, name: str, dtype: np.dtype[Any], block_rows: int) -> None:
        self.blocks = 0
        self._dtype = dtype
        self._block_rows = block_rows
        self._rows = 0
        self._written = 0
        self._rest: list[npt.NDArray[Any]] = []
        self._files = files
        self._name = name
        self._file: File | None = None

    def __len__(self) -> int:
        return self._rows

    def append(self, rows: npt.NDArray[Any]) -> None:
        """Raises StoreFullError, StoreFailedError; then the rows are there, and wait in memory."""
        self._rest.append(rows)
        self._rows += len(rows)
        if self._rows - self._written >= self._block_rows:
            self._write(least=self._block_rows)

    def finish(self) -> None:
        """Writes the rest as a shorter block: nothing is appended any more. Raises StoreFullError, StoreFailedError."""
        if self._rows > self._written:
            self._write(least=1)

    def _write(self, *, least: int) -> None:
        """Writes blocks of the rest, none with fewer rows."""
        rows, place = np.concatenate(self._rest), 0
        if self._file is None:
            self._file = self._files.open(self._name, create=True)
        try:
            while len(rows) - place >= least:
                some = rows[place : place + self._block_rows]
                covered = _COVERED.pack(self.blocks) + some.tobytes()
                self._file.write_at(self.blocks * self._block_bytes, _COVERED.pack(kernels.crc32c(covered)) + covered)
                self.blocks += 1
                place += len(some)
        finally:
            self._written += place
            self._rest = [rows[place:].copy()]  # not a view, which would keep all rows in memory

    @property
    def _block_bytes(self) -> int:
        return _HEAD.size + self._block_rows * self._dtype.itemsize

    def block(self, number: int) -> npt.NDArray[Any]:
        """The rows of a block that was written. Raises DamagedStoreError, naming file and byte."""
        assert self._file is not None
        count = min(self._block_rows, self._written - number * self._block_rows)
        size, offset = _HEAD.size + count * self._dtype.itemsize, number * self._block_bytes
        octets = self._file.read_at(offset, size)
        damage = None
        if len(octets) < size:
            offset, damage = offset + len(octets), "the file ends there"
        elif _HEAD.unpack_from(octets) != (kernels.crc32c(octets[_COVERED.size :]), number):
            damage = "a block fails its checksum"
        if damage is not None:
            where = f"{self._files.describe(self._name)} at byte {offset}"
            raise DamagedStoreError(f"{where}: {damage}; make these keys again from their source")
        return np.frombuffer(octets, self._dtype, offset=_HEAD.size)

    def read(self) -> npt.NDArray[Any]:
        """All rows in their order. Raises DamagedStoreError, naming file and byte."""
        return np.concatenate([np.zeros(0, self._dtype), *map(self.block, range(self.blocks)), *self._rest])

    def remove(self) -> None:
        """Forgets all rows, closes the file and removes it, as far as the disk allows."""
        self.blocks = self._rows = self._written = 0
        self._rest = []
        if self._file is not None:
            self._file.close()
            self._file = None
            remove_if_possible(self._files, self._name)


class _RunReader:
    """Reads a run from its beginning, block by block."""

    def __init__(self, run: _RowBlocks) -> None:
        self._run = run
        self._next = 0
        self._rest: npt.NDArray[Any] | None = None

    def until(self, bound: int) -> Iterator[npt.NDArray[Any]]:
        """The next rows with keys below the bound."""
        while True:
            if self._rest is None:
                if self._next == self._run.blocks:
                    return
                self._rest = self._run.block(self._next)
                self._next += 1
            keys = self._rest["key"]
            end = len(keys) if bound >= 1 << 64 else int(keys.searchsorted(np.uint64(bound), "left"))
            if end:
                yield self._rest[:end]
            if end < len(keys):
                self._rest = self._rest[end:]
                return
            self._rest = None
