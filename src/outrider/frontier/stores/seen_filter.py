"""The filter before seen keys on disk: it denies most new keys without a read.

It is divided into parts by the order of the keys, as the runs are. A part with too many keys is filled anew from its
slice of the runs, with more lines and, if it would become too large, as two parts or more. So the filter grows within
its memory: only one part exists twice at any time.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from outrider import kernels
from outrider.limits import (
    SEEN_FILTER_BITS,
    SEEN_FILTER_HASHES,
    SEEN_FILTER_PART_SHARE,
    SEEN_FILTER_REST_SHARE,
    SEEN_FRESH_KEYS_MIN,
    SEEN_FRESH_SHARE,
    SEEN_FRESH_SHARE_LEAST,
)
from outrider.storage.key_runs import PREFIX_END, KeyRun

_LINE_BITS = 512
_LINE_BYTES = _LINE_BITS // 8
_GROWTH_MIN = 1.5
"""A part is replaced by one that is larger by this factor or more, so that keys are not added again too often."""
_GROWTH_MIN_FULL = 1.1
"""The same for a filter that uses all of its memory, where parts with fewer bits a key than others cost more."""


@dataclass(frozen=True, slots=True)
class Misfit:
    """A part of the filter to be replaced, by its place. lines: of the parts that replace it, which have about
    `lines_max` each at most; first, end: its keys, by the upper 64 bits; keys: their number."""

    part: int
    lines: int
    lines_max: int
    first: int
    end: int
    keys: int


class SeenFilter:
    """keys: how many it has soon; bytes_max: the memory of the set of keys that it belongs to."""

    def __init__(self, keys: int, bytes_max: int) -> None:
        lines = min(_lines_wanted(max(keys, SEEN_FRESH_KEYS_MIN)), _lines_max(bytes_max))
        self.replaced = 0  # how many parts were replaced
        self.denied = 0  # keys that were checked and that the filter does not have
        self.false = 0  # keys that it did not deny, and no run has
        self._bloom = kernels.BlockedBloom(lines, SEEN_FILTER_HASHES)
        self._fitted: tuple[int, int] | None = None  # keys and memory for which each part has its lines

    def add(self, slots: Any, fingerprints: Any) -> None:
        """Adds keys of a run."""
        self._bloom.add(slots, fingerprints)

    def check(self, slots: Any, fingerprints: Any) -> npt.NDArray[np.bool_]:
        """Whether the runs may have each of these keys."""
        maybe = np.frombuffer(self._bloom.check(slots, fingerprints), np.bool_)
        self.denied += len(maybe) - int(np.count_nonzero(maybe))
        return maybe

    def misfit(self, bytes_max: int) -> Misfit | None:
        """Returns the part that is to be replaced next, None if all have the lines that the memory allows."""
        if self._fitted == (len(self._bloom), bytes_max):
            return None
        firsts, *counts = (np.frombuffer(column, np.uint64) for column in self._bloom.parts())
        keys, lines = (column.astype(np.float64) for column in counts)
        lines_max, piece = _lines_max(bytes_max), _piece_lines(bytes_max)
        total = int(lines.sum())
        shares = lines_max * keys / max(keys.sum(), 1)
        wanted = np.maximum(np.floor(np.minimum(_lines_wanted(keys), shares)), 1)
        growth_min = _GROWTH_MIN if _lines_wanted(keys.sum()) <= lines_max else _GROWTH_MIN_FULL
        richest = int((lines / wanted).argmax())
        change: tuple[int, int] | None = None  # a part, and its new lines
        if total > lines_max:  # the memory became less
            if lines[richest] > wanted[richest]:
                change = richest, max(int(wanted[richest]) * 7 // 8, 1)  # less than its share, so it lasts
        else:
            need = np.where(keys * SEEN_FILTER_BITS > lines * _LINE_BITS, wanted / lines, 0)
            poorest = int(need.argmax())
            room = lines_max - total + min(int(lines[poorest]), 2 * piece)
            larger = min(int(wanted[poorest]), room)
            if need[poorest] > growth_min and larger > growth_min * lines[poorest]:
                change = poorest, larger
            elif need[poorest] > growth_min and lines[richest] > growth_min * wanted[richest]:
                change = richest, int(wanted[richest])
        if change is None:
            self._fitted = len(self._bloom), bytes_max
            return None
        part, new_lines = change
        first, *later = firsts[part : part + 2].tolist()
        return Misfit(part, new_lines, piece, first, later[0] if later else PREFIX_END, int(keys[part]))

    def replace(self, misfit: Misfit, runs: Sequence[KeyRun]) -> Generator[int, None, None]:
        """Fills new parts from the runs, and then replaces the old one. Yields keys. Raises DamagedStoreError."""
        pieces = -(-misfit.lines // misfit.lines_max)
        pages = np.concatenate([np.zeros(0, np.uint64), *(run.page_prefixes(misfit.first, misfit.end) for run in runs)])
        pages.sort()
        cuts = pages[np.arange(1, pieces) * len(pages) // pieces] if len(pages) else pages
        firsts = np.unique(np.append(cuts, np.uint64(misfit.first)))
        lines = np.full(len(firsts), max(misfit.lines // len(firsts), 1), np.uint64)
        old_keys = len(self._bloom)
        self._bloom.begin(misfit.part, firsts, lines)
        try:
            for run in runs:
                for slots, prints in run.read(misfit.first, misfit.end):
                    self._bloom.fill(slots, prints)
                    yield len(slots)
            self._bloom.replace()
        finally:
            self._bloom.abandon()
        # The observed false rate is that of the present parts, so it forgets the share of the old part.
        self.denied -= self.denied * misfit.keys // max(old_keys, 1)
        self.false -= self.false * misfit.keys // max(old_keys, 1)
        self.replaced += 1

    def statistics(self) -> dict[str, int]:
        """Returns the bits, keys and parts of the filter, its bytes with those of new parts, how many new keys it
        denied, and how many it did not (false)."""
        bloom = self._bloom.statistics()
        return {
            "filter_bits": bloom["bits"],
            "filter_bytes": bloom["bytes"],
            "filter_keys": bloom["keys"],
            "filter_parts": len(self._bloom.parts()[0]) // 8,
            "filter_denied": self.denied,
            "filter_false": self.false,
        }


def fresh_bytes(bytes_max: int, filter_bytes: int) -> int:
    """Returns how many bytes of a set are for its new keys. Twice as many are in use while they are written."""
    least, most = bytes_max // SEEN_FRESH_SHARE_LEAST, bytes_max // SEEN_FRESH_SHARE
    return min(max((bytes_max - bytes_max // SEEN_FILTER_REST_SHARE - filter_bytes) // 2, least), most)


def _lines_wanted(keys: Any) -> Any:
    """Returns the lines for twice this number of keys."""
    return 2 * keys * SEEN_FILTER_BITS // _LINE_BITS


def _lines_max(bytes_max: int) -> int:
    """Returns the most lines of a filter, so that new keys, a part that is replaced and the runs have enough memory."""
    memory = max(bytes_max, 2 * SEEN_FRESH_KEYS_MIN)
    free = memory - 2 * (memory // SEEN_FRESH_SHARE_LEAST) - memory // SEEN_FILTER_REST_SHARE
    return max(free // _LINE_BYTES, 1)


def _piece_lines(bytes_max: int) -> int:
    """Returns the most lines of a new part."""
    memory = max(bytes_max, 2 * SEEN_FRESH_KEYS_MIN)
    return max(memory // SEEN_FILTER_PART_SHARE // _LINE_BYTES, 1)
