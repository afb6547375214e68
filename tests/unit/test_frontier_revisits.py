"""Pages that are visited regularly: a bad answer makes their visits rarer and does not end them."""

from __future__ import annotations

import numpy as np
import pytest

from model.world import World, outcome
from outrider.clock import instant
from outrider.errors import SettingsError
from outrider.frontier.policy.revisit import CODE_MAX, bad_answer_seconds, codes_of, pauses_of
from outrider.journey import Lease, Outcome
from outrider.limits import BAD_ANSWER_SECONDS, BAD_ANSWER_SECONDS_MAX, BAD_ANSWERS_MAX

A = "http://a.com/"
HOUR = 3_600.0
FETCHED, MADE = 1_700_000_000_000_000, 1_600_000_000_000_000

BAD = {
    "a redirect": lambda lease: lease.done(status=302, location="http://c.com/x"),
    "a permanent redirect": lambda lease: lease.done(status=301, location="http://b.com/"),
    "a redirect to itself": lambda lease: lease.done(status=301, location=A),
    "a redirect without a target": lambda lease: lease.gone(status=302, error="bad_location"),
    "a redirect that is called done": lambda lease: lease.done(status=303),
    "400": lambda lease: lease.gone(status=400),
    "403": lambda lease: lease.gone(status=403),
    "404": lambda lease: lease.gone(status=404),
    "410": lambda lease: lease.gone(status=410),
    "451": lambda lease: lease.gone(status=451),
    "500": lambda lease: lease.gone(status=500),
    "500 that may pass": lambda lease: lease.retry(status=500),
    "an answer that is malformed": lambda lease: lease.gone(error="protocol"),
    "an unknown coding": lambda lease: lease.gone(status=200, error="decode"),
    "no answer": lambda lease: lease.retry(error="timeout"),
    "no connection": lambda lease: lease.gone(error="tls"),
    "a hook that failed": lambda lease: outcome(lease, "gone", status=200, error="hook_on_page"),
}


@pytest.fixture
def world():
    return World(delay=0)


def good(world: World, lease: Lease, after: float = HOUR) -> Outcome:
    return lease.again(at=world.clock() + instant(after))


def scheduled(world: World, after: float = HOUR) -> None:
    """Makes one good visit of the page, and moves the clock to the next one."""
    world.discover(A)
    world.report(good(world, world.one(), after))
    world.clock.move(after)


def of_page(world: World) -> Lease:
    (lease,) = [lease for lease in world.lease() if lease.url == A]
    return lease


def wait(world: World) -> float:
    """Moves the clock to the next visit of the page. Returns the seconds."""
    due = world.frontier.status(A).due
    seconds = (due - world.clock()) / 1_000_000
    world.clock.move(seconds)
    return seconds


@pytest.mark.parametrize("kind", BAD)
def test_one_bad_answer_between_good_ones_delays_the_next_visit(world, kind):
    scheduled(world)
    world.report(BAD[kind](of_page(world)))
    assert "waiting" == world.state(A)
    if "may pass" in kind or kind == "no answer":
        assert 5.0 == wait(world)  # the retries are first
    else:
        assert 2 * HOUR <= wait(world) <= 2.4 * HOUR
    world.report(good(world, of_page(world)))
    assert ("waiting", HOUR) == (world.state(A), wait(world))


@pytest.mark.parametrize("kind", BAD)
def test_after_ten_bad_answers_in_a_row_over_a_week_a_page_is_abandoned(world, kind):
    scheduled(world, 1.0)
    waits = []
    for _ in range(BAD_ANSWERS_MAX - 1):
        world.report(BAD[kind](of_page(world)))
        assert "waiting" == world.state(A)
        waits.append(wait(world))
    assert 7 * 86_400 < sum(waits)
    assert waits == sorted(waits)
    world.report(BAD[kind](of_page(world)))
    redirected = "redirect" in kind and "itself" not in kind and "without" not in kind
    assert ("done" if redirected else "gone") == world.state(A)
    assert world.frontier.verify().ok


def test_a_good_answer_resets_the_count(world):
    scheduled(world, 1.0)
    for _ in range(3 * BAD_ANSWERS_MAX):
        world.report(of_page(world).gone(status=404))
        assert 2 <= wait(world) <= 2.5
        world.report(good(world, of_page(world), 1.0))
        wait(world)


def test_a_page_without_a_schedule_is_gone_with_its_first_404(world):
    world.discover(A)
    world.report(world.one().gone(status=404))
    assert "gone" == world.state(A)


def test_a_caller_ends_the_visits_by_done_or_by_gone_without_a_reason(world):
    for end, state in ((lambda lease: lease.done(), "done"), (lambda lease: lease.gone(), "gone")):
        world = World(delay=0)
        scheduled(world)
        world.report(end(of_page(world)))
        assert state == world.state(A)


def test_an_unchanged_page_may_end_its_visits(world):
    scheduled(world)
    world.report(of_page(world).done(status=304))
    assert "done" == world.state(A)


def test_an_abandoned_page_has_its_schedule_when_an_operator_queues_it_again(world):
    scheduled(world, 1.0)
    for _ in range(BAD_ANSWERS_MAX):
        world.report(of_page(world).gone(status=404))
        if world.state(A) == "waiting":
            wait(world)
    assert 1 == world.frontier.retry()
    world.report(of_page(world).gone(status=404))
    assert "waiting" == world.state(A)


def test_a_cancelled_request_does_not_change_schedule_and_count(world):
    scheduled(world)
    world.report(of_page(world).gone(status=404))
    wait(world)
    lease = of_page(world)
    world.report(outcome(lease, "again", at=world.clock(), error="stopped", answered=False))
    assert 2 == of_page(world).attempt
    world.frontier.release([world.frontier.status(A).token])
    world.report(of_page(world).gone(status=404))
    assert 4 * HOUR <= wait(world) <= 4.8 * HOUR


@pytest.mark.parametrize("begin_anew", ["reopen", "kill"])
def test_a_schedule_survives_the_process(world, begin_anew):
    scheduled(world)
    world.report(of_page(world).gone(status=404))
    getattr(world, begin_anew)()
    assert 2 * HOUR <= wait(world) <= 2.4 * HOUR
    world.report(of_page(world).gone(status=404))
    assert 4 * HOUR <= wait(world) <= 4.8 * HOUR


def test_a_schedule_is_exported_with_its_url(world):
    scheduled(world)
    world.report(of_page(world).gone(status=404))
    records = list(world.frontier.records())
    assert [True] == [HOUR <= one["revisit_seconds"] <= 1.2 * HOUR for one in records]
    other = World(delay=0, clock=world.clock)
    other.frontier.restore(records)
    wait(other)
    other.report(of_page(other).gone(status=404))
    assert "waiting" == other.state(A)


def test_explain_names_the_bad_answers(world):
    scheduled(world)
    world.report(of_page(world).gone(status=404))
    text = world.frontier.explain(A).reason_text
    assert "1 bad answer" in text
    assert "404" in text
    assert str(BAD_ANSWERS_MAX) in text


def test_the_wait_that_a_site_requires_is_before_the_schedule(world):
    scheduled(world, 1.0)
    world.report(outcome(of_page(world), "gone", status=404, seconds=0.1, retry_after_seconds=900.0))
    assert 900 == wait(world)


def test_the_code_of_a_pause_lengthens_it_by_a_fifth_at_most_and_never_shortens_it():
    pauses = np.geomspace(1.0, 10 * 365 * 86_400, 5_000)
    kept = pauses_of(codes_of(pauses))
    assert (kept >= pauses * (1 - 1e-6)).all()
    assert (kept <= pauses * 1.1893).all()
    assert [1, 1, CODE_MAX] == codes_of([0.0, -5.0, 1e300]).tolist()
    assert [1.0, 2.0, 1_024.0] == pauses_of(codes_of([1.0, 2.0, 1_024.0])).tolist()


def test_pauses_grow_with_each_bad_answer_up_to_a_month_or_the_schedule():
    for usual in (1.0, 60.0, 86_400.0, 10 * 365 * 86_400.0):
        codes = np.full(BAD_ANSWERS_MAX - 1, codes_of([usual])[0])
        pauses = bad_answer_seconds(codes, np.arange(1, BAD_ANSWERS_MAX))
        assert (np.diff(pauses) >= 0).all()
        assert pauses.max() <= max(BAD_ANSWER_SECONDS_MAX, pauses_of(codes)[0])
        assert (pauses >= np.array(BAD_ANSWER_SECONDS)).all()


def kept_bytes(world: World) -> bytes:
    (cards,) = world.inspect().tables.urls.ledger.scan()
    return cards.extra_of(0)


def test_answered_fetches_are_counted_and_the_first_needs_no_byte(world):
    world.discover(A)
    lease = world.one()
    world.report(lease.retry(error="timeout"))
    world.clock.move(10.0)
    lease = world.one()
    assert 0 == lease.visits
    world.report(good(world, lease))
    assert b"" == kept_bytes(world)
    for visits in (1, 2, 3):
        world.clock.move(2 * HOUR)
        lease = world.one()
        assert visits == lease.visits
        world.report(good(world, lease))
    world.clock.move(2 * HOUR)
    world.report(world.one().retry(status=503))
    world.reopen()
    (record,) = world.frontier.records()
    assert (5, None) == (record["visits"], record["created_at"])
    assert 0 < len(kept_bytes(world)) < 8


def test_visits_and_the_time_of_making_are_imported_and_exported(world):
    records = [
        {
            "url": A,
            "state": "done",
            "fetched_at": 1_700_000_000_000_000,
            "visits": 9,
            "created_at": 1_600_000_000_000_000,
        },
        {"url": A + "b", "state": "done", "fetched_at": FETCHED, "visits": 1},
    ]
    world.frontier.restore(records)
    copied = list(world.frontier.records())
    assert [(9, MADE), (1, None)] == [(one["visits"], one["created_at"]) for one in copied]
    copy = World()
    copy.frontier.restore(copied)
    assert copied == list(copy.frontier.records())
    world.frontier.requeue([A])
    assert 9 == world.one().visits


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"urls": {A: 0.3}}, "pass a list of URLs"),
        ({"urls": [A], "at": -1}, "at -1: it must be a whole number"),
    ],
)
def test_a_wrong_requeue_is_refused_by_name(wrong, message):
    world = World()
    with pytest.raises(SettingsError, match=message):
        world.frontier.requeue(**wrong)
