"""The media type of a body: from its Content-Type (WHATWG Fetch, "extract a MIME type"), or from its first bytes
without one (WHATWG MIME Sniffing 7.1)."""

from __future__ import annotations

import re
from typing import Final

from outrider.page.image import image_of
from outrider.sniffing import MARKS, SNIFFED_BYTES, ContentType, declared_type, is_binary

HTML: Final = "text/html"
XML: Final = "text/xml"
_SAYS_NOTHING: Final = frozenset({"", "unknown/unknown", "application/unknown"})
_BLANKS: Final = b"\t\n\x0c\r "
_MARKUP: Final = re.compile(
    rb"<(?:!DOCTYPE HTML|HTML|HEAD|SCRIPT|IFRAME|H1|DIV|FONT|TABLE|A|STYLE|TITLE|B|BODY|BR|P|!--)[ >]", re.IGNORECASE
)
# Groups are not repeated possessively: CPython before 3.11.5 then goes back into them all the same, or finds no match
# (python/cpython#106052). Their alternatives begin with different bytes, so there is nothing else to try in them.
_ROOT: Final = re.compile(
    rb"(?:[\t\n\r ]++|<\?(?:[^?]++|\?(?!>))*\?>|<!--(?:[^-]++|-(?!->))*-->"
    rb"""|<!DOCTYPE(?:[^\["'>]++|"[^"]*+"|'[^']*+')*(?:\[(?:[^\]"']++|"[^"]*+"|'[^']*+')*\][\t\n\r ]*+)?>)*"""
    rb"<(?:[A-Za-z_][^\s/>:]*+:)?([A-Za-z_][^\s/>:]*+)"
)
_ROOT_BYTES: Final = 65_536
"""The first element of an XML document is searched up to here: drawings have long comments and document types."""
_FEED: Final = re.compile(rb"(?:\xef\xbb\xbf)?[\t\n\r ]{0,256}<(?:\?xml|(rss|feed|rdf:RDF)[\t\n\r >])")
_OF_PAGES: Final = frozenset({b"<!", b"<h", b"<H"})  # nearly all pages begin so, and no feed
_FEEDS: Final = frozenset({"rss", "feed", "rdf"})
_OF_XML: Final = frozenset({"rss", "feed", "rdf", "urlset", "sitemapindex", "svg"})
XHTML_TYPE: Final = "application/xhtml+xml"


def media_type(body: bytes, content_type: str) -> ContentType:
    """Returns the media type of a body: by its Content-Type, or by its first bytes without one or for an unknown
    one."""
    found = declared_type(content_type)
    return ContentType(sniffed(body), found.label) if found.essence in _SAYS_NOTHING else found


def sniffed(body: bytes) -> str:
    """Returns the media type of a body without a Content-Type.

    Beyond the standard, any tag at the start means HTML, because fragments of pages begin with all of them, and the
    root of a feed, sitemap or drawing means XML.
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
    """Returns the name of the first element of an XML document, without prefix and in lower case, or ""."""
    head = body[:_ROOT_BYTES]
    if head[:2] in MARKS[:2]:
        head = head.decode("utf-16", "replace").encode()
    elif head[:4] in (b"<\0?\0", b"\0<\0?"):
        head = head.decode("utf-16-le" if head[1] == 0 else "utf-16-be", "replace").encode()
    found = _ROOT.match(head.removeprefix(MARKS[-1]))
    return "" if found is None else found[1].decode("latin-1").lower()
