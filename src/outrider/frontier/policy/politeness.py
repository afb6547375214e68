"""The length of a host's rest after a request: pure rules, each with a name, and the longest rest wins (Mercator's k x
duration, RFC 9309, RFC 9110 §10.2.3)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from outrider.clock import Instant
from outrider.limits import (
    BACK_OFF_FORGET_SECONDS,
    BACK_OFF_SECONDS_FIRST,
    BACK_OFF_SECONDS_MAX,
    CRAWL_DELAY_SECONDS_MAX,
    DELAY_FACTOR_SECONDS_MAX,
    MICROSECONDS,
    PACE_MIN,
    PACE_STEP,
    RETRY_AFTER_SECONDS_MAX,
    STRAIN_SECONDS_MAX,
)


class GapReason(IntEnum):
    """The rule that set the rest."""

    NONE = 0
    FLOOR = 1
    FACTOR = 2
    CRAWL_DELAY = 3
    RETRY_AFTER = 4
    BACK_OFF = 5
    STRAIN = 6


UNANSWERED = frozenset(
    {
        *("connect_refused", "connect_timeout", "first_byte_timeout", "idle_timeout", "total_timeout"),
        *("reset", "empty_reply"),
    }
)
"""Errors by which a host shows strain, as an answer of 500 to 599 does."""


def ends_of(
    given: npt.NDArray[np.int64],
    seconds: npt.NDArray[np.float64],
    *,
    begun: npt.NDArray[np.int64],
    now: Instant,
) -> npt.NDArray[np.int64]:
    """The instants at which requests ended: the given ones where they can be true, otherwise now.

    begun: the first instants at which their leases allowed them, below 0 where that is unknown or where the holder has
    a clock of its own (a named worker). A request lasts at least its `seconds` (NaN: unknown), and lies between `begun`
    and now. The holder's clock may differ from ours: a given instant that contradicts this does not count, and the host
    rests its whole gap from now on. given: below 0 where there is none.
    """
    lasted = np.ceil(np.minimum(np.fmax(seconds, 0.0) * MICROSECONDS, float(now))).astype(np.int64)
    return np.where((given >= 0) & (begun >= 0) & (given <= now) & (given - lasted >= begun), given, now)


@dataclass(frozen=True, slots=True, eq=False)
class Rests:
    """The rests of hosts after their requests, in columns: the end, the gap in seconds, the rule that set it (a
    GapReason), and the back-off in seconds, the instant of the last refusal and the strain from now on."""

    until: npt.NDArray[np.int64]
    gap: npt.NDArray[np.float64]
    reason: npt.NDArray[np.uint8]
    back_off: npt.NDArray[np.float64]
    refused_at: npt.NDArray[np.int64]
    strain: npt.NDArray[np.float64]


_REASONS = np.array([GapReason.FLOOR, GapReason.FACTOR], np.uint8)  # index 1 when the factor sets the rest


def rests_after(
    ended: npt.NDArray[np.int64] | Instant,
    *,
    seconds: npt.NDArray[np.float64],
    floor: npt.NDArray[np.float64] | float,
    factor: float,
    back_off: npt.NDArray[np.float64],
    refused_at: npt.NDArray[np.int64],
    crawl_delay: npt.NDArray[np.float64] | None = None,
    retry_after: npt.NDArray[np.float64] | None = None,
    refused: npt.NDArray[np.bool_] | None = None,
    strain: npt.NDArray[np.float64] | None = None,
    strained: npt.NDArray[np.bool_] | None = None,
) -> Rests:
    """The rests that begin at `ended` (instants of the requests' ends, or one for all), a row per request and host; all
    lengths of time in seconds.

    seconds: how long the requests took, NaN for unknown. back_off, refused_at: the hosts' cells. crawl_delay: 0 for
    none. retry_after: NaN for none. strain: the hosts' cells, the share of their rate that they do not get. strained:
    whether the request failed as those of a host that has too much to do. None stands for a column without any.

    A host under strain gets a share of its rate, its pace: half of it after each failure, an eighth more after each
    answer, and never more than the other rules give (additive increase, multiplicative decrease, as in RFC 5681).
    """
    known = np.fmax(seconds, 0.0)  # NaN becomes 0
    term = np.minimum(factor * known, DELAY_FACTOR_SECONDS_MAX)
    gap = np.maximum(term, floor)
    reason = _REASONS[((known > 0) & (term >= floor)).view(np.uint8)]
    if crawl_delay is not None:
        delay = np.minimum(crawl_delay, CRAWL_DELAY_SECONDS_MAX)
        _lengthen(gap, reason, delay, (delay > 0) & (delay >= gap), GapReason.CRAWL_DELAY)
    strain = np.zeros(len(gap)) if strain is None else strain
    if strained is not None or np.count_nonzero(strain):
        pace = 1.0 - strain
        faster = np.minimum(pace + PACE_STEP, 1.0)
        faster = faster if refused is None else np.where(refused, pace, faster)  # the back-off speaks for it
        pace = faster if strained is None else np.where(strained, np.maximum(pace / 2, PACE_MIN), faster)
        strain = 1.0 - pace
        slowed = np.minimum(gap / pace, STRAIN_SECONDS_MAX)
        _lengthen(gap, reason, slowed, slowed > gap, GapReason.STRAIN)
    if retry_after is not None:
        asked = np.clip(retry_after, 0.0, RETRY_AFTER_SECONDS_MAX)
        _lengthen(gap, reason, asked, asked >= gap, GapReason.RETRY_AFTER)
    if refused is not None or np.count_nonzero(back_off):
        # Counts from the end of the last back-off: else a back-off of an hour would be forgotten before it is over.
        quiet = ended - refused_at > np.ceil((back_off + BACK_OFF_FORGET_SECONDS) * MICROSECONDS).astype(np.int64)
        if refused is None:
            back_off = np.where(quiet, 0.0, back_off)
        else:
            doubled = np.where(
                quiet | (back_off == 0), BACK_OFF_SECONDS_FIRST, np.minimum(back_off * 2, BACK_OFF_SECONDS_MAX)
            )
            backs_off = refused if retry_after is None else refused & np.isnan(retry_after)
            back_off = np.where(backs_off, doubled, np.where(quiet & ~refused, 0.0, back_off))
            _lengthen(gap, reason, back_off, backs_off & (back_off >= gap), GapReason.BACK_OFF)
            refused_at = np.where(refused, ended, refused_at)
    until = ended + np.ceil(gap * MICROSECONDS).astype(np.int64)
    return Rests(until, gap, reason, back_off, refused_at, strain)


def _lengthen(
    gap: npt.NDArray[np.float64],
    reason: npt.NDArray[np.uint8],
    rule: npt.NDArray[np.float64],
    where: npt.NDArray[np.bool_],
    why: GapReason,
) -> None:
    """Sets the gaps that a rule lengthens, and the reasons. Of equal rests the later rule gives the reason."""
    np.copyto(gap, rule, where=where)
    reason[where] = why
