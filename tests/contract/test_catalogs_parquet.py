"""The contract of catalogs for folders of Parquet files, and their parts."""

from __future__ import annotations

import pytest

from catalogs import ParquetPlace, line, listed, written
from contract import test_catalogs as contract
from contract.test_catalogs import completed, follower, tokens
from outrider.catalog.destination import CatalogError
from outrider.catalog.parquet_parts import ParquetCatalog

CONTRACT = (
    "pages",
    "test_a_catalog_of_a_later_release_is_refused",
    "test_a_file_that_was_cut_is_refused_until_its_lines_are_there_again",
    "test_a_line_that_cannot_be_read_is_counted_and_the_next_one_is_stored",
    "test_a_position_of_another_crawl_is_refused_with_the_way_out",
    "test_a_position_that_another_process_moved_is_refused",
    "test_a_robots_file_is_stored_and_replaced",
    "test_a_second_run_adds_only_the_new_lines",
    "test_an_edited_line_before_the_position_is_noticed",
    "test_an_unfinished_line_waits_for_its_end",
    "test_values_that_do_not_fit_are_cut_and_counted",
)
"""The fixture and the tests of all kinds that also apply to a folder: its rows have no ids."""
globals().update({name: getattr(contract, name) for name in CONTRACT})


@pytest.fixture
def place(tmp_path) -> ParquetPlace:
    return ParquetPlace(tmp_path)


def test_parts_are_by_month_and_named_by_their_lines(place, pages):
    completed(place, written(pages, [line(1), line(2, fetched_at="2026-11-01T00:00:00.000Z")]))
    length = pages.stat().st_size
    assert ["month=2026-10", "month=2026-11"] == [part.parent.name for part in place.parts()]
    assert all(part.name.startswith(f"{0:012d}-{length:012d}-") for part in place.parts())


def test_a_part_that_is_made_twice_is_the_same_part(place, pages):
    completed(place, written(pages, map(line, range(1, 5))))
    (part,) = place.parts()
    first = part.read_bytes()
    # As after a kill between the part and its position.
    place.change("SET length = 0")
    place.change("SET lines = 0")
    text = (place.path / "position.json").read_text()
    chain = text.partition('"chain": "')[2].partition('"')[0]
    (place.path / "position.json").write_text(text.replace(chain, ""))
    completed(place, pages)
    assert ([part], first) == (place.parts(), part.read_bytes())


def test_lines_that_were_not_settled_are_stored_by_the_next_run(place, pages):
    made = follower(place, written(pages, map(line, range(1, 4))))
    made.open()
    made.take_lines()
    made.close()
    assert [] == tokens(place)
    completed(place, pages)
    assert [1, 2, 3] == tokens(place)


def test_a_part_is_sealed_at_its_size_and_at_its_age(place, pages):
    now = [0]
    catalog = ParquetCatalog(str(place.path), clock=lambda: now[0], part_bytes=1_000)
    stored = catalog.open().position
    from outrider.catalog.rows import batch_of

    def append(*lines: bytes) -> None:
        nonlocal stored
        before, stored = stored, stored.after(lines)
        catalog.append(batch_of(lines), before, stored)

    append(line(1))
    assert [] == place.parts()
    append(line(2), line(3))
    assert [1, 2, 3] == tokens(place)
    append(line(4))
    now[0] = 301_000_000
    append(line(5))
    assert [1, 2, 3, 4, 5] == tokens(place)
    catalog.close()


def test_a_list_replaces_the_one_before(place, pages):
    completed(place, pages, [listed("http://a.test/"), listed("http://b.test/", "done")])
    completed(place, pages, [listed("http://a.test/", "gone")])
    assert [("http://a.test/", "failed")] == [(row["url"], row["state"]) for row in place.rows("urls")]


def test_a_folder_with_other_files_is_refused(place):
    place.path.mkdir()
    (place.path / "mine.txt").write_text("mine")
    for anew in (False, True):
        with pytest.raises(CatalogError, match="of another program"):
            place.catalog().open(anew=anew)
    assert "mine" == (place.path / "mine.txt").read_text()
