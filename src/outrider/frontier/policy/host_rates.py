"""How often the pages of a host change: the prior of pages of which nothing is known. Only memory.

The prior is a chain of four levels: a change a week, the pages of all hosts together, the pages of one host, a page.
Each level has the changes and the time that its visits showed, and is drawn towards the level above. With theta as the
logarithm of the rate, changes c in a time t, and a weight k, the theta of a level maximises

    c theta - t e^theta - k (theta - theta of the level above)² / 2

This is the likelihood of a Poisson process with a normal prior of precision k. The maximum solves t e^theta + k theta =
c + k (theta above). With w = t e^theta / k this is w + ln w = ln(t / k) + c / k + (theta above), Lambert's function of
the right side's exponential. The last step, from host to page, is that of `change_rates.py`, with the confidence
`CHANGE_CONFIDENCE_PRIOR`.

A visit that saw a change adds the changes that are expected in its time, x / (1 - e^-x), or 1 if the date of the last
change is known. It then adds only the time since this date. A visit without a change adds its time. After
`HOST_RATE_VISITS_MAX` visits the sums are halved, so they follow a host that changes its habit.

Nothing of this is stored. After an opening, the chain begins with a change a week again, and learns from the next
visits. The pages that were visited more than once have their own rates, which are in their records.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from outrider.frontier.policy.signal_values import changes_in
from outrider.frontier.policy.visit_values import Floats
from outrider.limits import (
    CHANGE_RATE_MAX,
    CHANGE_RATE_MIN,
    CHANGE_SECONDS_PRIOR,
    HOST_RATE_CONFIDENCE,
    HOST_RATE_CRAWL_CONFIDENCE,
    HOST_RATE_VISITS_MAX,
    HOST_RATES_MAX,
)

PRIOR_THETA: Final = -math.log(CHANGE_SECONDS_PRIOR)
"""The theta before the first visit that shows anything."""
_LN_MIN: Final = math.log(CHANGE_RATE_MIN)
_LN_MAX: Final = math.log(CHANGE_RATE_MAX)
_TIME_MIN: Final = 1e-7  # seconds; clocks have microseconds
_STEPS: Final = 6  # of Newton's method: the result is exact to the last digits


@dataclass(slots=True)
class _Sums:
    """The visits of one level."""

    visits: float = 0.0
    changes: float = 0.0
    time: float = 0.0
    above: float = math.nan
    """The theta of the level above for which `theta` was computed."""
    theta: float = PRIOR_THETA

    def add(self, visits: float, changes: float, time: float) -> None:
        share = 0.5 if self.visits >= HOST_RATE_VISITS_MAX else 1.0
        self.visits = share * self.visits + visits
        self.changes = share * self.changes + changes
        self.time = share * self.time + time
        self.above = math.nan

    def below(self, above: float, weight: float) -> float:
        """Returns the theta of this level. above: that of the level above."""
        if self.above != above:
            self.above, self.theta = above, level_theta(self.changes, self.time, above, weight)
        return self.theta


class HostRates:
    """The change rates of hosts by their hashes, `most` of them: those with the latest visits."""

    def __init__(self, most: int = HOST_RATES_MAX) -> None:
        self._most = most
        self._all = _Sums()
        self._hosts: dict[int, _Sums] = {}  # the latest visit is last

    def __repr__(self) -> str:
        return f"<HostRates of {len(self)} hosts, a change in {math.exp(-self.crawl_theta):.4g} s>"

    def __len__(self) -> int:
        return len(self._hosts)

    @property
    def crawl_theta(self) -> float:
        """The logarithm of the change rate of a page of an unknown host."""
        return self._all.below(PRIOR_THETA, HOST_RATE_CRAWL_CONFIDENCE)

    def thetas(self, hosts: npt.NDArray[np.uint64]) -> Floats:
        """Returns the logarithm of the change rate of pages of which nothing is known. hosts: theirs."""
        crawl = self.crawl_theta
        kept = self._hosts
        found = [
            crawl if (sums := kept.get(host)) is None else sums.below(crawl, HOST_RATE_CONFIDENCE)
            for host in hosts.tolist()
        ]
        return np.array(found, np.float64)

    def learn(
        self, hosts: npt.NDArray[np.uint64], waited: Floats, changed: npt.NDArray[np.bool_], ages: Floats
    ) -> None:
        """Adds visits that showed whether pages had changed. waited: the seconds since the visits before; ages: the
        seconds since the last changes, NaN where the date is not known."""
        rows = np.flatnonzero(waited > 0)
        if not len(rows):
            return
        hosts, waited, changed, ages = hosts[rows], waited[rows], changed[rows], ages[rows]
        dated = changed & ~np.isnan(ages)
        expected = changes_in(np.exp(self.thetas(hosts)), waited)
        changes = np.where(changed, np.where(dated, 1.0, expected), 0.0)
        time = np.where(dated, np.clip(ages, 0.0, waited), waited)
        self._all.add(len(rows), float(changes.sum()), float(time.sum()))
        names, places = np.unique(hosts, return_inverse=True)
        columns: list[npt.NDArray[Any]] = [np.bincount(places, weights=one) for one in (changes, time)]
        counts = np.bincount(places)
        for name, *sums in zip(names.tolist(), counts.tolist(), *(one.tolist() for one in columns), strict=True):
            kept = self._hosts.pop(name, None) or _Sums()
            kept.add(*sums)
            self._hosts[name] = kept
        while len(self._hosts) > self._most:
            del self._hosts[next(iter(self._hosts))]


def level_theta(changes: float, time: float, above: float, weight: float) -> float:
    """Returns the theta of a level with these sums, within the bounds of rates. above: that of the level above; weight:
    of the difference between them, above 0."""
    best = above + changes / weight
    if time > _TIME_MIN:
        goal = math.log(time / weight) + best
        w = goal - math.log(goal) if goal > 1.0 else math.exp(min(goal, 0.0))
        for _ in range(_STEPS):
            w = w * (1.0 + goal - math.log(w)) / (1.0 + w)
        best -= w
    return min(max(best, _LN_MIN), _LN_MAX)
