"""The wall clock is set between a kill and `resume`: the crawl keeps its gaps, and its record proves it."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from e2e import crawling
from e2e.loopback import MISSING, Answer, site

CLOCKED = Path(__file__).with_name("clocked_outrider.py")
RETRY_AFTER = 4


def refusing_once() -> Callable[[str, str], Answer]:
    """The answers of a site whose page /1 refuses its first request for `RETRY_AFTER` seconds."""
    refused = threading.Event()

    def answer(_: str, target: str) -> Answer:
        if target == "/robots.txt":
            return MISSING
        if target == "/1" and not refused.is_set():
            refused.set()
            return Answer(status=503, fields={"Retry-After": str(RETRY_AFTER)})
        return Answer("<a href=/1></a><a href=/2></a><a href=/3></a>" if target == "/" else target)

    return answer


def text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def openings(output: Path) -> int:
    """How often the store was opened, by the journal."""
    return text(output / "crawl.log").count(" opening=")


STEPS = [(-2.0,), (2.0,), (-90_000.0,), (-1.0, -2.5)]


def test_a_record_proves_the_gaps_wherever_the_wall_clock_was_set_between_runs(tmp_path):
    """The crawls run at once, for they mostly wait."""
    with ThreadPoolExecutor(len(STEPS)) as threads:
        runs = {steps: threads.submit(prove, steps, tmp_path / str(place)) for place, steps in enumerate(STEPS)}
        assert dict.fromkeys(STEPS) == {steps: run.exception() for steps, run in runs.items()}


def prove(steps: tuple[float, ...], output: Path) -> None:
    with site(refusing_once()) as server:
        options = ("--delay", "0.2", "--no-sitemaps", "--progress", "none")
        command = crawling.command("crawl", f"{server.root}/", "-o", output, *options)
        run = subprocess.Popen(command, env=crawling.environment())
        crawling.wait_for(lambda: server.asked["/1"])
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
    first = [path for path, _ in server.requests].index("/1")
    refused_at, *later = [at for _, at in server.requests[first:]]
    assert {"/1", "/2", "/3"} <= {*server.asked}
    assert min(later) - refused_at >= RETRY_AFTER
    proved = crawling.outrider("politeness", output)
    assert 0 == proved.returncode, proved.stdout + proved.stderr
