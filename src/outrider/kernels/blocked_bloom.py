"""A Bloom filter of blocks: all bits of a key are in one line of 512 bits. The plain twin.

A key (slot, fingerprint of 56 bits) that was added is always found. Another key is found by chance: with 12 bits a key,
one in 220. The lines are in parts, each for a range of keys. A part can be replaced by larger ones, so that the filter
grows and only one part exists twice.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator

from outrider.kernels.columns import Column, column, same_length
from outrider.kernels.fingerprint_set import keys_of

LINES_MAX = 1 << 30
HASHES_MAX = 16
_LINE_BITS = 512
_WHOLE = (1 << 64) - 1
_FINGERPRINT = (1 << 56) - 1
_PREFIX_SHIFT = 4
_SPREAD = 0x9E37_79B9_7F4A_7C15


class BlockedBloom:
    """lines: of 512 bits, in one part; hashes: how many bits a key sets, at most. Both kinds of it set the same bits.

    A call has equal numbers of slots and fingerprints, as `FingerprintSet` has. Raises ValueError for other numbers.
    The first key of a part is a number: the upper 64 of the 68 bits of the key.
    """

    def __init__(self, lines: int, hashes: int) -> None:
        _check_lines(lines)
        if not 1 <= hashes <= HASHES_MAX:
            raise ValueError(f"hashes: use 1 to {HASHES_MAX}, not {hashes}")
        self._hashes = hashes
        self._firsts = [0]
        self._parts = [_Part(lines)]
        self._larger: tuple[int, list[int], list[_Part]] | None = None

    def add(self, slots: Column, fingerprints: Column) -> None:
        """Adds keys."""
        self._add(self._firsts, self._parts, slots, fingerprints)

    def _add(self, firsts: list[int], parts: list[_Part], slots: Column, fingerprints: Column) -> None:
        for part, line, mask in self._places(firsts, parts, slots, fingerprints):
            part.masks[line] = part.masks.get(line, 0) | mask
            part.keys += 1

    def check(self, slots: Column, fingerprints: Column) -> bytes:
        """Returns 0 for each key that was certainly not added, otherwise 1."""
        places = self._places(self._firsts, self._parts, slots, fingerprints)
        return bytes(part.masks.get(line, 0) & mask == mask for part, line, mask in places)

    def _places(
        self, firsts: list[int], parts: list[_Part], slots: Column, fingerprints: Column
    ) -> Iterator[tuple[_Part, int, int]]:
        """Yields the part and the line of each key, and its bits in it."""
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
            part = parts[max(bisect_right(firsts, key >> _PREFIX_SHIFT) - 1, 0)]
            yield part, mixed * part.lines >> 64, mask

    def begin(self, part: int, firsts: Column, lines: Column) -> None:
        """Begins to replace a part, counted from 0, by empty ones. firsts: their first keys (u64), which ascend from
        the first key of the part; lines: their lines (u64). Until `replace` nothing else changes."""
        wanted, sizes = column(firsts, "<u8", "firsts").tolist(), column(lines, "<u8", "lines").tolist()
        same_length("firsts", len(wanted), "lines", len(sizes))
        if not 0 <= part < len(self._parts):
            raise ValueError(f"part: use 0 to {len(self._parts) - 1}, not {part}")
        end = [*self._firsts, 1 << 64][part + 1]
        if wanted != sorted(set(wanted)) or wanted[:1] != [self._firsts[part]] or wanted[-1] >= end:
            raise ValueError("firsts: use keys of the part that ascend from its first one")
        for some in sizes:
            _check_lines(some)
        self._larger = part, wanted, [_Part(some) for some in sizes]

    def fill(self, slots: Column, fingerprints: Column) -> None:
        """Adds keys of the part that is being replaced to the new ones."""
        _, firsts, parts = self._begun()
        self._add(firsts, parts, slots, fingerprints)

    def replace(self) -> None:
        """Puts the new parts in the place of the old one."""
        part, firsts, parts = self._begun()
        self._firsts[part : part + 1], self._parts[part : part + 1] = firsts, parts
        self._larger = None

    def abandon(self) -> None:
        """Forgets the new parts, if there are any."""
        self._larger = None

    def _begun(self) -> tuple[int, list[int], list[_Part]]:
        if self._larger is None:
            raise ValueError("no part is being replaced: use begin first")
        return self._larger

    def parts(self) -> tuple[bytes, bytes, bytes]:
        """Returns the first key of each part, how many keys were added to it, and its lines: columns of u64."""
        columns = (self._firsts, [part.keys for part in self._parts], [part.lines for part in self._parts])
        firsts, keys, lines = (array("Q", numbers).tobytes() for numbers in columns)
        return firsts, keys, lines

    def __len__(self) -> int:
        return sum(part.keys for part in self._parts)

    def statistics(self) -> dict[str, int]:
        """Returns how many keys were added, the bits of the filter, its bytes with those of new parts, and the bits of
        each key."""
        lines = sum(part.lines for part in self._parts)
        larger = sum(part.lines for part in self._larger[2]) if self._larger is not None else 0
        return {
            "keys": len(self),
            "bits": _LINE_BITS * lines,
            "bytes": _LINE_BITS // 8 * (lines + larger),
            "hashes": self._hashes,
        }


class _Part:
    """The lines for a range of keys: the bits of those that have any."""

    def __init__(self, lines: int) -> None:
        self.lines = lines
        self.keys = 0
        self.masks: dict[int, int] = {}


def _check_lines(lines: int) -> None:
    if not 1 <= lines <= LINES_MAX:
        raise ValueError(f"lines: use 1 to {LINES_MAX}, not {lines}")
