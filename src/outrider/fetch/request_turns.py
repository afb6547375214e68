"""The turns of hosts in a downloader: a limit of fetches at once for each host and in all; others wait."""

from __future__ import annotations

import asyncio
from collections import deque


class _BusyHost:
    """A host with open requests. waiting: those after them, in order, each with the number of requests it allows."""

    __slots__ = ("open", "waiting")

    def __init__(self) -> None:
        self.open = 0
        self.waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def let_in(self) -> None:
        """Admits the requests that the host accepts now."""
        while self.waiting and (self.open < self.waiting[0][0] or self.waiting[0][1].done()):
            turn = self.waiting.popleft()[1]
            if not turn.done():  # it was not cancelled
                self.open += 1
                turn.set_result(None)


class RequestTurns:
    """Lets as many fetches of each host run at once as they say, and `most` of all hosts. Used by one event loop."""

    def __init__(self, most: int) -> None:
        self._places = asyncio.Semaphore(most)
        self._hosts: dict[str, _BusyHost] = {}

    def of(self, host: str, capacity: int) -> _HeldTurn:
        """Waits until fewer than `capacity` requests of this host are open, and for a place in all; for
        `async with`."""
        return _HeldTurn(self._hosts, self._places, host, capacity)


class _HeldTurn:
    # A class: a generator with a decorator needs four times as long, once for each request.
    __slots__ = ("_capacity", "_hosts", "_name", "_places")

    def __init__(self, hosts: dict[str, _BusyHost], places: asyncio.Semaphore, name: str, capacity: int) -> None:
        self._hosts, self._places, self._name, self._capacity = hosts, places, name, capacity

    async def __aenter__(self) -> None:
        host = self._hosts.get(self._name)
        if host is None:
            host = self._hosts[self._name] = _BusyHost()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        host.waiting.append((self._capacity, turn))
        host.let_in()
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self._leave()  # it was admitted together with its end
            else:
                turn.cancel()
                host.let_in()  # it may have delayed others
            raise
        try:
            await self._places.acquire()
        except BaseException:
            self._leave()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._places.release()
        self._leave()

    def _leave(self) -> None:
        host = self._hosts[self._name]
        host.open -= 1
        host.let_in()
        if not host.open and not host.waiting:
            del self._hosts[self._name]
