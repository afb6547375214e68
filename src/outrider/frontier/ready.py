"""Whose turn it is: a timetable of resting hosts, and one ring of ready hosts per class.

Plain Python: a heap for the timetable, deques for the rings; entries carry the host's stamp, and an entry with an
older stamp is skipped. Costs depend on what becomes due and what is drawn, never on how many hosts there are.
"""

from __future__ import annotations

import heapq
from collections import deque

from outrider.clock import Instant
from outrider.frontier.tables import Host
from outrider.limits import CLASSES, OLDEST_DRAW_EVERY

_MASK = (1 << 64) - 1


def mixed(seed: int, number: int) -> int:
    """64 well-mixed bits of (seed, number): SplitMix64 (Steele, Lea, Flood 2014)."""
    z = (seed + (number + 1) * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


class Timetable:
    """When each resting host may be visited again."""

    def __init__(self) -> None:
        self._heap: list[tuple[Instant, int, int, Host]] = []
        self._order = 0

    def rest(self, host: Host, until: Instant) -> None:
        """Book the host at `until`; an earlier booking lapses."""
        if host.booked_stamp == host.stamp and host.booked == until:
            return  # links that come in while a host rests must not fill the heap
        host.stamp += 1
        host.ring = -1
        host.booked, host.booked_stamp = until, host.stamp
        self._order += 1
        heapq.heappush(self._heap, (until, self._order, host.stamp, host))

    def take_due(self, now: Instant) -> list[Host]:
        """The hosts whose time has come, in order."""
        due: list[Host] = []
        while self._heap and self._heap[0][0] <= now:
            _, _, stamp, host = heapq.heappop(self._heap)
            if host.stamp == stamp:
                due.append(host)
        return due

    def next(self) -> Instant | None:
        """The earliest booking, None if there is none."""
        while self._heap:
            until, _, stamp, host = self._heap[0]
            if host.stamp == stamp:
                return until
            heapq.heappop(self._heap)
        return None

    def waiting(self) -> int:
        """How many hosts are booked (walks the heap: for statistics)."""
        return sum(1 for _, _, stamp, host in self._heap if host.stamp == stamp)

    def __repr__(self) -> str:
        return f"<Timetable {self.waiting()} waiting>"


class Ready:
    """Rings of ready hosts. P(class i) is proportional to 2^i over the classes that have somebody; every eighth draw
    takes whoever is ready longest, so with n ready hosts none waits more than 8 n draws."""

    def __init__(self, seed: int) -> None:
        self._rings: list[deque[tuple[int, Host]]] = [deque() for _ in range(CLASSES)]
        self._oldest: deque[tuple[int, Host]] = deque()
        self._seed = seed
        self._draws = 0
        self._filled = 0  # bit i: ring i may have somebody

    def offer(self, host: Host, klass: int, now: Instant) -> None:
        """The host may be visited now; its best URL has this class. A host that stands in a better ring stays there."""
        if host.ring >= klass:
            return
        if host.ring < 0:
            host.stamp += 1
            host.ready_at = now
            self._oldest.append((host.stamp, host))
        host.ring = klass
        self._rings[klass].append((host.stamp, host))
        self._filled |= 1 << klass

    def withdraw(self, host: Host) -> None:
        """Its turn is over: whatever entries it has lapse."""
        if host.ring >= 0:
            host.stamp += 1
            host.ring = -1

    def draw(self) -> Host | None:
        """The next host, taken out of its ring; None when nobody is ready."""
        self._draws += 1
        if self._draws % OLDEST_DRAW_EVERY == 0:
            host = self._first(self._oldest, None)
            if host is not None:
                return self._taken(host)
        while self._filled:
            # The weights 2^i of the filled rings add up to the set of their bits, read as a number.
            ticket = 1 + mixed(self._seed, self._draws) % self._filled
            klass = _class_at(self._filled, ticket)
            host = self._first(self._rings[klass], klass)
            if host is not None:
                return self._taken(host)
            self._filled &= ~(1 << klass)
        return None

    def _taken(self, host: Host) -> Host:
        host.stamp += 1
        host.ring = -1
        return host

    def _first(self, ring: deque[tuple[int, Host]], klass: int | None) -> Host | None:
        while ring:
            stamp, host = ring.popleft()
            if host.stamp == stamp and host.ring >= 0 and (klass is None or host.ring == klass):
                return host
        return None

    def anybody(self) -> bool:
        """Whether a draw would give a host."""
        for klass in range(CLASSES):
            ring = self._rings[klass]
            while ring and not (ring[0][1].stamp == ring[0][0] and ring[0][1].ring == klass):
                ring.popleft()
            if ring:
                return True
        return False

    def hosts(self) -> list[Host]:
        """Everybody who is ready, longest first (for drawing by crawl or key, and for statistics)."""
        return [host for stamp, host in self._oldest if host.stamp == stamp and host.ring >= 0]

    def __repr__(self) -> str:
        return f"<Ready {len(self.hosts())} hosts>"


def _class_at(filled: int, ticket: int) -> int:
    """The class whose share of the weights the ticket (1 … weight) falls into."""
    for klass in reversed(range(CLASSES)):
        weight = 1 << klass
        if filled & weight:
            if ticket <= weight:
                return klass
            ticket -= weight
    raise AssertionError((filled, ticket))
