"""The documents of requests over HTTP and gRPC: who may send them, what is in them, and why one is refused."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from outrider.errors import OutriderError
from outrider.fetch.addresses import parsed
from outrider.limits import SERVICE_KEY_CHARACTERS_MAX
from outrider.service.problems import Problem, of_error
from outrider.service.routes import Route
from outrider.service.service_state import ServiceState

_LOG: Final = logging.getLogger("outrider.service")
_EXACT: Final = 1 << 53  # floats are exact for whole numbers up to this one
_KEY: Final = re.compile(rf"[!-~]{{1,{SERVICE_KEY_CHARACTERS_MAX}}}\Z")


def permitted(service_state: ServiceState, route: Route, authorization: str | None) -> str:
    """Returns a name of the client, if it may send this request. Raises Problem."""
    who = service_state.tokens.check(authorization, route.role) if route.role is not None else ""
    if route.fetches and service_state.crawl is not None:
        raise Problem(
            "crawl-fetches",
            "this crawl fetches by itself, without leases or results; after it has ended, use `outrider serve`",
        )
    return who


def is_loopback(peer: str) -> bool:
    """Whether this is a loopback address."""
    address = parsed(peer)
    return address is not None and address.is_loopback


def checked_key(given: str | None) -> str | None:
    """Returns an idempotency key in the form of the document. Raises Problem."""
    if given is not None and not _KEY.match(given):
        raise Problem(
            "invalid-query",
            f"Idempotency-Key {given[:50]!r}: use up to {SERVICE_KEY_CHARACTERS_MAX} letters, digits, signs of ASCII",
        )
    return given


def parameters(route: Route, given: Mapping[str, Any]) -> Any:
    """Returns the parameters of a request; a number may be a text. Raises Problem."""
    try:
        return msgspec.convert(given, route.query, strict=False)
    except msgspec.ValidationError as error:
        raise Problem("invalid-query", f"{error}; /openapi.json has the parameters") from None


def decoded(decoder: msgspec.json.Decoder[Any], octets: bytes | bytearray) -> Any:
    """Returns a document. Raises Problem."""
    try:
        try:
            return decoder.decode(octets)
        except msgspec.ValidationError as error:
            if "got `float`" not in str(error):
                raise
            # JSON has one kind of number: 60000.0 is as whole as 60000, and some clients write all numbers in this
            # form.
            return msgspec.convert(_whole(msgspec.json.decode(octets)), decoder.type)
    except msgspec.ValidationError as error:
        name = "too-many-rows" if "`array` of length <=" in str(error) else "invalid-body"
        raise Problem(name, str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem("malformed-body", str(error)[:200]) from None


def _whole(value: Any) -> Any:
    """Returns a value of JSON, whose whole numbers are ints."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) <= _EXACT else value
    if isinstance(value, list):
        return [_whole(one) for one in value]
    return {name: _whole(one) for name, one in value.items()} if isinstance(value, dict) else value


def problem_of(error: Exception, what: str) -> Problem:
    """Returns the problem for the error that ended a request. what: the request, for the log."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, OutriderError):
        return of_error(error)
    # Each other error is a bug. The answer has only its type: a message may contain private data.
    _LOG.error(what, exc_info=error)
    return Problem("bug", f"{type(error).__name__}; the server's standard error has more")


def count(service_state: ServiceState, path: str, status: int) -> None:
    """Counts an answer."""
    at = (path, status)
    service_state.requests[at] = service_state.requests.get(at, 0) + 1
