"""The kinds of catalogs: from a checked address to a catalog. What a kind needs is imported at its first use."""

from __future__ import annotations

from outrider.catalog.address import SQLITE
from outrider.catalog.destination import Destination


def catalog_at(address: str) -> Destination:
    """Returns the catalog at a checked address; it is not connected yet."""
    kind, _, rest = address.partition(":")
    assert kind == SQLITE, "checked_address permits these kinds"
    from outrider.catalog.sqlite import SqliteCatalog

    return SqliteCatalog(rest)
