"""The columns of a page, as `read_html` and `read_pages` return them, and the limits of both."""

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
"""The result of `read_html`, numbers in little endian:

    charset
    arena            the addresses as written, one after the other, in UTF-8
    offsets          i64: the start of each, and the end of the last
    kinds            u8: numbers in KINDS
    rels             u32: numbers in
    rel names        each rel once, the first one empty
    texts            of links, in UTF-8
    text starts      u32: the start of each link's text
    text ends        u32
    alternates       (row, hreflang, type) of links with rel=alternate
    metas            (name in lower case, content) of meta elements that have both
    refresh          (seconds, address as written or "") of the first meta refresh
    base             the first href of a base element
    title
    language         as the html element declares it, else a meta
    text             in UTF-8
    left out         the number of links of new places above the limits
"""


class Limits(NamedTuple):
    """How much of a page is kept: the first ones each time."""

    links: int
    """Links to pages, and the same number of other links. After these a link is kept only if it names a new place
    (without its fragment), up to this number of places."""
    text_bytes: int
    link_text_bytes: int
    metas: int
    attributes: int
    """Attributes of one tag; the twin reads all."""
    value_bytes: int
    """Bytes of a title, a rel, the name or content of a meta."""


class PagesLimits(NamedTuple):
    """How much of a page `read_pages` keeps."""

    columns: Limits
    base_characters: int
    """A longer base is ignored."""
    links_bytes: int
    """Bytes of links to pages, the page's own URL counted with each, and the same number for other links. Links that
    repeat a kept URL use no part of that room, and have the same room again."""
    step_bytes: int
    """Bytes of links that are spelled before the bound is looked at: as they are written, the base with each."""
    url_bytes: int
    """A longer URL is not canonical, and counts with this length among links."""
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
"""Which links are followed: those that neither the page nor their rel forbids; all; or no link, because a header field
of the page forbids it."""
RESERVATIONS = ("tdm-reservation", "tdm-policy")
"""The metas of TDMRep, which are directives with a value (docs/decisions/permission.md)."""
UNFOLLOWED = ("nofollow", "ugc", "sponsored")
"""The rels of links that a page does not vouch for: they are recorded only."""
Given = tuple[Bytes, str, str | None, int, int]
"""A page to read: body, canonical URL, the encoding that its transport named, HTML, XHTML or TEXT, and which of its
links are followed."""
Values = tuple[
    *tuple[str, str, str, str | None, list[str], tuple[int, str] | None, str | None, str | None, int],
    *tuple[bytes, int, int, int, int, int, int],
]
"""The content of a page without its links. Plain text has only charset, text and its likeness:

    charset
    title, description   one line each
    language             a language tag
    robots               directives, in order
    refresh              (seconds, canonical URL)
    base                 the base of relative links; None: the page's own URL
    canonical            the URL of the first link with rel=canonical
    left out             the number of links above the limits
    text                 in UTF-8
    simhash, shingles, digest
    links                the number of links
    followed             the number of different followed links among those to pages
    left alone           the number of the others
"""
LinkColumns = tuple[
    *tuple[bytes, bytes, bytes, bytes, bytes],
    *tuple[bytes, bytes, list[str], bytes, bytes, bytes, Alternates],
]
"""The links of one page that are URLs: arena, offsets, flags, host lengths and path starts of their canonical URLs, as
`spell_arena` returns them; then kinds to alternates, as in `Columns`."""
Followed = tuple[bytes, bytes, bytes, bytes, bytes, bytes, bytes]
"""The followed links of all pages, each once a page, in order: arena to path starts as in `LinkColumns`, and
the fingerprints of URLs and of hosts, empty without a key."""


class Room:
    """The bytes left for further links of a page, by whether they lead to pages and whether they repeat a kept link.
    left_out: the number of new links above the limit."""

    def __init__(self, page_bytes: int, links_bytes: int, url_bytes: int) -> None:
        """page_bytes: of the page's own URL, which counts with each link; the rest as in `PagesLimits`."""
        self.left_out = 0
        self._page_bytes = page_bytes
        self._url_bytes = url_bytes
        self._left = dict.fromkeys(product((True, False), repeat=2), links_bytes)
        self._known: dict[bool, set[bytes]] = {True: set(), False: set()}

    def is_open(self, leads: bool) -> bool:
        """Whether there is room for another URL."""
        return self._left[leads, False] > 0

    def take(self, text: bytes, leads: bool) -> bool:
        """Whether a link is kept. After the first dropped link that is new, all new ones are dropped; likewise for
        links that repeat one. A link that is too long counts as the longest possible one."""
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
    """Returns the words of a text separated by one blank, up to a number of characters, from its first part of four
    times that number."""
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
    """Returns the directives of the metas named robots or `agent` (in lower case), in lower case, and the metas of
    TDMRep as "name:content": the first ones in alphabetical order. The strictest of several applies, so they are simply
    joined."""
    found: set[str] = set()
    for name, content in robots_metas(metas, agent, limits):
        if name in RESERVATIONS:  # the path of a policy's URL may have capitals
            found.add(f"{name}:{content.strip()}")
            continue
        for part in content.lower().split(","):
            words = part.split()
            # "noindex nofollow" without a comma is common; "max-snippet: 50" is one directive.
            found.update(words if ":" not in part else [" ".join(words)])
    return sorted(word for word in found if len(word) <= limits.directive_characters)[: limits.directives]


def robots_metas(metas: Iterable[tuple[str, str]], agent: str | None, limits: PagesLimits) -> list[tuple[str, str]]:
    """The names and contents of the metas that speak to the agent, as far as they are looked at."""
    most = limits.directives * limits.directive_characters
    named = [(name.strip(), content[:most]) for name, content in metas]
    return [(name, content) for name, content in named if name in ("robots", agent, *RESERVATIONS)]


def leads_nowhere(robots: Sequence[str] | frozenset[str]) -> bool:
    """Whether the directives of a page forbid following its links."""
    return "nofollow" in robots or "none" in robots
