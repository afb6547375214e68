"""Salvage makes tables from a damaged store. It skips facts that name something lost, makes names again that
follow from URLs, and derives everything else as at any opening.

Facts change only hosts, queues, authorities and the ledger. After that one scan of the ledger produces the places of
URLs, the counts and the seen-set. So a loss can make the state older, but not untrue.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from outrider import kernels
from outrider.clock import Instant
from outrider.errors import DamagedStoreError
from outrider.frontier.format.card_columns import Cards
from outrider.frontier.format.facts import KINDS, UNFIT, Fact, TextColumn, Values, columns_of, decode, instant_of
from outrider.frontier.priority import class_in
from outrider.frontier.state.hosts import NONE, queue_hashes
from outrider.frontier.state.tables import HOSTS, LEASES, OWN, RUNS, Tables
from outrider.frontier.state.url_table import DONE, GONE
from outrider.journey import CrawlOrder, Unique
from outrider.kernels.card_layout import Heads
from outrider.limits import LOST_URLS_NAMED_MAX, OWN_SLOT, RUN_BODY_BYTES_MAX
from outrider.url import clock_host, host_of

_LEASE = tuple(column.name for column in KINDS[Fact.LEASE].columns)
_LOST_NAME = "lost"
"""The name of crawls, holders, errors and keys whose names are lost; a number follows it."""


@dataclass(slots=True)
class Salvaged:
    """The things that salvage left out, and those that it made again."""

    facts: dict[str, int] = field(default_factory=dict)
    """How many facts name something lost, by kind."""
    urls: int = 0
    """How many URLs have a known state and a lost text."""
    fingerprints: list[str] = field(default_factory=list)
    """Crawl, slot and fingerprint of the first of these URLs."""
    hosts_made: int = 0
    queues_made: int = 0
    names_made: list[str] = field(default_factory=list)
    """Made-up names of crawls and holders, and classes of errors, for lost ones."""
    own_lost: bool = False
    """Whether the range of values without a host is lost: totals, seeds of the scope, names of crawls, request ids."""
    leases_ended: int = 0
    """How many leases may have ended or not: their URLs are queued again."""

    def leave_out(self, kind: Fact, count: int = 1) -> None:
        """Counts facts of a kind that name something lost."""
        if count:
            self.facts[kind.name.lower()] = self.facts.get(kind.name.lower(), 0) + count


class Salvage:
    """One attempt: pass ranges, then payloads of frames in the order of their LSNs, then call `finish`."""

    def __init__(self, tables: Tables) -> None:
        self.found = Salvaged()
        self._tables = tables
        self._leases: dict[int, dict[str, int]] = {}
        self._rested: dict[int, tuple[Any, ...]] = {}  # by token: the end of the request of a lease
        self._lost: set[tuple[int, int, int]] = set()
        self._own = False
        self._lists = False  # true while `take` reads a checkpoint's list of crawls

    def take_range(self, section: int, payload: bytes) -> str:
        """Adds a whole range of the checkpoint; ranges are in order. Returns why it cannot be used, or ""."""
        self._own = self._own or section == OWN
        if section not in (OWN, LEASES, HOSTS):
            self.meet_cold()
        if section == RUNS:
            return ""
        self._lists = section == OWN
        why = self.take(payload)
        self._lists = False
        return why

    def meet_cold(self) -> None:
        """Call it after the last range of hosts: a host with a record that is in no range is cold."""
        self._tables.meet_cold()
        self._crawls(self._tables.cold.crawls)

    def take(self, payload: bytes) -> str:
        """Applies the facts of one payload, except facts that name something lost. Returns why they cannot be applied,
        "" when they can. Raises ForeignStoreError."""
        try:
            # The whole payload is decoded before any fact is applied: a card with a wrong length makes garbage of the
            # following bytes.
            blocks = list(decode(payload))
            for kind, values in blocks:
                if kind == Fact.CARD and (why := values[1].misfit(RUN_BODY_BYTES_MAX)):
                    return str(why)
            self._tables.now = max(self._tables.now, instant_of(payload))
            for kind, values in blocks:
                self._block(Fact(kind), values)
        except DamagedStoreError as error:
            return error.facts
        except UNFIT as error:
            return f"{type(error).__name__}: {error}"
        return ""

    def finish(self, *, epoch: int, rest_until: Instant, behind_checkpoint: bool) -> None:
        """Makes the hosts and queues that URLs name, derives the rest, and lets every host rest: a lost frame may have
        been a visit.

        epoch: the highest one of any frame or segment, so that tokens of the next opening are above those of lost
        frames. rest_until: no host is ready before. behind_checkpoint: whether the log begins later than the store.
        """
        tables = self._tables
        self.meet_cold()
        tables.recall_all()  # their records may be out of date, and the ledger counts their URLs anew
        self.found.leave_out(Fact.ROBOTS_FILE, tables.robots.forget_lost())
        tables.robots.settle()
        self._complete()
        self.found.own_lost = behind_checkpoint and not self._own
        tables.urls.restore()
        self._open_leases()
        number, *more = tables.registry.opening
        tables.registry.opening = (max(number, epoch) + 1, *more)  # type: ignore[assignment]  # a starred rest has no length
        hosts = tables.hosts
        column = hosts.rest_until[: hosts.count]
        np.maximum(column, rest_until, out=column)
        tables.changed.append(np.arange(hosts.count, dtype=np.uint32))

    # -- one block --------------------------------------------------------------------------------------------------

    def _block(self, kind: Fact, values: Sequence[Values]) -> None:
        tables = self._tables
        if kind == Fact.CARD:
            tokens, cards = values
            self._end(tokens)
            tables.urls.ledger.append(cards)
            tables.urls.order = max(tables.urls.order, int(cards.heads["order"].max()) + 1)
        elif kind == Fact.HEAD:
            tokens, heads = values
            self._end(tokens)
            self._heads(heads)
        elif kind == Fact.LEASE:
            for row in _rows(values):
                lease = dict(zip(_LEASE, row, strict=True))
                self._leases[lease["token"]] = lease
                tables.token = max(tables.token, lease["token"])
        elif kind == Fact.EXTEND:
            for _, token, deadline in _rows(values):
                if token in self._leases:
                    self._leases[token]["deadline"] = deadline
        elif kind == Fact.RESTED:
            tables.apply(kind, values)  # errands are open already, pages are not
            self._rested |= {row[1]: row for row in _rows(values)}
        elif kind in (Fact.HOST_CELLS, Fact.QUEUE):
            self._columns(kind, values, names=1 if kind == Fact.HOST_CELLS else 2)
        elif kind == Fact.HOST:
            tables.apply(kind, values)
        else:
            for row in _rows(values):
                self._row(kind, row)

    def _end(self, tokens: Any) -> None:
        for token in tokens[tokens != 0].tolist():
            self._leases.pop(token, None)

    def _heads(self, heads: Heads) -> None:
        """Applies new heads of known URLs; the other URLs have lost their text."""
        here, _ = self._tables.urls.ledger.find(
            np.ascontiguousarray(heads["crawl"]),
            np.ascontiguousarray(heads["slot"]),
            np.ascontiguousarray(heads["fingerprint"]),
        )
        mask = np.asarray(here, np.bool_)
        if mask.any():
            self._tables.urls.ledger.append_heads(heads if mask.all() else heads[mask])
        if not mask.all():
            self._lose(heads[~mask])

    def _lose(self, heads: Heads) -> None:
        for name in zip(heads["crawl"].tolist(), heads["slot"].tolist(), heads["fingerprint"].tolist(), strict=True):
            if name in self._lost:
                continue
            self._lost.add(name)
            self.found.urls += 1
            if len(self.found.fingerprints) < LOST_URLS_NAMED_MAX:
                crawl, slot, fingerprint = name
                self.found.fingerprints.append(f"{crawl}.{slot}.{fingerprint:016x}")

    def _columns(self, kind: Fact, values: Sequence[Values], *, names: int) -> None:
        """Adds facts in columns whose column `names` contains hashes of hosts."""
        hosts = np.ascontiguousarray(values[names])
        self._tables.recall(hosts)
        mask = self._tables.hosts.find(hosts) != NONE
        self.found.leave_out(kind, int((~mask).sum()))
        if not mask.any():
            return
        places = np.flatnonzero(mask)
        self._tables.apply(kind, [_column_places(column, places) for column in values])

    def _row(self, kind: Fact, row: tuple[Any, ...]) -> None:
        tables = self._tables
        if kind in (Fact.CRAWL, Fact.CRAWL_RULES, Fact.CRAWL_UNIQUE, Fact.CRAWL_ORDER):
            if not self._lists:
                self._crawls(row[1] + (kind != Fact.CRAWL))
        elif kind == Fact.ERROR:
            self._errors(row[1])
        elif kind in (Fact.ROBOTS, Fact.RULES, Fact.ERRAND) and row[1] not in tables.robots.by_name:
            self._row(Fact.AUTHORITY, row[:2])
        try:
            tables.apply(kind, columns_of([row]))
        except DamagedStoreError:
            # Each of these handlers looks names up before it changes anything, so a failed one has changed nothing.
            self.found.leave_out(kind)

    def _crawls(self, count: int) -> None:
        """Makes up names for crawls below row `count` whose facts are lost. A checkpoint's list of crawls is complete:
        a row missing in it was deleted."""
        tables = self._tables
        for row in range(tables.crawls.next_row, count):
            name = "default" if row == 0 else self._named("crawl", row)
            tables.apply(Fact.CRAWL, columns_of([(OWN_SLOT, row, name, 0)]))

    def _named(self, what: str, number: int) -> str:
        name = f"{_LOST_NAME}-{number}"
        self.found.names_made.append(f"{what} {name}")
        return name

    def _errors(self, count: int) -> None:
        """Makes up names for classes of errors below a number."""
        tables = self._tables
        for number in range(len(tables.registry.errors), count):
            tables.apply(Fact.ERROR, columns_of([(OWN_SLOT, number, self._named("error", number))]))

    # -- what can be told from what is there --------------------------------------------------------------------------

    def _complete(self) -> None:
        """Makes the hosts and queues that URLs of the ledger name and no fact has made; removes URLs without a text."""
        tables = self._tables
        gone: list[Heads] = []
        for cards in tables.urls.ledger.scan():
            heads = cards.heads
            empty = heads["url_bytes"] == 0
            if empty.any():
                self._lose(heads[empty])
                gone.append(heads[empty].copy())
                cards = cards.filter(~empty)
                heads = cards.heads
            if not len(heads):
                continue
            self._crawls(int(heads["crawl"].max()) + 1)
            self._errors(int(heads["error"].max()) + 1)
            self._find_callers(cards)
            self._find_orders(cards)
            unknown = tables.queues.find(np.ascontiguousarray(heads["queue"])) == NONE
            if unknown.any():
                self._make(cards.filter(unknown))
        for heads in gone:
            heads["state"] = 0
            tables.urls.ledger.append_heads(heads)

    def _find_orders(self, cards: Cards) -> None:
        """Finds crawls with an exact order whose fact is lost: their cards have it as a class."""
        for order in (CrawlOrder.EXACT, CrawlOrder.LIFO):
            crawls = cards.heads["crawl"][cards.heads["klass"] == class_in(order, 0)]
            for row in set(crawls.tolist()) - self._tables.crawls.orders.keys():
                self._tables.apply(Fact.CRAWL_ORDER, columns_of([(OWN_SLOT, row, order.value)]))

    def _find_callers(self, cards: Cards) -> None:
        """Finds crawls by unique keys whose fact is lost: their fingerprints are not those of URLs."""
        tables, heads = self._tables, cards.heads
        starts = cards.offsets[:-1]
        spans = (cards.arena, starts, starts + heads["url_bytes"], tables.fingerprint_key)
        others = np.frombuffer(kernels.hash_spans(*spans), np.uint64) != heads["fingerprint"]
        for row in set(heads["crawl"][others].tolist()) - tables.crawls.callers:
            tables.apply(Fact.CRAWL_UNIQUE, columns_of([(OWN_SLOT, row, Unique.CALLER.value)]))

    def _make(self, cards: Cards) -> None:
        tables = self._tables
        heads = cards.heads
        written = [host_of(url) for url in cards.urls()]
        hosts = np.frombuffer(kernels.fingerprints(written, tables.fingerprint_key), np.uint64)
        # A store of an earlier version may have a queue for the spelling with a dot.
        kept = queue_hashes(hosts.copy(), np.ascontiguousarray(heads["crawl"])) == heads["queue"]
        names = [(host_of if keep else clock_host)(url) for url, keep in zip(cards.urls(), kept.tolist(), strict=True)]
        hosts = np.frombuffer(kernels.fingerprints(names, tables.fingerprint_key), np.uint64)
        known = tables.hosts.count
        tables.apply(Fact.HOST, [heads["slot"].copy(), hosts.copy(), names])
        self.found.hosts_made += tables.hosts.count - known
        usual = queue_hashes(hosts.copy(), np.ascontiguousarray(heads["crawl"]))
        _, first = np.unique(heads["queue"], return_index=True)
        keys = [
            "" if int(usual[row]) == int(heads["queue"][row]) else f"{_LOST_NAME}-{int(heads['queue'][row]):016x}"
            for row in first.tolist()
        ]
        columns = [heads["slot"][first], heads["queue"][first], hosts[first], heads["crawl"][first]]
        tables.apply(Fact.QUEUE, [*(np.ascontiguousarray(column) for column in columns), keys])
        self.found.queues_made += len(first)

    def _open_leases(self) -> None:
        """Opens leases that did not end, where the URL is there and not finished; the youngest one per URL."""
        tables = self._tables
        youngest: dict[tuple[int, int], int] = {}
        for token, lease in self._leases.items():
            name = (lease["queue"], lease["fingerprint"])
            youngest[name] = max(youngest.get(name, 0), token)
        for token in sorted(youngest.values()):
            if self._may_open(self._leases[token]):
                tables.apply(Fact.LEASE, columns_of([tuple(self._leases[token].values())]))
            else:
                self.found.leases_ended += 1
        self.found.leases_ended += len(self._leases) - len(youngest)
        if self._rested:
            tables.apply(Fact.RESTED, columns_of(list(self._rested.values())))

    def _may_open(self, lease: dict[str, int]) -> bool:
        tables = self._tables
        queue = int(tables.queues.find(np.array([lease["queue"]], np.uint64))[0])
        if queue == NONE or lease["holder"] not in tables.registry.holders:
            return False
        here, cards = tables.urls.find([int(tables.queues.crawl[queue])], [lease["slot"]], [lease["fingerprint"]])
        if not here[0]:
            return False
        head = cards.heads[0]
        return int(head["order"]) == lease["order"] and int(head["state"]) not in (DONE, GONE)


def _column_places(column: Values, places: Any) -> Values:
    if isinstance(column, np.ndarray):
        return column[places]
    return column.take(places) if isinstance(column, TextColumn) else [column[place] for place in places.tolist()]


def _rows(values: Sequence[Values]) -> Iterable[tuple[Any, ...]]:
    return zip(*(column.tolist() if isinstance(column, np.ndarray) else column for column in values), strict=True)


def names_of_runs(ranges: Iterable[tuple[int, bytes]]) -> list[str] | None:
    """The runs that a checkpoint lists, from its (section, payload); None when that list is lost."""
    names: list[str] | None = None
    for section, payload in ranges:
        if section == RUNS:
            for _, values in decode(payload):
                names = [*(names or []), *values[1]]
    return names


def empty_payload(now: Instant) -> bytes:
    """The payload of a frame without facts."""
    return now.to_bytes(8, "little", signed=True)
