"""A served frontier over real sockets: the crawl of docs/howto/serve.md with curl alone, signals, TLS."""

from __future__ import annotations

import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest

from e2e.crawling import HOSTS_ON_LOOPBACK
from outrider import Frontier
from outrider.errors import SettingsError, UnreachableError
from servers.served import servers

pytestmark = HOSTS_ON_LOOPBACK
API = "/api/v1"


@pytest.fixture
def served(tmp_path):
    with servers() as start:

        def begun(*flags, at="127.0.0.1:0", directory=None):
            process, line = start(directory or tmp_path / "crawl", "--http", at, *flags)
            assert "serving at" in line, line
            return process, line.split()[-1]

        yield begun


def get(url, context=None, **headers):
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30, context=context) as answer:
        return json.load(answer)


def post(url, body):
    octets = json.dumps(body).encode()
    asked = urllib.request.Request(url, octets, {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=30) as answer:
        return json.load(answer)


def test_sigterm_answers_waiting_clients_accepts_results_and_ends_with_4_where_work_is_left(served):
    process, at = served("--drain", "20")
    post(f"{at}{API}/frontier/urls", {"urls": ["http://a.test/", "http://b.test/"]})
    lease = get(f"{at}{API}/frontier/next?worker_id=w")
    answers = []

    def wait():
        try:
            get(f"{at}{API}/frontier/next?worker_id=v&timeout_ms=30000")
        except urllib.error.HTTPError as error:
            answers.append((error.code, json.load(error)["type"]))

    thread = threading.Thread(target=wait)
    thread.start()
    while not get(f"{at}{API}/stats")["waiting_requests"]:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    thread.join(15)
    assert [(503, "urn:outrider:problem:closing")] == answers
    results = [{"token": one["token"], "status": "success", "http_status": 404} for one in lease["urls"]]
    assert 2 == post(f"{at}{API}/frontier/results", {"lease_id": lease["lease_id"], "results": results})["accepted"]
    assert 4 == process.wait(20)


def test_a_killed_server_has_every_answered_url_and_its_leases_continue(served):
    process, at = served()
    post(f"{at}{API}/frontier/urls", {"urls": ["http://a.test/", "http://b.test/"]})
    lease = get(f"{at}{API}/frontier/next?worker_id=w")
    process.kill()
    process.wait()
    _, at = served()
    results = [{"url": one["url"], "status": "success", "http_status": 404} for one in lease["urls"]]
    body = {"lease_id": lease["lease_id"], "results": results}
    assert ["ok", "ok"] == post(f"{at}{API}/frontier/results", body)["codes"]


def test_commands_work_while_a_frontier_is_served(served, tmp_path):
    _, at = served()
    post(f"{at}{API}/frontier/urls", {"urls": ["http://a.test/"]})
    command = [sys.executable, "-m", "outrider"]

    def said(*words):
        return json.loads(subprocess.run([*command, *words], check=True, capture_output=True, timeout=60).stdout)

    assert ("running", 1) == tuple(
        said("status", str(tmp_path / "crawl"), "--json")[name] for name in ("state", "accepted")
    )
    subprocess.run([*command, "host", str(tmp_path / "crawl"), "a.test", "pause"], check=True, timeout=60)
    assert get(f"{at}{API}/hosts/a.test")["paused"]
    (line,) = (tmp_path / "crawl" / "audit.jsonl").read_text().splitlines()
    assert ("control.sock", "pause") == tuple(json.loads(line)[name] for name in ("who", "rule"))


@pytest.mark.skipif(shutil.which("openssl") is None, reason="the certificate is made by openssl")
def test_another_address_speaks_tls_and_needs_a_token(served, tmp_path):
    certificate, key, tokens = (str(tmp_path / name) for name in ("cert.pem", "key.pem", "tokens"))
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key,
         "-out", certificate, "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"],
        check=True, capture_output=True,
    )  # fmt: skip
    with open(tokens, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        file.write("read readreadreadread\n")
    flags = ("--tls-cert", certificate, "--tls-key", key, "--tokens", tokens)
    _, at = served(*flags, at="0.0.0.0:0")
    at = at.replace("0.0.0.0", "127.0.0.1")
    context = ssl.create_default_context(cafile=certificate)
    assert at.startswith("https://")
    with pytest.raises(urllib.error.HTTPError, match="401"):
        get(f"{at}{API}/stats", context)
    assert 0 == get(f"{at}{API}/stats", context, Authorization="Bearer readreadreadread")["discovered"]
    with Frontier.connect(at, token="readreadreadread", ca=certificate) as frontier:
        assert 0 == frontier.statistics()["accepted"]
        with pytest.raises(SettingsError, match="role"):
            frontier.discover(["http://a.test/"])
    with pytest.raises(UnreachableError, match="certificate"):
        Frontier.connect(at, token="readreadreadread")
