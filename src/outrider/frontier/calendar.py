"""Cards that wait for an instant: a wheel of buckets, near ones narrow and far ones wide, whose tails lie on disk.

A bucket is a queue of a `Backlog`. The narrowest are 2^26 µs (67 s) wide, and each of seven levels has buckets 64 times
as wide as those of the level before, so that every instant has its place in 448 buckets (G. Varghese and A. Lauck,
"Hashed and hierarchical timing wheels", SOSP 1987). When a wide bucket's time comes, its cards are moved into narrower
ones, some with each call; within the narrowest the backlog's order gives the earliest first.
"""

from __future__ import annotations

import heapq

import numpy as np
import numpy.typing as npt

from outrider.frontier.backlog import Backlog
from outrider.frontier.cards import Cards
from outrider.limits import CALENDAR_MOVE_CARDS
from outrider.storage.files import Files

_NARROWEST_BITS = 26
_LEVEL_BITS = 6
_BUCKETS = 1 << _LEVEL_BITS  # of one level
_LEVELS = 7  # the widest buckets have 2^62 µs
_CLASS_SHIFT = 60
_ORDER_MAX = (1 << _CLASS_SHIFT) - 1
_LOOK_CARDS = 64  # of a bucket that has begun: how many are taken at first to see which are due


class Calendar:
    """Cards by their `due` (microseconds). One thread at a time.

    Cards due at one instant come by class, the highest first, then by order. `now` is an argument and may go back; what
    was due stays due.
    """

    def __init__(self, files: Files | None, *, name: str, now: int = 0) -> None:
        """`now`: about when the first `due` will be asked. Files as in `Backlog`, whose errors are raised here too."""
        self._backlog = Backlog(files, name=name)
        self._horizon = max(0, now)
        self._begins: list[tuple[int, int, int]] = []
        """A heap of (begin, -level, row) of buckets that may hold cards: a wide one before the narrow ones in it."""
        self._filled: set[int] = set()

    def __repr__(self) -> str:
        return f"<Calendar {len(self)} cards in {len(self._filled)} buckets>"

    def __len__(self) -> int:
        """How many cards wait."""
        return len(self._backlog)

    def put(self, cards: Cards) -> None:
        """Adds cards. Raises ValueError when a class exceeds 15 or an order 2^60 - 1; nothing is added then."""
        if not len(cards):
            return
        heads = cards.heads.copy()
        orders, classes = heads["order"], heads["klass"]
        if classes.max() > 15 or orders.max() > _ORDER_MAX:
            raise ValueError(f"a class of {classes.max()} or an order of {orders.max()} finds no place in a calendar")
        # The backlog sorts by class first; here due comes first, so the class goes where order is.
        heads["order"] = (np.uint64(15) - classes) << np.uint64(_CLASS_SHIFT) | orders
        heads["klass"] = 0
        self._place(cards.with_heads(heads))

    def _place(self, cards: Cards) -> None:
        dues = np.maximum(cards.heads["due"], self._horizon)
        levels = np.zeros(len(dues), np.int64)
        for level in range(1, _LEVELS):
            bits = _NARROWEST_BITS + _LEVEL_BITS * (level - 1)
            levels[(dues >> bits) - (self._horizon >> bits) >= _BUCKETS] = level
        shifts = _NARROWEST_BITS + _LEVEL_BITS * levels
        numbers = dues >> shifts
        rows = levels * _BUCKETS + numbers % _BUCKETS
        distinct, firsts = np.unique(rows, return_index=True)
        for row, first in zip(distinct.tolist(), firsts.tolist(), strict=True):
            if row not in self._filled:
                self._filled.add(row)
                begin = int(numbers[first]) << int(shifts[first])
                heapq.heappush(self._begins, (begin, -int(levels[first]), row))
        self._backlog.put(rows.astype(np.uint32), cards)

    def due(self, now: int, most: int) -> Cards:
        """Takes up to `most` cards that are due at `now`, the earliest first. Fewer may come although more are due,
        while a wide bucket is being moved: whenever `next()` is not after `now`, another call goes on. Raises
        DamagedStoreError."""
        parts: list[Cards] = []
        wanted, movable = most, CALENDAR_MOVE_CARDS
        while wanted > 0 and self._begins:
            begin, level, row = self._begins[0]
            if not int(self._backlog.waiting([row])[0]):
                heapq.heappop(self._begins)
                self._filled.discard(row)
                continue
            if begin > max(now, self._horizon):
                self._horizon = max(self._horizon, now)
                break
            self._horizon = max(self._horizon, begin)
            if level:
                if movable <= 0:
                    break
                cards = self._backlog.unload(row, movable)
                movable -= len(cards)
                self._place(cards)
                continue
            cards = self._take_due(row, now, wanted)
            if not len(cards):
                self._horizon = max(self._horizon, now)
                break
            parts.append(cards)
            wanted -= len(cards)
        if not self._begins:
            self._horizon = max(self._horizon, now)
        return self._as_put(Cards.concatenate(parts))

    def _take_due(self, row: int, now: int, most: int) -> Cards:
        """The earliest of one bucket that are due."""
        parts: list[Cards] = []
        look = _LOOK_CARDS
        if int(self._backlog.peek(row, 1).heads["due"][0]) > now:
            return Cards.none()
        while most > 0:
            cards = self._backlog.drain(row, min(most, look))
            count = int(np.searchsorted(cards.heads["due"], now, side="right"))
            if count:
                parts.append(cards.take(np.arange(count)))
            if count < len(cards):
                early = cards.take(np.arange(count, len(cards)))
                self._backlog.put(np.full(len(early), row, np.uint32), early)
            if count < min(most, look):
                break
            most -= count
            look *= 4
        return Cards.concatenate(parts)

    def next(self) -> int | None:
        """An instant not after the earliest due, None when nothing waits: exact when the earliest bucket is a narrow
        one, else that bucket's begin. A call of `due` then makes progress."""
        while self._begins:
            begin, level, row = self._begins[0]
            if int(self._backlog.waiting([row])[0]):
                return begin if level else int(self._backlog.peek(row, 1).heads["due"][0])
            heapq.heappop(self._begins)
            self._filled.discard(row)
        return None

    def remove(self, fingerprints: npt.ArrayLike) -> Cards:
        """Takes these URLs out, in the order of their buckets. Reads every chunk on disk until all were found: for rare
        use. Raises DamagedStoreError."""
        missing = np.ascontiguousarray(fingerprints, np.uint64)
        parts: list[Cards] = []
        for row in sorted(self._filled):
            if not len(missing):
                break
            found, cards = self._backlog.remove(np.full(len(missing), row, np.uint32), missing)
            parts.append(cards)
            missing = missing[~found]
        return self._as_put(Cards.concatenate(parts))

    def _as_put(self, cards: Cards) -> Cards:
        """Class and order where they belong."""
        heads = cards.heads.copy()
        heads["klass"] = np.uint64(15) - (heads["order"] >> np.uint64(_CLASS_SHIFT))
        heads["order"] &= np.uint64(_ORDER_MAX)
        return cards.with_heads(heads)

    def close(self) -> None:
        """Forgets everything and removes the files."""
        self._backlog.close()
        self._begins.clear()
        self._filled.clear()

    def statistics(self) -> dict[str, int]:
        """As the backlog's, and how many buckets hold cards."""
        return {**self._backlog.statistics(), "buckets": len(self._filled)}
