"""The folder of a worker: whether the report log in `work/` knows its output, and how to repair it.

A start of the worker cuts its files where the report log ends. A log that is missing, cut, zeroed or older than the
files would cut pages that count, so a start checks first, and refuses.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from outrider.clock import rfc3339, wall
from outrider.crawl.output.output import ARCHIVE_WRITER, FILES, logged_lines
from outrider.crawl.output.output_recovery import (
    archive_end,
    cut_short,
    first_output,
    line_file_end,
    packed_watermark,
    unknown_place,
    unpacked_watermark,
)
from outrider.crawl.output.report_log import REPORTS_FILE, LogContent, packed, read_reports
from outrider.crawl.setup.directory import FRONTIER_NAME, WORK_FILE, WORKER_FOLDER, worker_of
from outrider.errors import DamagedStoreError, UnknownOutputError
from outrider.limits import OUTPUT_LINE_BYTES_MAX, REPORTS_FILE_BYTES_MAX
from outrider.storage.files import Directory, read_whole, replace
from outrider.storage.losses import Loss

LEASES_FILE: Final = "leases"
"""A line for each lease: token and kind. After a crash, leases without a report are released, as interrupted."""
_TAIL_BYTES_LEAST: Final = 1 << 20  # the least number of bytes at the end of a line file that a repair reads
_REPORTS: Final = f"{WORKER_FOLDER}/{REPORTS_FILE}"


def is_worker(path: str) -> bool:
    """Whether a directory is a worker's: it has a folder `work`, and no frontier of its own."""
    return os.path.isdir(os.path.join(path, WORKER_FOLDER)) and not os.path.lexists(os.path.join(path, FRONTIER_NAME))


@dataclass(frozen=True, slots=True)
class KnownWork:
    """The output that the report log of a worker knows, as `engine.Recovered` has it for a store."""

    kept: LogContent
    leased: int
    """The last token in the file of leases, 0 without any."""

    @property
    def token(self) -> int:
        """The last token under which a record may have been written."""
        tokens: list[int] = [one.token for sent in self.kept.sent for one in sent.outcomes]
        return max([self.leased, *tokens])

    def watermarks(self) -> dict[str, bytes]:
        """As `Frontier.watermarks`."""
        return self.kept.marks()

    def projection(self, stream: str) -> tuple[int, int]:
        """As `Frontier.projection`."""
        return self.kept.state.projections.get(stream, (0, 0))

    def lines(self, stream: str, after: int) -> Iterator[tuple[int, bytes]]:
        """Yields the lines of all reports after `after`, also without an answer: they are in the report log."""
        return self.kept.lines(stream, after, unanswered=True)


def refuse_unknown_output(path: str) -> None:
    """Raises UnknownOutputError if a start of the worker would cut output that its report log does not know, and
    DamagedStoreError for a log that cannot be read. Changes nothing."""
    found = first_output(path)
    if found is None:
        return
    if worker_of(path) is None:
        raise UnknownOutputError(
            f"{_books(path)} is missing or cannot be read, but its output {found} exists; {_ways_out(path)}"
        )
    files = Directory(os.path.join(path, WORKER_FOLDER), create=False, read_only=True)
    try:
        place = unknown_place(path, KnownWork(read_reports(files), _last_leased(files)))
    finally:
        files.close()
    if place is not None:
        raise UnknownOutputError(
            f"the {place} is not in the report log of this worker, which is cut, lost or older; {_ways_out(path)}"
        )


def _books(path: str) -> str:
    return os.path.join(path, WORKER_FOLDER, WORK_FILE)


def _ways_out(path: str) -> str:
    quoted = shlex.quote(path)
    return (
        f"restore the {WORKER_FOLDER} that belongs to it, or rebuild it from the files "
        f"(`outrider repair {quoted}`), or use another directory for the worker with -o"
    )


def _last_leased(files: Directory) -> int:
    """Returns the last token in the file of leases."""
    with contextlib.suppress(FileNotFoundError):
        told = read_whole(files, LEASES_FILE, bytes_max=REPORTS_FILE_BYTES_MAX).decode("ascii", "replace")
        tokens = (line.partition(" ")[0] for line in told.splitlines())
        return max((int(token) for token in tokens if token.isascii() and token.isdigit()), default=0)
    return 0


@dataclass(frozen=True, slots=True)
class Surveyed:
    """The findings about a worker's folder: damaged places, lines that are not records, counts, and why a start would
    refuse the output."""

    damage: tuple[Loss, ...]
    problems: tuple[str, ...]
    counts: dict[str, int]
    unknown: UnknownOutputError | None


def surveyed(path: str) -> Surveyed:
    """Reads the report log of a worker and compares it with its output. Changes nothing. Raises StoreInUseError while
    the worker runs."""
    with _held(path) as files:
        damage: list[Loss] = []
        unknown = None
        counts = {"reports": 0, "unanswered": 0}
        if worker_of(path) is None:
            damage.append(Loss(f"{WORKER_FOLDER}/{WORK_FILE}", 0, 0, "it is missing or cannot be read"))
        try:
            kept = read_reports(files)
        except DamagedStoreError as error:
            damage.append(Loss(_REPORTS, 0, 0, error.facts))
        else:
            counts = {"reports": len(kept.sent), "unanswered": len(kept.unanswered)}
            known = KnownWork(kept, _last_leased(files))
            damage += cut_short(path, known)
            if not damage:
                try:
                    refuse_unknown_output(path)
                except UnknownOutputError as error:
                    unknown = error
        problems: list[str] = []
        for stream, name in FILES.items():
            counts[stream], wrong = _counted(os.path.join(path, name))
            problems += [f"{name}: the line at byte {at:,} is not a record" for at in wrong]
        return Surveyed(tuple(damage), tuple(problems), counts, unknown)


def _counted(path: str) -> tuple[int, list[int]]:
    """Returns the number of lines of a line file, and where the first lines begin that are not records."""
    count, wrong, at = 0, [], 0
    with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
        while line := file.readline(OUTPUT_LINE_BYTES_MAX):
            if line.endswith(b"\n"):  # a torn end is cut by the next start
                count += 1
                with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
                    if isinstance(msgspec.json.decode(line), dict):
                        at += len(line)
                        continue
                wrong.append(at)
            at += len(line)
    return count, wrong[:10]


def mend(path: str) -> tuple[str, tuple[str, ...], tuple[Loss, ...]]:
    """Rebuilds the report log of a worker from its files. All whole lines and records stay. Returns the folder with
    the old log, the files in it, and the losses. Raises DamagedStoreError if the server of the worker is not
    known."""
    if worker_of(path) is None:
        raise DamagedStoreError(
            f"{_books(path)} is missing or cannot be read, so the server that these pages belong to is not known; "
            f"restore a copy of it; `outrider export {shlex.quote(path)} --what pages --to FILE` has the pages"
        )
    with _held(path) as files:
        folder = f"repair-{rfc3339(wall())[:19].replace(':', '').replace('-', '')}Z"
        losses: list[Loss] = []
        damage: list[int] = []
        kept = read_reports(files, damage)
        losses += [Loss(_REPORTS, at, 0, "a line is torn, or fails its checksum") for at in damage]
        if unknown_place(path, KnownWork(kept, _last_leased(files))) is not None:
            losses.append(Loss(_REPORTS, 0, 0, "reports of lines in the files are lost"))
        known = KnownWork(kept, 0)
        state = kept.state
        for stream in FILES:
            tail = 2 * kept.length + _TAIL_BYTES_LEAST
            place, loss = line_file_end(path, stream, known.projection(stream), logged_lines(known, stream, 0), tail)
            state.projections[stream] = place
            losses += [loss] if loss is not None else []
        mark = known.watermarks().get(ARCHIVE_WRITER)
        end, loss = archive_end(path, unpacked_watermark(mark) if mark is not None else None)
        losses += [loss] if loss is not None else []
        if end is not None:
            state.watermarks[ARCHIVE_WRITER] = packed_watermark(end)
        if not losses:
            return "", (), ()
        moved = tuple(name for name in (REPORTS_FILE, LEASES_FILE) if name in files.names())
        for name in moved:
            files.keep_copy(name, folder)
        # Reports stay, answered or not: their lines may not be in the files yet.
        replace(files, REPORTS_FILE, packed(kept))
        return os.path.join(WORKER_FOLDER, folder), moved, tuple(losses)


@contextlib.contextmanager
def known_work(path: str) -> Iterator[KnownWork]:
    """Yields the output that the report log of the worker in `path` knows. Raises StoreInUseError while the worker
    runs, and DamagedStoreError for a log that cannot be read."""
    with _held(path) as files:
        yield KnownWork(read_reports(files), _last_leased(files))


@contextlib.contextmanager
def _held(path: str) -> Iterator[Directory]:
    files = Directory(os.path.join(path, WORKER_FOLDER), create=False)
    try:
        files.lock()
        yield files
    finally:
        files.close()
