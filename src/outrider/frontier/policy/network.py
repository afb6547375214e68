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
"""Errors that a network without a connection causes. A refused connection is not one: something refused it."""


@dataclass(frozen=True, slots=True)
class Network:
    """The network as the last outcomes show it. silent: by hash, the hosts that failed since the last response although
    they had responded before, each with its throttle. since, pause_seconds, until: the start of an outage and its
    pause, 0 without an outage. given_up: it lasted so long that hosts are marked again."""

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
        """The network after some outcomes. answered: whether a host responded among them, which ends an outage. silent:
        the hosts that failed although they had responded before. Pauses double from half a minute to ten minutes. After
        a day without any response they end, so that a crawl of dead hosts ends too."""
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
