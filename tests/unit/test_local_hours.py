"""Hours of hosts in local time: how they are read, and a week with each change of clocks."""

from __future__ import annotations

import sys
import zoneinfo
from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from model.world import Clock, World
from outrider.clock import Instant
from outrider.crawl.setup.options import CrawlOptions
from outrider.errors import SettingsError
from outrider.local_hours import LocalHours, hours_of

A = "http://a.test/"
PARIS = ZoneInfo("Europe/Paris")
HOUR = 3_600_000_000


def at(text: str) -> Instant:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1_000_000


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("22:00-06:00", "not two times and a zone"),
        ("22:00-06:00 Mars/Olympus", "unknown zone 'Mars/Olympus'"),
        ("22:00-06:00 ../../etc/passwd", "unknown zone"),
        ("22:00-06:00 Europe", "unknown zone"),
        ("22:00-22:00 Europe/Paris", "both times are equal"),
        ("24:00-06:00 Europe/Paris", "from 00:00 to 24:00"),
        ("22:60-06:00 Europe/Paris", "from 00:00 to 24:00"),
        ("9" * 10_000, "not two times and a zone"),
    ],
)
def test_hours_that_cannot_be_read_are_refused_with_the_reason(text, told):
    with pytest.raises(SettingsError, match=told):
        LocalHours.of("*", text)
    with pytest.raises(SettingsError, match=r"hours of a\.test"):
        CrawlOptions(host=[{"name": "a.test", "hours": text}])


def test_a_machine_without_zones_is_told_what_to_install_and_the_extra_brings_them(monkeypatch):
    place = zoneinfo.TZPATH
    zoneinfo.reset_tzpath(())
    ZoneInfo.clear_cache()
    try:
        assert "Europe/Paris" == LocalHours.of("*", "22:00-06:00 Europe/Paris").zone  # in tzdata
        ZoneInfo.clear_cache()
        for name in {"tzdata", *(name for name in sys.modules if name.startswith("tzdata."))}:
            monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(SettingsError, match=r"no database of time zones; run `.*outrider\[identity\]"):
            LocalHours.of("*", "22:00-06:00 Europe/Paris")
    finally:
        zoneinfo.reset_tzpath(place)


def test_the_last_pattern_that_matches_counts():
    told = [LocalHours.of(name, "22:00-06:00 UTC", 5.0 if name == "*" else None) for name in ("*.a.test", "*")]
    assert (5.0, None) == (hours_of("x.a.test", told).delay_outside, hours_of("b.test", told[:1]))


@pytest.mark.parametrize(
    ("text", "now", "opens"),
    [
        ("22:00-06:00 Europe/Paris", "2026-11-27T20:59:59", "2026-11-27T21:00:00"),
        ("22:00-06:00 Europe/Paris", "2026-07-27T12:00:00", "2026-07-27T20:00:00"),
        ("22:00-24:00 Europe/Paris", "2026-11-27T22:30:00", None),
        ("02:00-03:00 Europe/Paris", "2026-03-28T12:00:00", "2026-03-30T00:00:00"),  # skipped on the 29th
        ("02:30-04:00 Europe/Paris", "2026-03-28T12:00:00", "2026-03-29T01:30:00"),  # 02:30 is 03:30 on that day
        ("02:00-03:00 Europe/Paris", "2026-10-24T12:00:00", "2026-10-25T00:00:00"),
        ("02:00-03:00 Europe/Paris", "2026-10-25T01:30:00", None),  # the second time
        ("02:30-02:40 Europe/Paris", "2026-10-25T00:45:00", "2026-10-25T01:30:00"),
    ],
)
def test_a_host_opens_by_the_clock_of_its_zone(text, now, opens):
    found = LocalHours.of("*", text).opens_at(at(now), until=at(now))
    assert (None if opens is None else at(opens)) == found


def visited(world: World, days: int) -> list[Instant]:
    end, found = world.clock() + days * 24 * HOUR, []
    while world.clock() < end:
        for lease in world.lease(5):
            found.append(world.clock())
            world.report(lease.again(at=world.clock() + HOUR // 4, seconds=0.1))
        wait = world.ready_in()
        world.clock.move(600.0 if wait is None else max(1.0, min(wait, 600.0)))
    return found


def minute_of(one: Instant) -> int:
    local = datetime.fromtimestamp(one / 1e6, PARIS)
    return local.hour * 60 + local.minute


@pytest.mark.parametrize("start", ["2026-03-25T12:00:00", "2026-10-21T12:00:00"])
def test_in_a_week_with_a_change_of_clocks_no_request_is_outside_of_the_hours(start):
    """Over each midnight, with a kill in the middle."""
    hours = (LocalHours.of("a.test", "23:30-02:45 Europe/Paris"),)
    world = World(delay=60.0, clock=Clock(at(start)), hours=hours)
    world.discover(*[f"{A}{page}" for page in range(4)])
    found = visited(world, 3)
    assert "hours" == world.frontier.host("a.test").reason
    explained = world.frontier.explain(f"{A}1")
    world.kill()
    found += visited(world, 4)
    assert [] == [one for one in found if 165 <= minute_of(one) < 1_410]
    assert len(found) > 7 * 4 * 10
    assert ("queued", True) == (explained.state, " h " in explained.reason_text and "(hours)" in explained.reason_text)


def test_outside_of_the_hours_a_longer_delay_may_count():
    hours = (LocalHours.of("a.test", "22:00-06:00 UTC", 1_800.0),)
    world = World(delay=300.0, clock=Clock(at("2026-11-27T12:00:00")), hours=hours)
    world.discover(*[f"{A}{page}" for page in range(20)])
    found = visited(world, 1)
    gaps = {(6 <= one // HOUR % 24 < 22): set() for one in found}
    for before, after in pairwise(found):
        gaps[6 <= after // HOUR % 24 < 22].add(round((after - before) / 1e6, 1))
    assert 1_800.0 <= min(gaps[True])
    assert 310.0 >= min(gaps[False]) >= 300.0


def test_a_delay_outside_of_hours_needs_hours():
    with pytest.raises(SettingsError, match=r"delay_outside of \*\.a\.test is about its hours"):
        CrawlOptions(host=[{"name": "*.a.test", "delay_outside": 60}])


def test_a_table_of_a_host_names_its_hours():
    options = CrawlOptions(host=[{"name": "*.a.test", "hours": "22:00-06:00 Europe/Paris", "delay_outside": 60}])
    assert (LocalHours("*.a.test", 1_320, 360, "Europe/Paris", 60.0),) == options.frontier_settings()["hours"]
