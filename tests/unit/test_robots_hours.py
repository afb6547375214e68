"""Request-rate and Visit-time: how they are read, and a virtual week in which both are kept."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

import pytest

from model.world import Clock, World
from outrider.clock import Instant, seconds
from outrider.limits import VISIT_LINES_MAX
from outrider.robots import Rules, opens_at
from outrider.robots.hours import Rate, VisitWindow, windows_of

A = "http://a.test/"


def at(text: str) -> Instant:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1_000_000


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("0600-0845", (360, 525)),
        (" 0100 - 0800\t", (60, 480)),
        ("0100 0800", (60, 480)),
        ("1800-2400", (1_080, 1_440)),
        ("2200-0600", (1_320, 360)),
        ("0600-0600", None),
        ("2400-0600", None),
        ("0660-0800", None),
        ("6am-8am", None),
        ("06:00-08:45", None),
        ("0600-0845 UTC", None),
        ("\u0660600-0845", None),
        ("0" * 100_000, None),
        ("", None),
    ],
)
def test_a_window_is_read_or_is_no_rule(text, window):
    assert window == VisitWindow.of(text)


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("1/5", (5.0, None)),
        ("10/1m", (6.0, None)),
        ("400/1H", (9.0, None)),
        ("9000/1d", (9.6, None)),
        ("1 / 10", (10.0, None)),
        ("1/10s 1820-1940", (10.0, (1_100, 1_180))),
        ("1/999999999d", (86_400.0, None)),
        ("1/10s 1820-1820", None),
        ("0/5", None),
        ("1/0", None),
        ("5", None),
        ("-1/5", None),
        ("1/" + "9" * 400, None),
    ],
)
def test_a_rate_is_read_or_is_no_rule(text, rate):
    assert rate == Rate.of(text)


@pytest.mark.parametrize(
    ("values", "now", "opens"),
    [
        (["0600-0845"], "2026-11-27T07:00:00", None),
        (["0600-0845"], "2026-11-27T05:59:59", "2026-11-27T06:00:00"),
        (["0600-0845"], "2026-11-27T08:45:00", "2026-11-28T06:00:00"),
        (["2200-0600"], "2026-11-27T23:30:00", None),
        (["2200-0600"], "2026-12-31T12:00:00", "2026-12-31T22:00:00"),
        (["1800-2400"], "2026-11-27T23:59:59", None),
        (["0100-0200", "0400-0500"], "2026-11-27T02:30:00", "2026-11-27T04:00:00"),
        (["0600-0600", "x"], "2026-11-27T12:00:00", None),
        (["0000-1200", "1200-2400"], "2026-11-27T11:59:59", None),
    ],
)
def test_a_site_opens_at_the_next_beginning_of_a_window(values, now, opens):
    found = opens_at(windows_of(values), at(now))
    assert (None if opens is None else at(opens)) == found


def test_a_window_that_ends_too_early_is_closed():
    windows = windows_of(["0600-0845"])
    late = at("2026-11-27T08:44:30")
    assert None is opens_at(windows, late)
    assert at("2026-11-28T06:00:00") == opens_at(windows, late, until=late + 60_000_000)


@pytest.mark.parametrize(
    ("lines", "gap"),
    [
        ("Crawl-delay: 5\nRequest-rate: 1/10", 10.0),
        ("Crawl-delay: 20\nRequest-rate: 1/10", 20.0),
        ("Request-rate: 1/5\nRequest-rate: 1/20 0100-0200", 20.0),
        ("Request-rate: broken", None),
    ],
)
def test_the_longer_of_delay_and_rate_counts(lines, gap):
    assert gap == Rules.parse(f"User-agent: *\n{lines}\n".encode()).of("Outrider").crawl_delay


def test_the_group_of_all_says_nothing_beside_an_own_group():
    group = b"User-agent: *\nVisit-time: 0100-0200\nRequest-rate: 1/60\nDisallow: /y\n"
    rules = Rules.parse(group + b"\nUser-agent: Outrider\nDisallow: /x\n")
    assert ((), None) == (rules.hours("Outrider"), rules.gap("Outrider"))
    assert (((60, 120),), 60.0) == (rules.hours("Other"), rules.gap("Other"))


def test_lines_beyond_the_limit_do_not_count():
    lines = b"Visit-time: 0100-0200\n" * VISIT_LINES_MAX + b"Visit-time: 0300-0400\n"
    assert ((60, 120),) == Rules.parse(b"User-agent: *\n" + lines).hours("Outrider")


def visited(world: World, days: int) -> list[Instant]:
    """Leases and reports everything for some days. Returns the instants of all requests."""
    end, found = world.clock() + days * 86_400_000_000, []
    while world.clock() < end:
        for lease in world.lease(5, errands=True):
            found.append(world.clock())
            if lease.kind == "robots":
                world.report(lease.robots(200, ROBOTS, seconds=0.1))
            else:
                world.report(lease.again(at=world.clock() + 1_800_000_000, seconds=0.1))
        wait = world.ready_in()
        world.clock.move(600.0 if wait is None else max(1.0, min(wait, 600.0)))
    return found


ROBOTS = b"User-agent: *\nVisit-time: 2230-0115\nRequest-rate: 1/2m\n"


def test_in_a_week_there_is_no_request_outside_of_the_hours_of_a_site():
    """Over each midnight, with a kill in the middle; the first request is for the robots.txt, which is not known."""
    world = World(robots="errands", visit_time="obey", delay=1.0, clock=Clock(at("2026-11-27T12:00:00")))
    world.discover(*[f"{A}{page}" for page in range(40)])
    first, *found = visited(world, 3)
    explained = world.frontier.explain(f"{A}1")
    world.kill()
    found += visited(world, 4)
    assert at("2026-11-27T12:00:00") == first
    times = [seconds(one) % 86_400 for one in found]
    assert [] == [time for time in times if 75 * 60 <= time < 22.5 * 3_600]
    assert len({one // 86_400_000_000 for one in found}) == 8
    assert min(b - a for a, b in pairwise(found)) >= 120_000_000
    assert len(found) > 7 * 70
    assert "visit_time" == explained.host.reason


@pytest.mark.parametrize(
    ("how", "given"), [({}, 1), ({"per_queue": 3, "ttl_seconds": 900}, 0), ({"per_queue": 3, "train_seconds": 0.0}, 1)]
)
def test_no_train_leaves_the_hours_of_a_site(how, given):
    """Ten minutes before the end, at a gap of two minutes."""
    world = World(robots="errands", visit_time="obey", delay=1.0, clock=Clock(at("2026-11-27T01:05:00")))
    world.discover(*[f"{A}{page}" for page in range(40)])
    (errand,) = world.lease(1, errands=True)
    world.report(errand.robots(200, ROBOTS, seconds=0.1))
    world.clock.move(121.0)
    assert given == len(world.lease(5, **how))


def test_by_default_the_hours_of_a_site_are_not_obeyed():
    world = World(robots="errands", delay=1.0, clock=Clock(at("2026-11-27T12:00:00")))
    world.discover(f"{A}1")
    assert 2 == len([one for one in visited(world, 1) if one < at("2026-11-27T12:10:00")])
