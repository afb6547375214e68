"""Values that fit into a catalog. A value that does not fit is cut and counted; it never fails a batch."""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache
from typing import Final

_WHOLE_MIN: Final = -(1 << 63)
_WHOLE_MAX: Final = (1 << 63) - 1
_UNFIT: Final = re.compile("[\0\ud800-\udfff]")
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
_MONTHS: Final = {
    name: number
    for number, name in enumerate(
        ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"), start=1
    )
}
_HTTP_DATE: Final = re.compile(r"[A-Z][a-z]{2}, ([0-9]{2}) ([A-Z][a-z]{2}) ([0-9]{4}) ([0-9:]{8}) GMT")
"""RFC 9110, section 5.6.7: the preferred form. Dates in other forms are rare, and not stored."""


class Fitting:
    """Makes values fit, and counts the cut ones."""

    def __init__(self) -> None:
        self.cut = 0
        """The number of values that were cut or left out."""

    def text(self, value: object, characters_max: int) -> str | None:
        """Returns a text of at most this length. NUL and lone surrogates are replaced (U+FFFD). None for other
        values."""
        if value is None:
            return None
        if not isinstance(value, str):
            self.cut += 1
            return None
        if value.isascii() and len(value) <= characters_max and "\0" not in value:
            return value
        fit = _UNFIT.sub(_REPLACEMENT, value[:characters_max])
        self.cut += fit != value
        return fit

    def whole(self, value: object) -> int | None:
        """Returns a whole number of 64 bits; None for other values."""
        if value is None or (type(value) is int and _WHOLE_MIN <= value <= _WHOLE_MAX):
            return value
        self.cut += 1
        return None

    def real(self, value: object) -> float | None:
        """Returns a finite number; None for other values."""
        if value is None:
            return None
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf"):
            return float(value)
        self.cut += 1
        return None

    def simhash(self, value: object) -> int | None:
        """Returns 16 hexadecimal digits as a number with a sign: 64 bits without one do not fit."""
        if value is None:
            return None
        try:
            bits = int(value, 16) if isinstance(value, str) else -1
        except ValueError:
            bits = -1
        if 0 <= bits < 1 << 64:
            return bits - (1 << 64) if bits >> 63 else bits
        self.cut += 1
        return None

    def http_date(self, value: object) -> str | None:
        """Returns a date of HTTP as RFC 3339; None for a text in another form."""
        if value is None:
            return None
        found = _http_date(value) if isinstance(value, str) else None
        self.cut += found is None
        return found


@lru_cache(maxsize=1_024)
def _http_date(value: str) -> str | None:
    match = _HTTP_DATE.fullmatch(value)
    if match is None or match[2] not in _MONTHS:
        return None
    return checked_instant(f"{match[3]}-{_MONTHS[match[2]]:02d}-{match[1]}T{match[4]}Z")


def checked_instant(value: object) -> str | None:
    """Returns RFC 3339 text in UTC with microseconds; None for a value that is not such a time."""
    if not isinstance(value, str) or not value.endswith("Z"):
        return None
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        return None
    if len(value) == 24:  # the milliseconds of a line
        return f"{value[:23]}000Z"
    return value if len(value) == 27 else f"{at.replace(tzinfo=None).isoformat(timespec='microseconds')}Z"
