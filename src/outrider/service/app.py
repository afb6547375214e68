"""From the table of paths to an ASGI application: reads, checks and validates a request, and writes its answer."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.routing import Route as Path

from outrider.errors import OutriderError
from outrider.fetch.addresses import parsed
from outrider.limits import SERVICE_KEY_CHARACTERS_MAX
from outrider.service.connection import CONNECTION
from outrider.service.problems import MEDIA_TYPE, Problem, of_error
from outrider.service.routes import JSON, ROUTES, Ask, Route, Text, encode
from outrider.service.service_state import ServiceState

_LOG: Final = logging.getLogger("outrider.service")
_EXACT: Final = 1 << 53  # floats are exact for whole numbers up to this one
_KEY: Final = re.compile(rf"[!-~]{{1,{SERVICE_KEY_CHARACTERS_MAX}}}\Z")
_SAFE: Final = {"x-content-type-options": "nosniff", "cache-control": "no-store"}
_OF_PROXIES: Final = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "via")
_STRAY: Final = "other"
"""The name under which requests with an unknown path are counted: a stranger must not fill the memory."""


def application(service_state: ServiceState) -> Starlette:
    """Returns the application for one state."""
    paths = [Path(route.path, _endpoint(service_state, route), methods=[route.method]) for route in ROUTES]

    async def stray(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        everywhere = request.scope["path"] == "*"  # OPTIONS *: a question about the server as a whole
        name = "wrong-method" if everywhere else {404: "unknown-path", 405: "wrong-method"}.get(status, "bug")
        problem = Problem(name, f"{request.method} {request.url.path[:200]}: /openapi.json lists all paths")
        try:
            service_state.hosts.check(_headers(request))
        except Problem as other:
            problem = other
        headers = (
            {"allow": ", ".join(_methods(paths, None if everywhere else request))}
            if problem.name == "wrong-method"
            else {}
        )
        return _counted(service_state, _STRAY, _refused(problem, headers))

    app = Starlette(routes=paths, exception_handlers={HTTPException: stray})
    app.router.redirect_slashes = False
    return app


def _methods(paths: list[Path], request: Request | None) -> list[str]:
    """Returns the methods of all routes at the path of a request, or of all routes."""
    met = [path.methods or () for path in paths if request is None or path.matches(request.scope)[0] is not Match.NONE]
    return sorted({method for methods in met for method in methods})


def _endpoint(service_state: ServiceState, route: Route) -> Callable[[Request], Awaitable[Response]]:
    decoder = msgspec.json.Decoder(route.body) if route.body is not None else None

    async def answer(request: Request) -> Response:
        octets: bytes | bytearray = b""
        decoding = False
        try:
            headers = _headers(request)
            who, query = _permitted(service_state, route, request, headers)
            octets = await service_state.bodies.read(request.receive)
            if octets and decoder is not None:
                await service_state.bodies.turn(len(octets))
                decoding = True
            ask = _ask(route, decoder, request, headers, who, query, octets)
            found = await route.answer(service_state, ask)
            response = _written(found)
        except Problem as problem:
            response = _refused(problem)
        except OutriderError as error:
            response = _refused(of_error(error))
        except ClientDisconnect:
            response = Response(status_code=400)
        except Exception as error:  # noqa: BLE001 - whatever else is a bug, told without its inside
            _LOG.exception("%s %s", route.method, route.path)
            response = _refused(Problem("bug", f"{type(error).__name__}; the server's standard error has more"))
        finally:
            if octets:
                service_state.bodies.release(len(octets), decoded=decoding)
        return _counted(service_state, route.path, response)

    return answer


def _headers(request: Request) -> dict[str, str]:
    """Returns the headers by their names in lower case; of two with one name the first. One pass over them
    costs less than three look-ups of Starlette's."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(request.scope["headers"])}


def _permitted(service_state: ServiceState, route: Route, request: Request, headers: dict[str, str]) -> tuple[str, Any]:
    """Checks the access before the body is read. Returns a name of the client, and the parameters."""
    service_state.hosts.check(headers)
    who = service_state.tokens.check(headers.get("authorization"), route.role) if route.role is not None else ""
    if route.fetches and service_state.crawl is not None:
        raise Problem(
            "crawl-fetches",
            "this crawl fetches by itself, without leases or results; after it has ended, use `outrider serve`",
        )
    return who, _query(route, request) if route.query is not None else None


def _ask(
    route: Route,
    decoder: msgspec.json.Decoder[Any] | None,
    request: Request,
    headers: dict[str, str],
    who: str,
    query: Any,
    octets: bytes | bytearray,
) -> Ask:
    body = None
    if decoder is not None:
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if octets and kind != JSON:
            raise Problem("media-type", f"Content-Type is {kind[:100]!r}: send {JSON}")
        body = _decoded(decoder, octets or b"{}")

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    connection = request.scope.get(CONNECTION)
    key = _key(headers.get("idempotency-key")) if route.idempotent else None
    return Ask(who, _is_local(request), query, body, dict(request.path_params), key, gone, connection)


def _is_local(request: Request) -> bool:
    """Whether a request arrived over loopback, and not through a proxy on this machine."""
    client = request.client.host if request.client is not None else ""
    address = parsed(client)
    return address is not None and address.is_loopback and not any(name in request.headers for name in _OF_PROXIES)


def _key(given: str | None) -> str | None:
    """Returns an Idempotency-Key in the form of the document."""
    if given is not None and not _KEY.match(given):
        raise Problem(
            "invalid-query",
            f"Idempotency-Key {given[:50]!r}: use up to {SERVICE_KEY_CHARACTERS_MAX} letters, digits, signs of ASCII",
        )
    return given


def _query(route: Route, request: Request) -> Any:
    given: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name in given:
            raise Problem("invalid-query", f"{name[:50]!r} appears twice")
        given[name] = value
    try:
        return msgspec.convert(given, route.query, strict=False)
    except msgspec.ValidationError as error:
        raise Problem("invalid-query", f"{error}; /openapi.json has the parameters") from None


def _decoded(decoder: msgspec.json.Decoder[Any], octets: bytes | bytearray) -> Any:
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


def _written(found: Any) -> Response:
    if isinstance(found, Text):
        return Response(found.content, headers={**_SAFE, "content-type": found.media_type})
    return Response(encode(found), headers={**_SAFE, "content-type": JSON})


def _refused(problem: Problem, more: dict[str, str] | None = None) -> Response:
    headers = {**_SAFE, "content-type": MEDIA_TYPE, **problem.headers(), **(more or {})}
    return Response(problem.body(), status_code=problem.status, headers=headers)


def _counted(service_state: ServiceState, path: str, response: Response) -> Response:
    at = (path, response.status_code)
    service_state.requests[at] = service_state.requests.get(at, 0) + 1
    return response
