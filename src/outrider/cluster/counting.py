"""Which records of a changelog count, and who owns the partition: the same answer for every reader of the topic.

A claim counts if it has the next epoch and is at the offset that it names, so that nothing was appended since its node
had read the topic. Frames count if they are of the newest claim that counts, in the order of their LSNs. All other
records are skipped: those of an earlier owner, repetitions, and those of other programs. A gap in the LSNs of an owner
is damage.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace
from typing import Protocol

from outrider.cluster.records import Claim, End, Frames, unpacked
from outrider.errors import DamagedStoreError
from outrider.kernels import FRAME_HEADER_BYTES, scan_frames

_CRC_OF_FRAME = struct.Struct("<4xI")


class Sent(Protocol):
    """A record on its way."""

    def offset(self) -> int:
        """Waits until it is in the topic, and returns its place. Raises UnreachableError if that cannot be known: it
        may be there, or come later, or never."""
        ...


class RecordTopic(Protocol):
    """One partition of a topic: records at offsets, appended at the end by any node."""

    def send(self, record: bytes) -> Sent:
        """Begins to append a record. It raises nothing: what fails, fails in `Sent.offset`."""
        ...

    def read(self, offset: int) -> list[tuple[int, bytes]]:
        """Returns (offset, record) from an offset on, some at a time; [] at the end. All records are there that were
        acknowledged before the call. Raises UnreachableError, and DamagedStoreError where records were dropped."""
        ...


@dataclass(slots=True)
class Counting:
    """What counts up to a position. position: the offset of the next record. epoch: of the newest claim. lsn: of the
    last frame, and crc: its checksum. claim: the newest one; closed: its owner has given up. skipped: records that did
    not count."""

    position: int = 0
    epoch: int = 0
    lsn: int = 0
    crc: int = 0
    claim: Claim | None = None
    closed: bool = False
    skipped: int = 0
    _parts: list[bytes] = field(default_factory=list)

    def copy(self) -> Counting:
        """Returns a copy that goes on by itself."""
        return replace(self, _parts=list(self._parts))

    @property
    def is_between_frames(self) -> bool:
        """Whether no part of a frame is there without the rest, so that a reader may begin here."""
        return not self._parts

    def has_part(self, lsn: int, part: int) -> bool:
        """Whether this part of a frame is there, or the whole frame."""
        return lsn <= self.lsn or (lsn == self.lsn + 1 and part < len(self._parts))

    def take(self, offset: int, octets: bytes) -> bytes:
        """Takes the next record, and returns its frames that count. Raises DamagedStoreError, ForeignStoreError."""
        self.position = offset + 1
        record = unpacked(octets)
        if record is None or record.epoch < 1:
            self.skipped += 1
            return b""
        if isinstance(record, Claim):
            if record.offset == offset and record.epoch == self.epoch + 1 and record.lsn == self.lsn + 1:
                self.epoch, self.claim, self.closed = record.epoch, record, False
                self._parts.clear()
                return b""
        elif record.epoch == self.epoch:
            if isinstance(record, Frames):
                return self._frames(record)
            if isinstance(record, End) and record.lsn == self.lsn:
                self.closed = True
            return b""
        self.skipped += 1
        return b""

    def _frames(self, record: Frames) -> bytes:
        if self.closed:
            self.skipped += 1  # a repetition that came late
            return b""
        if record.part or not record.last:
            return self._part(record)
        rows, end, _ = scan_frames(record.data)
        begin = len(record.data)
        for offset, _, lsn, *_ in rows:
            if lsn == self.lsn + 1:
                begin = min(begin, offset - FRAME_HEADER_BYTES)
                self._count(lsn, record.data, offset - FRAME_HEADER_BYTES)
            elif lsn > self.lsn:
                raise self._gap(lsn)
        if end != len(record.data):
            raise DamagedStoreError(f"a record of the changelog ends inside the frame of LSN {self.lsn + 1}")
        return record.data[begin:]

    def _part(self, record: Frames) -> bytes:
        if record.lsn <= self.lsn:
            return b""
        if record.lsn > self.lsn + 1 or record.part > len(self._parts):
            raise self._gap(record.lsn)
        if record.part < len(self._parts):
            return b""
        self._parts.append(record.data)
        if not record.last:
            return b""
        frame = b"".join(self._parts)
        self._parts.clear()
        rows, end, _ = scan_frames(frame)
        if [record.lsn] != [row[2] for row in rows] or end != len(frame):
            raise DamagedStoreError(f"the parts of the frame of LSN {record.lsn} in the changelog are not whole")
        self._count(record.lsn, frame, 0)
        return frame

    def _count(self, lsn: int, data: bytes, offset: int) -> None:
        self.lsn, self.crc = lsn, crc_of(data, offset)

    def _gap(self, lsn: int) -> DamagedStoreError:
        return DamagedStoreError(f"the changelog has LSN {lsn} after LSN {self.lsn}: a frame is missing")


def crc_of(data: bytes, offset: int = 0) -> int:
    """Returns the checksum of the frame at an offset, which the frame contains."""
    (crc,) = _CRC_OF_FRAME.unpack_from(data, offset)
    return int(crc)


def read_all(topic: RecordTopic, counting: Counting) -> None:
    """Takes all records up to the end of a topic."""
    while records := topic.read(counting.position):
        for offset, octets in records:
            counting.take(offset, octets)
