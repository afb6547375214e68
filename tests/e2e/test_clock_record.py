"""The wall clock is set between a kill and `resume`: the crawl keeps its gaps, and its record proves it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from e2e import crawling

CLOCKED = Path(__file__).with_name("clocked_outrider.py")
RETRY_AFTER = 4


@contextmanager
def refusing() -> Iterator[tuple[str, list[tuple[str, float]]]]:
    """A site whose page /1 refuses its first request for `RETRY_AFTER` seconds: its URL, and its requests with their
    instants."""
    asked: list[tuple[str, float]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            first = all(path != self.path for path, _ in asked)
            asked.append((self.path, time.monotonic()))
            refused = self.path == "/1" and first
            body = b"<a href=/1></a><a href=/2></a><a href=/3></a>" if self.path == "/" else self.path.encode()
            self.send_response(404 if self.path == "/robots.txt" else 503 if refused else 200)
            if refused:
                self.send_header("Retry-After", str(RETRY_AFTER))
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *told: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/", asked
    finally:
        server.shutdown()
        server.server_close()


def text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def openings(output: Path) -> int:
    """How often the store was opened, by the journal."""
    return text(output / "crawl.log").count(" opening=")


@pytest.mark.parametrize("steps", [(-2.0,), (2.0,), (-90_000.0,), (-1.0, -2.5)])
def test_a_record_proves_the_gaps_wherever_the_wall_clock_was_set_between_runs(steps, tmp_path):
    output = tmp_path / "out"
    with refusing() as (url, asked):
        arguments = ["crawl", url, "-o", str(output), "--delay", "0.2", "--no-sitemaps", "--progress", "none"]
        run = subprocess.Popen(crawling.command(*arguments), env=crawling.environment())
        crawling.wait_for(lambda: any(path == "/1" for path, _ in asked))
        for opening, step in enumerate(steps, 1):
            crawling.wait_for(
                lambda opening=opening: (
                    openings(output) == opening and '"status":503' in text(output / "politeness.jsonl")
                )
            )
            run.kill()
            run.wait()
            run = subprocess.Popen(
                [sys.executable, str(CLOCKED), "wrong", str(step), "resume", str(output), "--progress", "none"],
                env=crawling.environment(),
            )
        assert 0 == run.wait(60)
    first = [path for path, _ in asked].index("/1")
    refused_at, *later = [at for _, at in asked[first:]]
    assert {"/1", "/2", "/3"} <= {path for path, _ in asked}
    assert min(later) - refused_at >= RETRY_AFTER
    proved = crawling.outrider("politeness", output)
    assert 0 == proved.returncode, proved.stdout + proved.stderr
