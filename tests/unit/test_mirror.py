"""A site that answers under a second name: the mirror is parked, the site itself is fetched whole."""

from __future__ import annotations

import random

import pytest

from outrider.crawl.copies import Copies
from outrider.engine import Frontier
from unit.test_crawl_sitemaps import A, B, House

PAGES = 300


@pytest.mark.parametrize(("from_page", "changed"), [(0, False), pytest.param(PAGES // 2, True, marks=pytest.mark.long)])
def test_a_mirror_is_parked_and_every_page_of_the_site_is_fetched(tmp_path, from_page, changed):
    """A mirror that the home page names is crawled side by side with the site, one that later pages name behind it.
    changed: it adds a line to each page."""
    house = House(tmp_path)
    chance = random.Random(3)
    for number in range(PAGES):
        words = " ".join(f"w{chance.randrange(10**6)}" for _ in range(400))
        onward = [f"/doc/page-{8 * number + more}.html" for more in range(1, 9) if 8 * number + more < PAGES]
        links = [*onward, *([f"{B}/"] if number >= from_page else [])]
        text = f"<title>Page {number}</title><p>{words}" + "".join(f"<a href={link}>on</a>" for link in links)
        path = f"/doc/page-{number}.html" if number else "/"
        house.web.pages[A + path] = text
        house.web.pages[B + path] = text + ("<p>mirrored" if changed else "")
    house.crawl(scope="any", sitemaps=False)
    told = {url: line["outcome"] for url, line in house.pages().items() if url in house.web.pages}
    assert ["done"] * PAGES == [word for url, word in told.items() if url.startswith(A)]
    frontier = Frontier.look(house.output / "frontier")
    try:
        parked = [row.url for row in frontier.urls(state="parked")]
    finally:
        frontier.close()
    assert all(url.startswith(B) for url in parked)
    if from_page:
        assert parked
        assert len(told) < 2 * PAGES


def test_the_site_that_was_met_first_is_the_one_that_is_mirrored():
    copies = Copies()
    for row, url in enumerate((f"{A}/", f"{B}/", f"{B}/x?y", f"{A}/z")):
        copies.add(url, bytes([row + 1] * 20), row, 0)
    assert copies.is_of_mirror(f"{A}/x?y", f"{B}/x?y")
    assert not copies.is_of_mirror(f"{B}/z", f"{A}/z")
    assert not copies.is_of_mirror(f"{A}/x", f"{B}/x?y")
    assert not copies.is_of_mirror(f"{A}/z", f"{A}/z")
    assert not copies.is_of_mirror("http://unknown.test/z", f"{A}/z")
    assert copies.is_of_mirror(f"{A}/z", "http://unknown.test/z")
