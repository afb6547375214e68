"""A topic in memory that loses, delays and repeats records and acknowledgements, and objects in memory.

A record can come into the topic when it is sent, when its sender waits, later, twice, or never. While a sender waits,
the rest of a simulated world can go on. So a node can be paused between a record and its acknowledgement.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from outrider.errors import UnreachableError


@dataclass(frozen=True, slots=True)
class Faults:
    """Chances from 0 to 1. lost: a record never comes. unknown: its sender gets no answer. late: it comes while later
    records are sent. twice: it comes twice."""

    lost: float = 0.0
    unknown: float = 0.0
    late: float = 0.0
    twice: float = 0.0


class FaultyTopic:
    """One partition of a topic. Its `RecordTopic` for a node is made by `seen_by`."""

    def __init__(self, chance: random.Random, faults: Faults, *, read_max: int = 50) -> None:
        """read_max: how many records one call of `read` returns at most."""
        self.records: list[bytes] = []
        self._chance, self._faults, self._read_max = chance, faults, read_max
        self._late: list[bytes] = []

    def seen_by(self, waits: Callable[[], None], reaches: Callable[[], bool]) -> NodesTopic:
        """Returns the topic as one node sees it. waits: is called while a sender waits. reaches: whether the node
        reaches the brokers now."""
        return NodesTopic(self, waits, reaches)

    def add(self, record: bytes) -> int:
        """Appends a record, after some of the late ones. Returns its offset."""
        while self._late and self._chance.random() < 0.5:
            self.records.append(self._late.pop(self._chance.randrange(len(self._late))))
        self.records.append(record)
        return len(self.records) - 1

    def fall(self, record: bytes) -> int | None:
        """Lets chance decide what happens to a record. Returns its offset, None if it is not there."""
        faults = self._faults
        if self._chance.random() < faults.lost:
            return None
        if self._chance.random() < faults.late:
            self._late.append(record)
            return None
        offset = self.add(record)
        if self._chance.random() < faults.twice:
            if self._chance.random() < 0.5:
                offset = self.add(record)
            else:
                self._late.append(record)
        return offset

    def answers(self) -> bool:
        """Whether a sender gets its answer, by chance."""
        return self._chance.random() >= self._faults.unknown

    def calm(self) -> None:
        """From here on nothing is lost, late or repeated."""
        self._faults = Faults()

    def records_from(self, offset: int) -> list[tuple[int, bytes]]:
        """Returns records from an offset on."""
        return list(enumerate(self.records[offset : offset + self._read_max], offset))


class NodesTopic:
    """A topic as one node sees it, with the methods of `cluster.counting.RecordTopic`."""

    def __init__(self, topic: FaultyTopic, waits: Callable[[], None], reaches: Callable[[], bool]) -> None:
        self._topic, self._waits, self._reaches = topic, waits, reaches

    def send(self, record: bytes) -> _OnItsWay:
        return _OnItsWay(self._topic, record, self._waits, self._reaches)

    def read(self, offset: int) -> list[tuple[int, bytes]]:
        if not self._reaches():
            raise UnreachableError("no broker answers")
        return self._topic.records_from(offset)


class _OnItsWay:
    def __init__(
        self, topic: FaultyTopic, record: bytes, waits: Callable[[], None], reaches: Callable[[], bool]
    ) -> None:
        self._topic, self._waits, self._reaches, self._record = topic, waits, reaches, record
        self._offset = topic.fall(record) if reaches() and topic.answers() else None
        self._fell = self._offset is not None

    def offset(self) -> int:
        self._waits()
        if not self._fell and self._reaches():
            self._offset, self._fell = self._topic.fall(self._record), True
        if self._offset is None or not self._reaches() or not self._topic.answers():
            raise UnreachableError("no broker answered in time")
        return self._offset


class MemoryObjects:
    """Objects in memory, with the methods of `cluster.snapshots.Objects`."""

    def __init__(self, reaches: Callable[[], bool] = lambda: True) -> None:
        self.content: dict[str, bytes] = {}
        self._reaches = reaches

    def put(self, name: str, pieces: Iterable[bytes]) -> None:
        whole = b"".join(pieces)
        self._check()
        self.content[name] = whole

    def get(self, name: str) -> Iterator[bytes]:
        self._check()
        if name not in self.content:
            raise FileNotFoundError(name)
        yield self.content[name]

    def names(self, prefix: str) -> list[str]:
        self._check()
        return sorted(name for name in self.content if name.startswith(prefix))

    def remove(self, name: str) -> None:
        self._check()
        self.content.pop(name, None)

    def _check(self) -> None:
        if not self._reaches():
            raise UnreachableError("the object store does not answer")
