"""The change rates of hosts: the prior of unknown pages, in a chain that begins with a change a week."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from outrider.frontier.policy.host_rates import PRIOR_THETA, HostRates, level_theta
from outrider.limits import (
    CHANGE_RATE_MAX,
    CHANGE_RATE_MIN,
    CHANGE_SECONDS_PRIOR,
    HOST_RATE_CONFIDENCE,
    HOST_RATE_CRAWL_CONFIDENCE,
    HOST_RATE_VISITS_MAX,
)

UNKNOWN = 999


def names(*hosts: int) -> np.ndarray:
    return np.array(hosts, np.uint64)


def visit(rates: HostRates, host: int, waited: float, changed: bool, count: int = 1, age: float = math.nan) -> None:
    rates.learn(
        np.full(count, host, np.uint64), np.full(count, waited), np.full(count, changed), np.full(count, age)
    )  # fmt: skip


def theta(rates: HostRates, host: int) -> float:
    return float(rates.thetas(names(host))[0])


def test_before_any_visit_each_page_changes_once_a_week():
    assert [PRIOR_THETA] * 2 == HostRates().thetas(names(1, 2)).tolist()
    assert CHANGE_SECONDS_PRIOR == pytest.approx(math.exp(-PRIOR_THETA))


@drawn(
    changes=st.floats(0, 50), time=st.just(0) | st.floats(1e-6, 1e6), above=st.floats(-15, 0), weight=st.floats(0.1, 5)
)
def test_the_theta_of_a_level_maximises_likelihood_and_prior(changes, time, above, weight):
    found = level_theta(changes, time, above, weight)
    slope = changes - time * math.exp(found) - weight * (found - above)
    if math.log(CHANGE_RATE_MIN) < found < math.log(CHANGE_RATE_MAX):
        assert 0 == pytest.approx(slope, abs=1e-6 * (1 + changes + weight * abs(above)))
    else:
        assert (slope > 0) == (found > 0), "the maximum is outside of the bounds"


def test_a_host_is_drawn_from_its_own_visits_towards_all_hosts_and_these_towards_a_week():
    """The chain, computed by hand: 3 changes in 100 s for all, 2 of them in 40 s at the first host."""
    rates = HostRates()
    visit(rates, 1, 20.0, True, 2, age=10.0)
    visit(rates, 1, 20.0, False)
    visit(rates, 2, 20.0, True, age=20.0)
    visit(rates, 2, 40.0, False)
    crawl = level_theta(3.0, 100.0, PRIOR_THETA, HOST_RATE_CRAWL_CONFIDENCE)
    assert crawl == pytest.approx(rates.crawl_theta)
    assert crawl == pytest.approx(theta(rates, UNKNOWN))
    assert level_theta(2.0, 40.0, crawl, HOST_RATE_CONFIDENCE) == pytest.approx(theta(rates, 1))
    assert level_theta(1.0, 60.0, crawl, HOST_RATE_CONFIDENCE) == pytest.approx(theta(rates, 2))
    assert PRIOR_THETA < theta(rates, 2) < crawl < theta(rates, 1)


def test_a_few_visits_of_pages_that_change_within_seconds_outweigh_a_change_a_week():
    rates = HostRates()
    visit(rates, 1, 15.0, True, 5)
    assert 1 / 60 < math.exp(theta(rates, 2)) < 1 / 5, "also at a host without visits"


@pytest.mark.parametrize(("true", "error"), [(1 / 150, 0.2), (1 / 15, 0.2), (1 / 5, 0.6)])
def test_the_rate_of_pages_that_change_alike_is_found_from_one_bit_for_each_visit(true, error):
    """At a change in 5 s, 19 of 20 visits show one."""
    chance, rates = np.random.default_rng(1), HostRates()
    for _ in range(12):
        waited = chance.uniform(10.0, 20.0, 60)
        changed = chance.random(60) < -np.expm1(-true * waited)
        rates.learn(np.ones(60, np.uint64), waited, changed, np.full(60, np.nan))
    assert abs(theta(rates, 1) - math.log(true)) < error


def test_visits_without_a_change_lower_the_rate_and_visits_after_no_time_show_nothing():
    rates = HostRates()
    visit(rates, 1, 0.0, True, 9)
    assert PRIOR_THETA == theta(rates, 1)
    visit(rates, 1, 90 * 86_400.0, False, 9)
    assert theta(rates, 1) < PRIOR_THETA - 1.0


def test_a_host_that_changes_its_habit_is_followed():
    rates, most = HostRates(), int(HOST_RATE_VISITS_MAX)
    visit(rates, 1, 10.0, False, 50 * most)
    slow = theta(rates, 1)
    for _ in range(8):
        visit(rates, 1, 10.0, True, most, age=5.0)
    assert slow < math.log(1e-4)
    assert math.log(1 / 5) == pytest.approx(theta(rates, 1), abs=0.5)


def test_the_hosts_with_the_latest_visits_are_kept():
    rates = HostRates(most=2)
    for host in (1, 2, 1, 3):
        visit(rates, host, 10.0, True, 3)
    assert 2 == len(rates)
    assert rates.crawl_theta == theta(rates, 2)
    assert rates.crawl_theta != theta(rates, 1)
