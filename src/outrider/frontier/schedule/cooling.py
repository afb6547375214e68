"""Moves hosts to the disk when too many are in memory, in bounded steps before a checkpoint begins: first hosts without
queued URLs, the least recently visited ones. If they are not enough, hosts with few queued URLs follow. These are
ready, or need an address if errands resolve addresses; the lowest classes go first, and of one class the youngest
rows.
"""

from __future__ import annotations

import numpy as np

from outrider.clock import Instant
from outrider.frontier.schedule.front_returns import FrontReturns
from outrider.frontier.schedule.host_schedule import HostSchedule
from outrider.frontier.state.cold import EXTRA_BYTES_MAX, cells_bytes, may_go, may_go_with_urls
from outrider.frontier.state.hosts import MANY, ROBOTS, Rows
from outrider.frontier.state.tables import Tables
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
        self._hand: int | None = None  # the next row to look at; None between two passes
        self._cutoff: Instant = 0  # hosts that were visited later are kept
        self._bar = _NO_BAR  # hosts with queued URLs of better places are kept
        # The hosts of these rings may go with their URLs. A host with an address may have a group, and stays.
        self._ring = turns.seekers if turns.shared.asks else turns.ready
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
        self._put_away(empty[_last_requests(self._tables, empty) <= self._cutoff], now)
        if self._bar != _NO_BAR:
            ready = self._may_go_ready(rows, now)
            ready = ready[self._places(ready) <= self._bar][: self._spare()]
            if len(ready) > most:
                ready = ready[:most]
                count = int(ready[-1]) + 1 - first
            self._put_away(ready, now)
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
        readable = self._tables.urls.unread is None  # else the URLs of a host may be unread
        if readable and self._tables.hosts.reuses and not self._tables.leaving.stalled:
            rows = np.sort(rows)
            self._put_away(may_go(self._tables, rows, now), now)
            self._put_away(self._may_go_ready(rows, now)[: self._spare()], now)

    def _may_go_ready(self, rows: Rows, now: Instant) -> Rows:
        """Returns the rows of ready hosts with few queued URLs, which may go cold with them. If errands resolve
        addresses, these are hosts that still need one. A host of a group stays: without its row it could not wait for
        the group's clock."""
        if self._spare() <= 0:
            return rows[:0]
        rows = may_go_with_urls(self._tables, rows, now)
        queues = self._tables.hosts.first_queue[rows]
        may = np.frombuffer(self._ring.standing(queues), np.bool_) & ~self.front.stay(queues)
        return rows[may]

    def _spare(self) -> int:
        """How many of the hosts that are ready, or need an address, may leave the memory."""
        return max(0, len(self._ring) - FRONT_HOSTS_LEAST)

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
        self._bar = _NO_BAR
        if (more := min(wanted - len(asked), self._spare() // step)) > 0:
            places = np.sort(self._places(self._may_go_ready(sample, now)))
            self._bar = int(places[min(more, len(places)) - 1]) if len(places) else _NO_BAR
        if not len(asked) and self._bar == _NO_BAR:
            self._left = len(hosts)
            return False
        self._hand, self._made, self._added = 0, hosts.made, 0
        self._room = self._room_for_rules()
        return True

    def _put_away(self, rows: Rows, now: Instant) -> None:
        tables, turns = self._tables, self._turns
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
        turns.ready.withdraw(queues)
        turns.seekers.withdraw(queues)
        turns.timetable.cancel(rows)
        turns.shared.leave(rows, now)
        tables.cold.put_away(tables, rows)

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
_ROWS_MAX = (1 << 32) - 1
_Places = np.ndarray[tuple[int], np.dtype[np.int64]]


def _last_requests(tables: Tables, rows: Rows) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The end of the last request to each host, or of the delay after it."""
    found: np.ndarray[tuple[int], np.dtype[np.int64]] = np.maximum(
        tables.hosts.ended[rows], tables.hosts.rest_until[rows]
    )
    return found
