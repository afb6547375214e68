"""The tree of RFC 9162 section 2.1 over lines: SHA-256, a leaf is 0x00 and the line, a node is 0x01 and its two halves.

`LineTree` keeps only the complete subtrees of all lines so far, at most one for each power of two.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

_HASH_BYTES: Final = 32
State = tuple[int, list[str]]
"""The number of lines, and the hashes of the complete subtrees as hex digits, the largest first."""


def leaf_hash(line: bytes) -> bytes:
    """Returns the hash of a line."""
    return hashlib.sha256(b"\x00" + line).digest()


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


class LineTree:
    """The tree over a growing list of lines."""

    __slots__ = ("_nodes", "size")

    def __init__(self, state: State = (0, [])) -> None:
        """Raises ValueError for a state that no tree has."""
        self.size, nodes = state
        self._nodes = [bytes.fromhex(node) for node in nodes]
        if len(self._nodes) != self.size.bit_count() or any(len(node) != _HASH_BYTES for node in self._nodes):
            raise ValueError("this is not the state of a tree")

    def extend(self, lines: Iterable[bytes]) -> None:
        """Adds lines."""
        for line in lines:
            node, size = leaf_hash(line), self.size
            while size & 1:
                node = _node(self._nodes.pop(), node)
                size >>= 1
            self._nodes.append(node)
            self.size += 1

    def root(self) -> bytes:
        """Returns the hash of the whole tree."""
        if not self._nodes:
            return hashlib.sha256(b"").digest()
        *others, found = self._nodes
        for node in reversed(others):
            found = _node(node, found)
        return found

    @property
    def state(self) -> State:
        """Returns what a tree can be continued from."""
        return self.size, [node.hex() for node in self._nodes]


class ProofMaker:
    """Makes inclusion proofs for a list of lines. It holds 64 bytes for each line."""

    def __init__(self, leaves: bytes | bytearray) -> None:
        """leaves: the hashes of all lines, one after another."""
        self.size = len(leaves) // _HASH_BYTES
        self._levels: list[bytes | bytearray] = [leaves]
        while len(self._levels[-1]) >= 2 * _HASH_BYTES:
            below, above = self._levels[-1], bytearray()
            for at in range(0, len(below) - 2 * _HASH_BYTES + 1, 2 * _HASH_BYTES):
                above += hashlib.sha256(b"\x01" + below[at : at + 2 * _HASH_BYTES]).digest()
            self._levels.append(above)

    def root(self) -> bytes:
        """Returns the hash of the whole tree."""
        return self._hash(0, self.size)

    def proof(self, index: int) -> list[bytes]:
        """Returns the inclusion proof of a line (section 2.1.3.1), from the leaf to the root."""
        begin, end, found = 0, self.size, []
        while end - begin > 1:
            middle = begin + _half(end - begin)
            if index < middle:
                found.append(self._hash(middle, end))
                end = middle
            else:
                found.append(self._hash(begin, middle))
                begin = middle
        return found[::-1]

    def _hash(self, begin: int, end: int) -> bytes:
        length = end - begin
        if length & (length - 1) == 0:  # a complete subtree
            at = begin // length * _HASH_BYTES
            return bytes(self._levels[length.bit_length() - 1][at : at + _HASH_BYTES])
        middle = begin + _half(length)
        return _node(self._hash(begin, middle), self._hash(middle, end))


def _half(length: int) -> int:
    """Returns the largest power of two below a length."""
    return 1 << ((length - 1).bit_length() - 1)


def proves(leaf: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes) -> bool:
    """Whether a proof shows that a leaf has this index in the tree of this size and root (section 2.1.3.2)."""
    if not 0 <= index < size:
        return False
    place, last, found = index, size - 1, leaf
    for other in proof:
        if not last:
            return False
        if place & 1 or place == last:
            found = _node(other, found)
            while place and not place & 1:
                place >>= 1
                last >>= 1
        else:
            found = _node(found, other)
        place >>= 1
        last >>= 1
    return not last and found == root
