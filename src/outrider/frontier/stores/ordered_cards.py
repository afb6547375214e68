"""Cards of crawls with an exact order, in the form in which the backlog sorts them.

The backlog sorts by class, due and order. In such a crawl all cards have one class, so the priority takes the place of
due, and due is kept in the place of the priority. The order keeps its place. In a crawl that is last come, first
served it is counted down. A URL whose last lease was lost comes after all others of its priority.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from outrider.frontier.format.card_columns import Cards
from outrider.kernels.card_layout import ORDERED, ORDERED_LIFO

_LOST = np.uint64(1 << 63)
_ORDER_MAX = np.uint64((1 << 60) - 1)


def sorted_form(cards: Cards) -> Cards:
    """Returns cards with the columns by which the backlog sorts them."""
    ordered = cards.heads["klass"] >= ORDERED
    if not ordered.any():
        return cards
    heads = cards.heads.copy()
    some = heads[ordered]
    dues, numbers = some["due"].copy(), _counted(some["order"], some["klass"])
    some["due"] = -some["priority"].astype(np.int64)
    some["priority"] = dues.view(np.float64)
    some["order"] = np.where(some["losses"] > 0, numbers | _LOST, numbers)
    heads[ordered] = some
    return cards.with_heads(heads)


def plain_form(cards: Cards) -> Cards:
    """Returns cards as they were before `sorted_form`."""
    ordered = cards.heads["klass"] >= ORDERED
    if not ordered.any():
        return cards
    heads = cards.heads.copy()
    some = heads[ordered]
    priorities = -some["due"].astype(np.float64) + 0.0  # never -0.0
    some["due"] = some["priority"].copy().view(np.int64)
    some["priority"] = priorities
    some["order"] = _counted(some["order"] & ~_LOST, some["klass"])
    heads[ordered] = some
    return cards.with_heads(heads)


def _counted(orders: npt.NDArray[np.uint64], classes: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    """Returns the orders, those of crawls that are last come, first served counted down from the highest."""
    found: npt.NDArray[np.uint64] = np.where(classes == ORDERED_LIFO, _ORDER_MAX - orders, orders)
    return found
