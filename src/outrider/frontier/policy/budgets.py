"""Budgets: the limit of fetched pages for a crawl, a registrable domain or a host.

This file alone decides how many pages are left, which hosts have used up their budget, and which may continue when a
budget was raised. A budget is a row of BUDGETS. The verbs name no budget. `discover` and `lease` park the URLs of hosts
over budget, and `lease` returns no more than what is left. An opening queues parked URLs again whose hosts are below
their budget now, and the questions show it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from outrider.limits import CALL_ROWS_MAX
from outrider.url import registrable_domains

Rows = npt.NDArray[np.uint32]
Column = npt.NDArray[Any]


class CountedBy(Enum):
    """Which pages share one count. CRAWL: all of the frontier; URLs beyond it stay queued. DOMAIN: all hosts of a
    registrable domain share it; HOST: each host has its own; URLs beyond these are parked. A host has the count in its
    cell, a domain in a tally, from the first run that has the budget."""

    CRAWL = "crawl"
    DOMAIN = "domain"
    HOST = "host"


@dataclass(frozen=True, slots=True)
class Budget:
    """name: of the setting, and of the option of a crawl. reason_text: the limit that was reached, in words."""

    name: str
    counted_by: CountedBy
    reason_text: str

    @property
    def flag(self) -> str:
        """The flag of the option."""
        return f"--{self.name.replace('_', '-')}"


BUDGETS = (
    Budget("max_pages", CountedBy.CRAWL, "the limit of pages (max_pages) is reached"),
    Budget("max_pages_per_host", CountedBy.HOST, "the budget of its host (max_pages_per_host) is used up"),
)
NAMES = tuple(budget.name for budget in BUDGETS)
PARKING = tuple(budget for budget in BUDGETS if budget.counted_by is not CountedBy.CRAWL)
_ANSWERED = "answered"


def budgets_over(settings: object, answered: int) -> list[tuple[Budget, int]]:
    """The budgets that may have ended a crawl, and their limits: budgets of the whole crawl that this number of fetched
    pages uses up, otherwise the budgets of hosts that are set. settings: has the name of each budget."""
    limits = _limits(settings, BUDGETS)
    over = [one for one in limits if one[0].counted_by is CountedBy.CRAWL and answered >= one[1]]
    return over or [one for one in limits if one[0] in PARKING]


def _limits(settings: object, budgets: tuple[Budget, ...]) -> list[tuple[Budget, int]]:
    return [(budget, limit) for budget in budgets if (limit := getattr(settings, budget.name)) is not None]


class Counts(Protocol):
    """The counters that budgets look at."""

    def answered_by(self, hosts: Column) -> Column:
        """How many pages each host has answered."""

    def tallied(self, name: str) -> int:
        """The tally with a name."""

    def host_names(self, hosts: Column) -> list[str]:
        """The names of hosts."""

    def leased_from(self) -> Rows:
        """The host of each open lease."""

    def leases_open(self) -> int:
        """How many leases are open."""


class Budgets:
    """The budgets that are set. settings: has the name of each budget; its value is the limit or None. parks: whether
    URLs of hosts may be over budget."""

    def __init__(self, settings: object, counts: Counts, budgets: tuple[Budget, ...] = BUDGETS) -> None:
        self._counts = counts
        # If several rows count the same pages, the lowest limit is reached first.
        limits = sorted(_limits(settings, budgets), key=lambda one: -one[1])
        lowest = {budget.counted_by: (budget, limit) for budget, limit in limits}
        self._crawl = lowest.get(CountedBy.CRAWL)
        self._domain, self._host = lowest.get(CountedBy.DOMAIN), lowest.get(CountedBy.HOST)
        self._per_domain = self._domain[1] if self._domain is not None else None
        self._per_host = self._host[1] if self._host is not None else None
        self.parks = self._per_host is not None or self._per_domain is not None

    # -- of the whole crawl --------------------------------------------------------------------------------------------

    def pages_left(self) -> int:
        """How many more pages may be leased. Open leases count as answered."""
        if self._crawl is None:
            return CALL_ROWS_MAX
        # This counts leases, not leased URLs: leases of deleted URLs are in flight, too.
        return self._crawl[1] - self._counts.tallied(_ANSWERED) - self._counts.leases_open()

    def is_over(self) -> bool:
        """Whether the fetched pages alone use up the crawl's budget, so that a lease that ends returns nothing to
        it."""
        return self._crawl is not None and self._counts.tallied(_ANSWERED) >= self._crawl[1]

    def ends(self, *, finished: bool, parked: bool) -> bool:
        """Whether a budget ends the crawl and leaves work. finished: nothing else is left; parked: URLs are parked for
        a budget."""
        return (self.is_over() and not finished) or ((self.is_over() or finished) and parked)

    def held(self) -> str:
        """Why a queued URL is not leased, in words; "" where no budget is the reason."""
        return self._crawl[0].reason_text if self._crawl is not None and self.pages_left() <= 0 else ""

    # -- of hosts ------------------------------------------------------------------------------------------------------

    def over(self, hosts: Column) -> npt.NDArray[np.bool_] | None:
        """Which hosts have used up their budget of fetched pages: their URLs are parked. None if no host has."""
        if not self.parks:
            return None
        found: npt.NDArray[np.bool_] = self._left(hosts) <= 0
        return found if np.count_nonzero(found) else None

    def parked(self, host: int) -> str:
        """Why the URLs of a host are parked for a budget, in words."""
        one, over = np.array([host]), self._host
        if self._per_domain is not None and self._left_of(self._domains(one))[0] <= 0:
            over = self._domain
        return over[0].reason_text if over is not None else "a budget of its host was used up"

    def lets(self, hosts: Column, busy: Column, most: Column, given: Column) -> Column:
        """How many of `most` URLs of each of these hosts one call may lease, so that open leases exceed no budget. All
        URLs of a host over budget are taken, to be parked. given: the hosts of the URLs that the call has already."""
        if self._per_host is not None:
            left = self._per_host - self._counts.answered_by(hosts)
            most = np.where(left > 0, np.minimum(most, left - busy), most)
        if self._per_domain is not None:
            domains = self._domains(hosts)
            open_in = Counter(self._domains(np.concatenate([self._counts.leased_from(), given])))
            most = most.copy()
            for place, (domain, left) in enumerate(zip(domains, self._left_of(domains).tolist(), strict=True)):
                if left > 0:
                    most[place] = min(int(most[place]), max(0, left - open_in[domain]))
                    open_in[domain] += int(most[place])
        return most

    def at_once(self, host: int, most: int) -> int:
        """How many of `most` requests to a host may be open at once; one at least, by which the rest is parked."""
        return min(most, max(1, int(self._left(np.array([host]))[0]))) if self.parks else most

    def tallies(self, hosts: Column) -> Iterator[tuple[str, int]]:
        """The tallies that grow with answered pages, and by how many. hosts: of each page."""
        if self._per_domain is not None:
            yield from Counter(map(_tally_of, self._domains(hosts))).items()

    def _left(self, hosts: Column) -> Column:
        """How many pages of hosts may still be answered, open leases included."""
        left = np.full(len(hosts), CALL_ROWS_MAX, np.int64)
        if self._per_host is not None:
            left = self._per_host - self._counts.answered_by(hosts)
        if self._per_domain is not None:
            left = np.minimum(left, self._left_of(self._domains(hosts)))
        return left

    def _left_of(self, domains: list[str]) -> Column:
        told = [(self._per_domain or 0) - self._counts.tallied(_tally_of(domain)) for domain in domains]
        return np.array(told, np.int64)

    def _domains(self, hosts: Column) -> list[str]:
        names = self._counts.host_names(hosts)
        return [domain or name for domain, name in zip(registrable_domains(names), names, strict=True)]


def _tally_of(domain: str) -> str:
    return f"{_ANSWERED}.{domain}"
