"""The findings of a repair: stretches of files that were lost, and bytes and records as far as they can still be
read."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, Protocol

from outrider.errors import DamagedStoreError
from outrider.storage.files import File, Files
from outrider.storage.sealed import CRC, is_whole

_PAGE_BYTES: Final = 4_096


class MendableFiles(Files, Protocol):
    """A directory that can keep a second name of a file in a folder below it."""

    def keep_copy(self, name: str, folder: str) -> None:
        """Keeps the present file `name` as folder/name, durably; the name stays. Raises StoreFullError,
        StoreFailedError."""
        ...

    def put_copy(self, name: str, folder: str, data: bytes) -> None:
        """Writes folder/name, durably. Raises StoreFullError, StoreFailedError."""
        ...


@dataclass(frozen=True, slots=True)
class Loss:
    """A part of a file that is not whole, or a missing file.

    begin, end: its bytes. first_lsn, last_lsn: the lost frames. pieces: the number of lost frames, ranges or records,
    None if it is unknown.
    """

    file: str
    begin: int
    end: int
    what: str
    first_lsn: int | None = None
    last_lsn: int | None = None
    pieces: int | None = None

    def __str__(self) -> str:
        place = f"{self.file}, bytes {self.begin:,} to {self.end:,}" if self.end > self.begin else self.file
        return f"{place}: {self.what}"


def read_as_can_be(file: File, begin: int, end: int) -> bytes:
    """Reads the bytes begin … end; bytes that the device cannot read are zeros."""
    try:
        return file.read_at(begin, end - begin)
    except DamagedStoreError:
        pass
    parts = []
    for at in range(begin, end, _PAGE_BYTES):
        length = min(_PAGE_BYTES, end - at)
        try:
            part = file.read_at(at, length)
        except DamagedStoreError:
            part = b""
        parts.append(part.ljust(length, b"\0"))
    return b"".join(parts)


def corrected(record: bytes, layout: struct.Struct) -> bytes | None:
    """A sealed record as it was if one of its bytes was changed; None where that is not the whole damage.

    For 64 bytes, one wrong answer is expected in 260,000 records that are damaged otherwise.
    """
    size = layout.size + CRC.size
    if len(record) < size:
        return None
    if is_whole(record, layout):
        return record[:size]
    trial = bytearray(record[:size])
    for place in range(size):
        was = trial[place]
        for value in range(256):
            trial[place] = value
            if value != was and is_whole(bytes(trial), layout):
                return bytes(trial)
        trial[place] = was
    return None
