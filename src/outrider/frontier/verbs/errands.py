"""The errands that callers queue, requests for something else than a page on the clock of its host; also the addresses
of hosts and the places of output that callers tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from outrider.clock import Instant
from outrider.errors import SettingsError, shown
from outrider.frontier.format.facts import LINES_AFTER, STREAMS, Fact
from outrider.frontier.state.errand import KINDS, CallersErrand
from outrider.frontier.state.whereabouts import FOREVER
from outrider.frontier.verbs import arguments
from outrider.frontier.verbs.deciding import Part, bounded
from outrider.journey import Code
from outrider.limits import CALLERS_ERRANDS_MAX, OWN_SLOT, URL_BYTES_MAX
from outrider.url import host_of, spell


class Errands(Part):
    """The part of the machine that takes errands, addresses and places of output from callers."""

    def queue_errands(self, kind: str, urls: str | Sequence[str], crawl: str | None, now: Instant) -> list[Code]:
        """Queues an errand of this kind for each URL, in a crawl (None: the default one). Answers for each `new`,
        `known` (it is queued or leased already), `invalid` or `over_limit`. Raises SettingsError for a kind that
        callers cannot queue or a host whose slot another frontier owns, StoreFullError."""
        named = arguments.text("kind", kind) if isinstance(kind, str) else None
        number = next((row.number for row in KINDS.values() if row.number and row.kind == named), None)
        if number is None:
            known = ", ".join(row.kind.value for row in KINDS.values() if row.number)
            raise SettingsError(f"kind {shown(kind)}: callers queue errands of kind {known}")
        given = [urls] if isinstance(urls, str) else arguments.listed("urls", urls)
        bounded(len(given), "errands")
        given = [arguments.text("url", url) for url in given]
        crawl = arguments.name("crawl", crawl)
        now = self._core.advance(now)
        self._core.wake(now)
        called = self.tables.errands.called
        draft = self._core.draft(now)
        row = draft.crawl(crawl)
        wanted: dict[str, int] = {}  # by URL: the slot of its host
        slots: dict[str, int] = {}  # by host
        codes: list[Code] = []
        for url in spell(given):
            if url is None:
                codes.append(Code.INVALID)
            elif url in wanted or called.get(number, row, url) is not None:
                codes.append(Code.KNOWN)
            elif len(url) > URL_BYTES_MAX or len(called) + len(wanted) >= CALLERS_ERRANDS_MAX:
                codes.append(Code.OVER_LIMIT)
            else:
                codes.append(Code.NEW)
                host = self.tables.home_of(host_of(url))
                if host not in slots:
                    slots[host] = self._own_slot_of(host)
                self._homes.add(draft, host, row)
                wanted[url] = slots[host]
        for url, slot in wanted.items():
            draft.add(*CallersErrand(slot, 0, number, row, url).cells(url))
        self._core.commit(draft)
        return codes

    def _own_slot_of(self, host: str) -> int:
        """The slot of a host. Raises SettingsError where another frontier owns it: the host would get requests by two
        clocks."""
        slot = self._homes.slot_of(host)
        if self._homes.owned is not None and slot not in self._homes.owned:
            raise SettingsError(f"host {shown(host)}: slot {slot} is another frontier's; queue its errands there")
        return slot

    def set_addresses(self, addresses: Mapping[str, str | None], now: Instant) -> int:
        """Sets the addresses of hosts by name (None: not known any more); groups follow at a host's next offer. Returns
        how many addresses changed. Raises SettingsError."""
        now = self._core.advance(now)
        told = {self.tables.home_of(name): address for name, address in arguments.addresses(addresses).items()}
        draft = self._core.draft(now)
        for name in told:
            self._homes.add(draft, name)
        self._core.commit(draft)
        tables = self.tables
        rows = {tables.host_row(name): address for name, address in told.items()}
        tables.changed.append(self.turns.shared.told(row for row, address in rows.items() if address))
        places = tables.addresses.by_host
        rows = {
            row: address
            for row, address in rows.items()
            if (row in places and (places[row].address, places[row].expires) != (address, FOREVER))
            or (row not in places and address)
        }
        draft = self._core.draft(now)
        self._homes.leave_addresses(draft, rows)
        for row, address in rows.items():
            draft.add(Fact.ADDRESS, (int(tables.hosts.slot[row]), int(tables.hosts.hash[row]), address))
        self.turns.shared.moved(rows)
        self._core.commit(draft)
        return len(rows)

    def note_projection(self, stream: str, length: int, lsn: int, now: Instant) -> None:
        """Notes that a projection is synced to this length and holds the lines up to this LSN. Raises SettingsError."""
        if stream not in STREAMS:
            raise SettingsError(f"stream {shown(stream)}: there are {', '.join(STREAMS)}")
        length = arguments.whole("length", length, 0, arguments.INSTANT_MAX)
        lsn = arguments.whole("lsn", lsn, 0, arguments.INSTANT_MAX)
        draft = self._core.draft(self._core.advance(now))
        # An LSN of 0 means that the stream never had a line and needs no log.
        draft.add(Fact.PROJECTION, (OWN_SLOT, stream, length, max(lsn, LINES_AFTER)))
        self._core.commit(draft, reserve=True)

    def note_watermark(self, writer: str, value: bytes, now: Instant) -> None:
        """Notes that an archive is synced up to this opaque place. Raises SettingsError."""
        arguments.watermark((writer, value), self.tables.registry.watermarks)
        draft = self._core.draft(self._core.advance(now))
        draft.add(Fact.WATERMARK, (OWN_SLOT, writer, value))
        self._core.commit(draft, reserve=True)
