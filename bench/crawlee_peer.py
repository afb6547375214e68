"""The peer of `crawl`: Crawlee for Python with Parsel, robots.txt obeyed, N requests at once. Run by .venv-bench.

python bench/crawlee_peer.py --seeds FILE --directory DIR --concurrency N
"""

from __future__ import annotations

import argparse
import asyncio
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

from crawlee import ConcurrencySettings, service_locator
from crawlee.configuration import Configuration
from crawlee.crawlers import ParselCrawler, ParselCrawlingContext
from crawlee.storage_clients import MemoryStorageClient

parser = argparse.ArgumentParser()
parser.add_argument("--seeds", type=Path, required=True)
parser.add_argument("--directory", type=Path, required=True)
parser.add_argument("--concurrency", type=int, default=64)
given = parser.parse_args()

SEEDS = given.seeds.read_text(encoding="ascii").split()
SITES = {urlsplit(url).netloc for url in SEEDS}


async def main() -> None:
    service_locator.set_configuration(Configuration(storage_dir=str(given.directory)))
    service_locator.set_storage_client(MemoryStorageClient())
    # Fixed: its own scaling depends on the load of the whole machine, including the server's.
    fixed = given.concurrency
    crawler = ParselCrawler(
        respect_robots_txt_file=True,
        max_request_retries=0,
        use_session_pool=False,
        request_handler_timeout=timedelta(seconds=60),
        concurrency_settings=ConcurrencySettings(
            min_concurrency=fixed, max_concurrency=fixed, desired_concurrency=fixed
        ),
    )

    @crawler.router.default_handler
    async def handler(context: ParselCrawlingContext) -> None:
        await context.enqueue_links(
            strategy="all",
            transform_request_function=lambda one: one if urlsplit(one["url"]).netloc in SITES else "skip",
        )

    await crawler.run(SEEDS)


if __name__ == "__main__":
    asyncio.run(main())
