"""Measures one store: `stores_peer.py STORE FOLDER BATCH COUNT ANSWER` puts links twice, new and known."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

URLS_PER_HOST = 20
MAP_BYTES = 1 << 32  # LMDB reserves addresses, not disk

Rows = Sequence[tuple[bytes, bytes]]  # fingerprint of 8 bytes, URL
Put = Callable[[Rows], int]  # returns the number of new links, once they are durable


def rocksdb(folder: Path) -> tuple[Put, Callable[[], None]]:
    from rocksdict import Options, Rdict, WriteBatch, WriteOptions

    options = Options(raw_mode=True)
    options.create_if_missing(True)
    database = Rdict(str(folder), options)
    synced = WriteOptions()
    synced.sync = True

    def put(rows: Rows) -> int:
        known = database.get([key for key, _ in rows])
        new = [row for row, found in zip(rows, known, strict=True) if found is None]
        if new:
            batch = WriteBatch(raw_mode=True)
            for key, url in new:
                batch.put(key, url)
            database.write(batch, synced)
        return len(new)

    return put, database.close


def lmdb(folder: Path) -> tuple[Put, Callable[[], None]]:
    import lmdb as library

    environment = library.open(str(folder), map_size=MAP_BYTES)

    def put(rows: Rows) -> int:
        with environment.begin(write=True) as transaction:
            return sum(transaction.put(key, url, overwrite=False) for key, url in rows)

    return put, environment.close


def sqlite(folder: Path) -> tuple[Put, Callable[[], None]]:
    database = sqlite3.connect(folder / "links.db", isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    database.execute("CREATE TABLE links (fingerprint BLOB PRIMARY KEY, url BLOB) WITHOUT ROWID")

    def put(rows: Rows) -> int:
        before = database.total_changes
        database.execute("BEGIN IMMEDIATE")
        database.executemany("INSERT OR IGNORE INTO links VALUES (?, ?)", rows)
        database.execute("COMMIT")
        return database.total_changes - before

    return put, database.close


def outrider(folder: Path) -> tuple[Callable[[Sequence[str]], int], Callable[[], None]]:
    from outrider import Frontier

    frontier = Frontier.open(folder / "frontier", robots="caller")

    def put(urls: Sequence[str]) -> int:
        return frontier.discover(urls).count("new")

    return put, frontier.close


def timed(put: Callable[[Any], int], calls: Sequence[Any], count: int, new: int) -> tuple[float, float]:
    """Returns the CPU and wall microseconds per URL, with all threads of the process."""
    cpu, wall = time.process_time(), time.perf_counter()
    found = sum(map(put, calls))
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    assert found == new, (found, new)
    return cpu / count * 1e6, wall / count * 1e6


def main(store: str, folder: Path, batch: int, count: int, answer: Path) -> None:
    folder.mkdir(parents=True)
    urls = [f"http://host{row // URLS_PER_HOST}.example.org/section/{row}.html" for row in range(count)]
    rows: Sequence[Any] = urls
    if store != "outrider":
        rows = [(hashlib.blake2b(url.encode(), digest_size=8).digest(), url.encode()) for url in urls]
    calls = [rows[begin : begin + batch] for begin in range(0, count, batch)]
    put, close = globals()[store](folder)
    new = timed(put, calls, count, count)
    known = timed(put, calls, count, 0)
    close()
    size = sum(512 * file.stat().st_blocks for file in folder.rglob("*") if file.is_file())
    answer.write_text(
        json.dumps(
            {
                "new_cpu": new[0],
                "new_wall": new[1],
                "known_cpu": known[0],
                "known_wall": known[1],
                "bytes": size / count,
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), Path(sys.argv[5]))
