"""The addresses of hosts, from callers or errands, with the time for which they hold and the time of the next errand.

Pure functions of a host's cells and an answer (docs/groups.md).
"""

from __future__ import annotations

from outrider.clock import Instant, instant
from outrider.frontier.format.facts import Fact, Row
from outrider.frontier.policy.grouping import address_of
from outrider.frontier.policy.revisit import retries_left, retry_seconds
from outrider.frontier.state.errand import Errand
from outrider.journey import Kind
from outrider.limits import (
    ADDRESS_FAILED_SECONDS,
    ADDRESS_SECONDS_MAX,
    ADDRESS_SECONDS_MIN,
    ADDRESS_SECONDS_USUAL,
    RETRY_AFTER_SECONDS_MAX,
)

FOREVER: Instant = 1 << 62
"""The `expires` of an address that a caller gave."""


class Whereabouts(Errand):
    """The cells of one host's address, and of the errand that asks for it.

    address: "" for none. expires: the instant until which the answer holds, also the answer that there is none; 0: an
    errand must ask. next_at: no errand before this instant. attempts: failures since the last answer. error: the class
    of the last failure. token: the open errand, 0 for none.
    """

    __slots__ = ("address", "expires", "number")

    def __init__(self, host: int, slot: int, number: int, name: str) -> None:
        """number: the keyed hash of the host's name."""
        super().__init__(Kind.ADDRESS, slot, host, name, f"dns:{name}")
        self.number = number
        self.address = ""
        self.expires: Instant = 0

    @property
    def owner(self) -> str:
        return ""

    @property
    def place(self) -> tuple[int, int]:
        """Slot and host, the first columns of its facts."""
        return self.slot, self.number

    def opening(self, token: int, deadline: Instant, holder: int) -> tuple[Fact, Row]:
        return Fact.LOCATING, (*self.place, token, deadline, holder)

    def ending(self, until: Instant, *, lost: bool = False) -> tuple[Fact, Row]:
        return Fact.LOCATED, (*self.place, *self.cells(max(self.next_at, until)))

    def cells(self, next_at: Instant | None = None) -> Row:
        """The columns of a LOCATED fact behind its slot and host. next_at: replaces the own one."""
        at = self.next_at if next_at is None else next_at
        return (self.address, self.expires, at, self.attempts, self.error)

    def after_answer(
        self,
        address: str | None,
        now: Instant,
        *,
        ttl_seconds: float | None,
        error: str | None,
        after_seconds: float | None,
        final: bool,
    ) -> Row:
        """The cells after an answer: an address with its time to live; a failure that may pass (not `final`), with the
        next errand after 5, 30, 300 s; or no address, which holds for an hour."""
        if address is not None:
            told = ADDRESS_SECONDS_USUAL if ttl_seconds is None else ttl_seconds
            seconds = min(max(told, ADDRESS_SECONDS_MIN), ADDRESS_SECONDS_MAX)
            return (str(address_of(address)), now + instant(seconds), 0, 0, "")
        attempt = self.attempts + 1
        if not final and retries_left(attempt):
            wait = retry_seconds(attempt) if after_seconds is None else after_seconds
            wait = min(max(0.0, wait), RETRY_AFTER_SECONDS_MAX)
            return (self.address, 0, now + instant(wait), attempt, error or "no_address")
        return ("", now + instant(ADDRESS_FAILED_SECONDS), 0, 0, error or "no_address")

    def __repr__(self) -> str:
        return f"<Whereabouts {self.name} at {self.address or self.error or 'nobody knows'}>"
