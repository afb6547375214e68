"""Old records of a changelog are deleted one snapshot late, and a claim by a snapshot that is too old begins again."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from outrider.cluster.description import new_manifest
from outrider.cluster.node import ClusterNode
from outrider.cluster.owning import open_store
from outrider.cluster.stores import OwnStore
from outrider.errors import ClaimRefusedError, DamagedStoreError
from outrider.sim.topic import Faults, FaultyTopic, MemoryObjects
from outrider.storage.files import Directory


class TrimmedTopic:
    """A changelog whose first records may be deleted."""

    def __init__(self):
        self._topic = FaultyTopic(random.Random(1), Faults())
        self._seen = self._topic.seen_by(lambda: None, lambda: True)
        self.first, self.send = 0, self._seen.send

    def read(self, offset):
        if offset < self.first:
            raise DamagedStoreError("dropped")
        return self._seen.read(offset)


class OnePartition:
    """A node that may own the only partition of a cluster."""

    def __init__(self, folder, topic, objects):
        self.topic, self.folder, self.trimmed = topic, folder, []
        folder.mkdir()
        brokers = SimpleNamespace(changelog=lambda number: topic, trim=self._trim)
        manifest = new_manifest("x", 1, created="2026-01-01T00:00:00Z", random_bytes=bytes(48))
        self.node = ClusterNode(
            manifest, brokers, lambda number: objects, str(folder), SimpleNamespace(), SimpleNamespace(),
            name=folder.name, settings={},
        )  # fmt: skip

    def _trim(self, which, partition, offset):
        assert ("facts", 0) == (which, partition)
        self.trimmed.append(offset)
        self.topic.first = offset

    def open(self):
        path = self.folder / "0000"
        path.mkdir()
        claimed, _ = self.node._claimed(0, str(path))
        owned = open_store(
            Directory(str(path)), claimed, self.topic, tenure_seconds=10.0, elapsed=lambda: 0, pause=lambda: None,
            robots="caller",
        )  # fmt: skip
        return OwnStore(0, owned)


def add_pages_and_upload(one, store, round_):
    for number in range(80):
        store.frontier.discover([f"http://site{number}.test/{round_}"])
    store.frontier.checkpoint()
    one.node._upload(store)


def test_records_before_the_snapshot_before_the_newest_are_deleted_and_a_claim_needs_no_more(tmp_path):
    topic, objects = TrimmedTopic(), MemoryObjects()
    first = OnePartition(tmp_path / "first", topic, objects)
    store = first.open()
    for round_ in range(3):
        add_pages_and_upload(first, store, round_)
        first.node._upload(store)  # nothing new
    assert 2 == len(first.trimmed)
    assert sorted(set(first.trimmed)) == first.trimmed
    assert first.trimmed[-1] > 0
    store.owned.give_up()
    again = OnePartition(tmp_path / "again", topic, objects).open()
    assert 240 == again.frontier.statistics()["accepted"]
    assert again.frontier.verify().ok
    again.owned.give_up()


def test_a_claim_that_was_paused_over_two_snapshots_begins_again(tmp_path):
    topic, objects = TrimmedTopic(), MemoryObjects()
    first = OnePartition(tmp_path / "first", topic, objects)
    store = first.open()
    add_pages_and_upload(first, store, 0)
    old = dict(objects.content)
    for round_ in (1, 2):
        add_pages_and_upload(first, store, round_)

    whole, objects.content = objects.content, old

    def wakes(offset):
        objects.content = whole
        raise DamagedStoreError("dropped")

    late = OnePartition(tmp_path / "late", SimpleNamespace(send=topic.send, read=wakes), objects)
    with pytest.raises(ClaimRefusedError, match="old snapshot"):
        late.open()
    damaged = OnePartition(tmp_path / "damaged", SimpleNamespace(send=topic.send, read=wakes), objects)
    with pytest.raises(DamagedStoreError, match="dropped"):
        damaged.open()
    store.owned.drop()
