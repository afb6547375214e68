"""The time that a host needs for its URLs, with the hours in which it is closed."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from model.world import Clock, World
from outrider.clock import Instant
from outrider.frontier.policy.open_hours import seconds_needed, speeds_of_hours, speeds_of_windows
from outrider.local_hours import LocalHours
from outrider.robots.hours import VisitWindow

A = "http://a.test/"
HOUR = 3_600.0
NIGHT = VisitWindow(22 * 60, 2 * 60)


def at(text: str) -> Instant:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1e6)


@pytest.mark.parametrize(
    ("now", "work", "needed"),
    [
        ("2026-11-27T21:00:00", HOUR, 2 * HOUR),
        ("2026-11-27T22:00:00", HOUR, HOUR),
        ("2026-11-27T22:00:00", 4 * HOUR, 4 * HOUR),
        ("2026-11-27T22:00:00", 5 * HOUR, 25 * HOUR),
        ("2026-11-27T22:00:00", 8 * HOUR, 28 * HOUR),
        ("2026-11-28T01:59:30", 30.0, 30.0),
        ("2026-11-28T01:59:30", 31.0, 20 * HOUR + 31.0),
        ("2026-11-28T02:00:00", 1.0, 20 * HOUR + 1.0),
        ("2026-11-28T00:00:15.500000", 10 * HOUR, 70 * HOUR),
        ("2026-11-28T00:00:00", 0.0, 0.0),
    ],
)
def test_closed_hours_are_added(now, work, needed):
    assert needed == pytest.approx(seconds_needed(work, speeds_of_windows([NIGHT]), at(now)), abs=1.0)


@pytest.mark.parametrize("work", [59.0, 6 * HOUR])
@pytest.mark.parametrize("minute", [0, 61, 700, 1_320])
def test_the_time_is_that_of_a_walk_through_the_seconds(minute, work):
    speeds = speeds_of_windows([NIGHT, VisitWindow(60, 180), VisitWindow(700, 701)])
    start, left, walked = minute * 60 + 7, work, 0
    while left > 0:
        left -= speeds[(start + walked) // 60 % 1_440]
        walked += 1
    assert walked + left == pytest.approx(seconds_needed(work, speeds, start * 1_000_000), abs=1.0)


def test_an_open_host_and_one_that_never_opens_need_their_gaps_alone():
    assert 5.0 == seconds_needed(5.0, speeds_of_windows([]), 0)
    never = speeds_of_windows([VisitWindow(0, 60)]) * speeds_of_windows([VisitWindow(60, 120)])
    assert 5.0 == seconds_needed(5.0, never, 0)


@pytest.mark.parametrize(("now", "offset"), [("2026-07-01T12:00:00", 2), ("2026-12-01T12:00:00", 1)])
def test_hours_in_local_time_are_moved_to_gmt(now, offset):
    speeds = speeds_of_hours(LocalHours.of("a.test", "22:00-06:00 Europe/Paris"), 1.0, at(now))
    opens, closes = (22 - offset) * 60, (6 - offset) * 60
    assert (8 * 60, 0.0, 1.0, 1.0, 0.0) == (
        speeds.sum(),
        speeds[opens - 1],
        speeds[opens],
        speeds[closes - 1],
        speeds[closes],
    )


def test_a_longer_gap_outside_of_the_hours_is_a_lower_speed():
    speeds = speeds_of_hours(LocalHours.of("a.test", "00:00-12:00 UTC", 40.0), 10.0, 0)
    assert (1.0, 0.25) == (speeds[0], speeds[720])
    assert 12 * HOUR + 4 * 60 == seconds_needed(12 * HOUR + 60, speeds, 0)


def tail(world: World) -> tuple[str | None, float]:
    idle = world.frontier.explain_idle()
    return idle.tail_host, round(idle.tail_seconds or 0.0)


def test_the_time_left_includes_the_hours_in_which_the_settings_close_a_host():
    """b.test has fewer URLs, and opens later: it takes longest."""
    hours = (LocalHours.of("b.test", "22:00-06:00 UTC"),)
    world = World(delay=60.0, clock=Clock(at("2026-11-27T12:00:00")), hours=hours)
    world.discover(*[f"{A}{page}" for page in range(30)], "http://b.test/1", "http://b.test/2")
    assert ("b.test", 10 * HOUR + 120) == tail(world)
    world.clock.move(10 * HOUR)
    assert ("a.test", 30 * 60) == tail(world)


@pytest.mark.parametrize(("how", "needed"), [("obey", 21.5 * HOUR + 120), ("ignore", 120)])
def test_the_time_left_includes_the_hours_of_robots_txt_if_they_are_obeyed(how, needed):
    world = World(robots="errands", visit_time=how, delay=60.0, clock=Clock(at("2026-11-27T12:00:00")))
    world.discover(f"{A}1", f"{A}2")
    (errand,) = world.lease(1, errands=True)
    world.report(errand.robots(200, b"User-agent: *\nVisit-time: 0930-1000\n", seconds=0.1))
    assert ("a.test", needed) == tail(world)
    if how == "obey":
        world.clock.move(100.0)
        assert not world.lease(1)
        assert ("a.test", needed - 100) == tail(world)
