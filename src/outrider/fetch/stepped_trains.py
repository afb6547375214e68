"""Trains whose fetches begin one by one: the next one when the answer before it allows it."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from outrider.fetch.downloader import FetchEnded, Request, Response, Tag, train_continues


@dataclass(slots=True, eq=False)
class _Train:
    """Fetches in a row. left: those without an answer, the current one first. began: by the event loop's clock."""

    left: list[tuple[Tag, Request]]
    ended: FetchEnded
    began: float
    is_let_go: bool = False


class SteppedTrains(ABC):
    """The part of a `Beginner` that is about trains; a subclass makes single fetches."""

    def __init__(self) -> None:
        self._trains: dict[Tag, _Train] = {}

    @abstractmethod
    def _fetch(self, tag: Tag, request: Request) -> None:
        """Begins one fetch, and later calls `_answered` in the event loop. Raises ClosedError."""

    @abstractmethod
    def _interrupt(self, tag: Tag) -> None:
        """Interrupts a fetch, if it was begun."""

    def _may_send(self, _tag: Tag) -> bool:
        """Whether the request of a fetch may be sent now; otherwise it is released."""
        return True

    def begin(self, train: Sequence[tuple[Tag, Request]], ended: FetchEnded) -> None:
        """As `Beginner.begin`."""
        new = _Train(list(train), ended, asyncio.get_running_loop().time())
        self._step(new)
        self._trains |= dict.fromkeys((tag for tag, _ in train), new)

    def _step(self, train: _Train) -> None:
        """Begins the next fetch of a train, or releases all that are left."""
        tag, request = train.left[0]
        if not train.is_let_go and self._may_send(tag):
            self._fetch(tag, request)
        else:
            asyncio.get_running_loop().call_soon(self._end, train, None)

    def _answered(self, tag: Tag, answer: Response | BaseException | None) -> None:
        """Passes an answer on, unless its fetch was cancelled meanwhile, and continues its train."""
        train = self._trains.pop(tag, None)
        if train is None:
            return
        del train.left[0]
        train.is_let_go |= not train_continues(answer, asyncio.get_running_loop().time() - train.began)
        train.ended(tag, answer)
        if train.left:
            try:
                self._step(train)
            except Exception as error:  # noqa: BLE001 - it is the answer to each fetch that is left
                self._end(train, error)

    def _end(self, train: _Train, answer: Exception | None) -> None:
        """Ends all fetches that are left of a train with the same answer."""
        left, train.left = train.left, []
        for tag, _ in left:
            if self._trains.pop(tag, None) is not None:
                train.ended(tag, answer)

    def let_go(self, tag: Tag) -> None:
        """As `Beginner.let_go`."""
        if (train := self._trains.get(tag)) is not None:
            train.is_let_go = True

    def cancel(self, tag: Tag) -> None:
        """As `Beginner.cancel`. A fetch that was not begun leaves its train, which ends after the current one."""
        train = self._trains.pop(tag, None)
        if train is None:
            return
        train.is_let_go = True
        is_current = bool(train.left) and train.left[0][0] == tag
        train.left = [one for one in train.left if one[0] != tag]
        if is_current:
            self._interrupt(tag)
            asyncio.get_running_loop().call_soon(self._end, train, None)
