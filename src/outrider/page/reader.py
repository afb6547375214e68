"""Reads pages: links, base, title, directives, text and its SimHash. Any bytes are read; nothing raises.

Many are read at once, in one call of a kernel, and the followed links of all remain one batch. Links are
resolved and spelled canonically, and remain columns until a caller needs strings. Only http and https count. Links in
comments and scripts are ignored. Links in noscript count, because no script is run here, and so do those in template,
whose content scripts put into pages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Final, NamedTuple

import numpy as np

from outrider import kernels
from outrider.kernels.page_columns import (
    ALL,
    AS_SAID,
    HTML,
    NONE,
    TEXT,
    XHTML,
    Given,
    Limits,
    PagesLimits,
    Values,
    leads_nowhere,
)
from outrider.limits import (
    ATTRIBUTES_PER_TAG_MAX,
    BASE_CHARACTERS_MAX,
    DESCRIPTION_CHARACTERS_MAX,
    DIRECTIVE_CHARACTERS_MAX,
    DIRECTIVES_PER_PAGE_MAX,
    LINK_TEXT_BYTES_MAX,
    LINKS_PER_PAGE_BYTES_MAX,
    LINKS_PER_PAGE_MAX,
    LINKS_SPELLED_BYTES_STEP,
    METAS_PER_PAGE_MAX,
    PAGE_VALUE_BYTES_MAX,
    TEXT_BYTES_MAX,
    TITLE_CHARACTERS_MAX,
    URL_BYTES_MAX,
    WORDS_PER_PAGE_MAX,
)
from outrider.page.content import NO_LINKS, FoundLinks, LinkColumns, Page
from outrider.page.full_parser import read_fully, room_of, within
from outrider.page.image import image_of
from outrider.page.likeness import BLOCK_WORDS_MIN, LIKENESS_KEY
from outrider.page.media_type import XHTML_TYPE, is_feed, media_type, root_of
from outrider.page.selecting import Source
from outrider.page.sitemap_reader import read_sitemap
from outrider.sniffing import ContentType, declared_type
from outrider.url import UrlBatch

LIMITS = Limits(
    LINKS_PER_PAGE_MAX,
    TEXT_BYTES_MAX,
    LINK_TEXT_BYTES_MAX,
    METAS_PER_PAGE_MAX,
    ATTRIBUTES_PER_TAG_MAX,
    PAGE_VALUE_BYTES_MAX,
)
PAGES_LIMITS = PagesLimits(
    LIMITS,
    BASE_CHARACTERS_MAX,
    LINKS_PER_PAGE_BYTES_MAX,
    LINKS_SPELLED_BYTES_STEP,
    URL_BYTES_MAX,
    TITLE_CHARACTERS_MAX,
    DESCRIPTION_CHARACTERS_MAX,
    DIRECTIVES_PER_PAGE_MAX,
    DIRECTIVE_CHARACTERS_MAX,
    WORDS_PER_PAGE_MAX,
    BLOCK_WORDS_MIN,
)


class Unread(NamedTuple):
    """A body that was fetched, before it is read."""

    body: bytes
    url: str
    """The absolute URL it was fetched from."""
    content_type: str = "text/html"
    """Its Content-Type header, several fields joined by a comma."""
    follow_nofollow: bool = False
    """Whether links are followed that the page, or their rel, says not to follow."""
    robots: frozenset[str] = frozenset()
    """Directives in its header fields. They forbid its links as its own do, and do not become its own."""


class ReadPages:
    """Pages that were read together, and their followed links."""

    __slots__ = ("_kernel", "_key", "_links", "_others", "bounds", "left_alone", "pages")

    def __init__(
        self,
        pages: list[Page],
        bounds: list[int],
        left_alone: list[int],
        kernel: kernels.PagesRead,
        others: dict[int, UrlBatch],
        key: bytes | None,
    ) -> None:
        self.pages = pages
        """In the order that they were given in."""
        self.bounds = bounds
        """The links of page i are `links[bounds[i]:bounds[i + 1]]`."""
        self.left_alone = left_alone
        """How many different URLs of each page a crawler leaves alone for nofollow, ugc or sponsored."""
        self._kernel = kernel
        self._others = others
        self._key = key
        self._links: UrlBatch | None = None

    @property
    def links(self) -> UrlBatch:
        """The links of `Page.link_batch` for each page, one after the other; with fingerprints where there is a key."""
        if self._links is None:
            self._links = self._joined(UrlBatch.of_columns(*self._kernel.followed(), key=self._key))
        return self._links

    def _joined(self, followed: UrlBatch) -> UrlBatch:
        """With the links of pages that the kernel did not read, each at its place."""
        parts: list[UrlBatch] = []
        taken = others = 0  # rows of the kernel, and of pages that it did not read
        for place, batch in self._others.items():
            before = self.bounds[place] - others
            if self._key is not None:
                batch.fingerprints(self._key)
                batch.host_fingerprints(self._key)
            parts += [followed[taken:before], batch]
            taken, others = before, others + len(batch)
        parts.append(followed[taken:])
        return UrlBatch.concatenate([part for part in parts if len(part)]) if others else followed


def read(body: bytes, url: str, content_type: str = "text/html", *, agent: str | None = None) -> Page:
    """Returns the content of a body fetched from the absolute `url`, by its Content-Type header.

    text/html and application/xhtml+xml are parsed, and so are XHTML and SVG by any name of XML; text/plain has text and
    SimHash. RSS, Atom and sitemaps have their links, images their size; any other type has only its URL.
    The last of several types counts. Without a known type the first bytes decide. `agent` is the
    crawler's product token: a meta of that name counts as one named robots.
    """
    page = read_many([Unread(body, url, content_type)], agent=agent).pages[0]
    return replace(page, source=Source(body, url, content_type, page.charset))


def read_many(unread: Sequence[Unread], *, agent: str | None = None, key: bytes | None = None) -> ReadPages:
    """As `read` for many bodies, in one call of a kernel that releases the GIL once, with the followed links.

    With a `key` of 16 bytes the same call computes the fingerprints of those links. Raises ValueError for a key of
    another size.
    """
    agent = agent.lower() if agent else None
    types = [_type_of(one) for one in unread]
    given: list[Given] = []
    for one, (essence, label) in zip(unread, types, strict=True):
        if essence in PARSED:
            follow = ALL if one.follow_nofollow else NONE if leads_nowhere(one.robots) else AS_SAID
            given.append((one.body, one.url, label, PARSED[essence], follow))
    kernel = kernels.read_pages(given, PAGES_LIMITS, LIKENESS_KEY, agent, key)
    values = enumerate(kernel.values())
    pages: list[Page] = []
    followed: list[int] = []
    left_alone: list[int] = []
    others: dict[int, UrlBatch] = {}
    for place, (one, told) in enumerate(zip(unread, types, strict=True)):
        number, said = next(values) if told.essence in PARSED else (0, None)
        if said is not None:
            pages.append(_page(one.url, said, kernel, number))
            followed.append(said[14])
            left_alone.append(said[15])
            continue
        page = _read_alone(one, told, agent)
        batch, refused = followed_of(page, one)
        if len(batch):
            others[place] = batch
        pages.append(page)
        followed.append(len(batch))
        left_alone.append(refused)
    return ReadPages(pages, [0, *accumulate(followed)], left_alone, kernel, others, key)


def followed_of(page: Page, unread: Unread) -> tuple[UrlBatch, int]:
    """Returns the followed links of a page, and the number of ignored ones; for a page that no kernel read."""
    told = replace(page, robots=page.robots | unread.robots) if unread.robots else page
    links = told.link_batch(nofollow_too=unread.follow_nofollow)[:LINKS_PER_PAGE_MAX]
    return links, 0 if unread.follow_nofollow else told.left_alone(len(links))


def _type_of(one: Unread) -> ContentType:
    """Returns the media type for reading a body: pages and drawings have all names of XML."""
    found = declared_type(one.content_type)
    if found.essence in PARSED:
        return found if found.essence != HTML_TYPE or not is_feed(one.body) else ContentType(FEEDS[0], found.label)
    found = media_type(one.body, one.content_type)
    essence, label = found
    if essence in FEEDS or not (essence in _XML or essence.endswith("+xml")):
        return found
    root = root_of(one.body)
    return ContentType(XHTML_TYPE, label) if root in {"html", "svg"} else found


def _page(url: str, said: Values, kernel: kernels.PagesRead, number: int) -> Page:
    charset, title, description, language, robots, refresh, base, canonical, left_out, text, *likeness = said
    simhash, shingles, digest, links, _, _ = likeness
    return Page(
        url=url,
        found=FoundLinks.later(links, partial(_link_columns, kernel, number)) if links else NO_LINKS,
        left_out=left_out,
        base=url if base is None else base,
        canonical=canonical,
        title=title,
        description=description,
        charset=charset,
        language=language,
        robots=frozenset(robots),
        refresh=refresh,
        octets=text,
        simhash=simhash,
        shingles=shingles,
        text_digest=digest,
    )


def _link_columns(kernel: kernels.PagesRead, number: int) -> LinkColumns:
    arena, offsets, flags, host_lengths, path_starts, codes, rels, names, texts, starts, ends, named = kernel.links(
        number
    )
    urls = UrlBatch.of_columns(arena, offsets, flags, host_lengths, path_starts)
    places = (np.frombuffer(starts, "<u4"), np.frombuffer(ends, "<u4"))
    return LinkColumns(urls, np.frombuffer(codes, np.uint8), np.frombuffer(rels, "<u4"), names, (texts, *places), named)


def _read_alone(one: Unread, told: ContentType, agent: str | None) -> Page:
    essence, label = told
    if essence in PARSED:
        return read_fully(one.body, one.url, label, PARSED[essence] == XHTML, PAGES_LIMITS, agent)
    reader = READERS.get(essence) or READERS.get(essence.partition("/")[0] + "/*")
    return Page(url=one.url, base=one.url) if reader is None else reader(one.body, one.url)


def _read_image(body: bytes, url: str) -> Page:
    return Page(url=url, base=url, image=image_of(body))


def _read_feed(body: bytes, url: str) -> Page:
    """A feed or sitemap that a link led to: the pages that it names are links as those of any page."""
    named = read_sitemap(body, url)
    urls = UrlBatch.of([entry.url for entry in (*named.entries, *named.children)[:LINKS_PER_PAGE_MAX]])
    if not len(urls):
        return Page(url=url, base=url)
    room = room_of(url, PAGES_LIMITS)
    found = FoundLinks.of(urls.filter(within([True] * len(urls), urls, room)))
    behind = len(named.entries) + len(named.children) - len(urls)
    return Page(url=url, base=url, found=found, left_out=behind + room.left_out)


HTML_TYPE: Final = "text/html"
PARSED: Final[Mapping[str, int]] = {HTML_TYPE: HTML, XHTML_TYPE: XHTML, "text/plain": TEXT}
"""The media types whose bodies the kernel reads, and how."""
FEEDS: Final = ("application/rss+xml", "application/atom+xml", "application/rdf+xml")
"""The media types of feeds alone."""
_XML: Final = ("application/xml", "text/xml")
READERS: Final[Mapping[str, Callable[[bytes, str], Page]]] = {
    **dict.fromkeys((*FEEDS, *_XML), _read_feed),
    "image/*": _read_image,
}
"""The readers of other media types: functions of body and URL. None of them raises; each is bounded in text and links,
and linear in the bytes."""
