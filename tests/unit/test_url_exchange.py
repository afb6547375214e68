"""URLs with dates in columns (`put_dated`) end as the same records in `put`, whatever the URLs were before."""

import msgspec
import numpy as np
import pytest

from model.world import World
from outrider import Frontier
from outrider.engine.url_exchange import Put, UrlExchange, record_of_known
from outrider.errors import SettingsError
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
