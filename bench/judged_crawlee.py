"""Crawlee with its most polite settings, for `outrider judge`: its throttle with a second between requests, and
robots.txt obeyed.

.venv-bench/bin/python bench/judged_crawlee.py SEEDS
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from crawlee import service_locator
from crawlee.crawlers import ParselCrawler, ParselCrawlingContext
from crawlee.request_loaders import ThrottlingRequestManager
from crawlee.storage_clients import MemoryStorageClient
from crawlee.storages import RequestQueue

SEEDS = Path(sys.argv[1]).read_text(encoding="ascii").split()


async def main() -> None:
    """Follows all links on the hosts of the seeds."""
    service_locator.set_storage_client(MemoryStorageClient())
    domains = [url.split("/")[2].partition(":")[0] for url in SEEDS]
    queue = await RequestQueue.open()
    throttled = ThrottlingRequestManager(queue, domains=domains, request_manager_opener=RequestQueue.open)
    for url in SEEDS:
        throttled.set_crawl_delay(url, 1.0)
    crawler = ParselCrawler(respect_robots_txt_file=True, request_manager=throttled, configure_logging=False)

    @crawler.router.default_handler
    async def handler(context: ParselCrawlingContext) -> None:
        await context.enqueue_links(strategy="same-hostname")

    await crawler.run(SEEDS)


asyncio.run(main())
