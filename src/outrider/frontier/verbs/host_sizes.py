"""How many fetches the hosts of a frontier have had, counted in steps: the bound of `host_quantile` comes from them."""

from __future__ import annotations

import numpy as np

from outrider import kernels
from outrider.frontier.policy.returns import LEVELS, Sizes, sizes_of
from outrider.frontier.state.returns_table import ReturnsTable


class HostSizes:
    """The counts, which lie among the returns under names of their own. quantile: the share of hosts that bounds the
    others, None for no bound."""

    def __init__(self, kept: ReturnsTable, key: bytes, quantile: float | None) -> None:
        self._kept = kept
        self._key = key
        self._quantile = quantile
        self._names: list[int] = []
        self._last: tuple[int, Sizes | None] | None = None  # as of this LSN

    def at(self, lsn: int) -> Sizes | None:
        """The sizes as they are at an LSN, the present one; None where they bound nothing."""
        if self._quantile is None:
            return None
        if self._last is None or self._last[0] != lsn:
            reached = (self._kept.get(self.name_of(step)).found for step in range(len(LEVELS)))
            self._last = lsn, sizes_of(reached, self._quantile)
        return self._last[1]

    def name_of(self, step: int) -> int:
        """The name under which the hosts are counted that reached a level."""
        if not self._names:
            texts = [f"\nhosts of {level}" for level in LEVELS]
            self._names = np.frombuffer(kernels.fingerprints(texts, self._key), np.uint64).tolist()
        return self._names[step]
