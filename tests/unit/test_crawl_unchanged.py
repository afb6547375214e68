"""A page that is due again is requested with its validators. An unchanged page keeps its stored facts."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from outrider import Frontier
from outrider.clock import wall
from outrider.crawl.run.visit import Visit, judged, page_outcome
from outrider.crawl.setup.options import CrawlOptions
from outrider.fetch.downloader import Headers
from outrider.journey import Lease, Verdict
from outrider.limits import MICROSECONDS
from outrider.url import UrlBatch
from unit.test_crawl_fetching import Wire, lease, response, visited

ETAG, MODIFIED = '"v1"', "Tue, 01 Jan 2030 00:00:00 GMT"
NO_LINKS = UrlBatch.of(())


def test_the_validators_of_a_lease_are_sent():
    wire = Wire(at_8_8_8_8=None)
    visited(wire, "8.8.8.8", etag=ETAG, last_modified=MODIFIED)
    assert (("If-None-Match", ETAG), ("If-Modified-Since", MODIFIED)) == wire.asked[0].headers


@pytest.mark.parametrize("etag", ['"a\r\nX: y"', '"é"', "\x00", ""])
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

    def report(self, found: Lease, status: int, *, digest: bytes | None, **fields: str) -> dict[str, object]:
        headers = Headers(tuple((name.replace("_", "-"), value) for name, value in fields.items()))
        told = replace(response(status), headers=headers)
        visit = Visit(found, self.now, self.now, told)
        outcome = page_outcome(
            visit,
            judged(visit),
            page=None,
            links=NO_LINKS,
            digest=digest,
            digest_shown="sha1:X",
            warc=None,
            due_again=60.0,
        )
        self.frontier.report([outcome])
        assert outcome.line is not None
        return json.loads(outcome.line)


def test_a_page_that_has_not_changed_is_a_duplicate_and_keeps_its_validators():
    store = Store()
    store.report(store.lease(), 200, digest=b"d" * 20, ETag=ETAG, Last_Modified=MODIFIED)
    for _ in range(2):
        found = store.lease()
        assert (ETAG, MODIFIED) == (found.etag, found.last_modified)
        line = store.report(found, 304, digest=None, ETag=ETAG)
        assert ("duplicate", 304, None) == (line["outcome"], line["status"], line["digest"])


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
