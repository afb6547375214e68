"""Runs: immutable files of records sorted by key, in small compressed blocks, whole or absent after any crash.

File `run-<number, 16 hex digits>.run`: | header | block | block | … | index | footer |; docs/formats/runs.md draws it.
Runs of other families have the family's name in place of `run-`. A run is written under a `.tmp` name and gets its name
when all of it is on the device. An open run keeps only the first key and the place of each block in memory.
"""

from __future__ import annotations

import re
import struct
import sys
import weakref
from collections.abc import Iterator
from typing import Literal

import numpy as np

from outrider.errors import DamagedStoreError, StoreError
from outrider.kernels import crc32c, pack_heads, unpack_heads
from outrider.kernels.card_layout import HEAD
from outrider.limits import (
    CHECKPOINT_SYNC_BYTES,
    COLD_BLOCK_ROWS,
    RUN_BLOCK_BYTES,
    RUN_BLOCK_ROWS,
    RUN_BODY_BYTES_MAX,
    RUN_READ_BYTES,
    RUN_WRITE_BYTES,
)
from outrider.storage.files import TEMPORARY_SUFFIX, File, Files, remove_if_possible
from outrider.storage.record_columns import Int64s, Keys, RecordColumns, body_bytes, distinct
from outrider.storage.sealed import check_store, is_whole, sealed, sealed_bytes, unsealed_head

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

RUN_FORMAT = 2
RUN_LEVEL = 3
"""Level of zstd. On a quarter of a million URLs of documents, level 6 needs three times as long for 5 % less, and a
dictionary per run half as long again for 3 %."""

_FRAME: Literal[2] = 2  # ZstdCompressor.FLUSH_FRAME: each call ends its own frame

_HEADER_MAGIC = b"ORrun\r\n\x1a"
_HEADER = struct.Struct("<8sI4x16sQQ12x")  # magic, format, store, number, age; the crc follows
_FOOTER_MARK = b"foot"
_FOOTER = struct.Struct(
    "<4sIQQQQ16s16s"
)  # mark, crc of the index, its place, blocks, rows, body bytes, first, last key
_BLOCK = struct.Struct("<IIIIII")  # place, rows, bytes of heads and of bodies, bytes of bodies unpacked, crc of bodies
_HEADER_BYTES = sealed_bytes(_HEADER)
_BLOCK_BYTES = sealed_bytes(_BLOCK)
_FOOTER_BYTES = sealed_bytes(_FOOTER)
_INDEX = np.dtype([("key", "S16"), ("offset", "<u8")])
LEDGER, COLD = "run", "cold"
"""Families of runs: those of the ledger, and of hosts that are kept on disk. Each has numbers of its own."""
_NAME = re.compile(rf"({LEDGER}|{COLD})-([0-9a-f]{{16}})\.run")
_UNFINISHED = re.compile(rf"({LEDGER}|{COLD})-([0-9a-f]{{16}})\.tmp")

_CUT_BLOCKS = 4  # that are cut at once: a megabyte or two
_HEADS_BYTES_MAX = 128 * RUN_BLOCK_ROWS  # 73 bytes a row, and lists of a quarter of the rows
_BODIES_BYTES_MAX = RUN_BLOCK_BYTES + RUN_BODY_BYTES_MAX


def run_name(number: int, family: str = LEDGER) -> str:
    """The name of the run with this number."""
    return f"{family}-{number:016x}.run"


def run_number(name: str, family: str = LEDGER) -> int | None:
    """The number in a name of a run of a family, None in any other name."""
    return _number(_NAME.fullmatch(name), family)


def unfinished_number(name: str, family: str = LEDGER) -> int | None:
    """The number in the name of a run that is being written, None in any other name."""
    return _number(_UNFINISHED.fullmatch(name), family)


def family_of(name: str) -> str | None:
    """The family in a name of a run, None in any other name."""
    match = _NAME.fullmatch(name)
    return match.group(1) if match else None


def _number(match: re.Match[str] | None, family: str) -> int | None:
    return int(match.group(2), 16) if match and match.group(1) == family else None


# ------------------------------------------------------------------------------------------------ writing


class RunWriter:
    """Writes one run, records in the order of their keys. The run does not exist until `finish` has returned."""

    def __init__(
        self, files: Files, *, store: bytes, number: int, age: int | None = None, family: str = LEDGER
    ) -> None:
        """Begins run `number`. age: of a merged run, the highest age of the merged ones; None: the number. Of two runs
        the one with the higher age has the newer records. Raises StoreFullError, StoreFailedError."""
        if len(store) != 16:
            raise ValueError(f"a store id has 16 bytes, not {len(store)}")
        self._files = files
        self._number = number
        self._family = family
        self._block_rows = COLD_BLOCK_ROWS if family == COLD else RUN_BLOCK_ROWS
        self._temporary = f"{family}-{number:016x}{TEMPORARY_SUFFIX}"
        self._compressor = zstd.ZstdCompressor(level=RUN_LEVEL)
        self._buffer = bytearray(
            sealed(_HEADER.pack(_HEADER_MAGIC, RUN_FORMAT, store, number, number if age is None else age))
        )
        self._position = 0
        self._unsynced = 0
        self._pending: list[RecordColumns] = []
        self._pending_rows = 0
        self._keys: list[bytes] = []
        self._offsets: list[int] = []
        self._last = b""
        self._body_bytes = 0
        self._ended = False
        self._file: File | None = files.open(self._temporary, create=True)
        try:
            self._file.truncate(0)
        except StoreError:
            self.abandon()
            raise
        self.rows = 0

    @property
    def pending_rows(self) -> int:
        """Records that were added and are in no block yet."""
        return self._pending_rows

    def add(self, records: RecordColumns) -> None:
        """Adds records with keys above all keys added before. Raises StoreFullError, StoreFailedError, ValueError."""
        if not len(records):
            return
        self._pending.append(records)
        self._pending_rows += len(records)
        # Blocks are cut from whole pieces, so that small pieces do not make small blocks.
        if self._pending_rows >= _CUT_BLOCKS * RUN_BLOCK_ROWS:
            self._cut(all_of_it=False)

    def finish(self) -> str:
        """Makes it a run, syncs the directory and returns the run's name. Raises StoreFullError, StoreFailedError."""
        file = self._open_file()
        self._cut(all_of_it=True)
        index = np.empty(len(self._keys), _INDEX)
        index["key"] = self._keys
        index["offset"] = self._offsets
        packed = index.tobytes()
        place = self._position + len(self._buffer)
        self._buffer += packed
        smallest = self._keys[0] if self._keys else b""
        numbers = (place, len(self._keys), self.rows, self._body_bytes)
        self._buffer += sealed(_FOOTER.pack(_FOOTER_MARK, crc32c(packed), *numbers, smallest, self._last))
        self._flush(file)
        file.sync()
        file.close()
        self._file = None
        name = run_name(self._number, self._family)
        self._files.rename(self._temporary, name)
        self._ended = True
        self._files.sync_directory()
        return name

    def abandon(self) -> str | None:
        """Removes the written part; after `finish` nothing happens. The name of its file where the disk refuses: it is
        to be removed later."""
        if self._ended:
            return None
        self._ended = True
        if self._file is not None:
            self._file.close()
            self._file = None
        self._buffer.clear()
        return None if remove_if_possible(self._files, self._temporary) else self._temporary

    def _open_file(self) -> File:
        if self._file is None:
            raise ValueError(f"run {self._number} was finished or abandoned")
        return self._file

    def _cut(self, *, all_of_it: bool) -> None:
        """Makes blocks of the pending rows, except the last ones, which may become more."""
        records = RecordColumns.concatenate(self._pending)
        self._pending.clear()
        rows, begin, offsets = len(records), 0, records.offsets
        while begin < rows:
            full = int(offsets.searchsorted(offsets[begin] + RUN_BLOCK_BYTES, "left"))
            end = min(begin + self._block_rows, max(full, begin + 1), rows)
            if end == rows and not all_of_it:
                break
            self._write_block(records.slice(begin, end))
            begin = end
        self._pending = [records.slice(begin, rows)] if begin < rows else []
        self._pending_rows = rows - begin

    def _write_block(self, records: RecordColumns) -> None:
        keys = records.keys
        first, last = bytes(keys[0]), bytes(keys[-1])
        if (self.rows and first <= self._last) or not (keys[1:] > keys[:-1]).all():
            raise ValueError("records of a run must have ascending, distinct keys")
        raw = memoryview(records.arena)[int(records.offsets[0]) : int(records.offsets[-1])]
        if len(raw) > _BODIES_BYTES_MAX:
            raise ValueError(f"a card with a body of {len(raw)} bytes; it may have {RUN_BODY_BYTES_MAX}")
        heads = self._compressor.compress(
            pack_heads(records.heads.view(np.uint8), records.whole.view(np.uint8)), _FRAME
        )
        bodies = self._compressor.compress(raw, _FRAME) if len(raw) else b""
        fields = _BLOCK.pack(len(self._keys), len(records), len(heads), len(bodies), len(raw), crc32c(bodies))
        self._keys.append(first)
        self._offsets.append(self._position + len(self._buffer))
        self._last = last
        self._body_bytes += len(raw)
        self.rows += len(records)
        self._buffer += fields
        self._buffer += crc32c(heads, crc32c(fields)).to_bytes(4, "little")
        self._buffer += heads
        self._buffer += bodies
        if len(self._buffer) >= RUN_WRITE_BYTES:
            file = self._open_file()
            self._flush(file)
            if self._unsynced >= CHECKPOINT_SYNC_BYTES:
                file.sync()
                self._unsynced = 0

    def _flush(self, file: File) -> None:
        file.write_at(self._position, bytes(self._buffer))
        self._position += len(self._buffer)
        self._unsynced += len(self._buffer)
        self._buffer.clear()


# ------------------------------------------------------------------------------------------------ reading


class Run:
    """A finished run; its header, index and footer are whole, its blocks are checked as they are read."""

    def __init__(self, files: Files, name: str, *, store: bytes) -> None:
        """Opens a run; nothing is written.

        Raises DamagedStoreError when it is missing, not whole or of another store, ForeignStoreError for a newer
        format.
        """
        family = family_of(name)
        number = run_number(name, family) if family is not None else None
        if number is None:
            raise ValueError(f"{name!r} is not the name of a run")
        self.name = name
        self.number = number
        self._where = where = files.describe(name)
        try:
            file = files.open(name)
        except FileNotFoundError:
            raise DamagedStoreError(f"{where} is missing, and the checkpoint names it; bring it back") from None
        try:
            self.bytes = file.size()
            header = file.read_at(0, _HEADER_BYTES)
            footer = file.read_at(max(self.bytes - _FOOTER_BYTES, 0), _FOOTER_BYTES)
            if self.bytes < _HEADER_BYTES + _FOOTER_BYTES or len(footer) < _FOOTER_BYTES:
                raise DamagedStoreError(f"{where} at byte {self.bytes}: the run is cut")
            found, named, age = unsealed_head(
                header, _HEADER, magic=_HEADER_MAGIC, newest=RUN_FORMAT, where=where, file_format="run", what="run"
            )
            check_store(found, store, where)
            if named != number:
                raise DamagedStoreError(f"{where} at byte 32 is run {named}, its name says {number}; it was renamed")
            self.age: int = age or number  # earlier builds wrote no age, and numbered runs by age
            at = self.bytes - _FOOTER_BYTES
            mark, crc, place, blocks, self.rows, self.body_bytes, _, self._last = _FOOTER.unpack_from(footer)
            if mark != _FOOTER_MARK or not is_whole(footer, _FOOTER) or place + blocks * _INDEX.itemsize != at:
                raise DamagedStoreError(f"{where} at byte {at}: the run's footer fails its checksum")
            packed = file.read_at(place, at - place)
            if len(packed) != at - place or crc32c(packed) != crc:
                raise DamagedStoreError(f"{where} at byte {place}: the run's index fails its checksum")
        except BaseException:
            file.close()
            raise
        index = np.frombuffer(packed, _INDEX)
        self._keys: Keys = np.ascontiguousarray(index["key"])
        self._offsets = np.append(index["offset"].astype(np.int64), place)
        self._file = file
        # A reader may use a run whose name is already removed; the last reader closes the descriptor.
        self._closing = weakref.finalize(self, file.close)

    def __repr__(self) -> str:
        return f"<run {self._where}, {self.rows} records>"

    def __len__(self) -> int:
        return int(self.rows)

    def close(self) -> None:
        """Closes the descriptor; no reader may be at work."""
        self._closing()

    def find(self, keys: Keys) -> RecordColumns:
        """The records of these keys (sorted) that are here, in their order: a read and two small unpackings per
        block."""
        blocks = self._keys.searchsorted(keys, "right") - 1
        inside = (blocks >= 0) & (keys <= np.array(self._last, keys.dtype))
        if not inside.any():
            return RecordColumns.none()
        keys, blocks = keys[inside], blocks[inside]
        found = []
        for block in distinct(blocks):
            wanted = keys[blocks == block]
            begin, end = int(self._offsets[block]), int(self._offsets[block + 1])
            data = self._file.read_at(begin, end - begin)
            records, bodies = self._heads(data, 0, begin, int(block))
            rows = records.keys.searchsorted(wanted)
            hit = (rows < len(records)) & (records.keys[np.minimum(rows, len(records) - 1)] == wanted)
            if hit.any():
                found.append(self._with_bodies(records, data, bodies, begin).take(rows[hit]))
        return RecordColumns.concatenate(found)

    def read(
        self, *, after: bytes = b"", bodies: bool = True, bytes_at_once: int = RUN_READ_BYTES
    ) -> Iterator[RecordColumns]:
        """Its records with keys above `after` (b"": all), some thousand at once, in order.

        Without `bodies` they are heads alone, with the lengths that their bodies have. Raises DamagedStoreError, naming
        file and byte, at a block that is not whole; all records given before are whole.
        """
        bound = np.array(after, self._keys.dtype)
        block = max(int(self._keys.searchsorted(bound, "right")) - 1, 0) if after else 0
        count = len(self._keys)
        while block < count:
            begin = int(self._offsets[block])
            end_block = max(int(self._offsets.searchsorted(begin + bytes_at_once, "right")) - 1, block + 1)
            data = self._file.read_at(begin, int(self._offsets[end_block]) - begin)
            parts = []
            for number in range(block, end_block):
                records, place = self._heads(data, int(self._offsets[number]) - begin, begin, number)
                parts.append(self._with_bodies(records, data, place, begin) if bodies else records)
            records = RecordColumns.concatenate(parts)
            if after and records.keys[0] <= bound:
                records = records.slice(int(records.keys.searchsorted(bound, "right")), len(records))
            if len(records):
                yield records
            block = end_block

    def check(self) -> Iterator[str]:
        """Reads every block again: each damage in words, naming file and byte."""
        for number in range(len(self._keys)):
            begin, end = int(self._offsets[number]), int(self._offsets[number + 1])
            try:
                data = self._file.read_at(begin, end - begin)
                records, place = self._heads(data, 0, begin, number)
                self._with_bodies(records, data, place, begin)
            except DamagedStoreError as error:
                yield str(error)

    def _heads(self, data: bytes, at: int, base: int, number: int) -> tuple[RecordColumns, tuple[int, int, int, int]]:
        """The heads of the block at `at` of data read from `base`; of its bodies place, bytes, bytes unpacked, crc."""
        try:
            place, rows, heads_bytes, bodies_bytes, bodies_raw, bodies_crc = _BLOCK.unpack_from(data, at)
            begin = at + _BLOCK_BYTES
            end = begin + heads_bytes
            packed = data[begin:end]
            stored = int.from_bytes(data[begin - 4 : begin], "little")
            if crc32c(packed, crc32c(data[at : begin - 4])) != stored or place != number:
                raise ValueError("fails its checksum")
            if not 0 < rows <= RUN_BLOCK_ROWS or bodies_raw > _BODIES_BYTES_MAX:
                raise ValueError("is none")
            raw = _unpacked(packed, _HEADS_BYTES_MAX)
            heads, whole = unpack_heads(raw, rows)
        except (struct.error, ValueError, zstd.ZstdError) as error:
            raise self._damage(base + at) from error
        offsets: Int64s = np.zeros(rows + 1, np.int64)
        columns = np.frombuffer(heads, HEAD), np.frombuffer(whole, np.bool_)
        return RecordColumns(*columns, b"", offsets), (end, bodies_bytes, bodies_raw, bodies_crc)

    def _with_bodies(
        self, records: RecordColumns, data: bytes, place: tuple[int, int, int, int], base: int
    ) -> RecordColumns:
        at, length, raw_bytes, crc = place
        packed = data[at : at + length]
        offsets: Int64s = np.zeros(len(records) + 1, np.int64)
        np.cumsum(body_bytes(records.heads) * records.whole, out=offsets[1:])
        try:
            if len(packed) != length or crc32c(packed) != crc:
                raise ValueError("fails its checksum")
            raw = _unpacked(packed, raw_bytes) if length else b""
            if len(raw) != raw_bytes or offsets[-1] != raw_bytes:
                raise ValueError("has other bodies than its heads say")
        except (ValueError, zstd.ZstdError) as error:
            raise self._damage(base + at) from error
        return RecordColumns(records.heads, records.whole, raw, offsets)

    def _damage(self, at: int) -> DamagedStoreError:
        return DamagedStoreError(f"{self._where} at byte {at}: a block of the run fails its checksum")


def _unpacked(packed: bytes, bytes_max: int) -> bytes:
    decompressor = zstd.ZstdDecompressor()
    raw = decompressor.decompress(packed, bytes_max)
    if not decompressor.eof or decompressor.unused_data:
        raise ValueError("is longer than it may be")
    return bytes(raw)
