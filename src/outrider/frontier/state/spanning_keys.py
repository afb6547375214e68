"""Keys that span hosts: the queues of such a key share one turn at a time, and one clock.

Members are queues, where a group of `GroupTurns` has hosts: while a key is visited at one host, its other hosts
continue with their other queues and their errands, and a host has any number of keys. Only an open lease uses a turn:
until one is drawn, all queues of the key are in the rings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from outrider.clock import Instant
from outrider.frontier.state.hosts import MANY, NONE, Rows, Uint64s
from outrider.url import undotted
from outrider.url.keys import name_of_key

if TYPE_CHECKING:
    from outrider.frontier.state.tables import Tables


class KeyGroup:
    """The queues of one key. name: the row of their crawl, and the key; busy: their open requests; rest_until: the
    longest rest of their hosts."""

    __slots__ = ("busy", "name", "queues", "rest_until")

    def __init__(self, name: tuple[int, str]) -> None:
        self.name = name
        self.busy = 0
        self.rest_until: Instant = 0
        self.queues: list[int] = []

    def free_at(self) -> Instant | None:
        """The first instant at which the key allows a request; None while one is open."""
        return None if self.busy else self.rest_until


class SpanningKeys:
    """The groups of keys that span hosts. groups: by crawl and key; of crawl NONE for a host with a row for each
    spelling, with and without a dot at its end. group_of: by queue."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self.groups: dict[tuple[int, str], KeyGroup] = {}
        self.group_of: dict[int, KeyGroup] = {}

    def queues_with(self, key: str, crawl: int | None) -> Iterator[int]:
        """Yields the queues with a key in this exact spelling, of one crawl or of all; the queues with the name of
        their host are found by the host, which is recalled for that, and may be yielded twice. The first one is cheap
        for any number of queues: each new queue of a key copies its rules from it."""
        tables, queues = self._tables, self._tables.queues
        if self.groups:
            for of in (NONE, *tables.crawls.rows.values()) if crawl is None else (crawl,):
                if (of, key) in self.groups:
                    yield from self.groups[of, key].queues
        # Texts without a host are only in crawls by unique keys.
        for name in (key, name_of_key(key)) if tables.crawls.callers else (key,):
            namesake = tables.host_row(name)
            for queue in tables.queues_of(namesake) if namesake != NONE else ():
                if queue not in queues.keys and crawl in (None, queues.crawl[queue]):
                    yield queue

    def may_have(self, keys: Sequence[str], hashes: Uint64s) -> npt.NDArray[np.bool_]:
        """Which of these keys may have a queue; `queues_with` finds it. hashes: those of the keys. Most keys are the
        names of new hosts, and have no queue."""
        tables = self._tables
        if self.groups:
            return np.ones(len(keys), np.bool_)
        found = tables.knows(hashes)
        if tables.crawls.callers:
            found |= tables.knows(tables.hashes_of([name_of_key(key) for key in keys]))
        return found

    def enter(self, rows: Rows) -> None:
        """New queues join the groups of their keys. A key spans hosts from the first queue on that has another name
        than its host; the host of that name joins it."""
        tables, queues = self._tables, self._tables.queues
        for row in rows.tolist() if queues.keys or self.groups else ():
            name = int(queues.crawl[row]), tables.key_of(row)
            if name in self.groups:
                self._join(name, (row,))
            elif row in queues.keys:
                self._join(name, (*self.queues_with(name[1], name[0]), row))
        self.join_twins(rows)

    def join_twins(self, rows: Rows) -> None:
        """Makes a host with a row for each spelling, with and without a dot, have one turn and one clock."""
        tables = self._tables
        for home in np.unique(tables.queues.host[rows]).tolist() if tables.hosts.dotted else ():
            name = undotted(tables.hosts.name(home))
            twins = [tables.hosts.row(tables.hash_of(spelling)) for spelling in (name, name + ".")]
            if NONE not in twins:
                self._join((NONE, name), (queue for twin in twins for queue in tables.queues_of(twin)))

    def _join(self, name: tuple[int, str], rows: Iterable[int]) -> None:
        hosts, homes = self._tables.hosts, self._tables.queues.host
        for row in rows:
            if row in self.group_of:
                continue
            home = int(homes[row])
            self.group_of[row] = group = self.groups.setdefault(name, KeyGroup(name))
            group.queues.append(row)
            hosts.flags[home] |= MANY
            group.rest_until = max(group.rest_until, int(hosts.rest_until[home]))
            if hosts.in_flight[home]:
                group.busy += int((self._tables.urls.requests_open() == row).sum())

    def part(self, rows: Rows) -> None:
        """Removes these queues from their groups; a group without a queue is removed."""
        going = set(rows.tolist())
        for group in {group for row in going if (group := self.group_of.pop(row, None)) is not None}:
            group.queues = [queue for queue in group.queues if queue not in going]
            if not group.queues:
                del self.groups[group.name]

    def count(self, queues: Rows, step: int) -> None:
        """Counts a request of each of these queues that may begin (step 1) or ended (-1)."""
        for queue in queues.tolist() if self.group_of else ():
            group = self.group_of.get(queue)
            if group is not None:
                group.busy += step
                self._look_again(group)

    def rest(self, hosts: Rows) -> None:
        """Lets the groups of these hosts' queues rest as long as the hosts."""
        tables = self._tables
        for host in hosts[(tables.hosts.flags[hosts] & MANY) != 0].tolist() if self.groups else ():
            until = int(tables.hosts.rest_until[host])
            for queue in tables.queues_of(host):
                group = self.group_of.get(queue)
                if group is not None and until > group.rest_until:
                    group.rest_until = until
                    self._look_again(group)

    def _look_again(self, group: KeyGroup) -> None:
        self._tables.changed.append(self._tables.queues.host[group.queues])
