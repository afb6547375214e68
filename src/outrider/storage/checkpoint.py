"""Fuzzy checkpoints: ranges of rows, each with its own LSN, whole or absent after any crash.

File `checkpoint-<number, 16 hex digits>.ckpt`: | header | range | range | … | footer |; `docs/formats/frames.md` draws
it. A checkpoint is written under a `.tmp` name between other work. It gets its name when all of it is on the device,
and only then the previous checkpoint is removed.

A kept schedule (`outrider.frontier.state.kept_schedule`) is a file of the same format, whose name has another stem.
"""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from outrider.errors import DamagedStoreError, StoreError
from outrider.kernels import crc32c
from outrider.limits import (
    CHECKPOINT_COMPRESSED_BYTES_MIN,
    CHECKPOINT_RANGE_BYTES_MAX,
    CHECKPOINT_SYNC_BYTES,
    LOG_READ_BYTES,
)
from outrider.storage.files import TEMPORARY_SUFFIX, File, Files, remove_if_possible
from outrider.storage.sealed import CRC, check_store, is_whole, sealed, sealed_bytes, unsealed_head

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CHECKPOINT_FORMAT = 2
RANGE_BYTES_LIMIT = 64 << 20
"""A range's length beyond this, stored or unpacked, is damage. By habit it has CHECKPOINT_RANGE_BYTES_MAX at most."""

_HEADER_MAGIC = b"ORckp\r\n\x1a"
_HEADER = struct.Struct("<8sI4x16sQQ12x")  # magic, format, store, number, start LSN; the crc follows
_RANGE_MARKS = _PLAIN, _PACKED = b"rnge", b"rngz"
_FOOTER_MARK = b"foot"
_LEVEL = 1
"""Level of zstd. Higher levels save nothing, because only hashes are left that do not repeat."""
_FRAME: Literal[2] = 2  # ZstdCompressor.FLUSH_FRAME: each call ends its own frame
_RANGE = struct.Struct("<4sIIIQQQ")  # mark, payload length, slot, section, first row, LSN, place in the file
_FOOTER = struct.Struct("<4sIQQQ")  # mark, crc over the ranges' crcs, ranges, payload bytes, LSN; the crc follows
_HEADER_BYTES = sealed_bytes(_HEADER)
_FOOTER_BYTES = sealed_bytes(_FOOTER)
CHECKPOINTS, SCHEDULES = "checkpoint", "schedule"
"""The stems of file names."""

Range = tuple[int, int, int, int, bytes]
"""(slot, section, first row, LSN, payload)."""


def checkpoint_name(number: int, stem: str = CHECKPOINTS) -> str:
    """The name of the checkpoint with this number."""
    return f"{stem}-{number:016x}.ckpt"


def remove_unfinished(files: Files, stem: str) -> None:
    """Removes the unfinished files of earlier attempts, as far as the disk allows."""
    for name in files.names():
        if re.fullmatch(rf"{stem}-[0-9a-f]{{16}}\.tmp", name):
            remove_if_possible(files, name)


def remove_before(files: Files, number: int, stem: str = CHECKPOINTS) -> None:
    """Removes the files with lower numbers, as far as the disk allows."""
    for found in _numbers(files, stem):
        if found < number:
            remove_if_possible(files, checkpoint_name(found, stem))


def remove_schedules(files: Files) -> None:
    """Removes all kept schedules, also unfinished ones. Raises StoreError."""
    remove_unfinished(files, SCHEDULES)
    for number in _numbers(files, SCHEDULES):
        files.remove(checkpoint_name(number, SCHEDULES))
    files.sync_directory()


class CheckpointWriter:
    """Writes one checkpoint range by range; until `finish` has returned the older one counts."""

    def __init__(self, files: Files, *, store: bytes, number: int, start_lsn: int, stem: str = CHECKPOINTS) -> None:
        """Begins checkpoint `number`, and removes the files of earlier attempts.

        `start_lsn` is the last LSN before the first range is copied: replay starts after it. Raises StoreFullError,
        StoreFailedError.
        """
        if len(store) != 16:
            raise ValueError(f"a store id has 16 bytes, not {len(store)}")
        self._files = files
        self._number = number
        self._stem = stem
        self._temporary = f"{stem}-{number:016x}{TEMPORARY_SUFFIX}"
        self._compressor = zstd.ZstdCompressor(level=_LEVEL)
        remove_unfinished(files, stem)
        header = _HEADER.pack(_HEADER_MAGIC, CHECKPOINT_FORMAT, store, number, start_lsn)
        self._buffer = bytearray(sealed(header))
        self._ended = False
        self._file: File | None = files.open(self._temporary, create=True)
        try:
            self._file.truncate(0)
        except StoreError:
            self.abandon()
            raise
        self._position = 0
        self._unsynced = 0
        self._ranges = 0
        self._payload_bytes = 0
        self._chain = 0
        self._lsn = start_lsn

    @property
    def number(self) -> int:
        """The checkpoint's number."""
        return self._number

    @property
    def size(self) -> int:
        """Bytes written up to now."""
        return self._position + len(self._buffer)

    def add(self, slot: int, section: int, first_row: int, lsn: int, payload: bytes) -> None:
        """Adds the rows of a slot's section from `first_row` on, as they are after `lsn`.

        The caller defines the payload. Raises StoreFullError, after which `abandon` frees the space, and
        StoreFailedError.
        """
        if len(payload) > RANGE_BYTES_LIMIT:
            raise ValueError(f"a range of {len(payload)} bytes; cut it at {CHECKPOINT_RANGE_BYTES_MAX}")
        file = self._open_file()
        mark = _PLAIN
        if len(payload) >= CHECKPOINT_COMPRESSED_BYTES_MIN:
            packed = self._compressor.compress(payload, _FRAME)
            if len(packed) < len(payload):
                mark, payload = _PACKED, packed
        head = _RANGE.pack(mark, len(payload), slot, section, first_row, lsn, self._ranges)
        crc = CRC.pack(crc32c(payload, crc32c(head)))
        self._buffer += head + crc
        self._buffer += payload
        self._chain = crc32c(crc, self._chain)
        self._ranges += 1
        self._payload_bytes += len(payload)
        self._lsn = max(self._lsn, lsn)
        if len(self._buffer) >= CHECKPOINT_RANGE_BYTES_MAX:
            self._flush(file)
            if self._unsynced >= CHECKPOINT_SYNC_BYTES:
                file.sync()
                self._unsynced = 0

    def finish(self, lsn: int) -> None:
        """Makes it the newest checkpoint and removes older ones. The next call retries removals that failed.

        `lsn` is the highest LSN in any range; the log must be synced up to it. When this returns, the checkpoint
        survives any crash. When it raises, the older one counts. Raises StoreFullError, StoreFailedError.
        """
        if lsn < self._lsn:
            raise ValueError(f"a range contains LSN {self._lsn}, above lsn={lsn}")
        file = self._open_file()
        footer = _FOOTER.pack(_FOOTER_MARK, self._chain, self._ranges, self._payload_bytes, lsn)
        self._buffer += sealed(footer)
        self._flush(file)
        file.sync()
        file.close()
        self._file = None
        self._files.rename(self._temporary, checkpoint_name(self._number, self._stem))
        self._ended = True
        self._files.sync_directory()
        remove_before(self._files, self._number, self._stem)

    def abandon(self) -> None:
        """Removes the written part; the older checkpoint counts. After `finish` nothing happens."""
        if self._ended:
            return
        self._ended = True
        if self._file is not None:
            self._file.close()
            self._file = None
        self._buffer.clear()
        remove_if_possible(self._files, self._temporary)

    def _open_file(self) -> File:
        if self._file is None:
            raise ValueError(f"checkpoint {self._number} was finished or abandoned")
        return self._file

    def _flush(self, file: File) -> None:
        file.write_at(self._position, bytes(self._buffer))
        self._position += len(self._buffer)
        self._unsynced += len(self._buffer)
        self._buffer.clear()


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A finished checkpoint whose header and footer are whole; the ranges are checked as they are read."""

    files: Files
    number: int
    start_lsn: int
    """Replay of the log starts after this LSN."""
    lsn: int
    """The highest LSN in any range."""
    count: int
    """How many ranges there are."""
    bytes: int
    """The file's size."""
    chain: int
    """The checksum over the ranges' checksums, in their order."""
    stem: str = CHECKPOINTS

    @property
    def name(self) -> str:
        """The name of its file."""
        return checkpoint_name(self.number, self.stem)

    def ranges(self) -> Iterator[Range]:
        """Its ranges in the order of writing: (slot, section, first row, LSN, payload); one range of memory.

        Raises DamagedStoreError, naming file and byte, as soon as a range is not whole. Ranges that were yielded before
        were whole.
        """
        name = self.name
        where = self.files.describe(name)
        end = self.bytes - _FOOTER_BYTES
        head_bytes = _RANGE.size + CRC.size
        position, count, chain = _HEADER_BYTES, 0, 0
        buffer, base = b"", position
        file = self.files.open(name)
        try:
            while position < end:
                if position + head_bytes > end:
                    raise DamagedStoreError(f"{where} at byte {position}: the checkpoint's last range is cut")
                if position + head_bytes > base + len(buffer):
                    buffer, base = file.read_at(position, min(LOG_READ_BYTES, end - position)), position
                at = position - base
                if len(buffer) < at + head_bytes:
                    raise DamagedStoreError(f"{where} at byte {base + len(buffer)}: the file has shrunk")
                head = buffer[at : at + _RANGE.size]
                mark, length, slot, section, first_row, lsn, place = _RANGE.unpack(head)
                stop = position + head_bytes + length
                if mark not in _RANGE_MARKS or length > RANGE_BYTES_LIMIT or stop > end or place != count:
                    raise DamagedStoreError(f"{where} at byte {position}: no range of a checkpoint begins here")
                stored = buffer[at + _RANGE.size : at + head_bytes]
                if stop > base + len(buffer):
                    want = max(min(LOG_READ_BYTES, end - position), stop - position)
                    buffer, base, at = file.read_at(position, want), position, 0
                payload = buffer[at + head_bytes : at + head_bytes + length]
                if len(payload) != length or CRC.pack(crc32c(payload, crc32c(head))) != stored:
                    raise DamagedStoreError(f"{where} at byte {position}: a range fails its checksum")
                chain = crc32c(stored, chain)
                count += 1
                position = stop
                unpacked = unpacked_payload(mark, payload)
                if unpacked is None:
                    raise DamagedStoreError(
                        f"{where} at byte {position - length - head_bytes}: a range cannot be unpacked"
                    )
                yield slot, section, first_row, lsn, unpacked
        finally:
            file.close()
        if count != self.count or chain != self.chain:
            raise DamagedStoreError(f"{where} at byte {end}: {count} ranges were read, the footer names {self.count}")


def unpacked_payload(mark: bytes, payload: bytes) -> bytes | None:
    """The payload of a range as it was given; None for bytes that no writer stores under this mark."""
    if mark == _PLAIN:
        return payload
    decompressor = zstd.ZstdDecompressor()
    try:
        plain = bytes(decompressor.decompress(payload, RANGE_BYTES_LIMIT))
    except zstd.ZstdError:
        return None
    return plain if decompressor.eof and not decompressor.unused_data else None


def newest_checkpoint(files: Files, *, store: bytes, stem: str = CHECKPOINTS) -> Checkpoint | None:
    """Returns the checkpoint with the highest number, or None. Unfinished checkpoints are ignored.

    Raises DamagedStoreError when its header or footer is not whole or it belongs to another store, ForeignStoreError
    for a newer format.
    """
    numbers = _numbers(files, stem)
    if not numbers:
        return None
    number = numbers[-1]
    name = checkpoint_name(number, stem)
    where = files.describe(name)
    file = files.open(name)
    try:
        size = file.size()
        header = file.read_at(0, _HEADER_BYTES)
        footer = file.read_at(max(size - _FOOTER_BYTES, 0), _FOOTER_BYTES)
    finally:
        file.close()
    if size < _HEADER_BYTES + _FOOTER_BYTES:
        raise DamagedStoreError(f"{where} at byte {size}: the checkpoint is cut")
    found, named, start_lsn = unsealed_head(
        header,
        _HEADER,
        magic=_HEADER_MAGIC,
        newest=CHECKPOINT_FORMAT,
        where=where,
        file_format="checkpoint",
        what="checkpoint",
    )
    check_store(found, store, where)
    if named != number:
        raise DamagedStoreError(f"{where} at byte 32 is checkpoint {named}, its name says {number}; it was renamed")
    mark, chain, count, _, lsn = _FOOTER.unpack_from(footer)
    if mark != _FOOTER_MARK or not is_whole(footer, _FOOTER):
        raise DamagedStoreError(f"{where} at byte {size - _FOOTER_BYTES}: the checkpoint's footer fails its checksum")
    return Checkpoint(files, number, start_lsn, lsn, count, size, chain, stem)


def _numbers(files: Files, stem: str = CHECKPOINTS) -> list[int]:
    matches = (re.fullmatch(rf"{stem}-([0-9a-f]{{16}})\.ckpt", name) for name in files.names())
    return sorted(int(match.group(1), 16) for match in matches if match)
