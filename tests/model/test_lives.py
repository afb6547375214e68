"""Walks every row of the lives of a URL, a lease and a host with a real frontier; and checks the page made of them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from model.inside import inspect
from model.world import World, outcome
from outrider import Link
from outrider.clock import instant
from outrider.errors import TransitionError
from outrider.frontier.policy import lives
from outrider.limits import BAD_ANSWERS_MAX, LEASES_LOST_MAX, RETRY_SECONDS

PROJECT = Path(__file__).parents[2]
A, B = "http://a.com/", "http://a.com/b"
KEY = "a.com"
DAY = 86_400.0
LONG = 40 * DAY


# -- frontiers whose URL A is in some state


def fresh(**settings) -> World:
    return World(**{"delay": 0.0, "delay_factor": 0.0} | settings)


def queued(**settings) -> World:
    world = fresh(**settings)
    world.discover(A)
    return world


def leased(**settings) -> World:
    world = queued(**settings)
    world.token = world.one().token
    return world


def waiting() -> World:
    world = fresh()
    world.discover(Link(A, not_before=world.clock() + instant(10)))
    return world


def over_budget(**link) -> World:
    world = fresh(max_pages_per_host=1)
    world.discover(B)
    world.report(world.one().done(seconds=0.0, status=200))
    world.discover(Link(A, **link))
    return world


def refused() -> World:
    world = queued()
    world.frontier.set_robots("http://a.com", 200, b"User-agent: *\nDisallow: /\n")
    assert [] == world.urls()
    return world


def done() -> World:
    return reported(leased(), "done")


def gone() -> World:
    return reported(leased(), "gone", error="timeout")


MAKE: dict[str, Callable[[], World]] = {
    "unknown": fresh, "queued": queued, "leased": leased, "waiting": waiting, "parked": refused, "done": done,
    "gone": gone,
}  # fmt: skip


# -- what happens to them


def reported(world: World, verdict: str, **how) -> World:
    (lease,) = (one for one in [world.token] if one)
    told = {"seconds": 0.0, "status": None if "error" in how else 200} | how
    world.report(outcome(type("Given", (), {"token": lease}), verdict, **told))
    return world


def imported(state: str) -> World:
    records = list(MAKE[state]().frontier.records())
    world = fresh()
    world.frontier.restore(record for record in records if record["url"] == A)
    return world


def nobody_there() -> World:
    """A page whose errand for robots.txt reported a blocked address."""
    world = queued(robots="errands")
    (lease,) = world.lease(errands=True)
    world.report(outcome(lease, "gone", seconds=0.0, error="blocked_address"))
    world.lease(errands=True)
    return world


def dropped() -> World:
    world = fresh(max_urls=1, when_full="drop_lowest")
    world.discover(Link(A, priority=0.1))
    world.discover(Link(B, priority=0.9))
    return world


def failed(times: int, *, after: float | None = None) -> World:
    world = queued()
    for _ in range(times):
        world.clock.move(1_000.0)
        world.token = world.one().token
        reported(world, "retry", error="timeout", after_seconds=after)
    return world


def scheduled(**lease) -> World:
    """A page that is visited regularly, leased again."""
    world = reported(leased(), "again", at=None)
    world.token = world.one(**lease).token
    return world


def bad_answer_told_late() -> World:
    world = scheduled(ttl_seconds=DAY)
    ended = world.clock()
    world.clock.move(DAY - 1.0)
    return reported(world, "gone", error="timeout", ended_at=ended)


def lost(times: int) -> World:
    world = queued()
    for _ in range(times):
        world.lease(1, ttl_seconds=1.0)
        world.clock.move(2.0)
        world.lease(0)
    return world


def after(world: World, act: Callable[[World], object]) -> World:
    act(world)
    return world


def deferred(seconds: float) -> World:
    return after(leased(), lambda w: w.frontier.defer([w.token], w.clock() + instant(seconds)))


def passed(world: World, seconds: float) -> World:
    world.clock.move(seconds)
    world.lease(0)
    return world


def allowed() -> World:
    world = refused()
    world.frontier.set_robots("http://a.com", 200, b"")
    world.lease(0)
    return world


def budget_grown() -> World:
    world = fresh(max_pages_per_host=1)
    world.discover(B)
    world.report(world.one().done(seconds=0.0, status=200))
    world.discover(Link(A, not_before=world.clock() + instant(100.0)))
    world.reopen(max_pages_per_host=9)
    return world


def reprioritised(world: World) -> World:
    return after(world, lambda w: w.frontier.reprioritise([A], 0.97))


def put(world: World, state: str) -> World:
    due = world.clock() + instant(9.0) if state == "waiting" else None
    return after(world, lambda w: w.frontier.put([{"url": A, "state": state, "due": due}]))


def requeued(world: World, seconds: float) -> World:
    at = world.clock() + instant(seconds) if seconds else None
    return after(world, lambda w: w.frontier.requeue([A], at=at, priority=0.97))


URLS: dict[tuple[str, str, str], Callable[[], World]] = {
    ("unknown", "discovered", "queued"): queued,
    ("unknown", "discovered", "waiting"): waiting,
    ("unknown", "discovered", "parked"): over_budget,
    **{
        ("unknown", "imported", state): (lambda state=state: imported(state))
        for state in ("queued", "waiting", "parked", "done", "gone")
    },
    ("queued", "leased", "leased"): leased,
    ("queued", "changed in place", "queued"): lambda: reprioritised(queued()),
    ("queued", "drawn and refused", "parked"): refused,
    ("queued", "drawn and refused", "gone"): nobody_there,
    ("queued", "dropped", "gone"): dropped,
    ("leased", "reported done", "done"): done,
    ("leased", "redirected to itself", "gone"): lambda: reported(leased(), "done", status=301, location=A),
    ("leased", "reported gone", "gone"): gone,
    ("leased", "reported again", "queued"): lambda: reported(leased(), "again"),
    ("leased", "reported again", "waiting"): lambda: after(
        leased(), lambda w: reported(w, "again", at=w.clock() + instant(9.0))
    ),
    ("leased", "failed", "queued"): lambda: failed(1, after=0.0),
    ("leased", "failed", "waiting"): lambda: failed(1),
    ("leased", "failed", "gone"): lambda: failed(len(RETRY_SECONDS) + 1),
    ("leased", "bad answer, scheduled", "queued"): bad_answer_told_late,
    ("leased", "bad answer, scheduled", "waiting"): lambda: reported(scheduled(), "done", status=301, location=B),
    ("leased", "released", "queued"): lambda: after(leased(), lambda w: w.frontier.release([w.token])),
    ("leased", "deferred", "queued"): lambda: deferred(0.0),
    ("leased", "deferred", "waiting"): lambda: deferred(9.0),
    ("leased", "lost", "queued"): lambda: lost(1),
    ("leased", "lost", "gone"): lambda: lost(LEASES_LOST_MAX),
    ("leased", "stopped", "queued"): lambda: after(leased(), World.reopen),
    **{
        (state, "requeued", then): (lambda state=state, then=then: requeued(MAKE[state](), 9.0 * (then == "waiting")))
        for state in ("queued", "waiting", "done", "gone")
        for then in ("queued", "waiting")
    },
    **{
        ("parked", "requeued", then): (lambda then=then: requeued(over_budget(), 9.0 * (then == "waiting")))
        for then in ("queued", "waiting")
    },
    **{
        ("leased", "lease ended, requeued before", then): (
            lambda then=then: reported(requeued(leased(), 9.0 * (then == "waiting")), "done")
        )
        for then in ("queued", "waiting")
    },
    ("waiting", "due", "queued"): lambda: passed(waiting(), 11.0),
    ("waiting", "changed in place", "waiting"): lambda: reprioritised(waiting()),
    ("parked", "allowed again", "queued"): allowed,
    ("parked", "allowed again", "waiting"): budget_grown,
    ("parked", "retried", "queued"): lambda: after(refused(), lambda w: w.frontier.retry(error="robots")),
    ("parked", "changed in place", "parked"): lambda: reprioritised(refused()),
    ("gone", "retried", "queued"): lambda: after(gone(), lambda w: w.frontier.retry()),
    **{
        (state, "put", then): (lambda state=state, then=then: put(MAKE[state](), then))
        for state in ("queued", "leased", "waiting", "parked", "done", "gone")
        for then in ("queued", "waiting", "parked", "done", "gone")
    },
    **{
        (state, "deleted", "unknown"): (lambda state=state: after(MAKE[state](), lambda w: w.frontier.delete(KEY)))
        for state in ("queued", "leased", "waiting", "parked", "done", "gone")
    },
    **{
        (state, "deleted by its name", "unknown"): (
            lambda state=state: after(MAKE[state](), lambda w: w.frontier.delete_urls(A))
        )
        for state in ("queued", "leased", "waiting", "parked", "done", "gone")
    },
}

LEASES: dict[tuple[str, str, str], Callable[[], World]] = {
    ("none", "leased", "open"): leased,
    ("open", "extended", "open"): lambda: after(leased(), lambda w: w.frontier.extend([w.token], 60.0)),
    ("open", "rested", "open"): lambda: after(leased(), lambda w: w.frontier.rest([w.token])),
    ("open", "its queue deleted", "open"): lambda: after(leased(), lambda w: w.frontier.delete(KEY)),
    ("open", "reported", "ended"): done,
    ("open", "released", "ended"): lambda: after(leased(), lambda w: w.frontier.release([w.token])),
    ("open", "deferred", "ended"): lambda: deferred(9.0),
    ("open", "expired", "ended"): lambda: passed(leased(), 100_000.0),
    ("open", "its process died", "ended"): lambda: after(leased(), World.kill),
    ("open", "stopped", "ended"): lambda: after(leased(), World.reopen),
    ("open", "put", "ended"): lambda: put(leased(), "done"),
    ("open", "its URL deleted", "ended"): lambda: after(leased(), lambda w: w.frontier.delete_urls(A)),
    ("ended", "reported", "ended"): lambda: reported(done(), "done"),
}


def more(world: World) -> World:
    return after(world, lambda w: w.discover(B))


def held(world: World) -> World:
    return after(world, lambda w: w.frontier.pause(KEY))


def resumed(world: World) -> World:
    return after(world, lambda w: w.frontier.resume(KEY))


def resting() -> World:
    return more(reported(leased(delay=5.0), "done"))


def backing_off() -> World:
    return reported(more(leased()), "done", status=429, refused=True)


HOSTS: dict[tuple[str, str, str], Callable[[], World]] = {
    ("empty", "URL added", "ready"): queued,
    ("empty", "URL added", "resting"): resting,
    ("empty", "URL added", "blocked"): lambda: more(held(done())),
    ("ready", "leased", "resting"): leased,
    ("ready", "blocked", "blocked"): lambda: held(queued()),
    ("ready", "emptied", "empty"): lambda: after(queued(), lambda w: w.frontier.delete(KEY)),
    ("resting", "rest over", "ready"): lambda: passed(resting(), 6.0),
    ("resting", "blocked", "blocked"): lambda: held(resting()),
    ("resting", "emptied", "empty"): lambda: reported(leased(delay=5.0), "done"),
    ("resting", "refused a request", "blocked"): backing_off,
    ("blocked", "unblocked", "ready"): lambda: resumed(held(queued())),
    ("blocked", "unblocked", "resting"): lambda: resumed(held(resting())),
    ("blocked", "back-off over", "ready"): lambda: passed(backing_off(), 100_000.0),
    ("blocked", "emptied", "empty"): lambda: after(held(queued()), lambda w: w.frontier.delete(KEY)),
}


def lease_state(world: World) -> str:
    token = np.array([world.token], np.uint64)
    return "open" if inspect(world.frontier).tables.urls.by_token(token).found[0] else "ended"


def host_state(world: World) -> str:
    (host,) = world.frontier.hosts()
    return host.state


WALKS = (
    (lives.URL, URLS, lambda world: world.state(A)),
    (lives.LEASE, LEASES, lease_state),
    (lives.HOST, HOSTS, host_state),
)


@pytest.mark.parametrize(("life", "walks", "state_of"), WALKS, ids=[life.name for life, *_ in WALKS])
def test_a_real_frontier_walks_every_row(life, walks, state_of):
    rows = [(move.state, move.event, move.then) for move in life.moves]
    assert sorted(rows) == sorted(walks)
    found = {row: state_of(walks[row]()) for row in rows}
    assert {row: row[2] for row in rows} == found
    assert {move.state for move in life.moves} | {move.then for move in life.moves} == set(life.states)


def test_every_row_names_a_file():
    for life in lives.LIVES:
        for move in life.moves:
            assert (PROJECT / "src" / "outrider" / "frontier" / move.decides).is_file(), move


def test_a_move_that_no_row_allows_is_refused_and_not_logged(monkeypatch):
    world = leased()
    without = [move for move in lives.URL.moves if (move.state, move.then) != ("leased", "done")]
    numbers = {state: number for number, state in enumerate(lives.URL.states)}
    monkeypatch.setattr(lives, "_ALLOWED", bytes({numbers[one.state] << 3 | numbers[one.then] for one in without}))
    with pytest.raises(TransitionError, match="from leased to done"):
        reported(world, "done")


def test_a_page_with_a_schedule_is_given_up_after_many_bad_answers():
    world = scheduled()
    for _ in range(BAD_ANSWERS_MAX - 1):
        reported(world, "gone", error="timeout")
        assert "waiting" == world.state(A)
        world.clock.move(LONG)
        world.token = world.one().token
    assert "gone" == reported(world, "gone", error="timeout").state(A)


def test_the_page_of_lives_and_its_drawings_are_made_of_the_tables():
    spec = importlib.util.spec_from_file_location("outrider_lives", PROJECT / "scripts" / "lives.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    for name, text in made.files().items():
        assert text == (PROJECT / "docs" / name).read_text("utf-8"), f"{name}: run `python scripts/lives.py`"
    for state in lives.URL.states:
        assert f"| `{state}` |" in (PROJECT / "docs" / "explain.md").read_text("utf-8") or state == "queued"
