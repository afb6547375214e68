"""The result of a lease call in columns; `leases` makes a `Lease` of each row when the caller reads them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from outrider.clock import Instant
from outrider.frontier.format.card_columns import Cards
from outrider.frontier.format.card_records import parts_of, text_of, value_of
from outrider.frontier.policy.politeness import GapReason
from outrider.frontier.schedule.host_schedule import HostSchedule
from outrider.frontier.state.errand import CallersErrand, Errand
from outrider.frontier.state.host_addresses import HostAddress
from outrider.frontier.state.hosts import NONE, Rows
from outrider.frontier.state.tables import Tables
from outrider.journey import LEASE_FIELDS, Kind, Lease, Line, RequestId
from outrider.url import authorities_of, hosts_of
from outrider.url.keys import key_of_name

GAP_WORDS = {int(reason): reason.name.lower() if reason else None for reason in GapReason}
"""The word for each number of a reason, None for no reason."""


@dataclass(frozen=True, slots=True)
class Unclaimed:
    """The tokens and lines of a lease call that never reached its caller. request_id: set for a call that may be
    repeated."""

    tokens: Sequence[int]
    lines: Sequence[Line]
    request_id: RequestId | None = None


class LeasedColumns:
    """Pages first, then errands; tokens are consecutive. The clocks are those at the moment of the lease."""

    __slots__ = (
        *("_about_uses", "_addresses", "_capacities", "_cards", "_deadline", "_ended", "_errands", "_first", "_gaps"),
        *("_keys", "_not_before", "_of_callers", "_reasons", "_ruled_by", "_tables"),
    )

    def __init__(
        self,
        tables: Tables,
        turns: HostSchedule,
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
        self._of_callers = tables.crawls.of_callers(cards.heads["crawl"])
        # Keys are read now, because later another queue may have the row.
        own = tables.queues.keys
        self._keys = {row: own[queue] for row, queue in enumerate(queues.tolist()) if queue in own} if own else {}
        self._not_before = not_before
        self._deadline = deadline
        self._errands = errands
        hosts = tables.queues.host[queues.astype(np.intp)].astype(np.intp)
        self._ended, self._gaps = tables.hosts.ended[hosts], tables.hosts.gap[hosts]
        self._reasons = tables.hosts.reason[hosts]
        self._capacities = turns.capacities(queues)
        self._about_uses = tables.robots.about_uses(cards)
        self._ruled_by = tables.robots.ruled_by(cards.urls()) if turns.judges_errands else (None,) * len(hosts)
        self._addresses: Sequence[str | None] = (None,) * len(hosts)
        if tables.addresses.by_host or tables.addresses.left:
            self._addresses = tables.addresses.of_many(hosts, first)

    def __len__(self) -> int:
        return len(self._cards) + len(self._errands)

    def tokens(self) -> list[int]:
        """Returns a token per lease, in order."""
        return list(range(self._first, self._first + len(self)))

    def urls(self) -> list[str]:
        """Returns a URL per lease, in order."""
        return self._texts() + [lease.url for lease in self._errands]

    def _texts(self) -> list[str]:
        """Returns the URLs of the pages as their callers know them."""
        cards, urls = self._cards, self._cards.urls()
        if self._of_callers is None:
            return urls
        urls = list(urls)
        for row in np.flatnonzero(self._of_callers & (cards.heads["extra_bytes"] != 0)).tolist():
            urls[row] = text_of(cards, row)
        return urls

    def leases(self) -> Sequence[Lease]:
        """Returns the leases, in the order of their tokens."""
        tables, cards, heads = self._tables, self._cards, self._cards.heads
        rows, crawls, urls = len(cards), tables.crawls.names, self._cards.urls()
        authorities = authorities_of(urls)
        hosts = [host if host[-1:] != "." else tables.home_of(host) for host in hosts_of(authorities)]
        keys = list(hosts)
        if self._of_callers is not None:
            urls = self._texts()
            for row, name in enumerate(keys):
                if (key := key_of_name(name)) is not None:
                    keys[row], hosts[row], authorities[row] = key, "", ""
        for row, key in self._keys.items():
            keys[row] = key or hosts[row]
        referrers: list[str | None] = [None] * rows
        kept: dict[str, list[Any]] = {name: [None] * rows for name in LEASE_FIELDS}
        for row in np.flatnonzero(heads["referrer_bytes"]).tolist():
            referrers[row] = cards.referrer(row)
        for row in np.flatnonzero(heads["extra_bytes"]).tolist():
            values, _ = parts_of(cards.extra_of(row), int(heads["flags"][row]))
            for name, column in kept.items():
                column[row] = value_of(values, name)
        fetched = (heads["fetched"] != 0).tolist()  # the first visit is noted in the head alone
        kept["visits"] = [visits or int(once) for visits, once in zip(kept["visits"], fetched, strict=True)]
        ended, gaps, reasons = self._ended.tolist(), self._gaps.tolist(), self._reasons.tolist()
        words = [GAP_WORDS[reason] for reason in reasons]
        for row in np.flatnonzero(self._ended == 0).tolist():
            ended[row] = gaps[row] = words[row] = None
        columns: dict[str, Iterable[Any]] = dict(
            url=urls,
            key=keys,
            kind=repeat(Kind.PAGE),
            authority=authorities,
            host=hosts,
            token=range(self._first, self._first + rows),
            deadline=repeat(self._deadline),
            priority=heads["priority"].tolist(),
            depth=heads["depth"].tolist(),
            attempt=(heads["attempts"].astype(np.int64) + 1).tolist(),
            not_before=self._not_before.tolist(),
            hops=heads["hops"].tolist(),
            referrer=referrers,
            address=self._addresses,
            crawl=[crawls[crawl][0] for crawl in heads["crawl"].tolist()],
            ended_before=ended,
            gap_seconds=gaps,
            gap_reason=words,
            capacity=self._capacities,
            about_uses=self._about_uses,
            ruled_by=self._ruled_by,
            **kept,
        )
        made = map(Lease, *map(columns.__getitem__, Lease.__struct_fields__))
        return (*made, *self._errands)


def errand_lease(errand: Errand, tables: Tables, turns: HostSchedule, now: Instant) -> Lease:
    """Returns the lease of an open errand."""
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
    if isinstance(errand, HostAddress):
        return lease(key=errand.name, host=errand.name)
    if isinstance(errand, CallersErrand):
        source = errand.name if errand.url != errand.name else None
        lease = partial(lease, crawl=tables.crawls.name_of(errand.crawl), referrer=source)
        if source is None:  # the validators of a redirect's target are not those of the URL itself
            kept = errand.visits
            lease = partial(
                lease,
                etag=kept.etag or None,
                last_modified=kept.last_modified or None,
                digest=kept.digest or None,
            )
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
