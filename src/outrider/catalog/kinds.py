"""The kinds of catalogs: from a checked address to a catalog. What a kind needs is imported at its first use."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

from outrider.catalog.address import PARQUET, POSTGRES, SQLITE
from outrider.catalog.destination import Destination
from outrider.errors import SettingsError

EXTRAS = {POSTGRES: ("catalog", "asyncpg"), PARQUET: ("parquet", "pyarrow")}
"""The extra of the package that a kind needs, and its library."""


def require_extra(address: str, install: Callable[[str], str]) -> None:
    """Raises SettingsError if the kind of this catalog needs an extra that is not installed. install: returns the
    command that installs an extra."""
    kind = address.partition(":")[0]
    extra, library = EXTRAS.get(kind, ("", ""))
    if extra and find_spec(library) is None:
        raise SettingsError(f"a catalog at {kind}: needs {library}, which is not installed; run `{install(extra)}`")


def catalog_at(address: str) -> Destination:
    """Returns the catalog at a checked address; it is not connected yet. `require_extra` comes first."""
    kind, _, rest = address.partition(":")
    if kind == POSTGRES:
        from outrider.catalog.postgres import PostgresCatalog

        return PostgresCatalog(address)
    if kind == PARQUET:
        from outrider.catalog.parquet_parts import ParquetCatalog

        return ParquetCatalog(rest)
    assert kind == SQLITE, "checked_address permits these kinds"
    from outrider.catalog.sqlite import SqliteCatalog

    return SqliteCatalog(rest)
