"""Pages read in batches: values, text with SimHash and digest, canonical links, and the followed links of all
pages in one set of columns; the plain twin.

A page is the result of `read_html`, with its links against its base, spelled as `spell_arena` spells them. The kernel
leaves a page to its caller, without followed links, if the page has one of these:

    a link, base or refresh that is odd to the URL kernel, or a page URL that is not canonical
    robots metas with letters beyond ASCII, for which Unicode has rules of lower case
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from outrider.kernels.digest import text_digest
from outrider.kernels.framing import Bytes
from outrider.kernels.html import decode_text, read_html
from outrider.kernels.page_columns import (
    ALL,
    AS_SAID,
    KINDS,
    LEADING,
    NONE,
    TEXT,
    UNFOLLOWED,
    XHTML,
    Columns,
    Followed,
    Given,
    LinkColumns,
    PagesLimits,
    Room,
    Values,
    description_of,
    directives_of,
    language_of,
    leads_nowhere,
    line_of,
    robots_metas,
)
from outrider.kernels.simhash import simhash_of_text
from outrider.kernels.siphash import hash_messages
from outrider.kernels.urls import HTTPS, ODD, SPELLED, BasePieces, SpelledRow, spell_row


def read_pages(
    pages: Sequence[Given],
    limits: PagesLimits,
    likeness_key: Bytes,
    agent: str | None = None,
    key: Bytes | None = None,
) -> PagesRead:
    """Reads pages in one call.

    agent         the name in lower case whose robots metas count besides `robots`
    likeness_key  16 bytes, the key of SimHashes and digests
    key           16 bytes, that of the fingerprints of followed links; None: no fingerprints

    Accepts any bytes; bodies of another type are copied. Raises ValueError for a page without five fields, an unknown
    number for reading or following, and a key of another size.
    """
    for name in (likeness_key, key):
        if name is not None:
            hash_messages([], bytes(name))
    return PagesRead([_read(number, given, limits, likeness_key, agent) for number, given in enumerate(pages)], key)


class _Read(NamedTuple):
    values: Values
    links: LinkColumns
    followed: list[SpelledRow]


class PagesRead:
    """The pages of one call, in its order."""

    def __init__(self, pages: Sequence[_Read | None], key: Bytes | None) -> None:
        self._pages = pages
        self._key = key

    def values(self) -> list[Values | None]:
        """The values of each page; None for one that is left."""
        return [None if page is None else page.values for page in self._pages]

    def followed(self) -> Followed:
        """The links that are followed, of the first page first: each has as many as its values say."""
        rows = [row for page in self._pages if page is not None for row in page.followed]
        if self._key is None:
            return (*_url_columns(rows), b"", b"")
        texts, hosts = [row.text for row in rows], [_host(row) for row in rows]
        return (*_url_columns(rows), hash_messages(texts, self._key), hash_messages(hosts, self._key))

    def links(self, page: int) -> LinkColumns:
        """The links of one page. Raises IndexError for one that is left or was not there."""
        found = self._pages[page] if 0 <= page < len(self._pages) else None
        if found is None:
            raise IndexError(f"there are no links of page {page}")
        return found.links


def _read(number: int, given: Given, limits: PagesLimits, likeness_key: Bytes, agent: str | None) -> _Read | None:
    if len(given) != 5:
        raise ValueError(f"page {number}: a page has 5 fields, not {len(given)}")
    body, url, label, kind, follow = given
    for name, value in (("kind", kind), ("follow", follow)):
        if value not in (0, 1, 2):
            raise ValueError(f"page {number}: a {name} is 0, 1 or 2, not {value}")
    try:
        said = (
            _PageContent(*decode_text(body, label, limits.columns.text_bytes))
            if kind == TEXT
            else _html(read_html(body, label, kind == XHTML, limits.columns), url, limits, agent)
        )
    except _OddError:
        return None
    rows = said.rows
    rels = struct.unpack(f"<{len(rows)}I", said.links[6])
    closed = follow == NONE or (follow == AS_SAID and leads_nowhere(said.robots))
    refused = [closed or (follow != ALL and not set(UNFOLLOWED).isdisjoint(name.split(" "))) for name in said.links[7]]
    leading = [row for row in range(len(rows)) if said.links[5][row] < LEADING]
    followed: dict[bytes, SpelledRow] = {}
    for row in leading:
        if not refused[rels[row]]:
            followed.setdefault(rows[row].text, rows[row])
    values: Values = (
        *(said.charset, said.title, said.description, said.language, list(said.robots), said.refresh, said.base),
        *(said.canonical, said.left_out, said.text),
        *simhash_of_text(said.text, likeness_key, limits.words),
        text_digest(said.text, likeness_key, limits.block_words),
        *(len(rows), len(followed), len({rows[row].text for row in leading}) - len(followed)),
    )
    return _Read(values, said.links, list(followed.values()))


_NO_LINKS: LinkColumns = (b"", bytes(8), b"", b"", b"", b"", b"", [""], b"", b"", b"", [])


class _PageContent(NamedTuple):
    """The content of a page, and its links."""

    charset: str
    text: bytes
    title: str = ""
    description: str = ""
    language: str | None = None
    robots: Sequence[str] = ()
    refresh: tuple[int, str] | None = None
    base: str | None = None
    canonical: str | None = None
    left_out: int = 0
    rows: Sequence[SpelledRow] = ()
    links: LinkColumns = _NO_LINKS


class _OddError(Exception):
    """A page that the kernel leaves to its caller."""


def _html(found: Columns, url: str, limits: PagesLimits, agent: str | None) -> _PageContent:
    """Raises _OddError."""
    metas, asked, written_base, title, language, text, left_out = found[10:]
    if not _is_canonical(url) or not all(content.isascii() for _, content in robots_metas(metas, agent, limits)):
        raise _OddError
    base = None
    if written_base is not None and len(written_base) <= limits.base_characters:
        base = _spelled(written_base, url)
    refresh: tuple[int, str] | None = None
    if asked is not None:
        target = _spelled(asked[1], base or url) if asked[1] else url
        refresh = (asked[0], target) if target is not None else None
    rows, links, behind = _links(found, base or url, len(url), limits)
    return _PageContent(
        found[0],
        text,
        line_of(title or "", limits.title_characters),
        description_of(metas, limits.description_characters),
        language_of(language),
        directives_of(metas, agent, limits),
        refresh,
        base if base != url else None,
        _canonical(rows, links, limits.url_bytes),
        left_out + behind,
        rows,
        links,
    )


def _spelled(written: str, page: str) -> str | None:
    row = spell_row(written.encode("utf-8", "replace"), BasePieces.of(page))
    if row.state == ODD:
        raise _OddError
    return row.text.decode() if row.state == SPELLED else None


def _links(found: Columns, base: str, url_bytes: int, limits: PagesLimits) -> tuple[list[SpelledRow], LinkColumns, int]:
    """Returns the links that are URLs, and the number of others above the limit of their sort.

    They are spelled in pieces, because a relative link adds the length of its base.
    """
    _, arena, offset_bytes, kinds, rel_bytes, names, texts, start_bytes, end_bytes, alternates = found[:10]
    count, page = len(kinds), BasePieces.of(base)
    offsets = struct.unpack(f"<{count + 1}q", offset_bytes)
    sizes = [offset + row * len(base) for row, offset in enumerate(offsets)]
    room = Room(url_bytes, limits.links_bytes, limits.url_bytes)
    kept: dict[int, SpelledRow] = {}
    # A piece ends with the row that fills a step.
    for _, piece in groupby(range(count), lambda row: max(1, -(-sizes[row] // limits.step_bytes))):
        some = list(piece)
        if len(some) < count and not any(room.is_open(kinds[row] < LEADING) for row in some):
            room.left_out += len(some)
            continue
        for row in some:
            spelled = spell_row(arena[offsets[row] : offsets[row + 1]], page)
            if spelled.state == ODD:
                raise _OddError
            if spelled.state == SPELLED and room.take(spelled.text, kinds[row] < LEADING):
                kept[row] = spelled
    places = {row: place for place, row in enumerate(kept)}
    numbers = [struct.unpack(f"<{count}I", column) for column in (rel_bytes, start_bytes, end_bytes)]
    rels, starts, ends = (struct.pack(f"<{len(kept)}I", *(column[row] for row in kept)) for column in numbers)
    named = [(places[row], hreflang, kind) for row, hreflang, kind in alternates if row in places]
    rows = list(kept.values())
    links: LinkColumns = (
        *_url_columns(rows),
        bytes(kinds[row] for row in kept),
        *(rels, names, texts, starts, ends, named),
    )
    return rows, links, room.left_out


def _is_canonical(url: str) -> bool:
    row = spell_row(url.encode("utf-8", "surrogatepass"), None)
    return row.state == SPELLED and row.text.decode() == url


def _canonical(rows: list[SpelledRow], links: LinkColumns, bytes_max: int) -> str | None:
    """The URL of the first link with rel=canonical, if it is not too long to be one."""
    kinds, rels, names = links[5], struct.unpack(f"<{len(rows)}I", links[6]), links[7]
    for row, spelled in enumerate(rows):
        if KINDS[kinds[row]] == "link" and "canonical" in names[rels[row]].split(" "):
            return spelled.text.decode() if len(spelled.text) <= bytes_max else None
    return None


def _host(row: SpelledRow) -> bytes:
    start = 8 if row.flags & HTTPS else 7
    return row.text[start : start + row.host_length]


def _url_columns(rows: Sequence[SpelledRow]) -> tuple[bytes, bytes, bytes, bytes, bytes]:
    offsets = [0]
    for row in rows:
        offsets.append(offsets[-1] + len(row.text))
    return (
        b"".join(row.text for row in rows),
        struct.pack(f"<{len(offsets)}q", *offsets),
        bytes(row.flags for row in rows),
        struct.pack(f"<{len(rows)}I", *(row.host_length for row in rows)),
        struct.pack(f"<{len(rows)}I", *(row.path_start for row in rows)),
    )
