"""Priorities: a float in [0, 1] mapped monotonically to one of 16 classes, 15 the best."""

from __future__ import annotations

import math

from outrider.errors import SettingsError
from outrider.limits import CLASSES

PRIORITY_DEFAULT = 0.5


def class_of(priority: float) -> int:
    """The class of a priority: equal slices of [0, 1], so a higher priority never has a lower class."""
    return min(CLASSES - 1, int(priority * CLASSES))


def checked(priority: float | None) -> float:
    """The priority to keep. Raises SettingsError for what is no number in [0, 1]."""
    if priority is None:
        return PRIORITY_DEFAULT
    if (
        isinstance(priority, bool)
        or not isinstance(priority, int | float)
        or math.isnan(priority)
        or not 0 <= priority <= 1
    ):
        raise SettingsError(f"priority {priority!r}: give a number from 0 to 1")
    return float(priority)
