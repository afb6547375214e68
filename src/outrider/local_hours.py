"""The hours in which hosts are visited, as their visitor says them: local time of an IANA zone, never guessed.

A day may have 23 or 25 hours. A time that a change of clocks skips does not exist, and one that it repeats is inside
both times.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from fnmatch import fnmatchcase
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from outrider.clock import Instant, instant
from outrider.errors import SettingsError
from outrider.install_hints import install_command
from outrider.limits import MICROSECONDS

ACCEPTED: Final = 'two times and a zone, such as "22:00-06:00 Europe/Paris"'
_HOURS: Final = re.compile(r"([0-9]{2}):([0-9]{2})-([0-9]{2}):([0-9]{2}) +(\S{1,64})")
_DAY_MINUTES: Final = 24 * 60
_DAYS: Final = 3  # a window may be skipped on one day of the year


@dataclass(frozen=True, slots=True)
class LocalHours:
    """The hours of hosts whose names match a pattern: from minute `begin` of a day, before minute `end`, which may be
    on the next day. delay_outside: seconds between requests outside of these hours; None: no requests."""

    pattern: str
    begin: int
    end: int
    zone: str
    delay_outside: float | None = None

    @classmethod
    def of(cls, pattern: str, text: str, delay_outside: float | None = None) -> LocalHours:
        """Reads `22:00-06:00 Europe/Paris`. Raises SettingsError, with the reason alone."""
        found = _HOURS.fullmatch(text.strip())
        if found is None:
            raise SettingsError("not two times and a zone")
        hours, minutes, last_hours, last_minutes = map(int, found.groups()[:4])
        begin, end = hours * 60 + minutes, last_hours * 60 + last_minutes
        if minutes > 59 or last_minutes > 59 or begin >= _DAY_MINUTES or end > _DAY_MINUTES:
            raise SettingsError("times are from 00:00 to 24:00")
        if begin == end:
            raise SettingsError("both times are equal")
        try:
            ZoneInfo(found[5])
        except (ZoneInfoNotFoundError, ValueError, OSError):  # unknown, not a name, a folder of the database
            raise SettingsError(_unknown_zone(found[5])) from None
        return cls(pattern.lower(), begin, end, found[5], delay_outside)

    def opens_at(self, now: Instant, *, until: Instant) -> Instant | None:
        """Returns the instant at which a host may be visited next, None if it is open from now until `until`."""
        zone = ZoneInfo(self.zone)
        if self._is_open(now, zone) and self._is_open(until, zone):
            return None
        day = datetime.fromtimestamp(now / MICROSECONDS, zone).date()
        begin = time(*divmod(self.begin, 60))
        begins = (
            instant(datetime.combine(day + timedelta(days), begin, zone).replace(fold=fold).astimezone(UTC).timestamp())
            for days in range(_DAYS)
            for fold in (0, 1)
        )
        return min((at for at in begins if at > now and self._is_open(at, zone)), default=now + instant(3_600.0))

    def minutes_ahead(self, now: Instant) -> int:
        """Returns by how many minutes the time of the zone is ahead of GMT."""
        ahead = datetime.fromtimestamp(now / MICROSECONDS, ZoneInfo(self.zone)).utcoffset()
        assert ahead is not None  # the time has a zone
        return round(ahead / timedelta(minutes=1))

    def _is_open(self, at: Instant, zone: ZoneInfo) -> bool:
        local = datetime.fromtimestamp(at // MICROSECONDS, zone)
        minute = local.hour * 60 + local.minute
        if self.begin < self.end:
            return self.begin <= minute < self.end
        return minute >= self.begin or minute < self.end


def _unknown_zone(name: str) -> str:
    """Returns the reason why a zone cannot be read, and what helps."""
    if not available_timezones():
        return f"this machine has no database of time zones; run `{install_command('identity')}`, which includes tzdata"
    return f"unknown zone {name!r}; use a name of the IANA database, such as Europe/Paris or UTC"


def hours_of(host: str, told: Sequence[LocalHours]) -> LocalHours | None:
    """Returns the hours of a host: those of the last pattern that matches, None without one."""
    return next((one for one in reversed(told) if fnmatchcase(host, one.pattern)), None)
