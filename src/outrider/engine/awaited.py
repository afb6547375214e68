"""The verbs of a frontier to await."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from functools import partial, wraps
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, Self, TypeVar

from outrider.engine.calls import InterruptibleCall, SmallCall, Verb, discoveries, lease_alone, takes_builtins
from outrider.engine.derived import AwaitedVerbs
from outrider.engine.opening import Opening
from outrider.engine.owner import Frontier
from outrider.engine.robots_reading import answers_of
from outrider.engine.verbs import filled, like_awaited
from outrider.engine.waiting import WaitingRoom
from outrider.errors import PagesNeedErrandsError
from outrider.frontier.verbs import arguments
from outrider.journey import (
    LEASE_KEYWORDS,
    Code,
    LeaseBatch,
    Link,
    Outcome,
    OutcomeBatch,
    Report,
    RequestId,
    RobotsAnswer,
    Verbs,
)
from outrider.limits import DISCOVER_ROWS_PER_FRAME, REMOTE_PATIENCE_SECONDS
from outrider.url import UrlBatch

if TYPE_CHECKING:
    from outrider.engine.remote import OpeningRemote

Answer = TypeVar("Answer")
Row = TypeVar("Row")
Given = ParamSpec("Given")
Plain = TypeVar("Plain")
Face = TypeVar("Face", bound=AbstractAsyncContextManager[Any])


_KIND_OF_LEASE: Final = LEASE_KEYWORDS.keys() - {"ttl_seconds", "worker", "wait_seconds", "request_id"}
"""Tasks with the same values of these arguments want the same kind of lease."""


class OpeningFrontier(Generic[Plain, Face]):
    """A frontier that a thread is opening: `await` returns it, `async with` also closes it at the end."""

    def __init__(self, work: Callable[[], Plain], face: Callable[[Plain], Face]) -> None:
        self._work, self._to_await = work, face
        self._face: Face | None = None

    def __await__(self) -> Generator[Any, None, Face]:
        return self._open().__await__()

    async def _open(self) -> Face:
        return self._to_await(await asyncio.to_thread(self._work))

    async def __aenter__(self) -> Face:
        self._face = await self._open()
        return self._face

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._face is not None:
            await self._face.__aexit__(kind, error, trace)


class OpeningStore(OpeningFrontier["Frontier", "AsyncFrontier"]):
    """A frontier of this process that is being opened."""


def _opened(make: Callable[Given, Frontier], doc: str) -> Callable[Given, OpeningStore]:
    """The same way to a frontier, to await or for `async with`."""

    @wraps(make)
    def opened(*given: Given.args, **named: Given.kwargs) -> OpeningStore:
        return OpeningStore(partial(make, *given, **named), AsyncFrontier)

    opened.__module__, opened.__qualname__, opened.__doc__ = __name__, f"AsyncFrontier.{make.__name__}", doc
    opened.__annotations__ = {**make.__annotations__, "return": OpeningStore}
    vars(opened)["__signature__"] = inspect.signature(make).replace(return_annotation=OpeningStore)
    return opened


@takes_builtins
class AsyncFrontier(AwaitedVerbs):
    """The same verbs to await: deciding happens on the loop, waiting for the disk in a thread. Small calls of tasks
    that run in the same turn of the loop are made together."""

    def __init__(self, frontier: Frontier) -> None:
        self.sync = frontier
        self._pool = ThreadPoolExecutor(max_workers=2, thread_name_prefix="outrider-sync")
        self._reading: asyncio.Future[None] | None = None
        self._small: list[tuple[SmallCall, asyncio.Future[None]]] = []
        self._waiting = WaitingRoom(
            frontier._bell,
            self._lease,
            frontier._give_up,
            lambda: frontier._machine.tables.token,
            frontier.next_ready_seconds,
        )

    open = staticmethod(
        _opened(
            Frontier.open,
            "As `Frontier.open`: `await AsyncFrontier.open(…)`, or `async with AsyncFrontier.open(…) as frontier`.",
        )
    )
    memory = staticmethod(_opened(Frontier.memory, "As `Frontier.memory`, to await or for `async with`."))
    look = staticmethod(_opened(Frontier.look, "As `Frontier.look`, to await or for `async with`."))

    @classmethod
    def connect(
        cls,
        address: str,
        *,
        token: str | None = None,
        ca: str | None = None,
        worker: str | None = None,
        patience_seconds: float = REMOTE_PATIENCE_SECONDS,
    ) -> OpeningRemote:
        """As `Frontier.connect`, to await or for `async with`."""
        from outrider.engine.remote import AwaitedRemote, OpeningRemote, connect

        work = partial(connect, address, token=token, ca=ca, worker=worker, patience_seconds=patience_seconds)
        return OpeningRemote(work, AwaitedRemote)

    @property
    def user_agent(self) -> str:
        """As `Frontier.user_agent`."""
        return self.sync.user_agent

    @property
    def opening(self) -> Opening:
        """The findings of the opening of the store."""
        return self.sync.opening

    async def _call(self, name: str, verb: Verb[Answer], *, request_id: RequestId | None = None) -> Answer:
        call = InterruptibleCall(verb, request_id)
        if self.sync._needs_slots(name):
            await self._read_slots()
        try:
            answer, lsn = self.sync._decide(name, call)
            if self.sync._log.synced_lsn < lsn:
                await asyncio.get_running_loop().run_in_executor(self._pool, self.sync._durable, lsn)
        except BaseException:
            self.sync._given_up(call)
            raise
        return answer

    async def _read_slots(self) -> None:
        """As `Frontier._read_slots`, in one thread for all tasks that wait for it. The other thread is for calls that
        wait for the disk."""
        self.sync._alone()
        if self._reading is None or self._reading.done():
            self._reading = asyncio.get_running_loop().run_in_executor(self._pool, self.sync._read_slots)
        await asyncio.shield(self._reading)

    async def _in_thread(self, work: Callable[[], Answer]) -> Answer:
        self.sync._alone()  # the threads of the pool are not there in a forked child
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def _gathered(self, small: SmallCall) -> Any:
        self.sync._alone()  # a call that a forked child, or a function inside a call, left here would never be made
        loop = asyncio.get_running_loop()
        made = loop.create_future()
        self._small.append((small, made))
        if len(self._small) == 1:
            loop.call_soon(self._make_small)
        try:
            await made
            answer = small.result()
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
        """As `Frontier.discover`; other tasks run between the pieces of a long input."""
        small = SmallCall.discover(links, request_id)
        if small is not None:
            found: list[Code] = await self._gathered(small)
            return found
        codes: list[Code] = []
        for discovery in discoveries(links, request_id):
            codes += await self._call("discover", discovery)
        return codes

    @like_awaited(Verbs.lease)
    async def lease(self, want: int, **named: Any) -> LeaseBatch:
        """As `Frontier.lease`. Tasks that want the same kind of lease are served in order of arrival."""
        how = filled("lease", LEASE_KEYWORDS, named)
        wait_seconds = arguments.seconds("wait_seconds", how.pop("wait_seconds"))
        if wait_seconds:
            kind = tuple(how[name] for name in _KIND_OF_LEASE)
            leases = await self._waiting.wait(want, kind, how, wait_seconds)
        else:
            leases = await self._lease(want, **how)
        if want and not leases and not how["errands"] and self.sync._pages_need_errands():
            raise PagesNeedErrandsError
        return leases

    @property
    def waiting_leases(self) -> int:
        """How many tasks wait for a lease."""
        return len(self._waiting)

    async def _lease(self, want: int, *, request_id: RequestId | None, **how: Any) -> LeaseBatch:
        if self.sync._machine.robots.unread:
            await self._in_thread(self.sync._read_rules)
        while True:
            small = SmallCall.lease(want, how, request_id)
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
            SmallCall.report(outcomes, links, request_id, watermark)
            if not self.sync._machine.core.keeps_lines
            else None
        )
        if small is not None:
            told: Report = await self._gathered(small)
            return told
        return await self._call(
            "report", lambda m, now: m.reports.report(outcomes, links, now, request_id=request_id, watermark=watermark)
        )

    # -- and the others ------------------------------------------------------------------------------------------------

    async def set_robots(self, authority: str, status: int | None, body: bytes = b"") -> None:
        """As `Frontier.set_robots`."""
        await self._in_thread(partial(self.sync._read_ahead, [RobotsAnswer(status, body)]))
        await self._call("set_robots", lambda m, now: m.robots.set_robots(authority, status, body, now))

    async def records(self) -> AsyncIterator[dict[str, Any]]:
        """As `Frontier.records`; the pieces are read in a thread."""
        async for record in self._rows_awaited(self.sync.records()):
            yield record

    async def lines(self, stream: str, after: int) -> AsyncIterator[tuple[int, bytes]]:
        """As `Frontier.lines`; the pieces are read in a thread."""
        async for line in self._rows_awaited(self.sync.lines(stream, after)):
            yield line

    async def _rows_awaited(self, rows: Iterator[Row]) -> AsyncIterator[Row]:
        while some := await self._in_thread(lambda: list(islice(rows, DISCOVER_ROWS_PER_FRAME))):
            for row in some:
                yield row

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
