"""The rate of a whole crawl: all nodes together keep it in each minute, whichever partitions move between them."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from outrider import Frontier
from outrider.cluster import stores as own_stores
from outrider.cluster.description import new_manifest
from outrider.cluster.rate_shares import SHARE_REST, RateShares
from outrider.cluster.stores import OwnStore, OwnStores
from outrider.cluster.written_places import Places
from outrider.errors import SettingsError
from outrider.limits import MICROSECONDS
from outrider.storage.memory import MemoryFiles

PARTITIONS = 8


class Nodes:
    """Three nodes with clocks of their own, and the owner of each partition, by a common clock that no node sees."""

    def __init__(self, rate, seed):
        self.random, self.at = random.Random(seed), 0
        self.offsets = [self.random.randrange(10**12) for _ in range(3)]
        self.nodes = [RateShares(rate, PARTITIONS, lambda n=n: self.at + self.offsets[n]) for n in range(3)]
        # Its node, and from when this one may use the share.
        self.owner = [(self.random.randrange(3), 0) for _ in range(PARTITIONS)]
        self.fetches = []

    def move(self):
        """Another node opens the store of a partition."""
        partition = self.random.randrange(PARTITIONS)
        self.owner[partition] = self.random.randrange(3), self.at + SHARE_REST

    def fetch(self):
        node = self.random.randrange(3)
        shares = sum(owner == node and begins <= self.at for owner, begins in self.owner)
        count = self.nodes[node].available(shares)
        if count:
            self.nodes[node].take(count, allowed=count, wanted=count)
            self.fetches += [self.at] * count
        return shares, count, self.nodes[node].wait_seconds(shares)


def most_in_a_minute(fetches):
    most = first = 0
    for place, at in enumerate(fetches):
        while fetches[first] <= at - 60 * MICROSECONDS:
            first += 1
        most = max(most, place - first + 1)
    return most


@pytest.mark.parametrize("rate", [PARTITIONS / 60, 0.5, 1.7, 40.0])
def test_all_nodes_together_keep_the_rate_in_each_minute_while_partitions_move(rate):
    for seed in range(6):
        nodes = Nodes(rate, seed)
        for _ in range(4_000):
            nodes.at += nodes.random.choice((1_000, 100_000, 400_000))
            nodes.fetch()
            if nodes.random.random() < 0.01:
                nodes.move()
        assert most_in_a_minute(nodes.fetches) <= round(rate * 60)
        assert len(nodes.fetches) > 10


def test_partitions_that_stay_use_the_whole_rate():
    nodes = Nodes(2.0, 1)
    for _ in range(30_000):
        nodes.at += 20_000
        nodes.fetch()
    assert 0.9 * 2.0 * 600 <= len(nodes.fetches)
    assert most_in_a_minute(nodes.fetches) <= 120


def test_the_wait_ends_when_a_fetch_may_begin():
    nodes = Nodes(1.0, 2)
    for _ in range(2_000):
        shares, _, wait = nodes.fetch()
        assert (wait is None) == (shares == 0)
        nodes.at += int((wait or 0.1) * MICROSECONDS) + 1
        counts = [node.available(PARTITIONS) for node in nodes.nodes]
        assert any(counts)


def test_a_rate_below_one_fetch_a_minute_for_each_partition_is_refused_with_the_least():
    with pytest.raises(SettingsError, match=r"rate is 1,.*64 partitions; use --rate 1\.07 or more"):
        RateShares(1.0, 64, lambda: 0)
    assert RateShares(1.07, 64, lambda: 0).available(1) == 1
    assert RateShares(0.1, 6, lambda: 0).available(6) == 2


@pytest.fixture
def clock(monkeypatch):
    made = SimpleNamespace(at=5 * MICROSECONDS)
    monkeypatch.setattr(own_stores, "elapsed", lambda: made.at)
    return made


def test_stores_lease_no_more_than_the_shares_of_this_node(clock):
    manifest = new_manifest("x", 2, created="2026-01-01T00:00:00Z", random_bytes=bytes(range(48)))
    rate = RateShares(1.0, 2, lambda: clock.at)
    stores = OwnStores(manifest, send=list, lost=list, places=Places(MemoryFiles(), []), rate=rate)
    may = [True, True]
    for number in range(2):
        partition = manifest.partition(number)
        frontier = Frontier.open(
            MemoryFiles(), slots=partition.slots, keys=partition.keys, robots="caller",
            settings={"delay": 0.0, "delay_factor": 0.0},
        )  # fmt: skip
        frontier.discover([f"http://site{n}.test/{m}" for n in range(100) for m in range(2)])
        changelog = SimpleNamespace(may_request=lambda number=number: may[number], is_held=True)
        owned = SimpleNamespace(frontier=frontier, changelog=changelog, is_open=True)
        stores.add(OwnStore(number, owned, rate_from=number * SHARE_REST))

    def leased(seconds):
        total = 0
        for _ in range(seconds * 2):
            clock.at += MICROSECONDS // 2
            for store in stores.all():
                store.touch()
            total += len(stores.lease(16))
            assert 0 <= stores.next_ready_seconds() <= 0.25
        return total

    assert 25 <= leased(54) <= 30  # one share: the other store was opened lately
    assert 55 <= leased(60) <= 60
    may[0] = may[1] = False
    assert 0 == leased(5)  # the tenure is over: another node may have the shares
    may[1] = True
    assert 0 < leased(60) <= 30
    for store in stores.all():
        store.frontier.close()
    stores.close()
