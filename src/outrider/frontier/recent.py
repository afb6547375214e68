"""URLs that were accepted or met lately: most links of a page lead to one of them, and nothing else is looked up then.

A table in which each URL has one place, told by the upper bits of its mark, which is its whole fingerprint mixed with
its crawl; a later URL of the same place takes it. What it holds was accepted; of all else the seen-set knows. Derived,
and empty after a restart.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from outrider.limits import RECENT_BITS_STEPS

Marks = npt.NDArray[np.uint64]
_NOWHERE = 1 << 63
"""A mark of another place than the first, where the mark 0 would be found in a table of zeros."""


class Recent:
    """URLs by their marks."""

    def __init__(self) -> None:
        self._older: _Table | None = None
        self._table = _Table(RECENT_BITS_STEPS[0])

    def hold(self, marks: Marks) -> npt.NDArray[np.bool_]:
        """Which of them are known for certain."""
        found = self._table.hold(marks)
        if self._older is not None:
            found |= self._older.hold(marks)
        return found

    def note(self, marks: Marks) -> None:
        """These were accepted."""
        table = self._table
        table.noted += len(marks)
        if table.noted > len(table) // 2 and table.bits < RECENT_BITS_STEPS[-1]:
            # Nothing is moved: a longer table is filled anew, and beside it the shorter one still tells what it holds.
            self._older = table
            table = self._table = _Table(next(bits for bits in RECENT_BITS_STEPS if bits > table.bits))
        elif self._older is not None and table.noted > len(table) // 2:
            self._older = None
        table.note(marks)

    def forget(self) -> None:
        """Something was deleted: nothing is known for certain any more."""
        self._older = None
        self._table = _Table(RECENT_BITS_STEPS[0])

    def bytes(self) -> int:
        """Of memory, as far as it was ever touched."""
        return 8 * sum(len(table) for table in (self._table, self._older) if table is not None)


class _Table:
    """The marks of one length of table. Zeros are memory that is not there until it is touched."""

    __slots__ = ("_marks", "_shift", "bits", "noted")

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self.noted = 0
        self._shift = np.uint64(64 - bits)
        self._marks: Marks = np.zeros(1 << bits, np.uint64)
        self._marks[0] = _NOWHERE

    def __len__(self) -> int:
        return len(self._marks)

    def hold(self, marks: Marks) -> npt.NDArray[np.bool_]:
        found: npt.NDArray[np.bool_] = self._marks.take((marks >> self._shift).view(np.int64)) == marks
        return found

    def note(self, marks: Marks) -> None:
        self._marks[(marks >> self._shift).view(np.int64)] = marks
