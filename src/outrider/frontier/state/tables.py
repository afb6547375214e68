"""The state of a frontier, changed only by applying facts: hosts and queues in columns, the card of each URL in the
place for its state.

`apply` is the only way in, for a live call and for replay alike; it calls no policy, clock or random source. A live
call passes the cards that it holds already (a *hand*); replay looks them up."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from outrider import kernels
from outrider.clock import Instant, instant
from outrider.errors import DamagedStoreError, OutriderError
from outrider.frontier.format.alike import by_value
from outrider.frontier.format.cards import Cards
from outrider.frontier.format.facts import (
    KINDS,
    Applied,
    Block,
    Fact,
    Row,
    Texts,
    Values,
    arrays_of,
    columns_of,
    no_texts,
)
from outrider.frontier.state.cold import ColdHosts
from outrider.frontier.state.crawls import Crawls, CrawlState
from outrider.frontier.state.errand import CallersErrand, CallersErrands, Errand
from outrider.frontier.state.hosts import (
    CELLS,
    MANY,
    NONE,
    RARE_CELLS,
    ROBOTS,
    RULED,
    VOIDED,
    Group,
    Hosts,
    QueueRules,
    Queues,
    Rows,
    hosts_of_queues,
    words_of_crawls,
    words_of_keys,
)
from outrider.frontier.state.registry import Registry
from outrider.frontier.state.returns import ReturnsKept
from outrider.frontier.state.seen import SeenSet
from outrider.frontier.state.transit import Transit
from outrider.frontier.state.whereabouts import FOREVER, Whereabouts
from outrider.frontier.stores.backlog import Backlog
from outrider.frontier.stores.calendar import Calendar
from outrider.frontier.stores.ledger import Ledger
from outrider.frontier.stores.rulebook import Rulebook, robots_bytes
from outrider.journey import Kind, State
from outrider.kernels.cards import HAS_CONTENT, HEAD, Heads
from outrider.limits import (
    CALENDAR_ROUNDS_MAX,
    CARD_BYTES_MAX,
    MICROSECONDS,
    OWN_SLOT,
    ROBOTS_MEMORY_SHARE,
)
from outrider.storage.ahead import ahead
from outrider.storage.files import Files
from outrider.storage.records import distinct
from outrider.url import host_of, undotted

STATES = (State.UNKNOWN, State.QUEUED, State.LEASED, State.WAITING, State.PARKED, State.DONE, State.GONE)
UNKNOWN, QUEUED, LEASED, WAITING, PARKED, DONE, GONE = range(7)

Uint8s = npt.NDArray[np.uint8]
Uint64s = npt.NDArray[np.uint64]
_NO_STATES = np.zeros(0, np.uint8)
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


class RobotsState(IntEnum):
    """How far the frontier knows an authority's robots.txt."""

    UNKNOWN = 0
    RULES = 1
    ALLOW = 2
    RETRYING = 3
    REFUSED = 4
    DEAD = 5


class Again(IntEnum):
    """Which parked URLs of an authority are to be judged again."""

    NONE = 0
    UNREACHABLE = 1  # URLs that were refused because no server answered
    ALL = 2


class Authority(Errand):
    """Scheme, host and port, which share one robots.txt, and the errand that asks for it. The first draw of one of its
    pages makes it, or a call that gives rules. url: its own robots.txt, or the hop of a redirect; klass: the best class
    among the URLs of its host, while they wait for its rules."""

    __slots__ = ("again", "digest", "expires", "failing_since", "fetched", "logged", "place", "state", "status")

    def __init__(self, slot: int, host: int, name: str) -> None:
        super().__init__(Kind.ROBOTS, slot, host, name, name + "/robots.txt")
        self.place = -1  # its place in `Tables.all_authorities`
        self.again = Again.NONE  # which of its parked URLs are to be judged again
        self.logged = False
        self.state = RobotsState.UNKNOWN
        self.expires: Instant = 0
        self.status = 0
        self.fetched: Instant = 0  # its last good answer
        self.failing_since: Instant = 0  # the first failure since then
        self.digest = 0  # names its rules, which the rulebook holds

    def opening(self, token: int, deadline: Instant, holder: int) -> tuple[Fact, Row]:
        return Fact.ERRAND, (self.slot, self.name, token, deadline, holder)

    def ending(self, until: Instant, *, lost: bool = False) -> tuple[Fact, Row]:
        return Fact.ROBOTS, robots_cells(self, max(self.next_at, until))

    def __repr__(self) -> str:
        return f"<Authority {self.name} {RobotsState(self.state).name.lower()}>"


@dataclass(frozen=True, slots=True)
class Hand:
    """The parts of a block that a live call holds already: cards with their new heads, the states they leave, and the
    rows of their queues where they are known; for clocks and queues the rows of the hosts. first: for new hosts and
    queues, `made` of their columns at the time of the look-up."""

    cards: Cards
    old: Uint8s
    rows: Rows | None = None
    first: int = -1

    @classmethod
    def of_rows(cls, rows: Rows | None, *, first: int = -1) -> Hand:
        return cls(_NO_CARDS, _NO_STATES, rows, first)


class Tables:
    """The whole state. ledger: the records of URLs; cold: the records of hosts on disk; scratch: the files for tails,
    None to keep all in memory; now: about the instant at which it begins; memory_bytes: the limit for cards of queued
    URLs and robots rules together."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        fingerprint_key: bytes,
        scratch: Files | None,
        cold: ColdHosts | None = None,
        now: Instant = 0,
        memory_bytes: int | None = None,
    ) -> None:
        self.fingerprint_key = fingerprint_key
        self.ledger = ledger
        self.hosts = Hosts()
        self.queues = Queues()
        self.words: dict[int, QueueRules] = {}  # rules of whole crawls, and of keys in all crawls
        self.cold = cold if cold is not None else ColdHosts()
        self.leases = kernels.Leases()
        for_robots = robots_bytes(CARD_BYTES_MAX if memory_bytes is None else memory_bytes)
        for_cards = None if memory_bytes is None else memory_bytes - memory_bytes // ROBOTS_MEMORY_SHARE
        self.backlog = Backlog(scratch, name="backlog", bytes_max=for_cards)
        self.rulebook = Rulebook(scratch, bytes_max=for_robots)
        self._scratch = scratch
        self._began = now
        self.calendar = Calendar(scratch, name="calendar", now=now)
        self.spent = Backlog(scratch, name="spent")  # by host: parked for a budget
        self.authorities: dict[str, Authority] = {}
        self.all_authorities: list[Authority] = []  # each knows its place
        self._met = False
        self._hosts_told = np.zeros(0, np.uint32)  # rows of the last HOST facts: in a checkpoint their clocks come next
        # the error that left a host half recalled, perhaps in a call that only reads
        self.torn: BaseException | None = None
        self.whereabouts: dict[int, Whereabouts] = {}  # by row of Hosts
        # by row of Hosts: leases with tokens up to this one go to this address ("" for none), which the host has left
        self.left: dict[int, tuple[int, str]] = {}
        self.authorities_of: dict[int, list[Authority]] = {}
        self.callers_errands = CallersErrands()
        self.errands: dict[int, Errand] = {}  # open ones, by token
        self.crawls = Crawls()
        self.registry = Registry()
        self.seen = SeenSet()
        self.transit = Transit()
        self.returns = ReturnsKept()
        self.token = 0
        self.turn = 0  # counts draws from hosts with several queues, whose queues take turns
        self.order = 1  # the number of the next URL that is accepted
        self.counts = [0] * 7
        self.void_waiting = 0  # cards of deleted queues that the calendar still holds
        self.now: Instant = 0
        self.leaving: deque[int] = deque()  # queues of deleted crawls that may still have a row beside others
        self.changed: list[Rows] = []  # hosts that `Turns.touch` must handle again
        self.stalled: list[int] = []  # queues of deleted crawls whose cards are still to be dropped
        self._apply: dict[Fact, Callable[..., None]] = {
            kind.fact: self._owner_of(kind.fact) for kind in KINDS.values() if kind.applied is not Applied.NOWHERE
        }

    # -- applying facts -----------------------------------------------------------------------------------------------

    def apply(self, kind: int, values: Sequence[Values], hand: Hand | None = None) -> None:
        """Apply the facts of one block. Raises DamagedStoreError when they name something that does not exist."""
        fact = Fact(kind)
        try:
            applied = KINDS[fact].applied
            if applied is Applied.BY_ROW:
                each = self._apply[fact]
                for row in zip(*map(_listed, values), strict=True):
                    each(*row)
            elif applied is Applied.IN_COLUMNS and hand is None:
                self._apply[fact](*arrays_of(fact, values))
            elif applied is Applied.IN_COLUMNS:
                self._apply[fact](*values, hand=hand)  # arrays already: a live call decides in columns
        except (IndexError, KeyError) as error:
            raise DamagedStoreError(
                f"a fact of kind {fact.name.lower()} names something that does not exist ({error})"
            ) from error

    def _owner_of(self, fact: Fact) -> Callable[..., None]:
        """The method that applies facts of a kind, `_<name of the kind>`, of the part that owns them."""
        name = f"_{fact.name.lower()}"
        owners = (self.registry, self.crawls, self.transit, self.returns, self)
        found: Callable[..., None] = next(getattr(owner, name) for owner in owners if hasattr(owner, name))
        return found

    def _crawl_rules(self, slot: int, row: int, state: int) -> None:
        if self.crawls.gone[row]:
            return
        self.crawls.states[row] = state
        queues = np.flatnonzero(self.queues.crawl[: self.queues.count] == row).astype(np.uint32)
        self.flag(queues)
        if state == CrawlState.DELETED:
            waiting, done, gone = self.cold.let_go(row)
            self.void_waiting += waiting
            for urls, count in ((WAITING, waiting), (DONE, done), (GONE, gone)):
                self.counts[urls] -= count
            self.seen.drop(row)
            self.words.pop(int(words_of_crawls(np.array([row], np.uint32))[0]), None)
            *_, heads, _, _ = self.open_leases()
            self._uncount(queues, int(((heads["crawl"] == row) & ~self.void(heads)).sum()))
            self.crawls.delete(row)
            self.stalled += queues.tolist()
            self.callers_errands.drop_crawl(row)
        self.changed.append(self.queues.host[queues])

    def forget_holders(self) -> None:
        """Drops the names of workers that have no lease."""
        _, _, _, held, *_ = self.open_leases()
        self.registry.keep_holders({0, *distinct(held), *(errand.holder for errand in self.errands.values())})

    def _token(self, slot: int, token: int, order: int) -> None:
        self.token = max(self.token, token)
        self.order = max(self.order, order)

    # -- hosts and queues ---------------------------------------------------------------------------------------------

    def _host(self, slots: Rows, hashes: Uint64s, names: Texts | Sequence[str], hand: Hand | None = None) -> None:
        absent = hand is not None and hand.first == self.hosts.made
        if not absent:
            self.recall(hashes)
        self._hosts_told = self.hosts.add(
            hashes, slots, names if isinstance(names, Texts) else Texts.of(names), absent=absent
        )

    def _rows_of_hosts(self, hashes: Uint64s, expected: Rows | None = None) -> Rows:
        """The rows of hosts, recalled where they are cold. expected: the rows that the caller guesses; one comparison
        checks them. Raises KeyError."""
        if expected is not None and _named(self.hosts.hash[: self.hosts.count], expected, hashes):
            return expected
        rows = self.hosts.find(hashes)
        if (rows == NONE).any() and self.recall(hashes[rows == NONE]):
            rows = self.hosts.find(hashes)
        if (rows == NONE).any():
            raise KeyError(f"host {int(hashes[rows == NONE][0]):016x}")
        return rows

    def _rows_of_queues(self, hashes: Uint64s, expected: Rows | None = None) -> Rows:
        if expected is not None and _named(self.queues.hash[: self.queues.count], expected, hashes):
            return expected
        rows = self.queues.find(hashes)
        if (rows == NONE).any() and len(self.cold):
            unknown = np.ascontiguousarray(hashes)[rows == NONE]
            for crawl in list(self.crawls.names):
                self.recall(hosts_of_queues(unknown, np.full(len(unknown), crawl, np.uint32)))
            rows = self.queues.find(hashes)
        if (rows == NONE).any():
            raise KeyError(f"queue {int(hashes[rows == NONE][0]):016x}")
        return rows

    def rows_of(self, heads: Heads, expected: Rows | None = None) -> Rows:
        """The rows of the queues of these URLs; recalls cold hosts. Raises KeyError."""
        hashes = heads["queue"]
        if expected is not None and _named(self.queues.hash[: self.queues.count], expected, hashes):
            return expected
        rows = self.queues.find(hashes)
        if (rows == NONE).any() and len(self.cold):
            some = heads[rows == NONE]
            self.recall(hosts_of_queues(np.ascontiguousarray(some["queue"]), some["crawl"]))
            rows = self.queues.find(hashes)
        return rows if not (rows == NONE).any() else self._rows_of_queues(hashes)

    # -- hosts that are cold -------------------------------------------------------------------------------------------

    def recall(self, hosts: Uint64s) -> bool:
        """Gives the cold hosts among these hashes rows again. Returns whether there were any. Raises
        DamagedStoreError."""
        if not len(self.cold):
            return False
        before = self.hosts.made
        try:
            self.cold.recall(self, np.ascontiguousarray(hosts))
        except OutriderError:
            raise  # nothing was changed yet
        except BaseException as error:
            self.torn = error
            raise
        return self.hosts.made > before

    def kept_in_runs(self) -> list[Ledger]:
        """The ledgers whose runs a checkpoint lists: of URLs, and of cold hosts."""
        return [self.ledger] if self.cold.ledger is None else [self.ledger, self.cold.ledger]

    def being_copied(self, *, copied: bool) -> None:
        """While a round copies rows, no row is given twice and no host goes cold."""
        self.hosts.reuses = self.queues.reuses = not copied

    def meet_cold(self) -> None:
        """Call it behind the hosts of a checkpoint: every host with a record and without a row is cold. Raises
        DamagedStoreError."""
        if not self._met:
            self._met = True
            self.cold.restore(self)

    def recall_all(self) -> None:
        """Recalls all cold hosts. Raises DamagedStoreError."""
        for told in self.cold.scan():
            self.recall(told.hashes)

    def recall_busy(self, at: Instant, gap: Instant) -> None:
        """Recalls the cold hosts that rested beyond an instant, or whose last request ended less than `gap` before it.
        Raises DamagedStoreError."""
        for hashes in self.cold.busy_after(at, gap):
            self.recall(hashes)

    def let_go(self, authorities: Iterable[Authority]) -> None:
        """Removes authorities that hold nothing, as their host goes cold."""
        for one in authorities:
            del self.authorities[one.name]
            last = self.all_authorities.pop()
            if last is not one:
                self.all_authorities[one.place], last.place = last, one.place
            self.rulebook.let_go(one.digest)
            self.authorities_of.pop(one.host, None)

    def _cold_rest(self, slot: int, at: int, delay: float) -> None:
        """Every host that was visited rests from an instant on. The live call logs the hosts with rows one by one, and
        this fact for the cold ones; in replay other hosts may be cold, so it counts for all."""
        old_at, old_delay = self.cold.floor
        longer = max(delay, old_delay) if old_at + instant(old_delay) > at + instant(delay) else delay
        self.cold.floor = (max(at, old_at), longer)
        hosts = self.hosts
        visited = np.flatnonzero((hosts.ended[: hosts.count] > 0) | (hosts.rest_until[: hosts.count] > 0))
        floor = at + np.ceil(np.maximum(hosts.gap[visited], delay) * MICROSECONDS).astype(np.int64)
        later = floor > hosts.rest_until[visited]
        hosts.rest_until[visited[later]] = floor[later]
        self.changed.append(visited[later].astype(np.uint32))

    def _host_cells(
        self,
        slots: Rows,
        hashes: Uint64s,
        *cells: Values,
        hand: Hand | None = None,
    ) -> None:
        rows = self._rows_of_hosts(hashes, self._hosts_told) if hand is None or hand.rows is None else hand.rows
        hosts = self.hosts
        places = rows.astype(np.intp)
        for name, values in zip(CELLS, cells, strict=True):
            column = getattr(hosts, name)
            # Few hosts have a rare cell: zeros are not written over zeros, so the untouched column takes no memory.
            if name not in RARE_CELLS or np.count_nonzero(values) or np.count_nonzero(column[places]):
                column[places] = values
        self.changed.append(rows)
        if self.queues.groups:
            for row in rows[(hosts.flags[rows] & MANY) != 0].tolist():
                self._rest_groups(row)

    def _address(self, slot: int, host: int, address: str) -> None:
        place = self._whereabouts(host)
        place.address = sys.intern(address)  # many hosts may share one
        place.expires = FOREVER if address else 0
        place.next_at, place.attempts, place.error = 0, 0, ""
        if not address and not place.token:
            del self.whereabouts[place.host]

    def _located(
        self, slot: int, host: int, address: str, expires: int, next_at: int, attempts: int, error: str
    ) -> None:
        place = self._whereabouts(host)
        self._end_errand(place)
        place.address = sys.intern(address)
        place.expires, place.next_at, place.attempts, place.error = expires, next_at, attempts, error

    def _locating(self, slot: int, host: int, token: int, deadline: int, holder: int) -> None:
        place = self._whereabouts(host)
        self._lease_errand(place, token, deadline, holder)

    def _whereabouts(self, host: int) -> Whereabouts:
        rows = self._rows_of_hosts(np.array([host], np.uint64))
        row = int(rows[0])
        self.changed.append(rows)
        if row not in self.whereabouts:
            self.whereabouts[row] = Whereabouts(row, int(self.hosts.slot[row]), host, self.hosts.name(row))
        return self.whereabouts[row]

    def _left(self, slot: int, host: int, token: int, address: str) -> None:
        rows = self._rows_of_hosts(np.array([host], np.uint64))
        self.left[int(rows[0])] = (token, sys.intern(address))

    def address_of(self, host: int, token: int) -> str | None:
        """The address of a host by its row, for a lease with this token: from the last caller or errand that gave it
        before the lease."""
        until, address = self.left.get(host, (-1, ""))
        if token <= until:
            return address or None
        place = self.whereabouts.get(host)
        return place.address or None if place is not None and place.expires else None

    def still_at(self) -> dict[int, str]:
        """By row, the addresses that open leases go to and their hosts have left, "" for none. Forgets the others, for
        tokens grow: no later lease goes there."""
        if not self.left:
            return {}
        tokens = np.frombuffer(self.leases.tokens(), np.uint64)
        hosts = self.queues.host[self.open_leases()[1].astype(np.intp)]
        open_ones = [*zip(hosts.tolist(), tokens.tolist(), strict=True)]
        open_ones += [(errand.busy, token) for token, errand in self.errands.items() if errand.busy != NONE]
        still = {host for host, token in open_ones if token <= self.left.get(host, (-1, ""))[0]}
        self.left = {host: self.left[host] for host in still}
        return {host: address for host, (_, address) in self.left.items()}

    def _rest_groups(self, host: int) -> None:
        until = int(self.hosts.rest_until[host])
        for queue in self.queues_of(host):
            group = self.queues.group_of.get(queue)
            if group is not None and until > group.rest_until:
                group.rest_until = until
                self.changed.append(self.queues.host[group.queues])

    def _queue(
        self,
        slots: Rows,
        hashes: Uint64s,
        hosts: Uint64s,
        crawls: Rows,
        keys: Texts | Sequence[str],
        hand: Hand | None = None,
    ) -> None:
        if hand is not None and hand.first == self.queues.made:
            fresh = np.arange(len(hashes))
        else:
            self.recall(hosts)
            fresh = np.flatnonzero(self.queues.find(hashes) == NONE)
        if not len(fresh):
            return
        if hand is not None:
            expected = hand.rows
        else:
            # Most hosts have one queue, made with the host: in a checkpoint it has the row of its host.
            expected = np.arange(self.queues.count, self.queues.count + len(hosts), dtype=np.uint32)
        homes = self._rows_of_hosts(hosts, expected)[fresh]
        rows = self.queues.add(hashes[fresh], homes, crawls[fresh])
        first = self.hosts.first_queue
        simple = first[homes] == NONE
        ordered = np.sort(homes)
        if simple.all() and not np.count_nonzero(ordered[1:] == ordered[:-1]):
            first[homes] = rows
        else:
            for row, home in zip(rows.tolist(), homes.tolist(), strict=True):
                if first[home] != NONE:
                    if self.crawls.gone.take(int(self.queues.crawl[first[home]]), mode="clip"):
                        self.leaving.append(int(first[home]))  # it stayed as long as the host had no other
                    self.queues.after[row] = int(first[home]) + 1
                    if not self.hosts.flags[home] & MANY and self.hosts.ended[home]:
                        # A queue that was alone has no noted turns. It had some, and the new queue had none.
                        self.turn += 1
                        self.queues.served[first[home]] = self.turn
                    self.hosts.flags[home] |= MANY
                first[home] = row
        if not isinstance(keys, Texts) or len(keys.octets):
            told = keys.list() if isinstance(keys, Texts) else keys
            keyed = {row: told[place] for row, place in zip(rows.tolist(), fresh.tolist(), strict=True) if told[place]}
            self.queues.keys |= keyed  # all keys first: `_keyed` looks for queues that have none
            for row, key in keyed.items():
                self._keyed(row, int(self.queues.host[row]), key)
        if self.queues.groups:
            for row, home in zip(rows.tolist(), homes.tolist(), strict=True):
                if row not in self.queues.keys and row not in self.queues.group_of:
                    group = self.queues.groups.get((int(self.queues.crawl[row]), self.hosts.name(home)))
                    if group is not None:
                        self._join(group, row, home)
        self.join_twins(rows)
        if any(self.crawls.states[crawl] for crawl, _ in by_value(crawls)):
            self.flag(rows)

    def _keyed(self, row: int, home: int, key: str) -> None:
        """Enters a queue whose key is not its host: the key now spans hosts, and the host of that name joins them."""
        queues = self.queues
        crawl = int(queues.crawl[row])
        group = queues.groups.get((crawl, key))
        if group is None:
            group = queues.groups[crawl, key] = Group()
            namesake = self.host_row(key)
            for other in self.queues_of(namesake) if namesake != NONE else ():
                if other not in queues.keys and queues.crawl[other] == crawl:
                    self._join(group, other, namesake)
        self._join(group, row, home)

    def _join(self, group: Group, queue: int, home: int) -> None:
        group.queues.append(queue)
        self.queues.group_of[queue] = group
        self.hosts.flags[home] |= MANY
        group.rest_until = max(group.rest_until, int(self.hosts.rest_until[home]))
        if self.hosts.in_flight[home]:
            _, rows, *_ = self.open_leases()
            group.busy += int((rows == queue).sum())

    def queues_of(self, host: int) -> Iterator[int]:
        """The queues of a host, the youngest first."""
        row = int(self.hosts.first_queue[host])
        row = row if row != NONE else -1
        while row >= 0:
            yield row
            row = int(self.queues.after[row]) - 1

    def key_of(self, queue: int) -> str:
        """The key of a queue by its row."""
        return self.queues.keys.get(queue) or self.hosts.name(int(self.queues.host[queue]))

    def hash_of(self, text: str) -> int:
        """The keyed hash of a name or key."""
        return int.from_bytes(kernels.fingerprints([text], self.fingerprint_key), "little")

    def home_of(self, host: str) -> str:
        """The name under which a URL's host has its clock: without the dot behind it, except in stores of an earlier
        version that have a separate host for that spelling."""
        name = undotted(host)
        if name is host:
            return host
        number = np.array([self.hash_of(host)], np.uint64)
        return host if self.knows(number)[0] else name

    def knows(self, hosts: Uint64s) -> npt.NDArray[np.bool_]:
        """Whether each of these hosts is known, in memory or cold."""
        found: npt.NDArray[np.bool_] = self.hosts.find(hosts) != NONE
        return found | self.cold.has(np.ascontiguousarray(hosts))

    def join_twins(self, queues: Rows) -> None:
        """Gives a host with a row for each spelling, with and without a dot behind it, one turn and one clock."""
        if not self.hosts.dotted:
            return
        for home in np.unique(self.queues.host[queues]).tolist():
            name = undotted(self.hosts.name(home))
            twins = [self.hosts.row(self.hash_of(spelling)) for spelling in (name, name + ".")]
            if NONE in twins:
                continue
            group = self.queues.groups.setdefault((NONE, name), Group())
            for twin in twins:
                for queue in self.queues_of(twin):
                    if queue not in self.queues.group_of:
                        self._join(group, queue, twin)

    def host_row(self, name: str) -> int:
        """The row of a host by name, NONE where it is not known; recalls a cold host."""
        number = self.hash_of(name)
        row = self.hosts.row(number)
        if row == NONE and self.recall(np.array([number], np.uint64)):
            row = self.hosts.row(number)
        return row

    def _queue_rules(self, slot: int, queue: int, paused: int, blocked: int, delay: float, limit: int) -> None:
        rules = QueueRules(bool(paused), blocked, None if delay < 0 else delay, limit)
        if slot == OWN_SLOT:  # rules of a crawl, or of a key in all crawls: they hold for later queues, too
            _keep(self.words, queue, rules)
            return
        row = int(self._rows_of_queues(np.array([queue], np.uint64))[0])
        _keep(self.queues.rules, row, rules)
        self.flag(np.array([row], np.uint32))
        self.changed.append(self.queues.host[np.array([row])])

    def rules_of_new(self, crawl: int, key: str) -> QueueRules:
        """The rules of a queue that is made now. A queue of its key in its crawl has every word about both, since
        operators rule the queues of a key together; else the words of the crawl and of the key in all crawls count."""
        other = self._queue_of_key(crawl, key) if self.queues.rules else None
        if other is not None:
            return self.queues.rules.get(other) or QueueRules()
        of_crawl = words_of_crawls(np.array([crawl], np.uint32))
        of_key = words_of_keys(np.array([self.hash_of(key)], np.uint64))
        said = (self.words.get(int(number)) for number in (*of_key, *of_crawl))
        return reduce(QueueRules.and_also, said, QueueRules())

    def _queue_of_key(self, crawl: int, key: str) -> int | None:
        """A queue of a crawl under a key, None where there is none."""
        group = self.queues.groups.get((crawl, key))
        if group is not None and group.queues:
            return group.queues[0]
        namesake = self.host_row(key)
        rows = self.queues_of(namesake) if namesake != NONE else ()
        return next((row for row in rows if row not in self.queues.keys and self.queues.crawl[row] == crawl), None)

    def flag(self, queues: Rows) -> None:
        """Marks the hosts of these queues as RULED while one of their queues or crawls has rules, and clears the mark
        else."""
        for host in np.unique(self.queues.host[queues]).tolist():
            ruled = any(
                queue in self.queues.rules or self.crawls.states[int(self.queues.crawl[queue])]
                for queue in self.queues_of(host)
            )
            flags = int(self.hosts.flags[host]) & ~RULED
            self.hosts.flags[host] = flags | (RULED if ruled else 0)

    def _void(self, slot: int, queue: int, order: int) -> None:
        row = int(self._rows_of_queues(np.array([queue], np.uint64))[0])
        self._forget(row, order)

    def _forget(self, queue: int, order: int) -> None:
        """Makes the cards void that a queue accepted before this order: they leave the counts, and lie on where they
        are."""
        queues = self.queues
        if queues.voids.get(queue, 0) >= order:
            return
        _, rows, _, _, _, heads, *_ = self.open_leases()
        open_ones = (rows == queue) & (heads["order"] >= queues.voids.get(queue, 0)) & (heads["order"] < order)
        queues.voids[queue] = order
        self.hosts.flags[int(queues.host[queue])] |= VOIDED
        one = np.array([queue], np.uint32)
        self._uncount(one, int(open_ones.sum()))
        self.backlog.drop(queue)
        self.changed.append(queues.host[one])

    def drop_stalled(self, most: int) -> None:
        """Drops the cards of up to `most` queues of deleted crawls from the backlog."""
        for _ in range(min(most, len(self.stalled))):
            queue = self.stalled.pop()
            self.backlog.drop(queue)
            self.leaving.append(queue)

    def find_leaving(self) -> None:
        """Collects all queues of deleted crawls, after recovery."""
        crawls = self.queues.crawl[: self.queues.count]
        there = self.queues.there(np.arange(self.queues.count))
        self.leaving = deque(np.flatnonzero(there & self.crawls.are_gone(crawls)).tolist())

    def those_leaving(self, most: int) -> Rows:
        """The rows that may go among the next `most` queues of deleted crawls: those without an open lease whose host
        keeps another queue, for a host goes cold with a queue. None while a round copies rows, or cards are still to be
        dropped."""
        if self.stalled or not self.queues.reuses:
            return _NO_ROWS
        some = [self.leaving.popleft() for _ in range(min(most, len(self.leaving)))]
        rows = np.unique(np.array(some, np.uint32))
        rows = rows[self.queues.there(rows) & self.crawls.are_gone(self.queues.crawl[rows])]
        if not len(rows):
            return rows
        busy = self.hosts.in_flight[self.queues.host[rows]] > 0
        if busy.any():
            rows = rows[~np.isin(rows, self.open_leases()[1])]  # the end of such a lease names its queue again
        mine = set(rows.tolist())
        for host in np.unique(self.queues.host[rows]).tolist():
            chain = list(self.queues_of(host))
            if mine.issuperset(chain):
                mine.discard(chain[-1])
        return np.array(sorted(mine), np.uint32)

    def remove_queues(self, rows: Rows) -> None:
        """Removes the rows of these queues of deleted crawls; they must stand in no ring."""
        queues, hosts, going = self.queues, self.hosts, set(rows.tolist())
        homes = np.unique(queues.host[rows])
        for host in homes.tolist():
            chain = [queue for queue in self.queues_of(host) if queue not in going]
            hosts.first_queue[host] = chain[0]
            for queue, after in zip(chain, [*chain[1:], -1], strict=True):
                queues.after[queue] = after + 1
            if len(chain) == 1 and chain[0] not in queues.group_of:
                hosts.flags[host] &= ~np.uint8(MANY)
        self._part(rows)
        for row in rows.tolist():
            queues.keys.pop(row, None)
            queues.voids.pop(row, None)
        queues.remove(rows)
        self.flag(np.array([hosts.first_queue[host] for host in homes.tolist()], np.uint32))
        self.changed.append(homes)

    def _part(self, rows: Rows) -> None:
        """These queues leave the groups of their keys; a group without a queue goes."""
        queues, going = self.queues, set(rows.tolist())
        parted = {id(group): (row, group) for row in going if (group := queues.group_of.pop(row, None)) is not None}
        for row, group in parted.values():
            group.queues = [queue for queue in group.queues if queue not in going]
            key = self.key_of(row)
            for name in () if group.queues else ((int(queues.crawl[row]), key), (NONE, undotted(key))):
                if queues.groups.get(name) is group:
                    del queues.groups[name]

    def _uncount(self, queues: Rows, leased: int) -> None:
        """Takes the URLs of these queues out of the counts."""
        self.counts[LEASED] -= leased
        self.counts[QUEUED] -= int(self.backlog.waiting(queues).sum())
        self.void_waiting += int(self.queues.waiting[queues].sum())
        for state, column in self._columns():
            self.counts[state] -= int(column[queues].sum())
            column[queues] = 0

    # -- robots -------------------------------------------------------------------------------------------------------

    def _authority(self, slot: int, name: str) -> None:
        self.authority(name).logged = True

    def authority(self, name: str) -> Authority:
        """An authority by name, made where there is none. A new one is no fact until a fact says something about it.
        Raises KeyError when its host is not known."""
        known = self.authorities.get(name)
        if known is not None:
            return known
        host = self.host_row(self.home_of(host_of(name + "/")))
        if host == NONE:
            raise KeyError(name)
        known = self.authorities.get(name)
        if known is not None:
            return known  # the recall of its host made it
        authority = Authority(int(self.hosts.slot[host]), host, name)
        authority.place = len(self.all_authorities)
        self.all_authorities.append(authority)
        self.authorities[name] = authority
        self.authorities_of.setdefault(host, []).append(authority)
        self.hosts.flags[host] |= ROBOTS
        return authority

    def _known(self, name: str) -> Authority:
        """An authority that is a fact already. Raises KeyError."""
        if name not in self.authorities and len(self.cold):
            self.host_row(self.home_of(host_of(name + "/")))
        return self.authorities[name]

    def _robots(
        self,
        slot: int,
        name: str,
        state: int,
        expires: int,
        next_at: int,
        attempts: int,
        hops: int,
        status: int,
        url: str,
        error: str,
        again: int,
        fetched: int,
        failing_since: int,
    ) -> None:
        authority = self._known(name)
        self._end_errand(authority)
        authority.state = RobotsState(state)
        authority.expires = expires
        authority.next_at = next_at
        authority.attempts = attempts
        authority.hops = hops
        authority.status = status
        authority.url = url
        authority.error = error
        authority.again = Again(again)
        authority.fetched, authority.failing_since = fetched, failing_since
        self.changed.append(np.array([authority.host], np.uint32))

    def _lease_errand(self, errand: Errand, token: int, deadline: int, holder: int) -> None:
        """Opens an errand, or keeps it open with another deadline."""
        begun = errand.begun if errand.token == token else None
        self._end_errand(errand)
        errand.token, errand.deadline, errand.holder, errand.begun = token, deadline, holder, begun
        if errand.kind is not Kind.ADDRESS:  # that one is no request to a host
            # In a checkpoint the hop may be younger than the copied hosts; then the log repeats the errand's fact
            # behind its host.
            errand.busy = self.host_row(self.home_of(host_of(errand.url)))
        if errand.busy != NONE:
            self.hosts.in_flight[errand.busy] += 1
        self.errands[token] = errand
        self.token = max(self.token, token)

    def _end_errand(self, errand: Errand) -> None:
        if errand.token:
            self.errands.pop(errand.token, None)
        if errand.busy != NONE:
            self.hosts.in_flight[errand.busy] -= 1
            self.changed.append(np.array([errand.busy], np.uint32))
        errand.closed()

    def _queued_errand(
        self,
        slot: int,
        kind: int,
        crawl: int,
        name: str,
        url: str,
        next_at: int,
        attempts: int,
        hops: int,
        losses: int,
        error: str,
        ended: int,
    ) -> None:
        errand = self.callers_errands.get(kind, crawl, name)
        if errand is None:
            host = NONE if ended else self.host_row(self.home_of(host_of(name)))
            if host == NONE:  # in a checkpoint: younger than the copied hosts, and the log repeats this fact
                return
            errand = self.callers_errands.add(CallersErrand(slot, host, kind, crawl, name))
        self._end_errand(errand)
        errand.url, errand.next_at, errand.attempts, errand.hops = url, next_at, attempts, hops
        errand.losses, errand.error = losses, error
        if ended or self.crawls.gone.take(crawl, mode="clip"):
            self.callers_errands.remove(errand)
            if errand.wanted != NONE:  # robots.txt refused it in line
                self.callers_errands.dropped.append(errand)
        else:
            self.callers_errands.put_behind(errand)
        self.changed.append(np.array([errand.host], np.uint32))

    def _leased_errand(
        self, slot: int, kind: int, crawl: int, name: str, token: int, deadline: int, holder: int
    ) -> None:
        errand = self.callers_errands.get(kind, crawl, name)
        self.token = max(self.token, token)
        if errand is not None:
            self._lease_errand(errand, token, deadline, holder)

    def _rules(self, slot: int, name: str, digest: int, body: bytes) -> None:
        authority = self._known(name)
        self.rulebook.take(digest, body)
        self.rulebook.let_go(authority.digest)
        authority.digest = digest

    def _errand(self, slot: int, name: str, token: int, deadline: int, holder: int) -> None:
        authority = self._known(name)
        self._lease_errand(authority, token, deadline, holder)

    # -- URLs ---------------------------------------------------------------------------------------------------------

    def _card(self, tokens: Uint64s, cards: Cards, hand: Hand | None = None) -> None:
        """Applies whole cards: new URLs, and URLs whose body changed."""
        heads = cards.heads
        fresh = heads["order"] >= self.order
        rows = None
        if hand is not None:
            old, rows = hand.old, hand.rows
            if rows is not None:
                rows = self.rows_of(heads, rows)
            self._close(tokens)
        elif fresh.all():
            old = np.zeros(len(heads), np.uint8)
        else:
            old = np.zeros(len(heads), np.uint8)
            _, old[~fresh] = self._take_out(heads[~fresh], tokens[~fresh])
        dead = self._dead(heads) if hand is not None else self._outlived(heads)
        # Cards in hand were checked before they were logged.
        keep = self.ledger.append if hand is None else self.ledger.take
        keep(cards if dead is None else cards.filter(~dead))
        if fresh.any():
            self.seen.add(heads[fresh] if not fresh.all() else heads)
            self.order = int(heads["order"].max()) + 1
        self._put(cards, old, rows)

    def _head(self, tokens: Uint64s, heads: Heads, hand: Hand | None = None) -> None:
        """Applies new heads; the bodies of these URLs stay as they are."""
        rows = None
        if hand is None:
            cards, old = self._take_out(heads, tokens)
            cards = cards.with_heads(heads)
        else:
            cards, old, rows = hand.cards, hand.old, hand.rows
            self._close(tokens)
        dead = self._dead(heads) if hand is not None else self._outlived(heads)
        self.ledger.append_heads(heads if dead is None else heads[~dead])
        self._put(cards, old, rows)

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
            found, queues = self.leases.end(tokens if open_ones == len(tokens) else tokens[tokens != 0])
            rows = np.frombuffer(queues, np.uint32)
            self._turns(rows if 0 not in found else rows[np.frombuffer(found, np.bool_)], -1)

    def _turns(self, queues: Rows, step: int) -> None:
        """Counts leases of these queues that were opened (step 1) or ended (-1), one per row."""
        # For opened leases `count_leases` returns only hosts with flags: the draw took all others out of ring and
        # timetable.
        hosts = np.frombuffer(kernels.count_leases(queues, step > 0, self.queues.host, self.hosts.octets), np.uint32)
        if self.queues.group_of:
            for queue in queues.tolist():
                group = self.queues.group_of.get(queue)
                if group is not None:
                    group.busy += step
                    self.changed.append(self.queues.host[group.queues])
        if len(hosts):
            self.changed.append(hosts)
        if step < 0 and self.crawls.any_gone:
            self.leaving.extend(queues[self.crawls.are_gone(self.queues.crawl[queues])].tolist())

    def put_back(self, cards: Cards, old: Uint8s) -> None:
        """Puts cards that `take_out` gave back in their places; old: the states they were in."""
        heads = cards.changed()
        heads["state"] = old
        self.file(cards.with_heads(heads), old)

    def take_out(self, heads: Heads) -> tuple[Cards, Uint8s]:
        """Takes the cards of URLs without a lease out of their places, in this order, with the states they leave."""
        return self._take_out(heads, np.zeros(len(heads), np.uint64))

    def _take_out(self, heads: Heads, tokens: Uint64s) -> tuple[Cards, Uint8s]:
        """Takes the cards of these URLs out of their places, in this order, with the states they leave."""
        if not len(heads):
            return Cards.none(), _NO_STATES
        parts: list[Cards] = []
        places: list[npt.NDArray[np.intp]] = []
        old = np.zeros(len(heads), np.uint8)
        rest = np.arange(len(heads))
        if tokens.any():
            some = np.flatnonzero(tokens)
            found, queues, _, _, _, ended, arena, offsets = self.leases.close(np.ascontiguousarray(tokens[some]))
            mask = np.frombuffer(found, np.bool_)
            self._turns(np.frombuffer(queues, np.uint32)[mask], -1)
            parts.append(Cards.of_columns(ended, arena, offsets).filter(mask))
            places.append(some[mask])
            old[some[mask]] = LEASED
            rest = np.setdiff1d(rest, some[mask], assume_unique=True)
        # A void card has no place. The same URL, accepted anew, may have one.
        dead = self._dead(heads[rest]) if len(rest) else None
        void, rest = (rest[dead], rest[~dead]) if dead is not None else (rest[:0], rest)
        for take, state in (
            (self._from_backlog, QUEUED),
            (self._from_calendar, WAITING),
            (self._from_spent, PARKED),
        ):
            if not len(rest):
                break
            mask, cards = take(heads[rest])
            parts.append(cards)
            places.append(rest[mask])
            old[rest[mask]] = state
            rest = rest[~mask]
        rest = np.concatenate([rest, void])
        if len(rest):
            # The ledger has the rest: done, gone and refused ones, and void ones, for a lease may outlive its queue.
            mask, cards = self.ledger.find(heads["crawl"][rest], heads["slot"][rest], heads["fingerprint"][rest])
            if not mask.all():
                raise KeyError(f"URL {int(heads['fingerprint'][rest[~mask][0]]):016x}")
            other = cards.heads["order"] != heads["order"][rest]
            if other.any():
                # The URL was accepted anew since, maybe with another key: only its text is the same.
                mended = cards.heads.copy()
                for name in ("order", "queue"):
                    mended[name][other] = heads[name][rest][other]
                cards = cards.with_heads(mended)
            parts.append(cards)
            places.append(rest)
            old[rest] = cards.heads["state"]
        order = np.argsort(np.concatenate(places))
        return Cards.concatenate(parts).take(order), old

    def _from_backlog(self, heads: Heads) -> tuple[npt.NDArray[np.bool_], Cards]:
        return self.backlog.remove(self.rows_of(heads), heads["fingerprint"])

    def _from_calendar(self, heads: Heads) -> tuple[npt.NDArray[np.bool_], Cards]:
        if not len(self.calendar):
            return np.zeros(len(heads), np.bool_), Cards.none()

        def look(some: Heads) -> Iterator[_Found]:
            yield self.calendar.remove(some["fingerprint"]), self._back_to_calendar

        return _exactly(heads, look)

    def _back_to_calendar(self, cards: Cards) -> None:
        dead = self._dead(cards.heads)
        if dead is not None:
            self.void_waiting -= int(dead.sum())
            cards = cards.filter(~dead)
        self.calendar.put(cards)

    def _from_spent(self, heads: Heads) -> tuple[npt.NDArray[np.bool_], Cards]:
        if not self.counts[PARKED]:
            return np.zeros(len(heads), np.bool_), Cards.none()

        def back(cards: Cards) -> None:
            dead = self._dead(cards.heads)
            cards = cards if dead is None else cards.filter(~dead)
            self.spent.put(self.queues.host[self.rows_of(cards.heads)], cards)

        def look(some: Heads) -> Iterator[_Found]:
            hosts = self.queues.host[self.rows_of(some)]
            yield self.spent.remove(hosts, np.ascontiguousarray(some["fingerprint"]))[1], back

        return _exactly(heads, look)

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

    def void(self, heads: Heads) -> npt.NDArray[np.bool_]:
        """Which cards are void: accepted before their queue or crawl was deleted."""
        voids = self.queues.voids
        out: npt.NDArray[np.bool_] = np.zeros(len(heads), np.bool_)
        if voids:
            rows = self.queues.find(np.ascontiguousarray(heads["queue"]))
            out |= heads["order"] < np.array([voids.get(row, 0) for row in rows.tolist()], np.uint64)
        if self.crawls.any_gone:
            out |= self.crawls.are_gone(heads["crawl"])
        return out

    def voids(self) -> bool:
        """Whether any card may be void."""
        return bool(self.queues.voids) or self.crawls.any_gone

    def _columns(self) -> Iterator[tuple[int, npt.NDArray[np.uint32]]]:
        queues = self.queues
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
            rows = self.rows_of(heads)
        states = heads["state"]
        come = self._recount(rows, old, states)
        all_alike = max(come) == len(heads)
        if come[QUEUED]:
            queues, some_cards = rows, cards
            if not all_alike:
                some = np.flatnonzero(states == QUEUED)
                queues, some_cards = rows[some], cards.take(some)
            self.backlog.put(queues, some_cards)
            self.changed.append(self.queues.host[queues])
        if come[WAITING]:
            self.calendar.put(cards if all_alike else cards.take(np.flatnonzero(states == WAITING)))
        if come[PARKED]:
            # URLs that robots rules refuse, and traps, lie in the ledger alone.
            others = (states == PARKED) & (heads["reason"] != Reason.ROBOTS) & (heads["reason"] != Reason.TRAP)
            if others.any():
                self.spent.put(self.queues.host[rows[others]], cards.filter(others))
        if np.count_nonzero(heads["flags"]):
            self.seen.add_contents(cards.filter((heads["flags"] & HAS_CONTENT) != 0))

    def _recount(self, rows: Rows, old: Uint8s, states: Uint8s) -> list[int]:
        """Moves URLs of these queues from old states to new ones in the counts. Returns how many came to each state."""
        left, come = _of_each(old), _of_each(states)
        for state in range(1, 7):
            self.counts[state] += come[state] - left[state]
        for state, column in self._columns():
            if left[state]:
                _add(column, rows if left[state] == len(rows) else rows[old == state], -1)
            if come[state]:
                _add(column, rows if come[state] == len(rows) else rows[states == state], 1)
        return come

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
        hand: Hand | None = None,
    ) -> None:
        rows = self._rows_of_queues(queues) if hand is None or hand.rows is None else hand.rows
        if hand is None:
            known = np.frombuffer(self.leases.find(np.ascontiguousarray(tokens)), np.bool_)
            if known.all():
                return
            keep = ~known
            rows, tokens, deadlines = rows[keep], tokens[keep], deadlines[keep]
            holders, not_before = holders[keep], not_before[keep]
            wanted = np.zeros(len(rows), HEAD)
            wanted["queue"], wanted["fingerprint"] = queues[keep], fingerprints[keep]
            wanted["slot"], wanted["crawl"], wanted["order"] = slots[keep], self.queues.crawl[rows], orders[keep]
            cards, old = self._take_out(wanted, np.zeros(len(rows), np.uint64))
            heads = cards.changed()
            heads["state"] = LEASED
            cards = cards.with_heads(heads)
            if self.voids():
                dead = self.void(heads)
                old = old.copy()
                old[dead] = UNKNOWN
                self.counts[LEASED] -= int(dead.sum())
        else:
            cards, old = hand.cards, hand.old
        self._recount(rows, old, states_of(LEASED, len(rows)))
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
        self.token = max(self.token, int(tokens.max()))

    def _extend(self, slots: Rows, tokens: Uint64s, deadlines: Values) -> None:
        for deadline, rows in by_value(deadlines):
            self.leases.extend(np.ascontiguousarray(tokens[rows]), deadline)

    def open_leases(self) -> tuple[Any, ...]:
        """All open leases of pages as arrays: found, queues, deadlines, holders, not_before, heads; without bodies."""
        return lease_columns(self.leases.get(np.frombuffer(self.leases.tokens(), np.uint64), False))

    # -- what a checkpoint copies --------------------------------------------------------------------------------------

    def sections(self) -> list[tuple[int, int]]:
        """The sections of a checkpoint beside the ledger: (section, rows), in the order of loading."""
        return [
            (OWN, 1),
            (HOSTS, self.hosts.count),
            (QUEUES, self.queues.count),
            (LEASES, 1),
            (AUTHORITIES, len(self.all_authorities)),
            (CALLED, self.callers_errands.places()),
            (TRANSIT, 1),
            (RETURNS, self.returns.places()),
        ]

    def copy(self, section: int, first: int, last: int) -> list[Block]:
        """The facts that rebuild the rows `first` … `last - 1` of a section as they are now."""
        hosts, queues = self.hosts, self.queues
        if section == OWN:
            return self._own_facts()
        blocks: list[Block] = []
        if section == TRANSIT:
            return self.transit.blocks()
        if section == RETURNS:
            return self.returns.blocks(first, last)
        if section == HOSTS:
            rows_ = first + np.flatnonzero(hosts.there[first:last])
            if not len(rows_):
                return []
            blocks = [(Fact.HOST, [hosts.slot[rows_], hosts.hash[rows_], hosts.names(rows_)]), self.host_cells(rows_)]
            left = sorted(row for row in self.still_at() if first <= row < last)
            if left:
                blocks.append((Fact.LEFT, columns_of([self.left_cells(row, *self.left[row]) for row in left])))
            places = [self.whereabouts[row] for row in range(first, last) if row in self.whereabouts]
            for fact, rows in self._places(places):
                if rows:
                    blocks.append((fact, columns_of(rows)))
            return blocks
        if section == QUEUES:
            rows_ = first + np.flatnonzero(queues.there(np.arange(first, last)))
            if not len(rows_):
                return []
            slots, hashes = hosts.slot[queues.host[rows_]], queues.hash[rows_]
            homes = hosts.hash[queues.host[rows_]]
            keys: Texts | list[str] = no_texts(len(rows_))
            if queues.keys:
                keys = [queues.keys.get(row, "") for row in rows_.tolist()]
            found: list[Block] = [(Fact.QUEUE, [slots, hashes, homes, queues.crawl[rows_], keys])]
            ruled = [self.queue_rules(row) for row in queues.rules if first <= row < last]
            voided = [
                (int(hosts.slot[queues.host[row]]), int(queues.hash[row]), order)
                for row, order in queues.voids.items()
                if first <= row < last
            ]
            if ruled:
                found.append((Fact.QUEUE_RULES, columns_of(ruled)))
            if voided:
                found.append((Fact.VOID, columns_of(voided)))
            return found
        if section == LEASES:
            tokens = np.frombuffer(self.leases.tokens(), np.uint64)
            _, rows, deadlines, holders, not_before, heads, *_ = self.open_leases()
            return [
                (
                    Fact.LEASE,
                    [
                        *(heads["slot"], queues.hash[rows], heads["fingerprint"], heads["order"]),
                        *(tokens, deadlines, holders, not_before),
                    ],
                )
            ]
        if section == CALLED:
            called = self.callers_errands.between(first, last)
            open_ones = [one.opening(one.token, one.deadline, one.holder)[1] for one in called if one.token]
            blocks = [(Fact.QUEUED_ERRAND, columns_of([one.own_cells() for one in called]))] if called else []
            return blocks + ([(Fact.LEASED_ERRAND, columns_of(open_ones))] if open_ones else [])
        some = self.all_authorities[first:last]
        out: list[Block] = [
            (Fact.AUTHORITY, columns_of([(a.slot, a.name) for a in some])),
            (Fact.ROBOTS, columns_of([robots_cells(a) for a in some])),
        ]
        rules = [(a.slot, a.name, a.digest, self.rulebook.body(a.digest)) for a in some if a.digest]
        errands = [(a.slot, a.name, a.token, a.deadline, a.holder) for a in some if a.token]
        if rules:
            out.append((Fact.RULES, columns_of(rules)))
        if errands:
            out.append((Fact.ERRAND, columns_of(errands)))
        return out

    def left_cells(self, host: int, token: int, address: str) -> Row:
        """The columns of a LEFT fact."""
        return (int(self.hosts.slot[host]), int(self.hosts.hash[host]), token, address)

    def _places(self, places: Sequence[Whereabouts]) -> list[tuple[Fact, list[Row]]]:
        named = [(place, (place.slot, int(self.hosts.hash[place.host]))) for place in places]
        return [
            (Fact.ADDRESS, [(*name, p.address) for p, name in named if p.expires == FOREVER]),
            (Fact.LOCATED, [(*name, *p.cells()) for p, name in named if p.expires != FOREVER]),
            (Fact.LOCATING, [(*name, p.token, p.deadline, p.holder) for p, name in named if p.token]),
        ]

    def host_cells(self, rows: npt.NDArray[Any]) -> Block:
        """The clocks of hosts as a block of facts."""
        return Fact.HOST_CELLS, self.hosts.durable(rows)

    def queue_rules(self, row: int, rules: QueueRules | None = None) -> Row:
        """The rules of a queue, as the columns of a QUEUE_RULES fact."""
        rules = rules or self.queues.rules.get(row) or QueueRules()
        return rules_cells(int(self.hosts.slot[self.queues.host[row]]), int(self.queues.hash[row]), rules)

    def _own_facts(self) -> list[Block]:
        own = OWN_SLOT
        rows: list[tuple[Fact, list[Row]]] = [
            *self.crawls.facts(),
            (Fact.QUEUE_RULES, [rules_cells(own, number, rules) for number, rules in self.words.items()]),
            *self.registry.facts(),
            (Fact.TOKEN, [(own, self.token, self.order)]),
        ]
        if self.cold.floor[0]:
            rows.append((Fact.COLD_REST, [(own, *self.cold.floor)]))
        return [(fact, columns_of(some)) for fact, some in rows if some]

    # -- looking ------------------------------------------------------------------------------------------------------

    def wake(self, now: Instant, most: int) -> int:
        """Queues up to `most` waiting URLs that are due. That is no fact: it follows from their due times."""
        parts: list[Cards] = []
        taken = 0
        for _ in range(CALENDAR_ROUNDS_MAX):  # each round moves a bounded number of cards between buckets
            at = self.calendar.next() if len(self.calendar) and taken < most else None
            if at is None or at > now:
                break
            parts.append(self.calendar.due(now, most - taken))
            taken += len(parts[-1])
        if not taken:
            return 0
        cards = Cards.concatenate(parts)
        dead = self._dead(cards.heads)
        if dead is not None:
            self.void_waiting -= int(dead.sum())
            cards = cards.filter(~dead)
        heads = cards.changed()
        heads["state"] = QUEUED
        self.file(cards.with_heads(heads), np.full(len(cards), WAITING, np.uint8))
        return taken

    def restore(self) -> None:
        """Call it behind the checkpoint's hosts and queues: fills everything derived from the ledger, in one scan."""
        self.calendar.close()
        self.calendar = Calendar(self._scratch, name="calendar", now=max(self.now, self._began))
        self.meet_cold()
        for _, column in self._columns():
            column[: self.queues.count] = 0  # recalled hosts brought counts that the scan adds again
        # While the scan may recall hosts, only this thread touches rows and the seen-set; else the reading thread does.
        scan = self.ledger.scan()
        told = self._told_of(ahead(scan)) if len(self.cold) else ahead(self._told_of(scan))
        for cards, rows, order in told:
            self.order = max(self.order, order + 1)
            if len(self.cold):
                cards = self._set_aside(cards)
            self.file(cards, np.zeros(len(cards), np.uint8), rows)
        self.changed.clear()

    def _told_of(self, scan: Iterator[Cards]) -> Iterator[tuple[Cards, Rows | None, int]]:
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
            rows = self.queues.find(heads["queue"]) if not len(self.cold) else None
            if rows is not None and np.count_nonzero(rows == NONE):
                rows = None
            yield cards, rows, int(heads["order"].max())

    def _set_aside(self, cards: Cards) -> Cards:
        """Counts the URLs of cold hosts, which have no row for it, and puts the waiting ones into the calendar. Returns
        the other cards."""
        heads = cards.heads
        rows = self.queues.find(np.ascontiguousarray(heads["queue"]))
        resting = (rows == NONE) & ((heads["state"] == WAITING) | (heads["state"] == DONE) | (heads["state"] == GONE))
        places = np.flatnonzero(resting)
        if len(places):
            some = heads[places]
            resting[places] = self.cold.have_queues(some["queue"], some["crawl"])
        if not resting.any():
            return cards
        some_cards = cards.filter(resting)
        states = some_cards.heads["state"]
        for state, count in enumerate(np.bincount(states, minlength=7).tolist()):
            self.counts[state] += count
        self.calendar.put(some_cards.filter(states == WAITING))
        if np.count_nonzero(some_cards.heads["flags"]):
            self.seen.add_contents(some_cards.filter((some_cards.heads["flags"] & HAS_CONTENT) != 0))
        return cards.filter(~resting)

    def accepted(self) -> int:
        return sum(self.counts)

    def close(self) -> None:
        """Closes and removes the files of tails."""
        for part in (self.backlog, self.calendar, self.spent, self.rulebook):
            part.close()


OWN, HOSTS, QUEUES, LEASES, AUTHORITIES, TRANSIT, RUNS, CALLED, RETURNS = range(9)
COPY_ROWS = {OWN: 1, HOSTS: 250, QUEUES: 600, LEASES: 1, AUTHORITIES: 8, TRANSIT: 1, CALLED: 100, RETURNS: 400}
"""Rows of a range: about 16 KiB of hosts or queues; few authorities, for their rules may be long."""


def states_of(state: int, rows: int) -> Uint8s:
    """A read-only column with one state in `rows` rows."""
    return np.frombuffer(bytes((state,)) * rows, np.uint8)


def _listed(values: Values) -> Sequence[Any]:
    if isinstance(values, np.ndarray):
        found: Sequence[Any] = values.tolist()
        return found
    return values.list() if isinstance(values, Texts) else values


def robots_cells(authority: Authority, next_at: Instant | None = None, again: Again | None = None) -> Row:
    """An authority as the columns of a ROBOTS fact. next_at, again: replace its own."""
    a = authority
    at = a.next_at if next_at is None else next_at
    later = int(a.again if again is None else again)
    place = (a.slot, a.name, int(a.state), a.expires, at, a.attempts, a.hops, a.status, a.url, a.error)
    return (*place, later, a.fetched, a.failing_since)


def rules_cells(slot: int, queue: int, rules: QueueRules) -> Row:
    """The columns of a QUEUE_RULES fact."""
    delay = -1.0 if rules.delay is None else rules.delay
    return (slot, queue, int(rules.paused), rules.blocked_until, delay, rules.limit)


def _keep(said: dict[int, QueueRules], number: int, rules: QueueRules) -> None:
    """Keeps rules under a number; rules that say nothing are removed."""
    if rules.any():
        said[number] = rules
    else:
        said.pop(number, None)


def lease_columns(columns: tuple[bytes, ...]) -> tuple[Any, ...]:
    """Turns the bytes of `Leases.get` into arrays: found, queues, deadlines, holders, not_before, heads, arena,
    offsets."""
    found, queues, deadlines, holders, not_before, heads, arena, offsets = columns
    return (
        np.frombuffer(found, np.bool_),
        np.frombuffer(queues, np.uint32),
        np.frombuffer(deadlines, np.int64),
        np.frombuffer(holders, np.uint32),
        np.frombuffer(not_before, np.int64),
        np.frombuffer(heads, HEAD),
        arena,
        np.frombuffer(offsets, np.int64),
    )


def _named(hashes: Uint64s, rows: Rows, names: Uint64s) -> bool:
    """Whether the rows have exactly these hashes, in this order."""
    if not len(rows) or len(rows) != len(names) or rows.max() >= len(hashes):
        return False
    return int(np.count_nonzero(hashes[rows.astype(np.intp)] == names)) == len(rows)


def _of_each(states: Uint8s) -> list[int]:
    octets = states.tobytes()
    counts = [0] * 7
    if octets:
        counts[octets[0]] = octets.count(octets[0])
        if counts[octets[0]] < len(octets):
            counts = [octets.count(state) for state in range(7)]
    return counts


def _add(column: npt.NDArray[Any], rows: npt.NDArray[Any], step: int) -> None:
    """Adds (step 1) or subtracts one for each time that a row is named."""
    one = column.dtype.type(1)
    # numpy is fast for indices and numbers of exactly these types.
    places = rows.astype(np.intp, copy=False)
    if step > 0:
        np.add.at(column, places, one)
    else:
        np.subtract.at(column, places, one)


_Found: TypeAlias = tuple[Cards, Callable[[Cards], None]]
"""Cards with the fingerprints asked for, and the function that puts cards of other URLs back in their place."""


def _exactly(heads: Heads, look: Callable[[Heads], Iterable[_Found]]) -> tuple[npt.NDArray[np.bool_], Cards]:
    """Which of these URLs were found, and their cards in the order of the heads.

    The order names one card. A fingerprint does not: another crawl may hold the same URL, or a deleted queue may have
    held it.
    """
    rows = {order: row for row, order in enumerate(heads["order"].tolist())}
    parts: list[Cards] = []
    strangers: list[_Found] = []
    rest = np.arange(len(heads))
    while len(rest):
        doubles: list[npt.NDArray[np.uint64]] = []
        for cards, back in look(heads[rest]):
            mine = np.array([order in rows for order in cards.heads["order"].tolist()], np.bool_)
            if mine.all():
                parts.append(cards)
                continue
            parts.append(cards.filter(mine))
            strangers.append((cards.filter(~mine), back))
            doubles.append(strangers[-1][0].heads["fingerprint"])
        if not doubles:
            break
        found = {order for part in parts for order in part.heads["order"].tolist()}
        missing = np.array([order not in found for order in heads["order"][rest].tolist()], np.bool_)
        rest = rest[missing & np.isin(heads["fingerprint"][rest], np.concatenate(doubles))]
    for cards, back in strangers:
        back(cards)
    cards = Cards.concatenate(parts)
    mask = np.zeros(len(heads), np.bool_)
    places = np.array([rows[order] for order in cards.heads["order"].tolist()], np.intp)
    mask[places] = True
    return mask, cards.take(np.argsort(places))
