"""The experiments on visits with the frontier itself as the scheduler: its price, its published rules, its discovery.

E5, E7 and E9 are those of `revisit_experiments`. E6 runs the published rules of the frontier without a rate. `coverage`
adds new pages all the time: a visit of a new page and one of a known page compete for the same budget.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from outrider.frontier.policy.signal_values import SignalModel
from outrider.limits import CHANGE_CONFIDENCE_PRIOR, CHANGE_SECONDS_PRIOR, REVISIT_STEP
from outrider.sim.frontier_scheduler import UNIT_SECONDS, FrontierScheduler
from outrider.sim.price_calendar import KnownRates, LearnedRates
from outrider.sim.revisit_experiments import (
    BUDGET,
    EXPERIMENTS,
    LEARNED_START,
    Experiments,
    Figure,
    MakeScheduler,
    figures,
)
from outrider.sim.revisit_worlds import Pages, VisitRecord

DAY_SECONDS: Final = 86_400.0
RULES: Final[dict[str, tuple[float | None, float, float]]] = {
    "halving": (0.587, 30.0, 50.0),
    "nutch": (0.561, 200.0, 150.0),
    "adaptive": (None, 30.0, 50.0),
}
"""The published rules with the freshness at which they settle, where a table has it, and the days of a run: those in
which they settle, and those that are measured. Nutch uses the time since the last change, which has a longer memory."""
RULE_INTERVAL: Final = DAY_SECONDS
"""The interval of all pages at the start, near that at which the rules settle, so that they need few days for it."""
RULE_CALLS: Final = 48
"""Calls per day."""
NEW_PAGES: Final = {5: (0.291, 0.285, 0.283), 20: (0.192, 0.175, 0.172), 50: (0.127, 0.064, 0.117)}
"""By new pages per unit of time, the coverage of a trial: one currency, new pages first, half of the visits each."""
SHARES: Final[tuple[float | None, ...]] = (None, 1.0, 0.5)
"""The settings `discovery_share` of these three."""
COVERED_BEHIND: Final = 0.04
"""By how much one currency may be behind the better share. The trial had none, at the best one."""
COVERED_BUDGET: Final = 60
COVERED_KNOWN: Final = 400
COVERED_UNITS: Final = 60


def frontier_scheduler(
    pages: Pages,
    price: float,
    *,
    seed: int,
    eta: float = REVISIT_STEP,
    rates: KnownRates | LearnedRates | None = None,
    model: SignalModel | None = None,
) -> FrontierScheduler:
    """The frontier as the scheduler of experiments, in place of `price_calendar`. eta: the step of its price. model:
    None, because it has no signals."""
    assert model is None, "the frontier has no signals"
    # With hosts, a call asks for one page, and the record of a visit may be off by a second.
    unit = UNIT_SECONDS if pages.host is None else 2 * UNIT_SECONDS
    return FrontierScheduler(pages, budget=BUDGET, seed=seed, price=price, step=eta, rates=rates, unit=unit)


def frontier_figures(names: tuple[str, ...], seed: int = 0) -> list[Figure]:
    """As `figures`, with the frontier as the scheduler."""
    return figures(names, seed, frontier_scheduler, FRONTIER_EXPERIMENTS)


def settle(rule: str, seed: int, days: float) -> VisitRecord:
    """Visits the pages of B1 by a rule of the frontier without a rate, with a day as the unit of time."""
    pages, chance = Pages.benchmark(), np.random.default_rng(seed)
    scheduler = FrontierScheduler(pages, rule, budget=None, seed=seed, unit=DAY_SECONDS, interval=RULE_INTERVAL)
    last = np.zeros(len(pages))
    page, time = [], []
    for call in range(round(days * RULE_CALLS)):
        now = call / RULE_CALLS
        taken = scheduler.take(now, len(pages))
        changed = chance.random(len(taken)) < -np.expm1(-pages.rate[taken] * (now - last[taken]))
        last[taken] = now
        scheduler.visited(taken, np.full(len(taken), now), changed)
        page.append(taken)
        time.append(np.full(len(taken), now))
    return VisitRecord(pages, days, np.concatenate(page), np.concatenate(time), scheduler.looks, idle=0)


def rules(seed: int, make: MakeScheduler) -> list[Figure]:
    """E6: the published rules of the frontier lose to equal intervals at the cost at which they settle."""
    found = []
    for name, (known, warm_up, measured) in RULES.items():
        end = warm_up + measured
        visits = settle(name, seed, end)
        pages, fresh = visits.pages, visits.freshness(warm_up, end)
        cost = visits.count(warm_up, end) / measured
        equal = pages.score(np.full(len(pages), cost / len(pages)))
        if known is not None:
            found.append(Figure("E6", f"{name}, by the frontier", known, fresh, 0.01))
        found.append(
            Figure("E6", f"{name}: uniform at its {cost:.0f} visits a day, less it", 0.0, equal - fresh, 0.0, True)
        )
    return found


def coverage_of(new: int, share: float | None, seed: int, *, units: int = COVERED_UNITS) -> float:
    """Returns the coverage: the share of all pages, by importance, of which a fresh copy exists; a page that was never
    visited has none. It is the mean over the second half of `units` units of time.

    400 pages are known at the start, and `new` others appear in each unit of time. Change rates are uniform in
    [0.01, 1] and importances in [0, 1], as in B1. Nothing is known about the rates but their prior of 0.3. share: the
    setting `discovery_share`.
    """
    budget, total = COVERED_BUDGET, COVERED_KNOWN + new * units
    chance = np.random.default_rng(seed)
    rate, importance = chance.uniform(0.01, 1.0, total), chance.uniform(0.0, 1.0, total)
    pages = Pages(rate, importance / importance.sum())
    prior = LearnedRates(total, start=LEARNED_START, confidence=CHANGE_CONFIDENCE_PRIOR, chance=chance, thompson=True)
    # The prior of the frontier is the start of these pages.
    unit = LEARNED_START * CHANGE_SECONDS_PRIOR
    scheduler = FrontierScheduler(
        pages, budget=budget, seed=seed, rates=prior, unit=unit, share=share, known=COVERED_KNOWN
    )
    last = np.where(np.arange(total) < COVERED_KNOWN, 0.0, -np.inf)
    covered, half = 0.0, units * budget // 2
    for slot in range(units * budget):
        now = slot / budget
        here = COVERED_KNOWN + int(np.ceil(now * new + 1e-9))
        scheduler.appear(here, now)
        taken = scheduler.take(now, 1)
        changed = chance.random(len(taken)) < -np.expm1(-rate[taken] * (now - last[taken]))
        last[taken] = now
        scheduler.visited(taken, np.full(len(taken), now), changed)
        if slot >= half:
            weight = importance[:here]
            covered += float(weight @ np.exp(-rate[:here] * (now - last[:here]))) / float(weight.sum())
    return covered / (units * budget - half)


def coverage(seed: int, make: MakeScheduler) -> list[Figure]:
    """Coverage where new pages and visits of known ones share a budget: by value, and in fixed shares."""
    found = []
    for new, trial in NEW_PAGES.items():
        by_value, first, half = (coverage_of(new, share, seed) for share in SHARES)
        for name, expected, measured in zip(
            ("one currency", "new pages first", "half of the visits for each"), trial, (by_value, first, half),
            strict=True,
        ):  # fmt: skip
            found.append(Figure("coverage", f"{new} new pages of 60 visits, {name}", expected, measured, 0.05))
        found.append(
            Figure("coverage", f"{new} new pages of 60 visits, one currency / best other", 1.0,
                   by_value / max(first, half), COVERED_BEHIND, at_least=True)
        )  # fmt: skip
    return found


FRONTIER_EXPERIMENTS: Final[Experiments] = {
    **{name: run for name, run in EXPERIMENTS.items() if name != "E8"},
    "E6": rules,
    "coverage": coverage,
}
"""The experiments of the frontier; those without a scheduler are the same."""
