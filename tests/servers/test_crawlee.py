"""Crawlers of Crawlee with our request manager, on loopback: the cases of its own queues, kills, and gaps."""

from __future__ import annotations

import json
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from e2e.crawling import outrider, wait_for
from e2e.loopback import MISSING, Answer, site
from servers.trees import ARRIVAL_SECONDS, asked, gaps, tree

HERE = Path(__file__).parent
END_SECONDS_MAX = 400.0
IN_FLIGHT = 10  # the concurrency of crawlers.py

CASES = {
    "first_come_first_served": ["a", "b", "c"],
    "forefront_is_first": ["c", "a", "b"],
    "a_known_request_moves_to_the_front": ["b", "a"],
    "answers_of_adding": [[False, False], [True, False], [True, False], [True, True]],
    "the_first_of_equal_requests_stays": [1, "same", True],
    "equal_urls_with_other_unique_keys_are_other_requests": ["a", "a", "a"],
    "a_reclaimed_request_is_last_with_its_new_state": [[True, False], "http://site.test/a", 1],
    "a_request_reclaimed_to_the_front_is_next": ["a", "b", "c"],
    "a_reclaimed_forefront_request_can_go_to_the_end": ["b", "c", "a"],
    "requests_that_are_not_in_progress": [None, None, ["a"]],
    "empty_and_finished": [[True, True], [False, False], [True, False], [False, False], [True, True]],
    "counts": [1, 3],
    "all_fields_are_kept": [True, 7, "page", 3],
    "a_purged_queue_is_empty_and_accepts_the_same_requests": [True, 0, [False, False], ["a"]],
    "a_text_is_a_request": [[False, False], ["a"]],
}


@pytest.mark.parametrize("kind", ["memory", "files", "ours"])
def test_a_queue_passes_the_cases(kind, python, tmp_path):
    """The first two kinds are Crawlee's own queues, so the cases say what Crawlee does."""
    words = [python, str(HERE / "queue_cases.py"), kind, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert 0 == done.returncode, done.stderr
    assert CASES == json.loads(done.stdout)


@pytest.fixture
def start(python, tmp_path):
    """Starts a crawler."""
    running = []

    def started(root, place=None, **settings):
        place = str(tmp_path / "store") if place is None else place
        words = [python, str(HERE / "crawlers.py"), root, place, json.dumps(settings)]
        running.append(subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path))
        return running[-1]

    yield started
    for process in running:
        process.kill()
        process.communicate()


@pytest.fixture
def run(start):
    """Runs a crawler to its end: its counts."""

    def done(root, place=None, **settings):
        out, log = start(root, place, **settings).communicate(timeout=END_SECONDS_MAX)
        assert out, log
        return json.loads(out)

    return done


def test_a_crawler_that_is_killed_twice_gets_all_pages(start, run, tmp_path):
    pages, fast = 150, {"delay_seconds": 0.0, "requests_per_host": IN_FLIGHT}
    with site(tree(pages)) as web:
        for least in (30, 70):
            process = start(web.root, **fast)
            wait_for(lambda least=least: len(web.requests) >= least, seconds=END_SECONDS_MAX)
            process.send_signal(signal.SIGKILL)
            process.wait()
        before = len(web.requests)
        counts = run(web.root, **fast)
        found = Counter(asked(web))
        assert 0 == run(web.root, **fast)["pages"]
    assert {"/", *(f"/{number}" for number in range(1, pages))} == set(found)
    assert before < pages
    assert found.total() <= pages + 2 * IN_FLIGHT
    assert {"failed": 0, "finished": True, "handled": pages} == {
        name: counts[name] for name in counts if name != "pages"
    }
    assert 0 == outrider("verify", tmp_path / "store").returncode


def test_no_gap_is_broken_by_kills(start, run):
    delay = 0.3
    with site(tree(14)) as web:
        for least in (3, 6, 9):
            process = start(web.root, delay_seconds=delay)
            wait_for(lambda least=least: len(web.requests) >= least)
            process.kill()
            process.wait()
        run(web.root, delay_seconds=delay)
        found = sorted(gaps(web))
        assert 14 == len(set(asked(web)))
    assert found[0] >= delay - ARRIVAL_SECONDS
    # A request is sent when it is due, not half a second later. On a busy machine some are late.
    assert found[len(found) // 4] < delay + 0.1


def test_retry_after_delays_a_host_and_costs_no_retry(run):
    seen = Counter()

    def answer(host, target):
        seen[target] += 1
        if target == "/busy" and seen[target] == 1:
            return Answer("", 429, {"Retry-After": "2"})
        return Answer('<a href="/busy">x</a>')

    with site(answer) as web:
        counts = run(web.root, delay_seconds=0.1)
        targets, found = asked(web), gaps(web)
    assert ["/", "/busy", "/busy"] == targets
    assert found[1] >= 1.9
    assert {"pages": 2, "failed": 0, "finished": True, "handled": 2} == counts


def test_crawl_delay_is_obeyed(run):
    pages = tree(4)

    def answer(host, target):
        robots = Answer("User-agent: *\nCrawl-delay: 1\n", content_type="text/plain")
        return robots if target == "/robots.txt" else pages(host, target)

    with site(answer) as web:
        run(web.root, delay_seconds=0.1, robots=True)
        targets, found = asked(web), gaps(web)
    assert ["/robots.txt", "/"] == targets[:2]
    assert min(found[1:]) >= 0.95


def test_a_page_that_fails_is_failed_and_listed(run, tmp_path):
    with site(lambda host, target: Answer('<a href="/gone">x</a>') if target == "/" else MISSING) as web:
        counts = run(web.root, delay_seconds=0.0)
    assert {"pages": 1, "failed": 1, "finished": True, "handled": 2} == counts
    assert "/gone" in outrider("urls", tmp_path / "store", "--state", "gone").stdout


def test_crawlers_share_a_served_frontier(start, served):
    pages = 40
    with site(tree(pages)) as web:
        address, _ = served()
        crawlers = [start(web.root, address, delay_seconds=0.0, requests_per_host=4) for _ in range(2)]
        for process in crawlers:
            out, log = process.communicate(timeout=100)
            assert json.loads(out)["finished"], log
        found = Counter(asked(web))
    assert 1 == found.pop("/robots.txt", 1)  # the server requests it
    assert dict.fromkeys(["/", *(f"/{number}" for number in range(1, pages))], 1) == found


def test_a_store_in_use_and_wrong_options_are_refused(start, tmp_path):
    with site(tree(40)) as web:
        first = start(web.root)
        wait_for(lambda: web.requests)
        _, log = start(web.root).communicate(timeout=60)
        assert "in use" in log
        first.kill()
        for options, message in (
            ({"token": "secret"}, "token and ca are only for a server"),
            ({"requests_per_host": 0}, "requests_per_host is 0; use 1 or more"),
        ):
            _, log = start(web.root, str(tmp_path / "other"), **options).communicate(timeout=60)
            assert message in log
