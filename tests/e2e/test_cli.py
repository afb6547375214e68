"""Mistakes of people and faults of machines: a sentence each, and the exit code that was promised."""

from __future__ import annotations

import http.server
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from warcio import ArchiveIterator

from e2e import crawling
from outrider.engine import Frontier
from outrider.sim.verdict import judge

DAY = 86_400 * 1_000_000


def said(ended: subprocess.CompletedProcess) -> tuple[int, str]:
    """The exit code and what standard error says; a trace is never what people shall read."""
    assert "Traceback" not in ended.stderr
    return ended.returncode, ended.stderr


@pytest.fixture
def finished(tmp_path):
    """A small crawl that has ended."""
    with crawling.web(tmp_path / "web", hosts=2, pages=6) as served:
        output = tmp_path / "out"
        assert 0 == crawling.outrider(*crawling.on(served, output, "--delay", "0.01")).returncode
        yield served, output


def test_a_malformed_seed_is_named_with_its_line(tmp_path):
    (tmp_path / "seeds.txt").write_text("# mine\nhttp://127.0.0.1:1/\n\nhttp://exa mple.org/\n")
    code, words = said(crawling.outrider("crawl", f"@{tmp_path}/seeds.txt", "-o", tmp_path / "out", "--strict-seeds"))
    assert (2, True) == (code, "seeds.txt, line 4" in words)
    assert not (tmp_path / "out").exists()


def test_a_seed_without_a_scheme_is_answered_with_a_proposal(tmp_path):
    code, words = said(crawling.outrider("crawl", "example.org/a", "-o", tmp_path / "out"))
    assert (2, True) == (code, "did you mean https://example.org/a" in words)


def test_seeds_are_read_from_standard_input_too(tmp_path):
    seeds = "http://localhost/\nmailto:a@b\n"
    code, words = said(crawling.outrider("crawl", "-", "-o", tmp_path / "out", "--strict-seeds", stdin=seeds))
    assert (2, True) == (code, "standard input, line 2" in words)


def test_beyond_loopback_a_contact_is_required_before_any_connection(tmp_path):
    code, words = said(crawling.outrider("crawl", "http://example.org/", "-o", tmp_path / "out"))
    assert (2, True, True) == (code, "contact is missing" in words, "example.org" in words)
    assert not (tmp_path / "out").exists()


def test_a_crawl_whose_seeds_all_failed_does_not_end_well_and_says_why(tmp_path):
    output = tmp_path / "out"
    code, words = said(
        crawling.outrider("crawl", "http://nobody.invalid/", "-o", output, "--contact", "me@example.org")
    )
    assert (8, True) == (code, "no page could be fetched (dns_unknown" in words)
    assert [("error", "dns_unknown")] == [(page["outcome"], page["error"]) for page in crawling.pages(output)]


def test_a_seed_that_names_an_address_of_this_machine_permits_it_also_when_the_crawl_continues(tmp_path):
    output = tmp_path / "out"
    with crawling.web(tmp_path / "web", hosts=1, pages=3) as served:
        address = served.hosts_file.read_text().split()[0]
        crawling.outrider("crawl", f"http://{address}:{served.web.port}/", "-o", output, "--max-pages", "1")
        assert "blocked_address" not in {page.get("error") for page in crawling.pages(output)}
        assert "robots.txt" in served.log_file.read_text()
    assert f'"{address}"' in (output / "outrider.toml").read_text()


def test_a_store_directory_with_other_content_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    code, words = said(crawling.outrider("crawl", "http://localhost/", "-o", tmp_path))
    assert (5, True, ["thesis.tex"]) == (code, "thesis.tex" in words, os.listdir(tmp_path))


@pytest.mark.parametrize("place", ["/proc/no-crawl-here", "/dev/null/below"])
def test_a_directory_that_cannot_be_made_is_named(place):
    code, words = said(crawling.outrider("crawl", "http://localhost/", "-o", place))
    assert (2, True) == (code, place in words)


@pytest.mark.skipif(os.geteuid() == 0, reason="the root user may write everywhere")
def test_a_directory_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    code, words = said(crawling.outrider("crawl", "http://localhost/", "-o", tmp_path / "locked"))
    assert (2, True) == (code, "locked" in words)


def test_a_second_process_on_one_directory_gets_the_name_of_the_owner(tmp_path):
    output = tmp_path / "out"
    with crawling.web(tmp_path / "web", hosts=2, pages=40) as served:
        arguments = crawling.on(served, output, "--delay", "0.3")
        crawl = crawling.started(*arguments)
        try:
            crawling.wait_for(lambda: (output / "control.sock").exists())
            code, words = said(crawling.outrider(*arguments))
            assert (6, True) == (code, str(crawl.pid) in words)
        finally:
            crawl.send_signal(signal.SIGINT)
            crawl.wait(20)


def test_a_damaged_log_is_refused_and_named(finished):
    _, output = finished
    log = next((output / "frontier").glob("log-*"))
    data = bytearray(log.read_bytes())
    data[400] ^= 0xFF
    log.write_bytes(data)
    before = log.read_bytes()
    code, words = said(crawling.outrider("resume", output))
    assert (5, True, True) == (code, log.name in words, log.read_bytes() == before)


def test_a_clock_that_was_set_back_by_a_day_is_noted_and_survived(tmp_path):
    output = tmp_path / "out"
    with crawling.web(tmp_path / "web", hosts=2, pages=12) as served:
        first = crawling.outrider(*crawling.on(served, output, "--max-pages", "4"))
        assert 3 == first.returncode
        # As if the last run had been tomorrow: the store has seen an instant that the wall clock will reach in a day.
        frontier = Frontier.open(
            output / "frontier", clock=lambda: time.time_ns() // 1000 + DAY, output=True, robots="caller"
        )
        frontier.close()
        arguments = ["resume", output, "--max-pages", "none", "--progress", "log"]
        code, words = said(crawling.outrider(*arguments))
        assert (0, True) == (code, "the clock was set back" in words)
        assert served.web.must_fetch() == crawling.fetched(output)
        assert [] == judge(served.log_file, delay=0.05).breaches


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("--max-pages", "-3", "max-pages is '-3': it is too small; use a whole number"),
        ("--memory", "1K", "memory (memory-bytes) is '1K': it is too small; use a size such as 512M or 2G"),
        ("--memory", "much", "memory (memory-bytes) is 'much': not a size; use a size such as 512M or 2G"),
    ],
)
def test_a_wrong_value_is_named_with_what_would_be_right(tmp_path, flag, value, message):
    code, words = said(crawling.outrider("crawl", "http://localhost/", "-o", tmp_path / "out", flag, value))
    assert (2, True) == (code, message in words)


def test_a_wrong_line_of_the_hosts_file_is_named(tmp_path):
    (tmp_path / "hosts").write_text("127.0.0.1 good.test\n127.0.0.300 bad.test\n")
    arguments = ["crawl", "http://good.test/", "-o", tmp_path / "out", "--hosts", tmp_path / "hosts"]
    code, words = said(crawling.outrider(*arguments))
    assert (2, True) == (code, "line 2" in words)


def test_a_setting_from_the_environment_is_named_by_its_variable(tmp_path):
    ended = crawling.outrider("crawl", "http://localhost/", "-o", tmp_path / "out", OUTRIDER_DELAY="soon")
    assert (2, True) == (said(ended)[0], "OUTRIDER_DELAY" in ended.stderr)


def test_resume_without_a_crawl_says_how_to_begin_one(tmp_path):
    code, words = said(crawling.outrider("resume", tmp_path / "nothing"))
    assert (2, True) == (code, "outrider crawl" in words)


def test_crawl_without_seeds_continues_in_a_directory_with_seeds(finished):
    _, output = finished
    before = (output / "pages.jsonl").read_bytes()
    code, words = said(crawling.outrider("crawl", "-o", output, "--progress", "log"))
    assert (0, True, before) == (code, "going on" in words, (output / "pages.jsonl").read_bytes())


def test_status_without_a_crawl_says_so(tmp_path):
    assert 2 == said(crawling.outrider("status", tmp_path))[0]


def test_nothing_to_crawl_is_said(tmp_path):
    code, words = said(crawling.outrider("crawl", "-o", tmp_path / "out"))
    assert (2, True) == (code, "seeds are missing" in words)


def test_a_setting_written_wrong_by_hand_is_named_with_its_file(finished):
    _, output = finished
    (output / "outrider.toml").write_text("max_pagse = 3\n")
    code, words = said(crawling.outrider("resume", output))
    assert (2, True, True) == (code, "outrider.toml" in words, "did you mean max-pages?" in words)


def test_an_unknown_command_is_wrong_usage():
    assert 2 == said(crawling.outrider("crwal"))[0]


def test_the_version_is_written_to_standard_output():
    ended = crawling.outrider("version")
    assert (0, "") == (ended.returncode, ended.stderr)
    assert ["outrider", "Python", "kernels", "libcurl"] == [line.split()[0] for line in ended.stdout.splitlines()]


def test_a_title_cannot_steer_the_terminal_or_break_a_line(tmp_path):
    """No character below a space that a site writes reaches standard error or a line file."""
    evil = "\x1b]52;c;ZXZpbA==\x07\x1b[2J\u202eevil\u2028".encode()
    with page(b"<title>" + evil + b"</title><a href='/%1b%5b2J'>x</a>", ETag='"\x1b[31m"') as url:
        arguments = ["crawl", url, "-o", tmp_path / "out", "--delay", "0.01", "--progress", "log"]
        ended = crawling.outrider(*arguments, "--allow-address", "127.0.0.1/32")
    assert 0 == said(ended)[0]
    for text in (ended.stderr, *((tmp_path / "out" / name).read_text() for name in ("pages.jsonl", "crawl.log"))):
        assert [] == [c for c in text if (ord(c) < 0x20 and c != "\n") or c in "\u202e\u2028\x7f\x9b"]


def test_without_a_contact_no_link_leads_beyond_this_machine(tmp_path):
    with page(b"<a href='http://192.88.98.1/'>by address</a><a href='http://8.8.8.8/'>public</a>") as url:
        arguments = ["crawl", url, "-o", tmp_path / "out", "--scope", "any", "--allow-address", "0.0.0.0/0"]
        ended = crawling.outrider(*arguments)
    assert 0 == said(ended)[0]
    told = {page["url"]: page.get("error") for page in crawling.pages(tmp_path / "out")}
    assert {url: None, "http://192.88.98.1/": "blocked_address", "http://8.8.8.8/": "blocked_address"} == told


@pytest.mark.parametrize("more", [(), ("--group", "address")])
def test_the_next_address_of_a_host_is_used_where_the_first_accepts_no_connection(tmp_path, more):
    """The first of two addresses refuses; the record of the archive names the one that answered."""
    with page(b"hello") as url:
        port = url.rpartition(":")[2].rstrip("/")
        (tmp_path / "hosts").write_text("127.0.0.99 a.test\n127.0.0.1 a.test\n")
        seed = f"http://a.test:{port}/"
        arguments = ["crawl", seed, "-o", tmp_path / "out", "--hosts", tmp_path / "hosts", "--delay", "0"]
        assert 0 == said(crawling.outrider(*arguments, *more))[0]
    assert [200] == [line["status"] for line in crawling.pages(tmp_path / "out") if line["status"]]
    (archive,) = (tmp_path / "out" / "archive").iterdir()
    with archive.open("rb") as file:
        heads = [record.rec_headers for record in ArchiveIterator(file) if record.rec_type == "response"]
    assert {"127.0.0.1"} == {head.get_header("WARC-IP-Address") for head in heads}


def test_a_site_that_wants_a_delay_of_a_year_ends_the_crawl_with_a_message(tmp_path):
    with page(b"hello", Retry_After="99999999999", status=503) as url:
        arguments = ["crawl", url, "-o", tmp_path / "out", "--allow-address", "127.0.0.0/8", "--progress", "log"]
        code, words = said(crawling.outrider(*arguments, seconds=30))
    assert (3, True) == (code, "must wait more than --max-wait (86400 s): 127.0.0.1 until" in words)
    assert " left host=127.0.0.1 until=" in (tmp_path / "out" / "crawl.log").read_text()


@contextmanager
def page(body: bytes, *, status: int = 200, **headers: str) -> Iterator[str]:
    """The URL of a site on loopback that answers everything but robots.txt with this page."""

    class Site(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status if self.path != "/robots.txt" else 404)
            for name, value in {"Content-Type": "text/html; charset=utf-8", **headers}.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only the root user may mount a small disk")
def test_a_full_disk_ends_the_crawl_with_a_message_and_everything_continues_when_there_is_room(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", disk], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("no small disk can be mounted here")
    try:
        output = disk / "out"
        with crawling.web(tmp_path / "web", hosts=6, pages=120) as served, open(tmp_path / "words", "w+") as words:
            arguments = crawling.on(served, output, "--delay", "0.1")
            crawl = subprocess.Popen([sys.executable, "-c", IMPATIENT, *arguments], stderr=words, cwd=crawling.ROOT)
            crawling.wait_for(lambda: _size(output / "pages.jsonl") > 5_000)
            while crawl.poll() is None:  # also the leases that the crawl returns meanwhile
                _fill(disk / "ballast")
                time.sleep(0.1)
            words.seek(0)
            told = words.read()
            assert (7, True, False) == (crawl.returncode, "The disk is full" in told, "Traceback" in told), told
            (disk / "ballast").unlink()
            again = crawling.outrider("resume", output)
            assert 0 == again.returncode, again.stderr
            assert served.web.must_fetch() == crawling.fetched(output)
            assert ([], []) == (crawling.final_twice(output), crawling.not_kept_once(output))
            assert [] == judge(served.log_file, delay=0.1).breaches
    finally:
        subprocess.run(["umount", disk], check=False)


IMPATIENT = """
from outrider.crawl import local_run
local_run.CrawlRun.__init__.__kwdefaults__["full_seconds_max"] = 1.0
from outrider.cli.main import main
main()
"""
"""The command with half a minute of patience for a full disk made a second."""


def _fill(path: Path) -> None:
    with path.open("ab", buffering=0) as file:
        try:
            while file.write(bytes(4096)) == 4096:
                pass
        except OSError:
            return


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
