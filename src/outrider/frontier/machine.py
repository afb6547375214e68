"""The machine: all verbs, and all calls that only read a frontier, over one state."""

from __future__ import annotations

import heapq
from collections.abc import Generator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from outrider.clock import Instant, instant, rfc3339
from outrider.errors import SettingsError, shown
from outrider.frontier.format.facts import LINES_AFTER, STREAMS, Fact
from outrider.frontier.format.records import Record
from outrider.frontier.state.authorities import Authority, RobotsState
from outrider.frontier.state.errands import unanswered
from outrider.frontier.state.hosts import NONE, Rows
from outrider.frontier.state.urls import DONE, LEASED, PARKED, QUEUED, WAITING, Hand, Reason
from outrider.frontier.state.whereabouts import FOREVER, Whereabouts
from outrider.frontier.stores.ledger import Key
from outrider.frontier.verbs import accounts, arguments
from outrider.frontier.verbs.carried import Carrying
from outrider.frontier.verbs.census import Census, Standing, robots_counts, standing_of
from outrider.frontier.verbs.draft import Draft
from outrider.frontier.verbs.errands import Errands
from outrider.frontier.verbs.listing import Reading, Wish, after_of, chosen_heads, gathered, listed, state_number
from outrider.frontier.verbs.operations import Operations
from outrider.frontier.verbs.reporting import Reporting
from outrider.journey import (
    Explanation,
    HostStatus,
    Idle,
    LeaseBatch,
    Page,
    QueueStatus,
    State,
    UrlStatus,
    Verification,
    Waits,
    WorkerStatus,
)
from outrider.kernels.cards import Heads
from outrider.limits import (
    HELD_ROWS_MAX,
    LISTED_ROWS_MAX,
    MICROSECONDS,
    OWN_SLOT,
    RESTS_PER_FRAME_MAX,
    RETRIED_ROWS_AT_ONCE,
    WAKES_PER_CALL_MAX,
)
from outrider.robots import Rules
from outrider.url import authority_of, host_of, spell
from outrider.url.traps import BY_COUNTS, RULES

_Places = npt.NDArray[np.intp]
_Instants = npt.NDArray[np.int64]


_ROBOTS_WORDS = {
    RobotsState.RULES: "no line matches: it is allowed",
    RobotsState.ALLOW: "the site has none: everything is allowed",
    RobotsState.REFUSED: "it cannot be read: nothing is allowed meanwhile",
    RobotsState.DEAD: "its site does not answer",
}
"""Where no line of a robots.txt decides about a URL."""


class Machine(Reporting, Operations, Carrying, Errands):
    """One frontier. It is not thread-safe; the engine makes sure that one call runs at a time."""

    def settle_all(self, now: Instant) -> None:
        """Builds timetable and rings from the tables, after recovery."""
        tables = self.tables
        while (at := tables.urls.calendar.next()) is not None and at <= now:
            tables.urls.wake(now, WAKES_PER_CALL_MAX)
        self._woken = now
        tables.leaving.drop(len(tables.leaving.stalled))
        tables.leaving.find()
        self._let_queues_go(len(tables.leaving.waiting))
        tables.forget_changed()
        for token, errand in tables.errands.open.items():
            heapq.heappush(self._deadlines, (errand.deadline, token))
        for group in tables.queues.groups.values():
            hosts = tables.queues.host[group.queues]
            group.rest_until = max(group.rest_until, int(tables.hosts.rest_until[hosts].max()))
        for authority in list(tables.robots.by_name.values()):
            if authority.state == RobotsState.REFUSED and self.errands_mode:
                self._line_up(authority)
            elif self.errands_mode and unanswered(authority, now):
                self._gate_again(authority)
            self._judge_later(authority)
        for line in tables.errands.called.lines():
            self._next_in_line(line)
        tables.errands.called.dropped.clear()
        tables.forget_changed()
        self.turns.shared.rest_all(tables.cold.floor_end())
        self.turns.shared.meet()  # all hosts join their groups before the first one is offered
        for first in range(0, tables.hosts.count, WAKES_PER_CALL_MAX):
            self.turns.touch(
                (np.arange(first, min(first + WAKES_PER_CALL_MAX, tables.hosts.count), dtype=np.uint32),), now
            )
        self.now = max(self.now, now)

    def _gate_again(self, authority: Authority) -> None:
        """Gates the host of an authority whose robots.txt was asked for, or was to be, when the store was closed."""
        tables = self.tables
        queues = np.array(list(tables.queues_of(authority.host)), np.uint32)
        asked = authority.state == RobotsState.RETRYING or authority.token or authority.hops or authority.next_at
        if asked and authority.host not in self.turns.gates and tables.urls.backlog.waiting(queues).any():
            self._gate(authority, unread=False)
        elif self.turns.is_sought(authority):
            self._line_up(authority)

    def open_facts(
        self, opening: tuple[int, Instant, Instant, str, Instant], now: Instant, passed: Instant | None
    ) -> int:
        """Logs a new opening: leases of dead processes end and their hosts rest one whole delay; resting hosts go on
        resting, and leases of named workers live on for the time they had left.

        passed: real time in microseconds since the last logged instant where it is known (same boot, or the caller's
        clock), else None. Returns how many leases ended.
        """
        tables = self.tables
        last = tables.now
        shared = self.turns.shared
        # How far the clock has moved beyond the time that passed.
        jump = max(0, now - last - (passed or 0))
        if shared.used:
            # The clock of a group comes from its hosts in memory. Hosts that went cold beside groups add nothing to it;
            # these may have gone before there were groups, or when their gap was shorter.
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
            # As with the rests below, dated at the last logged instant: a crash in between leaves deadlines that are
            # late, never early.
            draft = self._draft(last)
            draft.add_columns(Fact.EXTEND, [column[:RESTS_PER_FRAME_MAX] for column in moved])
            moved = [column[RESTS_PER_FRAME_MAX:] for column in moved]
            self._commit(draft, reserve=True)
        while len(resting) + len(dead) > RESTS_PER_FRAME_MAX:
            # Logged before the opening, dated at the last logged instant: a crash in between leaves hosts that rest
            # longer.
            draft = self._draft(last)
            some = slice(RESTS_PER_FRAME_MAX)
            self._rest_on(draft, resting[some], until[some], since[some], dead)
            if not len(resting):
                self._lose(draft, dead[:RESTS_PER_FRAME_MAX], now)
                del dead[:RESTS_PER_FRAME_MAX]
            rest = slice(RESTS_PER_FRAME_MAX, None)
            resting, until, since = resting[rest], until[rest], since[rest]
            self._commit(draft, reserve=True)
        draft = self._draft(now)
        draft.add(Fact.OPENING, (OWN_SLOT, *opening))
        if not tables.crawls.next_row:
            draft.add(Fact.CRAWL, (OWN_SLOT, 0, "default", 1))
        draft.add(Fact.HOLDER, (OWN_SLOT, 0, "", opening[0]))
        floor, delay = tables.cold.floor
        if floor and jump:
            draft.add(Fact.COLD_REST, (OWN_SLOT, floor + jump, delay))
        self._rest_on(draft, resting, until, since, dead)
        self._lose(draft, dead, now)
        for errand in errands:
            self._lose_errand(draft, errand, now)
        if len(moved[1]):
            draft.add_columns(Fact.EXTEND, moved)
        for errand in tables.errands.open.values():
            old, new = errand.deadline, int(_lived_on(errand.deadline, last, now, passed))
            if errand.holder and old > last and new != max(old, now):
                self._open_errand(draft, errand, errand.token, new, errand.holder)
        self._commit(draft, reserve=True)
        self._revive(now)
        return ended

    def _moved_deadlines(self, now: Instant, passed: Instant | None) -> list[npt.NDArray[Any]]:
        """The columns of EXTEND for leases of named workers. Deadlines are instants of the clock that dated the log,
        and between two openings that clock may have jumped."""
        tables = self.tables
        tokens = np.frombuffer(tables.urls.leases.tokens(), np.uint64)
        leases = self._by_token(tokens, bodies=False)
        last, old = tables.now, leases.deadlines
        new = _lived_on(old, last, now, passed)
        rows = np.flatnonzero((leases.holders != 0) & (old > last) & (new != np.maximum(old, now)))
        return [np.ascontiguousarray(leases.cards.heads["slot"][rows]), tokens[rows], new[rows]]

    def _rested_on(self, hosts: _Places, now: Instant, passed: Instant | None) -> tuple[_Places, _Instants, _Instants]:
        """Lets hosts rest from the opening on for the time that they had left at the last logged instant. Returns the
        hosts whose clocks change, the ends of their rests, and the ends of their last visits."""
        columns, last = self.tables.hosts, self.tables.now
        old, ended = columns.rest_until[hosts], columns.ended[hosts]
        left = old - last
        if passed is not None:
            until = now + np.maximum(0, left - passed)
        else:
            # Another boot: the wall clock may have jumped, so in doubt one whole delay, but never more than the host
            # had left.
            delays = np.ceil(np.maximum(columns.gap[hosts], self.settings.delay) * MICROSECONDS).astype(np.int64)
            until = np.maximum(old, now + np.minimum(left, delays))
        since = ended
        if self.turns.shared.used:
            # The gap of its group counts from the end of the last visit, so this instant moves along with the clock.
            late = ended > max(0, last - self.turns.shared.gap_max)
            since = ended + np.where(late, max(0, now - last - (passed or 0)), 0)
        changed = (until != np.maximum(old, now)) | (since != ended)
        return hosts[changed], until[changed], since[changed]

    def _rest_on(self, draft: Draft, hosts: _Places, until: _Instants, since: _Instants, dead: Sequence[int]) -> None:
        """Adds the clocks that `_rested_on` returned to a draft. dead: leases that may end in the same draft."""
        leased = self._by_token(np.array(dead, np.uint64), bodies=False).queues
        alone = np.isin(hosts, self.tables.queues.host[leased])
        for row in np.flatnonzero(alone).tolist():
            clock = draft.clock(int(hosts[row]))
            clock.rest_until, clock.ended = int(until[row]), int(since[row])
        if alone.any():
            hosts, until, since = hosts[~alone], until[~alone], since[~alone]
        if len(hosts):
            columns = self.tables.hosts.durable(hosts, ended=since, rest_until=until)
            draft.add_columns(Fact.HOST_CELLS, columns, Hand.of_rows(hosts.astype(np.uint32)))

    def _revive(self, now: Instant) -> None:
        """Queues URLs again that were parked for a budget that has grown since."""
        limit = self.settings.max_pages_per_host
        tables = self.tables
        if not tables.urls.counts[PARKED]:
            return
        hosts = np.arange(tables.hosts.count, dtype=np.uint32)
        parked = hosts[tables.urls.spent.waiting(hosts) > 0]
        for host in parked.tolist():
            if limit is not None and tables.hosts.answered[host] >= limit:
                continue
            while len(cards := tables.urls.spent.drain(host, WAKES_PER_CALL_MAX)):
                draft = self._draft(now)
                cards = self._living(cards)
                self._requeue(draft, cards, PARKED, now)
                self._commit(draft, reserve=True)

    def set_addresses(self, addresses: Mapping[str, str | None], now: Instant) -> int:
        """Sets the addresses of hosts by name (None: not known any more); groups follow at a host's next offer. Returns
        how many addresses changed. Raises SettingsError."""
        now = self._advance(now)
        told = {self.tables.home_of(name): address for name, address in arguments.addresses(addresses).items()}
        draft = self._draft(now)
        for name in told:
            self._add_host(draft, name)
        self._commit(draft)
        tables = self.tables
        rows = {tables.host_row(name): address for name, address in told.items()}
        tables.changed.append(self.turns.shared.told(row for row, address in rows.items() if address))
        places = tables.addresses.by_host
        rows = {
            row: address
            for row, address in rows.items()
            if (row in places and (places[row].address, places[row].expires) != (address, FOREVER))
            or (row not in places and address)
        }
        draft = self._draft(now)
        self._leave_addresses(draft, rows)
        for row, address in rows.items():
            draft.add(Fact.ADDRESS, (int(tables.hosts.slot[row]), int(tables.hosts.hash[row]), address))
        self.turns.shared.moved(rows)
        self._commit(draft)
        return len(rows)

    def note_projection(self, stream: str, length: int, lsn: int, now: Instant) -> None:
        """Notes that a projection is synced to this length and holds the lines up to this LSN. Raises SettingsError."""
        if stream not in STREAMS:
            raise SettingsError(f"stream {shown(stream)}: there are {', '.join(STREAMS)}")
        length = arguments.whole("length", length, 0, arguments.INSTANT_MAX)
        lsn = arguments.whole("lsn", lsn, 0, arguments.INSTANT_MAX)
        draft = self._draft(self._advance(now))
        # An LSN of 0 means that the stream never had a line and needs no log.
        draft.add(Fact.PROJECTION, (OWN_SLOT, stream, length, max(lsn, LINES_AFTER)))
        self._commit(draft, reserve=True)

    def note_watermark(self, writer: str, value: bytes, now: Instant) -> None:
        """Notes that an archive is synced up to this opaque place. Raises SettingsError."""
        arguments.watermark((writer, value), self.tables.registry.watermarks)
        draft = self._draft(self._advance(now))
        draft.add(Fact.WATERMARK, (OWN_SLOT, writer, value))
        self._commit(draft, reserve=True)

    def note_closing(self, state: str, now: Instant) -> None:
        """Logs a clean stop. Leases of this process end, which counts as no loss."""
        now = self._advance(now)
        draft = self._draft(now)
        tables = self.tables
        for errand in list(tables.errands.open.values()):
            if errand.holder == 0:
                self._rest_whole_host(draft, errand.busy, now)
                self._end_errand(draft, errand)
        tokens = np.frombuffer(tables.urls.leases.of_holder(0), np.uint64)
        if len(tokens):
            leases = self._by_token(tokens)
            for queue in leases.queues.tolist():
                self._rest_whole(draft, int(tables.queues.host[queue]), self._floor_of_page(queue), now)
            heads = leases.cards.changed()
            heads["state"] = QUEUED
            draft.heads(leases.cards.with_heads(heads), tokens, np.full(len(tokens), LEASED, np.uint8))
        draft.add(Fact.CLOSING, (OWN_SLOT, tables.registry.opening[0], state))
        self._commit(draft, reserve=True)

    def seen_content(self, digests: Sequence[bytes]) -> list[bool]:
        """Whether content with each digest was accepted for any URL."""
        hashes = np.array(self._content_hashes(digests), np.uint64)
        return self.tables.urls.seen.has_contents(hashes)

    def finished(self) -> bool:
        """Whether no URL is queued, leased, waiting, in transit or to be judged again, and no errand is open or
        wanted."""
        counts = self.tables.urls.counts
        waiting = counts[QUEUED] or counts[LEASED] or counts[WAITING] or self.errands() or self.tables.transit.under_way
        return not (waiting or self._waiting.again)

    def at_limit(self) -> bool:
        """Whether a limit ends the crawl: no page may be leased any more (max_pages), or the rest is parked for a
        budget."""
        if (
            self.settings.max_pages is not None
            and self.tables.registry.tallies.get("answered", 0) >= self.settings.max_pages
        ):
            return not self.finished() or self._spent()
        return self.finished() and self._spent()

    def errands(self, lined_up: int | None = None) -> int:
        """How many errands are open or wanted; an errand of a caller does not count while its host is closed, for a
        robots.txt out of reach keeps no crawl open. lined_up: how many of those in lines are awaited, where a census
        counted them."""
        open_ones = {errand.host for errand in self.tables.errands.open.values() if isinstance(errand, Whereabouts)}
        if lined_up is None:
            lined_up = sum(map(self.turns.is_awaited, chain.from_iterable(self.turns.errands_at.values())))
        lined_up += sum(host not in open_ones for host in self.turns.shared.seeking)
        closed = self.turns.closed_until
        queued = sum(not errand.token and not closed(errand) for errand in self.tables.errands.called)
        return len(self.tables.errands.open) + lined_up + queued

    def next_ready(self, now: Instant) -> Instant | None:
        """The first instant at which anything can be leased; `now` when that is so already; None when time alone will
        bring nothing."""
        if self._pages_left() <= 0:
            # A lease that ends without an answer gives its page back.
            spent = self.tables.registry.tallies.get("answered", 0) >= (self.settings.max_pages or 0)
            return None if spent else self._next_deadline(now)
        if self._waiting.again or self._waiting.unread:
            return now
        times = [self.turns.next(now), self.tables.urls.calendar.next(), self._next_deadline(now)]
        known = [at for at in times if at is not None]
        if not known:
            return None
        if self.network.down and not self._network_lets(max(now, self.network.until), 1):
            return self._next_deadline(now)  # the requests that try the network are under way
        return max(now, self.network.until, min(known))

    def _next_deadline(self, now: Instant) -> Instant | None:
        found = self.tables.urls.leases.next()
        times = [found] if found >= 0 else []
        while self._deadlines:
            deadline, token = self._deadlines[0]
            errand = self.tables.errands.open.get(token)
            if errand is not None and errand.deadline == deadline:
                times.append(deadline)
                break
            heapq.heappop(self._deadlines)
        return max(now, min(times)) if times else None

    def status(self, url: str, crawl: str | None = None) -> UrlStatus:
        """The status of one URL, by any spelling, in the default crawl or the one named."""
        text = self._spelled([url])[0]
        row = self.tables.crawls.rows.get(crawl or "default")
        if text is None or row is None:
            return UrlStatus(text or url, State.UNKNOWN)
        _, records = self.records_of([text], row)
        if not records:
            return UrlStatus(text, State.UNKNOWN)
        return accounts.status_of(records[0], self.tables, self.token_of(records[0]))

    def explain(self, url: str, crawl: str | None, now: Instant) -> Explanation:
        """The whole status of one URL, and the one reason why it is not being fetched now."""
        now = max(now, self.now)
        text = self._spelled([url])[0]
        if text is None:
            raise SettingsError(f"{shown(url, 200)} is no http or https URL")
        row = self.tables.crawls.rows.get(crawl or "default")
        _, records = self.records_of([text], row) if row is not None else (None, [])
        if records:
            # recalls a cold host, for `explain` reads its rows
            self.tables.host_row(self.tables.home_of(host_of(text)))
        fingerprint = self.tables.hash_of(text)
        return accounts.explain(
            records[0] if records else None,
            text,
            self.tables,
            now,
            token=self.token_of(records[0]) if records else 0,
            slot=self.slot_of(self.tables.home_of(host_of(text))),
            fingerprint=fingerprint,
            turns=self.turns,
            at_limit=self._pages_left() <= 0,
            rules_first=self._rules_first(text, now) if records else None,
            paused_until=self.network.until,
            trap=self._trap_told(records[0], now) if records else None,
            robots=self._robots_line(text, now),
            refusal="" if records or row is None else self._scopes.of(row).refusal(text),
            ranking=accounts.ranking_of(records[0], self.settings.priority) if records else None,
        )

    def _robots_line(self, url: str, now: Instant) -> str | None:
        """The line of a robots.txt that decides about a URL, or why no line does; None for a file that was not read."""
        authority = self.tables.robots.by_name.get(authority_of(url))
        if authority is None or authority.state not in _ROBOTS_WORDS:
            return None
        if not self.settings.obey_robots:
            return "the settings ignore it (obey-robots is False)"
        if self._is_closed(authority, now):
            return _ROBOTS_WORDS[RobotsState.REFUSED]
        if authority.state == RobotsState.RULES:
            rulebook = self.tables.robots.rulebook
            line = Rules.parse(rulebook.body(authority.digest)).explain(rulebook.agent, url)
            if line is not None:
                return f"line {line.number}: {line}"
        return _ROBOTS_WORDS[RobotsState(authority.state)]

    def _trap_told(self, record: Record, now: Instant) -> str | None:
        """Which numbers make a parked URL a trap, in words; None where it is none, or where none do any more."""
        if record.state != PARKED or record.reason != Reason.TRAP or self.settings.traps is None:
            return None
        rule = self.tables.registry.errors[record.error]
        if rule in RULES and (number := RULES.index(rule) + 1) in BY_COUNTS:
            return self._returns_told(record.url, number)
        return self.settings.traps.explained(record.url, now)

    def _rules_first(self, url: str, now: Instant) -> tuple[str, Instant | None] | None:
        """Why the host of a URL waits for a robots.txt, and until when; None where it does not."""
        host = self.tables.host_row(self.tables.home_of(host_of(url)))
        name = authority_of(url)
        gate = self.turns.gates.get(host)
        if gate is not None:
            return accounts.rules_first(gate, self.turns, self.tables, now, own=gate.name == name)
        own = self.tables.robots.by_name.get(name)
        if not self.errands_mode or (own is not None and not (own.token or unanswered(own, now))):
            return None
        hosts = self.tables.hosts
        at = int(hosts.rest_until[host])
        if hosts.in_flight[host] or at > now:
            return None  # the visit or the rest comes before the errand
        return "the robots.txt of its authority is to be asked for first, by whoever leases errands", now

    def explain_idle(self, now: Instant) -> Generator[None, None, Idle]:
        """Why nothing, or no more, can be leased now. It yields between its steps."""
        census = yield from self._census(now)
        now = max(now, self.now)
        return accounts.idle(
            self.tables,
            now,
            census,
            next_at=self.next_ready(now),
            at_limit=self._pages_left() <= 0,
            errands_wanted=self.errands_mode and not self.turns.runs_errands,
            paused_until=self.network.until,
        )

    def _census(self, now: Instant) -> Generator[None, None, Census]:
        census = Census()
        yield from census.take(self.tables, self.turns, max(now, self.now), self.settings.delay)
        census.errands = self.errands(census.errands)
        return census

    def waits(self, now: Instant, beyond_seconds: float, within_seconds: float | None) -> Generator[None, None, Waits]:
        """Hosts that hold URLs and rest for longer than one and no longer than the other number of seconds. Raises
        SettingsError."""
        least = arguments.span("beyond_seconds", beyond_seconds)
        most = None if within_seconds is None else arguments.span("within_seconds", within_seconds)
        return accounts.waits(self.tables, self.turns, max(now, self.now), beyond_seconds=least, within_seconds=most)

    def queues(self, crawl: str | None, after: str | None, limit: int) -> Page[QueueStatus]:
        """A piece of the list of queues."""
        return accounts.list_queues(self.tables, crawl, after, limit)

    def hosts(
        self, now: Instant, state: str | None, after: str | None, limit: int
    ) -> Generator[None, None, Page[HostStatus]]:
        """A piece of the list of hosts. It yields between its steps."""
        now = max(now, self.now)
        if state is None:
            return accounts.list_hosts(self.tables, self.turns, now, after, limit)
        return accounts.list_hosts_in(state, self.tables, self.turns, now, after, limit)

    def _wish(self, state: str | None, host: str | None, crawl: str | None, key: str | None) -> Wish:
        number = state_number(state)
        queues: Rows | None = None
        if host is not None:
            home = self.host_named(host)
            queues = np.array(list(self.tables.queues_of(home)) if home != NONE else [], np.uint32)
        if key is not None:
            keyed = self.chosen(key, crawl)
            queues = keyed if queues is None else np.intersect1d(queues, keyed)
        return Wish(number, self._crawl_row(crawl) if crawl is not None else None, queues)

    def urls(
        self,
        *,
        state: str | None,
        host: str | None,
        crawl: str | None,
        key: str | None,
        after: str | None,
        limit: int,
    ) -> Reading[Page[UrlStatus]]:
        """A piece of the list of URLs, in the order of their keys."""
        limit = arguments.whole("limit", limit, 1, LISTED_ROWS_MAX)
        wish = self._wish(state, host, crawl, key)
        return listed(self.tables, wish, self._woken, after_of(after), limit, self.token_of)

    def given_up(self, error: str | None, host: str | None, after: Key | None) -> Reading[tuple[Heads, Key | None]]:
        """Heads of dead letters for `retry`, some at a time, and the key behind them. Raises SettingsError."""
        if error is not None:
            arguments.text("error", error)
        wish = self._wish(State.GONE.value if error is None else None, host, None, None)
        mask_of = partial(self.given_up_mask, error=error)
        return gathered(self.tables, wish, self._woken, after, RETRIED_ROWS_AT_ONCE, mask_of)

    def count(self, *, state: str | None, host: str | None, crawl: str | None, key: str | None) -> Reading[int]:
        """How many URLs match."""
        if host is crawl is key is None:
            number = state_number(state)
            if number != 0:
                return self.tables.urls.accepted() if number is None else self.tables.urls.counts[number]
        count = 0

        def take(heads: Heads) -> bool:
            nonlocal count
            count += len(heads)
            return False

        yield from chosen_heads(self.tables, self._wish(state, host, crawl, key), self._woken, take)
        return count

    def statistics(self, now: Instant) -> Generator[None, None, dict[str, object]]:
        """Counts of URLs, hosts, errands and fetches, under the names of `status --json`. It yields between its
        steps."""
        census = yield from self._census(now)
        return self._statistics(census.errands, census)

    def metrics(self, now: Instant) -> Generator[None, None, dict[str, object]]:
        """Numbers of this process, of a census and of robots.txt files, beside those of `statistics`. It yields between
        its steps."""
        census = yield from self._census(now)
        files = yield from robots_counts(self.tables, max(now, self.now))
        return {
            "statistics": self._statistics(census.errands, census),
            "front": len(self.turns.ready),
            "busiest": census.busiest,
            "largest": {name: count for count, name in census.largest},
            "robots_status": files.by_status,
            "robots_age_p95": files.age_p95,
            "found": self.delays.found,
            "due": self.delays.due,
        }

    def standing(self, now: Instant) -> Standing:
        """Counts of hosts that hold URLs, as the schedule knows them."""
        return standing_of(self.tables, self.turns, max(now, self.now), self.network.until)

    def tallies(self) -> dict[str, object]:
        """The same without counts of hosts."""
        return self._statistics(self.errands(), None)

    def _statistics(self, errands: int, census: Census | None) -> dict[str, object]:
        return accounts.statistics(
            self.tables,
            errands=errands,
            census=census,
            shared=self.turns.shared,
            recent_bytes=self._recent.bytes(),
        )

    def host(self, name: str, now: Instant) -> HostStatus | None:
        """One host by any spelling; None for an unknown one."""
        row = self.host_named(name)
        if row == NONE:
            return None
        return accounts.host_statuses(self.tables, (row,), max(now, self.now), self.turns)[0]

    def crawl_delays(self, authorities: Sequence[str]) -> list[float | None]:
        """The Crawl-delay of each authority in seconds, 0 for none; None where no rules were read. Raises
        SettingsError."""
        found: list[float | None] = []
        robots = self.tables.robots
        for name in arguments.authorities(authorities, robots.by_name):
            authority = robots.by_name.get(name)
            ruled = authority is not None and authority.state == RobotsState.RULES
            found.append(robots.rulebook.crawl_delay(authority.digest) if authority is not None and ruled else None)
        return found

    def robots_allow(self, urls: Sequence[str]) -> list[bool | None]:
        """Whether robots.txt allows each URL; None for no URL, and where that of its authority was not read."""
        found: list[bool | None] = []
        rulebook = self.tables.robots.rulebook
        rulebook.begin_call()
        for url in spell([arguments.text("url", url) for url in arguments.listed("urls", urls)]):
            authority = self.tables.robots.by_name.get(authority_of(url)) if url is not None else None
            state = authority.state if authority is not None else RobotsState.UNKNOWN
            if url is None or authority is None or state in (RobotsState.UNKNOWN, RobotsState.RETRYING):
                found.append(None)
            elif state == RobotsState.RULES:
                digest = authority.digest
                rules = rulebook.rules(digest)
                if rules is None:
                    rules = Rules.parse(rulebook.body(digest)).of(rulebook.agent)
                    rulebook.keep(digest, rules)
                found.append(rules.allowed(url))
            else:
                found.append(state == RobotsState.ALLOW)
        return found

    def workers(self) -> list[WorkerStatus]:
        """The named workers with open leases, by name."""
        return accounts.workers(self.tables)

    def held(self, lease_id: int) -> LeaseBatch:
        """The open leases of one call, by its first token: the ones behind it with its holder and its deadline, which
        two calls at different instants cannot share. Empty where that token is not open."""
        lease_id = arguments.whole("lease_id", lease_id, 1, 2**64 - 1 - HELD_ROWS_MAX)
        tokens = np.arange(lease_id, lease_id + HELD_ROWS_MAX, dtype=np.uint64)
        found = self._by_token(tokens, bodies=False)
        held = {
            int(tokens[row]): (int(found.holders[row]), int(found.deadlines[row]))
            for row in np.flatnonzero(found.found).tolist()
        }
        for token, errand in self.tables.errands.open.items():
            if lease_id <= token < lease_id + HELD_ROWS_MAX:
                held[token] = (errand.holder, errand.deadline)
        wanted = held.get(lease_id)
        same = sorted(token for token, whose in held.items() if whose == wanted)
        return self._same_leases(np.array(same, np.uint64).tobytes())

    def verify(self) -> Verification:
        """Recounts everything from the records and compares it with the counters."""
        return accounts.recount(self.tables)

    def pressure(self) -> float:
        """How far the limit of URLs is used up: 1 and above asks callers to slow down."""
        limit = self.settings.max_urls
        counts = self.tables.urls.counts
        return (counts[QUEUED] + counts[WAITING] + counts[LEASED]) / limit if limit else 0.0

    def rest_everybody(self, now: Instant) -> None:
        """Lets every host that was visited rest one whole delay from now on, after the clock stepped back."""
        now = self._advance(now)
        hosts = self.tables.hosts
        if len(self.tables.cold):
            draft = self._draft(now)
            draft.add(Fact.COLD_REST, (OWN_SLOT, now, self.settings.delay))
            self._commit(draft, reserve=True)
            self.turns.shared.rest_all(self.tables.cold.floor_end())
        # A rest without a visit counts as one, too: it comes from a lost lease, whose holder may have fetched.
        visited = np.flatnonzero((hosts.ended[: hosts.count] > 0) | (hosts.rest_until[: hosts.count] > 0)).tolist()
        for first in range(0, len(visited), RESTS_PER_FRAME_MAX):
            draft = self._draft(now)
            for host in visited[first : first + RESTS_PER_FRAME_MAX]:
                clock = draft.clock(host)
                clock.rest_at_least(now + instant(max(clock.gap, self.settings.delay)))
            self._commit(draft, reserve=True)

    def __repr__(self) -> str:
        counts = self.tables.urls.counts
        return f"<Machine {counts[QUEUED]} queued, {counts[LEASED]} leased, {counts[DONE]} done at {rfc3339(self.now)}>"


def _lived_on(deadlines: npt.ArrayLike, last: Instant, now: Instant, passed: Instant | None) -> npt.NDArray[np.int64]:
    """Deadlines above `last` after an opening at `now`: the time left at the last logged instant, less the time that
    `passed` since; where that is not known, all of it."""
    left = np.asarray(deadlines, np.int64) - last
    return now + np.maximum(0, left - (passed or 0))
