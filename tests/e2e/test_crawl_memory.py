"""Crawls whose seen keys go to disk, from the beginning or after a crash, beside one that keeps them in memory."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

from e2e import crawling

HERE = Path(__file__).parent


def command(counter: Path, *words: str | Path) -> list[str]:
    return [sys.executable, str(HERE / "spilling_outrider.py"), str(counter), *map(str, words)]


def crawled(folder: Path, *words: str | Path) -> tuple[int, int]:
    """Returns the exit code, and how many runs of seen keys were written."""
    counter = folder / "runs"
    done = subprocess.run(
        command(counter, *words), env=crawling.environment(), capture_output=True, timeout=90, check=False
    )
    return done.returncode, int(counter.read_text())


def result(output: Path) -> tuple[Counter[tuple[str, str]], list[str]]:
    """The outcome of each page, and what must not be."""
    pages = Counter((page["url"], page["outcome"]) for page in crawling.pages(output))
    return pages, [*map(str, crawling.doubled(output)), *crawling.final_twice(output)]


def killed(served: crawling.RunningWeb, output: Path, *words: str) -> None:
    """Begins a crawl, and kills it once it has written some pages."""
    begun = subprocess.Popen(
        command(output.parent / "runs", *words), env=crawling.environment(), stderr=subprocess.DEVNULL
    )
    written = output / "pages.jsonl"
    crawling.wait_for(
        lambda: begun.poll() is not None or (written.exists() and written.read_bytes().count(b"\n") > 60), seconds=60
    )
    begun.send_signal(signal.SIGKILL)
    assert -9 == begun.wait(60)


def test_a_crawl_whose_seen_keys_are_on_disk_has_the_same_pages_counts_and_exit_code(tmp_path):
    with crawling.web(tmp_path / "web", hosts=6, pages=150) as served:
        large, small, lowered = (tmp_path / name for name in ("large", "small", "lowered"))
        pace = ("--delay", "0.02", "--memory")
        code, runs = crawled(tmp_path, *crawling.on(served, large, *pace, "2G"))
        assert (0, 0) == (code, runs)
        expected, wrong = result(large)
        assert (served.web.must_fetch(), []) == (crawling.fetched(large), wrong)
        code, runs = crawled(tmp_path, *crawling.on(served, small, *pace, "64M"))
        assert (0, True) == (code, runs > 0)
        assert (expected, []) == result(small)
        killed(served, lowered, *crawling.on(served, lowered, *pace, "2G"))
        code, runs = crawled(tmp_path, "resume", lowered, "--memory", "64M")
        assert (0, True) == (code, runs > 0)
        pages, wrong = result(lowered)
        assert (set(expected), []) == (set(pages), wrong)
