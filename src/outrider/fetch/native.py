"""A downloader on the fetch kernel: batches of requests to its threads, answers drained together in the event loop."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from typing import TYPE_CHECKING

from outrider.clock import ClockFunction, Instant
from outrider.errors import ClosedError, SettingsError
from outrider.fetch.addresses import is_web_port
from outrider.fetch.answers import AwkwardOrigins, Ended, response_of, unsent
from outrider.fetch.downloader import Ended as EndedFunction
from outrider.fetch.downloader import Request, Response, Tag
from outrider.fetch.outcomes import FetchError
from outrider.fetch.roots import roots_pem
from outrider.limits import (
    CONNECTIONS_MAX,
    FETCH_DRAIN_BYTES,
    FETCH_INBOX_BYTES_MAX,
    FETCH_THREADS,
    HEAD_BYTES_MAX,
    HEADER_LINES_MAX,
    IDLE_CONNECTION_SECONDS_MAX,
    RATE_BYTES_PER_SECOND_MIN,
    RATE_SECONDS_FIRST,
)

if TYPE_CHECKING:
    from outrider._native import FetchEngine, FetchRow

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
_TRUNCATED = (None, "length", "time", "disconnect", "unspecified")
_PLAIN, _VERIFIED, _UNVERIFIED = 0, 1, 2
_SENT, _NEW_CONNECTION, _AMBIGUOUS, _KEPT_DIED = 1, 2, 4, 8


class _Fetch:
    """A fetch that was begun: its request, and the function that is told of its answer."""

    __slots__ = ("ended", "id", "request", "started_at", "tag")

    def __init__(self, request: Request, tag: Tag, ended: EndedFunction) -> None:
        self.request, self.tag, self.ended = request, tag, ended
        self.id = 0  # in the kernel; 0 until it is its turn
        self.started_at: Instant = 0


class NativeDownloader:
    """Fetches over HTTP/1.1 in threads of its own, many at once, one connection per host.

    Connects to the request's address and nowhere else; follows no redirect, knows no proxy, cookie or password. TLS is
    verified against certifi's roots and those in `ca_file` (PEM), unless a request says otherwise. `clock` gives the
    instants of the responses.
    At most `connections_max` fetches run and as many sockets are open; further calls wait, uncounted.
    A process that was forked off makes a downloader of its own: the threads stay where they were started.
    """

    def __init__(
        self,
        *,
        clock: ClockFunction,
        ca_file: str | None = None,
        connections_max: int = CONNECTIONS_MAX,
        threads: int = FETCH_THREADS,
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
            head_bytes_max=HEAD_BYTES_MAX,
            head_lines_max=HEADER_LINES_MAX,
            rate_bytes_min=RATE_BYTES_PER_SECOND_MIN,
            rate_after_seconds=RATE_SECONDS_FIRST,
        )
        self._process = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._open: dict[Tag, _Fetch] = {}
        self._running: dict[int, _Fetch] = {}  # by their ids in the kernel
        self._lines: dict[str, list[_Fetch]] = {}  # by host that is asked: the fetches behind that one
        self._crowd: deque[_Fetch] = deque()  # their hosts are free, and all places taken
        self._unsubmitted: dict[int, FetchRow] = {}
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
        """Asks for one page; never raises for a fault of the site. Cancelling it closes its connection."""
        self._require_open()
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self.begin(request, answer, _settle)
        try:
            return await answer
        except asyncio.CancelledError:
            self.cancel(answer)
            raise

    def begin(self, request: Request, tag: Tag, ended: EndedFunction) -> None:
        """Begins to ask for one page, and tells `ended` of the answer in the event loop, later. Requests that are begun
        in one turn of the loop go to the kernel together. Raises ClosedError."""
        self._require_open()
        loop = self._loop or self._listen()
        target = request.target
        if not is_web_port(target.port):
            refused = unsent(request, FetchError.BLOCKED_PORT, f"port {target.port} is not one for HTTP", self._clock())
            loop.call_soon(ended, tag, refused)
            return
        one = self._open[tag] = _Fetch(request, tag, ended)
        line = self._lines.get(target.host)
        if line is not None:
            line.append(one)
            return
        self._lines[target.host] = []
        if len(self._running) < self._connections_max:
            self._run(one)
        else:
            self._crowd.append(one)

    def _require_open(self) -> None:
        if self._closed:
            raise ClosedError("this downloader takes no more requests")
        if os.getpid() != self._process:
            raise ClosedError(
                "this downloader was made before a fork, and its threads stayed in the other process: make a new one "
                "here"
            )

    def cancel(self, tag: Tag) -> None:
        """Breaks a fetch off: its connection is closed, and no function is told of it."""
        one = self._open.pop(tag, None)
        if one is None:
            return
        host = one.request.target.host
        if one.id:
            del self._running[one.id]
            if self._unsubmitted.pop(one.id, None) is None and not self._closed:
                self._engine.cancel(one.id)
            self._leave(host)
        elif one in self._crowd:
            self._crowd.remove(one)
            self._leave(host)
        else:
            self._lines[host].remove(one)

    def _run(self, one: _Fetch) -> None:
        """Has the kernel ask."""
        request, target = one.request, one.request.target
        self._last_id = one.id = self._last_id + 1
        one.started_at = self._clock()
        self._running[one.id] = one
        if not self._unsubmitted:
            assert self._loop is not None
            self._loop.call_soon(self._submit)
        self._unsubmitted[one.id] = (
            one.id,
            _PLAIN if target.scheme != "https" else _VERIFIED if request.verified else _UNVERIFIED,
            target.host,
            request.address.strip("[]"),
            target.port,
            request.head(),
            target in self._awkward,
            request.bytes_max,
            request.connect_seconds,
            request.idle_seconds,
            request.idle_seconds,
            request.total_seconds,
        )

    def _leave(self, host: str) -> None:
        """A fetch of this host has ended: the next one of its line gets in, or its place is free for another host."""
        line = self._lines[host]
        if line:
            self._crowd.append(line.pop(0))
        else:
            del self._lines[host]
        while self._crowd and len(self._running) < self._connections_max and not self._closed:
            self._run(self._crowd.popleft())

    def _listen(self) -> asyncio.AbstractEventLoop:
        self._loop = loop = asyncio.get_running_loop()
        loop.add_reader(self._engine.fileno(), self._drain)
        return loop

    def _submit(self) -> None:
        """Hands over all requests that were made in one turn of the loop."""
        if self._unsubmitted and not self._closed:
            rows = list(self._unsubmitted.values())
            self._unsubmitted.clear()
            try:
                self._engine.submit(rows)
            except (OverflowError, TypeError, ValueError):
                self._submit_singly(rows)  # nothing of the batch was taken

    def _submit_singly(self, rows: list[FetchRow]) -> None:
        """A request that the kernel refuses fails alone: the others of its batch would wait for ever."""
        for row in rows:
            try:
                self._engine.submit([row])
            except (OverflowError, TypeError, ValueError) as error:
                one = self._running.pop(row[0])
                self._end(one, SettingsError(f"request to {row[2]}: {error}"))

    def _drain(self) -> None:
        ids, statuses, faults, truncated, flags, took, first, texts, heads, bodies = self._engine.drain(
            FETCH_DRAIN_BYTES
        )
        now = self._clock()
        rows = zip(
            memoryview(ids).cast("Q"),
            memoryview(statuses).cast("H"),
            faults,
            truncated,
            flags,
            memoryview(took).cast("Q"),
            memoryview(first).cast("Q"),
            texts,
            heads,
            bodies,
            strict=True,
        )
        for number, status, fault, cut, flag, micros, first_micros, text, head, body in rows:
            one = self._running.pop(number, None)
            if one is None:
                continue
            if flag & (_AMBIGUOUS | _KEPT_DIED):
                self._awkward.add(one.request.target)
            is_new = bool(flag & _NEW_CONNECTION)
            self._fetches += 1
            self._connections += is_new
            ended = Ended(
                status or None,
                _FAULTS[fault],
                _TRUNCATED[cut],
                text,
                bool(flag & _SENT),
                head,
                body,
                one.started_at,
                now,
                micros / 1_000_000,
                is_new,
                one.started_at + first_micros if first_micros else None,
            )
            self._end(one, response_of(one.request, ended))

    def _end(self, one: _Fetch, answer: Response | BaseException) -> None:
        del self._open[one.tag]
        self._leave(one.request.target.host)
        one.ended(one.tag, answer)

    async def close(self) -> None:
        """Ends the fetches that were begun (as `internal`) and closes every connection."""
        if self._closed:
            return
        self._closed = True
        left = list(self._open.values())
        self._open.clear()
        self._running.clear()
        for one in left:
            one.ended(one.tag, unsent(one.request, FetchError.INTERNAL, "the downloader was closed", self._clock()))
        # The tasks that wait for these answers get their turn.
        await asyncio.sleep(0)
        if self._loop is not None:
            self._loop.remove_reader(self._engine.fileno())
        self._engine.close()


def _settle(answer: asyncio.Future[Response], found: Response | BaseException) -> None:
    """Gives an answer to the caller that awaits it."""
    if answer.done():
        return
    if isinstance(found, BaseException):
        answer.set_exception(found)
    else:
        answer.set_result(found)
