"""The queues of deleted crawls, removed bit by bit: first their cards, then their rows."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from outrider.frontier.state.hosts import MANY, Rows

if TYPE_CHECKING:
    from outrider.frontier.state.tables import Tables


class DeletedQueues:
    """The queues to remove. stalled: those whose cards are not yet dropped; waiting: those that may still have
    a row among others."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self.waiting: deque[int] = deque()
        self.stalled: list[int] = []

    def drop(self, most: int) -> None:
        """Drops the cards of up to `most` queues of deleted crawls."""
        for _ in range(min(most, len(self.stalled))):
            queue = self.stalled.pop()
            self._tables.urls.drop_cards(queue)
            self.waiting.append(queue)

    def find(self) -> None:
        """Collects all queues of deleted crawls, after recovery."""
        queues = self._tables.queues
        there = queues.there(np.arange(queues.count))
        gone = self._tables.crawls.are_gone(queues.crawl[: queues.count])
        self.waiting = deque(np.flatnonzero(there & gone).tolist())

    def ready(self, most: int) -> Rows:
        """Returns the removable rows among the next `most` queues of deleted crawls: those without an open lease whose
        host keeps another queue, because a host goes cold with a queue. Empty while a round copies rows, or cards are
        not yet dropped."""
        queues, hosts = self._tables.queues, self._tables.hosts
        if self.stalled or not queues.reuses:
            return np.zeros(0, np.uint32)
        some = [self.waiting.popleft() for _ in range(min(most, len(self.waiting)))]
        rows = np.unique(np.array(some, np.uint32))
        rows = rows[queues.there(rows) & self._tables.crawls.are_gone(queues.crawl[rows])]
        if not len(rows):
            return rows
        if self._tables.hosts.rested or (hosts.in_flight[queues.host[rows]] > 0).any():
            leased = self._tables.urls.open_leases().queues
            rows = rows[~np.isin(rows, leased)]  # the end of such a lease names its queue again
        mine = set(rows.tolist())
        for host in np.unique(queues.host[rows]).tolist():
            chain = list(self._tables.queues_of(host))
            if mine.issuperset(chain):
                mine.discard(chain[-1])
        return np.array(sorted(mine), np.uint32)

    def remove(self, rows: Rows) -> None:
        """Removes the rows of these queues of deleted crawls; they must be in no ring."""
        queues, hosts, going = self._tables.queues, self._tables.hosts, set(rows.tolist())
        homes = np.unique(queues.host[rows])
        for host in homes.tolist():
            chain = [queue for queue in self._tables.queues_of(host) if queue not in going]
            hosts.first_queue[host] = chain[0]
            for queue, after in zip(chain, [*chain[1:], -1], strict=True):
                queues.after[queue] = after + 1
            if len(chain) == 1 and chain[0] not in self._tables.keys.group_of:
                hosts.flags[host] &= ~np.uint16(MANY)
        self._tables.keys.part(rows)
        for row in rows.tolist():
            queues.keys.pop(row, None)
            queues.voids.pop(row, None)
        queues.remove(rows)
        self._tables.flag(np.array([hosts.first_queue[host] for host in homes.tolist()], np.uint32))
        self._tables.changed.append(homes)
