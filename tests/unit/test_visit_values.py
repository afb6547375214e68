"""The value of a visit, its inverse, and the optimum of a budget: published examples, theorems and limits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from outrider.errors import SettingsError
from outrider.frontier.policy.visit_values import (
    INTERVALS,
    VALUES,
    Objective,
    age,
    age_interval,
    age_value,
    freshness,
    interval,
    marginal_freshness,
    optimal_rates,
    price_of,
    stretch_of,
    value,
)

FIVE = np.arange(1.0, 6.0)
"""Five pages that change 1 to 5 times a day: the published example, with 5 visits a day."""
POSITIVE = st.floats(1e-9, 1e9)


def test_the_freshness_optimum_of_five_pages_is_the_published_one():
    rates = optimal_rates(5.0, 1.0, FIVE)
    assert_allclose(rates, [1.1499, 1.3584, 1.3538, 1.1379, 0.0], atol=1e-4)
    with np.errstate(divide="ignore"):
        assert 0.37389 == pytest.approx(float(freshness(FIVE, 1.0 / rates).mean()), abs=1e-4)
    assert 0.216432 == pytest.approx(price_of(5.0, 1.0, FIVE), abs=1e-6)
    assert 0.3651 == pytest.approx(float(freshness(FIVE, 1.0).mean()), abs=1e-4)
    assert 0.3167 == pytest.approx(float(freshness(FIVE, 3.0 / FIVE).mean()), abs=1e-4)


def test_the_age_optimum_of_five_pages_is_the_published_one():
    rates = optimal_rates(5.0, 1.0, FIVE, Objective.AGE)
    assert_allclose(rates, [0.8349, 0.9679, 1.0335, 1.0706, 1.0931], atol=1e-4)
    assert 0.25034 == pytest.approx(float(age(FIVE, 1.0 / rates).mean()), abs=1e-4)
    assert 0.2543 == pytest.approx(float(age(FIVE, 1.0).mean()), abs=1e-4)
    assert 0.3730 == pytest.approx(float(age(FIVE, 3.0 / FIVE).mean()), abs=1e-4)


def test_the_optimum_of_a_thousand_pages_is_the_known_one():
    chance = np.random.default_rng(7)
    rate = chance.uniform(0.01, 1, 1_000)
    weight = chance.uniform(0, 1, 1_000)
    weight /= weight.sum()
    rates = optimal_rates(100.0, weight, rate)
    assert 100.0 == pytest.approx(rates.sum(), rel=1e-9)
    assert 461 == np.count_nonzero(rates == 0)
    with np.errstate(divide="ignore"):
        assert 0.36131 == pytest.approx(float(weight @ freshness(rate, 1.0 / rates)), abs=1e-5)


def test_equal_visits_are_never_worse_than_visits_in_proportion_to_the_changes():
    chance = np.random.default_rng(3)
    for _ in range(1_000):
        pages = chance.integers(2, 50)
        rate = chance.lognormal(0.0, chance.uniform(0.1, 3.0), pages)
        budget = pages * chance.lognormal(0.0, 2.0)
        equal = freshness(rate, pages / budget).mean()
        proportional = freshness(rate, rate.sum() / (rate * budget)).mean()
        assert equal >= proportional - 1e-12


@pytest.mark.parametrize("objective", Objective)
def test_no_other_division_of_the_budget_is_better_than_the_optimum(objective):
    chance = np.random.default_rng(4)
    rate, weight = chance.lognormal(0, 1, 40), chance.uniform(0.1, 1, 40)
    best = optimal_rates(20.0, weight, rate, objective)

    def score(rates):
        with np.errstate(divide="ignore"):
            waits = 1.0 / rates
        if objective == Objective.FRESHNESS:
            return float(weight @ freshness(rate, waits))
        return -float(weight @ age(rate, waits))

    top = score(best)
    for _ in range(200):
        other = np.maximum(best * np.exp(chance.normal(0, 0.3, 40)), 1e-3)
        assert score(other * 20.0 / other.sum()) <= top + 1e-12


@drawn(price=POSITIVE, weight=POSITIVE, rate=POSITIVE, objective=st.sampled_from(Objective))
def test_the_value_after_the_interval_is_the_price(price, weight, rate, objective):
    wait = float(INTERVALS[objective](price, weight, rate))
    assert wait > 0
    if wait == np.inf:
        assert price >= (1 - 1e-12) * weight / rate
    else:
        assert price == pytest.approx(float(VALUES[objective](weight, rate, wait)), rel=1e-9)


@pytest.mark.parametrize("objective", Objective)
def test_intervals_are_the_inverse_of_the_value_from_tiny_to_huge(objective):
    x = np.logspace(-140, 1.2, 2_000) if objective == Objective.FRESHNESS else np.logspace(-90, 9, 2_000)
    assert_allclose(INTERVALS[objective](VALUES[objective](1.0, 1.0, x), 1.0, 1.0), x, rtol=1e-8)


def test_intervals_keep_their_digits_at_both_ends():
    """For small y the interval is sqrt(2 y) (1 + sqrt(2 y) / 3 + …); near 1, e^-x (1 + x) = 1 - y."""
    small = np.array([1e-300, 1e-30, 1e-12, 1e-8])
    root = np.sqrt(2 * small)
    assert_allclose(interval(small, 1.0, 1.0), root * (1 + root / 3 + 11 * small / 36), rtol=1e-10)
    rest = np.array([2.0**-20, 2.0**-40, 2.0**-52])
    x = interval(1.0 - rest, 1.0, 1.0)
    assert_allclose(np.exp(-x) * (1 + x), rest, rtol=1e-10)
    assert_allclose(interval(1.0, 1.0, np.array([1.0, 1.0 + 1e-15, 2.0])), np.inf)


def test_the_value_grows_with_the_waiting_to_the_value_of_a_page_that_was_never_visited():
    waits = np.linspace(0, 200, 5_000)
    assert np.all(np.diff(value(2.0, 0.5, waits)) >= 0)
    assert 4.0 == value(2.0, 0.5, np.inf) == pytest.approx(float(value(2.0, 0.5, 200.0)))
    assert np.all(np.diff(age_value(2.0, 0.5, waits)) > 0)
    assert np.inf == age_value(2.0, 0.5, np.inf)


def test_pages_that_never_change_or_do_not_matter_are_never_due():
    assert_allclose(interval(0.1, [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]), np.inf)
    assert_allclose(age_interval(0.1, [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]), np.inf)
    assert_allclose(value([0.0, 1.0], [1.0, 0.0], np.inf), 0.0)
    assert_allclose(age_value([0.0, 1.0], [1.0, 0.0], np.inf), 0.0)
    assert_allclose(freshness(0.0, [1.0, np.inf]), 1.0)
    assert_allclose(age(0.0, [1.0, np.inf]), 0.0)


def test_a_price_of_zero_makes_each_page_due_at_once():
    assert 0.0 == interval(0.0, 1.0, 1.0) == age_interval(0.0, 1.0, 1.0)


def test_freshness_and_age_are_the_averages_over_an_interval():
    """The probability to be fresh after t is e^-t, and the expected age is t - (1 - e^-t), for one change per unit."""
    for wait in (1e-7, 0.01, 0.3, 2.0, 40.0):
        times = np.linspace(0, wait, 200_001)
        fresh, old = np.exp(-times), times + np.expm1(-times)
        assert float(np.trapezoid(fresh, times) / wait) == pytest.approx(float(freshness(1.0, wait)), rel=1e-6)
        assert float(np.trapezoid(old, times) / wait) == pytest.approx(float(age(1.0, wait)), rel=1e-6)


def test_one_more_visit_adds_the_marginal_freshness():
    for rate, visits in ((0.3, 1.0), (2.0, 0.4), (1.0, 30.0)):
        more = freshness(rate, 1 / (visits + 1e-6)) - freshness(rate, 1 / (visits - 1e-6))
        assert float(more) / 2e-6 == pytest.approx(float(marginal_freshness(rate, 1 / visits)), rel=1e-5)


@pytest.mark.parametrize("budget", [0.0, -1.0, float("nan"), float("inf")])
def test_a_budget_that_is_not_above_zero_is_refused(budget):
    with pytest.raises(SettingsError, match="budget"):
        price_of(budget, 1.0, FIVE)


def test_pages_without_a_value_have_a_price_of_zero_and_get_no_visit():
    assert 0.0 == price_of(5.0, 0.0, FIVE) == price_of(5.0, 1.0, np.zeros(3))
    assert_allclose(optimal_rates(5.0, 0.0, FIVE), 0.0)


def test_intervals_are_stretched_only_where_they_need_more_than_the_budget():
    assert 2.0 == stretch_of(20.0, 10.0)
    assert 1.0 == stretch_of(5.0, 10.0)
