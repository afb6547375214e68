"""Spiders of Scrapy that are killed at a quarter of a site of 3,000 pages: pages and items at the end, by the server's
log. docs/howto/scrapy.md has the promises that are tested."""

from __future__ import annotations

import json
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from e2e.crawling import wait_for
from e2e.loopback import site
from servers.trees import asked, tree

SPIDERS = Path(__file__).with_name("spiders.py")
PAGES = 3_000
QUARTER = PAGES // 4
ALL = {"/", *(f"/{number}" for number in range(1, PAGES))}
IN_FLIGHT = 16  # CONCURRENT_REQUESTS
FEED_BUFFER_BYTES = 1 << 17  # a file has this buffer in Python 3.14; before, it is a block of the file system
SPIDERS_OF_SERVER = 8
LEASES_OF_HOST = 64  # all spiders have them together
END_SECONDS_MAX = 500
THEIRS = {"SCHEDULER": "scrapy.core.scheduler.Scheduler", "DUPEFILTER_CLASS": "scrapy.dupefilters.RFPDupeFilter"}
QUEUES = {
    "plain": {},
    "SQLite": {
        "SCHEDULER_DISK_QUEUE": "scrapy.squeues.PickleLifoSQLiteQueue",
        "SCHEDULER_START_DISK_QUEUE": "scrapy.squeues.PickleFifoSQLiteQueue",
    },
}


@pytest.fixture
def start(python, tmp_path):
    """Starts a spider. It logs to a file, because a pipe that the test does not read would stop it."""
    running = []

    def started(root, **settings):
        words = [python, str(SPIDERS), "plain", root, json.dumps({"ours": "written", **settings})]
        log = (tmp_path / f"{len(running)}.log").open("w")
        running.append(subprocess.Popen(words, stdout=log, stderr=log, cwd=tmp_path))
        log.close()
        return running[-1]

    yield started
    for process in running:
        if process.poll() is None:
            process.kill()
            process.wait()


def killed_at_a_quarter(web, processes):
    wait_for(lambda: len(web.requests) >= QUARTER, seconds=END_SECONDS_MAX)
    for process in processes:
        process.send_signal(signal.SIGKILL)
    for process in processes:
        assert -signal.SIGKILL == process.wait(), "it ended before the kill"


def items_of(path):
    """The URLs of the items in a file of lines; a line that is cut fails here."""
    return Counter(json.loads(line)["url"] for line in path.read_text().splitlines())


def kept(folder):
    """Settings that keep requests and items in a folder."""
    folder.mkdir()
    return {
        "JOBDIR": str(folder / "job"),
        "WRITTEN": str(folder / "written.jsonl"),
        "FEEDS": {str(folder / "feed.jsonl"): {"format": "jsonlines"}},
    }


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("times", [3, pytest.param(20, marks=pytest.mark.long)])
def test_a_spider_that_is_killed_at_a_quarter_gets_all_pages(start, tmp_path, times):
    """A pipeline that writes at once loses no item. A feed loses what is in its buffer, and nothing else."""
    for number in range(times):
        written, feed = (tmp_path / str(number) / name for name in ("written.jsonl", "feed.jsonl"))
        with site(tree(PAGES)) as web:
            settings = kept(tmp_path / str(number))
            killed_at_a_quarter(web, [start(web.root, **settings)])
            lost = items_of(written) - items_of(feed)
            lost_bytes = written.stat().st_size - feed.stat().st_size
            assert 0 == start(web.root, **settings).wait(END_SECONDS_MAX)
            total, urls = Counter(asked(web)), {web.root + path for path in ALL}
        again = total.total() - PAGES - 1  # the start page is a page of its own for Scrapy
        items, in_feed = items_of(written), items_of(feed)
        twice = items.total() - PAGES - 1
        assert ALL == set(total)
        assert 0 <= again <= 2 * IN_FLIGHT
        assert urls == set(items)
        assert 0 <= twice <= again
        assert items - lost <= in_feed <= items  # nothing else is missing, and nothing else is there twice
        assert lost_bytes <= FEED_BUFFER_BYTES
        print(f"{again} pages fetched again; items: {twice} twice, {len(urls - set(in_feed))} missing in the feed")


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("queue", QUEUES)
def test_the_job_directories_of_scrapy_lose_pages_in_the_same_way(start, tmp_path, queue):
    """The comparison: findings/scrapy-jobdir-kill.sh has the reason."""
    with site(tree(PAGES)) as web:
        settings = kept(tmp_path / "own") | THEIRS | QUEUES[queue]
        killed_at_a_quarter(web, [start(web.root, **settings)])
        assert 0 == start(web.root, **settings).wait(END_SECONDS_MAX)
        found = set(asked(web))
    print(f"{len(found)} of {PAGES:,} pages")
    assert len(found) < PAGES


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("killed", [SPIDERS_OF_SERVER // 2, SPIDERS_OF_SERVER])
def test_spiders_that_are_killed_on_one_server_lose_nothing(start, served, tmp_path, killed):
    """Some of them, which the others replace; or all of them, which are started again."""
    address, _ = served()
    common = {"OUTRIDER_FRONTIER": address, "CONCURRENT_REQUESTS_PER_DOMAIN": LEASES_OF_HOST}
    files = [tmp_path / f"{number}.jsonl" for number in range(SPIDERS_OF_SERVER)]
    settings = [common | {"WRITTEN": str(file)} for file in files]
    for file in files:
        file.touch()
    with site(tree(PAGES)) as web:
        spiders = [start(web.root, **one) for one in settings]
        killed_at_a_quarter(web, spiders[:killed])
        left = spiders[killed:] or [start(web.root, **one) for one in settings]
        assert [0] * len(left) == [process.wait(END_SECONDS_MAX) for process in left]
        total, urls = Counter(asked(web)), {web.root + path for path in ALL}
    again = total.total() - total["/robots.txt"] - total["/"] - (PAGES - 1)
    items = sum(map(items_of, files), Counter())
    print(f"{again} pages fetched again, {items.total() - PAGES - 1} items twice")
    assert ALL == set(total) - {"/robots.txt"}
    assert 0 <= again <= LEASES_OF_HOST
    assert urls == set(items)
