"""Metadata of a URL: a mapping of the caller, kept as JSON. Accepted metadata can always be read again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from outrider.errors import SettingsError, shown
from outrider.limits import JSON_DEPTH_MAX, METADATA_BYTES_MAX, UNIQUE_METADATA_BYTES_MAX

_LEVELS: Final = re.compile(rb'"(?:[^"\\]++|\\.)*"?|[][{}]', re.DOTALL)
"""Texts, which may contain brackets, and the brackets that open and close arrays and objects. A text without an end
continues to the end of the octets: they may not be JSON, and no part of them is read twice."""


def metadata_bytes_max(*, callers: bool) -> int:
    """The longest metadata of a URL. callers: of a crawl by unique keys, where it may be a request with its body."""
    return UNIQUE_METADATA_BYTES_MAX if callers else METADATA_BYTES_MAX


def packed(value: object, what: str = "metadata", *, bytes_max: int = METADATA_BYTES_MAX) -> bytes:
    """Checks metadata and encodes it as JSON. The frontier checks its size on entry: `discover` returns
    `over_limit`. Raises SettingsError."""
    if value is None:
        return b""
    if not isinstance(value, Mapping):
        raise SettingsError(f"{what} {shown(value)}: use a mapping of JSON values")
    try:
        octets = msgspec.json.encode(value)
    except RecursionError:
        raise _too_deep(what) from None
    except Exception as error:  # a mapping of the caller's own class may raise anything
        raise SettingsError(f"{what} cannot be kept: {error}; use a mapping of JSON values") from error
    return checked(octets, what, bytes_max=bytes_max)


def checked(octets: bytes, what: str, *, bytes_max: int = METADATA_BYTES_MAX) -> bytes:
    """The same octets, if they are JSON that every reader can read. Raises SettingsError."""
    if len(octets) > bytes_max:
        return octets  # its size is refused before it is read
    if depth_of(octets) > JSON_DEPTH_MAX:
        raise _too_deep(what)
    try:
        msgspec.json.decode(octets or b"{}", type=dict[str, Any])
    except ValueError as error:  # msgspec.Raw is copied as it is, and may be anything
        raise SettingsError(f"{what} cannot be kept: {error}; use a mapping of JSON values") from error
    return octets


def unpacked(octets: bytes) -> dict[str, Any] | None:
    """Decodes metadata of a store, or returns None. An older store may contain values that are nested too
    deep to be read: null replaces each value beyond JSON_DEPTH_MAX levels."""
    if not octets:
        return None
    try:
        return msgspec.json.decode(octets if depth_of(octets) <= JSON_DEPTH_MAX else _cut(octets), type=dict[str, Any])
    except ValueError:
        return None  # they were never JSON (msgspec.Raw), or no mapping


def _too_deep(what: str) -> SettingsError:
    return SettingsError(f"{what} is nested too deep: it may have {JSON_DEPTH_MAX} levels; flatten it")


def depth_of(octets: bytes) -> int:
    """The most arrays and objects around one value. Exact only beyond JSON_DEPTH_MAX brackets: fewer nest less."""
    most = octets.count(b"{") + octets.count(b"[")
    if most <= JSON_DEPTH_MAX:
        return most
    depth = most = 0
    for met in _LEVELS.finditer(octets):
        sign = met[0]
        if sign in b"{[":
            depth += 1
            most = max(most, depth)
        elif sign in b"]}":
            depth -= 1
    return most


def _cut(octets: bytes) -> bytes:
    """The same JSON with null in place of all values beyond JSON_DEPTH_MAX levels."""
    kept, place, depth = bytearray(), 0, 0
    for met in _LEVELS.finditer(octets):
        sign = met[0]
        if sign in b"{[":
            depth += 1
            if depth == JSON_DEPTH_MAX + 1:
                kept += octets[place : met.start()] + b"null"
        elif sign in b"]}":
            depth -= 1
            if depth == JSON_DEPTH_MAX:
                place = met.end()
    return bytes(kept + octets[place:])
