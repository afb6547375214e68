"""Counts of hosts by their number of fetches, in steps: `host_quantile` computes its limit from them."""

from __future__ import annotations

import numpy as np

from outrider import kernels
from outrider.frontier.policy.returns import LEVELS, Sizes, sizes_of
from outrider.frontier.state.returns_table import ReturnsTable


class HostSizes:
    """The counts, stored among the returns under names of their own. quantile: the share of hosts that sets the limit
    for the other hosts, None for no limit."""

    def __init__(self, kept: ReturnsTable, key: bytes, quantile: float | None) -> None:
        self._kept = kept
        self._key = key
        self._quantile = quantile
        self._names: list[int] = []
        self._last: tuple[int, Sizes | None] | None = None  # as of this LSN

    def at(self, lsn: int) -> Sizes | None:
        """Returns the sizes at the present LSN; None if they set no limit."""
        if self._quantile is None:
            return None
        if self._last is None or self._last[0] != lsn:
            reached = (self._kept.get(self.name_of(step)).found for step in range(len(LEVELS)))
            self._last = lsn, sizes_of(reached, self._quantile)
        return self._last[1]

    def name_of(self, step: int) -> int:
        """Returns the name under which hosts that reached a level are counted."""
        if not self._names:
            texts = [f"\nhosts of {level}" for level in LEVELS]
            self._names = np.frombuffer(kernels.fingerprints(texts, self._key), np.uint64).tolist()
        return self._names[step]
