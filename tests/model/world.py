"""Shared by the tests of the frontier: a clock that they move, a frontier on a disk in memory, a recount inside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from limiting import set_limits
from model.inside import inspect
from model.interleaving import Interleaving
from outrider.clock import instant
from outrider.engine import Frontier
from outrider.errors import PagesNeedErrandsError
from outrider.frontier.format.card_columns import Cards
from outrider.frontier.machine import Machine
from outrider.frontier.schedule import cooling
from outrider.frontier.state.hosts import ASKED, GATED, NONE
from outrider.frontier.state.tables import AUTHORITIES, CALLED, OWN, QUEUES, ROBOTS_FILES, Tables
from outrider.frontier.state.url_table import QUEUED, STATES, WAITING
from outrider.frontier.stores.recent import Recent
from outrider.frontier.verbs.statuses import leased_heads
from outrider.journey import Lease, LeaseBatch, Outcome, Verdict
from outrider.kernels.card_layout import PLANNED
from outrider.sim.disk import CrashDisk, FaultyFiles

START = 1_700_000_000_000_000


class Clock:
    """A clock that is paused until it is moved."""

    def __init__(self, at: int = START) -> None:
        self.at = at

    def __call__(self) -> int:
        return self.at

    def move(self, seconds: float) -> None:
        self.at += instant(seconds) if seconds >= 0 else -instant(-seconds)


class World:
    """A frontier, its clock and its disk; `reopen` ends one process and begins the next."""

    def __init__(
        self, *, robots: str = "caller", disk: FaultyFiles | None = None, clock: Clock | None = None, seed: int = 0,
        output: bool = False, addresses: str = "caller", threads: Interleaving | None = None,
        keys: tuple[bytes, bytes] | None = None, **settings: object,
    ) -> None:  # fmt: skip
        """keys: of the hashes in a new store; None: random ones. threads: how the background threads run;
        None: as the machine schedules them."""
        self.clock = clock or Clock()
        self.disk = disk if disk is not None else CrashDisk()
        self.settings = settings
        self.robots = robots
        self.seed = seed
        self.output = output
        self.addresses = addresses
        self.threads = threads
        self.keys = keys
        self.frontier = self._open()

    def _open(self) -> Frontier:
        frontier = Frontier.open(
            self.disk, clock=self.clock, settings=self.settings, robots=self.robots, seed=self.seed, output=self.output,
            addresses=self.addresses, keys=self.keys,
        )  # fmt: skip
        if self.threads is not None:
            self.threads.take(frontier, self.disk)
        return frontier

    def reopen(self, **settings: object) -> Frontier:
        """A clean stop and a new process, with other settings where given."""
        self.frontier.close()
        self.settings = self.settings | settings
        self.frontier = self._open()
        return self.frontier

    def kill(self, **settings: object) -> Frontier:
        """kill -9: all that the process wrote is there, and it closed nothing."""
        self.disk = self.disk.copy()
        self.settings = self.settings | settings
        self.frontier = self._open()
        return self.frontier

    def inspect(self) -> Machine:
        """The inside of the frontier."""
        return inspect(self.frontier)

    # -- short words for what most tests do

    def discover(self, *links: Any, **how: Any) -> list[str]:
        return [str(code) for code in self.frontier.discover(links, **how)]

    def lease(self, want: int = 100, **how: Any) -> LeaseBatch:
        """Leases; an empty batch where the frontier says that pages need errands first."""
        try:
            return self.frontier.lease(want, **how)
        except PagesNeedErrandsError:
            return LeaseBatch()

    def urls(self, want: int = 100, **how: Any) -> list[str]:
        return self.lease(want, **how).urls

    def one(self, **how: Any) -> Lease:
        """The one lease that can be had."""
        (lease,) = self.frontier.lease(1, **how)
        return lease

    def report(self, *outcomes: Outcome, **how: Any) -> list[str]:
        return [str(code) for code in self.frontier.report(outcomes, **how)]

    def state(self, url: str) -> str:
        return str(self.frontier.status(url).state)

    def reason(self, url: str) -> str | None:
        return self.frontier.status(url).reason

    def states(self, urls: Iterable[str]) -> list[str]:
        return [self.state(url) for url in urls]

    def counts(self) -> dict[str, int]:
        """The count of each state that has URLs."""
        urls: Any = self.frontier.statistics()["urls"]
        return {state: count for state, count in urls.items() if count}

    def ready_in(self) -> float | None:
        return self.frontier.next_ready_seconds()

    def settle_robots(self, status: int | None = 404, body: bytes = b"", *, seconds: float = 1.0) -> None:
        """Answers every errand that can be had, and lets the hosts rest."""
        while leases := self.frontier.lease(1_000, errands=True):
            for lease in leases:
                if lease.kind == "robots":
                    self.frontier.report([lease.robots(status, body)])
                else:
                    self.frontier.release([lease.token])
            self.clock.move(seconds)
            if not any(lease.kind == "robots" for lease in leases):
                return


def outcome(lease: Lease, verdict: str = "done", **how: Any) -> Outcome:
    """An outcome with any of its fields."""
    return Outcome(lease.token, Verdict(verdict), **how)


def recount(frontier: Frontier) -> list[str]:
    """The faults inside: those of `verify`, and URLs that the part which has to move them next cannot find."""
    problems = list(frontier.verify().problems)
    machine = inspect(frontier)
    tables = machine.tables
    places: Counter[str] = Counter()
    open_ones = set(leased_heads(tables)["order"].tolist())
    for cards in tables.urls.ledger.scan():
        for head in cards.heads[~tables.urls.void(cards.heads)]:
            state = STATES[head["state"]].value
            if int(head["order"]) in open_ones:
                state = "leased"
            elif state == "waiting" and head["reason"] == PLANNED:
                state = "planned"
            elif state == "waiting" and head["due"] <= machine.core.woken:
                state = "queued"
            places[state] += 1
    # A planned URL is queued without a new record, at any time. Both calendars have cards of deleted queues.
    there = len(tables.urls.calendar) + len(tables.urls.planned) - tables.urls.void_waiting
    woken = min(places["planned"], max(0, places["waiting"] + places["planned"] - there))
    places["queued"] += woken
    places["waiting"] += places.pop("planned", 0) - woken
    filed = {
        "queued": len(tables.urls.backlog) + sum(map(len, cards_at_cold_hosts(tables))),
        "leased": len(open_ones),
        "waiting": there,
    }
    problems.extend(
        f"{places[state]} URLs are {state}, {count} are where they must be"
        for state, count in filed.items()
        if count < places[state] or (count > places[state] and not tables.urls.voids())
    )
    for queue, group in tables.keys.group_of.items():
        busy = int(np.isin(tables.urls.requests_open(), group.queues).sum())
        if group.busy != busy:
            problems.append(f"{tables.key_of(queue)} counts {group.busy} turns, there are {busy}")
        if group.rest_until < tables.hosts.rest_until[tables.queues.host[queue]]:
            problems.append(f"{tables.key_of(queue)} rests less long than one of its hosts")
    deadlines = set(machine.core.gates.deadlines)
    problems.extend(
        f"the errand of {authority.name} never expires"
        for token, authority in tables.errands.open.items()
        if (authority.deadline, token) not in deadlines
    )
    if len(tables.urls.spent) > places["parked"] and not tables.urls.voids():
        problems.append(f"{places['parked']} URLs are parked, {len(tables.urls.spent)} of them for a budget")
    turns = machine.turns
    for flag, rows in ((GATED, turns.gates), (ASKED, turns.errands_at)):
        flagged = np.flatnonzero(tables.hosts.flags[: tables.hosts.count] & flag).tolist()
        if flagged != sorted(rows):
            problems.append(f"hosts {flagged} have flag {flag}, {sorted(rows)} should")
    problems.extend(
        f"the gate of {tables.hosts.name(host)} never opens"
        for host, authority in turns.gates.items()
        if authority.wanted == NONE and not authority.token and authority.name not in machine.core.gates.unread
    )
    return problems


def cards_at_cold_hosts(tables: Tables) -> Iterator[Cards]:
    """The queued URLs in the records of cold hosts, without those of deleted crawls."""
    for told in tables.cold.scan():
        cards = told.cards(np.flatnonzero(told.heads["queued"]))
        yield cards.filter(~tables.urls.void(cards.heads))


def hosts_go_cold(monkeypatch: Any, *, with_urls: bool = False) -> None:
    """Moves each host without URLs to disk before each checkpoint, a few rows at a step. with_urls: also ready hosts
    with few queued URLs, of which two return at once, and all but one of those that wait for a group."""
    if with_urls:
        set_limits(monkeypatch, FRONT_HOSTS_LEAST=0, FRONT_RETURNS=2, FRONT_PLACES_UNUSED_MAX=2)
        set_limits(monkeypatch, GROUP_WAITING_MOST=1, GROUP_WAITING_LEAST=1, GROUP_WAITING_PER_TURN=0)
    set_limits(
        monkeypatch,
        HOT_HOSTS_MIN=0,
        HOT_HOST_MEMORY_BYTES=1 << 40,
        COLD_STEP_ROWS=2,
        NAMES_FREED_BYTES_MIN=8,
    )


def slots_stay_unread(monkeypatch: Any) -> None:
    """Each checkpoint keeps its counts, so an opening after a kill leaves slots for later. Calls read few of them, and
    none reads all because that costs less."""
    set_limits(
        monkeypatch,
        KEPT_URLS_MIN=1,
        SLOT_COST_ROWS=0,
        SLOTS_READ_ROWS=600,
        SLOTS_READ_ROWS_PER_CALL=60,
        SLOTS_READ_ROWS_OWED=0,
        SEARCH_COST_ROWS=0,
    )


def keys_go_to_disk(monkeypatch: Any) -> None:
    """Moves seen keys to disk two at a time, a few at a step; a merge reads page by page. The filter for four keys
    becomes larger, as far as two kilobytes allow; with little memory it stays. The table of recent URLs, which would
    answer for most of them, has none."""
    set_limits(
        monkeypatch,
        SEEN_MEMORY_SHARE=1 << 20,
        SEEN_FRESH_SHARE=1 << 40,
        SEEN_FRESH_KEYS_MIN=2,
        SEEN_STEP_KEYS=2,
        SEEN_READ_PAGES=1,
        SEEN_FILTER_BITS=128,
    )
    monkeypatch.setattr(Recent, "note", lambda self, marks: None)


def recall_all(frontier: Frontier) -> int:
    """Loads the rows of all hosts again, which does not change the state. Returns how many had no row."""
    tables = inspect(frontier).tables
    count = len(tables.cold)
    for told in tables.cold.scan():
        tables.recall(told.hashes)
    assert len(tables.cold) == 0
    return count


def _comparable(values: Iterable[object]) -> list[object]:
    """Values that are equal where the facts are: a number that is absent is NaN, which equals nothing."""
    return ["absent" if value != value else value for value in values]


def everything(frontier: Frontier) -> list[object]:
    """All rows as a checkpoint would copy them, and the ledger: equal lists are equal states."""
    recall_all(frontier)
    return everything_of(inspect(frontier).tables)


def everything_of(tables: Tables) -> list[object]:
    """As `everything`, where no host is cold."""
    facts: list[object] = []
    # An authority without data is not a fact: a page that was drawn made it, or a call without room.
    unknown = {
        one.name
        for one in tables.robots.listed
        if not (one.state or one.token or one.attempts or one.next_at or one.digest)
    }
    files, _ = tables.robots.rulebook.named()
    # Queues of deleted crawls have no owner, and are removed one by one: their number is not part of the state.
    gone = np.flatnonzero(tables.crawls.are_gone(tables.queues.crawl[: tables.queues.count]))
    dead = set(tables.queues.hash[gone].tolist())
    for section, rows in tables.sections():
        if rows > (len(unknown) if section == AUTHORITIES else 0):
            blocks = tables.copy(section, 0, rows)
            if section == CALLED and not blocks:
                continue  # places that ended errands left
            listed = [sorted(zip(*map(_comparable, values), strict=True), key=repr) for _, values in blocks]
            if section == AUTHORITIES:
                listed = [[row for row in some if row[1] not in unknown] for some in listed]
            if section == ROBOTS_FILES:  # files without a user are being removed
                listed = [[row for row in some if row[1] in files] for some in listed]
                if not any(listed):
                    continue
            if section == QUEUES:
                listed = [[row for row in some if row[1] not in dead] for some in listed]
                blocks = [block for block, some in zip(blocks, listed, strict=True) if some]
                listed = [some for some in listed if some]
            facts.append((section, [kind for kind, _ in blocks], listed))
    # Records of deleted queues and crawls have no owner: their number is not part of the state.
    living = (_as_stored(cards.filter(~tables.urls.void(cards.heads))) for cards in tables.urls.ledger.scan())
    facts.append([sorted((bytes(card.heads.tobytes()), card.arena) for card in _single(living))])
    return facts


def _single(batches: Iterable[Cards]) -> Iterable[Cards]:
    for cards in batches:
        yield from (cards.take([row]) for row in range(len(cards)))


def _as_stored(cards: Cards) -> Cards:
    """Returns the cards of a ledger with one state for waiting and queued URLs. A host that goes cold writes the state
    of a due URL again. This is not a fact, and a replay moves no host to disk."""
    if cooling.FRONT_HOSTS_LEAST:
        return cards
    heads = cards.changed()
    heads["state"][heads["state"] == WAITING] = QUEUED
    return cards.with_heads(heads)


def rows(frontier: Frontier) -> list[object]:
    """The rows of all slots, without what belongs to the process: its opening, its holders, the log's counters."""
    return [part for part in everything(frontier) if not (isinstance(part, tuple) and part[0] == OWN)]
