"""The words of pages that may be endless: equal in a trap, different where there is content."""

from __future__ import annotations

import time

import pytest

from outrider.crawl.run.text_signature import figures_of, signature_of, words_of
from outrider.limits import WORDING_BYTES_MAX
from outrider.page import read


def wording(url: str, title: str, text: str, links: dict[str, str] | None = None) -> int | None:
    items = "".join(f"<li><a href='{address}'>{said}</a></li>" for address, said in (links or {}).items())
    body = f"<title>{title}</title><h1>{title}</h1><p>{text}</p><ul>{items}</ul>"
    return words_of(read(body.encode(), url), url)


def days(*numbers: int) -> dict[str, str]:
    return {f"/day/{number}": f"Day {number}" for number in numbers}


def test_days_of_a_calendar_are_equal_with_any_links_to_days() -> None:
    one = wording("http://a.test/day/7", "Calendar 2026-05-17", "No events", days(6, 8))
    other = wording("http://a.test/day/900", "Calendar 2028-10-29", "No events", days(535, 899, 901, 1265))
    assert one is not None
    assert one == other
    assert one != wording("http://a.test/day/8", "Calendar 2026-05-18", "Concert in the park", days(7, 9))
    assert one != wording("http://b.test/day/7", "Calendar 2026-05-17", "No events", days(6, 8))


def test_stacked_filters_are_equal_and_lists_of_different_things_are_not() -> None:
    filters = {"/shop?a=1&b=2&c=4": "green", "/shop?a=2&b=2&c=3": "large"}
    one = wording("http://a.test/shop?a=1&b=2&c=3", "Shop", "Thirty things", filters)
    other = wording("http://a.test/shop?a=5&b=6&c=7", "Shop", "Thirty things", {"/shop?d=1": "blue"})
    assert one == other
    lists = [
        wording("http://a.test/shop?a=1&b=2&c=3", "Shop", "Thirty things", {f"/product/{name}": name})
        for name in ("Chair", "Table")
    ]
    assert 2 == len({*lists} - {one, None})


def test_figures_of_the_content_distinguish_pages_but_figures_of_a_url_a_date_or_a_clock_do_not() -> None:
    base = wording("http://a.test/2031/05/", "Month", "Rain fell on 7 days")
    assert base != wording("http://a.test/2031/06/", "Month", "Rain fell on 9 days")
    assert base == wording("http://a.test/2031/06/", "Month", "Rain fell on 7 days")
    pairs = [
        ("It is 12:34:56", "It is 9:05"),
        ("Month 2031-05", "Month 2031-06"),
        ("May 2031", "June 2031"),
        ("Page generated in 0.034 seconds", "Page generated in 1.2 seconds"),
        ("You are visitor number 4711", "You are visitor number 4712"),
        (" ".join(map(str, range(1, 32))), " ".join(map(str, (*range(1, 31), 1, 2, 3)))),
    ]
    for one, other in pairs:
        found = [
            wording(f"http://a.test/2031/0{month}/", f"2031-0{month}", text) for month, text in ((5, one), (6, other))
        ]
        assert 1 == len({*found}), one
    table = [" ".join(f"{day} {degrees + day % 5}" for day in range(1, 31)) for degrees in (10, 11)]
    assert 2 == len({wording("http://a.test/2031/05/", "Degrees", text) for text in table})


def test_links_named_by_their_urls_count_as_nothing_for_every_kind_of_url() -> None:
    """A farm of random links: a name without a letter is of another kind."""
    pages = [
        wording(f"http://a.test/f/0a1b2c3d4e{number}", f"/f/0a1b2c3d4e{number}", "Farm", {f"/f/{more}": f"/f/{more}"})
        for number, more in (("1f", "9f8e7d6c5b4a"), ("2f", "123456789012"))
    ]
    assert 1 == len({*pages})


@pytest.mark.parametrize("url", ["http://a.test/item/1", "http://a.test/"])
def test_an_ordinary_page_has_no_signature(url: str) -> None:
    assert wording(url, "Item 1", "One of many") is None
    assert words_of(read(b"", "http://a.test/2031/05/"), "http://a.test/2031/05/") is None


@pytest.mark.parametrize("piece", ["1", "1.", "1,2", "12 views", "visitors 1 ", "12:34 ", "2031-05-"])
def test_a_page_of_figures_costs_time_in_proportion_to_its_length(piece: str) -> None:
    """A figure of 64 KB once needed minutes, because each of its digits was read up to the end again."""
    url = "http://a.test/2031/05/"
    page = read(f"<p>{piece * (WORDING_BYTES_MAX // len(piece))}".encode(), url)
    began = time.process_time()
    assert words_of(page, url) is not None
    figures_of(page, url)
    signature_of(page, url)
    assert time.process_time() - began < 5
