"""Tails: the chunks on disk of each queue, the best first, and a column with the class of the best card of each."""

from __future__ import annotations

from array import array

import numpy as np
import numpy.typing as npt

from outrider.storage.scratch import PLACE_BITS

PLACES = (1 << PLACE_BITS) - 1

Key = tuple[int, int, int]
"""(255 - class, due + 2^63, order): the smaller one is better."""
NOTHING: Key = (256, 0, 0)
"""A key worse than that of every card."""


class QueueTail:
    """The chunks of one queue on disk: a binary heap of (rank and place, due, order) in one array, the best first."""

    __slots__ = ("cards", "first", "refs")

    def __init__(self) -> None:
        self.cards = 0
        self.refs = array("Q")
        self.first: Key = NOTHING

    def __len__(self) -> int:
        return len(self.refs) // 3

    def _key(self, at: int) -> Key:
        refs = self.refs
        return refs[3 * at] >> PLACE_BITS, refs[3 * at + 1], refs[3 * at + 2]

    def push(self, key: Key, place: int) -> None:
        self.refs.extend((key[0] << PLACE_BITS | place, key[1], key[2]))
        self._order(len(self) - 1)
        self.first = self._key(0)

    def _swap(self, one: int, other: int) -> None:
        refs = self.refs
        one, other = 3 * one, 3 * other
        refs[one : one + 3], refs[other : other + 3] = refs[other : other + 3], refs[one : one + 3]

    def place(self, at: int) -> int:
        """Returns the place of the chunk in position `at`; 0 is the best."""
        return self.refs[3 * at] & PLACES

    def remove(self, at: int) -> None:
        """Removes one reference; removing the last one is free."""
        last = len(self) - 1
        self._swap(at, last)
        del self.refs[3 * last :]
        if at < last:
            self._order(at)
        self.first = self._key(0) if last else NOTHING

    def _order(self, at: int) -> None:
        """Moves one reference up or down until the heap is in order."""
        last = len(self)
        while at and self._key(at) < self._key((at - 1) // 2):
            self._swap(at, (at - 1) // 2)
            at = (at - 1) // 2
        while (child := 2 * at + 1) < last:
            if child + 1 < last and self._key(child + 1) < self._key(child):
                child += 1
            if self._key(at) <= self._key(child):
                return
            self._swap(at, child)
            at = child

    def in_order(self) -> list[tuple[Key, int]]:
        """Returns the keys and places of the chunks, the best first."""
        return sorted((self._key(at), self.place(at)) for at in range(len(self)))

    def follow(self, refs: npt.NDArray[np.uint64], cards: int) -> None:
        """Adds chunks in their order, all worse than those that are there: a sorted list is a heap."""
        self.refs.frombytes(refs.tobytes())
        self.cards += cards
        self.first = self._key(0)

    def find(self, place: int) -> int | None:
        """Returns the position of the reference to a place."""
        places = np.frombuffer(self.refs, np.uint64)[::3] & np.uint64(PLACES)
        found = np.flatnonzero(places == place)
        return int(found[0]) if len(found) else None

    def led_by(self, order: int) -> int | None:
        """Returns the position of the chunk whose best card has this order."""
        found = np.flatnonzero(np.frombuffer(self.refs, np.uint64)[2::3] == order)
        return int(found[0]) if len(found) else None

    def move(self, at: int, place: int) -> None:
        self.refs[3 * at] = self.refs[3 * at] & ~PLACES | place


class Tails:
    """The tails by queue, a u32 row. A queue has one as long as it has a chunk on disk."""

    def __init__(self) -> None:
        self._of: dict[int, QueueTail] = {}
        self._best = np.zeros(1, np.uint8)  # by queue: class + 1, 0 without a tail; the last one is always 0

    def __len__(self) -> int:
        return len(self._of)

    def __contains__(self, queue: int) -> bool:
        return queue in self._of

    def __getitem__(self, queue: int) -> QueueTail:
        return self._of[queue]

    def get(self, queue: int) -> QueueTail | None:
        return self._of.get(queue)

    @property
    def memory_bytes(self) -> int:
        """How many bytes references and the column need."""
        return self._best.nbytes + sum(8 * len(tail.refs) for tail in self._of.values())

    def best(self, queues: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint8]:
        """Returns 1 + the class of the best card on disk of each queue, 0 for a queue without a tail."""
        return self._best.take(queues, mode="clip")

    def push(self, queue: int, key: Key, place: int, cards: int) -> None:
        """Adds a chunk with this number of cards."""
        tail = self._made(queue)
        tail.push(key, place)
        tail.cards += cards
        self._note(queue, tail)

    def follow(self, queue: int, refs: npt.NDArray[np.uint64], cards: int) -> None:
        """Adds chunks in their order, all worse than those that are there."""
        tail = self._made(queue)
        tail.follow(refs, cards)
        self._note(queue, tail)

    def remove(self, queue: int, at: int) -> None:
        """Removes the chunk in this position, and with the last chunk the tail of the queue."""
        tail = self._of[queue]
        tail.remove(at)
        if tail.refs:
            self._note(queue, tail)
        else:
            self.pop(queue)

    def pop(self, queue: int) -> QueueTail | None:
        """Removes and returns the tail of a queue."""
        tail = self._of.pop(queue, None)
        if tail is not None:
            self._best[queue] = 0
        return tail

    def clear(self) -> None:
        self._of.clear()
        self._best = np.zeros(1, np.uint8)

    def _made(self, queue: int) -> QueueTail:
        tail = self._of.get(queue)
        if tail is None:
            tail = self._of[queue] = QueueTail()
            if queue + 1 >= len(self._best):
                more = max(queue + 2, 2 * len(self._best)) - len(self._best)
                self._best = np.concatenate([self._best, np.zeros(more, np.uint8)])
        return tail

    def _note(self, queue: int, tail: QueueTail) -> None:
        self._best[queue] = 256 - tail.first[0]
