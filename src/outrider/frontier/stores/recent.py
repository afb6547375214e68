"""URLs that were accepted or met lately. Most links of a page lead to one of them, and need no other look-up.

The mark of a URL is its whole fingerprint mixed with its crawl. Each mark has one place in a table, given by its upper
bits; a later mark of the same place replaces it. A mark in the table belongs to an accepted URL; for all others the
seen-set decides. The table is derived, and empty after a restart.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from outrider.limits import RECENT_BITS_STEPS

Marks = npt.NDArray[np.uint64]
_NOWHERE = 1 << 63
"""A mark that belongs elsewhere fills the first place: in a table of zeros the mark 0 would be found there."""


class Recent:
    """URLs by their marks."""

    def __init__(self) -> None:
        self._older: _Table | None = None
        self._table = _Table(RECENT_BITS_STEPS[0])

    def hold(self, marks: Marks) -> npt.NDArray[np.bool_]:
        """Which of these URLs are known for certain."""
        found = self._table.hold(marks)
        if self._older is not None:
            found |= self._older.hold(marks)
        return found

    def note(self, marks: Marks) -> None:
        """Notes marks of accepted URLs."""
        table = self._table
        table.noted += len(marks)
        if table.noted > len(table) // 2 and table.bits < RECENT_BITS_STEPS[-1]:
            # The longer table starts empty; the shorter one also counts until the longer is half full.
            self._older = table
            table = self._table = _Table(next(bits for bits in RECENT_BITS_STEPS if bits > table.bits))
        elif self._older is not None and table.noted > len(table) // 2:
            self._older = None
        table.note(marks)

    def forget(self) -> None:
        """Empties the tables, because something was deleted."""
        self._older = None
        self._table = _Table(RECENT_BITS_STEPS[0])

    def bytes(self) -> int:
        """Bytes of the tables; their untouched pages use no memory."""
        return 8 * sum(len(table) for table in (self._table, self._older) if table is not None)


class _Table:
    """One table of marks. Its zeros use no memory until they are touched."""

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
