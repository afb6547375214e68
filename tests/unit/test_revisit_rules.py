"""The published revisit rules against tables that were computed by hand, with their bounds."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose

from outrider.frontier.policy.revisit_rules import (
    DAY,
    HOUR,
    RULES,
    Adaptive,
    Halving,
    Nutch,
    Rule,
    Shown,
    Uniform,
    equal_seconds,
    host_class_seconds,
)

CHANGED, UNCHANGED, NOTHING = Shown.CHANGED, Shown.UNCHANGED, Shown.NOTHING


def schedules(rule: Rule, shown, start, *, first=None):
    """Visits one page at the delays of the rule, and yields what the rule returns after each."""
    interval, memory, wait = start, 0.0, 0.0
    for what in shown:
        found = rule.after(interval, memory, what, wait, first)
        interval, memory, wait = (float(one) for one in (found.interval, found.memory, found.delay))
        yield found


def intervals(rule: Rule, shown, start, unit, *, first=None):
    return [float(found.interval) / unit for found in schedules(rule, shown, start, first=first)]


def test_adaptive_with_five_changes_in_a_row_from_one_day():
    assert [6.0, 1.5, 1.0, 1.0, 1.0] == intervals(Adaptive(), [CHANGED] * 5, DAY, HOUR)


def test_adaptive_without_changes_grows_to_30_days():
    """Each visit multiplies by 1.5, and the window without a change by 1.5 again."""
    assert [2.25, 5.0625, 11.390625, 25.62890625, 30.0, 30.0] == intervals(Adaptive(), [UNCHANGED] * 6, DAY, DAY)


def test_adaptive_applies_the_rate_of_the_last_ten_visits():
    """Shares of changes after each visit: 1, 1/2, 1/3, 1/4, 1/5, 1/6; the last two are at most 20 %."""
    assert [6.0, 9.0, 13.5, 20.25, 45.5625, 102.515625] == intervals(Adaptive(), [CHANGED] + [UNCHANGED] * 5, DAY, HOUR)


def test_adaptive_forgets_the_eleventh_visit():
    """Ten changes, then visits without one. After two of them the window has 80 %, and after three 70 %."""
    rule = Adaptive(least=1e-9)
    found = list(schedules(rule, [CHANGED] * 10 + [UNCHANGED] * 10, 1e6))
    factors = [float(b.interval / a.interval) for a, b in pairwise(found)]
    assert_allclose(factors[:9], 0.25)
    assert_allclose(factors[9:], [0.75, 0.75, 1.5, 1.5, 1.5, 1.5, 1.5, 2.25, 2.25, 2.25])
    assert 1_024 == found[-1].memory


def test_adaptive_remembers_in_a_number_that_a_small_float_can_store():
    chance = np.random.default_rng(1)
    for found in schedules(Adaptive(), chance.integers(0, 3, 200), DAY):
        assert float(np.float32(found.memory)) == float(found.memory) <= 2_047


def test_halving_doubles_and_halves_within_its_bounds():
    shown = [CHANGED] * 6 + [UNCHANGED] * 11
    expected = [12, 6, 3, 1.5, 1, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 720, 720]
    assert expected == intervals(Halving(), shown, DAY, HOUR)


@pytest.mark.parametrize(
    ("rate", "first"),
    [
        (1 / HOUR, HOUR),
        (10.0, HOUR),
        (1 / DAY, DAY),
        (1 / (4 * HOUR), HOUR),
        (1 / (6 * HOUR), DAY),
        (1 / (2 * DAY), DAY),
        (1 / (3 * DAY), 7 * DAY),
        (1 / (14 * DAY), 7 * DAY),
        (1 / (15 * DAY), 30 * DAY),
        (1e-12, 30 * DAY),
        (0.0, DAY),
        (float("nan"), DAY),
    ],
)
def test_halving_starts_from_the_class_of_the_host(rate, first):
    assert first == host_class_seconds(rate)
    start = host_class_seconds(rate)
    assert [first, min(2 * first, 30 * DAY)] == intervals(Halving(), [NOTHING, UNCHANGED], 0.0, 1.0, first=start)


def test_nutch_without_changes_stays_close_to_the_time_since_the_first_visit():
    """In days. 30; then 42, whose next visit is 0.3 * 30 earlier; then the time since the first visit is longer."""
    found = list(schedules(Nutch(), [NOTHING] + [UNCHANGED] * 3, 0.0))
    assert_allclose([one.interval / DAY for one in found], [30, 42, 63, 107.1])
    assert_allclose([one.memory / DAY for one in found], [0, 30, 63, 107.1])
    assert_allclose([one.delay / DAY for one in found], [30, 33, 44.1, 74.97])


def test_nutch_shortens_the_interval_after_each_change_down_to_a_minute():
    assert_allclose(intervals(Nutch(), [CHANGED] * 4, 100.0, 1.0), [80, 64, 60, 60])
    found = list(schedules(Nutch(), [NOTHING, CHANGED, CHANGED], 0.0))
    assert_allclose([one.interval / DAY for one in found], [30, 24, 19.2])
    assert_allclose([one.delay for one in found], [one.interval for one in found])


def test_nutch_never_waits_longer_than_365_days_nor_into_the_past():
    """3 years after the last change 0.3 of this time is nearly the bound; after 4 years it is longer."""
    rule = Nutch()
    found = rule.after(300 * DAY, 700 * DAY, UNCHANGED, 395 * DAY)
    assert (365.0, 1_095.0, 36.5) == tuple(float(one / DAY) for one in (found.interval, found.memory, found.delay))
    found = rule.after(365 * DAY, 1_400 * DAY, UNCHANGED, 60 * DAY)
    assert (365 * DAY, 60.0) == (float(found.interval), float(found.delay))


def test_nutch_without_sync_delta_only_multiplies():
    found = list(schedules(Nutch(sync=None), [NOTHING, UNCHANGED, UNCHANGED, CHANGED], 0.0))
    assert_allclose([one.interval / DAY for one in found], [30, 42, 58.8, 47.04])
    assert_allclose([one.delay / DAY for one in found], [30, 42, 58.8, 47.04])


@pytest.mark.parametrize("name", ["adaptive", "halving", "nutch"])
def test_a_visit_that_shows_nothing_keeps_the_interval(name):
    rule = RULES[name]
    start = float(rule.after(5 * DAY, 0.0, UNCHANGED, 0.0).interval)
    memory = rule.after(5 * DAY, 0.0, UNCHANGED, 0.0).memory
    assert start == rule.after(start, memory, NOTHING, 0.0).interval


@pytest.mark.parametrize(("name", "first"), [("adaptive", DAY), ("halving", DAY), ("nutch", 30 * DAY)])
@pytest.mark.parametrize("interval", [0.0, float("nan")])
def test_a_page_without_an_interval_starts_with_the_first_one_of_the_rule(name, first, interval):
    assert first == RULES[name].after(interval, 0.0, NOTHING, 0.0).delay


def test_uniform_has_one_interval_for_all_pages():
    rule = Uniform(equal_seconds(1_000, 10.0))
    found = rule.after([0.0, 5.0, 500.0], 0.0, [NOTHING, CHANGED, UNCHANGED], 7.0)
    assert_allclose(found.delay, 100.0)
    assert_allclose(found.interval, 100.0)


@pytest.mark.parametrize("name", sorted(RULES))
def test_columns_are_computed_as_single_pages(name):
    chance = np.random.default_rng(2)
    rule = RULES[name]
    interval, memory = 10 ** chance.uniform(1, 8, 300), np.floor(10 ** chance.uniform(-1, 7, 300))
    shown, waited = chance.integers(0, 3, 300), 10 ** chance.uniform(0, 8, 300)
    together = rule.after(interval, memory, shown, waited)
    for row in range(300):
        alone = rule.after(interval[row], memory[row], shown[row], waited[row])
        assert (float(alone.interval), float(alone.memory), float(alone.delay)) == (
            together.interval[row],
            together.memory[row],
            together.delay[row],
        )


@pytest.mark.parametrize("name", sorted(RULES))
def test_no_number_makes_a_delay_that_is_not_finite(name):
    odd = np.array([0.0, -1.0, np.nan, 1e300, 1e-300, 86_400.0])
    found = RULES[name].after(*(one.ravel() for one in np.meshgrid(odd, odd, [0, 1, 2], odd)))
    assert np.all((found.delay > 0) & (found.delay < np.inf))
    assert np.all((found.interval > 0) & (found.interval < np.inf) & (found.memory >= 0))
