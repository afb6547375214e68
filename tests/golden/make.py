"""Makes the golden stores of a format: the same bytes each time, so that a change of the format shows.

    python tests/golden/make.py v2

writes for each of `NAMES` a `tests/golden/v2/NAME.tar.xz`, and next to it a `NAME.json` with the expected content of
the store. Run it once per released format and never again for the same one: a store that a release has written stays
unchanged. The releases before the ledger made v1; its test expects that it is refused with a message.
"""

from __future__ import annotations

import dataclasses
import io
import itertools
import json
import secrets
import sys
import tarfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

from model.inside import inspect
from outrider import Frontier, Link
from outrider import clock as clocks
from outrider.clock import instant
from outrider.journey import HostStatus, Lease, Outcome, UrlStatus, Verdict
from outrider.sim.disk import FaultyFiles
from outrider.storage.log import Log

HERE = Path(__file__).resolve().parent
START = 1_700_000_000_000_000
SEGMENT_BYTES = 16_384
SETTINGS = {"delay": 1.0, "scope": "domain", "max_pages_per_host": 3}
NAMES = tuple(f"{kind}-{robots}" for kind in ("log", "runs") for robots in ("caller", "errands"))
"""A log alone, or a checkpoint with runs of the ledger and the log after it; who requests robots.txt."""


def robots_of(name: str) -> str:
    return name.partition("-")[2]


def build(name: str) -> tuple[FaultyFiles, dict[str, Any]]:
    """A store with every kind of fact in its checkpoint or its log, and its content."""
    numbers = itertools.count(1)

    def token_bytes(size: int) -> bytes:
        return bytes((next(numbers) * 37 + place) % 256 for place in range(size))

    now = [START]
    disk = FaultyFiles(name="golden")
    segments = {"segment_bytes_first": SEGMENT_BYTES, "segment_bytes_max": SEGMENT_BYTES}
    with (
        patch.object(secrets, "token_bytes", token_bytes),
        patch.object(secrets, "token_hex", lambda size: token_bytes(size).hex()),
        patch.object(clocks, "wall", lambda: START),
        patch.object(clocks, "elapsed", lambda: 1_000_000),
        patch.dict(Log.open.__func__.__kwdefaults__, segments),  # type: ignore[attr-defined]
    ):

        def opened() -> Frontier:
            return Frontier.open(disk, clock=lambda: now[0], settings=SETTINGS, robots=robots_of(name), output=True)

        frontier = opened()
        _first_life(frontier, now)
        if name.startswith("runs"):
            frontier.checkpoint()
        frontier.close("stopped")
        frontier = opened()
        _second_life(frontier, now)
        if name.startswith("runs"):
            frontier.checkpoint()
        _third_part(frontier, now)
        contents = contents_of(frontier)
        # No goodbye: the log ends as a kill leaves it, with leases open.
        frontier._log.close()
    return disk, contents


def _robots(frontier: Frontier, now: list[int], answers: dict[str, tuple[int | None, bytes]]) -> None:
    """Reports the robots.txt of some authorities: as answers to errands where there are any, else by the caller."""
    if not inspect(frontier).core.errands_mode:
        for authority, (status, body) in answers.items():
            frontier.set_robots(authority, 404 if status == 301 else status, body)
        return
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
    _robots(frontier, now, answers)
    outcomes = []
    for lease in frontier.lease(20, worker="w1", ttl_seconds=1_000, request_id=("golden", 2)):
        outcomes += _told(lease)
    watermark = ("warc", b'["crawl-000000.warc.gz",100]')
    frontier.report(outcomes, request_id=("golden", 3), watermark=watermark)
    frontier.note_projection("pages", 30, 5)
    frontier.note_projection("politeness", 23, 5)


def _told(lease: Lease) -> list[Outcome]:
    if lease.host == "www.example.org":
        return [lease.done(status=301, location="http://www.example.org/b", seconds=0.1)]
    if lease.host == "example.net":
        return [lease.retry(error="timeout", seconds=3.0)]
    if lease.host == "nowhere.test":
        return [lease.gone(error="dns_unknown")]
    return [_page(lease.token)] if lease.host == "example.org" else []


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
    """The words of operators, and a queue and a crawl that are deleted, one while a lease of it is open."""
    now[0] += instant(600)
    seeds = [f"http://{name}.example/{n}" for name in ("paused", "slow", "wide", "late", "dropped") for n in range(3)]
    frontier.discover([*seeds, *(Link(f"http://dropped.example/{n}", crawl="third") for n in range(2))])
    _robots(frontier, now, {"http://silent.example.net": (None, b"")})
    frontier.pause("paused.example")
    frontier.set_delay(5.0, "slow.example")
    frontier.set_limit(2, "wide.example")
    frontier.block_until(START + instant(3_600), "late.example")
    frontier.reprioritise({"http://wide.example/2": 0.95, "http://example.com/later": 0.7})
    frontier.lease(2, worker="w1", key="dropped.example", ttl_seconds=10_000)
    frontier.delete("dropped.example", crawl="default")
    frontier.delete(crawl="third")
    frontier.discover(["http://dropped.example/1"])
    (wide,) = frontier.lease(1, worker="w2", key="wide.example", ttl_seconds=10_000)
    frontier.defer([wide.token], START + instant(7_200))
    frontier.retry(error="dns_unknown")


def _third_part(frontier: Frontier, now: list[int]) -> None:
    """After the last checkpoint: a page gone, leases of a named worker and of the process itself."""
    now[0] += instant(5)
    (first, *_) = frontier.lease(2, worker="w1", ttl_seconds=10_000)
    frontier.report([first.gone(status=404, seconds=0.05)])
    frontier.pause(crawl="second")
    frontier.lease(1, worker="w2", key="wide.example", ttl_seconds=10_000)
    frontier.lease(2, ttl_seconds=10_000)


def contents_of(frontier: Frontier) -> dict[str, Any]:
    """Everything that people and callers can see of it, as JSON has it."""
    tables = inspect(frontier).tables
    verified = frontier.verify()
    return {
        "counts": dict(verified.counts),
        "problems": list(verified.problems),
        "urls": {f"{url.crawl} {url.url}": _without_younger(url) for url in frontier.urls(limit=1_000)},
        "queues": [dataclasses.asdict(queue) for queue in frontier.queues(limit=1_000)],
        "hosts": {host.name: _without_state(host) for host in frontier.hosts(limit=1_000)},
        "authorities": {
            a.name: [
                int(a.state),
                a.expires,
                a.next_at,
                a.attempts,
                a.hops,
                a.url,
                tables.robots.rulebook.body(a.digest).decode(),
            ]
            for a in tables.robots.by_name.values()
            if a.logged
        },
        "tallies": dict(tables.registry.tallies),
        "crawls": [list(crawl) for crawl in tables.crawls.names.values()],
        "crawl_states": list(map(int, tables.crawls.states.values())),
        "scope": {str(crawl): list(seeds) for crawl, seeds in tables.crawls.scope.items()},
        "requests": {client: sorted(window) for client, window in tables.registry.requests.items()},
        "watermarks": {writer: value.decode() for writer, value in tables.registry.watermarks.items()},
        "projections": {stream: list(place) for stream, place in tables.registry.projections.items()},
        "token": tables.token,
        "order": tables.urls.order,
    }


def _without_younger(url: UrlStatus) -> dict[str, Any]:
    """Without fields younger than the golden files."""
    younger = {"unique_key", "discovered_at", "fetched_at"}
    return {name: value for name, value in dataclasses.asdict(url).items() if name not in younger}


def _without_state(host: HostStatus) -> dict[str, Any]:
    """Without fields younger than the golden files, and without `state`, which depends on this process's requests."""
    younger = {"not_welcome", "robots", "blocked_until", "payment"}
    return {name: value for name, value in dataclasses.asdict(host).items() if name not in {"state", *younger}}


def packed(disk: FaultyFiles) -> bytes:
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
    for name in NAMES:
        disk, contents = build(name)
        (folder / f"{name}.tar.xz").write_bytes(packed(disk))
        (folder / f"{name}.json").write_text(json.dumps(contents, indent=1, sort_keys=True) + "\n", "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
