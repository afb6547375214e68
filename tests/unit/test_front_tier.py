"""Cold hosts with queued URLs: nothing is lost or counted twice, and the order of the front tier remains."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limiting import set_limits
from model.world import START, World, cards_at_cold_hosts, hosts_go_cold, outcome, recount
from outrider import Link
from outrider.crawl.orders.store_repair import repair
from outrider.errors import DamagedStoreError, PagesNeedErrandsError
from outrider.frontier.stores.front_tier import NO_GROUP, FrontTier, Key, LeavingHosts
from outrider.limits import GROUP_ELSEWHERE_MOST, GROUP_WAITING_LEAST
from outrider.local_hours import LocalHours


@pytest.fixture
def world(monkeypatch):
    hosts_go_cold(monkeypatch, with_urls=True)
    made = World()
    yield made
    made.frontier.close()


def cold(world: World) -> int:
    return len(world.inspect().tables.cold)


def urls_at_cold_hosts(world: World) -> list[str]:
    return sorted(url for cards in cards_at_cold_hosts(world.inspect().tables) for url in cards.urls())


def gone_cold(world: World, *links: str | Link) -> None:
    world.discover(*links)
    world.frontier.checkpoint()
    assert cold(world) > 0


def drained(world: World) -> list[str]:
    """Fetches everything, and returns the URLs in their order."""
    found: list[str] = []
    while leases := world.lease():
        found += [lease.url for lease in leases]
        world.report(*[outcome(lease, seconds=0.0, status=200) for lease in leases])
        world.clock.move(2)
    return found


URLS = [f"http://h{number}.com/" for number in range(12)]


def test_ready_hosts_go_cold_with_their_urls_and_return_when_they_are_drawn(world):
    gone_cold(world, *URLS, "http://h0.com/2")
    assert (12, sorted([*URLS, "http://h0.com/2"])) == (cold(world), urls_at_cold_hosts(world))
    assert {"queued": 13} == world.counts()
    assert [] == recount(world.frontier)
    assert 0 == world.frontier.next_ready_seconds()
    assert sorted([*URLS, "http://h0.com/2"]) == sorted(drained(world))
    assert ({"done": 13}, [], 0) == (world.counts(), recount(world.frontier), len(world.inspect().tables.cold.front))
    assert world.frontier.finished()


@pytest.mark.parametrize("how", ["kill", "reopen"])
def test_after_an_opening_they_return_too(world, how):
    gone_cold(world, *URLS, Link("http://late.com/", not_before=START * 2))
    world.discover("http://new.com/", "http://h3.com/new")
    getattr(world, how)()
    assert ({"queued": 14, "waiting": 1}, []) == (world.counts(), recount(world.frontier))
    assert cold(world) >= 11, "the opening recalls no host that no fact of the log names"
    assert sorted([*URLS, "http://new.com/", "http://h3.com/new"]) == sorted(drained(world))


def test_a_repair_keeps_them(tmp_path, monkeypatch):
    hosts_go_cold(monkeypatch, with_urls=True)
    world = World(disk=str(tmp_path / "store"))
    gone_cold(world, *URLS)
    world.frontier.close()
    repair(str(tmp_path / "store"), now=world.clock.at)
    world.frontier = world._open()
    world.clock.move(100)
    assert ({"queued": 12}, []) == (world.counts(), recount(world.frontier))
    assert sorted(URLS) == sorted(drained(world))
    world.frontier.close()


def test_links_orders_and_questions_bring_a_host_back_as_it_was(world):
    gone_cold(world, *URLS)
    before = world.frontier.explain(URLS[3])
    assert ("queued", 1) == (str(before.state), before.queue.queued)
    assert ["known", "new"] == world.discover(URLS[4], "http://h4.com/2")
    assert ["queued"] == list(map(str, world.frontier.reprioritise({URLS[5]: 0.9})))
    assert ["queued"] == list(map(str, world.frontier.delete_urls([URLS[6]])))
    assert [] == recount(world.frontier)
    assert ["http://h7.com/"] == world.urls(key="h7.com")
    assert {"queued": 11, "leased": 1} == world.counts()
    world.frontier.checkpoint()
    assert [] == recount(world.frontier)


def test_a_woken_url_is_not_there_twice_after_a_crash(world):
    world.discover(*[Link(url, not_before=START + 5_000_000) for url in URLS])
    world.clock.move(6)
    world.discover()
    world.frontier.checkpoint()
    assert (12, {"queued": 12}) == (cold(world), world.counts())
    world.kill()
    assert (12, {"queued": 12}, []) == (cold(world), world.counts(), recount(world.frontier))
    assert sorted(URLS) == sorted(drained(world))


def test_a_host_that_left_again_after_a_call_named_it_returns_once(world):
    """It has two places in its line. Offered twice, it would be leased twice in a call."""
    gone_cold(world, *URLS)
    gone_cold(world, "http://h0.com/again")
    machine = world.inspect()
    (key,) = machine.tables.cold.front.keys
    assert len(machine.tables.cold.front) == 13
    queues = machine.core.front._recall(key, 100).tolist()
    assert (12, 12) == (len(queues), len(set(queues)))
    assert {"queued": 13} == world.counts()


def test_a_url_that_comes_due_at_a_cold_host_with_urls_is_queued_there(world):
    gone_cold(world, *URLS, Link("http://h0.com/late", not_before=START + 5_000_000))
    world.clock.move(6)
    world.discover()
    assert ({"queued": 13}, []) == (world.counts(), recount(world.frontier))
    assert 13 == len(drained(world))


def test_a_deleted_crawl_takes_its_urls_at_cold_hosts_along(world):
    gone_cold(world, *URLS, *[Link(url, crawl="x") for url in ("http://only.com/", "http://h0.com/")])
    world.frontier.delete(crawl="x")
    assert ({"queued": 12}, []) == (world.counts(), recount(world.frontier))
    world.kill()
    assert ({"queued": 12}, []) == (world.counts(), recount(world.frontier))
    assert sorted(URLS) == sorted(drained(world))


def test_paused_crawls_stay_on_disk_and_others_return(world):
    gone_cold(world, *URLS, *[Link(f"http://p{number}.com/", crawl="p") for number in range(5)])
    world.frontier.pause(crawl="p")
    assert {"ready": 12, "blocked": 5} == {
        state: count for state, count in world.frontier.statistics()["hosts"].items() if count and state != "known"
    }
    assert sorted(URLS) == sorted(drained(world))
    assert (5, None) == (cold(world), world.frontier.next_ready_seconds())
    world.frontier.resume(crawl="p")
    assert 5 == len(drained(world))


def test_an_order_to_a_whole_crawl_leaves_its_hosts_on_disk(world):
    gone_cold(world, *URLS)
    assert 12 == world.frontier.set_delay(3.0)
    assert 12 == cold(world)
    assert {3.0} == {host.delay_seconds for host in world.frontier.hosts()}
    assert sorted(URLS) == sorted(drained(world))


def test_lists_and_counts_have_hosts_with_urls_on_disk(world):
    gone_cold(world, *URLS)
    hosts = world.frontier.statistics()["hosts"]
    assert {"known": 12, "ready": 12, "resting": 0, "blocked": 0, "empty": 0} == hosts
    assert [("ready", 1)] * 12 == [(host.state, host.queued) for host in world.frontier.hosts()]
    assert 12 == len(world.frontier.hosts(state="ready"))
    assert [] == list(world.frontier.hosts(state="empty"))
    assert [1] * 12 == [queue.queued for queue in world.frontier.queues()]
    assert 12 == world.frontier.count(state="queued")


def test_hosts_stay_in_memory_that_have_more_than_that(world):
    set_limits_of_cards = 8
    world.discover(
        *[f"http://long.com/{number}" for number in range(set_limits_of_cards + 1)],
        "http://leased.com/",
        Link("http://shared.com/", key="k"),
        Link("http://other.com/", key="k"),
        Link("http://exact.com/", crawl="x"),
    )
    assert ["http://leased.com/"] == world.urls(key="leased.com")
    world.frontier.pause("exact.com")
    world.frontier.checkpoint()
    assert 0 == cold(world)


def test_long_cards_stay_in_memory_and_their_hosts_are_ready(world, monkeypatch):
    set_limits(monkeypatch, COLD_CARDS_BYTES_MAX=150)
    gone_cold(world, *URLS, "http://long.com/" + "x" * 300)
    assert (12, sorted(URLS)) == (cold(world), urls_at_cold_hosts(world))
    assert ["http://long.com/" + "x" * 300] == world.urls(key="long.com")
    assert 12 == len(drained(world))


def test_as_many_ready_hosts_as_workers_need_stay_in_memory(world, monkeypatch):
    set_limits(monkeypatch, FRONT_HOSTS_LEAST=7)
    gone_cold(world, *URLS)
    assert (5, 7) == (cold(world), len(world.inspect().turns.ready))


def test_the_lowest_classes_go_first(world, monkeypatch):
    set_limits(monkeypatch, FRONT_HOSTS_LEAST=6)
    gone_cold(world, *[Link(url, priority=0.1 if number % 2 else 0.9) for number, url in enumerate(URLS)])
    assert URLS[1::2] == sorted(urls_at_cold_hosts(world), key=URLS.index)


# -- hosts without an address


@pytest.fixture
def seeking(monkeypatch):
    """A frontier whose errands find the addresses of hosts, which share a clock per address."""
    hosts_go_cold(monkeypatch, with_urls=True)
    made = World(group="address", addresses="errands")
    yield made
    made.frontier.close()


def visited(world: World, most: int = 100) -> tuple[list[str], list[str]]:
    """Answers errands and visits pages until nothing is left. Returns the hosts of errands and the URLs of pages."""
    errands, pages = [], []
    while not world.frontier.finished():
        leases = world.lease(most, errands=True)
        for lease in leases:
            if lease.kind == "address":
                errands.append(lease.host)
                world.report(lease.located(f"192.0.2.{len(errands) % 200}"))
            else:
                pages.append(lease.url)
                world.report(outcome(lease, seconds=0.0, status=200))
        if not leases:
            wait = world.frontier.next_ready_seconds()
            assert wait is not None
            world.clock.move(max(wait, 0.001))
        assert [] == recount(world.frontier) + world.inspect().turns.shared.problems()
    return errands, pages


@pytest.mark.parametrize("how", ["live", "kill", "reopen"])
def test_hosts_that_need_an_address_go_cold_and_return_for_their_errands(seeking, how):
    gone_cold(seeking, *URLS, "http://h0.com/2")
    assert (12, sorted([*URLS, "http://h0.com/2"])) == (cold(seeking), urls_at_cold_hosts(seeking))
    if how != "live":
        getattr(seeking, how)()
    errands, pages = visited(seeking)
    hosts = [url.split("/")[2] for url in URLS]
    assert (sorted(hosts), sorted([*URLS, "http://h0.com/2"])) == (sorted(errands), sorted(pages))
    assert 0 == len(seeking.inspect().tables.cold.front)


def test_counts_are_the_same_with_such_hosts_on_disk(monkeypatch):
    told = []
    for goes_cold in (False, True):
        if goes_cold:
            hosts_go_cold(monkeypatch, with_urls=True)
        world = World(robots="errands", group="address", addresses="errands")
        world.discover(*URLS)
        world.frontier.checkpoint()
        assert (12 if goes_cold else 0) == cold(world)
        with pytest.raises(PagesNeedErrandsError):
            world.frontier.lease(5)
        counts, schedule = world.frontier.statistics(), world.frontier._schedule_counts()
        assert (12, 12, 0.0, False) == (
            *(counts["errands"], schedule.ready, world.ready_in(), world.frontier.finished()),
        )
        told.append((counts["hosts"], world.frontier.explain_idle().text))
        world.frontier.close()
    assert told[0] == told[1]


def test_hosts_that_need_an_address_return_while_pages_are_always_ready(seeking):
    """Half of the leases of a call are errands as long as hosts need one, on disk too."""
    seeking.frontier.set_addresses({f"ready{number}.com": f"192.0.2.{number}" for number in range(60)})
    seeking.discover(*[f"http://ready{number}.com/" for number in range(60)])
    gone_cold(seeking, *URLS)
    assert 12 == cold(seeking), "hosts with an address stay"
    kinds = Counter(lease.kind for _ in range(6) for lease in seeking.lease(4, errands=True))
    assert {"address": 12, "page": 12} == kinds


def test_a_caller_without_errands_brings_few_of_them_back(seeking, monkeypatch):
    """These wait in memory for their errands."""
    set_limits(monkeypatch, OLDEST_DRAW_EVERY=1_000)
    gone_cold(seeking, *URLS)
    seeking.discover("http://192.0.2.9/")
    assert (["http://192.0.2.9/"], []) == (seeking.urls(1), seeking.urls(1))
    left = cold(seeking)
    assert left >= 6
    assert ([], left) == (seeking.urls(1), cold(seeking))


@pytest.mark.parametrize("again", [Link("http://h{}.com/x", crawl="b"), Link("http://h{}.com/x", key="h{}.com")])
def test_a_host_that_returns_for_its_age_gets_one_errand_though_it_has_several_queues(seeking, again):
    gone_cold(seeking, *[f"http://h{number}.com/" for number in range(30)])
    found = [lease.host for lease in seeking.lease(8, errands=True)]
    seeking.discover(
        *[
            Link(again.url.format(number), crawl=again.crawl, key=again.key and again.key.format(number))
            for number in range(30)
        ]
    )
    found += [lease.host for lease in seeking.lease(30, errands=True)]
    found += [lease.host for lease in seeking.lease(30, errands=True)]
    assert sorted(f"h{number}.com" for number in range(30)) == sorted(found)


def test_hosts_that_went_cold_before_addresses_were_needed_return_to_callers_without_errands(monkeypatch):
    hosts_go_cold(monkeypatch, with_urls=True)
    world = World()
    gone_cold(world, *[f"http://192.0.2.{number}/" for number in range(20)])
    world.addresses = "errands"
    world.reopen(group="address")
    assert 20 == cold(world)
    found: list[str] = []
    while urls := world.urls(1):
        found += urls
        assert len(world.inspect().turns.ready) <= 8, "they return as they are visited"
    assert (20, []) == (len(set(found)), recount(world.frontier))
    world.frontier.close()


def test_lists_of_hosts_and_counts_agree(seeking):
    gone_cold(seeking, *URLS)
    page = seeking.frontier.hosts(limit=50)
    states = Counter(host.state for host in page)
    assert ({"resting": 12}, 12, 0) == (states, *map(seeking.frontier.statistics()["hosts"].get, ("resting", "ready")))


# -- hosts of groups


GROUP = {"name": "shops", "hosts": ["*.shop.com"], "gap": 10.0}
SHOPS = [f"http://s{number:02}.shop.com/" for number in range(40)]


@pytest.fixture
def grouped(monkeypatch):
    """A frontier in which all shops have one turn together, and a request each ten seconds."""
    hosts_go_cold(monkeypatch, with_urls=True)
    made = World(group=GROUP)
    yield made
    made.frontier.close()


def at_groups(world: World) -> int:
    """How many hosts are on disk in lines of groups."""
    return sum(world.inspect().tables.cold.front.at_groups.values())


def visited_in_order(world: World, most: int = 100) -> list[tuple[float, str]]:
    """Visits everything, checks the frontier between the calls, and returns the second of each visit with its URL."""
    found = []
    while not world.frontier.finished():
        leases = world.lease(most)
        found += [((world.clock.at - START) / 1_000_000, lease.url) for lease in leases]
        world.report(*[outcome(lease, seconds=0.0, status=200) for lease in leases])
        assert [] == recount(world.frontier) + world.inspect().turns.shared.problems()
        wait = world.frontier.next_ready_seconds()
        if not leases and wait is not None:
            world.clock.move(max(wait, 0.001))
    return found


@pytest.mark.parametrize("how", ["live", "kill", "reopen", "checkpoints"])
def test_hosts_of_a_crowded_group_wait_on_disk_and_keep_its_gap(grouped, how):
    gone_cold(grouped, *SHOPS, *URLS)
    found: list[tuple[float, str]] = []
    if how == "checkpoints":
        leases = grouped.lease()
        found = [(0.0, lease.url) for lease in leases]
        grouped.report(*[outcome(lease, seconds=0.0, status=200) for lease in leases])
        grouped.frontier.checkpoint()
        grouped.frontier.checkpoint()
        assert at_groups(grouped) >= 30
        counts = grouped.frontier.statistics()["hosts"]
        states = Counter(host.state for host in grouped.frontier.hosts(limit=100))
        assert {state: counts[state] for state in states} == states
        assert "39 of them because a group" in grouped.frontier.explain_idle().text
        assert 39 == grouped.frontier.statistics()["groups"]["waiting"]
    elif how != "live":
        getattr(grouped, how)()
    found += visited_in_order(grouped)
    assert sorted(SHOPS + URLS) == sorted(url for _, url in found)
    times = [second for second, url in found if "shop" in url]
    assert [] == [pair for pair in pairwise(times) if pair[1] - pair[0] < 10.0], "the gap of the group"
    assert times[-1] <= 10.0 * len(SHOPS) + 1.0, "the group is never idle while hosts wait for it"
    assert (0, 0) == (len(grouped.inspect().tables.cold.front), at_groups(grouped))


# -- the order


def test_a_better_class_on_disk_is_drawn_as_often_as_in_memory(monkeypatch):
    """In memory every eighth draw returns the oldest host. With hosts on disk another eighth returns the oldest one
    there; all other draws return a host of the best class."""
    for goes_cold in (False, True):
        if goes_cold:
            hosts_go_cold(monkeypatch, with_urls=True)
            set_limits(monkeypatch, FRONT_RETURNS=8)
        world = World()
        world.discover(*[Link(f"http://worst{number}.com/", priority=0.0) for number in range(200)])
        world.discover(*[Link(f"http://best{number}.com/", priority=1.0) for number in range(200)])
        if goes_cold:
            world.frontier.checkpoint()
            assert 400 == cold(world)
        first = Counter(lease.url[7:11] for _ in range(160) for lease in world.lease(1))
        assert 160 == sum(first.values())
        assert first["wors"] in (range(34, 41) if goes_cold else (20,)), first
        world.frontier.close()


@pytest.mark.parametrize("waits", [1, 5])
@pytest.mark.parametrize("kind", ["page", "address"])
def test_no_host_on_disk_waits_more_than_eight_draws_for_each_host_before_it(monkeypatch, kind, waits):
    """New hosts of a better class arrive with each draw, for ever; the hosts on disk are drawn all the same. The draws
    are those of pages, or those of errands for addresses."""
    hosts_go_cold(monkeypatch, with_urls=True)
    world = World() if kind == "page" else World(group="address", addresses="errands")
    gone_cold(world, *[Link(f"http://old{number}.com/", priority=0.0) for number in range(20)])
    draws, old = 0, 0
    while old < 20:
        world.discover(*[Link(f"http://new{draws}-{number}.com/", priority=1.0) for number in range(waits)])
        leases = [lease for lease in world.lease(waits, errands=kind == "address") if lease.kind == kind]
        draws += len(leases)
        old += sum("old" in lease.host for lease in leases)
        if draws % 50 == 0:
            world.frontier.checkpoint()
        machine = world.inspect()
        ring = machine.turns.ready if kind == "page" else machine.turns.seekers
        ready = len(ring) + len(machine.tables.cold.front)
        assert draws <= 8 * (20 + ready), f"{old} of 20 after {draws} draws"
    world.frontier.close()


@pytest.fixture
def crowds(monkeypatch):
    """The limits of groups as they are, and steps that look at all hosts."""
    hosts_go_cold(monkeypatch, with_urls=True)
    set_limits(monkeypatch, GROUP_WAITING_MOST=16, GROUP_WAITING_LEAST=4, GROUP_WAITING_PER_TURN=2)
    set_limits(monkeypatch, COLD_STEP_ROWS=1_000, FRONT_PLACES_UNUSED_MAX=65_536)
    return monkeypatch


def shops(number: int, priority: float = 0.0) -> list[Link]:
    return [Link(f"http://s{each}.shop.com/", priority=priority) for each in range(number)]


def test_a_group_remains_known_while_all_its_hosts_are_on_disk(crowds):
    """All hosts of the group leave in one step, the last ones to the line of their class."""
    world = World(group={"domain": {"capacity": 1, "gap": 1.0}})
    world.discover(*shops(30), *[Link(url, priority=0.9, crawl="b") for url in URLS])
    world.frontier.pause(crawl="b")
    found: list[str] = []
    while (leases := world.lease()) or world.ready_in() is not None:
        found += leases.urls
        world.report(*[outcome(lease, seconds=0.0, status=200) for lease in leases])
        world.clock.move(1.0)
    assert (30, []) == (len(found), world.inspect().turns.shared.problems())
    world.frontier.close()


def at_one_address(hosts: int) -> World:
    """A frontier whose hosts all have one address, which has expired; most of them wait on disk."""
    world = World(group="address", addresses="errands")
    world.discover(*[f"http://h{number}.com/" for number in range(hosts)])
    while leases := [lease for lease in world.lease(50, errands=True) if lease.kind == "address"]:
        world.report(*[lease.located("192.0.2.1", ttl_seconds=100.0) for lease in leases])
    world.frontier.checkpoint()
    world.clock.move(200)
    return world


def test_of_a_group_whose_addresses_expired_few_hosts_return_at_once(crowds):
    world = at_one_address(300)
    assert at_groups(world) > 200
    errands = 0
    for _ in range(40):  # DNS does not answer meanwhile
        errands += len(world.lease(50, errands=True))
        world.clock.move(0.05)
    assert errands <= GROUP_ELSEWHERE_MOST + 3 * GROUP_WAITING_LEAST
    assert cold(world) > 200
    world.frontier.close()


def test_a_host_too_large_for_a_record_keeps_its_place_in_the_group(crowds):
    world = World(group={"domain": {"capacity": 1, "gap": 1.0}})
    world.discover(*shops(20))
    world.discover(*[Link(f"http://big.shop.com/{number}{'x' * 2_030}", priority=0.0) for number in range(8)])
    order: list[str] = []
    while "big.shop.com" not in order:
        world.discover(*[Link(f"http://n{len(order)}-{number}.shop.com/", priority=0.0) for number in range(2)])
        world.frontier.checkpoint()
        (lease,) = world.lease(3)
        order.append(lease.host)
        world.report(outcome(lease, seconds=0.0, status=200))
        world.clock.move(1.0)
        assert len(order) <= 60
    world.frontier.close()


def test_places_of_hosts_that_returned_cost_no_calls(crowds):
    world = World(group={"domain": {"capacity": 1, "gap": 1.0}})
    gone_cold(world, *shops(500))
    world.frontier.block_until(world.clock.at + 3_600_000_000)
    assert ([], 3_600.0) == (world.urls(), world.ready_in())
    world.clock.move(3_600)
    assert 1 == len(world.urls())
    world.frontier.close()


def test_hosts_that_wait_for_many_groups_do_not_fill_the_memory(crowds):
    set_limits(crowds, FRONT_RETURNS=8, FRONT_HOSTS_MOST=50)
    world = World(group={"domain": {"capacity": 1, "gap": 60.0}})
    world.discover(*[f"http://h{number}.d{domain}.com/" for number in range(4) for domain in range(100)])
    world.frontier.checkpoint()
    world.reopen()
    visits, most = 0, 0
    while not world.frontier.finished():
        leases = world.lease(5)
        if not leases:
            world.clock.move(world.ready_in())
        visits += len(leases)
        world.report(*[outcome(lease, seconds=0.0, status=200) for lease in leases])
        most = max(most, len(world.inspect().tables.hosts))
    assert 400 == visits
    assert most <= 150
    world.frontier.close()


def test_hosts_of_several_groups_stay_in_memory(crowds):
    both = {"name": "both", "hosts": ["s28.shop.com", "s29.shop.com"]}
    world = World(group={"domain": {}, "group": [both]})
    gone_cold(world, *shops(30))
    hosts = world.inspect().tables.hosts
    names = {hosts.name(row) for row in range(hosts.count) if hosts.there[row]}
    assert {"s28.shop.com", "s29.shop.com"} <= names
    assert len(names) < 10
    world.frontier.close()


def driven(world: World, most: int = 50, calls: int = 2_000, **answers: str) -> Counter[str]:
    """Leases and answers until nothing is left or `calls` were made. Returns how many pages each host gave."""
    found: Counter[str] = Counter()
    for _ in range(calls):
        leases = world.lease(most, errands=bool(answers))
        for lease in leases:
            if lease.kind == "address":
                world.report(lease.located(answers["address"]))
            else:
                found[lease.host] += 1
                world.report(outcome(lease, seconds=0.0, status=200))
        if not leases:
            if (wait := world.ready_in()) is None:
                break
            world.clock.move(max(wait, 0.001))
        machine = world.inspect()
        assert [] == machine.core.front.problems(world.clock.at)
    return found


def test_hosts_that_return_with_another_address_leave_room_for_the_next_ones(crowds):
    world = at_one_address(100)
    assert at_groups(world) > 50
    driven(world, address="192.0.2.2")
    assert {"done": 100} == world.counts()
    world.frontier.close()


def test_urls_deleted_at_hosts_of_a_line_do_not_stop_the_others_of_the_group(crowds):
    world = World(group={"domain": {"capacity": 1, "gap": 1.0}})
    best = [f"http://a{number}.shop.com/" for number in range(20)]
    world.discover(*[Link(url, priority=0.9) for url in best], *shops(30))
    world.frontier.checkpoint()
    world.frontier.delete_urls(best)
    driven(world)
    assert {"done": 30} == world.counts()
    world.frontier.close()


def test_closed_hosts_of_a_line_do_not_delay_the_open_ones(crowds):
    hours = (LocalHours.of("c*.shop.com", "10:00-11:00 UTC"),)
    world = World(group={"domain": {"capacity": 1, "gap": 1.0}}, hours=hours)
    world.discover(*[f"http://{kind}{number}.shop.com/" for kind in "co" for number in range(50)])
    world.frontier.checkpoint()
    begun, found = world.clock.at, Counter()
    while found["o"] < 50:
        found.update(host[0] for host in driven(world, calls=1).elements())
        assert world.clock.at - begun < 600_000_000, found
    world.frontier.close()


def test_a_ready_host_of_another_crawl_does_not_delay_hosts_on_disk(crowds):
    set_limits(crowds, FRONT_RETURNS=16)
    world = World(group={"domain": {"capacity": 1, "gap": 3_600.0}})
    world.discover(*[Link(f"http://h{host}.d{domain}.com/", crawl="a") for host in range(10) for domain in range(30)])
    world.discover(*[Link(f"http://x.free{domain}.com/", crawl="a") for domain in range(60)])
    world.frontier.checkpoint()
    world.reopen()
    world.discover(Link("http://y.other.com/", crawl="b"))
    found: list[str] = []
    for _ in range(60):
        leases = world.lease(20, crawl="a")
        found += [lease.host for lease in leases if "free" in lease.host]
        world.report(*[outcome(lease, seconds=0.0, status=200) for lease in leases])
    assert 60 == len(found)
    world.frontier.close()


@pytest.mark.parametrize("more", [1, 3])
def test_no_host_in_the_line_of_a_group_waits_more_than_eight_turns_for_each_host_before_it(monkeypatch, more):
    """New hosts of a better class arrive in the group with each turn, for ever."""
    hosts_go_cold(monkeypatch, with_urls=True)
    world = World(group={"domain": {"capacity": 1, "gap": 1.0}})
    world.discover(*[Link(f"http://old{number}.shop.com/", priority=0.0) for number in range(20)])
    world.frontier.checkpoint()
    assert at_groups(world) >= 18
    turns, old = 0, 0
    while old < 20:
        world.discover(*[Link(f"http://new{turns}-{number}.shop.com/", priority=1.0) for number in range(more)])
        leases = world.lease(5)
        assert 1 == len(leases), "a turn is never left"
        turns += 1
        old += "old" in leases[0].host
        world.report(outcome(leases[0], seconds=0.0, status=200))
        world.clock.move(1.0)
        if turns % 10 == 0:
            world.frontier.checkpoint()
        machine = world.inspect()
        assert turns <= 8 * (20 + machine.turns.shared.waiting + len(machine.tables.cold.front)), f"{old} of 20"
        assert turns <= 8 * 20 * 3, f"{old} of 20 after {turns} turns"
    world.frontier.close()


def leaving(key: Key, hashes: list[int], group: int = NO_GROUP) -> LeavingHosts:
    dtypes = (np.uint32, np.uint8, np.bool_, np.bool_, np.uint32)
    columns = [np.full(len(hashes), value, dtype) for value, dtype in zip((*key, group), dtypes, strict=True)]
    return LeavingHosts(*columns, np.array(hashes, np.uint64))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 40)), max_size=40), st.integers(0, 99))
def test_lines_return_each_host_once_and_those_that_wait_before_later_ones(added, seed):
    draw = np.random.default_rng(seed)
    front, waiting = FrontTier(), {}
    for crawl, klass, host in added:
        key = Key(crawl, klass, host % 2 == 0, host % 3 == 0)
        front.add(leaving(key, [host]))
        # The model: by line, lists of hosts; the last list takes hosts until one of it returns.
        batches = waiting.setdefault(key, [])
        if not batches or batches[-1][0]:
            batches.append([False, []])
        batches[-1][1].append(host)
        if host % 5 == 0 and len(some := front.first(key, int(draw.integers(1, 4)))):
            batches[0][0] = True
            batches[0][1].sort()
            assert batches[0][1][: len(some)] == some.tolist()
            front.remove(key, len(some))
            del batches[0][1][: len(some)]
            if not batches[0][1]:
                del batches[0]
    assert len(front) == sum(len(batch) for batches in waiting.values() for _, batch in batches)
    for key, batches in waiting.items():
        found = []
        while len(some := front.first(key, 3)):
            found += some.tolist()
            front.remove(key, len(some))
        assert [host for _, batch in batches for host in sorted(batch)] == found
    assert (0, []) == (len(front), list(front.keys))


def test_places_of_hosts_that_returned_are_removed(world):
    gone_cold(world, *URLS)
    for _ in range(30):
        world.discover()
        world.frontier.host("h1.com")
        world.frontier.checkpoint()
    front = world.inspect().tables.cold.front
    assert len(front) <= 2 * 12 + 2
    assert [] == recount(world.frontier)
    assert sorted(URLS) == sorted(drained(world))


def test_a_damaged_record_of_a_host_with_urls_is_named(world):
    gone_cold(world, *URLS)
    (name,) = [name for name in world.disk.names() if name.startswith("cold-") and name.endswith(".run")]
    world.kill()
    file = world.disk.open(name)
    file.write_at(file.size() // 2, b"\xff" * 16)
    with pytest.raises(DamagedStoreError, match=name):
        world.lease()
