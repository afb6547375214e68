"""Answers from the tables: the status of a URL, a queue, a host, a worker, and counts.

No function here changes the tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from outrider.clock import Instant
from outrider.frontier.format.card_columns import fetched_at
from outrider.frontier.format.card_records import CardRecord, value_of
from outrider.frontier.policy.block_detection import text_of
from outrider.frontier.policy.politeness import GapReason
from outrider.frontier.schedule.group_turns import GroupTurns
from outrider.frontier.schedule.host_schedule import HostSchedule
from outrider.frontier.state.authorities import Authority, RobotsState
from outrider.frontier.state.cold import ColdAuthority
from outrider.frontier.state.crawls import CrawlState
from outrider.frontier.state.hosts import CELLS, NONE, QueueRules
from outrider.frontier.state.tables import Tables
from outrider.frontier.state.url_table import GONE, PARKED, STATES, WAITING, Reason
from outrider.frontier.verbs.census import Census, states_of
from outrider.journey import (
    HostStatus,
    QueueStatus,
    RobotsStatus,
    UrlStatus,
    WorkerStatus,
)
from outrider.kernels.card_layout import Heads
from outrider.limits import PAYMENT_HOSTS_SHOWN
from outrider.robots import Rules
from outrider.url import host_of
from outrider.url.keys import key_of_name

Counts: TypeAlias = tuple[int, int, int, int, int, int]
_TALLIES = ("answered", "bytes", "duplicates", "stale", "lost", "dropped", "refused", "too_long", "retries")


def status_of(record: CardRecord, tables: Tables, token: int, queue: int | None = None) -> UrlStatus:
    """Returns the status of one URL. token: the token of its open lease, or 0. queue: its row, if it is known."""
    queue = int(tables.queues.find(np.array([record.queue], np.uint64))[0]) if queue is None else queue
    # A cold host has only queues of its own name.
    if queue != NONE:
        key = tables.key_of(queue)
    else:
        host = host_of(record.url)
        key = key_of_name(host) or tables.home_of(host)
    return UrlStatus(
        record.text,
        STATES[record.state],
        reason=reason_text(record, tables),
        crawl=tables.crawls.name_of(record.crawl),
        key=key,
        priority=record.priority,
        depth=record.depth,
        attempts=record.attempts,
        referrer=record.referrer or None,
        status=record.status or None,
        error=tables.registry.errors[record.error] or None,
        due=record.due if record.state == WAITING else None,
        token=token or None,
        unique_key=record.kept.unique_key or None,
        discovered_at=discovered_at(record, tables),
        fetched_at=fetched_at(record.fetched),
    )


def discovered_at(record: CardRecord, tables: Tables) -> Instant | None:
    """Returns when a URL was discovered: as an import brought it, or to a minute; None if that is not known."""
    brought: Instant | None = value_of(record.kept, "discovered_at")
    return brought or tables.registry.accepted_at(record.order)


def reason_text(record: CardRecord, tables: Tables) -> str | None:
    """Returns why a URL is parked or gone, or that its visit is planned."""
    if record.state == WAITING and record.reason == Reason.PLANNED:
        return "planned"
    if record.state not in (PARKED, GONE):
        return None
    error = tables.registry.errors[record.error]
    return error if error and record.reason not in (Reason.BUDGET, Reason.TRAP) else Reason(record.reason).name.lower()


def host_counts(tables: Tables, census: Census) -> dict[str, int]:
    known = len(tables.hosts) + len(tables.cold)
    return {"known": known, **{name: census.hosts[name] for name in ("ready", "resting", "blocked", "empty")}}


def url_counts(tables: Tables, *, errands: int) -> dict[str, object]:
    """Returns counts of URLs. errands: how many wait or are under way."""
    return {
        "accepted": tables.urls.accepted(),
        "urls": {STATES[state].value: tables.urls.counts[state] for state in range(1, 7)},
        "held": 0,
        "in_transit": tables.transit.under_way,
        "errands": errands,
    }


def fetch_counts(tables: Tables) -> dict[str, object]:
    """Returns counts of fetches, errors and traps."""
    tallies = tables.registry.tallies
    return {
        **{name: tallies.get(name, 0) for name in _TALLIES},
        "errors": {name[6:]: count for name, count in tallies.items() if name.startswith("error.")},
        "traps": {name[5:]: count for name, count in tallies.items() if name.startswith("trap.")},
    }


def statistics(
    tables: Tables,
    *,
    errands: int,
    census: Census,
    shared: GroupTurns,
    recent_bytes: int = 0,
    memory_bytes: int = 0,
    revisits: dict[str, object] | None = None,
) -> dict[str, object]:
    """Returns counts of URLs, hosts, errands and fetches, under the names of `status --json`."""
    ledger, cold = tables.urls.ledger.statistics(), tables.cold.statistics()
    seen, backlog = tables.urls.seen.statistics(), tables.urls.backlog.statistics()
    calendar, planned = tables.urls.calendar.statistics(), tables.urls.planned.statistics()
    parts = {
        "seen": seen["bytes"] + seen["contents_bytes"] + recent_bytes,
        "cards": backlog["bytes"] + calendar["bytes"] + planned["bytes"],
        "hosts": tables.hosts.bytes() + tables.cold.memory_bytes,
        "ledger": ledger.memtable_bytes + cold.memtable_bytes,
        "robots": tables.robots.rulebook.memory_bytes,
    }
    return {
        **url_counts(tables, errands=errands),
        "hosts": host_counts(tables, census),
        **({"revisits": revisits} if revisits is not None else {}),
        "groups": {"known": len(shared), "waiting": shared.waiting + tables.cold.front.at_groups.total()},
        **fetch_counts(tables),
        "payments": {name: tables.registry.tallies.get(f"payment.{name}", 0) for name in ("answers", "charged")}
        | {"hosts": tables.urls.payments.latest_hosts(PAYMENT_HOSTS_SHOWN)},
        "memory": {"limit": memory_bytes, "parts": parts, "bytes": sum(parts.values())},
        "structures": {
            "seen": seen,
            "recent": {"bytes": recent_bytes},
            "backlog": backlog,
            "calendar": calendar,
            "planned": planned,
            "hosts": {"rows": len(tables.hosts), "bytes": tables.hosts.bytes()},
            "cold_hosts": {
                "hosts": len(tables.cold),
                "bytes": tables.cold.memory_bytes,
                "runs": cold.runs,
                "disk_bytes": cold.bytes,
                "memtable_bytes": cold.memtable_bytes,
            },
            "ledger": {
                "records": ledger.records,
                "runs": ledger.runs,
                "bytes": ledger.bytes,
                "memtable_bytes": ledger.memtable_bytes,
            },
        },
    }


def workers(tables: Tables) -> list[WorkerStatus]:
    """Returns the named workers with open leases, by name."""
    leases = tables.urls.open_leases()
    deadlines, holders = leases.deadlines, leases.holders
    kinds = np.zeros(len(holders), np.int64)
    errands = [errand for errand in tables.errands.open.values() if errand.holder]
    deadlines = np.concatenate([deadlines, np.array([errand.deadline for errand in errands], np.int64)])
    holders = np.concatenate([holders, np.array([errand.holder for errand in errands], np.uint32)])
    kinds = np.concatenate([kinds, np.ones(len(errands), np.int64)])
    told = []
    for holder in np.unique(holders[holders != 0]).tolist():
        own = holders == holder
        asked = int(kinds[own].sum())
        name = tables.registry.holders[holder][0]
        first, last = int(deadlines[own].min()), int(deadlines[own].max())
        told.append(WorkerStatus(name, int(own.sum()) - asked, asked, first, last))
    return sorted(told, key=lambda worker: worker.name)


def leased_heads(tables: Tables) -> Heads:
    """Returns the heads of all leased URLs that are not void."""
    heads: Heads = tables.urls.open_leases().cards.heads
    living: Heads = heads[~tables.urls.void(heads)]
    return living


def queue_status(tables: Tables, row: int) -> QueueStatus:
    """Returns one queue by its row: its counts, and the rules of operators."""
    queues = tables.queues
    one = np.array([row], np.uint32)
    queued = int(tables.urls.backlog.waiting(one)[0])
    waiting, parked = int(queues.waiting[row]), int(queues.parked[row])
    leased = int(queues.open[row]) - queued - waiting - parked
    counts = (queued, leased, waiting, parked, int(queues.done[row]), int(queues.gone[row]))
    names = tables.key_of(row), tables.hosts.name(int(queues.host[row]))
    return status_of_queue(tables, int(queues.crawl[row]), names, counts, queues.rules.get(row))


def status_of_queue(
    tables: Tables, crawl: int, names: tuple[str, str], counts: Counts, rules: QueueRules | None
) -> QueueStatus:
    """names: its key and its host. counts: URLs that are queued, leased, waiting, parked, done, gone."""
    rules = rules or QueueRules()
    return QueueStatus(
        tables.crawls.name_of(crawl),
        *names,
        *counts,
        paused=rules.paused or tables.crawls.states[crawl] == CrawlState.PAUSED,
        blocked_until=rules.blocked_until or None,
        delay_seconds=rules.delay,
        limit=rules.limit or None,
    )


def host_statuses(tables: Tables, rows: Iterable[int], now: Instant, turns: HostSchedule) -> list[HostStatus]:
    """Returns hosts by their rows, as `hosts` lists them."""
    rows = list(rows)
    states = states_of(tables, rows, now, turns)
    return [_host_status(tables, row, state, now) for row, state in zip(rows, states, strict=True)]


def _host_status(tables: Tables, row: int, state: str, now: Instant) -> HostStatus:
    hosts, queues = tables.hosts, tables.queues
    rows = np.array(list(tables.queues_of(row)), np.uint32)
    return status_of_host(
        tables,
        (hosts.name(row), state, int(tables.urls.backlog.waiting(rows).sum()), int(hosts.in_flight[row])),
        {name: column[row].item() for name in CELLS for column in (getattr(hosts, name),)},
        [(int(queues.crawl[queue]), queues.rules.get(queue)) for queue in rows.tolist()],
        tuple(robots_status(one, tables) for one in tables.robots.of_host.get(row, ())),
        now,
    )


def status_of_host(
    tables: Tables,
    named: tuple[str, str, int, int],
    cells: Mapping[str, Any],
    queues: Sequence[tuple[int, QueueRules | None]],
    robots: tuple[RobotsStatus, ...],
    now: Instant,
) -> HostStatus:
    """named: name, state, and how many URLs are queued and leased. cells: the durable cells. queues: the crawl of each,
    and its rules."""
    rules = [rule for _, rule in queues if rule is not None]
    blocked_until = min((0 if rule is None else rule.blocked_until for _, rule in queues), default=0)
    return HostStatus(
        *named,
        cells["rest_until"] or None,
        cells["gap"] if cells["ended"] else None,
        GapReason(cells["reason"]).name.lower() if cells["reason"] else None,
        float(cells["back_off"]),
        cells["answered"],
        delay_seconds=max((rule.delay for rule in rules if rule.delay is not None), default=None),
        limit=max((rule.limit for rule in rules if rule.limit), default=None),
        paused=bool(queues)
        and all(
            (rule is not None and rule.paused) or tables.crawls.states[crawl] != CrawlState.RUNNING
            for crawl, rule in queues
        ),
        not_welcome=text_of(int(cells["block_score"])),
        payment=tables.urls.payments.of_host(named[0]),
        robots=robots,
        blocked_until=blocked_until if blocked_until > now else None,
    )


def robots_status(one: Authority, tables: Tables) -> RobotsStatus:
    """Returns the stored facts about the robots.txt of an authority."""
    ruled = one.state == RobotsState.RULES
    body = tables.robots.rulebook.body(one.digest) if ruled else b""
    return status_of_robots(one, body, tables.robots.rulebook.crawl_delay(one.digest) if ruled else 0.0)


def status_of_robots(one: Authority | ColdAuthority, body: bytes, delay: float) -> RobotsStatus:
    return RobotsStatus(
        one.name,
        RobotsState(one.state).name.lower(),
        one.status or None,
        one.fetched or None,
        max(one.expires, one.next_at) or None,
        delay or None,
        len(Rules.parse(body).sitemaps) if body else 0,
        one.error or None,
    )
