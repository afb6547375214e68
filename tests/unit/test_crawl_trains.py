"""Trains: when no gap is due, a crawl leases several URLs of a host in one turn, and requests them one after
another."""

from __future__ import annotations

import asyncio
import json

import pytest

from limiting import set_limits
from model.world import World
from outrider.crawl.run.settle import Settler
from outrider.crawl.run.trains import Trains
from outrider.errors import SettingsError
from outrider.limits import TRAIN_PAGES_MAX
from unit.test_crawl_loop import House, until

PAGES = [f"http://h0.test/{number}" for number in range(40)]


def watched(monkeypatch) -> list[tuple[int, int]]:
    """Notes how many visits each turn had, and how many of them were never sent."""
    turns: list[tuple[int, int]] = []
    turn = Settler.turn

    def noted(settler, visits, want, *more, **options):
        turns.append((len(visits), sum(one.stopped and one.began is None for one in visits)))
        return turn(settler, visits, want, *more, **options)

    monkeypatch.setattr(Settler, "turn", noted)
    return turns


def requests_of(house: House) -> list[dict]:
    return [json.loads(line) for line in (house.output / "politeness.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({}, 8),
        ({"delay_factor": 0.001}, 1),
        ({"host": ({"name": "h0.test", "retries": 1},)}, 1),
    ],
)
def test_a_host_without_gaps_answers_many_pages_in_a_turn_and_one_at_a_time(options, most, tmp_path, monkeypatch):
    """The site of this test fails when it gets two requests at once."""
    set_limits(monkeypatch, TRAIN_PAGES_MAX=8)
    turns = watched(monkeypatch)
    house = House(tmp_path, options, {"depth": 0})
    result = asyncio.run(house.run(seeds=PAGES))
    assert (0, sorted(PAGES)) == (result.exit_code, sorted(page["url"] for page in house.pages()))
    assert (most, 0) == (max(visits for visits, _ in turns), sum(unsent for _, unsent in turns))
    requests = sorted(requests_of(house), key=lambda one: one["started_at"])
    assert all(one["gap_required"] in (None, 0) or "delay_factor" in options for one in requests)
    ends = [None, *(one["ended_at"] for one in requests)]
    for one, ended in zip(requests, ends, strict=False):
        assert ended is None or (one["started_at"] >= ended and one["gap"] < 1.0)


def test_a_refusal_ends_the_train(tmp_path, monkeypatch):
    set_limits(monkeypatch, TRAIN_PAGES_MAX=8)
    turns = watched(monkeypatch)
    house = House(tmp_path, {"max_wait": 5}, {"depth": 0})
    house.refuses = {"http://h0.test/5": "3600"}
    result = asyncio.run(house.run(seeds=PAGES))
    assert (3, PAGES[:6]) == (result.exit_code, house.site.urls[1:])
    assert 8 - 6 == sum(unsent for _, unsent in turns)


def test_a_slow_train_returns_its_leases(tmp_path, monkeypatch):
    set_limits(monkeypatch, TRAIN_SECONDS_MAX=0.03)
    monkeypatch.setattr(Trains, "pages_max", 8)  # as if it had been quick before
    turns = watched(monkeypatch)
    house = House(tmp_path, {}, {"depth": 0, "seconds": 0.02})
    result = asyncio.run(house.run(seeds=PAGES))
    assert (0, sorted(PAGES)) == (result.exit_code, sorted(house.site.urls[1:]))
    assert 0 < sum(unsent for _, unsent in turns)


def test_a_stop_sends_no_further_request_of_a_train(tmp_path):
    asked = []

    async def beside(house):
        await until(lambda: house.site is not None and len(house.site.urls) >= 3)
        house.crawler.stop()
        asked.append(len(house.site.urls))

    house = House(tmp_path, {}, {"depth": 0, "seconds": 0.05})
    result = asyncio.run(house.run(beside, seeds=PAGES))
    assert (4, asked) == (result.exit_code, [len(house.site.urls)])
    assert len(PAGES) == result.statistics["urls"]["queued"] + len(house.pages())


@pytest.mark.parametrize(
    ("delay", "seconds", "count"), [(0.0, 0.0, 8), (1.0, 0.0, 1), (1.0, 2.5, 3), (1.0, None, 8), (20.0, None, 3)]
)
def test_the_frontier_leases_only_what_is_due_within_the_train(delay, seconds, count):
    world = World(delay=delay, delay_factor=0.0)
    world.discover(*PAGES)
    leases = world.lease(10, per_queue=8, train_seconds=seconds, ttl_seconds=60)
    assert [delay * number for number in range(count)] == [(one.not_before - world.clock()) / 1e6 for one in leases]


def test_trains_are_longer_when_sites_are_quicker():
    """A train that needs more than half of its time would return leases to no purpose."""
    trains = Trains()
    lengths = [trains.pages_max]
    for seconds in (0.001, 0.1, 5.0):
        for _ in range(200):
            trains.answered(seconds)
        lengths.append(trains.pages_max)
    assert [8, TRAIN_PAGES_MAX, 2, 1] == lengths


@pytest.mark.parametrize("seconds", [-1, "2", float("nan"), 1e9])
def test_an_invalid_length_is_refused(seconds):
    with pytest.raises(SettingsError, match="train_seconds"):
        World().lease(1, per_queue=2, train_seconds=seconds)
