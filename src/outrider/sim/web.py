"""A small web on loopback, made from a seed: `DemoWeb` has the answers of each host, `DemoServer` serves them over
HTTP.

The model is pure: the same seed makes the same hosts, pages, links and misbehaviour, and it contains the URLs that a
complete polite crawl fetches. The server gives every host name its own loopback address on one shared port and writes
one line of JSON per request, by which the visitor can be judged.

    python -m outrider.sim.web --directory DIR      serves until standard input ends; prints one line when it is ready
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import gzip
import html
import json
import posixpath
import re
import signal
import socket
import ssl
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from http import HTTPStatus
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, NamedTuple, Protocol, TextIO
from urllib.parse import quote

SUFFIX = "demo.test"  # .test can never be a real name (RFC 6761)
LARGE_BYTES = 2_400_000  # beyond what a page may have (limits.BODY_BYTES_MAX), so that the cut is seen
SLOW_SECONDS = 0.3
SLOW_PAGES = 6  # at ten times 0.3 s of rest they need 20 s
PATIENT_PAGES = 14  # one second each
CRAWL_DELAY_SECONDS = 1
BUSY_SECONDS = 3.0  # from the first request on; shorter than the first retry, so that each URL is refused once at most
RETRY_AFTER_SECONDS = 2
LAST_MODIFIED = "Thu, 01 Jan 2026 00:00:00 GMT"
REQUEST_BYTES_MAX = 32_768  # request line and headers; browsers and crawlers send less
CONNECTION_IDLE_SECONDS_MAX = 30.0
PIECE_BYTES = 65_536  # bytes of a body handed to the kernel at once


class HostRole(StrEnum):
    """The traits of a host."""

    PLAIN = "plain"
    SLOW = "slow"  # every page needs 0.3 s
    CLOSED = "closed"  # robots.txt closes a folder that pages link to
    PATIENT = "patient"  # Crawl-delay: 1
    BUSY = "busy"  # 503 with Retry-After: 2 at first
    ENDLESS = "endless"  # a calendar without beginning or end
    MAPPED = "mapped"  # has a sitemap, and pages that only it names
    MOVED = "moved"  # its front page redirects to the next host
    TARGET = "target"  # no seed names it: only the moved host leads to it
    PACKED = "packed"  # answers gzip to clients that accept it
    LETTERS = "letters"  # pages that are not UTF-8
    COPIES = "copies"  # exact and near duplicates
    WINDING = "winding"  # chains of redirects, a loop, a meta refresh
    LARGE = "large"  # a page beyond the size limit
    DEAD = "dead"  # links to what is not there


ROLES = (
    ("gazette", HostRole.PLAIN),
    ("slow-ferry", HostRole.SLOW),
    ("private-garden", HostRole.CLOSED),
    ("patient-clock", HostRole.PATIENT),
    ("busy-bakery", HostRole.BUSY),
    ("endless-calendar", HostRole.ENDLESS),
    ("mapped-railway", HostRole.MAPPED),
    ("moved-museum", HostRole.MOVED),
    ("new-museum", HostRole.TARGET),
    ("packed-lunch", HostRole.PACKED),
    ("foreign-letters", HostRole.LETTERS),
    ("copying-press", HostRole.COPIES),
    ("winding-road", HostRole.WINDING),
    ("heavy-archive", HostRole.LARGE),
    ("broken-bridge", HostRole.DEAD),
    ("harbour", HostRole.PLAIN),
    ("orchard", HostRole.PLAIN),
    ("observatory", HostRole.PLAIN),
    ("weavers", HostRole.PLAIN),
    ("beekeepers", HostRole.PLAIN),
)


@dataclass(frozen=True, slots=True)
class Topic:
    """The words of one field, from which sentences are made."""

    title: str
    nouns: tuple[str, ...]
    verbs: tuple[str, ...]  # third person, with an object
    adjectives: tuple[str, ...]
    places: tuple[str, ...]


def _topic(title: str, nouns: str, verbs: str, adjectives: str, places: str) -> Topic:
    return Topic(
        title,
        tuple(nouns.split()),
        tuple(verbs.split()),
        tuple(adjectives.split()),
        tuple(place.strip() for place in places.split(",")),
    )


TOPICS = (
    _topic(
        "Ships and harbours",
        "harbour pilot anchor tide quay lantern schooner rope captain compass buoy sail",
        "steers moors repairs follows signals paints measures guards",
        "salt windward heavy calm northern weathered narrow early",
        "along the pier, beyond the breakwater, under the lighthouse, at low water, in the chart room",
    ),
    _topic(
        "Orchards and gardens",
        "orchard apple gardener ladder hedge basket graft blossom wasp spade pear cellar",
        "prunes waters gathers plants shades ripens counts covers",
        "ripe wild sheltered green crooked patient sweet old",
        "behind the wall, near the well, between the rows, in late October, beside the compost",
    ),
    _topic(
        "Stars and instruments",
        "telescope comet observer mirror dome orbit notebook eclipse lens meridian star dial",
        "records tracks polishes predicts aligns compares watches turns",
        "faint distant silver periodic clear winter precise silent",
        "before dawn, above the city, on the hill, through thin cloud, in the long exposure",
    ),
    _topic(
        "Bread and ovens",
        "baker loaf oven flour crust apprentice yeast basket kitchen rye dough shelf",
        "kneads weighs folds heats shares slices sells bakes",
        "warm dark floury coarse early golden sour generous",
        "before sunrise, on Saturdays, at the counter, in a stone oven, down the lane",
    ),
    _topic(
        "Railways and timetables",
        "railway signal engine conductor platform tunnel ticket bridge carriage timetable whistle junction",
        "shunts delays inspects connects carries announces crosses repairs",
        "punctual iron branch electric narrow crowded eastern steep",
        "at the junction, over the viaduct, in second class, past the sidings, on the night service",
    ),
    _topic(
        "Looms and cloth",
        "weaver loom thread shuttle pattern wool dyer ribbon cloth spindle indigo workshop",
        "weaves dyes mends winds copies stretches trades embroiders",
        "fine indigo woollen striped patient worn linen bright",
        "by the window, in the guild hall, across the river, on market day, under the eaves",
    ),
    _topic(
        "Bees and meadows",
        "beekeeper hive meadow swarm honey queen clover smoke frame wax lime heather",
        "tends visits feeds moves marks guards finds fills",
        "quiet golden wild busy southern early dense mild",
        "in the lime avenue, after the rain, on the south slope, near the brook, at midsummer",
    ),
    _topic(
        "Museums and archives",
        "museum archive letter curator cabinet map catalogue portrait ledger coin manuscript gallery",
        "restores catalogues lends displays copies dates protects describes",
        "faded rare regional bound anonymous gilded early incomplete",
        "in the reading room, on the upper floor, behind glass, in box nineteen, since the flood",
    ),
)

SECTIONS = ("notes", "people", "places", "letters")
FILLERS = (
    "That was noted in the margin and forgotten for a generation.",
    "Nobody has found a better way since.",
    "The numbers in the table below are estimates.",
    "Opinions differ, and the sources are silent.",
    "It took three winters to learn this.",
    "A second account tells the story differently.",
)


@dataclass(frozen=True, slots=True)
class Anchor:
    """A link in the model: its target, in any spelling on the page."""

    host: str
    path: str
    nofollow: bool = False
    behind_cut: bool = False  # it is beyond the size limit, where a crawler does not read


@dataclass(frozen=True, slots=True)
class Entry:
    """The resource at one path of one host."""

    host: str
    path: str
    status: int = 200
    links: tuple[Anchor, ...] = ()
    location: Anchor | None = None
    refresh: Anchor | None = None
    base: str = ""  # the <base href> of the page, a path
    charset: str = "utf-8"
    declared: bool = True  # the charset is in Content-Type; else in <meta>
    text_of: str = ""  # the page whose text this one repeats
    altered: int = 0  # the number of words that differ from that text
    large: bool = False
    closed: bool = False  # by robots.txt
    content: str = ""  # the body itself, for an answer that is not a page
    content_type: str = "text/html"


class WebAnswer(NamedTuple):
    """An HTTP answer, and the time that the host needs for it."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    delay_seconds: float


class DemoWeb:
    """A web of `hosts` names and about `pages` pages (the calendar's not counted), the same for the same seed.

    `quirks=False` makes every host plain: no delays, no refusals, no traps; for benches. `suffix` ends each name: with
    "test" each host has a registrable domain of its own. `hosts` is at least 16 with
    quirks, 1 without. `port` and `scheme` are written into links, so they must be those that are served.
    """

    def __init__(
        self,
        seed: int = 1,
        hosts: int = 20,
        pages: int = 600,
        *,
        port: int = 8080,
        quirks: bool = True,
        suffix: str = SUFFIX,
        scheme: str = "http",
    ):
        if hosts < (16 if quirks else 1) or pages < hosts:
            raise ValueError(f"a demo web has at least 16 hosts and a page each, not {hosts} hosts and {pages} pages")
        self.seed, self.pages, self.port, self.quirks, self.scheme = seed, pages, port, quirks, scheme
        named = [*ROLES, *((f"{ROLES[15 + row % 5][0]}-{row // 5 + 2}", HostRole.PLAIN) for row in range(hosts))][
            :hosts
        ]
        self.roles: dict[str, HostRole] = {
            f"{name}.{suffix}": role if quirks else HostRole.PLAIN for name, role in named
        }  # in order
        self.hosts: tuple[str, ...] = tuple(self.roles)
        self._topics = {host: TOPICS[row % len(TOPICS)] for row, host in enumerate(self.hosts)}
        self._entries: dict[str, dict[str, Entry]] = {host: {} for host in self.hosts}
        self._grow()
        self._page = functools.lru_cache(maxsize=4_096)(self._render)

    def __repr__(self) -> str:
        count = sum(map(len, self._entries.values()))
        return f"<DemoWeb seed {self.seed}, {len(self.hosts)} hosts, {count} addresses on port {self.port}>"

    # ── what is known of it ─────────────────────────────────────────────────────────────────────────────────────────

    def url(self, host: str, path: str = "/") -> str:
        """The canonical URL of a path."""
        return f"{self.scheme}://{host}{f':{self.port}' if self.port != 80 else ''}{path}"

    def seeds(self) -> tuple[str, ...]:
        """The front page of every host but the one that only a redirect leads to."""
        return tuple(self.url(host) for host, role in self.roles.items() if role is not HostRole.TARGET)

    def host_of(self, role: HostRole) -> str:
        """The first host with this role. Raises LookupError when no host has it."""
        for host, its in self.roles.items():
            if its is role:
                return host
        raise LookupError(f"no host of this web is {role}")

    def crawl_delay(self, host: str) -> float | None:
        """The Crawl-delay in the host's robots.txt, in seconds."""
        return float(CRAWL_DELAY_SECONDS) if self.roles[host] is HostRole.PATIENT else None

    def must_fetch(self) -> frozenset[str]:
        """The URLs that are answered with 200 in a complete polite crawl from the seeds.

        It stays on the hosts of the seeds and of their redirects, obeys robots.txt, ignores rel=nofollow links
        and those beyond the size limit, and reads no sitemap. The months and days of the calendar are not in the
        set: which of them are fetched depends on the limit and on the order.
        """
        return frozenset(self.url(entry.host, entry.path) for entry in self._reached() if entry.status == 200)

    def may_fetch(self) -> frozenset[str]:
        """All URLs that such a crawl requests: `must_fetch`, the redirects and missing pages. Not the calendar."""
        return frozenset(self.url(entry.host, entry.path) for entry in self._reached())

    def out_of_reach(self) -> frozenset[str]:
        """Pages that such a crawl must not request: forbidden, after nofollow or the cut, only in a sitemap."""
        every = {
            self.url(entry.host, entry.path)
            for entries in self._entries.values()
            for entry in entries.values()
            if entry.status == 200 and entry.content_type == "text/html"
        }
        return frozenset(every - self.must_fetch())

    def mapped(self) -> frozenset[str]:
        """The sitemaps, and the pages that they name: a crawl that reads sitemaps fetches these too."""
        hosts = [host for host, role in self.roles.items() if role is HostRole.MAPPED]
        return frozenset(
            self.url(host, entry.path)
            for host in hosts
            for entry in self._entries[host].values()
            if entry.status == 200 and (entry.content_type == "text/html" or entry.path == "/sitemap.xml")
        )

    def endless(self, url: str) -> bool:
        """Whether a URL is a month or day of the calendar."""
        return self.quirks and url.startswith(self.url(self.host_of(HostRole.ENDLESS), "/calendar/"))

    def _reached(self) -> list[Entry]:
        start = [
            Anchor(host, "/")
            for host, role in self.roles.items()
            if role is not HostRole.TARGET  # in scope because a seed redirects to it
        ]
        known = {(anchor.host, anchor.path) for anchor in start}
        waiting, reached = [self._entry(anchor.host, anchor.path) for anchor in start], []
        while waiting:
            entry = waiting.pop()
            if entry.closed or self.endless(self.url(entry.host, entry.path)):
                continue
            reached.append(entry)
            onward = [anchor for anchor in entry.links if not anchor.nofollow and not anchor.behind_cut]
            onward.extend(anchor for anchor in (entry.location, entry.refresh) if anchor)
            for anchor in onward:
                if (anchor.host, anchor.path) not in known:
                    known.add((anchor.host, anchor.path))
                    waiting.append(self._entry(anchor.host, anchor.path))
        return reached

    def closed(self, host: str, path: str) -> bool:
        """Whether robots.txt of the host closes the path to all agents."""
        return self._entry(host, path).closed

    def faulty(self, host: str) -> bool:
        """Whether the host's robots.txt is an error: never here."""
        return False

    def machine(self, host: str) -> str:
        """The machine of a host, of which each address is one: every host has its own here."""
        return host

    # ── what it answers ─────────────────────────────────────────────────────────────────────────────────────────────

    def answer(self, host: str, path: str, now: float, *, takes_gzip: bool = False) -> WebAnswer:
        """The host's answer for `path` (query included), `now` seconds after the host's first request."""
        role = self.roles[host]
        delay = SLOW_SECONDS if role is HostRole.SLOW and path != "/robots.txt" else 0.0
        if role is HostRole.BUSY and path != "/robots.txt" and now < BUSY_SECONDS:
            wait = (("Retry-After", str(RETRY_AFTER_SECONDS)), ("Content-Type", "text/plain"))
            return WebAnswer(503, wait, b"The oven is full. Please come back later.\n", delay)
        entry = self._entry(host, path)
        if entry.location:
            target = entry.location
            absolute = target.host != host or entry.path.endswith("1")
            where = self.url(target.host, target.path) if absolute else target.path
            moved = f'<!doctype html><title>Moved</title><p>Moved to <a href="{html.escape(where)}">here</a>.\n'
            return WebAnswer(
                entry.status, (("Location", where), ("Content-Type", "text/html")), moved.encode("ascii"), delay
            )
        kind = entry.content_type + (f"; charset={entry.charset}" if entry.declared else "")
        headers = [("Content-Type", kind)]
        body = self._page(entry)
        if entry.status == 200:
            headers.append(("Last-Modified", LAST_MODIFIED))
        if role is HostRole.PACKED and takes_gzip and entry.status == 200:
            body = gzip.compress(body, compresslevel=6, mtime=0)
            headers += [("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding")]
        return WebAnswer(entry.status, tuple(headers), body, delay)

    def _entry(self, host: str, path: str) -> Entry:
        """The resource at a path, spelled in any way that means the same (RFC 3986 section 6.2.2.2)."""
        path = _plain_path(path)
        found = self._entries.get(host, {}).get(path)
        if found:
            return found
        if self.roles.get(host) is HostRole.ENDLESS and path.startswith("/calendar/"):
            day = self._calendar(host, path)
            if day:
                return day
        closed = self.roles.get(host) is HostRole.CLOSED and path.startswith("/private/")
        return Entry(host, path, status=404, closed=closed)

    # ── how it grows ────────────────────────────────────────────────────────────────────────────────────────────────

    def _grow(self) -> None:
        counts = self._counts()
        trees = {host: self._paths(host, count) for host, count in counts.items()}
        for host in self.hosts:
            if self.roles[host] is HostRole.MOVED:
                target = self.host_of(HostRole.TARGET)
                self._put(Entry(host, "/", status=301, location=Anchor(target, "/")))
                continue
            chance = Random(f"{self.seed} links of {host}")
            paths = trees[host]
            links: dict[str, list[Anchor]] = {path: [] for path in paths}
            for row, path in enumerate(paths):
                links[path].extend(Anchor(host, child) for child in paths[5 * row + 1 : 5 * row + 6])
                links[path].extend(Anchor(host, paths[chance.randrange(len(paths))]) for _ in range(2))
                if chance.random() < 0.4:
                    other = self.hosts[chance.randrange(len(self.hosts))]
                    if trees.get(other):
                        links[path].append(Anchor(other, trees[other][chance.randrange(len(trees[other]))]))
            if host == self.hosts[0]:
                links["/"].extend(
                    Anchor(other, "/")
                    for other in self.hosts[1:]
                    if self.roles[other] is not HostRole.TARGET  # it must enter the scope only by the redirect
                )
            pages = {path: Entry(host, path, links=tuple(links[path])) for path in paths}
            self._entries[host].update(pages)
            self._add_robots(host)
            if self.quirks:
                self._add_quirks(host, paths, chance)

    def _counts(self) -> dict[str, int]:
        """Pages of each host's tree: a few where each is slow, the rest shared evenly."""
        fixed = {HostRole.SLOW: SLOW_PAGES, HostRole.PATIENT: PATIENT_PAGES, HostRole.ENDLESS: 1, HostRole.MOVED: 0}
        counts = {host: fixed[role] for host, role in self.roles.items() if role in fixed}
        extra = 50 if self.quirks else 0  # the pages that the other roles add
        open_hosts = [host for host in self.hosts if host not in counts]
        share, rest = divmod(max(len(open_hosts), self.pages - sum(counts.values()) - extra), len(open_hosts))
        counts.update((host, share + (row < rest)) for row, host in enumerate(open_hosts))
        return counts

    def _paths(self, host: str, count: int) -> list[str]:
        chance = Random(f"{self.seed} paths of {host}")
        topic = self._topics[host]
        paths = ["/"] if count else []
        for row in range(1, count):
            word, what = chance.choice(topic.adjectives), chance.choice(topic.nouns)
            paths.append(f"/{SECTIONS[row % len(SECTIONS)]}/{word}-{what}-{row}.html")
        return paths

    def _put(self, entry: Entry, linked_from: str = "", **how: bool) -> None:
        """Adds an entry, and a link to it on a page of the same host."""
        self._entries[entry.host][entry.path] = entry
        if linked_from:
            self._link(entry.host, linked_from, Anchor(entry.host, entry.path, **how))

    def _link(self, host: str, path: str, anchor: Anchor) -> None:
        page = self._entries[host][path]
        self._entries[host][path] = replace(page, links=(*page.links, anchor))

    def _add_robots(self, host: str) -> None:
        lines = {
            HostRole.CLOSED: (
                "User-agent: *\nDisallow: /private/\nAllow: /private/open-day.html\nDisallow: /*.draft$\n\n"
                "User-agent: some-other-crawler\nDisallow: /\n"
            ),
            HostRole.PATIENT: f"User-agent: *\nCrawl-delay: {CRAWL_DELAY_SECONDS}\nDisallow:\n",
            HostRole.MAPPED: f"User-agent: *\nAllow: /\n\nSitemap: {self.url(host, '/sitemap.xml')}\n",
            HostRole.COPIES: "",
            HostRole.LARGE: "# Everybody is welcome.\n",
        }.get(self.roles[host])
        if lines is not None or self.hosts.index(host) % 5 == 0:  # the others have no rules, which means the same
            text = lines if lines is not None else "User-agent: *\nDisallow:\n"
            self._put(Entry(host, "/robots.txt", content=text, content_type="text/plain"))

    def _add_quirks(self, host: str, paths: list[str], chance: Random) -> None:
        role = self.roles[host]
        if host == self.hosts[0]:
            first = self._entries[host][paths[1]]
            self._entries[host][paths[1]] = replace(first, base="/people/")
            self._put(Entry(host, "/advertisement.html"), paths[0], nofollow=True)
        elif role is HostRole.CLOSED:
            for row in range(6):
                self._put(Entry(host, f"/private/bed-{row}.html", closed=True), paths[row % len(paths)])
            self._put(Entry(host, "/private/open-day.html"), paths[0])
            self._put(Entry(host, "/notes/spring.draft", closed=True), paths[0])
            self._put(Entry(host, "/notes/spring.draft.html"), paths[0])
        elif role is HostRole.ENDLESS:
            self._link(host, "/", Anchor(host, "/calendar/2026/01/"))
        elif role is HostRole.MAPPED:
            for row in range(5):
                self._put(Entry(host, f"/timetables/only-mapped-{row}.html"))
            self._put(Entry(host, "/sitemap.xml", content=self._sitemap(host), content_type="application/xml"))
        elif role is HostRole.LETTERS:
            self._put(Entry(host, "/letters/straße.html".replace("ß", quote("ß"))))
            onward = (Anchor(host, "/letters/stra%C3%9Fe.html"), Anchor(host, "/"))
            self._put(Entry(host, "/letters/latin.html", charset="iso-8859-1", links=onward), "/")
            self._put(Entry(host, "/letters/cyrillic.html", charset="windows-1251", declared=False), "/")
            self._put(Entry(host, "/letters/kana.html", charset="shift_jis"), "/")
        elif role is HostRole.COPIES:
            for row in range(1, 6):
                original = self._entries[host][paths[row]]
                twin = replace(original, path=f"/copies{original.path}", text_of=original.path)
                self._put(replace(original, path=f"{original.path}?print=1", text_of=original.path), paths[0])
                if row < 4:
                    self._put(replace(twin, altered=3), paths[0])
        elif role is HostRole.WINDING:
            goal = Anchor(host, paths[-1])
            self._put(Entry(host, "/go/chain-2", status=302, location=goal))
            self._put(Entry(host, "/go/chain-1", status=301, location=Anchor(host, "/go/chain-2")), paths[0])
            self._put(Entry(host, "/go/loop-a", status=302, location=Anchor(host, "/go/loop-b")), paths[0])
            self._put(Entry(host, "/go/loop-b", status=302, location=Anchor(host, "/go/loop-a")))
            self._put(Entry(host, "/go/far", status=307, location=Anchor(self.hosts[15], "/")), paths[1])
            self._put(Entry(host, "/go/for-good", status=308, location=goal), paths[2])
            self._put(Entry(host, "/places/beyond-refresh.html"))
            beyond = Anchor(host, "/places/beyond-refresh.html")
            self._put(Entry(host, "/places/refresh.html", refresh=beyond), paths[0])
        elif role is HostRole.LARGE:
            self._put(Entry(host, "/letters/behind-the-cut.html"))
            hidden = Anchor(host, "/letters/behind-the-cut.html", behind_cut=True)
            inside = Anchor(host, "/letters/before-the-cut.html")
            self._put(Entry(host, inside.path))
            self._put(Entry(host, "/letters/everything.html", links=(inside, hidden), large=True), paths[0])
        elif role is HostRole.DEAD:
            for row in range(6):
                self._link(host, paths[row % len(paths)], Anchor(host, f"/missing/{chance.randrange(10_000)}.html"))
            self._put(Entry(host, "/places/demolished.html", status=410), paths[0])

    def _calendar(self, host: str, path: str) -> Entry | None:
        found = re.fullmatch(r"/calendar/([0-9]{4})/([0-9]{2})/(?:([0-9]{2})\.html)?", path)
        if not found:
            return None
        year, month = int(found[1]), int(found[2])
        if not (1 <= month <= 12 and 1 <= year <= 9_998) or (found[3] and not 1 <= int(found[3]) <= 28):
            return None
        here = f"/calendar/{year:04}/{month:02}/"
        if found[3]:
            return Entry(host, path, links=(Anchor(host, here),))
        count = year * 12 + month - 1
        months = [f"/calendar/{near // 12:04}/{near % 12 + 1:02}/" for near in (count - 1, count + 1)]
        days = [f"{here}{day:02}.html" for day in (3, 9, 17, 24)]
        return Entry(host, path, links=tuple(Anchor(host, onward) for onward in (*months, *days)))

    def _sitemap(self, host: str) -> str:
        pages = [entry.path for entry in self._entries[host].values() if entry.content_type == "text/html"]
        rows = "".join(
            f"<url><loc>{html.escape(self.url(host, path))}</loc><lastmod>2026-01-01</lastmod></url>\n"
            for path in pages
        )
        return (
            '<?xml version="1.0" encoding="UTF-8"?>\n'
            f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{rows}</urlset>\n'
        )

    # ── how it reads ────────────────────────────────────────────────────────────────────────────────────────────────

    def _render(self, entry: Entry) -> bytes:
        if entry.content or entry.content_type != "text/html":
            return entry.content.encode("utf-8")
        if entry.status != 200:
            said = "Gone" if entry.status == 410 else "Not found"
            return f"<!doctype html><title>{said}</title><h1>{said}</h1>\n".encode()
        topic = self._topics[entry.host]
        name = entry.text_of or entry.path
        chance = Random(f"{self.seed} text of {entry.host}{name}")
        about = f"{chance.choice(topic.adjectives)} {chance.choice(topic.nouns)}".capitalize()
        title = topic.title if entry.path == "/" else f"{about} and the {chance.choice(topic.nouns)}"
        if entry.path.startswith("/calendar/"):
            title = f"Calendar, {entry.path[10:].removesuffix('.html').strip('/').replace('/', '-')}"
        paragraphs = [_paragraph(topic, chance) for _ in range(chance.randint(3, 7))]
        if entry.path.startswith("/calendar/"):  # as most pages of most calendars
            paragraphs = ["Nothing is planned here yet. Days that have an event are marked."]
        if entry.altered:
            words = paragraphs[0].split(" ")
            for row in range(entry.altered):
                words[2 + 3 * row] = "amended"
            paragraphs[0] = " ".join(words)
        paragraphs.extend(_foreign(entry.charset))
        site = entry.host.removesuffix(f".{SUFFIX}").replace("-", " ").capitalize()
        anchors = [self._anchor(entry, anchor, chance) for anchor in entry.links if not anchor.behind_cut]
        refresh = f'<meta http-equiv="refresh" content="0; url={entry.refresh.path}">\n' if entry.refresh else ""
        head = "".join(
            (
                f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="{entry.charset}">\n' + refresh,
                f"<title>{html.escape(title)} – {site}</title>\n"
                if entry.charset == "utf-8"
                else f"<title>{title}</title>\n",
                f'<meta name="description" content="{html.escape(paragraphs[0].split(". ")[0])}.">\n',
                f'<base href="{entry.base}">\n' if entry.base else "",
                "</head>\n<body>\n",
            )
        )
        body = "".join(
            (
                f"<header><p>{site}</p><h1>{html.escape(title)}</h1></header>\n<article>\n",
                "".join(f"<p>{text}</p>\n" for text in paragraphs),
                "</article>\n<nav>\n<ul>\n",
                "".join(f"<li>{anchor}</li>\n" for anchor in anchors),
                "</ul>\n</nav>\n",
            )
        )
        end = f"<footer><p>{html.escape(chance.choice(FILLERS))}</p></footer>\n</body>\n</html>\n"
        page = (head + body + end).encode(entry.charset, "xmlcharrefreplace")
        return self._enlarged(entry, head + body, end, chance) if entry.large else page

    def _enlarged(self, entry: Entry, page: str, end: str, chance: Random) -> bytes:
        """Returns the page with a long list after it, and the links after the cut at its very end."""
        topic = self._topics[entry.host]
        rows = [f"<li>{_sentence(topic, chance)}</li>\n" for _ in range(200)]
        hidden = "".join(
            f'<p><a href="{anchor.path}">The last letter</a></p>\n' for anchor in entry.links if anchor.behind_cut
        )
        pieces, size = [page, "<ol>\n"], len(page)
        while size < LARGE_BYTES:
            row = rows[len(pieces) % len(rows)]
            pieces.append(row)
            size += len(row)
        return "".join((*pieces, "</ol>\n", hidden, end)).encode("utf-8")

    def _anchor(self, entry: Entry, anchor: Anchor, chance: Random) -> str:
        """A link in one of the ways in which people write them; all mean the same URL."""
        words = (
            anchor.path.rsplit("/", 1)[-1].removesuffix(".html").split("?")[0].replace("-", " ").strip("0123456789 ")
        )
        label = words.capitalize() or ("Front page" if anchor.path == "/" else "Onward")
        path = anchor.path
        copied = (
            "?" in path or entry.text_of or self.roles[entry.host] is HostRole.COPIES
        )  # copies are equal to the byte
        way = 0 if copied else chance.randrange(8)
        authority = f"{anchor.host}:{self.port}"
        if anchor.host != entry.host:
            label = f"{label} ({anchor.host.removesuffix(f'.{SUFFIX}')})"
            spelled = (
                f"//{authority}{path}"
                if way == 1
                else f"{self.scheme.upper()}://{authority.upper()}{path}"
                if way == 2
                else self.url(anchor.host, path)
            )
        elif way == 1:
            spelled = self.url(anchor.host, path)
        elif way == 2:
            spelled = f"{path}#text"
        elif way == 3 and path.endswith(".html") and path[1] in "npl":
            spelled = f"/%{ord(path[1]):02x}{path[2:]}"  # %6e is n
        elif way == 4:
            spelled = f"/./{path.lstrip('/')}"
        elif way in {5, 6} and path != "/":
            spelled = posixpath.relpath(path, posixpath.dirname(entry.base + "x" if entry.base else entry.path))
            spelled += "/" if path.endswith("/") else ""
        else:
            spelled = path
        relation = ' rel="nofollow"' if anchor.nofollow else ""
        return f'<a href="{html.escape(spelled)}"{relation}>{html.escape(label)}</a>'


def _plain_path(path: str) -> str:
    """Percent-encodings of unreserved characters decoded, hexadecimal digits in upper case."""

    def plain(found: re.Match[str]) -> str:
        character = chr(int(found[1], 16))
        return character if re.fullmatch(r"[A-Za-z0-9._~-]", character) else found[0].upper()

    return re.sub(r"%([0-9A-Fa-f]{2})", plain, path)


def _sentence(topic: Topic, chance: Random) -> str:
    one, two = chance.sample(topic.nouns, 2)
    first, second = chance.sample(topic.adjectives, 2)
    verb, place = chance.choice(topic.verbs), chance.choice(topic.places)
    patterns = (
        f"The {first} {one} {verb} the {two} {place}.",
        f"Every {one} {verb} a {second} {two}.",
        f"{place[0].upper()}{place[1:]}, the {one} {verb} what the {second} {two} left behind.",
        f"Whoever has seen a {first} {one} knows why it {verb} the {two}.",
        f"In the year {chance.randint(1820, 2020)} the {first} {one} was lent to a {two} {place}.",
        f"Without the {two}, no {one} {verb} the {second} {chance.choice(topic.nouns)}.",
        f"A {one} may be {first}, but the {two} is {second}.",
    )
    return chance.choice(patterns)


def _paragraph(topic: Topic, chance: Random) -> str:
    sentences = [_sentence(topic, chance) for _ in range(chance.randint(3, 6))]
    if chance.random() < 0.3:
        sentences.append(chance.choice(FILLERS))
    return " ".join(sentences)


def _foreign(charset: str) -> tuple[str, ...]:
    """A paragraph that reads wrong when the page is decoded as anything else."""
    return {
        "iso-8859-1": ("Der Bäcker grüßt die Möwen; à l’été, le pêcheur rêve d’une île.".replace("’", "'"),),
        "windows-1251": ("Пекарь встаёт до рассвета, а паром уходит в полдень.",),
        "shift_jis": ("渡し船は昼に出る。パン屋は夜明け前に起きる。",),
    }.get(charset, ())


# ── serving it ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Web(Protocol):
    """The web that a server says."""

    hosts: tuple[str, ...]
    port: int

    def seeds(self) -> tuple[str, ...]: ...

    def machine(self, host: str) -> str: ...

    def closed(self, host: str, path: str) -> bool: ...

    def faulty(self, host: str) -> bool: ...

    def answer(self, host: str, path: str, now: float, *, takes_gzip: bool = False) -> WebAnswer: ...


@dataclass(frozen=True, slots=True)
class RunningWeb:
    """Where a running demo web is: the files that a crawler needs, and the log that judges it."""

    web: Any
    hosts_file: Path  # in the format of /etc/hosts
    seeds_file: Path  # one URL a line
    log_file: Path  # one JSON object a request


@dataclass(slots=True)
class _HostState:
    """The server's memory of the visits to one host."""

    first_asked: float | None = None
    open_requests: int = 0
    robots_answered: bool = False
    closed_until: float = 0.0


class DemoServer:
    """Serves a `DemoWeb` in its own thread; a context manager.

    Each line of the log has `host`, `method`, `path`, `status`, `bytes`, `start` and `end` (microseconds of one
    monotonic clock: request read, last byte about to be written), `at` (wall clock, RFC 3339), `connection`,
    `retry_after`, `robots` (the text, for a request for it) and `violations` (seen by the server itself:
    `wrong-host overlap closed before-robots before-retry-after`).
    """

    def __init__(
        self,
        make_web: Callable[[int], Web],
        directory: Path,
        *,
        port: int = 0,
        tls: ssl.SSLContext | None = None,
    ):
        """`make_web` is called with the port once it is known. tls: by which the web answers, in place of plain text.
        Raises OSError when no port can be had."""
        directory.mkdir(parents=True, exist_ok=True)
        before = make_web(port or 1)
        machines = {machine: row for row, machine in enumerate(dict.fromkeys(map(before.machine, before.hosts)))}
        self._sockets, addresses, port = _listen(len(machines), port)
        self._tls = tls
        self.web = make_web(port)
        self.addresses: Mapping[str, str] = {
            host: addresses[machines[self.web.machine(host)]] for host in self.web.hosts
        }
        self.served = RunningWeb(self.web, directory / "hosts", directory / "seeds.txt", directory / "access.log")
        at = Counter(self.addresses.values())
        self._named = {address: host for host, address in self.addresses.items() if at[address] == 1}
        lines = "".join(f"{address} {host}\n" for host, address in self.addresses.items())
        self.served.hosts_file.write_text(lines, encoding="ascii")
        self.served.seeds_file.write_text("".join(f"{url}\n" for url in self.web.seeds()), encoding="ascii")
        self._states = {host: _HostState() for host in self.web.hosts}
        self._connections = 0
        self._log: TextIO | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo web", daemon=True)

    def start(self) -> RunningWeb:
        """Begins to answer; returns when it does."""
        self._thread.start()
        self._ready.wait(30)
        return self.served

    def stop(self) -> None:
        """Ends all connections and closes the log."""
        loop, stopping = self._loop, self._stopping
        if loop and stopping and self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # the loop ended by itself meanwhile
                loop.call_soon_threadsafe(stopping.set)
            self._thread.join(10)

    def __enter__(self) -> RunningWeb:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        with self.served.log_file.open("a", encoding="utf-8", buffering=1) as self._log:
            servers = [
                await asyncio.start_server(self._converse, sock=listening, limit=REQUEST_BYTES_MAX, ssl=self._tls)
                for listening in self._sockets
            ]
            self._ready.set()
            await self._stopping.wait()
            for server in servers:
                server.close()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        connection = self._connections
        writer.transport.set_write_buffer_limits(high=0)  # so that drain waits for the last byte
        address = writer.get_extra_info("sockname")[0]
        # Cancelled: the server stops, and a callback of this task would write a traceback about it.
        ended = (asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError)
        wrong = (*ended, TimeoutError, ConnectionError, ValueError)
        with contextlib.suppress(*wrong), contextlib.closing(writer):
            while True:
                async with asyncio.timeout(CONNECTION_IDLE_SECONDS_MAX):
                    head = await reader.readuntil(b"\r\n\r\n")
                if not await self._answer(head, address, connection, writer):
                    return

    async def _answer(self, head: bytes, address: str, connection: int, writer: asyncio.StreamWriter) -> bool:
        """One request and its answer; False when the connection ends with it."""
        start, at = time.monotonic(), datetime.now(UTC)
        lines = head.decode("latin-1").split("\r\n")
        method, _, rest = lines[0].partition(" ")
        path, _, version = rest.rpartition(" ")
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        host = fields.get("host", "").lower().rpartition(":")[0] or fields.get("host", "").lower()
        host = self._named.get(host, host)  # a crawler without a hosts file requests by address
        state = self._states.get(host)
        keep = version == "HTTP/1.1" and fields.get("connection", "").lower() != "close"
        retry_after: str | None = None
        if state is None or self.addresses[host] != address or not path.startswith("/"):
            violations = ["wrong-host"]
            reply = WebAnswer(421, (("Content-Type", "text/plain"),), b"No such host at this address.\n", 0.0)
        else:
            violations = self._violations(host, path, start, state)
            state.first_asked = state.first_asked or start
            if method in {"GET", "HEAD"} and not {"content-length", "transfer-encoding"} & fields.keys():
                takes_gzip = "gzip" in fields.get("accept-encoding", "")
                reply = self.web.answer(host, path, start - state.first_asked, takes_gzip=takes_gzip)
            else:
                keep, reply = False, WebAnswer(405, (("Allow", "GET, HEAD"),), b"", 0.0)
            retry_after = dict(reply.headers).get("Retry-After")
            state.open_requests += 1
        end = start
        try:
            if reply.delay_seconds:
                await asyncio.sleep(reply.delay_seconds)
            data = _head(reply, keep) + (b"" if method == "HEAD" else reply.body)
            for begin in range(0, len(data), PIECE_BYTES):
                end = time.monotonic()
                writer.write(data[begin : begin + PIECE_BYTES])
                await writer.drain()
        finally:
            if state is not None and "wrong-host" not in violations:
                state.open_requests -= 1
                state.robots_answered |= path == "/robots.txt"
                if retry_after:
                    state.closed_until = end + float(retry_after)
            robots = reply.body.decode("utf-8") if path == "/robots.txt" and reply.status == 200 else None
            record = {
                "host": host,
                "method": method,
                "path": path,
                "status": reply.status,
                "bytes": len(reply.body),
                "start": int(start * 1e6),
                "end": int(end * 1e6),
                "at": at.isoformat(timespec="microseconds").replace("+00:00", "Z"),
                "connection": connection,
                "retry_after": retry_after,
                "robots": robots,
                "violations": violations,
            }
            if self._log:
                self._log.write(json.dumps(record) + "\n")
        return keep

    def _violations(self, host: str, path: str, start: float, state: _HostState) -> list[str]:
        seen = []
        if state.open_requests:
            seen.append("overlap")
        if path != "/robots.txt":
            if not state.robots_answered:
                seen.append("before-robots")
            if self.web.closed(host, path):
                seen.append("robots-error" if self.web.faulty(host) else "closed")
        if start < state.closed_until:
            seen.append("before-retry-after")
        return seen


def _head(reply: WebAnswer, keep: bool) -> bytes:
    date = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    lines = [f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}", f"Date: {date}", "Server: demo"]
    lines += [f"{name}: {value}" for name, value in reply.headers]
    lines += [f"Content-Length: {len(reply.body)}", f"Connection: {'keep-alive' if keep else 'close'}", "", ""]
    return "\r\n".join(lines).encode("latin-1")


def _listen(count: int, port: int) -> tuple[list[socket.socket], list[str], int]:
    """Makes listening sockets on one port, each on its own loopback address if the system has them."""
    addresses = [f"127.20.{row // 250}.{row % 250 + 1}" for row in range(count)]
    try:
        with socket.create_server((addresses[-1], 0)):
            pass
    except OSError:  # macOS has only 127.0.0.1 until the others are made: all names share it there
        with contextlib.closing(socket.create_server(("127.0.0.1", port))) as only:
            return [only.dup()], ["127.0.0.1"] * count, int(only.getsockname()[1])
    for attempt in range(20):
        sockets: list[socket.socket] = []
        try:
            for address in addresses:
                chosen = sockets[0].getsockname()[1] if sockets else port
                sockets.append(socket.create_server((address, chosen), backlog=128))
        except OSError:
            for opened in sockets:
                opened.close()
            if port or attempt == 19:
                raise
            continue
        return sockets, addresses, int(sockets[0].getsockname()[1])
    raise AssertionError("unreachable: the last attempt raises")


def _leave_on_signals() -> None:
    """SIGTERM and SIGINT end the process cleanly, as the end of standard input does."""

    def leave(number: int, frame: object) -> None:
        raise SystemExit(0)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)


class _Arguments(argparse.Namespace):
    directory: Path
    seed: int
    hosts: int
    pages: int
    port: int
    plain: bool


def main(arguments: list[str] | None = None) -> int:
    """Serves until standard input ends, so that a child never outlives its parent. Prints one JSON line when ready."""
    parser = argparse.ArgumentParser(prog="python -m outrider.sim.web", description="Serve the demo web on loopback.")
    parser.add_argument("--directory", type=Path, required=True, help="for hosts, seeds.txt and access.log")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hosts", type=int, default=20)
    parser.add_argument("--pages", type=int, default=600)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--plain", action="store_true", help="no host misbehaves")
    given = parser.parse_args(arguments, namespace=_Arguments())

    def make(port: int) -> DemoWeb:
        return DemoWeb(given.seed, given.hosts, given.pages, port=port, quirks=not given.plain)

    _leave_on_signals()
    with DemoServer(make, given.directory, port=given.port) as served:
        ready = {
            "port": served.web.port,
            "hosts": str(served.hosts_file),
            "seeds": str(served.seeds_file),
            "log": str(served.log_file),
        }
        print(json.dumps(ready), flush=True)
        while sys.stdin.readline():
            pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
