"""The life of a frontier: its opening after a recovery, a clock that stepped back, its close."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from outrider.clock import Instant, instant
from outrider.frontier.format.facts import Fact
from outrider.frontier.policy.revisit import codes_of
from outrider.frontier.state.authorities import Authority, RobotsState
from outrider.frontier.state.robots_answers import unanswered
from outrider.frontier.state.url_table import DONE, LEASED, PARKED, QUEUED, WAITING, KnownRows, Reason, states_of
from outrider.frontier.verbs.deciding import Core, Part
from outrider.frontier.verbs.draft import Draft
from outrider.frontier.verbs.robots_files import RobotsFiles
from outrider.frontier.verbs.unparking import Unparking
from outrider.kernels.card_layout import HAS_CONTENT, NOT_MODIFIED, SCHEDULE_SHIFT, Heads
from outrider.limits import MICROSECONDS, OWN_SLOT, RESTS_PER_FRAME_MAX, WAKES_PER_CALL_MAX

_Places = npt.NDArray[np.intp]
_Instants = npt.NDArray[np.int64]
_Opening = tuple[int, Instant, Instant, str, Instant]


class Lifecycle(Part):
    """The part of the machine that opens and closes a frontier."""

    def __init__(self, core: Core, robots: RobotsFiles, returning: Unparking) -> None:
        super().__init__(core)
        self._robots, self._returning = robots, returning

    def settle_all(self, now: Instant) -> None:
        """Builds timetable and rings from the tables, after recovery."""
        tables = self.tables
        tables.urls.wake_all(now)
        self._core.woken = now
        tables.leaving.drop(len(tables.leaving.stalled))
        tables.leaving.find()
        self._core.let_queues_go(len(tables.leaving.waiting))
        tables.forget_changed()
        for token, errand in tables.errands.open.items():
            heapq.heappush(self._gates.deadlines, (errand.deadline, token))
        if tables.urls.unread is not None and self._core.errands_mode:
            asked = [one.slot for one in tables.robots.by_name.values() if unanswered(one, now) and _was_asked(one)]
            tables.urls.unread.read(np.array(asked, np.uint16))
        for authority in list(tables.robots.by_name.values()):
            if authority.state == RobotsState.REFUSED and self._core.errands_mode:
                self._gates.line_up(authority)
            elif self._core.errands_mode and unanswered(authority, now):
                self._gate_again(authority)
            self._gates.judge_later(authority)
        self._returning.resume()
        for series in tables.errands.called.all_series():
            self._gates.next_in_series(series)
        tables.errands.called.dropped.clear()
        tables.forget_changed()
        self.turns.shared.rest_all(tables.cold.floor_end())
        self.turns.shared.meet()  # all hosts join their groups before the first host is offered
        for first in range(0, tables.hosts.count, WAKES_PER_CALL_MAX):
            self.turns.touch(
                (np.arange(first, min(first + WAKES_PER_CALL_MAX, tables.hosts.count), dtype=np.uint32),), now
            )
        self._core.now = max(self._core.now, now)

    def _gate_again(self, authority: Authority) -> None:
        """Gates the hosts whose robots.txt was requested, or was needed, when the store was closed."""
        tables = self.tables
        queues = np.array(list(tables.queues_of(authority.host)), np.uint32)
        if (
            _was_asked(authority)
            and authority.host not in self.turns.gates
            and tables.urls.backlog.waiting(queues).any()
        ):
            self._gates.shut(authority, unread=False)
        elif self.turns.is_sought(authority):
            self._gates.line_up(authority)

    def open_facts(self, opening: _Opening, now: Instant, passed: Instant | None, *, takeover: bool = False) -> int:
        """Logs a new opening: leases of dead processes end and their hosts rest one whole delay. Resting hosts continue
        to rest, and leases of named workers live for the time that they had left.

        passed: real time in microseconds since the last logged instant if it is known (same boot, or the caller's
        clock), else None. takeover: the last owner was another machine, so requests of its leases may run until their
        deadlines. Returns how many leases ended.
        """
        tables = self.tables
        last = tables.now
        seen = last if takeover else None
        shared = self.turns.shared
        # How much more the clock has moved than the time that passed.
        jump = max(0, now - last - (passed or 0))
        if shared.used:
            # The clock of a group is computed from its hosts in memory. A host does not affect it when it becomes cold,
            # but the group may be newer than that, or its gap longer now.
            tables.recall_busy(last, shared.gap_max)
        count = tables.hosts.count
        rests = tables.hosts.rest_until[:count] > last
        if shared.used and jump:
            rests |= tables.hosts.ended[:count] > max(0, last - shared.gap_max)
        resting, until, since = self._rested_on(np.flatnonzero(rests), now, passed)
        dead: list[int] = np.frombuffer(tables.urls.leases.of_holder(0), np.uint64).tolist()
        errands = [errand for errand in tables.errands.open.values() if errand.holder == 0]
        ended = len(dead) + len(errands)
        moved = self._moved_deadlines(now, passed)
        while len(moved[1]) > RESTS_PER_FRAME_MAX:
            # As with the rests below, dated at the last logged instant: after a crash in between, deadlines are late,
            # never early.
            draft = self._core.draft(last)
            draft.add_columns(Fact.EXTEND, [column[:RESTS_PER_FRAME_MAX] for column in moved])
            moved = [column[RESTS_PER_FRAME_MAX:] for column in moved]
            self._core.commit(draft, reserve=True)
        while len(resting) + len(dead) > RESTS_PER_FRAME_MAX:
            # Logged before the opening, dated at the last logged instant: after a crash in between, hosts rest longer.
            draft = self._core.draft(last)
            some = slice(RESTS_PER_FRAME_MAX)
            self._rest_on(draft, resting[some], until[some], since[some], dead)
            if not len(resting):
                self._core.lose(draft, dead[:RESTS_PER_FRAME_MAX], now, died=True, seen=seen)
                del dead[:RESTS_PER_FRAME_MAX]
            rest = slice(RESTS_PER_FRAME_MAX, None)
            resting, until, since = resting[rest], until[rest], since[rest]
            self._core.commit(draft, reserve=True)
        draft = self._core.draft(now)
        draft.add(Fact.OPENING, (OWN_SLOT, *opening))
        if not tables.crawls.next_row:
            draft.add(Fact.CRAWL, (OWN_SLOT, 0, "default", 1))
        draft.add(Fact.HOLDER, (OWN_SLOT, 0, "", opening[0]))
        floor, delay = tables.cold.floor
        if floor and jump:
            draft.add(Fact.COLD_REST, (OWN_SLOT, floor + jump, delay))
        self._rest_on(draft, resting, until, since, dead)
        self._core.lose(draft, dead, now, died=True, seen=seen)
        for errand in errands:
            self._core.lose_errand(draft, errand, now, died=True, seen=seen)
        if len(moved[1]):
            draft.add_columns(Fact.EXTEND, moved)
        for errand in tables.errands.open.values():
            old, new = errand.deadline, int(_lived_on(errand.deadline, last, now, passed))
            if errand.holder and old > last and new != max(old, now):
                draft.add(*errand.opening(errand.token, new, errand.holder))
        self._core.commit(draft, reserve=True)
        self._revive(now)
        return ended

    def plan_done_pages(self, now: Instant) -> None:
        """Plans visits of pages that were fetched without a revisit rule, if there is one now."""
        revisits, urls = self._core.revisits, self.tables.urls
        if revisits.plan is None or not urls.counts[DONE]:
            return
        if urls.unread is not None:
            urls.unread.read_all()
        parts = [heads[self._may_be_planned(heads)] for heads in urls.ledger.scan_heads()]
        names = [np.concatenate([part[name] for part in parts]) for name in ("crawl", "slot", "fingerprint")]
        count = len(names[0])
        for first in range(0, count, RESTS_PER_FRAME_MAX):
            _, cards = urls.find(*(column[first : first + RESTS_PER_FRAME_MAX] for column in names))
            cards = cards.filter(self._may_be_planned(cards.heads))
            if not len(cards):
                continue
            heads = cards.changed()
            due, pauses = revisits.planned_later(cards, count, now)
            heads["state"], heads["reason"], heads["due"] = WAITING, Reason.PLANNED, due
            heads["flags"] = heads["flags"] & HAS_CONTENT | codes_of(pauses) << SCHEDULE_SHIFT
            draft = self._core.draft(now)
            draft.heads(cards.with_heads(heads), np.zeros(len(cards), np.uint64), states_of(DONE, len(cards)))
            self._core.commit(draft, reserve=True)

    def _may_be_planned(self, heads: Heads) -> npt.NDArray[np.bool_]:
        """Which URLs are pages that a revisit rule visits again."""
        found: npt.NDArray[np.bool_] = (heads["state"] == DONE) & (heads["fetched"] != 0)
        found &= (heads["status"] // 100 == 2) | (heads["status"] == NOT_MODIFIED)
        own = self.tables.crawls.of_callers(heads["crawl"])
        return found if own is None else found & ~own

    def _moved_deadlines(self, now: Instant, passed: Instant | None) -> list[npt.NDArray[Any]]:
        """Returns the columns of EXTEND for leases of named workers. Deadlines are instants of the clock that dated the
        log, and that clock may have jumped between two openings."""
        tables = self.tables
        tokens = np.frombuffer(tables.urls.leases.tokens(), np.uint64)
        leases = self.tables.urls.by_token(tokens, bodies=False)
        last, old = tables.now, leases.deadlines
        new = _lived_on(old, last, now, passed)
        rows = np.flatnonzero((leases.holders != 0) & (old > last) & (new != np.maximum(old, now)))
        return [np.ascontiguousarray(leases.cards.heads["slot"][rows]), tokens[rows], new[rows]]

    def _rested_on(self, hosts: _Places, now: Instant, passed: Instant | None) -> tuple[_Places, _Instants, _Instants]:
        """Lets hosts rest from the opening on for the time that was left at the last logged instant. Returns the
        hosts whose clocks change, the ends of their rests, and the ends of their last visits."""
        columns, last = self.tables.hosts, self.tables.now
        old, ended = columns.rest_until[hosts], columns.ended[hosts]
        left = old - last
        if passed is not None:
            until = now + np.maximum(0, left - passed)
        else:
            # Another boot: the wall clock may have jumped. In doubt hosts rest one whole delay, but never longer than
            # their rest had left.
            delays = np.ceil(np.maximum(columns.gap[hosts], self.settings.delay) * MICROSECONDS).astype(np.int64)
            until = np.maximum(old, now + np.minimum(left, delays))
        since = ended
        if self.turns.shared.used:
            # The gap of its group counts from the end of the last visit. Unless it is over, this instant moves along
            # with the clock, which is corrected by some microseconds all the time.
            gap_max = self.turns.shared.gap_max
            late = (ended > 0) & (last - ended + (passed or 0) < gap_max)
            since = ended + np.where(late, max(0, now - last - (passed or 0)), 0)
        changed = (until != np.maximum(old, now)) | (since != ended)
        return hosts[changed], until[changed], since[changed]

    def _rest_on(self, draft: Draft, hosts: _Places, until: _Instants, since: _Instants, dead: Sequence[int]) -> None:
        """Adds the clocks that `_rested_on` returned to a draft. dead: leases that may end in the same draft."""
        leased = self.tables.urls.by_token(np.array(dead, np.uint64), bodies=False).queues
        alone = np.isin(hosts, self.tables.queues.host[leased])
        for row in np.flatnonzero(alone).tolist():
            clock = draft.clock(int(hosts[row]))
            clock.rest_until, clock.ended = int(until[row]), int(since[row])
        if alone.any():
            hosts, until, since = hosts[~alone], until[~alone], since[~alone]
        if len(hosts):
            columns = self.tables.hosts.durable(hosts, ended=since, rest_until=until)
            draft.add_columns(Fact.HOST_CELLS, columns, KnownRows.of_rows(hosts.astype(np.uint32)))

    def _revive(self, now: Instant) -> None:
        """Queues URLs again that were parked for a budget that has grown since."""
        tables = self.tables
        if not tables.urls.counts[PARKED]:
            return
        queues = np.arange(tables.queues.count, dtype=np.uint32)
        parked = queues[tables.urls.spent.waiting(queues) > 0]
        over = self._core.budgets.over(tables.queues.host[parked])
        for queue in (parked if over is None else parked[~over]).tolist():
            while len(cards := tables.urls.spent.drain(queue, WAKES_PER_CALL_MAX)):
                draft = self._core.draft(now)
                cards = self._robots.living(cards)
                self._robots.requeue(draft, cards, PARKED, now)
                self._core.commit(draft, reserve=True)

    def rest_everybody(self, now: Instant) -> None:
        """Lets every visited host rest one whole delay from now on, after the clock stepped back."""
        now = self._core.advance(now)
        hosts = self.tables.hosts
        if len(self.tables.cold):
            draft = self._core.draft(now)
            draft.add(Fact.COLD_REST, (OWN_SLOT, now, self.settings.delay))
            self._core.commit(draft, reserve=True)
            self.turns.shared.rest_all(self.tables.cold.floor_end())
        # A rest without a visit counts, too: it is from a lost lease, whose holder may have fetched.
        visited = np.flatnonzero((hosts.ended[: hosts.count] > 0) | (hosts.rest_until[: hosts.count] > 0)).tolist()
        for first in range(0, len(visited), RESTS_PER_FRAME_MAX):
            draft = self._core.draft(now)
            for host in visited[first : first + RESTS_PER_FRAME_MAX]:
                clock = draft.clock(host)
                clock.rest_at_least(now + instant(max(clock.gap, self.settings.delay)))
            self._core.commit(draft, reserve=True)

    def note_closing(self, state: str, now: Instant) -> None:
        """Logs a clean stop. Leases of this process end, which does not count as a loss."""
        now = self._core.advance(now)
        draft = self._core.draft(now)
        tables = self.tables
        for errand in list(tables.errands.open.values()):
            if errand.holder == 0:
                self._rests.whole_of_host(draft, errand.busy, now)
                draft.add(*errand.ending(0))
        tokens = np.frombuffer(tables.urls.leases.of_holder(0), np.uint64)
        if len(tokens):
            leases = self.tables.urls.by_token(tokens)
            for queue in leases.queues.tolist():
                self._rests.whole(draft, int(tables.queues.host[queue]), self._rests.floor_of_page(queue), now)
            heads = leases.cards.changed()
            heads["state"] = QUEUED
            tables.urls.ordered(heads, tokens, now)
            draft.heads(leases.cards.with_heads(heads), tokens, np.full(len(tokens), LEASED, np.uint8))
        draft.add(Fact.CLOSING, (OWN_SLOT, tables.registry.opening[0], state))
        self._core.commit(draft, reserve=True)


def _was_asked(authority: Authority) -> bool:
    """Whether the robots.txt of an authority was requested, or was needed, when the store was closed."""
    return bool(authority.state == RobotsState.RETRYING or authority.token or authority.hops or authority.next_at)


def _lived_on(deadlines: npt.ArrayLike, last: Instant, now: Instant, passed: Instant | None) -> npt.NDArray[np.int64]:
    """Returns deadlines after an opening at `now`, above `last`: the time left at the last logged instant, less the
    time that `passed` since. If that is unknown, all of it is left."""
    left = np.asarray(deadlines, np.int64) - last
    return now + np.maximum(0, left - (passed or 0))
