"""A downloader on the fetch kernel: batches of requests to its threads, answers drained together in the event loop."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, NamedTuple

from outrider.clock import ClockFunction
from outrider.errors import ClosedError, SettingsError
from outrider.fetch.addresses import is_web_port
from outrider.fetch.answers import AwkwardOrigins, Ended, response_of, unsent
from outrider.fetch.downloader import Request, Response, Target
from outrider.fetch.outcomes import FetchError
from outrider.fetch.roots import roots_pem
from outrider.fetch.turns import Turns
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


class _Answer(NamedTuple):
    """One row of the columns that the kernel gives."""

    status: int
    fault: int
    truncated: int
    flags: int
    micros: int
    first_micros: int
    text: str
    head: bytes
    body: bytes


_CLOSED = _Answer(0, _FAULTS.index(FetchError.INTERNAL), 0, 0, 0, 0, "the downloader was closed", b"", b"")


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
        self._turns = Turns(connections_max)
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
        self._waiting: dict[int, asyncio.Future[_Answer]] = {}
        self._unsubmitted: dict[int, FetchRow] = {}
        self._last_id = 0
        self._closed = False
        self._fetches = 0
        self._connections = 0

    def __repr__(self) -> str:
        return (
            f"<NativeDownloader {len(self._waiting)} running, {self._fetches} done, {self._connections} connections "
            "made>"
        )

    def statistics(self) -> dict[str, int]:
        """Fetches running, fetches ended, connections made for them."""
        return {"running": len(self._waiting), "fetches": self._fetches, "connections": self._connections}

    async def fetch(self, request: Request) -> Response:
        """Asks for one page; never raises for a fault of the site. Cancelling it closes its connection."""
        if self._closed:
            raise ClosedError("this downloader takes no more requests")
        if os.getpid() != self._process:
            raise ClosedError(
                "this downloader was made before a fork, and its threads stayed in the other process: make a new one "
                "here"
            )
        target = request.target
        if not is_web_port(target.port):
            now = self._clock()
            return unsent(request, FetchError.BLOCKED_PORT, f"port {target.port} is not one for HTTP", now)
        async with self._turns.of(target.host):
            started_at = self._clock()
            answer = await self._ask(request, target)
            ended_at = self._clock()
        if answer.flags & (_AMBIGUOUS | _KEPT_DIED):
            self._awkward.add(target)
        self._fetches += 1
        self._connections += bool(answer.flags & _NEW_CONNECTION)
        return response_of(
            request,
            Ended(
                status=answer.status or None,
                error=_FAULTS[answer.fault],
                truncated=_TRUNCATED[answer.truncated],
                text=answer.text,
                sent=bool(answer.flags & _SENT),
                head=answer.head,
                body=answer.body,
                started_at=started_at,
                ended_at=ended_at,
                seconds=answer.micros / 1_000_000,
                new_connection=bool(answer.flags & _NEW_CONNECTION),
                first_byte_at=started_at + answer.first_micros if answer.first_micros else None,
            ),
        )

    async def _ask(self, request: Request, target: Target) -> _Answer:
        loop = self._loop or self._listen()
        self._last_id = one = self._last_id + 1
        answer: asyncio.Future[_Answer] = loop.create_future()
        self._waiting[one] = answer
        if not self._unsubmitted:
            loop.call_soon(self._submit)
        self._unsubmitted[one] = (
            one,
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
        try:
            return await answer
        except asyncio.CancelledError:
            if self._unsubmitted.pop(one, None) is None and not self._closed:
                self._engine.cancel(one)
            raise
        finally:
            self._waiting.pop(one, None)

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
                answer = self._waiting.get(row[0])
                if answer is not None and not answer.done():
                    answer.set_exception(SettingsError(f"request to {row[2]}: {error}"))

    def _drain(self) -> None:
        ids, statuses, faults, truncated, flags, *times, texts, heads, bodies = self._engine.drain(FETCH_DRAIN_BYTES)
        rows = zip(
            memoryview(statuses).cast("H"),
            faults,
            truncated,
            flags,
            *(memoryview(micros).cast("Q") for micros in times),
            texts,
            heads,
            bodies,
            strict=True,
        )
        for one, row in zip(memoryview(ids).cast("Q"), rows, strict=True):
            answer = self._waiting.get(one)
            if answer is not None and not answer.done():
                answer.set_result(_Answer._make(row))

    async def close(self) -> None:
        """Ends the transfers in flight (as `internal`) and closes every connection."""
        if self._closed:
            return
        self._closed = True
        for answer in list(self._waiting.values()):
            if not answer.done():
                answer.set_result(_CLOSED)
        # The tasks that wait for these answers get their turn.
        await asyncio.sleep(0)
        if self._loop is not None:
            self._loop.remove_reader(self._engine.fileno())
        self._engine.close()
