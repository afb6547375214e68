"""Request-rate and Visit-time of a robots.txt (S. Conner, An Extended Standard for Robot Exclusion, 1996, 2002).

Times are GMT, in minutes of a day. A window contains its beginning and not its end. A window without length, and a text
that cannot be read, are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from outrider.clock import Instant
from outrider.limits import CRAWL_DELAY_SECONDS_MAX, MICROSECONDS

MINUTE: Final = 60 * MICROSECONDS
DAY_MINUTES: Final = 24 * 60
_DAY: Final = DAY_MINUTES * MINUTE
_SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}
_WINDOW: Final = re.compile(r"([0-9]{2})([0-9]{2})(?:[ \t]*-[ \t]*|[ \t]+)([0-9]{2})([0-9]{2})")
_RATE: Final = re.compile(r"([0-9]{1,9})[ \t]*/[ \t]*([0-9]{1,9})([smhdSMHD]?)(?:[ \t]+(.*))?")


class VisitWindow(NamedTuple):
    """A time of each day: its first minute, and the minute after its last one. It may go over midnight."""

    begin: int
    end: int

    @classmethod
    def of(cls, text: str) -> VisitWindow | None:
        """Reads `0600-0845`; None for any other text."""
        found = _WINDOW.fullmatch(text.strip(" \t"))
        if found is None:
            return None
        hours, minutes, last_hours, last_minutes = map(int, found.groups())
        begin, end = hours * 60 + minutes, last_hours * 60 + last_minutes
        right = minutes < 60 and last_minutes < 60 and begin < DAY_MINUTES and end <= DAY_MINUTES
        return cls(begin, end) if right and begin != end else None

    def opens_in(self, at: int) -> int:
        """Returns the microseconds from a time of the day until it is open: 0 inside. at: microseconds since
        midnight."""
        begin, end = self.begin * MINUTE, self.end * MINUTE
        inside = begin <= at < end if begin < end else at >= begin or at < end
        return 0 if inside else (begin - at) % _DAY


class Rate(NamedTuple):
    """A Request-rate: the gap in seconds that keeps it without bursts, and the window in which it holds."""

    gap_seconds: float
    window: VisitWindow | None

    @classmethod
    def of(cls, text: str) -> Rate | None:
        """Reads `10/1m` or `1/10s 1820-1940`; None for any other text."""
        found = _RATE.fullmatch(text.strip(" \t"))
        if found is None:
            return None
        documents, time = int(found[1]), int(found[2]) * _SECONDS[found[3].lower()]
        window = VisitWindow.of(found[4]) if found[4] else None
        if not documents or not time or (found[4] and window is None):
            return None
        return cls(min(time / documents, CRAWL_DELAY_SECONDS_MAX), window)


def slowest(texts: Iterable[str]) -> float:
    """Returns the gap in seconds that keeps all of these rates at any time of the day, 0 without one."""
    return max((rate.gap_seconds for text in texts if (rate := Rate.of(text)) is not None), default=0.0)


def windows_of(texts: Iterable[str]) -> tuple[VisitWindow, ...]:
    """Returns the windows of Visit-time lines, each once."""
    return tuple(dict.fromkeys(window for text in texts if (window := VisitWindow.of(text)) is not None))


def opens_at(windows: Sequence[VisitWindow], now: Instant, *, until: Instant | None = None) -> Instant | None:
    """Returns the instant at which a site may be visited next, None if that is now. until: it must be open for the
    time until then as well; a site that closes before is visited at its next opening."""
    if not windows or not (wait := _wait(windows, now)):
        if not windows or until is None or not _wait(windows, until):
            return None
        return until + _wait(windows, until)
    return now + wait


def _wait(windows: Sequence[VisitWindow], at: Instant) -> int:
    return min(window.opens_in(at % _DAY) for window in windows)
