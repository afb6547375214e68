"""WARC files: their content for other tools, and the result of a crash, a full disk and a damaged directory."""

from __future__ import annotations

import gzip
import io
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastwarc.warc import ArchiveIterator as FastIterator
from warcio.archiveiterator import ArchiveIterator
from warcio.cli import main as warcio

from crash.directories import FullDirectory
from outrider.archive.warc import (
    Exchange,
    WarcPlace,
    WarcWriter,
    payload_digest,
    read_record,
    serial_of,
)
from outrider.errors import DamagedStoreError, InvalidUrlError, SettingsError, StoreFullError
from outrider.storage.files import Directory

AT = 1_767_323_045_678_901  # 2026-01-02T03:04:05.678901Z
REQUEST = b"GET /a HTTP/1.1\r\nHost: site.test\r\n\r\n"
PLAIN_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"


def exchange(number: int = 0, **fields: Any) -> Exchange:
    known: dict[str, Any] = {
        "url": f"http://site.test/{number}",
        "address": "192.0.2.7",
        "at": AT + number,
        "request_head": REQUEST,
        "head": PLAIN_HEAD,
        "body": b"<html>%d</html>" % number,
        "token": 1_000 + number,
    }
    return Exchange(**(known | fields))


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    """Closes the directories that a test opened. Hundreds of them use hundreds of descriptors."""
    yield
    while opened:
        opened.pop().close()


opened: list[Directory] = []


def directory(path: Path) -> Directory:
    opened.append(Directory(path))
    return opened[-1]


def writer(path: Path, watermark: tuple[str, int] | None = None, **options: Any) -> WarcWriter:
    return WarcWriter.open_at(
        options.pop("files", None) or directory(path),
        watermark,
        prefix="crawl",
        software="outrider/0.1",
        random_bytes=random.Random(options.pop("seed", 7)).randbytes,
        **options,
    )


def urls_of(path: Path) -> list[str]:
    found = []
    for name in sorted(path.glob("*.warc.gz")):
        with name.open("rb") as stream:
            found += [
                record.rec_headers.get_header("WARC-Target-URI")
                for record in ArchiveIterator(stream)
                if record.rec_type == "response"
            ]
    return found


def checked(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        warcio(["check", "-v", *(str(name) for name in sorted(path.glob("*.warc.gz")))])
    return int(ended.value.code or 0), capsys.readouterr().out


CHUNKED = b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n"
ZIPPED = gzip.compress(b"hello world" * 100)
BODIES = {
    "plain": exchange(1),
    "empty": exchange(2, body=b"", head=b"HTTP/1.1 301 Moved\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n"),
    "chunked": exchange(
        3,
        body=CHUNKED,
        head=b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        payload=b"hello world",
    ),
    "extended": exchange(  # chunk extensions and trailers: warcio keeps them, and does not decode them
        9,
        body=b"2;x=y\r\nok\r\n0\r\nX-Trailer: t\r\n\r\n",
        head=b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        payload=b"ok",
    ),
    "gzip": exchange(4, body=ZIPPED, head=b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n"),
    "truncated": exchange(5, body=ZIPPED[:40], head=b"HTTP/1.1 200 OK\r\n\r\n", truncated="length"),
    "binary": exchange(6, body=bytes(range(256)) * 40 + b"\r\n\r\nWARC/1.1\r\n"),
    "ipv6": exchange(7, address="2001:db8::1", token=None),
    "latin": exchange(8, head=b"HTTP/1.1 200 OK\r\nX-L: \xe9\xff\r\n\r\n", body=b"\xe9"),
}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    made = writer(tmp_path)
    for each in BODIES.values():
        made.add(each)
    made.sync()
    made.close()
    return tmp_path


def test_warcio_accepts_every_digest_except_those_of_payloads_in_chunks(
    archive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It computes these over the chunks, which WARC 1.1 section 5.9 leaves out (webrecorder/warcio#74)."""
    code, output = checked(archive, capsys)
    assert (1, 17, 2) == (code, output.count("digest pass"), output.count("payload digest failed"))


def test_the_digest_of_a_payload_in_chunks_is_that_of_its_content(archive: Path) -> None:
    with (archive / "crawl-000000.warc.gz").open("rb") as stream:
        found = {
            record.rec_headers.get_header("WARC-Target-URI"): record.rec_headers.get_header("WARC-Payload-Digest")
            for record in ArchiveIterator(stream, no_record_parse=True)
            if record.rec_type == "response"
        }
    for kind, payload in (("chunked", b"hello world"), ("extended", b"ok"), ("gzip", ZIPPED)):
        assert payload_digest(payload) == found[BODIES[kind].url]


@pytest.mark.parametrize("kind", BODIES)
def test_warcio_reads_head_and_body(archive: Path, kind: str) -> None:
    with (archive / "crawl-000000.warc.gz").open("rb") as stream:
        blocks = {
            record.rec_headers.get_header("WARC-Target-URI"): record.raw_stream.read()
            for record in ArchiveIterator(stream, no_record_parse=True)
            if record.rec_type == "response"
        }
    assert BODIES[kind].head + BODIES[kind].body == blocks[BODIES[kind].url]


@pytest.mark.parametrize("kind", BODIES)
def test_fastwarc_reads_the_body(archive: Path, kind: str) -> None:
    with (archive / "crawl-000000.warc.gz").open("rb") as stream:
        bodies = {
            record.headers["WARC-Target-URI"]: record.reader.read()
            for record in FastIterator(stream)
            if record.headers["WARC-Type"] == "response"
        }
    assert BODIES[kind].body == bodies[BODIES[kind].url]


def test_fastwarc_accepts_every_block_digest(archive: Path) -> None:
    with (archive / "crawl-000000.warc.gz").open("rb") as stream:
        assert [True] * 19 == [record.verify_block_digest() for record in FastIterator(stream, parse_http=False)]


@pytest.mark.parametrize(("kind", "content"), [("chunked", b"hello world"), ("gzip", b"hello world" * 100)])
def test_warcio_decodes_the_codings_of_the_head(archive: Path, kind: str, content: bytes) -> None:
    with (archive / "crawl-000000.warc.gz").open("rb") as stream:
        (found,) = [
            record.content_stream().read()
            for record in ArchiveIterator(stream)
            if record.rec_type == "response" and record.rec_headers.get_header("WARC-Target-URI") == BODIES[kind].url
        ]
    assert content == found


def test_a_response_record_has_its_fields(tmp_path: Path) -> None:
    made = writer(tmp_path)
    place = made.add(exchange(3, truncated="time"))
    record = read_record(directory(tmp_path), place)
    made.close()
    uuid = r"<urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}>"
    assert re.fullmatch(uuid, record.fields["warc-record-id"])
    body = exchange(3).body
    assert {
        "warc-type": "response",
        "warc-record-id": record.fields["warc-record-id"],
        "warc-date": "2026-01-02T03:04:05.678904Z",
        "warc-target-uri": "http://site.test/3",
        "warc-ip-address": "192.0.2.7",
        "outrider-token": "1003",
        "warc-block-digest": payload_digest(PLAIN_HEAD + body),
        "warc-payload-digest": payload_digest(body),
        "warc-truncated": "time",
        "content-type": "application/http; msgtype=response",
        "content-length": str(len(PLAIN_HEAD + body)),
    } == dict(record.fields)
    assert PLAIN_HEAD + body == record.block


NOT_MODIFIED = b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n"


def revisit(number: int, mark: bytes) -> Exchange:
    return exchange(number, head=NOT_MODIFIED, body=b"", confirms=mark)


def test_a_304_is_a_revisit_record_that_names_the_response_it_confirms(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = writer(tmp_path)
    first = made.records(exchange(3))
    made.add(first)
    place = made.add(revisit(3, first.mark))
    made.sync()
    record = read_record(directory(tmp_path), place)
    made.close()
    with (tmp_path / "crawl-000000.warc.gz").open("rb") as stream:
        records = [(one.rec_type, one.rec_headers, one.http_headers) for one in ArchiveIterator(stream)]
    assert ["warcinfo", "response", "request", "revisit", "request"] == [kind for kind, _, _ in records]
    assert {
        "warc-type": "revisit",
        "warc-record-id": record.fields["warc-record-id"],
        "warc-date": "2026-01-02T03:04:05.678904Z",
        "warc-target-uri": "http://site.test/3",
        "warc-ip-address": "192.0.2.7",
        "outrider-token": "1003",
        "warc-block-digest": payload_digest(NOT_MODIFIED),
        "warc-profile": "http://netpreserve.org/warc/1.1/revisit/server-not-modified",
        "warc-refers-to-target-uri": "http://site.test/3",
        "warc-refers-to-date": records[1][1].get_header("WARC-Date"),
        "warc-refers-to": records[1][1].get_header("WARC-Record-ID"),
        "content-type": "application/http; msgtype=response",
        "content-length": str(len(NOT_MODIFIED)),
    } == dict(record.fields)
    assert (NOT_MODIFIED, "304", "x") == (
        record.block,
        records[3][2].get_statuscode(),
        records[3][2].get_header("ETag"),
    )
    assert record.fields["warc-record-id"] == records[4][1].get_header("WARC-Concurrent-To")
    assert 0 == checked(tmp_path, capsys)[0]
    with (tmp_path / "crawl-000000.warc.gz").open("rb") as stream:
        found = [
            (one.headers["WARC-Type"], one.verify_block_digest()) for one in FastIterator(stream, parse_http=False)
        ]
    assert ("revisit", True) == found[3]


@pytest.mark.parametrize("mark", [b"", b"x" * 23, b"\xff" * 25])
def test_a_revisit_of_an_unknown_response_leaves_out_its_date_and_its_id(tmp_path: Path, mark: bytes) -> None:
    made = writer(tmp_path)
    fields = read_record(directory(tmp_path), made.add(revisit(3, mark))).fields
    made.close()
    assert ("revisit", "http://site.test/3") == (fields["warc-type"], fields["warc-refers-to-target-uri"])
    assert not {"warc-refers-to", "warc-refers-to-date", "warc-payload-digest"} & set(fields)


def test_a_mark_with_any_bytes_is_a_date_and_an_id(tmp_path: Path) -> None:
    """It is from an import, or from another program."""
    made = writer(tmp_path)
    fields = read_record(directory(tmp_path), made.add(revisit(3, b"\xff" * 24))).fields
    made.close()
    assert ("9999-12-31T23:59:59.999999Z", "<urn:uuid:ffffffff-ffff-4fff-bfff-ffffffffffff>") == (
        fields["warc-refers-to-date"],
        fields["warc-refers-to"],
    )


def test_a_request_record_follows_its_response_and_names_it(archive: Path) -> None:
    with (archive / "crawl-000000.warc.gz").open("rb") as stream:
        records = [
            (record.rec_type, record.rec_headers, record.raw_stream.read())
            for record in ArchiveIterator(stream, no_record_parse=True)
        ]
    assert ["warcinfo", *["response", "request"] * len(BODIES)] == [kind for kind, _, _ in records]
    responses, requests = records[1::2], records[2::2]
    assert [headers.get_header("WARC-Record-ID") for _, headers, _ in responses] == [
        headers.get_header("WARC-Concurrent-To") for _, headers, _ in requests
    ]
    assert [REQUEST] * len(BODIES) == [block for _, _, block in requests]


def test_each_file_begins_with_the_program_that_made_it(tmp_path: Path) -> None:
    made = writer(tmp_path, info={"operator": "me@example.org", "robots": "obey\r\nX: y"})
    made.add(exchange())
    made.close()
    first = gzip.decompress((tmp_path / "crawl-000000.warc.gz").read_bytes()).split(b"\r\n\r\n")
    assert b"WARC-Filename: crawl-000000.warc.gz" in first[0]
    assert [
        b"software: outrider/0.1",
        b"format: WARC File Format 1.1",
        b"conformsTo: http://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/",
        b"operator: me@example.org",
        b"robots: obey??X: y",
    ] == first[1].split(b"\r\n")


def test_each_record_is_one_gzip_member_at_its_place(tmp_path: Path) -> None:
    made = writer(tmp_path)
    places = [made.add(exchange(number)) for number in range(20)]
    made.close()
    data = (tmp_path / "crawl-000000.warc.gz").read_bytes()
    for number, place in enumerate(places):
        with gzip.GzipFile(fileobj=io.BytesIO(data[place.offset : place.offset + place.length])) as member:
            assert b"<html>%d</html>\r\n\r\n" % number == member.read()[-len(b"<html>%d</html>\r\n\r\n" % number) :]


def test_many_records_are_one_write_and_have_the_places_of_single_writes(tmp_path):
    alone, together = writer(tmp_path / "alone"), writer(tmp_path / "together")
    exchanges = [exchange(number) for number in range(5)]
    records = together.records_of(exchanges)
    places = [alone.add(one) for one in records]
    assert places == together.add_all(records)
    assert [] == together.add_all([])
    together.sync()
    files = Directory(tmp_path / "together")
    assert [one.url for one in exchanges] == [read_record(files, place).fields["warc-target-uri"] for place in places]
    assert alone.statistics() == together.statistics()


def test_the_digest_of_an_empty_payload_is_the_known_one() -> None:
    """SHA-1 of the empty string in base 32, as in millions of WARC files."""
    assert "sha1:3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ" == payload_digest(b"")


def test_record_ids_do_not_repeat(archive: Path) -> None:
    with (archive / "crawl-000000.warc.gz").open("rb") as stream:
        ids = [record.rec_headers.get_header("WARC-Record-ID") for record in ArchiveIterator(stream)]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("url", ["http://a.test/\r\nX: y", "http://a.test/ b", "http://a.test/é", ""])
def test_a_url_that_would_add_a_field_is_refused(tmp_path: Path, url: str) -> None:
    made = writer(tmp_path)
    with pytest.raises(InvalidUrlError):
        made.add(exchange(url=url))
    assert None is made.watermark


def test_an_unknown_reason_of_truncation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="WARC-Truncated"):
        writer(tmp_path).add(exchange(truncated="boredom"))


def test_a_prefix_that_leaves_the_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError):
        WarcWriter(directory(tmp_path), prefix="../x", software="s", random_bytes=random.Random(1).randbytes)


# Rolling


def test_a_full_file_is_finished_and_the_next_begun(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = writer(tmp_path, roll_bytes=2_000)
    places = [made.add(exchange(number)) for number in range(12)]
    made.sync()
    names = sorted(path.name for path in tmp_path.glob("*.gz"))
    assert (["crawl-000000.warc.gz", "crawl-000001.warc.gz"], 0) == (names[:2], checked(tmp_path, capsys)[0])
    assert names == sorted({place.file for place in places})
    assert [f"http://site.test/{number}" for number in range(12)] == urls_of(tmp_path)
    assert all((tmp_path / name).stat().st_size >= 2_000 for name in names[:-1])
    made.close()


def test_serial_numbers_are_read_back_from_names_of_this_prefix_only() -> None:
    assert [0, 1_234_567, None, None, None, None] == [
        serial_of("crawl", name)
        for name in (
            "crawl-000000.warc.gz",
            "crawl-1234567.warc.gz",
            "crawl-0000001.warc.gz",
            "other-000001.warc.gz",
            "crawl-000001.warc.gz.tmp",
            "crawl-x-000001.warc.gz",
        )
    ]


# Watermarks


def test_opening_cuts_all_bytes_after_the_watermark(tmp_path: Path) -> None:
    first = writer(tmp_path)
    first.add(exchange(1))
    first.sync()
    watermark = first.watermark
    first.add(exchange(2))
    first.close()
    second = writer(tmp_path, watermark, seed=8)
    second.add(exchange(3))
    second.close()
    assert ["http://site.test/1", "http://site.test/3"] == urls_of(tmp_path)


def test_opening_removes_the_files_after_the_watermarks(tmp_path: Path) -> None:
    first = writer(tmp_path, roll_bytes=1)
    first.add(exchange(1))
    watermark = first.watermark
    first.add(exchange(2))
    first.add(exchange(3))
    first.close()
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "other-000009.warc.gz").write_bytes(b"of another crawl")
    second = writer(tmp_path, watermark, seed=8, roll_bytes=1)
    second.add(exchange(4))
    second.close()
    assert ["crawl-000000.warc.gz", "crawl-000001.warc.gz", "notes.txt", "other-000009.warc.gz"] == sorted(
        path.name for path in tmp_path.iterdir()
    )
    (tmp_path / "other-000009.warc.gz").unlink()
    assert ["http://site.test/1", "http://site.test/4"] == urls_of(tmp_path)


def test_without_a_watermark_no_record_was_reported_and_all_are_cut(tmp_path: Path) -> None:
    first = writer(tmp_path)
    first.add(exchange(1))
    first.close()
    second = writer(tmp_path, None, seed=8)
    assert (None, []) == (second.watermark, list(tmp_path.glob("*.gz")))
    second.add(exchange(2))
    second.close()
    assert ["http://site.test/2"] == urls_of(tmp_path)


def test_a_crash_at_every_byte_of_the_last_records_is_cut_and_continued(tmp_path: Path) -> None:
    first = writer(tmp_path / "a")
    first.add(exchange(1))
    first.sync()
    watermark = first.watermark
    first.add(exchange(2))
    first.close()
    assert watermark is not None
    data = (tmp_path / "a" / watermark[0]).read_bytes()
    places = set()
    for length in range(watermark[1], len(data) + 1):
        folder = tmp_path / f"b{length}"
        folder.mkdir()
        (folder / watermark[0]).write_bytes(data[:length])
        second = writer(folder, watermark, seed=8)
        places.add(second.add(exchange(3)))
        second.close()
        opened.pop().close()
        assert ["http://site.test/1", "http://site.test/3"] == urls_of(folder)
    assert 1 == len(places)


def test_a_file_shorter_than_its_watermark_is_damage(tmp_path: Path) -> None:
    first = writer(tmp_path)
    first.add(exchange(1))
    watermark = first.watermark
    first.close()
    assert watermark is not None
    path = tmp_path / watermark[0]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DamagedStoreError, match=rf"{watermark[0]} ends at byte {watermark[1] - 1}"):
        writer(tmp_path, watermark)


def test_a_missing_file_is_damage(tmp_path: Path) -> None:
    with pytest.raises(DamagedStoreError, match=r"crawl-000002\.warc\.gz is missing"):
        writer(tmp_path, ("crawl-000002.warc.gz", 5))


def test_a_watermark_of_another_prefix_is_damage(tmp_path: Path) -> None:
    with pytest.raises(DamagedStoreError, match="other-000000"):
        writer(tmp_path, ("other-000000.warc.gz", 5))


# A full disk


@pytest.mark.parametrize("room", [0, 1, 200, 500])
@pytest.mark.parametrize("before", [0, 2])
def test_a_full_disk_leaves_no_half_record(tmp_path: Path, before: int, room: int) -> None:
    files = FullDirectory(tmp_path)
    made = writer(tmp_path, files=files)
    for number in range(before):
        made.add(exchange(number))
    files.room = room
    with pytest.raises(StoreFullError):
        made.add(exchange(98, body=random.Random(1).randbytes(5_000)))
    files.room = 10**9
    made.add(exchange(99))
    made.sync()
    made.close()
    assert [f"http://site.test/{number}" for number in [*range(before), 99]] == urls_of(tmp_path)


# The reader


def test_an_invalid_place_is_damage(tmp_path: Path) -> None:
    made = writer(tmp_path)
    place = made.add(exchange(1))
    made.close()
    files = directory(tmp_path)
    for wrong in (
        WarcPlace(place.file, place.offset + 1, place.length),
        WarcPlace(place.file, place.offset, place.length - 1),
        WarcPlace(place.file, place.offset, place.length + 1),
        WarcPlace(place.file, 10**9, 5),
    ):
        with pytest.raises(DamagedStoreError, match=place.file):
            read_record(files, wrong)


def test_a_place_in_a_missing_file_is_not_reported_as_damage(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_record(directory(tmp_path), WarcPlace("crawl-000000.warc.gz", 0, 5))
