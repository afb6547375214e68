"""Request ids: a repeated call has the effect of one call, also after the process died."""

from __future__ import annotations

import pytest

from limiting import set_limits
from model.world import World, recount
from outrider.errors import SettingsError
from outrider.limits import REQUEST_IDS_PER_CLIENT_MAX

A = "http://a.com/"


@pytest.fixture
def world():
    return World()


def test_a_repeated_discover_repeats_its_codes(world):
    codes = world.discover(A, "x:", request_id=("me", 1))
    assert codes == ["new", "invalid"] == world.discover(A, "x:", request_id=("me", 1))


def test_a_repeated_lease_returns_the_same_leases(world):
    world.discover(A, "http://b.com/")
    first = world.lease(request_id=("me", 1))
    assert list(first) == list(world.lease(request_id=("me", 1)))


def test_a_repeated_lease_leaves_out_what_was_reported_meanwhile(world):
    world.discover(A, "http://b.com/")
    first, second = world.lease(request_id=("me", 1))
    world.report(first.done())
    assert [second.url] == world.urls(request_id=("me", 1))


def test_a_repeated_report_repeats_its_codes_and_counts_once(world):
    world.discover(A)
    lease = world.one()
    first = world.frontier.report([lease.done(links=["http://b.com/", A])], request_id=("me", 1))
    again = world.frontier.report([lease.done(links=["http://b.com/", A])], request_id=("me", 1))
    assert (("ok",), (("new", "known"),)) == (first.outcomes, first.links) == (again.outcomes, again.links)
    assert 1 == world.frontier.statistics()["answered"]


def test_answers_are_repeated_after_a_kill(world):
    codes = world.discover(A, request_id=("me", 1))
    lease = world.lease(worker="w", request_id=("me", 2))[0]
    report = world.frontier.report([lease.done(links=["http://b.com/"])], request_id=("me", 3))
    world.kill()
    again = world.frontier.report([lease.done(links=["http://b.com/"])], request_id=("me", 3))
    assert codes == world.discover(A, request_id=("me", 1))
    assert [] == world.lease(worker="w", request_id=("me", 2)), "it was reported"
    assert (report.outcomes, report.links) == (again.outcomes, again.links)


def test_a_lease_of_a_named_worker_is_repeated_after_a_kill(world):
    world.discover(A)
    batch = world.lease(worker="w", request_id=("me", 1))
    world.kill()
    assert list(batch) == list(world.lease(worker="w", request_id=("me", 1)))


def test_answers_are_repeated_after_a_checkpoint(world):
    codes = world.discover(A, request_id=("me", 1))
    world.frontier.checkpoint()
    world.kill()
    assert codes == world.discover(A, request_id=("me", 1))


def test_sequences_of_two_clients_do_not_collide(world):
    world.discover(A, request_id=("me", 1))
    assert ["known"] == world.discover(A, request_id=("you", 1))


def test_a_sequence_used_for_another_verb_is_refused(world):
    world.discover(A, request_id=("me", 1))
    with pytest.raises(SettingsError, match="another verb"):
        world.lease(request_id=("me", 1))
    assert [A] == world.urls()


def test_the_last_1024_answers_of_a_client_are_kept(world):
    for sequence in range(REQUEST_IDS_PER_CLIENT_MAX + 1):
        world.discover(f"http://a.com/{sequence}", request_id=("me", sequence))
    assert (["known"], ["new"]) == (
        world.discover("http://a.com/0", request_id=("me", 0)),
        world.discover("http://a.com/2", request_id=("me", 2)),
    )


def test_stored_answers_have_a_size_limit_and_the_least_recently_used_client_loses_its_oldest_first(world, monkeypatch):
    set_limits(monkeypatch, REQUEST_BYTES_MAX=100)
    world.discover(*[f"http://a.com/{n}" for n in range(40)], request_id=("old", 1))
    world.discover(*[f"http://a.com/{n}" for n in range(40)], request_id=("old", 2))
    world.discover(*[f"http://a.com/{n}" for n in range(40)], request_id=("new", 1))
    tables = world.inspect().tables
    kept = {client: list(window) for client, window in tables.registry.requests.items()}
    assert ({"old": [2], "new": [1]}, 80) == (kept, tables.registry.request_bytes)


def test_a_repeated_lease_leaves_out_what_expired_meanwhile(world):
    world.discover(A)
    world.lease(request_id=("me", 1), ttl_seconds=10)
    world.clock.move(10)
    assert [] == world.lease(request_id=("me", 1))


def test_an_empty_lease_is_not_stored(world):
    """A repeated request under the same id is a new request: the first one had no effect."""
    assert [] == world.lease(request_id=("me", 1))
    world.discover(A)
    assert [A] == world.urls(request_id=("me", 1))


def test_a_repeated_call_leaves_the_state_consistent(world):
    world.discover(A, "http://b.com/", request_id=("me", 1))
    batch = world.lease(request_id=("me", 2))
    world.lease(request_id=("me", 2))
    world.frontier.report([lease.done() for lease in batch], request_id=("me", 3))
    world.frontier.report([lease.done() for lease in batch], request_id=("me", 3))
    assert ([], {"done": 2}) == (recount(world.frontier), world.counts())


@pytest.mark.parametrize("outcomes", [None, 5, (1 / 0 for _ in "x")])
def test_unreadable_outcomes_are_refused_and_the_frontier_continues(world, outcomes):
    world.discover(A)
    with pytest.raises(SettingsError, match="outcomes cannot be read"):
        world.frontier.report(outcomes)
    assert 1 == len(world.lease())


@pytest.mark.parametrize("links", [None, "http://b.com/", (1 / 0 for _ in "x")])
def test_links_that_are_not_a_list_are_refused_and_the_lease_stays_open(world, links):
    world.discover(A)
    (lease,) = world.lease()
    with pytest.raises(SettingsError, match="they must be a list of links"):
        world.frontier.report([lease.done(links=links)])
    assert ["ok"] == list(world.frontier.report([lease.done()]))


@pytest.mark.parametrize("links", [None, 5, [5], [(0,)], [("a", "http://b.com/")], [(7, "http://b.com/")]])
def test_links_that_name_no_outcome_are_refused_and_the_lease_stays_open(world, links):
    world.discover(A)
    (lease,) = world.lease()
    with pytest.raises(SettingsError):
        world.frontier.report([lease.done()], links)
    assert ["ok"] == list(world.frontier.report([lease.done()], [(0, "http://b.com/")]))
