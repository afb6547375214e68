"""Errands for addresses: the hosts that wait for an answer, its lifetime, and survival of a kill."""

from __future__ import annotations

from typing import Any

import pytest

from model.world import World, everything, recount
from outrider import Link
from outrider.clock import instant
from outrider.engine import Frontier
from outrider.errors import SettingsError
from outrider.journey import Lease, LeaseBatch, OutcomeBatch
from outrider.limits import ADDRESS_FAILED_SECONDS, ADDRESS_SECONDS_MAX, ADDRESS_SECONDS_MIN, ADDRESS_SECONDS_USUAL


def world_of(group: object = "address", **how: Any) -> World:
    return World(group=group, addresses="errands", **how)


def problems(world: World) -> list[str]:
    shared = world.inspect().turns.shared
    return recount(world.frontier) + shared.problems()


def kinds(leases: LeaseBatch) -> list[str]:
    return sorted(f"{lease.kind} {lease.host}" for lease in leases)


def errand(world: World, **how: Any) -> Lease:
    """Returns the only possible lease, which is for an address."""
    (lease,) = world.lease(errands=True, **how)
    assert "address" == lease.kind
    return lease


def answer(world: World, **addresses: str) -> None:
    """Answers every possible errand. Hosts are named without their `.com`."""
    for lease in world.lease(errands=True):
        assert "address" == lease.kind, lease
        world.report(lease.located(addresses[lease.host.removesuffix(".com")]))
        assert [] == problems(world)


# -- who is withheld


def test_a_host_is_offered_once_its_address_is_set_and_its_lease_contains_it():
    world = world_of()
    world.discover("http://a.com/1", "http://a.com/2")
    assert ([], 0.0) == (world.urls(), world.ready_in())
    lease = errand(world)
    assert ("dns:a.com", "a.com", "a.com", "", 1, None) == (
        *(lease.url, lease.host, lease.key, lease.authority, lease.attempt, lease.address),
    )
    assert ([], 1) == (world.urls(errands=True), world.frontier.statistics()["errands"])
    assert ["ok"] == world.report(lease.located("::ffff:192.0.2.1"))
    page = world.one()
    assert ("http://a.com/1", "192.0.2.1") == (page.url, page.address)
    assert ([], 0) == (problems(world), world.frontier.statistics()["errands"])


def test_hosts_that_are_found_at_one_address_use_turns_from_their_first_request_on():
    world = world_of(delay=1)
    world.discover("http://a.com/", "http://b.com/", "http://c.com/")
    answer(world, a="192.0.2.1", b="192.0.2.2", c="192.0.2.1")
    assert ["page a.com", "page b.com"] == kinds(world.lease(errands=True))
    assert [] == problems(world)


def test_an_errand_uses_no_clock_of_its_host():
    world = world_of(delay=7)
    world.discover("http://a.com/")
    lease = errand(world)
    world.clock.move(1)
    world.report(lease.located("192.0.2.1"))
    assert "http://a.com/" == world.one().url


def test_a_caller_without_errands_gets_neither_errands_nor_pages_of_hosts_without_an_address():
    world = world_of()
    world.discover("http://a.com/", "http://192.0.2.9/", "http://[2001:db8::1]/")
    world.frontier.set_address("b.com", "192.0.2.1")
    world.discover("http://b.com/")
    assert ["http://192.0.2.9/", "http://[2001:db8::1]/", "http://b.com/"] == sorted(world.urls())
    assert ([], "a.com") == (world.urls(), errand(world).host)


def test_callers_that_set_addresses_on_their_own_need_no_errands():
    world = World(group="address", delay=1)
    world.discover("http://a.com/", "http://b.com/")
    world.frontier.set_addresses({"a.com": "192.0.2.1", "b.com": "192.0.2.1"})
    (lease,) = world.lease(errands=True)
    assert ("page", "192.0.2.1") == (lease.kind, lease.address)


@pytest.mark.parametrize("group", [None, "domain", {"name": "g", "hosts": ["a.com"]}])
def test_without_a_group_of_addresses_no_address_is_requested(group):
    world = world_of(group)
    world.discover("http://a.com/")
    assert ["page a.com"] == kinds(world.lease(errands=True))


def test_a_named_group_of_networks_requests_addresses_too():
    world = world_of({"name": "g", "addresses": ["192.0.2.0/24"]})
    world.discover("http://a.com/", "http://b.com/", "http://c.com/")
    answer(world, a="192.0.2.1", b="192.0.2.2", c="198.51.100.1")
    assert (2, []) == (len(world.lease()), problems(world))


def test_an_address_set_during_its_errand_counts_until_the_answer_arrives():
    world = world_of()
    world.discover("http://a.com/1", "http://a.com/2")
    lease = errand(world)
    world.frontier.set_address("a.com", "192.0.2.1")
    page = world.one(errands=True)
    assert ("192.0.2.1", []) == (page.address, problems(world))
    world.report(lease.located("192.0.2.2"), page.done())
    world.clock.move(1)
    assert "192.0.2.2" == world.one().address


def test_addresses_of_an_earlier_process_are_requested_unless_the_caller_sets_them_again():
    """Otherwise a store would keep an address of another mode for ever."""
    for checkpoint in (False, True):
        world = World(group="address", delay=1)
        world.discover("http://a.com/", "http://b.com/")
        world.frontier.set_addresses({"a.com": "192.0.2.1", "b.com": "192.0.2.1"})
        if checkpoint:
            world.frontier.checkpoint()
        world.addresses = "errands"
        world.kill()
        assert 0 == world.frontier.set_addresses({"b.com": "192.0.2.1"}), "it was known to be there"
        leases = world.lease(errands=True)
        assert ["address a.com", "page b.com"] == sorted(kinds(leases))
        (asked,) = (lease for lease in leases if lease.kind == "address")
        world.report(asked.located("192.0.2.7", ttl_seconds=60))
        assert ("192.0.2.7", []) == (world.one(errands=True).address, problems(world))
        world.addresses = "caller"
        world.kill()
        world.clock.move(1_000)
        assert ["page a.com"] == kinds(world.lease(1, errands=True)), "what was found is known, and nobody asks"


def test_an_expired_address_is_requested_again():
    world = world_of()
    world.frontier.set_address("a.com", "192.0.2.1")
    world.discover("http://a.com/")
    world.frontier.set_address("a.com", None)
    assert ([], "a.com") == (world.urls(), errand(world).host)


def test_a_robots_txt_is_requested_at_the_address_that_was_found():
    world = world_of(robots="errands", delay=1)
    world.discover("http://a.com/", "http://b.com/")
    answer(world, a="192.0.2.1", b="192.0.2.1")
    robots = world.one(errands=True)
    assert ("robots", "192.0.2.1") == (robots.kind, robots.address)
    assert [] == world.urls(errands=True)  # the other host waits for the turn of their address
    world.report(robots.robots(404))
    world.clock.move(1)
    assert ["robots b.com"] == kinds(world.lease(errands=True))


def test_a_paused_or_empty_host_gets_no_address_errand():
    world = world_of()
    world.discover("http://a.com/", "http://b.com/")
    world.frontier.pause("a.com")
    world.frontier.delete("b.com")
    assert ([], 0) == (world.urls(errands=True), world.frontier.statistics()["errands"])
    world.frontier.resume("a.com")
    assert "a.com" == errand(world).host


def test_one_errand_is_open_for_a_host_of_several_queues():
    world = world_of()
    world.discover("http://a.com/", Link("http://a.com/", crawl="other"), Link("http://a.com/x", key="k"))
    world.frontier.set_address("b.com", "192.0.2.1")
    world.discover("http://b.com/")
    assert ["address a.com", "page b.com"] == kinds(world.lease(errands=True))
    assert [] == world.urls(errands=True)


def test_hosts_of_several_queues_use_no_places_of_other_hosts():
    world = world_of()
    crawls = ["default", "b", "c", "d"]
    world.discover(*[Link(f"http://h{n}.com/", crawl=crawl) for n in range(3) for crawl in crawls])
    assert ["address h0.com", "address h1.com", "address h2.com"] == kinds(world.lease(3, errands=True))


def test_errands_are_leased_for_the_requested_crawl_or_key():
    world = world_of()
    world.discover("http://a.com/", Link("http://b.com/", crawl="other"), Link("http://c.com/", key="k"))
    assert ["address b.com"] == kinds(world.lease(errands=True, crawl="other"))
    assert ["address c.com"] == kinds(world.lease(errands=True, key="k"))
    assert [] == kinds(world.lease(errands=True, key="none"))
    assert ["address a.com"] == kinds(world.lease(errands=True, key="a.com"))


def test_half_of_the_leases_are_errands_while_pages_are_ready():
    world = world_of()
    told = [f"t{n}.com" for n in range(20)]
    world.frontier.set_addresses({host: f"192.0.2.{n}" for n, host in enumerate(told)})
    world.discover(*[f"http://{host}/" for host in told], *[f"http://u{n}.com/" for n in range(20)])
    found = [[lease.kind for lease in world.lease(want, errands=True)].count("address") for want in (6, 1, 1, 1, 1)]
    assert (3, 2, 30) == (found[0], sum(found[1:]), len(world.lease(errands=True)))


def test_no_address_is_requested_once_the_limit_of_pages_is_reached():
    world = world_of(max_pages=1)
    world.frontier.set_address("a.com", "192.0.2.1")
    world.discover("http://a.com/")
    world.report(world.one().done())
    world.discover("http://b.com/")
    assert [] == world.urls(errands=True)


# -- for how long


def test_an_answer_is_used_for_its_lifetime_and_then_requested_again():
    world = world_of(delay=1)
    world.discover(*[f"http://a.com/{n}" for n in range(4)])
    world.report(errand(world).located("192.0.2.1", ttl_seconds=60))
    world.report(world.one(errands=True).done())
    world.clock.move(59.9)
    world.report(world.one(errands=True).done())
    world.clock.move(1)
    assert [] == world.urls()
    world.report(errand(world).located("192.0.2.2"))
    assert ("192.0.2.2", []) == (world.one().address, problems(world))


@pytest.mark.parametrize(
    ("told", "holds"),
    [(None, ADDRESS_SECONDS_USUAL), (0, ADDRESS_SECONDS_MIN), (1e9, ADDRESS_SECONDS_MAX)],
)
def test_lifetimes_have_limits(told, holds):
    world = world_of(delay=1)
    world.discover("http://a.com/1", "http://a.com/2")
    world.report(errand(world).located("192.0.2.1", ttl_seconds=told))
    world.report(world.one().done())
    world.clock.move(holds - 0.1)
    lease = world.one()
    world.frontier.release([lease.token])
    world.clock.move(0.1)
    assert ([], "a.com") == (world.urls(), errand(world).host)


def test_a_host_that_waited_longer_than_its_address_lasts_keeps_its_place_during_the_errand():
    world = world_of({"address": {"gap": 20}}, delay=1)
    names = [f"h{n}" for n in range(12)]
    world.discover(*[f"http://{name}.com/{n}" for name in names for n in range(2)])
    order = []
    for _ in range(400):
        for lease in world.lease(errands=True):
            if lease.kind == "address":
                world.report(lease.located("192.0.2.1", ttl_seconds=30))
            else:
                order.append(lease.host)
                world.report(lease.done(seconds=0))
        assert [] == problems(world)
        if world.frontier.finished():
            break
        world.clock.move(max(1, world.ready_in() or 0))
    assert (24, 12) == (len(order), len(set(order[:14])))  # no host is second long before another is first


def test_a_changed_address_counts_from_the_next_offer_on():
    world = world_of(delay=1)
    world.discover("http://a.com/1", "http://a.com/2", "http://b.com/1", "http://b.com/2")
    for lease in world.lease(errands=True):
        world.report(lease.located("192.0.2.1", ttl_seconds=30 if lease.host == "a.com" else 9_999))
    world.report(world.one().done())
    world.clock.move(100)
    for lease in world.lease(1, errands=True):
        world.report(lease.located("192.0.2.2") if lease.kind == "address" else lease.done())
    assert (2, []) == (len(world.lease(errands=True)), problems(world))


def test_a_host_with_several_requests_at_once_moves_when_all_are_closed():
    world = world_of({"address": {"capacity": 2, "gap": 0}}, delay=0)
    world.discover(*[f"http://a.com/{n}" for n in range(9)])
    world.frontier.set_limit(2, "a.com")
    answer(world, a="192.0.2.1")
    first = world.one()
    world.frontier.set_address("a.com", "192.0.2.2")
    assert ([], []) == (world.urls(errands=True), problems(world))
    world.report(first.done())
    assert ("192.0.2.2", "192.0.2.2", []) == (world.one().address, world.one().address, problems(world))


# -- failures


def test_a_failure_is_retried_after_5_30_and_300_seconds_then_the_host_uses_its_own_clock():
    world = world_of()
    world.discover("http://a.com/1", "http://a.com/2")
    for wait in (5, 30, 300):
        lease = errand(world)
        world.report(lease.retry(error="dns_temporary"))
        assert ([], wait, []) == (world.urls(errands=True), world.ready_in(), problems(world))
        world.clock.move(wait)
    lease = errand(world)
    assert 4 == lease.attempt
    world.report(lease.retry(error="dns_temporary"))
    assert "its address is unknown (dns_temporary)" in world.frontier.explain("http://a.com/1").reason_text
    page = world.one(errands=True)
    assert ("page", None, {"dns_temporary": 4}) == (page.kind, page.address, world.frontier.statistics()["errors"])
    world.report(page.done())
    world.clock.move(ADDRESS_FAILED_SECONDS)
    assert 1 == errand(world).attempt


def test_a_name_that_does_not_exist_is_not_requested_four_times():
    world = world_of()
    world.discover("http://a.com/")
    world.report(errand(world).gone(error="dns_unknown"))
    page = world.one(errands=True)
    assert ("page", None) == (page.kind, page.address)


def test_an_answer_without_an_address_is_a_failure():
    world = world_of()
    world.discover("http://a.com/")
    lease = errand(world)
    world.frontier.report(OutcomeBatch([lease.token], "done", statuses=200))
    assert ([], 5, {"queued": 1}) == (world.urls(errands=True), world.ready_in(), world.counts())
    world.clock.move(5)
    assert 2 == errand(world).attempt


def test_a_lost_errand_is_leased_again_and_delays_no_host():
    world = world_of(delay=9)
    world.discover("http://a.com/")
    lease = errand(world, ttl_seconds=5)
    world.clock.move(5)
    assert ["stale"] == world.report(lease.located("192.0.2.1"))
    assert (1, 1) == (errand(world).attempt, world.frontier.statistics()["lost"])


def test_an_errand_is_extended_returned_and_repeated_like_a_lease():
    world = world_of()
    world.discover("http://a.com/")
    (lease,) = world.lease(1, errands=True, ttl_seconds=5, request_id=("c", 1))
    assert lease == world.frontier.lease(1, errands=True, ttl_seconds=5, request_id=("c", 1))[0]
    assert ["ok"] == [str(code) for code in world.frontier.extend([lease.token], 50)]
    world.clock.move(6)
    assert [] == problems(world)
    assert ["ok"] == [str(code) for code in world.frontier.release([lease.token])]
    assert ["stale"] == world.report(lease.located("192.0.2.1"))
    assert "a.com" == errand(world).host


# -- over openings


def test_answers_failures_and_open_errands_survive_a_kill_and_a_checkpoint():
    for checkpoint in (False, True):
        world = world_of(delay=1)
        world.discover(*[f"http://{name}.com/{n}" for name in "abcd" for n in range(2)])
        world.frontier.set_address("e.com", "192.0.2.5")
        leases = {lease.host: lease for lease in world.lease(errands=True, worker="w", ttl_seconds=100)}
        world.report(leases["a.com"].located("192.0.2.1", ttl_seconds=60), leases["b.com"].retry(error="dns_temporary"))
        world.report(leases["c.com"].gone(error="dns_unknown"))
        if checkpoint:
            world.frontier.checkpoint()
        before = everything(world.frontier)[1:2]
        world.kill()
        assert before == everything(world.frontier)[1:2]
        pages = world.lease(errands=True)
        assert (["page a.com", "page c.com"], 5) == (kinds(pages), world.ready_in())
        world.report(*[lease.done() for lease in pages])
        world.report(leases["d.com"].located("192.0.2.4"))
        assert ("192.0.2.4", []) == (world.one().address, problems(world))
        world.clock.move(60)
        assert {"address a.com", "address b.com"} <= set(kinds(world.lease(errands=True)))


def test_an_errand_of_a_process_that_died_is_leased_again():
    world = world_of()
    world.discover("http://a.com/")
    lease = errand(world)
    world.kill()
    assert ["stale"] == world.report(lease.located("192.0.2.1"))
    assert ("a.com", []) == (errand(world).host, problems(world))
    world.reopen()
    assert ("a.com", []) == (errand(world).host, problems(world))


def test_a_store_with_answers_opens_without_errands_and_with_other_groups():
    world = world_of()
    world.discover("http://a.com/1", "http://a.com/2")
    world.report(errand(world).located("192.0.2.1", ttl_seconds=30))
    world.clock.move(60)
    world.addresses = "caller"
    world.kill(group=None)
    assert (["http://a.com/1"], 0) == (world.urls(), len(world.inspect().turns.shared))


# -- telling


def test_explain_and_explain_idle_name_the_awaited_address():
    world = world_of()
    world.discover("http://a.com/")

    def told() -> tuple[str, str]:
        found = world.frontier.explain("http://a.com/")
        return found.reason_now, found.reason_text

    assert ("address", "the address of a.com must be resolved first, by a lease with errands") == told()
    idle = world.frontier.explain_idle()
    assert ("resting", True, 1) == (idle.reason, "their addresses" in idle.text, idle.errands)
    lease = errand(world)
    assert ("address", "the address of a.com is being resolved") == told()
    world.report(lease.retry(error="dns_temporary"))
    assert "could not be resolved (dns_temporary)" in told()[1]
    assert world.clock.at + instant(5) == world.frontier.explain("http://a.com/").next_at
    world.clock.move(5)
    world.report(errand(world).located("192.0.2.1"))
    assert "ready" == told()[0]


@pytest.mark.parametrize(
    "address", ["", "a.com", "192.0.2", 7, True, b"\xc0\0\2\1", "fe80::1%" + 100 * "x", "fe80::1%\x1b[31m", "fe80::1%é"]
)
def test_an_invalid_address_is_refused(address):
    world = world_of()
    world.discover("http://a.com/")
    lease = errand(world)
    with pytest.raises(SettingsError, match="address"):
        world.report(lease.located(address))
    with pytest.raises(SettingsError, match="address"):
        world.frontier.set_address("a.com", address)
    assert ["ok"] == world.report(lease.located("fe80::1%eth0"))
    assert "fe80::1%eth0" == world.one().address


def test_an_outcome_answers_the_question_of_its_lease():
    world = world_of(robots="errands")
    world.discover("http://a.com/")
    lease = errand(world)
    with pytest.raises(SettingsError, match="is of kind address, and its outcome answers an errand of kind robots"):
        world.report(lease.robots(404))
    world.report(lease.located("192.0.2.1"))
    (lease,) = world.lease(errands=True)
    with pytest.raises(SettingsError, match="is of kind robots, and its outcome answers an errand of kind address"):
        world.report(lease.located("192.0.2.1"))
    world.report(lease.robots(404))
    world.clock.move(1)
    lease = world.one()
    for wrong in (lease.located("192.0.2.1"), lease.robots(200)):
        with pytest.raises(SettingsError, match="is of kind page"):
            world.report(wrong)
    assert "leased" == world.state("http://a.com/")
    assert ["ok", "stale"] == world.report(lease.done(), lease.located("192.0.2.1"))
    assert [] == problems(world)


def test_only_two_words_are_accepted_for_the_source_of_addresses():
    with pytest.raises(SettingsError, match="addresses 'yes': use caller or errands"):
        Frontier.memory(addresses="yes", robots="caller")


def test_no_address_is_requested_for_a_paused_or_blocked_host():
    """Neither its address nor its robots.txt, for every way in which it waits for them."""
    world = world_of(robots="errands")
    world.discover("http://a.com/", "http://b.com/", Link("http://c.com/", crawl="paused"))
    assert [] == world.urls()
    world.frontier.pause("a.com")
    world.frontier.block_until(world.clock() + instant(60), "b.com")
    world.frontier.pause(crawl="paused")
    assert [] == world.urls(errands=True)
    world.frontier.resume("a.com")
    world.frontier.resume(crawl="paused")
    assert ["address a.com", "address c.com"] == kinds(world.lease(errands=True))
    world.clock.move(60)
    assert ["address a.com", "address b.com", "address c.com"] == kinds(world.lease(errands=True))


def test_the_robots_txt_of_a_paused_host_with_a_known_address_is_not_requested():
    world = world_of(robots="errands")
    world.discover("http://a.com/")
    answer(world, a="192.0.2.1")
    assert [] == world.urls()
    world.frontier.pause("a.com")
    assert [] == world.urls(errands=True)
    world.clock.move(10 * ADDRESS_SECONDS_MAX)
    assert [] == world.urls(errands=True)
    world.frontier.resume("a.com")
    assert ["address a.com"] == kinds(world.lease(errands=True))
