"""Ten experiments on visits: published figures reproduced, and schedulers measured against the optimum of their budget.

Each experiment returns figures with the value that is expected, the measured one, and the tolerance. The scheduler of
E5 and E7 to E9 is made by a function, so the same experiments measure a different one. Numbers depend only on the seed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from outrider.errors import SettingsError
from outrider.frontier.policy.revisit_rules import DAY, Halving, Nutch, Rule, Shown
from outrider.frontier.policy.signal_values import SignalModel, cycle, signal_interval
from outrider.frontier.policy.visit_values import Floats, Objective, age, freshness, optimal_rates, price_of
from outrider.sim.price_calendar import ETA, KnownRates, LearnedRates, price_calendar
from outrider.sim.published_rates import (
    azar_rates,
    corrected_rate,
    harmonic_cost,
    lambda_crawl_rates,
    moments,
    naive_rate,
    random_freshness,
)
from outrider.sim.revisit_worlds import Pages, VisitRecord, VisitScheduler, run, signalled_freshness

BUDGET: Final = 100.0
"""Visits per unit of time of B1."""
FIVE: Final = np.arange(1.0, 6.0)
"""Five pages that change 1 to 5 times a day, which share 5 visits a day."""
ETAS: Final = (0.0003, 0.001, 0.005)
PRICES: Final = (0.2, 1.0, 5.0)
"""Start prices of E5, as multiples of the price of the optimum."""
WARM_UP: Final = 100.0
MEASURED: Final = 150.0
LEARNED_UNITS: Final = 2_000.0
"""Units of time of E7: 200 visits per page."""
LEARNED_END: Final = 250.0
LEARNED_START: Final = 0.3
LEARNED_CONFIDENCE: Final = 2.0
CGM: Final = {
    0.1: (0.952, 1.001, 1.000, 1.03),
    0.5: (0.787, 1.002, 1.000, 0.52),
    1.0: (0.632, 1.003, 1.000, 0.44),
    1.5: (0.518, 0.997, 1.001, 0.40),
    2.0: (0.432, 0.970, 1.001, 0.34),
    3.0: (0.317, 0.853, 0.980, 0.20),
}
"""By changes per visit, the estimates over the truth: naive, corrected from 10 visits, and from 30; the relative
standard deviation of the corrected one from 10."""
SETTLED: Final[tuple[tuple[str, Rule, tuple[float, float, float]], ...]] = (
    ("Nutch, +40 % / -20 %, sync 0.3", Nutch(), (0.561, 0.633, 0.685)),
    ("Nutch without sync_delta", Nutch(sync=None), (0.596, 0.658, 0.707)),
    ("Nutch, +20 % / -20 %, sync 0.2", Nutch(up=1.2, sync=0.2), (0.575, 0.652, 0.702)),
    ("double / halve", Halving(), (0.587, 0.692, 0.738)),
    ("+50 % / halve", Halving(up=1.5), (0.708, 0.790, 0.824)),
)
"""Rules with the freshness at which they settle, that of equal intervals at their cost, and that of the optimum."""
SIGNALS: Final = {
    (0.25, 0.9): 0.405,
    (0.5, 0.9): 0.435,
    (0.75, 0.9): 0.471,
    (0.9, 0.9): 0.498,
    (0.75, 0.5): 0.425,
    (0.5, 0.25): 0.394,
}
"""The freshness of the optimum by recall and precision of the signals."""


class MakeScheduler(Protocol):
    """Makes the scheduler under test, with the arguments of `price_calendar`."""

    def __call__(
        self,
        pages: Pages,
        price: float,
        *,
        seed: int,
        eta: float = ETA,
        rates: KnownRates | LearnedRates | None = None,
        model: SignalModel | None = None,
    ) -> VisitScheduler: ...


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of an experiment."""

    experiment: str
    name: str
    expected: float
    measured: float
    tolerance: float
    at_least: bool = False
    """Whether the measured value may exceed the expected one without limit."""

    @property
    def passed(self) -> bool:
        """Whether the measured value is within the tolerance; NaN never is."""
        if self.at_least:
            return self.measured >= self.expected - self.tolerance
        return abs(self.measured - self.expected) <= self.tolerance


@dataclass(frozen=True, slots=True)
class SettledRule:
    """The cost and the freshness at which a rule settles on the pages of B1."""

    name: str
    visits: float
    """Per unit of time."""
    freshness: float
    uniform: float
    """The freshness of equal intervals at this cost."""
    optimum: float


Experiments = dict[str, Callable[[int, MakeScheduler], list[Figure]]]
"""Experiments by name. Each needs a seed and the scheduler under test."""


def figures(
    names: tuple[str, ...],
    seed: int = 0,
    make: MakeScheduler = price_calendar,
    experiments: Experiments | None = None,
) -> list[Figure]:
    """Runs experiments by name, or all of them without a name. Raises SettingsError for an unknown one. make: the
    scheduler under test. experiments: those of this scheduler, None for `EXPERIMENTS`."""
    known = EXPERIMENTS if experiments is None else experiments
    for name in names:
        if name not in known:
            raise SettingsError(f"unknown experiment {name!r}: use {', '.join(known)}")
    return [figure for name in names or known for figure in known[name](seed, make)]


def five_pages(seed: int, make: MakeScheduler) -> list[Figure]:
    """E1: the optimum of five pages for freshness."""
    rates = optimal_rates(5.0, 1.0, FIVE)
    known = (1.1499, 1.3584, 1.3538, 1.1379, 0.0)
    found = _rate_figures("E1", known, rates, 1e-4)
    with np.errstate(divide="ignore"):
        return [*found, Figure("E1", "mean freshness", 0.37389, float(freshness(FIVE, 1.0 / rates).mean()), 1e-4)]


def five_ages(seed: int, make: MakeScheduler) -> list[Figure]:
    """E2: the optimum of five pages for age."""
    rates = optimal_rates(5.0, 1.0, FIVE, Objective.AGE)
    found = _rate_figures("E2", (0.8349, 0.9679, 1.0335, 1.0706, 1.0931), rates, 1e-4)
    return [*found, Figure("E2", "mean age, days", 0.25034, float(age(FIVE, 1.0 / rates).mean()), 1e-4)]


def equal_or_proportional(seed: int, make: MakeScheduler) -> list[Figure]:
    """E3: equal visits are never worse than visits in proportion to the changes, for pages of equal weight."""
    chance = np.random.default_rng(seed)
    least = np.inf
    for _ in range(1_000):
        rate = chance.lognormal(0.0, chance.uniform(0.1, 3.0), int(chance.integers(2, 50)))
        budget = len(rate) * float(chance.lognormal(0.0, 2.0))
        equal = float(freshness(rate, len(rate) / budget).mean())
        least = min(least, equal - float(freshness(rate, rate.sum() / (rate * budget)).mean()))
    return [Figure("E3", "least advantage of equal visits in 1,000 trials", 0.0, least, 1e-12, at_least=True)]


def estimators(seed: int, make: MakeScheduler) -> list[Figure]:
    """E4: the bias of estimators of the change rate, as exact sums. The table has two or three digits."""
    found = []
    for ratio, known in CGM.items():
        odds = float(-np.expm1(-ratio))
        naive, _ = moments(naive_rate(np.arange(11), 10, 1.0), odds)
        few, spread = moments(corrected_rate(np.arange(11), 10, 1.0), odds)
        more, _ = moments(corrected_rate(np.arange(31), 30, 1.0), odds)
        names = ("naive", "corrected, 10 visits", "corrected, 30 visits", "its deviation, 10 visits")
        for name, value, measured, digits in zip(names, known, (naive, few, more, spread), (3, 3, 3, 2), strict=True):
            tolerance = 0.5 * 10.0**-digits + 1e-4
            found.append(Figure("E4", f"{name}, {ratio:g} changes per visit", value, measured / ratio, tolerance))
    return found


def fixed_intervals() -> list[Figure]:
    """Other rates as fixed intervals on the pages of B1, all at the budget of the optimum."""
    pages = Pages.benchmark()
    weight, rate = pages.importance, pages.rate
    azar = azar_rates(BUDGET, weight, rate)
    found = (
        ("optimum", 0.36131, pages.optimum(BUDGET)),
        ("Azar rates as fixed intervals", 0.35748, pages.score(azar)),
        ("in proportion to importance", 0.33275, pages.score(weight * BUDGET)),
        ("LambdaCrawl rates as fixed intervals", 0.32304, pages.score(lambda_crawl_rates(BUDGET, weight, rate))),
        ("Azar rates at random moments", 0.29378, float(weight @ random_freshness(azar, rate))),
        ("uniform", 0.28609, pages.score(np.full(len(pages), BUDGET / len(pages)))),
        ("in proportion to change rate", 0.19894, pages.score(rate * BUDGET / rate.sum())),
    )
    return [Figure("E5", name, expected, measured, 1e-4) for name, expected, measured in found]


def price_runs(seed: int, make: MakeScheduler) -> list[tuple[str, VisitRecord]]:
    """The runs of E5 by the setting: three steps of the price, from three start prices each."""
    pages = Pages.benchmark()
    best = price_of(BUDGET, pages.importance, pages.rate)
    return [
        (
            f"eta {eta:g}, price × {factor:g}",
            run(
                pages,
                make(pages, best * factor, seed=seed, eta=eta),
                BUDGET,
                WARM_UP + MEASURED,
                seed=seed,
                batch=25,
            ),
        )
        for eta in ETAS
        for factor in PRICES
    ]


def prices(seed: int, make: MakeScheduler) -> list[Figure]:
    """E5: the scheduler against the optimum of B1, and its budget, in blocks of 50 units after a warm-up."""
    optimum = Pages.benchmark().optimum(BUDGET)
    found = fixed_intervals()
    for name, visits in price_runs(seed, make):
        blocks = visits.blocks(WARM_UP, 3)
        least = min(visits.freshness(start, end) for start, end in blocks)
        off = max(abs(visits.count(start, end) / (end - start) / BUDGET - 1.0) for start, end in blocks)
        found += [
            Figure("E5", f"{name}: worst block / optimum", 0.995, least / optimum, 0.0, at_least=True),
            Figure("E5", f"{name}: visits / budget - 1", 0.0, off, 0.005),
            Figure("E5", f"{name}: looks per visit", 1.0, visits.looks / len(visits.page), 1.0),
        ]
    return found


def settle(
    rule: Rule, pages: Pages, seed: int, *, warm_up: float = 400.0, measured: float = 1_000.0
) -> tuple[float, float]:
    """Visits pages by a rule, without a budget, and returns the visits per day and the weighted freshness.

    Each page has a clock of its own, in days. The changes that visits see are drawn; the freshness is exact.
    """
    chance = np.random.default_rng(seed)
    end = warm_up + measured
    rows = np.arange(len(pages))
    clock, fresh, visits = np.zeros(len(pages)), np.zeros(len(pages)), 0
    numbers = rule.after(clock, clock, Shown.NOTHING, clock)
    interval, memory, wait = numbers.interval.copy(), numbers.memory.copy(), numbers.delay / DAY
    while len(rows):
        rate, begun = pages.rate[rows], clock[rows]
        due = begun + wait
        first, last = np.clip(warm_up, begun, due), np.minimum(due, end)
        last = np.maximum(last, first)
        fresh[rows] += (np.exp(-rate * (first - begun)) - np.exp(-rate * (last - begun))) / rate
        live = due < end
        rows, due, wait = rows[live], due[live], wait[live]
        visits += int(np.count_nonzero(due >= warm_up))
        changed = chance.random(len(rows)) < -np.expm1(-pages.rate[rows] * wait)
        numbers = rule.after(interval[rows], memory[rows], changed, wait * DAY)
        clock[rows], interval[rows], memory[rows] = due, numbers.interval, numbers.memory
        wait = numbers.delay / DAY
    return visits / measured, float(pages.importance @ fresh) / measured


def settled_rules(seed: int) -> list[SettledRule]:
    """The rules of E6 on the pages of B1, with a day as the unit of time."""
    pages = Pages.benchmark()
    found = []
    for name, rule, _ in SETTLED:
        visits, fresh = settle(rule, pages, seed)
        equal = pages.score(np.full(len(pages), visits / len(pages)))
        found.append(SettledRule(name, visits, fresh, equal, pages.optimum(visits)))
    return found


def rules(seed: int, make: MakeScheduler) -> list[Figure]:
    """E6: the published rules lose to equal intervals at the cost at which they settle."""
    found = []
    for made, (_, _, known) in zip(settled_rules(seed), SETTLED, strict=True):
        for name, expected, measured in zip(
            ("", ", uniform at its cost", ", optimum at its cost"),
            known,
            (made.freshness, made.uniform, made.optimum),
            strict=True,
        ):
            found.append(Figure("E6", made.name + name, expected, measured, 0.01))
    return found


def learned_runs(seed: int, make: MakeScheduler) -> list[tuple[str, VisitRecord]]:
    """The runs of E7: pages whose rates are learned from one bit per visit, for two distributions of the rates."""
    found = []
    for name in ("uniform rates", "log-normal rates"):
        chance = np.random.default_rng(seed + 1)
        uniform = chance.uniform(0.01, 1.0, 1_000)
        rate = uniform if name == "uniform rates" else chance.lognormal(np.log(0.2), 1.5, 1_000)
        pages = Pages.drawn(rate, chance)
        learned = LearnedRates(
            len(pages),
            start=LEARNED_START,
            confidence=LEARNED_CONFIDENCE,
            chance=np.random.default_rng(seed + 2),
            thompson=True,
        )
        scheduler = make(pages, price_of(BUDGET, pages.importance, pages.rate), seed=seed, rates=learned)
        found.append((name, run(pages, scheduler, BUDGET, LEARNED_UNITS, seed=seed, batch=50)))
    return found


def learning(seed: int, make: MakeScheduler) -> list[Figure]:
    """E7: rates learned from one-bit observations reach 97 % of the optimum after 200 visits per page."""
    return [
        Figure(
            "E7",
            f"{name}: freshness / optimum at the end",
            0.97,
            visits.freshness(LEARNED_UNITS - LEARNED_END, LEARNED_UNITS) / visits.pages.optimum(BUDGET),
            0.01,
            at_least=True,
        )
        for name, visits in learned_runs(seed, make)
    ]


def signalled_optimum(pages: Pages, model: SignalModel, budget: float) -> tuple[float, float]:
    """The price and the weighted freshness of the optimum with signals, by bisection of the price."""
    low, high = 1e-9, 10.0
    found = 0.0
    while high / low > 1 + 1e-9:
        price = (low * high) ** 0.5
        waits = signal_interval(price, model, pages.importance)
        due = np.isfinite(waits)
        length, fresh = cycle(model, np.where(due, waits, 1.0))
        found = float(pages.importance @ np.where(due, fresh / length, 0.0))
        low, high = (price, high) if np.sum(np.where(due, 1.0 / length, 0.0)) > budget else (low, price)
    return high, found


def signals(seed: int, make: MakeScheduler) -> list[Figure]:
    """E8: the optimum with signals of several qualities, and the scheduler with and without them."""
    chance = np.random.default_rng(11)
    pages = Pages.drawn(chance.uniform(0.01, 1.0, 400), chance)
    budget = 40.0
    found = [Figure("E8", "optimum without signals", 0.381, pages.optimum(budget), 0.005)]
    plain = price_of(budget, pages.importance, pages.rate)
    for (recall, precision), expected in SIGNALS.items():
        noise = recall * pages.rate * (1.0 - precision) / precision
        model = SignalModel.of(pages.rate, recall, noise)
        price, optimum = signalled_optimum(pages, model, budget)
        name = f"recall {recall:g}, precision {precision:g}"
        found.append(Figure("E8", f"optimum, {name}", expected, optimum, 0.005))
        if (recall, precision) == (0.75, 0.9):
            for label, goal, scheduler in (
                ("scheduler without signals", 0.381, make(pages, plain, seed=seed)),
                (f"scheduler, {name}", expected, make(pages, price, seed=seed, model=model)),
            ):
                measured = signalled_freshness(
                    pages, scheduler, model, budget, warm_up=40.0, seconds=80.0, seed=seed, batch=4
                )
                found.append(Figure("E8", label, goal, measured, 0.005))
    return found


def hosts(seed: int, make: MakeScheduler) -> list[Figure]:
    """E9: the scheduler with limits of hosts, against the optimum of the budget and these limits."""
    chance = np.random.default_rng(seed + 13)
    sizes = chance.lognormal(0.0, 1.2, 50)
    host = chance.choice(50, 1_582, p=sizes / sizes.sum())
    drawn = Pages.drawn(chance.uniform(0.01, 1.0, len(host)), chance)
    pages = Pages(drawn.rate, drawn.importance, host, 4.0)
    scheduler = make(pages, price_of(BUDGET, pages.importance, pages.rate), seed=seed)
    visits = run(pages, scheduler, BUDGET, 120.0, seed=seed, batch=1)
    ratio = visits.freshness(60.0, 120.0) / pages.host_optimum(BUDGET)
    return [Figure("E9", "freshness / optimum of hosts and budget", 0.995, ratio, 0.0, at_least=True)]


def formulas(seed: int, make: MakeScheduler) -> list[Figure]:
    """E10: the rates of Azar et al. and of LambdaCrawl, for the five pages."""
    azar, crawl = azar_rates(5.0, 1.0, FIVE), lambda_crawl_rates(5.0, 1.0, FIVE)
    return [
        *_rate_figures("E10", (1.386, 1.374, 1.133, 0.772, 0.335), azar, 1e-3, "Azar, "),
        Figure("E10", "Azar, mean freshness", 0.2974, float(random_freshness(azar, FIVE).mean()), 1e-3),
        *_rate_figures("E10", (0.783, 0.947, 1.037, 1.096, 1.137), crawl, 1e-3, "LambdaCrawl, "),
        Figure("E10", "LambdaCrawl, harmonic cost", 1.3080, harmonic_cost(crawl, 0.2, FIVE), 1e-3),
        Figure("E10", "LambdaCrawl, mean freshness", 0.2835, float(random_freshness(crawl, FIVE).mean()), 1e-3),
    ]


EXPERIMENTS: Final[Experiments] = {
    "E1": five_pages,
    "E2": five_ages,
    "E3": equal_or_proportional,
    "E4": estimators,
    "E5": prices,
    "E6": rules,
    "E7": learning,
    "E8": signals,
    "E9": hosts,
    "E10": formulas,
}
"""The experiments of the reference."""


def _rate_figures(
    experiment: str, known: tuple[float, ...], rates: Floats, tolerance: float, name: str = ""
) -> list[Figure]:
    return [
        Figure(experiment, f"{name}visits a day at {change:g} changes a day", expected, measured, tolerance)
        for change, expected, measured in zip(FIVE.tolist(), known, rates.tolist(), strict=True)
    ]
