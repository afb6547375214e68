"""Errands that the server does itself for workers with `robots=server`: robots.txt files and addresses."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from outrider.crawl.run.fetching import Fetching
from outrider.crawl.run.lease_kinds import KINDS, errand_of
from outrider.crawl.run.settle import LEASE_SECONDS
from outrider.crawl.run.visit import Visit
from outrider.crawl.setup.host_settings import PerHost
from outrider.crawl.setup.options import CrawlOptions
from outrider.engine import AsyncFrontier
from outrider.errors import OutriderError
from outrider.fetch.addresses import AddressGuard
from outrider.fetch.default_downloader import make_downloader
from outrider.fetch.names import make_resolver
from outrider.journey import Lease
from outrider.limits import SERVICE_ERRANDS_MAX

OWN_KINDS: Final = frozenset(kind for kind, row in KINDS.items() if row.by_server)
_LOG: Final = logging.getLogger("outrider.service")


class Visits(Protocol):
    """Requests the URL of a lease."""

    async def visit(self, lease: Lease) -> Visit:
        """Returns the answer. A cancelled one says whether the site may have noticed the request."""
        ...

    async def close(self) -> None:
        """Closes connections."""
        ...


class ServerErrands:
    """The errands under way, each a task, used only on the loop."""

    def __init__(self, frontier: AsyncFrontier, visits: Visits) -> None:
        self._frontier, self._visits = frontier, visits
        self._under_way: dict[int, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._under_way)

    async def take(self, leases: Sequence[Lease]) -> None:
        """Does these errands in other tasks, each once. Returns when their leases are long enough. Leases beyond
        SERVICE_ERRANDS_MAX are released."""
        new = [one for one in leases if one.token not in self._under_way]
        room = max(0, SERVICE_ERRANDS_MAX - len(self._under_way))
        if new[room:]:
            await self._frontier.release([one.token for one in new[room:]])
        if not new[:room]:
            return
        await self._frontier.extend([one.token for one in new[:room]], LEASE_SECONDS)
        for one in new[:room]:
            self._under_way[one.token] = asyncio.ensure_future(self._done(one))

    async def _done(self, lease: Lease) -> None:
        try:
            visit = await self._visits.visit(lease)
            if visit.stopped and visit.began is None:
                await self._frontier.release([lease.token])
            else:
                await self._frontier.report([errand_of(visit)])
        except OutriderError as error:
            _LOG.warning("errand %s: %s", lease.url, error)  # its lease ends, and it is leased again
        finally:
            self._under_way.pop(lease.token, None)

    async def close(self) -> None:
        """Interrupts the errands under way. They are leased again."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._visits.close()


def visits_of(
    options: CrawlOptions,
    frontier: AsyncFrontier,
    hosts: Mapping[str, tuple[str, ...]],
    guard: AddressGuard,
    *,
    may_send: Callable[[int], bool] = lambda _: True,
) -> Fetching:
    """Fetches like the crawl with these settings: with its User-Agent and its address guard. hosts: a parsed --hosts
    file. may_send: whether the request of a token may be sent now."""
    return Fetching(
        make_downloader(clock=frontier.sync.now, ca_file=options.ca, connections_max=SERVICE_ERRANDS_MAX),
        make_resolver(hosts, options.resolver),
        guard,
        user_agent=options.user_agent_sent,
        loopback_only=options.contact is None,
        clock=frontier.sync.now,
        concurrency=SERVICE_ERRANDS_MAX,
        per_host=PerHost(options),
        headers=options.headers_sent,
        may_send=may_send,
    )
