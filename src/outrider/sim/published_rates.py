"""Formulas that are published for comparison and that no crawl uses: visit rates by other goals, and estimators.

Columns as in `policy/visit_values.py`: any unit of time, arrays of float64 as results.
"""

from __future__ import annotations

from math import comb
from typing import Final

import numpy as np
import numpy.typing as npt

from outrider.frontier.policy.visit_values import Floats

_STEPS: Final = 200


def azar_rates(budget: float, importance: npt.ArrayLike, rate: npt.ArrayLike) -> Floats:
    """The rates of visits at random moments that keep most requests fresh: max(0, sqrt(w * rate / L) - rate), with the
    L of the budget. Source: Azar, Horvitz, Lubetzky, Peres and Shahaf, PNAS 2018."""
    weight, change = _columns(importance, rate)
    order = np.argsort(-weight / change)
    roots = np.cumsum(np.sqrt(weight * change)[order])
    rates = np.cumsum(change[order])
    # With the first k pages, 1 / sqrt(L) is (budget + their rates) / their roots. The last k whose page has a visit.
    scale = (budget + rates) / roots
    visited = np.flatnonzero(scale * np.sqrt(weight / change)[order] > 1.0)
    found: Floats = np.maximum(0.0, scale[visited[-1]] * np.sqrt(weight * change) - change)
    return found


def lambda_crawl_rates(budget: float, importance: npt.ArrayLike, rate: npt.ArrayLike) -> Floats:
    """The rates of visits at random moments for a cost that grows with each missed change, as the harmonic numbers:
    (sqrt(rate² + 4 w rate / L) - rate) / 2, with the L of the budget. Each page is visited.

    Source: LambdaCrawl (Kolobov, Peres, Lu and Horvitz, NeurIPS 2019).
    """
    weight, change = _columns(importance, rate)
    low, high = -100.0, 100.0  # logarithms of 1 / L
    found = change
    for _ in range(_STEPS):
        middle = 0.5 * (low + high)
        found = 0.5 * (np.sqrt(change * change + 4.0 * weight * change * np.exp(middle)) - change)
        low, high = (middle, high) if found.sum() < budget else (low, middle)
    return found


def notified_shares(budget: float, importance: npt.ArrayLike, rate: npt.ArrayLike) -> Floats:
    """The share of change notices after which a page is visited, where each change is notified: min(1, budget * w /
    (rate * sum of w)), repeated over the other pages while shares reach 1. Source: LambdaCrawl."""
    weight, change = _columns(importance, rate)
    share = np.ones(len(weight))
    free = weight > 0
    left = budget
    while free.any():
        wanted = left * weight[free] / (change[free] * weight[free].sum())
        share[free] = np.minimum(wanted, 1.0)
        full = free.copy()
        full[free] = wanted >= 1.0
        if not full.any():
            break
        left -= float(change[full].sum())
        free &= ~full
    return np.where(weight > 0, share, 0.0)


def harmonic_cost(visits: npt.ArrayLike, importance: npt.ArrayLike, rate: npt.ArrayLike) -> float:
    """The cost that LambdaCrawl minimises: -sum of w * ln(visits / (visits + rate))."""
    weight, change = _columns(importance, rate)
    rates = np.asarray(visits, np.float64)
    return -float(np.sum(weight * np.log(rates / (rates + change))))


def random_freshness(visits: npt.ArrayLike, rate: npt.ArrayLike) -> Floats:
    """The expected freshness of visits at random moments (a Poisson process): visits / (visits + rate)."""
    rates = np.asarray(visits, np.float64)
    found: Floats = rates / (rates + np.asarray(rate, np.float64))
    return found


def naive_rate(changed: npt.ArrayLike, visits: int, interval: float) -> Floats:
    """The changed visits per time: too low, since several changes between two visits count as one."""
    found: Floats = np.asarray(changed, np.float64) / (visits * interval)
    return found


def corrected_rate(changed: npt.ArrayLike, visits: int, interval: float) -> Floats:
    """The estimator for regular intervals: -ln((n - X + 0.5) / (n + 0.5)) / interval for X changed visits of n.

    Source: Cho and Garcia-Molina, "Estimating frequency of change", TOIT 2003.
    """
    found: Floats = -np.log((visits - np.asarray(changed, np.float64) + 0.5) / (visits + 0.5)) / interval
    return found


def moments(estimates: Floats, chance: float) -> tuple[float, float]:
    """The mean and the standard deviation of an estimate over all counts of changed visits, as exact sums.

    estimates: one per count, 0 to the number of visits. chance: that a visit sees a change.
    """
    visits = len(estimates) - 1
    odds = np.array([comb(visits, k) * chance**k * (1.0 - chance) ** (visits - k) for k in range(visits + 1)])
    mean = float(odds @ estimates)
    return mean, float(np.sqrt(odds @ (estimates - mean) ** 2))


def _columns(importance: npt.ArrayLike, rate: npt.ArrayLike) -> tuple[Floats, Floats]:
    weight, change = np.broadcast_arrays(np.asarray(importance, np.float64), np.asarray(rate, np.float64))
    return weight, change
