"""Instants for people and machines: int microseconds inside, RFC 3339 in UTC in every answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from outrider.clock import rfc3339

_INSTANTS = ("due", "deadline", "expires", "not_before", "visited")
_INSTANT_ENDINGS = ("_at", "_until", "_before", "_since")


def dated(value: object, name: str = "") -> Any:
    """Returns the same value with each instant as RFC 3339 in UTC, as in tables; an instant that is not set is None."""
    if isinstance(value, Mapping):
        return {key: dated(one, str(key)) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [dated(one, name) for one in value]
    if isinstance(value, int) and not isinstance(value, bool) and is_instant(name):
        return moment(value) if value > 0 else None
    return value


def is_instant(name: str) -> bool:
    """Whether a field of this name contains an instant."""
    return name in _INSTANTS or name.endswith(_INSTANT_ENDINGS)


def moment(instant: int) -> str:
    """Returns one instant as RFC 3339; "-" if it is not set."""
    if instant <= 0:
        return "-"
    try:
        return rfc3339(instant)
    except (OverflowError, ValueError, OSError):  # beyond the year 9999
        return str(instant)
