"""From a lease to an answer: name, address, guard, port, request (the only way a crawl touches a site).

An errand for an address ends at the guard. A lease that says where its host is goes there, past the name service."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Protocol

from outrider.clock import Instant, wall
from outrider.crawl.bottleneck import Bottleneck, Stage
from outrider.crawl.hooks import HookFailed, Hooks, response_given
from outrider.crawl.options import CrawlOptions
from outrider.crawl.perhost import PerHost
from outrider.crawl.places import Places
from outrider.crawl.visit import Visit, validators_of
from outrider.errors import InvalidUrlError, SettingsError
from outrider.fetch.addresses import AddressGuard, is_web_port, parsed
from outrider.fetch.downloader import Downloader, Request, Response, target_of
from outrider.fetch.outcomes import BlockedAddress, FetchError, FetchFailure
from outrider.journey import Kind, Lease
from outrider.limits import (
    BODY_BYTES_MAX,
    CONNECT_ALL_SECONDS_MAX,
    CONNECT_FAILURES_MAX,
    CONNECTIONS_MAX,
    DNS_PROMPT_SECONDS,
    HEAD_BYTES_MAX,
    SITEMAP_BYTES_MAX,
    SITEMAPS_AT_ONCE,
    SITEMAPS_WAITING_MAX,
)

_PORT_ASKED = 443  # the port in questions to the name service; an address goes for all ports

DNS_MEMORY_SECONDS = 0.001  # an answer that came sooner was known: no visit waited for it

_BYTES_MAX = {Kind.ROBOTS: BODY_BYTES_MAX, Kind.SITEMAP: SITEMAP_BYTES_MAX + HEAD_BYTES_MAX}
"""How much of an answer is asked for, where the host's own settings do not say."""


class NameService(Protocol):
    """Finds addresses; `Resolver` is the real one."""

    async def resolve(self, host: str, port: int) -> Sequence[str]: ...

    async def close(self) -> None: ...


class Fetching:
    """Makes one visit for each lease; every refusal is an answer, nothing raises."""

    def __init__(
        self,
        downloader: Downloader,
        names: NameService,
        guard: AddressGuard,
        *,
        user_agent: str,
        loopback_only: bool,
        clock: Callable[[], Instant],
        concurrency: int = CONNECTIONS_MAX,
        aside_most: int = 0,
        make_room: Callable[[], None] = lambda: None,
        hooks: Hooks | None = None,
        per_host: PerHost | None = None,
        headers: tuple[tuple[str, str], ...] = (),
        bottleneck: Bottleneck | None = None,
        pins: bool = True,
    ) -> None:
        """concurrency: requests at once; aside_most: slow ones beside them. make_room: is told of each visit whose name
        or answer is long in coming. headers: of each request. bottleneck: is told where each visit is. pins: whether a
        request goes to the address that its lease names; where no group goes by addresses, that one grows old."""
        self._headers = headers
        self._bottleneck = bottleneck or Bottleneck(concurrency, clock())
        self._hooks = hooks
        self._per_host = per_host or PerHost(CrawlOptions())
        self._downloader = downloader
        self._names = names
        self._pins = pins
        self._guard = guard
        self._user_agent = user_agent
        self._loopback_only = loopback_only
        self._clock = clock
        self._places = Places(concurrency, aside_most, make_room)
        self._make_room = make_room
        self._sitemaps = asyncio.Semaphore(SITEMAPS_AT_ONCE)
        self._unnamed = 0  # visits whose name is long in coming
        self._mapless = 0  # visits to sitemaps that wait until others are read
        self._counts = {"names": 0, "names_waited": 0, "names_seconds": 0.0, "requests": 0, "kept": 0}
        self._failed: OrderedDict[tuple[str, str], None] = OrderedDict()  # (host, address) that took no connection

    def statistics(self) -> dict[str, float]:
        """Visits that asked for an address, `names_waited` of them with a wait, and how long that was in all; requests
        sent, `kept` of them over a connection of an earlier one."""
        return dict(self._counts)

    @property
    def aside(self) -> int:
        """Visits that hold no place: their name is long in coming, or their answer, or the end of other sitemaps."""
        return self._unnamed + self._mapless + self._places.aside

    async def visit(self, lease: Lease) -> Visit:
        """Asks for the lease's URL. When it is cancelled, the visit says whether the site may have noticed."""
        if lease.kind is Kind.ADDRESS:
            return await self._locate(lease)
        at = wall()
        began: Instant | None = None
        move, token = self._bottleneck.move, lease.token
        try:
            target = target_of(lease.url)
            if not is_web_port(target.port):
                raise FetchFailure(FetchError.BLOCKED_PORT, f"port {target.port} is not one for HTTP")
            pinned = lease.address if self._pins else None
            if pinned is None:
                move(token, Stage.NAMED, self._clock())
            first, *others = await self._addresses(target.host, target.port, pinned)
            move(token, Stage.WAITS, self._clock())
            own = self._per_host.of(target.host)
            again = validators_of(lease) if lease.etag is not None or lease.last_modified is not None else ()
            most = _BYTES_MAX.get(lease.kind, own.bytes_max)
            request = own.request(lease.url, first, self._user_agent, self._headers, last=again, bytes_max=most)
            if self._hooks is not None and lease.kind is Kind.PAGE:
                request = self._hooks.request(request, lease)
            long = self._one_of_few() if lease.kind is Kind.SITEMAP else contextlib.nullcontext()
            async with long, self._places.of(target.host):
                at = wall()
                began = self._clock()
                move(token, Stage.ROBOTS if lease.kind is Kind.ROBOTS else Stage.SITE, began)
                response = await self._dial(request, others)
            self._seen(lease, response)
        except HookFailed as failed:
            return Visit(lease, at, self._clock(), began=began, fault=failed)
        except FetchFailure as failure:
            facts = failure.facts.removeprefix(f"{failure.error}: ")
            return Visit(lease, at, self._clock(), None, failure.error, facts)
        except (InvalidUrlError, SettingsError) as refused:
            # Spelled canonically and yet nothing that may stand on the wire.
            return Visit(lease, at, self._clock(), None, FetchError.MALFORMED, refused.facts)
        except asyncio.CancelledError:
            return Visit(lease, at, self._clock(), None, None, "", stopped=True, began=began)
        if lease.kind is Kind.PAGE:
            response = own.cut(response)
        return Visit(lease, at, self._clock(), response)

    def _seen(self, lease: Lease, response: Response) -> None:
        """Tells how long the site took for what it sent."""
        now = self._clock()
        if lease.kind is not Kind.ROBOTS:
            body = response.ended_at - response.first_byte_at if response.first_byte_at is not None else 0
            self._bottleneck.answered(body, now - response.ended_at)
        self._bottleneck.move(lease.token, Stage.BEGINS, now)

    @contextlib.asynccontextmanager
    async def _one_of_few(self) -> AsyncIterator[None]:
        """Lets `SITEMAPS_AT_ONCE` visits in; the others wait, and most of them hold no place meanwhile."""
        waits = self._sitemaps.locked() and self._mapless < SITEMAPS_WAITING_MAX
        if waits:
            self._mapless += 1
            self._make_room()
        try:
            await self._sitemaps.acquire()
        finally:
            self._mapless -= waits
        try:
            yield
        finally:
            self._sitemaps.release()

    async def _dial(self, request: Request, others: Sequence[str]) -> Response:
        """Asks at the request's address, then at one after the other of `others` until one takes the connection; all of
        them share the time of one."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        response = await self._asked(request)
        for address in others:
            passed = loop.time() - began
            if not response.unconnected or passed >= CONNECT_ALL_SECONDS_MAX:
                break
            connect_seconds = min(request.connect_seconds, CONNECT_ALL_SECONDS_MAX - passed)
            total_seconds = request.total_seconds - passed
            response = await self._asked(
                replace(request, address=address, connect_seconds=connect_seconds, total_seconds=total_seconds)
            )
        return response

    async def _asked(self, request: Request) -> Response:
        """Asks at one address; one that takes no connection is dialled last from then on, until it takes one."""
        response = await self._fetched(request)
        if response.request_head:
            self._counts["requests"] += 1
            self._counts["kept"] += not response.new_connection
        key = (request.target.host, request.address)
        if response.unconnected:
            self._failed[key] = None
            self._failed.move_to_end(key)
            if len(self._failed) > CONNECT_FAILURES_MAX:
                self._failed.popitem(last=False)
        elif self._failed:
            self._failed.pop(key, None)
        return response

    async def _fetched(self, request: Request) -> Response:
        """The downloader's answer. A fault of a downloader that is a hook ends its page alone."""
        if self._hooks is None or self._hooks.downloader is None:
            return await self._downloader.fetch(request)
        try:
            return response_given(await self._downloader.fetch(request), "downloader")
        except FetchFailure:
            raise
        except (Exception, SystemExit) as error:
            raise HookFailed("downloader", error) from error

    async def _locate(self, lease: Lease) -> Visit:
        """Asks where a host is; no request goes to it."""
        at = wall()
        self._bottleneck.move(lease.token, Stage.NAMED, self._clock())
        try:
            address = (await self._addresses(lease.host, _PORT_ASKED))[0]
        except FetchFailure as failure:
            facts = failure.facts.removeprefix(f"{failure.error}: ")
            return Visit(lease, at, self._clock(), None, failure.error, facts)
        except asyncio.CancelledError:
            return Visit(lease, at, self._clock(), stopped=True)
        return Visit(lease, at, self._clock(), address=address)

    async def _addresses(self, host: str, port: int, pinned: str | None = None) -> Sequence[str]:
        """The addresses that may be dialled, in order: the pinned one alone, else the name service's, first the
        addresses that took connections, then the ones that did not."""
        addresses = [pinned] if pinned is not None else await self._resolved(host, port)
        if self._loopback_only:
            addresses = [ip for ip in addresses if (address := parsed(ip)) is not None and address.is_loopback]
            if not addresses:
                raise BlockedAddress(f"{host} is not this machine, and no --contact says who crawls")
        permitted = self._guard.permitted(host, addresses)
        if len(permitted) < 2 or not self._failed:
            return permitted
        return sorted(permitted, key=lambda address: (host, address) in self._failed)

    async def _resolved(self, host: str, port: int) -> Sequence[str]:
        """As the name service tells; a visit that waits long for it gives its place to another one."""
        waits = False

        def give_place() -> None:
            nonlocal waits
            waits = True
            self._unnamed += 1
            self._make_room()

        loop = asyncio.get_running_loop()
        began = loop.time()
        patience = loop.call_later(DNS_PROMPT_SECONDS, give_place)
        try:
            return await self._names.resolve(host, port)
        finally:
            patience.cancel()
            self._unnamed -= waits
            self._counts["names"] += 1
            if (took := loop.time() - began) >= DNS_MEMORY_SECONDS:
                self._counts["names_waited"] += 1
                self._counts["names_seconds"] += took

    async def close(self) -> None:
        """Ends the visits in flight and gives connections and threads back. Raises HookFailed where the downloader is a
        hook and cannot be closed."""
        try:
            await self._downloader.close()
        except Exception as error:
            if self._hooks is None or self._hooks.downloader is None:
                raise
            raise HookFailed("downloader", error) from error
        finally:
            await self._names.close()
