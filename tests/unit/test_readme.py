"""README.md: each of its examples runs without changes, and obeys robots.txt."""

from __future__ import annotations

import json
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from outrider import Frontier


def examples(project):
    return re.findall(r"```python\n(.*?)```", (project / "README.md").read_text("utf-8"), re.DOTALL)


def without_delays(example):
    """The example of the frontier, without the seconds that a host rests."""
    return example.replace("mkdtemp()", 'mkdtemp(), settings={"delay": 0, "delay_factor": 0}')


def test_every_example_without_a_network_runs(project, capsys):
    for example in examples(project):
        if "outrider.crawl(" not in example:
            exec(compile(without_delays(example), "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "http://example.org/b?x=~" in printed
    assert "'done': 3" in printed  # the frontier of the example is worked to its end


class Site(BaseHTTPRequestHandler):
    """One page on loopback, in place of example.org."""

    def log_message(self, *arguments):
        pass

    def do_GET(self):
        self.send_response(200 if self.path == "/" else 404)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(
            b"<title>Example</title><h1>Example Domain</h1><p>Three more words." if self.path == "/" else b""
        )


@contextmanager
def site():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


def test_the_crawl_of_the_example_makes_the_printed_item(project, tmp_path, monkeypatch):
    (example,) = [text for text in examples(project) if "outrider.crawl(" in text]
    monkeypatch.chdir(tmp_path)
    with site() as url:
        exec(compile(example.replace("https://example.org/", url), "README.md", "exec"), {})
    (line,) = (tmp_path / "example" / "items.jsonl").read_text().splitlines()
    item = json.loads(line)
    (printed,) = re.findall(r"^    (\{.*\})$", (project / "README.md").read_text("utf-8"), re.MULTILINE)
    assert list(json.loads(printed)) == list(item)
    assert (item["url"], item["heading"], item["words"]) == (url, "Example Domain", 5)


def test_the_frontier_of_the_example_leases_no_page_that_robots_txt_closes(project, monkeypatch):
    leased = []
    lease = Frontier.lease

    def watched(frontier, *arguments, **more):
        found = lease(frontier, *arguments, **more)
        leased.extend((one.kind, one.url) for one in found)
        return found

    monkeypatch.setattr(Frontier, "lease", watched)
    (example,) = [text for text in examples(project) if "Frontier.open" in text]
    exec(compile(without_delays(example).replace("/private", "/"), "README.md", "exec"), {})
    assert [("robots", "https://example.org/robots.txt")] == leased


@pytest.mark.parametrize("name", ["robots="])
def test_the_readme_names_all_rules_of_politeness(project, name):
    assert name in (project / "README.md").read_text("utf-8")


def test_the_landing_page_of_the_docs_makes_the_same_crawl(project, tmp_path, monkeypatch, capsys):
    (example,) = re.findall(r"```python\n(.*?)```", (project / "docs" / "index.md").read_text("utf-8"), re.DOTALL)
    with site() as url:
        monkeypatch.chdir(tmp_path)
        exec(compile(example.replace("https://example.org/", url), "index.md", "exec"), {})
    assert capsys.readouterr().out == "finished 1\n"
