"""Errands: leases for something other than a page. Each kind is a row of `KINDS`.

An errand has an owner, the authority or host that it is for, and the next URL to request: its own, or the target of a
redirect. Its request uses the clock of that URL's host. The errands for robots.txt files and addresses follow from the
frontier's own needs (`authorities.Authority`, `host_addresses.HostAddress`); all other kinds are queued by callers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import insort
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from outrider.clock import Instant
from outrider.frontier.format.facts import KINDS as KINDS_OF_FACTS
from outrider.frontier.format.facts import Block, Fact, Row, columns_of
from outrider.frontier.policy.file_visits import NO_VISITS, FileVisits
from outrider.frontier.policy.revisit import retry_at
from outrider.frontier.priority import class_of
from outrider.frontier.state.hosts import NONE
from outrider.journey import Kind
from outrider.limits import LEASES_LOST_MAX, REDIRECT_HOPS_MAX, URL_BYTES_MAX
from outrider.url import authority_of, host_of, spell

if TYPE_CHECKING:
    from outrider.frontier.state.tables import Tables


@dataclass(frozen=True, slots=True)
class ErrandKind:
    """One kind. number: in facts, never used again; 0 for kinds with facts of their own. answer: the field of `Outcome`
    that answers it, None if verdict, status and location do. priority: determines its class among the pages of its
    host; 1.0 precedes all. alternates: whether it alternates with pages of its class and of lower ones; other kinds
    precede them. revisited: whether a revisit rule requests it again."""

    kind: Kind
    number: int
    answer: str | None
    priority: float
    alternates: bool = False
    revisited: bool = False


KINDS = {
    row.kind: row
    for row in (
        ErrandKind(Kind.ROBOTS, 0, "robots", 1.0),
        ErrandKind(Kind.ADDRESS, 0, "address", 1.0),
        ErrandKind(Kind.SITEMAP, 1, None, 0.5, alternates=True, revisited=True),
        ErrandKind(Kind.PROBE, 2, None, 0.75),
        ErrandKind(Kind.TDMREP, 3, None, 1.0),
    )
}
OF_CALLERS = {row.number: row for row in KINDS.values() if row.number}
"""The kinds that callers queue, by number."""
ANSWERS = {row.answer: row.kind for row in KINDS.values() if row.answer is not None}
"""The kind that each answering field of an outcome is for."""


class Errand(ABC):
    """One errand, queued or open. token: of its lease, or 0; deadline, holder: of the lease; begun: when it was
    leased, None after a restart; busy: the host whose clock it uses while it is open; wanted: the host where it is
    queued; klass: its class there; next_at: it is not leased before; attempts: failures since the last answer."""

    __slots__ = (
        *("attempts", "begun", "busy", "deadline", "error", "holder", "hops", "host", "kind", "klass", "name"),
        *("next_at", "slot", "token", "url", "wanted"),
    )

    def __init__(self, kind: Kind, slot: int, host: int, name: str, url: str) -> None:
        self.kind = kind
        self.slot = slot
        self.host = host  # a row of Hosts
        self.name = name
        self.url = url  # the next one to request
        self.token = 0
        self.deadline: Instant = 0
        self.holder = 0
        self.begun: Instant | None = None
        self.busy = NONE
        self.wanted = NONE
        self.klass = 0
        self.next_at: Instant = 0
        self.attempts = 0
        self.hops = 0
        self.error = ""

    @property
    def priority(self) -> float:
        """The priority that its lease shows."""
        return KINDS[self.kind].priority

    @property
    def goes_first(self) -> bool:
        """Whether it precedes all pages of its host."""
        return KINDS[self.kind].priority >= 1.0

    @property
    def alternates(self) -> bool:
        """Whether it alternates with pages of its class and of lower ones."""
        return KINDS[self.kind].alternates

    @property
    def owner(self) -> str:
        """The authority that it is for, or ""."""
        return self.name

    @abstractmethod
    def opening(self, token: int, deadline: Instant, holder: int) -> tuple[Fact, Row]:
        """The fact that it is leased."""

    @abstractmethod
    def ending(self, until: Instant, *, lost: bool = False) -> tuple[Fact, Row]:
        """The fact that its lease ended without an answer; it is not leased again before `until`."""

    def closed(self) -> None:
        """Its lease ended."""
        self.token, self.deadline, self.begun, self.busy = 0, 0, None, NONE


ERRANDS_COMPARED_MAX = 8  # errands of each part of a line that are looked at for the next one
Name: TypeAlias = tuple[int, int, str]
"""Number of the kind, row of the crawl, URL as it was queued."""


_COLUMNS = tuple(column.name for column in KINDS_OF_FACTS[Fact.QUEUED_ERRAND].columns)
ENDED = _COLUMNS.index("ended")
"""The place of its end among the columns of the fact of a caller's errand."""
_CELLS = _COLUMNS[4:ENDED]
"""The cells that the fact sets. The columns after its end are those of `FileVisits`."""


class CallersErrand(Errand):
    """An errand that a caller queued: `name` is its URL, `url` the next hop. losses: leases in a row that ended without
    a report. place: its place in `CallersErrands`. visits: what it keeps of its last visits, if a rule requests it
    again."""

    __slots__ = ("crawl", "losses", "number", "place", "visits")

    def __init__(self, slot: int, host: int, number: int, crawl: int, name: str) -> None:
        super().__init__(OF_CALLERS[number].kind, slot, host, name, name)
        self.number = number
        self.crawl = crawl
        self.losses = 0
        self.place = -1
        self.visits = NO_VISITS
        self.klass = class_of(self.priority)

    @property
    def owner(self) -> str:
        return authority_of(self.name)

    @property
    def series(self) -> ErrandSeries:
        """The line of errands in which it waits."""
        return self.number, self.crawl, self.owner

    @property
    def key(self) -> Name:
        """Its name among all of them."""
        return self.number, self.crawl, self.name

    def opening(self, token: int, deadline: Instant, holder: int) -> tuple[Fact, Row]:
        return Fact.LEASED_ERRAND, (self.slot, *self.key, token, deadline, holder)

    def ending(self, until: Instant, *, lost: bool = False) -> tuple[Fact, Row]:
        losses = self.losses + 1 if lost else self.losses
        ended = losses >= LEASES_LOST_MAX
        return self.cells(self.url, max(self.next_at, until), self.attempts, self.hops, losses, "lost", ended=ended)

    def cells(
        self,
        url: str,
        next_at: Instant = 0,
        attempts: int = 0,
        hops: int = 0,
        losses: int = 0,
        error: str = "",
        *,
        ended: bool = False,
        visits: FileVisits | None = None,
    ) -> tuple[Fact, Row]:
        """The fact that sets its cells, or that it ended. visits: None leaves them as they are."""
        row = (self.slot, *self.key, url, next_at, attempts, hops, losses, error if losses or attempts else "")
        return Fact.QUEUED_ERRAND, (*row, int(ended), *astuple(visits or self.visits))

    def own_cells(self) -> Row:
        """Its cells as they are, as the columns of a fact."""
        return self.cells(*(getattr(self, cell) for cell in _CELLS))[1]

    def after_answer(
        self,
        now: Instant,
        *,
        location: str | None,
        retries: bool,
        after_seconds: float | None,
        error: str | None,
        again_at: Instant | None,
    ) -> tuple[Fact, Row]:
        """Returns the fact of an answer: it ends the errand; a redirect leads to the next hop, at most
        `REDIRECT_HOPS_MAX`; a temporary failure is tried again after 5, 30, 300 s or `after_seconds`; again_at: the
        instant at which the errand begins anew."""
        if again_at is not None:
            return self.cells(self.name, again_at)
        if retries:
            attempt = self.attempts + 1
            if (at := retry_at(attempt, now, after_seconds)) is None:
                return self.cells(self.name, ended=True)
            # The next attempt begins with the errand's own URL: the redirect may have changed.
            return self.cells(self.name, at, attempt, error=error or "retries")
        target = spell([location], self.url)[0] if location else None
        if target is not None and len(target) <= URL_BYTES_MAX and self.hops < REDIRECT_HOPS_MAX:
            return self.cells(target, 0, self.attempts, self.hops + 1)
        return self.cells(self.name, ended=True)

    def __repr__(self) -> str:
        return f"<CallersErrand {self.kind.value} {self.url}>"


ErrandSeries: TypeAlias = tuple[int, int, str]
"""Number of the kind, row of the crawl, authority: the errands of one line are leased one after the other."""


class _SeriesQueue:
    """The errands of one series. ready: those without an instant to wait for, in order of arrival; later: the
    others, by that instant. The first few of both contain the one that may be leased first."""

    __slots__ = ("later", "ready")

    def __init__(self) -> None:
        self.ready: dict[str, CallersErrand] = {}
        self.later: list[CallersErrand] = []

    def put(self, errand: CallersErrand) -> None:
        """Adds an errand, the last of those that wait as long."""
        if errand.next_at:
            insort(self.later, errand, key=attrgetter("next_at"))
        else:
            self.ready[errand.name] = errand

    def take(self, errand: CallersErrand) -> None:
        """Removes an errand. Its instant may have changed meanwhile."""
        if self.ready.pop(errand.name, None) is None:
            self.later.remove(errand)

    def first(self) -> list[CallersErrand]:
        """The first few of both parts. While an errand is queued or open, its series only gets new ones, which are
        placed after it or in the other part: it remains among the first."""
        return [*islice(self.ready.values(), ERRANDS_COMPARED_MAX), *self.later[:ERRANDS_COMPARED_MAX]]

    def __len__(self) -> int:
        return len(self.ready) + len(self.later)


class CallersErrands:
    """The errands that callers queued, by name, and in series. A place of an ended errand is used again, and
    no errand moves: a checkpoint copies places in steps."""

    def __init__(self) -> None:
        self._by_name: dict[Name, CallersErrand] = {}
        self._series: dict[ErrandSeries, _SeriesQueue] = {}
        self._places: list[CallersErrand | None] = []
        self._free: list[int] = []
        self._hosts: dict[int, int] = {}  # how many there are of a host
        self.dropped: list[CallersErrand] = []  # they ended in line, and must leave the schedule

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[CallersErrand]:
        return iter(self._by_name.values())

    def all_series(self) -> list[ErrandSeries]:
        """The series with an errand."""
        return list(self._series)

    def get(self, number: int, crawl: int, name: str) -> CallersErrand | None:
        """Returns the errand of this name, or None."""
        return self._by_name.get((number, crawl, name))

    def next_of(self, series: ErrandSeries) -> CallersErrand | None:
        """The next errand of a line, the one that may be leased first; None while one is open."""
        some = self._first(series)
        if not some or any(one.token for one in some):
            return None
        return min(some, key=lambda one: one.next_at)

    def lined_up(self, series: ErrandSeries) -> list[CallersErrand]:
        """The errands of a line that the schedule has."""
        return [one for one in self._first(series) if one.wanted != NONE]

    def _first(self, series: ErrandSeries) -> list[CallersErrand]:
        queue = self._series.get(series)
        return [] if queue is None else queue.first()

    def of_host(self, host: int) -> bool:
        """Whether there is an errand of a host, by its row."""
        return host in self._hosts

    def places(self) -> int:
        """How many places there are, free ones included."""
        return len(self._places)

    def between(self, first: int, last: int) -> list[CallersErrand]:
        """The errands at these places."""
        return [one for one in self._places[first:last] if one is not None]

    def add(self, errand: CallersErrand) -> CallersErrand:
        """Keeps a new errand, the last of its line."""
        self._by_name[errand.key] = errand
        self._series.setdefault(errand.series, _SeriesQueue()).put(errand)
        self._hosts[errand.host] = self._hosts.get(errand.host, 0) + 1
        if self._free:
            errand.place = self._free.pop()
            self._places[errand.place] = errand
        else:
            errand.place = len(self._places)
            self._places.append(errand)
        return errand

    def put_behind(self, errand: CallersErrand) -> None:
        """Puts an errand after those of its series that wait as long. Call it when its instant changed."""
        series = self._series[errand.series]
        series.take(errand)
        series.put(errand)

    def remove(self, errand: CallersErrand) -> None:
        """Forgets an errand that ended."""
        del self._by_name[errand.key]
        series = self._series[errand.series]
        series.take(errand)
        if not series:
            del self._series[errand.series]
        self._places[errand.place] = None
        self._free.append(errand.place)
        self._hosts[errand.host] -= 1
        if not self._hosts[errand.host]:
            del self._hosts[errand.host]

    def drop_crawl(self, crawl: int) -> None:
        """Drops the errands of a deleted crawl; an open one is dropped when its lease ends."""
        for errand in [one for one in self if one.crawl == crawl and not one.token]:
            self.remove(errand)
            self.dropped.append(errand)


class Errands:
    """The errands of all kinds: `open`, by the token of their lease, and those that callers queued."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self.open: dict[int, Errand] = {}
        self.called = CallersErrands()

    def lease(self, errand: Errand, token: int, deadline: int, holder: int) -> None:
        """Opens an errand, or keeps it open with another deadline."""
        begun, over = None, None
        if errand.token == token:
            begun, over = errand.begun, self._tables.hosts.rested.ends.get(token)
        self.end(errand)
        errand.token, errand.deadline, errand.holder, errand.begun = token, deadline, holder, begun
        if errand.kind is not Kind.ADDRESS:  # that one sends no request to a host
            # In a checkpoint the hop may be younger than the copied hosts; then the log repeats the errand's fact
            # after its host.
            errand.busy = self._tables.host_row(self._tables.home_of(host_of(errand.url)))
        if errand.busy != NONE:
            self._tables.hosts.in_flight[errand.busy] += 1
        self.open[token] = errand
        self._tables.token = max(self._tables.token, token)
        if over is not None:
            self.rest(errand, over)

    def rest(self, errand: Errand, ended: Instant) -> None:
        """Notes that the request of an open errand is over: its host has its turn again."""
        if errand.busy != NONE and self._tables.hosts.rested.add(errand.token, errand.busy, ended):
            self._tables.hosts.in_flight[errand.busy] -= 1
            self._tables.changed.append(np.array([errand.busy], np.uint32))

    def rested(self, errands: Iterable[Errand]) -> list[Row]:
        """The RESTED facts of the open ones among these errands whose request is over."""
        ends = self._tables.hosts.rested.ends
        return [(one.slot, one.token, ends[one.token]) for one in errands if one.token in ends] if ends else []

    def end(self, errand: Errand) -> None:
        """Closes an errand, if it is open."""
        if errand.token:
            self.open.pop(errand.token, None)
        if errand.busy != NONE:
            if not self._tables.hosts.rested.drop(errand.token, errand.busy):
                self._tables.hosts.in_flight[errand.busy] -= 1
            self._tables.changed.append(np.array([errand.busy], np.uint32))
        errand.closed()

    def _queued_errand(self, slot: int, kind: int, crawl: int, name: str, *cells: Any) -> None:
        errand = self.called.get(kind, crawl, name)
        own, ended, visits = cells[: len(_CELLS)], cells[len(_CELLS)], cells[len(_CELLS) + 1 :]
        if errand is None:
            host = NONE if ended else self._tables.host_row(self._tables.home_of(host_of(name)))
            if host == NONE:  # in a checkpoint: younger than the copied hosts, and the log repeats this fact
                return
            errand = self.called.add(CallersErrand(slot, host, kind, crawl, name))
        self.end(errand)
        for cell, value in zip(_CELLS, own, strict=True):
            setattr(errand, cell, value)
        errand.visits = FileVisits(*visits) if any(visits) else NO_VISITS
        if ended or self._tables.crawls.gone.take(crawl, mode="clip"):
            self.called.remove(errand)
            if errand.wanted != NONE:  # robots.txt refused it in line
                self.called.dropped.append(errand)
        else:
            self.called.put_behind(errand)
        self._tables.changed.append(np.array([errand.host], np.uint32))

    def _leased_errand(
        self, slot: int, kind: int, crawl: int, name: str, token: int, deadline: int, holder: int
    ) -> None:
        errand = self.called.get(kind, crawl, name)
        self._tables.token = max(self._tables.token, token)
        if errand is not None:
            self.lease(errand, token, deadline, holder)

    def blocks(self, first: int, last: int) -> list[Block]:
        """The facts that rebuild the queued errands at the places `first` … `last - 1`."""
        called = self.called.between(first, last)
        open_ones = [one.opening(one.token, one.deadline, one.holder)[1] for one in called if one.token]
        blocks: list[Block] = [(Fact.QUEUED_ERRAND, columns_of([one.own_cells() for one in called]))] if called else []
        blocks += [(Fact.LEASED_ERRAND, columns_of(open_ones))] if open_ones else []
        rested = self.rested(called)
        return blocks + ([(Fact.RESTED, columns_of(rested))] if rested else [])
