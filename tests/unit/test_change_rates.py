"""The change rate of a page from its visits: two numbers that agree with the whole history."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from outrider.frontier.policy.change_rates import (
    STEP_MAX,
    after_visits,
    drawn_rates,
    error_of,
    rate_of,
    theta_of,
)
from outrider.limits import CHANGE_CONFIDENCE_MAX, CHANGE_CONFIDENCE_MIN, CHANGE_RATE_MAX, CHANGE_RATE_MIN

ANY = st.floats(allow_nan=True, allow_infinity=True)


@pytest.mark.parametrize(("changed", "sign"), [(True, 1), (False, -1)])
def test_one_bit_moves_the_rate_by_its_score_over_the_information(changed, sign):
    """At rate 0.5 and after 2 units, x is 1: the information is 1 / (e - 1), and the scores are this, and -1."""
    information = 1 / (np.e - 1)
    theta, confidence = after_visits(np.log(0.5), 1.5, 2.0, changed)
    assert 1.5 + information == pytest.approx(float(confidence))
    score = information if changed else -1.0
    assert np.log(0.5) + score / (1.5 + information) == pytest.approx(float(theta))
    assert sign == np.sign(theta - np.log(0.5))


def test_a_known_date_is_the_gamma_posterior():
    """Shape 2 and time 4 at the start: a change 0.5 ago, 3 units without a change, a change 1 ago."""
    theta, confidence = np.log(2 / 4), 2.0
    theta, confidence = after_visits(theta, confidence, 2.0, True, 0.5)
    assert (3.0, 3 / 4.5) == (float(confidence), pytest.approx(float(rate_of(theta))))
    theta, confidence = after_visits(theta, confidence, 3.0, False, 7.0)
    assert (3.0, 3 / 7.5) == (float(confidence), pytest.approx(float(rate_of(theta))))
    theta, confidence = after_visits(theta, confidence, 5.0, True, 1.0)
    assert (4.0, 4 / 8.5) == (float(confidence), pytest.approx(float(rate_of(theta))))


def test_known_dates_lead_to_the_changes_over_the_time_that_was_seen():
    """From a prior of nearly no weight, the rate is the number of changed visits over ages and unchanged intervals."""
    chance = np.random.default_rng(1)
    theta, confidence, changes, time = theta_of(0.01), 1e-3, 0.0, 1e-3 / 0.01
    for _ in range(300):
        wait, last = chance.exponential(2.0), chance.exponential(1 / 0.7)
        theta, confidence = after_visits(theta, confidence, wait, last < wait, last)
        changes, time = changes + (last < wait), time + min(last, wait)
    assert (changes + 1e-3) / time == pytest.approx(float(rate_of(theta)))
    assert 0.7 == pytest.approx(float(rate_of(theta)), rel=0.2)


@pytest.mark.parametrize(("rate", "rmse"), [(0.5, 0.26), (1.0, 0.23), (3.0, 0.22)])
def test_fifty_irregular_visits_are_as_good_as_the_whole_history(rate, rmse):
    """The published relative errors after 50 visits at random moments, one per unit of time, from the true rate on."""
    chance = np.random.default_rng(2)
    theta, confidence = np.full(4_000, theta_of(rate)), np.full(4_000, 0.5)
    for _ in range(50):
        wait = chance.exponential(1.0, 4_000)
        changed = chance.random(4_000) < -np.expm1(-rate * wait)
        theta, confidence = after_visits(theta, confidence, wait, changed)
    assert rmse == pytest.approx(float(np.sqrt(np.mean((rate_of(theta) / rate - 1) ** 2))), abs=0.04)


@pytest.mark.parametrize("start", [0.02, 0.3, 30.0])
@pytest.mark.parametrize("dated", [False, True])
def test_the_rate_is_found_from_any_start(start, dated):
    chance = np.random.default_rng(3)
    theta, confidence = np.full(400, theta_of(start)), np.full(400, 0.5)
    for _ in range(400):
        wait = chance.uniform(0.5, 4.0, 400)
        last = chance.exponential(1 / 0.4, 400)
        theta, confidence = after_visits(theta, confidence, wait, last < wait, last if dated else np.nan)
    assert 0.4 == pytest.approx(float(np.median(rate_of(theta))), rel=0.06)
    spread = np.std(theta)
    assert spread == pytest.approx(float(np.median(error_of(confidence))), rel=0.35)


@drawn(
    theta=ANY,
    confidence=ANY,
    visits=st.lists(st.tuples(ANY, st.booleans(), ANY), min_size=1, max_size=20),
)
def test_no_visit_leaves_the_bounds(theta, confidence, visits):
    rows = 2
    belief = np.full(rows, theta), np.full(rows, confidence)
    for wait, changed, since in visits:
        belief = after_visits(*belief, wait, changed, [since, np.nan])
        assert np.all(
            (rate_of(belief[0]) >= CHANGE_RATE_MIN / 1.0001) & (rate_of(belief[0]) <= CHANGE_RATE_MAX * 1.0001)
        )
        assert np.all((belief[1] >= CHANGE_CONFIDENCE_MIN) & (belief[1] <= CHANGE_CONFIDENCE_MAX))


@drawn(theta=st.floats(-20, 2), confidence=st.floats(0.5, 900), wait=st.floats(1e-6, 1e9), changed=st.booleans())
def test_a_change_raises_the_rate_and_its_absence_lowers_it(theta, confidence, wait, changed):
    moved, known = after_visits(theta, confidence, wait, changed)
    assert moved >= theta if changed else moved <= theta
    assert abs(moved - theta) <= STEP_MAX + 1e-12
    assert known >= confidence


def test_a_visit_after_no_time_shows_nothing():
    for wait in (0.0, -1.0, np.nan):
        for since in (np.nan, 0.0):
            theta, confidence = after_visits(-3.0, 2.0, wait, True, since)
            assert (-3.0, 2.0) == (float(theta), float(confidence))


def test_rates_are_drawn_around_the_belief():
    normal = np.random.default_rng(5).normal(size=20_000)
    rates = drawn_rates(np.log(0.2), 4.0, normal)
    assert np.log(0.2) == pytest.approx(float(np.log(rates).mean()), abs=0.02)
    assert 0.5 == pytest.approx(float(np.log(rates).std()), abs=0.02)
