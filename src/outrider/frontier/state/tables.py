"""The state of a frontier, changed only by applying facts: hosts and queues in columns, and the parts that own more.

`apply` is the only way in, for a live call and for replay alike; it calls no policy, clock or random source. A live
call passes the cards that it has already (`KnownRows`); replay looks them up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from outrider import kernels
from outrider.clock import Instant, instant
from outrider.errors import DamagedStoreError, OutriderError
from outrider.frontier.format.constant import by_value
from outrider.frontier.format.facts import (
    KINDS,
    Applied,
    Block,
    Fact,
    Row,
    TextColumn,
    Values,
    arrays_of,
    columns_of,
    no_texts,
)
from outrider.frontier.state.authorities import Authorities
from outrider.frontier.state.cold import ColdHosts
from outrider.frontier.state.crawls import Crawls, CrawlState
from outrider.frontier.state.deleted_queues import DeletedQueues
from outrider.frontier.state.errand import Errands
from outrider.frontier.state.host_addresses import HostAddresses
from outrider.frontier.state.hosts import (
    CELLS,
    LIMITED,
    MANY,
    NONE,
    RARE_CELLS,
    RULED,
    SLOWED,
    VOIDED,
    Hosts,
    QueueRules,
    Queues,
    Rows,
    hosts_of_queues,
    shared_rules,
    words_of_crawls,
    words_of_keys,
    words_of_pairs,
)
from outrider.frontier.state.registry import Registry
from outrider.frontier.state.returns_table import ReturnsTable
from outrider.frontier.state.spanning_keys import SpanningKeys
from outrider.frontier.state.transit import Transit
from outrider.frontier.state.url_table import DONE, GONE, QUEUED, WAITING, KnownRows, Uint64s, UrlTable
from outrider.frontier.stores.ledger import Ledger
from outrider.frontier.stores.rulebook import Rulebook, robots_bytes
from outrider.kernels.card_layout import Heads
from outrider.limits import (
    CARD_MEMORY_SHARE,
    MEMORY_BYTES,
    MICROSECONDS,
    OWN_SLOT,
    SEEN_MEMORY_SHARE,
)
from outrider.storage.files import Files
from outrider.storage.record_columns import distinct
from outrider.url import undotted
from outrider.url.keys import key_of_name


class Tables:
    """The whole state. ledger: the records of URLs; cold: the records of hosts on disk; scratch: the files for tails,
    None to keep all in memory; now: about the instant at which it begins; memory_bytes: the limit of memory, which
    is divided among cards of queued URLs, robots rules and the seen-set."""

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
        for_robots = robots_bytes(MEMORY_BYTES if memory_bytes is None else memory_bytes)
        for_cards = for_seen = None
        if memory_bytes is not None:
            share, parts = CARD_MEMORY_SHARE
            for_cards, for_seen = memory_bytes * share // parts, memory_bytes // SEEN_MEMORY_SHARE
        self.fingerprint_key = fingerprint_key
        self.hosts = Hosts()
        self.queues = Queues()
        self.keys = SpanningKeys(self)
        self.words: dict[int, QueueRules] = {}  # rules of whole crawls, and of keys in all crawls
        self.cold = cold if cold is not None else ColdHosts()
        self.cold.empty_file = self.hash_of("")
        self._met = False
        self._hosts_told = np.zeros(0, np.uint32)  # rows of the last HOST facts: in a checkpoint their clocks are next
        # what was interrupted and left a host half recalled or a slot half read, perhaps in a call that only reads; why
        self.torn: tuple[str, BaseException] | None = None
        self.crawls = Crawls()
        self.urls = UrlTable(self, ledger, scratch=scratch, began=now, bytes_max=for_cards, seen_bytes_max=for_seen)
        self.robots = Authorities(self, Rulebook(scratch, bytes_max=for_robots))
        self.addresses = HostAddresses(self)
        self.errands = Errands(self)
        self.registry = Registry()
        self.transit = Transit()
        self.returns = ReturnsTable()
        self.leaving = DeletedQueues(self)
        self.token = 0
        self.turn = 0  # counts draws from hosts with several queues, whose queues alternate
        self.now: Instant = 0
        self.orders_replayed = 0  # frames of the log with orders about crawls and queues that the recovery applied
        self.changed: list[Rows] = []  # hosts that `Turns.touch` must handle again
        self.begun: list[Rows] = []  # hosts with new leases that the draw already removed from ring and timetable
        self._apply: dict[int, tuple[bool, Callable[..., None]]] = {
            kind.fact: (kind.applied is Applied.BY_ROW, self._owner_of(kind.fact))
            for kind in KINDS.values()
            if kind.applied is not Applied.NOWHERE
        }

    # -- what budgets count -------------------------------------------------------------------------------------------

    def answered_by(self, hosts: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """How many pages each host has answered."""
        return self.hosts.answered[hosts.astype(np.intp)].astype(np.int64)

    def tallied(self, name: str) -> int:
        """The tally with a name."""
        return self.registry.tallies.get(name, 0)

    def host_names(self, hosts: npt.NDArray[Any]) -> list[str]:
        """The names of hosts."""
        return list(map(self.hosts.name, hosts.tolist()))

    def leased_from(self) -> Rows:
        """The host of each open lease."""
        tokens = np.frombuffer(self.urls.leases.tokens(), np.uint64)
        found: Rows = self.queues.host[self.urls.by_token(tokens, bodies=False).queues]
        return found

    def leases_open(self) -> int:
        """How many leases are open."""
        return len(self.urls.leases)

    def leases_at(self, host: int) -> int:
        """How many leases of a host are open, errands included: its open requests, and leases whose request is over."""
        return int(self.hosts.in_flight[host]) + self.hosts.rested.at(host)

    def queues_in(self, crawl: int) -> tuple[int, int]:
        """How many queues a crawl has, in memory or cold, and how many of them have URLs that are not completed. The
        cost does not depend on their number."""
        here, with_open = self.queues.of_crawls.get(crawl, (0, 0))
        return here + self.cold.queues_in(crawl), with_open + self.cold.queues_with_open(crawl)

    # -- applying facts -----------------------------------------------------------------------------------------------

    def apply(self, kind: int, values: Sequence[Values], hand: KnownRows | None = None) -> None:
        """Apply the facts of one block. Raises DamagedStoreError when they name something that does not exist."""
        known = self._apply.get(kind)
        if known is None:
            return
        by_row, owner = known
        try:
            if by_row:
                for row in zip(*map(_listed, values), strict=True):
                    owner(*row)
            elif hand is None:
                owner(*arrays_of(kind, values))
            else:
                owner(*values, hand=hand)  # arrays already: a live call decides in columns
        except (IndexError, KeyError) as error:
            raise DamagedStoreError(
                f"a fact of kind {Fact(kind).name.lower()} names something that does not exist ({error})"
            ) from error

    def _owner_of(self, fact: Fact) -> Callable[..., None]:
        """The method that applies facts of a kind, `_<name of the kind>`, of the part that owns them."""
        name = f"_{fact.name.lower()}"
        parts = (self.urls, self.robots, self.addresses, self.errands)
        owners = (
            *parts,
            self.registry,
            self.crawls,
            self.transit,
            self.returns,
            self.urls.payments,
            self.urls.signals,
            self,
        )
        found: Callable[..., None] = next(getattr(owner, name) for owner in owners if hasattr(owner, name))
        return found

    def _crawl_rules(self, slot: int, row: int, state: int) -> None:
        if self.crawls.gone[row]:
            return
        self.crawls.states[row] = state
        queues = np.flatnonzero(self.queues.crawl[: self.queues.count] == row).astype(np.uint32)
        self.flag(queues)
        if state == CrawlState.DELETED:
            queued, waiting, done, gone = self.cold.let_go(row)
            if self.urls.unread is None:  # else the calendars have none of them
                self.urls.void_waiting += waiting
            for urls, count in ((QUEUED, queued), (WAITING, waiting), (DONE, done), (GONE, gone)):
                self.urls.count(row, urls, -count)
            self.urls.seen.drop(row)
            self.words.pop(int(words_of_crawls(np.array([row], np.uint32))[0]), None)
            heads = self.urls.open_leases().cards.heads
            self.urls.uncount(row, queues, int(((heads["crawl"] == row) & ~self.urls.void(heads)).sum()))
            self.urls.of_crawls.pop(row, None)
            self.crawls.delete(row)
            self.leaving.stalled += queues.tolist()
            self.errands.called.drop_crawl(row)
        self.changed.append(self.queues.host[queues])

    def forget_changed(self) -> None:
        """Nothing waits to be handled by `Turns` any more."""
        self.changed.clear()
        self.begun.clear()

    def forget_holders(self) -> None:
        """Drops the names of workers that have no lease."""
        held = self.urls.open_leases().holders
        self.registry.keep_holders({0, *distinct(held), *(errand.holder for errand in self.errands.open.values())})

    def _token(self, slot: int, token: int, order: int) -> None:
        self.token = max(self.token, token)
        self.urls.order = max(self.urls.order, order)

    def _rested(self, slots: Rows, tokens: Uint64s, ended: Values) -> None:
        """The requests of these leases are over. A token that is not open any more changes nothing."""
        self.urls.rest(tokens, ended)
        for token, at in zip(tokens.tolist(), ended.tolist(), strict=True) if self.errands.open else ():
            errand = self.errands.open.get(token)
            if errand is not None:
                self.errands.rest(errand, at)

    # -- hosts and queues ---------------------------------------------------------------------------------------------

    def _host(
        self, slots: Rows, hashes: Uint64s, names: TextColumn | Sequence[str], hand: KnownRows | None = None
    ) -> None:
        absent = hand is not None and hand.first == self.hosts.made
        if not absent:
            self.recall(hashes)
        self._hosts_told = self.hosts.add(
            hashes, slots, names if isinstance(names, TextColumn) else TextColumn.of(names), absent=absent
        )

    def rows_of_hosts(self, hashes: Uint64s, expected: Rows | None = None) -> Rows:
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

    def rows_of_queues(self, hashes: Uint64s) -> Rows:
        """As `rows_of_hosts`, for queues."""
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
        return rows if not (rows == NONE).any() else self.rows_of_queues(hashes)

    # -- hosts that are cold -------------------------------------------------------------------------------------------

    def recall(self, hosts: Uint64s) -> bool:
        """Makes rows again for the cold hosts among these hashes. Returns whether there were any. Raises
        DamagedStoreError."""
        if not len(self.cold):
            return False
        before = self.hosts.made
        try:
            self.cold.recall(self, np.ascontiguousarray(hosts))
        except OutriderError as error:
            if self.hosts.made > before:  # the disk failed after the host had its row
                self.tear("the recall of a host", error)
            raise
        except BaseException as error:
            self.tear("the recall of a host", error)
            raise
        return self.hosts.made > before

    def tear(self, what: str, error: BaseException) -> None:
        """Notes that this was interrupted halfway by an error: no call may be made any more."""
        self.torn = self.torn or (what, error)

    def kept_in_runs(self) -> list[Ledger]:
        """The ledgers whose runs a checkpoint lists: of URLs, and of cold hosts."""
        return [self.urls.ledger] if self.cold.ledger is None else [self.urls.ledger, self.cold.ledger]

    def being_copied(self, *, copied: bool) -> None:
        """While a round copies rows, no row is used again and no host goes cold."""
        self.hosts.reuses = self.queues.reuses = not copied

    def meet_cold(self) -> None:
        """Call it after the hosts of a checkpoint: every host with a record and without a row is cold. Raises
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
        rows = visited[later].astype(np.uint32)
        hosts.rest_until[rows] = floor[later]
        self.changed.append(rows)
        self.keys.rest(rows)

    def _host_cells(
        self,
        slots: Rows,
        hashes: Uint64s,
        *cells: Values,
        hand: KnownRows | None = None,
    ) -> None:
        rows = self.rows_of_hosts(hashes, self._hosts_told) if hand is None or hand.rows is None else hand.rows
        hosts = self.hosts
        places = rows.astype(np.intp)
        for name, values in zip(CELLS, cells, strict=True):
            column = getattr(hosts, name)
            # Few hosts have a rare cell: zeros are not written over zeros, so the untouched column takes no memory.
            if name not in RARE_CELLS or np.count_nonzero(values) or np.count_nonzero(column[places]):
                column[places] = values
        self.changed.append(rows)
        self.keys.rest(rows)

    def _queue(
        self,
        slots: Rows,
        hashes: Uint64s,
        hosts: Uint64s,
        crawls: Rows,
        keys: TextColumn | Sequence[str],
        hand: KnownRows | None = None,
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
        homes = self.rows_of_hosts(hosts, expected)[fresh]
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
                        self.leaving.waiting.append(int(first[home]))  # it stayed as long as the host had no other
                    self.queues.after[row] = int(first[home]) + 1
                    if not self.hosts.flags[home] & MANY and self.hosts.ended[home]:
                        # A queue that was alone has no noted turns. It had some, and the new queue had none.
                        self.turn += 1
                        self.queues.served[first[home]] = self.turn
                    self.hosts.flags[home] |= MANY
                first[home] = row
        if not isinstance(keys, TextColumn) or len(keys.octets):
            told = keys.list() if isinstance(keys, TextColumn) else keys
            named = ((row, told[place]) for row, place in zip(rows.tolist(), fresh.tolist(), strict=True))
            self.queues.keys |= {row: key for row, key in named if key}
        self.keys.enter(rows)
        if any(self.crawls.states[crawl] for crawl, _ in by_value(crawls)):
            self.flag(rows)

    def queues_of(self, host: int) -> Iterator[int]:
        """The queues of a host, the youngest first."""
        row = int(self.hosts.first_queue[host])
        row = row if row != NONE else -1
        while row >= 0:
            yield row
            row = int(self.queues.after[row]) - 1

    def key_of(self, queue: int) -> str:
        """The key of a queue by its row."""
        key = self.queues.keys.get(queue)
        if key:
            return key
        name = self.hosts.name(int(self.queues.host[queue]))
        return key_of_name(name) or name

    def hash_of(self, text: str) -> int:
        """The keyed hash of a name or key."""
        return int.from_bytes(kernels.fingerprints([text], self.fingerprint_key), "little")

    def hashes_of(self, texts: Sequence[str]) -> Uint64s:
        """As `hash_of`, of each of some texts."""
        return np.frombuffer(kernels.fingerprints(list(texts), self.fingerprint_key), np.uint64)

    def content_hashes(self, digests: Sequence[bytes]) -> list[int]:
        """The hashes by which contents are known."""
        if not digests:
            return []
        texts = [digest.decode("latin-1") for digest in digests]
        found = np.frombuffer(kernels.fingerprints(texts, self.fingerprint_key), np.uint64)
        return np.maximum(found, 1).tolist()  # type: ignore[no-any-return]

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

    def host_row(self, name: str) -> int:
        """The row of a host by name, NONE where it is not known; recalls a cold host."""
        number = self.hash_of(name)
        row = self.hosts.row(number)
        if row == NONE and self.recall(np.array([number], np.uint64)):
            row = self.hosts.row(number)
        return row

    def _queue_rules(
        self, slots: Rows, queues: Uint64s, paused: Values, blocked: Values, delays: Values, limits: Values
    ) -> None:
        of_queues = slots != OWN_SLOT
        rows = np.full(len(slots), NONE, np.uint32)
        if of_queues.any():
            rows[of_queues] = self.rows_of_queues(queues[of_queues])
        columns = (rows, queues, paused, blocked, delays, limits)
        for row, number, pause, until, delay, limit in zip(*(column.tolist() for column in columns), strict=True):
            rules = shared_rules(bool(pause), until, None if delay < 0 else delay, limit)
            if row == NONE:  # rules of a crawl, or of a key in all crawls: they hold for later queues, too
                _keep(self.words, number, rules)
            else:
                _keep(self.queues.rules, row, rules)
        if of_queues.any():
            self.flag(rows[of_queues])
            self.changed.append(self.queues.host[rows[of_queues]])

    def rules_of_new(self, crawls: Rows, keys: Sequence[str]) -> list[QueueRules]:
        """The rules of queues that are made now. A queue of its key in its crawl has every word about both, since
        operators rule the queues of a key together; else the words of the crawl and of the key in all crawls count."""
        if not (self.queues.rules or self.words):
            return [QueueRules()] * len(keys)
        hashes = self.hashes_of(keys)
        of_keys, of_pairs, of_crawls = (
            numbers.tolist()
            for numbers in (words_of_keys(hashes), words_of_pairs(hashes, crawls), words_of_crawls(crawls))
        )
        known = self.keys.may_have(keys, hashes)
        found: list[QueueRules] = []
        for place, (key, crawl) in enumerate(zip(keys, crawls.tolist(), strict=True)):
            other = next(self.keys.queues_with(key, crawl), None) if known[place] else None
            if other is not None:
                found.append(self.queues.rules.get(other) or QueueRules())
                continue
            ahead = self.words.get(of_pairs[place])
            of_crawl = self.words.get(of_crawls[place])
            if ahead is not None and ahead.delay is not None:
                of_crawl = None  # a delay of this very key counts, and not the longer one of a whole crawl
            said = [rules for rules in (ahead, self.words.get(of_keys[place]), of_crawl) if rules is not None]
            found.append(reduce(QueueRules.and_also, said) if said else QueueRules())
        return found

    def words_ahead(self, keys: Sequence[str], crawls: Rows) -> list[int]:
        """The numbers of the rules of keys in their crawls, before they have queues there."""
        found: list[int] = words_of_pairs(self.hashes_of(keys), crawls).tolist()
        return found

    def flag(self, queues: Rows) -> None:
        """Marks the hosts of these queues as RULED, SLOWED and LIMITED while one of their queues or crawls has such
        rules, and clears the marks else."""
        for host in np.unique(self.queues.host[queues]).tolist():
            flags = int(self.hosts.flags[host]) & ~(RULED | SLOWED | LIMITED)
            for queue in self.queues_of(host):
                rules = self.queues.rules.get(queue)
                if self.crawls.states[int(self.queues.crawl[queue])] or (rules is not None and rules.decide_turns()):
                    flags |= RULED
                if rules is not None and rules.delay is not None:
                    flags |= SLOWED
                if rules is not None and rules.limit:
                    flags |= LIMITED
            self.hosts.flags[host] = flags

    def _void(self, slot: int, queue: int, order: int) -> None:
        row = int(self.rows_of_queues(np.array([queue], np.uint64))[0])
        self._forget(row, order)

    def _forget(self, queue: int, order: int) -> None:
        """Makes the cards void that a queue accepted before this order: they leave the counts, and lie on where they
        are."""
        queues = self.queues
        if queues.voids.get(queue, 0) >= order:
            return
        leases = self.urls.open_leases()
        rows, heads = leases.queues, leases.cards.heads
        open_ones = (rows == queue) & (heads["order"] >= queues.voids.get(queue, 0)) & (heads["order"] < order)
        queues.voids[queue] = order
        self.hosts.flags[int(queues.host[queue])] |= VOIDED
        one = np.array([queue], np.uint32)
        self.urls.uncount(int(queues.crawl[queue]), one, int(open_ones.sum()))
        self.urls.drop_cards(queue)
        self.changed.append(queues.host[one])

    # -- what a checkpoint copies --------------------------------------------------------------------------------------

    def sections(self) -> list[tuple[int, int]]:
        """The sections of a checkpoint beside the ledger: (section, rows), in the order of loading."""
        return [
            (OWN, 1),
            (HOSTS, self.hosts.count),
            (QUEUES, self.queues.count),
            (LEASES, 1),
            (ROBOTS_FILES, self.robots.rulebook.places()),
            (AUTHORITIES, len(self.robots.listed)),
            (CALLED, self.errands.called.places()),
            (TRANSIT, 1),
            (RETURNS, self.returns.places()),
            (SIGNALS, self.urls.signals.places()),
            (PAYMENTS, self.urls.payments.places()),
        ]

    def copy(self, section: int, first: int, last: int) -> list[Block]:
        """The facts that rebuild the rows `first` … `last - 1` of a section as they are now."""
        of_parts: dict[int, Callable[[int, int], list[Block]]] = {
            HOSTS: self._hosts_copied,
            QUEUES: self._queues_copied,
            AUTHORITIES: self.robots.blocks,
            ROBOTS_FILES: self.robots.rulebook.blocks,
            CALLED: self.errands.blocks,
            RETURNS: self.returns.blocks,
            SIGNALS: self.urls.signals.blocks,
            PAYMENTS: self.urls.payments.blocks,
        }
        if section in of_parts:
            return of_parts[section](first, last)
        whole = {OWN: self._own_facts, LEASES: self.urls.blocks, TRANSIT: self.transit.blocks}
        return whole[section]()

    def _hosts_copied(self, first: int, last: int) -> list[Block]:
        hosts = self.hosts
        rows = first + np.flatnonzero(hosts.there[first:last])
        if not len(rows):
            return []
        names: Block = (Fact.HOST, [hosts.slot[rows], hosts.hash[rows], hosts.names(rows)])
        return [names, self.host_cells(rows), *self.addresses.blocks(first, last)]

    def _queues_copied(self, first: int, last: int) -> list[Block]:
        hosts, queues = self.hosts, self.queues
        rows = first + np.flatnonzero(queues.there(np.arange(first, last)))
        if not len(rows):
            return []
        slots, hashes = hosts.slot[queues.host[rows]], queues.hash[rows]
        homes = hosts.hash[queues.host[rows]]
        keys: TextColumn | list[str] = no_texts(len(rows))
        if queues.keys:
            keys = [queues.keys.get(row, "") for row in rows.tolist()]
        found: list[Block] = [(Fact.QUEUE, [slots, hashes, homes, queues.crawl[rows], keys])]
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
            (Fact.TOKEN, [(own, self.token, self.urls.order)]),
        ]
        if self.cold.floor[0]:
            rows.append((Fact.COLD_REST, [(own, *self.cold.floor)]))
        return [(fact, columns_of(some)) for fact, some in rows if some]

    def close(self) -> None:
        """Closes and removes the files of tails."""
        self.urls.close()
        self.robots.rulebook.close()


OWN, HOSTS, QUEUES, LEASES, AUTHORITIES, TRANSIT, RUNS, CALLED, RETURNS, ROBOTS_FILES, SIGNALS, PAYMENTS = range(12)
COPY_ROWS = {
    OWN: 1,
    HOSTS: 250,
    QUEUES: 600,
    LEASES: 1,
    AUTHORITIES: 100,
    TRANSIT: 1,
    CALLED: 100,
    RETURNS: 400,
    SIGNALS: 250,
    PAYMENTS: 100,
    ROBOTS_FILES: 4,
}
"""Rows of a range: about 16 KiB of hosts or queues; few robots.txt files, for they may be long."""


def _listed(values: Values) -> Sequence[Any]:
    if isinstance(values, np.ndarray):
        found: Sequence[Any] = values.tolist()
        return found
    return values.list() if isinstance(values, TextColumn) else values


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


def _named(hashes: Uint64s, rows: Rows, names: Uint64s) -> bool:
    """Whether the rows have exactly these hashes, in this order."""
    if not len(rows) or len(rows) != len(names) or rows.max() >= len(hashes):
        return False
    return int(np.count_nonzero(hashes[rows.astype(np.intp)] == names)) == len(rows)
