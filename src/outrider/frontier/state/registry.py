"""The registry: what belongs to the frontier and to no host or URL. Openings, workers, answers of calls that may be
repeated, places of archives and projections, counts, classes of errors, dates of discovery."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Collection
from operator import itemgetter

from outrider.clock import Instant, instant
from outrider.frontier.format.facts import STREAMS, Fact, Row
from outrider.limits import (
    ACCEPTED_DATE_SECONDS,
    ACCEPTED_DATES_MAX,
    CLIENTS_MAX,
    OWN_SLOT,
    REQUEST_BYTES_MAX,
    REQUEST_IDS_PER_CLIENT_MAX,
)


class Registry:
    """opening: (number, instant, wall clock, boot id, time since boot) of the last one; closed: the state noted by a
    clean stop, or ""; holders: (name, opening) of workers by row; requests: by client and sequence, (verb,
    answer); projections: (length, LSN) by stream; error_numbers: the places in `errors`; accepted: (order, instant) of
    some accepted URLs, both growing. URLs are numbered in the order of their discovery, so that these few dates give
    that of every URL to within the time between two of them."""

    def __init__(self) -> None:
        self.opening: tuple[int, Instant, Instant, str, Instant] = (0, 0, 0, "", 0)
        self.closed = ""
        self.holders: dict[int, tuple[str, int]] = {}
        self.holder_rows: dict[str, int] = {}
        self.requests: OrderedDict[str, OrderedDict[int, tuple[int, bytes]]] = OrderedDict()
        self.request_bytes = 0
        self.watermarks: dict[str, bytes] = {}
        self.projections: dict[str, tuple[int, int]] = dict.fromkeys(STREAMS, (0, 0))
        self.tallies: dict[str, int] = {}
        self.errors: list[str] = [""]
        self.error_numbers: dict[str, int] = {"": 0}
        self.accepted: list[tuple[int, Instant]] = []

    def _opening(self, slot: int, number: int, at: int, wall: int, boot: str, elapsed: int) -> None:
        if number >= self.opening[0]:
            self.opening = (number, at, wall, boot, elapsed)
            self.closed = ""

    def _closing(self, slot: int, number: int, state: str) -> None:
        if number >= self.opening[0]:
            self.closed = state

    def _holder(self, slot: int, row: int, name: str, opening: int) -> None:
        before = self.holders.get(row)
        if before is not None and self.holder_rows.get(before[0]) == row:
            del self.holder_rows[before[0]]
        self.holders[row] = (name, opening)
        self.holder_rows[name] = row

    def keep_holders(self, rows: Collection[int]) -> None:
        """Drops the names of all workers but these."""
        self.holders = {row: told for row, told in self.holders.items() if row in rows}
        self.holder_rows = {name: row for row, (name, _) in self.holders.items()}

    def _request(self, slot: int, client: str, sequence: int, verb: int, answer: bytes) -> None:
        window = self.requests.get(client)
        if window is None:
            window = self.requests[client] = OrderedDict()
        self.requests.move_to_end(client)
        if sequence in window:
            self.request_bytes -= len(window[sequence][1])
        window[sequence] = (verb, answer)
        self.request_bytes += len(answer)
        while len(window) > REQUEST_IDS_PER_CLIENT_MAX:
            self._forget_request(window)
        while len(self.requests) > CLIENTS_MAX or self.request_bytes > REQUEST_BYTES_MAX:
            oldest = next(iter(self.requests))
            self._forget_request(self.requests[oldest])
            if not self.requests[oldest]:
                del self.requests[oldest]

    def _forget_request(self, window: OrderedDict[int, tuple[int, bytes]]) -> None:
        _, (_, answer) = window.popitem(last=False)
        self.request_bytes -= len(answer)

    def _watermark(self, slot: int, writer: str, value: bytes) -> None:
        self.watermarks[writer] = value

    def _projection(self, slot: int, stream: str, length: int, lsn: int) -> None:
        self.projections[stream] = (length, lsn)

    def _tally(self, slot: int, name: str, value: int) -> None:
        self.tallies[name] = value

    def _error(self, slot: int, number: int, text: str) -> None:
        if number == len(self.errors):
            self.errors.append(text)
        self.errors[number] = text
        self.error_numbers[text] = number

    def _accepted(self, slot: int, order: int, at: Instant) -> None:
        if self.accepted and order <= self.accepted[-1][0]:
            return  # the checkpoint has it
        self.accepted.append((order, at))
        if len(self.accepted) > ACCEPTED_DATES_MAX:
            del self.accepted[1::2]

    def wants_date(self, now: Instant) -> bool:
        """Whether the next accepted URL gets a date: the last one is a minute old, or, in an old frontier, as old as
        half of the distance between dates."""
        if not self.accepted:
            return True
        first, last = self.accepted[0][1], self.accepted[-1][1]
        return now - last >= max(instant(ACCEPTED_DATE_SECONDS), 2 * (last - first) // ACCEPTED_DATES_MAX)

    def accepted_at(self, order: int) -> Instant | None:
        """The last date up to the discovery of the URL with this order, None for a URL from before the first date."""
        place = bisect_right(self.accepted, order, key=itemgetter(0))
        return self.accepted[place - 1][1] if place else None

    def facts(self) -> list[tuple[Fact, list[Row]]]:
        """The facts that rebuild all of it."""
        own = OWN_SLOT
        requests = [
            (own, c, s, verb, answer) for c, window in self.requests.items() for s, (verb, answer) in window.items()
        ]
        return [
            (Fact.OPENING, [(own, *self.opening)]),
            (Fact.HOLDER, [(own, row, *told) for row, told in self.holders.items()]),
            (Fact.REQUEST, requests),
            (Fact.WATERMARK, [(own, writer, value) for writer, value in self.watermarks.items()]),
            (Fact.PROJECTION, [(own, stream, *place) for stream, place in self.projections.items()]),
            (Fact.TALLY, [(own, name, value) for name, value in self.tallies.items()]),
            (Fact.ERROR, [(own, number, text) for number, text in enumerate(self.errors) if number]),
            (Fact.ACCEPTED, [(own, *date) for date in self.accepted]),
            (Fact.CLOSING, [(own, self.opening[0], self.closed)] if self.closed else []),
        ]
