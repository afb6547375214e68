"""Two frontiers own one half of the slots each: links cross between their logs, and no crash loses one."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from outrider import Frontier
from outrider.errors import SettingsError
from outrider.journey import Code
from outrider.limits import MICROSECONDS, SLOTS
from outrider.sim.disk import CrashDisk, FaultyFiles

HOSTS = [f"site{number}.test" for number in range(12)]
PAGES = 8
LOWER = frozenset(range(SLOTS // 2))
KEYS = (bytes(range(16)), bytes(range(16, 32)))
UPPER = frozenset(range(SLOTS // 2, SLOTS))


def links_of(url: str) -> list[str]:
    """The same links for the same URL: some on the host, most elsewhere."""
    chance = random.Random(url)
    return [f"http://{chance.choice(HOSTS)}/p{chance.randrange(PAGES)}" for _ in range(5)]


def reachable(seed: str) -> set[str]:
    found, left = {seed}, [seed]
    while left:
        for link in links_of(left.pop()):
            if link not in found:
                found.add(link)
                left.append(link)
    return found


class Cluster:
    """Two owners, a transport that loses and repeats whole batches, and a clock they share."""

    def __init__(self, chance: random.Random) -> None:
        self.now = 1_700_000_000 * MICROSECONDS
        self.chance = chance
        self.disks = [CrashDisk(), CrashDisk()]
        self.owners = [self.open(0), self.open(1)]
        self.visits: list[tuple[str, int]] = []

    def open(self, side: int) -> Frontier:
        return Frontier.open(
            self.disks[side], clock=lambda: self.now, slots=(LOWER, UPPER)[side], keys=KEYS, robots="caller"
        )

    def carry(self) -> None:
        """Carries the batches in the outboxes across; sometimes the answer is lost, so the batch is sent again."""
        for side, owner in enumerate(self.owners):
            parcels = owner.outbox(10)
            if not parcels or self.chance.random() < 0.3:
                continue
            self.owners[1 - side].receive(parcels)
            if self.chance.random() < 0.3:
                continue
            owner.delivered({int(str(parcel[0])): int(str(parcel[1])) for parcel in parcels})

    def crash(self, side: int) -> None:
        """Cuts the power of one side; another process takes over its slots from the synced state."""
        images = list(self.disks[side].crash_images(self.chance, 3))
        self.disks[side] = self.chance.choice(images)
        self.owners[side] = self.open(side)

    def step(self) -> None:
        for owner in self.owners:
            leases = owner.lease(3)
            self.visits += [(lease.host, self.now) for lease in leases]
            owner.report([lease.done(seconds=0.0, links=links_of(lease.url)) for lease in leases])
        self.carry()
        self.now += MICROSECONDS // 4


@pytest.mark.parametrize("seed", range(6))
def test_links_cross_between_two_logs_and_every_page_is_accepted_once(seed: int):
    chance = random.Random(seed)
    cluster = Cluster(chance)
    first = f"http://{HOSTS[0]}/p0"
    codes = [owner.discover([first])[0] for owner in cluster.owners]
    assert {Code.NEW, Code.HELD} == set(codes)
    for _ in range(2_000):
        cluster.step()
        if chance.random() < 0.03:
            cluster.crash(chance.randrange(2))
        if all(owner.finished() for owner in cluster.owners):
            break
    states = [[owner.status(url).state.value for owner in cluster.owners] for url in sorted(reachable(first))]
    assert [{"done", "unknown"}] * len(states) == [set(pair) for pair in states]
    counts = [owner.statistics() for owner in cluster.owners]
    assert len(reachable(first)) == sum(count["accepted"] for count in counts)  # type: ignore[misc]
    assert [0, 0] == [count["in_transit"] for count in counts]
    assert [True, True] == [owner.verify().ok for owner in cluster.owners]


@pytest.mark.parametrize("seed", range(3))
def test_a_host_keeps_its_gap_when_its_slot_changes_hands(seed: int):
    chance = random.Random(100 + seed)
    cluster = Cluster(chance)
    cluster.owners[0].discover([f"http://{HOSTS[0]}/p0"])
    cluster.owners[1].discover([f"http://{HOSTS[0]}/p0"])
    for _ in range(300):
        cluster.step()
        if chance.random() < 0.1:
            cluster.crash(chance.randrange(2))
    times: dict[str, list[int]] = {}
    for host, at in cluster.visits:
        times.setdefault(host, []).append(at)
    gaps = [b - a for visits in times.values() for a, b in pairwise(visits)]
    assert gaps
    assert min(gaps) >= MICROSECONDS


def test_a_parcel_that_arrives_twice_counts_once():
    cluster = Cluster(random.Random(1))
    sender = next(o for o in cluster.owners if o.discover(["http://site0.test/"]) == [Code.HELD])
    receiver = next(o for o in cluster.owners if o is not sender)
    receiver.discover(["http://site1.test/"])
    parcels = sender.outbox(10)
    receiver.receive(parcels)
    before = receiver.statistics()["accepted"]
    assert [Code.KNOWN] * len(parcels) == receiver.receive(parcels)
    assert before == receiver.statistics()["accepted"]


class Agreeable:
    """A changelog in which all frames count."""

    def append(self, lsn: int, frame: bytes) -> None:
        pass

    def begin(self, lsn: int) -> None:
        pass

    def wait(self, lsn: int) -> None:
        pass


def test_a_store_keeps_its_slots():
    disk = CrashDisk()
    Frontier.open(disk, slots=UPPER, keys=KEYS, robots="caller").close()
    with pytest.raises(SettingsError, match="made with '2048-4095'"):
        Frontier.open(disk, slots=LOWER, robots="caller")
    with Frontier.open(disk, robots="caller") as again:
        codes = again.discover([f"http://{host}/" for host in HOSTS])
    assert {Code.NEW, Code.HELD} == set(codes)


def test_the_tokens_of_a_partition_are_its_own_and_grow_over_openings():
    for part in (0, 5, 4095):
        size = 1 if part == 4095 else 256
        files, last = FaultyFiles(), (part << 40) - 1
        for _ in range(3):
            slots = frozenset(range(part * size, part * size + size))
            with Frontier.open(files, slots=slots, keys=KEYS, robots="caller", settings={"delay": 0}) as frontier:
                hosts = (f"http://s{number}.test/p{last}" for number in range(40_000))
                while not (leases := frontier.lease(1)):
                    frontier.discover([next(hosts) for _ in range(5_000)])
                assert last < leases[0].token < (part + 1) << 40
                last = leases[0].token


@pytest.mark.parametrize("left", [0, 7, 40])
def test_after_a_takeover_hosts_with_open_leases_rest_until_their_deadlines_and_one_delay(left: int):
    day = 86_400 * MICROSECONDS
    first, disk = Cluster(random.Random(1)).now, CrashDisk()
    now = first
    owner = Frontier.open(disk, clock=lambda: now, robots="caller", settings={"delay": 2.0})
    owner.discover(["http://a.test/1", "http://a.test/2", "http://b.test/1", "http://b.test/2"])
    taken = {lease.host: lease for lease in owner.lease(2, ttl_seconds=left + 10)}
    owner.report([taken["b.test"].done(seconds=0.0)])
    now += 10 * MICROSECONDS
    owner.discover(["http://c.test/"])  # the last instant of the log
    image = next(iter(disk.crash_images(random.Random(2), 1)))
    now -= day  # of another machine, whose clock is late
    owner = Frontier.open(image, clock=lambda: now, robots="caller", settings={"delay": 2.0}, changelog=Agreeable())
    now = first + 10 * MICROSECONDS  # that clock stands still until it has caught up
    begins = {}
    for _ in range(4 * (left + 10)):
        for lease in owner.lease(9):
            begins.setdefault(lease.host, now)
        now += MICROSECONDS // 4
    assert (left + 2) * MICROSECONDS == begins["a.test"] - first - 10 * MICROSECONDS
    assert begins["b.test"] - first <= 12 * MICROSECONDS


def test_a_takeover_right_after_another_still_waits_for_the_requests_of_the_first_owner():
    now, disk = Cluster(random.Random(1)).now, CrashDisk()

    def opened() -> Frontier:
        changelog = Agreeable()
        return Frontier.open(disk, clock=lambda: now, robots="caller", settings={"delay": 1.0}, changelog=changelog)

    owner = opened()
    owner.discover(["http://a.test/1"])
    assert 1 == len(owner.lease(1, ttl_seconds=20))
    for skew in (5, 86_400, 0):  # of three machines
        now += skew * MICROSECONDS
        disk = next(iter(disk.crash_images(random.Random(2), 1)))
        owner = opened()
    begins = now
    while not owner.lease(1):
        now += MICROSECONDS // 4
    assert 21 * MICROSECONDS == now - begins
