"""The web of whole crawls: real pages served by nginx if they are available, otherwise the bundled web."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote

from tests.e2e import localweb

from bench.measuring import ROOT
from outrider.sim.web import DemoWeb

PLAIN_HOSTS, PLAIN_PAGES = 40, 4_000
LOG_FLUSH_SECONDS = 1.5  # nginx keeps its log in memory for this time


class BenchWeb(Protocol):
    """A served web: the needs of a crawler, the required pages, and its requests."""

    title: str
    seeds: Path
    hosts: Path
    must_fetch: frozenset[str]

    def mark(self) -> int:
        """Returns the present end of the server's log."""

    def got(self, mark: int) -> list[str]:
        """Returns the URLs answered with 200 since then, in order."""


@dataclass(frozen=True)
class RealPages:
    """Serves the reference web of the parent folder, without robots rules, which would limit the rate."""

    web: localweb.LocalWeb
    title: str
    must_fetch: frozenset[str]

    @property
    def seeds(self) -> Path:
        return self.web.seeds

    @property
    def hosts(self) -> Path:
        return self.web.hosts

    @property
    def authority(self) -> Path:
        return self.web.authority

    def mark(self) -> int:
        time.sleep(LOG_FLUSH_SECONDS)
        return self.web.log.stat().st_size if self.web.log.exists() else 0

    def got(self, mark: int) -> list[str]:
        time.sleep(LOG_FLUSH_SECONDS)
        return self.web.asked(mark, status=200)


@dataclass(frozen=True)
class MadePages:
    """Serves the bundled web with more pages and without misbehaviour. Its server is Python and may limit the rate."""

    title: str
    seeds: Path
    hosts: Path
    log: Path
    must_fetch: frozenset[str]

    def mark(self) -> int:
        return self.log.stat().st_size

    def got(self, mark: int) -> list[str]:
        with self.log.open(encoding="utf-8") as lines:
            lines.seek(mark)
            entries = [json.loads(line) for line in lines]
        scheme, _, authority, *_ = self.seeds.read_text(encoding="ascii").split("/")
        port = authority.rpartition(":")[2]
        return [
            f"{scheme}//{entry['host']}:{port}{unquote(entry['path'])}"  # some links of this web spell %6e for n
            for entry in entries
            if entry["status"] == 200 and entry["path"] != "/robots.txt"
        ]


@contextmanager
def serving_tls(preset: str) -> Iterator[RealPages | None]:
    """Serves the real pages only by https until the block ends. Yields None if they are missing."""
    if not localweb.available():
        yield None
        return
    with localweb.serving(preset, robots=False, tls=True) as web:
        yield RealPages(web, f"real documentation pages on {_hosts(web.hosts)} hosts, nginx, TLS", web.must_fetch())


@contextmanager
def serving(directory: Path, preset: str = "small") -> Iterator[BenchWeb]:
    """Serves one of the two until the block ends. preset: the size of the real one, `small` or `medium`."""
    if localweb.available():
        with localweb.serving(preset, robots=False) as web:
            must = web.must_fetch()
            yield RealPages(web, f"real documentation pages on {_hosts(web.hosts)} hosts, nginx", must)
        return
    command = [sys.executable, "-m", "outrider.sim.web", "--directory", str(directory), "--plain"]
    command += ["--hosts", str(PLAIN_HOSTS), "--pages", str(PLAIN_PAGES)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        ready = json.loads(child.stdout.readline())
        must = DemoWeb(hosts=PLAIN_HOSTS, pages=PLAIN_PAGES, port=ready["port"], quirks=False).must_fetch()
        title = f"the bundled web, {PLAIN_HOSTS} hosts"
        try:
            yield MadePages(title, Path(ready["seeds"]), Path(ready["hosts"]), Path(ready["log"]), must)
        finally:
            child.stdin.close()


def _hosts(path: Path) -> int:
    return len({line.split()[1] for line in path.read_text().splitlines() if line and not line.startswith("#")})
