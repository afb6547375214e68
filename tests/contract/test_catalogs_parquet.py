"""The contract of catalogs of Parquet files in folders and in object storage, and their parts."""

from __future__ import annotations

import pytest

from catalogs import ObjectPlace, ParquetPlace, line, listed, written
from contract import test_catalogs as contract
from contract.test_catalogs import completed, follower, tokens
from outrider.catalog.destination import CatalogError, CatalogInUseError
from outrider.catalog.rows import batch_of
from outrider.limits import CATALOG_POSITIONS_KEPT

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
"""The fixture and the tests of all kinds that also apply here: these rows have no ids."""
globals().update({name: getattr(contract, name) for name in CONTRACT})


@pytest.fixture(params=[ParquetPlace, ObjectPlace])
def place(request, tmp_path) -> ParquetPlace:
    return request.param(tmp_path)


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
    text = place.position().read_text()
    chain = text.partition('"chain": "')[2].partition('"')[0]
    place.position().write_text(text.replace(chain, ""))
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
    catalog = place.sealing(clock=lambda: now[0], part_bytes=1_000)
    stored = catalog.open().position

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


def test_a_program_that_was_stalled_cannot_store_a_position_after_another_one_opened_the_catalog(place, pages):
    completed(place, written(pages, [line(1)]))
    stalled = place.catalog()
    before = stalled.open().position
    stalled.append(batch_of([line(2)]), before, before.after([line(2)]))
    written(pages, [line(2)])
    # Another program goes on, so many times that old positions are not kept.
    for token in range(3, 3 + CATALOG_POSITIONS_KEPT):
        completed(place, written(pages, [line(token)]))
    stored = list(place.store().names())
    with pytest.raises(CatalogInUseError):
        stalled.settle()
    assert stored == list(place.store().names())
    assert list(range(1, 3 + CATALOG_POSITIONS_KEPT)) == tokens(place)
