"""The rate of a whole crawl (`--rate`), divided into equal shares, one for each partition.

The owner of a partition has its share, and a node uses its shares together (`rate_loans.py` lends those of idle
nodes). After a change of the owner, a share is used a minute after the store was opened. So in each minute a share has
one user at most, whichever nodes join, leave, are killed or are paused, and all nodes together fetch at most what the
rate allows for a minute.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Final

from outrider.clock import Instant
from outrider.errors import SettingsError
from outrider.frontier.policy.fetch_rate import WINDOW_SECONDS, FetchRate
from outrider.limits import MICROSECONDS

SHARE_REST: Final = WINDOW_SECONDS * MICROSECONDS
"""How long the new owner of a partition leaves its share unused: its former owner may have used it until now."""
_SLACK: Final = 1e-9  # a rate of 0.1 is not exact


class RateShares:
    """The shares of one node. Each call says how many it has at this moment."""

    def __init__(self, rate: float, partitions: int, now: Callable[[], Instant]) -> None:
        """rate: fetches a second of all nodes. now: a clock that also counts while the machine sleeps. Raises
        SettingsError for a rate that is too small to be divided."""
        if rate * WINDOW_SECONDS + _SLACK < partitions:
            least = math.ceil(partitions / WINDOW_SECONDS * 100) / 100
            raise SettingsError(
                f"rate is {rate:g}, which is less than one fetch a minute for each of the {partitions} partitions; "
                f"use --rate {least:g} or more, or a cluster with fewer partitions"
            )
        self._of_share, self._now = rate * WINDOW_SECONDS / partitions, now
        self._fetches: FetchRate | None = None  # from the first share on
        self.used_at: Instant = now()
        """When this node last had a lease."""
        self.short_at: Instant | None = None
        """When it last wanted more leases than its shares allowed; None: never."""
        self.turn = threading.Lock()
        """A thread locks it from `available` to `take`."""

    def available(self, shares: int) -> int:
        """Returns how many fetches may begin now."""
        fetches = self._with(shares)
        return 0 if fetches is None else fetches.available(self._now())

    def take(self, count: int, *, allowed: int, wanted: int) -> None:
        """Counts fetches that begin now, after `available`. allowed: its answer. wanted: by the caller."""
        if self._fetches is not None and count:
            self.used_at = self._now()
            if count == allowed < wanted:
                self.short_at = self.used_at
            self._fetches.take(count, self.used_at)

    def wait_seconds(self, shares: int) -> float | None:
        """Returns the seconds until a fetch may begin; None without a share."""
        fetches, now = self._with(shares), self._now()
        return None if fetches is None else (fetches.next_at(now) - now) / MICROSECONDS

    def _with(self, shares: int) -> FetchRate | None:
        a_minute = int(shares * self._of_share + _SLACK)  # whole fetches, so that the sum of all nodes is exact
        if not a_minute:
            return None
        rate = a_minute / WINDOW_SECONDS
        if self._fetches is None:
            self._fetches = FetchRate(rate, 0)
        elif self._fetches.per_second != rate:
            self._fetches.change(rate, self._now())
        return self._fetches
