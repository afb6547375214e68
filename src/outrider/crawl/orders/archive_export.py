"""The archive of a crawl for other tools: an index of its records (CDXJ), or records, index and pages in a file (WACZ).

Only records that the frontier accepted are in these files: records whose token has a line in `pages.jsonl` or in
`politeness.jsonl`. The lines are read first, up to the length that the files have then. A record is durable before its
line, so a running crawl can be exported at any time. Records are copied as they are in the archive, with their gzip
members.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_right
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final, NamedTuple, Protocol, TextIO

import msgspec

from outrider.archive.cdxj import HEAD_BYTES_KEPT, INDEXED, cdxj_line
from outrider.archive.sorted_lines import SortedLines
from outrider.archive.wacz import ARCHIVE_FOLDER, PAGES_FILE, WaczFile, WaczWriter
from outrider.archive.warc import TOKEN_FIELD
from outrider.archive.warc_reader import Damage, ReadRecord, read_records
from outrider.clock import Instant
from outrider.crawl.output.archive_source import ArchiveSource
from outrider.crawl.output.counter import Counter
from outrider.crawl.output.object_list import ObjectList
from outrider.crawl.output.output import PAGES, POLITENESS
from outrider.crawl.output.output_recovery import archive_files
from outrider.crawl.output.summary import counted
from outrider.crawl.output.tabular import json_text, replacing
from outrider.crawl.output.token_set import TokenSet
from outrider.crawl.output.written_lines import LineFiles
from outrider.crawl.setup.directory import ARCHIVE_NAME
from outrider.crawl.setup.version import version
from outrider.errors import DamagedStoreError, NamedPathError, SettingsError
from outrider.journey import Word
from outrider.limits import ARCHIVE_COPY_BYTES, DAMAGE_NAMED_MAX
from outrider.sniffing import declared_type

CDXJ: Final = ".cdxj"
WACZ: Final = ".wacz"
ARCHIVE_FORMS: Final = (CDXJ, WACZ)
_TOKEN: Final = TOKEN_FIELD.lower()
_HTML: Final = frozenset({"text/html", "application/xhtml+xml"})
_WARCINFO: Final = "warcinfo"


@dataclass(slots=True)
class ArchiveExport:
    """The result of an export: records in the index, pages in the list, records of pages that are not in the archive,
    damaged places in it, and sentences about the first of these."""

    path: str
    records: int = 0
    pages: int = 0
    missing: int = 0
    damaged: int = 0
    named: list[str] = field(default_factory=list)

    def name(self, damage: str) -> None:
        """Notes a damaged place."""
        self.damaged += 1
        if len(self.named) < DAMAGE_NAMED_MAX:
            self.named.append(damage)

    @property
    def exit_code(self) -> int:
        """0, or 5 if records are damaged or missing."""
        return DamagedStoreError.exit_code if self.missing or self.damaged else 0


class _CountedLine(msgspec.Struct):
    """The parts of a line that decide whether a record counts."""

    token: int | None = None
    warc: Any = None


class _PageOfList(msgspec.Struct):
    """The parts of a line of `pages.jsonl` that the list of pages needs."""

    url: str
    outcome: str
    fetched_at: str
    depth: int = 0
    status: int | None = None
    content_type: str | None = None
    title: str | None = None
    token: int | None = None
    requested: str | None = None


class _ArchiveFile(Protocol):
    """A file of the archive that is read from its beginning, or from a place."""

    def read(self, size: int, /) -> bytes: ...
    def seek(self, offset: int, /) -> object: ...


class _Accepted(NamedTuple):
    """A record that counts, and the name of its file."""

    file: str
    record: ReadRecord
    token: int | None


class _Archive:
    """The accepted records in the archive of one directory."""

    def __init__(self, directory: str, done: ArchiveExport) -> None:
        """Reads the lines. Raises SettingsError for a directory without a crawl, NamedPathError without an archive."""
        self._folder = os.path.join(directory, ARCHIVE_NAME)
        self.done = done
        # Pages first: the crawl writes their lines before those of its requests, and both lines of a page count.
        self.pages = LineFiles([directory], PAGES)
        requests = LineFiles([directory], POLITENESS)
        here = {name for _, name in archive_files(directory)}
        self._files = sorted(here | set(ObjectList(directory).objects))
        if not os.path.isdir(self._folder):
            raise NamedPathError(
                f"{directory} has no archive (--no-warc); crawl with it: `outrider crawl URL -o DIR` makes one"
            )
        self._source = ArchiveSource(directory)
        self._known: tuple[str, Sequence[int]] = ("", ())
        self.accepted = TokenSet()
        self.waited = TokenSet()
        """The tokens of pages whose records were not read yet."""
        for lines in (self.pages, requests):
            decode = msgspec.json.Decoder(_CountedLine).decode
            for _, octets in lines.raw():
                line = _decoded(decode, octets, directory)
                if line.token is not None and line.token >= 0:
                    self.accepted.add(line.token)
                    if line.warc is not None:
                        self.waited.add(line.token)

    def records(self) -> Iterator[_Accepted]:
        """Yields the records in the order of the archive: of accepted tokens, and those about their files. After
        damage, it goes on at the next record that a line names."""
        for name in self._files:
            begin: int | None = 0
            with self.open(name) as file:
                while begin is not None:
                    file.seek(begin)
                    begin = yield from self._records(name, file, begin)

    def _records(self, name: str, file: _ArchiveFile, begin: int) -> Generator[_Accepted, None, int | None]:
        """Yields records from a place on. Returns the place to go on at after damage, None at the end of the file."""
        last: ReadRecord | None = None  # it counts if no damage in it follows
        for read in read_records(file, HEAD_BYTES_KEPT, begin):
            if last is not None and not (isinstance(read, Damage) and read.offset == last.offset):
                yield from self._counted(name, last)
            last = None
            if isinstance(read, ReadRecord):
                last = read
            elif read.is_end and name == self._files[-1]:  # a record that is being written
                return None
            else:
                self.done.name(f"{os.path.join(self._folder, name)} at byte {read.offset:,}: {read.why}")
                places = self._places(name)
                row = bisect_right(places, read.offset)
                return places[row] if row < len(places) else None
        if last is not None:
            yield from self._counted(name, last)
        return None

    def _counted(self, name: str, record: ReadRecord) -> Iterator[_Accepted]:
        """Yields the record if it counts."""
        token = _token_of(record)
        is_accepted = token is not None and token in self.accepted
        if token is not None and is_accepted and record.kind in INDEXED:
            self.waited.discard(token)
        if is_accepted or record.kind == _WARCINFO:
            yield _Accepted(name, record, token)

    def _places(self, name: str) -> Sequence[int]:
        """Returns the places in a file that the lines of pages name, sorted."""
        if self._known[0] != name:
            decode = msgspec.json.Decoder(_CountedLine).decode
            places = array("Q")
            for _, octets in self.pages.raw():
                place = _decoded(decode, octets, self._folder).warc
                if isinstance(place, dict) and place.get("file") == name and isinstance(place.get("offset"), int):
                    places.append(place["offset"])
            self._known = name, sorted(places)
        return self._known[1]

    @contextmanager
    def open(self, name: str) -> Iterator[_ArchiveFile]:
        """Opens a file of the archive, here or in object storage."""
        path = os.path.join(self._folder, name)
        stored = None if os.path.exists(path) else self._source.stored(name)
        if stored is not None:
            yield stored
            return
        with open(path, "rb", buffering=0) as file:
            yield file

    def finish(self) -> None:
        """Counts the records that no file has."""
        self.done.missing += len(self.waited)


def _decoded(decode: Any, octets: bytes, directory: str) -> Any:
    try:
        return decode(octets)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NamedPathError(f"{directory}: a line of its line files is not as a crawl writes it ({error})") from None


def _token_of(record: ReadRecord) -> int | None:
    text = record.fields.get(_TOKEN, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 20 else None


def archive_form(path: str) -> str | None:
    """Returns the form of an export of the archive by the end of its name; None for another one."""
    ending = os.path.splitext(path)[1].lower()
    return ending if ending in ARCHIVE_FORMS else None


def export_archive(directories: Sequence[str], path: str, talk: TextIO, at: Instant) -> ArchiveExport:
    """Writes the index of the archive of a crawl, or a WACZ with it. Afterwards the file is whole, or as it was before.

    at: wall time, the date of a WACZ. Raises SettingsError, StoreError. Damaged and missing records are named in the
    result, and all others are in the file.
    """
    if len(directories) > 1:
        raise SettingsError(f"{len(directories)} directories: export the archive of one directory at a time")
    done = ArchiveExport(path)
    archive = _Archive(directories[0], done)
    counter = Counter(talk, "exported")
    folder = os.path.dirname(os.path.abspath(path))
    with replacing(path) as file, closing(SortedLines(folder)) as lines:
        if archive_form(path) == CDXJ:
            _write_index(archive, file, lines, counter)
        else:
            _write_wacz(archive, WaczWriter(file, at, f"Outrider {version()}"), lines, counter)
    archive.finish()
    done.records = counter.total
    counter.end(f" to {path}")
    return done


def _write_index(archive: _Archive, file: BinaryIO, lines: SortedLines, counter: Counter) -> None:
    for found in archive.records():
        if found.record.kind in INDEXED:
            lines.add(cdxj_line(found.record, found.file, found.record.offset).encode("ascii"))
            counter.add(1)
    file.writelines(lines)


def _write_wacz(archive: _Archive, writer: WaczWriter, lines: SortedLines, counter: Counter) -> None:
    copied = TokenSet()
    records = archive.records()
    found = next(records, None)
    while found is not None:
        name = found.file
        with writer.file(ARCHIVE_FOLDER + name) as file, archive.open(name) as source:
            copy = _Copy(source, file)
            while found is not None and found.file == name:
                offset = copy.add(found.record)
                if found.record.kind in INDEXED:
                    lines.add(cdxj_line(found.record, name, offset).encode("ascii"))
                    counter.add(1)
                    if found.token is not None:
                        copied.add(found.token)
                found = next(records, None)
            copy.flush()
    about = _write_pages(archive, writer, copied)
    writer.index(lines)
    writer.finish(**about)


class _Copy:
    """Copies records of one file as they are, neighbours together."""

    def __init__(self, source: _ArchiveFile, target: WaczFile) -> None:
        self._source, self._target = source, target
        self._begin = self._end = 0  # the part that is not copied yet
        self._written = 0

    def add(self, record: ReadRecord) -> int:
        """Adds a record. Returns its place in the target."""
        if record.offset != self._end:
            self.flush()
            self._begin = record.offset
        place = self._written + record.offset - self._begin
        self._end = record.offset + record.length
        if self._end - self._begin >= ARCHIVE_COPY_BYTES:
            self.flush()
        return place

    def flush(self) -> None:
        """Copies what was added."""
        self._source.seek(self._begin)
        while self._begin < self._end:
            piece = self._source.read(min(ARCHIVE_COPY_BYTES, self._end - self._begin))
            if not piece:
                raise DamagedStoreError("a file of the archive became shorter during the export; run it again")
            self._target.write(piece)
            self._begin += len(piece)
            self._written += len(piece)


def _write_pages(archive: _Archive, writer: WaczWriter, copied: TokenSet) -> Mapping[str, str]:
    """Writes the list of pages: those with HTML and a record in this file. Returns the page to begin with, as fields of
    the WACZ."""
    decode = msgspec.json.Decoder(_PageOfList).decode
    main: dict[str, str] = {}
    with writer.file(PAGES_FILE, packed=True) as file:
        file.write(json_text({"format": "json-pages-1.0", "id": "pages", "title": "All Pages"}).encode() + b"\n")
        for _, octets in archive.pages.raw():
            page = _decoded(decode, octets, "pages.jsonl")
            if page.token is None or page.token not in copied or not _is_listed(page):
                continue
            url = page.requested or page.url
            line = {"id": str(page.token), "url": url, "ts": page.fetched_at, "title": page.title or url}
            file.write(json_text(line).encode() + b"\n")
            if not main and page.depth == 0:
                main = {"mainPageUrl": url, "mainPageDate": page.fetched_at}
            archive.done.pages += 1
    return main


def _is_listed(page: _PageOfList) -> bool:
    """Whether people may look for a page: it has new content, and that is HTML."""
    word = next((word for word in Word if word == page.outcome), None)
    if word is None or not word.has_content or word is Word.UNCHANGED:
        return False
    return page.title is not None or declared_type(page.content_type or "").essence in _HTML


def lines_of(done: ArchiveExport) -> Iterator[str]:
    """Yields what an export could not write, with the way out."""
    yield from done.named
    if done.damaged > len(done.named):
        yield f"and {done.damaged - len(done.named):,} more damaged places"
    if done.missing:
        yield (
            f"{counted(done.missing, 'record')} of pages.jsonl not in {done.path}; restore the files of the archive "
            "from a copy and run the same command again"
        )
