"""How long URLs waited for their leases, summed since the opening; the means that metrics tell are made of these."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from outrider.clock import Instant, seconds
from outrider.kernels.card_layout import Heads


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
    """found: from the discovery of a URL, or the instant before which it was not to be asked for, to the end of its
    first request, where a site answered it. due: from the instant at which URL and host allowed a request to the
    lease."""

    found: Sum = field(default_factory=Sum)
    due: Sum = field(default_factory=Sum)

    def note(
        self, heads: Heads, rested: npt.NDArray[np.int64], not_before: npt.NDArray[np.int64], now: Instant
    ) -> None:
        """Counts the leased pages of one call. rested: the end of each host's rest. A page that is to be fetched later,
        behind others of its queue, is late by nothing."""
        late = np.maximum(now - np.maximum(heads["due"], rested), 0)
        self.due.add(seconds(int(late[not_before <= now].sum())), len(late))

    def note_fetched(
        self, heads: Heads, ended: npt.NDArray[np.int64] | Instant, answered: npt.NDArray[np.bool_]
    ) -> None:
        """Counts the reported pages of one call that a site answered at the first request ever. heads: as they were
        leased; ended: the end of each request, or of all."""
        first = answered & (heads["attempts"] == 0) & (heads["status"] == 0)
        waited = (ended - heads["due"])[first]
        self.found.add(seconds(int(np.maximum(waited, 0).sum())), len(waited))
