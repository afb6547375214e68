"""Makes the golden store of a format: the same bytes each time, so that a change of the format shows.

    python tests/golden/make.py v1

writes `tests/golden/v1/store.tar.xz` and `contents.json` beside it, what the store must be found to hold. Run it once
per released format and never again for the same one: a store that a release has written stays as it was.
"""

from __future__ import annotations

import io
import itertools
import json
import secrets
import sys
import tarfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

from outrider import Frontier, Link
from outrider import clock as clocks
from outrider.clock import instant
from outrider.journey import Outcome, Verdict
from outrider.sim.disk import MemoryFiles
from outrider.storage.log import Log

HERE = Path(__file__).resolve().parent
START = 1_700_000_000_000_000
SEGMENT_BYTES = 16_384
SETTINGS = {"delay": 1.0, "scope": "domain", "max_pages_per_host": 3}


def build() -> tuple[MemoryFiles, dict[str, Any]]:
    """A store with every kind of fact in its checkpoint or its log, and what it holds."""
    numbers = itertools.count(1)

    def token_bytes(size: int) -> bytes:
        return bytes((next(numbers) * 37 + place) % 256 for place in range(size))

    now = [START]
    disk = MemoryFiles(name="golden")
    segments = {"segment_bytes_first": SEGMENT_BYTES, "segment_bytes_max": SEGMENT_BYTES}
    with (
        patch.object(secrets, "token_bytes", token_bytes),
        patch.object(secrets, "token_hex", lambda size: token_bytes(size).hex()),
        patch.object(clocks, "wall", lambda: START),
        patch.object(clocks, "elapsed", lambda: 1_000_000),
        patch.dict(Log.open.__func__.__kwdefaults__, segments),  # type: ignore[attr-defined]
    ):

        def opened() -> Frontier:
            return Frontier.open(disk, clock=lambda: now[0], settings=SETTINGS, robots="errands", output=True)

        frontier = opened()
        _first_life(frontier, now)
        frontier.close("stopped")
        frontier = opened()
        _second_life(frontier, now)
        # No goodbye: the log ends as a kill leaves it, with leases open.
        frontier._log.close()
        contents = contents_of(frontier)
    return disk, contents


def _errands(frontier: Frontier, now: list[int], answers: dict[str, tuple[int | None, bytes]]) -> None:
    """Answers robots.txt for some seconds; pages that come along are given back."""
    for _ in range(12):
        for lease in frontier.lease(50, errands=True, worker="w1"):
            if lease.kind == "page":
                frontier.release([lease.token])
                continue
            status, body = answers.get(lease.authority, (404, b""))
            location = "http://static.example.org/robots.txt" if status == 301 and lease.hops == 0 else None
            frontier.report([lease.robots(status, body, location=location, seconds=0.01)])
        now[0] += instant(1)


def _first_life(frontier: Frontier, now: list[int]) -> None:
    links = [
        "http://example.org/",
        Link("http://www.example.org/a", priority=0.9, metadata={"from": "golden"}),
        Link("http://example.org/private/x", depth=2, referrer="http://example.org/"),
        Link("http://example.com/later", not_before=START + instant(86_400)),
        Link("https://example.net:8443/ünï?q=%7e", key="net"),
        Link("http://example.org/", crawl="second"),
        "http://moved.example.net/",
        "http://silent.example.net/",
        "http://nowhere.test/",
    ]
    frontier.discover(links, request_id=("golden", 1))
    answers = {
        "http://example.org": (200, b"User-agent: *\nDisallow: /private\nCrawl-delay: 2\n"),
        "http://moved.example.net": (301, b""),
        "http://silent.example.net": (None, b""),
    }
    _errands(frontier, now, answers)
    outcomes = []
    for lease in frontier.lease(20, worker="w1", ttl_seconds=1_000, request_id=("golden", 2)):
        if lease.host == "www.example.org":
            outcomes.append(lease.done(status=301, location="http://www.example.org/b", seconds=0.1))
        elif lease.host == "example.net":
            outcomes.append(lease.retry(error="timeout", seconds=3.0))
        elif lease.host == "nowhere.test":
            outcomes.append(lease.gone(error="dns_unknown"))
        elif lease.host == "example.org":
            outcomes.append(_page(lease.token))
    watermark = ("warc", b'["crawl-000000.warc.gz",100]')
    frontier.report(outcomes, request_id=("golden", 3), watermark=watermark)
    frontier.note_projection("pages", 30, 5)
    frontier.note_projection("politeness", 23, 5)
    frontier.checkpoint()


def _page(token: int) -> Outcome:
    return Outcome(
        token,
        Verdict.DONE,
        seconds=0.2,
        status=200,
        bytes_read=1_234,
        digest=b"\x01" * 20,
        etag='"e"',
        last_modified="Tue, 14 Nov 2023 22:13:20 GMT",
        line=b'{"url":"http://example.org/"}',
        politeness=b'{"host":"example.org"}',
        links=["http://example.org/1", "http://example.org/2", "http://elsewhere.test/"],
    )


def _second_life(frontier: Frontier, now: list[int]) -> None:
    now[0] += instant(600)
    _errands(frontier, now, {"http://silent.example.net": (None, b"")})
    (first, *_) = frontier.lease(2, worker="w1", ttl_seconds=10_000)
    frontier.report([first.gone(status=404, seconds=0.05)])
    frontier.lease(2, ttl_seconds=10_000)


def contents_of(frontier: Frontier) -> dict[str, Any]:
    """Everything that people and callers can see of it, as JSON has it."""
    tables = frontier._machine.tables
    urls = {}
    for url in tables.urls():
        crawl = tables.crawls[url.queue.crawl][0]
        urls[f"{crawl} {url.url}"] = [
            url.state, url.reason, url.due, url.priority, url.depth, url.hops, url.referrer, url.metadata.decode(),
            url.attempts, url.losses, url.status, url.error, url.etag, url.queue.key,
        ]  # fmt: skip
    return {
        "counts": dict(frontier._machine.verify().counts),
        "problems": list(frontier._machine.verify().problems),
        "urls": urls,
        "hosts": {h.name: [h.slot, h.ended, h.rest_until, h.gap, h.reason, h.answered] for h in tables.hosts.values()},
        "authorities": {
            a.name: [int(a.state), a.expires, a.next_at, a.attempts, a.hops, a.url, a.body.decode()]
            for a in tables.authorities.values()
        },
        "tallies": dict(tables.tallies),
        "crawls": [list(crawl) for crawl in tables.crawls],
        "scope": {str(crawl): list(seeds) for crawl, seeds in tables.scope.items()},
        "requests": {client: sorted(window) for client, window in tables.requests.items()},
        "watermarks": {writer: value.decode() for writer, value in tables.watermarks.items()},
        "projections": {stream: list(place) for stream, place in tables.projections.items()},
        "token": tables.token,
        "leases": {str(token): [owner.url, owner.deadline] for token, owner in tables.leases.items()},
    }


def packed(disk: MemoryFiles) -> bytes:
    """The store's files as a small archive, the same each time."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz") as archive:
        for name, data in sorted(disk.contents().items()):
            if name != "lock":
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def main(version: str) -> None:
    folder = HERE / version
    if folder.exists():
        sys.exit(f"{folder} is there: what a release has written is not made again")
    folder.mkdir()
    disk, contents = build()
    (folder / "store.tar.xz").write_bytes(packed(disk))
    (folder / "contents.json").write_text(json.dumps(contents, indent=1, sort_keys=True) + "\n", "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
