"""`outrider fetch` and `outrider show`: one page now, and the stored copy of a page of a crawl."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from fake_web import FakeWeb
from outrider.cli import main as cli
from outrider.crawl.questions.manual_requests import ManualRequests
from outrider.crawl.questions.single_page import fetch_page
from outrider.crawl.setup.options import CrawlOptions
from outrider.errors import SettingsError

PAGE = b"""<title>a\x1b]0;evil\x07 page</title><a href=/in>in</a> <a href=/closed/x>c</a> <a href=/no rel=nofollow>n</a>
<a href=http://other.test/>o</a> <img src=/i.png> words to read"""
ROBOTS = b"User-agent: *\nDisallow: /closed\n"


@pytest.fixture
def site():
    asked = []

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            body = ROBOTS if self.path == "/robots.txt" else PAGE
            self.send_response(int(self.path[8:]) if self.path.startswith("/status/") else 200)
            if self.path == "/status/403":
                self.send_header("cf-mitigated", "challenge")
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Answers)
    beside = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    beside.start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    server.server_close()


def said(capsys, *arguments):
    code = cli.run(list(arguments))
    told = capsys.readouterr()
    return code, told.out, told.err


def test_fetch_says_everything_about_a_page(site, capsys):
    url, asked = site
    code, out, _ = said(capsys, "fetch", url + "/", "--delay", "0", "--delay-factor", "0")
    assert (0, ["/robots.txt", "/"]) == (code, asked)
    lines = [" ".join(line.split()) if line[:1] != " " else line for line in out.splitlines()]
    assert "status 200 OK" in lines
    assert "robots allowed: no line matches" in lines
    assert "  Content-Type: text/html" in lines
    assert "links 5 links, 1 to follow" in lines
    fates = {line.split()[2].removeprefix(url): line.split("  ")[-1] for line in lines if line[2:4] in ("+ ", "- ")}
    assert "in scope" == fates["/in"]
    assert "robots.txt, line 2: Disallow: /closed" == fates["/closed/x"]
    assert "rel=nofollow" == fates["/no"]
    assert fates["http://other.test/"].startswith("scope host: other.test is none of 127.0.0.1")
    assert "a link of img is recorded, not followed" == fates["/i.png"]
    assert "\x1b" not in out


def test_fetch_in_json_is_one_object(site, capsys):
    url, _ = site
    code, out, _ = said(capsys, "fetch", url + "/", "--json", "--delay", "0", "--exclude", "/in$")
    found = json.loads(out)
    assert (0, 200, True) == (code, found["status"], found["robots"]["allowed"])
    assert "--exclude /in$" == found["links"][0]["reason"]


@pytest.mark.parametrize(
    ("status", "outcome", "error", "links"),
    [
        (200, "done", None, 5),
        (404, "gone", None, 0),
        (503, "retry", "http_503", 0),
        (302, "gone", "bad_location", 0),
        (403, "retry", "not_welcome", 0),
        (700, "retry", "http_700", 0),
    ],
)
def test_fetch_shows_what_a_crawl_would_write(site, capsys, status, outcome, error, links):
    quick = ("--delay", "0", "--delay-factor", "0")
    code, out, _ = said(capsys, "fetch", f"{site[0]}/status/{status}", "--json", *quick)
    found = json.loads(out)
    assert (0, status, outcome, error, links) == (
        *(code, found["status"], found["outcome"], found["error"]),
        len(found["links"]),
    )
    _, out, _ = said(capsys, "fetch", f"{site[0]}/status/{status}", *quick)
    words = [*([outcome] if error is None else [outcome, f"({error})"])]
    assert ["outcome", *words] in [line.split() for line in out.splitlines()]


def test_fetch_obeys_robots_and_names_the_line(site, capsys):
    url, asked = site
    code, out, _ = said(capsys, "fetch", url + "/closed/y", "--delay", "0")
    assert (8, ["/robots.txt"]) == (code, asked)
    assert "closed: line 2: Disallow: /closed" in out


def test_fetch_waits_between_robots_txt_and_the_page(site, capsys):
    url, _ = site
    _, out, _ = said(capsys, "fetch", url + "/", "--json", "--delay", "0.05", "--delay-factor", "0")
    assert 0.05 == json.loads(out)["waited_seconds"]


def test_fetch_of_another_machine_needs_a_contact(capsys):
    code, _, err = said(capsys, "fetch", "https://example.org/")
    assert (2, True) == (code, "contact is missing" in err)


def test_fetch_reports_that_no_server_answers(capsys):
    code, out, err = said(capsys, "fetch", "http://127.0.0.1:1/", "--delay", "0")
    assert 8 == code
    assert "127.0.0.1" in out + err


def test_show_prints_the_archived_content(site, tmp_path, capsys):
    url, _ = site
    out = str(tmp_path / "out")
    assert 3 == cli.run(["crawl", url + "/", "-o", out, "--max-pages", "1", "--delay", "0", "--progress", "none"])
    capsys.readouterr()
    code, told, _ = said(capsys, "show", url, "-o", out)
    assert 0 == code
    assert "HTTP/1.0 200 OK" in told
    assert "words to read" in told
    assert "\x1b" not in told
    assert said(capsys, "show", url, "-o", out, "--head")[1].startswith("HTTP/1.0 200 OK")
    assert "words to read" in said(capsys, "show", url, "-o", out, "--text")[1]
    assert url + "/" == json.loads(said(capsys, "show", url, "-o", out, "--json")[1])["url"]


def test_show_writes_the_content_as_bytes(site, tmp_path, capfdbinary):
    url, _ = site
    out = str(tmp_path / "out")
    cli.run(["crawl", url + "/", "-o", out, "--max-pages", "1", "--delay", "0", "--progress", "none"])
    capfdbinary.readouterr()
    assert 0 == cli.run(["show", url, "-o", out, "--body"])
    assert PAGE == capfdbinary.readouterr().out


def test_show_of_a_missing_page_says_where_to_look(site, tmp_path, capsys):
    url, _ = site
    out = str(tmp_path / "out")
    cli.run(["crawl", url + "/", "-o", out, "--max-pages", "1", "--delay", "0", "--progress", "none"])
    code, _, err = said(capsys, "show", url + "/other", "-o", out)
    assert (2, True) == (code, f"outrider explain {url}/other" in err)


def test_show_escapes_control_characters_of_the_content_on_a_terminal(site, tmp_path, capsys, monkeypatch):
    url, _ = site
    directory = str(tmp_path / "o")
    assert 0 == said(capsys, "crawl", url + "/", "-o", directory, "--max-pages", "1", "--delay", "0")[0] % 3
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    code, out, _ = said(capsys, "show", url + "/", "-o", directory, "--body")
    assert (0, False, True) == (code, "\x1b" in out, "\\x1b]0;evil" in out)


class Anywhere:
    async def resolve(self, host, port):
        return ["127.0.0.1"]

    def choose(self, host, addresses):
        return addresses[0]


def moved_to(location):
    web = FakeWeb()
    web.pages = {"/robots.txt": (301, location)}
    return ManualRequests(CrawlOptions(), {}, Anywhere(), Anywhere(), web), web


def test_a_robots_txt_that_redirects_to_no_url_has_no_rules():
    site, web = moved_to("http://[")
    found = asyncio.run(site.rules("http://127.0.0.1/"))
    words = "http://127.0.0.1/robots.txt answers 301: no rules apply"
    assert (301, words, 1) == (found.status, found.why, len(web.asked))


def test_a_robots_txt_that_redirects_to_another_machine_needs_a_contact():
    site, web = moved_to("http://elsewhere.test/robots.txt")
    with pytest.raises(SettingsError, match="contact is missing, and elsewhere"):
        asyncio.run(site.rules("http://127.0.0.1/"))
    assert ["http://127.0.0.1/robots.txt"] == web.urls


@pytest.fixture
def slow_site():
    """A site whose robots.txt requires half a minute between requests. It remembers each request and its fields."""
    asked = []

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append((self.path, self.headers.get("X-Key"), self.headers.get("X-All")))
            body = b"User-agent: *\nCrawl-delay: 30\n" if self.path == "/robots.txt" else PAGE
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/", asked
    server.shutdown()
    server.server_close()


def fetched(url, **options):
    """Fetches a page on a clock that jumps over waits. Returns the result, the waits in seconds, and the sentences."""
    rests, told = [], []

    async def rest(seconds):
        rests.append(seconds)

    found = asyncio.run(fetch_page(url, CrawlOptions(**options), {}, tell=told.append, rest=rest))
    return found, rests, told


def test_fetch_says_that_it_waits_for_a_crawl_delay(slow_site):
    url, asked = slow_site
    found, rests, told = fetched(url, delay=0, delay_factor=0)
    assert ([30.0], 30.0, 2) == (rests, found.waited_seconds, len(asked))
    assert ["waiting 30 s before the page: robots.txt has a Crawl-delay of 30 s; Ctrl-C stops"] == told


def test_fetch_cuts_a_crawl_delay_or_skips_the_page_as_the_settings_say(slow_site):
    url, asked = slow_site
    told = {"delay": 0, "delay_factor": 0, "crawl_delay_max": 2}
    assert [2.0] == fetched(url, **told, crawl_delay_over="cap")[1]
    assert [30.0] == fetched(url, **told)[1]
    assert fetched(url, **told, crawl_delay_over="cap", crawl_delay_as="window")[1][0] < 2.0
    asked.clear()
    found, rests, _ = fetched(url, **told, crawl_delay_over="skip")
    assert (False, [], 1) == (found.allowed, rests, len(asked))
    assert "its Crawl-delay of 30 s is above --crawl-delay-max 2" in found.robots


def test_fetch_sends_the_fields_of_all_hosts_and_of_this_one(slow_site):
    url, asked = slow_site
    fetched(url, header=("X-All=1", "X-Key=0"))
    fetched(url, header=("X-All=1",), host=[{"name": "127.*", "header": ["X-Key=secret"], "delay": 7}])
    assert [("0", "1"), ("secret", None)] == [(key, every) for path, key, every in asked if path == "/"]
    assert [("0", "1"), ("secret", None)] == [(key, every) for path, key, every in asked if path == "/robots.txt"]


def test_fetch_uses_the_settings_of_a_crawl(site, tmp_path, capsys):
    url, _ = site
    out = str(tmp_path / "out")
    cli.run(["crawl", url + "/", "-o", out, "--max-pages", "1", "--delay", "0", "--exclude", "/in$"])
    capsys.readouterr()
    code, told, _ = said(capsys, "fetch", url + "/", "-o", out, "--json")
    assert (0, "--exclude /in$") == (code, json.loads(told)["links"][0]["reason"])
    code, _, err = said(capsys, "fetch", url + "/", "-o", str(tmp_path / "none"))
    assert (2, True) == (code, "There is no crawl here" in err)


def test_a_fetch_that_stores_less_says_so(site):
    url, _ = site
    found, _, _ = fetched(url + "/", delay=0, delay_factor=0, truncate=("*=9",))
    assert PAGE[:9] == found.response.content


@pytest.mark.parametrize(
    "place",
    ['{"offset":0}', '"x"', '{"file":"../x","offset":0,"length":9}', '{"file":"a","offset":-1,"length":9}'],
)
def test_show_names_a_line_that_was_edited(site, tmp_path, capsys, place):
    url, _ = site
    out = tmp_path / "out"
    cli.run(["crawl", url + "/", "-o", str(out), "--max-pages", "1", "--delay", "0", "--progress", "none"])
    lines = out / "pages.jsonl"
    line = json.loads(lines.read_text())
    lines.write_text(json.dumps({**line, "warc": json.loads(place)}, separators=(",", ":")) + "\n")
    capsys.readouterr()
    code, _, err = said(capsys, "show", url, "-o", str(out))
    assert (5, True) == (code, f"the line of {url}/ names no place in the archive" in err)
