"""Verdicts on robots.txt whose cause is on our own side: how long they are valid, and how an operator drops any
verdict."""

from __future__ import annotations

import pytest

from model.world import World, outcome, recount
from outrider.errors import SettingsError
from outrider.journey import Kind, RobotsAnswer
from outrider.limits import ROBOTS_GUARDED_SECONDS, ROBOTS_GUARDED_TIMES_MAX

A, B = "http://a.com/", "http://a.com/b"
NO = b"User-agent: *\nDisallow: /"
YES = b"User-agent: *\nDisallow:"
UNTRIED = ["blocked_address", "dns_unknown"]  # nothing was sent: the pages end at once
FAILED = ["dns_temporary", "connect_refused", "connect_timeout", "tls", "decode", "reset", "truncated", "internal"]


@pytest.fixture
def world():
    return World(robots="errands")


def asked(world, worker=None):
    """Returns the possible errands for robots.txt."""
    return [one for one in world.lease(errands=True, worker=worker) if one.kind is Kind.ROBOTS]


def fails(world, error, times=1, worker=None):
    """Lets a robots.txt fail `times` times in a row. The world's clock moves to each attempt."""
    for number in range(times):
        world.clock.move(301 if number else 1)
        (lease,) = asked(world, worker)
        world.report(outcome(lease, seconds=0.0, error=error, robots=RobotsAnswer(None), answered=False))


def drawn(world):
    """Returns the pages that can be leased after the delay of their host."""
    world.clock.move(1)
    return world.urls(errands=True)


def answers(world, status=200, body=YES, worker=None):
    world.clock.move(1)
    (lease,) = asked(world, worker)
    world.report(lease.robots(status, body, seconds=0.0))


@pytest.mark.parametrize("error", FAILED)
def test_a_failure_closes_a_host_for_a_minute_at_most_once_the_process_has_changed(world, error):
    world.discover(A)
    fails(world, error, times=4)
    world.clock.move(60)  # a host whose connections fail waits longer
    assert ([], "robots_unreachable") == (drawn(world), world.reason(A))
    world.clock.move(3_600)
    assert [] == asked(world)
    world.reopen()
    world.clock.move(60)
    answers(world)
    world.clock.move(300)
    assert ([A], []) == (world.urls(), recount(world.frontier))


@pytest.mark.parametrize("error", UNTRIED)
def test_an_unreachable_host_is_retried_once_the_process_has_changed(world, error):
    world.discover(A)
    fails(world, error)
    assert ([], "gone") == (drawn(world), world.state(A))
    world.discover(B)
    assert ([], "gone") == (drawn(world), world.state(B))
    world.reopen()
    assert 2 == world.frontier.retry(error=error)
    answers(world)
    world.clock.move(1)
    assert ([A], []) == (world.urls(), recount(world.frontier))


@pytest.mark.parametrize("status", [500, 503, 429])
def test_an_answer_of_the_site_is_valid_for_a_day_for_every_process(world, status):
    world.discover(A)
    for number in range(4):
        world.clock.move(301 * min(number, 1))
        answers(world, status, b"")
    drawn(world)
    world.reopen()
    world.clock.move(3_600)
    assert [] == asked(world)


def test_a_challenge_is_an_answer_of_the_site(world):
    world.discover(A)
    fails(world, "not_welcome", times=4)
    drawn(world)
    world.reopen()
    world.clock.move(3_600)
    assert [] == asked(world)


def test_a_failure_after_a_change_closes_the_host_again_at_once(world):
    world.discover(A)
    fails(world, "connect_refused", times=4)
    drawn(world)
    world.reopen()
    world.clock.move(60)
    fails(world, "connect_refused")
    world.clock.move(3_600)
    assert ([], True) == (asked(world), world.frontier.finished())


def test_a_host_is_retried_as_rarely_as_after_its_first_failure_however_often_processes_change(world):
    world.discover(A)
    fails(world, "tls", times=4)
    drawn(world)
    for _ in range(3):
        world.reopen()
        world.clock.move(1)
        assert [] == asked(world)


def test_the_wait_before_a_retry_is_a_minute_at_most_once_the_process_has_changed(world):
    world.discover(A)
    fails(world, "connect_refused", times=3)  # the next attempt would follow after 300 s
    world.reopen()
    world.clock.move(60)
    assert 1 == len(asked(world))


# -- several workers


def test_a_worker_whose_guard_refuses_does_not_affect_other_workers(world):
    world.discover(A)
    fails(world, "blocked_address", worker="without")
    world.clock.move(ROBOTS_GUARDED_SECONDS)
    answers(world, worker="with")
    world.clock.move(1)
    assert ([A], []) == (world.urls(), recount(world.frontier))


def test_a_host_that_all_workers_refuse_keeps_no_crawl_open_and_loses_no_page(world):
    world.discover(A)
    for _ in range(ROBOTS_GUARDED_TIMES_MAX):
        assert not world.frontier.finished()
        fails(world, "blocked_address", worker="without")
        world.clock.move(ROBOTS_GUARDED_SECONDS)
    world.lease(errands=True, worker="without")
    assert ("parked", True) == (world.state(A), world.frontier.finished())
    world.frontier._ask_sooner()  # another worker registers
    world.clock.move(60)
    assert not world.frontier.finished()
    answers(world, worker="with")
    world.clock.move(1)
    assert ([A], []) == (world.urls(), recount(world.frontier))


def test_another_failure_begins_with_its_first_attempt_after_refusals_of_guards(world):
    world.discover(A)
    for _ in range(5):
        fails(world, "blocked_address", worker="without")
        world.clock.move(ROBOTS_GUARDED_SECONDS)
    fails(world, "tls", worker="with")
    world.clock.move(5)
    assert 1 == len(asked(world, "with"))


# -- the word of an operator


@pytest.mark.parametrize("host", ["a.com", "A.COM", "a.com."])
def test_recheck_requests_the_file_of_a_closed_host_at_once(world, host):
    world.discover(A)
    fails(world, "tls", times=4)
    drawn(world)
    assert 1 == world.frontier.recheck(host)
    answers(world)
    world.clock.move(1)
    assert ([A], []) == (world.urls(), recount(world.frontier))


@pytest.mark.parametrize("error", UNTRIED)
def test_recheck_returns_pages_that_the_verdict_ended(world, error):
    world.discover(A, B)
    fails(world, error)
    assert [] == drawn(world)
    assert ("gone", "gone") == (world.state(A), world.state(B))
    assert 1 == world.frontier.recheck("a.com")
    answers(world)
    world.clock.move(1)
    assert ([A], []) == (world.urls(), recount(world.frontier))


def test_recheck_drops_rules_that_were_read(world):
    world.discover(A, B)
    answers(world, body=NO)
    assert [] == drawn(world)
    assert "robots" == world.reason(A)
    assert 1 == world.frontier.recheck("a.com")
    answers(world, body=YES)
    world.clock.move(1)
    assert 1 == len(world.urls())


def test_rules_that_were_read_are_valid_again_where_the_recheck_fails(world):
    world.discover(A)
    answers(world, body=YES)
    world.clock.move(1)
    world.frontier.recheck("a.com")
    fails(world, "tls")
    assert [A] == drawn(world)


def test_recheck_leaves_an_open_errand_its_lease(world):
    world.discover(A)
    (lease,) = asked(world)
    assert 0 == world.frontier.recheck("a.com")
    assert ["ok"] == world.report(lease.robots(404, seconds=0.0))
    world.clock.move(1)
    assert ([A], []) == (world.urls(), recount(world.frontier))


def test_recheck_survives_a_kill(world):
    world.discover(A)
    fails(world, "tls", times=4)
    drawn(world)
    world.frontier.recheck("a.com")
    world.kill()
    answers(world)
    assert [] == recount(world.frontier)


@pytest.mark.parametrize("host", ["nobody.test", "not a host", ""])
def test_recheck_of_an_unknown_host_is_refused(world, host):
    world.discover(A)
    with pytest.raises(SettingsError, match="host"):
        world.frontier.recheck(host)


def test_a_verdict_of_the_process_before_is_dropped_when_a_new_page_of_the_host_is_found(world):
    world.discover(A)
    fails(world, "dns_unknown")
    drawn(world)
    world.clock.move(120)
    world.reopen()
    world.discover(B)
    answers(world)
    world.clock.move(1)
    assert [B] == world.urls()
