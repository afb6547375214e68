"""The keywords of `outrider.crawl(…)`: types and page follow the declarations of the options."""

from __future__ import annotations

import inspect
import sys
import typing
from pathlib import Path

import pytest

import outrider
from outrider.crawl.crawler import crawl
from outrider.crawl.setup.keywords import CrawlKeywords
from outrider.crawl.setup.options import SETTINGS


@pytest.fixture(scope="module")
def keywords(project: Path):
    sys.path.insert(0, str(project / "scripts"))
    try:
        import keywords

        yield keywords
    finally:
        sys.path.remove(str(project / "scripts"))


def test_the_types_are_those_of_the_declarations(keywords):
    assert keywords.types_text() == keywords.TYPES.read_text("utf-8"), "python scripts/keywords.py writes it"


def test_the_page_is_that_of_the_declarations(keywords):
    assert keywords.page_text() == keywords.PAGE.read_text("utf-8"), "python scripts/keywords.py writes it"


def test_each_option_is_a_keyword(keywords):
    assert set(SETTINGS) == {*keywords.keywords(), "output"}


def test_both_ways_to_crawl_have_the_typed_keywords():
    for function in (crawl, outrider.Crawler.__init__):
        assert "Unpack[CrawlKeywords]" == inspect.signature(function).parameters["options"].annotation


def test_the_types_can_be_read_at_run_time():
    assert int is typing.get_type_hints(CrawlKeywords)["concurrency"]
