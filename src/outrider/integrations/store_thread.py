"""The thread that calls a frontier for a program that must not wait: it writes what was noted, leases ahead of need,
and sleeps until a host may be visited.

The program's own thread only notes events and takes leases from a buffer. The thread makes turns. A turn leases what is
due, ends the requests that are over, then stores the pages that are processed with the requests that were found on
them, in one frame, then the other requests, and then leases again. One sync serves all that was noted since the last
turn.
"""

from __future__ import annotations

import heapq
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from outrider.clock import Instant, elapsed
from outrider.engine.owner import Frontier
from outrider.errors import OutriderError, SettingsError, StoreFullError
from outrider.journey import Code, Lease, Link, ListPage, Outcome, QueueStatus
from outrider.limits import (
    INTEGRATION_FULL_PAUSE_SECONDS,
    INTEGRATION_LEASE_SECONDS,
    INTEGRATION_POLL_SECONDS,
    INTEGRATION_QUEUES_PER_CALL,
    INTEGRATION_SERVED_LEASE_SECONDS,
    INTEGRATION_TURN_EVENTS,
    INTEGRATION_TURN_LINKS_MAX,
    INTEGRATION_TURN_SECONDS_MIN,
    INTEGRATION_WAIT_SECONDS_MAX,
)

logger = logging.getLogger("outrider.integrations")

AnyFrontier: TypeAlias = Any
"""A `Frontier`, or a `RemoteFrontier`, whose methods are derived from it."""
_STORED: Final = frozenset({Code.NEW, Code.HELD})


@dataclass(slots=True)
class Ended:
    """The outcome of a lease, with the links that were found."""

    outcome: Outcome
    found: list[Link] = field(default_factory=list)


@dataclass(slots=True)
class _Work:
    """The events since the last turn."""

    rests: deque[tuple[int, float | None, Instant | None]] = field(default_factory=deque)
    ended: deque[Ended] = field(default_factory=deque)
    added: deque[Link] = field(default_factory=deque)
    orders: deque[Callable[[AnyFrontier], object]] = field(default_factory=deque)

    def __bool__(self) -> bool:
        return bool(self.rests or self.ended or self.added or self.orders)


class StoreThread:
    """All calls of one crawl. wake: tells the program that `refused` or `ready` changed; it is called in this thread.
    failed: is called there with the error that ended the thread. ahead: how many leases wait in the buffer at most;
    per_queue: how many of them of one host, above 1 only for hosts without a delay."""

    def __init__(
        self,
        frontier: AnyFrontier,
        crawl: str,
        *,
        ahead: int,
        per_queue: int,
        wake: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self.frontier, self.crawl = frontier, crawl
        self.ready: list[tuple[float, int, Lease]] = []
        """A heap of the buffered leases, the highest priority first, among equal ones the newest."""
        self.refused: deque[tuple[Link, Code]] = deque()
        """Links that were not stored, each with its code. Stored links need no answer."""
        self.error: Exception | None = None
        self.turns = 0
        self.unstored = 0
        """How many pages are processed and not stored yet."""
        self._remote = not isinstance(frontier, Frontier)
        self._clock_offset = None if self._remote else frontier.now() - elapsed()
        self._lease_seconds = INTEGRATION_SERVED_LEASE_SECONDS if self._remote else INTEGRATION_LEASE_SECONDS
        self._ahead, self._per_queue, self._wake, self._failed = ahead, per_queue, wake, failed
        self._work = _Work()
        self._changed = threading.Condition()
        self._events = 0  # calls of the program so far
        self._idle_at = -1  # `_events` when the frontier had nothing left
        self._open: dict[int, float] = {}  # token -> when its lease is extended
        self._batches = 0  # of leases
        self._noted = 0  # events of the last turn
        self._full_at = 0.0
        self._closing = False
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="outrider-store", daemon=True)

    # -- called by the program ----------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def instant(self, at: Instant) -> Instant | None:
        """Returns a reading of `elapsed` as an instant of the frontier; None for a server, whose clock is another
        one."""
        return None if self._clock_offset is None else at + self._clock_offset

    def rest(self, token: int, seconds: float | None, ended_at: Instant | None) -> None:
        """The request of a lease is over. ended_at: since then its host rests, an instant of the frontier; None: since
        the next turn."""
        self._note(self._work.rests, (token, seconds, ended_at))

    def end(self, ended: Ended) -> None:
        """A page is processed."""
        self.unstored += 1
        self._note(self._work.ended, ended)

    def add(self, link: Link) -> None:
        """Stores a link that is not of a leased page."""
        self._note(self._work.added, link)

    def order(self, call: Callable[[AnyFrontier], object]) -> None:
        """Makes a call of the frontier in the next turn."""
        self._note(self._work.orders, call)

    def take(self) -> Lease | None:
        """Returns the next lease of the buffer, None if there is none now."""
        with self._changed:
            if not self.ready:
                return None
            lease = heapq.heappop(self.ready)[-1]
            self._events += 1
            if len(self.ready) <= self._ahead // 2:
                self._changed.notify()
            return lease

    def poke(self) -> None:
        """Lets the thread look again."""
        with self._changed:
            self._changed.notify()

    @property
    def finished(self) -> bool:
        """Whether all is stored, nothing is leased, and the crawl has nothing left."""
        with self._changed:
            return self._idle_at == self._events and not self.ready and not self.refused

    def close(self, seconds_max: float) -> bool:
        """Stores what was noted, returns the leases that nobody took, and ends the thread. Returns whether it ended in
        time."""
        with self._changed:
            self._closing = True
            self._ends.set()
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join(seconds_max)
        return not self._thread.is_alive()

    def _note(self, place: deque[Any], one: object) -> None:
        with self._changed:
            place.append(one)
            self._events += 1
            self._changed.notify()

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while True:
                began = time.monotonic()
                pause = self.turn()
                with self._changed:
                    if self._closing and not self._work:
                        break
                    if not self._work and not self._closing:
                        self._changed.wait(pause)
                # Events of some milliseconds share a turn, because a turn costs the same for one page as for ten. If
                # they are few, they do not wait: a host rests from the turn on that notes the end of its request.
                spacing = INTEGRATION_TURN_SECONDS_MIN * min(1.0, self._noted / INTEGRATION_TURN_EVENTS)
                self._ends.wait(max(0.0, min(pause, began + spacing - time.monotonic())))
            tokens = [lease.token for *_, lease in self.ready]
            if tokens:
                self.frontier.release(tokens)
        except Exception as error:
            self.error = error
            if not isinstance(error, OutriderError):
                logger.exception("The thread of the frontier failed")
            self._failed(error)

    def turn(self) -> float:
        """Does what was noted, and leases. Returns how many seconds the next turn may wait."""
        self.turns += 1
        with self._changed:
            events, work = self._events, self._taken()
        self._noted = len(work.rests) + len(work.ended) + len(work.added)
        if self._noted and not self._remote and ready_seconds(self.frontier) == 0 and self._filled(self._want):
            self._wake()  # hosts that are due do not wait for the writes
        woken = self._written_with_room(work)
        pause = self._leased(events)
        with self._changed:
            self.unstored = len(self._work.ended)
        if woken or self.ready or self._idle_at == self._events:
            self._wake()
        return pause

    def _written_with_room(self, work: _Work) -> bool:
        """As `_written`, after waiting until the disk has room."""
        while True:
            try:
                return self._written(work)
            except StoreFullError as error:
                if self._closing:
                    raise
                self._tell_full(error)
                time.sleep(INTEGRATION_FULL_PAUSE_SECONDS)

    def _taken(self) -> _Work:
        """Returns the noted work, in bounded steps, with the rests first."""
        noted, work, left = self._work, _Work(), INTEGRATION_TURN_LINKS_MAX
        while noted.rests:
            work.rests.append(noted.rests.popleft())
        while noted.orders:
            work.orders.append(noted.orders.popleft())
        while noted.ended and left > 0:
            left -= 1 + len(noted.ended[0].found)
            work.ended.append(noted.ended.popleft())
        while noted.added and left > 0:
            left -= 1
            work.added.append(noted.added.popleft())
        return work

    def _written(self, work: _Work) -> bool:
        """Stores work, each part of it once even if a later one fails. Returns whether pages or links were stored."""
        frontier, stored = self.frontier, bool(work.ended or work.added)
        if work.rests:
            over = {ended.outcome.token for ended in work.ended}  # their outcomes rest their hosts
            rests = [one for one in work.rests if one[0] not in over]
            if rests:
                tokens, took, ended_at = map(list, zip(*rests, strict=True))
                frontier.rest(tokens, seconds=took, ended_at=ended_at)
            work.rests.clear()
        if work.ended:
            links = [(row, link) for row, ended in enumerate(work.ended) for link in ended.found]
            told = frontier.report([ended.outcome for ended in work.ended], links)
            for ended, codes in zip(work.ended, told.links or [()] * len(work.ended), strict=True):
                self._note_refused(ended.found, codes)
                self._open.pop(ended.outcome.token, None)
            work.ended.clear()
        if work.added:
            self._note_refused(work.added, frontier.discover(list(work.added)))
            work.added.clear()
        while work.orders:
            self._order(work.orders.popleft())
        return stored

    def _note_refused(self, links: Iterable[Link], codes: Iterable[Code]) -> None:
        self.refused.extend(pair for pair in zip(links, codes, strict=False) if pair[1] not in _STORED)

    def _order(self, call: Callable[[AnyFrontier], object]) -> None:
        try:
            call(self.frontier)
        except SettingsError as error:  # such as a queue that is not there any more
            logger.warning("An order to the frontier was refused: %s", error)

    def _leased(self, events: int) -> float:
        """Fills the buffer. Returns how many seconds the next turn may wait."""
        now = time.monotonic()
        late = [token for token, at in self._open.items() if at <= now]
        if late:
            self.frontier.extend(late, self._lease_seconds)
            self._open.update(dict.fromkeys(late, now + self._lease_seconds / 2))
        want = self._want
        if want <= 0:
            return INTEGRATION_WAIT_SECONDS_MAX
        found = self._filled(want)
        if found:
            return INTEGRATION_WAIT_SECONDS_MAX if found >= want else self._pause()
        if not self._open and not has_left(self.frontier, self.crawl):
            with self._changed:
                if self._events == events:
                    self._idle_at = events
        return self._pause()

    @property
    def _want(self) -> int:
        """How many leases the buffer lacks."""
        return 0 if self._closing else self._ahead - len(self.ready)

    def _filled(self, want: int) -> int:
        """Leases this number of requests into the buffer, fewer if fewer are due. Returns how many."""
        if want <= 0:
            return 0
        leases = self.frontier.lease(want, crawl=self.crawl, ttl_seconds=self._lease_seconds, per_queue=self._per_queue)
        if len(leases):
            self._batches += 1
            self._open.update(dict.fromkeys(leases.tokens, time.monotonic() + self._lease_seconds / 2))
            with self._changed:
                for number, lease in enumerate(in_turns(leases), -self._batches * self._ahead):
                    heapq.heappush(self.ready, (-lease.priority, number, lease))
                self._events += 1
        return len(leases)

    def _pause(self) -> float:
        """Returns how many seconds pass until a host is ready, at most; other programs may use the same server."""
        ready = ready_seconds(self.frontier)
        most = INTEGRATION_POLL_SECONDS if self._remote else INTEGRATION_WAIT_SECONDS_MAX
        return most if ready is None else max(0.0005, min(ready, most))

    def _tell_full(self, error: StoreFullError) -> None:
        if time.monotonic() >= self._full_at:
            logger.error("%s; the spider waits until there is room", error)
            self._full_at = time.monotonic() + 60.0


def in_turns(leases: Iterable[Lease]) -> list[Lease]:
    """Returns leases with the queues in turn: the first of each queue, then the second of each."""
    places: Counter[str] = Counter()
    ranked = []
    for lease in leases:
        ranked.append((places[lease.key], lease))
        places[lease.key] += 1
    return [lease for _, lease in sorted(ranked, key=lambda one: one[0])]


def ready_seconds(frontier: AnyFrontier) -> float | None:
    """Returns the seconds until a host is ready, None if waiting alone does not help. A server said it with its last
    leases."""
    found: float | None = frontier.next_ready_seconds() if isinstance(frontier, Frontier) else frontier.ready_seconds
    return found


def left_in(frontier: AnyFrontier, crawl: str) -> int:
    """Returns how many URLs of a crawl are still to be visited."""
    return sum(_left_of_queues(frontier, crawl))


def has_left(frontier: AnyFrontier, crawl: str) -> bool:
    """Whether a crawl has URLs that are still to be visited."""
    return any(_left_of_queues(frontier, crawl))


def _left_of_queues(frontier: AnyFrontier, crawl: str) -> Iterator[int]:
    if isinstance(frontier, Frontier) and frontier.finished():
        return
    for queue in queues_of(frontier, crawl):
        yield queue.queued + queue.leased + queue.waiting


def queues_of(frontier: AnyFrontier, crawl: str) -> Iterator[QueueStatus]:
    """Yields the queues of a crawl."""
    after: str | None = None
    while True:
        page: ListPage[QueueStatus] = frontier.queues(crawl=crawl, after=after, limit=INTEGRATION_QUEUES_PER_CALL)
        yield from page
        after = page.cursor
        if after is None:
            return


def opened(
    directory: str | None,
    address: str | None,
    *,
    settings: dict[str, object],
    token: str | None,
    ca: str | None,
    worker: str | None,
    patience_seconds: float,
) -> AnyFrontier:
    """Returns the frontier of a server, of a directory, or of this process alone."""
    if address is not None:
        return Frontier.connect(address, token=token, ca=ca, worker=worker, patience_seconds=patience_seconds)
    if directory is not None:
        return Frontier.open(directory, settings=settings, robots="caller")
    return Frontier.memory(settings=settings, robots="caller")
