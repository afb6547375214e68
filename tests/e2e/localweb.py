"""Builds, serves and stops the web of real pages next to the project, where it exists: `../shared/localweb`.

For tests marked `conformance` and `long`. Nothing of it is copied: it is called, and its files are read.

    with localweb.serving("small") as web:
        crawl(web.seeds, web.hosts) ; assert web.must_fetch() == fetched ; web.check(min_gap=0.1)
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin, urlsplit
from urllib.robotparser import RobotFileParser

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT.parent / "shared" / "localweb" / "localweb"
# Built once and kept between runs, outside the project: 350 MB would be in the way of every tool that walks it.
CACHE = Path(
    os.environ.get("OUTRIDER_LOCALWEB_CACHE") or Path(tempfile.gettempdir()) / f"outrider-localweb-{os.getuid()}"
)
# (robots.txt, TLS) to the ports for http and https: all may be served at once.
PORTS = {
    (True, False): (18480, 18443),
    (False, False): (18580, 18543),
    (True, True): (18680, 18643),
    (False, True): (18780, 18743),
}
SYNTHETIC_PORTS = (18880, 18843)
BUILD_SECONDS_MAX = 900
HEAD_BYTES = 4_096  # the first bytes of a page, which contain its metas
_NOFOLLOW = re.compile(rb"<meta\s[^>]*name=[\"']?robots[\"']?[^>]*content=[^>]*nofollow", re.IGNORECASE)
READ_BYTES_MAX = 2_000_000  # bytes of a page: a crawler that cuts there does not read the rest


def available() -> bool:
    """Whether the web can be built here; tests skip themselves when not."""
    return TOOL.exists()


@dataclass(frozen=True)
class LocalWeb:
    """A web that is being served."""

    directory: Path

    @property
    def hosts(self) -> Path:
        return self.directory / "hosts"

    @property
    def seeds(self) -> Path:
        return self.directory / "seeds.txt"

    @property
    def manifest(self) -> Path:
        return self.directory / "manifest.jsonl"

    @property
    def authority(self) -> Path:
        """The certificate that vouches for its hosts."""
        return self.directory / "ca" / "ca.pem"

    @property
    def log(self) -> Path:
        return self.directory / "run" / "docs" / "access.log"

    def must_fetch(
        self, read_bytes_max: int = READ_BYTES_MAX, *, follow_nofollow: bool = False, sitemaps: bool = False
    ) -> frozenset[str]:
        """The URLs that a complete polite crawl gets with 200 when it reads this number of bytes of each page.

        The manifest's own set (`must_fetch_urls`) follows rel=nofollow. It ignores robots metas and the robots.txt
        of the copied sites. follow_nofollow: links marked so, by themselves or by the meta, are followed.
        sitemaps: the crawl also begins at the URLs that they name.
        """
        known = self._entries()
        for host in {entry["host"] for entry in known.values()}:
            self._close(host, known)
        waiting = [
            url
            for url, entry in known.items()
            if not entry.get("closed") and (entry.get("polite_depth") == 0 or (sitemaps and entry.get("in_sitemap")))
        ]
        reached = set(waiting)
        while waiting:
            url = waiting.pop()
            entry = known[url]
            if entry.get("closed"):
                continue
            same = entry.get("same_as", url)  # a folder or ?query answered with that page
            if not follow_nofollow and self._is_nofollow(same):
                continue
            aside = () if follow_nofollow else known[same].get("nofollow") or ()
            for onward in self._onward(same, known[same] | entry, read_bytes_max):
                if onward in aside:
                    continue
                # A page that names itself ("#top") means, read under another URL, that one.
                if onward in known and onward not in reached and onward != same and not known[onward].get("closed"):
                    reached.add(onward)
                    waiting.append(onward)
        wanted = {"page", "file", "variant"}
        return frozenset(url for url in reached if known[url]["status"] == 200 and known[url]["kind"] in wanted)

    def _close(self, host: str, known: dict[str, dict]) -> None:
        """Marks the pages that the robots.txt of a site's own files closes."""
        file = self.directory / "sites" / host / "robots.txt"
        if not file.exists():
            return
        rules = RobotFileParser()
        rules.parse(file.read_text(encoding="utf-8", errors="replace").splitlines())
        for url, entry in known.items():
            if entry["host"] == host and not rules.can_fetch("outrider", url):
                entry["closed"] = True

    def _is_nofollow(self, url: str) -> bool:
        """Whether the robots meta of a page closes its links."""
        parts = urlsplit(url)
        path = self.directory / "sites" / (parts.hostname or "") / unquote(parts.path).lstrip("/")
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return bool(_NOFOLLOW.search(file.read(HEAD_BYTES)))

    def _entries(self) -> dict[str, dict]:
        with self.manifest.open(encoding="utf-8") as lines:
            return {entry["url"]: entry for entry in map(json.loads, lines)}

    def _onward(self, url: str, entry: dict, read_bytes_max: int) -> list[str]:
        links = [urljoin(url, link) for link in entry.get("links") or ()]
        if (entry.get("size") or 0) > read_bytes_max:
            path = unquote(urlsplit(url).path)
            body = (self.directory / "sites" / (urlsplit(url).hostname or "") / path.lstrip("/")).read_bytes()
            seen = _Links(url, body[:read_bytes_max].decode("utf-8", "replace")).found
            links = [link for link in links if unquote(link) in seen]
        return links + ([urljoin(url, entry["location"])] if entry.get("location") else [])

    def asked(self, offset: int = 0, status: int | None = None) -> list[str]:
        """The URLs requested since that byte of the log, in order, without robots.txt; only those with this answer."""
        urls = []
        with self.log.open(encoding="utf-8") as lines:
            lines.seek(offset)
            for line in lines:
                entry = json.loads(line)
                if entry["uri"] != "/robots.txt" and status in {None, entry["status"]}:
                    urls.append(f"{entry['scheme']}://{entry['host']}:{entry['port']}{entry['uri']}")
        return urls

    def check(self, min_gap: float, *, since: float = 0.0, agent: str = "outrider") -> tuple[int, str]:
        """The exit status and words of the tool's own judge: 0 when no request since then violated anything."""
        done = _tool("log-check", self.directory, "--min-gap", str(min_gap), "--since", str(since), "--agent", agent)
        return done.returncode, done.stdout + done.stderr

    def judged(self, min_gap: float, *, since: float = 0.0, agent: str = "outrider") -> dict[str, dict[str, Any]]:
        """The findings of the tool's own judge, host for host."""
        done = _tool(
            "log-check", self.directory, "--json", "--min-gap", str(min_gap), "--since", str(since), "--agent", agent
        )
        return {told["host"]: told for told in json.loads(done.stdout)["hosts_detail"]}


class _Links(HTMLParser):
    """The targets of a page's links, percent-encodings aside."""

    def __init__(self, url: str, text: str) -> None:
        super().__init__()
        self.base, self.found = url, set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        value = dict(attrs).get("src" if tag in {"frame", "iframe"} else "href")
        if value and tag in {"a", "area", "frame", "iframe"}:
            with contextlib.suppress(ValueError):
                self.found.add(unquote(urldefrag(urljoin(self.base, value.strip()))[0]))


@contextlib.contextmanager
def serving(
    preset: str = "small", *, robots: bool = True, latency: str | None = None, tls: bool = False
) -> Iterator[LocalWeb]:
    """Serves the preset until the block ends; builds it first if necessary (some 30 s and 45 MB of download).

    tls: every site is available by https alone. One process at a time: another one waits here. Raises RuntimeError
    with the tool's own message when it fails.
    """
    if not available():
        raise RuntimeError(f"{TOOL} is not there")
    name = f"{preset}{'' if robots else '-no-robots'}{'-tls' if tls else ''}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        directory = CACHE / name
        web = LocalWeb(directory)
        if not web.manifest.exists():
            http, https = PORTS[robots, tls]
            more = ("--http-port", str(http), "--https-port", str(https), "--debs", str(CACHE / "debs"))
            more += () if robots else ("--no-robots",)
            more += ("--https-share", "1") if tls else ()
            _must("build", directory, preset, *more)
            _must("manifest", directory, "--agent", "outrider")
        _tool("stop", directory, "docs")  # one that an earlier process could not end
        _must("serve", directory, "--daemon", *(("--latency", latency) if latency else ()))
        try:
            yield web
        finally:
            _must("stop", directory, "docs")


@contextlib.contextmanager
def synthetic(directory: Path, hosts: int, *options: str) -> Iterator[LocalWeb]:
    """Serves a made web without end until the block ends; its seeds are the first pages of all hosts."""
    directory.mkdir(parents=True, exist_ok=True)
    http, https = SYNTHETIC_PORTS
    ports = ("--http-port", str(http), "--https-port", str(https))
    _must("synth", directory, *ports, "--hosts", str(hosts), "--endless", "--daemon", *options)
    try:
        web = LocalWeb(directory)
        web.seeds.write_text("".join(f"http://h{row}.synth.test:{http}/\n" for row in range(hosts)), encoding="ascii")
        yield web
    finally:
        _must("stop", directory, "synth")


@contextlib.contextmanager
def misbehaving(directory: Path, http_port: int, https_port: int) -> Iterator[LocalWeb]:
    """Serves the hosts that misbehave until the block ends, from an empty directory."""
    directory.mkdir(parents=True)
    _must("faults", directory, "--http-port", str(http_port), "--https-port", str(https_port), "--daemon")
    try:
        yield LocalWeb(directory)
    finally:
        _must("stop", directory, "faults")


def _tool(verb: str, directory: Path, *rest: str) -> subprocess.CompletedProcess[str]:
    positional = [argument for argument in rest[:1] if verb in {"build", "stop"}]
    options = rest[len(positional) :]
    command = [sys.executable, str(TOOL), verb, *positional, "--dir", str(directory), *options]
    # Into a file: a daemon inherits the descriptor, and a pipe would stay open as long as it runs.
    with tempfile.TemporaryFile("w+") as said:
        code = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, timeout=BUILD_SECONDS_MAX, check=False
        ).returncode
        said.seek(0)
        return subprocess.CompletedProcess(command, code, said.read(), "")


def _must(verb: str, directory: Path, *rest: str) -> None:
    done = _tool(verb, directory, *rest)
    if done.returncode:
        raise RuntimeError(f"localweb {verb} failed with {done.returncode}:\n{done.stdout[-2_000:]}")
