"""Reads a page: links, base, title, directives, text and its SimHash. Any bytes are read; nothing raises.

Links are resolved and spelled canonically in one batch per page, and stay columns until a caller asks for strings. Only
http and https count. Comments and scripts hold no links; noscript does, since no script is run here, and so does
template, whose content scripts put into pages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from outrider import kernels
from outrider.kernels.page_columns import KINDS, LEADING, Alternates, Limits
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
)
from outrider.page.image import Image, image_of
from outrider.page.likeness import simhash_of_text, text_digest
from outrider.page.link_header import HeaderLink, header_links
from outrider.page.sitemap import read_sitemap
from outrider.url import UrlBatch, spell

FOLLOWABLE = frozenset(KINDS[:LEADING])
"""The elements whose links lead to pages; those of link, img, script, source and form are recorded only."""
UNFOLLOWED = ("nofollow", "ugc", "sponsored")
"""The rels of links that a page does not vouch for: they are recorded only."""
FEED_TYPES = frozenset({"application/rss+xml", "application/atom+xml", "application/feed+json"})
LIMITS = Limits(
    LINKS_PER_PAGE_MAX,
    TEXT_BYTES_MAX,
    LINK_TEXT_BYTES_MAX,
    METAS_PER_PAGE_MAX,
    ATTRIBUTES_PER_TAG_MAX,
    PAGE_VALUE_BYTES_MAX,
)
_PARAMETER = re.compile(r""";\s*([^\s;=,"']+)\s*=\s*(?:"([^"]*)"|'([^']*)'|["']?([^\s"';,]*))""")
_LABEL_CHARACTERS_MAX = 40  # encodings: the longest has 19
_LANGUAGE = re.compile(r"[A-Za-z]{1,8}(?:-[A-Za-z0-9]{1,8}){0,8}")

Int64s = npt.NDArray[np.int64]
Uint8s = npt.NDArray[np.uint8]
Uint32s = npt.NDArray[np.uint32]


class PageLink(msgspec.Struct, frozen=True, gc=False):
    """A link of a page: the canonical absolute URL, the name of the element it stands in, its rel in lower case,
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


class FoundLinks:
    """The links of a page in columns, in order of appearance; as objects once they are asked for."""

    __slots__ = (
        "_alternates",
        "_made",
        "_text_ends",
        "_text_starts",
        "_texts",
        "_words",
        "codes",
        "rel_codes",
        "rel_names",
        "urls",
    )

    def __init__(
        self,
        urls: UrlBatch,
        codes: Uint8s,
        rel_codes: Uint32s,
        rel_names: list[str],
        texts: tuple[bytes, Uint32s, Uint32s],
        alternates: Alternates,
    ) -> None:
        self.urls = urls
        """Canonical and absolute, doubles included; all rows are valid."""
        self.codes = codes
        """The kind of each, as its number in `outrider.kernels.page_columns.KINDS`."""
        self.rel_codes = rel_codes
        """The rel of each, as its number in `rel_names`."""
        self.rel_names = rel_names
        self._texts, self._text_starts, self._text_ends = texts
        self._alternates = alternates
        self._words = [name.split(" ") for name in rel_names]
        self._made: tuple[PageLink, ...] | None = None

    def __len__(self) -> int:
        return len(self.codes)

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
        octets = self._texts
        spans = zip(self._text_starts.tolist(), self._text_ends.tolist(), strict=True)
        return [octets[start:end].decode() if start < end else "" for start, end in spans]

    def links(self) -> tuple[PageLink, ...]:
        if self._made is None:
            self._made = tuple(map(PageLink, self.urls.strings(), self.kinds, self.rels, self.texts))
        return self._made

    def alternates(self) -> tuple[Alternate, ...]:
        return tuple(Alternate(self.urls[row], hreflang, kind) for row, hreflang, kind in self._alternates)

    def with_rel(self, *words: str) -> npt.NDArray[np.bool_] | None:
        """Whether the rel of each has one of these words; None where none has."""
        apart = set(words).isdisjoint
        having = [not apart(one) for one in self._words]
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


NO_LINKS = FoundLinks.of(UrlBatch.of(()))


@dataclass(frozen=True, slots=True)
class Page:
    """The content of a page."""

    url: str
    """Where it was fetched from."""
    found: FoundLinks = field(default_factory=lambda: NO_LINKS, hash=False)
    """Its links in columns; at most `LINKS_PER_PAGE_MAX` to pages and as many others, and `LINKS_PER_PAGE_BYTES_MAX` of
    each sort, the page's own URL counted with every one: the first ones."""
    left_out: int = 0
    """How many links stood behind those bounds."""
    base: str = ""
    """What relative links were resolved against."""
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
    """(seconds, absolute URL) of its meta refresh."""
    octets: bytes = b""
    """Its visible text in UTF-8, at most `TEXT_BYTES_MAX`: words parted by one blank, blocks by a line feed."""
    simhash: int = 0
    """64 bits over the shingles of `text`, three words each; 0 when there are none."""
    shingles: int = 0
    """How many different shingles it has; with fewer than `SHINGLES_MIN` its SimHash says little."""
    text_digest: int = 0
    """64 bits over what it says, for telling changes: without words with digits, and without blocks of fewer than
    `BLOCK_WORDS_MIN` words if it has longer ones; 0 without words."""
    image: Image | None = None
    """What its bytes say it is, for an image: type, width and height."""
    header_links: tuple[HeaderLink, ...] = ()
    """The links that the `Link` fields of its answer name: recorded, not followed."""

    @property
    def text(self) -> str:
        """Its visible text: words parted by one blank, blocks by a line feed."""
        return self.octets.decode("utf-8", "replace")

    @property
    def links(self) -> tuple[PageLink, ...]:
        """In order of appearance, doubles included; those of the answer's head last, as kind `link`."""
        named = (PageLink(one.url, "link", one.rel, one.title) for one in self.header_links)
        return (*self.found.links(), *named) if self.header_links else self.found.links()

    @property
    def alternates(self) -> tuple[Alternate, ...]:
        """Its links with rel=alternate: other languages (`hreflang`), other forms (`type`)."""
        named = (one for one in self.header_links if "alternate" in one.rel.split())
        return (*self.found.alternates(), *(Alternate(one.url, one.hreflang, one.type) for one in named))

    @property
    def feeds(self) -> tuple[str, ...]:
        """The URLs of its feeds: alternates whose type is that of RSS or Atom."""
        return tuple(one.url for one in self.alternates if one.type.partition(";")[0].strip().lower() in FEED_TYPES)

    def with_header(self, values: Iterable[str]) -> Page:
        """The page with the links of its answer's `Link` fields. A canonical URL that the page names itself counts
        more."""
        links = header_links(values, self.url)
        if not links:
            return self
        named = next((one.url for one in links if "canonical" in one.rel.split()), None)
        return replace(self, header_links=links, canonical=self.canonical if self.canonical is not None else named)

    def forget_links(self) -> None:
        """Gives up the memory of its links, which whoever has taken them needs no longer."""
        object.__setattr__(self, "found", NO_LINKS)

    def link_batch(self, *, nofollow_too: bool = False) -> UrlBatch:
        """The URLs a crawler goes on to: unique, in order, of a, area, frame, iframe and meta refresh.

        Not those with rel=nofollow, ugc or sponsored, and none at all if a robots meta says nofollow or none, unless
        `nofollow_too`.
        """
        found = self.found
        if not len(found) or (not nofollow_too and ("nofollow" in self.robots or "none" in self.robots)):
            return NO_LINKS.urls
        wanted = found.codes < LEADING
        refused = None if nofollow_too else found.with_rel(*UNFOLLOWED)
        return found.urls.unique(wanted if refused is None else wanted & ~refused)

    def left_alone(self, followed: int) -> int:
        """How many URLs a crawler leaves alone for nofollow, ugc or sponsored, that follows so many."""
        found = self.found
        if self.robots.isdisjoint(("nofollow", "none")) and found.with_rel(*UNFOLLOWED) is None:
            return 0
        return max(0, len(found.urls.unique(found.codes < LEADING)) - followed)

    def followed(self, *, nofollow_too: bool = False) -> list[str]:
        """The same as strings."""
        return self.link_batch(nofollow_too=nofollow_too).strings()


def read(body: bytes, url: str, content_type: str = "text/html", *, agent: str | None = None) -> Page:
    """The content of a body fetched from the absolute `url`, by its Content-Type header.

    text/html and application/xhtml+xml are parsed, text/plain has text and SimHash. RSS, Atom and sitemaps have the
    links that they name, images their size; any other type has only its URL. An empty type counts as HTML if a tag
    comes first. `agent` is the crawler's product token: a meta of that name counts
    as one named robots.
    """
    essence = content_type.partition(";")[0].strip().lower()
    if not essence and body[:512].lstrip()[:1] == b"<":
        essence = "text/html"
    reader = READERS.get(essence) or READERS.get(essence.partition("/")[0] + "/*")
    return Page(url=url, base=url) if reader is None else reader(body, url, content_type, agent)


def _read_text(body: bytes, url: str, content_type: str, agent: str | None) -> Page:
    charset, text = kernels.decode_text(body, _label(content_type), TEXT_BYTES_MAX)
    value, shingles = simhash_of_text(text)
    told = text_digest(text)
    return Page(url=url, base=url, charset=charset, octets=text, simhash=value, shingles=shingles, text_digest=told)


def _read_image(body: bytes, url: str, content_type: str, agent: str | None) -> Page:
    return Page(url=url, base=url, image=image_of(body))


def _read_feed(body: bytes, url: str, content_type: str, agent: str | None) -> Page:
    """A feed or sitemap that a link led to: the pages that it names are links as those of any page."""
    named = read_sitemap(body, url)
    urls = UrlBatch.of([entry.url for entry in (*named.entries, *named.children)[:LINKS_PER_PAGE_MAX]])
    if not len(urls):
        return Page(url=url, base=url)
    fit = _within(np.ones(len(urls), np.bool_), urls, len(url), {True: LINKS_PER_PAGE_BYTES_MAX})
    left_out = len(named.entries) + len(named.children) - int(np.count_nonzero(fit))
    return Page(url=url, base=url, found=FoundLinks.of(urls.filter(fit)), left_out=left_out)


def _read_html(body: bytes, url: str, content_type: str, agent: str | None) -> Page:
    xml = content_type.partition(";")[0].strip().lower() == "application/xhtml+xml"
    columns = kernels.read_html(body, _label(content_type), xml, LIMITS)
    charset, metas, asked, written_base, title, language, text, behind = columns[0], *columns[10:]
    base = _base(written_base, url)
    directives = _Directives(agent)
    description = ""
    for name, content in metas:
        if name == "description":
            description = description or _one_line(content, DESCRIPTION_CHARACTERS_MAX)
        else:
            directives.take(name, content)
    found, left_out = _spelled(_Rows.of(*columns[1:10]), base, url)
    refresh: tuple[int, str] | None = None
    if asked is not None:
        seconds, address = asked
        target = spell([address], base)[0] if address else spell([url])[0]
        refresh = (seconds, target) if target is not None else None
    value, shingles = simhash_of_text(text)
    matched = _LANGUAGE.fullmatch((language or "").strip())
    return Page(
        url=url,
        found=found,
        left_out=behind + left_out,
        base=base,
        canonical=_canonical(found),
        title=_one_line(title or "", TITLE_CHARACTERS_MAX),
        description=description,
        charset=charset,
        language=matched[0] if matched is not None else None,
        robots=directives.found(),
        refresh=refresh,
        octets=text,
        simhash=value,
        shingles=shingles,
        text_digest=text_digest(text),
    )


READERS: Final[Mapping[str, Callable[[bytes, str, str, str | None], Page]]] = {
    **dict.fromkeys(("text/html", "application/xhtml+xml"), _read_html),
    "text/plain": _read_text,
    **dict.fromkeys(("application/rss+xml", "application/atom+xml", "application/xml", "text/xml"), _read_feed),
    "image/*": _read_image,
}
"""The readers by media type: functions of body, URL, Content-Type and the crawler's product token. None of them raises;
each is bounded in text and links, and linear in the bytes."""


def _base(written: str | None, url: str) -> str:
    """The document's base URL (WHATWG HTML 2.4.3): <base href> against the page's URL, if that is http or https."""
    if written is None or len(written) > BASE_CHARACTERS_MAX:
        return url
    base = spell([written], url)[0]
    return url if base is None else base


def _canonical(found: FoundLinks) -> str | None:
    """The URL of the first link with rel=canonical, if it is not too long to be one."""
    named = found.with_rel("canonical")
    if named is None:
        return None
    rows = np.flatnonzero((found.codes == KINDS.index("link")) & named)
    if not len(rows) or found.urls.lengths[rows[0]] > URL_BYTES_MAX:
        return None
    starts, ends = found.urls.texts()
    return found.urls.arena[starts[rows[0]] : ends[rows[0]]].decode()


@dataclass(frozen=True, slots=True)
class _Rows:
    """The links of a page as they are written, in columns."""

    arena: bytes
    offsets: Int64s
    codes: Uint8s
    rel_codes: Uint32s
    rel_names: list[str]
    texts: bytes
    text_starts: Uint32s
    text_ends: Uint32s
    alternates: Alternates

    @classmethod
    def of(cls, arena: bytes, offsets: bytes, kinds: bytes, rels: bytes, names: list[str], *others: Any) -> _Rows:
        texts, starts, ends, alternates = others
        return cls(
            arena,
            np.frombuffer(offsets, "<i8"),
            np.frombuffer(kinds, np.uint8),
            np.frombuffer(rels, "<u4"),
            names,
            texts,
            np.frombuffer(starts, "<u4"),
            np.frombuffer(ends, "<u4"),
            alternates,
        )

    def found(self, urls: UrlBatch, rows: npt.NDArray[np.intp] | None) -> FoundLinks:
        """The links of these rows (None: all), whose URLs are these."""
        names = self.rel_names
        if rows is None:
            texts = (self.texts, self.text_starts, self.text_ends)
            return FoundLinks(urls, self.codes, self.rel_codes, names, texts, self.alternates)
        texts = (self.texts, self.text_starts[rows], self.text_ends[rows])
        kept = dict(zip(rows.tolist(), range(len(rows)), strict=True)) if self.alternates else {}
        alternates = [(kept[row], hreflang, kind) for row, hreflang, kind in self.alternates if row in kept]
        return FoundLinks(urls, self.codes[rows], self.rel_codes[rows], names, texts, alternates)


def _spelled(written: _Rows, base: str, url: str) -> tuple[FoundLinks, int]:
    """The links that are URLs, canonical and absolute, and how many others stood behind the bounds of their sort.

    A relative link has the length of its base, too: so they are spelled piece by piece until the bounds are reached.
    """
    codes, offsets = written.codes, written.offsets
    room = {True: LINKS_PER_PAGE_BYTES_MAX, False: LINKS_PER_PAGE_BYTES_MAX}
    kept: list[npt.NDArray[np.intp]] = []
    parts: list[UrlBatch] = []
    wrong = 0
    pieces = _steps(offsets, len(base))
    for first, last in pieces:
        if len(pieces) > 1 and not any(room[leads] for leads in set((codes[first:last] < LEADING).tolist())):
            continue
        urls = UrlBatch.from_buffers(written.arena, offsets[first : last + 1], base)
        wanted = urls.valid
        wrong += len(urls) - int(np.count_nonzero(wanted))
        if len(pieces) > 1 or len(urls.arena) + len(urls) * len(url) > LINKS_PER_PAGE_BYTES_MAX:
            wanted = _within(codes[first:last] < LEADING, urls, len(url), room)
        elif wanted.all():
            return written.found(urls, None), 0
        kept.append(np.flatnonzero(wanted) + first)
        parts.append(urls.filter(wanted))
    rows = np.concatenate(kept) if kept else np.zeros(0, np.intp)
    return written.found(UrlBatch.concatenate(parts), rows), len(codes) - len(rows) - wrong


def _steps(offsets: Int64s, base_bytes: int) -> list[tuple[int, int]]:
    """First and last row of pieces that have about `LINKS_SPELLED_BYTES_STEP` once they are absolute."""
    rows = len(offsets) - 1
    whole = int(offsets[-1]) + rows * base_bytes
    if whole <= LINKS_SPELLED_BYTES_STEP:
        return [(0, rows)]
    sizes = offsets + np.arange(rows + 1) * base_bytes
    marks = np.arange(LINKS_SPELLED_BYTES_STEP, whole, LINKS_SPELLED_BYTES_STEP)
    # A piece ends with the row that fills it, and has one at least.
    bounds = np.unique(np.concatenate([[0], np.searchsorted(sizes, marks, "right"), [rows]]))
    return list(pairwise(bounds.tolist()))


def _within(
    leads: npt.NDArray[np.bool_], urls: UrlBatch, page_bytes: int, room: dict[bool, int]
) -> npt.NDArray[np.bool_]:
    """The valid links that there is room for, by whether they lead on; behind the first one that is left out there is
    none. A link too long to be kept counts as the longest that is kept."""
    costs = np.minimum(urls.lengths, URL_BYTES_MAX) + page_bytes
    wanted = np.zeros(len(urls), np.bool_)
    for sort, left in room.items():
        some = urls.valid & (leads == sort)
        ends = np.where(some, costs, 0).cumsum()
        fit = some & (ends <= left)
        full = np.count_nonzero(fit) < np.count_nonzero(some)
        room[sort] = 0 if full else left - int(ends[-1])
        wanted |= fit
    return wanted


class _Directives:
    """Gathers what robots metas say; of several the strictest holds, so they are simply put together."""

    def __init__(self, agent: str | None) -> None:
        self._names = {"robots", agent.lower()} if agent else {"robots"}
        self._found: set[str] = set()

    def take(self, name: str, content: str) -> None:
        if name.strip() not in self._names:
            return
        for part in content[: DIRECTIVES_PER_PAGE_MAX * DIRECTIVE_CHARACTERS_MAX].lower().split(","):
            words = part.split()
            # "noindex nofollow" without a comma is common; "max-snippet: 50" is one directive.
            self._found.update(words if ":" not in part else [" ".join(words)])

    def found(self) -> frozenset[str]:
        fit = sorted(word for word in self._found if len(word) <= DIRECTIVE_CHARACTERS_MAX)
        return frozenset(fit[:DIRECTIVES_PER_PAGE_MAX])


def _label(content_type: str) -> str | None:
    """The encoding that a Content-Type header names: its first charset that is not empty, quoted or not."""
    for name, *values in _PARAMETER.findall(content_type):
        label = "".join(values).strip()
        if name.lower() == "charset" and label:
            return label[:_LABEL_CHARACTERS_MAX]
    return None


def _one_line(text: str, characters_max: int) -> str:
    return " ".join(text[: characters_max * 4].split())[:characters_max]
