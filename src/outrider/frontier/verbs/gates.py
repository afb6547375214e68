"""Gates: hosts whose robots rules are unknown, the errand queues of hosts, and authorities whose URLs are judged
again."""

from __future__ import annotations

import heapq
from typing import TypeAlias

import numpy as np

from outrider.clock import Instant
from outrider.frontier.format.facts import Fact
from outrider.frontier.schedule.host_schedule import HostSchedule
from outrider.frontier.state.authorities import Authority, RobotsState
from outrider.frontier.state.errand import Errand, ErrandSeries
from outrider.frontier.state.hosts import NONE
from outrider.frontier.state.robots_answers import unanswered
from outrider.frontier.state.tables import Tables
from outrider.frontier.verbs.draft import Draft
from outrider.limits import DEADLINES_KEPT_MAX
from outrider.url import authority_of, host_of

Place: TypeAlias = tuple[int, int]
"""A place in a slot of the ledger: the row of a crawl, and the fingerprint of its last read URL (-1: before the
first)."""
FIRST: Place = (0, -1)


class Gates:
    """Hosts and errands that wait for robots rules. deadlines: a heap of the deadlines of open errands; again:
    authorities by name whose parked URLs are judged again, with the last place that was read in the ledger; unread:
    authorities by name whose rules must be read first; returning: hosts, by the name of their returns, whose parked
    traps are judged again, each with its slot and the last place."""

    def __init__(self, tables: Tables, turns: HostSchedule, *, errands: bool) -> None:
        self.tables, self.turns, self._errands = tables, turns, errands
        self.deadlines: list[tuple[Instant, int]] = []
        self.again: dict[str, Place] = {}
        self.unread: dict[str, Authority] = {}
        self.returning: dict[int, tuple[int, Place]] = {}

    def errands_changed(self, draft: Draft) -> None:
        """Updates gates and errand queues from the facts of a draft that name errands."""
        self._forget_deadlines()
        for row in draft.rows.get(Fact.ROBOTS, ()):
            self._robots_changed(self.tables.robots.by_name[row[1]], draft.now)
        for row in draft.rows.get(Fact.ERRAND, ()):
            self.turns.leave_line(self.tables.robots.by_name[row[1]])
        called = self.tables.errands.called
        for kind in (Fact.QUEUED_ERRAND, Fact.LEASED_ERRAND):
            for row in draft.rows.get(kind, ()):
                self.next_in_series((row[1], row[2], authority_of(row[3])))
        for errand in called.dropped:
            self.leave_line(errand)
        called.dropped.clear()

    def _robots_changed(self, authority: Authority, now: Instant) -> None:
        """Handles a fact about a robots.txt: its errand continues or ends, the gate of its host opens, and parked URLs
        are judged again."""
        self.leave_line(authority)
        if authority.token:
            return  # a caller set the rules during an open errand
        host = authority.host
        if unanswered(authority, now) and self._errands:
            # Another hop or attempt follows, or the errand was lost.
            if self.turns.gates.get(host) is authority or self.turns.is_sought(authority):
                self.line_up(authority)
        else:
            if authority.state == RobotsState.REFUSED and self._errands:
                self.line_up(authority)  # requested again daily, while the crawl continues
            if self.turns.gates.get(host) is authority:
                self.turns.open_gate(host)
        self.judge_later(authority)
        self.tables.changed.append(np.array([host], np.uint32))

    def _forget_deadlines(self) -> None:
        """Drops the deadlines of errands that ended; with long leases they would pile up for a day."""
        errands = self.tables.errands.open
        if len(self.deadlines) > 2 * len(errands) + DEADLINES_KEPT_MAX:
            self.deadlines = [(errand.deadline, token) for token, errand in errands.items()]
            heapq.heapify(self.deadlines)

    def shut(self, authority: Authority, *, unread: bool) -> None:
        """Gates the host of an authority until its rules are known. unread: the rules are stored, but too long to be
        read in this call."""
        self.turns.gate(authority)
        if unread:
            self.unread[authority.name] = authority
        else:
            self.line_up(authority)
        self.tables.changed.append(np.array([authority.host], np.uint32))

    def next_in_series(self, series: ErrandSeries) -> None:
        """Queues the next errand of a series at its host."""
        called = self.tables.errands.called
        for errand in called.lined_up(series):
            self.leave_line(errand)
        following = called.next_of(series)
        if following is not None:
            self.line_up(following)

    def line_up(self, errand: Errand) -> None:
        """Queues an errand at the host that gets its request."""
        if errand.wanted != NONE or errand.token:
            return
        host = self.tables.host_row(self.tables.home_of(host_of(errand.url)))
        if host == NONE:
            return
        self.turns.line_up(errand, host)
        self.tables.changed.append(np.array([host], np.uint32))

    def leave_line(self, errand: Errand) -> None:
        """Removes an errand from its errand queue."""
        host = self.turns.leave_line(errand)
        if host != NONE:
            self.tables.changed.append(np.array([host], np.uint32))

    def judge_later(self, authority: Authority) -> None:
        """Schedules parked URLs of an authority to be judged again, from the first URL on, if its rules changed."""
        if authority.again and authority.state in (RobotsState.RULES, RobotsState.ALLOW):
            self.again[authority.name] = FIRST
        else:
            self.again.pop(authority.name, None)
