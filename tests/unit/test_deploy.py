"""deploy/: alert rules and the board name metrics that the service has, and Prometheus' own tool finds no fault."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest

from unit.test_service import A, B, Served

PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool comes with Debian's package prometheus")


def exposed():
    """A page of metrics of a frontier in work, with a failure and a worker that holds a lease."""
    served = Served()
    served.add(A, B)
    lease = served.next("worker_id=ann&batch_size=2")
    served.results(lease["lease_id"], {"url": A, "status": "error", "error": "timeout"})
    return served.answer("GET", "/metrics")


def named(text):
    return set(re.findall(r"\boutrider_\w+", text))


@pytest.mark.parametrize("name", ["alerts.yml", "grafana.json"])
def test_every_metric_that_is_watched_is_exposed(project, name):
    metrics = {line.split()[2] for line in exposed().decode().splitlines() if line.startswith("# TYPE")}
    told = named((project / "deploy" / name).read_text("utf-8"))
    assert set() == {one for one in told if one not in metrics}
    assert len(told) > 5


def test_the_board_has_a_question_in_each_panel(project):
    board = json.loads((project / "deploy" / "grafana.json").read_text("utf-8"))
    assert all(panel["title"] and panel["targets"][0]["expr"] for panel in board["panels"])


def test_each_alert_has_a_line_on_the_page_that_explains_it(project):
    alerts = re.findall(r"alert: (\w+)", (project / "deploy" / "alerts.yml").read_text("utf-8"))
    page = (project / "docs" / "howto" / "watch.md").read_text("utf-8")
    assert [] == [one for one in alerts if f"`{one}`" not in page]


@needs_promtool
@pytest.mark.parametrize("words", [("check", "rules", "alerts.yml"), ("test", "rules", "alerts_test.yml")])
def test_promtool_passes_the_rules(project, words):
    done = subprocess.run([PROMTOOL, *words], cwd=project / "deploy", capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stdout + done.stderr


@needs_promtool
def test_promtool_reads_the_metrics():
    done = subprocess.run([PROMTOOL, "check", "metrics"], input=exposed(), capture_output=True, check=False)
    assert b"error" not in done.stdout + done.stderr
    assert done.returncode in (0, 3), done.stderr  # 3: advice on names


ANALYZE = shutil.which("systemd-analyze")


@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze comes with systemd")
def test_the_unit_file_of_the_page_is_one_that_systemd_reads(project, tmp_path):
    page = (project / "docs" / "operations.md").read_text("utf-8")
    unit = re.search(r"```ini\n(\[Unit\].*?)```", page, re.DOTALL)
    assert unit is not None
    file = tmp_path / "crawl.service"
    file.write_text(unit[1].replace("/opt/outrider/bin/outrider", "/bin/true"))
    told = subprocess.run([ANALYZE, "verify", str(file)], capture_output=True, text=True, check=False)
    assert (0, "") == (told.returncode, "".join(line for line in told.stderr.splitlines() if file.name in line))
    file.write_text(unit[1].replace("Restart=on-failure", "Restart=sometimes").replace("/opt/outrider", "/nowhere"))
    told = subprocess.run([ANALYZE, "verify", str(file)], capture_output=True, text=True, check=False)
    assert "sometimes" in told.stderr
