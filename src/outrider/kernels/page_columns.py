"""The columns of a page, as `read_html` gives them, what `read_pages` gives, and the bounds that both take."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import product
from typing import NamedTuple

from outrider.kernels.framing import Bytes

KINDS = ("a", "area", "frame", "iframe", "meta", "link", "img", "script", "source", "form")
"""The kinds of links by number: the names of their elements. The first five lead to pages."""
LEADING = 5
Alternates = list[tuple[int, str, str]]
Columns = tuple[
    *tuple[str, bytes, bytes, bytes, bytes, list[str], bytes, bytes, bytes],
    *tuple[Alternates, list[tuple[str, str]], tuple[int, str] | None],
    *tuple[str | None, str | None, str | None, bytes, int],
]
"""What `read_html` gives, numbers in little endian:

    charset
    arena            the addresses as written, one after the other, in UTF-8
    offsets          i64: where each begins, and where the last ends
    kinds            u8: numbers in KINDS
    rels             u32: numbers in
    rel names        each rel once, the first one empty
    texts            of links, in UTF-8
    text starts      u32: where the text of each link begins
    text ends        u32
    alternates       (row, hreflang, type) of links with rel=alternate
    metas            (name in lower case, content) of meta elements that have both
    refresh          (seconds, address as written or "") of the first meta refresh
    base             the first href of a base element
    title
    language         as the html element declares it, else a meta
    text             in UTF-8
    left out         the number of links behind the bounds that name places of their own
"""


class Limits(NamedTuple):
    """How much of a page is kept: the first ones each time."""

    links: int
    """That lead to pages, and as many others. Behind these a link is kept if it names another place than all before it,
    fragments left out; of places there are no more than so many."""
    text_bytes: int
    link_text_bytes: int
    metas: int
    attributes: int
    """Of one tag; the twin looks at all."""
    value_bytes: int
    """Of a title, a rel, the name or content of a meta."""


class PagesLimits(NamedTuple):
    """How much of a page `read_pages` keeps."""

    columns: Limits
    base_characters: int
    """A longer base counts as none."""
    links_bytes: int
    """Bytes of links that lead to pages, the page's own URL counted with each, and as many of others. Links that repeat
    a URL that is kept take none of that room, and have as much again."""
    step_bytes: int
    """Bytes of links that are spelled before the bound is looked at: as they are written, the base with each."""
    url_bytes: int
    """A longer URL is no canonical one, and counts as one of so many bytes among links."""
    title_characters: int
    description_characters: int
    directives: int
    directive_characters: int
    words: int
    """That enter a SimHash."""
    block_words: int
    """Words of a block that enters a digest."""


HTML, XHTML, TEXT = 0, 1, 2
"""How a body is read."""
AS_SAID, ALL, NONE = 0, 1, 2
"""Which links are followed: those that neither the page nor their rel forbids; all; none, since what came with the page
forbids it."""
UNFOLLOWED = ("nofollow", "ugc", "sponsored")
"""The rels of links that a page does not vouch for: they are recorded only."""
Given = tuple[Bytes, str, str | None, int, int]
"""A page to be read: body, canonical URL, the encoding that its transport named, HTML, XHTML or TEXT, and which of its
links are followed."""
Values = tuple[
    *tuple[str, str, str, str | None, list[str], tuple[int, str] | None, str | None, str | None, int],
    *tuple[bytes, int, int, int, int, int, int],
]
"""The content of a page without its links; plain text has charset, text and its likeness only:

    charset
    title, description   one line each
    language             a language tag
    robots               directives, in order
    refresh              (seconds, canonical URL)
    base                 what links are relative to; None: the page's own URL
    canonical            the URL of the first link with rel=canonical
    left out             the number of links behind the bounds
    text                 in UTF-8
    simhash, shingles, digest
    links                how many it has
    followed             how many different ones of those that lead to pages are followed
    left alone           how many are not
"""
LinkColumns = tuple[
    *tuple[bytes, bytes, bytes, bytes, bytes],
    *tuple[bytes, bytes, list[str], bytes, bytes, bytes, Alternates],
]
"""The links of one page that are URLs: arena, offsets, flags, host lengths and path starts of their canonical URLs, as
`spell_arena` has them; then kinds to alternates, as `Columns` has them."""
Followed = tuple[bytes, bytes, bytes, bytes, bytes, bytes, bytes]
"""The links of all pages that are followed, each once a page, in order: arena to path starts as in `LinkColumns`, and
the fingerprints of URLs and of hosts, empty without a key."""


class Room:
    """The bytes that further links of a page may have, by whether they lead to pages and whether they repeat one that
    is kept. left_out: how many that repeat none were too many."""

    def __init__(self, page_bytes: int, links_bytes: int, url_bytes: int) -> None:
        """page_bytes: of the page's own URL, which is kept with each link; the others are those of `PagesLimits`."""
        self.left_out = 0
        self._page_bytes = page_bytes
        self._url_bytes = url_bytes
        self._left = dict.fromkeys(product((True, False), repeat=2), links_bytes)
        self._known: dict[bool, set[bytes]] = {True: set(), False: set()}

    def is_open(self, leads: bool) -> bool:
        """Whether there is room for another URL."""
        return self._left[leads, False] > 0

    def take(self, text: bytes, leads: bool) -> bool:
        """Whether a link is kept; behind the first one that is left out of those that repeat none, or of those that
        repeat one, there is none of them. One too long to be kept counts as the longest that is kept."""
        repeats = text in self._known[leads]
        left = self._left[leads, repeats] - min(len(text), self._url_bytes) - self._page_bytes
        self._left[leads, repeats] = max(0, left)
        if left < 0:
            self.left_out += not repeats
            return False
        self._known[leads].add(text)
        return True


_LANGUAGE = re.compile(r"[A-Za-z]{1,8}(?:-[A-Za-z0-9]{1,8}){0,8}")


def line_of(text: str, characters_max: int) -> str:
    """The words of a text parted by one blank, up to so many characters; of the first four times as many."""
    return " ".join(text[: characters_max * 4].split())[:characters_max]


def description_of(metas: Iterable[tuple[str, str]], characters_max: int) -> str:
    """The first meta of that name that says something."""
    lines = (line_of(content, characters_max) for name, content in metas if name == "description")
    return next(filter(None, lines), "")


def language_of(declared: str | None) -> str | None:
    """A declared language, if it is a tag."""
    matched = _LANGUAGE.fullmatch((declared or "").strip())
    return None if matched is None else matched[0]


def directives_of(metas: Iterable[tuple[str, str]], agent: str | None, limits: PagesLimits) -> list[str]:
    """The directives of the metas named robots or `agent` (in lower case), in lower case: the first ones in order of
    their letters. The strictest of several holds, so they are simply put together."""
    found: set[str] = set()
    for content in robots_metas(metas, agent, limits):
        for part in content.lower().split(","):
            words = part.split()
            # "noindex nofollow" without a comma is common; "max-snippet: 50" is one directive.
            found.update(words if ":" not in part else [" ".join(words)])
    return sorted(word for word in found if len(word) <= limits.directive_characters)[: limits.directives]


def robots_metas(metas: Iterable[tuple[str, str]], agent: str | None, limits: PagesLimits) -> list[str]:
    """The contents of the metas that speak to the agent, as far as they are looked at."""
    most = limits.directives * limits.directive_characters
    return [content[:most] for name, content in metas if name.strip() in ("robots", agent)]


def leads_nowhere(robots: Sequence[str] | frozenset[str]) -> bool:
    """Whether the directives of a page say that none of its links is followed."""
    return "nofollow" in robots or "none" in robots
