"""The possible throughput of a crawl's last minute, split into causes that add up: the stage of each slot, or why it
was empty.

A crawl has a number of slots (`--concurrency`), and each could have a visit all the time. A visit passes from stage to
stage, and the time in each is summed. The time of slots without a visit is assigned to causes by the frontier's counts
at the last lease. Slow visits outside the slots, and answers that are being read or written, use no slot and are
counted too: if there are more of all these than slots, the time of each is scaled down.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

from outrider.clock import Instant, instant, seconds

if TYPE_CHECKING:
    from outrider.frontier.verbs.census import ScheduleCounts

WINDOW_SECONDS: Final = 60.0
STEP_SECONDS: Final = 1.0  # the window moves by this

CAUSES: Final = {
    "fetching": ("network", "sites are answering, and no other host waits for a slot"),
    "bandwidth": ("network", "answers are being received"),
    "dns": ("network", "host names are being resolved"),
    "outage": ("network", "no host answers, so our own network is at fault"),
    "resting": ("politeness", "hosts with URLs left are in their delay"),
    "hosts": ("politeness", "too few hosts: each host with URLs left has a request running"),
    "robots": ("politeness", "pages wait for the robots.txt of their host"),
    "concurrency": ("concurrency", "sites are answering, and ready hosts wait for a slot"),
    "cpu": ("cpu", "visits wait for the processor, or are read and decided"),
    "disk": ("storage", "outcomes wait for a sync, or the disk is full"),
    "paused": ("paused", "hosts with URLs left are paused, or the crawl leases no more"),
    "nothing": ("work", "no URL may be fetched now"),
}
"""Each cause: the kind of bound that it makes, and its meaning."""


class Stage(IntEnum):
    """Where a visit is, between its lease and its outcome."""

    BEGINS = 0
    """It waits for the processor, or its answer is being read."""
    WAITS = 1
    """The visit waits for a slot."""
    NAMED = 2
    """Resolving the address of its host."""
    SITE = 3
    """Its site is at work."""
    ROBOTS = 4
    """Its site is at work on a robots.txt."""
    BOOKS = 5
    """Its outcome waits to be written, or is being written."""


@dataclass(slots=True)
class _Step:
    """A piece of the window: its length, the number of answers, and the time of slots by cause, in microseconds.
    body, late: parts of the time at sites: receiving bytes, and an end that was not yet noticed."""

    length: Instant = 0
    answers: int = 0
    body: float = 0.0
    late: float = 0.0
    causes: dict[str, float] = field(default_factory=lambda: dict.fromkeys(CAUSES, 0.0))

    def add(self, other: _Step) -> None:
        """Counts another piece in."""
        self.length += other.length
        self.answers += other.answers
        self.body += other.body
        self.late += other.late
        for cause, time in other.causes.items():
            self.causes[cause] += time


class Bottleneck:
    """Counts the time of slots; all instants are from one clock, all calls from one thread."""

    def __init__(self, places: int, now: Instant) -> None:
        self.behind = 0
        """How many leases of the last turn wait for the end of a visit to their host."""
        self._places = places
        self._at: dict[int, Stage] = {}  # by token
        self._count = [0] * len(Stage)
        self._area = [0] * len(Stage)  # with count x now: the time in each stage since the last look
        self._since = now
        self._answers = self._body = self._late = 0  # since the last look
        self._synced = 0.0  # the share of the writer thread's last turn that was spent in syncs
        self._schedule_counts: ScheduleCounts | None = None
        self._held: str | None = None  # the cause that keeps all empty slots empty
        self._steps: deque[_Step] = deque([_Step()])

    # -- the life of a visit -------------------------------------------------------------------------------------------

    def move(self, token: int, stage: Stage, now: Instant) -> None:
        """Notes that a visit enters a stage."""
        self.move_all((token,), stage, now)

    def move_all(self, tokens: Iterable[int], stage: Stage, now: Instant) -> None:
        """Notes that visits enter a stage."""
        at, count, area, moved = self._at, self._count, self._area, 0
        for token in tokens:
            was = at.get(token)
            if was is not None:
                area[was] += now
                count[was] -= 1
            at[token] = stage
            moved += 1
        area[stage] -= now * moved
        count[stage] += moved

    def answered(self, body: Instant, late: Instant) -> None:
        """Notes the answer of a visit: for how long bytes arrived, and for how long its end was not noticed."""
        self._answers += 1
        self._body += max(0, body)
        self._late += max(0, late)

    def end(self, tokens: Iterable[int], now: Instant) -> None:
        """Counts visits whose outcomes are written, and frees their slots."""
        for token in tokens:
            was = self._at.pop(token, None)
            if was is not None:
                self._area[was] += now
                self._count[was] -= 1

    def turned(
        self, standing: ScheduleCounts | None, now: Instant, *, synced: float = 0.0, held: str | None = None
    ) -> None:
        """Notes a turn of the writer thread. standing: the counts of the frontier after its leases; None: as before.
        synced: the share of the turn spent in syncs. held: a cause that keeps empty slots empty in any case."""
        self._synced = min(1.0, max(0.0, synced))
        self._look(now)
        self._schedule_counts, self._held = standing or self._schedule_counts, held

    # -- how it adds up ------------------------------------------------------------------------------------------------

    def _look(self, now: Instant) -> None:
        """Counts the time since the last look in."""
        length = now - self._since
        if length <= 0:
            return
        times = [area + count * now for area, count in zip(self._area, self._count, strict=True)]
        self._area = [-count * now for count in self._count]
        self._since = now
        most, held = self._places * length, sum(times)
        shrink = min(1.0, most / held) if held else 1.0
        step = _Step(length, self._answers, self._body * shrink, self._late * shrink)
        self._answers = self._body = self._late = 0
        spent, standing = step.causes, self._schedule_counts
        crowded = standing is not None and standing.ready and self._held is None
        spent["concurrency" if crowded else "fetching"] += times[Stage.SITE] * shrink
        spent["concurrency"] += times[Stage.WAITS] * shrink
        spent["dns"] += times[Stage.NAMED] * shrink
        spent["robots"] += times[Stage.ROBOTS] * shrink
        spent["disk"] += times[Stage.BOOKS] * shrink * self._synced
        spent["cpu"] += (times[Stage.BEGINS] + times[Stage.BOOKS] * (1 - self._synced)) * shrink
        for cause, empty in self._empty(max(0.0, most - held) / length).items():
            spent[cause] += empty * length
        self._steps[-1].add(step)
        if self._steps[-1].length >= instant(STEP_SECONDS):
            self._steps.append(_Step())
            while sum(one.length for one in self._steps) - self._steps[0].length >= instant(WINDOW_SECONDS):
                self._steps.popleft()

    def _empty(self, places: float) -> dict[str, float]:
        """Returns the number of empty slots by cause: each host that may not be visited now could use one."""
        standing = self._schedule_counts
        if self._held is not None:
            return {self._held: places}
        if standing is None:
            return {"cpu": places}
        if standing.outage:
            return {"outage": places}
        found = {"cpu": min(places, standing.ready)}  # the next turn is late
        places -= found["cpu"]
        holding = {"resting": standing.resting, "robots": standing.gated, "paused": standing.paused}
        count = sum(holding.values())
        share = min(1.0, places / count) if count else 0.0
        found |= {cause: hosts * share for cause, hosts in holding.items()}
        found["hosts" if standing.queued or self.behind else "nothing"] = places - count * share
        return found

    def last_minute(self, now: Instant) -> dict[str, Any]:
        """Returns the last minute: the counted `seconds`, `places`, answers per second, the possible rate with all
        slots at sites all the time (None before the first answer), the share of each cause in per cent, and `bound`,
        the kind of cause with the largest share."""
        self._look(now)
        whole = _Step()
        for step in self._steps:
            whole.add(step)
        spent = whole.causes
        at_sites = spent["fetching"] + spent["concurrency"]
        late = min(whole.late, at_sites)
        body = min(whole.body, at_sites - late)
        for cause in ("fetching", "concurrency") if at_sites else ():
            spent[cause] -= (late + body) * spent[cause] / at_sites
        spent["cpu"] += late
        spent["bandwidth"] += body
        possible, used = sum(spent.values()), at_sites - late
        bounds: dict[str, float] = {}
        for cause, (bound, _) in CAUSES.items():
            bounds[bound] = bounds.get(bound, 0.0) + spent[cause]
        length = seconds(whole.length)
        return {
            "seconds": round(length, 1),
            "places": self._places,
            "answers_per_second": round(whole.answers / length, 3) if length else 0.0,
            "possible_per_second": round(self._places * whole.answers / seconds(int(used)), 3) if used >= 1 else None,
            "shares": {cause: round(100 * time / possible, 2) if possible else 0.0 for cause, time in spent.items()},
            "bound": max(bounds, key=lambda bound: bounds[bound]) if possible else None,
        }


def throughput_lines(told: dict[str, Any]) -> Iterable[str]:
    """The same for people, the largest cause first."""
    if not told["bound"]:
        return
    possible = told["possible_per_second"]
    rate = f"{told['answers_per_second']:,.1f} answers a second"
    rate += f" of {possible:,.1f} possible" if possible is not None else ""
    yield f"last {told['seconds']:.0f} s  {rate} in {told['places']:,} slots; bound by {told['bound']}"
    for cause, share in sorted(told["shares"].items(), key=lambda one: -one[1]):
        if share >= 0.05:
            yield f"  {share:5.1f} %  {cause}: {CAUSES[cause][1]}"
