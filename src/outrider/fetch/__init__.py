"""Getting a page: its addresses, the guard in front of them, and the download itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outrider.fetch.addresses import AddressGuard, is_public_address
from outrider.fetch.downloader import Decoding, Downloader, Headers, Request, Response
from outrider.fetch.failures import BlockedAddress, FetchError, FetchFailure, retry_after_seconds

if TYPE_CHECKING:
    from outrider.fetch.fetcher import Fetched, Fetcher
    from outrider.fetch.names import Resolver, make_resolver, parse_hosts

__all__ = [
    "AddressGuard",
    "BlockedAddress",
    "Decoding",
    "Downloader",
    "FetchError",
    "FetchFailure",
    "Fetched",
    "Fetcher",
    "Headers",
    "Request",
    "Resolver",
    "Response",
    "is_public_address",
    "make_resolver",
    "parse_hosts",
    "retry_after_seconds",
]


def __getattr__(name: str) -> Any:
    # On first use: these need an event loop, for which readers of archived answers need not wait.
    if name in ("Fetched", "Fetcher"):
        from outrider.fetch import fetcher

        return getattr(fetcher, name)
    if name in ("Resolver", "make_resolver", "parse_hosts"):
        from outrider.fetch import names

        return getattr(names, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
