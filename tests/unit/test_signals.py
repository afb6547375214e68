"""Signals: dates of changes bring visits forward, and each host is believed as far as its visits confirm it."""

from __future__ import annotations

from datetime import datetime

import numpy as np
import pytest

from model.world import World, recount
from outrider.clock import instant, rfc3339
from outrider.errors import SettingsError
from outrider.journey import Link
from outrider.sim.disk import FaultyFiles
from outrider.url.dates import instant_of_date

A, B = "http://a.com/", "http://a.com/b"
HOUR, DAY = 3_600.0, 86_400.0


def fetched(world: World, *urls: str) -> None:
    """Discovers these pages, and visits each once."""
    world.discover(*urls)
    for _ in urls:
        for lease in world.lease(len(urls)):
            world.report(lease.done(seconds=0.0, digest=lease.url.encode()))


def signals_of(world: World, url: str) -> int:
    found = world.frontier.explain(url).revisit
    assert found is not None
    return found.signals


@pytest.mark.parametrize("rule", ["optimal", "age", "uniform", "adaptive"])
def test_a_date_after_the_last_visit_brings_the_next_one_forward(rule):
    world = World(delay=0, revisit=rule, rate=0.01)
    fetched(world, A, B)
    before = world.frontier.explain(A).next_fetch_at
    world.clock.move(5.0)
    world.frontier.discover([Link(A, modified=world.clock() - instant(1))])
    after = world.frontier.explain(A)
    assert 1 == signals_of(world, A)
    assert before is None or after.next_fetch_at < before
    assert [] == recount(world.frontier)


def test_a_date_before_the_last_visit_is_no_signal():
    world = World(delay=0, revisit="adaptive")
    long_ago = world.clock()
    world.clock.move(DAY)
    fetched(world, A)
    due = world.frontier.status(A).due
    world.frontier.discover([Link(A, modified=long_ago)])
    assert (0, due) == (signals_of(world, A), world.frontier.status(A).due)


def test_the_same_date_counts_once_and_a_later_one_again():
    world = World(delay=0, revisit="adaptive")
    fetched(world, A)
    world.clock.move(HOUR)
    first = world.clock()
    world.frontier.discover([Link(A, modified=first), Link(A, modified=rfc3339(first))])
    world.frontier.discover([Link(A, modified=first)])
    assert 1 == signals_of(world, A)
    world.clock.move(HOUR)
    world.frontier.discover([Link(A, modified=world.clock())])
    assert 2 == signals_of(world, A)


def test_a_page_that_a_signal_brings_forward_has_no_second_visit():
    world = World(delay=0, revisit="adaptive", rate=1.0)
    fetched(world, A)
    world.clock.move(HOUR)
    for _ in range(10):
        world.frontier.discover([Link(A, modified=world.clock())])
        world.clock.move(1.0)
    visits = []
    for hour in range(36):  # the first plan was a day after the first visit
        for lease in world.lease(5):
            world.report(lease.done(seconds=0.0, digest=A.encode()))
            visits.append(hour)
        world.clock.move(HOUR)
    assert visits == [0]
    assert [] == recount(world.frontier)


def test_a_visit_ends_the_count_of_signals():
    world = World(delay=0, revisit="adaptive")
    fetched(world, A)
    world.clock.move(HOUR)
    world.frontier.discover([Link(A, modified=world.clock())])
    world.frontier.requeue(A)
    world.report(world.one().done(digest=b"other"))
    assert 0 == signals_of(world, A)


def test_unreadable_and_future_dates_are_counted_and_ignored():
    world = World(delay=0, revisit="adaptive")
    fetched(world, A)
    due = world.frontier.status(A).due
    world.clock.move(HOUR)
    wrong = ["yesterday", "", "9999-12-31T23:59:59Z", "2026-13-45", "9" * 500, world.clock() + instant(DAY)]
    world.frontier.discover([Link(A, modified=one) for one in wrong] + [Link(f"{A}new", modified="?")])
    numbers = world.frontier.statistics()["revisits"]
    assert {"unreadable": 5, "future": 2} == numbers["signals_ignored"]
    assert (0, due) == (numbers["signals"], world.frontier.status(A).due)


@pytest.mark.parametrize("wrong", [-1, 1.5, True, b"2026", 1 << 80])
def test_a_date_of_another_type_is_refused_before_anything_is_logged(wrong):
    world = World(delay=0, revisit="adaptive")
    with pytest.raises(SettingsError, match="modified"):
        world.frontier.discover([A, Link(B, modified=wrong)])
    assert 0 == world.inspect().tables.urls.accepted()


@pytest.mark.parametrize("wrong", [0, -1.0, float("nan"), float("inf"), "daily", True])
def test_a_wrong_time_between_changes_is_refused(wrong):
    with pytest.raises(SettingsError, match="change_seconds"):
        World(delay=0, revisit="adaptive").frontier.discover([Link(B, change_seconds=wrong)])


def test_a_page_may_say_when_pages_of_its_own_site_changed_and_no_others():
    world = World(delay=0, revisit="adaptive")
    fetched(world, A, B, "http://other.com/")
    world.clock.move(DAY)
    lease = world.one()
    others = [url for url in (A, B, "http://other.com/") if url != lease.url]
    world.clock.move(1.0)
    world.report(lease.done(digest=b"x", links=[Link(url, modified=world.clock()) for url in others]))
    here = lease.url.startswith("http://a.com/")
    counts = [signals_of(world, url) for url in others]
    assert counts == [int(url.startswith("http://a.com/") == here) for url in others]


def test_signals_survive_a_kill():
    world = World(delay=0, revisit="optimal", rate=0.1)
    fetched(world, A, B)
    world.clock.move(HOUR)
    world.frontier.discover([Link(A, modified=world.clock())])
    before = [world.frontier.explain(url).revisit for url in (A, B)]
    world.kill()
    after = [world.frontier.explain(url).revisit for url in (A, B)]
    assert [(one.signals, one.modified_at) for one in before] == [(one.signals, one.modified_at) for one in after]
    assert [] == recount(world.frontier)


def test_without_a_rule_a_date_has_no_effect():
    world = World(delay=0)
    fetched(world, A)
    world.clock.move(HOUR)
    world.frontier.discover([Link(A, modified=world.clock()), Link(B, modified=world.clock())])
    assert "done" == world.frontier.status(A).state
    assert [None, None] == [one["signals"] for one in world.frontier.records()]


def lived(world: World, stamps: str, days: int = 60) -> None:
    """Visits of ten pages of one host, of which some change once in four days. stamps: `true` signals, `false` ones (a
    date of each page each day), or `none`."""
    urls = [f"http://a.com/{number}" for number in range(10)]
    world.discover(*[Link(url, modified=world.clock()) for url in urls])
    versions = dict.fromkeys(urls, 0)
    for day in range(days):
        for number, url in enumerate(urls):
            changed = number < 5 and (day + number) % 4 == 0
            versions[url] += changed
            if stamps == "false" or (stamps == "true" and changed):
                world.frontier.discover([Link(url, modified=world.clock())])
        for _ in range(24):
            for lease in world.lease(10):
                world.report(lease.done(seconds=0.0, digest=f"{lease.url} {versions[lease.url]}".encode()))
            world.clock.move(HOUR)


def host_of(world: World) -> dict[str, float]:
    (found,) = world.frontier.statistics()["revisits"]["signal_hosts"]
    return found


def test_a_host_with_true_dates_is_believed_and_one_that_stamps_every_page_now_is_not():
    worlds = {}
    for stamps in ("true", "false"):
        world = worlds[stamps] = World(delay=0, revisit="uniform", rate=5 / DAY)
        lived(world, stamps)
    true, false = host_of(worlds["true"]), host_of(worlds["false"])
    assert "a.com" == true["host"]
    assert true["recall"] > 0.6
    assert true["evidence"] > 1.0
    assert false["evidence"] < 0.1
    assert false["visits"] > 20


def test_what_is_known_about_the_signals_of_a_host_survives_a_kill_and_a_clean_stop():
    world = World(delay=0, revisit="uniform", rate=5 / DAY)
    lived(world, "true", 20)
    before = host_of(world)
    world.kill()
    assert before == host_of(world)
    world.reopen()
    assert before == host_of(world)


def test_how_often_a_page_changes_by_its_link_is_where_a_rule_begins():
    world = World(delay=0, revisit="adaptive")
    fetched(world, B)
    world.discover(Link(A, change_seconds=DAY), Link(B, change_seconds=HOUR))
    world.report(world.one().done(digest=b"a"))
    rates = {one["url"]: one["change_rate"] for one in world.frontier.records()}
    assert [round(1 / rates[url]) for url in (A, B)] == [DAY, HOUR]


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-28T10:20:30Z", "2026-11-28T10:20:30+00:00"),
        ("2026-11-28T10:20:30.25+02:00", "2026-11-28T10:20:30.250000+02:00"),
        ("2026-11-28T10:20-0330", "2026-11-28T10:20:00-03:30"),
        ("2024-02-29 23:59", "2024-02-29T23:59:00+00:00"),
        (" 2026-11-28 ", "2026-11-28T00:00:00+00:00"),
        ("2000-03", "2000-03-01T00:00:00+00:00"),
        ("1999", "1999-01-01T00:00:00+00:00"),
        ("9999-12-31", "9999-12-31T00:00:00+00:00"),
        ("Sat, 28 Nov 2026 10:20:30 GMT", "2026-11-28T10:20:30+00:00"),
    ],
)
def test_dates_as_text_are_read(text, moment):
    assert instant_of_date(text) == datetime.fromisoformat(moment).timestamp() * 1_000_000


@pytest.mark.parametrize("text", ["1969-12-31", "0001-01-01T00:00:00Z"])
def test_a_date_before_1970_is_0(text):
    assert 0 == instant_of_date(text)


@pytest.mark.parametrize(
    "text",
    ["", "0000", "2026-13", "2026-02-29", "2026-11-28T24:00Z", "2026-11-28T10:60Z", "20-11-28", "+2026", "daily"],
)
def test_a_text_that_is_no_date_is_unreadable(text):
    assert instant_of_date(text) is None


KEYS = b"fingerprint keys", b"keys of all slots"[:16]
PAGES, VISITS_A_DAY, STEPS_A_DAY, DAYS, SETTLED = 40, 8, 24, 90, 45


def freshness(rule: str, stamps: str) -> tuple[float, int]:
    """The share of fresh copies of pages that change at random moments, and the visits. stamps: `true` dates, `false`
    ones (each page each day), or `none`."""
    chance = np.random.default_rng(3)
    rates = chance.uniform(0.02, 0.5, PAGES)
    changes = [np.cumsum(chance.exponential(1 / rate, 100)) for rate in rates]
    world = World(disk=FaultyFiles(), keys=KEYS, seed=3, delay=0, delay_factor=0, revisit=rule, rate=VISITS_A_DAY / DAY)
    urls, start = [f"{A}{number}" for number in range(PAGES)], world.clock()
    kept = (start - instant(DAY)).to_bytes(8, "little").hex() + "0000" if stamps != "none" else None
    same = {"state": "waiting", "reason": "planned", "due": start, "fetched_at": start, "status": 200, "signals": kept}
    world.frontier.restore([{**same, "url": url, "digest": f"{url} 0".encode().hex()} for url in urls])
    seen, fresh, visits, before = np.zeros(PAGES), 0.0, 0, 0.0
    for step in range(DAYS * STEPS_A_DAY):
        day = step / STEPS_A_DAY
        last = [float(one[np.searchsorted(one, day) - 1]) if one[0] < day else 0.0 for one in changes]
        dated = {url: start + instant(at * DAY) for url, at in zip(urls, last, strict=True) if at > before}
        if stamps == "false":
            dated = dict.fromkeys(urls, world.clock()) if not step % STEPS_A_DAY else {}
        if dated and stamps != "none":
            world.frontier.discover([Link(url, modified=at) for url, at in dated.items()])
        before = day
        for lease in world.lease(5):
            row = urls.index(lease.url)
            seen[row], version = day, int(np.searchsorted(changes[row], day))
            world.report(lease.done(seconds=0.0, digest=f"{lease.url} {version}".encode()))
            visits += day >= SETTLED
        if day >= SETTLED:
            ends = [one[np.searchsorted(one, at)] for one, at in zip(changes, seen.tolist(), strict=True)]
            fresh += float(np.clip(np.array(ends) - day, 0.0, 1 / STEPS_A_DAY).sum())
        world.clock.move(DAY / STEPS_A_DAY)
    return fresh / PAGES / (DAYS - SETTLED), visits


@pytest.mark.long
@pytest.mark.parametrize("rule", ["optimal", "uniform"])
def test_true_dates_make_copies_fresher_at_the_same_cost_and_false_ones_do_no_harm(rule):
    found = {stamps: freshness(rule, stamps) for stamps in ("none", "true", "false")}
    shares, visits = ({stamps: one[place] for stamps, one in found.items()} for place in (0, 1))
    assert max(visits.values()) - min(visits.values()) <= 2
    assert shares["true"] > shares["none"] + 0.03, shares
    assert shares["false"] > shares["none"] - 0.05, shares


def test_daily_dates_of_no_weight_do_not_postpone_the_looks_at_a_page():
    world = World(delay=0, delay_factor=0, revisit="optimal", rate=2 / DAY)
    fetched(world, A)
    world.discover(*[f"{A}{number}" for number in range(4)])
    visits = 0
    for _ in range(40):
        world.frontier.discover([Link(A, modified=world.clock())])
        for _ in range(4):
            for lease in world.lease(1):
                visits += lease.url == A
                world.report(lease.done(seconds=0.0, digest=lease.url.encode()))
            world.clock.move(DAY / 4)
    assert visits >= 3
