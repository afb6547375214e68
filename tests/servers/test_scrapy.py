"""Spiders of Scrapy with our scheduler and duplicate filter, on loopback: kills, restarts, each trap of a scheduler."""

from __future__ import annotations

import contextlib
import json
import signal
import statistics
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from e2e.crawling import HOSTS_ON_LOOPBACK, outrider, wait_for
from e2e.loopback import MISSING, Answer, site
from servers.trees import ARRIVAL_SECONDS, asked, gaps, tree

SPIDERS = Path(__file__).with_name("spiders.py")
SLOW_SECONDS_MAX = 20.0
LATE_SECONDS_MAX = 0.06  # from due to sent
RATE_MIN = 0.95  # share of the possible rate, on a busy machine; a quiet one has 97 % and more
MODULE_OBJECTS_MIN = 50_000  # Scrapy, Twisted and numpy have about 100,000
IN_FLIGHT = 32  # CONCURRENT_REQUESTS that are sent, and as many that are processed and not stored yet


@pytest.fixture
def start(python, tmp_path):
    """Starts a spider."""
    running = []

    def started(name, root, **settings):
        words = [python, str(SPIDERS), name, root, json.dumps({"JOBDIR": str(tmp_path / "job"), **settings})]
        running.append(subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path))
        return running[-1]

    yield started
    for process in running:
        process.kill()
        process.communicate()


@pytest.fixture
def run(start):
    """Runs a spider to its end: its statistics, and its log."""

    def done(name, root, **settings):
        process = start(name, root, **settings)
        out, log = process.communicate(timeout=100)
        assert "Traceback" not in log, log
        return json.loads(out.splitlines()[-1]), log

    return done


def test_a_killed_spider_continues_and_gets_all_pages(start, run, tmp_path):
    pages = 150
    with site(tree(pages)) as web:
        for least in (30, 70):
            process = start("plain", web.root)
            wait_for(lambda least=least: len(web.requests) >= least)
            process.send_signal(signal.SIGKILL)
            process.wait()
        before = len(web.requests)
        stats, log = run("plain", web.root)
        counts = Counter(asked(web))
        run("plain", web.root)
        assert sum(counts.values()) == len(web.requests)  # nothing is left, and the seed is not added anew
    # The start page is a page of its own for Scrapy, because its start request is not filtered.
    assert {"/", *(f"/{number}" for number in range(1, pages))} == set(counts)
    assert "Resuming crawl" in log
    assert before < pages
    assert len(web.requests) <= pages + 1 + 2 * IN_FLIGHT
    assert "finished" == stats["finish_reason"]
    assert 1 == stats["frontier/start_requests_known"]
    assert 0 == outrider("verify", tmp_path / "job" / "outrider").returncode


def test_commands_look_at_the_store_while_a_spider_runs(start, tmp_path):
    store = tmp_path / "job" / "outrider"
    with site(tree(100)) as web:
        process = start("plain", web.root, DOWNLOAD_DELAY=1, CONCURRENT_REQUESTS_PER_DOMAIN=1)
        wait_for(lambda: len(web.requests) >= 3)
        for words, named in (
            (["status", store], "state       running"),
            (["top", store], "state       running"),
            (["explain", f"{web.root}/1", "-o", store], f"{web.root}/1"),
            (["why-idle", store], "hosts "),
            (["hosts", store], "127.0.0.1"),
            (["urls", store], f"{web.root}/2"),
        ):
            answer = outrider(*words)
            assert (0, True) == (answer.returncode, named in answer.stdout), (words, answer)
        assert process.poll() is None


def test_a_page_counts_only_after_its_item_pipelines(start, run, tmp_path):
    """Trap 2: a kill while an item is processed fetches its page again."""
    with site(tree(1)) as web:
        mark = tmp_path / "mark"
        process = start("slow", web.root, MARK=str(mark))
        wait_for(mark.exists)
        process.kill()
        process.wait()
        run("plain", web.root)
        assert ["/", "/", "/"] == asked(web)[:3]


def test_the_next_request_is_sent_when_the_delay_of_its_host_ends(run):
    """Traps 1 and 6: the engine asks again at the right time, and the two throttles do not add up."""
    with site(tree(8)) as web:
        run("plain", web.root, DOWNLOAD_DELAY=0.4, CONCURRENT_REQUESTS_PER_DOMAIN=1)
        found = gaps(web)
    assert 8 == len(found)
    assert min(found) >= 0.4 - ARRIVAL_SECONDS
    assert sorted(found)[len(found) // 2] < 0.55


def test_the_delay_of_a_download_slot_is_kept(run):
    """Trap 6: DOWNLOAD_SLOTS."""
    slots = {"127.0.0.1": {"delay": 0.4, "concurrency": 1}}
    with site(tree(6)) as web:
        run("plain", web.root, DOWNLOAD_SLOTS=slots)
        found = gaps(web)
    assert statistics.mean(found) >= 0.39  # from beginning to beginning, by the clock of the spider


def test_a_redirect_is_followed_to_a_request_of_its_own(run):
    """Trap 3: the copied meta of a redirect is not its identity."""

    def answer(host, target):
        if target == "/":
            return Answer('<a href="/from">x</a>')
        if target == "/from":
            return Answer("", 302, {"Location": "/to"})
        return Answer("there") if target == "/to" else MISSING

    with site(answer) as web:
        stats, _ = run("plain", web.root)
        assert ["/", "/from", "/to"] == asked(web)
    assert 2 == stats["item_scraped_count"]


def test_a_retry_waits_as_long_as_the_site_asks(run):
    """Trap 4: a retry is no new request of a page, and Retry-After delays its host."""
    seen = Counter()

    def answer(host, target):
        seen[target] += 1
        if target == "/busy" and seen[target] == 1:
            return Answer("", 503, {"Retry-After": "2"})
        return Answer('<a href="/busy">x</a>')

    with site(answer) as web:
        stats, _ = run("plain", web.root)
        targets, found = asked(web), gaps(web)
    assert ["/", "/busy"] == targets[:2]
    assert 2 == seen["/busy"]
    assert found[1] >= 1.9
    assert 1 == stats["retry/count"]


def test_robots_txt_and_crawl_delay_share_the_clock_of_a_host(run):
    """Traps 5 and 11: a request that no scheduler sees keeps the gap too, and Crawl-delay lengthens it."""
    pages = tree(4)

    def answer(host, target):
        robots = Answer("User-agent: *\nCrawl-delay: 1\n", content_type="text/plain")
        return robots if target == "/robots.txt" else pages(host, target)

    with site(answer) as web:
        run("plain", web.root, DOWNLOAD_DELAY=0.3, ROBOTSTXT_OBEY=True)
        targets, found = asked(web), gaps(web)
    assert ["/robots.txt", "/"] == targets[:2]
    assert min(found) >= 0.3 - ARRIVAL_SECONDS
    assert min(found[1:]) >= 0.95


def test_requests_that_overlap_keep_the_delay(run):
    """Several requests of a host run at once, and begin one delay apart or later, by the times of the server."""
    delay, slow = 0.25, 0.5
    pages = tree(16)

    def answer(host, target):
        if target in ("/1", "/4", "/7", "/9"):  # the work of a server, which the delay does not depend on
            time.sleep(slow)
        return pages(host, target)

    with site(answer) as web:
        run("plain", web.root, DOWNLOAD_DELAY=delay, CONCURRENT_REQUESTS_PER_DOMAIN=4, ROBOTSTXT_OBEY=True)
        found = dict(zip(asked(web), gaps(web), strict=False))
    assert min(found.values()) >= delay - ARRIVAL_SECONDS
    assert min(found[target] for target in ("/1", "/4", "/7", "/9")) < slow  # the next request did not wait for its end


def test_a_slow_page_does_not_stop_the_other_pages_of_its_host(run):
    pages, seen, others, waits = 60, set(), threading.Event(), []
    links = "".join(f'<a href="/{number}">x</a>' for number in range(pages))

    def answer(host, target):
        seen.add(target)
        if len(seen) == pages + 1:
            others.set()
        if target == "/50":  # one of the first: the last link is followed first
            waits.append(others.wait(SLOW_SECONDS_MAX))
        return Answer(links if target == "/" else "x")

    with site(answer) as web:
        run("plain", web.root)
    assert [True] == waits


@pytest.mark.timeout(300)
@pytest.mark.parametrize("restarts", [3, pytest.param(10, marks=pytest.mark.long)])
def test_no_gap_is_broken_by_kills(start, tmp_path, restarts):
    """By the times of the server: pages, robots.txt and the files of a pipeline."""
    delay, pages = 0.3, tree(100)

    def answer(host, target):
        return Answer("x") if target.endswith("/file") else pages(host, target)

    settings = {"DOWNLOAD_DELAY": delay, "CONCURRENT_REQUESTS_PER_DOMAIN": 1, "FILES_STORE": str(tmp_path / "files")}
    with site(answer) as web:
        for number in range(restarts + 1):
            process = start("gallery", web.root, ROBOTSTXT_OBEY=True, **settings)
            wait_for(lambda number=number: len(web.requests) >= 6 * (number + 1), seconds=90)
            process.kill()
            process.wait()
        found, targets = gaps(web), asked(web)
    assert restarts + 1 == targets.count("/robots.txt")
    assert sum(target.endswith("/file") for target in targets) >= restarts
    assert min(found) >= delay - ARRIVAL_SECONDS, sorted(found)[:5]


@HOSTS_ON_LOOPBACK
@pytest.mark.long
@pytest.mark.timeout(300)
def test_hosts_with_a_delay_are_visited_when_they_are_due(run):
    """By the times of the server. A gap is the delay, the answer before it, and the time from due to sent."""
    delay, hosts, pages = 1.0, 40, 26
    roots = []

    def answer(host, target):
        links = [f"/{number}" for number in range(1, pages)] if target == "/" else []
        return Answer("".join(f'<a href="{link}">x</a>' for link in (*links, *(roots[1:] if target == "/" else ()))))

    with contextlib.ExitStack() as sites:
        webs = [sites.enter_context(site(answer, f"127.0.0.{2 + number}")) for number in range(hosts)]
        roots += [web.root + "/" for web in webs]
        run("plain", webs[0].root, DOWNLOAD_DELAY=delay, CONCURRENT_REQUESTS_PER_DOMAIN=1)
        found = sorted(gap for web in webs for gap in gaps(web)[1:])  # at first, all hosts are due at once
        assert {pages} == {len(set(asked(web))) for web in webs}
    late = [gap - delay for gap in found]
    rate, median, p99 = delay * len(found) / sum(found), statistics.median(late), late[int(0.99 * len(late))]
    print(f"rate {rate:.1%}; from due to sent: median {median * 1e3:.0f} ms, p99 {p99 * 1e3:.0f} ms")
    assert found[0] >= delay - ARRIVAL_SECONDS
    assert rate >= RATE_MIN
    assert median <= LATE_SECONDS_MAX
    assert p99 <= 10 * LATE_SECONDS_MAX  # other programs may have the machine; Scrapy's own clock asks after 5 s


def test_requests_that_cannot_be_stored_stay_in_memory(run):
    """Trap 7."""
    with site(tree(2)) as web:
        stats, log = run("lambda", web.root)
    assert 4 == stats["scheduler/unserializable"], stats
    assert stats["scheduler/enqueued/memory"] == stats["scheduler/dequeued/memory"] == 4
    assert 1 == log.count("reason: meta['made'] has a value of type")
    assert "is not a method of the spider" in log


def test_a_request_of_a_class_that_cannot_be_imported_stays_in_memory(run):
    with site(tree(2)) as web:
        stats, log = run("local", web.root)
        assert ["/", "/1"] == asked(web)
    assert 1 == stats["scheduler/unserializable"]
    assert "LocalRequest cannot be imported; define it at the top of a module" in log


def test_a_request_that_an_earlier_run_made_is_dropped_as_it_was_given(run):
    """Only its link waits for the answer of the store, so the request of the signal and of the log is made anew."""
    debug = {"LOG_LEVEL": "DEBUG", "DUPEFILTER_DEBUG": True}
    with site(lambda host, target: Answer("x")) as web:
        first, _ = run("again", web.root, RUN=1, **debug)
        stats, log = run("again", web.root, RUN=2, **debug)
        assert ["/page?a=%C3%BC", "/start?a=%C3%BC"] == sorted(set(asked(web)) - {"/?1", "/?2"})
    assert 2 == first["item_scraped_count"]
    assert "item_scraped_count" not in stats
    assert (2, None) == (stats["dropped/equal"], stats.get("dropped/other"))
    assert 2 == stats["dupefilter/filtered"]
    assert 1 == stats["scheduler/enqueued"] == stats["scheduler/dequeued"]
    assert f"Filtered duplicate request: <POST {web.root}/start> (referer: None)" in log
    assert f"Filtered duplicate request: <POST {web.root}/page> (referer: {web.root}/?2)" in log


def test_a_dropped_request_that_cannot_be_made_anew_is_counted_and_named(run):
    with site(lambda host, target: Answer("x")) as web:
        run("again", web.root, RUN=1)
        stats, log = run("again", web.root, RUN=2, FORGOTTEN=True)
    assert 1 == stats["frontier/unreadable"]
    assert f"A stored request for {web.root}/page cannot be made: Method 'page' not found" in log


def test_a_request_that_is_too_large_stays_in_memory(run):
    with site(tree(2)) as web:
        stats, log = run("large", web.root)
        assert ["/", "/1"] == asked(web)
    assert 1 == stats["scheduler/unserializable"]
    assert "700,000 can be stored" in log


def test_the_fingerprinter_of_the_settings_decides(run):
    """Trap 8."""

    def answer(host, target):
        return Answer("".join(f'<a href="/page?{number}">x</a>' for number in range(5)))

    with site(answer) as web:
        stats, _ = run("plain", web.root, ours="path_fingerprints")
        assert ["/", "/page?0"] == asked(web)
    assert 9 == stats["dupefilter/filtered"]


def test_a_higher_priority_is_first(run):
    """Trap 9. Values of cb_kwargs keep their types."""
    with site(lambda host, target: Answer("x")) as web:
        stats, _ = run("priorities", web.root, DOWNLOAD_DELAY=0.2, CONCURRENT_REQUESTS_PER_DOMAIN=1)
        assert ["/", "/30", "/0", "/-30"] == asked(web)
    assert 3 == stats["item_scraped_count"]


def test_the_statistics_have_the_usual_names(run):
    """Trap 10."""
    with site(tree(5)) as web:
        stats, _ = run("plain", web.root)
    wanted = {
        "scheduler/enqueued": 6,
        "scheduler/enqueued/disk": 6,
        "scheduler/dequeued": 6,
        "scheduler/dequeued/disk": 6,
        "downloader/response_status_count/200": 6,
        "frontier/left": 0,
        "finish_reason": "finished",
    }
    assert wanted == {name: stats[name] for name in wanted}


def test_the_garbage_collector_skips_the_modules_while_a_spider_runs(run, tmp_path):
    """A collection of them would stop the event loop. A program that has its own choice keeps it."""
    with site(tree(5)) as web:
        usual, _ = run("collected", web.root)
        other, _ = run("collected", web.root, freeze=True, JOBDIR=str(tmp_path / "other"))
    assert usual["skipped"] > MODULE_OBJECTS_MIN
    assert 0 == usual["skipped_at_end"]
    assert 0 < other["skipped"] == other["skipped_at_end"]


def test_a_spider_runs_without_a_reactor(run):
    with site(tree(20)) as web:
        stats, _ = run("plain", web.root, TWISTED_REACTOR_ENABLED=False)
        assert 20 == len(set(asked(web)))
    assert 21 == stats["item_scraped_count"]


def test_a_spider_without_a_job_directory_keeps_its_requests_in_memory(run, tmp_path):
    with site(tree(5)) as web:
        stats, _ = run("plain", web.root, JOBDIR=None)
    assert 6 == stats["scheduler/enqueued/memory"]
    assert not (tmp_path / "job").exists()


BAD = {
    "another spider": ("other", {}, "is the store of spider 'plain', not of 'other'"),
    "another fingerprinter": ("plain", {"ours": "path_fingerprints"}, "REQUEST_FINGERPRINTER_CLASS is"),
    "a token without a server": ("plain", {"OUTRIDER_TOKEN": "secret"}, "OUTRIDER_TOKEN is only for a server"),
    "an address without a scheme": (
        "plain",
        {"OUTRIDER_FRONTIER": "127.0.0.1:7070"},
        "it has no scheme; write http://127.0.0.1:7070",
    ),
    "the filter of Scrapy": (
        "plain",
        {"DUPEFILTER_CLASS": "scrapy.dupefilters.RFPDupeFilter"},
        "needs DUPEFILTER_CLASS outrider.",
    ),
    "an old Scrapy": ("plain", {"scrapy": "old"}, "needs Scrapy 2.18 or later, and 2.17.0 is installed"),
    "a changed Scrapy": ("plain", {"scrapy": "changed"}, "it needs the private part Scraper._process_spidermw_output"),
    "a delay below 0": ("plain", {"DOWNLOAD_DELAY": -1}, "DOWNLOAD_DELAY is -1.0; use a number of seconds from 0"),
    "no request at once": ("plain", {"CONCURRENT_REQUESTS_PER_DOMAIN": 0}, "CONCURRENT_REQUESTS_PER_DOMAIN is 0"),
    "a slot that is a number": (
        "plain",
        {"DOWNLOAD_SLOTS": {"a.test": 3}},
        "DOWNLOAD_SLOTS['a.test'] is 3; use a dict",
    ),
    "a slot with a text": ("plain", {"DOWNLOAD_SLOTS": {"a.test": {"delay": "1"}}}, "['a.test']['delay'] is '1'; use"),
    "a slot without requests": (
        "plain",
        {"DOWNLOAD_SLOTS": {"a.test": {"concurrency": 0}}},
        "['a.test']['concurrency'] is 0; use a whole number from 1 on",
    ),
    "an unknown kind of server": ("plain", {"OUTRIDER_FRONTIER": "ftp://a.test"}, "OUTRIDER_FRONTIER ftp://a.test: "),
    "a store that is a file": ("plain", {"OUTRIDER_FRONTIER": str(SPIDERS)}, "spiders.py is not a directory"),
    "another scheduler": ("plain", {"SCHEDULER": "scrapy.core.scheduler.Scheduler"}, "needs SCHEDULER outrider."),
}


@pytest.mark.parametrize("case", BAD)
def test_wrong_settings_are_refused_with_their_name(start, run, tmp_path, case):
    name, settings, message = BAD[case]
    state = tmp_path / "job" / "spider.state"
    with site(tree(1)) as web:
        run("plain", web.root)
        before, kept = len(web.requests), state.read_bytes()
        _, log = start(name, web.root, **settings).communicate(timeout=60)
        assert before == len(web.requests)
    assert message in log
    assert state.read_bytes() == kept
    assert not (tmp_path / "127.0.0.1:7070").exists()


def test_the_log_names_the_place_and_says_that_nothing_is_left(run):
    with site(tree(1)) as web:
        _, log = run("plain", web.root, JOBDIR=None)
        assert "The requests of this spider are in memory, and end with this process" in log
        _, log = run("plain", web.root)
        assert "The requests of this spider are in " in log
        assert "No request was sent" not in log
        _, log = run("plain", web.root)
    assert "No request was sent: all requests of this spider in " in log


def test_a_store_in_use_is_refused(start, tmp_path):
    with site(tree(40)) as web:
        first = start("plain", web.root, DOWNLOAD_DELAY=0.5)
        wait_for(lambda: web.requests)
        _, log = start("plain", web.root).communicate(timeout=60)
        first.kill()
    assert f"JOBDIR {tmp_path / 'job'}: another spider or program uses" in log


def test_spiders_share_a_served_frontier(start, served):
    """Two processes of one spider, and another spider, which is a crawl of its own."""
    pages = 60
    with site(tree(pages)) as web:
        address, _ = served()
        spiders = [
            start(name, web.root, OUTRIDER_FRONTIER=address, JOBDIR=None) for name in ("plain", "plain", "other")
        ]
        for process in spiders:
            out, log = process.communicate(timeout=100)
            assert "finished" == json.loads(out.splitlines()[-1])["finish_reason"], log
        counts = Counter(asked(web))
    assert {"/": 4, "/robots.txt": 1, **{f"/{number}": 2 for number in range(1, pages)}} == counts


def test_a_server_that_is_out_of_reach_ends_the_spider_with_its_reason(start, served):
    with site(tree(400)) as web:
        address, server = served()
        process = start("plain", web.root, OUTRIDER_FRONTIER=address, JOBDIR=None, DOWNLOAD_DELAY=0.1, patience=2.0)
        wait_for(lambda: len(web.requests) > 5)
        server.kill()
        out, log = process.communicate(timeout=60)
        assert "frontier_unreachable" == json.loads(out.splitlines()[-1])["finish_reason"], log
        before = len(web.requests)
        _, log = start("plain", web.root, OUTRIDER_FRONTIER=address, JOBDIR=None, patience=2.0).communicate(timeout=60)
        assert before == len(web.requests)
    assert f"OUTRIDER_FRONTIER {address}: no server answered" in log
