"""Errands for robots.txt are sent only for wanted hosts, and no URL is forgotten while a robots.txt is unavailable."""

from __future__ import annotations

import pytest

from model.world import World
from outrider.journey import Link

CLOSED, OPEN = b"User-agent: *\nDisallow: /x", b"User-agent: *\nDisallow: /y"
DAY = 86_400


def asked(world: World) -> list[str]:
    return [lease.url for lease in world.lease(errands=True)]


def test_the_robots_txt_of_a_deleted_queue_is_not_requested():
    world = World(robots="errands")
    world.discover("http://a.com/1")
    assert [] == world.urls()
    world.frontier.delete("a.com")
    assert ([], None, True) == (asked(world), world.ready_in(), world.frontier.finished())


def test_no_robots_txt_is_requested_for_a_paused_crawl_when_the_other_crawl_of_the_host_is_deleted():
    world = World(robots="errands")
    world.discover(Link("http://a.com/1", crawl="gone"), Link("http://a.com/2", crawl="paused"))
    assert [] == world.urls()
    world.frontier.pause(crawl="paused")
    world.frontier.delete(crawl="gone")
    assert ([], None) == (asked(world), world.ready_in())
    world.frontier.resume(crawl="paused")
    assert ["http://a.com/robots.txt"] == asked(world)


def test_a_deleted_queue_that_is_found_again_requests_robots_txt_again():
    world = World(robots="errands")
    world.discover("http://a.com/1")
    assert [] == world.urls()
    world.frontier.delete("a.com")
    assert [] == asked(world)
    world.discover("http://a.com/1")
    assert ["http://a.com/robots.txt"] == asked(world)


def test_the_daily_errand_of_a_host_survives_the_deletion_of_one_of_its_crawls():
    world = World(robots="errands", delay=0)
    world.discover(Link("http://a.com/1", crawl="gone"), Link("http://a.com/2", crawl="left"))
    for wait in (5, 30, 300, 0):  # after these retries it counts as unreachable for a day
        (lease,) = world.lease(errands=True)
        world.report(lease.robots(503))
        world.clock.move(wait)
    assert [] == asked(world)
    world.frontier.delete(crawl="gone")
    assert world.ready_in() is not None
    world.clock.move(DAY)
    assert ["http://a.com/robots.txt"] == asked(world)


@pytest.mark.parametrize("meanwhile", ["leases", "reopens", "dies"])
@pytest.mark.parametrize("robots", ["caller", "errands"])
def test_urls_to_be_judged_again_are_judged_when_an_unreachable_robots_txt_answers(robots, meanwhile):
    """Its rules are unchanged. Only the unfinished judgement shows that a URL may be leased now."""
    world = World(delay=0, robots=robots)
    world.frontier.set_robots("http://a.com", 200, CLOSED)
    world.discover("http://a.com/x")
    assert ([], {"parked": 1}) == (world.urls(), world.counts())
    world.frontier.set_robots("http://a.com", 200, OPEN)
    world.clock.move(DAY)  # a younger copy is valid while the file is unreachable
    for _ in range(5):  # with errands, the fourth answer in a row says that the file does not exist
        world.frontier.set_robots("http://a.com", 503)
    assert [] == world.urls()
    if meanwhile == "reopens":
        world.reopen()
    elif meanwhile == "dies":
        world.kill()
    assert ([], {"parked": 1}) == (world.urls(), world.counts())
    world.frontier.set_robots("http://a.com", 200, OPEN)
    assert ["http://a.com/x"] == world.urls()
    assert world.frontier.verify().ok
