"""How often a page changes, learned from its visits in two numbers: the logarithm of the rate, and a confidence.

Changes are a Poisson process of `rate` per unit of time. `theta` is ln(rate), and `confidence` is the information
about theta that the visits have brought: theta has the standard error 1 / sqrt(confidence). A confidence of k is worth
about k changes that were seen. Both start at a prior, such as the mean of the host, with a small confidence.

A visit after a time t shows one of these, with x = rate * t as the number of changes that was expected:

- whether the page changed, one bit. Its likelihood is e^-x or 1 - e^-x. The score by theta is s = -x or x / (e^x - 1),
  and the expected information of the visit is x² / (e^x - 1). One step of Gauss-Newton adds the information to the
  confidence, and then s / confidence to theta. The step needs no history, and any pattern of intervals will do.
- when the page last changed (Last-Modified): an age a before this visit, a <= t. The page changed once at this moment
  and not in the time a after it, which has the likelihood rate * e^(-rate * a). The time before the change shows
  nothing. Without a change the likelihood is e^(-rate * t). A Gamma prior of shape k and time T for the rate is
  conjugate to both: a change adds 1 to k and a to T, and its absence adds t to T. With confidence = k and theta =
  ln(k / T), which is the mode of theta, and k its exact information, the update is exact and needs the same numbers:
  a change: T = confidence / rate + a, confidence += 1, theta = ln(confidence / T)
  no change: theta -= ln(1 + x / confidence)

A redirect, an error and a first visit show nothing about changes; the caller leaves them out. Any unit of time will do,
within the bounds of rates in limits.py, which are per second.
All functions work on columns: their arguments are broadcast, results are arrays of float64 and always finite.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from outrider.frontier.policy.visit_values import Floats
from outrider.limits import CHANGE_CONFIDENCE_MAX, CHANGE_CONFIDENCE_MIN, CHANGE_RATE_MAX, CHANGE_RATE_MIN

_LN_MIN: Final = float(np.log(CHANGE_RATE_MIN))
_LN_MAX: Final = float(np.log(CHANGE_RATE_MAX))
STEP_MAX: Final = 2.0
"""The largest step of theta, a factor of 7.4: after a very long interval without a change, the tangent that the step
follows would lead much too far. A change never reaches it from a confidence of 0.5 on."""


def after_visits(
    theta: npt.ArrayLike,
    confidence: npt.ArrayLike,
    waited: npt.ArrayLike,
    changed: npt.ArrayLike,
    age: npt.ArrayLike = np.nan,
) -> tuple[Floats, Floats]:
    """Returns theta and confidence after a visit of each page.

    waited: the time since the visit before; a visit after no time shows nothing. changed: whether the page changed in
    it. age: how long ago it last changed, as of this visit, NaN where the date of the change is not known. For a page
    that did not change, any other age says that the date is known. An age outside of the interval is moved to its end.
    """
    columns = np.broadcast_arrays(
        np.asarray(theta, np.float64),
        np.asarray(confidence, np.float64),
        np.asarray(waited, np.float64),
        np.asarray(changed, np.bool_),
        np.asarray(age, np.float64),
    )
    log_rate, known, time, seen, since = columns
    log_rate = np.clip(np.where(np.isnan(log_rate), _LN_MIN, log_rate), _LN_MIN, _LN_MAX)
    known = np.clip(np.where(np.isnan(known), CHANGE_CONFIDENCE_MIN, known), CHANGE_CONFIDENCE_MIN, None)
    time = np.where(time > 0, time, 0.0)
    rate = np.exp(log_rate)
    with np.errstate(over="ignore"):
        x = np.minimum(rate * time, 700.0)
    step, gained = _bit_step(x, known, seen)
    dated = ~np.isnan(since)
    if dated.any():
        exact_step, exact_gain = _dated_step(rate, x, known, seen, np.clip(since, 0.0, time))
        step, gained = np.where(dated, exact_step, step), np.where(dated, exact_gain, gained)
    shown = time > 0
    moved = np.clip(log_rate + np.where(shown, step, 0.0), _LN_MIN, _LN_MAX)
    return moved, np.minimum(known + np.where(shown, gained, 0.0), CHANGE_CONFIDENCE_MAX)


def rate_of(theta: npt.ArrayLike) -> Floats:
    """The rate of a theta, within its bounds."""
    found: Floats = np.exp(np.clip(np.asarray(theta, np.float64), _LN_MIN, _LN_MAX))
    return found


def theta_of(rate: npt.ArrayLike) -> Floats:
    """The theta of a rate; a rate outside of its bounds is moved to the nearest bound."""
    found: Floats = np.log(np.clip(np.asarray(rate, np.float64), CHANGE_RATE_MIN, CHANGE_RATE_MAX))
    return found


def error_of(confidence: npt.ArrayLike) -> Floats:
    """The relative standard error of a rate, by its confidence: about 0.5 for 50 %."""
    found: Floats = 1.0 / np.sqrt(np.maximum(np.asarray(confidence, np.float64), CHANGE_CONFIDENCE_MIN))
    return found


def drawn_rates(theta: npt.ArrayLike, confidence: npt.ArrayLike, normal: npt.ArrayLike) -> Floats:
    """Rates drawn from the belief about them (Thompson sampling): e^(theta + normal / sqrt(confidence)).

    normal: a draw of the standard normal distribution for each page. A scheduler that uses drawn rates visits again
    pages that it has given up by mistake.
    """
    return rate_of(np.asarray(theta, np.float64) + np.asarray(normal, np.float64) * error_of(confidence))


def _bit_step(x: Floats, confidence: Floats, changed: npt.NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """The step of theta and the gain of confidence by one bit."""
    with np.errstate(invalid="ignore", divide="ignore"):
        score = np.where(x > 0, x / np.expm1(x), 1.0)
    gained = x * score
    step = np.where(changed, score, -x) / (confidence + gained)
    return np.clip(step, -STEP_MAX, STEP_MAX), gained


def _dated_step(
    rate: Floats, x: Floats, confidence: Floats, changed: npt.NDArray[np.bool_], age: Floats
) -> tuple[Floats, Floats]:
    """The exact step where the date of the change is known."""
    grown = np.log1p(1.0 / confidence) - np.log1p(np.minimum(rate * age, 700.0) / confidence)
    return np.where(changed, grown, -np.log1p(x / confidence)), changed.astype(np.float64)
