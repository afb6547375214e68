"""A page that is due again is requested with its validators. An unchanged page keeps its stored facts."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
from msgspec.structs import replace as replaced
from warcio.archiveiterator import ArchiveIterator

import outrider
from fake_web import FakeWeb
from outrider import Frontier
from outrider.archive import WarcPlace, read_record
from outrider.cli import main as cli
from outrider.clock import wall
from outrider.crawl.run.hooks import CrawledPage
from outrider.crawl.run.visit import Visit, judged, page_outcome
from outrider.crawl.setup.options import CrawlOptions
from outrider.fetch.downloader import Headers, Request, Response
from outrider.journey import Lease, Verdict, Word
from outrider.kernels.warc import record_id
from outrider.limits import MICROSECONDS
from outrider.storage.files import Directory
from outrider.url import UrlBatch
from unit.test_crawl_fetching import Wire, lease, response, visited

ETAG, MODIFIED = '"v1"', "Tue, 01 Jan 2030 00:00:00 GMT"
NO_LINKS = UrlBatch.of(())


def test_the_validators_of_a_lease_are_sent():
    wire = Wire(at_8_8_8_8=None)
    visited(wire, "8.8.8.8", etag=ETAG, last_modified=MODIFIED)
    assert (("If-None-Match", ETAG), ("If-Modified-Since", MODIFIED)) == wire.asked[0].headers


@pytest.mark.parametrize("etag", ['"a\r\nX: y"', '"ω"', "\x00", ""])
def test_an_unsafe_validator_is_not_sent(etag):
    wire = Wire(at_8_8_8_8=None)
    assert 200 == visited(wire, "8.8.8.8", etag=etag, last_modified=MODIFIED).status
    assert (("If-Modified-Since", MODIFIED),) == wire.asked[0].headers


def test_a_lease_without_validators_requests_the_whole_page():
    wire = Wire(at_8_8_8_8=None)
    visited(wire, "8.8.8.8")
    assert () == wire.asked[0].headers


class Store:
    """A frontier on a virtual clock with one page, which is due again after each report."""

    def __init__(self) -> None:
        self.now = wall()
        self.frontier = Frontier.memory(clock=lambda: self.now, robots="caller")
        self.frontier.discover(["http://site.test/page"])

    def lease(self) -> Lease:
        self.now += 100_000 * MICROSECONDS
        (found,) = self.frontier.lease(1)
        return found

    def report(
        self, found: Lease, status: int, *, digest: bytes | None, warc_record: bytes | None = None, **fields: str
    ) -> dict[str, object]:
        headers = Headers(tuple((name.replace("_", "-"), value) for name, value in fields.items()))
        told = replace(response(status), headers=headers)
        visit = Visit(found, self.now, self.now, told)
        judgement = judged(visit)
        if status == 200 and digest == found.digest:
            judgement = judgement.as_known(Word.UNCHANGED)
        outcome = page_outcome(
            visit,
            judgement,
            page=None,
            links=NO_LINKS,
            digest=digest,
            digest_shown="sha1:X",
            warc=None,
            due_again=60.0,
            warc_record=warc_record,
        )
        self.frontier.report([outcome])
        assert outcome.line is not None
        return json.loads(outcome.line)


def test_a_page_that_has_not_changed_keeps_its_validators():
    store = Store()
    store.report(store.lease(), 200, digest=b"d" * 20, ETag=ETAG, Last_Modified=MODIFIED)
    for _ in range(2):
        found = store.lease()
        assert (ETAG, MODIFIED) == (found.etag, found.last_modified)
        line = store.report(found, 304, digest=None, ETag=ETAG)
        assert ("unchanged", 304, None) == (line["outcome"], line["status"], line["digest"])


class Confirming(FakeWeb):
    """Two pages with an ETag and an `item` each, and a 304 to a request with it."""

    pages: ClassVar = {"/": "<a href=/b>b</a> one page", "/b": "another page of these two"}

    async def fetch(self, request: Request) -> Response:
        found = await super().fetch(request)
        head = found.head.replace(b"\r\n\r\n", b"\r\nETag: %b\r\n\r\n" % ETAG.encode())
        if dict(request.headers).get("If-None-Match") == ETAG:
            status = b"HTTP/1.1 304 Not Modified"
            body, head = b"", status + head[head.index(b"\r\n") :]
            return replace(found, status=304, head=head, headers=Headers.parse(head), body=body, content=body)
        return replace(found, head=head, headers=Headers.parse(head))


def item_of(page: CrawledPage) -> dict[str, str]:
    return {"text": page.text}


def archived(output: Path) -> list[dict[str, str]]:
    """The fields of the records of answers to requests for pages, by a reader that is not ours."""
    with (output / "archive/crawl-000000.warc.gz").open("rb") as file:
        records = [dict(one.rec_headers.headers) for one in ArchiveIterator(file, no_record_parse=True)]
    return [one for one in records if one["WARC-Type"] in ("response", "revisit")]


def visit_twice(output: Path, visits: int) -> None:
    output.parent.joinpath("hosts").write_text("127.0.0.1 two.test\n")
    settings = {"downloader": Confirming, "hosts": str(output.parent / "hosts"), "delay": 0, "delay_factor": 0}
    outrider.crawl(
        ["http://two.test/"],
        output=output,
        on_page=item_of,
        revisit=lambda page: 0 if page.lease.visits + 1 < visits else None,
        **settings,
    )


def test_each_304_of_a_crawl_is_a_revisit_record_that_names_the_response(tmp_path):
    output = tmp_path / "out"
    visit_twice(output, 3)
    lines = [json.loads(line) for line in (output / "pages.jsonl").read_text().splitlines()]
    assert Counter(done=2, unchanged=4) == Counter(line["outcome"] for line in lines)
    records = {int(one["Outrider-Token"]): one for one in archived(output)}
    first = {line["url"]: records[line["token"]] for line in lines if line["outcome"] == "done"}
    for line in lines:
        one, confirmed = records[line["token"]], first[line["url"]]
        if line["status"] == 200:
            assert "response" == one["WARC-Type"]
            continue
        assert ("revisit", line["url"], confirmed["WARC-Date"], confirmed["WARC-Record-ID"]) == (
            one["WARC-Type"],
            *(one[f"WARC-Refers-To{name}"] for name in ("-Target-URI", "-Date", "")),
        )
        with closing(Directory(output / "archive", create=False, read_only=True)) as files:
            kept = read_record(files, WarcPlace(**line["warc"]))
        assert (one["WARC-Record-ID"], b"HTTP/1.1 304") == (kept.fields["warc-record-id"], kept.block[:12])


def test_a_crawl_with_revisit_records_is_shown_checked_repaired_and_replayed(tmp_path, capsysbinary):
    output = tmp_path / "out"
    visit_twice(output, 2)
    before = (output / "archive/crawl-000000.warc.gz").read_bytes()
    assert 0 == cli.run(["show", "http://two.test/b", "-o", str(output), "--body"])
    assert b"another page of these two" == capsysbinary.readouterr().out
    replay = ["replay", str(output), "--on-page", f"{__name__}:item_of"]
    for arguments in (["verify", str(output)], ["repair", str(output)], replay):
        assert 0 == cli.run(arguments), capsysbinary.readouterr().err
    items = [json.loads(line) for line in (output / "replayed.jsonl").read_text().splitlines()]
    assert {"http://two.test/", "http://two.test/b"} == {item["url"] for item in items}
    assert 2 == len(items)
    assert before == (output / "archive/crawl-000000.warc.gz").read_bytes()


def test_an_exported_page_names_its_archived_answer_and_an_import_keeps_it(tmp_path):
    output = tmp_path / "out"
    visit_twice(output, 1)
    with Frontier.open(output / "frontier", robots="caller") as frontier:
        kept = {record["url"]: record for record in frontier.records()}
    marks = {one["WARC-Target-URI"]: one["WARC-Record-ID"] for one in archived(output)}
    other = Frontier.memory(robots="caller")
    other.restore(list(kept.values()))
    other.requeue(list(kept))
    for found in other.lease(2):
        assert marks[found.url] == record_id(found.warc_record[8:])
        assert bytes.fromhex(kept[found.url]["warc_record"]) == found.warc_record


class TwoPages(FakeWeb):
    pages: ClassVar = {"/": "<a href=/b>b</a> one page", "/b": "another page of these two"}


def test_a_thousand_visits_without_a_change_park_no_host_and_are_no_duplicates(tmp_path):
    """24 such visits in a row parked the host."""
    (tmp_path / "hosts").write_text("127.0.0.1 two.test\n")
    settings = {"downloader": TwoPages, "hosts": str(tmp_path / "hosts"), "delay": 0, "delay_factor": 0}
    crawl = {"output": tmp_path / "out", "revisit": lambda page: 0, "max_pages": 1_002}
    result = outrider.crawl(["http://two.test/"], **crawl, **settings)
    lines = [json.loads(line) for line in (tmp_path / "out/pages.jsonl").read_text().splitlines()]
    assert {"done": 2, "unchanged": 1_000} == Counter(line["outcome"] for line in lines)
    assert (1_002, 0) == (result.statistics["answered"], result.statistics["duplicates"])
    with Frontier.open(tmp_path / "out/frontier", robots="caller") as frontier:
        assert None is frontier.host("two.test").not_welcome


@pytest.mark.parametrize("claimed", [True, False])
def test_the_frontier_counts_an_unchanged_page_as_no_copy_whatever_its_caller_says(claimed):
    store = Store()
    store.frontier.report([store.lease().again(at=store.now, digest=b"d" * 20)])
    for visit in range(50):
        found = store.lease()
        assert b"d" * 20 == found.digest
        answer = {"digest": b"d" * 20} if visit % 2 else {"status": 304}
        store.frontier.report([replaced(found.again(at=store.now, duplicate=claimed), **answer)])
    assert (0, None) == (store.frontier.statistics()["duplicates"], store.frontier.host("site.test").not_welcome)
    store.frontier.report([store.lease().again(at=store.now, digest=b"e" * 20, duplicate=True)])
    assert 1 == store.frontier.statistics()["duplicates"]


LATER, DATE = "Wed, 02 Jan 2030 00:00:00 GMT", "Thu, 03 Jan 2030 00:00:00 GMT"
WHOLE = {"status": 200, "digest": b"d" * 20, "Date": DATE}


def validators_after(*answers: dict[str, object], warc_record: bytes | None = None) -> list[tuple[object, ...]]:
    """Returns the validators of the lease after each answer, and `conditional` of the line of that answer."""
    store, found = Store(), []
    for one in answers:
        fields = {"digest": None, **one}
        line = store.report(store.lease(), fields.pop("status"), warc_record=warc_record, **fields)
        (record,) = store.frontier.records()
        found.append((record["etag"], record["last_modified"], line.get("conditional")))
    return found


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"ETag": ETAG, "Last_Modified": LATER}, (ETAG, LATER)),
        ({"ETag": ETAG}, (ETAG, MODIFIED)),
        ({"Last_Modified": LATER}, (ETAG, MODIFIED)),
        ({"ETag": '"v2"', "Last_Modified": LATER}, (ETAG, MODIFIED)),
        ({}, (ETAG, MODIFIED)),
    ],
)
def test_a_304_renews_the_date_if_it_has_the_etag_of_the_page(answer, expected):
    """RFC 9111 section 4.3.4."""
    first = {**WHOLE, "ETag": ETAG, "Last_Modified": MODIFIED}
    assert (*expected, None) == validators_after(first, {"status": 304, **answer})[-1]


def test_a_304_that_renews_the_date_keeps_the_mark_and_the_digests():
    store = Store()
    mark = b"m" * 24
    store.report(store.lease(), 200, digest=b"d" * 20, ETag=ETAG, Last_Modified=MODIFIED, warc_record=mark)
    store.report(store.lease(), 304, digest=None, ETag=ETAG, Last_Modified=LATER, warc_record=b"n" * 24)
    found = store.lease()
    assert (LATER, b"d" * 20, mark) == (found.last_modified, found.digest, found.warc_record)


def test_a_page_without_validators_keeps_no_mark():
    store = Store()
    store.report(store.lease(), 200, digest=b"d" * 20, ETag=ETAG, warc_record=b"m" * 24)
    assert b"m" * 24 == store.lease().warc_record
    store = Store()
    store.report(store.lease(), 200, digest=b"d" * 20, warc_record=b"m" * 24)
    assert None is store.lease().warc_record


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        ({"ETag": '"v2"', "Last_Modified": MODIFIED}, (None, MODIFIED, "renewed")),  # the date alone is tried
        ({"ETag": ETAG, "Last_Modified": MODIFIED}, (None, MODIFIED, "ignored")),
        ({"ETag": ETAG, "Last_Modified": LATER}, (ETAG, None, "renewed")),
        ({"ETag": '"v2"', "Last_Modified": LATER}, ('"v2"', LATER, "renewed")),
        ({"ETag": '"v2"'}, ('"v2"', None, "renewed")),
        ({}, (None, None, "renewed")),
        ({"ETag": '"v2"', "Last_Modified": MODIFIED, "Date": MODIFIED}, ('"v2"', MODIFIED, "renewed")),
        ({"ETag": '"v2"', "Last_Modified": MODIFIED, "Date": "no date"}, ('"v2"', MODIFIED, "renewed")),
        ({"ETag": '"v2"', "Last_Modified": MODIFIED, "digest": b"e" * 20}, ('"v2"', MODIFIED, None)),
    ],
)
def test_an_unchanged_page_that_is_sent_whole_is_tried_with_the_validator_that_is_still_the_same(second, expected):
    first = {**WHOLE, "ETag": ETAG, "Last_Modified": MODIFIED}
    assert expected == validators_after(first, {**WHOLE, **second})[-1]


def test_a_server_that_ignores_a_date_alone_gets_both_validators_again():
    answer = {**WHOLE, "ETag": ETAG, "Last_Modified": MODIFIED}
    both, alone = (ETAG, MODIFIED, "ignored"), (None, MODIFIED, "ignored")
    assert [(ETAG, MODIFIED, None), alone, both, alone] == validators_after(*[answer] * 4)


def test_a_page_that_has_changed_gets_new_validators():
    store = Store()
    store.report(store.lease(), 200, digest=b"d" * 20, ETag=ETAG, Last_Modified=MODIFIED)
    store.report(store.lease(), 200, digest=b"e" * 20, ETag='"v2"')
    found = store.lease()
    assert ('"v2"', None) == (found.etag, found.last_modified)


def test_a_304_without_a_conditional_request_counts_as_no_page():
    assert Verdict.GONE is judged(Visit(lease(), 0, 0, response(304))).verdict


@pytest.mark.parametrize(
    ("contact", "expected"),
    [
        ("me@example.org", (("From", "me@example.org"),)),
        ("mailto:me@example.org", (("From", "me@example.org"),)),
        ("https://example.org/bot", ()),
        (None, ()),
    ],
)
def test_the_from_header_is_a_contact_that_is_a_mail_address(contact, expected):
    assert expected == CrawlOptions(output="x", contact=contact).headers_sent


@pytest.mark.parametrize("kept", [True, False])
def test_the_digest_of_a_text_is_kept_on_request(tmp_path, kept):
    (tmp_path / "hosts").write_text("127.0.0.1 two.test\n")
    settings = {"downloader": TwoPages, "hosts": str(tmp_path / "hosts"), "delay": 0, "delay_factor": 0}
    outrider.crawl(["http://two.test/"], output=tmp_path / "out", keep_text_digest=kept, **settings)
    lines = [json.loads(line) for line in (tmp_path / "out/pages.jsonl").read_text().splitlines()]
    digests = {line["url"]: int(line["text_digest"], 16).to_bytes(8, "little").hex() for line in lines}
    with Frontier.open(tmp_path / "out/frontier", robots="caller", settings={"keep_text_digest": kept}) as frontier:
        assert {url: digest if kept else None for url, digest in digests.items()} == {
            record["url"]: record["text_digest"] for record in frontier.records()
        }
        frontier.requeue(list(digests))
        lease = frontier.lease(1)[0]
        assert (bytes.fromhex(digests[lease.url]) if kept else None) == lease.text_digest
        frontier.report([lease.done(text_digest=b"other..."), lease.done()])
        record = next(record for record in frontier.records() if record["url"] == lease.url)
        assert (b"other...".hex() if kept else None) == record["text_digest"]


class Counting(FakeWeb):
    """One page whose bytes are different each time, and not its words."""

    def page(self, url, path):
        if path != "/":
            return super().page(url, path)
        text = "the same twelve words of a page that is visited again today"
        return 200, f"<p>{text} {len(self.asked)}</p>", [("Content-Type", "text/html")]


@pytest.mark.parametrize(("kept", "outcome"), [(True, "unchanged"), (False, "done")])
def test_a_page_with_the_text_of_its_last_visit_is_unchanged_if_its_text_digest_is_kept(tmp_path, kept, outcome):
    (tmp_path / "hosts").write_text("127.0.0.1 two.test\n")
    settings = {"downloader": Counting, "hosts": str(tmp_path / "hosts"), "delay": 0, "delay_factor": 0}
    more = {"revisit": lambda page: 0, "max_pages": 4, "keep_text_digest": kept}
    outrider.crawl(["http://two.test/"], output=tmp_path / "out", **more, **settings)
    lines = [json.loads(line) for line in (tmp_path / "out/pages.jsonl").read_text().splitlines()]
    assert ["done", *[outcome] * 3] == [line["outcome"] for line in lines]
    assert (4, 1) == tuple(len({line[name] for line in lines}) for name in ("digest", "text_digest"))
