"""Export and import: files read back unchanged, and one bad line affects only itself."""

from __future__ import annotations

import builtins
import csv
import errno
import io
import json
import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limiting import set_limits
from outrider.crawl.orders import exchange
from outrider.crawl.output import tabular
from outrider.crawl.output.tabular import FRONTIER, PAGES, Read, read_records, write_records
from outrider.errors import SettingsError, StoreFullError
from outrider.journey import Code

FORMS = [".jsonl", ".csv", ".parquet"]
RECORD = {
    "url": "http://example.org/",
    "crawl": "default",
    "key": "example.org",
    "state": "waiting",
    "reason": None,
    "priority": 0.1 + 0.2,
    "depth": 3,
    "hops": 0,
    "referrer": "http://example.org/from",
    "due": 1_700_000_000_000_001,
    "attempts": 2,
    "losses": 0,
    "status": 503,
    "error": "http_503",
    "etag": '"abc"',
    "metadata": {"a": [1, None, "ü"], "b": ""},
    "unheard": {"of": True},
}


def written(path, records, shape=FRONTIER):
    counts = []
    write_records(str(path), records, shape, counts.append)
    assert len(records) == sum(counts)
    return path


def read(path, shape=FRONTIER):
    return list(read_records(str(path), shape))


def without_nothing(record):
    return {name: value for name, value in record.items() if value is not None}


@pytest.mark.parametrize("form", FORMS)
def test_a_record_reads_back_unchanged(tmp_path, form):
    path = written(tmp_path / f"all{form}", [RECORD])
    assert [without_nothing(RECORD)] == [without_nothing(one.record) for one in read(path)]


@pytest.mark.parametrize("form", FORMS)
def test_a_file_may_have_no_records(tmp_path, form):
    assert [] == read(written(tmp_path / f"none{form}", []))


def test_writing_the_records_of_a_file_makes_the_same_bytes(tmp_path):
    for form in (".jsonl", ".csv"):
        first = written(tmp_path / f"1{form}", [RECORD, {**RECORD, "url": "http://b.com/", "due": None}])
        second = written(tmp_path / f"2{form}", [one.record for one in read(first)])
        if form == ".csv":
            assert first.read_bytes() == second.read_bytes()
        assert [one.record for one in read(first)] == [one.record for one in read(second)]


ODD = [
    *("", " ", "=1+1", "+1", "-1", "@x", "\t=1", '"', "[", "{}", "7", "007", "1e5", "true", "null", "NaN", "a,b"),
    *("a\nb", "a\r\nb", "\x00", "\x7f", "\u2028", "ü", "𝄞", "'", ";", "-Infinity", "１"),
]


@pytest.mark.parametrize("form", FORMS)
def test_any_text_reads_back_unchanged(tmp_path, form):
    records = [{"url": "http://a.com/", "etag": text, "metadata": text} for text in ODD]
    path = written(tmp_path / f"odd{form}", records)
    assert records == [one.record for one in read(path)]


@given(text=st.text(st.characters(codec="utf-8"), max_size=20))
def test_any_text_in_a_cell_reads_back_unchanged(text):
    for kind in ("text", "json"):
        line = tabular._csv_line([tabular._cell(text, kind)])
        assert [text] == [tabular._value(cell, kind) for cell in next(csv.reader([line]))]


@pytest.mark.parametrize("text", ["2026-11-22T20:18:21.000Z", "[x]", "{x}", "true", "null", "7"])
def test_a_text_is_in_its_cell_unchanged(text):
    assert (text, text) == (tabular._cell(text, "text"), tabular._value(text, "text"))


@given(text=st.text(max_size=20))
def test_no_cell_starts_like_a_formula(text):
    assert tabular._cell(text, "text")[:1] not in ("=", "+", "-", "@", "\t", "\r")


@pytest.mark.parametrize("form", [".jsonl", ".csv"])
def test_a_file_for_people_contains_no_control_character(tmp_path, form):
    path = written(tmp_path / f"x{form}", [{"url": "http://a.com/", "error": "\x1b[2J\x7f\x9b\u202e"}])
    assert {"\n"} == {character for character in path.read_text("utf-8") if not character.isprintable()}


def test_pages_have_their_own_columns(tmp_path):
    page = {
        "url": "http://a.com/",
        "outcome": "done",
        "token": 2**40 + 1,
        "warc": {"file": "x", "offset": 1, "length": 2},
    }
    path = written(tmp_path / "pages.csv", [page], PAGES)
    assert "outcome" in path.read_text().splitlines()[0]
    assert [page] == [one.record for one in read(path, PAGES)]


OWN = [
    {"sku": "007", "price": 1, "sold": True, "stock": 5, "tags": ["a"], "odd": 1, "id": 2**60, "huge": 2**70},
    {"sku": "a,b", "price": 2.5, "sold": False, "stock": None, "tags": [], "odd": "1", "id": 3, "huge": 1},
]
KINDS = {"sku": "text", "price": "real", "sold": "truth", "stock": "whole", "tags": "json", "odd": "json"}
KINDS |= {"id": "whole", "huge": "json"}


def test_an_own_field_is_a_column_with_the_type_of_all_its_values():
    shape = PAGES.widened(OWN)
    assert (KINDS, False) == ({name: shape.columns[name] for name in OWN[0]}, shape.more)
    assert "json" == PAGES.widened([{"n": 2**60}, {"n": 0.5}]).columns["n"]  # a real number would round the first
    assert [*PAGES.columns, "b", "a"] == PAGES.widened([{"b": 1}, {"a": 1, "b": 2}]).names


@pytest.mark.parametrize("form", [".csv", ".parquet"])
def test_own_fields_read_back_unchanged(tmp_path, form):
    records = [{"url": f"http://a.com/{row}", **own} for row, own in enumerate(OWN)]
    shape = PAGES.widened(records)
    found = read(written(tmp_path / f"x{form}", records, shape), shape)
    assert [without_nothing(record) for record in records] == [one.record for one in found]


def test_own_fields_have_types_in_parquet(tmp_path):
    pytest.importorskip("pyarrow")
    import pyarrow.parquet

    records = [{"url": f"http://a.com/{row}", **own} for row, own in enumerate(OWN)]
    path = written(tmp_path / "x.parquet", records, PAGES.widened(records))
    schema = pyarrow.parquet.read_schema(path)
    assert "more" not in schema.names
    types = {name: str(schema.field(name).type) for name in OWN[0]}
    assert ["string", "double", "bool", "int64"] == [types[name] for name in ("sku", "price", "sold", "stock")]


def test_fields_beyond_the_column_limit_share_one_column(tmp_path, monkeypatch):
    set_limits(monkeypatch, EXPORT_COLUMNS_MAX=3)
    record = {"url": "http://a.com/", **{f"f{number}": number for number in range(5)}}
    shape = PAGES.widened([record])
    path = written(tmp_path / "x.csv", [record], shape)
    assert ["f0", "f1", "f2", "more"] == path.read_text().splitlines()[0].split(",")[-4:]
    assert [record] == [one.record for one in read(path, shape)]


def test_the_name_of_an_own_field_cannot_be_a_formula(tmp_path):
    record = {"url": "http://a.com/", "=1+1": 5, '"': 6}
    path = written(tmp_path / "x.csv", [record], PAGES.widened([record]))
    cells = next(csv.reader([path.read_text().splitlines()[0]]))
    assert not [cell for cell in cells if cell[:1] in ("=", "+", "-", "@")]
    assert [record] == [one.record for one in read(path, PAGES)]


@pytest.mark.parametrize("form", FORMS)
def test_records_with_long_metadata_are_written_in_portions_that_an_import_reads(tmp_path, monkeypatch, form):
    """200 URLs of a crawl by unique keys were one row group of Parquet, which no import read. Sizes are scaled down."""
    set_limits(monkeypatch, EXPORT_BYTES_AT_ONCE=32 << 10, IMPORT_GROUP_BYTES_MAX=256 << 10)
    records = [{**RECORD, "metadata": {"body": f"{row:08}" * 128}, "unique_key": f"{row:04x}"} for row in range(200)]
    counts = []
    write_records(str(tmp_path / f"x{form}"), records, FRONTIER, counts.append)
    assert (200, True) == (sum(counts), max(counts) <= 32)
    assert records == [without_nothing(one.record) | {"reason": None} for one in read(tmp_path / f"x{form}")]


FOUND = "2026-11-27T14:27:20.123Z"
TIMES = [1_764_253_640_123_456, 0, 253_402_300_799_999_999, 1 << 62]


@pytest.mark.parametrize("form", [".csv", ".parquet"])
def test_times_read_back_unchanged(tmp_path, form):
    records = [{"url": "http://a.com/", "due": at, "fetched_at": at} for at in TIMES]
    assert records == [one.record for one in read(written(tmp_path / f"x{form}", records))]
    page = {"url": "http://a.com/", "outcome": "done", "fetched_at": FOUND}
    assert [page] == [one.record for one in read(written(tmp_path / f"p{form}", [page], PAGES), PAGES)]


def test_times_are_timestamps_in_parquet_and_rfc_3339_in_csv(tmp_path):
    record = {"url": "http://a.com/", "due": TIMES[0], "fetched_at": 0}
    text = written(tmp_path / "x.csv", [record]).read_text()
    assert "2025-11-27T14:27:20.123456Z,1970-01-01T00:00:00.000000Z" in text
    pytest.importorskip("pyarrow")
    import pyarrow.parquet

    page = {"url": "http://a.com/", "fetched_at": FOUND}
    for path, names in (
        (written(tmp_path / "x.parquet", [record]), ("due", "fetched_at")),
        (written(tmp_path / "p.parquet", [page], PAGES), ("fetched_at",)),
    ):
        schema = pyarrow.parquet.read_schema(path)
        assert {"timestamp[us, tz=UTC]"} == {str(schema.field(name).type) for name in names}


def test_times_of_earlier_exports_and_of_other_tools_are_read(tmp_path):
    cells = ["1764253640123456", "2025-11-27 14:27:20.123456+00:00", "2025-11-27T15:27:20.123456+01:00"]
    path = tmp_path / "x.csv"
    path.write_text("url,due\n" + "".join(f"http://a.com/,{cell}\n" for cell in cells))
    assert {TIMES[0]} == {one.record["due"] for one in read(path)}
    arrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    for unit, scale in (("ns", 1_000), ("us", 1)):
        table = arrow.table({"url": ["http://a.com/"], "due": arrow.array([TIMES[0] * scale], arrow.timestamp(unit))})
        pyarrow.parquet.write_table(table, tmp_path / "x.parquet")
        assert [TIMES[0]] == [one.record["due"] for one in read(tmp_path / "x.parquet")]


def test_a_cell_that_is_not_a_time_is_named(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("url,state,due\nhttp://a.com/,queued,soon\n")
    found = taken(FakeFrontier(), path)
    assert ([2], True) == ([place for _, place, _ in found.faults], "'soon', not a time" in found.faults[0][2])


@pytest.mark.parametrize("form", FORMS)
def test_exported_pages_are_imported_with_their_states(tmp_path, form):
    page = {"url": "http://a.com/", "outcome": "done", "status": 200, "fetched_at": FOUND, "depth": 1, "price": 3}
    page |= {"priority": 0.5, "referrer": None, "links": 0, "token": 5}
    path = written(tmp_path / f"pages{form}", [page], PAGES.widened([page]))
    frontier = FakeFrontier()
    found = taken(frontier, path)
    assert ({"imported": 1}, 0) == (found.codes, found.skipped)
    kept = frontier.kept["http://a.com/"]
    assert ("done", 200, 1) == (kept["state"], kept["status"], kept["depth"])


def test_an_export_of_pages_reads_the_same_lines_twice_while_the_crawl_writes(tmp_path):
    (tmp_path / "frontier").mkdir()
    path = tmp_path / "pages.jsonl"
    path.write_text('{"url":"http://a.com/","token":1,"n":1}\n{"url":"http://b.com/","token":2}\n{"ur')
    lines = exchange.PageLines([str(tmp_path)])
    before = list(lines)
    with path.open("a") as file:
        file.write('l":"http://c.com/","token":3,"n":"x"}\n')
    assert ([1, 2], before) == ([line["token"] for line in before], list(lines))


def test_a_name_with_an_unknown_suffix_is_refused(tmp_path):
    with pytest.raises(SettingsError, match=r"\.jsonl, \.csv, \.parquet"):
        written(tmp_path / "x.xlsx", [])


def test_a_file_that_could_not_be_written_completely_is_unchanged(tmp_path):
    path = tmp_path / "all.jsonl"
    path.write_text("old")

    def records():
        yield RECORD
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(StoreFullError):
        write_records(str(path), records(), FRONTIER, lambda count: None)
    assert ("old", ["all.jsonl"]) == (path.read_text(), os.listdir(tmp_path))


@pytest.mark.parametrize("place", ["missing/x.csv", "x.csv/"])
def test_an_invalid_place_is_wrong_usage(tmp_path, place):
    (tmp_path / "x.csv").mkdir()
    with pytest.raises(SettingsError):
        write_records(str(tmp_path / place).rstrip("/"), [], FRONTIER, lambda count: None)


def test_without_pyarrow_the_error_says_what_to_install(tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *more, **others):
        if name.split(".")[0] == "pyarrow":
            raise ImportError(name)
        return real(name, *more, **others)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(SettingsError, match=r"outrider\[parquet\]"):
        written(tmp_path / "x.parquet", [])


# -- reading what others wrote


def test_bad_lines_are_named_and_the_other_lines_are_read(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"url":"http://a.com/"}\n\nnonsense\n[1]\n\xff\n{"url":"http://b.com/"}')
    found = read(path)
    assert [1, 3, 4, 5, 6] == [one.place for one in found]
    assert [True, False, False, False, True] == [not one.fault for one in found]


def test_an_endless_line_is_skipped(tmp_path, monkeypatch):
    set_limits(monkeypatch, IMPORT_LINE_BYTES_MAX=64)
    for form, head in ((".jsonl", b""), (".csv", b"url\n"), (".txt", b"")):
        path = tmp_path / f"x{form}"
        path.write_bytes(head + b"x" * 1_000 + b'\n{"url":"http://a.com/"}\n')
        first, second = read(path)
        assert ("it is longer than 64 bytes", "") == (first.fault, second.fault)


def test_endless_nesting_is_a_fault_of_its_line(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"[" * 200_000 + b"\n")
    assert [True] == [bool(one.fault) for one in read(path)]


def test_a_table_without_a_column_url_is_refused(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("address,state\nhttp://a.com/,queued\n")
    with pytest.raises(SettingsError, match="no column `url`"):
        read(path)


def test_a_row_with_too_few_cells_is_named(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("url,state\nhttp://a.com/\nhttp://b.com/,done\n")
    assert [
        Read(2, fault="it has 1 cells, but the head has 2"),
        Read(3, {"url": "http://b.com/", "state": "done"}),
    ] == read(path)


def test_a_file_with_no_parquet_content_is_wrong_usage(tmp_path):
    path = tmp_path / "x.parquet"
    path.write_bytes(b"PAR1" + bytes(100))
    with pytest.raises(SettingsError):
        read(path)


def test_a_list_of_urls_may_have_comments_and_empty_lines(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("# mine\n\n http://a.com/ \nhttp://b.com/")
    assert [(3, "http://a.com/"), (4, "http://b.com/")] == [(one.place, one.record["url"]) for one in read(path)]


# -- taking in


class FakeFrontier:
    """Stores its records by URL."""

    def __init__(self):
        self.kept = {}
        self.calls = []

    def records(self, *, after=None):
        yield from self.kept.values()

    def restore(self, records):
        records = list(records)
        self.calls.append(len(records))
        if any(record["url"] == "http://refused.test/" for record in records):
            raise SettingsError("not that one")
        new = [record for record in records if record["url"] not in self.kept]
        self.kept |= {record["url"]: record for record in new}
        return len(new)

    def discover(self, links):
        codes = []
        for url in links:
            codes.append(Code.KNOWN if url in self.kept else Code.NEW)
            self.kept[url] = {"url": url}
        self.calls.append(len(codes))
        return codes


def taken(frontier, path):
    found = exchange.Imported()
    exchange.take_file(frontier, str(path), found, exchange.Counter(io.StringIO(), "imported"))
    return found


@pytest.mark.parametrize("form", FORMS)
def test_an_export_of_an_import_equals_the_first_export(tmp_path, form):
    first, second = FakeFrontier(), FakeFrontier()
    first.kept = {
        f"http://h{number}.test/": without_nothing({**RECORD, "url": f"http://h{number}.test/", "depth": number})
        for number in range(2_500)
    }
    taken(second, written(tmp_path / f"all{form}", list(first.records())))
    assert ([1_000, 1_000, 500], list(first.records())) == (second.calls, list(second.records()))


def test_bad_records_are_named_with_their_line_and_the_other_records_are_imported(tmp_path):
    path = tmp_path / "x.jsonl"
    rows = [
        {"url": "http://a.com/", "state": "done"},
        {"url": "mailto:a@b", "state": "done"},
        {"url": "http://b.com/", "state": "lost"},
        {"state": "done"},
        {"url": "http://c.com/", "state": "done", "depth": "deep"},
        {"url": "http://d.com/", "state": "done", "depth": 2**63},
        {"url": "http://f.com/", "state": ["done"]},
        {"url": "http://g.com/", "state": "x" * 100_000},
        {"url": "http://refused.test/", "state": "done"},
        {"url": "http://e.com/", "state": "queued"},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    frontier = FakeFrontier()
    found = taken(frontier, path)
    assert ["http://a.com/", "http://e.com/"] == list(frontier.kept)
    assert (10, 2, 8, [2, 3, 4, 5, 6, 7, 8, 9]) == (
        found.rows,
        found.codes["imported"],
        found.skipped,
        [place for _, place, _ in found.faults],
    )


def test_a_row_of_parquet_without_text_is_named_and_the_other_rows_are_read(tmp_path):
    """A cell whose bytes are not UTF-8 once ended an import as a bug."""
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    urls = [b"http://a.com/", b"http://\xff.com/", b"http://c.com/"]
    table = arrow.table({"url": arrow.array(urls, arrow.binary()).view(arrow.string()), "state": ["done"] * 3})
    parquet.write_table(table, tmp_path / "x.parquet")
    frontier = FakeFrontier()
    found = taken(frontier, tmp_path / "x.parquet")
    assert (["http://a.com/", "http://c.com/"], [2]) == (list(frontier.kept), [place for _, place, _ in found.faults])


def test_an_interrupted_import_is_run_again(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("".join(f"http://h{number}.test/\n" for number in range(2_500)))

    class Dies(FakeFrontier):
        def discover(self, links):
            if len(self.calls) == 2:
                raise KeyboardInterrupt
            return super().discover(links)

    frontier = Dies()
    with pytest.raises(KeyboardInterrupt):
        taken(frontier, path)
    assert 2_000 == len(frontier.kept)
    frontier.calls = [0]
    again = FakeFrontier()
    again.kept = frontier.kept
    found = taken(again, path)
    assert (2_500, {"known": 2_000, "imported": 500}) == (len(again.kept), found.codes)


def test_a_limited_number_of_faults_is_named_and_all_are_counted(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("nonsense\n" * 1_234)
    found = taken(FakeFrontier(), path)
    assert (1_234, 20) == (found.skipped, len(found.faults))


def test_the_counter_prints_now_and_then_and_with_a_rate(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    talk = io.StringIO()
    counter = exchange.Counter(talk, "exported")
    for _ in range(30):
        now[0] += 0.1
        counter.add(1_000)
    counter.end(" to x.jsonl")
    said = talk.getvalue().splitlines()
    assert 2 <= len(said) <= 4
    assert "exported 30,000 records, 10,000 a second to x.jsonl" == said[-1]
