"""The hosts whose clocks count for URLs, by name, row and slot."""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Any

import numpy as np
import numpy.typing as npt

from outrider.frontier.format.facts import Fact
from outrider.frontier.state.hosts import NONE, Rows, queue_hashes
from outrider.frontier.state.tables import Tables, rules_cells
from outrider.frontier.verbs.draft import Draft
from outrider.limits import SLOTS
from outrider.url import UrlBatch
from outrider.url.keys import slots_of_spans


class ClockHosts:
    """The hosts whose clocks count for URLs: their names, their slots, and which slots this frontier owns."""

    def __init__(self, tables: Tables, slot_key: bytes, owned: frozenset[int] | None) -> None:
        self.tables, self._slot_key, self.owned = tables, slot_key, owned
        self.partition = None if owned is None else partition_of(owned)
        self.first_slot = min(owned or (0,))
        self._is_own = np.ones(SLOTS, np.bool_)
        if owned is not None:
            self._is_own[:] = False
            self._is_own[list(owned)] = True

    def owns(self, name: str) -> bool:
        """Whether this frontier owns the slot of a host. Hosts of other slots have their clock in another frontier."""
        return self.owned is None or self.slot_of(self.tables.home_of(name)) in self.owned

    def is_own(self, slots: npt.NDArray[np.uint16]) -> npt.NDArray[np.bool_]:
        """Returns which slots this frontier owns."""
        own: npt.NDArray[np.bool_] = self._is_own[slots]
        return own

    def slot_of(self, name: str) -> int:
        """Returns the slot of a host: the top 12 bits of a keyed hash. The hash is of its registrable domain, or of its
        name without one."""
        text = name.encode("ascii")
        return int(self.slots_of_spans(text, np.zeros(1, np.int64), np.array([len(text)], np.int64))[0])

    def slots_of_spans(self, arena: bytes, starts: Any, ends: Any) -> npt.NDArray[np.uint16]:
        """Returns the slots of hosts whose names are in an arena."""
        return slots_of_spans(arena, starts, ends, self._slot_key)

    def hashes(self, urls: UrlBatch) -> npt.NDArray[np.uint64]:
        """Returns the hashes of the hosts whose clocks count for these URLs, by the rule of `home_of`."""
        names = urls.clock_fingerprints(self.tables.fingerprint_key)
        written = urls.host_fingerprints(self.tables.fingerprint_key)
        rows = np.flatnonzero(names != written) if names is not written else np.zeros(0, np.intp)
        known = self.tables.knows(written[rows]) if len(rows) else None
        if known is None or not known.any():
            return names
        names = names.copy()
        names[rows[known]] = written[rows[known]]
        return names

    def slots(
        self, urls: UrlBatch, names: npt.NDArray[np.uint64], rows: npt.NDArray[np.intp]
    ) -> npt.NDArray[np.uint16]:
        """Returns the slots of these rows. names: the result of `hashes` for all rows."""
        starts, ends = urls.clock_hosts()
        ends = ends + (names != urls.clock_fingerprints(self.tables.fingerprint_key))
        return self.slots_of_spans(urls.arena, starts[rows], ends[rows])

    def cold_ones(self, names: Any, hosts: Rows) -> npt.NDArray[np.intp]:
        """Returns the places of hosts without a row that are cold."""
        places = np.flatnonzero(hosts == NONE)
        if not len(self.tables.cold):
            return places[:0]
        return places[self.tables.cold.has(np.ascontiguousarray(names[places]))]

    def add(self, draft: Draft, name: str, crawl: int | None = None) -> None:
        """Adds facts for a host and its queue, unless it is known. crawl: the row of a crawl that gets a queue of the
        host in any case. With None only the default crawl gets one, and only for a new host."""
        tables = self.tables
        name = tables.home_of(name)
        host = tables.host_row(name)
        if name in draft.hosts_made:
            return
        if host != NONE and (crawl is None or crawl in tables.queues.crawl[list(tables.queues_of(host))]):
            return
        draft.hosts_made.add(name)
        crawl = crawl or 0
        number, slot = tables.hash_of(name), self.slot_of(name)
        if host == NONE:
            draft.add(Fact.HOST, (slot, number, name))
        queue = int(queue_hashes(np.array([number], np.uint64), np.array([crawl], np.uint32))[0])
        draft.add(Fact.QUEUE, (slot, queue, number, crawl, ""))
        (rules,) = tables.rules_of_new(np.array([crawl], np.uint32), [name])
        if rules.any():
            draft.add(Fact.QUEUE_RULES, rules_cells(slot, queue, rules))

    def leave_addresses(self, draft: Draft, hosts: Iterable[int]) -> None:
        """Keeps the addresses of hosts with open requests before new addresses are set. Until these requests end, the
        hosts count in the groups of the old address, also after a kill."""
        tables = self.tables
        busy = [host for host in hosts if tables.hosts.in_flight[host]]
        if not busy:
            return
        still_at = tables.addresses.still_at()
        for host in busy:
            if host not in still_at:
                place = tables.addresses.by_host.get(host)
                address = place.address if place is not None else ""
                draft.add(Fact.LEFT, tables.addresses.left_cells(host, tables.token, address))


def partition_of(slots: Set[int]) -> int | None:
    """Returns p for slots that are the partition p of all: 2^k slots that begin at p times 2^k. None for others."""
    first, size = min(slots), len(slots)
    if size & (size - 1) or first % size or max(slots) != first + size - 1:
        return None
    return first // size
