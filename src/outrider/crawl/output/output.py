"""The output of a crawl, written in one order: archive, sync, the frontier's fact, then line files that repeat it.

An opening cuts the archive at the watermark in the frontier, and each line file at its synced length. Then it
writes the log's later lines again. So the file has every line once, also after a crash.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from outrider.archive import (
    Exchange,
    Projection,
    Records,
    WarcPlace,
    WarcWriter,
    Watermark,
    read_fields,
    repeated,
)
from outrider.archive.line_index import INDEX_FOLDER, LineIndex
from outrider.clock import ClockFunction, Instant, elapsed, instant
from outrider.crawl.output.line_fields import item_lines
from outrider.crawl.output.output_frontier import OutputFrontier
from outrider.crawl.setup.directory import ARCHIVE_NAME
from outrider.crawl.setup.options import COUNT_MAX, CrawlOptions
from outrider.crawl.setup.version import version
from outrider.errors import LostOutputError, StoreError
from outrider.fetch.codings import codings_of
from outrider.fetch.downloader import Response
from outrider.fetch.response_bytes import payload_of
from outrider.identity.merkle_tree import LineTree, State
from outrider.journey import Line
from outrider.limits import OUTPUT_LINE_BYTES_MAX
from outrider.storage.files import Directory

PAGES: Final = "pages"
POLITENESS: Final = "politeness"
ITEMS: Final = "items"
FILES: Final = {ITEMS: "items.jsonl", PAGES: "pages.jsonl", POLITENESS: "politeness.jsonl"}
"""The line files. Lines of items are made from lines of pages. Their place is noted first, so that the log contains
each page line whose items are not in their file yet."""
CHAIN: Final = {stream: f"{stream} chain" for stream in FILES}
"""The names of the lengths and digests of line files in a store."""
TREE: Final = "politeness tree"
"""The watermark with the state of the tree over the politeness record."""
ARCHIVE_WRITER: Final = "archive"
ARCHIVE_PREFIX: Final = "crawl"
INDEXED: Final = (PAGES, POLITENESS)
"""The line files with an index of URLs and hosts."""
REPLAY_LINES: Final = 10_000  # written at once when a file is extended from the log
LOOK_SECONDS: Final = 1.0  # time between two checks of the files; a check costs some microseconds
NOTE_LINES: Final = 20_000  # after this many lines the files are synced and noted: that bounds the replay


Packed = tuple[Response, Instant, int, bytes | None, str | None]
"""An answer for the archive, its instant, the token of its lease, and the mark of the response that a 304 confirms."""


class Logged(Protocol):
    """The lines of a crawl from a store or from the report log of a worker, and the synced length of the line files."""

    def projection(self, stream: str) -> tuple[int, int]: ...
    def lines(self, stream: str, after: int) -> Iterator[tuple[int, bytes]]: ...


def noted_place(known: Logged, stream: str) -> tuple[int, int]:
    """Returns the length of a line file and the LSN of its last line, as noted. A store of an older release has no
    items: their file begins at the last line of pages."""
    length, lsn = known.projection(stream)
    return (0, known.projection(PAGES)[1]) if stream == ITEMS and not lsn else (length, lsn)


def logged_lines(known: Logged, stream: str, after: int) -> Iterator[tuple[int, bytes]]:
    """Returns the lines of a file after an LSN of the log, as (LSN, line)."""
    return items_of(known.lines(PAGES, after)) if stream == ITEMS else known.lines(stream, after)


def items_of(pages: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """Yields the lines of the items of pages, as (LSN, line)."""
    return ((lsn, item) for lsn, line in pages for item in item_lines(line))


class Output:
    """The archive and the line files of one crawl, used only by the frontier's thread."""

    def __init__(
        self,
        files: Directory,
        frontier: OutputFrontier,
        options: CrawlOptions,
        *,
        clock: ClockFunction = elapsed,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        """note: receives a sentence about an index that cannot be written; a crawl continues without one."""
        self.archive_synced: Instant = 0
        """The duration of all syncs of the archive."""
        self.notes_alone = True
        """Whether it notes its places after many lines by itself."""
        self._clock = clock
        self._note_text = note
        self._is_index_noted = False
        self._frontier = frontier
        self._options = options
        self._projections = {
            stream: Projection(files, name, has_tree=stream == POLITENESS) for stream, name in FILES.items()
        }
        self._owed: dict[str, list[bytes]] = {stream: [] for stream in FILES}
        self._lsn = 0
        self._noted = dict.fromkeys(FILES, 0)
        self._was_cut = False  # since the last note; a length may be the noted one again, with other lines
        self._since_note = 0
        self._places: dict[str, tuple[int, int]] = {}  # device and number of each line file, by its stream
        self._looked_at: Instant = 0
        self._files = files
        self._indexes: dict[str, LineIndex] = {}
        self._archive: WarcWriter | None = None
        self.archived: Watermark | None = None
        """The durable end of the archive that the log has; any thread may read it."""
        self._synced: Watermark | None = None
        self._archive_files: Directory | None = None

    def open(self) -> int:
        """Cuts and replays. Returns the number of lines written again. Raises StoreError."""
        again = 0
        for stream, projection in self._projections.items():
            length, lsn = noted_place(self._frontier, stream)
            noted = self._frontier.watermarks()
            tree = tree_at(length, noted.get(TREE)) if stream == POLITENESS else None
            projection.open_at(length, chain_at(length, noted.get(CHAIN[stream])), tree)
            last = lsn
            for lines, through in _chunks(logged_lines(self._frontier, stream, lsn)):
                projection.append(lines)
                again += len(lines)
                last = through
            if last != lsn:
                projection.sync()
                self._frontier.note_projection(stream, projection.length, last)
                self._note_chain(stream)
            self._lsn = max(self._lsn, last)
            self._noted[stream] = projection.length
            there = os.stat(os.path.join(self._options.output, FILES[stream]), follow_symlinks=False)
            self._places[stream] = (there.st_dev, there.st_ino)
            if stream in INDEXED:
                kept = self._files.open(FILES[stream])
                self._indexes[stream] = LineIndex(self._index_folder, stream, kept, projection.length)
        if self._options.warc:
            known = self._frontier.watermarks().get(ARCHIVE_WRITER)
            info = {"robots": "obey", "http-header-user-agent": self._options.user_agent_sent}
            if self._options.contact:
                info["operator"] = self._options.contact
            self.archived = _watermark(known) if known is not None else None
            self._archive_files = Directory(os.path.join(self._options.output, ARCHIVE_NAME))
            self._archive = WarcWriter.open_at(
                self._archive_files,
                _watermark(known) if known is not None else None,
                prefix=ARCHIVE_PREFIX,
                software=f"Outrider/{version()}",
                random_bytes=os.urandom,
                info=info,
                **_sealing(self._options),
            )
        return again

    def _index_folder(self) -> Directory:
        return Directory(os.path.join(self._options.output, INDEX_FOLDER))

    def packed(self, answers: Sequence[Packed]) -> Sequence[Records | None]:
        """Returns the archive records of answers with a head; None for each without an archive. Any thread may call
        it."""
        if self._archive is None:
            return [None] * len(answers)
        payloads = [payload_of(response) for response, *_ in answers]
        exchanges = [
            Exchange(
                response.url,
                response.address,
                at,
                response.request_head,
                response.head,
                response.body,
                response.truncated,
                token,
                None if response.content is payload else response.content,
                None if payload is response.body else payload,
                confirms,
                preferences,
            )
            for (response, at, token, confirms, preferences), payload in zip(answers, payloads, strict=True)
        ]
        made = self._archive.records_of(exchanges)
        for row, (response, *_) in enumerate(answers):
            if exchanges[row].payload is not None and made[row].head and _is_recoded(response):
                made[row] = made[row]._replace(head=b"")
        return made

    def repeated(self, records: Records, place: WarcPlace) -> Records | None:
        """Returns records that refer to the payload of an earlier response in the archive, None if the record at this
        place has another payload, or is not here any more."""
        assert self._archive_files is not None, "records are packed only for an archive"
        try:
            return repeated(records, read_fields(self._archive_files, place))
        except (FileNotFoundError, StoreError):
            return None

    def keep(self, records: Sequence[Records]) -> list[WarcPlace]:
        """Appends answers to the archive. After StoreFullError, no record was added."""
        if not records:
            return []
        assert self._archive is not None, "records are packed only for an archive"
        return self._archive.add_all(records)

    def sync_archive(self) -> tuple[str, bytes] | None:
        """Makes the kept records durable, and returns the watermark for the report."""
        if self._archive is None:
            return None
        began = self._clock()
        self._archive.sync()
        self.archive_synced += self._clock() - began
        place = self._archive.watermark
        if place is None:
            return None
        self._synced = place
        return ARCHIVE_WRITER, msgspec.json.encode(place)

    def seal(self) -> None:
        """Ends the current file of the archive, at the end of a crawl with object storage. Raises StoreError."""
        if self._archive is None or not self._options.archive:
            return
        self._archive.sync()
        if self._archive.seal():
            place = self._synced = self._archive.watermark
            self._frontier.note_watermark(ARCHIVE_WRITER, msgspec.json.encode(place))
            self.archived = place

    def write(self, lines: Iterable[Line], lsn: int) -> None:
        """Writes the lines that a call of the frontier added. Raises StoreFullError: then the lines are owed until next
        time."""
        if self._archive is not None:
            self.archived = self._synced
        for stream, line in lines:
            self._owed[stream].append(line)
            if stream == PAGES:
                self._owed[ITEMS] += item_lines(line)
        self._lsn = max(self._lsn, lsn)
        self.settle_debts()

    def settle_debts(self) -> None:
        """Writes the lines that are owed. From time to time it notes the lengths of the files in the frontier."""
        self._append_owed()
        if self.notes_alone and self._since_note >= NOTE_LINES:
            self.note()

    def check(self) -> None:
        """Raises LostOutputError if another program removed, replaced or cut a line file or the newest file of the
        archive: further lines would fill a file that cannot be read."""
        self._looked_at = self._clock()
        for stream, projection in self._projections.items():
            self._check(FILES[stream], projection.length, self._places.get(stream))
        place = self._archive.watermark if self._archive is not None else None
        if place is not None and place[1]:  # not of a sealed file
            self._check(os.path.join(ARCHIVE_NAME, place[0]), place[1], None)

    def _check(self, name: str, length: int, known: tuple[int, int] | None) -> None:
        path, output = os.path.join(self._options.output, name), shlex.quote(self._options.output)
        try:
            there = os.stat(path, follow_symlinks=False)
        except OSError as error:
            what = "is gone" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
        else:
            if there.st_size >= length and known in (None, (there.st_dev, there.st_ino)):
                return
            what = "was replaced by another file" if there.st_size >= length else "was cut by another program"
        raise LostOutputError(
            f"{path} {what}; restore the file and run `outrider resume {output}`, or run `outrider repair {output}` "
            "first to continue without it"
        )

    def _append_owed(self) -> None:
        if self._clock() >= self._looked_at + instant(LOOK_SECONDS):
            self.check()
        for stream, owed in self._owed.items():
            if owed:
                self._projections[stream].append(owed)
                self._since_note += len(owed)
                self._owed[stream] = []
        self._advance_indexes()

    def _advance_indexes(self) -> None:
        for stream, index in self._indexes.items():
            index.advance(self._projections[stream].length)
            if index.fault is not None and not self._is_index_noted:
                self._is_index_noted = True
                text = f"the index of {FILES[stream]} is made later ({index.fault}); until then, commands read the file"
                self._note_text(text)

    def note(self) -> None:
        """Syncs the files and notes their lengths in the frontier. Owed lines are written before, or they would count
        as written. Raises StoreFullError, StoreFailedError, LostOutputError."""
        self.check()
        self._append_owed()
        self._since_note = 0
        as_noted = (projection.length == self._noted[stream] for stream, projection in self._projections.items())
        if not self._was_cut and all(as_noted):
            return
        # Every stream notes its place, also one without a new line: otherwise the log after its last line would stay.
        for stream, projection in self._projections.items():
            projection.sync()
            self._frontier.note_projection(stream, projection.length, self._lsn)
            self._noted[stream] = projection.length
            self._note_chain(stream)
        self._was_cut = False

    @property
    def politeness_tree(self) -> LineTree:
        """The tree over the politeness record. After `note`, the log has its state."""
        return self._projections[POLITENESS].tree

    def noted(self) -> dict[str, int]:
        """Returns the length of each line file at the last note."""
        return dict(self._noted)

    def drop(self, is_dropped: Callable[[bytes], bool], after: Mapping[str, int]) -> int:
        """Removes lines from the files that are after these lengths, and lines that are owed. Returns how many. For
        the lines of a partition that another node owns now."""
        count = 0
        for stream, projection in self._projections.items():
            name, noted = FILES[stream], after[stream]
            later = [line.rstrip(b"\n") for line in whole_lines(os.path.join(self._options.output, name), after=noted)]
            kept = [line for line in later if not is_dropped(line)]
            owed = [line for line in self._owed[stream] if not is_dropped(line)]
            count += len(later) - len(kept) + len(self._owed[stream]) - len(owed)
            self._owed[stream] = owed
            if len(kept) == len(later):
                continue
            projection.open_at(noted)
            projection.append(kept)
            self._was_cut = True
            if stream in INDEXED:
                self._indexes[stream].close()
                self._indexes[stream] = LineIndex(self._index_folder, stream, self._files.open(name), noted)
        self._advance_indexes()
        return count

    def _note_chain(self, stream: str) -> None:
        projection = self._projections[stream]
        self._frontier.note_watermark(CHAIN[stream], msgspec.json.encode((projection.length, projection.chain)))
        if stream == POLITENESS:
            self._frontier.note_watermark(TREE, msgspec.json.encode((projection.length, projection.tree.state)))

    def pages(self) -> Iterator[bytes]:
        """Yields the lines of `pages.jsonl`, up to the length at the last sync."""
        path = os.path.join(self._options.output, FILES[PAGES])
        return whole_lines(path, self._noted[PAGES])

    def close(self) -> None:
        """Closes the files. For a clean end, call `note` before."""
        for projection in self._projections.values():
            projection.close()
        for index in self._indexes.values():
            index.close()
        self._indexes.clear()
        if self._archive is not None:
            self._archive.close()
            self._archive = None
        if self._archive_files is not None:
            self._archive_files.close()
            self._archive_files = None


def _sealing(options: CrawlOptions) -> dict[str, Any]:
    """Returns when the files of an archive are sealed, as arguments of its writer."""
    if not options.archive:
        return {}
    return {"roll_bytes": options.seal_bytes, "roll_age": instant(options.seal_seconds)}


def _is_recoded(response: Response) -> bool:
    """Whether an answer has transfer codings other than chunks: programs that replay it undo only these."""
    return any(coding != "chunked" for coding in codings_of(response.headers.get_all("transfer-encoding")))


def whole_lines(path: str, bytes_max: int | None = None, after: int = 0) -> Iterator[bytes]:
    """Yields the lines of a file up to a length in bytes, without an unfinished last line. A missing file has no
    lines. after: bytes to leave out at the beginning."""
    left = bytes_max if bytes_max is not None else COUNT_MAX
    with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
        file.seek(after)
        while left > 0 and (line := file.readline(min(left, OUTPUT_LINE_BYTES_MAX))).endswith(b"\n"):
            left -= len(line)
            yield line


def chain_at(length: int, noted: bytes | None) -> str | None:
    """Returns the digest that a store noted for a line file of this length, None without one."""
    if length == 0:
        return ""
    if noted is None:
        return None
    known, chain = msgspec.json.decode(noted, type=tuple[int, str])
    return chain if known == length else None


def tree_at(length: int, noted: bytes | None) -> LineTree | None:
    """Returns the tree that a store noted for a politeness record of this length, None without one."""
    if noted is None:
        return LineTree() if length == 0 else None
    known, state = msgspec.json.decode(noted, type=tuple[int, State])
    return LineTree(state) if known == length else None


def _watermark(value: bytes) -> Watermark:
    return msgspec.json.decode(value, type=tuple[str, int])


def _chunks(lines: Iterator[tuple[int, bytes]]) -> Iterator[tuple[list[bytes], int]]:
    chunk: list[bytes] = []
    last = 0
    for last, line in lines:
        chunk.append(line)
        if len(chunk) >= REPLAY_LINES:
            yield chunk, last
            chunk = []
    if chunk:
        yield chunk, last
