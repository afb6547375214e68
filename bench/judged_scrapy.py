"""Scrapy with its most polite settings, for `outrider judge`: one request per host, a second between them, robots.txt
obeyed.

.venv-bench/bin/python bench/judged_scrapy.py SEEDS
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.http import Response, TextResponse
from scrapy.linkextractors import LinkExtractor

SEEDS = Path(sys.argv[1]).read_text(encoding="ascii").split()


class Peer(scrapy.Spider):
    """Follows all links on the hosts of the seeds."""

    name = "peer"
    links = LinkExtractor(deny_extensions=[], allow_domains=[url.split("/")[2] for url in SEEDS])

    async def start(self) -> AsyncIterator[scrapy.Request]:
        """Yields a request for each seed."""
        for url in SEEDS:
            yield scrapy.Request(url)

    def parse(self, response: Response) -> Iterator[scrapy.Request]:
        """Yields a request for each link."""
        if isinstance(response, TextResponse):
            for link in self.links.extract_links(response):
                yield scrapy.Request(link.url)


process = CrawlerProcess(
    {
        "USER_AGENT": "scrapy",
        "ROBOTSTXT_OBEY": True,
        "DOWNLOAD_DELAY": 1.0,
        "RANDOMIZE_DOWNLOAD_DELAY": False,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 1,
        "TELNETCONSOLE_ENABLED": False,
        "LOG_LEVEL": "ERROR",
    }
)
process.crawl(Peer)
process.start()
