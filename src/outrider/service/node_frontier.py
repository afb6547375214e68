"""The frontier of a node of a cluster that serves workers.

Leases, reports and counts are those of the partitions of this node. Questions and orders are for the whole cluster, as
with `Frontier.connect(FILE)`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, Final, ParamSpec, TypeVar

from outrider.cluster.description import ClusterManifest
from outrider.cluster.node import ClusterNode
from outrider.cluster.served_stores import Repeated, ServedStores
from outrider.crawl.questions.cluster_answers import joined_sums, joined_workers
from outrider.crawl.questions.cluster_frontier import ClusterFrontier
from outrider.crawl.questions.cluster_queries import ClusterQuestions
from outrider.engine import Frontier, Opening
from outrider.engine.process_queries import as_sent
from outrider.engine.remote import RemoteFrontier, made, outcome_body
from outrider.errors import SettingsError
from outrider.journey import Code, LeaseBatch, Link, Outcome, OutcomeBatch, Report, RequestId, Settled, WorkerStatus
from outrider.limits import TOKEN_BITS
from outrider.url import UrlBatch

Given = ParamSpec("Given")
Answer = TypeVar("Answer")
_THREADS: Final = 16
_HERE: Final = -1
"""In place of the number of a partition: those of this node."""
_POLL_SECONDS_MIN: Final = 0.02
_LARGEST_HOSTS: Final = 10


@dataclass(frozen=True, slots=True)
class _Total:
    """The number and the sum of some times."""

    count: int
    seconds: float


def _here(method: Callable[Given, Answer]) -> Callable[Given, Answer]:
    """Returns the method for the partitions of this node."""

    @wraps(method)
    def call(*given: Given.args, **named: Given.kwargs) -> Any:
        frontier: Any = given[0]
        return getattr(frontier.stores, method.__name__)(*given[1:], **named)

    call.__doc__ = f"As `Frontier.{method.__name__}`, for the partitions of this node."
    return call


class NodeFrontier(ClusterFrontier):
    """The frontier that a node serves. Any thread may call it."""

    def __init__(
        self,
        node: ClusterNode,
        manifest: ClusterManifest,
        questions: ClusterQuestions,
        settings: Mapping[str, object],
        *,
        where: str,
    ) -> None:
        """settings: of the frontier. where: the file of the cluster, for messages."""
        super().__init__(questions, where=where)
        assert isinstance(node.stores, ServedStores)
        self._node, self.stores = node, node.stores
        self._reported: Repeated[Report] = Repeated()
        self._empty = Frontier.memory(settings=settings)  # the counts of a node without partitions
        self._machine = self._empty._machine
        self._store = bytes.fromhex(manifest.cluster)
        self.user_agent = self._empty.user_agent
        self.opening = Opening(manifest.partitions, False)  # tokens are below the number of partitions times 2**40

    lease = _here(RemoteFrontier.lease)
    extend = _here(RemoteFrontier.extend)
    release = _here(RemoteFrontier.release)
    rest = _here(RemoteFrontier.rest)
    defer = _here(RemoteFrontier.defer)
    set_robots = _here(RemoteFrontier.set_robots)
    queue_errands = _here(RemoteFrontier.queue_errands)
    set_addresses = _here(RemoteFrontier.set_addresses)
    seen_content = _here(RemoteFrontier.seen_content)
    crawl_delays = _here(RemoteFrontier.crawl_delays)
    robots_allow = _here(RemoteFrontier.robots_allow)
    held = _here(RemoteFrontier.held)
    next_ready_seconds = _here(RemoteFrontier.next_ready_seconds)
    now = _here(RemoteFrontier.now)

    def report(
        self,
        outcomes: Sequence[Outcome] | OutcomeBatch,
        links: Sequence[tuple[int, str | Link]] | UrlBatch = (),
        *,
        request_id: RequestId | None = None,
        watermark: tuple[str, bytes] | None = None,
    ) -> Report:
        """As `Frontier.report`, for leases of any node: outcomes of partitions that other nodes own are sent to
        them. So a worker may go on with another node, and no accepted page is reported in vain."""
        assert not isinstance(outcomes, OutcomeBatch)
        known = self._reported.get(request_id)
        if known is None:
            known = self._reported_now(outcomes, request_id)
            self._reported.put(request_id, known)
        return known

    def _reported_now(self, outcomes: Sequence[Outcome], request_id: RequestId | None) -> Report:
        rows: dict[int, list[int]] = {}
        for row, outcome in enumerate(outcomes):
            number = outcome.token >> TOKEN_BITS
            there = number < self.opening.number and self.stores.get(number) is None
            rows.setdefault(number if there else _HERE, []).append(row)
        request = request_id or ("node", int.from_bytes(os.urandom(7), "big"))
        codes = [Settled.STALE] * len(outcomes)
        found: list[tuple[Code, ...]] = [()] * len(outcomes)
        for number, some in rows.items():
            of_partition = [outcomes[row] for row in some]
            if number == _HERE:
                report = self.stores.report(of_partition, request_id=request_id)
                answers = [*zip(report.outcomes, report.links, strict=False)]
            else:
                sent = self._questions.report(number, [outcome_body(one) for one in of_partition], request)
                parts = zip(sent["codes"], sent["links"], strict=True)
                answers = [(Settled(code), tuple(map(Code, row))) for code, row in parts]
            for row, (code, codes_of_links) in zip(some, answers, strict=False):
                codes[row], found[row] = code, codes_of_links
        return Report(tuple(codes), tuple(found))

    def finished(self) -> bool:
        """Whether all work of the whole crawl is done."""
        return self.stores.is_finished and not self._node.at_limit()

    def at_limit(self) -> bool:
        """Whether the whole crawl is over because of a limit of pages."""
        return self.stores.is_finished and self._node.at_limit()

    def set_delay(self, delay_seconds: float | None, key: str | None = None, *, crawl: str | None = None) -> int:
        """As `Frontier.set_delay`, at once where this node has the host."""
        return self._ordered(RemoteFrontier.set_delay, delay_seconds, key, crawl)

    def set_limit(self, limit: int | None, key: str | None = None, *, crawl: str | None = None) -> int:
        """As `Frontier.set_limit`, at once where this node has the host."""
        return self._ordered(RemoteFrontier.set_limit, limit, key, crawl)

    def _ordered(self, method: Callable[..., int], value: float | None, key: str | None, crawl: str | None) -> int:
        if key is not None and crawl is None:
            try:
                if count := getattr(self.stores, method.__name__)(value, key):
                    return int(count)
            except SettingsError:  # the key of a queue may be in any partition
                pass
        return method(self, value, key, crawl=crawl)

    # -- counts of the partitions of this node ------------------------------------------------------------------------

    def workers(self) -> list[WorkerStatus]:
        """As `Frontier.workers`, with the leases of this node's partitions."""
        rows = {number: {"answer": as_sent(some)} for number, some in enumerate(self._of_all(Frontier.workers))}
        found: list[WorkerStatus] = made(list[WorkerStatus], joined_workers(rows)["answer"])
        return found

    def statistics(self) -> dict[str, Any]:
        """As `Frontier.statistics`, the sums of this node's partitions."""
        return joined_sums(self._of_all(Frontier.statistics))

    def _tallies(self) -> dict[str, Any]:
        return joined_sums(self._of_all(Frontier._tallies))

    def _metrics(self) -> dict[str, Any]:
        found = self._of_all(Frontier._metrics)
        largest = joined_sums([one["largest"] for one in found])
        ages = [one["robots_age_p95"] for one in found if one["robots_age_p95"] is not None]
        return {
            "statistics": joined_sums([one["statistics"] for one in found]),
            "front": sum(one["front"] for one in found),
            "busiest": max(one["busiest"] for one in found),
            "largest": dict(sorted(largest.items(), key=lambda one: -one[1])[:_LARGEST_HOSTS]),
            "robots_status": joined_sums([one["robots_status"] for one in found]),
            "robots_age_p95": max(ages, default=None),
            **{
                name: _Total(sum(one[name].count for one in found), sum(one[name].seconds for one in found))
                for name in ("found", "due", "syncs")
            },
        }

    def _ask_sooner(self) -> int:
        return sum(self._of_all(Frontier._ask_sooner))

    def _of_all(self, method: Callable[[Frontier], Answer]) -> list[Answer]:
        """Returns the answers of an empty frontier and of the store of each partition."""
        stores = self.stores.all()
        found = self.stores.each(stores, lambda store: method(store.frontier))
        return [method(self._empty), *(one for one in found if one is not None)]


class AwaitedNode:
    """Each method of `NodeFrontier` to await, made in a thread."""

    def __init__(self, frontier: NodeFrontier) -> None:
        self.sync = frontier
        self.opening = frontier.opening
        self.waiting_leases = 0
        """How many calls wait for a lease."""
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="outrider-serves")

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        return partial(self._made, getattr(self.sync, name))

    async def _made(self, method: Callable[..., Answer], /, *given: Any, **named: Any) -> Answer:
        return await asyncio.get_running_loop().run_in_executor(self._pool, partial(method, *given, **named))

    async def lease(self, want: int, *, wait_seconds: float = 0.0, **how: Any) -> LeaseBatch:
        """As `AsyncFrontier.lease`. Links of other nodes arrive at any time, so a waiting call looks again and again.
        A cancelled call returns its leases."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + wait_seconds
        self.waiting_leases += 1
        try:
            while True:
                leases = await self._leased(want, how)
                left = ends - loop.time()
                if leases or left <= 0:
                    return leases
                ready = self.sync.next_ready_seconds()
                await asyncio.sleep(min(left, left if ready is None else max(ready, _POLL_SECONDS_MIN)))
        finally:
            self.waiting_leases -= 1

    async def _leased(self, want: int, how: Mapping[str, Any]) -> LeaseBatch:
        taking = asyncio.ensure_future(self._made(self.sync.lease, want, **how))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            if leases := await taking:
                await self._made(self.sync.release, leases.tokens)
            raise
