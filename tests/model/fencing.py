"""Nodes that claim partitions of a small cluster, on topics that lose, delay and repeat, in a world without real time.

All that happens is drawn from one random source. While a node waits for an answer of a topic, the rest of the world
goes on: other nodes claim, open and crawl, and the clock may jump past the tenure. The world itself is the judge: it
sees each request when it is sent.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import cache, partial

from outrider import Frontier
from outrider.cluster.owning import Claimed, Owned, Partition, claim, make_ready, open_store
from outrider.cluster.snapshots import newest_snapshot, upload
from outrider.errors import ClaimRefusedError, StoreFailedError, UnreachableError
from outrider.journey import Lease, Settled
from outrider.limits import MICROSECONDS, SLOTS
from outrider.sim.disk import CrashDisk
from outrider.sim.topic import Faults, FaultyTopic, MemoryObjects

HOSTS = [f"site{number}.test" for number in range(8)]
PAGES = 5
DELAY = 1.0
TENURE = 3.0
LEASE_SECONDS, REQUEST_SECONDS_MAX = 8.0, 4.0
DAY = 86_400 * MICROSECONDS
NESTED_MAX = 2
FIRST = f"http://{HOSTS[0]}/p0"
QUIET = Faults()


def links_of(url: str) -> list[str]:
    """The same links for the same URL: some on the host, most elsewhere."""
    chance = random.Random(url)
    return [f"http://{chance.choice(HOSTS)}/p{chance.randrange(PAGES)}" for _ in range(5)]


@cache
def reachable(first: str) -> set[str]:
    found, left = {first}, [first]
    while left:
        new = [link for link in links_of(left.pop()) if link not in found]
        found.update(new)
        left += dict.fromkeys(new)
    return found


@dataclass(eq=False)
class Running:
    """A request under way."""

    lease: Lease
    part: int
    seconds: float
    ends: int


@dataclass(eq=False)
class Node:
    """skew: how far its wall clock is off. cut_until: until when it does not reach the brokers. busy: it waits for an
    answer, so it does nothing else."""

    name: str
    skew: int
    boot: int
    disks: list[CrashDisk]
    owned: dict[int, Owned] = field(default_factory=dict)
    claimed: dict[int, tuple[Claimed, int]] = field(default_factory=dict)
    running: list[Running] = field(default_factory=list)
    cut_until: int = 0
    busy: bool = False


class WallClock:
    """The clock of a node that has opened a store: it goes on from the last instant of the store, as the wall clock of
    `Frontier.open` does."""

    def __init__(self, world: World, skew: int) -> None:
        self._world, self._ahead = world, skew

    def __call__(self) -> int:
        return self._world.now + self._ahead

    def goes_on_from(self, last: int) -> None:
        self._ahead += max(0, last - self())


class World:
    """Two partitions, three nodes."""

    def __init__(self, seed: int, faults: Faults, *, nodes: int = 3, count: int = 2) -> None:
        self.chance = random.Random(seed)
        self.now = 1_700_000_000 * MICROSECONDS
        self.partitions = [
            Partition(number, count, b"c" * 16, (bytes(16), bytes(range(16))), "2026-01-01T00:00:00Z")
            for number in range(count)
        ]
        self.topics = [FaultyTopic(self.chance, faults, read_max=self.chance.choice([3, 50])) for _ in range(count)]
        self.objects = [MemoryObjects() for _ in range(count)]
        self.nodes = [
            Node(
                f"n{number}",
                self.chance.choice([-DAY, 0, DAY]),
                self.chance.randrange(DAY),
                [CrashDisk() for _ in range(count)],
            )
            for number in range(nodes)
        ]
        self.depth = 0
        self.hosts: dict[str, int] = {}  # the end of the last request of each host
        self.requests: dict[str, int] = {}
        self.acknowledged: set[str] = set()
        self.clocks: dict[Owned, WallClock] = {}
        self.marks = 0
        self.counts = dict.fromkeys(("claims", "refused", "lost", "rebuilt", "kept", "killed", "paused", "uploads"), 0)
        self.is_calm = False

    # -- what nodes call -----------------------------------------------------------------------------------------------

    def waits(self, node: Node) -> None:
        """A node waits for an answer: the rest of the world goes on."""
        was, node.busy = node.busy, True
        try:
            self.now += self.chance.randrange(20_000)
            if self.is_calm or self.depth >= NESTED_MAX:
                return
            if self.chance.random() < 0.02:
                self.counts["paused"] += 1
                for _ in range(self.chance.randrange(1, 40)):
                    self.step_others()
                    self.now += MICROSECONDS // 4
            elif self.chance.random() < 0.2:
                self.step_others()
        finally:
            node.busy = was

    def pause(self, node: Node) -> None:
        """A node that reaches no broker waits before it tries again."""
        self.now += MICROSECONDS // 4
        self.waits(node)

    def step_others(self) -> None:
        self.depth += 1
        try:
            for node in self.nodes:
                if not node.busy:
                    self.act(node)
        finally:
            self.depth -= 1

    def sends_request(self, node: Node, owned: Owned, running: Running) -> None:
        """The judge: who may request, and whether the host had its gap."""
        lease = running.lease
        others = [
            (other.name, part)
            for other in self.nodes
            for part, one in other.owned.items()
            if part == running.part and one is not owned and one.changelog.may_request()
        ]
        assert not others, f"{node.name} requests {lease.url}, but {others} may, too"
        assert lease.url not in self.acknowledged, f"{lease.url} was reported already"
        since = self.now - self.hosts.get(lease.host, 0)
        assert since >= DELAY * MICROSECONDS, f"{lease.host} had only {since / MICROSECONDS} s"
        self.hosts[lease.host] = running.ends
        self.requests[lease.url] = self.requests.get(lease.url, 0) + 1

    # -- what nodes do -------------------------------------------------------------------------------------------------

    def act(self, node: Node) -> None:
        """One step of a node. Meanwhile it does nothing else, whoever waits for an answer."""
        was, node.busy = node.busy, True
        try:
            self.act_alone(node)
        finally:
            node.busy = was

    def act_alone(self, node: Node) -> None:
        for part in range(len(self.partitions)):
            owned = node.owned.get(part)
            try:
                if owned is not None:
                    self.crawl(node, part, owned)
                elif part in node.claimed:
                    self.open(node, part)
                elif self.wants(part):
                    self.claim(node, part)
            except ClaimRefusedError:
                self.counts["refused"] += 1
                node.claimed.pop(part, None)
            except (StoreFailedError, UnreachableError) as error:
                if not isinstance(error, UnreachableError) and "epoch" not in str(error):
                    raise
                self.counts["lost"] += 1
                node.claimed.pop(part, None)
                if owned is not None:
                    owned.drop()
                node.owned.pop(part, None)
                node.running = [one for one in node.running if one.part != part]

    def wants(self, part: int) -> bool:
        """Whether a node that does not own a partition claims it. Membership is only advice, and here it is bad."""
        owners = [node for node in self.nodes if part in node.owned or part in node.claimed]
        if not owners:
            return self.chance.random() < 0.3
        away = any(node.busy or not self.reaches(node) for node in owners)
        return not self.is_calm and self.chance.random() < (0.1 if away else 0.005)

    def claim(self, node: Node, part: int) -> None:
        self.marks += 1
        pause = partial(self.pause, node)
        topic = self.topics[part].seen_by(partial(self.waits, node), lambda: self.reaches(node))
        snapshot = newest_snapshot(self.objects[part])
        found = claim(topic, self.partitions[part], snapshot, node=node.name, mark=str(self.marks), pause=pause)
        self.counts["claims"] += 1
        waits = 0 if found.clean else int(TENURE * MICROSECONDS)
        made = make_ready(node.disks[part], self.partitions[part], found, topic, self.objects[part])
        self.counts["rebuilt" if made else "kept"] += 1
        node.claimed[part] = found, self.now + waits

    def open(self, node: Node, part: int) -> None:
        found, ready = node.claimed[part]
        if self.now < ready:
            return
        del node.claimed[part]
        topic = self.topics[part].seen_by(partial(self.waits, node), lambda: self.reaches(node))
        clock = WallClock(self, node.skew)
        node.owned[part] = owned = open_store(
            node.disks[part],
            found,
            topic,
            tenure_seconds=TENURE,
            elapsed=lambda: self.now - node.boot,
            pause=partial(self.pause, node),
            clock=clock,
            seed=self.chance.randrange(1_000),
            settings={"delay": DELAY, "delay_factor": 0.0},
            robots="caller",
            judge=lambda found: clock.goes_on_from(found.tables.now),
        )
        self.clocks[owned] = clock

    def crawl(self, node: Node, part: int, owned: Owned) -> None:
        frontier = owned.frontier
        frontier.discover([FIRST])
        over = [one for one in node.running if one.part == part and one.ends <= self.now]
        if over:
            node.running = [one for one in node.running if one not in over]
            told = [one.lease.done(seconds=one.seconds, links=links_of(one.lease.url)) for one in over]
            for one, settled in zip(over, frontier.report(told), strict=True):
                if settled is Settled.OK:  # not if its lease has ended meanwhile
                    self.acknowledged.add(one.lease.url)
        if self.chance.random() < 0.03 and not self.is_calm:
            if not any(one.part == part for one in node.running):
                del node.owned[part]
                owned.give_up()
            return
        self.request(node, part, owned)
        if self.chance.random() < 0.1:
            owned.changelog.keep()
        if self.chance.random() < 0.05:
            self.upload(node, part, owned)
        self.carry(node, part, frontier)

    def request(self, node: Node, part: int, owned: Owned) -> None:
        for lease in owned.frontier.lease(self.chance.randrange(1, 4), ttl_seconds=LEASE_SECONDS):
            seconds = self.chance.uniform(0, REQUEST_SECONDS_MAX)
            # As a fetcher does: no request that could last longer than its lease.
            fits = self.clocks[owned]() + int(REQUEST_SECONDS_MAX * MICROSECONDS) <= lease.deadline
            if not fits or not owned.changelog.may_request():
                continue
            running = Running(lease, part, seconds, self.now + int(seconds * MICROSECONDS))
            self.sends_request(node, owned, running)
            node.running.append(running)

    def upload(self, node: Node, part: int, owned: Owned) -> None:
        owned.frontier.checkpoint()
        start = owned.frontier.statistics()["checkpoint"]["start_lsn"]
        done = upload(
            node.disks[part],
            self.objects[part],
            store=bytes.fromhex(self.partitions[part].store),
            counting=owned.changelog.mark(start),
            start_lsn=start,
            kept_after=start,
        )
        self.counts["uploads"] += done is not None

    def carry(self, node: Node, part: int, frontier: Frontier) -> None:
        """Carries links to another partition, if its owner does not wait for anything."""
        parcels = frontier.outbox(10)
        if not parcels:
            return
        for other in self.nodes:
            for target, owned in list(other.owned.items()):
                if target == part or (other.busy and other is not node):
                    continue
                size = SLOTS // len(self.partitions)
                ours = [parcel for parcel in parcels if int(str(parcel[2])) // size == target]
                try:
                    owned.frontier.receive(ours)
                except StoreFailedError:  # that owner has lost its claim
                    owned.drop()
                    del other.owned[target]
                    return
                if len(ours) == len(parcels) and self.chance.random() < 0.7:
                    frontier.delivered({int(str(parcel[0])): int(str(parcel[1])) for parcel in ours})
                return

    # -- what happens to nodes -----------------------------------------------------------------------------------------

    def reaches(self, node: Node) -> bool:
        return self.now >= node.cut_until

    def harm(self) -> None:
        """Sometimes a node is killed, loses its disk, or is cut off."""
        node = self.chance.choice(self.nodes)
        if node.busy:
            return
        if self.chance.random() < 0.02:
            self.counts["killed"] += 1
            node.owned.clear()
            node.claimed.clear()
            node.running.clear()
            for part, disk in enumerate(node.disks):
                if self.chance.random() < 0.3:
                    node.disks[part] = CrashDisk()
                else:
                    node.disks[part] = self.chance.choice(list(disk.crash_images(self.chance, 3)))
        elif self.chance.random() < 0.02:
            node.cut_until = self.now + self.chance.randrange(10 * MICROSECONDS)

    def step(self) -> None:
        self.now += self.chance.randrange(MICROSECONDS // 2)
        for node in self.chance.sample(self.nodes, len(self.nodes)):
            self.act(node)
        if not self.is_calm:
            self.harm()

    def calm(self) -> None:
        """From here on nothing fails."""
        self.is_calm = True
        for topic in self.topics:
            topic.calm()
        for node in self.nodes:
            node.cut_until = 0

    def owners(self) -> list[Owned]:
        """The newest owner of each partition that has one."""
        found: list[Owned] = []
        for part in range(len(self.partitions)):
            owners = [node.owned[part] for node in self.nodes if part in node.owned]
            found += sorted(owners, key=lambda owned: owned.changelog.epoch)[-1:]
        return found

    def states(self) -> dict[str, set[str]]:
        """The states of all pages in all partitions."""
        frontiers = [owned.frontier for owned in self.owners()]
        return {url: {frontier.status(url).state.value for frontier in frontiers} for url in reachable(FIRST)}

    def is_done(self) -> bool:
        owners = self.owners()
        done = sum(owned.frontier.statistics()["urls"]["done"] for owned in owners)  # type: ignore[index]
        return len(owners) == len(self.partitions) and done == len(reachable(FIRST))
