"""A catalog of Parquet files: sealed parts by month, each named by the lines that it contains.

    page_content/month=2026-10/000000000000-000002097123-9f3c….parquet    the visits of these bytes of pages.jsonl
    urls.parquet, robots_cache.parquet                                    the last whole list, replaced by the next one
    position                                                              stored after the parts of its lines

Lines wait in memory until a part is sealed: at a size, at an age, or at the end. The name of a part has the bytes of
`pages.jsonl` that it contains, and the digest of all lines up to its end. A kill between the parts and their position
leaves parts after the position. An opening removes them, and the same lines make the same parts again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any, BinaryIO, Final

import msgspec
import pyarrow
import pyarrow.parquet

from outrider.catalog.destination import CatalogError, CatalogInUseError, Stored
from outrider.catalog.line_file import Position
from outrider.catalog.part_stores import PartStore
from outrider.catalog.rows import Batch, ContentRow, ListedUrl, RobotsRow
from outrider.catalog.schema import PAGE_CONTENT, ROBOTS_CACHE, SCHEMA_VERSION, URLS, CellKind, TableColumn
from outrider.clock import ClockFunction, Instant, elapsed, instant
from outrider.limits import CATALOG_PART_BYTES, CATALOG_PART_SECONDS

_PART: Final = re.compile(
    rf"{PAGE_CONTENT.name}/month=[0-9]{{4}}-[0-9]{{2}}/([0-9]{{12}})-[0-9]{{12}}-[0-9a-f]{{16}}\.parquet(\.tmp)?"
).fullmatch
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
    """The content of a position."""

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
    """A catalog in one store of parts. `settle` seals the lines that wait."""

    def __init__(
        self, store: PartStore, *, clock: ClockFunction = elapsed, part_bytes: int = CATALOG_PART_BYTES
    ) -> None:
        self._store = store
        self._clock, self._part_bytes = clock, part_bytes
        self._place = _StoredPlace()
        self._empty(Position())
        self._lists: dict[str, tuple[BinaryIO, Any]] = {}

    @property
    def name(self) -> str:
        return self._store.name

    def _empty(self, position: Position) -> None:
        """Drops the lines that wait; the next ones follow `position`."""
        self._waiting: list[ContentRow] = []
        self._position = position
        self._since: Instant | None = None  # when the first of them arrived
        self._cut = self._unreadable = 0

    def open(self, *, anew: bool = False) -> Stored:
        self.close()
        with self._store.locked():
            place = self._read_place()
            if anew or place is None:
                place = _StoredPlace()
            # Before the parts are removed: no other process can store a position with them afterwards.
            self._write_place(place)
            self._remove_after(place.length, lists=anew)
        self._place = place
        position = Position(place.lines, place.length, place.chain)
        self._empty(position)
        return Stored(position, place.urls_as_of, place.cut_values, place.unreadable_lines)

    def _read_place(self) -> _StoredPlace | None:
        """Returns the position; None in an empty store. Raises CatalogError for other content."""
        text = self._store.position()
        if text is None:
            other = next(iter(self._store.names()), None)
            if other is not None:
                raise CatalogError(
                    f"{self.name} contains {other!r:.80} of another program; name a new or an empty place"
                )
            return None
        try:
            place = msgspec.json.decode(text, type=_StoredPlace)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise CatalogError(f"{self.name} has a damaged position; remove its files, and start again") from None
        if place.schema_version > SCHEMA_VERSION:
            raise CatalogError(
                f"{self.name} has schema {place.schema_version}, and this release writes {SCHEMA_VERSION}; use the "
                "release that made it, or another place"
            )
        return place

    def _write_place(self, place: _StoredPlace) -> None:
        self._store.put_position(msgspec.json.encode(place) + b"\n")

    def _remove_after(self, length: int, *, lists: bool) -> None:
        """Removes parts that begin at `length` or after it, and temporary files; with `lists` the lists, too."""
        listed = {_list_name(name) for name in _LISTS} if lists else set()
        for name in list(self._store.names()):
            match = _PART(name)
            if name in listed or (match is not None and (int(match[1]) >= length or match[2])):
                self._store.remove(name)

    # -- lines --------------------------------------------------------------------------------------------------------

    def append(self, batch: Batch, before: Position, after: Position) -> None:
        if before != self._position:
            raise self._moved()
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
        if self._store.is_moved():
            raise self._moved()

    def _moved(self) -> CatalogInUseError:
        return CatalogInUseError(f"{self.name} was changed meanwhile; end the other `outrider catalog`")

    def settle(self) -> None:
        if self._position.length == self._place.length:
            return
        position = self._position
        with self._store.locked():
            self._check_unmoved()
            months: dict[str, list[tuple[object, ...]]] = {}
            for page in self._waiting:
                months.setdefault(page.fetched_at[:7], []).append(page)
            part = f"{self._place.length:012d}-{position.length:012d}-{position.chain[:16]}.parquet"
            place = msgspec.structs.replace(
                self._place,
                lines=position.lines,
                length=position.length,
                chain=position.chain,
                cut_values=self._place.cut_values + self._cut,
                unreadable_lines=self._place.unreadable_lines + self._unreadable,
            )
            sealed: list[str] = []
            try:
                for month, rows in sorted(months.items()):
                    name = f"{PAGE_CONTENT.name}/month={month}/{part}"
                    self._seal(name, rows)
                    sealed.append(name)
                self._write_place(place)
            except CatalogInUseError:
                for name in sealed:
                    self._store.remove(name)
                raise
        self._place = place
        self._empty(position)

    def _seal(self, name: str, rows: Sequence[Sequence[object]]) -> None:
        """Writes one part."""
        file = self._store.begin(name)
        try:
            with self._explained():
                pyarrow.parquet.write_table(_table(_VISITS, rows), file, compression="zstd")
            self._store.finish(name, file)
        finally:
            self._store.drop(name, file)

    # -- lists --------------------------------------------------------------------------------------------------------

    def refresh(self, urls: Sequence[ListedUrl], robots: Sequence[RobotsRow], as_of: str | None) -> None:
        listed = [(*one.key, *one[1:]) for one in urls]
        for name, rows in (("urls", listed), ("robots_cache", robots)):
            self._extend(name, rows)
        if as_of is None:
            return
        with self._store.locked():
            self._check_unmoved()
            for name in list(self._lists):
                file, writer = self._lists.pop(name)
                try:
                    with self._explained():
                        writer.close()
                    self._store.finish(_list_name(name), file, replace=True)
                finally:
                    self._store.drop(_list_name(name), file)
            place = msgspec.structs.replace(self._place, urls_as_of=as_of)
            self._write_place(place)
        self._place = place
        if self._is_old():  # also if no further lines arrive
            self.settle()

    def _extend(self, name: str, rows: Sequence[Sequence[object]]) -> None:
        """Writes rows to the end of a list that is not complete yet."""
        if name not in self._lists:
            file = self._store.begin(_list_name(name))
            self._lists[name] = file, pyarrow.parquet.ParquetWriter(file, _schema(_LISTS[name]), compression="zstd")
        if rows:
            with self._explained():
                self._lists[name][1].write_table(_table(_LISTS[name], rows))

    def restart_list(self) -> None:
        """Drops the pieces of a list that did not end."""
        for name in list(self._lists):
            file, writer = self._lists.pop(name)
            with suppress(OSError, pyarrow.ArrowException):
                writer.close()
            self._store.drop(_list_name(name), file)

    def close(self) -> None:
        self.restart_list()
        self._empty(Position())

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Raises errors of the library as ours."""
        try:
            yield
        except OSError as error:
            raise self._store.problem(error) from None
        except pyarrow.ArrowException as error:
            raise CatalogError(f"{self.name} ({error})") from None


def _list_name(name: str) -> str:
    return f"{name}.parquet"
