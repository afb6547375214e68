"""The loop with a downloader that touches no network: limits, stops, bugs, and a disk that stays full."""

from __future__ import annotations

import asyncio
import io
import json
from functools import partial

import pytest

from fake_web import HTML, FakeNames, FakeWeb, answer
from limiting import set_limits
from outrider.crawl.local_run import CrawlRun
from outrider.crawl.output.output import Output
from outrider.crawl.output.progress import NoProgress
from outrider.crawl.output.summary import left_alone
from outrider.crawl.run.settle import Settler
from outrider.crawl.setup.options import CrawlOptions
from outrider.engine import Frontier
from outrider.errors import SettingsError, StoreFullError
from outrider.fetch.downloader import Request, Response
from outrider.fetch.failures import FetchError
from outrider.journey import HostWait, Waits
from outrider.limits import LEASES_PER_PLACE_MAX

HOSTS = {f"h{number}.test": (f"127.0.0.{number + 1}",) for number in range(8)}
SEEDS = [f"http://{host}/" for host in HOSTS]


class Site(FakeWeb):
    """Answers every request after a moment. Each page links to the next, `depth` times."""

    def __init__(self, clock, *, seconds: float = 0.0, depth: int = 3, hangs: bool = False, bug: str = "") -> None:
        super().__init__(clock=clock)
        self.seconds = seconds
        self.depth = depth
        self.hangs = hangs
        self.bug = bug
        self.dead: set[str] = set()
        self.refuses: dict[str, str] = {}  # URLs that get a 503, each with its Retry-After
        self.running = self.most = 0
        self.hosts: set[str] = set()

    def takes(self, request: Request) -> float:
        """Returns the seconds of a request."""
        return self.seconds

    async def fetch(self, request: Request) -> Response:
        started = self.clock()
        if request.address in self.dead:
            nothing = {"error": FetchError.CONNECT_REFUSED, "request_head": b"", "new_connection": False}
            return answer(request.url, None, b"", (), at=started, address=request.address, **nothing)
        host, _, path = request.url.removeprefix("http://").partition("/")
        assert host not in self.hosts, "two requests to one host"
        self.hosts.add(host)
        self.asked.append(request)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            if self.bug and self.bug in request.url:
                raise ZeroDivisionError("a bug")
            if self.hangs and path != "robots.txt":
                await asyncio.sleep(60)
            await asyncio.sleep(self.takes(request))
        finally:
            self.running -= 1
            self.hosts.remove(host)
        number = int(path or 0) if path != "robots.txt" else 0
        status = 404 if path == "robots.txt" else 200
        link = f"<a href=/{number + 1}>on</a> {request.url}" if number < self.depth else request.url
        body = link.encode()
        fields = HTML
        if request.url in self.refuses:
            status, fields = 503, (("Retry-After", self.refuses[request.url]),)
        parts = {"address": request.address, "ended_at": self.clock(), "seconds": self.takes(request)}
        return answer(request.url, status, body, fields, at=started, request_head=request.head(), **parts)


Names = partial(FakeNames, HOSTS)


class House:
    """A crawl of a `Site` in a directory."""

    def __init__(self, directory, options=None, site=None, names=None, **more) -> None:
        self.output = directory / "out"
        self.talk = io.StringIO()
        self.site: Site | None = None
        self.site_options = site or {}
        self.options = CrawlOptions(
            **{"output": str(self.output), "delay": 0, "delay_factor": 0, "user_agent": "Test"} | (options or {})
        )
        self.crawler = None
        self.names = names or Names
        self.refuses: dict[str, str] = {}
        self.dead: set[str] = set()  # addresses that refuse connections
        self.more = more

    def make_site(self, _options, clock):
        self.site = Site(clock, **self.site_options)
        self.site.dead = self.dead
        self.site.refuses = self.refuses
        return self.site

    async def run(self, beside=None, seeds=SEEDS):
        self.crawler = CrawlRun(
            self.options,
            seeds,
            (),
            hosts=HOSTS,
            progress=NoProgress(self.talk),
            make_downloader=self.make_site,
            make_names=self.names,
            **self.more,
        )
        if beside is None:
            return await self.crawler.run()
        helper = asyncio.create_task(beside(self))
        try:
            return await self.crawler.run()
        finally:
            await helper

    def pages(self):
        return [json.loads(line) for line in (self.output / "pages.jsonl").read_text().splitlines()]


async def until(condition):
    for _ in range(2_000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not happen")


def test_everything_that_is_linked_is_fetched_once(tmp_path):
    house = House(tmp_path)
    result = asyncio.run(house.run())
    assert (0, 32, 32) == (result.exit_code, result.statistics["answered"], len(house.pages()))
    assert sorted(house.site.urls) == sorted({*house.site.urls})


def test_the_limit_of_requests_in_flight_is_never_exceeded(tmp_path):
    house = House(tmp_path, {"concurrency": 3}, {"seconds": 0.01})
    asyncio.run(house.run())
    assert 3 == house.site.most


def test_answers_beyond_the_limit_of_a_turn_wait_and_limit_the_leases(tmp_path, monkeypatch):
    """Every answer that had arrived was once in one turn, however large. An answer uses no place, but these answers
    limit the leases."""
    set_limits(monkeypatch, TURN_BYTES_MAX=1)
    turns, leased = [], []
    turn = Settler.turn

    def watched(settler, visits, want, *more, **options):
        turns.append(len(visits))
        told = turn(settler, visits, want, *more, **options)
        leased.append(house.crawler._at_work + len(house.crawler._finished) + len(told.leases))
        return told

    monkeypatch.setattr(Settler, "turn", watched)
    monkeypatch.setattr("outrider.crawl.run.loop.LEASES_PER_PLACE_MAX", 2)
    house = House(tmp_path, {"concurrency": 3, "delay_factor": 0.001})
    result = asyncio.run(house.run())
    assert (0, 32, 32) == (result.exit_code, result.statistics["answered"], len(house.pages()))
    assert (1, 6, 3) == (max(turns), max(leased), house.site.most)


def test_answers_that_wait_to_be_read_limit_the_leases(tmp_path, monkeypatch):
    """When hosts need no gap, a crawl has more leases than places. But it adds no lease while too many bytes wait."""
    set_limits(monkeypatch, ANSWERS_BYTES_MAX=1)
    wanted = []
    turn = Settler.turn

    def watched(settler, visits, want, *more, **options):
        held = house.crawler._held_bytes
        told = turn(settler, visits, want, *more, **options)
        wanted.append((held > 1, want))
        return told

    monkeypatch.setattr(Settler, "turn", watched)
    house = House(tmp_path, {"concurrency": 3})
    result = asyncio.run(house.run())
    assert (0, 32, 3) == (result.exit_code, result.statistics["answered"], house.site.most)
    assert all(want == 0 for is_full, want in wanted if is_full)
    assert 3 < max(want for _, want in wanted) <= 3 * LEASES_PER_PLACE_MAX


def test_a_limit_of_pages_is_kept_with_any_requests_in_flight(tmp_path):
    house = House(tmp_path, {"max_pages": 11}, {"seconds": 0.005})
    result = asyncio.run(house.run())
    assert (3, 11) == (result.exit_code, result.statistics["answered"])


def test_a_crawl_without_seeds_says_that_they_are_missing(tmp_path):
    with pytest.raises(SettingsError, match="seeds are missing"):
        asyncio.run(House(tmp_path).run(seeds=[]))


def test_the_first_stop_lets_running_requests_end(tmp_path):
    async def beside(house):
        await until(lambda: house.site is not None and house.site.running >= 4)
        house.crawler.stop()

    house = House(tmp_path, {}, {"seconds": 0.2})
    result = asyncio.run(house.run(beside))
    assert (4, len(house.site.urls) - len(SEEDS)) == (result.exit_code, len(house.pages()) if house.pages() else 0)


def test_requests_that_do_not_end_are_cancelled_after_a_stated_time(tmp_path):
    async def beside(house):
        await until(lambda: house.site is not None and house.site.running == len(SEEDS))
        await until(lambda: any("robots" not in url for url in house.site.urls))
        house.crawler.stop()

    house = House(tmp_path, {}, {"hangs": True}, stop_seconds_max=0.2)
    result = asyncio.run(house.run(beside))
    assert (4, 0, 8) == (result.exit_code, result.statistics["urls"]["leased"], result.statistics["accepted"])


def test_a_second_stop_ends_the_crawl_at_once(tmp_path):
    async def beside(house):
        await until(lambda: house.site is not None and any("robots" not in url for url in house.site.urls))
        house.crawler.stop()
        house.crawler.stop()

    house = House(tmp_path, {}, {"hangs": True})
    result = asyncio.run(asyncio.wait_for(house.run(beside), 10))
    assert (4, []) == (result.exit_code, house.pages())


def test_a_bug_ends_the_crawl_in_order_and_is_logged(tmp_path):
    house = House(tmp_path, {}, {"bug": "h3.test/2"})
    with pytest.raises(ZeroDivisionError):
        asyncio.run(house.run())
    log = (house.output / "crawl.log").read_text()
    assert ("ZeroDivisionError: a bug" in log, True) == (True, "bug text=" in log)
    frontier = Frontier.look(house.output / "frontier")
    try:
        assert ("stopped", True) == (frontier.opening.previous_state, frontier.verify().ok)
    finally:
        frontier.close()


def test_a_disk_that_stays_full_ends_the_crawl_with_a_message(tmp_path, monkeypatch):
    def full(*_args):
        raise StoreFullError("no room")

    house = House(tmp_path, {}, {}, full_seconds_max=0.1)
    monkeypatch.setattr(Output, "sync_archive", full)
    result = asyncio.run(house.run())
    assert (7, True) == (result.exit_code, "waiting 0.1 s for space" in house.talk.getvalue())


def test_a_crawl_continues_normally_once_the_disk_has_room_again(tmp_path, monkeypatch):
    kept = Output.sync_archive
    refusals = iter(range(3))

    def full_for_a_while(self):
        if next(refusals, None) is not None:
            raise StoreFullError("no room")
        return kept(self)

    house = House(tmp_path)
    monkeypatch.setattr("outrider.crawl.run.loop.FULL_STEP_SECONDS", 0.01)
    monkeypatch.setattr(Output, "sync_archive", full_for_a_while)
    result = asyncio.run(house.run())
    assert (0, 32, 32) == (result.exit_code, len(house.pages()), len({page["url"] for page in house.pages()}))


def test_seeds_that_were_not_accepted_are_requested_again(tmp_path):
    house = House(tmp_path, seeds_again=lambda: SEEDS[:2])
    result = asyncio.run(house.run(seeds=[]))
    assert 8 == result.statistics["answered"]


# -- hosts that ask to be left alone for long

LONG = "99999999999"


@pytest.mark.parametrize("path", ["", "2", "robots.txt"])
def test_a_retry_after_of_a_year_does_not_keep_a_crawl_running(tmp_path, path):
    """It kept the crawl running for a year. The run ends with 3, and names the waiting host and the instant."""
    house = House(tmp_path, site={"seconds": 0.01})
    house.refuses = {f"http://h3.test/{path}": LONG}
    result = asyncio.run(asyncio.wait_for(house.run(), 30))
    assert (3, True) == (result.exit_code, "more than --max-wait (86400 s): h3.test until 20" in result.ending)
    log = (house.output / "crawl.log").read_text()
    assert (1, True) == (log.count(" left host=h3.test until=20"), "reason=retry_after" in log)
    left = {"": 0, "2": 2, "robots.txt": 0}[path]
    assert 28 + left == sum(page["outcome"] == "done" for page in house.pages())
    # A resume does not change this: the host is left alone until then.
    again = asyncio.run(asyncio.wait_for(house.run(), 30))
    assert (3, 0) == (again.exit_code, len(house.site.urls))


def test_a_crawl_waits_only_up_to_its_limit(tmp_path):
    house = House(tmp_path, {"max_wait": 5})
    house.refuses = {"http://h3.test/1": "60"}
    result = asyncio.run(asyncio.wait_for(house.run(), 30))
    assert (3, 29) == (result.exit_code, sum(page["outcome"] == "done" for page in house.pages()))
    assert "(5 s): h3.test until" in result.ending


def test_the_crawl_waits_for_a_retry_after_within_the_limit(tmp_path, monkeypatch):
    set_limits(monkeypatch, RETRY_SECONDS=(0.1, 0.1, 0.1))

    async def beside(house):
        await until(lambda: house.site is not None and "http://h3.test/1" in house.site.urls)
        house.refuses.clear()

    house = House(tmp_path, {"max_wait": 5})
    house.refuses = {"http://h3.test/1": "1"}
    result = asyncio.run(asyncio.wait_for(house.run(beside), 30))
    assert (0, 32) == (result.exit_code, sum(page["outcome"] == "done" for page in house.pages()))


def test_the_gap_of_a_crawl_itself_does_not_end_it(tmp_path):
    house = House(tmp_path, {"max_wait": 0, "delay": 0.05}, {"depth": 2})
    assert 0 == asyncio.run(asyncio.wait_for(house.run(), 30)).exit_code


def test_progress_shows_the_wait(tmp_path):
    """It said `about 6 s left` for a year. The remaining time of a crawl is at least its longest wait."""
    told = []

    async def beside(house):
        await until(lambda: house.crawler is not None and house.site is not None and len(house.site.urls) == 38)
        await asyncio.sleep(0.05)
        told.append(await house.crawler.status())
        house.crawler.stop()

    house = House(tmp_path)
    house.refuses = {"http://h3.test/1": "36000"}
    asyncio.run(asyncio.wait_for(house.run(beside), 30))
    assert 35_990 < told[0]["eta_seconds"] <= 36_000


def test_the_end_of_a_crawl_names_a_few_of_many_waiting_hosts():
    hosts = tuple(HostWait(f"h{number}\x1b.test", 0, 1e6, 1, "retry_after", True) for number in range(7))
    words = left_alone(60.0, Waits(9, 1e6, hosts), 1e6)
    assert (5, True, False) == (words.count("until 1970-01-01T00:00:00Z"), " and 4 others" in words, "\x1b" in words)
    assert "due in 277 h 46 min, more than --max-wait (60 s)" in left_alone(60.0, Waits(0, 0.0, ()), 1e6)
