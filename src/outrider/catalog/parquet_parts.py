"""A catalog of Parquet files in a folder: sealed parts by month, each named by the lines that it contains.

    page_content/month=2026-10/000000000000-000002097123-9f3c….parquet    the visits of these bytes of pages.jsonl
    urls.parquet, robots_cache.parquet                                    the last whole list, replaced by the next one
    position.json                                                         replaced after the parts of its lines

Lines wait in memory until a part is sealed: at a size, at an age, or at the end. The name of a part has the bytes of
`pages.jsonl` that it contains, and the digest of all lines up to its end. A kill between the parts and their position
leaves parts after the position. An opening removes them, and the same lines make the same parts again.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any, Final

import msgspec
import pyarrow
import pyarrow.parquet

from outrider.catalog.destination import CatalogError, CatalogInUseError, FullCatalogError, Stored
from outrider.catalog.line_file import Position
from outrider.catalog.rows import Batch, ContentRow, ListedUrl, RobotsRow
from outrider.catalog.schema import PAGE_CONTENT, ROBOTS_CACHE, SCHEMA_VERSION, URLS, CellKind, TableColumn
from outrider.clock import ClockFunction, Instant, elapsed, instant
from outrider.errors import OutriderError
from outrider.limits import CATALOG_PART_BYTES, CATALOG_PART_SECONDS, CATALOG_POSITION_BYTES_MAX
from outrider.storage.files import is_no_space

POSITION_FILE: Final = "position.json"
_LOCK_FILE: Final = "lock"
_TEMPORARY: Final = ".tmp"
_PART: Final = re.compile(r"([0-9]{12})-([0-9]{12})-[0-9a-f]{16}\.parquet")
_MONTH: Final = re.compile(r"month=[0-9]{4}-[0-9]{2}")
_VISITS: Final = (
    TableColumn("url_hash", CellKind.HASH),
    *PAGE_CONTENT.columns[2:],
)
# Ids, copies, and results of visits, which `page_content` has.
_NOT_LISTED: Final = frozenset(
    ("id", "normalized_url", "fetch_count", "last_content_hash", "last_simhash", "content_length", "content_type")
)
_LISTED: Final = tuple(
    TableColumn("source_url_hash", CellKind.HASH) if column.name == "source_url_id" else column
    for column in URLS.columns
    if column.name not in _NOT_LISTED
)
_LISTS: Final = {"urls": _LISTED, "robots_cache": tuple(ROBOTS_CACHE.columns)}
_TYPES: Final = {
    CellKind.KEY: pyarrow.int64(),
    CellKind.HASH: pyarrow.binary(32),
    CellKind.TEXT: pyarrow.string(),
    CellKind.WHOLE: pyarrow.int64(),
    CellKind.REAL: pyarrow.float64(),
    CellKind.INSTANT: pyarrow.timestamp("us", tz="UTC"),
    CellKind.JSON: pyarrow.string(),
}


class _StoredPlace(msgspec.Struct, frozen=True):
    """The content of position.json."""

    schema_version: int = SCHEMA_VERSION
    lines: int = 0
    length: int = 0
    chain: str = ""
    urls_as_of: str = ""
    cut_values: int = 0
    unreadable_lines: int = 0


def _schema(columns: Sequence[TableColumn]) -> Any:
    return pyarrow.schema([pyarrow.field(one.name, _TYPES[one.kind], nullable=not one.needed) for one in columns])


def _table(columns: Sequence[TableColumn], rows: Sequence[Sequence[object]]) -> Any:
    schema = _schema(columns)
    cells = list(zip(*rows, strict=True)) or [()] * len(columns)
    arrays = [
        pyarrow.array([_time(one) for one in column] if pyarrow.types.is_timestamp(kind) else column, kind)
        for column, kind in zip(cells, schema.types, strict=True)
    ]
    return pyarrow.Table.from_arrays(arrays, schema=schema)


def _time(text: Any) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


class ParquetCatalog:
    """A catalog in one folder. `settle` seals the lines that wait."""

    def __init__(self, path: str, *, clock: ClockFunction = elapsed, part_bytes: int = CATALOG_PART_BYTES) -> None:
        self._path = path
        self._clock, self._part_bytes = clock, part_bytes
        self._place = _StoredPlace()
        self._empty(Position())
        self._lists: dict[str, Any] = {}

    @property
    def name(self) -> str:
        return f"parquet:{self._path}"

    def _empty(self, position: Position) -> None:
        """Drops the lines that wait; the next ones follow `position`."""
        self._waiting: list[ContentRow] = []
        self._position = position
        self._since: Instant | None = None  # when the first of them arrived
        self._cut = self._unreadable = 0

    def open(self, *, anew: bool = False) -> Stored:
        self.close()
        with self._explained():
            os.makedirs(self._path, mode=0o700, exist_ok=True)
            with self._locked():
                place = self._read_place()
                if anew and place is not None:
                    self._remove_parts(0)
                    for name in (*(f"{one}.parquet" for one in _LISTS), POSITION_FILE):
                        with suppress(FileNotFoundError):
                            os.unlink(os.path.join(self._path, name))
                    place = None
                if place is None:
                    place = _StoredPlace()
                    self._write_place(place)
                self._remove_parts(place.length)
        self._place = place
        position = Position(place.lines, place.length, place.chain)
        self._empty(position)
        return Stored(position, place.urls_as_of, place.cut_values, place.unreadable_lines)

    def _read_place(self) -> _StoredPlace | None:
        """Returns the position; None in an empty folder. Raises CatalogError for other content."""
        try:
            with open(os.path.join(self._path, POSITION_FILE), "rb") as file:
                place = msgspec.json.decode(file.read(CATALOG_POSITION_BYTES_MAX), type=_StoredPlace)
        except FileNotFoundError:
            others = sorted(set(os.listdir(self._path)) - {_LOCK_FILE, POSITION_FILE + _TEMPORARY})
            if others:
                raise CatalogError(
                    f"{self.name} contains {others[0]!r:.80} of another program; name a new or an empty folder"
                ) from None
            return None
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise CatalogError(
                f"{self.name} has a damaged {POSITION_FILE}; remove the folder, and start again"
            ) from None
        if place.schema_version > SCHEMA_VERSION:
            raise CatalogError(
                f"{self.name} has schema {place.schema_version}, and this release writes {SCHEMA_VERSION}; use the "
                "release that made it, or another folder"
            )
        return place

    def _write_place(self, place: _StoredPlace) -> None:
        with self._sealing(POSITION_FILE) as path, open(path, "wb") as file:
            file.write(msgspec.json.encode(place) + b"\n")

    @contextmanager
    def _sealing(self, name: str) -> Iterator[str]:
        """Yields a temporary path, and gives the file its name, durably, when the block ends well."""
        path = os.path.join(self._path, name)
        try:
            yield path + _TEMPORARY
            for opened in (path + _TEMPORARY, os.path.dirname(path)):
                descriptor = os.open(opened, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
                if opened != os.path.dirname(path):
                    os.replace(opened, path)
        finally:
            with suppress(OSError):  # after a good end it has the other name
                os.unlink(path + _TEMPORARY)

    def _remove_parts(self, length: int) -> None:
        """Removes parts that begin at `length` or after it, and temporary files."""
        folder = os.path.join(self._path, PAGE_CONTENT.name)
        for month in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
            for name in os.listdir(os.path.join(folder, month)) if _MONTH.fullmatch(month) else ():
                match = _PART.fullmatch(name.removesuffix(_TEMPORARY))
                if match is not None and (int(match[1]) >= length or name.endswith(_TEMPORARY)):
                    os.unlink(os.path.join(folder, month, name))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keeps other processes from sealing parts for the length of a block."""
        descriptor = os.open(os.path.join(self._path, _LOCK_FILE), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    # -- lines --------------------------------------------------------------------------------------------------------

    def append(self, batch: Batch, before: Position, after: Position) -> None:
        if before != self._position:
            raise CatalogInUseError(f"{self.name} was changed meanwhile; end the other `outrider catalog`")
        with self._explained():
            self._check_unmoved()
        self._since = self._clock() if self._since is None else self._since
        self._waiting += batch.pages
        self._position = after
        self._cut, self._unreadable = self._cut + batch.cut, self._unreadable + batch.unreadable
        if self._is_old() or after.length - self._place.length >= self._part_bytes:
            self.settle()

    def _is_old(self) -> bool:
        """Whether lines have waited for so long that their part is sealed."""
        return self._since is not None and self._clock() - self._since >= instant(CATALOG_PART_SECONDS)

    def _check_unmoved(self) -> None:
        if self._read_place() != self._place:
            raise CatalogInUseError(f"{self.name} was changed meanwhile; end the other `outrider catalog`")

    def settle(self) -> None:
        if self._position.length == self._place.length:
            return
        with self._explained(), self._locked():
            self._check_unmoved()
            months: dict[str, list[tuple[object, ...]]] = {}
            for page in self._waiting:
                months.setdefault(page.fetched_at[:7], []).append(page)
            name = f"{self._place.length:012d}-{self._position.length:012d}-{self._position.chain[:16]}.parquet"
            for month, rows in sorted(months.items()):
                folder = os.path.join(PAGE_CONTENT.name, f"month={month}")
                os.makedirs(os.path.join(self._path, folder), mode=0o700, exist_ok=True)
                with self._sealing(os.path.join(folder, name)) as path:
                    pyarrow.parquet.write_table(_table(_VISITS, rows), path, compression="zstd")
            position = self._position
            place = msgspec.structs.replace(
                self._place,
                lines=position.lines,
                length=position.length,
                chain=position.chain,
                cut_values=self._place.cut_values + self._cut,
                unreadable_lines=self._place.unreadable_lines + self._unreadable,
            )
            self._write_place(place)
        self._place = place
        self._empty(position)

    # -- lists --------------------------------------------------------------------------------------------------------

    def refresh(self, urls: Sequence[ListedUrl], robots: Sequence[RobotsRow], as_of: str | None) -> None:
        listed = [(*one.key, *one[1:]) for one in urls]
        with self._explained():
            for name, rows in (("urls", listed), ("robots_cache", robots)):
                if name not in self._lists:
                    path = os.path.join(self._path, f"{name}.parquet{_TEMPORARY}")
                    self._lists[name] = pyarrow.parquet.ParquetWriter(path, _schema(_LISTS[name]), compression="zstd")
                if rows:
                    self._lists[name].write_table(_table(_LISTS[name], rows))
            if as_of is None:
                return
            with self._locked():
                self._check_unmoved()
                for name in list(self._lists):
                    with self._sealing(f"{name}.parquet"):
                        self._lists.pop(name).close()
                place = msgspec.structs.replace(self._place, urls_as_of=as_of)
                self._write_place(place)
        self._place = place
        if self._is_old():  # also if no further lines arrive
            self.settle()

    def restart_list(self) -> None:
        """Drops the pieces of a list that did not end."""
        for name in list(self._lists):
            with suppress(OSError, pyarrow.ArrowException):
                self._lists.pop(name).close()

    def close(self) -> None:
        self.restart_list()
        self._empty(Position())

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Raises errors of files as ours."""
        try:
            yield
        except OutriderError:
            raise
        except (OSError, pyarrow.ArrowException) as error:
            text = f"{self.name} ({getattr(error, 'strerror', None) or error})"
            if isinstance(error, OSError) and is_no_space(error):
                raise FullCatalogError(f"{text}; free some space") from None
            raise CatalogError(f"{text}; make the folder writable, or name another one") from None
