"""Open leases whose request is over: they use no turn of their host, and wait for their outcome."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import compress, repeat

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

    def add_new(
        self, tokens: Sequence[int], hosts: Sequence[int], ended: Sequence[Instant], queues: Sequence[int]
    ) -> None:
        """Notes the ends of many requests for pages. The tokens differ, and no request was over before."""
        self.ends.update(zip(tokens, ended, strict=True))
        self._at.update(hosts)
        self._of.update(queues)

    def drop_many(self, tokens: Sequence[int], hosts: Sequence[int], queues: Sequence[int]) -> npt.NDArray[np.bool_]:
        """Forgets leases of pages that end. Returns whether the request of each was over before."""
        if self.lacks(tokens):
            return np.zeros(len(tokens), np.bool_)
        over = [self.ends.pop(token, None) is not None for token in tokens]
        _subtract(self._at, compress(hosts, over))
        _subtract(self._of, compress(queues, over))
        return np.array(over, np.bool_)

    def lacks(self, tokens: Sequence[int]) -> bool:
        """Whether no request of these leases is over."""
        return self.ends.keys().isdisjoint(tokens)

    def drop(self, token: int, host: int) -> bool:
        """Forgets an errand that ends. Returns whether its request was over before."""
        if self.ends.pop(token, None) is None:
            return False
        _subtract(self._at, (host,))
        return True

    def ends_of(self, tokens: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64] | None:
        """Returns the end of each request, NOT_OVER for the others; None if no request is over."""
        numbers = tokens.tolist()
        if self.lacks(numbers):
            return None
        return np.array(list(map(self.ends.get, numbers, repeat(NOT_OVER))), np.int64)

    def at(self, host: int) -> int:
        """How many such leases a host has."""
        return self._at.get(host, 0)

    def of_queues(self, queues: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        """How many such leases each of these queues has."""
        return _counted(self._of, queues)

    def at_each(self, hosts: npt.NDArray[np.integer]) -> npt.NDArray[np.int64] | None:
        """As `at`, for many hosts; None if no host has one."""
        if not self._at:
            return None
        return _counted(self._at, hosts)

    def hosts(self) -> dict[int, int]:
        """The hosts with such leases, by row, and how many each has."""
        return dict(self._at)

    def __repr__(self) -> str:
        return f"<RestedLeases {len(self)}>"


def _counted(counts: Counter[int], rows: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    """Returns the count of each row."""
    return np.array(list(map(counts.get, rows.tolist(), repeat(0))), np.int64)


def _subtract(counts: Counter[int], rows: Iterable[int]) -> None:
    """Subtracts 1 for each row, and forgets rows without a count."""
    for row in rows:
        count = counts[row] - 1
        if count:
            counts[row] = count
        else:
            del counts[row]
