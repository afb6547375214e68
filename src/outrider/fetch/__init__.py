"""Getting a page: its addresses, the guard in front of them, and the download itself."""

from __future__ import annotations

from outrider.fetch.addresses import AddressGuard, is_public_address
from outrider.fetch.downloader import Decoding, Downloader, Headers, Request, Response
from outrider.fetch.failures import BlockedAddress, FetchError, FetchFailure, retry_after_seconds
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
