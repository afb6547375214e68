"""Dates as text, and the months that a URL names.

A month is that of a calendar or an archive, and not of an id, a version, a size or a page number.

A date begins at the start of a name of the path or of a value, or after a word and a hyphen, and ends before any
letter or digit. So `category/2050`, `city=2100`, `update=20310101`, an ISSN (`1471-2105/10`) and an escape
(`%2030.01`) are not dates. A number and a small one after it, as in `thread/2045/12`, need more: a zero before the
month, a word such as `calendar` before the year, or nothing before it.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Final

from outrider.clock import Instant, instant
from outrider.limits import MICROSECONDS

_PATH_DATE: Final = re.compile(
    r"(?:(?<=/)|(?<=[A-Za-z][-_]))([0-9]{4})([-/_.])([0-9]{1,2})(?![0-9])(?:\2([0-9]{1,2})(?![0-9]))?"
    r"(?![A-SU-Za-z]|T(?![0-9])|[-_.]?[0-9])"
)
_YEAR_FOLDER: Final = re.compile(
    r"/(?:year|yr|jahr)/([0-9]{4})(?:/(?:(?:month|mon|m|monat)/)?(0?[1-9]|1[0-2]))?(?![^/;])", re.IGNORECASE
)
_VALUE: Final = re.compile(
    r"([0-9]{4})([-/_.]|%2[Ff])([0-9]{1,2})(?:\2([0-9]{1,2}))?(?:[T+].*|%20.*|%2[Bb].*)?"
).fullmatch
_DIGITS: Final = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})?").fullmatch
_YEAR: Final = re.compile(r"[0-9]{4}").fullmatch
_MONTH: Final = re.compile(r"0?[1-9]|1[0-2]").fullmatch
_WORDS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])").findall
_MAY: Final = re.compile(r"[0-9]{4}").search
_CALENDARS: Final = frozenset(
    _WORDS(
        "agenda archiv archive archives cal calendar calendario calendars calendrier date dates day days daily event "
        "eventos events evenements kalendarz kalender month monthly months planner programme schedule termine "
        "timetable veranstaltungen week weekly weeks year yearly years"
    )
)
"""Words of the name before a date. An id with a page number after it has other words."""
_MONTH_NAMES: Final = frozenset(
    _WORDS("cal calendar date dates datum day fecha from jour mes mois monat month week ym")
)
"""Words in names of parameters whose six digits, or eight, are a date."""
_DAY_NAMES: Final = frozenset(_WORDS("begin end since start startdate enddate eventdate fromdate to todate until when"))
"""The same for eight digits: `start=203105` may count results."""
_DATE_NAMES: Final = _MONTH_NAMES | _DAY_NAMES
_YEAR_NAMES: Final = frozenset(_WORDS("annee anno ano jahr year yr"))
_MONTH_ALONE: Final = frozenset(_WORDS("m mes mois mon monat month"))
_YEARS: Final = range(1900, 10_000)
_WRITTEN: Final = re.compile(
    r"([0-9]{4})(?:-([0-9]{2})(?:-([0-9]{2})"
    r"(?:[Tt ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:[.,]([0-9]{1,20}))?)? ?(Z|z|[+-][0-9]{2}:?[0-9]{2})?)?)?)?"
).fullmatch
"""W3C, "Date and Time Formats"."""
_LEAP_SECOND: Final = 60
_DAY_MINUTES: Final = 1_440
_DAYS_TO_1970: Final = 719_162


@lru_cache(maxsize=1_024)
def instant_of_date(text: str) -> Instant | None:
    """Returns the instant of a date as text: a date and time of W3C (a day, a month or a year is its first moment), or
    of mail and HTTP. A date without a time zone is in UTC, and one before 1970 is 0. None for any other text."""
    found = _WRITTEN(text.strip())
    if found is None:
        try:
            return max(0, instant(parsedate_to_datetime(text).timestamp()))
        except (ValueError, TypeError, IndexError, OverflowError, OSError):
            return None
    year, month, day, hour, minute, second = (int(found[place] or place < 4) for place in range(1, 7))
    zone = found[8] or "Z"
    ahead = 0 if zone in "Zz" else (1 if zone[0] == "+" else -1) * (60 * int(zone[1:3]) + int(zone[-2:]))
    if not (1 <= month <= 12 and 1 <= day <= monthrange(max(year, 1), month)[1] and hour < 24 and minute < 60):
        return None
    if not year or second > _LEAP_SECOND or abs(ahead) >= _DAY_MINUTES:
        return None
    minutes = ((_days_to(year, month) + day - 1) * 24 + hour) * 60 + minute - ahead
    micros = int((found[7] or "0")[:6].ljust(6, "0"))
    return max(0, (minutes * 60 + second) * MICROSECONDS + micros)


def _days_to(year: int, month: int) -> int:
    """Returns the days from 1970 to the first day of a month."""
    before = year - 1
    days = 365 * before + before // 4 - before // 100 + before // 400 - _DAYS_TO_1970
    return days + sum(monthrange(year, one)[1] for one in range(1, month))


def months_in(rest: str) -> Iterator[int]:
    """Returns the months after the host of a canonical URL, counted from the year 0; the first month for a year without
    a month."""
    if _MAY(rest) is None:
        return
    path, _, query = rest.partition("?")
    for found in _PATH_DATE.finditer(path):
        if _is_date_of_path(path, found):
            yield from _month(found[1], found[3])
    for found in _YEAR_FOLDER.finditer(path):
        yield from _month(found[1], found[2])
    if query:
        yield from _of_query(query)


def _month(year: str, month: str | None) -> Iterator[int]:
    number = int(month or 1)
    if int(year) in _YEARS and 1 <= number <= 12:
        yield int(year) * 12 + number - 1


def _is_day(text: str | None) -> bool:
    return text is None or 1 <= int(text) <= 31


def _is_calendar(name: str) -> bool:
    return any(word.lower() in _CALENDARS for word in _WORDS(name))


def _is_date_of_path(path: str, found: re.Match[str]) -> bool:
    """Whether a year followed by a month is a date, from the text before it and its zeros."""
    _, parted, month, day = found.groups()
    if not _is_day(day):
        return False
    start = found.start()
    name = path[path.rfind("/", 0, start) + 1 : start]
    if not name:
        name = path[path.rfind("/", 0, max(0, start - 1)) + 1 : start - 1]
        if start == 1 or _is_calendar(name):
            return True
        if parted == "/":
            return month[0] == "0" or (day is not None and day[0] == "0")
        return parted in "-_" and (month[0] == "0" or _is_padded(month, day))
    return _is_calendar(name) or (parted in "-_" and _is_padded(month, day))


def _is_padded(month: str, day: str | None) -> bool:
    return day is not None and len(month) == len(day) == 2


def _of_query(query: str) -> Iterator[int]:
    pairs = [one.partition("=")[::2] for one in query.replace(";", "&").split("&")]
    names = {name.lower() for name, _ in pairs}
    for name, value in pairs:
        if len(value) < 4 or _MAY(value[:4]) is None:
            continue
        words = {word.lower() for word in _WORDS(name)}
        if _YEAR(value):
            # A `y` alone is often a coordinate next to `x`, on a map.
            if words & _YEAR_NAMES or (name.lower() == "y" and names & _MONTH_ALONE and "x" not in names):
                months = [told for other, told in pairs if other.lower() in _MONTH_ALONE and _MONTH(told)]
                yield from _month(value, months[0] if months else None)
        elif found := _VALUE(value):
            _, parted, month, day = found.groups()
            if _is_day(day) and (words & _DATE_NAMES or (parted == "-" and _is_padded(month, day))):
                yield from _month(found[1], month)
        elif (found := _DIGITS(value)) and _is_day(found[3]) and words & (_DATE_NAMES if found[3] else _MONTH_NAMES):
            yield from _month(found[1], found[2])
