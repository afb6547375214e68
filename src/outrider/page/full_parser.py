"""Pages that the kernel for many leaves, with the full parser of URLs: one in a hundred.

`tests/contract/test_pages.py` compares both roads on pages that either could read: they find the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from outrider import kernels
from outrider.kernels.page_columns import (
    KINDS,
    LEADING,
    Alternates,
    PagesLimits,
    Room,
    description_of,
    directives_of,
    language_of,
    line_of,
)
from outrider.page.content import FoundLinks, Page, Uint8s, Uint32s
from outrider.page.likeness import simhash_of_text, text_digest
from outrider.url import UrlBatch, spell

Int64s = npt.NDArray[np.int64]


def read_fully(body: bytes, url: str, label: str | None, xml: bool, limits: PagesLimits, agent: str | None) -> Page:
    """A page of HTML, however odd its URLs. `agent` is in lower case."""
    columns = kernels.read_html(body, label, xml, limits.columns)
    charset, metas, asked, written_base, title, language, text, behind = columns[0], *columns[10:]
    base = _base(written_base, url, limits.base_characters)
    found, left_out = spelled(_WrittenLinks.of(*columns[1:10]), base, url, limits)
    refresh: tuple[int, str] | None = None
    if asked is not None:
        seconds, address = asked
        target = spell([address], base)[0] if address else spell([url])[0]
        refresh = (seconds, target) if target is not None else None
    value, shingles = simhash_of_text(text)
    return Page(
        url=url,
        found=found,
        left_out=behind + left_out,
        base=base,
        canonical=_canonical(found, limits.url_bytes),
        title=line_of(title or "", limits.title_characters),
        description=description_of(metas, limits.description_characters),
        charset=charset,
        language=language_of(language),
        robots=frozenset(directives_of(metas, agent, limits)),
        refresh=refresh,
        octets=text,
        simhash=value,
        shingles=shingles,
        text_digest=text_digest(text),
    )


def _base(written: str | None, url: str, characters_max: int) -> str:
    """The document's base URL (WHATWG HTML 2.4.3): <base href> against the page's URL, if that is http or https."""
    if written is None or len(written) > characters_max:
        return url
    base = spell([written], url)[0]
    return url if base is None else base


def _canonical(found: FoundLinks, bytes_max: int) -> str | None:
    """The URL of the first link with rel=canonical, if it is not too long to be one."""
    named = found.with_rel("canonical")
    if named is None:
        return None
    rows = np.flatnonzero((found.codes == KINDS.index("link")) & named)
    if not len(rows) or found.urls.lengths[rows[0]] > bytes_max:
        return None
    starts, ends = found.urls.texts()
    return found.urls.arena[starts[rows[0]] : ends[rows[0]]].decode()


@dataclass(frozen=True, slots=True)
class _WrittenLinks:
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
    def of(
        cls, arena: bytes, offsets: bytes, kinds: bytes, rels: bytes, names: list[str], *others: Any
    ) -> _WrittenLinks:
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

    def links_of_rows(self, urls: UrlBatch, rows: npt.NDArray[np.intp] | None) -> FoundLinks:
        """The links of these rows (None: all), whose URLs are these."""
        names = self.rel_names
        if rows is None:
            texts = (self.texts, self.text_starts, self.text_ends)
            return FoundLinks(urls, self.codes, self.rel_codes, names, texts, self.alternates)
        texts = (self.texts, self.text_starts[rows], self.text_ends[rows])
        kept = dict(zip(rows.tolist(), range(len(rows)), strict=True)) if self.alternates else {}
        alternates = [(kept[row], hreflang, kind) for row, hreflang, kind in self.alternates if row in kept]
        return FoundLinks(urls, self.codes[rows], self.rel_codes[rows], names, texts, alternates)


def spelled(written: _WrittenLinks, base: str, url: str, limits: PagesLimits) -> tuple[FoundLinks, int]:
    """Returns the links that are URLs, canonical and absolute, and the number of others above the limits of their sort.

    A relative link adds the length of its base, so they are spelled in pieces until the limits are reached.
    """
    codes, offsets = written.codes, written.offsets
    room = room_of(url, limits)
    kept: list[npt.NDArray[np.intp]] = []
    parts: list[UrlBatch] = []
    pieces = _steps(offsets, len(base), limits.step_bytes)
    for first, last in pieces:
        leads = (codes[first:last] < LEADING).tolist()
        if len(pieces) > 1 and not any(map(room.is_open, set(leads))):
            room.left_out += last - first
            continue
        urls = UrlBatch.from_buffers(written.arena, offsets[first : last + 1], base)
        wanted = urls.valid
        if len(pieces) > 1 or len(urls.arena) + len(urls) * len(url) > limits.links_bytes:
            wanted = within(leads, urls, room)
        elif wanted.all():
            return written.links_of_rows(urls, None), 0
        kept.append(np.flatnonzero(wanted) + first)
        parts.append(urls.filter(wanted))
    rows = np.concatenate(kept) if kept else np.zeros(0, np.intp)
    return written.links_of_rows(UrlBatch.concatenate(parts), rows), room.left_out


def _steps(offsets: Int64s, base_bytes: int, step_bytes: int) -> list[tuple[int, int]]:
    """The rows where pieces begin and end that have about `step_bytes` once they are absolute."""
    rows = len(offsets) - 1
    whole = int(offsets[-1]) + rows * base_bytes
    if whole <= step_bytes:
        return [(0, rows)]
    sizes = offsets + np.arange(rows + 1) * base_bytes
    marks = np.arange(step_bytes, whole, step_bytes)
    # A piece ends with the row that fills it, and has one at least.
    bounds = np.unique(np.concatenate([[0], np.searchsorted(sizes, marks, "right"), [rows]]))
    return list(pairwise(bounds.tolist()))


def room_of(url: str, limits: PagesLimits) -> Room:
    """The room for the links of a page of this URL."""
    return Room(len(url), limits.links_bytes, limits.url_bytes)


def within(leads: Sequence[bool], urls: UrlBatch, room: Room) -> npt.NDArray[np.bool_]:
    """The valid links that there is room for, by whether they lead on."""
    wanted = np.zeros(len(urls), np.bool_)
    starts, ends = (column.tolist() for column in urls.texts())
    for row in np.flatnonzero(urls.valid).tolist():
        wanted[row] = room.take(urls.arena[starts[row] : ends[row]], leads[row])
    return wanted
