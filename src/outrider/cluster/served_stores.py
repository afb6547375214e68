"""The stores of a node whose pages are fetched by workers: leases by name and by request, and their ends.

A worker may be gone, so the leases of a store end by their deadlines here, too. A repeated request for leases gets its
first answer from memory as long as the node runs; after that, its leases end by their deadlines.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from outrider.clock import Instant, instant
from outrider.cluster.stores import OwnStore, OwnStores
from outrider.journey import LeaseBatch, RequestId, Settled
from outrider.limits import CLUSTER_ANSWERS_MAX, TOKEN_BITS

Answer = TypeVar("Answer")


class Repeated(Generic[Answer]):
    """The answers to the newest requests with an id. Any thread may use it."""

    def __init__(self) -> None:
        self._answers: OrderedDict[RequestId, Answer] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, request: RequestId | None) -> Answer | None:
        """Returns the answer to a request, or None if the request is new or lacks an id."""
        return None if request is None else self._answers.get(request)

    def put(self, request: RequestId | None, answer: Answer) -> None:
        """Keeps an answer, if its request has an id."""
        if request is None:
            return
        with self._lock:
            self._answers[request] = answer
            while len(self._answers) > CLUSTER_ANSWERS_MAX:
                self._answers.popitem(last=False)


class ServedStores(OwnStores):
    """As `OwnStores`, for a server. Any thread may call it."""

    def __init__(self, *given: Any, **named: Any) -> None:
        """As `OwnStores`."""
        super().__init__(*given, **named)
        self._ends: dict[int, Instant] = {}  # the leases of this node, by token
        self._leased_for: Repeated[LeaseBatch] = Repeated()

    def lease(self, want: int, *, request_id: RequestId | None = None, **how: Any) -> LeaseBatch:
        """As the frontier's, from several stores in turn."""
        known = self._leased_for.get(request_id)
        if known is not None:
            return known
        leases = super().lease(want, **how)
        if leases:
            self._ends.update((lease.token, lease.deadline) for lease in leases)
            self._leased_for.put(request_id, leases)
        return leases

    def extend(self, tokens: Sequence[int], ttl_seconds: float) -> list[Settled]:
        """As the frontier's."""
        codes = super().extend(tokens, ttl_seconds)
        end = self.now() + instant(ttl_seconds)
        self._ends.update((token, end) for token, code in zip(tokens, codes, strict=True) if code is Settled.OK)
        return codes

    def forget_ended(self) -> None:
        """Forgets leases whose deadlines have passed: their store has queued the pages again, and may be given up."""
        now = self.now()
        for store in self.all():
            store.leased.difference_update([token for token in [*store.leased] if self._ends.get(token, 0) < now])
        self._ends = {token: end for token, end in [*self._ends.items()] if end >= now}

    def rest(
        self,
        tokens: Sequence[int],
        seconds: float | Sequence[float | None] | None = None,
        ended_at: Instant | Sequence[Instant | None] | None = None,
    ) -> list[Settled]:
        """As the frontier's."""
        rows = {token: row for row, token in enumerate(tokens)}

        def of(values: Any, some: list[int]) -> Any:
            return [values[rows[token]] for token in some] if isinstance(values, Sequence) else values

        return self._settled(
            tokens, lambda store, some: store.frontier.rest(some, of(seconds, some), of(ended_at, some))
        )

    def defer(self, tokens: Sequence[int], until: Instant) -> list[Settled]:
        """As the frontier's."""

        def made(store: OwnStore, some: list[int]) -> list[Settled]:
            codes: list[Settled] = store.frontier.defer(some, until)
            store.leased.difference_update(some)
            return codes

        return self._settled(tokens, made)

    def set_robots(self, authority: str, status: int | None, body: bytes = b"") -> None:
        """As the frontier's; nothing for a host of another node."""
        self._of_each([authority], lambda some, store: [store.frontier.set_robots(some[0], status, body)], None)

    def crawl_delays(self, authorities: Sequence[str]) -> list[float | None]:
        """As the frontier's; None for a host of another node."""
        return self._of_each(authorities, lambda some, store: list(store.frontier.crawl_delays(some)), None)

    def held(self, lease_id: int) -> LeaseBatch:
        """As the frontier's; nothing for a lease of another node's partition."""
        store = self.get(lease_id >> TOKEN_BITS)
        return self._asked(store, lambda store: store.frontier.held(lease_id), LeaseBatch())
