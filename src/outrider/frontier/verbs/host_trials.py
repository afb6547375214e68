"""Trials of new hosts of registrable domains. A page may name 200 unknown hosts, and each costs a look-up and a
robots.txt before its first page.

Until the returns of the new hosts of a domain are known, a limited number of them are tried at once. Further hosts
wait. A trial ends with the first answer of the host, or by its age. Trials are in memory alone: after a restart they
begin anew, but the returns of the hosts are facts (`returns`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from outrider.clock import Instant, instant
from outrider.frontier.state.hosts import Rows
from outrider.frontier.state.tables import Tables
from outrider.limits import (
    HOST_TRIAL_SECONDS,
    HOST_TRIALS_DOMAINS_MAX,
    HOST_TRIALS_HELD_SECONDS_MAX,
    HOST_TRIALS_MAX,
    WAKES_PER_CALL_MAX,
)


@dataclass(slots=True)
class _Domain:
    """begun: rows of hosts on trial, with the instants at which their trials began; held: rows of hosts that wait for
    a trial; looked: the instant of the last search for ended trials, and the number of reports at that time."""

    begun: dict[int, Instant] = field(default_factory=dict)
    held: dict[int, None] = field(default_factory=dict)
    looked: tuple[Instant, int] = (-1, 0)


class HostTrials:
    """The trials of new hosts, by the names under which the returns of the new hosts of domains are stored."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._domains: dict[int, _Domain] = {}
        self._holding: dict[int, None] = {}  # domains with hosts that wait
        self._held: dict[int, int] = {}  # by waiting host: its domain
        self._just_held: dict[int, None] = {}
        self.reports = 0  # how many have arrived

    def begins(self, name: int, host: int, now: Instant) -> bool:
        """Whether a host is on trial, or may begin now; otherwise it waits."""
        domain = self._domains.get(name)
        if domain is None:
            domain = self._domains[name] = _Domain()
            if len(self._domains) > HOST_TRIALS_DOMAINS_MAX:
                self.forget(next(iter(self._domains)))
        if host in domain.begun:
            return True
        if self._room(domain, now) > 0:
            domain.begun[host] = now
            self._release(domain, host)
            return True
        domain.held[host] = None
        self._holding[name] = None
        self._held[host] = name
        self._just_held[host] = None
        return False

    def _release(self, domain: _Domain, host: int) -> None:
        domain.held.pop(host, None)
        self._held.pop(host, None)

    def end(self, name: int, host: int) -> None:
        """Ends the trial of a host without an address."""
        if (domain := self._domains.get(name)) is not None:
            domain.begun.pop(host, None)

    def forget(self, name: int) -> None:
        """Forgets the trials of a domain. Its waiting hosts are offered again when their time is over."""
        domain = self._domains.pop(name, None)
        self._holding.pop(name, None)
        for host in domain.held if domain is not None else ():
            self._held.pop(host, None)

    def _room(self, domain: _Domain, now: Instant) -> int:
        """Returns how many hosts may begin now. Hosts with an answer, and old ones, are not on trial any more."""
        if len(domain.begun) >= HOST_TRIALS_MAX and (now, self.reports) != domain.looked:
            domain.looked = now, self.reports
            rows = np.fromiter(domain.begun, np.intp)
            old = np.fromiter(domain.begun.values(), np.int64) + instant(HOST_TRIAL_SECONDS) <= now
            for host in rows[(self._tables.hosts.answered[rows] > 0) | old].tolist():
                del domain.begun[host]
        return HOST_TRIALS_MAX - len(domain.begun)

    def just_held(self, now: Instant) -> dict[int, Instant]:
        """Returns the hosts that began to wait since the last call, each with the instant of its next check if no trial
        ends before."""
        found: dict[int, Instant] = {}
        for host in self._just_held:
            if host in self._held:
                held = len(self._domains[self._held[host]].held)
                wait = HOST_TRIAL_SECONDS * (1 + held // HOST_TRIALS_MAX)
                found[host] = now + instant(min(wait, HOST_TRIALS_HELD_SECONDS_MAX))
        self._just_held.clear()
        return found

    def holds(self, host: int) -> bool:
        """Whether a host waits for its trial."""
        return host in self._held

    def releases(self, is_decided: Callable[[int], bool], now: Instant) -> bool:
        """Whether `released` finds any host."""
        return any(is_decided(name) or self._room(self._domains[name], now) > 0 for name in self._holding)

    def released(self, is_decided: Callable[[int], bool], now: Instant) -> Rows:
        """Returns a bounded number of hosts that need not wait any more. is_decided: whether the returns of the new
        hosts of a domain are known, by its name."""
        found: list[int] = []
        for name in list(self._holding):
            domain, left = self._domains[name], WAKES_PER_CALL_MAX - len(found)
            decided = is_decided(name)
            room = left if decided else min(left, self._room(domain, now))
            for host in list(islice(domain.held, max(room, 0))):
                self._release(domain, host)
                found.append(host)
            if not domain.held:
                del self._holding[name]
                if decided:
                    del self._domains[name]
        rows = np.array(found, np.uint32)
        return rows[self._tables.hosts.there[rows.astype(np.intp)]]
