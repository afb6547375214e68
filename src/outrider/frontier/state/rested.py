"""Open leases whose request is over: they use no turn of their host, and wait for their outcome."""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt

from outrider.clock import Instant

NOT_OVER: Instant = -1
"""The end of a request that is not over."""


class RestedLeases:
    """The ends of these requests, by token; and how many such leases each host and each queue has, by row."""

    def __init__(self) -> None:
        self.ends: dict[int, Instant] = {}
        self._at: Counter[int] = Counter()
        self._of: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self.ends)

    def add(self, token: int, host: int, ended: Instant, queue: int | None = None) -> bool:
        """Notes the end of a request, or another end. Returns whether it was not over before. queue: None for an
        errand."""
        new = token not in self.ends
        self.ends[token] = ended
        if new:
            self._at[host] += 1
            if queue is not None:
                self._of[queue] += 1
        return new

    def drop(self, token: int, host: int, queue: int | None = None) -> bool:
        """Forgets a lease that ends. Returns whether its request was over before. queue: as in `add`."""
        if self.ends.pop(token, None) is None:
            return False
        _subtract(self._at, host)
        if queue is not None:
            _subtract(self._of, queue)
        return True

    def ends_of(self, tokens: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64] | None:
        """Returns the end of each request, NOT_OVER for the others; None if no request is over."""
        if not self.ends:
            return None
        found = np.array([self.ends.get(token, NOT_OVER) for token in tokens.tolist()], np.int64)
        return found if np.count_nonzero(found != NOT_OVER) else None

    def at(self, host: int) -> int:
        """How many such leases a host has."""
        return self._at.get(host, 0)

    def of_queues(self, queues: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        """How many such leases each of these queues has."""
        return np.array([self._of.get(queue, 0) for queue in queues.tolist()], np.int64)

    def at_each(self, hosts: npt.NDArray[np.integer]) -> npt.NDArray[np.int64] | None:
        """As `at`, for many hosts; None if no host has one."""
        if not self._at:
            return None
        return np.array([self._at.get(host, 0) for host in hosts.tolist()], np.int64)

    def hosts(self) -> dict[int, int]:
        """The hosts with such leases, by row, and how many each has."""
        return dict(self._at)

    def __repr__(self) -> str:
        return f"<RestedLeases {len(self)}>"


def _subtract(counts: Counter[int], row: int) -> None:
    counts[row] -= 1
    if not counts[row]:
        del counts[row]
