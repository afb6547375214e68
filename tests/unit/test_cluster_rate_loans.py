"""Idle nodes lend their shares of the rate: all nodes together keep it in each minute, whatever happens to messages,
nodes and owners, and a node that needs more has the whole rate after a bounded time."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from outrider.cluster import node as nodes
from outrider.cluster.rate_loans import RateLoans, note_lent, note_returned, rest_of
from outrider.cluster.rate_shares import SHARE_REST, RateShares
from outrider.cluster.words import unpacked_word
from outrider.limits import MICROSECONDS, RATE_IDLE_SECONDS, RATE_LOAN_SECONDS
from outrider.sim.topic import MemoryObjects
from unit.cluster_partition import OnePartition, TrimmedTopic
from unit.test_cluster_rate import most_in_a_minute

PARTITIONS, NODES = 8, 3
RATE = 4.0
LEAST = PARTITIONS / 60  # one fetch a minute for each partition: a node that begins may fetch two at once


class Notes:
    """The places that the store of a partition keeps. Each owner of the partition reads them."""

    def __init__(self):
        self.kept = {}

    def watermarks(self):
        return dict(self.kept)

    def note_watermark(self, name, value):
        self.kept[name] = value


@dataclass
class Node:
    name: str
    rate: RateShares
    loans: RateLoans
    stores: list = field(default_factory=list)
    is_busy: bool = False
    paused_until: int = 0


class World:
    """Nodes with clocks of their own; messages that come late, twice or never."""

    def __init__(self, seed, *, harsh=True, rate=RATE):
        self.random, self.at, self.harsh, self.rate = random.Random(seed), 0, harsh, rate
        self.notes = [Notes() for _ in range(PARTITIONS)]
        self.messages, self.fetches = [], []
        self.borrowed = 0  # the most shares that a node had from others
        self.nodes = [self.new(number) for number in range(NODES)]
        for number in range(PARTITIONS):
            self.nodes[number % NODES].stores.append(self.store(number, rate_from=0))

    def new(self, number):
        ahead = self.random.randrange(10**12)
        now = lambda: self.at + ahead  # noqa: E731
        node = Node(f"n{number}", RateShares(self.rate, PARTITIONS, now), RateLoans(f"n{number}", now))
        node.now = now
        return node

    def store(self, number, rate_from):
        return SimpleNamespace(number=number, rate_from=rate_from, rate_lent_to="", frontier=self.notes[number])

    def move(self, number):
        """Another node opens the store of a partition."""
        for node in self.nodes:
            node.stores = [store for store in node.stores if store.number != number]
        owner = self.random.choice(self.nodes)
        store = self.store(number, 0)
        store.rate_from = owner.now() + rest_of(store)
        owner.stores.append(store)

    def kill(self, number):
        """A node dies, and starts again without a partition."""
        lost, self.nodes[number] = self.nodes[number].stores, self.new(number)
        for store in lost:
            self.move(store.number)

    def act(self, node):
        if node.paused_until > self.at:
            return
        for message in [one for one in self.messages if one[0] is node and one[1] <= self.at]:
            self.messages.remove(message)
            node.loans.hear(*message[2])
        own = sum(store.rate_from <= node.now() for store in node.stores)
        borrowed = node.loans.borrowed()
        self.borrowed = max(self.borrowed, borrowed)
        wanted = 5 if node.is_busy else 0
        allowed = node.rate.available(own + borrowed)
        count = min(wanted, allowed)
        node.rate.take(count, allowed=allowed, wanted=wanted)
        self.fetches += [self.at] * count

    def tell(self, node):
        """The message of each second."""
        if node.paused_until > self.at:
            return
        mark = node.loans.ask(node.rate.short_at)
        loans = node.loans.lend(node.stores, node.rate.used_at)
        for store in node.stores:
            note_returned(store, node.now())
            if store.number in {loan.partition for loan in loans}:
                note_lent(store)
        for other in self.nodes:
            for _ in range(self.random.choice((0, 1, 1, 1, 2)) if self.harsh else 1):
                late = self.random.choice((0, 0, 0, 1, 40, 200)) if self.harsh else 0
                self.messages.append((other, self.at + late * MICROSECONDS, (node.name, mark, loans)))

    def second(self):
        for _ in range(4):
            self.at += MICROSECONDS // 4
            for node in self.random.sample(self.nodes, NODES):
                self.act(node)
        for node in self.nodes:
            self.tell(node)

    def harm(self):
        if self.random.random() < 0.004:
            node = self.random.choice(self.nodes)
            node.is_busy = not node.is_busy
        if self.random.random() < 0.005:
            self.move(self.random.randrange(PARTITIONS))
        if self.random.random() < 0.002:
            self.kill(self.random.randrange(NODES))
        if self.random.random() < 0.005:
            paused = self.random.choice(self.nodes)
            paused.paused_until = self.at + self.random.randrange(200) * MICROSECONDS

    def fetched(self, seconds):
        """The fetches of a time that passes."""
        before = len(self.fetches)
        for _ in range(int(seconds)):
            self.second()
        return len(self.fetches) - before


@pytest.mark.parametrize("rate", [LEAST, RATE])
def test_all_nodes_together_keep_the_rate_in_each_minute_whatever_is_lent(rate):
    borrowed = 0
    for seed in range(4):
        world = World(seed, rate=rate)
        world.nodes[0].is_busy = True
        for _ in range(1_000):
            world.second()
            world.harm()
        assert most_in_a_minute(world.fetches) <= round(rate * 60), f"seed {seed}"
        borrowed += world.borrowed
    assert borrowed > 4


def test_a_node_that_needs_more_has_nearly_the_whole_rate_after_a_bounded_time():
    world = World(1, harsh=False)
    world.nodes[0].is_busy = True
    alone = world.fetched(60)
    assert alone <= RATE * 60 * 3 / PARTITIONS + 1
    world.fetched(RATE_IDLE_SECONDS + SHARE_REST / MICROSECONDS)
    kept = NODES - 1  # the others keep one share each
    wanted = RATE * (PARTITIONS - kept) / PARTITIONS
    assert 0.9 * wanted * 600 <= world.fetched(600) <= wanted * 600 + RATE
    assert most_in_a_minute(world.fetches) <= RATE * 60


def test_an_idle_node_that_gets_work_has_its_shares_again_after_a_bounded_time():
    world = World(2, harsh=False)
    world.nodes[0].is_busy = True
    world.fetched(300)
    assert 3 == world.nodes[0].loans.borrowed()
    world.nodes[1].is_busy = True
    before = len(world.fetches)
    world.fetched(1)
    assert len(world.fetches) > before  # with the share that it has kept
    world.fetched(RATE_LOAN_SECONDS + SHARE_REST / MICROSECONDS + 2)
    node = world.nodes[1]
    assert all(store.rate_from <= node.now() for store in node.stores)
    assert {b"0"} == {store.frontier.kept.get("rate", b"0") for store in node.stores}
    assert 1 == world.nodes[0].loans.borrowed()  # of the node that is still idle


@pytest.mark.parametrize("rate", [LEAST, RATE])
def test_the_rate_is_kept_when_all_lenders_need_their_shares_at_once(rate):
    world = World(4, harsh=False, rate=rate)
    world.nodes[0].is_busy = True
    world.fetched(300)
    for node in world.nodes:
        node.is_busy = True
    world.fetched(RATE_LOAN_SECONDS + 2 * SHARE_REST / MICROSECONDS)
    assert most_in_a_minute(world.fetches) <= round(rate * 60)
    assert 0.9 * rate * 60 - NODES <= world.fetched(60)


@pytest.mark.parametrize("is_lent", [False, True])
def test_the_next_owner_of_a_lent_share_waits_for_the_end_of_the_loan(is_lent):
    world = World(3, harsh=False)
    (store, *_) = world.nodes[1].stores
    if is_lent:
        note_lent(store)
    rest = rest_of(world.store(store.number, 0))
    assert rest == SHARE_REST + (RATE_LOAN_SECONDS * MICROSECONDS if is_lent else 0)


def test_a_node_notes_a_loan_in_its_store_before_it_answers_and_the_borrower_uses_it(tmp_path, monkeypatch):
    at = [10**12]
    monkeypatch.setattr(nodes, "elapsed", lambda: at[0])
    borrower, lender = (
        OnePartition(tmp_path / name, TrimmedTopic(), MemoryObjects(), rate=RateShares(1.0, 1, lambda: at[0]))
        for name in ("borrower", "lender")
    )
    store = lender.open()
    lender.node.stores.add(store)
    lender.node.stores.add(SimpleNamespace(number=-1, rate_from=0, rate_lent_to="", frontier=Notes()))
    lender.node.stores._stores = dict(sorted(lender.node.stores._stores.items()))  # the share of the other one stays
    told = unpacked_word(borrower.node._word([]))
    assert "" == told.needs_rate
    borrower.node._rate.short_at = at[0]
    told = unpacked_word(borrower.node._word([]))
    assert told.needs_rate
    at[0] += int(RATE_IDLE_SECONDS * MICROSECONDS)
    lender.node._hear(told)
    loans = lender.node._lend()
    assert [(0, told.needs_rate)] == [(loan.partition, loan.mark) for loan in loans]
    assert b"1" == store.frontier.watermarks()["rate"]
    assert SHARE_REST + RATE_LOAN_SECONDS * MICROSECONDS == rest_of(store)
    borrower.node._hear(unpacked_word(lender.node._word([], loans=loans)))
    assert 0 == borrower.node.stores.borrowed_shares()
    at[0] += SHARE_REST
    assert 1 == borrower.node.stores._rate_shares()
    at[0] += int(RATE_LOAN_SECONDS * MICROSECONDS)
    assert 0 == borrower.node.stores._rate_shares()
    lender.node._lend()
    assert b"0" == store.frontier.watermarks()["rate"]
    store.owned.give_up()
