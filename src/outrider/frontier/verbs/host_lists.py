"""Lists of queues and hosts, some rows at a time: hosts in memory, and cold ones from their records."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import islice

import numpy as np

from outrider.clock import Instant
from outrider.errors import SettingsError, shown
from outrider.frontier.schedule.turns import Turns
from outrider.frontier.state.authorities import RobotsState
from outrider.frontier.state.cold import Told
from outrider.frontier.state.crawls import CrawlState
from outrider.frontier.state.hosts import NONE, queue_hashes
from outrider.frontier.state.tables import Tables
from outrider.frontier.stores.rulebook import crawl_delay_of
from outrider.frontier.verbs import arguments
from outrider.frontier.verbs.accounts import (
    host_statuses,
    queue_status,
    status_of_host,
    status_of_queue,
    status_of_robots,
)
from outrider.frontier.verbs.census import HOST_STATES, rows_in
from outrider.journey import (
    HostStatus,
    Page,
    QueueStatus,
)
from outrider.limits import (
    LISTED_HOSTS_PER_STEP,
    LISTED_READ_BYTES,
)

_ROW_DIGITS_MAX = 10
_HASHED = "h"
"""The first character of a cursor by hash."""


def check_state(state: object) -> None:
    """Raises SettingsError for a word that is no state of hosts."""
    if not isinstance(state, str) or state not in HOST_STATES:
        raise SettingsError(f"state {shown(state)}: give one of {', '.join(HOST_STATES)}")


def row_after(after: str | None, what: str) -> int:
    """The first row behind a cursor. As long as no host went cold no row is used twice, so a row serves as a cursor."""
    if after is None:
        return 0
    if not isinstance(after, str) or not after.isascii() or not after.isdigit() or len(after) > _ROW_DIGITS_MAX:
        raise SettingsError(f"after {shown(after)}: give the cursor of an earlier list of {what}")
    return int(after) + 1


def list_queues(tables: Tables, crawl: str | None, after: str | None, limit: int) -> Page[QueueStatus]:
    """Queues in the order in which they were made; once a host went cold, in the order of their hosts' hashes."""
    limit = arguments.rows(limit)
    wanted = None
    if crawl is not None:
        wanted = tables.crawls.rows.get(crawl)
        if wanted is None:
            raise SettingsError(f"crawl {shown(crawl, 200)}: there is none of that name")
    found: list[QueueStatus] = []
    if _by_hash(tables, after):
        host_after, queue_after = _hashes_after(after, 2, "queues")
        cursor = ""
        for number, home in _hosts_from(tables, host_after):
            for queue, status in _queues_there(tables, number, home, wanted):
                if (number, queue) <= (host_after, queue_after):
                    continue
                if len(found) == limit:
                    return Page(found, cursor)
                found.append(status)
                cursor = f"{_HASHED}{number:016x}.{queue:016x}"
        return Page(found, None)
    row = row_after(after, "queues")
    while row < tables.queues.count and len(found) < limit:
        of = int(tables.queues.crawl[row])
        if tables.crawls.states[of] != CrawlState.DELETED and wanted in (None, of):
            found.append(queue_status(tables, row))
        row += 1
    return Page(found, str(row - 1) if row < tables.queues.count else None)


def list_hosts(
    tables: Tables, turns: Turns, now: Instant, after: str | None, limit: int
) -> Generator[None, None, Page[HostStatus]]:
    """Hosts in the order in which they became known; once a host went cold, in the order of their hashes. It yields
    between its steps."""
    limit = arguments.rows(limit)
    found: list[HostStatus] = []
    if not _by_hash(tables, after):
        row = row_after(after, "hosts")
        # Once a host went cold a row may be another host's: the rest of the list goes by hashes.
        while row < tables.hosts.count and len(found) < limit and not tables.cold.ever:
            last = min(row + LISTED_HOSTS_PER_STEP, row + limit - len(found), tables.hosts.count)
            found += host_statuses(tables, range(row, last), now, turns)
            row = last
            yield
        return Page(found, str(row - 1) if row < tables.hosts.count else None)
    (beyond,) = _hashes_after(after, 1, "hosts")
    while True:
        want = min(LISTED_HOSTS_PER_STEP, limit + 1 - len(found))
        some = list(islice(_hosts_from(tables, beyond + 1), want))
        hot = host_statuses(tables, (home for _, home in some if not isinstance(home, tuple)), now, turns)
        told = iter(hot)
        for number, home in some:
            if len(found) == limit:
                return Page(found, f"{_HASHED}{beyond:016x}")
            found.append(_cold_status(tables, *home, now) if isinstance(home, tuple) else next(told))
            beyond = number
        if len(some) < want:
            return Page(found, None)
        yield


def list_hosts_in(
    state: str, tables: Tables, turns: Turns, now: Instant, after: str | None, limit: int
) -> Generator[None, None, Page[HostStatus]]:
    """Hosts in one state, as `list_hosts`; it looks at all hosts in memory, in bounded steps. Raises SettingsError."""
    limit = arguments.rows(limit)
    check_state(state)
    if state == "empty" and tables.cold.ever:
        page = yield from list_hosts(tables, turns, now, after, limit)
        return Page([one for one in page if one.state == state], page.cursor)
    by_hash = _by_hash(tables, after)
    beyond = _hashes_after(after, 1, "hosts")[0] if by_hash else row_after(after, "hosts") - 1
    rows = yield from rows_in(HOST_STATES.index(state), tables, turns, now)
    places = tables.hosts.hash[rows] if by_hash else rows.astype(np.uint64)
    places = np.sort(places[places > np.uint64(beyond)] if beyond >= 0 else places)
    found: list[HostStatus] = []
    for first in range(0, min(len(places), limit), LISTED_HOSTS_PER_STEP):
        yield
        some = places[first : min(first + LISTED_HOSTS_PER_STEP, limit)]
        homes = tables.hosts.find(some) if by_hash else some.astype(np.uint32)
        told = host_statuses(tables, (row for row in homes.tolist() if row != NONE), now, turns)
        found += [one for one in told if one.state == state]
    if len(places) <= limit:
        return Page(found, None)
    last = int(places[limit - 1])
    return Page(found, f"{_HASHED}{last:016x}" if by_hash else str(last))


def _by_hash(tables: Tables, after: str | None) -> bool:
    """Whether a list goes by hashes: it does once any host went cold, and to its end when it began so."""
    return tables.cold.ever or (isinstance(after, str) and after.startswith(_HASHED))


def _hashes_after(after: str | None, count: int, what: str) -> tuple[int, ...]:
    """The hashes behind which a list goes on. A cursor from the time before any host went cold begins the list again:
    some rows come twice, and no row is left out."""
    nothing = (-1,) * count
    if after is None or (isinstance(after, str) and after.isascii() and after.isdigit()):
        return nothing
    try:
        hashes = tuple(int(part, 16) for part in after.removeprefix(_HASHED).split("."))
    except (AttributeError, ValueError):
        hashes = ()
    if len(hashes) != count or not after.startswith(_HASHED) or max(hashes) >= 1 << 64 or min(hashes) < 0:
        raise SettingsError(f"after {shown(after)}: give the cursor of an earlier list of {what}")
    return hashes


def _hosts_from(tables: Tables, least: int) -> Iterator[tuple[int, int | tuple[Told, int]]]:
    """All hosts with hashes from `least` on, in the order of hashes, each with its row or, when it is cold, its record
    and the place in it. Memory holds about a thousand of them at a time."""
    if least >= 1 << 64:
        return
    cold = _cold_from(tables, least)
    ahead = next(cold, None)
    for number, row in _hot_from(tables, least):
        while ahead is not None and ahead[0] < number:
            yield ahead
            ahead = next(cold, None)
        yield number, row
    while ahead is not None:
        yield ahead
        ahead = next(cold, None)


def _cold_from(tables: Tables, least: int) -> Iterator[tuple[int, tuple[Told, int]]]:
    for told in tables.cold.scan(after=least - 1 if least > 0 else None, bytes_at_once=LISTED_READ_BYTES):
        for place, number in enumerate(told.hashes.tolist()):
            yield number, (told, place)


def _hot_from(tables: Tables, least: int) -> Iterator[tuple[int, int]]:
    """Hosts in memory by their hashes: a window of all hashes after another, of some hosts each, for hashes lie evenly.
    The window grows where it holds few."""
    hosts, least = tables.hosts, max(least, 0)
    width = ((1 << 64) // max(1, len(hosts)) + 1) * LISTED_HOSTS_PER_STEP
    while least < 1 << 64:
        width = min(width, (1 << 64) - least)
        inside = hosts.hash[: hosts.count] - np.uint64(least) <= np.uint64(width - 1)
        rows = np.flatnonzero(inside & hosts.there[: hosts.count])
        hashes = hosts.hash[rows]
        order = np.argsort(hashes)
        yield from zip(hashes[order].tolist(), rows[order].tolist(), strict=True)
        least += width
        width *= 2 if len(rows) < LISTED_HOSTS_PER_STEP else 1


def _queues_there(
    tables: Tables, number: int, home: int | tuple[Told, int], crawl: int | None
) -> list[tuple[int, QueueStatus]]:
    """The queues of one host, ordered by their hashes: of one crawl, or of all crawls that were not deleted."""
    if not isinstance(home, tuple):
        queues = tables.queues
        rows = [(int(queues.hash[row]), row) for row in tables.queues_of(home)]
        return [
            (queue, queue_status(tables, row))
            for queue, row in sorted(rows)
            if _listed(tables, int(queues.crawl[row]), crawl)
        ]
    told, place = home
    name = told.names.take(np.array([place])).list()[0]
    found = []
    for queue in told.queues(place):
        if _listed(tables, queue.crawl, crawl):
            hashed = queue_hashes(np.array([number], np.uint64), np.array([queue.crawl], np.uint32))
            counts = (0, 0, queue.waiting, 0, queue.done, queue.gone)
            found.append((int(hashed[0]), status_of_queue(tables, queue.crawl, (name, name), counts, queue.rules)))
    return sorted(found, key=lambda one: one[0])


def _listed(tables: Tables, crawl: int, wanted: int | None) -> bool:
    return tables.crawls.states[crawl] != CrawlState.DELETED and wanted in (None, crawl)


def _cold_status(tables: Tables, told: Told, place: int, now: Instant) -> HostStatus:
    """As `_host_status`, for a cold host, from its record."""
    head = told.heads[place]
    cells = {name: head[name].item() for name in ("ended", "gap", "reason", "answered")}
    rest_until = int(tables.cold.rest_floor(told)[place])
    rulebook = tables.robots.rulebook
    return status_of_host(
        tables,
        (told.names.take(np.array([place])).list()[0], "empty", 0, 0),
        cells | told.rare_cells(place) | {"rest_until": rest_until},
        [(queue.crawl, queue.rules) for queue in told.queues(place)],
        tuple(
            status_of_robots(one, body, crawl_delay_of(body, rulebook.agent))
            for one in told.authorities(place)
            for body in ((one.body or rulebook.body(one.digest)) if one.state == RobotsState.RULES else b"",)
        ),
        now,
    )
