"""The result of a lease call in columns; `leases` makes a `Lease` of each row when the caller asks for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat

import msgspec
import numpy as np
import numpy.typing as npt

from outrider.clock import Instant
from outrider.frontier.format.cards import Cards
from outrider.frontier.format.records import NO_PARTS, parts_of
from outrider.frontier.policy.politeness import GapReason
from outrider.frontier.schedule.turns import Turns
from outrider.frontier.state.errand import CallersErrand, Errand
from outrider.frontier.state.hosts import NONE, Rows
from outrider.frontier.state.tables import Tables
from outrider.frontier.state.whereabouts import Whereabouts
from outrider.journey import Kind, Lease, Line, RequestId
from outrider.url import authorities_of, hosts_of

GAP_WORDS = {int(reason): reason.name.lower() if reason else None for reason in GapReason}
"""The word for each number of a reason, None for none."""


@dataclass(frozen=True, slots=True)
class Unclaimed:
    """The tokens and lines of a lease call whose caller never gets them. request_id: set for a call that may be
    repeated."""

    tokens: Sequence[int]
    lines: Sequence[Line]
    request_id: RequestId | None = None


class Leased:
    """Pages first, then errands; tokens are consecutive. The clocks are those of the moment at which the leases were
    made."""

    __slots__ = (
        *("_addresses", "_capacities", "_cards", "_deadline", "_ended", "_errands", "_first", "_gaps", "_keys"),
        *("_not_before", "_reasons", "_tables"),
    )

    def __init__(
        self,
        tables: Tables,
        turns: Turns,
        first: int,
        cards: Cards,
        queues: Rows,
        not_before: npt.NDArray[np.int64],
        deadline: Instant,
        errands: Sequence[Lease],
    ) -> None:
        self._tables = tables
        self._first = first
        self._cards = cards
        # Keys are read now: later another queue may have the row.
        own = tables.queues.keys
        self._keys = [own.get(queue) for queue in queues.tolist()] if own else [None] * len(queues)
        self._not_before = not_before
        self._deadline = deadline
        self._errands = errands
        hosts = tables.queues.host[queues.astype(np.intp)].astype(np.intp)
        self._ended, self._gaps = tables.hosts.ended[hosts], tables.hosts.gap[hosts]
        self._reasons = tables.hosts.reason[hosts]
        self._capacities = turns.capacities(queues)
        self._addresses: Sequence[str | None] = (None,) * len(hosts)
        if tables.addresses.by_host or tables.addresses.left:
            self._addresses = tables.addresses.of_many(hosts, first)

    def __len__(self) -> int:
        return len(self._cards) + len(self._errands)

    def tokens(self) -> list[int]:
        """A token per lease, in order."""
        return list(range(self._first, self._first + len(self)))

    def urls(self) -> list[str]:
        """A URL per lease, in order."""
        return self._cards.urls() + [lease.url for lease in self._errands]

    def leases(self) -> Sequence[Lease]:
        """The leases, in the order of their tokens."""
        tables, cards, heads = self._tables, self._cards, self._cards.heads
        rows, crawls, urls = len(cards), tables.crawls.names, self._cards.urls()
        authorities = authorities_of(urls)
        hosts = [host if host[-1:] != "." else tables.home_of(host) for host in hosts_of(authorities)]
        told = [
            parts_of(cards.extra_of(row), int(heads["flags"][row])) if size else NO_PARTS
            for row, size in enumerate(heads["extra_bytes"].tolist())
        ]
        visited = self._ended.tolist()
        made = map(
            Lease,
            urls,
            [key or host for key, host in zip(self._keys, hosts, strict=True)],
            repeat(Kind.PAGE),
            authorities,
            hosts,
            range(self._first, self._first + rows),
            repeat(self._deadline),
            heads["priority"].tolist(),
            heads["depth"].tolist(),
            (heads["attempts"].astype(np.int64) + 1).tolist(),
            self._not_before.tolist(),
            heads["hops"].tolist(),
            [
                cards.referrer(row) or None if size else None
                for row, size in enumerate(heads["referrer_bytes"].tolist())
            ],
            [msgspec.json.decode(one.metadata) if one.metadata else None for one in told],
            self._addresses,
            [one.etag or None for one in told],
            [one.modified or None for one in told],
            [crawls[crawl][0] for crawl in heads["crawl"].tolist()],
            [ended or None for ended in visited],
            [gap if ended else None for ended, gap in zip(visited, self._gaps.tolist(), strict=True)],
            [
                GAP_WORDS[reason] if ended else None
                for ended, reason in zip(visited, self._reasons.tolist(), strict=True)
            ],
            self._capacities,
        )
        return (*made, *self._errands)


def errand_lease(errand: Errand, tables: Tables, turns: Turns, now: Instant) -> Lease:
    """The lease of an open errand."""
    lease = partial(
        Lease,
        errand.url,
        kind=errand.kind,
        authority=errand.owner,
        token=errand.token,
        deadline=errand.deadline,
        priority=errand.priority,
        depth=0,
        attempt=errand.attempts + 1,
        not_before=now,
        hops=errand.hops,
    )
    if isinstance(errand, Whereabouts):
        return lease(key=errand.name, host=errand.name)
    if isinstance(errand, CallersErrand):
        source = errand.name if errand.url != errand.name else None
        lease = partial(lease, crawl=tables.crawls.name_of(errand.crawl), referrer=source)
    row = errand.busy if errand.busy != NONE else errand.host
    name, ended = tables.hosts.name(row), int(tables.hosts.ended[row])
    return lease(
        key=name,
        host=name,
        address=tables.addresses.of(row, errand.token),
        ended_before=ended or None,
        gap_seconds=float(tables.hosts.gap[row]) if ended else None,
        gap_reason=GAP_WORDS[int(tables.hosts.reason[row])] if ended else None,
        capacity=turns.room(row),
    )
