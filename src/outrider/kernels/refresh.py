"""The value of a meta refresh, and of a `Refresh` header field (WHATWG HTML 4.2.5.3)."""

from __future__ import annotations

import re

_REFRESH_SECONDS = re.compile(r"[ \t\n\f\r]*(?:([0-9]+)|(?=\.))[0-9.]*")
_REFRESH_SEPARATOR = re.compile(r"[ \t\n\f\r]*[;,]?[ \t\n\f\r]*")
_REFRESH_URL = re.compile(r"(?i)url[ \t\n\f\r]*=[ \t\n\f\r]*")


def parse_refresh(content: str) -> tuple[int, str] | None:
    """Seconds and the URL as written ("" for the page itself) of a meta refresh; None if a browser would ignore it.

    WHATWG HTML 4.2.5.3, the shared declarative refresh steps.
    """
    time = _REFRESH_SECONDS.match(content)
    if time is None:
        return None
    seconds = int((time[1] or "0")[:9])
    rest = content[time.end() :]
    if not rest:
        return seconds, ""
    if rest[0] not in ";, \t\n\f\r":
        return None
    separator = _REFRESH_SEPARATOR.match(rest)
    assert separator is not None, "everything in it is optional"
    address = rest[separator.end() :]
    named = _REFRESH_URL.match(address)
    if named is not None:
        address = address[named.end() :]
    if address[:1] in {'"', "'"} and (named is not None or address):
        quote = address[0]
        address = address[1:]
        end = address.find(quote)
        address = address if end < 0 else address[:end]
    return seconds, address
