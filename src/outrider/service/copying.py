"""The records of all URLs for clients that read them piece by piece: the server keeps an iterator for each reading."""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from outrider.limits import SERVICE_READINGS_MAX, SERVICE_RECORDS_PER_PIECE
from outrider.service.problems import Problem


class _RecordReading:
    """The progress of one client through the records. The last piece is kept, because its answer may be lost."""

    def __init__(self, records: Iterator[dict[str, Any]]) -> None:
        self.lock = asyncio.Lock()
        self.number = 0  # the number of the kept piece
        self.rows: list[dict[str, Any]] = []
        self._records = records

    def read(self) -> None:
        self.rows = list(islice(self._records, SERVICE_RECORDS_PER_PIECE))
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
            ended = len(reading.rows) < SERVICE_RECORDS_PER_PIECE
            return reading.rows, None if ended else f"{name}.{reading.number}"


def _old(cursor: str | None) -> Problem:
    return Problem("invalid-argument", f"cursor {cursor!r:.60} is no longer valid; read the records again")
