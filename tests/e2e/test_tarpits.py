"""Hosts that accept and stay silent use no places of a crawl: all other hosts are fetched as if they were alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import outrider
from e2e.hostile import Connection, served

PAGES = 10


async def _script(connection: Connection) -> None:
    while True:
        head = await connection.request()
        robots = head.startswith(b"GET /robots.txt ")
        if b"Host: tarpit" in head and not robots:
            await connection.hang()
        links = b"" if robots else b"".join(b"<a href=/%d>page</a>" % number for number in range(PAGES))
        status = b"404 Not Found" if robots else b"200 OK"
        fields = b"Content-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(links)
        await connection.send(b"HTTP/1.1 " + status + b"\r\n" + fields + links)


@pytest.fixture
def port() -> Iterator[int]:
    with served(_script) as port:
        yield port


def test_tarpits_in_all_places_of_a_crawl_leave_them_to_other_hosts(port: int, tmp_path: Path) -> None:
    names = [*(f"tarpit{number}.test" for number in range(12)), "good1.test", "good2.test"]
    (tmp_path / "hosts").write_text("".join(f"127.0.0.1 {name}\n" for name in names))
    outrider.crawl(
        [f"http://{name}:{port}/" for name in names],
        output=str(tmp_path / "out"),
        hosts=str(tmp_path / "hosts"),
        concurrency=2,
        delay=0,
        delay_factor=0,
        max_seconds=6,
        timeout="total=8",
    )
    lines = map(json.loads, (tmp_path / "out" / "pages.jsonl").read_text().splitlines())
    good = [line["url"] for line in lines if line["outcome"] in {"done", "duplicate"}]
    assert (2 * (PAGES + 1), True) == (len(good), all("good" in url for url in good))


CHAIN = 40


async def _chain(connection: Connection) -> None:
    """Good hosts have a chain of pages; tarpits answer for robots.txt alone."""
    while True:
        head = await connection.request()
        path = head.split(b" ")[1]
        robots = path == b"/robots.txt"
        if b"Host: tarpit" in head and not robots:
            await connection.hang()
        number = int(path[1:] or b"0") if not robots else 0
        name = head.split(b"Host: ")[1].split(b":")[0]
        links = b"" if robots or number == CHAIN else b"<a href=/%d>next</a> %d %s" % (number + 1, number, name)
        status = b"404 Not Found" if robots else b"200 OK"
        fields = b"Content-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(links)
        await connection.send(b"HTTP/1.1 " + status + b"\r\n" + fields + links)


def test_more_tarpits_than_requests_may_be_open_leave_places_to_hosts_that_answer(tmp_path: Path) -> None:
    """Four places and 28 aside, and twice as many tarpits: hosts that have answered continue meanwhile."""
    names = ["good1.test", "good2.test", "good3.test", *(f"tarpit{number}.test" for number in range(70))]
    (tmp_path / "hosts").write_text("".join(f"127.0.0.1 {name}\n" for name in names))
    with served(_chain) as port:
        outrider.crawl(
            [f"http://{name}:{port}/" for name in names],
            output=str(tmp_path / "out"),
            hosts=str(tmp_path / "hosts"),
            concurrency=4,
            delay=0.05,
            delay_factor=0,
            max_seconds=9,
            timeout="first-byte=3,total=3",
            traps=False,
        )
    lines = map(json.loads, (tmp_path / "out" / "pages.jsonl").read_text().splitlines())
    good = [line["url"] for line in lines if line["outcome"] in {"done", "duplicate"}]
    assert 3 * CHAIN * 0.9 <= len(good)
