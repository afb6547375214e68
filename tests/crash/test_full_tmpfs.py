"""A real disk of 64 MB becomes full: discover is refused, leases and reports continue, and with space all continues."""

from __future__ import annotations

import contextlib
import random
import subprocess
from pathlib import Path

import pytest

from crash.mounting import fill, tmpfs
from e2e import crawling
from model.world import Clock
from outrider import Frontier
from outrider.errors import StoreFullError
from outrider.sim.verdict import judge
from outrider.sim.web import RunningWeb

MEGABYTES = 64
SETTINGS = {"delay": 1.0, "delay_factor": 0}


def some(turn: int) -> list[str]:
    """A hundred URLs that no compression makes small."""
    chance = random.Random(turn)
    return [f"http://h{n}.com/{turn}/{chance.randbytes(500).hex()}" for n in range(100)]


def refused(frontier: Frontier, first: int) -> tuple[set[str], StoreFullError]:
    """Discovers until the frontier refuses: the accepted URLs, and the refusal."""
    accepted: set[str] = set()
    for turn in range(first, first + 5_000):
        urls = some(turn)
        try:
            assert {"new"} == set(map(str, frontier.discover(urls)))
        except StoreFullError as error:
            return accepted, error
        accepted.update(urls)
    raise AssertionError("it was never full")


def test_on_a_full_tmpfs_puts_are_refused_leases_and_reports_continue_and_all_resumes_by_itself(tmp_path):
    clock = Clock()
    with tmpfs(tmp_path, MEGABYTES) as place:
        others = place / "others"
        others.write_bytes(b"x" * (40 << 20))
        frontier = Frontier.open(place / "store", clock=clock, settings=SETTINGS, robots="caller")
        accepted, refusal = refused(frontier, 0)
        assert (True, 7) == (refusal.retryable, refusal.exit_code)
        assert len(accepted) > 3_000, "what the disk has is used"
        fill(place)

        done: set[str] = set()
        for _ in range(20):
            leases = frontier.lease(50)
            assert 50 == len(leases)
            assert {"ok"} == set(map(str, frontier.report([lease.done(seconds=0.0) for lease in leases])))
            done.update(leases.urls)
            clock.move(1)
        with pytest.raises(StoreFullError):
            frontier.discover(some(-1))
        assert {"unknown"} == {str(frontier.status(url).state) for url in some(-1)}

        others.unlink()
        (place / "filler").unlink()
        for _ in range(40):  # it looks for space now and then, not at every call
            with contextlib.suppress(StoreFullError):
                frontier.discover(some(-1))
                break
        accepted.update(some(-1))
        more, _ = refused(frontier, 10_000)
        assert len(more) > 5_000, "and what came back as well"
        accepted |= more
        frontier.close()

        # On a disk that is still full: everything answered is there, and it can be opened.
        with Frontier.open(place / "store", clock=clock, settings=SETTINGS, robots="caller") as frontier:
            assert {"done"} == {str(frontier.status(url).state) for url in done}
            some_left = random.Random(0).sample(sorted(accepted - done), 2_000)
            assert {"queued"} == {str(frontier.status(url).state) for url in some_left}
            assert len(accepted) == frontier.statistics()["accepted"]
            assert frontier.verify().ok


DELAY = 0.1


def started_and_filled(served: RunningWeb, place: Path, output: Path) -> subprocess.Popen[bytes]:
    """A crawl under way, on a disk that another program has just filled."""
    with place.with_name("talk").open("wb") as talk:
        crawl = subprocess.Popen(
            crawling.command(*crawling.on(served, output, "--delay", str(DELAY), "--progress", "log")),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=talk,
            cwd=crawling.ROOT, env=crawling.environment(),
        )  # fmt: skip
    pages = output / "pages.jsonl"
    crawling.wait_for(lambda: pages.exists() and pages.read_bytes().count(b"\n") > 20)
    fill(place)
    assert crawl.poll() is None, "it was not over yet"
    return crawl


def judged(served: RunningWeb, output: Path) -> None:
    """As after any crawl: polite, all there, each page once."""
    verdict = judge(served.log_file, delay=DELAY)
    assert [] == verdict.breaches
    assert served.web.must_fetch() == crawling.fetched(output)
    assert ([], []) == (crawling.doubled(output), crawling.final_twice(output))
    assert [] == crawling.not_kept_once(output)
    with Frontier.look(output / "frontier") as frontier:
        assert () == frontier.verify().problems


def test_a_crawl_on_a_full_tmpfs_waits_and_continues_by_itself_when_there_is_space(tmp_path):
    with tmpfs(tmp_path, MEGABYTES) as place, crawling.web(tmp_path / "web", hosts=6, pages=150) as served:
        output = place / "out"
        crawl = started_and_filled(served, place, output)
        talk = place.with_name("talk")
        crawling.wait_for(lambda: b"for space" in talk.read_bytes())  # crawl.log has no room for that
        assert "disk        full: new URLs and pages wait" in crawling.outrider("status", output).stdout
        (place / "filler").unlink()
        assert 0 == crawl.wait(60)
        judged(served, output)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_crawl_on_a_tmpfs_that_stays_full_ends_with_7_and_is_resumed(tmp_path):
    with tmpfs(tmp_path, MEGABYTES) as place, crawling.web(tmp_path / "web", hosts=6, pages=150) as served:
        output = place / "out"
        crawl = started_and_filled(served, place, output)
        assert 7 == crawl.wait(120)
        with Frontier.look(output / "frontier") as frontier:
            assert 0 == frontier.statistics()["urls"]["leased"], "what was under way was reported"
        (place / "filler").unlink()
        done = crawling.outrider("resume", output)
        assert 0 == done.returncode, done.stderr
        judged(served, output)
