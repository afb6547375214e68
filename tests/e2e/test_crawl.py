"""Whole crawls of a demo web on loopback, judged by the web's own log and by readers that are not ours."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import outrider
from e2e import crawling
from outrider.crawl.questions.control import ask
from outrider.sim.verdict import judge
from outrider.sim.web import HostRole

PAGE_FIELDS = [
    *("url", "outcome", "status", "fetched_at", "seconds", "bytes", "content_type", "digest", "simhash", "depth"),
    *("referrer", "priority", "attempt", "location", "title", "description", "canonical", "charset", "language"),
    *("http_date", "last_modified", "etag", "links", "token", "warc", "shingles", "text_digest", "new_links"),
]
OPTIONAL_PAGE_FIELDS = {"not_followed", "duplicate_of", "distance", "content_digest", "probe"}
STATUS_FIELDS = {
    *("state", "accepted", "urls", "held", "in_transit", "errands", "hosts", "answered", "pages_per_second", "bytes"),
    *("duplicates", "errors", "payments", "disk", "eta_seconds", "not_followed", "left_out", "catalogs", "uploads"),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """One crawl of a web with every quirk, to its end."""
    directory = tmp_path_factory.mktemp("whole")
    with crawling.web(directory / "web", hosts=18, pages=180, quirks=True) as served:
        output = directory / "out"
        ended = crawling.outrider(*crawling.on(served, output, "--delay", "0.1", "--max-pages-per-host", "40"))
        yield served, output, ended


def test_a_crawl_fetches_what_can_be_reached_and_nothing_else(whole):
    served, output, _ = whole
    endless = served.web.host_of(HostRole.ENDLESS)
    asked = {url for url in crawling.fetched(output) if crawling.host_and_path(url)[0] != endless}
    must = {url for url in served.web.must_fetch() if crawling.host_and_path(url)[0] != endless}
    assert must == asked


def test_a_budget_that_cut_something_off_shows_in_the_exit_code(whole):
    assert 3 == whole[2].returncode, whole[2].stderr


def test_the_webs_own_log_finds_no_gap_broken(whole):
    served = whole[0]
    assert [] == judge(served.log_file, delay=0.1).breaches


def test_every_answered_page_is_in_the_archive_once(whole):
    assert [] == crawling.not_kept_once(whole[1])


def test_no_page_is_reported_twice(whole):
    assert [] == crawling.final_twice(whole[1])


def test_warcio_finds_nothing_wrong_with_the_archive(whole):
    files = sorted((whole[1] / "archive").glob("*.warc.gz"))
    check = subprocess.run(["warcio", "check", *files], capture_output=True, text=True, check=False, env=_path())
    assert (0, "") == (check.returncode, check.stdout)


def _path() -> dict[str, str]:
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def test_a_page_line_has_the_fields_that_were_promised(whole):
    done = next(page for page in crawling.pages(whole[1]) if page["outcome"] == "done")
    assert PAGE_FIELDS == [field for field in done if field not in OPTIONAL_PAGE_FIELDS]


def test_outcomes_are_written_by_their_names(whole):
    told = {page["outcome"] for page in crawling.pages(whole[1])}
    assert {"done", "redirect", "gone", "retry", "truncated", "duplicate", "robots"} == told


def test_an_answer_before_its_time_is_tried_again_and_then_done(whole):
    served, output, _ = whole
    busy = served.web.host_of(HostRole.BUSY)
    refused = {page["url"] for page in crawling.pages(output) if page["outcome"] == "retry" and busy in page["url"]}
    assert refused
    assert refused <= crawling.fetched(output)


def test_robots_txt_has_a_line_of_politeness_but_not_of_pages(whole):
    output = whole[1]
    told = crawling.lines(output / "politeness.jsonl")
    assert any(line["kind"] == "robots" for line in told)
    assert not any(page["url"].endswith("/robots.txt") for page in crawling.pages(output))


def test_every_request_the_web_saw_is_in_the_politeness_record(whole):
    served, output, _ = whole
    saw = sorted((request.host, request.path) for request in judge(served.log_file, delay=0.1).requests)
    told = sorted(crawling.host_and_path(line["url"]) for line in crawling.lines(output / "politeness.jsonl"))
    assert saw == told


def test_the_record_says_itself_that_no_gap_was_broken(whole):
    told = crawling.lines(whole[1] / "politeness.jsonl")
    assert [] == [line for line in told if line["gap"] is not None and line["gap"] < line["gap_required"]]


def test_the_crawl_leaves_a_report_and_its_settings(whole):
    output = whole[1]
    assert "<html" in (output / "report.html").read_text()
    assert "max_pages_per_host = 40" in (output / "outrider.toml").read_text()


def test_status_of_a_finished_crawl_adds_up(whole):
    found = crawling.outrider("status", whole[1], "--json")
    status = json.loads(found.stdout)
    assert STATUS_FIELDS == set(status)
    assert status["accepted"] == sum(status["urls"].values())
    assert "stopped" == status["state"]


def test_a_limit_of_pages_is_never_exceeded_and_the_rest_is_fetched_later(tmp_path):
    with crawling.web(tmp_path / "web", hosts=6, pages=60) as served:
        first = crawling.outrider(*crawling.on(served, tmp_path / "out", "--max-pages", "17"))
        assert 3 == first.returncode, first.stderr
        assert 17 == len([page for page in crawling.pages(tmp_path / "out") if page["status"] is not None])
        second = crawling.outrider("resume", tmp_path / "out", "--max-pages", "none")
        assert 0 == second.returncode, second.stderr
        assert "finished" == json.loads(crawling.outrider("status", tmp_path / "out", "--json").stdout)["state"]
        assert served.web.must_fetch() == crawling.fetched(tmp_path / "out")
        assert [] == crawling.final_twice(tmp_path / "out")
        assert [] == judge(served.log_file, delay=0.05).breaches


def test_a_limit_of_seconds_stops_in_time(tmp_path):
    with crawling.web(tmp_path / "web", hosts=3, pages=90) as served:
        ended = crawling.outrider(*crawling.on(served, tmp_path / "out", "--delay", "0.2", "--max-seconds", "1"))
        assert 3 == ended.returncode, ended.stderr
        # Three hosts at 0.2 s make 15 pages in a second, on a slow machine fewer; all 90 would need 6 s at least.
        assert len(crawling.pages(tmp_path / "out")) < 45


def test_depth_is_counted_in_links_from_a_seed(tmp_path):
    with crawling.web(tmp_path / "web", hosts=4, pages=60) as served:
        ended = crawling.outrider(*crawling.on(served, tmp_path / "out", "--max-depth", "1"))
        assert 0 == ended.returncode, ended.stderr
        assert {0, 1} == {page["depth"] for page in crawling.pages(tmp_path / "out")}


def test_without_warc_an_archive_is_not_written(tmp_path):
    with crawling.web(tmp_path / "web", hosts=2, pages=8) as served:
        ended = crawling.outrider(*crawling.on(served, tmp_path / "out", "--no-warc"))
        assert 0 == ended.returncode, ended.stderr
        assert not (tmp_path / "out" / "archive").exists()
        assert {None} == {page["warc"] for page in crawling.pages(tmp_path / "out")}


def test_the_first_interrupt_lets_requests_end_and_keeps_the_rest_for_later(tmp_path):
    output = tmp_path / "out"
    with crawling.web(tmp_path / "web", hosts=6, pages=90) as served:
        crawl = crawling.started(*crawling.on(served, output, "--delay", "0.2"))
        crawling.wait_for(lambda: _count(output) > 10)
        crawl.send_signal(signal.SIGINT)
        assert 4 == crawl.wait(60)
        assert "stopped" == json.loads(crawling.outrider("status", output, "--json").stdout)["state"]
        again = crawling.outrider("resume", output, "--delay", "0.05")
        assert 0 == again.returncode, again.stderr
        assert served.web.must_fetch() == crawling.fetched(output)
        verdict = judge(served.log_file, delay=0.05)
        assert ([], {}) == (verdict.breaches, verdict.asked_often())


def test_a_second_interrupt_breaks_off_what_is_in_flight_politely(tmp_path):
    output = tmp_path / "out"
    with crawling.web(tmp_path / "web", hosts=18, pages=180, quirks=True) as served:
        slow = served.web.host_of(HostRole.SLOW)
        settings = ["-o", str(output), "--hosts", str(served.hosts_file), "--delay", "0.3", "--delay-factor", "0"]
        crawl = crawling.started("crawl", served.web.url(slow), *settings)
        crawling.wait_for(lambda: _count(output) >= 1)
        crawl.send_signal(signal.SIGTERM)
        crawl.send_signal(signal.SIGTERM)
        assert 4 == crawl.wait(60)
        again = crawling.outrider("resume", output)
        assert 0 == again.returncode, again.stderr
        must = {url for url in served.web.must_fetch() if crawling.host_and_path(url)[0] == slow}
        assert must == crawling.fetched(output)
        assert [] == judge(served.log_file, delay=0.3).breaches


def test_a_running_crawl_shows_its_progress(tmp_path):
    # So deep a path would not fit into the address of a socket.
    output = tmp_path / ("deep" * 20) / ("deeper" * 20) / "out"
    with crawling.web(tmp_path / "web", hosts=4, pages=90) as served:
        crawl = crawling.started(*crawling.on(served, output, "--delay", "2"))
        try:
            crawling.wait_for(lambda: _count(output) > 5)
            found = crawling.outrider("status", output, "--json")
            status = json.loads(found.stdout)
            assert STATUS_FIELDS == set(status)
            assert "running" == status["state"]
            assert status["accepted"] == sum(status["urls"].values())
            assert status == status | {"held": 0, "in_transit": 0}
            assert 0o600 == (output / "control.sock").stat().st_mode & 0o777
            # The command adds what it reads in the directory.
            assert set(ask(str(output), "status")) == STATUS_FIELDS - {"catalogs", "uploads"}
        finally:
            crawl.send_signal(signal.SIGINT)
            crawl.wait(60)
        assert not (output / "control.sock").exists()


def test_python_crawls_too(tmp_path):
    with crawling.web(tmp_path / "web", hosts=3, pages=20) as served:
        result = outrider.crawl(
            served.web.seeds(), output=tmp_path / "out", hosts=str(served.hosts_file), delay=0.02, delay_factor=0
        )
        assert (0, 20) == (result.exit_code, result.statistics["answered"])
        assert served.web.must_fetch() == crawling.fetched(tmp_path / "out")


def test_new_seeds_are_added_to_a_crawl_that_was_finished(tmp_path):
    with crawling.web(tmp_path / "web", hosts=3, pages=24) as served:
        first, *others = served.web.seeds()
        common = ["-o", str(tmp_path / "out"), "--progress", "none"]
        settings = ["--hosts", str(served.hosts_file), "--delay", "0.02", "--delay-factor", "0"]
        crawling.outrider("crawl", first, *common, *settings)
        ended = crawling.outrider("crawl", *others, *common)
        assert 0 == ended.returncode, ended.stderr
        assert served.web.must_fetch() == crawling.fetched(tmp_path / "out")


def _count(output: Path) -> int:
    return _text(output / "pages.jsonl").count("\n")


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""
