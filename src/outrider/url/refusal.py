"""Why a text is not a URL that can be crawled: the likeliest reason, in words, and the character where it goes wrong.

The parser only refuses. So the usual mistakes are checked in turn, the most frequent ones first.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from outrider.errors import InvalidUrlError
from outrider.limits import URL_BYTES_MAX

_SHOWN_CHARACTERS = 96
_FACTS_CHARACTERS_MAX = 200
_LOOKED_AT_CHARACTERS = 2 * URL_BYTES_MAX
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*+):")
_AUTHORITY = re.compile(r"[A-Za-z]+:[/\\]*([^/\\?#]*)")
_FORBIDDEN_IN_HOST = re.compile(r"[\x00-\x20\x7f#/<>?@\\^|%\[\]]")
_PORT_ALONE = re.compile(r"[^/:]*:[0-9]+(?:/|$)")
_BLANK = re.compile("[\x00-\x20]*")  # WHATWG URL 4.4: C0 controls and spaces are removed at both ends
_SKIPPED = "\t\n\r"  # and these anywhere
_SKIPPED_CODES = [ord(character) for character in _SKIPPED]

_USERINFO = re.compile(r"[\x00-\x20]*+(?:[A-Za-z][A-Za-z0-9+.\t\n\r-]*+:)?[/\\\t\n\r]*+([^/\\?#]*)@")


class _Fault(NamedTuple):
    reason: str
    at: int | None = None  # in the text without what a parser skips


def shown(text: str) -> str:
    """Text from the web as it may be shown to people: quoted, nothing that does not print, and not too much of it."""
    head = text[:_SHOWN_CHARACTERS]
    safe = "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode("ascii") for c in head)
    safe = safe[:_SHOWN_CHARACTERS]
    return f"'{safe}…'" if len(text) > _SHOWN_CHARACTERS or len(safe) < len(head) else f"'{safe}'"


def without_userinfo(text: str) -> str:
    """Returns a text that may be a URL, with `…` in place of user and password: errors are written to logs."""
    found = _USERINFO.match(text) if "@" in text else None
    return text if found is None else f"{text[: found.start(1)]}…{text[found.end(1) :]}"


def refusal(url: object, base: str | None = None) -> InvalidUrlError:
    """The error to raise for a URL (a reference on a page at `base`) that has no canonical spelling."""
    if not isinstance(url, str):
        reason = f"text is needed, not a {type(url).__name__}"
        return InvalidUrlError(reason, reason=reason)
    if base is not None and _SCHEME.match(url) is None:
        # For a reference without a scheme, the fault may also be in the page's own address.
        facts = f"{shown(without_userinfo(url))} on a page at {shown(without_userinfo(base))}"
        return InvalidUrlError(facts[:_FACTS_CHARACTERS_MAX], url=url, reason="it leads nowhere on that page")
    reason, at = _fault(skimmed(url)[: _LOOKED_AT_CHARACTERS + 1])
    position = None if at is None else _position(url, at)
    if position is not None:
        reason = reason.replace("{at}", str(position))
    facts = f"{shown(without_userinfo(url))}: {reason}"[:_FACTS_CHARACTERS_MAX]
    return InvalidUrlError(facts, url=url, reason=reason, position=position)


def skimmed(url: str) -> str:
    """The rest of a text where a parser begins: without the characters that it strips from both ends, or skips
    anywhere."""
    text = url
    if url[:1] <= " " or url[-1:] <= " ":
        start, end = _bounds(url)
        text = url[start:end]
    if "\t" not in text and "\n" not in text and "\r" not in text:
        return text
    # As bytes: a text drops its characters one by one.
    octets = text.encode("utf-8", "surrogatepass").translate(None, _SKIPPED.encode())
    return octets.decode("utf-8", "surrogatepass")


def _bounds(url: str) -> tuple[int, int]:
    start = _BLANK.match(url)
    assert start is not None, "it may be empty"
    end = _BLANK.match(url[::-1])
    assert end is not None, "it may be empty"
    return start.end(), len(url) - end.end()


def _position(url: str, at: int) -> int:
    """Returns the position in the original text of character `at` of the skimmed text."""
    start, _ = _bounds(url)
    kept = np.frombuffer(url[start:].encode("utf-32-le", "surrogatepass"), np.uint32)
    places = np.flatnonzero(~np.isin(kept, _SKIPPED_CODES))
    return start + int(places[at]) if at < len(places) else len(url)


def _fault(text: str) -> _Fault:
    if not text:
        return _Fault("it is empty")
    scheme = _SCHEME.match(text)
    if scheme is None:
        return _Fault("it has no scheme; write http:// or https:// before it", 0)
    name = scheme[1].lower()
    if name not in {"http", "https"}:
        if _PORT_ALONE.match(text):
            return _Fault("it has no scheme; write http:// or https:// before it", 0)
        return _Fault(f"its scheme is {shown(name)}, only http and https are crawled", 0)
    authority = _AUTHORITY.match(text)
    assert authority is not None, "an http scheme was just matched"
    if authority.end() > _LOOKED_AT_CHARACTERS:
        return _Fault(f"what stands before its path is longer than {_LOOKED_AT_CHARACTERS} characters")
    userinfo, _, host_and_port = authority[1].rpartition("@")
    offset = authority.start(1) + (len(userinfo) + 1 if len(host_and_port) < len(authority[1]) else 0)
    if host_and_port.startswith("["):
        host, bracket, port = host_and_port.partition("]")
        if not bracket:
            return _Fault("the bracket at position {at} is never closed", offset)
        if port and not port.startswith(":"):
            at = offset + len(host) + 1
            return _Fault("something stands between the host and the port, at position {at}", at)
        port = port[1:]
        if port.isascii() and (not port or (port.isdigit() and int(port.lstrip("0")[:6] or "0") <= 65_535)):
            return _Fault("the IPv6 address at position {at} is malformed", offset)
        port_at = offset + len(host) + 2
    else:
        host, _, port = host_and_port.partition(":")
        port_at = offset + len(host) + 1
    if not host:
        return _Fault("it has no host", offset)
    if port and not (port.isascii() and port.isdigit()):
        return _Fault("the port at position {at} is not a number", port_at)
    if port and int(port.lstrip("0")[:6] or "0") > 65_535:
        return _Fault("the port at position {at} is above 65535", port_at)
    forbidden = _FORBIDDEN_IN_HOST.search(host)
    if forbidden is not None:
        return _Fault("the character at position {at} may not stand in a host name", offset + forbidden.start())
    return _Fault("its host is neither a valid name nor a valid address", offset)
