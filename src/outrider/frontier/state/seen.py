"""The seen-set: which URLs were accepted in which crawl, and which contents were accepted at all. It is derived: no
fact speaks of it, and a recovery fills it from the ledger and the log."""

from __future__ import annotations

from collections.abc import Set
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from outrider import kernels
from outrider.frontier.format.card_columns import Cards
from outrider.frontier.format.constant import by_value
from outrider.frontier.stores.ledger import FINGERPRINT_MAX
from outrider.kernels.card_layout import HAS_CONTENT, Heads
from outrider.kernels.columns import NONE
from outrider.limits import SEEN_ROWS_NOTED_MAX

_FINGERPRINT: Final = np.uint64(FINGERPRINT_MAX)
_Column = npt.NDArray[Any]


class SeenSet:
    """of_crawls: the fingerprints of accepted URLs by row of the crawl; by_callers: the same of crawls by unique keys,
    each with the slot of its URL; contents: the hashes of accepted contents.

    A unique key is the same URL at any host, so a fingerprint alone is the key there. It finds the slot of the URL,
    which the key of the ledger needs. callers: the rows of such crawls; others may add to it.
    """

    def __init__(self, callers: Set[int] = frozenset()) -> None:
        self.of_crawls: dict[int, kernels.FingerprintSet] = {}
        self.by_callers: dict[int, kernels.Index] = {}
        self._callers = callers
        self.contents = kernels.FingerprintSet()
        self._noted: list[tuple[_Column, _Column, _Column]] | None = None  # additions that wait, in replay
        self._noted_rows = 0

    def add(self, heads: Heads) -> None:
        """Adds accepted URLs."""
        if self._noted is None:
            self._add(heads["crawl"], heads["slot"], heads["fingerprint"])
            return
        self._noted.append((heads["crawl"].copy(), heads["slot"].copy(), heads["fingerprint"].copy()))
        self._noted_rows += len(heads)
        if self._noted_rows >= SEEN_ROWS_NOTED_MAX:
            self.add_noted()
            self._noted = []

    def note_additions(self) -> None:
        """Collects additions from here on, to add many at once: the replay of a log never reads the set."""
        self._noted = []

    def add_noted(self) -> None:
        """Updates the set; later additions are made directly."""
        noted, self._noted, self._noted_rows = self._noted, None, 0
        if noted:
            self._add(*(np.concatenate(columns) for columns in zip(*noted, strict=True)))

    def _add(self, crawls: _Column, slots: _Column, fingerprints: _Column) -> None:
        for crawl, rows in by_value(crawls):
            if crawl in self._callers:
                index = self.by_callers.get(crawl)
                if index is None:
                    index = self.by_callers[crawl] = kernels.Index()
                index.add(_masked(fingerprints[rows]), np.ascontiguousarray(slots[rows], np.uint32))
                continue
            seen = self.of_crawls.get(crawl)
            if seen is None:
                seen = self.of_crawls[crawl] = kernels.FingerprintSet()
            seen.add(np.ascontiguousarray(slots[rows]), np.ascontiguousarray(fingerprints[rows]))

    def drop(self, crawl: int) -> None:
        """Forgets all URLs of a crawl."""
        if self._noted:
            self.add_noted()
            self._noted = []
        self.of_crawls.pop(crawl, None)
        self.by_callers.pop(crawl, None)

    def slots_of(self, crawl: int, fingerprints: Any) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.uint16]]:
        """Whether each of these URLs of a crawl by unique keys was accepted before, and its slot then."""
        index = self.by_callers.get(crawl)
        if index is None:
            return np.zeros(len(fingerprints), np.bool_), np.zeros(len(fingerprints), np.uint16)
        found = np.frombuffer(index.find(_masked(fingerprints)), np.uint32)
        known = found != NONE
        return known, np.where(known, found, 0).astype(np.uint16)

    def check(self, crawls: Any, slots: Any, fingerprints: Any) -> npt.NDArray[np.bool_]:
        """Whether each of these URLs was accepted before; in crawls by unique keys in any slot."""
        known = np.zeros(len(fingerprints), np.bool_)
        for crawl, rows in by_value(crawls):
            if crawl in self._callers:
                known[rows] = self.slots_of(crawl, fingerprints[rows])[0]
                continue
            seen = self.of_crawls.get(crawl)
            if seen is not None:
                found = seen.check(np.ascontiguousarray(slots[rows]), np.ascontiguousarray(fingerprints[rows]))
                known[rows] = np.frombuffer(found, np.bool_)
        return known

    def statistics(self) -> dict[str, int]:
        """Returns the number of keys of all crawls, and the bytes of memory for them."""
        sets = [found.statistics() for found in self.of_crawls.values()]
        indexes = [found.statistics() for found in self.by_callers.values()]
        return {
            "keys": sum(one["keys"] for one in sets) + sum(one["entries"] for one in indexes),
            "bytes": sum(one["bytes"] for one in (*sets, *indexes)),
        }

    def add_contents(self, cards: Cards) -> None:
        """Notes the contents of the cards that have any: the first 8 bytes of `extra`."""
        rows = (cards.heads["flags"] & HAS_CONTENT).nonzero()[0]
        if not len(rows):
            return
        starts = (cards.offsets[1:] - cards.heads["extra_bytes"])[rows]
        octets = kernels.gather_spans(cards.arena, starts, starts + 8)
        hashes = np.frombuffer(octets, np.uint64)
        self.contents.add(_slots_of(hashes), hashes)

    def has_contents(self, hashes: npt.NDArray[np.uint64]) -> list[bool]:
        """Whether content with each of these hashes was accepted for any URL."""
        return [bool(found) for found in self.contents.check(_slots_of(hashes), hashes)]


def _masked(fingerprints: Any) -> npt.NDArray[np.uint64]:
    """The part of each fingerprint that the ledger keeps apart."""
    masked: npt.NDArray[np.uint64] = np.asarray(fingerprints, np.uint64) & _FINGERPRINT
    return masked


def _slots_of(hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint16]:
    return (hashes >> np.uint64(52)).astype(np.uint16)
