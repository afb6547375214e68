"""From the table of paths to an ASGI application: reads, checks and validates a request, and writes its answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.routing import Route as Path

from outrider.service.connection import CONNECTION, Connection
from outrider.service.documents import checked_key, count, decoded, is_loopback, parameters, permitted, problem_of
from outrider.service.problems import MEDIA_TYPE, Problem
from outrider.service.routes import JSON, ROUTES, Ask, Route, Text, encode
from outrider.service.service_state import ServiceState

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
            # The access is checked before the body is read.
            service_state.hosts.check(headers)
            who = permitted(service_state, route, headers.get("authorization"))
            query = _query(route, request) if route.query is not None else None
            octets = await service_state.bodies.read(request.receive)
            if octets and decoder is not None:
                await service_state.bodies.turn(len(octets))
                decoding = True
            ask = _ask(route, decoder, request, headers, who, query, octets)
            found = await route.answer(service_state, ask)
            response = _written(found)
        except ClientDisconnect:
            response = Response(status_code=400)
        except Exception as error:  # noqa: BLE001 - each error is an answer
            response = _refused(problem_of(error, f"{route.method} {route.path}"))
        finally:
            if octets:
                service_state.bodies.release(len(octets), decoded=decoding)
        return _counted(service_state, route.path, response)

    return answer


def _headers(request: Request) -> dict[str, str]:
    """Returns the headers by their names in lower case; of two with one name the first. One pass over them
    costs less than three look-ups of Starlette's."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(request.scope["headers"])}


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
        body = decoded(decoder, octets or b"{}")

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    connection: Connection | None = request.scope.get(CONNECTION)
    key = checked_key(headers.get("idempotency-key")) if route.idempotent else None
    peer = request.client.host if request.client is not None else ""
    local = is_loopback(peer) and not any(name in headers for name in _OF_PROXIES)
    return Ask(
        who,
        local,
        query,
        body,
        dict(request.path_params),
        key,
        gone,
        lambda: connection is not None and connection.lost,
    )


def _query(route: Route, request: Request) -> Any:
    given: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name in given:
            raise Problem("invalid-query", f"{name[:50]!r} appears twice")
        given[name] = value
    return parameters(route, given)


def _written(found: Any) -> Response:
    if isinstance(found, Text):
        return Response(found.content, headers={**_SAFE, **dict(found.fields), "content-type": found.media_type})
    return Response(encode(found), headers={**_SAFE, "content-type": JSON})


def _refused(problem: Problem, more: dict[str, str] | None = None) -> Response:
    headers = {**_SAFE, "content-type": MEDIA_TYPE, **problem.headers(), **(more or {})}
    return Response(problem.body(), status_code=problem.status, headers=headers)


def _counted(service_state: ServiceState, path: str, response: Response) -> Response:
    count(service_state, path, response.status_code)
    return response
