"""Places of requests under way: slow ones stand aside, so that tarpits leave the places to hosts that answer."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
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
        self._free = asyncio.Semaphore(most)
        self._aside_most = aside_most
        self._make_room = make_room
        self._slow_hosts: OrderedDict[str, None] = OrderedDict()
        self.aside = 0

    @asynccontextmanager
    async def of(self, host: str) -> AsyncIterator[None]:
        """A place for a request to this host, for as long as the block runs."""
        loop = asyncio.get_running_loop()
        is_aside = host in self._slow_hosts and self._step_aside()
        if not is_aside:
            await self._free.acquire()

        def give_place() -> None:
            nonlocal is_aside
            self._remember(host)
            if not is_aside and self._step_aside():
                is_aside = True
                self._free.release()

        patience = loop.call_later(SLOW_REQUEST_SECONDS, give_place)
        began = loop.time()
        try:
            yield
        finally:
            patience.cancel()
            if is_aside:
                self.aside -= 1
            else:
                self._free.release()
            if self._slow_hosts and loop.time() - began < SLOW_REQUEST_SECONDS:
                self._slow_hosts.pop(host, None)

    def _step_aside(self) -> bool:
        if self.aside >= self._aside_most:
            return False
        self.aside += 1
        self._make_room()
        return True

    def _remember(self, host: str) -> None:
        self._slow_hosts[host] = None
        self._slow_hosts.move_to_end(host)
        if len(self._slow_hosts) > SLOW_HOSTS_MAX:
            self._slow_hosts.popitem(last=False)
