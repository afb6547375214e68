"""What the tables say when they are asked: a URL's status, the counts, and a recount that finds a counter that lies.

Asking changes no row.
"""

from __future__ import annotations

from outrider.clock import Instant
from outrider.frontier.tables import GONE, LEASED, PARKED, STATES, WAITING, Reason, Tables, Url
from outrider.journey import UrlStatus, Verification


def status_of(url: Url, tables: Tables) -> UrlStatus:
    """What is known of one URL."""
    return UrlStatus(
        url.url,
        STATES[url.state],
        reason=_reason_text(url),
        crawl=tables.crawls[url.queue.crawl][0],
        key=url.queue.key,
        priority=url.priority,
        depth=url.depth,
        attempts=url.attempts,
        referrer=url.referrer or None,
        status=url.status or None,
        error=url.error or None,
        due=url.due if url.state == WAITING else None,
        token=url.token if url.state == LEASED else None,
    )


def _reason_text(url: Url) -> str | None:
    if url.state not in (PARKED, GONE):
        return None
    return url.error if url.error and url.reason != Reason.BUDGET else Reason(url.reason).name.lower()


def statistics(tables: Tables, now: Instant, *, errands: int) -> dict[str, object]:
    """Counts of URLs, hosts, errands and what was fetched; the names of `status --json`."""
    hosts = {"known": len(tables.hosts), "ready": 0, "resting": 0, "blocked": 0, "empty": 0}
    for host in tables.hosts.values():
        queued = any(queue.best() for queue in host.queues)
        pending = host.leases or host.errands or queued
        if host.rest_until > now and host.back_off and pending:
            hosts["blocked"] += 1
        elif not pending:
            hosts["empty"] += 1
        elif host.leases or host.rest_until > now or not (queued or any(a.next_at <= now for a in host.errands)):
            hosts["resting"] += 1
        else:
            hosts["ready"] += 1
    errors = {name[6:]: value for name, value in tables.tallies.items() if name.startswith("error.")}
    return {
        "accepted": tables.accepted(),
        "urls": {STATES[state].value: tables.counts[state] for state in range(1, 7)},
        "held": 0,
        "in_transit": tables.in_transit,
        "errands": errands,
        "hosts": hosts,
        "answered": tables.tallies.get("answered", 0),
        "bytes": tables.tallies.get("bytes", 0),
        "duplicates": tables.tallies.get("duplicates", 0),
        "stale": tables.tallies.get("stale", 0),
        "lost": tables.tallies.get("lost", 0),
        "errors": errors,
    }


def recount(tables: Tables) -> Verification:
    """Recount everything from the rows and hold it against the counters."""
    counts = [0] * 7
    problems = []
    leases = 0
    for slot, home in tables.slots.items():
        seen = sum(len(urls) for urls in home.seen.values())
        if seen != len(home.urls):
            problems.append(f"slot {slot}: {len(home.urls)} URLs but {seen} keys in the seen-set")
        for url in home.urls:
            counts[url.state] += 1
            if url.state == LEASED:
                leases += 1
                if tables.leases.get(url.token) is not url:
                    problems.append(f"{url.url} is leased, but token {url.token} is not its")
    problems.extend(
        f"{STATES[state].value}: the counter says {tables.counts[state]}, the rows say {counts[state]}"
        for state in range(7)
        if counts[state] != tables.counts[state]
    )
    pages = sum(1 for owner in tables.leases.values() if isinstance(owner, Url))
    if pages != leases:
        problems.append(f"{pages} leases are open, {leases} URLs are leased")
    transit = sum(len(home.outbox) for home in tables.slots.values())
    if transit != tables.in_transit:
        problems.append(f"in_transit: the counter says {tables.in_transit}, the outboxes hold {transit}")
    turns = dict.fromkeys(tables.hosts, 0)
    for owner in tables.leases.values():
        busy = owner.queue.host if isinstance(owner, Url) else owner.busy
        if busy is not None:
            turns[busy.name] += 1
    problems.extend(
        f"host {name}: {host.leases} turns are taken, {turns[name]} leases are open"
        for name, host in tables.hosts.items()
        if host.leases != turns[name]
    )
    names = {STATES[state].value: counts[state] for state in range(1, 7)}
    return Verification(not problems, tuple(problems), {"accepted": sum(counts), **names})
