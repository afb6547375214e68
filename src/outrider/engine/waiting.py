"""Waiting leases: a call that found nothing is tried again when a URL may have become ready, and not before.

Calls of the frontier ring a bell after each change; its timetable says when time alone makes a URL ready.
Waiting calls for the same kind of lease share one queue: a change costs one try for all that remain empty.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Mapping
from contextlib import suppress
from typing import Any, Final

from outrider.engine.calls import unclaimed_of
from outrider.errors import OutriderError
from outrider.frontier.verbs.leased import Unclaimed
from outrider.journey import LeaseBatch
from outrider.limits import LEASE_RECHECK_SECONDS

RINGS_NOT: Final = frozenset({"lease", "note_projection", "note_watermark", "outbox"})
"""Verbs that never make a URL ready."""


class Bell:
    """Rings after each call that may have made a URL ready. Any thread may ring it, and listeners return at once."""

    def __init__(self) -> None:
        self._listeners: tuple[Callable[[], None], ...] = ()
        self._lock = threading.Lock()

    def listen(self, listener: Callable[[], None]) -> None:
        """From now on `listener` is called at each ring, in the thread that rings."""
        with self._lock:
            self._listeners = (*self._listeners, listener)

    def leave(self, listener: Callable[[], None]) -> None:
        """The opposite of `listen`."""
        with self._lock:
            self._listeners = tuple(one for one in self._listeners if one != listener)

    def ring(self) -> None:
        """Call every listener."""
        for listener in self._listeners:
            listener()


def waited(
    bell: Bell, lease: Callable[[], LeaseBatch], ready_seconds: Callable[[], float | None], wait_seconds: float
) -> LeaseBatch:
    """The answer of `lease` as soon as it has one, in a thread that may sleep; an empty one after `wait_seconds`."""
    ends = time.monotonic() + wait_seconds
    rung = threading.Event()
    bell.listen(rung.set)
    try:
        while True:
            rung.clear()
            leases = lease()
            left = ends - time.monotonic()
            if leases or leases.lines or left <= 0:
                return leases
            rung.wait(min(left, pause_seconds(ready_seconds(), left)))
    finally:
        bell.leave(rung.set)


def pause_seconds(ready: float | None, most: float) -> float:
    """Returns how long to sleep without a ring. If a URL is ready that this kind of lease excludes, the next time is
    unknown, so such a caller tries again soon."""
    if ready is None:
        return most
    return ready if ready > 0 else LEASE_RECHECK_SECONDS


class _Waiter:
    """A call that waits. token: the last one that was drawn before."""

    __slots__ = ("found", "request", "token", "want")

    def __init__(self, want: int, request: Mapping[str, Any], found: asyncio.Future[LeaseBatch], token: int) -> None:
        self.want, self.request, self.found, self.token = want, request, found, token

    def unclaimed(self, leases: LeaseBatch) -> Unclaimed:
        """The part of an answer that no caller gets when this call is given up."""
        return unclaimed_of(leases, self.token, self.request.get("request_id"))


class WaitingRoom:
    """The waiting leases of tasks: one queue per kind of lease, served in order of arrival."""

    def __init__(
        self,
        bell: Bell,
        lease: Callable[..., Awaitable[LeaseBatch]],
        give_up: Callable[[Unclaimed], None],
        last_token: Callable[[], int],
        ready_seconds: Callable[[], float | None],
    ) -> None:
        self._bell, self._lease, self._ready_seconds = bell, lease, ready_seconds
        self._give_up, self._last_token = give_up, last_token
        self._lines: dict[Hashable, deque[_Waiter]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._rung = False
        self._serving: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    async def wait(self, want: int, kind: Hashable, request: Mapping[str, Any], wait_seconds: float) -> LeaseBatch:
        """Returns the leases as soon as there are some; an empty batch after `wait_seconds`. A cancelled task
        returns leases that it has just received."""
        loop = asyncio.get_running_loop()
        if not self._lines:
            self._loop, self._rung = loop, False
            self._bell.listen(self._ring)
        waiter = _Waiter(want, request, loop.create_future(), self._last_token())
        self._lines.setdefault(kind, deque()).append(waiter)
        self._ring()  # the first look is a round, too: nothing can become ready unseen before it
        try:
            async with asyncio.timeout(wait_seconds):
                return await waiter.found
        except TimeoutError:
            given = self._leases_of(waiter)
            return given if given is not None else LeaseBatch(())
        except asyncio.CancelledError:
            given = self._leases_of(waiter)
            if given is not None:
                self._give_up(waiter.unclaimed(given))
            raise
        finally:
            self._leave(kind, waiter)

    @staticmethod
    def _leases_of(waiter: _Waiter) -> LeaseBatch | None:
        """Returns the leases that arrived in the same turn of the loop as the end of the wait."""
        found = waiter.found
        return found.result() if found.done() and not found.cancelled() and found.exception() is None else None

    def _leave(self, kind: Hashable, waiter: _Waiter) -> None:
        line = self._lines.get(kind)
        if line is not None:
            with suppress(ValueError):
                line.remove(waiter)
            if not line:
                del self._lines[kind]
        if not self._lines:
            self._bell.leave(self._ring)
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def _ring(self) -> None:
        """From any thread: a URL may have become ready."""
        if not self._rung and self._loop is not None:
            self._rung = True
            with suppress(RuntimeError):  # the loop is closed, so nothing waits in it
                self._loop.call_soon_threadsafe(self._heard)

    def _heard(self) -> None:
        if self._serving is None or self._serving.done():
            self._serving = asyncio.ensure_future(self._serve())

    async def _serve(self) -> None:
        """Rounds, until nothing has rung since the last one began."""
        while self._rung and self._lines:
            self._rung = False
            for line in list(self._lines.values()):
                await self._serve_line(line)
        self._arm()  # a later ring of another thread runs its `_heard` after this round

    async def _serve_line(self, line: deque[_Waiter]) -> None:
        while line:
            waiter = line[0]
            if waiter.found.done():
                line.popleft()
                continue
            try:
                leases = await self._lease(waiter.want, **waiter.request)
            except Exception as error:  # noqa: BLE001 - it belongs to the caller who waits, whatever it is
                if not waiter.found.done():
                    waiter.found.set_exception(error)
                continue
            if not leases and not leases.lines:
                return
            if waiter.found.done():  # it stopped waiting meanwhile
                self._give_up(waiter.unclaimed(leases))
            else:
                waiter.found.set_result(leases)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._lines or self._loop is None:
            return
        try:
            ready = self._ready_seconds()
        except OutriderError:
            ready = LEASE_RECHECK_SECONDS  # the frontier stopped: the next round reports it to all
        if ready is not None:
            self._timer = self._loop.call_later(pause_seconds(ready, ready), self._ring)
