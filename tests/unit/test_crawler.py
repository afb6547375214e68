"""`outrider.Crawler`: a program runs, stops and queries a crawl, from any thread."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import pty
import sys
import threading

import pytest

import outrider
from outrider.cli import main as cli
from outrider.crawl.run.loop import SWITCH_SECONDS
from outrider.errors import OutriderError, SettingsError
from unit.test_hooks import HOME, Web


@pytest.fixture
def told(tmp_path):
    (tmp_path / "hosts").write_text("127.0.0.1 one.test\n127.0.0.2 two.test\n")
    return {
        "output": tmp_path / "out",
        "hosts": str(tmp_path / "hosts"),
        "downloader": Web,
        "delay": 0,
        "delay_factor": 0,
    }


def pages_of(folder):
    return len((folder / "pages.jsonl").read_text().splitlines())


def test_a_crawler_crawls_like_the_function(told):
    result = outrider.Crawler([HOME], **told).run()
    assert (0, 5) == (result.exit_code, pages_of(told["output"]))


def test_a_thread_stops_a_crawl_and_another_continues_it(told):
    entered, left = threading.Event(), threading.Event()

    def hold(page):
        entered.set()
        assert left.wait(30)

    results = []
    crawler = outrider.Crawler([HOME], on_page=hold, **told)
    thread = threading.Thread(target=lambda: results.append(crawler.run()))
    thread.start()
    assert entered.wait(30)
    crawler.stop("enough")
    left.set()
    thread.join(30)
    assert (4, "enough") == (results[0].exit_code, results[0].ending)
    assert pages_of(told["output"]) < 5
    assert 0 == outrider.Crawler(**told, on_page=lambda page: None).run().exit_code
    assert 5 == pages_of(told["output"])  # one line says that robots.txt closes the page


def test_crawls_of_several_threads_leave_the_thread_switch_interval_unchanged(told, tmp_path):
    usual = sys.getswitchinterval()
    both, second_goes_on = threading.Barrier(2), threading.Event()
    quick = []

    def crawl(name, waits):
        def hold(page):
            if page.url == HOME:
                both.wait(30)
                quick.append(sys.getswitchinterval())
                assert not waits or second_goes_on.wait(30)

        outrider.Crawler([HOME], on_page=hold, **told | {"output": tmp_path / name}).run()

    threads = [threading.Thread(target=crawl, args=one) for one in (("first", False), ("second", True))]
    for thread in threads:
        thread.start()
    threads[0].join(30)
    quick.append(sys.getswitchinterval())
    second_goes_on.set()
    threads[1].join(30)
    assert ([pytest.approx(SWITCH_SECONDS)] * 3, usual) == (quick, sys.getswitchinterval())


def test_a_hook_stops_the_crawl_and_its_page_is_stored(told):
    crawler = outrider.Crawler([HOME], on_page=lambda page: crawler.stop(), **told)
    assert (4, "stopped by the program") == ((result := crawler.run()).exit_code, result.ending)
    assert 1 <= pages_of(told["output"]) < 5


def test_a_stop_before_the_start_ends_the_crawl_at_its_start(told):
    crawler = outrider.Crawler([HOME], **told)
    crawler.stop()
    result = crawler.run()
    assert (4, 1, 0) == (result.exit_code, result.statistics["accepted"], pages_of(told["output"]))


def test_a_stop_after_the_end_has_no_effect(told):
    crawler = outrider.Crawler([HOME], **told)
    assert 0 == crawler.run().exit_code
    crawler.stop()
    assert ("finished", 4) == ((status := crawler.status())["state"], status["answered"])


def test_a_crawler_returns_its_status_while_it_runs(told):
    async def read():
        crawler = outrider.Crawler([HOME], **told)
        async with crawler.pages() as pages:
            async for _page in pages:
                return await asyncio.to_thread(crawler.status)
        return None

    status = asyncio.run(read())
    assert ("running", True) == (status["state"], status["answered"] >= 1)


def test_a_crawler_runs_once(told):
    crawler = outrider.Crawler([HOME], **told)
    with pytest.raises(SettingsError, match="has not begun"):
        crawler.status()
    crawler.run()
    for again in (crawler.run, crawler.pages):
        with pytest.raises(SettingsError, match="make another one with the same output"):
            again()


@pytest.mark.parametrize("seeds", [HOME, 7, None])
def test_seeds_that_are_not_a_list_are_refused(seeds):
    with pytest.raises(SettingsError, match="seeds"):
        outrider.Crawler(seeds)


def test_a_wrong_option_is_reported_by_run(told):
    with pytest.raises(OutriderError, match="delai"):
        outrider.Crawler([HOME], delai=3, **told).run()


def test_the_example_stops_its_crawl(told, project, capsys):
    spec = importlib.util.spec_from_file_location("held", project / "examples" / "held.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    options = {**told, "output": str(told["output"]), "delay": 3600}
    assert 4 == example.held(1.5, options.pop("output"), "me@example.org", [HOME], **options)
    assert "pages," in capsys.readouterr().out
    assert 0 == pages_of(told["output"])  # the first page waits for an hour after robots.txt


def test_a_crawl_that_ends_before_a_paused_host_is_ready_names_the_host(told):
    assert 3 == outrider.Crawler([HOME], max_pages=1, **told).run().exit_code
    assert 0 == cli.run(["host", str(told["output"]), "one.test", "pause"])
    result = outrider.Crawler(max_pages=None, **told).run()
    assert 3 == result.exit_code
    assert result.ending.startswith("the URLs left cannot be fetched now: one.test is paused; `outrider host ")
    assert "one.test resume` resumes it" in result.ending


def test_a_crawl_that_fetched_no_page_says_so_even_without_progress(tmp_path, capsys):
    where = ["-o", str(tmp_path / "out"), "--progress", "none", "--timeout", "connect=1"]
    assert 8 == cli.run(["crawl", "http://127.0.0.1:9/", *where])
    told = capsys.readouterr().err
    assert told.startswith("outrider: ")
    assert 1 == told.count("\n")


@pytest.mark.parametrize("how", [{}, {"progress": "none"}], ids=["by default", "none"])
def test_progress_is_shown_on_a_terminal_unless_the_program_turns_it_off(told, monkeypatch, how):
    terminal, program = pty.openpty()
    os.set_blocking(terminal, False)
    with open(program, "w", encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setenv("TERM", "xterm")
        assert 0 == outrider.Crawler([HOME], **told, **how).run().exit_code
        stream.flush()
        try:
            shown = os.read(terminal, 1 << 16).decode()
        except BlockingIOError:
            shown = ""
    os.close(terminal)
    assert ("\x1b[?25l" in shown) == (not how), shown  # the bar hides the cursor


def test_no_progress_is_shown_in_a_pipe(told, capsys):
    assert 0 == outrider.Crawler([HOME], **told).run().exit_code
    assert "" == capsys.readouterr().err
