"""A page of HTML as columns: links with kinds, rels and texts, base, title, metas, visible text; the plain twin.

The twin builds the tree of the WHATWG standard with turbohtml, which only this file uses. The kernel reads the
tokens of the same standard in one pass, without a tree. Both find the same links in real pages. They
differ where the tree moves things (docs/decisions/html.md lists how); `tests/contract/test_html.py` compares the rest.

    charset      a label of the WHATWG Encoding Standard in lower case: byte order mark, `label`, the encoding of an
                 XML declaration (XHTML), a meta element, UTF-8 if the bytes are, else windows-1252 (13.2.3.2)
    links        of a, area and link by href, of the a of SVG also by xlink:href; of frame, iframe, img, script and
                 source by src; of a form by action, unless it posts; of a meta refresh. Not those of a scheme that is
                 neither http nor https. Queries are in the encoding of the page (`query.py`)
    rel          words in lower case, separated by one blank
    link text    of a: its words; of area and img: alt; of link: title
    base, title, metas, refresh
                 of the document, without its templates
    text         the visible text: the words outside script, style, title and template, separated by one blank,
                 or by a line feed at the border of a block
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator

import numpy as np
import turbohtml
import turbohtml.detect  # registers the codecs named whatwg-*

from outrider.kernels.framing import Bytes
from outrider.kernels.page_columns import KINDS, LEADING, Alternates, Columns, Limits
from outrider.kernels.query import with_encoded_query
from outrider.kernels.refresh import parse_refresh

_SOURCES = frozenset({"frame", "iframe", "img", "script", "source"})
_ADDRESS = {"a": "href", "area": "href", "link": "href", "form": "action"} | dict.fromkeys(_SOURCES, "src")
_SHOWN = {"area": "alt", "img": "alt", "link": "title"}
_NUMBER = {kind: number for number, kind in enumerate(KINDS)}
_HIDING = frozenset({"script", "style", "title", "noembed", "noframes", "iframe"})
_BLOCKS = [
    "address",
    "article",
    "aside",
    "blockquote",
    "body",
    "br",
    "button",
    "caption",
    "center",
    "dd",
    "details",
    "dialog",
    "dir",
    "div",
    "dl",
    "dt",
    "fieldset",
    "figcaption",
    "figure",
    "footer",
    "form",
    "frameset",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "header",
    "hgroup",
    "hr",
    "legend",
    "li",
    "listing",
    "main",
    "menu",
    "nav",
    "ol",
    "optgroup",
    "option",
    "p",
    "plaintext",
    "pre",
    "search",
    "section",
    "select",
    "summary",
    "table",
    "tbody",
    "textarea",
    "tfoot",
    "thead",
    "tr",
    "ul",
    "xmp",
]
_PARTS = dict.fromkeys(_BLOCKS, "\n") | {"td": " ", "th": " "}
_PIECES = re.compile("[\t\n\f\r ]+|[^\t\n\f\r ]+")
_SELF_CLOSED = re.compile(rb"(?i)<(script|style|title|textarea|iframe|noframes|noembed|xmp)(\s[^<>]*)?/>")
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16le"), (codecs.BOM_UTF16_BE, "utf-16be"))
_XML_ENCODING = re.compile(rb"""\A<\?xml[^>]{0,200}?\sencoding\s*=\s*["']([A-Za-z0-9._:-]{1,40})["']""")
_META_CHARSET = re.compile(rb"<meta[\s/][^>]*charset", re.IGNORECASE)
_PRESCAN_BYTES = 1_024
_OTHER_SCHEME = re.compile(r"[\x00-\x20]*(?!https?:)[a-z][a-z0-9+.-]*:", re.IGNORECASE | re.ASCII)
_SPACES = re.compile("[\t\n\f\r ]+")
# WHATWG HTML 4.2.5.3: "shared declarative refresh steps", as far as their shape is regular.


def read_html(body: Bytes, label: str | None, xml: bool, limits: Limits) -> Columns:
    """Reads a page whose transport named the encoding `label` (None: no label; an unknown label is ignored).

    Accepts any bytes, never raises, and needs time linear in their number. `xml`: the page was sent as XHTML, so an
    empty element may be closed in place.
    """
    body = bytes(body)
    label = _known(label)
    if xml:
        # Read as HTML such an element would swallow the rest of the page.
        body = _SELF_CLOSED.sub(rb"<\1\2></\1>", body)
        declared = _XML_ENCODING.match(body)
        if label is None and declared is not None:
            label = _known(declared[1].decode("ascii"))
    elif label is None:
        label = _declared_in_front(body)
    document = turbohtml.parse(body, encoding=label, positions=False, allow_declarative_shadow_roots=False)
    charset = (document.encoding or "utf-8").lower()
    if xml and label is None and body.isascii():
        # XML without a declared encoding is UTF-8. The parser recognises it at the first letter of UTF-8.
        charset = (turbohtml.parse(body + "<!--é-->".encode(), positions=False).encoding or charset).lower()
    reader = _HtmlReader(limits, charset)
    reader.walk(document)
    rows = reader.rows
    return (
        charset,
        *rows.columns(),
        reader.metas,
        reader.refresh,
        reader.base,
        reader.title,
        reader.language or reader.of_meta,
        reader.text.octets(),
        rows.left_out,
    )


class _Words:
    """Words in order, separated by one blank or line feed, up to a limit in bytes."""

    def __init__(self, bytes_max: int) -> None:
        self._left = bytes_max
        self._gap = ""
        self._pieces: list[str] = []

    def part(self, by: str) -> None:
        if by == "\n" or not self._gap:
            self._gap = by

    def take(self, text: str) -> None:
        for piece in _PIECES.findall(text):
            if piece[0] in " \t\n\f\r":
                self.part(" ")
            else:
                self._keep(piece)

    def _keep(self, word: str) -> None:
        if self._left < 2:
            self._left = 0
            return
        if self._pieces:
            self._pieces.append(self._gap)
            self._left -= len(self._gap)
        self._gap = ""
        kept = cut(word, self._left)
        self._pieces.append(kept)
        self._left = self._left - len(kept.encode("utf-8", "replace")) if kept == word else 0

    def octets(self) -> bytes:
        return "".join(self._pieces).encode("utf-8", "replace")


class _HtmlReader:
    """The values found in the tree, in the order of the page."""

    def __init__(self, limits: Limits, charset: str) -> None:
        self._limits = limits
        self._charset = charset
        self.rows = _LinkRows(limits, charset)
        self.text = _Words(limits.text_bytes)
        self.metas: list[tuple[str, str]] = []
        self.refresh: tuple[int, str] | None = None
        self.base: str | None = None
        self.title: str | None = None
        self.language: str | None = None
        self.of_meta: str | None = None
        self._metas_left = limits.metas
        self._templates = 0
        self._anchor: _Words | None = None

    def walk(self, document: turbohtml.Node) -> None:
        way: list[tuple[turbohtml.Node | None, Iterator[turbohtml.Node]]] = [(None, iter(document.children))]
        while way:
            parent, children = way[-1]
            node = next(children, None)
            if node is None:
                way.pop()
                if isinstance(parent, turbohtml.Element):
                    self._leave(parent)
            elif isinstance(node, turbohtml.Text | turbohtml.CData):
                self._take(node.data)
            elif isinstance(node, turbohtml.Element):
                self._enter(node)
                if not _hides(node):
                    way.append((node, iter(node.children)))
            elif isinstance(node, turbohtml.DocumentFragment):  # the content of a template
                way.append((node, iter(node.children)))

    def _take(self, text: str) -> None:
        if not self._templates:
            self.text.take(text)
        if self._anchor is not None:
            self._anchor.take(text)

    def _part(self, element: turbohtml.Element) -> None:
        by = _PARTS.get(element.tag)
        if by is not None and element.namespace is turbohtml.Namespace.HTML:
            self.text.part(by)
            if self._anchor is not None:
                self._anchor.part(" ")

    def _enter(self, element: turbohtml.Element) -> None:
        tag, limits = element.tag, self._limits
        self._part(element)
        if tag == "template" and element.namespace is turbohtml.Namespace.HTML:
            self._templates += 1
        elif tag in _ADDRESS:
            if tag == "a":
                self._close_anchor()
            if self.rows.take(element) and tag == "a":
                self._anchor = _Words(limits.link_text_bytes)
        elif tag == "meta" and self._metas_left and element.attr("content") is not None:
            self._metas_left -= 1
            self._meta(element, cut(element.attr("content") or "", limits.value_bytes))
        elif tag == "title":
            if self.title is None and self._is_of_document(element):
                self.title = cut(element.text, limits.value_bytes)
        elif tag == "base":
            self._base(element)
        elif tag == "html" and self.language is None:
            self.language = cut(element.attr("lang") or "", limits.value_bytes)

    def _leave(self, element: turbohtml.Element) -> None:
        self._part(element)
        if element.tag == "a":
            self._close_anchor()
        elif element.tag == "template" and element.namespace is turbohtml.Namespace.HTML:
            self._templates -= 1

    def _is_of_document(self, element: turbohtml.Element) -> bool:
        """Whether an element speaks for the page, which nothing in a template does (WHATWG HTML 4.12.3)."""
        return not self._templates and element.namespace is turbohtml.Namespace.HTML

    def _base(self, element: turbohtml.Element) -> None:
        href = element.attr("href")
        if self.base is None and href is not None and self._is_of_document(element):
            self.base = with_encoded_query(href, self._charset)

    def _close_anchor(self) -> None:
        if self._anchor is not None:
            self.rows.set_text(self._anchor.octets())
            self._anchor = None

    def _meta(self, element: turbohtml.Element, content: str) -> None:
        name = lowered(element.attr("name") or "")
        equivalent = lowered(element.attr("http-equiv") or "")
        if equivalent == "refresh":
            found = parse_refresh(content)
            if self.refresh is None and found is not None and not self._templates:
                self.refresh = found[0], with_encoded_query(found[1], self._charset)
            if found is not None and found[1]:
                self.rows.add("meta", found[1])
        elif self._templates:
            pass  # it says nothing of the page
        elif equivalent == "content-language":
            self.of_meta = self.of_meta or content or None
        elif name:
            self.metas.append((cut(name, self._limits.link_text_bytes), content))


def _hides(element: turbohtml.Element) -> bool:
    """Whether the text of an element is not what a reader sees."""
    if element.namespace is turbohtml.Namespace.HTML:
        return element.tag in _HIDING
    return element.tag in {"script", "style"}


class _LinkRows:
    """Links in order, with the limits of their sorts."""

    def __init__(self, limits: Limits, charset: str) -> None:
        self._limits = limits
        self._charset = charset
        self._left = {True: limits.links, False: limits.links}
        self._places: dict[bool, set[bytes]] = {True: set(), False: set()}
        self._anchor = 0
        self._addresses: list[bytes] = []
        self._kinds = bytearray()
        self._rels: list[int] = []
        self._names = {"": 0}
        self._texts: list[bytes] = []
        self._alternates: Alternates = []
        self.left_out = 0

    def take(self, element: turbohtml.Element) -> bool:
        """Adds the link of an element with an address; returns False for an element without one."""
        tag, limits = element.tag, self._limits
        address = element.attr(_ADDRESS[tag])
        if address is None and tag == "a" and element.namespace is not turbohtml.Namespace.HTML:
            address = element.attr("xlink:href")  # SVG 1.1
        if address is None:
            return False
        if tag == "form" and _SPACES.sub("", lowered(element.attr("method") or "")) == "post":
            return False  # a plain request for its address does not return the page after the form
        if not self.add(tag, address):
            return False
        if _ADDRESS[tag] == "href":
            rel = lowered(one_line(element.attr("rel") or "", limits.value_bytes))
            self._rels[-1] = self._names.setdefault(rel, len(self._names))
            if tag == "link" and "alternate" in rel.split(" ") and len(self._alternates) < limits.metas:
                told = [one_line(element.attr(name) or "", limits.link_text_bytes) for name in ("hreflang", "type")]
                self._alternates.append((len(self._kinds) - 1, told[0], told[1]))
        if tag == "a":
            self._anchor = len(self._texts) - 1
        elif tag in _SHOWN:
            self._texts[-1] = one_line(element.attr(_SHOWN[tag]) or "", limits.link_text_bytes).encode(
                "utf-8", "replace"
            )
        return True

    def set_text(self, text: bytes) -> None:
        """The text of the last a."""
        self._texts[self._anchor] = text

    def add(self, kind: str, address: str) -> bool:
        """Adds a row for an address as written. Returns False if it does not lead to http, or there is no room.

        After the first ones of a sort, only addresses of a new place get a row.
        """
        if _OTHER_SCHEME.match(address):
            return False
        number = _NUMBER[kind]
        leads = number < LEADING
        octets = with_encoded_query(address, self._charset).encode("utf-8", "replace")
        places, place = self._places[leads], octets.partition(b"#")[0]
        if self._left[leads]:
            self._left[leads] -= 1
        elif place in places:
            return False
        elif len(places) >= self._limits.links:
            self.left_out += 1
            return False
        places.add(place)
        self._addresses.append(octets)
        self._kinds.append(number)
        self._rels.append(0)
        self._texts.append(b"")
        return True

    def columns(self) -> tuple[bytes, bytes, bytes, bytes, list[str], bytes, bytes, bytes, Alternates]:
        offsets = np.array([0, *map(len, self._addresses)], np.int64).cumsum()
        places = np.array([0, *map(len, self._texts)], np.uint32).cumsum(dtype=np.uint32)
        return (
            b"".join(self._addresses),
            offsets.astype("<i8").tobytes(),
            bytes(self._kinds),
            np.array(self._rels, "<u4").tobytes(),
            list(self._names),
            b"".join(self._texts),
            places[:-1].astype("<u4").tobytes(),
            places[1:].astype("<u4").tobytes(),
            self._alternates,
        )


def decode_text(body: Bytes, label: str | None, bytes_max: int) -> tuple[str, bytes]:
    """Returns plain text in UTF-8 up to a number of bytes, and the label of its encoding: byte order mark, `label`,
    UTF-8 if the bytes are, windows-1252. Omits a character of UTF-8 that is cut off at the end."""
    body = bytes(body)
    charset = next((name for mark, name in _MARKS if body.startswith(mark)), None) or _known(label)
    if charset is None:
        try:
            codecs.getincrementaldecoder("utf-8")().decode(body)
            charset = "utf-8"
        except UnicodeDecodeError:
            charset = "windows-1252"
    name = (turbohtml.parse(b"", encoding=charset).encoding or charset).lower()
    if name == "utf-8":
        text = codecs.getincrementaldecoder("utf-8")("replace").decode(body)
    else:
        text = body.decode(f"whatwg-{name}", "replace")
    return name, cut(text.removeprefix("\ufeff"), bytes_max).encode("utf-8", "replace")


def lowered(text: str) -> str:
    """ASCII letters in lower case, as HTML compares names."""
    return text.lower() if text.isascii() else re.sub("[A-Z]+", lambda match: match[0].lower(), text)


def cut(text: str, bytes_max: int) -> str:
    """Returns the start of a text with at most this number of bytes in UTF-8, without a partial character."""
    octets = text[:bytes_max].encode("utf-8", "replace")
    return octets[:bytes_max].decode("utf-8", "ignore")


def one_line(text: str, bytes_max: int) -> str:
    """Returns the words of a text separated by one blank, up to a number of bytes."""
    return cut(" ".join(_words(text)), bytes_max)


def _words(text: str) -> list[str]:
    return [word for word in _SPACES.split(text) if word]


def _declared_in_front(body: bytes) -> str | None:
    """The encoding of a declaration of XML in front of a page without a mark or a meta that names one."""
    declared = _XML_ENCODING.match(body)
    if declared is None or _META_CHARSET.search(body, 0, _PRESCAN_BYTES) is not None:
        return None
    label = _known(declared[1].decode("ascii"))
    if label is None:
        return None
    # A declaration that reads as ASCII is not UTF-16.
    return "utf-8" if label.lower().startswith(("utf-16", "unicode", "ucs-2", "csunicode", "iso-10646")) else label


def _known(label: str | None) -> str | None:
    """The label if the WHATWG Encoding Standard has it, else None."""
    if label is None:
        return None
    try:
        turbohtml.parse(b"", encoding=label)
    except (LookupError, UnicodeError):
        return None
    return label
