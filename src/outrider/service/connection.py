"""One connection: from its bytes to requests, with a time limit for each wait.

waits for                    limit, then
a request's head             SERVICE_HEAD_SECONDS_MAX, 408 `slow-head` (closed without an answer if nothing arrived)
the next request             uvicorn's own limit of keep-alive, closed
a body                       SERVICE_BODY_SECONDS_MAX, 408 `slow-body` (bodies.py)
the rest of a refused body   SERVICE_REST_SECONDS_MAX, closed
the reading of an answer     SERVICE_ANSWER_SECONDS_MAX for each SERVICE_ANSWER_BYTES_STEP, closed
"""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final

import h11
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from outrider.limits import (
    SERVICE_ANSWER_BYTES_STEP,
    SERVICE_ANSWER_SECONDS_MAX,
    SERVICE_CONNECTIONS_MAX,
    SERVICE_EVENTS_PER_TURN_MAX,
    SERVICE_HEAD_BYTES_MAX,
    SERVICE_HEAD_SECONDS_MAX,
    SERVICE_REST_SECONDS_MAX,
)
from outrider.service.problems import MEDIA_TYPE, Problem

_QUIET: Final = logging.getLogger("outrider.service.http")
_QUIET.setLevel(logging.ERROR)  # strangers must not fill standard error with lines about invalid requests
_ABSOLUTE: Final = re.compile(rb"(https?)://([^/?#]*)([^#]*)", re.IGNORECASE)
_AUTHORITY: Final = re.compile(rb"(?:[A-Za-z0-9._~%-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]*)?")
CONNECTION: Final = "outrider.connection"
"""The key of the connection in the scope of a request."""
_STATUSES: Final = {431: "head-too-large", 421: "wrong-host"}
"""The problem for each status hint of the parser."""


class _Parser(h11.Connection):
    """Returns requests with targets in origin form. Between the pieces of a body with thousands of chunks, other
    connections have their turn."""

    def __init__(self, owner: Connection, incomplete_bytes_max: int | None) -> None:
        super().__init__(h11.SERVER, incomplete_bytes_max or SERVICE_HEAD_BYTES_MAX)
        self._owner = owner
        self._events = 0

    def next_event(self) -> Any:
        """As in h11; NEED_DATA also when the turn of this connection is over."""
        if self._events >= SERVICE_EVENTS_PER_TURN_MAX:
            self._events = 0
            self._owner.go_on_later()
            return h11.NEED_DATA
        before = len(self._receive_buffer)
        event = super().next_event()
        if type(event) is h11.Data:
            self._events += 1
            return event
        self._events = 0
        if type(event) is h11.Request:
            if before - len(self._receive_buffer) > SERVICE_HEAD_BYTES_MAX:  # h11 checks only incomplete heads
                raise h11.RemoteProtocolError("the head is too long", 431)
            if event.target[:1] != b"/":
                return _origin_form(event, self._owner.scheme == "https")
        return event


def _origin_form(request: h11.Request, secure: bool) -> h11.Request:
    """Returns a request with the target in origin form. The authority of a target in absolute form replaces Host (RFC
    9112 section 3.2.2). Raises RemoteProtocolError for any other form, but for `OPTIONS *`."""
    if request.target == b"*" and request.method == b"OPTIONS":
        return request
    met = _ABSOLUTE.fullmatch(request.target)
    if met is None or not _AUTHORITY.fullmatch(met[2]):
        target = request.target.decode("ascii", "replace")
        raise h11.RemoteProtocolError(f"request target {target!r:.100}: use a path, or http://HOST:PORT/PATH")
    if met[1].lower() == b"https" and not secure:
        # RFC 9110 section 7.4: such a resource is served over a secured connection only.
        raise h11.RemoteProtocolError("the request target begins with https, but this connection has no TLS", 421)
    path = met[3] if met[3][:1] == b"/" else b"*" if not met[3] and request.method == b"OPTIONS" else b"/" + met[3]
    headers = [(b"host", met[2]), *((name, value) for name, value in request.headers if name != b"host")]
    return h11.Request(method=request.method, target=path, headers=headers, http_version=request.http_version)


class _Flow(FlowControl):
    """Reads nothing more while read bytes wait for their turn."""

    stalled = False

    def resume_reading(self) -> None:
        """As in uvicorn, unless bytes wait."""
        if not self.stalled:
            super().resume_reading()


class Connection(H11Protocol):
    """One connection of one client."""

    def __init__(self, *args: Any, **words: Any) -> None:
        super().__init__(*args, **words)
        self.logger = _QUIET
        self.conn = _Parser(self, self.config.h11_max_incomplete_event_size)
        self.since = self.loop.time()
        """The start of the client's turn: to send a head or the rest of a body, or to read an answer."""
        self.served = False
        """Whether the connection has had an answer."""
        self._idle = False
        self._unread, self._unread_since = 0, 0.0

    def connection_made(self, transport: Any) -> None:
        """Starts the time of the first head."""
        super().connection_made(transport)
        self.flow = _Flow(transport)

    def data_received(self, data: bytes) -> None:
        """Starts the time of a head at the first byte after an answer."""
        if self._idle:
            self._idle, self.since = False, self.loop.time()
        super().data_received(data)

    def handle_events(self) -> None:
        """Answers requests, or refuses all of them while too many connections are open."""
        full = max(len(self.connections), len(self.tasks)) >= SERVICE_CONNECTIONS_MAX
        self.app = _full if full else self.config.loaded_app
        super().handle_events()
        if self.scope is not None:
            self.scope[CONNECTION] = self  # type: ignore[typeddict-unknown-key]

    def go_on_later(self) -> None:
        """Reads nothing, and handles what was read in a later turn of the loop."""
        flow: Any = self.flow
        if not flow.stalled:
            flow.stalled = flow.read_paused = True
            self.transport.pause_reading()
            self.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        flow: Any = self.flow
        flow.stalled = False
        if self.transport.is_closing():
            return
        self.handle_events()
        if not flow.stalled and (self.cycle is None or len(self.cycle.body) <= HIGH_WATER_LIMIT):
            flow.resume_reading()

    def on_response_complete(self) -> None:
        """Starts the turn of the client."""
        self.since, self._idle, self.served = self.loop.time(), True, True
        super().on_response_complete()

    @property
    def lost(self) -> bool:
        """Whether the client of the current request has disconnected."""
        return self.cycle is not None and self.cycle.disconnected

    @property
    def awaits_client(self) -> bool:
        """Whether it is the client's turn, so that closing the connection interrupts no work."""
        cycle = self.cycle
        return cycle is None or cycle.response_complete or (cycle.more_body and not cycle.response_started)

    def watch(self, now: float) -> None:
        """Ends the connection if its client was slower than a limit. Called about each second."""
        unread = _wire(self.transport).get_write_buffer_size()
        if not unread:
            self._unread = 0
        elif not self._unread or unread > self._unread or unread <= self._unread - SERVICE_ANSWER_BYTES_STEP:
            self._unread, self._unread_since = unread, now
        elif now - self._unread_since > SERVICE_ANSWER_SECONDS_MAX:
            self.transport.abort()
            return
        if self.cycle is not None and not self.cycle.response_complete:
            return
        waited = now - self.since
        if self.transport.is_closing():
            if waited > SERVICE_HEAD_SECONDS_MAX and not unread:
                self.transport.abort()
        elif self.conn.their_state is h11.SEND_BODY:
            if waited > SERVICE_REST_SECONDS_MAX:
                self.transport.abort()
        elif not self._idle and not unread and waited > SERVICE_HEAD_SECONDS_MAX:
            if self.conn.trailing_data[0]:
                limit = f"{SERVICE_HEAD_SECONDS_MAX:g} seconds"
                self._refuse(Problem("slow-head", f"request line and headers needed more than {limit}"))
            else:
                self.transport.close()

    def drop(self) -> None:
        """Ends the connection at once, to make room for another one."""
        self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Handles an error of the parser: its status shows a head that is too long."""
        error = sys.exc_info()[1]
        name = _STATUSES.get(getattr(error, "error_status_hint", 400), "no-request")
        words = (
            f"the request line and its headers have more than {SERVICE_HEAD_BYTES_MAX:,} bytes"
            if name == "head-too-large"
            else str(error)[:200]
            if error is not None
            else msg
        )
        self._refuse(Problem(name, words))

    def _refuse(self, problem: Problem) -> None:
        """Answers in place of the application if there was no answer yet, and closes the connection."""
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True  # the application writes nothing more
            cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE) and (
            cycle is None or cycle.response_complete or not cycle.response_started
        ):
            body = problem.body()
            headers = [("content-type", MEDIA_TYPE), ("content-length", str(len(body))), ("connection", "close")]
            reason = STATUS_PHRASES[problem.status]
            for event in (
                h11.Response(status_code=problem.status, headers=headers, reason=reason),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event))
        self.transport.close()


def _wire(transport: Any) -> asyncio.WriteTransport:
    """Returns the transport below TLS, whose buffer contains the bytes that a client has not read."""
    wire: asyncio.WriteTransport | None = getattr(getattr(transport, "_ssl_protocol", None), "_transport", None)
    found: asyncio.WriteTransport = transport if wire is None else wire
    return found


async def _full(_scope: Any, _receive: Any, send: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
    """Answers like uvicorn's own limit of connections, with a text and `Retry-After`."""
    problem = Problem("too-many-connections", f"{SERVICE_CONNECTIONS_MAX:,} connections are open; try again later")
    body = problem.body()
    fields = {**problem.headers(), "content-type": MEDIA_TYPE, "content-length": str(len(body)), "connection": "close"}
    headers = [(name.encode(), value.encode()) for name, value in fields.items()]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
