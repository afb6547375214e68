"""Reads sitemaps (sitemaps.org 0.90): XML, an index of others, lines of text, RSS and Atom, each packed or not.

The reader goes over the bytes once and knows no DTD and no entity but the five of XML: nothing is expanded, opened or
asked for. Bad input is told in `problems`, and what was read before it is kept; nothing raises.
"""

from __future__ import annotations

import re
import zlib
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import lru_cache
from urllib.parse import urlsplit

import msgspec
import numpy as np

from outrider import kernels
from outrider.limits import (
    SITEMAP_BYTES_MAX,
    SITEMAP_DEPTH_MAX,
    SITEMAP_ENTRIES_MAX,
    SITEMAP_FIELD_CHARACTERS_MAX,
    SITEMAP_PROBLEMS_MAX,
    URL_BYTES_MAX,
)
from outrider.url import UrlBatch

_ROOTS = {"urlset": "urlset", "sitemapindex": "index", "rss": "rss", "rdf": "rss", "feed": "atom"}
_HOLDERS = {"urlset": "url", "index": "sitemap", "rss": "item", "atom": "entry"}
_CHANGES = frozenset({"always", "hourly", "daily", "weekly", "monthly", "yearly", "never"})
_FIELDS = {
    "lastmod": "lastmod",
    "changefreq": "changefreq",
    "priority": "priority",
    "pubdate": "lastmod",
    "date": "lastmod",
    "updated": "lastmod",
    "published": "published",
}
_ENCODING = re.compile(rb"""\A\s*<\?xml[^>]{0,200}?\sencoding\s*=\s*["']([A-Za-z0-9._:-]{1,40})["']""")
_DATE = re.compile(r"\d{4}(?:-\d\d(?:-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?)?)?)?")
_REFERENCE = re.compile(r"&(?:#([0-9]{1,9})|#[xX]([0-9a-fA-F]{1,8})|([A-Za-z_][A-Za-z0-9._-]{0,40}));")
_NAMED = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_NAME = re.compile(rb"[^\s/>]++")
_TAG_END = re.compile(rb"""[^>"']*+(?:"[^"]*+"[^>"']*+|'[^']*+'[^>"']*+)*+>""")
_ATTRIBUTE = re.compile(rb"""([^\s=/"']++)\s*+=\s*+(?:"([^"]*+)"|'([^']*+)')""")
_SUBSET = re.compile(rb"""<!DOCTYPE[^\[>]*+(?:\[(?:[^\]"']|"[^"]*+"|'[^']*+')*+\]\s*+)?>""", re.IGNORECASE)
# A <url> as nearly all are written, which is read in one step.
_PLAIN = re.compile(
    rb"\s*+<url>\s*+<loc>([^<&]*+(?:&amp;[^<&]*+)*+)</loc>\s*+(?:<lastmod>([^<&]*+)</lastmod>\s*+)?"
    rb"(?:<changefreq>([^<&]*+)</changefreq>\s*+)?(?:<priority>([^<&]*+)</priority>\s*+)?</url>"
)


class SitemapEntry(msgspec.Struct, frozen=True, gc=False):
    """A URL that a sitemap names, spelled canonically."""

    url: str
    lastmod: str | None = None
    """When it changed last, as a W3C date and time; None when the sitemap says nothing or no date."""
    changefreq: str | None = None
    priority: float | None = None
    """From 0 to 1, beside other URLs of the same site."""
    within: bool = True
    """Whether the sitemap may speak for it (`in_location`)."""


class Sitemap(msgspec.Struct, frozen=True):
    """A sitemap that was read."""

    url: str
    kind: str
    """`urlset`, `index`, `text`, `rss`, `atom`, or `error` for what is no sitemap."""
    entries: tuple[SitemapEntry, ...] = ()
    """The pages that it names, at most `SITEMAP_ENTRIES_MAX`: the first ones."""
    children: tuple[SitemapEntry, ...] = ()
    """The sitemaps that an index names."""
    problems: tuple[str, ...] = ()
    """What is wrong with it, at most `SITEMAP_PROBLEMS_MAX` of each thing."""


def in_location(sitemap: str, url: str) -> bool:
    """Whether a sitemap may speak for a URL: the same scheme, host and port, and a path below the sitemap's folder.

    sitemaps.org, "Sitemap file location". A robots.txt may announce sitemaps that lie elsewhere: then its host counts.
    """
    try:
        whose, what = urlsplit(sitemap), urlsplit(url)
    except ValueError:
        return False
    folder = whose.path[: whose.path.rfind("/") + 1] or "/"
    return (whose.scheme, whose.netloc) == (what.scheme, what.netloc) and (what.path or "/").startswith(folder)


def read_sitemap(body: bytes, url: str) -> Sitemap:
    """What a body fetched from `url` says as a sitemap; a packed one (gzip) is unpacked first. url: "" for a file that
    speaks for any host.

    A document that is cut off gives what stands before the cut. `kind` is `error` where there is no sitemap: another
    root element, tags that do not match, a text without any URL.
    """
    reader = _Reader(url)
    octets = reader.unpacked(bytes(body))
    declared = _ENCODING.match(octets)
    label = declared[1].decode("ascii") if declared is not None else None
    _, octets = kernels.decode_text(octets, label, SITEMAP_BYTES_MAX)
    if octets.lstrip()[:1] == b"<":
        reader.xml(octets)
    else:
        reader.lines(octets)
    return reader.ended()


class _WrongError(Exception):
    """The document is no sitemap, for the reason that is its text."""


class _Reader:
    def __init__(self, url: str) -> None:
        self._url = url
        self._kind = "error"
        self._problems: list[str] = []
        self._told: dict[str, int] = {}
        self._locations: list[str] = []
        self._fields: list[tuple[str | None, str | None, str | None]] = []
        self._new = True  # the entry that was begun has no address yet
        self._waiting: str | None = None  # a date that stands before its address

    def _problem(self, what: str, more: str = "") -> None:
        """Notes a problem; of one thing the first ones are named."""
        self._told[what] = self._told.get(what, 0) + 1
        if self._told[what] <= SITEMAP_PROBLEMS_MAX:
            self._problems.append(f"{what}{more[:SITEMAP_FIELD_CHARACTERS_MAX]}")

    # -- bytes --------------------------------------------------------------------------------------------------------

    def unpacked(self, body: bytes) -> bytes:
        if body[:2] != b"\x1f\x8b":
            if len(body) > SITEMAP_BYTES_MAX:
                self._problem(f"longer than {SITEMAP_BYTES_MAX} bytes: the rest is left out")
            return body[:SITEMAP_BYTES_MAX]
        pieces: list[bytes] = []
        room, rest = SITEMAP_BYTES_MAX, body
        try:
            while rest[:2] == b"\x1f\x8b" and room > 0:
                packed = zlib.decompressobj(31)
                pieces.append(packed.decompress(rest, room))
                room -= len(pieces[-1])
                if not packed.eof:
                    self._problem("gzip: cut off" if room > 0 else f"longer than {SITEMAP_BYTES_MAX} bytes unpacked")
                    break
                rest = packed.unused_data
        except zlib.error as error:
            self._problem("gzip: ", str(error))
        return b"".join(pieces)

    # -- text ---------------------------------------------------------------------------------------------------------

    def lines(self, octets: bytes) -> None:
        self._kind = "text"
        for line in octets.split(b"\n"):
            text = line[: URL_BYTES_MAX + 1].decode("utf-8", "replace").strip().lstrip("\ufeff")
            if text and not self._take(text):
                return

    # -- xml ----------------------------------------------------------------------------------------------------------

    def xml(self, octets: bytes) -> None:
        try:
            self._elements(octets)
        except _WrongError as wrong:
            self._kind = "error"
            self._problem(str(wrong))

    def _elements(self, octets: bytes) -> None:
        stack: list[bytes] = []
        way: list[str] = []  # the same without prefixes, in lower case
        pieces: list[str] | None = None  # the text of the field that is being read
        field_depth = 0
        at = 0
        while True:
            if len(stack) == 1 and way[0] == "urlset":
                at = self._plain(octets, at)
            open_ = octets.find(b"<", at)
            if open_ < 0:
                if stack:
                    self._problem("cut off")
                return
            if pieces is not None and open_ > at:
                pieces.append(octets[at:open_].decode("utf-8", "replace"))
            mark = octets[open_ + 1 : open_ + 2]
            if mark in {b"!", b"?"}:
                at = self._aside(octets, open_, pieces)
                if at < 0:
                    self._problem("cut off")
                    return
                continue
            closing = mark == b"/"
            name_at = open_ + 2 if closing else open_ + 1
            named = _NAME.match(octets, name_at)
            ended = _TAG_END.match(octets, name_at)
            if named is None or ended is None:
                if ended is None:
                    self._problem("cut off")
                    if pieces is not None and way:
                        self._field(way, pieces)
                    return
                raise _WrongError("a < that begins no tag")
            name = named[0]
            at = ended.end()
            if closing:
                if not stack or stack[-1] != name:
                    raise _WrongError(f"</{_shown(name)}> ends nothing that is open")
                if pieces is not None and len(stack) == field_depth:
                    self._field(way, pieces)
                    pieces = None
                stack.pop()
                way.pop()
                continue
            local = name.rpartition(b":")[2].decode("utf-8", "replace").lower()
            if not stack:
                self._root(name, local)
            elif len(stack) >= SITEMAP_DEPTH_MAX:
                raise _WrongError(f"elements nest deeper than {SITEMAP_DEPTH_MAX}")
            is_link = local == "link" and self._kind == "atom" and way[-1:] == ["entry"]
            if is_link and not self._atom_link(octets[named.end() : at - 1]):
                return
            if octets[at - 2 : at - 1] == b"/":
                continue
            stack.append(name)
            way.append(local)
            if local == _HOLDERS.get(self._kind):
                self._new = True
            if pieces is None and self._is_field(way):
                pieces, field_depth = [], len(stack)
            if len(self._locations) >= SITEMAP_ENTRIES_MAX and pieces is not None and local in {"loc", "link"}:
                self._full()
                return

    def _full(self) -> None:
        self._problem(f"more than {SITEMAP_ENTRIES_MAX} URLs: the rest is left out")

    def _plain(self, octets: bytes, at: int) -> int:
        """Reads <url> elements that are written as nearly all are; answers where the first other thing begins."""
        match = _PLAIN.match
        while len(self._locations) < SITEMAP_ENTRIES_MAX:
            found = match(octets, at)
            if found is None:
                return at
            location, lastmod, changefreq, priority = found.groups()
            text = location.decode("utf-8", "replace").strip()
            if text:
                self._locations.append(text.replace("&amp;", "&") if "&" in text else text)
                self._fields.append((_text(lastmod), _text(changefreq), _text(priority)))
            at = found.end()
        return at

    def _aside(self, octets: bytes, at: int, pieces: list[str] | None) -> int:
        """Passes over a comment, a declaration or an instruction, and reads a CDATA section; -1 when it has no end."""
        if octets.startswith(b"<!--", at):
            return _behind(octets, b"-->", at + 4)
        if octets.startswith(b"<![CDATA[", at):
            end = octets.find(b"]]>", at + 9)
            if pieces is not None and end >= 0:
                # Its text stands for itself.
                pieces.append(octets[at + 9 : end].decode("utf-8", "replace").replace("&", "&amp;"))
            return -1 if end < 0 else end + 3
        if octets.startswith(b"<?", at):
            return _behind(octets, b"?>", at + 2)
        found = _SUBSET.match(octets, at)
        if found is not None:
            self._problem("a document type: nothing of it is used")
            return found.end()
        return _behind(octets, b">", at)

    def _root(self, name: bytes, local: str) -> None:
        if self._kind != "error":
            raise _WrongError("a second root element")
        kind = _ROOTS.get(local)
        if kind is None:
            raise _WrongError(f"its root element is {_shown(name)}, which is no sitemap")
        self._kind = kind

    def _is_field(self, way: list[str]) -> bool:
        """Whether the element at the end of this way of names is one that is read: a child of an entry."""
        holder = _HOLDERS.get(self._kind, "")
        if len(way) < 2 or way[-2] != holder:
            return False
        return way[-1] in _FIELDS or way[-1] == ("link" if self._kind == "rss" else "loc")

    def _field(self, way: list[str], pieces: list[str]) -> None:
        """Takes the text of an element: an address, or something about the address before it."""
        holder = _HOLDERS[self._kind]
        depth = max((place for place, name in enumerate(way) if name == holder), default=-1)
        # In "<loc><url>x</url></loc>" the inner element is no entry.
        while depth > 0 and way[depth - 1] in {"loc", "link"}:
            depth = max((place for place, name in enumerate(way[:depth]) if name == holder), default=-1)
        name = way[depth + 1] if depth + 1 < len(way) else ""
        text = self._decoded("".join(pieces))
        if text is None:
            return
        if name in {"loc", "link"}:
            if text:
                self._take(text)
            self._new = False
            return
        field = _FIELDS.get(name)
        if not self._locations or field is None or not text:
            self._later(field, text)
            return
        if self._new:  # it stands before its address
            self._later(field, text)
            return
        lastmod, changefreq, priority = self._fields[-1]
        if field == "lastmod" or (field == "published" and lastmod is None):
            lastmod = text
        elif field == "changefreq":
            changefreq = text
        elif field == "priority":
            priority = text
        self._fields[-1] = (lastmod, changefreq, priority)

    def _later(self, field: str | None, text: str) -> None:
        if field in {"lastmod", "published"}:
            self._waiting = text

    def _decoded(self, text: str) -> str | None:
        """A text with the references of XML undone; None if it names an entity."""
        if "&" not in text:
            return text.strip()
        unknown: list[str] = []

        def one(match: re.Match[str]) -> str:
            decimal, hexadecimal, name = match.groups()
            if name is not None:
                if name not in _NAMED:
                    unknown.append(name)
                return _NAMED.get(name, "")
            code = int(decimal) if decimal is not None else int(hexadecimal, 16)
            return chr(code) if 0 < code < 0x110000 and not 0xD800 <= code < 0xE000 else "\ufffd"

        decoded = _REFERENCE.sub(one, text).strip()
        if unknown:
            self._problem(f"the entity {unknown[0][:40]} is not expanded")
            return None
        return decoded

    def _atom_link(self, written: bytes) -> bool:
        """Takes the first link of an entry that is the entry itself; False when there is no more room."""
        found = {name.lower(): one or other for name, one, other in _ATTRIBUTE.findall(written)}
        if not self._new or found.get(b"rel", b"alternate").lower() != b"alternate":
            return True
        text = self._decoded(found.get(b"href", b"").decode("utf-8", "replace"))
        self._new = False
        return not text or self._take(text)

    def _take(self, location: str) -> bool:
        """Takes an address; False when there is no more room."""
        if len(self._locations) >= SITEMAP_ENTRIES_MAX:
            self._full()
            return False
        self._locations.append(location)
        self._fields.append((self._waiting, None, None))
        self._waiting = None
        return True

    # -- the end ------------------------------------------------------------------------------------------------------

    def ended(self) -> Sitemap:
        if self._kind == "error":
            return Sitemap(self._url, "error", problems=tuple(self._problems))
        urls = UrlBatch.of(self._locations)
        fit = urls.valid & (urls.lengths <= URL_BYTES_MAX)
        for row in np.flatnonzero(~fit).tolist():
            self._problem("no URL that can be crawled: ", repr(self._locations[row][:SITEMAP_FIELD_CHARACTERS_MAX]))
        strings = urls.strings() if fit.all() else [urls[row] for row in range(len(urls))]
        if self._kind == "text" and not fit.any():
            return Sitemap(self._url, "error", problems=("a text without any URL",))
        folder = _folder(self._url)
        entries: list[SitemapEntry] = []
        for text, (lastmod, changefreq, priority), good in zip(strings, self._fields, fit.tolist(), strict=True):
            if good:
                within = folder is not None and text.startswith(folder)
                entries.append(
                    SitemapEntry(
                        text,
                        None if lastmod is None else _dated(lastmod),
                        None if changefreq is None else _change(changefreq),
                        None if priority is None else _share(priority),
                        within,
                    )
                )
        if self._kind == "index":
            return Sitemap(self._url, "index", children=tuple(entries), problems=tuple(self._problems))
        outside = sum(not entry.within for entry in entries)
        if outside and folder is not None:
            self._problem(f"{outside} URLs lie outside of {folder}")
        return Sitemap(self._url, self._kind, entries=tuple(entries), problems=tuple(self._problems))


def _folder(url: str) -> str | None:
    """The canonical URL of the folder that a sitemap lies in: what it names begins with that."""
    canonical = UrlBatch.of([url])
    if not canonical.valid[0]:
        return None
    text = canonical[0].partition("?")[0]
    return text[: text.rindex("/") + 1]


def _behind(octets: bytes, mark: bytes, at: int) -> int:
    end = octets.find(mark, at)
    return -1 if end < 0 else end + len(mark)


@lru_cache(maxsize=1_024)
def _text(octets: bytes | None) -> str | None:
    return None if octets is None else octets[:SITEMAP_FIELD_CHARACTERS_MAX].decode("utf-8", "replace")


def _shown(name: bytes) -> str:
    return repr(name[:SITEMAP_FIELD_CHARACTERS_MAX].decode("utf-8", "replace"))


@lru_cache(maxsize=1_024)
def _dated(text: str) -> str | None:
    """A date and time as W3C writes it, also from one as mail has it; None for anything else."""
    text = text.strip()[:SITEMAP_FIELD_CHARACTERS_MAX]
    if _DATE.fullmatch(text) is not None:
        return text
    try:
        return parsedate_to_datetime(text).astimezone(UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


@lru_cache(maxsize=64)
def _change(text: str) -> str | None:
    word = text.strip().lower()
    return word if word in _CHANGES else None


@lru_cache(maxsize=64)
def _share(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value <= 1 else None
