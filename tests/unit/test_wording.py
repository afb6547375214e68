"""The words of pages that may be without end: alike in a trap, apart where there is anything to read."""

from __future__ import annotations

import pytest

from outrider.crawl.wording import wording_of
from outrider.page import read


def wording(url: str, title: str, text: str, links: dict[str, str] | None = None) -> int | None:
    items = "".join(f"<li><a href='{address}'>{said}</a></li>" for address, said in (links or {}).items())
    body = f"<title>{title}</title><h1>{title}</h1><p>{text}</p><ul>{items}</ul>"
    return wording_of(read(body.encode(), url), url)


def days(*numbers: int) -> dict[str, str]:
    return {f"/day/{number}": f"Day {number}" for number in numbers}


def test_days_of_a_calendar_are_alike_whatever_days_they_lead_to() -> None:
    one = wording("http://a.test/day/7", "Calendar 2026-05-17", "No events", days(6, 8))
    other = wording("http://a.test/day/900", "Calendar 2028-10-29", "No events", days(535, 899, 901, 1265))
    assert one is not None
    assert one == other
    assert one != wording("http://a.test/day/8", "Calendar 2026-05-18", "Concert in the park", days(7, 9))
    assert one != wording("http://b.test/day/7", "Calendar 2026-05-17", "No events", days(6, 8))


def test_filters_over_filters_are_alike_and_lists_of_other_things_are_not() -> None:
    filters = {"/shop?a=1&b=2&c=4": "green", "/shop?a=2&b=2&c=3": "large"}
    one = wording("http://a.test/shop?a=1&b=2&c=3", "Shop", "Thirty things", filters)
    other = wording("http://a.test/shop?a=5&b=6&c=7", "Shop", "Thirty things", {"/shop?d=1": "blue"})
    assert one == other
    lists = [
        wording("http://a.test/shop?a=1&b=2&c=3", "Shop", "Thirty things", {f"/product/{name}": name})
        for name in ("Chair", "Table")
    ]
    assert 2 == len({*lists} - {one, None})


@pytest.mark.parametrize("url", ["http://a.test/item/1", "http://a.test/"])
def test_a_page_that_stands_alone_has_none(url: str) -> None:
    assert wording(url, "Item 1", "One of many") is None
    assert wording_of(read(b"", "http://a.test/2031/05/"), "http://a.test/2031/05/") is None
