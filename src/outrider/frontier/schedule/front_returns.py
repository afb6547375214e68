"""Brings cold hosts with queued URLs back to memory before a draw.

Of each crawl and class with such hosts, some are ready in memory. So a class has its chance in a draw if any host has a
URL of it. In addition, every eighth draw returns the host that has waited longest on disk. So a ready queue waits at
most eight draws for each ready queue before it, on disk or in memory. If errands resolve addresses, some of these hosts
need one: then they are in the rings of such hosts, and every eighth errand for an address is for the host that has
waited longest on disk.

The hosts in the line of a group return when few wait in memory for that group. Some hosts of each crawl and class
with such lines wait there. In addition, after every eighth turn of the group the host that has waited longest in its
lines returns.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice

import numpy as np
import numpy.typing as npt

from outrider import kernels
from outrider.clock import Instant
from outrider.frontier.schedule.host_schedule import HostSchedule
from outrider.frontier.state.crawls import CrawlState
from outrider.frontier.state.hosts import Rows
from outrider.frontier.state.tables import Tables
from outrider.frontier.stores.front_tier import GroupLines, Hashes, Key, first_places
from outrider.limits import (
    FRONT_GROUP_LOOKS,
    FRONT_GROUPS_AT_ONCE,
    FRONT_RETURNS,
    GROUP_ELSEWHERE_MOST,
    OLDEST_DRAW_EVERY,
)


class FrontReturns:
    """hosts_max: with more hosts in memory no host returns while some rest there or wait for groups: these become ready
    by themselves. came: the rows of hosts that the last `bring` recalled from lines of crawls and classes."""

    def __init__(self, tables: Tables, turns: HostSchedule, hosts_max: int) -> None:
        self._tables, self._turns, self._hosts_max = tables, turns, hosts_max
        self._returned: dict[Key, Rows] = {}  # by line: queues that returned and were not drawn yet at the last call
        self._oldest = _NO_QUEUES  # queues that returned because they waited longest, in this order
        self.came: list[Rows] = []
        self._seen: tuple[object, ...] = ()  # the states that decide which lines may be used, at the last look
        self._draws = {id(turns.ready): 0, id(turns.seekers): 0}  # of each ring, since the last one of them was drawn

    def next(self, now: Instant) -> Instant | None:
        """The first instant at which a cold host has a URL or its errand to lease, None without one."""
        times: list[Instant] = []
        rest_until = self._tables.cold.floor_first_end()
        if self._tables.cold.front.of_groups:
            wanted, is_all = self._wanted(now, most=1)
            if wanted or not is_all:
                return now
            times += [rest_until] * (rest_until > now)
        if not self._is_full():
            times += [max(now, rest_until) if key.visited else now for key in self._keys(None)]
        return min(times, default=None)

    def _is_full(self) -> bool:
        others = len(self._turns.timetable) or self._turns.shared.waiting
        return len(self._tables.hosts) > self._hosts_max and others > 0

    def _keys(self, crawl: int | None) -> list[Key]:
        """The lines of crawls that run, of one crawl or of all."""
        return [key for key in self._tables.cold.front.keys if crawl in (None, key.crawl) and self._runs(key)]

    def _runs(self, key: Key) -> bool:
        return bool(self._tables.crawls.states[key.crawl] == CrawlState.RUNNING)

    def _may_return(self, key: Key, now: Instant) -> bool:
        """Whether the hosts of a line may be visited now. After the clock was set back, visited hosts rest."""
        return self._runs(key) and not (key.visited and self._tables.cold.floor_first_end() > now)

    def _keys_at(self, now: Instant, crawl: int | None) -> list[Key]:
        """The lines, without those of groups, whose hosts may be visited now."""
        return [key for key in self._keys(crawl) if self._may_return(key, now)]

    def bring(self, want: int, crawl: int | None, now: Instant, *, nothing_drawn: bool = False) -> bool:
        """Recalls hosts before a draw of `want` queues, of one crawl or of all, and offers their queues.
        nothing_drawn: the call found no ready host, so hosts return although many wait for groups. Returns whether any
        returned. Raises DamagedStoreError."""
        front, self.came = self._tables.cold.front, []
        if want <= 0 or not len(front) or self._tables.urls.unread is not None:
            return False
        others, self._tables.changed = self._tables.changed, []
        came = False
        try:
            if front.of_groups:
                came |= self._bring_to_groups(want, now)
            if not self._is_full():
                came |= self._bring_to_classes(want, crawl, now, nothing_drawn=nothing_drawn)
                came |= self._bring_oldest(want, crawl, now, nothing_drawn=nothing_drawn)
        finally:
            # `touch` had only hosts that returned: those that were drawn and are not leased yet must not be offered.
            self._tables.changed += others
        return came

    def _bring_to_classes(self, want: int, crawl: int | None, now: Instant, *, nothing_drawn: bool) -> bool:
        """Recalls hosts of each line, as far as few of those that returned before are ready. Returns whether any
        returned."""
        keys = self._keys_at(now, crawl)
        # Many lines share an amount, so that no call recalls too many.
        most = min(FRONT_RETURNS + want, max(2, (4 * FRONT_RETURNS + 2 * want) // max(len(keys), 1)))
        came = False
        for key in keys:
            self._returned[key], ready = self._unvisited(self._returned.get(key, _NO_QUEUES))
            waiting = len(self._returned[key]) - len(ready)
            if len(ready) <= most // 2 and (nothing_drawn or waiting < 2 * most):
                queues = self._recall(key, most - len(ready))
                self._returned[key] = np.concatenate((self._returned[key], queues))
                came |= len(queues) > 0
        self._settle(now)
        return came

    def _bring_oldest(self, want: int, crawl: int | None, now: Instant, *, nothing_drawn: bool) -> bool:
        """Recalls the hosts that have waited longest. Returns whether any returned."""
        oldest = self._tables.cold.front.oldest(self._keys_at(now, crawl))
        if oldest is None:
            return False
        ready = len(self._ready_oldest(crawl))
        waiting = len(self._oldest) - ready
        if ready > want // OLDEST_DRAW_EVERY or (waiting >= 2 * FRONT_RETURNS and not nothing_drawn):
            return False
        queues = self._recall(oldest, max(FRONT_RETURNS, want // OLDEST_DRAW_EVERY + 1))
        self._oldest = np.concatenate((self._oldest, queues))
        self._settle(now)
        return len(queues) > 0

    def _settle(self, now: Instant, *, from_groups: bool = False) -> None:
        """Offers the queues of the hosts that returned."""
        changed, self._tables.changed = self._tables.changed, []
        self._turns.touch(changed, now)
        for rows in changed:
            self._turns.shared.note_returned(rows, from_groups=from_groups)
        if not from_groups:
            self.came += changed

    def _bring_to_groups(self, want: int, now: Instant) -> bool:
        """Recalls hosts from the lines of groups before a draw of `want` queues. Returns whether any returned. Raises
        DamagedStoreError."""
        front = self._tables.cold.front
        wanted, _ = self._wanted(now, most=FRONT_GROUPS_AT_ONCE + want)
        places: list[tuple[int, Key, int]] = []
        parts: list[Hashes] = []
        for group, counts in wanted.items():
            for key, count in counts.items():
                hashes, taken = self._first_cold(front.of_groups[group], key, count)
                parts.append(hashes)
                places.append((group, key, taken))
        if not parts:
            return False
        self._tables.recall(np.concatenate(parts))
        for group in wanted:
            front.of_groups[group].turns %= OLDEST_DRAW_EVERY
        for group, key, taken in places:
            front.remove_of_group(group, key, taken)
        self._settle(now, from_groups=True)
        return any(map(len, parts))

    def _first_cold(self, lines: GroupLines, key: Key, count: int) -> tuple[Hashes, int]:
        """Returns up to `count` of the first hosts with a key that are cold, and how many places they use, with those
        before them that are not cold any more: a call named these."""
        most = count
        while True:
            some = lines.first(key, most)
            cold = np.flatnonzero(self._tables.cold.have_cards(some))
            cold = cold[first_places(some[cold])][:count]
            if len(cold) == count:
                return some[cold], int(cold[-1]) + 1
            if len(some) < most:
                return some[cold], len(some)
            most *= 8

    def _wanted(self, now: Instant, *, most: int) -> tuple[dict[int, dict[Key, int]], bool]:
        """By group, how many hosts of which of its lines are to return now: of up to `most` groups that have changed.
        Also whether it looked at all of these groups."""
        shared, front = self._turns.shared, self._tables.cold.front
        states = tuple((crawl, self._tables.crawls.states[crawl]) for crawl in front.at_groups)
        seen = states, self._tables.cold.floor_first_end() > now
        if seen != self._seen:
            self._seen = seen
            shared.active.update(front.of_groups)
        found: dict[int, dict[Key, int]] = {}
        for group in list(islice(shared.active, FRONT_GROUP_LOOKS + most)):
            counts = self._wanted_of(group, now) if group in front.of_groups else {}
            if counts:
                if len(found) == most:
                    break
                found[group] = counts
            else:
                shared.active.discard(group)
        return found, len(shared.active) == len(found)

    def _wanted_of(self, group: int, now: Instant) -> dict[Key, int]:
        """How many hosts of which lines of a group are to return, the best class first. In addition, after each eighth
        turn of the group the host that has waited longest in its lines."""
        shared, lines = self._turns.shared, self._tables.cold.front.of_groups[group]
        keys = [key for key in lines.keys if self._may_return(key, now)]
        most = shared.kept_waiting_for(group)
        if not keys or shared.waits_elsewhere(group, now) >= GROUP_ELSEWHERE_MOST + most:
            return {}
        found: Counter[Key] = Counter()
        there: Counter[int] = Counter()  # by crawl, how many return already: their classes are as good or better
        for key in sorted(keys, key=lambda key: -key.klass):
            count = there[key.crawl] + shared.waiting_for(group, key.crawl, key.klass, most)
            if 2 * count <= most:
                found[key] = min(most - count, lines.count(key))
                there[key.crawl] += found[key]
        if (aged := lines.turns // OLDEST_DRAW_EVERY) > 0:
            found[lines.oldest(keys)] += min(aged, most)
        return found

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
        self._oldest, ready = self._unvisited(self._oldest)
        return ready if crawl is None else ready[self._tables.queues.crawl[ready] == crawl]

    def _unvisited(self, queues: Rows) -> tuple[Rows, Rows]:
        """Returns those of these queues that are ready or wait for a group, and those that are ready."""
        ready = self._are_ready(queues)
        if not self._turns.shared.used:
            return queues[ready], queues[ready]
        rows = self._tables.queues.host[queues]
        own = self._tables.hosts.first_queue[rows] == queues  # else the row of a host that left
        return queues[ready | (own & self._turns.shared.wait_since_return(rows))], queues[ready]

    def _are_ready(self, queues: Rows) -> npt.NDArray[np.bool_]:
        ready = np.frombuffer(self._turns.ready.standing(queues), np.bool_)
        return ready | np.frombuffer(self._turns.seekers.standing(queues), np.bool_)

    def _recall(self, key: Key, most: int) -> Rows:
        """Recalls up to `most` of the first hosts of a line, those that are still cold. Returns their queues."""
        tables, front = self._tables, self._tables.cold.front
        parts = [_NO_QUEUES]
        while most > 0 and len(hashes := front.first(key, most)):
            most -= len(hashes)
            hosts = hashes[tables.cold.have_cards(hashes)]  # the others returned because a call named them
            hosts = hosts[first_places(hosts)]
            if len(hosts):
                tables.recall(hosts)
                parts.append(tables.hosts.first_queue[tables.hosts.find(hosts)])
            front.remove(key, len(hashes))
        return np.concatenate(parts)

    def problems(self, now: Instant) -> list[str]:
        """Errors inside, in words: groups from whose lines hosts are to return, and nothing would bring them."""
        shared, front = self._turns.shared, self._tables.cold.front
        self._wanted(now, most=0)  # after a change of a crawl or of the clock it looks at all
        forgotten = [group for group in front.of_groups if group not in shared.active and self._wanted_of(group, now)]
        return [f"group {group}: no call will bring back its hosts on disk" for group in forgotten]

    def forget(self, queues: Rows) -> None:
        """Forgets queues that leave again, to lines of groups: other hosts will get their rows."""
        for key, own in self._returned.items():
            self._returned[key] = own[~np.isin(own, queues)]
        self._oldest = self._oldest[~np.isin(self._oldest, queues)]

    def stay(self, queues: Rows) -> npt.NDArray[np.bool_]:
        """Whether each of these queues returned and was not drawn yet: it does not go to disk again, where it would be
        the last of its line."""
        for key in self._returned.keys() - self._tables.cold.front.keys:
            del self._returned[key]
        return np.isin(queues, np.concatenate((self._oldest, *self._returned.values())))


_NO_QUEUES = np.zeros(0, np.uint32)
