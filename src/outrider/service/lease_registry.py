"""Open leases by their id: the token of each URL, and the deadline."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from outrider.clock import Instant
from outrider.journey import Lease


class IssuedLease:
    """One lease: the leases of one call of the frontier. `open` has the tokens without a result."""

    __slots__ = ("by_url", "deadline", "lease_id", "leases", "open", "worker")

    def __init__(self, lease_id: int, worker: str, leases: Iterable[Lease]) -> None:
        self.lease_id, self.worker = lease_id, worker
        self.leases = {lease.token: lease for lease in leases}
        self.by_url: dict[str, list[int]] = {}
        for lease in self.leases.values():
            self.by_url.setdefault(lease.url, []).append(lease.token)
        self.open = set(self.leases)
        self.deadline: Instant = max(lease.deadline for lease in self.leases.values())

    def named(self, url: str | None, token: int | None) -> Lease | None:
        """Returns the lease of this URL or token. For a URL that is here twice (in two crawls), an open one first."""
        if token is not None:
            lease = self.leases.get(token)
            return lease if lease is None or url is None or lease.url == url else None
        tokens = self.by_url.get(url or "", [])
        chosen = next((one for one in tokens if one in self.open), tokens[0] if tokens else None)
        return self.leases[chosen] if chosen is not None else None


class LeaseRegistry:
    """All open leases. A lease is removed after its deadline, or when all its URLs have results."""

    def __init__(self) -> None:
        self._issued: dict[int, IssuedLease] = {}
        self._ends: list[tuple[Instant, int]] = []
        self._of: dict[int, int] = {}  # the lease of each token
        self.urls = 0
        self.newest = 0

    def __len__(self) -> int:
        return len(self._issued)

    def add(self, given: IssuedLease) -> None:
        """Adds a lease. A repeated one replaces the first."""
        self.drop(given.lease_id)
        self._issued[given.lease_id] = given
        self.urls += len(given.leases)
        self._of.update(dict.fromkeys(given.leases, given.lease_id))
        self.newest = max(self.newest, *given.leases)
        heapq.heappush(self._ends, (given.deadline, given.lease_id))

    def get(self, lease_id: int) -> IssuedLease | None:
        """Returns the lease of this id."""
        return self._issued.get(lease_id)

    def extend(self, given: IssuedLease, deadline: Instant) -> None:
        """Moves the end of a lease."""
        given.deadline = deadline
        heapq.heappush(self._ends, (deadline, given.lease_id))

    def settle(self, given: IssuedLease, tokens: Iterable[int]) -> None:
        """Removes tokens of this lease that have results."""
        given.open.difference_update(tokens)
        if not given.open:
            self.drop(given.lease_id)

    def settle_tokens(self, tokens: Iterable[int]) -> None:
        """Removes tokens with results, of any leases."""
        for token in tokens:
            given = self._issued.get(self._of.get(token, 0))
            if given is not None:
                self.settle(given, (token,))

    def extend_tokens(self, tokens: Iterable[int], deadline: Instant) -> None:
        """Moves the ends of the leases of these tokens."""
        for lease_id in {self._of[token] for token in tokens if token in self._of}:
            self.extend(self._issued[lease_id], deadline)

    def drop(self, lease_id: int) -> None:
        """Removes a lease."""
        given = self._issued.pop(lease_id, None)
        if given is not None:
            self.urls -= len(given.leases)
            for token in given.leases:
                self._of.pop(token, None)

    def expire(self, now: Instant) -> None:
        """Removes the leases that ended before this instant."""
        while self._ends and self._ends[0][0] < now:
            _, lease_id = heapq.heappop(self._ends)
            given = self._issued.get(lease_id)
            if given is not None and given.deadline < now:
                self.drop(lease_id)
