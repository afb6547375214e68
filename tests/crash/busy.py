"""A caller that uses every verb of a frontier at random, with few hosts and few URLs, so that the calls meet."""

from __future__ import annotations

import contextlib
import random
from typing import Any

from model.world import World
from outrider import Link
from outrider.clock import instant
from outrider.errors import SettingsError
from outrider.journey import Lease, Outcome, Verdict

HOSTS = [f"{name}.com" for name in "abcdef"]
PATHS = 40
DELETES = 0.6
"""The weight of deletes among the drawn verbs; discover has six."""
CRAWLS = [None, None, "other", "mine"]
STATES = ["queued", "waiting", "parked", "done", "gone"]
RULES = [b"User-agent: *\nDisallow: /no", b"User-agent: *\nDisallow: /1\nCrawl-delay: 0.3", b""]


class Busy:
    """One caller. held: its leases that are not settled."""

    def __init__(self, world: World, rng: random.Random, *, deletes: bool = True, odd: bool = False) -> None:
        """odd: addresses are reported, and the clock steps back."""
        self.world = world
        self.rng = rng
        self.held: list[Lease] = []
        self.calls = 0
        self.by_unique_keys = False
        self.verbs: list[tuple[Any, float]] = [
            (self.discover, 6), (self.lease, 8), (self.report, 9), (self.extend, 1), (self.give_back, 2),
            (self.rest, 1.5),
            (self.rule, 2), (self.reprioritise, 1), (self.robots, 0.5), (self.note, 0.5), (self.retry, 0.3),
            (self.queue_errands, 0.7), (self.requeue, 1), (self.put, 1), (self.make_crawl, 0.5),
        ]  # fmt: skip
        if deletes:
            self.verbs += [(self.delete, DELETES), (self.delete_urls, 1)]
        if odd:
            self.verbs += [(self.address, 1), (self.step_back, 0.5)]

    def call(self) -> None:
        """One call of any verb; some time passes."""
        self.calls += 1
        verbs, weights = zip(*self.verbs, strict=True)
        with contextlib.suppress(SettingsError):  # the answer for a key or crawl that is not there
            self.rng.choices(verbs, weights)[0]()
        self.world.clock.move(self.rng.choice([0, 0.05, 0.3, 1.0]))

    def url(self) -> str:
        path = self.rng.choice(["", "no/", "1/"]) + str(self.rng.randrange(PATHS))
        return f"http://{self.rng.choice(HOSTS)}/{path}"

    def link(self) -> str | Link:
        rng = self.rng
        if rng.random() < 0.4:
            return self.url()
        crawl = rng.choice(CRAWLS)
        # In a crawl by URLs a text is invalid, and a unique key is refused: then the call does nothing.
        odd = crawl == "mine" and self.by_unique_keys
        return Link(
            rng.choice([self.url(), f"text {rng.randrange(4)}"]) if odd else self.url(), crawl=crawl,
            key=rng.choice([None, None, None, "together"]), unique_key=rng.choice([None, b"1", b"2"]) if odd else None,
            priority=rng.choice([None, 0.1, 0.9]), metadata=rng.choice([None, {"n": self.calls}]),
            not_before=rng.choice([None, None, self.world.clock() + instant(rng.choice([1, 5, 90]))]),
            modified=rng.choice([None, None, self.world.clock() - instant(rng.choice([0, 1, 5]))]),
            change_seconds=rng.choice([None, None, None, 60.0]),
        )  # fmt: skip

    def make_crawl(self) -> None:
        self.by_unique_keys = False
        self.world.frontier.make_crawl("mine", unique="caller")
        self.by_unique_keys = True

    def discover(self) -> None:
        self.world.frontier.discover([self.link() for _ in range(self.rng.randrange(1, 12))])

    def lease(self) -> None:
        rng = self.rng
        batch = self.world.frontier.lease(
            rng.randrange(1, 6), per_queue=rng.choice([1, 1, 3]), crawl=rng.choice([None, None, "other"]),
            worker=rng.choice([None, "w"]), ttl_seconds=rng.choice([2, 100]), errands=True,
        )  # fmt: skip
        self.held += batch

    def report(self) -> None:
        rng = self.rng
        some, self.held = self.held[:3], self.held[3:]
        outcomes = []
        for lease in some:
            if lease.kind == "robots":
                outcomes.append(lease.robots(*rng.choice([(200, rng.choice(RULES)), (404, b""), (None, b"")])))
                continue
            if lease.kind == "address":
                found = lease.located(f"192.0.2.{rng.randrange(3)}", ttl_seconds=rng.choice([None, 40]))
                outcomes.append(rng.choice([found, lease.retry(error="dns_temporary")]))
                continue
            links = [self.link() for _ in range(rng.randrange(3))]
            verdict = rng.choice(["done"] * 6 + ["again", "gone", "retry", "retry", "redirect", "paid"])
            if verdict == "redirect":
                outcomes.append(Outcome(lease.token, Verdict.DONE, seconds=0.1, status=301, location=self.url()))
            elif verdict == "paid":
                outcomes.append(
                    lease.gone(status=402, error="payment", seconds=0.1, payment=f"crawler-price {self.calls}")
                )
            elif verdict == "again":
                at = self.world.clock() + instant(rng.choice([1, 60]))
                outcomes.append(Outcome(lease.token, Verdict.AGAIN, seconds=0.1, status=200, at=at, links=links))
            else:
                digest, metadata = rng.choice([None, b"%020d" % self.calls]), rng.choice([None, {"m": self.calls}])
                outcomes.append(
                    Outcome(
                        lease.token, Verdict(verdict), seconds=rng.choice([0.0, 0.2]), links=links, digest=digest,
                        status=None if verdict == "retry" else 200, metadata=metadata, line=b'{"x":1}',
                        error="timeout" if verdict == "retry" else None,
                    )
                )  # fmt: skip
        self.world.frontier.report(outcomes)

    def extend(self) -> None:
        self.world.frontier.extend([lease.token for lease in self.held[:2]], self.rng.choice([1, 50]))

    def rest(self) -> None:
        """The requests of some leases are over, of some for the second time; their outcomes follow."""
        rng, some = self.rng, self.held[-3:]
        seconds = [rng.choice([None, 0.0, 0.2]) for _ in some]
        ended = rng.choice([None, self.world.clock() - instant(0.1)])
        self.world.frontier.rest([lease.token for lease in some], rng.choice([seconds, 0.1, None]), ended)

    def give_back(self) -> None:
        some, self.held = self.held[:2], self.held[2:]
        tokens = [lease.token for lease in some]
        if self.rng.random() < 0.5:
            self.world.frontier.release(tokens)
        else:
            self.world.frontier.defer(tokens, self.world.clock() + instant(self.rng.choice([0, 3, 70])))

    def place(self) -> tuple[str | None, str | None]:
        return self.rng.choice([*HOSTS, "together"]), self.rng.choice(CRAWLS)

    def rule(self) -> None:
        rng, frontier = self.rng, self.world.frontier
        key, crawl = self.place()
        verb = rng.randrange(6)
        if verb == 0:
            frontier.pause(rng.choice([key, None]), crawl=crawl)
        elif verb == 1:
            frontier.resume(key, crawl=crawl)
        elif verb == 2:
            frontier.resume(crawl=crawl)
        elif verb == 3:
            frontier.block_until(self.world.clock() + instant(rng.choice([0, 2, 9])), key, crawl=crawl)
        elif verb == 4:
            frontier.set_delay(rng.choice([None, 0.05, 0.5]), key, crawl=crawl)
        else:
            frontier.set_limit(rng.choice([None, 2, 3]), key, crawl=crawl)

    def delete(self) -> None:
        if self.rng.random() < 0.1:
            self.world.frontier.delete(crawl=self.rng.choice(["other", "mine"]))
        else:
            key, crawl = self.place()
            self.world.frontier.delete(key, crawl=crawl)

    def delete_urls(self) -> None:
        crawl = self.rng.choice(CRAWLS)
        names = [b"1", "text 1"] if crawl == "mine" and self.by_unique_keys else []
        self.world.frontier.delete_urls([*names, *(self.url() for _ in range(6))], crawl=crawl)

    def reprioritise(self) -> None:
        urls = {self.url(): self.rng.choice([0.05, 0.95]) for _ in range(8)}
        crawl = self.rng.choice(CRAWLS)
        names = {b"1": 0.9, "text 1": 0.1} if crawl == "mine" and self.by_unique_keys else {}
        self.world.frontier.reprioritise({**urls, **names}, crawl=crawl)

    def requeue(self) -> None:
        at = self.rng.choice([None, self.world.clock() + 2_000_000])
        self.world.frontier.requeue([self.url() for _ in range(8)], at=at, crawl=self.rng.choice(CRAWLS))

    def put(self) -> None:
        records = [
            {"url": self.url(), "crawl": self.rng.choice(CRAWLS), "state": self.rng.choice(STATES)} for _ in range(8)
        ]
        self.world.frontier.put(records)

    def robots(self) -> None:
        self.world.frontier.set_robots(f"http://{self.rng.choice(HOSTS)}", 200, self.rng.choice(RULES))

    def queue_errands(self) -> None:
        urls = [self.url() for _ in range(self.rng.randrange(1, 4))]
        self.world.frontier.queue_errands("sitemap", urls, crawl=self.rng.choice(CRAWLS))

    def address(self) -> None:
        self.world.frontier.set_address(self.rng.choice(HOSTS), self.rng.choice([None, "192.0.2.1", "192.0.2.2"]))

    def step_back(self) -> None:
        self.world.clock.move(-self.rng.choice([0.4, 9.0]))

    def note(self) -> None:
        self.world.frontier.note_watermark("w", b"%d" % self.calls)
        lsn = self.world.frontier._log.synced_lsn
        for stream in ("pages", "politeness"):
            self.world.frontier.note_projection(stream, self.calls, lsn)

    def retry(self) -> None:
        self.world.frontier.retry(error=self.rng.choice([None, "timeout"]), host=self.rng.choice([None, *HOSTS]))
