"""A census: the state of every host, and counts over all hosts, in bounded steps. Other calls run between the steps.

Each step reads some thousand rows. A store with fewer hosts is counted in one step, at one instant. A change between
two steps counts if its row was not read yet.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from outrider.clock import Instant, instant, seconds
from outrider.frontier.policy import lives
from outrider.frontier.policy.politeness import GapReason
from outrider.frontier.schedule.group_turns import GroupTurns
from outrider.frontier.schedule.host_schedule import HostSchedule
from outrider.frontier.state.authorities import Authority, RobotsState
from outrider.frontier.state.crawls import CrawlState
from outrider.frontier.state.errand import Errand
from outrider.frontier.state.hosts import GATED, Rows
from outrider.frontier.state.tables import Tables
from outrider.frontier.state.url_table import QUEUED
from outrider.frontier.verbs.closed_hours import ClosedHours
from outrider.journey import HostWait, Waits
from outrider.limits import (
    CENSUS_ERRANDS_PER_STEP,
    CENSUS_FILES_PER_STEP,
    CENSUS_ROWS_PER_STEP,
    MICROSECONDS,
    WAITS_NAMED_MAX,
)

EMPTY, READY, RESTING, BLOCKED = range(4)
HOST_STATES = tuple(lives.HOST.states)

Steps = Generator[None, None, None]
_Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class DueErrands:
    """Hosts with queued errands that operators allow, in the order of rows, and the instant from which the first errand
    of each may be leased."""

    hosts: npt.NDArray[np.int64]
    at: npt.NDArray[np.int64]

    @classmethod
    def of(cls, found: Mapping[int, Instant]) -> DueErrands:
        """Makes it from a mapping of rows to instants."""
        hosts = np.fromiter(found, np.int64, len(found))
        order = np.argsort(hosts)
        return cls(hosts[order], np.fromiter(found.values(), np.int64, len(found))[order])

    def at_of(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Returns the instant of each of these hosts, or -1."""
        places = self.hosts.searchsorted(rows)
        here = self.hosts.take(places, mode="clip") == rows
        return np.where(here, self.at.take(places, mode="clip"), -1)


NOBODY = DueErrands(np.zeros(0, np.int64), np.zeros(0, np.int64))


class Holdings:
    """The queues of some hosts, summed. pending: whether a host has queued URLs; going: whether it has them in a queue
    that no operator paused or blocked; may: whether the rules of such a queue allow a request; urls: the number of
    queued and waiting URLs.

    hosts: the rows of the hosts, sorted; a number: all rows below it.
    """

    def __init__(self, hosts: int | npt.NDArray[np.int64]) -> None:
        self.count = hosts if isinstance(hosts, int) else len(hosts)
        self._hosts = None if isinstance(hosts, int) else hosts
        self.pending, self.going, self.may = (np.zeros(self.count, np.bool_) for _ in range(3))
        self.urls = np.zeros(self.count, np.int64)

    def _places(self, hosts: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], _Bools]:
        """Returns the place of each host here, and which of them have one."""
        if self._hosts is None:
            return hosts, hosts < self.count
        places = self._hosts.searchsorted(hosts)
        return places, self._hosts.take(places, mode="clip") == hosts

    def take(self, tables: Tables, turns: HostSchedule, rows: Rows, now: Instant) -> None:
        """Adds some queues to the sums."""
        queues = tables.queues
        places, known = self._places(queues.host[rows].astype(np.int64))
        if not known.all():
            rows, places = np.ascontiguousarray(rows[known]), places[known]
        held = tables.urls.backlog.waiting(rows)
        np.add.at(self.urls, places, held.astype(np.int64) + queues.waiting[rows])
        some = np.flatnonzero(held)
        if not len(some):
            return
        rows, places = np.ascontiguousarray(rows[some]), places[some]
        free, held_back, capacity = turns.judged(rows, now)
        busy = tables.hosts.in_flight[queues.host[rows]]
        self.pending[places] = True
        self.going[places[~held_back]] = True
        self.may[places[free & (busy < capacity)]] = True

    def states(
        self, tables: Tables, own: slice, now: Instant, asked: DueErrands, shared: GroupTurns, seeking: _Bools
    ) -> npt.NDArray[np.uint8]:
        """Returns the state of these hosts, by their places here.

        ready: a page or an errand can be leased now; resting: it rests, has a request open, or waits for a turn of its
        groups or its key; blocked: it is in back-off, or operators paused or blocked all its queues with URLs;
        empty: it has no URLs. seeking: the hosts that need an address first.
        """
        hosts, rows = tables.hosts, own if self._hosts is None else self._hosts[own]
        pending, going, may = self.pending[own], self.going[own], self.may[own].copy()
        busy, until = hosts.in_flight[rows].astype(np.int64), hosts.rest_until[rows].copy()
        gated = (hosts.flags[rows] & np.uint16(GATED)) != 0
        may &= ~gated
        wanted = np.zeros(len(may), np.bool_)
        if len(asked.hosts):
            all_rows = np.arange(own.start, own.stop) if isinstance(rows, slice) else rows
            at = asked.at_of(all_rows)
            wanted = at >= 0
            may |= wanted & (at <= now) & (busy == 0)
            later = wanted & (gated | ~pending)
            until[later] = np.maximum(until[later], at[later])
        if shared.used:
            all_rows = np.arange(own.start, own.stop) if isinstance(rows, slice) else rows
            may &= ~(shared.waits(all_rows.astype(np.uint32)) | seeking)
        states = np.full(len(may), RESTING, np.uint8)
        states[may & (until <= now)] = READY
        states[(until > now) & (hosts.back_off[rows] > 0)] = BLOCKED
        states[pending & ~going & ~wanted & (busy == 0)] = BLOCKED
        states[~(pending | wanted | (busy > 0))] = EMPTY
        return states


class Census:
    """Counts over all hosts. hosts: by state; leased: resting hosts with an open request; pages: hosts that are ready
    for a page; errands: queued errands that are awaited; in_flight: open requests; busiest: the most at one host.
    tail: the host that needs the longest time for its URLs at its gap and in its hours, their number, and the seconds;
    None: no URLs."""

    def __init__(self) -> None:
        self.hosts = dict.fromkeys(HOST_STATES, 0)
        self.leased = self.pages = self.errands = self.busiest = 0
        self.waits_for_group = self.waits_for_address = 0
        self.tail: tuple[str, int, float] | None = None
        self.failing: list[Authority] = []
        """Some authorities whose last robots.txt request failed, the earliest retry first."""
        self.failed = 0
        """The number of such authorities."""
        self.largest: list[tuple[int, str]] = []
        """Up to ten hosts with the most queued and waiting URLs, the most first."""

    def take(self, tables: Tables, turns: HostSchedule, now: Instant, closed: ClosedHours, delay: float) -> Steps:
        """Counts all hosts, and yields between the steps."""
        look = yield from host_census(tables, turns, now, self)
        for first, end in pieces(look.holdings.count):
            if first:
                yield
            if (end := min(end, tables.hosts.count)) > first:  # hosts may leave memory between two steps
                self._count(tables, look, first, end, now, turns.shared)
                self._note_longest(tables, look, first, end, now, closed, delay)
        self.waits_for_group = turns.shared.waiting
        self.waits_for_address = len(turns.shared.seeking)
        self._count_cold(tables, turns.shared)

    def _count_cold(self, tables: Tables, shared: GroupTurns) -> None:
        """Counts the cold hosts. If errands resolve addresses, those with URLs that had no known address need one. A
        few rest since the clock was set back, and count as ready."""
        cold = cold_with_urls(tables, seeks=shared.asks)
        self.hosts["empty"] += len(tables.cold) - sum(cold)
        self.hosts["blocked"] += cold.blocked
        self.hosts["resting"] += cold.seeking + cold.at_groups
        self.waits_for_address += cold.seeking
        self.waits_for_group += cold.at_groups
        self.hosts["ready"] += cold.ready
        self.pages += cold.ready

    def note_failing(self, errands: Iterable[Errand]) -> None:
        """Counts the robots.txt files among some errands whose last request failed."""
        some = [one for one in errands if isinstance(one, Authority) and one.state in _FAILING]
        if some:
            self.failed += len(some)
            self.failing = sorted([*self.failing, *some], key=lambda one: (one.next_at, one.name))[:_FAILING_NAMED]

    def _count(self, tables: Tables, look: HostCensus, first: int, end: int, now: Instant, shared: GroupTurns) -> None:
        hosts = tables.hosts
        there, in_flight = hosts.there[first:end], hosts.in_flight[first:end]
        states = look.states(tables, first, end, now, shared)
        for state, name in enumerate(HOST_STATES):
            self.hosts[name] += int(np.count_nonzero((states == state) & there))
        self.leased += int(np.count_nonzero((states == RESTING) & (in_flight > 0)))
        self.busiest = max(self.busiest, int(in_flight.max()))
        if len(look.asked.hosts):
            states = look.states(tables, first, end, now, shared, errands=False)
        self.pages += int(np.count_nonzero(states == READY))

    def _note_longest(
        self, tables: Tables, look: HostCensus, first: int, end: int, now: Instant, closed: ClosedHours, delay: float
    ) -> None:
        """Notes the hosts of a range that need the longest time, or have the most URLs."""
        hosts, urls = tables.hosts, look.holdings.urls[first:end]
        gaps = np.maximum(hosts.gap[first:end], delay)
        length = (urls * gaps).astype(np.float64, copy=False)
        closed.add_to(length, gaps, first, now)
        worst = int(np.argmax(length))
        if urls[worst] and (self.tail is None or length[worst] > self.tail[2]):
            self.tail = (hosts.name(first + worst), int(urls[worst]), float(length[worst]))
        least = self.largest[-1][0] if len(self.largest) == _LARGEST else 0
        more = np.flatnonzero(urls > least)
        more = more[np.argsort(-urls[more], kind="stable")[:_LARGEST]]
        some = [(int(urls[row]), hosts.name(first + row)) for row in more.tolist()]
        self.largest = sorted([*self.largest, *some], key=lambda one: -one[0])[:_LARGEST]


class ColdWithUrls(NamedTuple):
    """How many cold hosts have queued URLs: of crawls that run, those that need an address, those in lines of groups,
    and the remaining ones; and those of paused crawls."""

    seeking: int
    at_groups: int
    ready: int
    blocked: int


def cold_with_urls(tables: Tables, *, seeks: bool) -> ColdWithUrls:
    """Counts the cold hosts with queued URLs. seeks: whether errands resolve addresses."""
    seeking = at_groups = ready = blocked = 0
    for crawl, hosts, located in tables.cold.with_cards():
        if tables.crawls.states[crawl] != CrawlState.RUNNING:
            blocked += hosts
            continue
        needs, waits = hosts - located if seeks else 0, tables.cold.front.at_groups[crawl]
        seeking += needs
        at_groups += waits
        ready += hosts - needs - waits
    return ColdWithUrls(seeking, at_groups, ready, blocked)


_LARGEST = 10
_FAILING = (RobotsState.RETRYING, RobotsState.REFUSED)
_FAILING_NAMED = 3


@dataclass(frozen=True, slots=True)
class HostCensus:
    """Queues summed by host, and the hosts with queued errands or without a needed address."""

    holdings: Holdings
    asked: DueErrands
    seeking: _Bools

    def states(
        self, tables: Tables, first: int, end: int, now: Instant, shared: GroupTurns, *, errands: bool = True
    ) -> npt.NDArray[np.uint8]:
        """Returns the state of the hosts in a range of rows. errands: whether a leasable errand counts."""
        asked = self.asked if errands else NOBODY
        return self.holdings.states(tables, slice(first, end), now, asked, shared, self.seeking[first:end])


def host_census(
    tables: Tables, turns: HostSchedule, now: Instant, census: Census | None = None
) -> Generator[None, None, HostCensus]:
    """Returns all queues summed by host, for a census of all hosts. It yields between its steps. census: gets the
    number of awaited errands."""
    found: dict[int, Instant] = {}
    hosts = list(turns.errands_at)
    for first in range(0, len(hosts), CENSUS_ERRANDS_PER_STEP):
        if first:
            yield
        some = hosts[first : first + CENSUS_ERRANDS_PER_STEP]
        if census is not None:
            errands = [errand for host in some for errand in turns.errands_at.get(host, ())]
            census.errands += sum(turns.is_awaited(errand) for errand in errands)
            census.note_failing(errands)
        found |= turns.asking(some)
    holdings = Holdings(tables.hosts.count)
    seeking = np.zeros(holdings.count, np.bool_)
    seekers = list(turns.shared.seeking)
    for first, end in pieces(len(seekers)):
        if first:
            yield
        rows = np.array(seekers[first:end], np.int64)
        seeking[rows[rows < holdings.count]] = True
    for first, end in pieces(tables.queues.count):
        if first:
            yield
        if (end := min(end, tables.queues.count)) > first:
            holdings.take(tables, turns, np.arange(first, end, dtype=np.uint32), now)
    return HostCensus(holdings, DueErrands.of(found), seeking)


def pieces(count: int) -> list[tuple[int, int]]:
    """Yields ranges of rows, one for each step."""
    firsts = range(0, count, CENSUS_ROWS_PER_STEP)
    return [(first, min(first + CENSUS_ROWS_PER_STEP, count)) for first in firsts]


def rows_in(state: int, tables: Tables, turns: HostSchedule, now: Instant) -> Generator[None, None, Rows]:
    """Returns the rows of the hosts in memory that are in a state. It yields between its steps."""
    look = yield from host_census(tables, turns, now)
    rows = [np.zeros(0, np.uint32)]
    for first, end in pieces(look.holdings.count):
        if first:
            yield
        if (end := min(end, tables.hosts.count)) > first:
            states = look.states(tables, first, end, now, turns.shared)
            here = (states == state) & tables.hosts.there[first:end]
            rows.append((np.flatnonzero(here) + first).astype(np.uint32))
    return np.concatenate(rows)


@dataclass(frozen=True, slots=True)
class ScheduleCounts:
    """Counts of hosts with URLs, from the schedule without reading each host: ready, resting (by their own clocks, or
    for a turn of their groups), gated (waiting for their robots.txt), paused. queued: URLs. outage: our own network
    is down."""

    ready: int = 0
    resting: int = 0
    gated: int = 0
    paused: int = 0
    queued: int = 0
    outage: bool = False


def schedule_counts(tables: Tables, turns: HostSchedule, now: Instant, paused_until: Instant) -> ScheduleCounts:
    """Returns the counts of now. It reads at most a few thousand gates and paused queues and scales the result up."""
    resting, gated = len(turns.timetable), 0
    if turns.gates:
        some = list(islice(turns.gates.items(), CENSUS_ERRANDS_PER_STEP))
        rows = np.fromiter((host for host, _ in some), np.uint32, len(some))
        booked = np.frombuffer(turns.timetable.until(rows), np.int64) >= 0
        elsewhere = np.fromiter((not one.token and one.wanted != host for host, one in some), np.bool_, len(some))
        gated = (int(np.count_nonzero(booked | elsewhere)) * len(turns.gates)) // len(some)
        resting -= (int(np.count_nonzero(booked)) * len(turns.gates)) // len(some)
    cold = cold_with_urls(tables, seeks=turns.shared.asks)
    return ScheduleCounts(
        ready=len(turns.ready) + len(turns.seekers) + cold.seeking + cold.ready,
        resting=max(0, resting) + turns.shared.waiting + cold.at_groups,
        gated=gated,
        paused=_paused_queues(tables, turns, now),
        queued=tables.urls.counts[QUEUED],
        outage=paused_until > now,
    )


def _paused_queues(tables: Tables, turns: HostSchedule, now: Instant) -> int:
    """Returns how many of the first queues with URLs are paused or blocked, by themselves or with their crawls."""
    queues = tables.queues
    if any(tables.crawls.states[row] == CrawlState.PAUSED for row in tables.crawls.rows.values()):
        rows = np.arange(min(queues.count, CENSUS_ROWS_PER_STEP), dtype=np.uint32)
    else:
        rows = np.fromiter(islice(queues.rules, CENSUS_ERRANDS_PER_STEP), np.uint32)
    rows = rows[tables.urls.backlog.waiting(rows) > 0] if len(rows) else rows
    return int(np.count_nonzero(turns.judged(rows, now)[1])) if len(rows) else 0


@dataclass(slots=True)
class RobotsCounts:
    """by_status: the number of robots.txt files in memory by status, 0 for no status; age_p95: the age in seconds
    that 95 of 100 copies in force do not exceed, None without copies."""

    by_status: dict[int, int] = field(default_factory=dict)
    age_p95: float | None = None


def robots_counts(tables: Tables, now: Instant) -> Generator[None, None, RobotsCounts]:
    """Counts the robots.txt files of all hosts in memory. It yields between its steps."""
    counts = RobotsCounts()
    ages: list[int] = []
    files = list(tables.robots.by_name.values())
    for first in range(0, len(files), CENSUS_FILES_PER_STEP):
        if first:
            yield
        for one in files[first : first + CENSUS_FILES_PER_STEP]:
            if one.fetched:
                ages.append(now - one.fetched)
            if one.fetched or one.status or one.error or one.failing_since:
                counts.by_status[one.status] = counts.by_status.get(one.status, 0) + 1
    if ages:
        counts.age_p95 = max(0.0, float(np.percentile(ages, 95, method="inverted_cdf")) / MICROSECONDS)
    return counts


def states_of(tables: Tables, hosts: Iterable[int], now: Instant, turns: HostSchedule) -> list[str]:
    """Returns the states of some hosts by their rows, in their order."""
    given = np.fromiter(hosts, np.int64)
    rows, shared = np.unique(given), turns.shared
    holdings = Holdings(rows)
    queues = [queue for row in rows.tolist() for queue in tables.queues_of(row)]
    holdings.take(tables, turns, np.array(queues, np.uint32), now)
    seeking = np.array([row in shared.seeking for row in rows.tolist()], np.bool_)
    asked = DueErrands.of(turns.asking(rows.tolist()))
    states = holdings.states(tables, slice(0, len(rows)), now, asked, shared, seeking)
    return [HOST_STATES[state] for state in states[rows.searchsorted(given)].tolist()]


def waits(
    tables: Tables, turns: HostSchedule, now: Instant, *, beyond_seconds: float, within_seconds: float | None
) -> Generator[None, None, Waits]:
    """Returns hosts that have URLs and rest for longer than `beyond_seconds`, but not longer than `within_seconds`. It
    yields between its steps."""
    look = yield from host_census(tables, turns, now)
    hosts = tables.hosts
    count, last = 0, now
    soonest: list[tuple[int, int]] = []
    for first, end in pieces(look.holdings.count):
        if first:
            yield
        end = min(end, hosts.count)
        until = hosts.rest_until[first:end]
        resting = (look.holdings.urls[first:end] > 0) & (until > now + instant(beyond_seconds))
        if within_seconds is not None:
            resting &= until <= now + instant(within_seconds)
        rows = np.flatnonzero(resting)
        if len(rows):
            count, last = count + len(rows), max(last, int(until[rows].max()))
            some = rows[np.argsort(until[rows], kind="stable")[:WAITS_NAMED_MAX]]
            soonest += [(int(until[row]), first + row) for row in some.tolist()]
            soonest = sorted(soonest)[:WAITS_NAMED_MAX]
    named = tuple(
        HostWait(
            hosts.name(row),
            at,
            seconds(at - now),
            int(look.holdings.urls[row]),
            GapReason(int(hosts.reason[row])).name.lower(),
            int(hosts.reason[row]) in (GapReason.RETRY_AFTER, GapReason.BACK_OFF),
        )
        for at, row in soonest
    )
    return Waits(count, seconds(last - now), named)
