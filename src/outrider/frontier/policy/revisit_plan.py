"""When each page is visited again: one plan for all revisit rules, over columns of pages.

A plan has one number besides the pages, its level, which follows the budget of fetches. A page waits, from its last
visit on,

    published rules    the delay of its rule, times e^level: all delays are stretched by one factor, 1 at least
    uniform            e^level seconds, the same for all pages
    optimal, age       until its value has grown to the price e^level; pages that never get there are given up

After each visit, a page also learns how often it changes (`change_rates.py`), under every rule. So the rule may change
at any time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from outrider.errors import SettingsError, shown
from outrider.frontier.policy.change_rates import after_visits, rate_of
from outrider.frontier.policy.revisit_rules import RULES, Halving, Rule, Shown, Uniform, host_class_seconds
from outrider.frontier.policy.signal_values import SignalModel, signal_interval, signal_value
from outrider.frontier.policy.visit_values import INTERVALS, VALUES, Objective, freshness, price_of
from outrider.limits import REVISIT_PRICE_MIN, REVISIT_SECONDS_MAX

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.integer[Any]]

PRICED: Final = {"optimal": Objective.FRESHNESS, "age": Objective.AGE}
"""The rules that visit a page when its value exceeds a price."""
NAMES: Final = (*RULES, *PRICED)
"""All rules by name."""
NEEDS_RATE: Final = ("uniform", *PRICED)
"""The rules that have no intervals of their own: they use the budget, so they need one."""


@dataclass(frozen=True, slots=True)
class Heard:
    """The signals of pages, in columns. signals: how many arrived since the last visit; recall, noise: of their hosts
    (signal_values.py), 0 for a page without dates; proven: whether enough visits to its host showed that."""

    signals: Floats
    recall: Floats
    noise: Floats
    proven: Flags

    def take(self, rows: npt.NDArray[Any]) -> Self:
        """Returns the pages of these rows."""
        return type(self)(self.signals[rows], self.recall[rows], self.noise[rows], self.proven[rows])

    def visited(self) -> Self:
        """Returns the same after a visit of all pages."""
        return replace(self, signals=np.zeros(len(self.signals)))


@dataclass(frozen=True, slots=True)
class PlannedPages:
    """Pages in columns. theta, confidence: what their visits showed about their changes, with the prior where that is
    nothing; interval, memory: the numbers of a published rule, 0 without any; importance: the weight of each page;
    heard: their signals, None if no page has a date."""

    theta: Floats
    confidence: Floats
    interval: Floats
    memory: Floats
    importance: Floats
    heard: Heard | None = None

    def __len__(self) -> int:
        return len(self.theta)

    @property
    def columns(self) -> tuple[Floats, ...]:
        """The columns, in the order of the arguments."""
        return self.theta, self.confidence, self.interval, self.memory, self.importance

    def take(self, rows: npt.ArrayLike) -> Self:
        """Returns the pages of these rows."""
        chosen = np.asarray(rows)
        taken = type(self)(*(column[chosen] for column in self.columns))
        return taken if self.heard is None else replace(taken, heard=self.heard.take(chosen))

    def model(self) -> SignalModel:
        """Returns how the changes of these pages are signalled; some page must have a date."""
        assert self.heard is not None
        return SignalModel.of(rate_of(self.theta), self.heard.recall, self.heard.noise)


@dataclass(frozen=True, slots=True)
class Visited:
    """What a function over columns gets: the visits that ended, a row each.

    change_rate: changes a second as learned; change_confidence: about how many changes were seen; interval: the seconds
    that the function returned the last time, 0 for a first visit; waited: the seconds since the last visit, 0 for a
    first visit; changed, first: whether the page changed, and whether this is its first visit; priority."""

    change_rate: Floats
    change_confidence: Floats
    interval: Floats
    waited: Floats
    changed: npt.NDArray[np.bool_]
    first: npt.NDArray[np.bool_]
    priority: Floats


RevisitFunction = Callable[[Visited], npt.ArrayLike]
"""A rule of a caller: returns the seconds until the next visit of each page, shape (n,), from 0 on."""


class Plan:
    """The plan of one rule: a name of `NAMES`, or a function of `Visited`."""

    def __init__(self, rule: str | RevisitFunction) -> None:
        self.name = rule if isinstance(rule, str) else getattr(rule, "__qualname__", "function")
        self._function = None if isinstance(rule, str) else rule
        self._objective = PRICED.get(rule) if isinstance(rule, str) else None
        self._rule: Rule | None = RULES.get(rule) if isinstance(rule, str) else None

    def __repr__(self) -> str:
        return f"<Plan {self.name}>"

    @property
    def priced(self) -> bool:
        """Whether pages are chosen by their value."""
        return self._objective is not None

    @property
    def objective(self) -> Objective | None:
        """What the visits optimise, None for a rule without a price."""
        return self._objective

    @property
    def level_min(self) -> float:
        """The lowest level: published rules are never faster than they say."""
        if self._objective is not None:
            return math.log(REVISIT_PRICE_MIN)
        return -math.inf if isinstance(self._rule, Uniform) else 0.0

    @property
    def known_level(self) -> float | None:
        """The level to begin with, None if it depends on the pages: only published rules begin without a stretch."""
        return None if self._objective is not None or isinstance(self._rule, Uniform) else 0.0

    def first_level(self, pages: PlannedPages, count: int, rate: float) -> float:
        """Returns the level at which the visits of all planned pages need the whole rate, if they are as these, one at
        least. count: of all planned pages; rate: fetches a second."""
        equal = max(count, 1) / rate
        if self._objective is not None:
            price = price_of(len(pages) / equal, pages.importance, rate_of(pages.theta), self._objective)
            return math.log(max(price, REVISIT_PRICE_MIN))
        return math.log(equal)

    def after(
        self, pages: PlannedPages, shown: Codes, waited: Floats, age: Floats, first: npt.NDArray[np.bool_]
    ) -> PlannedPages:
        """Returns pages after a visit. shown: codes of `Shown`; waited: seconds since the visit before; age: seconds
        since the last change where its date is known, otherwise NaN; first: the first visits. Raises SettingsError for
        a wrong result of a caller's function."""
        shows = shown != Shown.NOTHING
        theta, confidence = after_visits(
            pages.theta, pages.confidence, np.where(shows, waited, 0.0), shown == Shown.CHANGED, age
        )
        learned = replace(pages, theta=theta, confidence=confidence)
        if self._function is not None:
            seen = Visited(
                rate_of(theta), confidence, pages.interval, waited, shown == Shown.CHANGED, first, pages.importance
            )
            return replace(learned, interval=_seconds_of(self._function, seen), memory=np.zeros(len(pages)))
        if self._rule is None or isinstance(self._rule, Uniform):
            return learned
        begun = host_class_seconds(rate_of(pages.theta)) if isinstance(self._rule, Halving) else None
        found = self._rule.after(pages.interval, pages.memory, shown, waited, begun)
        return replace(learned, interval=found.interval, memory=found.memory)

    def waits(self, pages: PlannedPages, level: npt.ArrayLike) -> Floats:
        """Returns the seconds from its last visit to the next one of each page; infinite for a page that is given up.
        level: one number, or one for each page."""
        if pages.heard is None:
            return self._waits(pages, level)
        model, signals = pages.model(), pages.heard.signals
        if self._objective is Objective.FRESHNESS:
            return signal_interval(np.exp(np.asarray(level, np.float64)), model, pages.importance, signals)
        # No formula is known: a signal is time that has been waited already.
        return np.maximum(self._waits(pages, level) - _times_heard(model, signals), 0.0)

    def _waits(self, pages: PlannedPages, level: npt.ArrayLike) -> Floats:
        factor = np.exp(np.asarray(level, np.float64))
        if self._objective is not None:
            return INTERVALS[self._objective](factor, pages.importance, rate_of(pages.theta))
        if isinstance(self._rule, Uniform):
            return np.broadcast_to(factor, pages.theta.shape)
        if self._rule is None:
            delays = np.where(pages.interval > 0, pages.interval, 0.0)
        else:
            delays = self._rule.delays(pages.interval, pages.memory)
        found: Floats = np.minimum(delays * factor, REVISIT_SECONDS_MAX)
        return found

    def values(self, pages: PlannedPages, waited: npt.ArrayLike) -> Floats:
        """Returns the value of visiting pages now, of which the price is one; 0 for rules without a price."""
        if self._objective is None:
            return np.zeros(len(pages))
        if pages.heard is not None:
            model, signals = pages.model(), pages.heard.signals
            if self._objective is Objective.FRESHNESS:
                return signal_value(model, pages.importance, waited, signals)
            waited = np.asarray(waited, np.float64) + _times_heard(model, signals)
        return VALUES[self._objective](pages.importance, rate_of(pages.theta), waited)

    def fresh_shares(self, pages: PlannedPages, level: npt.ArrayLike) -> Floats:
        """Returns the expected share of the time in which each copy is fresh."""
        return freshness(rate_of(pages.theta), self.waits(pages, level))


def _times_heard(model: SignalModel, signals: Floats) -> Floats:
    """Returns the seconds that signals are worth, `REVISIT_SECONDS_MAX` at most."""
    worth = model.effective_age(0.0, signals)
    return np.minimum(np.where(np.isnan(worth), 0.0, worth), REVISIT_SECONDS_MAX)


def _seconds_of(function: RevisitFunction, seen: Visited) -> Floats:
    """Returns what a function over columns says, checked."""
    given = function(seen)
    name = getattr(function, "__qualname__", repr(function))
    try:
        found = np.asarray(given, np.float64)
    except (TypeError, ValueError):
        raise SettingsError(f"revisit function {name}: it returned {shown(given)}; use an array of seconds") from None
    if found.shape != seen.waited.shape:
        raise SettingsError(
            f"revisit function {name}: it returned values of shape {found.shape} for {len(seen.waited)} pages; "
            "use one number of seconds for each page"
        )
    if not (found >= 0).all():
        raise SettingsError(f"revisit function {name}: it returned {shown(given)}; use seconds from 0")
    return np.minimum(found, REVISIT_SECONDS_MAX)
