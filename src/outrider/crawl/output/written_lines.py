"""The lines of `pages.jsonl` that a crawl or workers wrote, for commands that read them again."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from outrider.archive import WarcPlace
from outrider.crawl.output.line_fields import item_lines
from outrider.crawl.output.output import FILES, whole_lines
from outrider.crawl.output.output import PAGES as PAGES_STREAM
from outrider.crawl.setup.directory import ARCHIVE_NAME, CLUSTER_FOLDER, WORKER_FOLDER, store_of
from outrider.errors import DamagedStoreError, NamedPathError, SettingsError
from outrider.storage.files import Directory

if TYPE_CHECKING:
    from outrider.crawl.output.report_log import LogContent


class LineFiles:
    """One line file of several directories. Each pass reads the same lines, also while a crawl runs: a file is read up
    to the length that it had at first."""

    def __init__(self, directories: Sequence[str], stream: str) -> None:
        self._stream = stream
        self._reports = {directory: _reports(directory) for directory in directories}
        self._lengths = {directory: _length(self._path(directory)) for directory in directories}

    def raw(self) -> Iterator[tuple[str, bytes]]:
        """Yields the lines as bytes, with their directories."""
        for directory in self._reports:
            for line in self._raw_of(directory):
                yield directory, line

    def _raw_of(self, directory: str) -> Iterator[bytes]:
        """Yields the lines of one directory. For a worker, first the lines that it noted as written, then the lines of
        its reports."""
        path, reports, length = self._path(directory), self._reports[directory], self._lengths[directory]
        lsn = 0
        if reports is not None:
            length, lsn = reports.state.projections.get(self._stream, (0, 0))
        elif os.path.isdir(folder := os.path.join(directory, CLUSTER_FOLDER)):
            length = _noted_by_node(folder, self._stream)
        try:
            yield from whole_lines(path, length)
        except OSError as error:
            raise NamedPathError(f"{path} cannot be read ({error.strerror})") from None
        if reports is not None:
            yield from (line for _, line in reports.lines(self._stream, lsn))

    def _path(self, directory: str) -> str:
        return os.path.join(directory, FILES[self._stream])


class PageLines(LineFiles):
    """The lines of `pages.jsonl` of several directories, each token once."""

    def __init__(self, directories: Sequence[str]) -> None:
        super().__init__(directories, PAGES_STREAM)

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        """Yields the lines as objects. With several directories, a line names its WARC file with its
        directory."""
        for directory, line in self._each():
            folder = os.path.join(directory, ARCHIVE_NAME, "")
            yield with_archive_in(line, folder) if len(self._reports) > 1 else line

    def _each(self) -> Iterator[tuple[str, dict[str, Any]]]:
        decoder = msgspec.json.Decoder(dict[str, Any])
        tokens: set[int] = set()
        for directory in self._reports:
            for number, octets in enumerate(self._raw_of(directory), 1):
                try:
                    line = decoder.decode(octets)
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    raise NamedPathError(
                        f"{self._path(directory)}, line {number} is not a JSON object ({error})"
                    ) from None
                token = line.get("token")
                if isinstance(token, int):
                    if token in tokens:
                        continue
                    tokens.add(token)
                yield directory, line

    def items(self) -> Iterator[Mapping[str, Any]]:
        """Yields the lines of the items of all pages, each once."""
        return items_of_pages(line for _, line in self._each())


def items_of_pages(pages: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yields the lines of the items of pages."""
    for line in pages:
        if "items" in line:
            yield from map(msgspec.json.decode, item_lines(msgspec.json.encode(line)))


def with_archive_in(line: Mapping[str, Any], prefix: str) -> Mapping[str, Any]:
    """Returns a page whose WARC files have a prefix before their names."""
    place = line.get("warc")
    return {**line, "warc": _prefixed(place, prefix)} if isinstance(place, Mapping) else line


def _prefixed(place: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    found = {**place, "file": f"{prefix}{place.get('file')}"}
    payload = place.get("payload")
    return {**found, "payload": _prefixed(payload, prefix)} if isinstance(payload, Mapping) else found


def _length(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0  # a missing file has no lines; another fault shows when the file is opened


def _noted_by_node(folder: str, stream: str) -> int:
    """Returns the noted length of a line file of a node. Later lines may be pages that another node fetches again."""
    from outrider.cluster.written_places import Places

    files = Directory(folder, create=False, read_only=True)
    try:
        return Places(files, ()).projection(stream)[0]
    finally:
        files.close()


def _reports(directory: str) -> LogContent | None:
    """Returns the reports of a worker; None in a crawl's directory. Raises SettingsError for reports without an answer:
    whether their lines count is not known here."""
    folder = os.path.join(directory, WORKER_FOLDER)
    if not os.path.isdir(folder):
        if not os.path.isdir(os.path.join(directory, CLUSTER_FOLDER)):
            store_of(directory)
        return None
    from outrider.crawl.output.report_log import read_reports  # with the client of a server, which only workers need

    files = Directory(folder, create=False, read_only=True)
    try:
        kept = read_reports(files)
    finally:
        files.close()
    if kept.unanswered:
        raise SettingsError(
            f"{directory} has reports that its server did not answer; get the answers with `outrider work ADDRESS -o "
            f"{shlex.quote(directory)}`"
        )
    return kept


def place_of(line: Mapping[str, Any], url: str, path: str) -> WarcPlace:
    """Returns the place in the archive that a line of the file `path` names. Raises DamagedStoreError for an edited
    line."""
    try:
        place = msgspec.convert(line["warc"], WarcPlace)
        for one in (place, place.payload):
            if one is not None and not _is_inside(one):
                raise msgspec.ValidationError("it is outside the archive")
    except msgspec.ValidationError as error:
        raise DamagedStoreError(
            f"{path}: the line of {url} names no place in the archive ({error}); "
            f"`outrider verify {os.path.dirname(path)}` lists all damage"
        ) from None
    return place


def _is_inside(place: WarcPlace) -> bool:
    return place.file not in ("", ".", "..") and "/" not in place.file and min(place.offset, place.length) >= 0
