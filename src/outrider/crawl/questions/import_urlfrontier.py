"""The URLs of a URLFrontier, as its command `DumpURLs` writes them, as records of a crawl by unique keys.

Each line is an item of the protocol in the JSON of protobuf: names in either spelling, and numbers also as texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from outrider.clock import Instant
from outrider.engine.url_exchange import DATE_MAX, DEFAULT_CRAWL, KEY_CHARACTERS_MAX, record_of_known
from outrider.errors import SettingsError
from outrider.limits import MICROSECONDS


class _Values(msgspec.Struct):
    values: list[str] = []


class _Info(msgspec.Struct, rename="camel"):
    url: str
    key: str = ""
    metadata: dict[str, _Values] = {}
    crawl_id: str = msgspec.field(name="crawlID", default="")


class _Branch(msgspec.Struct, rename="camel"):
    """A known or a discovered URL. A discovered one has no date."""

    info: _Info
    refetchable_from_date: int = 0


class _Item(msgspec.Struct, rename="camel"):
    known: _Branch | None = None
    discovered: _Branch | None = None
    creation_date: int = 0


_NAMES = {"refetchable_from_date": "refetchableFromDate", "creation_date": "creationDate"}


def is_item(record: Mapping[str, Any]) -> bool:
    """Whether a record is a line of `DumpURLs`."""
    return "url" not in record and any(isinstance(record.get(name), dict) for name in ("known", "discovered"))


def record_of_item(line: Mapping[str, Any], now: Instant) -> dict[str, Any]:
    """Returns a line as the record of its URL. Raises SettingsError for a line that cannot be one."""
    try:
        item = msgspec.convert(_named(line), _Item, strict=False)
    except msgspec.ValidationError as error:
        raise SettingsError(f"it is not an item of DumpURLs: {error}") from None
    branch = item.known or item.discovered
    if branch is None or not branch.info.url:
        raise SettingsError("it is not an item of DumpURLs: it has no url")
    info, date = branch.info, branch.refetchable_from_date
    if len(info.key) > KEY_CHARACTERS_MAX:
        raise SettingsError(f"key has {len(info.key)} characters; a key may have {KEY_CHARACTERS_MAX} at most")
    for name, value in (("refetchable_from_date", date), ("creation_date", item.creation_date)):
        if not 0 <= value <= DATE_MAX:
            raise SettingsError(f"{name} is {value}; use seconds since 1970, at most {DATE_MAX}")
    record = record_of_known(
        info.url,
        info.key,
        info.crawl_id.strip() or DEFAULT_CRAWL,
        date if item.known else now // MICROSECONDS,
        {name: some.values for name, some in info.metadata.items()},
        now,
    )
    return record | {"discovered_at": item.creation_date * MICROSECONDS or None}


def _named(value: Any) -> Any:
    """Returns the same objects with names in the spelling of JSON."""
    if not isinstance(value, dict):
        return value
    return {_NAMES.get(name, name): one if name == "metadata" else _named(one) for name, one in value.items()}
