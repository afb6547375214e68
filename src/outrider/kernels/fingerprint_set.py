"""The exact set of seen keys in memory; a key is a slot and a fingerprint of 56 bits. The plain twin.

The native kernel needs less than 6 bytes per key from 10 million keys on, and never moves more than one leaf of keys.
"""

from __future__ import annotations

import sys

from outrider.kernels.columns import Column, column, same_length

SLOTS = 4_096
"""A slot is below this."""
_FINGERPRINT = (1 << 56) - 1


class FingerprintSet:
    """A set of keys (slot u16 below 4096, fingerprint u64 of which the lower 56 bits count).

    Every call has equal numbers of slots and fingerprints, as numpy arrays or bytes, and returns one byte per key. It
    raises ValueError, before anything has changed, when their numbers differ or a slot is too large. Two threads must
    not call it at once.
    """

    def __init__(self) -> None:
        self._keys: set[int] = set()

    def check(self, slots: Column, fingerprints: Column) -> bytes:
        """Returns 1 for each key that is in the set, otherwise 0."""
        return bytes(key in self._keys for key in keys_of(slots, fingerprints))

    def add(self, slots: Column, fingerprints: Column) -> bytes:
        """Adds the keys; 1 for each that was new, 0 for those known, be it from earlier in the batch.

        Keys in ascending order (by slot, then fingerprint) are added several times faster, by the native kernel.
        """
        answers = bytearray()
        for key in keys_of(slots, fingerprints):
            answers.append(key not in self._keys)
            self._keys.add(key)
        return bytes(answers)

    def remove(self, slots: Column, fingerprints: Column) -> bytes:
        """Removes the keys; returns 1 for each key that was in the set."""
        answers = bytearray()
        for key in keys_of(slots, fingerprints):
            answers.append(key in self._keys)
            self._keys.discard(key)
        return bytes(answers)

    def keys_from(self, slot: int, fingerprint: int, most: int) -> tuple[bytes, bytes]:
        """Returns the keys from this one on in order, as columns of slots and fingerprints: at least `most` if there
        are as many, and maybe some thousand more."""
        if not 0 <= slot < SLOTS:
            raise ValueError(f"a slot is below {SLOTS}, not {slot}")
        first = slot << 56 | fingerprint & _FINGERPRINT
        return columns_of(sorted(key for key in self._keys if key >= first)[:most])

    def __len__(self) -> int:
        return len(self._keys)

    def statistics(self) -> dict[str, int]:
        """Returns the number of keys and the bytes of memory for them, without the holes between them in the heap."""
        return {"keys": len(self._keys), "bytes": sys.getsizeof(self._keys) + 36 * len(self._keys)}


def keys_of(slots: Column, fingerprints: Column) -> list[int]:
    """Returns the keys as numbers: the slot above the 56 bits of the fingerprint."""
    numbers, prints = column(slots, "<u2", "slots").tolist(), column(fingerprints, "<u8", "fingerprints").tolist()
    same_length("slots", len(numbers), "fingerprints", len(prints))
    for place, slot in enumerate(numbers):
        if slot >= SLOTS:
            raise ValueError(f"place {place}: a slot is below {SLOTS}, not {slot}")
    return [slot << 56 | print_ & _FINGERPRINT for slot, print_ in zip(numbers, prints, strict=True)]


def columns_of(keys: list[int]) -> tuple[bytes, bytes]:
    """Returns keys as two columns: slots (u16) and fingerprints (u64)."""
    return (
        b"".join((key >> 56).to_bytes(2, "little") for key in keys),
        b"".join((key & _FINGERPRINT).to_bytes(8, "little") for key in keys),
    )
