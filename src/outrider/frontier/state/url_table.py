"""The URLs of a frontier: the card of each in the place for its state, its lease, and the counts.

A queued card lies in the backlog of its queue or in the record of its cold host, a waiting one in a calendar, one that
is parked for a budget in `spent` under its queue, a leased one with its lease. The ledger has the newest record of
every URL, in any state.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from outrider import kernels
from outrider.clock import Instant
from outrider.frontier.format.card_columns import Cards
from outrider.frontier.format.constant import by_value
from outrider.frontier.format.facts import Block, Fact, Values, columns_of
from outrider.frontier.policy import lives
from outrider.frontier.policy.returns import Returns
from outrider.frontier.priority import class_of
from outrider.frontier.state.host_signals import HostSignals
from outrider.frontier.state.hosts import (
    DELAYED,
    GROUPED,
    NONE,
    ROBOTS,
    SLOWED,
    Rows,
    add_to_each,
    hosts_of_queues,
)
from outrider.frontier.state.payments import Payments
from outrider.frontier.state.rested import NOT_OVER
from outrider.frontier.state.seen import SeenSet
from outrider.frontier.stores.calendar import Calendar
from outrider.frontier.stores.ledger import Ledger
from outrider.frontier.stores.tailed_backlog import TailedBacklog
from outrider.journey import State
from outrider.kernels.card_layout import HEAD, ORDERED, PLANNED, Heads
from outrider.limits import CALENDAR_ROUNDS_MAX, RESTORED_BYTES, RESTORED_ROWS, WAKES_PER_CALL_MAX
from outrider.storage.files import Files
from outrider.storage.read_ahead import ahead

if TYPE_CHECKING:
    from outrider.frontier.state.tables import Tables
    from outrider.frontier.state.unread_slots import UnreadSlots

STATES = tuple(map(State, lives.URL.states))
UNKNOWN, QUEUED, LEASED, WAITING, PARKED, DONE, GONE = range(7)
NO_PRIORITY = float("nan")  # in an order that leaves the priority of a URL as it is

Uint8s = npt.NDArray[np.uint8]
Uint64s = npt.NDArray[np.uint64]
UNAPPLIED_TOKEN = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
"""In replay, replaces the token of a lease that began and ended in one window. Replay never opens such a lease."""
_NO_STATES = np.zeros(0, np.uint8)
_IS_OPEN = np.isin(np.arange(7), (QUEUED, LEASED, WAITING, PARKED))
_AT_COLD_HOSTS = (QUEUED, WAITING, DONE, GONE)
_NO_COUNTS = (0,) * 7
_NO_ROWS = np.zeros(0, np.uint32)
_NO_CARDS = Cards.none()


class Reason(IntEnum):
    """Why a URL is parked or gone."""

    NONE = 0
    BUDGET = 1
    ROBOTS = 2
    STATUS = 3
    ERROR = 4
    LOST = 5
    REDIRECT_SELF = 6
    DROPPED = 7
    TRAP = 8
    PLANNED = PLANNED  # of a waiting URL: a revisit rule decides whether it is fetched when it is due
    PAYMENT = 10


LEDGER_ALONE = (Reason.ROBOTS, Reason.TRAP, Reason.PAYMENT)
"""The reasons of parked URLs that are in the ledger alone: their number has no limit. The others wait for a budget."""


@dataclass(frozen=True, slots=True)
class KnownRows:
    """The parts of a block that a live call holds already: cards with their new heads, the states they leave, and the
    rows of their queues where they are known; for clocks and queues the rows of the hosts. first: for new hosts and
    queues, `made` of their columns at the time of the look-up; returns: those of a block of returns."""

    cards: Cards
    old: Uint8s
    rows: Rows | None = None
    first: int = -1
    returns: Sequence[Returns] = ()

    @classmethod
    def of_rows(cls, rows: Rows | None, *, first: int = -1) -> KnownRows:
        return cls(_NO_CARDS, _NO_STATES, rows, first)

    @classmethod
    def of_returns(cls, returns: Sequence[Returns]) -> KnownRows:
        return cls(_NO_CARDS, _NO_STATES, returns=returns)


class OpenLeases(NamedTuple):
    """Leases of pages in columns. found: whether each is open; the other columns say nothing of one that is not."""

    found: npt.NDArray[np.bool_]
    queues: Rows
    deadlines: Values
    holders: npt.NDArray[np.uint32]
    not_before: Values
    cards: Cards

    def take(self, rows: npt.NDArray[np.intp]) -> OpenLeases:
        """The leases of these rows, in this order."""
        found, queues, deadlines, holders, not_before, cards = self
        return OpenLeases(found[rows], queues[rows], deadlines[rows], holders[rows], not_before[rows], cards.take(rows))


class UrlTable:
    """The URLs of a frontier. ledger: their records; scratch: the files for tails, None to keep all in memory; began:
    about the instant at which it begins; bytes_max: the limit for cards of queued URLs in memory, seen_bytes_max: that
    for the seen-set."""

    def __init__(
        self,
        tables: Tables,
        ledger: Ledger,
        *,
        scratch: Files | None,
        began: Instant,
        bytes_max: int | None,
        seen_bytes_max: int | None = None,
    ) -> None:
        self._tables = tables
        self.ledger = ledger
        self.leases = kernels.Leases()
        self._scratch = scratch
        self._bytes_max, self._seen_bytes_max = bytes_max, seen_bytes_max
        self._began = began
        self._make_places(began)
        self.planned_stay = False  # planned URLs that are due still wait: a rule looks at them within a rate
        self.signals = HostSignals()
        self.payments = Payments()
        self.order = 1  # the number of the next URL that is accepted
        self.counts = [0] * 7  # by state
        self.of_crawls: defaultdict[int, list[int]] = defaultdict(lambda: [0] * 7)
        """The same counts of each crawl, by its row."""
        self.void_waiting = 0  # cards of deleted queues that the calendars still have
        self.scanned = False  # whether the opening read the ledger
        self.unread: UnreadSlots | None = None  # the slots that the opening left for later; None when all are read
        self.plans = False  # whether there may be planned URLs
        self.requeued: dict[int, tuple[Instant, float]] = {}
        """By token: due and priority (NaN: as before) of leased URLs that are queued again when the lease ends."""
        self._woken: Instant = 0  # the latest instant up to which waiting URLs were queued

    def _make_places(self, now: Instant) -> None:
        """Makes the structures that are derived from the ledger, without URLs."""
        crawls, scratch = self._tables.crawls, self._scratch
        self.seen = SeenSet(crawls.callers, scratch=scratch, bytes_max=self._seen_bytes_max)
        self.backlog = TailedBacklog(scratch, name="backlog", bytes_max=self._bytes_max, orders=crawls.orders)
        self.calendar = Calendar(scratch, name="calendar", now=now)
        self.planned = Calendar(scratch, name="planned", now=now)
        """The waiting URLs that a revisit rule looks at when they are due, maybe several times."""
        self.spent = TailedBacklog(scratch, name="spent")
        """By queue: the URLs that are parked for a budget. Two crawls may have the same URL at a host."""

    def _card(self, tokens: Uint64s, cards: Cards, hand: KnownRows | None = None) -> None:
        """Applies whole cards: new URLs, and URLs whose body changed."""
        heads = cards.heads
        fresh = heads["order"] >= self.order
        count, rows = np.count_nonzero(fresh), None
        if hand is not None:
            old, rows = hand.old, hand.rows
            if rows is not None:
                rows = self._tables.rows_of(heads, rows)
            self._close(tokens)
        else:
            old = np.zeros(len(heads), np.uint8)
            if count < len(heads):
                queued = ~fresh & self._were_queued(heads, tokens)
                old[queued] = QUEUED
                rest = ~fresh & ~queued
                _, old[rest] = self._take_out(heads[rest], tokens[rest])
        dead = self._dead(heads) if hand is not None else self._outlived(heads)
        # Cards in hand were checked before they were logged.
        keep = self.ledger.append if hand is None else self.ledger.take
        keep(cards if dead is None else cards.filter(~dead))
        if count:
            self.seen.add(self._in_read_slots(heads if count == len(heads) else heads.take(fresh.nonzero()[0])))
            self.order = int(heads["order"].max()) + 1
        self._put(cards, old, rows)

    def _head(self, tokens: Uint64s, heads: Heads, hand: KnownRows | None = None) -> None:
        """Applies new heads; the bodies of these URLs stay as they are. The state UNKNOWN deletes a URL. tokens: of the
        leases that they end; 0 for none, and UNAPPLIED_TOKEN for one that was never applied."""
        rows = None
        if hand is None:
            queued = self._were_queued(heads, tokens)
            if queued.any():
                self._change_unread(heads[queued])
                heads, tokens = heads[~queued], tokens[~queued]
            cards, old = self._take_out(heads, tokens)
            cards = cards.with_heads(heads)
        else:
            cards, old, rows = hand.cards, hand.old, hand.rows
            self._close(tokens)
        dead = self._dead(heads) if hand is not None else self._outlived(heads)
        living = heads if dead is None else heads[~dead]
        self.ledger.append_heads(living)
        self._put(cards, old, rows)
        if living["state"].tobytes().count(UNKNOWN):
            self.seen.remove(self._in_read_slots(living[living["state"] == UNKNOWN]))

    def _were_queued(self, heads: Heads, tokens: Uint64s) -> npt.NDArray[np.bool_]:
        """Returns which of these URLs were certainly queued before, so that no record is needed. A leased URL counted
        as queued or as waiting before. If no URL of its queue is waiting, it was queued. A URL of a read slot needs
        its record, which names its place."""
        if self.unread is None or self.voids():
            return np.zeros(len(heads), np.bool_)
        found: npt.NDArray[np.bool_] = (tokens == UNAPPLIED_TOKEN) & self.unread.are(heads["slot"])
        if found.any():
            found[found] = self._tables.queues.waiting[self._tables.rows_of(heads[found])] == 0
        return found

    def _change_unread(self, heads: Heads) -> None:
        """Applies new heads of URLs of unread slots that were queued, without their records. Their contents are added
        when the slots are read."""
        assert self.unread is not None
        self.ledger.append_heads(heads)
        self.unread.note_parked(heads)
        self._recount(self._tables.rows_of(heads), states_of(QUEUED, len(heads)), self.unread.counted_as(heads))

    def _in_read_slots(self, heads: Heads) -> Heads:
        return heads if self.unread is None else heads[~self.unread.are(heads["slot"])]

    def _dead(self, heads: Heads) -> npt.NDArray[np.bool_] | None:
        """Which cards are void, None for none. The ledger takes no void card: the URL may have been accepted anew, and
        the new record counts."""
        if not self.voids():
            return None
        dead = self.void(heads)
        return dead if dead.any() else None

    def _outlived(self, heads: Heads) -> npt.NDArray[np.bool_] | None:
        """As `_dead`, for replay: a checkpoint copies queues later than its log begins, so a card may be void here that
        was not when its fact was logged, and later facts name it. The ledger takes such a card unless it has a younger
        one."""
        dead = self._dead(heads)
        if dead is None:
            return None
        places = np.flatnonzero(dead)
        mask, cards = self.ledger.find(*(heads[name][places] for name in ("crawl", "slot", "fingerprint")))
        dead[places[~mask]] = False
        dead[places[mask]] = cards.heads["order"] > heads["order"][places[mask]]
        return dead

    def _close(self, tokens: Uint64s) -> None:
        """Ends these leases; a token of 0 stands for none."""
        open_ones = np.count_nonzero(tokens)
        if open_ones:
            self._forget_requeued(tokens)
            named = tokens if open_ones == len(tokens) else tokens[tokens != 0]
            found, queues = self.leases.end(named)
            rows = np.frombuffer(queues, np.uint32)
            if 0 in found:
                mask = np.frombuffer(found, np.bool_)
                named, rows = named[mask], rows[mask]
            self._ended(named, rows)

    def _ended(self, tokens: Uint64s, queues: Rows) -> None:
        """Notes that these leases, of these queues, ended. They return the turns of their hosts, except a lease whose
        request was over before: it has none."""
        if self._tables.crawls.any_gone:
            self._tables.leaving.waiting.extend(
                queues[self._tables.crawls.are_gone(self._tables.queues.crawl[queues])].tolist()
            )
        if self._tables.hosts.rested:
            hosts = self._tables.queues.host[queues].tolist()
            queues = queues[~self._tables.hosts.rested.drop_many(tokens.tolist(), hosts, queues.tolist())]
        self._turns(queues, -1)

    def rest(self, tokens: Uint64s, ended: Values) -> None:
        """Notes that the requests of these leases are over: their hosts have their turns again. Tokens that are not
        open say nothing."""
        found, queues, *_ = self.leases.get(np.ascontiguousarray(tokens), False)
        rows = np.frombuffer(queues, np.uint32)
        rested, hosts = self._tables.hosts.rested, self._tables.queues.host[rows].tolist()
        columns = tokens.tolist(), hosts, ended.tolist(), rows.tolist()
        if all(found) and rested.lacks(columns[0]):
            rested.add_new(*columns)
            self._turns(rows, -1)
            return
        leases = zip(found, zip(*columns, strict=True), strict=True)
        new = [bool(there) and rested.add(*lease) for there, lease in leases]
        self._turns(rows[np.array(new, np.bool_)], -1)

    def _forget_requeued(self, tokens: Uint64s) -> None:
        for token in tokens.tolist() if self.requeued else ():
            self.requeued.pop(token, None)

    def _turns(self, queues: Rows, step: int) -> None:
        """Counts requests of these queues that may begin (step 1) or ended (-1), one per row."""
        # For opened leases `count_leases` returns only hosts with flags: the draw took all others out of ring and
        # timetable.
        hosts = np.frombuffer(
            kernels.count_leases(queues, step > 0, self._tables.queues.host, self._tables.hosts.octets), np.uint32
        )
        self._tables.keys.count(queues, step)
        if step > 0 and len(hosts):
            quiet = (self._tables.hosts.flags[hosts] & ~np.uint16(GROUPED | ROBOTS | DELAYED | SLOWED)) == 0
            self._tables.begun.append(hosts[quiet])
            hosts = hosts[~quiet]
        if len(hosts):
            self._tables.changed.append(hosts)

    def _requeue(self, slot: int, token: int, due: Instant, priority: float) -> None:
        """Notes that the URL of a lease is queued again when the lease ends."""
        if self.leases.find(np.array([token], np.uint64))[0]:
            self.requeued[token] = (due, priority)

    def ordered(self, heads: Heads, tokens: Uint64s, now: Instant) -> npt.NDArray[np.intp]:
        """Changes the new heads of URLs whose leases end, where an operator has requeued the URL meanwhile. Returns
        their rows."""
        rows = [row for row, token in enumerate(tokens.tolist()) if token in self.requeued] if self.requeued else []
        for row in rows:
            due, priority = self.requeued[int(tokens[row])]
            due = max(due, now)
            set_queued(heads[row : row + 1], due, priority, now)
        return np.array(rows, np.intp)

    def put_back(self, cards: Cards, old: Uint8s) -> None:
        """Puts cards that `take_out` gave back in their places; old: the states they were in."""
        heads = cards.changed()
        heads["state"] = old
        self.file(cards.with_heads(heads), old)

    def take_out(self, known: Cards) -> tuple[Cards, Uint8s]:
        """Takes URLs without a lease, by their cards from `find`, out of their places. Returns their present cards, in
        this order, and the states they leave."""
        cards, old = self._take_out(known.heads, np.zeros(len(known), np.uint64), known)
        if (old == QUEUED).any():  # their hosts may have nothing to lease now
            self._tables.changed.append(self._tables.queues.host[self._tables.rows_of(cards.heads[old == QUEUED])])
        return cards, old

    def _take_out(self, heads: Heads, tokens: Uint64s, known: Cards | None = None) -> tuple[Cards, Uint8s]:
        """Takes the cards of these URLs out of their places, in this order, with the states they leave. known: their
        cards, if the caller has found them in the ledger."""
        if not len(heads):
            return Cards.none(), _NO_STATES
        parts: list[Cards] = []
        places: list[npt.NDArray[np.intp]] = []
        old = np.zeros(len(heads), np.uint8)
        rest = np.arange(len(heads))
        tokens = np.where(tokens == UNAPPLIED_TOKEN, np.uint64(0), tokens)
        if tokens.any():
            self._forget_requeued(tokens)
            some = np.flatnonzero(tokens)
            found, queues, _, _, _, ended, arena, offsets = self.leases.close(np.ascontiguousarray(tokens[some]))
            mask = np.frombuffer(found, np.bool_)
            self._ended(tokens[some[mask]], np.frombuffer(queues, np.uint32)[mask])
            parts.append(Cards.of_columns(ended, arena, offsets).filter(mask))
            places.append(some[mask])
            old[some[mask]] = LEASED
            rest = np.setdiff1d(rest, some[mask], assume_unique=True)
        # A void card has no place. The same URL, accepted anew, may have one.
        dead = self._dead(heads[rest]) if len(rest) else None
        void, rest = (rest[dead], rest[~dead]) if dead is not None else (rest[:0], rest)
        if len(rest):
            some_heads = heads[rest]
            mask, cards = self.backlog.remove(self._tables.rows_of(some_heads), some_heads["fingerprint"], tails=False)
            parts.append(cards)
            places.append(rest[mask])
            old[rest[mask]] = QUEUED
            rest = rest[~mask]
        for others, here in ((rest, True), (void, False)):
            if len(others):
                cards = known.take(others) if known is not None else self._from_ledger(heads[others])
                cards = self._leave_places(cards, heads[others]) if here else _named(cards, heads[others])
                parts.append(cards)
                places.append(others)
                old[others] = cards.heads["state"]
        order = np.argsort(np.concatenate(places))
        return Cards.concatenate(parts).take(order), old

    def _from_ledger(self, heads: Heads) -> Cards:
        mask, cards = self.ledger.find(heads["crawl"], heads["slot"], heads["fingerprint"])
        if not mask.all():
            raise KeyError(f"URL {int(heads['fingerprint'][~mask][0]):016x}")
        return cards

    def _leave_places(self, cards: Cards, wanted: Heads) -> Cards:
        """Takes cards that are not at the heads of queues out of their places. Returns them in their present states.
        Their records name the places, so no place is searched."""
        same = cards.heads["order"] == wanted["order"]
        if not same.all():
            cards = _named(cards, wanted)
            if same.any():
                heads = cards.changed()
                heads[same] = self._leave_places(cards.filter(same), wanted[same]).heads
                cards = cards.with_heads(heads)
            return cards
        if self.unread is not None and (unread := self.unread.are(cards.heads["slot"])).any():
            self.unread.searched += int(np.count_nonzero(unread))
            heads = cards.changed()
            heads["state"][unread] = self.unread.counted_as(heads[unread])
            heads[~unread] = self._leave_places(cards.filter(~unread), wanted[~unread]).heads
            return cards.with_heads(heads)
        heads, queues = cards.heads, self._tables.rows_of(cards.heads)
        queued, waiting = heads["state"] == QUEUED, heads["state"] == WAITING
        # One that was due may be queued, and a planned one at any time. A queue without a tail does not have it, as
        # its head was searched.
        planned = heads["reason"] == PLANNED
        woken = np.flatnonzero(waiting & ((heads["due"] <= self._woken) | planned))
        woken = woken[self.backlog.has_tail(queues[woken])]
        if len(woken):
            mask, _ = self.backlog.remove(queues[woken], heads["fingerprint"][woken])
            found = cards.changed()
            found["state"][woken[mask]] = QUEUED
            cards = cards.with_heads(found)
            waiting[woken[mask]] = False
        if queued.any():
            self.backlog.forget(queues[queued], cards.filter(queued))
        for calendar, its in ((self.calendar, waiting & ~planned), (self.planned, waiting & planned)):
            if its.any():
                calendar.forget(cards.filter(its))
        spent = (heads["state"] == PARKED) & ~is_in_ledger_alone(heads)
        if spent.any():
            parked, some = queues[spent], cards.filter(spent)
            mask, _ = self.spent.remove(parked, some.heads["fingerprint"], tails=False)
            if not mask.all():
                self.spent.forget(parked[~mask], some.filter(~mask))
        return cards

    def find(
        self, crawls: npt.ArrayLike, slots: npt.ArrayLike, fingerprints: npt.ArrayLike
    ) -> tuple[npt.NDArray[np.bool_], Cards]:
        """The newest records of URLs in the ledger: which have one, and their cards. Void records do not count."""
        mask, cards = self.ledger.find(
            np.ascontiguousarray(crawls, np.uint32),
            np.ascontiguousarray(slots, np.uint16),
            np.ascontiguousarray(fingerprints, np.uint64),
        )
        if len(cards) and self.voids():
            lives = ~self.void(cards.heads)
            if not lives.all():
                mask = mask.copy()
                mask[np.flatnonzero(mask)[~lives]] = False
                cards = cards.filter(lives)
        return mask, cards

    def were_accepted(
        self, crawls: npt.NDArray[np.uint32], slots: npt.NDArray[np.uint16], fingerprints: Uint64s
    ) -> npt.NDArray[np.bool_]:
        """Whether each of these URLs was accepted before. Those of unread slots are searched in the ledger, which costs
        less than reading their slots."""
        known = self.seen.check(crawls, slots, fingerprints)
        if self.unread is not None and len(rows := np.flatnonzero(self.unread.are(slots))):
            known[rows], _ = self.find(crawls[rows], slots[rows], fingerprints[rows])
        return known

    def knows(self, crawl: int, fingerprints: Uint64s) -> npt.NDArray[np.bool_]:
        """Whether each of these URLs of a crawl by unique keys was accepted before, at any host."""
        known, slots = self.seen.slots_of(crawl, fingerprints)
        if self.voids() and known.any():
            rows = np.flatnonzero(known)
            found, _ = self.find(np.full(len(rows), crawl), slots[rows], fingerprints[rows])
            known[rows[~found]] = False  # deleted since
        return known

    def drop_cards(self, queue: int) -> None:
        """Drops the cards of a queue that are queued or parked for a budget. All are void."""
        self.backlog.drop(queue)
        self.spent.drop(queue)

    def void(self, heads: Heads) -> npt.NDArray[np.bool_]:
        """Which cards are void: accepted before their queue or crawl was deleted."""
        voids = self._tables.queues.voids
        out: npt.NDArray[np.bool_] = np.zeros(len(heads), np.bool_)
        if voids:
            rows = self._tables.queues.find(np.ascontiguousarray(heads["queue"]))
            out |= heads["order"] < np.array([voids.get(row, 0) for row in rows.tolist()], np.uint64)
        if self._tables.crawls.any_gone:
            out |= self._tables.crawls.are_gone(heads["crawl"])
        return out

    def voids(self) -> bool:
        """Whether any card may be void."""
        return bool(self._tables.queues.voids) or self._tables.crawls.any_gone

    def _columns(self) -> Iterator[tuple[int, npt.NDArray[np.uint32]]]:
        queues = self._tables.queues
        yield from ((WAITING, queues.waiting), (PARKED, queues.parked), (DONE, queues.done), (GONE, queues.gone))

    def _put(self, cards: Cards, old: Uint8s, rows: Rows | None = None) -> None:
        """Puts cards into the places of their new states, and counts them there; drops void ones."""
        if self.voids():
            lives = ~self.void(cards.heads)
            if not lives.all():
                cards, old = cards.filter(lives), old[lives]
                rows = None if rows is None else rows[lives]
        self.file(cards, old, rows)

    def file(self, cards: Cards, old: Uint8s, rows: Rows | None = None) -> None:
        """As `_put`, for cards that are not void. old: the states they leave, UNKNOWN for new URLs; rows: the rows of
        their queues, where they are known."""
        heads = cards.heads
        if not len(heads):
            return
        if rows is None:
            rows = self._tables.rows_of(heads)
        states = heads["state"] if self.unread is None else self.unread.counted_as(heads)
        come = self._recount(rows, old, states)
        if self.unread is None:
            self._place(cards, rows, come)
        else:
            self.place(cards, rows)

    def place(self, cards: Cards, rows: Rows) -> None:
        """Puts cards into the places of their states, without counting them. rows: those of their queues. Cards of
        unread slots have no place yet."""
        if self.unread is not None and (unread := self.unread.are(cards.heads["slot"])).any():
            self.unread.note_parked(cards.heads[unread])
            self.seen.add_contents(cards.filter(unread))
            cards, rows = cards.filter(~unread), rows[~unread]
        if len(cards):
            self._place(cards, rows, _of_each(cards.heads["state"]))

    def _place(self, cards: Cards, rows: Rows, come: Sequence[int]) -> None:
        """As `place`, for read slots. come: how many cards have each state."""
        heads = cards.heads
        states = heads["state"]
        all_alike = max(come) == len(heads)
        if come[QUEUED]:
            queues, some_cards = rows, cards
            if not all_alike:
                some = (states == QUEUED).nonzero()[0]
                queues, some_cards = rows[some], cards.take(some)
            self.backlog.put(queues, some_cards)
            self._tables.changed.append(self._tables.queues.host[queues])
        if come[WAITING]:
            self._put_waiting(cards if all_alike else cards.take(np.flatnonzero(states == WAITING)))
        if come[PARKED]:
            others = (states == PARKED) & ~is_in_ledger_alone(heads)
            if others.any():
                self.spent.put(rows[others], cards.filter(others))
        self.seen.add_contents(cards)

    def _put_waiting(self, cards: Cards) -> None:
        """Puts waiting cards into the calendars."""
        planned = cards.heads["reason"] == PLANNED
        if not planned.any():
            self.calendar.put(cards)
            return
        self.plans = True
        self.calendar.put(cards.filter(~planned))
        self.planned.put(cards.filter(planned))

    def _recount(self, rows: Rows, old: Uint8s, states: Uint8s) -> list[int]:
        """Moves URLs of these queues from old states to new ones in the counts. Returns how many came to each state."""
        left, come = _of_each(old), _of_each(states)
        for crawl, own in by_value(self._tables.queues.crawl[rows]):
            if isinstance(own, slice):
                self._recount_crawl(crawl, left, come)
            else:
                self._recount_crawl(crawl, _of_each(old[own]), _of_each(states[own]))
        for state, column in self._columns():
            if left[state]:
                add_to_each(column, rows if left[state] == len(rows) else rows[old == state], -1)
            if come[state]:
                add_to_each(column, rows if come[state] == len(rows) else rows[states == state], 1)
        self._recount_open(rows, old, states, sum(left[QUEUED:DONE]), sum(come[QUEUED:DONE]))
        return come

    def _recount_crawl(self, crawl: int, left: Sequence[int], come: Sequence[int]) -> None:
        """As `_recount`, for the counts of one crawl. left, come: how many URLs left each state, and came to it."""
        for state in range(1, 7):
            if left[state] != come[state]:
                self.count(crawl, state, come[state] - left[state])

    def _recount_open(self, rows: Rows, old: Uint8s, states: Uint8s, left: int, come: int) -> None:
        """As `_recount`, for URLs that are not completed. left, come: their numbers."""
        queues = self._tables.queues
        if come == len(rows) and not left:
            queues.count_open(rows, 1)
        elif left == len(rows) and not come:
            queues.count_open(rows, -1)
        elif left < len(rows) or come < len(rows):
            was, becomes = _IS_OPEN[old], _IS_OPEN[states]
            queues.count_open(rows[becomes & ~was], 1)
            queues.count_open(rows[was & ~becomes], -1)

    def uncount(self, crawl: int, queues: Rows, leased: int) -> None:
        """Takes the URLs of these queues, of one crawl, out of the counts."""
        removed = [0] * 7
        columns = self._tables.queues
        here = queues
        if self.unread is not None:
            here = queues[~self.unread.are(self._tables.hosts.slot[columns.host[queues]])]
        self.void_waiting += int(columns.waiting[here].sum())
        open_ones = int(columns.open[queues].sum())
        for state, column in self._columns():
            removed[state] = int(column[queues].sum())
            column[queues] = 0
        removed[LEASED], removed[QUEUED] = leased, open_ones - leased - removed[WAITING] - removed[PARKED]
        self._tables.queues.close(queues)
        for state, count in enumerate(removed):
            self.count(crawl, state, -count)

    def count(self, crawl: int, state: int, more: int) -> None:
        """Counts more URLs of a crawl in a state, without their queues."""
        self.counts[state] += more
        self.of_crawls[crawl][state] += more

    def _lease(
        self,
        slots: Rows,
        queues: Uint64s,
        fingerprints: Uint64s,
        orders: Uint64s,
        tokens: Uint64s,
        deadlines: Values,
        holders: Values,
        not_before: Values,
        hand: KnownRows | None = None,
    ) -> None:
        rows = self._tables.rows_of_queues(queues) if hand is None or hand.rows is None else hand.rows
        if hand is None:
            known = np.frombuffer(self.leases.find(np.ascontiguousarray(tokens)), np.bool_)
            if known.all():
                return
            keep = ~known
            rows, tokens, deadlines = rows[keep], tokens[keep], deadlines[keep]
            holders, not_before = holders[keep], not_before[keep]
            wanted = np.zeros(len(rows), HEAD)
            wanted["queue"], wanted["fingerprint"] = queues[keep], fingerprints[keep]
            wanted["slot"], wanted["crawl"], wanted["order"] = (
                slots[keep],
                self._tables.queues.crawl[rows],
                orders[keep],
            )
            cards, old = self._take_out(wanted, np.zeros(len(rows), np.uint64))
            heads = cards.changed()
            heads["state"] = LEASED
            cards = cards.with_heads(heads)
            lives = ~self.void(heads) if self.voids() else None
        else:
            cards, old, lives = hand.cards, hand.old, None
        if lives is None or lives.all():
            self._recount(rows, old, states_of(LEASED, len(rows)))
        else:
            self._recount(rows[lives], old[lives], states_of(LEASED, int(lives.sum())))
        starts = [0]
        if hand is None:
            others = (np.diff(tokens) != 1) | (np.diff(deadlines) != 0) | (np.diff(holders.astype(np.int64)) != 0)
            starts += (np.flatnonzero(others) + 1).tolist()
        for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
            part = cards if end - start == len(rows) else cards.take(np.arange(start, end))
            self.leases.open(
                int(tokens[start]),
                np.ascontiguousarray(rows[start:end]),
                int(deadlines[start]),
                int(holders[start]),
                np.ascontiguousarray(not_before[start:end]),
                part.heads.tobytes(),
                part.arena,
                part.offsets,
            )
        self._turns(rows, 1)
        self._tables.token = max(self._tables.token, int(tokens.max()))

    def _extend(self, slots: Rows, tokens: Uint64s, deadlines: Values) -> None:
        for deadline, rows in by_value(deadlines):
            self.leases.extend(np.ascontiguousarray(tokens[rows]), deadline)

    def by_token(self, tokens: Uint64s, *, bodies: bool = True) -> OpenLeases:
        """The leases with these tokens, a row each."""
        found, queues, deadlines, holders, not_before, *cards = self.leases.get(tokens, bodies)
        return OpenLeases(
            np.frombuffer(found, np.bool_),
            np.frombuffer(queues, np.uint32),
            np.frombuffer(deadlines, np.int64),
            np.frombuffer(holders, np.uint32),
            np.frombuffer(not_before, np.int64),
            Cards.of_columns(*cards),
        )

    def open_leases(self) -> OpenLeases:
        """All open leases of pages, without the bodies of their cards."""
        return self.by_token(np.frombuffer(self.leases.tokens(), np.uint64), bodies=False)

    def requests_open(self) -> Rows:
        """The queue of each open lease whose request is not over."""
        tokens = np.frombuffer(self.leases.tokens(), np.uint64)
        queues, ended = self.by_token(tokens, bodies=False).queues, self._tables.hosts.rested.ends_of(tokens)
        return queues if ended is None else queues[ended == NOT_OVER]

    def wake(self, now: Instant, most: int) -> int:
        """Queues up to `most` waiting URLs that are due. That is no fact: it follows from their due times."""
        parts: list[Cards] = []
        taken = 0
        self._woken = max(self._woken, now)
        for _ in range(CALENDAR_ROUNDS_MAX):  # each round moves a bounded number of cards between buckets
            at = self.calendar.next() if len(self.calendar) and taken < most else None
            if at is None or at > now:
                break
            parts.append(self.calendar.due(now, most - taken))
            taken += len(parts[-1])
        if not taken:
            return 0
        self.queue_waiting(self._not_void(Cards.concatenate(parts)))
        return taken

    def wake_all(self, now: Instant) -> None:
        """Queues all waiting URLs that are due."""
        self.wake(now, WAKES_PER_CALL_MAX)
        while (at := self.calendar.next()) is not None and at <= now:
            self.wake(now, WAKES_PER_CALL_MAX)

    def queue_waiting(self, cards: Cards, classes: Uint8s | None = None) -> None:
        """Queues cards that have left a calendar. classes: those of their values, for planned ones."""
        heads = cards.changed()
        heads["state"] = QUEUED
        if classes is not None:
            heads["klass"] = np.where(heads["klass"] >= ORDERED, heads["klass"], classes)
        rows = self._tables.rows_of(heads)
        self._tables.hosts.woken[self._tables.queues.host[rows]] = True
        self.file(cards.with_heads(heads), np.full(len(cards), WAITING, np.uint8), rows)

    def woken(self, heads: Heads, until: Instant) -> npt.NDArray[np.bool_]:
        """Returns which URLs are queued although their records say waiting: they were due by this instant."""
        found: npt.NDArray[np.bool_] = (heads["state"] == WAITING) & (heads["due"] <= until)
        return found & (heads["reason"] != PLANNED) if self.planned_stay else found

    def take_planned(self, until: Instant, most: int) -> Cards:
        """Removes and returns up to `most` planned cards that are to be looked at until an instant, the first ones
        first. Each must be queued (`queue_waiting`) or planned again (`planned.put`). While buckets of the calendar are
        moved it returns fewer."""
        if not len(self.planned):
            return _NO_CARDS
        return self._not_void(self.planned.due(until, most))

    def _not_void(self, cards: Cards) -> Cards:
        """Returns cards from a calendar without those of deleted queues."""
        dead = self._dead(cards.heads)
        if dead is None:
            return cards
        self.void_waiting -= int(dead.sum())
        return cards.filter(~dead)

    @property
    def last_woken(self) -> Instant:
        """The latest instant up to which waiting URLs were queued."""
        return self._woken

    def begin_anew(self, *, recounts: bool = True) -> None:
        """Removes everything that is derived from the ledger. Call it after the checkpoint's hosts and queues.
        recounts: whether all URLs are counted again."""
        for part in (self.seen, self.backlog, self.calendar, self.planned, self.spent):
            part.close()
        self._make_places(max(self._tables.now, self._began))
        self.counts = [0] * 7
        self.of_crawls.clear()
        self.scanned = True
        self._tables.meet_cold()
        if not recounts:
            return
        for _, column in self._columns():
            column[: self._tables.queues.count] = 0  # recalled hosts brought counts that the scan adds again
        self._tables.queues.close(np.arange(self._tables.queues.count, dtype=np.uint32))

    def count_kept(self, counts: Sequence[int], of_crawls: Mapping[int, Sequence[int]], *, woken: Instant) -> None:
        """Sets the counts of all URLs, by state, and the instant up to which waiting ones were queued."""
        self.counts = list(counts)
        self.of_crawls.update((row, list(of_crawl)) for row, of_crawl in of_crawls.items())
        self._woken = max(self._woken, woken)
        self.scanned = False

    def restore(self) -> None:
        """Does what `begin_anew` does, and then fills everything in one scan of the ledger."""
        self.begin_anew()
        # While the scan may recall hosts, only this thread touches rows and the seen-set; else the reading thread does.
        scan = gathered(self.ledger.scan())
        told = self._cards_of_scan(ahead(scan)) if len(self._tables.cold) else ahead(self._cards_of_scan(scan))
        for cards, rows, order in told:
            self.order = max(self.order, order + 1)
            if len(self._tables.cold):
                cards = self.set_aside(cards)
            self.file(cards, np.zeros(len(cards), np.uint8), rows)
        self._tables.forget_changed()

    def _cards_of_scan(self, scan: Iterator[Cards]) -> Iterator[tuple[Cards, Rows | None, int]]:
        """Yields the cards of a scan that are not void, after adding them to the seen-set; the rows of their queues,
        None where hosts may have to be recalled for them; and the highest order among them."""
        for cards in scan:
            heads = cards.heads
            if self.voids():
                cards = cards.filter(~self.void(heads))
                heads = cards.heads
            if not len(heads):
                continue
            self.seen.add(heads)
            rows = self._tables.queues.find(heads["queue"]) if not len(self._tables.cold) else None
            if rows is not None and np.count_nonzero(rows == NONE):
                rows = None
            yield cards, rows, int(heads["order"].max())

    def set_aside(self, cards: Cards, *, counts: bool = True) -> Cards:
        """Counts the URLs of cold hosts, because these have no rows that count them. Puts waiting URLs into their
        calendars; records of hosts contain the queued URLs. Returns the cards of all other hosts. counts: False if the
        URLs are counted already."""
        heads = cards.heads
        rows = self._tables.queues.find(np.ascontiguousarray(heads["queue"]))
        cold = self._tables.cold
        places = np.flatnonzero((rows == NONE) & np.isin(heads["state"], _AT_COLD_HOSTS))
        resting = np.zeros(len(heads), np.bool_)
        if len(places):
            some = heads[places]
            hosts = hosts_of_queues(np.ascontiguousarray(some["queue"]), some["crawl"])
            resting[places] = np.where(some["state"] == QUEUED, cold.have_cards(hosts), cold.has(hosts))
        if not resting.any():
            return cards
        some_cards = cards.filter(resting)
        states = some_cards.heads["state"]
        for crawl, own in by_value(some_cards.heads["crawl"]) if counts else ():
            for state, count in enumerate(np.bincount(states[own], minlength=7).tolist()):
                self.count(crawl, state, count)
        self._put_waiting(some_cards.filter(states == WAITING))
        self.seen.add_contents(some_cards)
        return cards.filter(~resting)

    def blocks(self) -> list[Block]:
        """The facts that rebuild the leases. The cards stand in the ledger."""
        tokens = np.frombuffer(self.leases.tokens(), np.uint64)
        _, rows, deadlines, holders, not_before, cards = self.open_leases()
        heads = cards.heads
        hashes = self._tables.queues.hash[rows]
        named = [heads["slot"], hashes, heads["fingerprint"], heads["order"]]
        found: list[Block] = [(Fact.LEASE, [*named, tokens, deadlines, holders, not_before])]
        if self.requeued:
            slots = dict(zip(tokens.tolist(), heads["slot"].tolist(), strict=True))
            orders = [(slots[token], token, *order) for token, order in self.requeued.items()]
            found.append((Fact.REQUEUE, columns_of(orders)))
        ended = self._tables.hosts.rested.ends_of(tokens)
        if ended is not None:
            over = ended != NOT_OVER
            found.append((Fact.RESTED, [heads["slot"][over], tokens[over], ended[over]]))
        return found

    def counts_of(self, crawl: int) -> Sequence[int]:
        """The number of a crawl's URLs by state."""
        return self.of_crawls.get(crawl, _NO_COUNTS)

    def accepted(self) -> int:
        """How many URLs were accepted."""
        return sum(self.counts)

    def close(self) -> None:
        """Closes and removes the files of tails."""
        for part in (self.seen, self.backlog, self.calendar, self.planned, self.spent):
            part.close()


def set_queued(heads: Heads, due: Instant, priority: float, now: Instant) -> None:
    """Sets heads of URLs that an operator queues: due at an instant, with another priority unless it is NaN. Such a URL
    has no failed attempts."""
    heads["state"], heads["reason"], heads["due"] = WAITING if due > now else QUEUED, 0, due
    heads["attempts"], heads["losses"] = 0, 0
    if not np.isnan(priority):
        heads["priority"] = priority
        heads["klass"] = np.where(heads["klass"] >= ORDERED, heads["klass"], class_of(priority))


def _named(cards: Cards, wanted: Heads) -> Cards:
    """Returns the cards under the orders and queues of these heads. The URL of a card may have been accepted anew
    since, maybe with another key: then only its text is the same."""
    other = cards.heads["order"] != wanted["order"]
    if not other.any():
        return cards
    heads = cards.changed()
    for name in ("order", "queue"):
        heads[name][other] = wanted[name][other]
    return cards.with_heads(heads)


def is_in_ledger_alone(heads: Heads) -> npt.NDArray[np.bool_]:
    """Which parked URLs are in the ledger alone."""
    found: npt.NDArray[np.bool_] = np.isin(heads["reason"], LEDGER_ALONE)
    return found


def gathered(scan: Iterator[Cards]) -> Iterator[Cards]:
    """Yields the cards of a scan, more at once. The ledger has the URLs of a host near each other, and the backlog
    writes the end of a long queue at the least cost if it gets the cards together."""
    some: list[Cards] = []
    rows = size = 0
    for cards in scan:
        some.append(cards)
        rows, size = rows + len(cards), size + len(cards.arena)
        if rows >= RESTORED_ROWS or size >= RESTORED_BYTES:
            yield Cards.concatenate(some)
            some, rows, size = [], 0, 0
    if some:
        yield Cards.concatenate(some)


def states_of(state: int, rows: int) -> Uint8s:
    """A read-only column with one state in `rows` rows."""
    return np.frombuffer(bytes((state,)) * rows, np.uint8)


def _of_each(states: Uint8s) -> list[int]:
    octets = states.tobytes()
    counts = [0] * 7
    if octets:
        counts[octets[0]] = octets.count(octets[0])
        if counts[octets[0]] < len(octets):
            counts = [octets.count(state) for state in range(7)]
    return counts
