"""How long URLs waited for their leases, summed since the opening; the means that metrics tell are made of these."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from outrider.clock import Instant, seconds
from outrider.kernels.cards import Heads


@dataclass(slots=True)
class Sum:
    """A sum of lengths of time in seconds, and how many they are."""

    seconds: float = 0.0
    count: int = 0

    def add(self, total: float, count: int) -> None:
        """Counts some lengths in."""
        self.seconds, self.count = self.seconds + total, self.count + count


@dataclass(slots=True)
class Delays:
    """found: from the discovery of a URL, or the instant before which it was not to be asked for, to its first lease.
    due: from the instant at which URL and host allowed a request to the lease."""

    found: Sum = field(default_factory=Sum)
    due: Sum = field(default_factory=Sum)

    def note(
        self, heads: Heads, rested: npt.NDArray[np.int64], not_before: npt.NDArray[np.int64], now: Instant
    ) -> None:
        """Counts the pages of one call. rested: the end of each host's rest. A page that is to be fetched later, behind
        others of its queue, is late by nothing."""
        waited = now - heads["due"]
        first = heads["attempts"] == 0
        self.found.add(seconds(int(waited[first].clip(0).sum())), int(np.count_nonzero(first)))
        late = np.minimum(waited, now - rested)
        late[not_before > now] = 0
        self.due.add(seconds(int(late.clip(0).sum())), len(late))
