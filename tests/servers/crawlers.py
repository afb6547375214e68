"""A crawler of Crawlee that tests run as a program, with the Python of .venv-peers.

python crawlers.py ROOT PLACE SETTINGS     PLACE: the directory or server of the frontier; SETTINGS: JSON, arguments of
                                           RequestManager.open, and robots; prints counts as JSON

With the setting "own", the queue is Crawlee's own, in files of the directory PLACE.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys

from crawlee import ConcurrencySettings, Request
from crawlee.configuration import Configuration
from crawlee.crawlers import ParselCrawler, ParselCrawlingContext
from crawlee.storage_clients import FileSystemStorageClient, MemoryStorageClient
from crawlee.storages import RequestQueue

from outrider.integrations.crawlee import RequestManager


@contextlib.asynccontextmanager
async def opened(place, own, settings):
    if own:
        where = Configuration(storage_dir=place, purge_on_start=False)
        yield await RequestQueue.open(name="own", storage_client=FileSystemStorageClient(), configuration=where)
        return
    async with await RequestManager.open(place or None, **settings) as manager:
        yield manager


async def main(root, place, *, robots=False, own=False, **settings):
    async with opened(place, own, settings) as manager:
        crawler = ParselCrawler(
            request_manager=manager,
            respect_robots_txt_file=robots,
            concurrency_settings=ConcurrencySettings(desired_concurrency=10, min_concurrency=10),
            storage_client=MemoryStorageClient(),
            configure_logging=False,
        )
        pages = []

        @crawler.router.default_handler
        async def handle(context: ParselCrawlingContext) -> None:
            pages.append(context.request.url)
            links = context.selector.css("a::attr(href)").getall()
            await context.add_requests([Request.from_url(root + link) for link in links])

        statistics = await crawler.run([root + "/"])
        counts = {"pages": len(pages), "failed": statistics.requests_failed, "finished": await manager.is_finished()}
        print(json.dumps(counts | {"handled": await manager.get_handled_count()}))


if __name__ == "__main__":
    root, place, told = sys.argv[1:]
    asyncio.run(main(root, place, **json.loads(told)))
