"""Values by name, in rows of which a checkpoint copies ranges. Above a limit those that changed least recently leave.

A row changes its name only by a fact, so a replay has the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

Name = TypeVar("Name", int, str)
Value = TypeVar("Value")


class LatestRows(Generic[Name, Value]):
    """A base class: `most` rows at most, which the caller sees to by `victims`."""

    def __init__(self, most: int, absent: Value) -> None:
        self._most, self._absent = most, absent
        self._kept: dict[Name, tuple[int, int, Value]] = {}  # by name: row, slot, value; the latest change is last
        self._names: list[Name | None] = []  # by row
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, name: Name) -> Value:
        """Returns the value of a name; that of an absent one for an unknown name."""
        found = self._kept.get(name)
        return self._absent if found is None else found[2]

    def slot(self, name: Name) -> int:
        """Returns the slot of a known name."""
        return self._kept[name][1]

    def latest(self) -> Iterator[tuple[Name, Value]]:
        """Yields names and values, the one that changed last first."""
        for name in reversed(self._kept):
            yield name, self._kept[name][2]

    def victims(self, coming: set[Name]) -> list[tuple[int, Name]]:
        """Returns slots and names that must leave before these names are added: those that have not changed for the
        longest time."""
        wanted = len(self._kept) + sum(name not in self._kept for name in coming) - self._most
        found: list[tuple[int, Name]] = []
        for name, (_, slot, _) in self._kept.items():
            if len(found) >= wanted:
                break
            if name not in coming:
                found.append((slot, name))
        return found

    def _put(self, slot: int, name: Name, value: Value | None) -> None:
        """Sets the value of a name; None removes it."""
        row, _, _ = self._kept.pop(name, (-1, 0, None))
        if value is None:
            if row >= 0:
                self._names[row] = None
                self._free.append(row)
            return
        if row < 0:
            row = self._free.pop() if self._free else len(self._names)
            self._names[row : row + 1] = [name]
        self._kept[name] = row, slot, value

    def places(self) -> int:
        """How many rows there are, free ones too."""
        return len(self._names)

    def _rows(self, first: int, last: int) -> Iterator[tuple[int, Name, Value]]:
        """Yields slot, name and value of these rows, without the free ones."""
        for name in self._names[first:last]:
            if name is not None:
                _, slot, value = self._kept[name]
                yield slot, name, value
