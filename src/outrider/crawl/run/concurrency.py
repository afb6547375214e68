"""Slots of requests under way: slow ones leave their slots, so that tarpits do not block hosts that answer. If no more
may leave, some slots are reserved for hosts that answered promptly before."""

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

SLOW_PER_PLACE_MAX: Final = 7  # slow requests for each slot: 448 for 64 slots, as many sockets as a downloader has


def slow_max(concurrency: int, connections_max: int) -> int:
    """Returns how many slow requests may be outside of this number of slots, with a limit of open connections."""
    return max(0, min(connections_max - concurrency, SLOW_PER_PLACE_MAX * concurrency))


def kept_of(concurrency: int) -> int:
    """Returns how many of this number of slots are reserved for hosts with a prompt last page, while few more requests
    may leave."""
    return int(concurrency * KEPT_PLACES_SHARE)


class Place:
    """The slot of one request to a host: waited for, in use, left to another one, or ended. `begin` sends the
    request."""

    __slots__ = ("began", "begin", "host", "is_aside", "is_held", "is_left", "is_unproven")

    def __init__(self, host: str, begin: Callable[[], None]) -> None:
        self.host, self.begin = host, begin
        self.began = 0.0
        self.is_held = False
        """Whether the request has begun."""
        self.is_aside = False
        self.is_left = False
        self.is_unproven = False
        """Whether it uses one of the slots that are open to any host."""


class RequestPlaces:
    """`most` requests at once, and in addition `aside_most` requests that last longer than half a second.

    A slow request leaves its slot to another one and continues outside. The next request to its host starts outside,
    until one was quick again. If no more requests may leave, a slow request keeps its slot. So with many slow
    requests, hosts whose last page was not prompt may use all slots but `kept`. Used by one event loop.
    """

    def __init__(self, most: int, aside_most: int, make_room: Callable[[], None], *, kept: int = 0) -> None:
        """make_room: is called for each request that leaves its slot, or waits while slots are reserved for others."""
        self._most, self._kept = most, kept
        self._free = most
        self._unproven = 0  # slots of hosts whose last page was not prompt
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
        """Starts a request as soon as there is a slot for it, perhaps from within this call. The caller leaves the
        slot in any case."""
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
        """Returns the number of requests that wait although slots are free: these are reserved for other hosts."""
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
        """Whether a free slot is open to this request: some are reserved while nearly no more requests may leave; and
        earlier, while many have left, as long as hosts answer promptly."""
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
        """Makes the requests that are slow by now leave their slots."""
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
