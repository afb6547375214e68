"""The default clock of a crawl for shared machines, on a virtual clock: its rate, the exempt hosts, and a store that
was made without it."""

from __future__ import annotations

import heapq
import ipaddress

from hypothesis import given
from hypothesis import strategies as st

from model.world import World, recount
from outrider.crawl.setup.group_settings import machines
from outrider.frontier.policy.grouping import Members, NamedGroup

MACHINE = "93.184.216.34"


def world_of(**how: object) -> World:
    return World(group=machines(), addresses="errands", delay=1.0, delay_factor=10.0, **how)  # type: ignore[arg-type]


def pages(world: World) -> list[str]:
    return [lease.url for lease in world.lease(errands=True) if lease.kind == "page"]


def test_two_hosts_at_one_address_are_visited_at_once_and_explain_names_the_machine():
    world = world_of()
    urls = [f"http://h{number}.com/" for number in range(5)]
    world.discover(*urls)
    world.report(*(lease.located(MACHINE) for lease in world.lease(errands=True)))
    begun = pages(world)
    waiting = [url for url in urls if url not in begun]
    told = world.frontier.explain(waiting[0])
    assert (2, "group_busy", True) == (len(begun), told.reason_now, MACHINE in told.reason_text)
    assert [] == recount(world.frontier)


def test_hosts_of_this_machine_of_private_networks_and_of_content_delivery_share_no_clock():
    for address in ("127.0.0.1", "10.0.0.8", "104.16.0.1", "2606:4700::1"):
        world = world_of()
        world.discover(*(f"http://h{number}.com/" for number in range(5)))
        world.report(*(lease.located(address) for lease in world.lease(errands=True)))
        assert 5 == len(pages(world)), address


def test_a_million_pages_of_one_machine_need_days_and_two_requests_at_once_at_most():
    """Forty hosts represent ten thousand: the machine's clock, not theirs, sets the rate. A fetch needs 0.2 s."""
    world = world_of()
    world.discover(*(f"http://h{host}.com/{page}" for host in range(40) for page in range(8)))
    world.report(*(lease.located(MACHINE, ttl_seconds=86_400) for lease in world.lease(errands=True)))
    begun = world.lease()
    first = world.clock.at
    under_way = [(world.clock.at + 200_000, lease.token, lease) for lease in begun]
    answered = most = 0
    while under_way or world.ready_in() is not None:
        most = max(most, len(under_way))
        wait = world.ready_in()
        if under_way and (wait is None or under_way[0][0] <= world.clock.at + wait * 1e6):
            world.clock.at, _, lease = heapq.heappop(under_way)
            world.report(lease.done(seconds=0.2))
            answered += 1
        else:
            world.clock.move(max(wait or 0.0, 1e-6))
        for lease in world.lease():
            heapq.heappush(under_way, (world.clock.at + 200_000, lease.token, lease))
    days = (world.clock.at - first) / answered / 86_400
    assert (320, 2) == (answered, most)
    assert 2.0 < days < 4.0


def test_a_store_that_was_made_without_the_clock_continues_with_it():
    world = World(addresses="errands", delay=1.0)
    world.discover(*(f"http://h{host}.com/{page}" for host in range(4) for page in range(2)))
    leases = world.lease(errands=True)
    assert 4 == len(leases)
    world.report(*(lease.done(seconds=0.1) for lease in leases))
    world.reopen(group=machines())
    world.clock.move(5)
    errands = world.lease(errands=True)
    assert ["address"] * 4 == [lease.kind for lease in errands]
    world.report(*(lease.located(MACHINE) for lease in errands))
    assert 2 == len(pages(world))
    world.kill()
    assert [] == recount(world.frontier)


@given(st.lists(st.tuples(st.integers(0, 255), st.integers(0, 32)), max_size=8), st.integers(0, 2**32 - 1))
def test_an_address_belongs_to_a_member_if_a_network_contains_it(networks, address):
    made = [ipaddress.ip_network((first << 24 | 0x0A0B00, length), strict=False) for first, length in networks]
    members = Members([NamedGroup("some", addresses=tuple(made))])
    for where in (ipaddress.IPv4Address(address), *(network[-1] for network in made)):
        assert bool(members.by_address(where)) == members.has_address(where)
    assert not members.has_address(ipaddress.IPv6Address("2606:4700::1"))
