"""A real browser opens what a crawl shows people, and a page of another site that attacks a server on loopback."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from e2e.loopback import Answer, site
from servers.programs import answers, free_port, program, running
from unit.test_report import hostile_report

SECONDS_MAX = 120
# Without these flags the browser looks for its maker's hosts at each start.
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
FLAGS += ("--disable-sync", "--disable-quic", "--no-first-run")


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


def test_a_hostile_report_runs_no_script_and_sends_no_request(tmp_path):
    with site(lambda *_: Answer(hostile_report())) as server:
        names = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
        document = shown(f"{server.root}/", tmp_path / "profile", names)
        assert {"/"} == set(server.asked) - {"/favicon.ico"}  # the browser's own wish
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
        with site(lambda *_: Answer("<!doctype html>" + page), "127.0.0.2") as elsewhere:
            shown(f"{elsewhere.root}/", tmp_path / "profile")
            assert "/" in elsewhere.asked  # the browser was there
        ours = f"{at}/api/v1/frontier/next?worker_id=ann&batch_size=10&robots=worker"
        with urllib.request.urlopen(ours, timeout=10) as answer:
            assert {"a.test", "b.test"} == {one["host"] for one in json.load(answer)["urls"]}
