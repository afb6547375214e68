"""Requests of Scrapy as octets: MessagePack of what `Request.to_dict` returns, without the values that are the default.

Only values of plain types are stored, so that a request is read exactly as it was written, and nothing is executed
while it is read. Tuples and sets are extension types.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from outrider.errors import SettingsError
from outrider.journey import Lease, Link
from outrider.limits import JSON_DEPTH_MAX, PRIORITY_WHOLE_MAX, STORED_REQUEST_BYTES_MAX

_REQUEST: Final = "request"
"""The name of the octets of a request in the metadata of its URL, as base64."""
_IDENTITY_NAME: Final = "scrapy.json"
"""A file beside the store of one spider: its name, and its fingerprinter."""
START, FILTERED, SINGLE = b"s", b"f", b"n"
"""How the unique key of a request begins: of a start request that is not filtered, of one that is filtered by its
fingerprint, and of one that is a request of its own whatever its fingerprint is."""

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
_STARTS_PER_PRIORITY: Final = 1 << 20
_PRIORITY_MAX: Final = PRIORITY_WHOLE_MAX // _STARTS_PER_PRIORITY - 1
_INT_MIN, _INT_MAX = -(1 << 63), (1 << 64) - 1


class UnstorableError(ValueError):
    """A request cannot be stored."""


def crawl_of(spider: str) -> str:
    """Returns the name of the crawl of a spider: its own name. Every store has a crawl `default`, by URL; the spider of
    this name gets another one."""
    return "default-spider" if spider == "default" else spider


def link_of(values: Mapping[str, Any], crawl: str, unique_key: bytes, *, start: int = 0) -> Link:
    """Returns the link of a request, with its octets. start: the number of a start request, from 1 on. Raises
    UnstorableError."""
    octets = packed(values)
    meta = values.get("meta") or {}
    depth = meta.get("depth", 0)
    return Link(
        values["url"],
        crawl=crawl,
        unique_key=unique_key,
        key=meta.get("download_slot"),
        priority=_rank(values.get("priority", 0), start),
        depth=depth if isinstance(depth, int) else 0,
        metadata={_REQUEST: base64.b64encode(octets).decode("ascii")},
    )


def values_of(stored: Lease | Link) -> dict[str, Any] | None:
    """Returns what a link, or that of a lease, was made of; None for a URL without a request. Raises ValueError."""
    told = (stored.metadata or {}).get(_REQUEST)
    return None if told is None else unpacked(base64.b64decode(str(told)))


def _rank(priority: int, start: int) -> int:
    """Returns the priority of a request in the frontier. Start requests follow the other requests of their priority, in
    their own order, as in Scrapy."""
    level = max(-_PRIORITY_MAX, min(_PRIORITY_MAX, priority))
    return level * _STARTS_PER_PRIORITY - min(start, _STARTS_PER_PRIORITY - 1)


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


class _Identity(msgspec.Struct):
    """Whose store it is: the name of a spider, and the class that computes its fingerprints."""

    spider: str
    fingerprinter: str


def check_identity(directory: Path, spider: str, fingerprinter: str | None = None) -> None:
    """Notes whose store this is, or compares. Without a fingerprinter, nothing is noted. Raises SettingsError for the
    store of another spider or with other fingerprints, and for a damaged note."""
    file = directory / _IDENTITY_NAME
    try:
        noted = msgspec.json.decode(file.read_bytes(), type=_Identity)
    except FileNotFoundError:
        if fingerprinter is not None:
            part = file.with_suffix(".part")
            part.write_bytes(msgspec.json.encode(_Identity(spider, fingerprinter)) + b"\n")
            part.replace(file)
        return
    except (ValueError, RecursionError) as error:
        raise SettingsError(
            f"{file} is damaged ({str(error)[:200]}); if the store is that of {spider!r}, delete this file, and it is "
            "written again; otherwise use another JOBDIR or OUTRIDER_FRONTIER"
        ) from None
    if noted.spider != spider:
        raise SettingsError(
            f"{directory} is the store of spider {noted.spider!r:.200}, not of {spider!r}; use another JOBDIR or "
            "OUTRIDER_FRONTIER for this spider"
        )
    if fingerprinter not in (None, noted.fingerprinter):
        raise SettingsError(
            f"{directory} was made with fingerprinter {noted.fingerprinter!r:.200}, and REQUEST_FINGERPRINTER_CLASS is "
            f"{fingerprinter!r}: requests would not be recognized; use the old one, or another JOBDIR"
        )
