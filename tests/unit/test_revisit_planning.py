"""Revisits by a rule: the next visits of pages, the rate of all fetches, and what a restart keeps."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from model.world import World, recount
from outrider.clock import Instant, instant
from outrider.errors import SettingsError
from outrider.frontier.policy.revisit_plan import NAMES, Visited
from outrider.journey import Lease, Link
from outrider.limits import REVISIT_MOVES_PER_CALL
from outrider.sim.disk import CrashDisk, FaultyFiles

A = "http://a.com/"
HOUR, DAY = 3_600.0, 86_400.0


def pages(count: int) -> list[str]:
    return [f"http://h{number}.com/" for number in range(count)]


def visit(world: World, lease: Lease, content: str = "same", status: int = 200) -> None:
    world.report(lease.done(seconds=0.0, status=status, digest=content.encode()))


def crawl(
    world: World, seconds: float, step: float, content: str = "same", want: int = 10
) -> list[tuple[Instant, str]]:
    """Leases and reports for a time, in steps. Returns the instants of the visits with their URLs."""
    found = []
    for _ in range(round(seconds / step)):
        for lease in world.lease(want):
            found.append((world.clock(), lease.url))
            visit(world, lease, content)
        world.clock.move(step)
    return found


def per_minute(visits: list[tuple[Instant, str]]) -> int:
    """The most visits of any minute."""
    times = np.array([at for at, _ in visits])
    return int(max(np.searchsorted(times, times + instant(60)) - np.arange(len(times))))


def waits_of(world: World, contents: list[str]) -> list[float]:
    """The hours between the visits of one page, with these contents one after the other."""
    found, last = [], None
    for content in contents:
        while not (leases := world.lease(1)):
            world.clock.move(world.ready_in())
        found += [] if last is None else [(world.clock() - last) / instant(HOUR)]
        last = world.clock()
        visit(world, leases[0], content)
    while not world.lease(1):
        world.clock.move(world.ready_in())
    return [*found, (world.clock() - last) / instant(HOUR)]


def test_without_a_rule_a_fetched_page_is_done():
    world = World(delay=0)
    world.discover(A)
    visit(world, world.one())
    assert "done" == world.frontier.status(A).state


def test_a_planned_page_waits_and_is_fetched_again_at_its_time():
    world = World(delay=0, revisit="adaptive")
    world.discover(A)
    visit(world, world.one())
    status = world.frontier.status(A)
    assert ("waiting", world.clock() + instant(DAY)) == (status.state, status.due)
    world.clock.move(DAY - 1)
    assert not world.lease()
    world.clock.move(1)
    assert [A] == world.urls()


def test_adaptive_visits_after_6_and_one_and_a_half_hours_and_then_hourly():
    world = World(delay=0, revisit="adaptive")
    world.discover(A)
    waits = waits_of(world, ["0", "1", "2", "3", "4", "5"])
    assert [24, 6, 1.5, 1, 1, 1] == [round(hours, 2) for hours in waits]


def test_halving_doubles_the_wait_of_an_unchanged_page():
    world = World(delay=0, revisit="halving")
    world.discover(A)
    assert [24 * 7, 24 * 14, 24 * 28, 24 * 30] == [round(hours) for hours in waits_of(world, ["same"] * 4)]


def test_nutch_waits_for_a_month_first():
    world = World(delay=0, revisit="nutch")
    world.discover(A)
    assert [24 * 30] == [round(hours) for hours in waits_of(world, ["same"])]


def test_uniform_visits_all_pages_alike_within_the_rate():
    world = World(delay=0, revisit="uniform", rate=1.0)
    world.discover(*pages(20))
    visits = crawl(world, 300, 1.0)
    counts = Counter(url for _, url in visits)
    assert 290 <= len(visits) <= 303
    assert max(counts.values()) - min(counts.values()) <= 3
    assert per_minute(visits) <= 60


@pytest.mark.parametrize("rule", NAMES)
def test_no_minute_has_more_fetches_than_the_rate_also_after_an_idle_night_and_a_restart(rule):
    world = World(disk=FaultyFiles(), delay=0, revisit=rule, rate=2.0)
    world.discover(*pages(200))
    visits = crawl(world, 70, 1.0)
    world.clock.move(8 * HOUR)
    visits += crawl(world, 70, 1.0)
    world.kill()
    visits += crawl(world, 70, 1.0)
    world.reopen()
    visits += crawl(world, 70, 1.0)
    assert per_minute(visits) <= 120
    assert len(visits) > (500 if rule in ("uniform", "optimal", "age") else 190)
    assert [] == recount(world.frontier)


def test_a_stretch_keeps_a_rule_within_the_rate_that_asks_for_more():
    world = World(disk=FaultyFiles(), delay=0, revisit=lambda seen: np.full(len(seen.waited), 10.0), rate=1.0)
    world.discover(*pages(50))
    visits = crawl(world, 1_000, 1.0)
    late = Counter(url for at, url in visits if at > world.clock() - instant(500))
    assert 0.95 * 500 <= sum(late.values()) <= 505, "the rate is used"
    assert max(late.values()) - min(late.values()) <= 4, "by all pages alike"


def test_what_was_learned_stays_over_a_kill_and_a_change_of_the_rule():
    world = World(delay=0, revisit="uniform", rate=1.0)
    world.discover(*pages(5))
    crawl(world, 60, 0.5)
    before = {one["url"]: (one["change_rate"], one["change_confidence"]) for one in world.frontier.records()}
    assert all(rate and rate < 1 / DAY for rate, _ in before.values()), "they never changed"
    world.kill(revisit="optimal")
    assert before == {one["url"]: (one["change_rate"], one["change_confidence"]) for one in world.frontier.records()}
    assert crawl(world, 60, 0.5)


def test_a_page_that_changes_is_visited_more_often_than_one_that_does_not():
    world = World(disk=FaultyFiles(), delay=0, revisit="optimal", rate=0.02)
    world.discover(*pages(10))
    counts: Counter[str] = Counter()
    for turn in range(1_000):
        for lease in world.lease():
            counts[lease.url] += turn >= 500
            hours = (world.clock() // instant(2 * HOUR)) if lease.url == pages(1)[0] else 0
            visit(world, lease, f"{hours}")
        world.clock.move(50.0)
    others = [counts[url] for url in pages(10)[1:]]
    assert counts[pages(1)[0]] > 2 * max(others)


def test_an_operator_who_requeues_a_planned_page_leaves_no_second_visit():
    world = World(delay=0, revisit="optimal", rate=1.0)
    world.discover(*pages(3))
    crawl(world, 30, 0.5)
    for turn in range(20):
        world.frontier.requeue(pages(1)[0], at=world.clock() + instant(turn % 3))
        seen = [url for _, url in crawl(world, 4, 0.5)]
        assert seen
    assert [] == recount(world.frontier)
    assert 3 == world.inspect().tables.urls.accepted()


def test_redirects_and_bad_answers_are_no_evidence_about_changes():
    world = World(delay=0, revisit="uniform", rate=1.0)
    world.discover(A)
    visit(world, world.one())
    world.clock.move(30.0)
    lease = world.one()
    world.report(lease.done(status=302, location="http://b.com/"))
    (record,) = [one for one in world.frontier.records() if one["url"] == A]
    assert record["change_rate"] is None


def test_a_function_over_columns_is_a_rule():
    seen: list[Visited] = []

    def rule(visits: Visited) -> np.ndarray:
        seen.append(visits)
        return np.where(visits.changed, 100.0, 200.0)

    world = World(delay=0, revisit=rule)
    world.discover(A)
    visit(world, world.one(), "0")
    assert world.clock() + instant(200) == world.frontier.status(A).due
    world.clock.move(200.0)
    visit(world, world.one(), "1")
    assert world.clock() + instant(100) == world.frontier.status(A).due
    assert [True, False] == [bool(one.first[0]) for one in seen]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"revisit": "daily"}, "'daily'"),
        ({"revisit": "uniform"}, "set `rate`"),
        ({"revisit": "optimal"}, "set `rate`"),
        ({"revisit": "adaptive", "rate": 0}, "rate 0"),
        ({"revisit": "adaptive", "rate": float("nan")}, "rate nan"),
        ({"rate": -1.0}, "rate -1.0"),
        ({"rate": True}, "rate True"),
        ({"revisit": "optimal", "rate": 1.0, "discovery_share": 1.5}, "1.5"),
        ({"discovery_share": 0.5}, "set both"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, words):
    with pytest.raises(SettingsError, match=words):
        World(delay=0, **settings)


@pytest.mark.parametrize("given", [[1.0, 2.0], "x", [-1.0], [float("nan")]])
def test_a_function_with_a_wrong_result_is_refused_by_name(given):
    world = World(delay=0, revisit=lambda seen: given)
    world.discover(A)
    lease = world.one()
    with pytest.raises(SettingsError, match="revisit function"):
        visit(world, lease)


def test_a_discovery_share_divides_the_fetches():
    world = World(delay=0, revisit="optimal", rate=1.0, discovery_share=0.25)
    world.discover(*pages(10))
    crawl(world, 30, 1.0)
    world.discover(*[f"http://n{number}.com/" for number in range(100)])
    visits = [url for _, url in crawl(world, 200, 1.0)]
    new = sum("//n" in url and url not in visits[:place] for place, url in enumerate(visits))
    assert 0.2 <= new / len(visits) <= 0.3


def records(world: World) -> list[dict[str, object]]:
    """The records of all URLs. A planned one is queued without a new record."""
    return [one | {"state": None} for one in world.frontier.records()]


@pytest.mark.parametrize("rule", ["adaptive", "optimal", "uniform"])
def test_killed_at_any_moment_it_keeps_the_rate_the_counts_and_what_was_learned(rule):
    killed(rule, 12)


@pytest.mark.long
@pytest.mark.parametrize("rule", ["adaptive", "optimal", "uniform"])
def test_killed_a_hundred_times_it_keeps_the_rate_the_counts_and_what_was_learned(rule):
    killed(rule, 100)


def killed(rule: str, lives: int) -> None:
    rng = random.Random(rule)
    world = World(disk=CrashDisk(), delay=0, revisit=rule, rate=1.0)
    visits: list[tuple[Instant, str]] = []
    done: dict[str, Instant] = {}
    for life in range(lives):
        for step in range(rng.randrange(1, 12)):
            if rng.random() < 0.3:
                world.discover(*[f"http://h{rng.randrange(60)}.com/" for _ in range(4)])
            for lease in world.lease(rng.choice([1, 5])):
                visits.append((world.clock(), lease.url))
                if rng.random() < 0.9:
                    if rule == "adaptive" and lease.url in done:
                        assert world.clock() - done[lease.url] >= instant(HOUR - 1), "twice for one look"
                    done[lease.url] = world.clock()
                    visit(world, lease, f"{rng.randrange(2)}")
                else:
                    done.pop(lease.url, None)
            if done and rng.random() < 0.2:
                url = rng.choice(sorted(done))
                world.frontier.requeue(url, at=world.clock() + instant(rng.choice([0, 5, 2_000])))
                done.pop(url)
            if done and rng.random() < 0.1:
                world.frontier.reprioritise(rng.choice(sorted(done)), rng.random())
            world.clock.move(rng.choice([0.0, 0.3, 1.0, 20.0, 3_000.0 if step == 0 else 2.0]))
        assert [] == recount(world.frontier), f"life {life}"
        before = records(world)
        assert world.inspect().tables.urls.accepted() == len(before)
        world.kill(revisit=rng.choice([rule, rule, "age"]) if rule != "adaptive" else rule)
        after = records(world)
        lost = {one["url"] for one in before} - {one["url"] for one in after}
        assert not lost
        assert [one["change_rate"] for one in before] == [one["change_rate"] for one in after]
        assert [] == recount(world.frontier), f"life {life}, opened"
    assert per_minute(visits) <= 60
    assert len(visits) > lives


def test_a_replayed_log_has_the_records_of_the_process():
    world = World(disk=CrashDisk(), delay=0, revisit="optimal", rate=1.0)
    world.discover(*pages(30))
    crawl(world, 60, 1.0)
    before = records(world)
    leased = {lease.url for lease in world.lease(2)}
    world.kill()
    after = records(world)
    differing = {one["url"] for one, other in zip(before, after, strict=True) if one != other}
    assert differing <= leased, "only a lost lease changes a record"


def test_a_host_that_was_paused_for_long_is_visited_like_the_others_afterwards():
    world = World(delay=0, revisit="optimal", rate=1.0)
    world.discover(*[f"http://h{host}.com/{page}" for host in range(10) for page in range(3)])
    crawl(world, 60, 1.0)
    world.frontier.pause("h3.com")
    assert not any("//h3.com/" in url for _, url in crawl(world, 300, 1.0)[5:])
    world.frontier.resume("h3.com")
    counts = Counter(url.split("/")[2] for _, url in crawl(world, 300, 1.0))
    assert counts["h3.com"] >= 0.5 * counts.total() / 10, counts


def test_one_host_alone_needs_few_looks_while_it_rests():
    world = World(delay=5, revisit="optimal", rate=10.0)
    world.discover(*[f"{A}{page}" for page in range(12)])
    visits = crawl(world, 300, 0.05)
    looks = world.frontier.statistics()["revisits"]["looks"]
    assert 58 <= len(visits) <= 61
    assert looks <= 80 * len(visits)  # once for each visit, not with each of the 6,000 calls


def test_the_level_follows_a_crawl_that_grows_from_one_page():
    world = World(delay=0, revisit="optimal", rate=1.0)
    world.discover(A)
    crawl(world, 5, 1.0)
    begun = world.frontier.statistics()["revisits"]["price"]
    world.discover(*pages(100))
    crawl(world, 150, 1.0)
    # At a hundred times the interval, a visit has over a thousand times the value. The price jumps to a part of it.
    assert world.frontier.statistics()["revisits"]["price"] > 150 * begun


def test_a_requeued_page_is_fetched_at_once_although_its_look_is_over():
    world = World(delay=0, revisit="optimal", rate=0.1)
    world.discover(*pages(50))
    crawl(world, 2_000, 1.0)
    world.clock.move(10)
    page = next(url for url in pages(50) if world.frontier.explain(url).state == "waiting")
    assert ["waiting"] == world.frontier.requeue(page)
    assert "queued" == world.frontier.explain(page).state
    assert page in [url for _, url in crawl(world, 60, 1.0)]


@pytest.mark.parametrize("rule", ["adaptive", "uniform"])
def test_pages_that_were_fetched_without_a_rule_are_planned_when_there_is_one(rule):
    world = World(disk=FaultyFiles(), delay=0)
    world.discover(*pages(30), "http://moved.com/", "http://gone.com/")
    for lease in world.lease():
        if "moved" in lease.url:
            world.report(lease.done(status=301, location=pages(1)[0]))
        else:
            world.report(lease.gone(status=404) if "gone" in lease.url else lease.done(seconds=0.0, status=200))
    assert {"done": 31, "gone": 1} == world.counts()
    world.clock.move(40 * DAY)
    world.reopen(revisit=rule, rate=1.0)
    assert [] == recount(world.frontier)
    visits = Counter(url for _, url in crawl(world, 200, 1.0))
    assert set(pages(30)) == set(visits)
    before = records(world)
    world.kill()
    assert before == records(world)
    assert [] == recount(world.frontier)


def test_pages_of_crawls_by_unique_keys_are_not_planned():
    world = World(delay=0, revisit="adaptive")
    world.frontier.make_crawl("mine", unique="caller")
    world.discover(Link(A, crawl="mine", unique_key=b"1"))
    visit(world, world.one())
    world.reopen()
    assert {"done": 1} == world.counts()


def test_a_host_with_more_due_pages_than_its_gap_allows_is_visited_as_often_as_it_allows():
    world = World(disk=FaultyFiles(), delay=10, revisit="optimal", rate=1.0)
    world.discover(*[f"http://large.com/{number}" for number in range(40)], *pages(40))
    visits = []
    for turn in range(600):
        for lease in world.lease(1):
            visits += [lease.url] if turn >= 300 else []
            visit(world, lease, f"{world.clock() // instant(100)}")
        world.clock.move(1.0)
    assert len(visits) > 270, "the rate is used"
    assert sum("large" in url for url in visits) > 24, "a gap of 10 s allows 30"
    assert [] == recount(world.frontier)


def test_a_rate_is_drawn_again_after_each_horizon_and_not_before():
    world = World(delay=0, revisit="optimal", rate=1.0)
    world.discover(*pages(20))
    crawl(world, 60, 1.0)
    found = []
    for seconds in (0.0, 10.0, 150.0, 150.0):  # the horizon is five times the 20 seconds of a visit of each page
        world.clock.move(seconds)
        found.append(tuple(world.frontier.explain(url).revisit.next_fetch_at for url in pages(20)))
    same = [sum(one == other for one, other in zip(found[0], later, strict=True)) for later in found]
    assert [20] == same[:1]
    assert same[1] > 10
    assert max(same[2:]) <= 3


def fetched_by_a_caller_who_waits(world: World, seconds: float, changes: float = 20.0) -> int:
    """The fetches of a caller who leases again as soon as the frontier says so. changes: the seconds between those of a
    page."""
    count, end = 0, world.clock() + instant(seconds)
    while world.clock() < end:
        leases = world.lease(100)
        count += len(leases)
        for lease in leases:
            visit(world, lease, f"{int(world.clock() / instant(changes) + hash(lease.url) % 7 / 7)}")
        world.clock.move(0.002 if leases else world.ready_in())
    return count


@pytest.mark.parametrize("rule", ["optimal", "uniform"])
@pytest.mark.parametrize(("hosts", "count", "rate", "seconds"), [(1, 60, 4.0, 120.0), (40, 4_000, 60.0, 8.0)])
def test_a_caller_who_asks_when_the_frontier_says_uses_the_whole_rate(rule, hosts, count, rate, seconds):
    world = World(disk=FaultyFiles(), delay=0, delay_factor=0, revisit=rule, rate=rate)
    urls = [f"http://h{number % hosts}.com/{number}" for number in range(count)]
    world.frontier.restore(
        {"url": url, "state": "waiting", "reason": "planned", "due": world.clock(), "depth": 1, "status": 200,
         "fetched_at": world.clock(), "digest": "00" * 8}
        for url in urls
    )  # fmt: skip
    # A frontier that opens without fetches before has saved those of a second.
    assert rate * (seconds + 1) == pytest.approx(fetched_by_a_caller_who_waits(world, seconds), rel=0.02)


@pytest.mark.parametrize("rule", ["optimal", "uniform"])
def test_a_slow_caller_gets_several_pages_of_a_host_without_a_gap(rule):
    """Two calls a second at a rate of eight: a machine that is busy with other work."""
    world = World(disk=FaultyFiles(), delay=0, delay_factor=0, revisit=rule, rate=8.0)
    world.discover(*[f"http://a.com/{number}" for number in range(60)])
    count = 0
    for _ in range(80):
        leases = world.frontier.lease(100, per_queue=64)
        world.clock.move(0.5)
        count += len(leases)
        for lease in leases:
            visit(world, lease)
    assert 8.0 * 40 == pytest.approx(count, rel=0.02)


def test_a_look_moves_few_buckets_and_the_next_one_continues_at_once(monkeypatch):
    """A look that ends because buckets are being moved has found no page, and there is one."""
    world = World(disk=FaultyFiles(), delay=0, revisit="optimal", rate=10.0)
    due = world.clock() + instant(5 * DAY)
    records = [
        {"url": url, "state": "waiting", "reason": "planned", "due": due + 10 * number, "depth": 1, "status": 200,
         "fetched_at": world.clock(), "digest": "00" * 8}
        for number, url in enumerate(pages(4_000))
    ]  # fmt: skip
    world.frontier.restore(records)
    planned, takes = world.inspect().tables.urls, []
    take = planned.take_planned
    monkeypatch.setattr(planned, "take_planned", lambda until, most: (takes.append(0), take(until, most))[1])
    waits = []
    while not world.lease(1):
        assert len(takes) <= REVISIT_MOVES_PER_CALL
        takes.clear()
        waits.append(world.ready_in())
        assert len(waits) < 100
    assert len(waits) > 1
    assert {0.0} == set(waits)


def test_a_page_without_visits_has_the_change_rate_that_others_of_its_host_show():
    world = World(disk=FaultyFiles(), delay=0, revisit="optimal", rate=4.0)
    world.discover(*[f"http://a.com/{number}" for number in range(20)])
    fetched_by_a_caller_who_waits(world, 60.0)
    world.discover("http://a.com/new")
    while "waiting" != world.state("http://a.com/new"):
        fetched_by_a_caller_who_waits(world, 1.0)
    assert 1 / 60 < world.frontier.explain("http://a.com/new").revisit.change_rate < 1 / 6
