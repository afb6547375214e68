"""SimHash (Charikar 2002): 64 bits that differ in few places when texts differ in few shingles; the plain twin.

Shingles are three words in a row (all words in a shorter text), and equal shingles count once. Counted by their number,
menus and tables would outweigh the topic of a page.
"""

from __future__ import annotations

import re
import struct
from itertools import combinations, islice

from outrider.kernels.columns import Column, column
from outrider.kernels.framing import Bytes
from outrider.kernels.siphash import hash_messages

SHINGLE_WORDS = 3
DISTANCE_MAX = 3
_U64 = 2**64 - 1
_MULTIPLIER, _MIXER = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93
_WORD_ENDS = re.compile(
    rb"(?:[\x00-/:-@\[-`{-\x7f]|\xc2[\x85\xa0]|\xe1\x9a\x80|\xe2\x80[\x80-\x8a\xa8\xa9\xaf]|\xe2\x81\x9f|\xe3\x80\x80)+"
)


def simhash_of_text(text: Bytes, key: Bytes, words_max: int) -> tuple[int, int]:
    """Returns the SimHash of the shingles of a text in UTF-8, and their number; of the first `words_max` words. (0, 0)
    for a text without words.

    A bit is set if it is set in the hashes of most shingles. The hash of a word is its SipHash-1-3 under
    the key of 16 bytes, with ASCII letters in lower case. The hash of a shingle mixes those of its words in order.
    ASCII that is neither letter nor digit separates words, as does any white space of Unicode. Octets that are not
    UTF-8 belong to words. Raises ValueError for a key of another size or a `words_max` below 0.
    """
    if words_max < 0:
        raise ValueError(f"{words_max} words are fewer than none")
    found = list(islice(filter(None, _WORD_ENDS.split(bytes(text).lower())), words_max))
    words = [value for (value,) in struct.iter_unpack("<Q", hash_messages(found, bytes(key)))]
    if not words:
        return 0, 0
    width = min(SHINGLE_WORDS, len(words))
    shingles = {_mixed(words[at : at + width]) for at in range(len(words) - width + 1)}
    value = 0
    for bit in range(64):
        having = sum(shingle >> bit & 1 for shingle in shingles)
        value |= (2 * having > len(shingles)) << bit
    return value, len(shingles)


def _mixed(words: list[int]) -> int:
    """One hash of the hashes of words, in their order."""
    value = 0
    for word in words:
        value = (value * _MULTIPLIER + word) & _U64
        value ^= value >> 32
        value = value * _MIXER & _U64
        value ^= value >> 32
    return value


def choices(tables: int) -> list[int]:
    """Returns the masks of the bits by which a table groups fingerprints, one mask for each table.

    Three different bits leave one choice of blocks equal (Manku, Jain, Das Sarma 2007): of four blocks any one, of
    five any two, of six any three; of four blocks one, and of the other 48 bits in four parts one. Raises ValueError.
    """
    if tables == 4:
        return _blocks([16] * 4)
    if tables == 10:
        return [one | two for one, two in combinations(_blocks([13, 13, 13, 13, 12]), 2)]
    if tables == 16:
        masks = []
        for first in _blocks([16] * 4):
            others = [bit for bit in range(63, -1, -1) if not first >> bit & 1]
            masks += [first | sum(1 << bit for bit in others[at : at + 12]) for at in range(0, 48, 12)]
        return masks
    if tables == 20:
        return [one | two | three for one, two, three in combinations(_blocks([11, 11, 11, 11, 10, 10]), 3)]
    raise ValueError(f"{tables} tables: there are designs of 4, 10, 16 and 20")


def _blocks(widths: list[int]) -> list[int]:
    at, masks = 64, []
    for width in widths:
        at -= width
        masks.append(((1 << width) - 1) << at)
    return masks


class SimHashIndex:
    """Finds exactly the fingerprints that differ from a given one in at most `distance` of 64 bits.

    More tables mean fewer candidates and more memory, 8 bytes a fingerprint each: among 2**d fingerprints 4
    tables read 4 * 2**(d - 16), 10 read 10 * 2**(d - 26), 16 read 16 * 2**(d - 28), 20 read 20 * 2**(d - 32).
    """

    def __init__(self, distance: int = 3, tables: int = 4) -> None:
        """Raises ValueError for a distance that is not 0 to 3, or another number of tables than 4, 10, 16 and 20."""
        if not 0 <= distance <= DISTANCE_MAX:
            raise ValueError(f"a distance of {distance} bits: it is 0 to 3")
        self._distance = distance
        self._tables: list[tuple[int, dict[int, set[int]]]] = [(mask, {}) for mask in choices(tables)]
        self._size = 0

    def add(self, fingerprint: int) -> bool:
        """Adds a fingerprint; returns False if it exists. Raises OverflowError for a number outside 64 bits."""
        fingerprint = _checked(fingerprint)
        new = False
        for mask, table in self._tables:
            places = table.setdefault(fingerprint & mask, set())
            new = fingerprint not in places
            places.add(fingerprint)
        self._size += new
        return new

    def near(self, fingerprint: int) -> list[int]:
        """The fingerprints within the distance, the nearest first, among equals the smallest."""
        fingerprint = _checked(fingerprint)
        found = {
            other
            for mask, table in self._tables
            for other in table.get(fingerprint & mask, ())
            if (other ^ fingerprint).bit_count() <= self._distance
        }
        return sorted(found, key=lambda other: ((other ^ fingerprint).bit_count(), other))

    def candidates(self, fingerprint: int) -> int:
        """How many fingerprints `near` looks at, of all tables together."""
        fingerprint = _checked(fingerprint)
        return sum(len(table.get(fingerprint & mask, ())) for mask, table in self._tables)

    def add_many(self, fingerprints: Column) -> int:
        """Adds a column of u64; returns the number of new ones. Raises BufferError or ValueError for another column."""
        return sum(map(self.add, column(fingerprints, "<u8", "fingerprints").tolist()))

    def near_many(self, fingerprints: Column) -> tuple[bytes, bytes]:
        """Returns the results of `near` for each of a column of u64, one after the other (u64), and the number for each
        (u32). Raises as `add_many`."""
        found = [self.near(one) for one in column(fingerprints, "<u8", "fingerprints").tolist()]
        flat = [other for some in found for other in some]
        return struct.pack(f"<{len(flat)}Q", *flat), struct.pack(f"<{len(found)}I", *map(len, found))

    def __len__(self) -> int:
        return self._size


def _checked(fingerprint: int) -> int:
    if not 0 <= fingerprint <= _U64:
        raise OverflowError(f"{fingerprint} is no number of 64 bits")
    return fingerprint
