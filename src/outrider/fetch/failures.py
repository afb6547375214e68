"""The ways in which a request fails: one closed list of errors; and the wait of `Retry-After`."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from enum import StrEnum

from outrider.errors import OutriderError
from outrider.limits import ERROR_TEXT_MAX, RETRY_AFTER_SECONDS_MAX

_UNPRINTABLE = re.compile(r"[^\x20-\x7e\xa1-\u024f]")
_DELTA = re.compile(r"[0-9]+\Z", re.ASCII)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTH = "(?P<month>" + "|".join(_MONTHS) + ")"
_TIME = "(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})"
_DAY = "(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_LONG_DAY = "(?:Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday)"
# RFC 9110 section 5.6.7: IMF-fixdate, rfc850-date, asctime-date. The weekday must be a name, not the right one.
_DATES = tuple(
    re.compile(form, re.ASCII)
    for form in (
        rf"{_DAY}, (?P<day>[0-9]{{2}}) {_MONTH} (?P<year>[0-9]{{4}}) {_TIME} GMT\Z",
        rf"{_LONG_DAY}, (?P<day>[0-9]{{2}})-{_MONTH}-(?P<year>[0-9]{{2}}) {_TIME} GMT\Z",
        rf"{_DAY} {_MONTH} (?P<day>[0-9]{{2}}| [0-9]) {_TIME} (?P<year>[0-9]{{4}})\Z",
    )
)


class FetchError(StrEnum):
    """Why a fetch has no whole answer; the list is closed, its values are written to `pages.jsonl`."""

    DNS_UNKNOWN = "dns_unknown"  # the name does not exist or has no address
    DNS_TEMPORARY = "dns_temporary"  # no name server could say
    BLOCKED_ADDRESS = "blocked_address"  # every address is one that the guard refuses
    BLOCKED_PORT = "blocked_port"  # a port on which something else than HTTP listens
    UNREACHABLE = "unreachable"  # no route to the address, or no socket left here
    CONNECT_REFUSED = "connect_refused"
    CONNECT_TIMEOUT = "connect_timeout"  # TCP and TLS together
    TLS = "tls"  # no common protocol, or a certificate that does not prove the name
    FIRST_BYTE_TIMEOUT = "first_byte_timeout"  # the request was sent, no whole head arrived
    IDLE_TIMEOUT = "idle_timeout"  # the head arrived, then the body stopped
    TOTAL_TIMEOUT = "total_timeout"  # bytes arrived, too slowly for a whole head
    RESET = "reset"  # the connection broke before a whole head
    EMPTY_REPLY = "empty_reply"  # the connection was closed without a line
    MALFORMED = "malformed"  # the answer is not HTTP/1.x, or its chunks are not chunks
    TOO_MANY_HEADERS = "too_many_headers"  # more lines or bytes of head, interim answers included, than the limits
    DECODE = "decode"  # the coding of the body is damaged, or unknown for bytes that are not text
    NOT_WELCOME = "not_welcome"  # a challenge for a browser or a person in place of the page
    ASKS_SIGNATURE = "asks_signature"  # a refusal that asks for a signed request, which the next attempt is
    INTERNAL = "internal"  # a bug or a shortage on this side

    @property
    def retryable(self) -> bool:
        """Whether the same request may well succeed a little later."""
        return self in _RETRYABLE


_RETRYABLE = frozenset(
    {
        FetchError.DNS_TEMPORARY,
        FetchError.UNREACHABLE,
        FetchError.CONNECT_REFUSED,
        FetchError.CONNECT_TIMEOUT,
        FetchError.FIRST_BYTE_TIMEOUT,
        FetchError.IDLE_TIMEOUT,
        FetchError.TOTAL_TIMEOUT,
        FetchError.RESET,
        FetchError.EMPTY_REPLY,
        FetchError.NOT_WELCOME,
        FetchError.ASKS_SIGNATURE,
        FetchError.INTERNAL,
    }
)


UNCONNECTED = frozenset(
    {FetchError.UNREACHABLE, FetchError.CONNECT_REFUSED, FetchError.CONNECT_TIMEOUT, FetchError.RESET}
)
"""Errors of an address before any request was sent: another address of the host may work."""


class FetchFailure(OutriderError):  # noqa: N818 - the error is one of its parts
    """A page could not be requested."""

    def __init__(self, error: FetchError, facts: str = "") -> None:
        self.error = error
        self.retryable = error.retryable
        super().__init__(f"{error}: {facts}" if facts else str(error))


class BlockedAddress(FetchFailure):
    """This address may not be connected to."""

    def __init__(self, facts: str = "") -> None:
        super().__init__(FetchError.BLOCKED_ADDRESS, facts)


def safe_text(text: str, length_max: int = ERROR_TEXT_MAX) -> str:
    """The words with everything that could steer a terminal or break a line replaced by `?`, and cut."""
    return _UNPRINTABLE.sub("?", text[: length_max + 1])[:length_max] if text else ""


def http_date(value: str, now: float) -> float | None:
    """Seconds since 1970 of an HTTP-date in one of its three forms (RFC 9110 section 5.6.7); None for all else.

    `now` (seconds since 1970) decides the century of two-digit years: never more than 50 years ahead.
    """
    for form in _DATES:
        match = form.match(value)
        if match is None:
            continue
        year, second = int(match["year"]), int(match["second"])
        if len(match["year"]) == 2:
            this_year = datetime.fromtimestamp(now, UTC).year
            year += this_year - this_year % 100
            if year > this_year + 50:
                year -= 100
        leap = second == 60  # a leap second is the one after :59
        month = _MONTHS.index(match["month"]) + 1
        try:
            at = datetime(
                year, month, int(match["day"]), int(match["hour"]), int(match["minute"]), second - leap, tzinfo=UTC
            )
        except ValueError:
            return None
        return at.timestamp() + leap
    return None


def retry_after_seconds(value: str | bytes | None, now: float) -> float | None:
    """Returns the seconds from `now` (seconds since 1970) of a `Retry-After` field: RFC 9110 section 10.2.3.

    Whole seconds or an HTTP-date; a past date is 0. None when the field is absent or is neither
    (negative, fraction, list); never more than a year.
    """
    if value is None:
        return None
    text = (value.decode("latin-1") if isinstance(value, bytes) else value).strip(" \t")
    if _DELTA.match(text):
        digits = text.lstrip("0")
        return RETRY_AFTER_SECONDS_MAX if len(digits) > 9 else min(float(digits or "0"), RETRY_AFTER_SECONDS_MAX)
    at = http_date(text, now)
    return None if at is None else min(max(at - now, 0.0), RETRY_AFTER_SECONDS_MAX)
