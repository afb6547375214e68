"""The tables of state: rows of hosts, authorities, queues and URLs per slot, changed only by applying facts.

A row keeps its number for ever (rows are only appended), so a range of rows is what a checkpoint copies and what a
fact names. `apply` is the only way in, for a live call and for replay alike; it calls no policy, clock or random
source.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum

from outrider.clock import Instant
from outrider.errors import DamagedStoreError
from outrider.frontier.facts import STREAMS, Block, Fact, Row
from outrider.frontier.priority import class_of
from outrider.journey import State
from outrider.limits import CLIENTS_MAX, OWN_SLOT, REQUEST_BYTES_MAX, REQUEST_IDS_PER_CLIENT_MAX
from outrider.url import host_of

STATES = (State.UNKNOWN, State.QUEUED, State.LEASED, State.WAITING, State.PARKED, State.DONE, State.GONE)
UNKNOWN, QUEUED, LEASED, WAITING, PARKED, DONE, GONE = range(7)


class Reason(IntEnum):
    """Why a URL is parked or gone."""

    NONE = 0
    BUDGET = 1
    ROBOTS = 2
    STATUS = 3
    ERROR = 4
    LOST = 5
    REDIRECT_SELF = 6


class RobotsState(IntEnum):
    """What is known of an authority's robots.txt."""

    UNKNOWN = 0
    RULES = 1
    ALLOW = 2
    RETRYING = 3
    REFUSED = 4
    DEAD = 5


class Url:
    """One accepted URL: what a lease needs, and what the last attempt brought."""

    __slots__ = (
        "attempts",
        "authority",
        "deadline",
        "depth",
        "digest",
        "due",
        "error",
        "etag",
        "fingerprint",
        "holder",
        "hops",
        "klass",
        "losses",
        "metadata",
        "modified",
        "not_before",
        "place",
        "priority",
        "queue",
        "reason",
        "referrer",
        "row",
        "slot",
        "state",
        "status",
        "token",
        "url",
        "visited",
    )

    def __init__(self, slot: int, row: int, queue: Queue, fingerprint: int, url: str) -> None:
        self.slot = slot
        self.row = row
        self.queue = queue
        self.fingerprint = fingerprint
        self.url = url
        self.authority: Authority | None = None
        self.state = UNKNOWN
        self.reason = 0
        self.due: Instant = 0
        self.priority = 0.5
        self.klass = 8
        self.depth = 0
        self.hops = 0
        self.referrer = ""
        self.metadata = b""
        self.attempts = 0
        self.losses = 0
        self.status = 0
        self.error = ""
        self.token = 0
        self.deadline: Instant = 0
        self.not_before: Instant = 0
        self.holder = 0
        self.visited: Instant = 0
        self.digest = b""
        self.etag = ""
        self.modified = ""
        self.place = 0  # how often it was put into a queue's heap: an entry with another number is stale

    def __repr__(self) -> str:
        return f"<Url {self.url} {STATES[self.state]}>"


class Authority:
    """Scheme, host and port: whose robots.txt it is."""

    __slots__ = (
        "attempts",
        "body",
        "busy",
        "deadline",
        "digest",
        "error",
        "expires",
        "held",
        "holder",
        "hops",
        "host",
        "klass",
        "name",
        "next_at",
        "parked",
        "recheck",
        "row",
        "slot",
        "state",
        "status",
        "token",
        "url",
        "wanted",
    )

    def __init__(self, slot: int, row: int, host: Host, name: str) -> None:
        self.slot = slot
        self.row = row
        self.host = host
        self.name = name
        self.state = RobotsState.UNKNOWN
        self.expires: Instant = 0
        self.next_at: Instant = 0
        self.attempts = 0
        self.hops = 0
        self.status = 0
        self.url = ""  # where its robots.txt is asked for: its own, or the hop of a redirect
        self.error = ""
        self.digest = 0
        self.body = b""
        self.token = 0
        self.deadline: Instant = 0
        self.holder = 0
        self.busy: Host | None = None  # whose clock the open errand uses
        self.wanted: Host | None = None  # URLs wait for it; where its errand is lined up
        self.held: list[Url] = []  # drawn, but its rules are not known yet
        self.klass = -1  # the best class among them
        self.parked: list[Url] = []  # refused by the rules in force
        self.recheck: list[Url] = []  # refused by older rules, to be judged again

    def __repr__(self) -> str:
        return f"<Authority {self.name} {RobotsState(self.state).name.lower()}>"


class Queue:
    """The URLs of one (crawl, key, host), best first: a heap of (-class, due, row, place, Url)."""

    __slots__ = ("crawl", "group", "heap", "host", "key", "row", "served", "slot")

    def __init__(self, slot: int, row: int, crawl: int, host: Host, key: str) -> None:
        self.slot = slot
        self.row = row
        self.crawl = crawl
        self.host = host
        self.key = key
        self.heap: list[tuple[int, Instant, int, int, Url]] = []
        self.group: Group | None = None
        self.served = 0  # the turn in which it was served last

    def best(self) -> Url | None:
        """The URL that comes next; entries that were overtaken drop out."""
        heap = self.heap
        while heap:
            entry = heap[0]
            url = entry[4]
            if url.state == QUEUED and url.place == entry[3]:
                return url
            heapq.heappop(heap)
        return None


class Group:
    """A key that spans hosts: one turn at a time for all its queues, and one clock."""

    __slots__ = ("busy", "queues", "rest_until")

    def __init__(self) -> None:
        self.busy = 0
        self.rest_until: Instant = 0
        self.queues: list[Queue] = []


class Host:
    """Who answers at a host name: the clock, the back-off, and who waits for it."""

    __slots__ = (
        "answered",
        "authorities",
        "back_off",
        "booked",
        "booked_stamp",
        "ended",
        "errands",
        "gap",
        "leases",
        "name",
        "queues",
        "ready_at",
        "reason",
        "refused_at",
        "rest_until",
        "ring",
        "row",
        "slot",
        "stamp",
        "turns",
    )

    def __init__(self, slot: int, row: int, name: str) -> None:
        self.slot = slot
        self.row = row
        self.name = name
        self.ended: Instant = 0
        self.rest_until: Instant = 0
        self.gap = 0.0
        self.reason = 0
        self.back_off = 0.0
        self.refused_at: Instant = 0
        self.answered = 0
        self.leases = 0
        self.queues: list[Queue] = []
        self.authorities: list[Authority] = []
        self.errands: list[Authority] = []  # robots.txt files to ask for at this host
        self.ring = -1  # class of the ring it stands in, -1: none
        self.stamp = 0  # entries of rings and heaps with another number are stale
        self.ready_at: Instant = 0
        self.booked: Instant = 0  # where it stands in the timetable, while its stamp is `booked_stamp`
        self.booked_stamp = -1
        self.turns = 0  # how often it was drawn for a page

    def __repr__(self) -> str:
        return f"<Host {self.name}>"


class Slot:
    """The rows of one slot."""

    __slots__ = ("arrived", "authorities", "hosts", "outbox", "queues", "seen", "sent", "urls")

    def __init__(self) -> None:
        self.outbox: dict[int, Row] = {}  # sequence -> link for a slot of another log
        self.sent = 0  # the highest sequence ever given
        self.arrived: dict[int, int] = {}  # source slot -> the highest sequence taken in
        self.hosts: list[Host] = []
        self.authorities: list[Authority] = []
        self.queues: list[Queue] = []
        self.urls: list[Url] = []
        self.seen: dict[int, dict[int, Url]] = {}  # crawl -> low 56 bits of the fingerprint -> URL

    def rows(self, section: int) -> int:
        """How many rows a section (HOSTS, AUTHORITIES, QUEUES, URLS) has."""
        return len((self.hosts, self.authorities, self.queues, self.urls)[section - HOSTS])


SEEN_BITS = (1 << 56) - 1


class Tables:
    """All rows, and what belongs to no slot."""

    def __init__(self) -> None:
        self.slots: dict[int, Slot] = {}
        self.hosts: dict[str, Host] = {}
        self.authorities: dict[str, Authority] = {}
        self.queues: dict[tuple[int, str, str], Queue] = {}
        self.groups: dict[tuple[int, str], Group] = {}
        self.crawls: list[tuple[str, int]] = []
        self.crawl_rows: dict[str, int] = {}
        self.holders: list[tuple[str, int]] = []
        self.holder_rows: dict[str, int] = {}
        self.requests: OrderedDict[str, OrderedDict[int, tuple[int, bytes]]] = OrderedDict()
        self.request_bytes = 0
        self.watermarks: dict[str, bytes] = {}
        self.projections: dict[str, tuple[int, int]] = dict.fromkeys(STREAMS, (0, 0))
        self.tallies: dict[str, int] = {}
        self.scope: dict[int, dict[str, None]] = {}  # crawl -> the seeds that widened it, in order
        self.token = 0
        self.opening: tuple[int, Instant, Instant, str, Instant] = (0, 0, 0, "", 0)
        self.closed = ""
        self.leases: dict[int, Url | Authority] = {}
        self.counts = [0] * 7
        self.in_transit = 0  # links on their way to other logs
        self.now: Instant = 0
        self.contents: dict[bytes, int] = {}
        self.changed: list[Host] = []  # hosts whose turn must be looked at again
        self.placed: list[Url] = []  # URLs whose state changed
        self._apply: dict[Fact, Callable[..., None]] = {
            Fact.OPENING: self._opening,
            Fact.CLOSING: self._closing,
            Fact.CRAWL: self._crawl,
            Fact.HOLDER: self._holder,
            Fact.REQUEST: self._request,
            Fact.WATERMARK: self._watermark,
            Fact.PROJECTION: self._projection,
            Fact.TALLY: self._tally,
            Fact.SCOPE: self._scope,
            Fact.TOKEN: self._token,
            Fact.HOST: self._host,
            Fact.HOST_CELLS: self._host_cells,
            Fact.AUTHORITY: self._authority,
            Fact.ROBOTS: self._robots,
            Fact.RULES: self._rules,
            Fact.QUEUE: self._queue,
            Fact.OUTBOX: self._outbox,
            Fact.ARRIVED: self._arrived,
            Fact.DELIVERED: self._delivered,
            Fact.URL: self._url,
            Fact.URL_CELLS: self._url_cells,
            Fact.VISIT: self._visit,
            Fact.LEASE: self._lease,
            Fact.ERRAND: self._errand,
            Fact.LINE: self._line,
        }

    # -- applying facts -----------------------------------------------------------------------------------------------

    def apply(self, kind: int, rows: Sequence[Row]) -> None:
        """Apply the facts of one block. Raises DamagedStoreError when they name rows that do not exist."""
        try:
            each = self._apply[Fact(kind)]
            for row in rows:
                each(*row)
        except (IndexError, KeyError) as error:
            raise DamagedStoreError(
                f"a fact of kind {Fact(kind).name.lower()} names a row that does not exist ({error})"
            ) from error

    def slot(self, slot: int) -> Slot:
        found = self.slots.get(slot)
        if found is None:
            found = self.slots[slot] = Slot()
        return found

    def _opening(self, slot: int, number: int, at: int, wall: int, boot: str, elapsed: int) -> None:
        if number >= self.opening[0]:
            self.opening = (number, at, wall, boot, elapsed)
            self.closed = ""

    def _closing(self, slot: int, number: int, state: str) -> None:
        if number >= self.opening[0]:
            self.closed = state

    def _crawl(self, slot: int, row: int, name: str, generation: int) -> None:
        if row == len(self.crawls):
            self.crawls.append((name, generation))
        self.crawls[row] = (name, generation)
        self.crawl_rows[name] = row

    def _holder(self, slot: int, row: int, name: str, opening: int) -> None:
        if row == len(self.holders):
            self.holders.append((name, opening))
        self.holders[row] = (name, opening)
        self.holder_rows[name] = row

    def _request(self, slot: int, client: str, sequence: int, verb: int, answer: bytes) -> None:
        window = self.requests.get(client)
        if window is None:
            window = self.requests[client] = OrderedDict()
        self.requests.move_to_end(client)
        if sequence in window:
            self.request_bytes -= len(window[sequence][1])
        window[sequence] = (verb, answer)
        self.request_bytes += len(answer)
        while len(window) > REQUEST_IDS_PER_CLIENT_MAX:
            self._forget_request(window)
        while len(self.requests) > CLIENTS_MAX or self.request_bytes > REQUEST_BYTES_MAX:
            oldest = next(iter(self.requests))
            self._forget_request(self.requests[oldest])
            if not self.requests[oldest]:
                del self.requests[oldest]

    def _forget_request(self, window: OrderedDict[int, tuple[int, bytes]]) -> None:
        _, (_, answer) = window.popitem(last=False)
        self.request_bytes -= len(answer)

    def _watermark(self, slot: int, writer: str, value: bytes) -> None:
        self.watermarks[writer] = value

    def _projection(self, slot: int, stream: str, length: int, lsn: int) -> None:
        self.projections[stream] = (length, lsn)

    def _tally(self, slot: int, name: str, value: int) -> None:
        self.tallies[name] = value

    def _scope(self, slot: int, crawl: int, url: str) -> None:
        self.scope.setdefault(crawl, {})[url] = None

    def _token(self, slot: int, token: int) -> None:
        self.token = max(self.token, token)

    def _host(self, slot: int, row: int, name: str) -> None:
        hosts = self.slot(slot).hosts
        if row < len(hosts):
            return
        assert row == len(hosts), (slot, row, len(hosts))
        host = Host(slot, row, name)
        hosts.append(host)
        self.hosts[name] = host

    def _host_cells(
        self,
        slot: int,
        row: int,
        ended: int,
        rest_until: int,
        gap: float,
        reason: int,
        back_off: float,
        refused_at: int,
        answered: int,
    ) -> None:
        host = self.slots[slot].hosts[row]
        host.ended = ended
        host.rest_until = rest_until
        host.gap = gap
        host.reason = reason
        host.back_off = back_off
        host.refused_at = refused_at
        host.answered = answered
        self.changed.append(host)

    def _authority(self, slot: int, row: int, host: int, name: str) -> None:
        home = self.slots[slot]
        if row < len(home.authorities):
            return
        assert row == len(home.authorities), (slot, row)
        authority = Authority(slot, row, home.hosts[host], name)
        authority.url = name + "/robots.txt"
        home.authorities.append(authority)
        authority.host.authorities.append(authority)
        self.authorities[name] = authority

    def _robots(
        self,
        slot: int,
        row: int,
        state: int,
        expires: int,
        next_at: int,
        attempts: int,
        hops: int,
        status: int,
        url: str,
        error: str,
    ) -> None:
        authority = self.slots[slot].authorities[row]
        self._end_errand(authority)
        authority.state = RobotsState(state)
        authority.expires = expires
        authority.next_at = next_at
        authority.attempts = attempts
        authority.hops = hops
        authority.status = status
        authority.url = url
        authority.error = error
        self.changed.append(authority.host)

    def _end_errand(self, authority: Authority) -> None:
        if authority.token:
            self.leases.pop(authority.token, None)
            authority.token = 0
            authority.deadline = 0
        if authority.busy is not None:
            authority.busy.leases -= 1
            self.changed.append(authority.busy)
            authority.busy = None

    def _rules(self, slot: int, row: int, digest: int, body: bytes) -> None:
        authority = self.slots[slot].authorities[row]
        authority.digest = digest
        authority.body = body

    def _queue(self, slot: int, row: int, crawl: int, host: int, key: str) -> None:
        home = self.slots[slot]
        if row < len(home.queues):
            return
        assert row == len(home.queues), (slot, row)
        queue = Queue(slot, row, crawl, home.hosts[host], key)
        home.queues.append(queue)
        queue.host.queues.append(queue)
        self.queues[crawl, key, queue.host.name] = queue
        group = self.groups.get((crawl, key))
        if group is None and key != queue.host.name:
            # From here on the key spans hosts: the host that bears the key's own name belongs to it, too.
            group = self.groups[crawl, key] = Group()
            namesake = self.queues.get((crawl, key, key))
            if namesake is not None:
                self._join(group, namesake)
        if group is not None:
            self._join(group, queue)

    def _join(self, group: Group, queue: Queue) -> None:
        group.queues.append(queue)
        queue.group = group
        group.rest_until = max(group.rest_until, queue.host.rest_until)
        if queue.host.leases:
            group.busy += sum(isinstance(owner, Url) and owner.queue is queue for owner in self.leases.values())

    def _outbox(self, slot: int, sequence: int, *link: object) -> None:
        home = self.slot(slot)
        home.sent = max(home.sent, sequence)
        self.in_transit += sequence not in home.outbox
        home.outbox[sequence] = (slot, sequence, *link)

    def _arrived(self, slot: int, source: int, sequence: int) -> None:
        home = self.slot(slot)
        home.arrived[source] = max(home.arrived.get(source, 0), sequence)

    def _delivered(self, slot: int, sequence: int) -> None:
        home = self.slot(slot)
        home.sent = max(home.sent, sequence)
        for number in [number for number in home.outbox if number <= sequence]:
            del home.outbox[number]
            self.in_transit -= 1

    def _url(
        self,
        slot: int,
        row: int,
        queue: int,
        fingerprint: int,
        state: int,
        reason: int,
        due: int,
        priority: float,
        depth: int,
        hops: int,
        referrer: str,
        metadata: bytes,
        text: str,
    ) -> None:
        home = self.slots[slot]
        if row < len(home.urls):
            return
        assert row == len(home.urls), (slot, row)
        line = home.queues[queue]
        url = Url(slot, row, line, fingerprint, text)
        url.priority = priority
        url.klass = class_of(priority)
        url.depth = depth
        url.hops = hops
        url.referrer = referrer
        url.metadata = metadata
        home.urls.append(url)
        home.seen.setdefault(line.crawl, {})[fingerprint & SEEN_BITS] = url
        self._move(url, state, reason, due)

    def _move(self, url: Url, state: int, reason: int, due: Instant) -> None:
        """The one function that changes a URL's state; the counters follow it."""
        if url.state == LEASED:
            self._turn(url, -1)
            self.leases.pop(url.token, None)
            url.deadline = 0
        if state == LEASED:
            self._turn(url, 1)
        if url.state != UNKNOWN:
            self.counts[url.state] -= 1
        self.counts[state] += 1
        url.state = state
        url.reason = reason
        url.due = due
        self.placed.append(url)

    def _turn(self, url: Url, step: int) -> None:
        url.queue.host.leases += step
        if url.queue.group is not None:
            url.queue.group.busy += step

    def _url_cells(
        self,
        slot: int,
        row: int,
        state: int,
        reason: int,
        due: int,
        attempts: int,
        losses: int,
        status: int,
        token: int,
        error: str,
    ) -> None:
        url = self.slots[slot].urls[row]
        self._move(url, state, reason, due)
        url.attempts = attempts
        url.losses = losses
        url.status = status
        url.token = token
        url.error = error

    def _visit(self, slot: int, row: int, at: int, digest: bytes, etag: str, modified: str, metadata: bytes) -> None:
        url = self.slots[slot].urls[row]
        url.visited = at
        if digest and digest != url.digest:
            self.contents[digest] = self.contents.get(digest, 0) + 1
            url.digest = digest
        url.etag = etag
        url.modified = modified
        url.metadata = metadata

    def _lease(self, slot: int, row: int, token: int, deadline: int, holder: int, not_before: int) -> None:
        url = self.slots[slot].urls[row]
        if url.state != LEASED or url.token != token:
            self._move(url, LEASED, 0, url.due)
        url.token = token
        url.deadline = deadline
        url.holder = holder
        url.not_before = not_before
        self.leases[token] = url
        self.token = max(self.token, token)

    def _errand(self, slot: int, row: int, token: int, deadline: int, holder: int) -> None:
        authority = self.slots[slot].authorities[row]
        self._end_errand(authority)
        authority.token = token
        authority.deadline = deadline
        authority.holder = holder
        # In a checkpoint the hop may be younger than the hosts; then the errand's own fact comes again with the log.
        authority.busy = self.hosts.get(host_of(authority.url))
        if authority.busy is not None:
            authority.busy.leases += 1
        self.leases[token] = authority
        self.token = max(self.token, token)

    def _line(self, slot: int, row: int, token: int, stream: int, new_links: int, text: bytes) -> None:
        """Lines belong to the projections; the tables keep nothing of them."""

    # -- what a checkpoint copies --------------------------------------------------------------------------------------

    def sections(self) -> list[tuple[int, int, int]]:
        """(slot, section, rows) of everything there is now, in the order in which it must be loaded."""
        out = [(OWN_SLOT, OWN, 1)]
        for section in (HOSTS, AUTHORITIES, QUEUES, URLS):
            out += [(slot, section, home.rows(section)) for slot, home in self.slots.items() if home.rows(section)]
        out += [(slot, TRANSIT, 1) for slot, home in self.slots.items() if home.sent or home.arrived]
        return out

    def copy(self, slot: int, section: int, first: int, last: int) -> list[Block]:
        """The facts that make the rows `first` … `last - 1` of a section as they are now."""
        if section == OWN:
            return self._own_facts()
        home = self.slots[slot]
        if section == TRANSIT:
            return [
                (Fact.DELIVERED, [(slot, min(home.outbox, default=home.sent + 1) - 1)]),
                (Fact.OUTBOX, list(home.outbox.values())),
                (Fact.ARRIVED, [(slot, source, sequence) for source, sequence in home.arrived.items()]),
            ]
        if section == HOSTS:
            hosts = home.hosts[first:last]
            return [
                (Fact.HOST, [(slot, h.row, h.name) for h in hosts]),
                (Fact.HOST_CELLS, [host_cells(h) for h in hosts]),
            ]
        if section == AUTHORITIES:
            some = home.authorities[first:last]
            return [
                (Fact.AUTHORITY, [(slot, a.row, a.host.row, a.name) for a in some]),
                (Fact.ROBOTS, [robots_cells(a) for a in some]),
                (Fact.RULES, [(slot, a.row, a.digest, a.body) for a in some if a.body or a.digest]),
                (Fact.ERRAND, [(slot, a.row, a.token, a.deadline, a.holder) for a in some if a.token]),
            ]
        if section == QUEUES:
            return [(Fact.QUEUE, [(slot, q.row, q.crawl, q.host.row, q.key) for q in home.queues[first:last]])]
        urls = home.urls[first:last]
        return [
            (Fact.URL, [url_row(u) for u in urls]),
            (Fact.URL_CELLS, [url_cells(u) for u in urls]),
            (
                Fact.VISIT,
                [(slot, u.row, u.visited, u.digest, u.etag, u.modified, u.metadata) for u in urls if u.visited],
            ),
            (
                Fact.LEASE,
                [(slot, u.row, u.token, u.deadline, u.holder, u.not_before) for u in urls if u.state == LEASED],
            ),
        ]

    def _own_facts(self) -> list[Block]:
        own = OWN_SLOT
        blocks: list[Block] = [
            (Fact.OPENING, [(own, *self.opening)]),
            (Fact.CRAWL, [(own, row, name, generation) for row, (name, generation) in enumerate(self.crawls)]),
            (Fact.HOLDER, [(own, row, name, opening) for row, (name, opening) in enumerate(self.holders)]),
            (
                Fact.REQUEST,
                [
                    (own, c, s, verb, answer)
                    for c, window in self.requests.items()
                    for s, (verb, answer) in window.items()
                ],
            ),
            (Fact.WATERMARK, [(own, writer, value) for writer, value in self.watermarks.items()]),
            (Fact.PROJECTION, [(own, stream, *place) for stream, place in self.projections.items()]),
            (Fact.TALLY, [(own, name, value) for name, value in self.tallies.items()]),
            (Fact.SCOPE, [(own, crawl, url) for crawl, urls in self.scope.items() for url in urls]),
            (Fact.TOKEN, [(own, self.token)]),
        ]
        if self.closed:
            blocks.append((Fact.CLOSING, [(own, self.opening[0], self.closed)]))
        return blocks

    # -- looking ------------------------------------------------------------------------------------------------------

    def urls(self) -> Iterator[Url]:
        """Every accepted URL."""
        for home in self.slots.values():
            yield from home.urls

    def accepted(self) -> int:
        return sum(self.counts)


OWN, HOSTS, AUTHORITIES, QUEUES, URLS, TRANSIT = range(6)
COPY_ROWS = {OWN: 1, HOSTS: 1_000, AUTHORITIES: 8, QUEUES: 2_000, URLS: 500, TRANSIT: 1}  # rows that stay near 256 KiB


def host_cells(host: Host) -> Row:
    return (
        host.slot,
        host.row,
        host.ended,
        host.rest_until,
        host.gap,
        host.reason,
        host.back_off,
        host.refused_at,
        host.answered,
    )


def robots_cells(authority: Authority) -> Row:
    a = authority
    return (a.slot, a.row, int(a.state), a.expires, a.next_at, a.attempts, a.hops, a.status, a.url, a.error)


def url_row(url: Url) -> Row:
    u = url
    place = (u.slot, u.row, u.queue.row, u.fingerprint, u.state, u.reason, u.due)
    return (*place, u.priority, u.depth, u.hops, u.referrer, u.metadata, u.url)


def url_cells(url: Url) -> Row:
    return (
        url.slot,
        url.row,
        url.state,
        url.reason,
        url.due,
        url.attempts,
        url.losses,
        url.status,
        url.token,
        url.error,
    )
