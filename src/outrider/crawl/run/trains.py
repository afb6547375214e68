"""Trains: leases of one host without a gap between them. Each is fetched when the previous one has ended well.

The writer thread returns a train in one turn and receives its outcomes in another. So a host answers as many pages in a
turn as its train is long, and never two at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from outrider.journey import Kind, Lease
from outrider.limits import TRAIN_PAGES_MAX, TRAIN_SECONDS_MAX

ANSWER_STEP: Final = 1 / 16  # how far the usual time of an answer moves to each answer
ANSWER_SECONDS_FIRST: Final = TRAIN_SECONDS_MAX / 16  # before the first one
ANSWER_SECONDS_MIN: Final = 1e-6  # the shortest time of an answer; a stopped clock would make the time 0


class Trains:
    """The length of trains, by the speed of the latest answers of all hosts."""

    def __init__(self) -> None:
        self._answer_seconds = ANSWER_SECONDS_FIRST

    @property
    def pages_max(self) -> int:
        """Returns how many leases of a host are worth taking at once: as many as it answers in half of the time of a
        train."""
        pages = TRAIN_SECONDS_MAX / 2 / max(self._answer_seconds, ANSWER_SECONDS_MIN)
        return max(1, min(TRAIN_PAGES_MAX, int(pages)))

    def answered(self, seconds: float) -> None:
        """Notes the time that a site needed for an answer."""
        self._answer_seconds += (seconds - self._answer_seconds) * ANSWER_STEP


def trains_of(leases: Iterable[Lease]) -> list[list[Lease]]:
    """The leases of each host together, in order; errands alone."""
    trains: list[list[Lease]] = []
    by_host: dict[str, list[Lease]] = {}
    for lease in leases:
        train = by_host.get(lease.host) if lease.kind is Kind.PAGE else None
        if train is not None:
            train.append(lease)
            continue
        trains.append([lease])
        if lease.kind is Kind.PAGE:
            by_host[lease.host] = trains[-1]
    return trains
