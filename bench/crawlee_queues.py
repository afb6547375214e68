"""The child of `queues` for Crawlee: a crawl with one of its queues or ours.

    .venv-bench/bin/python -m bench.crawlee_queues QUEUE --port P --indexes N --directory DIR --out FILE

seconds: from the start of the crawler to its end. answers: handled pages.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from pathlib import Path
from typing import Any

from crawlee import ConcurrencySettings, Request
from crawlee.configuration import Configuration
from crawlee.crawlers import ParselCrawler, ParselCrawlingContext
from crawlee.storage_clients import FileSystemStorageClient, MemoryStorageClient
from crawlee.storages import RequestQueue

from bench.frontier_peers import CONCURRENT, CRAWLEE
from outrider.integrations.crawlee import RequestManager


async def opened(queue: str, directory: Path) -> Any:
    """Returns an empty queue."""
    if queue == "crawlee-outrider":
        return await RequestManager.open(delay_seconds=0.0, requests_per_host=CONCURRENT)
    if queue == "crawlee-outrider-files":
        return await RequestManager.open(directory / "store", delay_seconds=0.0, requests_per_host=CONCURRENT)
    client = MemoryStorageClient() if queue == "crawlee" else FileSystemStorageClient()
    return await RequestQueue.open(
        name="bench", storage_client=client, configuration=Configuration(storage_dir=str(directory))
    )


async def crawl(given: argparse.Namespace) -> dict[str, Any]:
    """Crawls the site of `bench.many_hosts`."""
    queue, seen = await opened(given.queue, given.directory), set[str]()
    crawler = ParselCrawler(
        request_manager=queue,
        max_request_retries=0,
        use_session_pool=False,
        # Fixed: its own scaling depends on the load of the whole machine, including the server's.
        concurrency_settings=ConcurrencySettings(
            min_concurrency=CONCURRENT, max_concurrency=CONCURRENT, desired_concurrency=CONCURRENT
        ),
        storage_client=MemoryStorageClient(),
        configure_logging=False,
    )

    @crawler.router.default_handler
    async def handle(context: ParselCrawlingContext) -> None:
        seen.add(context.request.url)
        root = context.request.url.rsplit("/", 1)[0]
        links = context.selector.xpath("//a/@href").getall()
        await context.add_requests(
            [Request.from_url(link if link.startswith("http:") else root + link) for link in links]
        )

    began = time.perf_counter()
    await crawler.run([f"http://h0.test:{given.port}/index/{number}" for number in range(given.indexes)])
    seconds = time.perf_counter() - began
    if isinstance(queue, RequestManager):
        await queue.close()
    return {"seconds": seconds, "answers": len(seen)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("queue", choices=CRAWLEE)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--indexes", type=int, required=True)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    given.out.write_text(json.dumps(asyncio.run(crawl(given))), encoding="utf-8")


if __name__ == "__main__":
    main()
