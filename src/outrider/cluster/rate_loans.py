"""Loans of shares of the rate: a node without work lends its shares to a node whose fetches wait for the rate.

The owner of a partition alone decides about its share. So a share has one user at a time, also if messages are late or
come twice, and if a node is paused or dies:

ask      a node that needs more asks, and notes when (before the question is on its way)
lend     an idle owner stops using a share, notes in its store that it is lent, and then answers
use      the borrower uses it a minute after the answer came, until `RATE_LOAN_SECONDS` after it had asked
return   the owner uses it again a minute after `RATE_LOAN_SECONDS` are over since it lent it, which is later

The next owner of a partition whose store says that the share is lent waits for as long. Each node uses its own clock.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Final

from outrider.clock import Instant
from outrider.cluster.rate_shares import SHARE_REST
from outrider.cluster.stores import OwnStore
from outrider.cluster.words import RateLoan
from outrider.limits import MICROSECONDS, RATE_ASK_SECONDS_MAX, RATE_IDLE_SECONDS, RATE_LOAN_SECONDS

_LOAN: Final = int(RATE_LOAN_SECONDS * MICROSECONDS)
_LENT: Final = "rate"
"""The name of the place of a store that says whether the share of its partition may be lent."""


def rest_of(store: OwnStore) -> Instant:
    """Returns how long the owner that has just opened a store leaves its share unused."""
    return SHARE_REST + (_LOAN if store.frontier.watermarks().get(_LENT) == b"1" else 0)


class RateLoans:
    """The loans of one node."""

    def __init__(self, node: str, now: Callable[[], Instant]) -> None:
        """now: a clock that also counts while the machine sleeps."""
        self._node, self._now = node, now
        self._asks: dict[str, Instant] = {}  # when this node asked, by the mark of the question
        self._asked: dict[str, tuple[str, Instant]] = {}  # by other nodes: the mark, and when it came
        self._borrowed: dict[int, tuple[Instant, Instant]] = {}  # from and until when a share may be used

    # -- borrowing ----------------------------------------------------------------------------------------------------

    def ask(self, short_at: Instant | None) -> str:
        """Returns the mark of a new question for more shares; nothing if the rate is enough. Call it before the
        question is sent. short_at: when this node last needed more than its shares."""
        now = self._now()
        self._asks = {mark: at for mark, at in self._asks.items() if at + _LOAN > now}
        if short_at is None or now - short_at > RATE_ASK_SECONDS_MAX * MICROSECONDS:
            return ""
        mark = os.urandom(8).hex()
        self._asks[mark] = now
        return mark

    def borrowed(self) -> int:
        """Returns how many borrowed shares this node may use now."""
        now = self._now()
        return sum(begin <= now < end for begin, end in [*self._borrowed.values()])

    # -- messages -----------------------------------------------------------------------------------------------------

    def hear(self, node: str, mark: str, loans: Iterable[RateLoan]) -> None:
        """Takes the question and the loans of a node."""
        now = self._now()
        if mark and node != self._node:
            self._asked[node] = mark, now
        for loan in loans:
            asked = self._asks.get(loan.mark)
            if asked is None:
                continue  # another node has asked, or the question is old
            begin, end = self._borrowed.get(loan.partition, (0, 0))
            # During an earlier loan this node alone uses the share, so it need not wait.
            begin = begin if now < end else now + SHARE_REST
            self._borrowed[loan.partition] = begin, max(end, asked + _LOAN)

    # -- lending ------------------------------------------------------------------------------------------------------

    def lend(self, stores: Iterable[OwnStore], used_at: Instant) -> list[RateLoan]:
        """Lends the shares of own stores, if this node is idle and others have asked, and extends earlier loans. One
        share stays, so that this node can begin at once. Call it while no lease is made, and `note_lent` for each
        store before the answer is sent. used_at: when this node last had a lease."""
        now = self._now()
        asked = {
            node: mark for node, (mark, at) in self._asked.items() if now - at <= RATE_ASK_SECONDS_MAX * MICROSECONDS
        }
        self._asked.clear()
        if not asked or now - used_at < RATE_IDLE_SECONDS * MICROSECONDS:
            return []
        loans, nodes = [], [*asked]
        every = [*stores]
        free = [store for store in every if store.rate_from <= now][1:]
        for place, store in enumerate(free):
            store.rate_lent_to = nodes[place % len(nodes)]
        for store in every:
            goes_on = store.rate_lent_to in asked and store.rate_from > now + SHARE_REST
            if goes_on or store in free:
                store.rate_from = now + _LOAN + SHARE_REST
                loans.append(RateLoan(store.number, asked[store.rate_lent_to]))
        return loans


def note_lent(store: OwnStore) -> None:
    """Notes in a store that its share is lent, before the answer is sent. Raises StoreError."""
    if store.frontier.watermarks().get(_LENT) != b"1":
        store.frontier.note_watermark(_LENT, b"1")


def note_returned(store: OwnStore, now: Instant) -> None:
    """Notes in a store that its share is used here again. Raises StoreError."""
    if store.rate_from <= now and store.frontier.watermarks().get(_LENT) == b"1":
        store.frontier.note_watermark(_LENT, b"0")
        store.rate_lent_to = ""
