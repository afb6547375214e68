"""Small files that contain gigabytes of values: they are read in pieces with a limit in bytes."""

from __future__ import annotations

import io
import tracemalloc
from contextlib import suppress

import pytest

from outrider.crawl.output import parquet as reading
from outrider.crawl.output.tabular import FRONTIER, Read, in_batches, read_records
from outrider.errors import NamedPathError
from outrider.limits import IMPORT_BYTES_AT_ONCE, IMPORT_LINE_BYTES_MAX

arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
compute = pytest.importorskip("pyarrow.compute")

LONG = "http://a.test/" + "x" * 500_000
ROWS = 4_000  # two gigabytes of LONG


def repeated(value, rows=ROWS):
    return arrow.DictionaryArray.from_arrays(arrow.array([0] * rows, arrow.int32()), arrow.array([value]))


def most_memory_of(path):
    """Returns the rows of a file, and the peak memory of Arrow and of Python together during the reading."""
    pool = arrow.default_memory_pool()
    rows, most, before = 0, 0, pool.bytes_allocated()
    tracemalloc.start()
    try:
        for batch in in_batches(read_records(str(path), FRONTIER)):
            rows += len(batch)
            most = max(most, tracemalloc.get_traced_memory()[1] + pool.bytes_allocated() - before)
            del batch
    finally:
        tracemalloc.stop()
    return rows, most


@pytest.mark.parametrize("kind", [arrow.string(), arrow.large_string()])
def test_long_values_in_a_dictionary_are_read_piece_by_piece(tmp_path, kind):
    table = arrow.table({"url": repeated(LONG).cast(arrow.dictionary(arrow.int32(), kind)), "state": ["queued"] * ROWS})
    parquet.write_table(table, tmp_path / "x.parquet", compression="zstd")
    assert (tmp_path / "x.parquet").stat().st_size < 10_000
    rows, most = most_memory_of(tmp_path / "x.parquet")
    assert (ROWS, True) == (rows, most < 8 * IMPORT_BYTES_AT_ONCE)


@pytest.mark.parametrize("encoding", ["PLAIN", "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
def test_long_values_in_packed_pages_are_read_piece_by_piece(tmp_path, encoding):
    table = arrow.table({"url": [LONG + str(row) for row in range(100)]})
    parquet.write_table(
        table,
        tmp_path / "x.parquet",
        compression="zstd",
        use_dictionary=False,
        write_batch_size=8,
        column_encoding={"url": encoding},
    )
    assert (tmp_path / "x.parquet").stat().st_size < 200_000
    found = list(read_records(str(tmp_path / "x.parquet"), FRONTIER))
    assert [LONG + str(row) for row in range(100)] == [read.record["url"] for read in found if read.record]


def test_a_row_that_is_longer_than_a_line_may_be_is_named_and_the_other_rows_are_read(tmp_path):
    long = "http://a.test/" + "x" * IMPORT_LINE_BYTES_MAX
    table = arrow.table({"url": ["http://a.test/1", long, None, "http://a.test/2"], "state": ["done"] * 4})
    parquet.write_table(table, tmp_path / "x.parquet", compression="zstd")
    found = list(read_records(str(tmp_path / "x.parquet"), FRONTIER))
    assert [1, 2, 3, 4] == [read.place for read in found]
    assert [False, True, False, False] == [bool(read.fault) for read in found]
    assert "longer than" in found[1].fault


def test_a_page_of_gigabytes_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "IMPORT_GROUP_BYTES_MAX", 1 << 20)
    table = arrow.table({"url": [f"http://a.test/{'x' * 1_000}{row}" for row in range(2_000)]})
    parquet.write_table(table, tmp_path / "x.parquet", compression="zstd", data_page_size=1 << 24, use_dictionary=False)
    assert (tmp_path / "x.parquet").stat().st_size < 100_000
    with pytest.raises(NamedPathError, match=r"x\.parquet.*`url`"):
        list(read_records(str(tmp_path / "x.parquet"), FRONTIER))
    parquet.write_table(
        table, tmp_path / "y.parquet", data_page_size=1 << 14, write_batch_size=16, use_dictionary=False
    )
    assert 2_000 == len(list(read_records(str(tmp_path / "y.parquet"), FRONTIER)))


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "snappy", "gzip"])
def test_the_heads_of_all_pages_are_read(tmp_path, version, compression):
    table = arrow.table({"url": [f"http://a.test/{row % 700}" for row in range(5_000)], "depth": range(5_000)})
    parquet.write_table(
        table,
        tmp_path / "x.parquet",
        compression=compression,
        data_page_version=version,
        data_page_size=2_000,
        row_group_size=1_500,
        write_statistics=True,
    )
    with open(tmp_path / "x.parquet", "rb") as octets, parquet.ParquetFile(tmp_path / "x.parquet") as file:
        for number in range(4):
            chunk = file.metadata.row_group(number).column(0)
            pages = reading._pages_of(octets, "x", chunk)
            assert reading._DICTIONARY_PAGE == pages[0].kind
            assert len(pages) > 1
    found = list(read_records(str(tmp_path / "x.parquet"), FRONTIER))
    assert [f"http://a.test/{row % 700}" for row in range(5_000)] == [read.record["url"] for read in found]


def test_nested_columns_are_not_texts(tmp_path):
    parquet.write_table(arrow.table({"url": [["http://a.test/"]]}), tmp_path / "x.parquet")
    with pytest.raises(NamedPathError, match="`url`"):
        list(read_records(str(tmp_path / "x.parquet"), FRONTIER))
    parquet.write_table(arrow.table({"url": ["http://a.test/"], "mine": [["x"]]}), tmp_path / "y.parquet")
    assert [{"url": "http://a.test/"}] == [read.record for read in read_records(str(tmp_path / "y.parquet"), FRONTIER)]


@pytest.mark.parametrize("at", range(4, 120, 9))
def test_a_damaged_head_is_a_clear_error_or_a_fault(tmp_path, at):
    parquet.write_table(arrow.table({"url": ["http://a.test/"] * 50}), tmp_path / "x.parquet", compression="none")
    octets = bytearray((tmp_path / "x.parquet").read_bytes())
    octets[at] ^= 0xFF
    (tmp_path / "x.parquet").write_bytes(octets)
    with suppress(NamedPathError):
        list(read_records(str(tmp_path / "x.parquet"), FRONTIER))


def test_rows_are_imported_by_number_and_by_bytes():
    few = [Read(row, {"url": "x" * 1_000}) for row in range(2_500)]
    assert [1_000, 1_000, 500] == [len(batch) for batch in in_batches(iter(few))]
    long = [Read(row, {"url": "x" * 1_000_000, "metadata": {"a": "b"}}) for row in range(20)]
    assert [9, 9, 2] == [len(batch) for batch in in_batches(iter(long))]


@pytest.mark.parametrize("form", [".csv", ".jsonl"])
def test_long_lines_are_read_piece_by_piece(tmp_path, form):
    line = "http://a.test/" + "x" * 900_000
    with open(tmp_path / f"x{form}", "w") as file:
        file.write("url\n" if form == ".csv" else "")
        for _ in range(60):
            file.write(f"{line}\n" if form == ".csv" else f'{{"url":"{line}"}}\n')
    rows, most = most_memory_of(tmp_path / f"x{form}")
    assert (60, True) == (rows, most < 6 * IMPORT_BYTES_AT_ONCE)


def test_a_row_of_csv_over_many_lines_has_a_limit(tmp_path):
    text = io.StringIO()
    text.write("url,a\nhttp://a.test/1,x\n")
    text.write('http://a.test/2,"' + "y" * 99 + "\n" + ('z","' + "y" * 99 + "\n") * (2 * IMPORT_LINE_BYTES_MAX // 104))
    text.write('"\nhttp://a.test/3,x\n')
    (tmp_path / "x.csv").write_text(text.getvalue())
    found = list(read_records(str(tmp_path / "x.csv"), FRONTIER))
    assert "http://a.test/1" == found[0].record["url"]
    assert any("longer than" in read.fault for read in found)
    assert max(read.bytes for read in found) < 2 * IMPORT_LINE_BYTES_MAX
