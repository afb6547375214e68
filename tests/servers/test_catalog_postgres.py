"""Catalogs in PostgreSQL: the contract of all catalogs, months, passwords, and a server that stops."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator

import pytest

from catalogs import PostgresPlace, line, listed, written
from contract import test_catalogs as contract
from contract.test_catalogs import *  # noqa: F403 - the same tests for this kind
from contract.test_catalogs import completed, tokens
from e2e import crawling
from outrider.catalog.destination import CatalogAccessError, CatalogError, UnavailableCatalogError
from servers.postgres import PASSWORD, PostgresServer, postgres_server

OUT_OF_REACH, REFUSED, USAGE = 8, 5, 2
assert contract


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as running:
        yield running


@pytest.fixture
def place(server) -> PostgresPlace:
    return PostgresPlace(server)


def partitions(place: PostgresPlace) -> list[str]:
    query = "(SELECT inhrelid::regclass::text AS name FROM pg_inherits WHERE inhparent = 'page_content'::regclass) x"
    return [row["name"] for row in place.rows(query)]


def test_rows_are_in_the_partition_of_their_month_and_the_next_months_exist(place, pages):
    dates = ["2026-10-31T23:59:59.999Z", "2026-11-01T00:00:00.000Z", "2031-02-03T04:05:06.000Z"]
    completed(place, written(pages, [line(n, fetched_at=at) for n, at in enumerate(dates, start=1)]))
    assert [1] == [row["fetch_id"] for row in place.rows("page_content_2026_10")]
    assert [2] == [row["fetch_id"] for row in place.rows("page_content_2026_11")]
    assert {"page_content_2031_02", "page_content_2031_03", "page_content_2031_04"} <= set(partitions(place))


def test_a_query_of_one_month_reads_one_partition(place, pages, server):
    completed(place, written(pages, [line(1), line(2, fetched_at="2026-11-02T00:00:00.000Z")]))
    query = "EXPLAIN SELECT * FROM page_content WHERE fetched_at >= '2026-11-01' AND fetched_at < '2026-12-01'"
    plan = " ".join(row["QUERY PLAN"] for row in server.rows(place.address, query))
    assert "page_content_2026_11" in plan
    assert "page_content_2026_10" not in plan
    assert "page_content_2026_12" not in plan


def test_a_detached_month_keeps_its_rows_and_a_late_line_gets_a_new_one(place, pages):
    completed(place, written(pages, [line(1), line(2, fetched_at="2026-11-02T00:00:00.000Z")]))
    writing = place.catalog()
    stored = writing.open()
    writing.append(contract.batch_of([line(3)]), stored.position, (second := stored.position.after([b"3"])))
    other = place.catalog()
    other.open()
    assert ["page_content_2026_10"] == other.detach("2026-10")
    with pytest.raises(CatalogError, match="no attached month 2026-10"):
        other.detach("2026-10")
    other.close()
    # The writer does not know yet that the month is gone.
    writing.append(contract.batch_of([line(4)]), second, second.after([b"4"]))
    writing.close()
    assert [1, 3] == [row["fetch_id"] for row in place.rows("page_content_2026_10")]
    assert [4] == [row["fetch_id"] for row in place.rows("page_content_2026_10_2")]
    assert {2, 4} == set(tokens(place))


def test_a_detaching_that_was_interrupted_is_finished(place, pages, server):
    completed(place, written(pages, [line(1)]))
    server.execute(
        place.address,
        "UPDATE pg_inherits SET inhdetachpending = true WHERE inhrelid = 'page_content_2026_10'::regclass",
    )
    catalog = place.catalog()
    catalog.open()
    assert ["page_content_2026_10"] == catalog.detach("2026-10")
    catalog.close()


@pytest.mark.parametrize("month", ["2026", "2026-13", "26-10", "2026-10; DROP TABLE urls", ""])
def test_a_text_that_is_no_month_is_refused(place, month):
    catalog = place.catalog()
    catalog.open()
    with pytest.raises(ValueError, match="use YYYY-MM"):
        catalog.detach(month)
    catalog.close()


def test_a_server_that_stops_at_once_loses_and_doubles_no_line(server, pages):
    place = PostgresPlace(server)
    made = contract.follower(place, written(pages, map(line, range(1, 50))))
    made.open()
    made.take_lines()
    server.stop("immediate")
    written(pages, map(line, range(50, 60)))
    with pytest.raises(UnavailableCatalogError):
        made.take_lines()
    made.fail(UnavailableCatalogError("stopped"))
    with pytest.raises(UnavailableCatalogError, match="start the server"):
        made.open()
    server.start()
    made.open()
    assert made.complete()
    made.close()
    assert list(range(1, 60)) == tokens(place)


def test_a_wrong_password_is_named_and_never_shown(server):
    from outrider.catalog.postgres import PostgresCatalog

    place = PostgresPlace(server)
    catalog = PostgresCatalog(place.address.replace(PASSWORD, "wrong-pass-word"))
    with pytest.raises(CatalogAccessError, match="PGPASSWORD") as caught:
        catalog.open()
    assert "wrong-pass-word" not in f"{caught.value}{caught.value!r}{catalog.name}{catalog!r}"


def test_a_missing_database_and_a_role_that_only_reads_are_named(server):
    from outrider.catalog.postgres import PostgresCatalog

    with pytest.raises(CatalogAccessError, match="createdb"):
        PostgresCatalog(server.address("nosuch")).open()
    place = PostgresPlace(server)
    place.change("CREATE ROLE reader LOGIN PASSWORD 'reading'")
    with pytest.raises(CatalogError, match="may make and change tables"):
        PostgresCatalog(place.address.replace(f"owner:{PASSWORD}", "reader:reading")).open()


def test_a_database_in_another_encoding_is_refused(server):
    from outrider.catalog.postgres import PostgresCatalog

    address = server.database("latin", "ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'")
    with pytest.raises(CatalogError, match="encoding LATIN1"):
        PostgresCatalog(address).open()


def test_a_schema_of_its_own_keeps_two_crawls_in_one_database(server, pages):
    from outrider.catalog.postgres import PostgresCatalog

    place = PostgresPlace(server)
    place.change("CREATE SCHEMA second")
    completed(place, written(pages, [line(1)]))
    catalog = PostgresCatalog(place.address + "&search_path=second")
    assert 0 == catalog.open().position.lines
    catalog.refresh(contract.listed_urls([listed("http://b.test/")]), [], None)
    catalog.close()
    assert ["http://b.test/"] == [row["url"] for row in place.rows("second.urls")]
    assert ["http://a.test/"] == [row["url"] for row in place.rows("public.urls")]


def test_a_crawl_fills_both_kinds_and_writes_the_password_nowhere(server, tmp_path):
    place, output = PostgresPlace(server), tmp_path / "out"
    with crawling.web(tmp_path / "web") as served:
        arguments = crawling.on(served, output, "--catalog", place.address, "--catalog", f"sqlite:{tmp_path / 'c.db'}")
        done = crawling.outrider(*arguments, "--progress", "log")
    assert 0 == done.returncode, done.stderr
    assert sorted(page["token"] for page in crawling.pages(output)) == sorted(tokens(place))
    status = crawling.outrider("status", output, "--json").stdout
    assert {"completed": json.loads(status)["urls"]["done"]} == {
        row["state"]: row["count"] for row in server.rows(place.address, "SELECT state, count(*) FROM urls GROUP BY 1")
    }
    told = [done.stdout, done.stderr, status, crawling.outrider("status", output).stdout]
    told.append(crawling.outrider("settings", output, "--explain").stdout)
    told += [path.read_bytes().decode("latin-1") for path in output.rglob("*") if path.is_file()]
    assert [] == [text[:200] for text in told if PASSWORD in text]
    # Without the password the address is kept, and the environment completes it.
    assert "postgresql://owner@/" in (output / "outrider.toml").read_text()
    again = crawling.outrider("resume", output, PGPASSWORD=PASSWORD)
    assert 0 == again.returncode, again.stderr


def test_psql_reads_what_the_command_wrote(server, tmp_path):
    place, output = PostgresPlace(server), tmp_path / "out"
    with crawling.web(tmp_path / "web", hosts=2, pages=10) as served:
        crawling.outrider(*crawling.on(served, output))
    done = crawling.outrider("catalog", output, "--to", place.address)
    assert 0 == done.returncode, done.stderr
    assert PASSWORD not in done.stdout + done.stderr
    query = ["psql", "-X", "-At", place.address, "-c", "SELECT count(*), count(DISTINCT fetch_id) FROM page_content"]
    assert "10|10\n" == subprocess.run(query, capture_output=True, text=True, check=True, env=os.environ).stdout


@pytest.mark.parametrize(
    ("address", "words", "code"),
    [
        ("postgresql://me:hunter2@127.0.0.1:1/d", "start the server", OUT_OF_REACH),
        ("postgresql://me:hun/ter2@127.0.0.1/d", "PGPASSWORD", USAGE),
        ("postgresql://me:hun#ter2@127.0.0.1/d", "PGPASSWORD", USAGE),
        ("postgresql://me:hunter2@127.0.0.1:999999/d", "PGPASSWORD", USAGE),
        ("postgresql:me:hunter2", "does not begin with postgresql://", USAGE),
    ],
)
def test_a_wrong_address_is_named_without_its_password(tmp_path_factory, address, words, code):
    output = tmp_path_factory.mktemp("wrong") / "out"
    with crawling.web(output.parent / "web", hosts=1, pages=1) as served:
        crawling.outrider(*crawling.on(served, output))
    done = crawling.outrider("catalog", output, "--to", address)
    assert code == done.returncode, done.stderr
    assert words in done.stderr
    assert "hunter2" not in done.stderr
    assert "ter2" not in done.stderr
