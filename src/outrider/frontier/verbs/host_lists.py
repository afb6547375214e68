"""Lists of queues and hosts, some rows at a time: hosts in memory, and cold hosts from their records."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import islice

import numpy as np

from outrider.clock import Instant
from outrider.errors import SettingsError, shown
from outrider.frontier.schedule.host_schedule import HostSchedule
from outrider.frontier.state.authorities import Authority, RobotsState
from outrider.frontier.state.cold import ColdAuthority, ColdRecords
from outrider.frontier.state.crawls import CrawlState
from outrider.frontier.state.hosts import NONE, queue_hashes
from outrider.frontier.state.tables import Tables
from outrider.frontier.stores.rulebook import crawl_delay_of
from outrider.frontier.verbs import arguments
from outrider.frontier.verbs.census import HOST_STATES, rows_in
from outrider.frontier.verbs.statuses import (
    host_statuses,
    queue_status,
    status_of_host,
    status_of_queue,
    status_of_robots,
)
from outrider.journey import HostStatus, ListPage, QueueStatus, RobotsStatus
from outrider.limits import (
    LISTED_HOSTS_PER_STEP,
    LISTED_READ_BYTES,
    LISTED_ROBOTS_MAX,
)
from outrider.url.keys import key_of_name


def check_state(state: object) -> None:
    """Raises SettingsError for a word that is not a state of hosts."""
    if not isinstance(state, str) or state not in HOST_STATES:
        raise SettingsError(f"state {shown(state)}: use one of {', '.join(HOST_STATES)}")


def list_queues(tables: Tables, crawl: str | None, after: str | None, limit: int) -> ListPage[QueueStatus]:
    """Yields queues in the order of their hosts' hashes."""
    limit = arguments.rows(limit)
    wanted = None
    if crawl is not None:
        wanted = tables.crawls.rows.get(crawl)
        if wanted is None:
            raise SettingsError(f"crawl {shown(crawl, 200)}: this frontier has no crawl of that name")
    found: list[QueueStatus] = []
    host_after, queue_after = hashes_after(after, 2, "queues")
    cursor = ""
    for number, home in _hosts_from(tables, host_after):
        for queue, status in _queues_there(tables, number, home, wanted):
            if (number, queue) <= (host_after, queue_after):
                continue
            if len(found) == limit:
                return ListPage(found, cursor)
            found.append(status)
            cursor = f"h{number:016x}.{queue:016x}"
    return ListPage(found, None)


def list_hosts(
    tables: Tables, turns: HostSchedule, now: Instant, after: str | None, limit: int
) -> Generator[None, None, ListPage[HostStatus]]:
    """Lists hosts in the order of their hashes. It yields between its steps."""
    limit = arguments.rows(limit)
    found: list[HostStatus] = []
    (beyond,) = hashes_after(after, 1, "hosts")
    while True:
        want = min(LISTED_HOSTS_PER_STEP, limit + 1 - len(found))
        some = list(islice(_hosts_from(tables, beyond + 1), want))
        hot = host_statuses(tables, (home for _, home in some if not isinstance(home, tuple)), now, turns)
        told = iter(hot)
        for number, home in some:
            if len(found) == limit:
                return ListPage(found, f"h{beyond:016x}")
            if isinstance(home, tuple):
                found.append(_cold_status(tables, *home, now, seeks=turns.shared.asks))
            else:
                found.append(next(told))
            beyond = number
        if len(some) < want:
            return ListPage(found, None)
        yield


def list_robots_files(
    tables: Tables, after: str | None, bytes_max: int
) -> Generator[None, None, ListPage[tuple[RobotsStatus, bytes]]]:
    """Lists robots.txt files with their bodies, in the order of the hashes of their hosts; a piece ends at the host
    with which it has `bytes_max` of them. It yields between its steps."""
    found: list[tuple[RobotsStatus, bytes]] = []
    (beyond,) = hashes_after(after, 1, "robots.txt files")
    size = 0
    while True:
        some = list(islice(_hosts_from(tables, beyond + 1), LISTED_HOSTS_PER_STEP))
        for number, home in some:
            if size >= bytes_max or len(found) >= LISTED_ROBOTS_MAX:
                return ListPage(found, f"h{beyond:016x}")
            for one, body in _files_there(tables, home):
                delay = crawl_delay_of(body, tables.robots.rulebook.agent) if body else 0.0
                found.append((status_of_robots(one, body, delay), body))
                size += len(body)
            beyond = number
        if len(some) < LISTED_HOSTS_PER_STEP:
            return ListPage(found, None)
        yield


def _files_there(
    tables: Tables, home: int | tuple[ColdRecords, int]
) -> Iterator[tuple[Authority | ColdAuthority, bytes]]:
    """Yields the robots.txt files of one host, each with its body, b"" without rules."""
    rulebook = tables.robots.rulebook
    if not isinstance(home, tuple):
        for one in tables.robots.of_host.get(home, ()):
            yield one, rulebook.body(one.digest) if one.state == RobotsState.RULES else b""
        return
    told, place = home
    for cold in told.authorities(place):
        yield cold, (cold.body or rulebook.body(cold.digest)) if cold.state == RobotsState.RULES else b""


def list_hosts_in(
    state: str, tables: Tables, turns: HostSchedule, now: Instant, after: str | None, limit: int
) -> Generator[None, None, ListPage[HostStatus]]:
    """Lists hosts in one state, as `list_hosts`. It reads all hosts in memory, in bounded steps, and the records of
    cold ones if they may be in this state. Raises SettingsError."""
    limit = arguments.rows(limit)
    check_state(state)
    if (state == "empty" and tables.cold.ever) or any(tables.cold.with_cards()):
        page = yield from list_hosts(tables, turns, now, after, limit)
        return ListPage([one for one in page if one.state == state], page.cursor)
    (beyond,) = hashes_after(after, 1, "hosts")
    rows = yield from rows_in(HOST_STATES.index(state), tables, turns, now)
    hashes = np.sort(tables.hosts.hash[rows])
    hashes = hashes[hashes > np.uint64(beyond)] if beyond >= 0 else hashes
    found: list[HostStatus] = []
    for first in range(0, min(len(hashes), limit), LISTED_HOSTS_PER_STEP):
        yield
        homes = tables.hosts.find(hashes[first : min(first + LISTED_HOSTS_PER_STEP, limit)])
        told = host_statuses(tables, (row for row in homes.tolist() if row != NONE), now, turns)
        found += [one for one in told if one.state == state]
    return ListPage(found, f"h{int(hashes[limit - 1]):016x}" if len(hashes) > limit else None)


def hashes_after(after: str | None, count: int, what: str) -> tuple[int, ...]:
    """Returns the hashes after which a list continues, from its cursor. Raises SettingsError."""
    if after is None:
        return (-1,) * count
    try:
        hashes = tuple(int(part, 16) for part in after.removeprefix("h").split("."))
    except (AttributeError, TypeError, ValueError):
        hashes = ()
    if len(hashes) != count or not after.startswith("h") or max(hashes) >= 1 << 64 or min(hashes) < 0:
        raise SettingsError(f"after {shown(after)}: use the cursor of an earlier list of {what}")
    return hashes


def _hosts_from(tables: Tables, least: int) -> Iterator[tuple[int, int | tuple[ColdRecords, int]]]:
    """Yields all hosts with hashes from `least` on, in the order of hashes, each with its row. A cold host has its
    record and the place in it instead. Memory contains about a thousand of them at a time."""
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


def _cold_from(tables: Tables, least: int) -> Iterator[tuple[int, tuple[ColdRecords, int]]]:
    for told in tables.cold.scan(after=least - 1 if least > 0 else None, bytes_at_once=LISTED_READ_BYTES):
        for place, number in enumerate(told.hashes.tolist()):
            yield number, (told, place)


def _hot_from(tables: Tables, least: int) -> Iterator[tuple[int, int]]:
    """Yields hosts in memory by their hashes, in windows of the range of hashes, of some hosts each, because hashes are
    spread evenly. The window grows if it contains few hosts."""
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
    tables: Tables, number: int, home: int | tuple[ColdRecords, int], crawl: int | None
) -> list[tuple[int, QueueStatus]]:
    """Returns the queues of one host, ordered by their hashes: of one crawl, or of all crawls that are not deleted."""
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
            counts = (queue.queued, 0, queue.waiting, 0, queue.done, queue.gone)
            names = key_of_name(name) or name, name
            found.append((int(hashed[0]), status_of_queue(tables, queue.crawl, names, counts, queue.rules)))
    return sorted(found, key=lambda one: one[0])


def _listed(tables: Tables, crawl: int, wanted: int | None) -> bool:
    return tables.crawls.states[crawl] != CrawlState.DELETED and wanted in (None, crawl)


def _cold_status(tables: Tables, told: ColdRecords, place: int, now: Instant, *, seeks: bool) -> HostStatus:
    """As `_host_status`, for a cold host, from its record. seeks: whether errands resolve addresses."""
    head = told.heads[place]
    cells = {name: head[name].item() for name in ("ended", "gap", "reason", "answered")}
    rest_until = int(tables.cold.rest_floor(told)[place])
    crawl = told.queues(place)[0].crawl
    queued = 0 if tables.crawls.gone[crawl] else int(head["queued"])
    state = "empty"
    if queued:
        runs = tables.crawls.states[crawl] == CrawlState.RUNNING
        one = told.take(np.array([place]))
        waits = (seeks and not one.leaving().located[0]) or tables.cold.front.are_at_groups(one.hashes)[0]
        state = "blocked" if not runs else "resting" if waits or rest_until > now else "ready"
    rulebook = tables.robots.rulebook
    return status_of_host(
        tables,
        (told.names.take(np.array([place])).list()[0], state, queued, 0),
        cells | told.rare_cells(place) | {"rest_until": rest_until},
        [(queue.crawl, queue.rules) for queue in told.queues(place)],
        tuple(
            status_of_robots(one, body, crawl_delay_of(body, rulebook.agent))
            for one in told.authorities(place)
            for body in ((one.body or rulebook.body(one.digest)) if one.state == RobotsState.RULES else b"",)
        ),
        now,
    )
