"""Reads sitemaps (sitemaps.org 0.90): XML, an index of others, lines of text, RSS and Atom, each packed or not.

The reader goes over the bytes once and knows no DTD and no entity but the five of XML: nothing is expanded, opened or
asked for. Bad input is told in `problems`, and what was read before it is kept; nothing raises.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import lru_cache
from itertools import compress, repeat
from urllib.parse import urlsplit

import msgspec
import numpy as np

from outrider import kernels
from outrider.kernels.sitemap import CHANGES, DATED, FULL, KINDS, SitemapLimits
from outrider.limits import (
    SITEMAP_BYTES_MAX,
    SITEMAP_DEPTH_MAX,
    SITEMAP_ENTRIES_MAX,
    SITEMAP_FIELD_CHARACTERS_MAX,
    SITEMAP_PROBLEMS_MAX,
    URL_BYTES_MAX,
)
from outrider.url import UrlBatch

_ENCODING = re.compile(rb"""\A\s*<\?xml[^>]{0,200}?\sencoding\s*=\s*["']([A-Za-z0-9._:-]{1,40})["']""")
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
    """Reads a body fetched from `url` as a sitemap; a packed one (gzip) is unpacked first. url: "" for a file that
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


class _Reader:
    def __init__(self, url: str) -> None:
        self._url = url
        self._kind = "error"
        self._problems: list[str] = []
        self._told: dict[str, int] = {}
        self._urls = UrlBatch.of(())
        self._written: Callable[[int], str] = str
        self._fields: tuple[Iterable[str | None], Iterable[str | None], Iterable[float | None]] = ((), (), ())

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

    def lines(self, octets: bytes) -> None:
        texts: list[str] = []
        for line in octets.split(b"\n"):
            text = line[: URL_BYTES_MAX + 1].decode("utf-8", "replace").strip().lstrip("\ufeff")
            if text and len(texts) >= SITEMAP_ENTRIES_MAX:
                self._problem(_PROBLEMS[FULL])
                break
            if text:
                texts.append(text)
        self._kind = "text"
        self._urls = UrlBatch.of(texts)
        self._written = texts.__getitem__
        self._fields = (repeat(None), repeat(None), repeat(None))

    def xml(self, octets: bytes) -> None:
        kind, arena, offsets, dates, date_offsets, date_kinds, changes, shares, problems = kernels.read_sitemap_xml(
            octets, _LIMITS
        )
        for number, more in problems:
            self._problem(_PROBLEMS[number].format(more))
        self._kind = KINDS[kind]
        spans = np.frombuffer(offsets, "<i8")
        self._urls = UrlBatch.from_buffers(arena, spans)
        self._written = lambda row: arena[spans[row] : spans[row + 1]].decode("utf-8", "replace")
        ends = np.frombuffer(date_offsets, "<i8")
        texts = kernels.texts_of_spans(dates, ends[:-1], ends[1:])
        lastmods = [
            text if sort == DATED else _dated(text) if sort else None
            for text, sort in zip(texts, date_kinds, strict=True)
        ]
        priorities = [share if share == share else None for share in np.frombuffer(shares, "<f8").tolist()]  # noqa: PLR0124
        self._fields = (lastmods, map(CHANGES.__getitem__, changes), priorities)

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
        if self._kind == "text" and not len(urls):
            return Sitemap(self._url, "error", problems=("a text without any URL",))
        folder = _folder(self._url)
        texts = urls.strings()
        within = [folder is not None and text.startswith(folder) for text in texts]
        entries = tuple(map(SitemapEntry, texts, lastmods, changes, priorities, within))
        if self._kind == "index":
            return Sitemap(self._url, "index", children=entries, problems=tuple(self._problems))
        outside = within.count(False)
        if outside and folder is not None:
            self._problem(f"{outside} URLs lie outside of {folder}")
        return Sitemap(self._url, self._kind, entries=entries, problems=tuple(self._problems))


def _folder(url: str) -> str | None:
    """The canonical URL of the folder that a sitemap lies in: what it names begins with that."""
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
