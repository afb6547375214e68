"""The columns of a page, as `read_html` gives them, and the bounds that it takes."""

from __future__ import annotations

from typing import NamedTuple

KINDS = ("a", "area", "frame", "iframe", "meta", "link", "img", "script", "source", "form")
"""The kinds of links by number: the names of their elements. The first five lead to pages."""
LEADING = 5
Alternates = list[tuple[int, str, str]]
Columns = tuple[
    *tuple[str, bytes, bytes, bytes, bytes, list[str], bytes, bytes, bytes],
    *tuple[Alternates, list[tuple[str, str]], tuple[int, str] | None],
    *tuple[str | None, str | None, str | None, bytes, int],
]
"""What `read_html` gives, numbers in little endian:

    charset
    arena            the addresses as written, one after the other, in UTF-8
    offsets          i64: where each begins, and where the last ends
    kinds            u8: numbers in KINDS
    rels             u32: numbers in
    rel names        each rel once, the first one empty
    texts            of links, in UTF-8
    text starts      u32: where the text of each link begins
    text ends        u32
    alternates       (row, hreflang, type) of links with rel=alternate
    metas            (name in lower case, content) of meta elements that have both
    refresh          (seconds, address as written or "") of the first meta refresh
    base             the first href of a base element
    title
    language         as the html element declares it, else a meta
    text             in UTF-8
    left out         the number of links behind the bounds
"""


class Limits(NamedTuple):
    """How much of a page is kept: the first ones each time."""

    links: int
    """That lead to pages, and as many others."""
    text_bytes: int
    link_text_bytes: int
    metas: int
    attributes: int
    """Of one tag; the twin looks at all."""
    value_bytes: int
    """Of a title, a rel, the name or content of a meta."""
