"""The media type of a body: what its Content-Type says (WHATWG Fetch, "extract a MIME type"), or its first bytes where
that says nothing (WHATWG MIME Sniffing 7.1)."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

from outrider.page.image import image_of
from outrider.sniffing import MARKS, SNIFFED_BYTES, is_binary

HTML: Final = "text/html"
XML: Final = "text/xml"
_SAYS_NOTHING: Final = frozenset({"", "unknown/unknown", "application/unknown"})
_VALUES: Final = re.compile(r'(?:[^",]|"(?:[^"\\]|\\.)*+(?:"|\\?\Z))+', re.DOTALL)
"""The values of a field, parted by commas that stand in no quotes ("get, decode, and split"). A text in quotes without
an end takes all the rest, a backslash at the end too: else each quote in it is tried as a beginning."""
_ESSENCE: Final = re.compile(r"[\t\n\r ]*+([!#$%&'*+.^_`|~0-9A-Za-z-]+/[!#$%&'*+.^_`|~0-9A-Za-z-]+)[\t\n\r ]*(?:;|\Z)")
_PARAMETER: Final = re.compile(r""";\s*([^\s;=,"']+)\s*=\s*(?:"([^"]*)"|'([^']*)'|["']?([^\s"';,]*))""")
_LABEL_CHARACTERS_MAX: Final = 40  # encodings: the longest has 19
_REMEMBERED_CHARACTERS_MAX: Final = 200  # sites write few different fields, and none so long
_BLANKS: Final = b"\t\n\x0c\r "
_MARKUP: Final = re.compile(
    rb"<(?:!DOCTYPE HTML|HTML|HEAD|SCRIPT|IFRAME|H1|DIV|FONT|TABLE|A|STYLE|TITLE|B|BODY|BR|P|!--)[ >]", re.IGNORECASE
)
_ROOT: Final = re.compile(
    rb"(?:[\t\n\r ]++|<\?(?:[^?]|\?(?!>))*+\?>|<!--(?:[^-]|-(?!->))*+-->"
    rb"""|<!DOCTYPE(?:[^\["'>]|"[^"]*+"|'[^']*+')*+(?:\[(?:[^\]"']|"[^"]*+"|'[^']*+')*+\][\t\n\r ]*+)?>)*+"""
    rb"<(?:[A-Za-z_][^\s/>:]*+:)?([A-Za-z_][^\s/>:]*+)"
)
_ROOT_BYTES: Final = 65_536
"""So far the first element of an XML document is looked for: drawings have long comments and document types."""
_FEED: Final = re.compile(rb"(?:\xef\xbb\xbf)?[\t\n\r ]{0,256}<(?:\?xml|(rss|feed|rdf:RDF)[\t\n\r >])")
_OF_PAGES: Final = frozenset({b"<!", b"<h", b"<H"})  # nearly all pages begin so, and no feed
_FEEDS: Final = frozenset({"rss", "feed", "rdf"})
_OF_XML: Final = frozenset({"rss", "feed", "rdf", "urlset", "sitemapindex", "svg"})


class Said(NamedTuple):
    """A Content-Type as it was read: `essence` in lower case, "" for none; `label` of an encoding."""

    essence: str
    label: str | None = None


def declared_type(content_type: str) -> Said:
    """The media type that a Content-Type names: the last one of several values, or of fields joined by commas."""
    return (_remembered if len(content_type) <= _REMEMBERED_CHARACTERS_MAX else _said)(content_type)


def media_type(body: bytes, content_type: str) -> Said:
    """The media type of a body: by its Content-Type, by its first bytes where that names none or an unknown one."""
    found = declared_type(content_type)
    return Said(sniffed(body), found.label) if found.essence in _SAYS_NOTHING else found


def _said(content_type: str) -> Said:
    found = Said("")
    for match in _VALUES.finditer(content_type):
        named = _ESSENCE.match(match[0])
        if named is None or named[1] == "*/*":
            continue
        essence, label = named[1].lower(), _label(match[0])
        found = Said(essence, found.label if label is None and essence == found.essence else label)
    return found


_remembered = lru_cache(maxsize=1_024)(_said)


def _label(value: str) -> str | None:
    """The encoding that a value names: its first charset that is not empty, quoted or not."""
    for name, *values in _PARAMETER.findall(value):
        label = "".join(values).strip()
        if name.lower() == "charset" and label:
            return label[:_LABEL_CHARACTERS_MAX]
    return None


def sniffed(body: bytes) -> str:
    """The media type of a body that nothing is said of.

    Beyond the standard any tag in front makes HTML, since fragments of pages begin with all of them, and the root of a
    feed, sitemap or drawing makes XML.
    """
    head = body[:SNIFFED_BYTES]
    front = head.removeprefix(MARKS[-1]).lstrip(_BLANKS)
    if front[:1] == b"<":
        if _MARKUP.match(front):
            return HTML
        return XML if front.startswith(b"<?xml") or root_of(body) in _OF_XML else HTML
    if front.startswith(b"%PDF-"):
        return "application/pdf"
    image = image_of(body)
    if image is not None:
        return image.type
    return "application/octet-stream" if is_binary(body) else "text/plain"


def is_feed(body: bytes) -> bool:
    """Whether a body that was sent as HTML is a feed (MIME Sniffing 8.2)."""
    if body[:2] in _OF_PAGES:
        return False
    front = _FEED.match(body)
    return front is not None and (front[1] is not None or root_of(body) in _FEEDS)


def root_of(body: bytes) -> str:
    """The name of the first element of an XML document, without prefix and in lower case; "" for none."""
    head = body[:_ROOT_BYTES]
    if head[:2] in MARKS[:2]:
        head = head.decode("utf-16", "replace").encode()
    elif head[:4] in (b"<\0?\0", b"\0<\0?"):
        head = head.decode("utf-16-le" if head[1] == 0 else "utf-16-be", "replace").encode()
    found = _ROOT.match(head.removeprefix(MARKS[-1]))
    return "" if found is None else found[1].decode("latin-1").lower()
