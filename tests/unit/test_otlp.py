"""Metrics for an OpenTelemetry collector: the JSON of OTLP, sent by a thread without blocking other work."""

from __future__ import annotations

import http.server
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily

from outrider.errors import SettingsError
from outrider.limits import OTLP_BODIES_MAX
from outrider.service.otlp import Endpoint, Exporter, body_of


class Collector(http.server.BaseHTTPRequestHandler):
    """Stores what is posted. `status` is its answer, and no answer is sent before `let_go`."""

    def do_POST(self) -> None:
        self.server.let_go.wait(30)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.told.append((self.path, self.headers["Content-Type"], body))
        self.send_response(self.server.status)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[http.server.ThreadingHTTPServer]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    server.told, server.status, server.let_go = [], 200, threading.Event()
    server.let_go.set()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server
    server.let_go.set()
    server.shutdown()
    server.server_close()
    thread.join(10)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/metrics"),
        ("http://127.0.0.1:4318/", "http://127.0.0.1:4318/v1/metrics"),
        ("https://otel.example.org", "https://otel.example.org:443/v1/metrics"),
        ("https://otel.example.org/team/v1/metrics", "https://otel.example.org:443/team/v1/metrics"),
        ("http://[::1]:4318/x", "http://[::1]:4318/x/v1/metrics"),
    ],
)
def test_an_address_of_a_collector_is_read(text, expected):
    assert expected == str(Endpoint.of(text))


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "collector:4318",
            "ftp://a.test",
            "http://",
            "http://a.test:port",
            "http://a.test:0",
            "http://a.test:99999",
        ),
        *("http://a.test/?q", "http://a.test/#f", "http://me:secret@a.test", "http://a.test/ x", "http://\x1b[31m"),
    ],
)
def test_an_invalid_address_of_a_collector_is_refused(text):
    with pytest.raises(SettingsError, match="--otlp") as refused:
        Endpoint.of(text)
    assert "secret" not in str(refused.value)
    assert "\x1b" not in str(refused.value)


def families():
    counter = CounterMetricFamily("outrider_failures", "By class.", labels=["error"])
    counter.add_metric(["reset"], 3)
    counter.add_metric(["a\x00\ud800b"], 1)
    latency = SummaryMetricFamily("outrider_latency", "Seconds.", count_value=2, sum_value=1.5)
    empty = GaugeMetricFamily("outrider_nothing", "Not a number.", float("nan"))
    return [GaugeMetricFamily("outrider_hosts", "Hosts.", 7), counter, latency, empty]


def test_a_body_is_the_json_of_otlp():
    """Names in lowerCamelCase, 64-bit integers as strings, enums as numbers. No NaN, which JSON lacks."""
    at = 1_700_000_000_000_000_123
    told = json.loads(body_of(families(), "ab12", at), parse_constant=lambda text: pytest.fail(text))
    (resource,) = told["resourceMetrics"]
    (scope,) = resource["scopeMetrics"]
    attributes = {one["key"]: one["value"]["stringValue"] for one in resource["resource"]["attributes"]}
    assert ("outrider", "ab12") == (attributes["service.name"], attributes["service.instance.id"])
    gauge, counter, latency = scope["metrics"]
    assert {"name": "outrider_hosts", "description": "Hosts."}.items() <= gauge.items()
    assert [{"attributes": [], "timeUnixNano": str(at), "asDouble": 7.0}] == gauge["gauge"]["dataPoints"]
    assert (2, True) == (counter["sum"]["aggregationTemporality"], counter["sum"]["isMonotonic"])
    labels = [{"key": "error", "value": {"stringValue": "reset"}}]
    assert (3.0, labels) == (counter["sum"]["dataPoints"][0]["asDouble"], counter["sum"]["dataPoints"][0]["attributes"])
    assert [{"timeUnixNano": str(at), "count": "2", "sum": 1.5}] == latency["summary"]["dataPoints"]


def test_bodies_are_posted_and_a_lost_collector_is_reported_once(collector):
    said = []
    exporter = Exporter(Endpoint.of(f"http://127.0.0.1:{collector.server_port}"), said.append)
    for status, word in ((200, None), (503, "503"), (503, None), (200, "again"), (200, None)):
        collector.status, before = status, len(collector.told)
        exporter.put(b'{"resourceMetrics":[]}')
        while len(collector.told) == before:
            threading.Event().wait(0.005)
        exporter.settled()
        assert (word is None) or word in said[-1]
    exporter.close()
    assert 2 == len(said)
    assert {("/v1/metrics", "application/json", b'{"resourceMetrics":[]}')} == set(collector.told)


def test_no_call_waits_for_a_slow_or_missing_collector(collector):
    collector.let_go.clear()
    exporter = Exporter(Endpoint.of(f"http://127.0.0.1:{collector.server_port}"), lambda line: None)
    for number in range(100):
        exporter.put(str(number).encode())
    collector.let_go.set()
    exporter.close()
    bodies = [int(body) for _, _, body in collector.told]
    assert (99, sorted(bodies)) == (bodies[-1], bodies)
    assert len(bodies) <= OTLP_BODIES_MAX + 1
    said: list[str] = []
    away = Exporter(Endpoint.of("http://127.0.0.1:1"), said.append)
    away.put(b"{}")
    away.settled()
    away.close()
    (line,) = said
    assert line.startswith("outrider: metrics do not reach http://127.0.0.1:1/v1/metrics: ")


def test_a_server_sends_its_metrics_and_can_end_without_its_collector(collector, tmp_path):
    command = [sys.executable, "-m", "outrider", "serve", str(tmp_path / "crawl"), "--http", "127.0.0.1:0"]
    command += ["--otlp", f"http://127.0.0.1:{collector.server_port}", "--drain", "0"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert "serving at" in server.stderr.readline()
        while not collector.told:
            threading.Event().wait(0.02)
        collector.let_go.clear()  # from here on it sends no answers
        server.send_signal(signal.SIGTERM)
        assert 0 == server.wait(60)
    finally:
        server.kill()
        server.stderr.close()
    told = json.loads(collector.told[0][2])
    names = {metric["name"] for metric in told["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]}
    assert {"outrider_known_hosts", "outrider_fetched_urls"} <= names


@pytest.mark.parametrize("wrong", [["--otlp", "collector"], ["--otlp", "http://127.0.0.1:1"]])
def test_the_option_otlp_needs_an_address_and_a_server(wrong, tmp_path):
    command = ["crawl", "http://a.test/", "--output", str(tmp_path / "crawl"), *wrong]
    done = subprocess.run([sys.executable, "-m", "outrider", *command], capture_output=True, text=True, timeout=60)
    assert (2, True) == (done.returncode, "--otlp" in done.stderr)
    assert not (tmp_path / "crawl").exists()
