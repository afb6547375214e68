"""The value of visiting pages whose changes are signalled, with signals that are missed and signals that are false.

A signal says that a page has changed: a `lastmod` of a sitemap, the date of a feed entry, a note of a caller. A change
raises a signal with the probability `recall`; false signals arrive at `noise` per unit of time. With

    alpha = (1 - recall) * rate      the changes without a signal
    gamma = recall * rate + noise    all signals
    beta  = ln(gamma / noise) / alpha

a copy is fresh, a time t and n signals after its visit, with the probability e^-alpha t (noise / gamma)^n, which is
e^-alpha (t + beta n). So a signal counts as the time beta that has already been waited, and t + beta n is the effective
age of the copy. The model is that of Busa-Fekete et al. (arXiv 2502.02430); the formulas are derived for this project.

Here all of them use the evidence alpha * (t + beta n), which is also defined for a recall of 1 (alpha is 0, and only
signals count) and for a noise of 0 (the first signal is certain: its evidence is infinite). A signal that hardly
changes the odds, as those of a host that stamps each page "now", is evidence of less than `EVIDENCE_MIN`. Then all
signals are ignored, and the formulas are those of `visit_values.py`; so the sums have at most 200 terms.

Arguments are columns as in `visit_values.py`: any unit of time, arrays of float64 as results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, Self

import numpy as np
import numpy.typing as npt

from outrider.frontier.policy.visit_values import Floats, interval, value
from outrider.limits import (
    CHANGE_SECONDS_PRIOR,
    SIGNAL_PRECISION_PRIOR,
    SIGNAL_RECALL_MAX,
    SIGNAL_RECALL_PRIOR,
    SIGNAL_WEIGHT,
)

EVIDENCE_MIN: Final = 0.1
"""The least ln(gamma / noise) at which signals are used: 5 % of the signals would be true at a recall of a half. The
gain of weaker signals is below 0.3 % of freshness."""
EVIDENCE_MAX: Final = 20.0
"""The most evidence that matters: a copy is then fresh with a probability below 3e-9."""
_TERMS: Final = (4, 16, 64, int(EVIDENCE_MAX / EVIDENCE_MIN) + 1)
"""The lengths of the sums: pages with few terms are computed apart from those with many."""
_MEAN_MAX: Final = 1_000.0  # with a larger mean than this, no sum of up to 200 terms has any weight
_INVERSE_STEPS: Final = 60
_INVERSE_ERROR: Final = 1e-7


@dataclass(frozen=True, slots=True)
class SignalModel:
    """How the changes of pages are signalled, as columns of equal length. Made by `of`."""

    rate: Floats
    alpha: Floats
    gamma: Floats
    noise: Floats
    evidence: Floats
    """The evidence of one signal, alpha * beta: 0 where signals are ignored, infinite where one is certain."""

    @classmethod
    def of(cls, rate: npt.ArrayLike, recall: npt.ArrayLike, noise: npt.ArrayLike) -> Self:
        """The model of pages. rate: changes per unit of time. recall: the share of the changes that raise a signal, in
        [0, 1]. noise: false signals per unit of time."""
        columns = np.broadcast_arrays(*(np.atleast_1d(np.asarray(one, np.float64)) for one in (rate, recall, noise)))
        change, share, false = columns[0], np.clip(columns[1], 0.0, 1.0), np.maximum(columns[2], 0.0)
        gamma = share * change + false
        with np.errstate(divide="ignore", invalid="ignore"):
            evidence = np.where(gamma > false, np.log(gamma) - np.log(false), 0.0)
        used = evidence >= EVIDENCE_MIN
        return cls(change, np.where(used, (1.0 - share) * change, change), gamma, false, np.where(used, evidence, 0.0))

    def broadcast(self, *columns: npt.ArrayLike) -> Self:
        """The model with a row for each row of the columns."""
        shape = np.broadcast_shapes(self.rate.shape, *(np.shape(column) for column in columns))
        return type(self)(*(np.broadcast_to(column, shape) for column in _fields(self)))

    @property
    def beta(self) -> Floats:
        """The waiting that a signal is worth. 0 where signals are ignored, infinite where one is certain."""
        with np.errstate(divide="ignore", invalid="ignore"):
            found: Floats = np.where(self.evidence > 0, self.evidence / self.alpha, 0.0)
        return found

    def evidence_of(self, waited: npt.ArrayLike, signals: npt.ArrayLike) -> Floats:
        """The evidence that copies are out of date: minus the logarithm of the probability that they are fresh.

        waited: the time since the last visit, infinite for a page that was never visited. signals: how many arrived in
        it.
        """
        time = np.asarray(waited, np.float64)
        found: Floats = np.where(np.isinf(time), np.inf, _times(self.alpha, time) + _times(self.evidence, signals))
        return found

    def effective_age(self, waited: npt.ArrayLike, signals: npt.ArrayLike) -> Floats:
        """The time since the last visit, and the time that the signals are worth."""
        found: Floats = np.asarray(waited, np.float64) + _times(self.beta, signals)
        return found


def cycle(model: SignalModel, effective_age: npt.ArrayLike) -> tuple[Floats, Floats]:
    """The expected time until a copy reaches an effective age (psi), and how long it is fresh in this time (w).

    psi = sum over i of R_i(gamma (a - i beta)) / gamma, and w = sum over i of noise^i / (alpha + gamma)^(i + 1) *
    R_i((alpha + gamma) (a - i beta)), for all i with i beta < a. R_i(z) is the probability that a Gamma variable of
    shape i + 1 is at most z.
    """
    model = model.broadcast(effective_age)
    return _cycle(model, np.minimum(_times(model.alpha, effective_age), EVIDENCE_MAX))


def signal_value(
    model: SignalModel, importance: npt.ArrayLike, waited: npt.ArrayLike, signals: npt.ArrayLike = 0.0
) -> Floats:
    """The value of visiting pages now: importance * (w - e^-alpha a * psi) for their effective age a.

    It is importance / rate for an infinite age, which is also the value of a page that was never visited.
    """
    weight = np.asarray(importance, np.float64)
    model = model.broadcast(weight, waited, signals)
    plain = value(weight, model.rate, waited)
    used = model.evidence > 0
    if not used.any():
        return plain
    found: Floats = np.where(used, weight * _shape(model, model.evidence_of(waited, signals))[0], plain)
    return found


def signal_interval(
    price: npt.ArrayLike, model: SignalModel, importance: npt.ArrayLike, signals: npt.ArrayLike = 0.0
) -> Floats:
    """The time after its last visit at which the value of a page equals the price, if no further signal arrives.

    signals: how many arrived since the last visit. 0 where they alone justify a visit, infinite where the value never
    reaches the price: also where each change is signalled and the page waits for a signal.
    """
    model = model.broadcast(price, importance, signals)
    columns = (np.asarray(one, np.float64) for one in (price, importance, signals))
    cost, weight, count = (np.broadcast_to(column, model.rate.shape) for column in columns)
    found = interval(cost, weight, model.rate).copy()
    used = np.flatnonzero((model.evidence > 0) & np.isfinite(found))  # at an infinite age, signals change no value
    if not len(used):
        return found
    part = SignalModel(*(column[used] for column in _fields(model)))
    now = _times(part.evidence, count[used])
    goal = cost[used] / weight[used]
    least = _inverse(part, goal)
    # With a recall of 1 the value is a step function of the signals, and waiting adds nothing to it.
    due = np.where(part.alpha > 0, now >= least, _shape(part, now)[0] >= goal)
    with np.errstate(divide="ignore", invalid="ignore"):
        found[used] = np.where(due, 0.0, np.where(part.alpha > 0, (least - now) / part.alpha, np.inf))
    return found


@dataclass(frozen=True, slots=True)
class SignalCounts:
    """The visits of hosts, as columns of sums, from which the quality of their signals is computed.

    Only visits count that showed whether a page had changed, of pages for which a signal could have arrived.
    """

    unchanged_time: Floats
    """The time between visits in which a page did not change: each signal in it was false."""
    unchanged_signals: Floats
    changed_time: Floats
    """The time between visits in which a page changed."""
    changed_signals: Floats
    changes: Floats
    """The changes that are expected in changed_time, by `changes_in` at each visit."""


def changes_in(rate: npt.ArrayLike, waited: npt.ArrayLike) -> Floats:
    """The expected number of changes in an interval in which a page changed: x / (1 - e^-x) for x = rate * waited."""
    x = _times(np.asarray(rate, np.float64), waited)
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Floats = np.where(x > 0, x / -np.expm1(-x), 1.0)
    return found


def signal_quality(
    counts: SignalCounts, *, recall_prior: float, noise_prior: npt.ArrayLike, weight: float
) -> tuple[Floats, Floats]:
    """The recall of the signals of hosts, in [0, 1], and their noise: the false signals of a page per unit of time.

    The false signals are counted in the intervals without a change. They are subtracted from the signals in the other
    intervals, and the remaining ones are compared with the changes. recall_prior, noise_prior: the values before the
    first visit. weight: as if this number of changes had been seen; above 0.
    """
    false = np.asarray(noise_prior, np.float64)
    with np.errstate(divide="ignore"):
        time = np.where(false > 0, weight / false, 0.0)
    exposure = counts.unchanged_time + time
    with np.errstate(divide="ignore", invalid="ignore"):
        noise = np.where(exposure > 0, (counts.unchanged_signals + false * time) / exposure, 0.0)
    true = counts.changed_signals - noise * counts.changed_time + recall_prior * weight
    return np.clip(true / (counts.changes + weight), 0.0, 1.0), noise


class HostSums(Protocol):
    """The sums of one host, as `SignalCounts` has them in columns."""

    @property
    def unchanged_time(self) -> float: ...
    @property
    def unchanged_signals(self) -> float: ...
    @property
    def changed_time(self) -> float: ...
    @property
    def changed_signals(self) -> float: ...
    @property
    def changes(self) -> float: ...


@dataclass(frozen=True, slots=True)
class HostQuality:
    """The quality of the signals of hosts, as columns. rate: changes of a page per second, on average. evidence: that
    of one signal, for a page with this rate; 0 where signals are ignored."""

    rate: Floats
    recall: Floats
    noise: Floats
    evidence: Floats


def host_quality(hosts: Sequence[HostSums]) -> HostQuality:
    """Returns the quality of the signals of hosts by their sums. Before the first visits, as many signals are true as
    false, and the rate of changes is the scale: a site that changes hourly has other false signals than a slow one."""
    names = ("unchanged_time", "unchanged_signals", "changed_time", "changed_signals", "changes")
    counts = SignalCounts(*(np.array([getattr(one, name) for one in hosts], np.float64) for name in names))
    time = counts.unchanged_time + counts.changed_time
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = np.where(time > 0, (counts.changes + 0.5) / time, 1.0 / CHANGE_SECONDS_PRIOR)
    false = SIGNAL_RECALL_PRIOR * rate * (1.0 - SIGNAL_PRECISION_PRIOR) / SIGNAL_PRECISION_PRIOR
    recall, noise = signal_quality(counts, recall_prior=SIGNAL_RECALL_PRIOR, noise_prior=false, weight=SIGNAL_WEIGHT)
    recall = np.minimum(recall, SIGNAL_RECALL_MAX)
    return HostQuality(rate, recall, noise, SignalModel.of(rate, recall, noise).evidence)


def _fields(model: SignalModel) -> tuple[Floats, ...]:
    return model.rate, model.alpha, model.gamma, model.noise, model.evidence


def _times(factor: Floats, count: npt.ArrayLike) -> Floats:
    """A product in which 0 times infinity is 0."""
    left, right = np.broadcast_arrays(factor, np.asarray(count, np.float64))
    with np.errstate(invalid="ignore"):
        found: Floats = np.where((left > 0) & (right > 0), left * right, 0.0)
    return found


def _shape(model: SignalModel, evidence: Floats) -> tuple[Floats, Floats]:
    """The value at an importance of 1, and its derivative by the evidence: e^-evidence * psi."""
    bounded = np.minimum(evidence, EVIDENCE_MAX)
    length, fresh = _cycle(model, bounded)
    slope = np.exp(-bounded) * length
    with np.errstate(divide="ignore"):
        most = np.where(model.rate > 0, 1.0 / model.rate, 0.0)
    return np.where(evidence < EVIDENCE_MAX, np.clip(fresh - slope, 0.0, most), most), slope


def _cycle(model: SignalModel, evidence: Floats) -> tuple[Floats, Floats]:
    """psi and w at an evidence of at most EVIDENCE_MAX."""
    length, fresh = np.zeros(model.rate.shape), np.zeros(model.rate.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where((model.evidence > 0) & np.isfinite(model.evidence), np.ceil(evidence / model.evidence), 1.0)
    longest = int(np.max(terms, initial=0.0))
    if longest <= _TERMS[1] and np.all((model.rate > 0) & (evidence > 0)):
        return _sums(model, evidence, longest)
    least = 0
    for most in _TERMS:
        rows = np.flatnonzero((terms > least) & (terms <= most) & (model.rate > 0) & (evidence > 0))
        least = most
        if len(rows):
            part = SignalModel(*(column[rows] for column in _fields(model)))
            length[rows], fresh[rows] = _sums(part, evidence[rows], int(np.max(terms[rows])))
    return length, fresh


def _sums(model: SignalModel, evidence: Floats, terms: int) -> tuple[Floats, Floats]:
    """psi and w as sums of `terms` terms each, for rows of which each needs at least one."""
    ignored = model.evidence == 0.0
    gamma = np.where(ignored, 0.0, model.gamma)  # no signals: psi is the age, w is (1 - e^-alpha a) / alpha
    noise = np.where(ignored, 0.0, model.noise)
    both = model.alpha + gamma
    index = np.arange(terms, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        steps = np.where(index > 0, model.evidence[:, None] * index, 0.0)
        left = np.maximum(evidence[:, None] - steps, 0.0)
        waits = np.where(left > 0, left / model.alpha[:, None], 0.0)  # infinite for a recall of 1
        share = _regularised(np.where(waits > 0, gamma[:, None] * waits, 0.0))
        length = np.where(gamma > 0, share.sum(axis=1) / gamma, waits[:, 0])
        weights = (noise / both)[:, None] ** index / both[:, None]
        fresh = (weights * _regularised(np.where(waits > 0, both[:, None] * waits, 0.0))).sum(axis=1)
    return length, fresh


def _regularised(means: Floats) -> Floats:
    """R_i(z) in column i: the probability that a Poisson variable of mean z is above i. means: rows of z by i."""
    mean = np.minimum(means, _MEAN_MAX)
    at_most = np.exp(-mean)
    term = at_most.copy()
    for k in range(1, mean.shape[1]):
        term = term * mean / k
        at_most[:, k:] += term[:, k:]
    # The first column is the most important one, and alone in most rows: it keeps all digits for a small mean.
    found: Floats = np.clip(1.0 - at_most, 0.0, 1.0)
    found[:, 0] = -np.expm1(-mean[:, 0])
    return found


def _inverse(model: SignalModel, goal: Floats) -> Floats:
    """The evidence at which the value at an importance of 1 reaches the goal, which is below 1 / rate.

    Newton's method on the logarithms, inside an interval that shrinks. For a recall of 1, where the value is a step
    function of the evidence, the result is not used.
    """
    low, high = np.zeros_like(goal), np.full_like(goal, EVIDENCE_MAX)
    # At first a value grows by the square, as evidence²/2 alpha; the logarithm bends this towards the end, 1 / rate.
    guess = np.clip(model.rate * goal, 0.0, 1.0 - 1e-9)
    found = np.clip(np.sqrt(-2.0 * np.log1p(-guess) * model.alpha / model.rate), 1e-9, EVIDENCE_MAX)
    for _ in range(_INVERSE_STEPS):
        reached, slope = _shape(model, found)
        above = reached >= goal
        high, low = np.where(above, np.minimum(high, found), high), np.where(above, low, np.maximum(low, found))
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            step = np.log(reached / goal) * reached / (slope * found)
            following = found * np.exp(-np.clip(step, -2.0, 2.0))
        inside = (following > low) & (following < high)
        following = np.where(inside, following, 0.5 * (low + high))
        settled = np.abs(following - found) <= _INVERSE_ERROR * found
        found = np.where(goal > 0, following, 0.0)
        if np.all(settled | (goal <= 0) | (high - low <= _INVERSE_ERROR * high) | (model.alpha == 0)):
            break
    return found
