"""The returns of hosts and shapes of paths, by hashes of their names, in rows of which a checkpoint copies ranges.

A row is given to another name only by a fact that takes it from the first, so a replay has the same rows."""

from __future__ import annotations

from collections.abc import Collection

from outrider.frontier.format.facts import Block, Fact, Values, columns_of
from outrider.frontier.policy.returns import Returns
from outrider.frontier.state.urls import Hand
from outrider.limits import RETURNS_KEPT_MAX, RETURNS_LOOKS_MAX

_NONE = Returns()


class ReturnsKept:
    """The returns by name: `RETURNS_KEPT_MAX` of them at most, which the caller sees to by `victims`."""

    def __init__(self, most: int = RETURNS_KEPT_MAX) -> None:
        self._most = most
        self._rows: dict[int, int] = {}  # by name
        self._kept: list[tuple[int, int, Returns] | None] = []  # slot, name, returns
        self._free: list[int] = []
        self._hand = 0  # goes round the rows in search of a victim

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, name: int) -> Returns:
        """The returns under a name; those of nothing fetched where there are none. They are not for the caller to
        change."""
        row = self._rows.get(name)
        kept = self._kept[row] if row is not None else None
        return kept[2] if kept is not None else _NONE

    def _returns(self, slots: Values, names: Values, *cells: Values, hand: Hand | None = None) -> None:
        if hand is not None:
            told = hand.returns
        else:
            told = [Returns(*one) for one in zip(*(column.tolist() for column in cells), strict=True)]
            slots, names = slots.tolist(), names.tolist()
        rows, kept = self._rows, self._kept
        for slot, name, one in zip(slots, names, told, strict=True):
            row = rows.get(name)
            if not one.share and not any(one.cells()):  # a row of zeros takes it away
                if row is not None:
                    del rows[name]
                    kept[row] = None
                    self._free.append(row)
            elif row is not None:
                kept[row] = slot, name, one
            elif self._free:
                rows[name] = row = self._free.pop()
                kept[row] = slot, name, one
            else:
                rows[name] = len(kept)
                kept.append((slot, name, one))

    def victims(self, coming: Collection[int]) -> list[tuple[int, int]]:
        """Slots and names of rows that must go before these names come: rows of few fetches first, among some that lie
        side by side."""
        found: dict[int, int] = {}
        if len(self._rows) + len(coming) <= self._most:
            return []
        new = sum(name not in self._rows for name in coming)
        for _ in range(min(len(self._rows) + new - self._most, len(self._rows))):
            looked: list[tuple[int, int, int]] = []
            for _ in range(len(self._kept)):
                kept = self._kept[self._hand]
                self._hand = (self._hand + 1) % len(self._kept)
                if kept is not None and kept[1] not in found and kept[1] not in coming:
                    looked.append((kept[2].fetched, kept[1], kept[0]))
                if len(looked) == RETURNS_LOOKS_MAX:
                    break
            if looked:
                _, name, slot = min(looked)
                found[name] = slot
        return [(slot, name) for name, slot in found.items()]

    def places(self) -> int:
        """How many rows there are, free ones too."""
        return len(self._kept)

    def blocks(self, first: int, last: int) -> list[Block]:
        """The facts that rebuild these rows."""
        rows = [(slot, name, *one.cells()) for slot, name, one in filter(None, self._kept[first:last])]
        return [(Fact.RETURNS, columns_of(rows))] if rows else []
