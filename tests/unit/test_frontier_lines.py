"""The errands in the line of one host: their order, and the cost of finding the next one of thousands."""

from __future__ import annotations

import random
from typing import Any

import pytest

from model.world import World, recount
from outrider import Link
from outrider.frontier.schedule.errand_queue import ErrandQueue
from outrider.frontier.schedule.host_schedule import HostSchedule
from outrider.frontier.state.authorities import Authority
from outrider.frontier.state.errand import CallersErrand, Errand

MANY = 400


def naive(line: list[Errand], now: int, allowed: Any) -> tuple[Errand | None, int, int | None]:
    """Returns the errand that is leased next, the best class that may be leased now, and when another may be."""
    times = {one: allowed(one) for one in line}
    ready = [one for one in line if times[one] is not None and max(times[one], one.next_at) <= now]
    best = max(ready, key=lambda one: (one.goes_first, one.klass), default=None)  # the first of its equals
    later = [max(at, one.next_at) for one, at in times.items() if at is not None and one not in ready]
    return best, max((one.klass for one in ready), default=-1), min(later, default=None)


@pytest.mark.parametrize("seed", range(30))
def test_any_history_of_a_line_yields_the_errands_of_a_plain_list(seed):
    rng = random.Random(seed)
    line, listed, now = ErrandQueue(), [], 0
    rules: dict[Errand, int | None] = {}
    for number in range(400):
        now += rng.choice([0, 0, 1, 5])
        act = rng.random()
        if act < 0.4 or not listed:
            name = f"http://h{number}.com"
            one: Errand = Authority(0, number, name) if rng.random() < 0.7 else CallersErrand(0, number, 1, 0, name)
            one.klass, one.next_at = rng.randrange(4), rng.choice([0, 0, 0, now + rng.randrange(1, 9)])
            rules[one] = rng.choice([0, 0, 0, None, now + rng.randrange(9)])
            listed.append(one)
            line.add(one)
        elif act < 0.6:
            one = rng.choice(listed)
            listed.remove(one)
            line.remove(one)
        elif act < 0.8:
            line.set_class(rng.choice(listed), rng.randrange(4))
        else:
            rules[rng.choice(listed)] = rng.choice([0, None, now + 3])
        best, klass, at = naive(listed, now, rules.get)
        assert best is line.first(now, rules.get)
        found_class, found_at = line.look(now, rules.get)
        assert klass == found_class
        if klass < 0:  # otherwise the host is checked again when the errand is leased
            assert at == found_at
        assert (len(listed), set(listed)) == (len(line), set(line))


class Looks:
    """Counts how often a frontier checks whether operators allow an errand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, allowed = 0, HostSchedule.may_ask_at

        def counted(*given: Any) -> Any:
            self.count += 1
            return allowed(*given)

        monkeypatch.setattr(HostSchedule, "may_ask_at", counted)

    def since(self) -> int:
        count, self.count = self.count, 0
        return count


def lined_up(world: World, count: int, *, at: str) -> None:
    """Makes the robots.txt files of `count` hosts redirect to one host."""
    world.discover(*[f"http://h{number}.com/" for number in range(count)])
    while batch := world.lease(count, errands=True):
        errands = [lease for lease in batch if lease.url.startswith("http://h")]
        world.frontier.release([lease.token for lease in batch if lease not in errands])
        if not errands:
            break
        world.report(*[one.robots(301, location=f"http://{at}/{one.host}.txt") for one in errands])


def test_each_errand_of_thousands_at_one_host_costs_a_few_checks(monkeypatch):
    world = World(robots="errands", delay=1)
    lined_up(world, MANY, at="hub.org")
    looks = Looks(monkeypatch)
    for _ in range(MANY):
        world.clock.move(1)
        hops = [lease for lease in world.lease(errands=True) if lease.host == "hub.org"]
        assert 1 == len(hops)
        world.report(hops[0].robots(200, b"User-agent: *\nDisallow: /x\n"))
    assert looks.since() < 20 * MANY, "with a look at the whole line for each it was 400 times as much"
    assert (0, []) == (world.inspect().turns.next(world.clock()) is None, recount(world.frontier))


def test_the_next_ready_instant_is_known_without_a_check_of_errands_that_no_caller_accepts(monkeypatch):
    world = World(robots="errands", delay=1)
    world.discover(*[f"http://h{number}.com/" for number in range(MANY)])
    assert [] == world.urls(MANY)
    assert 0.0 == world.ready_in()
    looks = Looks(monkeypatch)
    assert (0.0, 0) == (world.ready_in(), looks.since())
    world.frontier.block_until(world.clock() + 5_000_000)
    assert 5.0 == world.ready_in()
    world.frontier.pause()
    assert world.ready_in() is None
    world.frontier.resume()
    world.clock.move(5)
    assert (0.0, MANY) == (world.ready_in(), len(world.lease(MANY, errands=True)))


def test_errands_at_a_blocked_host_do_not_cost_a_check_of_the_whole_line_each(monkeypatch):
    world = World(robots="errands", delay=1)
    world.discover("http://hub.org/")
    world.frontier.block_until(world.clock() + 50_000_000, "hub.org")
    looks = Looks(monkeypatch)
    lined_up(world, MANY, at="hub.org")
    assert looks.since() < 80 * MANY, "the first 64 are looked at"
    assert 50.0 == world.ready_in()
    world.clock.move(50)
    assert ["hub.org"] == [lease.host for lease in world.lease(errands=True)]
    assert [] == recount(world.frontier)


def test_errands_of_a_paused_crawl_before_a_page_of_another_crawl_do_not_search_queues_for_their_urls(monkeypatch):
    """Each visit of the host checks all of them, and a check of 4,000 once needed 0.4 s."""
    world = World(robots="errands", delay=1)
    lined_up(world, MANY, at="hub.org")
    world.frontier.pause(crawl="default")
    world.discover(Link("http://hub.org/", crawl="other"), Link("http://hub.org/2", crawl="other"))
    asked, waits = [], HostSchedule._waits

    def counted(turns: HostSchedule, errand: Errand, queues: Any) -> Any:
        asked.append(errand)
        return waits(turns, errand, queues)

    monkeypatch.setattr(HostSchedule, "_waits", counted)
    looks, found = Looks(monkeypatch), []
    for _ in range(5):
        world.clock.move(100)
        leases = world.lease(MANY, errands=True)
        found += leases.urls
        world.report(*[one.robots(404) if one.url.endswith("robots.txt") else one.done() for one in leases])
    assert ["http://hub.org/robots.txt", "http://hub.org/", "http://hub.org/2"] == found
    assert looks.since() > MANY
    assert {"http://hub.org"} == {errand.name for errand in asked}
    assert [] == recount(world.frontier)
