"""Visits of an unchanged site: nginx and a server with its own rules answer 304 without a body."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
from fastwarc.warc import ArchiveIterator as FastIterator
from warcio.archiveiterator import ArchiveIterator

import outrider
from e2e import crawling, localweb
from outrider.crawl.run.hooks import CrawledPage

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not localweb.available(), reason="the reference material is not beside the project"),
]

PORTS: Final = (18980, 18943)
STRIDE: Final = 25  # every 25th of 2,800 pages of 29 sites
VISITS: Final = 3
SETTINGS: Final = {"delay": 0.01, "delay_factor": 0, "sitemaps": False}
PROFILE: Final = "http://netpreserve.org/warc/1.1/revisit/server-not-modified"


def lines(output: Path) -> dict[str, list[dict[str, Any]]]:
    """The lines of each URL, in order."""
    found: dict[str, list[dict[str, Any]]] = {}
    for line in crawling.pages(output):
        found.setdefault(line["url"], []).append(line)
    return found


def requested(log: Path, offset: int = 0) -> Iterator[dict[str, Any]]:
    """The requests in a server's log, without those for robots.txt."""
    with log.open(encoding="utf-8") as entries:
        entries.seek(offset)
        yield from (entry for entry in map(json.loads, entries) if entry["uri"] != "/robots.txt")


def records(output: Path) -> list[dict[str, str]]:
    """The fields of the records of the archive."""
    found = []
    for path in sorted((output / "archive").iterdir()):
        with path.open("rb") as file:
            found += [dict(one.rec_headers.headers) for one in ArchiveIterator(file, no_record_parse=True)]
        with path.open("rb") as file:
            assert all(one.verify_block_digest() for one in FastIterator(file, parse_http=False))
    return found


def test_revisits_of_an_unchanged_site_transfer_no_byte_of_a_body(tmp_path: Path) -> None:
    output = tmp_path / "out"
    with localweb.serving("small") as web:
        pages = sorted(web.must_fetch())[::STRIDE]
        began = web.log.stat().st_size
        outrider.crawl(
            pages,
            output=str(output),
            hosts=str(web.hosts),
            max_depth=0,
            revisit=lambda page: 0.0 if page.lease.visits + 1 < VISITS else None,
            **SETTINGS,
        )
        answers: dict[str, list[tuple[int, int]]] = {}
        for one in requested(web.log, began):
            answers.setdefault(f"http://{one['host']}:{one['port']}{one['uri']}", []).append(
                (one["status"], one["bytes"])
            )
    assert set(pages) == set(answers)
    assert {200} == {some[0][0] for some in answers.values()}
    assert {((304, 0),) * (VISITS - 1)} == {tuple(some[1:]) for some in answers.values()}
    found = lines(output)
    unchanged = [line for some in found.values() for line in some[1:]]
    assert {("unchanged", 304, 0)} == {(line["outcome"], line["status"], line["bytes"]) for line in unchanged}
    assert len(pages) * (VISITS - 1) == len(unchanged)
    check_archive(output, found, len(unchanged))
    for command in (("verify", output), ("show", unchanged[0]["url"], "-o", output)):
        done = crawling.outrider(*command)
        assert 0 == done.returncode, done.stderr


def check_archive(output: Path, found: dict[str, list[dict[str, Any]]], count: int) -> None:
    """Each 304 has a record that names the record of the last whole answer of its URL."""
    kept = records(output)
    whole = {one["WARC-Record-ID"]: one for one in kept if one["WARC-Type"] == "response"}
    revisits = [one for one in kept if one.get("WARC-Profile") == PROFILE]
    assert count == len(revisits)
    assert {"revisit"} == {one["WARC-Type"] for one in revisits}
    for one in revisits:
        confirmed = whole[one["WARC-Refers-To"]]
        assert (confirmed["WARC-Target-URI"], confirmed["WARC-Date"]) == (
            one["WARC-Refers-To-Target-URI"],
            one["WARC-Refers-To-Date"],
        )
        assert one["WARC-Target-URI"] == confirmed["WARC-Target-URI"]
    tokens = {line["token"] for some in found.values() for line in some if line["status"] == 304}
    assert tokens == {int(one["Outrider-Token"]) for one in revisits}


def test_a_host_with_conditions_of_its_own_is_judged_by_the_content(tmp_path: Path) -> None:
    """The first visits are the first second of the server: a date counts when it is older (RFC 9110 8.8.2.2)."""
    output, visits = tmp_path / "out", 5

    def revisit(page: CrawledPage) -> float | None:
        return 1.5 if page.lease.visits + 1 < visits and not page.url.rpartition("/")[0].endswith("every") else None

    with localweb.misbehaving(tmp_path / "web", *PORTS) as web:
        root = f"http://conditional.fault.test:{PORTS[0]}/"
        outrider.crawl([root], output=str(output), hosts=str(web.hosts), revisit=revisit, **SETTINGS)
    found = {urlsplit(url).path: some for url, some in lines(output).items()}
    statuses = {path: [line["status"] for line in some] for path, some in found.items()}
    for path in ("/static", "/weak", "/etag-only", "/date-only", "/future"):
        assert [200, *[304] * (visits - 1)] == statuses[path], path
    # Its ETag is another one each time: after one visit for nothing, the date alone is sent.
    assert [200, 200, 304, 304, 304] == statuses["/lies"]
    for path in ("/ignores", "/no-validators"):
        assert [200] * visits == statuses[path], path
    outcomes = {path: {line["outcome"] for line in some[1:]} for path, some in found.items() if len(some) > 1}
    assert {"unchanged"} == set.union(*outcomes.values())
    signs = {path: [line.get("conditional") for line in some] for path, some in found.items()}
    assert [None, "renewed", None, None, None] == signs["/lies"]
    assert [None, *["ignored"] * (visits - 1)] == signs["/ignores"]
    assert {None} == set(signs["/no-validators"]) | set(signs["/static"])
    check_archive(output, lines(output), sum(some.count(304) for some in statuses.values()))
