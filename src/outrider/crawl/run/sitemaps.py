"""The sitemaps of a crawl: found in robots.txt files and indexes, queued once, read into links.

`sitemaps.jsonl` remembers each that was queued, for which authority, and how many indexes led to it. The order is: the
frontier queues, the file is synced, the outcome of what named them is reported. So a crash between two steps repeats
that outcome, and loses no sitemap.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

import msgspec
import numpy as np

from outrider.crawl.output.output_frontier import OutputFrontier
from outrider.crawl.run.visit import Judgement, Visit
from outrider.crawl.setup.options import CrawlOptions
from outrider.errors import InvalidUrlError
from outrider.frontier.priority import PRIORITY_DEFAULT
from outrider.frontier.verbs.arrivals import pieces_of
from outrider.journey import Code, Link, RobotsAnswer, Verdict, Word
from outrider.limits import (
    FILES_REVISITED_MAX,
    REDIRECT_HOPS_MAX,
    SITEMAP_INDEXES_MAX,
    SITEMAPS_FILE_BYTES_MAX,
    SITEMAPS_NAMED_BYTES_MAX,
    SITEMAPS_PER_AUTHORITY_MAX,
    SITEMAPS_PER_CRAWL_BYTES_MAX,
    SITEMAPS_PER_CRAWL_MAX,
    URL_BYTES_MAX,
)
from outrider.page import SitemapEntry, in_location, read_sitemap
from outrider.robots import Rules
from outrider.storage.files import Files, append_synced, read_whole
from outrider.url import authority_of, clock_host, join

SITEMAPS_FILE: Final = "sitemaps.jsonl"
_AROUND: Final = " \t<>\"',;\ufeff"
_BLANKS: Final = re.compile(r"[\s<>]++")
_COMMAS: Final = re.compile(r"(?<![,;])[,;]++(?=https?:|/)", re.IGNORECASE)
_LISTED: Final = re.compile(r"[,;]\s")
_BEGINS: Final = re.compile(r"https?:|/|[^/.]+\.[^/]+/", re.IGNORECASE)
_HOST: Final = re.compile(r"(?:[\w-]+\.)+([^\W\d_]{2,}|xn--[\w-]+)\.?(?::[0-9]{1,5})?")
_FILES: Final = frozenset(
    {"asp", "aspx", "atom", "cgi", "gz", "htm", "html", "json", "jsp", "php", "rss", "shtml", "txt", "xml", "zip"}
)
"""Extensions of file names, which are not hosts."""
_MARK: Final = b"site"  # a robots.txt without it has no line for a sitemap
UNREADABLE: Final = "sitemap_unreadable"  # not a sitemap: HTML, broken XML, a text without URLs
NESTED: Final = "sitemap_nested"  # an index below more indexes than are followed
ABOVE_LINKS: Final = 0.5625  # one class above links without a priority: the lowest that a page of a sitemap gets
CHANGE_SECONDS: Final = {
    "always": 3_600.0,
    "hourly": 3_600.0,
    "daily": 86_400.0,
    "weekly": 7 * 86_400.0,
    "monthly": 30 * 86_400.0,
    "yearly": 365 * 86_400.0,
    "never": 10 * 365 * 86_400.0,
}
"""How long a page stays the same, by its `changefreq`."""
WELL_KNOWN: Final = "/sitemap.xml"
REDIRECT: Final = "sitemap_redirect"  # to a place where this crawl requests no sitemap


class SitemapReference(msgspec.Struct, frozen=True):
    """A sitemap to request. authority: the one whose robots.txt names it. indexes: the number that led to it."""

    url: str
    authority: str
    indexes: int = 0


@dataclass(slots=True)
class SitemapContent:
    """The content of a robots.txt, sitemap or tdmrep.json, for a crawl. asked: the sitemap itself, if a crash happened
    before it was recorded. left_out: the numbers of skipped sitemaps and URLs, by reason."""

    named: list[SitemapReference] = field(default_factory=list)
    asked: SitemapReference | None = None
    links: list[Link] = field(default_factory=list)
    error: str | None = None
    problem: str | None = None
    left_out: dict[str, int] = field(default_factory=dict)
    bytes: int = 0
    """Bytes of the URLs that were read for `named`. One call queues these, in one frame or one request."""

    def leave_out(self, reason: str) -> None:
        """Counts a skipped one."""
        self.left_out[reason] = self.left_out.get(reason, 0) + 1


class Sitemaps:
    """Queues and reads the sitemaps of one crawl; used by one thread, the frontier's."""

    def __init__(self, frontier: OutputFrontier, options: CrawlOptions, files: Files | None = None) -> None:
        """files: the crawl's directory; None keeps nothing beyond this object. Raises StoreError."""
        self._frontier = frontier
        self._wanted = options.sitemaps
        self._agent = options.user_agent
        self._files = files
        self._length = 0
        self._known: dict[str, dict[str, int]] = {}  # by URL: how many indexes led to it, by authority
        self._counts: dict[str, int] = {}  # by authority
        self._total = self._bytes = 0  # sitemaps, and bytes of their URLs
        if files is not None:
            self._read(files)
        if options.revisit_rule is not None and self._known:
            self._read_again()

    def _read(self, files: Files) -> None:
        try:
            content = read_whole(files, SITEMAPS_FILE, bytes_max=SITEMAPS_FILE_BYTES_MAX)
        except FileNotFoundError:
            return
        for line in content.split(b"\n")[:-1]:
            try:
                self._remember(msgspec.json.decode(line, type=SitemapReference))
            except msgspec.DecodeError:
                break  # a torn write: what follows was never synced
            self._length += len(line) + 1

    def _read_again(self) -> None:
        """Queues the sitemaps of earlier runs that are not queued, so that a revisit rule plans them."""
        known = list(islice(self._known, FILES_REVISITED_MAX))
        for first, last in pieces_of(np.array([len(url) for url in known], np.int64), SITEMAPS_NAMED_BYTES_MAX):
            self._frontier.queue_errands("sitemap", known[first:last])

    def _remember(self, one: SitemapReference) -> None:
        self._known.setdefault(one.url, {})[one.authority] = one.indexes
        self._counts[one.authority] = self._counts.get(one.authority, 0) + 1
        self._total += 1
        self._bytes += len(one.url)

    # -- from a robots.txt --------------------------------------------------------------------------------------------

    def of_robots(self, url: str, authority: str, answer: RobotsAnswer | None) -> SitemapContent:
        """Yields the sitemaps of the robots.txt at `url` for an authority; the well-known one if it names none."""
        found = SitemapContent()
        if not self._wanted or answer is None or answer.status is None or not 200 <= answer.status < 300:
            return found
        rules = Rules.parse(answer.body)
        named = rules.sitemaps if _MARK in answer.body.lower() else []
        if not named and rules.records:
            # A site that keeps a robots.txt may have a sitemap where most sites have it.
            named = [authority + WELL_KNOWN]
        for text in (reference for line in named for reference in references(line, url)):
            target = _joined(url, text)
            if target is None:
                found.leave_out("invalid")
            else:
                self._take(
                    found, SitemapReference(target, authority), rules if authority_of(target) == authority else None
                )
        return found

    def _take(self, found: SitemapContent, one: SitemapReference, rules: Rules | None = None) -> None:
        """Adds a sitemap if it is new, within the limits, and robots.txt allows it. rules: of its robots.txt;
        None: those of the frontier."""
        if one.authority in self._known.get(one.url, {}):
            return
        count = self._counts.get(one.authority, 0) + len(found.named)
        few = count < SITEMAPS_PER_AUTHORITY_MAX and self._total + len(found.named) < SITEMAPS_PER_CRAWL_MAX
        size = found.bytes + len(one.url)
        if not few or size > min(SITEMAPS_NAMED_BYTES_MAX, SITEMAPS_PER_CRAWL_BYTES_MAX - self._bytes):
            found.leave_out("limit")
            return
        found.bytes = size  # refused ones count too: a verdict on a long URL needs some 10 ms with bad rules
        if (reason := self._refused(one.url, rules)) is not None:
            found.leave_out(reason)
        else:
            found.named.append(one)

    def _refused(self, url: str, rules: Rules | None = None) -> str | None:
        """Returns why a sitemap is not requested. The robots.txt of an authority is read because of its pages: if it
        was not read, it has no page in the scope of this crawl."""
        if rules is not None:
            return None if rules.allowed(self._agent, url) else "robots"
        (allowed,) = self._frontier.robots_allow([url])
        return "scope" if allowed is None else None if allowed else "robots"

    def queue(self, finds: Sequence[SitemapContent]) -> None:
        """Queues the sitemaps that these answers named, and remembers them durably, all together; the same call again
        changes nothing. Raises StoreError."""
        for first, last in pieces_of(np.array([found.bytes for found in finds], np.int64), SITEMAPS_NAMED_BYTES_MAX):
            self._queue(finds[first:last])

    def _queue(self, finds: Sequence[SitemapContent]) -> None:
        known = self._known
        asked = [found.asked for found in finds if found.asked is not None and found.asked.url not in known]
        queued = {(one.url, one.authority): one for one in asked}
        new = {
            (one.url, one.authority): (one, found)
            for found in finds
            for one in found.named
            if one.authority not in known.get(one.url, {})
        }
        codes = self._frontier.queue_errands("sitemap", [url for url, _ in new]) if new else []
        for (one, found), code in zip(new.values(), codes, strict=True):
            if code in (Code.NEW, Code.KNOWN):
                queued[one.url, one.authority] = one
            else:
                found.leave_out("limit")
        self._write(queued.values())
        for one in queued.values():
            self._remember(one)
        for found in finds:
            found.named, found.asked = [], None

    def _write(self, queued: Collection[SitemapReference]) -> None:
        if self._files is None or not queued:
            return
        lines = b"".join(msgspec.json.encode(one) + b"\n" for one in queued)
        self._length = append_synced(self._files, SITEMAPS_FILE, self._length, lines)

    # -- from a sitemap -----------------------------------------------------------------------------------------------

    def of_sitemap(
        self, visit: Visit, judgement: Judgement, *, is_same: bool = False
    ) -> tuple[Judgement, SitemapContent]:
        """The meaning of a visit to a sitemap: what it names, and its judgement with that in mind. is_same: it has the
        content of its last visit, so it is not read again."""
        lease, response = visit.lease, visit.response
        found = SitemapContent()
        queued_as = lease.referrer if lease.referrer is not None else lease.url
        if queued_as not in self._known:
            found.asked = SitemapReference(queued_as, authority_of(queued_as))
        if judgement.location is not None:
            reason = self._refused(judgement.location)
            if reason is not None or lease.hops >= REDIRECT_HOPS_MAX:
                return Judgement(Word.GONE, Verdict.GONE, REDIRECT), found
        if is_same or judgement.verdict is not Verdict.DONE or judgement.location is not None or response is None:
            return judgement, found
        own = authority_of(lease.url)
        speaks_for = self._known.get(queued_as) or {authority_of(queued_as): 0}
        sitemap = read_sitemap(response.content, lease.url)
        found.problem = sitemap.problems[0] if sitemap.problems else None
        if sitemap.kind == "error":
            return Judgement(Word.ERROR, Verdict.GONE, UNREADABLE), found
        for entry in sitemap.entries:
            inside = entry.within or in_location(queued_as, entry.url) or authority_of(entry.url) in speaks_for
            if inside:
                found.links.append(link_of(entry))
            else:
                found.leave_out("location")
        for child in sitemap.children if self._wanted else ():
            of = authority_of(child.url)
            for authority, indexes in speaks_for.items():
                if indexes >= SITEMAP_INDEXES_MAX:
                    judgement = Judgement(Word.ERROR, Verdict.GONE, NESTED)
                elif of not in (authority, own):
                    # Otherwise an index could name sitemaps anywhere, on a host that did not announce it.
                    found.leave_out("location")
                else:
                    self._take(found, SitemapReference(child.url, authority, indexes + 1))
        return judgement, found


def references(line: str, url: str) -> list[str]:
    """Returns the sitemaps in a line of the robots.txt at `url`, as references relative to that.

    A line has the URL of one (sitemaps.org, "Submitting your Sitemap"). Some people write several, put them into
    brackets or quotation marks, or omit the scheme: a reference that begins with a host leads to that host, not to a
    folder.
    """
    pieces = [piece for part in _BLANKS.split(line) for piece in _COMMAS.split(part.strip(_AROUND))]
    parts = [part for part in (piece.strip(_AROUND) for piece in pieces) if part]
    if not (_LISTED.search(line) or all(map(_BEGINS.match, parts[1:]))):
        parts = [line.strip(_AROUND)]  # a blank within a URL
    own = authority_of(url).partition("://")[2]
    return [f"//{part}" if _begins_with_host(part, own) else part for part in parts]


def _begins_with_host(reference: str, own: str) -> bool:
    """Whether a reference without a scheme begins with a host. own: that of the robots.txt, with its port."""
    place, slash, _ = reference.partition("/")
    name = place.lower().removeprefix("www.")
    if name in (own.removeprefix("www."), clock_host(f"http://{own}/").removeprefix("www.")):
        return True
    host = _HOST.fullmatch(place)
    return bool(slash) and host is not None and host[1].lower() not in _FILES


def _joined(url: str, text: str) -> str | None:
    try:
        target = join(url, text)
    except InvalidUrlError:
        return None
    return target if len(target) <= URL_BYTES_MAX else None


def link_of(entry: SitemapEntry) -> Link:
    """Returns the link of an entry; the entry's changes are in the metadata of the page's lease."""
    said = {"lastmod": entry.lastmod, "changefreq": entry.changefreq}
    told = {name: value for name, value in said.items() if value is not None}
    said_priority = entry.priority if entry.priority is not None else PRIORITY_DEFAULT
    return Link(
        entry.url,
        priority=ABOVE_LINKS + (1.0 - ABOVE_LINKS) * said_priority,
        metadata=told or None,
        modified=entry.lastmod if entry.unread_date is None else entry.unread_date,
        change_seconds=CHANGE_SECONDS.get(entry.changefreq or ""),
    )
