"""The counts of a whole crawl: what the owners of its partitions said last, and whether they show work."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from outrider.cluster.stores import OwnStore
from outrider.cluster.words import NodeMessage, PartitionCounts

_AT_LIMIT: Final = "at_limit"
"""The number that is 1 for a partition that may fetch no more page."""
COUNTED: Final = ("accepted", "answered", "queued", "leased", "waiting", "done", "gone", "parked", "in_transit")


def counts_of(store: OwnStore, received: int, orders_before: int) -> PartitionCounts:
    """Returns the counts of an own store. received: the offset up to which it has received links. orders_before: it is
    not finished until it has carried out the orders in `words` before this offset. Raises StoreError."""
    statistics: dict[str, Any] = store.frontier._tallies()
    flat = {**statistics, **statistics["urls"]}
    numbers = {name: int(flat.get(name, 0)) for name in COUNTED}
    # A store at the limit has requests in flight as long as it has leases of any owner.
    at_limit = store.at_limit and store.pages_left < 1 and not numbers["leased"]
    finished = (at_limit or bool(store.frontier.finished())) and not store.leased and not numbers["in_transit"]
    finished = finished and store.heard >= orders_before
    numbers[_AT_LIMIT] = int(at_limit)
    return PartitionCounts(store.number, store.owned.changelog.epoch, received, finished, numbers, store.heard_noted)


class CrawlCounts:
    """The newest counts of all partitions. One thread calls `hear`; any thread may call the rest."""

    def __init__(self, partitions: int, *, node_seconds: float) -> None:
        """node_seconds: how long a node counts as running after its last message."""
        self._partitions, self._node_seconds = partitions, node_seconds
        self._newest: dict[int, PartitionCounts] = {}
        self._nodes: dict[str, float] = {}

    def hear(self, message: NodeMessage) -> None:
        """Takes a message of a node. Counts of an earlier claim change nothing."""
        now = time.monotonic()
        self._nodes = {node: at for node, at in self._nodes.items() if now - at < self._node_seconds}
        self._nodes[message.node] = now
        for one in message.counts:
            known = self._newest.get(one.partition)
            if one.partition < self._partitions and (known is None or one.epoch >= known.epoch):
                self._newest[one.partition] = one

    def totals(self) -> dict[str, int]:
        """Returns the sums over all partitions that are known; `partitions` and `nodes`: how many are known."""
        newest, now = dict(self._newest), time.monotonic()
        total = {name: sum(one.numbers.get(name, 0) for one in newest.values()) for name in COUNTED}
        nodes = sum(now - at < self._node_seconds for at in [*self._nodes.values()])
        return {**total, "partitions": len(newest), "nodes": nodes}

    def at_limit(self) -> bool:
        """Whether a partition has ended at the limit of pages."""
        return any(one.numbers.get(_AT_LIMIT) for one in [*self._newest.values()])

    def received(self, number: int) -> int:
        """Returns the offset up to which a partition has received links."""
        known = self._newest.get(number)
        return 0 if known is None else known.received

    def heard(self) -> int | None:
        """Returns the offset of `words` up to which all partitions have carried out orders; None before all are
        known."""
        known = [one.heard for one in [*self._newest.values()]]
        return min(known) if len(known) == self._partitions else None

    def at_end(self, ends: Callable[[], Mapping[int, int]]) -> tuple[object, ...]:
        """Returns the counts of all partitions; nothing if they show work, or nothing was added yet. ends: of the
        topic of links, for each partition. Raises UnreachableError."""
        newest = [self._newest.get(number) for number in range(self._partitions)]
        found = [one for one in newest if one is not None and one.finished]
        if len(found) < len(newest) or not any(one.numbers.get("accepted") for one in found):
            return ()
        known = ends()
        if any(one.received < known[one.partition] for one in found):
            return ()
        return tuple((one.epoch, one.received, *one.numbers.values()) for one in found)
