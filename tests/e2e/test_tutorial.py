"""docs/tutorial.md: its blocks run unchanged, one after the other, in an empty folder."""

from __future__ import annotations

import json
import re

import pytest

from e2e.walking import PORT, walk


@pytest.fixture(scope="module")
def walked(project, tmp_path_factory):
    """The folder after all blocks, and what each of them wrote."""
    folder = tmp_path_factory.mktemp("tutorial")
    return folder, walk(project / "docs" / "tutorial.md", folder)


def test_the_crawl_stops_at_its_limit_and_continues_to_the_end(walked):
    said = walked[1][1]
    assert "stopped at a limit (--max-pages 3)" in said
    assert "finished" in said.split("stopped at a limit")[-1]


def test_the_page_that_robots_closes_is_explained_and_every_gap_was_kept(walked):
    said = walked[1][2]
    assert "it is parked by robots.txt, line 2: Disallow: /private" in said
    assert "no delay violated" in said


def test_the_data_has_every_page_once(walked):
    said = walked[1][3]
    for number in range(1, 6):
        assert 1 == said.count(f"done 200 http://127.0.0.1:{PORT}/{number}.html Page {number}\n")
    assert (walked[0] / "pages.csv").stat().st_size
    assert "<title>Page 2</title>" in said


def test_the_fields_of_the_hook_are_in_the_lines(walked):
    lines = [json.loads(line) for line in walked[1][4].splitlines() if '"words"' in line]
    assert [f"http://127.0.0.1:{PORT}/{number}.html" for number in range(1, 6)] == [line["url"] for line in lines]


def test_the_crawler_of_the_reader_s_own_gets_every_page_that_is_open(walked):
    said = walked[1][5]
    assert [f"http://127.0.0.1:{PORT}/{number}.html" for number in range(1, 6)] == re.findall(
        r"^http://\S+", said, re.MULTILINE
    )
    assert re.search(r"parked +robots .*/private", said)
