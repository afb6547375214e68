"""When a URL is requested again: after a transient failure, and after a bad response of a page with a schedule.

A page without a schedule is requested again after 5, 30 and 300 seconds; then it is a dead letter. A page has a
schedule from the first outcome with the time of its next visit. One bad response does not end its visits: each bad
response in a row doubles the pause, and the page is given up after `BAD_ANSWERS_MAX` of them. The shortest pauses
between them are `BAD_ANSWER_SECONDS`, so they last more than a week, even for a short schedule.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from outrider.clock import Instant
from outrider.limits import (
    BAD_ANSWER_SECONDS,
    BAD_ANSWER_SECONDS_MAX,
    BAD_ANSWERS_MAX,
    MICROSECONDS,
    RETRY_AFTER_SECONDS_MAX,
    RETRY_SECONDS,
)

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.integer[Any]]
Instants = npt.NDArray[np.int64]
Codes = npt.NDArray[np.uint8]

STEPS_PER_OCTAVE: Final = 4
"""A schedule is kept in one of 127 steps, four of which double it: the smallest step that is not shorter, by at most a
fifth. The longest step is a hundred years."""
CODE_MAX: Final = 127
NEVER: Final[Instant] = -1
"""The instant of an attempt that is not made."""
_LEAST: Final = np.array([*BAD_ANSWER_SECONDS, 0.0])


def retry_at(
    attempt: int,
    now: Instant,
    asked: float | None = None,
    *,
    at_least: float = 0.0,
    retries: int = len(RETRY_SECONDS),
) -> Instant | None:
    """The instant of the next attempt, as `retries_at` gives it for one failure; None if there is no further attempt.

    retries: how many attempts may follow the first one, `len(RETRY_SECONDS)` at most.
    """
    if attempt > retries:
        return None
    given = None if asked is None else np.array([asked])
    found = int(retries_at(np.array([attempt]), now, given, at_least=at_least)[0])
    return None if found == NEVER else found


def retries_at(
    attempts: Counts, ended: Instants | Instant, asked: Floats | None = None, *, at_least: float = 0.0
) -> Instants:
    """The instants of the next attempts after transient failures; `NEVER` if no attempt is left.

    attempts: the numbers of the failed attempts, 1 for the first. ended: the instants of the failures. asked: seconds
    that the reporter of a failure requested in place of the usual pause, NaN if absent; a year at most. at_least:
    seconds that each pause lasts at least, such as a Retry-After.
    """
    waits = np.array([*RETRY_SECONDS, 0.0])[np.minimum(attempts, len(RETRY_SECONDS) + 1) - 1]
    if asked is not None:
        waits = np.where(np.isnan(asked), waits, np.clip(asked, 0.0, RETRY_AFTER_SECONDS_MAX))
    waits = np.maximum(waits, at_least)
    found: Instants = ended + np.ceil(waits * MICROSECONDS).astype(np.int64)
    return np.where(attempts <= len(RETRY_SECONDS), found, NEVER)


def codes_of(pauses: npt.ArrayLike) -> Codes:
    """The codes, 1 to 127, under which these pauses between visits are kept. pauses: seconds, from 0 on."""
    octaves = np.log2(np.maximum(np.asarray(pauses, np.float64), 1.0))
    # A pause that is a step is not rounded up by the last bit of its logarithm.
    steps = np.ceil(np.round(octaves * STEPS_PER_OCTAVE, 6)) + 1
    found: Codes = np.minimum(steps, CODE_MAX).astype(np.uint8)
    return found


def pauses_of(codes: npt.ArrayLike) -> Floats:
    """The pauses in seconds of these codes, from 1 on. The shortest is a second."""
    found: Floats = np.exp2((np.asarray(codes, np.float64) - 1.0) / STEPS_PER_OCTAVE)
    return found


def bad_answer_seconds(codes: npt.ArrayLike, answers: npt.ArrayLike) -> Floats:
    """The seconds until the next visits of pages with a schedule. codes: of their schedules. answers: how many bad
    responses in a row each page has had, from 1 to `BAD_ANSWERS_MAX` - 1."""
    usual, count = pauses_of(codes), np.asarray(answers, np.int64)
    longest = np.maximum(usual, BAD_ANSWER_SECONDS_MAX)
    longer = np.minimum(np.ldexp(usual, count), longest)
    found: Floats = np.maximum(longer, _LEAST[np.clip(count, 1, BAD_ANSWERS_MAX) - 1])
    return found
