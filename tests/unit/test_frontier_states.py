"""The table of states: each row, and the event that moves a URL out of it."""

from __future__ import annotations

import pytest

from limiting import set_limits
from model.world import START, World, outcome, recount
from outrider import Link
from outrider.clock import instant, seconds

A = "http://a.com/"


@pytest.fixture
def world():
    return World()


# -- unknown → queued, waiting, parked


def test_a_new_url_is_queued(world):
    world.discover(A)
    assert "queued" == world.state(A)


def test_an_undiscovered_url_is_unknown(world):
    assert "unknown" == world.state("http://nobody.com/")


def test_an_invalid_url_is_unknown(world):
    assert "unknown" == world.state("nobody")


def test_a_url_with_a_not_before_in_the_future_waits(world):
    world.discover(Link(A, not_before=START + instant(10)))
    assert ["waiting"] == world.states([A])
    assert [] == world.urls()


def test_a_not_before_in_the_past_is_ignored(world):
    world.discover(Link(A, not_before=START - instant(10)))
    assert "queued" == world.state(A)


def test_a_url_of_a_host_whose_budget_is_used_up_is_parked():
    world = World(max_pages_per_host=1, delay=0)
    world.discover(A)
    world.report(world.one().done(seconds=0))
    assert ["parked"] == world.discover("http://a.com/2")
    assert ("parked", "budget") == (world.state("http://a.com/2"), world.reason("http://a.com/2"))


# -- queued → leased, parked(robots), waiting


def test_a_leased_url_is_leased(world):
    world.discover(A)
    lease = world.one()
    assert ("leased", lease.token) == (world.state(A), world.frontier.status(A).token)


def test_a_url_that_the_rules_forbid_is_parked_when_it_is_drawn(world):
    world.discover(A)
    world.frontier.set_robots("http://a.com", 200, b"User-agent: *\nDisallow: /")
    assert "queued" == world.state(A)
    assert [] == world.urls()
    assert ("parked", "robots") == (world.state(A), world.reason(A))


# -- leased → done, waiting, gone, queued


def test_a_page_that_was_fetched_is_done(world):
    world.discover(A)
    world.report(world.one().done(seconds=0.1))
    assert "done" == world.state(A)


def test_a_page_to_be_visited_again_waits_until_then(world):
    world.discover(A)
    world.report(world.one().again(at=START + instant(3600)))
    assert ("waiting", START + instant(3600)) == (world.state(A), world.frontier.status(A).due)


def test_a_page_to_be_visited_again_is_queued_when_due(world):
    world.discover(A)
    world.report(world.one().again(at=START + instant(3600)))
    world.clock.move(3599)
    assert [] == world.urls()
    world.clock.move(1)
    assert [A] == world.urls()


def test_a_failed_page_waits_5_seconds_then_30_then_300(world):
    world.discover(A)
    waits = []
    for _ in range(3):
        world.report(world.one().retry(error="timeout", seconds=0))
        due = world.frontier.status(A).due
        assert due is not None
        waits.append(seconds(due - world.clock()))
        world.clock.at = due
    assert [5.0, 30.0, 300.0] == waits


def test_a_page_that_failed_four_times_is_a_dead_letter(world):
    world.discover(A)
    for _ in range(4):
        world.report(world.one().retry(error="timeout", seconds=0))
        world.clock.move(400)
    assert ("gone", "timeout") == (world.state(A), world.reason(A))


def test_attempts_are_counted_from_one(world):
    world.discover(A)
    attempts = []
    for _ in range(4):
        lease = world.one()
        attempts.append(lease.attempt)
        world.report(lease.retry(error="timeout", seconds=0))
        world.clock.move(400)
    assert [1, 2, 3, 4] == attempts


def test_a_success_resets_the_attempts(world):
    world.discover(A)
    world.report(world.one().retry(error="timeout", seconds=0))
    world.clock.move(10)
    world.report(world.one().again(at=world.clock() + instant(10)))
    world.clock.move(10)
    assert 1 == world.one().attempt


def test_the_callers_own_wait_replaces_the_steps(world):
    world.discover(A)
    world.report(world.one().retry(after_seconds=77, seconds=0))
    assert START + instant(77) == world.frontier.status(A).due


def test_a_retry_is_not_due_before_its_host_may_be_visited(world):
    """T is the later of the retry's step and the host's clock."""
    world.discover(A)
    world.report(world.one().retry(error="status", status=503, retry_after_seconds=120, refused=True))
    assert START + instant(120) == world.frontier.status(A).due


@pytest.mark.parametrize("status", [404, 410])
def test_a_missing_page_is_gone(world, status):
    world.discover(A)
    world.report(world.one().gone(status=status))
    assert ("gone", status) == (world.state(A), world.frontier.status(A).status)


def test_a_lease_that_expires_queues_its_url_again(world):
    world.discover(A)
    world.lease(ttl_seconds=30)
    world.clock.move(30)
    assert [] == world.urls(), "the host rests one delay"
    assert "queued" == world.state(A)


def test_a_lease_lasts_until_its_deadline(world):
    world.discover(A)
    lease = world.one(ttl_seconds=30)
    world.clock.move(29.999999)
    assert ["ok"] == world.report(lease.done())


def test_an_expired_lease_delays_its_host_by_one_whole_delay():
    world = World(delay=7)
    world.discover(A)
    world.lease(ttl_seconds=30)
    world.clock.move(30)
    world.lease()
    assert 7.0 == world.ready_in()


def test_a_returned_lease_queues_its_url_at_once(world):
    world.discover(A)
    assert ["ok"] == [str(code) for code in world.frontier.release([world.one().token])]
    assert [A] == world.urls()


def test_the_fifth_loss_in_a_row_ends_a_url(world):
    world.discover(A)
    states = []
    for _ in range(5):
        world.one(ttl_seconds=10)
        world.clock.move(100)
        world.lease(0)
        states.append(world.state(A))
        world.clock.move(100)
    assert (["queued"] * 4 + ["gone"], "lost") == (states, world.reason(A))


def test_the_fifth_death_of_its_holder_in_a_row_ends_a_url(world):
    """Four processes that died with a URL leased leave it queued. After the fifth it is a dead letter."""
    world.discover(A)
    states = []
    for _ in range(5):
        world.one()
        world.kill()
        states.append(world.state(A))
        world.clock.move(100)
    assert (["queued"] * 4 + ["gone"], "lost") == (states, world.reason(A))


def test_events_that_count_against_no_url_do_not_end_a_series_of_losses(world):
    """A lease that was released or ended by a clean stop says nothing about a URL: neither good nor bad."""
    world.discover(A)
    for _ in range(4):
        world.one(ttl_seconds=10)
        world.clock.move(100)
        world.lease(0)
        world.clock.move(100)
        world.frontier.release([world.one().token])
        world.one()
        world.reopen()
        world.clock.move(100)
    assert "queued" == world.state(A)
    world.one(ttl_seconds=10)
    world.clock.move(100)
    world.lease(0)
    assert ("gone", "lost") == (world.state(A), world.reason(A))


def test_the_line_of_a_lost_url_is_in_the_next_answer_with_lines():
    world = World(output=True)
    world.discover(A)
    for _ in range(5):
        world.one(ttl_seconds=10)
        world.clock.move(100)
        world.frontier.extend([7], 60)
        world.clock.move(100)
    assert [("pages", True)] == [(stream, b'"error":"lost"' in line) for stream, line in world.lease(1).lines]


def test_only_consecutive_losses_count(world):
    world.discover(A)
    for _ in range(4):
        world.one(ttl_seconds=10)
        world.clock.move(100)
        world.lease(0)
        world.clock.move(100)
    world.report(world.one().retry(error="timeout", seconds=0))
    world.clock.move(100)
    world.one(ttl_seconds=10)
    world.clock.move(100)
    world.lease(0)
    assert "queued" == world.state(A)


def test_an_extended_lease_lasts_longer(world):
    world.discover(A)
    lease = world.one(ttl_seconds=30)
    world.frontier.extend([lease.token], 90)
    world.clock.move(89)
    assert ["ok"] == world.report(lease.done())


def test_a_redirect_to_itself_is_gone(world):
    world.discover(A)
    world.report(world.one().done(status=301, location="/#top"))
    assert ("gone", "redirect_self") == (world.state(A), world.reason(A))


# -- parked → queued


def test_a_url_parked_for_a_budget_continues_when_the_budget_has_grown():
    world = World(max_pages_per_host=1, delay=0)
    world.discover(A, "http://a.com/2")
    world.report(world.one().done(seconds=0))
    world.lease()
    assert {"done": 1, "parked": 1} == world.counts()
    world.reopen(max_pages_per_host=2)
    assert ["http://a.com/2"] == world.urls()


def test_a_parked_url_of_two_crawls_leaves_its_own_place():
    """`put` completes the URL of one crawl. The URL of the other crawl is still parked, and continues."""
    world = World(max_pages_per_host=1, delay=0)
    world.discover(A)
    world.report(world.one().done(seconds=0))
    world.discover(*(Link("http://a.com/2", crawl=crawl) for crawl in ("one", "other")))
    world.frontier.put([{"url": "http://a.com/2", "crawl": "other", "state": "done"}])
    assert {"done": 2, "parked": 1} == world.counts()
    world.reopen(max_pages_per_host=9)
    assert {"done": 2, "queued": 1} == world.counts()
    assert "one" == world.one().crawl
    assert [] == recount(world.frontier)


def test_a_url_parked_for_a_budget_still_waits_for_its_not_before_when_the_budget_has_grown():
    world = World(max_pages_per_host=1, delay=0)
    world.discover(A)
    world.report(world.one().done(seconds=0))
    world.discover(Link("http://a.com/2", not_before=START + instant(50)))
    world.reopen(max_pages_per_host=2)
    assert ({"done": 1, "waiting": 1}, []) == (world.counts(), world.urls())


def test_changed_rules_release_parked_urls(world):
    world.discover(A)
    world.frontier.set_robots("http://a.com", 200, b"User-agent: *\nDisallow: /")
    world.lease()
    world.frontier.set_robots("http://a.com", 200, b"User-agent: *\nDisallow: /private")
    assert (False, 0.0) == (world.frontier.finished(), world.ready_in())
    assert [A] == world.urls()


# -- counters


def test_every_accepted_url_is_in_one_state():
    world = World(max_pages_per_host=2, delay=0)
    world.discover(*[f"http://h{h}.com/{n}" for h in range(5) for n in range(4)])
    done, gone, retry, again, _ = world.lease(5)
    world.report(done.done(), gone.gone(status=404), retry.retry(error="x"), again.again(at=START + 9))
    statistics = world.frontier.statistics()
    urls: dict[str, int] = statistics["urls"]
    assert 20 == statistics["accepted"] == sum(urls.values())
    assert [] == recount(world.frontier)


def test_a_finished_crawl_has_no_queued_leased_or_waiting_urls(world):
    world.discover(A)
    finished = [world.frontier.finished()]
    lease = world.one()
    finished.append(world.frontier.finished())
    world.report(lease.retry(error="x"))
    finished.append(world.frontier.finished())
    world.clock.move(10)
    world.report(world.one().done())
    finished.append(world.frontier.finished())
    assert [False, False, False, True] == finished


def test_metadata_is_returned_with_the_lease(world):
    world.discover(Link(A, metadata={"from": "me", "n": [1, 2]}))
    assert {"from": "me", "n": [1, 2]} == world.one().metadata


def test_validators_of_the_last_visit_are_returned_with_the_next_lease(world):
    world.discover(A)
    lease = world.one()
    world.report(outcome(lease, "again", at=START + 9, status=200, etag='"x"', last_modified="yesterday"))
    world.clock.move(10)
    again = world.one()
    assert ('"x"', "yesterday") == (again.etag, again.last_modified)


def test_clean_stops_count_against_no_url(world):
    world.discover(A)
    for _ in range(4):
        world.one()
        world.reopen()
        world.clock.move(100)
    assert "queued" == world.state(A)


@pytest.mark.parametrize("passed", [0, 0.5])
def test_an_opening_that_ends_many_leases_works_in_pieces_and_delays_all_hosts(monkeypatch, passed):
    set_limits(monkeypatch, RESTS_PER_FRAME_MAX=3)
    world = World()
    urls = [f"http://h{number}.com/" for number in range(20)]
    world.discover(*urls)
    world.report(*[lease.done() for lease in world.lease(8)])
    world.lease(12)
    world.clock.move(passed)
    world.kill()
    assert [] == world.urls()
    world.clock.move(0.999 - passed)
    assert [] == world.urls()
    world.clock.move(0.001 + passed)
    assert 12 == len(world.urls())
    assert world.frontier.verify().ok
