"""Sites and domains that answer any name, crawled on loopback: each crawl continues, and no page of theirs is lost."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

import outrider
from e2e import crawling
from e2e.hostile import Connection, served
from e2e.name_server import Stub, served_beside
from outrider import Frontier
from outrider.limits import PROBE_NAME_LETTERS, RETURNS_HOSTS_MIN

HOSTS_MIN: Final = 8
CONCURRENCY: Final = 8
GOOD: Final = 30


class Zone(dict[str, list[tuple[str, int]]]):
    """The names of three domains, of which one answers for any name."""

    def get(self, name: str, default: object = None) -> object:  # type: ignore[override]
        known = name == "hub.test" or name.endswith(".wild.test") or name in {f"h{n}.good.test" for n in range(GOOD)}
        return [("127.0.0.1", 60)] if known else default


def body_of(host: str, port: int) -> str:
    """Each host under wild.test has the same page and leads to four hosts that no page has named."""
    if host == "hub.test":
        names = [f"h{number}.good.test" for number in range(GOOD)] + ["first.wild.test", "gone.good.test"]
    elif host.endswith(".wild.test"):
        drawn = hashlib.sha1(host.encode(), usedforsecurity=False).hexdigest()
        names = [f"x{drawn[place : place + 8]}.wild.test" for place in range(0, 32, 8)]
    else:
        names = []
    links = "".join(f"<a href=http://{name}:{port}/>on</a>" for name in names)
    return f"<title>Welcome</title><p>{'Welcome' if host.endswith('.wild.test') else host}</p>{links}"


async def _script(connection: Connection) -> None:
    while True:
        head = (await connection.request()).decode()
        (host,) = [line[5:].strip() for line in head.split("\r\n") if line.lower().startswith("host:")]
        name, _, port = host.partition(":")
        missing = head.split(" ")[1] != "/"
        content = b"" if missing else body_of(name, int(port)).encode()
        answer = f"HTTP/1.1 {'404 Not Found' if missing else '200 OK'}\r\nContent-Type: text/html\r\n"
        await connection.send(f"{answer}Content-Length: {len(content)}\r\n\r\n".encode() + content)


def test_a_domain_that_answers_any_name_ends_and_all_other_hosts_are_fetched(tmp_path: Path) -> None:
    output = tmp_path / "out"
    with served(_script) as port, served_beside(Stub(Zone())) as server:
        result = outrider.crawl(
            [f"http://hub.test:{port}/"],
            output=str(output),
            scope="any",
            resolver=[server],
            allow_address=["127.0.0.0/8"],
            contact="a@b.test",
            delay=0,
            delay_factor=0,
            concurrency=CONCURRENCY,
            probe_hosts=HOSTS_MIN,
            warc=False,
        )
    assert (0, 0) == (result.exit_code, result.statistics["urls"]["queued"])
    lines = [json.loads(line) for line in (output / "pages.jsonl").read_text().splitlines()]
    fetched = {str(urlsplit(line["url"]).hostname) for line in lines if line["outcome"] != "error"}
    assert {"hub.test", *(f"h{number}.good.test" for number in range(GOOD))} <= fetched
    wild = {name for name in fetched if name.endswith(".wild.test")}
    # Hosts before the answer to the probe, 48 of one budget, five until the mean of its names falls, and open leases.
    assert HOSTS_MIN <= len(wild) <= HOSTS_MIN + RETURNS_HOSTS_MIN + 5 + 4 * CONCURRENCY
    requests = [json.loads(line) for line in (output / "politeness.jsonl").read_text().splitlines()]
    probes = [urlsplit(line["url"]).hostname or "" for line in requests if line["kind"] == "probe"]
    assert ["wild.test"] == [name.partition(".")[2] for name in probes if name.endswith(".wild.test")]
    assert len(probes) <= 2
    with Frontier.look(output / "frontier") as frontier:
        assert {"trap_hosts"} == {row.error for row in frontier.urls(state="parked")}


# -- domains whose named hosts alone have addresses ------------------------------------------------------------------

NAMED_ON_A_PAGE: Final = 200
BLOGS: Final = 150


def hosts_of(host: str) -> list[str]:
    """Returns the hosts that a page of a host names: a blog names ten, a host of the trap 200 that no page has
    named."""
    if host == "hub.test":
        return ["first.trap.test", *(f"b{number}.blog.test" for number in range(BLOGS))]
    if host.endswith(".blog.test"):
        first = int(host[1:].partition(".")[0])
        return [f"b{(first + number) % BLOGS}.blog.test" for number in range(1, 21)]
    drawn = hashlib.sha1(host.encode(), usedforsecurity=False).hexdigest()
    return [f"x{drawn[:12]}{number}.trap.test" for number in range(NAMED_ON_A_PAGE)]


class Named(Zone):
    """Every host that a page named has an address, and no other. asked: the number of look-ups of each domain."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = {"hub.test"}
        self.asked = {"trap.test": 0, "blog.test": 0, "hub.test": 0, "test": 0}

    def get(self, name: str, default: object = None) -> object:  # type: ignore[override]
        domain = name if name == "hub.test" else name.partition(".")[2]
        self.asked[domain if domain in self.asked else "test"] += 1
        return [("127.0.0.1", 60)] if name in self.names else default


def test_named_hosts_that_all_say_the_same_end_and_blogs_with_words_of_their_own_are_all_fetched(
    tmp_path: Path,
) -> None:
    zone, asked = Named(), {"trap.test": 0, "blog.test": 0, "hub.test": 0, "test": 0}

    async def script(connection: Connection) -> None:
        while True:
            head = (await connection.request()).decode()
            (host,) = [line[5:].strip() for line in head.split("\r\n") if line.lower().startswith("host:")]
            name, _, port = host.partition(":")
            asked[name if name == "hub.test" else name.partition(".")[2]] += 1
            missing = head.split(" ")[1] != "/"
            named = hosts_of(name)
            zone.names.update(named)
            says = f"All about {name}" if name.endswith(".blog.test") else "Welcome"
            links = "".join(f"<a href=http://{other}:{port}/>{other}</a> " for other in named)
            content = b"" if missing else f"<title>Home</title><p>{says}</p>{links}".encode()
            answer = f"HTTP/1.1 {'404 Not Found' if missing else '200 OK'}\r\nContent-Type: text/html\r\n"
            await connection.send(f"{answer}Content-Length: {len(content)}\r\n\r\n".encode() + content)

    output = tmp_path / "out"
    with served(script) as port, served_beside(Stub(zone)) as server:
        result = outrider.crawl(
            [f"http://hub.test:{port}/"],
            output=str(output),
            scope="any",
            resolver=[server],
            allow_address=["127.0.0.0/8"],
            contact="a@b.test",
            delay=0,
            delay_factor=0,
            concurrency=64,
            warc=False,
        )
    assert (0, 0) == (result.exit_code, result.statistics["urls"]["queued"])
    lines = [json.loads(line) for line in (output / "pages.jsonl").read_text().splitlines()]
    fetched = {str(urlsplit(line["url"]).hostname) for line in lines if line["outcome"] == "done"}
    assert {f"b{number}.blog.test" for number in range(BLOGS)} <= fetched
    with Frontier.look(output / "frontier") as frontier:
        parked = list(frontier.urls(state="parked"))
        assert {"trap_hosts"} == {row.error for row in parked}
        assert not [row.url for row in parked if ".trap.test" not in row.url]
    # The trials, and one host in many of those that are parked; two requests and two look-ups (A and AAAA) of each.
    assert RETURNS_HOSTS_MIN <= asked["trap.test"] // 2 <= RETURNS_HOSTS_MIN + 64 + 16
    assert zone.asked["trap.test"] // 2 <= 2 * (RETURNS_HOSTS_MIN + 64 + 16)


# -- sites -------------------------------------------------------------------------------------------------------------

PAGES: Final = 40
BY_CHANCE: Final = re.compile(rf"/[a-z]{{{PROBE_NAME_LETTERS}}}(?:/|\.html)?$")
TEMPLATE: Final = " ".join(f"word{number % 71} and{number % 13}" for number in range(200))


def honest(path: str) -> str | None:
    """Pages of their own, each of which names one that is not there; None for any other path."""
    found = re.fullmatch(r"/(?:p/([0-9]+))?", path)
    number = int(found[1] or 0) if found else PAGES
    if number >= PAGES:
        return None
    onward = [f"/p/{more}" for more in (2 * number + 1, 2 * number + 2) if more < PAGES]
    links = "".join(f"<a href={link}>x</a>" for link in [*onward, f"/lost/{number}"])
    return f"<title>Page {number}</title><p>All about {number}</p>{links}"


def soft(path: str) -> str:
    """Honest pages; any other path gets a page that says "not found" in words, and leads to more of its kind."""
    gone = f"<title>Oops</title><h1>Page not found</h1><p>{path} is not here</p><a href={path}/more>more</a>"
    return honest(path) or gone


def one_body(path: str) -> str:
    """One page for all paths, as of a program that runs in the browser."""
    return "<title>App</title><p>Loading</p>" + "".join(f"<a href=/p/{number}>x</a>" for number in range(PAGES))


def one_body_of_nothing(path: str) -> str:
    return one_body(path).replace("Loading", "Page not found")


def template(path: str) -> str:
    """A front page, and pages that differ by a picture."""
    if path == "/":
        return one_body(path).replace("Loading", "All pictures")
    return f"<title>Picture</title><p>{TEMPLATE}</p><img src={path}.png><a href=/>back</a>"


Pages = Callable[[str], str]


def answering(pages: Pages, asked: list[str], hangs: Callable[[str], bool] = lambda _: False) -> Any:
    """The script of a site with these pages. hangs: whether a path is left without an answer."""

    async def script(connection: Connection) -> None:
        while True:
            path = (await connection.request()).split(b" ")[1].decode()
            asked.append(path)
            if hangs(path):
                await connection.hang()
            missing = path == "/robots.txt"
            content = b"" if missing else pages(path).encode()
            head = f"HTTP/1.1 {'404 Not Found' if missing else '200 OK'}\r\nContent-Type: text/html\r\n"
            await connection.send(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)

    return script


FAST: Final = ("--delay", "0", "--delay-factor", "0", "--concurrency", "4", "--no-sitemaps", "--progress", "none")


def outcomes(output: Path) -> dict[str, tuple[str, str | None]]:
    """Outcome and error of each page, by path."""
    lines = map(json.loads, (output / "pages.jsonl").read_text().splitlines())
    return {urlsplit(line["url"]).path: (line["outcome"], line.get("error")) for line in lines}


def crawled(pages: Pages, output: Path) -> tuple[dict[str, tuple[str, str | None]], list[str]]:
    """Returns outcome and error of each page, and the requested random paths."""
    asked: list[str] = []
    with served(answering(pages, asked)) as port:
        run = crawling.outrider("crawl", f"http://127.0.0.1:{port}/", "-o", output, *FAST)
    assert 0 == run.returncode, run.stderr
    return outcomes(output), [path for path in asked if BY_CHANCE.search(path)]


HONEST: Final = {"/", *(f"/p/{number}" for number in range(1, PAGES))}


def test_a_site_of_soft_404s_ends_with_all_its_honest_pages_done(tmp_path: Path) -> None:
    told, probes = crawled(soft, tmp_path / "out")
    assert 2 == len(probes) == len(set(probes))
    assert HONEST == HONEST & {path for path, outcome in told.items() if outcome == ("done", None)}
    gone = {path for path, outcome in told.items() if outcome == ("gone", "soft_404")}
    assert len(gone) >= PAGES // 2
    assert not HONEST & gone
    assert not {f"{path}/more" for path in gone} & set(told)


@pytest.mark.parametrize("pages", [one_body, one_body_of_nothing, template])
def test_a_site_whose_pages_are_alike_loses_no_page(tmp_path: Path, pages: Pages) -> None:
    told, probes = crawled(pages, tmp_path / "out")
    assert 1 == len(probes)
    assert {*HONEST, "/p/0"} == set(told)
    assert {("done", None), ("duplicate", None)} >= set(told.values())


def test_a_crawl_that_is_killed_at_a_probe_requests_the_same_path_again(tmp_path: Path) -> None:
    output, asked = tmp_path / "out", list[str]()
    reached, dead = threading.Event(), threading.Event()

    def hangs(path: str) -> bool:
        if not BY_CHANCE.search(path):
            return False
        reached.set()
        return not dead.is_set()

    with served(answering(soft, asked, hangs)) as port:
        crawl = crawling.started("crawl", f"http://127.0.0.1:{port}/", "-o", output, *FAST)
        assert reached.wait(60)
        crawl.kill()
        crawl.wait(60)
        dead.set()
        run = crawling.outrider("resume", output)
    assert 0 == run.returncode, run.stderr
    probes = [path for path in asked if BY_CHANCE.search(path)]
    assert [probes[0], probes[0]] == probes[:2]
    assert 2 == len(set(probes[1:])) == len(probes[1:])
    told = outcomes(output)
    assert HONEST == HONEST & {path for path, outcome in told.items() if outcome == ("done", None)}
    assert ("gone", "soft_404") in told.values()
    with Frontier.look(output / "frontier") as frontier:
        assert frontier.verify().ok
