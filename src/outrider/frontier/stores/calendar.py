"""Cards that wait for an instant: a wheel of buckets, near ones narrow and far ones wide, with their tails on disk.

A bucket is a queue of a `TailedBacklog`. The narrowest are 2^20 µs (one second) wide, and each of eight levels has
buckets 64 times as wide as those of the previous level, so that every instant has its place in 512 buckets (G. Varghese
and A. Lauck, "Hashed and hierarchical timing wheels", SOSP 1987). When a bucket begins, calls move its cards bit by
bit: from a wide bucket into narrower ones, from a narrow one into the queue of coming cards, which is in order.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from outrider.frontier.format.card_columns import Cards
from outrider.frontier.stores.moved_cards import MovedWaiting
from outrider.frontier.stores.tailed_backlog import TailedBacklog
from outrider.kernels.card_layout import ORDERED_LIFO
from outrider.limits import (
    CALENDAR_COMING_CARDS_MAX,
    CALENDAR_MOVE_BUCKETS,
    CALENDAR_MOVE_CARDS,
    CALENDAR_MOVED_CARDS_MAX,
    CALENDAR_PURGE_CARDS,
)
from outrider.storage.files import Files

_NARROWEST_BITS = 20
_LEVEL_BITS = 6
_BUCKETS = 1 << _LEVEL_BITS  # buckets of one level
_LEVELS = 8  # the widest buckets have 2^62 µs
_CLASS_SHIFT = 58
_CLASS_MAX = ORDERED_LIFO
_ORDER_MAX = (1 << _CLASS_SHIFT) - 1
_LOOK_CARDS = 64  # the first step reads this number of cards to see which are due
_LEVEL_WHOLE = -1  # a bucket of this level (a minute) or a narrower one is moved whole if it can be


class Calendar:
    """Cards by their `due` (microseconds). One thread at a time.

    Cards due at one instant are ordered by class, the highest first, then by order. `now` is an argument and may be
    earlier than before.
    """

    def __init__(self, files: Files | None, *, name: str, now: int = 0) -> None:
        """`now`: about the instant of the first `due`. Files and errors are those of `TailedBacklog`."""
        self._waiting = TailedBacklog(files, name=name)
        self._coming = TailedBacklog(files, name=f"{name}-coming", head_cards_max=CALENDAR_COMING_CARDS_MAX)
        """One queue contains, in order, all cards that are due before the horizon."""
        self._coming_row = 0
        """Its row. A purge moves its cards to the other row, 0 or 1."""
        self._horizon = max(0, now)
        self._begins: list[tuple[int, int, int]] = []
        """A heap of (begin, -level, row) of buckets that may have cards: a wide bucket before the narrow ones in it."""
        self._filled: set[int] = set()
        self._least: dict[int, int] = {}
        """The earliest due of each bucket with cards, or an earlier instant after `forget`."""
        self._moved = MovedWaiting()
        self._side = 0
        """The first row of the buckets. A purge moves the cards of all buckets to rows of the other side."""

    def __repr__(self) -> str:
        return f"<Calendar {len(self)} cards in {len(self._filled)} buckets>"

    def __len__(self) -> int:
        """How many cards wait."""
        return len(self._waiting) + len(self._coming) - len(self._moved)

    def put(self, cards: Cards, at: npt.NDArray[np.int64] | None = None) -> None:
        """Adds cards. at: the instants for which they wait, if not for their due; `due` returns the cards with these.
        Raises ValueError when a class exceeds 17 or an order 2^58 - 1; nothing is added then."""
        if not len(cards):
            return
        heads = cards.heads.copy()
        if at is not None:
            heads["due"] = at
        orders, classes = heads["order"], heads["klass"]
        if classes.max() > _CLASS_MAX or orders.max() > _ORDER_MAX:
            raise ValueError(f"a class of {classes.max()} or an order of {orders.max()} finds no place in a calendar")
        self._moved.put(cards.with_heads(heads))
        # The backlog sorts by class first; here due is first, so the class moves to the place of order.
        heads["order"] = (np.uint64(_CLASS_MAX) - classes) << np.uint64(_CLASS_SHIFT) | orders
        heads["klass"] = 0
        self._place(cards.with_heads(heads))

    def _place(self, cards: Cards) -> None:
        dues = cards.heads["due"]
        late = dues < self._horizon
        if late.any():
            coming = cards.filter(late)
            self._come(coming)
            if late.all():
                return
            cards = cards.filter(~late)
            dues = cards.heads["due"]
        levels = np.zeros(len(dues), np.int64)
        for level in range(1, _LEVELS):
            bits = _NARROWEST_BITS + _LEVEL_BITS * (level - 1)
            levels[(dues >> bits) - (self._horizon >> bits) >= _BUCKETS] = level
        shifts = _NARROWEST_BITS + _LEVEL_BITS * levels
        numbers = dues >> shifts
        rows = self._side + levels * _BUCKETS + numbers % _BUCKETS
        distinct, firsts = np.unique(rows, return_index=True)
        for row, first in zip(distinct.tolist(), firsts.tolist(), strict=True):
            if row not in self._filled:
                self._filled.add(row)
                begin = int(numbers[first]) << int(shifts[first])
                heapq.heappush(self._begins, (begin, -int(levels[first]), row))
            least = int(dues[first] if len(distinct) == len(rows) else dues[rows == row].min())
            self._least[row] = min(least, self._least.get(row, least))
        self._waiting.put(rows.astype(np.uint32), cards)

    def due(self, now: int, most: int) -> Cards:
        """Removes and returns up to `most` cards that are due at `now`, the earliest first. While buckets are being
        moved it may return fewer: if `next()` is not after `now`, call it again. Raises DamagedStoreError."""
        parts: list[Cards] = []
        wanted, movable, moves = most, CALENDAR_MOVE_CARDS, 0
        while wanted > 0:
            bucket = self._earliest()
            until = now if bucket is None else min(now, bucket[0] - 1)
            taken = self._take_coming(until, wanted)
            if len(taken):
                parts.append(self._living(taken, leaving=True))
                wanted -= len(parts[-1])
            elif bucket is None or bucket[0] > now:
                self._horizon = max(self._horizon, now)
                break
            elif movable <= 0 or moves >= CALENDAR_MOVE_BUCKETS:
                break
            else:
                movable -= self._move(bucket, movable)
                moves += 1
        return _as_put(Cards.concatenate(parts))

    def _earliest(self) -> tuple[int, int, int] | None:
        """The bucket with cards that begins first."""
        while self._begins:
            if self._count(self._begins[0][2]):
                return self._begins[0]
            row = heapq.heappop(self._begins)[2]
            self._filled.discard(row)
            self._least.pop(row, None)
        return None

    def _count(self, row: int) -> int:
        return int(self._waiting.waiting([row])[0])

    def _move(self, bucket: tuple[int, int, int], most: int) -> int:
        """Moves up to about `most` cards of a bucket that has begun to their next place. Returns how many."""
        begin, level, row = bucket
        self._horizon = max(self._horizon, begin)
        # The rest of a minute that one call can move becomes coming cards directly, without seconds.
        last = level >= _LEVEL_WHOLE and self._count(row) <= most
        unloaded = self._waiting.unload(row, most)
        cards = self._living(unloaded)
        if level == 0 or last:
            if last:
                self._horizon = max(self._horizon, begin + (1 << _NARROWEST_BITS - _LEVEL_BITS * level))
            self._come(cards)
        else:
            self._place(cards)
        return len(unloaded)

    def _take_coming(self, until: int, most: int) -> Cards:
        """Removes and returns up to `most` coming cards that are due at `until` or before, the earliest first."""
        parts: list[Cards] = []
        look = _LOOK_CARDS
        if not len(self._coming) or self._first_coming() > until:
            return Cards.none()
        while most > 0:
            look = min(most, look)
            cards = self._coming.drain(self._coming_row, look)
            count = int(np.searchsorted(cards.heads["due"], until, side="right"))
            if count:
                parts.append(cards.take(np.arange(count)))
            if count < len(cards):
                early = cards.take(np.arange(count, len(cards)))
                self._come(early)
            if count < look:
                break
            most -= count
            look *= 4
        return Cards.concatenate(parts)

    def _come(self, cards: Cards) -> None:
        self._coming.put(np.full(len(cards), self._coming_row, np.uint32), cards)

    def _first_coming(self) -> int:
        return int(self._coming.peek(self._coming_row, 1).heads["due"][0])

    def next(self) -> int | None:
        """The earliest due, None when no card waits; after `forget` perhaps an earlier instant. A call of `due` at that
        instant makes progress."""
        if not len(self):
            return None
        best = self._first_coming() if len(self._coming) else None
        bucket = self._earliest()
        if bucket is None or (best is not None and best < bucket[0]):
            return best
        for begin, _, row in sorted(self._begins):
            if best is not None and begin > best:
                break
            least = self._least.get(row)
            if least is not None:
                best = least if best is None else min(best, least)
        return best

    def forget(self, cards: Cards) -> None:
        """Removes these cards, each of which waits here, at a cost that does not depend on the number of cards. Their
        copies stay until they are met: when they are due, or when there are too many of them. Raises
        DamagedStoreError."""
        self._moved.note(cards)
        if len(self._moved) >= CALENDAR_MOVED_CARDS_MAX:
            self._purge()

    def _purge(self) -> None:
        """Writes all cards anew, without old copies."""
        coming = self._coming_row
        self._coming_row = 1 - coming
        while len(cards := self._coming.unload(coming, CALENDAR_PURGE_CARDS)):
            self._come(self._living(cards))
        other = _LEVELS * _BUCKETS - self._side
        for *_, row in self._begins:
            to = row - self._side + other
            while self._count(row):
                cards = self._living(self._waiting.unload(row, CALENDAR_PURGE_CARDS))
                self._waiting.put(np.full(len(cards), to, np.uint32), cards)
            if row in self._least:
                self._least[to] = self._least.pop(row)
        self._filled = {row - self._side + other for row in self._filled}
        self._begins = [(begin, level, row - self._side + other) for begin, level, row in self._begins]
        self._side = other

    def _living(self, cards: Cards, *, leaving: bool = False) -> Cards:
        """Returns those of these cards, as they are in buckets, that are no old copies."""
        if not len(self._moved):
            return cards
        return cards.filter(~self._moved.old(_as_put(cards), leaving=leaving))

    def unload(self, most: int) -> Iterator[Cards]:
        """Removes all cards, about `most` at once, in no order. Raises DamagedStoreError."""
        while len(cards := self._coming.unload(self._coming_row, most)):
            yield _as_put(self._living(cards, leaving=True))
        for *_, row in self._begins:
            while self._count(row):
                yield _as_put(self._living(self._waiting.unload(row, most), leaving=True))

    def close(self) -> None:
        """Forgets everything and removes the files."""
        self._waiting.close()
        self._coming.close()
        self._begins.clear()
        self._filled.clear()
        self._least.clear()
        self._moved = MovedWaiting()

    def statistics(self) -> dict[str, int]:
        """Returns the counts of `TailedBacklog` (cards, bytes, disk_bytes …), and buckets: the number with cards."""
        coming = self._coming.statistics()
        added = {key: number + coming[key] for key, number in self._waiting.statistics().items()}
        added["cards"] -= len(self._moved)
        return {**added, "buckets": len(self._filled)}


def _as_put(cards: Cards) -> Cards:
    """Cards with class and order as they were before `put`."""
    heads = cards.heads.copy()
    heads["klass"] = np.uint64(_CLASS_MAX) - (heads["order"] >> np.uint64(_CLASS_SHIFT))
    heads["order"] &= np.uint64(_ORDER_MAX)
    return cards.with_heads(heads)
