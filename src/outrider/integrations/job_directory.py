"""A job directory of Scrapy (JOBDIR): its waiting requests, and the fingerprints of all requests that it has seen.

    requests.queue/active.json      the priorities, written when a spider stops
    requests.queue/[SLOT/]PRIORITY  a queue, last in, first out: size u32, then (pickle, size u32) …; or a SQLite file
    requests.queue/[SLOT/]PRIORITYs a queue of start requests: q00000 … with (size u32, pickle) …, and info.json
    requests.seen                   2.19: (size u16, fingerprint) …; 2.18: lines of hex digits

Integers are big-endian. A spider that was killed leaves no or old counts, and a last record that is not whole. Nothing
in the directory is changed.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import re
import shutil
import sqlite3
import tempfile
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from outrider.errors import SettingsError
from outrider.integrations.pickle_values import Octets, RefusedPickleError, plain_value
from outrider.limits import JOB_CLEAN_SECONDS_MAX, JOB_INFO_BYTES_MAX, JOB_QUEUES_MAX, JOB_REQUEST_BYTES_MAX

_QUEUES, _SEEN, _ACTIVE = "requests.queue", "requests.seen", "active.json"
_PRIORITY: Final = re.compile(r"(-?\d{1,18})(s?)")
_SIZE_BYTES: Final = 4
_SQLITE: Final = b"SQLite format 3\0"
_HEX_PAIR_MIN: Final = 0x3030  # two hex digits as a size: no fingerprint is as long


@dataclass(frozen=True, slots=True)
class StoredRequest:
    """values: what `Request.to_dict` returned, None if `fault` says why it is not usable. place: file and position."""

    place: str
    values: dict[str, Any] | None
    fault: str = ""


def is_job_directory(path: str | Path) -> bool:
    """Whether a directory looks like a JOBDIR."""
    return Path(path, _QUEUES).is_dir() or Path(path, _SEEN).is_file()


@dataclass
class JobDirectory:
    """The content of a JOBDIR. stopped: whether the spider had stopped, and was not killed; it is known when all
    requests were read."""

    path: Path
    stopped: bool = True
    torn: list[str] = field(default_factory=list)
    """The files whose end is not whole."""

    def requests(self) -> Iterator[StoredRequest]:
        """Yields the waiting requests, those of the highest priority first."""
        self.stopped = self._was_closed()
        for path in self._queues():
            yield from self._of_queue(path)

    def seen(self) -> Iterator[bytes]:
        """Yields the fingerprints of all requests that were seen, also of the waiting ones."""
        if not (self.path / _SEEN).is_file():
            return
        with (self.path / _SEEN).open("rb") as file:
            start = file.peek(2)[:2]
            if int.from_bytes(start, "big") >= _HEX_PAIR_MIN:
                while line := file.readline(JOB_INFO_BYTES_MAX):
                    with contextlib.suppress(ValueError):  # a last line that is not whole
                        yield bytes.fromhex(line.decode("ascii", "replace").strip())
                return
            while len(size := file.read(2)) == len(start) == 2:
                fingerprint = file.read(int.from_bytes(size, "big"))
                if len(fingerprint) == int.from_bytes(size, "big"):
                    yield fingerprint

    def _was_closed(self) -> bool:
        """Whether `active.json` was written after everything else."""
        try:
            closed = (self.path / _QUEUES / _ACTIVE).stat().st_mtime
        except FileNotFoundError:
            return False
        with contextlib.suppress(FileNotFoundError):
            return (self.path / _SEEN).stat().st_mtime <= closed + JOB_CLEAN_SECONDS_MAX
        return True

    def _queues(self) -> list[Path]:
        """The files and directories of queues, by priority."""
        root = self.path / _QUEUES
        if not root.is_dir():
            return []
        places = [root, *(one for one in root.iterdir() if one.is_dir() and not _PRIORITY.fullmatch(one.name))]
        found: list[tuple[int, str, Path]] = []
        for place in places:
            for one in place.iterdir():
                named = _PRIORITY.fullmatch(one.name)
                if named:
                    found.append((int(named[1]), named[2], one))
                if len(found) > JOB_QUEUES_MAX:
                    raise SettingsError(f"{root} has more than {JOB_QUEUES_MAX:,} queues; no JOBDIR has so many")
        return [path for _, _, path in sorted(found)]

    def _of_queue(self, path: Path) -> Iterator[StoredRequest]:
        if path.is_dir():
            yield from self._of_chunks(path)
            return
        size = path.stat().st_size
        if size < _SIZE_BYTES:
            self._tear(path)
            return
        with path.open("rb") as file:
            if file.read(len(_SQLITE)) == _SQLITE:
                yield from self._of_database(path)
                return
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as octets:
                yield from self._of_stack(path, octets)

    def _of_stack(self, path: Path, octets: mmap.mmap) -> Iterator[StoredRequest]:
        """The records of a queue that was written last in, first out: backwards, or from the beginning if the end is
        not whole."""
        starts, end = array("Q"), len(octets)
        while end > _SIZE_BYTES:
            start = end - _SIZE_BYTES - int.from_bytes(octets[end - _SIZE_BYTES : end], "big")
            if start < _SIZE_BYTES:
                break
            starts.append(start)
            end = start
        if end != _SIZE_BYTES:
            self._tear(path)
            yield from self._forwards(path, octets)
            return
        if int.from_bytes(octets[:_SIZE_BYTES], "big") != len(starts):
            self.stopped = False
        ends = [len(octets), *starts]
        for start, end in zip(starts, ends, strict=False):
            yield self._of_octets(path, start, octets, end - _SIZE_BYTES - start)

    def _forwards(self, path: Path, octets: mmap.mmap) -> Iterator[StoredRequest]:
        reader = Octets(octets, _SIZE_BYTES)
        while (start := reader.tell()) < len(octets):
            try:
                found = StoredRequest(f"{path} at byte {start}", _request(plain_value(reader)))
            except RefusedPickleError as error:
                found = StoredRequest(f"{path} at byte {start}", None, str(error))
            except ValueError:
                return
            size = reader.tell() - start
            if int.from_bytes(reader.read(_SIZE_BYTES), "big") != size:
                return
            yield found

    def _of_chunks(self, path: Path) -> Iterator[StoredRequest]:
        """The records of a queue that was written first in, first out."""
        told = _info(path / "info.json")
        number, offset = (told["tail"][0], told["tail"][2]) if told else (0, 0)
        if told is None:
            self.stopped = False
        chunks = sorted(one for one in path.iterdir() if re.fullmatch(r"q\d{5,9}", one.name))
        count = 0
        for chunk in chunks:
            this = int(chunk.name[1:])
            if this < number or not chunk.stat().st_size:
                continue
            with chunk.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as octets:
                at = offset if this == number else 0
                while at < len(octets):
                    size = int.from_bytes(octets[at : at + _SIZE_BYTES], "big")
                    at += _SIZE_BYTES
                    if at + size > len(octets):
                        self._tear(chunk)
                        break
                    yield self._of_octets(chunk, at, octets, size)
                    at, count = at + size, count + 1
        if told is not None and told["size"] != count:
            self.stopped = False

    def _of_database(self, path: Path) -> Iterator[StoredRequest]:
        """The records of a queue in SQLite. A copy is read, because SQLite undoes what a kill left in the journal."""
        with tempfile.TemporaryDirectory(prefix="outrider-job-") as directory:
            copy = Path(directory, "queue")
            shutil.copyfile(path, copy)
            journal = path.with_name(path.name + "-journal")
            if journal.is_file():
                shutil.copyfile(journal, copy.with_name("queue-journal"))
            try:
                with contextlib.closing(sqlite3.connect(copy)) as database:
                    database.execute("PRAGMA trusted_schema = OFF")
                    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, JOB_REQUEST_BYTES_MAX)
                    if not database.execute(_TABLE).fetchone():
                        raise sqlite3.DatabaseError("it has no table named queue")
                    for row, item in database.execute("SELECT id, CAST(item AS BLOB) FROM queue ORDER BY id DESC"):
                        yield self._of_octets(path, row, item, len(item))
            except sqlite3.Error as error:
                self.stopped = False
                yield StoredRequest(str(path), None, f"the database cannot be read: {error}")

    def _of_octets(self, path: Path, start: int, octets: Any, size: int) -> StoredRequest:
        place = f"{path}, {'record' if isinstance(octets, bytes) else 'byte'} {start}"
        if size > JOB_REQUEST_BYTES_MAX:
            return StoredRequest(place, None, f"it has {size:,} bytes, and {JOB_REQUEST_BYTES_MAX:,} are possible")
        record = octets if isinstance(octets, bytes) else octets[start : start + size]
        try:
            return StoredRequest(place, _request(plain_value(Octets(record))))
        except ValueError as error:
            return StoredRequest(place, None, str(error))

    def _tear(self, path: Path) -> None:
        self.stopped = False
        self.torn.append(str(path))


_TABLE: Final = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'queue' AND sql NOT LIKE '%GENERATED%'"


def _request(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or not isinstance(value.get("url"), str):
        raise RefusedPickleError("it is not a request: it has no URL")
    if not all(isinstance(name, str) for name in value):
        raise RefusedPickleError("it is not a request: it has names that are not text")
    return value


def _info(path: Path) -> dict[str, Any] | None:
    """Returns the counts of a queue; None if they are missing or damaged."""
    try:
        with path.open("rb") as file:
            told = json.loads(file.read(JOB_INFO_BYTES_MAX))
        numbers = [told["size"], *told["tail"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    if len(numbers) != 4 or not all(type(one) is int and one >= 0 for one in numbers):
        return None
    return dict(told)
