"""Sums of the times that URLs waited for their leases, since the opening. The metrics compute means from them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from outrider.clock import Instant, seconds
from outrider.kernels.card_layout import Heads


@dataclass(slots=True)
class Sum:
    """A sum of durations in seconds, and their number."""

    seconds: float = 0.0
    count: int = 0

    def add(self, total: float, count: int) -> None:
        """Adds some durations."""
        self.seconds, self.count = self.seconds + total, self.count + count


@dataclass(slots=True)
class Delays:
    """found: from the discovery of a URL, or its earliest allowed instant, to the end of its first request, if a site
    answered it. due: from the instant at which URL and host allowed a request to the lease."""

    found: Sum = field(default_factory=Sum)
    due: Sum = field(default_factory=Sum)

    def note(
        self, heads: Heads, rested: npt.NDArray[np.int64], not_before: npt.NDArray[np.int64], now: Instant
    ) -> None:
        """Counts the leased pages of one call. rested: the end of each host's rest. A page that is sent later in a
        train is not late."""
        late = np.maximum(now - np.maximum(heads["due"], rested), 0)
        self.due.add(seconds(int(late[not_before <= now].sum())), len(late))

    def note_fetched(
        self, heads: Heads, ended: npt.NDArray[np.int64] | Instant, answered: npt.NDArray[np.bool_]
    ) -> None:
        """Counts the reported pages of one call that a site answered at their first request. heads: as they were when
        they were leased; ended: the end of each request, or of all."""
        first = answered & (heads["attempts"] == 0) & (heads["status"] == 0)
        waited = (ended - heads["due"])[first]
        self.found.add(seconds(int(np.maximum(waited, 0).sum())), len(waited))
