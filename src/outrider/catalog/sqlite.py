"""A catalog in SQLite, by Python's own module. Rows and position are stored in one transaction.

The file is in WAL mode, so readers never stop the crawl's writer. `synchronous=NORMAL` may lose the last transactions
in a power cut, with their position: the follower stores those lines again.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from outrider.catalog.destination import (
    CatalogError,
    CatalogInUseError,
    FullCatalogError,
    Stored,
    UnavailableCatalogError,
)
from outrider.catalog.line_file import Position
from outrider.catalog.merging import set_by_visit, update_by_list
from outrider.catalog.rows import Batch, ListedUrl, RobotsRow, VisitRow
from outrider.catalog.schema import POSITION_TABLE, SCHEMA_VERSION, TABLES, URLS, CellKind, Table
from outrider.limits import CATALOG_BUSY_SECONDS

_TYPES: Final = {
    CellKind.KEY: "INTEGER PRIMARY KEY",
    CellKind.HASH: "BLOB",
    CellKind.TEXT: "TEXT",
    CellKind.WHOLE: "INTEGER",
    CellKind.REAL: "REAL",
    CellKind.INSTANT: "TEXT",
    CellKind.JSON: "TEXT",
}
_POSITION: Final = """CREATE TABLE outrider_position (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    schema_version INTEGER NOT NULL,
    lines INTEGER NOT NULL,
    length INTEGER NOT NULL,
    chain TEXT NOT NULL,
    urls_as_of TEXT NOT NULL,
    cut_values INTEGER NOT NULL,
    unreadable_lines INTEGER NOT NULL)"""

_UPSERT_VISIT: Final = f"""INSERT INTO urls (url_hash, url, normalized_url, host, host_hash, depth, source_url_id,
    priority, last_fetched_at, fetch_count, last_status_code, last_content_hash, last_simhash, content_length,
    content_type, state)
    VALUES (?1, ?2, ?2, ?3, ?4, ?5, (SELECT id FROM urls WHERE url_hash = ?6), ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)
    ON CONFLICT (url_hash) DO UPDATE SET{set_by_visit("excluded", "excluded.source_url_id")}"""  # noqa: S608 - constants
_INSERT_PAGE: Final = """INSERT INTO page_content (url_id, fetch_id, raw_content_key, content_length, content_type,
    charset, title, meta_description, canonical_url, language, content_hash, simhash, fetched_at, http_date,
    last_modified)
    VALUES ((SELECT id FROM urls WHERE url_hash = ?1), ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)"""
_UPSERT_LISTED: Final = f"""INSERT INTO urls (url_hash, url, normalized_url, host, host_hash, depth, source_url_id,
    discovered_at, priority, last_fetched_at, next_fetch_at, last_status_code, fetch_count, state)
    VALUES (?1, ?2, ?2, ?3, ?4, ?5, (SELECT id FROM urls WHERE url_hash = ?6), ?7, ?8, ?9, ?10, ?11, 0, ?12)
    {update_by_list("IS NOT")}"""  # noqa: S608 - constants
_UPSERT_ROBOTS: Final = "INSERT OR REPLACE INTO robots_cache VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)"
# The parameters are numbered because executemany passes tuples, and SQLite counts them from 1.


def _visit_cells(visit: VisitRow) -> tuple[object, ...]:
    key = visit.key
    return (key.hash, key.url, key.host, key.host_hash, *visit[1:])


def _listed_cells(one: ListedUrl) -> tuple[object, ...]:
    key = one.key
    return (key.hash, key.url, key.host, key.host_hash, *one[1:])


def table_text(table: Table) -> Iterator[str]:
    """Yields the statements that make a table and its indexes."""
    cells = []
    for column in table.columns:
        kind = _TYPES[column.kind] if column.name != "host" or table is URLS else "TEXT PRIMARY KEY"
        needed = " NOT NULL" if column.needed and column.kind is not CellKind.KEY else ""
        cells.append(f"{column.name} {kind}{needed}")
    cells += [f"UNIQUE ({name})" for name in table.unique]
    yield f"CREATE TABLE {table.name} ({', '.join(cells)})"
    for name in table.indexed:
        yield f"CREATE INDEX {table.name}_{name} ON {table.name} ({name}) WHERE {name} IS NOT NULL"


class SqliteCatalog:
    """A catalog in one file."""

    def __init__(self, path: str, *, busy_seconds: float = CATALOG_BUSY_SECONDS) -> None:
        self._path = path
        self._busy_seconds = busy_seconds
        self._connection: sqlite3.Connection | None = None

    @property
    def name(self) -> str:
        return f"sqlite:{self._path}"

    def open(self, *, anew: bool = False) -> Stored:
        self.close()
        self._check_path()
        with self._explained():
            self._connection = sqlite3.connect(
                self._path, timeout=self._busy_seconds, isolation_level=None, check_same_thread=False
            )
            found = self._connection.execute("PRAGMA journal_mode = WAL").fetchone()
            assert found is not None
            self._connection.execute("PRAGMA synchronous = NORMAL")
            with self._transaction() as connection:
                self._check_tables(connection)
                if anew:
                    for name in (POSITION_TABLE, *(table.name for table in reversed(TABLES))):
                        connection.execute(f"DROP TABLE IF EXISTS {name}")
                self._make_tables(connection)
                return self._stored(connection)

    def _check_path(self) -> None:
        """Raises CatalogError for a path that cannot be a database, with a better reason than SQLite's."""
        folder = os.path.dirname(self._path)
        if not os.path.isdir(folder):
            raise CatalogError(f"the folder of {self.name} does not exist; make {folder} first")
        try:
            mode = os.stat(self._path).st_mode
        except FileNotFoundError:
            if os.path.islink(self._path):
                raise CatalogError(f"{self.name} is a link to a missing file; name the file itself") from None
            return
        except OSError as error:
            raise CatalogError(f"{self.name} cannot be read ({error.strerror}); name another path") from None
        if not stat.S_ISREG(mode):
            what = "a directory" if stat.S_ISDIR(mode) else "not a regular file"
            raise CatalogError(f"{self.name} is {what}; name a file")

    def _check_tables(self, connection: sqlite3.Connection) -> None:
        """Raises CatalogError for tables that are not ours, or of a later release."""
        query = "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')"
        names = {str(name).lower() for (name,) in connection.execute(query)}
        if POSITION_TABLE in names:
            (version,) = connection.execute("SELECT max(schema_version) FROM outrider_position").fetchone()
            if version is not None and version > SCHEMA_VERSION:
                raise CatalogError(
                    f"{self.name} has schema {version}, and this release writes {SCHEMA_VERSION}; use the release that "
                    "made it, or another path"
                )
            return
        foreign = sorted(names & {table.name for table in TABLES})
        if foreign:
            raise CatalogError(
                f"{self.name} has a table {foreign[0]} of another program; name another path, such as one that does "
                "not exist yet"
            )

    def _make_tables(self, connection: sqlite3.Connection) -> None:
        (count,) = connection.execute(
            "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?", (POSITION_TABLE,)
        ).fetchone()
        if count:
            return
        for table in TABLES:
            for text in table_text(table):
                connection.execute(text)
        connection.execute(_POSITION)
        connection.execute("INSERT INTO outrider_position VALUES (1, ?, 0, 0, '', '', 0, 0)", (SCHEMA_VERSION,))

    def _stored(self, connection: sqlite3.Connection) -> Stored:
        row = connection.execute(
            "SELECT lines, length, chain, urls_as_of, cut_values, unreadable_lines FROM outrider_position"
        ).fetchone()
        if row is None:
            raise CatalogError(f"{self.name} lost its position; `--anew` makes its tables again from the first line")
        return Stored(Position(*row[:3]), *row[3:])

    def append(self, batch: Batch, before: Position, after: Position) -> None:
        with self._explained(), self._transaction() as connection:
            moved = connection.execute(
                "UPDATE outrider_position SET lines = ?, length = ?, chain = ?, cut_values = cut_values + ?, "
                "unreadable_lines = unreadable_lines + ? WHERE length = ? AND chain = ?",
                (after.lines, after.length, after.chain, batch.cut, batch.unreadable, before.length, before.chain),
            )
            if moved.rowcount != 1:
                raise CatalogInUseError(f"{self.name} was changed meanwhile; end the other `outrider catalog`")
            connection.executemany(_UPSERT_VISIT, map(_visit_cells, batch.visits))
            connection.executemany(_INSERT_PAGE, batch.pages)

    def refresh(self, urls: Sequence[ListedUrl], robots: Sequence[RobotsRow], as_of: str | None) -> None:
        with self._explained(), self._transaction() as connection:
            connection.executemany(_UPSERT_LISTED, map(_listed_cells, urls))
            connection.executemany(_UPSERT_ROBOTS, robots)
            if as_of is not None:
                connection.execute("UPDATE outrider_position SET urls_as_of = ?", (as_of,))

    def settle(self) -> None:
        """Does nothing: each batch is a transaction of its own."""

    def restart_list(self) -> None:
        """Does nothing: a list changes only the rows that it names."""

    def close(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        connection = self._connection
        assert connection is not None, "open comes first"
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Raises errors of SQLite as ours."""
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            wrong, way_out = _REASONS.get(code, (CatalogError, "see the reason, or name another path"))
            raise wrong(f"{self.name} ({error}); {way_out}") from None


_REASONS: Final[dict[int, tuple[Callable[[str], Exception], str]]] = {
    sqlite3.SQLITE_BUSY: (CatalogInUseError, "close the other program"),
    sqlite3.SQLITE_LOCKED: (CatalogInUseError, "close the other program"),
    sqlite3.SQLITE_FULL: (FullCatalogError, "free some space"),
    sqlite3.SQLITE_IOERR: (UnavailableCatalogError, "check the disk"),
    sqlite3.SQLITE_READONLY: (CatalogError, "make the file and its folder writable, or name another path"),
    sqlite3.SQLITE_PERM: (CatalogError, "make the file and its folder writable, or name another path"),
    sqlite3.SQLITE_CANTOPEN: (CatalogError, "make the file and its folder writable, or name another path"),
    sqlite3.SQLITE_NOTADB: (CatalogError, "it is not a database; name another path"),
    sqlite3.SQLITE_CORRUPT: (CatalogError, "it is damaged; remove it, and it is made again from the first line"),
    sqlite3.SQLITE_TOOBIG: (CatalogError, "a value is longer than SQLite permits"),
}
"""The error and the way out for each primary result code of SQLite."""
