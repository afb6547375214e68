"""What sites ask for their pages, by authority and first part of the path: answers with 402 in a row, and the terms."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import astuple, dataclass, replace
from typing import Final

from outrider.frontier.format.facts import Block, Fact, Row, columns_of
from outrider.frontier.state.latest_rows import LatestRows
from outrider.limits import PAYMENT_PART_ANSWERS_MAX, PAYMENT_PLACE_BYTES_MAX, PAYMENTS_KEPT_MAX


@dataclass(frozen=True, slots=True)
class Payment:
    """The columns of a PAYMENT fact. in_row: answers with 402 since the last other one. asked: all answers with 402.
    terms: scheme and price of the last of them, as text. charged: the last sum that the site says it charged."""

    in_row: int = 0
    asked: int = 0
    terms: str = ""
    charged: str = ""

    @property
    def words(self) -> str:
        """Returns the terms and the charged sum in words."""
        asks = f"asks {price_words(self.terms)}" if self.asked else ""
        charged = f"CHARGED {self.charged}" if self.charged else ""
        return "; ".join(part for part in (charged, asks) if part)


NO_PAYMENT: Final = Payment()


class Payments(LatestRows[str, Payment]):
    """The payments by place. closed: the places that are parked; begun: those with at least one answer with 402 in a
    row; by_host: the places of a host."""

    def __init__(self, most: int = PAYMENTS_KEPT_MAX) -> None:
        super().__init__(most, NO_PAYMENT)
        self.closed: set[str] = set()
        self.begun: set[str] = set()
        self._by_host: defaultdict[str, dict[str, None]] = defaultdict(dict)

    def of_host(self, name: str) -> str | None:
        """Returns in words what a host asked for last, and what it says it charged; None without either."""
        asked = charged = NO_PAYMENT
        for place in reversed(self._by_host.get(name, {})):
            payment = self.get(place)
            asked = asked if asked.asked else payment
            charged = charged if charged.charged else payment
        return replace(asked, charged=charged.charged).words or None

    def latest_hosts(self, most: int) -> dict[str, str]:
        """Returns the hosts with the latest payments, each with its words."""
        found: dict[str, str] = {}
        for place, _ in self.latest():
            host = host_of_place(place)
            if host not in found:
                found[host] = self.of_host(host) or ""
            if len(found) >= most:
                break
        return found

    def _payment(self, slot: int, place: str, *cells: int | str) -> None:
        payment = Payment(*cells)  # type: ignore[arg-type] # the columns of the fact
        places = self._by_host[host_of_place(place)]
        places.pop(place, None)
        if payment == NO_PAYMENT:  # a row of zeros removes it
            self._put(slot, place, None)
        else:
            self._put(slot, place, payment)
            places[place] = None
        if not places:
            del self._by_host[host_of_place(place)]
        for names, least in ((self.begun, 1), (self.closed, PAYMENT_PART_ANSWERS_MAX)):
            (names.add if payment.in_row >= least else names.discard)(place)

    def blocks(self, first: int, last: int) -> list[Block]:
        """The facts that rebuild these rows."""
        rows: list[Row] = [(slot, place, *astuple(payment)) for slot, place, payment in self._rows(first, last)]
        return [(Fact.PAYMENT, columns_of(rows))] if rows else []


def place_of(url: str) -> str:
    """Returns authority and first part of the path of a canonical URL: `a.test/news/`. A page in the root has no such
    part: `a.test/`."""
    authority, _, rest = url.partition("://")[2].partition("/")
    part, slash, _ = rest.partition("?")[0].partition("/")
    if not slash:
        return f"{authority}/"
    return f"{authority}/{part}".encode()[:PAYMENT_PLACE_BYTES_MAX].decode("utf-8", "ignore") + "/"


def is_root(place: str) -> bool:
    """Whether a place is that of the pages in the root, which are never parked as a part."""
    return place.find("/") == len(place) - 1


def host_of_place(place: str) -> str:
    """Returns the host of a place."""
    authority = place.partition("/")[0]
    return authority.partition("]")[0] + "]" if authority.startswith("[") else authority.partition(":")[0]


def price_words(terms: str) -> str:
    """Returns scheme and price in words, such as `USD 0.01 a page`."""
    scheme, _, price = terms.partition(" ")
    if not terms:
        return "for payment, without a price"
    return f"{price} a page" if scheme == "crawler-price" else f"{price} a page ({scheme})"
