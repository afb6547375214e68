"""Outcomes in columns: a batch and a list of the same outcomes mean the same, and each value is checked."""

from __future__ import annotations

import random

import pytest

from model.inside import inspect
from model.world import START, Clock, World, outcome
from outrider.clock import instant
from outrider.engine import Frontier
from outrider.engine.robots_reading import answers_of
from outrider.errors import SettingsError
from outrider.journey import OUTCOME_COLUMNS, Outcome, OutcomeBatch, Verdict
from outrider.storage.memory import MemoryFiles

A, B = "http://a.com/", "http://b.com/"
KEYS = (bytes(16), bytes(range(16)))
FIELDS = {"verdicts": "verdict", "seconds": "seconds", "statuses": "status", **OUTCOME_COLUMNS}


def opened(monkeypatch, **how) -> tuple[Frontier, Clock, list[bytes]]:
    """A frontier, its clock, and the payloads of the frames that it appends from here on."""
    clock, frames = Clock(), []
    frontier = Frontier.open(MemoryFiles(), clock=clock, keys=KEYS, output=True, **{"robots": "caller", **how})
    log = inspect(frontier).core._log
    append = log.append
    monkeypatch.setattr(
        log, "append", lambda kind, payload, **rest: frames.append(payload) or append(kind, payload, **rest)
    )
    return frontier, clock, frames


def made(rng: random.Random, token: int, now: int) -> Outcome:
    """An outcome of any kind."""
    verdict = rng.choice([Verdict.DONE] * 3 + [Verdict.AGAIN, Verdict.RETRY, Verdict.GONE])
    refused = rng.random() < 0.2
    return Outcome(
        token, verdict, seconds=rng.choice([None, 0.0, 0.5, 30.0]), status=rng.choice([None, 200, 404, 503]),
        error=rng.choice([None, None, "timeout", "http_error"]), ended_at=rng.choice([None, now - 1, now + 5, 0]),
        at=rng.choice([None, now, now + instant(90)]) if verdict is Verdict.AGAIN else None,
        after_seconds=rng.choice([None, 0.0, 700.0]), retry_after_seconds=rng.choice([None, None, 4.0, 1e6]),
        refused=refused, location=rng.choice([None, None, "/other", A]), answered=rng.choice([None, True, False]),
        line=rng.choice([None, b'{"n":1}']), politeness=rng.choice([None, b'{"m":1}']),
        digest=rng.choice([None, b"", b"x" * 20]), duplicate=rng.random() < 0.2, bytes_read=rng.choice([0, 77]),
        etag=rng.choice([None, '"\u00e9"', '"1"']), last_modified=rng.choice([None, "Tue"]),
        metadata=rng.choice([None, {}, {"k": 1}]),
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(12))
def test_a_batch_writes_the_same_frames_as_a_list_of_its_outcomes(seed, monkeypatch):
    found = []
    for columns in (False, True):
        rng = random.Random(seed)
        frontier, clock, frames = opened(monkeypatch, seed=seed)
        frontier.discover([f"http://h{n % 9}.com/{n}" for n in range(60)])
        frontier.set_robots("http://h1.com", 200, b"User-agent: *\nCrawl-delay: 7\n")
        answers = []
        for _ in range(8):
            leases = frontier.lease(50)
            clock.move(1.5)
            some = [made(rng, token, clock.at) for token in leases.tokens]
            if leases and rng.random() < 0.5:
                some.append(made(rng, leases.tokens[0], clock.at))  # the second naming is stale
            values = {name: [getattr(one, field) for one in some] for name, field in FIELDS.items()}
            form = rng.choice([list, list, lambda column: {row: v for row, v in enumerate(column) if v is not None}])
            for name in set(values) - {"verdicts", "seconds", "statuses"} if columns else ():
                values[name] = form(values[name])
            report = frontier.report(OutcomeBatch([one.token for one in some], **values) if columns else some)
            answers.append((report.outcomes, report.lines))
            clock.move(100.0)
        found.append((answers, list(frames)))
        frontier.close()
    assert found[0] == found[1]


def test_an_outcome_without_texts_keeps_the_validators_and_one_with_a_digest_replaces_them():
    world = World()
    world.discover(A)
    world.report(outcome(world.one(), "again", at=START, etag='"1"', last_modified="Tue", digest=b"d"))
    world.clock.move(10)
    lease = world.one()
    assert ('"1"', "Tue") == (lease.etag, lease.last_modified)
    world.report(outcome(lease, "again", at=START))
    world.clock.move(10)
    lease = world.one()
    assert ('"1"', "Tue") == (lease.etag, lease.last_modified)
    world.report(outcome(lease, "again", at=START, digest=b"e"))
    world.clock.move(10)
    lease = world.one()
    assert (None, None) == (lease.etag, lease.last_modified)


def test_outcomes_of_one_host_in_one_call_delay_it_like_calls_of_their_own():
    waits = []
    for together in (True, False):
        world = World(keys=(b"k" * 16, b"s" * 16))  # the random part of a back-off depends on the host's hash
        world.discover(*(A + str(n) for n in range(4)))
        world.frontier.set_limit(4, key="a.com")
        leases = []
        for _ in range(4):
            leases += world.lease(1)
            world.clock.move(5.0)
        ends = [
            outcome(leases[0], "retry", seconds=1.0, refused=True),
            outcome(leases[1], "done", seconds=2.0),
            outcome(leases[2], "retry", seconds=1.0, refused=True),
            outcome(leases[3], "retry", seconds=0.1, after_seconds=0.0),
        ]
        for some in [ends] if together else [[one] for one in ends]:
            world.report(*some)
        (status,) = world.frontier.hosts()
        due = [world.frontier.status(lease.url).due for lease in leases]
        waits.append((status.gap_seconds, status.reason, status.back_off_seconds, status.rest_until, due))
    assert waits[0] == waits[1]
    assert 60.0 == waits[0][2]


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ({"etags": ["a"]}, "2 tokens has 1 etags"),
        ({"etags": ["a", 7]}, "etag 7"),
        ({"digests": {5: b"x"}}, "digests"),
        ({"lines": ["text", None]}, "line 'text'"),
        ({"bytes_read": [1, -1]}, "bytes_read -1"),
        ({"refused": [1, True]}, "refused 1"),
        ({"ended_at": 1.5}, "ended_at 1.5"),
        ({"retry_after_seconds": [float("nan"), 1.0]}, "retry_after_seconds nan"),
        ({"metadata": [{"a": object()}, None]}, "metadata"),
        ({"robots": {0: "x"}}, "robots"),
        ({"addresses": ["x", None]}, "address 'x'"),
        ({"errors": {0: "e" * 10_000}}, "error has 10,000 characters"),
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value)),
)
def test_a_wrong_value_in_a_batch_is_named_and_changes_no_state(columns, named):
    world = World()
    world.discover(A, B)
    leases = world.lease()
    with pytest.raises(SettingsError, match=named):
        world.frontier.report(OutcomeBatch(leases.tokens, **columns))
    assert {"leased": 2} == world.counts()


def test_a_batch_may_answer_errands():
    world = World(robots="errands")
    world.discover(A, B)
    leases = list(world.lease(errands=True))
    answers = {0: leases[0].robots(200, b"User-agent: *\nDisallow: /\n").robots, 1: leases[1].robots(404).robots}
    report = world.frontier.report(OutcomeBatch([one.token for one in leases], seconds=0.1, robots=answers))
    assert ["ok", "ok"] == [str(code) for code in report]
    world.clock.move(10)
    urls = world.urls(errands=True)
    assert [leases[1].url.replace("robots.txt", "")] == urls


@pytest.mark.parametrize("form", [None, {}, [None, None]], ids=str)
def test_a_batch_without_robots_answers_has_no_file_to_read_in_advance(form):
    assert [] == answers_of(OutcomeBatch([1, 2], robots=form))


def test_a_field_that_an_outcome_does_not_have_is_refused_by_its_name():
    world = World()
    world.discover(A)
    lease = world.one()
    for ask in (lambda: OutcomeBatch([lease.token], digest=[b"d"]), lambda: lease.done(digests=b"d")):
        with pytest.raises(SettingsError, match=r"'digests?'.* digest"):
            ask()
    assert ["ok"] == world.report(lease.done(digest=b"d"))
