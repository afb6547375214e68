"""Whole crawls on a web that redirects, refuses, falls silent and changes its rules, through kills and power cuts.

Each ends: every URL reaches a final state (P5), no page is fetched that the rules of the day forbid, and an independent
record of the requests shows one at a time per host and the whole gap between them (P4).
"""

from __future__ import annotations

import os
import random
from itertools import pairwise

import pytest

from limiting import set_limits
from model.world import Clock, World, outcome, recount
from outrider import Link
from outrider.clock import instant
from outrider.journey import Kind, Lease
from outrider.sim.disk import CrashDisk

DELAY = 1.0
BODIES = [
    b"",
    b"User-agent: *\nDisallow: /3",
    b"User-agent: *\nDisallow: /\nAllow: /1",
    b"User-agent: *\nCrawl-delay: 3",
]


class Web:
    """Hosts with moods. `requests` has (begin, end) per host, as the servers saw them."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.hosts = [f"h{n}.com" for n in range(6)]
        self.rules = {host: rng.choice(BODIES) for host in self.hosts}
        self.silent = {host: rng.choice([0, 0, 1, 2]) for host in self.hosts}
        self.requests: dict[str, list[tuple[int, int]]] = {host: [] for host in self.hosts}
        self.calm = False
        self.waggons: set[int] = set()  # tokens of a train after its first

    def url(self) -> str:
        scheme = "https" if self.rng.random() < 0.15 else "http"
        return f"{scheme}://{self.rng.choice(self.hosts)}/{self.rng.randrange(6)}"

    def change(self) -> None:
        self.rules[self.rng.choice(self.hosts)] = self.rng.choice(BODIES)

    def answers(self, lease: Lease, clock: Clock) -> object:
        took = 0.0 if self.calm else self.rng.choice([0.0, 0.0, 0.1, 0.4])
        begin = max(clock(), lease.not_before)
        if (
            lease.token in self.waggons and self.requests[lease.host]
        ):  # its holder keeps the gap after the end of the one before
            begin = max(begin, self.requests[lease.host][-1][1] + instant(DELAY))
        self.requests[lease.host].append((begin, begin + instant(took)))
        clock.at = max(clock.at, begin + instant(took))
        if lease.kind is Kind.ROBOTS:
            return self.robots(lease, took)
        mood = 0.9 if self.calm else self.rng.random()
        if mood < 0.1:
            return outcome(lease, "retry", seconds=took, error="timeout")
        if mood < 0.15:
            return outcome(lease, "retry", seconds=took, status=503, refused=True)
        if mood < 0.2:
            return outcome(lease, "gone", seconds=took, status=404)
        if mood < 0.35:
            return outcome(lease, "done", seconds=took, status=301, location=self.url())
        links = [] if self.calm else [self.url() for _ in range(2)]
        return outcome(lease, "done", seconds=took, status=200, links=links)

    def robots(self, lease: Lease, took: float) -> object:
        host = lease.authority.split("//")[1]
        if self.silent.get(host, 0) and not self.calm:
            self.silent[host] -= 1
            return outcome(lease, "retry", seconds=took, error="timeout")
        if lease.hops < 2 and self.rng.random() < 0.2:
            location = f"http://{self.rng.choice(self.hosts)}/robots-{lease.hops}.txt"
            return outcome(lease, seconds=took, status=301, robots=lease.robots(301, location=location).robots)
        body = self.rules.get(host, b"")
        return outcome(lease, seconds=took, status=200, robots=lease.robots(200, body).robots)


def forbidden(lease: Lease, world: World) -> bool:
    """Whether the rules that were reported last forbid this page."""
    tables = world.inspect().tables
    body = tables.robots.rulebook.body(tables.robots.by_name[lease.authority].digest)
    return b"Disallow: /3" in body and lease.url.endswith("/3")


def live(seed: int, steps: int) -> None:
    rng = random.Random(seed)
    web = Web(rng)
    budget = rng.choice([None, None, 4])
    world = World(robots="errands", delay=DELAY, seed=seed, disk=CrashDisk(), max_pages_per_host=budget)
    world.discover("http://h0.com/", Link("http://h1.com/", crawl="other"), Link("http://h2.com/", key="k"))
    pending: list[Lease] = []
    for _ in range(steps):
        what = rng.random()
        if what < 0.15:
            world.discover(
                *[Link(web.url(), key=rng.choice([None, None, "k"]), priority=rng.random()) for _ in range(3)]
            )
        elif what < 0.55:
            fresh: set[int] = set()
            for lease in world.lease(rng.randrange(1, 5), per_queue=rng.choice([1, 2]), errands=True, ttl_seconds=40):
                assert not forbidden(lease, world), lease
                if pending and pending[-1].host == lease.host and pending[-1].token in fresh:
                    web.waggons.add(lease.token)
                fresh.add(lease.token)
                pending.append(lease)
        elif what < 0.85:
            while pending and rng.random() < 0.8:
                lease = pending.pop(0)
                if lease.deadline > max(world.clock(), lease.not_before) + instant(1):
                    world.report(web.answers(lease, world.clock))
        elif what < 0.9:
            web.change()
        elif what < 0.97:
            world.clock.move(rng.choice([0.5, 3.0, 50.0, 3_600.0, 90_000.0]))
        else:
            pending.clear()
            if rng.random() < 0.5:
                world.kill()
                world.disk = _crash_disk(world)
            else:
                world.disk = rng.choice(list(world.disk.crash_images(rng, 1)))
                world.frontier = world._open()
        assert [] == recount(world.frontier)
    drain(world, web, pending)
    gaps(web)


def _crash_disk(world: World) -> CrashDisk:
    """`kill` leaves a plain disk in memory; the next power cut needs one that records syncs."""
    world.frontier.close()
    disk = CrashDisk()
    for name, data in world.disk.contents().items():
        disk.put(name, data)
    world.disk = disk
    world.frontier = world._open()
    return disk


def drain(world: World, web: Web, pending: list[Lease]) -> None:
    """The web is calm from now on: the crawl must end."""
    web.calm = True
    if pending:
        world.frontier.release([lease.token for lease in pending])
    for _ in range(3_000):
        if world.frontier.finished():
            break
        leases = world.lease(100, errands=True)
        for lease in leases:
            assert not forbidden(lease, world), lease
            world.report(web.answers(lease, world.clock))
        if not leases and not world.frontier.finished():
            ready = world.ready_in()
            assert ready is not None, f"{world.counts()} and nothing to wait for"
            world.clock.move(ready)
    assert world.frontier.finished(), world.counts()
    assert set(world.counts()) <= {"done", "parked", "gone"}
    assert [] == recount(world.frontier)
    world.kill()
    assert [] == recount(world.frontier)


def gaps(web: Web) -> None:
    """The servers' view: never two requests at once, never closer than the delay."""
    for host, seen in web.requests.items():
        for (_, end), (begin, _) in pairwise(seen):
            assert begin - end >= instant(DELAY), f"{host}: {(begin - end) / 1e6} s"


@pytest.fixture(params=["log alone", "checkpoints all the time"])
def checkpoints(request, monkeypatch):
    if request.param != "log alone":
        set_limits(monkeypatch, LOG_BYTES_BEFORE_CHECKPOINT=4_000)
        monkeypatch.setattr(
            "outrider.engine.rounds.COPY_ROWS", {0: 1, 1: 2, 2: 2, 3: 3, 4: 7, 5: 1, 7: 2, 8: 2, 9: 1, 10: 1, 11: 1}
        )
        set_limits(monkeypatch, CHECKPOINT_STEP_BYTES=1)


@pytest.mark.parametrize("seed", range(10))
def test_a_crawl_ends(seed, checkpoints):
    live(seed, 60)


@pytest.mark.long
@pytest.mark.timeout(14_400)
def test_many_crawls_end(checkpoints):
    first = random.SystemRandom().randrange(1 << 40)
    for seed in range(first, first + int(os.environ.get("OUTRIDER_MODEL_EXAMPLES", "2000"))):
        try:
            live(seed, 150)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
