"""A real browser opens what a crawl shows people, and a page of another site that attacks a server on loopback."""

from __future__ import annotations

import http.server
import json
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from servers.programs import answers, free_port, program, running
from unit.test_report import hostile_report

SECONDS_MAX = 120
# Without these flags the browser looks for its maker's hosts at each start.
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
FLAGS += ("--disable-sync", "--disable-quic", "--no-first-run")


class Canary(http.server.ThreadingHTTPServer):
    """Counts what is requested of it, and answers each path with the same page."""

    def __init__(self, host: str, page: bytes = b"") -> None:
        self.requested: list[str] = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(handler) -> None:
                self.requested.append(handler.path)
                handler.send_response(200)
                handler.send_header("Content-Type", "text/html")
                handler.send_header("Content-Length", str(len(page)))
                handler.end_headers()
                handler.wfile.write(page)

            def log_message(handler, *_: object) -> None:
                pass

        super().__init__((host, 0), Handler)


@contextmanager
def canary(host: str, page: bytes = b"") -> Iterator[Canary]:
    with Canary(host, page) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(10)


def shown(url: str, profile: Path, *flags: str) -> str:
    """The document that the browser has made of a page, after its scripts ran."""
    command = [program("chromium"), *FLAGS, f"--user-data-dir={profile}", "--virtual-time-budget=5000", *flags]
    done = subprocess.run([*command, "--dump-dom", url], capture_output=True, timeout=SECONDS_MAX, check=False)
    assert 0 == done.returncode, done.stderr.decode("utf-8", "replace")
    return done.stdout.decode("utf-8", "replace")


def test_a_browser_that_runs_scripts_is_what_these_tests_look_with(tmp_path):
    page = tmp_path / "page.html"
    page.write_text("<!doctype html><p id=p>before<script>document.getElementById('p').textContent='after'</script>")
    assert ">after<" in shown(page.as_uri(), tmp_path / "profile")


def test_a_hostile_report_runs_no_script_and_asks_for_nothing(tmp_path):
    with canary("127.0.0.1", hostile_report().encode()) as server:
        at = f"http://127.0.0.1:{server.server_address[1]}/"
        document = shown(at, tmp_path / "profile", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")
        assert {"/"} == set(server.requested) - {"/favicon.ico"}  # the browser's own wish
    assert "<script" not in document
    assert "<img" not in document
    assert "&lt;script&gt;" in document


@pytest.mark.parametrize(
    "attack",
    [
        "<img src='{url}'>",
        "<iframe src='{url}'></iframe>",
        "<script src='{url}'></script>",
        "<script>fetch('{url}', {{mode: 'no-cors', credentials: 'include'}})</script>",
        "<script>location = '{url}'</script>",
    ],
    ids=["image", "frame", "script", "fetch", "navigation"],
)
def test_a_page_of_another_site_leases_nothing_of_a_server_on_loopback(tmp_path, attack):
    port = free_port()
    at = f"http://127.0.0.1:{port}"
    serve = [sys.executable, "-m", "outrider", "serve", tmp_path / "crawl", "--http", f"127.0.0.1:{port}"]
    with running(serve, log=tmp_path / "serve.log", ready=lambda: answers(f"{at}/healthz")):
        body = json.dumps({"urls": ["http://a.test/", "http://b.test/"]}).encode()
        sent = urllib.request.Request(f"{at}/api/v1/frontier/urls", body, {"Content-Type": "application/json"})
        urllib.request.urlopen(sent, timeout=10).close()
        page = attack.format(url=f"{at}/api/v1/frontier/next?worker_id=thief&batch_size=10&robots=worker")
        with canary("127.0.0.2", b"<!doctype html>" + page.encode()) as site:
            shown(f"http://127.0.0.2:{site.server_address[1]}/", tmp_path / "profile")
            assert "/" in site.requested  # the browser was there
        ours = f"{at}/api/v1/frontier/next?worker_id=ann&batch_size=10&robots=worker"
        with urllib.request.urlopen(ours, timeout=10) as answer:
            assert {"a.test", "b.test"} == {one["host"] for one in json.load(answer)["urls"]}
