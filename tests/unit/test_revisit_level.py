"""The level of a plan: how it follows fetches, and when it is compared with the usual one."""

from __future__ import annotations

import math

import numpy as np
import pytest

from outrider.frontier.policy.revisit_level import RevisitLevel
from outrider.frontier.policy.revisit_plan import Plan, PlannedPages
from outrider.limits import REVISIT_LEVEL_LATE, REVISIT_LOST_MAX, REVISIT_STEP, REVISIT_STEPS_AHEAD

RATE = 4.0


def pages(count: int, rate: float = 0.05) -> PlannedPages:
    zeros = np.zeros(count)
    return PlannedPages(np.full(count, math.log(rate)), np.ones(count), zeros, zeros, np.full(count, 0.5))


def orders(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.uint64)


def usual(count: int) -> float:
    return Plan("optimal").first_level(pages(count), count, RATE)


@pytest.fixture
def level() -> RevisitLevel:
    """One that begins far too low, for 60 pages."""
    found = RevisitLevel(Plan("optimal"), RATE)
    found.begin(-10.0, REVISIT_STEP, 60)
    return found


def test_the_first_pages_decide_where_it_begins():
    level = RevisitLevel(Plan("optimal"), RATE)
    assert level.now is None
    assert usual(60) == level.of(pages(60), 60)
    assert usual(60) == level.of(pages(60, 5.0), 60), "and no later ones"


def test_at_the_usual_level_the_visits_need_the_whole_rate():
    chance = np.random.default_rng(1)
    sample = pages(60)
    sample = PlannedPages(chance.normal(-3, 1, 60), *sample.columns[1:4], chance.uniform(0.1, 1, 60))
    plan = Plan("optimal")
    visits = 1.0 / plan.waits(sample, plan.first_level(sample, 600, RATE))
    assert RATE == pytest.approx(10 * visits.sum(), rel=1e-6)


def test_a_due_visit_raises_it_and_others_lower_it_more(level):
    level.chose(3, 0)
    assert -10.0 + 3 * REVISIT_STEP == pytest.approx(level.now)
    level.chose(2, 1)
    assert -10.0 + (5 - REVISIT_STEPS_AHEAD) * REVISIT_STEP == pytest.approx(level.now)
    level.lost(10 * REVISIT_LOST_MAX)
    after = 5 - REVISIT_STEPS_AHEAD * (1 + REVISIT_LOST_MAX)
    assert -10.0 + after * REVISIT_STEP == pytest.approx(level.now)


def test_after_a_round_in_which_all_visits_were_due_it_is_the_usual_one(level):
    level.reported(pages(60), orders(60), 60)
    level.chose(59, 0)
    level.reported(pages(1), orders(1), 60)
    assert level.now < -9.0
    level.chose(1, 0)
    level.reported(pages(1), orders(1), 60)
    assert usual(60) == pytest.approx(level.now)


@pytest.mark.parametrize("other", [lambda level: level.chose(0, 1), lambda level: level.lost(1)])
def test_a_visit_ahead_of_its_time_and_a_lost_fetch_begin_a_new_round(level, other):
    level.chose(59, 0)
    other(level)
    level.chose(59, 0)
    level.reported(pages(60), orders(60), 60)
    assert level.now < -9.0


def test_pages_that_were_not_reported_lately_leave_a_distance_to_the_usual_level(level):
    level.chose(120, 0)
    level.reported(pages(30), orders(30), 120)
    expected = Plan("optimal").first_level(pages(30), 120, RATE) - REVISIT_LEVEL_LATE * 0.75
    assert expected == pytest.approx(level.now)


def test_it_is_compared_when_the_number_of_pages_has_doubled(level):
    level.reported(pages(60), orders(60), 119)
    assert -10.0 == level.now
    level.reported(pages(60), orders(60), 120)
    assert level.now > -5.0


def test_a_level_that_is_too_high_is_not_changed_by_a_comparison(level):
    level.begin(5.0, REVISIT_STEP, 60)
    level.chose(60, 0)
    before = level.now
    level.reported(pages(60), orders(60), 60)
    assert before == level.now


def test_without_a_rate_it_stays():
    level = RevisitLevel(Plan("adaptive"), None)
    level.chose(100, 3)
    level.reported(pages(60), orders(60), 60)
    assert 0.0 == level.now
