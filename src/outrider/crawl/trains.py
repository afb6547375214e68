"""Trains: leases of one host that need no gap between them. Each is fetched when the one before has ended well.

The books give a train in one turn and take its outcomes in another, so that a host answers as many pages in a turn as
its train is long, and never two at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from outrider.crawl.visit import Visit
from outrider.journey import Kind, Lease
from outrider.limits import TRAIN_PAGES_MAX, TRAIN_SECONDS_MAX

ANSWER_STEP: Final = 1 / 16  # how far the usual time of an answer moves to each answer
ANSWER_SECONDS_FIRST: Final = TRAIN_SECONDS_MAX / 16  # before the first one
_LEADS_ON = frozenset({404, 410})  # such a page is missing, and its site is well


class Trains:
    """The leases that wait for the one before them. Used by one event loop."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Lease]] = {}
        self._answer_seconds = ANSWER_SECONDS_FIRST

    def __len__(self) -> int:
        """How many leases wait."""
        return sum(map(len, self._waiting.values()))

    @property
    def pages_max(self) -> int:
        """How many leases of a host are worth taking at once: as many as it answers in half of the time that a train
        has, at the speed of the latest answers of all hosts."""
        return max(1, min(TRAIN_PAGES_MAX, int(TRAIN_SECONDS_MAX / 2 / max(self._answer_seconds, 1e-6))))

    def answered(self, seconds: float) -> None:
        """A site took so long for an answer."""
        self._answer_seconds += (seconds - self._answer_seconds) * ANSWER_STEP

    def couple(self, leases: Iterable[Lease], limit: Callable[[str, deque[Lease]], None]) -> Iterator[Lease]:
        """The leases that begin now: the first of each host, and every errand. limit: is told of each new train, and
        lets the rest of it go in time."""
        began: set[str] = set()
        for lease in leases:
            if lease.kind is not Kind.PAGE:
                yield lease
            elif lease.host not in began:
                began.add(lease.host)
                yield lease
            else:
                train = self._waiting.get(lease.host)
                if train is None:
                    train = self._waiting[lease.host] = deque()
                    limit(lease.host, train)
                train.append(lease)

    def behind(self, visit: Visit) -> Lease | None:
        """The lease whose turn comes with the end of this visit; None where the site needs rest, or none waits."""
        train = self._waiting.get(visit.lease.host)
        if not train or not leads_on(visit):
            return None
        lease = train.popleft()
        if not train:
            del self._waiting[visit.lease.host]
        assert visit.response is not None
        return msgspec.structs.replace(lease, ended_before=visit.response.ended_at)

    def uncouple(self, host: str, train: deque[Lease] | None = None) -> list[Lease]:
        """The leases that wait for this host, and wait no longer. train: only where it is that one."""
        found = self._waiting.get(host)
        if found is None or (train is not None and found is not train):
            return []
        return list(self._waiting.pop(host))

    def uncouple_all(self) -> list[Lease]:
        """All leases that wait, and wait no longer."""
        found = [lease for train in self._waiting.values() for lease in train]
        self._waiting.clear()
        return found


def leads_on(visit: Visit) -> bool:
    """Whether an answer shows a site that is well: no error, no refusal, no sign that a crawler is not welcome."""
    status = visit.status
    if visit.stopped or visit.response is None or visit.response.error is not None or status is None:
        return False
    return (status < 400 or status in _LEADS_ON) and visit.sign is None
