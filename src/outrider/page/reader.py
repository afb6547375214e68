"""Reads a page: links, base, title, directives, text and its SimHash. Any bytes are read; nothing raises.

Links are resolved and spelled canonically in one batch per page, and stay columns until a caller asks for strings. Only
http and https count. Comments and scripts hold no links; noscript does, since no script is run here, and so does
template, whose content scripts put into pages.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from outrider.limits import (
    BASE_CHARACTERS_MAX,
    DESCRIPTION_CHARACTERS_MAX,
    DIRECTIVE_CHARACTERS_MAX,
    DIRECTIVES_PER_PAGE_MAX,
    LINKS_PER_PAGE_BYTES_MAX,
    LINKS_PER_PAGE_MAX,
    LINKS_SPELLED_BYTES_STEP,
    METAS_PER_PAGE_MAX,
    TITLE_CHARACTERS_MAX,
    URL_BYTES_MAX,
)
from outrider.page import html
from outrider.page.simhash import simhash_of_text
from outrider.url import UrlBatch, spell

FOLLOWABLE = frozenset({"a", "area", "frame", "iframe", "meta"})
"""The elements whose links lead to pages; those of link, img, script and form are recorded only."""
UNFOLLOWED = frozenset({"nofollow", "ugc", "sponsored"})
"""The rels of links that a page does not vouch for: they are recorded only."""
_HTML_TYPES = frozenset({"text/html", "application/xhtml+xml"})
_CHARSET = re.compile(r"""(?i);\s*charset\s*=\s*["']?([^\s"';,]{1,40})""")
_LANGUAGE = re.compile(r"[A-Za-z]{1,8}(?:-[A-Za-z0-9]{1,8}){0,8}")
# WHATWG HTML 4.2.5.3: "shared declarative refresh steps", as far as their shape is regular.
_REFRESH_SECONDS = re.compile(r"[ \t\n\f\r]*(?:([0-9]+)|(?=\.))[0-9.]*")
_REFRESH_SEPARATOR = re.compile(r"[ \t\n\f\r]*[;,]?[ \t\n\f\r]*")
_REFRESH_URL = re.compile(r"(?i)url[ \t\n\f\r]*=[ \t\n\f\r]*")


_Row: TypeAlias = tuple[str, str, str]
"""Of a link: the name of its element, the address as written, its rel."""


class PageLink(msgspec.Struct, frozen=True, gc=False):
    """A link of a page: the canonical absolute URL, the name of the element it stands in, and its rel in lower case."""

    url: str
    kind: str
    rel: str = ""


class FoundLinks:
    """The links of a page in columns, in order of appearance; as objects once they are asked for."""

    __slots__ = ("_made", "kinds", "rels", "urls")

    def __init__(self, urls: UrlBatch, kinds: list[str], rels: list[str]) -> None:
        self.urls = urls
        """Canonical and absolute, doubles included; all rows are valid."""
        self.kinds = kinds
        self.rels = rels
        self._made: tuple[PageLink, ...] | None = None

    def links(self) -> tuple[PageLink, ...]:
        if self._made is None:
            self._made = tuple(map(PageLink, self.urls.strings(), self.kinds, self.rels))
        return self._made

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FoundLinks):
            return NotImplemented
        return (self.urls, self.kinds, self.rels) == (other.urls, other.kinds, other.rels)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<FoundLinks: {len(self.kinds)}>"


_NO_LINKS = FoundLinks(UrlBatch.of(()), [], [])


@dataclass(frozen=True, slots=True)
class Page:
    """The content of a page."""

    url: str
    """Where it was fetched from."""
    found: FoundLinks = field(default_factory=lambda: _NO_LINKS, hash=False)
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
    text: str = ""
    simhash: int = 0
    """64 bits over the words of `text`; 0 when there are none."""

    @property
    def links(self) -> tuple[PageLink, ...]:
        """In order of appearance, doubles included."""
        return self.found.links()

    def link_batch(self, *, nofollow_too: bool = False) -> UrlBatch:
        """The URLs a crawler goes on to: unique, in order, of a, area, frame, iframe and meta refresh.

        Not those with rel=nofollow, ugc or sponsored, and none at all if a robots meta says nofollow or none, unless
        `nofollow_too`.
        """
        found = self.found
        if not found.kinds or (not nofollow_too and ("nofollow" in self.robots or "none" in self.robots)):
            return _NO_LINKS.urls
        wanted = [
            kind in FOLLOWABLE and (nofollow_too or not rel or UNFOLLOWED.isdisjoint(rel.split()))
            for kind, rel in zip(found.kinds, found.rels, strict=True)
        ]
        return found.urls.unique(wanted)

    def followed(self, *, nofollow_too: bool = False) -> list[str]:
        """The same as strings."""
        return self.link_batch(nofollow_too=nofollow_too).strings()


def read(body: bytes, url: str, content_type: str = "text/html", *, agent: str | None = None) -> Page:
    """The content of a body fetched from the absolute `url`, by its Content-Type header.

    text/html and application/xhtml+xml are parsed, text/plain has text and SimHash, any other type only its URL. An
    empty type counts as HTML if a tag comes first. `agent` is the crawler's product token: a meta of that name counts
    as one named robots.
    """
    essence = content_type.partition(";")[0].strip().lower()
    if essence in _HTML_TYPES or (not essence and body[:512].lstrip()[:1] == b"<"):
        return _read_html(body, url, _label(content_type), essence == "application/xhtml+xml", agent)
    if essence == "text/plain":
        text, charset = html.decode(body, _label(content_type))
        return Page(url=url, base=url, charset=charset, text=text, simhash=simhash_of_text(text))
    return Page(url=url, base=url)


def _read_html(body: bytes, url: str, label: str | None, xml: bool, agent: str | None) -> Page:
    markup = html.parse(body, label, xml)
    base = _base(markup.base, url)
    directives = _Directives(agent)
    description = ""
    language = markup.language
    refreshes: list[tuple[int, tuple[int, str]]] = []
    for name, equivalent, content, before in markup.metas[:METAS_PER_PAGE_MAX]:
        if equivalent == "refresh":
            found = parse_refresh(content)
            if found is not None:
                refreshes.append((before, found))
        elif equivalent == "content-language":
            language = language or content
        elif name == "description":
            description = description or _one_line(content, DESCRIPTION_CHARACTERS_MAX)
        elif name:
            directives.take(name, content)

    raw, urls, left_out = _spelled(_with_refreshes(markup.addresses, refreshes), base, url)
    rels = [" ".join(relation.lower().split()) if relation else "" for _, _, relation in raw]
    canonical: str | None = None
    for row, (kind, _, _) in enumerate(raw):
        if kind == "link" and "canonical" in rels[row].split():
            canonical = urls[row] if urls.lengths[row] <= URL_BYTES_MAX else None
            break
    refresh: tuple[int, str] | None = None
    if refreshes:
        seconds, address = refreshes[0][1]
        target = spell([address], base)[0] if address else spell([url])[0]
        refresh = (seconds, target) if target is not None else None
    matched = _LANGUAGE.fullmatch((language or "").strip())
    return Page(
        url=url,
        found=FoundLinks(urls, [kind for kind, _, _ in raw], rels),
        left_out=left_out,
        base=base,
        canonical=canonical,
        title=_one_line(markup.title or "", TITLE_CHARACTERS_MAX),
        description=description,
        charset=markup.charset,
        language=matched[0] if matched is not None else None,
        robots=directives.found(),
        refresh=refresh,
        text=markup.text,
        simhash=simhash_of_text(markup.text),
    )


def _base(written: str | None, url: str) -> str:
    """The document's base URL (WHATWG HTML 2.4.3): <base href> against the page's URL, if that is http or https."""
    if written is None or len(written) > BASE_CHARACTERS_MAX:
        return url
    base = spell([written], url)[0]
    return url if base is None else base


def _with_refreshes(addresses: list[_Row], refreshes: list[tuple[int, tuple[int, str]]]) -> list[_Row]:
    """The addresses with those of meta refreshes at their places; one that names no other page is no link."""
    if not refreshes:
        return addresses
    merged: list[_Row] = []
    taken = 0
    for before, (_, address) in refreshes:
        merged += addresses[taken:before]
        taken = before
        if address:
            merged.append(("meta", address, ""))
    return merged + addresses[taken:]


def _spelled(written: list[_Row], base: str, url: str) -> tuple[list[_Row], UrlBatch, int]:
    """The links that are URLs, canonical and absolute, and how many others stood behind the bounds of their sort.

    A relative link has the length of its base, too: so they are spelled piece by piece until the bounds are reached.
    """
    rows = _bounded(written)
    room = {True: LINKS_PER_PAGE_BYTES_MAX, False: LINKS_PER_PAGE_BYTES_MAX}
    kept: list[_Row] = []
    parts: list[UrlBatch] = []
    wrong = 0
    for first, last in _steps(rows, len(base)):
        piece = [row for row in rows[first:last] if room[row[0] in FOLLOWABLE]]
        if not piece:
            continue
        urls = UrlBatch.of([address for _, address, _ in piece], base)
        wrong += len(urls) - int(np.count_nonzero(urls.valid))
        wanted = urls.valid
        if last - first < len(rows) or len(urls.arena) + len(piece) * len(url) > LINKS_PER_PAGE_BYTES_MAX:
            wanted = _within(piece, urls, len(url), room)
        if not wanted.all():
            piece = [piece[row] for row in np.flatnonzero(wanted).tolist()]
            urls = urls.filter(wanted)
        kept += piece
        parts.append(urls)
    return kept, UrlBatch.concatenate(parts), len(written) - len(kept) - wrong


def _steps(rows: list[_Row], base_bytes: int) -> list[tuple[int, int]]:
    """First and last row of pieces that have about `LINKS_SPELLED_BYTES_STEP` once they are absolute."""
    bounds = [0]
    size = 0
    for row, (_, address, _) in enumerate(rows):
        size += len(address) + base_bytes
        if size > LINKS_SPELLED_BYTES_STEP:
            bounds.append(row + 1)
            size = 0
    if bounds[-1] < len(rows):
        bounds.append(len(rows))
    return list(pairwise(bounds))


def _within(rows: list[_Row], urls: UrlBatch, page_bytes: int, room: dict[bool, int]) -> npt.NDArray[np.bool_]:
    """The valid links that there is room for, by whether they lead on; behind the first one that is left out there is
    none. A link too long to be kept counts as the longest that is kept."""
    costs = np.minimum(urls.lengths, URL_BYTES_MAX) + page_bytes
    leads = np.array([kind in FOLLOWABLE for kind, _, _ in rows], np.bool_)
    wanted = np.zeros(len(rows), np.bool_)
    for sort, left in room.items():
        some = urls.valid & (leads == sort)
        ends = np.where(some, costs, 0).cumsum()
        fit = some & (ends <= left)
        full = np.count_nonzero(fit) < np.count_nonzero(some)
        room[sort] = 0 if full else left - int(ends[-1])
        wanted |= fit
    return wanted


def _bounded(addresses: list[_Row]) -> list[_Row]:
    """The first `LINKS_PER_PAGE_MAX` addresses of pages and as many others, in order: pictures push out no links."""
    if len(addresses) <= LINKS_PER_PAGE_MAX:
        return addresses
    left = {True: LINKS_PER_PAGE_MAX, False: LINKS_PER_PAGE_MAX}
    kept = []
    for row in addresses:
        leads_on = row[0] in FOLLOWABLE
        if left[leads_on]:
            left[leads_on] -= 1
            kept.append(row)
    return kept


def parse_refresh(content: str) -> tuple[int, str] | None:
    """Seconds and the URL as written ("" for the page itself) of a meta refresh; None if a browser would ignore it.

    WHATWG HTML 4.2.5.3, the shared declarative refresh steps.
    """
    time = _REFRESH_SECONDS.match(content)
    if time is None:
        return None
    seconds = int((time[1] or "0")[:9])
    rest = content[time.end() :]
    if not rest:
        return seconds, ""
    if rest[0] not in ";, \t\n\f\r":
        return None
    separator = _REFRESH_SEPARATOR.match(rest)
    assert separator is not None, "everything in it is optional"
    address = rest[separator.end() :]
    named = _REFRESH_URL.match(address)
    if named is not None:
        address = address[named.end() :]
    if address[:1] in {'"', "'"} and (named is not None or address):
        quote = address[0]
        address = address[1:]
        end = address.find(quote)
        address = address if end < 0 else address[:end]
    return seconds, address


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
    """The encoding a Content-Type header names, if it is one."""
    match = _CHARSET.search(content_type)
    return html.known_label(match[1]) if match is not None else None


def _one_line(text: str, characters_max: int) -> str:
    return " ".join(text[: characters_max * 4].split())[:characters_max]
