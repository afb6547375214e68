"""Crawls with an exact order: integer priorities, obeyed exactly, and among equal ones the first or the last."""

from __future__ import annotations

import random

import numpy as np
import pytest

from model.world import World
from outrider import Frontier, Link
from outrider.errors import SettingsError
from outrider.journey import Code, State
from outrider.limits import PRIORITY_WHOLE_MAX
from outrider.url import UrlBatch

BOTH = pytest.mark.parametrize("order", ["exact", "lifo"])


def ordered(order, **settings):
    world = World(**{"delay": 0, "delay_factor": 0, **settings})
    assert world.frontier.make_crawl("c", order=order)
    return world


def link(name, priority=None, host="a.com", **more):
    return Link(f"http://{host}/{name}", crawl="c", priority=priority, **more)


def drained(frontier, want=1, **wish):
    """Leases and reports all URLs, and returns the last parts of their paths."""
    found = []
    while leases := list(frontier.lease(want, crawl="c", **wish)):
        frontier.report([lease.done(seconds=0.0) for lease in leases])
        found += [lease.url.rsplit("/", 1)[-1] for lease in leases]
    return found


def expected(links, order):
    """The order of links that were found in this order: [(name, priority)]."""
    numbered = list(enumerate(links))
    sign = 1 if order == "exact" else -1
    return [name for _, (name, _) in sorted(numbered, key=lambda one: (-one[1][1], sign * one[0]))]


@BOTH
def test_any_integer_is_obeyed_exactly_in_a_queue_and_between_hosts(order):
    rng = random.Random(7)
    priorities = [-PRIORITY_WHOLE_MAX, -3, 0, 1, 2, 17, PRIORITY_WHOLE_MAX]
    links = [(str(number), rng.choice(priorities)) for number in range(120)]
    world = ordered(order)
    for name, priority in links:
        world.frontier.discover([link(name, priority, host=f"h{rng.randrange(9)}.com")])
    assert expected(links, order) == drained(world.frontier)


@BOTH
def test_one_call_returns_the_best_of_each_ready_host_the_best_first(order):
    world = ordered(order)
    links = [link(f"{host}-{priority}", priority, host=f"h{host}.com") for host in range(5) for priority in (host, 9)]
    world.frontier.discover(links)
    found = [lease.url for lease in world.frontier.lease(3, crawl="c")]
    hosts = (0, 1, 2) if order == "exact" else (4, 3, 2)
    assert [f"http://h{host}.com/{host}-9" for host in hosts] == found


def test_a_url_without_a_priority_has_0():
    world = ordered("exact", priority=lambda urls, page: np.full(len(urls), 0.75))
    world.frontier.discover([link("below", -1), link("without"), link("above", 1)])
    assert ["above", "without", "below"] == drained(world.frontier)


def test_a_better_url_that_comes_later_goes_before():
    world = ordered("exact")
    world.frontier.discover([link("1", 1), link("2", 1, host="b.com")])
    world.frontier.discover([link("3", 2, host="b.com"), link("4", 3)])
    assert ["4", "3", "1", "2"] == drained(world.frontier)


def test_neither_chance_nor_age_lets_a_worse_url_go_first():
    world = ordered("exact")
    world.frontier.discover([link("low", -1, host="low.com")])
    world.frontier.discover([link(str(number), 0, host=f"h{number}.com") for number in range(40)])
    assert "low" == drained(world.frontier)[-1]


def test_queues_of_one_host_keep_the_order_too():
    world = ordered("lifo")
    links = [(str(number), number % 3) for number in range(12)]
    for number, (name, priority) in enumerate(links):
        world.frontier.discover([link(name, priority, key=f"key{number % 4}")])
    assert expected(links, "lifo") == drained(world.frontier)


@BOTH
def test_the_order_survives_a_restart_a_checkpoint_and_cards_on_disk(order):
    rng = random.Random(3)
    links = [(str(number), rng.randrange(-5, 6)) for number in range(600)]
    world = ordered(order, memory_bytes=1)
    for piece in (links[:200], links[200:400], links[400:]):
        world.frontier.discover([link(name, priority, host=f"h{int(name) % 3}.com") for name, priority in piece])
    world.frontier.checkpoint()
    world.frontier.discover([link("last", -6)])
    world.kill()
    assert [*expected(links, order), "last"] == drained(world.frontier)
    assert world.frontier.verify().ok


def test_a_waiting_url_is_queued_at_its_place():
    world = ordered("exact")
    soon = world.clock() + 1_000_000
    world.frontier.discover([link("waits", 5, not_before=soon), link("1", 4), link("2", 6)])
    (lease,) = world.frontier.lease(1, crawl="c")
    assert "http://a.com/2" == lease.url
    world.frontier.report([lease.done(seconds=0.0)])
    world.clock.move(1)
    assert ["waits", "1"] == drained(world.frontier)


def test_a_released_url_returns_to_its_place_and_a_lost_one_to_the_end_of_its_priority():
    world = ordered("lifo")
    world.frontier.discover([link("1"), link("2"), link("3"), link("low", -1)])
    first = world.frontier.lease(1, crawl="c")
    assert ["http://a.com/3"] == [lease.url for lease in first]
    world.frontier.release(first.tokens)
    assert ["http://a.com/3"] == [lease.url for lease in world.frontier.lease(1, crawl="c", ttl_seconds=10)]
    world.clock.move(11)
    assert ["2", "1", "3", "low"] == drained(world.frontier)


def test_priorities_change_by_orders_of_operators():
    world = ordered("exact")
    world.frontier.discover([link("1", 1), link("2", 2), link("3", 3)])
    assert [State.QUEUED] == world.frontier.reprioritise(["http://a.com/1"], 7, crawl="c")
    world.frontier.requeue(["http://a.com/2"], priority=8, crawl="c")
    assert ["2", "1", "3"] == drained(world.frontier)


def test_links_in_columns_have_integers_too():
    world = ordered("exact")
    world.frontier.discover([link("page")])
    (lease,) = world.frontier.lease(1, crawl="c")
    links = UrlBatch.of([f"http://a.com/{number}" for number in range(4)])
    with pytest.raises(SettingsError, match="whole numbers from"):
        world.frontier.report([lease.done(links=links.with_columns(priority=np.full(4, 0.5)))])
    world.frontier.report([lease.done(links=links.with_columns(priority=np.array([2.0, -1, 40, 0])))])
    assert ["2", "0", "3", "1"] == drained(world.frontier)


def test_records_make_the_crawl_with_its_order_elsewhere():
    world = ordered("lifo")
    links = [(str(number), number % 2) for number in range(6)]
    world.frontier.discover([link(name, priority) for name, priority in links])
    records = list(world.frontier.records())
    assert {"lifo"} == {record["order"] for record in records}
    other = World(delay=0, delay_factor=0)
    assert 6 == other.frontier.restore(records)
    assert expected(links, "lifo") == drained(other.frontier)


def test_a_full_queue_drops_the_lowest_priority():
    world = ordered("exact", max_urls_per_queue=2, when_full="drop_lowest")
    codes = world.frontier.discover([link("1", 1), link("2", 2)])
    codes += world.frontier.discover([link("3", 3)])
    codes += world.frontier.discover([link("0", 0)])
    assert [Code.NEW] * 3 + [Code.OVER_LIMIT] == codes
    assert ["3", "2"] == drained(world.frontier)


def test_crawls_of_both_kinds_share_a_store():
    """The default has its classes and its bias as before, and the draw of all crawls obeys the order of the other."""
    world = ordered("exact")
    world.frontier.discover([Link(f"http://d{number}.com/", priority=0.9) for number in range(20)])
    world.frontier.discover([link(str(number), number, host=f"e{number}.com") for number in range(20)])
    found = []
    while leases := list(world.frontier.lease(1)):
        world.frontier.report([lease.done(seconds=0.0) for lease in leases])
        found += [lease.url for lease in leases]
    ours = [int(url.rsplit("/", 1)[-1]) for url in found if "//e" in url]
    assert list(reversed(range(20))) == ours
    assert 40 == len(found)


def test_a_hundred_leases_at_once_keep_the_order_of_their_hosts():
    world = ordered("exact")
    world.frontier.discover([link(str(number), number, host=f"h{number}.com") for number in range(150)])
    found = [int(lease.url.rsplit("/", 1)[-1]) for lease in world.frontier.lease(100, crawl="c")]
    assert list(range(149, 49, -1)) == found


@pytest.mark.parametrize(
    "said, call",
    {
        "order 'fifo': use one of classes, exact, lifo": lambda frontier: frontier.make_crawl("d", order="fifo"),
        "crawl 'c' was made with order='exact', not 'classes'": lambda frontier: frontier.make_crawl("c"),
        "was made with order='exact', not 'lifo'": lambda frontier: frontier.make_crawl("c", order="lifo"),
        "'default' was made with order='classes', not 'lifo'": lambda frontier: frontier.make_crawl(
            "default", order="lifo"
        ),
        'priority 0.5: in a crawl with order="exact" it must be a whole number': lambda frontier: frontier.discover(
            [link("1", 0.5)]
        ),
        "priority 9007199254740993": lambda frontier: frontier.discover([link("1", PRIORITY_WHOLE_MAX + 1)]),
        "priority nan": lambda frontier: frontier.discover([link("1", float("nan"))]),
        "priority True": lambda frontier: frontier.requeue(["http://a.com/1"], priority=True, crawl="c"),
        "priority 2: it must be a number from 0 to 1": lambda frontier: frontier.discover(
            [Link("http://a.com/", priority=2)]
        ),
        "priority -1: it must be a number from 0 to 1": lambda frontier: frontier.reprioritise(["http://a.com/"], -1),
    }.items(),
)
def test_wrong_orders_and_priorities_are_refused(said, call):
    frontier = ordered("exact").frontier
    with pytest.raises(SettingsError) as caught:
        call(frontier)
    assert said in str(caught.value)
    assert 0 == frontier.statistics()["accepted"]


def test_a_deleted_crawl_may_be_made_with_another_order():
    world = ordered("lifo")
    world.frontier.discover([link("1", 3), link("2", 4)])
    world.frontier.delete(crawl="c")
    assert world.frontier.make_crawl("c", order="classes")
    world.frontier.discover([link("1", 0.3), link("2", 0.9)])
    assert ["2", "1"] == drained(world.frontier)


def test_a_store_of_a_frontier_keeps_the_order(tmp_path):
    with Frontier.open(tmp_path / "frontier", settings={"delay": 0, "delay_factor": 0}, robots="caller") as frontier:
        frontier.make_crawl("c", order="lifo")
        frontier.discover([link("1"), link("2"), link("3", -1)])
    with Frontier.open(tmp_path / "frontier", settings={"delay": 0, "delay_factor": 0}, robots="caller") as frontier:
        assert not frontier.make_crawl("c", order="lifo")
        assert ["2", "1", "3"] == drained(frontier)
