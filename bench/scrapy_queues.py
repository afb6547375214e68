"""The child of `queues`: a crawl of Scrapy with one of its queues or ours, or the memory of requests that wait.

    .venv-bench/bin/python -m bench.scrapy_queues crawl QUEUE --port P --indexes N --directory DIR --out FILE
    .venv-bench/bin/python -m bench.scrapy_queues memory QUEUE --directory DIR --out FILE

crawl: seconds from start to end of the spider, answers, and the longest calls of the scheduler on the event loop.
memory: resident bytes with 100,000 and with 1,000,000 requests of 1,000 hosts.
"""

from __future__ import annotations

import argparse
import functools
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

from bench.frontier_peers import put_into, scheduler_of, settings_of_queue
from bench.made import batches
from bench.measuring import resident_bytes

HOSTS = 1_000
SIZES = (100_000, 1_000_000)
CALLS = ("enqueue_request", "next_request", "has_pending_requests")
OUR_CALLS = ("_left", "_left_downloader", "_downloaded", "_reached", "_take_answers")
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
    """The longest call of some methods, in seconds of wall time, and of CPU time of the calling thread."""

    def __init__(self) -> None:
        self.wall = self.cpu = 0.0

    def watch(self, kind: type, name: str) -> None:
        """Replaces a method by one that is measured."""
        method: Callable[..., Any] = getattr(kind, name)

        @functools.wraps(method)
        def measured(*arguments: Any, **named: Any) -> Any:
            wall, cpu = time.perf_counter(), time.thread_time()
            try:
                return method(*arguments, **named)
            finally:
                self.cpu = max(self.cpu, time.thread_time() - cpu)
                self.wall = max(self.wall, time.perf_counter() - wall)

        setattr(kind, name, measured)


def crawl(given: argparse.Namespace) -> dict[str, Any]:
    """Crawls the site of `bench.many_hosts`."""
    import scrapy
    from scrapy.crawler import CrawlerProcess
    from scrapy.resolver import CachingThreadedResolver
    from scrapy.utils.misc import load_object
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
        }
    )
    crawler, watched = process.create_crawler(Peer), Watched()
    kind = load_object(crawler.settings["SCHEDULER"])
    for name in (*CALLS, *(OUR_CALLS if kind.__module__.startswith("outrider.") else ())):
        watched.watch(kind, name)
    process.crawl(crawler)
    process.start()
    stats = crawler.stats.get_stats()
    return {
        "seconds": stats["elapsed_time_seconds"],
        "answers": stats["downloader/response_status_count/200"],
        "reason": stats["finish_reason"],
        "longest_wall": watched.wall,
        "longest_cpu": watched.cpu,
        "cpu": time.process_time(),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("crawl", "memory"))
    parser.add_argument("queue")
    parser.add_argument("--port", type=int)
    parser.add_argument("--indexes", type=int)
    parser.add_argument("--seconds", type=float, default=0.0, help="end the crawl after this time")
    parser.add_argument("--redis")
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    found = {"crawl": crawl, "memory": memory}[given.what](given)
    given.out.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
