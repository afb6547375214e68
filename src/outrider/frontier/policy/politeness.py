"""The length of a host's rest after a request: pure rules, each with a name, and the longest rest wins (Mercator's k x
duration, RFC 9309, RFC 9110 §10.2.3)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from outrider.clock import Instant, instant
from outrider.limits import (
    BACK_OFF_FORGET_SECONDS,
    BACK_OFF_SECONDS_FIRST,
    BACK_OFF_SECONDS_MAX,
    CRAWL_DELAY_SECONDS_MAX,
    DELAY_FACTOR_SECONDS_MAX,
    MICROSECONDS,
    RETRY_AFTER_SECONDS_MAX,
)


class GapReason(IntEnum):
    """The rule that set the rest."""

    NONE = 0
    FLOOR = 1
    FACTOR = 2
    CRAWL_DELAY = 3
    RETRY_AFTER = 4
    BACK_OFF = 5


def end_of(told: Instant | None, seconds: float | None, *, begun: Instant | None, now: Instant) -> Instant:
    """The instant at which a request ended: the told one where it can be true, otherwise now.

    begun: the first instant at which its lease allowed it, None where that is unknown or where the holder has a clock
    of its own (a named worker). A request lasts at least its `seconds`, and lies between `begun` and now. The holder's
    clock may differ from ours: a told instant that contradicts this does not count, and the host rests its whole gap
    from now on.
    """
    if told is None or begun is None or told > now or told - instant(max(seconds or 0.0, 0.0)) < begun:
        return now
    return told


@dataclass(frozen=True, slots=True)
class Rest:
    """The rest of a host after a request: its end, the gap in seconds, the rule that set it, and the back-off from now
    on."""

    until: Instant
    gap: float
    reason: GapReason
    back_off: float
    refused_at: Instant


def rest_after(
    ended: Instant,
    *,
    seconds: float | None,
    floor: float,
    factor: float,
    crawl_delay: float | None,
    retry_after: float | None,
    refused: bool,
    back_off: float,
    refused_at: Instant,
) -> Rest:
    """The rest that begins at `ended` (instant of the request's end); all lengths of time in seconds."""
    rules = [(floor, GapReason.FLOOR)]
    if seconds:
        rules.append((min(factor * max(seconds, 0.0), DELAY_FACTOR_SECONDS_MAX), GapReason.FACTOR))
    if crawl_delay:
        rules.append((min(crawl_delay, CRAWL_DELAY_SECONDS_MAX), GapReason.CRAWL_DELAY))
    # Counts from the end of the last back-off: else a back-off of an hour would be forgotten before it is over.
    quiet = ended - refused_at > instant(back_off + BACK_OFF_FORGET_SECONDS)
    if retry_after is not None:
        rules.append((min(max(retry_after, 0.0), RETRY_AFTER_SECONDS_MAX), GapReason.RETRY_AFTER))
    if refused:
        if retry_after is None:
            back_off = BACK_OFF_SECONDS_FIRST if quiet or not back_off else min(back_off * 2, BACK_OFF_SECONDS_MAX)
            rules.append((back_off, GapReason.BACK_OFF))
        refused_at = ended
    elif quiet:
        back_off = 0.0
    gap, reason = max(rules)
    return Rest(ended + instant(gap), gap, reason, back_off, refused_at)


_REASONS = np.array([GapReason.FLOOR, GapReason.FACTOR], np.uint8)  # index 1 when the factor sets the rest


@dataclass(frozen=True, slots=True, eq=False)
class Rests:
    """As `Rest`, for many hosts in columns."""

    until: npt.NDArray[np.int64]
    gap: npt.NDArray[np.float64]
    reason: npt.NDArray[np.uint8]
    back_off: npt.NDArray[np.float64]


def rests_after(
    ended: npt.NDArray[np.int64] | Instant,
    *,
    seconds: npt.NDArray[np.float64],
    floor: float,
    factor: float,
    back_off: npt.NDArray[np.float64],
    refused_at: npt.NDArray[np.int64],
) -> Rests:
    """As `rest_after`, for requests without a refusal, a Retry-After or a Crawl-delay.

    ended: instants of the requests' ends, or one for all; seconds: how long they took, NaN for unknown.
    """
    known = np.fmax(seconds, 0.0)  # NaN becomes 0
    term = np.minimum(factor * known, DELAY_FACTOR_SECONDS_MAX)
    gap = np.maximum(term, floor)
    reason = _REASONS[((known > 0) & (term >= floor)).view(np.uint8)]
    if np.count_nonzero(back_off):
        quiet = ended - refused_at > ((back_off + BACK_OFF_FORGET_SECONDS) * MICROSECONDS).astype(np.int64)
        back_off = np.where(quiet, 0.0, back_off)
    until = ended + np.ceil(gap * MICROSECONDS).astype(np.int64)
    return Rests(until, gap, reason, back_off)
