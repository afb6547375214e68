"""The hosts that need the longest time for their URLs, with the hours in which they are closed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from outrider.clock import Instant
from outrider.frontier.policy.frontier_settings import FrontierSettings
from outrider.frontier.policy.open_hours import seconds_needed, speeds_of_hours, speeds_of_windows
from outrider.frontier.policy.politeness import GapReason
from outrider.frontier.state.tables import Tables
from outrider.limits import TAILS_JUDGED
from outrider.local_hours import hours_of
from outrider.robots.hours import VisitWindow

_CLOSED = (int(GapReason.VISIT_TIME), int(GapReason.HOURS))


class ClosedHours:
    """Adds the hours in which hosts are closed to the times that they need: those of the settings, and Visit-time if it
    is obeyed."""

    def __init__(self, tables: Tables, settings: FrontierSettings) -> None:
        self._tables, self._settings = tables, settings

    def add_to(self, needed: npt.NDArray[np.float64], gaps: npt.NDArray[np.float64], first: int, now: Instant) -> None:
        """Adds them to the seconds that some hosts need for their URLs at these gaps. first: the row of the first one.

        It is limited to the hosts with the longest times, and those with the longest times among the hosts that rest
        until they open: a rule has to be read for each.
        """
        if not self._settings.hours and self._settings.visit_time != "obey":
            return
        reasons = self._tables.hosts.reason[first : first + len(needed)]
        closed = np.isin(reasons, _CLOSED)
        for place in {*_longest(needed), *_longest(np.where(closed, needed, 0.0))}:
            needed[place] = self._seconds(first + place, float(needed[place]), float(gaps[place]), now)

    def _seconds(self, host: int, seconds: float, gap: float, now: Instant) -> float:
        told = hours_of(self._tables.hosts.name(host), self._settings.hours)
        windows = self._windows(host) if self._settings.visit_time == "obey" else []
        if told is None and not windows:
            return seconds
        speeds = speeds_of_windows(windows)
        return seconds_needed(seconds, speeds if told is None else speeds * speeds_of_hours(told, gap, now), now)

    def _windows(self, host: int) -> list[VisitWindow]:
        """Returns the windows of the robots.txt files of a host, none if one of the files names none."""
        robots = self._tables.robots
        files = [robots.rulebook.hours(one.digest) for one in robots.of_host.get(host, ()) if one.digest]
        return [window for windows in files for window in windows] if all(files) else []


def _longest(needed: npt.NDArray[np.float64]) -> Sequence[int]:
    places = np.flatnonzero(needed)
    if len(places) > TAILS_JUDGED:
        places = places[np.argpartition(-needed[places], TAILS_JUDGED)[:TAILS_JUDGED]]
    return [int(place) for place in places]
