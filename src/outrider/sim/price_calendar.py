"""The scheduler of a price and a calendar, as a plain reference: arrays in place of the timetable of the frontier.

A page is due when the value of a visit reaches the price. The price follows the budget: it falls when a slot has to be
filled by a page that is not due, and rises otherwise. The due times of all pages move with the price, so the calendar
has the time of the next look at each page, `min(due, now + horizon * (0.5 + u))`, and a look computes when it is due.
The horizon is needed: without it, a page whose due time was computed at a high price stays far in the future after the
price has fallen. The chance u in [0, 1) avoids that such pages return in waves.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from outrider.frontier.policy.change_rates import after_visits, drawn_rates, rate_of, theta_of
from outrider.frontier.policy.signal_values import SignalModel, signal_interval
from outrider.frontier.policy.visit_values import Floats, interval, value
from outrider.sim.revisit_worlds import Flags, Numbers, Pages

LOOKS_MAX: Final = 12
"""The most looks per visit; after them, a page is visited before it is due."""
ETA: Final = 0.001
"""The step of the logarithm of the price per visit. Any from 0.0003 to 0.005 will do."""
AHEAD: Final = 0.2
"""The share of the visits that are made ahead of their due time, to which the price settles. At a half, as many prices
are too high as too low, which costs little without signals. With them, a page that is not due may be far from it."""
HORIZON: Final = 50.0


class KnownRates:
    """Change rates that are known from the start."""

    def __init__(self, rate: Floats) -> None:
        self._rate = rate

    def rates(self, pages: Numbers) -> Floats:
        """The rates by which a due time is computed."""
        return self._rate[pages]

    def visited(self, pages: Numbers, waited: Floats, changed: Flags) -> None:
        """Known rates ignore visits."""


class LearnedRates:
    """Change rates that are learned from one bit per visit; `thompson` draws them at each look."""

    def __init__(
        self, pages: int, *, start: float, confidence: float, chance: np.random.Generator, thompson: bool
    ) -> None:
        self.theta = np.full(pages, float(theta_of(start)))
        self.confidence = np.full(pages, float(confidence))
        self._chance = chance
        self._thompson = thompson

    def rates(self, pages: Numbers) -> Floats:
        """The rates by which a due time is computed."""
        if not self._thompson:
            return rate_of(self.theta[pages])
        return drawn_rates(self.theta[pages], self.confidence[pages], self._chance.standard_normal(len(pages)))

    def visited(self, pages: Numbers, waited: Floats, changed: Flags) -> None:
        """Learns from a visit of each page."""
        self.theta[pages], self.confidence[pages] = after_visits(
            self.theta[pages], self.confidence[pages], waited, changed
        )


class PriceCalendar:
    """The scheduler. price: at the start. rates: known or learned. model: of signals, None without them."""

    batch_max: Final = 1_000_000

    def __init__(
        self,
        pages: Pages,
        price: float,
        *,
        seed: int,
        eta: float = ETA,
        horizon: float = HORIZON,
        rates: KnownRates | LearnedRates | None = None,
        model: SignalModel | None = None,
    ) -> None:
        self.looks = 0
        self.price = price
        self._importance = pages.importance
        self._rates = rates or KnownRates(pages.rate)
        self._model = model
        self._eta, self._horizon = eta, horizon
        self._chance = np.random.default_rng(seed)
        self._last = np.zeros(len(pages))
        self._signals = np.zeros(len(pages))
        self._ahead = 0
        everything = np.arange(len(pages))
        self._key = self._next_look(self._due(everything), 0.0)

    def take(self, now: float, count: int) -> Numbers:
        """Returns `count` pages, those that are due first; see `VisitScheduler.take`."""
        found: list[Numbers] = []
        self._ahead = 0
        for turn in range(LOOKS_MAX):
            nearest = np.argpartition(self._key, count)
            pages, following = nearest[:count], float(self._key[nearest[count]])
            due = self._due(pages)
            self.looks += len(pages)
            good = due <= max(now, following)
            if turn == LOOKS_MAX - 1:
                good[:] = True
            self._ahead += int(np.count_nonzero(due[good] > now))
            found.append(pages[good])
            self._key[pages] = np.where(good, np.inf, self._next_look(due, now))
            count -= int(np.count_nonzero(good))
            if not count:
                break
        return np.concatenate(found)

    def visited(self, pages: Numbers, times: Floats, changed: Flags) -> None:
        """Learns, moves the price, and puts the pages back; see `VisitScheduler.visited`."""
        self._rates.visited(pages, times - self._last[pages], changed)
        self._last[pages] = times
        self._signals[pages] = 0.0
        self.price *= float(np.exp(self._eta * (len(pages) - self._ahead / AHEAD)))
        self._key[pages] = self._next_look(self._due(pages), float(times[-1]))

    def signalled(self, pages: Numbers, counts: Numbers, now: float) -> None:
        """Moves the next looks of the pages forward; see `VisitScheduler.signalled`."""
        self._signals[pages] += counts
        self._key[pages] = np.minimum(self._key[pages], self._next_look(self._due(pages), now))

    def _due(self, pages: Numbers) -> Floats:
        weight = self._importance[pages]
        if self._model is None:
            return self._last[pages] + interval(self.price, weight, self._rates.rates(pages))
        model = SignalModel(
            *(getattr(self._model, name)[pages] for name in ("rate", "alpha", "gamma", "noise", "evidence"))
        )
        return self._last[pages] + signal_interval(self.price, model, weight, self._signals[pages])

    def _next_look(self, due: Floats, now: float) -> Floats:
        found: Floats = np.minimum(due, now + self._horizon * (0.5 + self._chance.random(len(due))))
        return found


class HostCalendar(PriceCalendar):
    """The scheduler where hosts have limits: the price admits a page, and its host visits the largest value first.

    The price does not rise in a host whose pages are due faster than its limit allows. They wait, their values grow at
    different speeds, and the order in which they became due would be a bad one.
    """

    def __init__(
        self,
        pages: Pages,
        price: float,
        *,
        seed: int,
        eta: float = ETA,
        rates: KnownRates | LearnedRates | None = None,
        model: SignalModel | None = None,
    ) -> None:
        assert pages.host is not None
        assert model is None, "no experiment has limits of hosts and signals"
        super().__init__(pages, price, seed=seed, eta=eta, rates=rates)
        self._host, self._gap = pages.host, 1.0 / pages.host_rate
        self._ready = np.zeros(int(pages.host.max()) + 1)

    def take(self, now: float, count: int) -> Numbers:
        """Returns at most one page of a host that is ready; see `VisitScheduler.take`."""
        closed = (self._ready > now)[self._host]
        if closed.all():
            return np.zeros(0, np.int64)
        late: Numbers = np.flatnonzero((self._key <= now) & ~closed)
        due = self._due(late)
        self.looks += len(late)
        self._key[late[due > now]] = self._next_look(due[due > now], now)
        late = late[due <= now]
        if len(late):
            worth = value(self._importance[late], self._rates.rates(late), now - self._last[late])
            found, self._ahead = late[[int(np.argmax(worth))]], 0
            self._key[found] = np.inf
        else:
            kept = self._key[closed]
            self._key[closed] = np.inf
            found = super().take(now, 1)
            self._key[closed] = kept
        self._ready[self._host[found]] = now + self._gap
        return found


def price_calendar(
    pages: Pages,
    price: float,
    *,
    seed: int,
    eta: float = ETA,
    rates: KnownRates | LearnedRates | None = None,
    model: SignalModel | None = None,
) -> PriceCalendar:
    """The scheduler for these pages: with limits of hosts if they have hosts."""
    kind = PriceCalendar if pages.host is None else HostCalendar
    return kind(pages, price, seed=seed, eta=eta, rates=rates, model=model)
