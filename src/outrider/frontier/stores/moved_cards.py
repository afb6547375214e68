"""Cards that were moved to another place, while their old copies stay where they are until they are met.

To find one card among millions on disk, a store would read all of them. So a store that is told to forget a card notes
it here, and drops the copy when it meets it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from outrider.frontier.format.card_columns import Cards
from outrider.kernels.card_layout import PLANNED


class MovedCards:
    """The old copies that a backlog still has. Only memory: when a store is opened, its places are derived anew."""

    def __init__(self) -> None:
        # By order, which names a URL. A URL may be moved several times, so the values tell its copies apart.
        self._copies: dict[int, list[tuple[Any, ...]]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def note(self, cards: Cards) -> None:
        """Notes these cards as moved."""
        for row, order in enumerate(cards.heads["order"].tolist()):
            self._copies.setdefault(order, []).append(_values(cards, row))
        self._count += len(cards)

    def met(self, cards: Cards) -> npt.NDArray[np.bool_]:
        """Returns which of these cards are old copies, and forgets those. Of two equal cards either may be the old
        one."""
        found: npt.NDArray[np.bool_] = np.zeros(len(cards), np.bool_)
        if not self._count:
            return found
        for row, order in enumerate(cards.heads["order"].tolist()):
            copies = self._copies.get(order)
            if copies is None or (values := _values(cards, row)) not in copies:
                continue
            found[row] = True
            copies.remove(values)
            self._count -= 1
            if not copies:
                del self._copies[order]
        return found

    def fingerprints(self) -> npt.NDArray[np.uint64]:
        """Returns the fingerprints of all old copies."""
        return np.array([values[0] for copies in self._copies.values() for values in copies], np.uint64)


class MovedWaiting:
    """The old copies that a calendar still has. The living card of a URL is the one that was put last, so a card may
    wait for another instant than its record says."""

    def __init__(self) -> None:
        # By order, which names a URL.
        self._copies: dict[int, int] = {}
        self._living: dict[int, tuple[Any, ...]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def note(self, cards: Cards) -> None:
        """Notes that these cards have left."""
        for order in cards.heads["order"].tolist():
            self._copies[order] = self._copies.get(order, 0) + 1
            self._living.pop(order, None)
        self._count += len(cards)

    def put(self, cards: Cards) -> None:
        """Notes cards that are put at their due, to tell them apart from old copies of their URLs."""
        for row, order in enumerate(cards.heads["order"].tolist()) if self._count else ():
            if order in self._copies:
                self._living[order] = (cards.heads["due"][row].item(), *_values(cards, row))

    def old(self, cards: Cards, *, leaving: bool) -> npt.NDArray[np.bool_]:
        """Returns which of these cards are old copies, and forgets those. leaving: whether the others leave the
        calendar; otherwise they go to another bucket."""
        found: npt.NDArray[np.bool_] = np.zeros(len(cards), np.bool_)
        for row, order in enumerate(cards.heads["order"].tolist()):
            copies = self._copies.get(order)
            if copies is None:
                continue
            if self._living.get(order) == (cards.heads["due"][row].item(), *_values(cards, row)):
                if leaving:
                    del self._living[order]
                continue
            found[row] = True
            self._count -= 1
            if copies > 1:
                self._copies[order] = copies - 1
            else:
                del self._copies[order]
                self._living.pop(order, None)
        return found


def _values(cards: Cards, row: int) -> tuple[Any, ...]:
    """Returns all of a card that a move may change, and that its record in the ledger has, too. A URL that is due is
    queued without a new record, so its state does not count. A planned one is also queued at another instant, with the
    class of its value: of two copies that differ in these alone, either may remain."""
    head = cards.heads[row]
    names = _OF_PLANNED if head["reason"] == PLANNED else _OF_OTHERS
    return (*(head[name].item() for name in names), cards.extra_of(row))


_OF_PLANNED = ("fingerprint", "priority", "attempts", "losses")
_OF_OTHERS = (*_OF_PLANNED, "due", "klass")
