"""Prometheus itself reads the metrics of a served frontier, and the alert rules of deploy/."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.parse
import urllib.request

import pytest

from servers.programs import answers, free_port, program, running, wait_for
from unit.test_deploy import exposed


@pytest.mark.parametrize("words", [("check", "rules", "alerts.yml"), ("test", "rules", "alerts_test.yml")])
def test_promtool_passes_the_rules(project, words):
    done = subprocess.run(
        [program("promtool"), *words], cwd=project / "deploy", capture_output=True, text=True, check=False
    )
    assert 0 == done.returncode, done.stdout + done.stderr


def test_promtool_reads_the_metrics():
    done = subprocess.run([program("promtool"), "check", "metrics"], input=exposed(), capture_output=True, check=False)
    assert b"error" not in done.stdout + done.stderr
    assert done.returncode in (0, 3), done.stderr  # 3: advice on names


def asked(at: str, expression: str) -> list[dict]:
    """The series that an expression has now."""
    query = urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(f"{at}/api/v1/query?{query}", timeout=10) as answer:
        return json.load(answer)["data"]["result"]


def test_prometheus_scrapes_a_served_frontier_and_loads_the_rules(project, tmp_path):
    prometheus, at, ours = program("prometheus"), free_port(), free_port()
    serve = [sys.executable, "-m", "outrider", "serve", tmp_path / "crawl", "--http", f"127.0.0.1:{ours}"]
    (tmp_path / "prometheus.yml").write_text(
        json.dumps(
            {
                "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                "rule_files": [str(project / "deploy" / "alerts.yml")],
                "scrape_configs": [
                    {"job_name": "outrider", "static_configs": [{"targets": [f"127.0.0.1:{ours}"]}]},
                ],
            }
        )
    )
    scrape = [
        prometheus,
        f"--config.file={tmp_path / 'prometheus.yml'}",
        f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address=127.0.0.1:{at}",
    ]
    url = f"http://127.0.0.1:{at}"
    with (
        running(serve, log=tmp_path / "serve.log", ready=lambda: answers(f"http://127.0.0.1:{ours}/healthz")),
        running(scrape, log=tmp_path / "prometheus.log", ready=lambda: answers(f"{url}/-/ready")),
    ):
        urls = json.dumps({"urls": ["http://a.test/", "http://b.test/"]}).encode()
        urllib.request.urlopen(
            urllib.request.Request(
                f"http://127.0.0.1:{ours}/api/v1/frontier/urls", urls, {"Content-Type": "application/json"}
            ),
            timeout=10,
        ).close()
        wait_for(
            lambda: any(one["value"][1] == "2" for one in asked(url, 'outrider_urls{state="queued"}')),
            lambda: (tmp_path / "prometheus.log").read_text(),
        )
        assert ["1"] == [one["value"][1] for one in asked(url, 'up{job="outrider"}')]
        with urllib.request.urlopen(f"{url}/api/v1/rules", timeout=10) as answer:
            (group,) = json.load(answer)["data"]["groups"]
        wait_for(lambda: asked(url, "outrider_ready_hosts") != [], lambda: (tmp_path / "prometheus.log").read_text())
    assert [] == [rule["name"] for rule in group["rules"] if rule.get("lastError")]
    assert len(group["rules"]) > 3
