"""The time that a host needs for its URLs if it is closed at some hours, or visited at a longer gap then.

The hours are minutes of a day in GMT, with a speed for each: 1 while the host is open, 0 while it is closed. Every day
counts as the present one, so a change of clocks moves the result by an hour at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from outrider.clock import Instant
from outrider.limits import MICROSECONDS
from outrider.local_hours import LocalHours
from outrider.robots.hours import DAY_MINUTES, VisitWindow

Speeds: TypeAlias = npt.NDArray[np.float64]
"""The speed in each minute of a day."""
_DAY_SECONDS, _MINUTE_SECONDS = 86_400, 60


def speeds_of_windows(windows: Sequence[VisitWindow]) -> Speeds:
    """Returns the speeds of a host that is open in these windows; without any, it is always open."""
    speeds = np.full(DAY_MINUTES, 0.0 if windows else 1.0)
    for window in windows:
        _open(speeds, window.begin, window.end)
    return speeds


def speeds_of_hours(told: LocalHours, gap: float, now: Instant) -> Speeds:
    """Returns the speeds of a host with hours in local time. gap: its usual gap in seconds."""
    outside = 0.0 if told.delay_outside is None else min(1.0, gap / told.delay_outside) if told.delay_outside else 1.0
    speeds = np.full(DAY_MINUTES, outside)
    _open(speeds, told.begin, told.end)
    return np.roll(speeds, -told.minutes_ahead(now))


def seconds_needed(seconds: float, speeds: Speeds, now: Instant) -> float:
    """Returns how long something takes from now on that takes `seconds` at speed 1. It is `seconds` if the host never
    opens, as this rule has no better answer then."""
    minute, into = divmod(now // MICROSECONDS % _DAY_SECONDS, _MINUTE_SECONDS)
    speeds = np.roll(speeds, -minute)
    done = np.cumsum(speeds) * _MINUTE_SECONDS
    by_day = float(done[-1])
    if not by_day or by_day == _DAY_SECONDS or not seconds:
        return seconds
    days, left = divmod(seconds + float(speeds[0]) * into, by_day)  # the present minute began `into` seconds ago
    if not left:  # it ends with the last open minute of the day before
        days, left = days - 1, by_day
    last = int(done.searchsorted(left))
    before = float(done[last - 1]) if last else 0.0
    return days * _DAY_SECONDS + last * _MINUTE_SECONDS + (left - before) / float(speeds[last]) - into


def _open(speeds: Speeds, begin: int, end: int) -> None:
    """Sets the speed to 1 from one minute to another, perhaps over midnight."""
    if begin < end:
        speeds[begin:end] = 1.0
    else:
        speeds[begin:] = speeds[:end] = 1.0
