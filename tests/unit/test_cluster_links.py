"""Links between the partitions of a cluster, with the topic in memory: a slow partition slows down those that send to
it, and records are received together."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from limiting import set_limits
from outrider import Frontier, Link
from outrider.cluster.description import new_manifest
from outrider.cluster.link_transport import LinkTransport
from outrider.cluster.links import packed_links
from outrider.cluster.stores import OwnStore, OwnStores
from outrider.cluster.written_places import Places
from outrider.limits import CLUSTER_REFUSED_SAID_MAX
from outrider.storage.memory import MemoryFiles

HOSTS = [f"site{number}.test" for number in range(24)]
RECORDS_MAX, AT_ONCE = 3, 5


class Changelog:
    is_held, epoch, lsn = True, 1, 0

    def may_request(self):
        return True

    def keep(self):
        pass


class Brokers:
    """The topics `urls` and `dead` in memory."""

    def __init__(self, partitions):
        self.file = SimpleNamespace(topic=lambda which: which)
        self.urls, self.dead = [[] for _ in range(partitions)], []

    def send(self, topic, partition, record):
        records = self.urls[partition] if topic == "urls" else self.dead
        records.append(record)
        offset = len(records) - 1
        return SimpleNamespace(offset=lambda: offset)

    def reader(self, which):
        return SimpleNamespace(read=self._read, close=lambda: None)

    def _read(self, places):
        found = {number: list(enumerate(self.urls[number]))[at : at + self.some] for number, at in places.items()}
        return {number: records for number, records in found.items() if records}

    some = 100
    """How many records are read at once."""


class Nodes:
    """Two nodes with a partition each: the first one finds links, the second one receives them."""

    def __init__(self):
        self.manifest = new_manifest("x", 2, created="2026-01-01T00:00:00Z", random_bytes=bytes(range(48)))
        self.brokers, self.said, self.links, self.stores = Brokers(2), [], [], []
        for number in range(2):
            partition = self.manifest.partition(number)
            frontier = Frontier.open(
                MemoryFiles(), slots=partition.slots, keys=partition.keys, robots="caller",
                settings={"delay": 0.0, "delay_factor": 0.0, "scope": "any"},
            )  # fmt: skip
            store = OwnStore(number, SimpleNamespace(frontier=frontier, changelog=Changelog(), is_open=True))
            stores = OwnStores(self.manifest, send=list, lost=lambda number: None, places=Places(MemoryFiles(), []))
            stores.add(store)
            self.stores.append(stores)
            self.links.append(
                LinkTransport(self.manifest, self.brokers, stores, applied=self.received, say=self.said.append)
            )

    def received(self, number):
        return self.links[number].received(number)

    def hosts(self, number):
        return [host for host in HOSTS if self.manifest.partition_of_host(host) == number]

    def frontier(self, number):
        return self.stores[number].get(number).frontier

    def waiting(self):
        return len(self.brokers.urls[1]) - self.received(1)

    def close(self):
        for number in range(2):
            self.frontier(number).close()
            self.links[number].close()
            self.stores[number].close()


@pytest.fixture
def nodes(monkeypatch):
    set_limits(monkeypatch, LINK_RECORDS_MAX=RECORDS_MAX, LINKS_CARRIED_AT_ONCE=AT_ONCE, LINKS_UNSENT_MAX=AT_ONCE)
    made = Nodes()
    yield made
    made.close()


def pages(nodes, round_):
    """Leases at the first node, and reports pages with two new links to the other one each."""
    leases = [*nodes.stores[0].lease(4)]
    for lease in leases:
        host = nodes.hosts(1)[lease.token % len(nodes.hosts(1))]
        found = [Link(f"http://{host}/{lease.token}/{n}") for n in range(2)]
        nodes.stores[0].report([lease.done(seconds=0.0, links=found)])
    return len(leases)


def test_a_slow_partition_slows_down_the_partition_that_sends_to_it_and_the_crawl_still_ends(nodes):
    nodes.frontier(0).discover([f"http://{host}/{n}" for host in nodes.hosts(0) for n in range(10)])
    wanted = 2 * 10 * len(nodes.hosts(0))
    held_up, most_waiting, most_held = 0, 0, 0
    for round_ in range(3_000):
        leased = pages(nodes, round_)
        nodes.links[0].carry()
        store = nodes.stores[0].get(0)
        held_up += store.leases_wait and not leased
        most_waiting = max(most_waiting, nodes.waiting())
        most_held = max(most_held, len(store.frontier.outbox(10_000)))
        if round_ % 9 == 8:  # the other one receives a record now and then
            nodes.brokers.some = 1
            nodes.links[1].receive()
        if nodes.frontier(0).finished() and not nodes.waiting():
            break
    assert RECORDS_MAX == most_waiting
    assert most_held <= AT_ONCE + 2 * 4  # and the links of the pages that were leased before
    assert held_up > 9
    assert nodes.frontier(0).finished()
    assert wanted == nodes.frontier(1).statistics()["urls"]["queued"]
    assert not nodes.stores[0].get(0).leases_wait


def test_links_for_other_partitions_are_sent_while_one_is_full_and_none_is_sent_twice(nodes):
    store = nodes.stores[0].get(0)
    nodes.brokers.urls[1] += [next(iter(packed_links([Link(f"http://{nodes.hosts(1)[0]}/p{n}")]))) for n in range(3)]
    nodes.links[0]._ends[1] = 3
    store.frontier.discover([f"http://{nodes.hosts(1)[0]}/{n}" for n in range(3)])
    for _ in range(5):
        assert 0 == nodes.links[0].carry()
    assert (1, False) == (store.slow_target, store.leases_wait)  # few links: it goes on
    assert 3 == len(nodes.brokers.urls[1])
    nodes.links[1].receive()
    assert 3 == nodes.links[0].carry()
    assert 0 == nodes.links[0].carry()
    assert 4 == len(nodes.brokers.urls[1])
    nodes.links[1].receive()
    assert 6 == nodes.frontier(1).statistics()["accepted"]


def test_records_are_received_together_and_one_that_is_no_link_is_refused_alone(nodes, monkeypatch):
    host = nodes.hosts(1)[0]
    good = [next(iter(packed_links([Link(f"http://{host}/{n}")]))) for n in range(4)]
    nodes.frontier(0).discover([f"http://{host}/parcel{n}" for n in range(3)])
    nodes.links[0].carry()
    (parcels,) = nodes.brokers.urls[1]
    damaged = json.loads(parcels)
    damaged["links"][0][3] = 7  # a crawl's name is text
    nodes.brokers.urls[1][:] = [*good, b"{", json.dumps(damaged).encode(), parcels]
    calls = []
    discover = nodes.frontier(1).discover
    monkeypatch.setattr(nodes.frontier(1), "discover", lambda links: calls.append(len(links)) or discover(links))
    assert 7 == nodes.links[1].receive()
    assert [4] == calls
    assert 7 == nodes.received(1)
    nodes.links[1].note_received(nodes.stores[1].get(1))
    assert 7 == int(nodes.frontier(1).watermarks()["links"])
    assert 7 == nodes.frontier(1).statistics()["accepted"]
    assert [4, 5] == [json.loads(one)["offset"] for one in nodes.brokers.dead]
    assert 2 == len(nodes.said) == nodes.links[1].refused


def test_many_messages_that_are_no_links_are_counted_and_the_first_ones_are_printed(nodes):
    nodes.brokers.urls[1][:] = [b"{"] * 20
    assert 20 == nodes.links[1].receive()
    assert (20, 20) == (len(nodes.brokers.dead), nodes.links[1].refused)
    assert CLUSTER_REFUSED_SAID_MAX == len(nodes.said)
    assert "further ones are counted" in nodes.said[-1]
