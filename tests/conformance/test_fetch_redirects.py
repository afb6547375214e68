"""Redirects that another client's authors recorded: where each leads, and which header fields are sent there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fake_web import answer
from outrider.crawl.setup.host_settings import PerHost
from outrider.crawl.setup.options import CrawlOptions
from outrider.errors import InvalidUrlError
from outrider.fetch.downloader import target_of
from outrider.fetch.judging import location_of
from outrider.fetch.meaning import REDIRECTS
from outrider.url import normalize

pytestmark = pytest.mark.conformance


def cases(shared: Path) -> list[dict[str, Any]]:
    """Redirects of a GET by status; the client's own switches (`dont_redirect`, a budget of hops) are not tested."""
    rows = map(json.loads, (shared / "data/http/scrapy-redirects.jsonl").read_text().splitlines())
    return [
        row
        for row in rows
        if row["kind"] == "RedirectMiddleware"
        and row["request"]["method"] == "GET"
        and not row["request"]["meta"].get("dont_redirect")
        and "result" in row
    ]


def leads_to(row: dict[str, Any]) -> str | None:
    """Returns the URL that would be queued; None where the answer is not followed."""
    fields = [(name, value) for name, values in row["response_headers"].items() for value in values]
    response = answer(normalize(row["request"]["url"]), row["status"], b"", fields)
    return location_of(response) if row["status"] in REDIRECTS else None


def test_every_redirect_leads_where_it_is_recorded_to_lead(shared: Path) -> None:
    wrong = []
    for row in cases(shared):
        result = row["result"]
        try:
            expected = None if result == "response" else normalize(result["url"])
        except InvalidUrlError:
            expected = None
        if leads_to(row) != expected:
            wrong.append((row["src"], leads_to(row), expected))
    assert (45, []) == (len(cases(shared)), wrong)


def test_no_secret_of_an_origin_is_sent_to_another_origin_by_a_redirect(shared: Path) -> None:
    """The next request of each recorded hop has the secret if and only if its origin is the same, and the fields of a
    table on the table's host alone."""
    wrong, seen = [], 0
    for row in cases(shared):
        url, to = normalize(row["request"]["url"]), leads_to(row)
        if to is None or not row["request"]["headers"].get("Authorization"):
            continue
        seen += 1
        here, there = target_of(url), target_of(to)
        table = {"name": here.host, "header": ["X-Own=1"], "credentials": {url: "Bearer 123456"}}
        hosts = PerHost(CrawlOptions(host=[table]))
        head = hosts.of(there.host).request(to, "192.0.2.1", "A", ()).head()
        same = here.origin == there.origin
        if (b"Authorization: Bearer 123456\r\n" in head) != same or (b"X-Own" in head) != (here.host == there.host):
            wrong.append((url, to, head))
        # That client strips likewise, and sends a secret from http to https of one host; here it stays.
        kept = "Authorization" in row["result"]["headers"]
        if kept != same and (here.scheme, there.scheme) != ("http", "https"):
            wrong.append((url, to, row["src"]))
    assert (True, []) == (seen >= 4, wrong)
