"""The answer of a reader as a page within bounds, and as a message from the process that read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec
import numpy as np

from outrider.kernels.page_columns import KINDS
from outrider.limits import (
    DESCRIPTION_CHARACTERS_MAX,
    DIRECTIVE_CHARACTERS_MAX,
    DIRECTIVES_PER_PAGE_MAX,
    LINK_TEXT_BYTES_MAX,
    LINKS_PER_PAGE_BYTES_MAX,
    LINKS_PER_PAGE_MAX,
    TEXT_BYTES_MAX,
    TITLE_CHARACTERS_MAX,
    URL_BYTES_MAX,
)
from outrider.page import FoundLinks, Image, Page, PageLink, simhash_of_text, text_digest
from outrider.url import UrlBatch, spell

_FIELDS = ("title", "description", "text", "language", "links")
_WORD_CHARACTERS_MAX = 100  # language tags, encodings, rels, types: the longest of the wild have half of it


def checked_page(given: object, url: str) -> Page:
    """The answer of a reader, as a page. Raises TypeError."""
    if given is None:
        return Page(url=url, base=url)
    if isinstance(given, Page):
        return given
    if not isinstance(given, Mapping):
        raise TypeError(f"a reader returned {given!r:.80}; use a Page, a mapping or None")
    for name in given:
        if name not in _FIELDS:
            raise TypeError(f"a reader returned {name!r:.80}; use {', '.join(sorted(_FIELDS))}")
    links = given.get("links") or ()
    if isinstance(links, str | bytes):
        raise TypeError(f"a reader returned the links {links!r:.80}; use a list of texts")
    batch = UrlBatch.of(list(islice(links, LINKS_PER_PAGE_MAX)), url)
    fit = _fitting(batch, len(url))
    title, description, text = (str(given.get(name) or "") for name in ("title", "description", "text"))
    octets = text[:TEXT_BYTES_MAX].encode("utf-8", "replace")[:TEXT_BYTES_MAX]
    value, shingles = simhash_of_text(octets)
    language = given.get("language")
    return Page(
        url=url,
        found=FoundLinks.of(batch.take(fit)),
        base=url,
        title=title[:TITLE_CHARACTERS_MAX],
        description=description[:DESCRIPTION_CHARACTERS_MAX],
        language=None if language is None else str(language)[:_WORD_CHARACTERS_MAX],
        octets=octets,
        simhash=value,
        shingles=shingles,
        text_digest=text_digest(octets),
    )


class SentPage(msgspec.Struct, omit_defaults=True):
    """A page as another process sends it. Its bytes may be anything: `sent_page` reads them within limits."""

    base: str = ""
    canonical: str | None = None
    title: str = ""
    description: str = ""
    charset: str = "utf-8"
    language: str | None = None
    robots: list[str] = []
    refresh: tuple[int, str] | None = None
    octets: bytes = b""
    left_out: int = 0
    image: tuple[str, int, int] | None = None
    links: list[PageLink] = []
    alternates: list[tuple[int, str, str]] = []


def as_sent(page: Page) -> SentPage:
    """The page, to be sent."""
    links = page.found.links()
    rows: dict[str, int] = {}
    for row, link in enumerate(links):
        if "alternate" in link.rel.split():
            rows.setdefault(link.url, row)
    return SentPage(
        page.base,
        page.canonical,
        page.title,
        page.description,
        page.charset,
        page.language,
        sorted(page.robots),
        page.refresh,
        page.octets,
        page.left_out,
        page.image,
        list(links),
        [(rows[one.url], one.hreflang, one.type) for one in page.found.alternates() if one.url in rows],
    )


def sent_page(sent: SentPage, url: str) -> Page:
    """The page that was sent, every part within the bounds of a page. Raises ValueError for one that makes no sense."""
    base = _url(sent.base, url) or url
    octets = sent.octets[:TEXT_BYTES_MAX]
    value, shingles = simhash_of_text(octets)
    target = _url(sent.refresh[1], url) if sent.refresh is not None else None
    seconds = max(0, sent.refresh[0]) if sent.refresh is not None else 0
    words = [word[:DIRECTIVE_CHARACTERS_MAX] for word in sent.robots[:DIRECTIVES_PER_PAGE_MAX]]
    return Page(
        url=url,
        found=_links_of(sent.links[: 2 * LINKS_PER_PAGE_MAX], sent.alternates, url),
        left_out=max(0, sent.left_out),
        base=base,
        canonical=_url(sent.canonical, url),
        title=sent.title[:TITLE_CHARACTERS_MAX],
        description=sent.description[:DESCRIPTION_CHARACTERS_MAX],
        charset=sent.charset[:_WORD_CHARACTERS_MAX],
        language=None if sent.language is None else sent.language[:_WORD_CHARACTERS_MAX],
        robots=frozenset(words),
        refresh=(seconds, target) if target is not None else None,
        octets=octets,
        simhash=value,
        shingles=shingles,
        text_digest=text_digest(octets),
        image=Image(*sent.image) if sent.image is not None else None,
    )


def _links_of(links: Sequence[PageLink], alternates: Sequence[tuple[int, str, str]], url: str) -> FoundLinks:
    batch = UrlBatch.of([link.url for link in links], url)
    rows = _fitting(batch, len(url))
    kept = [links[row] for row in rows.tolist()]
    try:
        codes = np.array([KINDS.index(link.kind) for link in kept], np.uint8)
    except ValueError:
        raise ValueError("a link of a kind that there is not") from None
    numbers: dict[str, int] = {}
    rels = [numbers.setdefault(link.rel[:_WORD_CHARACTERS_MAX], len(numbers)) for link in kept]
    texts = [link.text.encode("utf-8", "replace") for link in kept]
    if any(len(text) > LINK_TEXT_BYTES_MAX for text in texts):
        raise ValueError("a link with a text that is too long")
    ends = np.cumsum([len(text) for text in texts]).astype(np.uint32)
    starts = np.concatenate([[0], ends[:-1]]).astype(np.uint32) if len(ends) else ends
    places = dict(zip(rows.tolist(), range(len(rows)), strict=True))
    named = [
        (places[row], hreflang[:_WORD_CHARACTERS_MAX], kind[:_WORD_CHARACTERS_MAX])
        for row, hreflang, kind in alternates[:LINKS_PER_PAGE_MAX]
        if row in places
    ]
    texts_of = (b"".join(texts), starts, ends)
    return FoundLinks(batch.take(rows), codes, np.array(rels, np.uint32), list(numbers) or [""], texts_of, named)


def _fitting(batch: UrlBatch, page_bytes: int) -> Any:
    """The rows of valid links that there is room for: the first ones."""
    costs = np.where(batch.valid, np.minimum(batch.lengths, URL_BYTES_MAX) + page_bytes, 0).cumsum()
    return np.flatnonzero(batch.valid & (costs <= LINKS_PER_PAGE_BYTES_MAX))


def _url(text: str | None, base: str) -> str | None:
    return spell([text], base)[0] if text and len(text) <= URL_BYTES_MAX else None
