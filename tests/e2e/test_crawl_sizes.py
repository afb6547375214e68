"""Crawls of endless bodies: each is cut at the limit of its type while it arrives, in bounded memory."""

from __future__ import annotations

import os
import random

import pytest

from e2e import bombs, crawling
from e2e.hostile import Connection, served

PIECE = random.Random(1).randbytes(1 << 20)  # bytes that do not shrink
HOSTS = 16
HTML, ZIP = 2_000_000, 64_000_000


async def endless(connection: Connection) -> None:
    """A body without an end at each path, chunked and packed where the path says so; no robots.txt."""
    path = (await connection.request()).split()[1].decode()
    if path == "/robots.txt":
        await connection.send(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        return
    kind = b"application/zip" if "zip" in path else b"text/html"
    await connection.send(b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\n" % kind)
    is_chunked = "chunked" in path
    await connection.send(b"Transfer-Encoding: chunked\r\n\r\n" if is_chunked else b"\r\n")
    piece = PIECE if "zip" in path else b" " * len(PIECE)
    chunk = b"%x\r\n%s\r\n" % (len(piece), piece)
    while True:
        await connection.send(chunk if is_chunked else piece)


def crawled(tmp_path, path: str, hosts: int, *more: str) -> tuple[dict[str, int], int]:
    """Lengths of the bodies of a crawl by URL, as they are archived, and its peak memory."""
    with served(endless) as port:
        (tmp_path / "web").mkdir()
        web = bombs.Web(port, tmp_path / "web", hosts)
        done, peak = bombs.run(*web.arguments(tmp_path / "out", path, *more))
    assert done.returncode in (0, 3), done.stderr
    pages = crawling.pages(tmp_path / "out")
    assert {"truncated"} == {page["outcome"] for page in pages}, pages
    return {page["url"]: page["bytes"] for page in pages}, peak


@pytest.mark.parametrize("path", ["/html", "/html-chunked"])
def test_a_page_without_an_end_sends_no_more_for_the_limit_of_another_type(tmp_path, path):
    sizes, _ = crawled(tmp_path, path, HOSTS, "--truncate", f"application/zip={ZIP}")
    assert HOSTS == len(sizes)
    assert HTML - 1_000 < min(sizes.values()) <= max(sizes.values()) < HTML


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="the highest resident memory is read from /proc")
@pytest.mark.parametrize("path", ["/zip", pytest.param("/zip-chunked", marks=pytest.mark.long)])
def test_large_answers_of_many_hosts_arrive_whole_in_bounded_memory(tmp_path, path):
    """Two gigabytes arrive from all of them at one time."""
    sizes, peak = crawled(tmp_path, path, 2 * HOSTS, "--truncate", f"application/zip={ZIP}")
    assert 2 * HOSTS == len(sizes)
    assert ZIP - 1_000 < min(sizes.values()) <= max(sizes.values()) <= ZIP
    assert peak < 1_400 << 20, f"{peak >> 20} MB"
