"""The owner's settings about robots.txt: an unreachable file, and a Crawl-delay above the limit."""

from __future__ import annotations

import pytest

from model.world import World
from outrider.errors import SettingsError
from unit.test_frontier_robots import errand

A, B = "http://a.com/private/x", "http://a.com/open"
RULES = b"User-agent: *\nDisallow: /private/\n"


def answered(world: World, status: int | None, body: bytes = b"") -> None:
    world.report(errand(world).robots(status, body, seconds=0.0))


def unreachable(world: World) -> None:
    for seconds in (5, 30, 300, 0):
        answered(world, 500)
        world.clock.move(seconds)


def test_a_host_whose_robots_txt_cannot_be_read_stays_closed():
    world = World(robots="errands", delay=0, delay_factor=0.0)
    world.discover(A, B)
    unreachable(world)
    assert ([], "robots_unreachable") == (world.urls(), world.reason(B))


def test_the_owner_may_open_a_host_whose_robots_txt_cannot_be_read():
    world = World(robots="errands", delay=0, delay_factor=0.0, robots_unreachable="open")
    world.discover(A, B)
    unreachable(world)
    world.clock.move(1)
    assert A == world.one().url


def test_an_open_host_obeys_the_last_rules_that_were_read():
    world = World(robots="errands", delay=0, delay_factor=0.0, robots_unreachable="open")
    world.discover(A)
    answered(world, 200, RULES)
    world.clock.move(86_400)
    world.discover(B)
    unreachable(world)
    world.clock.move(1)
    assert ([B], "robots") == (world.urls(), world.reason(A))


def gap_of(**settings: object) -> float:
    world = World(robots="errands", delay=1, delay_factor=0.0, **settings)
    world.discover(A, B)
    answered(world, 200, b"User-agent: *\nCrawl-delay: 40\n")
    world.clock.move(50)
    world.report(world.one().done(seconds=0.0))
    return world.frontier.next_ready_seconds()


def test_a_crawl_delay_is_obeyed_or_cut_to_the_limit():
    assert [40.0, 40.0, 10.0] == [
        gap_of(),
        gap_of(crawl_delay_max=10),
        gap_of(crawl_delay_max=10, crawl_delay_over="cap"),
    ]
    assert 40.0 == gap_of(crawl_delay_max=60, crawl_delay_over="cap")


def test_the_pages_of_a_host_with_a_longer_delay_are_skipped():
    world = World(robots="errands", delay=1, crawl_delay_max=10, crawl_delay_over="skip")
    world.discover(A)
    answered(world, 200, b"User-agent: *\nCrawl-delay: 40\n")
    world.clock.move(100)
    assert ([], "robots") == (world.urls(), world.reason(A))


@pytest.mark.parametrize("body", [RULES, b"User-agent: *\nDisallow: /\nCrawl-delay: 40\n", b""])
@pytest.mark.parametrize("status", [200, 404, 500, None])
def test_the_owner_may_ignore_robots_txt_and_its_crawl_delay(status, body):
    """The file is requested once, for its sitemaps, and closes no page."""
    world = World(robots="errands", delay=1, delay_factor=0.0, obey_robots=False)
    world.discover(A, B)
    assert [] == world.urls()
    answered(world, status, body)
    world.clock.move(4)  # a 500 slows its host
    first = world.one()
    world.report(first.done(seconds=0.0))
    world.clock.move(4)
    assert {A, B} == {first.url, world.one().url}


def test_urls_closed_by_a_robots_txt_that_is_ignored_later_return_on_an_operators_order():
    world = World(robots="errands", delay=0, delay_factor=0.0)
    world.discover(A)
    answered(world, 200, RULES)
    world.clock.move(1)
    assert ([], "robots") == (world.urls(), world.reason(A))
    world.kill(obey_robots=False)
    world.clock.move(1)
    assert ([], 0, 1) == (world.urls(), world.frontier.retry(), world.frontier.retry(error="robots"))
    assert [A] == world.urls()


@pytest.mark.parametrize(
    "setting", [{"robots_unreachable": "ajar"}, {"obey_robots": "no"}, {"crawl_delay_over": 1}, {"crawl_delay_max": -1}]
)
def test_an_invalid_setting_is_named(setting):
    with pytest.raises(SettingsError, match=next(iter(setting))):
        World(**setting)
