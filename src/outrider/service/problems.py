"""Errors as `application/problem+json` (RFC 9457): one table of types, each with its status and title."""

from __future__ import annotations

import base64
from typing import Any, Final

import msgspec

from outrider.crawl.run.hooks import HookRunningError
from outrider.errors import (
    ClosedError,
    InvalidUrlError,
    OutriderError,
    SettingsError,
    StoreError,
    StoreFullError,
    UnreachableError,
)

_TRAILER_BYTES_MAX: Final = 5_000  # clients of gRPC refuse trailers of more than 8 KiB in all
_TRAILER_DETAIL_MAX: Final = 1_000
PREFIX: Final = "urn:outrider:problem:"
MEDIA_TYPE: Final = "application/problem+json"

TYPES: Final[dict[str, tuple[int, str]]] = {
    "malformed-body": (400, "The body is not JSON."),
    "invalid-body": (422, "The body does not match the schema."),
    "invalid-query": (400, "A parameter cannot be used."),
    "invalid-argument": (400, "A value was refused."),
    "invalid-url": (400, "This is not a URL that can be crawled."),
    "address-refused": (403, "The crawl may not connect to this address."),
    "client-gone": (400, "The client closed the connection before the answer."),
    "no-request": (400, "This is not a valid HTTP request."),
    "head-too-large": (431, "The request line and its headers are too long."),
    "slow-head": (408, "The request line and headers did not arrive in time."),
    "slow-body": (408, "The body did not arrive in time."),
    "body-too-large": (413, "The body is too large."),
    "too-many-rows": (422, "The body has too many rows."),
    "media-type": (415, "The Content-Type of the body is not JSON."),
    "unknown-path": (404, "This path does not exist."),
    "wrong-method": (405, "This path needs another method."),
    "unknown-lease": (404, "This lease does not exist."),
    "lease-ended": (409, "This lease has ended; nothing was changed."),
    "url-not-in-lease": (422, "A result is of a URL that is not in this lease; nothing was changed."),
    "unknown-host": (404, "The frontier does not have this host."),
    "key-reused": (422, "The Idempotency-Key belongs to another request."),
    "token-missing": (401, "A token is needed."),
    "token-wrong": (401, "This token does not exist."),
    "role-missing": (403, "The token's role does not cover this."),
    "cross-origin": (403, "A page of another origin has no access."),
    "wrong-host": (421, "The Host header names another server."),
    "bodies-full": (503, "Unfinished bodies fill the limit for bodies."),
    "too-many-connections": (503, "Too many connections are open."),
    "too-many-waiters": (503, "Too many requests wait for a lease."),
    "too-many-leases": (503, "Too many URLs are leased."),
    "crawl-fetches": (409, "This crawl fetches its URLs itself."),
    "hook-running": (503, "A function of the crawl runs; other decisions wait for it."),
    "closing": (503, "The server closes."),
    "store-full": (503, "The disk is full; nothing accepted is lost."),
    "store-stopped": (503, "The store stopped; nothing acknowledged is lost."),
    "service-away": (503, "A service that the server needs cannot be reached."),
    "bug": (500, "This is a bug in Outrider."),
}
"""Each type: its status and title. The detail names the thing, the value and the way out."""


class Problem(Exception):  # noqa: N818 - it is an answer as much as an error
    """An answer with the reason why a request was refused."""

    def __init__(self, name: str, detail: str, *, retry_after_seconds: int | None = None, **members: Any) -> None:
        super().__init__(detail)
        self.name, self.detail, self.members = name, detail, members
        self.status, self.title = TYPES[name]
        self.retry_after_seconds = 1 if self.status == 503 and retry_after_seconds is None else retry_after_seconds

    def body(self) -> bytes:
        """Returns the JSON of it, with its own members after the four of the standard."""
        document = {"type": PREFIX + self.name, "title": self.title, "status": self.status, "detail": self.detail}
        return msgspec.json.encode({**document, **self.members})

    def trailer(self) -> str:
        """Returns the document for a trailer of gRPC: in base64, with the seconds of Retry-After. If it would be too
        long for a trailer, it is left without its own members."""
        document = {"type": PREFIX + self.name, "title": self.title, "status": self.status}
        document |= {"detail": self.detail[:_TRAILER_DETAIL_MAX], "retry_after_seconds": self.retry_after_seconds}
        whole = msgspec.json.encode({**document, **self.members})
        octets = whole if len(whole) <= _TRAILER_BYTES_MAX else msgspec.json.encode(document)
        return base64.b64encode(octets).decode()

    def headers(self) -> dict[str, str]:
        """Returns Retry-After if a later request may succeed, WWW-Authenticate if a token is needed."""
        found = {}
        if self.retry_after_seconds is not None:
            found["retry-after"] = str(self.retry_after_seconds)
        if self.status == 401:
            found["www-authenticate"] = 'Bearer realm="outrider"'
        return found


def of_error(error: OutriderError) -> Problem:
    """Returns the problem for an error of the frontier."""
    if isinstance(error, InvalidUrlError):
        return Problem("invalid-url", error.facts or str(error))
    if isinstance(error, SettingsError):
        return Problem("invalid-argument", error.facts or str(error))
    if isinstance(error, StoreFullError):
        return Problem("store-full", str(error), retry_after_seconds=30)
    if isinstance(error, HookRunningError):
        return Problem("hook-running", error.facts)
    if isinstance(error, ClosedError):
        return Problem("closing", "the store is closed; try again when the server is back")
    if isinstance(error, UnreachableError):
        return Problem("service-away", str(error))
    if isinstance(error, StoreError):
        return Problem("store-stopped", str(error), retry_after_seconds=30)
    return Problem("bug", str(error))
