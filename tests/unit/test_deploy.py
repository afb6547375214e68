"""deploy/: alert rules and the dashboard name metrics that the service has, with labels that they have.

The rules are checked here by their structure. tests/servers/test_prometheus.py loads them into Prometheus itself.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from unit.test_service import A, B, Served

LENGTH = re.compile(r"[0-9]+[smhd]\Z")
BESIDE = {"instance", "job"}  # labels that a scrape adds


def exposed():
    """Returns the metrics of a working frontier, with a failure, a page, a copy, and a worker that has a lease."""
    served = Served()
    served.frontier.set_robots("http://a.com", 404, b"")
    served.add(A, B, A + "2")
    lease = served.next("worker_id=ann&batch_size=2")
    served.results(lease["lease_id"], {"url": A, "status": "error", "error": "timeout"})
    served.desk._counted = None
    return served.answer("GET", "/metrics")


def families():
    return {one.name: one for one in text_string_to_metric_families(exposed().decode())}


def rules(project):
    (group,) = yaml.safe_load((project / "deploy" / "alerts.yml").read_text("utf-8"))["groups"]
    return group["rules"]


def selectors(expression):
    """Yields each metric of an expression with its label matchers and whether a range follows it."""
    found = re.findall(r"\b(outrider_\w+|up)\b(?:\{([^}]*)\})?(\[\w+\])?", expression)
    return [(name, dict(re.findall(r'(\w+)=~?"([^"]*)"', labels)), bool(span)) for name, labels, span in found]


def named(text):
    return set(re.findall(r"\boutrider_\w+", text))


@pytest.mark.parametrize("name", ["alerts.yml", "grafana.json"])
def test_every_watched_metric_is_exposed(project, name):
    metrics = {one.name for family in families().values() for one in family.samples}
    told = named((project / "deploy" / name).read_text("utf-8"))
    assert set() == {one for one in told if one not in metrics}
    assert len(told) > 5


def test_the_page_of_metrics_is_parseable_and_each_metric_has_help_a_type_and_one_prefix():
    found = families()
    assert all(name.startswith("outrider_") and one.documentation for name, one in found.items())
    assert {"gauge", "counter", "summary"} == {one.type for one in found.values()}
    samples = [(one.name, tuple(sorted(one.labels.items()))) for family in found.values() for one in family.samples]
    assert len(set(samples)) == len(samples)
    # The naming rules of Prometheus: units are base units.
    assert not [name for name in found if re.search(r"_(ms|milliseconds|kb|mb)(_total)?\Z", name)]


def test_every_metric_is_on_the_page_that_explains_metrics(project):
    page = (project / "docs" / "howto" / "watch.md").read_text("utf-8")
    told = set(re.findall(r"`(\w+?)(?:_total)?(?:\{[\w,]+\})?`", page))
    assert [] == sorted(name for name in families() if name.removeprefix("outrider_") not in told)


def test_a_rule_has_only_the_fields_that_prometheus_reads(project):
    told = rules(project)
    assert len({rule["alert"] for rule in told}) == len(told)
    for rule in told:
        assert (
            {"alert", "expr", "labels", "annotations"} <= set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        )
        assert rule["labels"]["severity"] in ("page", "warn"), rule
        assert LENGTH.match(rule.get("for", "1m")), rule
        assert all(rule["expr"].count(left) == rule["expr"].count(right) for left, right in ("()", "{}", "[]"))
        names = set(re.findall(r"\{\{ (\$[\w.]+) \}\}", rule["annotations"]["summary"]))
        assert names <= {"$value", "$labels.instance"}, rule


def test_the_labels_in_rules_and_panels_exist_and_rates_are_of_counters(project):
    board = json.loads((project / "deploy" / "grafana.json").read_text("utf-8"))
    asked = [rule["expr"] for rule in rules(project)]
    asked += [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    samples, counts = {}, set()
    for family in families().values():
        for one in family.samples:
            samples.setdefault(one.name, set()).update(one.labels)
            if family.type in ("counter", "summary"):
                counts.add(one.name)
    for expression in asked:
        assert selectors(expression), expression
        for name, labels, ranged in selectors(expression):
            assert set(labels) <= samples.get(name, set()) | BESIDE, expression
            assert not ranged or name in counts, expression
            # Only the growth of a counter is used.
            assert ranged or name not in counts, expression
        for names in re.findall(r"\bby \(([\w, ]+)\)", expression):
            known = BESIDE.union(*(samples.get(name, set()) for name, _, _ in selectors(expression)))
            assert set(names.split(", ")) <= known, expression


def test_each_alert_fires_in_a_test_of_the_rules(project):
    told = yaml.safe_load((project / "deploy" / "alerts_test.yml").read_text("utf-8"))
    cases = [case for group in told["tests"] for case in group["alert_rule_test"]]
    assert {rule["alert"] for rule in rules(project)} == {case["alertname"] for case in cases if case["exp_alerts"]}


def test_the_dashboard_has_a_question_in_each_panel(project):
    board = json.loads((project / "deploy" / "grafana.json").read_text("utf-8"))
    assert all(panel["title"] and panel["targets"][0]["expr"] for panel in board["panels"])


def test_each_alert_has_a_line_on_the_page_that_explains_it(project):
    alerts = re.findall(r"alert: (\w+)", (project / "deploy" / "alerts.yml").read_text("utf-8"))
    page = (project / "docs" / "howto" / "watch.md").read_text("utf-8")
    assert [] == [one for one in alerts if f"`{one}`" not in page]


ANALYZE = shutil.which("systemd-analyze")


@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze comes with systemd")
def test_the_unit_file_of_the_page_is_readable_for_systemd(project, tmp_path):
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
