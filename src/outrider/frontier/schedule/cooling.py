"""Moves hosts to the disk when too many are in memory: the least recently visited, in bounded steps before a checkpoint
begins."""

from __future__ import annotations

import numpy as np

from outrider.clock import Instant
from outrider.frontier.schedule.host_schedule import HostSchedule
from outrider.frontier.state.cold import EXTRA_BYTES_MAX, cells_bytes, may_go
from outrider.frontier.state.hosts import MANY, ROBOTS, Rows
from outrider.frontier.state.tables import Tables
from outrider.limits import COLD_SAMPLE_ROWS, COLD_STEP_ROWS


class Cooling:
    """hot_max: how many hosts may have rows. A host that still adds to the clock of a group is kept: when it leaves,
    the delays of its groups after its last request are over, so they need no record."""

    def __init__(self, tables: Tables, turns: HostSchedule, hot_max: int) -> None:
        self._tables = tables
        self._turns = turns
        self._hot_max = hot_max
        self._hand: int | None = None  # the next row to look at; None between two passes
        self._cutoff: Instant = 0  # hosts that were visited later are kept
        self._left = 0  # how many hosts the last pass left in memory
        self._room = 0  # bytes of robots rules that this pass may still move: they stay in memory until its end

    @property
    def presses(self) -> bool:
        """Whether more than twice as many hosts are in memory as may be, and a quarter more than the last pass left
        there."""
        count = len(self._tables.hosts)
        if self._tables.cold.ledger is None:
            return False
        return count > 2 * self._hot_max and 4 * count > 5 * self._left

    def step(self, now: Instant) -> bool:
        """Looks at some rows. Returns whether more are left to look at before a checkpoint begins."""
        hosts = self._tables.hosts
        if self._hand is None and not self._begin(now):
            return False
        if self._tables.leaving.stalled:
            # before hosts leave: a queue row with another owner must lose no cards
            self._tables.leaving.drop(COLD_STEP_ROWS)
            return True
        first = self._hand or 0
        rows = np.arange(first, min(first + COLD_STEP_ROWS, hosts.count), dtype=np.uint32)
        rows = may_go(self._tables, rows, now)
        self._put_away(rows[_last_requests(self._tables, rows) <= self._cutoff], now)
        hosts.tidy(COLD_STEP_ROWS)
        self._hand = first + COLD_STEP_ROWS
        if self._hand >= hosts.count or len(hosts) <= self._kept():
            self._hand = None
            self._left = len(hosts)
        return self._hand is not None

    def put_back(self, rows: Rows, now: Instant) -> None:
        """Moves hosts that were recalled for a moment back to the disk, if they may leave."""
        self._room = self._tables.robots.rulebook.bytes_max
        if self._tables.hosts.reuses and not self._tables.leaving.stalled:
            self._put_away(may_go(self._tables, np.sort(rows), now), now)

    def _kept(self) -> int:
        """How many hosts a pass leaves: an eighth below the limit, so that not every checkpoint needs a pass."""
        return self._hot_max - self._hot_max // 8

    def _begin(self, now: Instant) -> bool:
        """Begins a pass if too many hosts have rows. It estimates the cut-off, the time of the last request, from a
        sample."""
        hosts = self._tables.hosts
        if self._tables.cold.ledger is None or len(hosts) <= self._hot_max:
            return False
        step = 1 + hosts.count // COLD_SAMPLE_ROWS
        sample = np.arange(0, hosts.count, step, dtype=np.uint32)
        asked = np.sort(_last_requests(self._tables, may_go(self._tables, sample, now)))
        if not len(asked):
            self._left = len(hosts)
            return False
        wanted = (len(hosts) - self._kept()) // step
        self._cutoff = int(asked[max(0, wanted - 1)]) if wanted < len(asked) else now
        self._hand = 0
        self._room = self._tables.robots.rulebook.bytes_max
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
        turns.ready.withdraw(np.concatenate((tables.hosts.first_queue[rows], queues)))
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


def _last_requests(tables: Tables, rows: Rows) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The end of the last request to each host, or of the delay after it."""
    found: np.ndarray[tuple[int], np.dtype[np.int64]] = np.maximum(
        tables.hosts.ended[rows], tables.hosts.rest_until[rows]
    )
    return found
