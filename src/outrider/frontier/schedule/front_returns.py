"""Brings cold hosts with queued URLs back to memory before a draw.

Of each crawl and class with such hosts, some are ready in memory. So a class has its chance in a draw if any host has a
URL of it. In addition, every eighth draw returns the host that has waited longest on disk. So a ready queue waits at
most eight draws for each ready queue before it, on disk or in memory. If errands resolve addresses, most of these hosts
need one: then they are in the rings of such hosts, and every eighth errand for an address is for the host that has
waited longest on disk.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from outrider import kernels
from outrider.clock import Instant
from outrider.frontier.schedule.host_schedule import HostSchedule
from outrider.frontier.state.crawls import CrawlState
from outrider.frontier.state.hosts import Rows
from outrider.frontier.state.tables import Tables
from outrider.frontier.stores.front_tier import Key
from outrider.limits import FRONT_RETURNS, OLDEST_DRAW_EVERY


class FrontReturns:
    """hosts_max: with more hosts in memory none returns while others rest there: these become ready by themselves."""

    def __init__(self, tables: Tables, turns: HostSchedule, hosts_max: int) -> None:
        self._tables, self._turns, self._hosts_max = tables, turns, hosts_max
        self._returned: dict[Key, Rows] = {}  # by line: queues that returned and were still ready at the last call
        self._oldest = _NO_QUEUES  # queues that returned because they waited longest, in this order
        self._draws = {id(turns.ready): 0, id(turns.seekers): 0}  # of each ring, since the last one of them was drawn

    def next(self, now: Instant) -> Instant | None:
        """The first instant at which a cold host has a URL or its errand to lease, None without one."""
        if self._is_full():
            return None
        rest_until = self._tables.cold.floor_first_end()
        times = [max(now, rest_until) if visited else now for *_, visited in self._keys(None)]
        return min(times, default=None)

    def _is_full(self) -> bool:
        return len(self._tables.hosts) > self._hosts_max and len(self._turns.timetable) > 0

    def _keys(self, crawl: int | None) -> list[Key]:
        """The lines of crawls that run, of one crawl or of all."""
        states = self._tables.crawls.states
        keys = self._tables.cold.front.keys()
        return [key for key in keys if states[key[0]] == CrawlState.RUNNING and crawl in (None, key[0])]

    def _keys_at(self, now: Instant, crawl: int | None) -> list[Key]:
        """The lines whose hosts may be visited now. After the clock was set back, visited hosts rest."""
        keys = self._keys(crawl)
        return keys if self._tables.cold.floor_first_end() <= now else [key for key in keys if not key[2]]

    def bring(self, want: int, crawl: int | None, now: Instant) -> bool:
        """Recalls hosts before a draw of `want` queues, of one crawl or of all, and offers their queues. Returns
        whether any came. Raises DamagedStoreError."""
        front = self._tables.cold.front
        keys = self._keys_at(now, crawl) if want > 0 and len(front) else []
        if not keys or self._is_full() or self._tables.urls.unread is not None:
            return False
        others, self._tables.changed = self._tables.changed, []
        came = False
        try:
            # Many lines share an amount, so that no call recalls too many.
            most = min(FRONT_RETURNS + want, max(2, (4 * FRONT_RETURNS + 2 * want) // len(keys)))
            for key in keys:
                if (ready := self._count_ready(key)) <= most // 2:
                    queues = self._recall(key, most - ready)
                    self._returned[key] = np.concatenate((self._returned.get(key, _NO_QUEUES), queues))
                    came |= len(queues) > 0
            self._turns.touch(self._tables.changed, now)
            self._tables.changed = []
            oldest = front.oldest(self._keys_at(now, crawl))
            if oldest is not None and len(self._ready_oldest(crawl)) <= want // OLDEST_DRAW_EVERY:
                queues = self._recall(oldest, max(FRONT_RETURNS, want // OLDEST_DRAW_EVERY + 1))
                self._oldest = np.concatenate((self._oldest, queues))
                came |= len(queues) > 0
                self._turns.touch(self._tables.changed, now)
                self._tables.changed = []
        finally:
            # `touch` had only hosts that returned: those that were drawn and are not leased yet must not be offered.
            self._tables.changed += others
        return came

    def draw_oldest(self, want: int, crawl: int | None, ring: kernels.Ready) -> Rows:
        """Removes from a ring and returns the queues that every eighth of its next `want` draws has to return. Call it
        after `bring`."""
        if not len(self._oldest):
            return _NO_QUEUES
        count, self._draws[id(ring)] = divmod(self._draws[id(ring)] + want, OLDEST_DRAW_EVERY)
        there = self._ready_oldest(crawl)
        drawn = there[np.frombuffer(ring.standing(there), np.bool_)][:count]
        ring.withdraw(drawn)
        return drawn

    def _ready_oldest(self, crawl: int | None) -> Rows:
        """Returns the ready ones of the queues that returned for their age, of one crawl or of all."""
        self._oldest = self._ready(self._oldest)
        return self._oldest if crawl is None else self._oldest[self._tables.queues.crawl[self._oldest] == crawl]

    def _count_ready(self, key: Key) -> int:
        """Returns how many queues that returned from a line are ready."""
        if key in self._returned:
            self._returned[key] = self._ready(self._returned[key])
        return len(self._returned.get(key, ()))

    def _ready(self, queues: Rows) -> Rows:
        ready = np.frombuffer(self._turns.ready.standing(queues), np.bool_)
        return queues[ready | np.frombuffer(self._turns.seekers.standing(queues), np.bool_)]

    def _recall(self, key: Key, most: int) -> Rows:
        """Recalls up to `most` of the first hosts of a line, those that are still cold. Returns their queues."""
        tables, front = self._tables, self._tables.cold.front
        parts = [_NO_QUEUES]
        while most > 0 and len(hashes := front.first(key, most)):
            most -= len(hashes)
            hosts = hashes[tables.cold.have_cards(hashes)]  # the others returned because a call named them
            if len(hosts):
                tables.recall(hosts)
                parts.append(tables.hosts.first_queue[tables.hosts.find(hosts)])
            front.remove(key, len(hashes))
        return np.concatenate(parts)

    def stay(self, queues: Rows) -> npt.NDArray[np.bool_]:
        """Whether each of these queues returned and was not drawn yet: it does not go to disk again, where it would be
        the last of its line."""
        for key in self._returned.keys() - self._tables.cold.front.keys():
            del self._returned[key]
        return np.isin(queues, np.concatenate((self._oldest, *self._returned.values())))


_NO_QUEUES = np.zeros(0, np.uint32)
