"""How long a robots.txt is valid: a day, less if its answer says so, and longer only after 30 days of failures."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.world import World, recount
from outrider.clock import instant
from outrider.frontier.state.authorities import Authority, RobotsState
from outrider.frontier.state.robots_answers import after_answer
from outrider.journey import RobotsAnswer

DAY = 86_400.0
RULES = b"User-agent: *\nDisallow: /closed\n"
OPEN, CLOSED = "http://a.test/open", "http://a.test/closed"


def world_of(**how: object) -> World:
    world = World(robots="errands", delay=0, delay_factor=0.0, **how)
    world.discover(*[f"{OPEN}{page}" for page in range(100)])
    return world


def asked(world: World) -> list[str]:
    """Returns the kinds of all possible leases, and releases them unfetched."""
    leases = list(world.lease(1, errands=True))
    world.frontier.release([lease.token for lease in leases])
    return [str(lease.kind) for lease in leases]


def answer(world: World, status: int | None, body: bytes = b"", **how: object) -> None:
    (lease,) = world.lease(1, errands=True)
    assert "robots" == lease.kind
    world.report(lease.robots(status, body, **how))


@pytest.mark.parametrize(
    ("fresh", "age"), [(None, DAY), (3_600.0, 3_600.0), (0.0, 300.0), (10 * DAY, DAY), (86_399.5, 86_399.5)]
)
@pytest.mark.parametrize("status", [200, 404])
def test_an_answer_may_shorten_the_day_of_validity_but_never_lengthen_it(status, fresh, age):
    world = world_of()
    answer(world, status, RULES, fresh_seconds=fresh)
    world.clock.move(age - 0.01)
    assert ["page"] == asked(world)
    world.kill()
    assert ["page"] == asked(world)
    world.clock.move(0.02)
    assert ["robots"] == asked(world)


def test_a_good_copy_is_valid_until_it_is_a_day_old_while_its_file_is_unreachable():
    world = world_of()
    answer(world, 200, RULES, fresh_seconds=600.0)
    world.clock.move(600.0)
    for wait in (5.0, 30.0, 300.0):
        answer(world, 500)
        assert ["page"] == asked(world)
        world.clock.move(wait)
    answer(world, None)
    assert ["page"] == asked(world)
    assert "parked" == closed_state(world)
    world.discover(*[f"{OPEN}/later{page}" for page in range(9)])
    world.clock.move(DAY - 600.0 - 335.0 - 1.0)
    assert ["page"] == asked(world)
    world.clock.move(1.0)
    assert ["robots"] == asked(world)
    answer(world, 500)
    assert [] == asked(world)


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize(("status", "body"), [(404, b""), (200, RULES)])
def test_a_copy_from_the_caller_is_valid_for_a_day_once_its_file_is_unreachable(status, body, killed):
    world = World(robots="caller", delay=0, delay_factor=0.0)
    world.frontier.set_robots("http://a.test", status, body)
    world.discover(f"{OPEN}0", f"{OPEN}1", f"{OPEN}2")
    world.frontier.set_robots("http://a.test", 503)
    world.clock.move(DAY - 1.0)
    assert ["page"] == asked(world)
    world.clock.move(1.0)
    assert [] == asked(world)
    assert "parked" == world.state(f"{OPEN}0")
    assert "the file cannot be read" in world.frontier.explain(f"{OPEN}0").reason_text
    if killed:
        world.kill()
    assert [] == asked(world)
    world.frontier.set_robots("http://a.test", status, body)
    assert 3 == len(world.lease(3, per_queue=3))


def test_without_failures_rules_from_the_caller_are_valid_until_they_are_replaced():
    world = World(robots="caller", delay=0, delay_factor=0.0)
    world.frontier.set_robots("http://a.test", 200, RULES)
    world.discover(f"{OPEN}0")
    world.clock.move(400 * DAY)
    assert ["page"] == asked(world)


def test_a_copy_from_the_caller_is_valid_for_ever_where_the_settings_open_unreachable_hosts():
    world = World(robots="caller", robots_unreachable="open", delay=0, delay_factor=0.0)
    world.frontier.set_robots("http://a.test", 200, RULES)
    world.frontier.set_robots("http://a.test", 503)
    world.discover(f"{OPEN}0", CLOSED)
    world.clock.move(400 * DAY)
    assert ["page"] == asked(world)
    assert "parked" == closed_state(world)


def closed_state(world: World) -> str:
    world.discover(CLOSED)
    while (leases := world.lease(1)) and leases[0].url != CLOSED:
        world.report(leases[0].done(seconds=0.0))
    return world.state(CLOSED)


def fail_for(world: World, days: float) -> None:
    """Lets every request for the robots.txt fail for `days` days."""
    end = world.clock() + instant(days * DAY)
    while world.clock() < end:
        for lease in world.lease(1, errands=True):
            assert "robots" == lease.kind
            world.report(lease.robots(500))
        world.clock.move(min(max(world.ready_in() or DAY, 0.001), (end - world.clock()) / 1_000_000 or 0.001))


@pytest.mark.parametrize("killed", [False, True])
def test_after_thirty_unreachable_days_the_last_good_copy_is_valid_again(killed):
    world = world_of()
    answer(world, 200, RULES)
    world.clock.move(DAY)
    fail_for(world, 29.9)
    if killed:
        world.kill()
    world.discover(CLOSED)
    assert "page" not in asked(world)
    world.clock.move(0.11 * DAY)
    while "page" not in asked(world):
        answer(world, 500)
        world.clock.move(max(world.ready_in() or 0.0, 0.001))
    world.settle_robots(500)
    assert "parked" == closed_state(world)


def test_a_host_whose_robots_txt_never_answered_stays_closed():
    world = world_of()
    fail_for(world, 40.0)
    assert "page" not in asked(world)


def test_a_good_answer_restarts_the_thirty_days():
    world = world_of()
    answer(world, 200, RULES)
    world.clock.move(DAY)
    fail_for(world, 29.0)
    while "robots" not in asked(world):
        world.clock.move(max(world.ready_in() or 0.0, 0.001))
    answer(world, 200, RULES)
    world.clock.move(DAY)
    fail_for(world, 20.0)
    assert "page" not in asked(world)


@given(
    st.lists(
        st.tuples(st.sampled_from([200, 404, 500, 429, None]), st.none() | st.floats(0, 1e6), st.floats(1, 5 * DAY)),
        max_size=40,
    )
)
def test_pages_are_open_only_by_a_copy_of_today_or_after_thirty_days_of_failures(steps):
    """The rules in plain Python: an authority is open while its last good answer is younger than a day. It is also open
    when every answer of the last 30 days failed and there was a good one before."""
    one, now = Authority(0, 0, "http://a.test"), instant(1_000.0)
    good, failing = None, None
    for status, fresh, wait in steps:
        found = after_answer(one, RobotsAnswer(status, RULES, None, fresh), None, None, now, retries=True)
        if status in (200, 404):
            good, failing = now, None
        else:
            failing = failing or now
        one.state, one.expires, one.attempts = found.state, found.expires, found.attempts
        one.fetched, one.failing_since = found.fetched, found.failing_since
        one.digest = one.digest if found.body is None else len(found.body)
        now += instant(wait)
        if one.state in (RobotsState.RULES, RobotsState.ALLOW) and one.expires > now:
            young = now < good + instant(DAY)
            assert young or (failing is not None and now - failing >= instant(30 * DAY))


def test_a_host_shows_the_facts_about_its_robots_txt():
    world = world_of()
    begun = world.clock()
    answer(world, 200, RULES + b"Crawl-delay: 2.5\nSitemap: http://a.test/map.xml\n", fresh_seconds=3_600.0)
    (file,) = world.frontier.host("a.test").robots
    assert ("http://a.test", "rules", 200, 2.5, 1, None) == (
        *(file.authority, file.state, file.status, file.crawl_delay, file.sitemaps, file.error),
    )
    assert (begun, begun + instant(3_600)) == (file.fetched_at, file.expires_at)
    world.clock.move(DAY)
    answer(world, 503)
    (file,) = world.frontier.explain(f"{OPEN}9").host.robots
    assert ("retrying", 503, begun) == (file.state, file.status, file.fetched_at)


# -- lifetimes that are no longer than the rests of their hosts --------------------------------------------------------


def kinds_in_turn(world: World, turns: int, status: int = 200, body: bytes = b"", **how: object) -> list[str]:
    """Returns the kinds of the leases of a host in `turns` turns, each leased as soon as possible."""
    found: list[str] = []
    while len(found) < turns:
        leases = list(world.lease(1, errands=True))
        if not leases:
            world.clock.move(world.ready_in() or 0.001)
            continue
        for lease in leases:
            found.append(str(lease.kind))
            robots = lease.kind == "robots"
            world.report(lease.robots(status, body, seconds=0.1, **how) if robots else lease.done(seconds=0.1))
        world.clock.move(0.1)
    return found


LIFETIMES = {
    "five minutes": (300.0, b"Crawl-delay: 300\n", {}),
    "a day": (DAY, b"Crawl-delay: 86400\n", {}),
    "a day that the answer does not name": (None, b"Crawl-delay: 86400\n", {}),
    "no-store": (0.0, b"Crawl-delay: 301\n", {}),
    "a little less": (3_600.0, b"Crawl-delay: 3599.95\n", {}),
    "a delay of the operator": (0.0, b"", {"delay": 900.0}),
    "windows": (300.0, b"Crawl-delay: 1800\n", {"crawl_delay_as": "window"}),
}


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("which", LIFETIMES)
def test_a_robots_txt_is_valid_for_the_next_turn_of_its_host_however_long_its_delay(which, killed):
    fresh, lines, settings = LIFETIMES[which]
    world = World(robots="errands", **({"delay": 1.0, "delay_factor": 0.0} | settings))
    world.discover(*[f"{OPEN}{page}" for page in range(100)])
    assert ["robots"] == kinds_in_turn(world, 1, 200, RULES + lines, fresh_seconds=fresh)
    if killed:
        world.kill()
    kinds = kinds_in_turn(world, 12, 200, RULES + lines, fresh_seconds=fresh)
    assert 5 <= kinds.count("page")
    if which not in ("a little less", "windows"):
        assert ["page", "robots"] * 6 == kinds


def test_a_missing_robots_txt_with_no_store_is_valid_for_the_next_turn():
    world = World(robots="errands", delay=600.0, delay_factor=0.0)
    world.discover(*[f"{OPEN}{page}" for page in range(9)])
    assert ["robots", "page"] * 3 == kinds_in_turn(world, 6, 404, fresh_seconds=0.0)


def test_a_wait_that_the_answer_requires_does_not_make_its_copy_too_old():
    world = world_of()
    (lease,) = world.lease(1, errands=True)
    told = lease.robots(200, RULES, seconds=0.1, fresh_seconds=300.0)
    world.report(msgspec.structs.replace(told, retry_after_seconds=7_200.0))
    world.clock.move(7_200.0)
    assert ["page"] == asked(world)


def test_the_copy_of_a_turn_is_too_old_five_minutes_after_it():
    world = World(robots="errands", delay=600.0, delay_factor=0.0)
    world.discover(*[f"{OPEN}{page}" for page in range(9)])
    answer(world, 200, RULES, fresh_seconds=0.0, seconds=0.0)
    world.clock.move(899.9)
    assert ["page"] == asked(world)
    world.clock.move(0.2)
    assert ["robots"] == asked(world)


def test_a_failed_request_for_a_robots_txt_makes_no_copy_newer():
    world = World(robots="errands", delay=600.0, delay_factor=0.0)
    world.discover(*[f"{OPEN}{page}" for page in range(99)])
    answer(world, 200, RULES, fresh_seconds=3_600.0)
    begun = world.clock()
    while world.clock() < begun + instant(3 * DAY):
        for lease in world.lease(1, errands=True):
            if lease.kind == "page":
                assert world.clock() < begun + instant(DAY)
                world.report(lease.done(seconds=0.0))
            else:
                world.report(lease.robots(500))
        world.clock.move(min(max(world.ready_in() or DAY, 0.001), DAY))


# -- errands of callers ------------------------------------------------------------------------------------------------

MAP, CLOSED_MAP = "http://a.test/sitemap.xml", "http://a.test/closed/sitemap.xml"


def mapped(*urls: str) -> World:
    """A world whose robots.txt was answered, and whose queued errands are next."""
    world = World(robots="errands", delay=0, delay_factor=0.0)
    world.discover(f"{OPEN}0")
    answer(world, 200, RULES)
    world.frontier.queue_errands("sitemap", list(urls))
    world.report(*[lease.done(seconds=0.0) for lease in world.lease(1)])
    return world


def taken(world: World) -> list[tuple[str, str]]:
    return [(str(lease.kind), lease.url) for lease in world.lease(9, errands=True)]


@pytest.mark.parametrize("killed", [False, True])
def test_a_sitemap_that_waited_for_more_than_a_day_follows_a_fresh_robots_txt(killed):
    world = mapped(MAP)
    world.clock.move(2 * DAY)
    if killed:
        world.kill()
    answer(world, 200, RULES)
    assert [("sitemap", MAP)] == taken(world)


def test_a_sitemap_that_fresh_rules_close_is_not_requested_and_ends():
    world = mapped(CLOSED_MAP, MAP)
    assert [] == taken(world), "this call ends the one, the next gives the other"
    assert [("sitemap", MAP)] == taken(world)
    assert 1 == world.frontier.statistics()["errands"]
    world.kill()
    world.clock.move(60)
    world.report(*[lease.done(seconds=0.0) for lease in world.lease(9, errands=True)])
    assert (True, 0) == (world.frontier.finished(), world.frontier.statistics()["errands"])


def test_a_sitemap_of_an_authority_without_rules_follows_its_robots_txt():
    world = mapped("https://a.test/sitemap.xml")
    (lease,) = world.lease(9, errands=True)
    assert ("robots", "https://a.test/robots.txt") == (lease.kind, lease.url)
    world.report(lease.robots(404, seconds=0.0))
    assert [("sitemap", "https://a.test/sitemap.xml")] == taken(world)


def test_a_sitemap_waits_while_robots_txt_is_unreachable_and_keeps_no_crawl_open():
    world = mapped(MAP)
    world.clock.move(2 * DAY)
    for wait in (5.0, 30.0, 300.0, 0.0):
        assert not world.frontier.finished()
        answer(world, 500)
        world.clock.move(wait)
    assert [] == taken(world)
    assert (True, 0) == (world.frontier.finished(), world.frontier.statistics()["errands"])
    world.clock.move(DAY)
    world.kill()
    answer(world, 404)
    assert not world.frontier.finished()
    assert [("sitemap", MAP)] == taken(world)


def test_a_crawl_that_ignores_robots_txt_requests_sitemaps_at_once():
    world = World(robots="errands", delay=0, delay_factor=0.0, obey_robots=False)
    world.frontier.queue_errands("sitemap", [CLOSED_MAP])
    assert [("sitemap", CLOSED_MAP)] == taken(world)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.sampled_from([0.0, 1.0, 400.0, 0.4 * DAY, DAY, 2 * DAY, 31 * DAY])),
        st.tuples(st.just("file"), st.sampled_from([200, 404, 500, 429, None])),
        st.tuples(st.just("page"), st.sampled_from(["open", "closed/x"])),
        st.tuples(st.just("sitemap"), st.sampled_from(["s.xml", "closed/s.xml", "away.xml"])),
        st.tuples(st.just("end"), st.sampled_from(["kill", "reopen"])),
    ),
    max_size=16,
)


@settings(max_examples=1 + settings.default.max_examples // 3)
@given(steps=STEPS)
def test_no_page_and_no_errand_is_leased_by_rules_that_are_too_old(steps):
    """The authority of each lease answered within a day, or failed for 30 days and was retried within a day. No path is
    leased that the last good answer closed."""
    world = World(robots="errands", delay=1.0, delay_factor=0.0)
    good: dict[str, tuple[int, int]] = {}  # by authority: when, and with which status
    failing: dict[str, tuple[int, int]] = {}  # by authority: first failure, last failure
    status: int | None = 200
    names = [f"{scheme}://a.test" for scheme in ("http", "https")]
    for number, (what, value) in enumerate([*steps, ("file", 404), *([("wait", 2 * DAY)] * 9)]):
        if what == "wait":
            world.clock.move(value)
        elif what == "file":
            status = value
        elif what == "end":
            world.kill() if value == "kill" else world.reopen()
        elif what == "page":
            world.discover(f"{names[number % 2]}/{value}?{number}")
        else:
            world.frontier.queue_errands("sitemap", f"{names[number % 2]}/{value}?{number}")
        for _ in range(5):
            now = world.clock()
            batch = list(world.lease(3, errands=True))
            for lease in batch:
                own = lease.authority
                if lease.kind == "robots":
                    if status in (200, 404):
                        good[own] = now, status
                        failing.pop(own, None)
                    else:
                        failing[own] = failing.get(own, (now, now))[0], now
                    world.report(lease.robots(status, RULES if status == 200 else b"", seconds=0.0))
                    continue
                assert own in good, f"{lease.url} is leased before its robots.txt"
                at, said = good[own]
                first, last = failing.get(own, (now, now))
                given_up = last - first >= instant(30 * DAY) and now - last <= instant(DAY)
                assert now - at < instant(DAY) or given_up, f"{lease.url}: {(now - at) / 8.64e10} days old"
                assert said == 404 or "/closed" not in lease.url
                moved = f"{names[number % 2]}/closed/moved.xml" if "away" in lease.url else None
                world.report(lease.done(location=moved, seconds=0.0))
            world.clock.move(1.0)
    assert world.frontier.finished(), "nothing waits once the file is there"
    assert [] == recount(world.frontier)
