"""The frontier as a scheduler of pages: in memory, on the clock of the experiment, with its own rules, rate and hosts.

The pages are known and were visited at the start. A visit is a lease and its report, with a digest that is another one
whenever the page has changed. The record of a URL keeps its last visit to a second, and a call leases at most what the
rate allows in a second, so a unit of time has at least ten seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np

from outrider.clock import Instant
from outrider.engine import Frontier
from outrider.errors import SettingsError
from outrider.frontier.policy.visit_values import Floats
from outrider.frontier.verbs.revisiting import Revisits
from outrider.journey import Link, OutcomeBatch
from outrider.limits import CALL_ROWS_MAX, CHANGE_CONFIDENCE_MAX, MICROSECONDS, REVISIT_STEP
from outrider.sim.price_calendar import KnownRates, LearnedRates
from outrider.sim.revisit_worlds import Flags, Numbers, Pages
from outrider.storage.memory import MemoryFiles

UNIT_SECONDS: Final = 10.0
"""The seconds of a unit of time, if an experiment does not choose others."""
_START: Final[Instant] = 1_700_000_000_000_000
_KEYS: Final = (b"fingerprint keys", b"keys of all slot")  # random ones would make other numbers in each run


class FrontierScheduler:
    """The scheduler, by the protocol `VisitScheduler`. Numbers depend only on its arguments.

    rule: a name of revisit rules. budget: visits per unit of time, None without a limit. price: at the start, step: of
    its logarithm for each visit; both None: as the frontier chooses them. rates: None for known rates. unit: the
    seconds of a unit. share: the setting `discovery_share`. known: how many of the pages are known at the start, the
    first ones; `appear` adds the next ones. interval: the first one of a published rule in seconds, None for its own.
    """

    def __init__(
        self,
        pages: Pages,
        rule: str = "optimal",
        *,
        budget: float | None,
        seed: int,
        price: float | None = None,
        step: float | None = None,
        rates: KnownRates | LearnedRates | None = None,
        unit: float = UNIT_SECONDS,
        share: float | None = None,
        known: int | None = None,
        interval: float | None = None,
    ) -> None:
        self._unit, self._now = unit, _START
        settings: dict[str, object] = {
            "delay": unit / pages.host_rate if pages.host is not None else 0.0,
            "delay_factor": 0.0,
            "revisit": rule,
            "discovery_share": share,
        }
        if budget is not None:
            settings["rate"] = budget / unit
        self.frontier = Frontier.open(
            MemoryFiles(), clock=lambda: self._now, seed=seed, settings=settings, robots="caller", keys=_KEYS
        )
        hosts = np.arange(len(pages)) if pages.host is None else pages.host
        self._urls = [f"http://h{host}.com/{row}" for row, host in enumerate(hosts.tolist())]
        self._rows = {url: row for row, url in enumerate(self._urls)}
        self._scale = 1.0 / float(pages.importance.max())  # a priority is 1 at most
        self._priorities = (pages.importance * self._scale).tolist()
        self._versions = np.zeros(len(pages), np.int64)
        self._known = len(pages) if known is None else known
        self._tokens: dict[int, int] = {}
        if isinstance(rates, LearnedRates):
            rate, confidence = np.exp(rates.theta), rates.confidence
        else:
            rate, confidence = pages.rate, np.full(len(pages), CHANGE_CONFIDENCE_MAX)
        self.frontier.restore(self._records(rate / unit, confidence, interval))
        if price is not None:
            self.revisits.begin(math.log(price * self._scale * unit), REVISIT_STEP if step is None else step)

    def _records(self, rate: Floats, confidence: Floats, interval: float | None) -> Iterable[Mapping[str, Any]]:
        """Yields the records of the known pages, which were visited at the start."""
        for row in range(self._known):
            yield {
                "url": self._urls[row],
                "state": "waiting",
                "reason": "planned",
                "due": _START,
                "priority": self._priorities[row],
                "depth": 1,
                "status": 200,
                "fetched_at": _START,
                "digest": self._digest(row).hex(),
                "change_rate": float(rate[row]),
                "change_confidence": float(confidence[row]),
                "revisit_interval": interval,
            }

    @property
    def batch_max(self) -> int:
        """As of `VisitScheduler`: the rate allows no more at once."""
        return CALL_ROWS_MAX if self.revisits.rate is None else max(1, int(self.revisits.rate.per_second))

    @property
    def revisits(self) -> Revisits:
        """The price and the counts inside of the frontier, which its callers do not set."""
        return self.frontier._machine.core.revisits

    @property
    def looks(self) -> int:
        """As of `VisitScheduler`."""
        return self.revisits.looks

    def take(self, now: float, count: int) -> Numbers:
        """Leases at most `count` pages; see `VisitScheduler.take`."""
        self._now = max(self._now, self._at(now))
        leases = self.frontier.lease(count)
        found = [self._rows[url] for url in leases.urls]
        self._tokens = {row: lease.token for row, lease in zip(found, leases, strict=True)}
        return np.array(found, np.int64)

    def visited(self, pages: Numbers, times: Floats, changed: Flags) -> None:
        """Reports the visits; see `VisitScheduler.visited`."""
        if not len(pages):
            return
        self._versions[pages] += changed
        ended, rows = [self._at(time) for time in times.tolist()], pages.tolist()
        self._now = max(self._now, ended[-1])
        self.frontier.report(
            OutcomeBatch(
                [self._tokens[row] for row in rows],
                seconds=np.zeros(len(rows)),
                digests=[self._digest(row) for row in rows],
                ended_at=ended,
            )
        )

    def signalled(self, pages: Numbers, counts: Numbers, now: float) -> None:
        """Raises SettingsError: the frontier has no signals yet."""
        raise SettingsError("the frontier has no signals: use the scheduler of reference")

    def appear(self, count: int, now: float) -> None:
        """Pages up to this number are known from now on: links to them were found."""
        self._now = max(self._now, self._at(now))
        rows = range(self._known, count)
        self.frontier.discover([Link(self._urls[row], priority=self._priorities[row], depth=1) for row in rows])
        self._known = max(self._known, count)

    def _at(self, time: float) -> Instant:
        return _START + round(time * self._unit * MICROSECONDS)

    def _digest(self, row: int) -> bytes:
        return b"%08x%08x" % (row, int(self._versions[row]))
