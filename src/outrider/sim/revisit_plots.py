"""Plots of the experiments on visits: the price from nine starts (E5), the published rules (E6), and learning (E7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from outrider.chart import SERIES, Drawing, Scale
from outrider.sim.price_calendar import price_calendar
from outrider.sim.revisit_experiments import (
    BUDGET,
    LEARNED_UNITS,
    MakeScheduler,
    learned_runs,
    price_runs,
    settled_rules,
)
from outrider.sim.revisit_worlds import Pages, VisitRecord

_WIDTH, _HEIGHT = 760.0, 440.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 64.0, 30.0, 84.0, 60.0
_BLOCKS: Final = 25
_COSTS: Final = np.linspace(100.0, 1_000.0, 46)


def price_plot(seed: int, make: MakeScheduler = price_calendar) -> str:
    """E5 as a drawing: freshness over that of the optimum, from each start price and step, over time."""
    optimum = Pages.benchmark().optimum(BUDGET)
    return _shares(
        "One price finds the optimum from nine starts",
        f"Freshness / optimum ({optimum:.5f}), by eta, the step of the price, and the start price / final price.",
        [(name.removeprefix("eta "), visits, optimum) for name, visits in price_runs(seed, make)],
        0.9,
    )


def learning_plot(seed: int, make: MakeScheduler = price_calendar) -> str:
    """E7 as a drawing: freshness over that of the optimum with known rates, over time."""
    return _shares(
        "Change rates learned from one bit per visit",
        f"Freshness / optimum with known rates. {LEARNED_UNITS * BUDGET / 1_000:g} visits per page in all.",
        [(name, visits, visits.pages.optimum(BUDGET)) for name, visits in learned_runs(seed, make)],
        0.9,
    )


def rules_plot(seed: int, make: MakeScheduler = price_calendar) -> str:
    """E6 as a drawing: the freshness at which each rule settles, below equal intervals and the optimum at its cost."""
    pages = Pages.benchmark()
    picture, floor, right = _frame("Published rules cost freshness", "Dots: where a rule settles, by its cost.")
    x = Scale(float(_COSTS[0]), float(_COSTS[-1]), _LEFT, right)
    y = Scale(0.2, 0.9, floor, _TOP)
    picture.rows(y, [(tenth / 10, f"{tenth / 10:.1f}") for tenth in range(2, 10)], _LEFT, right)
    for visits in range(100, 1_001, 100):
        picture.text(x(visits), floor + 18, str(visits), anchor="middle")
    picture.text((_LEFT + right) / 2, floor + 38, "visits a day, 1,000 pages", anchor="middle")
    best = [(x(cost), y(pages.optimum(cost))) for cost in _COSTS.tolist()]
    equal = [(x(cost), y(pages.score(np.full(len(pages), cost / len(pages))))) for cost in _COSTS.tolist()]
    picture.curve(best, colour=SERIES[0])
    picture.text(best[9][0], best[9][1] - 8, "optimum", anchor="end", colour=SERIES[0])
    picture.curve(equal, colour=SERIES[2])
    picture.text(equal[9][0], equal[9][1] + 20, "equal intervals", colour=SERIES[2])
    # From the right to the left, so that the lines from the dots to this list do not cross each other.
    for place, made in enumerate(sorted(settled_rules(seed), key=lambda one: -one.visits)):
        left, top = x(made.visits), y(made.freshness)
        picture.dot(left, top, 5, colour=SERIES[3])
        label = (x(585.0), y(0.5) + 24 * place)
        picture.leader(left, top, label[0] - 4, label[1] - 4, SERIES[3])
        picture.text(*label, f"{made.name}: {made.freshness:.3f} at {made.visits:.0f}", kind="value")
    return str(picture)


PLOTS: Final[dict[str, tuple[str, Callable[..., str]]]] = {
    "E5": ("freshness-price.svg", price_plot),
    "E6": ("freshness-rules.svg", rules_plot),
    "E7": ("freshness-learning.svg", learning_plot),
}
"""The file name and the drawing of each experiment that has one."""


def _frame(title: str, about: str) -> tuple[Drawing, float, float]:
    picture = Drawing(_WIDTH, _HEIGHT, title, alone=True)
    picture.text(_LEFT, 30, title, kind="title")
    picture.text(_LEFT, 52, about)
    return picture, _HEIGHT - _BOTTOM, _WIDTH - _RIGHT


def _shares(title: str, about: str, runs: list[tuple[str, VisitRecord, float]], least: float) -> str:
    """A drawing of freshness over the optimum in blocks of time, one line per run."""
    picture, floor, right = _frame(title, about)
    length = runs[0][1].seconds
    x, y = Scale(0.0, length, _LEFT, right), Scale(least, 1.02, floor, _TOP)
    picture.rows(y, [(share / 100, f"{share} %") for share in range(round(least * 100), 103, 2)], _LEFT, right)
    for fifth in range(6):
        picture.text(x(length * fifth / 5), floor + 18, f"{length * fifth / 5:g}", anchor="middle")
    picture.text((_LEFT + right) / 2, floor + 38, "units of time", anchor="middle")
    for place, (name, visits, optimum) in enumerate(runs):
        # All copies are fresh at first, so the first block is not a measure of the scheduler.
        blocks = visits.blocks(length / _BLOCKS, _BLOCKS - 1)
        shares = [((start + end) / 2, visits.freshness(start, end) / optimum) for start, end in blocks]
        colour = SERIES[place % len(SERIES)]
        picture.curve(((x(at), y(share)) for at, share in shares if share >= least), colour=colour, width=1.5)
        column, row = divmod(place, 3)
        picture.text(x(length * 0.36) + 145 * column, floor - 52 + 18 * row, name, colour=colour)
    return str(picture)
