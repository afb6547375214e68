"""Spiders that tests run as programs, with the Python of .venv-peers.

python spiders.py NAME ROOT SETTINGS     ROOT: the address of the site; SETTINGS: JSON; prints the statistics as JSON
"""

from __future__ import annotations

import gc
import json
import sys
import time
from typing import ClassVar

import scrapy
import scrapy.spiders
from scrapy import signals
from scrapy.core.scraper import Scraper
from scrapy.crawler import AsyncCrawlerProcess
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import Rule

import outrider.integrations.scrapy as scheduler

SPIDERS = {}


def spider(kind):
    SPIDERS[kind.name] = kind
    return kind


class Spider(scrapy.Spider):
    async def start(self):
        yield scrapy.Request(ROOT + "/", dont_filter=True)

    def parse(self, response):
        yield {"url": response.url}
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link)


@spider
class Plain(Spider):
    name = "plain"


@spider
class Other(Spider):
    name = "other"


@spider
class Lambda(Spider):
    """Requests that cannot be stored: their callback or a value in meta is a function."""

    name = "lambda"

    def parse(self, response):
        yield {"url": response.url}
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link, callback=lambda one: [{"url": one.url}])
            yield response.follow(link + "?meta", callback=self.parse, meta={"made": print})


@spider
class Collected(Spider):
    """Counts the objects that the garbage collector skips."""

    name = "collected"

    def parse(self, response):
        self.crawler.stats.max_value("skipped", gc.get_freeze_count())
        yield from super().parse(response)


@spider
class Large(Spider):
    """A request that is larger than what can be stored."""

    name = "large"

    def parse(self, response):
        yield {"url": response.url}
        if response.url.endswith("/"):
            yield response.follow("/1", meta={"text": "x" * 1_000_000})


@spider
class Priorities(Spider):
    """Three requests of different priority, in another order."""

    name = "priorities"

    def parse(self, response):
        if response.url.endswith("/"):
            for priority in (0, 30, -30):
                yield response.follow(
                    f"/{priority}", priority=priority, cb_kwargs={"told": (1, b"2")}, callback=self.page
                )

    def page(self, response, told):
        assert told == (1, b"2"), told
        yield {"url": response.url}


@spider
class Rules(scrapy.spiders.CrawlSpider):
    """Follows links by rules."""

    name = "rules"
    rules = (
        Rule(LinkExtractor(allow=r"/list/")),
        Rule(LinkExtractor(allow=r"/item/"), callback="item", cb_kwargs={"kind": "item"}, follow=True),
    )

    async def start(self):
        yield scrapy.Request(ROOT + "/")

    def item(self, response, kind):
        yield {"url": response.url, "kind": kind, "text": response.meta["link_text"]}


@spider
class Sitemaps(scrapy.spiders.SitemapSpider):
    """Reads sitemaps and their index."""

    name = "sitemaps"
    sitemap_rules: ClassVar = [("/item/", "item"), ("/list/", "listed")]

    async def start(self):
        yield scrapy.Request(ROOT + "/sitemap.xml", self._parse_sitemap)

    def item(self, response):
        yield {"url": response.url, "kind": "item"}

    def listed(self, response):
        yield {"url": response.url, "kind": "list"}


@spider
class Feed(scrapy.spiders.XMLFeedSpider):
    """Reads the entries of a feed, and the page of each."""

    name = "feed"
    itertag = "item"

    async def start(self):
        yield scrapy.Request(ROOT + "/feed.xml")

    def parse_node(self, response, selector):
        yield scrapy.Request(
            selector.xpath("link/text()").get(), self.item, meta={"title": selector.xpath("title/text()").get()}
        )

    def item(self, response):
        yield {"url": response.url, "title": response.meta["title"]}


@spider
class Member(scrapy.Spider):
    """Sends a form, keeps a cookie, downloads files, and has a fingerprinter of its own."""

    name = "member"

    async def start(self):
        yield scrapy.Request(ROOT + "/login")

    def parse(self, response):
        yield scrapy.FormRequest.from_response(response, formdata={"user": "me"}, callback=self.inside)

    def inside(self, response):
        for number in range(4):
            yield response.follow(f"/private/{number % 2}?visit={number}", self.private)

    def private(self, response):
        yield {"url": response.url.partition("?")[0], "file_urls": [response.urljoin("/file/1")]}


@spider
class Gallery(Spider):
    """Each page has a file, which a pipeline downloads without the scheduler."""

    name = "gallery"
    custom_settings: ClassVar = {"ITEM_PIPELINES": {"scrapy.pipelines.files.FilesPipeline": 1}}

    def parse(self, response):
        yield {"url": response.url, "file_urls": [response.url.rstrip("/") + "/file"]}
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link)


@spider
class Again(Spider):
    """Requests that an earlier run has made, with every kind of value: as a start request, and from a page. Counts
    those that are dropped, and whether they are equal to the given ones. With the setting FORGOTTEN, the callback of
    the dropped requests is deleted in the meantime."""

    name = "again"

    @classmethod
    def from_crawler(cls, crawler):
        spider = super().from_crawler(crawler)
        spider.given = {}
        crawler.signals.connect(spider.dropped, signals.request_dropped)
        return spider

    def made(self, path):
        request = scrapy.FormRequest(
            ROOT + path,
            self.page,
            formdata={"a": "ü"},
            errback=self.failed,
            headers={"X-Told": ["1", "2"]},
            meta={"deep": ({"x": b"1"}, None), "download_timeout": 5.0},
            cb_kwargs={"told": (1, b"2")},
            priority=-7,
            flags=["flag"],
        )
        self.given[request.url] = request
        return request

    async def start(self):
        yield self.made("/start")
        yield scrapy.Request(f"{ROOT}/?{self.crawler.settings['RUN']}")

    def parse(self, response):
        yield self.made("/page")
        if self.crawler.settings["FORGOTTEN"]:
            del Again.page

    def page(self, response, told):
        yield {"url": response.url, "told": told}

    def failed(self, failure):
        raise AssertionError(failure)

    def dropped(self, request):
        given = self.given[request.url]
        equal = type(request) is type(given) and request.to_dict(spider=self) == given.to_dict(spider=self)
        self.crawler.stats.inc_value("dropped/equal" if equal else "dropped/other")


@spider
class Local(Spider):
    """A request whose class cannot be imported, because it is made in a function."""

    name = "local"

    def parse(self, response):
        class LocalRequest(scrapy.Request):
            pass

        yield {"url": response.url}
        if response.url.endswith("/"):
            yield LocalRequest(response.urljoin("/1"))


class SlowPipeline:
    def process_item(self, item):
        open(item["mark"], "w").close() if "mark" in item else None
        time.sleep(30)
        return item


@spider
class Slow(Spider):
    """A spider whose item pipeline does not end."""

    name = "plain"  # the same crawl
    custom_settings: ClassVar = {"ITEM_PIPELINES": {SlowPipeline: 1}}

    def parse(self, response):
        yield {"url": response.url, "mark": self.crawler.settings["MARK"]}


SPIDERS["slow"], SPIDERS["plain"] = Slow, Plain


class WrittenPipeline:
    """Writes each item to the file of the setting WRITTEN, at once, as docs/howto/scrapy.md recommends."""

    @classmethod
    def from_crawler(cls, crawler):
        pipeline = cls()
        pipeline.path = crawler.settings["WRITTEN"]
        return pipeline

    def process_item(self, item):
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(item) + "\n")
        return item


class PathFingerprinter:
    """Requests with the same path are the same."""

    def fingerprint(self, request):
        return request.url.partition("?")[0].encode()


def be_old():
    scrapy.version_info, scrapy.__version__ = (2, 17, 0), "2.17.0"


def be_changed():
    del Scraper._process_spidermw_output_async


SCRAPY = {"old": be_old, "changed": be_changed}
"""Versions of Scrapy that have not what the scheduler needs."""

OURS = {
    "written": {"ITEM_PIPELINES": {WrittenPipeline: 1}},
    "path_fingerprints": {"REQUEST_FINGERPRINTER_CLASS": PathFingerprinter},
    "member": {
        "REQUEST_FINGERPRINTER_CLASS": PathFingerprinter,
        "ITEM_PIPELINES": {"scrapy.pipelines.files.FilesPipeline": 1},
    },
}
"""Settings that name classes of this file."""


if __name__ == "__main__":
    name, ROOT, told = sys.argv[1:]
    settings = {
        "SCHEDULER": "outrider.integrations.scrapy.Scheduler",
        "DUPEFILTER_CLASS": "outrider.integrations.scrapy.DupeFilter",
        "LOG_LEVEL": "INFO",
        "TELNETCONSOLE_ENABLED": False,
        "REMOTE_CONTROL_ENABLED": False,
        "RETRY_TIMES": 2,
        **json.loads(told),
    }
    scheduler.INTEGRATION_PATIENCE_SECONDS = settings.pop("patience", 60.0)
    SCRAPY.get(settings.pop("scrapy", ""), lambda: None)()
    settings |= OURS.get(settings.pop("ours", ""), {})
    if settings.pop("freeze", False):
        gc.freeze()
    process = AsyncCrawlerProcess(settings)
    crawler = process.create_crawler(SPIDERS[name])
    process.crawl(crawler)
    process.start()
    stats = crawler.stats.get_stats() | {"skipped_at_end": gc.get_freeze_count()}
    print(json.dumps(stats, default=str))
