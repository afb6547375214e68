"""The addresses of hosts, from callers or errands, with the end of their validity and the time of the next errand.

An answer decides by pure functions of a host's cells (docs/groups.md).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from outrider.clock import Instant, instant
from outrider.frontier.format.facts import Block, Fact, Row, columns_of
from outrider.frontier.policy.grouping import address_of
from outrider.frontier.policy.revisit import retry_at
from outrider.frontier.state.errand import Errand
from outrider.frontier.state.hosts import NONE
from outrider.journey import Kind
from outrider.limits import (
    ADDRESS_FAILED_SECONDS,
    ADDRESS_SECONDS_MAX,
    ADDRESS_SECONDS_MIN,
    ADDRESS_SECONDS_USUAL,
)

if TYPE_CHECKING:
    from outrider.frontier.state.tables import Tables

FOREVER: Instant = 1 << 62
"""The `expires` of an address from a caller."""


class HostAddress(Errand):
    """The cells of one host's address, and of the errand that resolves it.

    address: "" without one. expires: the end of the answer's validity, also of the answer that there is none; 0: an
    errand is needed. next_at: no errand before this instant. attempts: failures since the last answer. error: the class
    of the last failure. token: the open errand, or 0.
    """

    __slots__ = ("address", "expires", "number")

    def __init__(self, host: int, slot: int, number: int, name: str) -> None:
        """number: the keyed hash of the host's name."""
        super().__init__(Kind.ADDRESS, slot, host, name, f"dns:{name}")
        self.number = number
        self.address = ""
        self.expires: Instant = 0

    @property
    def owner(self) -> str:
        return ""

    @property
    def place(self) -> tuple[int, int]:
        """Slot and host, the first columns of its facts."""
        return self.slot, self.number

    def opening(self, token: int, deadline: Instant, holder: int) -> tuple[Fact, Row]:
        return Fact.LOCATING, (*self.place, token, deadline, holder)

    def ending(self, until: Instant, *, lost: bool = False) -> tuple[Fact, Row]:
        return Fact.LOCATED, (*self.place, *self.cells(max(self.next_at, until)))

    def cells(self, next_at: Instant | None = None) -> Row:
        """Returns the columns of a LOCATED fact after its slot and host. next_at: replaces the own one."""
        at = self.next_at if next_at is None else next_at
        return (self.address, self.expires, at, self.attempts, self.error)

    def after_answer(
        self,
        address: str | None,
        now: Instant,
        *,
        ttl_seconds: float | None,
        error: str | None,
        after_seconds: float | None,
        final: bool,
    ) -> Row:
        """Returns the cells after an answer: an address with its time to live; a temporary failure (not `final`), with
        the next errand after 5, 30, 300 s; or no address, which is valid for an hour."""
        if address is not None:
            told = ADDRESS_SECONDS_USUAL if ttl_seconds is None else ttl_seconds
            seconds = min(max(told, ADDRESS_SECONDS_MIN), ADDRESS_SECONDS_MAX)
            return (str(address_of(address)), now + instant(seconds), 0, 0, "")
        attempt = self.attempts + 1
        if not final and (at := retry_at(attempt, now, after_seconds)) is not None:
            return (self.address, 0, at, attempt, error or "no_address")
        return ("", now + instant(ADDRESS_FAILED_SECONDS), 0, 0, error or "no_address")

    def __repr__(self) -> str:
        return f"<HostAddress {self.name} at {self.address or self.error or 'unknown'}>"


class HostAddresses:
    """The addresses of hosts, by row of Hosts. left: leases with tokens up to this one use this address (or ""),
    which the host has left."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self.by_host: dict[int, HostAddress] = {}
        self._texts = np.full(1, None, object)  # by host, as `of` answers for new leases
        self.left: dict[int, tuple[int, str]] = {}

    def _address(self, slot: int, host: int, address: str) -> None:
        place = self._of(host)
        place.address = sys.intern(address)  # many hosts may share one
        place.expires = FOREVER if address else 0
        place.next_at, place.attempts, place.error = 0, 0, ""
        if not address and not place.token:
            del self.by_host[place.host]
        self._note(place)

    def _located(
        self, slot: int, host: int, address: str, expires: int, next_at: int, attempts: int, error: str
    ) -> None:
        place = self._of(host)
        self._tables.errands.end(place)
        place.address = sys.intern(address)
        place.expires, place.next_at, place.attempts, place.error = expires, next_at, attempts, error
        self._note(place)

    def _note(self, place: HostAddress) -> None:
        if place.host >= len(self._texts):
            grown = np.full(max(place.host + 1, 2 * len(self._texts)), None, object)
            grown[: len(self._texts)] = self._texts
            self._texts = grown
        self._texts[place.host] = place.address or None if place.expires else None

    def recall(self, row: int, cells: tuple[str, int, int, int], error: str) -> None:
        """Sets the cells of a host that returns from the disk."""
        hosts = self._tables.hosts
        place = self.by_host[row] = HostAddress(row, int(hosts.slot[row]), int(hosts.hash[row]), hosts.name(row))
        address, place.expires, place.next_at, place.attempts = cells
        place.address, place.error = sys.intern(address), error
        self._note(place)

    def let_go(self, row: int) -> HostAddress | None:
        """Returns the cells of a host that moves to the disk, if it has any."""
        place = self.by_host.pop(row, None)
        if place is not None:
            self._texts[row] = None
        return place

    def _locating(self, slot: int, host: int, token: int, deadline: int, holder: int) -> None:
        place = self._of(host)
        self._tables.errands.lease(place, token, deadline, holder)

    def _of(self, host: int) -> HostAddress:
        """Returns the cells of a host by its hash, made if they are missing. Raises KeyError."""
        rows = self._tables.rows_of_hosts(np.array([host], np.uint64))
        row = int(rows[0])
        self._tables.changed.append(rows)
        if row not in self.by_host:
            self.by_host[row] = HostAddress(row, int(self._tables.hosts.slot[row]), host, self._tables.hosts.name(row))
        return self.by_host[row]

    def _left(self, slot: int, host: int, token: int, address: str) -> None:
        rows = self._tables.rows_of_hosts(np.array([host], np.uint64))
        self.left[int(rows[0])] = (token, sys.intern(address))

    def of(self, host: int, token: int) -> str | None:
        """Returns the address of a host by its row, for a lease with this token: the last one from a caller or errand
        before the lease."""
        until, address = self.left.get(host, (-1, ""))
        if token <= until:
            return address or None
        place = self.by_host.get(host)
        return place.address or None if place is not None and place.expires else None

    def of_many(self, hosts: npt.NDArray[np.intp], first: int) -> list[str | None]:
        """As `of`, for leases of these hosts with consecutive tokens."""
        if self.left:
            return [self.of(host, token) for token, host in enumerate(hosts.tolist(), first)]
        if hosts.max(initial=0) >= len(self._texts):
            return [self._texts[host] if host < len(self._texts) else None for host in hosts.tolist()]
        found: list[str | None] = self._texts[hosts].tolist()
        return found

    def still_at(self) -> dict[int, str]:
        """Returns by row the addresses that open requests use and their hosts have left, or "". Forgets the others,
        because tokens grow: no later lease uses them."""
        if not self.left:
            return {}
        urls = self._tables.urls
        tokens = np.frombuffer(urls.leases.tokens(), np.uint64)
        hosts = self._tables.queues.host[urls.open_leases().queues.astype(np.intp)]
        open_ones = [*zip(hosts.tolist(), tokens.tolist(), strict=True)]
        errands = self._tables.errands.open
        open_ones += [(errand.busy, token) for token, errand in errands.items() if errand.busy != NONE]
        over = self._tables.hosts.rested.ends
        still = {host for host, token in open_ones if token <= self.left.get(host, (-1, ""))[0] and token not in over}
        self.left = {host: self.left[host] for host in still}
        return {host: address for host, (_, address) in self.left.items()}

    def left_cells(self, host: int, token: int, address: str) -> Row:
        """The columns of a LEFT fact."""
        return (int(self._tables.hosts.slot[host]), int(self._tables.hosts.hash[host]), token, address)

    def blocks(self, first: int, last: int) -> list[Block]:
        """The facts that rebuild the addresses of the hosts in the rows `first` … `last - 1`."""
        left = sorted(row for row in self.still_at() if first <= row < last)
        places = [self.by_host[row] for row in range(first, last) if row in self.by_host]
        named = [(place, (place.slot, int(self._tables.hosts.hash[place.host]))) for place in places]
        rows: list[tuple[Fact, list[Row]]] = [
            (Fact.LEFT, [self.left_cells(row, *self.left[row]) for row in left]),
            (Fact.ADDRESS, [(*name, p.address) for p, name in named if p.expires == FOREVER]),
            (Fact.LOCATED, [(*name, *p.cells()) for p, name in named if p.expires != FOREVER]),
            (Fact.LOCATING, [(*name, p.token, p.deadline, p.holder) for p, name in named if p.token]),
        ]
        return [(fact, columns_of(some)) for fact, some in rows if some]
