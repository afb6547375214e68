"""The lines of a crawl's output as types: their fields, in the order in which they stand (docs/formats/archive.md)."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType


class PageLine(msgspec.Struct, kw_only=True):
    """A line of `pages.jsonl`. Fields that are UNSET are left out."""

    url: str
    outcome: str
    status: int | None
    error: str | UnsetType = UNSET
    fetched_at: str
    seconds: float | None
    bytes: int
    content_type: str | None
    digest: str | None
    simhash: str | None = None
    depth: int
    referrer: str | None
    priority: float
    attempt: int
    location: str | None
    title: str | None = None
    description: str | None = None
    canonical: str | None = None
    charset: str | None = None
    language: str | None = None
    http_date: str | None
    last_modified: str | None
    etag: str | None
    links: int
    token: int
    warc: dict[str, Any] | None
    shingles: int | UnsetType = UNSET
    text_digest: str | UnsetType = UNSET
    image: dict[str, Any] | UnsetType = UNSET
    content_digest: str | UnsetType = UNSET
    duplicate_of: str | UnsetType = UNSET
    distance: int | UnsetType = UNSET
    probe: str | UnsetType = UNSET
    directives: list[str | None] | UnsetType = UNSET
    links_left_out: int | UnsetType = UNSET
    tls: str | UnsetType = UNSET
    decoding: str | UnsetType = UNSET
    requested: str | UnsetType = UNSET


class PolitenessLine(msgspec.Struct):
    """A line of `politeness.jsonl`, but for its seal. capacity: UNSET for one request at a time."""

    host: str
    authority: str
    url: str
    kind: str
    started_at: str
    first_byte_at: str | None
    ended_at: str
    seconds: float
    gap_required: float | None
    gap: float | None
    reason: str | None
    groups: tuple[dict[str, Any], ...]
    status: int | None
    error: str | None
    token: int
    capacity: int | UnsetType = UNSET


LINE_FIELDS: Final = frozenset({*PageLine.__struct_fields__, "new_links", "not_followed"})
"""The names of a page's line that are the crawl's own, the two that are added to some lines included. The fields that
`on_page` returns go beside them."""
