"""The contract of catalogs: each kind stores the same rows, each line once, and refuses what it cannot continue."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from catalogs import SECOND, Place, SqlitePlace, line, listed, written
from outrider.catalog.destination import CatalogError, CatalogInUseError
from outrider.catalog.following import Follower, ListPiece
from outrider.catalog.line_file import LineFile, Position
from outrider.catalog.rows import batch_of, listed_urls
from outrider.catalog.schema import POSITION_TABLE, TABLES


@pytest.fixture(params=["sqlite"])
def place(request, tmp_path) -> Place:
    return SqlitePlace(tmp_path)


@pytest.fixture
def pages(tmp_path) -> Path:
    return tmp_path / "pages.jsonl"


def follower(place: Place, pages: Path, rows=(), robots=()) -> Follower:
    """A follower whose list has these rows; its clock stays the same."""
    return Follower(
        str(pages),
        place.catalog(),
        lambda after: ListPiece(list(rows), None, robots),
        clock=lambda: 0,
        wall=lambda: 60 * SECOND,
    )


def completed(place: Place, pages: Path, rows=(), robots=()) -> Follower:
    made = follower(place, pages, rows, robots)
    try:
        assert made.complete()
    finally:
        made.close()
    return made


def tokens(place: Place) -> list[int]:
    return [row["fetch_id"] for row in place.rows("page_content")]


def test_a_new_catalog_has_the_columns_of_the_schema_and_no_line(place):
    catalog = place.catalog()
    stored = catalog.open()
    catalog.append(batch_of([line(1)]), Position(), Position(1, 10, "aa"))
    catalog.close()
    assert Position() == stored.position
    for table in TABLES[:2]:
        assert table.names == list(place.rows(table.name)[0])


def test_a_line_fills_its_row_and_the_row_of_its_url(place, pages):
    text = line(
        7,
        "http://a.test/x",
        referrer="http://a.test/",
        language="en",
        description="About",
        canonical="http://a.test/y",
        charset="utf-8",
        http_date="Mon, 05 Oct 2026 10:00:00 GMT",
        last_modified="yesterday",
    )
    completed(place, written(pages, [line(3, "http://a.test/"), text]))
    home, page = place.rows("urls")
    content = place.rows("page_content")[1]
    assert {
        "url": "http://a.test/x",
        "normalized_url": "http://a.test/x",
        "host": "a.test",
        "depth": 1,
        "source_url_id": home["id"],
        "fetch_count": 1,
        "last_status_code": 200,
        "last_content_hash": "sha1:AAAA",
        "last_simhash": -(1 << 63) + 1,
        "content_length": 100,
        "content_type": "text/html",
        "state": "completed",
    }.items() <= page.items()
    assert {
        "url_id": page["id"],
        "fetch_id": 7,
        "raw_content_key": "archive/crawl-000000.warc.gz#bytes=10-14",
        "title": "A title",
        "meta_description": "About",
        "canonical_url": "http://a.test/y",
        "charset": "utf-8",
        "language": "en",
        "simhash": -(1 << 63) + 1,
        "last_modified": None,
    }.items() <= content.items()


def test_a_second_run_adds_only_the_new_lines(place, pages):
    completed(place, written(pages, map(line, range(1, 4))))
    completed(place, written(pages, map(line, range(4, 6))))
    completed(place, pages)
    assert [1, 2, 3, 4, 5] == tokens(place)


def test_a_transaction_that_fails_stores_neither_rows_nor_position(place, pages):
    completed(place, written(pages, map(line, range(1, 4))))
    catalog = place.catalog()
    stored = catalog.open()
    # The second row has a token that is there already.
    with pytest.raises((CatalogError, CatalogInUseError)):
        catalog.append(batch_of([line(9), line(2)]), stored.position, stored.position.after([b"x"]))
    catalog.close()
    again = place.catalog()
    assert stored.position == again.open().position
    again.close()
    assert [1, 2, 3] == tokens(place)


def test_a_position_that_another_process_moved_is_refused(place, pages):
    written(pages, map(line, range(1, 3)))
    late = follower(place, pages)
    late.open()
    completed(place, pages)
    with pytest.raises(CatalogInUseError, match="end the other"):
        late.take_lines()
    late.close()
    assert [1, 2] == tokens(place)


def test_visits_of_one_url_are_counted_and_its_content_stays_after_an_error(place, pages):
    failed = {"outcome": "error", "status": 500, "digest": None, "simhash": None, "bytes": 0, "error": "http_500"}
    completed(place, written(pages, [line(1), line(2, digest="sha1:BBBB")]))
    completed(place, written(pages, [line(3, **failed), line(4, outcome="retry", status=None, digest=None, bytes=0)]))
    (row,) = place.rows("urls")
    assert {
        "fetch_count": 3,
        "last_status_code": None,
        "last_content_hash": "sha1:BBBB",
        "content_length": 100,
        "state": "pending",
    }.items() <= row.items()


def test_a_line_without_a_lease_changes_its_url_and_is_no_fetch(place, pages):
    completed(place, written(pages, [line(None, outcome="robots", status=None, warc=None)]))
    assert [] == tokens(place)
    assert [("blocked", 0, None)] == [
        (row["state"], row["fetch_count"], row["last_fetched_at"]) for row in place.rows("urls")
    ]


@pytest.mark.parametrize("apart", [False, True])
def test_a_line_without_a_lease_keeps_the_last_visit(place, pages, apart):
    refused = line(None, outcome="robots", status=None, warc=None, fetched_at="2026-10-06T00:00:00.000Z")
    written(pages, [line(1)])
    if apart:
        completed(place, pages)
    completed(place, written(pages, [refused]))
    (row,) = place.rows("urls")
    assert ("blocked", 1, 200) == (row["state"], row["fetch_count"], row["last_status_code"])
    assert str(row["last_fetched_at"]).startswith("2026-10-05")


def test_a_list_brings_the_last_visit_of_a_url_without_lines(place, pages):
    completed(place, pages, [listed("http://a.test/")])
    completed(place, pages, [listed("http://a.test/", status=200, fetched_at=1_790_000_000 * SECOND)])
    (row,) = place.rows("urls")
    assert 200 == row["last_status_code"]
    assert row["last_fetched_at"] is not None


def test_a_list_adds_all_urls_and_the_newer_state_counts(place, pages):
    rows = [
        listed("http://a.test/", "waiting", due=1_800_000_000 * SECOND, status=200),
        listed("http://a.test/b", "leased", referrer="http://a.test/", depth=1),
        listed("http://b.test/c", "parked"),
        listed("http://b.test/d", "gone"),
        listed("http://b.test/e", "queued"),
    ]
    completed(place, written(pages, [line(1)]), rows)
    found = {row["url"]: row for row in place.rows("urls")}
    assert ["pending", "fetching", "blocked", "failed", "queued"] == [found[row["url"]]["state"] for row in rows]
    home, second = found["http://a.test/"], found["http://a.test/b"]
    assert home["next_fetch_at"] is not None
    assert home["last_content_hash"] == "sha1:AAAA"
    assert (home["id"], 0) == (second["source_url_id"], second["fetch_count"])
    completed(place, pages, [listed("http://a.test/b", "done")])
    assert "completed" == {row["url"]: row for row in place.rows("urls")}["http://a.test/b"]["state"]


def test_a_robots_file_is_stored_and_replaced(place, pages):
    text = "User-agent: a\nUser-agent: b # two\nDisallow: /x\nCrawl-delay: 5\n\nUser-agent: *\nAllow: /\0y\n"
    file = {
        "authority": "https://a.test",
        "status": 200,
        "fetched_at": 1_790_000_000 * SECOND,
        "expires_at": None,
        "crawl_delay": 5.0,
        "text": text,
        "sitemaps": ["https://a.test/\0s.xml"],
        "error": None,
    }
    completed(place, pages, robots=[file])
    (row,) = place.rows("robots_cache")
    groups = [
        {"agents": ["a", "b"], "rules": [["disallow", "/x"]], "crawl_delay": "5"},
        {"agents": ["*"], "rules": [["allow", "/\N{REPLACEMENT CHARACTER}y"]]},
    ]
    assert (groups, "https://a.test", 200, 5.0) == (
        json.loads(row["parsed_rules"]),
        *(row[name] for name in ("host", "status_code", "crawl_delay")),
    )
    completed(place, pages, robots=[{**file, "status": 404, "text": "", "sitemaps": []}])
    (row,) = place.rows("robots_cache")
    assert (404, None, []) == (row["status_code"], row["content"], json.loads(row["parsed_rules"]))


def test_the_time_of_a_list_is_stored_with_its_last_piece(place, pages):
    catalog = place.catalog()
    catalog.open()
    catalog.refresh(listed_urls([listed("http://a.test/")]), [], None)
    assert "" == catalog.open().urls_as_of
    catalog.refresh([], [], "1970-01-01T00:01:00.000000Z")
    assert "1970-01-01T00:01:00.000000Z" == catalog.open().urls_as_of
    catalog.close()


def test_values_that_do_not_fit_are_cut_and_counted(place, pages):
    odd = line(
        1,
        title="a\0b\ud800c",
        language="x" * 80,
        description="'); DROP TABLE urls; --",
        content_type="t" * 10_000_000,
        charset=7,
        simhash="no",
        bytes=1 << 70,
    )
    done = completed(place, written(pages, [odd, line(2)]))
    first, _ = place.rows("page_content")
    assert "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c" == first["title"]
    assert "x" * 35 == first["language"]
    assert "'); DROP TABLE urls; --" == first["meta_description"]
    assert 255 == len(first["content_type"])
    assert [None, None, None] == [first[name] for name in ("charset", "simhash", "content_length")]
    assert 6 == done.note.cut


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"nonsense",
        b"[]",
        b'{"url": 5}',
        b"\xff\xfe",
        line(1, fetched_at="soon"),
        line(1, outcome="new"),
        b"[" * 9999,
    ],
)
def test_a_line_that_cannot_be_read_is_counted_and_the_next_one_is_stored(place, pages, text):
    done = completed(place, written(pages, [text, line(5)]))
    assert ([5], 1, 2) == (tokens(place), done.note.unreadable, done.note.lines)


def test_an_unfinished_line_waits_for_its_end(place, pages):
    pages.write_bytes(line(1) + b"\n" + line(2)[:50])
    completed(place, pages)
    assert [1] == tokens(place)
    pages.write_bytes(line(1) + b"\n" + line(2) + b"\n")
    completed(place, pages)
    assert [1, 2] == tokens(place)


def test_a_position_of_another_crawl_is_refused_with_the_way_out(place, pages):
    completed(place, written(pages, map(line, range(1, 4))))
    pages.unlink()
    written(pages, map(line, range(11, 15)))
    with pytest.raises(CatalogError, match=r"does not belong to it.*another crawl.*anew"):
        completed(place, pages)
    assert [1, 2, 3] == tokens(place)
    made = follower(place, pages)
    made.open(anew=True)
    made.complete()
    made.close()
    assert [11, 12, 13, 14] == tokens(place)


def test_an_edited_line_before_the_position_is_noticed(place, pages):
    completed(place, written(pages, [line(n, title=f"Title {n:06}") for n in range(1, 2_000)]))
    pages.write_bytes(pages.read_bytes().replace(b"Title 000003", b"Title 900003"))
    with pytest.raises(CatalogError, match="are other ones"):
        completed(place, pages)


def test_a_file_that_was_cut_is_refused_until_its_lines_are_there_again(place, pages):
    completed(place, written(pages, map(line, range(1, 6))))
    whole = pages.read_bytes()
    pages.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CatalogError, match="outrider resume"):
        completed(place, pages)
    written(pages, [])
    pages.write_bytes(whole)
    completed(place, written(pages, [line(6)]))
    assert [1, 2, 3, 4, 5, 6] == tokens(place)


def test_a_catalog_of_a_later_release_is_refused(place, pages):
    completed(place, pages)
    place.change(f"UPDATE {POSITION_TABLE} SET schema_version = 2")
    with pytest.raises(CatalogError, match="has schema 2, and this release writes 1"):
        place.catalog().open()
    with pytest.raises(CatalogError, match="has schema 2"):
        place.catalog().open(anew=True)


def test_a_table_of_another_program_is_refused_and_stays(place):
    place.change("CREATE TABLE urls (id INTEGER)")
    place.change("INSERT INTO urls VALUES (5)")
    for anew in (False, True):
        with pytest.raises(CatalogError, match="table urls of another program"):
            place.catalog().open(anew=anew)
    assert [{"id": 5}] == place.rows("urls")


def test_many_small_steps_store_the_same_rows_as_one(place, pages, tmp_path, monkeypatch):
    lines = [line(n, f"http://{n % 7}.test/{n % 40}", digest=f"sha1:{n % 11}") for n in range(1, 300)]
    written(pages, lines)
    completed(place, pages)
    (tmp_path / "second").mkdir()
    second = place.another(tmp_path / "second")
    monkeypatch.setattr("outrider.catalog.line_file.CATALOG_LINES_BYTES_AT_ONCE", 3_000)
    completed(second, pages)
    for table in ("urls", "page_content"):
        assert place.rows(table) == second.rows(table)


def test_a_file_of_lines_ends_where_it_ended(pages):
    read = LineFile(str(pages))
    assert [] == read.next()
    written(pages, [b"one", b"two"])
    assert [b"one", b"two"] == read.next()
    assert Position(2, 8, Position().after([b"one", b"two"]).chain) == read.position
    pages.write_bytes(b"one\n")
    assert read.next() is None
