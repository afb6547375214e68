"""Moves hosts to the disk when too many are in memory, in bounded steps before a checkpoint begins: first hosts without
queued URLs, the least recently visited ones. If they are not enough, hosts with few queued URLs follow: first those
that wait for a crowded group, then hosts that are ready, need an address, or wait for a group
with few hosts. Among the latter the lowest classes leave first, and the youngest rows of a class.
"""

from __future__ import annotations

import numpy as np

from outrider.clock import Instant
from outrider.frontier.schedule.front_returns import FrontReturns
from outrider.frontier.schedule.host_schedule import HostSchedule
from outrider.frontier.state.cold import EXTRA_BYTES_MAX, cells_bytes, may_go, may_go_with_urls
from outrider.frontier.state.hosts import MANY, ROBOTS, Rows
from outrider.frontier.state.tables import Tables
from outrider.frontier.stores.front_tier import NO_GROUP
from outrider.limits import (
    COLD_ROWS_PER_NEW_HOST,
    COLD_SAMPLE_ROWS,
    COLD_STEP_ROWS,
    COLD_STEP_ROWS_MOST,
    FRONT_HOSTS_LEAST,
)


class Cooling:
    """front: the return of hosts that left with URLs; hot_max: how many hosts may have rows. A host that still adds
    to the clock of a group is kept: when it leaves, the delays of its groups after its last request are over, so they
    need no record."""

    def __init__(self, tables: Tables, turns: HostSchedule, front: FrontReturns, hot_max: int) -> None:
        self._tables = tables
        self._turns = turns
        self.front = front
        self._hot_max = hot_max
        self._rings = turns.ready, turns.seekers
        self._hand: int | None = None  # the next row to look at; None between two passes
        self._cutoff: Instant = 0  # hosts that were visited later are kept
        self._bar = _NO_BAR  # hosts with queued URLs of better places are kept
        self._crowds_go = False  # whether hosts leave that wait for a crowded group
        self._made = 0  # rows that hosts got before the last step
        self._added = 0  # rows that they got since this pass began
        self._left = 0  # how many hosts the last pass left in memory
        self._room = 0  # bytes of robots rules that this pass may still move: they stay in memory until its end

    @property
    def presses(self) -> bool:
        """Whether a quarter more hosts are in memory than may be, and a quarter more than the last pass left there."""
        count = len(self._tables.hosts)
        if self._tables.cold.ledger is None or self._tables.urls.unread is not None:
            return False
        return 4 * count > 5 * max(self._hot_max, self._left)

    @property
    def under_way(self) -> bool:
        """Whether a pass has begun."""
        return self._hand is not None

    def step(self, now: Instant) -> bool:
        """Looks at some rows. Returns whether more are left to look at before a checkpoint begins. Not while a
        checkpoint copies rows."""
        hosts = self._tables.hosts
        if self._hand is None and not self._begin(now):
            return False
        if self._tables.leaving.stalled:
            # before hosts leave: a queue row with another owner must lose no cards
            self._tables.leaving.drop(COLD_STEP_ROWS)
            return True
        first = self._hand or 0
        # After a call that added many hosts the step is longer, or a pass would never reach their number.
        added, self._made = hosts.made - self._made, hosts.made
        self._added += added
        count = min(COLD_STEP_ROWS + added * COLD_ROWS_PER_NEW_HOST, COLD_STEP_ROWS_MOST)
        most = COLD_STEP_ROWS + 3 * min(added, COLD_STEP_ROWS_MOST // 10)  # going costs more than a look
        rows = np.arange(first, min(first + count, hosts.count), dtype=np.uint32)
        empty = may_go(self._tables, rows, now)
        empty = empty[_last_requests(self._tables, empty) <= self._cutoff]
        self._put_away(empty, _no_groups(empty), now)
        if self._crowds_go or self._bar != _NO_BAR:
            some, groups = self._spared(*self._with_urls(rows, now, self._bar))
            if len(some) > most:
                some, groups = some[:most], groups[:most]
                count = int(some[-1]) + 1 - first
            self._put_away(some, groups, now)
        hosts.tidy(count)
        self._hand = first + count
        if self._hand >= hosts.count or len(hosts) <= self._kept():
            self._left = len(hosts) - self._added
            self.end_pass()
        return self._hand is not None

    def end_pass(self) -> None:
        """Ends the pass that is under way, if there is one."""
        self._hand = None

    def put_back(self, rows: Rows, now: Instant) -> None:
        """Moves hosts that were recalled for a moment back to the disk, if they may leave."""
        self._room = self._room_for_rules()
        if self._may_put_back:
            rows = np.sort(rows)
            empty = may_go(self._tables, rows, now)
            self._put_away(empty, _no_groups(empty), now)
            self._put_away(*self._spared(*self._with_urls(rows, now, _BAR_OF_ALL)), now)

    def bring(self, want: int, crawl: int | None, now: Instant, *, nothing_drawn: bool) -> bool:
        """As `FrontReturns.bring`. Hosts that returned and wait for a crowded group move to its lines."""
        came = self.front.bring(want, crawl, now, nothing_drawn=nothing_drawn)
        if self.front.came and self._turns.shared.used and self._may_put_back:
            rows = np.unique(np.concatenate(self.front.came))
            rows = may_go_with_urls(self._tables, rows[self._turns.shared.waits(rows)], now)
            self._room = self._room_for_rules()
            groups = self._lines_for(rows)
            self._put_away(rows[groups != NO_GROUP], groups[groups != NO_GROUP], now)
        return came

    def _lines_for(self, rows: Rows) -> Rows:
        """`GroupTurns.lines_for` for hosts with one queue."""
        queues = self._tables.hosts.first_queue[rows]
        classes = self._tables.urls.backlog.best(queues)
        return self._turns.shared.lines_for(rows, self._tables.queues.crawl[queues], classes)

    @property
    def _may_put_back(self) -> bool:
        """Whether hosts may leave now: no checkpoint copies rows, and no host has unread URLs."""
        tables = self._tables
        return tables.urls.unread is None and tables.hosts.reuses and not tables.leaving.stalled

    def _with_urls(self, rows: Rows, now: Instant, bar: int) -> tuple[Rows, Rows]:
        """Returns which of these ascending rows may become cold with their few queued URLs, and the group in whose line
        each will wait: NO_GROUP if it may return as soon as its crawl and class need it. bar: of these, hosts with
        better places stay. Hosts that returned and were not drawn stay, and so do hosts of several groups, and the last
        ones in memory of a group with hosts on disk."""
        rows = may_go_with_urls(self._tables, rows, now)
        queues = self._tables.hosts.first_queue[rows]
        ready, seek = (np.frombuffer(ring.standing(queues), np.bool_) for ring in self._rings)
        groups, waits = _no_groups(rows), np.zeros(len(rows), np.bool_)
        shared = self._turns.shared
        if shared.used:
            waits = shared.waits(rows)
            groups[waits] = self._lines_for(rows[waits])
        may = (ready | seek | waits) & (self._places(rows) <= bar)
        may &= ~(self.front.stay(queues) | shared.must_stay(rows, groups))
        may |= groups != NO_GROUP
        return rows[may], groups[may]

    def _spared(self, rows: Rows, groups: Rows, step: int = 1) -> tuple[Rows, Rows]:
        """Returns the hosts among these, from `_with_urls`, that may leave because enough remain ready, or need an
        address, for all workers: those with the lowest places. step: the rows are a sample, one of this number."""
        may, places = np.ones(len(rows), np.bool_), self._places(rows)
        for ring in self._rings:
            there = np.flatnonzero(np.frombuffer(ring.standing(self._tables.hosts.first_queue[rows]), np.bool_))
            spare = max(0, len(ring) - FRONT_HOSTS_LEAST) // step
            may[there[np.argsort(places[there], kind="stable")[spare:]]] = False
        return rows[may], groups[may]

    def _places(self, rows: Rows) -> _Places:
        """The place of each host in the order in which they stay: its class, and for one class its row."""
        classes = self._tables.urls.backlog.best(self._tables.hosts.first_queue[rows])
        return classes.astype(np.int64) << 32 | (_ROWS_MAX - rows.astype(np.int64))

    def _room_for_rules(self) -> int:
        """How many bytes of robots rules may move before the records in memory are written."""
        cold = self._tables.cold.ledger
        here = 0 if cold is None else cold.unfrozen_bytes + cold.frozen_bytes
        return self._tables.robots.rulebook.bytes_max - here

    def _kept(self) -> int:
        """How many hosts a pass leaves: an eighth below the limit, so that not every checkpoint needs a pass."""
        return self._hot_max - self._hot_max // 8

    def _begin(self, now: Instant) -> bool:
        """Begins a pass if too many hosts have rows. It estimates the cut-off, the time of the last request, from a
        sample."""
        hosts = self._tables.hosts
        if self._tables.cold.ledger is None or len(hosts) <= self._hot_max or self._tables.urls.unread is not None:
            return False  # the URLs of a host may be unread
        step = 1 + hosts.count // COLD_SAMPLE_ROWS
        sample = np.arange(0, hosts.count, step, dtype=np.uint32)
        asked = np.sort(_last_requests(self._tables, may_go(self._tables, sample, now)))
        wanted = (len(hosts) - self._kept()) // step
        self._cutoff = int(asked[max(0, wanted - 1)]) if wanted < len(asked) else now
        self._bar, self._crowds_go = _NO_BAR, False
        if (more := wanted - len(asked)) > 0:
            some, groups = self._with_urls(sample, now, _BAR_OF_ALL)
            some, groups = self._spared(some, groups, step)
            crowd = int(np.count_nonzero(groups))
            self._crowds_go = crowd > 0
            if (more := more - crowd) > 0:
                places = np.sort(self._places(some[groups == NO_GROUP]))
                self._bar = int(places[min(more, len(places)) - 1]) if len(places) else _NO_BAR
        if not (len(asked) or self._crowds_go) and self._bar == _NO_BAR:
            self._left = len(hosts)
            return False
        self._hand, self._made, self._added = 0, hosts.made, 0
        self._room = self._room_for_rules()
        return True

    def _put_away(self, rows: Rows, groups: Rows, now: Instant) -> None:
        """Moves those of these ascending rows that may leave. groups: as `_with_urls` returns them."""
        tables, turns = self._tables, self._turns
        every = rows
        rows = rows[turns.shared.may_leave(rows, now)]
        if turns.errands_at and len(rows):
            rows = rows[np.array([row not in turns.errands_at for row in rows.tolist()], np.bool_)]
        if len(tables.errands.called) and len(rows):
            rows = rows[np.array([not tables.errands.called.of_host(row) for row in rows.tolist()], np.bool_)]
        if tables.addresses.by_host and len(rows):
            places = [tables.addresses.by_host.get(row) for row in rows.tolist()]
            rows = rows[np.array([place is None or not place.token for place in places], np.bool_)]
        ruled = (tables.hosts.flags[rows] & np.uint16(ROBOTS)) != 0
        if ruled.any():
            # This check is last because it reserves places for the files of each host that passes.
            rows = rows[np.array([not it or self._has_room(row) for row, it in zip(rows.tolist(), ruled, strict=True)])]
        if not len(rows):
            return
        several = rows[(tables.hosts.flags[rows] & np.uint16(MANY)) != 0].tolist()
        queues = np.array([queue for row in several for queue in tables.queues_of(row)], np.uint32)
        queues = np.concatenate((tables.hosts.first_queue[rows], queues))
        groups = groups[np.searchsorted(every, rows)]
        located = np.full(len(rows), turns.shared.asks)
        located &= ~np.frombuffer(turns.seekers.standing(tables.hosts.first_queue[rows]), np.bool_)
        turns.ready.withdraw(queues)
        turns.seekers.withdraw(queues)
        turns.timetable.cancel(rows)
        turns.shared.leave(rows, groups, now)
        if groups.any():
            self.front.forget(queues)
        turns.shared.note_too_large(tables.cold.put_away(tables, rows, located, groups))

    def _has_room(self, row: int) -> bool:
        """Whether this pass may still move the robots rules of a host, and the record has room for those without a
        place in the rulebook. The rules of the first host of a pass are always moved. Reserves the places."""
        rulebook = self._tables.robots.rulebook
        size, files = cells_bytes(self._tables, row)
        if size > EXTRA_BYTES_MAX or (size > self._room and self._room < rulebook.bytes_max):
            return False
        self._room -= size
        rulebook.promise(files)
        return True


_NO_BAR = -1
_BAR_OF_ALL = 1 << 62
_ROWS_MAX = (1 << 32) - 1
_Places = np.ndarray[tuple[int], np.dtype[np.int64]]


def _no_groups(rows: Rows) -> Rows:
    return np.full(len(rows), NO_GROUP, np.uint32)


def _last_requests(tables: Tables, rows: Rows) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The end of the last request to each host, or of the delay after it."""
    found: np.ndarray[tuple[int], np.dtype[np.int64]] = np.maximum(
        tables.hosts.ended[rows], tables.hosts.rest_until[rows]
    )
    return found
