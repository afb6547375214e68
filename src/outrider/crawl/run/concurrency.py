"""Places of requests under way: slow ones stand aside, so that tarpits leave the places to hosts that answer. Where no
more may stand aside, some places are kept for hosts that answered promptly before."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

from outrider.limits import (
    KEPT_PLACES_SECONDS,
    KEPT_PLACES_SHARE,
    PROMPT_HOSTS_MAX,
    SLOW_HOSTS_MAX,
    SLOW_REQUEST_SECONDS,
)

SLOW_PER_PLACE_MAX: Final = 7  # requests aside for each place: 448 beside 64, as many sockets as a downloader has


def slow_max(concurrency: int, connections_max: int) -> int:
    """How many slow requests may stand aside of so many places, where so many connections are open at most."""
    return max(0, min(connections_max - concurrency, SLOW_PER_PLACE_MAX * concurrency))


def kept_of(concurrency: int) -> int:
    """How many of so many places only hosts with a prompt last page may take, while few more may stand aside."""
    return int(concurrency * KEPT_PLACES_SHARE)


class Place:
    """The place of one request to a host: waited for, held, aside of the places, or left. `begin` sends the request."""

    __slots__ = ("began", "begin", "host", "is_aside", "is_held", "is_left", "is_unproven")

    def __init__(self, host: str, begin: Callable[[], None]) -> None:
        self.host, self.begin = host, begin
        self.began = 0.0
        self.is_held = False
        """Whether the request has begun."""
        self.is_aside = False
        self.is_left = False
        self.is_unproven = False
        """Whether it holds one of the places that any host may take."""


class RequestPlaces:
    """`most` requests at once, and `aside_most` of those that are waited for longer than half a second.

    A request that is slow gives its place to another one and goes on beside them. The next one to its host stands aside
    from the beginning, until one was quick again. Where no more may stand aside, a slow request keeps its place. So
    where many are slow, hosts whose last page was not prompt may take all places but `kept`. Used by one event loop.
    """

    def __init__(self, most: int, aside_most: int, make_room: Callable[[], None], *, kept: int = 0) -> None:
        """make_room: is told of each request that goes aside, or waits while places are kept for others."""
        self._most, self._kept = most, kept
        self._free = most
        self._unproven = 0  # places held for hosts whose last page was not prompt
        self._prompt_hosts: OrderedDict[str, None] = OrderedDict()
        self._prompt_at = float("-inf")  # when one of them answered last
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
        elif self._free > 0 and self._may_begin(place):
            self._take(place)
        else:
            self._waiting.append(place)
            if self._free > 0:
                self._make_room()

    @property
    def held_up(self) -> int:
        """Requests that wait although places are free: those are kept for other hosts."""
        return len(self._waiting) if self._free > 0 else 0

    @property
    def first_waiting(self) -> Place:
        """The request that waits longest."""
        return self._waiting[0]

    def note_page(self, place: Place) -> None:
        """A page of its host was answered at this place."""
        now = asyncio.get_running_loop().time()
        self._prompt_hosts.pop(place.host, None)
        if now - place.began < SLOW_REQUEST_SECONDS:
            self._prompt_at = now
            self._prompt_hosts[place.host] = None
            if len(self._prompt_hosts) > PROMPT_HOSTS_MAX:
                self._prompt_hosts.popitem(last=False)

    def _may_begin(self, place: Place) -> bool:
        """Whether a place that is free is one for this request: some are kept while nearly no more requests may stand
        aside; and already while many do, as long as hosts answer promptly."""
        if place.host in self._prompt_hosts or self._unproven < self._most - self._kept:
            return True
        if self._aside_most - self.aside <= self._most:
            return False
        prompt = asyncio.get_running_loop().time() - self._prompt_at < KEPT_PLACES_SECONDS
        return self.aside < self._most or not prompt

    def _take(self, place: Place) -> None:
        self._free -= 1
        place.is_unproven = place.host not in self._prompt_hosts
        self._unproven += place.is_unproven
        self._start(place)

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
            self._begin_waiting()
        else:
            self._give_place(place)

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

    def _give_place(self, place: Place) -> None:
        """The place is free: the request that waits longest, of those that may begin, has it."""
        self._unproven -= place.is_unproven
        place.is_unproven = False
        self._free += 1
        self._begin_waiting()

    def _begin_waiting(self) -> None:
        while self._free > 0 and self._waiting:
            following = next((one for one in self._waiting if self._may_begin(one)), None)
            if following is None:
                return
            self._waiting.remove(following)
            self._take(following)

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
        self._prompt_hosts.pop(place.host, None)
        if len(self._slow_hosts) > SLOW_HOSTS_MAX:
            self._slow_hosts.popitem(last=False)
        if not place.is_aside and self._step_aside():
            place.is_aside = True
            self._give_place(place)
        elif not place.is_aside and not place.is_unproven:
            place.is_unproven = True
            self._unproven += 1

    def _step_aside(self) -> bool:
        if self.aside >= self._aside_most:
            return False
        self.aside += 1
        self._make_room()
        return True
