"""The front tier: cold hosts with queued URLs, in the order in which they return to memory.

In Mercator, front queues contain URLs, and a host gets a back queue when one is free (A. Heydon and M. Najork,
"Mercator: a scalable, extensible Web crawler", World Wide Web 2, 1999). Here a host leaves the memory together with its
few URLs, and eight bytes of it remain in the line of its crawl and class.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, KeysView

import numpy as np
import numpy.typing as npt

from outrider.frontier.format.constant import by_value

Hashes = npt.NDArray[np.uint64]
Key = tuple[int, int, bool]
"""The row of a crawl, a class, and whether the hosts were visited: these rest when the clock was set back."""


class _Batch:
    """Hosts of one line that return before later ones. Their records are in the order of their hashes on disk, so they
    return in this order, and a block is read once for many of them. It takes hosts until the first one returns."""

    __slots__ = ("_at", "_parts", "is_closed", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self._parts: list[Hashes] = []
        self._at = 0  # hosts of the first part that have returned
        self.is_closed = False  # whether it takes no more hosts

    def __len__(self) -> int:
        return sum(map(len, self._parts)) - self._at

    def add(self, hashes: Hashes) -> None:
        self._parts.append(hashes)

    def first(self, most: int) -> Hashes:
        return self.rest()[:most]

    def remove(self, count: int) -> None:
        self._at += count

    def rest(self) -> Hashes:
        """Closes it. Returns all hosts that have not returned, by ascending hash."""
        if not self.is_closed:
            self.keep(np.sort(np.concatenate((self._parts[0][self._at :], *self._parts[1:]))))
        return self._parts[0][self._at :]

    def keep(self, hashes: Hashes) -> None:
        """Replaces its hosts by these, which are in order."""
        self._parts, self._at, self.is_closed = [hashes], 0, True


class FrontTier:
    """Lines of hosts, by crawl, class, and whether they were visited. Those that wait when hosts of a line begin to
    return are before all that follow. A host that returned because a call named it stays in its line until `first` or
    `tidy` meets it; the caller knows which hosts are cold."""

    def __init__(self) -> None:
        self._lines: dict[Key, deque[_Batch]] = {}
        self._batches = 0  # that were ever made
        self._count = 0

    def __len__(self) -> int:
        """How many places of all lines are in use, also by hosts that have returned."""
        return self._count

    def __repr__(self) -> str:
        return f"<FrontTier {self._count} hosts in {len(self._lines)} lines>"

    @property
    def bytes(self) -> int:
        """Bytes of memory for the hashes."""
        return 8 * self._count

    def add(
        self,
        crawls: npt.NDArray[np.uint32],
        classes: npt.NDArray[np.uint8],
        visited: npt.NDArray[np.bool_],
        hashes: Hashes,
    ) -> None:
        """Adds hosts at the ends of their lines."""
        # One number for each line, since most hosts are of few lines.
        lines = crawls.astype(np.uint64) << np.uint64(9) | classes.astype(np.uint64) << np.uint64(1) | visited
        for number, own in by_value(lines):
            line = self._lines.setdefault((number >> 9, number >> 1 & 0xFF, bool(number & 1)), deque())
            if not line or line[-1].is_closed:
                line.append(_Batch(self._batches))
                self._batches += 1
            line[-1].add(np.array(hashes[own]))
        self._count += len(hashes)

    def keys(self) -> KeysView[Key]:
        """The lines with hosts."""
        return self._lines.keys()

    def oldest(self, keys: Iterable[Key]) -> Key | None:
        """Which of these lines has the batch that was begun first."""
        return min(keys, key=lambda key: self._lines[key][0].number, default=None)

    def first(self, key: Key, most: int) -> Hashes:
        """Returns up to `most` of the first hosts of a line, all of one batch. An unknown line has no hosts."""
        line = self._lines.get(key)
        return np.zeros(0, np.uint64) if line is None else line[0].first(most)

    def remove(self, key: Key, count: int) -> None:
        """Removes the first `count` hosts of a line, which `first` returned."""
        line = self._lines[key]
        line[0].remove(count)
        self._count -= count
        if not len(line[0]):
            line.popleft()
            if not line:
                del self._lines[key]

    def drop(self, crawl: int) -> None:
        """Removes the lines of a deleted crawl."""
        for key in [key for key in self._lines if key[0] == crawl]:
            self._count -= sum(map(len, self._lines.pop(key)))

    def tidy(self, waits: Callable[[Hashes], npt.NDArray[np.bool_]]) -> None:
        """Removes hosts for which `waits` is false, and second places of a host in one line."""
        for key, line in list(self._lines.items()):
            known = np.zeros(0, np.uint64)
            for batch in list(line):
                hashes = batch.rest()
                hashes = hashes[waits(hashes)]
                hashes = np.unique(hashes[~np.isin(hashes, known)])
                known = np.concatenate((known, hashes))
                batch.keep(hashes)
                if not len(hashes):
                    line.remove(batch)
            if not line:
                del self._lines[key]
        self._count = sum(len(batch) for line in self._lines.values() for batch in line)
