"""An independent judge of a frontier's history: it sees requests as servers do, and all public facts.

Servers see when a request begins and when it ends, by one true clock and under any spelling of the host; clocks of
workers and of the frontier do not count. Settings, orders of operators, rules of robots.txt files and the wishes of
answers are public. From these the judge works out when a request may begin, by docs/frontier.md and without
the package: it shares no code with the frontier, nor with the model of histories.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from outrider.sim.verdict import Robots

SECOND = 1_000_000
FACTOR_SECONDS_MAX = 60.0
BACK_OFF_ONCE, BACK_OFF_FIRST, BACK_OFF_MAX, BACK_OFF_FORGOTTEN = 4.0, 60.0, 86_400.0, 1_800.0
ROBOTS_HOLD = 86_400 * SECOND
ROBOTS_HOPS_MAX = 5
ALL = frozenset({
    "limit", "gap", "beginnings", "beginnings of errands", "group capacity", "group gap", "key", "paused", "blocked",
    "budget", "host budget", "robots", "address", "twice", "stale", "filter", "one clock per server", "later queues",
    "later queues of a key", "rest under way", "errands obey", "errand delays", "clocks of workers",
    "leases in flight", "deleted crawls", "next ready", "errands in next ready", "counters", "drains",
})  # fmt: skip
"""All that the judge looks at; a name that is left out of `Judge.rules` is not looked at."""


class Breach(AssertionError):
    """A promise that was broken; the message begins with the rule."""


@dataclass(frozen=True)
class Settings:
    """The settings of a history. group: kind -> (capacity, gap in seconds or None for the host's own)."""

    delay: float
    factor: float
    group: Mapping[str, tuple[int, float | None]]
    max_pages: int | None
    max_pages_per_host: int | None
    robots_errands: bool
    address_errands: bool


@dataclass(eq=False)
class Crawl:
    name: str
    paused: bool = False
    gone: bool = False


@dataclass(frozen=True)
class Queue:
    crawl: Crawl
    key: str
    host: str


@dataclass(frozen=True)
class Word:
    """An operator's word about the queues with a key (None: all) in a crawl (None: in all). there: the queues at that
    time."""

    value: Any
    key: str | None
    crawl: Crawl | None
    there: frozenset[Queue]

    def about(self, queue: Queue) -> bool:
        return self.key in (None, queue.key) and self.crawl in (None, queue.crawl)


@dataclass(eq=False)
class Request:
    """A lease and its request. Instants are the true clock's, only `deadline` is the frontier's.

    stream: the leases of one queue from one call, fetched one after the other. begun: None before the request begins.
    ended: None before it ends; it may end before its lease does.
    at_least: minimum seconds between its beginning and another's, where several may be open at once. fixed:
    seconds that its answer wants, which later orders do not change.
    """

    token: int
    kind: str
    host: str
    url: str
    queue: Queue | None
    stream: int
    worker: str | None
    deadline: int
    groups: tuple[str, ...]
    at_least: float = 0.0
    first: bool = True
    begun: int | None = None
    ended: int | None = None
    fixed: float = 0.0
    floor: float = 0.0
    void: bool = False

    def __repr__(self) -> str:
        return f"{self.kind} {self.token} {self.url} of {self.queue.crawl.name if self.queue else '-'}"


@dataclass
class Known:
    """The state of an authority: rules (None: all allowed) until an instant, or closed."""

    robots: Robots | None = None
    closed: bool = True
    until: int = 0
    hops: int = 0
    failing: bool = False  # the last good copy is valid until it is a day old


@dataclass
class Place:
    address: str | None = None
    until: int = 0
    by_caller: bool = False
    moved: int = 0  # how many openings there had been when it arrived there
    left: set[str | None] = field(default_factory=set)  # its addresses before, since the last of these openings
    failures: int = 0


def server_of(url: str) -> str:
    """The server that answers for a URL: a dot after the name does not make it another one."""
    return plain(urlsplit(url).hostname or "")


def plain(host: str) -> str:
    return host.lower().rstrip(".")


def domain_of(host: str) -> str:
    return ".".join(host.split(".")[-2:])


class Judge:
    """Keeps all events and public facts, and judges each lease. now: the true clock; told: the frontier's instant."""

    def __init__(self, settings: Settings, now: int, rules: Iterable[str] = ALL) -> None:
        self.settings = settings
        self.rules = frozenset(rules)
        self.now = self.told = now
        self.crawls: dict[str, Crawl] = {"default": Crawl("default")}
        self.queues: set[Queue] = set()
        self.completed: set[Queue] = set()  # queues that may have no URL but those that a program put as done
        self.words: dict[str, list[Word]] = defaultdict(list)
        self.robots: dict[str, Known] = {}
        self.led_to: set[str] = set()  # hosts to which a robots.txt of another host redirected
        self.places: dict[str, Place] = defaultdict(Place)
        self.open: dict[int, Request] = {}
        self.seen: dict[str, list[Request]] = defaultdict(list)  # by server, in the order of their leases
        self.grouped: dict[str, list[Request]] = defaultdict(list)
        self.back_off: dict[str, tuple[int, float]] = {}
        self.answered: dict[str, int] = defaultdict(int)
        self.streams = 0
        self.openings = 0

    # -- time

    def passes(self, now: int, told: int) -> None:
        """It is `now`, and the frontier says `told`. Leases that are over have ended at their deadline."""
        self.now, self.told = now, told
        for request in [one for one in self.open.values() if one.deadline <= told]:
            self.lost(request, now - (told - request.deadline))

    def lost(self, request: Request, at: int) -> None:
        del self.open[request.token]
        if request.begun is not None and request.ended is None:
            request.ended, request.floor = max(request.begun, at), self.floor_of(request)

    def died(self) -> None:
        """The process ends, and its requests with it."""
        self.openings += 1
        for request in [one for one in self.open.values() if one.worker is None]:
            self.lost(request, self.now)
        for place in self.places.values():
            if place.by_caller and self.settings.address_errands:
                place.until = 0

    # -- what is said

    def crawl(self, name: str | None) -> Crawl:
        return self.crawls.setdefault(name or "default", Crawl(name or "default"))

    def queue(self, crawl: str | None, key: str | None, url: str) -> Queue:
        """The queue of a URL that was found, known from now on."""
        found = self._named(crawl, key, url)
        self.queues.add(found)
        return found

    def completed_queue(self, crawl: str | None, url: str) -> None:
        """Notes the queue of a URL that a program put as done: nothing waits there, but its rules apply to requests on
        behalf of other hosts."""
        self.completed.add(self._named(crawl, None, url))

    def _named(self, crawl: str | None, key: str | None, url: str) -> Queue:
        host = server_of(url)
        return Queue(self.crawl(crawl), plain(key) if key else host, host)

    def said(self, what: str, value: Any, key: str | None, crawl: str | None) -> None:
        """Notes an order of an operator that the frontier accepted."""
        if key is None and what == "paused":
            self.crawl(crawl).paused = value
            return
        of = self.crawl(crawl) if crawl is not None or key is None else None
        word = Word(value, plain(key) if key else None, of, frozenset(self.queues | self.completed))
        meant = [queue for queue in self.queues if word.about(queue)]
        for queue in meant if what == "delay" else ():
            self.rest_under_way(queue, self.settings.delay if value is None else value)
        self.words[what].append(word)
        for request in (one for host in {queue.host for queue in meant} for one in self.seen[host]):
            if what == "delay" and request.queue is None and request.ended is not None:  # an errand, for all queues
                request.floor = min(request.floor, self.floor_of(request))

    def rest_under_way(self, queue: Queue, delay: float) -> None:
        """Hosts that rest now rest as the word says."""
        for request in self.seen[queue.host]:
            if request.queue == queue and request.ended is not None:
                resting = request.ended + _length(self.gap(request)) > self.now
                if delay < request.floor or (resting and "rest under way" in self.rules):
                    request.floor = delay

    def in_force(self, what: str, queue: Queue, default: Any) -> list[Any]:
        """Returns the values that may be in force for a queue: the last order about it. If several orders were older
        than the queue, returns each of their values."""
        words = [word for word in self.words[what] if word.about(queue)]
        there = [word for word in words if queue in word.there]
        if there:
            return [there[-1].value]
        scopes = {
            (word.key, word.crawl): word.value
            for word in words
            if None in (word.key, word.crawl) or "later queues of a key" in self.rules
        }
        return [*scopes.values(), *([] if scopes and "later queues" in self.rules else [default])]

    def forbids(self, queue: Queue, *, hop: bool = False) -> str | None:
        """Returns the rule by which operators forbid requests of a queue now. hop: to its host on behalf of another
        host, whose crawl may continue while this one is paused."""
        if (queue.crawl.paused and not hop) or queue.crawl.gone or all(self.in_force("paused", queue, False)):
            return "paused"
        return "blocked" if min(self.in_force("blocked", queue, 0)) > self.told else None

    def limit(self, queue: Queue) -> int:
        return max(value or 1 for value in self.in_force("limit", queue, None))

    def delay(self, queue: Queue) -> float:
        values = self.in_force("delay", queue, None)
        return min(self.settings.delay if value is None else value for value in values)

    def deleted(self, key: str | None, crawl: str | None) -> None:
        of = self.crawl(crawl) if crawl is not None or key is None else None
        gone = Word(None, plain(key) if key else None, of, frozenset())
        for request in self.open.values():
            request.void = request.void or (request.queue is not None and gone.about(request.queue))
        if key is None and of is not None:
            of.gone = True
            del self.crawls[of.name]
            self.queues = {queue for queue in self.queues if queue.crawl is not of}

    def robots_said(self, authority: str, status: int | None, body: bytes = b"", *, redirects: bool = False) -> None:
        """The answer of a robots.txt (RFC 9309 §2.3.1)."""
        known = self.robots.setdefault(authority, Known())
        if redirects and known.hops < ROBOTS_HOPS_MAX:
            known.hops += 1
            return
        known.hops = 0
        if status is None or status == 429 or status >= 500:
            known.failing = not known.closed and self.told < known.until
            if not known.failing:
                known.closed, known.robots = True, None
            return
        known.closed, known.failing, known.until = False, False, self.told + ROBOTS_HOLD
        known.robots = Robots(body.decode(), "outrider") if status < 300 else None

    def crawl_delay(self, host: str) -> float:
        """The longest wait that the robots.txt of any authority of a server wants."""
        delays = [
            rules.robots.gap_seconds or 0.0
            for authority, rules in self.robots.items()
            if rules.robots is not None and server_of(authority) == host
        ]
        return max(delays, default=0.0)

    def located(self, host: str, address: str | None, seconds: float | None) -> None:
        """Notes where a host is, for this number of seconds; None: until the caller reports something else."""
        place = self.places[host]
        place.left = {place.address, *(place.left if place.moved == self.openings else ())}
        place.address, place.by_caller, place.moved = address, seconds is None, self.openings
        place.until = 1 << 62 if seconds is None else self.told + int(seconds * SECOND)

    def found(self, host: str, address: str | None, ttl: float | None, failed: str | None) -> None:
        """Notes the answer of an errand for an address. It is valid for five minutes by default, and for half a minute
        at least. After failures there are three more tries; then the address is unknown for an hour."""
        host = plain(host)
        place = self.places[host]
        place.failures = place.failures + 1 if failed == "retry" else 0
        if failed == "retry" and place.failures < 4:
            place.until = 0
            return
        self.located(host, address, 3_600.0 if failed else max(300.0 if ttl is None else ttl, 30.0))
        place.failures = 0

    # -- when a request may begin

    def floor_of(self, request: Request) -> float:
        if request.queue is not None:
            return self.delay(request.queue)
        floors = [self.delay(queue) for queue in self.queues if queue.host == request.host]
        if "errand delays" not in self.rules:
            floors.append(self.settings.delay)
        return min(floors, default=self.settings.delay)

    def gap(self, request: Request) -> float:
        """Seconds after a request that has ended."""
        return max(request.fixed, request.floor, self.crawl_delay(request.host))

    def lawful(self, request: Request) -> list[tuple[int, str, Request]]:
        """The instants before which a request may not begin, with the rule and the request that say so."""
        found: list[tuple[int, str, Request]] = []
        for other in self.seen[request.host]:
            if other.ended is not None:
                found.append((other.ended + _length(self.gap(other)), "gap", other))
            elif other.token in self.open and other.stream != request.stream and other.first:
                rule = "beginnings" if {request.kind, other.kind} == {"page"} else "beginnings of errands"
                found.append(((other.begun or 0) + _length(other.at_least), rule, other))
        for group in request.groups:
            kind = group.split(" ")[0]
            gap = None if kind == "key" else self.settings.group[kind][1]
            for other in self.grouped[group]:
                if other.ended is not None and self.still_there(other, group):
                    seconds = self.gap(other) if gap is None else gap
                    found.append((other.ended + _length(seconds), "key" if kind == "key" else "group gap", other))
        return found

    def still_there(self, request: Request, group: str) -> bool:
        """A clock of an address is made anew with each opening, of the hosts that are there then."""
        if not group.startswith("address "):
            return True
        place = self.places[request.host]
        address = group.removeprefix("address ")
        return place.address == address or (place.moved == self.openings and address in place.left)

    def earliest(self, request: Request) -> int:
        """When the next of a stream may begin, as its holder reckons."""
        return max((at for at, _, _ in self.lawful(request)), default=0)

    # -- the verdict on leases

    def leased(
        self, leases: Sequence[Any], *, worker: str | None, per_queue: int, crawl: str | None, key: str | None
    ) -> list[Request]:
        """Judges the leases of a call; answers their requests, in order. Raises Breach."""
        found: list[Request] = []
        trains: dict[Queue, list[Request]] = defaultdict(list)
        for lease in leases:
            kind = str(lease.kind)
            if kind == "address":
                found.append(self.address_errand(lease, worker))
                continue
            request = self.request(lease, worker)
            if kind == "page":
                queue = request.queue
                assert queue is not None
                self.demand("filter", crawl in (None, lease.crawl) and key in (None, lease.key), request)
                train = trains[queue]
                if train:
                    request.stream, request.first, request.begun = train[0].stream, False, None
                train.append(request)
                self.demand("filter", len(train) <= per_queue, request)
                self.page(request, lease)
            else:
                self.errand(request, lease)
            if request.first:
                self.begins(request)
            self.open[lease.token] = request
            self.seen[request.host].append(request)
            for group in request.groups:
                self.grouped[group].append(request)
            found.append(request)
        self.budgets()
        return found

    def request(self, lease: Any, worker: str | None) -> Request:
        host = server_of(lease.url)
        page = str(lease.kind) == "page"
        queue = self.queue(lease.crawl, lease.key, lease.url) if page else None
        self.streams += 1
        groups = [
            *([f"domain {domain_of(host)}"] if "domain" in self.settings.group else []),
            *([f"address {lease.address}"] if "address" in self.settings.group and lease.address else []),
            *([f"key {queue.crawl.name} {queue.key}"] if queue is not None and queue.key != host else []),
        ]
        request = Request(
            lease.token, str(lease.kind), host, lease.url, queue, self.streams, worker, lease.deadline, tuple(groups)
        )  # fmt: skip
        request.begun = self.now + max(0, lease.not_before - self.told)
        request.at_least = max(self.floor_of(request), self.crawl_delay(host))
        return request

    def demand(self, rule: str, holds: bool, *about: object) -> None:
        if not holds and rule in self.rules:
            raise Breach(f"{rule}: " + ", ".join(map(str, about)))

    def begins(self, request: Request) -> None:
        """A request begins at its server."""
        begun = request.begun
        assert begun is not None
        others = [one for one in self.seen[request.host] if self.under_way(one)]
        limit = self.limit(request.queue) if request.queue is not None else self.limit_of(request.host)
        at_once = len({one.stream for one in others})
        self.demand("limit", at_once < limit, request, f"{at_once} are open, {limit} may be", *others)
        for group in request.groups:
            kind = group.split(" ")[0]
            capacity = 1 if kind == "key" else self.settings.group[kind][0]
            busy = {one.stream for one in self.grouped[group] if self.under_way(one)}
            rule = "key" if kind == "key" else "group capacity"
            self.demand(rule, len(busy) < capacity, request, f"{len(busy)} of {group} are open")
        for at, rule, other in self.lawful(request):
            early = (at - begun) / SECOND
            self.demand(rule, begun >= at, request, f"{early} s too early behind {other}, gap {self.gap(other)}")

    def under_way(self, request: Request) -> bool:
        return request.token in self.open and request.ended is None

    def limit_of(self, host: str) -> int:
        return max((self.limit(queue) for queue in self.queues if queue.host == host), default=1)

    def page(self, request: Request, lease: Any) -> None:
        queue = request.queue
        assert queue is not None
        forbids = self.forbids(queue)
        self.demand(forbids or "paused", forbids is None, request)
        same = [one for one in self.open.values() if (one.queue, one.url, one.void) == (queue, request.url, False)]
        self.demand("twice", not same, request, *same)
        self.robots_allow(request, lease)
        self.address_known(request, lease)
        if any(not group.startswith("key") for group in request.groups):
            self.demand("group capacity", request.first, request, "a train of a host that shares a clock")

    def robots_allow(self, request: Request, lease: Any) -> None:
        rules = self.robots.get(lease.authority)
        if rules is None:
            self.demand("robots", not self.settings.robots_errands, request, "its robots.txt is not known")
            return
        self.demand("robots", not rules.closed, request, "its robots.txt was not answered")
        current = not rules.failing or self.told < rules.until
        self.demand("robots", current, request, "its robots.txt was not answered for a day")
        parts = urlsplit(request.url)
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        self.demand("robots", rules.robots is None or rules.robots.allowed(path), request, "its robots.txt closes it")
        if self.settings.robots_errands:
            self.demand("robots", rules.until > self.told, request, "its robots.txt is out of date")

    def address_known(self, request: Request, lease: Any) -> None:
        if "address" not in self.settings.group:
            return
        place = self.places[request.host]
        if self.settings.address_errands:
            self.demand("address", place.until > self.told, request, "its address is not known")
        self.demand("address", lease.address == place.address, request, f"at {lease.address}, not {place.address}")

    def errand(self, request: Request, lease: Any) -> None:
        """A request for a robots.txt: wanted by a host that may be visited, sent to one that may be visited."""
        self.address_known(request, lease)
        owner = server_of(lease.authority)
        self.errand_obeys(request, owner)
        if request.host != owner:
            self.errand_obeys(request, request.host, hop=True)

    def errand_obeys(self, errand: object, host: str, *, hop: bool = False) -> None:
        known = self.queues | self.completed if hop else self.queues
        queues = [queue for queue in known if queue.host == host and not queue.crawl.gone]
        if queues:
            free = any(self.forbids(queue, hop=hop) is None for queue in queues)
            self.demand("errands obey", free, errand, f"{host} is paused or blocked")

    def address_errand(self, lease: Any, worker: str | None) -> Request:
        host = plain(lease.host)
        self.streams += 1
        request = Request(lease.token, "address", "", lease.url, None, self.streams, worker, lease.deadline, ())
        self.errand_obeys(request, host, hop=host in self.led_to)
        self.open[lease.token] = request
        return request

    def budgets(self) -> None:
        pages = [one for one in self.open.values() if one.kind == "page"]
        if "deleted crawls" not in self.rules:
            pages = [one for one in pages if not one.void]
        most, per_host = self.settings.max_pages, self.settings.max_pages_per_host
        if most is not None:
            answered = sum(self.answered.values())
            self.demand("budget", len(pages) + answered <= most, f"{len(pages)} open, {answered} answered of {most}")
        if per_host is not None:
            for host in {one.host for one in pages}:
                here = sum(one.host == host for one in pages) if "leases in flight" in self.rules else 1
                self.demand(
                    "host budget", here + self.answered[host] <= per_host,
                    f"{host}: {here} open, {self.answered[host]} answered of {per_host}",
                )  # fmt: skip

    # -- how requests end

    def ends(
        self, token: int, at: int, *, seconds: float | None, retry_after: float | None, refused: bool, answered: bool
    ) -> None:
        """A request has ended, and was reported now."""
        request = self.open.pop(token)
        before = request.fixed if request.ended is not None else 0.0
        request.ended = at
        fixed = [before, retry_after or 0.0, min(self.settings.factor * (seconds or 0.0), FACTOR_SECONDS_MAX)]
        if refused and retry_after is None:
            fixed.append(self.backs_off(request))
        request.fixed, request.floor = max(fixed), self.floor_of(request)
        if request.kind == "page" and answered and not (request.void and "deleted crawls" not in self.rules):
            self.answered[request.host] += 1

    def over(self, token: int, at: int, *, seconds: float | None) -> None:
        """A request has ended, and its holder said so. What came of it follows with the report."""
        request = self.open[token]
        request.ended = at
        request.fixed = min(self.settings.factor * (seconds or 0.0), FACTOR_SECONDS_MAX)
        request.floor = self.floor_of(request)

    def backs_off(self, request: Request) -> float:
        """Seconds, of which each refusal within half an hour doubles those of the one before."""
        before, seconds = self.back_off.get(request.host, (0, 0.0))
        quick = self.now - before <= BACK_OFF_FORGOTTEN * SECOND
        seconds = min(max(2 * seconds, BACK_OFF_FIRST), BACK_OFF_MAX) if quick and seconds else BACK_OFF_ONCE
        self.back_off[request.host] = (request.begun or self.now, seconds)
        return seconds

    def given_back(self, token: int) -> None:
        """Nothing was sent, or nothing came of it."""
        request = self.open.pop(token)
        if request.ended is None:
            request.begun = None


def _length(seconds: float) -> int:
    return -int(-seconds * SECOND // 1)
