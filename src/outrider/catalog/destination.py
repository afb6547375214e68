"""What every catalog does, and its errors. The contract suite in tests/contract/test_catalogs.py covers all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from outrider.catalog.line_file import START, Position
from outrider.catalog.rows import Batch, ListedUrl, RobotsRow
from outrider.errors import OutriderError, UnreachableError


class CatalogError(OutriderError):
    """This catalog cannot be used; it was not changed."""

    exit_code = 5


class UnavailableCatalogError(UnreachableError):
    """The catalog is out of reach; the crawl has every line, and the catalog catches up later."""

    retryable = True


class CatalogAccessError(UnreachableError):
    """The server refused the connection to this catalog; nothing was changed."""


class CatalogInUseError(OutriderError):
    """Another program writes to this catalog."""

    retryable = True
    exit_code = 6


class FullCatalogError(OutriderError):
    """There is no space for this catalog; the crawl has every line, and the catalog catches up when there is space."""

    retryable = True
    exit_code = 7


@dataclass(frozen=True, slots=True)
class Stored:
    """What a catalog stored with its last transaction. urls_as_of: `urls` has every change up to this time, RFC 3339,
    "" before the first complete list."""

    position: Position = START
    urls_as_of: str = ""
    cut: int = 0
    unreadable: int = 0


class Destination(Protocol):
    """One catalog. All calls are from one thread. An error of `retryable` may end by itself; after it, `open` comes
    first again."""

    @property
    def name(self) -> str:
        """The address without a password."""
        ...

    def open(self, *, anew: bool = False) -> Stored:
        """Connects, makes missing tables, and returns what is stored. anew: removes our own tables first.

        Raises CatalogError for tables of another program or of a later release, UnavailableCatalogError and its kin.
        """
        ...

    def append(self, batch: Batch, before: Position, after: Position) -> None:
        """Stores the rows of the lines between two positions, and the second position: all in one transaction.

        Raises CatalogInUseError if the stored position is not `before`: another process has moved it.
        """
        ...

    def refresh(self, urls: Sequence[ListedUrl], robots: Sequence[RobotsRow], as_of: str | None) -> None:
        """Stores listed URLs and robots.txt files in one transaction. as_of: with the last ones of a list, the time at
        which it began."""
        ...

    def settle(self) -> None:
        """Makes all appended lines part of the catalog, where they wait for more. Raises the same as `append`."""
        ...

    def restart_list(self) -> None:
        """The next piece of `refresh` is the first one of a list."""
        ...

    def close(self) -> None:
        """Drops what was not settled, and ends the connection. May be called twice."""
        ...
