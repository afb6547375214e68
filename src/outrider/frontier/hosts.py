"""Hosts and queues: columns, one row per host and one per queue of (crawl, key, host); rows live as long as the
process.

On disk and in facts a host is named by the keyed hash of its name, a queue by that of (crawl, key, host). Long columns
are taken from the system as zeroed memory that is not there until it is touched: from then on growing copies nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from outrider import kernels
from outrider.clock import Instant
from outrider.frontier.facts import Texts
from outrider.kernels import columns
from outrider.limits import COLUMN_ROWS_STEPS

NONE = columns.NONE
"""No row."""

Rows = npt.NDArray[np.uint32]
Uint64s = npt.NDArray[np.uint64]
Column = npt.NDArray[Any]

# What makes a host's turn a matter of more than its own clock and its one queue.
MANY = 1  # several queues, or one that shares a key with other hosts
RULED = 2  # somebody paused, blocked, limited or slowed one of its queues or their crawl
ROBOTS = 4  # an authority of it has rules, refuses, or must be asked
GROUPED = 8  # it belongs to a named group, a domain's or an address's
VOIDED = 16  # one of its queues was deleted: what is known there may be void

_MIX1, _MIX2, _STEP = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB), np.uint64(0x9E3779B97F4A7C15)


def mixed(values: Uint64s) -> Uint64s:
    """64 well-mixed bits of each value: the finish of SplitMix64 (Steele, Lea, Flood 2014)."""
    z = values + _STEP
    z = (z ^ (z >> np.uint64(30))) * _MIX1
    z = (z ^ (z >> np.uint64(27))) * _MIX2
    out: Uint64s = z ^ (z >> np.uint64(31))
    return out


def queue_hashes(hosts: Uint64s, crawls: npt.NDArray[np.uint32]) -> Uint64s:
    """The hashes of the queues whose key is their host."""
    if crawls.strides == (0,):  # one crawl for all
        crawls = crawls[:1]
    return mixed(hosts ^ mixed(crawls.astype(np.uint64)))


def keyed_queue_hash(host: int, crawl: int, key_hash: int) -> int:
    """The hash of a queue with a key of its own; key_hash: the fingerprint of the key."""
    # One after the other: a key may be the name of another host, whose queue may have this host's name as its key.
    of_host = queue_hashes(np.array([host], np.uint64), np.array([crawl], np.uint32))
    return int(mixed(of_host ^ np.uint64(key_hash))[0])


def has_equals(values: Uint64s) -> bool:
    """Whether any two of them are equal."""
    ordered = np.sort(values)
    return bool(np.count_nonzero(ordered[1:] == ordered[:-1]))


def firsts_of(values: Uint64s) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """The places of the first ones of equal values, in their order, and of each value which of them is its first."""
    if not has_equals(values):
        everyone = np.arange(len(values))
        return everyone, everyone
    _, firsts, inverse = np.unique(values, return_index=True, return_inverse=True)
    order = np.argsort(firsts)
    place_of = np.empty(len(order), np.intp)
    place_of[order] = np.arange(len(order))
    return firsts[order], place_of[inverse]


class Columns:
    """Named columns of equal length, for those who inherit from it: `_room` makes place behind the last row."""

    def __init__(self, names: dict[str, str]) -> None:
        self.count = 0
        self._dtypes = names
        self._capacity = COLUMN_ROWS_STEPS[0]
        for name, dtype in names.items():
            setattr(self, name, np.zeros(self._capacity, dtype))

    def _room(self, more: int) -> None:
        if self.count + more <= self._capacity:
            return
        while self.count + more > self._capacity:
            steps = [rows for rows in COLUMN_ROWS_STEPS if rows > self._capacity]
            self._capacity = steps[0] if steps else self._capacity * 2
        for name, dtype in self._dtypes.items():
            grown, column = np.zeros(self._capacity, dtype), getattr(self, name)[: self.count]
            if np.count_nonzero(column):  # zeros are there already, and copying them would take the memory for them
                grown[: self.count] = column
            setattr(self, name, grown)


class Hosts(Columns):
    """Who answers at each host name: the clock, the back-off, and how many requests are open.

    hash, slot; ended, rest_until, refused_at: instants; gap, back_off: seconds; reason: a GapReason; answered: pages;
    in_flight: open leases; turns: how often it was drawn; flags: MANY …; first_queue: a row of Queues, NONE for none.
    """

    hash: Column
    slot: Column
    ended: Column
    rest_until: Column
    gap: Column
    reason: Column
    back_off: Column
    refused_at: Column
    answered: Column
    in_flight: Column
    turns: Column
    flags: Column
    first_queue: Column
    _name_ends: Column

    def __init__(self) -> None:
        super().__init__(
            {
                "hash": "u8",
                "slot": "u2",
                "ended": "i8",
                "rest_until": "i8",
                "gap": "f8",
                "reason": "u1",
                "back_off": "f4",
                "refused_at": "i8",
                "answered": "u4",
                "in_flight": "u2",
                "turns": "u4",
                "flags": "u1",
                "first_queue": "u4",
                "_name_ends": "u8",
            }
        )
        self._index = kernels.Index()
        self._names = bytearray()

    def find(self, hashes: Uint64s) -> Rows:
        """The rows of hosts by hash, NONE for those that are not known."""
        return np.frombuffer(self._index.find(np.ascontiguousarray(hashes, np.uint64)), np.uint32)

    def row(self, name_hash: int) -> int:
        """The row of one host by its hash, NONE where it is not known."""
        return int(self.find(np.array([name_hash], np.uint64))[0])

    def add(self, hashes: Uint64s, slots: Column, names: Texts, *, absent: bool = False) -> Rows:
        """Rows for new hosts; those that are known already keep theirs. absent: they were looked for just now."""
        known = np.full(len(hashes), NONE, np.uint32) if absent else self.find(hashes)
        fresh = np.flatnonzero(known == NONE)
        if not len(fresh):
            return known
        rows = known.copy()
        self._room(len(fresh))
        new = np.arange(self.count, self.count + len(fresh), dtype=np.uint32)
        rows[fresh] = new
        self.hash[new] = hashes[fresh]
        self.slot[new] = slots[fresh]
        self.first_queue[new] = NONE
        texts = names.take(fresh)
        self._names += texts.octets
        start = int(self._name_ends[self.count - 1]) if self.count else 0
        self._name_ends[new] = start + np.cumsum(texts.lengths, dtype=np.int64)
        self._index.add(np.ascontiguousarray(hashes[fresh]), new)
        self.count += len(fresh)
        return rows

    def name(self, row: int) -> str:
        """The name of one host."""
        start = int(self._name_ends[row - 1]) if row else 0
        return self._names[start : int(self._name_ends[row])].decode("utf-8", "surrogatepass")

    def names(self, first: int, last: int) -> tuple[bytes, npt.NDArray[np.uint32]]:
        """The names of the rows `first` … `last - 1`, one after the other, and their lengths."""
        start = int(self._name_ends[first - 1]) if first else 0
        ends = self._name_ends[first:last].astype(np.int64)
        lengths = np.diff(ends, prepend=start).astype(np.uint32)
        return bytes(self._names[start : int(ends[-1])] if len(ends) else b""), lengths

    def bytes(self) -> int:
        """Memory of what is known of all hosts."""
        return self.count * 90 + len(self._names) + self._index.statistics()["bytes"]

    def __repr__(self) -> str:
        return f"<Hosts {self.count}>"


@dataclass(slots=True)
class QueueRules:
    """What an operator said of a queue. delay: seconds in place of the floor, None for that; limit: requests at once,
    0 for the usual one."""

    paused: bool = False
    blocked_until: Instant = 0
    delay: float | None = None
    limit: int = 0

    def any(self) -> bool:
        """Whether anything was said."""
        return self.paused or bool(self.blocked_until) or self.delay is not None or bool(self.limit)


class Group:
    """A key that spans hosts: one turn at a time for all its queues, and one clock."""

    __slots__ = ("busy", "queues", "rest_until")

    def __init__(self) -> None:
        self.busy = 0
        self.rest_until: Instant = 0
        self.queues: list[int] = []


class Queues(Columns):
    """hash; host: a row of Hosts; crawl: its row; next: the next queue of the same host; served: the turn in which it
    was served last; waiting, parked, done, gone: how many of its URLs are in these states."""

    hash: Column
    host: Column
    crawl: Column
    next: Column
    served: Column
    waiting: Column
    parked: Column
    done: Column
    gone: Column

    def __init__(self) -> None:
        super().__init__(
            {
                "hash": "u8",
                "host": "u4",
                "crawl": "u4",
                "next": "u4",
                "served": "u4",
                "waiting": "u4",
                "parked": "u4",
                "done": "u4",
                "gone": "u4",
            }
        )
        self._index = kernels.Index()
        self.keys: dict[int, str] = {}  # of those whose key is not their host
        self.rules: dict[int, QueueRules] = {}
        self.voids: dict[int, int] = {}  # cards accepted under a lower number are void
        self.groups: dict[tuple[int, str], Group] = {}
        self.group_of: dict[int, Group] = {}

    def find(self, hashes: Uint64s) -> Rows:
        """The rows of queues by hash, NONE for those that are not known."""
        return np.frombuffer(self._index.find(np.ascontiguousarray(hashes, np.uint64)), np.uint32)

    def add(self, hashes: Uint64s, hosts: Rows, crawls: Column) -> Rows:
        """Rows of new queues, as many as hashes; they must not be known yet, and each is named once."""
        self._room(len(hashes))
        new = np.arange(self.count, self.count + len(hashes), dtype=np.uint32)
        self.hash[new] = hashes
        self.host[new] = hosts
        self.crawl[new] = crawls
        self.next[new] = NONE
        self._index.add(np.ascontiguousarray(hashes, np.uint64), new)
        self.count += len(hashes)
        return new

    def __repr__(self) -> str:
        return f"<Queues {self.count}>"
