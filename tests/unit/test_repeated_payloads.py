"""Answers whose payload is in the archive already: a revisit record in place of a second copy, and who reads it."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
from warcio.archiveiterator import ArchiveIterator

import outrider
from fake_web import FakeWeb
from limiting import set_limits
from outrider.archive import WarcPlace, payload_digest, read_record
from outrider.catalog.rows import raw_content_key
from outrider.cli.main import run
from outrider.crawl.output.archived_answers import whole_record
from outrider.crawl.questions.single_page import kept_page
from outrider.crawl.run.payloads import Payloads
from outrider.errors import DamagedStoreError
from outrider.fetch.downloader import Headers, Request, Response
from outrider.storage.files import Directory

BODY = b"<title>same</title><a href=/b>b</a>" + b"the same words on each page " * 40
PROFILE = "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest"
HOME = "http://two.test/"


class Repeating(FakeWeb):
    """Six URLs with the same payload: plain, in one chunk, in two chunks, packed twice, cut; and an empty one twice."""

    pages: ClassVar[dict[str, Any]] = {
        "/robots.txt": b"",
        "/": "".join(f"<a href=/{name}>x</a>" for name in ("a", "b", "c", "d", "e", "f", "g", "h", "i")),
        **{f"/{name}": BODY for name in "abc"},
        "/d": b"",
        "/e": b"",
        "/f": gzip.compress(BODY, mtime=0),
        "/g": gzip.compress(BODY, mtime=0),
        "/h": BODY,
        "/i": (404, ""),
    }

    async def fetch(self, request: Request) -> Response:
        found = await super().fetch(request)
        name = request.url.rpartition("/")[2]
        if name in ("b", "c"):
            middle = 100 if name == "c" else len(BODY)
            parts = [part for part in (BODY[:middle], BODY[middle:]) if part]
            body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
            head = found.head.replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n")
            return replace(found, head=head, headers=Headers.parse(head), body=body)
        if name in ("f", "g"):
            head = found.head.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")
            return replace(found, head=head, headers=Headers.parse(head), content=BODY)
        if name == "h":
            return replace(found, truncated="length")
        return found


def crawl(place: Path, **more: Any) -> Path:
    (place / "hosts").write_text("127.0.0.1 two.test\n")
    options: dict[str, Any] = {"hosts": str(place / "hosts"), "downloader": Repeating, "delay": 0.01}
    outrider.crawl([HOME], output=place / "crawl", **options, **more)
    return place / "crawl"


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return crawl(tmp_path_factory.mktemp("repeated"))


def lines_of(crawled: Path) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for line in map(json.loads, (crawled / "pages.jsonl").read_text().splitlines()):
        found.setdefault(line["url"].rpartition("/")[2], []).append(line)
    return found


def records_of(crawled: Path) -> dict[int, dict[str, str]]:
    """The fields of the records of answers, by token, as another reader finds them; `block` is the block."""
    found = {}
    for path in sorted((crawled / "archive").glob("*.gz")):
        with path.open("rb") as file:
            for record in ArchiveIterator(file, no_record_parse=True):
                if record.rec_type in ("response", "revisit"):
                    fields = dict(record.rec_headers.headers)
                    found[int(fields["Outrider-Token"])] = {
                        **fields,
                        "block": record.raw_stream.read().decode("latin-1"),
                    }
    return found


def test_a_payload_that_is_there_is_a_revisit_of_its_first_response(crawled: Path) -> None:
    lines, records = lines_of(crawled), records_of(crawled)
    first = {line["digest"]: records[line["token"]] for name in "af" for line in lines[name]}
    for name in "bcg":
        (line,) = lines[name]
        record, original = records[line["token"]], first[line["digest"]]
        assert ("revisit", PROFILE) == (record["WARC-Type"], record["WARC-Profile"])
        assert (original["WARC-Target-URI"], original["WARC-Date"], original["WARC-Record-ID"]) == tuple(
            record[f"WARC-Refers-To{part}"] for part in ("-Target-URI", "-Date", "")
        )
        assert record["WARC-Payload-Digest"] == original["WARC-Payload-Digest"] == line["digest"]
        assert record["block"].endswith("\r\n\r\n")
        assert record["block"].startswith("HTTP/1.1 200")
        assert "same words" not in record["block"]
        payload = line["warc"]["payload"]
        assert payload == lines["a" if name in "bc" else "f"][0]["warc"]


def test_empty_cut_and_failed_answers_are_responses(crawled: Path) -> None:
    lines, records = lines_of(crawled), records_of(crawled)
    for name in "adehi":
        assert {"response"} == {records[line["token"]]["WARC-Type"] for line in lines[name]}
        assert ["payload" not in line["warc"] for line in lines[name]] == [True] * len(lines[name])


def test_digests_of_revisits_are_right(crawled: Path) -> None:
    for record in records_of(crawled).values():
        assert payload_digest(record["block"].encode("latin-1")) == record["WARC-Block-Digest"]


@pytest.mark.parametrize("name", "abcfgh")
def test_show_prints_the_page(crawled: Path, name: str) -> None:
    kept = kept_page(str(crawled), HOME + name)
    assert BODY == kept.content
    assert kept.page is not None
    assert "same" == kept.page.title
    assert (name in "bc") == (b"chunked" in kept.head)


def test_a_replay_reads_all_pages(crawled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "repeated_spider_77.py").write_text(
        "def items(page):\n    return {'body': len(page.body), 'title': page.title}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert 0 == run(
        ["replay", str(crawled), "--on-page", "repeated_spider_77:items", "--to", str(tmp_path / "x.jsonl")]
    )
    lines = (tmp_path / "x.jsonl").read_text().splitlines()
    found = {line["url"][-1]: (line["body"], line["title"]) for line in map(json.loads, lines)}
    assert {(len(BODY), "same")} == {found[name] for name in "abcfg"}


def test_an_import_of_pages_follows_the_links_of_repeated_pages(crawled: Path, tmp_path: Path) -> None:
    assert 0 == run(["import", str(tmp_path / "new"), str(crawled / "pages.jsonl")])
    assert 0 == run(["verify", str(crawled)])


def test_a_later_run_refers_to_responses_of_an_earlier_one(tmp_path: Path) -> None:
    crawled = crawl(tmp_path, max_pages=3)
    before = lines_of(crawled)
    assert {"", "a", "b"} == set(before)
    crawl(tmp_path, max_pages=None)
    (line,) = lines_of(crawled)["c"]
    assert before["a"][0]["warc"] == line["warc"]["payload"]
    assert BODY == kept_page(str(crawled), HOME + "c").content


def test_a_page_that_is_fetched_again_refers_to_its_own_first_response(tmp_path: Path) -> None:
    crawled = crawl(tmp_path, max_depth=0, revisit=lambda page: 0 if page.lease.visits < 2 else None)
    visits = lines_of(crawled)[""]
    records = records_of(crawled)
    assert ["done", "unchanged", "unchanged"] == [line["outcome"] for line in visits]
    assert ["response", "revisit", "revisit"] == [records[line["token"]]["WARC-Type"] for line in visits]
    assert {records[visits[0]["token"]]["WARC-Record-ID"]} == {
        records[line["token"]]["WARC-Refers-To"] for line in visits[1:]
    }


def test_without_its_response_a_payload_is_written_again(tmp_path: Path) -> None:
    crawled = crawl(tmp_path, max_pages=3)
    lines = lines_of(crawled)
    # Another record at the place: the files of an archive may have been changed.
    place = lines["a"][0]["warc"]
    assert place != lines[""][0]["warc"]
    archive = crawled / "archive" / place["file"]
    octets = bytearray(archive.read_bytes())
    octets[place["offset"] + 12] ^= 0xFF
    archive.write_bytes(octets)
    crawl(tmp_path, max_pages=None)
    (line,) = lines_of(crawled)["c"]
    assert "payload" not in line["warc"]
    assert BODY == kept_page(str(crawled), HOME + "c").content
    with pytest.raises(DamagedStoreError):
        kept_page(str(crawled), HOME + "b")


def test_a_place_with_another_payload_is_damage(crawled: Path, tmp_path: Path) -> None:
    lines = lines_of(crawled)
    place = WarcPlace(**{**lines["b"][0]["warc"], "payload": WarcPlace(**lines["f"][0]["warc"])})
    files = Directory(crawled / "archive", create=False, read_only=True)
    with pytest.raises(DamagedStoreError, match="does not have the payload"):
        whole_record(partial(read_record, files), place)
    files.close()


def test_a_limited_number_of_payloads_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    set_limits(monkeypatch, PAYLOADS_MAX=2)
    payloads = Payloads(2)
    digests = [f"sha1:{letter * 32}" for letter in "ABC"]
    for number, digest in enumerate(digests):
        payloads.add(digest, WarcPlace("crawl-000001.warc.gz", number, 10))
        payloads.add(digest, WarcPlace("crawl-000002.warc.gz", 9, 10))
    assert [0, 1, None] == [place and place.offset for place in map(payloads.find, digests)]
    assert payloads.find("md5:x") is None
    for place in (WarcPlace("other.warc.gz", 0, 1), WarcPlace("crawl-000001.warc.gz", 0, 1 << 40)):
        more = Payloads(5)
        more.add(digests[0], place)
        assert 0 == len(more)


def test_many_payloads_are_found_by_their_index() -> None:
    payloads = Payloads(5_000)
    digests = [payload_digest(b"%d" % number) for number in range(3_000)]
    for number, digest in enumerate(digests):
        payloads.add(digest, WarcPlace("crawl-000001.warc.gz", number, 10))
    found = [payloads.find(digest) for digest in digests]
    assert [*range(3_000)] == [place.offset for place in found if place is not None]


def test_a_catalog_has_the_place_of_the_payload(crawled: Path) -> None:
    lines = lines_of(crawled)
    first = raw_content_key(lines["a"][0]["warc"])
    assert first is not None
    assert {first} == {raw_content_key(lines[name][0]["warc"]) for name in "abc"}
    assert first != raw_content_key(lines["f"][0]["warc"])
