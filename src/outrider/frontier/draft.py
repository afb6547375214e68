"""A draft: what a call has decided so far, as facts. Nothing of it is logged or applied yet; rows for new names are
drawn here.

A call that ends in an error throws its draft away, and the tables are what they were.
"""

from __future__ import annotations

from collections.abc import Callable

from outrider.clock import Instant
from outrider.frontier.facts import STREAMS, Block, Fact, Row
from outrider.frontier.lines import completed
from outrider.frontier.tables import AUTHORITIES, HOSTS, QUEUES, URLS, Authority, Host, Tables, Url
from outrider.journey import Code, Line
from outrider.limits import ERROR_CLASSES_MAX, OWN_SLOT
from outrider.url import authority_of, host_of

# Rows must exist before facts name them, and an errand's host before the errand.
_ORDER = (
    Fact.OPENING,
    Fact.CRAWL,
    Fact.HOLDER,
    Fact.SCOPE,
    Fact.HOST,
    Fact.AUTHORITY,
    Fact.QUEUE,
    Fact.OUTBOX,
    Fact.ARRIVED,
    Fact.DELIVERED,
    Fact.URL,
    Fact.HOST_CELLS,
    Fact.ROBOTS,
    Fact.RULES,
    Fact.URL_CELLS,
    Fact.VISIT,
    Fact.LEASE,
    Fact.ERRAND,
    Fact.TOKEN,
    Fact.TALLY,
    Fact.LINE,
    Fact.WATERMARK,
    Fact.PROJECTION,
    Fact.REQUEST,
    Fact.CLOSING,
)


class Clock:
    """The politeness cells of one host as this call leaves them; the columns of a HOST_CELLS fact."""

    __slots__ = ("answered", "back_off", "ended", "gap", "reason", "refused_at", "rest_until")

    def __init__(self, host: Host) -> None:
        self.ended: Instant = host.ended
        self.rest_until: Instant = host.rest_until
        self.gap = host.gap
        self.reason = host.reason
        self.back_off = host.back_off
        self.refused_at: Instant = host.refused_at
        self.answered = host.answered

    def rest_at_least(self, until: Instant) -> None:
        """Rest until then, or as long as is booked already."""
        self.rest_until = max(self.rest_until, until)

    def row(self, host: Host) -> Row:
        return (
            host.slot,
            host.row,
            self.ended,
            self.rest_until,
            self.gap,
            self.reason,
            self.back_off,
            self.refused_at,
            self.answered,
        )


class Draft:
    """The facts of one call, by kind, and the rows they will make. `slot_of` gives the slot of a host name."""

    def __init__(
        self, tables: Tables, now: Instant, *, slot_of: Callable[[str], int], keeps_lines: bool = False
    ) -> None:
        self.now = now
        self.facts: dict[Fact, list[Row]] = {}
        self.seen: dict[tuple[int, int, int], Code] = {}  # (slot, crawl, low bits): links this call accepted
        self.lines: list[Line] = []
        self.drawn: list[Url] = []  # taken out of their queues: they go back if the log refuses the frame
        self._tables = tables
        self._slot_of = slot_of
        self._keeps_lines = keeps_lines
        self._sent: dict[int, int] = {}
        self._hosts: dict[str, tuple[int, int]] = {}
        self._authorities: set[str] = set()
        self._queues: dict[tuple[int, str, str], int] = {}
        self._rows: dict[tuple[int, int], int] = {}
        self._clocks: dict[Host, Clock] = {}
        self._tallies: dict[str, int] = {}

    def add(self, kind: Fact, row: Row) -> None:
        rows = self.facts.get(kind)
        if rows is None:
            self.facts[kind] = [row]
        else:
            rows.append(row)

    def blocks(self) -> list[Block]:
        """All facts, in the order in which they can be applied; ask once, when the call has decided."""
        for host, clock in self._clocks.items():
            self.add(Fact.HOST_CELLS, clock.row(host))
        for name, value in self._tallies.items():
            self.add(Fact.TALLY, (OWN_SLOT, name, value))
        return [(kind, self.facts[kind]) for kind in _ORDER if kind in self.facts]

    # -- what changes -------------------------------------------------------------------------------------------------

    def clock(self, host: Host) -> Clock:
        """The host's clock, to be changed; it becomes a fact even when nothing is."""
        clock = self._clocks.get(host)
        if clock is None:
            clock = self._clocks[host] = Clock(host)
        return clock

    def move(
        self,
        url: Url,
        state: int,
        reason: int,
        due: Instant,
        *,
        attempts: int | None = None,
        losses: int | None = None,
        status: int | None = None,
        error: str | None = None,
    ) -> None:
        """The URL goes to another state; None: a cell stays as it is."""
        self.add(
            Fact.URL_CELLS,
            (
                url.slot,
                url.row,
                state,
                int(reason),
                due,
                url.attempts if attempts is None else attempts,
                url.losses if losses is None else losses,
                url.status if status is None else status,
                url.token,
                url.error if error is None else error,
            ),
        )

    def tally(self, name: str, more: int) -> None:
        """A count of the whole frontier grows."""
        self._tallies[name] = self._tallies.get(name, self._tables.tallies.get(name, 0)) + more

    def error(self, error: str) -> None:
        """Count an error by its class; beyond a bound of classes as `other`."""
        name = f"error.{error}"
        known, new = self._tables.tallies, self._tallies
        if name not in known and name not in new:
            classes = sum(other.startswith("error.") for other in known.keys() | new.keys())
            if classes >= ERROR_CLASSES_MAX:
                name = "error.other"
        self.tally(name, 1)

    def line(self, owner: Url | Authority, token: int, stream: str, text: bytes, new_links: int) -> None:
        """A line of output (JSON), durable with this call; new_links: -1 for lines that do not tell it."""
        if not self._keeps_lines:
            return
        self.add(Fact.LINE, (owner.slot, owner.row, token, STREAMS.index(stream), new_links, text))
        self.lines.append((stream, completed(text, new_links)))

    # -- names and their rows -----------------------------------------------------------------------------------------

    def crawl(self, name: str | None) -> int:
        """The row of a crawl, drawn if it is new; None is the default crawl."""
        if name is None:
            return 0
        row = self._tables.crawl_rows.get(name)
        if row is None:
            made = self.facts.get(Fact.CRAWL, [])
            row = next((int(r[1]) for r in made if r[2] == name), None)
            if row is None:
                row = len(self._tables.crawls) + len(made)
                self.add(Fact.CRAWL, (OWN_SLOT, row, name, 1))
        return row

    def crawl_name(self, row: int) -> str:
        if row < len(self._tables.crawls):
            return self._tables.crawls[row][0]
        return next(str(made[2]) for made in self.facts[Fact.CRAWL] if made[1] == row)

    def holder(self, worker: str | None) -> int:
        """The row of a named worker; None is this process, row 0."""
        if worker is None:
            return 0
        row = self._tables.holder_rows.get(worker)
        if row is None or row == 0:
            row = max(1, len(self._tables.holders))
            self.add(Fact.HOLDER, (OWN_SLOT, row, worker, self._tables.opening[0]))
        return row

    def host(self, name: str) -> tuple[int, int]:
        """(slot, row) of a host."""
        host = self._tables.hosts.get(name)
        if host is not None:
            return host.slot, host.row
        found = self._hosts.get(name)
        if found is None:
            slot = self._slot_of(name)
            found = slot, self._next_row(slot, HOSTS)
            self._hosts[name] = found
            self.add(Fact.HOST, (*found, name))
        return found

    def authority(self, url: str) -> None:
        """The authority of a canonical URL has a row from here on."""
        name = authority_of(url)
        if name in self._tables.authorities or name in self._authorities:
            return
        slot, host_row = self.host(host_of(url))
        self._authorities.add(name)
        self.add(Fact.AUTHORITY, (slot, self._next_row(slot, AUTHORITIES), host_row, name))

    def queue(self, crawl: int, key: str, host: str) -> int:
        """The row of a queue in its host's slot."""
        queue = self._tables.queues.get((crawl, key, host))
        if queue is not None:
            return queue.row
        row = self._queues.get((crawl, key, host))
        if row is None:
            slot, host_row = self.host(host)
            row = self._queues[crawl, key, host] = self._next_row(slot, QUEUES)
            self.add(Fact.QUEUE, (slot, row, crawl, host_row, key))
        return row

    def url_row(self, slot: int) -> int:
        """A row for one more URL of a slot."""
        return self._next_row(slot, URLS)

    def sequence(self, source: int) -> int:
        """The next number in a slot's outbox."""
        home = self._tables.slots.get(source)
        number = self._sent.get(source, home.sent if home is not None else 0) + 1
        self._sent[source] = number
        return number

    def _next_row(self, slot: int, section: int) -> int:
        place = (slot, section)
        row = self._rows.get(place)
        if row is None:
            home = self._tables.slots.get(slot)
            row = home.rows(section) if home is not None else 0
        self._rows[place] = row + 1
        return row
