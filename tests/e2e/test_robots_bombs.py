"""Many hosts whose robots.txt unpacks to half a megabyte: a crawl obeys each of them, in bounded memory."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import threading
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from e2e import crawling
from e2e.hostile import Connection, Site, hostile

ALLOWED_BYTES = 256 << 20  # above a plain crawl of the same hosts
PAGE = b"<p>hello"
RUN = textwrap.dedent(
    """
    import atexit, re, runpy, sys
    def peak():
        print("peak", re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1], file=sys.stderr)
    atexit.register(peak)
    runpy.run_module("outrider", run_name="__main__", alter_sys=True)
    """
)


def repeated(host: int) -> bytes:
    """500 kB that are 1.5 kB on the wire."""
    return b"User-agent: *\nDisallow: /closed\n" + b"Disallow: /%d\n" % host * (480_000 // (12 + len(str(host))))


def distinct(host: int) -> bytes:
    """500 kB without a repeated line, here or at another host."""
    rules = b"".join(b"Disallow: /%d-%d\n" % (host, number) for number in range(24_000))
    return b"User-agent: *\nDisallow: /closed\n" + rules


def plain(host: int) -> bytes:
    return b"User-agent: *\nDisallow: /closed\n# %d\n" % host


@contextmanager
def web(robots: object) -> Iterator[tuple[Site, Counter[str]]]:
    """Hosts h0.test, h1.test … on one port, until the block ends; the requests to all of them, by path."""
    asked: Counter[str] = Counter()

    async def script(connection: Connection) -> None:
        while True:
            head = (await connection.request()).decode("latin-1")
            path = head.split(" ", 2)[1]
            host = int(head.lower().partition("host: h")[2].partition(".")[0])
            asked[path] += 1
            body, more = PAGE, "Content-Type: text/html"
            if path == "/robots.txt":
                packer = zlib.compressobj(1, zlib.DEFLATED, 31)
                body, more = packer.compress(robots(host)) + packer.flush(), "Content-Encoding: gzip"
            await connection.send(f"HTTP/1.1 200 OK\r\n{more}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)

    loop = asyncio.new_event_loop()
    ready, found, stop = threading.Event(), [], asyncio.Event()

    async def serve() -> None:
        async with hostile(script) as site:
            found.append(site)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=partial(loop.run_until_complete, serve()))
    thread.start()
    ready.wait(20)
    try:
        yield found[0], asked
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(20)
        loop.close()


def crawled(directory: Path, hosts: int, robots: object, seconds: float) -> tuple[int, Counter[str]]:
    """Peak bytes of a crawl of these hosts, and its requests."""
    directory.mkdir()
    with web(robots) as (site, asked):
        (directory / "hosts").write_text("".join(f"127.0.0.1 h{n}.test\n" for n in range(hosts)))
        (directory / "seeds").write_text(
            "".join(f"http://h{n}.test:{site.port}/{path}\n" for n in range(hosts) for path in ("closed", "open"))
        )
        how = (
            "--hosts",
            directory / "hosts",
            "--delay",
            "0.05",
            "--delay-factor",
            "0",
            "--progress",
            "none",
            "--no-sitemaps",
        )
        done = subprocess.run(
            [sys.executable, "-c", RUN, "crawl", f"@{directory / 'seeds'}", "-o", directory / "out", *map(str, how)],
            capture_output=True,
            text=True,
            cwd=crawling.ROOT,
            env=crawling.environment(),
            timeout=seconds,
            check=False,
        )
    assert 0 == done.returncode, done.stderr
    return 1024 * int(done.stderr.rpartition("peak ")[2]), asked


def compared(directory: Path, hosts: int, robots: object, seconds: float) -> None:
    before, _ = crawled(directory / "plain", hosts, plain, seconds)
    after, asked = crawled(directory / "bombs", hosts, robots, seconds)
    print(f"{hosts} hosts: {before >> 20} MB with plain robots.txt files, {after >> 20} MB with bombs")
    assert {"/robots.txt": hosts, "/open": hosts} == asked
    assert after - before < ALLOWED_BYTES


LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")


@LINUX
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("robots", "hosts"), [(repeated, 60), (distinct, 40)])
def test_robots_bombs_of_many_hosts_need_bounded_memory_and_are_obeyed(
    tmp_path: Path, robots: object, hosts: int
) -> None:
    """Ten megabytes for each host before."""
    compared(tmp_path, hosts, robots, 140)


@LINUX
@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize(("robots", "hosts"), [(repeated, 1_000), (distinct, 250)])
def test_robots_bombs_of_hundreds_of_hosts_need_no_more(tmp_path: Path, robots: object, hosts: int) -> None:
    """Distinct files beyond the budget are read again for each page, at 0.2 s each: with 250 hosts that is minutes."""
    compared(tmp_path, hosts, robots, 1_700)
