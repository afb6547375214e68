"""The words of a crawl: log, progress, rates, status. No text from the web acts on a terminal."""

from __future__ import annotations

import io
import json

import pytest

from outrider.crawl import start
from outrider.crawl.local_run import CrawlResult
from outrider.crawl.output.journal import Journal
from outrider.crawl.output.progress import BarProgress, LogProgress, NoProgress, eta_text, progress_line, progress_of
from outrider.crawl.output.rates import RateMeter, Rates, eta_seconds, status_fields
from outrider.crawl.output.summary import network_lines
from outrider.crawl.output.terminal import drawable, safe, say
from outrider.crawl.questions.status import status_lines
from outrider.crawl.setup.options import CrawlOptions
from outrider.errors import StoreInUseError
from outrider.storage.files import Directory

AT = 1_767_225_600_000_000
EVIL = "\x1b]52;c;eA==\x07\x1b[2J\u202egpj\u2028\x9b"
STATISTICS = {
    "accepted": 12,
    "urls": {"queued": 3, "leased": 1, "waiting": 2, "parked": 1, "done": 4, "gone": 1},
    "held": 0,
    "in_transit": 0,
    "errands": 0,
    "hosts": {"known": 3, "ready": 1, "resting": 1, "blocked": 0, "empty": 1},
    "answered": 5,
    "bytes": 12_345,
    "duplicates": 1,
    "errors": {"http_503": 2},
    "log": {"full": 0},
    "merges_wait": False,
}


def status(**more):
    return status_fields(STATISTICS, Rates(1.5, 1.0, 2.0), "running", 4.0) | more


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_log_line_contains_no_control_character(tmp_path, form):
    with Journal(tmp_path / "log", form=form, clock=lambda: AT) as journal:
        journal.note("robots", url=f"http://a.test/{EVIL}", text=EVIL + "\n\r", status=200)
    text = (tmp_path / "log").read_text()
    assert (1, []) == (text.count("\n"), [c for c in text.rstrip("\n") if not c.isprintable()])


def test_a_log_line_as_text():
    assert '2026-01-01T00:00:00.000Z retry url=http://a.test/ seconds=0.250 text="it said \\"no\\""\n' == logged("text")


def test_a_log_line_as_json():
    expected = {"at": "2026-01-01T00:00:00.000Z", "event": "retry", "url": "http://a.test/", "seconds": 0.25}
    assert expected | {"text": 'it said "no"'} == json.loads(logged("json"))


def logged(form: str) -> str:
    import tempfile

    with tempfile.NamedTemporaryFile("r") as file:
        with Journal(file.name, form=form, clock=lambda: AT) as journal:
            journal.note("retry", url="http://a.test/", seconds=0.25, status=None, text='it said "no"')
        return file.read()


def test_an_unwritable_log_does_not_stop_the_crawl(tmp_path):
    with Journal(tmp_path / "no" / "log", form="text", clock=lambda: AT) as journal:
        journal.note("open")


def test_safe_text_cannot_act_on_a_terminal():
    assert safe(EVIL).isprintable()


def test_safe_text_is_bounded():
    assert (10, "…") == (len(safe("x" * 100, 10)), safe("x" * 100, 10)[-1])


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return 2


@pytest.mark.parametrize(
    ("environment", "expected"),
    [({"TERM": "xterm"}, True), ({"TERM": "dumb"}, False), ({"TERM": "xterm", "NO_COLOR": "1"}, False)],
)
def test_a_bar_is_drawn_only_on_a_suitable_terminal(environment, expected):
    assert expected == drawable(Terminal(), environment)


def test_a_pipe_gets_lines_instead_of_a_bar():
    assert isinstance(progress_of("auto", io.StringIO(), "x"), LogProgress)


def test_a_closed_reader_does_not_stop_the_crawl():
    gone = io.StringIO()
    gone.close()
    say("hello", gone)


def test_the_progress_line_shows_rate_hosts_bytes_errors_and_the_time_left():
    line = progress_line(status(), 3, 61.0)
    assert (
        "61 s: 5 pages (1.5/s), 5 waiting, hosts 1 ready, 1 in delay, 3 in flight, 12.3 kB, 2 errors, about 4 s left"
        == line
    )


def test_lines_become_rarer_in_a_long_crawl():
    talk = io.StringIO()
    progress = LogProgress(talk)
    for second in range(1, 601):
        progress.show(status(), 0, float(second))
    assert 40 <= talk.getvalue().count("\n") <= 80


def test_a_bar_escapes_names_from_the_web():
    talk = Terminal()
    bar = BarProgress(talk, f"[red]{EVIL}")
    bar.show(status(), 1, 2.0)
    bar.say(f"[bold]{EVIL}")
    bar.close()
    assert ("]52;c;" in talk.getvalue(), "\x1b]52" in talk.getvalue(), "[bold]" in talk.getvalue()) == (
        True,
        False,
        True,
    )


def test_without_progress_the_necessary_messages_are_still_printed():
    talk = io.StringIO()
    progress = NoProgress(talk)
    progress.show(status(), 1, 2.0)
    progress.say("the disk is full")
    assert "the disk is full\n" == talk.getvalue()


def test_the_rate_now_is_that_of_the_last_ten_seconds():
    pace = RateMeter(0.0)
    for second in range(1, 101):
        pace.add(float(second), 10 * min(second, 50))
    assert Rates(now=0.0, average=5.0, peak=10.0) == pace.rates(100.0)


def test_a_resumed_crawl_does_not_count_the_pages_of_earlier_runs():
    pace = RateMeter(0.0, pages=1_000)
    pace.add(10.0, 1_010)
    assert 1.0 == pace.rates(10.0).average


def test_the_time_left_is_the_known_work_divided_by_the_rate():
    assert 3.0 == eta_seconds(STATISTICS, Rates(2.0, 1.0, 2.0), None)


def test_the_time_left_ends_at_the_limit():
    assert 0.5 == eta_seconds(STATISTICS, Rates(2.0, 1.0, 2.0), 6)


def test_without_a_rate_no_time_left_is_shown():
    assert None is eta_seconds(STATISTICS, Rates(), None)


def test_the_time_left_includes_the_longest_wait():
    assert 3_600.0 == eta_seconds(STATISTICS, Rates(2.0, 1.0, 2.0), None, 3_600.0)
    assert 3_600.0 == eta_seconds(STATISTICS, Rates(), None, 3_600.0)
    assert 0.0 == eta_seconds(STATISTICS, Rates(), 5, 3_600.0)


@pytest.mark.parametrize(
    ("eta", "words"),
    [
        *((None, ""), (0.5, "nearly done"), (119, "about 119 s left"), (3_480, "about 58 min left")),
        *((36_000, "about 10 h left"), (864_000, "about 10 days left")),
    ],
)
def test_the_time_left_is_shown_in_units_that_people_use(eta, words):
    assert words == eta_text(eta)


def test_status_for_people_names_every_state():
    text = "\n".join(status_lines(status()))
    assert all(
        name in text for name in ("running", "queued", "leased", "waiting", "parked", "done", "gone", "http_503 2")
    )


def closing_lines(output, code, **changed):
    network = {"names": 4, "names_waited": 1, "names_seconds": 0.5, "requests": 3, "kept": 2}
    result = CrawlResult(code, "it ended", str(output), {**STATISTICS, "network": network, **changed})
    return start.conclude(CrawlOptions(output=str(output)), result)


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(
    ("full", "merges_wait", "words"),
    [(0, False, ""), (1, True, "full: new URLs and pages wait"), (0, True, "too little room to merge files")],
)
def test_too_little_room_on_disk_is_said_in_the_status_and_at_the_end(
    tmp_path, monkeypatch, large, full, merges_wait, words
):
    monkeypatch.setattr(start, "REPORT_BYTES_MAX", -1 if large else start.REPORT_BYTES_MAX)
    (tmp_path / "pages.jsonl").touch()
    told = {"log": {"full": full}, "merges_wait": merges_wait}
    now = status_lines(status_fields({**STATISTICS, **told}, Rates(), "running", None), str(tmp_path))
    for lines in (now, closing_lines(tmp_path, 0, **told)):
        found = [line for line in lines if line.startswith("disk ")]
        assert bool(words) == bool(found)
        assert all(words in line and line.endswith(f"make room on the file system of {tmp_path}") for line in found)


@pytest.mark.parametrize(("code", "expected"), [(0, ["left        0 URLs not fetched"]), (3, [])])
def test_a_crawl_that_ends_at_a_limit_does_not_say_that_no_work_is_left(tmp_path, code, expected):
    lines = closing_lines(tmp_path, code, urls={"queued": 0, "leased": 0, "waiting": 0, "parked": 7})
    told = "waited for 25.0 % of 4 DNS look-ups, 0.500 s in total; 66.7 % of 3 requests reused a connection"
    assert f"network     {told}" in lines
    assert expected == [line for line in lines if line.startswith("left ")]


def test_the_summary_of_one_request_uses_the_singular():
    one = {"names": 1, "names_waited": 0, "names_seconds": 0.0, "requests": 1, "kept": 0}
    told = "waited for 0.0 % of 1 DNS look-up; 0.0 % of 1 request reused a connection"
    assert [f"network     {told}"] == network_lines(one)
    nothing = {**one, "names": 0, "requests": 0}
    assert ["network     0.0 % of 0 requests reused a connection"] == network_lines(nothing)


def test_progress_names_the_cause_while_no_answer_has_arrived():
    statistics = {**STATISTICS, "errors": {"reset": 1, "connect_refused": 2}}
    lines = [
        progress_line(status_fields({**statistics, "answered": answered}, Rates(), "running", None), 0, 1.0)
        for answered in (0, 1)
    ]
    assert [True, False] == ["3 errors (connection refused)" in line for line in lines]


def test_the_time_left_is_at_least_that_of_the_slowest_host():
    statistics = {**STATISTICS, "urls": {**STATISTICS["urls"], "queued": 100}}
    left = [eta_seconds(statistics, Rates(10.0, 10.0, 10.0), most, 0.0, 240.0) for most in (None, 15)]
    assert [240.0, 1.0] == left


def test_errors_are_failed_attempts_in_every_count():
    statistics = {**STATISTICS, "errors": {"http_503": 2, "robots": 7}}
    found = status_fields(statistics, Rates(), "running", None)
    assert {"http_503": 2} == found["errors"]
    assert "2 errors" in progress_line(found, 0, 1.0)
    assert any(line.startswith("errors      http_503 2") for line in status_lines(found))


def test_too_little_room_on_the_disk_of_a_server_is_not_sought_at_its_address():
    whole = status_fields({**STATISTICS, "log": {"full": 2}}, Rates(), "running", None)
    (line,) = [line for line in status_lines(whole, "http://127.0.0.1:7071") if line.startswith("disk ")]
    assert line.endswith("make room on the file system of the server")


def test_status_names_urls_that_are_gone_next_to_the_errors():
    found = status_fields({**STATISTICS, "errors": {}}, Rates(), "finished", None)
    (told,) = [line for line in status_lines(found, "my crawl") if line.startswith("errors")]
    assert ("none" in told, "1 URL gone" in told, "outrider urls 'my crawl' --state gone" in told) == (
        False,
        True,
        True,
    )
    whole = {**STATISTICS, "errors": {}, "urls": {**STATISTICS["urls"], "gone": 0}}
    assert "errors      none" in status_lines(status_fields(whole, Rates(), "finished", None))


def test_links_that_were_not_followed_are_shown_by_reason():
    found = status_fields(STATISTICS, Rates(), "finished", None, {"scope": 3, "nofollow": 1})
    assert ({"scope": 3, "nofollow": 1}, True) == (
        found["not_followed"],
        "skipped     links: nofollow 1, scope 3" in status_lines(found),
    )


def test_a_crawl_of_an_owned_directory_is_refused_before_it_announces_its_start(tmp_path):
    (tmp_path / "out" / "frontier").mkdir(parents=True)
    talk = io.StringIO()
    owner = Directory(str(tmp_path / "out" / "frontier"), create=False)
    owner.lock()
    try:
        with pytest.raises(StoreInUseError):
            start.start(("http://localhost/",), {"output": str(tmp_path / "out")}, environment={}, talk=talk)
    finally:
        owner.unlock()
        owner.close()
    assert "" == talk.getvalue()
