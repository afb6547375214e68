"""Payloads that are in the archive of a crawl, for answers that repeat them: by digest, the place of the response.

The places of a limited number of responses are in memory, 40 bytes each: those of earlier runs from `pages.jsonl`, and
those that the frontier accepted in this run. A place is a hint: the record there is read before a `revisit` refers to
it.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from outrider import kernels
from outrider.archive import WarcPlace
from outrider.archive.warc import file_name, serial_of
from outrider.crawl.output.output import ARCHIVE_PREFIX
from outrider.crawl.run.copies import octets_of
from outrider.journey import Word
from outrider.limits import PAYLOADS_MAX

_NO_ROW: Final = b"\xff" * 4  # as an index returns it
_INDEXED_TOGETHER: Final = 1_024  # the fixed price of a call is spread thin
_LENGTH_MAX: Final = (1 << 32) - 1


class _PayloadLine(msgspec.Struct):
    """The parts of a line of `pages.jsonl` that are used here."""

    outcome: str
    digest: str | None = None
    warc: Any = None


class Payloads:
    """The first `payloads_max` responses of an archive with different payloads."""

    def __init__(self, payloads_max: int = PAYLOADS_MAX) -> None:
        self._max = payloads_max
        self._serials, self._offsets, self._lengths = array("I"), array("Q"), array("I")
        self._index = kernels.Index()
        self._new: dict[int, int] = {}  # rows that the index lacks

    def __len__(self) -> int:
        return len(self._offsets)

    def read(self, lines: Iterable[bytes]) -> None:
        """Adds the responses of earlier runs. Lines without these fields are skipped."""
        decode = msgspec.json.Decoder(_PayloadLine).decode
        for octets in lines:
            if len(self) >= self._max:
                return
            try:
                line = decode(octets)
                place = msgspec.convert(line.warc, WarcPlace)
            except msgspec.MsgspecError:
                continue
            if line.digest is not None and line.outcome != Word.TRUNCATED and place.payload is None:
                self.add(line.digest, place)

    def add(self, digest: str, place: WarcPlace) -> None:
        """Adds a response by the digest of its payload; the first one of a payload remains."""
        serial, number = serial_of(ARCHIVE_PREFIX, place.file), _number(digest)
        fits = serial is not None and place.offset >= 0 and 0 <= place.length <= _LENGTH_MAX
        if number is None or not fits or len(self) >= self._max or self._row(number) is not None:
            return
        assert serial is not None
        self._new[number] = len(self)
        for column, value in ((self._serials, serial), (self._offsets, place.offset), (self._lengths, place.length)):
            column.append(value)
        if len(self._new) >= _INDEXED_TOGETHER:
            self._index.add(
                struct.pack(f"<{len(self._new)}Q", *self._new), struct.pack(f"<{len(self._new)}I", *self._new.values())
            )
            self._new.clear()

    def find(self, digest: str) -> WarcPlace | None:
        """Returns the place of the response with this payload; None without one. A few digests share a place."""
        number = _number(digest)
        row = self._row(number) if number is not None else None
        if row is None:
            return None
        return WarcPlace(file_name(ARCHIVE_PREFIX, self._serials[row]), self._offsets[row], self._lengths[row])

    def _row(self, number: int) -> int | None:
        found = self._new.get(number)
        if found is not None:
            return found
        row = self._index.find(struct.pack("<Q", number))
        return None if row == _NO_ROW else int.from_bytes(row, "little")


def _number(digest: str) -> int | None:
    octets = octets_of(digest)
    return None if octets is None else int.from_bytes(octets[:8], "little")
