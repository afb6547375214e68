"""The web of `outrider judge`: each host tests one habit of a crawler, and has its own address.

steady      an ordinary host: one request at a time, and a pause
slow        each page needs 0.4 s
delayed     robots.txt has a Crawl-delay of two seconds
rated       robots.txt has a Request-rate of 40 pages a minute
closed      robots.txt forbids a folder that pages link to
moved       the same, and robots.txt redirects
unruled     has no robots.txt (404)
broken      robots.txt is an error (500): nothing may be fetched
busy        the first page answers 503 with Retry-After: 2
refusing    the same with 429
storm       all pages answer 500, 503 or 429 (a host each) in the first three seconds, without a Retry-After
patient     a Crawl-delay of one, two or three seconds; the number of hosts is an option
name        one of many names of one machine, which has one address; the number of names is an option
fading      robots.txt forbids a folder, and is an error from the fourth second on; if time seems to pass
"""

from __future__ import annotations

import html
from random import Random
from string import ascii_lowercase

from outrider.sim.web import WebAnswer

SUFFIX = "judge.test"
PAGES = 5
STEADY_HOSTS = 3
STORMS = (500, 503, 429)
HABITS = ("slow", "delayed", "rated", "closed", "moved", "unruled", "broken", "busy", "refusing")
CRAWL_DELAY_SECONDS = 2
REQUEST_RATE = b"40/1m"
RETRY_AFTER_SECONDS = 2
STORM_SECONDS = 3.0
FADING_SECONDS = 3.0
FADING_PAGES = 100_000  # no polite crawler finishes them, so that later runs have pages to leave alone
SLOW_SECONDS = 0.4
NAME_PAGES = 2
MACHINE = "machine"
_HTML = (("Content-Type", "text/html; charset=utf-8"),)
_TEXT = (("Content-Type", "text/plain"),)
_CLOSED = b"User-agent: *\nDisallow: /private/\n"


def _words(name: str) -> str:
    """Forty words that no other page has: a crawler may leave a folder whose pages are all alike."""
    chance = Random(name)
    return " ".join("".join(chance.choices(ascii_lowercase, k=chance.randint(2, 9))) for _ in range(40))


class JudgeWeb:
    """Hosts, each with a habit to test; pages link to one another and to a forbidden folder.

    patient: the number of hosts with a Crawl-delay. names: the number of names on one address. fading: whether there is
    a host whose robots.txt fails later.
    """

    def __init__(self, *, port: int = 8080, patient: int = 0, names: int = 0, fading: bool = False) -> None:
        found = [f"steady-{number}" for number in range(1, STEADY_HOSTS + 1)]
        found += [*HABITS, *(f"storm-{status}" for status in STORMS), *(["fading"] if fading else [])]
        found += [f"patient-{number}" for number in range(1, patient + 1)]
        found += [f"name-{number}" for number in range(1, names + 1)]
        self.hosts = tuple(f"{name}.{SUFFIX}" for name in found)
        self.port = port

    def habit(self, host: str) -> str:
        """The habit that a host tests."""
        return host.split(".", maxsplit=1)[0].partition("-")[0]

    def number(self, host: str) -> int:
        """The number in the name of a host, or 0."""
        return int(host.split(".", maxsplit=1)[0].partition("-")[2] or 0)

    def machine(self, host: str) -> str:
        """The machine of a host: all names of one machine have one address."""
        return MACHINE if self.habit(host) == "name" else host

    def seeds(self) -> tuple[str, ...]:
        """The front page of every host."""
        return tuple(f"http://{host}:{self.port}/" for host in self.hosts)

    def closed(self, host: str, path: str) -> bool:
        """Whether the robots.txt of the host closes the path."""
        closes = self.habit(host) in ("closed", "moved", "fading")
        return self.faulty(host) or (closes and path.startswith("/private/"))

    def faulty(self, host: str) -> bool:
        """Whether the host's robots.txt cannot be read."""
        return self.habit(host) == "broken"

    def answer(self, host: str, path: str, now: float, *, takes_gzip: bool = False) -> WebAnswer:
        """The host's answer, `now` seconds after its first request."""
        habit = self.habit(host)
        if path == "/robots.txt":
            return self._robots(habit, host, now)
        if habit == "moved" and path == "/rules.txt":
            return WebAnswer(200, _TEXT, _CLOSED, 0.0)
        delay = SLOW_SECONDS if habit == "slow" else 0.02
        if habit in ("busy", "refusing") and path == "/" and now < RETRY_AFTER_SECONDS:
            wait = (("Retry-After", str(RETRY_AFTER_SECONDS)), *_TEXT)
            return WebAnswer(503 if habit == "busy" else 429, wait, b"Later, please.\n", delay)
        if habit == "storm" and now < STORM_SECONDS:
            return WebAnswer(self.number(host), _TEXT, b"It does not work.\n", delay)
        pages = {"fading": FADING_PAGES, "name": NAME_PAGES}.get(habit, PAGES)
        number = path.removeprefix("/page")
        here = int(number) if number.isdigit() and number.isascii() and len(number) < 9 else -1
        if path != "/" and not 0 <= here < pages and not path.startswith("/private/"):
            return WebAnswer(404, _TEXT, b"There is no such page.\n", delay)
        first = here + 1 if habit == "fading" else 1
        links = [f"/page{other}" for other in range(first, min(first + PAGES - 1, pages))]
        links += ["/private/secret"] if habit != "name" else []
        anchors = "".join(f'<li><a href="{link}">{link}</a>' for link in links)
        title = html.escape(f"{host} {path}")
        text = f"<!doctype html><title>{title}</title><p>{_words(f'{habit}{path}')}<ul>{anchors}</ul>\n"
        return WebAnswer(200, _HTML, text.encode(), delay)

    def _robots(self, habit: str, host: str, now: float) -> WebAnswer:
        if habit == "unruled":
            return WebAnswer(404, _TEXT, b"There is none.\n", 0.0)
        if habit == "broken" or (habit == "fading" and now >= FADING_SECONDS):
            return WebAnswer(500, _TEXT, b"It does not work.\n", 0.0)
        if habit == "moved":
            return WebAnswer(301, (("Location", "/rules.txt"), *_TEXT), b"", 0.0)
        seconds = {"delayed": CRAWL_DELAY_SECONDS, "patient": self.number(host) % 3 + 1}.get(habit)
        if seconds is not None:
            return WebAnswer(200, _TEXT, b"User-agent: *\nCrawl-delay: %d\n" % seconds, 0.0)
        if habit == "rated":
            return WebAnswer(200, _TEXT, b"User-agent: *\nRequest-rate: %b\n" % REQUEST_RATE, 0.0)
        return WebAnswer(200, _TEXT, _CLOSED if habit in ("closed", "fading") else b"User-agent: *\nDisallow:\n", 0.0)
