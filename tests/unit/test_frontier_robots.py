"""robots.txt as an errand, and verdicts that are lazy."""

from __future__ import annotations

from model.world import World, recount


def test_an_errand_that_is_open_at_a_kill_does_not_keep_the_store_from_opening():
    """The errand's fact names no URL: replay must know where robots.txt is asked for."""
    world = World(robots="errands")
    world.discover("http://a.com/")
    world.lease(errands=True)
    world.lease(errands=True)
    world.kill()
    assert [] == recount(world.frontier)
    assert {"queued": 1} == world.counts()
