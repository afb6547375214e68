"""A node and the only partition of its cluster, on a topic in memory, for tests."""

from __future__ import annotations

import random
from types import SimpleNamespace

from outrider.cluster.description import new_manifest
from outrider.cluster.node import ClusterNode
from outrider.cluster.owning import open_store
from outrider.cluster.stores import OwnStore
from outrider.errors import DamagedStoreError
from outrider.sim.topic import Faults, FaultyTopic
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

    def __init__(self, folder, topic, objects, **how):
        self.topic, self.folder, self.trimmed, self.links_trimmed = topic, folder, [], []
        folder.mkdir()
        brokers = SimpleNamespace(
            file=SimpleNamespace(topic=str),
            changelog=lambda number: topic,
            trim=self._trim,
            reader=lambda which: SimpleNamespace(close=lambda: None),
        )
        manifest = new_manifest("x", 1, created="2026-01-01T00:00:00Z", random_bytes=bytes(48))
        self.node = ClusterNode(
            manifest, brokers, lambda number: objects, str(folder), SimpleNamespace(), SimpleNamespace(),
            name=folder.name, settings={}, **how,
        )  # fmt: skip

    def _trim(self, which, partition, offset):
        assert 0 == partition
        if which == "urls":
            self.links_trimmed.append(offset)
            return
        self.trimmed.append(offset)
        self.topic.first = offset

    def open(self, **how):
        path = self.folder / "0000"
        path.mkdir()
        claimed, _ = self.node._claimed(0, str(path))
        owned = open_store(
            Directory(str(path)), claimed, self.topic, tenure_seconds=10.0, elapsed=lambda: 0, pause=lambda: None,
            robots="caller", **how,
        )  # fmt: skip
        return OwnStore(0, owned)
