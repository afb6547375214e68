"""The report: its counts, its drawings, and that no text from the web leaves its place."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from urllib.parse import urlsplit

import pytest

from outrider.crawl.output import report
from outrider.crawl.output.report import ReportData, collect, render
from outrider.crawl.output.summary import HostGaps, Totals, summary_lines, visible

BEGUN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def at(seconds: float) -> str:
    return (BEGUN + timedelta(seconds=seconds)).isoformat(timespec="microseconds").replace("+00:00", "Z")


def page(host: str = "a.test", seconds: float = 0.0, **fields: object) -> dict[str, object]:
    record = {
        "url": f"http://{host}/x",
        "outcome": "done",
        "status": 200,
        "error": None,
        "fetched_at": at(seconds),
        "bytes": 10,
    }
    return record | fields


def request(host: str, start: float, *, gap: float | None = None, required: float | None = None) -> dict[str, object]:
    return {
        "host": host,
        "kind": "page",
        "started_at": at(start),
        "ended_at": at(start + 0.01),
        "gap": gap,
        "gap_required": required,
    }


def test_answered_pages_are_counted_per_host_with_their_bytes():
    data = collect([page("a.test"), page("a.test", bytes=5), page("b.test")])
    assert [("a.test", 2, 15), ("b.test", 1, 10)] == [(row.host, row.pages, row.bytes) for row in data.hosts]


def test_an_attempt_without_an_answer_is_not_a_page():
    data = collect([page(), page(status=None, outcome="error", error="timeout")])
    assert (2, 1, {"timeout": 1}) == (data.totals.attempts, data.totals.pages, data.totals.errors)


def test_a_robots_txt_that_failed_counts_as_an_error_of_its_host():
    failed = {**request("a.test", 0.0), "kind": "robots", "error": "connect_refused"}
    data = collect([], [failed, {**request("b.test", 0.0), "kind": "page", "error": "reset"}])
    assert {"connect_refused": 1} == data.totals.errors
    assert [("a.test", 1), ("b.test", 0)] == [(row.host, row.errors) for row in data.hosts]


def test_attempts_with_the_outcome_duplicate_are_counted_as_duplicates():
    assert 1 == collect([page(), page(outcome="duplicate")]).totals.duplicates


def test_the_smallest_gap_is_shown_with_the_gap_required_before_that_request():
    lines = [
        request("a.test", 0),
        request("a.test", 1, gap=0.9, required=0.2),
        request("a.test", 2, gap=0.5, required=0.4),
    ]
    gaps = collect([page()], lines).hosts[0].gaps
    assert (3, 0.5, 0.4, 0) == (gaps.requests, gaps.gap_seconds_min, gaps.gap_seconds_required, gaps.breaches)


def test_the_smallest_margin_may_belong_to_another_request_than_the_smallest_gap():
    lines = [request("a.test", 0, gap=0.5, required=0.2), request("a.test", 2, gap=3.0, required=3.5)]
    gaps = collect([], lines).hosts[0].gaps
    assert (0.5, -0.5, 1) == (gaps.gap_seconds_min, gaps.room_seconds_min, gaps.breaches)


def test_a_rounding_difference_of_a_gap_is_not_a_breach():
    assert 0 == collect([], [request("a.test", 0, gap=0.2, required=0.200_000_4)]).hosts[0].gaps.breaches


def test_fields_of_a_wrong_type_count_as_absent():
    odd = {"url": 7, "outcome": None, "status": "200", "bytes": "many", "fetched_at": "yesterday"}
    data = collect([odd], [{"host": None, "started_at": 5, "gap": "x"}])
    assert (1, 0, 0) == (data.totals.attempts, data.totals.pages, data.totals.bytes)


def test_joined_buckets_keep_the_number_of_pages():
    data = collect([page(seconds=row * 7.0) for row in range(500)])
    assert 500 == sum(data.buckets)
    assert len(data.buckets) <= report.BUCKETS_MAX


def test_hosts_beyond_the_limit_are_summed_in_one_row(monkeypatch):
    monkeypatch.setattr(report, "HOSTS_TRACKED_MAX", 3)
    data = collect([page(f"h{row}.test") for row in range(10)])
    assert ("(other hosts)", 7) == (data.hosts[-1].host, data.hosts[-1].pages)


def test_the_page_names_two_hundred_hosts_and_the_number_of_all_further_hosts():
    text = render(collect([page(f"h{row:04}.test") for row in range(250)]))
    assert 200 == len(re.findall(r">h\d{4}\.test<", text))
    assert "and 50 more hosts" in text


def test_the_timeline_draws_a_bounded_number_of_requests_and_says_so():
    lines = [request("a.test", row * 0.02, gap=0.01, required=0.0) for row in range(1_000)]
    data = collect([page()], lines)
    assert (400, 600) == (len(data.timelines[0].visits), data.timelines[0].left_out)
    assert "600 later requests" in render(data)


def test_a_request_that_was_too_early_is_drawn_as_such():
    kept = render(collect([page()], [request("a.test", 0), request("a.test", 1, gap=0.99, required=0.2)]))
    broken = render(collect([page()], [request("a.test", 0), request("a.test", 0.1, gap=0.09, required=0.2)]))
    assert (False, True) == ('<path class="early"' in kept, '<path class="early"' in broken)


class _Structure(HTMLParser):
    """Returns the elements of a page and every address that it names."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.addresses: list[str] = []
        self.handlers: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.add(tag)
        self.addresses += [value for name, value in attrs if name in {"href", "src", "data", "action", "xlink:href"}]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]


HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\x1b[2J\u202e"


def hostile_report() -> str:
    pages = [page(outcome=HOSTILE, error=HOSTILE, url=f"http://{HOSTILE}/")]
    lines = [request(HOSTILE, 0), request(HOSTILE, 1, gap=1.0, required=0.2)]
    told = dict.fromkeys(("settings", "title", "output", "ending"), HOSTILE)
    return render(collect(pages, lines, seeds=[HOSTILE], **told))


def test_no_text_from_the_web_becomes_markup():
    structure = _Structure(hostile_report())
    assert set() == structure.elements & {"script", "img", "link", "iframe", "object", "base"}
    assert ([], []) == ([one for one in structure.addresses if one[:1] != "#"], structure.handlers)


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "data:text/html,x",
        "ftp://a.test/",
        "http://a.test@b.test/",
        "http:///x",
        "http://a.test/\u202e",
        "//a.test/x",
    ],
)
def test_an_address_that_is_not_a_plain_web_address_becomes_no_link(url: str):
    text = render(collect([page(url=url, outcome="gone", status=404, referrer=url)], seeds=[url]))
    assert [] == [one for one in _Structure(text).addresses if one[:1] != "#"]


def test_urls_of_the_web_are_links_that_send_no_referrer():
    url = "https://a.test/x?y='&z=%22"
    text = render(
        collect([page(url=url, outcome="gone", status=404, referrer="http://b.test/")], seeds=["http://c.test/"])
    )
    found = [one for one in _Structure(text).addresses if one[:1] != "#"]
    assert [url, "http://b.test/", "http://c.test/"] == found
    assert len(found) == text.count('rel="noreferrer"')


def test_the_sections_are_in_the_order_of_the_table_of_contents():
    pages = [page(), page(url="http://a.test/lost", outcome="gone", status=404)]
    text = render(collect(pages, [request("a.test", 0)], seeds=["http://a.test/"]))
    order = ["overview", "hosts", "statuses", "politeness", "broken", "settings"]
    assert order == re.findall(r'<section id="(\w+)"', text)
    assert order == re.findall(r'<a href="#(\w+)"', text)


def gone(path: str, status: int = 404) -> dict[str, object]:
    return page(url=f"http://a.test/{path}", outcome="gone", status=status, referrer="http://a.test/")


def test_twenty_broken_links_are_shown_and_further_ones_folded_by_status():
    pages = [gone(f"docs/{row:03}.html") for row in range(90)] + [gone("old/one", 410), gone("api/v1/x", 404)]
    text = render(collect(pages)).split('<section id="broken">')[1].split("</section>")[0]
    unfolded, *folds = text.split("<details>")
    assert (20, 1) == (unfolded.count('<td class="name">'), len(folds))
    assert "a.test/old/*" in unfolded  # a group of one link is not lost below a group of ninety
    assert "a.test/docs/*.html" in unfolded
    assert ("404 Not Found: 72 more URLs" in folds[0], 72) == (True, folds[0].count('<td class="name">'))


def test_broken_links_beyond_the_folds_are_counted(monkeypatch):
    monkeypatch.setattr(report, "BROKEN_FOLDED_MAX", 5)
    text = render(collect([gone(f"{row}") for row in range(30)]))
    assert "and 5 more URLs" in text.split('<section id="broken">')[1]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://a.test/docs/one.html?x=1", "a.test/docs/*.html"),
        ("http://a.test/shop/v2/item", "a.test/shop/*/*"),
        ("http://a.test/", "a.test/"),
        ("http://a.test", "a.test/"),
        ("http://[::1/x", ""),
        ("http://a.test/" + "x/" * 50, "a.test" + "/x" * 7 + "/*"),
    ],
    ids=["file", "digits", "root", "host", "malformed", "long"],
)
def test_urls_of_one_kind_have_one_pattern(url: str, expected: str):
    assert expected == report._pattern(url)


def test_the_tile_and_the_axis_show_the_same_time():
    data = collect([page(seconds=30.0), page(seconds=55.0)], [request("a.test", 0)], seconds=61.5)
    text = render(data)
    assert ("<dt>Time</dt><dd>61.5 s" in text, 61.5) == (True, data.elapsed_seconds)
    assert text.count(">61.5 s</text>") == 4  # two figures, each for large and small screens


def test_a_crawl_that_was_resumed_later_shows_its_time_with_the_pause():
    text = render(collect([page(seconds=0.0), page(seconds=86_400.0)], seconds=30.0))
    assert "<dt>Time</dt><dd>24 h 00 min" in text
    assert "while it ran, for 30.0 s" in text


def test_the_first_sentences_show_pages_speed_failures_and_whether_pauses_were_kept():
    lines = [request("a.test", 0), request("a.test", 1, gap=0.99, required=0.2)]
    pages = [page(), page(error="timeout", status=None, outcome="error", url="http://a.test/y")]
    lead = render(collect(pages, lines, seconds=2.0)).split('<p class="lead">')[1].split("</p>")[0]
    for fact in (
        "1 page",
        "1 host",
        "2.000 s",
        "0.5 pages a second",
        "1 attempt failed",
        "1 link is broken",
        "was kept",
    ):
        assert fact in lead
    early = render(collect(pages, [lines[0], request("a.test", 0.1, gap=0.09, required=0.2)]))
    assert "1 request started before" in early.split('<p class="lead">')[1].split("</p>")[0]


def test_control_characters_from_the_web_are_escaped():
    text = hostile_report()
    assert not [character for character in text if character < " " and character != "\n"]
    assert "\u202e" not in text
    assert "\\x1b[2J\\u202e" in text


def test_the_page_forbids_itself_scripts_and_all_external_content():
    assert "content=\"default-src 'none'; style-src 'unsafe-inline'\"" in render(ReportData(Totals()))


def test_a_crawl_without_a_page_has_a_report_too():
    assert "No page was answered." in render(collect([]))


def test_the_summary_says_when_every_gap_was_kept():
    lines = summary_lines(Totals(pages=2, hosts=1), [HostGaps("a.test", 2, 0.21, 0.2, 0.01, 0)])
    assert any(line.startswith("politeness  no delay violated on 1 host") for line in lines)


def test_the_summary_warns_when_a_gap_was_broken():
    lines = summary_lines(Totals(), [HostGaps("a.test", 2, 0.1, 0.2, -0.1, 1)])
    assert any(line.startswith("politeness  1 delay VIOLATED on 1 host") for line in lines)


def test_the_summary_names_the_hosts_with_the_smallest_margin_and_counts_the_rest():
    hosts = [HostGaps(f"h{row}.test", 2, 1.0, 0.2, row / 10, 0) for row in range(9)]
    lines = summary_lines(Totals(), hosts)
    assert ["h0.test", "h1.test", "h2.test", "h3.test", "h4.test"] == re.findall(r"h\d\.test", "\n".join(lines))
    assert any("and 4 more hosts" in line for line in lines)


def test_the_summary_names_the_option_for_a_blocked_address():
    lines = summary_lines(Totals(errors={"blocked_address": 1, "reset": 2}), [])
    assert [True] == ["--allow-address" in line for line in lines if line.startswith("hint")]


def test_the_summary_contains_no_control_character():
    totals = Totals(errors={"x\x1b[31m\r\n": 1}, outcomes={"\x07": 2}, output="/tmp/\x9b2J", ending="\u202e")
    text = "".join(summary_lines(totals, [HostGaps("a\x00.test", 2, 1.0, 0.2, 0.8, 0)]))
    assert text == visible(text)


def test_visible_leaves_letters_of_all_scripts_alone():
    assert "Přívoz 渡し船" == visible("Přívoz 渡し船")


def test_the_time_of_a_crawl_is_that_of_its_runs():
    lines = [
        {"url": "http://a.com/", "outcome": "done", "status": 200, "fetched_at": f"2026-01-0{day}T00:00:00Z"}
        for day in (1, 2)
    ]
    assert (86_400.0, 3.0) == (
        collect(lines).totals.seconds,
        collect(lines, seconds=3.0, errors={"timeout": 1}).totals.seconds,
    )


def test_a_reader_finds_broken_links_closed_pages_slow_hosts_seeds_and_settings():
    def page(path, outcome, **more):
        return {"url": f"http://a.test/{path}", "outcome": outcome, "referrer": "http://a.test/", "attempt": 1, **more}

    pages = [
        page("", "done", status=200, referrer=None),
        page("lost", "gone", status=404),
        page("dead", "error", status=None, error="timeout", attempt=4),
        page("closed", "robots", status=None),
        page("closed2", "robots", status=None),
    ]
    requests = [
        {"host": host, "seconds": took, "started_at": "2026-01-01T00:00:00Z", "ended_at": "2026-01-01T00:00:01Z"}
        for host, took in (("a.test", 0.1), ("slow.test", 2.0), ("slow.test", 4.0))
    ]
    data = collect(pages, requests, settings="delay = 1.0", seeds=["http://a.test/"], title="a.test")
    assert [("http://a.test/dead", "timeout", 4), ("http://a.test/lost", "404 Not Found", 1)] == [
        (one.url, one.reason, one.attempts) for one in data.broken
    ]
    assert [("a.test", 2, "http://a.test/closed")] == [(one.host, one.pages, one.example) for one in data.closed]
    assert ("slow.test", 2, 3.0, 4.0) == tuple(
        getattr(data.slowest[0], name) for name in ("host", "requests", "seconds_mean", "seconds_max")
    )
    text = render(data)
    assert "2 URLs returned no page: 1 × 404 Not Found, 1 × timeout." in text
    home = '<a href="http://a.test/" rel="noreferrer">http://a.test/</a>'
    assert f'<td class="text">{home}<small>2 broken links there</small></td><td>4</td>' in text
    for word in ("Broken links", "Closed by robots.txt", "Slowest hosts", "Seeds", "delay = 1.0", "<title>a.test"):
        assert word in text


def test_secrets_of_headers_are_not_in_the_report():
    from outrider.crawl.setup.options import CrawlOptions
    from outrider.crawl.start import _shown, _title

    options = CrawlOptions(header="X-Key=secret1", host=[{"name": "a.test", "header": "X-Own=secret2"}])
    shown = _shown(options, ("http://a.test/",))
    assert ("secret" in shown, "X-Key=hidden" in shown, "X-Own=hidden" in shown) == (False, True, True)
    assert ["a.test and 1 more host", "mine"] == [
        _title(CrawlOptions(name=name), ("http://a.test/x", "https://b.test/", "@/x")) for name in (None, "mine")
    ]
    assert "seeds of mine.txt" == _title(CrawlOptions(), ("@/lists/mine.txt",))


def test_a_url_that_was_fetched_in_the_end_is_not_a_broken_link():
    pages = [{"url": "http://a.test/", "outcome": outcome, "status": 404} for outcome in ("gone", "done")]
    assert ((), 1) == (collect(pages).broken, len(collect(pages[:1]).broken))


@pytest.mark.parametrize(
    "url",
    [
        *(
            "http://A.test:80/x?y=http://b.test/",
            "https://a.test",
            "http://a.test?q=1/2",
            "http://[::1]:8/x/y",
            "http://[::1/x/y",
        ),
        *(
            "//a.test/x/y/z",
            "/a/b/c/d/e/f/g",
            "a.test/b/c/d/e",
            "",
            "http:///////",
            "dns:a.test",
            "https://u:p@a.test/x/y",
        ),
    ],
)
def test_the_host_of_a_record_is_read_from_its_whole_url(url: str):
    try:
        expected = urlsplit(url).hostname or ""
    except ValueError:
        expected = ""
    assert expected == report._host_of(url)


def test_several_requests_at_once_break_no_rule_and_each_delay_is_drawn_after_its_end():
    """The third request waits after the first one, which ended while the second was open."""
    first, second = request("a.test", 0), {**request("a.test", 1.0, gap=0.99, required=0.5), "ended_at": at(9)}
    third = request("a.test", 2.0, gap=1.99, required=0.75)
    told = collect([page()], [first, {**second, "capacity": 2}, {**third, "capacity": 2}])
    assert [0] == [one.breaches for one in told.politeness]
    visits = told.timelines[0].visits
    assert [(False, 0.76), (False, None), (False, None)] == [
        (one.early, one.rested_until and round(one.rested_until, 6)) for one in visits
    ]


def test_the_summary_reports_errors_as_none_only_without_broken_links():
    told = "\n".join(summary_lines(collect((), errors={}, gone=12).totals, ()))
    assert ("12 broken links" in told, "errors      none" in told) == (True, False)
    assert "errors      none" in "\n".join(summary_lines(collect((), errors={}).totals, ()))
