"""Long reports in pieces: the bytes of outcomes and their links in a frame, and the answer that is complete up to now.

An outcome and its links are one frame. If they are longer than a frame should be, the links are logged first, in frames
of their own, and the outcome is last. After a crash in between its lease is still open, and when the page is fetched
again its links are known. A call of many outcomes becomes several frames of whole outcomes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial

import msgspec
import numpy as np
import numpy.typing as npt

from outrider.frontier.verbs.arrivals import LINK_BYTES, SIGNALLED_BYTES
from outrider.frontier.verbs.outcome_columns import OutcomeColumns
from outrider.journey import Link, Settled
from outrider.limits import METADATA_BYTES_MAX, URL_BYTES_MAX
from outrider.url import UrlBatch

Links = Sequence[str | Link] | UrlBatch
ByRow = Mapping[int, Links]

_OUTCOME_BYTES = 160
"""About how many bytes of a frame an outcome needs in addition to its texts: a head and the host's clock."""
_CARD_BYTES_MAX = 2 * URL_BYTES_MAX + 2 * METADATA_BYTES_MAX


def costs_of(links: Links, page_bytes: int, *, measured: bool = False) -> npt.NDArray[np.int64]:
    """Returns about how many bytes of a frame each of these links needs. page_bytes: the length of the URL of their
    page, which each card contains. measured: metadata is measured, because it may be longer than in most crawls."""
    if isinstance(links, UrlBatch):
        return links.lengths + (LINK_BYTES + page_bytes)
    cost_of = partial(_cost_of, measured=measured)
    return np.fromiter(map(cost_of, links), np.int64, len(links)) + (LINK_BYTES + page_bytes)


def _cost_of(link: object, *, measured: bool = False) -> int:
    if not isinstance(link, Link):
        return len(link) if isinstance(link, str) else 0
    told = METADATA_BYTES_MAX if link.metadata else 0
    if measured and link.metadata:
        with suppress(Exception):  # it cannot be kept, and is refused where it is read
            told = len(msgspec.json.encode(link.metadata))
    told += SIGNALLED_BYTES if link.modified is not None or link.change_seconds is not None else 0
    told += len(link.unique_key) if isinstance(link.unique_key, bytes) else 0
    return told + sum(len(text) for text in (link.url, link.referrer, link.key) if isinstance(text, str))


class Costs:
    """The bytes of the outcomes of a call and their links, by row."""

    def __init__(self, outcomes: OutcomeColumns, *found: ByRow, measured: bool = False) -> None:
        self._outcomes = outcomes
        self._counts: dict[int, int] = {}
        self._links: dict[int, int] = {}
        for some in found:
            for row, links in some.items():
                if isinstance(links, UrlBatch):
                    size = int(links.offsets[-1] - links.offsets[0])
                else:
                    each = links if isinstance(links, Sequence) else links.strings()
                    size = sum(_cost_of(link, measured=measured) for link in each)
                self._links[row] = self._links.get(row, 0) + size
                self._counts[row] = self._counts.get(row, 0) + len(links)

    def fit(self, bytes_max: int, *, page: int = URL_BYTES_MAX, body: int = _CARD_BYTES_MAX) -> bool:
        """Whether all of it surely has at most `bytes_max` bytes. page: bytes of the longest URL of a page; body: bytes
        of the longest body of a card."""
        most = len(self._outcomes) * _OUTCOME_BYTES + self._outcomes.rewritten_most() * body
        most += self._outcomes.text_bytes() + sum(self._links.values())
        return most + sum(self._counts.values()) * (LINK_BYTES + page) <= bytes_max

    def by_row(self, pages: npt.NDArray[np.int64], bodies: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Returns the bytes of each outcome with its links. pages: the bytes of each lease's URL; bodies: the bytes of
        its whole card."""
        costs = self._outcomes.text_bytes_by_row() + _OUTCOME_BYTES
        rewritten = self._outcomes.rewritten()
        costs[rewritten] += bodies[rewritten]
        for row, count in self._counts.items():
            costs[row] += self._links[row] + count * (LINK_BYTES + int(pages[row]))
        return costs


class ReportProgress:
    """The answer of `report` up to now: a code per outcome, and the numbers of its links' codes by row; perhaps also
    codes of some links of the next row."""

    __slots__ = ("codes", "settled")

    def __init__(self, settled: Iterable[Settled] = (), codes: Mapping[int, bytes] | None = None) -> None:
        self.settled = list(settled)
        self.codes = dict(codes or {})

    @classmethod
    def unpacked(cls, octets: bytes) -> ReportProgress:
        """Returns an answer from the bytes of `packed`."""
        flags, codes = msgspec.msgpack.decode(octets)
        return cls(
            (Settled.OK if ok else Settled.STALE for ok in flags),
            {row: numbers for row, numbers in enumerate(codes) if numbers},
        )

    def packed(self) -> bytes:
        """Returns the answer as bytes, stored in a frame for a call that may be repeated."""
        rows = max([len(self.settled), *(row + 1 for row in self.codes)])
        flags = bytes(code is Settled.OK for code in self.settled)
        return msgspec.msgpack.encode([flags, [self.codes.get(row, b"") for row in range(rows)]])

    def add(self, settled: Iterable[Settled], codes: Mapping[int, bytes]) -> None:
        """Adds the next outcomes; codes: by their rows among these. A stale outcome has no codes of links."""
        first = len(self.settled)
        self.settled += settled
        for row, numbers in codes.items():
            self.codes[first + row] = self.codes.get(first + row, b"") + numbers
        if first in self.codes and self.settled[first : first + 1] == [Settled.STALE]:
            del self.codes[first]
