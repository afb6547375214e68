"""The lines of items.jsonl are made from a page's line, also if that line is of an older release."""

from __future__ import annotations

import json

import pytest

from outrider.crawl.output.line_fields import item_lines, parts_of_item

PAGE = {"url": "http://a.test/", "outcome": "done", "token": 7}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"items": 5},
        {"items": []},
        {"items": [1, 2]},
        {"items": ["text"]},
        {"items": {"a": 1}},
        {"title": '"items":[{"a":1}]'},
        {"words": {"items": [{"a": 1}]}},
        {"token": None, "items": [{"a": 1}]},
    ],
)
def test_a_line_without_items_of_on_page_makes_no_item_lines(fields):
    assert [] == item_lines(json.dumps({**PAGE, **fields}, separators=(",", ":")).encode())


@pytest.mark.parametrize("item", [{}, {"a": 1}, {"url": "u", "token": "t", "page_token": 3}, {"a": {"token": 1}}])
def test_each_item_can_be_read_from_its_line(item):
    line = json.dumps({**PAGE, "items": [item, {"b": 2}], "new_links": 3}, separators=(",", ":")).encode()
    first, second = (json.loads(one) for one in item_lines(line))
    assert ("http://a.test/", 7, item) == parts_of_item(first)
    assert ("http://a.test/", 7, {"b": 2}) == parts_of_item(second)


@pytest.mark.parametrize("line", [{}, {"url": "u"}, {"token": 1, "url": "u"}, {"url": "u", "token": "t"}])
def test_a_line_that_does_not_begin_with_its_page_is_refused(line):
    with pytest.raises(ValueError, match="item"):
        parts_of_item(line)
