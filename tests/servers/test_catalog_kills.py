"""Kills of a crawl into three catalogs, with a server that stops at once in between: each token is there once."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator

import pytest

from catalogs import ParquetPlace, PostgresPlace
from e2e import crawling
from servers.postgres import PostgresServer, postgres_server

KILLS = 20
STOPPED_AT, STARTED_AT = (4, 11), (7, 15)  # kills after which the server of the database stops, and starts again


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as running:
        yield running


@pytest.mark.timeout(900)
def test_twenty_kills_leave_each_token_once_in_each_catalog(server, tmp_path):
    chance = random.Random(3434)
    place, output, catalog = PostgresPlace(server), tmp_path / "out", tmp_path / "c.db"
    lines, parts = output / "pages.jsonl", ParquetPlace(tmp_path)
    parquet = f"parquet:{parts.path}"
    with crawling.web(tmp_path / "web", hosts=24, pages=1_500, quirks=True) as web:
        catalogs = ["--catalog", place.address, "--catalog", f"sqlite:{catalog}", "--catalog", parquet]
        first = crawling.on(web, output, "--max-pages", "1200", *catalogs)
        crawl = crawling.started(*first)
        for number in range(KILLS):
            crawling.kill_when_longer(crawl, lines, crawling.length_of(lines) + chance.randrange(1_000, 60_000))
            if number in STOPPED_AT:
                server.stop("immediate")
            if number in STARTED_AT:
                server.start()
            more = ["resume", output, *catalogs]
            crawl = crawling.started(*(more if lines.exists() else first))
        assert crawl.wait(600) in (0, 3)
    pages = [page["token"] for page in crawling.pages(output) if page["token"] is not None]
    assert len(pages) == len(set(pages)) > 1_000
    connection = sqlite3.connect(catalog)
    in_sqlite = [token for (token,) in connection.execute("SELECT fetch_id FROM page_content")]
    connection.close()
    in_postgres = [row["fetch_id"] for row in place.rows("page_content")]
    assert sorted(pages) == sorted(in_sqlite)
    assert sorted(pages) == sorted(in_postgres)
    assert sorted(pages) == sorted(row["fetch_id"] for row in parts.rows("page_content"))
