"""A node says each loss of a partition once, at whatever moment it finds the claim of another node."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from outrider.cluster import node as nodes
from outrider.cluster.words import unpacked_word
from outrider.errors import ClaimLostError, SettingsError
from outrider.limits import NODE_COUNT_SECONDS, TENURE_SECONDS
from outrider.sim.topic import MemoryObjects
from unit.cluster_partition import OnePartition, TrimmedTopic

SAID = ["another node owns partition 0 now"]


class Watched(OnePartition):
    """A node that owns the partition, the partition's next owner, and what the node says."""

    def __init__(self, tmp_path, topic=None):
        topic, objects = topic or TrimmedTopic(), MemoryObjects()
        super().__init__(tmp_path / "one", topic, objects)
        self.said, self.dropped = [], []
        self.watcher = self.node._watcher = SimpleNamespace(
            say=self.said.append,
            wake=lambda: None,
            opened=lambda store, claimed: None,
            leaves=lambda store: None,
            lost=lambda store: self.dropped.append(store.number),
        )
        self.node._links._places[0].received = 1  # so that the node has something to note
        self.other = OnePartition(tmp_path / "other", topic, objects)

    def claim(self):
        """Claims the partition as this node does; True if it owns it then."""
        self.node._places[0].wanted = True
        self.node._working(0, self.node._claim)
        return self.node.stores.get(0)

    def leave(self):
        self.node._places[0].wanted = False
        self.node._working(0, self.node._leave)
        self.node._working(0, self.node._leave)
        assert self.node.failure is None
        assert [] == self.node.stores.all()

    def lose(self, *_):
        """Another node claims the partition."""
        folder = self.other.folder / "0000"
        folder.mkdir(exist_ok=True)
        self.other.node._claimed(0, str(folder))


@pytest.fixture
def one(tmp_path):
    return Watched(tmp_path)


def before(called, what):
    """Returns a function that does something more before each call."""

    def call(*given, **named):
        what()
        return called(*given, **named)

    return call


def test_a_partition_that_is_given_up_in_good_order_is_not_lost(one):
    store = one.claim()
    one.leave()
    assert ([], False) == (one.said, store.owned.is_open)
    one.lose()


def test_a_claim_that_an_append_finds_lost_is_said_once(one):
    store = one.claim()
    one.lose()
    with pytest.raises(ClaimLostError):
        store.owned.changelog.keep()
    one.leave()
    assert (SAID, [0]) == (one.said, one.dropped)


@pytest.mark.parametrize("moment", ["leaves", "note", "checkpoint", "close", "end"])
def test_a_claim_that_is_lost_while_its_partition_is_given_up_is_said_once(one, moment):
    store = one.claim()
    store.frontier.discover(["http://site.test/"])
    if moment == "leaves":
        one.watcher.leaves = one.lose
    elif moment == "note":
        one.node._links.note_received = before(one.node._links.note_received, one.lose)
    elif moment in ("checkpoint", "close"):
        setattr(store.frontier, moment, before(getattr(store.frontier, moment), one.lose))
    else:
        store.owned.changelog.end = before(store.owned.changelog.end, one.lose)
    one.leave()
    assert SAID == one.said
    assert not store.owned.is_open


@pytest.mark.parametrize("moment", ["open", "keep"])
def test_a_claim_that_is_lost_while_its_store_is_opened_is_said_once(one, moment, monkeypatch):
    opens = nodes.open_store

    def open_store(*given, **named):
        if moment == "open":
            one.lose()
        owned = opens(*given, **named)
        if moment == "keep":
            one.lose()
        return owned

    monkeypatch.setattr(nodes, "open_store", open_store)
    assert one.claim() is None
    assert (SAID, None) == (one.said, one.node.failure)


def test_a_second_loss_is_said_again(one):
    for _ in range(2):
        store = one.claim()
        one.lose()
        with pytest.raises(ClaimLostError):
            store.owned.changelog.keep()
        one.leave()
    assert 2 * SAID == one.said


def test_a_partition_that_could_not_be_given_up_is_lost_only_if_another_node_has_claimed_it(one):
    one.claim()
    one.node._lose(one.node.stores.get(0))
    assert ([], []) == (one.said, one.node.stores.all())


@pytest.fixture
def namesakes(one, tmp_path):
    """Two nodes of one name, the second one with a copy of the directory. The first one has begun before."""
    (tmp_path / "copy").mkdir()
    copy = Watched(tmp_path / "copy", one.topic)
    for begun, node in enumerate((one.node, copy.node)):
        node._brokers.ends = lambda which, partitions, begun=begun: dict.fromkeys(partitions, begun)
        node._begin()
    return one, copy


def message(of, **more):
    return unpacked_word(of.node._word([], **more))


def test_of_two_nodes_of_one_name_the_later_one_ends_and_says_why(namesakes):
    first, later = namesakes
    later.node._places[0].wanted = True
    for _ in range(3):
        first.node._hear(message(later))
        later.node._hear(message(later))
    late = message(first)
    for _ in range(3):
        later.node._hear(late)  # of a former process, maybe
    later.node._hear(message(first, ended=True))
    assert (None, None) == (first.node.failure, later.node.failure)
    later.node._hear(message(first))
    assert first.node.failure is None
    assert isinstance(later.node.failure, SettingsError)
    assert "another node with the name one runs" in str(later.node.failure)
    assert not later.node._places[0].wanted


def test_a_node_that_starts_again_opens_no_store_before_it_would_have_heard_its_namesake(namesakes):
    first, later = namesakes
    first.claim()
    waited = []
    later.node._stop = SimpleNamespace(wait=lambda seconds: waited.append(seconds) or True, is_set=lambda: False)
    assert later.claim() is None
    assert 0 < waited[0] <= 3 * NODE_COUNT_SECONDS < TENURE_SECONDS
    later.node._alone_at = 0.0
    assert 0 == later.claim().number
    later.leave()
    first.leave()
