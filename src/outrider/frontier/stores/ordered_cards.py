"""Cards of crawls with an exact order, in the form in which the backlog sorts them.

The backlog sorts by class, due and order, and all cards of such a crawl have one class. So these cards have the
negative priority in the column `due`, and their due in the column `priority`. With order="lifo" the column `order`
counts down. The highest bit of the order marks a URL whose last lease was lost, for a place at the end of its priority.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from outrider.frontier.format.card_columns import Cards
from outrider.kernels.card_layout import ORDERED, ORDERED_LIFO, Heads

_LOST = np.uint64(1 << 63)
_ORDER_MAX = np.uint64((1 << 60) - 1)


def sorted_form(cards: Cards) -> Cards:
    """Returns cards with the columns by which the backlog sorts them."""
    return _changed(cards, _sort)


def plain_form(cards: Cards) -> Cards:
    """Returns cards as they were before `sorted_form`."""
    return _changed(cards, _unsort)


def _changed(cards: Cards, change: Callable[[Heads], None]) -> Cards:
    """Returns cards in which the heads of crawls with an exact order are changed."""
    ordered = cards.heads["klass"] >= ORDERED
    if not ordered.any():
        return cards
    heads = cards.heads.copy()
    some = heads[ordered]
    change(some)
    heads[ordered] = some
    return cards.with_heads(heads)


def _sort(heads: Heads) -> None:
    dues, numbers = heads["due"].copy(), _counted(heads["order"], heads["klass"])
    heads["due"] = -heads["priority"].astype(np.int64)
    heads["priority"] = dues.view(np.float64)
    heads["order"] = np.where(heads["losses"] > 0, numbers | _LOST, numbers)


def _unsort(heads: Heads) -> None:
    priorities = -heads["due"].astype(np.float64) + 0.0  # never -0.0
    heads["due"] = heads["priority"].copy().view(np.int64)
    heads["priority"] = priorities
    heads["order"] = _counted(heads["order"] & ~_LOST, heads["klass"])


def _counted(orders: npt.NDArray[np.uint64], classes: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    """Returns the column `order` of each form from that of the other."""
    found: npt.NDArray[np.uint64] = np.where(classes == ORDERED_LIFO, _ORDER_MAX - orders, orders)
    return found
