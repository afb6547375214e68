"""Instants: int microseconds since 1970, from a clock that never steps back and keeps running while the machine
sleeps."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from operator import index
from pathlib import Path

from outrider.errors import SettingsError
from outrider.limits import INSTANT_MAX, MICROSECONDS

LAST_OF_RFC3339 = 253_402_300_799_999_999  # the last microsecond of the year 9999: RFC 3339 has four digits for a year

Instant = int
ClockFunction = Callable[[], Instant]


def wall() -> Instant:
    """The wall clock now, in microseconds since 1970; it may step."""
    return time.time_ns() // 1_000


def elapsed() -> Instant:
    """Microseconds since the machine started, sleep included (CLOCK_BOOTTIME; the monotonic clock elsewhere)."""
    source = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime_ns(source) // 1_000


def boot() -> str:
    """Returns the id of this start of the machine, or "" if the system has no such id. With it the `elapsed` of two
    processes can be compared."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


def anchored(at: Instant) -> ClockFunction:
    """A clock that says `at` now and from here on counts elapsed time, however the wall clock jumps."""
    origin = elapsed()

    def now() -> Instant:
        return at + elapsed() - origin

    return now


def checked(told: object) -> Instant:
    """Returns the instant of a caller's clock. Raises SettingsError if its answer is not an instant."""
    if type(told) is int and 0 <= told <= INSTANT_MAX:
        return told
    try:
        found = None if isinstance(told, bool) else index(told)  # type: ignore[arg-type]
    except TypeError:
        found = None
    if found is None or not 0 <= found <= INSTANT_MAX:
        raise SettingsError(
            f"clock: it said {told!r:.80}; an instant is a whole number of microseconds since 1970, from 0 to "
            f"{INSTANT_MAX}"
        )
    return found


def instant(seconds: float) -> Instant:
    """Seconds as a length of time in microseconds, rounded up: late is allowed, early never."""
    return -int(-seconds * MICROSECONDS // 1)


def seconds(length: Instant) -> float:
    """A length of time in microseconds, as seconds."""
    return length / MICROSECONDS


@lru_cache(maxsize=64)
def _second(whole: int) -> str:
    """Returns a second since 1970 as text. Most calls are for one of the last few seconds."""
    return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%dT%H:%M:%S}"


def rfc3339(at: Instant) -> str:
    """Returns an instant as RFC 3339 text in UTC with milliseconds: `2026-01-02T03:04:05.678Z`. An instant after the
    year 9999 gets the text of the last instant that has one."""
    whole, micro = divmod(min(at, LAST_OF_RFC3339), MICROSECONDS)
    return f"{_second(whole)}.{micro // 1_000:03d}Z"


def rfc3339_exact(at: Instant) -> str:
    """The same with microseconds, for what gaps are judged by: `2026-01-02T03:04:05.678901Z`."""
    whole, micro = divmod(min(at, LAST_OF_RFC3339), MICROSECONDS)
    return f"{_second(whole)}.{micro:06d}Z"
