"""`catalogs`: rows per second of a catalog, against a bare bulk load of the same rows into the same tables and indexes.

A catalog also reads and checks the lines, looks for each URL, and stores its position. The bare load gets finished
rows with their ids: `executemany` for SQLite, COPY for PostgreSQL, in batches of the same size.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

from bench.measuring import CACHE, ROOT
from bench.tables import Table, middle, ratio
from outrider.catalog.destination import Destination
from outrider.catalog.following import Follower, ListPiece
from outrider.catalog.rows import Batch, batch_of
from outrider.catalog.schema import PAGE_CONTENT, URLS
from outrider.catalog.schema import Table as CatalogTable
from outrider.catalog.sqlite import SqliteCatalog
from outrider.clock import elapsed, wall
from outrider.limits import CATALOG_LINES_BYTES_AT_ONCE

PAGES = 40_000
ROUNDS = 3
HOSTS = 500


def tables() -> list[Table]:
    """Returns one row per kind of catalog: rows per second of both, and their ratio."""
    CACHE.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="catalogs-", dir=CACHE))
    try:
        pages = folder / "pages.jsonl"
        size = _write(pages)
        at_once = max(1, CATALOG_LINES_BYTES_AT_ONCE * PAGES // size)
        with pages.open("rb") as file:
            batches = [batch_of(lines) for lines in _pieces((line[:-1] for line in file), at_once)]
        rows = [_row("sqlite", *_sqlite(folder, pages, batches)), *_postgres_rows(pages, batches)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    notes = (
        f"Medians of {ROUNDS} rounds in turns; {PAGES:,} new pages of {HOSTS} hosts, each a row of both tables.",
        "bare: executemany (SQLite) or COPY (PostgreSQL) of finished rows, in the same batches, with the same indexes.",
        "Both commit each batch, without a sync of their own (WAL and synchronous=NORMAL; synchronous_commit=off).",
    )
    columns = ("catalog", "rows/s", "bare rows/s", "share of bare")
    return [Table("catalogs", "Rows per second into a catalog", columns, tuple(rows), notes)]


def _row(kind: str, ours: Sequence[float], bare: Sequence[float]) -> tuple[object, ...]:
    fast, reference = 2 * PAGES / middle(ours), 2 * PAGES / middle(bare)
    return kind, fast, reference, ratio(fast, reference)


def _write(path: Path) -> int:
    with path.open("wb") as file:
        for number in range(PAGES):
            url = f"https://host{number % HOSTS}.example.org/section/{number}.html"
            referrer = f"https://host{number % HOSTS}.example.org/section/{number - HOSTS}.html"
            second = (
                f"{number // 60_000 % 24:02d}:{number // 1_000 % 60:02d}:{number // 17 % 60:02d}.{number % 1_000:03d}"
            )
            line = {
                "url": url,
                "outcome": "done",
                "status": 200,
                "fetched_at": f"2026-10-05T{second}Z",
                "seconds": 0.012,
                "bytes": 12_000 + number,
                "content_type": "text/html; charset=utf-8",
                "digest": f"sha1:{number:032d}",
                "simhash": f"{number * 0x9E3779B97F4A7C15 % (1 << 64):016x}",
                "depth": number // HOSTS % 9,
                "referrer": referrer if number >= HOSTS else None,
                "priority": 0.5,
                "attempt": 1,
                "location": None,
                "title": f"Page {number} of a site about gardens",
                "description": None,
                "canonical": url,
                "charset": "utf-8",
                "language": "en",
                "http_date": "Mon, 05 Oct 2026 10:00:00 GMT",
                "last_modified": None,
                "etag": None,
                "links": 60,
                "token": number + (1 << 40),
                "warc": {"file": "crawl-000000.warc.gz", "offset": 9_000 * number, "length": 8_000},
            }
            file.write(json.dumps(line).encode() + b"\n")
    return path.stat().st_size


def _pieces(lines: Iterator[bytes], count: int) -> Iterator[list[bytes]]:
    while piece := list(islice(lines, count)):
        yield piece


def _followed(pages: Path, catalog: Destination) -> float:
    """Returns the seconds of a catalog for all lines, without the making of its tables."""
    follower = Follower(str(pages), catalog, lambda _: ListPiece((), None), clock=elapsed, wall=wall)
    follower.open()
    began = time.perf_counter()
    assert follower.complete()
    spent = time.perf_counter() - began
    follower.close()
    return spent


def _cells(batches: Sequence[Batch], made: Callable[[str | None], Any]) -> Iterator[tuple[list[Any], list[Any]]]:
    """Yields the finished rows of both tables, batch by batch, with their ids. made: from RFC 3339 to a time."""
    ids: dict[bytes, int] = {}
    count = 0
    for batch in batches:
        urls, contents = [], []
        for one in batch.visits:
            ids[one.key.hash] = number = len(ids) + 1
            source = ids.get(one.source) if one.source is not None else None
            urls.append(
                (
                    *(
                        number,
                        one.key.hash,
                        one.key.url,
                        one.key.url,
                        one.key.host,
                        one.key.host_hash,
                        one.depth,
                        source,
                    ),
                    *(None, one.priority, made(one.fetched_at), None, one.answered, one.status, one.content_hash),
                    *(one.simhash, one.content_length, one.content_type, one.state),
                )
            )
        for page in batch.pages:
            count += 1
            contents.append(
                (
                    *(count, ids[page.url], *page[1:12]),
                    *(made(page.fetched_at), made(page.http_date), made(page.last_modified)),
                )
            )
        yield urls, contents


def _sqlite(folder: Path, pages: Path, batches: Sequence[Batch]) -> tuple[list[float], list[float]]:
    ours, bare = [], []
    finished = list(_cells(batches, lambda text: text))
    for number in range(ROUNDS):
        ours.append(_followed(pages, SqliteCatalog(str(folder / f"ours{number}.db"))))
        path = folder / f"bare{number}.db"
        empty = SqliteCatalog(str(path))
        empty.open()
        empty.close()
        database = sqlite3.connect(path, isolation_level=None)
        database.execute("PRAGMA synchronous = NORMAL")
        began = time.perf_counter()
        for rows in finished:
            database.execute("BEGIN IMMEDIATE")
            for table, some in zip((URLS, PAGE_CONTENT), rows, strict=True):
                database.executemany(_insert(table), some)
            database.execute("COMMIT")
        bare.append(time.perf_counter() - began)
        database.close()
    return ours, bare


def _insert(table: CatalogTable) -> str:
    return f"INSERT INTO {table.name} VALUES ({', '.join('?' * len(table.columns))})"


def _postgres_rows(pages: Path, batches: Sequence[Batch]) -> Iterator[tuple[object, ...]]:
    """Yields the row of PostgreSQL, where it is installed."""
    sys.path.insert(0, str(ROOT / "tests"))
    import pytest

    from outrider.catalog.postgres import PostgresCatalog
    from servers.postgres import PostgresServer, postgres_server

    finished = list(_cells(batches, lambda text: None if text is None else datetime.fromisoformat(text)))

    async def copied(address: str) -> float:
        import asyncpg

        connection = await asyncpg.connect(address, server_settings={"synchronous_commit": "off"})
        began = time.perf_counter()
        for rows in finished:
            async with connection.transaction():
                for table, some in zip((URLS, PAGE_CONTENT), rows, strict=True):
                    await connection.copy_records_to_table(table.name, records=some, columns=table.names)
        spent = time.perf_counter() - began
        await connection.close()
        return spent

    def measured(server: PostgresServer) -> tuple[list[float], list[float]]:
        ours, bare = [], []
        for number in range(ROUNDS):
            ours.append(_followed(pages, PostgresCatalog(server.database(f"ours{number}"))))
            address = server.database(f"bare{number}")
            empty = PostgresCatalog(address)
            empty.open()
            empty.make_months({"2026-10"})
            empty.close()
            bare.append(asyncio.run(copied(address)))
        return ours, bare

    try:
        with postgres_server() as server:
            yield _row("postgresql", *measured(server))
    except pytest.skip.Exception as missing:
        yield f"postgresql ({missing})", None, None, None
