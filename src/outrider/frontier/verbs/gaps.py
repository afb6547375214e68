"""Gaps: the least pause after a request to a host, by floor and Crawl-delay."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from outrider.clock import Instant, instant
from outrider.frontier.policy.frontier_settings import FrontierSettings
from outrider.frontier.schedule.host_schedule import HostSchedule
from outrider.frontier.state.hosts import DELAYED, NONE, RULED, SLOWED, QueueRules, Rows
from outrider.frontier.state.robots_answers import crawl_delay
from outrider.frontier.state.tables import Tables
from outrider.frontier.verbs.draft import Draft
from outrider.limits import MICROSECONDS


class Gaps:
    """The gaps of hosts, and the rests of hosts whose leases end without a report."""

    def __init__(self, tables: Tables, settings: FrontierSettings, turns: HostSchedule) -> None:
        self.tables, self.settings, self.turns = tables, settings, turns

    def floor(self, queue: int) -> float:
        """Returns the least gap in seconds after a request of a queue."""
        return self.floor_under(self.tables.queues.rules.get(queue))

    def floor_of_page(self, queue: int) -> float:
        """Returns the least gap in seconds after a page of a queue. Operators cannot set rules for a queue of a deleted
        crawl any more, so for it the other queues of the host count, too."""
        floor = self.floor(queue)
        if not self.tables.crawls.gone[self.tables.queues.crawl[queue]]:
            return floor
        return max(floor, self.floor_of_host(int(self.tables.queues.host[queue])))

    def floor_under(self, rules: QueueRules | None) -> float:
        """Returns the least gap in seconds after a request of a queue with these rules."""
        return self.settings.delay if rules is None or rules.delay is None else rules.delay

    def floor_of_host(self, host: int) -> float:
        """Returns the least gap in seconds after a request to a host that belongs to no queue: the largest gap among
        its queues of living crawls."""
        tables = self.tables
        if not tables.hosts.flags[host] & (RULED | SLOWED):
            return self.settings.delay
        living = (queue for queue in tables.queues_of(host) if not tables.crawls.gone[tables.queues.crawl[queue]])
        return max(map(self.floor, living), default=self.settings.delay)

    def crawl_delay(self, host: int) -> float:
        """Returns the seconds that robots rules require between two requests to a host."""
        asked = crawl_delay(self.tables.robots.of_host.get(host, ()), self.tables.robots.rulebook)
        return self.obeyed(asked) if asked else asked

    def crawl_delays(self, draft: Draft, hosts: Rows) -> npt.NDArray[np.float64] | None:
        """Returns the Crawl-delays of hosts in seconds, also of rules that this call brings; None if no host has
        one."""
        robots, flags = self.tables.robots, self.tables.hosts.flags
        asked = (flags[hosts.astype(np.intp)] & np.uint16(DELAYED)).nonzero()[0]
        if not len(asked) and not draft.crawl_delays:
            return None
        delays = np.zeros(len(hosts))
        for place, host in zip(asked.tolist(), hosts[asked].tolist(), strict=True):
            delay = crawl_delay(robots.of_host.get(host, ()), robots.rulebook)
            if delay:
                delays[place] = self.obeyed(delay)
            else:
                flags[host] &= ~np.uint16(DELAYED)  # until the rules change
        for host, delay in draft.crawl_delays.items():
            delays[hosts == host] = np.maximum(delays[hosts == host], delay)
        return delays if delays.any() else None

    def obeyed(self, delay: float) -> float:
        """Returns the seconds of a Crawl-delay under the settings."""
        if not self.settings.obey_robots:
            return 0.0
        most = self.settings.crawl_delay_max
        return min(delay, most) if most is not None and self.settings.crawl_delay_over == "cap" else delay

    def gap(self, host: int, floor: float) -> Instant:
        """Returns the gap between the beginnings of requests to a host whose ends are not known yet."""
        return instant(max(float(self.tables.hosts.gap[host]), floor, self.crawl_delay(host)))

    def gaps(self, draft: Draft, hosts: Rows, queues: Rows) -> npt.NDArray[np.int64]:
        """As `gap`, after pages of these queues of different hosts."""
        floor: npt.NDArray[np.float64] | float = self.settings.delay
        if self.tables.queues.rules:
            floor = np.array([self.floor(queue) for queue in queues.tolist()])
        gaps = np.maximum(self.tables.hosts.gap[hosts.astype(np.intp)], floor)
        delays = self.crawl_delays(draft, hosts)
        gaps = gaps if delays is None else np.maximum(gaps, delays)
        found: npt.NDArray[np.int64] = np.ceil(gaps * MICROSECONDS).astype(np.int64)
        return found

    def whole(self, draft: Draft, host: int, floor: float, now: Instant, *, over: bool = True) -> None:
        """Lets the host of a lease without a report rest one whole delay, because its holder may have fetched just
        now. over: False for a lease that continues."""
        if host == NONE:
            return
        clock = draft.clock(host)
        delay = self.crawl_delay(host)
        clock.rest_at_least(now + instant(max(clock.gap, floor, delay)))
        if over or self.turns.shared.used:
            # In doubt a request ended now: the gaps of groups and a later Crawl-delay count from there.
            clock.ended = max(clock.ended, now)

    def whole_of_host(self, draft: Draft, host: int, now: Instant) -> None:
        """As `whole`, for an errand, which has no queue."""
        if host != NONE:
            self.whole(draft, host, self.floor_of_host(host), now)
