"""The turns of hosts in a downloader: one fetch of a host at a time, so many in all; further calls wait, uncounted."""

from __future__ import annotations

import asyncio


class Turns:
    """Lets one fetch of each host run at a time, and `most` of all hosts. Used by one event loop."""

    def __init__(self, most: int) -> None:
        self._places = asyncio.Semaphore(most)
        # one for each host with an open request, done when the request ends
        self._hosts: dict[str, asyncio.Future[None]] = {}

    def of(self, host: str) -> _Turn:
        """Waits for the turn of this host, and for a place among the others; for `async with`."""
        return _Turn(self._hosts, self._places, host)


class _Turn:
    # A class: a generator with a decorator takes four times as long, once for each request.
    __slots__ = ("_asked", "_host", "_hosts", "_places")
    _asked: asyncio.Future[None]

    def __init__(self, hosts: dict[str, asyncio.Future[None]], places: asyncio.Semaphore, host: str) -> None:
        self._hosts, self._places, self._host = hosts, places, host

    async def __aenter__(self) -> None:
        while (busy := self._hosts.get(self._host)) is not None:
            await asyncio.shield(busy)
        self._asked = self._hosts[self._host] = asyncio.get_running_loop().create_future()
        try:
            await self._places.acquire()
        except BaseException:
            self._leave()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._places.release()
        self._leave()

    def _leave(self) -> None:
        del self._hosts[self._host]
        self._asked.set_result(None)
