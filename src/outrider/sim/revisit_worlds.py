"""Pages that change at random on a virtual clock, a scheduler that visits them, and the exact freshness of its visits.

Changes are Poisson processes. Their moments are not drawn: from the moments of the visits alone, the probability that a
copy is fresh is exact at each moment, and `VisitRecord.freshness` integrates it. Only the answers of the visits are
drawn, one bit each, since a scheduler that learns needs them. With signals, the probability also depends on the
signals, which are drawn. A run is a sequence of slots at equal distances. A scheduler is any object with the methods of
`VisitScheduler`, so the one of the frontier can be measured on the same clock in place of that of this folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Protocol, Self

import numpy as np
import numpy.typing as npt

from outrider.frontier.policy.signal_values import SignalModel
from outrider.frontier.policy.visit_values import Floats, freshness, optimal_rates

Numbers = npt.NDArray[np.integer[Any]]
Flags = npt.NDArray[np.bool_]

BLOCKS: Final = 10
"""The blocks into which the measured time of a run is divided."""


@dataclass(frozen=True, slots=True)
class Pages:
    """Pages of a world, as columns. All of them are fresh at time 0."""

    rate: Floats
    """Changes per unit of time."""
    importance: Floats
    """Weights; their sum is 1."""
    host: Numbers | None = None
    host_rate: float = np.inf
    """Visits per unit of time that each host allows."""

    def __len__(self) -> int:
        return len(self.rate)

    @classmethod
    def drawn(cls, rate: Floats, chance: np.random.Generator) -> Self:
        """Pages of these rates, with importances uniform in [0, 1] before they are divided by their sum."""
        weight = chance.uniform(0.0, 1.0, len(rate))
        return cls(rate, weight / weight.sum())

    @classmethod
    def benchmark(cls, pages: int = 1_000, seed: int = 7) -> Self:
        """The pages of B1: rates uniform in [0.01, 1], then importances uniform in [0, 1], from numpy's default_rng."""
        chance = np.random.default_rng(seed)
        return cls.drawn(chance.uniform(0.01, 1.0, pages), chance)

    def score(self, rates: npt.ArrayLike) -> float:
        """The weighted freshness at fixed intervals of these visits per unit of time."""
        with np.errstate(divide="ignore"):
            waits = 1.0 / np.asarray(rates, np.float64)
        return float(self.importance @ freshness(self.rate, waits))

    def optimum(self, budget: float) -> float:
        """The highest weighted freshness of a budget, in visits per unit of time."""
        return self.score(optimal_rates(budget, self.importance, self.rate))

    def host_optimum(self, budget: float) -> float:
        """The highest weighted freshness within the limits of the hosts as well (Kolobov et al., SIGIR 2019).

        A host whose pages would get more than its limit is an allocation of its own. The other hosts share the
        remaining budget, which raises their visits, until no further host exceeds its limit.
        """
        assert self.host is not None
        rates = np.zeros(len(self))
        free = np.ones(len(self), np.bool_)
        left = budget
        while True:
            rates[free] = optimal_rates(left, self.importance[free], self.rate[free])
            wanted = np.bincount(self.host[free], rates[free])
            full = np.flatnonzero(wanted > self.host_rate * (1 + 1e-12))
            if not len(full):
                return self.score(rates)
            for host in full.tolist():
                rows = self.host == host
                rates[rows] = optimal_rates(self.host_rate, self.importance[rows], self.rate[rows])
                free &= ~rows
                left -= self.host_rate


class VisitScheduler(Protocol):
    """The scheduler under test. Pages are row numbers of `Pages`, times are units of the virtual clock."""

    @property
    def looks(self) -> int:
        """How often the due time of a page was computed to decide about a visit."""

    @property
    def batch_max(self) -> int:
        """The most pages that one call of `take` may ask for."""

    def take(self, now: float, count: int) -> Numbers:
        """Returns at most `count` pages to visit from now on, each once."""

    def visited(self, pages: Numbers, times: Floats, changed: Flags) -> None:
        """The pages were visited at these times, and had changed since the visit before or not."""

    def signalled(self, pages: Numbers, counts: Numbers, now: float) -> None:
        """This number of signals arrived for each of these pages."""


@dataclass(slots=True)
class VisitRecord:
    """The visits of a run, in the order of their times."""

    pages: Pages
    seconds: float
    page: Numbers
    time: Floats
    looks: int
    idle: int
    """Slots without a visit."""

    def freshness(self, start: float, end: float) -> float:
        """The weighted share of the time from start to end in which copies were fresh, exactly."""
        order = np.lexsort((self.time, self.page))
        page, time = self.page[order], self.time[order]
        # Each page has an interval from time 0, and one from each visit, up to the next visit or the end.
        rows = np.concatenate([np.arange(len(self.pages)), page])
        begin = np.concatenate([np.zeros(len(self.pages)), time])
        order = np.lexsort((begin, rows))
        rows, begin = rows[order], begin[order]
        finish = np.full(len(begin), float(end))
        same = rows[1:] == rows[:-1]
        finish[:-1][same] = begin[1:][same]
        rate = self.pages.rate[rows]
        first = np.clip(start, begin, np.maximum(finish, begin))
        last = np.maximum(np.minimum(finish, end), first)
        fresh = (np.exp(-rate * (first - begin)) - np.exp(-rate * (last - begin))) / rate
        return float(self.pages.importance[rows] @ fresh) / (end - start)

    def count(self, start: float, end: float) -> int:
        """The number of visits from start to end."""
        return int(np.count_nonzero((self.time >= start) & (self.time < end)))

    def blocks(self, start: float, blocks: int = BLOCKS) -> list[tuple[float, float]]:
        """The start and end of equal blocks from `start` to the end of the run."""
        edges = np.linspace(start, self.seconds, blocks + 1).tolist()
        return list(pairwise(edges))


def run(
    pages: Pages, scheduler: VisitScheduler, budget: float, seconds: float, *, seed: int, batch: int = 10
) -> VisitRecord:
    """Runs a scheduler for a time of `seconds` units, with `budget` slots per unit, `batch` of them at once, or as many
    as the scheduler allows."""
    batch = min(batch, scheduler.batch_max)
    chance = np.random.default_rng(seed)
    last = np.zeros(len(pages))
    host_free = np.zeros(int(pages.host.max()) + 1) if pages.host is not None else None
    page: list[Numbers] = []
    time: list[Floats] = []
    idle = 0
    for step in range(round(seconds * budget / batch)):
        now = step * batch / budget
        taken = scheduler.take(now, batch)
        idle += batch - len(taken)
        times = now + np.arange(len(taken)) / budget
        if host_free is not None and pages.host is not None:
            hosts = pages.host[taken]
            assert np.all(host_free[hosts] <= times + 1e-9), "a host is not ready"
            assert len(set(hosts.tolist())) == len(hosts), "a host is visited twice at once"
            host_free[hosts] = times + 1.0 / pages.host_rate
        changed = chance.random(len(taken)) < -np.expm1(-pages.rate[taken] * (times - last[taken]))
        last[taken] = times
        scheduler.visited(taken, times, changed)
        page.append(taken)
        time.append(times)
    return VisitRecord(pages, seconds, np.concatenate(page), np.concatenate(time), scheduler.looks, idle)


def signalled_freshness(
    pages: Pages, scheduler: VisitScheduler, model: SignalModel, budget: float, *, warm_up: float, seconds: float,
    seed: int, batch: int,
) -> float:  # fmt: skip
    """Runs a scheduler for warm-up and `seconds`, and returns the weighted freshness after the warm-up, exactly.

    Signals arrive between batches: the signals of a page, true and false ones together, are a Poisson process of the
    rate gamma, whether its copy is fresh or not.
    """
    chance = np.random.default_rng(seed)
    length = batch / budget
    last, signals = np.zeros(len(pages)), np.zeros(len(pages), np.int64)
    with np.errstate(divide="ignore", invalid="ignore"):
        # The expected time in which a copy is fresh in one step, if it is fresh at its start.
        held = np.where(pages.rate > 0, -np.expm1(-pages.rate * length) / pages.rate, length)
    fresh, steps, warm_steps = 0.0, round((warm_up + seconds) / length), round(warm_up / length)
    for step in range(steps):
        now = step * length
        taken = scheduler.take(now, batch)
        outdated = -np.expm1(-model.evidence_of(now - last, signals)[taken])
        scheduler.visited(taken, np.full(len(taken), now), chance.random(len(taken)) < outdated)
        last[taken], signals[taken] = now, 0
        if step >= warm_steps:
            fresh += float(pages.importance @ (np.exp(-model.evidence_of(now - last, signals)) * held))
        arrived = chance.poisson(model.gamma * length)
        signals += arrived
        heard = np.flatnonzero(arrived)
        if len(heard):
            scheduler.signalled(heard, arrived[heard], now + length)
    return fresh / ((steps - warm_steps) * length)
