"""The level of a plan: the logarithm of its price, its stretch or its interval, as it follows the fetches.

Each page that is queued when its time has come raises the level by a step. A page that is fetched ahead of its time
lowers it by `REVISIT_STEPS_AHEAD` steps, and so does each fetch that the rate allowed and nobody used. Steps are small.
So the level is also compared with the usual one of the pages that were reported last (`Plan.first_level`), if:

- the number of planned pages has doubled: a crawl grows from one seed
- in a whole round, a visit for each planned page, all visits were due: the level is too low

A level that is too low is then raised to the usual one, less `REVISIT_LEVEL_LATE` times the share of the planned pages
that were not reported lately. Pages that are visited often are reported often, so the others may differ from them.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

import numpy as np
import numpy.typing as npt

from outrider.frontier.policy.revisit_plan import Plan, PlannedPages
from outrider.limits import REVISIT_LEVEL_LATE, REVISIT_LOST_MAX, REVISIT_STEP, REVISIT_STEPS_AHEAD

_SAMPLE: Final = 1_024
"""Pages that are kept: those that were reported last."""


class RevisitLevel:
    """The level of one frontier. rate: fetches a second, None without a limit: then it stays at its first value."""

    def __init__(self, plan: Plan, rate: float | None) -> None:
        self._plan, self._rate = plan, rate
        self.now: float | None = plan.known_level
        """None before the first look, if pages decide where it begins."""
        self.step = REVISIT_STEP
        self._pages_then = 0  # when it was compared the last time
        self._due = 0  # visits since the last one that was not due
        self._sample: dict[int, tuple[float, ...]] = {}
        """By order of a page, its columns; the latest is last."""

    def __repr__(self) -> str:
        return f"<RevisitLevel {self.now} of {self._plan}>"

    @property
    def lowest(self) -> bool:
        """Whether the level cannot fall."""
        return self.now is not None and self.now <= self._plan.level_min

    def begin(self, level: float, step: float, count: int) -> None:
        """Begins with this level, and moves it by this step for each fetch. count: of the planned pages."""
        self.now, self.step, self._pages_then = level, step, count

    def of(self, pages: PlannedPages, count: int) -> float:
        """Returns the level. The first pages decide where it begins. count: of all planned pages."""
        if self.now is None:
            self.now = 0.0 if self._rate is None else self._plan.first_level(pages, count, self._rate)
            self._pages_then = count
        return self.now

    def reported(self, pages: PlannedPages, orders: npt.NDArray[np.uint64], count: int) -> None:
        """Compares the level with the usual one, if it is time to. pages, orders: of a report; count: of all planned
        pages."""
        if self._rate is None or self.now is None:
            return
        columns = (column[-_SAMPLE:].tolist() for column in pages.columns)
        for order, *numbers in zip(orders[-_SAMPLE:].tolist(), *columns, strict=True):
            self._sample.pop(order, None)
            self._sample[order] = tuple(numbers)
        for order in list(islice(self._sample, max(0, len(self._sample) - _SAMPLE))):
            del self._sample[order]
        if count >= 2 * self._pages_then or self._due >= count:
            self._pages_then, self._due = max(count, self._pages_then), 0
            sample = PlannedPages(*np.array(list(self._sample.values())).T)
            late = REVISIT_LEVEL_LATE * max(0.0, 1.0 - len(sample) / count)
            self.now = max(self.now, self._plan.first_level(sample, count, self._rate) - late)

    def chose(self, due: int, ahead: int) -> None:
        """Follows visits. due: those whose time has come; ahead: the others."""
        self._due = 0 if ahead else self._due + due
        self._move(due - REVISIT_STEPS_AHEAD * ahead)

    def lost(self, fetches: int) -> None:
        """Follows fetches that the rate allowed and nobody used."""
        self._due = 0
        self._move(-REVISIT_STEPS_AHEAD * min(fetches, REVISIT_LOST_MAX))

    def _move(self, steps: int) -> None:
        if self.now is not None and self._rate is not None:
            self.now = max(self._plan.level_min, self.now + steps * self.step)
