"""The front tier: cold hosts with queued URLs, in the order in which they return to memory.

In Mercator, front queues contain URLs, and a host gets a back queue when one is free (A. Heydon and M. Najork,
"Mercator: a scalable, extensible Web crawler", World Wide Web 2, 1999). Here a host leaves the memory together with its
few URLs, and eight bytes of it remain in the line of its crawl and class. If many hosts wait for the turn of one group
(`schedule/group_turns.py`), those that leave the memory are in lines of this group.
"""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, KeysView
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from outrider import kernels
from outrider.frontier.format.constant import by_value

Hashes = npt.NDArray[np.uint64]
_Mask = npt.NDArray[np.bool_]
NO_GROUP = 0
"""In a column of groups: without one. No group has this row."""


class Key(NamedTuple):
    """The line of a host. crawl: its row; visited: whether the host was visited: such a host rests when the clock was
    set back; located: whether its address was known when it left, in a frontier whose errands resolve addresses."""

    crawl: int
    klass: int
    visited: bool
    located: bool


class LeavingHosts(NamedTuple):
    """Hosts that become cold with queued URLs, in columns. groups: the group in whose line each waits, NO_GROUP for the
    line of its crawl and class. The other columns are those of `Key`."""

    crawls: npt.NDArray[np.uint32]
    classes: npt.NDArray[np.uint8]
    visited: _Mask
    located: _Mask
    groups: npt.NDArray[np.uint32]
    hashes: Hashes

    def take(self, rows: npt.NDArray[np.intp]) -> LeavingHosts:
        """The hosts of these places."""
        kind = self.visited[rows], self.located[rows], self.groups[rows]
        return LeavingHosts(self.crawls[rows], self.classes[rows], *kind, self.hashes[rows])

    def numbers(self) -> npt.NDArray[np.uint64]:
        """A number for the key of each host; `_key_of` reads it."""
        lines = self.crawls.astype(np.uint64) << np.uint64(10) | self.classes.astype(np.uint64) << np.uint64(2)
        found: npt.NDArray[np.uint64] = lines | self.visited.astype(np.uint64) << np.uint64(1) | self.located
        return found


def _key_of(number: int) -> Key:
    return Key(number >> 10, number >> 2 & 0xFF, bool(number & 2), bool(number & 1))


def first_places(hashes: Hashes) -> npt.NDArray[np.intp]:
    """Returns the first place of each hash. A host that a call named and that left again is in its line twice: if it
    returned twice, it would be leased twice at once."""
    return np.sort(np.unique(hashes, return_index=True)[1])


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


class _Line:
    """Hosts in the order in which they were added, each with the number of its addition."""

    __slots__ = ("_at", "_hashes", "_numbers")

    def __init__(self) -> None:
        self._hashes = array("Q")
        self._numbers = array("I")
        self._at = 0  # hosts that have returned

    def __len__(self) -> int:
        return len(self._hashes) - self._at

    @property
    def number(self) -> int:
        """The number of the first host."""
        return self._numbers[self._at]

    def add(self, hashes: Hashes, numbers: npt.NDArray[np.uint32]) -> None:
        self._hashes.frombytes(np.ascontiguousarray(hashes).tobytes())
        self._numbers.frombytes(np.ascontiguousarray(numbers).tobytes())

    def first(self, most: int) -> Hashes:
        return np.array(self._hashes[self._at : self._at + most], np.uint64)

    def remove(self, count: int) -> None:
        self._at += count
        if 2 * self._at > len(self._hashes):
            del self._hashes[: self._at], self._numbers[: self._at]
            self._at = 0

    def keep(self, waits: Callable[[Hashes], _Mask]) -> None:
        """Removes hosts for which `waits` is false, and second places of a host."""
        hashes, numbers = self.first(len(self)), np.array(self._numbers[self._at :], np.uint32)
        self.remove(len(hashes))
        places = first_places(hashes)
        places = places[waits(hashes[places])]
        self.add(hashes[places], numbers[places])


class GroupLines:
    """The hosts on disk that wait for one group, by key. turns: of the group, for which no host has returned for its
    age yet. returned: rows of hosts that returned, some of which may have been visited since."""

    __slots__ = ("_lines", "returned", "turns")

    def __init__(self) -> None:
        self._lines: dict[Key, _Line] = {}
        self.turns = 0
        self.returned = np.zeros(0, np.uint32)

    def __len__(self) -> int:
        """How many places all lines have, also of hosts that have returned."""
        return sum(map(len, self._lines.values()))

    @property
    def keys(self) -> KeysView[Key]:
        """The keys with hosts."""
        return self._lines.keys()

    def add(self, key: Key, hashes: Hashes, number: int) -> None:
        """number: of the addition; it grows."""
        numbers = np.full(len(hashes), number & 0xFFFF_FFFF, np.uint32)
        self._lines.setdefault(key, _Line()).add(hashes, numbers)

    def first(self, key: Key, most: int) -> Hashes:
        """Returns up to `most` of the first hosts with a key."""
        return self._lines[key].first(most) if key in self._lines else np.zeros(0, np.uint64)

    def remove(self, key: Key, count: int) -> None:
        """Removes the first hosts with a key."""
        self._lines[key].remove(count)
        if not len(self._lines[key]):
            del self._lines[key]

    def count(self, key: Key) -> int:
        """How many places its line has."""
        return len(self._lines[key])

    def oldest(self, keys: Iterable[Key]) -> Key:
        """Which of these keys has the host that was added first."""
        return min(keys, key=lambda key: self._lines[key].number)

    def all(self) -> Iterable[Hashes]:
        """The hosts of each line."""
        return (line.first(len(line)) for line in self._lines.values())

    def drop(self, crawl: int) -> list[Hashes]:
        """Removes the lines of a crawl, and returns their hosts."""
        gone = [self._lines.pop(key) for key in [key for key in self._lines if key.crawl == crawl]]
        return [line.first(len(line)) for line in gone]

    def keep(self, waits: Callable[[Hashes], _Mask]) -> None:
        for key, line in list(self._lines.items()):
            line.keep(waits)
            if not len(line):
                del self._lines[key]


class FrontTier:
    """Lines of hosts, by crawl, class, and the other parts of `Key`. Those that wait when hosts of a line begin to
    return are before all that follow. A host that returned because a call named it stays in its line until the line is
    read there, or `tidy` meets it; the caller knows which hosts are cold.

    of_groups: by the row of a group, the lines of hosts that wait for its turn, first in, first out. They use 20 bytes
    for each host, and some 500 for each group and key. at_groups: by crawl, how many cold hosts are in them."""

    def __init__(self) -> None:
        self.of_groups: dict[int, GroupLines] = {}
        self.at_groups: Counter[int] = Counter()
        self._set_at_groups = kernels.FingerprintSet()  # without hosts that returned
        self._lines: dict[Key, deque[_Batch]] = {}
        self._batches = 0  # that were ever made
        self._count = 0

    def __len__(self) -> int:
        """How many places of all lines are in use, also by hosts that have returned."""
        return self._count

    def __repr__(self) -> str:
        return f"<FrontTier {self._count} hosts in {len(self._lines)} lines and at {len(self.of_groups)} groups>"

    @property
    def bytes(self) -> int:
        """Bytes of memory for the hashes."""
        return 12 * self._count + self._set_at_groups.statistics()["bytes"]

    def add(self, hosts: LeavingHosts) -> None:
        """Adds hosts at the ends of their lines."""
        self._count += len(hosts.hashes)
        at_groups = hosts.groups != NO_GROUP
        if at_groups.any():
            self._add_to_groups(hosts.take(np.flatnonzero(at_groups)))
            hosts = hosts.take(np.flatnonzero(~at_groups))
        for number, own in by_value(hosts.numbers()):
            line = self._lines.setdefault(_key_of(number), deque())
            if not line or line[-1].is_closed:
                line.append(_Batch(self._batches))
                self._batches += 1
            line[-1].add(np.array(hosts.hashes[own]))

    def _add_to_groups(self, hosts: LeavingHosts) -> None:
        self._set_at_groups.add(slots_of(hosts.hashes), hosts.hashes)
        for crawl, own in by_value(hosts.crawls):
            self.at_groups[crawl] += len(hosts.hashes[own])
        self._batches += 1
        numbers = hosts.numbers()
        order = np.lexsort((numbers, hosts.groups))  # hosts of one line remain in their order
        groups, numbers, hashes = hosts.groups[order], numbers[order], hosts.hashes[order]
        cuts = np.flatnonzero((np.diff(groups) != 0) | (np.diff(numbers) != 0)) + 1
        starts = [0, *cuts.tolist()]
        keys = {number: _key_of(number) for number, _ in by_value(numbers)}
        for start, end, group, number in zip(
            starts, [*starts[1:], len(order)], groups[starts].tolist(), numbers[starts].tolist(), strict=True
        ):
            self.of_groups.setdefault(group, GroupLines()).add(keys[number], hashes[start:end], self._batches)

    def are_at_groups(self, hashes: Hashes) -> _Mask:
        """Whether each of these cold hosts waits in the line of a group."""
        if not len(self._set_at_groups):
            return np.zeros(len(hashes), np.bool_)
        return np.frombuffer(self._set_at_groups.check(slots_of(hashes), np.ascontiguousarray(hashes)), np.bool_)

    def note_recalled(self, hashes: Hashes, crawls: npt.NDArray[np.uint32]) -> None:
        """Notes that these hosts, with queued URLs of these crawls, are not cold any more."""
        there = self.are_at_groups(hashes)
        if there.any():
            self._set_at_groups.remove(slots_of(hashes[there]), hashes[there])
            self.at_groups.subtract(crawls[there].tolist())

    @property
    def keys(self) -> KeysView[Key]:
        """The lines with hosts, without those of groups."""
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

    def remove_of_group(self, group: int, key: Key, count: int) -> None:
        """Removes the first hosts that wait for a group, of one key."""
        lines = self.of_groups[group]
        lines.remove(key, count)
        self._count -= count
        if not lines.keys:
            del self.of_groups[group]

    def drop(self, crawl: int) -> None:
        """Removes the lines of a deleted crawl."""
        for key in [key for key in self._lines if key.crawl == crawl]:
            del self._lines[key]
        gone = [hashes for lines in self.of_groups.values() for hashes in lines.drop(crawl)]
        if gone:
            hashes = np.concatenate(gone)
            hashes = hashes[self.are_at_groups(hashes)]
            kept = [line for lines in self.of_groups.values() for line in lines.all()]
            if kept:  # it left again with URLs of another crawl
                hashes = hashes[~np.isin(hashes, np.concatenate(kept))]
            self._set_at_groups.remove(slots_of(hashes), np.ascontiguousarray(hashes))
        self.at_groups.pop(crawl, None)
        self._recount()

    def tidy(self, waits: Callable[[Hashes], _Mask]) -> None:
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
        for lines in self.of_groups.values():
            lines.keep(waits)
        self._recount()

    def _recount(self) -> None:
        self.of_groups = {group: lines for group, lines in self.of_groups.items() if lines.keys}
        places = sum(len(batch) for line in self._lines.values() for batch in line)
        self._count = places + sum(map(len, self.of_groups.values()))


def slots_of(hashes: Hashes) -> npt.NDArray[np.uint16]:
    """Returns the top 12 bits of each hash. A fingerprint set compares 56 bits; together they distinguish all
    hashes."""
    found: npt.NDArray[np.uint16] = (hashes >> np.uint64(52)).astype(np.uint16)
    return found
