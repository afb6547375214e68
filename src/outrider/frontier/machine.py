"""The state machine: `discover`, `lease`, `report` and every branch between them. A verb decides, logs, applies.

It waits for nothing and knows no clock, disk or random source: `now` (an instant) and the seed are arguments, the log
is given. Batches go through in columns; what is out of the ordinary (robots rules, redirects, trains, operators' rules)
is looked at URL by URL.
What it answers is durable once the log is synced through the LSN that stands beside the answer; `engine.py` does that.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from outrider import kernels
from outrider.clock import Instant, instant, rfc3339
from outrider.errors import SettingsError, StoreFullError
from outrider.frontier import accounts, arguments
from outrider.frontier.arrivals import NO_DUE, Arrival, Arrivals, Origin
from outrider.frontier.cards import Cards
from outrider.frontier.carried import Carrying
from outrider.frontier.draft import Draft
from outrider.frontier.errands import Judgement, Rulebook, after_answer, errand_of, judged, unanswered
from outrider.frontier.facts import FRAME_KIND, STREAMS, Compressor, Fact, Row, Texts, encode, no_texts
from outrider.frontier.hosts import (
    GROUPED,
    NONE,
    ROBOTS,
    RULED,
    VOIDED,
    Group,
    Rows,
    firsts_of,
    keyed_queue_hash,
    queue_hashes,
)
from outrider.frontier.leased import Leased, errand_lease
from outrider.frontier.lines import refusal
from outrider.frontier.operations import Operations
from outrider.frontier.politeness import rest_after, rests_after
from outrider.frontier.priority import PRIORITY_DEFAULT, Referrer, checked, priorities
from outrider.frontier.records import Record, extra_of
from outrider.frontier.revisit import retries_left, retry_seconds
from outrider.frontier.settings import FrontierSettings
from outrider.frontier.tables import (
    DONE,
    GONE,
    LEASED,
    PARKED,
    QUEUED,
    STATES,
    UNKNOWN,
    WAITING,
    Authority,
    Hand,
    Reason,
    RobotsState,
    Tables,
    by_value,
    lease_columns,
    robots_cells,
)
from outrider.frontier.turns import EMPTY, Turns
from outrider.journey import (
    Code,
    Explanation,
    HostStatus,
    Idle,
    Lease,
    LeaseBatch,
    Line,
    Link,
    Outcome,
    OutcomeBatch,
    Page,
    QueueStatus,
    Report,
    RequestId,
    RobotsAnswer,
    Settled,
    State,
    UrlStatus,
    Verdict,
    Verification,
)
from outrider.kernels.cards import HEAD
from outrider.limits import (
    CALL_ROWS_MAX,
    CLASSES,
    DEADLINES_KEPT_MAX,
    DROP_LOOKS_AT_CARDS,
    LEASES_LOST_MAX,
    LISTED_ROWS_MAX,
    METADATA_BYTES_MAX,
    OLDEST_DRAW_EVERY,
    OWN_SLOT,
    REDIRECT_HOPS_MAX,
    RESTS_PER_FRAME_MAX,
    RETRY_AFTER_SECONDS_MAX,
    ROBOTS_REFUSALS_PER_CALL_MAX,
    SLOTS,
    URL_BYTES_MAX,
    WAKES_PER_CALL_MAX,
)
from outrider.robots import Rules, verdict_of_status
from outrider.url import Scope, UrlBatch, authority_of, domain_spans, host_of, spell
from outrider.url.rules import Rules as UrlRules

FRAME_PAYLOAD_BYTES_MAX = kernels.FRAME_BYTES_MAX - kernels.FRAME_HEADER_BYTES
_VERBS = {"discover": 1, "lease": 2, "report": 3}
_CODES = tuple(Code)
_CODE_NUMBERS = {code: number for number, code in enumerate(_CODES)}
_NEW, _KNOWN = _CODE_NUMBERS[Code.NEW], _CODE_NUMBERS[Code.KNOWN]
_NOT_ALONE = ~np.uint8(VOIDED | GROUPED)  # flags of hosts that need a closer look
_OK, _STALE = Settled.OK, Settled.STALE
_NO_ROWS: Rows = np.zeros(0, np.uint32)
_NO_CODES: tuple[Code, ...] = ()


class LogOut(Protocol):
    """What the machine needs of a log."""

    def append(self, kind: int, payload: bytes, *, version: int = 1, codec: int = 0, reserve: bool = False) -> int:
        """Adds a frame; its LSN. reserve: it may go into what is held back for a full disk. Raises StoreFullError."""
        ...


class _Picks:
    """What a lease call has drawn: cards, the rows of their queues, and how long each has to wait in its train."""

    def __init__(self) -> None:
        self._cards: list[Cards] = []
        self._queues: list[Rows] = []
        self._gaps: list[Instant] = []
        self.count = 0

    def add(self, cards: Cards, queues: Rows, gap: Instant = 0) -> None:
        self._cards.append(cards)
        self._queues.append(queues)
        self._gaps.append(gap)
        self.count += len(cards)

    def columns(self, now: Instant) -> tuple[Cards, Rows, npt.NDArray[np.int64]]:
        """All of them, and the instants before which they must not be fetched."""
        cards = Cards.concatenate(self._cards)
        queues = self._queues[0] if len(self._queues) == 1 else np.concatenate([_NO_ROWS, *self._queues])
        not_before = np.full(len(cards), now, np.int64)
        if any(self._gaps):
            at = 0
            for some, gap in zip(self._queues, self._gaps, strict=True):
                not_before[at : at + len(some)] += np.arange(len(some)) * gap
                at += len(some)
        return cards, queues, not_before


class _Found(NamedTuple):
    """Leases by token, in columns, as `Leases.get` gives them."""

    found: npt.NDArray[np.bool_]
    queues: Rows
    deadlines: npt.NDArray[np.int64]
    holders: npt.NDArray[np.uint32]
    not_before: npt.NDArray[np.int64]
    cards: Cards


class Machine(Operations, Carrying):
    """One frontier. Not thread-safe: one caller at a time, which is `engine.py`'s business."""

    def __init__(
        self,
        tables: Tables,
        log: LogOut,
        settings: FrontierSettings,
        *,
        slot_key: bytes,
        seed: int = 0,
        errands: bool = False,
        keeps_lines: bool = False,
        owned: frozenset[int] | None = None,
    ) -> None:
        self.tables = tables
        self._owned = owned
        self.rules = settings.url_rules or UrlRules()
        self.settings = settings
        self.errands_mode = errands
        self.keeps_lines = keeps_lines
        self._log = log
        self._fingerprint_key = tables.fingerprint_key
        self._slot_key = slot_key
        self._compressor = Compressor()
        self.turns = Turns(tables, seed & ((1 << 64) - 1), settings.group)
        self._deadlines: list[tuple[Instant, int]] = []  # of errands
        self._rules = Rulebook(settings.user_agent)
        self._scopes: dict[int, Scope] = {}
        self._spans: dict[int, set[Scope]] = {}
        self._lined_up: dict[str, Authority] = {}
        self._recheck: list[Authority] = []
        self._lines_of_wakes: list[Line] = []
        self._woken: Instant = tables.now  # waiting URLs that were due by then are queued
        self.lsn = 0
        self.now: Instant = tables.now

    # -- opening ------------------------------------------------------------------------------------------------------

    def settle_all(self, now: Instant) -> None:
        """Build timetable and rings from the tables, after recovery.

        What was parked by robots rules is judged again, little by little: how far that had come is not in the log.
        """
        tables = self.tables
        while (at := tables.calendar.next()) is not None and at <= now:
            tables.wake(now, WAKES_PER_CALL_MAX)
        self._woken = now
        tables.drop_stalled(len(tables.stalled))
        tables.changed.clear()
        for token, authority in tables.errands.items():
            heapq.heappush(self._deadlines, (authority.deadline, token))
        for group in tables.queues.groups.values():
            hosts = tables.queues.host[group.queues]
            group.rest_until = max(group.rest_until, int(tables.hosts.rest_until[hosts].max()))
        for authority in tables.authorities.values():
            if authority.state == RobotsState.REFUSED and self.errands_mode:
                self._line_up(authority)
            if authority.state in (RobotsState.RULES, RobotsState.ALLOW):
                self._judge_later(authority, changed=True)
        tables.changed.clear()
        if self.turns.shared is not None:
            self.turns.shared.meet()  # all of them before the first is offered
        for first in range(0, tables.hosts.count, WAKES_PER_CALL_MAX):
            self.turns.touch(
                (np.arange(first, min(first + WAKES_PER_CALL_MAX, tables.hosts.count), dtype=np.uint32),), now
            )
        self.now = max(self.now, now)

    def open_facts(
        self, opening: tuple[int, Instant, Instant, str, Instant], now: Instant, passed: Instant | None
    ) -> int:
        """Log a new opening: leases of dead processes end and their hosts rest one whole delay; what was resting goes
        on resting, and leases of named workers live on for what they had left.

        passed: real time in microseconds since the last logged instant where it is known (same boot, or the caller's
        clock), else None.
        Returns how many leases ended.
        """
        tables = self.tables
        last = tables.now
        count = tables.hosts.count
        rests = tables.hosts.rest_until[:count] > last
        shared = self.turns.shared
        # How far the clock has moved on without time going by, as far as that is known.
        jump = max(0, now - last - (passed or 0))
        if shared is not None and jump:
            rests |= tables.hosts.ended[:count] > max(0, last - shared.gap_max)
        resting = np.flatnonzero(rests).tolist()
        dead: list[int] = np.frombuffer(tables.leases.of_holder(0), np.uint64).tolist()
        errands = [authority for authority in tables.errands.values() if authority.holder == 0]
        ended = len(dead) + len(errands)
        moved = self._moved_deadlines(now, passed)
        while len(moved[1]) > RESTS_PER_FRAME_MAX:
            # As with the rests below: found at the last logged instant, a deadline was moved too far, if anything.
            draft = self._draft(last)
            draft.add_columns(Fact.EXTEND, [column[:RESTS_PER_FRAME_MAX] for column in moved])
            moved = [column[RESTS_PER_FRAME_MAX:] for column in moved]
            self._commit(draft, reserve=True)
        while len(resting) + len(dead) > RESTS_PER_FRAME_MAX:
            # Before the opening itself and at the last logged instant: a crash in between finds hosts that rest longer.
            draft = self._draft(last)
            self._rest_on(draft, resting[:RESTS_PER_FRAME_MAX], now, passed)
            if not resting:
                self._lose(draft, dead[:RESTS_PER_FRAME_MAX], now)
                del dead[:RESTS_PER_FRAME_MAX]
            del resting[:RESTS_PER_FRAME_MAX]
            self._commit(draft, reserve=True)
        draft = self._draft(now)
        draft.add(Fact.OPENING, (OWN_SLOT, *opening))
        if not tables.crawls:
            draft.add(Fact.CRAWL, (OWN_SLOT, 0, "default", 1))
        draft.add(Fact.HOLDER, (OWN_SLOT, 0, "", opening[0]))
        self._rest_on(draft, resting, now, passed)
        self._lose(draft, dead, now)
        for authority in errands:
            self._lose_errand(draft, authority, now)
        if len(moved[1]):
            draft.add_columns(Fact.EXTEND, moved)
        for authority in tables.errands.values():
            old, new = authority.deadline, int(_lived_on(authority.deadline, last, now, passed))
            if authority.holder and old > last and new != max(old, now):
                draft.add(Fact.ERRAND, (authority.slot, authority.name, authority.token, new, authority.holder))
        self._commit(draft, reserve=True)
        self._revive(now)
        return ended

    def _moved_deadlines(self, now: Instant, passed: Instant | None) -> list[npt.NDArray[Any]]:
        """The columns of EXTEND for leases of named workers: deadlines are told by the clock that dated the log, and
        between two openings that clock may have jumped."""
        tables = self.tables
        tokens = np.frombuffer(tables.leases.tokens(), np.uint64)
        leases = self._by_token(tokens, bodies=False)
        last, old = tables.now, leases.deadlines
        new = _lived_on(old, last, now, passed)
        rows = np.flatnonzero((leases.holders != 0) & (old > last) & (new != np.maximum(old, now)))
        return [np.ascontiguousarray(leases.cards.heads["slot"][rows]), tokens[rows], new[rows]]

    def _rest_on(self, draft: Draft, hosts: Iterable[int], now: Instant, passed: Instant | None) -> None:
        """What was left of these hosts' rests at the last logged instant is rested from the opening on."""
        for host in hosts:
            clock = draft.clock(host)
            left = clock.rest_until - self.tables.now
            if passed is not None:
                clock.rest_until = now + max(0, left - passed)
            else:
                # Another boot: the wall clock may have jumped, so in doubt one whole delay, never more than what was
                # left.
                left = min(left, instant(max(clock.gap, self.settings.delay)))
                clock.rest_at_least(now + left)
            shared = self.turns.shared
            if shared is not None and clock.ended > max(0, self.tables.now - shared.gap_max):
                # The gap of its group counts from there: it moves along with the clock.
                clock.ended += max(0, now - self.tables.now - (passed or 0))

    def _revive(self, now: Instant) -> None:
        """URLs parked for a budget that has grown since go on."""
        limit = self.settings.max_pages_per_host
        tables = self.tables
        if not tables.counts[PARKED]:
            return
        hosts = np.arange(tables.hosts.count, dtype=np.uint32)
        parked = hosts[tables.spent.waiting(hosts) > 0]
        for host in parked.tolist():
            if limit is not None and tables.hosts.answered[host] >= limit:
                continue
            while len(cards := tables.spent.drain(host, WAKES_PER_CALL_MAX)):
                draft = self._draft(now)
                cards = self._living(cards)
                self._requeue(draft, cards, PARKED, now)
                self._commit(draft, reserve=True)

    def _living(self, cards: Cards) -> Cards:
        """The cards that are not void."""
        return cards.filter(~self.tables.void(cards.heads)) if self.tables.voids() else cards

    def _requeue(self, draft: Draft, cards: Cards, old: int, now: Instant) -> None:
        """Cards that nothing forbids any more: queued, or waiting for their time."""
        if not len(cards):
            return
        heads = cards.changed()
        heads["state"] = np.where(heads["due"] > now, WAITING, QUEUED)
        heads["reason"] = 0
        states = np.full(len(cards), old, np.uint8)
        draft.heads(cards.with_heads(heads), np.zeros(len(cards), np.uint64), states)

    # -- the three verbs ----------------------------------------------------------------------------------------------

    def discover(
        self, links: Iterable[str | Link] | UrlBatch, now: Instant, *, request_id: RequestId | None = None
    ) -> list[Code]:
        """One code per link. Raises SettingsError for a priority that is no number in [0, 1], StoreFullError before
        any change."""
        now = self._advance(now)
        known = self._repeated(request_id, "discover")
        if known is not None:
            return [_CODES[number] for number in known]
        if not isinstance(links, UrlBatch):
            links = list(links)
        _bounded(len(links), "links")
        self._wake(now)
        draft = self._draft(now)
        if isinstance(links, UrlBatch):
            arrivals = self._told_in_columns(links, draft)
        elif set(map(type, links)) <= {str}:
            arrivals = self._told_in_columns(self._spelled_batch(links), draft)
        else:
            origins = [Origin(crawl=draft.crawl(None))]
            some = [self._arrival(link, 0, origins[0], draft) for link in links]
            arrivals = Arrivals.of_links(some, origins, self._spelled_batch)
        answer = self._accept(arrivals, draft).tobytes()
        self._answered(draft, request_id, "discover", answer)
        self._commit(draft)
        return list(map(_CODES.__getitem__, answer))

    def _told_in_columns(self, urls: UrlBatch, draft: Draft) -> Arrivals:
        origins = [Origin(crawl=draft.crawl(None))]
        depths, told = arguments.depths(urls, 0), arguments.priorities(urls)
        return Arrivals.of_columns(self._ruled(urls), np.zeros(len(urls), np.intp), origins, depths, told)

    def lease(
        self,
        want: int,
        now: Instant,
        *,
        ttl_seconds: float = 60,
        per_queue: int = 1,
        crawl: str | None = None,
        key: str | None = None,
        worker: str | None = None,
        errands: bool = False,
        request_id: RequestId | None = None,
    ) -> LeaseBatch:
        """Up to `want` leases of queues whose clocks allow it now. Raises SettingsError for numbers that make no
        sense."""
        arguments.whole("want", want, 0, CALL_ROWS_MAX)
        arguments.whole("per_queue", per_queue, 1, CALL_ROWS_MAX)
        arguments.ttl(ttl_seconds)
        arguments.flag("errands", errands)
        for what, name in (("crawl", crawl), ("key", key), ("worker", worker)):
            arguments.name(what, name)
        tables = self.tables
        now = self._advance(now)
        self._wake(now)
        known = self._repeated(request_id, "lease")
        if known is not None:
            return self._same_leases(known)
        if errands and not self.turns.runs_errands:
            self.turns.runs_errands = True
            self.turns.touch([np.fromiter(self.turns.errands_at, np.uint32)], now)
        refusals = ROBOTS_REFUSALS_PER_CALL_MAX
        if self._recheck:
            refusals -= self._judge_again(now, refusals)
        draft = self._draft(now)
        holder = draft.holder(worker)
        first = self._next_token()
        deadline = now + instant(ttl_seconds)
        row = tables.crawl_rows.get(crawl) if crawl is not None else None
        pages_left = self._pages_left()
        picks = _Picks()
        asked: list[Authority] = []
        tried: list[Rows] = []
        taken: set[int] = set()  # hosts that a turn was taken of by a closer look
        groups: set[Group] = set()
        by_key = self.turns.queues_by_key(key, row) if key is not None and (crawl is None or row is not None) else None
        plain = per_queue == 1 and not self.errands_mode and self.settings.max_pages_per_host is None
        while (left := min(want - picks.count - len(asked), pages_left - picks.count)) > 0 and refusals > 0:
            if crawl is not None and row is None:
                break
            if by_key is not None:
                drawn, by_key = by_key[:left], by_key[left:]
                self.turns.ready.withdraw(drawn)
            else:
                drawn = np.frombuffer(self.turns.ready.draw(left, row), np.uint32)
            if not len(drawn):
                break
            hosts = tables.queues.host[drawn.astype(np.intp)]
            tried.append(hosts)
            alone = self._may_go(hosts, now) if plain else np.zeros(len(drawn), np.bool_)
            count = np.count_nonzero(alone)
            if count:
                chosen = drawn if count == len(drawn) else drawn[alone]  # each host once: it has no other queue
                found, cards = tables.backlog.take(chosen)
                picks.add(cards, chosen if len(cards) == count else chosen[found])
                if count == len(drawn):
                    continue
            for queue, host in zip(drawn[~alone].tolist(), hosts[~alone].tolist(), strict=True):
                if refusals <= 0 or picks.count + len(asked) >= want or picks.count >= pages_left:
                    break
                if host in taken:
                    continue
                got, errand, judged_away = self._look_closely(
                    draft,
                    queue,
                    host,
                    now,
                    most=min(per_queue, want - picks.count - len(asked), pages_left - picks.count),
                    deadline=deadline,
                    crawl=row,
                    key=key,
                    errands=errands,
                    groups=groups,
                    refusals=refusals,
                    picks=picks,
                )
                refusals -= judged_away
                if got or errand is not None:
                    taken.add(host)
                if errand is not None:
                    asked.append(errand)
        cards, queues, not_before = picks.columns(now)
        self._log_leases(draft, cards, queues, not_before, asked, first, deadline, holder)
        if request_id is not None and (picks.count or asked):
            tokens = b"".join(struct.pack("<Q", first + place) for place in range(picks.count + len(asked)))
            self._answered(draft, request_id, "lease", tokens)
        try:
            self._commit(draft, reserve=True)
        except StoreFullError:
            tables.backlog.put(queues, cards)
            self.turns.touch(tried, now)
            raise
        if sum(map(len, tried)) > picks.count or taken:
            self.turns.touch(tried, now)
        errand_leases = [errand_lease(authority, tables, now) for authority in asked]
        leases = Leased(tables, first, cards, queues, not_before, deadline, errand_leases)
        for authority in asked:
            heapq.heappush(self._deadlines, (authority.deadline, authority.token))
        return LeaseBatch(leases, lines=self._take_lines(draft), lsn=self.lsn)

    def _may_go(self, hosts: Rows, now: Instant) -> npt.NDArray[np.bool_]:
        """Which of these hosts, each the first of its name, may be visited with nothing but their clocks to look at."""
        columns, places = self.tables.hosts, hosts.astype(np.intp)
        good: npt.NDArray[np.bool_] = columns.rest_until[places] <= now
        busy = columns.in_flight[places]
        if np.count_nonzero(busy):
            good &= busy == 0
        flags = columns.flags[places]
        if np.count_nonzero(flags):
            good &= (flags & _NOT_ALONE) == 0
        if self.turns.shared is not None:
            good &= self.turns.shared.may_go(hosts, now)
        return good

    def _look_closely(
        self,
        draft: Draft,
        queue: int,
        host: int,
        now: Instant,
        *,
        most: int,
        deadline: Instant,
        crawl: int | None,
        key: str | None,
        errands: bool,
        groups: set[Group],
        refusals: int,
        picks: _Picks,
    ) -> tuple[int, Authority | None, int]:
        """A host of which more must be known than its clock: (URLs picked, errand, URLs judged away)."""
        tables = self.tables
        columns = tables.hosts
        if columns.rest_until[host] > now:
            return 0, None, 0
        if columns.flags[host] & GROUPED:
            if self.turns.shared is not None and not self.turns.shared.may_go(np.array([host], np.uint32), now)[0]:
                return 0, None, 0
            most = 1  # a train would not leave the gaps that others of its groups have between them
        busy = int(columns.in_flight[host])
        line = self.turns.errands_at.get(host, ())
        errand = errand_of(line, now) if errands and not busy else None
        if errand is not None:
            return 0, errand, 0
        chosen = self._queue_of(host, crawl, key, now, groups)
        if chosen is None:
            return 0, None, 0
        gap = 0
        several = self.turns.capacity(chosen) > 1
        if most > 1 or several:
            gap = instant(
                max(float(columns.gap[host]), self._floor(chosen), self._rules.crawl_delay(self._authorities(host)))
            )
            # What may only be fetched when its lease is over would be lost, and after three times gone.
            most = min(most, 1 + (deadline - now - 1) // gap) if gap else most
        cards, judged_away = self._take(draft, chosen, host, most, refusals, now)
        if not len(cards):
            line = self.turns.errands_at.get(host, ())
            return (
                0,
                errand_of(line, now) if errands else None,
                judged_away,
            )  # what was just found to be asked for first
        picks.add(cards, np.full(len(cards), chosen, np.uint32), gap)
        if several:
            # Several at once: their beginnings keep the gap, for their ends are not known yet.
            draft.clock(host).rest_at_least(now + len(cards) * gap)
        tables.turn += 1
        tables.queues.served[chosen] = tables.turn & 0xFFFFFFFF
        columns.turns[host] += 1
        group = tables.queues.group_of.get(chosen)
        if group is not None:
            groups.add(group)
        return len(cards), None, judged_away

    def _log_leases(
        self,
        draft: Draft,
        cards: Cards,
        queues: Rows,
        not_before: npt.NDArray[np.int64],
        asked: Sequence[Authority],
        first: int,
        deadline: Instant,
        holder: int,
    ) -> None:
        tables, rows = self.tables, len(cards)
        if rows:
            heads = cards.changed()
            old = cards.heads["state"]
            assert old.tobytes().count(QUEUED) == rows
            heads["state"] = LEASED
            draft.add_columns(
                Fact.LEASE,
                [
                    heads["slot"],
                    tables.queues.hash[queues.astype(np.intp)],
                    heads["fingerprint"],
                    heads["order"],
                    np.arange(first, first + rows, dtype=np.uint64),
                    np.full(rows, deadline, np.int64),
                    np.full(rows, holder, np.uint32),
                    not_before,
                ],
                Hand(cards.with_heads(heads), old, queues),
            )
        for place, authority in enumerate(asked):
            token = first + rows + place
            self._name(draft, authority)
            draft.add(Fact.ERRAND, (authority.slot, authority.name, token, deadline, holder))

    def report(
        self,
        outcomes: Sequence[Outcome] | OutcomeBatch,
        links: Sequence[tuple[int, str | Link]] | UrlBatch,
        now: Instant,
        *,
        request_id: RequestId | None = None,
        watermark: tuple[str, bytes] | None = None,
    ) -> Report:
        """Ends leases by token; outcome and the links found in it are one frame. Old tokens change nothing and are
        told so."""
        now = self._advance(now)
        known = self._repeated(request_id, "report")
        if known is not None:
            return _report_of(known)
        told = arguments.told(outcomes)
        arguments.watermark(watermark)
        rows = len(told.tokens)
        extra = _by_outcome(links, rows)
        self._wake(now)
        tables = self.tables
        draft = self._draft(now)
        given = told.links()
        # Bodies only where somebody reads them: a URL that was fetched, and brought nothing else to tell, is its head.
        bodies = bool(given or extra or told.others)
        leases = self._by_token(told.tokens, bodies=bodies)
        if not bodies and np.count_nonzero(leases.cards.heads["flags"]):
            leases, bodies = self._by_token(told.tokens), True
        ok = leases.found.copy()
        rising = int(np.count_nonzero(told.tokens[1:] > told.tokens[:-1]))
        if rising < rows - 1 and len(np.unique(told.tokens)) < rows:
            first = np.zeros(rows, np.bool_)
            first[np.unique(told.tokens, return_index=True)[1]] = True
            ok &= first
        else:
            first = np.ones(rows, np.bool_)
        dead = ok & tables.void(leases.cards.heads) if tables.voids() else None
        hosts = tables.queues.host[leases.queues.astype(np.intp)]
        plain = ok & told.plain if told.others else ok.copy()
        if dead is not None:
            plain &= ~dead
        if tables.errands and any(token in tables.errands for token in told.tokens.tolist()):
            plain[:] = False  # an errand and a page may share a host: one clock, one order
        if np.count_nonzero(plain):
            flags = tables.hosts.flags[hosts.astype(np.intp)]
            if np.count_nonzero(flags):
                plain &= (flags & np.uint8(ROBOTS | RULED)) == 0
            some = np.sort(hosts if np.count_nonzero(ok) == rows else hosts[ok])
            if np.count_nonzero(some[1:] == some[:-1]):
                names, inverse = np.unique(hosts, return_inverse=True)
                often = np.bincount(inverse[ok], minlength=len(names)) > 1
                plain &= ~often[inverse]
            self._done_in_columns(draft, told, leases, hosts, plain, now)
        settled: list[Settled] = [_OK] * rows
        wanted: list[Arrival] = []
        origins: list[Origin] = []
        of_row: dict[int, int] = {}  # the origin of an outcome's links
        spans: dict[int, tuple[int, int]] = {}  # of the links of an outcome that come one by one
        targets: dict[int, int] = {}  # the redirect's target of an outcome, among `wanted`
        columns: list[tuple[int, UrlBatch]] = []
        lined: dict[int, tuple[int, int]] = {}
        busy_rows = [] if np.count_nonzero(plain) == rows else np.flatnonzero(~plain).tolist()
        if busy_rows and not bodies:
            leases = self._by_token(told.tokens)
        stale = 0
        for row in busy_rows:
            outcome = told.outcome(row)
            authority = tables.errands.get(outcome.token) if first[row] else None
            if authority is not None:
                self._errand_done(draft, authority, outcome, now)
                lined[row] = (authority.slot, row)
                continue
            if not ok[row]:
                settled[row] = _STALE
                stale += 1
                # Its links stay unread: whoever holds the URL now will report them.
                continue
            record = Record.of(leases.cards, row)
            if dead is not None and dead[row]:
                self._late(draft, record, outcome, int(leases.queues[row]), int(leases.not_before[row]), now)
                settled[row] = _STALE
                stale += 1
                continue
            origin = self._origin(record)
            lined[row] = (record.slot, row)
            target = self._page_done(draft, record, outcome, int(leases.queues[row]), int(leases.not_before[row]), now)
            if target is not None:
                targets[row] = len(wanted)
                wanted.append(replace(target, origin=len(origins)))
            of_row[row] = len(origins)
            origins.append(origin)
        if stale:
            draft.tally("stale", stale)
        for row in sorted({*given, *extra} if given or extra else ()):
            if settled[row] is not _OK or (row not in of_row and not plain[row]):
                continue
            if row not in of_row:
                of_row[row] = len(origins)
                origins.append(self._origin(Record.of(leases.cards, row)))
            origin_row = of_row[row]
            origin = origins[origin_row]
            start = len(wanted)
            for found in (given.get(row, ()), extra.get(row, ())):
                _bounded(len(found), "links of one outcome")
                if isinstance(found, UrlBatch):
                    columns.append((row, found))
                    continue
                for link in found if isinstance(found, Sequence) else found.strings():
                    wanted.append(self._arrival(link, origin_row, origin, draft))
            if len(wanted) > start:
                spans[row] = (start, len(wanted))
        codes, new_targets = self._accept_found(wanted, columns, of_row, origins, spans, targets, draft)
        for row, (slot, _) in lined.items():
            outcome = told.outcome(row)
            if outcome.line is not None:
                new = codes.get(row, b"").count(_NEW) + new_targets.get(row, 0)
                draft.line(slot, outcome.token, "pages", outcome.line, new)
            if outcome.politeness is not None:
                draft.line(slot, outcome.token, "politeness", outcome.politeness, -1)
        if watermark is not None:
            draft.add(Fact.WATERMARK, (OWN_SLOT, *watermark))
        if request_id is not None:
            listed = [codes.get(row, b"") for row in range(rows)]
            answer = msgspec.msgpack.encode([bytes(code is _OK for code in settled), listed])
            self._answered(draft, request_id, "report", answer)
        self._commit(draft, reserve=True)
        answers = (
            tuple(_codes_of(codes[row]) if row in codes else _NO_CODES for row in range(rows))
            if codes
            else (_NO_CODES,) * rows
        )
        return Report(tuple(settled), answers, self._take_lines(draft), self.lsn)

    def _by_token(self, tokens: npt.NDArray[np.uint64], *, bodies: bool = True) -> _Found:
        found, queues, deadlines, holders, not_before, heads, arena, offsets = lease_columns(
            self.tables.leases.get(tokens, bodies)
        )
        return _Found(found, queues, deadlines, holders, not_before, Cards(heads, arena, offsets))

    def _done_in_columns(
        self,
        draft: Draft,
        told: arguments.Told,
        leases: _Found,
        hosts: Rows,
        plain: npt.NDArray[np.bool_],
        now: Instant,
    ) -> None:
        """Outcomes that say no more than done: clocks and heads in columns. Each host stands there once."""
        tables = self.tables
        all_of_them = np.count_nonzero(plain) == len(plain)
        rows = hosts if all_of_them else hosts[plain]
        if not len(rows):
            return
        homes = rows.astype(np.intp)
        seconds = told.seconds if all_of_them else told.seconds[plain]
        statuses = told.statuses if all_of_them else told.statuses[plain]
        columns = tables.hosts
        ended = np.full(len(homes), now, np.int64)
        rests = rests_after(
            ended,
            seconds=seconds,
            floor=self.settings.delay,
            factor=self.settings.delay_factor,
            back_off=columns.back_off[homes],
            refused_at=columns.refused_at[homes],
        )
        answered = statuses != 0
        draft.add_columns(
            Fact.HOST_CELLS,
            [
                *(columns.slot[homes], columns.hash[homes], np.maximum(ended, columns.ended[homes])),
                *(np.maximum(rests.until, columns.rest_until[homes]), rests.gap, rests.reason, rests.back_off),
                *(columns.refused_at[homes], columns.answered[homes] + answered),
            ],
            Hand.of_rows(rows),
        )
        cards = leases.cards if all_of_them else leases.cards.take(np.flatnonzero(plain))
        heads = cards.changed()
        heads["state"], heads["reason"], heads["error"] = DONE, 0, 0
        heads["attempts"], heads["losses"] = 0, 0
        heads["status"] = statuses
        tokens = told.tokens if all_of_them else told.tokens[plain]
        queues = leases.queues if all_of_them else leases.queues[plain]
        draft.heads(cards.with_heads(heads), tokens, np.full(len(cards), LEASED, np.uint8), queues)
        count = int(np.count_nonzero(answered))
        if count:
            draft.tally("answered", count)

    # -- around them --------------------------------------------------------------------------------------------------

    def extend(self, tokens: Sequence[int], ttl_seconds: float, now: Instant) -> list[Settled]:
        """Open leases live until now + ttl_seconds."""
        arguments.ttl(ttl_seconds)
        given = arguments.tokens(tokens)
        now = self._advance(now)
        self._wake(now)
        draft = self._draft(now)
        deadline = now + instant(ttl_seconds)
        leases = self._by_token(given)
        answer: list[Settled] = []
        kept: list[tuple[int, int, int]] = []
        for row, token in enumerate(given.tolist()):
            authority = self.tables.errands.get(token)
            answer.append(_STALE if authority is None and not leases.found[row] else _OK)
            if authority is not None:
                draft.add(Fact.ERRAND, (authority.slot, authority.name, token, deadline, authority.holder))
                heapq.heappush(self._deadlines, (deadline, token))
            elif leases.found[row]:
                kept.append((int(leases.cards.heads["slot"][row]), token, deadline))
        if kept:
            slots, some, deadlines = zip(*kept, strict=True)
            draft.add_columns(
                Fact.EXTEND, [np.array(slots, np.uint16), np.array(some, np.uint64), np.array(deadlines, np.int64)]
            )
        self._commit(draft, reserve=True)
        return answer

    def release(self, tokens: Sequence[int], now: Instant) -> list[Settled]:
        """Give leases back unfetched: the URLs are queued again, their hosts keep the clocks they have."""
        return self._give_back(arguments.tokens(tokens), None, now)

    def defer(self, tokens: Sequence[int], until: Instant, now: Instant) -> list[Settled]:
        """Give leases back unfetched: the URLs wait until an instant."""
        arguments.whole("until", until, 0, arguments.INSTANT_MAX)
        return self._give_back(arguments.tokens(tokens), until, now)

    def _give_back(self, given: npt.NDArray[np.uint64], until: Instant | None, now: Instant) -> list[Settled]:
        now = self._advance(now)
        self._wake(now)
        draft = self._draft(now)
        tokens, firsts = np.unique(given, return_index=True)
        leases = self._by_token(tokens)
        answer: list[Settled] = [_STALE] * len(given)  # of a token named twice the second finds it ended
        for row, (token, first) in enumerate(zip(tokens.tolist(), firsts.tolist(), strict=True)):
            authority = self.tables.errands.get(token)
            if authority is not None:
                draft.add(Fact.ROBOTS, robots_cells(authority))  # as they are, which ends the errand
            if authority is not None or leases.found[row]:
                answer[first] = _OK
        if leases.found.any():
            cards = leases.cards.filter(leases.found)
            heads = cards.changed()
            heads["state"] = QUEUED
            if until is not None:
                heads["due"] = until
                heads["state"] = WAITING if until > now else QUEUED
            draft.heads(
                cards.with_heads(heads),
                tokens[leases.found],
                np.full(len(cards), LEASED, np.uint8),
                leases.queues[leases.found],
            )
        self._commit(draft, reserve=True)
        return answer

    def set_robots(self, authority: str, status: int | None, body: bytes, now: Instant) -> None:
        """Rules for an authority (scheme://host[:port]) from the caller, as its robots.txt answered. Raises
        SettingsError."""
        arguments.robots(RobotsAnswer(status, body))
        if not isinstance(authority, str):
            raise SettingsError(
                f"authority {authority!r:.80}: give it as https://example.org or http://example.org:8080"
            )
        now = self._advance(now)
        found = spell([authority.rstrip("/") + "/robots.txt"])[0]
        if found is None:
            raise SettingsError(f"authority {authority!r}: give it as https://example.org or http://example.org:8080")
        draft = self._draft(now)
        self._add_host(draft, host_of(found))
        self._commit(draft)
        owner = self.tables.authority(authority_of(found))
        draft = self._draft(now)
        self._robots_answer(draft, owner, RobotsAnswer(status, body), None, None, now)
        self._commit(draft)
        self._line_down(owner)

    def set_addresses(self, addresses: Mapping[str, str | None], now: Instant) -> int:
        """Hosts by name are at these addresses (None: not known any more) from their next offer on; how many of them
        were not before. Raises SettingsError."""
        now = self._advance(now)
        told = arguments.addresses(addresses)
        draft = self._draft(now)
        for name in told:
            self._add_host(draft, name)
        self._commit(draft)
        tables = self.tables
        rows = {tables.host_row(name): address for name, address in told.items()}
        rows = {row: address for row, address in rows.items() if tables.addresses.get(row, "") != address}
        draft = self._draft(now)
        for row, address in rows.items():
            draft.add(Fact.ADDRESS, (int(tables.hosts.slot[row]), int(tables.hosts.hash[row]), address))
        if self.turns.shared is not None:
            self.turns.shared.moved(rows)
        self._commit(draft)
        return len(rows)

    def note_projection(self, stream: str, length: int, lsn: int, now: Instant) -> None:
        """A projection is synced to this length and holds the lines up to this LSN. Raises SettingsError."""
        if stream not in STREAMS:
            raise SettingsError(f"stream {stream!r:.80}: there are {', '.join(STREAMS)}")
        arguments.whole("length", length, 0, arguments.INSTANT_MAX)
        arguments.whole("lsn", lsn, 0, arguments.INSTANT_MAX)
        draft = self._draft(self._advance(now))
        draft.add(Fact.PROJECTION, (OWN_SLOT, stream, length, lsn))
        self._commit(draft, reserve=True)

    def note_watermark(self, writer: str, value: bytes, now: Instant) -> None:
        """An archive writer is synced up to this opaque place. Raises SettingsError."""
        arguments.watermark((writer, value))
        draft = self._draft(self._advance(now))
        draft.add(Fact.WATERMARK, (OWN_SLOT, writer, value))
        self._commit(draft, reserve=True)

    def note_closing(self, state: str, now: Instant) -> None:
        """A clean stop; leases of this process end, which counts against no URL."""
        now = self._advance(now)
        draft = self._draft(now)
        tables = self.tables
        for authority in list(tables.errands.values()):
            if authority.holder == 0:
                self._rest_whole(draft, authority.busy, self.settings.delay, now)
                draft.add(Fact.ROBOTS, robots_cells(authority))
        tokens = np.frombuffer(tables.leases.of_holder(0), np.uint64)
        if len(tokens):
            leases = self._by_token(tokens)
            for queue in leases.queues.tolist():
                self._rest_whole(draft, int(tables.queues.host[queue]), self._floor(queue), now)
            heads = leases.cards.changed()
            heads["state"] = QUEUED
            draft.heads(leases.cards.with_heads(heads), tokens, np.full(len(tokens), LEASED, np.uint8))
        draft.add(Fact.CLOSING, (OWN_SLOT, tables.opening[0], state))
        self._commit(draft, reserve=True)

    def seen_content(self, digests: Sequence[bytes]) -> list[bool]:
        """Whether content with this digest was accepted for some URL."""
        hashes = np.array([self._content_hash(digest) for digest in digests], np.uint64)
        slots = (hashes >> np.uint64(52)).astype(np.uint16)
        return [bool(found) for found in self.tables.contents.check(slots, hashes)]

    def _content_hash(self, digest: bytes) -> int:
        number = int.from_bytes(kernels.fingerprints([digest.decode("latin-1")], self._fingerprint_key), "little")
        return number or 1

    def finished(self) -> bool:
        """No URL is queued, leased, waiting, in transit or to be judged again, and no errand is open or wanted."""
        counts = self.tables.counts
        waiting = counts[QUEUED] or counts[LEASED] or counts[WAITING] or self.errands() or self.tables.in_transit
        return not (waiting or self._recheck)

    def at_limit(self) -> bool:
        """No page may be leased any more (max_pages), or URLs are parked because a budget is used up."""
        if self.settings.max_pages is not None and self.tables.tallies.get("answered", 0) >= self.settings.max_pages:
            return not self.finished() or self._spent()
        return self.finished() and self._spent()

    def _spent(self) -> bool:
        """Whether URLs are parked for a budget; cards of deleted queues may still lie there."""
        return len(self.tables.spent) > 0 and self.tables.counts[PARKED] > 0

    def errands(self) -> int:
        """Errands that are open or lined up."""
        lined_up = sum(1 for authority in self._lined_up.values() if not authority.token and authority.held)
        return len(self.tables.errands) + lined_up

    def next_ready(self, now: Instant) -> Instant | None:
        """When something can be leased at the earliest; `now` when it can already; None when waiting alone brings
        nothing."""
        if self._pages_left() <= 0:
            # A lease that ends without an answer gives its page back.
            spent = self.tables.tallies.get("answered", 0) >= (self.settings.max_pages or 0)
            return None if spent else self._next_deadline(now)
        if self._recheck:
            return now
        times = [self.turns.next(now), self.tables.calendar.next(), self._next_deadline(now)]
        known = [at for at in times if at is not None]
        return max(now, min(known)) if known else None

    def _next_deadline(self, now: Instant) -> Instant | None:
        found = self.tables.leases.next()
        times = [found] if found >= 0 else []
        while self._deadlines:
            deadline, token = self._deadlines[0]
            authority = self.tables.errands.get(token)
            if authority is not None and authority.deadline == deadline:
                times.append(deadline)
                break
            heapq.heappop(self._deadlines)
        return max(now, min(times)) if times else None

    # -- looking ------------------------------------------------------------------------------------------------------

    def status(self, url: str, crawl: str | None = None) -> UrlStatus:
        """What is known of one URL, by any spelling, in the default crawl or the one named."""
        text = self._spelled([url])[0]
        row = self.tables.crawl_rows.get(crawl or "default")
        if text is None or row is None:
            return UrlStatus(text or url, State.UNKNOWN)
        _, records = self.records_of([text], row)
        if not records:
            return UrlStatus(text, State.UNKNOWN)
        return accounts.status_of(records[0], self.tables, self.token_of(records[0]))

    def explain(self, url: str, crawl: str | None, now: Instant) -> Explanation:
        """Everything known of one URL, and the one reason why it is not being fetched now."""
        now = max(now, self.now)
        text = self._spelled([url])[0]
        if text is None:
            raise SettingsError(f"{url!r:.200} is no http or https URL")
        row = self.tables.crawl_rows.get(crawl or "default")
        _, records = self.records_of([text], row) if row is not None else (None, [])
        fingerprint = int.from_bytes(kernels.fingerprints([text], self._fingerprint_key), "little")
        return accounts.explain(
            records[0] if records else None,
            text,
            self.tables,
            now,
            token=self.token_of(records[0]) if records else 0,
            slot=self.slot_of(host_of(text)),
            fingerprint=fingerprint,
            errands_at=self.turns.asking(),
            at_limit=self._pages_left() <= 0,
            shared=self.turns.shared,
        )

    def explain_idle(self, now: Instant) -> Idle:
        """Why nothing, or no more, can be leased now."""
        now = max(now, self.now)
        return accounts.idle(
            self.tables,
            now,
            next_at=self.next_ready(now),
            errands=self.errands(),
            errands_at=self.turns.asking(),
            at_limit=self._pages_left() <= 0,
            delay=self.settings.delay,
            shared=self.turns.shared,
        )

    def queues(self, crawl: str | None, after: str | None, limit: int) -> Page[QueueStatus]:
        """A piece of the list of queues."""
        return accounts.list_queues(self.tables, crawl, after, limit)

    def hosts(self, now: Instant, after: str | None, limit: int) -> Page[HostStatus]:
        """A piece of the list of hosts."""
        return accounts.list_hosts(self.tables, max(now, self.now), after, limit, self.turns.asking())

    def chosen_cards(
        self,
        *,
        state: str | None,
        host: str | None,
        crawl: str | None,
        key: str | None,
        after: str | None = None,
    ) -> Iterator[Cards]:
        """The newest cards of all URLs that are asked for, in the order of the ledger, in the states that time and
        leases have put them into."""
        tables = self.tables
        if state is not None and state not in [one.value for one in State]:
            raise SettingsError(f"state {state!r:.80}: give one of {', '.join(one.value for one in State)}")
        number = [one.value for one in STATES].index(state) if state is not None else None
        home = tables.host_row(host) if host is not None else None
        of_crawl = self._crawl_row(crawl) if crawl is not None else None
        of_key = self.chosen(key, crawl) if key is not None else None
        open_ones = set(accounts.leased_heads(tables)["order"].tolist())
        for cards in tables.ledger.scan(after=accounts.after_of(after)):
            if tables.voids():
                cards = self._living(cards)
            heads = cards.changed()
            heads["state"][(heads["state"] == WAITING) & (heads["due"] <= self._woken)] = QUEUED
            if open_ones:
                heads["state"][np.array([order in open_ones for order in heads["order"].tolist()], np.bool_)] = LEASED
            mask = np.ones(len(heads), np.bool_)
            if number is not None:
                mask &= heads["state"] == number
            if of_crawl is not None:
                mask &= heads["crawl"] == of_crawl
            if home is not None or of_key is not None:
                rows = tables.queues.find(np.ascontiguousarray(heads["queue"]))
                if home is not None:
                    mask &= tables.queues.host[rows] == home
                if of_key is not None:
                    mask &= np.isin(rows, of_key)
            if mask.any():
                yield cards.with_heads(heads).filter(mask)

    def urls(
        self,
        *,
        state: str | None,
        host: str | None,
        crawl: str | None,
        key: str | None,
        after: str | None,
        limit: int,
    ) -> Page[UrlStatus]:
        """A piece of the list of URLs, in the order of their keys."""
        arguments.whole("limit", limit, 1, LISTED_ROWS_MAX)
        found: list[UrlStatus] = []
        cursor: str | None = None
        for cards in self.chosen_cards(state=state, host=host, crawl=crawl, key=key, after=after):
            for row in range(len(cards)):
                if len(found) == limit:
                    return Page(found, cursor)
                record = Record.of(cards, row)
                token = self.token_of(record) if record.state == LEASED else 0
                found.append(accounts.status_of(record, self.tables, token))
                cursor = accounts.cursor_of(cards, row)
        return Page(found, None)

    def count(self, *, state: str | None, host: str | None, crawl: str | None, key: str | None) -> int:
        """How many URLs there are of a kind."""
        if host is crawl is key is None:
            if state is None:
                return self.tables.accepted()
            if state in [one.value for one in STATES]:
                return self.tables.counts[[one.value for one in STATES].index(state)]
        return sum(map(len, self.chosen_cards(state=state, host=host, crawl=crawl, key=key)))

    def statistics(self, now: Instant) -> dict[str, object]:
        """Counts of URLs, hosts, errands and what was fetched; the names of `status --json`."""
        return accounts.statistics(
            self.tables, now, errands=self.errands(), errands_at=self.turns.asking(), shared=self.turns.shared
        )

    def verify(self) -> Verification:
        """Recount everything from the records and hold it against the counters."""
        return accounts.recount(self.tables)

    def pressure(self) -> float:
        """How far the limit of URLs is used up: 1 and above asks callers to slow down."""
        limit = self.settings.max_urls
        counts = self.tables.counts
        return (counts[QUEUED] + counts[WAITING] + counts[LEASED]) / limit if limit else 0.0

    # -- time ---------------------------------------------------------------------------------------------------------

    def _advance(self, now: Instant) -> Instant:
        """Time never goes back: a clock that steps back finds it standing still, and every host resting one whole
        delay."""
        self.now = now = max(now, self.now)
        return now

    def rest_everybody(self, now: Instant) -> None:
        """The clock stepped back: in doubt every host that was visited rests one whole delay from now on."""
        now = self._advance(now)
        hosts = self.tables.hosts
        # A lost lease rests its host, too: somebody may have been there.
        visited = np.flatnonzero((hosts.ended[: hosts.count] > 0) | (hosts.rest_until[: hosts.count] > 0)).tolist()
        for first in range(0, len(visited), RESTS_PER_FRAME_MAX):
            draft = self._draft(now)
            for host in visited[first : first + RESTS_PER_FRAME_MAX]:
                clock = draft.clock(host)
                clock.rest_at_least(now + instant(max(clock.gap, self.settings.delay)))
            self._commit(draft, reserve=True)

    def _wake(self, now: Instant) -> None:
        """What time alone changes: waiting URLs become queued, leases expire, resting hosts become ready."""
        tables = self.tables
        lost: list[int] = []
        if 0 <= tables.leases.next() <= now:
            lost = np.frombuffer(tables.leases.expire(now, WAKES_PER_CALL_MAX), np.uint64).tolist()
        errands: list[Authority] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            deadline, token = heapq.heappop(self._deadlines)
            authority = tables.errands.get(token)
            if authority is not None and authority.deadline == deadline:
                errands.append(authority)
        if lost or errands:
            draft = self._draft(now)
            self._lose(draft, lost, now)
            for authority in errands:
                self._lose_errand(draft, authority, now)
            try:
                self._commit(draft, reserve=True)
            except StoreFullError:
                for authority in errands:
                    heapq.heappush(self._deadlines, (authority.deadline, authority.token))
                raise
            self._lines_of_wakes += draft.lines
        woken = tables.wake(now, WAKES_PER_CALL_MAX)
        at = tables.calendar.next() if len(tables.calendar) else None
        self._woken = now if at is None or at > now else at - 1
        if woken:
            self._settle(now)
        self.turns.wake(now)
        tables.drop_stalled(WAKES_PER_CALL_MAX)

    def _take_lines(self, draft: Draft) -> tuple[Line, ...]:
        """The lines of this call, behind those that waking left for the next call that answers with lines."""
        lines, self._lines_of_wakes = (*self._lines_of_wakes, *draft.lines), []
        return lines

    def _floor(self, queue: int) -> float:
        """The least gap in seconds behind a request of a queue."""
        rules = self.tables.queues.rules.get(queue)
        return self.settings.delay if rules is None or rules.delay is None else rules.delay

    def _rest_whole(self, draft: Draft, host: int, floor: float, now: Instant) -> None:
        """A lease ends without a report: its host rests one whole delay, for somebody may have fetched just now."""
        if host == NONE:
            return
        clock = draft.clock(host)
        delay = self._rules.crawl_delay(self._authorities(host))
        clock.rest_at_least(now + instant(max(clock.gap, floor, delay)))
        if self.turns.shared is not None:
            clock.ended = max(clock.ended, now)  # in doubt; the gaps of its groups count from there

    def _lose(self, draft: Draft, tokens: Sequence[int], now: Instant) -> None:
        """Their holders died or let them expire. The third time in a row a URL is gone: it may be what kills its
        holders."""
        if not tokens:
            return
        given = np.array(tokens, np.uint64)
        leases = self._by_token(given)
        dead = self.tables.void(leases.cards.heads)
        for row, token in enumerate(given.tolist()):
            queue = int(leases.queues[row])
            draft.tally("lost", 1)
            self._rest_whole(draft, int(self.tables.queues.host[queue]), self._floor(queue), now)
            record = Record.of(leases.cards, row)
            record.losses = min(record.losses + 1, 255)
            if record.losses >= LEASES_LOST_MAX and not dead[row]:
                self._move(draft, record, GONE, Reason.LOST, error="lost")
                draft.error("lost")
                self._refusal_line(draft, record, now, outcome="error", error="lost")
            else:
                record.state = QUEUED
            draft.record(record, LEASED, token=token)

    def _lose_errand(self, draft: Draft, authority: Authority, now: Instant) -> None:
        draft.tally("lost", 1)
        self._rest_whole(draft, authority.busy, self.settings.delay, now)
        draft.add(Fact.ROBOTS, robots_cells(authority))  # as they are, which ends the errand

    def _move(
        self,
        draft: Draft,
        record: Record,
        state: int,
        reason: int = 0,
        *,
        attempts: int | None = None,
        losses: int | None = None,
        status: int | None = None,
        error: str | None = None,
    ) -> None:
        """The record goes to another state; None: a cell stays as it is."""
        record.state, record.reason = state, int(reason)
        if attempts is not None:
            record.attempts = attempts
        if losses is not None:
            record.losses = losses
        if status is not None:
            record.status = status
        if error is not None:
            record.error = draft.error_number(error)

    # -- discover -----------------------------------------------------------------------------------------------------

    def _arrival(self, link: str | Link, origin_row: int, origin: Origin, draft: Draft) -> Arrival:
        if not isinstance(link, Link):
            return Arrival(link, origin_row, origin.depth, crawl=origin.crawl, seed=not origin.page)
        arguments.link(link)
        return Arrival(
            link.url,
            origin_row,
            max(link.depth, origin.depth) if origin.page else link.depth,
            link.hops,
            checked(link.priority) if link.priority is not None else None,
            link.not_before,
            origin.crawl if link.crawl is None else draft.crawl(link.crawl),
            link.key,
            link.referrer,
            _metadata(link.metadata),
            not origin.page and link.depth == 0 and link.referrer is None,
        )

    @staticmethod
    def _origin(record: Record) -> Origin:
        return Origin(record.url, _below(record.depth), record.crawl, record.slot, record.priority, True)

    def _scope(self, crawl: int) -> Scope:
        scope = self._scopes.get(crawl)
        if scope is None:
            s = self.settings
            seeds = self.tables.scope.get(crawl, {})
            scope = Scope.of_seeds(s.scope, seeds, s.include, s.exclude, s.max_depth)
            self._scopes[crawl] = scope
        return scope

    def _accept_found(
        self,
        wanted: Sequence[Arrival],
        columns: Sequence[tuple[int, UrlBatch]],
        of_row: Mapping[int, int],
        origins: Sequence[Origin],
        spans: Mapping[int, tuple[int, int]],
        targets: Mapping[int, int],
        draft: Draft,
    ) -> tuple[dict[int, bytes], dict[int, int]]:
        """Take the links of many outcomes in: the numbers of their codes by row of the outcome, and by row whether a
        redirect's target was new."""
        parts: list[Arrivals] = []
        if wanted:
            parts.append(Arrivals.of_links(wanted, origins, self._spelled_batch))
        for row, urls in columns:
            place = of_row[row]
            depths = arguments.depths(urls, origins[place].depth)
            told = arguments.priorities(urls)
            where = np.full(len(urls), place, np.intp)
            parts.append(Arrivals.of_columns(self._ruled(urls), where, origins, depths, told))
        if not parts:
            return {}, {}
        numbers = self._accept(Arrivals.concatenate(parts), draft).tobytes()
        found = {row: numbers[start:end] for row, (start, end) in spans.items()}
        start = len(wanted)
        for row, urls in columns:
            found[row] = found.get(row, b"") + numbers[start : start + len(urls)]
            start += len(urls)
        return found, {row: int(numbers[place] == _NEW) for row, place in targets.items()}

    def _accept(self, links: Arrivals, draft: Draft) -> npt.NDArray[np.uint8]:
        """Scope and test links against the seen-set; what is new becomes cards of the draft. A code per link."""
        urls, tables = links.urls, self.tables
        codes = np.full(len(urls), _CODE_NUMBERS[Code.INVALID], np.uint8)
        if not len(urls):
            return codes
        fit = self._wanted(links, codes, draft)
        rows = np.flatnonzero(fit)
        if not len(rows):
            return codes
        prints = urls.fingerprints(self._fingerprint_key)
        names = urls.host_fingerprints(self._fingerprint_key)
        crawls = links.crawl
        if len(rows) < len(urls):
            prints, names, crawls = prints[rows], names[rows], crawls[rows]
        hosts = tables.hosts.find(names)
        there = np.flatnonzero(hosts != NONE)
        if len(there) == len(rows):
            known = self._seen(crawls, tables.hosts.slot[hosts.astype(np.intp)], prints)
        else:
            known = np.zeros(len(rows), np.bool_)
            known[there] = self._seen(crawls[there], tables.hosts.slot[hosts[there]], prints[there])
        if tables.queues.voids:
            doubtful = np.flatnonzero(known)
            if len(doubtful):
                doubtful = doubtful[(tables.hosts.flags[hosts[doubtful]] & np.uint8(VOIDED)) != 0]
                if len(doubtful):
                    slots = tables.hosts.slot[hosts[doubtful]]
                    found, _ = tables.find(crawls[doubtful], slots, prints[doubtful])
                    known[doubtful[~found]] = False  # deleted since: it is as if it had never been seen
        codes[rows[known]] = _KNOWN
        fresh = np.flatnonzero(~known)
        if not len(fresh):
            return codes
        if len(fresh) > 1:
            # The first of equal ones is new, the others are known.
            firsts, _ = firsts_of(prints[fresh] ^ (crawls[fresh].astype(np.uint64) << np.uint64(1)))
            if len(firsts) < len(fresh):
                codes[rows[fresh]] = _KNOWN
                fresh = fresh[firsts]
        if self._owned is not None:
            fresh = self._send_abroad(links, rows, fresh, names, hosts, codes, draft)
            if not len(fresh):
                return codes
        self._welcome(links, rows[fresh], prints[fresh], names[fresh], hosts[fresh], codes, draft)
        return codes

    def _wanted(self, links: Arrivals, codes: npt.NDArray[np.uint8], draft: Draft) -> npt.NDArray[np.bool_]:
        """Which links are URLs of bearable length inside their crawl's scope; the others get their codes."""
        urls = links.urls
        too_long = urls.lengths > URL_BYTES_MAX
        too_long |= links.hops > REDIRECT_HOPS_MAX
        for row, link in links.odd.items():
            too_long[row] |= len(link.metadata) > METADATA_BYTES_MAX
        fit = urls.valid
        if np.count_nonzero(too_long):
            codes[fit & too_long] = _CODE_NUMBERS[Code.OVER_LIMIT]
            fit = fit & ~too_long
        s = self.settings
        if s.scope == "any" and not s.include and not s.exclude and s.max_depth is None:
            return fit
        for crawl, some in by_value(links.crawl):
            here = np.zeros(len(urls), np.bool_)
            here[some] = True
            here &= fit
            seeds = links.seed & urls.valid
            if s.scope != "any" and (seeds & here).any():
                self._widen(draft, crawl, urls.strings(np.flatnonzero(seeds & here)))
            outside = here & ~(np.asarray(self._scope(crawl).verdicts(urls, links.depth)) | links.seed)
            codes[outside] = _CODE_NUMBERS[Code.OUT_OF_SCOPE]
            fit = fit & ~outside
        return fit

    def _seen(self, crawls: Any, slots: Any, prints: Any) -> npt.NDArray[np.bool_]:
        """Which URLs have been accepted."""
        known = np.zeros(len(prints), np.bool_)
        for crawl, rows in by_value(crawls):
            seen = self.tables.seen.get(crawl)
            if seen is not None:
                found = seen.check(np.ascontiguousarray(slots[rows]), np.ascontiguousarray(prints[rows]))
                known[rows] = np.frombuffer(found, np.bool_)
        return known

    def _welcome(
        self,
        links: Arrivals,
        rows: npt.NDArray[np.intp],
        prints: Any,
        names: Any,
        hosts: Rows,
        codes: npt.NDArray[np.uint8],
        draft: Draft,
    ) -> None:
        """Cards for URLs that are new, and facts for hosts and queues that are."""
        tables, urls, now = self.tables, links.urls, draft.now
        slots = np.zeros(len(rows), np.uint16)
        there = hosts != NONE
        slots[there] = tables.hosts.slot[hosts[there]]
        homes = hosts
        if np.count_nonzero(there) < len(there):
            homes = self._new_hosts(urls, rows, names, hosts, slots, draft)
        crawls = links.crawl[rows]
        heads = np.zeros(len(rows), HEAD)
        heads["queue"] = queues = queue_hashes(names, crawls)
        keys: dict[int, str] = {}
        if links.odd:
            for place, row in enumerate(rows.tolist()):
                link = links.odd.get(row)
                if link is not None and link.key is not None and link.key != host_of(urls[row]):
                    keys[place] = link.key
                    queues[place] = keyed_queue_hash(int(names[place]), int(crawls[place]), tables.hash_of(link.key))
            heads["queue"] = queues
        known_queues = np.full(len(rows), NONE, np.uint32)
        known_queues[there] = tables.queues.find(queues[there])  # a new host has no queue yet
        queue_rows = known_queues
        new = np.flatnonzero(known_queues == NONE)
        if len(new):
            made = {(row[1]) for row in draft.rows.get(Fact.QUEUE, ())}
            firsts, which = firsts_of(queues[new])
            queue_rows = known_queues.copy()
            queue_rows[new] = tables.queues.count + which
            new = new[firsts]
            if made:
                new = np.array([place for place in new.tolist() if int(queues[place]) not in made], np.intp)
            if len(new):
                told = [keys.get(place, "") for place in new.tolist()] if keys else no_texts(len(new))
                draft.add_columns(
                    Fact.QUEUE,
                    [slots[new], queues[new], names[new], crawls[new], told],
                    Hand.of_rows(homes[new], first=tables.queues.count),
                )
        due = links.due[rows]
        heads["fingerprint"], heads["slot"], heads["crawl"] = prints, slots, crawls
        heads["order"] = np.arange(draft.order, draft.order + len(rows), dtype=np.uint64)
        draft.order += len(rows)
        heads["due"] = np.where(due == NO_DUE, now, due)
        told_priority = self._priorities(links, rows)
        heads["priority"] = told_priority
        heads["klass"] = np.minimum(told_priority * CLASSES, CLASSES - 1).astype(np.uint8)
        heads["depth"], heads["hops"] = links.depth[rows], links.hops[rows]
        heads["state"] = np.where(heads["due"] > now, WAITING, QUEUED)
        codes[rows] = _NEW
        limit = self.settings.max_pages_per_host
        if limit is not None:
            answered = np.zeros(len(rows), np.int64)
            answered[there] = tables.hosts.answered[hosts[there]]
            over = answered >= limit
            heads["state"][over], heads["reason"][over] = PARKED, Reason.BUDGET
            codes[rows[over]] = _CODE_NUMBERS[Code.PARKED]
        self._limit(heads, known_queues, rows, codes, draft)
        kept = heads["state"] != UNKNOWN
        if np.count_nonzero(kept) < len(kept):
            rows, heads, queue_rows = rows[kept], heads[kept], queue_rows[kept]
        if len(rows):
            draft.cards(self._bodies(links, rows, heads), queue_rows)

    def _limit(
        self,
        heads: Any,
        queues: Rows,
        rows: npt.NDArray[np.intp],
        codes: npt.NDArray[np.uint8],
        draft: Draft,
    ) -> None:
        """Back-pressure: what exceeds the limits of URLs is refused, or what is queued lowest makes room."""
        s = self.settings
        if s.when_full in ("spill", "delay") or (s.max_urls is None and s.max_urls_per_queue is None):
            return
        tables = self.tables
        held = tables.backlog.waiting(np.where(queues == NONE, 0, queues)).astype(np.int64)
        held[queues == NONE] = 0
        over = np.zeros(len(rows), np.bool_)
        if s.max_urls_per_queue is not None:
            seen_here: dict[int, int] = {}
            for place, queue in enumerate(heads["queue"].tolist()):
                seen_here[queue] = seen_here.get(queue, int(held[place])) + 1
                over[place] = seen_here[queue] > s.max_urls_per_queue
        if s.max_urls is not None:
            room = s.max_urls - (tables.counts[QUEUED] + tables.counts[WAITING] + tables.counts[LEASED])
            inside = np.flatnonzero(~over)
            over[inside[max(0, room) :]] = True
        if not over.any():
            return
        if s.when_full == "drop_lowest":
            full = np.flatnonzero(over & (queues != NONE))
            for queue, some in by_value(queues[full]):
                places = full[some]
                victims = self._lowest(draft, queue, heads["klass"][places].tolist())
                for place, victim in zip(places.tolist(), victims, strict=True):
                    if victim is None:
                        continue
                    self._move(draft, victim, GONE, Reason.DROPPED, error="dropped")
                    draft.record(victim, QUEUED)
                    draft.tally("dropped", 1)
                    over[place] = False
        heads["state"][over] = UNKNOWN
        codes[rows[over]] = _CODE_NUMBERS[Code.OVER_LIMIT]
        if over.any():
            draft.tally("refused", int(over.sum()))

    def _lowest(self, draft: Draft, queue: int, classes: Sequence[int]) -> list[Record | None]:
        """For each of these classes, of new URLs of one queue, the queued URL that comes last and is of a lower class,
        taken out; None where there is none. The queue is looked through once, however many they are."""
        backlog = self.tables.backlog
        # Of a long queue the worst of some that wait on disk will do: reading all of it for one place would not.
        long = int(backlog.waiting(np.array([queue], np.uint32))[0]) > DROP_LOOKS_AT_CARDS
        most = min(len(classes), DROP_LOOKS_AT_CARDS)
        cards = backlog.unload(queue, most) if long else backlog.drain(queue, DROP_LOOKS_AT_CARDS)
        heads = cards.heads
        last_first = np.lexsort((-heads["order"].astype(np.int64), -heads["due"], heads["klass"]))
        found = heads["klass"][last_first].tolist()
        victims: list[int | None] = []
        count = 0
        for klass in classes:
            lower = count < len(found) and found[count] < klass
            victims.append(count if lower else None)
            count += lower
        stay = np.ones(len(cards), np.bool_)
        stay[last_first[:count]] = False
        rest = cards.filter(stay)
        backlog.put(np.full(len(rest), queue, np.uint32), rest)
        dropped = cards.take(last_first[:count])
        draft.drawn.append((np.full(count, queue, np.uint32), dropped))
        return [None if victim is None else Record.of(dropped, victim) for victim in victims]

    def _priorities(self, links: Arrivals, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.float64]:
        """What was told, else what the function of priority says, else the default."""
        told = links.priority[rows]
        open_ones = np.isnan(told)
        if not open_ones.any():
            return told
        function = self.settings.priority
        if function is None:
            return np.where(open_ones, PRIORITY_DEFAULT, told)
        told = told.copy()
        for place, some in by_value(links.origin[rows]):
            mask = np.zeros(len(rows), np.bool_)
            mask[some] = True
            mask &= open_ones
            if not mask.any():
                continue
            origin = links.origins[place]
            page = Referrer(origin.referrer, max(origin.depth - 1, 0), origin.priority) if origin.page else None
            chosen = rows[mask]
            signals = {name: column[chosen] for name, column in links.signals.items()}
            batch = links.urls.take(chosen).with_columns(**signals, depth=links.depth[chosen])
            told[mask] = priorities(function, batch, page)
        return told

    def _new_hosts(
        self, urls: UrlBatch, rows: npt.NDArray[np.intp], names: Any, hosts: Rows, slots: Any, draft: Draft
    ) -> Rows:
        """Facts for hosts that are not known, in the order of their appearance, not of hashes: with one seed every
        store draws alike. Fills in their slots; the rows of all hosts, of new ones those that they will have."""
        places = np.flatnonzero(hosts == NONE)
        firsts, which = firsts_of(names[places])
        starts, ends = urls.hosts()
        chosen = rows[places[firsts]]
        starts, ends = starts[chosen], ends[chosen]
        texts = Texts(kernels.gather_spans(urls.arena, starts, ends), (ends - starts).astype(np.uint32))
        found = self._slots_of_spans(urls.arena, starts, ends)
        slots[places] = found[which]
        first = self.tables.hosts.count
        draft.add_columns(Fact.HOST, [found, names[places[firsts]], texts], Hand.of_rows(None, first=first))
        homes = hosts.copy()
        homes[places] = first + which
        return homes

    def _slots_of_spans(self, arena: bytes, starts: Any, ends: Any) -> npt.NDArray[np.uint16]:
        starts, ends = domain_spans(arena, np.ascontiguousarray(starts), np.ascontiguousarray(ends))
        numbers = np.frombuffer(kernels.hash_spans(arena, starts, ends, self._slot_key), np.uint64)
        return (numbers >> np.uint64(52)).astype(np.uint16)

    def slot_of(self, name: str) -> int:
        """The slot of a host: the top 12 bits of the keyed hash of its registrable domain, or of itself if it has
        none."""
        text = name.encode("ascii")
        return int(self._slots_of_spans(text, np.zeros(1, np.int64), np.array([len(text)], np.int64))[0])

    def _bodies(self, links: Arrivals, rows: npt.NDArray[np.intp], heads: Any) -> Cards:
        """The cards of links: their heads, and url, referrer and extra in one arena."""
        urls = links.urls
        starts, ends = urls.texts()
        referrers = [one.referrer.encode("utf-8", "surrogatepass") for one in links.origins]
        sizes = np.array([0, *map(len, referrers)], np.int64).cumsum() + len(urls.arena)
        origin = links.origin[rows]
        spans = np.zeros((len(rows), 3, 2), np.int64)
        spans[:, 0, 0], spans[:, 0, 1] = starts[rows], ends[rows]
        spans[:, 1, 0], spans[:, 1, 1] = sizes[origin], sizes[origin + 1]
        arena = [urls.arena, *referrers]
        if links.odd:
            size = int(sizes[-1])
            for place, row in enumerate(rows.tolist()):
                link = links.odd.get(row)
                if link is None:
                    continue
                if link.referrer is not None:
                    text = link.referrer.encode("utf-8", "surrogatepass")
                    spans[place, 1] = (size, size + len(text))
                    arena.append(text)
                    size += len(text)
                extra = extra_of(metadata=link.metadata)
                if extra:
                    spans[place, 2] = (size, size + len(extra))
                    arena.append(extra)
                    size += len(extra)
        lengths = spans[:, :, 1] - spans[:, :, 0]
        heads["url_bytes"], heads["referrer_bytes"], heads["extra_bytes"] = lengths[:, 0], lengths[:, 1], lengths[:, 2]
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(lengths.sum(axis=1), out=offsets[1:])
        flat = spans.reshape(-1, 2)
        body = kernels.gather_spans(
            b"".join(arena) if len(arena) > 1 else urls.arena,
            np.ascontiguousarray(flat[:, 0]),
            np.ascontiguousarray(flat[:, 1]),
        )
        return Cards(heads, body, offsets)

    def _spelled(self, urls: Sequence[str], base: str | None = None) -> list[str | None]:
        """Canonical texts under the rules of this store, None for what is no URL."""
        texts = spell(urls, base)
        return [None if text is None else self.rules.apply(text) for text in texts] if self.rules else texts

    def _spelled_batch(self, urls: Iterable[Any]) -> UrlBatch:
        return self._ruled(UrlBatch.of(urls, key=self._fingerprint_key))

    def _ruled(self, urls: UrlBatch) -> UrlBatch:
        if not self.rules:
            return urls
        texts = urls.strings()
        ruled = UrlBatch.of(self.rules.apply_batch(texts) if urls.valid.all() else map(self._ruled_text, texts))
        return ruled.with_columns(**urls.columns) if urls.columns else ruled

    def _ruled_text(self, text: str) -> str:
        return self.rules.apply(text) if text else text

    def _widen(self, draft: Draft, crawl: int, seeds: Iterable[str]) -> None:
        """The scope spans these seeds from here on."""
        known = self._spans_of(crawl)
        wider: list[str] = []
        for text in seeds:
            span = self._span(text)
            if span not in known:
                known.add(span)
                draft.add(Fact.SCOPE, (OWN_SLOT, crawl, text))
                wider.append(text)
        if wider:
            # Kept before the frame is applied; where it is not, `_commit` forgets it again.
            self._scopes[crawl] = self._scope(crawl).widened(*wider)

    def _span(self, seed: str) -> Scope:
        """What one seed spans: a host, a domain or a prefix."""
        return Scope.of_seeds(self.settings.scope, (seed,))

    def _spans_of(self, crawl: int) -> set[Scope]:
        spans = self._spans.get(crawl)
        if spans is None:
            spans = self._spans[crawl] = {self._span(seed) for seed in self.tables.scope.get(crawl, {})}
        return spans

    # -- between logs -------------------------------------------------------------------------------------------------

    def _send_abroad(
        self,
        links: Arrivals,
        rows: npt.NDArray[np.intp],
        fresh: npt.NDArray[np.intp],
        names: Any,
        hosts: Rows,
        codes: npt.NDArray[np.uint8],
        draft: Draft,
    ) -> npt.NDArray[np.intp]:
        """Links for slots of other logs go into the outbox of the slot they were found in; the others stay."""
        owned = self._owned or frozenset()
        stay: list[int] = []
        for place in fresh.tolist():
            row = int(rows[place])
            text = links.urls[row]
            target = self.slot_of(host_of(text)) if hosts[place] == NONE else -1
            if target == -1 or target in owned:
                stay.append(place)
                continue
            origin = links.origins[int(links.origin[row])]
            source = origin.source if origin.source >= 0 else min(owned or (0,))
            sequence = draft.sequence(source)
            odd = links.odd.get(row)
            told = links.priority[row]
            draft.add(
                Fact.OUTBOX,
                (
                    *(source, sequence, target, draft.crawl_name(int(links.crawl[row]))),
                    *(odd.key or "" if odd is not None else "", int(links.due[row])),
                    *(PRIORITY_DEFAULT if np.isnan(told) else float(told), int(links.depth[row])),
                    *(int(links.hops[row]), int(links.seed[row])),
                    origin.referrer if odd is None or odd.referrer is None else odd.referrer,
                    *(odd.metadata if odd is not None else b"", text),
                ),
            )
            codes[row] = _CODE_NUMBERS[Code.HELD]
        return np.array(stay, np.intp)

    def outbox(self, most: int) -> list[Row]:
        """Up to `most` links on their way to other logs, as OUTBOX rows, per source slot in order."""
        rows: list[Row] = []
        for home in self.tables.transit.values():
            rows.extend(home.outbox[number] for number in sorted(home.outbox)[: most - len(rows)])
            if len(rows) >= most:
                break
        return rows

    def receive(self, parcels: Sequence[Row], now: Instant) -> list[Code]:
        """Take in OUTBOX rows of other logs: each (source slot, sequence) once, however often it is brought."""
        now = self._advance(now)
        draft = self._draft(now)
        wanted: list[Arrival] = []
        taken: list[int] = []
        codes = [Code.KNOWN] * len(parcels)
        marks: dict[tuple[int, int], int] = {}
        for number, parcel in enumerate(parcels):
            source, sequence, target, crawl, key, due, priority, depth, hops, seed, referrer, metadata, url = parcel
            home = self.tables.transit.get(int(target))
            place = (int(target), int(source))
            if int(sequence) <= max(marks.get(place, 0), home.arrived.get(place[1], 0) if home is not None else 0):
                continue
            marks[place] = int(sequence)
            taken.append(number)
            wanted.append(
                Arrival(
                    str(url),
                    0,
                    int(depth),
                    int(hops),
                    float(priority),
                    None if due == NO_DUE else int(due),
                    draft.crawl(str(crawl)),
                    str(key) or None,
                    str(referrer),
                    bytes(metadata),
                    bool(seed),
                )
            )
        for (target, source), sequence in marks.items():
            draft.add(Fact.ARRIVED, (target, source, sequence))
        if wanted:
            numbers = self._accept(Arrivals.of_links(wanted, [Origin()], self._spelled_batch), draft)
            for number, code in zip(taken, numbers.tolist(), strict=True):
                codes[number] = _CODES[code]
        self._commit(draft)
        return codes

    def delivered(self, source: int, sequence: int, now: Instant) -> None:
        """The other log has everything from this slot up to this sequence. Raises SettingsError."""
        arguments.whole("source", source, 0, SLOTS - 1)
        arguments.whole("sequence", sequence, 0, arguments.INSTANT_MAX)
        draft = self._draft(self._advance(now))
        draft.add(Fact.DELIVERED, (source, sequence))
        self._commit(draft, reserve=True)

    # -- lease --------------------------------------------------------------------------------------------------------

    def _pages_left(self) -> int:
        limit = self.settings.max_pages
        if limit is None:
            return CALL_ROWS_MAX
        return limit - self.tables.tallies.get("answered", 0) - self.tables.counts[LEASED]

    def _next_token(self) -> int:
        """Epoch (the number of the opening) and counter: tokens grow within an opening and across openings."""
        return max(self.tables.token + 1, self.tables.opening[0] << 40)

    def _queue_of(self, host: int, crawl: int | None, key: str | None, now: Instant, taken: set[Group]) -> int | None:
        """The host's queue whose turn it is: the best class first, among equals the one that was served longest ago."""
        tables = self.tables
        queues = tables.queues
        # Every so many turns the class does not count, so that no crawl waits for ever behind a better one.
        fair = int(tables.hosts.turns[host]) % OLDEST_DRAW_EVERY == OLDEST_DRAW_EVERY - 1
        best: tuple[int, int, int] | None = None
        chosen: int | None = None
        rows = list(tables.queues_of(host))
        busy = int(tables.hosts.in_flight[host])
        for queue, klass in zip(rows, tables.backlog.best(np.array(rows, np.uint32)).tolist(), strict=True):
            if busy and busy >= self.turns.capacity(queue):
                continue
            if klass == EMPTY or (crawl is not None and queues.crawl[queue] != crawl):
                continue
            if key is not None and tables.key_of(queue) != key:
                continue
            group = queues.group_of.get(queue)
            if group is not None and group in taken:
                continue
            at = self.turns.free_at(queue, 0)
            if at is None or at > now:
                continue
            rank = (0 if fair else -klass, int(queues.served[queue]), queue)
            if best is None or rank < best:
                best, chosen = rank, queue
        return chosen

    def _take(self, draft: Draft, queue: int, host: int, most: int, budget: int, now: Instant) -> tuple[Cards, int]:
        """Up to `most` URLs of a queue that may be fetched now, and how many were judged away; at most `budget`."""
        tables = self.tables
        row = np.array([queue], np.uint32)
        picked: list[Cards] = []
        judged_away = 0
        limit = self.settings.max_pages_per_host
        answered = int(tables.hosts.answered[host])
        while len(picked) < most and judged_away < budget:
            if limit is not None and answered < limit <= answered + len(picked):
                break
            found, cards = tables.backlog.take(row)
            if not found[0]:
                break
            if limit is not None and answered >= limit:
                draft.drawn.append((row, cards))
                record = Record.of(cards, 0)
                self._move(draft, record, PARKED, Reason.BUDGET)
                draft.record(record, QUEUED)
                judged_away += 1
                continue
            if not self.errands_mode and not tables.hosts.flags[host] & ROBOTS:
                picked.append(cards)
                continue
            url = cards.url(0)
            authority = tables.authority(authority_of(url))
            verdict = self._judge(authority, url, now)
            if verdict is Judgement.GO:
                picked.append(cards)
                continue
            judged_away += 1
            if verdict is not Judgement.HOLD:
                draft.drawn.append((row, cards))
                self._refuse(draft, Record.of(cards, 0), authority, verdict, now)
                continue
            tables.held.put(np.array([authority.shelf], np.uint32), cards)
            tables.held_of[queue] = tables.held_of.get(queue, 0) + 1
            authority.held += 1
            authority.klass = max(authority.klass, int(cards.heads["klass"][0]))
            self._line_up(authority)
            if picked:
                break
        return Cards.concatenate(picked), judged_away

    def _authorities(self, host: int) -> Sequence[Authority]:
        return self.tables.authorities_of.get(host, ())

    def _name(self, draft: Draft, authority: Authority) -> None:
        """The authority is a fact before others name it."""
        if not authority.logged:
            draft.add(Fact.AUTHORITY, (authority.slot, authority.name))

    def _add_host(self, draft: Draft, name: str) -> None:
        """The host has a row and a queue from here on."""
        tables = self.tables
        number = tables.hash_of(name)
        if tables.hosts.row(number) != NONE:
            return
        slot = self.slot_of(name)
        draft.add(Fact.HOST, (slot, number, name))
        queue = int(queue_hashes(np.array([number], np.uint64), np.array([0], np.uint32))[0])
        draft.add(Fact.QUEUE, (slot, queue, number, 0, ""))

    def _judge(self, authority: Authority, url: str, now: Instant) -> Judgement:
        return judged(authority, url, now, errands=self.errands_mode, rules=self._rules)

    def _refuse(self, draft: Draft, record: Record, authority: Authority, verdict: Judgement, now: Instant) -> None:
        if verdict is Judgement.DEAD:
            self._move(draft, record, GONE, Reason.ERROR, error=authority.error)
            draft.record(record, QUEUED)
            draft.error(authority.error)
            self._refusal_line(draft, record, now, outcome="error", error=authority.error)
            return
        error = "robots_unreachable" if authority.state == RobotsState.REFUSED else None
        first = draft.error_text(record.error) not in ("robots", "robots_unreachable")
        self._move(draft, record, PARKED, Reason.ROBOTS, error=error or "robots")
        draft.record(record, QUEUED)
        if first:
            draft.error(error or "robots")
            self._refusal_line(draft, record, now, outcome="robots", error=error)

    def _refusal_line(self, draft: Draft, record: Record, now: Instant, *, outcome: str, error: str | None) -> None:
        line = refusal(
            record.url,
            now,
            outcome=outcome,
            error=error,
            depth=record.depth,
            referrer=record.referrer,
            priority=record.priority,
        )
        draft.line(record.slot, 0, "pages", line, 0)

    def _line_up(self, authority: Authority) -> None:
        """Line its errand up at the host that will be asked."""
        if authority.wanted != NONE or authority.token:
            return
        host = self.tables.host_row(host_of(authority.url))
        if host == NONE:
            return
        self.turns.line_up(authority, host)
        self._lined_up[authority.name] = authority
        self.tables.changed.append(np.array([host], np.uint32))

    def _line_down(self, authority: Authority) -> None:
        """Its errand is answered: whoever waits for it is looked at again."""
        tables = self.tables
        self._leave_line(authority)
        authority.klass = -1
        while authority.held:
            cards = tables.held.drain(authority.shelf, WAKES_PER_CALL_MAX)
            if not len(cards):
                break
            authority.held -= len(cards)
            queues = tables.queues.find(np.ascontiguousarray(cards.heads["queue"]))
            for queue in queues.tolist():
                tables.hold_less(queue)
            lives = ~tables.void(cards.heads)
            tables.backlog.put(queues[lives], cards.filter(lives))
            tables.changed.append(tables.queues.host[queues])
        authority.held = 0
        tables.changed.append(np.array([authority.host], np.uint32))
        self._settle(self.now)

    def _leave_line(self, authority: Authority) -> None:
        self._lined_up.pop(authority.name, None)
        host = self.turns.leave_line(authority)
        if host != NONE:
            self.turns.touch([np.array([host], np.uint32)], self.now)

    def _judge_later(self, authority: Authority, *, changed: bool) -> None:
        """What an authority refused is to be judged again: all of it when its rules changed, else what was refused
        because nobody answered."""
        tables = self.tables
        shelves = [authority.unreachable, authority.refused] if changed else [authority.unreachable]
        some = [shelf for shelf in shelves if int(tables.refused.waiting(np.array([shelf], np.uint32))[0])]
        if not some and not authority.again:
            return
        authority.again += some
        if authority.refused in some:
            authority.refused = tables.new_shelf()
        if authority.unreachable in some:
            authority.unreachable = tables.new_shelf()
        if authority not in self._recheck:
            self._recheck.append(authority)

    def _judge_again(self, now: Instant, most: int) -> int:
        """Parked URLs of authorities whose rules changed, a bounded number per call."""
        tables = self.tables
        draft = self._draft(now)
        taken: list[tuple[Authority, int, Cards]] = []
        refused_again: list[tuple[Authority, Cards]] = []
        count = 0
        while self._recheck and count < most:
            authority = self._recheck[-1]
            holds = False
            while authority.again and count < most and not holds:
                shelf = authority.again[-1]
                cards = tables.refused.drain(shelf, most - count)
                if not len(cards):
                    authority.again.pop()
                    continue
                taken.append((authority, shelf, cards))
                count += len(cards)
                cards = self._living(cards)
                go = np.zeros(len(cards), np.bool_)
                for row, url in enumerate(cards.urls()):
                    verdict = self._judge(authority, url, now)
                    if verdict is Judgement.HOLD:
                        holds = True  # its rules are out of date: it goes on when the new ones are here
                        break
                    go[row] = verdict is Judgement.GO
                if holds:
                    tables.refused.put(np.full(len(cards), shelf, np.uint32), cards)
                    taken.pop()
                    break
                self._requeue(draft, cards.filter(go), PARKED, now)
                if not go.all():
                    refused_again.append((authority, cards.filter(~go)))
            if holds or not authority.again:
                self._recheck.pop()
        try:
            self._commit(draft, reserve=True)
        except StoreFullError:
            for authority, shelf, cards in taken:
                tables.refused.put(np.full(len(cards), shelf, np.uint32), cards)
                if shelf not in authority.again:
                    authority.again.append(shelf)
                if authority not in self._recheck:
                    self._recheck.append(authority)
            raise
        for authority, cards in refused_again:
            tables.refused.put(np.full(len(cards), authority.refused, np.uint32), cards)
        return count

    def _same_leases(self, tokens: bytes) -> LeaseBatch:
        """The answer to a repeated call: the leases it gave that are still open."""
        given = np.frombuffer(tokens, np.uint64)
        found = self._by_token(given)
        leases: list[Lease] = []
        for row, token in enumerate(given.tolist()):
            authority = self.tables.errands.get(token)
            if authority is not None:
                leases.append(errand_lease(authority, self.tables, self.now))
            elif found.found[row]:
                one = slice(row, row + 1)
                deadline = int(found.deadlines[row])
                columns = Leased(
                    self.tables, token, found.cards.take([row]), found.queues[one], found.not_before[one], deadline, []
                )
                leases += columns.leases()
        return LeaseBatch(leases, lsn=self.lsn)

    # -- report -------------------------------------------------------------------------------------------------------

    def _rested(
        self,
        draft: Draft,
        host: int,
        outcome: Outcome,
        now: Instant,
        *,
        floor: float,
        crawl_delay: float,
        redirect: bool,
        page: bool,
        begun: Instant,
    ) -> None:
        """The host rests after a request: the largest of floor, factor, crawl delay, Retry-After and back-off.

        begun: no request of this lease can have ended earlier, whatever the clock of whoever made it says.
        """
        clock = draft.clock(host)
        ended = now if outcome.ended_at is None else max(begun, min(outcome.ended_at, now))
        # On a redirect Retry-After speaks of the target (RFC 9110 §10.2.3); otherwise it rests the whole host.
        retry_after = None if redirect else outcome.retry_after_seconds
        rest = rest_after(
            ended,
            seconds=outcome.seconds,
            floor=floor,
            factor=self.settings.delay_factor,
            crawl_delay=crawl_delay,
            retry_after=retry_after,
            refused=outcome.refused,
            back_off=clock.back_off,
            refused_at=clock.refused_at,
        )
        clock.ended = max(ended, clock.ended)
        clock.rest_at_least(rest.until)
        clock.gap, clock.reason = rest.gap, int(rest.reason)
        clock.back_off, clock.refused_at = rest.back_off, rest.refused_at
        if page and _answered(outcome):
            clock.answered += 1

    def _late(self, draft: Draft, record: Record, outcome: Outcome, queue: int, begun: Instant, now: Instant) -> None:
        """The report of a URL that was deleted while it was leased: its host rests all the same."""
        self._rest_page(draft, outcome, queue, begun, now)
        record.state = GONE
        draft.record(record, LEASED, token=outcome.token)

    def _rest_page(self, draft: Draft, outcome: Outcome, queue: int, begun: Instant, now: Instant) -> bool:
        """The host of a page rests; whether the page redirects."""
        host = int(self.tables.queues.host[queue])
        redirect = outcome.location is not None and outcome.verdict is Verdict.DONE
        self._rested(
            draft,
            host,
            outcome,
            now,
            floor=self._floor(queue),
            crawl_delay=self._rules.crawl_delay(self._authorities(host)),
            redirect=redirect,
            page=True,
            begun=begun,
        )
        return redirect

    def _page_done(
        self, draft: Draft, record: Record, outcome: Outcome, queue: int, begun: Instant, now: Instant
    ) -> Arrival | None:
        """What an outcome means for its URL; the target of a redirect."""
        host = int(self.tables.queues.host[queue])
        redirect = self._rest_page(draft, outcome, queue, begun, now)
        if _answered(outcome):
            draft.tally("answered", 1)
        if outcome.bytes_read:
            draft.tally("bytes", outcome.bytes_read)
        if outcome.duplicate:
            draft.tally("duplicates", 1)
        if outcome.error is not None:
            draft.error(outcome.error)
        token = outcome.token
        status = outcome.status or 0
        ended = now if outcome.ended_at is None else min(outcome.ended_at, now)
        found: Arrival | None = None
        if redirect:
            target = self._spelled([outcome.location or ""], record.url)[0]
            if target == record.url:
                self._move(draft, record, GONE, Reason.REDIRECT_SELF, status=status, error="redirect_self", losses=0)
                draft.record(record, LEASED, token=token)
                return None
            due = record.due
            if outcome.retry_after_seconds:
                due = ended + instant(min(outcome.retry_after_seconds, RETRY_AFTER_SECONDS_MAX))
            found = Arrival(
                target or outcome.location or "",
                0,
                record.depth,
                record.hops + 1,
                record.priority,
                due,
                record.crawl,
                referrer=record.url,
                seed=record.depth == 0 and target is not None and record.hops < REDIRECT_HOPS_MAX,
            )
        if outcome.verdict is Verdict.DONE:
            self._move(draft, record, DONE, attempts=0, losses=0, status=status, error=outcome.error or "")
        elif outcome.verdict is Verdict.AGAIN:
            record.due = outcome.at if outcome.at is not None else now
            state = WAITING if record.due > now else QUEUED
            self._move(draft, record, state, attempts=0, losses=0, status=status, error="")
        elif outcome.verdict is Verdict.GONE:
            reason = Reason.STATUS if outcome.status is not None else Reason.ERROR
            self._move(draft, record, GONE, reason, losses=0, status=status, error=outcome.error or "")
        else:
            self._retry(draft, record, outcome, host, ended)
        whole = False
        if outcome.verdict not in (Verdict.GONE, Verdict.RETRY):
            before = (record.digest, record.etag, record.modified, record.metadata)
            record.digest = outcome.digest or record.digest
            record.etag, record.modified = outcome.etag or "", outcome.last_modified or ""
            if outcome.metadata is not None:
                record.metadata = _metadata(outcome.metadata)
            whole = before != (record.digest, record.etag, record.modified, record.metadata)
            if whole and record.digest:
                record.content = self._content_hash(record.digest)
        draft.record(record, LEASED, token=token, whole=whole)
        return found

    def _retry(self, draft: Draft, record: Record, outcome: Outcome, host: int, ended: Instant) -> None:
        attempt = min(record.attempts + 1, 65_535)
        status, error = outcome.status or 0, outcome.error or ""
        if not retries_left(attempt):
            self._move(
                draft, record, GONE, Reason.ERROR, attempts=attempt, losses=0, status=status, error=error or "retries"
            )
            return
        wait = outcome.after_seconds if outcome.after_seconds is not None else retry_seconds(attempt)
        record.due = max(ended + instant(max(0.0, wait)), draft.clock(host).rest_until)
        state = WAITING if record.due > draft.now else QUEUED
        self._move(draft, record, state, attempts=attempt, losses=0, status=status, error=error)

    def _errand_done(self, draft: Draft, authority: Authority, outcome: Outcome, now: Instant) -> None:
        host = authority.busy if authority.busy != NONE else authority.host
        answer = outcome.robots or RobotsAnswer(outcome.status)
        self._robots_answer(draft, authority, answer, outcome.error, outcome.retry_after_seconds, now)
        rules = Rules.parse(answer.body) if verdict_of_status(answer.status) == "rules" else None
        crawl_delay = self._rules.crawl_delay(self._authorities(host))
        if rules is not None and host == authority.host:
            crawl_delay = max(crawl_delay, rules.crawl_delay(self.settings.user_agent) or 0.0)
        redirect = verdict_of_status(answer.status) == "redirect"
        begun = draft.clock(host).ended
        self._rested(
            draft,
            host,
            outcome,
            now,
            floor=self.settings.delay,
            crawl_delay=crawl_delay,
            redirect=redirect,
            page=False,
            begun=begun,
        )

    def _robots_answer(
        self,
        draft: Draft,
        authority: Authority,
        answer: RobotsAnswer,
        error: str | None,
        retry_after: float | None,
        now: Instant,
    ) -> None:
        found = after_answer(authority, answer, error, retry_after, now, retries=self.errands_mode)
        self._name(draft, authority)
        draft.add(Fact.ROBOTS, found.row(authority))
        if found.asks_next is not None:
            self._add_host(draft, found.asks_next)
        body = found.body
        if body is None:
            return
        delay = Rules.parse(body).crawl_delay(self.settings.user_agent) if body else None
        if delay:
            # It counts from the last request to the host on, also where a redirect led to the rules of another one.
            clock = draft.clock(authority.host)
            if clock.ended:
                clock.rest_at_least(clock.ended + instant(delay))
        digest = 0
        if body:
            digest = int.from_bytes(kernels.fingerprints([body.decode("latin-1")], self._fingerprint_key), "little")
        if digest != authority.digest or body != authority.body:
            draft.add(Fact.RULES, (authority.slot, authority.name, digest, body))

    # -- committing ---------------------------------------------------------------------------------------------------

    def _forget_deadlines(self) -> None:
        """Errands that ended leave their deadlines behind; with long leases they would pile up for a day."""
        errands = self.tables.errands
        if len(self._deadlines) > 2 * len(errands) + DEADLINES_KEPT_MAX:
            self._deadlines = [(authority.deadline, token) for token, authority in errands.items()]
            heapq.heapify(self._deadlines)

    def _draft(self, now: Instant) -> Draft:
        return Draft(self.tables, now, keeps_lines=self.keeps_lines)

    def _repeated(self, request_id: RequestId | None, verb: str) -> bytes | None:
        if request_id is None:
            return None
        arguments.request(request_id)
        client, sequence = request_id
        window = self.tables.requests.get(client)
        known = window.get(sequence) if window is not None else None
        if known is None:
            return None
        if known[0] != _VERBS[verb]:
            raise SettingsError(
                f"request_id {request_id!r} was used for another verb: give each call a sequence of its own"
            )
        return known[1]

    def _answered(self, draft: Draft, request_id: RequestId | None, verb: str, answer: bytes) -> None:
        if request_id is not None:
            draft.add(Fact.REQUEST, (OWN_SLOT, request_id[0], request_id[1], _VERBS[verb], answer))

    def _commit(self, draft: Draft, *, reserve: bool = False) -> None:
        """Log, then apply; the same `apply` replays the frame after a crash."""
        blocks = draft.blocks()
        if blocks:
            payload = encode(draft.now, [block for block, _ in blocks])
            if len(payload) > FRAME_PAYLOAD_BYTES_MAX:
                self._take_back(draft)
                raise SettingsError(f"{len(payload)} bytes in one call; cut it into smaller ones")
            packed_payload, codec = self._compressor.pack(payload)
            try:
                self.lsn = self._log.append(FRAME_KIND, packed_payload, codec=codec, reserve=reserve)
            except StoreFullError:
                self._take_back(draft)
                raise
            for (kind, values), hand in blocks:
                self.tables.apply(kind, values, hand)
            self.tables.now = draft.now
            if Fact.ROBOTS in draft.rows or Fact.ERRAND in draft.rows:
                self._errands_changed(draft)
        self._settle(draft.now)

    def _take_back(self, draft: Draft) -> None:
        """The draft is not logged: what it drew goes back, and scopes are those of the tables."""
        self._forget_scopes()
        for queues, cards in draft.drawn:
            self.tables.backlog.put(queues, cards)

    def _forget_scopes(self) -> None:
        """They are made anew from the tables."""
        self._scopes.clear()
        self._spans.clear()

    def _settle(self, now: Instant) -> None:
        """Timetable and rings follow what was applied."""
        changed, self.tables.changed = self.tables.changed, []
        if changed:
            self.turns.touch(changed, now)

    def _errands_changed(self, draft: Draft) -> None:
        self._forget_deadlines()
        for row in draft.rows.get(Fact.ROBOTS, ()):
            self._robots_changed(self.tables.authorities[row[1]], draft)
        for row in draft.rows.get(Fact.ERRAND, ()):
            self.turns.leave_line(self.tables.authorities[row[1]])

    def _robots_changed(self, authority: Authority, draft: Draft) -> None:
        changed = any(row[1] == authority.name for row in draft.rows.get(Fact.RULES, ()))
        if self.errands_mode and authority.held and unanswered(authority, draft.now):
            # Another hop or attempt, or the errand was lost: who waits goes on waiting, in the line of the next host.
            self._leave_line(authority)
            self._line_up(authority)
            if authority.wanted != NONE:
                self.turns.touch([np.array([authority.wanted], np.uint32)], draft.now)
            return
        self._line_down(authority)
        if authority.state == RobotsState.REFUSED and self.errands_mode:
            self._line_up(authority)  # tried again daily, while the crawl goes on
        if authority.state in (RobotsState.RULES, RobotsState.ALLOW) and self.tables.counts[PARKED]:
            self._judge_later(authority, changed=changed or authority.state == RobotsState.ALLOW)

    def __repr__(self) -> str:
        counts = self.tables.counts
        return f"<Machine {counts[QUEUED]} queued, {counts[LEASED]} leased, {counts[DONE]} done at {rfc3339(self.now)}>"


def _lived_on(deadlines: npt.ArrayLike, last: Instant, now: Instant, passed: Instant | None) -> npt.NDArray[np.int64]:
    """Deadlines above `last` as they are from an opening at `now` on: what was left at the last logged instant, less
    what `passed` since; where nobody knows how much, all of it."""
    left = np.asarray(deadlines, np.int64) - last
    return now + np.maximum(0, left - (passed or 0))


def _answered(outcome: Outcome) -> bool:
    return outcome.status is not None if outcome.answered is None else outcome.answered


def _metadata(metadata: object) -> bytes:
    if metadata is None:
        return b""
    try:
        return msgspec.json.encode(metadata)
    except (TypeError, ValueError, RecursionError) as error:
        raise SettingsError(f"metadata cannot be kept: {error}; give a mapping of JSON values") from error


def _below(depth: int) -> int:
    """The depth of what is found on a page of this depth; beyond 16 bits it counts no further."""
    return min(depth + 1, 65_535)


def _bounded(rows: int, what: str) -> None:
    if rows > CALL_ROWS_MAX:
        raise SettingsError(f"{rows} {what} in one call; cut it into calls of at most {CALL_ROWS_MAX}")


def _codes_of(numbers: bytes) -> tuple[Code, ...]:
    return tuple(map(_CODES.__getitem__, numbers))


def _by_outcome(
    links: Sequence[tuple[int, str | Link]] | UrlBatch, outcomes: int
) -> Mapping[int, list[str | Link] | UrlBatch]:
    """Links that name their outcome, by outcome. Raises SettingsError for one that is not there."""
    if isinstance(links, UrlBatch):
        rows = arguments.outcome_rows(links, outcomes)
        return {int(row): links.filter(rows == row) for row in np.unique(rows)}
    extra: dict[int, list[str | Link]] = {}
    for row, link in arguments.pairs(links):
        if not 0 <= row < outcomes:
            raise SettingsError(f"link {link!r} names outcome {row}; there are {outcomes}")
        extra.setdefault(row, []).append(link)
    return extra


def _report_of(answer: bytes) -> Report:
    settled, links = msgspec.msgpack.decode(answer)
    return Report(tuple(Settled.OK if ok else Settled.STALE for ok in settled), tuple(map(_codes_of, links)))
