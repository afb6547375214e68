"""Places of requests under way: slow ones stand aside, so that tarpits leave the places to hosts that answer."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

from outrider.limits import SLOW_HOSTS_MAX, SLOW_REQUEST_SECONDS

SLOW_PER_PLACE_MAX: Final = 7  # requests aside for each place: 448 beside 64, as many sockets as a downloader has


def aside_max(concurrency: int, connections_max: int) -> int:
    """How many slow requests may stand aside of so many places, where so many connections are open at most."""
    return max(0, min(connections_max - concurrency, SLOW_PER_PLACE_MAX * concurrency))


class Place:
    """The place of one request to a host: waited for, held, aside of the places, or left. `begin` sends the request."""

    __slots__ = ("began", "begin", "host", "is_aside", "is_held", "is_left")

    def __init__(self, host: str, begin: Callable[[], None]) -> None:
        self.host, self.begin = host, begin
        self.began = 0.0
        self.is_held = False
        """Whether the request has begun."""
        self.is_aside = False
        self.is_left = False


class Places:
    """`most` requests at once, and `aside_most` of those that are waited for longer than half a second.

    A request that is slow gives its place to another one and goes on beside them. The next one to its host stands aside
    from the beginning, until one was quick again. Where no more may stand aside, a slow request keeps its place. Used
    by one event loop.
    """

    def __init__(self, most: int, aside_most: int, make_room: Callable[[], None]) -> None:
        """make_room: is told of each request that goes aside."""
        self._free = most
        self._aside_most = aside_most
        self._make_room = make_room
        self._slow_hosts: OrderedDict[str, None] = OrderedDict()
        self._waiting: deque[Place] = deque()
        # Requests that are not slow yet, in the order of their beginnings: the first one may be slow next, so one timer
        # serves all.
        self._prompt: OrderedDict[Place, None] = OrderedDict()
        self._patience: asyncio.TimerHandle | None = None
        self.aside = 0

    def enter(self, place: Place) -> None:
        """Has a request begin as soon as there is a place for it, perhaps from within this call. The caller leaves the
        place in any case."""
        if place.host in self._slow_hosts and self._step_aside():
            place.is_aside = True
            self._start(place)
        elif self._free > 0:
            self._free -= 1
            self._start(place)
        else:
            self._waiting.append(place)

    def leave(self, place: Place) -> None:
        """The request has ended, or is not made."""
        if place.is_left:
            return
        place.is_left = True
        if not place.is_held:
            self._waiting.remove(place)
            return
        self._prompt.pop(place, None)
        if self._slow_hosts and asyncio.get_running_loop().time() - place.began < SLOW_REQUEST_SECONDS:
            self._slow_hosts.pop(place.host, None)
        if place.is_aside:
            self.aside -= 1
        else:
            self._give_place()

    def renew(self, place: Place) -> None:
        """The next request of a train has begun at this place. One that was slow stays so to the end of its train."""
        place.began = asyncio.get_running_loop().time()
        if place in self._prompt:
            self._prompt.move_to_end(place)

    def _start(self, place: Place) -> None:
        place.is_held, place.began = True, asyncio.get_running_loop().time()
        self._prompt[place] = None
        self._be_patient()
        place.begin()

    def _be_patient(self) -> None:
        """Sets the timer for the request that may be slow next."""
        if self._patience is None and self._prompt:
            first = next(iter(self._prompt))
            self._patience = asyncio.get_running_loop().call_at(first.began + SLOW_REQUEST_SECONDS, self._look)

    def _give_place(self) -> None:
        """A place is free: the request that waits longest has it."""
        if self._waiting:
            self._start(self._waiting.popleft())
        else:
            self._free += 1

    def _look(self) -> None:
        """Has the requests that are slow by now stand aside."""
        self._patience = None
        now = asyncio.get_running_loop().time()
        while self._prompt and (first := next(iter(self._prompt))).began + SLOW_REQUEST_SECONDS <= now:
            del self._prompt[first]
            self._be_slow(first)
        self._be_patient()

    def _be_slow(self, place: Place) -> None:
        self._slow_hosts[place.host] = None
        self._slow_hosts.move_to_end(place.host)
        if len(self._slow_hosts) > SLOW_HOSTS_MAX:
            self._slow_hosts.popitem(last=False)
        if not place.is_aside and self._step_aside():
            place.is_aside = True
            self._give_place()

    def _step_aside(self) -> bool:
        if self.aside >= self._aside_most:
            return False
        self.aside += 1
        self._make_room()
        return True
