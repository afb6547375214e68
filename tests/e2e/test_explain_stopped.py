"""`explain` and `why-idle` as a newcomer types them, of a crawl that runs and of the same crawl when it is stopped."""

from __future__ import annotations

import json
import signal
import socket

import pytest

from e2e.crawling import outrider, started, wait_for
from e2e.loopback import MISSING, Answer
from e2e.loopback import site as serving
from outrider.cli import main as cli

PAGES = {
    "/": b"<title>home</title><a href=/a>a</a><a rel=nofollow href=/asked-not-to>n</a><a href=/private/x>p</a>"
    b"<a href=http://elsewhere.test/y>o</a><img src=/picture.png><a href=/big.zip>z</a><a href=/gone>g</a>",
    "/a": b"<title>a</title><a href=/b>b</a>",
    "/b": b"<title>b</title><a href=/far/below>c</a>",
    "/robots.txt": b"User-agent: *\nDisallow: /private/\n",
}
ASKED = {
    "/asked-not-to": ["rel=nofollow", "--follow-nofollow"],
    "/private/x": ["robots.txt", "Disallow: /private/"],
    "/far/below": ["--max-depth 2", "/b links to it"],
    "/big.zip": ["--exclude zip"],
    "/picture.png": ["img", "not followed"],
    "/never-named": ["it is in scope", "no link"],
    "/gone": ["404 Not Found"],
    "/a": ["fetched", "200 OK"],
}
"""The words that say why a URL is not fetched now; the longest wait of the crawl is after all of these."""


def answer(_: str, target: str) -> Answer:
    if target == "/slow":
        return Answer(status=503, fields={"Retry-After": "60"})
    return Answer(PAGES[target]) if target in PAGES else MISSING


@pytest.fixture
def home():
    with serving(answer) as server:
        yield server.root


@pytest.fixture
def ask(capsys):
    """The standard output of a command, which is run in this process."""

    def run(*arguments):
        capsys.readouterr()
        code = cli.run([str(argument) for argument in arguments])
        told = capsys.readouterr()
        assert 0 == code, told.err
        return told.out

    return run


def test_a_skipped_link_is_explained_alike_while_the_crawl_runs_and_when_it_is_stopped(home, tmp_path, ask):
    output = tmp_path / "out"
    options = ["--delay", "0.02", "--delay-factor", "0", "--max-depth", "2", "--exclude", "zip"]

    def explained(path):
        url = path if "://" in path else home + path
        return json.loads(ask("explain", url, "-o", output, "--json"))["reason_text"]

    with serving(answer, "127.0.0.2") as server:
        other = server.root
        # The second host wants a pause of a minute, so that the crawl continues to run.
        crawl = started("crawl", f"{home}/", f"{other}/slow", "-o", output, *options)
        try:
            wanted = [f'"url":"{url}"' for url in (f"{home}/b", f"{home}/gone", f"{other}/slow")]
            lines = output / "pages.jsonl"
            wait_for(lambda: lines.exists() and all(url in lines.read_text() for url in wanted))
            running = {path: explained(path) for path in ASKED}
            elsewhere = explained("http://elsewhere.test/y")
            assert crawl.poll() is None
            assert "resume" not in ask("why-idle", output)
        finally:
            crawl.send_signal(signal.SIGINT)
            crawl.wait(30)
    stopped = {path: explained(path) for path in ASKED}
    for path, words in ASKED.items():
        assert [] == [word for word in words if word not in running[path]], running[path]
        assert [] == [word for word in words if word not in stopped[path]], stopped[path]
    assert running == stopped
    assert "scope host" in elsewhere
    assert elsewhere == explained("http://elsewhere.test/y")
    told = ask("why-idle", output)
    assert (True, False) == (f"outrider resume {output}" in told, "errands=True" in told), told
    assert f"outrider resume {output}" in explained(f"{other}/slow")


def test_a_wrong_port_is_an_error_in_every_place(tmp_path, ask):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    output = tmp_path / "out"
    done = outrider("crawl", f"http://127.0.0.1:{port}/", "-o", output, "--max-seconds", "1", "--progress", "log")
    assert "connect_refused 1" in done.stderr
    status = json.loads(ask("status", output, "--json"))
    assert {"connect_refused": 1} == status["errors"]
    words = f"robots.txt of 127.0.0.1:{port}: connection refused, tried 1 of 4 times"
    assert words in ask("explain", f"http://127.0.0.1:{port}/", "-o", output)
    assert words in ask("why-idle", output)
    assert "connect_refused" in (output / "report.html").read_text("utf-8")


def test_settings_that_cannot_be_read_are_named_and_not_guessed(home, tmp_path, ask, capsys):
    output = tmp_path / "out"
    outrider("crawl", f"{home}/", "-o", output, "--max-pages", "1", "--delay", "0")
    (output / "outrider.toml").write_text('scope = "nowhere"\n')
    assert 2 == cli.run(["explain", f"{home}/never", "-o", str(output)])
    assert "nowhere" in capsys.readouterr().err
    assert "127.0.0.1" in ask("hosts", output)
