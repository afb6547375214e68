"""The state of the service: the frontier, open leases, rates, and the known workers."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from outrider.clock import Instant, elapsed, seconds, wall
from outrider.crawl.output.rates import RateMeter, errors_of, eta_seconds, status_fields
from outrider.crawl.questions.control import Answer, Answers
from outrider.crawl.questions.crawl_queries import answers_of, with_refused
from outrider.crawl.questions.side_server import RunningCrawl
from outrider.crawl.setup.instants import moment
from outrider.crawl.setup.permission import Admitted, Permission
from outrider.engine import AsyncFrontier
from outrider.engine.messages import Worker
from outrider.engine.process_queries import facts_of
from outrider.errors import OutriderError
from outrider.journey import Code, Lease, Link, RequestId
from outrider.limits import SERVICE_COUNTS_SECONDS, SERVICE_MISSES_MAX, SERVICE_WORKERS_HEARD_MAX
from outrider.service.access import ServerNames, TokenRoles
from outrider.service.audit import Audit
from outrider.service.bodies import Bodies
from outrider.service.copying import RecordReadings
from outrider.service.grpc_server import GrpcServer
from outrider.service.idempotency import IdempotencyKeys
from outrider.service.lease_registry import IssuedLease, LeaseRegistry
from outrider.service.served_identity import ServedIdentity
from outrider.service.server_errands import ServerErrands

RATES = ("fetched", "failed", "duplicate", "blocked")


class ServiceState:
    """The state of one served frontier. All methods run on the loop."""

    def __init__(
        self,
        frontier: AsyncFrontier,
        *,
        hosts: ServerNames,
        tokens: TokenRoles,
        audit: Audit | None,
        crawl: RunningCrawl | None = None,
        directory: str | None = None,
        permission: Permission | None = None,
        identity: ServedIdentity | None = None,
    ) -> None:
        """crawl: the crawl that fetches from this frontier itself. directory: that of a crawl that does not run.
        permission: its addresses, None if no settings of a crawl are known.
        identity: whose key directory is served, if any."""
        self.user_agent, self.store = frontier.sync.user_agent, frontier.sync._store.hex()
        self.frontier, self.hosts, self.tokens, self.audit = frontier, hosts, tokens, audit
        self.crawl = crawl
        self.identity = identity
        self.answers: Answers = crawl.answers if crawl else answers_of(frontier.sync, asyncio.to_thread, directory)
        """Questions and orders, as for a running crawl."""
        self.permission = permission
        if permission is not None:
            self.answers = {**self.answers, "add": self._adding(permission, self.answers["add"])}
        self.errands: ServerErrands | None = None
        """The errands that this server does itself, if it can fetch."""
        self.grpc: GrpcServer | None = None
        self.robots_by_clients = False
        """Whether clients read robots.txt files themselves. Outrider's own workers leave that to errands."""
        self.registry = LeaseRegistry()
        self.keys = IdempotencyKeys()
        self.readings = RecordReadings(frontier.sync.records)
        self.bodies = Bodies()
        self.closing = asyncio.Event()
        self.heard: OrderedDict[str, Instant] = OrderedDict()
        self.requests: dict[tuple[str, int], int] = {}  # (path of the table, status) -> number
        self._counted: tuple[float, dict[str, Any]] | None = None
        self.begin_rates()

    def begin_rates(self) -> None:
        """Begins the rates with the counts of now."""
        counts = self._totals(self.frontier.sync._tallies())
        now = seconds(elapsed())
        self.paces = {name: RateMeter(now, pages=counts[name]) for name in RATES}

    @staticmethod
    def _totals(statistics: Mapping[str, Any]) -> dict[str, int]:
        errors = errors_of(statistics)
        return {
            "fetched": int(statistics["answered"]),
            "failed": sum(errors.values()),
            "duplicate": int(statistics["duplicates"]),
            "blocked": int(statistics["errors"].get("robots", 0)),
        }

    async def statistics(self) -> dict[str, Any]:
        """Returns the counts of the frontier, some hundred milliseconds old at most, and updates the rates."""
        now = seconds(elapsed())
        if self._counted is not None and now - self._counted[0] < SERVICE_COUNTS_SECONDS:
            return self._counted[1]
        self.measured: dict[str, Any] = await asyncio.to_thread(self.frontier.sync._metrics)
        found: dict[str, Any] = self.measured["statistics"]
        self._counted = (now, found)
        self._keep(found)
        return found

    def _keep(self, found: Mapping[str, Any]) -> None:
        now = seconds(elapsed())
        for name, total in self._totals(found).items():
            self.paces[name].add(now, total)

    async def status(self) -> dict[str, Any]:
        """Returns the fields of `status --json`."""
        if self.crawl is not None:
            told: dict[str, Any] = await self.answers["status"]({})
            return told
        found = await self.statistics()
        rates = self.paces["fetched"].rates(seconds(elapsed()))
        idle = await self.answers["why-idle"]({})
        return status_fields(found, rates, "running", eta_seconds(found, rates, None, 0.0, idle["tail_seconds"] or 0.0))

    async def keep_pace(self) -> None:
        """Samples the counts each second for the rates, until it is cancelled."""
        while True:
            self._keep(self.frontier.sync._tallies())
            await asyncio.sleep(1)

    def hear(self, worker: str) -> None:
        """Notes a request of a worker."""
        self.heard[worker] = wall()
        self.heard.move_to_end(worker)
        if len(self.heard) > SERVICE_WORKERS_HEARD_MAX:
            self.heard.popitem(last=False)

    async def workers(self) -> list[Worker]:
        """Returns the workers with leases or with requests since the server began, by name."""
        now = wall()
        holding = {one.name: one for one in await self.frontier.workers()}
        told = []
        for name in sorted({*holding, *self.heard}):
            one, heard = holding.get(name), self.heard.get(name)
            told.append(
                Worker(
                    name,
                    one.pages if one else 0,
                    one.errands if one else 0,
                    moment(one.first_deadline) if one and one.first_deadline else None,
                    moment(one.last_deadline) if one and one.last_deadline else None,
                    moment(heard) if heard is not None else None,
                    max(0, now - heard) // 1000 if heard is not None else None,
                )
            )
        return told

    @property
    def silent_seconds(self) -> float | None:
        """How long the worker with leases is silent that sent its last request first; None if no such worker sent one
        since the server began."""
        heard = [self.heard[one.name] for one in self.frontier.sync.workers() if one.name in self.heard]
        return seconds(max(0, wall() - min(heard))) if heard else None

    async def issued(self, lease_id: int, tokens: Iterable[int] = ()) -> IssuedLease | None:
        """Returns an open lease. A lease from before a restart is read from the store, by its id and by these tokens,
        because its first URL may have its result."""
        self.registry.expire(await self.frontier.now())
        known = self.registry.get(lease_id)
        if known is not None:
            return known
        held: dict[int, Lease] = {}
        misses = 0
        for token in (lease_id, *sorted(one for one in tokens if one > lease_id)):
            if token not in held and misses < SERVICE_MISSES_MAX:
                found = await self.frontier.held(token)
                misses += not found
                held |= {one.token: one for one in found}
        if not held:
            return None
        given = IssuedLease(lease_id, "", held.values())
        self.registry.add(given)
        return given

    async def order(self, who: str, name: str, question: Mapping[str, Any]) -> dict[str, Any]:
        """Logs the client of an order of the table for a running crawl, then carries it out. An order
        without its line is never carried out. A refused order then has a second line with the error."""
        facts = {("rule" if key == "order" else key): value for key, value in facts_of(question).items()}
        await self._note(who, name, facts)
        try:
            found: dict[str, Any] = await self.answers[name](question)
            return found
        except OutriderError as error:
            await self._note(who, name, {**facts, "error": str(error)})
            raise

    async def add(self, links: Sequence[Link], request_id: RequestId | None) -> list[Code]:
        """Adds links to the frontier, or to the crawl, whose functions rank them."""
        if self.crawl is not None:
            return await self.crawl.add(links, request_id)
        return await self.frontier.discover(links, request_id=request_id)

    async def admit(self, urls: Sequence[str], *, owner: bool) -> Admitted:
        """Returns which URLs may be added, by their addresses. owner: whether the store's owner adds them."""
        if self.crawl is not None:
            return await self.crawl.admit(urls, owner)
        if self.permission is None:
            return Admitted(tuple(range(len(urls))), {})
        return await asyncio.to_thread(partial(self.permission.admit, urls, owner=owner))

    def _adding(self, permission: Permission, add: Answer) -> Answer:
        """Carries out the order `add` of commands on this machine: it is the owner's."""

        async def answered(question: Mapping[str, Any]) -> Any:
            urls = [str(url) for url in question.get("urls", ())]
            admitted = await self.admit(urls, owner=True)
            found = await add({**question, "urls": [urls[place] for place in admitted.places]})
            return with_refused(found, admitted, urls)

        return answered

    async def _note(self, who: str, name: str, facts: Mapping[str, Any]) -> None:
        if self.audit is not None:
            await asyncio.to_thread(partial(self.audit.note, who, name, **facts))

    def was_issued(self, lease_id: int) -> bool:
        """Whether this process or an earlier one may have made a lease with this id."""
        return lease_id <= self.registry.newest or lease_id < self.frontier.opening.number << 40
