"""Export of the archive: an index that other tools agree with, and a WACZ whose parts are those of the archive."""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import json
import os
import random
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from warcio.archiveiterator import ArchiveIterator

import outrider
from fake_web import FakeWeb
from limiting import set_limits
from outrider.archive.cdxj import cdxj_line
from outrider.archive.sorted_lines import SortedLines
from outrider.archive.warc import Exchange, WarcWriter
from outrider.archive.warc_reader import ReadRecord
from outrider.cli.main import run
from outrider.crawl.orders import archive_export
from outrider.crawl.orders.archive_export import ArchiveExport, export_archive
from outrider.crawl.output.token_set import TokenSet
from outrider.errors import NamedPathError, SettingsError, StoreFullError
from outrider.storage.files import Directory

AT = 1_767_323_045_678_901  # 2026-01-02T03:04:05.678901Z
COUNT = 30
NAME = "crawl-000000.warc.gz"


class Site(FakeWeb):
    pages = {  # noqa: RUF012
        "/robots.txt": b"",
        "/": b"<title>home</title>" + b"".join(b"<a href='/%d?b=2&a=1'>%d</a> " % (n, n) for n in range(COUNT)),
        "/moved": (301, "/1"),
        **{f"/{n}?b=2&a=1": b"<title>page %d</title><a href=/moved>x</a>" % n for n in range(COUNT)},
        "/7?b=2&a=1": b"no title, no type",
    }
    types = {"/7?b=2&a=1": "text/plain; charset=utf-8"}  # noqa: RUF012


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("crawled")
    (place / "hosts").write_text("127.0.0.1 www.one.test\n")
    options: dict[str, Any] = {"hosts": str(place / "hosts"), "downloader": Site, "delay": 0, "delay_factor": 0}
    outrider.crawl(["http://www.one.test/"], output=place / "crawl", **options)
    return place / "crawl"


@pytest.fixture
def crawl(crawled: Path, tmp_path: Path) -> Path:
    """A copy of the crawl that a test may change."""
    copy = tmp_path / "crawl"
    for folder, _, names in os.walk(crawled):
        made = copy / Path(folder).relative_to(crawled)
        made.mkdir()
        for name in names:
            if (Path(folder) / name).is_file():
                (made / name).write_bytes((Path(folder) / name).read_bytes())
    return copy


def exported(directory: Path, name: str) -> ArchiveExport:
    return export_archive([str(directory)], str(directory.parent / name), io.StringIO(), AT)


def index_of(path: Path) -> list[tuple[str, str, dict[str, str]]]:
    lines = path.read_text("ascii").splitlines()
    return [(key, stamp, json.loads(rest)) for key, stamp, rest in (line.split(" ", 2) for line in lines)]


def by_warcio(folder: Path) -> Iterator[dict[str, str]]:
    """What another reader finds in an archive, in the names of an index."""
    for path in sorted(folder.glob("*.warc.gz")):
        with path.open("rb") as file:
            records = ArchiveIterator(file)
            for record in records:
                if record.rec_type in ("response", "revisit"):
                    fields = record.rec_headers
                    yield {
                        "url": fields.get_header("WARC-Target-URI"),
                        "status": record.http_headers.get_statuscode(),
                        "digest": fields.get_header("WARC-Payload-Digest"),
                        "length": str(records.get_record_length()),
                        "offset": str(records.get_record_offset()),
                        "filename": path.name,
                    }


def without_mime(index: list[tuple[str, str, dict[str, str]]]) -> list[dict[str, str]]:
    found = [{name: value for name, value in entry.items() if name != "mime"} for _, _, entry in index]
    return sorted(found, key=lambda one: (one["filename"], int(one["offset"])))


# -- CDXJ


def test_each_record_is_in_the_index_where_another_reader_finds_it(crawl: Path) -> None:
    done = exported(crawl, "all.cdxj")
    index = index_of(crawl.parent / "all.cdxj")
    assert list(by_warcio(crawl / "archive")) == without_mime(index)
    assert (len(index), 0) == (done.records, done.exit_code)
    assert COUNT + 3 <= done.records  # home, the redirect and robots.txt


def test_lines_are_sorted_by_keys_without_www_and_with_sorted_parameters(crawl: Path) -> None:
    exported(crawl, "all.cdxj")
    lines = (crawl.parent / "all.cdxj").read_bytes().splitlines()
    assert sorted(lines) == lines
    assert any(line.startswith(b"test,one)/3?a=1&b=2 2") for line in lines)
    with (crawl / "archive" / NAME).open("rb") as file:
        date = next(one for one in ArchiveIterator(file) if one.rec_type == "response").rec_headers.get_header(
            "WARC-Date"
        )
    assert "".join(filter(str.isdigit, date))[:14] in {stamp for _, stamp, _ in index_of(crawl.parent / "all.cdxj")}


def test_mime_types_have_no_parameters(crawl: Path) -> None:
    exported(crawl, "all.cdxj")
    mimes = {entry["url"]: entry["mime"] for _, _, entry in index_of(crawl.parent / "all.cdxj")}
    assert ("text/plain", "text/html") == tuple(mimes[f"http://www.one.test/{n}?b=2&a=1"] for n in (7, 8))


def test_a_revisit_is_in_the_index(tmp_path: Path) -> None:
    block = b"HTTP/1.1 304 Not Modified\r\nContent-Type: text/html\r\n\r\n"
    fields = {"warc-target-uri": "https://a.test/x", "warc-date": "2026-01-02T03:04:05.678901Z"}
    line = cdxj_line(ReadRecord("revisit", 90, 12, fields, block, len(block)), "a.warc.gz", 90)
    key, stamp, rest = line.split(" ", 2)
    assert ("test,a)/x", "20260102030405") == (key, stamp)
    entry = json.loads(rest)
    assert ("warc/revisit", "304", "90", "12") == tuple(entry[name] for name in ("mime", "status", "offset", "length"))


def test_records_of_stale_tokens_are_in_neither_file(crawl: Path) -> None:
    lines = (crawl / "pages.jsonl").read_bytes().splitlines(keepends=True)
    stale = json.loads(lines[5])
    for name in ("pages.jsonl", "politeness.jsonl"):
        kept = [line for line in (crawl / name).read_bytes().splitlines(keepends=True) if not has(line, stale["token"])]
        (crawl / name).write_bytes(b"".join(kept))
    exported(crawl, "all.cdxj")
    exported(crawl, "all.wacz")
    for index in (index_of(crawl.parent / "all.cdxj"), index_of_wacz(crawl.parent / "all.wacz")):
        assert stale["url"] not in {entry["url"] for _, _, entry in index}
    with zipfile.ZipFile(crawl.parent / "all.wacz") as wacz, wacz.open(f"archive/{NAME}") as file:
        urls = [one.rec_headers.get_header("WARC-Target-URI") for one in ArchiveIterator(file)]
        assert urls
        assert stale["url"] not in urls
        assert stale["url"].encode() not in wacz.read("pages/pages.jsonl")


def has(line: bytes, token: int) -> bool:
    return bool(json.loads(line)["token"] == token)


def test_sorting_in_parts_on_disk_makes_the_same_file(crawl: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exported(crawl, "1.cdxj")
    set_limits(monkeypatch, SORT_BYTES_AT_ONCE=700, SORT_PARTS_MAX=3)
    exported(crawl, "2.cdxj")
    assert (crawl.parent / "1.cdxj").read_bytes() == (crawl.parent / "2.cdxj").read_bytes()


def test_any_number_of_lines_is_sorted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_limits(monkeypatch, SORT_BYTES_AT_ONCE=100, SORT_PARTS_MAX=4)
    made = random.Random(5)
    lines = [b"%d\n" % made.randrange(1_000) for _ in range(2_000)]
    found = SortedLines(str(tmp_path))
    for line in lines:
        found.add(line)
    assert sorted(lines) == list(found)
    found.close()
    assert [] == os.listdir(tmp_path)


def test_a_set_of_tokens_is_a_set() -> None:
    made = random.Random(3)
    tokens, plain = TokenSet(), set()
    for _ in range(5_000):
        token = made.choice((0, 1 << 40, 1 << 63)) + made.randrange(200_000)
        if made.random() < 0.7:
            tokens.add(token)
            plain.add(token)
        else:
            tokens.discard(token)
            plain.discard(token)
        assert (len(plain), token in plain) == (len(tokens), token in tokens)


# -- while a crawl runs, and after damage


def test_a_record_that_is_being_written_is_left_out(crawl: Path) -> None:
    before = exported(crawl, "1.cdxj").records
    with (crawl / "archive" / NAME).open("ab") as file:
        file.write(gzip.compress(b"WARC/1.1\r\n" + b"x" * 500)[:20])
    done = exported(crawl, "2.cdxj")
    assert (before, 0, []) == (done.records, done.exit_code, done.named)


def test_records_after_the_last_line_are_left_out(crawl: Path) -> None:
    before = exported(crawl, "1.cdxj").records
    archive = Directory(crawl / "archive")
    size = (crawl / "archive" / NAME).stat().st_size
    writer = WarcWriter.open_at(
        archive, (NAME, size), prefix="crawl", software="x", random_bytes=random.Random(1).randbytes
    )
    writer.add(
        Exchange(
            "http://www.one.test/new", "127.0.0.1", AT, b"GET /\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n", b"", token=1 << 41
        )
    )
    writer.sync()
    writer.close()
    archive.close()
    assert before == exported(crawl, "2.cdxj").records


@pytest.mark.parametrize("part", ["text", "checksum"])
def test_damage_is_named_and_all_other_pages_are_exported(
    part: str, crawl: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = exported(crawl, "1.cdxj").records
    path = crawl / "archive" / NAME
    octets = bytearray(path.read_bytes())
    place = next(
        int(one["offset"]) for _, _, one in index_of(crawl.parent / "1.cdxj") if one["url"].endswith("/3?b=2&a=1")
    )
    octets[place + 30] ^= 0xFF
    path.write_bytes(octets)
    code = run(["export", str(crawl), "--to", str(crawl.parent / "2.cdxj")])
    told = capsys.readouterr().err
    assert 5 == code
    assert f"at byte {place:,}" in told
    assert "1 record of pages.jsonl not in" in told
    assert whole - 1 == len(index_of(crawl.parent / "2.cdxj"))


def test_a_missing_file_of_the_archive_is_named(crawl: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (crawl / "archive" / NAME).unlink()
    assert 5 == run(["export", str(crawl), "--to", str(crawl.parent / "x.wacz")])
    assert "restore the files of the archive" in capsys.readouterr().err


def test_a_full_disk_leaves_the_file_as_it_was(crawl: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = crawl.parent / "x.cdxj"
    target.write_text("old")

    def full(self: SortedLines, line: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(SortedLines, "add", full)
    with pytest.raises(StoreFullError):
        exported(crawl, "x.cdxj")
    assert ("old", ["crawl", "x.cdxj"]) == (target.read_text(), sorted(os.listdir(crawl.parent)))


# -- wrong usage


def test_the_archive_of_one_directory_is_exported_at_a_time(crawl: Path) -> None:
    with pytest.raises(SettingsError, match="one directory at a time"):
        export_archive([str(crawl), str(crawl)], str(crawl.parent / "x.cdxj"), io.StringIO(), AT)


def test_a_directory_without_an_archive_is_refused(crawl: Path) -> None:
    (crawl / "archive" / NAME).unlink()
    (crawl / "archive").rmdir()
    with pytest.raises(NamedPathError, match="no archive"):
        exported(crawl, "x.wacz")
    assert not (crawl.parent / "x.wacz").exists()


def test_what_is_not_the_archive_has_other_forms(crawl: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == run(["export", str(crawl), "--what", "pages", "--to", str(crawl.parent / "x.wacz")])
    assert "--what pages" in capsys.readouterr().err


# -- WACZ


def index_of_wacz(path: Path) -> list[tuple[str, str, dict[str, str]]]:
    with zipfile.ZipFile(path) as wacz:
        lines = gzip.decompress(wacz.read("indexes/index.cdx.gz")).decode("ascii").splitlines()
    return [(key, stamp, json.loads(rest)) for key, stamp, rest in (line.split(" ", 2) for line in lines)]


def test_a_wacz_has_the_archive_its_index_and_digests_of_all_files(crawl: Path) -> None:
    done = exported(crawl, "all.wacz")
    exported(crawl, "all.cdxj")
    assert index_of(crawl.parent / "all.cdxj") == index_of_wacz(crawl.parent / "all.wacz")
    with zipfile.ZipFile(crawl.parent / "all.wacz") as wacz:
        assert wacz.testzip() is None
        package = json.loads(wacz.read("datapackage.json"))
        listed = {one["path"]: one for one in package["resources"]}
        assert set(wacz.namelist()) - {"datapackage.json", "datapackage-digest.json"} == set(listed)
        for path, one in listed.items():
            octets = wacz.read(path)
            assert (f"sha256:{hashlib.sha256(octets).hexdigest()}", len(octets)) == (one["hash"], one["bytes"])
        digest = f"sha256:{hashlib.sha256(wacz.read('datapackage.json')).hexdigest()}"
        assert digest == json.loads(wacz.read("datapackage-digest.json"))["hash"]
        assert (crawl / "archive" / NAME).read_bytes() == wacz.read(f"archive/{NAME}")
        assert zipfile.ZIP_STORED == wacz.getinfo(f"archive/{NAME}").compress_type
        assert ("1.1.1", "2026-01-02T03:04:05Z", "http://www.one.test/") == (
            package["wacz_version"],
            package["created"],
            package["mainPageUrl"],
        )
    assert done.pages


def test_the_list_of_pages_has_the_pages_with_html_and_their_times(crawl: Path) -> None:
    done = exported(crawl, "all.wacz")
    with zipfile.ZipFile(crawl.parent / "all.wacz") as wacz:
        head, *listed = map(json.loads, wacz.read("pages/pages.jsonl").decode("ascii").splitlines())
    lines = {line["url"]: line for line in map(json.loads, (crawl / "pages.jsonl").read_text().splitlines())}
    assert "json-pages-1.0" == head["format"]
    assert done.pages == len(listed) == COUNT  # the home page and all others with HTML
    for page in listed:
        line = lines[page["url"]]
        assert (line["fetched_at"], line["title"], str(line["token"])) == (page["ts"], page["title"], page["id"])
    assert "http://www.one.test/7?b=2&a=1" not in {page["url"] for page in listed}
    stamps = {(entry["url"], stamp) for _, stamp, entry in index_of_wacz(crawl.parent / "all.wacz")}
    assert {(page["url"], "".join(filter(str.isdigit, page["ts"]))[:14]) for page in listed} <= stamps


def test_places_are_right_after_records_that_were_left_out(crawl: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_limits(monkeypatch, ARCHIVE_COPY_BYTES=100)
    tokens = [json.loads(line)["token"] for line in (crawl / "pages.jsonl").read_bytes().splitlines()][::3]
    for name in ("pages.jsonl", "politeness.jsonl"):
        kept = [
            line
            for line in (crawl / name).read_bytes().splitlines(keepends=True)
            if json.loads(line)["token"] not in tokens
        ]
        (crawl / name).write_bytes(b"".join(kept))
    exported(crawl, "all.wacz")
    with zipfile.ZipFile(crawl.parent / "all.wacz") as wacz:
        (crawl.parent / "out").mkdir()
        (crawl.parent / "out" / NAME).write_bytes(wacz.read(f"archive/{NAME}"))
    index = index_of_wacz(crawl.parent / "all.wacz")
    assert index
    assert list(by_warcio(crawl.parent / "out")) == without_mime(index)
    places = [(one["offset"], one["length"]) for _, _, one in index]
    octets = (crawl.parent / "out" / NAME).read_bytes()
    for offset, length in places:
        assert gzip.decompress(octets[int(offset) :][: int(length)]).startswith(b"WARC/1.1")


def test_the_index_of_members_finds_each_member(crawl: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from outrider.archive import wacz as module

    monkeypatch.setattr(module, "_LINES_PER_MEMBER", 7)
    exported(crawl, "all.wacz")
    with zipfile.ZipFile(crawl.parent / "all.wacz") as wacz:
        index = wacz.read("indexes/index.cdx.gz")
        meta, *members = wacz.read("indexes/index.idx").decode("ascii").splitlines()
    assert meta.startswith("!meta 0 {")
    assert 4 < len(members)
    for member in members:
        key, _, place = member.partition(" {")
        found = json.loads("{" + place)
        octets = index[found["offset"] :][: found["length"]]
        assert f"sha256:{hashlib.sha256(octets).hexdigest()}" == found["digest"]
        assert gzip.decompress(octets).decode().startswith(key + " {")


def test_an_export_of_a_worker_or_of_no_crawl_is_named(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    with pytest.raises(SettingsError):
        export_archive([str(tmp_path / "x")], str(tmp_path / "x.cdxj"), io.StringIO(), AT)
    assert archive_export.archive_form("X.CDXJ") == ".cdxj"
