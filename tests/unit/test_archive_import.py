"""Import of web archives: captures become records of URLs, and a bad file says where it is bad."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import random
import struct
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import pytest

import outrider
from fake_web import FakeWeb
from limiting import set_limits
from outrider import Frontier
from outrider.archive.warc import Exchange, WarcWriter
from outrider.archive.warc_reader import Damage, ReadRecord, read_records
from outrider.cli.main import run
from outrider.crawl.orders.exchange import import_files
from outrider.crawl.questions.captures import Capture, Fault, captures_of
from outrider.errors import NamedPathError, SettingsError
from outrider.storage.files import Directory

AT = 1_767_323_045_678_901  # 2026-01-02T03:04:05.678901Z
DATE = "2026-01-02T03:04:05Z"
HEAD = b'HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nETag: "one"\r\n\r\n'
BODY = b"<title>one</title><a href=/linked>x</a>"


def record(
    uri: str = "http://one.test/",
    block: bytes = HEAD + BODY,
    kind: str = "response",
    date: str = DATE,
    length: int | str | None = None,
    **fields: str,
) -> bytes:
    lines = ["WARC/1.0", f"WARC-Type: {kind}", f"WARC-Date: {date}", f"WARC-Target-URI: {uri}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in fields.items()]
    lines.append(f"Content-Length: {len(block) if length is None else length}")
    return "\r\n".join(lines).encode("utf-8", "surrogateescape") + b"\r\n\r\n" + block + b"\r\n\r\n"


def packed(*records: bytes) -> bytes:
    return b"".join(map(gzip.compress, records))


def file_of(folder: Path, *records: bytes, name: str = "x.warc.gz") -> Path:
    path = folder / name
    path.write_bytes(packed(*records) if name.endswith(".gz") else b"".join(records))
    return path


def found_in(path: Path) -> tuple[list[Capture], list[Fault]]:
    all_of = list(captures_of(str(path)))
    return [one for one in all_of if isinstance(one, Capture)], [one for one in all_of if isinstance(one, Fault)]


def imported(folder: Path, *paths: Path) -> tuple[Any, dict[str, dict[str, Any]]]:
    found = import_files(str(folder / "new"), [str(path) for path in paths], io.StringIO())
    frontier = Frontier.look(str(folder / "new" / "frontier"))
    try:
        return found, {one["url"]: one for one in frontier.records()}
    finally:
        frontier.close()


def sha1(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


# -- what a capture says


def test_a_response_has_time_status_digest_validators_and_its_mark(tmp_path: Path) -> None:
    identity = "<urn:uuid:11223344-5566-4788-99aa-bbccddeeff00>"
    found, records = imported(tmp_path, file_of(tmp_path, record(WARC_Record_ID=identity)))
    assert {"imported": 1} == {name: count for name, count in found.codes.items() if name != "links"}
    one = records["http://one.test/"]
    assert ("done", 200, sha1(BODY), '"one"', 1) == tuple(
        one[name] for name in ("state", "status", "digest", "etag", "visits")
    )
    second = AT // 1_000_000 * 1_000_000
    assert second == one["fetched_at"]
    assert one["warc_record"] == second.to_bytes(8, "little").hex() + "112233445566478899aabbccddeeff00"


def test_a_crawl_imports_the_archive_of_another_one(tmp_path: Path) -> None:
    class Site(FakeWeb):
        pages = {  # noqa: RUF012
            "/robots.txt": b"",
            "/": "<a href=/a>a</a><a href=/b>b</a><a href=/moved>c</a><a href=/none>d</a>",
            "/a": "one page",
            "/b": "one page",
            "/moved": (301, "/a"),
        }

    (tmp_path / "hosts").write_text("127.0.0.1 one.test\n")
    options: dict[str, Any] = {"hosts": str(tmp_path / "hosts"), "downloader": Site, "delay": 0.01}
    outrider.crawl(["http://one.test/"], output=tmp_path / "old", **options)
    for form in ("warc.gz", "cdxj", "wacz"):
        path = tmp_path / f"old.{form}"
        if form == "warc.gz":
            path = tmp_path / "old/archive/crawl-000000.warc.gz"
        else:
            assert 0 == run(["export", str(tmp_path / "old"), "--to", str(path)])
        (tmp_path / form).mkdir()
        found, records = imported(tmp_path / form, path)
        states = {url.rpartition("/")[2]: (one["state"], one["status"]) for url, one in records.items()}
        assert {
            "": ("done", 200),
            "a": ("done", 200),
            "b": ("done", 200),
            "moved": ("done", 301),
            "none": ("gone", 404),
            "robots.txt": ("done", 200),
        } == states
        assert (0, 0) == (found.skipped, found.damaged)
        old = Frontier.look(str(tmp_path / "old/frontier"))
        for one in old.records():
            if one["status"] == 200:
                assert one["digest"] == records[one["url"]]["digest"]
                assert one["fetched_at"] == records[one["url"]]["fetched_at"]
        old.close()


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (b"", BODY),
        (b"Transfer-Encoding: chunked\r\n", b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)),
        (b"Transfer-Encoding: chunked\r\n", BODY),  # some programs store it without chunks
        (b"Content-Encoding: gzip\r\n", gzip.compress(BODY)),
    ],
    ids=["plain", "chunked", "not-chunked", "packed"],
)
def test_the_digest_is_that_of_the_decoded_content(tmp_path: Path, head: bytes, body: bytes) -> None:
    block = b"HTTP/1.1 200 OK\r\n" + head + b"\r\n" + body
    for name in ("x.warc", "x.warc.gz"):
        (capture,), faults = found_in(file_of(tmp_path, record(block=block), name=name))
        assert (sha1(BODY), []) == (capture.digest, faults)


def test_other_kinds_of_records_are_passed_over(tmp_path: Path) -> None:
    path = file_of(
        tmp_path,
        record(kind="warcinfo", block=b"software: x\r\n"),
        record(kind="request", block=b"GET / HTTP/1.1\r\n\r\n"),
        record(uri="dns:one.test", block=b"20260102030405\none.test. 1 IN A 192.0.2.1\n"),
        record(kind="metadata", block=b"x: y\r\n"),
        record(uri="http://one.test/r", kind="resource", block=b"of no head"),
    )
    (capture,), faults = found_in(path)
    assert ("http://one.test/r", "done", None, sha1(b"of no head"), []) == (
        *(capture.url, capture.state, capture.status, capture.digest),
        faults,
    )


def test_captures_of_a_url_are_taken_together_in_the_order_of_time(tmp_path: Path) -> None:
    newer = record(block=HEAD.replace(b"one", b"two") + b"newer", date="2026-03-01T00:00:00Z")
    older = record(date="2026-01-01T00:00:00Z")
    confirmed = record(kind="revisit", block=b"HTTP/1.1 304 Not Modified\r\n\r\n", date="2026-03-02T00:00:00Z")
    failed = record(block=b"HTTP/1.1 503 X\r\n\r\n", date="2026-03-03T00:00:00Z")
    found, records = imported(
        tmp_path, file_of(tmp_path, confirmed, newer), file_of(tmp_path, failed, older, name="y.warc")
    )
    one = records["http://one.test/"]
    assert (sha1(b"newer"), '"two"', 304, 4, "done") == tuple(
        one[name] for name in ("digest", "etag", "status", "visits", "state")
    )
    assert (4, 1, 3) == (found.rows, found.codes["imported"], found.codes["earlier captures"])


def test_a_revisit_of_the_same_payload_has_the_digest_of_the_content(tmp_path: Path) -> None:
    body = gzip.compress(BODY)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n"
    digest = "sha1:" + "A" * 32
    first = record(block=head + body, WARC_Payload_Digest=digest)
    again = record(kind="revisit", block=head, date="2026-02-02T00:00:00Z", WARC_Payload_Digest=digest)
    _, records = imported(tmp_path, file_of(tmp_path, first, again))
    assert (sha1(BODY), 200, 2) == tuple(records["http://one.test/"][name] for name in ("digest", "status", "visits"))


def test_answers_that_say_to_try_again_leave_a_url_queued(tmp_path: Path) -> None:
    path = file_of(
        tmp_path, record(block=b"HTTP/1.1 503 Busy\r\n\r\n"), record("http://one.test/x", b"HTTP/1.1 404 X\r\n\r\n")
    )
    _, records = imported(tmp_path, path)
    assert "queued" == records["http://one.test/"]["state"]
    assert ("gone", "status", 404) == tuple(
        records["http://one.test/x"][name] for name in ("state", "reason", "status")
    )


def test_of_very_many_captures_of_a_url_the_latest_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_limits(monkeypatch, CAPTURES_PER_URL_MAX=3)
    records = [record(block=HEAD + b"%d" % n, date=f"2026-01-{n + 1:02}T00:00:00Z") for n in range(9)]
    found, kept = imported(tmp_path, file_of(tmp_path, *records))
    assert (8, 3, sha1(b"8")) == (
        found.codes["earlier captures"],
        kept["http://one.test/"]["visits"],
        kept["http://one.test/"]["digest"],
    )


def test_links_are_added_in_the_scope_of_the_seeds_alone(tmp_path: Path) -> None:
    (tmp_path / "seeds.txt").write_text("http://one.test/start\n")
    block = HEAD + b"<a href=/linked>x</a><a href=http://other.test/>y</a>"
    path = file_of(tmp_path, record(block=block), record("http://third.test/", HEAD + b"<a href=/z>x</a>"))
    found, records = imported(tmp_path, path, tmp_path / "seeds.txt")
    assert {"http://one.test/start", "http://one.test/", "http://third.test/", "http://one.test/linked"} == set(records)
    assert ("queued", "queued") == tuple(records[f"http://one.test/{name}"]["state"] for name in ("start", "linked"))
    assert 1 == found.codes["links"]


def test_an_import_may_be_repeated(tmp_path: Path) -> None:
    path = file_of(tmp_path, record(), record("http://one.test/b"))
    _, first = imported(tmp_path, path)
    found, second = imported(tmp_path, path)
    assert (first, 2) == (second, found.codes["known"])


# -- damaged and hostile files


BAD = {
    "torn": (packed(record(), record("http://one.test/b"))[:-150], 1, "ends inside a gzip member"),
    "flipped": (packed(record()) + b"\x1f\x8b\x08" + bytes(7) + b"\xff" * 40, 1, "damaged"),
    "text": (b"<html>no archive</html>\n", 0, "no record begins there"),
    "twice": (gzip.compress(packed(record())), 0, "packed twice"),
    "no-length": (packed(record(length="x")), 0, "Content-Length 'x'"),
    "negative": (packed(record(length=-5)), 0, "Content-Length '-5'"),
    "endless": (packed(record(length=1 << 50)), 0, "is longer than"),
    "too-short": (packed(record(length=len(HEAD + BODY) - 9)), 1, "goes on after the record"),
    "too-long": (packed(record(length=len(HEAD + BODY) + 9_999)), 1, "the block ends after"),
    "joined": (gzip.compress(record() + record("http://one.test/b")), 1, "goes on after the record"),
    "endless-head": (gzip.compress(b"WARC/1.0\r\n" + b"x" * 3_000_000), 0, "the head of a record is longer"),
}


@pytest.mark.parametrize("kind", BAD)
def test_damage_is_named_and_what_was_read_counts(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    octets, count, words = BAD[kind]
    path = tmp_path / "x.warc.gz"
    path.write_bytes(octets)
    code = run(["import", str(tmp_path / "new"), str(path)])
    told = capsys.readouterr()
    assert (5 if count else 2) == code
    assert words in told.err
    assert f"{count} imported" in told.out
    assert "byte " in told.err


URIS = {
    "http://one.test/a b": "http://one.test/a%20b",
    "<http://one.test/c>": "http://one.test/c",
    "http://one.test/%00": "http://one.test/%00",
    "http://one.test/ü\x01y": "http://one.test/%C3%BC%01y",
    "http://one.test/a\r\n b": "http://one.test/a%20b",
    "http:///": None,
    "http://one.test:99999/": None,
    "http://" + "x" * 70_000 + "/": None,
    "": None,
}


@pytest.mark.parametrize("uri", URIS)
def test_any_text_for_a_url_is_a_url_or_a_named_fault(tmp_path: Path, uri: str) -> None:
    captures, faults = found_in(file_of(tmp_path, record(uri), record("http://one.test/last")))
    urls = [one.url for one in captures]
    if URIS[uri] is None:
        assert (["http://one.test/last"], 1) == (urls, len(faults))
    else:
        assert ([URIS[uri], "http://one.test/last"], []) == (urls, faults)


@pytest.mark.parametrize("date", ["", "yesterday", "2026-13-01T00:00:00Z", "1950-01-01T00:00:00Z", "0000"])
def test_a_time_that_is_not_one_is_named(tmp_path: Path, date: str) -> None:
    captures, (fault,) = found_in(file_of(tmp_path, record(date=date)))
    assert ([], False) == (captures, fault.is_damage)
    assert "time of a record" in fault.why or "before 1970" in fault.why


@pytest.mark.parametrize(
    ("date", "micro"), [("2026", 0), ("2026-01-02T03:04:05.6789019Z", 678_901), ("20260102030405", 0)]
)
def test_times_of_any_precision_are_read(tmp_path: Path, date: str, micro: int) -> None:
    (capture,), _ = found_in(file_of(tmp_path, record(date=date)))
    assert micro == capture.at % 1_000_000


def test_a_bomb_in_a_record_needs_little_memory(tmp_path: Path) -> None:
    """A gigabyte of zeros in a megabyte, as a block and as a packed body."""
    zeros = bytes(1 << 20)
    big = io.BytesIO()
    with gzip.GzipFile(fileobj=big, mode="wb", compresslevel=9) as member:
        head = record(block=b"", length=200 << 20)
        member.write(head[:-4] + HEAD)
        for _ in range(200):
            member.write(zeros)
    inner = gzip.compress(zeros * 100)
    path = tmp_path / "x.warc.gz"
    packed_body = record("http://one.test/b", b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + inner)
    path.write_bytes(packed(packed_body) + big.getvalue())
    tracemalloc.start()
    try:
        captures, _ = found_in(path)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 2 == len(captures)
    assert most < 100 << 20


def test_other_records_follow_a_line_after_a_wrong_length_in_a_plain_file(tmp_path: Path) -> None:
    block = HEAD + b"text\r\nlast line"
    path = file_of(tmp_path, record(block=block, length=len(block) - 9), record("http://one.test/b"), name="x.warc")
    captures, faults = found_in(path)
    assert (2, 1) == (len(captures), len(faults))


def test_records_are_read_again_as_they_were_written(tmp_path: Path) -> None:
    archive = Directory(tmp_path / "archive")
    writer = WarcWriter(archive, prefix="crawl", software="x", random_bytes=random.Random(2).randbytes)
    made = random.Random(4)
    blocks = [HEAD + made.randbytes(made.randrange(200_000)) for _ in range(20)]
    places = [
        writer.add(
            Exchange(f"http://one.test/{n}", "192.0.2.1", AT, b"GET / HTTP/1.1\r\n\r\n", HEAD, block[len(HEAD) :])
        )
        for n, block in enumerate(blocks)
    ]
    writer.sync()
    writer.close()
    archive.close()
    with (tmp_path / "archive/crawl-000000.warc.gz").open("rb") as file:
        found = list(read_records(file, 1 << 20))
    assert not any(isinstance(one, Damage) for one in found)
    responses = [one for one in found if isinstance(one, ReadRecord) and one.kind == "response"]
    assert [(place.offset, place.length) for place in places] == [(one.offset, one.length) for one in responses]
    assert blocks == [one.block for one in responses]


# -- CDXJ


def line(url: str = "http://one.test/", stamp: str = "20260102030405", **fields: Any) -> bytes:
    told = {"url": url, "mime": "text/html", "status": "200", "digest": "sha1:" + "A" * 32, **fields}
    return f"test,one)/ {stamp} {json.dumps(told)}\n".encode()


def test_an_index_has_times_statuses_and_digests(tmp_path: Path) -> None:
    path = tmp_path / "x.cdxj"
    path.write_bytes(
        b'!meta 0 {"format": "cdxj"}\n'
        + line()
        + line("http://one.test/b", status="404")
        + line("http://one.test/c", status="-", mime="warc/revisit", digest="AB" * 16)
        + line("dns:one.test")
        + line("http://one.test/post", method="POST")
    )
    found, records = imported(tmp_path, path)
    assert {"http://one.test/": ("done", 200, "00" * 20), "http://one.test/b": ("gone", 404, None)} == {
        url: (one["state"], one["status"], one["digest"]) for url, one in records.items() if not url.endswith("/c")
    }
    assert ("done", None) == (records["http://one.test/c"]["state"], records["http://one.test/c"]["status"])
    assert (3, 0) == (found.rows, found.skipped)


def test_bad_lines_of_an_index_are_named_and_the_others_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, IMPORT_LINE_BYTES_MAX=1_000)
    path = tmp_path / "x.cdxj"
    path.write_bytes(
        b" CDX N b a m s k r M S V g\n"
        + line(title="x" * 100_000)
        + line(stamp="")
        + b'k 2026 {"url": "http://one.test/", "status": [1]}\n'
        + b"k 2026 {"
        + b'"a":{' * 150
        + b"\n"
        + b"k 2026 \xff\xfe\n"
        + line("http://one.test/good")
    )
    captures, faults = found_in(path)
    assert ["http://one.test/good"] == [one.url for one in captures]
    assert ["line 1", "line 2", "line 3", "line 4", "line 5", "line 6"] == [one.place for one in faults]
    assert "longer than" in faults[1].why


# -- WACZ


def wacz_of(path: Path, files: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", method) as package:
        for name, octets in files.items():
            package.writestr(name, octets)
    return path


def test_names_that_lead_out_of_a_wacz_are_only_names(tmp_path: Path) -> None:
    files = {"../../../evil.warc.gz": packed(record()), "/etc/x.warc": record("http://one.test/b"), "pages/x": b""}
    found, records = imported(tmp_path, wacz_of(tmp_path / "x.wacz", files))
    assert {"http://one.test/", "http://one.test/b"} == set(records)
    assert ["new", "x.wacz"] == sorted(one.name for one in tmp_path.iterdir())
    assert 0 == found.damaged


def test_a_wacz_that_unpacks_to_far_more_is_refused(tmp_path: Path) -> None:
    path = wacz_of(tmp_path / "x.wacz", {"archive/x.warc": bytes(50 << 20)}, zipfile.ZIP_DEFLATED)
    with pytest.raises(NamedPathError, match="unpacks to"):
        found_in(path)


def test_a_wacz_with_a_million_files_is_refused_before_its_list_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, WACZ_FILES_BYTES_MAX=10_000)
    path = wacz_of(tmp_path / "x.wacz", {f"archive/{number}.warc": b"" for number in range(300)})
    monkeypatch.setattr(zipfile, "ZipFile", None)
    with pytest.raises(NamedPathError, match="its list of files has"):
        found_in(path)


@pytest.mark.parametrize("harm", ["cut", "text", "empty", "member", "none", "method"])
def test_a_damaged_wacz_is_named(tmp_path: Path, harm: str) -> None:
    files = {"archive/a.warc.gz": packed(record()), "archive/b.warc.gz": packed(record("http://one.test/b"))}
    path = wacz_of(tmp_path / "x.wacz", {"x": b""} if harm == "none" else files)
    octets = bytearray(path.read_bytes())
    if harm == "member":
        octets[octets.index(b"\x1f\x8b") + 40] ^= 0xFF
    elif harm == "method":
        struct.pack_into("<H", octets, octets.index(b"PK\x01\x02") + 10, 99)
    elif harm != "none":
        octets = {"cut": octets[:-60], "text": bytearray(b"no ZIP"), "empty": bytearray()}[harm]
    path.write_bytes(octets)
    if harm in ("member", "method"):
        captures, faults = found_in(path)
        assert "http://one.test/b" in {one.url for one in captures}
        assert any(one.is_damage and one.place.startswith("archive/a.warc.gz") for one in faults)
    else:
        with pytest.raises(NamedPathError):
            found_in(path)


def test_a_file_with_another_ending_is_refused_with_all_endings(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"\.warc\.gz.*\.wacz"):
        import_files(str(tmp_path / "new"), ["x.zip"], io.StringIO())
    assert not (tmp_path / "new").exists()
