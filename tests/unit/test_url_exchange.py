"""URLs with dates in columns (`put_dated`) end as the same records in `put`, whatever the URLs were before."""

import random
from collections import Counter
from functools import partial

import msgspec
import numpy as np
import pytest

from model.world import World, hosts_go_cold, inspect
from outrider import Frontier
from outrider.engine.url_exchange import Put, QueueTotals, UrlExchange, record_of_known
from outrider.errors import SettingsError
from outrider.frontier.schedule.host_schedule import HostSchedule
from outrider.frontier.verbs.arrivals import KeyedUrls
from outrider.limits import MICROSECONDS, UNIQUE_METADATA_BYTES_MAX

CRAWL = "c"
ROWS = [
    ("http://a.test/", ""),
    ("http://a.test/", "a.test"),  # the same URL
    ("http://a.test/", "own"),
    ("http://A.test/x", ""),
    ("http://a.test/x", ""),
    ("http://b.test/é", "b.test"),
    ("no url", "words"),
    ("http://c.test/1", "c.test"),
]
METADATA = [b"", b'{"n":["1"]}', b"", b'{"n":["2","3"]}', b"", b"", b'{"m":[]}', b""]
LATER = 4_000_000_000
HAND_OUTS = 12
MICROSECOND = 1 / MICROSECONDS
CRAWLS = ("c", "d")
STEPS = 100
VERIFIED_EACH = 10
DAY = 86_400


def columns(rows=ROWS, metadata=METADATA):
    return KeyedUrls([url for url, _ in rows], [key for _, key in rows], metadata)


def dates_of(dates):
    return np.array(dates, np.int64) * MICROSECONDS


def mapping_of(octets):
    return msgspec.json.decode(octets or b"{}")


def records_of(frontier):
    return [{name: value for name, value in record.items() if name != "fetched_at"} for record in frontier.records()]


@pytest.fixture
def frontiers():
    with Frontier.memory(robots="caller") as first, Frontier.memory(robots="caller") as second:
        yield first, second


@pytest.mark.parametrize("before", ["unknown", "queued", "leased", "done", "waiting"])
@pytest.mark.parametrize("date", [0, 1_000, LATER])
def test_dates_in_columns_end_as_the_same_records(frontiers, before, date):
    for place, frontier in enumerate(frontiers):
        exchange = UrlExchange(frontier)
        if before != "unknown":
            exchange.put([Put(CRAWL, columns())])
        if before == "leased":
            exchange.hand_out(100, 60.0, per_queue=10, queues_max=10, crawl=CRAWL, key=None)
        if before in ("done", "waiting"):
            exchange.put([Put(CRAWL, columns(), dates_of([0 if before == "done" else LATER + 5] * len(ROWS)))])
        metadata = METADATA[::-1]
        if place == 0:
            assert exchange.put([Put(CRAWL, columns(metadata=metadata), dates_of([date] * len(ROWS)))]) == [[]]
        else:
            now = exchange.now()
            told = [mapping_of(octets) for octets in metadata]
            frontier.put(
                record_of_known(url, key, CRAWL, date, values, now)
                for (url, key), values in zip(ROWS, told, strict=True)
            )
        assert not frontier.verify().problems
    first, second = map(records_of, frontiers)
    for record in (*first, *second):
        record["metadata"] = record["metadata"] or None  # {} is no metadata in columns
    if before == "unknown" and date == 0:
        assert {record["state"] for record in first} == {"done"}
    assert first == second


def test_the_last_date_of_a_url_counts(frontiers):
    exchange = UrlExchange(frontiers[0])
    twice = KeyedUrls(["http://a.test/"] * 2, ["", "a.test"], [b"", b""])
    exchange.put([Put(CRAWL, twice, dates_of([LATER, 0]))])
    assert exchange.totals(CRAWL, None).done == 1
    exchange.put([Put(CRAWL, twice, dates_of([0, LATER]))])
    assert exchange.totals(CRAWL, None).waiting == 1


def test_a_refused_put_changes_nothing_and_leaves_the_others(frontiers):
    exchange = UrlExchange(frontiers[0])
    long = b'{"n":["' + b"x" * UNIQUE_METADATA_BYTES_MAX + b'"]}'
    refused = Put(CRAWL, KeyedUrls(["http://a.test/1", "http://a.test/2"], ["", ""], [b"", long]), dates_of([0, 0]))
    error, codes = exchange.put([refused, Put(CRAWL, KeyedUrls(["http://a.test/3"], [""], [b""]))])
    assert isinstance(error, SettingsError)
    assert len(codes) == 1
    assert exchange.totals(CRAWL, None).urls == 1


def test_a_delay_of_a_second_is_kept_to_the_microsecond_also_across_kills():
    world = World(delay=30, delay_factor=0)
    exchange = UrlExchange(world.frontier)

    def handed_out():
        return exchange.hand_out(10, 600.0, per_queue=1, queues_max=10, crawl=CRAWL, key=None)

    urls = [f"http://a.test/{number}" for number in range(HAND_OUTS)]
    exchange.put([Put(CRAWL, columns([(url, "") for url in urls], [b""] * HAND_OUTS))])
    exchange.set_delay(1.0, CRAWL, None)
    found = []
    for number in range(HAND_OUTS):
        leases = list(handed_out())
        assert len(leases) == 1, f"hand-out {number}"
        exchange.rest([lease.token for lease in leases])
        found += [lease.url for lease in leases]
        exchange.put([Put(CRAWL, columns([(found[-1], "")], [b""]), dates_of([0]))])
        if number % 3 == 1:
            world.kill()
            exchange = UrlExchange(world.frontier)
        world.clock.move(1 - MICROSECOND)
        assert not handed_out()
        if number % 3 == 2:
            world.kill()
            exchange = UrlExchange(world.frontier)
            assert not handed_out()
        world.clock.move(MICROSECOND)
    assert sorted(found) == sorted(urls)


def test_a_delay_of_all_queues_makes_no_host_a_special_case(frontiers, monkeypatch):
    """The kernels handle hosts with a delay: Python would need 100 µs for each."""
    exchange = UrlExchange(frontiers[0])
    exchange.default_delay = 2.0
    one_by_one = []
    touch = HostSchedule._touch_one
    monkeypatch.setattr(HostSchedule, "_touch_one", lambda *how: (one_by_one.append(how), touch(*how)))
    rows = [(f"http://h{number}.test/{page}", "") for number in range(20) for page in range(2)]
    exchange.put([Put(CRAWL, columns(rows, [b""] * len(rows)))])

    def handed_out():
        return exchange.hand_out(100, 60.0, per_queue=1, queues_max=100, crawl=CRAWL, key=None)

    leases = list(handed_out())
    assert len(leases) == 20
    assert not handed_out()
    exchange.rest([lease.token for lease in leases])
    assert not one_by_one
    assert {queue.delay_seconds for queue in frontiers[0].queues(crawl=CRAWL)} == {2.0}
    frontiers[0].pause("h1.test", crawl=CRAWL)
    assert one_by_one, "a pause needs more than the clock of the host"


def recounted(frontier, crawl, key=None):
    """Returns the totals of a crawl or a key from the lists of its URLs and queues."""
    if crawl not in UrlExchange(frontier).own_crawls():
        return QueueTotals()
    queues = [one for one in frontier.queues(crawl=crawl, limit=1_000) if key in (None, one.key)]
    urls = [one for one in frontier.urls(crawl=crawl, limit=1_000) if key in (None, one.key)]
    states = Counter(str(one.state) for one in urls)
    active = {one.key for one in urls if str(one.state) not in ("done", "gone")}
    names = ("queued", "leased", "waiting", "parked", "done", "gone")
    return QueueTotals(len(queues), len(active), *(states[name] for name in names))


class History:
    """A random history of one frontier with two crawls."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.world = World(delay=0, delay_factor=0)
        self.exchange = UrlExchange(self.world.frontier)
        self.held = []

    def names(self, count=6):
        rows = [(f"http://h{self.rng.randrange(6)}.test/{self.rng.randrange(4)}", "") for _ in range(count)]
        return KeyedUrls([url for url, _ in rows], [key for _, key in rows], [b""] * count)

    def key(self):
        return self.rng.choice([None, f"h{self.rng.randrange(6)}.test"])

    def step(self):
        rng, exchange, world = self.rng, self.exchange, self.world
        crawl = rng.choice(CRAWLS)
        step = rng.choices(
            ["discover", "dates", "hand out", "release", "move", "checkpoint", "kill", "delete", "purge"],
            [5, 5, 5, 3, 3, 2, 1, 1, 1],
        )[0]
        if step == "discover":
            exchange.put([Put(crawl, self.names())])
        elif step == "dates":
            soon = exchange.now() // MICROSECONDS + rng.randrange(1, 60)
            dates = [rng.choice([0, 0, 1_000, soon, LATER]) for _ in range(6)]
            exchange.put([Put(crawl, self.names(), dates_of(dates))])
        elif step == "hand out":
            where = crawl if crawl in exchange.own_crawls() else None
            self.held += exchange.hand_out(4, 30.0, per_queue=2, queues_max=9, crawl=where, key=None)
        elif step == "release":
            exchange.release([self.held.pop(rng.randrange(len(self.held))).token for _ in self.held[:2]])
        elif step == "move":
            world.clock.move(rng.choice([1, 20, 100]))
        elif step == "checkpoint":
            world.frontier.checkpoint()
        elif step == "kill":
            world.kill()
            self.exchange = UrlExchange(world.frontier)
        elif step == "delete":
            exchange.delete(crawl, self.key())
        else:
            exchange.purge(crawl, self.key(), exchange.now() + DAY * MICROSECONDS)
        return step


@pytest.mark.parametrize("seed", range(3))
def test_counts_of_crawls_and_queues_equal_a_recount_in_random_histories(monkeypatch, seed):
    hosts_go_cold(monkeypatch)
    history = History(seed)
    steps = Counter()
    for number in range(STEPS):
        steps[history.step()] += 1
        frontier = history.world.frontier
        for crawl in CRAWLS:
            for key in (None, history.key()):
                found = history.exchange.totals(crawl, key)
                assert found == recounted(frontier, crawl, key), f"step {number}, {crawl}, {key}"
        assert history.exchange.crawls() == [crawl for crawl in CRAWLS if recounted(frontier, crawl).queues]
        if number % VERIFIED_EACH == 0:
            assert not frontier.verify().problems, f"step {number}"
    assert len(steps) == 9


def test_the_counts_of_a_crawl_include_its_cold_hosts(monkeypatch):
    hosts_go_cold(monkeypatch)
    world = World(delay=0, delay_factor=0)
    exchange = UrlExchange(world.frontier)
    rows = columns([("http://a.test/", ""), ("http://b.test/", ""), ("http://c.test/", "")], [b""] * 3)
    exchange.put([Put(CRAWL, rows, dates_of([0, LATER, 1_000]))])
    before = exchange.totals(CRAWL, None)
    assert before == QueueTotals(queues=3, active=2, queued=1, waiting=1, done=1)
    world.frontier.checkpoint()
    assert len(inspect(world.frontier).tables.cold) == 2
    assert exchange.totals(CRAWL, None) == before
    world.kill()
    assert UrlExchange(world.frontier).totals(CRAWL, None) == before


@pytest.mark.parametrize("count", ["a URL", "a queue", "an open URL", "a cold queue"])
def test_verify_finds_wrong_counts_of_crawls(monkeypatch, count):
    hosts_go_cold(monkeypatch)
    world = World(delay=0, delay_factor=0)
    exchange = UrlExchange(world.frontier)
    rows = columns([("http://a.test/", ""), ("http://b.test/", "")], [b""] * 2)
    exchange.put([Put(CRAWL, rows, dates_of([0, 1_000]))])
    world.frontier.checkpoint()
    tables = world.inspect().tables
    (row,) = tables.cold._counts
    wrong = {
        "a URL": partial(tables.urls.of_crawls[row].__setitem__, 5, 2),
        "a queue": partial(tables.queues.of_crawls[row].__setitem__, 0, 2),
        "an open URL": partial(tables.queues.open.__setitem__, 1, 2),
        "a cold queue": partial(tables.cold._counts.__setitem__, row, (2, 0, 0, 1, 0)),
    }
    assert not world.frontier.verify().problems
    wrong[count]()
    assert world.frontier.verify().problems
