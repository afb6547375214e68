"""How the signals of hosts agreed with visits, by the hashes of the hosts."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Final

from outrider.frontier.format.facts import Block, Fact, Row, columns_of
from outrider.frontier.state.latest_rows import LatestRows
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


class HostSignals(LatestRows[int, SignalSums]):
    """The sums by host."""

    def __init__(self, most: int = HOST_SIGNALS_MAX) -> None:
        super().__init__(most, NO_SUMS)

    def _signals(self, slot: int, host: int, *sums: float) -> None:
        self._put(slot, host, SignalSums(*sums) if any(sums) else None)  # a row of zeros removes it

    def blocks(self, first: int, last: int) -> list[Block]:
        """The facts that rebuild these rows."""
        rows: list[Row] = [(slot, host, *astuple(sums)) for slot, host, sums in self._rows(first, last)]
        return [(Fact.SIGNALS, columns_of(rows))] if rows else []
