"""Small records of fixed size that end in their own checksum: | fields | crc32c u32 |, little endian."""

from __future__ import annotations

import struct
from typing import Any

from outrider.errors import DamagedStoreError, ForeignStoreError
from outrider.kernels import crc32c

CRC = struct.Struct("<I")


def sealed(fields: bytes) -> bytes:
    """The fields and their checksum."""
    return fields + CRC.pack(crc32c(fields))


def sealed_bytes(layout: struct.Struct) -> int:
    """How long a sealed record of this layout is."""
    return layout.size + CRC.size


def is_whole(record: bytes, layout: struct.Struct) -> bool:
    """Whether a record of this layout begins here and has the right checksum."""
    if len(record) < sealed_bytes(layout):
        return False
    return bool(CRC.unpack_from(record, layout.size)[0] == crc32c(record[: layout.size]))


def unsealed_head(
    head: bytes, layout: struct.Struct, *, magic: bytes, newest: int, where: str, file_format: str, what: str
) -> tuple[Any, ...]:
    """Returns the fields of a file's sealed head after magic and format number.

    newest: the format written now; formats from 1 on are read. where, file_format, what: names of the file, its format
    and the record, for messages. Raises ForeignStoreError for a format above `newest` and DamagedStoreError for a head
    that is not whole.
    """
    found, version, *fields = layout.unpack_from(head)
    if found == magic and version > newest:
        raise ForeignStoreError(
            f"{where} has {file_format} format {version}; this version reads up to {newest}, use a newer one"
        )
    if found != magic or not 1 <= version <= newest or not is_whole(head, layout):
        raise DamagedStoreError(f"{where} at byte 0: the {what}'s header fails its checksum")
    return tuple(fields)


def check_store(found: bytes, store: bytes, where: str) -> None:
    """Both ids (16 bytes) are one. Raises DamagedStoreError: a file was brought from another store."""
    if found != store:
        raise DamagedStoreError(
            f"{where} at byte 16 belongs to another store ({found.hex()}, not {store.hex()}); bring the right file back"
        )
