"""The wall clock jumps back and forth by a day, under an open store and between openings: no gap breaks, nothing
sticks.

Only the test has the true time. By default a frontier reads `outrider.clock`, whose wall clock jumps and whose
elapsed time does not. A caller's own clock jumps as a whole, and the frontier trusts it when it jumps forward.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from outrider import Frontier
from outrider.journey import Lease, Verdict
from outrider.limits import MICROSECONDS
from outrider.sim.disk import CrashDisk, FaultyFiles

DAY = 86_400.0
DELAY = 1.0
SETTINGS = {"delay": DELAY, "delay_factor": 0}
HOSTS = 12


class Time:
    """The time that really passes, and the readings of the machine's clocks."""

    def __init__(self) -> None:
        self.true = 1_760_000_000 * MICROSECONDS
        self.offset = 0
        self.started = self.true - 5_000 * MICROSECONDS
        self.boots = 1
        self.jumps: list[tuple[int, int]] = []
        """(when, by how much), in microseconds."""

    def wall(self) -> int:
        return self.true + self.offset

    def elapsed(self) -> int:
        return self.true - self.started

    def boot(self) -> str:
        return f"boot {self.boots}"

    def passes(self, seconds: float) -> None:
        self.true += int(seconds * MICROSECONDS)

    def jump(self, seconds: float) -> None:
        self.offset += int(seconds * MICROSECONDS)
        self.jumps.append((self.true, int(seconds * MICROSECONDS)))

    def forward_since(self, at: int) -> bool:
        return any(when >= at and by > 0 for when, by in self.jumps)


@dataclass
class Visit:
    """The last visit of a host: its end and the wait that the host wants after it, in true microseconds."""

    end: int
    rest: int
    boots: int


class Life:
    """A frontier, its time, and a judge with the true clock."""

    def __init__(self, seed: int, *, own_clock: bool) -> None:
        self.rng = random.Random(seed)
        self.time = Time()
        self.own_clock = own_clock
        self.disk: FaultyFiles = CrashDisk()
        self.visits: dict[str, Visit] = {}
        self.held: list[tuple[Lease, str | None, int]] = []
        """(lease, worker, until when it lives in true time)."""
        self.problems: list[str] = []
        self.count = 0
        self.told: set[str] = set()
        self.open()

    def open(self) -> None:
        clock = self.time.wall if self.own_clock else None
        self.frontier = Frontier.open(self.disk, clock=clock, settings=SETTINGS, seed=5, robots="caller")

    def jump(self) -> None:
        """A day to or fro; a day that passes by a caller's clock ends leases."""
        seconds = self.rng.choice([DAY, -DAY])
        self.time.jump(seconds)
        if seconds > 0 and self.own_clock:
            self.held = []

    def reopen(self, down: float, *, boots: bool = False) -> None:
        """A clean stop or a kill, and the next process. Leases of workers continue wherever the clock jumped."""
        if self.rng.random() < 0.5:
            self.frontier.close()
        self.disk = self.disk.copy()
        self.time.passes(down)
        if boots:
            self.time.boots += 1
            self.time.started = self.time.true - 20 * MICROSECONDS
        if self.rng.random() < 0.7:
            self.jump()
        self.open()

    # -- what happens

    def discover(self) -> None:
        urls = [f"http://h{self.rng.randrange(HOSTS)}.com/{self.rng.randrange(200)}" for _ in range(4)]
        self.frontier.discover(urls)
        self.told.update(urls)

    def lease(self) -> None:
        worker = self.rng.choice([None, "w"])
        for lease in self.frontier.lease(self.rng.randrange(1, 5), ttl_seconds=30, worker=worker):
            for other, _, until in self.held:
                if other.host == lease.host and until > self.time.true:
                    self.problems.append(f"{lease.url} is leased while {other.url} lives")
            self.held.append((lease, worker, self.time.true + 30 * MICROSECONDS))

    def settle(self) -> None:
        for _ in range(min(self.rng.randrange(4), len(self.held))):
            lease, _, until = self.held.pop(self.rng.randrange(len(self.held)))
            if until - self.time.true < 5 * MICROSECONDS:
                continue  # no request would begin now
            self.visit(lease.host)
            self.note_gap(lease)
            retry_after = self.rng.choice([None] * 4 + [8.0])
            rest = max(DELAY, retry_after or 0.0)
            self.time.passes(self.rng.choice([0.0, 0.2]))
            self.visits[lease.host] = Visit(self.time.true, int(rest * MICROSECONDS), self.time.boots)
            if retry_after is not None:
                outcome = lease.retry(seconds=0.1, status=503, refused=True, retry_after_seconds=retry_after)
            else:
                outcome = lease.done(seconds=0.1, links=[f"http://h{self.rng.randrange(HOSTS)}.com/{self.count}"])
            self.frontier.report([outcome])
            assert outcome.verdict in (Verdict.DONE, Verdict.RETRY)

    def visit(self, host: str) -> None:
        self.count += 1
        last = self.visits.get(host)
        if last is None or (self.own_clock and self.time.forward_since(last.end)):
            return
        # The length of a rest at a start of the machine is unknown: then it is one whole delay.
        rest = last.rest if last.boots == self.time.boots else int(DELAY * MICROSECONDS)
        if self.time.true < last.end + rest:
            early = (last.end + rest - self.time.true) / MICROSECONDS
            self.problems.append(f"visit {self.count}: {host} is visited {early:.3f} s early")

    def note_gap(self, lease: Lease) -> None:
        """The record of a request is dated by the frontier's clock, and must show the gap that was required."""
        if lease.ended_before is not None and lease.gap_seconds is not None:
            gap = (self.frontier.now() - lease.ended_before) / MICROSECONDS
            if gap < lease.gap_seconds:
                self.problems.append(f"visit {self.count}: {gap:.6f} s of {lease.gap_seconds:.6f} s on record")

    def restart(self) -> None:
        """Lets the clocks advance; they may jump while no process reads them."""
        # Leases of other workers continue; our own ended with us, and no visit continues under them.
        self.held = [(lease, worker, until) for lease, worker, until in self.held if worker is not None]
        self.reopen(self.rng.choice([0.0, 0.3, 2.0]))

    def start_of_the_machine(self) -> None:
        """Everything dies, workers too; elapsed time begins anew."""
        self.held = []
        self.reopen(self.rng.choice([5.0, 60.0]), boots=True)

    def live(self, steps: int) -> None:
        for _ in range(steps):
            chance = self.rng.random()
            self.discover()
            self.lease()
            self.settle()
            self.time.passes(self.rng.choice([0.0, 0.1, 0.7, 1.0, 3.0]))
            if chance < 0.08:
                self.jump()
            elif chance < 0.16:
                self.restart()
            elif chance < 0.18:
                self.start_of_the_machine()

    def end(self) -> None:
        """Stops all jumps, and lets all remaining URLs end: within the time of their waits, plus the time by which a
        caller's own clock was set back."""
        begun, idle = self.time.true, 1.0
        back = sum(-by for _, by in self.time.jumps if by < 0) / MICROSECONDS if self.own_clock else 0.0
        visits = self.count
        while not self.frontier.finished():
            leases = self.frontier.lease(100)
            for lease in leases:
                self.visit(lease.host)
                self.note_gap(lease)
                self.visits[lease.host] = Visit(self.time.true, int(DELAY * MICROSECONDS), self.time.boots)
            self.frontier.report([lease.done(seconds=0.1) for lease in leases])
            wait = self.frontier.next_ready_seconds()
            # For the frontier, time is paused after a clock was set back: call less and less often.
            idle = 1.0 if leases else min(idle * 2, 600.0)
            self.time.passes(max(idle, wait or 0.0))
            taken = (self.time.true - begun) / MICROSECONDS
            assert taken < back + 3_600 + 2 * (self.count - visits), f"stuck: {self.frontier.statistics()['urls']}"
        assert {"done", "gone"} >= {str(self.frontier.status(url).state) for url in self.told}
        assert self.frontier.verify().ok


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch):
    def judge(seed: int, steps: int, *, own_clock: bool) -> Life:
        life = Life.__new__(Life)
        time = Time()
        monkeypatch.setattr("outrider.clock.wall", lambda: life.time.wall())
        monkeypatch.setattr("outrider.clock.elapsed", lambda: life.time.elapsed())
        monkeypatch.setattr("outrider.clock.boot", lambda: life.time.boot())
        life.time = time
        life.__init__(seed, own_clock=own_clock)
        life.live(steps)
        assert [] == life.problems, f"seed {seed}"
        life.end()
        assert [] == life.problems, f"seed {seed}"
        assert life.count > steps / 2
        assert len(life.time.jumps) > steps / 20
        return life

    return judge


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 3))])
def test_a_wall_clock_that_jumps_by_a_day_breaks_no_gap_and_delays_nothing(judged, seed):
    judged(seed, 150, own_clock=False)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 3))])
def test_a_callers_clock_that_jumps_by_a_day_breaks_no_gap_and_delays_nothing(judged, seed):
    judged(seed, 150, own_clock=True)


@pytest.mark.long
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("own_clock", [False, True])
def test_clocks_that_jump_for_long_break_no_gap_and_delay_nothing(judged, own_clock):
    for seed in range(1_000, 1_012):
        judged(seed, 300, own_clock=own_clock)
