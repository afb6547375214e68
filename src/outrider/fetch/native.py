"""A downloader on the fetch kernel: batches of requests to its threads, answers drained together in the event loop."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from outrider.clock import ClockFunction, Instant
from outrider.errors import ClosedError, SettingsError
from outrider.fetch.addresses import is_web_port
from outrider.fetch.downloader import MISSING, TRUNCATIONS, FetchEnded, Request, Response, Tag
from outrider.fetch.failures import FetchError
from outrider.fetch.response_bytes import AwkwardOrigins, TransferEnd, response_of, unsent
from outrider.fetch.roots import roots_pem
from outrider.fetch.type_limits import TypeBytes
from outrider.limits import (
    CONNECTIONS_MAX,
    FETCH_DRAIN_BYTES,
    FETCH_INBOX_BYTES_MAX,
    FETCH_THREADS,
    HEAD_BYTES_MAX,
    HEADER_LINES_MAX,
    IDLE_CONNECTION_SECONDS_MAX,
    LARGE_BYTES_MAX,
    LARGE_WAIT_SECONDS_MAX,
    RATE_BYTES_PER_SECOND_MIN,
    RATE_SECONDS_FIRST,
    REQUEST_FIELDS_KNOWN,
    TRAIN_SECONDS_MAX,
)

if TYPE_CHECKING:
    from outrider._native import FetchEngine, FetchLimits, FetchRow

# In the order of `Fault` and `Truncated` in crates/fetch/src/transfer.rs.
_FAULTS = (
    None,
    FetchError.UNREACHABLE,
    FetchError.CONNECT_REFUSED,
    FetchError.CONNECT_TIMEOUT,
    FetchError.TLS,
    FetchError.FIRST_BYTE_TIMEOUT,
    FetchError.IDLE_TIMEOUT,
    FetchError.TOTAL_TIMEOUT,
    FetchError.RESET,
    FetchError.EMPTY_REPLY,
    FetchError.MALFORMED,
    FetchError.TOO_MANY_HEADERS,
    FetchError.INTERNAL,
)
_TRUNCATED = (None, *TRUNCATIONS)
_PLAIN, _VERIFIED, _UNVERIFIED = 0, 1, 2
_SENT, _NEW_CONNECTION, _AMBIGUOUS, _KEPT_DIED, _LEFT_OUT = 1, 2, 4, 8, 16


class _Fetch:
    """A fetch under way: its request, and the callback for its answer."""

    __slots__ = ("id", "request", "submitted_at", "tag", "train")

    def __init__(self, tag: Tag, request: Request, train: _KernelTrain) -> None:
        self.request, self.tag, self.train = request, tag, train
        self.id = 0  # in the kernel; 0 until it is the turn of its host
        self.submitted_at: Instant = 0  # the time of hand-over to the kernel


class _KernelTrain:
    """Fetches of one host in a row. left: those without an answer."""

    __slots__ = ("ended", "host", "left")

    def __init__(self, host: str, ended: FetchEnded) -> None:
        self.host, self.ended = host, ended
        self.left: list[_Fetch] = []


class _HostTrains:
    """The trains of one host. running: the admitted ones; waiting: those after them, in order. A train of several
    requests runs alone: the kernel begins each of them without checking the others."""

    __slots__ = ("is_alone", "running", "waiting")

    def __init__(self) -> None:
        self.running = 0
        self.waiting: deque[_KernelTrain] = deque()
        self.is_alone = False

    def let_in(self) -> _KernelTrain | None:
        """Returns the next train, if the host accepts it in addition to the running ones."""
        if not self.waiting:
            return None
        left = self.waiting[0].left
        is_alone = len(left) > 1
        most = 1 if is_alone or self.is_alone else left[0].request.capacity
        if self.running >= most:
            return None
        self.is_alone = is_alone
        self.running += 1
        return self.waiting.popleft()


class NativeDownloader:
    """Fetches over HTTP/1.1 in its own threads, many at once, per host as many as its requests allow.

    Connects only to the request's address; follows no redirect and uses no proxy, cookie or password. TLS is
    verified against certifi's roots and those in `ca_file` (PEM), unless a request says otherwise. `clock` provides the
    instants of the responses.
    At most `connections_max` fetches run and as many sockets are open; further calls wait, uncounted.
    A forked process makes its own downloader: the threads stay in the process that started them.
    """

    def __init__(
        self,
        *,
        clock: ClockFunction,
        ca_file: str | None = None,
        connections_max: int = CONNECTIONS_MAX,
        threads: int = FETCH_THREADS,
        large_bytes_max: int = LARGE_BYTES_MAX,
        large_wait_seconds: float = LARGE_WAIT_SECONDS_MAX,
    ) -> None:
        from outrider._native import FetchEngine

        self._clock = clock
        self._connections_max = connections_max
        self._awkward = AwkwardOrigins()
        self._engine: FetchEngine = FetchEngine(
            roots_pem(ca_file),
            threads=threads,
            connections_max=connections_max,
            keep_seconds=IDLE_CONNECTION_SECONDS_MAX,
            inbox_bytes_max=FETCH_INBOX_BYTES_MAX,
            large_bytes_max=large_bytes_max,
            large_wait_seconds=large_wait_seconds,
            head_bytes_max=HEAD_BYTES_MAX,
            head_lines_max=HEADER_LINES_MAX,
            rate_bytes_min=RATE_BYTES_PER_SECOND_MIN,
            rate_after_seconds=RATE_SECONDS_FIRST,
            train_seconds=TRAIN_SECONDS_MAX,
            missing=list(MISSING),
        )
        self._process = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._open: dict[Tag, _Fetch] = {}
        self._running: dict[int, _Fetch] = {}  # by their ids in the kernel
        self._trains = 0  # in the kernel
        self._lines: dict[str, _HostTrains] = {}  # by requested host
        self._crowd: deque[_KernelTrain] = deque()  # their hosts are free, and all places are in use
        self._unsubmitted: list[_KernelTrain] = []
        self._last_id = 0
        self._closed = False
        self._fetches = 0
        self._connections = 0

    def __repr__(self) -> str:
        return (
            f"<NativeDownloader {len(self._running)} running, {self._fetches} done, {self._connections} connections "
            "made>"
        )

    def statistics(self) -> dict[str, int]:
        """Fetches running, fetches ended, connections made for them."""
        return {"running": len(self._running), "fetches": self._fetches, "connections": self._connections}

    async def fetch(self, request: Request) -> Response:
        """Fetches one page; never raises for a fault of the site. Cancelling it closes its connection."""
        self._require_open()
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self.begin([(answer, request)], _settle)
        try:
            return await answer
        except asyncio.CancelledError:
            self.cancel(answer)
            raise

    def begin(self, train: Sequence[tuple[Tag, Request]], ended: FetchEnded) -> None:
        """Begins to fetch pages of one host, one after another, and later calls `ended` for each answer in the event
        loop. Trains that begin in one turn of the loop are handed to the kernel together. Raises ClosedError."""
        self._require_open()
        loop = self._loop or self._listen()
        one = _KernelTrain(train[0][1].target.host, ended)
        for tag, request in train:
            port = request.target.port
            if is_web_port(port):
                self._open[tag] = fetch = _Fetch(tag, request, one)
                one.left.append(fetch)
            else:
                text = f"port {port} is not one for HTTP"
                loop.call_soon(ended, tag, unsent(request, FetchError.BLOCKED_PORT, text, self._clock()))
        if not one.left:
            return
        line = self._lines.get(one.host)
        if line is None:
            line = self._lines[one.host] = _HostTrains()
        line.waiting.append(one)
        self._let_in(line)

    def _require_open(self) -> None:
        if self._closed:
            raise ClosedError("this downloader is closed and accepts no requests")
        if os.getpid() != self._process:
            raise ClosedError(
                "this downloader was made before a fork, and its threads stayed in the other process: make a new one "
                "here"
            )

    def let_go(self, tag: Tag) -> None:
        """Stops the train of a fetch after the current one. The kernel reports the others if it has them."""
        one = self._open.get(tag)
        if one is None:
            return
        if one.train in self._unsubmitted:
            self._submit()
        if one.id and not self._closed:
            self._engine.let_go(one.id)

    def cancel(self, tag: Tag) -> None:
        """Interrupts the current fetch of its train: closes its connection, without calling a function. The fetches
        after it are released."""
        one = self._open.pop(tag, None)
        if one is None:
            return
        train = one.train
        for other in train.left:
            self._running.pop(other.id, None)
            if self._open.pop(other.tag, None) is not None:
                asyncio.get_running_loop().call_soon(train.ended, other.tag, None)
        if not one.id and train not in self._crowd:
            line = self._lines[train.host]
            line.waiting.remove(train)
            self._let_in(line)
            return
        if not one.id:
            self._crowd.remove(train)
        else:
            self._trains -= 1
            if train in self._unsubmitted:
                self._unsubmitted.remove(train)
            elif not self._closed:
                self._engine.cancel(one.id)
        self._leave(train.host)

    def rest(self, resting: bool) -> None:
        """Pauses or resumes answers that exceed the `bytes_max` of their requests."""
        if not self._closed:
            self._engine.rest(resting)

    def _run(self, train: _KernelTrain) -> None:
        """Hands the requests to the kernel."""
        self._trains += 1
        for one in train.left:
            self._last_id = one.id = self._last_id + 1
            self._running[one.id] = one
        if not self._unsubmitted:
            assert self._loop is not None
            self._loop.call_soon(self._submit)
        self._unsubmitted.append(train)

    def _row(self, one: _Fetch) -> FetchRow:
        request, target = one.request, one.request.target
        return (
            one.id,
            _PLAIN if target.scheme != "https" else _VERIFIED if request.verified else _UNVERIFIED,
            target.host,
            request.address.strip("[]"),
            target.port,
            request.head(),
            target in self._awkward,
            request.bytes_max,
            _limits_of(request.type_bytes_max) if request.type_bytes_max else None,
            request.connect_seconds,
            request.idle_seconds,
            request.total_seconds,
        )

    def _leave(self, host: str) -> None:
        """A train of this host runs no more: the next ones of its line get in, and its place is free."""
        line = self._lines[host]
        line.running -= 1
        if line.running or line.waiting:
            self._let_in(line)
        else:
            del self._lines[host]
            self._fill()

    def _let_in(self, line: _HostTrains) -> None:
        """Starts the trains that their host accepts now, as far as there are places."""
        while (train := line.let_in()) is not None:
            self._crowd.append(train)
        self._fill()

    def _fill(self) -> None:
        while self._crowd and self._trains < self._connections_max and not self._closed:
            self._run(self._crowd.popleft())

    def _listen(self) -> asyncio.AbstractEventLoop:
        self._loop = loop = asyncio.get_running_loop()
        loop.add_reader(self._engine.fileno(), self._drain)
        return loop

    def _submit(self) -> None:
        """Hands over all trains that were made in one turn of the loop."""
        trains, self._unsubmitted = self._unsubmitted, []
        if trains and not self._closed:
            try:
                self._hand_over(trains)
            except (OverflowError, TypeError, ValueError):
                for train in trains:
                    self._submit_alone(train)  # the whole batch was refused

    def _hand_over(self, trains: Sequence[_KernelTrain]) -> None:
        """Raises OverflowError, TypeError or ValueError for a request that the kernel refuses, and hands over
        nothing."""
        self._engine.submit([list(map(self._row, train.left)) for train in trains])
        # The kernel counts from within that call. An earlier instant, perhaps before a long turn of the loop,
        # would end a request too early, and its host would rest too short.
        now = self._clock()
        for train in trains:
            for one in train.left:
                one.submitted_at = now

    def _submit_alone(self, train: _KernelTrain) -> None:
        """Lets only the refused request fail: otherwise the others of its batch would wait for ever. A train with such
        a request is divided."""
        try:
            self._hand_over([train])
        except (OverflowError, TypeError, ValueError) as error:
            if len(train.left) == 1:
                one = self._running.pop(train.left[0].id)
                self._end(one, SettingsError(f"request to {train.host}: {error}"))
                return
            line = self._lines[train.host]
            for one in reversed(train.left):
                del self._running[one.id]
                one.id, one.train = 0, _KernelTrain(train.host, train.ended)
                one.train.left.append(one)
                line.waiting.appendleft(one.train)
            self._trains -= 1
            self._leave(train.host)

    def _drain(self) -> None:
        columns = self._engine.drain(FETCH_DRAIN_BYTES)
        ids, statuses, faults, truncated, flags, took, first, waited, lasted, texts, heads, bodies = columns
        now = self._clock()
        rows = zip(
            memoryview(ids).cast("Q"),
            memoryview(statuses).cast("H"),
            faults,
            truncated,
            flags,
            *(memoryview(micros).cast("Q") for micros in (took, first, waited, lasted)),
            texts,
            heads,
            bodies,
            strict=True,
        )
        for number, status, fault, cut, flag, micros, first_micros, before, length, text, head, body in rows:
            one = self._running.pop(number, None)
            if one is None:
                continue
            if flag & _LEFT_OUT:
                self._end(one, None)
                continue
            if flag & (_AMBIGUOUS | _KEPT_DIED):
                self._awkward.add(one.request.target)
            is_new = bool(flag & _NEW_CONNECTION)
            self._fetches += 1
            self._connections += is_new
            # Converts thread times to the crawl's clock, which may run at another speed: clamps each end between
            # hand-over (`submitted_at`, the end of that call) and notice.
            ended_at = min(now, one.submitted_at + before + length)
            started_at = min(one.submitted_at + before, ended_at)
            ended = TransferEnd(
                status or None,
                _FAULTS[fault],
                _TRUNCATED[cut],
                text,
                bool(flag & _SENT),
                head,
                body,
                started_at,
                ended_at,
                micros / 1_000_000,
                is_new,
                started_at + first_micros if first_micros else None,
            )
            self._end(one, response_of(one.request, ended))

    def _end(self, one: _Fetch, answer: Response | BaseException | None) -> None:
        train = one.train
        del self._open[one.tag]
        train.left.remove(one)
        if not train.left:
            self._trains -= 1
            self._leave(train.host)
        train.ended(one.tag, answer)

    async def close(self) -> None:
        """Ends the fetches that were begun (as `internal`) and closes every connection."""
        if self._closed:
            return
        self._closed = True
        left = list(self._open.values())
        self._open.clear()
        self._running.clear()
        for one in left:
            closed = unsent(one.request, FetchError.INTERNAL, "the downloader was closed", self._clock())
            one.train.ended(one.tag, closed)
        # The tasks that wait for these answers get their turn.
        await asyncio.sleep(0)
        if self._loop is not None:
            self._loop.remove_reader(self._engine.fileno())
        self._engine.close()


@lru_cache(maxsize=REQUEST_FIELDS_KNOWN)
def _limits_of(limits: TypeBytes) -> FetchLimits:
    from outrider._native import FetchLimits

    return FetchLimits(limits)


def _settle(answer: asyncio.Future[Response], found: Response | BaseException | None) -> None:
    """Passes an answer to the caller that awaits it, and is alone in its train."""
    if answer.done():
        return
    assert found is not None
    if isinstance(found, BaseException):
        answer.set_exception(found)
    else:
        answer.set_result(found)
