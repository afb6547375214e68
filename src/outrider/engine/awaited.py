"""The verbs of a frontier to await."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from outrider.clock import ClockFunction, Instant
from outrider.engine.calls import Kept, Small, Verb, discoveries, lease_alone, takes_builtins
from outrider.engine.opening import Opening, Recovered
from outrider.engine.owner import Frontier
from outrider.engine.reading import answers_of
from outrider.engine.waiting import WaitingRoom
from outrider.frontier.verbs import arguments
from outrider.journey import (
    Code,
    Explanation,
    HostStatus,
    Idle,
    LeaseBatch,
    Link,
    Outcome,
    OutcomeBatch,
    Page,
    QueueStatus,
    Report,
    RequestId,
    RobotsAnswer,
    Settled,
    State,
    UrlStatus,
    Verification,
    Waits,
    WorkerStatus,
)
from outrider.limits import DISCOVER_ROWS_PER_FRAME, REMOTE_PATIENCE_SECONDS
from outrider.storage.files import Files
from outrider.url import UrlBatch

if TYPE_CHECKING:
    from outrider.engine.remote import Connected

Answer = TypeVar("Answer")
Row = TypeVar("Row")


class Opened:
    """A frontier that is being opened in a thread: `await` gives it, `async with` closes it in the end."""

    def __init__(self, work: Callable[[], Frontier]) -> None:
        self._work = work
        self._frontier: AsyncFrontier | None = None

    def __await__(self) -> Generator[Any, None, AsyncFrontier]:
        return self._open().__await__()

    async def _open(self) -> AsyncFrontier:
        return AsyncFrontier(await asyncio.to_thread(self._work))

    async def __aenter__(self) -> AsyncFrontier:
        self._frontier = await self._open()
        return self._frontier

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._frontier is not None:
            await self._frontier.__aexit__(kind, error, trace)


@takes_builtins
class AsyncFrontier:
    """The same verbs to await: deciding happens on the loop, waiting for the disk in a thread. Small calls of tasks
    that run in the same turn of the loop are made together."""

    def __init__(self, frontier: Frontier) -> None:
        self.sync = frontier
        self._pool = ThreadPoolExecutor(max_workers=2, thread_name_prefix="outrider-sync")
        self._small: list[tuple[Small, asyncio.Future[None]]] = []
        self._waiting = WaitingRoom(
            frontier._bell,
            self._lease,
            frontier._give_up,
            lambda: frontier._machine.tables.token,
            frontier.next_ready_seconds,
        )

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str] | Files,
        *,
        clock: ClockFunction | None = None,
        seed: int = 0,
        settings: Mapping[str, object] | None = None,
        robots: str = "caller",
        addresses: str = "caller",
        output: bool = False,
        slots: frozenset[int] | None = None,
        keys: tuple[bytes, bytes] | None = None,
        judge: Callable[[Recovered], None] | None = None,
    ) -> Opened:
        """As `Frontier.open`: `await AsyncFrontier.open(…)`, or `async with AsyncFrontier.open(…) as frontier`."""
        return Opened(
            partial(
                Frontier.open,
                path,
                clock=clock,
                seed=seed,
                settings=settings,
                robots=robots,
                addresses=addresses,
                output=output,
                slots=slots,
                keys=keys,
                judge=judge,
            )
        )

    @classmethod
    def memory(
        cls,
        *,
        clock: ClockFunction | None = None,
        seed: int = 0,
        settings: Mapping[str, object] | None = None,
        robots: str = "caller",
        addresses: str = "caller",
    ) -> Opened:
        """As `Frontier.memory`, to await or for `async with`."""
        return Opened(
            partial(Frontier.memory, clock=clock, seed=seed, settings=settings, robots=robots, addresses=addresses)
        )

    @classmethod
    def look(
        cls,
        path: str | os.PathLike[str] | Files,
        *,
        robots: str = "caller",
        judge: Callable[[Recovered], None] | None = None,
    ) -> Opened:
        """As `Frontier.look`, to await or for `async with`."""
        return Opened(partial(Frontier.look, path, robots=robots, judge=judge))

    @classmethod
    def connect(
        cls,
        address: str,
        *,
        token: str | None = None,
        ca: str | None = None,
        worker: str | None = None,
        patience_seconds: float = REMOTE_PATIENCE_SECONDS,
    ) -> Connected:
        """As `Frontier.connect`, to await or for `async with`."""
        from outrider.engine.remote import Connected, connect

        return Connected(
            partial(connect, address, token=token, ca=ca, worker=worker, patience_seconds=patience_seconds)
        )

    @property
    def user_agent(self) -> str:
        """As `Frontier.user_agent`."""
        return self.sync.user_agent

    @property
    def opening(self) -> Opening:
        """The findings of the opening of the store."""
        return self.sync.opening

    async def _call(self, name: str, verb: Verb[Answer], *, request_id: RequestId | None = None) -> Answer:
        call = Kept(verb, request_id)
        try:
            answer, lsn = self.sync._decide(name, call)
            if self.sync._log.synced_lsn < lsn:
                await asyncio.get_running_loop().run_in_executor(self._pool, self.sync._durable, lsn)
        except BaseException:
            self.sync._given_up(call)
            raise
        return answer

    async def _in_thread(self, work: Callable[[], Answer]) -> Answer:
        self.sync._alone()  # the threads of the pool are not there in a forked child
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def _gathered(self, small: Small) -> Any:
        self.sync._alone()  # a call that a forked child, or a function inside a call, left here would never be made
        loop = asyncio.get_running_loop()
        made = loop.create_future()
        self._small.append((small, made))
        if len(self._small) == 1:
            loop.call_soon(self._make_small)
        try:
            await made
            answer = small.told()
            if self.sync._log.synced_lsn < small.lsn:
                await loop.run_in_executor(self._pool, self.sync._durable, small.lsn)
        except BaseException:
            self.sync._given_up(small)
            raise
        return answer

    def _make_small(self) -> None:
        waiting, self._small = self._small, []
        try:
            # A task that was cancelled waits for nothing any more.
            self.sync._make_all([small for small, made in waiting if not made.cancelled()])
        finally:
            for _, made in waiting:
                if not made.done():
                    made.set_result(None)

    async def discover(
        self, links: Iterable[str | Link] | UrlBatch, *, request_id: RequestId | None = None
    ) -> list[Code]:
        """As `Frontier.discover`; a long input gives way to others between its pieces."""
        small = Small.discover(links, request_id)
        if small is not None:
            found: list[Code] = await self._gathered(small)
            return found
        codes: list[Code] = []
        for discovery in discoveries(links, request_id):
            codes += await self._call("discover", discovery)
        return codes

    async def lease(
        self,
        want: int,
        *,
        ttl_seconds: float = 60,
        per_queue: int = 1,
        train_seconds: float | None = None,
        queues_max: int | None = None,
        crawl: str | None = None,
        key: str | None = None,
        worker: str | None = None,
        errands: bool = False,
        wait_seconds: float = 0.0,
        request_id: RequestId | None = None,
    ) -> LeaseBatch:
        """As `Frontier.lease`. Tasks that want the same kind of lease are served in the order in which they come."""
        how: dict[str, Any] = {"ttl_seconds": ttl_seconds, "per_queue": per_queue, "crawl": crawl, "key": key}
        how |= {
            "train_seconds": train_seconds,
            "queues_max": queues_max,
            "worker": worker,
            "errands": errands,
            "request_id": request_id,
        }
        wait_seconds = arguments.seconds("wait_seconds", wait_seconds)
        if not wait_seconds:
            return await self._lease(want, **how)
        kind = (per_queue, train_seconds, queues_max, crawl, key, errands)
        return await self._waiting.wait(want, kind, how, wait_seconds)

    @property
    def waiting_leases(self) -> int:
        """How many tasks wait for a lease."""
        return len(self._waiting)

    async def _lease(self, want: int, *, request_id: RequestId | None, **how: Any) -> LeaseBatch:
        if self.sync._machine.robots.unread:
            await self._in_thread(self.sync._read_rules)
        while True:
            small = Small.lease(want, how, request_id)
            if small is not None:
                leases: LeaseBatch = await self._gathered(small)
            else:
                verb = partial(lease_alone, want, {**how, "request_id": request_id})
                leases = await self._call("lease", verb, request_id=request_id)
            if leases or leases.lines or not self.sync._machine.robots.unread:
                return leases
            if not await self._in_thread(self.sync._read_rules):
                return leases

    async def report(
        self,
        outcomes: Sequence[Outcome] | OutcomeBatch,
        links: Sequence[tuple[int, str | Link]] | UrlBatch = (),
        *,
        request_id: RequestId | None = None,
        watermark: tuple[str, bytes] | None = None,
    ) -> Report:
        """As `Frontier.report`."""
        if answers := answers_of(outcomes):
            await self._in_thread(partial(self.sync._read_ahead, answers))
        small = (
            Small.report(outcomes, links, request_id, watermark) if not self.sync._machine.core.keeps_lines else None
        )
        if small is not None:
            told: Report = await self._gathered(small)
            return told
        return await self._call(
            "report", lambda m, now: m.reports.report(outcomes, links, now, request_id=request_id, watermark=watermark)
        )

    async def extend(self, tokens: Sequence[int], ttl_seconds: float) -> list[Settled]:
        """As `Frontier.extend`."""
        return await self._call("extend", lambda m, now: m.reports.extend(tokens, ttl_seconds, now))

    async def release(self, tokens: Sequence[int]) -> list[Settled]:
        """As `Frontier.release`."""
        return await self._call("release", lambda m, now: m.reports.release(tokens, now))

    async def defer(self, tokens: Sequence[int], until: Instant) -> list[Settled]:
        """As `Frontier.defer`."""
        return await self._call("defer", lambda m, now: m.reports.defer(tokens, until, now))

    async def pause(self, key: str | None = None, *, crawl: str | None = None) -> int:
        """As `Frontier.pause`."""
        return await self._call("pause", lambda m, now: m.operators.pause(key, crawl, now, paused=True))

    async def resume(self, key: str | None = None, *, crawl: str | None = None) -> int:
        """As `Frontier.resume`."""
        return await self._call("resume", lambda m, now: m.operators.pause(key, crawl, now, paused=False))

    async def block_until(self, until: Instant, key: str | None = None, *, crawl: str | None = None) -> int:
        """As `Frontier.block_until`."""
        return await self._call("block_until", lambda m, now: m.operators.block_until(until, key, crawl, now))

    async def set_delay(self, delay_seconds: float | None, key: str | None = None, *, crawl: str | None = None) -> int:
        """As `Frontier.set_delay`."""
        return await self._call("set_delay", lambda m, now: m.operators.set_delay(delay_seconds, key, crawl, now))

    async def set_limit(self, limit: int | None, key: str | None = None, *, crawl: str | None = None) -> int:
        """As `Frontier.set_limit`."""
        return await self._call("set_limit", lambda m, now: m.operators.set_limit(limit, key, crawl, now))

    async def delete(self, key: str | None = None, *, crawl: str | None = None) -> int:
        """As `Frontier.delete`."""
        return await self._call("delete", lambda m, now: m.operators.delete(key, crawl, now))

    async def reprioritise(
        self,
        urls: str | Sequence[str] | Mapping[str, float],
        priority: float | None = None,
        *,
        crawl: str | None = None,
    ) -> list[State]:
        """As `Frontier.reprioritise`."""
        return await self._call("reprioritise", lambda m, now: m.operators.reprioritise(urls, priority, crawl, now))

    async def retry(self, *, error: str | None = None, host: str | None = None) -> int:
        """As `Frontier.retry`, in a thread: it may read much."""
        return await self._in_thread(partial(self.sync.retry, error=error, host=host))

    async def explain(self, url: str, *, crawl: str | None = None) -> Explanation:
        """As `Frontier.explain`."""
        return self.sync.explain(url, crawl=crawl)

    async def explain_idle(self) -> Idle:
        """As `Frontier.explain_idle`, in a thread."""
        return await self._in_thread(self.sync.explain_idle)

    async def host(self, name: str) -> HostStatus | None:
        """As `Frontier.host`."""
        return self.sync.host(name)

    async def crawl_delays(self, authorities: Sequence[str]) -> list[float | None]:
        """As `Frontier.crawl_delays`."""
        return self.sync.crawl_delays(authorities)

    async def robots_allow(self, urls: Sequence[str]) -> list[bool | None]:
        """As `Frontier.robots_allow`."""
        return self.sync.robots_allow(urls)

    async def workers(self) -> list[WorkerStatus]:
        """As `Frontier.workers`."""
        return self.sync.workers()

    async def held(self, lease_id: int) -> LeaseBatch:
        """As `Frontier.held`."""
        return self.sync.held(lease_id)

    async def waits(self, *, beyond_seconds: float = 0.0, within_seconds: float | None = None) -> Waits:
        """As `Frontier.waits`, in a thread."""
        return await self._in_thread(
            partial(self.sync.waits, beyond_seconds=beyond_seconds, within_seconds=within_seconds)
        )

    async def queues(
        self, *, crawl: str | None = None, after: str | None = None, limit: int = 100
    ) -> Page[QueueStatus]:
        """As `Frontier.queues`."""
        return self.sync.queues(crawl=crawl, after=after, limit=limit)

    async def hosts(self, *, state: str | None = None, after: str | None = None, limit: int = 100) -> Page[HostStatus]:
        """As `Frontier.hosts`, in a thread."""
        return await self._in_thread(partial(self.sync.hosts, state=state, after=after, limit=limit))

    async def urls(
        self,
        *,
        state: str | None = None,
        host: str | None = None,
        crawl: str | None = None,
        key: str | None = None,
        after: str | None = None,
        limit: int = 1_000,
    ) -> Page[UrlStatus]:
        """As `Frontier.urls`, in a thread: it may read much."""
        look = partial(self.sync.urls, state=state, host=host, crawl=crawl, key=key, after=after, limit=limit)
        return await self._in_thread(look)

    async def count(
        self, *, state: str | None = None, host: str | None = None, crawl: str | None = None, key: str | None = None
    ) -> int:
        """As `Frontier.count`, in a thread."""
        look = partial(self.sync.count, state=state, host=host, crawl=crawl, key=key)
        return await self._in_thread(look)

    async def set_robots(self, authority: str, status: int | None, body: bytes = b"") -> None:
        """As `Frontier.set_robots`."""
        await self._in_thread(partial(self.sync._read_ahead, [RobotsAnswer(status, body)]))
        await self._call("set_robots", lambda m, now: m.robots.set_robots(authority, status, body, now))

    async def queue_errands(self, kind: str, urls: str | Sequence[str], *, crawl: str | None = None) -> list[Code]:
        """As `Frontier.queue_errands`."""
        return await self._call("queue_errands", lambda m, now: m.errands.queue_errands(kind, urls, crawl, now))

    async def pressure(self) -> float:
        """As `Frontier.pressure`."""
        return self.sync.pressure()

    async def set_address(self, host: str, address: str | None) -> None:
        """As `Frontier.set_address`."""
        await self.set_addresses({host: address})

    async def set_addresses(self, addresses: Mapping[str, str | None]) -> int:
        """As `Frontier.set_addresses`."""
        return await self._call("set_addresses", lambda m, now: m.errands.set_addresses(addresses, now))

    async def note_projection(self, stream: str, length: int, lsn: int) -> None:
        """As `Frontier.note_projection`."""
        await self._call("note_projection", lambda m, now: m.errands.note_projection(stream, length, lsn, now))

    async def note_watermark(self, writer: str, value: bytes) -> None:
        """As `Frontier.note_watermark`."""
        await self._call("note_watermark", lambda m, now: m.errands.note_watermark(writer, value, now))

    async def seen_content(self, digests: Sequence[bytes]) -> list[bool]:
        """As `Frontier.seen_content`."""
        return self.sync.seen_content(digests)

    async def next_ready_seconds(self) -> float | None:
        """As `Frontier.next_ready_seconds`."""
        return self.sync.next_ready_seconds()

    async def finished(self) -> bool:
        """As `Frontier.finished`."""
        return self.sync.finished()

    async def at_limit(self) -> bool:
        """As `Frontier.at_limit`."""
        return self.sync.at_limit()

    async def status(self, url: str, *, crawl: str | None = None) -> UrlStatus:
        """As `Frontier.status`."""
        return self.sync.status(url, crawl=crawl)

    async def restore(self, records: Iterable[Mapping[str, Any]]) -> int:
        """As `Frontier.restore`."""
        return await self._call("restore", lambda m, now: m.carried.restore(records, now))

    async def records(self) -> AsyncIterator[dict[str, Any]]:
        """As `Frontier.records`; the pieces are read in a thread."""
        async for record in self._told(self.sync.records()):
            yield record

    async def lines(self, stream: str, after: int) -> AsyncIterator[tuple[int, bytes]]:
        """As `Frontier.lines`; the pieces are read in a thread."""
        async for line in self._told(self.sync.lines(stream, after)):
            yield line

    async def _told(self, rows: Iterator[Row]) -> AsyncIterator[Row]:
        while some := await self._in_thread(lambda: list(islice(rows, DISCOVER_ROWS_PER_FRAME))):
            for row in some:
                yield row

    async def checkpoint(self) -> None:
        """As `Frontier.checkpoint`, in a thread."""
        await self._in_thread(self.sync.checkpoint)

    async def now(self) -> Instant:
        """As `Frontier.now`."""
        return self.sync.now()

    async def watermarks(self) -> dict[str, bytes]:
        """As `Frontier.watermarks`."""
        return self.sync.watermarks()

    async def projection(self, stream: str) -> tuple[int, int]:
        """As `Frontier.projection`."""
        return self.sync.projection(stream)

    async def outbox(self, most: int) -> list[tuple[object, ...]]:
        """As `Frontier.outbox`."""
        return self.sync.outbox(most)

    async def receive(self, parcels: Sequence[tuple[object, ...]]) -> list[Code]:
        """As `Frontier.receive`, in a thread."""
        return await self._in_thread(partial(self.sync.receive, parcels))

    async def delivered(self, source: int, sequence: int) -> None:
        """As `Frontier.delivered`, in a thread."""
        await self._in_thread(partial(self.sync.delivered, source, sequence))

    async def statistics(self) -> dict[str, object]:
        """As `Frontier.statistics`, in a thread."""
        return await self._in_thread(self.sync.statistics)

    async def verify(self) -> Verification:
        """As `Frontier.verify`, in a thread."""
        return await self._in_thread(self.sync.verify)

    async def close(self, state: str = "stopped") -> None:
        """As `Frontier.close`."""
        await asyncio.to_thread(self.sync.close, state)
        self._pool.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.sync.__exit__, kind, error, trace)
        self._pool.shutdown(wait=False)
