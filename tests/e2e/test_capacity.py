"""A host that accepts several requests at once: the site counts open requests, and the record proves them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e import crawling
from e2e.hostile import Connection, served
from outrider.kernels import in_use

KERNELS = ["python", *(["native"] if in_use() == "native" else [])]  # libcurl, and the fetch kernel
QUICK = ("--progress", "none", "--no-sitemaps", "--delay-factor", "0")
HOST = "127.0.0.1"


def both(none: str, some: str) -> list[object]:
    """Two delays with both kinds of kernels, crosswise; the other two pairs are tested for long."""
    first, second = KERNELS[0], KERNELS[-1]
    crosswise = [(none, first), (some, second)]
    if first == second:
        return [*crosswise]
    return [*crosswise, *(pytest.param(*one, marks=pytest.mark.long) for one in ((none, second), (some, first)))]


class Counting:
    """A site of this number of slow pages. begun: how many requests were open when each began."""

    def __init__(self, pages: int, seconds: float) -> None:
        self._pages, self.seconds = pages, seconds
        self._open = 0
        self.begun: list[int] = []
        self.answered: set[str] = set()
        self.port = 0

    async def script(self, connection: Connection) -> None:
        while True:
            path = (await connection.request()).split()[1].decode()
            self._open += 1
            self.begun.append(self._open)
            await asyncio.sleep(self.seconds)
            self._open -= 1
            links = "".join(f"<a href=/p{number}>x</a>" for number in range(self._pages)) if path == "/" else path
            body = b"" if path == "/robots.txt" else links.encode()
            head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\n\r\n"
            await connection.send(head.encode() + body)
            self.answered.add(path)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/"


@contextlib.contextmanager
def counting(pages: int = 40, seconds: float = 0.05) -> Iterator[Counting]:
    site = Counting(pages, seconds)
    with served(site.script) as site.port:
        yield site


def table(output: Path, capacity: int) -> Path:
    output.mkdir()
    (output / "outrider.toml").write_text(f'[[host]]\nname = "{HOST}"\ncapacity = {capacity}\n')
    return output


def proved(output: Path) -> tuple[int, str]:
    told = crawling.outrider("politeness", output)
    return told.returncode, told.stdout if told.returncode else ""


@pytest.mark.parametrize(("delay", "kernels"), both("0", "0.02"))
def test_a_host_with_a_capacity_of_three_sees_three_at_once_and_never_four(tmp_path, kernels, delay):
    output = table(tmp_path / "out", 3)
    with counting(seconds=0.1) as site:
        crawl = ("crawl", site.url, "-o", output, "--delay", delay, *QUICK)
        assert 0 == crawling.outrider(*crawl, OUTRIDER_KERNELS=kernels).returncode
    assert (True, 42) == (max(site.begun) in (2, 3), len(site.answered))
    assert (0, "") == proved(output)
    asked = crawling.lines(output / "politeness.jsonl")
    assert [None] + [3] * 41 == [line.get("capacity") for line in asked]
    assert [] == [line for line in asked if line["gap"] is not None and line["gap"] < line["gap_required"]]
    assert "early" not in (output / "report.html").read_text().split("Politeness timeline")[1].split("</p>")[1]


@pytest.mark.parametrize("kernels", KERNELS)
def test_a_killed_crawl_of_such_a_host_proves_its_record(tmp_path, kernels):
    output = table(tmp_path / "out", 3)
    with counting(seconds=0.1) as site:
        crawl = crawling.started(
            *("crawl", site.url, "-o", output, "--delay", "0.02", *QUICK), OUTRIDER_KERNELS=kernels
        )
        for _ in range(2):
            begun = len(site.begun)
            crawling.wait_for(lambda begun=begun: len(site.begun) >= begun + 9, seconds=60)
            crawl.kill()
            crawl.wait(60)
            crawl = crawling.started("resume", output, OUTRIDER_KERNELS=kernels)
        assert 0 == crawl.wait(90)
    assert (True, 42) == (max(site.begun) in (2, 3), len(site.answered))
    assert (0, "") == proved(output)


@pytest.mark.parametrize(("delay", "kernels"), both("0", "0.05"))
def test_an_order_changes_how_many_a_site_sees_at_once(tmp_path, kernels, delay):
    """With no delay the crawl leases trains before the order."""
    output = tmp_path / "out"
    pages = 400 if delay == "0" else 120  # so many that the crawl does not end before the orders
    with counting(pages=pages, seconds=0.1) as site:
        crawl = crawling.started(*("crawl", site.url, "-o", output, "--delay", delay, *QUICK), OUTRIDER_KERNELS=kernels)
        crawling.wait_for(lambda: len(site.begun) >= 8, seconds=60)
        assert 1 == max(site.begun)
        assert 0 == crawling.outrider("host", output, HOST, "limit", "3").returncode
        crawling.wait_for(lambda: max(site.begun) >= 2, seconds=60)
        assert 0 == crawling.outrider("host", output, HOST, "limit", "1").returncode
        lowered = len(site.begun)
        crawling.wait_for(lambda: len(site.begun) >= lowered + 12, seconds=60)
        site.seconds = 0.001
        assert 0 == crawl.wait(120)
    assert (True, pages + 2) == (max(site.begun) <= 3, len(site.answered))
    assert set(site.begun[lowered + 4 :]) <= {1}
    assert (0, "") == proved(output)
