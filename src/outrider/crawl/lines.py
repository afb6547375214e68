"""The lines of a crawl's output as types: their fields, in the order in which they stand (docs/formats/archive.md)."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from outrider.journey import PageLine


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
