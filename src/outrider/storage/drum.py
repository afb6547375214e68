"""Keys with values on disk, compared in batches: the disk repository with update management (DRUM) of IRLbot.

A request has a key, an operation, a value and a payload. Requests of small calls are collected, and then distributed
to buckets by the upper bits of their keys. A bucket is in memory, and beyond its part of it in a file. A merge reads
these files one after the other and the sorted keys once in their order, so all reads and writes are sequential. It
answers the requests of each bucket in the order in which they were made. Until then, their keys are neither known nor
new. In addition to its limit of memory, a merge needs 65 bytes for each request of one bucket and each of its keys: all
keys divided by the number of buckets.

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
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from outrider import kernels
from outrider.errors import DamagedStoreError, SettingsError
from outrider.kernels.key_requests import Operation, request_type, row_type
from outrider.storage.files import File, Files, remove_if_possible
from outrider.storage.scratch import SUFFIX

__all__ = ["BUFFER_BYTES_MIN", "Answers", "Drum", "Operation"]
Keys = npt.NDArray[np.uint64]
Values = npt.NDArray[np.uint64]
Payloads = npt.NDArray[np.void]
_PREFIX = "drum-"
BUFFER_BYTES: Final = 32 << 10
BUFFER_BYTES_MIN: Final = 1 << 10
PAYLOAD_BYTES_MAX: Final = 16 << 10
BUCKETS_MAX: Final = 4_096
_COLLECTED_SHARE: Final = 8
"""Requests collect in this part of the memory before they are distributed; it is free, since no bucket is read then."""
CHUNK_BYTES: Final = 64 << 10  # of rows in a block of a run, which is read at once
_HEAD: Final = struct.Struct("<II")
_COVERED: Final = struct.Struct("<I")


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
        self._payload_bytes = payload_bytes
        self._valued = valued
        self._sorted = row_type(valued)
        self._request = request_type(payload_bytes, valued)
        self._merges_per_rewrite = merges_per_rewrite
        self._bits = min(memory_bytes // (4 * buffer_bytes), BUCKETS_MAX).bit_length() - 1
        self._buffered = max(buffer_bytes * 2 // self._request.itemsize, 1)
        self._full = memory_bytes // 2 // self._request.itemsize
        self._collected: list[bytes] = []  # requests that are in no bucket yet
        self._collected_bytes = 0
        self._collected_bytes_max = memory_bytes // _COLLECTED_SHARE
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
        return sum(len(bucket) for bucket in self._buckets) + self._collected_bytes // self._request.itemsize

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
        call that failed on the disk are there, as if they had been made. Needs three times the bytes of a large
        call."""
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
        self._collected.append(requests.tobytes())
        self._collected_bytes += requests.nbytes
        if self._collected_bytes >= self._collected_bytes_max:
            self._distribute()

    def _distribute(self) -> None:
        """Moves all collected requests to their buckets, in their order. Raises StoreFullError, StoreFailedError; then
        they are there, too."""
        octets = b"".join(self._collected)
        places = self._places(np.frombuffer(octets, self._request)["key"])
        # numpy copies an item without fields six times faster than one with fields.
        requests = np.frombuffer(octets, np.dtype((np.void, self._request.itemsize)))
        requests = requests[np.argsort(places, kind="stable")]
        ends = np.cumsum(np.bincount(places, minlength=self.buckets)).tolist()
        moved = 0
        try:
            for bucket, end in zip(self._buckets, ends, strict=True):
                if end > moved:
                    some, moved = requests[moved:end].tobytes(), end  # a bucket has them even if it cannot write them
                    bucket.append(some)
        finally:
            self._collected = [requests[moved:].tobytes()]
            self._collected_bytes = len(self._collected[0])

    def _places(self, keys: Keys) -> npt.NDArray[np.uint16]:
        """The bucket of each key. numpy sorts numbers of 16 bits by their digits, which is several times faster."""
        if not self._bits:
            return np.zeros(len(keys), np.uint16)
        return (keys >> np.uint64(64 - self._bits)).astype(np.uint16)

    def merge(self) -> Iterator[Answers]:
        """Answers all requests, bucket by bucket. Raises DamagedStoreError, StoreFullError, StoreFailedError.

        If it fails or is not used to its end, the keys are those of before and all requests remain: the next merge
        answers them again."""
        self._merging = True
        whole = len(self._runs) >= self._merges_per_rewrite
        self._number += 1
        with ExitStack() as undo:
            undo.callback(setattr, self, "_merging", False)
            self._distribute()
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
        self, requests: bytes, readers: list[_RunReader], bound: int, writer: _RowBlocks, *, whole: bool
    ) -> Iterator[Answers]:
        """Answers the requests of one bucket, and writes its keys."""
        blocks = [block for reader in readers for block in reader.until(bound)]  # the oldest first
        found = kernels.answer_requests(requests, self._payload_bytes, self._valued, blocks, whole)
        if requests:
            asked = np.frombuffer(requests, self._request)
            known, values = np.frombuffer(found[0], np.bool_), np.frombuffer(found[1], np.uint64)
            yield Answers(asked["key"], asked["operation"], known, values, asked["payload"])
        writer.append(found[2])

    def close(self) -> None:
        """Removes its files."""
        for one in (*self._runs, *self._buckets):
            one.remove()
        self._runs, self._collected, self._collected_bytes = [], [], 0


class _RowBlocks:
    """A file of rows in blocks with checksums; rows of a block that is not complete are in memory. Rows are bytes."""

    def __init__(self, files: Files, name: str, dtype: np.dtype[Any], block_rows: int) -> None:
        self.blocks = 0
        self.dtype = dtype
        self._rows_bytes = block_rows * dtype.itemsize  # in a block
        self._bytes = 0
        self._written = 0
        self._rest: list[bytes] = []
        self._files = files
        self._name = name
        self._file: File | None = None

    def __len__(self) -> int:
        return self._bytes // self.dtype.itemsize

    def append(self, rows: bytes) -> None:
        """Raises StoreFullError, StoreFailedError; then the rows are there, and wait in memory."""
        self._rest.append(rows)
        self._bytes += len(rows)
        if self._bytes - self._written >= self._rows_bytes:
            self._write(least=self._rows_bytes)

    def finish(self) -> None:
        """Writes the rest as a shorter block: nothing is appended any more. Raises StoreFullError, StoreFailedError."""
        if self._bytes > self._written:
            self._write(least=1)

    def _write(self, *, least: int) -> None:
        """Writes blocks of the rest, none with fewer bytes."""
        rows, place = memoryview(b"".join(self._rest)), 0
        if self._file is None:
            self._file = self._files.open(self._name, create=True)
        try:
            while len(rows) - place >= least:
                some = rows[place : place + self._rows_bytes]
                checksum = kernels.crc32c(some, kernels.crc32c(_COVERED.pack(self.blocks)))
                self._file.write_at(self.blocks * self._block_bytes, _HEAD.pack(checksum, self.blocks) + some)
                self.blocks += 1
                place += len(some)
        finally:
            self._written += place
            self._rest = [bytes(rows[place:])]  # not a view, which would keep all rows in memory

    @property
    def _block_bytes(self) -> int:
        return _HEAD.size + self._rows_bytes

    def block(self, number: int) -> memoryview:
        """The rows of a block that was written. Raises DamagedStoreError, naming file and byte."""
        assert self._file is not None
        offset = number * self._block_bytes
        size = _HEAD.size + min(self._rows_bytes, self._written - number * self._rows_bytes)
        octets = self._file.read_at(offset, size)
        damage = None
        if len(octets) < size:
            offset, damage = offset + len(octets), "the file ends there"
        elif _HEAD.unpack_from(octets) != (kernels.crc32c(memoryview(octets)[_COVERED.size :]), number):
            damage = "a block fails its checksum"
        if damage is not None:
            where = f"{self._files.describe(self._name)} at byte {offset}"
            raise DamagedStoreError(f"{where}: {damage}; make these keys again from their source")
        return memoryview(octets)[_HEAD.size :]

    def read(self) -> bytes:
        """All rows in their order. Raises DamagedStoreError, naming file and byte."""
        return b"".join([*map(self.block, range(self.blocks)), *self._rest])

    def remove(self) -> None:
        """Forgets all rows, closes the file and removes it, as far as the disk allows."""
        self.blocks = self._bytes = self._written = 0
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
        self._rest = memoryview(b"")

    def until(self, bound: int) -> Iterator[bytes]:
        """The next rows with keys below the bound."""
        while True:
            if not self._rest:
                if self._next == self._run.blocks:
                    return
                self._rest = self._run.block(self._next)
                self._next += 1
            rows = np.frombuffer(self._rest, self._run.dtype)
            end = len(rows) if bound >= 1 << 64 else int(rows["key"].searchsorted(np.uint64(bound), "left"))
            taken, self._rest = self._rest[: end * rows.itemsize], self._rest[end * rows.itemsize :]
            if taken:
                yield bytes(taken)
            if self._rest:
                return
