"""The slots whose URLs an opening has not read from the ledger yet.

The places of queued and waiting URLs and the seen keys are derived from the ledger. With the counts of a checkpoint
(`kept_schedule`) an opening leaves all slots for later: the counts of hosts and crawls are true at once, and a slot is
read when a call needs it. Until then, facts about its URLs change the counts and the ledger alone, so reading it finds
the present state, and its hosts have no URL to offer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from outrider.clock import Instant
from outrider.frontier.format.card_columns import Cards
from outrider.frontier.state.hosts import Rows
from outrider.frontier.state.url_table import (
    PARKED,
    QUEUED,
    WAITING,
    Uint8s,
    Uint64s,
    gathered,
    is_in_ledger_alone,
)
from outrider.frontier.stores.ledger import FINGERPRINT_MAX, before_slot
from outrider.kernels.card_layout import PLANNED, Heads
from outrider.limits import (
    RUN_READ_BYTES,
    SEARCH_COST_ROWS,
    SLOT_COST_ROWS,
    SLOTS,
    SLOTS_READ_ROWS,
    SLOTS_READ_ROWS_OWED,
)
from outrider.storage.record_columns import distinct

if TYPE_CHECKING:
    from outrider.frontier.state.tables import Tables


class UnreadSlots:
    """All slots of a store, until their URLs are read. woken: by slot, waiting URLs that were due by this instant count
    as queued, although their records say waiting. Its methods raise DamagedStoreError."""

    def __init__(self, tables: Tables, woken: npt.NDArray[np.int64]) -> None:
        self._tables = tables
        self._woken = woken
        self._owed = 0  # URLs that calls have still to read
        self._order = tables.urls.order  # after the last call
        self._unread = np.ones(SLOTS, np.bool_)
        self._rows = max(1, tables.urls.ledger.statistics().records // SLOTS)  # about the URLs of a slot
        self._leased: Uint64s | None = None
        """The orders of the URLs that were leased when the first slot was read. Later leases are of read slots."""
        self.searched = 0
        """How many URLs of unread slots were searched in the ledger, for facts about them."""
        self.parked = False
        """Whether a URL of an unread slot was parked for a budget since the opening."""

    def __len__(self) -> int:
        """How many slots are unread."""
        return int(np.count_nonzero(self._unread))

    def are(self, slots: npt.NDArray[np.uint16]) -> npt.NDArray[np.bool_]:
        """Whether each of these slots is unread."""
        found: npt.NDArray[np.bool_] = self._unread[slots]
        return found

    def counted_as(self, heads: Heads) -> Uint8s:
        """Returns the state in which each URL is counted, by its record."""
        return np.where(self._unread[heads["slot"]] & self._is_woken(heads), QUEUED, heads["state"]).astype(np.uint8)

    def woken_until(self, now: Instant) -> npt.NDArray[np.int64]:
        """Returns the instant of each slot up to which its waiting URLs count as queued. now: that of read slots."""
        return np.where(self._unread, self._woken, now)

    def may_be_kept(self) -> bool:
        """Whether counts are enough for the next opening. A leased URL counts as queued there, and its record may say
        waiting."""
        return not self.parked and not self._unread[self._tables.urls.open_leases().cards.heads["slot"]].any()

    def are_searched_often(self) -> bool:
        """Whether the searches for URLs of unread slots have cost a quarter of what reading all slots costs."""
        return 4 * self.searched * SEARCH_COST_ROWS > self._rows * SLOTS

    def note_parked(self, heads: Heads) -> None:
        """Notes whether URLs of unread slots are parked for a budget."""
        self.parked |= bool(((heads["state"] == PARKED) & ~is_in_ledger_alone(heads)).any())

    def read(self, slots: npt.NDArray[np.uint16]) -> None:
        """Reads those of these slots that are unread; all slots if that costs as much."""
        needed = distinct(slots[self._unread[slots]])
        if not len(needed):
            return
        if len(needed) * max(self._rows, SLOT_COST_ROWS) >= len(self) * self._rows:
            self.read_all()
            return
        for slot in needed.tolist():
            self._read(slot, slot)

    def read_some(self, rows: int) -> None:
        """Reads the next slots, with about this number of URLs, and one slot at least."""
        left = np.flatnonzero(self._unread)[: max(1, rows // self._rows)]
        gaps = np.flatnonzero(np.diff(left) > 1)
        self._read(int(left[0]), int(left[gaps[0] if len(gaps) else -1]))

    def read_owed(self) -> bool:
        """Notes after a call that a few URLs must be read, and more for each URL that was added. Reads a slot as soon
        as that many are owed. Returns whether it read one."""
        order = self._tables.urls.order
        self._owed += SLOTS_READ_ROWS_OWED + 4 * (order - self._order)
        self._order = order
        if self._owed < self._rows:
            return False
        self.read_some(self._owed)
        self._owed = 0
        return True

    def read_all(self) -> None:
        """Reads all slots that are unread."""
        while self._tables.urls.unread is self:
            self.read_some(SLOTS_READ_ROWS)

    def _read(self, first: int, last: int) -> None:
        """Reads slots from one to another; all of them are unread."""
        urls = self._tables.urls
        if self._leased is None:
            self._leased = self._open_leases()
        self._unread[first : last + 1] = False
        try:
            for cards in gathered(self._cards(first, last)):
                self._place(cards)
            urls.wake_all(urls.last_woken)  # URLs that came to be due while the slots were unread
        except BaseException as error:
            self._tables.tear("the reading of a slot", error)  # some of its URLs have their places
            raise
        if not self._unread.any():
            urls.unread = None

    def _cards(self, first: int, last: int) -> Iterator[Cards]:
        """Yields the cards of these slots, of all crawls."""
        ledger = self._tables.urls.ledger
        bytes_at_once = RUN_READ_BYTES if last > first else RUN_READ_BYTES // 4
        for crawl in self._tables.crawls.names:
            end = crawl, last, FINGERPRINT_MAX
            for cards in ledger.scan(after=before_slot(crawl, first), last=end, bytes_at_once=bytes_at_once):
                heads = cards.heads
                here = (heads["crawl"] == crawl) & (heads["slot"] <= last)
                if here.all():
                    yield cards
                    continue
                yield cards.filter(here)
                break

    def _place(self, cards: Cards) -> None:
        """Puts the cards of a slot into the places of their states, except those that are leased or in the record of a
        cold host."""
        urls, tables = self._tables.urls, self._tables
        if urls.voids():
            cards = cards.filter(~urls.void(cards.heads))
        if not len(cards):
            return
        urls.seen.add(cards.heads)
        rest = self._without_leased(cards)
        if len(rest) < len(cards):
            urls.seen.add_contents(cards)
        cards = rest
        woken = self._is_woken(cards.heads)
        if woken.any():
            heads = cards.changed()
            heads["state"][woken] = QUEUED
            cards = cards.with_heads(heads)
            tables.hosts.woken[tables.queues.host[tables.rows_of(heads[woken])]] = True
        if len(tables.cold):
            cards = urls.set_aside(cards, counts=False)
        rows: Rows = tables.rows_of(cards.heads)
        urls.place(cards, rows)

    def _is_woken(self, heads: Heads) -> npt.NDArray[np.bool_]:
        found: npt.NDArray[np.bool_] = (heads["state"] == WAITING) & (heads["due"] <= self._woken[heads["slot"]])
        found &= heads["reason"] != PLANNED
        return found

    def _without_leased(self, cards: Cards) -> Cards:
        """Returns the cards without those of open leases. It looks at all open leases only if one may be among them."""
        orders = cards.heads["order"]  # a URL that was deleted and accepted anew has another one
        if self._leased is None or not np.isin(orders, self._leased).any():
            return cards
        return cards.filter(~np.isin(orders, self._open_leases()))

    def _open_leases(self) -> Uint64s:
        return self._tables.urls.open_leases().cards.heads["order"].copy()
