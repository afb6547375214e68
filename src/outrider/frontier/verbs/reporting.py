"""report, extend, release, defer: end or prolong leases, let hosts rest, and set when URLs are fetched again."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from outrider.clock import Instant, instant
from outrider.errors import SettingsError, shown
from outrider.frontier.format.facts import Fact
from outrider.frontier.state.errand import CallersErrand
from outrider.frontier.state.url_table import LEASED, QUEUED, WAITING
from outrider.frontier.verbs import arguments
from outrider.frontier.verbs.arrivals import Arrival, Origin, pieces_of
from outrider.frontier.verbs.deciding import NEW, Core, Part, bounded, codes_of
from outrider.frontier.verbs.discovering import Discovering, origins_of
from outrider.frontier.verbs.draft import Draft
from outrider.frontier.verbs.leased import Unclaimed
from outrider.frontier.verbs.outcome_columns import OutcomeColumns, outcomes_of
from outrider.frontier.verbs.report_pieces import ByRow, Costs, Links, ReportProgress, costs_of
from outrider.frontier.verbs.settling import Settling, of_their_kinds, origin_of_errand
from outrider.journey import Code, Line, Link, Outcome, OutcomeBatch, Report, RequestId, Settled
from outrider.limits import ANSWERS_UNTAKEN_MAX, CALL_BYTES_PER_FRAME, OWN_SLOT
from outrider.storage.record_columns import body_bytes
from outrider.url import UrlBatch

_OK, _STALE = Settled.OK, Settled.STALE
_UNCLAIMED = b""  # the answer of a lease call that never reached its caller: a repeated call leases anew
_NO_CODES: tuple[Code, ...] = ()


class Piece(NamedTuple):
    """The outcomes of one frame: from row `first` on, before `last`. ahead: a single outcome whose links are logged in
    frames before it."""

    first: int
    last: int
    ahead: bool = False

    def rows_of(self, found: ByRow) -> ByRow:
        """Returns the links of these outcomes, by their rows among them."""
        if not self.first and (not found or max(found) < self.last):
            return found
        return {row - self.first: links for row, links in found.items() if self.first <= row < self.last}


class Reporting(Part):
    """The part of the machine that ends leases."""

    def __init__(self, core: Core, settling: Settling, links: Discovering) -> None:
        super().__init__(core)
        self._settling, self._links = settling, links
        # The codes of links, by token, of outcomes that were logged before their report was interrupted. The caller got
        # no answer because of a full disk.
        self._unanswered: dict[int, bytes] = {}

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
        """Ends leases by token. An outcome and its links are one frame, or the links are logged before it in frames of
        their own. Old tokens change nothing and get the answer `stale`. together: the call refuses outcomes that are
        longer than one frame.

        Raises SettingsError before any change, except for a priority function that fails after the first frame.
        Raises StoreFullError; then the first frames may be accepted already. A repeated call continues there and
        answers for all. Without a request_id this works only in this process: after a restart the accepted outcomes
        are stale.
        """
        request_id = arguments.request(request_id)
        now = self._core.advance(now)
        known = self._core.repeated(request_id, "report")
        answer = ReportProgress.unpacked(known) if known is not None else ReportProgress()
        if known is not None and request_id is not None and not self._core.is_begun(request_id):
            return _report_of(answer, (), 0)
        whole = outcomes_of(outcomes)
        watermark = arguments.watermark(watermark, self.tables.registry.watermarks)
        self._core.read_slots_of(whole.tokens)
        given, extra = whole.links, by_outcome(links, len(whole))
        self._core.wake(now)
        pieces = self._pieces(whole, given, extra, answer)
        if len(pieces) > 1 or pieces[0].ahead:
            if together:
                raise SettingsError("the reports of these calls need more than one frame; use a call for each")
            self._check(whole, given, extra, now)
        lines: list[Line] = []
        durable = 0  # outcomes
        try:
            for piece in pieces:
                some = whole.piece(piece.first, piece.last)
                of_some, of_extra = piece.rows_of(given), piece.rows_of(extra)
                if piece.ahead:
                    found = (*of_some.values(), *of_extra.values())
                    self._take_ahead(int(some.tokens[0]), found, answer, request_id, now)
                    of_some = of_extra = {}
                lines += self._report(
                    some,
                    (of_some, of_extra),
                    now,
                    answer,
                    request_id=request_id,
                    begun=piece is not pieces[-1],
                    watermark=watermark,
                )
                durable = len(answer.settled)
                watermark = None  # it covers the archive before all outcomes, so the first frame has it
        except BaseException:
            self._core.lines_of_wakes[:0] = lines
            if request_id is None:
                self._remember(whole.tokens[:durable], answer)
            raise
        return _report_of(answer, tuple(lines), self._core.lsn)

    def _remember(self, tokens: npt.NDArray[np.uint64], answer: ReportProgress) -> None:
        """Keeps the answers of an interrupted call, for the call that repeats it."""
        for row, (token, code) in enumerate(zip(tokens.tolist(), answer.settled, strict=False)):
            if code is _OK:
                self._unanswered[token] = answer.codes.get(row, b"")
        while len(self._unanswered) > ANSWERS_UNTAKEN_MAX:
            del self._unanswered[next(iter(self._unanswered))]

    def _pieces(self, outcomes: OutcomeColumns, given: ByRow, extra: ByRow, answer: ReportProgress) -> list[Piece]:
        """Divides the outcomes without an answer into frames; nearly always one frame is enough."""
        rows, first = len(outcomes), len(answer.settled)
        costs = Costs(outcomes, given, extra, measured=bool(self.tables.crawls.callers))
        begun = [Piece(first, first + 1, True)] if first in answer.codes else []
        first += len(begun)
        # In crawls by unique keys the card of a URL may be longer than the bound of all others.
        if not first and not self.tables.crawls.callers and costs.fit(CALL_BYTES_PER_FRAME):
            return [Piece(0, rows)]
        heads = self.tables.urls.by_token(outcomes.tokens, bodies=False).cards.heads
        pages, bodies = heads["url_bytes"].astype(np.int64), body_bytes(heads)
        if not first and costs.fit(
            CALL_BYTES_PER_FRAME, page=int(pages.max(initial=0)), body=int(bodies.max(initial=0))
        ):
            return [Piece(0, rows)]
        by_row = costs.by_row(pages, bodies)[first:]
        return begun + [
            Piece(first + start, first + end, end - start == 1 and by_row[start] > CALL_BYTES_PER_FRAME)
            for start, end in pieces_of(by_row, CALL_BYTES_PER_FRAME)
            if end or not begun
        ]

    def _check(self, outcomes: OutcomeColumns, given: ByRow, extra: ByRow, now: Instant) -> None:
        """Checks all outcomes and links before the first of several frames, so that errors are raised before any
        change. Raises SettingsError."""
        draft, orders = self._core.draft(now), self.tables.crawls.orders
        ends = self._settling.ends(outcomes, bodies=False)
        of_their_kinds(outcomes, ends, self.tables.crawls.callers)
        crawls = np.where(ends.ended, ends.leases.cards.heads["crawl"], 0).tolist()
        for row, links in (*given.items(), *extra.items()):
            bounded(len(links), "links of one outcome")
            origin = Origin(crawl=crawls[row])
            if isinstance(links, UrlBatch):
                arguments.ranks([links], [0], [origin.crawl in orders])
                continue
            for link in links if isinstance(links, Sequence) else links.strings():
                self._links.arrival(link, 0, origin, draft)

    def _take_ahead(
        self, token: int, found: Sequence[Links], answer: ReportProgress, request_id: RequestId | None, now: Instant
    ) -> None:
        """Accepts the links of the next outcome in frames before it, except links that an earlier call has accepted."""
        row = len(answer.settled)
        done = len(answer.codes.get(row, b""))
        # the order of the codes in the answer
        for some in sorted(found, key=lambda links: isinstance(links, UrlBatch)):
            links = some if isinstance(some, UrlBatch | Sequence) else some.strings()
            links, done = links[done:], max(0, done - len(links))
            errand = self.tables.errands.open.get(token)
            leases = self.tables.urls.by_token(np.array([token], np.uint64))
            if isinstance(errand, CallersErrand):
                origin = origin_of_errand(errand)
            elif not leases.found[0] or (self.tables.urls.voids() and self.tables.urls.void(leases.cards.heads)[0]):
                return  # stale: the present holder of the URL will report them
            else:
                (origin,) = origins_of(leases.cards, [0], self.tables.crawls.callers)
            costs = costs_of(links, len(origin.referrer), measured=bool(self.tables.crawls.callers))
            for first, last in pieces_of(costs, CALL_BYTES_PER_FRAME):
                piece = links[first:last]
                draft = self._core.draft(now)
                wanted: list[Arrival] = []
                columns: list[tuple[int, UrlBatch]] = []
                if isinstance(piece, UrlBatch):
                    columns.append((0, piece))
                else:
                    wanted += [self._links.arrival(link, 0, origin, draft) for link in piece]
                spans = {0: (0, len(wanted))} if wanted else {}
                codes, _ = self._links.accept_found(wanted, columns, {0: 0}, [origin], spans, {}, draft)
                answer.codes[row] = answer.codes.get(row, b"") + codes.get(0, b"")
                if request_id is not None:
                    self._core.answered(draft, request_id, "report", answer.packed(), begun=True)
                self._core.commit(draft)

    def _report(
        self,
        outcomes: OutcomeColumns,
        links: tuple[ByRow, ByRow],
        now: Instant,
        answer: ReportProgress,
        *,
        request_id: RequestId | None,
        begun: bool,
        watermark: tuple[str, bytes] | None,
    ) -> tuple[Line, ...]:
        """Logs the next outcomes with their links as one frame. Returns its lines. begun: more outcomes follow."""
        draft = self._core.draft(now)
        ends = self._settling.ends(outcomes, bodies=bool(links[0] or links[1]))
        of_their_kinds(outcomes, ends, self.tables.crawls.callers)
        accepted = ends.accepted()
        taken_before = self._taken_before(outcomes, accepted)
        stale = len(outcomes) - int(np.count_nonzero(accepted)) - len(taken_before)
        if stale:
            draft.tally("stale", stale)
        self._settling.block_score = {}
        self._settling.hear_network(draft, ends)
        self._settling.hear_names(ends)
        self._settling.answer_errands(draft, ends)
        until, ended = self._settling.rest_hosts(draft, ends)
        self._settling.lengthen_copies(draft, ends)
        draft.left = ends.requests_ended()
        self._settling.park_blocking_hosts(draft)
        targets = self._settling.move_pages(draft, ends, until, ended)
        # The links of stale outcomes are not read: the present holder of the URL will report them.
        codes, new_targets = self._settling.take_links(draft, ends, links, targets)
        new = dict(new_targets)
        for row, numbers in codes.items():
            new[row] = new.get(row, 0) + numbers.count(NEW)
        ahead = answer.codes.get(len(answer.settled), b"").count(NEW)  # links of the first outcome, which is alone then
        if ahead:
            new[0] = new.get(0, 0) + ahead
        self._settling.plan_files(draft, ends, new)
        self._settling.add_lines(draft, ends, accepted, new)
        if watermark is not None:
            draft.add(Fact.WATERMARK, (OWN_SLOT, *watermark))
        settled = [_OK if taken else _STALE for taken in accepted.tolist()] if stale else [_OK] * len(outcomes)
        for row, token in taken_before.items():
            settled[row] = _OK
            codes[row] = self._unanswered[token]
        answer.add(settled, codes)
        if request_id is not None:
            self._core.answered(draft, request_id, "report", answer.packed(), begun=begun)
        self._core.commit(draft, reserve=True)
        self._core.network = ends.network
        self._core.delays.note_fetched(ends.leases.cards.heads, ended, ends.ended & (outcomes.statuses != 0))
        if self._settling.block_score:
            self.turns.touch([np.array(list(self._settling.block_score), np.uint32), self.turns.hops()], draft.now)
        for token in taken_before.values():
            self._unanswered.pop(token, None)
        return self._core.take_lines(draft)

    def _taken_before(self, outcomes: OutcomeColumns, accepted: npt.NDArray[np.bool_]) -> dict[int, int]:
        """Returns the tokens, by row, of stale outcomes that an interrupted call has accepted."""
        if not self._unanswered:
            return {}
        rows = np.flatnonzero(~accepted).tolist()
        tokens = zip(rows, outcomes.tokens[rows].tolist(), strict=True)
        return {row: token for row, token in tokens if token in self._unanswered}

    def extend(self, tokens: Sequence[int], ttl_seconds: float, now: Instant) -> list[Settled]:
        """Prolongs open leases until now + ttl_seconds."""
        ttl_seconds = arguments.ttl(ttl_seconds)
        given = arguments.tokens(tokens)
        now = self._core.advance(now)
        self._core.wake(now)
        draft = self._core.draft(now)
        deadline = now + instant(ttl_seconds)
        leases = self.tables.urls.by_token(given)
        answer: list[Settled] = []
        kept: list[tuple[int, int, int]] = []
        for row, token in enumerate(given.tolist()):
            errand = self.tables.errands.open.get(token)
            answer.append(_STALE if errand is None and not leases.found[row] else _OK)
            if errand is not None:
                draft.add(*errand.opening(token, deadline, errand.holder))
                heapq.heappush(self._gates.deadlines, (deadline, token))
            elif leases.found[row]:
                kept.append((int(leases.cards.heads["slot"][row]), token, deadline))
        if kept:
            slots, some, deadlines = zip(*kept, strict=True)
            draft.add_columns(
                Fact.EXTEND, [np.array(slots, np.uint16), np.array(some, np.uint64), np.array(deadlines, np.int64)]
            )
        self._core.commit(draft, reserve=True)
        return answer

    def release(self, tokens: Sequence[int], now: Instant) -> list[Settled]:
        """Returns leases unfetched: the URLs are queued again, and their hosts keep their clocks."""
        return self._give_back(arguments.tokens(tokens), None, now)

    def defer(self, tokens: Sequence[int], until: Instant, now: Instant) -> list[Settled]:
        """Returns leases unfetched: the URLs wait until an instant, and errands are postponed until then."""
        until = arguments.until(until)
        return self._give_back(arguments.tokens(tokens), until, now)

    def unclaim(self, call: Unclaimed, now: Instant) -> None:
        """Returns leases that never reached their caller, also after their deadline. The caller may repeat the call
        under its request id; its lines are returned with the next answer that has lines."""
        now = self._core.advance(now)
        draft = self._core.draft(now)
        self._back(draft, arguments.tokens(call.tokens), None)
        self._core.answered(draft, call.request_id, "lease", _UNCLAIMED)
        self._core.commit(draft, reserve=True)
        self._core.lines_of_wakes[:0] = call.lines

    def _give_back(self, given: npt.NDArray[np.uint64], until: Instant | None, now: Instant) -> list[Settled]:
        now = self._core.advance(now)
        self._core.wake(now)
        draft = self._core.draft(now)
        answer = self._back(draft, given, until)
        self._core.commit(draft, reserve=True)
        return answer

    def _back(self, draft: Draft, given: npt.NDArray[np.uint64], until: Instant | None) -> list[Settled]:
        self._core.read_slots_of(given)
        tokens, firsts = np.unique(given, return_index=True)
        leases = self.tables.urls.by_token(tokens)
        answer: list[Settled] = [_STALE] * len(given)  # a token that is named twice finds its lease ended
        for row, (token, first) in enumerate(zip(tokens.tolist(), firsts.tolist(), strict=True)):
            errand = self.tables.errands.open.get(token)
            if errand is not None:
                draft.add(*errand.ending(until or 0))
            if errand is not None or leases.found[row]:
                answer[first] = _OK
        if leases.found.any():
            cards = leases.cards.filter(leases.found)
            heads = cards.changed()
            heads["state"] = QUEUED
            if until is not None:
                heads["due"] = until
                heads["state"] = WAITING if until > draft.now else QUEUED
            self.tables.urls.ordered(heads, tokens[leases.found], draft.now)
            draft.heads(
                cards.with_heads(heads),
                tokens[leases.found],
                np.full(len(cards), LEASED, np.uint8),
                leases.queues[leases.found],
            )
        return answer


def by_outcome(
    links: Sequence[tuple[int, str | Link]] | UrlBatch, outcomes: int
) -> Mapping[int, list[str | Link] | UrlBatch]:
    """Returns links by the outcome that they name. Raises SettingsError for an outcome that does not exist."""
    if isinstance(links, UrlBatch):
        rows = arguments.outcome_rows(links, outcomes)
        if len(rows) and not np.count_nonzero(rows[1:] < rows[:-1]):
            bounds = [0, *(np.flatnonzero(rows[1:] != rows[:-1]) + 1).tolist(), len(rows)]
            return {int(rows[start]): links[start:end] for start, end in pairwise(bounds)}
        return {int(row): links.filter(rows == row) for row in np.unique(rows)}
    extra: dict[int, list[str | Link]] = {}
    for row, link in arguments.pairs(links):
        if not 0 <= row < outcomes:
            raise SettingsError(f"link {shown(link)} names outcome {row}, but the call has {outcomes} outcomes")
        extra.setdefault(row, []).append(link)
    return extra


def _report_of(answer: ReportProgress, lines: tuple[Line, ...], lsn: int) -> Report:
    told = [_NO_CODES] * len(answer.settled)
    codes = codes_of(b"".join(answer.codes.values())) if answer.codes else []
    start = 0
    for row, numbers in answer.codes.items():
        end = start + len(numbers)
        told[row] = tuple(codes[start:end])
        start = end
    return Report(tuple(answer.settled), tuple(told), lines, lsn)
