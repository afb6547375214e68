"""Random histories of a frontier with orders of operators: limits above one, errands, workers whose clocks are off.

A history is drawn from one seed and runs on a virtual clock: several crawls, hosts of several authorities and
spellings, shared clocks, budgets, full queues, all verbs, kills and steps of the clock. A bystander (bystander.py)
that does not read the frontier's inside judges each lease. At the end nothing is forbidden any more, every
server answers, and the history must end.

Each step has a random source of its own, from (seed, number of the step), so that steps may be left out
(`histories.shortest`).
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from model.bystander import ALL, SECOND, Judge, Request, Settings, plain
from model.inside import inspect
from model.interleaving import Interleaving
from model.openings import compare_openings
from model.url_parser import parsed
from model.world import Clock, recount
from outrider import Frontier, Link
from outrider.clock import instant
from outrider.errors import PagesNeedErrandsError, SettingsError
from outrider.journey import Kind, Lease, Outcome, RobotsAnswer, Verdict
from outrider.sim.disk import CrashDisk, FaultyFiles

NAMES = ["a.one.com", "b.one.com", "a.two.com", "three.com", "four.org"]
PLACES = ["http://{}", "http://{}", "http://{}", "https://{}", "http://{}:8080", "http://{}.", "https://{}.:8443"]
CRAWLS = [None, None, "other", "third"]
KEYS = [None] * 12 + ["k"]
WORKERS = [None, None, None, "near", "near", "far", "late", "early"]
CLOCKS_OFF = {"near": -1.5, "far": 3_600.0, "late": -3_600.0, "early": 40.0}
"""Seconds by which a worker's clock is ahead of the true one."""
ADDRESSES = ["192.0.2.1", "192.0.2.2", "2001:db8::1"]
BODIES = [
    b"",
    b"User-agent: *\nDisallow: /3",
    b"User-agent: *\nCrawl-delay: 7\nDisallow: /4",
    b"User-agent: *\nDisallow: /\nAllow: /1\n",
    b"User-agent: outrider\nCrawl-delay: 2.5\n\nUser-agent: *\nDisallow: /",
]
LISTED = 10_000
ROUNDS_MAX = 3_000


@dataclass
class Held:
    """An open lease. before: the one that its holder fetches first, where a call returned several of a queue. ahead:
    how far the true clock was ahead of the frontier's."""

    lease: Lease
    request: Request
    worker: str | None
    before: int | None
    ahead: int


@dataclass
class End:
    """The end of a lease: when its request has truly ended, and its holder's report."""

    held: Held
    at: int
    outcome: Outcome


class Operated:
    """One history: a frontier, the servers it visits, its operators, and the judge."""

    def __init__(
        self, seed: int, *, disk: Callable[[], FaultyFiles] = FaultyFiles, steps: Iterable[int] = range(60),
        rules: Iterable[str] = ALL,
    ) -> None:  # fmt: skip
        self.seed = seed
        self.steps = list(steps)
        self.rng = random.Random(f"{seed}/settings")
        self.true = Clock()
        self.back = 0  # how far the frontier's clock was set back; time is paused until it has caught up
        self.names = self.rng.choice([NAMES, NAMES, NAMES[:2], NAMES[1:4]])
        self.weights = [share * self.rng.choice([1, 1, 1, 4]) for share in SHARES.values()]
        self.settings, said = self.drawn()
        self.judge = Judge(said, self.true(), rules)
        self.hand: dict[int, Held] = {}
        self.past: list[int] = []
        self.quiet_until: int | None = -1  # as next_ready_seconds returned, None: for ever, -1: not known
        self.told: list[str] = [f"settings {self.settings} robots={said.robots_errands} {said.address_errands=}"]
        self.disk = disk()
        self.threads = Interleaving(seed)
        self.frontier = self.open()

    def drawn(self) -> tuple[dict[str, Any], Settings]:
        rng = self.rng
        delay, factor = rng.choice([0.5, 1.0, 1.0, 3.0]), rng.choice([0.0, 2.0, 10.0])
        group: dict[str, tuple[int, float | None]] = {}
        if rng.random() < 0.35:
            for kind in rng.choice([["domain"], ["address"], ["domain", "address"]]):
                group[kind] = (rng.choice([1, 1, 2]), rng.choice([None, 2.0, 5.0]))
        full = rng.choice(["refuse", "drop_lowest", "spill", "delay"])
        pages, per_host, urls = rng.choice([None, None, 30]), rng.choice([None, None, 6]), rng.choice([None, None, 4])
        told = {
            kind: {"capacity": capacity} | ({} if gap is None else {"gap": gap})
            for kind, (capacity, gap) in group.items()
        }
        settings = {
            "delay": delay, "delay_factor": factor, "group": told or None, "max_pages": pages,
            "max_pages_per_host": per_host, "max_urls_per_queue": urls, "when_full": full,
        }  # fmt: skip
        errands, finds = rng.random() < 0.6, rng.random() < 0.6
        return settings, Settings(delay, factor, group, pages, per_host, errands, finds and "address" in group)

    def clock(self) -> int:
        return self.true() - self.back

    def open(self) -> Frontier:
        said = self.judge.settings
        compare_openings(self.disk, now=self.clock())
        frontier = Frontier.open(
            self.disk, clock=self.clock, settings=self.settings, seed=self.seed & 0xFFFF,
            robots="errands" if said.robots_errands else "caller",
            addresses="errands" if said.address_errands else "caller",
        )  # fmt: skip
        self.threads.take(frontier, self.disk)
        return frontier

    def live(self) -> None:
        """Raises AssertionError with the history at the first breach."""
        try:
            for number in self.steps:
                self.rng = random.Random(f"{self.seed}/{number}")
                verb = self.rng.choices(list(SHARES), self.weights)[0]
                self.told.append(f"{number}: {verb.__name__}")
                self.passes()
                verb(self)
                self.passes()
                if verb not in (Operated.lease, Operated.advance, Operated.ask):
                    self.quiet_until = -1
                self.look(thoroughly=self.rng.random() < 0.1)
            self.rng = random.Random(f"{self.seed}/end")
            self.told.append("the end")
            self.drains()
            self.frontier.close()
        except Exception as error:
            raise AssertionError(f"seed {self.seed}: {error!r}\n" + "\n".join(self.told)) from error
        finally:
            self.threads.end()

    def tell(self, *what: object) -> None:
        self.told[-1] += " " + " ".join(map(str, what))

    def passes(self) -> None:
        self.judge.passes(self.true(), self.frontier.now())
        for token in [token for token in self.hand if token not in self.judge.open]:
            del self.hand[token]
            self.past.append(token)

    def demand(self, rule: str, holds: bool, *about: object) -> None:
        self.judge.demand(rule, holds, *about)

    # -- the three verbs

    def url(self) -> str:
        places = PLACES if "one clock per server" in self.judge.rules else PLACES[:5]
        return self.rng.choice(places).format(self.rng.choice(self.names)) + f"/{self.rng.randrange(6)}"

    def links(self) -> list[Link]:
        rng = self.rng
        if rng.random() < 0.1:
            host = rng.choice(self.names)
            return [Link(f"http://{host}/many/{number}") for number in range(20)]
        return [
            Link(
                self.url(), priority=rng.choice([0.03, 0.3, 0.5, 0.9]), key=rng.choice(KEYS), crawl=rng.choice(CRAWLS),
                not_before=rng.choice([None, None, None, self.frontier.now() + instant(rng.choice([3.0, 5_000.0]))]),
            )
            for _ in range(rng.randrange(1, 7))
        ]  # fmt: skip

    def discover(self) -> None:
        links = self.links()
        codes = self.frontier.discover(links)
        self.tell(*((link.url, link.crawl, link.key, str(code)) for link, code in zip(links, codes, strict=True)))
        for link, code in zip(links, codes, strict=True):
            self.judge.crawl(link.crawl)
            if str(code) == "new":
                self.judge.queue(link.crawl, link.key, link.url)

    def lease(self) -> None:
        rng = self.rng
        self.take(
            rng.choice([1, 2, 5, 50]), per_queue=rng.choice([1, 1, 2, 3]), worker=rng.choice(WORKERS),
            errands=rng.random() < 0.8, crawl=rng.choice([None] * 5 + ["other", "default"]),
            key=rng.choice([None] * 6 + ["k", *self.names[:2]]), ttl_seconds=rng.choice([5.0, 600.0, 600.0, 80_000.0]),
        )  # fmt: skip

    def take(self, want: int, **how: Any) -> list[Lease]:
        worker = how.get("worker")
        try:
            batch = list(self.frontier.lease(want, **how))
        except PagesNeedErrandsError:  # an empty batch, and nobody has leased errands yet
            assert not how.get("errands")
            batch = []
        self.passes()
        self.tell(want, how, "->", *((str(one.kind), one.token, one.crawl, one.url) for one in batch))
        assert len(batch) <= want, batch
        self.was_quiet(batch)
        requests = self.judge.leased(
            batch, worker=worker, per_queue=how.get("per_queue", 1), crawl=how.get("crawl"), key=how.get("key")
        )
        last: dict[int, int] = {}
        for lease, request in zip(batch, requests, strict=True):
            before = last.get(request.stream)
            self.hand[lease.token] = Held(lease, request, worker, before, self.true() - self.frontier.now())
            last[request.stream] = lease.token
        return batch

    def was_quiet(self, batch: list[Lease]) -> None:
        """Checks that nothing is leased before the instant that `next_ready_seconds` returned, where nothing but time
        has changed."""
        now, until = self.frontier.now(), self.quiet_until
        if batch and until != -1:
            rule = "next ready" if any(one.kind is Kind.PAGE for one in batch) else "errands in next ready"
            self.demand(rule, until is not None and now >= until - 1, f"{batch[0]} at {now}, told was {until}")
        self.quiet_until = -1 if batch else until

    def report(self) -> None:
        """Some leases end, in the order in which their holders fetch."""
        rng = self.rng
        ends: list[End] = []
        for token in rng.sample(sorted(self.hand), min(len(self.hand), rng.choice([1, 3, 50]))):
            held = self.hand[token]
            if self.begins(held):
                ends.append(self.end(held))
                del self.hand[token]
        late = [Outcome(rng.choice(self.past), Verdict.DONE, status=200)] if self.past and rng.random() < 0.1 else []
        if ends or late:
            self.settle(ends, late)
            self.quiet_until = -1  # a report may make a host ready that was not
        if ends and rng.random() < 0.4:  # leases exactly the hosts that are due now
            self.passes()
            self.take(50, errands=True)

    def begins(self, held: Held) -> bool:
        """Whether its request has begun by now: a request of a train begins when the one before it has ended and the
        host has waited."""
        request = held.request
        if held.lease.kind is Kind.ADDRESS:
            return True
        before = self.hand.get(held.before or 0)
        if request.begun is None and (before is None or before.request.ended is not None):
            begun = max(held.lease.not_before + held.ahead, self.judge.earliest(request))
            if begun <= self.true():
                request.begun = begun
        return request.begun is not None and request.begun <= self.true()

    def end(self, held: Held) -> End:
        """A holder's report on its request, and when the request has truly ended."""
        now = self.true()
        if held.lease.kind is Kind.ADDRESS:
            return End(held, now, self.found_address(held.lease))
        at, how = self.heard_end(held, now)
        if "clocks of workers" not in self.judge.rules and (held.worker or held.lease.kind is Kind.ROBOTS):
            how.pop("ended_at", None)
        answer = self.robots_answer if held.lease.kind is Kind.ROBOTS else self.page_answer
        return End(held, at, answer(held.lease.token, how))

    def heard_end(self, held: Held, now: int) -> tuple[int, dict[str, Any]]:
        """When a request has truly ended, and what its holder says about that."""
        rng, request = self.rng, held.request
        assert request.begun is not None
        at = now if rng.random() < 0.6 else rng.randint(request.begun, now)
        at = at if request.ended is None else request.ended
        took = min((at - request.begun) / SECOND, rng.choice([0.0, 0.1, 0.4, 3.0, 30.0]))
        how: dict[str, Any] = {"seconds": rng.choice([took, took, took, None])}
        if held.worker is not None:
            how["ended_at"] = at - held.ahead + int(CLOCKS_OFF[held.worker] * SECOND)
        elif rng.random() < 0.3:
            how["ended_at"] = at - held.ahead
        return at, how

    def rest(self) -> None:
        """Some requests are over, and what came of them is not known yet; some are said to be over a second time."""
        tokens = self.rng.sample(sorted(self.hand), min(len(self.hand), self.rng.choice([1, 3, 50])))
        pages = [token for token in tokens if self.hand[token].lease.kind is not Kind.ADDRESS]
        tokens = [token for token in pages if self.begins(self.hand[token])]
        ends = [self.heard_end(self.hand[token], self.true()) for token in tokens]
        seconds, ended = [how["seconds"] for _, how in ends], [how.get("ended_at") for _, how in ends]
        self.tell(tokens, seconds, ended)
        codes = self.frontier.rest(tokens, seconds, ended)
        self.demand("stale", all(str(code) == "ok" for code in codes), codes)
        for token, (at, how) in zip(tokens, ends, strict=True):
            if self.hand[token].request.ended is None:
                self.judge.over(token, at, seconds=how["seconds"])
        self.quiet_until = -1

    def page_answer(self, token: int, how: dict[str, Any]) -> Outcome:
        rng = self.rng
        mood = rng.random()
        links = [self.url() for _ in range(rng.choice([0, 0, 2]))]
        if mood < 0.5:
            return Outcome(token, Verdict.DONE, status=200, links=links, **how)
        if mood < 0.6:
            after = rng.choice([None, 20.0])
            return Outcome(token, Verdict.DONE, status=301, location=self.url(), retry_after_seconds=after, **how)
        if mood < 0.7:
            after = rng.choice([None, 4.0, 100.0, 5_000.0])
            return Outcome(token, Verdict.RETRY, error="reset", retry_after_seconds=after, **how)
        if mood < 0.8:
            status, after = rng.choice([429, 503]), rng.choice([None, None, 15.0])
            return Outcome(token, Verdict.RETRY, status=status, refused=True, retry_after_seconds=after, **how)
        if mood < 0.9:
            return Outcome(token, Verdict.GONE, status=404, **how)
        at = self.frontier.now() + instant(rng.choice([0.0, 9.0, 4_000.0]))
        return Outcome(token, Verdict.AGAIN, status=200, at=at, links=links, **how)

    def robots_answer(self, token: int, how: dict[str, Any]) -> Outcome:
        rng = self.rng
        mood = rng.random()
        if mood > 0.9:
            return Outcome(token, Verdict.RETRY, robots=RobotsAnswer(None), error="cut", **how)
        if mood < 0.55:
            answer = RobotsAnswer(200, rng.choice(BODIES))
        elif mood < 0.7:
            answer = RobotsAnswer(404)
        elif mood < 0.8:
            answer = RobotsAnswer(301, location=self.url() + ".txt")
        else:
            answer = RobotsAnswer(503)
            how["retry_after_seconds"] = rng.choice([None, 12.0])
        return Outcome(token, Verdict.DONE, status=answer.status, robots=answer, **how)

    def found_address(self, lease: Lease) -> Outcome:
        mood = self.rng.random()
        if mood < 0.7:
            ttl = self.rng.choice([None, 30.0, 700.0])
            return Outcome(lease.token, Verdict.DONE, address=self.rng.choice(ADDRESSES), ttl_seconds=ttl)
        return Outcome(lease.token, Verdict.RETRY if mood < 0.9 else Verdict.GONE, error="dns")

    def settle(self, ends: list[End], late: list[Outcome]) -> None:
        """Reports outcomes, to the judge too."""
        judge = self.judge
        outcomes = [*(one.outcome for one in ends), *late]
        self.tell(*outcomes)
        open_ones = {token for token, one in judge.open.items() if not one.void}
        expected = ["ok" if outcome.token in open_ones else "stale" for outcome in outcomes]
        codes = [str(code) for code in self.frontier.report(outcomes)]
        self.demand("stale", expected == codes, f"{codes}, not {expected}")
        for one in ends:
            self.past.append(one.outcome.token)
            self.heard(one)

    def heard(self, end: End) -> None:
        """Reports the end of an open lease to the judge."""
        outcome, request, judge = end.outcome, end.held.request, self.judge
        if request.kind == "address":
            judge.open.pop(request.token)
            failed = None if outcome.address else "gone" if outcome.verdict is Verdict.GONE else "retry"
            judge.found(end.held.lease.host, outcome.address, outcome.ttl_seconds, failed)
            return
        redirects = outcome.location is not None or (outcome.robots is not None and bool(outcome.robots.location))
        if outcome.robots is not None:
            answer = outcome.robots
            judge.robots_said(end.held.lease.authority, answer.status, answer.body, redirects=redirects)
            if answer.location:
                judge.led_to.add(plain(urlsplit(answer.location).hostname or ""))
        judge.ends(
            request.token, end.at, seconds=outcome.seconds, refused=outcome.refused,
            retry_after=None if redirects else outcome.retry_after_seconds, answered=outcome.status is not None,
        )  # fmt: skip
        if request.queue is not None and not request.void:
            for url in (outcome.location, *outcome.links):
                if url is not None:
                    judge.queue(request.queue.crawl.name, None, str(url))

    # -- around them

    def release(self) -> None:
        tokens = self.some()
        self.tell(tokens)
        self.given_back(tokens, self.frontier.release(tokens))

    def defer(self) -> None:
        tokens = self.some()
        until = self.frontier.now() + instant(self.rng.choice([0.0, 30.0, 5_000.0]))
        self.tell(tokens, until)
        self.given_back(tokens, self.frontier.defer(tokens, until))

    def some(self) -> list[int]:
        """Leases that were not fetched yet."""
        fresh = [token for token, held in self.hand.items() if self.fresh(held)]
        return self.rng.sample(sorted(fresh), min(len(fresh), 2))

    def fresh(self, held: Held) -> bool:
        begun, ended = held.request.begun, held.request.ended
        return ended is not None or held.lease.kind is Kind.ADDRESS or begun is None or begun >= self.true() - SECOND

    def given_back(self, tokens: list[int], codes: Iterable[object]) -> None:
        for token, _ in zip(tokens, codes, strict=True):
            self.judge.given_back(token)
            del self.hand[token]
            self.past.append(token)

    def extend(self) -> None:
        tokens = self.rng.sample(sorted(self.hand), min(len(self.hand), 2))
        seconds = self.rng.choice([1.0, 90.0, 9_000.0])
        self.tell(tokens, seconds)
        codes = self.frontier.extend(tokens, seconds)
        self.demand("stale", all(str(code) == "ok" for code in codes), codes)
        for token in tokens:
            self.judge.open[token].deadline = self.frontier.now() + instant(seconds)

    # -- operators

    def meant(self) -> tuple[str | None, str | None]:
        key = self.rng.choice([None, None, "k", *self.names])
        if key in self.names and self.rng.random() < 0.2:
            key = self.rng.choice([f"{key}.", str(key).upper()])
        return key, self.rng.choice([None, None, None, "default", "other"])

    def say(self, what: str, value: Any, call: Callable[..., int]) -> None:
        key, crawl = self.meant()
        try:
            count = call(key, crawl)
        except SettingsError:
            self.tell(what, value, key, crawl, "refused")
            return
        self.tell(what, value, key, crawl, "->", count)
        self.judge.said(what, value, key, crawl)

    def pause(self) -> None:
        self.say("paused", True, lambda key, crawl: self.frontier.pause(key, crawl=crawl))

    def resume(self) -> None:
        self.say("paused", False, lambda key, crawl: self.frontier.resume(key, crawl=crawl))

    def block_until(self) -> None:
        until = self.frontier.now() + instant(self.rng.choice([0.0, 9.0, 400.0, 9_000.0]))
        self.say("blocked", until, lambda key, crawl: self.frontier.block_until(until, key, crawl=crawl))

    def set_delay(self) -> None:
        delay = self.rng.choice([None, 0.2, 4.0, 50.0])
        self.say("delay", delay, lambda key, crawl: self.frontier.set_delay(delay, key, crawl=crawl))

    def set_limit(self) -> None:
        limit = self.rng.choice([None, 1, 2, 2, 3])
        self.say("limit", limit, lambda key, crawl: self.frontier.set_limit(limit, key, crawl=crawl))

    def delete(self) -> None:
        key, crawl = self.meant()
        if key is None and self.rng.random() < 0.5:
            crawl = "other"
        try:
            self.frontier.delete(key, crawl=crawl)
        except SettingsError:
            return
        self.tell(key, crawl)
        self.judge.deleted(key, crawl)

    def retry(self) -> None:
        error, host = self.rng.choice([None, "reset", "dropped", "lost"]), self.rng.choice([None, None, self.names[0]])
        self.tell(error, host, self.frontier.retry(error=error, host=host))

    def reprioritise(self) -> None:
        urls = {self.url(): self.rng.choice([0.03, 0.9]) for _ in range(3)}
        crawl = self.rng.choice([None, "other"])
        if (crawl or "default") in self.judge.crawls:
            self.tell(urls, crawl, self.frontier.reprioritise(urls, crawl=crawl))

    def requeue(self) -> None:
        urls, at = [self.url() for _ in range(3)], self.rng.choice([None, self.frontier.now() + 5_000_000])
        crawl = self.rng.choice([None, "other"])
        if (crawl or "default") in self.judge.crawls:
            self.tell(urls, crawl, self.frontier.requeue(urls, at=at, crawl=crawl))

    def put(self) -> None:
        state, crawl = self.rng.choice(["queued", "waiting", "done"]), self.rng.choice(["default", "other"])
        # `put` ends the open lease of a URL, and the judge cannot check that. So the history skips leased URLs.
        leased = {parsed(request.url) for request in self.judge.open.values()}
        urls = [url for url in (self.url(), self.url()) if parsed(url) not in leased]
        records = [{"url": url, "state": state, "crawl": crawl} for url in urls]
        if crawl in self.judge.crawls:
            codes = self.frontier.put(records)
            self.tell(records, codes)
            for record, code in zip(records, codes, strict=True):
                if str(code) == "new" and state == "done":
                    self.judge.completed_queue(crawl, record["url"])
                elif str(code) == "new":
                    self.judge.queue(crawl, None, record["url"])

    def set_address(self) -> None:
        host, address = self.rng.choice(self.names), self.rng.choice(ADDRESSES)
        self.tell(host, address)
        self.frontier.set_address(host, address)
        self.judge.located(host, address, None)

    def set_robots(self) -> None:
        authority = self.rng.choice(["http://{}", "https://{}"]).format(self.rng.choice(self.names))
        status = self.rng.choice([200, 200, 404, 503])
        body = self.rng.choice(BODIES) if status == 200 else b""
        self.tell(authority, status, body)
        self.frontier.set_robots(authority, status, body)
        self.judge.robots_said(authority, status, body)
        self.judge.robots[authority].hops = 0

    # -- time and ends

    def advance(self) -> None:
        seconds = self.rng.choice([0.2, 0.5, 1.0, 1.0, 1.0, 3.0, 3.0, 10.0, 10.0, 70.0, 400.0, 5_000.0, 100_000.0])
        self.tell(seconds)
        self.true.move(seconds)

    def ask(self) -> None:
        """The instant of the next lease, by the frontier's word; mostly the history waits for it."""
        self.says_when()
        if self.quiet_until is not None and self.rng.random() < 0.7:
            self.true.at += max(0, self.quiet_until - self.clock())

    def says_when(self) -> float | None:
        wait = self.frontier.next_ready_seconds()
        self.tell(wait)
        self.quiet_until = None if wait is None else self.frontier.now() + instant(wait)
        return wait

    def clock_jumps(self) -> None:
        """Sets the frontier's clock back. It is not set forward again: that is the duty of the caller who sets the
        clock."""
        self.back += instant(self.rng.choice([0.5, 100.0, 4_000.0]))
        self.tell(self.back / SECOND)
        self.frontier.lease(0)

    def checkpoint(self) -> None:
        self.frontier.checkpoint()

    def stop_and_go_on(self) -> None:
        self.frontier.close()
        self.begins_anew()

    def kill(self) -> None:
        """Kills the process, and all its writes are there; or, where the disk supports it, the power is cut."""
        cut = isinstance(self.disk, CrashDisk) and self.rng.random() < 0.5
        self.disk = self.rng.choice(list(self.disk.crash_images(self.rng, 1))) if cut else self.disk.copy()  # type: ignore[union-attr]
        self.begins_anew()

    def begins_anew(self) -> None:
        self.judge.died()
        self.frontier = self.open()

    # -- what always holds

    def look(self, *, thoroughly: bool) -> None:
        statistics: Any = self.frontier.statistics()
        states = sum(statistics["urls"].values())
        self.demand("counters", statistics["accepted"] == states, statistics["urls"])
        if thoroughly:
            machine = inspect(self.frontier)
            shared = machine.turns.shared
            problems = recount(self.frontier) + shared.problems()
            self.demand("counters", not problems, problems)
            if self.clock() < machine.tables.cold.floor_end():
                return  # cold hosts that rest since the clock was set back count as ready
            listed = Counter(host.state for host in self.frontier.hosts(limit=LISTED))
            counted = {state: count for state, count in statistics["hosts"].items() if count and state != "known"}
            self.demand("counters", dict(listed) == counted, f"hosts are listed as {listed}, counted as {counted}")

    # -- the end

    def drains(self) -> None:
        """Lifts every prohibition, and every server answers: all URLs end, in bounded steps."""
        frontier = self.frontier
        for queue in frontier.queues(limit=LISTED):
            frontier.resume(queue.key, crawl=queue.crawl)
            frontier.block_until(0, queue.key, crawl=queue.crawl)
        for key in {word.key for what in ("paused", "blocked") for word in self.judge.words[what] if word.key}:
            with contextlib.suppress(SettingsError):  # no word about it outlived its queues
                frontier.resume(key)
                frontier.block_until(0, key)
        for name, crawl in self.judge.crawls.items():
            with contextlib.suppress(SettingsError):  # it was deleted, or never made
                frontier.resume(crawl=name)
            crawl.paused = False
        for what in ("paused", "blocked"):
            self.judge.words[what].clear()
        self.quiet_until = -1
        in_vain = 0
        for _ in range(ROUNDS_MAX):
            self.passes()
            if self.over():
                break
            in_vain = 0 if self.round() else in_vain + 1
            self.demand("drains", in_vain < 20, self.left(), "and nothing can be had")
        self.demand("drains", self.over(), self.left())
        self.look(thoroughly=True)

    def over(self) -> bool:
        return self.frontier.finished() or self.frontier.at_limit()

    def left(self) -> str:
        statistics: Any = self.frontier.statistics()
        return f"{statistics['urls']} after {len(self.told)} steps, {self.frontier.explain_idle().text}"

    def round(self) -> bool:
        """Ends all open requests, leases all that it can, and lets time pass; returns whether there was an event."""
        self.told.append("round:")
        ends = []
        for token in sorted(self.hand):
            held = self.hand[token]
            if self.begins(held):
                ends.append(End(held, held.request.ended or self.true(), self.calm(held.lease)))
                del self.hand[token]
        if ends:
            self.settle(ends, [])
        self.passes()
        batch = self.take(50, per_queue=self.rng.choice([1, 2]), errands=True)
        wait: float | None = None
        if not batch and not self.over():
            wait = self.says_when()
            self.demand("drains", wait is not None, self.left(), "and nothing to wait for")
            stands_still = max(0, self.frontier.now() - self.clock())
            self.true.at += instant(wait or 0.0) + stands_still
        elif self.hand and not ends:
            self.true.move(1.0)
        return bool(batch or ends) or bool(wait)

    @staticmethod
    def calm(lease: Lease) -> Outcome:
        if lease.kind is Kind.ADDRESS:
            return Outcome(lease.token, Verdict.DONE, address=ADDRESSES[0])
        if lease.kind is Kind.ROBOTS:
            return Outcome(lease.token, Verdict.DONE, status=404, seconds=0.0, robots=RobotsAnswer(404))
        return Outcome(lease.token, Verdict.DONE, status=200, seconds=0.0)


SHARES: dict[Callable[[Operated], None], int] = {
    Operated.discover: 12,
    Operated.lease: 26,
    Operated.report: 28,
    Operated.rest: 10,
    Operated.release: 2,
    Operated.defer: 2,
    Operated.extend: 2,
    Operated.pause: 3,
    Operated.resume: 4,
    Operated.block_until: 3,
    Operated.set_delay: 4,
    Operated.set_limit: 6,
    Operated.delete: 2,
    Operated.retry: 2,
    Operated.reprioritise: 2,
    Operated.requeue: 2,
    Operated.put: 1,
    Operated.set_address: 2,
    Operated.set_robots: 2,
    Operated.advance: 16,
    Operated.ask: 6,
    Operated.clock_jumps: 1,
    Operated.checkpoint: 2,
    Operated.stop_and_go_on: 2,
    Operated.kill: 2,
}
"""How often each is drawn; a history has some of them four times as often."""
