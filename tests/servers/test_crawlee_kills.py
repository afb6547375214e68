"""Crawlers of Crawlee that are killed at a quarter of a site of 3,000 pages: the pages and gaps at the end, by the
server's log. docs/howto/crawlee.md has the promises that are tested."""

from __future__ import annotations

import json
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from e2e.crawling import outrider, wait_for
from e2e.loopback import site
from servers.trees import asked, gaps, tree

CRAWLERS = Path(__file__).with_name("crawlers.py")
PAGES = 3_000
QUARTER = PAGES // 4
ALL = {"/", *(f"/{number}" for number in range(1, PAGES))}
IN_FLIGHT = 10  # the concurrency of crawlers.py
DELAY = 0.05
GAP_MIN = DELAY - 0.005  # the clocks of two processes
END_SECONDS_MAX = 600
FAST = {"delay_seconds": 0.0, "requests_per_host": IN_FLIGHT}


@pytest.fixture
def start(python, tmp_path):
    """Starts a crawler. It writes to a file, because a pipe that the test does not read would stop it."""
    running = []

    def started(root, place, **settings):
        words = [python, str(CRAWLERS), root, str(place), json.dumps(settings)]
        file = tmp_path / f"{len(running)}.out"
        with file.open("w") as out:
            running.append(subprocess.Popen(words, stdout=out, stderr=out, cwd=tmp_path))
        return running[-1], file

    yield started
    for process in running:
        if process.poll() is None:
            process.kill()
            process.wait()


@pytest.fixture
def killed_and_continued(start):
    """Kills a crawler at a quarter, and starts it again: its counts at the end."""

    def done(web, place, **settings):
        process, _ = start(web.root, place, **settings)
        wait_for(lambda: len(web.requests) >= QUARTER, seconds=END_SECONDS_MAX)
        process.send_signal(signal.SIGKILL)
        assert -signal.SIGKILL == process.wait(), "it ended before the kill"
        process, out = start(web.root, place, **settings)
        assert 0 == process.wait(END_SECONDS_MAX), out.read_text()
        return json.loads(out.read_text().splitlines()[-1])

    return done


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("times", [3, pytest.param(20, marks=pytest.mark.long)])
def test_a_crawler_that_is_killed_at_a_quarter_gets_all_pages(killed_and_continued, tmp_path, times):
    for number in range(times):
        store = tmp_path / f"store{number}"
        with site(tree(PAGES)) as web:
            counts = killed_and_continued(web, store, **FAST)
            found = Counter(asked(web))
        again = found.total() - PAGES
        print(f"{again} pages fetched again")
        assert ALL == set(found)
        assert 0 <= again <= IN_FLIGHT
        assert (True, PAGES) == (counts["finished"], counts["handled"])
        assert 0 == outrider("verify", store).returncode


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_no_gap_of_a_site_is_broken_by_a_kill(killed_and_continued, tmp_path):
    """The politeness log of the same site: each gap between two requests, also over the kill."""
    with site(tree(PAGES)) as web:
        killed_and_continued(web, tmp_path / "store", delay_seconds=DELAY)
        found, targets = sorted(gaps(web)), asked(web)
    median = found[len(found) // 2]
    print(f"{len(found):,} gaps: the shortest {found[0] * 1e3:.1f} ms, median {median * 1e3:.1f} ms, delay {DELAY} s")
    assert ALL == set(targets)
    assert len(targets) <= PAGES + 1  # one request at a time
    assert found[0] >= GAP_MIN


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_files_of_crawlee_after_the_same_kill(killed_and_continued, tmp_path):
    """The comparison: Crawlee's own queue in files."""
    with site(tree(PAGES)) as web:
        counts = killed_and_continued(web, tmp_path / "own", own=True)
        found = Counter(asked(web))
    print(f"{len(found):,} of {PAGES:,} pages, {found.total() - len(found)} fetched again, {counts}")
    assert ALL == set(found)
    assert found.total() - PAGES <= IN_FLIGHT
