"""The tables of a catalog, declared once for all kinds of catalogs, and the words for the states of URLs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from outrider.journey import State, Word

SCHEMA_VERSION: Final = 1
"""A catalog with a higher version was made by a later release, and is refused."""


class CellKind(StrEnum):
    """The kinds of columns. Each catalog has its own type for a kind.

    hash: 32 bytes. whole, key: 64 bits with a sign. instant: RFC 3339 text with microseconds, in UTC.
    """

    KEY = "key"
    HASH = "hash"
    TEXT = "text"
    WHOLE = "whole"
    REAL = "real"
    INSTANT = "instant"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column. characters_max: a longer text is cut; 0 for other kinds. needed: it is never empty."""

    name: str
    kind: CellKind
    characters_max: int = 0
    needed: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table. Its first column is its key. unique: columns with different values in all rows. indexed: columns with
    an index of their own, over rows that have a value."""

    name: str
    columns: Sequence[TableColumn]
    unique: Sequence[str] = ()
    indexed: Sequence[str] = ()

    @property
    def names(self) -> list[str]:
        """The names of the columns, in order."""
        return [column.name for column in self.columns]


_URL_CHARACTERS: Final = 8_192  # the limit of a URL of a crawl
_TYPE_CHARACTERS: Final = 255  # a media type with parameters; RFC 6838 permits 127 for each half

URLS: Final = Table(
    "urls",
    (
        TableColumn("id", CellKind.KEY, needed=True),
        TableColumn("url_hash", CellKind.HASH, needed=True),
        TableColumn("url", CellKind.TEXT, _URL_CHARACTERS, needed=True),
        TableColumn("normalized_url", CellKind.TEXT, _URL_CHARACTERS, needed=True),
        TableColumn("host", CellKind.TEXT, 255, needed=True),
        TableColumn("host_hash", CellKind.WHOLE, needed=True),
        TableColumn("depth", CellKind.WHOLE),
        TableColumn("source_url_id", CellKind.WHOLE),
        TableColumn("discovered_at", CellKind.INSTANT),
        TableColumn("priority", CellKind.REAL),
        TableColumn("last_fetched_at", CellKind.INSTANT),
        TableColumn("next_fetch_at", CellKind.INSTANT),
        TableColumn("fetch_count", CellKind.WHOLE, needed=True),
        TableColumn("last_status_code", CellKind.WHOLE),
        TableColumn("last_content_hash", CellKind.TEXT, 128),
        TableColumn("last_simhash", CellKind.WHOLE),
        TableColumn("content_length", CellKind.WHOLE),
        TableColumn("content_type", CellKind.TEXT, _TYPE_CHARACTERS),
        TableColumn("state", CellKind.TEXT, 16, needed=True),
    ),
    unique=("url_hash",),
    indexed=("host", "next_fetch_at", "last_content_hash", "last_simhash"),
)
PAGE_CONTENT: Final = Table(
    "page_content",
    (
        TableColumn("id", CellKind.KEY, needed=True),
        TableColumn("url_id", CellKind.WHOLE, needed=True),
        TableColumn("fetch_id", CellKind.WHOLE, needed=True),
        TableColumn("raw_content_key", CellKind.TEXT, 1_024),
        TableColumn("content_length", CellKind.WHOLE),
        TableColumn("content_type", CellKind.TEXT, _TYPE_CHARACTERS),
        TableColumn("charset", CellKind.TEXT, 64),
        TableColumn("title", CellKind.TEXT, 1_024),
        TableColumn("meta_description", CellKind.TEXT, 4_096),
        TableColumn("canonical_url", CellKind.TEXT, _URL_CHARACTERS),
        TableColumn("language", CellKind.TEXT, 35),  # RFC 5646, section 4.4.1
        TableColumn("content_hash", CellKind.TEXT, 128),
        TableColumn("simhash", CellKind.WHOLE),
        TableColumn("fetched_at", CellKind.INSTANT, needed=True),
        TableColumn("http_date", CellKind.INSTANT),
        TableColumn("last_modified", CellKind.INSTANT),
    ),
    unique=("fetch_id",),
    indexed=("url_id", "content_hash", "simhash"),
)
ROBOTS_CACHE: Final = Table(
    "robots_cache",
    (
        TableColumn("host", CellKind.TEXT, 300, needed=True),
        TableColumn("fetched_at", CellKind.INSTANT),
        TableColumn("expires_at", CellKind.INSTANT),
        TableColumn("status_code", CellKind.WHOLE),
        TableColumn("content", CellKind.TEXT, 512 << 10),
        TableColumn("parsed_rules", CellKind.JSON),
        TableColumn("crawl_delay", CellKind.REAL),
        TableColumn("sitemaps", CellKind.JSON),
        TableColumn("error_message", CellKind.TEXT, 255),
    ),
)
TABLES: Final = (URLS, PAGE_CONTENT, ROBOTS_CACHE)
POSITION_TABLE: Final = "outrider_position"
"""One row: the version of the schema, the position in `pages.jsonl` with its digest, the instant as of which `urls`
is complete, and the numbers of cut values and unreadable lines."""

STATES: Final[Mapping[State, str]] = {
    State.WAITING: "pending",
    State.QUEUED: "queued",
    State.LEASED: "fetching",
    State.DONE: "completed",
    State.GONE: "failed",
    State.PARKED: "blocked",
}
"""The words of `urls.state` for the states of the frontier (docs/formats/catalog.md)."""
STATE_AFTER: Final[Mapping[str, str]] = {
    word.value: STATES[
        State.PARKED
        if word is Word.ROBOTS
        else State.GONE
        if word.failed
        else State.DONE
        if word.final
        else State.WAITING
    ]
    for word in Word
}
"""The state after a line, by its outcome, until the next list of URLs corrects it."""
