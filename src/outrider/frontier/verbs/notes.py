"""Notes that callers make: the addresses of hosts, and how much of their output is synced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from outrider.clock import Instant
from outrider.errors import SettingsError, shown
from outrider.frontier.format.facts import LINES_AFTER, PROJECTIONS, Fact
from outrider.frontier.state.host_addresses import FOREVER
from outrider.frontier.verbs import arguments
from outrider.frontier.verbs.deciding import Part
from outrider.limits import OWN_SLOT


class Notes(Part):
    """The part of the machine that stores notes."""

    def set_addresses(self, addresses: Mapping[str, str | None], now: Instant) -> int:
        """Sets the addresses of hosts by name (None: no longer known). Groups change when a host is offered next.
        Returns how many addresses changed. Raises SettingsError."""
        now = self._core.advance(now)
        told = {self.tables.home_of(name): address for name, address in arguments.addresses(addresses).items()}
        draft = self._core.draft(now)
        for name in told:
            self._homes.add(draft, name)
        self._core.commit(draft)
        tables = self.tables
        rows = {tables.host_row(name): address for name, address in told.items()}
        tables.changed.append(self.turns.shared.note_given_addresses(row for row, address in rows.items() if address))
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

    def note_projections(self, places: Sequence[tuple[str, int, int]], now: Instant) -> None:
        """Notes that projections are synced and contain the lines up to an LSN, as (stream, length, LSN): all of them
        in one frame. Raises SettingsError."""
        draft = self._core.draft(self._core.advance(now))
        for stream, length, lsn in places:
            if stream not in PROJECTIONS:
                raise SettingsError(f"stream {shown(stream)}: use one of {', '.join(PROJECTIONS)}")
            length = arguments.whole("length", length, 0, arguments.INSTANT_MAX)
            lsn = arguments.whole("lsn", lsn, 0, arguments.INSTANT_MAX)
            # An LSN of 0 means that the stream never had a line and needs no log.
            draft.add(Fact.PROJECTION, (OWN_SLOT, stream, length, max(lsn, LINES_AFTER)))
        self._core.commit(draft, reserve=True)

    def note_watermark(self, writer: str, value: bytes, now: Instant) -> None:
        """Notes that an archive is synced up to this opaque place. Raises SettingsError."""
        arguments.watermark((writer, value), self.tables.registry.watermarks)
        draft = self._core.draft(self._core.advance(now))
        draft.add(Fact.WATERMARK, (OWN_SLOT, writer, value))
        self._core.commit(draft, reserve=True)
