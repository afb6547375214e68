"""The core under all verbs: a call decides a draft, logs it and applies it. Also the changes by time alone."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from outrider import kernels
from outrider.clock import Instant
from outrider.errors import SettingsError, StoreFullError
from outrider.frontier.format.card_records import CardRecord
from outrider.frontier.format.facts import FRAME_KIND, ORDERS, Block, Compressor, Fact, UnfitFactsError, sealed
from outrider.frontier.policy.budgets import Budgets
from outrider.frontier.policy.frontier_settings import FrontierSettings
from outrider.frontier.policy.grouping import Grouping
from outrider.frontier.policy.network import Network
from outrider.frontier.priority import class_again
from outrider.frontier.schedule.cooling import Cooling
from outrider.frontier.schedule.front_returns import FrontReturns
from outrider.frontier.schedule.host_schedule import HostSchedule
from outrider.frontier.state.errand import Errand
from outrider.frontier.state.tables import Tables
from outrider.frontier.state.url_table import GONE, LEASED, QUEUED, WAITING, KnownRows, Reason
from outrider.frontier.stores.recent import Recent
from outrider.frontier.verbs import arguments
from outrider.frontier.verbs.clock_hosts import ClockHosts
from outrider.frontier.verbs.delays import Delays
from outrider.frontier.verbs.draft import Draft
from outrider.frontier.verbs.gaps import Gaps
from outrider.frontier.verbs.gates import Gates
from outrider.frontier.verbs.revisiting import Revisits
from outrider.frontier.verbs.scopes import Scopes
from outrider.frontier.verbs.signalling import Signals
from outrider.journey import Code, Line, RequestId, Word
from outrider.limits import (
    CALL_ROWS_MAX,
    FRONT_HOSTS_MOST,
    LEASES_LOST_MAX,
    LEAVING_QUEUES_PER_CALL,
    OWN_SLOT,
    WAKES_PER_CALL_MAX,
)
from outrider.url.keys import public_suffixes
from outrider.url.lossy_rules import LossyRules as UrlRules

_NO_RULES = UrlRules()
_OF_ERRANDS = frozenset(
    {Fact.ROBOTS, Fact.ERRAND, Fact.LOCATED, Fact.QUEUED_ERRAND, Fact.LEASED_ERRAND, Fact.CRAWL_RULES}
)
FRAME_PAYLOAD_BYTES_MAX = kernels.FRAME_BYTES_MAX - kernels.FRAME_HEADER_BYTES
_VERBS = {"discover": 1, "lease": 2, "report": 3}
_BEGUN = 0x80  # set in a verb's number: the answer covers only the first frames of the call
CODES = tuple(Code)
CODE_NUMBERS = {code: number for number, code in enumerate(CODES)}
NEW, KNOWN = CODE_NUMBERS[Code.NEW], CODE_NUMBERS[Code.KNOWN]
_CODES = np.array(CODES, object)


class LogOut(Protocol):
    """The part of a log that the machine uses."""

    def append(self, kind: int, payload: bytes, *, version: int = 1, codec: int = 0, reserve: bool = False) -> int:
        """Adds a frame and returns its LSN. reserve: it may use the space that is reserved for a full disk. Raises
        StoreFullError."""
        ...


class Core:
    """The state of a frontier and its log, and the way from a decision to a fact. The verbs are parts on it."""

    def __init__(
        self,
        tables: Tables,
        log: LogOut,
        settings: FrontierSettings,
        *,
        slot_key: bytes,
        seed: int = 0,
        errands: bool = False,
        locates: bool = False,
        keeps_lines: bool = False,
        owned: frozenset[int] | None = None,
    ) -> None:
        self.tables = tables
        self.settings = settings
        self.errands_mode = errands
        self.keeps_lines = keeps_lines
        self._log = log
        self.seed = seed & ((1 << 64) - 1)
        public_suffixes()  # the first use reads it from disk, and no call should wait for that
        self._compressor = Compressor()
        self.recent = Recent()
        self.budgets = Budgets(settings, tables)
        self.turns = HostSchedule(tables, self.seed, settings.group or Grouping(), self.budgets, locates=locates)
        self.turns.judges_errands = errands and settings.obey_robots
        most = settings.hot_hosts_max
        self.cooling = Cooling(tables, self.turns, FrontReturns(tables, self.turns, FRONT_HOSTS_MOST + 3 * most), most)
        tables.robots.rulebook.agent = settings.user_agent
        self.homes = ClockHosts(tables, slot_key, owned)
        self.rests = Gaps(tables, settings, self.turns)
        self.gates = Gates(tables, self.turns, errands=errands)
        self.scopes = Scopes(settings, tables.crawls)
        self.lines_of_wakes: list[Line] = []
        self.network = Network()
        self.delays = Delays()
        self.signals = Signals(tables, Revisits(tables, settings, self.turns, self.seed))
        self.woken: Instant = tables.now  # waiting URLs that were due at this instant are queued
        self.verdicts_since: Instant = 0
        """An older verdict on a robots.txt with a possible cause on our own side is not valid any more."""
        self.lsn = 0
        self.orders = tables.orders_replayed  # frames with orders about crawls and queues in the log
        self.asked = ""  # the caller's function that runs now, in words for an error
        self.now: Instant = tables.now

    @property
    def rules(self) -> UrlRules:
        """The lossy rules of spelling."""
        return self.settings.url_rules or _NO_RULES

    @property
    def front(self) -> FrontReturns:
        """The return of cold hosts with queued URLs."""
        return self.cooling.front

    @property
    def revisits(self) -> Revisits:
        """The revisit rule and the rate."""
        return self.signals.revisits

    def draft(self, now: Instant) -> Draft:
        """Returns an empty draft, for the decisions of a call at this instant."""
        return Draft(self.tables, now, keeps_lines=self.keeps_lines)

    def commit(self, draft: Draft, *, reserve: bool = False) -> None:
        """Logs a draft, then applies it; the same `apply` replays the frame after a crash."""
        blocks, payload = self._sealed(draft)
        if draft.barren:
            self.scopes.forget()  # the rows of the crawls change
        if blocks:
            if len(payload) > FRAME_PAYLOAD_BYTES_MAX:
                self.take_back(draft)
                raise SettingsError(f"the call needs {len(payload)} bytes, too many; split it into smaller calls")
            packed_payload, codec = self._compressor.pack(payload)
            try:
                self.lsn = self._log.append(FRAME_KIND, packed_payload, codec=codec, reserve=reserve)
            except StoreFullError:
                self.take_back(draft)
                raise
            for (kind, values), hand in blocks:
                self.tables.apply(kind, values, hand)
            self.orders += any(kind in ORDERS for (kind, _), _ in blocks)
            self.tables.now = draft.now
            if Fact.VOID in draft.rows or Fact.CRAWL_RULES in draft.rows:
                self.recent.forget()
                self.scopes.forget()
            if draft.deletes:
                self.recent.forget()
            if not _OF_ERRANDS.isdisjoint(draft.rows):
                self.gates.errands_changed(draft)
        for marks in draft.known:
            self.recent.note(marks)
        self.settle(draft.now)

    def _sealed(self, draft: Draft) -> tuple[list[tuple[Block, KnownRows | None]], bytes]:
        """Returns the facts of a draft, and the payload of their frame. Raises SettingsError for facts that could be
        logged but not applied: a log with such facts could not be opened."""
        if draft.order > self.tables.urls.order and self.tables.registry.wants_date(draft.now):
            draft.add(Fact.ACCEPTED, (OWN_SLOT, self.tables.urls.order, draft.now))
        try:
            blocks = draft.blocks()
            return blocks, sealed(draft.now, [block for block, _ in blocks]) if blocks else b""
        except (UnfitFactsError, OverflowError) as error:
            self.take_back(draft)
            raise arguments.unfit(error) from error

    def take_back(self, draft: Draft) -> None:
        """Undoes a draft that is not logged: returns the drawn cards to their queues, and drops the widened scopes."""
        self.scopes.forget()
        for queues, cards in draft.drawn:
            if queues is None:
                self.tables.urls.put_back(cards, cards.heads["state"].astype(np.uint8))
            else:
                self.tables.urls.backlog.put(queues, cards)

    def settle(self, now: Instant) -> None:
        """Updates timetable and rings from the applied facts."""
        changed, self.tables.changed = self.tables.changed, []
        begun, self.tables.begun = self.tables.begun, []
        if begun and self.turns.shared.used:
            self.turns.shared.begun(np.concatenate(begun))
        if changed:
            self.turns.touch(changed, now)

    def read_slots_of(self, tokens: npt.NDArray[np.uint64]) -> None:
        """Reads the unread slots of leases and errands. Raises DamagedStoreError."""
        unread, tables = self.tables.urls.unread, self.tables
        if unread is None:
            return
        leases = tables.urls.by_token(tokens, bodies=False)
        errands = [tables.errands.open[token] for token in tokens.tolist() if token in tables.errands.open]
        slots = np.array([errand.slot for errand in errands], np.uint16)
        unread.read(np.concatenate((leases.cards.heads["slot"][leases.found], slots)))

    def read_slots(self, rows: int) -> None:
        """Reads the next unread slots, with about this number of URLs. Raises DamagedStoreError."""
        unread = self.tables.urls.unread
        if unread is not None:
            unread.read_some(rows)
            self.settle(self.now)

    def read_owed(self, now: Instant) -> None:
        """Reads a few URLs of unread slots after each call, and more after one that added many: until all are read, no
        host goes to disk. Raises DamagedStoreError."""
        unread = self.tables.urls.unread
        if unread is None:
            return
        if unread.read_owed():
            self.settle(now)

    def repeated(self, request_id: RequestId | None, verb: str) -> bytes | None:
        """Returns the kept answer to a repeated call; None for a new call. Raises SettingsError for an id that was used
        for another verb."""
        if request_id is None:
            return None
        client, sequence = request_id
        window = self.tables.registry.requests.get(client)
        known = window.get(sequence) if window is not None else None
        if known is None:
            return None
        if known[0] & ~_BEGUN != _VERBS[verb]:
            raise SettingsError(
                f"request_id {request_id!r} was used for another verb: use a new sequence for each call"
            )
        return known[1]

    def is_begun(self, request_id: RequestId) -> bool:
        """Whether the kept answer covers only the first frames of an interrupted call."""
        return bool(self.tables.registry.requests[request_id[0]][request_id[1]][0] & _BEGUN)

    def answered(
        self, draft: Draft, request_id: RequestId | None, verb: str, answer: bytes, *, begun: bool = False
    ) -> None:
        """Keeps the answer in the frame. begun: the answer covers this frame and the ones before it, not the whole
        call. The last frame has the whole answer. If it is missing, a repeated call continues from here."""
        if request_id is not None:
            number = _VERBS[verb] | (_BEGUN if begun else 0)
            draft.add(Fact.REQUEST, (OWN_SLOT, request_id[0], request_id[1], number, answer))

    def advance(self, now: Instant) -> Instant:
        """Returns the later of `now` and the last instant: after a clock stepped back, time stops until the clock has
        caught up. `rest_everybody` lets all hosts rest in this case."""
        self.now = now = max(now, self.now)
        return now

    def wake(self, now: Instant) -> None:
        """Makes the changes by time alone: waiting URLs become queued, leases expire, resting hosts become ready."""
        tables = self.tables
        lost: list[int] = []
        if 0 <= tables.urls.leases.next() <= now:
            lost = np.frombuffer(tables.urls.leases.expire(now, WAKES_PER_CALL_MAX), np.uint64).tolist()
        errands: list[Errand] = []
        while self.gates.deadlines and self.gates.deadlines[0][0] <= now:
            deadline, token = heapq.heappop(self.gates.deadlines)
            errand = tables.errands.open.get(token)
            if errand is not None and errand.deadline == deadline:
                errands.append(errand)
        if lost or errands:
            draft = self.draft(now)
            self.lose(draft, lost, now)
            for errand in errands:
                self.lose_errand(draft, errand, now)
            try:
                self.commit(draft, reserve=True)
            except (SettingsError, StoreFullError):
                for errand in errands:
                    heapq.heappush(self.gates.deadlines, (errand.deadline, errand.token))
                raise
            self.lines_of_wakes += draft.lines
        woken = tables.urls.wake(now, WAKES_PER_CALL_MAX)
        at = tables.urls.calendar.next() if len(tables.urls.calendar) else None
        self.woken = now if at is None or at > now else at - 1
        if woken:
            self.settle(now)
        self.turns.wake(now)
        tables.leaving.drop(WAKES_PER_CALL_MAX)
        if tables.leaving.waiting:
            self.let_queues_go(LEAVING_QUEUES_PER_CALL)

    def let_queues_go(self, most: int) -> None:
        """Removes queues of deleted crawls. This needs no fact, because no later fact names them."""
        rows = self.tables.leaving.ready(most)
        if len(rows):
            self.turns.ready.withdraw(rows)
            self.turns.seekers.withdraw(rows)
            self.tables.leaving.remove(rows)

    def take_lines(self, draft: Draft) -> tuple[Line, ...]:
        """Returns the lines of this call, after the lines that `wake` kept for the next call that returns lines."""
        lines, self.lines_of_wakes = (*self.lines_of_wakes, *draft.lines), []
        return lines

    def lose(
        self, draft: Draft, tokens: Sequence[int], now: Instant, *, died: bool = False, seen: Instant | None = None
    ) -> None:
        """Ends leases that expired or whose holders died. The URL itself may kill its holders, so from now on
        it is the last of its class. After LEASES_LOST_MAX losses in a row it is gone, except in a crawl by unique keys,
        whose caller decides about its URLs. died: their process ended, so
        all their hosts rest; after an expiry those of requests that were over keep their clocks. seen: the last instant
        of a holder on another machine, whose requests may run for the time that their leases had left then."""
        if not tokens:
            return
        given = np.array(tokens, np.uint64)
        leases = self.tables.urls.by_token(given)
        dead, callers = self.tables.urls.void(leases.cards.heads), self.tables.crawls.callers
        for row, token in enumerate(given.tolist()):
            queue = int(leases.queues[row])
            draft.tally("lost", 1)
            over = token in self.tables.hosts.rested.ends
            if died or not over:
                ends = now if over else _runs_until(int(leases.deadlines[row]), now, seen)
                self.rests.whole(draft, int(self.tables.queues.host[queue]), self.rests.floor_of_page(queue), ends)
            record = CardRecord.of(leases.cards, row)
            record.losses = min(record.losses + 1, 255)
            # One microsecond after now: URLs that were queued at this instant are first.
            record.due = max(record.due, now) + 1
            requeued = self.tables.urls.requeued.get(token)
            if requeued is not None:
                due, priority = requeued
                record.due, record.attempts, record.losses = max(record.due, due), 0, 0
                record.state = WAITING if due > now else QUEUED
                if not math.isnan(priority):
                    record.priority, record.klass = priority, class_again(record.klass, priority)
            elif record.losses >= LEASES_LOST_MAX and not dead[row] and record.crawl not in callers:
                draft.move(record, GONE, Reason.LOST, error="lost")
                draft.error("lost")
                draft.refusal(record, now, outcome=Word.ERROR, error="lost")
            else:
                record.state = QUEUED
            draft.record(record, LEASED, token=token)

    def lose_errand(
        self, draft: Draft, errand: Errand, now: Instant, *, died: bool = False, seen: Instant | None = None
    ) -> None:
        """Ends an errand that expired or whose holder died; it is queued again. died, seen: as in `lose`."""
        draft.tally("lost", 1)
        over = errand.token in self.tables.hosts.rested.ends
        if died or not over:
            ends = now if over else _runs_until(errand.deadline, now, seen)
            self.rests.whole_of_host(draft, errand.busy, ends)
        draft.add(*errand.ending(0, lost=True))


class Part:
    """A part of the machine: some verbs, over the one core."""

    def __init__(self, core: Core) -> None:
        self._core, self._homes, self._rests, self._gates = core, core.homes, core.rests, core.gates
        self.tables, self.settings, self.turns = core.tables, core.settings, core.turns


def _runs_until(deadline: Instant, now: Instant, seen: Instant | None) -> Instant:
    """Returns until when the request of a lease that ends now may run. seen: as in `Core.lose`."""
    return now if seen is None else now + max(0, deadline - seen)


def codes_of(numbers: bytes) -> list[Code]:
    """Returns the codes of their numbers."""
    if numbers.count(numbers[:1]) == len(numbers):  # usually all are equal
        return [CODES[numbers[0]]] * len(numbers)
    found: list[Code] = _CODES.take(np.frombuffer(numbers, np.uint8)).tolist()
    return found


def bounded(rows: int, what: str) -> None:
    if rows > CALL_ROWS_MAX:
        raise SettingsError(f"{rows} {what} in one call are too many; split it into calls of at most {CALL_ROWS_MAX}")
