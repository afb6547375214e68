"""Host delays when it is in doubt when a request ended, or which queue rules: lost leases, higher limits, deleted
crawls."""

from __future__ import annotations

import pytest

from model.world import World
from outrider.journey import Link

SLOW = b"User-agent: *\nCrawl-delay: 30\n"


def lose(world: World) -> None:
    world.clock.move(5)
    assert [] == world.urls()


@pytest.mark.parametrize("end", [lose, World.kill, World.reopen])
def test_a_crawl_delay_counts_from_a_lease_that_was_lost(end):
    """Its holder may have fetched just before. The rules with the delay arrive afterwards."""
    world = World(delay=1)
    world.discover("http://a.com/1", "http://a.com/2")
    world.lease(1, ttl_seconds=5)
    end(world)
    world.frontier.set_robots("http://a.com", 200, SLOW)
    world.clock.move(29.9)
    assert [] == world.urls()
    world.clock.move(0.1)
    assert 1 == len(world.urls())


def test_a_crawl_delay_counts_from_a_lost_errand():
    world = World(delay=1, robots="errands")
    world.discover("http://a.com/1")
    world.lease(1, errands=True, ttl_seconds=5)
    lose(world)
    world.frontier.set_robots("http://a.com", 200, SLOW)
    world.clock.move(29.9)
    assert [] == world.urls(errands=True)


def test_a_higher_limit_delays_the_host_by_its_slowest_queue():
    """The open request may be of any queue, and its end is not known yet."""
    world = World(delay=0)
    world.discover(Link("http://a.com/1", crawl="slow"), Link("http://a.com/2", crawl="fast"))
    world.frontier.set_delay(60, crawl="slow")
    world.frontier.set_delay(1, crawl="fast")
    assert ["http://a.com/1"] == world.urls(1, crawl="slow", ttl_seconds=600)
    world.frontier.set_limit(2, crawl="fast")
    world.clock.move(59.9)
    assert [] == world.urls()
    world.clock.move(0.1)
    assert ["http://a.com/2"] == world.urls()


def test_a_new_queue_with_a_limit_delays_the_host_by_its_slowest_queue():
    world = World(delay=0)
    world.discover(Link("http://a.com/1", crawl="slow"), Link("http://b.com/", crawl="fast"))
    world.frontier.set_delay(60, crawl="slow")
    world.frontier.set_limit(2, crawl="fast")
    assert ["http://a.com/1"] == world.urls(1, crawl="slow", ttl_seconds=600)
    world.discover(Link("http://a.com/2", crawl="fast"))
    world.clock.move(59.9)
    assert [] == world.urls(crawl="fast", key="a.com")


def test_a_higher_limit_ends_no_request():
    world = World(delay=1)
    world.discover("http://a.com/1", "http://a.com/2")
    world.lease(1)
    world.frontier.set_limit(2, "a.com")
    world.clock.move(1)
    assert world.one().ended_before is None


@pytest.mark.parametrize("ends", ["reported", "lost", "closed"])
def test_a_page_of_a_deleted_crawl_delays_its_host_by_the_remaining_queues(ends):
    world = World(delay=5)
    world.discover(Link("http://a.com/1", crawl="gone"), Link("http://a.com/2", crawl="left"))
    world.frontier.set_delay(0, crawl="gone")
    (lease,) = world.lease(1, crawl="gone", ttl_seconds=9)
    world.frontier.delete(crawl="gone")
    if ends == "reported":
        assert ["stale"] == world.report(lease.done())
    elif ends == "lost":
        world.clock.move(9)
        assert [] == world.urls()
    else:
        world.reopen()
    world.clock.move(4.9)
    assert [] == world.urls()
    world.clock.move(0.1)
    assert ["http://a.com/2"] == world.urls()
