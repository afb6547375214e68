"""docs/howto/scrapy.md and scrapy-redis.md: their blocks run unchanged, one after the other, in an empty folder."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest

from e2e.walking import PORT, walk

PAGES = 40
IN_FLIGHT = 2  # one that was sent and one that was processed, because a host gets one request at a time
ALL = {f"http://127.0.0.1:{PORT}/{number}.html" for number in range(1, PAGES + 1)}


def answered(folder):
    """How often the server has sent each page."""
    return Counter(re.findall(r'"GET /(\w+)\.html HTTP/1\.1" 200', (folder / "server.log").read_text()))


def items(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.timeout(300)
def test_a_project_of_scrapy_continues_with_its_job_directory_and_after_a_kill(project, python, tmp_path):
    said = walk(project / "docs" / "howto" / "scrapy.md", tmp_path, python=python)
    assert re.search(r"^[1-9]\d* requests, [1-9]\d* seen before", said[2], re.MULTILINE), said[2]
    found = answered(tmp_path)
    assert {str(number) for number in range(1, PAGES + 1)} == set(found)
    assert found.total() - found["1"] - (PAGES - 1) <= IN_FLIGHT
    assert f"\n{found.total()}\n" in said[3]
    assert "'frontier/left': 0" in said[3]
    assert "'finish_reason': 'finished'" in said[3]


@pytest.mark.timeout(300)
def test_spiders_share_the_frontier_that_replaces_scrapy_redis(project, python, tmp_path):
    said = walk(project / "docs" / "howto" / "scrapy-redis.md", tmp_path, python=python)
    assert [str(PAGES)] == said[2].split()[-1:], said[2]
    both = [item["url"] for name in ("first", "second") for item in items(tmp_path / f"{name}.jsonl")]
    assert ALL == {re.sub(r":\d+/", f":{PORT}/", url) for url in both}
    assert len(both) <= PAGES + 1  # the start request of each process is not filtered
    assert "new" in said[3].split()
    assert ["Added"] == [item["title"] for item in items(tmp_path / "third.jsonl")]
