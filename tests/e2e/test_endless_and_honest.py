"""Endless pages, and honest pages that look like them: the first end, and no honest page is lost.

Each kind is a site of its own: a function from a path to the text of its page and the paths that this leads to. A
change of the rules must not lose on one side the gain on the other.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

import outrider
from e2e.hostile import Connection, Script, served
from outrider import Frontier
from outrider.limits import RETURNS_FETCHES_MIN, RETURNS_FETCHES_OF_TRIALS, TRAIN_PAGES_MAX

Leads = tuple[str, list[str]]
"""The text of a page, and the paths that it leads to."""
SYLLABLES: Final = ("ba", "do", "fi", "ka", "lu", "me", "no", "pa", "ri", "su", "te", "vo")
GREETINGS: Final = ("Good morning", "Good evening", "Hello again", "Welcome back", "Nice to see you")
VISITS = itertools.count()
WORDS: Final = Random(7).sample([a + b + c for a in SYLLABLES for b in SYLLABLES for c in SYLLABLES], 1_500)


def words_of(seed: object, count: int) -> str:
    """A text of its own for each seed."""
    return " ".join(Random(str(seed)).choices(WORDS, k=count))


def greeting() -> str:
    """The words of a site for this visit alone."""
    chance = Random(next(VISITS))
    clock = f"{chance.randrange(24):02}:{chance.randrange(60):02}:{chance.randrange(60):02}"
    return f"{chance.choice(GREETINGS)}, {chance.choice(WORDS)} {chance.choice(WORDS)}! It is {clock}."


def session() -> str:
    chance = Random(next(VISITS))
    return f"{chance.choice(WORDS)}-{chance.choice(WORDS)}-{chance.choice(WORDS)}"


# -- without end -------------------------------------------------------------------------------------------------------


def session_first(path: str, words: int = 30) -> Leads:
    """A session of words before the path: 41 pages."""
    page = path.strip("/").rpartition("/")[2] or "page-0"
    new = session()
    return f"{greeting()} {words_of(page, words)}", [f"/{new}/page-{number}" for number in range(41)]


def session_first_long(path: str) -> Leads:
    return session_first(path, words=300)


def session_last(path: str) -> Leads:
    page = path.strip("/").partition("/")[0] or "page-0"
    new = session()
    return f"{greeting()} {words_of(page, 30)}", [f"/page-{number}/{new}" for number in range(41)]


def session_in_folders(path: str) -> Leads:
    """A session of three folders."""
    page = path.strip("/").rpartition("/")[2] or "page-0"
    new = session().replace("-", "/")
    return f"{greeting()} {words_of(page, 30)}", [f"/{new}/page-{number}" for number in range(41)]


def calendar(path: str) -> Leads:
    """An empty calendar, with the days of the month and a clock."""
    year, month = map(int, path.strip("/").split("/")[-2:]) if path != "/" else (2026, 11)
    days = " ".join(map(str, range(1, 31)))
    before, behind = divmod(year * 12 + month - 2, 12), divmod(year * 12 + month, 12)
    links = [f"/calendar/{one[0]}/{one[1] + 1:02}" for one in (before, behind)]
    return f"Calendar of {year}-{month:02}. {days} No events. It is 12:{next(VISITS) % 60:02}.", links


def days(path: str) -> Leads:
    number = int(path.rpartition("/")[2] or 0)
    return "No events on this day.", [f"/day/2026-11-27/{number + more}" for more in (1, 7, 30)]


def filters(path: str) -> Leads:
    chance = Random(path)
    links = [f"/shop?a={chance.randrange(99)}&b={chance.randrange(99)}&c={chance.randrange(99)}" for _ in range(9)]
    return "Thirty things for sale. 30 of 30 are shown.", links


ENDLESS: Final[dict[str, tuple[Callable[[str], Leads], int]]] = {
    # The new shapes of a host have a trial each; its first pages are new, and those of the first sessions.
    **dict.fromkeys(["session-first", "session-long", "session-last", "session-folders"], (session_first, 0)),
    "session-long": (session_first_long, 0),
    "session-last": (session_last, 0),
    "session-folders": (session_in_folders, 0),
    "calendar": (calendar, 2),
    "days": (days, 2),
    "filters": (filters, 2),
}
"""Each with how many shapes it has; 0 where it makes new shapes without end."""


# -- honest ------------------------------------------------------------------------------------------------------------

PAGES: Final = 160


def listed(kind: str, page: Callable[[int], tuple[str, str]]) -> Callable[[str], Leads]:
    """A site of a front page and `PAGES` pages, each of which leads to two more. page: path and text by number."""
    pages = {page(number)[0]: number for number in range(PAGES)}
    assert len(pages) == PAGES, kind

    def site(path: str) -> Leads:
        number = pages.get(path, -1)
        onward = [page(more)[0] for more in (2 * number + 2, 2 * number + 3) if more < PAGES]
        return (page(number)[1] if number >= 0 else f"All about {kind}."), onward

    return site


def figures(number: int, count: int) -> list[int]:
    chance = Random(number)
    return [chance.randrange(1, 40) for _ in range(count)]


def month_of(number: int) -> str:
    return f"{2010 + number // 12}/{number % 12 + 1:02}"


NAMES: Final = [f"{WORDS[number]}" for number in range(PAGES)]
FOOT: Final = words_of("foot", 120)
HONEST: Final = {
    "weather": lambda n: (
        f"/weather/{month_of(n)}/",
        f"Weather of {month_of(n)}. Highest {figures(n, 1)[0]} degrees, {figures(n, 9)[3]} of rain, {n * 7} of sun.",
    ),
    "tables": lambda n: (
        f"/tables/{month_of(n)}/",
        "Day and degrees. " + " ".join(f"{day} {degrees}" for day, degrees in enumerate(figures(n, 30), 1)),
    ),
    "rates": lambda n: (f"/rates?from=euro&to={NAMES[n]}&view=table", f"One euro is {1 + n / 97:.4f} of these."),
    "prices": lambda n: (f"/item/{n * 7919 + 2**33:x}", f"Thing for sale. Price {n * 3 + 9}.90 each. {FOOT}"),
    "towns": lambda n: (f"/towns/{NAMES[n]}/figures", f"The town has {n * 411 + 1_000} people. {FOOT}"),
    "timetables": lambda n: (
        f"/stops/{NAMES[n]}/timetable",
        "Buses leave at " + " ".join(f"{hour:02}:{minute:02}" for hour, minute in enumerate(figures(n, 20), 4)),
    ),
    "scores": lambda n: (
        f"/scores/{month_of(n)}/{n % 28 + 1}",
        f"Home {figures(n, 2)[0]} Guests {figures(n, 9)[7]} of {n}",
    ),
    "trees": lambda n: (f"/trees/{NAMES[n]}/leaf", words_of(("leaf", n), 40)),
    "people": lambda n: (f"/people/{NAMES[n]}", f"{NAMES[n]} {words_of(n, 3)} works here. {FOOT[:200]}"),
    "categories": lambda n: (f"/category/{2030 + n}", f"Category of {words_of(n, 30)}"),
}


def answering(sites: dict[str, Callable[[str], Leads]]) -> Script:
    async def script(connection: Connection) -> None:
        while True:
            told = (await connection.request()).decode()
            path = told.split(" ")[1]
            host = next(line[5:].strip() for line in told.split("\r\n") if line.lower().startswith("host:"))
            site = sites[host.partition(".")[0]]
            text, links = site(path) if path != "/robots.txt" else ("", [])
            body = f"<title>A page</title><p>{text}</p>" + "".join(f"<a href='{link}'>go on</a> " for link in links)
            status = "404 Not Found" if path == "/robots.txt" else "200 OK"
            head = f"HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\n\r\n"
            await connection.send(f"{head}{body}".encode())

    return script


def crawled(folder: Path, sites: dict[str, Callable[[str], Leads]], **options: Any) -> dict[str, set[str]]:
    """Crawls these sites; the paths of each that were fetched."""
    (folder / "hosts").write_text("".join(f"127.0.0.1 {name}.test\n" for name in sites))
    fast = {"hosts": str(folder / "hosts"), "delay": 0, "delay_factor": 0, "sitemaps": False, "warc": False}
    with served(answering(sites)) as port:
        seeds = [f"http://{name}.test:{port}/" for name in sites]
        result = outrider.crawl(seeds, output=str(folder / "out"), probe_pages=0, **fast, **options)
    assert result.exit_code in (0, 3)  # a limit ends what has no end
    found: dict[str, set[str]] = {name: set() for name in sites}
    for line in map(json.loads, (folder / "out" / "pages.jsonl").read_text().splitlines()):
        parts = urlsplit(line["url"])
        found[str(parts.hostname).partition(".")[0]].add(parts._replace(scheme="", netloc="").geturl())
    return found


HELD: Final = TRAIN_PAGES_MAX + 16
"""Leases that a crawler has when the bound is reached."""


def test_endless_sites_end(tmp_path: Path) -> None:
    found = crawled(tmp_path, {name: site for name, (site, _) in ENDLESS.items()}, max_pages=9_000)
    counts = Counter({name: len(paths) for name, paths in found.items()})
    most = {
        name: shapes * (RETURNS_FETCHES_MIN + HELD) if shapes else RETURNS_FETCHES_OF_TRIALS + 223 + HELD
        for name, (_, shapes) in ENDLESS.items()
    }
    assert [] == [(name, counts[name], most[name]) for name in ENDLESS if counts[name] > most[name]]


def test_honest_sites_are_whole(tmp_path: Path) -> None:
    sites = {name: listed(name, page) for name, page in HONEST.items()}
    found = crawled(tmp_path, sites)
    assert dict.fromkeys(HONEST, PAGES + 1) == {name: len(paths) for name, paths in found.items()}
    with Frontier.look(tmp_path / "out" / "frontier") as frontier:
        assert [] == [row.url for row in frontier.urls(state="parked")]


@pytest.mark.parametrize("name", [name for name in ENDLESS if name.startswith("session")])
def test_the_honest_pages_of_a_site_with_sessions_are_fetched(tmp_path: Path, name: str) -> None:
    """Fifty-nine of them, each of which leads to the next: the last is found when the sessions are many."""
    endless, _ = ENDLESS[name]
    honest = [f"/{'notes' if number % 2 else 'letters'}/{NAMES[number]}" for number in range(59)]

    def site(path: str) -> Leads:
        if path in honest:
            number = honest.index(path)
            return words_of(path, 40), honest[number + 1 : number + 2]
        text, links = endless(path)
        return text, [*links, honest[0]]

    found = crawled(tmp_path, {"both": site}, max_pages=3_000)["both"]
    assert [] == sorted(set(honest) - found)
    # Each honest page is new content, until its shape has a record of its own. How early the session is recognised is
    # chance: 13 crawls had 709 to 883 pages. Without an end it would be 3,000.
    assert len(found) <= RETURNS_FETCHES_OF_TRIALS + 400 + HELD + len(honest)
