"""A draft: the facts that a call has decided and not logged or applied yet.

If a call raises an error, its draft is dropped and the tables stay unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, fields
from itertools import count, repeat
from operator import attrgetter
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from outrider.clock import Instant
from outrider.errors import SettingsError
from outrider.frontier.format.card_columns import Cards
from outrider.frontier.format.card_records import CardRecord, packed
from outrider.frontier.format.facts import LINES_AFTER, PLACES, STREAMS, Block, Fact, HostCells, Row, columns_of
from outrider.frontier.format.page_lines import all_completed, completed, refusal
from outrider.frontier.policy.lives import check_moves
from outrider.frontier.policy.returns import Returns
from outrider.frontier.state.authorities import Authority
from outrider.frontier.state.hosts import CELLS, RARE_CELLS, Rows
from outrider.frontier.state.tables import Tables
from outrider.frontier.state.url_table import KnownRows
from outrider.journey import CrawlOrder, Line, Unique, Word
from outrider.limits import ERROR_CLASSES_KEPT_MAX, ERROR_CLASSES_MAX, HOLDERS_NAMED_MAX, OWN_SLOT, TALLY_MAX
from outrider.uses import NOTHING_SAID, Preferences

Tokens = npt.NDArray[np.uint64]
_CELLS_OF_RETURNS = tuple(attrgetter(field.name) for field in fields(Returns))
_Part: TypeAlias = tuple[Cards, Tokens, npt.NDArray[np.uint8], Rows | None]
"""Cards, the tokens of the leases that end, the states that the cards leave, the rows of their queues."""


@dataclass(frozen=True, slots=True)
class CrawlRules:
    """The rules that a crawl has from its beginning."""

    unique: Unique = Unique.URL
    order: CrawlOrder = CrawlOrder.CLASSES


class Clock(HostCells[int, float]):
    """The politeness cells of one host as this call leaves them."""

    __slots__ = tuple(CELLS)

    def __init__(self, cells: Iterable[tuple[str, Any]]) -> None:
        for name, value in cells:
            setattr(self, name, value)

    def rest_at_least(self, until: Instant) -> None:
        """Lets the host rest until an instant, or longer if its clock says so already."""
        self.rest_until = max(self.rest_until, until)


class Draft:
    """The facts of one call, by kind. Rare kinds are rows; cards and clocks may also be columns. puts: it has records
    of a caller, which may move a URL to any state; deletes: it deletes single URLs."""

    puts = deletes = False

    def __init__(self, tables: Tables, now: Instant, *, keeps_lines: bool = False) -> None:
        self.now = now
        self.rows: dict[Fact, list[Row]] = {}
        self.columns: dict[Fact, list[tuple[list[Any], KnownRows | None]]] = {}
        self.lines: list[Line] = []
        self.order = tables.urls.order
        self.known: list[npt.NDArray[np.uint64]] = []  # marks of URLs that `Recent` notes after applying
        # removed from their queues, or from any places if the queue is None: they return if the log refuses the frame
        self.drawn: list[tuple[Rows | None, Cards]] = []
        self.barren: set[int] = set()  # rows of new crawls without a URL
        self._crawls: dict[
            str, tuple[int, CrawlRules | None]
        ] = {}  # rows of new crawls, by name, and the rules of each
        self.hosts_made: set[str] = set()  # names of hosts that an errand needs and that this call makes
        self.left: npt.NDArray[np.uint32] | None = None  # hosts of the page requests that this call ends, one for each
        self.crawl_delays: dict[int, float] = {}  # seconds, by host, of robots rules that this call brings
        self.robots_files: set[int] = set()  # digests of the robots.txt files that this call brings
        self._tables = tables
        self._keeps_lines = keeps_lines
        self._first_lines: set[str] = set()  # streams that get their first line
        self._bare: list[_Part] = []
        self._whole: list[_Part] = []
        self._records: list[tuple[CardRecord, int, int, bool]] = []
        self._clocks: dict[int, Clock] = {}
        self._columns_of_clocks: tuple[Rows, dict[str, Any]] | None = None
        self._returns: dict[int, tuple[int, Returns]] = {}  # by name: slot, and as this call leaves them
        self._tallies: dict[str, int] = {}
        self._errors: dict[str, int] = {}
        self._sent: dict[int, int] = {}  # by slot: the highest sequence in its outbox

    def add(self, kind: Fact, row: Row) -> None:
        """Adds one fact of this kind."""
        rows = self.rows.get(kind)
        if rows is None:
            self.rows[kind] = [row]
        else:
            rows.append(row)

    def add_columns(self, kind: Fact, columns: list[Any], hand: KnownRows | None = None) -> None:
        """Adds facts of one kind in columns, as a separate block next to rows of that kind. hand: further values that
        the call has about these rows and that are not logged."""
        self.columns.setdefault(kind, []).append((columns, hand))

    def blocks(self) -> list[tuple[Block, KnownRows | None]]:
        """Returns all facts in the order in which they can be applied, and the hand for each block. Call it once, after
        the last decision. Raises TransitionError for a URL that leaves the table of its life."""
        if self._crawls:
            self._add_crawls()
        if self._clocks:
            self._add_clocks()
        if self._returns:
            self._add_returns()
        for name, value in self._tallies.items():
            self.add(Fact.TALLY, (OWN_SLOT, name, value))
        if self._records:
            self._pack_records()
        found: list[tuple[Block, KnownRows | None]] = []
        here = self.rows.keys() | self.columns.keys()
        if self._bare:
            here.add(Fact.HEAD)
        if self._whole:
            here.add(Fact.CARD)
        for kind in sorted(here, key=PLACES.__getitem__):
            if kind is Fact.HEAD and self._bare:
                cards, tokens, old, rows = _joined(self._bare)
                if not self.puts:
                    check_moves(old, cards.heads["state"])
                found.append(((kind, [tokens, cards.heads]), KnownRows(cards, old, rows)))
            elif kind is Fact.CARD and self._whole:
                cards, tokens, old, rows = _joined(self._whole)
                if not self.puts:
                    check_moves(old, cards.heads["state"])
                found.append(((kind, [tokens, cards]), KnownRows(cards, old, rows)))
            else:
                if kind in self.rows:
                    found.append(((kind, columns_of(self.rows[kind])), None))
                found += [((kind, columns), hand) for columns, hand in self.columns.get(kind, ())]
        return found

    def _add_clocks(self) -> None:
        rows = np.fromiter(self._clocks, np.uint32, len(self._clocks))
        hosts = self._tables.hosts
        clocks = list(self._clocks.values())
        self.add_columns(
            Fact.HOST_CELLS,
            [
                hosts.slot[rows],
                hosts.hash[rows],
                *([getattr(clock, name) for clock in clocks] for name in CELLS),
            ],
            KnownRows.of_rows(rows),
        )

    def _add_returns(self) -> None:
        none = Returns(share=0.0).cells()
        for slot, gone in self._tables.returns.victims(self._returns):
            self.add(Fact.RETURNS, (slot, gone, *none))
        told = [returns for _, returns in self._returns.values()]
        slots = [slot for slot, _ in self._returns.values()]
        cells = (list(map(cell, told)) for cell in _CELLS_OF_RETURNS)
        self.add_columns(Fact.RETURNS, [slots, list(self._returns), *cells], KnownRows.of_returns(told))

    def _pack_records(self) -> None:
        for whole in (False, True):
            some = [entry for entry in self._records if entry[3] is whole]
            if some:
                tokens = np.array([token for _, token, _, _ in some], np.uint64)
                old = np.array([state for _, _, state, _ in some], np.uint8)
                part = (packed([record for record, *_ in some]), tokens, old, None)
                (self._whole if whole else self._bare).append(part)

    # -- what changes -------------------------------------------------------------------------------------------------

    def heads(self, cards: Cards, tokens: Tokens, old: npt.NDArray[np.uint8], queues: Rows | None = None) -> None:
        """Adds cards with new heads; their bodies stay. tokens: the leases that end with it, or 0; old: the
        states that the cards leave; queues: the rows of their queues, if they are known."""
        self._bare.append((cards, tokens, old, queues))

    def cards(self, cards: Cards, queues: Rows | None = None) -> None:
        """Adds new URLs. queues: the rows of their queues, if they are known."""
        self._whole.append((cards, np.zeros(len(cards), np.uint64), np.zeros(len(cards), np.uint8), queues))

    def taken_back(self) -> list[Cards]:
        """Removes the new URLs from the draft, so that the caller can change them."""
        found, self._whole = self._whole, []
        return [cards for cards, *_ in found]

    def record(self, record: CardRecord, old: int, *, token: int = 0, whole: bool = False) -> None:
        """Adds a URL as this call leaves it. old: the state it leaves; whole: its body changed, too."""
        self._records.append((record, token, old, whole))

    def rewritten(self, cards: Cards, tokens: Tokens, old: npt.NDArray[np.uint8], queues: Rows | None = None) -> None:
        """As `heads`, for cards whose bodies changed, too."""
        self._whole.append((cards, tokens, old, queues))

    def move(self, record: CardRecord, state: int, reason: int, *, error: str | None = None) -> None:
        """Moves a record to another state, for a later call of `record`. error: None leaves it as it is."""
        record.state, record.reason = state, int(reason)
        if error is not None:
            record.error = self.error_number(error)

    def authority(self, authority: Authority) -> None:
        """Adds the fact of an authority, which must be before the facts that name it."""
        if not authority.logged:
            self.add(Fact.AUTHORITY, (authority.slot, authority.name))

    def clock(self, host: int) -> Clock:
        """Returns the host's clock, for the caller to change. It becomes a fact in any case."""
        clock = self._clocks.get(host)
        if clock is None:
            place, columns = host, None
            if self._columns_of_clocks is not None:
                rows, columns = self._columns_of_clocks
                found = np.flatnonzero(rows == host)
                place, columns = (int(found[0]), columns) if len(found) else (host, None)
            if columns is None:
                hosts = self._tables.hosts
                clock = Clock((name, getattr(hosts, name)[host].item()) for name in CELLS)
            else:
                clock = Clock((name, columns[name][place].item()) for name in CELLS)
            self._clocks[host] = clock
        return clock

    def clocks(self, hosts: Rows) -> dict[str, npt.NDArray[Any]]:
        """Returns the clocks of these hosts in columns by name, for the caller to change in place. Each host appears
        once, and a draft has such columns once. They become facts in any case."""
        columns = self._tables.hosts
        places = hosts.astype(np.intp)
        here = columns.records(places)
        cells = {name: getattr(columns, name)[places] if name in RARE_CELLS else here[name] for name in CELLS}
        if self._clocks:
            for place, host in enumerate(hosts.tolist()):
                clock = self._clocks.pop(host, None)
                if clock is not None:
                    for name, column in cells.items():
                        column[place] = getattr(clock, name)
        self._columns_of_clocks = hosts, cells
        self.add_columns(Fact.HOST_CELLS, [here["slot"], here["hash"], *cells.values()], KnownRows.of_rows(hosts))
        return cells

    def returns(self, slot: int, name: int) -> Returns:
        """Returns the returns under a name, for the caller to change. They become a fact in any case."""
        found = self._returns.get(name)
        if found is None:
            found = self._returns[name] = slot, Returns(*self._tables.returns.get(name).cells())
        return found[1]

    def returns_seen(self, name: int) -> Returns:
        """Returns the returns under a name as this call leaves them, only to read."""
        found = self._returns.get(name)
        return found[1] if found is not None else self._tables.returns.get(name)

    def tally(self, name: str, more: int) -> None:
        """Adds to a count of the whole frontier, which never exceeds `TALLY_MAX`."""
        count = self._tallies.get(name, self._tables.registry.tallies.get(name, 0)) + more
        self._tallies[name] = min(count, TALLY_MAX)

    def error(self, error: str) -> None:
        """Counts an error by its class; after a limit of classes as `other`."""
        name = f"error.{error}"
        known, new = self._tables.registry.tallies, self._tallies
        if name not in known and name not in new:
            classes = sum(other.startswith("error.") for other in known.keys() | new.keys())
            if classes >= ERROR_CLASSES_MAX:
                name = "error.other"
        self.tally(name, 1)

    def error_number(self, error: str) -> int:
        """Returns the number of an error's class, a new number for a new class. After a limit each new class is
        `other`."""
        number = self._tables.registry.error_numbers.get(error, self._errors.get(error))
        if number is None:
            number = len(self._tables.registry.errors) + len(self._errors)
            if number >= ERROR_CLASSES_KEPT_MAX and error != "other":
                return self.error_number("other")
            self._errors[error] = number
            self.add(Fact.ERROR, (OWN_SLOT, number, error))
        return number

    def error_text(self, number: int) -> str:
        """Returns the class of a number, also of a number that this call made."""
        known = self._tables.registry.errors
        if number < len(known):
            return known[number]
        return next(text for text, drawn in self._errors.items() if drawn == number)

    def line(self, slot: int, token: int, stream: str, text: bytes, new_links: int) -> None:
        """Adds a line of output (JSON), durable with this call; new_links: -1 for lines without this count."""
        if not self._keeps_lines:
            return
        self._first_line(stream)
        self.add(Fact.LINE, (slot, token, STREAMS.index(stream), new_links, text))
        self.lines.append((stream, completed(text, new_links)))

    def refusal(
        self,
        record: CardRecord,
        now: Instant,
        *,
        outcome: Word,
        error: str | None,
        preferences: Preferences = NOTHING_SAID,
    ) -> None:
        """Adds the line of a page that was not fetched. preferences: what its robots.txt says about its uses."""
        line = refusal(
            record.text,
            now,
            outcome=outcome,
            error=error,
            depth=record.depth,
            referrer=record.referrer,
            priority=record.priority,
            preferences=preferences,
        )
        self.line(record.slot, 0, "pages", line, 0)

    def lines_of(
        self, stream: str, slots: Rows, tokens: Tokens, texts: list[bytes], new_links: list[int] | None
    ) -> None:
        """As `line`, for many lines of one stream; new_links: None for lines without this count."""
        if not self._keeps_lines or not texts:
            return
        self._first_line(stream)
        streams = np.full(len(texts), STREAMS.index(stream), np.uint8)
        told = texts if new_links is None else all_completed(texts, new_links)
        self.lines += zip(repeat(stream), told, strict=False)
        self.add_columns(Fact.LINE, [slots, tokens, streams, new_links or np.full(len(texts), -1), texts])

    def _first_line(self, stream: str) -> None:
        if stream not in self._first_lines and not self._tables.registry.projections[stream][1]:
            # The first line of a stream: because of this fact every later checkpoint keeps the log for the stream.
            self._first_lines.add(stream)
            self.add(Fact.PROJECTION, (OWN_SLOT, stream, self._tables.registry.projections[stream][0], LINES_AFTER))

    # -- names and their rows -----------------------------------------------------------------------------------------

    def crawl(self, name: str | None) -> int:
        """Returns the row of a crawl, a new row for a new name; None is the default crawl."""
        if name is None:
            name = "default"
        row = self._tables.crawls.rows.get(name)
        if row is None:
            row, _ = self._crawls.setdefault(name, (self._tables.crawls.next_row + len(self._crawls), None))
        return row

    def has_crawl(self, name: str) -> bool:
        """Whether a crawl has this name, or this call makes it."""
        return name in self._tables.crawls.rows or name in self._crawls

    def make_crawl(self, name: str, rules: CrawlRules) -> int:
        """Makes a crawl with a name that no crawl has, also without a URL. Returns its row."""
        row = self.crawl(name)
        self._crawls[name] = row, rules
        return row

    def crawl_by(self, name: str, unique: Unique | None, order: CrawlOrder | None = None) -> int:
        """Returns the row of a crawl with these rules, a new row for a new name. A rule of None is that of the crawl.
        Raises SettingsError for a crawl with other rules."""
        rules = CrawlRules(unique or Unique.URL, order or CrawlOrder.CLASSES)
        if not self.has_crawl(name) and rules != CrawlRules():
            return self.make_crawl(name, rules)
        row = self.crawl(name)
        known = CrawlRules(Unique.CALLER if row in self.callers() else Unique.URL, self.order_of(row))
        check_rules(name, known, CrawlRules(unique or known.unique, order or known.order))
        return row

    def orders(self) -> Mapping[int, CrawlOrder]:
        """Returns the exact orders of crawls by row, also of those that this call makes."""
        known = self._tables.crawls.orders
        new = {
            row: rules.order for row, rules in self._crawls.values() if rules and rules.order is not CrawlOrder.CLASSES
        }
        return known | new if new else known

    def order_of(self, row: int) -> CrawlOrder:
        """Returns the order of a crawl, also of one that this call makes."""
        return self.orders().get(row, CrawlOrder.CLASSES)

    def callers(self) -> Set[int]:
        """Returns the rows of crawls by unique keys, also of those that this call makes."""
        new = {row for row, rules in self._crawls.values() if rules is not None and rules.unique is Unique.CALLER}
        return self._tables.crawls.callers | new

    def drawn_again(self, before: Draft) -> dict[int, int]:
        """Returns the rows of the crawls that an earlier draft has made, by their rows in it. Crawls that exist by now
        keep these rows, the other crawls get new ones."""
        return {row: self.crawl(name) for name, (row, _) in before._crawls.items()}

    def crawl_name(self, row: int) -> str:
        """Returns the name of a crawl by its row, also for a crawl that this call makes."""
        if row < self._tables.crawls.next_row:
            return self._tables.crawls.name_of(row)
        return next(name for name, (made, _) in self._crawls.items() if made == row)

    def _add_crawls(self) -> None:
        """Makes facts of the new crawls that got a queue or a rule, and drops the scope of the other new crawls."""
        queues = [columns[3] for columns, _ in self.columns.get(Fact.QUEUE, ())]
        named = {int(row) for column in queues for row in np.unique(column)}
        named |= {int(row[3]) for row in self.rows.get(Fact.QUEUE, ())}
        for name, (row, rules) in self._crawls.items():
            if row in named or name == "default" or rules is not None:
                self.add(Fact.CRAWL, (OWN_SLOT, row, name, self._tables.crawls.next_generation(name)))
                if rules is not None and rules.unique is not Unique.URL:
                    self.add(Fact.CRAWL_UNIQUE, (OWN_SLOT, row, rules.unique.value))
                if rules is not None and rules.order is not CrawlOrder.CLASSES:
                    self.add(Fact.CRAWL_ORDER, (OWN_SLOT, row, rules.order.value))
            else:
                self.barren.add(row)
        scopes = self.rows.pop(Fact.SCOPE, [])
        for seed in scopes:
            if seed[1] not in self.barren:
                self.add(Fact.SCOPE, seed)

    def sequence(self, source: int) -> int:
        """Returns the next number in a slot's outbox."""
        home = self._tables.transit.homes.get(source)
        number = self._sent.get(source, home.sent if home is not None else 0) + 1
        self._sent[source] = number
        return number

    def holder(self, worker: str | None) -> int:
        """Returns the row of a named worker, a new row for a new name; None is this process, row 0."""
        if worker is None:
            return 0
        row = self._tables.registry.holder_rows.get(worker)
        if row is None or row == 0:
            if len(self._tables.registry.holders) >= HOLDERS_NAMED_MAX:
                self._tables.forget_holders()
            row = next(row for row in count(1) if row not in self._tables.registry.holders)
            self.add(Fact.HOLDER, (OWN_SLOT, row, worker, self._tables.registry.opening[0]))
        return row


def check_rules(crawl: str, known: CrawlRules, wanted: CrawlRules) -> None:
    """Raises SettingsError for a crawl that was made with other rules."""
    for rule in ("unique", "order"):
        made, asked = getattr(known, rule), getattr(wanted, rule)
        if made is not asked:
            raise SettingsError(
                f"crawl {crawl!r:.200} was made with {rule}={made.value!r}, not {asked.value!r}; use another name, or "
                "delete the crawl first"
            )


def _joined(parts: list[_Part]) -> _Part:
    if len(parts) == 1:
        return parts[0]
    cards, tokens, old, queues = zip(*parts, strict=True)
    rows = None if any(some is None for some in queues) else np.concatenate(queues)
    return Cards.concatenate(cards), np.concatenate(tokens), np.concatenate(old), rows
