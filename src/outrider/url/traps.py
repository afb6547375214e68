"""Traps: endless URLs of a site. Rules that look at one URL alone, and the names of all rules.

trap_url_bytes     longer than the limit, and not because of one long value
trap_path_depth    more names in its path than the limit
trap_path_repeats  one name repeats more often in a circular path: relative links by mistake
trap_date          names a month that is more years ahead than the limit, and less than a century: the pages of a
                   calendar
trap_new_urls      its host or registrable domain had more new URLs in a day than the limit
trap_returns       URLs of its shape, or of its host, had hardly any new content lately
trap_session       the same, and it has a session id
trap_hosts         its host is new, and the new hosts of its domain had hardly any new content
trap_host_size     its host had twice as many fetches as nearly all other hosts
possible_mirror    URLs of its shape, or of its host, had pages of other hosts lately, and hardly any of their own
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from outrider.clock import Instant, seconds
from outrider.errors import SettingsError
from outrider.url.dates import months_in
from outrider.url.lossy_rules import has_session

RULES = (
    *("trap_url_bytes", "trap_path_depth", "trap_path_repeats", "trap_date"),
    *("trap_new_urls", "trap_returns", "trap_session", "trap_hosts", "trap_host_size"),
    "possible_mirror",
)
"""The rules by number, from 1 on; 0 is not a trap."""
BY_NEW_URLS, BY_RETURNS, BY_SESSION, BY_HOSTS, BY_HOST_SIZE, BY_MIRROR = 5, 6, 7, 8, 9, 10
BY_COUNTS = (BY_RETURNS, BY_SESSION, BY_HOSTS, BY_HOST_SIZE, BY_MIRROR)
"""Rules that depend on the content of other URLs."""
ANY_TRAP = "trap"
"""Selects all of them where a rule is expected."""
_YEAR_SECONDS = 31_556_952  # the mean year of the calendar
_YEARS_AHEAD_MAX = (
    100  # a calendar continues from today: 3000.2 is a version, 8859-1 a standard, 4523/2 part of a topic
)
# A day in a title, by numbers or with the English name of its month.
TITLE_DATE = re.compile(
    r"(?<![0-9])(?:[0-9]{4}[-/.][01]?[0-9](?:[-/.][0-3]?[0-9])?|[0-3]?[0-9][/.][01]?[0-9][/.][0-9]{4})(?![0-9])"
    r"|\b(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?)\.?,? (?:[0-3]?[0-9](?:st|nd|rd|th)?,? )?[0-9]{4}\b",
    re.IGNORECASE,
)
# Eight hexadecimal digits or more, of both sorts: made by chance, or from something.
_RANDOM = re.compile(r"(?<![0-9a-z])(?=[a-f]*[0-9])(?=[0-9]*[a-f])[0-9a-f]{8,}(?![0-9a-z])", re.IGNORECASE)
_MAY_BE_RANDOM = re.compile("[0-9a-f]{8}", re.IGNORECASE)
_FILTERS_MIN = 3  # parameters of a URL that combines filters
_MAY_HOLD_DATE = re.compile("[2-9][0-9]{3}")
_MAY_HOLD_ANY_DATE = re.compile("[0-9]{4}")
_VALUE_BYTES_MAX_TIMES = 4  # a value may multiply the length of a URL: RFC 9110 section 4.1 recommends 8,000 octets


@dataclass(frozen=True, slots=True)
class Traps:
    """The limits of the rules; None switches a rule off.

    new_urls_max   new URLs of a host, and of a registrable domain, in a day
    returns_min    share of the fetches of a shape, of the new shapes of a host and of the new hosts of a
                   domain that must have new content
    host_quantile  share of the hosts, of which each may have twice as many fetches as these have at most
    """

    url_bytes_max: int | None = None
    path_depth_max: int | None = None
    path_repeats_max: int | None = None
    date_years_max: float | None = None
    new_urls_max: int | None = None
    returns_min: float | None = None
    host_quantile: float | None = None

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if value is not None and value < 0:
                raise SettingsError(f"{name} is {value}; it can be 0 or more, or none")
        if self.host_quantile is not None and self.host_quantile >= 1:
            raise SettingsError(f"host_quantile is {self.host_quantile}; it can be a share below 1, or none")

    def may_break(
        self, lengths: npt.NDArray[Any], slashes: npt.NDArray[np.uint32], months: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.bool_]:
        """Returns the URLs for which `rule_of` is needed, from their bytes, the slashes after their authorities, and
        whether they may name a month; the others break no rule."""
        found = months & (self.date_years_max is not None)
        if self.url_bytes_max is not None:
            found |= lengths > self.url_bytes_max
        for most in (self.path_depth_max, self.path_repeats_max):
            if most is not None:
                found |= slashes > most
        return found

    def rule_of(self, url: str, now: Instant) -> int:
        """Returns the number of the first rule that a canonical URL breaks by itself, or 0."""
        if self.url_bytes_max is not None and _is_too_long(url, self.url_bytes_max):
            return 1
        return self._of_path(url[url.find("/", 8) :], now)

    def explained(self, url: str, now: Instant) -> str | None:
        """Returns the rule that a canonical URL breaks, with the numbers, or None."""
        path = url.encode()[url.index("/", 8) :]
        if self.url_bytes_max is not None and _is_too_long(url, self.url_bytes_max):
            return f"it has {len(url)} bytes, more than {self.url_bytes_max} (max_url_bytes)"
        rule = self._of_path(path.decode(), now)
        names = _names(path)
        if rule == 2:
            return f"its path has {len(names)} names, more than {self.path_depth_max} (max_path_depth)"
        if rule == 3:
            name, count = _looped(names, self.path_repeats_max or 0) or (b"", 0)
            shown = name.decode("ascii", "replace")[:40]
            return f"{shown!r} stands {count} times in its path, more than {self.path_repeats_max} (max_path_repeats)"
        if rule == 4:
            year, month = divmod(_latest(path.decode(), _month_after(now, _YEARS_AHEAD_MAX)) or 0, 12)
            return f"it names {year}-{month + 1:02}, more than {self.date_years_max:g} years ahead (date_horizon)"
        return None

    def _of_path(self, path: str, now: Instant) -> int:
        slashes = path.count("/")
        deep = self.path_depth_max is not None and slashes > self.path_depth_max
        looped = self.path_repeats_max is not None and slashes > self.path_repeats_max
        if deep or looped:
            names = _names(path.encode())
            if self.path_depth_max is not None and len(names) > self.path_depth_max:
                return 2
            if self.path_repeats_max is not None and _looped(names, self.path_repeats_max) is not None:
                return 3
        if self.date_years_max is not None and _MAY_HOLD_DATE.search(path) is not None:
            latest = _latest(path, _month_after(now, _YEARS_AHEAD_MAX))
            if latest is not None and latest > _month_after(now, self.date_years_max):
                return 4
        return 0


@lru_cache(maxsize=16)
def _month_after(now: Instant, years: float) -> int:
    """Returns the month a number of years after an instant, counted from the year 0; a call has one instant."""
    return int((1970 + seconds(now) / _YEAR_SECONDS + years) * 12)


def names_month(url: str) -> bool:
    """Whether a canonical URL names a month, of any year: the page of a calendar or an archive."""
    return any(True for _ in months_in(url[url.index("/", 8) :]))


def may_be_endless(url: str, title: str) -> bool:
    """Whether a page may be one of an endless kind, from its canonical URL and its title: one of a month or day, of a
    session, of a random name, or of filters on top of filters. Its words decide."""
    rest = url[url.index("/", 8) :]
    return (
        names_month(url)
        or has_session(rest)
        or rest.partition("?")[2].count("&") >= _FILTERS_MIN - 1
        or (_MAY_BE_RANDOM.search(rest) is not None and _RANDOM.search(rest) is not None)
        or (_MAY_HOLD_ANY_DATE.search(title) is not None and TITLE_DATE.search(title) is not None)
    )


def _names(path: bytes) -> list[bytes]:
    return [name for name in path.partition(b"?")[0].split(b"/") if name]


def _is_too_long(url: str, most: int) -> bool:
    """Whether a URL is longer than a site's own URLs. One long value is content (a program, a search), and counts only
    if it contains its own name again (`return=/login?return=…`), or is out of all proportion."""
    if len(url) <= most:
        return False
    name, _, value = max((one.partition("=") for one in url.partition("?")[2].split("&")), key=lambda one: len(one[2]))
    nested = bool(name) and (f"{name}=" in value or f"{name.lower()}%3d" in value.lower().replace("%25", "%"))
    return nested or len(url) - len(value) > most or len(url) > most * _VALUE_BYTES_MAX_TIMES


def _looped(names: list[bytes], most: int) -> tuple[bytes, int] | None:
    """Returns the name that repeats in a path more than `most` times, and its number, if the path is circular: most of
    its names are repeats, or a group of them repeats again and again. A project that is named like its folders
    (`gnumed/gnumed/blobs/master/gnumed/gnumed/client`) repeats a name without a circle."""
    if not names:
        return None
    name, count = Counter(names).most_common(1)[0]
    if count <= most:
        return None
    repeats = len(names) - len(set(names))
    return (name, count) if 2 * repeats > len(names) or _is_in_circles(names, most) else None


def _is_in_circles(names: list[bytes], most: int) -> bool:
    """Whether a group of names repeats `most` times in a row."""
    for size in range(1, len(names) // max(most, 1) + 1):
        same = 0  # names that are those of one round before, in a row
        for at in range(size, len(names)):
            same = same + 1 if names[at] == names[at - size] else 0
            if same >= size * (most - 1):
                return True
    return False


def _latest(rest: str, most: int) -> int | None:
    """Returns the latest month after a host that is not later than `most`, counted from the year 0."""
    return max((month for month in months_in(rest) if month <= most), default=None)
