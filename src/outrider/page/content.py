"""The content of a page: links in columns, which are made once they are looked at, title, directives, text."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from outrider.errors import SelectorError
from outrider.kernels.page_columns import KINDS, LEADING, UNFOLLOWED, Alternates, leads_nowhere
from outrider.page.image import Image
from outrider.page.link_header import HeaderLink, header_links, refresh_of
from outrider.page.selecting import Source
from outrider.url import UrlBatch

if TYPE_CHECKING:
    from parsel import Selector, SelectorList

FOLLOWABLE = frozenset(KINDS[:LEADING])
"""The elements whose links lead to pages; those of link, img, script, source and form are recorded only."""
FEED_TYPES = frozenset({"application/rss+xml", "application/atom+xml", "application/feed+json"})

Uint8s = npt.NDArray[np.uint8]
Uint32s = npt.NDArray[np.uint32]


class PageLink(msgspec.Struct, frozen=True, gc=False):
    """A link of a page: the canonical absolute URL, the name of its element, its rel in lower case,
    and its text: the words of an a, the alt of an area or img, the title of a link, up to `LINK_TEXT_BYTES_MAX`."""

    url: str
    kind: str
    rel: str = ""
    text: str = ""


class Alternate(msgspec.Struct, frozen=True, gc=False):
    """The same page in another language or form: a link with rel=alternate."""

    url: str
    hreflang: str = ""
    type: str = ""


class LinkColumns(NamedTuple):
    """The links of a page in columns, in order of appearance."""

    urls: UrlBatch
    """Canonical and absolute, doubles included; all rows are valid."""
    codes: Uint8s
    """The kind of each, as its number in `outrider.kernels.page_columns.KINDS`."""
    rel_codes: Uint32s
    """The rel of each, as its number in `rel_names`."""
    rel_names: list[str]
    texts: tuple[bytes, Uint32s, Uint32s]
    """An arena, and where the text of each begins and ends."""
    alternates: Alternates


class FoundLinks:
    """The links of a page in columns, in order of appearance; as objects on first use."""

    __slots__ = ("_columns", "_count", "_made", "_make")

    def __init__(
        self,
        urls: UrlBatch,
        codes: Uint8s,
        rel_codes: Uint32s,
        rel_names: list[str],
        texts: tuple[bytes, Uint32s, Uint32s],
        alternates: Alternates,
    ) -> None:
        self._columns: LinkColumns | None = LinkColumns(urls, codes, rel_codes, rel_names, texts, alternates)
        self._count = len(codes)
        self._make: Callable[[], LinkColumns] | None = None
        self._made: tuple[PageLink, ...] | None = None

    @classmethod
    def later(cls, count: int, make: Callable[[], LinkColumns]) -> FoundLinks:
        """Makes this number of links; their columns are made on first use."""
        links = cls.__new__(cls)
        links._columns, links._count, links._make, links._made = None, count, make, None
        return links

    @property
    def columns(self) -> LinkColumns:
        """All of them."""
        if self._columns is None:
            make = self._make
            assert make is not None, "they are made, or can be"
            self._columns = make()
            self._make = None
        return self._columns

    @property
    def urls(self) -> UrlBatch:
        """Canonical and absolute, doubles included; all rows are valid."""
        return self.columns.urls

    @property
    def codes(self) -> Uint8s:
        """The kind of each, as its number in `outrider.kernels.page_columns.KINDS`."""
        return self.columns.codes

    @property
    def rel_codes(self) -> Uint32s:
        """The rel of each, as its number in `rel_names`."""
        return self.columns.rel_codes

    @property
    def rel_names(self) -> list[str]:
        """The rels, each once."""
        return self.columns.rel_names

    def __len__(self) -> int:
        return self._count

    @property
    def kinds(self) -> list[str]:
        """The name of the element of each."""
        return [KINDS[code] for code in self.codes.tolist()]

    @property
    def rels(self) -> list[str]:
        """The rel of each, in lower case, words parted by one blank."""
        return [self.rel_names[code] for code in self.rel_codes.tolist()]

    @property
    def texts(self) -> list[str]:
        """The text of each."""
        octets, starts, ends = self.columns.texts
        spans = zip(starts.tolist(), ends.tolist(), strict=True)
        return [octets[start:end].decode() if start < end else "" for start, end in spans]

    def links(self) -> tuple[PageLink, ...]:
        if self._made is None:
            self._made = tuple(map(PageLink, self.urls.strings(), self.kinds, self.rels, self.texts))
        return self._made

    def alternates(self) -> tuple[Alternate, ...]:
        return tuple(Alternate(self.urls[row], hreflang, kind) for row, hreflang, kind in self.columns.alternates)

    def with_rel(self, *words: str) -> npt.NDArray[np.bool_] | None:
        """Returns whether the rel of each has one of these words; None if no rel has."""
        apart = set(words).isdisjoint
        having = [not apart(name.split(" ")) for name in self.rel_names]
        return np.array(having, np.bool_)[self.rel_codes] if True in having else None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FoundLinks):
            return NotImplemented
        mine, others = ((one.urls, one.kinds, one.rels, one.texts) for one in (self, other))
        return mine == others

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<FoundLinks: {len(self)}>"

    @classmethod
    def of(cls, urls: UrlBatch) -> FoundLinks:
        """Links of a elements with these URLs, without rel or text."""
        zeros = np.zeros(len(urls), np.uint32)
        return cls(urls, zeros.astype(np.uint8), zeros, [""], (b"", zeros, zeros), [])


NO_LINKS: Final = FoundLinks.of(UrlBatch.of(()))


@dataclass(frozen=True, slots=True)
class Page:
    """The content of a page."""

    url: str
    """Where it was fetched from."""
    found: FoundLinks = field(default_factory=lambda: NO_LINKS, hash=False)
    """Its first links in columns: at most `LINKS_PER_PAGE_MAX` URLs of pages and the same number of others, and of each
    sort `LINKS_PER_PAGE_BYTES_MAX`, the page's own URL counted with every one. Links that repeat a URL use no part of
    that room, and have the same room again."""
    left_out: int = 0
    """The number of links above those limits; links that repeat a kept URL are not counted."""
    base: str = ""
    """The base of relative links."""
    canonical: str | None = None
    """The canonical URL of rel=canonical."""
    title: str = ""
    description: str = ""
    charset: str = "utf-8"
    """A label of the WHATWG Encoding Standard, in lower case."""
    language: str | None = None
    """The language tag the page declares."""
    robots: frozenset[str] = frozenset()
    """The directives of its robots metas, in lower case."""
    refresh: tuple[int, str] | None = None
    """(seconds, absolute URL) of its answer's `Refresh` field, or of its meta refresh."""
    octets: bytes = b""
    """Its visible text in UTF-8, at most `TEXT_BYTES_MAX`: words parted by one blank, blocks by a line feed."""
    simhash: int = 0
    """64 bits over the shingles of `text`, three words each; 0 without shingles."""
    shingles: int = 0
    """How many different shingles it has; with fewer than `SHINGLES_MIN` its SimHash says little."""
    text_digest: int = 0
    """64 bits over its text, to detect changes: without words with digits, and without blocks of fewer than
    `BLOCK_WORDS_MIN` words if it has longer ones; 0 without words."""
    image: Image | None = None
    """The properties of an image from its bytes: type, width and height."""
    header_links: tuple[HeaderLink, ...] = ()
    """The links that the `Link` fields of its answer name: recorded, not followed."""
    refreshed_to: str | None = None
    """The URL that the `Refresh` field of its answer names: followed, as that of a meta refresh."""

    source: Source | None = field(default=None, repr=False, compare=False)
    """Its body, where `read` read it."""

    @property
    def html(self) -> str:
        """The decoded body of a page that `read` read. Raises SelectorError for another one."""
        return self._read_from().html

    def css(self, selector: str) -> SelectorList[Selector]:
        """The elements that a CSS selector matches, as parsel's selectors. Raises SelectorError."""
        return self._read_from().css(selector)

    def xpath(self, expression: str, **variables: Any) -> SelectorList[Selector]:
        """The nodes that an XPath expression selects, as parsel's selectors. Raises SelectorError."""
        return self._read_from().xpath(expression, **variables)

    def _read_from(self) -> Source:
        if self.source is None:
            raise SelectorError(f"{self.url} is here without its body; use the page that the crawl passes to on_page")
        return self.source

    @property
    def text(self) -> str:
        """Its visible text: words parted by one blank, blocks by a line feed."""
        return self.octets.decode("utf-8", "replace")

    @property
    def links(self) -> tuple[PageLink, ...]:
        """In order of appearance, doubles included; those of the answer's head last, as kind `link`, and `meta` for its
        `Refresh`."""
        found = self.found.links()
        if self.header_links:
            found = (*found, *(PageLink(one.url, "link", one.rel, one.title) for one in self.header_links))
        return found if self.refreshed_to is None else (*found, PageLink(self.refreshed_to, "meta"))

    @property
    def alternates(self) -> tuple[Alternate, ...]:
        """Its links with rel=alternate: other languages (`hreflang`), other forms (`type`)."""
        named = (one for one in self.header_links if "alternate" in one.rel.split())
        return (*self.found.alternates(), *(Alternate(one.url, one.hreflang, one.type) for one in named))

    @property
    def feeds(self) -> tuple[str, ...]:
        """The URLs of its feeds: alternates whose type is that of RSS or Atom."""
        return tuple(one.url for one in self.alternates if one.type.partition(";")[0].strip().lower() in FEED_TYPES)

    def with_header(self, values: Iterable[str], refresh: str | None = None) -> Page:
        """The page with the links of its answer's `Link` fields, and that of `Refresh`. A canonical URL that the page
        names itself counts more; of two refreshes that of the head does, which a browser meets first."""
        links = header_links(values, self.url)
        target = refresh_of(refresh, self.url) if refresh is not None else None
        if not links and target is None:
            return self
        canonical = self.canonical
        if canonical is None:
            canonical = next((one.url for one in links if "canonical" in one.rel.split()), None)
        return replace(
            self,
            header_links=links,
            canonical=canonical,
            refresh=self.refresh if target is None else target,
            refreshed_to=None if target is None else target[1],
        )

    def forget_links(self) -> None:
        """Frees the memory of its links after use: in place, because another page would cost 4 µs."""
        object.__setattr__(self, "found", NO_LINKS)

    def link_batch(self, *, nofollow_too: bool = False) -> UrlBatch:
        """Returns the URLs that a crawler follows: unique, in order, of `Refresh`, a, area, frame, iframe and meta
        refresh.

        Not those with rel=nofollow, ugc or sponsored, and no URL at all if a robots meta says nofollow or none, unless
        `nofollow_too`.
        """
        found = self.found
        if not nofollow_too and leads_nowhere(self.robots):
            return NO_LINKS.urls
        if not len(found):
            return self.with_refresh(NO_LINKS.urls)
        wanted = found.codes < LEADING
        refused = None if nofollow_too else found.with_rel(*UNFOLLOWED)
        return self.with_refresh(found.urls.unique(wanted if refused is None else wanted & ~refused))

    def with_refresh(self, followed: UrlBatch) -> UrlBatch:
        """The links that are followed with the target of the `Refresh` field before them."""
        if self.refreshed_to is None or self.refreshed_to in followed.strings():
            return followed
        return UrlBatch.concatenate([UrlBatch.of([self.refreshed_to]), followed])

    def left_alone(self, followed: int) -> int:
        """Returns the number of URLs that a crawler ignores because of nofollow, ugc or sponsored."""
        found = self.found
        if not leads_nowhere(self.robots) and found.with_rel(*UNFOLLOWED) is None:
            return 0
        return max(0, len(found.urls.unique(found.codes < LEADING)) - followed)

    def followed(self, *, nofollow_too: bool = False) -> list[str]:
        """The same as strings."""
        return self.link_batch(nofollow_too=nofollow_too).strings()
