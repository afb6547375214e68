"""A robots.txt that cannot be fetched: counted as an error, and named with its attempts by explain and why-idle."""

from __future__ import annotations

import pytest

from model.world import World, outcome
from outrider import Frontier
from outrider.causes import STOPPED, error_words
from outrider.journey import Kind, RobotsAnswer

A, B = "http://a.test/", "http://b.test:8080/x"
FAILURES = (
    *("connect_refused", "reset", "empty_reply", "connect_timeout", "first_byte_timeout", "total_timeout"),
    *("dns_temporary", "tls", "malformed", "unreachable"),
)


def failed(world, error, status=None):
    (lease,) = [one for one in world.lease(10, errands=True) if one.kind is Kind.ROBOTS]
    world.report(outcome(lease, seconds=0.0, status=status, error=error, robots=RobotsAnswer(status)))


def asked(*urls):
    world = World(robots="errands", delay=1.0, delay_factor=0.0)
    world.discover(*urls)
    return world


@pytest.mark.parametrize("error", FAILURES)
def test_each_failed_attempt_is_counted_and_explained(error):
    world = asked(A)
    for attempt, wait in ((1, "5 s"), (2, "30 s"), (3, "5 min")):
        failed(world, error)
        assert {error: attempt} == world.frontier.statistics()["errors"]
        words = f"robots.txt of a.test: {error_words(error)}, tried {attempt} of 4 times, next in {wait}"
        found = world.frontier.explain(A)
        assert ("robots", True) == (found.reason_now, words in found.reason_text), found.reason_text
        assert words in world.frontier.explain_idle().text
        world.clock.move(world.frontier.next_ready_seconds())
    failed(world, error)
    for _ in range(2):  # before a lease judges the page, and after it
        text = world.frontier.explain(A).reason_text
        assert f"{error_words(error)}, tried 4 of 4 times, next in " in text
        world.clock.move(60.0)
        assert [] == list(world.lease(errands=True))
    assert {error: 4, "robots_unreachable": 1} == world.frontier.statistics()["errors"]


def test_the_seconds_to_the_next_attempt_count_down():
    world = asked(A)
    failed(world, "connect_refused")
    world.clock.move(world.frontier.next_ready_seconds())
    failed(world, "connect_refused")
    world.clock.move(9.0)
    assert "tried 2 of 4 times, next in 21 s" in world.frontier.explain(A).reason_text
    assert "tried 2 of 4 times, next in 21 s" in world.frontier.explain_idle().text


def test_a_status_without_rules_is_a_failure_too():
    world = asked(B)
    failed(world, None, 503)
    assert {"http_503": 1} == world.frontier.statistics()["errors"]
    words = "robots.txt of b.test:8080: the server answered 503 Service Unavailable, tried 1 of 4 times"
    assert words in world.frontier.explain(B).reason_text


def test_a_name_that_does_not_resolve_is_counted_once_for_each_page():
    world = asked(A, A + "2")
    failed(world, "dns_unknown")
    world.clock.move(60.0)
    assert [] == world.urls(10)
    world.clock.move(60.0)
    assert [] == world.urls(10)
    assert {"dns_unknown": 2} == world.frontier.statistics()["errors"]
    assert "the host name does not resolve" in world.frontier.explain(A).reason_text


def test_a_good_answer_and_a_cancelled_request_do_not_count_as_errors():
    world = asked(A)
    failed(world, STOPPED)
    assert {} == world.frontier.statistics()["errors"]
    world.clock.move(world.frontier.next_ready_seconds())
    failed(world, None, 404)
    assert {} == world.frontier.statistics()["errors"]
    assert "robots.txt of" not in world.frontier.explain_idle().text


def test_rules_from_a_caller_are_not_a_request():
    world = World(robots="caller")
    world.discover(A)
    world.frontier.set_robots("http://a.test", 503)
    assert {} == world.frontier.statistics()["errors"]


def test_the_first_of_many_failed_files_are_named():
    world = asked(*(f"http://h{number}.test/" for number in range(6)))
    for lease in world.lease(10, errands=True):
        world.report(outcome(lease, seconds=0.0, error="reset", robots=RobotsAnswer(None)))
    text = world.frontier.explain_idle().text
    assert (3, True) == (text.count("connection reset"), "3 more robots.txt" in text), text


def test_a_query_of_a_stopped_store_returns_the_same(tmp_path):
    now = [1_700_000_000_000_000]
    with Frontier.open(tmp_path / "store", clock=lambda: now[0], robots="errands") as frontier:
        frontier.discover([A])
        (lease,) = frontier.lease(1, errands=True)
        frontier.report([outcome(lease, seconds=0.1, error="connect_refused", robots=RobotsAnswer(None))])
    with Frontier.look(tmp_path / "store", robots="errands") as look:
        for text in (look.explain(A).reason_text, look.explain_idle().text):
            assert "robots.txt of a.test: connection refused, tried 1 of 4 times, next in 5 s" in text
