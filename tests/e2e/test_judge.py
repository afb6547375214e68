"""`outrider judge`: a polite crawler passes, and every planted fault is found by the rule that it breaks."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from outrider.cli import main as cli
from outrider.sim import judge as judging
from outrider.sim.judge import JudgeWeb

CRAWLER = Path(__file__).with_name("faulty_crawler.py")


def run(capsys, fault: str, *options: str, seconds: float = 4.0) -> tuple[int, dict]:
    crawler = [sys.executable, str(CRAWLER), "{addresses}", fault, str(seconds)]
    code = cli.run(["judge", "--json", "--delay", "0.1", "--seconds", "30", *options, "--", *crawler])
    return code, json.loads(capsys.readouterr().out or "{}")


def test_a_polite_crawler_passes(capsys, tmp_path):
    code, told = run(capsys, "none", "--page", str(tmp_path / "page.html"))
    assert (0, True, {}) == (code, told["ok"], told["rules"])
    assert set(JudgeWeb().hosts) == {host["host"] for host in told["hosts"]}
    page = (tmp_path / "page.html").read_text()
    assert "<h1>polite</h1>" in page
    assert "<script" not in page


@pytest.mark.parametrize(
    ("fault", "rule"),
    [
        ("short gap", "gap"),
        ("two at once", "at once"),
        ("retry-after ignored", "retry-after"),
        ("robots error as leave", "robots error"),
        ("crawl-delay ignored", "gap"),
        ("rules ignored", "closed"),
    ],
)
def test_a_planted_fault_is_found(capsys, fault, rule):
    code, told = run(capsys, fault)
    assert (9, False, True) == (code, told["ok"], rule in told["rules"])


def test_a_clock_that_a_restart_forgets_is_found(capsys):
    code, told = run(capsys, "none", "--delay", "0.11", "--seconds", "6", "--restarts", "2", seconds=9.0)
    assert (9, 3) == (code, told["runs"])
    assert {"gap", "retry-after"} & set(told["rules"])


def test_a_crawler_that_fetches_nothing_or_does_not_start_is_an_error(capsys):
    for command in ([sys.executable, str(CRAWLER), "{seeds}", "nothing", "1"], ["/nowhere/crawler"]):
        assert 2 == cli.run(["judge", "--", *command])
        assert capsys.readouterr().err.startswith("outrider: ")


def test_the_command_takes_options_of_the_crawler(capsys):
    crawler = [sys.executable, str(CRAWLER), "{addresses}", "none", "1.5", "--delay", "9"]
    assert 0 == cli.run(["judge", "--delay", "0.1", "--", *crawler])
    assert "polite" in capsys.readouterr().out.splitlines()[-1]


_LEADER = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
                          "print('deaf', flush=True); time.sleep(600)"], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(600)
"""


def test_a_process_that_a_crawler_started_and_that_ignores_sigterm_is_killed(monkeypatch):
    monkeypatch.setattr(judging, "GRACE_SECONDS", 0.2)
    with subprocess.Popen([sys.executable, "-c", _LEADER], stdout=subprocess.PIPE, start_new_session=True) as leader:
        assert leader.stdout is not None
        child = int(leader.stdout.readline())
        judging._end(leader, kill=False)
        assert -signal.SIGTERM == leader.returncode
        until = time.monotonic() + 30
        while _lives(child) and time.monotonic() < until:
            time.sleep(0.02)
        assert not _lives(child)


def _lives(pid: int) -> bool:
    """Whether a process runs; one that ended and waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
