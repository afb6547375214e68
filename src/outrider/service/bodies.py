"""Bodies of requests: read within a time, and within one bound for all of them together.

A body counts from its first byte until its request is answered. If all bodies together exceed their bound, the
unfinished bodies with the most bytes for the longest time are interrupted. So a client that sends at once is served,
whatever the number of clients that never end. Finished bodies are decoded in turn as soon as their bytes fit into a
second, smaller bound, because decoded JSON is many times larger.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.requests import ClientDisconnect

from outrider.limits import (
    SERVICE_BODIES_BYTES_MAX,
    SERVICE_BODIES_DECODED_BYTES_MAX,
    SERVICE_BODY_BYTES_MAX,
    SERVICE_BODY_SECONDS_MAX,
)
from outrider.service.problems import Problem

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class _Reading:
    """One body that is not finished yet."""

    __slots__ = ("began", "broken", "octets", "timer")

    def __init__(self, began: float) -> None:
        self.began, self.octets, self.broken = began, bytearray(), False
        self.timer: asyncio.Timeout | None = None


class Bodies:
    """The bodies of one server, used only on its loop."""

    def __init__(self) -> None:
        self.held = 0
        """Bytes of all bodies whose requests are not answered."""
        self._decoded = 0
        self._reading: dict[_Reading, None] = {}
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def read(self, receive: Receive) -> bytes | bytearray:
        """Returns the whole body. Its bytes count until `release`. Raises Problem, ClientDisconnect."""
        loop = asyncio.get_running_loop()
        one = _Reading(loop.time())
        whole = False
        self._reading[one] = None
        try:
            async with asyncio.timeout(SERVICE_BODY_SECONDS_MAX) as one.timer:
                while not whole:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientDisconnect
                    piece = message.get("body", b"")
                    whole = not message.get("more_body", False)
                    if piece:
                        self._add(one, piece, loop.time())
                if one.broken:
                    raise _full()
        except TimeoutError:
            whole = False
            if one.broken:
                raise _full() from None
            raise Problem("slow-body", f"the body needed more than {SERVICE_BODY_SECONDS_MAX:.0f} seconds") from None
        except BaseException:
            whole = False
            raise
        finally:
            del self._reading[one]
            if not whole:
                self.held -= len(one.octets)
        return one.octets

    def hold(self, octets: int) -> None:
        """Counts a body that has arrived whole, until `release`. Raises Problem."""
        if self.held + octets > SERVICE_BODIES_BYTES_MAX:
            self._make_room(asyncio.get_running_loop().time())
            if self.held + octets > SERVICE_BODIES_BYTES_MAX:
                raise _full()
        self.held += octets

    def _add(self, one: _Reading, piece: bytes, now: float) -> None:
        if one.broken:
            return
        one.octets += piece
        self.held += len(piece)
        if len(one.octets) > SERVICE_BODY_BYTES_MAX:
            raise Problem(
                "body-too-large", f"the body has more than {SERVICE_BODY_BYTES_MAX:,} bytes; send it in parts"
            )
        if self.held > SERVICE_BODIES_BYTES_MAX:
            self._make_room(now)
            if one.broken or self.held > SERVICE_BODIES_BYTES_MAX:
                raise _full()

    def _make_room(self, now: float) -> None:
        """Interrupts unfinished bodies until there is room for new bytes."""
        for one in sorted(self._reading, key=lambda one: len(one.octets) * (now - one.began), reverse=True):
            if self.held <= SERVICE_BODIES_BYTES_MAX * 7 // 8:
                return
            if one.broken or not one.octets:
                continue
            self.held -= len(one.octets)
            one.broken, one.octets = True, bytearray()
            if one.timer is not None:
                one.timer.reschedule(now)

    async def turn(self, octets: int) -> None:
        """Returns when `size` bytes may be decoded; `release` ends the turn."""
        if not self._waiting and self._decoded + octets <= max(octets, SERVICE_BODIES_DECODED_BYTES_MAX):
            self._decoded += octets
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((octets, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._decoded -= octets
            self._next()
            raise

    def release(self, octets: int, *, decoded: bool) -> None:
        """Removes a body whose request was answered."""
        self.held -= octets
        if decoded:
            self._decoded -= octets
            self._next()

    def _next(self) -> None:
        while self._waiting:
            octets, turn = self._waiting[0]
            if not turn.done():
                if self._decoded and self._decoded + octets > SERVICE_BODIES_DECODED_BYTES_MAX:
                    return
                self._decoded += octets
                turn.set_result(None)
            self._waiting.popleft()


def _full() -> Problem:
    return Problem(
        "bodies-full", f"unfinished bodies fill the limit of {SERVICE_BODIES_BYTES_MAX:,} bytes; send it again later"
    )
