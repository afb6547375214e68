"""Random histories of all verbs of a frontier, compared with a plain model of its contract.

The model keeps dictionaries and follows docs/frontier.md without any cleverness: which state each URL is in, whose
lease it is, until when each host waits, which orders each queue has. After each step it is compared with the answers,
and after some steps with everything that can be listed.

Each step has a random source of its own, from (seed, number of the step): a history that fails can be shown without
the steps that do not matter (`shortest`).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import msgspec

from model.inside import inspect
from model.interleaving import Interleaving
from model.openings import compare_openings
from model.world import Clock, recount
from outrider import Frontier, Link
from outrider.clock import instant
from outrider.errors import SettingsError
from outrider.frontier.policy.lives import URL
from outrider.frontier.policy.revisit import bad_answer_seconds, codes_of
from outrider.journey import Kind, Lease, Outcome, Settled, UrlName, Verdict
from outrider.limits import (
    ADDRESS_FAILED_SECONDS,
    ADDRESS_SECONDS_MIN,
    ADDRESS_SECONDS_USUAL,
    BAD_ANSWERS_MAX,
    LEASES_LOST_MAX,
    MEMORY_BYTES,
    MICROSECONDS,
    REDIRECT_HOPS_MAX,
    RETRY_SECONDS,
)
from outrider.sim.disk import CrashDisk, FaultyFiles

DELAY, FACTOR = 1.0, 10.0
HOSTS = [f"h{number}.com" for number in range(5)]
DOTS = ["", "", "", "", "", "."]
KEYS = [None, None, None, None, "k", HOSTS[1], HOSTS[4]]
CRAWLS = [None, None, "other", "mine"]
"""The last one may be by unique keys."""
UNIQUE_KEYS = [None, None, b"1", b"2"]
TEXTS = ["n0", "n1", HOSTS[1]]
PRIORITIES = [0.03, 0.3, 0.5, 0.9]
INTEGERS = [-(2**53), -3, 0, 1, 2, 1_000_000]
ERRORS = ["timeout", "reset"]
ADDRESSES = ["192.0.2.1", "192.0.2.2"]
GAP = 4.0  # the gap of all hosts at one address, where they share a clock
CLUSTER_KEYS = (bytes(range(16)), bytes(range(16, 32)))


# -- the model ---------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Said:
    """Orders of operators about a queue; or about a crawl, or a key in all crawls, for later queues."""

    paused: bool = False
    blocked_until: int = 0
    delay: float | None = None
    limit: int | None = None


@dataclass(eq=False)
class Crawl:
    """A crawl of some generation: one that was deleted and made again is another."""

    name: str
    paused: bool = False
    deleted: bool = False
    said: Said = field(default_factory=Said)
    by_callers: bool = False
    order: str = "classes"


@dataclass(eq=False)
class Host:
    rest_until: int = 0
    gap: float = 0.0
    pace: float = 1.0  # the share of its rate that a host under strain is given
    ended: int = 0
    visited: bool = False


@dataclass(eq=False, kw_only=True)
class Queue(Said):
    crawl: Crawl
    key: str
    host: str


@dataclass(eq=False)
class Url:
    text: str
    queue: Queue
    order: int
    due: int
    priority: float
    hops: int = 0
    state: str = "unknown"
    attempts: int = 0
    losses: int = 0
    forgiven: int = 0  # losses before the last order to queue it again, which still count in its due
    error: str = ""
    ended: int = 0
    deleted: bool = False
    led: float = 0.0  # its priority when its last lease ended, which a redirect's target gets
    schedule: int = 0  # the code of the usual pause of a page that is visited regularly, 0 for no such page

    def go(self, event: str, state: str) -> None:
        """Moves as the table of a URL's life allows, and no otherwise."""
        assert state in URL.after(self.state, event), f"{event} leads from {self.state} to {state}"
        self.state = state

    def rank(self) -> tuple[float, int, int]:
        order = self.queue.crawl.order
        if order == "classes":
            return (-int(self.priority * 16), self.due, self.order)
        return (-self.priority, int(self.losses > 0), -self.order if order == "lifo" else self.order)


@dataclass(eq=False)
class Held:
    """An open lease. over: the end of its request, once `rest` has said that it is over."""

    url: Url
    worker: str | None
    deadline: int
    not_before: int
    requeue: tuple[int, float | None] | None = None  # the due time and priority of an order that came meanwhile
    over: int | None = None


@dataclass(eq=False)
class Errand:
    """An open errand for a host's address."""

    host: str
    worker: str | None
    deadline: int


@dataclass
class Model:
    """The state that a frontier must have after all its calls. Instants are given: the model has no clock."""

    now: int
    crawls: dict[str, Crawl] = field(default_factory=lambda: {"default": Crawl("default")})
    hosts: dict[str, Host] = field(default_factory=dict)
    queues: list[Queue] = field(default_factory=list)
    said: dict[str, Said] = field(default_factory=dict)  # the words about a key in all crawls
    urls: dict[tuple[Crawl, UrlName], Url] = field(default_factory=dict)
    leases: dict[int, Held] = field(default_factory=dict)
    errands: dict[int, Errand] = field(default_factory=dict)
    ended: list[int] = field(default_factory=list)
    token: int = 0
    order: int = 0

    # -- time

    def passes(self, now: int) -> None:
        """The first act of each verb that reads the clock: expired leases end, waiting URLs return to their queues."""
        self.now = now
        for token in [token for token, held in self.leases.items() if held.deadline <= now]:
            self.lose(token)
        self.wakes(now)

    def wakes(self, now: int) -> None:
        for url in self.urls.values():
            if url.state == "waiting" and url.due <= now:
                url.go("due", "queued")

    def lose(self, token: int, *, counted: bool = True, died: bool = False) -> None:
        held = self.end(token)
        if died or held.over is None:
            self.rest_whole(held.url.queue, self.floor_of_page(held.url.queue))
            clock = self.hosts[held.url.queue.host]
            clock.ended = max(clock.ended, self.now)  # in doubt
        held.url.losses += counted
        if counted:
            held.url.due = max(held.url.due, self.now) + 1
        if counted and held.url.losses >= LEASES_LOST_MAX:
            held.url.error = "lost"
            held.url.go("lost", "gone")
        else:
            held.url.go("lost" if counted else "stopped", "queued")
        self.ordered(held, lost=counted)

    def ordered(self, held: Held, *, lost: bool = False) -> None:
        """An order to queue a URL again counts when its lease ends, however that is."""
        if held.requeue is None or held.url.deleted:
            return
        url, (due, priority) = held.url, held.requeue
        url.state, url.due = "leased", max(due, url.due if lost else self.now)
        url.forgiven = url.losses if lost else 0
        url.attempts, url.losses = 0, 0
        url.priority = url.priority if priority is None else priority
        url.go("lease ended, requeued before", self.now_or_later(due))

    def end(self, token: int) -> Held:
        self.ended.append(token)
        return self.leases.pop(token)

    def rest(self, host: str, until: int) -> None:
        clock = self.hosts[host]
        clock.rest_until = max(clock.rest_until, until)

    def rest_whole(self, queue: Queue, floor: float) -> None:
        self.rest(queue.host, self.now + instant(max(self.hosts[queue.host].gap, floor)))

    def rest_beside(self, queue: Queue) -> None:
        """Whether another request may begin while one is open, from any queue of the host."""
        self.rest_whole(queue, self.slowest(queue.host))

    def steps_back(self, now: int) -> None:
        for clock in self.hosts.values():
            if clock.visited or clock.rest_until:
                clock.rest_until = max(clock.rest_until, now + instant(max(clock.gap, DELAY)))

    def dies(self, now: int, *, counted: bool) -> None:
        """The process ends, and another one opens the store."""
        self.now = now
        for token in [token for token, held in self.leases.items() if held.worker is None]:
            self.lose(token, counted=counted, died=True)
        self.wakes(now)

    # -- queues

    @staticmethod
    def floor(queue: Queue) -> float:
        return DELAY if queue.delay is None else queue.delay

    def slowest(self, host: str) -> float:
        """The largest delay of the host's queues of living crawls."""
        living = [queue for queue in self.queues if queue.host == host and not queue.crawl.deleted]
        return max(map(self.floor, living), default=DELAY)

    def floor_of_page(self, queue: Queue) -> float:
        """A page of a deleted crawl makes its host wait through the other queues, too."""
        return max(self.floor(queue), self.slowest(queue.host) if queue.crawl.deleted else 0.0)

    def queue(self, crawl: Crawl, key: str | None, host: str) -> Queue:
        key = key or host
        for queue in self.queues:
            if queue.crawl is crawl and queue.key == key and queue.host == host:
                return queue
        alike = [queue for queue in self.queues if queue.crawl is crawl and queue.key == key]
        both = (alike[0],) if alike else (crawl.said, self.said.get(key, Said()))
        self.queues.append(
            Queue(
                crawl=crawl,
                key=key,
                host=host,
                paused=any(said.paused for said in both),
                blocked_until=max(said.blocked_until for said in both),
                delay=max((said.delay for said in both if said.delay is not None), default=None),
                limit=min((said.limit for said in both if said.limit is not None), default=None),
            )
        )
        self.hosts.setdefault(host, Host())
        if (self.queues[-1].limit or 1) > 1 and self.busy(host):
            self.rest_beside(self.queues[-1])
        return self.queues[-1]

    def group(self, queue: Queue) -> list[Queue]:
        """The queues that share a turn and a clock, empty where the key spans no other host."""
        some = [one for one in self.queues if one.crawl is queue.crawl and one.key == queue.key]
        return some if any(one.host not in (one.key, host_of_text("", one.key)) for one in some) else []

    def chosen(self, key: str | None, crawl: str | None) -> list[Queue] | None:
        """The queues that an operator means; None where the frontier must refuse."""
        if key is None:
            of = self.crawls.get(crawl or "default")
            return None if of is None else [queue for queue in self.queues if queue.crawl is of]
        if crawl is not None and crawl not in self.crawls:
            return None
        found = [
            queue
            for queue in self.queues
            if queue.key == key and not queue.crawl.deleted and crawl in (None, queue.crawl.name)
        ]
        # Orders about a key in all crawls outlive its queues, and can be withdrawn.
        spoken = crawl is None and key in self.said and vars(self.said[key]) != vars(Said())
        return found if found or spoken else None

    def meant(self, key: str | None, crawl: str | None) -> list[Said]:
        """Where it is kept for later queues."""
        if key is None:
            return [self.crawls[crawl or "default"].said]
        return [self.said.setdefault(key, Said())] if crawl is None else []

    def slower(self, queues: Sequence[Queue], delay: float) -> None:
        """Makes the current waits of the hosts of these queues longer."""
        for host in {queue.host for queue in queues if delay > self.floor(queue)}:
            clock = self.hosts[host]
            floor = min(self.floor(queue) for queue in self.queues if queue.host == host)
            last = max(clock.ended, clock.rest_until - instant(max(clock.gap, floor)))
            longer = min(last, self.now) + instant(delay)
            if self.now < clock.rest_until < longer:
                clock.rest_until, clock.gap = longer, max(clock.gap, delay)

    def allowed(self, queue: Queue, now: int) -> bool:
        """Whether operators, clocks and turns let one more request of this queue begin."""
        group = self.group(queue)
        return (
            self.permitted(queue)
            and queue.blocked_until <= now
            and self.free_at(queue) <= now
            and self.busy(queue.host) < (queue.limit or 1)
            and not any(held.url.queue in group for held in self.leases.values() if held.over is None)
        )

    @staticmethod
    def permitted(queue: Queue) -> bool:
        return not (queue.crawl.deleted or queue.crawl.paused or queue.paused)

    def free_at(self, queue: Queue) -> int:
        return max(self.hosts[one.host].rest_until for one in (queue, *self.group(queue)))

    def busy(self, host: str) -> int:
        """Returns how many requests are open."""
        return sum(held.url.queue.host == host and held.over is None for held in self.leases.values())

    def queued(self, queue: Queue) -> list[Url]:
        return sorted((u for u in self.urls.values() if u.queue is queue and u.state == "queued"), key=Url.rank)

    # -- the three verbs

    def accept(
        self, text: str, crawl: Crawl, *, key: str | None = None, priority: float | None = None, due: int | None = None,
        hops: int = 0, unique_key: bytes | None = None,
    ) -> str:  # fmt: skip
        if hops > REDIRECT_HOPS_MAX:
            return "over_limit"
        name = self.name(crawl, text, key, unique_key)
        if (crawl, name) in self.urls:
            return "known"
        due = self.now if due is None else due
        if priority is None:
            priority = 0.5 if crawl.order == "classes" else 0
        queue = self.queue(crawl, key or key_of_text(text), host_of_text(text, key))
        self.order += 1
        url = Url(text, queue, self.order, due, priority, hops)
        url.go("discovered", self.now_or_later(due))
        self.urls[crawl, name] = url
        return "new"

    @staticmethod
    def name(crawl: Crawl, text: str, key: str | None, unique_key: bytes | None) -> UrlName:
        """What makes a URL that URL: in a crawl by unique keys its unique key, or its text and key."""
        if not crawl.by_callers:
            return text
        return unique_key or (text if key in (None, key_of_text(text)) else Link(text, key=key))

    def named(self, lease: Lease) -> Url:
        crawl = self.crawls[lease.crawl]
        return self.urls[crawl, self.name(crawl, lease.url, lease.key, lease.unique_key)]

    def now_or_later(self, due: int) -> str:
        return "waiting" if due > self.now else "queued"

    def crawl(self, name: str | None) -> Crawl:
        return self.crawls.setdefault(name or "default", Crawl(name or "default"))

    def discover(self, links: Sequence[Link]) -> list[str]:
        self.crawl(None)
        crawls = [self.crawl(link.crawl) for link in links]
        return [
            self.accept(
                link.url,
                crawl,
                key=link.key,
                priority=link.priority,
                due=link.not_before,
                unique_key=link.unique_key,
            )
            for link, crawl in zip(links, crawls, strict=True)
        ]

    def leased(self, leases: Sequence[Lease], *, per_queue: int, worker: str | None, ttl: float) -> None:
        """Compares the leases with the ones that may be given."""
        trains: dict[str, list[Lease]] = {}
        for lease in leases:
            trains.setdefault(place_of(lease), []).append(lease)
            assert lease.token > self.token, f"{lease.token} is not above {self.token}"
            self.token = lease.token
            assert lease.deadline == self.now + instant(ttl), lease
        rests: list[tuple[str, int]] = []
        for host, train in trains.items():
            queue = self.named(train[0]).queue
            assert self.allowed(queue, self.now), f"{queue} may not be visited now"
            assert len(train) <= per_queue, train
            gap = instant(max(self.hosts[host].gap, self.floor(queue)))
            for place, lease in enumerate(train):
                url = self.named(lease)
                assert url is self.queued(queue)[0], f"{url} is not the first of {self.queued(queue)}"
                assert url.due <= self.now + max(url.losses, url.forgiven), url
                assert self.now + place * gap == lease.not_before, lease
                assert place == 0 or lease.not_before < lease.deadline, lease
                assert (url.queue.key, url.attempts + 1, url.hops) == (lease.key, lease.attempt, lease.hops), lease
                url.go("leased", "leased")
                self.leases[lease.token] = Held(url, worker, lease.deadline, lease.not_before)
            if any((one.limit or 1) > 1 for one in self.queues if one.host == host and not one.crawl.deleted):
                rests.append((host, self.now + len(train) * gap))
        for host, until in rests:
            self.rest(host, until)

    def ready(self, crawl: str | None, key: str | None, *, served: Iterable[str] = ()) -> list[Queue]:
        """Returns queues with URLs that may be visited now. served: hosts that had their turn in this call."""
        of = self.crawls.get(crawl) if crawl is not None else None
        taken = {id(one) for queue in self.queues if queue.host in served for one in self.group(queue)}
        return [
            queue
            for queue in self.queues
            if (crawl is None or queue.crawl is of)
            and key in (None, queue.key)
            and queue.host not in served
            and id(queue) not in taken
            and self.allowed(queue, self.now)
            and self.queued(queue)
        ]

    def heard(self, outcome: Outcome) -> Outcome:
        """Returns an outcome as the frontier reads it: clocks of workers are not its own."""
        held = self.leases.get(outcome.token)
        if held is not None and held.url.queue.crawl.by_callers:
            outcome = msgspec.structs.replace(outcome, location=None)  # its caller follows redirects
        if held is None or held.worker is None:
            return outcome
        return msgspec.structs.replace(outcome, ended_at=None)

    def reported(self, outcome: Outcome) -> Url | None:
        """Returns the state after an outcome, without its links; None where it arrives too late."""
        held = self.leases.get(outcome.token)
        if held is None:
            return None
        url = self.end(outcome.token).url
        url.led = url.priority
        self.judge(outcome, held)
        if url.deleted:
            return None
        self.ordered(held)
        return url

    def judge(self, outcome: Outcome, held: Held) -> None:
        """The rest of the host and the state of the URL after an outcome, without orders that came meanwhile."""
        url = held.url
        clock = self.hosts[url.queue.host]
        moves = outcome.location is not None and outcome.verdict is Verdict.DONE
        asked = 0.0 if moves else outcome.retry_after_seconds or 0.0
        url.ended = ended = self.ended_at(outcome.ended_at, outcome.seconds, held)
        failed = (outcome.status or 0) >= 500 or (outcome.status is None and outcome.error == "reset")
        clock.pace = max(clock.pace / 2, 1 / 64) if failed else min(clock.pace + 1 / 8, 1.0)
        self.rest_after(url.queue, ended, outcome.seconds, asked, again=held.over is not None)
        if url.deleted:
            return
        url.losses = 0
        if self.visited_rarer(url, outcome, ended, clock.rest_until):
            return
        if moves and outcome.location == url.text:
            url.error = "redirect_self"
            url.go("redirected to itself", "gone")
        elif outcome.verdict is Verdict.DONE:
            url.attempts, url.schedule, url.error = 0, 0, outcome.error or ""
            url.go("reported done", "done")
        elif outcome.verdict is Verdict.GONE:
            url.error = outcome.error or ""
            url.go("reported gone", "gone")
        elif outcome.verdict is Verdict.AGAIN:
            url.due = self.now if outcome.at is None else outcome.at
            url.attempts, url.error = 0, ""
            url.schedule = int(codes_of((url.due - ended) / MICROSECONDS))
            url.go("reported again", self.now_or_later(url.due))
        else:
            url.attempts += 1
            url.error = outcome.error or ""
            if url.attempts > len(RETRY_SECONDS):
                url.error = url.error or "retries"
                url.go("failed", "gone")
            else:
                url.due = max(ended + instant(RETRY_SECONDS[url.attempts - 1]), clock.rest_until)
                url.go("failed", self.now_or_later(url.due))

    def rest_after(
        self, queue: Queue, ended: int, seconds: float | None, asked: float = 0.0, *, again: bool = False
    ) -> None:
        """A host rests after a request. asked: seconds that its answer wants. again: it rests already, and only a
        longer rest is news."""
        clock = self.hosts[queue.host]
        gap = max(self.floor_of_page(queue), min(FACTOR * (seconds or 0.0), 60.0))
        gap = max(gap, min(gap / clock.pace, 300.0), asked)
        until = ended + instant(gap)
        if ended >= clock.ended and (not again or until > clock.rest_until):
            clock.gap = gap  # the gap after the request that ended last stays
        clock.ended = max(clock.ended, ended)
        clock.visited = True
        self.rest(queue.host, until)

    def rested(self, tokens: Sequence[int], seconds: Sequence[float | None], ended_at: int | None) -> list[str]:
        """The requests of these leases are over, and their outcomes follow."""
        codes = ["ok" if token in self.leases else "stale" for token in tokens]
        for token in sorted(set(tokens) & set(self.leases)):
            longest = max((lasted or 0.0) for one, lasted in zip(tokens, seconds, strict=True) if one == token)
            self.over(token, longest, ended_at)
        return codes

    def over(self, token: int, seconds: float, ended_at: int | None) -> None:
        held = self.leases[token]
        again = held.over is not None
        if again and not seconds and ended_at is None:
            return  # no news
        held.over = self.ended_at(ended_at, seconds, held)
        # A URL of a train may be requested later than now.
        self.rest_after(held.url.queue, max(held.over, held.not_before), seconds, again=again)

    def visited_rarer(self, url: Url, outcome: Outcome, ended: int, rest_until: int) -> bool:
        """Whether a page with a schedule outlives a bad answer: its visits are rarer then."""
        retried = outcome.verdict is Verdict.RETRY and url.attempts < len(RETRY_SECONDS)
        moved = outcome.location is not None and outcome.verdict is Verdict.DONE
        bad = bool(outcome.error) or moved or outcome.verdict is Verdict.RETRY or (outcome.status or 0) >= 300
        answers = url.attempts + 1
        if not url.schedule or not bad or retried or outcome.verdict is Verdict.AGAIN or answers >= BAD_ANSWERS_MAX:
            return False
        wait = float(bad_answer_seconds(url.schedule, answers))
        url.due, url.attempts = max(ended + math.ceil(wait * MICROSECONDS), rest_until), answers
        url.go("bad answer, scheduled", self.now_or_later(url.due))
        return True

    def ended_at(self, ended_at: int | None, seconds: float | None, held: Held) -> int:
        """When a request ended, as its worker says, if that can be true: not after now, not begun before its lease. A
        request that is over ends no second time, but perhaps later."""
        usual = self.now if held.over is None else held.over
        if ended_at is None or held.worker is not None or ended_at > self.now:
            return usual
        possible = ended_at - instant(seconds or 0.0) >= held.not_before
        return max(ended_at, held.over or 0) if possible else usual

    def target(self, outcome: Outcome, url: Url, due: int) -> None:
        """A redirect leads to a URL of its own, due when its source was."""
        if outcome.location is None or outcome.verdict is not Verdict.DONE or outcome.location == url.text:
            return
        if outcome.retry_after_seconds:
            due = url.ended + instant(outcome.retry_after_seconds)
        hops = 0 if url.hops >= REDIRECT_HOPS_MAX else url.hops + 1
        self.accept(outcome.location, url.queue.crawl, priority=url.led, due=due, hops=hops)

    # -- around them

    def back(self, token: int, until: int | None) -> str:
        if token not in self.leases:
            return "stale"
        held = self.end(token)
        if until is None:
            held.url.go("released", "queued")
        else:
            held.url.due = until
            held.url.go("deferred", self.now_or_later(until))
        self.ordered(held)
        return "ok"

    def extended(self, token: int, deadline: int) -> str:
        if token not in self.leases:
            return "stale"
        self.leases[token].deadline = deadline
        return "ok"

    def delete(self, queues: Sequence[Queue]) -> None:
        for place, url in list(self.urls.items()):
            if url.queue in queues:
                url.deleted = True
                del self.urls[place]

    def delete_crawl(self, name: str) -> None:
        crawl = self.crawls.pop(name)
        crawl.deleted = True
        self.delete([queue for queue in self.queues if queue.crawl is crawl])

    def reprioritise(self, name: UrlName, priority: float, crawl: Crawl) -> str:
        if isinstance(name, Link):
            name = self.name(crawl, name.url, name.key, None)
        url = self.urls.get((crawl, name))
        if url is None:
            return "unknown"
        if url.state in ("queued", "waiting"):
            url.priority = priority
            url.go("changed in place", url.state)
        return url.state

    def requeue(self, name: UrlName, at: int | None, priority: float | None, crawl: Crawl) -> str:
        url = self.urls.get((crawl, name))
        if url is None:
            return "unknown"
        state, due = url.state, max(self.now, at or 0)
        if state == "leased":
            (held,) = [held for held in self.leases.values() if held.url is url]
            held.requeue = due, priority
        elif state != "queued" or at is not None or priority not in (None, url.priority):
            url.due, url.attempts, url.losses = due, 0, 0
            url.priority = url.priority if priority is None else priority
            url.go("requeued", self.now_or_later(due))
        return state

    def ends_in_doubt(self, url: Url) -> None:
        """Ends the lease of a URL without a report."""
        (token,) = [token for token, held in self.leases.items() if held.url is url]
        held = self.end(token)
        if held.over is None:
            self.rest_whole(url.queue, self.floor_of_page(url.queue))
            clock = self.hosts[url.queue.host]
            clock.ended = max(clock.ended, self.now)

    def delete_url(self, name: UrlName, crawl: Crawl) -> str:
        url = self.urls.pop((crawl, name), None)
        if url is None:
            return "unknown"
        state = url.state
        if state == "leased":
            self.ends_in_doubt(url)
        url.deleted = True
        url.go("deleted by its name", "unknown")
        return state

    def put(self, record: dict[str, Any], crawl: Crawl) -> str:
        """Returns the code of a record of a known URL."""
        unique_key = bytes.fromhex(record["unique_key"] or "")
        url = self.urls[crawl, self.name(crawl, record["url"], record["key"], unique_key)]
        if url.state == "leased":
            self.ends_in_doubt(url)
        state = record["state"]
        url.due = record["due"] or (self.now if state in ("queued", "waiting") else 0)
        url.attempts, url.losses = record["attempts"], 0
        url.priority = url.priority if record["priority"] is None else record["priority"]
        url.go("put", state)
        self.wakes(self.now)
        return "known"

    def retry(self, error: str | None, host: str | None) -> int:
        some = [
            url
            for url in self.urls.values()
            if url.state == "gone" and error in (None, url.error) and host in (None, url.queue.host)
        ]
        for url in some:
            url.due, url.attempts, url.losses = self.now, 0, 0
            url.go("retried", "queued")
        return len(some)

    # -- looking

    def counts(self) -> dict[str, int]:
        states = dict.fromkeys(("queued", "leased", "waiting", "parked", "done", "gone"), 0)
        for url in self.urls.values():
            states[url.state] += 1
        return states

    def next_at(self) -> int | None:
        """Returns the instant of the next change by time alone: a lease, an expiry, a URL whose wait ends."""
        times = [held.deadline for held in self.leases.values()]
        times += [url.due for url in self.urls.values() if url.state == "waiting"]
        times += [
            max(self.now, self.free_at(queue), queue.blocked_until)
            for queue in self.queues
            if self.permitted(queue) and self.queued(queue) and self.allowed(queue, 1 << 62)
        ]
        return max(self.now, min(times)) if times else None


def key_of_text(text: str) -> str:
    return text.split("/")[2].lower().removesuffix(".") if "://" in text else text


def host_of_text(text: str, key: str | None) -> str:
    """The host of a URL, or the name that a key has in place of one."""
    if "://" in text:
        return key_of_text(text)
    return "|" + quote(key or text, safe="").replace(".", "%2E")


def place_of(lease: Lease) -> str:
    """The name under which the host of a lease is listed, or its key without one."""
    return lease.host or host_of_text("", lease.key)


@dataclass(eq=False)
class Place:
    """The address of a host, as last resolved. until: how long it is valid. address: "" for a name without one."""

    address: str = ""
    until: int = 0
    next_at: int = 0
    attempts: int = 0


@dataclass
class GroupedModel(Model):
    """The same where hosts at one address are visited one after the other, `GAP` apart, once their addresses are known.

    The model says which leases a call may return, and not which ones it must return. The frontier itself says that no
    free host waits, and the end of each history shows it."""

    places: dict[str, Place] = field(default_factory=dict)
    at: dict[int, tuple[str, str]] = field(default_factory=dict)  # token -> host and address of the open request
    ends: dict[tuple[str, str], int] = field(default_factory=dict)  # host and address -> the last request's end

    def place(self, host: str) -> Place:
        return self.places.setdefault(host, Place())

    def passes(self, now: int) -> None:
        super().passes(now)
        for token in [token for token, errand in self.errands.items() if errand.deadline <= now]:
            self.end_errand(token)

    def end_errand(self, token: int) -> str:
        self.ended.append(token)
        return self.errands.pop(token).host

    def dies(self, now: int, *, counted: bool) -> None:
        super().dies(now, counted=counted)
        for token in [token for token, errand in self.errands.items() if errand.worker is None]:
            self.end_errand(token)
        # A clock of a group is worked out anew, from the hosts that are there now.
        self.ends = {key: at for key, at in self.ends.items() if self.place(key[0]).address == key[1]}

    def lose(self, token: int, *, counted: bool = True, died: bool = False) -> None:
        if died or self.leases[token].over is None:
            self.left(token, self.now)
        super().lose(token, counted=counted, died=died)

    def over(self, token: int, seconds: float, ended_at: int | None) -> None:
        super().over(token, seconds, ended_at)
        held = self.leases[token]
        self.left(token, max(held.over or 0, held.not_before))
        self.at.pop(token, None)

    def left(self, token: int, at: int) -> None:
        """Notes that a request has ended, as far as the frontier can see."""
        host = self.leases[token].url.queue.host
        # A request that is over counts where its host is now.
        where = self.at.get(token, (host, self.place(host).address))
        self.ends[where] = max(at, self.ends.get(where, 0))

    def end(self, token: int) -> Held:
        self.at.pop(token, None)
        return super().end(token)

    def reported(self, outcome: Outcome) -> Url | None:
        held = self.leases.get(outcome.token)
        if held is not None:
            self.left(outcome.token, self.ended_at(outcome.ended_at, outcome.seconds, held))
        return super().reported(outcome)

    def allowed(self, queue: Queue, now: int) -> bool:
        if queue.host[0] == "|":
            return super().allowed(queue, now)  # without a host there is no address
        place = self.place(queue.host)
        there = place.address
        return (
            super().allowed(queue, now)
            and place.until > now
            and not any(there and there == address for _, address in self.at.values())
            and all(at + instant(GAP) <= now for (_, address), at in self.ends.items() if there and address == there)
        )

    def leased(self, leases: Sequence[Lease], *, per_queue: int, worker: str | None, ttl: float) -> None:
        pages = [lease for lease in leases if lease.kind is Kind.PAGE]
        due = {queue.host for queue in self.queues if self.permitted(queue) and self.queued(queue)}
        super().leased(pages, per_queue=per_queue, worker=worker, ttl=ttl)
        there = [lease.address for lease in pages if lease.address]
        assert len(set(there)) == len(there), f"several requests at once, or a train: {pages}"
        for lease in pages:
            address = self.place(place_of(lease)).address
            assert address == (lease.address or ""), lease
            self.at[lease.token] = (place_of(lease), address)
        for lease in leases[len(pages) :]:
            place = self.place(lease.host)
            assert lease.host in due, lease
            assert place.until <= self.now >= place.next_at, f"{lease}, and {place}"
            assert not any(errand.host == lease.host for errand in self.errands.values()), lease
            assert (f"dns:{lease.host}", place.attempts + 1, None) == (lease.url, lease.attempt, lease.address), lease
            assert lease.token > self.token, f"{lease.token} is not above {self.token}"
            self.token = lease.token
            self.errands[lease.token] = Errand(lease.host, worker, self.now + instant(ttl))

    def ready(self, crawl: str | None, key: str | None, *, served: Iterable[str] = ()) -> list[Queue]:
        return []

    def next_at(self) -> int | None:
        times = [max(self.now, errand.deadline) for errand in self.errands.values()]
        before = super().next_at()
        return min(times + ([] if before is None else [before]), default=None)

    def located(self, outcome: Outcome) -> str:
        if outcome.token not in self.errands:
            return "stale"
        place = self.place(self.end_errand(outcome.token))
        if outcome.address is not None:
            holds = ADDRESS_SECONDS_USUAL if outcome.ttl_seconds is None else outcome.ttl_seconds
            place.address, place.until = outcome.address, self.now + instant(max(holds, ADDRESS_SECONDS_MIN))
            place.next_at = place.attempts = 0
        elif outcome.verdict is Verdict.RETRY and place.attempts < len(RETRY_SECONDS):
            place.next_at, place.until = self.now + instant(RETRY_SECONDS[place.attempts]), 0
            place.attempts += 1
        else:
            place.address, place.until = "", self.now + instant(ADDRESS_FAILED_SECONDS)
            place.next_at = place.attempts = 0
        return "ok"


# -- a history ---------------------------------------------------------------------------------------------------------


class History:
    """A frontier and its model, step by step. `answers`: all that the frontier answered, for comparing two of them."""

    def __init__(
        self, seed: int, *, disk: Callable[[], FaultyFiles] = FaultyFiles, steps: Iterable[int] = range(60),
        checkpoints: bool = True, grouped: bool = False,
    ) -> None:  # fmt: skip
        self.seed = seed
        self.grouped = grouped
        self.steps = list(steps)
        self.clock = Clock()
        self.disk = disk()
        self.model = GroupedModel(self.clock()) if grouped else Model(self.clock())
        self.answers: list[object] = []
        self.told: list[str] = []
        self.sequence = 0
        self.calls: list[tuple[str, tuple[str, int], Callable[[tuple[str, int]], object], Any]] = []
        self.checkpoints = checkpoints
        self.rng = random.Random(seed)
        self.threads = Interleaving(seed)
        self.frontier = self.open()

    def open(self) -> Frontier:
        settings = {
            "delay": DELAY,
            "delay_factor": FACTOR,
            "group": {"address": {"gap": GAP}} if self.grouped else None,
            "memory_bytes": 500 if self.seed % 2 else MEMORY_BYTES,  # room for a few cards: the rest is on disk
        }
        compare_openings(self.disk, now=self.clock(), memory_bytes=settings["memory_bytes"])
        frontier = Frontier.open(
            self.disk, clock=self.clock, settings=settings, seed=self.seed & 0xFFFF, keys=CLUSTER_KEYS,
            addresses="errands", robots="caller"
        )  # fmt: skip
        self.threads.take(frontier, self.disk)
        return frontier

    def live(self) -> None:
        """Raises AssertionError with the history as soon as frontier and model disagree."""
        try:
            for number in self.steps:
                self.rng = random.Random(f"{self.seed}/{number}")
                verb = self.rng.choices(VERBS, WEIGHTS)[0]
                if self.grouped and self.rng.random() < 0.25:
                    verb = History.answer_errands
                self.told.append(f"{number}: {verb.__name__}")
                verb(self)
                self.look(thoroughly=self.rng.random() < 0.1)
            self.rng = random.Random(f"{self.seed}/end")
            self.told.append("the end")
            self.ends()
            self.frontier.close()
        except Exception as error:
            raise AssertionError(f"seed {self.seed}: {error!r}\n" + "\n".join(self.told)) from error
        finally:
            self.threads.end()

    def tell(self, *what: object) -> None:
        self.told[-1] += " " + " ".join(map(str, what))

    # -- verbs

    def url(self) -> str:
        # A dot after a host makes another URL of the same host.
        return f"http://{self.rng.choice(HOSTS)}{self.rng.choice(DOTS)}/{self.rng.randrange(6)}"

    def of_crawl(self, crawl: str | None) -> str:
        """A URL as links of a crawl name it."""
        known = self.model.crawls.get(crawl or "default")
        if known is None or not known.by_callers:
            return self.url()
        return self.rng.choice([self.url(), self.url().replace("http", "HTTP"), *TEXTS])

    def link(self) -> Link:
        crawl = self.rng.choice(CRAWLS)
        known = self.model.crawls.get(crawl or "default")
        soon = self.clock() + instant(self.rng.choice([-1.0, 3.0, 3.0, 100.0, 90_000.0]))
        return Link(
            self.of_crawl(crawl),
            priority=self.priority(crawl),
            not_before=self.rng.choice([None, None, soon]),
            key=self.rng.choice(KEYS),
            crawl=crawl,
            unique_key=self.rng.choice(UNIQUE_KEYS) if known is not None and known.by_callers else None,
        )

    def priority(self, crawl: str | None) -> float:
        """A priority that fits a crawl."""
        known = self.model.crawls.get(crawl or "default")
        return self.rng.choice(PRIORITIES if known is None or known.order == "classes" else INTEGERS)

    def make_crawl(self) -> None:
        """Makes a crawl, perhaps by unique keys or with an exact order, or one again that may have other rules."""
        name, unique = self.rng.choice(["mine", "mine", "other"]), self.rng.choice(["caller", "caller", "url"])
        unique, order = unique if name == "mine" else "url", self.rng.choice(["classes", "exact", "lifo"])
        self.tell(name, unique, order)
        known = self.model.crawls.get(name)
        if known is not None and (known.by_callers, known.order) != (unique == "caller", order):
            self.refused(lambda: self.frontier.make_crawl(name, unique=unique, order=order))
            return
        assert (known is None) == self.frontier.make_crawl(name, unique=unique, order=order)
        crawl = self.model.crawl(name)
        crawl.by_callers, crawl.order = unique == "caller", order

    def discover(self) -> None:
        links = [self.link() for _ in range(self.rng.randrange(1, 8))]
        self.tell(*links)

        def call(request: tuple[str, int]) -> list[str]:
            return [str(code) for code in self.frontier.discover(links, request_id=request)]

        self.model.passes(self.clock())
        self.asked("discover", call, self.model.discover(links))

    def asked(self, verb: str, call: Callable[[tuple[str, int]], Any], expected: Any) -> None:
        """Make a call whose answer is known, now and then twice, and keep it for being repeated later."""
        self.sequence += 1
        request = ("me", self.sequence)
        answer = call(request)
        assert expected == answer, f"{verb} answered {answer}, not {expected}"
        self.answers.append((verb, answer))
        self.calls.append((verb, request, call, expected))
        if self.rng.random() < 0.1:
            assert expected == call(request), f"{verb} repeated"

    def repeat(self) -> None:
        """Repeats a call that was answered long ago, perhaps by another process."""
        if not self.calls:
            return
        verb, request, call, expected = self.rng.choice(self.calls[-30:])
        self.tell(verb, request)
        assert expected == call(request), f"{verb} {request} repeated"
        self.frontier.lease(0)
        self.model.passes(self.clock())

    def lease(self) -> None:
        want = self.rng.choice([0, 1, 2, 3, 10])
        per_queue = self.rng.choice([1, 1, 1, 2, 4])
        ttl = self.rng.choice([2.5, 10.0, 60.0, 80_000.0])
        worker = self.rng.choice([None, None, "w", "v"])
        crawl = self.rng.choice([None, None, None, None, "other", "default", "mine", "nobody"])
        key = self.rng.choice([None, None, None, None, "k", HOSTS[0], HOSTS[1]])
        errands = self.grouped and self.rng.random() < 0.8
        self.tell(f"{want=} {per_queue=} {ttl=} {worker=} {crawl=} {key=} {errands=}")
        self.model.passes(self.clock())
        self.sequence += 1
        request = ("me", self.sequence)
        batch = self.frontier.lease(
            want, per_queue=per_queue, ttl_seconds=ttl, worker=worker, crawl=crawl, key=self.dotted(key),
            request_id=request, errands=errands,
        )  # fmt: skip
        self.got(batch, want, per_queue=per_queue, ttl=ttl, worker=worker, crawl=crawl, key=key)
        if self.rng.random() < 0.1:
            again = self.frontier.lease(want, per_queue=per_queue, ttl_seconds=ttl, worker=worker, request_id=request)
            if len(batch):
                assert [lease.token for lease in batch] == [lease.token for lease in again]
                assert [lease.url for lease in batch] == again.urls
            else:
                self.got(again, want, per_queue=per_queue, ttl=ttl, worker=worker)
        if self.grouped and errands and crawl is key is None and len(batch) < want:
            assert self.frontier.next_ready_seconds() != 0, "nobody is ready, and somebody is"

    def got(
        self, batch: Sequence[Lease], want: int, *, per_queue: int, ttl: float, worker: str | None,
        crawl: str | None = None, key: str | None = None,
    ) -> None:  # fmt: skip
        assert len(batch) <= want
        self.tell("->", *((lease.token, lease.crawl, lease.url) for lease in batch))
        self.answers.append([(lease.token, lease.crawl, lease.url, lease.not_before) for lease in batch])
        for lease in batch:
            if lease.kind is Kind.PAGE:
                assert crawl in (None, lease.crawl), lease
                assert key in (None, lease.key), lease
        self.model.leased(batch, per_queue=per_queue, worker=worker, ttl=ttl)
        if len(batch) < want:
            forgotten = self.model.ready(crawl, key, served={place_of(lease) for lease in batch})
            assert [] == forgotten, "ready, but nobody got it"

    def tokens(self, most: int) -> list[int]:
        """Tokens of open leases, now and then one that has ended, or one twice."""
        self.model.passes(self.clock())
        open_ones = sorted(self.model.leases)
        some = self.rng.sample(open_ones, min(len(open_ones), self.rng.randint(1, most)))
        if self.model.ended and self.rng.random() < 0.15:
            some.append(self.rng.choice(self.model.ended))
        if some and self.rng.random() < 0.1:
            some.append(some[0])
        return some

    def report(self) -> None:
        outcomes = [self.outcome(token) for token in self.tokens(3)]
        if not outcomes:
            self.frontier.lease(0)
            return
        self.tell(*outcomes)
        model = self.model
        dues = {token: held.url.due for token, held in model.leases.items()}
        heard = [model.heard(outcome) for outcome in outcomes]
        urls = [model.reported(outcome) for outcome in heard]
        for outcome, url in zip(heard, urls, strict=True):
            if url is not None:
                model.target(outcome, url, dues[outcome.token])
        links = tuple(
            () if url is None else tuple(model.accept(str(link), url.queue.crawl) for link in outcome.links)
            for outcome, url in zip(outcomes, urls, strict=True)
        )

        def call(request: tuple[str, int]) -> Any:
            answer = self.frontier.report(outcomes, request_id=request)
            return [str(code) for code in answer], tuple(tuple(map(str, codes)) for codes in answer.links)

        self.asked("report", call, (["stale" if url is None else "ok" for url in urls], links))

    def outcome(self, token: int) -> Outcome:
        rng, now = self.rng, self.clock()
        verdict = rng.choice(["done", "done", "done", "retry", "gone", "again"])
        failed = verdict in ("retry", "gone")
        held = self.model.leases.get(token)
        crawl = held.url.queue.crawl.name if held is not None and not held.url.queue.crawl.deleted else None
        plain = verdict == "done" and rng.random() < 0.4
        return Outcome(
            token,
            Verdict(verdict),
            seconds=rng.choice([0.0, 0.0, 0.3, 2.0]),
            status=None if failed else 200,
            error=rng.choice([None, *ERRORS]) if failed else None,
            location=self.url() if verdict == "done" and not plain and rng.random() < 0.3 else None,
            retry_after_seconds=None if plain else rng.choice([None, None, 4.0]),
            at=now + instant(rng.choice([0.0, 2.0, 50.0])) if verdict == "again" else None,
            ended_at=None if plain else rng.choice([None, None, now - instant(0.7)]),
            links=[] if plain else [self.of_crawl(crawl) for _ in range(rng.randrange(3))],
            etag=None if plain else rng.choice([None, f'"{rng.randrange(9)}"']),
        )

    def answer_errands(self) -> None:
        """Errands for addresses are answered, in vain or not, returned, or continue."""
        model = self.model
        assert isinstance(model, GroupedModel)
        model.passes(self.clock())
        tokens = self.rng.sample(sorted(model.errands), min(len(model.errands), 3))
        if model.ended and self.rng.random() < 0.1:
            tokens.append(self.rng.choice(model.ended))
        what = self.rng.random()
        if what < 0.1:
            self.tell("back", tokens)
            expected = ["ok" if token in model.errands and model.end_errand(token) else "stale" for token in tokens]
            self.same("release", expected, self.frontier.release(tokens))
            return
        if what < 0.2:
            self.tell("longer", tokens)
            expected = ["ok" if token in model.errands else "stale" for token in tokens]
            for token in set(tokens) & set(model.errands):
                model.errands[token].deadline = self.clock() + instant(40.0)
            self.same("extend", expected, self.frontier.extend(tokens, 40.0))
            return
        outcomes = [self.found(token) for token in tokens]
        self.tell(*outcomes)
        expected = [model.located(outcome) for outcome in outcomes]
        assert expected == [str(code) for code in self.frontier.report(outcomes)]

    def found(self, token: int) -> Outcome:
        what = self.rng.random()
        if what < 0.7:
            ttl = self.rng.choice([None, None, 0.0, 60.0])
            return Outcome(token, Verdict.DONE, address=self.rng.choice(ADDRESSES), ttl_seconds=ttl)
        return Outcome(token, Verdict.RETRY if what < 0.9 else Verdict.GONE, error="dns")

    def release(self) -> None:
        tokens = self.tokens(3)
        self.tell(tokens)
        expected = [self.model.back(token, None) for token in tokens]
        self.same("release", expected, self.frontier.release(tokens))

    def defer(self) -> None:
        tokens = self.tokens(3)
        until = self.clock() + instant(self.rng.choice([0.0, 2.0, 30.0, 5_000.0]))
        self.tell(tokens, until)
        expected = [self.model.back(token, until) for token in tokens]
        self.same("defer", expected, self.frontier.defer(tokens, until))

    def extend(self) -> None:
        tokens, ttl = self.tokens(3), self.rng.choice([1.0, 30.0, 1_000.0])
        self.tell(tokens, ttl)
        expected = [self.model.extended(token, self.clock() + instant(ttl)) for token in tokens]
        self.same("extend", expected, self.frontier.extend(tokens, ttl))

    def rest(self) -> None:
        tokens = self.tokens(3)
        seconds = [self.rng.choice([None, 0.0, 0.3, 2.0]) for _ in tokens]
        ended_at = self.rng.choice([None, None, self.clock() - instant(0.7), self.clock() + instant(1.0)])
        self.tell(tokens, seconds, ended_at)
        expected = self.model.rested(tokens, seconds, ended_at)
        self.same("rest", expected, self.frontier.rest(tokens, seconds, ended_at))

    def same(self, verb: str, expected: list[str], answer: Iterable[Settled]) -> None:
        found = [str(code) for code in answer]
        assert expected == found, f"{verb} answered {found}, not {expected}"
        self.answers.append((verb, found))

    # -- operators

    def meant(self) -> tuple[str | None, str | None]:
        key = self.rng.choice([None, "k", HOSTS[0], HOSTS[1], HOSTS[2], "nobody"])
        return key, self.rng.choice([None, None, "default", "other", "mine"])

    def dotted(self, key: str | None) -> str | None:
        """As operators may write it, too."""
        return key if key is None else key + self.rng.choice(DOTS)

    def rule(
        self,
        change: Callable[[Said], None],
        call: Callable[..., int],
        *,
        before: Callable[[Sequence[Queue]], None] = lambda queues: None,
    ) -> None:
        """Words about queues by key and crawl; the frontier refuses words about a crawl or key that is not there."""
        key, crawl = self.meant()
        self.tell(key, crawl)
        queues = self.model.chosen(key, crawl)
        if queues is None:
            self.refused(lambda: call(self.dotted(key), crawl=crawl))
            return
        before(queues)
        for said in (*queues, *self.model.meant(key, crawl)):
            change(said)
        answer = call(self.dotted(key), crawl=crawl)
        assert len(queues) == answer, f"{answer} queues, not {len(queues)}"
        self.answers.append(answer)

    @staticmethod
    def refused(call: Callable[[], object]) -> None:
        try:
            call()
        except SettingsError:
            return
        raise AssertionError("a crawl or key that is not there was taken")

    def pause(self) -> None:
        self.pauses(paused=True)

    def resume(self) -> None:
        self.pauses(paused=False)

    def pauses(self, *, paused: bool) -> None:
        key, crawl = self.meant()
        self.tell(key, crawl)
        queues = self.model.chosen(key, crawl)
        call = self.frontier.pause if paused else self.frontier.resume
        if queues is None:
            self.refused(lambda: call(self.dotted(key), crawl=crawl))
            return
        if key is None:
            self.model.crawls[crawl or "default"].paused = paused
        for said in (*queues, *self.model.meant(key, crawl)) if key is not None else ():
            said.paused = paused
        assert len(queues) == call(self.dotted(key), crawl=crawl)

    def block_until(self) -> None:
        until = self.clock() + instant(self.rng.choice([-5.0, 3.0, 60.0, 4_000.0]))
        self.tell(until)
        self.rule(
            lambda said: setattr(said, "blocked_until", until),
            lambda key, crawl: self.frontier.block_until(until, key, crawl=crawl),
        )

    def set_delay(self) -> None:
        delay = self.rng.choice([None, 0.5, 3.0])
        self.tell(delay)
        self.rule(
            lambda said: setattr(said, "delay", delay),
            lambda key, crawl: self.frontier.set_delay(delay, key, crawl=crawl),
            before=lambda queues: self.slower(queues, delay),
        )

    def slower(self, queues: Sequence[Queue], delay: float | None) -> None:
        self.model.now = self.clock()
        self.model.slower(queues, DELAY if delay is None else delay)

    def set_limit(self) -> None:
        limit = self.rng.choice([None, 1, 2, 3])
        self.tell(limit)

        def change(said: Said) -> None:
            said.limit = limit
            if isinstance(said, Queue) and (limit or 1) > 1 and self.model.busy(said.host):
                self.model.now = self.frontier.now()
                self.model.rest_beside(said)

        self.rule(change, lambda key, crawl: self.frontier.set_limit(limit, key, crawl=crawl))

    def delete(self) -> None:
        key, crawl = self.meant()
        if key is None:
            crawl = self.rng.choice(["other", "other", "mine", "default", None])
        self.tell(key, crawl)
        queues = self.model.chosen(key, crawl)
        if queues is None:
            self.refused(lambda: self.frontier.delete(self.dotted(key), crawl=crawl))
            return
        if key is None:
            self.model.delete_crawl(crawl or "default")
        else:
            self.model.delete(queues)
        assert len(queues) == self.frontier.delete(self.dotted(key), crawl=crawl)

    def reprioritise(self) -> None:
        crawl = self.rng.choice(CRAWLS)
        of = self.model.crawls.get(crawl or "default")
        wishes = [(self.named(crawl), self.priority(crawl)) for _ in range(self.rng.randrange(1, 6))]
        self.tell(crawl, *wishes)
        if of is None:
            self.refused(lambda: self.frontier.reprioritise(dict(wishes), crawl=crawl))
            return
        self.model.passes(self.clock())
        if self.rng.random() < 0.5:
            of_each = {name: (name, priority) for name, priority in wishes}
            expected = [self.model.reprioritise(name, priority, of) for name, priority in of_each.values()]
            answer = self.frontier.reprioritise(dict(of_each.values()), crawl=crawl)
        else:
            urls, priority = [url for url, _ in wishes], wishes[0][1]
            expected = [self.model.reprioritise(url, priority, of) for url in urls]
            answer = self.frontier.reprioritise(urls, priority, crawl=crawl)
        assert expected == [str(state) for state in answer], f"{answer}, not {expected}"
        self.answers.append(expected)

    def some_urls(self, crawl: str | None, of: Crawl | None) -> list[UrlName]:
        """Names of up to five URLs of a crawl, each URL once."""
        names = [self.named(crawl) for _ in range(self.rng.randrange(1, 6))]
        if of is not None:  # a name in two forms is one URL
            names = [Model.name(of, name.url, name.key, None) if isinstance(name, Link) else name for name in names]
        return list(dict.fromkeys(names))

    def delete_urls(self) -> None:
        crawl = self.rng.choice(CRAWLS)
        of = self.model.crawls.get(crawl or "default")
        urls = self.some_urls(crawl, of)
        self.tell(crawl, *urls)
        if of is None:
            self.refused(lambda: self.frontier.delete_urls(urls, crawl=crawl))
            return
        self.model.passes(self.clock())
        expected = [self.model.delete_url(url, of) for url in urls]
        answer = self.frontier.delete_urls(urls, crawl=crawl)
        assert expected == [str(state) for state in answer], f"{answer}, not {expected}"
        self.answers.append(expected)

    def requeue(self) -> None:
        crawl = self.rng.choice(CRAWLS)
        of = self.model.crawls.get(crawl or "default")
        urls = self.some_urls(crawl, of)
        at = self.rng.choice([None, self.clock() + instant(self.rng.choice([-1.0, 0.0, 0.5, 3.0, 60.0]))])
        priority = self.rng.choice([None, self.priority(crawl)])
        self.tell(crawl, at, priority, *urls)
        if of is None:
            self.refused(lambda: self.frontier.requeue(urls, at=at, priority=priority, crawl=crawl))
            return
        self.model.passes(self.clock())
        expected = [self.model.requeue(url, at, priority, of) for url in urls]
        answer = self.frontier.requeue(urls, at=at, priority=priority, crawl=crawl)
        assert expected == [str(state) for state in answer], f"{answer}, not {expected}"
        self.answers.append(expected)

    def put(self) -> None:
        """Records of known URLs; `discover` and the tests of `restore` have the new ones."""
        known = [place for place in self.model.urls if not place[0].deleted]
        self.model.passes(self.clock())
        records = []
        for crawl, name in self.rng.sample(known, min(len(known), 3)):
            url = self.model.urls[crawl, name]
            unique_key = name.hex() if isinstance(name, bytes) else None
            state = self.rng.choice(["queued", "waiting", "done", "gone"])
            due = self.clock() + instant(self.rng.choice([-1.0, 2.0, 50.0])) if state == "waiting" else None
            priority = self.rng.choice([None, self.priority(crawl.name)])
            by = {"unique": "caller", "unique_key": unique_key} if crawl.by_callers else {"unique_key": None}
            of = {"url": url.text, "crawl": crawl.name, "key": url.queue.key, **by}
            records.append({**of, "state": state, "due": due, "priority": priority, "attempts": 1})
        self.tell(*records)
        crawls = {crawl.name: crawl for crawl, _ in known}
        expected = [self.model.put(record, crawls[record["crawl"]]) for record in records]
        answer = self.frontier.put(records)
        assert expected == [str(code) for code in answer], f"{answer}, not {expected}"
        self.answers.append(expected)

    def named(self, crawl: str | None) -> UrlName:
        """The name of a URL that a crawl may have."""
        known, text = self.model.crawls.get(crawl or "default"), self.of_crawl(crawl)
        if known is None or not known.by_callers:
            return text
        key = self.rng.choice(KEYS)
        return self.rng.choice(UNIQUE_KEYS) or (text if key is None else Link(text, key=key))

    def retry(self) -> None:
        error = self.rng.choice([None, None, "lost", "retries", *ERRORS, "nothing"])
        host = self.rng.choice([None, None, HOSTS[0], "nobody.com"])
        self.tell(error, host)
        self.model.passes(self.clock())
        expected = self.model.retry(error, host)
        assert expected == self.frontier.retry(error=error, host=host)

    # -- time and ends

    def advance(self) -> None:
        seconds = self.rng.choice([0.2, 1.0, 1.0, 3.0, 10.0, 70.0, 5_000.0, 100_000.0])
        self.tell(seconds)
        self.clock.move(seconds)

    def wait_as_told(self) -> None:
        wait = self.frontier.next_ready_seconds()
        self.tell(wait)
        if wait is not None:
            self.clock.move(wait)

    def step_back(self) -> None:
        """Pauses time while hosts wait; then the clock catches up."""
        at = self.clock.at
        self.model.passes(at)
        self.frontier.lease(0)
        self.clock.move(-self.rng.choice([0.5, 100.0]))
        self.frontier.lease(0)
        self.model.steps_back(at)
        self.clock.at = at

    def checkpoint(self) -> None:
        if self.checkpoints:
            self.frontier.checkpoint()

    def stop_and_go_on(self) -> None:
        self.frontier.close()
        self.model.dies(self.clock(), counted=False)
        self.frontier = self.open()

    def kill(self) -> None:
        """The process is killed: all that it wrote is there, and it closed nothing."""
        self.disk = self.disk.copy()
        self.model.dies(self.clock(), counted=True)
        self.frontier = self.open()

    def power_cut(self) -> None:
        """One of the disks that may be left. Everything was answered, so everything is there."""
        if not isinstance(self.disk, CrashDisk):
            self.kill()
            return
        self.disk = self.rng.choice(list(self.disk.crash_images(self.rng, 2)))
        self.model.dies(self.clock(), counted=True)
        self.frontier = self.open()

    # -- what always holds

    def look(self, *, thoroughly: bool) -> None:
        model, frontier = self.model, self.frontier
        statistics: Any = frontier.statistics()
        counts = model.counts()
        assert counts == statistics["urls"], f"{statistics['urls']}, not {counts}"
        assert len(model.urls) == statistics["accepted"]
        busy = counts["queued"] or counts["leased"] or counts["waiting"] or model.errands
        assert (not busy) == frontier.finished()
        self.answers.append(tuple(counts.values()))
        model.now = self.clock()
        expected, wait = model.next_at(), frontier.next_ready_seconds()
        if expected is not None:
            assert wait is not None, "there is something to wait for"
            # Seconds are floats: one microsecond may be rounding.
            assert self.clock() + instant(wait) - 1 <= expected, f"{wait} s is too late for {expected}"
        for host in frontier.hosts(limit=1_000):
            clock = model.hosts[host.name]
            until = host.rest_until or 0
            assert max(clock.rest_until, model.now) == max(until, model.now), f"{host}, not {clock}"
            assert model.busy(host.name) == host.leased, host
        if thoroughly:
            self.look_everywhere()

    def look_everywhere(self) -> None:
        """Each URL and each queue, and that nothing is wrong inside."""
        model, frontier = self.model, self.frontier
        tokens = {id(held.url): token for token, held in model.leases.items()}
        found = {
            (url.crawl, model.name(model.crawls[url.crawl], url.url, url.key, url.unique_key)): (
                str(url.state),
                url.key,
                url.due,
                url.attempts,
                url.token,
                round(url.priority or 0, 6),
            )
            for url in frontier.urls(limit=1_000)
        }
        expected = {
            (crawl.name, name): (
                *(url.state, url.queue.key, url.due if url.state == "waiting" else None, url.attempts),
                *(tokens.get(id(url)), round(url.priority, 6)),
            )
            for (crawl, name), url in model.urls.items()
        }
        assert expected == found
        listed = frontier.queues(limit=1_000)
        assert sum(not queue.crawl.deleted for queue in model.queues) == len(listed)
        for queue in self.rng.sample(listed, min(3, len(listed))):
            crawl = model.crawls[queue.crawl]
            mine = next(one for one in model.queues if (one.crawl, one.key, one.host) == (crawl, queue.key, queue.host))
            counts = dict.fromkeys(("queued", "leased", "waiting", "parked", "done", "gone"), 0)
            for url in model.urls.values():
                counts[url.state] += url.queue is mine
            assert counts == {state: getattr(queue, state) for state in counts}, queue
            assert (mine.paused or crawl.paused, mine.delay, mine.limit) == (
                queue.paused,
                queue.delay_seconds,
                queue.limit,
            )
        for (crawl, name), url in self.rng.sample(sorted(model.urls.items(), key=repr), min(3, len(model.urls))):
            assert url.state == frontier.status(name, crawl=crawl.name).state
            assert url.state == frontier.explain(name, crawl=crawl.name).state
        idle = frontier.explain_idle()
        assert (idle.reason == "finished") == frontier.finished(), idle
        shared = inspect(frontier).turns.shared
        assert [] == recount(frontier) + shared.problems()

    def ends(self) -> None:
        """Lifts every prohibition and lets every page answer: each URL ends."""
        model, frontier = self.model, self.frontier
        for name in list(model.crawls):
            frontier.resume(crawl=name)
            model.crawls[name].paused = False
        for queue in model.queues:
            if not queue.crawl.deleted:
                frontier.resume(queue.key, crawl=queue.crawl.name)
                frontier.block_until(0, queue.key, crawl=queue.crawl.name)
                queue.paused, queue.blocked_until = False, 0
        self.look_everywhere()
        for _ in range(2_000):
            model.passes(self.clock())
            batch = frontier.lease(100, per_queue=2, errands=self.grouped)
            self.got(batch, 100, per_queue=2, ttl=60, worker=None)
            mine = [token for token, held in model.leases.items() if held.worker is None]
            outcomes = [Outcome(token, Verdict.DONE, seconds=0.0, status=200) for token in mine]
            settled = ["stale" if model.reported(outcome) is None else "ok" for outcome in outcomes]
            assert settled == [str(code) for code in frontier.report(outcomes)]
            for token in [token for token, errand in model.errands.items() if errand.worker is None]:
                assert isinstance(model, GroupedModel)
                outcome = Outcome(token, Verdict.DONE, address=ADDRESSES[0])
                assert [model.located(outcome)] == [str(code) for code in frontier.report([outcome])]
            if frontier.finished():
                break
            wait = frontier.next_ready_seconds()
            assert wait is not None, f"{model.counts()}, and nothing to wait for"
            self.clock.move(wait)
        assert frontier.finished(), f"{model.counts()} after 2000 rounds"
        self.look_everywhere()
        self.kill()
        self.look(thoroughly=True)
        self.look_everywhere()


_SHARES: dict[Callable[[History], None], int] = {
    History.discover: 14,
    History.make_crawl: 4,
    History.lease: 24,
    History.report: 18,
    History.release: 3,
    History.defer: 3,
    History.extend: 3,
    History.rest: 6,
    History.repeat: 3,
    History.pause: 2,
    History.resume: 4,
    History.block_until: 2,
    History.set_delay: 2,
    History.set_limit: 3,
    History.delete: 2,
    History.delete_urls: 3,
    History.reprioritise: 4,
    History.requeue: 4,
    History.put: 3,
    History.retry: 3,
    History.advance: 14,
    History.wait_as_told: 6,
    History.step_back: 1,
    History.checkpoint: 2,
    History.stop_and_go_on: 2,
    History.kill: 2,
    History.power_cut: 1,
}
VERBS, WEIGHTS = list(_SHARES), list(_SHARES.values())


def shortest(seed: int, steps: Sequence[int], life: Callable[..., Any] = History, **how: Any) -> str | None:
    """The failure of a history with as many of its steps left out as can be; None where it does not fail."""
    failure = _failure(seed, steps, life, **how)
    if failure is None:
        return None
    kept, size = list(steps), max(1, len(steps) // 2)
    while True:
        begun = len(kept)
        for pieces in _without_pieces(kept, size):
            shorter = _failure(seed, pieces, life, **how)
            if shorter is not None:
                kept, failure = pieces, shorter
                break
        if len(kept) == begun:
            if size == 1:
                return failure
            size //= 2


def _without_pieces(steps: list[int], size: int) -> Iterator[list[int]]:
    for start in range(0, len(steps), size):
        yield steps[:start] + steps[start + size :]


def _failure(seed: int, steps: Sequence[int], life: Callable[..., Any], **how: Any) -> str | None:
    try:
        life(seed, steps=steps, **how).live()
    except AssertionError as error:
        return str(error)
    return None
