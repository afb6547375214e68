"""Places of requests under way: slow ones stand aside, so that tarpits leave the places to hosts that answer."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from outrider.limits import SLOW_HOSTS_MAX, SLOW_REQUEST_SECONDS

SLOW_PER_PLACE_MAX: Final = 7  # requests aside for each place: 448 beside 64, as many sockets as a downloader has


def aside_max(concurrency: int, connections_max: int) -> int:
    """How many slow requests may stand aside of so many places, where so many connections are open at most."""
    return max(0, min(connections_max - concurrency, SLOW_PER_PLACE_MAX * concurrency))


class Places:
    """`most` requests at once, and `aside_most` of those that are waited for longer than half a second.

    A request that is slow gives its place to another one and goes on beside them. The next one to its host stands aside
    from the beginning, until one was quick again. Where no more may stand aside, a slow request keeps its place.
    """

    def __init__(self, most: int, aside_most: int, make_room: Callable[[], None]) -> None:
        """make_room: is told of each request that goes aside."""
        self.free = asyncio.Semaphore(most)
        self._aside_most = aside_most
        self._make_room = make_room
        self.slow_hosts: OrderedDict[str, None] = OrderedDict()
        self.aside = 0

    def of(self, host: str) -> _Place:
        """A place for a request to this host, for as long as the block runs; for `async with`."""
        return _Place(self, host)

    def step_aside(self) -> bool:
        if self.aside >= self._aside_most:
            return False
        self.aside += 1
        self._make_room()
        return True

    def remember(self, host: str) -> None:
        self.slow_hosts[host] = None
        self.slow_hosts.move_to_end(host)
        if len(self.slow_hosts) > SLOW_HOSTS_MAX:
            self.slow_hosts.popitem(last=False)


class _Place:
    # A class: a generator with a decorator takes four times as long, once for each request.
    __slots__ = ("_began", "_host", "_is_aside", "_patience", "_places")
    _patience: asyncio.TimerHandle
    _began: float

    def __init__(self, places: Places, host: str) -> None:
        self._places, self._host = places, host
        self._is_aside = False

    async def __aenter__(self) -> None:
        places, loop = self._places, asyncio.get_running_loop()
        self._is_aside = self._host in places.slow_hosts and places.step_aside()
        if not self._is_aside:
            await places.free.acquire()
        self._began = loop.time()
        self._patience = loop.call_at(self._began + SLOW_REQUEST_SECONDS, self._give_place)

    def _give_place(self) -> None:
        self._places.remember(self._host)
        if not self._is_aside and self._places.step_aside():
            self._is_aside = True
            self._places.free.release()

    async def __aexit__(self, *_: object) -> None:
        places = self._places
        self._patience.cancel()
        if self._is_aside:
            places.aside -= 1
        else:
            places.free.release()
        if places.slow_hosts and asyncio.get_running_loop().time() - self._began < SLOW_REQUEST_SECONDS:
            places.slow_hosts.pop(self._host, None)
