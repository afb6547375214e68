"""Strain: a host whose answers fail gets fewer requests even before the first retry, and recovers by itself."""

from __future__ import annotations

from itertools import pairwise

from model.world import World

DELAY = 1.0


def asked(world: World, status: int | None, count: int, error: str | None = None) -> list[float]:
    """Sends the host `count` requests and answers each in the same way. Returns the seconds between an answer and the
    next request."""
    gaps = []
    for _ in range(count):
        while not (leases := world.lease(1)):
            world.clock.move(world.frontier.next_ready_seconds() or 0.001)
        (lease,) = leases
        gaps.append(lease.gap_seconds or 0.0)
        if status is not None and status < 400:
            world.report(lease.done(seconds=0.01, status=status))
        else:
            world.report(lease.retry(seconds=0.01, status=status, error=error, after_seconds=10_000))
    return gaps[1:]


def world_of(hosts: int = 1, pages: int = 40) -> World:
    world = World(delay=DELAY, delay_factor=0.0)
    world.discover(*[f"http://h{host}.test/{page}" for page in range(pages) for host in range(hosts)])
    return world


def test_a_storm_of_500_slows_its_host_before_the_first_retry_and_ends_by_itself():
    world = world_of()
    assert [2.0, 4.0, 8.0, 16.0] == asked(world, 500, 5)
    gaps = asked(world, 200, 12)
    assert (sorted(gaps, reverse=True), DELAY) == (gaps, gaps[-1])


def test_an_invalid_status_slows_a_host_like_a_500():
    assert [2.0, 4.0, 8.0] == asked(world_of(), 600, 4) == asked(world_of(), 999, 4)


def test_resets_and_timeouts_slow_a_host_and_a_missing_page_does_not():
    for error in ("reset", "first_byte_timeout", "connect_timeout"):
        assert [2.0, 4.0] == asked(world_of(), None, 3, error)
    assert [1.0, 1.0] == asked(world_of(), 404, 3)


def test_strain_is_reported_and_survives_a_kill():
    world = world_of()
    asked(world, 503 - 3, 3)
    world.kill()
    assert [4.0] == asked(world, 200, 2)
    assert "strain" == world.frontier.host("h0.test").reason


def test_when_no_host_answers_no_host_is_slowed():
    world = world_of(hosts=8, pages=3)
    leases = world.lease(8)
    assert 8 == len(leases)
    world.report(*[lease.retry(seconds=0.01, error="connect_timeout", after_seconds=10_000) for lease in leases])
    world.clock.move(DELAY)
    assert {DELAY} == {lease.gap_seconds for lease in world.lease(8)}
    world = world_of(hosts=8, pages=3)
    one, *others = world.lease(8)
    failed = [lease.retry(seconds=0.01, error="connect_timeout", after_seconds=10_000) for lease in others]
    world.report(one.done(seconds=0.01), *failed)
    world.clock.move(2 * DELAY)
    assert [DELAY] + [2 * DELAY] * 7 == sorted(lease.gap_seconds for lease in world.lease(8))


def test_stale_outcomes_do_not_count_for_the_verdict_on_the_network():
    world = world_of(hosts=8, pages=3)
    one, *others = sorted(world.lease(8), key=lambda lease: lease.host)
    world.frontier.release([one.token])
    late = one.retry(seconds=0.01, error="connect_timeout")
    one = world.one()
    failed = [lease.retry(seconds=0.01, error="connect_timeout", after_seconds=10_000) for lease in others]
    assert ["stale"] + ["ok"] * 8 == world.report(late, one.done(seconds=0.01), *failed)
    world.clock.move(2 * DELAY)
    assert [DELAY] + [2 * DELAY] * 7 == sorted(lease.gap_seconds for lease in world.lease(8))


def rests_of(world: World, waits: list[float]) -> list[float]:
    """Answers with these waits for a first byte. Returns the seconds of the host's delay after each."""
    gaps = []
    for waited in waits:
        while not (leases := world.lease(1)):
            world.clock.move(world.frontier.next_ready_seconds() or 0.001)
        world.report(leases[0].done(seconds=waited, first_byte_seconds=waited))
        gaps.append(world.frontier.host("h0.test").gap_seconds)
    return gaps


def test_a_host_that_answers_later_than_usual_is_slowed_before_its_first_error_also_after_a_kill():
    world = world_of()
    assert [DELAY] * 11 == rests_of(world, [0.1] * 10 + [0.45])
    world.kill()
    gaps = rests_of(world, [0.9, 1.8])
    assert DELAY < gaps[0] < gaps[1]
    assert "strain" == world.frontier.host("h0.test").reason
    assert DELAY == rests_of(world, [0.1] * 8)[-1]


def refusals(hosts: int, seed: int) -> list[float]:
    """Returns the delays of hosts that refuse together."""
    world = World(delay=DELAY, delay_factor=0.0, seed=seed, keys=(b"k" * 16, b"s" * 16))
    world.discover(*[f"http://h{host}.test/" for host in range(hosts)])
    leases = world.lease(hosts)
    world.report(*[lease.retry(seconds=0.01, status=429, refused=True) for lease in leases])
    return [world.frontier.host(f"h{host}.test").gap_seconds for host in range(hosts)]


def test_hosts_that_refuse_together_return_at_different_times_by_the_seed_and_never_early():
    gaps = refusals(50, seed=1)
    assert gaps == refusals(50, seed=1) != refusals(50, seed=2)
    assert 4.0 <= min(gaps) < 4.1 < 4.3 < max(gaps) < 4.4
    assert 50 == len(set(gaps))


def test_a_crawl_delay_as_a_window_is_the_owners_choice():
    world = World(robots="errands", delay=1, delay_factor=0.0, crawl_delay_as="window")
    world.discover(*[f"http://h0.test/{page}" for page in range(6)])
    began = []
    while len(began) < 6:
        for lease in world.lease(1, errands=True):
            if lease.kind == "robots":
                world.report(lease.robots(200, b"User-agent: *\nCrawl-delay: 30\n", seconds=0.0))
                continue
            began.append(world.clock() / 1_000_000)
            world.clock.move(20)
            world.report(lease.done(seconds=20.0))
        world.clock.move(world.frontier.next_ready_seconds() or 0.0)
    assert {30.0} == {round(later - earlier, 3) for earlier, later in pairwise(began[1:])}
