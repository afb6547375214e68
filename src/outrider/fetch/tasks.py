"""Fetches of a downloader that is awaited, begun like those of one that tells: each in a task of its own."""

from __future__ import annotations

import asyncio
from functools import partial

from outrider.fetch.downloader import Beginner, Downloader, Ended, Request, Response, Tag


class Tasks:
    """Begins fetches of any `Downloader`, the one of a user or libcurl's."""

    def __init__(self, downloader: Downloader) -> None:
        self._downloader = downloader
        self._running: dict[Tag, asyncio.Task[Response]] = {}
        self._broken: set[asyncio.Task[Response]] = set()  # cancelled, and not at their end

    def begin(self, request: Request, tag: Tag, ended: Ended) -> None:
        """Begins to ask for one page. An error of the downloader is told like an answer."""
        task = asyncio.create_task(self._downloader.fetch(request))
        self._running[tag] = task
        task.add_done_callback(partial(self._ended, tag, ended))

    def _ended(self, tag: Tag, ended: Ended, task: asyncio.Task[Response]) -> None:
        if self._running.get(tag) is not task:
            self._broken.discard(task)
            if not task.cancelled():
                task.exception()  # it came too late for the caller
            return
        del self._running[tag]
        if task.cancelled():
            ended(tag, asyncio.CancelledError())
        else:
            ended(tag, task.exception() or task.result())

    def cancel(self, tag: Tag) -> None:
        """Cancels a fetch; its end is told to nobody."""
        task = self._running.pop(tag, None)
        if task is not None:
            self._broken.add(task)
            task.cancel()

    async def close(self) -> None:
        """Cancels what is under way, waits for its end, and closes the downloader."""
        for tag in list(self._running):
            self.cancel(tag)
        await asyncio.gather(*self._broken, return_exceptions=True)
        await self._downloader.close()


def beginner_of(downloader: Downloader | Beginner) -> Beginner:
    """The downloader itself where it tells of its answers."""
    if hasattr(downloader, "begin") and hasattr(downloader, "cancel"):
        return downloader  # type: ignore[return-value]
    return Tasks(downloader)
