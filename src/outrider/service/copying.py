"""The records of all URLs for clients that read them piece by piece: the server keeps an iterator for each reading."""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from outrider.limits import LEASE_BYTES_MAX, METADATA_BYTES_MAX, SERVICE_READINGS_MAX, SERVICE_RECORDS_PER_PIECE
from outrider.service.problems import Problem


class _RecordReading:
    """The progress of one client through the records. The last piece is kept, because its answer may be lost."""

    def __init__(self, records: Iterator[dict[str, Any]]) -> None:
        self.lock = asyncio.Lock()
        self.number = 0  # the number of the kept piece
        self.rows: list[dict[str, Any]] = []
        self.ended = False
        self._records = records

    def read(self) -> None:
        self.rows, size, self.ended = [], 0, True
        for row in self._records:
            self.rows.append(row)
            size += _bytes_of(row)
            if len(self.rows) == SERVICE_RECORDS_PER_PIECE or size >= LEASE_BYTES_MAX:
                self.ended = False
                break
        self.number += 1


class RecordReadings:
    """The readings of clients. Beyond a bound, the reading that was continued longest ago is dropped."""

    def __init__(self, records: Callable[[], Iterator[dict[str, Any]]]) -> None:
        self._records = records
        self._open: OrderedDict[str, _RecordReading] = OrderedDict()

    async def piece(self, after: str | None) -> tuple[list[dict[str, Any]], str | None]:
        """Returns the rows after a cursor, and the next cursor, which is None at the end. Raises Problem for an old
        cursor."""
        name, _, number = (after or "").partition(".")
        if after is None:
            name, number = secrets.token_hex(8), "0"
            self._open[name] = _RecordReading(self._records())
            while len(self._open) > SERVICE_READINGS_MAX:
                self._open.popitem(last=False)
        reading = self._open.get(name)
        if reading is None:
            raise _old(after)
        self._open.move_to_end(name)
        async with reading.lock:
            if number == str(reading.number):
                await asyncio.to_thread(reading.read)
            elif number != str(reading.number - 1):
                raise _old(after)
            return reading.rows, None if reading.ended else f"{name}.{reading.number}"


def _bytes_of(row: Mapping[str, Any]) -> int:
    """Returns the bytes of the metadata of a record, which may be long in crawls by unique keys."""
    metadata = row["metadata"]
    try:
        return len(msgspec.json.encode(metadata)) if metadata else 0
    except UnicodeEncodeError:  # of an older store
        return METADATA_BYTES_MAX


def _old(cursor: str | None) -> Problem:
    return Problem("invalid-argument", f"cursor {cursor!r:.60} is no longer valid; read the records again")
