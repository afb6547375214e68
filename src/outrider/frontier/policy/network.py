"""Whether our own network is at fault: many hosts that answered before fail in a row, and no host answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from outrider.clock import Instant, instant
from outrider.limits import (
    NETWORK_HOSTS_MIN,
    NETWORK_OUTAGE_SECONDS_MAX,
    NETWORK_PAUSE_SECONDS_FIRST,
    NETWORK_PAUSE_SECONDS_MAX,
)

SILENT = frozenset(
    {
        *("connect_timeout", "first_byte_timeout", "idle_timeout", "total_timeout", "reset", "empty_reply"),
        *("unreachable", "dns_temporary"),
    }
)
"""Errors that a network without a way out makes. A refused connection is none: somebody was there to refuse it."""


@dataclass(frozen=True, slots=True)
class Network:
    """The network as the last outcomes show it. silent: the hosts that failed since the last answer, by hash, of those
    that answered before, with the strain that each had; since, pause_seconds, until: of an outage, 0 where there is
    none: when it was noticed, and the pause that runs. given_up: it lasted so long that hosts are marked again."""

    silent: Mapping[int, float] = field(default_factory=dict)
    since: Instant = 0
    pause_seconds: float = 0.0
    until: Instant = 0
    given_up: bool = False

    @property
    def down(self) -> bool:
        """Whether an outage lasts: no host is marked, and beyond a pause a few requests try the network."""
        return self.until > 0

    def after(self, *, answered: bool, silent: Mapping[int, float], now: Instant) -> Network:
        """The network after some outcomes. answered: whether a host answered among them, which ends an outage; silent:
        the hosts that failed though they had answered before. Pauses double from half a minute to ten minutes; after a
        day without any answer they end, so that a crawl of dead hosts ends too."""
        if answered:
            return _UP
        if self.given_up or not (silent or self.down):
            return self
        if self.down:
            if now < self.until:
                return self  # requests that were open when it was noticed
            if now - self.since > instant(NETWORK_OUTAGE_SECONDS_MAX):
                return Network(given_up=True)
            pause = min(2 * self.pause_seconds, NETWORK_PAUSE_SECONDS_MAX)
            return replace(self, silent={}, pause_seconds=pause, until=now + instant(pause))
        gathered = {**silent, **self.silent}
        if len(gathered) < NETWORK_HOSTS_MIN:
            return replace(self, silent=gathered)
        until = now + instant(NETWORK_PAUSE_SECONDS_FIRST)
        return Network(gathered, max(now, 1), NETWORK_PAUSE_SECONDS_FIRST, until)


_UP = Network()
