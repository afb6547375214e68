"""Many pages by the batch: from URLs or leases to answers, in a second thread. The caller decides order and pauses."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from outrider.clock import ClockFunction, wall
from outrider.errors import ClosedError, InvalidUrlError, SettingsError
from outrider.fetch.addresses import AddressGuard, is_web_port, parsed
from outrider.fetch.default_downloader import make_downloader
from outrider.fetch.dns import read_server
from outrider.fetch.downloader import Downloader, Request, Response, target_of
from outrider.fetch.failures import BlockedAddress, FetchError, FetchFailure
from outrider.fetch.names import Resolver, make_resolver
from outrider.journey import Lease, Link, Outcome, UrlColumns
from outrider.limits import (
    BODY_BYTES_MAX,
    CONNECT_SECONDS_MAX,
    CONNECTIONS_MAX,
    FETCHED_BYTES_MAX,
    IDLE_SECONDS_MAX,
    SUBMITTED_MAX,
    TOTAL_SECONDS_MAX,
)

if TYPE_CHECKING:  # a module of the package that makes its page as a program
    from outrider.fetch.meaning import Meaning

CLOSE_SECONDS_MAX: Final = 10.0


class HasUrl(Protocol):
    """A lease, or anything else that has a URL; its `address`, where it has one, is the one that is dialled."""

    @property
    def url(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Fetched:
    """The end of one request. asked: the submitted URL or lease. response: None if no request could be
    made; `error` says why, as for a failed response."""

    asked: Any
    url: str
    response: Response | None
    error: FetchError | None
    error_text: str

    @property
    def seconds(self) -> float:
        """Seconds that the site needed, 0 without a request: to report with a lease."""
        return self.response.seconds if self.response is not None else 0.0

    @property
    def meaning(self) -> Meaning:
        """The meaning of the answer for the URL of a page, as a crawl reads it (docs/answers.md)."""
        from outrider.fetch.judging import meaning_of_request

        return meaning_of_request(self.response, self.error)

    def outcome(self, links: Sequence[str | Link] | UrlColumns = (), **fields: Any) -> Outcome:
        """Returns the outcome to report for the submitted lease, as a crawl makes it from this answer.

        links: of the page; they count if it has content (`meaning.word.has_content`). fields: any others of `Outcome`.
        Raises SettingsError if a URL was submitted, and for an unknown field.
        """
        from outrider.fetch.judging import outcome_of_request

        if not isinstance(self.asked, Lease):
            raise SettingsError(f"{self.url} was submitted as a URL, and only a lease has an outcome: submit the lease")
        return outcome_of_request(self.asked, self.response, self.error, links, fields)


class Fetcher:
    """Fetches pages, many at a time, each from a resolved and checked address; it follows no redirect.

    `submit` accepts a batch and returns at once; `drain` returns the ended fetches. Both may be called from any thread,
    and `drained` is for `await`. One connection per host at a time. It requests no robots.txt and makes no pause, so
    use URLs from a `Frontier`, which leases them when their host may be visited:

        with Frontier.open("store", robots="errands") as frontier, Fetcher(contact="you@example.org") as fetcher:
            fetcher.submit(frontier.lease(100, errands=True))
            for one in fetcher.drain(wait_seconds=1):
                frontier.report([one.outcome()])
    """

    def __init__(
        self,
        *,
        contact: str | None = None,
        user_agent: str = "outrider",
        headers: Iterable[tuple[str, str]] = (),
        hosts: Mapping[str, Sequence[str]] | None = None,
        allow_address: Sequence[str] = (),
        resolver: Sequence[str] = (),
        ca: str | None = None,
        concurrency: int = 64,
        bytes_max: int = BODY_BYTES_MAX,
        connect_seconds: float = CONNECT_SECONDS_MAX,
        first_byte_seconds: float = IDLE_SECONDS_MAX,
        total_seconds: float = TOTAL_SECONDS_MAX,
        clock: ClockFunction = wall,
        downloader: Downloader | None = None,
    ) -> None:
        """contact: a URL or mail address in the User-Agent; without it only loopback is connected to. hosts: addresses
        by name, which are not resolved. allow_address: ranges that the guard would refuse. resolver: DNS
        servers. ca: a file of additional roots. bytes_max: of an answer, head included. Raises SettingsError for a
        value that cannot be used."""
        if not 1 <= concurrency <= CONNECTIONS_MAX:
            raise SettingsError(f"concurrency = {concurrency!r}: from 1 to {CONNECTIONS_MAX}")
        named = {name: tuple(addresses) for name, addresses in (hosts or {}).items()}
        self._agent = f"{user_agent} (+{contact})" if contact else user_agent
        self._loopback_only = not contact
        self._headers = tuple(headers)
        self._limits: dict[str, Any] = {
            "bytes_max": bytes_max,
            "connect_seconds": connect_seconds,
            "idle_seconds": first_byte_seconds,
            "total_seconds": total_seconds,
        }
        Request("http://localhost/", "127.0.0.1", self._agent, self._headers, **self._limits)
        self._guard = AddressGuard(tuple(allow_address), named)
        self._names: Resolver = make_resolver(named, tuple(map(read_server, resolver)))
        self._downloader = downloader or make_downloader(clock=clock, ca_file=ca)
        self._lock = threading.Lock()
        self._news = threading.Condition(self._lock)
        self._waiting: deque[Any] = deque()
        self._ended: deque[Fetched] = deque()
        self._held_bytes = 0
        self._open = 0  # submitted, and not drained yet
        self._awaited: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._closed = False
        self._process = os.getpid()
        self._failure: BaseException | None = None
        self._loop = asyncio.new_event_loop()
        self._work = asyncio.Event()
        self._thread = threading.Thread(target=self._run, args=(concurrency,), name="outrider-fetcher", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<Fetcher {self._open} under way>"

    @property
    def under_way(self) -> int:
        """How many were submitted and not drained yet."""
        return self._open

    # -- for callers --------------------------------------------------------------------------------------------------

    def submit(self, batch: Iterable[str | HasUrl]) -> int:
        """Accepts URLs or leases; returns their number. Raises SettingsError for a batch that is one text and for more
        than `SUBMITTED_MAX` fetches under way, and ClosedError after `close`; then the whole batch is refused."""
        if isinstance(batch, str):
            raise SettingsError(f"batch is one text; pass a list: submit([{batch[:80]!r}])")
        asked = list(batch)
        for one in asked:
            if not isinstance(one, str) and not isinstance(getattr(one, "url", None), str):
                raise SettingsError(f"batch contains {one!r:.80}; it accepts URLs and leases")
        with self._lock:
            self._require_open()
            if self._open + len(asked) > SUBMITTED_MAX:
                raise SettingsError(
                    f"{self._open + len(asked):,} requests would be under way, at most {SUBMITTED_MAX:,} may be: "
                    "call `drain` first"
                )
            self._waiting.extend(asked)
            self._open += len(asked)
        if asked:
            self._loop.call_soon_threadsafe(self._work.set)
        return len(asked)

    def drain(self, wait_seconds: float = 0.0) -> list[Fetched]:
        """Returns all fetches that ended since the last call, in the order of their end. Without any, it waits for
        fetches under way, for at most `wait_seconds`."""
        until = time.monotonic() + wait_seconds
        with self._news:
            while not self._ended and self._open and not self._closed and self._failure is None:
                left = until - time.monotonic()
                if left <= 0:
                    break
                self._news.wait(left)
            return self._taken()

    async def drained(self, wait_seconds: float = 0.0) -> list[Fetched]:
        """As `drain`, for `await`; a cancelled call removes nothing."""
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_seconds
        while True:
            with self._lock:
                left = until - loop.time()
                if self._ended or not self._open or self._closed or self._failure is not None or left <= 0:
                    return self._taken()
                news = loop.create_future()
                self._awaited.append((loop, news))
            await asyncio.wait([news], timeout=left)

    def close(self) -> None:
        """Ends fetches under way and closes every connection; `drain` still returns ended ones."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._waiting.clear()
            self._tell()
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._work.set)
            self._thread.join(CLOSE_SECONDS_MAX)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    def _taken(self) -> list[Fetched]:
        if self._failure is not None and not self._ended:
            raise self._failure
        taken = list(self._ended)
        self._ended.clear()
        self._open -= len(taken)
        if taken and self._held_bytes:
            self._held_bytes = 0
            if not self._closed:
                self._loop.call_soon_threadsafe(self._work.set)
        return taken

    def _require_open(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise ClosedError("a Fetcher: make another")
        if os.getpid() != self._process:
            raise ClosedError("a Fetcher of the process that forked this one, where its thread stayed: make another")

    def _tell(self) -> None:
        """Wakes those that wait for news; called with the lock."""
        self._news.notify_all()
        for loop, news in self._awaited:
            if not loop.is_closed():
                loop.call_soon_threadsafe(_set, news)
        self._awaited.clear()

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _run(self, concurrency: int) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve(concurrency))
        except BaseException as error:  # noqa: BLE001 - whoever calls next is told
            with self._lock:
                self._failure = error
                self._tell()
        finally:
            self._loop.close()

    async def _serve(self, concurrency: int) -> None:
        running: set[asyncio.Task[None]] = set()
        try:
            while not self._closed:
                self._work.clear()
                while len(running) < concurrency and (asked := self._next()) is not None:
                    task = asyncio.create_task(self._visit(asked))
                    running.add(task)
                    task.add_done_callback(running.discard)
                    task.add_done_callback(lambda _: self._work.set())
                await self._work.wait()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            await self._downloader.close()
            await self._names.close()

    def _next(self) -> Any:
        with self._lock:
            return self._waiting.popleft() if self._waiting and self._held_bytes < FETCHED_BYTES_MAX else None

    async def _visit(self, asked: Any) -> None:
        url = asked if isinstance(asked, str) else asked.url
        response, error, text = None, None, ""
        try:
            response = await self._fetch(url, getattr(asked, "address", None))
            error, text = response.error, response.error_text
        except FetchFailure as failure:
            error, text = failure.error, failure.facts.removeprefix(f"{failure.error}: ")
        except (InvalidUrlError, SettingsError) as refused:
            error, text = FetchError.MALFORMED, refused.facts
        except Exception as fault:  # noqa: BLE001 - a downloader of the caller's own: its page fails, the others go on
            error, text = FetchError.INTERNAL, f"{type(fault).__name__}: {fault}"
        with self._lock:
            self._ended.append(Fetched(asked, url, response, error, text))
            self._held_bytes += len(response.body) + len(response.content) if response is not None else 0
            self._tell()

    async def _fetch(self, url: str, pinned: str | None) -> Response:
        """Tries one address after the other until one accepts the connection."""
        target = target_of(url)
        if not is_web_port(target.port):
            raise FetchFailure(FetchError.BLOCKED_PORT, f"port {target.port} is not one for HTTP")
        addresses = [pinned] if pinned is not None else await self._names.resolve(target.host, target.port)
        if self._loopback_only:
            addresses = [ip for ip in addresses if (known := parsed(ip)) is not None and known.is_loopback]
            if not addresses:
                raise BlockedAddress(f"{target.host} is not this machine, and the crawler has no contact")
        response: Response | None = None
        for address in self._guard.permitted(target.host, addresses):
            request = Request(url, address, self._agent, self._headers, **self._limits)
            response = await self._downloader.fetch(request)
            if not response.unconnected:
                break
        assert response is not None  # `permitted` returns at least one address
        return response


def _set(news: asyncio.Future[None]) -> None:
    if not news.done():
        news.set_result(None)
