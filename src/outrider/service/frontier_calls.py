"""The calls of `outrider.v1.Frontier`: those of REST, with the same documents, answered by the same functions.

`engine/service_calls.py` names them. A call is answered on the loop of the server.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from outrider.engine.protobuf import Protocol
from outrider.engine.service_calls import CALLS, SERVICE
from outrider.service.documents import (
    checked_key,
    count,
    decoded,
    is_loopback,
    parameters,
    permitted,
    problem_of,
)
from outrider.service.problems import Problem
from outrider.service.routes import ROUTES, Ask, Route, Text, encode
from outrider.service.service_state import ServiceState

_PLACES: Final = re.compile(r"{(\w+)}")
_ANY: Final = msgspec.json.Decoder(dict[str, Any])


@dataclass(frozen=True, slots=True)
class _Call:
    """A call and the request of REST that it carries. places: the names in the path."""

    path: str
    route: Route
    places: tuple[str, ...]
    decoder: msgspec.json.Decoder[Any] | None


def _call(route: Route) -> _Call:
    places = tuple(_PLACES.findall(route.path))
    decoder = msgspec.json.Decoder(route.body) if route.body is not None else None
    return _Call(SERVICE + CALLS[route.method, route.path], route, places, decoder)


class FrontierCalls:
    """Answers the calls for one state."""

    def __init__(self, service_state: ServiceState) -> None:
        self._state = service_state
        self.protocol = Protocol.of("frontier", "outrider.engine")
        calls = [_call(route) for route in ROUTES if (route.method, route.path) in CALLS]
        self.calls: dict[str, _Call] = {one.path: one for one in calls}
        """The calls by their paths."""

    def permitted(self, path: str, authorization: str | None) -> str:
        """Returns a name of the client, if it may make this call. Raises Problem."""
        return permitted(self._state, self.calls[path].route, authorization)

    async def answered(self, path: str, who: str, peer: str, message: bytes, gone: asyncio.Event) -> bytes:
        """Returns the answer to a message. gone: set when the client is gone. Raises Problem."""
        call = self.calls[path]
        try:
            answer = await self._answered(call, who, peer, message, gone)
        except Exception as error:  # noqa: BLE001 - each error ends its call with a status
            problem = problem_of(error, path)
            count(self._state, path, problem.status)
            raise problem from None
        count(self._state, path, 200)
        return answer

    async def _answered(self, call: _Call, who: str, peer: str, message: bytes, gone: asyncio.Event) -> bytes:
        bodies, octets = self._state.bodies, len(message)
        bodies.hold(octets)
        decoding = False
        try:
            await bodies.turn(octets)
            decoding = True
            ask = self._ask(call, who, peer, message, gone)
            found = await call.route.answer(self._state, ask)
        finally:
            bodies.release(octets, decoded=decoding)
        document = found.content if isinstance(found, Text) else encode(found)
        return self.protocol.write("Answer", {"json": document})

    def _ask(self, call: _Call, who: str, peer: str, message: bytes, gone: asyncio.Event) -> Ask:
        request = self.protocol.read("Request", message)
        document = (request.get("json") or "{}").encode()
        query: Any = None
        places: dict[str, str] = {}
        if call.places or call.route.query is not None:
            values = decoded(_ANY, document)
            for name in call.places:
                if not isinstance(values.get(name), str | int):
                    raise Problem("invalid-body", f"{name} is missing; send the text of it")
                places[name] = str(values.pop(name))
            if call.route.query is not None:
                query = parameters(call.route, values)
            document = msgspec.json.encode(values)
        body = decoded(call.decoder, document) if call.decoder is not None else None
        key = checked_key(request.get("idempotency_key") or None) if call.route.idempotent else None

        async def has_gone() -> None:
            await gone.wait()

        return Ask(who, is_loopback(peer), query, body, places, key, has_gone, gone.is_set)
