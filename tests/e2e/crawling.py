"""Shared by the whole-crawl tests: a demo web, the command in a process of its own, and readers of its output."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from warcio.archiveiterator import ArchiveIterator

from outrider.sim.web import DemoServer, DemoWeb, RunningWeb

ROOT = Path(__file__).resolve().parents[2]


def _has_loopback_network() -> bool:
    with socket.socket() as one:
        try:
            one.bind(("127.20.0.2", 0))
        except OSError:
            return False
    return True


HOSTS_ON_LOOPBACK = pytest.mark.skipif(
    not _has_loopback_network(),
    reason="each host of the test web needs an address of its own in 127.0.0.0/8, and this system answers at 127.0.0.1"
    " only, as macOS does",
)


@contextmanager
def web(
    directory: Path, *, hosts: int = 8, pages: int = 80, seed: int = 3, quirks: bool = False, suffix: str = "demo.test"
) -> Iterator[RunningWeb]:
    """A demo web that answers until the block ends."""
    with DemoServer(
        lambda port: DemoWeb(seed, hosts, pages, port=port, quirks=quirks, suffix=suffix), directory
    ) as served:
        yield served


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "outrider", *map(str, arguments)]


def environment(**more: str) -> dict[str, str]:
    """The environment without any setting of the user."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OUTRIDER_")}
    kernels = os.environ.get("OUTRIDER_KERNELS")
    return {**kept, **({"OUTRIDER_KERNELS": kernels} if kernels else {}), **more}


def outrider(*arguments: str | Path, seconds: float = 90, stdin: str = "", **more: str) -> subprocess.CompletedProcess:
    """Runs the command to its end."""
    return subprocess.run(
        command(*arguments),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=seconds,
        cwd=ROOT,
        env=environment(**more),
        check=False,
    )


def started(*arguments: str | Path, **more: str) -> subprocess.Popen:
    """Starts the command in parallel to the test."""
    return subprocess.Popen(
        command(*arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        env=environment(**more),
    )


def on(served: RunningWeb, output: Path, *more: str) -> list[str]:
    """Returns the arguments of a crawl of this web, as fast as its hosts allow unless `more` says otherwise."""
    pace = [] if "--delay" in more else ["--delay", "0.05"]
    mapped = [] if "--sitemaps" in more else ["--no-sitemaps"]  # `must_fetch` reads none
    factor = [] if "--delay-factor" in more else ["--delay-factor", "0"]
    return [
        *("crawl", f"@{served.seeds_file}", "-o", str(output), "--hosts", str(served.hosts_file), "--progress", "none"),
        *pace,
        *factor,
        *mapped,
        *more,
    ]


def lines(path: Path) -> list[dict]:
    """Every line of a line file; a torn or doubled line fails here."""
    text = path.read_bytes()
    assert text == b"" or text.endswith(b"\n")
    return [json.loads(line) for line in text.splitlines()]


def pages(output: Path) -> list[dict]:
    return lines(output / "pages.jsonl")


def fetched(output: Path) -> set[str]:
    """The URLs with kept content."""
    return {page["url"] for page in pages(output) if page["outcome"] in ("done", "duplicate", "truncated")}


def doubled(output: Path) -> list[int]:
    """Returns the tokens that are on more than one page line."""
    counts = Counter(page["token"] for page in pages(output) if page["token"] is not None)
    return [token for token, count in counts.items() if count > 1]


def final_twice(output: Path) -> list[str]:
    """URLs with more than one line that says they are done."""
    final = ("done", "duplicate", "truncated", "redirect", "gone")
    counts = Counter(page["url"] for page in pages(output) if page["outcome"] in final)
    return [url for url, count in counts.items() if count > 1]


def archived(output: Path) -> dict[int, list[tuple[str, bytes]]]:
    """(URL, body) of the answers by token, read by a reader that is not ours."""
    found: dict[int, list[tuple[str, bytes]]] = {}
    for path in sorted((output / "archive").glob("*.warc.gz")):
        with path.open("rb") as file:
            for record in ArchiveIterator(file):
                if record.rec_type in ("response", "revisit"):
                    token = int(record.rec_headers.get_header("Outrider-Token"))
                    url = record.rec_headers.get_header("WARC-Target-URI")
                    found.setdefault(token, []).append((url, record.content_stream().read()))
    return found


def not_kept_once(output: Path) -> list[str]:
    """Returns the answered pages that are not exactly once in the archive, under their token and where their line
    says."""
    records = archived(output)
    problems = []
    for page in pages(output):
        if page["status"] is None:
            continue
        there = records.get(page["token"], [])
        if [page["url"]] != [url for url, _ in there]:
            problems.append(f"{page['url']}: {len(there)} records")
        elif page["warc"] is None:
            problems.append(f"{page['url']}: no place")
    return problems


def wait_for(condition, seconds: float = 20.0) -> None:
    """Waits for an act of another process."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def length_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def kill_when_longer(crawl: subprocess.Popen, path: Path, length: int) -> None:
    """Kills a crawl once its file of lines is longer, or at its end."""
    wait_for(lambda: crawl.poll() is not None or length_of(path) > length, seconds=120)
    crawl.kill()
    crawl.wait(60)


def host_and_path(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.hostname or "", (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
