"""The findings of the HTML parser in a page, as plain rows: the only file that knows turbohtml.

`parse` takes any bytes, never raises, and needs time linear in their number: the parser follows the WHATWG algorithm,
cuts depth at 512 as browsers do, and stays linear on nesting that makes others quadratic (docs/decisions/html.md).
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

import turbohtml
import turbohtml.detect  # registers the codecs named whatwg-*

from outrider.limits import TEXT_CHARACTERS_MAX

_SELECTOR = (
    "a[href],area[href],frame[src],iframe[src],img[src],script[src],form[action],link[href],base[href],"
    "meta[content],title,html[lang]"
)
_ADDRESS = {
    "a": "href",
    "area": "href",
    "frame": "src",
    "iframe": "src",
    "img": "src",
    "script": "src",
    "form": "action",
    "link": "href",
}
_RENDERED = turbohtml.PlainText(layout="strict", bullet="")
_SELF_CLOSED = re.compile(rb"(?i)<(script|style|title|textarea|iframe|noframes|noembed|xmp)(\s[^<>]*)?/>")
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16le"), (codecs.BOM_UTF16_BE, "utf-16be"))
_XML_ENCODING = re.compile(rb"""\A<\?xml[^>]{0,200}?\sencoding\s*=\s*["']([A-Za-z0-9._:-]{1,40})["']""")


@dataclass(frozen=True, slots=True)
class Markup:
    """The rows of a page in document order, addresses and texts as written."""

    charset: str
    """A WHATWG label in lower case: the encoding the bytes were decoded by."""
    addresses: list[tuple[str, str, str]]
    """(element name, address, rel) of every a, area, frame, iframe, img, script, link and GET form that has one."""
    metas: list[tuple[str, str, str, int]]
    """(name, http-equiv, content, number of addresses before it) of metas with content; the first two in lower case."""
    base: str | None
    title: str | None
    language: str | None
    text: str
    """What a reader would see, at most `TEXT_CHARACTERS_MAX` characters."""


def parse(body: bytes, label: str | None, xml: bool = False) -> Markup:
    """Parses a page whose transport named the encoding `label` (None: it named none, or an unknown one).

    The encoding is the byte order mark's, else `label`, else that of a meta element, else UTF-8 if the bytes are, else
    windows-1252 (WHATWG HTML 13.2.3.2). `xml`: the page was sent as XHTML, so empty elements may be closed in place.
    """
    if xml:
        # Read as HTML such an element would swallow the rest of the page.
        body = _SELF_CLOSED.sub(rb"<\1\2></\1>", body)
        declared = _XML_ENCODING.match(body)
        if label is None and declared is not None:
            label = known_label(declared[1].decode("ascii"))
    document = turbohtml.parse(body, encoding=label, positions=False, allow_declarative_shadow_roots=False)
    addresses: list[tuple[str, str, str]] = []
    metas: list[tuple[str, str, str, int]] = []
    base: str | None = None
    title: str | None = None
    language: str | None = None
    for element in document.select(_SELECTOR):
        tag = element.tag
        attribute = _ADDRESS.get(tag)
        if attribute is not None:
            if tag == "form" and (element.attr("method") or "").strip().lower() == "post":
                continue  # a plain request for its address does not give the page behind it
            rel = (element.attr("rel") or "") if attribute == "href" else ""
            addresses.append((tag, element.attr(attribute) or "", rel))
        elif tag == "meta":
            name, equivalent = (element.attr("name") or "").lower(), (element.attr("http-equiv") or "").lower()
            metas.append((name, equivalent, element.attr("content") or "", len(addresses)))
        elif tag == "title":
            if title is None and element.namespace is turbohtml.Namespace.HTML:
                title = element.text
        elif tag == "base":
            base = element.attr("href") if base is None else base
        elif tag == "html":
            language = element.attr("lang")
    text = document.to_text(_RENDERED)[:TEXT_CHARACTERS_MAX]
    charset = (document.encoding or "utf-8").lower()
    return Markup(charset, addresses, metas, base, title, language, text)


def known_label(label: str) -> str | None:
    """The label if the WHATWG Encoding Standard has it, else None."""
    try:
        turbohtml.parse(b"", encoding=label)
    except (LookupError, UnicodeError):
        return None
    return label


def decode(body: bytes, label: str | None) -> tuple[str, str]:
    """Plain text and the label it was decoded by: byte order mark, `label`, UTF-8 if the bytes are, windows-1252."""
    charset = next((name for mark, name in _MARKS if body.startswith(mark)), label)
    if charset is None:
        try:
            # Incremental: a body cut in the middle of a character is still UTF-8.
            return codecs.getincrementaldecoder("utf-8")().decode(body)[:TEXT_CHARACTERS_MAX], "utf-8"
        except UnicodeDecodeError:
            charset = "windows-1252"
    name = (turbohtml.parse(b"", encoding=charset).encoding or charset).lower()
    text = body.decode(f"whatwg-{name}", "replace").removeprefix("\ufeff")
    return text[:TEXT_CHARACTERS_MAX], name
