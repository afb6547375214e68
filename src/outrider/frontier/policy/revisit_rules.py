"""The published rules for the next visit of a page, over columns of pages: `uniform`, `adaptive`, `halving`, `nutch`.

A rule needs two numbers per page, both floats of 32 bits or more, and writes both after each visit:

    interval   the interval of the rule in seconds, before any stretch. It is not the time between the last two visits,
               which a stretch, a delay or a queue makes longer. 0 for a page that has no interval yet.
    memory     one number that only the rule can read, 0 for a page that it sees for the first time:
               uniform, halving   not used, 0
               adaptive           the last 10 visits that showed something: a bit for each, 1 for a change, the newest
                                  last, below a leading 1. So 1 to 2,047
               nutch              the seconds from the visit that saw the last change (or the first visit) to the last
                                  visit

Each rule also gets, for each visit, what it showed (`Shown`) and the seconds since the visit before. It needs nothing
else: no history and no count of visits. `Rule.after` returns both numbers and the delay, the seconds from this visit to
the next one, before any stretch. The delay is the interval for all rules but nutch, which returns a shorter one.

Where the rule of a crawl changes, its interval may continue, and the memory starts again from 0.

These rules adjust an interval by factors, so each page settles where the chance that a visit sees a change is the same,
ln(up) / (ln(up) - ln(down)). Visits are then proportional to the change rate, which is worse than equal intervals for
all pages at the same cost.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from outrider.frontier.policy.visit_values import Floats

Codes = npt.NDArray[np.integer[Any]]

HOUR: Final = 3_600.0
DAY: Final = 86_400.0
FIRST_SECONDS: Final = DAY
"""The first interval of `adaptive`, and of `halving` for a host whose changes are not known."""
SECONDS_MIN: Final = HOUR
SECONDS_MAX: Final = 30 * DAY
"""The bounds of `adaptive` and `halving`, as they are published."""
WINDOW: Final = 10
"""The visits that `adaptive` remembers."""
OFTEN: Final = 0.8
SELDOM: Final = 0.2
"""The shares of changes in the window from which, and up to which, `adaptive` applies its factor a second time."""
_LEADING: Final = 1 << WINDOW
_BITS: Final = np.array([bits.bit_count() for bits in range(_LEADING)], np.int64)
HOST_CLASS_SECONDS: Final = (HOUR, DAY, 7 * DAY, 30 * DAY)
"""The first intervals of `halving` by the class of a host: its pages change hourly, daily, weekly or monthly."""
NUTCH_FIRST_SECONDS: Final = 30 * DAY
NUTCH_SECONDS_MIN: Final = 60.0
NUTCH_SECONDS_MAX: Final = 365 * DAY
NUTCH_UP: Final = 1.4
NUTCH_DOWN: Final = 0.8
NUTCH_SYNC: Final = 0.3


class Shown(IntEnum):
    """Whether a visit showed a change of its page."""

    UNCHANGED = 0
    CHANGED = 1
    NOTHING = 2
    """The first visit of a page, a redirect or an error: the interval stays the same."""


@dataclass(frozen=True, slots=True)
class Scheduled:
    """The numbers of pages after a visit, as columns of seconds; `memory` as its rule defines it."""

    interval: Floats
    memory: Floats
    delay: Floats
    """From this visit to the next one, before any stretch."""


class Rule(ABC):
    """A rule that computes the delay until the next visit of each page."""

    def after(
        self,
        interval: npt.ArrayLike,
        memory: npt.ArrayLike,
        shown: npt.ArrayLike,
        waited: npt.ArrayLike,
        first: npt.ArrayLike | None = None,
    ) -> Scheduled:
        """Returns the numbers after a visit of each page.

        interval, memory: of the last visit, 0 for a page without them. shown: codes of `Shown`. waited: the seconds
        since the visit before, 0 for a first visit. first: the first interval of each page in seconds; None uses that
        of the rule. Columns are broadcast.
        """
        start = self.first_seconds if first is None else first
        columns = (np.asarray(one, np.float64) for one in (interval, memory, waited, start))
        before, kept, time, begun, codes = np.broadcast_arrays(*columns, np.asarray(shown, np.int64))
        before = np.where(before > 0, before, begun)  # NaN counts as 0
        kept = np.where(kept > 0, kept, 0.0)
        return self._after(before, kept, codes, np.where(time > 0, time, 0.0))

    @property
    def first_seconds(self) -> float:
        """The interval of a page before its first visit, in seconds."""
        return FIRST_SECONDS

    def delays(self, interval: npt.ArrayLike, memory: npt.ArrayLike) -> Floats:
        """Returns the seconds from the last visit to the next one, before any stretch, by the numbers after it."""
        before = np.asarray(interval, np.float64)
        return np.where(before > 0, before, self.first_seconds)

    @abstractmethod
    def _after(self, interval: Floats, memory: Floats, shown: Codes, waited: Floats) -> Scheduled: ...


@dataclass(frozen=True, slots=True)
class Uniform(Rule):
    """All pages have one interval, `seconds`, which follows the budget (`equal_seconds`)."""

    seconds: float = FIRST_SECONDS

    @property
    def first_seconds(self) -> float:
        return self.seconds

    def _after(self, interval: Floats, memory: Floats, shown: Codes, waited: Floats) -> Scheduled:
        same = np.full(interval.shape, self.seconds)
        return Scheduled(same, np.zeros_like(same), same)


@dataclass(frozen=True, slots=True)
class Halving(Rule):
    """The interval doubles when a page has not changed, and halves when it has; from `up` = 2 and `down` = 0.5.

    It starts from an interval per class of hosts (`host_class_seconds`), within `least` and `most` seconds.
    """

    up: float = 2.0
    down: float = 0.5
    least: float = SECONDS_MIN
    most: float = SECONDS_MAX

    def _after(self, interval: Floats, memory: Floats, shown: Codes, waited: Floats) -> Scheduled:
        found = np.clip(interval * _factor(shown, self.up, self.down), self.least, self.most)
        return Scheduled(found, np.zeros_like(found), found)


@dataclass(frozen=True, slots=True)
class Adaptive(Rule):
    """The interval is multiplied by 1.5 when a page has not changed, and by 0.5 when it has. Then the rate of changes
    in the last 10 visits adjusts it: by 0.5 again from 80 % of changes on, by 1.5 up to 20 %. From an hour to 30 days.

    A page that changes at each visit from one day on thus gets 6, 1.5, 1, 1 … hours.
    """

    up: float = 1.5
    down: float = 0.5
    least: float = SECONDS_MIN
    most: float = SECONDS_MAX

    def _after(self, interval: Floats, memory: Floats, shown: Codes, waited: Floats) -> Scheduled:
        window = np.clip(memory, 1, 2 * _LEADING - 1).astype(np.int64)
        counts = shown != Shown.NOTHING
        wider = window * 2 + (shown == Shown.CHANGED)
        # The oldest of eleven visits is dropped, and the leading bit moves back to its place.
        wider = np.where(wider >= 2 * _LEADING, wider % _LEADING + _LEADING, wider)
        window = np.where(counts, wider, window)
        length = np.frexp(window.astype(np.float64))[1] - 1
        share = _BITS[window - (1 << length)] / np.maximum(length, 1)
        again = np.where(share >= OFTEN, self.down, np.where(share <= SELDOM, self.up, 1.0))
        factor = np.where(counts, _factor(shown, self.up, self.down) * again, 1.0)
        found = np.clip(interval * factor, self.least, self.most)
        return Scheduled(found, window.astype(np.float64), found)


@dataclass(frozen=True, slots=True)
class Nutch(Rule):
    """Apache Nutch's AdaptiveFetchSchedule with the values of its nutch-default.xml.

    An unchanged page gets 1.4 times its interval, a changed one 0.8 times. With `sync`, the time since the last change
    that a visit has seen is the interval if it is longer, and the next visit is 0.3 of this time earlier. The interval
    is then bounded, from a minute to 365 days. After more than three years without a change, this would place the next
    visit in the past. It then follows after the shortest interval, while Nutch fetches such a page in each round.
    """

    up: float = NUTCH_UP
    down: float = NUTCH_DOWN
    sync: float | None = NUTCH_SYNC
    """None is the setting without sync_delta."""
    least: float = NUTCH_SECONDS_MIN
    most: float = NUTCH_SECONDS_MAX

    @property
    def first_seconds(self) -> float:
        return NUTCH_FIRST_SECONDS

    def _after(self, interval: Floats, memory: Floats, shown: Codes, waited: Floats) -> Scheduled:
        since = np.where(shown == Shown.CHANGED, 0.0, memory + waited)
        found = interval * _factor(shown, self.up, self.down)
        if self.sync is None:
            found = np.clip(found, self.least, self.most)
            return Scheduled(found, since, found)
        found = np.clip(np.maximum(found, since), self.least, self.most)
        return Scheduled(found, since, self.delays(found, since))

    def delays(self, interval: npt.ArrayLike, memory: npt.ArrayLike) -> Floats:
        found = super(Nutch, self).delays(interval, memory)
        if self.sync is None:
            return found
        return np.maximum(found - self.sync * np.asarray(memory, np.float64), self.least)


RULES: Final[Mapping[str, Rule]] = {
    "uniform": Uniform(),
    "adaptive": Adaptive(),
    "halving": Halving(),
    "nutch": Nutch(),
}
"""The published rules by name."""


def equal_seconds(pages: int, budget: float) -> float:
    """The interval at which the visits of all pages need the whole budget, in visits a second."""
    return pages / budget


def host_class_seconds(rate: npt.ArrayLike) -> Floats:
    """The first interval of `halving`, by the changes a second of the pages of a host: an hour, a day, a week, a month.

    It is the one nearest to the time between two changes, by their ratio. For a host without a rate (NaN or 0), a day.
    """
    change = np.asarray(rate, np.float64)
    known = change > 0
    between = 1.0 / np.where(known, change, 1.0 / FIRST_SECONDS)
    steps = np.array(HOST_CLASS_SECONDS)
    nearest = np.searchsorted(np.sqrt(steps[:-1] * steps[1:]), between)
    found: Floats = np.where(known, steps[nearest], FIRST_SECONDS)
    return found


def _factor(shown: Codes, up: float, down: float) -> Floats:
    """The factor of an interval after a visit."""
    return np.where(shown == Shown.CHANGED, down, np.where(shown == Shown.UNCHANGED, up, 1.0))
