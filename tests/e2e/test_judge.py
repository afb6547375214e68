"""`outrider judge`: a polite crawler passes, and every planted fault is found by the rule that it breaks."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from random import Random

import pytest

from outrider.cli import main as cli
from outrider.crawl.setup.group_settings import machines
from outrider.sim import judge as judging
from outrider.sim.judge_web import JudgeWeb
from outrider.sim.verdict import CrawlerRun, judge

CRAWLER = Path(__file__).with_name("faulty_crawler.py")
CLOCKED = Path(__file__).with_name("clocked_outrider.py")


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
        ("request-rate ignored", "gap"),
        ("rules ignored", "closed"),
        ("storm ignored", "storm"),
    ],
)
def test_a_planted_fault_is_found(capsys, fault, rule):
    code, told = run(capsys, fault, seconds=1.5)
    assert (9, False, True) == (code, told["ok"], rule in told["rules"])


def test_a_clock_that_a_restart_forgets_is_found(capsys):
    code, told = run(capsys, "none", "--delay", "0.11", "--seconds", "6", "--restarts", "2", seconds=9.0)
    assert (9, 3) == (code, told["runs"])
    assert {"gap", "retry-after"} & set(told["rules"])


def test_a_crawler_that_fetches_nothing_or_does_not_start_is_an_error(capsys):
    for command in ([sys.executable, str(CRAWLER), "{seeds}", "nothing", "1"], ["/nowhere/crawler"]):
        assert 2 == cli.run(["judge", "--", *command])
        assert capsys.readouterr().err.startswith("outrider: ")


def test_the_command_accepts_options_of_the_crawler(capsys):
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


# -- many names, clocks ------------------------------------------------------------------------------------------------


def outrider(capsys, tmp_path, *options: str, how: str, crawl: tuple[str, ...]) -> tuple[int, dict]:
    """Judges Outrider with a delay of 0.1 s, its clock ahead by {clock}: as time that passed, or as a wrong wall."""
    crawler = [sys.executable, str(CLOCKED), how, "{clock}", "crawl", "@{seeds}", "--hosts", "{hosts}"]
    crawler += ["--delay", "0.1", "-o", str(tmp_path / "out"), *crawl]
    code = cli.run(["judge", "--json", "--delay", "0.1", *options, "--", *crawler])
    return code, json.loads(capsys.readouterr().out or "{}")


def test_many_names_on_one_address_are_judged_as_one_host(capsys):
    crawler = [sys.executable, str(CRAWLER), "{seeds}", "none", "1.5", "{hosts}"]
    code = cli.run(["judge", "--json", "--delay", "0.1", "--names", "12", "--", *crawler])
    told = json.loads(capsys.readouterr().out)
    (machine,) = [host for host in told["hosts"] if host["host"].endswith("(12 names)")]
    assert (9, {"address gap", "address at once"}) == (code, set(told["rules"]))
    assert 36 == machine["requests"]


@pytest.mark.parametrize(("clock", "rules"), [
    (("--names-at-once", "2", "--names-gap", "0.25"), {"address gap", "address at once"}),
    (("--names-at-once", "12", "--names-gap", "1"), {"address gap"}),
    (("--names-at-once", "50", "--names-gap", "0"), set()),
])  # fmt: skip
def test_a_machine_is_judged_by_the_clock_that_it_is_said_to_bear(capsys, clock, rules):
    crawler = [sys.executable, str(CRAWLER), "{seeds}", "none", "1.5", "{hosts}"]
    code = cli.run(["judge", "--json", "--delay", "0.1", "--names", "12", *clock, "--", *crawler])
    told = json.loads(capsys.readouterr().out)
    assert (9 if rules else 0, rules) == (code, set(told["rules"]))


def test_outrider_keeps_the_clock_of_shared_machines_that_is_its_default(capsys, tmp_path):
    """On loopback no address is exempt from the file; `crawl` has its clock for public addresses."""
    clock = machines().address
    groups = tmp_path / "groups.toml"
    groups.write_text(f"[address]\ncapacity = {clock.capacity}\ngap = {clock.gap}\n")
    options = (
        "--names",
        "30",
        "--names-at-once",
        str(clock.capacity),
        "--names-gap",
        str(clock.gap),
        "--seconds",
        "12",
    )
    crawl = ("--group", str(groups), "--delay-factor", "0", "--no-sitemaps")
    code, told = outrider(capsys, tmp_path, *options, how="passed", crawl=crawl)
    (machine,) = [host for host in told["hosts"] if host["host"].endswith("(30 names)")]
    assert (0, {}) == (code, told["rules"])
    assert machine["requests"] > 20
    assert machine["at_once"] <= clock.capacity


def test_the_clock_of_a_machine_is_refused_without_its_names(capsys):
    assert 2 == cli.run(["judge", "--names-gap", "1", "--", "true"])
    assert "add --names" in capsys.readouterr().err


def test_time_that_passed_brings_the_host_whose_robots_txt_fails(capsys):
    crawler = [sys.executable, str(CRAWLER), "{addresses}", "none", "2"]
    code = cli.run(["judge", "--json", "--delay", "0.1", "--seconds", "20", "--passed", "0,2d", "--", *crawler])
    told = json.loads(capsys.readouterr().out)
    assert (0, 2) == (code, told["runs"])  # this crawler requests robots.txt anew with each start, and stays out
    assert "fading.judge.test" in {host["host"] for host in told["hosts"]}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("--passed", "1d,0"), "use times that grow"),
        (("--passed", "-1"), "use times that grow"),
        (("--passed", "0,1d", "--jumps", "0,1d"), "use one of them"),
        (("--jumps", "soon"), "lengths of time with commas"),
        (("--jumps", "1d,"), "lengths of time with commas"),
        (("--jumps", "\u0661d"), "lengths of time with commas"),
        (("--jumps", "99999d"), "ten years"),
        (("--jumps", ",".join(["0"] * 102)), "lengths of time with commas"),
    ],
)
def test_clocks_that_make_no_sense_are_refused_with_words(given, words, capsys):
    assert 2 == cli.run(["judge", *given, "--", "true"])
    assert words in capsys.readouterr().err


def robots_log(*requests: tuple[float, str, int]) -> list[str]:
    lines = []
    for start, path, status in requests:
        fields = {"host": "a", "path": path, "status": status, "start": int(start * 1e6), "end": int(start * 1e6) + 1}
        robots = "User-agent: *\nDisallow: /private/\n" if path == "/robots.txt" and status == 200 else None
        more = {"at": "2026-01-01T00:00:00Z", "connection": 1, "retry_after": None, "robots": robots}
        lines.append(json.dumps({**fields, **more}) + "\n")
    return lines


@pytest.mark.parametrize(
    ("requests", "broken"),
    [
        (((0, "/robots.txt", 200), (80_000, "/", 200)), []),
        (((0, "/robots.txt", 200), (90_000, "/", 200)), ["robots age"]),
        (((0, "/robots.txt", 200), (50_000, "/robots.txt", 500), (80_000, "/", 200)), []),
        (((0, "/robots.txt", 200), (50_000, "/robots.txt", 500), (90_000, "/", 200)), ["robots age"]),
        (((0, "/robots.txt", 200), (90_000, "/robots.txt", 429), (2_000_000, "/", 200)), ["robots age"]),
        (((0, "/robots.txt", 200), (90_000, "/robots.txt", 500), (2_700_000, "/", 200)), []),
        (((0, "/robots.txt", 200), (90_000, "/robots.txt", 500), (2_700_000, "/private/x", 200)), ["closed"]),
        (((0, "/robots.txt", 200), (90_000, "/robots.txt", 404), (90_100, "/private/x", 200)), []),
    ],
)
def test_a_copy_of_robots_txt_is_valid_for_a_day_and_again_after_thirty(requests, broken, tmp_path):
    log = tmp_path / "access.log"
    log.write_text("".join(robots_log(*requests)))
    assert broken == [breach.rule for breach in judge(log, delay=1.0).broken]


@pytest.mark.parametrize(("second", "third", "broken"), [(86_500, 173_000, ["robots age"]), (90_000, 90_001, [])])
def test_a_crawl_delay_of_a_day_leaves_the_copy_of_a_turn_for_the_next_one(second, third, broken, tmp_path):
    path = "/robots.txt" if third == 90_001 else "/"
    log = tmp_path / "access.log"
    lines = robots_log((0, "/robots.txt", 200), (second, path, 200), (third, "/x", 200))
    log.write_text("".join(lines).replace("Disallow: /private/", "Crawl-delay: 86400"))
    found = [breach.rule for breach in judge(log, delay=1.0).broken]
    assert broken == [rule for rule in found if rule != "gap"]


RATE_UNITS = {"": 1, "s": 1, "m": 60, "h": 3_600}


@pytest.mark.parametrize("seed", range(8))
def test_a_rate_that_the_judge_has_never_seen_is_kept_or_broken(seed, tmp_path):
    """The rate is drawn, so that no reader of single rates passes."""
    chance = Random(seed)
    documents, time, unit = chance.randint(1, 9), chance.randint(1, 90), chance.choice(list(RATE_UNITS))
    gap = time * RATE_UNITS[unit] / documents
    lines = f"Crawl-delay: {gap / 2}\nRequest-rate: {documents}/{time}{unit} 0600-0845\nRequest-rate: 9/0"
    log = tmp_path / "access.log"
    for passed, broken in ((gap + 0.001, []), (gap - 0.001, ["gap"])):
        found = robots_log((0, "/robots.txt", 200), (passed, "/", 200))
        log.write_text("".join(found).replace("Disallow: /private/", lines.replace("\n", "\\n")))
        verdict = judge(log, delay=0.01)
        assert (broken, round(gap, 6)) == (
            [breach.rule for breach in verdict.broken],
            round(verdict.hosts["a"].required_gap, 6),
        )


def test_time_that_passed_before_a_run_counts_in_its_gaps(tmp_path):
    log = tmp_path / "access.log"
    log.write_text("".join(robots_log((0, "/robots.txt", 200), (5, "/", 200), (5.1, "/x", 200))))
    assert ["gap"] == [breach.rule for breach in judge(log, delay=1.0).broken]
    assert [] == judge(log, delay=1.0, runs=[CrawlerRun(0), CrawlerRun(5.05, 60.0)]).broken
    assert ["robots age"] == [
        one.rule for one in judge(log, delay=1.0, runs=[CrawlerRun(0), CrawlerRun(5.05, 90_000.0)]).broken
    ]


@pytest.mark.parametrize(("second", "third", "broken"), [(2.0, 4.1, []), (2.0, 3.5, ["storm"]), (1.1, 3.2, [])])
def test_a_host_that_fails_twice_is_to_be_given_twice_its_gap(second, third, broken, tmp_path):
    log = tmp_path / "access.log"
    failing = ((0, "/robots.txt", 200), (1, "/", 500), (1 + second, "/", 500), (1 + third, "/", 200))
    log.write_text("".join(robots_log(*failing)))
    assert broken == [breach.rule for breach in judge(log, delay=1.0, slack=0.01, storms=True).broken]
    assert [] == judge(log, delay=1.0, slack=0.01).broken
    runs = [CrawlerRun(0), CrawlerRun(1 + second + 0.1)]  # a failure lost in a kill cannot slow the crawler down
    assert [] == judge(log, delay=1.0, slack=0.01, storms=True, runs=runs).broken


NAMES = ("--group", "address", "--delay-factor", "0", "--no-sitemaps")


@pytest.mark.long
def test_outrider_breaks_nothing_over_ten_restarts_with_clock_jumps_and_a_thousand_names(capsys, tmp_path):
    options = ["--seconds", "420", "--restarts", "10", "--hosts", "50", "--names", "1000"]
    options += ["--jumps", "0,1d,-1d,0,2d,-3h,0,1d,-1d,0,0"]
    code, told = outrider(capsys, tmp_path, *options, how="wrong", crawl=NAMES)
    assert (0, {}, 11) == (code, told["rules"], told["runs"])
    (machine,) = [host for host in told["hosts"] if host["host"].endswith("(1000 names)")]
    assert machine["requests"] > 2_000


@pytest.mark.long
def test_outrider_avoids_a_host_for_thirty_days_and_returns_by_its_last_copy(capsys, tmp_path):
    passed = "0,2d,3d,4d,5d,36d,36.02d,36.04d,36.06d,36.08d"  # requested four times in a row, then daily
    options = ("--seconds", "100", "--passed", passed)
    code, told = outrider(capsys, tmp_path, *options, how="passed", crawl=())
    assert (0, {}, 10) == (code, told["rules"], told["runs"])
    with (tmp_path / "out" / "politeness.jsonl").open() as lines:
        asked = [line for line in map(json.loads, lines) if line["host"] == "fading.judge.test"]
    days = [datetime.fromisoformat(line["started_at"]).toordinal() for line in asked if line["kind"] == "page"]
    assert {0, 36} == {min(day - days[0], 36) for day in days}  # the last runs may be on both sides of midnight
