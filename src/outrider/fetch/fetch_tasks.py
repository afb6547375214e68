"""Fetches of a downloader for `await`, begun like those of one with callbacks: each in its own task."""

from __future__ import annotations

import asyncio
from functools import partial

from outrider.fetch.downloader import Beginner, Downloader, Request, Response, Tag
from outrider.fetch.stepped_trains import SteppedTrains


class FetchTasks(SteppedTrains):
    """Begins fetches of any `Downloader`, the one of a user or libcurl's. An error of the downloader is an answer, and
    ends its train."""

    def __init__(self, downloader: Downloader) -> None:
        super().__init__()
        self._downloader = downloader
        self._tasks: dict[Tag, asyncio.Task[Response]] = {}
        self._interrupted: set[asyncio.Task[Response]] = set()

    def _fetch(self, tag: Tag, request: Request) -> None:
        task = self._tasks[tag] = asyncio.create_task(self._response_to(request))
        task.add_done_callback(partial(self._done, tag))

    async def _response_to(self, request: Request) -> Response:
        return await self._downloader.fetch(request)  # in a task also if this raises at once

    def _done(self, tag: Tag, task: asyncio.Task[Response]) -> None:
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if task in self._interrupted:
            self._interrupted.remove(task)
            return
        del self._tasks[tag]
        self._answered(tag, task.result() if error is None else error)

    def _interrupt(self, tag: Tag) -> None:
        if (task := self._tasks.pop(tag, None)) is not None:
            self._interrupted.add(task)
            task.cancel()

    def rest(self, resting: bool) -> None:
        """Pauses or resumes large answers, if the downloader can."""
        if hasattr(self._downloader, "rest"):
            self._downloader.rest(resting)

    async def close(self) -> None:
        """Cancels what is under way, waits for its end, and closes the downloader."""
        for tag in list(self._trains):
            self.cancel(tag)
        await asyncio.gather(*self._tasks.values(), *self._interrupted, return_exceptions=True)
        await self._downloader.close()


def beginner_of(downloader: Downloader | Beginner) -> Beginner:
    """Returns the downloader itself if it has callbacks for its answers."""
    if hasattr(downloader, "begin") and hasattr(downloader, "let_go"):
        return downloader  # type: ignore[return-value]
    return FetchTasks(downloader)
