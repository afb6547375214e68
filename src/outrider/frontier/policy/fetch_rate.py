"""The rate of fetches over all hosts: at most so many in each minute, also after an idle night and after a restart.

Two bounds hold at once. A bucket of tokens fills at the rate and holds the tokens of `BURST_SECONDS`, so fetches follow
the rate closely. A window counts the fetches of the last minute, so that a burst after an idle time does not exceed the
rate of its minute. After a restart the fetches of the last minute are not known. So at the end of the last fetch, the
bucket was as far below zero as it may rise above: that is the most by which those fetches can have exceeded the rate.
"""

from __future__ import annotations

import math
from collections import deque

from outrider.clock import Instant
from outrider.limits import MICROSECONDS

WINDOW_SECONDS = 60
BURST_SECONDS = 1.0
_SLACK = 1e-9  # sums of tokens are rounded


class FetchRate:
    """The tokens of a rate: one for each fetch."""

    def __init__(self, rate: float, last: Instant) -> None:
        """rate: fetches a second, above 0. last: the end of the last fetch before this opening, 0 for none."""
        self._set(rate)
        self._tokens = -self._room if last else self._room
        self._at = last
        self._taken: deque[tuple[Instant, int]] = deque()  # fetches of the last minute, by their instants
        self._count = 0
        self.lost = 0.0
        """Tokens that nobody took in time: the rate was not used."""

    def __repr__(self) -> str:
        return f"<FetchRate {self.per_second:g} a second, {self._tokens:.1f} tokens>"

    def change(self, rate: float, now: Instant) -> None:
        """Sets another rate. The fetches of the last minute count for it, too."""
        self._advance(now)
        self._set(rate)

    def _set(self, rate: float) -> None:
        self.per_second = rate
        self._room = max(2.0, rate * BURST_SECONDS)
        self._most = math.ceil(rate * WINDOW_SECONDS - _SLACK) if rate * WINDOW_SECONDS >= 1 else 1

    def available(self, now: Instant) -> int:
        """Returns how many fetches may begin now."""
        self._advance(now)
        return max(0, min(int(self._tokens + _SLACK), self._most - self._count))

    def take(self, count: int, now: Instant) -> None:
        """Counts fetches that begin now."""
        if count:
            self._advance(now)
            self._tokens -= count
            self._taken.append((now, count))
            self._count += count

    def next_at(self, now: Instant) -> Instant:
        """Returns the first instant at which a fetch may begin."""
        self._advance(now)
        missing = 1.0 - self._tokens
        at = now if missing <= _SLACK else now + math.ceil(missing / self.per_second * MICROSECONDS)
        if self._count >= self._most:
            at = max(at, self._taken[0][0] + WINDOW_SECONDS * MICROSECONDS)
        return at

    def _advance(self, now: Instant) -> None:
        if now > self._at:
            self._at = self._at or now
            self._tokens += (now - self._at) / MICROSECONDS * self.per_second
            self._at = now
            if self._tokens > self._room:
                self.lost += self._tokens - self._room
                self._tokens = self._room
        ends = now - WINDOW_SECONDS * MICROSECONDS
        while self._taken and self._taken[0][0] <= ends:
            self._count -= self._taken.popleft()[1]
