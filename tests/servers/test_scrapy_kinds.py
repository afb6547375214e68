"""Each kind of spider finds the same items with the scheduler of Outrider and with Scrapy's own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from e2e.loopback import MISSING, Answer, Site, site

SPIDERS = Path(__file__).with_name("spiders.py")
OWN = {"SCHEDULER": "scrapy.core.scheduler.Scheduler", "DUPEFILTER_CLASS": "scrapy.dupefilters.RFPDupeFilter"}
"""The settings of Scrapy's own scheduler."""
PAGES = 12
XML = "application/xml"


def shop(root: list[str]):
    """A site with lists, items, sitemaps, a feed, and pages for members."""

    def sitemap(kind: str, numbers: range) -> Answer:
        urls = "".join(f"<url><loc>{root[0]}/{kind}/{number}</loc></url>" for number in numbers)
        return Answer(f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{urls}</urlset>', content_type=XML)

    def answer(_: str, target: str) -> Answer:
        path, _, query = target.partition("?")
        _, kind, number = (*path.split("/"), "", "")[:3]
        if path == "/sitemap.xml":
            both = "".join(f"<sitemap><loc>{root[0]}/{one}.xml</loc></sitemap>" for one in ("items", "lists"))
            text = f'<sitemapindex xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{both}</sitemapindex>'
            return Answer(text, content_type=XML)
        if path == "/items.xml":
            return sitemap("item", range(PAGES))
        if path == "/lists.xml":
            return sitemap("list", range(3))
        if path == "/feed.xml":
            entries = "".join(
                f"<item><title>The {one}</title><link>{root[0]}/item/{one}</link></item>" for one in range(PAGES)
            )
            return Answer(f"<rss><channel>{entries}</channel></rss>", content_type=XML)
        if path == "/login":
            return Answer(
                '<form method="post" action="/inside"><input name="user"><input name="hidden" value="1"></form>'
            )
        if path == "/inside" and sorted(query.split("&")) == ["hidden=1", "user=me"]:
            return Answer("in", fields={"Set-Cookie": "session=7; Path=/"})
        if kind in ("private", "file"):
            return Answer(f"{kind} {number}")
        if path == "/" or (kind == "list" and number.isdigit() and int(number) < 3):
            lists = "".join(f'<a href="/list/{one}">list</a>' for one in range(3))
            own = range(4 * int(number or 0), 4 * int(number or 0) + 4) if kind == "list" else ()
            return Answer(lists + "".join(f'<a href="/item/{one}">item {one}</a>' for one in own))
        if kind == "item" and number.isdigit() and int(number) < PAGES:
            following = (int(number) + 1) % PAGES
            return Answer(f'<a href="/item/{following}">item {following}</a>')  # as in lists: any page may be first
        return MISSING

    return answer


@pytest.fixture
def run(python, tmp_path):
    """Runs a spider to its end. Returns its items and the site."""

    def done(name: str, **settings: Any) -> tuple[list[dict[str, Any]], Site]:
        root: list[str] = []
        with site(shop(root)) as web:
            root.append(web.root)
            feed = tmp_path / f"items-{len(list(tmp_path.iterdir()))}.jsonl"
            settings |= {"FEEDS": {str(feed): {"format": "jsonlines"}}, "FILES_STORE": str(feed.with_suffix(".files"))}
            words = [python, str(SPIDERS), name, web.root, json.dumps(settings)]
            ended = subprocess.run(words, capture_output=True, text=True, timeout=120, cwd=tmp_path, check=False)
            assert 0 == ended.returncode, ended.stderr
            assert "log_count/ERROR" not in json.loads(ended.stdout.splitlines()[-1]), ended.stderr
        items = [json.loads(line.replace(web.root, "")) for line in feed.read_text().splitlines()]
        for item in items:
            for file in item.get("files", ()):
                del file["path"]  # made from the address, which is another one in each run
        return sorted(items, key=json.dumps), web

    return done


EXPECTED = {"plain": 1 + 3 + PAGES, "rules": PAGES, "sitemaps": 3 + PAGES, "feed": PAGES, "member": 2}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_spider_finds_the_same_items_as_with_the_scheduler_of_scrapy(run, tmp_path, name):
    more = {"ours": "member"} if name == "member" else {}
    own, _ = run(name, **OWN, **more)
    items, web = run(name, JOBDIR=str(tmp_path / "job"), **more)
    assert own == items
    assert EXPECTED[name] == len({item["url"] for item in items})
    if name == "member":
        cookies = {cookie for target, cookie in web.cookies.items() if target.startswith("/private/")}
        assert {"session=7"} == cookies
        assert all(item["files"][0]["status"] in ("downloaded", "uptodate", "cached") for item in items)


def test_a_spider_runs_without_a_reactor(run, tmp_path):
    own, _ = run("sitemaps", **OWN)
    items, _ = run("sitemaps", JOBDIR=str(tmp_path / "job"), TWISTED_REACTOR_ENABLED=False)
    assert own == items
