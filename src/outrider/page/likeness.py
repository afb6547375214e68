"""How like pages are: the SimHash of their shingles, under one key for ever."""

from __future__ import annotations

from collections.abc import Iterable

from outrider import kernels
from outrider.limits import WORDS_PER_PAGE_MAX

SIMHASH_VERSION = 2
"""Grows with every change of the values: those of different versions are not compared. 1 counted words."""
SHINGLES_MIN = 50
"""Pages with fewer shingles are copies by their digest only: a word more or less changes too many bits, or too few."""
# Fixed for ever: fingerprints of pages are compared across crawls, and nothing is gained by colliding with oneself.
_KEY = b"outrider simhash"


def simhash_of_text(text: bytes) -> tuple[int, int]:
    """The 64-bit SimHash of a text in UTF-8 by its shingles of three words, each counted once, and their number."""
    return kernels.simhash_of_text(text, _KEY, WORDS_PER_PAGE_MAX)


def simhash(features: Iterable[int | tuple[int, float]]) -> int:
    """The SimHash of features: hashes of 64 bits, or (hash, weight) pairs (Charikar 2002).

    A bit is set if the features that have it outweigh those that have not. 0 for no features.
    """
    sums = [0.0] * 64
    for feature in features:
        value, weight = feature if isinstance(feature, tuple) else (feature, 1)
        if not 0 <= value < 1 << 64:
            raise OverflowError(f"{value} is no number of 64 bits")
        for bit in range(64):
            sums[bit] += weight if value >> bit & 1 else -weight
    return sum(1 << bit for bit in range(64) if sums[bit] > 0)
