"""A site under a second name: the copy is parked when its pages bring nothing new, the original is fetched whole."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

import outrider
from e2e.hostile import Connection, Script, served
from outrider import Frontier
from outrider.limits import RETURNS_FETCHES_MIN, TRAIN_PAGES_MAX

PAGES = 150
ORIGINAL, MIRROR = "original.test", "mirror.test"


def body(number: int) -> str:
    """The page of this number under either name: it leads to two other pages."""
    onward = "".join(f"<a href=/page-{more}.html>page</a>" for more in (2 * number + 1, 2 * number + 2) if more < PAGES)
    return text_of(number) + onward


def text_of(number: int) -> str:
    chance = Random(number)
    words = " ".join("".join(chance.choices("aeioulnrst", k=6)) for _ in range(400))
    return f"<title>{words[:20]}</title><p>{words}</p>"


def number_of(path: str) -> int:
    return int(path.removeprefix("/page-").removesuffix(".html")) if path != "/" else 0


LINKED: Final = {
    "a tree": lambda number, pages: [more for more in (2 * number + 1, 2 * number + 2) if more < pages],
    "a list": lambda number, pages: range(1, pages) if not number else [],
    "a chain": lambda number, pages: [more for more in (number + 1,) if more < pages],
}
"""Which pages a page leads to."""
COPIED, OWN = 200, 100


def copied_site(links: Callable[[int, int], Iterable[int]]) -> Script:
    """A site, and a copy of its first pages under the name of the mirror."""

    async def script(connection: Connection) -> None:
        while True:
            told = (await connection.request()).decode()
            path = told.split(" ")[1]
            host = next(one[5:].strip() for one in told.split("\r\n") if one.lower().startswith("host:"))
            pages = COPIED if host.startswith(MIRROR) else COPIED + OWN
            found = path == "/" or path.startswith("/page-")
            onward = links(number_of(path), pages) if found else []
            content = text_of(number_of(path)) if found else ""
            content += "".join(f"<a href=/page-{more}.html>page</a>" for more in onward)
            status = "200 OK" if found else "404 Not Found"
            head = f"HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {len(content)}\r\n\r\n"
            await connection.send(f"{head}{content}".encode())

    return script


def answering(line: str, named_from: int) -> Script:
    """Both sites. line: is at the foot of the mirror's pages. named_from: pages from that number on lead to it."""

    async def script(connection: Connection) -> None:
        while True:
            told = (await connection.request()).decode()
            path = told.split(" ")[1]
            host = next(one[5:].strip() for one in told.split("\r\n") if one.lower().startswith("host:"))
            found = path == "/" or path.startswith("/page-")
            content = body(number_of(path)) if found else ""
            if found and number_of(path) >= named_from:
                content += f"<a href=http://{MIRROR}:{host.partition(':')[2]}/>mirror</a>"
            if found and host.startswith(MIRROR):
                content += line
            status = "200 OK" if found else "404 Not Found"
            head = f"HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {len(content)}\r\n\r\n"
            await connection.send(f"{head}{content}".encode())

    return script


def crawled(
    runs: list[list[str]],
    folder: Path,
    *,
    line: str = "",
    named_from: int = PAGES,
    script: Script | None = None,
    **options: Any,
) -> dict[str, dict[int, str]]:
    """Crawls these hosts, run for run; of each the outcome by page."""
    (folder / "hosts").write_text(f"127.0.0.1 {ORIGINAL}\n127.0.0.1 {MIRROR}\n")
    output = folder / "out"
    fast = {"hosts": str(folder / "hosts"), "delay": 0, "delay_factor": 0, "sitemaps": False}
    with served(script or answering(line, named_from)) as port:
        for names in runs:
            outrider.crawl([f"http://{name}:{port}/" for name in names], output=str(output), **fast, **options)
    found: dict[str, dict[int, str]] = {ORIGINAL: {}, MIRROR: {}}
    for line in map(json.loads, (output / "pages.jsonl").read_text().splitlines()):
        parts = urlsplit(line["url"])
        found[parts.hostname or ""][number_of(parts.path)] = line["outcome"]
    return found


def test_a_mirror_that_is_met_later_is_parked_and_the_original_is_whole(tmp_path: Path) -> None:
    found = crawled([[ORIGINAL], [MIRROR]], tmp_path)
    assert dict.fromkeys(range(PAGES), "done") == found[ORIGINAL]
    assert {"duplicate"} == set(found[MIRROR].values())
    # A train of pages is under way when the last of them is counted: this site needs no gap.
    assert RETURNS_FETCHES_MIN <= len(found[MIRROR]) <= RETURNS_FETCHES_MIN + TRAIN_PAGES_MAX
    with Frontier.look(tmp_path / "out" / "frontier") as frontier:
        parked = list(frontier.urls(state="parked"))
        assert {(MIRROR, "trap")} == {(urlsplit(row.url).hostname, row.reason) for row in parked}
        assert {"possible_mirror"} == {row.error for row in parked}


@pytest.mark.parametrize("links", list(LINKED))
def test_an_original_that_is_met_after_its_copy_is_fetched_whole(tmp_path: Path, links: str) -> None:
    """Its own pages are found after all those that the copy has."""
    found = crawled([[MIRROR], [ORIGINAL]], tmp_path, script=copied_site(LINKED[links]))
    assert (set(range(COPIED)), set(range(COPIED + OWN))) == (set(found[MIRROR]), set(found[ORIGINAL]))
    assert dict.fromkeys(range(COPIED, COPIED + OWN), "done").items() <= found[ORIGINAL].items()
    with Frontier.look(tmp_path / "out" / "frontier") as frontier:
        assert [] == [row.url for row in frontier.urls(state="parked")]


@pytest.mark.parametrize("line", ["", "<p>mirrored"], ids=["the same bytes", "a line more"])
def test_a_mirror_that_a_site_names_itself_is_parked_and_the_site_is_whole(tmp_path: Path, line: str) -> None:
    found = crawled([[ORIGINAL]], tmp_path, line=line, named_from=PAGES // 2, scope="any")
    assert dict.fromkeys(range(PAGES), "done") == found[ORIGINAL]
    assert 0 < len(found[MIRROR]) < PAGES
    with Frontier.look(tmp_path / "out" / "frontier") as frontier:
        assert {MIRROR} == {urlsplit(row.url).hostname for row in frontier.urls(state="parked")}


def test_one_of_two_names_that_are_crawled_together_is_fetched_whole(tmp_path: Path) -> None:
    found = crawled([[ORIGINAL, MIRROR]], tmp_path)
    whole = dict.fromkeys(range(PAGES), "done")
    assert whole in (found[ORIGINAL], found[MIRROR])
