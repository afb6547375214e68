"""Politeness clocks that several hosts share: the members of a group, their turns, and survival of a kill."""

from __future__ import annotations

import itertools
import random
from collections import Counter, defaultdict

import pytest

from model.world import World, outcome, recount
from outrider import Link
from outrider.clock import instant
from outrider.errors import SettingsError
from outrider.frontier.policy.grouping import Grouping
from outrider.journey import Lease, OutcomeBatch
from outrider.limits import GROUPS_PER_HOST_MAX
from outrider.sim.disk import CrashDisk

SHOP = {"name": "shops", "hosts": ["*.shop.example", "till.test"], "capacity": 1}


def table(**group: object) -> dict[str, object]:
    """One named group, as a table of a file describes it."""
    return {"group": [{"name": "g", **group}]}


def problems(world: World) -> list[str]:
    shared = world.inspect().turns.shared
    return recount(world.frontier) + shared.problems()


def finish(world: World, seconds: float = 0.0) -> list[tuple[float, str]]:
    """Returns every URL with the second in which it was leased, until all are done."""
    begin = world.clock.at
    found = []
    while not world.frontier.finished():
        leases = list(world.lease())
        found += [((world.clock.at - begin) / 1e6, lease.url) for lease in leases]
        world.clock.move(seconds)
        world.report(*[lease.done(seconds=seconds) for lease in leases])
        assert [] == problems(world)
        world.clock.move(world.ready_in() or 0)
    return found


def next_lease(world: World) -> tuple[float, list[str]]:
    """Returns the seconds until a host is ready, and its URLs. Wakeups without a lease in between do not count."""
    begin = world.clock.at
    while not (urls := world.urls()):
        world.clock.move(world.ready_in() or 0)
    return (world.clock.at - begin) / 1e6, urls


# -- domains


def test_two_hosts_of_one_domain_are_never_visited_at_once():
    world = World(group="domain")
    world.discover("http://a.x.com/", "http://b.x.com/", "http://c.org/")
    assert ["http://a.x.com/", "http://c.org/"] == world.urls()
    assert ([], []) == (world.urls(), problems(world))


def test_without_a_gap_of_its_own_a_domain_waits_as_long_as_the_visited_host():
    world = World(group="domain", delay=3)
    world.discover("http://a.x.com/", "http://b.x.com/", "http://a.x.com/2")
    assert [(0, "http://a.x.com/"), (3, "http://b.x.com/"), (6, "http://a.x.com/2")] == finish(world)


def test_a_refusal_of_one_host_delays_its_domain():
    world = World(group="domain")
    world.discover("http://a.x.com/", "http://b.x.com/")
    world.report(outcome(world.one(), "retry", status=503, retry_after_seconds=40.0, refused=True))
    assert 40 == world.ready_in()


def test_a_groups_own_gap_counts_from_the_end_of_a_request():
    world = World(group={"domain": {"gap": 10}}, delay=1)
    world.discover("http://a.x.com/", "http://b.x.com/", "http://a.x.com/2")
    assert [(0, "http://a.x.com/"), (10.5, "http://b.x.com/"), (21, "http://a.x.com/2")] == finish(world, 0.5)


def test_the_delay_of_the_host_applies_where_it_is_longer_than_the_gap_of_the_group():
    world = World(group={"domain": {"gap": 2}}, delay=7)
    world.discover("http://a.x.com/", "http://b.x.com/", "http://a.x.com/2")
    assert [(0, "http://a.x.com/"), (2, "http://b.x.com/"), (7, "http://a.x.com/2")] == finish(world)


def test_a_capacity_of_two_lets_two_hosts_be_visited_at_once():
    world = World(group={"domain": {"capacity": 2}})
    world.discover(*[f"http://{name}.x.com/" for name in "abcd"])
    assert ["http://a.x.com/", "http://b.x.com/"] == world.urls()
    assert [] == problems(world)


def test_a_ready_host_also_waits_when_a_request_of_another_host_of_the_group_ended():
    world = World(group={"domain": {"capacity": 2, "gap": 5}}, delay=1)
    world.discover("http://a.x.com/", "http://b.x.com/")
    world.report(world.one().done())
    assert ([], 5) == (world.urls(), world.ready_in())
    world.clock.move(5)
    assert ["http://b.x.com/"] == world.urls()


def test_a_host_without_a_domain_counts_for_itself():
    world = World(group={"domain": {"gap": 4}}, delay=1)
    world.discover("http://127.0.0.1/", "http://127.0.0.2/", "http://127.0.0.1/2")
    urls = finish(world)
    assert [(0, "http://127.0.0.1/"), (0, "http://127.0.0.2/"), (4, "http://127.0.0.1/2")] == urls


def test_a_returned_lease_leaves_the_turn_to_the_host_that_waited_longer():
    world = World(group="domain")
    world.discover("http://a.x.com/", "http://b.x.com/")
    first = world.one()
    world.frontier.release([first.token])
    assert ["http://b.x.com/"] == world.urls()


def test_a_waiting_host_of_a_better_class_is_first_and_equals_are_in_the_order_of_their_waiting():
    world = World(group="domain", delay=1)
    world.discover("http://a.x.com/")
    lease = world.one()
    world.discover("http://b.x.com/", "http://c.x.com/", Link("http://d.x.com/", priority=0.9))
    world.report(lease.done())
    world.clock.move(1)
    assert ["d", "b", "c"] == [url[7] for _, url in finish(world)]


def test_a_better_class_gets_the_turn_of_a_host_that_is_ready_and_not_leased():
    world = World(group="domain", delay=1)
    world.discover("http://a.x.com/", "http://b.x.com/", "http://c.x.com/")
    world.discover(Link("http://d.x.com/", priority=0.9))
    assert [] == problems(world)
    world.discover(Link("http://b.x.com/2", priority=0.99))
    assert ["b", "d", "a", "c", "b"] == [url[7] for _, url in finish(world)]


def test_a_host_that_was_drawn_keeps_its_turn():
    world = World(group="domain", delay=1)
    world.discover("http://a.x.com/")
    lease = world.one()
    world.discover(Link("http://b.x.com/", priority=0.9))
    assert ([], []) == (world.urls(), problems(world))
    world.report(lease.done())
    world.clock.move(1)
    assert ["http://b.x.com/"] == world.urls()


def test_turns_of_several_groups_are_acquired_together():
    world = World(group=["domain", {"name": "pair", "hosts": ["a.x.com", "a.y.com"]}], delay=1)
    world.discover("http://b.x.com/", "http://b.y.com/", "http://a.x.com/", "http://a.y.com/")
    world.discover(Link("http://a.x.com/2", priority=0.9))
    assert [] == problems(world)
    assert ["http://a.x.com/2", "http://b.y.com/"] == sorted(world.urls())
    assert ([], []) == (world.urls(), problems(world))


def test_when_a_host_loses_its_turn_a_host_of_its_other_group_gets_one():
    """b.x.com waits for the domain. When it gets that turn, the turn of the other group is free too."""
    world = World(group=["domain", {"name": "pair", "hosts": ["b.x.com", "c.y.com"]}], delay=1)
    world.discover("http://b.x.com/", "http://c.y.com/")
    world.discover(Link("http://a.x.com/", priority=0.9))
    assert ["http://a.x.com/", "http://c.y.com/"] == sorted(world.urls())
    assert [] == problems(world)


def test_crawls_alternate_in_a_group_among_equals():
    world = World(group="domain", delay=1)
    world.discover("http://a.x.com/")
    lease = world.one()
    world.discover(*[f"http://{name}.x.com/" for name in "bcdef"])
    world.discover(*[Link(f"http://{name}.x.com/", crawl="other") for name in "pqr"])
    world.report(lease.done())
    world.clock.move(1)
    assert list("bpcqdref") == [url[7] for _, url in finish(world)]


def test_a_low_class_has_every_eighth_turn_of_its_group():
    world = World(group="domain", delay=1)
    world.discover(Link("http://low.x.com/", priority=0.0))
    order = []
    for number in range(20):
        world.discover(Link(f"http://h{number}.x.com/", priority=0.9), Link(f"http://g{number}.x.com/", priority=0.9))
        _, urls = next_lease(world)
        order += urls
        token = world.inspect().tables.token
        world.frontier.report(OutcomeBatch([token], "done", statuses=200))
    assert 8 == order.index("http://low.x.com/")


def test_a_call_for_one_crawl_uses_the_turn_of_a_host_of_another_crawl():
    world = World(group="domain", delay=1)
    world.discover("http://a.x.com/", Link("http://b.x.com/", crawl="other"), Link("http://c.x.com/", crawl="third"))
    assert (["http://b.x.com/"], []) == (world.urls(crawl="other"), problems(world))
    assert ([], []) == (world.urls(crawl="third"), world.urls())  # it is being visited now
    assert ([], []) == (world.urls(crawl="nobody"), problems(world))


def test_a_call_for_one_crawl_leaves_turns_that_it_can_lease_itself():
    world = World(group="domain", delay=1)
    world.discover(Link("http://a.x.com/", crawl="other"), Link("http://b.x.com/", crawl="other"))
    world.discover("http://a.x.com/", Link("http://a.y.com/"), Link("http://b.y.com/", crawl="other"))
    assert ["http://a.x.com/", "http://b.y.com/"] == sorted(world.urls(crawl="other"))
    assert [] == problems(world)


def test_a_call_for_one_key_uses_the_turn_of_another_host():
    world = World(group="domain", delay=1)
    world.discover("http://a.x.com/", "http://b.x.com/", Link("http://c.x.com/", key="k"))
    assert (["http://c.x.com/"], []) == (world.urls(key="k"), problems(world))
    assert ([], []) == (world.urls(key="b.x.com"), world.urls())  # it is being visited now


def test_repeated_calls_for_a_key_use_turns_again():
    world = World(group="domain", delay=1)
    world.discover("http://a.x.com/", *[f"http://b.x.com/{n}" for n in range(4)])
    for n in range(4):
        lease = world.one(key="b.x.com")
        world.report(lease.done())
        world.clock.move(1)
        assert (f"http://b.x.com/{n}", []) == (lease.url, problems(world))
    assert ["http://a.x.com/"] == world.urls()


def test_a_paused_queue_uses_no_turn_for_its_key():
    world = World(group="domain", delay=1)
    world.discover("http://a.x.com/", "http://b.x.com/")
    world.frontier.pause("b.x.com")
    assert ([], ["http://a.x.com/"]) == (world.urls(key="b.x.com"), world.urls())


def test_a_crawl_that_no_call_requests_keeps_its_place():
    world = World(group="domain", delay=1)
    world.discover(*[Link(f"http://b.x.com/{n}", crawl="other") for n in range(30)], "http://a.x.com/")
    for _ in range(5):
        leases = list(world.lease(crawl="other"))
        world.report(*[lease.done() for lease in leases])
        world.clock.move(1)
        assert (1, []) == (len(leases), problems(world))
    assert 1 >= [url for _, url in finish(world)].index("http://a.x.com/")


def test_two_crawls_that_are_requested_in_turn_both_make_progress():
    """One requests often, the other seldom: neither uses every turn of the group."""
    world = World(group="domain", delay=1)
    for crawl in ("often", "seldom"):
        world.discover(*[Link(f"http://{crawl}.x.com/{n}", crawl=crawl) for n in range(200)])
    went: Counter[str] = Counter()
    for tenth in range(2_000):
        for crawl in ("often", "seldom"):
            if crawl == "often" or tenth % 15 == 0:
                leases = list(world.lease(crawl=crawl))
                world.report(*[lease.done(seconds=0) for lease in leases])
                went[crawl] += len(leases)
        world.clock.move(0.1)
    assert 160 <= went.total() <= 200
    assert min(went.values()) >= 20


def test_an_empty_host_passes_its_turn_to_another():
    world = World(group="domain", delay=1)
    world.discover("http://a.x.com/", "http://b.x.com/")
    world.frontier.delete("a.x.com")
    assert ["http://b.x.com/"] == world.urls()


def test_a_paused_host_passes_its_turn_to_another_and_gets_a_new_one():
    world = World(group="domain", delay=1)
    world.discover("http://a.x.com/", "http://b.x.com/")
    world.frontier.pause("a.x.com")
    assert (["http://b.x.com/"], []) == (world.urls(), problems(world))
    world.frontier.resume("a.x.com")
    assert [] == world.urls()


def test_a_lost_lease_delays_the_group_from_the_moment_it_was_missed():
    world = World(group={"domain": {"gap": 20}}, delay=1)
    world.discover("http://a.x.com/", "http://b.x.com/")
    world.one(ttl_seconds=5)
    world.clock.move(5)
    assert (20, ["http://b.x.com/"]) == next_lease(world)


def test_a_host_with_several_requests_at_once_uses_a_turn_for_each():
    world = World(group={"domain": {"capacity": 2, "gap": 0}}, delay=0)
    world.discover(*[f"http://a.x.com/{n}" for n in range(4)], "http://b.x.com/")
    world.frontier.set_limit(3, "a.x.com")
    while world.urls():
        assert [] == problems(world)
    assert {"leased": 2, "queued": 3} == world.counts()


def test_a_train_of_a_grouped_host_has_one_waggon():
    world = World(group="domain")
    world.discover("http://a.x.com/1", "http://a.x.com/2")
    assert ["http://a.x.com/1"] == world.urls(per_queue=5)


def test_queues_of_several_crawls_share_their_hosts_turn():
    world = World(group="domain", delay=1)
    world.discover("http://a.x.com/", Link("http://a.x.com/", crawl="other"), Link("http://b.x.com/", crawl="other"))
    assert [(0, "http://a.x.com/"), (1, "http://b.x.com/"), (2, "http://a.x.com/")] == finish(world)


def test_a_robots_txt_is_requested_within_the_turns_of_the_group():
    world = World(group="domain", robots="errands", delay=1)
    world.discover("http://a.x.com/", "http://b.x.com/")
    errand = world.one(errands=True)
    assert ([], "http://a.x.com/robots.txt") == (world.urls(errands=True), errand.url)
    world.report(errand.robots(404))
    world.clock.move(1)
    assert ["http://b.x.com/robots.txt"] == world.urls(errands=True)
    assert [] == problems(world)


# -- named groups


def test_a_named_group_spans_the_hosts_that_it_names():
    world = World(group=SHOP, delay=2)
    hosts = ["a.shop.example", "deep.b.shop.example", "till.test"]
    world.discover(*[f"http://{host}/" for host in hosts], "http://shop.example/", "http://my.till.test/")
    urls = finish(world)
    apart = ["http://shop.example/", "http://my.till.test/"]
    assert [(0, url) for url in apart] == [(at, url) for at, url in urls if url in apart]
    assert [(2 * n, f"http://{host}/") for n, host in enumerate(hosts)] == [
        pair for pair in urls if pair[1] not in apart
    ]


def test_a_request_counts_in_all_groups_of_its_host():
    world = World(group=["domain", {"name": "pair", "hosts": ["a.x.com", "a.y.com"]}], delay=1)
    world.discover("http://a.x.com/", "http://b.x.com/", "http://a.y.com/", "http://b.y.com/")
    assert ["http://a.x.com/", "http://b.y.com/"] == world.urls()


def test_a_name_is_matched_in_its_canonical_spelling():
    world = World(group=table(hosts=["*.BÜCHER.example"]))
    world.discover("http://a.bücher.example/", "http://b.bücher.example/")
    assert ["http://a.xn--bcher-kva.example/"] == world.urls()


# -- addresses


def test_hosts_at_one_address_alternate():
    world = World(group="address", delay=1)
    for host in ("a.com", "b.org"):
        world.frontier.set_address(host, "192.0.2.1")
    world.frontier.set_address("c.net", "192.0.2.2")
    world.discover("http://a.com/", "http://b.org/", "http://c.net/")
    assert [(0, "http://a.com/"), (0, "http://c.net/"), (1, "http://b.org/")] == finish(world)


def test_a_host_without_a_known_address_is_in_no_address_group():
    world = World(group="address")
    world.discover("http://a.com/", "http://b.org/")
    assert 2 == len(world.urls())


def test_one_address_in_two_spellings_is_one_group():
    world = World(group="address")
    world.frontier.set_address("A.com", "::ffff:192.0.2.1")
    world.discover("http://a.com/", "http://192.0.2.1/")
    assert ["http://a.com/"] == world.urls()


def test_a_new_address_counts_from_the_next_offer_on():
    world = World(group="address", delay=4)
    world.frontier.set_address("a.com", "192.0.2.1")
    world.discover("http://a.com/", "http://b.org/", "http://c.net/")
    world.frontier.set_addresses({"b.org": "192.0.2.2", "c.net": "192.0.2.1"})
    leases = {lease.host: lease for lease in world.lease()}
    assert ["a.com", "b.org"] == sorted(leases)
    world.frontier.set_address("a.com", "192.0.2.2")  # during its visit: its turn is the old group's
    assert ([], []) == (world.urls(), problems(world))
    world.report(leases["a.com"].done())
    assert (4, []) == (world.ready_in(), problems(world))
    world.clock.move(1)
    world.report(leases["b.org"].done())
    world.clock.move(3)
    assert ["http://c.net/"] == world.urls()  # its group waits because a.com was visited there
    world.discover("http://a.com/2")
    assert [] == world.urls()  # a.com is now in the group of b.org, which waits
    world.clock.move(1)
    assert ["http://a.com/2"] == world.urls()


def test_a_host_that_moves_brings_its_delay_with_it():
    world = World(group="address", delay=9)
    world.discover("http://a.com/", "http://b.org/")
    leases = {lease.host: lease for lease in world.lease()}
    world.report(leases["a.com"].done())
    world.clock.move(3)
    world.frontier.release([leases["b.org"].token])
    world.frontier.set_addresses({"a.com": "192.0.2.1", "b.org": "192.0.2.1"})
    assert ([], 6) == (world.urls(), world.ready_in())


def test_a_removed_address_groups_no_host():
    world = World(group="address")
    world.frontier.set_addresses({"a.com": "192.0.2.1", "b.org": "192.0.2.1"})
    world.frontier.set_address("b.org", None)
    world.discover("http://a.com/", "http://b.org/")
    assert 2 == len(world.urls())


def test_exempt_hosts_are_grouped_neither_by_domain_nor_by_address():
    cdn = {"name": "cdn", "addresses": ["192.0.2.0/24"], "hosts": ["*.cdn.test"], "exempt": True}
    world = World(group=["domain", "address", cdn])
    names = ["a.x.com", "b.x.com", "c.y.com", "p.cdn.test", "q.cdn.test"]
    world.frontier.set_addresses(dict.fromkeys(names[:2], "192.0.2.7") | dict.fromkeys(names[2:], "198.51.100.1"))
    world.discover(*[f"http://{name}/" for name in names])
    assert 5 == len(world.urls())


def test_an_exempt_group_may_have_a_clock_of_its_own():
    cdn = {"name": "cdn", "addresses": ["192.0.2.0/24"], "exempt": True, "capacity": 2}
    world = World(group=["address", cdn])
    names = ["a.com", "b.org", "c.net"]
    world.frontier.set_addresses(dict.fromkeys(names, "192.0.2.7"))
    world.discover(*[f"http://{name}/" for name in names])
    assert 2 == len(world.urls())


def test_the_same_address_set_again_costs_no_frame():
    world = World(group="address")
    assert 1 == world.frontier.set_addresses({"a.com": "192.0.2.1"})
    before = world.frontier.statistics()["log"]
    assert (0, before) == (world.frontier.set_addresses({"a.com": "192.0.2.1"}), world.frontier.statistics()["log"])


@pytest.mark.parametrize("host", ["", "a b", "a.com/x", None, "a.com:80x", 7])
def test_an_invalid_host_has_no_address(host):
    with pytest.raises(SettingsError, match="host"):
        World().frontier.set_address(host, "192.0.2.1")


@pytest.mark.parametrize("address", ["", "192.0.2", "a.com", "192.0.2.1/24"])
def test_an_invalid_address_is_refused(address):
    with pytest.raises(SettingsError, match="address"):
        World().frontier.set_address("a.com", address)


# -- over openings


def test_the_gap_of_a_group_survives_a_kill():
    world = World(group={"domain": {"gap": 10}}, delay=1)
    world.discover("http://a.x.com/", "http://b.x.com/")
    world.report(world.one().done())
    world.clock.move(4)
    world.kill()
    assert ([], 6) == (world.urls(), world.ready_in())


def test_a_kill_during_a_request_delays_the_group_from_the_opening_on():
    world = World(group={"domain": {"gap": 10}}, delay=1)
    world.discover("http://a.x.com/", "http://b.x.com/")
    world.one()
    world.clock.move(4)
    world.kill()
    assert [] == world.urls()
    world.clock.move(2)
    world.kill()  # at once again: the lease is no longer there to show it
    assert (8, 1) == ((found := next_lease(world))[0], len(found[1]))


def test_a_request_of_a_named_worker_keeps_its_turn_after_a_kill():
    world = World(group="domain")
    world.discover("http://a.x.com/", "http://b.x.com/")
    lease = world.one(worker="w", ttl_seconds=100)
    world.kill()
    assert ([], []) == (world.urls(), problems(world))
    world.report(lease.done())
    world.clock.move(1)
    assert ["http://b.x.com/"] == world.urls()


def test_a_clock_that_jumped_while_no_process_ran_does_not_shorten_the_gap_of_a_group(monkeypatch):
    from outrider.engine import owner

    world = World(group={"domain": {"gap": 50}}, delay=1)
    world.discover("http://a.x.com/", "http://b.x.com/")
    world.report(world.one().done())
    clock = world.clock
    clock.move(3_600)
    # As on another boot: the clock moved on, and the elapsed time is unknown.
    monkeypatch.setattr(owner, "clock_of", lambda tables, given, **_: (clock, clock(), None, 0.0))
    world.kill()
    assert ([], 50) == (world.urls(), world.ready_in())
    world.kill()
    assert 50 == world.ready_in()


@pytest.mark.parametrize("pause", [60, 20], ids=["the gap was over", "the gap was not over"])
def test_a_visit_ended_when_it_did_if_the_gap_of_its_group_was_over_before_the_clock_was_corrected(monkeypatch, pause):
    """The time passed is known, and the clock says a second more. A later end would seem to be that of a request that
    is not in the record."""
    from outrider.engine import owner

    world = World(group={"domain": {"gap": 50}}, delay=80)
    world.discover("http://a.x.com/", "http://a.x.com/2")
    world.report(world.one().done())
    at = world.clock()
    ended = int(world.inspect().tables.hosts.ended[0])
    world.clock.move(pause + 1)
    now = world.clock()
    monkeypatch.setattr(owner, "clock_of", lambda *_, **__: (world.clock, now, now - at - 1_000_000, 0.0))
    world.kill()
    assert ended + (1_000_000 if pause < 50 else 0) == int(world.inspect().tables.hosts.ended[0])
    assert [] == problems(world)


def test_addresses_survive_a_kill_and_a_checkpoint():
    world = World(group="address", delay=1)
    world.frontier.set_addresses({"a.com": "192.0.2.1", "b.org": "192.0.2.1", "c.net": "192.0.2.3"})
    world.discover("http://a.com/", "http://b.org/", "http://c.net/")
    world.kill()
    assert ["http://a.com/", "http://c.net/"] == world.urls()
    world.frontier.set_address("c.net", "192.0.2.1")
    world.frontier.checkpoint()
    world.kill()
    world.clock.move(1)
    assert (1, []) == (len(world.urls()), problems(world))


@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("robots", ["caller", "errands"])
def test_an_open_request_counts_for_the_old_group_of_its_host_even_after_a_new_address_and_a_kill(robots, checkpoint):
    """Seed 343563665354 of the operated histories: the group of the address that a.com left was free after the kill."""
    world = World(group={"address": {"gap": 5}}, delay=1, robots=robots)
    world.frontier.set_addresses({"a.com": "192.0.2.1", "b.org": "192.0.2.1", "c.net": "192.0.2.2"})
    world.discover("http://a.com/")
    lease = world.one(worker="w", ttl_seconds=1_000, errands=True, request_id=("w", 1))
    world.discover("http://b.org/", "http://c.net/")
    for address in ("192.0.2.7", "192.0.2.2"):
        world.frontier.set_address("a.com", address)
    for _ in range(2):
        if checkpoint:
            world.frontier.checkpoint()
        world.kill()
        assert [] == problems(world)
    assert [lease] == list(world.lease(1, worker="w", errands=True, request_id=("w", 1)))
    assert ["c.net"] == [one.host for one in world.lease(errands=True)]
    world.report(lease.robots(404) if robots == "errands" else lease.done())
    world.clock.move(4.9)
    assert ([], []) == ([one.host for one in world.lease(errands=True)], problems(world))
    world.clock.move(0.1)  # the old group waits since that end
    assert ["b.org"] == [one.host for one in world.lease(errands=True)]
    world.kill()
    assert [] == problems(world)


def test_an_address_found_during_a_request_counts_from_the_next_one_even_after_a_kill():
    """As above, but an errand for the address ends after the lease."""
    world = World(group="address", delay=1, addresses="errands")
    world.discover("http://a.com/")
    asked = world.one(errands=True)
    world.frontier.set_address("a.com", "192.0.2.1")
    page = world.one(worker="w", ttl_seconds=1_000)
    assert ("192.0.2.1", "address") == (page.address, asked.kind)
    world.report(asked.located("192.0.2.2", ttl_seconds=3_000))
    world.discover("http://b.org/", "http://c.net/")
    for host, address in (("b.org", "192.0.2.1"), ("c.net", "192.0.2.2")):
        world.frontier.set_address(host, address)
    world.kill()
    for host, address in (("b.org", "192.0.2.1"), ("c.net", "192.0.2.2")):
        world.frontier.set_address(host, address)
    assert ["c.net"] == [one.host for one in world.lease(errands=True)]
    world.report(page.done())
    assert (1, []) == (world.ready_in(), problems(world))


def test_groups_may_be_changed_at_every_opening():
    world = World(delay=5)
    world.discover("http://a.x.com/", "http://b.x.com/")
    world.report(*[lease.done() for lease in world.lease()][:1])
    world.discover("http://a.x.com/2", "http://c.x.com/")
    world.kill(group="domain")
    assert ([], 5) == (world.urls(), world.ready_in())
    world.kill(group=None)
    assert ["http://c.x.com/"] == world.urls()


# -- telling


def test_explain_names_the_group_that_delays_a_url():
    world = World(group=["domain", SHOP], delay=3)
    world.discover("http://a.x.com/", "http://b.x.com/", "http://till.test/", "http://a.shop.example/")
    leases = list(world.lease())
    for url, name in (("http://b.x.com/", "x.com"), ("http://a.shop.example/", "shops")):
        busy = world.frontier.explain(url)
        assert ("group_busy", None, True) == (busy.reason_now, busy.next_at, name in busy.reason_text)
    world.report(*[lease.done() for lease in leases])
    resting = world.frontier.explain("http://b.x.com/")
    assert ("group_resting", world.clock.at + instant(3)) == (resting.reason_now, resting.next_at)
    assert "the group x.com, which pauses for 3 s more" in resting.reason_text


def test_the_group_with_the_longest_wait_is_named():
    slow = {"name": "slow", "hosts": ["b.x.com", "b.y.com"], "capacity": 1, "gap": 9}
    world = World(group=["domain", slow], delay=1)
    world.discover("http://b.y.com/", "http://b.x.com/")
    (first,) = world.lease()
    world.clock.move(1)
    other = {"http://b.y.com/": "http://b.x.com/", "http://b.x.com/": "http://b.y.com/"}[first.url]
    world.discover(other.replace("//b.", "//a."))
    (second,) = world.lease()
    assert other.replace("//b.", "//a.") == second.url
    world.report(first.done(seconds=0), second.done(seconds=0))
    told = world.frontier.explain(other)
    assert ("group_resting", world.clock.at + instant(9)) == (told.reason_now, told.next_at)
    assert "the group slow, which pauses for 9 s more" in told.reason_text


def test_a_host_that_waits_alone_is_not_reported_as_waiting_for_other_hosts():
    world = World(group="domain", delay=3)
    world.discover("http://a.x.com/", "http://b.x.com/")
    (lease,) = world.lease()
    other = {"http://a.x.com/": "http://b.x.com/", "http://b.x.com/": "http://a.x.com/"}[lease.url]
    told = world.frontier.explain(other)
    assert ("group_busy", True) == (
        told.reason_now,
        told.reason_text.endswith("in the group x.com, whose turns are all in use"),
    )


def test_explain_names_an_address():
    world = World(group="address")
    world.frontier.set_addresses({"a.com": "192.0.2.1", "b.org": "192.0.2.1"})
    world.discover("http://a.com/", "http://b.org/")
    world.one()
    assert "192.0.2.1" in world.frontier.explain("http://b.org/").reason_text


def test_hosts_that_wait_for_a_group_are_counted_as_resting():
    world = World(group="domain")
    world.discover("http://a.x.com/", "http://b.x.com/", "http://c.x.com/")
    leased = world.one().host
    statistics = world.frontier.statistics()
    assert ({"known": 1, "waiting": 2}, 0) == (statistics["groups"], statistics["hosts"]["ready"])
    assert "group" in world.frontier.explain_idle().text
    assert {"resting"} == {host.state for host in world.frontier.hosts()}
    waiting = next(host for host in ("a.x.com", "b.x.com") if host != leased)
    assert ("group_busy", "resting") == (
        (told := world.frontier.explain(f"http://{waiting}/")).reason_now,
        told.host and told.host.state,
    )


def test_without_a_setting_a_frontier_has_no_groups():
    assert {"known": 0, "waiting": 0} == World().frontier.statistics()["groups"]


# -- settings


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("hosts", "use domain, address"),
        (7, "use domain, address"),
        ({"domains": {}}, "unknown table 'domains'"),
        ({"domain": True}, r"write it as a table, \[domain\]"),
        ({"domain": {"delay": 1}}, r"'delay' \(\[domain\]\) is no setting"),
        ({"address": {"capacity": 0}}, r"capacity 0 \(\[address\]\)"),
        ({"address": {"capacity": 1.5}}, "capacity 1.5"),
        ({"domain": {"gap": -1}}, "gap -1"),
        ({"domain": {"gap": float("nan")}}, "gap nan"),
        ([{"domain": {}}, {"domain": {}}], "there twice"),
        ({"group": {"name": "a"}}, "as a table of its own"),
        (table(hosts=["a.com"], name=""), "name ''"),
        (table(), "has no members"),
        (table(hosts="a.com"), "use a list of texts"),
        (table(hosts=["a.*.com"]), r"hosts 'a\.\*\.com'"),
        (table(hosts=["a.com/x"]), "hosts 'a.com/x'"),
        (table(hosts=["*."]), "hosts"),
        (table(addresses=["192.0.2.1/24"]), "has host bits set"),
        (table(addresses=["a.com"]), "addresses 'a.com'"),
        (table(hosts=["a.com"], exempt="yes"), "exempt 'yes'"),
        ([SHOP, SHOP], "two of this name"),
    ],
)
def test_an_invalid_group_is_reported_by_name(told, said):
    with pytest.raises(SettingsError, match=said):
        World(group=told)


def test_a_group_given_by_word_and_by_table_has_the_values_of_the_table():
    found = Grouping.of(["domain", {"domain": {"gap": 2}}, "address"])
    assert found is not None
    assert (2.0, None) == (found.domain and found.domain.gap, found.address and found.address.gap)
    assert found == Grouping.of([{"domain": {"gap": 2}}, "address", "domain"])


@pytest.mark.parametrize("nothing", [None, [], {}])
def test_an_empty_setting_means_no_group(nothing):
    assert Grouping.of(nothing) is None


def test_more_groups_than_a_host_can_count_in_are_refused():
    nested = [{"name": str(n), "hosts": [f"*.{'a.' * n}com"]} for n in range(GROUPS_PER_HOST_MAX)]
    assert Grouping.of(nested) is not None
    with pytest.raises(SettingsError, match="a host could count in 5 groups at once, 4 are possible"):
        Grouping.of([*nested, "domain"])
    with pytest.raises(SettingsError, match="5 groups"):
        Grouping.of([*nested, {"name": "net", "addresses": ["10.0.0.0/8"]}])
    apart = [{"name": str(n), "hosts": [f"h{n}.com"], "addresses": [f"10.{n}.0.0/16"]} for n in range(50)]
    assert Grouping.of(["domain", "address", *apart]) is not None


# -- whole histories


Moment = tuple[int, int]  # an instant, and the number of the event at that instant


class Judge:
    """The servers' view: requests with their start and end, and the groups of each. It shares no code with the
    package."""

    def __init__(self, world: World, kinds: dict[str, tuple[int, float]]) -> None:
        self.world, self.kinds = world, kinds
        self.requests: dict[str, list[list[Moment]]] = defaultdict(list)
        self.places = itertools.count()

    def begins(self, groups: list[str], deadline: int) -> list[Moment]:
        """A request without a report ends with its lease."""
        request = [(self.world.clock.at, next(self.places)), (deadline, -1)]
        for group in groups:
            self.requests[group].append(request)
        return request

    def ends(self, request: list[Moment]) -> None:
        request[1] = min(request[1], (self.world.clock.at, next(self.places)))

    def breaches(self) -> list[str]:
        found = []
        for group, requests in self.requests.items():
            capacity, gap = self.kinds[group.split(":")[0]]
            for begin, _ in requests:
                at_once = sum(1 for b, e in requests if b <= begin < e)
                if at_once > capacity:
                    found.append(f"{group}: {at_once} at once at {begin}")
                before = max((e[0] for _, e in requests if e < begin), default=0)
                if begin[0] - before < instant(gap):
                    found.append(f"{group}: {(begin[0] - before) / 1e6} s after another's end")
        return found


@pytest.mark.parametrize("seed", range(3))
def test_random_histories_break_no_group_and_are_completed(seed):
    rng = random.Random(seed)
    kinds = {"domain": (rng.choice([1, 2]), 3.0), "address": (rng.choice([1, 3]), 2.0), "odd": (2, 5.0)}
    names = [f"h{n}.d{n % 7}.com" for n in range(40)]
    odd = [name for name in names if int(name[1 : name.index(".")]) % 5 == 0]
    told = {kind: {"capacity": kinds[kind][0], "gap": kinds[kind][1]} for kind in ("domain", "address")}
    named = {"name": "odd", "hosts": odd, "capacity": kinds["odd"][0], "gap": kinds["odd"][1]}
    world = World(group=[told, named], delay=1.0, seed=seed, disk=CrashDisk(), clock=None)
    judge = Judge(world, kinds)
    addresses: dict[str, str] = {}
    open_ones: dict[int, tuple[Lease, list[Moment]]] = {}

    def groups_of(name: str) -> list[str]:
        found = [f"domain:{name.split('.')[1]}"] + (["odd:"] if name in odd else [])
        return found + ([f"address:{addresses[name]}"] if name in addresses else [])

    def known() -> list[str]:
        return [host.name for host in world.frontier.hosts(limit=100)]

    def lease(want: int, **how: str) -> None:
        for one in world.lease(want, ttl_seconds=30, per_queue=rng.choice([1, 3]), **how):
            assert one.crawl == how.get("crawl", one.crawl)
            open_ones[one.token] = (one, judge.begins(groups_of(one.host), one.deadline))
        if want > 50 and not how:
            assert world.ready_in() != 0  # every host that waits has a reason

    def end(token: int, report: bool = True) -> None:
        one, request = open_ones.pop(token)
        judge.ends(request)
        if report:
            world.report(one.done(seconds=rng.choice([0, 0.1, 0.5])))

    world.discover(*[f"http://{name}/{n}" for name in names for n in range(rng.randrange(4))])
    for step in range(250):
        what = rng.random()
        if what < 0.2:
            lease(rng.randrange(1, 8))
        elif what < 0.25:
            lease(100)
        elif what < 0.35:
            lease(rng.randrange(1, 8), crawl=rng.choice(["default", "other"]))
        elif what < 0.4:
            lease(rng.randrange(1, 8), key=rng.choice(names))
        elif what < 0.75:
            for token in rng.sample(sorted(open_ones), min(len(open_ones), rng.randrange(4))):
                end(token)
        elif what < 0.85:
            world.clock.move(rng.choice([0.3, 1, 2.5, 6]))
        elif what < 0.9:
            crawl = rng.choice([None, "other"])
            world.discover(Link(f"http://{rng.choice(names)}/x{step}", priority=rng.random(), crawl=crawl))
        elif what < 0.94:
            idle = [name for name in names if name not in {one.host for one, _ in open_ones.values()}]
            name = rng.choice(idle)
            # A host that was visited elsewhere brings its delay with it: the judge sees its requests there, too.
            addresses[name] = f"192.0.2.{rng.randrange(6)}"
            world.frontier.set_address(name, addresses[name])
        elif what < 0.96:
            world.frontier.pause(rng.choice(known()))
        elif what < 0.98:
            for name in known():
                world.frontier.resume(name)
        else:
            for token in list(open_ones):
                end(token, report=False)  # they end with their process
            world.kill()
        if step % 10 == 0:
            assert [] == problems(world)
    for name in known():
        world.frontier.resume(name)
    for _ in range(2_000):
        if world.frontier.finished():
            break
        for token in list(open_ones):
            end(token)
        lease(50)
        if not open_ones:
            ready = world.ready_in()
            assert ready is not None or world.frontier.finished(), world.frontier.explain_idle()
            world.clock.move(ready or 0)
    assert (True, []) == (world.frontier.finished(), judge.breaches())
    assert [] == problems(world)


def test_every_host_gets_its_turn_however_much_work_the_other_hosts_have():
    world = World(group=["domain", {"name": "both", "hosts": ["a.x.com", "a.y.com"]}], delay=1)
    world.discover(*[f"http://{name}/{n}" for name in ("b.x.com", "c.x.com", "a.y.com", "b.y.com") for n in range(60)])
    world.discover("http://a.x.com/")
    order = [url for _, url in finish(world)]
    assert order.index("http://a.x.com/") < 20


def test_a_host_whose_groups_are_free_in_turn_but_never_together_gets_its_turn():
    world = World(group=["domain", {"name": "n", "hosts": ["a.x.com", "b.y.com", "c.z.com"], "gap": 1}], delay=1)

    def visit() -> list[str]:
        leases = list(world.lease())
        world.report(*[lease.done(seconds=0) for lease in leases])
        assert [] == problems(world)
        return [lease.url for lease in leases]

    world.discover(*[f"http://{host}.x.com/{n}" for n in range(60) for host in "bc"])
    visit()
    world.clock.move(0.5)  # the named group is visited half a second after the domain, as long as both have work
    world.discover(*[f"http://{host}/{n}" for host in ("b.y.com", "c.z.com") for n in range(60)])
    visit()
    world.discover("http://a.x.com/")
    order: list[str] = []
    while not world.frontier.finished():
        world.clock.move(world.ready_in() or 0)
        order += visit()
    assert (True, 239) == (order.index("http://a.x.com/") < 30, len(order))


def test_many_hosts_use_their_groups_in_columns():
    world = World(group="domain", delay=1)
    world.discover(*[f"http://h{n}.d{n % 50}.com/{k}" for n in range(500) for k in range(2)])
    seen: Counter[str] = Counter()
    for _ in range(20):
        batch = world.lease(1_000)
        domains = [url.split("/")[2].split(".")[1] for url in batch.urls]
        assert 50 == len(domains) == len(set(domains))
        seen.update(url.split("/")[2] for url in batch.urls)
        world.frontier.report(OutcomeBatch(batch.tokens, "done", statuses=200))
        world.clock.move(1)
    assert ({2}, True, []) == (set(seen.values()), world.frontier.finished(), problems(world))
