"""The lines of a crawl's output as types: their fields, in the order of the line (docs/formats/archive.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType


class PolitenessLine(msgspec.Struct):
    """A line of `politeness.jsonl`, without its seal. capacity: UNSET for one request at a time. digest: of the content
    of a robots.txt, UNSET for other requests. robots_digest, robots_line, preferences: of a page, the robots.txt that
    allowed it, the line that decided, and what the file says about uses."""

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
    digest: str | UnsetType = UNSET
    robots_digest: str | UnsetType = UNSET
    robots_line: int | UnsetType = UNSET
    preferences: dict[str, str] | UnsetType = UNSET


class _PageWithItems(msgspec.Struct):
    """The parts of a page's line that its items repeat."""

    url: str
    token: int
    items: list[msgspec.Raw]


_ITEMS_BEGIN: Final = b'"items":['  # no text of a line contains it, because JSON escapes quotation marks
_PAGE_FIELDS: Final = ("url", "token")
_page_with_items: Final = msgspec.json.Decoder(_PageWithItems)


def item_lines(line: bytes) -> list[bytes]:
    """Returns the lines of `items.jsonl` for a line of `pages.jsonl`: one per item of the page.

    The page's URL and token are first, then the fields of the item. If the item has a field of that name itself, it
    stays, and the page's field is called `page_url` or `page_token`.
    """
    if _ITEMS_BEGIN not in line:
        return []
    try:
        page = _page_with_items.decode(line)
    except msgspec.ValidationError:  # a field of that name inside another one, or of an older release
        return []
    lines = []
    for raw in page.items:
        item = bytes(raw)
        if item[:1] != b"{":  # an older release kept a list of any values under this name
            return []
        names: tuple[str, ...] = _PAGE_FIELDS
        if any(b'"%b"' % name.encode() in item for name in _PAGE_FIELDS):
            own = msgspec.json.decode(item, type=dict[str, Any])
            names = tuple(_free(name, own) for name in _PAGE_FIELDS)
        head = msgspec.json.encode(dict(zip(names, (page.url, page.token), strict=True)))
        lines.append(head if item == b"{}" else b"%b,%b" % (head[:-1], item[1:]))
    return lines


def _free(name: str, own: Mapping[str, object]) -> str:
    """Returns the name of a page's field in the line of an item with these fields."""
    while name in own:
        name = f"page_{name}"
    return name


def parts_of_item(line: Mapping[str, Any]) -> tuple[str, int, dict[str, Any]]:
    """Returns the URL and the token of the page, and the item, from a decoded line of `items.jsonl`. Raises
    ValueError."""
    (url_name, url), (token_name, token), *fields = line.items() if len(line) > 1 else [("", None), ("", None)]
    if not (url_name.endswith("url") and isinstance(url, str) and token_name.endswith("token")):
        raise ValueError("an item begins with the URL and the token of its page")
    if not isinstance(token, int):
        raise ValueError(f"the token of an item is {token!r:.80}, not a whole number")
    return url, token, dict(fields)
