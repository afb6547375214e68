"""The length of a host's delay after a request: pure rules, each with a name, and the longest delay applies (Mercator's
k x duration, RFC 9309, RFC 9110 §10.2.3)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from outrider.clock import Instant
from outrider.limits import (
    BACK_OFF_FORGET_SECONDS,
    BACK_OFF_JITTER,
    BACK_OFF_SECONDS_FIRST,
    BACK_OFF_SECONDS_MAX,
    BACK_OFF_SECONDS_ONCE,
    CRAWL_DELAY_SECONDS_MAX,
    DELAY_FACTOR_SECONDS_MAX,
    MICROSECONDS,
    PACE_MIN,
    PACE_STEP,
    RETRY_AFTER_SECONDS_MAX,
    SLOW_FACTOR,
    SLOW_PACE,
    SLOW_SECONDS_MIN,
    STRAIN_SECONDS_MAX,
    USUAL_MILLISECONDS_MAX,
    USUAL_STEP,
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
    VISIT_TIME = 7  # its robots.txt names other hours
    HOURS = 8  # the settings name other hours


UNANSWERED = frozenset(
    {
        *("connect_refused", "connect_timeout", "first_byte_timeout", "idle_timeout", "total_timeout"),
        *("reset", "empty_reply"),
    }
)
"""Errors by which a host shows strain, as an answer from 500 on does."""


def ends_of(
    given: npt.NDArray[np.int64],
    seconds: npt.NDArray[np.float64],
    *,
    begun: npt.NDArray[np.int64],
    now: Instant,
    over: npt.NDArray[np.int64] | None = None,
) -> npt.NDArray[np.int64]:
    """The instants at which requests ended: the given ones if they can be true, otherwise now.

    begun: the first instants at which their leases allowed them. It is below 0 if that is unknown, or if the holder has
    a clock of its own (a named worker). A request lasts at least its `seconds` (NaN: unknown), and is between `begun`
    and now. The holder's clock may differ from ours: a given instant that contradicts this does not count, and the host
    is left alone for its whole gap from now on. given: below 0 if it is missing.

    over: the ends that `rest` has noted already, below 0 for none. Such an end replaces now, and a later given instant
    replaces it: a report does not end a request a second time.
    """
    lasted = np.ceil(np.minimum(np.fmax(seconds, 0.0) * MICROSECONDS, float(now))).astype(np.int64)
    # A given instant below 0 is before any `begun` that counts.
    right = (begun >= 0) & (given <= now) & (given - lasted >= begun)
    ended = given if np.count_nonzero(right) == len(right) else np.where(right, given, now)
    return ended if over is None else np.where((over >= 0) & ~right, over, np.maximum(ended, over))


@dataclass(frozen=True, slots=True, eq=False)
class Rests:
    """The delays of hosts after their requests, in columns: the end, the gap in seconds, the rule that set it (a
    GapReason), and the new cells of the hosts. These are the back-off in seconds, the instant of the last refusal, the
    throttle, and the usual time to first byte in milliseconds."""

    until: npt.NDArray[np.int64]
    gap: npt.NDArray[np.float64]
    reason: npt.NDArray[np.uint8]
    back_off: npt.NDArray[np.float64]
    refused_at: npt.NDArray[np.int64]
    throttle: npt.NDArray[np.float64]
    latency_ms: npt.NDArray[np.uint16]


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
    window_phase: npt.NDArray[np.int64] | None = None,
    retry_after: npt.NDArray[np.float64] | None = None,
    refused: npt.NDArray[np.bool_] | None = None,
    jitter: npt.NDArray[np.float64] | float = 0.0,
    throttle: npt.NDArray[np.float64] | None = None,
    strained: npt.NDArray[np.bool_] | None = None,
    first_byte: npt.NDArray[np.float64] | None = None,
    latency_ms: npt.NDArray[np.uint16] | None = None,
    known: bool = True,
) -> Rests:
    """The delays that begin at `ended` (instants of the requests' ends, or one for all), a row per request and host;
    all lengths of time in seconds.

    seconds: how long the requests took, NaN for unknown. back_off, refused_at, throttle, latency_ms: the hosts' cells.
    crawl_delay: 0 if absent. window_phase: a Crawl-delay is the length of a window instead of a gap, and the first
    windows begin at these instants. retry_after: NaN if absent. jitter: draws from 0 to below 1, for requests that were
    refused. strained: whether the request failed like those of an overloaded host. first_byte: the time to first byte
    of a response, NaN for unknown. None replaces a column without any value. known: False while the outcomes of the
    requests are not known: the host keeps its throttle, which a good answer would lessen.
    """
    lasted = np.fmax(seconds, 0.0)  # NaN becomes 0
    term = np.minimum(factor * lasted, DELAY_FACTOR_SECONDS_MAX)
    gap = np.maximum(term, floor)
    reason = _REASONS[((lasted > 0) & (term >= floor)).view(np.uint8)]
    if crawl_delay is not None:
        delay = np.minimum(crawl_delay, CRAWL_DELAY_SECONDS_MAX)
        if window_phase is not None:
            delay = _to_next_window(delay, ended, lasted, window_phase)
        _lengthen(gap, reason, delay, (delay > 0) & (delay >= gap), GapReason.CRAWL_DELAY)
    throttle = np.zeros(len(gap)) if throttle is None else throttle
    latency_ms = np.zeros(len(gap), np.uint16) if latency_ms is None else latency_ms
    slower: npt.NDArray[np.float64] | None = None
    if first_byte is not None:
        latency_ms, slower = _compared(latency_ms, first_byte, strained, refused)
    if strained is not None or slower is not None or np.count_nonzero(throttle):
        throttle = 1.0 - _pace(1.0 - throttle, refused, strained, slower) if known else throttle
        slowed = np.minimum(gap / (1.0 - throttle), STRAIN_SECONDS_MAX)
        _lengthen(gap, reason, slowed, slowed > gap, GapReason.STRAIN)
    if retry_after is not None:
        asked = np.clip(retry_after, 0.0, RETRY_AFTER_SECONDS_MAX)
        _lengthen(gap, reason, asked, asked >= gap, GapReason.RETRY_AFTER)
    if refused is not None or np.count_nonzero(back_off):
        quiet = _is_quiet(ended, refused_at, back_off)
        if refused is None:
            back_off = np.where(quiet, 0.0, back_off)
        else:
            doubled = np.clip(back_off * 2, BACK_OFF_SECONDS_FIRST, BACK_OFF_SECONDS_MAX)
            longer_each = np.where(quiet | (back_off == 0), BACK_OFF_SECONDS_ONCE, doubled)
            backs_off = refused if retry_after is None else refused & np.isnan(retry_after)
            back_off = np.where(backs_off, longer_each, np.where(quiet & ~refused, 0.0, back_off))
            longer = back_off * (1.0 + BACK_OFF_JITTER * jitter)  # hosts that refused together come back apart
            _lengthen(gap, reason, longer, backs_off & (longer >= gap), GapReason.BACK_OFF)
            refused_at = np.where(refused, ended, refused_at)
    until = ended + np.ceil(gap * MICROSECONDS).astype(np.int64)
    return Rests(until, gap, reason, back_off, refused_at, throttle, latency_ms)


def _to_next_window(
    delay: npt.NDArray[np.float64],
    ended: npt.NDArray[np.int64] | Instant,
    lasted: npt.NDArray[np.float64],
    phase: npt.NDArray[np.int64],
) -> npt.NDArray[np.float64]:
    """Seconds from the ends of requests to the windows after those in which they began: one request per window, as
    Bing reads Crawl-delay. The request began at `ended` less `lasted`, or earlier by the time that was not measured."""
    length = np.maximum(np.ceil(delay * MICROSECONDS).astype(np.int64), 1)
    begun = ended - np.floor(lasted * MICROSECONDS).astype(np.int64)
    following = begun - (begun - phase) % length + length
    return np.where(delay > 0, np.maximum(following - ended, 0) / MICROSECONDS, 0.0)


def _compared(
    latency_ms: npt.NDArray[np.uint16],
    first_byte: npt.NDArray[np.float64],
    strained: npt.NDArray[np.bool_] | None,
    refused: npt.NDArray[np.bool_] | None,
) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.float64] | None]:
    """The usual times to first byte of these hosts from now on, in milliseconds (0: not known), and the shares usual /
    now of the responses that were much later than usual, 1 for the rest; None if no response was late.

    The usual time follows the measured ones slowly, a sixteenth of the way with each, and a late one counts at most
    twice the usual: a host that stays slow is usual after a dozen responses. Failures do not change it.
    """
    waited = np.minimum(np.fmax(first_byte, 0.0) * 1_000, USUAL_MILLISECONDS_MAX)
    told = ~np.isnan(first_byte)
    for failed in (strained, refused):
        told = told if failed is None else told & ~failed
    before = latency_ms.astype(np.float64)
    late = told & (latency_ms > 0) & (waited > SLOW_FACTOR * before) & (waited >= SLOW_SECONDS_MIN * 1_000)
    moved = before + (np.minimum(waited, SLOW_FACTOR * before) - before) * USUAL_STEP
    after = np.where(latency_ms > 0, np.rint(moved), np.ceil(waited))
    after = np.where(told, np.maximum(after, 1), before).astype(np.uint16)
    if not late.any():
        return after, None
    return after, np.where(late, before / np.maximum(waited, 1), 1.0)


def _pace(
    pace: npt.NDArray[np.float64],
    refused: npt.NDArray[np.bool_] | None,
    strained: npt.NDArray[np.bool_] | None,
    slower: npt.NDArray[np.float64] | None,
) -> npt.NDArray[np.float64]:
    """The paces of hosts: the shares of their rates. A failure halves the pace. A response that is much later than
    usual sets it to three quarters (not below the share usual / now). Any different response adds an eighth, up to the
    rate of the remaining rules (additive increase, multiplicative decrease, as in RFC 5681)."""
    found = np.minimum(pace + PACE_STEP, 1.0)
    if slower is not None:
        room = np.minimum(pace, np.maximum(pace * SLOW_PACE, np.maximum(slower, PACE_MIN)))
        found = np.where(slower < 1, room, found)
    if refused is not None:
        found = np.where(refused, pace, found)  # the back-off speaks for it
    if strained is not None:
        found = np.where(strained, np.maximum(pace / 2, PACE_MIN), found)
    return found


def _is_quiet(
    ended: npt.NDArray[np.int64] | Instant,
    refused_at: npt.NDArray[np.int64],
    back_off: npt.NDArray[np.float64],
) -> npt.NDArray[np.bool_]:
    """Whether back-offs are forgotten: half an hour without a refusal after the end of the last back-off. Counted from
    the refusal, a back-off of an hour would be forgotten before it is over."""
    longest = back_off * (1.0 + BACK_OFF_JITTER) + BACK_OFF_FORGET_SECONDS
    return ended - refused_at > np.ceil(longest * MICROSECONDS).astype(np.int64)


def _lengthen(
    gap: npt.NDArray[np.float64],
    reason: npt.NDArray[np.uint8],
    rule: npt.NDArray[np.float64],
    where: npt.NDArray[np.bool_],
    why: GapReason,
) -> None:
    """Sets the gaps that a rule lengthens, and the reasons. Of equal delays the later rule is the reason."""
    np.copyto(gap, rule, where=where)
    reason[where] = why
