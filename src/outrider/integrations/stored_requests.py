"""Requests of Scrapy as octets: MessagePack of what `Request.to_dict` returns, without the values that are the default.

Only values of plain types are stored, so that a request is read exactly as it was written, and nothing is executed
while it is read. Tuples and sets are extension types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from outrider.limits import JSON_DEPTH_MAX, STORED_REQUEST_BYTES_MAX

_TUPLE, _SET, _FROZEN_SET = 1, 2, 3
_EXTENSIONS: Final[Mapping[type, int]] = {tuple: _TUPLE, set: _SET, frozenset: _FROZEN_SET}
_MADE_OF: Final[Mapping[int, Callable[[list[Any]], Any]]] = {_TUPLE: tuple, _SET: set, _FROZEN_SET: frozenset}
_SCALARS: Final = frozenset({str, bytes, int, float, bool, type(None)})
_DEFAULTS: Final[Mapping[str, Any]] = {
    "callback": None,
    "errback": None,
    "headers": {},
    "method": "GET",
    "body": b"",
    "cookies": {},
    "meta": {},
    "encoding": "utf-8",
    "priority": 0,
    "dont_filter": False,
    "flags": [],
    "cb_kwargs": {},
}
"""The values that `scrapy.Request` has without being told."""
_INT_MIN, _INT_MAX = -(1 << 63), (1 << 64) - 1


class UnstorableError(ValueError):
    """A request cannot be stored."""


def packed(values: Mapping[str, Any]) -> bytes:
    """Returns the octets of a request. Raises UnstorableError, which names the value that cannot be stored."""
    told = {
        name: _plain(value, name, 0)
        for name, value in values.items()
        if name not in _DEFAULTS or type(value) is not type(_DEFAULTS[name]) or value != _DEFAULTS[name]
    }
    try:
        octets = msgspec.msgpack.encode(told)
    except (ValueError, TypeError, OverflowError) as error:  # half of a surrogate pair
        raise UnstorableError(str(error)) from error
    if len(octets) > STORED_REQUEST_BYTES_MAX:
        raise UnstorableError(
            f"it has {len(octets):,} bytes, and {STORED_REQUEST_BYTES_MAX:,} can be stored; keep large values "
            "elsewhere, and put their names into meta or cb_kwargs"
        )
    return octets


def unpacked(octets: bytes) -> dict[str, Any]:
    """Returns what `packed` got. Raises ValueError for octets that are none of it."""
    try:
        found = msgspec.msgpack.decode(octets, ext_hook=_extended)
    except (msgspec.DecodeError, RecursionError, TypeError) as error:
        raise ValueError(f"a stored request cannot be read: {error}") from error
    if not isinstance(found, dict) or not isinstance(found.get("url"), str):
        raise ValueError("a stored request cannot be read: it has no URL")
    return found


def _plain(value: Any, where: str, depth: int) -> Any:
    kind = type(value)
    if kind in _SCALARS:
        if kind is int and not _INT_MIN <= value <= _INT_MAX:
            raise UnstorableError(f"{where} has an integer of more than 64 bits")
        return value
    if depth >= JSON_DEPTH_MAX:
        raise UnstorableError(f"{where} is nested more than {JSON_DEPTH_MAX} levels deep")
    if kind is dict:
        odd = next((key for key in value if type(key) not in _SCALARS), None)
        if odd is not None:
            raise UnstorableError(f"{where} has a key of type {type(odd).__qualname__}")
        return {key: _plain(one, f"{where}[{key!r:.40}]", depth + 1) for key, one in value.items()}
    if kind is list:
        return [_plain(one, where, depth + 1) for one in value]
    code = _EXTENSIONS.get(kind)
    if code is None:
        raise UnstorableError(f"{where} has a value of type {kind.__module__}.{kind.__qualname__}")
    inside = [_plain(one, where, depth + 1) for one in value]
    return msgspec.msgpack.Ext(code, msgspec.msgpack.encode(inside))


def _extended(code: int, content: memoryview) -> Any:
    made = _MADE_OF.get(code)
    if made is None:
        raise ValueError(f"a stored request cannot be read: it has a value of unknown type {code}")
    return made(msgspec.msgpack.decode(content, ext_hook=_extended))
