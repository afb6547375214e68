"""The commands of docs/howto/identity.md, run against a site on loopback, fulfil each of the six practices.

They are those of draft-illyes-webbotauth-cbcp-01.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from ipaddress import ip_network
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from e2e.crawling import ROOT, command, environment, wait_for
from e2e.loopback import listening

HOW_TO = (ROOT / "docs/howto/identity.md").read_text("utf-8")
RANGE = "66.249.64.0/20"
BUSY_SECONDS = 2  # Retry-After of the busy page
REQUESTS_SECONDS_MAX = 60


class Asked(NamedTuple):
    """A request that the site received. at: seconds of a monotonic clock."""

    path: str
    fields: dict[str, str]
    at: float


class Site(BaseHTTPRequestHandler):
    """A site that refuses one page in robots.txt, forbids links in a field, is busy once, and has validators."""

    asked: list[Asked]

    def do_GET(self) -> None:
        earlier = [one.path for one in self.asked]
        self.asked.append(Asked(self.path, dict(self.headers), time.monotonic()))
        body = {
            "/robots.txt": b"User-agent: Outrider\nDisallow: /no\n",
            "/": b"<a href=/no></a><a href=/busy></a><a href=/field></a><a href=/meta></a>",
            "/field": b"<a href=/after-field></a>",
            "/meta": b"<meta name=robots content=nofollow><a href=/after-meta></a>",
        }.get(self.path, b"text")
        status = 200
        if self.path == "/busy" and "/busy" not in earlier:
            status = 503
        elif "If-None-Match" in self.headers:
            status, body = 304, b""
        self.send_response(status)
        self.send_header("Content-Type", "text/plain" if self.path == "/robots.txt" else "text/html")
        if status == 503:
            self.send_header("Retry-After", str(BUSY_SECONDS))
        else:
            self.send_header("ETag", '"1"')
        if self.path == "/field":
            self.send_header("X-Robots-Tag", "nofollow")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""


@pytest.fixture(scope="module")
def site() -> Iterator[tuple[str, list[Asked]]]:
    asked: list[Asked] = []
    with listening(type("Planted", (Site,), {"asked": asked})) as address:
        yield address, asked


def commands(heading: str) -> list[list[str]]:
    """The commands below a heading of the how-to, as words after `outrider`."""
    part = HOW_TO.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return [shlex.split(line)[1:] for line in re.findall(r"^    (outrider .*)$", part, re.MULTILINE)]


class Followed(NamedTuple):
    """The files that the steps made, and the requests of the crawl."""

    files: Path
    asked: list[Asked]

    def of(self, path: str) -> list[Asked]:
        return [one for one in self.asked if one.path == path]


@pytest.fixture(scope="module")
def followed(site: tuple[str, list[Asked]], tmp_path_factory: pytest.TempPathFactory) -> Followed:
    """Follows the how-to in a new folder, until pages were requested again."""
    folder, (start, asked) = tmp_path_factory.mktemp("howto"), site
    (made,) = commands("Make a key and a description")
    steps = [made, *commands("Publish the files")[:3]]
    assert ["init", "ranges", "page", "directory"] == [step[1] for step in steps]
    for step in steps:
        done = subprocess.run(
            command(*step), cwd=folder, env=environment(), capture_output=True, text=True, check=False
        )
        assert 0 == done.returncode, done.stderr
        if step is made:
            described = folder / "me/identity.toml"
            described.write_text(described.read_text().replace("ranges = []", f'ranges = ["{RANGE}"]'))
    (crawl,) = commands("The six practices")
    words = [start if word == "https://example.org/" else word for word in crawl]
    with subprocess.Popen(command(*words), cwd=folder, env=environment(), stderr=subprocess.DEVNULL) as running:
        try:
            wait_for(lambda: running.poll() is not None or _is_complete(asked), REQUESTS_SECONDS_MAX)
            assert running.poll() is None, (folder / "example/crawl.log").read_text()
        finally:
            running.terminate()
            running.wait()
    return Followed(folder / "me/public", asked)


def _is_complete(asked: list[Asked]) -> bool:
    """Whether the busy page and some other page were requested again."""
    is_again = any("If-None-Match" in one.fields for one in asked)
    return is_again and len([one for one in asked if one.path == "/busy"]) > 1


def obeys(followed: Followed) -> None:
    assert "/robots.txt" == followed.asked[0].path
    assert len(followed.of("/field") + followed.of("/meta")) >= 2
    assert [] == [path for path in ("/no", "/after-field", "/after-meta") if followed.of(path)]


def is_identified(followed: Followed) -> None:
    agents = {one.fields["User-Agent"] for one in followed.asked}
    assert {"Outrider/0.1 (+https://crawler.example.org/bot.html)"} == agents
    assert (followed.files / "bot.html").exists()


def does_not_disturb(followed: Followed) -> None:
    times = [one.at for one in followed.asked]
    assert min(later - earlier for earlier, later in pairwise(times)) >= 1.0
    first, second, *_ = followed.of("/busy")
    assert second.at - first.at >= BUSY_SECONDS


def uses_caches(followed: Followed) -> None:
    again = [one for one in followed.asked if "If-None-Match" in one.fields]
    assert '"1"' == again[0].fields["If-None-Match"]


def has_published_addresses(followed: Followed) -> None:
    ranges = json.loads((followed.files / "ranges.json").read_text())
    assert [ip_network(RANGE)] == [ip_network(one["ipv4Prefix"]) for one in ranges["prefixes"]]
    assert 'rel="client-ranges" href="/ranges.json"' in (followed.files / "bot.html").read_text()


def is_explained(followed: Followed) -> None:
    page = (followed.files / "bot.html").read_text()
    parts = (
        "How to block it",
        "User-agent: Outrider\nDisallow: /",
        "does not run the scripts",
        "Exemptions",
        "Contact",
    )
    assert [] == [part for part in parts if part not in page]
    assert "mailto:you@example.org" in page


PRACTICES: dict[str, Callable[[Followed], None]] = {
    "Obey robots.txt": obeys,
    "Identify the crawler": is_identified,
    "Do not disturb the site": does_not_disturb,
    "Use caches": uses_caches,
    "Publish the addresses": has_published_addresses,
    "Explain the crawler": is_explained,
}


def test_the_how_to_names_each_practice():
    rows = re.findall(r"^\| ([A-Z][^|]*?) \|", HOW_TO.partition("## The six practices")[2], re.MULTILINE)
    assert list(PRACTICES) == rows


@pytest.mark.parametrize("practice", list(PRACTICES))
def test_the_commands_of_the_how_to_fulfil_the_practice(followed, practice):
    PRACTICES[practice](followed)
