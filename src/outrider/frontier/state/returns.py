"""The returns of hosts and shapes of paths, by hashes of their names, in rows of which a checkpoint copies ranges.

A row is given to another name only by a fact that takes it from the first, so a replay has the same rows."""

from __future__ import annotations

from collections.abc import Collection

from outrider.frontier.format.facts import Block, Fact, Values, columns_of
from outrider.frontier.policy.returns import Returns
from outrider.frontier.state.urls import Hand
from outrider.limits import RETURNS_KEPT_MAX, RETURNS_LOOKS_MAX

_ABSENT = (-1, 0, Returns())  # as a name without returns is kept


class ReturnsKept:
    """The returns by name: `RETURNS_KEPT_MAX` of them at most, which the caller sees to by `victims`."""

    def __init__(self, most: int = RETURNS_KEPT_MAX) -> None:
        self._most = most
        self._kept: dict[int, tuple[int, int, Returns]] = {}  # by name: row, slot, returns
        self._names: list[int | None] = []  # by row
        self._free: list[int] = []
        self._hand = 0  # goes round the rows in search of a victim

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, name: int) -> Returns:
        """The returns under a name; those of nothing fetched where there are none. They are not for the caller to
        change."""
        return self._kept.get(name, _ABSENT)[2]

    def _returns(self, slots: Values, names: Values, *cells: Values, hand: Hand | None = None) -> None:
        if hand is not None:
            told = hand.returns
        else:
            told = [Returns(*one) for one in zip(*(column.tolist() for column in cells), strict=True)]
            slots, names = slots.tolist(), names.tolist()
        for slot, name, one in zip(slots, names, told, strict=True):
            row = self._kept.get(name, _ABSENT)[0]
            if not one.share and not any(one.cells()):  # a row of zeros takes it away
                if row >= 0:
                    del self._kept[name]
                    self._names[row] = None
                    self._free.append(row)
                continue
            if row < 0:
                row = self._free.pop() if self._free else len(self._names)
                self._names[row : row + 1] = [name]
            self._kept[name] = row, slot, one

    def victims(self, coming: Collection[int]) -> list[tuple[int, int]]:
        """Slots and names of rows that must go before these names come: rows of few fetches first, among some that lie
        side by side."""
        found: dict[int, int] = {}
        if len(self) + len(coming) <= self._most:
            return []
        new = sum(name not in self._kept for name in coming)
        for _ in range(min(len(self) + new - self._most, len(self))):
            looked: list[tuple[int, int, int]] = []
            for _ in range(len(self._names)):
                known = self._names[self._hand]
                self._hand = (self._hand + 1) % len(self._names)
                if known is not None and known not in found and known not in coming:
                    _, slot, returns = self._kept[known]
                    looked.append((returns.fetched, known, slot))
                if len(looked) == RETURNS_LOOKS_MAX:
                    break
            if looked:
                _, name, slot = min(looked)
                found[name] = slot
        return [(slot, name) for name, slot in found.items()]

    def places(self) -> int:
        """How many rows there are, free ones too."""
        return len(self._names)

    def blocks(self, first: int, last: int) -> list[Block]:
        """The facts that rebuild these rows."""
        names = [name for name in self._names[first:last] if name is not None]
        rows = [(slot, name, *one.cells()) for name in names for _, slot, one in [self._kept[name]]]
        return [(Fact.RETURNS, columns_of(rows))] if rows else []
