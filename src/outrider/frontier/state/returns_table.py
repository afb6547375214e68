"""The returns of hosts and shapes of paths, by hashes of their names, in rows of which a checkpoint copies ranges.

A row changes its name only by a fact, so a replay has the same rows."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from outrider.frontier.format.facts import Block, Fact, Values, columns_of
from outrider.frontier.policy.returns import JUDGED_AGAIN, Returns
from outrider.frontier.state.url_table import KnownRows
from outrider.limits import RETURNS_KEPT_MAX, RETURNS_LOOKS_MAX

_FREE = 1 << 62
_ABSENT = (-1, 0, Returns())  # as a name without returns is kept


class ReturnsTable:
    """The returns by name: `RETURNS_KEPT_MAX` of them at most, which the caller sees to by `victims`."""

    def __init__(self, most: int = RETURNS_KEPT_MAX) -> None:
        self._most = most
        self._kept: dict[int, tuple[int, int, Returns]] = {}  # by name: row, slot, returns
        self._names: list[int | None] = []  # by row
        self._fetched = np.zeros(RETURNS_LOOKS_MAX, np.int64)  # by row: how many fetches, _FREE for a free row
        self._free: list[int] = []
        self._hand = 0  # circles through the rows in search of a victim

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, name: int) -> Returns:
        """Returns the returns under a name; those of no fetches for an unknown name. The caller must not
        change them."""
        return self._kept.get(name, _ABSENT)[2]

    def judged_again(self) -> list[tuple[int, int]]:
        """Names and slots of the hosts whose parked URLs are judged again."""
        return [(name, slot) for name, (_, slot, one) in self._kept.items() if one.since == JUDGED_AGAIN]

    def _returns(self, slots: Values, names: Values, *cells: Values, hand: KnownRows | None = None) -> None:
        if hand is not None:
            told = hand.returns
        else:
            told = [Returns(*one) for one in zip(*(column.tolist() for column in cells), strict=True)]
            slots, names = slots.tolist(), names.tolist()
        rows, fetched = [], []
        for slot, name, one in zip(slots, names, told, strict=True):
            row = self._kept.get(name, _ABSENT)[0]
            gone = not one.share and not any(one.cells())  # a row of zeros removes it
            if gone and row < 0:
                continue
            if gone:
                del self._kept[name]
                self._names[row] = None
                self._free.append(row)
            else:
                if row < 0:
                    row = self._free.pop() if self._free else len(self._names)
                    self._names[row : row + 1] = [name]
                self._kept[name] = row, slot, one
            rows.append(row)
            fetched.append(_FREE if gone else one.fetched)
        while len(self._names) > len(self._fetched):
            self._fetched = np.concatenate((self._fetched, np.zeros_like(self._fetched)))
        self._fetched[rows] = fetched

    def victims(self, coming: Collection[int]) -> list[tuple[int, int]]:
        """Returns slots and names of rows that must leave before these names are added: of each group of neighbouring
        rows the one with the fewest fetches."""
        known = [self._kept[name][0] for name in coming if name in self._kept]
        most = len(self) - len(known)  # the number of rows that may leave
        wanted = min(len(self) + len(coming) - len(known) - self._most, most)
        if wanted <= 0:
            return []
        fetched = self._fetched[: len(self._names)].copy()
        fetched[known] = _FREE
        looks = max(1, min(RETURNS_LOOKS_MAX, len(fetched) // wanted))
        groups = ((self._hand + np.arange(wanted * looks)) % len(fetched)).reshape(wanted, looks)
        self._hand = (self._hand + wanted * looks) % len(fetched)
        rows = groups[np.arange(wanted), fetched[groups].argmin(axis=1)]
        rows = rows[fetched[rows] != _FREE]
        if len(rows) < wanted:  # all rows of some groups are free, or to stay
            fetched[rows] = _FREE
            rows = np.append(rows, np.flatnonzero(fetched != _FREE)[: wanted - len(rows)])
        names = [name for row in rows.tolist() if (name := self._names[row]) is not None]
        return [(self._kept[name][1], name) for name in names]

    def places(self) -> int:
        """How many rows there are, free ones too."""
        return len(self._names)

    def blocks(self, first: int, last: int) -> list[Block]:
        """The facts that rebuild these rows."""
        names = [name for name in self._names[first:last] if name is not None]
        rows = [(slot, name, *one.cells()) for name in names for _, slot, one in [self._kept[name]]]
        return [(Fact.RETURNS, columns_of(rows))] if rows else []
