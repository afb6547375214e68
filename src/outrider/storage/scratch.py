"""Chunks of bytes in scratch files: never synced, removed at the next opening, each chunk with its checksum.

A file contains chunks in a row, | length u32 | crc32c of the rest u32 | owner u32 | bytes |. A released chunk is
garbage. A file with only garbage is removed. From a file that is mostly garbage, the other chunks are moved.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from outrider import kernels
from outrider.errors import DamagedStoreError, StoreError, StoreFullError
from outrider.limits import SCRATCH_FILE_BYTES_MAX, SCRATCH_FILES_OPEN_MAX
from outrider.storage.files import File, Files, remove_if_possible

SUFFIX = ".tail"
OFFSET_BITS = 26
PLACE_BITS = 55
"""Bits of a place: the number of its file, and the offset in it."""
_HEADER = struct.Struct("<III")
_COVERED = struct.Struct("<I")
_READ_BYTES = 4_096  # one read suffices for most chunks
_RESTART_BYTES = 1 << 20  # a smaller file is not worth being removed and made again


@dataclass(slots=True)
class _Stock:
    """The content of one file: its length in bytes, and how many chunks were put into it and are still wanted."""

    length: int = 0
    chunks: int = 0
    wanted: int = 0


class Scratch:
    """Chunks in files `NAME-%08x.tail` of one directory. One thread at a time."""

    def __init__(self, files: Files, *, name: str, file_bytes_max: int = SCRATCH_FILE_BYTES_MAX) -> None:
        """Removes the files of an earlier process, as far as the disk allows. Raises StoreError; ValueError when
        a place cannot express such offsets."""
        if not 0 < file_bytes_max <= 1 << OFFSET_BITS:
            raise ValueError(f"a scratch file has 1 to {1 << OFFSET_BITS} bytes, not {file_bytes_max}")
        self._files = files
        self._name = name
        self._file_bytes_max = file_bytes_max
        self._stocks: dict[int, _Stock] = {}
        self._open: OrderedDict[int, File] = OrderedDict()
        self._last = 0
        self._current: int | None = None
        self._wasteful: set[int] = set()
        self._cursor = (0, 0)
        self._unremoved: list[str] = []  # unused, but the disk refused to remove them: tried again with the next one
        for left in files.names():
            # Exactly as long as ours: `a-b` has its files next to those of `a`.
            if left.startswith(f"{name}-") and left.endswith(SUFFIX) and len(left) == len(self._file_name(0)):
                remove_if_possible(files, left)

    def __repr__(self) -> str:
        return f"<Scratch {self._name} {len(self._stocks)} files, {self.disk_bytes} bytes>"

    @property
    def disk_bytes(self) -> int:
        """On disk, garbage included."""
        return sum(stock.length for stock in self._stocks.values())

    @property
    def chunks(self) -> int:
        """How many are wanted."""
        return sum(stock.wanted for stock in self._stocks.values())

    def _file_name(self, number: int) -> str:
        return f"{self._name}-{number:08x}{SUFFIX}"

    def _file(self, number: int, *, create: bool = False) -> File:
        file = self._open.get(number)
        if file is None:
            file = self._files.open(self._file_name(number), create=create)
            self._open[number] = file
            if len(self._open) > SCRATCH_FILES_OPEN_MAX:
                self._open.popitem(last=False)[1].close()
        else:
            self._open.move_to_end(number)
        return file

    def append(self, owner: int, chunks: Sequence[bytes]) -> list[int]:
        """Returns the places of the chunks. Raises StoreFullError, StoreFailedError; then nothing was written."""
        return self.append_all([owner] * len(chunks), chunks)

    def append_all(self, owners: Sequence[int], chunks: Sequence[bytes]) -> list[int]:
        """As `append`, for chunks of several owners."""
        framed = []
        for owner, chunk in zip(owners, chunks, strict=True):
            crc = kernels.crc32c(chunk, kernels.crc32c(_COVERED.pack(owner)))
            framed.append(_HEADER.pack(len(chunk), crc, owner) + chunk)
        places: list[int] = []
        try:
            at = 0
            while at < len(framed):
                number, stock = self._writable(len(framed[at]))
                room, end, size = self._file_bytes_max - stock.length, at, 0
                while end < len(framed) and (end == at or size + len(framed[end]) <= room):
                    size += len(framed[end])
                    end += 1
                self._file(number).write_at(stock.length, b"".join(framed[at:end]))
                for frame in framed[at:end]:
                    places.append(number << OFFSET_BITS | stock.length)
                    stock.length += len(frame)
                stock.chunks += end - at
                stock.wanted += end - at
                at = end
        except BaseException:
            for place in places:
                self.release(place)
            raise
        return places

    def _writable(self, size: int) -> tuple[int, _Stock]:
        """The file for the next chunk, which has `size` bytes."""
        if self._current is not None:
            stock = self._stocks[self._current]
            if stock.length == 0 or stock.length + size <= self._file_bytes_max:
                return self._current, stock
            sealed, self._current = self._current, None
            self._judge(sealed)
        number = self._last + 1
        self._file(number, create=True)
        self._last = self._current = number
        self._stocks[number] = _Stock()
        return number, self._stocks[number]

    def read(self, place: int, owner: int) -> bytes:
        """The chunk at a place. Raises DamagedStoreError when it differs from the chunk written there for this
        owner."""
        number, offset = place >> OFFSET_BITS, place & (1 << OFFSET_BITS) - 1
        found, chunk = self._read(number, offset)
        if found != owner:
            raise DamagedStoreError(f"{self._describe(number, offset)} belongs to {found}, not to {owner}")
        return chunk

    def _describe(self, number: int, offset: int) -> str:
        return f"{self._files.describe(self._file_name(number))} at byte {offset}"

    def _read(self, number: int, offset: int) -> tuple[int, bytes]:
        try:
            file = self._file(number)
        except FileNotFoundError:
            raise DamagedStoreError(f"{self._describe(number, offset)}: the file is gone") from None
        except StoreFullError as error:
            # No retry: the caller is in the middle of moving chunks that cannot be read.
            raise StoreError(error.facts) from error
        data = file.read_at(offset, _READ_BYTES)
        if len(data) < _HEADER.size:
            raise DamagedStoreError(f"{self._describe(number, offset)}: the file ends there")
        length, crc, owner = _HEADER.unpack_from(data)
        end = _HEADER.size + length
        if end > len(data) and offset + end <= self._stocks[number].length:
            data += file.read_at(offset + len(data), end - len(data))
        chunk = data[_HEADER.size : end]
        if len(chunk) != length or crc != kernels.crc32c(chunk, kernels.crc32c(_COVERED.pack(owner))):
            raise DamagedStoreError(f"{self._describe(number, offset)}: a chunk fails its checksum")
        return owner, chunk

    def release(self, place: int) -> None:
        """The chunk there is wanted no more."""
        number = place >> OFFSET_BITS
        stock = self._stocks[number]
        stock.wanted -= 1
        if number != self._current or (stock.wanted == 0 and stock.length >= _RESTART_BYTES):
            if number == self._current:
                self._current = None
            self._judge(number)

    def _judge(self, number: int) -> None:
        """Looks at a file that is written no more."""
        stock = self._stocks[number]
        if stock.wanted == 0:
            self._wasteful.discard(number)
            del self._stocks[number]
            self._remove(number)
        elif 2 * stock.wanted < stock.chunks and self._cursor[0] != number:
            self._wasteful.add(number)

    def _remove(self, number: int) -> None:
        file = self._open.pop(number, None)
        if file is not None:
            file.close()
        self._unremoved.append(self._file_name(number))
        self._unremoved = [name for name in self._unremoved if not remove_if_possible(self._files, name)]

    def survivors(self, most: int) -> list[tuple[int, int, bytes]]:
        """Returns up to `most` chunks (owner, place, bytes) of a file that is mostly garbage. The caller appends the
        ones it still needs anew and releases them here. Raises DamagedStoreError."""
        number, offset = self._cursor
        if number not in self._stocks:
            if not self._wasteful:
                return []
            number, offset = min(self._wasteful), 0
            self._wasteful.discard(number)
        chunks: list[tuple[int, int, bytes]] = []
        length = self._stocks[number].length
        while offset < length and len(chunks) < most:
            owner, chunk = self._read(number, offset)
            chunks.append((owner, number << OFFSET_BITS | offset, chunk))
            offset += _HEADER.size + len(chunk)
        self._cursor = (number, offset) if offset < length else (0, 0)
        return chunks

    def close(self) -> None:
        """Removes every file."""
        for number in list(self._stocks):
            self._remove(number)
        self._stocks.clear()
        self._wasteful.clear()
        self._current = None
        self._cursor = (0, 0)
