"""Pages that are copies of others: the same bytes under another URL, or nearly the same text.

This file keeps the pages of a crawl by digest and SimHash, including those of earlier runs from `pages.jsonl`. The
frontier always knows whether a digest was seen (`Frontier.seen_content`); this names the page, for a limited number.
"""

from __future__ import annotations

import base64
import hashlib
import os
import struct
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

import msgspec

from outrider import kernels
from outrider.crawl.output.output import FILES, PAGES, whole_lines
from outrider.crawl.run.folder_copies import FolderCopies
from outrider.crawl.run.text_signature import figures_of
from outrider.crawl.setup.directory import GIVE_A_CRAWL, inspect, no_crawl
from outrider.frontier.policy.returns import shape_of
from outrider.journey import Word
from outrider.limits import COPIES_PAGES_MAX, DUPLICATES_LISTED_MAX
from outrider.page import SHINGLES_MIN, Page, SimHashIndex

_ORIGINALS: Final = frozenset({Word.DONE, Word.TRUNCATED})
_NO_ROW: Final = b"\xff" * 4  # as an index returns it
_INDEXED_TOGETHER: Final = 1_024  # pages: the fixed price of a call is spread thin
_Page = tuple[str, bytes, int, int]  # URL, digest, SimHash, number of shingles


class _PageFields(msgspec.Struct):
    """The parts of a line of pages.jsonl that are used here."""

    url: str
    outcome: str
    digest: str | None = None
    content_digest: str | None = None
    simhash: str | None = None
    shingles: int | None = None


class Copies:
    """The pages that others may be copies of: the first `pages_max` of a crawl."""

    def __init__(self, pages_max: int = COPIES_PAGES_MAX) -> None:
        self._pages_max = pages_max
        self._texts = bytearray()
        self._ends = array("Q", [0])
        self._by_digest = kernels.Index()
        self._by_simhash = kernels.Index()
        self._by_site = kernels.Index()  # the first page of each
        self._near = SimHashIndex()
        # Rows of the values that the indexes lack; `_near` has its own at once.
        self._digests: dict[int, int] = {}
        self._simhashes: dict[int, int] = {}
        self._sites: dict[str, int] = {}
        self._wordings: set[int] = set()
        self._figures: set[int] = set()
        self._kin = FolderCopies()
        self._first_copies: set[int] = set()

    def __len__(self) -> int:
        return len(self._ends) - 1

    def read(self, lines: Iterable[bytes]) -> None:
        """Adds the pages of earlier runs. Lines without these fields are skipped."""
        for page in islice(_pages(lines), self._pages_max - len(self)):
            self.add(*page)

    def add(self, url: str, digest: bytes, simhash: int, shingles: int) -> None:
        """Adds a page that is not an exact copy. The first page of each value remains."""
        row = len(self)
        if row >= self._pages_max:
            return
        self._texts += url.encode()
        self._ends.append(len(self._texts))
        self._digests.setdefault(_number(digest), row)
        self._sites.setdefault(_site_and_rest(url)[0], row)
        if shingles >= SHINGLES_MIN and self._near.add(simhash):
            self._simhashes[simhash] = row
        if len(self._digests) >= _INDEXED_TOGETHER:
            self._index()

    def _index(self) -> None:
        """Adds the missing pages to the indexes."""
        _note(self._by_digest, self._digests)
        _note(self._by_simhash, self._simhashes)
        _note(self._by_site, {_site_number(site): row for site, row in self._sites.items()})
        for rows in (self._digests, self._simhashes, self._sites):
            rows.clear()

    def exact(self, url: str, digest: bytes) -> str | None:
        """The URL of the page with this digest, if it is another one."""
        found = self._url(self._by_digest, self._digests, _number(digest))
        return found if found != url else None

    def near(self, url: str, simhash: int, shingles: int) -> tuple[str, int] | None:
        """The URL of the nearest other page within 3 bits, and in how many bits they differ. None for short pages."""
        if shingles < SHINGLES_MIN:
            return None
        for other in self._near.near(simhash):
            found = self._url(self._by_simhash, self._simhashes, other)
            if found is not None and found != url:
                return found, (other ^ simhash).bit_count()
        return None

    def is_of_mirror(self, url: str, original: str) -> bool:
        """Whether the earlier page `original` belongs to a mirror: it has the path of this page on a site whose first
        page was found later. So a faster mirror does not harm its original."""
        (own, path), (other, other_path) = _site_and_rest(url), _site_and_rest(original)
        if own == other or path != other_path:
            return False
        self._index()
        found = self._by_site.find(struct.pack("<2Q", _site_number(own), _site_number(other)))
        first, others_first = struct.unpack("<2I", found)
        return bool(first < others_first)

    def is_first_of_shape(self, url: str, copy_of: tuple[str, int | None] | None) -> bool:
        """Whether a page is the first copy of another page of its host among the URLs of its shape, in this run: such
        as the page of a language without a translation. copy_of: the URL of the other page, None for no copy.

        A shape has at most one for each page of its host, so it ends by itself. A copy of a page of its own shape does
        not count, nor does one that differs only in its query: sites make these endlessly.
        """
        if copy_of is None:
            return False
        (host, path), (other, other_path) = map(_host_and_path, (url, copy_of[0]))
        shape = shape_of(path)
        if host != other or path == other_path or shape == shape_of(other_path):
            return False
        return self._is_first(f"{host}{shape}\n{copy_of[0]}")

    def is_first_of_host(self, url: str, copy_of: tuple[str, int | None] | None) -> bool:
        """Whether a page is the first copy on its host of a page of another host, in this run. copy_of: as above.

        A mirror consists of these, and so does an original whose copy was met first. A host has one for each page of
        another at most, so it ends by itself.
        """
        if copy_of is None:
            return False
        host, other = (_host_and_path(one)[0] for one in (url, copy_of[0]))
        return host != other and self._is_first(f"{host}\n{copy_of[0]}")

    def _is_first(self, told: str) -> bool:
        """Whether a copy is the first one of its name, which is noted while there is room."""
        number = _site_number(told)
        if number in self._first_copies or len(self._first_copies) >= self._pages_max:
            return False
        self._first_copies.add(number)
        return True

    def repeats(self, wording: int | None) -> bool:
        """Whether a page with this `wording_of` was seen before, in this run; the first ones of a run are known."""
        return wording is not None and self._is_known(self._wordings, wording)

    def says_nothing_new(self, url: str, page: Page, near: str | None) -> bool:
        """Whether a page that is not an exact copy repeats another one. near: the URL of the page that it is a near
        copy of, or None.

        A near copy with figures that its host did not have before, in this run, is new: that of another day, of
        another product. Except if it has the path of its original on another host: a mirror counts its own visitors.
        """
        if near is None:
            return self._kin.repeats(url, page)
        (own, path), (other, other_path) = map(_site_and_rest, (url, near))
        if own != other and path == other_path:
            return True
        figures = figures_of(page, url)
        return not figures or self._is_known(self._figures, _site_number(f"{own}\n{figures}"))

    def _is_known(self, numbers: set[int], number: int) -> bool:
        """Whether a number is among these, which it joins while there is room."""
        if number in numbers:
            return True
        if len(numbers) < self._pages_max:
            numbers.add(number)
        return False

    def _url(self, index: kernels.Index, lacks: dict[int, int], number: int) -> str | None:
        found = index.find(struct.pack("<Q", number))
        row = int.from_bytes(found, "little") if found != _NO_ROW else lacks.get(number)
        return None if row is None else self._texts[self._ends[row] : self._ends[row + 1]].decode()


def _note(index: kernels.Index, rows: dict[int, int]) -> None:
    """Adds rows for the values that the index does not contain."""
    values = struct.pack(f"<{len(rows)}Q", *rows)
    found = index.find(values)
    if found != _NO_ROW * len(rows):
        places = enumerate(rows.items())
        rows = {value: row for place, (value, row) in places if found[4 * place : 4 * place + 4] == _NO_ROW}
        values = struct.pack(f"<{len(rows)}Q", *rows)
    if rows:
        index.add(values, struct.pack(f"<{len(rows)}I", *rows.values()))


def _pages(lines: Iterable[bytes]) -> Iterator[_Page]:
    """Yields the pages in lines of `pages.jsonl` that others may be copies of."""
    decoder = msgspec.json.Decoder(_PageFields)
    for octets in lines:
        try:
            line = decoder.decode(octets)
            # Values of an earlier version have no number of shingles.
            simhash = int(line.simhash, 16) if line.simhash and line.shingles else 0
        except (msgspec.DecodeError, ValueError):
            continue
        digest = octets_of(line.content_digest or line.digest)
        if line.outcome in _ORIGINALS and digest is not None and 0 <= simhash < 2**64:
            yield line.url, digest, simhash, line.shingles or 0


def _number(digest: bytes) -> int:
    return int.from_bytes(digest[:8], "little")


def _site_and_rest(url: str) -> tuple[str, str]:
    """Scheme and authority of a canonical URL, and what follows."""
    end = url.find("/", url.find("://") + 3)
    return (url, "") if end < 0 else (url[:end], url[end:])


def _host_and_path(url: str) -> tuple[str, str]:
    """Host with its port, and path without parameters, of a canonical URL."""
    site, rest = _site_and_rest(url)
    return site.partition("://")[2], rest.partition("?")[0].partition(";")[0]


def _site_number(site: str) -> int:
    return _number(hashlib.blake2b(site.encode(), digest_size=8).digest())


def octets_of(digest: str | None) -> bytes | None:
    """The bytes of a digest as it is written (`sha1:` and base 32)."""
    if digest is None or not digest.startswith("sha1:"):
        return None
    try:
        return base64.b32decode(digest.removeprefix("sha1:"))
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class Copy:
    """A page that is a copy: `distance` bits of its SimHash differ, None for the very same bytes."""

    url: str
    distance: int | None


def lines_of(directory: str) -> Iterator[bytes]:
    """Yields the lines of `pages.jsonl` of a crawl. Raises NoCrawlError without the file."""
    path = os.path.join(directory, FILES[PAGES])
    if not os.path.exists(path):
        raise no_crawl(directory, inspect(directory, GIVE_A_CRAWL))
    return whole_lines(path)


class _CopyFields(msgspec.Struct):
    url: str
    outcome: str
    duplicate_of: str | None = None
    distance: int | None = None


def clusters(lines: Iterable[bytes], url: str | None = None) -> Iterator[tuple[str, list[Copy]]]:
    """Returns the pages with copies, in the order of their first copy, each with its copies; with a `url` those that it
    belongs to. The last line of a URL counts."""
    decoder = msgspec.json.Decoder(_CopyFields)
    originals: dict[str, tuple[str, int | None]] = {}
    for octets in lines:
        try:
            line = decoder.decode(octets)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        originals.pop(line.url, None)
        if line.duplicate_of is not None and len(originals) < DUPLICATES_LISTED_MAX:
            originals[line.url] = (line.duplicate_of, line.distance)
    found: dict[str, list[Copy]] = {}
    for copy, (original, distance) in originals.items():
        seen = {copy}
        # A page near a near copy belongs to the cluster of the first; the distance is that to the page it was met by.
        while original in originals and original not in seen:
            seen.add(original)
            original = originals[original][0]
        found.setdefault(original, []).append(Copy(copy, distance))
    for original, copies in found.items():
        if url is None or url == original or any(one.url == url for one in copies):
            yield original, copies
