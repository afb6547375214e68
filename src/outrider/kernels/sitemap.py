"""A sitemap in XML as columns (sitemaps.org 0.90): one pass, nothing is expanded, opened or fetched; the plain twin."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from outrider.kernels.framing import Bytes

KINDS: Final = ("error", "urlset", "index", "rss", "atom")
CHANGES: Final = (None, "always", "hourly", "daily", "weekly", "monthly", "yearly", "never")
NO_DATE, DATED, TEXT = 0, 1, 2
CUT, FULL, SUBSET, ENTITY, WRONG_TAG, WRONG_END, WRONG_DEPTH, WRONG_SECOND, WRONG_ROOT = range(9)
"""The problems by number; from WRONG_TAG on the document is not a sitemap."""

Columns = tuple[
    *tuple[int, bytes, bytes, bytes, bytes, bytes, bytes, bytes],
    *tuple[bytes, list[tuple[int, str]], list[tuple[int, str]]],
]
"""The result of `read_sitemap_xml`, numbers in little endian; one row for each address:

    kind             a number in KINDS
    arena            the addresses as written, references undone, one after the other, in UTF-8
    offsets          i64: the start of each, and the end of the last
    dates            the dates, in the same way
    date offsets     i64
    date kinds       u8: no date, one as W3C writes it, another text
    changes          u8: numbers in CHANGES
    priorities       f64: from 0 to 1, else NaN
    bases            u32: the base of each address by number, from 1; 0: the URL of the document
    base texts       (number of the base that it is relative to, base as written)
    problems         (number, the text with the problem), of each number the first ones
"""

_ROOTS = {b"urlset": 1, b"sitemapindex": 2, b"rss": 3, b"rdf": 3, b"feed": 4}
_HOLDERS = {b"url": 1, b"sitemap": 2, b"item": 3, b"entry": 4}
_ALTERNATE = (b"alternate", b"http://www.iana.org/assignments/relation/alternate")
_GUID_ADDRESS = re.compile(r"(?i:https?://|/)")
_BASE = b"xml:base"
_DATES = frozenset({b"lastmod", b"pubdate", b"date", b"updated"})
_ABOUT = _DATES | {b"published", b"changefreq", b"priority"}
_DATE = re.compile(
    r"[0-9]{4}(?:-[0-9]{2}(?:-[0-9]{2}(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?"
    r"(?:Z|[+-][0-9]{2}:?[0-9]{2})?)?)?)?"
)
_SHARE = re.compile(r"(?=.{1,40}\Z)(?:[0-9]+\.?[0-9]*|\.[0-9]+)")
_REFERENCE = re.compile(r"&(?:#([0-9]{1,9})|#[xX]([0-9a-fA-F]{1,8})|([A-Za-z_][A-Za-z0-9._-]{0,40}));")
_NAMED = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_NAME = re.compile(rb"[^\s/>]++")
_TAG_END = re.compile(rb"""[^>"']*+(?:"[^"]*+"[^>"']*+|'[^']*+'[^>"']*+)*>""")
_ATTRIBUTE = re.compile(rb"""([^\s=/"']++)(?:\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'))?""")
_SUBSET = re.compile(rb"""<!DOCTYPE[^\[>]*+(?:\[(?:[^\]"']++|"[^"]*+"|'[^']*+')*\]\s*+)?>""", re.IGNORECASE)

# An entry as nearly all are written, which is read in one step.
_PLAIN = re.compile(
    rb"\s*+<url>\s*+<loc>([^<&]*+(?:&amp;[^<&]*+)*)</loc>\s*+(?:<lastmod>([^<&]*+)</lastmod>\s*+)?"
    rb"(?:<changefreq>([^<&]*+)</changefreq>\s*+)?(?:<priority>([^<&]*+)</priority>\s*+)?</url>"
)
_ABOUT_KNOWN_MAX: Final = 4_096  # different fields of entries that are remembered: most entries share a few


class SitemapLimits(NamedTuple):
    """How much of a sitemap is kept: the first ones each time."""

    entries: int
    depth: int
    """Depth of nested elements; a deeper document is not a sitemap."""
    problems: int
    """Problems of each number."""
    field_characters: int
    """Bytes of a date, and of the text that a problem quotes."""


def read_sitemap_xml(octets: Bytes, limits: SitemapLimits) -> Columns:
    """Returns the columns of a document in UTF-8: the addresses of a urlset, an index, an RSS or Atom feed.

    An address is the loc of an entry, in RSS its link, in Atom the first link to the entry itself. A guid of RSS
    is an address if there is no link, and if it says that it is permanent, or says nothing and looks like an address.
    The bases of addresses are those of XML Base, in feeds. Dates are lastmod, pubDate, date, updated, and published in
    their absence; the last one counts. If a document breaks off or stops being XML, the entries before that place
    count. Names count without prefix and case.
    """
    reader = _XmlReader(bytes(octets), limits)
    broken: tuple[int, str] | None = None
    try:
        for _ in reader.elements():
            pass
    except _WrongError as wrong:
        number, *more = wrong.args
        broken = number, *(more or [""])
    reader.flush()
    if broken is not None:
        # Entries before the break count; a document without any is not a sitemap.
        reader.kind = reader.kind if reader.rows else 0
        reader.problem(*broken)
    return reader.columns()


class _WrongError(Exception):
    """The document is not a sitemap, for this reason."""


class _XmlReader:
    def __init__(self, octets: bytes, limits: SitemapLimits) -> None:
        self.octets, self.limits = octets, limits
        self.kind = 0
        self.problems: list[tuple[int, str]] = []
        self.addresses: list[bytes] = []
        self.rows: list[tuple[str | None, int, float]] = []
        self.stack: list[tuple[bytes, bytes, int]] = []  # name, without prefix in lower case, base inside
        self.bases: list[int] = []
        self.base_texts: list[tuple[int, str]] = []
        self.permanent: bool | None = None  # the guid that is being read says so of itself
        self.pieces: list[bytes] = []  # the text of the field that is being read
        self.field_depth = 0  # the depth of its element; 0 without one
        self.typed = False  # a document type was looked for
        self.new = True  # the entry that was begun has no address yet
        self.forget()

    def forget(self) -> None:
        self.has_address = False
        self.guid: tuple[str, int] | None = None
        self.date: str | None = None
        self.published: str | None = None
        self.change, self.priority = 0, math.nan

    def problem(self, number: int, more: str = "") -> None:
        if sum(known == number for known, _ in self.problems) < self.limits.problems:
            self.problems.append((number, more))

    def shown(self, octets: bytes) -> str:
        return octets.decode("utf-8", "replace")[: self.limits.field_characters]

    def elements(self) -> Iterator[None]:
        octets, at = self.octets, 0
        while (open_ := octets.find(b"<", self.plain(at))) >= 0:
            yield
            if self.field_depth:
                self.pieces.append(octets[at:open_])
            mark = octets[open_ + 1 : open_ + 2]
            if mark in {b"!", b"?"}:
                at = self.skip_markup(open_)
                if at < 0:
                    self.problem(CUT)
                    return
                continue
            name_at = open_ + 2 if mark == b"/" else open_ + 1
            ended = _TAG_END.match(octets, name_at)
            if ended is None:
                self.problem(CUT)
                if self.field_depth:
                    self.field()
                return
            named = _NAME.match(octets, name_at)
            if named is None:
                raise _WrongError(WRONG_TAG)
            at = ended.end()
            if mark == b"/":
                self.close(named[0])
            elif not self.open(named[0], octets[named.end() : at - 1]):
                return
        if self.stack:
            self.problem(CUT)

    def plain(self, at: int) -> int:
        """Reads entries of a urlset in one step each; answers where the first other thing begins."""
        if len(self.stack) != 1 or self.kind != 1:
            return at
        # The current entry has ended: elements between two entries belong to neither.
        self.flush()
        known: dict[tuple[bytes | None, ...], tuple[str | None, int, float]] = {}
        while len(self.addresses) < self.limits.entries:
            found = _PLAIN.match(self.octets, at)
            if found is None:
                break
            at = found.end()
            text = found[1].decode("utf-8", "replace").replace("&amp;", "&").strip()
            if text:
                fields = found.group(2, 3, 4)
                about = known.get(fields)
                if about is None:
                    about = self.about(fields)
                    if len(known) < _ABOUT_KNOWN_MAX:
                        known[fields] = about
                self.addresses.append(text.encode())
                self.bases.append(0)
                self.rows.append(about)
        return at

    def about(self, fields: tuple[bytes | None, ...]) -> tuple[str | None, int, float]:
        """Date, change and priority of an entry as they were written."""
        for name, octets in zip((b"lastmod", b"changefreq", b"priority"), fields, strict=True):
            if octets is not None:
                self.take_value(name, octets.decode("utf-8", "replace"))
        row = self.date, self.change, self.priority
        self.forget()
        return row

    def close(self, name: bytes) -> None:
        if not self.stack or self.stack[-1][0] != name:
            raise _WrongError(WRONG_END, self.shown(name))
        if self.field_depth == len(self.stack):
            self.field()
        self.stack.pop()

    def open(self, name: bytes, rest: bytes) -> bool:
        """Reads a start tag; returns False when there is no more room."""
        local = name.rpartition(b":")[2].lower()
        if not self.stack:
            if self.kind:
                raise _WrongError(WRONG_SECOND)
            if local not in _ROOTS:
                raise _WrongError(WRONG_ROOT, self.shown(name))
            self.kind = _ROOTS[local]
        elif len(self.stack) >= self.limits.depth:
            raise _WrongError(WRONG_DEPTH)
        base = self.base(rest)
        held = bool(self.stack) and _HOLDERS.get(self.stack[-1][1]) == self.kind
        if KINDS[self.kind] == "atom" and local == b"link" and held and not self.atom_link(rest, base):
            return False
        if rest.endswith(b"/"):
            return True
        self.stack.append((name, local, base))
        if self.field_depth:
            return True
        if _HOLDERS.get(local) == self.kind:
            self.flush()
            self.new = True
        is_address = local == (b"link" if KINDS[self.kind] == "rss" else b"loc")
        is_guid = KINDS[self.kind] == "rss" and local == b"guid"
        if is_guid:
            self.permanent = _permanent(rest)
        if held and (is_address or is_guid or local in _ABOUT):
            begins = is_address or (is_guid and self.new and not self.has_address)
            if begins and len(self.addresses) >= self.limits.entries:
                self.problem(FULL)
                return False
            self.pieces, self.field_depth = [], len(self.stack)
        return True

    def skip_markup(self, at: int) -> int:
        """Passes over a comment, a declaration or an instruction, and reads a CDATA section; -1 when it has no end."""
        octets = self.octets
        if octets.startswith(b"<!--", at):
            return _rest_after(octets, b"-->", at + 4)
        if octets.startswith(b"<![CDATA[", at):
            end = _rest_after(octets, b"]]>", at + 9)
            if self.field_depth and end >= 0:
                # Its text is a field of its own.
                self.pieces.append(octets[at + 9 : end - 3].replace(b"&", b"&amp;"))
            return end
        if octets.startswith(b"<?", at):
            return _rest_after(octets, b"?>", at + 2)
        # There is one, in front: a second look for the end of each would make a bomb of many.
        found = None if self.typed else _SUBSET.match(octets, at)
        self.typed = True
        if found is not None:
            self.problem(SUBSET)
            return found.end()
        return _rest_after(octets, b">", at)

    def field(self) -> None:
        """Reads the text of the field: an address, or something about the entry."""
        _, name, base = self.stack[self.field_depth - 1]
        self.field_depth = 0
        text = self.decoded(b"".join(self.pieces))
        if text is not None:
            self.take_value(name, text, base)

    def take_value(self, name: bytes, text: str, base: int = 0) -> None:
        """Reads an address, or something about the entry."""
        text = text.strip()
        if name in {b"loc", b"link"}:
            if text:
                self.take(text, base)
            self.new = False
        elif name == b"guid":
            permanent = bool(text) if self.permanent else self.permanent is None and _GUID_ADDRESS.match(text)
            if permanent and self.guid is None:
                self.guid = text, base
        elif not text:
            return
        elif name in _DATES:
            self.date = text[: self.limits.field_characters]
        elif name == b"published":
            self.published = text[: self.limits.field_characters]
        elif name == b"changefreq":
            word = text.lower() if text.isascii() else text
            self.change = CHANGES.index(word) if word in CHANGES else 0
        elif name == b"priority":
            value = float(text) if _SHARE.fullmatch(text) is not None else math.nan
            self.priority = value if 0 <= value <= 1 else math.nan

    def atom_link(self, rest: bytes, base: int) -> bool:
        """Reads the first link of an entry to the entry itself; returns False when there is no more room."""
        if not self.new:
            return True
        found = {name.lower(): value for name, value in _attributes(rest)}
        if found.get(b"rel", b"alternate").lower() not in _ALTERNATE:
            return True
        self.new = False
        text = (self.decoded(found.get(b"href", b"")) or "").strip()
        if text and len(self.addresses) >= self.limits.entries:
            self.problem(FULL)
            return False
        if text:
            self.take(text, base)
        return True

    def base(self, rest: bytes) -> int:
        """Returns the number of the base inside an element: in a feed its own one (XML Base), else the outer one."""
        around = self.stack[-1][2] if self.stack else 0
        # An entry has two at most that count, and as many as it may be deep are around all.
        most = 2 * self.limits.entries + self.limits.depth
        if KINDS[self.kind] not in ("rss", "atom") or _BASE not in rest:
            return around
        written = dict(_attributes(rest)).get(_BASE)
        text = self.decoded(written) if written is not None and len(self.base_texts) < most else None
        if text is None:
            return around
        self.base_texts.append((around, text.strip()))
        return len(self.base_texts)

    def take(self, text: str, base: int) -> None:
        """Adds an address. A wrong feed or sitemap may have several in one entry: each becomes an entry."""
        if self.has_address:
            self.flush()
        self.addresses.append(text.encode())
        self.bases.append(base)
        self.has_address = True

    def flush(self) -> None:
        """Writes the fields of the entry that ended, if it has an address, and forgets them."""
        guid, self.guid = self.guid, None
        if guid is not None and not self.has_address:
            self.take(*guid)
        if self.has_address:
            self.rows.append((self.date if self.date is not None else self.published, self.change, self.priority))
        self.forget()

    def decoded(self, octets: bytes) -> str | None:
        """A text with the references of XML undone; None if it names an entity."""
        unknown: list[str] = []

        def one(match: re.Match[str]) -> str:
            decimal, hexadecimal, name = match.groups()
            if name is not None:
                if name not in _NAMED:
                    unknown.append(name)
                return _NAMED.get(name, "")
            code = int(decimal) if decimal is not None else int(hexadecimal, 16)
            return chr(code) if 0 < code < 0x110000 and not 0xD800 <= code < 0xE000 else "\ufffd"

        text = octets.decode("utf-8", "replace")
        decoded = _REFERENCE.sub(one, text) if "&" in text else text
        if unknown:
            self.problem(ENTITY, unknown[0][:40])
            return None
        return decoded

    def columns(self) -> Columns:
        dates = [(date or "").encode() for date, _, _ in self.rows]
        kinds = [NO_DATE if date is None else DATED if _DATE.fullmatch(date) else TEXT for date, _, _ in self.rows]
        return (
            self.kind,
            b"".join(self.addresses),
            _offsets(self.addresses),
            b"".join(dates),
            _offsets(dates),
            bytes(kinds),
            bytes(change for _, change, _ in self.rows),
            struct.pack(f"<{len(self.rows)}d", *(share for _, _, share in self.rows)),
            struct.pack(f"<{len(self.bases)}I", *self.bases),
            self.base_texts,
            self.problems,
        )


def _attributes(rest: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Names and values of the attributes that have a value in quotes, in order."""
    for one in _ATTRIBUTE.finditer(rest):
        if one[0] != one[1]:
            yield one[1], one[2] if one[2] is not None else one[3]


def _permanent(rest: bytes) -> bool | None:
    """Whether a guid says of itself that it is an address; None if it says nothing."""
    said: bool | None = None
    for name, value in _attributes(rest):
        if name.lower() == b"ispermalink":
            said = value.strip(b" \t\n\x0c\r").lower() != b"false"
    return said


def _offsets(texts: list[bytes]) -> bytes:
    at, offsets = 0, [0]
    for text in texts:
        at += len(text)
        offsets.append(at)
    return struct.pack(f"<{len(offsets)}q", *offsets)


def _rest_after(octets: bytes, mark: bytes, at: int) -> int:
    end = octets.find(mark, at)
    return -1 if end < 0 else end + len(mark)
