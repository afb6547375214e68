"""Crawls: their names, rows, states, orders and scopes, and which of them are by unique keys. A row is never given to
another crawl; a deleted crawl keeps it."""

from __future__ import annotations

from collections import OrderedDict
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from outrider.frontier.format.facts import Fact, Row
from outrider.journey import CrawlOrder, Unique
from outrider.limits import DELETED_CRAWLS_NAMED_MAX, OWN_SLOT


class CrawlState(IntEnum):
    """The state of a crawl, set by an operator."""

    RUNNING = 0
    PAUSED = 1
    DELETED = 2


class _States(dict[int, int]):
    """The states of crawls by row; a missing row belongs to a deleted crawl."""

    def __missing__(self, row: int) -> int:
        return CrawlState.DELETED


class Crawls:
    """All crawls. names: (name, generation) by row, of the living crawls and the last deleted ones; rows: by name;
    next_row: one more than the highest row that a crawl ever had; gone: by row, whether the crawl was deleted; scope:
    by row, the seeds that widened it, in order; callers: the rows of crawls whose caller says which URLs are the
    same; orders: by row, the exact orders."""

    def __init__(self) -> None:
        self.names: dict[int, tuple[str, int]] = {}
        self.states: dict[int, int] = _States()
        self.rows: dict[str, int] = {}
        self.next_row = 0
        self.gone: npt.NDArray[np.bool_] = np.zeros(64, np.bool_)
        self.any_gone = False
        self.scope: dict[int, dict[str, None]] = {}
        self.callers: set[int] = set()
        self.orders: dict[int, CrawlOrder] = {}
        self._generation = 0  # the highest generation among crawls with forgotten names
        self._dead: OrderedDict[int, None] = OrderedDict()  # deleted crawls with names, the oldest first

    def _crawl(self, slot: int, row: int, name: str, generation: int) -> None:
        if row >= self.next_row:
            while row >= len(self.gone):
                self.gone = np.concatenate((self.gone, np.zeros(len(self.gone), np.bool_)))
            self.gone[self.next_row : row] = True  # crawls with forgotten names, or rows that no crawl had
            self.any_gone = self.any_gone or row > self.next_row
            self.next_row = row + 1
            if not name:  # one fact for all crawls with forgotten names
                self._generation, self.gone[row], self.any_gone = generation, True, True
                return
            self.states[row] = CrawlState.RUNNING
        self.names[row] = (name, generation)
        if not self.gone[row]:
            self.rows[name] = row

    def _crawl_unique(self, slot: int, row: int, unique: str) -> None:
        if Unique(unique) is Unique.CALLER and not self.gone.take(row, mode="clip"):
            self.callers.add(row)

    def _crawl_order(self, slot: int, row: int, order: str) -> None:
        if CrawlOrder(order) is not CrawlOrder.CLASSES and not self.gone.take(row, mode="clip"):
            self.orders[row] = CrawlOrder(order)

    def order_of(self, row: int) -> CrawlOrder:
        """The order of a crawl."""
        return self.orders.get(row, CrawlOrder.CLASSES)

    def of_callers(self, rows: npt.NDArray[Any]) -> npt.NDArray[np.bool_] | None:
        """Which of these crawls, by row, are by unique keys; None for none."""
        if not self.callers:
            return None
        found = np.isin(rows, list(self.callers))
        return found if found.any() else None

    def _scope(self, slot: int, crawl: int, url: str) -> None:
        self.scope.setdefault(crawl, {})[url] = None

    def delete(self, row: int) -> None:
        """Frees the name of a crawl, and forgets the names that were freed longest ago."""
        if self.rows.get(self.names[row][0]) == row:
            del self.rows[self.names[row][0]]
        self.scope.pop(row, None)
        self.callers.discard(row)
        self.orders.pop(row, None)
        self.gone[row] = self.any_gone = True
        self._dead[row] = None
        while len(self._dead) > DELETED_CRAWLS_NAMED_MAX:
            dead, _ = self._dead.popitem(last=False)
            _, generation = self.names.pop(dead)
            self._generation = max(self._generation, generation, 1)  # a repair makes crawls of generation 0
            del self.states[dead]

    def are_gone(self, rows: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Which of these crawls were deleted."""
        return self.gone.take(rows, mode="clip")

    def name_of(self, row: int) -> str:
        """The name of a crawl by its row; "" for a deleted crawl with a forgotten name."""
        return self.names.get(row, ("", 0))[0]

    def next_generation(self, name: str) -> int:
        """The generation of the next crawl with a name: above the generations of all crawls that had it."""
        return 1 + max((made for known, made in self.names.values() if known == name), default=self._generation)

    def facts(self) -> list[tuple[Fact, list[Row]]]:
        """The facts that rebuild all of it."""
        names = self.names
        if self._generation:
            # One crawl without a name has the highest generation, and the next row.
            row = max(row for row in np.flatnonzero(self.gone).tolist() if row not in names)
            names = names | {row: ("", self._generation)}
        own = OWN_SLOT
        return [
            (Fact.CRAWL, [(own, row, *names[row]) for row in sorted(names)]),
            (Fact.CRAWL_UNIQUE, [(own, row, Unique.CALLER.value) for row in sorted(self.callers)]),
            (Fact.CRAWL_ORDER, [(own, row, order.value) for row, order in sorted(self.orders.items())]),
            (Fact.CRAWL_RULES, [(own, row, state) for row in sorted(names) if (state := self.states[row])]),
            (Fact.SCOPE, [(own, crawl, url) for crawl, urls in self.scope.items() for url in urls]),
        ]
