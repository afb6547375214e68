"""How like pages are: the SimHash of their shingles, under one key for ever."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from outrider import kernels
from outrider.limits import WORDS_PER_PAGE_MAX

SIMHASH_VERSION = 2
"""Grows with every change of the values: those of different versions are not compared. 1 counted words."""
SHINGLES_MIN = 50
"""Pages with fewer shingles are copies by their digest only: a word more or less changes too many bits, or too few."""
BLOCK_WORDS_MIN = 10
"""A block of text with fewer words counts as a part around the content: the number of words of a block is the best sign
of that in a page (Kohlschuetter, Fankhauser, Nejdl 2010)."""
# Fixed for ever: fingerprints of pages are compared across crawls, and nothing is gained by colliding with oneself.
LIKENESS_KEY = b"outrider simhash"


def simhash_of_text(text: bytes) -> tuple[int, int]:
    """The 64-bit SimHash of a text in UTF-8 by its shingles of three words, each counted once, and their number."""
    return kernels.simhash_of_text(text, LIKENESS_KEY, WORDS_PER_PAGE_MAX)


def text_digest(text: bytes) -> int:
    """Returns 64 bits over the text of a page, to detect changes: words with digits and blocks of few words,
    such as menus and lists of links, do not count if there are others. 0 without words."""
    return kernels.text_digest(text, LIKENESS_KEY, BLOCK_WORDS_MIN)


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


def near_pairs(
    fingerprints: npt.ArrayLike, known: Iterable[npt.ArrayLike], *, distance: int = 3, tables: int = 4
) -> Iterator[tuple[int, int]]:
    """Yields all pairs (one of `fingerprints`, one of `known`) that differ in at most `distance` bits.

    For more known fingerprints than fit into memory (Manku, Jain, Das Sarma 2007, section 4.1): the index contains
    the first ones, and the known ones are compared once, in pieces: of a `numpy.memmap`, of runs, of files. Raises
    ValueError as `SimHashIndex`.
    """
    index = kernels.SimHashIndex(distance, tables)
    index.add_many(np.asarray(fingerprints, "<u8").tobytes())
    for piece in known:
        others = np.asarray(piece, "<u8")
        found, counts = index.near_many(others.tobytes())
        rows = np.repeat(others, np.frombuffer(counts, "<u4"))
        yield from zip(np.frombuffer(found, "<u8").tolist(), rows.tolist(), strict=True)
