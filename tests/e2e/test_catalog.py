"""Catalogs of whole crawls: `crawl --catalog`, `catalog DIR`, kills, and bad places."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import zlib
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pyarrow.dataset import dataset

from e2e import crawling
from outrider.crawl.orders.catalogs import follow_directory
from outrider.errors import SettingsError

OUT_OF_REACH, IN_USE, REFUSED, USAGE = 8, 6, 5, 2


def rows(path: Path, query: str) -> list[tuple]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def tokens(path: Path) -> list[int]:
    return [token for (token,) in rows(path, "SELECT fetch_id FROM page_content ORDER BY 1")]


def tokens_of(output: Path) -> list[int]:
    return sorted(page["token"] for page in crawling.pages(output) if page["token"] is not None)


@pytest.fixture(scope="module")
def crawled(tmp_path_factory) -> Path:
    """A folder with a crawl that has ended, its catalog made meanwhile, and its web's folder."""
    folder = tmp_path_factory.mktemp("crawled")
    with crawling.web(folder / "web", hosts=16, pages=300, quirks=True) as served:
        arguments = crawling.on(served, folder / "out", "--catalog", f"sqlite:{folder / 'c.db'}")
        arguments += ["--catalog", f"parquet:{folder / 'parts'}"]
        done = crawling.outrider(*arguments, "--max-wait", "1")
        assert done.returncode in (0, 3), done.stderr
    return folder


def test_a_crawl_fills_its_catalog(crawled):
    assert tokens_of(crawled / "out") == tokens(crawled / "c.db")
    status = json.loads(crawling.outrider("status", crawled / "out", "--json").stdout)
    words = {"pending": "waiting", "fetching": "leased", "completed": "done", "failed": "gone", "blocked": "parked"}
    counts = dict(rows(crawled / "c.db", "SELECT state, count(*) FROM urls GROUP BY state"))
    expected = {name: status["urls"][words.get(name, name)] for name in (*words, "queued")}
    assert {name: count for name, count in expected.items() if count} == counts
    assert [(0, 0, "")] * 2 == [
        (catalog["missing_lines"], catalog["missing_bytes"], catalog["problem"]) for catalog in status["catalogs"]
    ]


def test_parquet_has_the_same_rows_as_sqlite(crawled):
    pages = dataset(crawled / "parts" / "page_content", format="parquet", partitioning="hive").to_table()
    assert tokens(crawled / "c.db") == sorted(pages.column("fetch_id").to_pylist())
    (length,) = rows(crawled / "c.db", "SELECT sum(content_length) FROM page_content")[0]
    assert length == sum(one or 0 for one in pages.column("content_length").to_pylist())
    listed = dataset(crawled / "parts" / "urls.parquet").to_table()
    assert Counter(listed.column("state").to_pylist()) == dict(
        rows(crawled / "c.db", "SELECT state, count(*) FROM urls GROUP BY state")
    )


def test_each_robots_file_is_in_the_catalog(crawled):
    found = rows(crawled / "c.db", "SELECT host, status_code, content, parsed_rules FROM robots_cache")
    hosts = {host for (host,) in rows(crawled / "c.db", "SELECT DISTINCT host FROM urls")}
    assert {urlsplit(origin).hostname for origin, *_ in found} <= hosts
    ruled = [(content, json.loads(groups)) for _, status, content, groups in found if status == 200 and content]
    assert [] != [groups for _, groups in ruled if groups]
    assert all(bool(groups) == ("user-agent" in content.lower()) for content, groups in ruled)


def test_the_command_makes_the_same_catalog_from_nothing(crawled, tmp_path):
    assert 0 == crawling.outrider("catalog", crawled / "out", "--to", f"sqlite:{tmp_path / 'd.db'}").returncode
    query = "SELECT url_hash, depth, fetch_count, last_status_code, last_content_hash, last_simhash, state FROM urls"
    assert sorted(rows(crawled / "c.db", query)) == sorted(rows(tmp_path / "d.db", query))
    assert tokens(crawled / "c.db") == tokens(tmp_path / "d.db")


def test_each_key_of_a_page_is_one_gzip_member(crawled):
    found = rows(crawled / "c.db", "SELECT raw_content_key FROM page_content WHERE raw_content_key IS NOT NULL")
    assert found
    for (key,) in found:
        name, _, place = key.partition("#bytes=")
        first, last = map(int, place.split("-"))
        member = (crawled / "out" / name).read_bytes()[first : last + 1]
        unpack = zlib.decompressobj(wbits=31)
        assert unpack.decompress(member).startswith(b"WARC/1.1\r\n")
        assert unpack.eof
        assert not unpack.unused_data


def test_lines_that_are_written_again_are_equal_byte_for_byte(tmp_path):
    chance = random.Random(34)
    output, catalog = tmp_path / "out", tmp_path / "c.db"
    to, lines = f"sqlite:{catalog}", output / "pages.jsonl"
    with crawling.web(tmp_path / "web", hosts=4, pages=80) as served:
        first = crawling.on(served, output, "--delay", "0.1", "--catalog", to)
        crawl, seen = crawling.started(*first), b""
        for _ in range(6):
            goal = len(seen) + chance.randrange(100, 8_000)
            crawling.wait_for(
                lambda goal=goal, crawl=crawl: crawl.poll() is not None or length_of(lines) > goal, seconds=60
            )
            crawl.send_signal(signal.SIGKILL)
            crawl.wait(60)
            whole = lines.read_bytes()
            assert whole.startswith(seen)
            seen = whole[: whole.rfind(b"\n") + 1]
            # A power cut would lose the end of the file, which the log has.
            if seen and chance.random() < 0.5:
                os.truncate(lines, max(noted_length(output), len(seen) // 2))
            crawl = crawling.started("resume", str(output))
        assert 0 == crawl.wait(180)
    assert lines.read_bytes().startswith(seen)
    assert tokens_of(output) == tokens(catalog)


def wait_for_lines(crawl: subprocess.Popen, path: Path, length: int) -> None:
    crawling.wait_for(lambda: crawl.poll() is not None or length_of(path) > length, seconds=60)


def length_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def noted_length(output: Path) -> int:
    from outrider.engine import Frontier

    frontier = Frontier.look(output / "frontier")
    try:
        return frontier.projection("pages")[0]
    finally:
        frontier.close()


def test_a_catalog_that_cannot_be_used_never_stops_a_crawl(tmp_path):
    (tmp_path / "folder").mkdir()
    with crawling.web(tmp_path / "web", hosts=2, pages=10) as served:
        arguments = crawling.on(served, tmp_path / "out", "--catalog", f"sqlite:{tmp_path / 'folder'}")
        done = crawling.outrider(*arguments)
    assert OUT_OF_REACH == done.returncode
    assert "is a directory; name a file" in done.stderr
    assert "lacks 10 lines" in done.stderr
    assert f"outrider catalog {tmp_path / 'out'} --to sqlite:" in done.stderr
    assert 10 == len(crawling.pages(tmp_path / "out"))
    text = crawling.outrider("status", tmp_path / "out").stdout
    assert "state       finished" in text
    assert "lacks 10 lines" in text


def has_tokens(catalog, count):
    """Whether a catalog has this number of pages. Another process may be about to make its tables."""
    try:
        return len(tokens(catalog)) == count
    except sqlite3.OperationalError:
        return False


def test_the_command_follows_a_crawl_of_another_process(tmp_path):
    output, catalog = tmp_path / "out", tmp_path / "c.db"
    with crawling.web(tmp_path / "web", hosts=2, pages=20) as served:
        crawl = crawling.started(*crawling.on(served, output, "--delay", "0.2"))
        crawling.wait_for(lambda: (output / "control.sock").exists(), seconds=30)
        follower = crawling.started("catalog", str(output), "--to", f"sqlite:{catalog}", "--follow")
        assert 0 == crawl.wait(60)
        crawling.wait_for(lambda: catalog.exists() and has_tokens(catalog, 20), seconds=60)
        follower.send_signal(signal.SIGINT)
        assert 4 == follower.wait(30)
    assert tokens_of(output) == tokens(catalog)
    assert 0 == crawling.outrider("catalog", output, "--to", f"sqlite:{catalog}").returncode
    assert [("completed", 20)] == rows(catalog, "SELECT state, count(*) FROM urls GROUP BY 1")


@pytest.mark.parametrize(
    ("to", "words", "code"),
    [
        ("news.db", "it has no kind; use sqlite:PATH, parquet:FOLDER, parquet:s3://BUCKET/PREFIX or postgresql", USAGE),
        ("sqlite:", "it has no path", USAGE),
        ("parquet:s3://B", "its bucket needs 3 to 63 of", USAGE),
        ("parquet:s3://key:hunter2@bucket/a", "set AWS_ACCESS_KEY_ID", USAGE),
        ("mysql://me:hunter2@h/d", "unknown kind 'mysql'", USAGE),
        ("sqlite:/nosuch/folder/c.db", "make /nosuch/folder first", REFUSED),
        ("sqlite:/dev/null", "not a regular file; name a file", REFUSED),
    ],
)
def test_a_wrong_catalog_is_named_with_the_way_out(crawled, to, words, code):
    done = crawling.outrider("catalog", crawled / "out", "--to", to)
    assert (code, "") == (done.returncode, done.stdout)
    assert words in done.stderr
    assert "hunter2" not in done.stderr
    assert "bug" not in done.stderr


def test_files_that_are_no_catalogs_are_left_alone(crawled, tmp_path):
    text = tmp_path / "text.db"
    text.write_text("no database\n" * 100)
    done = crawling.outrider("catalog", crawled / "out", "--to", f"sqlite:{text}", "--anew")
    assert REFUSED == done.returncode
    assert "not a database" in done.stderr
    assert "no database\n" * 100 == text.read_text()
    (tmp_path / "link.db").symlink_to(tmp_path / "nothing")
    done = crawling.outrider("catalog", crawled / "out", "--to", f"sqlite:{tmp_path / 'link.db'}")
    assert REFUSED == done.returncode
    assert "link to a missing file" in done.stderr


@pytest.mark.parametrize("name", ["pages.jsonl", "items.jsonl", "new", "frontier/manifest.json"])
def test_a_file_of_the_crawl_is_refused(crawled, tmp_path, name):
    before = (crawled / "out" / "items.jsonl").read_bytes()
    done = crawling.outrider("catalog", crawled / "out", "--to", f"sqlite:{crawled / 'out' / name}")
    assert USAGE == done.returncode
    assert "is a file of the crawl; name a path outside" in done.stderr
    again = crawling.outrider("resume", crawled / "out", "--catalog", f"sqlite:{crawled / 'out' / name}")
    assert USAGE == again.returncode
    assert before == (crawled / "out" / "items.jsonl").read_bytes()


def test_a_path_that_is_no_text_is_refused(crawled):
    command = [*crawling.command("catalog", crawled / "out", "--to"), b"sqlite:/tmp/\xff.db"]
    done = subprocess.run(command, capture_output=True, check=False, env=crawling.environment())
    assert USAGE == done.returncode
    assert b"is not UTF-8" in done.stderr


def test_a_locked_database_is_named(crawled, tmp_path):
    path = tmp_path / "locked.db"
    assert 0 == crawling.outrider("catalog", crawled / "out", "--to", f"sqlite:{path}").returncode
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    done = crawling.outrider("catalog", crawled / "out", "--to", f"sqlite:{path}")
    other.close()
    assert IN_USE == done.returncode
    assert "close the other program" in done.stderr


def test_a_catalog_of_another_crawl_is_refused(crawled, tmp_path):
    with crawling.web(tmp_path / "web", hosts=1, pages=5) as served:
        assert 0 == crawling.outrider(*crawling.on(served, tmp_path / "out")).returncode
    to = f"sqlite:{crawled / 'c.db'}"
    done = crawling.outrider("catalog", tmp_path / "out", "--to", to)
    assert REFUSED == done.returncode
    assert "--anew" in done.stderr


def test_a_folder_without_a_crawl_is_named(tmp_path):
    done = crawling.outrider("catalog", tmp_path, "--to", f"sqlite:{tmp_path / 'c.db'}")
    assert USAGE == done.returncode
    assert "outrider crawl URL" in done.stderr


def test_a_missing_library_is_named_with_the_command_that_installs_it(crawled, monkeypatch):
    monkeypatch.setattr("outrider.catalog.kinds.find_spec", lambda _: None)
    with pytest.raises(SettingsError, match=r"needs asyncpg.*outrider\[catalog\]"):
        follow_directory(str(crawled / "out"), "postgresql://h/d", follow=False, anew=False, talk=sys.stderr)


def test_only_postgresql_has_months(crawled):
    done = crawling.outrider("catalog", crawled / "out", "--to", f"sqlite:{crawled / 'c.db'}", "--detach", "2026-10")
    assert (USAGE, "") == (done.returncode, done.stdout)
    assert "has no months" in done.stderr
