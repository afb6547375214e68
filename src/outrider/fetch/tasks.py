"""Fetches of a downloader that is awaited, begun like those of one that tells: each train in a task of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from outrider.fetch.downloader import Beginner, Downloader, FetchEnded, Request, Response, Tag, is_well
from outrider.limits import TRAIN_SECONDS_MAX


@dataclass(slots=True, eq=False)
class _Train:
    """Fetches one behind the other. left: those without an answer; asking: the one under way."""

    left: list[tuple[Tag, Request]]
    ended: FetchEnded
    is_let_go: bool = False
    asking: asyncio.Task[Response | BaseException] | None = None


class Tasks:
    """Begins fetches of any `Downloader`, the one of a user or libcurl's."""

    def __init__(self, downloader: Downloader) -> None:
        self._downloader = downloader
        self._trains: dict[Tag, _Train] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, train: Sequence[tuple[Tag, Request]], ended: FetchEnded) -> None:
        """Begins to ask for the pages of a train. An error of the downloader is told like an answer, and ends it."""
        one = _Train(list(train), ended)
        for tag, _ in train:
            self._trains[tag] = one
        task = asyncio.create_task(self._run(one))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, train: _Train) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        goes_on = True
        while train.left:
            tag, request = train.left[0]
            if train.is_let_go or not goes_on:
                self._tell(train, tag, None)
                continue
            # A task of its own: to cancel one fetch must not end those behind it without a word.
            train.asking = asyncio.create_task(self._answer(request))
            await asyncio.wait([train.asking])
            asking, train.asking = train.asking, None
            answer = asyncio.CancelledError() if asking.cancelled() else asking.exception() or asking.result()
            goes_on = isinstance(answer, Response) and is_well(answer) and loop.time() - began < TRAIN_SECONDS_MAX
            if train.left and train.left[0][0] == tag:  # it was not cancelled
                self._tell(train, tag, answer)

    async def _answer(self, request: Request) -> Response | BaseException:
        try:
            return await self._downloader.fetch(request)
        except Exception as error:  # noqa: BLE001 - told like an answer
            return error

    def _tell(self, train: _Train, tag: Tag, answer: Response | BaseException | None) -> None:
        del train.left[0], self._trains[tag]
        train.ended(tag, answer)

    def let_go(self, tag: Tag) -> None:
        """Lets the train of a fetch go on with no further one."""
        train = self._trains.get(tag)
        if train is not None:
            train.is_let_go = True

    def cancel(self, tag: Tag) -> None:
        """Breaks off the fetch that its train is at; its end is told to no function. The fetches behind it are let
        go."""
        train = self._trains.pop(tag, None)
        if train is None:
            return
        train.is_let_go = True
        train.left = [one for one in train.left if one[0] != tag]
        if train.asking is not None and not train.asking.cancelling():
            train.asking.cancel()

    def rest(self, resting: bool) -> None:
        """Lets large answers rest, or go on, where the downloader can."""
        if hasattr(self._downloader, "rest"):
            self._downloader.rest(resting)

    async def close(self) -> None:
        """Cancels what is under way, waits for its end, and closes the downloader."""
        for tag in list(self._trains):
            self.cancel(tag)
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._downloader.close()


def beginner_of(downloader: Downloader | Beginner) -> Beginner:
    """The downloader itself where it tells of its answers."""
    if hasattr(downloader, "begin") and hasattr(downloader, "let_go"):
        return downloader  # type: ignore[return-value]
    return Tasks(downloader)
