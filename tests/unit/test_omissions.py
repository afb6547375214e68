"""Each reason for which a crawl left URLs out: its number in summary, log, report, JSON and status, and the command."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

import outrider
from fake_web import FakeWeb
from outrider.cli import main as cli
from outrider.cli.query_commands import SKIPPED_REASONS
from outrider.crawl.output import omissions
from outrider.crawl.output.omissions import omission_counts, rows_of
from outrider.crawl.output.summary import Totals, errors_text, summary_lines
from outrider.crawl.questions import skipped_links
from outrider.crawl.setup.options import CrawlOptions
from outrider.errors import SettingsError

HOME = "http://one.test/"
PAGES = {
    "/": "<title>home</title><a href=/a>a</a> <a href=/closed/1>1</a> <a href=/closed/2>2</a> <a href=/2090/01/>c</a>"
    "<a href=http://other.test/>o</a> <a rel=nofollow href=/no>n</a> <a href=/lost>l</a> <a href=/" + "x" * 9_000 + ">",
    "/a": "<title>a page</title>of its own <a href=http://other.test/>again</a>",
    "/robots.txt": "User-agent: *\nDisallow: /closed\n",
    "/tagged": "<title>closed by its head</title>of its own <a href=/under>u</a> <a href=http://other.test/>o</a>",
}


class Web(FakeWeb):
    pages = PAGES

    def page(self, url, path):
        status, body, _ = super().page(url, path)
        kind = "text/plain" if path == "/robots.txt" else "text/html"
        more = [("X-Robots-Tag", "nofollow")] if path == "/tagged" else []
        return status, body or "nothing", [("Content-Type", kind), *more]


def test_a_parked_mirror_is_described():
    (row,) = rows_of({"possible_mirror": 2}, "out")
    assert (True, "outrider urls out --state parked --reason possible_mirror") == ("2 URLs" in row.text, row.command)
    assert ("mirror" in row.text, "trap" in row.text) == (True, False)


@pytest.fixture(scope="module")
def crawled(tmp_path_factory):
    """A crawl of the web above: its directory, its result, and its output."""
    place = tmp_path_factory.mktemp("left-out")
    (place / "hosts").write_text("127.0.0.1 one.test\n127.0.0.2 two.test other.test\n")
    (place / "seeds").write_text(f"{HOME}\nno seed\n{HOME}{'y' * 9_000}\nhttp://two.test/missing\n")
    options = {"hosts": str(place / "hosts"), "downloader": Web, "delay": 0, "delay_factor": 0, "sitemaps": False}
    result = outrider.crawl([f"@{place}/seeds"], output=place / "out", **options)
    return place / "out", result


COUNTS = {"robots": 2, "trap_date": 1, "scope": 2, "nofollow": 1, "over_limit": 1, "bad_seeds": 2}


def test_each_reason_has_its_number_in_the_result(crawled):
    assert COUNTS == crawled[1].statistics["left_out"]


def test_status_of_a_stopped_crawl_has_the_same_numbers(crawled, capsys):
    assert 0 == cli.run(["status", str(crawled[0]), "--json"])
    assert COUNTS == json.loads(capsys.readouterr().out)["left_out"]


def test_crawl_log_and_report_have_each_reason_with_its_command(crawled):
    log, report = (crawled[0] / "crawl.log").read_text(), (crawled[0] / "report.html").read_text()
    for row in rows_of(COUNTS, crawled[0].name):
        assert (True, True) == (f"left_out reason={row.reason} count={row.count}" in log, row.command in report)


def test_the_report_has_no_path_of_the_machine(crawled):
    report = (crawled[0] / "report.html").read_text()
    assert (False, True, True) == (
        str(crawled[0].parent) in report,
        "@seeds" in report,
        "hosts = &quot;hosts&quot;" in report,
    )


@pytest.mark.parametrize("reason", ["robots", "trap_date", "scope", "nofollow", "over_limit"])
def test_the_command_of_a_reason_lists_the_urls_left_out(crawled, reason, capsys):
    (row,) = rows_of({reason: COUNTS[reason]}, str(crawled[0]))
    program, *words = shlex.split(row.command)
    assert ("outrider", 0) == (program, cli.run([*words, "--json"]))
    listed = {json.loads(line)["url"] for line in capsys.readouterr().out.splitlines()}
    expected = {
        "robots": {f"{HOME}closed/1", f"{HOME}closed/2"},
        "trap_date": {f"{HOME}2090/01/"},
        "scope": {"http://other.test/"},  # two pages have this link
        "nofollow": {f"{HOME}no"},
        "over_limit": {f"{HOME}{'x' * 9_000}"},
    }
    assert expected[reason] == listed


def test_links_of_a_page_with_a_nofollow_header_are_listed_despite_a_damaged_line(tmp_path, capsys):
    (tmp_path / "hosts").write_text("127.0.0.1 one.test\n")
    options = {"hosts": str(tmp_path / "hosts"), "downloader": Web, "delay": 0, "delay_factor": 0, "sitemaps": False}
    result = outrider.crawl([f"{HOME}tagged"], output=tmp_path / "out", **options)
    assert {"nofollow": 2} == result.statistics["left_out"]
    pages = tmp_path / "out" / "pages.jsonl"
    pages.write_bytes(b'{"url": \n' + pages.read_bytes())
    assert 0 == cli.run(["skipped", str(tmp_path / "out"), "--json"])
    listed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {f"{HOME}under": "nofollow", "http://other.test/": "nofollow"} == {
        one["url"]: one["reason"] for one in listed
    }


def test_a_refusal_of_unknown_uses_needs_the_uses():
    with pytest.raises(SettingsError, match="use is missing: name the uses of your crawl with --use"):
        CrawlOptions(use_unknown="refuse")


USE_PAGES = {
    "/": "<title>home</title><a href=/closed>c</a> <a href=/answered>a</a>",
    "/answered": "<title>refused</title><meta name=robots content=noai><a href=/1>1</a> <a href=/2>2</a>",
    "/robots.txt": "User-agent: *\nContent-Usage: /closed train-ai=n\n",
}


class UseWeb(Web):
    pages = USE_PAGES


def test_pages_that_use_refused_and_their_links_have_rows_of_their_own(tmp_path, capsys):
    """They are neither counted together nor as broken links."""
    (tmp_path / "hosts").write_text("127.0.0.1 one.test\n")
    options = {"hosts": str(tmp_path / "hosts"), "downloader": UseWeb, "delay": 0, "delay_factor": 0, "sitemaps": False}
    result = outrider.crawl([HOME], output=tmp_path / "out", use=["train-ai"], **options)
    counts = {"use": 1, "use_links": 2}
    assert counts == result.statistics["left_out"]
    assert "No link is broken." in (tmp_path / "out" / "report.html").read_text()
    listed = []
    for row in rows_of(counts, str(tmp_path / "out")):
        assert 0 == cli.run([*shlex.split(row.command)[1:], "--json"])
        listed += [json.loads(line)["url"] for line in capsys.readouterr().out.splitlines()]
    assert [f"{HOME}closed", f"{HOME}answered"] == listed


def test_bad_seeds_are_in_the_log_that_the_command_reads(crawled):
    (row,) = rows_of({"bad_seeds": 2}, str(crawled[0]))
    _, word, path = shlex.split(row.command)
    found = [line for line in Path(path).read_text().splitlines() if word in line and "reason=" not in line]
    assert (2, True, True) == (len(found), "no seed" in found[0], "8,192 bytes" in found[1])


def test_a_crawl_without_an_archive_says_why_it_lists_no_links(tmp_path, capsys):
    (tmp_path / "hosts").write_text("127.0.0.1 one.test\n")
    options = {"hosts": str(tmp_path / "hosts"), "downloader": Web, "delay": 0, "delay_factor": 0, "warc": False}
    outrider.crawl([HOME], output=tmp_path / "out", sitemaps=False, max_pages=1, **options)
    assert 2 == cli.run(["skipped", str(tmp_path / "out")])
    assert "--no-warc" in capsys.readouterr().err


def test_parked_urls_are_not_counted_as_left_and_have_their_own_text():
    lines = summary_lines(Totals(left=0, parked=7, left_out=tuple(rows_of({"trap_date": 7}, "out"))), ())
    told = {line.split()[0]: line for line in lines if not line.startswith(" ")}
    assert ("0 URLs" in told["left"], "7 URLs" in told["parked"]) == (False, True)
    assert "left        0 URLs not fetched" in lines
    assert any("outrider urls out --state parked --reason trap_date" in line for line in lines)


def test_statuses_have_a_row_and_broken_links_count_as_errors():
    statuses = {"200": 2_477, "404": 323, "403": 2}
    lines = summary_lines(Totals(statuses=statuses, broken={"404 Not Found": 323, "403 Forbidden": 2}), ())
    assert "http        200 2,477 · 404 323 · 403 2" in lines
    (errors,) = [line for line in lines if line.startswith("errors")]
    assert (False, True) == ("none" in errors, "325 broken links (404 Not Found 323, 403 Forbidden 2)" in errors)


def test_errors_are_described():
    assert "connect_refused 4 (connection refused), http_503 1 (the server answered 503 Service Unavailable)" == (
        errors_text({"connect_refused": 4, "http_503": 1}, {})
    )
    assert "none" == errors_text({}, {})


def test_a_reason_without_urls_has_no_row():
    assert {} == omission_counts({}, {}, {"trap": 3}, 0)


def test_a_directory_with_a_space_is_quoted_in_each_command():
    rows = rows_of(COUNTS, "/my crawl")
    assert all("'/my crawl'" in row.command for row in rows)


def test_the_command_accepts_each_reason_for_which_a_link_is_skipped():
    assert {*omissions._LINKS} == {*SKIPPED_REASONS}
    assert {*skipped_links.REASONS} == {*SKIPPED_REASONS}
