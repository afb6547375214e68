"""Whose turn it is in a downloader: one fetch of a host at a time, so many in all; further calls wait, uncounted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """Lets one fetch of each host run at a time, and `most` of all hosts. Used by one event loop."""

    def __init__(self, most: int) -> None:
        self._places = asyncio.Semaphore(most)
        # one for each host with an open request, done when the request ends
        self._hosts: dict[str, asyncio.Future[None]] = {}

    @asynccontextmanager
    async def of(self, host: str) -> AsyncIterator[None]:
        """Waits for the turn of this host, and for a place among the others."""
        while (busy := self._hosts.get(host)) is not None:
            await asyncio.shield(busy)
        asked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._hosts[host] = asked
        try:
            async with self._places:
                yield
        finally:
            del self._hosts[host]
            asked.set_result(None)
