"""Trains whose requests are permitted one by one: the downloader gets the next request of a train only when the answer
before it has come and its sender may still send requests.

A node of a cluster needs this. After a pause of its machine another node may own the hosts of its trains, and a
downloader that had the rest of a train would send it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from outrider.fetch.downloader import Beginner, FetchEnded, Request, Response, Tag, train_continues


@dataclass(slots=True, eq=False)
class _Train:
    """Fetches in a row. left: those without an answer, the current one first. began: by the event loop's clock."""

    left: list[tuple[Tag, Request]]
    ended: FetchEnded
    began: float
    is_let_go: bool = False


class CheckedTrains:
    """Begins each fetch of a train by itself, with the methods of `Beginner`."""

    def __init__(self, downloader: Beginner, may_send: Callable[[Any], bool]) -> None:
        """may_send: whether the request of a fetch may be sent now."""
        self._downloader, self._may_send = downloader, may_send
        self._trains: dict[Tag, _Train] = {}

    def begin(self, train: Sequence[tuple[Tag, Request]], ended: FetchEnded) -> None:
        """As `Beginner.begin`. A fetch whose request may not be sent has the answer None, as a released one."""
        one = _Train(list(train), ended, asyncio.get_running_loop().time())
        for tag, _ in train:
            self._trains[tag] = one
        try:
            self._send(one)
        except Exception:
            for tag, _ in train:
                self._trains.pop(tag, None)
            raise

    def _send(self, train: _Train) -> None:
        """Begins the next fetch of a train, or releases what is left of it."""
        if train.left and not train.is_let_go and self._may_send(train.left[0][0]):
            self._downloader.begin(train.left[:1], self._answered)
        else:
            asyncio.get_running_loop().call_soon(self._release, train)

    def _answered(self, tag: Tag, answer: Response | BaseException | None) -> None:
        train = self._trains.pop(tag, None)
        if train is None:
            return  # it was cancelled
        del train.left[0]
        train.is_let_go |= not train_continues(answer, asyncio.get_running_loop().time() - train.began)
        train.ended(tag, answer)
        if train.left:
            try:
                self._send(train)
            except Exception as error:  # noqa: BLE001 - it is the answer to what is left
                self._release(train, error)

    def _release(self, train: _Train, answer: Exception | None = None) -> None:
        """Answers all that is left of a train."""
        left, train.left = train.left, []
        for tag, _ in left:
            if self._trains.pop(tag, None) is not None:
                train.ended(tag, answer)

    def let_go(self, tag: Tag) -> None:
        """As `Beginner.let_go`."""
        if (train := self._trains.get(tag)) is not None:
            train.is_let_go = True

    def cancel(self, tag: Tag) -> None:
        """As `Beginner.cancel`."""
        train = self._trains.pop(tag, None)
        if train is None:
            return
        train.is_let_go = True
        is_current = bool(train.left) and train.left[0][0] == tag
        train.left = [one for one in train.left if one[0] != tag]
        if is_current:
            self._downloader.cancel(tag)
            asyncio.get_running_loop().call_soon(self._release, train)

    def rest(self, resting: bool) -> None:
        """As `Beginner.rest`."""
        self._downloader.rest(resting)

    async def close(self) -> None:
        """As `Beginner.close`."""
        await self._downloader.close()
