"""Answers read from the tables: a URL's status, counts, lists, why nothing is leased, and a recount that finds a wrong
counter.

No function here changes the tables.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, TypeAlias

import numpy as np

from outrider.clock import Instant, instant, rfc3339, seconds
from outrider.errors import SettingsError, shown
from outrider.frontier.format.cards import fetched_at
from outrider.frontier.format.records import Record
from outrider.frontier.policy.politeness import GapReason
from outrider.frontier.policy.welcome import text_of
from outrider.frontier.priority import PRIORITY_DEFAULT, PriorityFunction, Weighted, name_of
from outrider.frontier.schedule.shared import HeldBack, SharedTurns
from outrider.frontier.schedule.turns import Turns
from outrider.frontier.state.authorities import Authority, RobotsState
from outrider.frontier.state.cold import ColdAuthority, Told, weigh
from outrider.frontier.state.crawls import CrawlState
from outrider.frontier.state.hosts import CELLS, NONE, Group, QueueRules, Rows, queue_hashes
from outrider.frontier.state.tables import Tables
from outrider.frontier.state.urls import DONE, GONE, LEASED, PARKED, QUEUED, STATES, WAITING, Reason
from outrider.frontier.state.whereabouts import Whereabouts
from outrider.frontier.stores.rulebook import crawl_delay_of
from outrider.frontier.verbs import arguments
from outrider.frontier.verbs.census import HOST_STATES, Census, looked, pieces, rows_in, states_of
from outrider.journey import (
    Explanation,
    HostStatus,
    HostWait,
    Idle,
    Page,
    PriorityPart,
    QueueStatus,
    Ranking,
    RobotsStatus,
    State,
    UrlStatus,
    Verification,
    Waits,
    WorkerStatus,
)
from outrider.kernels.cards import Heads
from outrider.limits import (
    BEFORE_COUNTED_MAX,
    LISTED_HOSTS_PER_STEP,
    LISTED_READ_BYTES,
    LISTED_ROWS_MAX,
    WAITS_NAMED_MAX,
)
from outrider.robots import Rules
from outrider.url import UrlBatch, authority_of, host_of

_Counts: TypeAlias = tuple[int, int, int, int, int, int]
_PRIORITY_SLACK = 1e-6  # a priority that differs by less is the same: sums are rounded


def status_of(record: Record, tables: Tables, token: int, queue: int | None = None) -> UrlStatus:
    """The status of one URL. token: the token of its open lease, 0 for none. queue: its row, where the caller knows."""
    queue = int(tables.queues.find(np.array([record.queue], np.uint64))[0]) if queue is None else queue
    # A cold host has queues of its own name alone.
    key = tables.key_of(queue) if queue != NONE else tables.home_of(host_of(record.url))
    return UrlStatus(
        record.url,
        STATES[record.state],
        reason=reason_text(record, tables),
        crawl=tables.crawls.name_of(record.crawl),
        key=key,
        priority=record.priority,
        depth=record.depth,
        attempts=record.attempts,
        referrer=record.referrer or None,
        status=record.status or None,
        error=tables.registry.errors[record.error] or None,
        due=record.due if record.state == WAITING else None,
        token=token or None,
    )


def reason_text(record: Record, tables: Tables) -> str | None:
    """Why a URL is parked or gone."""
    if record.state not in (PARKED, GONE):
        return None
    error = tables.registry.errors[record.error]
    return error if error and record.reason not in (Reason.BUDGET, Reason.TRAP) else Reason(record.reason).name.lower()


# -- counts ------------------------------------------------------------------------------------------------------------


def _host_counts(tables: Tables, census: Census) -> dict[str, int]:
    counts = {name: census.hosts[name] for name in ("ready", "resting", "blocked")}
    cold = len(tables.cold)
    return {"known": len(tables.hosts) + cold, **counts, "empty": cold + census.hosts["empty"]}


_TALLIES = ("answered", "bytes", "duplicates", "stale", "lost", "dropped", "refused", "retries")


def statistics(
    tables: Tables, *, errands: int, census: Census | None, shared: SharedTurns, recent_bytes: int = 0
) -> dict[str, object]:
    """Counts of URLs, hosts, errands and fetches, under the names of `status --json`; without a census none of
    hosts."""
    tallies = tables.registry.tallies
    seen = [found.statistics() for found in tables.urls.seen.of_crawls.values()]
    ledger, cold = tables.urls.ledger.statistics(), tables.cold.statistics()
    return {
        "accepted": tables.urls.accepted(),
        "urls": {STATES[state].value: tables.urls.counts[state] for state in range(1, 7)},
        "held": 0,
        "in_transit": tables.transit.under_way,
        "errands": errands,
        **({"hosts": _host_counts(tables, census)} if census is not None else {}),
        "groups": {"known": len(shared), "waiting": shared.waiting},
        **{name: tallies.get(name, 0) for name in _TALLIES},
        "errors": {name[6:]: count for name, count in tallies.items() if name.startswith("error.")},
        "traps": {name[5:]: count for name, count in tallies.items() if name.startswith("trap.")},
        "structures": {
            "seen": {"keys": sum(one["keys"] for one in seen), "bytes": sum(one["bytes"] for one in seen)},
            "recent": {"bytes": recent_bytes},
            "backlog": tables.urls.backlog.statistics(),
            "calendar": tables.urls.calendar.statistics(),
            "hosts": {"rows": len(tables.hosts), "bytes": tables.hosts.bytes()},
            "cold_hosts": {
                "hosts": len(tables.cold),
                "bytes": tables.cold.memory_bytes,
                "runs": cold.runs,
                "disk_bytes": cold.bytes,
                "memtable_bytes": cold.memtable_bytes,
            },
            "ledger": {
                "records": ledger.records,
                "runs": ledger.runs,
                "bytes": ledger.bytes,
                "memtable_bytes": ledger.memtable_bytes,
            },
        },
    }


def workers(tables: Tables) -> list[WorkerStatus]:
    """The named workers with open leases, by name."""
    _, _, deadlines, holders, *_ = tables.urls.open_leases()
    kinds = np.zeros(len(holders), np.int64)
    errands = [errand for errand in tables.errands.open.values() if errand.holder]
    deadlines = np.concatenate([deadlines, np.array([errand.deadline for errand in errands], np.int64)])
    holders = np.concatenate([holders, np.array([errand.holder for errand in errands], np.uint32)])
    kinds = np.concatenate([kinds, np.ones(len(errands), np.int64)])
    told = []
    for holder in np.unique(holders[holders != 0]).tolist():
        own = holders == holder
        asked = int(kinds[own].sum())
        name = tables.registry.holders[holder][0]
        first, last = int(deadlines[own].min()), int(deadlines[own].max())
        told.append(WorkerStatus(name, int(own.sum()) - asked, asked, first, last))
    return sorted(told, key=lambda worker: worker.name)


def recount(tables: Tables) -> Verification:
    """Recount everything from the ledger and the leases, and compare it with the counters."""
    found = _Recount(tables)
    for cards in tables.urls.ledger.scan():
        if tables.urls.voids():
            cards = cards.filter(~tables.urls.void(cards.heads))
        if len(cards):
            found.take(cards.heads)
    found.wake()
    problems = (
        *found.problems,
        *found.wrong_totals(),
        *found.wrong_queues(),
        *found.wrong_cold(),
        *_wrong_turns(tables),
        *tables.robots.problems(),
    )
    names = {STATES[state].value: found.counts[state] for state in range(1, 7)}
    return Verification(not problems, problems, {"accepted": sum(found.counts), **names})


class _Recount:
    """Counts of the records themselves: URLs by state, in all, by queue, and for cold hosts."""

    def __init__(self, tables: Tables) -> None:
        leased = leased_heads(tables)
        self.counts = [0] * 7
        self.problems: list[str] = []
        self._tables = tables
        self._unseen = 0  # URLs without a key in the seen-set
        self._of_queues = {state: np.zeros(tables.queues.count, np.int64) for state in (WAITING, PARKED, DONE, GONE)}
        self._of_cold = {state: [0, 0] for state in (WAITING, DONE, GONE)}  # how many, and the sum of their weights
        self._open = set(zip(leased["crawl"].tolist(), leased["order"].tolist(), strict=True))

    def take(self, heads: Heads) -> None:
        """Counts some records."""
        tables = self._tables
        rows = tables.queues.find(np.ascontiguousarray(heads["queue"]))
        cold = rows == NONE
        if cold.any():
            homeless = int(cold.sum()) - int(tables.cold.have_queues(heads["queue"][cold], heads["crawl"][cold]).sum())
            if homeless:
                self.problems.append(f"{homeless} URLs name a queue that does not exist")
                return
        self._look_up(heads)
        states = heads["state"].copy()
        if self._open:
            places = zip(heads["crawl"].tolist(), heads["order"].tolist(), strict=True)
            states[np.array([place in self._open for place in places], np.bool_)] = LEASED
        for state, number in enumerate(np.bincount(states, minlength=7).tolist()):
            self.counts[state] += number
        for state, column in self._of_queues.items():
            np.add.at(column, rows[(states == state) & ~cold], 1)
            some = heads["queue"][(states == state) & cold]
            if state in self._of_cold:
                self._of_cold[state][0] += len(some)
                self._of_cold[state][1] += weigh(some, state)
            elif len(some):
                self.problems.append(f"{len(some)} URLs of cold hosts are {STATES[state].value}")
        if (cold & ((states == QUEUED) | (states == LEASED))).any():
            self.problems.append("URLs of cold hosts are queued or leased")

    def _look_up(self, heads: Heads) -> None:
        for crawl in np.unique(heads["crawl"]).tolist():
            mask = heads["crawl"] == crawl
            seen = self._tables.urls.seen.of_crawls.get(crawl)
            self._unseen += int(mask.sum())
            if seen is not None:
                slots, prints = (np.ascontiguousarray(heads[name][mask]) for name in ("slot", "fingerprint"))
                self._unseen -= sum(seen.check(slots, prints))

    def wake(self) -> None:
        """Counts URLs as queued that left the calendar: their records still say waiting."""
        woken = self.counts[WAITING] - (len(self._tables.urls.calendar) - self._tables.urls.void_waiting)
        if woken >= 0:
            self.counts[WAITING] -= woken
            self.counts[QUEUED] += woken

    def wrong_totals(self) -> Iterator[str]:
        """Totals that differ from the records."""
        tables, counts = self._tables, self.counts
        if self._unseen:
            yield f"{self._unseen} URLs have no key in the seen-set"
        for state, counted in enumerate(tables.urls.counts):
            if state and counts[state] != counted:
                yield f"{STATES[state].value}: the counter says {counted}, the records say {counts[state]}"
        queued = len(tables.urls.backlog)
        if queued < counts[QUEUED]:
            yield f"{counts[QUEUED]} URLs are queued, the queues hold {queued}"
        transit = sum(len(home.outbox) for home in tables.transit.homes.values())
        if transit != tables.transit.under_way:
            yield f"in_transit: the counter says {tables.transit.under_way}, the outboxes hold {transit}"

    def wrong_queues(self) -> Iterator[str]:
        """For each count, the first queue where it differs from the records."""
        queues = self._tables.queues
        for state, column in ((PARKED, queues.parked), (DONE, queues.done), (GONE, queues.gone)):
            there = self._of_queues[state]
            wrong = np.flatnonzero(there != column[: queues.count])
            if len(wrong):
                row = int(wrong[0])
                yield (
                    f"queue {self._tables.key_of(row)}: {int(column[row])} {STATES[state].value} are counted, "
                    f"there are {int(there[row])}"
                )

    def wrong_cold(self) -> Iterator[str]:
        """Totals of cold hosts that differ from the records."""
        told, weights = self._tables.cold.totals(self._tables.crawls.gone)
        for state, (count, weight) in self._of_cold.items():
            if (count, weight & 0xFFFF_FFFF_FFFF_FFFF) != (told[state], weights[state]):
                yield f"cold hosts: {told[state]} {STATES[state].value} are counted, there are {count}"


def _wrong_turns(tables: Tables) -> Iterator[str]:
    """Up to ten hosts whose count of turns differs from their number of open leases."""
    turns = np.zeros(tables.hosts.count, np.int64)
    np.add.at(turns, tables.queues.host[leased_queues(tables)], 1)
    for authority in tables.errands.open.values():
        if authority.busy != NONE:
            turns[authority.busy] += 1
    wrong = np.flatnonzero(turns != tables.hosts.in_flight[: tables.hosts.count])
    for row in wrong[:10].tolist():
        yield (
            f"host {tables.hosts.name(row)}: {int(tables.hosts.in_flight[row])} turns are taken, "
            f"{int(turns[row])} leases are open"
        )


def leased_heads(tables: Tables) -> Heads:
    """The heads of all URLs that are leased, void ones left out."""
    heads: Heads = tables.urls.open_leases().cards.heads
    living: Heads = heads[~tables.urls.void(heads)]
    return living


def leased_queues(tables: Tables) -> Rows:
    """The queue of each open lease of a page."""
    queues: Rows = tables.urls.open_leases().queues
    return queues


# -- lists -------------------------------------------------------------------------------------------------------------


def _limit(limit: int) -> int:
    return arguments.whole("limit", limit, 1, LISTED_ROWS_MAX)


_ROW_DIGITS_MAX = 10


def _row_after(after: str | None, what: str) -> int:
    """The first row behind a cursor. As long as no host went cold no row is used twice, so a row serves as a cursor."""
    if after is None:
        return 0
    if not isinstance(after, str) or not after.isascii() or not after.isdigit() or len(after) > _ROW_DIGITS_MAX:
        raise SettingsError(f"after {shown(after)}: give the cursor of an earlier list of {what}")
    return int(after) + 1


def queue_status(tables: Tables, row: int) -> QueueStatus:
    """One queue by its row: its counts, and the rules that operators gave it."""
    queues = tables.queues
    one = np.array([row], np.uint32)
    queued = int(tables.urls.backlog.waiting(one)[0])
    leased = int((leased_queues(tables) == row).sum()) if tables.hosts.in_flight[queues.host[row]] else 0
    waiting, parked = int(queues.waiting[row]), int(queues.parked[row])
    counts = (queued, leased, waiting, parked, int(queues.done[row]), int(queues.gone[row]))
    names = tables.key_of(row), tables.hosts.name(int(queues.host[row]))
    return _queue_status(tables, int(queues.crawl[row]), names, counts, queues.rules.get(row))


def _queue_status(
    tables: Tables, crawl: int, names: tuple[str, str], counts: _Counts, rules: QueueRules | None
) -> QueueStatus:
    """names: its key and its host. counts: URLs that are queued, leased, waiting, parked, done, gone."""
    rules = rules or QueueRules()
    return QueueStatus(
        tables.crawls.name_of(crawl),
        *names,
        *counts,
        paused=rules.paused or tables.crawls.states[crawl] == CrawlState.PAUSED,
        blocked_until=rules.blocked_until or None,
        delay_seconds=rules.delay,
        limit=rules.limit or None,
    )


def list_queues(tables: Tables, crawl: str | None, after: str | None, limit: int) -> Page[QueueStatus]:
    """Queues in the order in which they were made; once a host went cold, in the order of their hosts' hashes."""
    limit = _limit(limit)
    wanted = None
    if crawl is not None:
        wanted = tables.crawls.rows.get(crawl)
        if wanted is None:
            raise SettingsError(f"crawl {shown(crawl, 200)}: there is none of that name")
    found: list[QueueStatus] = []
    if _by_hash(tables, after):
        host_after, queue_after = _hashes_after(after, 2, "queues")
        cursor = ""
        for number, home in _hosts_from(tables, host_after):
            for queue, status in _queues_there(tables, number, home, wanted):
                if (number, queue) <= (host_after, queue_after):
                    continue
                if len(found) == limit:
                    return Page(found, cursor)
                found.append(status)
                cursor = f"{_HASHED}{number:016x}.{queue:016x}"
        return Page(found, None)
    row = _row_after(after, "queues")
    while row < tables.queues.count and len(found) < limit:
        of = int(tables.queues.crawl[row])
        if tables.crawls.states[of] != CrawlState.DELETED and wanted in (None, of):
            found.append(queue_status(tables, row))
        row += 1
    return Page(found, str(row - 1) if row < tables.queues.count else None)


def host_statuses(tables: Tables, rows: Iterable[int], now: Instant, turns: Turns) -> list[HostStatus]:
    """Hosts by their rows, as `hosts` lists them."""
    rows = list(rows)
    states = states_of(tables, rows, now, turns)
    return [_host_status(tables, row, state) for row, state in zip(rows, states, strict=True)]


def _host_status(tables: Tables, row: int, state: str) -> HostStatus:
    hosts, queues = tables.hosts, tables.queues
    rows = np.array(list(tables.queues_of(row)), np.uint32)
    return _status_of_host(
        tables,
        (hosts.name(row), state, int(tables.urls.backlog.waiting(rows).sum()), int(hosts.in_flight[row])),
        {name: column[row].item() for name in CELLS for column in (getattr(hosts, name),)},
        [(int(queues.crawl[queue]), queues.rules.get(queue)) for queue in rows.tolist()],
        tuple(robots_status(one, tables) for one in tables.robots.of_host.get(row, ())),
    )


def _status_of_host(
    tables: Tables,
    named: tuple[str, str, int, int],
    cells: Mapping[str, Any],
    queues: Sequence[tuple[int, QueueRules | None]],
    robots: tuple[RobotsStatus, ...],
) -> HostStatus:
    """named: name, state, and how many URLs are queued and leased. cells: the durable ones. queues: the crawl of each,
    and its rules."""
    rules = [rule for _, rule in queues if rule is not None]
    return HostStatus(
        *named,
        cells["rest_until"] or None,
        cells["gap"] if cells["ended"] else None,
        GapReason(cells["reason"]).name.lower() if cells["reason"] else None,
        float(cells["back_off"]),
        cells["answered"],
        delay_seconds=max((rule.delay for rule in rules if rule.delay is not None), default=None),
        limit=max((rule.limit for rule in rules if rule.limit), default=None),
        paused=bool(queues)
        and all(
            (rule is not None and rule.paused) or tables.crawls.states[crawl] != CrawlState.RUNNING
            for crawl, rule in queues
        ),
        not_welcome=text_of(int(cells["unwelcome"])),
        robots=robots,
    )


def robots_status(one: Authority, tables: Tables) -> RobotsStatus:
    """The robots.txt of an authority as it is known."""
    ruled = one.state == RobotsState.RULES
    body = tables.robots.rulebook.body(one.digest) if ruled else b""
    return _robots_status(one, body, tables.robots.rulebook.crawl_delay(one.digest) if ruled else 0.0)


def _robots_status(one: Authority | ColdAuthority, body: bytes, delay: float) -> RobotsStatus:
    return RobotsStatus(
        one.name,
        RobotsState(one.state).name.lower(),
        one.status or None,
        one.fetched or None,
        max(one.expires, one.next_at) or None,
        delay or None,
        len(Rules.parse(body).sitemaps) if body else 0,
        one.error or None,
    )


def list_hosts(
    tables: Tables, turns: Turns, now: Instant, after: str | None, limit: int
) -> Generator[None, None, Page[HostStatus]]:
    """Hosts in the order in which they became known; once a host went cold, in the order of their hashes. It yields
    between its steps."""
    limit = _limit(limit)
    found: list[HostStatus] = []
    if not _by_hash(tables, after):
        row = _row_after(after, "hosts")
        # Once a host went cold a row may be another host's: the rest of the list goes by hashes.
        while row < tables.hosts.count and len(found) < limit and not tables.cold.ever:
            last = min(row + LISTED_HOSTS_PER_STEP, row + limit - len(found), tables.hosts.count)
            found += host_statuses(tables, range(row, last), now, turns)
            row = last
            yield
        return Page(found, str(row - 1) if row < tables.hosts.count else None)
    (beyond,) = _hashes_after(after, 1, "hosts")
    while True:
        want = min(LISTED_HOSTS_PER_STEP, limit + 1 - len(found))
        some = list(islice(_hosts_from(tables, beyond + 1), want))
        hot = host_statuses(tables, (home for _, home in some if not isinstance(home, tuple)), now, turns)
        told = iter(hot)
        for number, home in some:
            if len(found) == limit:
                return Page(found, f"{_HASHED}{beyond:016x}")
            found.append(_cold_status(tables, *home) if isinstance(home, tuple) else next(told))
            beyond = number
        if len(some) < want:
            return Page(found, None)
        yield


def list_hosts_in(
    state: str, tables: Tables, turns: Turns, now: Instant, after: str | None, limit: int
) -> Generator[None, None, Page[HostStatus]]:
    """Hosts in one state, as `list_hosts`; it looks at all hosts in memory, in bounded steps. Raises SettingsError."""
    limit = _limit(limit)
    if state not in HOST_STATES:
        raise SettingsError(f"state {shown(state)}: give one of {', '.join(HOST_STATES)}")
    if state == "empty" and tables.cold.ever:
        page = yield from list_hosts(tables, turns, now, after, limit)
        return Page([one for one in page if one.state == state], page.cursor)
    by_hash = _by_hash(tables, after)
    beyond = _hashes_after(after, 1, "hosts")[0] if by_hash else _row_after(after, "hosts") - 1
    rows = yield from rows_in(HOST_STATES.index(state), tables, turns, now)
    places = tables.hosts.hash[rows] if by_hash else rows.astype(np.uint64)
    places = np.sort(places[places > np.uint64(beyond)] if beyond >= 0 else places)
    found: list[HostStatus] = []
    for first in range(0, min(len(places), limit), LISTED_HOSTS_PER_STEP):
        yield
        some = places[first : min(first + LISTED_HOSTS_PER_STEP, limit)]
        homes = tables.hosts.find(some) if by_hash else some.astype(np.uint32)
        told = host_statuses(tables, (row for row in homes.tolist() if row != NONE), now, turns)
        found += [one for one in told if one.state == state]
    if len(places) <= limit:
        return Page(found, None)
    last = int(places[limit - 1])
    return Page(found, f"{_HASHED}{last:016x}" if by_hash else str(last))


_HASHED = "h"
"""The first character of a cursor by hash."""


def _by_hash(tables: Tables, after: str | None) -> bool:
    """Whether a list goes by hashes: it does once any host went cold, and to its end when it began so."""
    return tables.cold.ever or (isinstance(after, str) and after.startswith(_HASHED))


def _hashes_after(after: str | None, count: int, what: str) -> tuple[int, ...]:
    """The hashes behind which a list goes on. A cursor from the time before any host went cold begins the list again:
    some rows come twice, and no row is left out."""
    nothing = (-1,) * count
    if after is None or (isinstance(after, str) and after.isascii() and after.isdigit()):
        return nothing
    try:
        hashes = tuple(int(part, 16) for part in after.removeprefix(_HASHED).split("."))
    except (AttributeError, ValueError):
        hashes = ()
    if len(hashes) != count or not after.startswith(_HASHED) or max(hashes) >= 1 << 64 or min(hashes) < 0:
        raise SettingsError(f"after {shown(after)}: give the cursor of an earlier list of {what}")
    return hashes


def _hosts_from(tables: Tables, least: int) -> Iterator[tuple[int, int | tuple[Told, int]]]:
    """All hosts with hashes from `least` on, in the order of hashes, each with its row or, when it is cold, its record
    and the place in it. Memory holds about a thousand of them at a time."""
    if least >= 1 << 64:
        return
    cold = _cold_from(tables, least)
    ahead = next(cold, None)
    for number, row in _hot_from(tables, least):
        while ahead is not None and ahead[0] < number:
            yield ahead
            ahead = next(cold, None)
        yield number, row
    while ahead is not None:
        yield ahead
        ahead = next(cold, None)


def _cold_from(tables: Tables, least: int) -> Iterator[tuple[int, tuple[Told, int]]]:
    for told in tables.cold.scan(after=least - 1 if least > 0 else None, bytes_at_once=LISTED_READ_BYTES):
        for place, number in enumerate(told.hashes.tolist()):
            yield number, (told, place)


def _hot_from(tables: Tables, least: int) -> Iterator[tuple[int, int]]:
    """Hosts in memory by their hashes: a window of all hashes after another, of some hosts each, for hashes lie evenly.
    The window grows where it holds few."""
    hosts, least = tables.hosts, max(least, 0)
    width = ((1 << 64) // max(1, len(hosts)) + 1) * LISTED_HOSTS_PER_STEP
    while least < 1 << 64:
        width = min(width, (1 << 64) - least)
        inside = hosts.hash[: hosts.count] - np.uint64(least) <= np.uint64(width - 1)
        rows = np.flatnonzero(inside & hosts.there[: hosts.count])
        hashes = hosts.hash[rows]
        order = np.argsort(hashes)
        yield from zip(hashes[order].tolist(), rows[order].tolist(), strict=True)
        least += width
        width *= 2 if len(rows) < LISTED_HOSTS_PER_STEP else 1


def _queues_there(
    tables: Tables, number: int, home: int | tuple[Told, int], crawl: int | None
) -> list[tuple[int, QueueStatus]]:
    """The queues of one host, ordered by their hashes: of one crawl, or of all crawls that were not deleted."""
    if not isinstance(home, tuple):
        queues = tables.queues
        rows = [(int(queues.hash[row]), row) for row in tables.queues_of(home)]
        return [
            (queue, queue_status(tables, row))
            for queue, row in sorted(rows)
            if _listed(tables, int(queues.crawl[row]), crawl)
        ]
    told, place = home
    name = told.names.take(np.array([place])).list()[0]
    found = []
    for queue in told.queues(place):
        if _listed(tables, queue.crawl, crawl):
            hashed = queue_hashes(np.array([number], np.uint64), np.array([queue.crawl], np.uint32))
            counts = (0, 0, queue.waiting, 0, queue.done, queue.gone)
            found.append((int(hashed[0]), _queue_status(tables, queue.crawl, (name, name), counts, queue.rules)))
    return sorted(found, key=lambda one: one[0])


def _listed(tables: Tables, crawl: int, wanted: int | None) -> bool:
    return tables.crawls.states[crawl] != CrawlState.DELETED and wanted in (None, crawl)


def _cold_status(tables: Tables, told: Told, place: int) -> HostStatus:
    """As `_host_status`, for a cold host, from its record."""
    head = told.heads[place]
    cells = {name: head[name].item() for name in ("ended", "gap", "reason", "answered")}
    rest_until = int(tables.cold.rest_floor(told)[place])
    rulebook = tables.robots.rulebook
    return _status_of_host(
        tables,
        (told.names.take(np.array([place])).list()[0], "empty", 0, 0),
        cells | told.rare_cells(place) | {"rest_until": rest_until},
        [(queue.crawl, queue.rules) for queue in told.queues(place)],
        tuple(
            _robots_status(one, body, crawl_delay_of(body, rulebook.agent))
            for one in told.authorities(place)
            for body in ((one.body or rulebook.body(one.digest)) if one.state == RobotsState.RULES else b"",)
        ),
    )


# -- why ---------------------------------------------------------------------------------------------------------------


def explain(
    record: Record | None,
    url: str,
    tables: Tables,
    now: Instant,
    *,
    token: int,
    slot: int,
    fingerprint: int,
    turns: Turns,
    at_limit: bool,
    rules_first: tuple[str, Instant | None] | None = None,
    paused_until: Instant = 0,
    trap: str | None = None,
    robots: str | None = None,
    refusal: str = "",
    ranking: Ranking | None = None,
) -> Explanation:
    """The whole status of a URL, and the one reason why it is not being fetched now. rules_first: why its host waits
    for a robots.txt, and until when. robots: the line of its robots.txt that decides. refusal: the rule of the scope
    that refuses an unknown URL. trap: the numbers that make it a trap. ranking: of what its priority is made."""
    if record is None:
        return replace(_unknown(url, slot, fingerprint, refusal), robots=robots)
    row = int(tables.queues.find(np.array([record.queue], np.uint64))[0])
    host = int(tables.queues.host[row])
    queue = queue_status(tables, row)
    (there,), shared = host_statuses(tables, (host,), now, turns), turns.shared
    name = authority_of(record.url)
    authority, own = tables.robots.by_name.get(name), tables.queues.group_of.get(row)
    group = shared.holds_back(host)
    word, text, at = _why_not(record, now, queue, there, rules_first, own, group, tables=tables, at_limit=at_limit)
    text = _parked(record, tables, trap, robots) or text
    worker, until = _held_by(tables, token)
    if word == "leased" and until is not None:
        text = _leased(worker or "this process", until, now)
    kept = word in ("paused", "not_welcome", "blocked", "limit") or (at is not None and at >= paused_until)
    if record.state == QUEUED and paused_until > now and not kept:
        word, text, at = "network", _paused(paused_until), paused_until
    place = tables.addresses.by_host.get(host) if shared.asks else None
    if word in ("host_busy", "host_resting", "group_busy", "group_resting", "behind", "ready"):
        asked_at = shared.asked_at().get(host)
        if asked_at is not None:
            word, text, at = _address_sought(there.name, place, asked_at, now)
        elif place is not None and place.error:
            text += f"; no group by address counts it, for its address cannot be had ({place.error})"
    return Explanation(
        record.url,
        STATES[record.state],
        word,
        text,
        status_of(record, tables, token),
        slot,
        fingerprint,
        klass=record.klass,
        order=record.order,
        queue=queue,
        host=there,
        authority=name,
        robots=robots,
        robots_state=RobotsState(authority.state).name.lower() if authority is not None else None,
        next_at=at,
        due_since=record.due if record.state in (QUEUED, LEASED) and record.due <= now else None,
        worker=worker,
        lease_until=until,
        discovered_at=tables.registry.accepted_at(record.order),
        fetched_at=fetched_at(record.fetched),
        before=_before(tables, row, record) if record.state == QUEUED else None,
        held_by=tuple(shared.holding(host, now)),
        ranking=ranking,
    )


def ranking_of(record: Record, function: PriorityFunction | None) -> Ranking:
    """What the priority of a URL is made of. A weighted function is asked for its parts; no other function is called,
    for it may have forgotten the page by now."""
    parts: tuple[PriorityPart, ...] = ()
    usual = PRIORITY_DEFAULT if function is None else None
    if isinstance(function, Weighted):
        batch = UrlBatch.of([record.url]).with_columns(depth=np.array([record.depth]))
        parts = tuple(
            PriorityPart(name, float(values[0]), function.weights[name])
            for name, values in function.parts(batch, None).items()
        )
        usual = min(1.0, sum(part.value * part.weight for part in parts))
    source: str | None = "default" if function is None else "function"
    if usual is None or abs(usual - record.priority) > _PRIORITY_SLACK:
        source = "given" if function is None else None
    name = None if function is None else name_of(function)
    return Ranking(record.priority, record.klass, source, name, parts, record.depth, record.hops, record.losses)


def _unknown(url: str, slot: int, fingerprint: int, refusal: str) -> Explanation:
    """Why a URL was never accepted."""
    word, text = "unknown", "it lies inside the scope, and no link or call has named it"
    if refusal:
        word, text = "out_of_scope", f"it lies outside the scope: {refusal}"
    return Explanation(url, State.UNKNOWN, word, text, UrlStatus(url, State.UNKNOWN), slot, fingerprint)


def _parked(record: Record, tables: Tables, trap: str | None, robots: str | None) -> str:
    """Why a URL is parked as a trap, or by its robots.txt, in words; "" where it is not."""
    if record.state == PARKED and record.reason == Reason.TRAP:
        rule = tables.registry.errors[record.error]
        why = f": {trap}" if trap else ""
        return f"it is parked as a trap ({rule}){why}; `outrider retry --error {rule}` puts it back"
    if record.state == PARKED and record.reason == Reason.ROBOTS and robots:
        return f"it is parked: its robots.txt closes it, {robots}"
    return ""


def _before(tables: Tables, queue: int, record: Record) -> int | None:
    """How many URLs of its queue go before a queued one, `BEFORE_COUNTED_MAX` for that many or more."""
    orders = tables.urls.backlog.peek(queue, BEFORE_COUNTED_MAX).heads["order"]
    places = np.flatnonzero(orders == record.order)
    if len(places):
        return int(places[0])
    return BEFORE_COUNTED_MAX if len(orders) >= BEFORE_COUNTED_MAX else None


def _held_by(tables: Tables, token: int) -> tuple[str | None, Instant | None]:
    """The holder of the lease with a token, empty for this process, and until when."""
    if not token:
        return None, None
    lease = tables.urls.by_token(np.array([token], np.uint64), bodies=False)
    if not lease.found[0]:
        return None, None
    holder = int(lease.holders[0])
    name = tables.registry.holders[holder][0] if holder else ""
    return name, int(lease.deadlines[0])


def _leased(holder: str, until: Instant, now: Instant) -> str:
    """The holder of a lease, in words; a lease that ran out may not be taken back yet."""
    if until <= now:
        return f"it was leased until {rfc3339(until)}, and {holder} has not reported it: the next lease takes it back"
    return f"it is leased: {holder} fetches it, until {rfc3339(until)} at the latest"


def _address_sought(host: str, place: Whereabouts | None, at: Instant, now: Instant) -> tuple[str, str, Instant | None]:
    """Why a host without a known address is not offered."""
    text = f"the address of {host} is to be asked for first"
    if place is None:
        return "address", f"{text}, by whoever leases errands", now
    if place.token:
        return "address", f"the address of {host} is being asked for", None
    if place.error:
        text = f"the address of {host} could not be had ({place.error}) and is to be asked for once more"
    return "address", f"{text}, by whoever leases errands", max(at, now)


def rules_first(
    authority: Authority, turns: Turns, tables: Tables, now: Instant, *, own: bool
) -> tuple[str, Instant | None]:
    """Why the pages of a host wait for the robots.txt of an authority, and the first instant at which it may be asked
    for; None where no time alone brings that. own: whether it is the authority of the URL that is explained."""
    whose = "its authority" if own else authority.name
    hosts, there = tables.hosts, authority.wanted
    host = authority.busy if authority.token else there
    hop = f" at {hosts.name(host)}, where a redirect led," if host not in (NONE, authority.host) else ""
    if authority.token:
        return f"the robots.txt of {whose} is being asked for{hop.rstrip(',')}", None
    text = f"the robots.txt of {whose} is to be asked for{hop} first"
    if there == NONE:
        return f"the robots.txt of {whose} is being read", now
    allowed = turns.may_ask_at(authority, there)
    if allowed is None:
        return f"{text}, and its queues are paused", None
    if hosts.in_flight[there] >= turns.room(there):
        return f"{text}, after the request that {hosts.name(there)} has open", None
    at = max(authority.next_at, allowed, int(hosts.rest_until[there]))
    if at > now:
        return f"{text}, from {rfc3339(at)} on, by whoever leases errands", at
    return f"{text}, by whoever leases errands; that is possible now", now


def _why_not(
    record: Record,
    now: Instant,
    queue: QueueStatus,
    host: HostStatus,
    robots: tuple[str, Instant | None] | None,
    own: Group | None,
    group: HeldBack | None,
    *,
    tables: Tables,
    at_limit: bool,
) -> tuple[str, str, Instant | None]:
    state = record.state
    if state == LEASED:
        return "leased", "it is leased: somebody fetches it now", None
    if state == DONE:
        return "done", "it was fetched, and is not due again", None
    if state == GONE:
        return "gone", f"it is gone: {reason_text(record, tables)}", None
    if state == PARKED:
        return "parked", f"it is parked: {reason_text(record, tables)}", None
    if state == WAITING:
        return "waiting", f"it waits until {rfc3339(record.due)}", record.due
    if at_limit:
        return "limit", "the limit of pages (max_pages) is reached", None
    if queue.paused and host.not_welcome is not None:
        text = f"{host.name} is parked, for a crawler is not welcome there: {host.not_welcome}"
        return "not_welcome", f"{text}; `outrider host DIR {host.name} resume` wakes it", None
    if queue.paused:
        return "paused", "its queue or crawl is paused", None
    if queue.blocked_until is not None and queue.blocked_until > now:
        if host.not_welcome is not None:
            text = f"{host.name} is left alone, for a crawler may not be welcome there: {host.not_welcome}"
            again = f"it is asked again at {rfc3339(queue.blocked_until)}"
            text = f"{text}; {again}, and `outrider host DIR {host.name} resume` wakes it before"
            return "not_welcome", text, queue.blocked_until
        return "blocked", f"its queue is blocked until {rfc3339(queue.blocked_until)}", queue.blocked_until
    if robots is not None:
        return "robots", *robots
    capacity = queue.limit or 1
    if host.leased >= capacity:
        at_once = "one request at a time" if capacity == 1 else f"at most {capacity} requests at once"
        return "host_busy", f"{host.name} is being visited: {at_once}", None
    if host.rest_until is not None and host.rest_until > now:
        wait = seconds(host.rest_until - now)
        text = f"{host.name} rests for {wait:.3g} s more ({host.reason or 'in doubt'})"
        return "host_resting", text, host.rest_until
    if own is not None and own.busy:
        return "group_busy", f"another queue of the key {queue.key} is being visited: one request at a time", None
    if own is not None and own.rest_until > now:
        text = f"the queues of the key {queue.key} rest for {seconds(own.rest_until - now):.3g} s more"
        return "group_resting", text, own.rest_until
    if group is not None:
        return _held_back(host.name, group, now)
    if queue.queued > 1:
        others = _some(queue.queued - 1, "other URL", "other URLs")
        return "behind", f"{others} of its queue may go first, and its host is ready", now
    return "ready", "nothing: it is given to whoever leases next", now


def _paused(until: Instant) -> str:
    """Why nothing is asked for in an outage of our network."""
    return f"no host answers, so our own network is at fault: it is tried again at {rfc3339(until)}"


def _held_back(host: str, group: HeldBack, now: Instant) -> tuple[str, str, Instant | None]:
    """Why a group keeps one of its hosts from being visited."""
    if group.clock > now:
        text = f"the group {group.name} rests for {seconds(group.clock - now):.3g} s more, and {host} belongs to it"
        return "group_resting", text, group.clock
    text = f"{host} waits for its turn in the group {group.name}"
    if group.full:
        return "group_busy", f"{text}, which is being visited", None
    if group.others:
        return (
            "group_busy",
            f"{text}, and {_some(group.others, 'other host waits', 'other hosts wait')} there, too",
            None,
        )
    return "group_busy", f"{text}, which comes with the next lease", now


def idle(
    tables: Tables,
    now: Instant,
    census: Census,
    *,
    next_at: Instant | None,
    at_limit: bool,
    errands_wanted: bool = False,
    paused_until: Instant = 0,
) -> Idle:
    """Why nothing, or no more, can be leased now. paused_until: of an outage of our network. errands_wanted: robots
    rules come by errands, and nobody has leased any since the opening."""
    counts = _host_counts(tables, census)
    known = counts.pop("known")
    counts["resting"], counts["leased"] = counts["resting"] - census.leased, census.leased
    urls = {STATES[state].value: tables.urls.counts[state] for state in range(1, 7)}
    errands = census.errands
    if at_limit:
        word, text = "limit", "a limit of pages is reached, and work is left"
    elif not (tables.urls.counts[QUEUED] or tables.urls.counts[LEASED] or tables.urls.counts[WAITING] or errands):
        word, text, next_at = "finished", "nothing is left to do", None
        if parked := tables.urls.counts[PARKED]:
            text += f"; {_some(parked, 'URL is', 'URLs are')} parked, beyond a limit or closed by robots.txt"
    elif paused_until > now:
        word, text = "network", _paused(paused_until)
    elif counts["ready"]:
        word, text = "ready", _ready(counts["ready"], census.pages, errands_wanted=errands_wanted)
    elif counts["resting"]:
        word, text = "resting", _resting(counts["resting"], census)
    elif counts["leased"]:
        word, text = (
            "leased",
            f"{_some(counts['leased'], 'host is', 'hosts are')} being visited, the others have nothing",
        )
    elif tables.urls.counts[WAITING]:
        word, text = "waiting", f"{_some(tables.urls.counts[WAITING], 'URL waits', 'URLs wait')} for the time when due"
    elif errands or counts["blocked"]:
        some = _some(counts["blocked"], "host is", "hosts are")
        word, text = "blocked", f"{some} paused, silent or without a robots.txt yet"
    else:
        word, text = "paused", "what is queued is paused or blocked"
    tail_host, tail_urls, tail_seconds = census.tail or (None, 0, None)
    return Idle(
        word,
        text,
        known,
        counts,
        urls,
        next_at,
        None if next_at is None else seconds(max(0, next_at - now)),
        errands,
        tail_host,
        tail_urls,
        tail_seconds,
    )


def _resting(count: int, census: Census) -> str:
    text = "the one host that holds something rests" if count == 1 else f"all {count} hosts that hold something rest"
    if census.waits_for_group:
        text += f", {census.waits_for_group} of them because a group they belong to rests or is being visited"
    if census.waits_for_address:
        text += f", {census.waits_for_address} because their addresses are to be asked for first, by errands"
    return text


def _some(count: int, one: str, many: str) -> str:
    """A count with the noun and verb that go with it."""
    return f"{count:,} {one if count == 1 else many}"


def _ready(ready: int, pages: int, *, errands_wanted: bool) -> str:
    """How the ready hosts are leased: some of them, perhaps, by errands alone."""
    text = f"{_some(ready, 'host is', 'hosts are')} ready: lease from {'it' if ready == 1 else 'them'}"
    if pages < ready:
        text += (
            f" with errands=True: {_some(ready - pages, 'waits', 'wait')} for a robots.txt, which may be asked for now"
        )
    elif errands_wanted:
        text += " with errands=True: the robots.txt of each is asked for first"
    return text


def waits(
    tables: Tables, turns: Turns, now: Instant, *, beyond_seconds: float, within_seconds: float | None
) -> Generator[None, None, Waits]:
    """Hosts that hold URLs and rest for longer than `beyond_seconds`, and no longer than `within_seconds`. It yields
    between its steps."""
    look = yield from looked(tables, turns, now)
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
