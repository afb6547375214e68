"""rest: the requests of open leases are over. Their hosts rest from there, and their turns are free; their outcomes
follow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from outrider.clock import Instant
from outrider.frontier.format.facts import Fact
from outrider.frontier.state.hosts import NONE
from outrider.frontier.state.rested import NOT_OVER
from outrider.frontier.verbs import arguments
from outrider.frontier.verbs.deciding import Core, Part
from outrider.frontier.verbs.settling import Settling
from outrider.journey import Settled


class Resting(Part):
    """The part of the machine that ends requests before their outcomes are known."""

    def __init__(self, core: Core, settling: Settling) -> None:
        super().__init__(core)
        self._settling = settling

    def rest(
        self,
        tokens: Sequence[int],
        seconds: float | Sequence[float | None] | None,
        ended_at: Instant | Sequence[Instant | None] | None,
        now: Instant,
    ) -> list[Settled]:
        """Ends the requests of these leases; the leases stay open. Returns a code per token: `stale` for one that is
        not open. seconds: how long each request took; ended_at: its end. Each is a value for all, or a list with one
        per token.

        A request ends once. For one that is over, also by an earlier row of this call, only a later `ended_at` or a
        longer rest counts: the longest remains. Raises SettingsError.
        """
        numbers = arguments.tokens(tokens)
        lasted = arguments.seconds_of_requests(seconds, len(numbers))
        ended = arguments.ends_of_requests(ended_at, len(numbers))
        now = self._core.advance(now)
        self._core.wake(now)
        each, places = np.unique(numbers, return_inverse=True)
        leases = self.tables.urls.by_token(each, bodies=False)
        errands = {
            row: errand
            for row, token in enumerate(each.tolist() if self.tables.errands.open else ())
            if (errand := self.tables.errands.open.get(token)) is not None
        }
        is_open = leases.found.copy()
        is_open[list(errands)] = True
        longest, latest = np.full(len(each), np.nan), np.full(len(each), NOT_OVER)
        np.fmax.at(longest, places, lasted)
        np.maximum.at(latest, places, ended)
        # A request that is over, and is named again without a value, adds nothing.
        ends = self.tables.hosts.rested.ends_of(each)
        news = (longest > 0) | (latest >= 0)
        news |= True if ends is None else ends == NOT_OVER
        news &= is_open
        # An errand that uses no turn of a host changes no clock.
        news[[row for row, errand in errands.items() if errand.busy == NONE]] = False
        rows = np.flatnonzero(news)
        if len(rows):
            draft = self._core.draft(now)
            chosen = leases.take(rows)
            places_of = {row: place for place, row in enumerate(rows.tolist())} if errands else {}
            others = {places_of[row]: errand for row, errand in errands.items() if news[row]}
            over = self._settling.rest_early(draft, each[rows], chosen, others, longest[rows], latest[rows])
            slots = chosen.cards.heads["slot"].copy()
            for place, errand in others.items():
                slots[place] = errand.slot
            draft.add_columns(Fact.RESTED, [slots, each[rows], over])
            self._core.commit(draft, reserve=True)
        return [Settled.OK if there else Settled.STALE for there in is_open[places].tolist()]
