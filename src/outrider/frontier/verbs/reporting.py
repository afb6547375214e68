"""report, extend, release, defer: end leases or prolong them, let hosts rest, and set when URLs come again."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from outrider.clock import Instant, instant
from outrider.errors import SettingsError
from outrider.frontier.format.facts import Fact
from outrider.frontier.format.records import Record
from outrider.frontier.policy.politeness import end_of, rests_after
from outrider.frontier.policy.revisit import retries_left, retry_seconds
from outrider.frontier.state.hosts import (
    NONE,
    ROBOTS,
    RULED,
    Rows,
)
from outrider.frontier.state.tables import (
    DONE,
    GONE,
    LEASED,
    QUEUED,
    WAITING,
    Authority,
    Hand,
    Reason,
    states_of,
)
from outrider.frontier.state.whereabouts import Whereabouts
from outrider.frontier.verbs import arguments
from outrider.frontier.verbs.arrivals import Arrival, Origin, pieces_of
from outrider.frontier.verbs.deciding import NEW, Found, bounded, codes_of
from outrider.frontier.verbs.discovering import Discovering
from outrider.frontier.verbs.draft import Draft
from outrider.frontier.verbs.leased import Unclaimed
from outrider.frontier.verbs.leasing import Leasing
from outrider.frontier.verbs.pieces import Answer, ByRow, Costs, Links, costs_of
from outrider.journey import (
    Code,
    Line,
    Link,
    Outcome,
    OutcomeBatch,
    Report,
    RequestId,
    RobotsAnswer,
    Settled,
    Verdict,
)
from outrider.limits import (
    CALL_BYTES_PER_FRAME,
    OWN_SLOT,
    REDIRECT_HOPS_MAX,
    RETRY_AFTER_SECONDS_MAX,
)
from outrider.robots import verdict_of_status
from outrider.storage.records import body_bytes
from outrider.url import UrlBatch

_OK, _STALE = Settled.OK, Settled.STALE
_UNCLAIMED = b""  # the answer of a lease call that never reached its caller: a repeated call leases anew
_NO_CODES: tuple[Code, ...] = ()


class Piece(NamedTuple):
    """The outcomes of one frame: from row `first` on, before `last`. ahead: a single outcome whose links go in frames
    before it."""

    first: int
    last: int
    ahead: bool = False

    def rows_of(self, found: ByRow) -> ByRow:
        """The links of these outcomes, by their rows among them."""
        if not self.first and (not found or max(found) < self.last):
            return found
        return {row - self.first: links for row, links in found.items() if self.first <= row < self.last}


class Reporting(Leasing, Discovering):
    """The part of the machine that ends leases."""

    def report(
        self,
        outcomes: Sequence[Outcome] | OutcomeBatch,
        links: Sequence[tuple[int, str | Link]] | UrlBatch,
        now: Instant,
        *,
        request_id: RequestId | None = None,
        watermark: tuple[str, bytes] | None = None,
        together: bool = False,
    ) -> Report:
        """Ends leases by token; an outcome and the links found in it are one frame, or the links come before it in
        frames of their own. Old tokens change nothing and get the answer `stale`. together: the call refuses outcomes
        that are longer than one frame.

        Raises SettingsError before any change, but for a priority function that fails on links behind the first frame.
        Raises StoreFullError; then the first frames may be in already: with a request_id a repeated call goes on from
        there, without one the outcomes in them are stale.
        """
        now = self._advance(now)
        known = self._repeated(request_id, "report")
        answer = Answer.unpacked(known) if known is not None else Answer()
        if known is not None and request_id is not None and not self._is_begun(request_id):
            return _report_of(answer, (), 0)
        told = arguments.told(outcomes)
        arguments.watermark(watermark, self.tables.watermarks)
        given, extra = told.links(), _by_outcome(links, len(told.tokens))
        self._wake(now)
        pieces = self._pieces(told, given, extra, answer)
        if len(pieces) > 1 or pieces[0].ahead:
            if together:
                raise SettingsError("the reports of these calls are more than one frame; make each call alone")
            self._check(told, given, extra, now)
        lines: list[Line] = []
        try:
            for piece in pieces:
                some = told.piece(piece.first, piece.last)
                of_some, of_extra = piece.rows_of(given), piece.rows_of(extra)
                if piece.ahead:
                    found = (*of_some.values(), *of_extra.values())
                    self._take_ahead(int(some.tokens[0]), found, answer, request_id, now)
                    of_some = of_extra = {}
                lines += self._report(
                    some,
                    of_some,
                    of_extra,
                    now,
                    answer,
                    request_id=request_id,
                    begun=piece is not pieces[-1],
                    watermark=watermark,
                )
                watermark = None  # it covers the archive before all outcomes, so the first frame has it
        except BaseException:
            self._lines_of_wakes[:0] = lines
            raise
        return _report_of(answer, tuple(lines), self.lsn)

    def _pieces(self, told: arguments.Told, given: ByRow, extra: ByRow, answer: Answer) -> list[Piece]:
        """Divides the outcomes without an answer into frames; nearly always one frame takes them all."""
        rows, first = len(told.tokens), len(answer.settled)
        costs = Costs(told, given, extra)
        begun = [Piece(first, first + 1, True)] if first in answer.codes else []
        first += len(begun)
        if not first and costs.fit(CALL_BYTES_PER_FRAME):
            return [Piece(0, rows)]
        heads = self._by_token(told.tokens, bodies=False).cards.heads
        by_row = costs.by_row(heads["url_bytes"].astype(np.int64), body_bytes(heads))[first:]
        return begun + [
            Piece(first + start, first + end, end - start == 1 and by_row[start] > CALL_BYTES_PER_FRAME)
            for start, end in pieces_of(by_row, CALL_BYTES_PER_FRAME)
            if end or not begun
        ]

    def _check(self, told: arguments.Told, given: ByRow, extra: ByRow, now: Instant) -> None:
        """Checks all outcomes and links before the first of several frames: an error must come before any change.
        Raises SettingsError."""
        draft, origin = self._draft(now), Origin()
        found = self._by_token(told.tokens, bodies=False).found
        for row in np.flatnonzero(~told.plain).tolist():
            outcome = told.outcome(row)
            errand = self.tables.errands.get(outcome.token)
            if errand is not None or found[row]:
                _of_its_kind(errand, outcome)
            arguments.metadata(outcome.metadata)
        for links in (*given.values(), *extra.values()):
            bounded(len(links), "links of one outcome")
            if isinstance(links, UrlBatch):
                arguments.depths(links, 0)
                arguments.priorities(links)
                continue
            for link in links if isinstance(links, Sequence) else links.strings():
                self._arrival(link, 0, origin, draft)

    def _take_ahead(
        self, token: int, found: Sequence[Links], answer: Answer, request_id: RequestId | None, now: Instant
    ) -> None:
        """Accepts the links of the next outcome in frames before it, except links that an earlier call has accepted."""
        row = len(answer.settled)
        done = len(answer.codes.get(row, b""))
        # the order of the codes in the answer
        for some in sorted(found, key=lambda links: isinstance(links, UrlBatch)):
            links = some if isinstance(some, UrlBatch | Sequence) else some.strings()
            links, done = links[done:], max(0, done - len(links))
            leases = self._by_token(np.array([token], np.uint64))
            if not leases.found[0] or (self.tables.voids() and self.tables.void(leases.cards.heads)[0]):
                return  # stale: the present holder of the URL will report them
            origin = self._origin(Record.of(leases.cards, 0))
            costs = costs_of(links, len(origin.referrer))
            for first, last in pieces_of(costs, CALL_BYTES_PER_FRAME):
                piece = links[first:last]
                draft = self._draft(now)
                wanted: list[Arrival] = []
                columns: list[tuple[int, UrlBatch]] = []
                if isinstance(piece, UrlBatch):
                    columns.append((0, piece))
                else:
                    wanted += [self._arrival(link, 0, origin, draft) for link in piece]
                spans = {0: (0, len(wanted))} if wanted else {}
                codes, _ = self._accept_found(wanted, columns, {0: 0}, [origin], spans, {}, draft)
                answer.codes[row] = answer.codes.get(row, b"") + codes.get(0, b"")
                if request_id is not None:
                    self._answered(draft, request_id, "report", answer.packed(), begun=True)
                self._commit(draft)

    def _report(
        self,
        told: arguments.Told,
        given: ByRow,
        extra: ByRow,
        now: Instant,
        answer: Answer,
        *,
        request_id: RequestId | None,
        begun: bool,
        watermark: tuple[str, bytes] | None,
    ) -> tuple[Line, ...]:
        """Logs the next outcomes with their links as one frame. Returns its lines. begun: more outcomes come behind
        them."""
        rows = len(told.tokens)
        tables = self.tables
        draft = self._draft(now)
        # Bodies are read only where they are needed: a URL that was fetched and brought nothing new needs only its
        # head.
        bodies = bool(given or extra or told.others)
        leases = self._by_token(told.tokens, bodies=bodies)
        if not bodies and np.count_nonzero(leases.cards.heads["flags"]):
            leases, bodies = self._by_token(told.tokens), True
        ok, first = leases.found, None
        rising = np.count_nonzero(told.tokens[1:] > told.tokens[:-1])
        if rising < rows - 1 and len(np.unique(told.tokens)) < rows:
            first = np.zeros(rows, np.bool_)
            first[np.unique(told.tokens, return_index=True)[1]] = True
            ok = ok & first
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
            some = hosts.copy() if np.count_nonzero(ok) == rows else hosts[ok]
            some.sort()
            if np.count_nonzero(some[1:] == some[:-1]):
                names, inverse = np.unique(hosts, return_inverse=True)
                often = np.bincount(inverse[ok], minlength=len(names)) > 1
                plain &= ~often[inverse]
            self._done_in_columns(draft, told, leases, hosts, plain, now)
        settled: list[Settled] = [_OK] * rows
        wanted: list[Arrival] = []
        origins: list[Origin] = []
        of_row: dict[int, int] = {}  # the origin of an outcome's links
        spans: dict[int, tuple[int, int]] = {}  # the links of an outcome that come one by one, among `wanted`
        targets: dict[int, int] = {}  # the redirect's target of an outcome, among `wanted`
        columns: list[tuple[int, UrlBatch]] = []
        lined: dict[int, tuple[int, int]] = {}
        busy_rows = [] if np.count_nonzero(plain) == rows else np.flatnonzero(~plain).tolist()
        if busy_rows and not bodies:
            leases = self._by_token(told.tokens)
        stale = 0
        for row in busy_rows:
            outcome = told.outcome(row)
            authority = tables.errands.get(outcome.token) if first is None or first[row] else None
            if authority is not None or ok[row]:
                _of_its_kind(authority, outcome)
            if authority is not None:
                if isinstance(authority, Authority):
                    self._errand_done(draft, authority, outcome, now)
                else:
                    self._located(draft, authority, outcome, now)
                lined[row] = (authority.slot, row)
                continue
            if not ok[row]:
                settled[row] = _STALE
                stale += 1
                # Its links stay unread: the present holder of the URL will report them.
                continue
            record = Record.of(leases.cards, row)
            if dead is not None and dead[row]:
                self._late(draft, record, outcome, int(leases.queues[row]), _begun(leases, row), now)
                settled[row] = _STALE
                stale += 1
                continue
            origin = self._origin(record)
            lined[row] = (record.slot, row)
            target = self._page_done(draft, record, outcome, int(leases.queues[row]), _begun(leases, row), now)
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
                bounded(len(found), "links of one outcome")
                if isinstance(found, UrlBatch):
                    columns.append((row, found))
                    continue
                for link in found if isinstance(found, Sequence) else found.strings():
                    wanted.append(self._arrival(link, origin_row, origin, draft))
            if len(wanted) > start:
                spans[row] = (start, len(wanted))
        codes, new_targets = self._accept_found(wanted, columns, of_row, origins, spans, targets, draft)
        ahead = answer.codes.get(len(answer.settled), b"").count(NEW)  # links of the first outcome, which is alone then
        for row, (slot, _) in lined.items():
            outcome = told.outcome(row)
            if outcome.line is not None:
                new = codes.get(row, b"").count(NEW) + new_targets.get(row, 0) + ahead
                draft.line(slot, outcome.token, "pages", outcome.line, new)
            if outcome.politeness is not None:
                draft.line(slot, outcome.token, "politeness", outcome.politeness, -1)
        if watermark is not None:
            draft.add(Fact.WATERMARK, (OWN_SLOT, *watermark))
        answer.add(settled, codes)
        if request_id is not None:
            self._answered(draft, request_id, "report", answer.packed(), begun=begun)
        self._commit(draft, reserve=True)
        return self._take_lines(draft)

    def _done_in_columns(
        self,
        draft: Draft,
        told: arguments.Told,
        leases: Found,
        hosts: Rows,
        plain: npt.NDArray[np.bool_],
        now: Instant,
    ) -> None:
        """Adds clocks and heads of plain outcomes (no more than done) in columns. Each host comes once."""
        tables = self.tables
        all_of_them = np.count_nonzero(plain) == len(plain)
        rows = hosts if all_of_them else hosts[plain]
        if not len(rows):
            return
        homes = rows.astype(np.intp)
        seconds = told.seconds if all_of_them else told.seconds[plain]
        statuses = told.statuses if all_of_them else told.statuses[plain]
        columns = tables.hosts
        here, refused_at = columns.records(homes), columns.refused_at[homes]
        rests = rests_after(
            now,
            seconds=seconds,
            floor=self.settings.delay,
            factor=self.settings.delay_factor,
            back_off=columns.back_off[homes],
            refused_at=refused_at,
        )
        answered = statuses != 0
        draft.add_columns(
            Fact.HOST_CELLS,
            columns.durable(
                homes,
                slot=here["slot"],
                hash=here["hash"],
                ended=np.maximum(here["ended"], now),
                rest_until=np.maximum(rests.until, here["rest_until"]),
                gap=rests.gap,
                reason=rests.reason,
                back_off=rests.back_off,
                refused_at=refused_at,
                answered=here["answered"] + answered,
            ),
            Hand.of_rows(rows),
        )
        cards = leases.cards if all_of_them else leases.cards.take(np.flatnonzero(plain))
        heads = cards.changed()
        heads["state"], heads["reason"], heads["error"] = DONE, 0, 0
        heads["attempts"], heads["losses"] = 0, 0
        heads["status"] = statuses
        tokens = told.tokens if all_of_them else told.tokens[plain]
        queues = leases.queues if all_of_them else leases.queues[plain]
        draft.heads(cards.with_heads(heads), tokens, states_of(LEASED, len(cards)), queues)
        count = int(np.count_nonzero(answered))
        if count:
            draft.tally("answered", count)

    def extend(self, tokens: Sequence[int], ttl_seconds: float, now: Instant) -> list[Settled]:
        """Prolongs open leases until now + ttl_seconds."""
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
                self._open_errand(draft, authority, token, deadline, authority.holder)
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
        """Gives leases back unfetched: the URLs are queued again, and their hosts keep their clocks."""
        return self._give_back(arguments.tokens(tokens), None, now)

    def defer(self, tokens: Sequence[int], until: Instant, now: Instant) -> list[Settled]:
        """Gives leases back unfetched: the URLs wait until an instant, and errands are put off until then."""
        arguments.whole("until", until, 0, arguments.INSTANT_MAX)
        return self._give_back(arguments.tokens(tokens), until, now)

    def unclaim(self, call: Unclaimed, now: Instant) -> None:
        """Gives leases back that never reached their caller, also past their deadline. The caller may repeat the call
        under its request id; its lines come with the next answer that has lines."""
        now = self._advance(now)
        draft = self._draft(now)
        self._back(draft, arguments.tokens(call.tokens), None)
        self._answered(draft, call.request_id, "lease", _UNCLAIMED)
        self._commit(draft, reserve=True)
        self._lines_of_wakes[:0] = call.lines

    def _give_back(self, given: npt.NDArray[np.uint64], until: Instant | None, now: Instant) -> list[Settled]:
        now = self._advance(now)
        self._wake(now)
        draft = self._draft(now)
        answer = self._back(draft, given, until)
        self._commit(draft, reserve=True)
        return answer

    def _back(self, draft: Draft, given: npt.NDArray[np.uint64], until: Instant | None) -> list[Settled]:
        tokens, firsts = np.unique(given, return_index=True)
        leases = self._by_token(tokens)
        answer: list[Settled] = [_STALE] * len(given)  # the second naming of a token finds the lease ended
        for row, (token, first) in enumerate(zip(tokens.tolist(), firsts.tolist(), strict=True)):
            authority = self.tables.errands.get(token)
            if authority is not None:
                self._end_errand(draft, authority, until or 0)
            if authority is not None or leases.found[row]:
                answer[first] = _OK
        if leases.found.any():
            cards = leases.cards.filter(leases.found)
            heads = cards.changed()
            heads["state"] = QUEUED
            if until is not None:
                heads["due"] = until
                heads["state"] = WAITING if until > draft.now else QUEUED
            draft.heads(
                cards.with_heads(heads),
                tokens[leases.found],
                np.full(len(cards), LEASED, np.uint8),
                leases.queues[leases.found],
            )
        return answer

    def _located(self, draft: Draft, place: Whereabouts, outcome: Outcome, now: Instant) -> None:
        """Takes the answer to an errand for a host's address. It was no request to the host, so the host does not
        rest."""
        if self.turns.shared is not None:
            self.turns.shared.moved([place.host])
        if outcome.error is not None:
            draft.error(outcome.error)
        draft.add(Fact.LOCATED, (*self._place(place), *place.after_answer(outcome, now)))

    def _errand_done(self, draft: Draft, authority: Authority, outcome: Outcome, now: Instant) -> None:
        host = authority.busy if authority.busy != NONE else authority.host
        answer = outcome.robots or RobotsAnswer(outcome.status)
        self._robots_answer(draft, authority, answer, outcome.error, outcome.retry_after_seconds, now)
        redirect = verdict_of_status(answer.status) == "redirect"
        self._rested(
            draft,
            host,
            outcome,
            now,
            floor=self._floor_of_host(host),
            redirect=redirect,
            page=False,
            begun=authority.begun if authority.holder == 0 else None,
        )

    def _rested(
        self,
        draft: Draft,
        host: int,
        outcome: Outcome,
        now: Instant,
        *,
        floor: float,
        redirect: bool,
        page: bool,
        begun: Instant | None,
    ) -> None:
        """Lets the host rest after a request: the longest of floor, factor, crawl delay, Retry-After and back-off.

        begun: the first instant at which the lease allowed a request, None where that is not known.
        """
        clock = draft.clock(host)
        ended = end_of(outcome.ended_at, outcome.seconds, begun=begun, now=now)
        # On a redirect Retry-After speaks of the target (RFC 9110 §10.2.3); otherwise it rests the whole host.
        retry_after = None if redirect else outcome.retry_after_seconds
        given = (outcome.seconds, retry_after, self._crawl_delay(host))
        seconds, asked, delay = (np.array([value], np.float64) for value in given)
        rests = rests_after(
            ended,
            seconds=seconds,
            floor=floor,
            factor=self.settings.delay_factor,
            back_off=np.array([clock.back_off]),
            refused_at=np.array([clock.refused_at]),
            crawl_delay=np.maximum(delay, draft.crawl_delays.get(host, 0.0)),
            retry_after=asked,
            refused=np.array([outcome.refused]),
        )
        clock.ended = max(ended, clock.ended)
        clock.rest_at_least(int(rests.until[0]))
        clock.gap, clock.reason = float(rests.gap[0]), int(rests.reason[0])
        clock.back_off, clock.refused_at = float(rests.back_off[0]), int(rests.refused_at[0])
        if page and _answered(outcome):
            clock.answered += 1

    def _late(
        self, draft: Draft, record: Record, outcome: Outcome, queue: int, begun: Instant | None, now: Instant
    ) -> None:
        """Takes the report of a URL that was deleted while it was leased: its host rests all the same."""
        self._rest_page(draft, outcome, queue, begun, now)
        if _answered(outcome):
            draft.tally("answered", 1)  # it was fetched: max_pages counts it
        record.state = GONE
        draft.record(record, LEASED, token=outcome.token)

    def _rest_page(self, draft: Draft, outcome: Outcome, queue: int, begun: Instant | None, now: Instant) -> bool:
        """Lets the host of a page rest. Returns whether the page redirects."""
        host = int(self.tables.queues.host[queue])
        redirect = outcome.location is not None and outcome.verdict is Verdict.DONE
        self._rested(
            draft,
            host,
            outcome,
            now,
            floor=self._floor(queue),
            redirect=redirect,
            page=True,
            begun=begun,
        )
        return redirect

    def _page_done(
        self, draft: Draft, record: Record, outcome: Outcome, queue: int, begun: Instant | None, now: Instant
    ) -> Arrival | None:
        """Takes the outcome of a page: moves its URL to the next state. Returns the target of a redirect."""
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
        ended = end_of(outcome.ended_at, outcome.seconds, begun=begun, now=now)
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
                record.metadata = arguments.metadata(outcome.metadata)
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


def _begun(leases: Found, row: int) -> Instant | None:
    """The first instant at which a lease of this process allowed its request. None for a named worker, whose clock may
    be off by any amount: its instants cannot be compared with ours."""
    return int(leases.not_before[row]) if leases.holders[row] == 0 else None


def _codes_of(numbers: bytes) -> tuple[Code, ...]:
    return tuple(codes_of(numbers))


def _by_outcome(
    links: Sequence[tuple[int, str | Link]] | UrlBatch, outcomes: int
) -> Mapping[int, list[str | Link] | UrlBatch]:
    """Links that name their outcome, by outcome. Raises SettingsError for an outcome that does not exist."""
    if isinstance(links, UrlBatch):
        rows = arguments.outcome_rows(links, outcomes)
        if len(rows) and not np.count_nonzero(rows[1:] < rows[:-1]):
            bounds = [0, *(np.flatnonzero(rows[1:] != rows[:-1]) + 1).tolist(), len(rows)]
            return {int(rows[start]): links[start:end] for start, end in pairwise(bounds)}
        return {int(row): links.filter(rows == row) for row in np.unique(rows)}
    extra: dict[int, list[str | Link]] = {}
    for row, link in arguments.pairs(links):
        if not 0 <= row < outcomes:
            raise SettingsError(f"link {link!r} names outcome {row}; there are {outcomes}")
        extra.setdefault(row, []).append(link)
    return extra


def _of_its_kind(errand: Authority | Whereabouts | None, outcome: Outcome) -> None:
    """Raises SettingsError when an outcome answers an errand of another kind than that of its lease, so that no page is
    done that was never fetched. errand: None for a page."""
    kind = "page" if errand is None else "robots" if isinstance(errand, Authority) else "address"
    for answered in ("robots", "address"):
        if getattr(outcome, answered) is not None and answered != kind:
            raise SettingsError(
                f"lease {outcome.token} is of kind {kind}, and its outcome answers an errand of kind {answered}; "
                "lease.kind says what is asked for"
            )


def _report_of(answer: Answer, lines: tuple[Line, ...], lsn: int) -> Report:
    rows, codes = len(answer.settled), answer.codes
    told = (
        tuple(_codes_of(codes[row]) if row in codes else _NO_CODES for row in range(rows))
        if codes
        else (_NO_CODES,) * rows
    )
    return Report(tuple(answer.settled), told, lines, lsn)


def _answered(outcome: Outcome) -> bool:
    return outcome.status is not None if outcome.answered is None else outcome.answered
