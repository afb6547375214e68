"""rest: a request is over before its outcome is known. Its host rests from there, and its lease stays open."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from model.world import World, everything, hosts_go_cold, outcome, recall_all, recount
from outrider import AsyncFrontier, Link
from outrider.clock import instant
from outrider.errors import ForeignStoreError, SettingsError
from outrider.frontier.format import facts
from outrider.frontier.format.facts import Fact
from outrider.frontier.state import replay
from outrider.journey import Lease

A, B = "http://a.com/1", "http://a.com/2"


def world_of(*urls: Any, **settings: Any) -> World:
    world = World(**{"delay": 1, "delay_factor": 10, **settings})
    world.discover(*(urls or (A, B)))
    return world


def rest(world: World, *leases: Lease, **how: Any) -> list[str]:
    return [str(code) for code in world.frontier.rest([lease.token for lease in leases], **how)]


def rests_for(world: World, host: str = "a.com") -> float:
    """Returns the seconds until the rest of a host ends."""
    until = world.frontier.host(host).rest_until
    return 0.0 if until is None else (until - world.clock()) / 1_000_000


def problems(world: World) -> list[str]:
    return recount(world.frontier) + world.inspect().turns.shared.problems()


# -- the host


def test_the_host_rests_from_the_end_of_the_request_and_its_lease_stays_open():
    world = world_of()
    lease = world.one(ttl_seconds=600)
    world.clock.move(0.5)
    assert (["ok"], "leased") == (rest(world, lease), world.state(A))
    world.clock.move(0.9)
    assert ([], "resting") == (world.urls(), world.frontier.host("a.com").state)
    world.clock.move(0.1)
    assert "ready" == world.frontier.host("a.com").state
    assert ([B], []) == (world.urls(), problems(world))
    assert (["ok"], "done") == (world.report(lease.done(seconds=0.1)), world.state(A))
    assert [] == problems(world)


def test_without_rest_the_host_waits_for_the_report():
    world = world_of()
    lease = world.one(ttl_seconds=600)
    world.clock.move(100)
    assert [] == world.urls()
    world.report(lease.done())
    world.clock.move(1)
    assert [B] == world.urls()


def test_called_right_after_the_lease_the_clocks_run_from_the_hand_out():
    world = world_of()
    lease = world.one()
    rest(world, lease)
    assert 1.0 == rests_for(world)
    world.clock.move(1)
    assert [B] == world.urls()


def test_every_url_of_a_train_has_its_gap_although_it_was_not_due_when_it_was_handed_out():
    world = world_of(*(f"http://a.com/{number}" for number in range(5)))
    train = world.lease(3, per_queue=3)
    assert [0, 1, 2] == [(lease.not_before - world.clock()) / 1_000_000 for lease in train]
    rest(world, *train)
    assert 3.0 == rests_for(world)
    world.clock.move(2.9)
    assert [] == world.urls()
    world.clock.move(0.1)
    assert 1 == len(world.urls())


def test_the_duration_of_the_request_sets_the_adaptive_gap():
    world = world_of("http://a.com/1", "http://b.com/1", "http://c.com/1")
    leases = sorted(world.lease(), key=lambda lease: lease.host)
    world.clock.move(2)
    assert ["ok"] * 3 == rest(world, *leases, seconds=[2, None, 0.3])
    assert [20.0, 1.0, 3.0] == [rests_for(world, host) for host in ("a.com", "b.com", "c.com")]
    assert "factor" == world.frontier.host("a.com").reason
    world = world_of("http://a.com/1", "http://b.com/1")
    rest(world, *world.lease(), seconds=0.5)
    assert [5.0, 5.0] == [rests_for(world, host) for host in ("a.com", "b.com")]


@pytest.mark.parametrize(
    ("ended", "seconds", "left"),
    [(-0.4, None, 0.6), (-0.4, 0.5, 4.6), (-1.1, None, 1.0), (-0.8, 0.5, 5.0), (0.1, None, 1.0), (0.0, None, 1.0)],
    ids=["after", "with duration", "before the lease", "begun before the lease", "later than now", "now"],
)
def test_an_end_counts_if_it_can_be_true_and_otherwise_now(ended, seconds, left):
    world = world_of()
    lease = world.one()
    world.clock.move(1)
    rest(world, lease, seconds=seconds, ended_at=world.clock() + round(ended * 1_000_000))
    assert left == rests_for(world)


def test_the_clock_of_a_named_worker_is_not_trusted():
    world = world_of()
    lease = world.one(worker="w")
    world.clock.move(1)
    rest(world, lease, ended_at=world.clock() - 900_000)
    assert 1.0 == rests_for(world)
    world.clock.move(0.5)
    world.report(lease.done(ended_at=world.clock()))
    assert 0.5 == rests_for(world)


def test_a_host_that_accepts_two_requests_has_a_turn_more_after_rest():
    world = world_of(*(f"http://a.com/{number}" for number in range(4)), delay_factor=0)
    world.frontier.set_limit(2, "a.com")
    first = world.one(ttl_seconds=600)
    world.clock.move(1)
    second = world.one(ttl_seconds=600)
    world.clock.move(5)
    assert [] == world.urls()
    rest(world, first)
    world.clock.move(1)
    assert 1 == len(world.urls(10))
    rest(world, second)
    world.clock.move(1)
    assert (1, []) == (len(world.urls(10)), problems(world))


def test_the_turn_of_a_group_and_of_a_key_is_free_too():
    world = world_of("http://a.one.com/", "http://b.one.com/", group={"domain": {"gap": 3}})
    lease = world.one()
    rest(world, lease)
    world.clock.move(2.9)
    assert [] == world.urls()
    world.clock.move(0.1)
    assert (1, []) == (len(world.urls()), problems(world))
    world = world_of(Link("http://a.com/", key="k"), Link("http://b.com/", key="k"))
    lease = world.one()
    assert ([], "group_busy") == (world.urls(), world.frontier.explain("http://b.com/").reason_now)
    rest(world, lease)
    assert "group_resting" == world.frontier.explain("http://b.com/").reason_now
    world.clock.move(1)
    assert (1, []) == (len(world.urls()), problems(world))


def test_the_present_throttle_counts_until_the_outcome_is_known():
    """A good answer would lessen it. Whether the answer is good is not known yet."""
    world = world_of(*(f"http://a.com/{number}" for number in range(4)), delay_factor=0)
    world.report(outcome(world.one(), "retry", status=500, seconds=0))
    throttle = world.inspect().tables.hosts.throttle[0]
    world.clock.move(10)
    lease = world.one()
    rest(world, lease)
    assert (2.0, 0.5) == (rests_for(world), throttle)
    assert throttle == world.inspect().tables.hosts.throttle[0]
    world.report(lease.done())
    assert 2.0 == rests_for(world)
    assert 0.375 == world.inspect().tables.hosts.throttle[0]


# -- a second end


def test_a_report_lets_the_host_rest_no_second_time():
    world = world_of(delay_factor=0)
    lease = world.one(ttl_seconds=600)
    rest(world, lease)
    world.clock.move(0.9)
    world.report(lease.done(seconds=0.1, status=200))
    assert abs(0.1 - rests_for(world)) < 1e-9
    clock = world.frontier.host("a.com")
    assert ("floor", 1.0, 1) == (clock.reason, clock.gap_seconds, clock.answered)
    world.clock.move(0.1)
    assert [B] == world.urls()


def test_a_report_after_the_next_visit_changes_nothing_about_it():
    world = world_of(delay_factor=0)
    first = world.one(ttl_seconds=600)
    rest(world, first)
    world.clock.move(1)
    second = world.one(ttl_seconds=600)
    world.clock.move(5)
    world.report(first.done())
    assert ([], "leased") == (world.urls(), world.frontier.explain(B).reason_now)
    world.report(second.done())
    assert 1.0 == rests_for(world)


@pytest.mark.parametrize(
    ("how", "left", "reason"),
    [
        ({"retry_after_seconds": 60.0, "status": 503, "refused": True}, 58.0, "retry_after"),
        ({"status": 500}, 18.0, "strain"),
        ({"seconds": 3.0, "status": 200}, 28.0, "factor"),
        ({"seconds": 0.1, "status": 200}, 8.0, "factor"),
    ],
    ids=["retry-after", "strain", "longer duration", "shorter duration"],
)
def test_signs_of_the_outcome_lengthen_the_rest_and_never_shorten_it(how, left, reason):
    world = world_of()
    lease = world.one(ttl_seconds=600)
    world.clock.move(1)
    rest(world, lease, seconds=1)
    world.clock.move(2)
    world.report(outcome(lease, "done" if how["status"] == 200 else "retry", **{"seconds": 1.0, **how}))
    assert left == pytest.approx(rests_for(world))
    assert reason == world.frontier.host("a.com").reason


def test_a_refusal_makes_the_host_back_off_after_rest():
    world = world_of(delay_factor=0)
    lease = world.one(ttl_seconds=600)
    rest(world, lease)
    world.clock.move(2)
    world.report(outcome(lease, "retry", status=429, refused=True))
    host = world.frontier.host("a.com")
    assert ("back_off", True) == (host.reason, host.back_off_seconds > 0)
    assert rests_for(world) > 1


def test_a_later_end_in_the_report_counts():
    world = world_of(delay_factor=0)
    lease = world.one(ttl_seconds=600)
    rest(world, lease)
    world.clock.move(3)
    world.report(lease.done(ended_at=world.clock() - 500_000))
    assert 0.5 == rests_for(world)


def test_a_second_rest_changes_nothing_but_a_longer_one_counts():
    world = world_of()
    lease = world.one(ttl_seconds=600)
    rest(world, lease)
    world.clock.move(0.5)
    before = everything(world.frontier)
    assert (["ok"], 0.5) == (rest(world, lease), rests_for(world))
    assert before == everything(world.frontier)
    assert (["ok"], 1.5) == (rest(world, lease, seconds=0.2), rests_for(world))
    assert (["ok"], 1.5) == (rest(world, lease, seconds=0.1), rests_for(world))
    world.clock.move(5)
    assert (["ok"], 0.5) == (rest(world, lease, ended_at=world.clock() - 500_000), rests_for(world))
    assert (["ok"], 0.5) == (rest(world, lease, ended_at=world.clock() - 900_000), rests_for(world))
    assert [] == problems(world)


def test_a_token_named_twice_in_one_call_frees_one_turn_and_the_longest_rest_counts():
    world = world_of()
    lease = world.one()
    assert ["ok", "ok", "stale"] == [
        str(code) for code in world.frontier.rest([lease.token, lease.token, 7], seconds=[0.1, 0.5, None])
    ]
    assert (5.0, []) == (rests_for(world), problems(world))


# -- the lease


def test_tokens_that_are_not_open_are_stale_and_change_nothing():
    world = world_of()
    lease = world.one()
    world.report(lease.done())
    before = everything(world.frontier)
    world.clock.move(0.5)
    assert ["stale", "stale"] == [str(code) for code in world.frontier.rest([lease.token, 1 << 60])]
    assert ([], before) == (world.frontier.rest([]), everything(world.frontier))


def test_a_lease_that_expires_is_lost_and_its_host_rests_no_second_time():
    world = world_of(delay_factor=0)
    lease = world.one(ttl_seconds=5)
    rest(world, lease)
    world.clock.move(5)
    assert 1 == len(world.urls(1, ttl_seconds=600))
    assert (["stale"], []) == (world.report(lease.done()), problems(world))
    assert 1 == world.frontier.statistics()["lost"]


def test_it_may_be_extended_returned_and_deferred():
    world = world_of("http://a.com/1", "http://b.com/1", "http://c.com/1", delay_factor=0)
    first, second, third = world.lease(ttl_seconds=5)
    rest(world, first, second, third)
    world.frontier.extend([first.token], 600)
    world.frontier.release([second.token])
    world.frontier.defer([third.token], world.clock() + instant(2))
    assert [] == problems(world)
    world.clock.move(1)
    assert [second.url] == world.urls(ttl_seconds=600)
    world.clock.move(9)
    assert [third.url] == world.urls(ttl_seconds=600)
    assert (["ok"], []) == (world.report(first.done()), problems(world))


def test_a_deleted_url_lets_its_host_rest_and_its_report_is_stale():
    world = world_of(delay_factor=0)
    lease = world.one(ttl_seconds=600)
    world.frontier.delete("a.com")
    assert (["ok"], 1.0) == (rest(world, lease), rests_for(world))
    assert (["stale"], []) == (world.report(lease.done()), problems(world))


def test_the_queue_of_a_deleted_crawl_stays_until_the_lease_ends():
    world = world_of(Link("http://a.com/1", crawl="gone"), Link("http://a.com/2", crawl="left"), delay_factor=0)
    lease = world.one(crawl="gone", ttl_seconds=600)
    rest(world, lease)
    world.frontier.delete(crawl="gone")
    for _ in range(3):
        world.frontier.lease(0)
    assert (2, []) == (len(world.inspect().tables.queues), problems(world))
    assert ["stale"] == world.report(lease.done())
    world.frontier.lease(0)
    assert (1, []) == (len(world.inspect().tables.queues), problems(world))


def test_a_budget_counts_requests_whose_outcome_is_not_known_yet():
    world = world_of(*(f"http://a.com/{number}" for number in range(5)), delay_factor=0, max_pages_per_host=2)
    leases = []
    for _ in range(4):
        leases += world.lease(1, ttl_seconds=6_000)
        rest(world, *leases)
        world.clock.move(10)
    assert (2, []) == (len(leases), problems(world))
    world.report(*(outcome(lease, "retry", error="timeout") for lease in leases))
    world.clock.move(400)
    assert 1 == len(world.urls(1))


def test_a_host_with_such_a_lease_is_not_moved_to_the_disk(monkeypatch):
    hosts_go_cold(monkeypatch)
    world = world_of("http://a.com/1", *(f"http://b{number}.com/" for number in range(8)), delay_factor=0)
    leases = world.lease(ttl_seconds=6_000)
    mine = next(lease for lease in leases if lease.host == "a.com")
    rest(world, *leases)
    world.report(*(lease.done() for lease in leases if lease is not mine))
    world.clock.move(100)
    for _ in range(20):
        world.frontier.checkpoint()
        world.frontier.lease(0)
    assert 8 == recall_all(world.frontier)
    assert (["ok"], []) == (world.report(mine.done()), problems(world))


# -- errands


def test_the_host_of_an_errand_rests_from_its_end_and_its_pages_wait_for_the_report():
    world = world_of(A, robots="errands", delay_factor=0)
    lease = world.one(errands=True, ttl_seconds=600)
    world.clock.move(1)
    assert (["ok"], 1.0) == (rest(world, lease, ended_at=world.clock()), rests_for(world))
    assert "is not reported yet" in world.frontier.explain(A).reason_text
    world.frontier.extend([lease.token], 600)
    assert [] == problems(world)
    world.clock.move(5)
    assert [] == world.urls(errands=True)
    world.report(lease.robots(404, b""))
    assert ([A], []) == (world.urls(errands=True), problems(world))


def test_errands_of_callers_and_for_addresses_may_rest_too():
    world = world_of(A, delay_factor=0, group="address", addresses="errands")
    world.frontier.queue_errands("sitemap", ["http://a.com/s.xml"])
    address = world.one(errands=True)
    assert (["ok"], 0.0) == (rest(world, address), rests_for(world)), "it sends no request to the host"
    world.report(address.located("192.0.2.1"))
    errand = world.one(errands=True, ttl_seconds=600)
    assert (["ok"], 1.0) == (rest(world, errand), rests_for(world))
    world.clock.move(1)
    page = world.one(errands=True, ttl_seconds=600)
    assert ("sitemap", "page") == (errand.kind, page.kind)
    world.report(errand.done(), page.done())
    assert [] == problems(world)


def test_an_expired_errand_lets_the_host_rest_no_second_time():
    world = world_of(A, robots="errands", delay_factor=0)
    lease = world.one(errands=True, ttl_seconds=5)
    rest(world, lease)
    world.clock.move(5)
    again = world.one(errands=True)
    assert ("robots", True, []) == (again.kind, again.token != lease.token, problems(world))


# -- others who wait


def test_a_lease_that_waits_gets_the_free_turn():
    world = world_of(delay=0, delay_factor=0)

    async def both() -> list[str]:
        frontier = AsyncFrontier(world.frontier)
        (lease,) = await frontier.lease(1)
        waiting = asyncio.ensure_future(frontier.lease(1, wait_seconds=60))
        await asyncio.sleep(0)
        assert 1 == frontier.waiting_leases
        assert ["ok"] == [str(code) for code in await frontier.rest([lease.token])]
        return [lease.url, *(await waiting).urls]

    assert [A, B] == asyncio.run(both())


# -- after the process


def all_kinds(**settings: Any) -> tuple[World, list[Lease]]:
    """A page of this process, a page of a worker, a robots.txt and a sitemap of a worker, all at rest."""
    world = World(delay=1, delay_factor=10, robots="errands", **settings)
    world.discover("http://a.com/1", "http://b.com/1")
    world.settle_robots()
    world.frontier.queue_errands("sitemap", ["http://b.com/s.xml"])
    world.discover("http://c.com/1")
    leases = [
        world.one(key="a.com"),
        *world.lease(3, errands=True, worker="w", ttl_seconds=6_000),
    ]
    assert ["page", "robots", "sitemap"] == sorted(str(lease.kind) for lease in leases)
    return world, leases


@pytest.mark.parametrize("end", [World.kill, World.reopen])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_after_the_end_of_the_process_the_longer_rest_remains(end, checkpoint):
    world, leases = all_kinds()
    rest(world, *leases, seconds=2)
    world.clock.move(0.5)
    if checkpoint:
        world.frontier.checkpoint()
    assert [19.5, 19.5, 19.5] == [rests_for(world, host) for host in ("a.com", "b.com", "c.com")]
    end(world)
    assert [20.0, 19.5, 19.5] == [rests_for(world, host) for host in ("a.com", "b.com", "c.com")]
    assert ([], 2) == (problems(world), len(world.inspect().tables.hosts.rested)), "those of the worker go on"
    world.clock.move(30)
    assert ["ok", "ok"] == [str(code) for code in world.frontier.rest([lease.token for lease in leases[1:]])]
    world.report(*(one.robots(404, b"") if one.kind == "robots" else one.done() for one in leases[1:]))
    assert (0, []) == (len(world.inspect().tables.hosts.rested), problems(world))


def test_the_hosts_of_a_killed_process_rest_one_whole_delay_if_that_is_longer():
    world = world_of(delay_factor=0)
    rest(world, world.one())
    world.clock.move(0.9)
    world.kill()
    assert 1.0 == rests_for(world)
    world.clock.move(1)
    assert 1 == len(world.urls(1))


def older_build(monkeypatch: Any) -> None:
    """From now on this build does not know the fact."""
    monkeypatch.delitem(facts.KINDS, Fact.RESTED)
    monkeypatch.delitem(replay._RUNS, (int(Fact.RESTED), 2))


def test_an_older_build_refuses_a_store_with_such_a_fact_in_words(monkeypatch):
    world = world_of()
    rest(world, world.one())
    older_build(monkeypatch)
    with pytest.raises(ForeignStoreError, match=r"facts of kind 45 version 2, made by another release"):
        world.kill()


def test_a_store_that_has_no_such_lease_is_one_for_older_builds(monkeypatch):
    world = world_of()
    lease = world.one()
    rest(world, lease)
    world.report(lease.done())
    world.frontier.checkpoint()
    older_build(monkeypatch)
    world.kill()
    world.clock.move(5)
    assert [B] == world.urls()


# -- what is refused


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"seconds": -1}, r"seconds -1: it must be a number of seconds from 0 to"),
        ({"seconds": "2"}, r"seconds '2': it must be a number"),
        ({"seconds": float("nan")}, r"seconds nan: it must be a number"),
        ({"seconds": [1, 2]}, r"seconds has 2 values for 1 tokens; pass one value, or one for each token"),
        ({"ended_at": 1.5}, r"ended_at 1.5: it must be a whole number"),
        ({"ended_at": -5}, r"ended_at -5: it must be a whole number"),
        ({"ended_at": []}, r"ended_at has 0 values for 1 tokens"),
    ],
)
def test_values_that_can_be_no_request_are_refused_before_anything_is_logged(how, message):
    world = world_of()
    lease = world.one()
    lsn = world.frontier._log.appended_lsn
    with pytest.raises(SettingsError, match=message):
        world.frontier.rest([lease.token], **how)
    assert lsn == world.frontier._log.appended_lsn


def test_what_nothing_delays_but_an_open_outcome_is_said_in_words():
    world = world_of(A)
    lease = world.one(ttl_seconds=600)
    rest(world, lease)
    world.clock.move(5)
    idle = world.frontier.explain_idle()
    assert ("leased", True) == (idle.reason, "1 request is over, and its outcome is not reported yet" in idle.text)
    assert "has fetched it, and reports by" in world.frontier.explain(A).reason_text
    assert 1 == next(iter(world.frontier.queues())).leased
