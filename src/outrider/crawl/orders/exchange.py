"""Export and import: a frontier's records to a file and back with their states; lists of URLs into a frontier.

An import makes calls of `IMPORT_ROWS_AT_ONCE`. Each is durable when it returns and harmless when it is repeated, so
an import that was killed can be run again. Request ids are not used: the seen-set contains the URLs added before. A
stored answer would also be returned after a wider scope or a deleted crawl, and then no URL would be added.
"""

from __future__ import annotations

import os
import shlex
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain, groupby, islice
from typing import Any, Final, TextIO

import msgspec

from outrider.archive.sorted_lines import SortedLines
from outrider.cluster.description import is_cluster_file
from outrider.crawl.output.counter import Counter
from outrider.crawl.output.sealed_pages import SealedPages
from outrider.crawl.output.summary import counted
from outrider.crawl.output.tabular import (
    FRONTIER,
    ITEMS,
    PAGES,
    READ,
    SITEMAPS,
    URLS,
    WRITTEN,
    Read,
    form_of,
    in_batches,
    read_records,
    write_records,
    write_table,
)
from outrider.crawl.output.written_lines import PageLines
from outrider.crawl.questions.captures import (
    ARCHIVES,
    INDEX_FILE,
    Capture,
    Fault,
    captures_of,
    form_of_archive,
    links_of_record,
    record_of_captures,
    records_of,
)
from outrider.crawl.questions.crawl_queries import ask_owner, changing
from outrider.crawl.questions.import_pages import archive_beside, is_final, is_line, links_of, record_of
from outrider.crawl.questions.import_urlfrontier import is_item, record_of_item
from outrider.crawl.run.sitemaps import link_of
from outrider.crawl.setup.directory import store_of
from outrider.engine import Frontier
from outrider.errors import (
    DamagedStoreError,
    InvalidUrlError,
    NamedPathError,
    SettingsError,
    StoreFullError,
    StoreInUseError,
)
from outrider.journey import Code, State
from outrider.limits import (
    CAPTURES_PER_URL_MAX,
    IMPORT_FAULTS_NAMED_MAX,
    IMPORT_ROWS_AT_ONCE,
    SITEMAP_BYTES_MAX,
    URL_BYTES_MAX,
)
from outrider.page import read_sitemap
from outrider.storage.files import Directory, is_no_space
from outrider.url import normalize

IMPORTED: Final = "imported"
QUEUED_SITEMAPS: Final = "sitemaps queued"
LINKS: Final = "links"
MERGED: Final = "earlier captures"
_encode: Final = msgspec.json.Encoder().encode
WITHOUT_LINKS: Final = "without_their_links"
_STATES: Final = frozenset(state.value for state in State if state is not State.UNKNOWN)


def export(directories: Sequence[str], path: str, what: str, talk: TextIO) -> int:
    """Writes the records of the frontier (or the lines of pages.jsonl) to a file. Returns the number of records.

    The pages of several directories become one list, each token once. Reports of workers decide which lines count. The
    file of a cluster names the pages that all of its nodes have sealed in object storage.

    A running crawl writes the frontier itself. Raises SettingsError, StoreError; StoreInUseError for a frontier whose
    owner does not answer.
    """
    form_of(path, WRITTEN)
    counter = Counter(talk, "exported")
    clusters = [one for one in directories if is_cluster_file(one)]
    if clusters and (what == "frontier" or len(directories) > 1):
        raise SettingsError(
            f"{clusters[0]} is the file of a cluster: export its pages or items (--what pages) by themselves; "
            f"`outrider urls {shlex.quote(clusters[0])}` lists its URLs"
        )
    if what != "frontier":
        pages = SealedPages(clusters[0]) if clusters else PageLines(directories)
        if what == "pages":
            write_table(path, pages.__iter__, PAGES, counter.add)
        else:
            write_table(path, pages.items, ITEMS, counter.add)
    else:
        if len(directories) > 1:
            raise SettingsError(f"{len(directories)} directories: export the frontier of one directory at a time")
        (directory,) = directories
        store = store_of(directory)
        try:
            frontier = Frontier.look(store)
        except StoreInUseError as owned:
            counter.add(ask_owner(directory, owned, "export", path=os.path.abspath(path))["count"])
            counter.end(f" to {path}")
            return counter.total
        try:
            write_records(path, frontier.records(), FRONTIER, counter.add)
        finally:
            frontier.close()
    counter.end(f" to {path}")
    return counter.total


@dataclass(slots=True)
class Imported:
    """The answers to the rows of all files: `rows` is the sum of `codes` and `skipped`. `damaged` counts damaged places
    in files of web archives, among those that are skipped."""

    rows: int = 0
    codes: dict[str, int] = field(default_factory=dict)
    """The number of rows with each answer. `imported` counts rows that are new in the frontier."""
    faults: list[tuple[str, int | str, str]] = field(default_factory=list)
    """(file, line or place in words, fault) of the first unusable rows."""
    skipped: int = 0
    damaged: int = 0

    def fault(self, path: str, place: int | str, words: str) -> None:
        """Notes an unusable row."""
        self.skipped += 1
        self.name(path, place, words)

    def name(self, path: str, place: int | str, words: str) -> None:
        """Notes a remark about a row."""
        if len(self.faults) < IMPORT_FAULTS_NAMED_MAX:
            self.faults.append((path, place, words))

    def note(self, code: str, count: int = 1) -> None:
        """Counts rows that got this answer."""
        self.codes[code] = self.codes.get(code, 0) + count


def import_files(directory: str, paths: Sequence[str], talk: TextIO) -> Imported:
    """Adds the rows of the files to the frontier of `directory`, which is created if it is missing.

    Rows that cannot be used are counted and named. Raises SettingsError for a file that cannot be read, before any row
    is added, and StoreError.
    """
    for path in paths:
        if os.path.isdir(path):
            raise NamedPathError(f"{path!r} is a directory; name a file, or a JOBDIR of Scrapy that has requests.queue")
        if form_of_archive(path) is None:
            form_of(path, (*READ, *ARCHIVES))
        try:
            with open(path, "rb"):
                pass
        except OSError as error:
            raise NamedPathError(f"{path!r} cannot be read ({error.strerror}); name a readable file") from None
    found = Imported()
    counter = Counter(talk, "read")
    with changing(directory, create=True) as frontier:
        for path in paths:
            if form_of_archive(path) is None:
                take_file(frontier, path, found, counter)
        archives = [path for path in paths if form_of_archive(path) is not None]
        if archives:
            take_archives(frontier, archives, directory, found, counter)
    counter.end(f" from {counted(len(paths), 'file')}")
    return found


def take_file(frontier: Frontier, path: str, found: Imported, counter: Counter) -> None:
    """Imports one file, batch by batch."""
    form = form_of(path, READ)
    if form in SITEMAPS:
        _take_sitemap(frontier, path, found, counter)
        return
    urls = form == URLS
    rows = read_records(path, FRONTIER)
    if not urls:
        begun, sample = _begin_of(rows)
        if is_line(sample):
            _take_lines(frontier, path, found, counter)
            return
        rows = chain(begun, rows)
        if is_item(sample):
            _take_items(frontier, rows, path, found, counter)
            return
    for batch in in_batches(rows):
        found.rows += len(batch)
        good = _usable(batch, path, found, states=not urls)
        if urls:
            _discover(frontier, good, path, found)
        else:
            _restore(frontier, good, path, found)
        counter.add(len(batch))


def _begin_of(rows: Iterator[Read]) -> tuple[list[Read], Mapping[str, Any]]:
    """Returns the rows up to the first one that can be read, and that one: it shows what a file contains."""
    begun = []
    for read in islice(rows, IMPORT_ROWS_AT_ONCE):
        begun.append(read)
        if read.record is not None:
            return begun, read.record
    return begun, {}


def take_archives(frontier: Frontier, paths: Sequence[str], folder: str, found: Imported, counter: Counter) -> None:
    """Imports files of web archives: all captures of a URL together, in the order of their times; then the links of
    captured pages. folder: for temporary files."""
    try:
        with closing(SortedLines(folder)) as lines:
            for path in paths:
                for capture in captures_of(path):
                    found.rows += 1
                    counter.add(1)
                    if isinstance(capture, Fault):
                        found.damaged += capture.is_damage
                        found.fault(path, capture.place, capture.why)
                    else:
                        lines.add(b"%b\0%020d\0%b\n" % (capture.url.encode(), capture.at, _encode(capture)))
            for batch in in_batches(_merged_captures(lines, found)):
                _restore(frontier, batch, paths[0] if len(paths) == 1 else counted(len(paths), "archive"), found)
        for path in paths:
            if form_of_archive(path) != INDEX_FILE:
                _take_archived_links(frontier, path, found)
    except OSError as error:
        if is_no_space(error):
            raise StoreFullError(f"{folder}: {error.strerror}; free space and run the same command again") from None
        raise


def _merged_captures(lines: Iterable[bytes], found: Imported) -> Iterator[Read]:
    """Yields the record of each URL. Of more captures than `CAPTURES_PER_URL_MAX` the last ones count."""
    decode = msgspec.json.Decoder(Capture).decode
    for url, same in groupby(lines, lambda line: line.partition(b"\0")[0]):
        captures: deque[Capture] = deque(maxlen=CAPTURES_PER_URL_MAX)
        count = 0
        for line in same:
            captures.append(decode(line.split(b"\0", 2)[2]))
            count += 1
        if count > 1:
            found.note(MERGED, count - 1)
        yield Read(url.decode(), record_of_captures(list(captures)))


def _take_archived_links(frontier: Frontier, path: str, found: Imported) -> None:
    """Adds the links of the captured pages of a file that the scope of the crawl has."""
    for record in records_of(path):
        if isinstance(record, Fault):  # it was named before
            continue
        links = links_of_record(record[1])
        if links:
            new = sum(code is Code.NEW for code in frontier.discover(links))
            if new:
                found.note(LINKS, new)


def _take_sitemap(frontier: Frontier, path: str, found: Imported, counter: Counter) -> None:
    """Imports a sitemap or feed: its pages become seeds, in the order of their priorities. The sitemaps of an index are
    queued for the next run of the crawl. The user vouches for the file, so it may name pages of any host."""
    with open(path, "rb") as file:
        body = file.read(SITEMAP_BYTES_MAX + 1)
    if len(body) > SITEMAP_BYTES_MAX:
        raise NamedPathError(f"{path!r} has more than {SITEMAP_BYTES_MAX:,} bytes, the limit of a sitemap; split it")
    sitemap = read_sitemap(body, "")
    for problem in sitemap.problems:
        found.rows += 1
        found.fault(path, 1, f"it is not a sitemap: {problem}" if sitemap.kind == "error" else problem)
    for first in range(0, len(sitemap.entries), IMPORT_ROWS_AT_ONCE):
        links = [link_of(entry) for entry in sitemap.entries[first : first + IMPORT_ROWS_AT_ONCE]]
        found.rows += len(links)
        for code in frontier.discover(links):
            found.note(IMPORTED if code is Code.NEW else str(code))
        counter.add(len(links))
    for first in range(0, len(sitemap.children), IMPORT_ROWS_AT_ONCE):
        some = [child.url for child in sitemap.children[first : first + IMPORT_ROWS_AT_ONCE]]
        found.rows += len(some)
        for code in frontier.queue_errands("sitemap", some):
            found.note(QUEUED_SITEMAPS if code is Code.NEW else str(code))
        counter.add(len(some))


def _take_lines(frontier: Frontier, path: str, found: Imported, counter: Counter) -> None:
    """Imports a file of pages in three passes: finished URLs first, then the rest, because a URL may
    have lines of both kinds; then the links of the archived pages, when all seeds are known."""
    for final in (True, False):
        rows = (read for read in read_records(path, PAGES) if _is_final(read) is final)
        for batch in in_batches(rows):
            found.rows += len(batch)
            made = [
                Read(read.place, record_of(read.record)) if read.record and is_line(read.record) else read
                for read in batch
            ]
            _restore(frontier, _usable(made, path, found, states=True), path, found)
            counter.add(len(batch))
    with archive_beside(path) as files:
        rows = (read for read in read_records(path, PAGES) if read.record and _is_final(read))
        for read in rows:
            _take_links(frontier, read, files, path, found)


def _take_items(frontier: Frontier, rows: Iterator[Read], path: str, found: Imported, counter: Counter) -> None:
    """Imports the lines of a URLFrontier's `DumpURLs`."""
    for batch in in_batches(rows):
        found.rows += len(batch)
        good = []
        for read in batch:
            try:
                if read.fault:
                    raise SettingsError(read.fault)
                good.append(Read(read.place, record_of_item(read.record or {}, frontier.now())))
            except SettingsError as error:
                found.fault(path, read.place, error.facts)
        _restore(frontier, good, path, found)
        counter.add(len(batch))


def _is_final(read: Read) -> bool:
    line = read.record or {}
    return is_line(line) and is_final(line)


def _take_links(frontier: Frontier, read: Read, files: Directory | None, path: str, found: Imported) -> None:
    """Adds the links of a line's page."""
    try:
        links = links_of(read.record or {}, files, path)
    except FileNotFoundError:
        links = None
    except DamagedStoreError as error:
        found.note(WITHOUT_LINKS)
        found.name(path, read.place, f"its links are not added: {error.facts}")
        return
    if links is None:
        found.note(WITHOUT_LINKS)
    elif links:
        codes = frontier.discover(links)
        new = sum(code is Code.NEW for code in codes)
        if new:
            found.note(LINKS, new)


def _usable(batch: Sequence[Read], path: str, found: Imported, *, states: bool) -> list[Read]:
    good = []
    for read in batch:
        fault = read.fault or _fault(read.record or {}, states=states)
        if fault:
            found.fault(path, read.place, fault)
        else:
            good.append(read)
    return good


def _fault(record: Mapping[str, Any], *, states: bool) -> str:
    """Returns the fault of a record, as far as it shows before the frontier sees the record; "" for a good record."""
    url = record.get("url")
    if not isinstance(url, str):
        return "it has no url"
    if len(url) > _WRITTEN_BYTES_MAX:
        return f"url has {len(url):,} characters; a URL may have {URL_BYTES_MAX:,} bytes at most"
    try:
        normalize(url)
    except InvalidUrlError as error:
        return error.facts
    if not states:
        return ""
    state = record.get("state")
    if not isinstance(state, str) or state not in _STATES:
        return f"unknown state {state!r:.80}: use {', '.join(sorted(_STATES))}"
    for name, kind in FRONTIER.columns.items():
        value = record.get(name)
        if value is not None and not _fits(value, kind):
            return f"{name} is {value!r:.80}, not {_WORDS[kind]}"
    return ""


_WRITTEN_BYTES_MAX: Final = 4 * URL_BYTES_MAX
"""A written URL may be longer than its canonical spelling, by dots and triplets."""
_WORDS: Final = {
    "text": "a text",
    "whole": "a whole number of 64 bits",
    "instant": "a time",
    "real": "a number",
    "truth": "true or false",
    "json": "",
}


def _fits(value: object, kind: str) -> bool:
    if kind == "text":
        return isinstance(value, str)
    if kind == "truth":
        return isinstance(value, bool)
    if kind == "json":
        return True
    if isinstance(value, bool):
        return False
    if kind in ("whole", "instant"):
        return isinstance(value, int) and -(2**63) <= value < 2**63
    return isinstance(value, int | float)


def _discover(frontier: Frontier, good: Sequence[Read], path: str, found: Imported) -> None:
    links = [str((read.record or {})["url"]) for read in good]
    for read, code in zip(good, frontier.discover(links), strict=True):
        if code is Code.INVALID:
            found.fault(path, read.place, "it is not an http or https URL")
            continue
        found.note(IMPORTED if code is Code.NEW else str(code))


def _restore(frontier: Frontier, good: Sequence[Read], path: str, found: Imported) -> None:
    try:
        _count(found, frontier.restore([read.record or {} for read in good]), len(good))
        return
    except (SettingsError, InvalidUrlError):
        pass  # one URL is refused: adding each alone shows which one
    for read in good:
        try:
            _count(found, frontier.restore([read.record or {}]), 1)
        except (SettingsError, InvalidUrlError) as error:
            found.fault(path, read.place, error.facts)


def _count(found: Imported, restored: int, given: int) -> None:
    if restored:
        found.note(IMPORTED, restored)
    if given - restored:
        found.note("known", given - restored)
