"""Random histories of hosts that share clocks, most of them on disk: each group keeps its gap and its number of
requests at once, each URL is visited once, and an empty call means that no host may be visited.

`make test` runs some dozens of them, `make test-long` OUTRIDER_MODEL_EXAMPLES with seeds of its own.
"""

from __future__ import annotations

import os
import random
from collections import Counter, defaultdict

import pytest

from limiting import set_limits
from model.world import World, hosts_go_cold, recall_all, recount
from outrider import Link
from outrider.journey import Lease, Outcome, Verdict

SECOND = 1_000_000
HOSTS = [f"h{number}.d{number % 3}.com" for number in range(18)]
TWO_GROUPS = ("h0.d0.com", "h1.d1.com", "h3.d0.com", "h4.d1.com", "h6.d0.com")
GROUPS: list[dict[str, dict[str, object]]] = [
    {"domain": {"capacity": 1, "gap": 4.0}},
    {"domain": {"capacity": 2, "gap": 4.0}},
    {"domain": {"capacity": 1}},
    {"domain": {"capacity": 1, "gap": 3.0}, "both": {"capacity": 1, "gap": 6.0}},
]
EXAMPLES = 30
FAILED_ONCE = (50_000, 544_879_434)


class CrowdedGroups:
    """A history: steps of one frontier, and what each group has seen."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.groups = self.rng.choice(GROUPS)
        tables: dict[str, object] = {"domain": self.groups["domain"]}
        if "both" in self.groups:
            tables["group"] = [{"name": "both", "hosts": list(TWO_GROUPS), **self.groups["both"]}]
        self.world = World(group=tables, delay=1.0)
        self.number = 0
        self.hand: list[Lease] = []
        self.open: Counter[str] = Counter()  # by group
        self.ended: dict[str, int] = defaultdict(lambda: -100 * SECOND)
        self.visited: list[str] = []
        self.accepted: set[str] = set()
        self.paused = False
        self.crawls: set[str] = set()

    def groups_of(self, host: str) -> list[str]:
        found = [host.split(".", 1)[1]]
        return found + ["both"] * ("both" in self.groups and host in TWO_GROUPS)

    def gap(self, group: str) -> int:
        cells = self.groups["both" if group == "both" else "domain"]
        return int(float(str(cells.get("gap", 1.0))) * SECOND)

    def capacity(self, group: str) -> int:
        return int(str(self.groups["both" if group == "both" else "domain"]["capacity"]))

    # -- steps

    def discover(self) -> None:
        links = []
        for _ in range(self.rng.choice([1, 5, 20])):
            self.number += 1
            url = f"http://{self.rng.choice(HOSTS)}/{self.number}"
            crawl = self.rng.choice(["default", "default", "other"])
            links.append(Link(url, priority=self.rng.choice([0.0, 0.5, 0.9]), crawl=crawl))
            self.accepted.add(url)
            self.crawls.add(crawl)
        self.world.frontier.discover(links)

    def lease(self) -> None:
        want, crawl = self.rng.choice([1, 2, 50]), self.rng.choice([None, *sorted(self.crawls)])
        if not self.take(want, crawl) and self.world.ready_in() != 0 and self.rng.random() < 0.3:
            self.check_that_nothing_is_ready()

    def take(self, want: int, crawl: str | None = None) -> int:
        leases = self.world.frontier.lease(want, crawl=crawl, ttl_seconds=86_400)
        now = self.world.clock.at
        for lease in leases:
            assert not (self.paused and lease.crawl == "other")
            for group in self.groups_of(lease.host):
                self.open[group] += 1
                assert self.open[group] <= self.capacity(group), f"{group} has more requests at once than it may"
                assert now >= self.ended[group] + self.gap(group), f"the gap of {group}"
        self.hand += leases
        return len(leases)

    def check_that_nothing_is_ready(self) -> None:
        """With all hosts in memory a call returns no more."""
        recall_all(self.world.frontier)
        machine = self.world.inspect()
        machine.turns.touch(machine.tables.changed, self.world.clock.at)
        machine.tables.changed = []
        assert 0 == self.take(50), "a host on disk could have been visited"

    def report(self) -> None:
        self.rng.shuffle(self.hand)
        count = self.rng.choice([1, 3, 50])
        some, self.hand = self.hand[:count], self.hand[count:]
        self.over(some)
        self.visited += [lease.url for lease in some]
        codes = self.world.report(*[Outcome(lease.token, Verdict.DONE, seconds=0.0, status=200) for lease in some])
        assert ["ok"] * len(some) == codes

    def over(self, leases: list[Lease]) -> None:
        for group in [group for lease in leases for group in self.groups_of(lease.host)]:
            self.open[group] -= 1
            self.ended[group] = self.world.clock.at

    def wait(self) -> None:
        wait = min(self.world.ready_in() or 1.0, 20.0)  # an open lease has a day
        self.world.clock.move(self.rng.choice([0.5, 3.0, wait, wait]))

    def checkpoint(self) -> None:
        self.world.frontier.checkpoint()
        machine = self.world.inspect()
        problems = machine.turns.shared.problems() + machine.core.front.problems(self.world.clock.at)
        assert [] == recount(self.world.frontier) + problems

    def end(self) -> None:
        """A process ends with its requests; the URLs of its leases are queued again."""
        self.over(self.hand)
        self.hand = []
        (self.world.kill if self.rng.random() < 0.5 else self.world.reopen)()

    def pause(self) -> None:
        if "other" in self.crawls:
            (self.world.frontier.resume if self.paused else self.world.frontier.pause)(crawl="other")
            self.paused = not self.paused

    def live(self, steps: int = 60) -> int:
        """Returns how many hosts waited in lines of groups, at most."""
        acts = [self.discover, self.lease, self.lease, self.report, self.report, self.wait, self.checkpoint]
        most = 0
        for _ in range(steps):
            self.rng.choice([*acts, *acts, *acts, self.end, self.pause])()
            most = max(most, sum(self.world.inspect().tables.cold.front.at_groups.values()))
        if self.paused:
            self.pause()
        for _ in range(20 * len(self.accepted) + 100):
            if self.world.frontier.finished():
                break
            if not self.take(50):
                self.wait()
            self.report()
            if self.rng.random() < 0.1:
                self.checkpoint()
        assert self.world.frontier.finished(), self.world.counts()
        assert sorted(self.accepted) == sorted(self.visited), "each URL is visited once"
        self.world.frontier.close()
        return most


@pytest.fixture
def crowded(monkeypatch):
    hosts_go_cold(monkeypatch, with_urls=True)
    set_limits(monkeypatch, LOG_BYTES_BEFORE_CHECKPOINT=2_000)
    return monkeypatch


def lived(crowded: pytest.MonkeyPatch, seed: int, steps: int = 60) -> int:
    """A history; in some of them a few ready hosts must stay in memory, or larger crowds."""
    set_limits(crowded, FRONT_HOSTS_LEAST=3 if seed % 5 == 0 else 0)
    most, least = (3, 2) if seed % 3 == 0 else (1, 1)
    set_limits(crowded, GROUP_WAITING_MOST=most, GROUP_WAITING_LEAST=least)
    try:
        return CrowdedGroups(seed).live(steps)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from error


def test_hosts_in_lines_of_groups_are_visited_as_in_memory(crowded):
    most = [lived(crowded, seed) for seed in (*range(EXAMPLES), *FAILED_ONCE)]
    assert sum(count >= 3 for count in most) > EXAMPLES // 2, f"hardly any host waited on disk for a group: {most}"


@pytest.mark.long
def test_hosts_in_lines_of_groups_are_visited_as_in_memory_for_long(crowded):
    first = random.SystemRandom().randrange(1 << 32)
    for seed in range(first, first + int(os.environ.get("OUTRIDER_MODEL_EXAMPLES", "10000")) // 20):
        lived(crowded, seed, random.Random(seed).choice([30, 60, 200]))
