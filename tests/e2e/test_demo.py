"""The demo as a user runs it: the real command against the bundled web, judged from outside."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

from outrider.crawl.run.text_signature import words_of
from outrider.frontier.policy.returns import shape_of
from outrider.limits import RETURNS_FETCHES_MIN
from outrider.page import read
from outrider.sim import verdict as judge
from outrider.sim.web import FILLERS, DemoWeb

SHAPE_ENDS_WITHIN = 55  # docs/traps.md; tests/unit/test_traps.py checks it

pytestmark = [pytest.mark.long, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """One run of the demo: its folder, its output, and its seconds."""
    folder = tmp_path_factory.mktemp("demo") / "kept"
    begun = time.monotonic()
    command = [sys.executable, "-m", "outrider.sim.demo", "--keep", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, check=False)
    assert 0 == done.returncode, done.stdout + done.stderr
    return folder, done.stdout + done.stderr, time.monotonic() - begun


@pytest.fixture(scope="module")
def web(demo) -> DemoWeb:
    seed = (demo[0] / "web" / "seeds.txt").read_text().split()[0]
    return DemoWeb(port=int(seed.rstrip("/").rpartition(":")[2]))


@pytest.fixture(scope="module")
def verdict(demo) -> judge.PolitenessVerdict:
    return judge.judge(demo[0] / "web" / "access.log", delay=0.2)


def test_every_page_that_must_be_fetched_was_and_once(web, verdict):
    fetched = {web.url(host, path) for host, path in verdict.asked(status=200)}
    assert web.must_fetch() | web.mapped() == {url for url in fetched if not web.endless(url)}
    assert {} == verdict.asked_often()


def test_no_forbidden_url_was_requested(web, verdict):
    asked = {web.url(host, path) for host, path in verdict.asked()}
    others = asked - web.may_fetch() - web.mapped()
    # A crawl requests the well-known sitemap of sites whose robots.txt names no sitemap.
    assert set() == {url for url in others if not web.endless(url) and not url.endswith("/sitemap.xml")}


def test_an_independent_judge_finds_no_breach(verdict):
    assert [] == verdict.breaches


def test_the_endless_calendar_ended_by_itself_within_its_budget(web, verdict):
    """A shape ends after 48 fetches, or as many after its last new words as a full share needs to fall."""
    shapes: dict[str, list[int | None]] = {}
    for request in verdict.requests:
        url = web.url(request.host, request.path)
        if web.endless(url):
            page = read(web.answer(request.host, request.path, 0.0).body, url)
            shapes.setdefault(shape_of(request.path), []).append(words_of(page, url))
    assert ["/calendar/#/#/", "/calendar/#/#/#.html"] == sorted(shapes)
    for wordings in shapes.values():
        assert 1 < len(set(wordings)) <= len(FILLERS)
        last_new = max(wordings.index(wording) for wording in set(wordings)) + 1
        assert RETURNS_FETCHES_MIN <= len(wordings) <= max(RETURNS_FETCHES_MIN, last_new + SHAPE_ENDS_WITHIN)


def test_it_needs_less_than_forty_seconds(demo):
    assert demo[2] < 40


def test_it_names_every_output_and_all_of_them_exist(demo):
    folder, said, _ = demo
    assert f"All files are in {folder}" in said
    for name in ("report.html", "pages.jsonl", "politeness.jsonl"):
        assert (folder / "crawl" / name).stat().st_size > 10_000, name
    assert list((folder / "crawl" / "archive").glob("*.warc.gz"))


def test_a_page_line_was_written_for_every_answer_of_the_web(demo, web, verdict):
    with (demo[0] / "crawl" / "pages.jsonl").open(encoding="utf-8") as lines:
        answered = sorted(page["url"] for page in map(json.loads, lines) if page["status"])
    errands = ("/robots.txt", "/sitemap.xml")
    asked = sorted(web.url(entry.host, entry.path) for entry in verdict.requests if entry.path not in errands)
    assert asked == answered


def test_a_folder_that_is_not_empty_is_refused(tmp_path):
    (tmp_path / "mine").write_text("precious")
    command = [sys.executable, "-m", "outrider.sim.demo", "--keep", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (2, True) == (done.returncode, "is not empty" in done.stderr)
