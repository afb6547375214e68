"""How long an answer says that it may be kept: Cache-Control, Expires and Age (RFC 9111 sections 4.2.1 and 5.2.2)."""

from __future__ import annotations

import re
from typing import Protocol

from outrider.fetch.failures import http_date
from outrider.limits import DELTA_SECONDS_MAX

_DIRECTIVE = re.compile(r'\s*([!#$%&\'*+.^_`|~0-9A-Za-z-]+)(?:=("(?:[^"\\]|\\.)*"|[^\s,"]*))?\s*(?:,|$)')


class Fields(Protocol):
    """The header fields of an answer, by names in lower case."""

    def get(self, name: str, /) -> str | None: ...


def fresh_seconds(headers: Fields, now: float) -> float | None:
    """Returns the seconds for which an answer may be used from now on; None without such a header field. `now` in
    seconds since 1970.

    no-store and no-cache mean 0. In doubt, so do a max-age that is not a number and an Expires that is not a date.
    max-age overrides Expires. s-maxage is ignored, because it is for shared caches.
    """
    told = _directives(headers.get("cache-control") or "")
    age = _delta(headers.get("age") or "0") or 0
    if "no-store" in told or "no-cache" in told:
        return 0.0
    if "max-age" in told:
        return float(max(0, (_delta(told["max-age"]) or 0) - age))
    expires = headers.get("expires")
    if expires is None:
        return None
    until = http_date(expires.strip(), now)
    if until is None:
        return 0.0
    made = http_date((headers.get("date") or "").strip(), now)
    return float(max(0.0, until - (now if made is None else made) - age))


def _directives(text: str) -> dict[str, str]:
    """Returns directives in lower case with their values; of repeated ones the smallest number counts."""
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        match = _DIRECTIVE.match(text, at)
        if match is None:
            at = text.find(",", at) + 1 or len(text)
            continue
        name, value = match[1].lower(), (match[2] or "").strip('"')
        if name not in found or (_delta(value) or 0) < (_delta(found[name]) or 0):
            found[name] = value
        at = match.end()
    return found


def _delta(text: str) -> int | None:
    """Returns a number of seconds, None for another text; too large values count as the largest (RFC 9111 section
    1.2.2)."""
    text = text.strip()
    if not (text.isascii() and text.isdigit()):
        return None
    return DELTA_SECONDS_MAX if len(text) > 10 else min(int(text), DELTA_SECONDS_MAX)
