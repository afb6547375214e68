"""The kinds of catalogs: from a checked address to a catalog. What a kind needs is imported at its first use."""

from __future__ import annotations

from importlib.util import find_spec

from outrider.catalog.address import PARQUET, POSTGRES, SQLITE
from outrider.catalog.destination import Destination
from outrider.errors import SettingsError
from outrider.install_hints import install_command
from outrider.storage.object_address import S3

EXTRAS = {POSTGRES: ("catalog", "asyncpg"), PARQUET: ("parquet", "pyarrow")}
"""The extra of the package that a kind needs, and its library."""


def require_extra(address: str) -> None:
    """Raises SettingsError if the kind of this catalog needs an extra that is not installed."""
    kind, _, rest = address.partition(":")
    needed = [EXTRAS[kind]] if kind in EXTRAS else []
    if rest.startswith(S3):
        needed.append(("s3", "obstore"))
    for extra, library in needed:
        if find_spec(library) is None:
            raise SettingsError(
                f"a catalog at {kind}:{S3 if rest.startswith(S3) else ''} needs {library}, which is not installed; run "
                f"`{install_command(extra)}`"
            )


def catalog_at(address: str) -> Destination:
    """Returns the catalog at a checked address; it is not connected yet. `require_extra` comes first."""
    kind, _, rest = address.partition(":")
    if kind == POSTGRES:
        from outrider.catalog.postgres import PostgresCatalog

        return PostgresCatalog(address)
    if kind == PARQUET:
        from outrider.catalog.parquet_parts import ParquetCatalog
        from outrider.catalog.part_stores import BucketParts, FolderParts

        return ParquetCatalog(BucketParts(rest) if rest.startswith(S3) else FolderParts(rest))
    assert kind == SQLITE, "checked_address permits these kinds"
    from outrider.catalog.sqlite import SqliteCatalog

    return SqliteCatalog(rest)
