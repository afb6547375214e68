"""The rules of usual pages are read off the rows of their hosts: a frontier that never does so answers alike."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from limiting import set_limits
from model.histories import CLUSTER_KEYS
from model.interleaving import Interleaving
from model.world import World, hosts_go_cold, outcome
from outrider import Link
from outrider.errors import SettingsError
from outrider.frontier.state.authorities import Authorities
from outrider.journey import Kind, Lease, Outcome, RobotsAnswer

STEPS = 60
SEEDS = range(3)
PLACES = [
    *("http://a.com", "https://a.com", "http://a.com.", "http://a.com:8080", "https://a.com:8443", "http://a.co"),
    *("http://b.org", "https://b.org", "http://[::1]", "https://[::1]:81", "http://c.net", "http://d.net"),
]
BODIES = [
    b"User-agent: *\nDisallow: /2",
    b"User-agent: *\nDisallow: //",
    b"User-agent: *\nDisallow: /\nAllow: /1",
    b"User-agent: *\nCrawl-delay: 9\nDisallow: /3",
]


class History:
    """Calls that seldom wait, to few hosts of many authorities whose rules change and grow old."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        settings = {
            "obey_robots": self.rng.random() < 0.8,
            "crawl_delay_max": 5,
            "crawl_delay_over": self.rng.choice(["obey", "skip"]),
            "robots_unreachable": self.rng.choice(["open", "closed"]),
        }
        self.silent = self.rng.sample(PLACES, 3)
        self.threads = Interleaving(seed)
        self.world = World(robots="errands", delay=0, keys=CLUSTER_KEYS, threads=self.threads, **settings)

    def answers(self) -> Iterator[object]:
        try:
            for _ in range(STEPS):
                links = [
                    Link(self.url(), key=self.rng.choice([*[None] * 9, "k"])) for _ in range(self.rng.choice([0, 1, 6]))
                ]
                yield self.world.discover(*links, Link(self.url(), crawl="other"))
                yield (leases := list(self.world.lease(30, per_queue=2, errands=self.rng.random() < 0.9)))
                some = [one for one in leases if self.rng.random() < 0.8]  # the rest is lost in the end
                yield self.world.report(*map(self.outcome, some))
                yield self.around()
                self.world.clock.move(self.rng.choice([0.1, 1.0, 1.0, 5.0, 70.0]))
            yield [(one.url, one.state, one.reason) for one in self.world.frontier.urls(limit=1_000)]
        finally:
            self.threads.end()

    def url(self) -> str:
        place = self.rng.choice([*PLACES, f"http://{self.rng.randrange(10)}.net"])
        return f"{place}{self.rng.choice(['/', '//'])}{self.rng.randrange(4)}?{self.rng.randrange(20)}"

    def outcome(self, lease: Lease) -> Outcome:
        if lease.kind is not Kind.ROBOTS:
            return outcome(lease, self.rng.choice(["done", "done", "again"]), status=200, seconds=0.0)
        usual = self.rng.choice(["rules", "rules", "rules", "none", "moved"])
        answer = "silent" if lease.authority in self.silent else usual
        fresh = self.rng.choice([None, 0.0, 20.0, 600.0])
        robots = {
            "rules": RobotsAnswer(200, self.rng.choice(BODIES), fresh_seconds=fresh),
            "none": RobotsAnswer(404, fresh_seconds=fresh),
            "moved": RobotsAnswer(301, location=self.rng.choice(PLACES) + "/robots.txt"),
            "silent": RobotsAnswer(503),
        }[answer]
        return outcome(lease, seconds=0.0, status=robots.status, robots=robots)

    def around(self) -> object:
        """Mostly nothing; else the caller's own rules, an operator's words, a deleted crawl, or the end of a
        process."""
        what, frontier = self.rng.random(), self.world.frontier
        if what < 0.2:
            return frontier.set_robots(
                self.rng.choice(PLACES), self.rng.choice([200, 404, 503]), self.rng.choice(BODIES)
            )
        if what < 0.25:
            return frontier.retry()
        if what < 0.3:
            try:
                return frontier.delete(self.rng.choice([None, "b.org"]), crawl="other")
            except SettingsError as error:  # nothing is there
                return str(error)
        if what < 0.35:
            frontier.checkpoint()
        elif what < 0.37:
            self.world.kill()
        elif what < 0.39:
            self.world.clock.move(90_000.0)
        return None


def answers(seed: int, patch: pytest.MonkeyPatch, found: Counter[bool], *, blind: bool) -> list[object]:
    """All that the frontier answered. blind: no row tells anything; else `found` counts pages by whether one did."""
    usual = Authorities.open_files

    def open_files(self, hosts, cards, now):
        known, digests = usual(self, hosts, cards, now)
        if blind:
            return np.zeros_like(known), np.zeros_like(digests)
        found.update(known.tolist())
        return known, digests

    with patch.context() as here:
        here.setattr(Authorities, "open_files", open_files)
        return list(History(seed).answers())


@pytest.mark.parametrize("cold", [False, True], ids=["hosts in memory", "hosts on disk"])
def test_a_frontier_that_requests_every_robots_txt_answers_alike(cold, monkeypatch):
    if cold:
        set_limits(monkeypatch, LOG_BYTES_BEFORE_CHECKPOINT=1, CHECKPOINT_STEP_BYTES=300)
        hosts_go_cold(monkeypatch)
    found: Counter[bool] = Counter()
    for seed in SEEDS:
        usual, blind = (answers(seed + 100 * cold, monkeypatch, found, blind=blind) for blind in (False, True))
        assert blind == usual, f"seed {seed}"
    assert min(found[True], found[False]) > 100, found
