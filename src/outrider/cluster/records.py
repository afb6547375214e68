"""The records of a changelog: | "OR" | format u8 | kind u8 | epoch u64 | body | crc32c u32 |, little endian.

Bodies: a claim is JSON; frames are | LSN u64 | part u32 | last u8 | bytes |; heartbeat and end are | LSN u64 |. A
record contains whole frames (part 0, last 1), or one part of a frame that is larger than a record may be.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from outrider.errors import ForeignStoreError
from outrider.kernels import crc32c
from outrider.limits import CHANGELOG_RECORD_BYTES_MAX

RECORD_FORMAT = 1

_CLAIM, _FRAMES, _HEARTBEAT, _END = range(1, 5)
_MAGIC = b"OR"
_HEAD = struct.Struct("<2sBBQ")
_LSN = struct.Struct("<Q")
_PART = struct.Struct("<QIB")
_CRC = struct.Struct("<I")
_ROOM: Final = CHANGELOG_RECORD_BYTES_MAX - _HEAD.size - _PART.size - _CRC.size


class Claim(msgspec.Struct, frozen=True):
    """A node wants to own the partition. lsn: of its first frame. offset: the place of this record in the topic; the
    claim counts only at this place. store: the id of the partition's store. mark: a text that no other claim has.
    address: where other programs reach the node."""

    epoch: int
    lsn: int
    offset: int
    store: str
    node: str
    mark: str
    address: str = ""


_CLAIMS: Final = msgspec.json.Decoder(Claim)


@dataclass(frozen=True, slots=True)
class Frames:
    """Frames of the owner's log, or one part of a frame. lsn: of the first frame. part: its number, from 0."""

    epoch: int
    lsn: int
    part: int
    last: bool
    data: bytes


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The owner is there, and has no frame to send. lsn: of its last frame."""

    epoch: int
    lsn: int


@dataclass(frozen=True, slots=True)
class End:
    """The owner has given up the partition, and all its requests have ended. lsn: of its last frame."""

    epoch: int
    lsn: int


Record = Claim | Frames | Heartbeat | End


def packed(record: Record) -> bytes:
    """Returns the bytes of a record."""
    if isinstance(record, Claim):
        kind, body = _CLAIM, msgspec.json.encode(record)
    elif isinstance(record, Frames):
        kind, body = _FRAMES, _PART.pack(record.lsn, record.part, record.last) + record.data
    else:
        kind, body = _HEARTBEAT if isinstance(record, Heartbeat) else _END, _LSN.pack(record.lsn)
    octets = _HEAD.pack(_MAGIC, RECORD_FORMAT, kind, record.epoch) + body
    return octets + _CRC.pack(crc32c(octets))


def unpacked(octets: bytes) -> Record | None:
    """Returns a record of its bytes; None for bytes that are no record, from another program or damaged.

    Raises ForeignStoreError for a record of a newer version."""
    if len(octets) < _HEAD.size + _CRC.size:
        return None
    magic, version, kind, epoch = _HEAD.unpack_from(octets)
    if magic != _MAGIC or _CRC.unpack_from(octets, len(octets) - _CRC.size)[0] != crc32c(octets[: -_CRC.size]):
        return None
    if version > RECORD_FORMAT:
        raise ForeignStoreError(
            f"a record of the changelog has format {version}; this version reads up to {RECORD_FORMAT}, use a newer one"
        )
    body = octets[_HEAD.size : -_CRC.size]
    try:
        if kind == _CLAIM:
            claim = _CLAIMS.decode(body)
            return claim if claim.epoch == epoch else None
        if kind == _FRAMES:
            lsn, part, last = _PART.unpack_from(body)
            return Frames(epoch, lsn, part, bool(last), body[_PART.size :])
        if kind in (_HEARTBEAT, _END):
            (lsn,) = _LSN.unpack(body)
            return Heartbeat(epoch, lsn) if kind == _HEARTBEAT else End(epoch, lsn)
    except (struct.error, msgspec.DecodeError):
        pass
    return None


def in_records(epoch: int, frames: Iterable[tuple[int, bytes]]) -> Iterator[tuple[Frames, int]]:
    """Yields frames (LSN, bytes) in records, each with the last LSN that is whole after it."""
    first, whole = 0, bytearray()
    last = 0
    for lsn, frame in frames:
        if whole and len(whole) + len(frame) > _ROOM:
            yield Frames(epoch, first, 0, True, bytes(whole)), last
            whole.clear()
        if len(frame) > _ROOM:
            for part, begin in enumerate(range(0, len(frame), _ROOM)):
                ends = begin + _ROOM >= len(frame)
                yield Frames(epoch, lsn, part, ends, frame[begin : begin + _ROOM]), lsn if ends else lsn - 1
            last = lsn
            continue
        if not whole:
            first = lsn
        whole += frame
        last = lsn
    if whole:
        yield Frames(epoch, first, 0, True, bytes(whole)), last
