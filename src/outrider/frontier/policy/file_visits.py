"""When a sitemap or a feed is read again.

It is not worth a visit for its own sake, but for the changes of pages that it names. So its value has no limit: with a
rate of changes, a visit after a time t is worth importance * rate * t² / 2, which is the value of a page with few
changes (visit_values.py), however often the file changes. The interval is where this value reaches the price.

Rules without a price have the interval of a page. With a rate it is divided by the root of the number of pages for each
file: this is where the value above equals that of a visit to one of these pages, if all change alike.

A file is not read more often than twice per change. Two more bounds hold under a rate. All files together use at most a
share of it. And a file is read at least once in a number of mean intervals of the pages, because a price may have been
wrong.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from outrider.clock import Instant
from outrider.frontier.policy.change_rates import rate_of, theta_of
from outrider.frontier.policy.revisit_plan import Plan, PlannedPages
from outrider.frontier.policy.revisit_rules import Shown
from outrider.frontier.policy.visit_values import Objective
from outrider.limits import (
    CHANGE_CONFIDENCE_PRIOR,
    CHANGE_SECONDS_PRIOR,
    FILE_BAD_SECONDS_MAX,
    FILE_BAD_SECONDS_MIN,
    FILE_SECONDS_MAX,
    FILES_SHARE,
    REVISIT_HORIZON,
)

FILE_IMPORTANCE: Final = 0.5
"""The weight of a page without a priority."""
FILE_VISITS_PER_CHANGE: Final = 2.0
"""At most."""


@dataclass(frozen=True, slots=True)
class FileVisits:
    """What a file keeps of its visits. etag, last_modified, digest: of the last answer; fetched: the instant of the
    last good one, 0 for none; change_rate, change_confidence, revisit_interval, revisit_memory: as for a page."""

    etag: str = ""
    last_modified: str = ""
    digest: bytes = b""
    fetched: Instant = 0
    change_rate: float = 0.0
    change_confidence: float = 0.0
    revisit_interval: float = 0.0
    revisit_memory: float = 0.0


NO_VISITS: Final = FileVisits()


@dataclass(frozen=True, slots=True)
class Crowd:
    """The company of a file. files: how many are read again; pages: how many URLs wait or are queued; rate: fetches a
    second, None for no bound; level: that of the plan, None before its first page."""

    files: int
    pages: int
    rate: float | None
    level: float | None


def next_file_visit(
    plan: Plan, before: FileVisits, waited: float, *, changed: bool, crowd: Crowd
) -> tuple[float, float, float, float, float]:
    """Returns the seconds until the next visit of a file, and the four numbers that it keeps.

    waited: seconds since the last good visit, 0 for the first one; changed: whether this one brought anything new.
    """
    first = not waited
    known = before.change_confidence > 0
    # Before anything is known, one change in the first interval: sites differ by many orders of magnitude.
    rate = before.change_rate if known else 1.0 / (waited or CHANGE_SECONDS_PRIOR)
    file = PlannedPages(
        theta_of(np.array([rate])),
        np.array([before.change_confidence if known else CHANGE_CONFIDENCE_PRIOR]),
        np.array([before.revisit_interval]),
        np.array([before.revisit_memory]),
        np.array([FILE_IMPORTANCE]),
    )
    shown = np.array([Shown.NOTHING if first else Shown.CHANGED if changed else Shown.UNCHANGED])
    after = plan.after(file, shown, np.array([waited]), np.array([np.nan]), np.array([first]))
    seconds = _wait(plan, after, crowd)
    if crowd.rate is not None:
        least = crowd.files / (FILES_SHARE * crowd.rate)
        most = max(1, crowd.pages) / crowd.rate
        seconds = min(max(seconds, least), max(least, REVISIT_HORIZON * most))
    learned = rate_of(after.theta), after.confidence * (not first), after.interval, after.memory
    theta, confidence, interval, memory = (float(column[0]) for column in learned)
    return min(seconds, FILE_SECONDS_MAX), theta, confidence, interval, memory


def next_after_failure(fetched: Instant, waited: float) -> float | None:
    """Returns the seconds until the next visit of a file that failed for good, None for no further one. fetched: the
    last good visit, 0 for none; waited: the seconds since then. Each pause is as long as all before it."""
    if not fetched or waited > FILE_BAD_SECONDS_MAX:
        return None
    return max(FILE_BAD_SECONDS_MIN, waited)


def _wait(plan: Plan, file: PlannedPages, crowd: Crowd) -> float:
    if crowd.level is None:
        return 0.0  # the bounds alone
    rate = float(rate_of(file.theta)[0])
    if plan.priced:
        size = math.exp(crowd.level) / (FILE_IMPORTANCE * rate)
        seconds = math.sqrt(2.0 * size) if plan.objective is Objective.FRESHNESS else math.cbrt(3.0 * size)
    else:
        seconds = float(plan.waits(file, crowd.level)[0])
        if crowd.rate is None:
            return seconds
        seconds /= math.sqrt(max(1.0, crowd.pages / max(1, crowd.files)))
    return max(seconds, 1.0 / (FILE_VISITS_PER_CHANGE * rate))
