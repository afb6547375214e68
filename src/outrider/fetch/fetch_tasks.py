"""Fetches of a downloader for `await`, begun like those of one with callbacks: each train in its own task."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from outrider.fetch.downloader import Beginner, Downloader, FetchEnded, Request, Response, Tag, train_continues


@dataclass(slots=True, eq=False)
class _AwaitedTrain:
    """Fetches in a row. left: those without an answer; asking: the current one."""

    left: list[tuple[Tag, Request]]
    ended: FetchEnded
    is_let_go: bool = False
    asking: asyncio.Task[Response | BaseException] | None = None


class FetchTasks:
    """Begins fetches of any `Downloader`, the one of a user or libcurl's."""

    def __init__(self, downloader: Downloader) -> None:
        self._downloader = downloader
        self._trains: dict[Tag, _AwaitedTrain] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, train: Sequence[tuple[Tag, Request]], ended: FetchEnded) -> None:
        """Begins to fetch the pages of a train. An error of the downloader is reported like an answer, and ends it."""
        one = _AwaitedTrain(list(train), ended)
        for tag, _ in train:
            self._trains[tag] = one
        task = asyncio.create_task(self._run(one))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, train: _AwaitedTrain) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        goes_on = True
        while train.left:
            tag, request = train.left[0]
            if train.is_let_go or not goes_on:
                self._tell(train, tag, None)
                continue
            # In its own task: cancelling one fetch must not silently end the later ones.
            train.asking = asyncio.create_task(self._answer(request))
            await asyncio.wait([train.asking])
            asking, train.asking = train.asking, None
            answer = asyncio.CancelledError() if asking.cancelled() else asking.exception() or asking.result()
            goes_on = train_continues(answer, loop.time() - began)
            if train.left and train.left[0][0] == tag:  # it was not cancelled
                self._tell(train, tag, answer)

    async def _answer(self, request: Request) -> Response | BaseException:
        try:
            return await self._downloader.fetch(request)
        except Exception as error:  # noqa: BLE001 - told like an answer
            return error

    def _tell(self, train: _AwaitedTrain, tag: Tag, answer: Response | BaseException | None) -> None:
        del train.left[0], self._trains[tag]
        train.ended(tag, answer)

    def let_go(self, tag: Tag) -> None:
        """Stops the train of a fetch after the current one."""
        train = self._trains.get(tag)
        if train is not None:
            train.is_let_go = True

    def cancel(self, tag: Tag) -> None:
        """Interrupts the current fetch of its train, without calling a function. The fetches after it are released."""
        train = self._trains.pop(tag, None)
        if train is None:
            return
        train.is_let_go = True
        train.left = [one for one in train.left if one[0] != tag]
        if train.asking is not None and not train.asking.cancelling():
            train.asking.cancel()

    def rest(self, resting: bool) -> None:
        """Pauses or resumes large answers, if the downloader can."""
        if hasattr(self._downloader, "rest"):
            self._downloader.rest(resting)

    async def close(self) -> None:
        """Cancels what is under way, waits for its end, and closes the downloader."""
        for tag in list(self._trains):
            self.cancel(tag)
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._downloader.close()


def beginner_of(downloader: Downloader | Beginner) -> Beginner:
    """Returns the downloader itself if it has callbacks for its answers."""
    if hasattr(downloader, "begin") and hasattr(downloader, "let_go"):
        return downloader  # type: ignore[return-value]
    return FetchTasks(downloader)
