"""Hash to row: the row of a host's or queue's state, by its 64-bit hash; the plain twin of the native kernel.

On disk a host or queue is named by a keyed hash, in this process it is a row of dense columns. The native kernel needs
some 17 bytes per entry and grows in parts, so that no call waits for the whole.
"""

from __future__ import annotations

import sys

from outrider.kernels.columns import NONE, Column, column, packed, same_length


class Index:
    """A map from u64 hashes, any of them, to u32 rows below NONE. Not for calls from two threads at once."""

    def __init__(self) -> None:
        self._rows: dict[int, int] = {}

    def find(self, hashes: Column) -> bytes:
        """Returns the row of each hash (u64), as u32, NONE for an unknown hash."""
        return packed([self._rows.get(hash_, NONE) for hash_ in column(hashes, "<u8", "hashes").tolist()], "<u4")

    def add(self, hashes: Column, rows: Column) -> None:
        """Sets the row (u32) of each hash (u64), in order; a known hash gets the new row.

        Raises ValueError when the numbers of hashes and rows differ or a row is NONE; then nothing was added.
        """
        keys, values = column(hashes, "<u8", "hashes").tolist(), column(rows, "<u4", "rows").tolist()
        same_length("hashes", len(keys), "rows", len(values))
        if NONE in values:
            raise ValueError(f"rows: at {values.index(NONE)} stands {NONE}, no row")
        self._rows.update(zip(keys, values, strict=True))

    def remove(self, hashes: Column) -> None:
        """Forgets the hashes (u64); unknown ones are passed over."""
        for hash_ in column(hashes, "<u8", "hashes").tolist():
            self._rows.pop(hash_, None)

    def __len__(self) -> int:
        return len(self._rows)

    def statistics(self) -> dict[str, int]:
        """Returns the number of entries, and the bytes of memory for them."""
        return {"entries": len(self._rows), "bytes": sys.getsizeof(self._rows) + 60 * len(self._rows)}
