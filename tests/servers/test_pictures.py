"""Nothing is cut off on the pages of the site and on a report, on a screen and on a telephone."""

from __future__ import annotations

import runpy
import subprocess
from pathlib import Path

import pytest

from outrider.crawl.output.report import collect, render
from servers.programs import program
from unit.test_report import page, request

ROOT = Path(__file__).resolve().parents[2]
PICTURES = runpy.run_path(str(ROOT / "scripts" / "pictures.py"))


def wide_report() -> str:
    """A report with long URLs, hosts and settings."""
    long = "http://a-host-with-a-long-name.of-a-long-domain.test/" + "folder/" * 20 + "x" * 300
    pages = [page(url=f"{long}{row}", outcome="gone", status=404, referrer=long) for row in range(60)]
    pages += [page("y" * 60 + ".test"), page(outcome="robots", status=None, url=long, error="robots")]
    lines = [request("y" * 60 + ".test", row * 1.0, gap=0.9 if row else None, required=0.5) for row in range(9)]
    return render(collect(pages, lines, seeds=[long], settings=f'seeds = ["{long}"]', title="t" * 200, seconds=20.0))


def test_a_page_that_is_cut_off_is_named(tmp_path):
    browser = program("chromium")
    (tmp_path / "page.html").write_text("<!doctype html><pre style='overflow:auto'>" + "x" * 500)
    with PICTURES["served"](tmp_path) as at:
        found = PICTURES["cut_off"](browser, tmp_path, at, "page.html", 400, None)
    assert [True] == ["<pre>" in one for one in found]


def test_nothing_of_site_report_and_help_is_cut_off(tmp_path):
    browser = program("chromium")
    done = subprocess.run(["make", "docs"], cwd=ROOT, capture_output=True, text=True, timeout=280)
    if done.returncode != 0:
        pytest.fail(done.stdout + done.stderr)
    report = tmp_path / "report.html"
    report.write_text(wide_report(), "utf-8")
    assert [] == PICTURES["looked_at"](browser, ROOT / "build" / "site", report, None)
