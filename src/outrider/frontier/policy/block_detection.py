"""Whether a host shows that a crawler is not welcome, as distinct from an overloaded host. The evidence is a run of
signals without a healthy response between them."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from outrider.limits import (
    SILENT_SECONDS_FIRST,
    SILENT_TRIES_MAX,
    UNWELCOME_CHALLENGE,
    UNWELCOME_POINTS_MAX,
)

Signals = npt.NDArray[np.uint8]


class BlockSignal(IntEnum):
    """The sign of a block that a request shows."""

    NEUTRAL = 0  # no answer, a refusal for load, a failure: politeness speaks of these
    HEALTHY = 1
    CHALLENGE = 2  # a response that demands a browser or a person
    WALL = 3  # 403
    BROKEN = 4  # the connection was broken or led to no answer, though the host had answered before
    SAME = 5  # the last of many different pages in a row with the same body, from a host that had sent varied bodies
    NAMELESS = 6  # its name leads to no address, though it did before
    PAYMENT = 7  # 402


SILENT_FROM = 200
"""Cells from this value on, below `PARKED_FROM`, mean that the host became silent, and count how often that was seen. A
server that is down looks like one that excludes a crawler, but it returns."""
NAMELESS_FROM = 220
"""Cells from here on, below `PARKED_FROM`, say the same of a host whose name leads to no address any more."""
PARKED_FROM = 240
"""Cells from here on say that the host is parked, and by which signal: `PARKED_FROM` + the signal."""
_SILENT = "it breaks every connection or is silent, and answered before"
_NAMELESS = "its name leads to no address, and did before"
_TEXTS = {
    PARKED_FROM + BlockSignal.CHALLENGE: "it answers with challenges for browsers or people",
    PARKED_FROM + BlockSignal.WALL: "it answers everything with 403",
    PARKED_FROM + BlockSignal.BROKEN: _SILENT,
    PARKED_FROM + BlockSignal.NAMELESS: _NAMELESS,
    PARKED_FROM + BlockSignal.PAYMENT: "it asks for payment for every page",
    PARKED_FROM + BlockSignal.SAME: "it gives one same body for every page, and gave others before",
}
BREAKS = frozenset({"reset", "empty_reply", "connect_timeout", "first_byte_timeout"})
"""Errors that are the sign BROKEN. A refused connection is not one: nothing listens there, as during a restart."""
NAMELESS = frozenset({"dns_unknown", "dns_temporary"})
"""Errors that are the sign NAMELESS."""
_POINTS = np.array([0, 0, UNWELCOME_CHALLENGE, 1, 1, UNWELCOME_POINTS_MAX, UNWELCOME_POINTS_MAX, 1], np.uint8)


def block_scores_after(cells: Signals, signals: Signals) -> Signals:
    """The hosts' cells after these requests. A cell counts points. A challenge adds six, a 403, a 402 or a broken
    connection one, the end of a long run of equal bodies or a name without an address twelve. A healthy response
    resets them to zero. With twelve points the host is parked until an operator wakes it. If the last sign is a broken
    connection or such a name, the host first is left alone for `silent_seconds`, again after each further sign, and is
    parked when that has happened often enough."""
    silent, nameless = is_silent(cells), signals == BlockSignal.NAMELESS
    broken = nameless | (signals == BlockSignal.BROKEN)
    points = np.minimum(np.where(silent, 0, cells) + _POINTS[signals], UNWELCOME_POINTS_MAX).astype(np.uint8)
    found = np.where(points >= UNWELCOME_POINTS_MAX, PARKED_FROM + signals, points)
    tries = np.where(silent, _tries_of(cells), 0) + 1
    falls = broken & (silent | (points >= UNWELCOME_POINTS_MAX)) & (tries <= SILENT_TRIES_MAX)
    found = np.where(silent & broken, PARKED_FROM + signals, found)
    found = np.where(falls, np.where(nameless, NAMELESS_FROM, SILENT_FROM) + tries, found)
    found = np.where(signals == BlockSignal.HEALTHY, 0, found)
    return np.where(cells >= PARKED_FROM, cells, np.where(signals == BlockSignal.NEUTRAL, cells, found)).astype(
        np.uint8
    )


def is_silent(cells: Signals) -> npt.NDArray[np.bool_]:
    """Which of these cells mean that the host became silent and will be requested again."""
    found: npt.NDArray[np.bool_] = (cells >= SILENT_FROM) & (cells < PARKED_FROM)
    return found


def _tries_of(cells: Signals) -> Signals:
    """How often hosts with these cells were found silent, or without an address."""
    return (cells - SILENT_FROM) % np.uint8(NAMELESS_FROM - SILENT_FROM)


def silent_seconds(cell: int) -> float:
    """How long a host that fell silent is left alone: ten minutes, then twice as long each time."""
    return float(SILENT_SECONDS_FIRST * 2 ** (int(_tries_of(np.array([cell], np.uint8))[0]) - 1))


def text_of(cell: int) -> str | None:
    """Why a crawler is not welcome at a host with this cell; None where it is, or is not known to be unwelcome yet."""
    if NAMELESS_FROM <= cell < PARKED_FROM:
        return _NAMELESS
    return _SILENT if SILENT_FROM <= cell < NAMELESS_FROM else _TEXTS.get(cell)
