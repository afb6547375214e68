"""A crawl of the bundled web that answers over HTTP while it runs, by the real command."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

import pytest

from e2e import crawling
from e2e.crawling import HOSTS_ON_LOOPBACK

pytestmark = HOSTS_ON_LOOPBACK
API = "/api/v1"


@pytest.fixture
def running(tmp_path):
    """A crawl of four hosts that has work for long, and its address; ended by its id."""
    with crawling.web(tmp_path / "web", hosts=4, pages=800) as served:
        flags = crawling.on(served, tmp_path / "out", "--delay", "0.2", "--http", "127.0.0.1:0")
        process = subprocess.Popen(
            crawling.command(*flags), stderr=subprocess.PIPE, text=True, cwd=crawling.ROOT, env=crawling.environment()
        )
        try:
            line = process.stderr.readline()
            assert "serving at http://127.0.0.1:" in line, line + process.stderr.read()
            yield process, line.split()[-1]
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
            process.stderr.close()


def asked(url, body=None):
    octets = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, octets, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        told = answer.read()
        return json.loads(told) if "json" in answer.headers["content-type"] else told.decode()


def until(condition):
    ends = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < ends, "it did not happen"
        time.sleep(0.02)


def test_a_crawl_answers_over_http_accepts_orders_and_ends_with_its_server(running, tmp_path):
    process, at = running
    until(lambda: asked(f"{at}{API}/stats")["fetched"] > 4)
    metrics = dict(line.rsplit(" ", 1) for line in asked(f"{at}/metrics").splitlines() if line[:1] != "#")
    assert float(metrics["outrider_fetched_urls_total"]) > 4
    status = json.loads(crawling.outrider("status", at, "--json").stdout)
    assert ("running", True) == (status["state"], status["answered"] > 4)

    host = next(one["name"] for one in asked(f"{at}{API}/hosts")["rows"] if one["queued"] > 1)
    assert {"count": 1} == asked(f"{at}{API}/hosts/{host}/pause", {})
    until(lambda: not asked(f"{at}{API}/hosts/{host}")["leased"])
    before, others = asked(f"{at}{API}/hosts/{host}"), asked(f"{at}{API}/stats")["fetched"]
    until(lambda: asked(f"{at}{API}/stats")["fetched"] > others + 4)
    after = asked(f"{at}{API}/hosts/{host}")
    assert (True, before["answered"]) == (after["paused"], after["answered"])
    assert {"count": 1} == asked(f"{at}{API}/hosts/{host}/resume", {})
    until(lambda: asked(f"{at}{API}/hosts/{host}")["answered"] > before["answered"])

    process.send_signal(signal.SIGINT)
    assert 4 == process.wait(60)
    with pytest.raises((urllib.error.URLError, socket.timeout)):
        asked(f"{at}/healthz")
    orders = [json.loads(line)["rule"] for line in (tmp_path / "out" / "audit.jsonl").read_text().splitlines()]
    assert ["pause", "resume"] == orders
    proved = crawling.outrider("verify", tmp_path / "out")
    assert 0 == proved.returncode, proved.stdout + proved.stderr
