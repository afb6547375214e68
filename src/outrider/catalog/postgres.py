"""A catalog in PostgreSQL 15 or later, by asyncpg. Rows and position are stored in one transaction.

`page_content` is partitioned by the month of `fetched_at`. PostgreSQL accepts only unique keys with that column, so the
primary key is (id, fetched_at), and fetches are unique by (fetch_id, fetched_at): the line of a fetch always has the
same time. A row without a partition for its month would be refused, so the months of each batch and the next ones are
made before it. There is no default partition: PostgreSQL refuses to detach a month concurrently from a table that has
one. A month is made as a table and attached: the lock for that permits others to read and write rows.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from typing import Any, Final, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

import asyncpg

from outrider.catalog.address import shown_address
from outrider.catalog.destination import (
    CatalogAccessError,
    CatalogError,
    CatalogInUseError,
    FullCatalogError,
    Stored,
    UnavailableCatalogError,
)
from outrider.catalog.line_file import Position
from outrider.catalog.merging import set_by_visit, update_by_list
from outrider.catalog.rows import Batch, ContentRow, ListedUrl, RobotsRow, VisitRow
from outrider.catalog.schema import PAGE_CONTENT, POSITION_TABLE, SCHEMA_VERSION, TABLES, URLS, CellKind, Table
from outrider.errors import OutriderError, SettingsError
from outrider.limits import CATALOG_COMMAND_SECONDS, CATALOG_CONNECT_SECONDS, CATALOG_MONTHS_AHEAD

Answer = TypeVar("Answer")
_TYPES: Final = {
    CellKind.KEY: "bigint",
    CellKind.HASH: "bytea",
    CellKind.TEXT: "text",
    CellKind.WHOLE: "bigint",
    CellKind.REAL: "double precision",
    CellKind.INSTANT: "timestamptz",
    CellKind.JSON: "jsonb",
}
_MONTH: Final = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])")
_POSITION: Final = """CREATE TABLE outrider_position (
    one integer PRIMARY KEY CHECK (one = 1),
    schema_version integer NOT NULL,
    lines bigint NOT NULL,
    length bigint NOT NULL,
    chain text NOT NULL,
    urls_as_of text NOT NULL,
    cut_values bigint NOT NULL,
    unreadable_lines bigint NOT NULL)"""
_STAGED: Final = """CREATE TEMPORARY TABLE outrider_staged (
    row integer, url_hash bytea, url text, host text, host_hash bigint, depth bigint, source bytea, discovered_at
    timestamptz, priority double precision, last_fetched_at timestamptz, next_fetch_at timestamptz, fetch_count bigint,
    last_status_code bigint, last_content_hash text, last_simhash bigint, content_length bigint, content_type text,
    state text)"""
"""One connection's own table for the rows of `urls` of a batch, as they arrive by COPY."""
_VISIT_COLUMNS: Final = (
    *("row", "url_hash", "url", "host", "host_hash", "depth", "source", "priority", "last_fetched_at", "fetch_count"),
    *("last_status_code", "last_content_hash", "last_simhash", "content_length", "content_type", "state"),
)
_LISTED_COLUMNS: Final = (
    *("row", "url_hash", "url", "host", "host_hash", "depth", "source", "discovered_at", "priority"),
    *("last_fetched_at", "next_fetch_at", "last_status_code", "state"),
)
_NEW_COLUMNS: Final = (
    *("id", "url_hash", "url", "normalized_url", "host", "host_hash", "depth", "source_url_id", "priority"),
    *("last_fetched_at", "fetch_count", "last_status_code", "last_content_hash", "last_simhash", "content_length"),
    *("content_type", "state"),
)
_UPDATE_VISITS: Final = f"""UPDATE urls SET
    {set_by_visit("n", "(SELECT s.id FROM urls s WHERE s.url_hash = n.source)")}
    FROM outrider_staged n WHERE urls.url_hash = n.url_hash"""  # noqa: S608 - constants
_UPSERT_LISTED: Final = f"""INSERT INTO urls (url_hash, url, normalized_url, host, host_hash, depth, source_url_id,
    discovered_at, priority, last_fetched_at, next_fetch_at, last_status_code, fetch_count, state)
    SELECT n.url_hash, n.url, n.url, n.host, n.host_hash, n.depth, s.id, n.discovered_at, n.priority, n.last_fetched_at,
    n.next_fetch_at, n.last_status_code, 0, n.state
    FROM outrider_staged n LEFT JOIN urls s ON s.url_hash = n.source ORDER BY n.row
    {update_by_list("IS DISTINCT FROM")}"""  # noqa: S608 - constants
_UPSERT_ROBOTS: Final = """INSERT INTO robots_cache VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
    ON CONFLICT (host) DO UPDATE SET fetched_at = excluded.fetched_at, expires_at = excluded.expires_at,
    status_code = excluded.status_code, content = excluded.content, parsed_rules = excluded.parsed_rules,
    crawl_delay = excluded.crawl_delay, sitemaps = excluded.sitemaps, error_message = excluded.error_message"""
_SOURCES_OF_THE_SAME_BATCH: Final = """UPDATE urls u SET source_url_id = s.id FROM outrider_staged n
    JOIN urls s ON s.url_hash = n.source WHERE u.url_hash = n.url_hash AND u.source_url_id IS NULL"""


def table_statements(table: Table) -> Iterator[str]:
    """Yields the statements that make a table and its indexes."""
    partition = "fetched_at" if table is PAGE_CONTENT else ""
    cells = []
    for column in table.columns:
        default = f" DEFAULT nextval('{table.name}_id_seq')" if column.kind is CellKind.KEY else ""
        cells.append(f"{column.name} {_TYPES[column.kind]}{' NOT NULL' if column.needed else ''}{default}")
    for names in ((table.names[0],), *((name,) for name in table.unique)):
        kind = "PRIMARY KEY" if names[0] == table.names[0] else "UNIQUE"
        cells.append(f"{kind} ({', '.join((*names, partition) if partition else names)})")
    if table.columns[0].kind is CellKind.KEY:
        yield f"CREATE SEQUENCE {table.name}_id_seq"
    yield f"CREATE TABLE {table.name} ({', '.join(cells)})" + (
        f" PARTITION BY RANGE ({partition})" if partition else ""
    )
    if table.columns[0].kind is CellKind.KEY:
        yield f"ALTER SEQUENCE {table.name}_id_seq OWNED BY {table.name}.id"
    for name in table.indexed:
        yield f"CREATE INDEX {table.name}_{name} ON {table.name} ({name}) WHERE {name} IS NOT NULL"


def next_month(month: str, count: int = 1) -> str:
    """Returns the month after `2026-12`, or a later one."""
    number = int(month[:4]) * 12 + int(month[5:]) - 1 + count
    return f"{number // 12:04d}-{number % 12 + 1:02d}"


class PostgresCatalog:
    """A catalog in one schema of a database. An event loop of its own runs in the calling thread."""

    def __init__(self, address: str, *, connect_seconds: float = CATALOG_CONNECT_SECONDS) -> None:
        self._address = address
        self._name = shown_address(address)
        self._connect_seconds = connect_seconds
        self._runner: asyncio.Runner | None = None
        self._connection: Any = None
        self._months: set[str] = set()
        self._secrets = _secrets_of(address)

    @property
    def name(self) -> str:
        return self._name

    def open(self, *, anew: bool = False) -> Stored:
        self.close()
        with self._explained(), ExitStack() as undo:
            undo.callback(self.close)
            stored = self._run(self._opened(anew))
            undo.pop_all()
            return stored

    def append(self, batch: Batch, before: Position, after: Position) -> None:
        with self._explained():
            try:
                self._run(self._appended(batch, before, after))
            except asyncpg.CheckViolationError:  # a month was detached meanwhile
                self._months.clear()
                self._run(self._appended(batch, before, after))

    def refresh(self, urls: Sequence[ListedUrl], robots: Sequence[RobotsRow], as_of: str | None) -> None:
        with self._explained():
            self._run(self._refreshed(urls, robots, as_of))

    def make_months(self, months: Iterable[str]) -> None:
        """Makes the partitions of these months (`2026-10`) and of the next ones, where they are missing."""
        with self._explained():
            self._run(self._make_months(months))

    def detach(self, month: str) -> list[str]:
        """Detaches the partitions of a month (`2026-10`) while others read and write. Returns the names of the tables
        that they are now. Raises SettingsError for another text, CatalogError and its kin."""
        if not _MONTH.fullmatch(month):
            raise SettingsError(f"month {month!r:.40}: use YYYY-MM, such as 2026-10")
        with self._explained():
            return self._run(self._detached(month))

    def settle(self) -> None:
        """Does nothing: each batch is a transaction of its own."""

    def restart_list(self) -> None:
        """Does nothing: a list changes only the rows that it names."""

    def close(self) -> None:
        if self._connection is not None and self._runner is not None:
            self._connection.terminate()  # every transaction has ended, or is to be undone
        self._connection = None
        if self._runner is not None:
            self._runner.close()
            self._runner = None

    def _run(self, work: Awaitable[Answer]) -> Answer:
        if self._runner is None:
            self._runner = asyncio.Runner()

        async def waited() -> Answer:
            return await work

        return self._runner.run(waited())

    # -- opening ------------------------------------------------------------------------------------------------------

    async def _opened(self, anew: bool) -> Stored:
        self._connection = connection = await asyncpg.connect(
            self._address,
            timeout=self._connect_seconds,
            command_timeout=CATALOG_COMMAND_SECONDS,
            # The position is in the same transaction, so a crash loses both or neither, and the lines are stored again.
            server_settings={"application_name": "outrider", "synchronous_commit": "off", "timezone": "UTC"},
        )
        await self._check_server(connection)
        async with connection.transaction():
            # Two commands that begin at the same time make the tables once.
            await connection.execute("SELECT pg_advisory_xact_lock(hashtext('outrider catalog'))")
            await self._check_tables(connection)
            if anew:
                for name in (POSITION_TABLE, *(table.name for table in reversed(TABLES))):
                    await connection.execute(f"DROP TABLE IF EXISTS {name}")
            if await connection.fetchval("SELECT to_regclass('outrider_position')") is None:
                for text in (*(text for table in TABLES for text in table_statements(table)), _POSITION):
                    await connection.execute(text)
                await connection.execute(
                    "INSERT INTO outrider_position VALUES (1, $1, 0, 0, '', '', 0, 0)", SCHEMA_VERSION
                )
            row = await connection.fetchrow(
                "SELECT lines, length, chain, urls_as_of, cut_values, unreadable_lines FROM outrider_position"
            )
        await connection.execute(_STAGED + " ON COMMIT DELETE ROWS")
        self._months.clear()
        if row is None:
            raise CatalogError(f"{self._name} lost its position; `--anew` makes its tables again from the first line")
        return Stored(Position(*row[:3]), *row[3:])

    async def _check_server(self, connection: Any) -> None:
        version = connection.get_server_version()
        if version.major < 15:
            raise CatalogError(f"{self._name} is PostgreSQL {version.major}; use 15 or later")
        encoding = await connection.fetchval("SHOW server_encoding")
        if encoding != "UTF8":
            raise CatalogError(
                f"the database of {self._name} has encoding {encoding}; make one by `createdb --encoding UTF8 "
                "--template template0 NAME`"
            )

    async def _check_tables(self, connection: Any) -> None:
        """Raises CatalogError for tables that are not ours, or of a later release."""
        if await connection.fetchval("SELECT to_regclass('outrider_position')") is not None:
            version = await connection.fetchval("SELECT max(schema_version) FROM outrider_position")
            if version is not None and version > SCHEMA_VERSION:
                raise CatalogError(
                    f"{self._name} has schema {version}, and this release writes {SCHEMA_VERSION}; use the release "
                    "that made it, or another database"
                )
            return
        for table in TABLES:
            if await connection.fetchval("SELECT to_regclass($1)", table.name) is not None:
                raise CatalogError(
                    f"{self._name} has a table {table.name} of another program; use another database, or another "
                    "schema by `?search_path=NAME` at the end of the address"
                )

    # -- months -------------------------------------------------------------------------------------------------------

    async def _make_months(self, months: Iterable[str]) -> None:
        """Makes the partitions of these months and of the next ones, in transactions of their own."""
        wanted = set(months)
        wanted |= {next_month(max(wanted), count) for count in range(1, CATALOG_MONTHS_AHEAD + 1)} if wanted else set()
        for month in sorted(wanted - self._months):
            async with self._connection.transaction():
                await self._connection.execute("SELECT pg_advisory_xact_lock(hashtext('outrider catalog'))")
                if not await self._partitions(month):
                    await self._make_month(month)
            self._months.add(month)

    async def _make_month(self, month: str) -> None:
        base = f"page_content_{month.replace('-', '_')}"
        name, number = base, 1
        while await self._connection.fetchval("SELECT to_regclass($1)", name) is not None:
            number += 1  # the month was detached before, and its table is kept
            name = f"{base}_{number}"
        await self._connection.execute(
            f"CREATE TABLE {name} (LIKE page_content INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING INDEXES)"
        )
        bounds = f"FROM ('{month}-01 00:00:00+00') TO ('{next_month(month)}-01 00:00:00+00')"
        await self._connection.execute(f"ALTER TABLE page_content ATTACH PARTITION {name} FOR VALUES {bounds}")

    async def _partitions(self, month: str) -> list[str]:
        """Returns the tables of a month, also one whose detaching was interrupted."""
        rows = await self._connection.fetch(
            "SELECT c.oid::regclass::text AS name FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid "
            "WHERE i.inhparent = 'page_content'::regclass AND c.relname ~ $1 ORDER BY c.relname",
            f"^page_content_{month.replace('-', '_')}(_[0-9]+)?$",
        )
        return [str(row["name"]) for row in rows]

    async def _detached(self, month: str) -> list[str]:
        names = await self._partitions(month)
        if not names:
            raise CatalogError(f"{self._name} has no attached month {month}; `\\d+ page_content` in psql lists them")
        for name in names:
            pending = await self._connection.fetchval(
                "SELECT inhdetachpending FROM pg_inherits WHERE inhrelid = $1::text::regclass", name
            )
            how = "FINALIZE" if pending else "CONCURRENTLY"
            await self._connection.execute(f"ALTER TABLE page_content DETACH PARTITION {name} {how}")
        return names

    # -- rows ---------------------------------------------------------------------------------------------------------

    async def _appended(self, batch: Batch, before: Position, after: Position) -> None:
        connection = self._connection
        assert connection is not None, "open comes first"
        await self._make_months({page.fetched_at[:7] for page in batch.pages})
        async with connection.transaction():
            moved = await connection.fetchval(
                "UPDATE outrider_position SET lines = $1, length = $2, chain = $3, cut_values = cut_values + $4, "
                "unreadable_lines = unreadable_lines + $5 WHERE length = $6 AND chain = $7 RETURNING 1",
                *(after.lines, after.length, after.chain, batch.cut, batch.unreadable, before.length, before.chain),
            )
            if moved is None:
                raise CatalogInUseError(f"{self._name} was changed meanwhile; end the other `outrider catalog`")
            ids = await self._visited(batch.visits)
            await connection.copy_records_to_table(
                PAGE_CONTENT.name, records=_page_cells(batch.pages, ids), columns=PAGE_CONTENT.names[1:]
            )

    async def _visited(self, visits: Sequence[VisitRow]) -> dict[bytes, int]:
        """Changes the rows of known URLs and adds those of new ones. Returns the ids of all URLs and known sources.

        New rows are copied into the table itself, several times as fast as an INSERT with ON CONFLICT. The lock of the
        position keeps other writers of this catalog out, so that a new URL stays new."""
        connection = self._connection
        hashes = {one.key.hash for one in visits} | {one.source for one in visits if one.source is not None}
        known = await connection.fetch("SELECT url_hash, id FROM urls WHERE url_hash = ANY($1::bytea[])", list(hashes))
        ids: dict[bytes, int] = {row[0]: row[1] for row in known}
        new = [one for one in visits if one.key.hash not in ids]
        old = [one for one in visits if one.key.hash in ids]
        if old:
            rows = ((row, *one.key, *one[1:4], _time(one.fetched_at), *one[5:]) for row, one in enumerate(old))
            await connection.copy_records_to_table("outrider_staged", records=rows, columns=_VISIT_COLUMNS)
            await connection.execute(_UPDATE_VISITS)
        if new:
            numbers = await connection.fetch("SELECT nextval('urls_id_seq') FROM generate_series(1, $1)", len(new))
            ids |= {one.key.hash: row[0] for one, row in zip(new, numbers, strict=True)}
            cells = (_url_cells(ids, one) for one in new)
            await connection.copy_records_to_table(URLS.name, records=cells, columns=_NEW_COLUMNS)
        return ids

    async def _refreshed(self, urls: Sequence[ListedUrl], robots: Sequence[RobotsRow], as_of: str | None) -> None:
        connection = self._connection
        assert connection is not None, "open comes first"
        async with connection.transaction():
            # The same lock as of a batch: an order of locks that is always equal cannot end in a deadlock.
            await connection.execute("SELECT 1 FROM outrider_position FOR UPDATE")
            rows = (
                (
                    *(row, *one.key, one.depth, one.source, _time(one.discovered_at), one.priority),
                    *(_time(one.fetched_at), _time(one.next_fetch_at), one.status, one.state),
                )
                for row, one in enumerate(urls)
            )
            await connection.copy_records_to_table("outrider_staged", records=rows, columns=_LISTED_COLUMNS)
            await connection.execute(_UPSERT_LISTED)
            await connection.execute(_SOURCES_OF_THE_SAME_BATCH)
            await connection.executemany(
                _UPSERT_ROBOTS, [(row[0], _time(row[1]), _time(row[2]), *row[3:]) for row in robots]
            )
            if as_of is not None:
                await connection.execute("UPDATE outrider_position SET urls_as_of = $1", as_of)

    # -- errors -------------------------------------------------------------------------------------------------------

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Raises errors of the server and of the connection as ours, without any password."""
        try:
            yield
        except OutriderError:
            raise
        except asyncpg.PostgresError as error:
            wrong, way_out = _reason(error.sqlstate or "")
            raise wrong(f"{self._name} ({self._without_secrets(error)}); {way_out}") from None
        except (OSError, TimeoutError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
            text = self._without_secrets(error) or type(error).__name__
            if isinstance(error, ValueError):  # a part of the address, or a value
                raise CatalogError(f"{self._name} ({text}); correct the address") from None
            raise UnavailableCatalogError(f"{self._name} ({text}); start the server, or check the address") from None

    def _without_secrets(self, error: BaseException) -> str:
        text = " ".join(str(error).split())
        for secret in self._secrets:
            text = text.replace(secret, "hidden")
        return text


def _url_cells(ids: Mapping[bytes, int], one: VisitRow) -> tuple[object, ...]:
    key = one.key
    source = ids.get(one.source) if one.source is not None else None
    return (
        *(ids[key.hash], key.hash, key.url, key.url, key.host, key.host_hash, one.depth, source, one.priority),
        *(_time(one.fetched_at), *one[5:]),
    )


def _page_cells(pages: Iterable[ContentRow], ids: dict[bytes, int]) -> Iterator[tuple[object, ...]]:
    for page in pages:
        yield (
            *(ids[page.url], *page[1:12], _time(page.fetched_at)),
            *(_time(page.http_date), _time(page.last_modified)),
        )


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _secrets_of(address: str) -> list[str]:
    """Returns the passwords of an address, as written and as meant, the longest first."""
    parts = urlsplit(address)
    user, _, written = parts.netloc.rpartition("@")[0].partition(":")
    query = [value for name, values in parse_qs(parts.query).items() if "pass" in name for value in values]
    return sorted({one for one in (written, unquote(written), *query) if one and one != user}, key=len, reverse=True)


_WRITABLE: Final = "use a role that may make and change tables there"
_REASONS: Final[tuple[tuple[str, Callable[[str], OutriderError], str], ...]] = (
    ("28", CatalogAccessError, "check the user, and its password in PGPASSWORD or ~/.pgpass"),
    ("3D000", CatalogAccessError, "make the database with `createdb`, or name another one"),
    ("3F000", CatalogError, "make the schema with `CREATE SCHEMA`, or name another one"),
    ("42501", CatalogError, _WRITABLE),
    ("25006", CatalogError, f"the server or the role only reads; {_WRITABLE}"),
    ("53", FullCatalogError, "free space or connections there"),
    ("58", UnavailableCatalogError, "check the disk of the server"),
    ("08", UnavailableCatalogError, "start the server"),
    ("57", UnavailableCatalogError, "start the server"),
    ("40", CatalogInUseError, "end the other program"),
    ("55", CatalogInUseError, "end the other program"),
)
"""The error and the way out for codes of PostgreSQL that begin so (its Appendix A)."""


def _reason(code: str) -> tuple[Callable[[str], OutriderError], str]:
    for begin, wrong, way_out in _REASONS:
        if code.startswith(begin):
            return wrong, way_out
    return CatalogError, "see the reason"
