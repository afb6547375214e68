"""Sites that ask for payment: three answers with 402 in a row park the first part of their path, twelve their host.

The host is parked by policy/block_detection.py. The counts by part are facts, so a restart does not forget them. URLs
of a part with such an answer are fetched after the other URLs of their queue: a site whose first parts cost money may
have free ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from outrider.frontier.format.facts import Fact
from outrider.frontier.policy.block_detection import BlockSignal, Signals
from outrider.frontier.state.payments import NO_PAYMENT, Payment, is_root, place_of
from outrider.frontier.state.url_table import OpenLeases
from outrider.frontier.verbs.deciding import Part
from outrider.frontier.verbs.draft import Draft
from outrider.frontier.verbs.outcome_columns import OutcomeColumns
from outrider.limits import PAYMENT_PART_ANSWERS_MAX

ERROR: Final = "payment"
"""The error of pages that ask for payment, and of those that are parked for it."""
_IN_ROW_MAX: Final = 255
PAYMENT_REQUIRED: Final = 402
_ASKS: Final = int(BlockSignal.PAYMENT)


class Paying(Part):
    """The part of the machine that counts answers which ask for payment."""

    def concern(self, outcomes: OutcomeColumns) -> bool:
        """Whether any of these answers may change a count. Then the texts of their URLs are needed."""
        asks = outcomes.statuses == PAYMENT_REQUIRED
        return bool(self.tables.urls.payments.begun or outcomes.payments or np.count_nonzero(asks))

    def hear(
        self,
        draft: Draft,
        outcomes: OutcomeColumns,
        leases: OpenLeases,
        ended: npt.NDArray[np.bool_],
        signals: Signals,
    ) -> None:
        """Counts the answers of pages by the first part of their paths. ended: the outcomes that end a lease of a page;
        signals: the sign of each answer."""
        payments = self.tables.urls.payments
        callers = self.tables.crawls.of_callers(leases.cards.heads["crawl"])
        ended = ended if callers is None else ended & ~callers  # their texts need not be URLs
        asks = ended & (signals == _ASKS)
        told = asks | (ended & (signals == BlockSignal.HEALTHY)) if payments.begun else asks.copy()
        told[[row for row in outcomes.payments if ended[row]]] = True
        changed: dict[str, tuple[int, Payment]] = {}
        for row in np.flatnonzero(told).tolist():
            place = place_of(leases.cards.url(row))
            known = changed[place][1] if place in changed else payments.get(place)
            new = _after(known, asks=bool(asks[row]), counts=not is_root(place), terms=outcomes.payments.get(row))
            if new != known:
                changed[place] = int(leases.cards.heads["slot"][row]), new
        self._add(draft, changed)
        charged = sum(bool(ended[row]) and not asks[row] for row in outcomes.payments)
        for name, count in (("answers", int(np.count_nonzero(asks))), ("charged", charged)):
            if count:
                draft.tally(f"payment.{name}", count)

    def is_closed(self, url: str) -> bool:
        """Whether the first part of a URL's path is parked."""
        closed = self.tables.urls.payments.closed
        return bool(closed) and place_of(url) in closed

    def is_doubtful(self, url: str) -> bool:
        """Whether the last answer under the first part of a URL's path asked for payment."""
        begun = self.tables.urls.payments.begun
        return bool(begun) and place_of(url) in begun

    def open_again(self, draft: Draft, urls: Iterable[str]) -> None:
        """Opens the parked parts of these URLs again: an operator wants them to be tried."""
        payments = self.tables.urls.payments
        places = {place_of(url) for url in urls} & payments.begun
        self._add(
            draft, {place: (payments.slot(place), replace(payments.get(place), in_row=0)) for place in sorted(places)}
        )

    def explained(self, url: str) -> str:
        """Returns why a URL is parked for payment, in words."""
        place = place_of(url)
        found = self.tables.urls.payments.get(place)
        why = f"the last {found.in_row} answers were 402" if found.in_row >= PAYMENT_PART_ANSWERS_MAX else ""
        return ": ".join(part for part in (f"{place} {found.words or 'asked for payment'}", why) if part)

    def _add(self, draft: Draft, changed: dict[str, tuple[int, Payment]]) -> None:
        if not changed:
            return
        for slot, gone in self.tables.urls.payments.victims(set(changed)):
            draft.add(Fact.PAYMENT, (slot, gone, *astuple(NO_PAYMENT)))
        for place, (slot, payment) in changed.items():
            draft.add(Fact.PAYMENT, (slot, place, *astuple(payment)))


def _after(known: Payment, *, asks: bool, counts: bool, terms: str | None) -> Payment:
    """Returns the payment of a part after an answer. asks: whether it asks for payment. counts: whether the part may be
    parked."""
    if asks:
        in_row, asked = min(known.in_row + counts, _IN_ROW_MAX), known.asked + 1
        return replace(known, in_row=in_row, asked=min(asked, 2**32 - 1), terms=terms or "")
    return replace(known, in_row=0, charged=terms if terms is not None else known.charged)
