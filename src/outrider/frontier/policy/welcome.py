"""Whether a host shows that a crawler is not welcome, told from one that has too much to do: signs in a row, with no
healthy answer between them."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from outrider.limits import UNWELCOME_CHALLENGE, UNWELCOME_POINTS_MAX

Signals = npt.NDArray[np.uint8]


class Signal(IntEnum):
    """The sign that a request gives about the welcome."""

    NEUTRAL = 0  # no answer, a refusal for load, a failure: politeness speaks of these
    HEALTHY = 1
    CHALLENGE = 2  # an answer that asks for a browser or a person
    WALL = 3  # 403
    BROKEN = 4  # the connection was broken, though the host had answered before


PARKED_FROM = 240
"""Cells from here on say that the host is parked, and by which signal: `PARKED_FROM` + the signal."""
TEXTS = {
    PARKED_FROM + Signal.CHALLENGE: "it answers with challenges for browsers or people",
    PARKED_FROM + Signal.WALL: "it answers everything with 403",
    PARKED_FROM + Signal.BROKEN: "it breaks every connection, and answered before",
}
_POINTS = np.array([0, 0, UNWELCOME_CHALLENGE, 1, 1], np.uint8)


def unwelcome_after(cells: Signals, signals: Signals) -> Signals:
    """The hosts' cells after these requests. A cell counts points: a challenge has six, a 403 or a broken connection
    one; a healthy answer takes all of them. With twelve the host is parked, and stays so until an operator wakes it."""
    points = np.minimum(cells + _POINTS[signals], UNWELCOME_POINTS_MAX).astype(np.uint8)
    found = np.where(points >= UNWELCOME_POINTS_MAX, PARKED_FROM + signals, points)
    found = np.where(signals == Signal.HEALTHY, 0, found)
    return np.where(cells >= PARKED_FROM, cells, np.where(signals == Signal.NEUTRAL, cells, found)).astype(np.uint8)
