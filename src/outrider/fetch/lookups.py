"""Look-ups of names that share places: hanging ones do not delay the others."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from typing import NamedTuple

from outrider.limits import DNS_PROMPT_SECONDS


class NameAnswer(NamedTuple):
    """An answer of a name service: addresses, best first, and how long they are valid; None if it does not say."""

    addresses: tuple[str, ...]
    seconds: float | None = None


class LookUp:
    """One question to a name service: it waits for a place, gets one, and is answered, perhaps after all callers have
    stopped waiting."""

    __slots__ = ("answer", "begun", "host", "lane", "patience", "port")

    def __init__(self, host: str, port: int, lane: Lane) -> None:
        loop = asyncio.get_running_loop()
        self.host = host
        self.port = port
        self.lane = lane
        self.begun: asyncio.Future[None] = loop.create_future()
        self.answer: asyncio.Future[NameAnswer] = loop.create_future()
        self.patience: asyncio.TimerHandle | None = None  # until it counts as hanging

    def begins(self) -> None:
        """Starts the time of the look-up: the question is sent now."""
        if not self.begun.done():
            self.begun.set_result(None)

    def begin_again(self) -> None:
        """The look-up waits for a place once more, and its time does not run."""
        self.begun = asyncio.get_running_loop().create_future()


class Lane:
    """Look-ups that share places: `prompt_max` at once that have begun lately, `most` with those that hang."""

    def __init__(self, prompt_max: int, most: int) -> None:
        self.prompt_max = prompt_max
        self.most = most
        self.waiting: deque[LookUp] = deque()
        self.prompt = 0
        self.busy = 0

    def has_room(self) -> bool:
        return self.prompt < self.prompt_max and self.busy < self.most


class Lanes(ABC):
    """A name service with a limited number of questions at once.

    A slow look-up yields its place to the next one and remains open, so silent names delay other names only
    when `most` are open. Names that were silent before share their own lane. Used by one event loop.
    """

    def __init__(self, prompt_max: int, most: int, slow_max: int) -> None:
        self._lane = Lane(prompt_max, most)
        self._slow_lane = Lane(slow_max, slow_max)

    @property
    def busy(self) -> int:
        """Look-ups that have begun and are not answered."""
        return self._lane.busy + self._slow_lane.busy

    def ask(self, host: str, port: int, *, slow: bool) -> LookUp:
        """A look-up that begins as soon as there is a place for it. slow: the name was silent before."""
        lane = self._slow_lane if slow else self._lane
        one = LookUp(host, port, lane)
        lane.waiting.append(one)
        self._begin(lane)
        return one

    @abstractmethod
    def _start(self, one: LookUp, loop: asyncio.AbstractEventLoop) -> None:
        """Sends the question; `_settle` is called in the loop with the result. Raises OSError if it cannot be sent."""

    def _begin(self, lane: Lane) -> None:
        while lane.waiting and lane.has_room():
            one = lane.waiting.popleft()
            if one.answer.done():  # its callers stopped waiting meanwhile
                continue
            loop = one.answer.get_loop()
            try:
                self._start(one, loop)
            except OSError as error:
                if lane.busy:
                    lane.waiting.appendleft(one)
                    return
                one.begins()
                one.answer.set_exception(error)
                continue
            lane.busy += 1
            lane.prompt += 1
            one.patience = loop.call_later(DNS_PROMPT_SECONDS, self._give_place, one)
            one.begins()

    def _give_place(self, one: LookUp) -> None:
        one.patience = None
        one.lane.prompt -= 1
        self._begin(one.lane)

    def _settle(self, one: LookUp, outcome: NameAnswer | Exception) -> None:
        one.lane.busy -= 1
        if one.patience is not None:
            one.patience.cancel()
            one.lane.prompt -= 1
        if not one.answer.done():
            if isinstance(outcome, Exception):
                one.answer.set_exception(outcome)
            else:
                one.answer.set_result(outcome)
        self._begin(one.lane)

    def close(self) -> None:
        """Begins nothing more; look-ups that hang end with the process."""
        self._lane.waiting.clear()
        self._slow_lane.waiting.clear()
