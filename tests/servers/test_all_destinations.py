"""One crawl into SQLite, PostgreSQL, Parquet and S3 together, with 20 kills and an outage of each server.

psql, curl, gunzip and DuckDB read the results.
"""

from __future__ import annotations

import io
import json
import random
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from warcio.archiveiterator import ArchiveIterator

from catalogs import ParquetPlace
from e2e import crawling
from outrider.sim.web import DemoServer, DemoWeb, WebAnswer
from servers.bucket_place import BucketPlace
from servers.postgres import PASSWORD, PostgresServer, postgres_server
from servers.programs import program
from servers.seaweed import OWNER, SeaweedServer, judge, seaweed_server

KILLS = 20
POSTGRES_AWAY, STORE_AWAY = range(4, 7), range(10, 13)  # the kills during which a server is away
BUCKET = "crawls"
STATES = "SELECT state, last_status_code, count(*) FROM urls GROUP BY 1, 2"
SUMS = """SELECT state, last_status_code, count(*), sum(page_content.content_length)
    FROM page_content JOIN urls ON {} GROUP BY 1, 2"""
TIMES = "SELECT host, count(*), count(discovered_at), count(last_fetched_at), max(depth) FROM urls GROUP BY 1"
LINE_BYTES = 700  # of pages.jsonl, about


class RecordedWeb(DemoWeb):
    """A demo web that keeps each body that it sends."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.sent: dict[str, set[bytes]] = {}

    def answer(self, host: str, path: str, now: float, *, takes_gzip: bool = False) -> WebAnswer:
        answer = super().answer(host, path, now, takes_gzip=takes_gzip)
        self.sent.setdefault(self.url(host, path), set()).add(answer.body)
        return answer


@dataclass(frozen=True)
class Crawled:
    """A crawl that has ended, with its destinations."""

    folder: Path
    web: RecordedWeb
    postgres: PostgresServer
    database: str
    store: SeaweedServer
    ends: list[int]

    @property
    def output(self) -> Path:
        return self.folder / "out"

    def tokens(self) -> list[int]:
        return sorted(page["token"] for page in crawling.pages(self.output) if page["token"] is not None)

    def in_sqlite(self, query: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.folder / "c.db")) as connection:
            return connection.execute(query).fetchall()

    def psql(self, query: str) -> list[list[str]]:
        """The cells of the rows, as psql prints them."""
        words = [program("psql"), "-X", "-A", "-t", "-F", "\t", "-v", "ON_ERROR_STOP=1", self.database, "-c", query]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        assert 0 == done.returncode, done.stderr
        return [line.split("\t") for line in done.stdout.splitlines()]

    def curl(self, requests: list[tuple[str, str, Path]]) -> None:
        """Gets each (key, range, target) by one signed request."""
        user = f"{OWNER['AWS_ACCESS_KEY_ID']}:{OWNER['AWS_SECRET_ACCESS_KEY']}"
        fields = [
            f'url = "{self.store.address}/{BUCKET}/{key}"\nrange = "{octets}"\noutput = "{target}"\nuser = "{user}"\n'
            'aws-sigv4 = "aws:amz:us-east-1:s3"\nheader = "x-amz-content-sha256: UNSIGNED-PAYLOAD"\n'
            'write-out = "%{http_code}\\n"\n'
            for key, octets, target in requests
        ]
        (self.folder / "curl").write_text("next\n".join(fields))
        words = [program("curl"), "--disable", "--silent", "--show-error", "--config", str(self.folder / "curl")]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
        assert 0 == done.returncode, done.stderr
        assert {"206": len(requests)} == Counter(done.stdout.split())


def length_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def wait_for_lines(crawl: subprocess.Popen[bytes], lines: Path, length: int, seconds: float = 0) -> None:
    """Waits until a crawl has ended, or its file of lines is longer and this time has passed."""
    end = time.monotonic() + seconds
    crawling.wait_for(
        lambda: crawl.poll() is not None or (length_of(lines) > length and time.monotonic() > end),
        seconds=120 + seconds,
    )


def crawl_with_kills(crawled: Crawled, first: list[str], outage_seconds: float) -> None:
    chance = random.Random(3434)
    lines = crawled.output / "pages.jsonl"
    more = {"PGPASSWORD": PASSWORD, **crawled.store.environment}
    postgres, store = crawled.postgres, crawled.store
    servers = (
        (POSTGRES_AWAY, lambda: postgres.stop("immediate"), postgres.start),
        (STORE_AWAY, store.kill, store.start),
    )
    for number in range(KILLS):
        for away, _, start in servers:
            if number == away.stop:
                start()
        length = length_of(lines)
        crawl = crawling.started(*(("resume", crawled.output) if length else first), **more)
        seconds = 0.0
        for away, kill, _ in servers:
            if number == away.start:  # in the middle of a run, so that connections break
                wait_for_lines(crawl, lines, length)
                kill()
                seconds = outage_seconds
        wait_for_lines(crawl, lines, length + chance.randrange(5, 25) * LINE_BYTES, seconds)
        crawl.send_signal(signal.SIGKILL)
        crawled.ends.append(crawl.wait(60))
    done = crawling.outrider("resume", crawled.output, seconds=600, **more)
    assert done.returncode in (0, 3), done.stderr


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((800, 0.2, 2.0), id="short"),
        pytest.param((4_000, 0.4, 30.0), id="long", marks=pytest.mark.long),
    ],
)
def crawled(
    request: pytest.FixtureRequest, project: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Crawled]:
    pages, delay, outage_seconds = request.param
    folder = tmp_path_factory.mktemp("all")
    webs: list[RecordedWeb] = []

    def made(port: int) -> RecordedWeb:
        webs.append(RecordedWeb(3, 16, pages, port=port))
        return webs[-1]

    with (
        postgres_server() as postgres,
        seaweed_server(project, folder / "weed") as store,
        DemoServer(made, folder / "web") as served,
    ):
        database = postgres.database("crawl")
        store.make_bucket(BUCKET)
        place = Crawled(folder, webs[-1], postgres, database, store, [])
        destinations = ["--catalog", f"sqlite:{folder / 'c.db'}", "--catalog", f"parquet:{folder / 'catalog'}"]
        destinations += ["--catalog", database.replace(f":{PASSWORD}@", "@")]
        destinations += ["--catalog", f"parquet:s3://{BUCKET}/tables"]
        destinations += ["--archive", f"s3://{BUCKET}/a", "--seal-bytes", "30000", "--keep-archive", "1"]
        words = ["--delay", str(delay), "--max-wait", "5", *destinations]
        crawl_with_kills(place, crawling.on(served, place.output, *words), outage_seconds)
        yield place


pytestmark = pytest.mark.timeout(1_200)


def test_each_kill_ended_a_run(crawled: Crawled) -> None:
    assert [-signal.SIGKILL] * KILLS == crawled.ends


def test_each_catalog_has_the_tokens_of_pages_jsonl_once(crawled: Crawled) -> None:
    tokens = crawled.tokens()
    assert len(set(tokens)) == len(tokens) > 600
    assert tokens == sorted(token for (token,) in crawled.in_sqlite("SELECT fetch_id FROM page_content"))
    assert tokens == sorted(int(token) for (token,) in crawled.psql("SELECT fetch_id FROM page_content"))
    assert tokens == sorted(row["fetch_id"] for row in ParquetPlace(crawled.folder).rows("page_content"))
    in_bucket = BucketPlace(crawled.store.client(BUCKET, "tables"), crawled.folder / "bucket")
    assert tokens == sorted(row["fetch_id"] for row in in_bucket.rows("page_content"))


def test_the_store_has_the_record_of_each_token_once(crawled: Crawled) -> None:
    objects = [json.loads(line) for line in (crawled.output / "objects.jsonl").read_text().splitlines()]
    identity, listed = objects[0]["id"], objects[1:]
    keys = {key for key in crawled.store.keys(BUCKET) if key.startswith("a/")}
    assert {"a/" + one["name"] for one in listed} | {f"a/{identity}.txt"} == keys
    assert len({one["file"] for one in listed}) == len(listed) > 5
    target = crawled.folder / "object"
    target.mkdir(exist_ok=True)
    requests = [(f"a/{one['name']}", "0-", target / one["file"]) for one in listed]
    crawled.curl(requests)
    found = [
        (record.rec_headers.get_header("WARC-Target-URI"), int(record.rec_headers.get_header("Outrider-Token")))
        for _, _, path in requests
        for record in ArchiveIterator(io.BytesIO(path.read_bytes()))
        if record.rec_type in ("response", "revisit")
    ]
    pages = [(page["url"], page["token"]) for page in crawling.pages(crawled.output) if page["warc"] is not None]
    assert sorted(pages) == sorted(one for one in found if not one[0].endswith("/robots.txt"))


def test_each_page_is_one_ranged_request_and_one_gunzip_with_the_body_that_was_sent(crawled: Crawled) -> None:
    query = """SELECT url, raw_content_key, fetch_id FROM page_content JOIN urls ON urls.id = url_id
        WHERE raw_content_key IS NOT NULL"""
    found = [(url, key, int(token)) for url, key, token in crawled.psql(query)]
    assert sorted(found) == sorted(crawled.in_sqlite(query))
    target = crawled.folder / "pages"
    target.mkdir()
    requests = []
    for _, key, token in found:
        name, _, octets = key.partition("#bytes=")
        requests.append((name, octets, target / f"{token}.gz"))
    crawled.curl(requests)
    subprocess.run(["gunzip", *sorted(target.iterdir())], check=True, timeout=120)
    wrong = []
    for url, _, token in found:
        record, _, rest = (target / str(token)).read_bytes().partition(b"\r\n\r\n")
        body = rest.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n\r\n")
        is_cut = b"\r\nWARC-Truncated: length" in record
        sent = {one[: len(body)] if is_cut else one for one in crawled.web.sent[url]}
        if body not in sent or (is_cut and len(body) < 1_000_000):
            wrong.append((url, record))
    assert [] == wrong
    assert len(found) > 600


def test_the_numbers_by_state_are_those_of_the_status(crawled: Crawled) -> None:
    status = json.loads(crawling.outrider("status", crawled.output, "--json").stdout)
    words = {"pending": "waiting", "fetching": "leased", "completed": "done", "failed": "gone", "blocked": "parked"}
    expected = {name: status["urls"][words.get(name, name)] for name in (*words, "queued")}
    counts = {name: int(count) for name, count in crawled.psql("SELECT state, count(*) FROM urls GROUP BY state")}
    assert {name: count for name, count in expected.items() if count} == counts
    assert [(0, "")] * 4 == [(one["missing_lines"], one["problem"]) for one in status["catalogs"]]


def test_a_query_of_one_month_reads_one_partition(crawled: Crawled) -> None:
    months = crawled.psql("SELECT to_char(min(fetched_at) AT TIME ZONE 'UTC', 'YYYY-MM-01') FROM page_content")
    ((month,),) = months
    query = f"""EXPLAIN SELECT count(*), sum(content_length) FROM page_content
        WHERE fetched_at >= '{month}T00:00Z' AND fetched_at < timestamptz '{month}T00:00Z' + interval '1 month'"""
    plan = "\n".join(row[0] for row in crawled.psql(query))
    (partitions,) = crawled.psql("SELECT count(*) FROM pg_inherits WHERE inhparent = 'page_content'::regclass")
    assert int(partitions[0]) >= 3
    assert 1 == plan.count(" on page_content_"), plan
    assert f" on page_content_{month[:7].replace('-', '_')}" in plan


def test_duckdb_has_the_sums_of_sql(crawled: Crawled, project: Path) -> None:
    code = """import duckdb, json, sys
folder, *queries = sys.argv[1:]
duckdb.sql(f"CREATE VIEW page_content AS SELECT * FROM '{folder}/page_content/**/*.parquet'")
duckdb.sql(f"CREATE VIEW urls AS SELECT * FROM '{folder}/urls.parquet'")
rows = [row for query in queries for row in duckdb.sql(query).fetchall()]
print(json.dumps([["" if cell is None else str(cell) for cell in row] for row in rows]))
"""
    queries = [STATES, SUMS.format("urls.url_hash = page_content.url_hash"), TIMES]
    words = [judge(project, "python"), "-c", code, crawled.folder / "catalog", *queries]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=60, check=False)
    assert 0 == done.returncode, done.stderr
    in_parquet = sorted(json.loads(done.stdout))
    queries[1] = SUMS.format("urls.id = url_id")
    assert sorted(row for query in queries for row in crawled.psql(query)) == in_parquet
    in_sqlite = [row for query in queries for row in crawled.in_sqlite(query)]
    assert sorted(["" if cell is None else str(cell) for cell in row] for row in in_sqlite) == in_parquet
    assert len(in_parquet) > 8
