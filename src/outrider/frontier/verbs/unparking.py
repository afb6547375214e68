"""Judges parked URLs again: those of shapes and hosts that were parked for their returns, and had new content
since."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from outrider.clock import Instant
from outrider.frontier.state.url_table import PARKED, Reason
from outrider.frontier.verbs.deciding import Core, Part
from outrider.frontier.verbs.gates import FIRST
from outrider.frontier.verbs.robots_files import THROUGH, RobotsFiles, parked_after
from outrider.frontier.verbs.trapping import Trapping
from outrider.kernels.card_layout import Heads
from outrider.limits import RECHECK_ROWS_MAX
from outrider.url.traps import BY_MIRROR, BY_RETURNS, BY_SESSION, RULES


class Unparking(Part):
    """The part of the machine that queues parked URLs again."""

    def __init__(self, core: Core, robots: RobotsFiles, traps: Trapping) -> None:
        super().__init__(core)
        self._robots, self._traps = robots, traps

    def resume(self) -> None:
        """Continues with the hosts whose parked URLs were judged again when the store was closed."""
        if self._traps.counts_returns:
            self._gates.returning.update({name: (slot, FIRST) for name, slot in self.tables.returns.judged_again()})

    def judge_again(self, now: Instant, most: int) -> int:
        """Judges parked URLs of hosts with new content again: at most `most`, and `RECHECK_ROWS_MAX` rows of the
        ledger, per call. Returns how many were judged."""
        count, room, returning = 0, RECHECK_ROWS_MAX, self._gates.returning
        for host in list(returning):
            while host in returning and count < most and room > 0:
                judged, rows = self._judge_some(host, now, most - count)
                count, room = count + judged, room - rows
        self._core.settle(now)
        return count

    def _judge_some(self, host: int, now: Instant, most: int) -> tuple[int, int]:
        """Judges some parked URLs of a host again, in a frame of their own. Returns how many, and how many rows of the
        ledger were read."""
        tables, (slot, place) = self.tables, self._gates.returning[host]
        queues = tables.queues
        parked = queues.parked[: queues.count] > 0
        crawls = np.unique(queues.crawl[: queues.count][parked]).tolist()
        numbers = [
            tables.registry.error_numbers.get(RULES[rule - 1], -1) for rule in (BY_RETURNS, BY_SESSION, BY_MIRROR)
        ]

        def chosen_of(heads: Heads) -> npt.NDArray[np.bool_]:
            chosen: npt.NDArray[np.bool_] = (heads["reason"] == Reason.TRAP) & np.isin(heads["error"], numbers)
            return chosen

        cards, place, rows = parked_after(tables, crawls, slot, place, most, chosen_of)
        draft = self._core.draft(now)
        if len(cards):
            self._robots.requeue(draft, cards.filter(self._traps.are_free(draft, cards, host)), PARKED, now)
        if place == THROUGH:
            draft.returns(slot, host).since = 0
        self._core.commit(draft, reserve=True)
        if place == THROUGH:
            del self._gates.returning[host]
        else:
            self._gates.returning[host] = slot, place
        return len(cards), rows
