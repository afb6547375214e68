"""The peer of `crawl`: Scrapy with the settings of its "Broad crawls" page, robots.txt obeyed, no delay. Run by
.venv-bench.

python bench/scrapy_peer.py --seeds FILE --hosts FILE --concurrency N
"""

from __future__ import annotations

import argparse
from pathlib import Path
from urllib.parse import urldefrag, urljoin, urlsplit

import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.http import HtmlResponse
from scrapy.linkextractors import LinkExtractor
from scrapy.resolver import CachingThreadedResolver
from scrapy.settings import default_settings
from twisted.internet import defer

parser = argparse.ArgumentParser()
parser.add_argument("--seeds", type=Path, required=True)
parser.add_argument("--hosts", type=Path, required=True)
parser.add_argument("--concurrency", type=int, default=64)
parser.add_argument("--lean", action="store_true", help="links by one XPath and a set for each page, no LinkExtractor")
given = parser.parse_args()

SEEDS = given.seeds.read_text(encoding="ascii").split()
ADDRESSES = {
    name: line.split()[0]
    for line in given.hosts.read_text(encoding="ascii").splitlines()
    if line.strip() and not line.startswith("#")
    for name in line.split()[1:]
}


SITES = {urlsplit(url).netloc for url in SEEDS}  # with their port, as Scrapy compares them
FOLLOWED = "//a[not(contains(@rel, 'nofollow'))]/@href | //area/@href | //frame/@src | //iframe/@src"


class HostsFileResolver(CachingThreadedResolver):
    """Resolves names from the hosts file, at hardly any cost."""

    def getHostByName(self, name, timeout=None):  # noqa: N802 - Twisted's name
        return defer.succeed(ADDRESSES[name]) if name in ADDRESSES else super().getHostByName(name, timeout)


class Peer(scrapy.Spider):
    """Follows the links that Outrider follows, on the hosts of the seeds."""

    name = "peer"
    links = LinkExtractor(
        tags=("a", "area", "frame", "iframe"),
        attrs=("href", "src"),
        deny_extensions=[],
        allow_domains=sorted(SITES),
    )

    async def start(self):
        for url in SEEDS:
            yield scrapy.Request(url, dont_filter=True)

    def parse(self, response):
        if not isinstance(response, HtmlResponse):
            return
        if given.lean:
            found = (urldefrag(urljoin(response.url, link.strip()))[0] for link in response.xpath(FOLLOWED).getall())
            for url in {url for url in found if url.startswith("http") and urlsplit(url).netloc in SITES}:
                yield scrapy.Request(url)
        else:
            for link in self.links.extract_links(response):
                if not link.nofollow:
                    yield scrapy.Request(link.url)


RESOLVER = "TWISTED_DNS_RESOLVER" if hasattr(default_settings, "TWISTED_DNS_RESOLVER") else "DNS_RESOLVER"
SETTINGS = {
    "ROBOTSTXT_OBEY": True,
    (
        "TWISTED_DNS_RESOLVER" if hasattr(default_settings, "TWISTED_DNS_RESOLVER") else "DNS_RESOLVER"
    ): HostsFileResolver,
    "DOWNLOAD_DELAY": 0,
    "CONCURRENT_REQUESTS": given.concurrency,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 8,  # Scrapy's own default; Outrider requests one page at a time from a host
    "COOKIES_ENABLED": False,
    "RETRY_ENABLED": False,
    "REACTOR_THREADPOOL_MAXSIZE": 20,
    "LOG_LEVEL": "INFO",
    "LOGSTATS_INTERVAL": 10,
    "TELNETCONSOLE_ENABLED": False,
    "REMOTE_CONTROL_ENABLED": False,
    "SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.DownloaderAwarePriorityQueue",
    "DEPTH_PRIORITY": 1,
    "SCHEDULER_DISK_QUEUE": "scrapy.squeues.PickleFifoDiskQueue",
    "SCHEDULER_MEMORY_QUEUE": "scrapy.squeues.FifoMemoryQueue",
}

if __name__ == "__main__":
    process = CrawlerProcess(SETTINGS)
    process.crawl(Peer)
    process.start()
