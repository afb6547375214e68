"""The base of all verbs: a call decides a draft, logs it and applies it. Also the changes that time alone brings."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from outrider import kernels
from outrider.clock import Instant, instant
from outrider.errors import SettingsError, StoreFullError
from outrider.frontier.format.cards import Cards
from outrider.frontier.format.facts import FRAME_KIND, Block, Compressor, Fact, UnfitFactsError, sealed
from outrider.frontier.format.lines import refusal
from outrider.frontier.format.records import Record
from outrider.frontier.policy.grouping import Grouping
from outrider.frontier.policy.network import Network
from outrider.frontier.policy.settings import FrontierSettings
from outrider.frontier.policy.welcome import SameBodies
from outrider.frontier.schedule.cooling import Cooling
from outrider.frontier.schedule.turns import Turns
from outrider.frontier.state.authorities import Authority, RobotsState
from outrider.frontier.state.errand import Errand
from outrider.frontier.state.errand import Line as ErrandLine
from outrider.frontier.state.errands import crawl_delay, unanswered
from outrider.frontier.state.hosts import (
    NONE,
    ROBOTS,
    RULED,
    QueueRules,
    Rows,
    queue_hashes,
)
from outrider.frontier.state.tables import Tables, rules_cells
from outrider.frontier.state.urls import GONE, LEASED, QUEUED, Hand, Reason, lease_columns
from outrider.frontier.stores.recent import Recent
from outrider.frontier.verbs import arguments
from outrider.frontier.verbs.delays import Delays
from outrider.frontier.verbs.draft import Draft
from outrider.frontier.verbs.host_sizes import HostSizes
from outrider.frontier.verbs.scopes import Scopes
from outrider.journey import (
    Code,
    Line,
    RequestId,
)
from outrider.limits import (
    CALL_ROWS_MAX,
    DEADLINES_KEPT_MAX,
    LEASES_LOST_MAX,
    LEAVING_QUEUES_PER_CALL,
    OWN_SLOT,
    WAKES_PER_CALL_MAX,
)
from outrider.url import UrlBatch, authority_of, domain_spans, host_of
from outrider.url.keys import public_suffixes
from outrider.url.rules import Rules as UrlRules

Place: TypeAlias = tuple[int, int]
"""A place in a slot of the ledger: the row of a crawl, and the fingerprint of its last URL that was looked at (-1: of
none)."""
FIRST: Place = (0, -1)
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
        """Adds a frame and returns its LSN. reserve: it may use the space that is held back for a full disk. Raises
        StoreFullError."""
        ...


class Found(NamedTuple):
    """Leases by token, in columns, as `Leases.get` gives them."""

    found: npt.NDArray[np.bool_]
    queues: Rows
    deadlines: npt.NDArray[np.int64]
    holders: npt.NDArray[np.uint32]
    not_before: npt.NDArray[np.int64]
    cards: Cards


class Waiting:
    """Authorities by name that wait for a call to look at their URLs. again: those whose parked URLs are being judged
    again, with the last place that was looked at in the ledger; unread: those whose rules are to be read first."""

    def __init__(self) -> None:
        self.again: dict[str, Place] = {}
        self.unread: dict[str, Authority] = {}


class Deciding:
    """The parts of a frontier, and the way from a decision to a fact. The classes built on it decide."""

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
        self._owned = owned
        self.settings = settings
        self.errands_mode = errands
        self.keeps_lines = keeps_lines
        self._log = log
        self.seed = seed & ((1 << 64) - 1)
        self._slot_key = slot_key
        public_suffixes()  # the first use reads it from disk, and no call should wait for that
        self._compressor = Compressor()
        self._recent = Recent()
        self.turns = Turns(tables, self.seed, settings.group or Grouping(), locates=locates)
        self.turns.pages_per_host = settings.max_pages_per_host
        self.turns.judges_errands = errands and settings.obey_robots
        self.cooling = Cooling(tables, self.turns, settings.hot_hosts_max)
        self._deadlines: list[tuple[Instant, int]] = []  # deadlines of errands, a heap
        tables.robots.rulebook.agent = settings.user_agent
        self._scopes = Scopes(settings, tables.crawls)
        self._waiting = Waiting()
        self._same_bodies = SameBodies()
        self._lines_of_wakes: list[Line] = []
        # The codes of links, by token, of outcomes whose report broke off behind their frame: a full disk kept their
        # answer from the caller.
        self._unanswered: dict[int, bytes] = {}
        self.network = Network()
        self.delays = Delays()
        quantile = settings.traps.host_quantile if settings.traps is not None else None
        self._sizes = HostSizes(tables.returns, tables.fingerprint_key, quantile)
        self._woken: Instant = tables.now  # waiting URLs that were due at this instant are queued
        self.lsn = 0
        self.asked = ""  # the caller's function that runs now, in words for an error
        self.now: Instant = tables.now

    @property
    def rules(self) -> UrlRules:
        """The lossy rules of spelling."""
        return self.settings.url_rules or _NO_RULES

    # -- a decision becomes a fact -------------------------------------------------------------------------------------

    def _draft(self, now: Instant) -> Draft:
        return Draft(self.tables, now, keeps_lines=self.keeps_lines)

    def _commit(self, draft: Draft, *, reserve: bool = False) -> None:
        """Logs a draft, then applies it; the same `apply` replays the frame after a crash."""
        blocks, payload = self._sealed(draft)
        if draft.barren:
            self._scopes.forget()  # other crawls get their rows
        if blocks:
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
            if Fact.VOID in draft.rows or Fact.CRAWL_RULES in draft.rows:
                self._recent.forget()
                self._scopes.forget()
            if not _OF_ERRANDS.isdisjoint(draft.rows):
                self._errands_changed(draft)
        for marks in draft.known:
            self._recent.note(marks)
        self._settle(draft.now)

    def _sealed(self, draft: Draft) -> tuple[list[tuple[Block, Hand | None]], bytes]:
        """The facts of a draft, and the payload of their frame. Raises SettingsError for facts that could be logged but
        not applied: with them in its log the store could not be opened."""
        if draft.order > self.tables.urls.order and self.tables.registry.wants_date(draft.now):
            draft.add(Fact.ACCEPTED, (OWN_SLOT, self.tables.urls.order, draft.now))
        try:
            blocks = draft.blocks()
            return blocks, sealed(draft.now, [block for block, _ in blocks]) if blocks else b""
        except (UnfitFactsError, OverflowError) as error:
            self._take_back(draft)
            raise arguments.unfit(error) from error

    def _take_back(self, draft: Draft) -> None:
        """Undoes a draft that is not logged: puts the cards that it drew back, and drops the scopes that it widened."""
        self._scopes.forget()
        for queues, cards in draft.drawn:
            self.tables.urls.backlog.put(queues, cards)

    def _settle(self, now: Instant) -> None:
        """Brings timetable and rings up to date with the applied facts."""
        changed, self.tables.changed = self.tables.changed, []
        begun, self.tables.begun = self.tables.begun, []
        if begun and self.turns.shared.used:
            self.turns.shared.follow(np.concatenate(begun))
        if changed:
            self.turns.touch(changed, now)

    def _errands_changed(self, draft: Draft) -> None:
        self._forget_deadlines()
        for row in draft.rows.get(Fact.ROBOTS, ()):
            self._robots_changed(self.tables.robots.by_name[row[1]], draft.now)
        for row in draft.rows.get(Fact.ERRAND, ()):
            self.turns.leave_line(self.tables.robots.by_name[row[1]])
        called = self.tables.errands.called
        for kind in (Fact.QUEUED_ERRAND, Fact.LEASED_ERRAND):
            for row in draft.rows.get(kind, ()):
                self._next_in_line((row[1], row[2], authority_of(row[3])))
        for errand in called.dropped:
            self._leave_line(errand)
        called.dropped.clear()

    def _robots_changed(self, authority: Authority, now: Instant) -> None:
        """After a fact about a robots.txt: its errand goes on or ends, the gate of its host opens, and parked URLs are
        judged again."""
        self._leave_line(authority)
        if authority.token:
            return  # rules from the caller beside an open errand
        host = authority.host
        if unanswered(authority, now) and self.errands_mode:
            # Another hop or attempt follows, or the errand was lost.
            if self.turns.gates.get(host) is authority or self.turns.is_sought(authority):
                self._line_up(authority)
        else:
            if authority.state == RobotsState.REFUSED and self.errands_mode:
                self._line_up(authority)  # tried again daily, while the crawl goes on
            if self.turns.gates.get(host) is authority:
                self.turns.open_gate(host)
        self._judge_later(authority)
        self.tables.changed.append(np.array([host], np.uint32))

    def _repeated(self, request_id: RequestId | None, verb: str) -> bytes | None:
        if request_id is None:
            return None
        client, sequence = request_id
        window = self.tables.registry.requests.get(client)
        known = window.get(sequence) if window is not None else None
        if known is None:
            return None
        if known[0] & ~_BEGUN != _VERBS[verb]:
            raise SettingsError(
                f"request_id {request_id!r} was used for another verb: give each call a sequence of its own"
            )
        return known[1]

    def _is_begun(self, request_id: RequestId) -> bool:
        """Whether the kept answer covers only the first frames of a call that broke off behind them."""
        return bool(self.tables.registry.requests[request_id[0]][request_id[1]][0] & _BEGUN)

    def _answered(
        self, draft: Draft, request_id: RequestId | None, verb: str, answer: bytes, *, begun: bool = False
    ) -> None:
        """Keeps the answer in the frame. begun: the answer covers this frame and the ones before it, not the whole
        call. The last frame brings the whole answer; when it is missing, a repeated call goes on from here."""
        if request_id is not None:
            number = _VERBS[verb] | (_BEGUN if begun else 0)
            draft.add(Fact.REQUEST, (OWN_SLOT, request_id[0], request_id[1], number, answer))

    # -- what time alone brings about ----------------------------------------------------------------------------------

    def _advance(self, now: Instant) -> Instant:
        """The later of `now` and the last instant: time stands still while a clock that stepped back catches up.
        `rest_everybody` lets all hosts rest then."""
        self.now = now = max(now, self.now)
        return now

    def _wake(self, now: Instant) -> None:
        """Makes the changes of time alone: waiting URLs become queued, leases expire, resting hosts become ready."""
        tables = self.tables
        lost: list[int] = []
        if 0 <= tables.urls.leases.next() <= now:
            lost = np.frombuffer(tables.urls.leases.expire(now, WAKES_PER_CALL_MAX), np.uint64).tolist()
        errands: list[Errand] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            deadline, token = heapq.heappop(self._deadlines)
            errand = tables.errands.open.get(token)
            if errand is not None and errand.deadline == deadline:
                errands.append(errand)
        if lost or errands:
            draft = self._draft(now)
            self._lose(draft, lost, now)
            for errand in errands:
                self._lose_errand(draft, errand, now)
            try:
                self._commit(draft, reserve=True)
            except (SettingsError, StoreFullError):
                for errand in errands:
                    heapq.heappush(self._deadlines, (errand.deadline, errand.token))
                raise
            self._lines_of_wakes += draft.lines
        woken = tables.urls.wake(now, WAKES_PER_CALL_MAX)
        at = tables.urls.calendar.next() if len(tables.urls.calendar) else None
        self._woken = now if at is None or at > now else at - 1
        if woken:
            self._settle(now)
        self.turns.wake(now)
        tables.leaving.drop(WAKES_PER_CALL_MAX)
        if tables.leaving.waiting:
            self._let_queues_go(LEAVING_QUEUES_PER_CALL)

    def _let_queues_go(self, most: int) -> None:
        """Removes queues of deleted crawls. That is no fact: no later fact names them."""
        rows = self.tables.leaving.ready(most)
        if len(rows):
            self.turns.ready.withdraw(rows)
            self.turns.seekers.withdraw(rows)
            self.tables.leaving.remove(rows)

    def _take_lines(self, draft: Draft) -> tuple[Line, ...]:
        """Takes the lines of this call, behind the lines that `_wake` kept for the next call that returns lines."""
        lines, self._lines_of_wakes = (*self._lines_of_wakes, *draft.lines), []
        return lines

    def _lose(self, draft: Draft, tokens: Sequence[int], now: Instant) -> None:
        """Ends leases whose holders died or let them expire. The URL itself may kill its holders: from now on it goes
        behind its class, and after LEASES_LOST_MAX losses in a row it is gone."""
        if not tokens:
            return
        given = np.array(tokens, np.uint64)
        leases = self._by_token(given)
        dead = self.tables.urls.void(leases.cards.heads)
        for row, token in enumerate(given.tolist()):
            queue = int(leases.queues[row])
            draft.tally("lost", 1)
            self._rest_whole(draft, int(self.tables.queues.host[queue]), self._floor_of_page(queue), now)
            record = Record.of(leases.cards, row)
            record.losses = min(record.losses + 1, 255)
            # One microsecond after now: URLs that came into the queue at this instant go first.
            record.due = max(record.due, now) + 1
            if record.losses >= LEASES_LOST_MAX and not dead[row]:
                self._move(draft, record, GONE, Reason.LOST, error="lost")
                draft.error("lost")
                self._refusal_line(draft, record, now, outcome="error", error="lost")
            else:
                record.state = QUEUED
            draft.record(record, LEASED, token=token)

    def _lose_errand(self, draft: Draft, errand: Errand, now: Instant) -> None:
        draft.tally("lost", 1)
        self._rest_whole_host(draft, errand.busy, now)
        draft.add(*errand.ending(0, lost=True))

    def _end_errand(self, draft: Draft, errand: Errand, until: Instant = 0) -> None:
        """Ends an errand with a fact that repeats the known cells; the next errand comes at `until` at the earliest."""
        draft.add(*errand.ending(until))

    def _open_errand(self, draft: Draft, errand: Errand, token: int, deadline: Instant, holder: int) -> None:
        """Opens an errand, or keeps it open with another deadline."""
        draft.add(*errand.opening(token, deadline, holder))

    def _rest_whole(self, draft: Draft, host: int, floor: float, now: Instant, *, over: bool = True) -> None:
        """Lets the host of a lease that ends without a report rest one whole delay: its holder may have fetched just
        now. over: False for a lease that goes on."""
        if host == NONE:
            return
        clock = draft.clock(host)
        delay = self._crawl_delay(host)
        clock.rest_at_least(now + instant(max(clock.gap, floor, delay)))
        if over or self.turns.shared.used:
            # In doubt a request ended now: the gaps of groups and a Crawl-delay that comes later count from there.
            clock.ended = max(clock.ended, now)

    def _rest_whole_host(self, draft: Draft, host: int, now: Instant) -> None:
        """As `_rest_whole`, for an errand, which has no queue."""
        if host != NONE:
            self._rest_whole(draft, host, self._floor_of_host(host), now)

    def _forget_deadlines(self) -> None:
        """Drops the deadlines of errands that ended; with long leases they would pile up for a day."""
        errands = self.tables.errands.open
        if len(self._deadlines) > 2 * len(errands) + DEADLINES_KEPT_MAX:
            self._deadlines = [(errand.deadline, token) for token, errand in errands.items()]
            heapq.heapify(self._deadlines)

    # -- one URL, one lease, one host ----------------------------------------------------------------------------------

    def _move(
        self,
        draft: Draft,
        record: Record,
        state: int,
        reason: int,
        *,
        error: str | None = None,
    ) -> None:
        """Moves a record to another state; error: None leaves it as it is."""
        record.state, record.reason = state, int(reason)
        if error is not None:
            record.error = draft.error_number(error)

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

    def _by_token(self, tokens: npt.NDArray[np.uint64], *, bodies: bool = True) -> Found:
        found, queues, deadlines, holders, not_before, heads, arena, offsets = lease_columns(
            self.tables.urls.leases.get(tokens, bodies)
        )
        return Found(found, queues, deadlines, holders, not_before, Cards(heads, arena, offsets))

    def _content_hashes(self, digests: Sequence[bytes]) -> list[int]:
        """The hashes by which contents are known."""
        if not digests:
            return []
        texts = [digest.decode("latin-1") for digest in digests]
        found = np.frombuffer(kernels.fingerprints(texts, self.tables.fingerprint_key), np.uint64)
        return np.maximum(found, 1).tolist()  # type: ignore[no-any-return]

    def _floor(self, queue: int) -> float:
        """The least gap in seconds behind a request of a queue."""
        return self._floor_under(self.tables.queues.rules.get(queue))

    def _floor_of_page(self, queue: int) -> float:
        """The least gap in seconds behind a page of a queue. Operators cannot rule a queue of a deleted crawl any more,
        so the other queues of the host count, too."""
        floor = self._floor(queue)
        if not self.tables.crawls.gone[self.tables.queues.crawl[queue]]:
            return floor
        return max(floor, self._floor_of_host(int(self.tables.queues.host[queue])))

    def _floor_under(self, rules: QueueRules | None) -> float:
        """The least gap in seconds behind a request of a queue with these rules."""
        return self.settings.delay if rules is None or rules.delay is None else rules.delay

    def _floor_of_host(self, host: int) -> float:
        """The least gap in seconds behind a request of no queue to a host: the largest among its queues."""
        if not self.tables.hosts.flags[host] & RULED:
            return self.settings.delay
        return max(map(self._floor, self.tables.queues_of(host)), default=self.settings.delay)

    def _crawl_delay(self, host: int) -> float:
        """Seconds that robots rules want between two requests to a host."""
        asked = crawl_delay(self.tables.robots.of_host.get(host, ()), self.tables.robots.rulebook)
        return self._obeyed(asked) if asked else asked

    def _crawl_delays(self, draft: Draft, hosts: Rows) -> npt.NDArray[np.float64] | None:
        """The Crawl-delays of hosts in seconds, also of rules that came with this call; None where none has any."""
        if not draft.crawl_delays and not self.tables.robots.of_host:
            return None
        asked = (self.tables.hosts.flags[hosts.astype(np.intp)] & ROBOTS).nonzero()[0]
        if not len(asked) and not draft.crawl_delays:
            return None
        delays = np.zeros(len(hosts))
        of_host, rulebook = self.tables.robots.of_host, self.tables.robots.rulebook
        found = [crawl_delay(of_host.get(host, ()), rulebook) for host in hosts[asked].tolist()]
        if any(found):
            delays[asked] = list(map(self._obeyed, found))
        for host, delay in draft.crawl_delays.items():
            delays[hosts == host] = np.maximum(delays[hosts == host], delay)
        return delays if delays.any() else None

    def _obeyed(self, delay: float) -> float:
        """Seconds of a Crawl-delay as the settings take it."""
        if not self.settings.obey_robots:
            return 0.0
        most = self.settings.crawl_delay_max
        return min(delay, most) if most is not None and self.settings.crawl_delay_over == "cap" else delay

    def _name(self, draft: Draft, authority: Authority) -> None:
        """Adds the fact of an authority, which must come before facts that name it."""
        if not authority.logged:
            draft.add(Fact.AUTHORITY, (authority.slot, authority.name))

    def _add_host(self, draft: Draft, name: str, crawl: int | None = None) -> None:
        """Adds facts for a host and its queue, unless it is known. crawl: the row of a crawl that gets a queue of the
        host in any case, None for the default crawl and new hosts only."""
        tables = self.tables
        name = tables.home_of(name)
        host = tables.host_row(name)
        if name in draft.hosts_made:
            return
        if host != NONE and (crawl is None or crawl in tables.queues.crawl[list(tables.queues_of(host))]):
            return
        draft.hosts_made.add(name)
        crawl = crawl or 0
        number, slot = tables.hash_of(name), self.slot_of(name)
        if host == NONE:
            draft.add(Fact.HOST, (slot, number, name))
        queue = int(queue_hashes(np.array([number], np.uint64), np.array([crawl], np.uint32))[0])
        draft.add(Fact.QUEUE, (slot, queue, number, crawl, ""))
        rules = tables.rules_of_new(crawl, name)
        if rules.any():
            draft.add(Fact.QUEUE_RULES, rules_cells(slot, queue, rules))

    def _leave_addresses(self, draft: Draft, hosts: Iterable[int]) -> None:
        """Keeps the addresses of hosts with open requests, before they get others: until these end, the hosts count in
        the groups of the address that they leave, also after a kill."""
        tables = self.tables
        busy = [host for host in hosts if tables.hosts.in_flight[host]]
        if not busy:
            return
        still_at = tables.addresses.still_at()
        for host in busy:
            if host not in still_at:
                place = tables.addresses.by_host.get(host)
                address = place.address if place is not None else ""
                draft.add(Fact.LEFT, tables.addresses.left_cells(host, tables.token, address))

    def _owns(self, name: str) -> bool:
        """Whether the slot of a host is of this frontier: another one's requests go by another clock."""
        return self._owned is None or self.slot_of(self.tables.home_of(name)) in self._owned

    def slot_of(self, name: str) -> int:
        """The slot of a host: the top 12 bits of the keyed hash of its registrable domain, or of its name if it has
        none."""
        text = name.encode("ascii")
        return int(self._slots_of_spans(text, np.zeros(1, np.int64), np.array([len(text)], np.int64))[0])

    def _slots_of_spans(self, arena: bytes, starts: Any, ends: Any) -> npt.NDArray[np.uint16]:
        starts, ends = domain_spans(arena, np.ascontiguousarray(starts), np.ascontiguousarray(ends))
        numbers = np.frombuffer(kernels.hash_spans(arena, starts, ends, self._slot_key), np.uint64)
        return (numbers >> np.uint64(52)).astype(np.uint16)

    def _homes(self, urls: UrlBatch) -> npt.NDArray[np.uint64]:
        """The hashes of the hosts whose clocks count for these URLs, by the rule of `home_of`."""
        names = urls.clock_fingerprints(self.tables.fingerprint_key)
        written = urls.host_fingerprints(self.tables.fingerprint_key)
        rows = np.flatnonzero(names != written) if names is not written else np.zeros(0, np.intp)
        known = self.tables.knows(written[rows]) if len(rows) else None
        if known is None or not known.any():
            return names
        names = names.copy()
        names[rows[known]] = written[rows[known]]
        return names

    def _slots_of_homes(
        self, urls: UrlBatch, names: npt.NDArray[np.uint64], rows: npt.NDArray[np.intp]
    ) -> npt.NDArray[np.uint16]:
        """The slots of these rows. names: the result of `_homes` for all rows."""
        starts, ends = urls.clock_hosts()
        ends = ends + (names != urls.clock_fingerprints(self.tables.fingerprint_key))
        return self._slots_of_spans(urls.arena, starts[rows], ends[rows])

    def _cold_ones(self, names: Any, hosts: Rows) -> npt.NDArray[np.intp]:
        """The places of hosts that have no row and are cold."""
        places = np.flatnonzero(hosts == NONE)
        if not len(self.tables.cold):
            return places[:0]
        return places[self.tables.cold.has(np.ascontiguousarray(names[places]))]

    # -- hosts that wait for robots rules ------------------------------------------------------------------------------

    def _gate(self, authority: Authority, *, unread: bool) -> None:
        """Gates the host of an authority until its rules are known. unread: the rules are there, and too long to be
        read in this call."""
        self.turns.gate(authority)
        if unread:
            self._waiting.unread[authority.name] = authority
        else:
            self._line_up(authority)
        self.tables.changed.append(np.array([authority.host], np.uint32))

    def _next_in_line(self, line: ErrandLine) -> None:
        """Lines up the errand of callers that comes next in its line."""
        called = self.tables.errands.called
        for errand in called.lined_up(line):
            self._leave_line(errand)
        following = called.next_of(line)
        if following is not None:
            self._line_up(following)

    def _line_up(self, errand: Errand) -> None:
        """Lines an errand up at the host that the request will go to."""
        if errand.wanted != NONE or errand.token:
            return
        host = self.tables.host_row(self.tables.home_of(host_of(errand.url)))
        if host == NONE:
            return
        self.turns.line_up(errand, host)
        self.tables.changed.append(np.array([host], np.uint32))

    def _leave_line(self, errand: Errand) -> None:
        host = self.turns.leave_line(errand)
        if host != NONE:
            self.tables.changed.append(np.array([host], np.uint32))

    def _judge_later(self, authority: Authority) -> None:
        """Has parked URLs of an authority judged again, from the first one, where its rules changed."""
        if authority.again and authority.state in (RobotsState.RULES, RobotsState.ALLOW):
            self._waiting.again[authority.name] = FIRST
        else:
            self._waiting.again.pop(authority.name, None)


def codes_of(numbers: bytes) -> list[Code]:
    """The codes behind their numbers."""
    if numbers.count(numbers[:1]) == len(numbers):  # most often all are alike
        return [CODES[numbers[0]]] * len(numbers)
    found: list[Code] = _CODES.take(np.frombuffer(numbers, np.uint8)).tolist()
    return found


def bounded(rows: int, what: str) -> None:
    if rows > CALL_ROWS_MAX:
        raise SettingsError(f"{rows} {what} in one call; cut it into calls of at most {CALL_ROWS_MAX}")
