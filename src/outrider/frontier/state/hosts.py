"""Hosts and queues in memory: columns, one row per host and one per queue of (crawl, key, host).

On disk and in facts a host is named by the keyed hash of its name, and a queue by the hash of (crawl, key, host). A new
host gets the row of a host that went cold (cold.py). Long columns are zeroed memory, which the system provides page by
page at the first touch: so columns can be long, and growing copies nothing.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from outrider import kernels
from outrider.clock import Instant
from outrider.frontier.format.constant import by_value
from outrider.frontier.format.facts import DTYPES, KINDS, Fact, HostCells, TextColumn
from outrider.frontier.state.rested import RestedLeases
from outrider.kernels import columns
from outrider.kernels.host_cells import HOST
from outrider.limits import COLUMN_ROWS_STEPS, NAMES_FREED_BYTES_MIN, QUEUE_RULES_SHARED_MAX

NONE = columns.NONE
"""No row."""

Rows = npt.NDArray[np.uint32]
Uint64s = npt.NDArray[np.uint64]
Column = npt.NDArray[Any]

# Flags of hosts whose turn depends on more than one clock and one queue.
MANY = 1  # several queues, or one that shares a key with other hosts
RULED = 2  # an operator paused or blocked one of its queues or their crawl
ROBOTS = 4  # it has an authority with rules, with refusals, or with a future errand
GROUPED = 8  # it belongs to a named group, or to the group of a domain or an address
VOIDED = 16  # one of its queues was deleted: known URLs there may be void
GATED = 32  # the robots rules of one of its authorities are not known: no page of it is leased
ASKED = 64  # an errand is lined up at it
DELAYED = 128  # its robots rules may have a Crawl-delay: they have not been looked at since they changed, or have one
SLOWED = 256  # an operator set the delay of one of its queues: its turn depends on its clock alone
LIMITED = 512  # an operator set how many requests to one of its queues may be open: this decides while one is open

CELLS = {column.name: DTYPES[column.type] for column in KINDS[Fact.HOST_CELLS].columns[2:]}
"""The durable cells of a host by name, as their fact declares them. Every other list of them is read off this one."""
RARE_CELLS = {name: dtype for name, dtype in CELLS.items() if name not in (HOST.names or ())}
"""The durable cells that most calls do not touch: a column each, of zeros for most hosts."""

_MIX1, _MIX2, _STEP = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB), np.uint64(0x9E3779B97F4A7C15)

_OPEN = [("open_until", "<i8"), ("open_file", "<u8"), ("open_bytes", "<u2"), ("open_letter", "u1")]
_OPAQUE = np.dtype((np.void, HOST.itemsize))  # numpy copies the fields of records one by one
_OTHER_SIDE = np.uint64(1 << 63)
_LENGTH_SHIFT = np.uint64(47)
_PLACES, _LENGTHS = np.uint64((1 << 47) - 1), np.uint64((1 << 16) - 1)
_UNMIX1, _UNMIX2 = (np.uint64(pow(int(factor), -1, 1 << 64)) for factor in (_MIX1, _MIX2))


def mixed(values: Uint64s) -> Uint64s:
    """64 well-mixed bits of each value: the finish of SplitMix64 (Steele, Lea, Flood 2014)."""
    z = values + _STEP
    z = (z ^ (z >> np.uint64(30))) * _MIX1
    z = (z ^ (z >> np.uint64(27))) * _MIX2
    out: Uint64s = z ^ (z >> np.uint64(31))
    return out


def unmixed(values: Uint64s) -> Uint64s:
    """The values that `mixed` turned into these."""
    z = values ^ (values >> np.uint64(31)) ^ (values >> np.uint64(62))
    z = z * _UNMIX2
    z = z ^ (z >> np.uint64(27)) ^ (z >> np.uint64(54))
    z = z * _UNMIX1
    z = z ^ (z >> np.uint64(30)) ^ (z >> np.uint64(60))
    out: Uint64s = z - _STEP
    return out


def queue_hashes(hosts: Uint64s, crawls: npt.NDArray[np.uint32]) -> Uint64s:
    """The hashes of the queues whose key is their host."""
    if crawls.strides == (0,):  # one crawl for all
        crawls = crawls[:1]
    return mixed(hosts ^ mixed(crawls.astype(np.uint64)))


def words_of_crawls(crawls: npt.NDArray[np.uint32]) -> Uint64s:
    """The numbers under which the tables keep rules of whole crawls."""
    return queue_hashes(np.zeros(len(crawls), np.uint64), crawls)


def words_of_keys(keys: Uint64s) -> Uint64s:
    """The numbers for rules of keys in all crawls. keys: their hashes; for a host's name the hash of the host."""
    return queue_hashes(keys, np.full(len(keys), NONE, np.uint32))


def words_of_pairs(keys: Uint64s, crawls: npt.NDArray[np.uint32]) -> Uint64s:
    """The numbers for rules of keys in one crawl that have no queue yet. keys: as for `words_of_keys`."""
    return queue_hashes(keys, crawls)


def hosts_of_queues(queues: Uint64s, crawls: npt.NDArray[np.uint32]) -> Uint64s:
    """The hashes of the hosts of queues whose key is their host; for other queues a hash that no host has."""
    return unmixed(queues) ^ mixed(crawls.astype(np.uint64))


def keyed_queue_hash(host: int, crawl: int, key_hash: int) -> int:
    """The hash of a queue with a key of its own; key_hash: the fingerprint of the key."""
    # Mixed in two steps: a key may be the name of another host, whose queue may have this host's name as its key.
    of_host = queue_hashes(np.array([host], np.uint64), np.array([crawl], np.uint32))
    return int(mixed(of_host ^ np.uint64(key_hash))[0])


def has_equals(values: npt.NDArray[np.unsignedinteger[Any]]) -> bool:
    """Whether any two values are equal."""
    ordered = np.sort(values)
    return bool(np.count_nonzero(ordered[1:] == ordered[:-1]))


def firsts_of(values: Uint64s) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """The places of the first ones of equal values, in order, and for each value the index of its first in that
    list."""
    if not has_equals(values):
        everyone = np.arange(len(values))
        return everyone, everyone
    _, firsts, inverse = np.unique(values, return_index=True, return_inverse=True)
    order = np.argsort(firsts)
    place_of = np.empty(len(order), np.intp)
    place_of[order] = np.arange(len(order))
    return firsts[order], place_of[inverse]


def add_to_each(column: npt.NDArray[Any], rows: npt.NDArray[Any], step: int) -> None:
    """Adds (step 1) or subtracts (-1) one for each time that a row is named."""
    one = column.dtype.type(1)
    # numpy is fast for indices and numbers of exactly these types.
    places = rows.astype(np.intp, copy=False)
    if step > 0:
        np.add.at(column, places, one)
    else:
        np.subtract.at(column, places, one)


class Columns:
    """Named columns of equal length, a base class: `_room` makes place after the last row, `_take` returns rows, and
    `_give` frees and zeroes them. A column of records is an attribute, and so is each of its fields. count:
    rows that were ever in use; made: how often a row was assigned. reuses: whether `_take` uses free rows again; a
    round that copies rows in steps turns it off, or it would copy a part of a new host."""

    def __init__(self, names: dict[str, npt.DTypeLike]) -> None:
        self.count = 0
        self.made = 0
        self.reuses = True
        self._free = array("I")
        self._dtypes = {name: np.dtype(dtype) for name, dtype in names.items()}
        self._row_bytes = sum(dtype.itemsize for dtype in self._dtypes.values())
        self._capacity = COLUMN_ROWS_STEPS[0]
        for name, dtype in self._dtypes.items():
            self._set(name, np.zeros(self._capacity, dtype))

    def _set(self, name: str, column: Column) -> None:
        setattr(self, name, column)
        for field in column.dtype.names or ():
            setattr(self, field, column[field])

    def _room(self, more: int) -> None:
        if self.count + more <= self._capacity:
            return
        while self.count + more > self._capacity:
            steps = [rows for rows in COLUMN_ROWS_STEPS if rows > self._capacity]
            self._capacity = steps[0] if steps else self._capacity * 2
        for name, dtype in self._dtypes.items():
            grown, column = np.zeros(self._capacity, dtype), getattr(self, name)[: self.count]
            octets = column.view(np.uint8)  # numpy copies records field by field
            if np.count_nonzero(octets):  # the new column is zero already, and writing zeros would use memory
                grown.view(np.uint8)[: len(octets)] = octets
            self._set(name, grown)

    def __len__(self) -> int:
        """How many rows are in use."""
        return self.count - len(self._free)

    def coming(self, more: int) -> Rows:
        """Returns the rows that the next `_take` will return, in order."""
        if not self._free or not self.reuses:
            return np.arange(self.count, self.count + more, dtype=np.uint32)
        again = np.array(self._free[max(0, len(self._free) - more) :], np.uint32)[::-1]
        return np.concatenate((again, np.arange(self.count, self.count + more - len(again), dtype=np.uint32)))

    def _take(self, more: int) -> Rows:
        rows = self.coming(more)
        again = min(more, len(self._free)) if self.reuses else 0
        self._room(more - again)
        if again:
            del self._free[len(self._free) - again :]
        self.count += more - again
        self.made += more
        return rows

    def _give(self, rows: Rows) -> None:
        for name, dtype in self._dtypes.items():
            getattr(self, name)[rows] = np.zeros((), dtype)
        self._free.extend(rows.tolist())


class Hosts(Columns, HostCells[Column, Column]):
    """The hosts in memory: their clocks, back-offs, and numbers of open requests.

    hash, slot; in_flight: open requests; rested: leases whose request is over; turns: how often it was drawn; woken:
    whether the record of a queued URL may say that it waits; flags: MANY …; first_queue: a row of Queues, or NONE;
    there: whether a host has the row. cells: the columns that most calls touch, as records; octets: their bytes. _name:
    the arena of the name (1 bit), its length in bytes (16 bits), its start (47 bits). open: the end of the validity of
    an authority's rules, the digest of its robots.txt, the length of its name and the fifth letter, which determines
    its scheme (authorities.py).
    """

    cells: Column
    octets: npt.NDArray[np.uint8]
    hash: Column
    slot: Column
    in_flight: Column
    turns: Column
    woken: Column
    flags: Column
    first_queue: Column
    there: Column
    open: Column
    open_until: Column
    open_file: Column
    open_bytes: Column
    open_letter: Column
    _name: Column

    def __init__(self) -> None:
        super().__init__({"cells": HOST, **RARE_CELLS, "turns": "u4", "woken": "u1", "_name": "u8", "open": _OPEN})
        self._index = kernels.Index()
        self._arenas = (bytearray(), bytearray())  # names; one of them is empty, except while `tidy` copies names
        self._freed = [0, 0]  # bytes of removed hosts' names in each arena
        self._side = 0  # the arena for new names
        self._copied: int | None = None  # `tidy` has copied the names of the rows below it
        self.rested = RestedLeases()
        self.dotted: set[int] = set()  # rows whose names end with a dot, from stores of an earlier version

    def _set(self, name: str, column: Column) -> None:
        super()._set(name, column)
        if name == "cells":
            self.octets = column.view(np.uint8)

    def durable(self, rows: npt.NDArray[Any], **given: Any) -> list[Column]:
        """The columns of a HOST_CELLS fact for these rows: slot, hash and each cell as it is, or as it is given."""
        return [given[name] if name in given else getattr(self, name)[rows] for name in ("slot", "hash", *CELLS)]

    def records(self, places: npt.NDArray[np.intp]) -> Column:
        """The records of these rows, copied."""
        found: Column = self.cells.view(_OPAQUE)[places].view(HOST)
        return found

    def find(self, hashes: Uint64s) -> Rows:
        """The rows of hosts by hash, NONE for unknown ones."""
        return np.frombuffer(self._index.find(np.ascontiguousarray(hashes, np.uint64)), np.uint32)

    def row(self, name_hash: int) -> int:
        """The row of one host by its hash, NONE where it is not known."""
        return int(self.find(np.array([name_hash], np.uint64))[0])

    def add(self, hashes: Uint64s, slots: Column, names: TextColumn, *, absent: bool = False) -> Rows:
        """Returns rows for new hosts; known hosts keep theirs. absent: the caller has just found that all are new."""
        known = np.full(len(hashes), NONE, np.uint32) if absent else self.find(hashes)
        fresh = np.flatnonzero(known == NONE)
        if not len(fresh):
            return known
        rows = known.copy()
        new = self._take(len(fresh))
        rows[fresh] = new
        self.hash[new] = hashes[fresh]
        self.slot[new] = slots[fresh]
        self.first_queue[new] = NONE
        self.there[new] = True
        texts = names.take(fresh)
        self._put_names(new, texts)
        self.dotted.update(new[_dotted(texts)].tolist())
        self._index.add(np.ascontiguousarray(hashes[fresh]), new)
        return rows

    def remove(self, rows: Rows) -> None:
        """Removes the rows of these hosts; nothing may point to them."""
        self._index.remove(np.ascontiguousarray(self.hash[rows]))
        sides = self._name[rows] >= _OTHER_SIDE
        lengths = (self._name[rows] >> _LENGTH_SHIFT & _LENGTHS).astype(np.int64)
        self._freed[0] += int(lengths[~sides].sum())
        self._freed[1] += int(lengths[sides].sum())
        self._give(rows)
        self.first_queue[rows] = NONE
        if self.dotted:
            self.dotted.difference_update(rows.tolist())

    def name(self, row: int) -> str:
        """The name of one host."""
        at = int(self._name[row])
        start = at & int(_PLACES)
        end = start + (at >> int(_LENGTH_SHIFT) & int(_LENGTHS))
        return self._arenas[at >> 63][start:end].decode("utf-8", "surrogatepass")

    def names(self, rows: npt.NDArray[Any]) -> TextColumn:
        """The names of these rows."""
        at = self._name[rows]
        lengths = (at >> _LENGTH_SHIFT & _LENGTHS).astype(np.uint32)
        if not len(rows):
            return TextColumn(b"", lengths)
        starts = (at & _PLACES).astype(np.int64)
        ends = starts + lengths
        sides = at >= _OTHER_SIDE
        if sides.any() and not sides.all():
            spans = zip((at >> np.uint64(63)).tolist(), starts.tolist(), ends.tolist(), strict=True)
            return TextColumn(b"".join(bytes(self._arenas[side][start:end]) for side, start, end in spans), lengths)
        arena = self._arenas[int(sides[0])]
        if (starts[1:] == ends[:-1]).all():
            return TextColumn(bytes(arena[int(starts[0]) : int(ends[-1])]), lengths)
        return TextColumn(kernels.gather_spans(arena, starts, ends), lengths)

    def _put_names(self, rows: Rows, texts: TextColumn) -> None:
        arena = self._arenas[self._side]
        lengths = texts.lengths.astype(np.uint64)
        starts = len(arena) + np.cumsum(lengths, dtype=np.uint64) - lengths
        arena += texts.octets
        self._name[rows] = starts | lengths << _LENGTH_SHIFT | (_OTHER_SIDE if self._side else np.uint64(0))

    def tidy(self, most: int) -> None:
        """Frees the bytes of removed names once they fill half of an arena: copies the names of up to `most` rows to
        the other arena."""
        if self._copied is None:
            freed = self._freed[self._side]
            if freed < NAMES_FREED_BYTES_MIN or 2 * freed < len(self._arenas[self._side]):
                return
            self._side, self._copied = 1 - self._side, 0
        rows = np.arange(self._copied, min(self._copied + most, self.count), dtype=np.uint32)
        others = self.there[rows] & ((self._name[rows] >= _OTHER_SIDE) != bool(self._side))
        if others.any():
            self._put_names(rows[others], self.names(rows[others]))
        self._copied += len(rows)
        if self._copied >= self.count:
            self._arenas[1 - self._side].clear()
            self._freed[1 - self._side] = 0
            self._copied = None

    def bytes(self) -> int:
        """Bytes of memory for all hosts."""
        return self.count * self._row_bytes + sum(map(len, self._arenas)) + self._index.statistics()["bytes"]

    def __repr__(self) -> str:
        return f"<Hosts {len(self)}>"


def _dotted(names: TextColumn) -> npt.NDArray[np.intp]:
    """Returns the places of names that end with a dot."""
    places = np.flatnonzero(names.lengths)
    ends = np.cumsum(names.lengths, dtype=np.int64)[places]
    found: npt.NDArray[np.intp] = places[np.frombuffer(names.octets, np.uint8)[ends - 1] == ord(".")]
    return found


@dataclass(frozen=True, slots=True)
class QueueRules:
    """An operator's rules for a queue. delay: seconds in place of the floor of the settings, None for the
    floor; limit: requests at once, 0 for the usual one."""

    paused: bool = False
    blocked_until: Instant = 0
    delay: float | None = None
    limit: int = 0

    def any(self) -> bool:
        """Whether any rule is set."""
        return self.paused or bool(self.blocked_until) or self.delay is not None or bool(self.limit)

    def decide_turns(self) -> bool:
        """Whether the turns of a host without open requests depend on more than its clock, whose gap is the delay."""
        return self.paused or bool(self.blocked_until)

    def and_also(self, other: QueueRules | None) -> QueueRules:
        """The rules that satisfy both: either pause, the later instant, the longer delay, the smaller limit."""
        if other is None:
            return self
        delays = [delay for delay in (self.delay, other.delay) if delay is not None]
        limits = [limit for limit in (self.limit, other.limit) if limit]
        return QueueRules(
            self.paused or other.paused,
            max(self.blocked_until, other.blocked_until),
            max(delays, default=None),
            min(limits, default=0),
        )


@lru_cache(QUEUE_RULES_SHARED_MAX)
def shared_rules(paused: bool, blocked_until: Instant, delay: float | None, limit: int) -> QueueRules:
    """Returns rules as one object for all queues with equal ones. A limit of a crawl is a rule of each of its queues,
    and Python's garbage collector visits each object."""
    return QueueRules(paused, blocked_until, delay, limit)


_QUEUES, _WITH_OPEN = range(2)


class Queues(Columns):
    """hash; host: a row of Hosts; crawl: its row; after: one more than the next queue of the same host, or 0;
    served: the turn in which it was served last; waiting, parked, done, gone: the numbers of its URLs in these
    states; open: that of its URLs that are not completed (done or gone). of_crawls: by crawl, how many queues are in
    memory, and how many of them have open URLs."""

    hash: Column
    host: Column
    crawl: Column
    after: Column
    served: Column
    waiting: Column
    parked: Column
    done: Column
    gone: Column
    open: Column

    def __init__(self) -> None:
        rows_and_counts = ("host", "crawl", "after", "served", "waiting", "parked", "done", "gone", "open")
        super().__init__({"hash": "u8", **dict.fromkeys(rows_and_counts, "u4")})
        self._index = kernels.Index()
        self.keys: dict[int, str] = {}  # by row, where the key is not the host
        self.rules: dict[int, QueueRules] = {}
        self.voids: dict[int, int] = {}  # cards accepted under a lower number are void
        self.of_crawls: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0])

    def find(self, hashes: Uint64s) -> Rows:
        """The rows of queues by hash, NONE for unknown ones."""
        return np.frombuffer(self._index.find(np.ascontiguousarray(hashes, np.uint64)), np.uint32)

    def add(self, hashes: Uint64s, hosts: Rows, crawls: Column) -> Rows:
        """Returns rows for new queues, one per distinct hash; all must be unknown."""
        new = self._take(len(hashes))
        self.hash[new] = hashes
        self.host[new] = hosts
        # The first crawl is 0: zeros are not written over zeros, so the untouched column uses no memory.
        if np.count_nonzero(crawls) or np.count_nonzero(self.crawl[new]):
            self.crawl[new] = crawls
        self._index.add(np.ascontiguousarray(hashes, np.uint64), new)
        self._count(new, _QUEUES, 1)
        return new

    def remove(self, rows: Rows) -> None:
        """Removes the rows of these queues; they must have no key of their own, and nothing may point to them."""
        self._index.remove(np.ascontiguousarray(self.hash[rows]))
        if self.rules:
            for row in rows.tolist():
                self.rules.pop(row, None)
        self.close(rows)
        self._count(rows, _QUEUES, -1)
        self._give(rows)
        self.crawl[rows] = NONE

    def count_open(self, rows: Rows, step: int) -> None:
        """Counts open URLs of these queues that came (step 1) or left (-1), one per row."""
        places = rows.astype(np.intp)
        if step > 0:
            changed = rows[self.open[places] == 0]
            add_to_each(self.open, rows, 1)
        else:
            add_to_each(self.open, rows, -1)
            changed = rows[self.open[places] == 0]
        if len(changed):
            self._count(np.unique(changed), _WITH_OPEN, step)

    def set_open(self, rows: Rows, counts: Column) -> None:
        """Sets the numbers of open URLs of queues. All of them are 0 before."""
        self.open[rows] = counts
        self._count(rows[counts > 0], _WITH_OPEN, 1)

    def close(self, rows: Rows) -> None:
        """Takes all open URLs of these queues out of the counts."""
        self._count(rows[self.open[rows] > 0], _WITH_OPEN, -1)
        self.open[rows] = 0

    def open_again(self, rows: Rows, queued: Rows | int = 0) -> None:
        """Counts the open URLs of queues that were cold: those that wait, and queued ones."""
        self.open[rows] = self.waiting[rows] + queued
        self._count(rows[self.open[rows] > 0], _WITH_OPEN, 1)

    def _count(self, rows: Rows, which: int, step: int) -> None:
        crawls = self.crawl[rows]
        for crawl, places in by_value(crawls):
            counts = self.of_crawls[crawl]
            counts[which] += step * len(crawls[places])
            if not counts[_QUEUES]:
                del self.of_crawls[crawl]

    def there(self, rows: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Whether a queue has each of these rows."""
        found: npt.NDArray[np.bool_] = self.crawl[rows] != NONE
        return found

    def __repr__(self) -> str:
        return f"<Queues {len(self)}>"
