"""The errands that wait at one host, in the order in which they are leased.

An errand that precedes all pages is first, then the best class, then the oldest of that class. Thousands may wait in
one line, because the robots.txt files of any number of authorities may redirect to one host. To find, add or remove an
errand costs by the logarithm of the length, and by the number of errands in front of it that operators forbid.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import TypeAlias

from outrider.clock import Instant
from outrider.frontier.state.errand import Errand

Allowed: TypeAlias = Callable[[Errand], Instant | None]
"""The first instant at which operators allow an errand; None while they forbid it."""
_Entry: TypeAlias = tuple[int, int, Errand]  # the negative class, the place in the line, the errand
_LAPSED_MIN = 64  # this number of lapsed entries is always allowed


class ErrandQueue:
    """The line of one host."""

    __slots__ = ("_entries", "_later", "_number", "_ready")

    def __init__(self) -> None:
        self._entries: dict[Errand, _Entry] = {}
        # Heaps; an entry that is not the one in `_entries` has lapsed.
        self._ready: tuple[list[_Entry], list[_Entry]] = ([], [])  # those that precede all pages, and the rest
        self._later: list[tuple[Instant, int, Errand]] = []  # by the instant before which they are not leased
        self._number = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Errand]:
        return iter(self._entries)

    def add(self, errand: Errand) -> None:
        """Adds an errand after those of the same class."""
        self._number += 1
        self._enter(errand, self._number)
        self._drop_lapsed()

    def remove(self, errand: Errand) -> None:
        """Removes an errand."""
        del self._entries[errand]
        self._drop_lapsed()

    def set_class(self, errand: Errand, klass: int) -> None:
        """Changes the class of an errand in the line; its age stays the same."""
        errand.klass = klass
        self._enter(errand, self._entries[errand][1])
        self._drop_lapsed()

    def begins(self) -> Instant:
        """An instant before which no errand is leased."""
        return 0 if any(self._ready) or not self._later else self._later[0][0]

    def _drop_lapsed(self) -> None:
        heaps = (*self._ready, self._later)
        if sum(map(len, heaps)) > 2 * len(self._entries) + _LAPSED_MIN:
            for heap in heaps:
                heap.clear()
            for errand, (_, number, _) in self._entries.items():
                self._enter(errand, number)

    def _enter(self, errand: Errand, number: int) -> None:
        self._entries[errand] = entry = (-errand.klass, number, errand)
        if errand.next_at:
            heapq.heappush(self._later, (errand.next_at, number, errand))
        else:
            heapq.heappush(self._ready[not errand.goes_first], entry)

    def first(self, now: Instant, allowed: Allowed) -> Errand | None:
        """Returns the errand that is leased next, or None if none may be leased now."""
        self._come(now)
        found = (self._best(heap, now, allowed)[0] for heap in self._ready)
        return next((errand for errand in found if errand is not None), None)

    def look(self, now: Instant, allowed: Allowed) -> tuple[int, Instant | None]:
        """Returns the best class among the errands that may be leased now (-1 if there is no such errand), and the
        first known instant at which another one may be leased (None if there is no such instant)."""
        self._come(now)
        best = [self._best(heap, now, allowed) for heap in self._ready]
        klass = max(-1 if errand is None else errand.klass for errand, _ in best)
        times = [at for _, at in best if at is not None]
        return klass, self._next(min(times, default=None), allowed)

    def _come(self, now: Instant) -> None:
        """Makes errands ready whose instant has been reached."""
        while self._later and self._later[0][0] <= now:
            _, number, errand = heapq.heappop(self._later)
            entry = self._entries.get(errand)
            if entry is not None and entry[1] == number:
                heapq.heappush(self._ready[not errand.goes_first], entry)

    def _best(self, heap: list[_Entry], now: Instant, allowed: Allowed) -> tuple[Errand | None, Instant | None]:
        """Returns the first errand of a heap that may be leased now, and the first instant at which one of the errands
        before it may be leased."""
        found: Errand | None = None
        soonest: Instant | None = None
        forbidden: list[_Entry] = []
        while heap and found is None:
            entry = heap[0]
            if self._entries.get(entry[2]) is not entry:
                heapq.heappop(heap)
                continue
            at = None if entry[2].token else allowed(entry[2])
            if at is not None and at <= now:
                found = entry[2]
                break
            forbidden.append(heapq.heappop(heap))
            if at is not None:
                soonest = at if soonest is None else min(soonest, at)
        for entry in forbidden:
            heapq.heappush(heap, entry)
        return found, soonest

    def _next(self, soonest: Instant | None, allowed: Allowed) -> Instant | None:
        """The first instant at which an errand may be leased that waits for its own; or `soonest`, if that is
        earlier."""
        seen: list[tuple[Instant, int, Errand]] = []
        while self._later and (soonest is None or self._later[0][0] < soonest):
            one = heapq.heappop(self._later)
            at, number, errand = one
            entry = self._entries.get(errand)
            if entry is None or entry[1] != number:
                continue
            seen.append(one)
            free = None if errand.token else allowed(errand)
            if free is not None:
                at = max(at, free)
                soonest = at if soonest is None else min(soonest, at)
        for one in seen:
            heapq.heappush(self._later, one)
        return soonest
