"""The seen-set: which URLs were accepted in which crawl, and which contents were accepted at all. It is derived: no
fact speaks of it, and a recovery fills it from the ledger and the log.

Its keys are in memory until they use half of their share of it. Then the largest sets go to disk, and stay exact
(`outrider.frontier.stores.spilled_keys`).
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from itertools import count
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from outrider import kernels
from outrider.frontier.format.card_columns import Cards
from outrider.frontier.format.constant import by_value
from outrider.frontier.stores.ledger import FINGERPRINT_MAX
from outrider.frontier.stores.spilled_keys import SpilledKeys
from outrider.kernels.card_layout import HAS_CONTENT, Heads
from outrider.kernels.columns import NONE
from outrider.limits import SEEN_FRESH_KEYS_MIN, SEEN_ROWS_NOTED_MAX
from outrider.storage.files import Files
from outrider.storage.key_runs import remove_key_runs

_FINGERPRINT: Final = np.uint64(FINGERPRINT_MAX)
_Column = npt.NDArray[Any]
_Keys = kernels.FingerprintSet | SpilledKeys
_BYTES_MEASURED = 512
"""For each so many bytes of their memory one key may be added before it is measured again: that is 1 % of it."""
_ON_DISK = (
    *("disk_bytes", "runs", "filter_bits", "filter_bytes", "filter_keys", "filter_parts", "filter_denied"),
    *("filter_false", "looked_up", "rolled_over"),
)


class SeenSet:
    """of_crawls: the fingerprints of accepted URLs by row of the crawl; by_callers: the same of crawls by unique keys,
    each with the slot of its URL; contents: the hashes of accepted contents.

    A unique key is the same URL at any host, so a fingerprint alone is the key there. It finds the slot of the URL,
    which the key of the ledger needs. callers: the rows of such crawls; others may add to it. scratch: the files for
    keys on disk, None to keep all in memory; bytes_max: the limit for memory, None for none.
    """

    def __init__(
        self, callers: Set[int] = frozenset(), *, scratch: Files | None = None, bytes_max: int | None = None
    ) -> None:
        self.of_crawls: dict[int, _Keys] = {}
        self.by_callers: dict[int, kernels.Index] = {}
        self._callers = callers
        self.contents: _Keys = kernels.FingerprintSet()
        self._noted: list[tuple[_Column, _Column, _Column]] | None = None  # additions that wait, in replay
        self._noted_rows = 0
        self._scratch = scratch
        self._bytes_max = bytes_max
        self._numbers = count(1)  # of runs on disk
        self._unmeasured = 0  # keys that were added since the memory of all was measured
        if scratch is not None:
            remove_key_runs(scratch)

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
        self._measure(len(crawls))

    def put_keys(self, crawl: int | None, slots: _Column, fingerprints: _Column) -> None:
        """Adds keys as a kept schedule has them. crawl: None for keys of contents."""
        keys = self.contents if crawl is None else self.of_crawls.setdefault(crawl, kernels.FingerprintSet())
        keys.add(slots, fingerprints)
        self._measure(len(slots))

    def _measure(self, added: int) -> None:
        """Moves the largest sets to disk if all use more than half of their share: the other half is for what moving
        them needs."""
        if self._bytes_max is None or self._scratch is None:
            return
        self._unmeasured += added
        if self._unmeasured < self._bytes_max // _BYTES_MEASURED:
            return
        self._unmeasured = 0
        named: list[tuple[int | None, _Keys]] = [*self.of_crawls.items(), (None, self.contents)]
        sizes = {name: keys.statistics()["bytes"] for name, keys in named if not isinstance(keys, SpilledKeys)}
        on_disk = [keys for _, keys in named if isinstance(keys, SpilledKeys)]
        total = sum(sizes.values()) + sum(keys.statistics()["bytes"] for keys in on_disk)
        large = [(name, keys) for name, keys in named if name in sizes and len(keys) >= SEEN_FRESH_KEYS_MIN]
        for name, keys in sorted(large, key=lambda one: -sizes[one[0]]):
            if total <= self._bytes_max // 2 or isinstance(keys, SpilledKeys):
                break
            total -= sizes[name]
            moved = SpilledKeys(
                self._scratch, lambda: next(self._numbers), keys, bytes_max=self._bytes_max, repeats=name is None
            )
            on_disk.append(moved)
            if name is None:
                self.contents = moved
            else:
                self.of_crawls[name] = moved
        keys_on_disk = sum(map(len, on_disk))
        for keys in on_disk:
            keys.bytes_max = self._bytes_max * len(keys) // max(keys_on_disk, 1)

    def remove(self, heads: Heads) -> None:
        """Forgets these URLs, so that each of them is new again."""
        self._settle_noted()
        for crawl, rows in by_value(heads["crawl"]):
            if crawl in self._callers:
                self.by_callers[crawl].remove(_masked(heads["fingerprint"][rows]))
            else:
                slots, fingerprints = heads["slot"][rows], heads["fingerprint"][rows]
                self.of_crawls[crawl].remove(np.ascontiguousarray(slots), np.ascontiguousarray(fingerprints))

    def _settle_noted(self) -> None:
        """Makes the additions that wait, before something is removed."""
        if self._noted:
            self.add_noted()
            self._noted = []

    def drop(self, crawl: int) -> None:
        """Forgets all URLs of a crawl."""
        self._settle_noted()
        keys = self.of_crawls.pop(crawl, None)
        if isinstance(keys, SpilledKeys):
            keys.close()
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

    def statistics(self) -> dict[str, Any]:
        """Returns the number of keys of all crawls, and the bytes for them in memory and on disk. contents: the keys of
        contents; contents_bytes: their memory. filter_…: bits, bytes, keys and parts of the filters before the disk;
        how many new keys they denied and how many they did not (false), without parts that were replaced since;
        filter_false_rate: the share of these. looked_up: keys that were searched on disk; rolled_over: how often a
        part of a filter was replaced."""
        sets = [found.statistics() for found in self.of_crawls.values()]
        indexes = [found.statistics() for found in self.by_callers.values()]
        contents = self.contents.statistics()
        every = [*sets, contents]
        told = {
            "keys": sum(one["keys"] for one in sets) + sum(one["entries"] for one in indexes),
            "bytes": sum(one["bytes"] for one in (*sets, *indexes)),
            "contents": contents["keys"],
            "contents_bytes": contents["bytes"],
        }
        on_disk = {name: sum(one.get(name, 0) for one in every) for name in _ON_DISK}
        new = on_disk["filter_denied"] + on_disk["filter_false"]
        return told | on_disk | {"filter_false_rate": on_disk["filter_false"] / new if new else 0.0}

    def check_files(self) -> Iterator[str]:
        """Reads the runs on disk again: each damage in words, naming file and byte."""
        for keys in (*self.of_crawls.values(), self.contents):
            if isinstance(keys, SpilledKeys):
                yield from keys.check_files()

    @property
    def merges_wait(self) -> bool:
        """Whether runs on disk wait to be merged, because the disk has too little room."""
        every = (*self.of_crawls.values(), self.contents)
        return any(isinstance(keys, SpilledKeys) and keys.merges_wait for keys in every)

    def give_room(self) -> None:
        """Removes the files of unfinished merges: the disk is full."""
        for keys in (*self.of_crawls.values(), self.contents):
            if isinstance(keys, SpilledKeys):
                keys.give_room()

    def close(self) -> None:
        """Removes the files of keys on disk."""
        for keys in (*self.of_crawls.values(), self.contents):
            if isinstance(keys, SpilledKeys):
                keys.close()

    def add_contents(self, cards: Cards) -> None:
        """Notes the contents of the cards that have any."""
        hashes = contents_of(cards)
        if len(hashes):
            self.contents.add(_slots_of(hashes), hashes)
            self._measure(len(hashes))

    def has_contents(self, hashes: npt.NDArray[np.uint64]) -> list[bool]:
        """Whether content with each of these hashes was accepted for any URL."""
        return [bool(found) for found in self.contents.check(_slots_of(hashes), hashes)]


def contents_of(cards: Cards) -> npt.NDArray[np.uint64]:
    """The hashes of the contents of the cards that have any: the first 8 bytes of `extra`."""
    rows = (cards.heads["flags"] & HAS_CONTENT).nonzero()[0]
    if not len(rows):
        return np.zeros(0, np.uint64)
    starts = (cards.offsets[1:] - cards.heads["extra_bytes"])[rows]
    return np.frombuffer(kernels.gather_spans(cards.arena, starts, starts + 8), np.uint64)


def _masked(fingerprints: Any) -> npt.NDArray[np.uint64]:
    """The part of each fingerprint that the ledger keeps apart."""
    masked: npt.NDArray[np.uint64] = np.asarray(fingerprints, np.uint64) & _FINGERPRINT
    return masked


def _slots_of(hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint16]:
    return (hashes >> np.uint64(52)).astype(np.uint16)
