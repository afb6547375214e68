"""docs/recipes.md: its blocks run unchanged, one after the other, in an empty folder."""

from __future__ import annotations

import csv
import json
import re

import pytest

from e2e.walking import PORT, walk

ONE, TWO = f"http://127.0.0.1:{PORT}", f"http://127.0.0.2:{PORT}"


@pytest.fixture(scope="module")
def walked(project, tmp_path_factory):
    """The folder after all blocks, and what each of them wrote."""
    folder = tmp_path_factory.mktemp("recipes")
    return folder, walk(project / "docs" / "recipes.md", folder, ("127.0.0.1", "127.0.0.2"))


def got(walked, name):
    """The paths of the pages that a crawl got, in order, with the last number of each host's address."""
    lines = [json.loads(line) for line in (walked[0] / name / "pages.jsonl").read_text().splitlines()]
    return [
        (line["url"].split(":")[1][-1], line["url"].rpartition("/")[2]) for line in lines if line["outcome"] == "done"
    ]


def test_one_site_is_crawled_to_its_end_and_not_beyond(walked):
    assert [("1", f"{number}.html") for number in range(1, 6)] == got(walked, "site")
    assert "state       finished" in walked[1][1]


def test_only_the_urls_of_a_list_are_fetched(walked):
    assert {("1", "2.html"), ("1", "4.html"), ("2", "other.html")} == set(got(walked, "list"))
    with (walked[0] / "list.csv").open() as file:
        assert 3 == len(list(csv.DictReader(file)))


def test_a_broad_crawl_visits_other_hosts(walked):
    assert {("1", f"{number}.html") for number in range(1, 6)} | {
        ("2", name) for name in ("cheese.html", "other.html", "deeper.html")
    } == set(got(walked, "broad"))
    assert "127.0.0.2" in walked[1][3]


def test_a_focused_crawl_stops_where_its_topic_ends(walked):
    assert [("1", "5.html"), ("2", "cheese.html"), ("2", "other.html")] == got(walked, "focused")
    assert ["0.5", "0.5", "0.0"] == re.findall(r'"score":([0-9.]+)', walked[1][4])


def test_a_recrawl_ends_when_all_is_due_next_week(walked):
    said = walked[1][5]
    assert "ended with 3" in said
    assert 5 == sum(line.startswith("waiting") for line in said.splitlines())


@pytest.mark.parametrize("name", ["one.log", "two.log"])
def test_no_recipe_requests_a_url_that_robots_txt_closes(walked, name):
    assert "/private" not in (walked[0] / name).read_text()
