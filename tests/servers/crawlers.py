"""A crawler of Crawlee that tests run as a program, with the Python of .venv-peers.

python crawlers.py ROOT PLACE SETTINGS     PLACE: the directory or server of the frontier; SETTINGS: JSON, arguments of
                                           RequestManager.open, and robots; prints counts as JSON
"""

from __future__ import annotations

import asyncio
import json
import sys

from crawlee import ConcurrencySettings, Request
from crawlee.crawlers import ParselCrawler, ParselCrawlingContext
from crawlee.storage_clients import MemoryStorageClient

from outrider.integrations.crawlee import RequestManager


async def main(root, place, *, robots=False, **settings):
    async with await RequestManager.open(place or None, **settings) as manager:
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
