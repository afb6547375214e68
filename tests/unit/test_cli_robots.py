"""`outrider robots check`: the verdict and the line for each URL, and words for a file without rules."""

from __future__ import annotations

import io
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import NamedTuple

import pytest

from outrider.cli import main as cli

BODY = b"User-agent: *\nCrawl-delay: 2\nDisallow: /private # ours\nAllow: /private/open\n"


class Said(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def check(capsys, monkeypatch):
    def run(*arguments: str, stdin: bytes = b"") -> Said:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = cli.run(["robots", "check", *arguments])
        told = capsys.readouterr()
        return Said(code, told.out, told.err)

    return run


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "robots.txt").write_bytes(BODY)
    return str(tmp_path / "robots.txt")


def test_each_url_is_judged_with_its_line(check, file):
    said = check(file, "--agent", "FooBot", "/private/x", "http://a.example/private/open", "/")
    assert (0, "") == (said.code, said.err)
    assert [
        "refused  /private/x  line 3: Disallow: /private",
        "allowed  http://a.example/private/open  line 4: Allow: /private/open",
        "allowed  /  no line matches",
    ] == said.out.splitlines()


def test_the_rules_apply_to_the_agent_on_the_command_line_or_in_the_settings(check, tmp_path, monkeypatch):
    path = tmp_path / "robots.txt"
    path.write_bytes(b"User-agent: bot\nCrawl-delay: 7\nDisallow: /\n\nUser-agent: other\nUser-agent: *\nAllow: /\n")

    def judged(*words):
        told = json.loads(check(str(path), "--json", *words, "/x").out)
        return told["agent"], told["allowed"], told["crawl_delay"]

    assert ("Outrider", True, None) == judged()
    assert ("bot", False, 7.0) == judged("--user-agent", "bot")
    assert ("BOT", False, 7.0) == judged("--user-agent", "BOT")
    assert ("bot", False, 7.0) == judged("--agent", "bot")
    assert ("other", True, None) == judged("--agent", "other", "--user-agent", "bot")
    monkeypatch.setenv("OUTRIDER_USER_AGENT", "bot")
    assert ("bot", False, 7.0) == judged()
    assert "refused" in check(str(path), "/x").out


def test_json_contains_all_known_facts(check, file):
    told = json.loads(check(file, "--json", "/private").out)
    assert {
        "url": "/private",
        "agent": "Outrider",
        "allowed": False,
        "line": 3,
        "rule": "Disallow: /private",
        "crawl_delay": 2.0,
        "preferences": None,
        "records": 4,
        "status": None,
        "reason": None,
    } == told


@pytest.mark.parametrize("body", [b"", b"<html>\n<title>Not found", b"\x00\xff\xfe"])
def test_bytes_without_a_rule_are_reported_as_such(check, body):
    said = check("-", "/x", stdin=body)
    assert (0, "allowed  /x  no line matches\n") == (said.code, said.out)
    assert "standard input has no rules: everything is allowed" in said.err


def test_a_file_that_cannot_be_read_is_wrong_usage(check, tmp_path):
    for path in (str(tmp_path / "none"), str(tmp_path)):
        said = check(path, "/x")
        assert (2, "") == (said.code, said.out)
        assert path in said.err


def test_an_invalid_url_is_named_and_the_other_urls_are_still_checked(check, file):
    said = check(file, "http://[", "/")
    assert (2, 1) == (said.code, len(said.out.splitlines()))


def test_the_lenient_reading_is_an_option(check):
    body = b"User-agent: *\nDisallow: /%61\n"
    assert ["refused", "allowed"] == [
        check("-", *lenient, "/a", stdin=body).out.split()[0] for lenient in ([], ["--lenient"])
    ]


def test_no_text_of_a_file_acts_on_a_terminal(check):
    assert "\x1b" not in check("-", "/a", stdin=b"User-agent: *\nDisallow: /a\x1b[31m\nDisallow: /\x1b").out


@pytest.fixture
def site():
    answers: dict[str, tuple[int, dict[str, str], bytes]] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = answers.get(self.path, (404, {}, b""))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *what: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", answers
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_robots_txt_of_a_site_is_fetched_and_its_redirects_followed(check, site):
    origin, answers = site
    answers["/robots.txt"] = (301, {"Location": "/elsewhere"}, b"")
    answers["/elsewhere"] = (200, {}, BODY)
    said = check(f"{origin}/some/page", "--allow-address", "127.0.0.0/8", f"{origin}/private")
    assert (0, f"refused  {origin}/private  line 3: Disallow: /private\n") == (said.code, said.out)


def test_a_url_that_names_an_address_of_this_machine_permits_that_address_and_no_other(check, site):
    origin, answers = site
    answers["/robots.txt"] = (200, {}, BODY)
    assert (0, "refused") == (check(origin, "/private").code, check(origin, "/private").out.split()[0])
    answers["/robots.txt"] = (301, {"Location": origin.replace("127.0.0.1", "127.0.0.2") + "/robots.txt"}, b"")
    said = check(origin, "/private")
    assert (8, True) == (said.code, "blocked_address: 127.0.0.2" in said.err)


@pytest.mark.parametrize(
    ("status", "word", "why"), [(404, "allowed", "no rules apply"), (500, "refused", "while it cannot be read")]
)
def test_a_status_without_rules_is_explained(check, site, status, word, why):
    origin, answers = site
    answers["/robots.txt"] = (status, {}, b"")
    said = check(origin, "--allow-address", "127.0.0.0/8", "/x")
    assert (0, word) == (said.code, said.out.split()[0])
    assert why in said.err


def test_a_site_that_does_not_answer_is_unreachable(check):
    assert 8 == check("http://127.0.0.1:9/", "--allow-address", "127.0.0.0/8", "/x").code


def test_a_site_on_another_machine_needs_a_contact(check):
    said = check("http://example.org/", "/x")
    assert (2, True) == (said.code, "contact is missing" in said.err)
