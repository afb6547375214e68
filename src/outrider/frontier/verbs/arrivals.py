"""Arriving links in columns: one row per link from a caller, a page or another log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from outrider.clock import Instant
from outrider.frontier.format.constant import constant_column, is_constant
from outrider.kernels.card_layout import HEAD_BYTES
from outrider.url import UrlBatch

NO_DUE = -1
NO_DATE, UNREADABLE = -1, -2
"""In place of the instant of a change: none, and one that could not be read."""
_TOLD = ("outcome", "depth", "priority")
"""The columns that are read when links arrive. The priority function gets all other columns."""


LINK_BYTES = 2 * HEAD_BYTES
"""About how many bytes of a frame a new link needs in addition to its texts: head, queue, host."""


SIGNALLED_BYTES = 1_024
"""The same for a link that says when its page changed: the record of a known page is written again."""


class Origin(NamedTuple):
    """Where links were found. source: the slot of the page, or -1; page: True for links of a page of this crawl,
    False for links of a caller. lists: it is a sitemap, which may name pages of several hosts."""

    referrer: str = ""
    depth: int = 0
    crawl: int = 0
    source: int = -1
    priority: float = 0.5
    page: bool = False
    lists: bool = False


@dataclass(frozen=True, slots=True)
class Arrival:
    """One link with all fields that a caller can set. priority: None if it is not set; due: None for at once; modified:
    the instant of a change, NO_DATE or UNREADABLE; change_seconds: 0 if it is not set."""

    url: str
    origin: int
    depth: int = 0
    hops: int = 0
    priority: float | None = None
    due: Instant | None = None
    crawl: int = 0
    key: str | None = None
    referrer: str | None = None
    metadata: bytes = b""
    seed: bool = False
    unique_key: bytes = b""
    modified: Instant = NO_DATE
    change_seconds: float = 0.0
    text: str = ""
    """Of a crawl by unique keys: the URL byte for byte, if that differs from its canonical spelling."""

    @property
    def is_odd(self) -> bool:
        """Whether it has a key, a referrer, metadata or other values of its own for its record."""
        return self.says_changes or bool(
            self.key is not None or self.metadata or self.referrer is not None or self.unique_key or self.text
        )

    @property
    def says_changes(self) -> bool:
        """Whether it says when or how often its page changes."""
        return self.modified != NO_DATE or self.change_seconds > 0

    def of_origin(self, origin: int) -> Arrival:
        """Returns the same link, found at another origin."""
        return replace(self, origin=origin)


@dataclass(frozen=True, slots=True)
class KeyedUrls:
    """URLs of one crawl by unique keys in columns. urls: their texts; keys: those of their queues, "" for that of the
    host; metadata: JSON objects, b"" without any."""

    urls: Sequence[str]
    keys: Sequence[str]
    metadata: Sequence[bytes]

    def __len__(self) -> int:
        return len(self.urls)


@dataclass(frozen=True, slots=True, eq=False)
class Arrivals:
    """Links in columns. depth, hops, crawl: whole numbers; due: instants, NO_DUE for at once; priority: NaN if it is
    not set; origin: the place in `origins`; odd: the links with a key, a referrer or metadata of their own, by row;
    signals: further columns, for functions of priority; identities: the fingerprints by which these URLs are known,
    None for those of their canonical texts."""

    urls: UrlBatch
    origins: Sequence[Origin]
    origin: npt.NDArray[np.intp]
    depth: npt.NDArray[np.int64]
    hops: npt.NDArray[np.uint8]
    due: npt.NDArray[np.int64]
    priority: npt.NDArray[np.float64]
    crawl: npt.NDArray[np.uint32]
    seed: npt.NDArray[np.bool_]
    odd: dict[int, Arrival]
    signals: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    identities: npt.NDArray[np.uint64] | None = None

    def __len__(self) -> int:
        return len(self.urls)

    def fingerprints(self, key: bytes) -> npt.NDArray[np.uint64]:
        """Returns the fingerprint by which each URL is known in its crawl, under a key."""
        return self.urls.fingerprints(key) if self.identities is None else self.identities

    @classmethod
    def of_columns(
        cls, urls: UrlBatch, origin: npt.NDArray[np.intp], origins: Sequence[Origin], depth: Any, priority: Any
    ) -> Arrivals:
        """Returns links that have only depth, priority and further columns."""
        rows = len(urls)
        crawls = {one.crawl for one in origins}
        pages = {one.page for one in origins}
        if pages == {True}:
            seed = constant_column(False, rows, "?")
        elif pages == {False}:
            seed = constant_column(depth[0] == 0, rows, "?") if is_constant(depth) else depth == 0
        else:
            seed = ~np.array([one.page for one in origins], np.bool_)[origin] & (depth == 0)
        return cls(
            urls.without_columns(),
            origins,
            origin,
            depth,
            constant_column(0, rows, "u1"),
            constant_column(NO_DUE, rows, "i8"),
            priority,
            constant_column(crawls.pop(), rows, "u4")
            if len(crawls) == 1
            else np.array([one.crawl for one in origins], np.uint32)[origin],
            seed,
            {},
            {name: column for name, column in urls.columns.items() if name not in _TOLD},
        )

    @classmethod
    def of_batches(
        cls, batches: Sequence[UrlBatch], places: Sequence[int], origins: Sequence[Origin], depth: Any, priority: Any
    ) -> Arrivals:
        """Returns the links of several origins in order; each origin has its links in one batch."""
        columns = [urls.columns for urls in batches]
        if all(told.keys() == columns[0].keys() for told in columns):
            together = UrlBatch.concatenate(batches)
        else:
            together = UrlBatch.concatenate([urls.without_columns() for urls in batches])
        joined = cls.of_columns(
            together.without_columns(),
            np.repeat(np.array(places, np.intp), list(map(len, batches))),
            origins,
            depth,
            priority,
        )
        names = dict.fromkeys(name for told in columns for name in told if name not in _TOLD)
        if not names:
            return joined
        return replace(joined, signals={name: _joined([told.get(name) for told in columns], batches) for name in names})

    @classmethod
    def of_links(
        cls, links: Sequence[Arrival], origins: Sequence[Origin], spelled: Callable[[Iterable[str]], UrlBatch]
    ) -> Arrivals:
        """Returns links that arrived as single links."""
        return cls(
            spelled([link.url for link in links]),
            origins,
            np.array([link.origin for link in links], np.intp),
            np.array([link.depth for link in links], np.int64),
            np.array([min(link.hops, 255) for link in links], np.uint8),
            np.array([NO_DUE if link.due is None else link.due for link in links], np.int64),
            np.array([np.nan if link.priority is None else link.priority for link in links], np.float64),
            np.array([link.crawl for link in links], np.uint32),
            np.array([link.seed for link in links], np.bool_),
            {row: link for row, link in enumerate(links) if link.is_odd},
        )

    def pieces(self, bytes_max: int) -> list[tuple[int, int]]:
        """Returns first and last row of each piece. The cards of a piece need about `bytes_max` bytes, or the piece is
        a single row."""
        rows = len(self)
        longest = max((len(one.referrer) for one in self.origins), default=0)
        if not self.odd and len(self.urls.arena) + rows * (LINK_BYTES + longest) <= bytes_max:
            return [(0, rows)]
        referrers = np.array([len(one.referrer) for one in self.origins], np.int64)
        costs = self.urls.lengths + LINK_BYTES + referrers[self.origin]
        for row, link in self.odd.items():
            costs[row] += len(link.referrer or "") + len(link.metadata) + len(link.key or "")
            costs[row] += len(link.unique_key) + len(link.text) + (SIGNALLED_BYTES if link.says_changes else 0)
        return pieces_of(costs, bytes_max)

    def piece(self, first: int, last: int) -> Arrivals:
        """Returns the rows from `first` on, before `last`."""
        if last - first == len(self):
            return self
        some = slice(first, last)
        return Arrivals(
            self.urls[some],
            self.origins,
            *(self.origin[some], self.depth[some], self.hops[some], self.due[some]),
            *(self.priority[some], self.crawl[some], self.seed[some]),
            {row - first: link for row, link in self.odd.items() if first <= row < last},
            {name: column[some] for name, column in self.signals.items()},
            None if self.identities is None else self.identities[some],
        )

    def in_crawls(self, rows: Mapping[int, int]) -> Arrivals:
        """Returns the same links after crawls got other rows, by their old rows. Other crawls keep their rows."""
        if all(old == new for old, new in rows.items()):
            return self
        crawls, places = np.unique(self.crawl, return_inverse=True)
        now = np.array([rows.get(row, row) for row in crawls.tolist()], np.uint32)
        return replace(self, crawl=constant_column(now[0], len(self), "u4") if len(now) == 1 else now[places])

    @classmethod
    def concatenate(cls, parts: Sequence[Arrivals], key: bytes) -> Arrivals:
        """Returns the rows of several parts; the parts share their origins. key: of fingerprints."""
        if len(parts) == 1:
            return parts[0]
        odd: dict[int, Arrival] = {}
        start = 0
        for part in parts:
            odd |= {start + row: link for row, link in part.odd.items()}
            start += len(part)
        return cls(
            UrlBatch.concatenate([part.urls for part in parts]),
            parts[0].origins,
            np.concatenate([part.origin for part in parts]),
            np.concatenate([part.depth for part in parts]),
            np.concatenate([part.hops for part in parts]),
            np.concatenate([part.due for part in parts]),
            np.concatenate([part.priority for part in parts]),
            np.concatenate([part.crawl for part in parts]),
            np.concatenate([part.seed for part in parts]),
            odd,
            {
                name: _joined([part.signals.get(name) for part in parts], parts)
                for name in dict.fromkeys(name for part in parts for name in part.signals)
            },
            None
            if all(part.identities is None for part in parts)
            else np.concatenate([part.fingerprints(key) for part in parts]),
        )


def _joined(columns: Sequence[npt.NDArray[Any] | None], parts: Sequence[Sized]) -> npt.NDArray[Any]:
    """Returns a further column of several parts; NaN where a part lacks it."""
    return np.concatenate(
        [np.full(len(part), np.nan) if column is None else column for column, part in zip(columns, parts, strict=True)]
    )


def pieces_of(costs: npt.NDArray[np.int64], most: int) -> list[tuple[int, int]]:
    """Returns first and last row of each piece. The costs of a piece sum to at most `most`, or the piece is a single
    row. Without rows there is one empty piece."""
    ends = costs.cumsum()
    bounds = [0]
    while bounds[-1] < len(costs):
        first = bounds[-1]
        spent = int(ends[first - 1]) if first else 0
        bounds.append(max(first + 1, int(ends.searchsorted(spent + most, "right"))))
    return list(pairwise(bounds)) or [(0, 0)]
