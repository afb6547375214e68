"""A Bloom filter of blocks: all bits of a key are in one line of 512 bits. The plain twin.

A key (slot, fingerprint of 56 bits) that was added is always found. Another key is found by chance: with 12 bits a key,
one in 220.
"""

from __future__ import annotations

from collections.abc import Iterator

from outrider.kernels.columns import Column
from outrider.kernels.fingerprint_set import keys_of

LINES_MAX = 1 << 30
HASHES_MAX = 16
_LINE_BITS = 512
_WHOLE = (1 << 64) - 1
_FINGERPRINT = (1 << 56) - 1
_SPREAD = 0x9E37_79B9_7F4A_7C15


class BlockedBloom:
    """lines: of 512 bits; hashes: how many bits a key sets, at most. Both kinds of it set the same bits.

    A call has equal numbers of slots and fingerprints, as `FingerprintSet` has. Raises ValueError for other numbers.
    """

    def __init__(self, lines: int, hashes: int) -> None:
        if not 1 <= lines <= LINES_MAX:
            raise ValueError(f"lines: use 1 to {LINES_MAX}, not {lines}")
        if not 1 <= hashes <= HASHES_MAX:
            raise ValueError(f"hashes: use 1 to {HASHES_MAX}, not {hashes}")
        self._lines = lines
        self._hashes = hashes
        self._masks: dict[int, int] = {}
        self._keys = 0

    def add(self, slots: Column, fingerprints: Column) -> None:
        """Adds keys."""
        for line, mask in self._places(slots, fingerprints):
            self._masks[line] = self._masks.get(line, 0) | mask
            self._keys += 1

    def check(self, slots: Column, fingerprints: Column) -> bytes:
        """Returns 0 for each key that was certainly not added, otherwise 1."""
        places = self._places(slots, fingerprints)
        return bytes(self._masks.get(line, 0) & mask == mask for line, mask in places)

    def _places(self, slots: Column, fingerprints: Column) -> Iterator[tuple[int, int]]:
        """Yields the line of each key, and its bits in it."""
        for key in keys_of(slots, fingerprints):
            mixed = key & _FINGERPRINT ^ (key >> 56) * _SPREAD & _WHOLE
            mixed = (mixed ^ mixed >> 30) * 0xBF58_476D_1CE4_E5B9 & _WHOLE
            mixed = (mixed ^ mixed >> 27) * 0x94D0_49BB_1331_11EB & _WHOLE
            mixed ^= mixed >> 31
            bits = mixed * _SPREAD & _WHOLE ^ mixed >> 29
            mask = 0
            for _ in range(self._hashes):
                mask |= 1 << (bits >> 55)
                bits = bits * _SPREAD & _WHOLE
            yield mixed * self._lines >> 64, mask

    def __len__(self) -> int:
        return self._keys

    def statistics(self) -> dict[str, int]:
        """Returns how many keys were added, the bits and bytes of the filter, and the bits of each key."""
        bits = self._lines * _LINE_BITS
        return {"keys": self._keys, "bits": bits, "bytes": bits // 8, "hashes": self._hashes}
