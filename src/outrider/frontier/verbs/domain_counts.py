"""The registrable domains with the most queued URLs, in bounded steps. Other calls run between the steps.

All hosts of a domain have one slot. So the queued URLs are summed by slot first, and only the hosts of the fullest
slots are counted by domain, until no other slot can have a fuller domain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator

import numpy as np
import numpy.typing as npt

from outrider.frontier.state.tables import Tables
from outrider.frontier.verbs.census import pieces
from outrider.limits import DOMAINS_HOSTS_MAX, DOMAINS_SLOTS_MAX, SLOTS
from outrider.url import registrable_domains

_Counts = npt.NDArray[np.int64]


def fullest_domains(tables: Tables, limit: int) -> Generator[None, None, list[tuple[str, int]]]:
    """Returns up to `limit` domains with the numbers of their queued URLs, the largest first. A domain with more than
    `DOMAINS_HOSTS_MAX` hosts is counted by the fullest of them. It yields between its steps."""
    queued = yield from _queued_by_host(tables)
    slots = tables.hosts.slot[: len(queued)].astype(np.intp)
    by_slot = np.bincount(slots, weights=queued, minlength=SLOTS)
    found: list[tuple[str, int]] = []
    hosts_left = DOMAINS_HOSTS_MAX
    for slot in np.argsort(-by_slot, kind="stable")[:DOMAINS_SLOTS_MAX].tolist():
        if not by_slot[slot] or hosts_left < 1 or (len(found) == limit and found[-1][1] >= by_slot[slot]):
            break
        rows = np.flatnonzero((slots == slot) & (queued > 0))
        rows = rows[np.argsort(-queued[rows], kind="stable")][:hosts_left]
        hosts_left -= len(rows)
        counts = yield from _by_domain(tables, rows, queued)
        found = sorted([*found, *counts.items()], key=lambda one: (-one[1], one[0]))[:limit]
    return found


def _queued_by_host(tables: Tables) -> Generator[None, None, _Counts]:
    """Returns the number of queued URLs of each row of a host."""
    found = np.zeros(tables.hosts.count, np.int64)
    for first, end in pieces(tables.queues.count):
        if first:
            yield
        queues = np.arange(first, min(end, tables.queues.count), dtype=np.uint32)
        hosts = tables.queues.host[queues].astype(np.intp)
        known = hosts < len(found)  # later hosts were found between two steps
        np.add.at(found, hosts[known], tables.urls.backlog.waiting(queues)[known])
    return found


def _by_domain(tables: Tables, rows: npt.NDArray[np.intp], queued: _Counts) -> Generator[None, None, Counter[str]]:
    found: Counter[str] = Counter()
    for first, end in pieces(len(rows)):
        yield
        some = rows[first:end]
        some = some[tables.hosts.there[some]]  # others have left memory between two steps
        names = tables.hosts.names(some).list()
        for name, domain, count in zip(names, registrable_domains(names), queued[some].tolist(), strict=True):
            found[domain or name] += count
    return found
