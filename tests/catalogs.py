"""Shared by the tests of catalogs: lines of pages.jsonl, and each kind of catalog with a reader that is not ours."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

from outrider.catalog.destination import Destination
from outrider.catalog.part_stores import BucketParts, FolderParts, PartStore
from outrider.catalog.sqlite import SqliteCatalog

SECOND = 1_000_000


class Place(Protocol):
    """A place for one catalog, and what another program reads there."""

    def catalog(self) -> Destination: ...
    def another(self, folder: Path) -> Place: ...
    def rows(self, table: str) -> list[dict[str, Any]]: ...
    def change(self, statement: str) -> None: ...


class SqlitePlace:
    """A database file."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "catalog.db"

    def catalog(self) -> Destination:
        return SqliteCatalog(str(self.path), busy_seconds=0.05)

    def another(self, folder: Path) -> SqlitePlace:
        return SqlitePlace(folder)

    def rows(self, table: str) -> list[dict[str, Any]]:
        connection = sqlite3.connect(self.path)
        connection.row_factory = sqlite3.Row
        try:
            return [dict(row) for row in connection.execute(f"SELECT * FROM {table} ORDER BY 1")]
        finally:
            connection.close()

    def change(self, statement: str) -> None:
        connection = sqlite3.connect(self.path)
        try:
            connection.execute(statement)
            connection.commit()
        finally:
            connection.close()


def line(token: int | None, url: str = "http://a.test/", **more: Any) -> bytes:
    """A line as a crawl writes it, with the fields of `more`."""
    fields = {
        "url": url,
        "outcome": "done",
        "status": 200,
        "fetched_at": f"2026-10-05T10:00:{(token or 0) % 60:02d}.123Z",
        "seconds": 0.01,
        "bytes": 100,
        "content_type": "text/html",
        "digest": "sha1:AAAA",
        "simhash": "8000000000000001",
        "depth": 1,
        "referrer": None,
        "priority": 0.5,
        "attempt": 1,
        "title": "A title",
        "token": token,
        "warc": {"file": "crawl-000000.warc.gz", "offset": 10, "length": 5},
    }
    return json.dumps({**fields, **more}).encode()


def written(path: Path, lines: Iterable[bytes]) -> Path:
    """Writes lines to the end of a file."""
    with path.open("ab") as file:
        file.writelines(line + b"\n" for line in lines)
    return path


def listed(url: str, state: str = "queued", **more: Any) -> dict[str, Any]:
    """A row of the question `urls`."""
    fields = {
        "url": url,
        "state": state,
        "depth": 0,
        "referrer": None,
        "priority": 0.5,
        "due": None,
        "status": None,
        "discovered_at": 1_790_000_000 * SECOND,
        "fetched_at": None,
        "unique_key": None,
    }
    return {**fields, **more}


class ParquetPlace:
    """A folder."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "catalog"

    def catalog(self) -> Destination:
        return self.sealing(clock=lambda: 0)

    def sealing(self, **more: Any) -> Destination:
        """A catalog with other limits of a part."""
        from outrider.catalog.parquet_parts import ParquetCatalog

        return ParquetCatalog(self.store(), **more)

    def store(self) -> PartStore:
        return FolderParts(str(self.path))

    def position(self) -> Path:
        """The file with the newest position."""
        return self.path / "position.json"

    def another(self, folder: Path) -> ParquetPlace:
        return ParquetPlace(folder)

    def parts(self) -> list[Path]:
        return sorted(self.path.rglob("*-*-*.parquet"))

    def rows(self, table: str) -> list[dict[str, Any]]:
        import pyarrow.parquet

        files = self.parts() if table == "page_content" else [self.path / f"{table}.parquet"]
        # `partitioning`: the month is the name of a folder, and no column.
        return [row for file in files for row in pyarrow.parquet.read_table(file, partitioning=None).to_pylist()]

    def change(self, statement: str) -> None:
        """Sets a field of the position, as `SET name = number`."""
        name, number = statement.rpartition("SET ")[2].split(" = ")
        place = self.position()
        place.write_text(json.dumps(json.loads(place.read_text()) | {name: int(number)}))


class ObjectPlace(ParquetPlace):
    """Object storage: a folder through the interface that buckets have, so that its objects are files."""

    def another(self, folder: Path) -> ObjectPlace:
        return ObjectPlace(folder)

    def store(self) -> PartStore:
        return BucketParts(f"file:{self.path}")

    def position(self) -> Path:
        return max(self.path.glob("position/*.json"))


class PostgresPlace:
    """A new database of a running server."""

    made = 0

    def __init__(self, server: Any) -> None:
        PostgresPlace.made += 1
        self._server = server
        self.address = server.database(f"catalog_{PostgresPlace.made}")

    def catalog(self) -> Destination:
        from outrider.catalog.postgres import PostgresCatalog

        return PostgresCatalog(self.address)

    def another(self, _: Path) -> PostgresPlace:
        return PostgresPlace(self._server)

    def rows(self, table: str) -> list[dict[str, Any]]:
        return self._server.rows(self.address, f"SELECT * FROM {table} ORDER BY 1")

    def change(self, statement: str) -> None:
        self._server.execute(self.address, statement)
