"""A set of tokens in a bit each: tokens of one opening of a store follow one another."""

from __future__ import annotations

from typing import Final

_CHUNK_BITS: Final = 16


class TokenSet:
    """Whole numbers from 0, with little memory if they are near to one another."""

    def __init__(self) -> None:
        self._chunks: dict[int, bytearray] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, token: int) -> bool:
        chunk = self._chunks.get(token >> _CHUNK_BITS)
        return chunk is not None and bool(chunk[(token & 0xFFFF) >> 3] & 1 << (token & 7))

    def add(self, token: int) -> None:
        """Adds a token."""
        chunk = self._chunks.setdefault(token >> _CHUNK_BITS, bytearray(1 << _CHUNK_BITS - 3))
        self._count += not chunk[(token & 0xFFFF) >> 3] & 1 << (token & 7)
        chunk[(token & 0xFFFF) >> 3] |= 1 << (token & 7)

    def discard(self, token: int) -> None:
        """Removes a token, if it is there."""
        if token in self:
            self._chunks[token >> _CHUNK_BITS][(token & 0xFFFF) >> 3] ^= 1 << (token & 7)
            self._count -= 1
