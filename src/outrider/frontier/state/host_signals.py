"""How the signals of hosts agreed with visits, by the hashes of the hosts, in rows of which a checkpoint copies ranges.

A row changes its host only by a fact, so a replay has the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass
from typing import Final

from outrider.frontier.format.facts import Block, Fact, Row, columns_of
from outrider.limits import HOST_SIGNALS_MAX


@dataclass(frozen=True, slots=True)
class SignalSums:
    """The columns of a SIGNALS fact: sums over the visits of pages with dates, as `SignalCounts` of
    policy/signal_values.py has them, and the number of these visits. Times are seconds."""

    visits: float = 0.0
    unchanged_time: float = 0.0
    unchanged_signals: float = 0.0
    changed_time: float = 0.0
    changed_signals: float = 0.0
    changes: float = 0.0

    def plus(self, other: SignalSums, visits_max: float) -> SignalSums:
        """Returns the sum. From a number of visits on all columns are halved, so that a host may change its habit."""
        share = 0.5 if self.visits >= visits_max else 1.0
        return SignalSums(*(share * mine + more for mine, more in zip(astuple(self), astuple(other), strict=True)))


NO_SUMS: Final = SignalSums()


class HostSignals:
    """The sums by host: `HOST_SIGNALS_MAX` of them at most, which the caller sees to by `victims`."""

    def __init__(self, most: int = HOST_SIGNALS_MAX) -> None:
        self._most = most
        self._kept: dict[int, tuple[int, int, SignalSums]] = {}  # by host: row, slot, sums; the latest change is last
        self._hosts: list[int | None] = []  # by row
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, host: int) -> SignalSums:
        """Returns the sums of a host; zeros for an unknown one."""
        found = self._kept.get(host)
        return NO_SUMS if found is None else found[2]

    def latest(self) -> Iterator[tuple[int, SignalSums]]:
        """Yields hosts and their sums, the host with the latest visit first."""
        for host in reversed(self._kept):
            yield host, self._kept[host][2]

    def victims(self, coming: set[int]) -> list[tuple[int, int]]:
        """Returns slots and hosts that must leave before these hosts are added: those without a visit for the longest
        time."""
        wanted = len(self._kept) + sum(host not in self._kept for host in coming) - self._most
        found: list[tuple[int, int]] = []
        for host, (_, slot, _) in self._kept.items():
            if len(found) >= wanted:
                break
            if host not in coming:
                found.append((slot, host))
        return found

    def _signals(self, slot: int, host: int, *sums: float) -> None:
        row, _, _ = self._kept.pop(host, (-1, 0, NO_SUMS))
        if not any(sums):  # a row of zeros removes it
            if row >= 0:
                self._hosts[row] = None
                self._free.append(row)
            return
        if row < 0:
            row = self._free.pop() if self._free else len(self._hosts)
            self._hosts[row : row + 1] = [host]
        self._kept[host] = row, slot, SignalSums(*sums)

    def places(self) -> int:
        """How many rows there are, free ones too."""
        return len(self._hosts)

    def blocks(self, first: int, last: int) -> list[Block]:
        """The facts that rebuild these rows."""
        hosts = [host for host in self._hosts[first:last] if host is not None]
        rows: list[Row] = [(slot, host, *astuple(sums)) for host in hosts for _, slot, sums in [self._kept[host]]]
        return [(Fact.SIGNALS, columns_of(rows))] if rows else []
