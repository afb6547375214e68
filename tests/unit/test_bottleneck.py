"""`why-idle` splits the possible throughput of the last minute: whole crawls with a known bottleneck on a virtual
clock.

The crawl is the real one with all its threads. The clock of its loop is stopped while any thread works, and otherwise
jumps to the next timer. Slow work in a thread waits on that clock.
"""

from __future__ import annotations

import asyncio
import io
import selectors
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import pytest

from fake_web import FakeNames
from limiting import set_limits
from outrider.archive import WarcWriter
from outrider.clock import instant
from outrider.crawl import local_run as run_module
from outrider.crawl.local_run import CrawlRun
from outrider.crawl.output.progress import NoProgress
from outrider.crawl.run import loop as loop_module
from outrider.crawl.run.bottleneck import CAUSES, Bottleneck, Stage, throughput_lines
from outrider.crawl.run.reading import Reader
from outrider.crawl.setup.options import CrawlOptions
from outrider.engine import Frontier
from outrider.frontier.verbs.census import ScheduleCounts
from unit.test_crawl_loop import Site

NOW = 1_700_000_000_000_000


class Selector(selectors.DefaultSelector):
    """Does not wait: the loop's clock moves on instead, once no thread is at work."""

    loop: Virtual

    def select(self, timeout=None):
        is_at_work = self.loop.is_at_work()  # before the check: a thread wakes the loop first, and is idle then
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None or is_at_work:
            return super().select(0.01)
        self.loop.at += timeout
        return []


class Virtual(asyncio.SelectorEventLoop):
    def __init__(self):
        selector = Selector()
        selector.loop = self
        self.at = 0.0
        self._paused = 0
        self._jobs = Counter()  # by executor
        self.crawler = None
        self._own = ThreadPoolExecutor(8)
        super().__init__(selector)

    def time(self):
        return self.at

    def now(self):
        return NOW + round(self.at * 1_000_000)

    def is_at_work(self):
        readings = getattr(self.crawler, "_readings", None)
        threads = sum(min(count, executor._max_workers) for executor, count in self._jobs.items() if count)
        reading = readings._quick.active + readings._slow.active if readings is not None else 0
        return threads + reading > self._paused

    def run_in_executor(self, executor, function, *args):
        executor = executor or self._own
        self._jobs[executor] += 1
        future = super().run_in_executor(executor, function, *args)
        future.add_done_callback(lambda _: self._jobs.subtract([executor]))
        return future

    def close(self):
        self._own.shutdown()
        super().close()

    def pause(self, seconds):
        """Lets time pass for the calling thread."""
        woken = threading.Event()

        def wake():
            self._paused -= 1
            woken.set()

        def begin():
            self._paused += 1
            self.call_later(seconds, wake)

        self.call_soon_threadsafe(begin)
        assert woken.wait(60)


class Pages(Site):
    """robots: the duration of a robots.txt fetch. first: the share of a page's time before its first byte. slow:
    seconds by host."""

    def __init__(self, clock, *, robots=0.0, first=1.0, slow=None, **more):
        super().__init__(clock, **more)
        self.robots, self.first, self.slow = robots, first, slow or {}

    def takes(self, request):
        if request.url.endswith("robots.txt"):
            return self.robots
        return self.slow.get(request.target.host, self.seconds)

    async def fetch(self, request):
        response = await super().fetch(request)
        number = response.url.rpartition("/")[2]
        if response.status == 200 and int(number or 0) < self.depth:  # two links: queues of hosts grow
            body = "".join(f"<a href=/{2 * int(number or 0) + more}>on</a>" for more in (1, 2)).encode()
            response = replace(response, body=body, content=body)
        first = response.started_at + instant(self.takes(request) * self.first)
        return replace(response, first_byte_at=first)


class Names(FakeNames):
    def __init__(self, hosts, seconds):
        super().__init__(hosts)
        self.seconds = seconds

    async def resolve(self, host, port):
        await asyncio.sleep(self.seconds)
        return await super().resolve(host, port)


class Crawl:
    """Runs a crawl of some hosts with endless pages, and queries its bottleneck after `seconds`."""

    def __init__(self, directory, monkeypatch):
        self.directory, self.patch = directory, monkeypatch
        self.loop = None

    def last_minute(self, *, hosts, places, seconds=20.0, delay=0.0, names=0.0, depth=1 << 60, beside=None, site=None):
        served = {f"h{number}.test": (f"127.0.0.{number + 1}",) for number in range(hosts)}
        self.patch.setattr(loop_module, "anchored", lambda _: self.loop.now)
        opening = Frontier.open
        clocked = SimpleNamespace(open=lambda *given, **named: opening(*given, clock=lambda: self.loop.now(), **named))
        self.patch.setattr(run_module, "Frontier", clocked)
        options = CrawlOptions(
            probe_pages=0,  # the web of this test has no random paths
            output=str(self.directory / "out"),
            delay=delay,
            delay_factor=0,
            user_agent="Test",
            concurrency=places,
        )

        async def ask():
            await asyncio.sleep(1.0)
            if beside is not None:
                await self.loop.crawler._in_books(beside, self.loop.crawler._frontier)
            await asyncio.sleep(seconds - 1.0)
            found = await self.loop.crawler._answers()["why-idle"]({})
            self.loop.crawler.stop()
            self.loop.crawler.stop()
            return found

        async def run():
            self.loop = asyncio.get_running_loop()
            self.loop.crawler = CrawlRun(
                options,
                [f"http://{host}/" for host in served],
                (),
                hosts=served,
                progress=NoProgress(io.StringIO()),
                make_downloader=lambda _, clock: Pages(clock, depth=depth, **(site or {})),
                make_names=lambda: Names(served, names),
            )
            asking = asyncio.create_task(ask())
            await self.loop.crawler.run()
            return await asking

        with asyncio.Runner(loop_factory=Virtual) as runner:
            found = runner.run(run())["throughput"]
        assert abs(sum(found["shares"].values()) - 100) < 1
        assert set(CAUSES) == set(found["shares"])
        return found


@pytest.fixture
def crawl(tmp_path, monkeypatch):
    return Crawl(tmp_path, monkeypatch)


def largest(found, count=1):
    """The largest causes with their shares, in whole per cent."""
    some = sorted(found["shares"].items(), key=lambda one: -one[1])[:count]
    return {cause: round(share) for cause, share in some}


def near(expected, found, by=3):
    """Whether both have the same causes, with shares that differ by a few per cent at most."""
    return set(expected) == set(found) and all(abs(found[cause] - share) <= by for cause, share in expected.items())


# -- five crawls of known bottleneck, and as many more -----------------------------------------------------------------


def test_hosts_in_their_delay_make_a_crawl_politeness_bound(crawl):
    """Ten hosts answer for 0.1 s of each second: nine tenths of the ten places are delays."""
    found = crawl.last_minute(hosts=10, places=10, delay=0.9, site={"seconds": 0.1})
    assert near({"resting": 90, "fetching": 10}, largest(found, 2))
    assert ("politeness", 10) == (found["bound"], round(found["answers_per_second"]))
    assert abs(found["possible_per_second"] - 100) < 5


def test_too_few_hosts_leave_places_empty(crawl):
    """Two hosts use two of eight places, however ready they are."""
    found = crawl.last_minute(hosts=2, places=8, site={"seconds": 0.5})
    assert near({"hosts": 75, "fetching": 25}, largest(found, 2))
    assert "politeness" == found["bound"]


def test_more_ready_hosts_than_places_make_the_concurrency_the_bound(crawl):
    found = crawl.last_minute(hosts=30, places=3, site={"seconds": 0.4})
    assert found["shares"]["concurrency"] > 85
    assert "concurrency" == found["bound"]


def test_slow_names_make_a_crawl_network_bound(crawl, monkeypatch):
    """Looking up a name needs nine times the time of the answer."""
    set_limits(monkeypatch, TRAIN_PAGES_MAX=1)  # the pages of a train need one address
    found = crawl.last_minute(hosts=12, places=12, names=0.45, site={"seconds": 0.05})
    assert near({"dns": 90, "fetching": 10}, largest(found, 2))
    assert "network" == found["bound"]


def test_slow_bodies_make_a_crawl_network_bound(crawl):
    found = crawl.last_minute(hosts=8, places=8, site={"seconds": 0.5, "first": 0.2})
    assert near({"bandwidth": 80, "fetching": 20}, largest(found, 2))
    assert "network" == found["bound"]


def test_slow_reading_of_answers_makes_a_crawl_cpu_bound(crawl, monkeypatch):
    """Two threads read a page in 0.2 s each, while ten places could fetch a hundred pages a second."""
    ahead = Reader.ahead

    def slowly(reader, visits):
        crawl.loop.pause(0.2 * len(visits))
        ahead(reader, visits)

    monkeypatch.setattr(Reader, "ahead", slowly)
    found = crawl.last_minute(hosts=10, places=10, site={"seconds": 0.1})
    assert near({"cpu": 90, "fetching": 10}, largest(found, 2), 4)
    assert "cpu" == found["bound"]


def test_slow_syncs_make_a_crawl_storage_bound(crawl, monkeypatch):
    sync = WarcWriter.sync

    def slowly(writer):
        crawl.loop.pause(0.5)
        sync(writer)

    monkeypatch.setattr(WarcWriter, "sync", slowly)
    found = crawl.last_minute(hosts=10, places=10, site={"seconds": 0.1})
    assert "disk" in largest(found)
    assert ("storage", True) == (found["bound"], found["shares"]["disk"] > 75)


def test_slow_robots_files_are_reported_as_the_cause(crawl):
    found = crawl.last_minute(hosts=60, places=4, depth=0, seconds=5, site={"robots": 0.4, "seconds": 0.02})
    assert found["shares"]["robots"] > 85
    assert "politeness" == found["bound"]


def test_paused_hosts_are_reported_as_the_cause(crawl):
    def pause(frontier):
        for number in range(4):
            frontier.pause(f"h{number}.test")

    found = crawl.last_minute(hosts=5, places=5, seconds=40, beside=pause, site={"seconds": 0.5})
    assert near({"paused": 79, "fetching": 20}, largest(found, 2), 4)
    assert "paused" == found["bound"]


def test_at_the_end_of_a_crawl_most_places_have_no_urls_left(crawl):
    """One host answers for 15 s after all other hosts have ended."""
    found = crawl.last_minute(hosts=5, places=5, depth=0, seconds=14, site={"seconds": 0.01, "slow": {"h0.test": 15.0}})
    assert near({"nothing": 80, "fetching": 20}, largest(found, 2), 4)
    assert "work" == found["bound"]


def test_only_the_last_minute_counts(crawl):
    """Hosts are paused for an hour and then continue. A minute later the report does not contain the pause."""
    found = crawl.last_minute(hosts=2, places=2, delay=4.9, seconds=200, site={"seconds": 0.1})
    assert 60 <= found["seconds"] < 62
    assert near({"resting": 98, "fetching": 2}, largest(found, 2))


# -- the counting itself -----------------------------------------------------------------------------------------------


def counted(places=4, standing=None, **turned):
    counts = Bottleneck(places, 0)
    counts.turned(standing if standing is not None else ScheduleCounts(), 0, **turned)
    return counts


def last_minute(counts, at=1_000_000):
    found = counts.last_minute(at)
    assert abs(sum(found["shares"].values()) - 100) < 1
    return {cause: share for cause, share in found["shares"].items() if share}


@pytest.mark.parametrize(
    ("standing", "turned", "expected"),
    [
        (ScheduleCounts(), {}, {"nothing": 100}),
        (ScheduleCounts(queued=9), {}, {"hosts": 100}),
        (ScheduleCounts(queued=9, resting=1), {}, {"hosts": 75, "resting": 25}),
        (
            ScheduleCounts(queued=9, resting=99, gated=33, paused=132),
            {},
            {"resting": 37.5, "robots": 12.5, "paused": 50},
        ),
        (ScheduleCounts(queued=9, ready=1, resting=99), {}, {"cpu": 25, "resting": 75}),
        (ScheduleCounts(queued=9, resting=99, outage=True), {}, {"outage": 100}),
        (ScheduleCounts(queued=9, resting=99), {"held": "disk"}, {"disk": 100}),
        (ScheduleCounts(queued=9, resting=99), {"held": "paused"}, {"paused": 100}),
    ],
)
def test_empty_places_are_counted_for_the_hosts_that_could_use_them(standing, turned, expected):
    assert expected == last_minute(counted(4, standing, **turned))


def test_before_the_first_turn_of_the_books_places_wait_for_the_processor():
    assert {"cpu": 100} == last_minute(Bottleneck(4, 0))
    assert None is Bottleneck(4, 0).last_minute(0)["bound"]


def test_slow_visits_set_aside_do_not_count_as_further_places():
    counts = counted(2)
    for token in range(8):
        counts.move(token, Stage.SITE if token < 6 else Stage.NAMED, 0)
    assert {"fetching": 75, "dns": 25} == last_minute(counts)


def test_time_between_an_end_and_its_notice_counts_as_cpu():
    counts = counted(1)
    counts.move(7, Stage.SITE, 0)
    counts.answered(body=200_000, late=500_000)
    assert {"fetching": 30, "bandwidth": 20, "cpu": 50} == last_minute(counts)


def test_impossible_times_still_add_up():
    """A user's downloader reports instants of its own."""
    counts = counted(1, ScheduleCounts(ready=1))
    counts.move(7, Stage.SITE, 0)
    counts.answered(body=10**15, late=-(10**15))
    assert {"bandwidth": 100} == last_minute(counts)
    counts.end([7, 8, 7], 1_000_000)
    counts.move(9, Stage.BOOKS, 1_000_000)
    counts.turned(None, 900_000, synced=7.0)
    assert 100 == round(sum(last_minute(counts, 2_000_000).values()))


def test_people_read_the_largest_cause_first():
    counts = counted(4, ScheduleCounts(queued=9, resting=3))
    counts.move(7, Stage.SITE, 0)
    counts.answered(body=0, late=0)
    assert [
        "last 1 s  1.0 answers a second of 4.0 possible in 4 slots; bound by politeness",
        "   75.0 %  resting: hosts with URLs left are in their delay",
        "   25.0 %  fetching: sites are answering, and no other host waits for a slot",
    ] == list(throughput_lines(counts.last_minute(1_000_000)))
    assert [] == list(throughput_lines(Bottleneck(4, 0).last_minute(0)))
