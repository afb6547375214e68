"""Crawls of pages whose links need far more memory than their bodies."""

from __future__ import annotations

import os

import pytest

from e2e import bombs, crawling

LONG = "/" + "x" * 7_900 + "/"
SPARE_BYTES = 256 << 20
BOMB_BYTES = 384 << 20  # 32 crawls held 228 to 261 MB more than a plain one: how many pages arrive at once is chance


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> int:
    """The most memory of a crawl of 64 pages without links."""
    place = tmp_path_factory.mktemp("plain")
    with bombs.web(place / "web", hosts=64, bomb="/", page=b"<p>word</p>") as web:
        done, peak = bombs.run(*web.arguments(place / "out", "/", "--max-pages", "64"))
    assert done.returncode in (0, 3), done.stderr
    return peak


def test_two_pages_of_ten_thousand_links_below_long_urls_are_crawled_and_resumed(tmp_path):
    """Two pages of 130 kB made a report of 329 MB: exit code 2, and each resume died again."""
    output = tmp_path / "out"
    with bombs.web(tmp_path / "web", hosts=2, bomb=LONG, page=bombs.links(10_000)) as web:
        done, peak = bombs.run(*web.arguments(output, LONG, "--max-pages", "2"))
        assert (3, True) == (done.returncode, peak < SPARE_BYTES), done.stderr
        again, _ = bombs.run("resume", str(output), "--max-pages", "12", "--progress", "none", "--delay", "0")
        assert 3 == again.returncode, again.stderr
    pages = {page["url"]: page for page in crawling.pages(output)}
    for url in web.seeds(LONG):
        assert pages[url]["outcome"] in ("done", "duplicate")
        assert 10_000 == pages[url]["links"] + pages[url]["links_left_out"]
        assert pages[url]["links"] == pages[url]["new_links"] > 50
    assert 10 <= sum(page["referrer"] is not None for page in pages.values())


@pytest.mark.parametrize(
    ("path", "page"),
    [
        pytest.param("/", bombs.links(10_000, base="/" + "b" * 2_000 + "/"), id="below-a-long-base"),
        pytest.param(LONG, bombs.links(10_000), id="below-a-long-url"),
        pytest.param(LONG, bombs.links(10_000, above="/"), id="found-at-a-long-url", marks=pytest.mark.long),
    ],
)
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="the highest resident memory is read from /proc")
def test_sixty_four_page_bombs_need_little_more_memory_than_a_plain_crawl(tmp_path, plain, path, page):
    """7 GB for pages of 130 kB: 10,000 links each, of which every one had the length of the base or of its page."""
    with bombs.web(tmp_path / "web", hosts=64, bomb=path, page=page) as web:
        done, peak = bombs.run(*web.arguments(tmp_path / "out", path, "--max-pages", "64"))
    assert 3 == done.returncode, done.stderr
    assert 64 <= len([page for page in crawling.pages(tmp_path / "out") if page["outcome"] in ("done", "duplicate")])
    assert peak < plain + BOMB_BYTES, f"{peak >> 20} MB beside {plain >> 20} MB of a plain crawl"
