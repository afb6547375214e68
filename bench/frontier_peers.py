"""The child of `frontier` for its peers: one queue of another product, filled with N hosts and emptied.

    .venv-bench/bin/python -m bench.frontier_peers NAME --hosts N [--redis URL --server PID] --directory DIR --out FILE

Politeness is omitted for products that have it in the downloader (Scrapy, scrapy-redis, Crawlee). The Java URLFrontier
applies its own, so only its CPU per URL can be measured. Two of the peers are our own scheduler in Scrapy. Filling ends
after SECONDS_MAX, emptying after POPS_SECONDS.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bench.made import BATCH, batches
from bench.measuring import cpu_seconds_of_process
from bench.urlfrontier_peer import UrlFrontier

SECONDS_MAX = 20.0
POPS_SECONDS = 6.0  # enough for a rate
POPS_MAX = 20_000
URLS_MIN = 10_000
CONCURRENT = 64  # requests of a crawl of many hosts

PEERS = {
    "scrapy": "Scrapy, memory, its default queue",
    "scrapy-plain": "Scrapy, memory, ScrapyPriorityQueue",
    "scrapy-jobdir": "Scrapy, JOBDIR, its default queue",
    "scrapy-redis": "scrapy-redis, its default queue",
    "scrapy-outrider": "Outrider as Scrapy's scheduler, memory",
    "scrapy-outrider-jobdir": "Outrider as Scrapy's scheduler, JOBDIR",
    "crawlee": "Crawlee, memory",
    "urlfrontier": "URLFrontier (Java), RocksDB",
}

CRAWLEE = {
    "crawlee": "Crawlee, its queue in memory",
    "crawlee-files": "Crawlee, its queue in files",
    "crawlee-outrider": "Outrider as Crawlee's request manager, memory",
    "crawlee-outrider-files": "Outrider as Crawlee's request manager, a directory",
}
"""The queues of a crawl of Crawlee."""


class Step:
    """One step with a time limit: calls until everything is done or the time is over."""

    def __init__(self, server: int | None, seconds_max: float) -> None:
        self.server = server
        self.seconds_max = seconds_max
        self.count = 0
        self._wall, self._cpu = time.perf_counter(), self._cpu_now()

    def _cpu_now(self) -> float:
        return time.process_time() + (cpu_seconds_of_process(self.server) if self.server else 0.0)

    def over(self) -> bool:
        return time.perf_counter() - self._wall > self.seconds_max

    def told(self) -> dict[str, Any]:
        wall, cpu = time.perf_counter() - self._wall, self._cpu_now() - self._cpu
        return {"count": self.count, "wall": wall, "cpu": cpu, "slow": wall > self.seconds_max}


def each_of(hosts: int) -> int:
    """Returns the URLs per host: more if there are few hosts, one if adding is slow."""
    return max(2 if hosts < 100_000 else 1, URLS_MIN // hosts)


def fill_and_take(
    given: argparse.Namespace, put: Callable[[list[str]], None], take: Callable[[int], int]
) -> dict[str, Any]:
    """Runs both steps. put: adds URLs; take: leases at most N URLs, reports them and returns their number."""
    hosts, server = given.hosts, given.server
    filling = Step(server, given.seconds)
    for urls in batches(0, hosts * each_of(hosts), hosts):
        put(urls)
        filling.count += len(urls)
        if filling.over():
            break
    found = {"fill": filling.told()}
    if found["fill"]["slow"]:
        return found
    taking = Step(server, POPS_SECONDS)
    while taking.count < min(POPS_MAX, hosts * each_of(hosts) // 2) and not taking.over():
        taking.count += take(100)
    found["take"] = taking.told()
    return found


def settings_of_queue(name: str, directory: Path, redis: str | None) -> dict[str, object]:
    """Returns the settings of Scrapy that choose one of its queues, or ours."""
    settings: dict[str, object] = {"TELNETCONSOLE_ENABLED": False, "CONCURRENT_REQUESTS": CONCURRENT}
    if name == "scrapy-plain":
        settings["SCHEDULER_PRIORITY_QUEUE"] = "scrapy.pqueues.ScrapyPriorityQueue"
    elif name == "scrapy-redis":
        settings |= {
            "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
            "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
            "REDIS_URL": redis,
            "SCHEDULER_FLUSH_ON_START": True,
        }
    elif name.startswith("scrapy-outrider"):
        settings |= {
            "SCHEDULER": "outrider.integrations.scrapy.Scheduler",
            "DUPEFILTER_CLASS": "outrider.integrations.scrapy.DupeFilter",
        }
    if name.endswith("-jobdir"):
        settings["JOBDIR"] = str(directory)
    return settings


def scheduler_of(name: str, directory: Path, redis: str | None) -> Any:
    """Returns an open scheduler of Scrapy, with a downloader that has nothing in flight and without an engine."""
    from scrapy import Spider
    from scrapy.core.downloader import Downloader
    from scrapy.utils.misc import build_from_crawler, load_object
    from scrapy.utils.test import get_crawler

    logging.disable(logging.WARNING)

    class Peer(Spider):
        name = "peer"

    crawler = get_crawler(Peer, settings_of_queue(name, directory, redis))
    crawler.spider = Peer.from_crawler(crawler)
    idle = SimpleNamespace(slots={}, ip_concurrency=0, DOWNLOAD_SLOT=Downloader.DOWNLOAD_SLOT)
    idle.get_slot_key = lambda request: Downloader.get_slot_key(idle, request)
    crawler.engine = SimpleNamespace(downloader=idle)
    scheduler = build_from_crawler(load_object(crawler.settings["SCHEDULER"]), crawler)
    scheduler.open(crawler.spider)
    return scheduler


def put_into(scheduler: Any, urls: list[str]) -> None:
    """Adds a request for each URL. Ours stores them, which its thread does in a crawl."""
    from scrapy import Request

    for url in urls:
        assert scheduler.enqueue_request(Request(url)), "each URL is new"
    if type(scheduler).__module__.startswith("outrider."):
        assert scheduler.has_pending_requests()


def scrapy(name: str, given: argparse.Namespace) -> dict[str, Any]:
    """Measures a scheduler of Scrapy as its engine calls it."""
    scheduler = scheduler_of(name, given.directory, given.redis)

    def take(want: int) -> int:
        # One at a time, as the engine does. A slow queue is left after some seconds, so fewer are requested at once.
        for _ in range(few := min(want, 10)):
            assert scheduler.next_request() is not None, "there are URLs left"
        return few

    return fill_and_take(given, lambda urls: put_into(scheduler, urls), take)


def crawlee(name: str, given: argparse.Namespace) -> dict[str, Any]:
    """Measures Crawlee's request queue in memory: add in batches, fetch, mark as handled."""
    from datetime import timedelta

    from crawlee.storage_clients import MemoryStorageClient
    from crawlee.storages import RequestQueue

    logging.disable(logging.WARNING)
    loop = asyncio.new_event_loop()

    def wait(coroutine: Awaitable[Any]) -> Any:
        return loop.run_until_complete(coroutine)

    queue = wait(RequestQueue.open(storage_client=MemoryStorageClient()))

    def put(urls: list[str]) -> None:
        wait(
            queue.add_requests(
                urls,
                batch_size=BATCH,
                wait_time_between_batches=timedelta(0),
                wait_for_all_requests_to_be_added=True,
            )
        )

    async def some(want: int) -> int:
        for _ in range(want):
            request = await queue.fetch_next_request()
            assert request is not None, "there are URLs left"
            await queue.mark_request_as_handled(request)
        return want

    return fill_and_take(given, put, lambda want: int(wait(some(want))))


def urlfrontier(name: str, given: argparse.Namespace) -> dict[str, Any]:
    """Measures the Java service over gRPC: PutURLs as a stream, GetURLs of 100 queues with one URL each, PutURLs as
    fetched."""
    with UrlFrontier(given.address) as peer:
        peer.no_delay()

        def take(want: int) -> int:
            got = peer.get(want)
            if not got:
                time.sleep(0.2)  # each of its queues returns at most one URL a second
            peer.put(got, known=True)
            return len(got)

        return fill_and_take(given, peer.put, take)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=PEERS)
    parser.add_argument("--hosts", type=int, required=True)
    parser.add_argument("--redis")
    parser.add_argument("--address", help="of the Java service")
    parser.add_argument("--server", type=int, help="the process whose CPU time counts too")
    parser.add_argument("--seconds", type=float, default=SECONDS_MAX, help="for filling at most")
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    run = {"crawlee": crawlee, "urlfrontier": urlfrontier}.get(given.name, scrapy)
    try:
        found = run(given.name, given)
    except OSError as error:
        found = {"failed": f"{type(error).__name__}: {error.strerror or error}"}
    given.out.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
