"""The child of `queues`: a crawl of Scrapy with one of its queues or ours, or the memory of requests that wait.

    .venv-bench/bin/python -m bench.scrapy_queues crawl QUEUE --port P --indexes N --directory DIR --out FILE
    .venv-bench/bin/python -m bench.scrapy_queues late QUEUE --port P --indexes N --directory DIR --out FILE
    .venv-bench/bin/python -m bench.scrapy_queues memory QUEUE --directory DIR --out FILE

crawl: seconds from start to end of the spider, answers, and the longest calls of the scheduler on the event loop.
late: with a delay, and our scheduler: per request the instants at which its host was due, and at which it was leased
and taken.
memory: resident bytes with 100,000 and with 1,000,000 requests of 1,000 hosts.
"""

from __future__ import annotations

import argparse
import functools
import gc
import inspect
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from bench.frontier_peers import put_into, scheduler_of, settings_of_queue
from bench.made import batches
from bench.measuring import resident_bytes
from outrider.clock import elapsed, instant
from outrider.journey import Lease

HOSTS = 1_000
SIZES = (100_000, 1_000_000)
DELAY = 1.0
THEIRS = "scrapy.core.scheduler.Scheduler"
CALLS = ("enqueue_request", "next_request", "has_pending_requests")
OUR_CALLS = ("_left", "_left_downloader", "_downloaded", "_reached", "_take_refused")
"""The methods of our scheduler that the engine's signals and the thread of the store call."""


def memory(given: argparse.Namespace) -> dict[str, Any]:
    """Fills a queue, and measures twice."""
    scheduler = scheduler_of(given.queue, given.directory, given.redis)
    found, first = {}, 0
    for size in SIZES:
        for urls in batches(first, size, HOSTS):
            put_into(scheduler, urls)
        found[str(size)], first = resident_bytes(), size
    return found


class Watched:
    """The longest call of some methods: its seconds of wall time, of CPU time of its thread, and of that the garbage
    collection, which Python starts in any call; and the longest CPU time without it."""

    def __init__(self) -> None:
        self.wall = self.cpu = self.own = self.collecting = 0.0
        self.name = self.own_name = ""
        self._collected, self._began, self._thread = 0.0, 0.0, threading.get_ident()
        gc.callbacks.append(self._collection)

    def _collection(self, phase: str, told: dict[str, int]) -> None:
        if threading.get_ident() != self._thread:
            return
        if phase == "start":
            self._began = time.thread_time()
        else:
            self._collected += time.thread_time() - self._began

    def watch(self, kind: type, name: str) -> None:
        """Replaces a method by one that is measured."""
        method: Callable[..., Any] = getattr(kind, name)
        known = inspect.signature(method).parameters  # a signal has more, and passes all of them to **named

        @functools.wraps(method)
        def measured(*arguments: Any, **named: Any) -> Any:
            named = {name: value for name, value in named.items() if name in known}
            before = self._collected
            wall, cpu = time.perf_counter(), time.thread_time()
            try:
                return method(*arguments, **named)
            finally:
                cpu, collecting = time.thread_time() - cpu, self._collected - before
                if cpu > self.cpu:
                    self.cpu, self.collecting, self.name = cpu, collecting, name
                if cpu - collecting > self.own:
                    self.own, self.own_name = cpu - collecting, name
                self.wall = max(self.wall, time.perf_counter() - wall)

        setattr(kind, name, measured)


def crawler_of(given: argparse.Namespace, **more: object) -> tuple[Any, Any]:
    """Returns a process of Scrapy, and its crawler of the site of `bench.many_hosts`. more: its settings."""
    import scrapy
    from scrapy.crawler import CrawlerProcess
    from scrapy.resolver import CachingThreadedResolver
    from twisted.internet import defer

    class Loopback(CachingThreadedResolver):  # type: ignore[misc]  # without types here
        """Resolves all names to loopback."""

        def getHostByName(self, name: str, timeout: Any = None) -> Any:  # noqa: N802 - Twisted's name
            return defer.succeed("127.0.0.1")

    class Peer(scrapy.Spider):  # type: ignore[misc]  # as above
        name = "peer"

        async def start(self) -> AsyncIterator[scrapy.Request]:
            for number in range(given.indexes):
                yield scrapy.Request(f"http://h0.test:{given.port}/index/{number}", priority=1)

        def parse(self, response: Any) -> Iterator[scrapy.Request]:
            for link in response.xpath("//a/@href").getall():
                yield scrapy.Request(response.urljoin(link))

    process = CrawlerProcess(
        {
            **settings_of_queue(given.queue, given.directory, given.redis),
            "TWISTED_DNS_RESOLVER": Loopback,
            "CLOSESPIDER_TIMEOUT": given.seconds,
            "COOKIES_ENABLED": False,
            "REMOTE_CONTROL_ENABLED": False,
            "LOG_LEVEL": "ERROR",
            **more,
        }
    )
    crawler = process.create_crawler(Peer)
    process.crawl(crawler)
    return process, crawler


def crawl(given: argparse.Namespace) -> dict[str, Any]:
    """Crawls, and measures the calls of the scheduler."""
    from scrapy.utils.misc import load_object

    watched = Watched()
    kind = load_object(str(settings_of_queue(given.queue, given.directory, given.redis).get("SCHEDULER", THEIRS)))
    for name in (*CALLS, *(OUR_CALLS if kind.__module__.startswith("outrider.") else ())):
        watched.watch(kind, name)
    process, crawler = crawler_of(given)
    process.start()
    stats = crawler.stats.get_stats()
    return {
        "seconds": stats["elapsed_time_seconds"],
        "answers": stats["downloader/response_status_count/200"],
        "reason": stats["finish_reason"],
        "longest_wall": watched.wall,
        "longest_cpu": watched.cpu,
        "longest_name": watched.name,
        "longest_collecting": watched.collecting,
        "longest_own": watched.own,
        "longest_own_name": watched.own_name,
        "cpu": time.process_time(),
    }


def late(given: argparse.Namespace) -> dict[str, Any]:
    """Crawls with a delay, and notes what happens to each request."""
    from outrider.integrations import scrapy, store_thread

    ended: dict[str, int] = {}
    found: dict[str, list[int]] = {}
    left, next_request, in_turns = (
        scrapy.Scheduler._left_downloader,
        scrapy.Scheduler.next_request,
        store_thread.in_turns,
    )

    def host_of(url: str) -> str:
        return url.split("/")[2]

    def leaving(self: Any, request: Any, spider: Any) -> None:
        ended[host_of(request.url)] = elapsed()
        left(self, request, spider)

    def leasing(leases: Iterable[Lease]) -> list[Lease]:
        turns, now = in_turns(leases), elapsed()
        for lease in turns:
            if host_of(lease.url) in ended:  # not the first of its host
                found[lease.url] = [ended[host_of(lease.url)] + instant(DELAY), now]
        return turns

    def taking(self: Any) -> Any:
        request = next_request(self)
        if request is not None and request.url in found:
            found[request.url].append(elapsed())
        return request

    scrapy.Scheduler._left_downloader, scrapy.Scheduler.next_request = leaving, taking
    store_thread.in_turns = leasing
    process, crawler = crawler_of(given, DOWNLOAD_DELAY=DELAY, CONCURRENT_REQUESTS_PER_DOMAIN=1)
    process.start()
    return {"reason": crawler.stats.get_stats()["finish_reason"], "requests": found}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("crawl", "late", "memory"))
    parser.add_argument("queue")
    parser.add_argument("--port", type=int)
    parser.add_argument("--indexes", type=int)
    parser.add_argument("--seconds", type=float, default=0.0, help="end the crawl after this time")
    parser.add_argument("--redis")
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    found = {"crawl": crawl, "late": late, "memory": memory}[given.what](given)
    given.out.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
