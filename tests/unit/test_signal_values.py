"""The value of a visit where changes are signalled: against Monte Carlo, and at the limits of recall and noise."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from outrider.frontier.policy.signal_values import (
    EVIDENCE_MAX,
    SignalCounts,
    SignalModel,
    changes_in,
    cycle,
    signal_interval,
    signal_quality,
    signal_value,
)
from outrider.frontier.policy.visit_values import interval, value


def simulated(rate, recall, noise, target, cycles=40_000, seed=1):
    """The mean time until the effective age reaches the target, and the mean fresh time in it, event by event."""
    chance = np.random.default_rng(seed)
    alpha, gamma = (1 - recall) * rate, recall * rate + noise
    beta = np.log(gamma / noise) / alpha
    now, signals = np.zeros(cycles), np.zeros(cycles)
    changed = chance.exponential(1 / rate, cycles)
    raised = chance.random(cycles) < recall
    # After its first change a page may change and be signalled again; before it, all signals are false.
    length = np.full(cycles, np.nan)
    while np.isnan(length).any():
        live = np.isnan(length)
        fresh = now < changed
        pause = chance.exponential(1 / np.where(fresh, noise, gamma))
        signal = np.where(fresh & (now + pause > changed), np.where(raised, changed, np.inf), now + pause)
        silent = fresh & (now + pause > changed) & ~raised
        end = target - beta * signals
        following = np.where(silent, changed, signal)
        done = live & (following >= end)
        length[done] = np.maximum(end[done], now[done])
        now = np.where(live & ~done, following, now)
        signals += live & ~done & ~silent
    return length.mean(), np.minimum(length, changed).mean()


@pytest.mark.parametrize(
    ("rate", "recall", "noise", "target"),
    [(0.4, 0.6, 0.15, 6.0), (1.0, 0.9, 0.05, 12.0), (0.3, 0.3, 0.4, 9.0), (0.4, 0.6, 0.15, 20.0)],
)
def test_the_cycle_agrees_with_a_simulation(rate, recall, noise, target):
    length, fresh = cycle(SignalModel.of(rate, recall, noise), target)
    assert (float(length[0]), float(fresh[0])) == pytest.approx(simulated(rate, recall, noise, target), rel=0.015)


def test_the_cycle_of_the_published_example():
    length, fresh = cycle(SignalModel.of(0.4, 0.6, 0.15), 6.0)
    assert (2.3173, 1.7512) == pytest.approx((float(length[0]), float(fresh[0])), abs=1e-4)


def test_a_signal_is_worth_waiting():
    model = SignalModel.of(0.4, 0.6, 0.15)
    beta = np.log(0.39 / 0.15) / 0.16
    assert beta == pytest.approx(float(model.beta[0]))
    assert_allclose(model.effective_age(1.0, [0, 1, 3]), 1 + beta * np.array([0, 1, 3]))
    assert_allclose(signal_value(model, 1.0, 1.0 + 2 * beta), signal_value(model, 1.0, 1.0, 2.0))
    assert_allclose(np.exp(-model.evidence_of(2.0, 3)), np.exp(-0.16 * 2.0) * (0.15 / 0.39) ** 3)


@pytest.mark.parametrize(("recall", "noise"), [(0.0, 0.0), (0.0, 0.7), (0.5, 1e6), (1e-9, 1e-3)], ids=str)
def test_signals_without_evidence_change_nothing(recall, noise):
    waits = np.array([0.0, 0.5, 3.0, 50.0, np.inf])
    model = SignalModel.of(np.full(5, 0.4), recall, noise)
    assert_allclose(signal_value(model, 2.0, waits, 4.0), value(2.0, 0.4, waits), rtol=1e-9)
    prices = np.array([0.01, 1.0, 4.0, 4.999, 5.0])
    assert_allclose(signal_interval(prices, model, 2.0, 3.0), interval(prices, 2.0, 0.4), rtol=1e-6)


def test_a_recall_or_noise_near_zero_is_close_to_zero():
    waits = np.array([0.5, 3.0, 20.0])
    for near, exact in (((0.6, 1e-12), (0.6, 0.0)), ((1 - 1e-9, 0.2), (1.0, 0.2))):
        left, right = (SignalModel.of(np.full(3, 0.4), *one) for one in (near, exact))
        for signals in (0.0, 1.0, 2.0):
            found = signal_value(left, 1.0, waits, signals)
            assert_allclose(found, signal_value(right, 1.0, waits, signals), rtol=1e-5, atol=1e-7)


def test_a_certain_signal_makes_the_page_due_at_once():
    model = SignalModel.of(0.4, 0.6, 0.0)
    assert np.inf == model.beta[0]
    assert 2.5 == pytest.approx(float(signal_value(model, 1.0, 0.01, 1)[0]))
    assert_allclose(signal_interval(2.4, model, 1.0, [1, 2]), 0.0)
    assert 0 < signal_interval(1.0, model, 1.0, 0)[0] < np.inf


def test_where_each_change_is_signalled_only_signals_count():
    """With a recall of 1, n signals leave a copy fresh with probability (noise / gamma)^n at any time."""
    model = SignalModel.of(0.4, 1.0, 0.2)
    assert_allclose(signal_value(model, 1.0, [0.0, 9.0, 1e9]), 0.0)
    assert 2.5 == signal_value(model, 1.0, np.inf)[0]
    share, length, fresh = 1 / 3, 1 / 0.6, 1 / 0.6
    assert fresh - share * length == pytest.approx(float(signal_value(model, 1.0, 3.0, 1)[0]))
    assert_allclose(signal_interval(1.0, model, 1.0, [0, 1, 2]), [np.inf, 0.0, 0.0])
    assert_allclose(signal_interval(1.5, model, 1.0, [0, 1, 2]), [np.inf, np.inf, 0.0])


def test_the_value_after_the_interval_is_the_price_with_signals():
    chance = np.random.default_rng(6)
    rate, noise = 10 ** chance.uniform(-3, 2, (2, 3_000))
    model = SignalModel.of(rate, chance.uniform(0, 1, 3_000), noise)
    weight, share = chance.uniform(0.1, 1, (2, 3_000))
    price = weight / rate * share * 0.999
    signals = chance.integers(0, 3, 3_000)
    waits = signal_interval(price, model, weight, signals)
    assert np.all(waits >= 0)
    later = (waits > 0) & (waits < np.inf)
    assert_allclose(signal_value(model, weight, waits, signals)[later], price[later], rtol=1e-6)
    at_once = waits == 0
    assert np.count_nonzero(later) > 1_000 < np.count_nonzero(model.evidence > 0)
    assert np.all(signal_value(model, weight, 1e-12, signals)[at_once] >= price[at_once] * (1 - 1e-6))


def test_the_value_grows_with_time_and_with_signals():
    model = SignalModel.of(np.full(400, 0.4), 0.6, 0.15)
    waits = np.linspace(0, 160, 400)
    for signals in range(4):
        found = signal_value(model, 1.0, waits, signals)
        assert np.all(np.diff(found) >= -1e-12)
        assert np.all(signal_value(model, 1.0, waits, signals + 1) >= found - 1e-12)
    assert np.all(found <= 1 / 0.4)


def test_no_value_is_nan_for_any_column():
    columns = np.array(np.meshgrid([0, 1e-9, 1, 1e6], [-1, 0, 1e-9, 0.5, 1 - 1e-9, 1, 2], [-1, 0, 1e-12, 1, 1e9]))
    rate, recall, noise = columns.reshape(3, -1)
    model = SignalModel.of(rate, recall, noise)
    for wait in (0.0, 1e-9, 1.0, 1e12, np.inf):
        for signals in (0, 1, 1e6):
            found = signal_value(model, 1.0, wait, signals)
            with np.errstate(divide="ignore"):
                assert np.all((found >= 0) & (found <= np.where(rate > 0, 1.0 / rate, 0.0)))
            assert not np.isnan(signal_interval(1.0, model, 1.0, signals)).any()


def test_the_sums_are_bounded():
    """The weakest signal that is used needs 200 terms at the largest evidence that matters."""
    model = SignalModel.of(1.0, 0.1, 0.1 / np.expm1(0.1000001))
    assert 0 < model.evidence[0] < 0.1001
    assert 1.0 == pytest.approx(float(signal_value(model, 1.0, EVIDENCE_MAX / 0.9)[0]), rel=1e-6)


def test_the_quality_of_signals_is_counted_per_host():
    """Host 0 has a recall of 0.7 and 0.1 false signals per unit; host 1 stamps each page now; host 2 has no visits."""
    chance = np.random.default_rng(8)
    sums = np.zeros((5, 3))
    rate = 0.3
    for _ in range(4_000):
        wait = chance.exponential(4.0, 2)
        changes = chance.poisson(rate * wait)
        signals = np.array([chance.binomial(changes[0], 0.7) + chance.poisson(0.1 * wait[0]), chance.poisson(wait[1])])
        for host in range(2):
            if changes[host]:
                sums[2:, host] += wait[host], signals[host], float(changes_in(rate, wait[host]))
            else:
                sums[:2, host] += wait[host], signals[host]
    recall, noise = signal_quality(SignalCounts(*sums), recall_prior=0.5, noise_prior=0.2, weight=2.0)
    assert_allclose(recall, [0.7, 0.0, 0.5], atol=0.04)
    assert_allclose(noise, [0.1, 1.0, 0.2], atol=0.03)
    assert 0.0 == SignalModel.of(rate, recall[1], noise[1]).evidence[0]
