"""Hosts that answer with status 403: whether they close everything to a crawler, or only one folder.

A single closed folder proves little, because any site may link into it. Consecutive 403s, without a healthy answer in
between, are counted by shape of path. A host whose 403s all have one shape is not judged while URLs of other
shapes wait there or had content. These are requested first. All counts are in memory alone. A restart begins to count
anew, so a host may be parked later, but never wrongly.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from outrider.frontier.format.card_columns import Cards
from outrider.frontier.policy.block_detection import BlockSignal
from outrider.frontier.policy.returns import HALVED_BELOW, shape_of
from outrider.frontier.state.hosts import Rows
from outrider.frontier.state.tables import Tables
from outrider.limits import UNWELCOME_POINTS_MAX, UNWELCOME_RUNS_MAX, WALL_LOOKS_MAX
from outrider.url import host_of

_MIXED = ""
"""Instead of a shape: 403s of several shapes."""


class Forbidden:
    """The 403s in a row of hosts."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._rows: dict[str, tuple[str, int]] = {}  # by name of the host: the shape of its 403s, and their number
        self._closed: dict[str, str] = {}  # the shape whose URLs are fetched last

    def hear(self, hosts: Rows, cards: Cards, signals: npt.NDArray[np.uint8]) -> None:
        """Counts the signs of requests, and makes signs neutral that would judge a host by one shape alone."""
        tables = self._tables
        if self._rows:
            for row in np.flatnonzero(signals == BlockSignal.HEALTHY).tolist():
                self._rows.pop(tables.hosts.name(int(hosts[row])), None)
        for row in np.flatnonzero(signals == BlockSignal.WALL).tolist():
            url, host = cards.url(row), int(hosts[row])
            if not url:
                continue  # an errand
            name, shape = tables.hosts.name(host), shape_of(url[url.index("/", 8) :])
            known, count = self._rows.get(name, (shape, 0))
            if name not in self._rows and len(self._rows) >= UNWELCOME_RUNS_MAX:
                del self._rows[next(iter(self._rows))]
            self._rows[name] = (shape if shape == known else _MIXED, count + 1)
            if shape != known or count + 1 < UNWELCOME_POINTS_MAX:
                continue
            if self._brought_others(url, shape) or self._has_others(host, shape):
                signals[row] = BlockSignal.NEUTRAL
                self._closed[name] = shape
                if len(self._closed) > UNWELCOME_RUNS_MAX:
                    del self._closed[next(iter(self._closed))]

    def is_closed(self, url: str) -> bool:
        """Whether a URL is fetched after the other URLs of its host, because its shape was answered with 403."""
        return bool(self._closed) and self._closed.get(host_of(url)) == shape_of(url[url.index("/", 8) :])

    def _brought_others(self, url: str, shape: str) -> bool:
        """Whether the host has content under other shapes."""
        authority, tables = url.partition("://")[2].partition("/")[0], self._tables
        own, there = (tables.returns.get(tables.hash_of(f"{authority}\n{text}")) for text in (shape, ""))
        return there.fetched - own.fetched >= UNWELCOME_POINTS_MAX and there.share >= HALVED_BELOW

    def _has_others(self, host: int, shape: str) -> bool:
        """Whether URLs of other shapes are among the next ones of a host."""
        tables = self._tables
        queues = np.repeat(np.array(list(tables.queues_of(host)), np.uint32), WALL_LOOKS_MAX)
        found, cards = tables.urls.backlog.take(queues)
        tables.urls.backlog.put(queues[found], cards)
        return any(shape_of(url[url.index("/", 8) :]) != shape for url in cards.urls())
