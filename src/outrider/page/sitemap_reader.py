"""Reads sitemaps (sitemaps.org 0.90): XML, an index of others, lines of text, RSS and Atom, with gzip or without.

The reader reads the bytes once, without DTDs and with only the five entities of XML: nothing is expanded, opened or
fetched. Bad input is listed in `problems`, and everything before it is kept; nothing raises.
"""

from __future__ import annotations

import codecs
import re
import threading
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import lru_cache
from itertools import compress, pairwise, repeat
from typing import Final
from urllib.parse import urlsplit

import msgspec
import numpy as np
import numpy.typing as npt

from outrider import kernels
from outrider.kernels.sitemap import CHANGES, DATED, FULL, KINDS, SitemapLimits
from outrider.limits import (
    BASE_CHARACTERS_MAX,
    SITEMAP_BYTES_MAX,
    SITEMAP_DEPTH_MAX,
    SITEMAP_ENTRIES_MAX,
    SITEMAP_FIELD_CHARACTERS_MAX,
    SITEMAP_MEMBERS_MAX,
    SITEMAP_PROBLEMS_MAX,
    SITEMAP_STRAYS_MAX,
    URL_BYTES_MAX,
)
from outrider.url import UrlBatch, spell

_ENCODING = re.compile(rb"""\A\s*<\?xml[^>]{0,200}?\sencoding\s*=\s*["']([A-Za-z0-9._:-]{1,40})["']""")
_LINE = re.compile(rb"\S[^\n]*")
"""A line with something in it: empty ones, of which some packed kilobytes may have millions, cost nothing."""
_MARKS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_WIDE = {b"<\0?\0": "utf-16le", b"<\0u\0": "utf-16le", b"\0<\0?": "utf-16be", b"\0<\0u": "utf-16be"}
_WIDE_LABELS = ("utf-16", "utf16", "unicode", "ucs-2", "csunicode", "iso-10646")
"""A declaration that reads as ASCII is in another encoding."""
_LIMITS = SitemapLimits(SITEMAP_ENTRIES_MAX, SITEMAP_DEPTH_MAX, SITEMAP_PROBLEMS_MAX, SITEMAP_FIELD_CHARACTERS_MAX)
_PROBLEMS = (
    "cut off",
    f"more than {SITEMAP_ENTRIES_MAX} URLs: the rest is left out",
    "a document type: nothing of it is used",
    "the entity {} is not expanded",
    "a < that begins no tag",
    "</{!r}> ends nothing that is open",
    f"elements nest deeper than {SITEMAP_DEPTH_MAX}",
    "a second root element",
    "its root element is {!r}, which is no sitemap",
)


class SitemapEntry(msgspec.Struct, frozen=True, gc=False):
    """A URL that a sitemap names, spelled canonically."""

    url: str
    lastmod: str | None = None
    """When it changed last, as a W3C date and time; None when the sitemap says nothing or no date."""
    changefreq: str | None = None
    priority: float | None = None
    """From 0 to 1, relative to other URLs of the same site."""
    within: bool = True
    """Whether the sitemap may speak for it (`in_location`)."""
    unread_date: str | None = None
    """The beginning of a text in place of a date, if it is none."""


class Sitemap(msgspec.Struct, frozen=True):
    """A sitemap that was read."""

    url: str
    kind: str
    """`urlset`, `index`, `text`, `rss`, `atom`, or `error` for a body that is not a sitemap."""
    entries: tuple[SitemapEntry, ...] = ()
    """The pages that it names, at most `SITEMAP_ENTRIES_MAX`: the first ones."""
    children: tuple[SitemapEntry, ...] = ()
    """The sitemaps that an index names."""
    problems: tuple[str, ...] = ()
    """Its problems, at most `SITEMAP_PROBLEMS_MAX` of each kind."""


def in_location(sitemap: str, url: str) -> bool:
    """Whether a sitemap may name a URL: the same scheme, host and port, and a path below the sitemap's folder.

    sitemaps.org, "Sitemap file location". A robots.txt may announce sitemaps elsewhere: then its host counts.
    """
    try:
        whose, what = urlsplit(sitemap), urlsplit(url)
    except ValueError:
        return False
    folder = whose.path[: whose.path.rfind("/") + 1] or "/"
    return (whose.scheme, whose.netloc) == (what.scheme, what.netloc) and (what.path or "/").startswith(folder)


def read_sitemap(body: bytes, url: str) -> Sitemap:
    """Reads a body fetched from `url` as a sitemap; one in gzip is decompressed first. url: "" for a file that
    may name any host.

    If a document is cut off or stops being XML, the entries before that place count. `kind` is `error` for a body that
    is not a sitemap: another root element, no entry before the break, a text without any URL.
    """
    reader = _SitemapReader(url)
    octets = _in_utf_8(reader.unpacked(bytes(body)))
    if octets.lstrip()[:1] == b"<":
        reader.xml(octets)
    else:
        reader.lines(octets)
    return reader.ended()


def _in_utf_8(octets: bytes) -> bytes:
    """A document in UTF-8: by its mark, the encoding that it declares, or what its octets are where they contradict it.

    XML in UTF-16 is known by its first octets (XML 1.0, appendix F), since it cannot declare so otherwise. A document
    that declares another encoding and is UTF-8 is UTF-8: no text of another encoding is that by chance, but ASCII.
    """
    declared = _ENCODING.match(octets)
    label = declared[1].decode("ascii") if declared is not None else None
    wide = _WIDE.get(octets[:4])
    if wide is not None:
        label = wide
    elif label is not None and not octets.startswith(_MARKS):
        if label.lower().startswith(_WIDE_LABELS) or (not label.lower().startswith("iso-2022") and _is_utf_8(octets)):
            label = "utf-8"
        if label.lower() in ("utf-8", "utf8"):
            octets = _without_strays(octets)
    return kernels.decode_text(octets, label, SITEMAP_BYTES_MAX)[1]


def _is_utf_8(octets: bytes) -> bool:
    if octets.isascii():
        return True
    try:
        codecs.getincrementaldecoder("utf-8")().decode(octets)  # the last character may be cut off
    except UnicodeDecodeError:
        return False
    return True


def _without_strays(octets: bytes) -> bytes:
    """Decodes UTF-8, and invalid octets as windows-1252: parts of a file may have another source. With many of them,
    the whole file is not UTF-8."""
    if _is_utf_8(octets):
        return octets
    _strays.left = SITEMAP_STRAYS_MAX
    try:
        return octets.decode("utf-8", _STRAY).encode()
    except UnicodeDecodeError:
        return kernels.decode_text(octets, "windows-1252", SITEMAP_BYTES_MAX)[1]


_PACKED_STEP: Final = 65_536
_STRAY: Final = "outrider-stray"
_strays = threading.local()  # how many more there may be in the file that this thread reads


def _stray(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    _strays.left -= 1
    if _strays.left < 0:
        raise error
    octets = error.object[error.start : error.end]
    return kernels.decode_text(octets, "windows-1252", 4 * len(octets))[1].decode(), error.end


codecs.register_error(_STRAY, _stray)


def _before_the_break(body: bytes, begin: int, known: int, end: int) -> bytes:
    """Returns the content of the octets from `known` on of a gzip member that begins at `begin`, up to its break before
    `end`; a wrong checksum is such a break. zlib returns nothing of a step that breaks, but octet by octet it does."""
    packed = zlib.decompressobj(31)
    for at in range(begin, known, _PACKED_STEP):
        packed.decompress(body[at : min(known, at + _PACKED_STEP)])
    pieces = []
    with suppress(zlib.error):
        for at in range(known, end):
            pieces.append(packed.decompress(body[at : at + 1]))
    return b"".join(pieces)


class _SitemapReader:
    def __init__(self, url: str) -> None:
        self._url = url
        self._kind = "error"
        self._problems: list[str] = []
        self._told: dict[str, int] = {}
        self._urls = UrlBatch.of(())
        self._written: Callable[[int], str] = str
        self._fields: tuple[Iterable[str | None], Iterable[str | None], Iterable[float | None]] = ((), (), ())
        self._unread: Iterable[str | None] = repeat(None)

    def _problem(self, what: str, more: str = "") -> None:
        """Notes a problem; of one thing the first ones are named."""
        self._told[what] = self._told.get(what, 0) + 1
        if self._told[what] <= SITEMAP_PROBLEMS_MAX:
            self._problems.append(f"{what}{more[:SITEMAP_FIELD_CHARACTERS_MAX]}")

    def unpacked(self, body: bytes) -> bytes:
        if body[:2] != b"\x1f\x8b":
            if len(body) > SITEMAP_BYTES_MAX:
                self._problem(f"longer than {SITEMAP_BYTES_MAX} bytes: the rest is left out")
            return body[:SITEMAP_BYTES_MAX]
        pieces: list[bytes] = []
        room, at, begin, members = SITEMAP_BYTES_MAX, 0, 0, 1
        packed = zlib.decompressobj(31)
        while at < len(body) and room > 0:
            # Short at first: of many small members each costs as much as its first step.
            step = body[at : at + min(_PACKED_STEP, max(1_024, at - begin))]
            try:
                pieces.append(packed.decompress(step, room))
            except zlib.error as error:
                self._problem("gzip: ", str(error))
                pieces.append(_before_the_break(body, begin, at, at + len(step))[:room])
                return b"".join(pieces)
            room -= len(pieces[-1])
            at += len(step) - len(packed.unused_data if packed.eof else packed.unconsumed_tail)
            if packed.eof:
                if body[at : at + 2] != b"\x1f\x8b":
                    break
                if members >= SITEMAP_MEMBERS_MAX:
                    self._problem(f"gzip: more than {SITEMAP_MEMBERS_MAX} members: the rest is left out")
                    break
                begin, members, packed = at, members + 1, zlib.decompressobj(31)
        if not packed.eof:
            self._problem("gzip: cut off" if room > 0 else f"longer than {SITEMAP_BYTES_MAX} bytes unpacked")
        return b"".join(pieces)

    def lines(self, octets: bytes) -> None:
        texts: list[str] = []
        for number, met in enumerate(_LINE.finditer(octets)):
            line = met[0][: URL_BYTES_MAX + 1]
            text = line.decode("utf-8", "replace").strip().lstrip("\ufeff")
            if number >= 2 * SITEMAP_ENTRIES_MAX or (text and len(texts) >= SITEMAP_ENTRIES_MAX):
                self._problem(_PROBLEMS[FULL])
                break
            if text:
                texts.append(text)
        self._kind = "text"
        self._urls = UrlBatch.of(texts)
        self._written = texts.__getitem__
        self._fields = (repeat(None), repeat(None), repeat(None))

    def xml(self, octets: bytes) -> None:
        columns = kernels.read_sitemap_xml(octets, _LIMITS)
        kind, arena, offsets, dates, date_offsets, date_kinds, changes, shares, bases, base_texts, problems = columns
        for number, more in problems:
            self._problem(_PROBLEMS[number].format(more))
        self._kind = KINDS[kind]
        spans = np.frombuffer(offsets, "<i8")
        self._urls = self._against_bases(arena, spans, np.frombuffer(bases, "<u4"), base_texts)
        self._written = lambda row: arena[spans[row] : spans[row + 1]].decode("utf-8", "replace")
        ends = np.frombuffer(date_offsets, "<i8")
        texts = kernels.texts_of_spans(dates, ends[:-1], ends[1:])
        lastmods = [
            text if sort == DATED else _dated(text) if sort else None
            for text, sort in zip(texts, date_kinds, strict=True)
        ]
        if any(sort and date is None for sort, date in zip(date_kinds, lastmods, strict=True)):
            self._unread = [
                text if sort and date is None else None
                for text, sort, date in zip(texts, date_kinds, lastmods, strict=True)
            ]
        priorities = [share if share == share else None for share in np.frombuffer(shares, "<f8").tolist()]  # noqa: PLR0124
        self._fields = (lastmods, map(CHANGES.__getitem__, changes), priorities)

    def _against_bases(
        self, arena: bytes, spans: npt.NDArray[np.int64], bases: npt.NDArray[np.uint32], texts: list[tuple[int, str]]
    ) -> UrlBatch:
        """The addresses as URLs. Feeds have addresses relative to a base (RFC 4287 section 2, XML Base), else to the
        feed itself; a sitemap has whole URLs (sitemaps.org 0.90)."""
        if self._kind not in ("rss", "atom"):
            return UrlBatch.from_buffers(arena, spans)
        marks = [0, *(np.flatnonzero(np.diff(bases)) + 1).tolist(), len(bases)]
        base_of = _Bases(self._url, texts)
        parts = [
            UrlBatch.from_buffers(arena, spans[first : last + 1], base_of(int(bases[first])))
            for first, last in pairwise(marks)
            if first < last
        ]
        return UrlBatch.concatenate(parts)

    def ended(self) -> Sitemap:
        if self._kind == "error":
            return Sitemap(self._url, "error", problems=tuple(self._problems))
        urls = self._urls
        fit = urls.valid & (urls.lengths <= URL_BYTES_MAX)
        for row in np.flatnonzero(~fit).tolist():
            self._problem("no URL that can be crawled: ", repr(self._written(row)[:SITEMAP_FIELD_CHARACTERS_MAX]))
        lastmods, changes, priorities = self._fields
        if not fit.all():
            urls = urls.filter(fit)
            kept = fit.tolist()
            lastmods, changes, priorities = (
                compress(lastmods, kept),
                compress(changes, kept),
                compress(priorities, kept),
            )
            self._unread = compress(self._unread, kept)
        if self._kind == "text" and not len(urls):
            return Sitemap(self._url, "error", problems=("a text without any URL",))
        folder = _folder(self._url)
        texts = urls.strings()
        within = [folder is not None and text.startswith(folder) for text in texts]
        entries = tuple(map(SitemapEntry, texts, lastmods, changes, priorities, within, self._unread))
        if self._kind == "index":
            return Sitemap(self._url, "index", children=entries, problems=tuple(self._problems))
        outside = within.count(False)
        if outside and folder is not None:
            self._problem(f"{outside} URLs lie outside of {folder}")
        return Sitemap(self._url, self._kind, entries=entries, problems=tuple(self._problems))


class _Bases:
    """The URLs of bases, by number; 0 is the URL of the document. Each is made once: those around the last address
    are kept."""

    def __init__(self, url: str, texts: list[tuple[int, str]]) -> None:
        self._document = spell([url])[0]
        self._texts = texts
        self._around: dict[int, str | None] = {0: self._document}

    def __call__(self, number: int) -> str | None:
        """None: nothing is relative to it."""
        way: list[int] = []
        at = number
        while at not in self._around:
            way.append(at)
            at = self._texts[at - 1][0]
        while next(reversed(self._around)) != at:  # elements that ended: addresses are in document order
            self._around.popitem()
        base = self._around[at]
        for inner in reversed(way):
            text = self._texts[inner - 1][1]
            # An invalid base is ignored, and so is one so long that it would fill thousands of addresses.
            base = spell([text], base)[0] or base if len(text) <= BASE_CHARACTERS_MAX else base
            base = base if base is None or len(base) <= URL_BYTES_MAX else self._document
            self._around[inner] = base
        return base


def _folder(url: str) -> str | None:
    """Returns the canonical URL of a sitemap's folder: the URLs in it begin with that."""
    canonical = UrlBatch.of([url])
    if not canonical.valid[0]:
        return None
    text = canonical[0].partition("?")[0]
    return text[: text.rindex("/") + 1]


@lru_cache(maxsize=1_024)
def _dated(text: str) -> str | None:
    """A date and time as W3C writes it from one as mail has it; None for anything else."""
    try:
        return parsedate_to_datetime(text).astimezone(UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
