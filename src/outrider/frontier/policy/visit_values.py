"""The value of visiting a page now, the interval at which it equals a price, and the optimal rates for a budget.

A page changes at random moments, `rate` of them per unit of time (a Poisson process), and a copy is fresh until the
first change after its visit (Cho and Garcia-Molina, "Effective page refresh policies for web crawlers", TODS 2003).
All functions work on columns: their arguments are broadcast, and results are arrays of float64. Any unit of time will
do, as long as rates are per this unit. `importance` is the weight of a page; a price is an importance times a time.

The optimum of a budget has one price: each visit happens when its value has grown to this price, and a page whose value
never reaches it is not visited. So a scheduler needs no list of all pages, only a price that follows the budget.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Final

import numpy as np
import numpy.typing as npt

from outrider.errors import SettingsError

Floats = npt.NDArray[np.float64]

_SERIES_BELOW: Final = 0.5  # below it, differences such as 1 - e^-x (1 + x) would lose digits
_STIRLING: Final = (1.0, 1 / 3, 1 / 36, -1 / 270, 1 / 4320, 1 / 17010)
_STIRLING_BELOW: Final = 0.02  # below it, the series of the Lambert function is exact to the last digits
_STEPS: Final = 2  # steps of Halley from starts that are wrong by 1 % at most: each result is exact to the last digits
_AGE_STEPS: Final = 6  # steps of Newton, the same
_PRICE_STEPS: Final = 200  # bisections of a price: each result is exact, and the loop ends when the price repeats


class Objective(StrEnum):
    """The property of the copies that a scheduler optimises."""

    FRESHNESS = "freshness"
    """The share of the time in which a copy is fresh: pages that change all the time are given up."""
    AGE = "age"
    """The time since a copy was last fresh: no page is given up."""


def freshness(rate: npt.ArrayLike, interval: npt.ArrayLike) -> Floats:
    """The expected share of the time in which a copy is fresh, visited at fixed intervals: (1 - e^-x) / x with
    x = rate * interval. 0 for an infinite interval, 1 for a rate or an interval of 0."""
    x = _product(rate, interval)
    with np.errstate(invalid="ignore", divide="ignore"):
        found: Floats = np.where(x > 0, -np.expm1(-x) / np.where(x > 0, x, 1.0), 1.0)
    return found


def age(rate: npt.ArrayLike, interval: npt.ArrayLike) -> Floats:
    """The expected age of a copy, averaged over time: interval * (1/2 - 1/x + (1 - e^-x) / x²), x = rate * interval."""
    x, wait = np.broadcast_arrays(_product(rate, interval), np.asarray(interval, np.float64))
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        exact = 0.5 - (x + np.expm1(-x)) / (x * x)
        share = np.where(x < _SERIES_BELOW, _age_series(np.minimum(x, _SERIES_BELOW)), exact)
        share = np.where(np.isinf(x), 0.5, share)
        found: Floats = np.where(x > 0, wait * share, 0.0)
    return found


def marginal_freshness(rate: npt.ArrayLike, interval: npt.ArrayLike) -> Floats:
    """How much freshness one more visit per unit of time adds: (1 - e^-x (1 + x)) / rate, x = rate * interval."""
    return value(1.0, rate, interval)


def value(importance: npt.ArrayLike, rate: npt.ArrayLike, waited: npt.ArrayLike) -> Floats:
    """The value of visiting pages now, for freshness: importance / rate * (1 - e^-x (1 + x)), x = rate * waited.

    waited: the time since the last visit. It is infinite for a page that was never visited, and the value is then
    importance / rate, the largest value that the page can have. A page that never changes has a value of 0.
    """
    weight, change = _columns(importance, rate)
    x = _product(change, waited)
    with np.errstate(invalid="ignore", divide="ignore"):
        found: Floats = np.where((change > 0) & (x > 0), weight / change * _gain(x), 0.0)
    return found


def age_value(importance: npt.ArrayLike, rate: npt.ArrayLike, waited: npt.ArrayLike) -> Floats:
    """The value of visiting pages now, for age: importance / rate² * (x²/2 - 1 + e^-x (1 + x)), x = rate * waited.

    It is the age at the end of an interval, times the interval, minus the sum of the age over the interval. It grows
    without a limit, so it is infinite for a page that was never visited.
    """
    weight, change = _columns(importance, rate)
    x = _product(change, waited)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        found: Floats = np.where((change > 0) & (x > 0) & (weight > 0), weight / change / change * _age_gain(x), 0.0)
    return found


def interval(price: npt.ArrayLike, importance: npt.ArrayLike, rate: npt.ArrayLike) -> Floats:
    """The interval after which the value of a page equals the price, for freshness; infinite where it never does.

    With y = price * rate / importance the interval is x / rate, x = -1 - W(-(1 - y) / e), W being the branch -1 of the
    Lambert function. It is infinite for y >= 1, for an importance of 0, and for a page that never changes.
    """
    weight, change = _columns(importance, rate)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        y = np.asarray(price, np.float64) * change / weight
        never = ~(y < 1.0) | ~(weight > 0) | ~(change > 0)
        x = _lambert(np.where(never, 0.5, np.maximum(y, 0.0)))
        found: Floats = np.where(never, np.inf, x / change)
    return found


def age_interval(price: npt.ArrayLike, importance: npt.ArrayLike, rate: npt.ArrayLike) -> Floats:
    """The interval after which the value of a page for age equals the price: x²/2 - 1 + e^-x (1 + x) = price * rate² /
    importance. It is infinite only for an importance of 0, or for a page that never changes."""
    weight, change = _columns(importance, rate)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        y = np.asarray(price, np.float64) * change * change / weight
        never = ~(y < np.inf) | ~(weight > 0) | ~(change > 0)
        y = np.where(never, 0.5, np.maximum(y, 0.0))
        # The starts are the two ends of the curve, x³/3 and x²/2 - 1; it is convex between them.
        x = np.maximum(np.cbrt(3.0 * y), np.sqrt(2.0 * y))
        for _ in range(_AGE_STEPS):
            slope = -x * np.expm1(-x)
            x = np.where(slope > 0, np.maximum(x - (_age_gain(x) - y) / np.where(slope > 0, slope, 1.0), 0.0), x)
        found: Floats = np.where(never, np.inf, x / change)
    return found


INTERVALS: Final[dict[Objective, Callable[[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike], Floats]]] = {
    Objective.FRESHNESS: interval,
    Objective.AGE: age_interval,
}
VALUES: Final[dict[Objective, Callable[[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike], Floats]]] = {
    Objective.FRESHNESS: value,
    Objective.AGE: age_value,
}


def price_of(
    budget: float, importance: npt.ArrayLike, rate: npt.ArrayLike, objective: Objective = Objective.FRESHNESS
) -> float:
    """The price at which the visits of all pages need the budget, in visits per unit of time (Lagrange, by bisection).

    0 if no page has a value: then any budget is too large. Raises SettingsError for a budget that is not above 0.
    """
    if not 0 < budget < np.inf:
        raise SettingsError(f"budget {budget!r}: use a number of visits per unit of time above 0")
    weight, change = (np.atleast_1d(column) for column in _columns(importance, rate))
    worth = (weight > 0) & (change > 0)
    if not worth.any():
        return 0.0
    weight, change = weight[worth], change[worth]
    intervals = INTERVALS[objective]
    # At this price each page is visited at an interval of at most pages / budget, so the budget is exceeded.
    low = float(np.min(VALUES[objective](weight, change, len(weight) / budget)))
    high = max(low, np.finfo(np.float64).tiny)
    while np.sum(1.0 / intervals(high, weight, change)) > budget:
        high *= 4.0
    low = max(low, np.finfo(np.float64).tiny)
    for _ in range(_PRICE_STEPS):
        middle = low * np.sqrt(high / low)
        if not low < middle < high:
            break
        if np.sum(1.0 / intervals(middle, weight, change)) > budget:
            low = float(middle)
        else:
            high = float(middle)
    return high


def optimal_rates(
    budget: float, importance: npt.ArrayLike, rate: npt.ArrayLike, objective: Objective = Objective.FRESHNESS
) -> Floats:
    """The visits of each page per unit of time that are optimal for a budget; 0 for a page that is given up.

    Raises SettingsError for a budget that is not above 0. Source: Cho and Garcia-Molina 2003, with the closed form of
    `interval`.
    """
    found: Floats = 1.0 / INTERVALS[objective](price_of(budget, importance, rate, objective), importance, rate)
    return found


def stretch_of(wanted: float, budget: float) -> float:
    """The factor by which all intervals are longer, so that visits stay within the budget; 1 if they do so already.

    wanted: the visits per unit of time that the intervals of a rule add up to. budget: the visits that are allowed.
    """
    return max(1.0, wanted / budget)


def _columns(importance: npt.ArrayLike, rate: npt.ArrayLike) -> tuple[Floats, Floats]:
    weight, change = np.broadcast_arrays(np.asarray(importance, np.float64), np.asarray(rate, np.float64))
    return weight, change


def _product(rate: npt.ArrayLike, time: npt.ArrayLike) -> Floats:
    """The changes that are expected in a time; 0 for a page that never changes, also in an infinite time."""
    change, length = np.asarray(rate, np.float64), np.asarray(time, np.float64)
    with np.errstate(invalid="ignore"):
        found: Floats = np.where((change > 0) & (length > 0), change * length, 0.0)
    return found


def _gain(x: Floats) -> Floats:
    """1 - e^-x (1 + x), to the last digits also for small x."""
    small = np.minimum(x, _SERIES_BELOW)
    term = 0.5 * small * small  # the sum over k >= 2 of (-1)^k x^k (k - 1) / k!
    series = term.copy()
    for k in range(3, 17):
        term = term * (-small) / k * ((k - 1) / (k - 2))
        series += term
    with np.errstate(invalid="ignore", over="ignore"):
        exact = -np.expm1(-x) - np.where(np.isinf(x), 0.0, x * np.exp(-x))
    found: Floats = np.where(x < _SERIES_BELOW, series, exact)
    return found


def _age_gain(x: Floats) -> Floats:
    """x²/2 - 1 + e^-x (1 + x), to the last digits also for small x."""
    small = np.minimum(x, _SERIES_BELOW)
    term = small * small * small / 3.0
    series = term.copy()
    for k in range(4, 18):
        term = term * (-small) / k * ((k - 1) / (k - 2))
        series += term
    with np.errstate(over="ignore"):
        exact = 0.5 * x * x - _gain(x)
    found: Floats = np.where(x < _SERIES_BELOW, series, exact)
    return found


def _age_series(x: Floats) -> Floats:
    """1/2 - 1/x + (1 - e^-x) / x² for small x: the sum over k >= 3 of (-1)^(k-1) x^(k-2) / k!."""
    term = x / 6.0
    series = term.copy()
    for k in range(4, 18):
        term = term * (-x) / k
        series += term
    return series


def _lambert(y: Floats) -> Floats:
    """The x of 1 - e^-x (1 + x) = y for y in [0, 1): by Halley's method on x - ln(1 + x) = -ln(1 - y).

    This form keeps all digits at both ends: for small y, which a difference would lose, and for y near 1.
    """
    height = -np.log1p(-y)
    root = np.sqrt(2.0 * height)
    near = np.zeros_like(root)
    for factor in reversed(_STIRLING):
        near = (near + factor) * root
    # Away from 0 the logarithm is a small correction; the start is the equation, used twice as an iteration.
    far = height + np.log1p(height + np.log1p(height + root))
    x = np.where(height < 2.0, near, far)
    with np.errstate(invalid="ignore", divide="ignore"):
        for _ in range(_STEPS):
            error = x - np.log1p(x) - height
            x = x - error / (x / (1.0 + x) - error / (2.0 * x * (1.0 + x)))
    return np.where(root < _STIRLING_BELOW, near, x)
