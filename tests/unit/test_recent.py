"""URLs that were recently accepted or seen are known at once. A URL that is missing from the table may still be
known."""

from __future__ import annotations

import numpy as np
import pytest

from model.world import World
from outrider import Link
from outrider.frontier.stores.recent import Recent
from outrider.limits import RECENT_BITS_STEPS

A = "http://a.com/"


def marks(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.uint64)


def many(count: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, 1 << 64, count, np.uint64)


@pytest.fixture
def world():
    return World()


def test_noted_urls_are_in_the_table():
    recent = Recent()
    recent.note(marks(1, 1 << 60, (1 << 64) - 1))
    assert [True, True, True, False] == recent.hold(marks((1 << 64) - 1, 1, 1 << 60, 2)).tolist()


@pytest.mark.parametrize("mark", [0, 1, 1 << 63, (1 << 64) - 1])
def test_only_noted_urls_are_in_the_table(mark):
    recent = Recent()
    assert [False] == recent.hold(marks(mark)).tolist()
    recent.note(marks(mark))
    assert [True] == recent.hold(marks(mark)).tolist()


def test_a_later_url_replaces_the_earlier_one():
    recent = Recent()
    recent.note(marks(5))
    recent.note(marks(6))
    assert [False, True] == recent.hold(marks(5, 6)).tolist()


def test_the_later_of_two_urls_in_one_call_replaces_the_earlier():
    recent = Recent()
    recent.note(marks(5, 6))
    assert [False, True] == recent.hold(marks(5, 6)).tolist()


def test_a_longer_table_still_contains_the_urls_of_the_shorter_one():
    recent, some = Recent(), many(20_000)
    for first in range(0, len(some), 1_000):
        recent.note(some[first : first + 1_000])
    held = recent.hold(some)
    assert recent.bytes() > 8 << RECENT_BITS_STEPS[1]
    assert held.mean() > 0.8
    assert held[:1_000].mean() > 0.5
    assert held[-1_000:].mean() > 0.98


def test_the_table_grows_only_to_its_limit():
    recent = Recent()
    for seed in range(40):
        recent.note(many(100_000, seed))
    assert 8 << RECENT_BITS_STEPS[-1] == recent.bytes()


def test_the_table_is_empty_after_a_deletion():
    recent, some = Recent(), many(20_000)
    recent.note(some)
    recent.forget()
    assert not recent.hold(some).any()
    assert 8 << RECENT_BITS_STEPS[0] == recent.bytes()


def test_a_seen_url_is_new_once_its_queue_is_deleted(world):
    world.discover(A)
    assert ["known"] == world.discover(A)
    world.frontier.delete("a.com")
    assert ["new", "known"] == world.discover(A, A)


def test_a_seen_url_is_new_in_a_crawl_that_is_made_again(world):
    assert ["new", "known"] == world.discover(Link(A, crawl="one"), Link(A, crawl="one"))
    world.frontier.delete(crawl="one")
    assert ["new", "known"] == world.discover(Link(A, crawl="one"), Link(A, crawl="one"))


def test_a_url_seen_in_one_crawl_is_new_in_another(world):
    world.discover(A)
    assert ["new"] == world.discover(Link(A, crawl="other"))


def test_a_url_that_was_refused_for_a_limit_is_not_known():
    world = World(max_urls=1)
    assert ["new", "over_limit"] == world.discover(A, A + "b")
    assert ["known", "over_limit"] == world.discover(A, A + "b")


def test_a_seen_url_is_out_of_scope_if_it_is_too_deep():
    world = World(max_depth=1, scope="any")
    assert ["new"] == world.discover(Link(A, depth=1))
    assert ["out_of_scope", "known"] == world.discover(Link(A, depth=2), Link(A, depth=1))


def test_a_seen_url_is_out_of_scope_if_a_pattern_refuses_the_link():
    world = World(exclude=["b"], scope="any")
    assert ["new"] == world.discover(A + "b")  # a seed
    assert ["out_of_scope"] == world.discover(Link(A + "b", depth=1))


def test_a_seen_url_is_over_the_limit_after_too_many_hops(world):
    world.discover(A)
    assert ["over_limit"] == world.discover(Link(A, hops=6))
