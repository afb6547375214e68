"""The speed of a crawl and its probable end: counts and instants in, rates out (no clock of its own)."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

WINDOW_SECONDS = 10.0  # "now" is the mean of this time: one host in its delay does not make it jump
WINDOW_SECONDS_MIN = 1.0  # a rate over a shorter time is noise
ROBOTS = "robots"  # the frontier's class for a page that robots.txt closes
SAMPLES_MAX = 64  # samples in the window; older ones are joined


@dataclass(frozen=True, slots=True)
class Rates:
    """Answered pages per second: now (mean of ten seconds), the average of this run, its fastest ten seconds."""

    now: float = 0.0
    average: float = 0.0
    peak: float = 0.0


class RateMeter:
    """Keeps a window of (seconds, pages) samples; all instants are seconds of one steady clock."""

    def __init__(self, now: float, *, pages: int = 0) -> None:
        self._start = now
        self._first = pages
        self._samples: deque[tuple[float, int]] = deque([(now, pages)], maxlen=SAMPLES_MAX)
        self._peak = 0.0

    def add(self, now: float, pages: int) -> None:
        """`pages` answered since the crawl began, as of `now`."""
        samples = self._samples
        if len(samples) > 1 and now - samples[-2][0] < WINDOW_SECONDS / SAMPLES_MAX * 2:
            samples[-1] = (now, pages)
        else:
            samples.append((now, pages))
        while len(samples) > 2 and now - samples[1][0] >= WINDOW_SECONDS:
            samples.popleft()
        rate = self._rate(now)
        if now - samples[0][0] >= WINDOW_SECONDS_MIN:
            self._peak = max(self._peak, rate)

    def _rate(self, now: float) -> float:
        since, pages = self._samples[0]
        return (self._samples[-1][1] - pages) / max(now - since, WINDOW_SECONDS_MIN)

    def rates(self, now: float) -> Rates:
        """Returns the rates as of `now`."""
        average = (self._samples[-1][1] - self._first) / max(now - self._start, WINDOW_SECONDS_MIN)
        current = self._rate(now)
        return Rates(round(current, 3), round(average, 3), round(max(self._peak, average), 3))


def eta_seconds(
    statistics: Mapping[str, Any],
    rates: Rates,
    max_pages: int | None,
    wait_seconds: float = 0.0,
    tail_seconds: float = 0.0,
) -> float | None:
    """Returns the seconds until the known URLs will be done at the present rate; None if that is unknown.

    wait_seconds: the longest wait of a host at any rate. tail_seconds: the time that the slowest host needs for its
    URLs at its gap. A crawl that ends at a limit of pages does not wait for it. Links that are not found yet are not
    included: the number is a hint, not a promise. A crawl with a revisit rule does not end, so it has no such time.
    """
    if max_pages is None and (statistics.get("revisits") or {}).get("rule") is not None:
        return None
    urls = statistics["urls"]
    left = int(urls["queued"] + urls["leased"] + urls["waiting"]) + int(statistics.get("held", 0))
    if max_pages is not None and max_pages - int(statistics["answered"]) < left:
        left, tail_seconds = max(0, max_pages - int(statistics["answered"])), 0.0
    wait_seconds = max(wait_seconds, tail_seconds)
    if left == 0:
        return 0.0
    rate = rates.now or rates.average
    if rate <= 0:
        return round(wait_seconds, 1) if wait_seconds > 0 else None
    return round(max(left / rate, wait_seconds), 1)


def errors_of(statistics: Mapping[str, Any]) -> dict[str, int]:
    """Failed attempts by class: one meaning in progress, status, summary and report. A page that robots.txt closes is
    an outcome, not an error."""
    return {name: count for name, count in statistics["errors"].items() if name != ROBOTS}


def disk_of(statistics: Mapping[str, Any]) -> dict[str, bool]:
    """Returns whether the disk is full, and whether files wait for room to be merged. Servers of older builds send
    only the first."""
    return {"full": bool(statistics["log"]["full"]), "merges_wait": bool(statistics.get("merges_wait"))}


def status_fields(
    statistics: Mapping[str, Any],
    rates: Rates,
    state: str,
    eta: float | None,
    not_followed: Mapping[str, int] | None = None,
    left_out: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Returns the fields of `status --json`: the frontier's counts, the rates, the state and the time left. left_out:
    by reason; None if not counted."""
    known = ("queued", "leased", "waiting", "parked", "done", "gone")
    hosts = statistics["hosts"]
    trapped = sum(statistics.get("traps", {}).values())
    return {
        "state": state,
        "accepted": statistics["accepted"],
        "not_followed": {**(not_followed or {}), **({"trap": trapped} if trapped else {})},
        "urls": {name: statistics["urls"][name] for name in known},
        "held": statistics["held"],
        "in_transit": statistics["in_transit"],
        "errands": statistics["errands"],
        "hosts": {name: hosts[name] for name in ("known", "ready", "resting", "blocked", "empty")},
        "answered": statistics["answered"],
        "pages_per_second": {"now": rates.now, "average": rates.average, "peak": rates.peak},
        "bytes": statistics["bytes"],
        "duplicates": statistics["duplicates"],
        "errors": errors_of(statistics),
        "payments": dict(statistics.get("payments") or {}),  # servers of older builds do not send it
        "disk": disk_of(statistics),
        "eta_seconds": eta,
        **({"revisits": dict(statistics["revisits"])} if statistics.get("revisits") else {}),
        **({"left_out": dict(left_out)} if left_out is not None else {}),
    }
