"""A request manager for Crawlee that keeps the requests of a crawler in a frontier.

    manager = await RequestManager.open("crawls/news", delay_seconds=1.0)
    crawler = ParselCrawler(request_manager=manager)

A crawler can be killed at any moment. It continues with the requests that were not handled. docs/howto/crawlee.md has
the options and the promises.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, Final, Self, TypeAlias, TypeVar
from urllib.parse import urlsplit

try:
    from crawlee import Request, RequestState
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "outrider.integrations.crawlee needs Crawlee, which is not installed; run pip install 'outrider[crawlee]'"
    ) from error
from crawlee.request_loaders import ThrottlingRequestManager
from crawlee.storage_clients.models import ProcessedRequest

from outrider.clock import instant, wall
from outrider.engine.http_requests import directory_or_address
from outrider.errors import OutriderError, SettingsError, StoreFullError
from outrider.integrations.store_thread import AnyFrontier, has_left, opened, queues_of, ready_seconds
from outrider.journey import Code, Lease, Link, Outcome, QueueStatus, State, Verdict
from outrider.limits import (
    INTEGRATION_EMPTY_WAIT_SECONDS_MAX,
    INTEGRATION_FULL_PAUSE_SECONDS,
    INTEGRATION_HOSTS_REMEMBERED_MAX,
    INTEGRATION_LEASE_SECONDS,
    INTEGRATION_PATIENCE_SECONDS,
    INTEGRATION_SERVED_LEASE_SECONDS,
    INTEGRATION_THREADS,
    UNIQUE_KEY_BYTES_MAX,
    UNIQUE_METADATA_BYTES_MAX,
)

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")
Rules: TypeAlias = Callable[[], None]

_REQUEST: Final = "request"
"""The name of a request's JSON in the metadata of its URL."""
_ENDING, _FIRST = 0.5, 1.0
"""The priorities of requests at the end of their host's queue, and of those at its front (`forefront`)."""
_TOO_MANY_REQUESTS: Final = 429
_REFUSAL_SECONDS_MIN: Final = 2.0  # Crawlee's `base_delay`; the frontier's own back-off is longer
_STALL_SECONDS: Final = 900.0  # Crawlee's `max_domain_stall`


@dataclass(slots=True)
class _InProgress:
    """A request that the crawler works on. refused: the site answered 429. began: of the monotonic clock."""

    lease: Lease
    host: str
    began: float = field(default_factory=time.monotonic)
    refused: bool = False
    retry_after_seconds: float | None = None

    def outcome(self, verdict: Verdict, **fields: Any) -> Outcome:
        return Outcome(
            self.lease.token,
            verdict,
            seconds=time.monotonic() - self.began,
            status=_TOO_MANY_REQUESTS if self.refused else None,
            refused=self.refused,
            retry_after_seconds=self.retry_after_seconds,
            **fields,
        )


@dataclass(slots=True)
class _Refusals:
    """A host that answers 429. until: it is not visited before; since: its first 429 after a handled request; last: its
    newest one. All of the monotonic clock."""

    until: float
    since: float
    last: float


class RequestManager(ThrottlingRequestManager):  # type: ignore[misc]  # Crawlee is an extra, so its types are not known
    """Keeps the requests of a crawler in a frontier, as one of its crawls. `open` makes one.

    It is a `ThrottlingRequestManager`, because Crawlee passes 429, Retry-After and Crawl-delay only to those. Its hosts
    need not be listed: the frontier has a clock for each.
    """

    def __init__(
        self, frontier: AnyFrontier, name: str, *, served: bool, delay_seconds: float, rules: Callable[[], None]
    ) -> None:
        """Not for callers: `open` makes managers. rules: makes the crawl with its limits, also after `purge`."""
        self._frontier, self._name, self._rules = frontier, name, rules
        self._lease_seconds = INTEGRATION_SERVED_LEASE_SECONDS if served else INTEGRATION_LEASE_SECONDS
        self._served, self._delay_seconds = served, delay_seconds
        # Several threads, so that one sync serves the calls of several tasks.
        self._threads = ThreadPoolExecutor(INTEGRATION_THREADS, thread_name_prefix="outrider-crawlee")
        self._ready: deque[Lease] = deque()
        self._sent: dict[str, _InProgress] = {}
        self._extended: dict[int, float] = {}  # token -> when its lease is extended
        self._orders: deque[Callable[[], object]] = deque()
        self._delays: dict[str, int] = {}
        self._unset: dict[str, float] = {}  # delays that the frontier does not have yet: before a host's first request
        self._refusals: dict[str, _Refusals] = {}
        self._changed = asyncio.Event()
        # A reading of the monotonic clock. Before it no lease is worth a try, unless something changed.
        self._look_at = 0.0
        self._is_due = False  # at that time a host may be visited
        self._adding = 0

    @classmethod
    async def open(
        cls,
        frontier: str | os.PathLike[str] | None = None,
        *,
        name: str = "crawlee",
        token: str | None = None,
        ca: str | None = None,
        delay_seconds: float = 1.0,
        requests_per_host: int = 1,
    ) -> Self:
        """Opens the store of a crawler.

        frontier: a directory, or the address of a server (`outrider serve`); by default the environment variable
        OUTRIDER_FRONTIER, or else memory. name: of the crawl in this store. token, ca: for a server; by default
        OUTRIDER_TOKEN and OUTRIDER_CA. delay_seconds: between the end of a request and the next one to its host.
        requests_per_host: how many requests of one host may run at once.
        Raises SettingsError, StoreInUseError, UnreachableError and the other errors of a store.
        """
        place = os.fspath(frontier) if frontier is not None else os.environ.get("OUTRIDER_FRONTIER") or None
        directory, address = (None, None) if place is None else directory_or_address(place)
        served = address is not None
        if not served and (token is not None or ca is not None):
            raise SettingsError(
                f"token and ca are only for a server, and the frontier is {place or 'in memory'}; remove them, or pass "
                "the address of the server"
            )
        if requests_per_host < 1:
            raise SettingsError(f"requests_per_host is {requests_per_host}; use 1 or more")

        def make() -> RequestManager:
            found = opened(
                directory,
                address,
                settings={"delay": delay_seconds, "delay_factor": 0},
                token=token or os.environ.get("OUTRIDER_TOKEN"),
                ca=ca or os.environ.get("OUTRIDER_CA"),
                worker=f"crawlee-{name}-{os.getpid()}-{os.urandom(3).hex()}",
                patience_seconds=INTEGRATION_PATIENCE_SECONDS,
            )
            rules = partial(_make_crawl, found, name, delay_seconds if served else None, requests_per_host)
            with contextlib.ExitStack() as undo:
                undo.callback(found.close)
                rules()
                undo.pop_all()
            return cls(found, name, served=served, delay_seconds=delay_seconds, rules=rules)

        found: Self = await asyncio.to_thread(make)
        return found

    async def close(self) -> None:
        """Returns the requests that are not handled to the store, and closes it."""
        tokens = [*(lease.token for lease in self._ready), *(sent.lease.token for sent in self._sent.values())]
        self._ready.clear()
        self._sent.clear()

        def end() -> None:
            try:
                if tokens:
                    self._frontier.release(tokens)
                state = () if self._served or has_left(self._frontier, self._name) else ("finished",)
            except OutriderError:
                self._frontier.close()
                raise
            self._frontier.close(*state)

        try:
            await self._call(end)
        finally:
            self._threads.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- adding -------------------------------------------------------------------------------------------------------

    async def add_request(self, request: str | Request, *, forefront: bool = False) -> ProcessedRequest | None:
        """Adds a request. Returns after it is durable; None if it cannot be stored, which is logged."""
        one = self._transform_request(request)
        code = (await self._added([one], forefront=forefront))[0]
        if code not in (Code.NEW, Code.KNOWN):
            return None
        handled = code is Code.KNOWN and await self._call(self._is_handled, one.unique_key)
        return _processed(one, present=code is Code.KNOWN, handled=handled)

    async def add_requests(
        self,
        requests: Sequence[str | Request],
        *,
        forefront: bool = False,
        batch_size: int = 1000,
        wait_time_between_batches: timedelta = timedelta(seconds=1),
        wait_for_all_requests_to_be_added: bool = False,
        wait_for_all_requests_to_be_added_timeout: timedelta | None = None,
    ) -> None:
        """Adds requests, all before it returns: there are no waits between batches."""
        added = self._transform_requests(requests)
        for first in range(0, len(added), max(1, batch_size)):
            await self._added(added[first : first + max(1, batch_size)], forefront=forefront)

    async def _added(self, requests: Sequence[Request], *, forefront: bool) -> list[Code]:
        found = [self._link(request, _FIRST if forefront else _ENDING) for request in requests]
        links = [link for link in found if link is not None]
        self._adding += 1
        try:
            codes = iter(await self._with_room(self._frontier.discover, links))
        finally:
            self._adding -= 1
        told = [Code.OVER_LIMIT if link is None else next(codes) for link in found]
        known = [link.unique_key for link, code in zip(found, told, strict=True) if link and code is Code.KNOWN]
        if forefront and known:
            await self._with_room(partial(self._frontier.reprioritise, known, _FIRST, crawl=self._name))
        for request, link, code in zip(requests, found, told, strict=True):
            if link is not None and code not in (Code.NEW, Code.KNOWN):
                logger.error("Request %s was not added: the frontier answered %s", request.url, code.value)
        self._changed.set()
        return told

    def _link(self, request: Request, priority: float) -> Link | None:
        """Returns the link of a request; None for one that cannot be stored, which is logged."""
        key = request.unique_key.encode("utf-8", "replace")
        if len(key) > UNIQUE_KEY_BYTES_MAX:
            logger.error(
                "Request %s was not added: its unique_key has %d bytes, and %d can be stored; pass a shorter one",
                request.url,
                len(key),
                UNIQUE_KEY_BYTES_MAX,
            )
            return None
        metadata = self._metadata(request)
        if metadata is None:
            return None
        return Link(
            request.url,
            crawl=self._name,
            unique_key=key,
            priority=priority,
            depth=request.crawl_depth,
            metadata=metadata,
        )

    def _metadata(self, request: Request) -> dict[str, object] | None:
        """Returns a request as metadata of its URL; None for one that cannot be stored, which is logged."""
        try:
            text = request.model_dump_json(by_alias=True)
        except ValueError as error:  # such as a payload that is no UTF-8; Crawlee's own file storage refuses it too
            logger.error("Request %s cannot be stored: %s", request.url, error)
            return None
        size = len(text.encode())
        if size > UNIQUE_METADATA_BYTES_MAX // 2:  # the quotes of JSON in JSON are longer
            logger.error(
                "Request %s cannot be stored: it has %d bytes, and %d are possible; keep large values elsewhere, and "
                "put their names into payload or user_data",
                request.url,
                size,
                UNIQUE_METADATA_BYTES_MAX // 2,
            )
            return None
        return {_REQUEST: text}

    def _is_handled(self, unique_key: str) -> bool:
        state = self._frontier.status(unique_key.encode("utf-8", "replace"), crawl=self._name).state
        return state in (State.DONE, State.GONE)

    # -- working ------------------------------------------------------------------------------------------------------

    async def fetch_next_request(self) -> Request | None:
        """Returns a request whose host may be visited now; None if there is none now."""
        while True:
            if not self._ready:
                await self._look()
            if not self._ready:
                return None
            lease = self._ready.popleft()
            request = _request_of(lease)
            if request is not None:
                host = _host_of(request.url)
                self._sent[request.unique_key] = _InProgress(lease, host)
                if host in self._unset:
                    await self._call(self._set_delay, host)
                return request
            await self._with_room(self._settled, Outcome(lease.token, Verdict.GONE, error="unreadable"))

    async def mark_request_as_handled(self, request: Request) -> ProcessedRequest | None:
        """Ends a request. Returns None for one that is not in progress."""
        sent = self._sent.get(request.unique_key)
        if sent is None:
            return None
        if not sent.refused:
            self._refusals.pop(sent.host, None)
        failed = request.state is RequestState.ERROR
        outcome = sent.outcome(Verdict.GONE, error="failed") if failed else sent.outcome(Verdict.DONE, answered=True)
        await self._with_room(self._settled, outcome, sent.host)
        self._sent.pop(request.unique_key, None)
        self._changed.set()
        return _processed(request, present=True, handled=True)

    async def reclaim_request(self, request: Request, *, forefront: bool = False) -> ProcessedRequest | None:
        """Queues a request in progress again, with the state that it has now: at the end of its host's queue, or at its
        front. Returns None for one that is not in progress."""
        sent = self._sent.get(request.unique_key)
        if sent is None:
            return None
        priority = _FIRST if forefront else _ENDING

        def again() -> None:
            outcome = sent.outcome(Verdict.AGAIN, at=wall(), metadata=self._metadata(request))
            self._settled(outcome, sent.host)
            if sent.lease.priority != priority:
                key = request.unique_key.encode("utf-8", "replace")
                self._frontier.reprioritise([key], priority, crawl=self._name)

        await self._with_room(again)
        self._sent.pop(request.unique_key, None)
        self._changed.set()
        return _processed(request, present=True, handled=False)

    async def is_empty(self) -> bool:
        """Whether no request can be sent now. If a host can be visited within half a second, it waits for that, so that
        the request is sent when it is due; Crawlee asks again only after half a second."""
        await self._extend_late()
        if not self._ready and (self._changed.is_set() or time.monotonic() >= self._look_at):
            await self._look()
        if not self._ready and self._is_due:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), max(0.0, self._look_at - time.monotonic()))
            await self._look()
        return not self._ready

    async def _look(self) -> None:
        """Leases a request, or notes when it is worth to look again: other programs may use the same store."""
        self._changed.clear()
        wait = await self._call(self._lease)
        self._is_due = wait is not None and wait < INTEGRATION_EMPTY_WAIT_SECONDS_MAX
        self._look_at = time.monotonic() + (wait if self._is_due and wait else INTEGRATION_EMPTY_WAIT_SECONDS_MAX)

    async def is_finished(self) -> bool:
        """Whether all requests are handled."""
        if self._adding or self._ready or self._sent:
            return False
        return not await self._call(has_left, self._frontier, self._name)

    async def get_handled_count(self) -> int:
        """Returns how many requests are handled."""
        return await self._call(self._counted, lambda queue: queue.done + queue.gone)

    async def get_total_count(self) -> int:
        """Returns how many requests there are, also the handled ones."""
        return await self._call(
            self._counted,
            lambda queue: queue.done + queue.gone + queue.queued + queue.leased + queue.waiting + queue.parked,
        )

    async def purge(self) -> None:
        """Deletes all requests of this crawl. The clocks of hosts remain."""
        tokens = [*(lease.token for lease in self._ready), *(sent.lease.token for sent in self._sent.values())]
        self._ready.clear()
        self._sent.clear()
        self._refusals.clear()

        def delete() -> None:
            if tokens:
                self._frontier.release(tokens)
            self._frontier.delete(crawl=self._name)
            self._rules()

        await self._with_room(delete)

    async def drop(self) -> None:
        """As `purge`: the store of a frontier is a directory of its own, which you may remove after `close`."""
        await self.purge()

    # -- what Crawlee says of hosts -----------------------------------------------------------------------------------

    @property
    def inner(self) -> Self:
        """This manager: there is no other one inside."""
        return self

    def record_domain_delay(self, url: str, *, retry_after: timedelta | None = None) -> bool:
        """Lets the host of this URL rest: as long as it asks, or else longer after each refusal. Returns True."""
        host, now = _host_of(url), time.monotonic()
        asked = retry_after.total_seconds() if retry_after is not None and retry_after > timedelta(0) else None
        until = now + (asked or _REFUSAL_SECONDS_MIN)
        known = self._refusals.get(host)
        if known is None and len(self._refusals) >= INTEGRATION_HOSTS_REMEMBERED_MAX:
            self._refusals.pop(next(iter(self._refusals)))
        self._refusals[host] = _Refusals(until, known.since if known else now, now)
        sent = next((one for one in self._sent.values() if one.host == host and not one.refused), None)
        if sent is not None:
            sent.refused, sent.retry_after_seconds = True, asked
        else:  # a host that a redirect led to
            block_until = wall() + instant(asked or _REFUSAL_SECONDS_MIN)
            self._orders.append(partial(self._frontier.block_until, block_until, host, crawl=self._name))
        return True

    def record_success(self, url: str) -> None:
        """The host of this URL refuses no longer."""
        self._refusals.pop(_host_of(url), None)

    def is_throttled(self, url: str) -> bool:
        """Whether the host of this URL has answered 429 and rests."""
        known = self._refusals.get(_host_of(url))
        return known is not None and time.monotonic() < known.until

    def set_crawl_delay(self, url: str, delay_seconds: int) -> None:
        """Sets the Crawl-delay of a host. The longer one of it and `delay_seconds` counts."""
        host = _host_of(url)
        if self._delays.get(host) == delay_seconds:
            return
        if len(self._delays) >= INTEGRATION_HOSTS_REMEMBERED_MAX:
            self._delays.pop(next(iter(self._delays)))
        self._delays[host] = delay_seconds
        self._unset[host] = max(float(delay_seconds), self._delay_seconds)

    async def get_stall_reason(self) -> str | None:
        """Returns why the crawl cannot go on; None if it can: if each host with requests has answered nothing but 429
        for a quarter of an hour."""
        now = time.monotonic()
        stalled = {
            host
            for host, one in self._refusals.items()
            if now - one.since > _STALL_SECONDS and now - one.last <= _STALL_SECONDS
        }
        if not stalled or self._ready or self._sent:
            return None
        others = await self._call(
            self._counted, lambda queue: 0 if queue.host in stalled else queue.queued + queue.leased + queue.waiting
        )
        if others:
            return None
        return (
            f"{', '.join(sorted(stalled)[:10])} answered every request with 429 for {_STALL_SECONDS:.0f} s; the "
            "requests are still queued, so start the crawler again later, with a longer delay_seconds"
        )

    # -- calls of the frontier, in threads ----------------------------------------------------------------------------

    async def _call(self, function: Callable[..., Answer], *arguments: Any) -> Answer:
        def work() -> Answer:
            while self._orders:
                self._order(self._orders.popleft())
            return function(*arguments)

        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def _with_room(self, function: Callable[..., Answer], *arguments: Any) -> Answer:
        """As `_call`, and waits until the disk has room."""
        told = False
        while True:
            try:
                return await self._call(function, *arguments)
            except StoreFullError as error:
                if not told:
                    logger.error("%s; the crawler waits until there is room", error)
                told = True
                await asyncio.sleep(INTEGRATION_FULL_PAUSE_SECONDS)

    def _order(self, call: Callable[[], object]) -> None:
        try:
            call()
        except SettingsError as error:  # such as a host without a queue
            logger.warning("An order to the frontier was refused: %s", error)

    def _lease(self) -> float | None:
        """Adds a lease to those that are ready, if a host may be visited. A cancelled task leaves it there. Returns how
        many seconds pass until a host may be visited, None if waiting alone does not help."""
        leases = self._frontier.lease(1, crawl=self._name, ttl_seconds=self._lease_seconds)
        for lease in leases:
            self._extended[lease.token] = time.monotonic() + self._lease_seconds / 2
            self._ready.append(lease)
        return 0.0 if len(leases) else ready_seconds(self._frontier)

    def _settled(self, outcome: Outcome, host: str = "") -> None:
        self._set_delay(host)  # first, because the host rests from its report on
        self._frontier.report([outcome])
        self._extended.pop(outcome.token, None)

    def _set_delay(self, host: str) -> None:
        delay = self._unset.pop(host, None)
        if delay is not None:
            self._order(partial(self._frontier.set_delay, delay, host, crawl=self._name))

    async def _extend_late(self) -> None:
        now = time.monotonic()
        late = [token for token, at in list(self._extended.items()) if at <= now]
        if late:
            await self._call(self._frontier.extend, late, self._lease_seconds)
            self._extended.update(dict.fromkeys(late, now + self._lease_seconds / 2))

    def _counted(self, count: Callable[[QueueStatus], int]) -> int:
        return sum(count(queue) for queue in queues_of(self._frontier, self._name))


def _make_crawl(frontier: AnyFrontier, name: str, delay_seconds: float | None, requests_per_host: int) -> None:
    frontier.make_crawl(name, unique="caller")
    if requests_per_host > 1:
        frontier.set_limit(requests_per_host, crawl=name)
    if delay_seconds is not None:  # for a server; a store of our own has it as a setting
        frontier.set_delay(delay_seconds, crawl=name)


def _request_of(lease: Lease) -> Request | None:
    """Returns the request of a lease; None for one that cannot be read, which is logged."""
    text = (lease.metadata or {}).get(_REQUEST)
    try:
        if text is None:  # a URL that another program added
            key = lease.unique_key.decode() if lease.unique_key is not None else None
            return Request.from_url(lease.url, unique_key=key)
        return Request.model_validate_json(str(text))
    except ValueError as error:
        logger.error("A stored request for %s cannot be read: %s", lease.url, error)
        return None


def _processed(request: Request, *, present: bool, handled: bool) -> ProcessedRequest:
    return ProcessedRequest(unique_key=request.unique_key, was_already_present=present, was_already_handled=handled)


def _host_of(url: str) -> str:
    return urlsplit(url).hostname or ""
