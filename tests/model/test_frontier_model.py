"""A random life of a frontier against a dictionary: every verb, time, clean stops, kills, power cuts and checkpoints.

After each power cut one of the disks that it could have left is opened: what was answered is there (P1), no lease lives
twice (P3), no host is visited early (P4), every URL is somewhere (P5), the counters are true (P7).
"""

from __future__ import annotations

import os
import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from model.world import Clock, outcome, recount
from outrider import Frontier, Link
from outrider.clock import instant
from outrider.journey import Lease
from outrider.limits import LEASES_LOST_MAX, RETRY_SECONDS
from outrider.sim.disk import CrashDisk

DELAY = 1.0
SETTINGS = {"delay": DELAY, "delay_factor": 10.0}
HOSTS = [f"h{n}.com" for n in range(4)]
KEYS = [None, None, None, "k"]
CRAWLS = [None, "other"]
WORKERS = [None, "w"]


class Known:
    """The model's record of one URL."""

    def __init__(self, state: str, due: int) -> None:
        self.state = state
        self.due = due
        self.attempts = 0
        self.losses = 0
        self.token = 0


class Life(RuleBasedStateMachine):
    """The model: URLs by (crawl, url), open leases by token, and until when each host must be left alone."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: dict[tuple[str, str], Known] = {}
        self.leases: dict[int, tuple[Lease, str | None, int]] = {}
        self.rest: dict[str, int] = {}
        self.tokens: list[int] = []
        self.answers: list[tuple[int, list[str], list[Link]]] = []
        self.sequence = 0
        self.ended: set[int] = set()

    @initialize(seed=st.integers(0, 2**32 - 1))
    def begin(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.clock = Clock()
        self.disk = CrashDisk()
        self.frontier = self.open()

    def open(self) -> Frontier:
        return Frontier.open(self.disk, clock=self.clock, settings=SETTINGS, seed=1)

    # -- what time does

    def lose(self, token: int, *, counted: bool = True) -> None:
        lease, _, _ = self.leases.pop(token)
        self.ended.add(token)
        known = self.urls[lease.crawl, lease.url]
        known.losses += counted
        if counted:
            known.due = max(known.due, self.clock()) + 1
        known.state = "gone" if known.losses >= LEASES_LOST_MAX else "queued"
        self.rests(lease.host, self.clock() + instant(DELAY))

    def rests(self, host: str, until: int) -> None:
        self.rest[host] = max(self.rest.get(host, 0), until)

    def passes(self) -> None:
        """The first act of a verb: leases that are over end, waiting URLs come back."""
        for token, (_, _, deadline) in list(self.leases.items()):
            if deadline <= self.clock():
                self.lose(token)
        self.comes_back()

    def comes_back(self) -> None:
        """Each verb and each opening queues the waiting URLs whose time has come."""
        for known in self.urls.values():
            if known.state == "waiting" and known.due <= self.clock():
                known.state = "queued"

    # -- the verbs

    @rule(data=st.data(), count=st.integers(1, 6), repeats=st.booleans())
    def discover(self, data, count: int, repeats: bool) -> None:
        links = [
            Link(
                f"http://{data.draw(st.sampled_from(HOSTS))}/{data.draw(st.integers(0, 7))}",
                priority=data.draw(st.sampled_from([0.1, 0.5, 0.9])),
                not_before=data.draw(st.sampled_from([None, None, self.clock() + instant(3), self.clock() - 5])),
                key=data.draw(st.sampled_from(KEYS)),
                crawl=data.draw(st.sampled_from(CRAWLS)),
            )
            for _ in range(count)
        ]
        expected = []
        self.passes()
        for link in links:
            place = (link.crawl or "default", link.url)
            expected.append("known" if place in self.urls else "new")
            if place not in self.urls:
                due = link.not_before if link.not_before is not None else self.clock()
                self.urls[place] = Known("waiting" if due > self.clock() else "queued", due)
        self.sequence += 1
        codes = [str(code) for code in self.frontier.discover(links, request_id=("me", self.sequence))]
        assert expected == codes
        self.answers.append((self.sequence, codes, links))
        if repeats:
            self.repeat(self.answers[-1])

    def repeat(self, answer: tuple[int, list[str], list[Link]]) -> None:
        sequence, codes, links = answer
        assert codes == [str(code) for code in self.frontier.discover(links, request_id=("me", sequence))]

    @precondition(lambda self: self.answers)
    @rule(data=st.data())
    def repeat_an_old_call(self, data) -> None:
        self.repeat(data.draw(st.sampled_from(self.answers[-20:])))

    @rule(
        want=st.integers(0, 4), per_queue=st.sampled_from([1, 1, 2]), ttl=st.sampled_from([5, 60]),
        worker=st.sampled_from(WORKERS), crawl=st.sampled_from([None, None, "other"]),
    )  # fmt: skip
    def lease(self, want: int, per_queue: int, ttl: int, worker: str | None, crawl: str | None) -> None:
        self.passes()
        batch = self.frontier.lease(want, per_queue=per_queue, ttl_seconds=ttl, worker=worker, crawl=crawl)
        assert len(batch) <= want
        busy = {lease.host for lease, _, _ in self.leases.values()}
        by_host: dict[str, int] = {}
        turns = {(lease.crawl, lease.key): lease.host for lease, _, _ in self.leases.values()}
        for lease in batch:
            assert lease.host == turns.setdefault((lease.crawl, lease.key), lease.host), "a key has one turn at a time"
            known = self.urls[lease.crawl, lease.url]
            assert "queued" == known.state, lease
            assert known.due <= self.clock() + known.losses, lease
            assert lease.host not in busy, lease
            earliest = max(self.clock(), self.rest.get(lease.host, 0))
            assert lease.not_before >= earliest + by_host.get(lease.host, 0) * instant(DELAY), lease
            by_host[lease.host] = by_host.get(lease.host, 0) + 1
            assert by_host[lease.host] <= per_queue
            assert not self.tokens or lease.token > self.tokens[-1], lease
            self.tokens.append(lease.token)
            assert known.attempts + 1 == lease.attempt
            known.state, known.token = "leased", lease.token
            self.leases[lease.token] = (lease, worker, lease.deadline)

    @precondition(lambda self: self.leases)
    @rule(
        data=st.data(), verdict=st.sampled_from(["done", "retry", "gone", "again"]),
        took=st.sampled_from([0.0, 0.3, 2.0]), retry_after=st.sampled_from([None, None, 4.0]), redirect=st.booleans(),
    )  # fmt: skip
    def report(self, data, verdict: str, took: float, retry_after: float | None, redirect: bool) -> None:
        self.passes()
        if not self.leases:
            self.frontier.lease(0)
            return
        token = data.draw(st.sampled_from(sorted(self.leases)))
        lease, _, _ = self.leases.pop(token)
        self.ended.add(token)
        known = self.urls[lease.crawl, lease.url]
        now = self.clock()
        location = None
        if redirect and verdict == "done":
            location = f"http://{data.draw(st.sampled_from(HOSTS))}/{data.draw(st.integers(0, 9))}"
        gap = max(DELAY, min(10 * took, 60.0), 0.0 if location else retry_after or 0.0)
        self.rests(lease.host, now + instant(gap))
        link = f"http://{data.draw(st.sampled_from(HOSTS))}/{data.draw(st.integers(0, 9))}"
        if location is not None and location != lease.url and lease.hops < 5:
            due = known.due if not retry_after else now + instant(retry_after)
            self.urls.setdefault((lease.crawl, location), Known("waiting" if due > now else "queued", due))
        expected = "known" if (lease.crawl, link) in self.urls else "new"
        self.urls.setdefault((lease.crawl, link), Known("queued", now))
        known.losses = 0
        if location == lease.url:
            known.state = "gone"
        elif verdict == "done":
            known.state, known.attempts = "done", 0
        elif verdict == "gone":
            known.state = "gone"
        elif verdict == "again":
            known.state, known.due, known.attempts = "waiting", now + instant(2), 0
        else:
            known.attempts += 1
            if known.attempts > len(RETRY_SECONDS):
                known.state = "gone"
            else:
                known.state = "waiting"
                known.due = max(now + instant(RETRY_SECONDS[known.attempts - 1]), self.rest[lease.host])
        report = self.frontier.report([
            outcome(
                lease, verdict, seconds=took, status=None if verdict == "retry" else 200, location=location,
                links=[link], retry_after_seconds=retry_after, at=now + instant(2) if verdict == "again" else None,
            )
        ])  # fmt: skip
        assert ("ok",) == report.outcomes
        assert ((expected,),) == report.links

    @precondition(lambda self: self.ended)
    @rule(data=st.data())
    def report_an_old_token(self, data) -> None:
        self.passes()
        token = data.draw(st.sampled_from(sorted(self.ended)))
        lease = Lease(**dict.fromkeys(Lease.__slots__) | {"token": token})
        assert ["stale"] == [str(code) for code in self.frontier.report([lease.done(links=["http://stale.com/"])])]

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def give_back(self, data) -> None:
        self.passes()
        if not self.leases:
            self.frontier.lease(0)
        else:
            token = data.draw(st.sampled_from(sorted(self.leases)))
            lease, _, _ = self.leases.pop(token)
            self.ended.add(token)
            self.urls[lease.crawl, lease.url].state = "queued"
            assert ["ok"] == [str(code) for code in self.frontier.release([token])]

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def extend(self, data) -> None:
        self.passes()
        if not self.leases:
            self.frontier.lease(0)
        else:
            token = data.draw(st.sampled_from(sorted(self.leases)))
            lease, worker, _ = self.leases[token]
            self.leases[token] = (lease, worker, self.clock() + instant(30))
            assert ["ok"] == [str(code) for code in self.frontier.extend([token], 30)]

    # -- time and ends

    @rule(seconds=st.sampled_from([0.2, 1.0, 1.0, 5.0, 40.0, 400.0]))
    def advance(self, seconds: float) -> None:
        self.clock.move(seconds)

    @rule(seconds=st.sampled_from([0.5, 100.0]))
    def step_back(self, seconds: float) -> None:
        """Time stands still, visited hosts rest one delay; the model then waits until the clock has caught up."""
        at = self.clock.at
        self.clock.move(-seconds)
        self.frontier.lease(0)
        assert at == self.frontier.now()
        self.clock.at = at
        self.passes()
        for host in self.rest:
            self.rests(host, at + instant(DELAY))

    @rule()
    def wait_as_told(self) -> None:
        wait = self.frontier.next_ready_seconds()
        if wait is not None:
            self.clock.move(wait)

    @rule()
    def checkpoint(self) -> None:
        self.frontier.checkpoint()

    def process_died(self, *, counted: bool = True) -> None:
        for token, (_, worker, _) in list(self.leases.items()):
            if worker is None:
                self.lose(token, counted=counted)
        self.comes_back()

    @rule()
    def stop_and_go_on(self) -> None:
        self.frontier.close()
        self.process_died(counted=False)
        self.frontier = self.open()

    @rule()
    def kill(self) -> None:
        self.disk = _crash_disk(self.disk)
        self.process_died()
        self.frontier = self.open()

    @rule()
    def power_cut(self) -> None:
        """One of the disks that may be left; everything was answered, so everything is there."""
        images = list(self.disk.crash_images(self.random, 2))
        self.disk = self.random.choice(images)
        self.process_died()
        self.frontier = self.open()

    # -- what always holds

    @invariant()
    def nothing_is_wrong_inside(self) -> None:
        if hasattr(self, "frontier"):
            assert [] == recount(self.frontier)

    @invariant()
    def every_url_is_where_the_model_has_it(self) -> None:
        if not hasattr(self, "frontier"):
            return
        found = {(url.crawl, url.url): str(url.state) for url in self.frontier.urls(limit=1_000)}
        assert {place: known.state for place, known in self.urls.items()} == found
        statistics = self.frontier.statistics()
        assert len(self.urls) == statistics["accepted"] == sum(statistics["urls"].values())

    @invariant()
    def what_is_left_is_ready_or_will_be(self) -> None:
        """The frontier names an instant as long as a URL is queued or waiting."""
        if hasattr(self, "frontier") and not self.frontier.finished():
            assert self.frontier.next_ready_seconds() is not None


def _crash_disk(disk: CrashDisk) -> CrashDisk:
    """All that was written, as a fresh disk."""
    other = CrashDisk()
    for name, data in disk.contents().items():
        other.put(name, data)
    return other


def test_a_frontier_lives_as_its_model():
    run_state_machine_as_test(
        Life, settings=settings(max_examples=20, stateful_step_count=40, deadline=None, derandomize=True)
    )


@pytest.mark.long
@pytest.mark.timeout(14_400)
def test_a_frontier_lives_as_its_model_for_long():
    examples = int(os.environ.get("OUTRIDER_MODEL_EXAMPLES", "3000"))
    run_state_machine_as_test(Life, settings=settings(max_examples=examples, stateful_step_count=80, deadline=None))
