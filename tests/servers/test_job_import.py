"""Job directories of Scrapy's own scheduler, of stopped and of killed spiders: imported, and crawled to the end."""

from __future__ import annotations

import json
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from e2e.crawling import outrider, wait_for
from e2e.loopback import site
from servers.trees import asked, tree

SPIDERS = Path(__file__).with_name("spiders.py")
PAGES, MANY_PAGES = 120, 3_000
IN_FLIGHT = 16  # CONCURRENT_REQUESTS
END_SECONDS_MAX = 500
QUEUES = {
    "files": {},
    "SQLite": {
        "SCHEDULER_DISK_QUEUE": "scrapy.squeues.PickleLifoSQLiteQueue",
        "SCHEDULER_START_DISK_QUEUE": "scrapy.squeues.PickleFifoSQLiteQueue",
    },
    "one queue for all hosts": {"SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.ScrapyPriorityQueue"},
}
THEIRS = {"SCHEDULER": "scrapy.core.scheduler.Scheduler", "DUPEFILTER_CLASS": "scrapy.dupefilters.RFPDupeFilter"}


@pytest.fixture
def start(python, tmp_path):
    """Starts the spider with these settings."""
    running = []

    def started(root, **settings):
        words = [python, str(SPIDERS), "plain", root, json.dumps(settings)]
        running.append(subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path))
        return running[-1]

    yield started
    for process in running:
        process.kill()
        process.communicate()


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("queue", QUEUES)
@pytest.mark.parametrize(
    ("end", "pages"),
    [
        (signal.SIGTERM, PAGES),
        (signal.SIGKILL, PAGES),
        pytest.param(signal.SIGKILL, MANY_PAGES, marks=pytest.mark.long),
    ],
)
def test_an_imported_job_directory_is_crawled_to_its_end(start, tmp_path, queue, end, pages):
    job, store = tmp_path / "job", tmp_path / "job" / "outrider"
    with site(tree(pages)) as web:
        process = start(web.root, JOBDIR=str(job), **THEIRS, **QUEUES[queue], CONCURRENT_REQUESTS_PER_DOMAIN=2)
        wait_for(lambda: len(web.requests) >= pages // 4, seconds=END_SECONDS_MAX)
        process.send_signal(end)
        process.communicate(timeout=60)
        before = Counter(asked(web))
        done = outrider("import", store, job, "--spider", "plain")
        assert 0 == done.returncode, done.stderr
        assert ("was killed" in done.stderr) == (end == signal.SIGKILL)
        again = outrider("import", store, job, "--spider", "plain")
        assert again.stdout.startswith("0 requests, 0 seen before"), again.stdout
        out, log = start(web.root, JOBDIR=str(job)).communicate(timeout=END_SECONDS_MAX)
        assert "finished" == json.loads(out.splitlines()[-1])["finish_reason"], log
        found = Counter(asked(web))
    assert {"/", *(f"/{number}" for number in range(1, pages))} == set(found)
    assert before.total() < pages
    print(f"{before.total()} requests before, {found.total()} at the end, {pages:,} pages")
    if end == signal.SIGTERM:  # each page once, but for the start page and what was sent when it stopped
        assert found.total() <= pages + 2 + IN_FLIGHT
    assert 0 == outrider("verify", store).returncode
