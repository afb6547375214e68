"""All hosts fail at once: that is our own network. The crawl pauses, slows no host, and continues by itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from model.world import World
from outrider.clock import instant
from outrider.frontier.policy.network import Network
from outrider.limits import NETWORK_HOSTS_MIN, NETWORK_PROBES

HOSTS = 12
DAY = 86_400.0


def world_of(hosts: int = HOSTS, pages: int = 6, **how: object) -> World:
    """Hosts that have answered once."""
    world = World(delay=1.0, delay_factor=0.0, **how)
    world.discover(*[f"http://h{host}.test/{page}" for page in range(pages) for host in range(hosts)])
    answer(world)
    return world


def answer(world: World) -> int:
    """Answers all possible leases. Returns their number."""
    leases = list(world.lease(100))
    world.report(*[lease.done(seconds=0.01) for lease in leases])
    world.clock.move(1.0)
    return len(leases)


def fail_one_by_one(world: World, error: str = "connect_timeout") -> int:
    leases = list(world.lease(100))
    for lease in leases:
        world.report(lease.retry(seconds=0.01, error=error))
    return len(leases)


def test_when_all_hosts_fail_at_once_the_crawl_pauses_and_slows_no_host():
    world = world_of()
    assert HOSTS == fail_one_by_one(world)
    world.clock.move(5.0)
    assert [] == world.lease(100).urls
    assert 25.0 == world.ready_in()
    idle = world.frontier.explain_idle()
    assert ("network", 25.0) == (idle.reason, idle.next_seconds)
    assert "network" == world.frontier.explain("http://h0.test/5").reason_now
    world.clock.move(25.0)
    leases = list(world.lease(100))
    assert NETWORK_PROBES == len(leases)
    assert [] == world.lease(100).urls
    world.report(*[lease.done(seconds=0.01) for lease in leases])
    world.clock.move(10.0)
    assert HOSTS == answer(world)
    assert [1.0] * HOSTS == [lease.gap_seconds for lease in world.lease(100)]


def test_the_hosts_that_showed_the_outage_lose_one_attempt_and_the_other_hosts_lose_no_attempt():
    world = world_of()
    fail_one_by_one(world)
    world.clock.move(40.0)
    attempts = []
    while leases := world.lease(100):
        attempts += [lease.attempt for lease in leases]
        world.report(*[lease.done(seconds=0.01) for lease in leases])
        world.clock.move(10.0)
    assert (NETWORK_HOSTS_MIN - 1, 2) == (attempts.count(2), max(attempts))


def test_a_night_without_a_network_loses_no_page():
    world = world_of()
    fail_one_by_one(world)
    asked, end = 0, world.clock() + instant(8 * 3_600)
    while world.clock() < end:
        world.clock.move(max(world.ready_in() or 0.0, 0.001))
        asked += fail_one_by_one(world)
    assert asked < 4 * 60
    for _ in range(200):
        answer(world)
        world.clock.move(world.ready_in() or 0.0)
    assert {"done": HOSTS * 6} == world.counts()


def test_a_crawl_of_dead_hosts_ends_after_a_day():
    world = world_of(hosts=NETWORK_HOSTS_MIN, pages=3)
    begun = world.clock()
    while not world.frontier.finished():
        world.clock.move(max(world.ready_in() or 0.0, 0.001))
        fail_one_by_one(world)
    assert DAY < (world.clock() - begun) / 1_000_000 < 2 * DAY
    assert {"done": 8, "gone": 16} == world.counts()


def test_hosts_that_never_answered_do_not_count_as_a_sign_of_an_outage():
    world = World(delay=1.0, delay_factor=0.0)
    world.discover(*[f"http://h{host}.test/" for host in range(30)])
    assert 30 == fail_one_by_one(world)
    world.clock.move(6.0)
    assert 30 == len(world.lease(100))


@pytest.mark.parametrize("error", ["connect_refused", "tls", "malformed"])
def test_errors_of_a_host_itself_do_not_count_as_a_sign_of_an_outage(error):
    world = world_of()
    fail_one_by_one(world, error)
    world.clock.move(6.0)
    assert HOSTS == len(world.lease(100))


def test_one_host_that_answers_shows_that_the_network_works():
    world = world_of()
    leases = list(world.lease(100))
    for place, lease in enumerate(leases):
        fine = place % 6 == 5
        world.report(lease.done(seconds=0.01) if fine else lease.retry(seconds=0.01, error="reset"))
    world.clock.move(6.0)
    assert HOSTS == len(world.lease(100))


def test_a_robots_txt_that_an_outage_made_unreachable_closes_no_host():
    world = world_of(robots="errands", pages=0)
    world.discover(*[f"http://h{host}.test/{page}" for page in range(3) for host in range(HOSTS)])
    world.settle_robots(seconds=2.0)
    answer(world)
    world.clock.move(DAY + 1)
    for _ in range(20):
        for lease in world.lease(100, errands=True):
            assert "robots" == lease.kind
            world.report(structs.replace(lease.robots(None, seconds=1.0), error="unreachable"))
        world.clock.move(max(world.ready_in() or 0.0, 0.001))
    world.settle_robots(seconds=2.0)
    for _ in range(400):
        answer(world)
        world.clock.move(world.ready_in() or 0.0)
    assert {"done": 3 * HOSTS} == world.counts()


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 20), st.integers(0, 900)), max_size=120))
def test_no_pause_is_longer_than_ten_minutes_and_any_answer_ends_it(steps):
    network, now = Network(), 1
    for answered, host, wait in steps:
        now += instant(wait)
        before = network
        network = network.after(answered=answered, silent={} if answered else {host: 0.0}, now=now)
        assert not (answered and network.down)
        assert network.until - now <= instant(600)
        if network.down and not before.down:
            assert len(network.silent) == NETWORK_HOSTS_MIN
