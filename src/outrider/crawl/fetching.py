"""From a lease to an answer: name, address, guard, port, request (the only way a crawl touches a site).

An errand for an address ends at the guard. A lease that says where its host is goes there, past the name service."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable, Sequence
from typing import Protocol

from outrider.clock import Instant, wall
from outrider.crawl.visit import Visit
from outrider.errors import InvalidUrlError, SettingsError
from outrider.fetch.addresses import AddressGuard, is_web_port
from outrider.fetch.downloader import Downloader, Request, target_of
from outrider.fetch.outcomes import BlockedAddress, FetchError, FetchFailure
from outrider.journey import Kind, Lease

_PORT_ASKED = 443  # of a name service; an address goes for all ports


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
    ) -> None:
        self._downloader = downloader
        self._names = names
        self._guard = guard
        self._user_agent = user_agent
        self._loopback_only = loopback_only
        self._clock = clock

    async def visit(self, lease: Lease) -> Visit:
        """Asks for the lease's URL. When it is cancelled, the visit says whether the site may have noticed."""
        if lease.kind is Kind.ADDRESS:
            return await self._locate(lease)
        at = wall()
        began: Instant | None = None
        try:
            target = target_of(lease.url)
            if not is_web_port(target.port):
                raise FetchFailure(FetchError.BLOCKED_PORT, f"port {target.port} is not one for HTTP")
            address = await self._address(target.host, target.port, lease.address)
            request = Request(lease.url, address, self._user_agent)
            at = wall()
            began = self._clock()
            response = await self._downloader.fetch(request)
        except FetchFailure as failure:
            facts = failure.facts.removeprefix(f"{failure.error}: ")
            return Visit(lease, at, self._clock(), None, failure.error, facts)
        except (InvalidUrlError, SettingsError) as refused:
            # Spelled canonically and yet nothing that may stand on the wire.
            return Visit(lease, at, self._clock(), None, FetchError.MALFORMED, refused.facts)
        except asyncio.CancelledError:
            return Visit(lease, at, self._clock(), None, None, "", stopped=True, began=began)
        return Visit(lease, at, self._clock(), response)

    async def _locate(self, lease: Lease) -> Visit:
        """Asks where a host is; no request goes to it."""
        at = wall()
        try:
            address = await self._address(lease.host, _PORT_ASKED)
        except FetchFailure as failure:
            facts = failure.facts.removeprefix(f"{failure.error}: ")
            return Visit(lease, at, self._clock(), None, failure.error, facts)
        except asyncio.CancelledError:
            return Visit(lease, at, self._clock(), stopped=True)
        return Visit(lease, at, self._clock(), address=address)

    async def _address(self, host: str, port: int, pinned: str | None = None) -> str:
        """The one that will be dialled: the pinned one, else the first that may be, of those the name service tells."""
        addresses = [pinned] if pinned is not None else await self._names.resolve(host, port)
        if self._loopback_only:
            addresses = [address for address in addresses if ipaddress.ip_address(address).is_loopback]
            if not addresses:
                raise BlockedAddress(f"{host} is not this machine, and no --contact says who crawls")
        return self._guard.choose(host, addresses)

    async def close(self) -> None:
        """Ends what is in flight and gives connections and threads back."""
        await self._downloader.close()
        await self._names.close()
