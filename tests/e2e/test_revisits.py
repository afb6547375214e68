"""Crawls with a revisit rule and a rate: visits, kills, signals and wrong options, judged by the log of the server."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from e2e import crawling
from e2e.loopback import MISSING, Answer, Site, site
from outrider import Frontier
from outrider.cli.main import run

pytestmark = pytest.mark.timeout(120)

PAGES: Final = 8
RATE: Final = 8.0
FAST: Final = ("--delay", "0", "--delay-factor", "0", "--progress", "none", "--no-sitemaps")
PAGE: Final = "http://a.test/"
LETTERS: Final = str.maketrans("0123456789", "abcdefghij")
"""The digest of a text leaves out numbers, so versions are words."""


def pages(changes: Callable[[int], int]) -> Callable[[str, str], Answer]:
    """A site of pages; changes: from the number of a page to its version now."""

    def answer(host: str, target: str) -> Answer:
        if target == "/":
            return Answer("".join(f"<a href='/{number}'>{number}</a>" for number in range(PAGES)))
        if not target[1:].isdigit():
            return MISSING
        number = int(target[1:])
        name, version = (str(one).translate(LETTERS) for one in (number, changes(number)))
        return Answer(f"<title>{name}</title><p>page {name} in the version {version} of it</p>")

    return answer


def never(number: int) -> int:
    return 0


@pytest.fixture
def quiet() -> Iterator[Site]:
    with site(pages(never)) as served:
        yield served


def most_above(requests: Sequence[tuple[str, float]], rate: float) -> float:
    """By how much the requests of any stretch of time, of a minute at most, exceed the rate."""
    times = [at for _, at in requests]
    spans = [
        (last - first + 1, times[last] - times[first])
        for first in range(len(times))
        for last in range(first, len(times))
        if times[last] - times[first] <= 60
    ]
    return max((count - rate * seconds for count, seconds in spans), default=0.0)


def arguments(served: Site, output: Path, rule: str, *more: str) -> list[str]:
    return ["crawl", f"{served.root}/", "-o", str(output), "--revisit", rule, "--rate", f"{RATE:g}", *FAST, *more]


def visits(served: Site) -> Counter[str]:
    return Counter({target: count for target, count in served.asked.items() if target != "/robots.txt"})


def test_uniform_visits_all_pages_about_equally_and_the_rate_is_kept_and_used(quiet: Site, tmp_path: Path) -> None:
    seconds = 7.0
    done = crawling.outrider(*arguments(quiet, tmp_path / "out", "uniform", "--max-seconds", f"{seconds:g}"))
    assert (3, "") == (done.returncode, done.stdout), done.stderr
    counts = visits(quiet)
    assert PAGES + 1 == len(counts)
    assert max(counts.values()) - min(counts.values()) <= 2, counts
    assert most_above(quiet.requests, RATE) <= RATE + 1  # tokens of a second at most are saved
    assert counts.total() >= 0.6 * RATE * seconds, counts
    assert 0 == crawling.outrider("verify", tmp_path / "out").returncode


def test_the_rate_holds_over_an_interrupt_and_a_resumed_crawl(quiet: Site, tmp_path: Path) -> None:
    output = tmp_path / "out"
    process = crawling.started(*arguments(quiet, output, "uniform"))
    crawling.wait_for(lambda: visits(quiet).total() > 3 * PAGES, 30)
    process.send_signal(signal.SIGINT)
    assert 4 == process.wait(20)
    before = visits(quiet)
    resumed = crawling.outrider("resume", output, "--max-seconds", "4", "--progress", "none")
    assert 3 == resumed.returncode, resumed.stderr
    assert visits(quiet).total() > before.total()
    assert most_above(quiet.requests, RATE) <= RATE + 1
    status = json.loads(crawling.outrider("status", output, "--json").stdout)
    assert ("uniform", RATE, PAGES + 1) == tuple(status["revisits"][name] for name in ("rule", "rate", "planned"))
    assert status["eta_seconds"] is None


def learned(output: Path, file: Path) -> dict[str, tuple[float, int]]:
    """The change rate and the visits of each page, as an export has them."""
    done = crawling.outrider("export", output, "--to", file)
    assert 0 == done.returncode, done.stderr
    rows = crawling.lines(file)
    return {row["url"]: (row["change_rate"] or 0.0, row["visits"] or 0) for row in rows}


def test_after_a_kill_the_rate_holds_and_what_was_learned_is_kept(tmp_path: Path) -> None:
    output = tmp_path / "out"
    with site(pages(lambda number: time.monotonic_ns() if number == 0 else 0)) as served:
        process = crawling.started(*arguments(served, output, "uniform"))
        crawling.wait_for(lambda: visits(served)["/0"] >= 8, 30)
        process.kill()
        process.wait(20)
        before = learned(output, tmp_path / "before.jsonl")
        resumed = crawling.outrider("resume", output, "--max-seconds", "3", "--progress", "none")
        assert 3 == resumed.returncode, resumed.stderr
        after = learned(output, tmp_path / "after.jsonl")
        assert most_above(served.requests, RATE) <= RATE + 1
        changing, others = f"{served.root}/0", [f"{served.root}/{number}" for number in range(1, PAGES)]
    assert before[changing][0] > 2 * max(before[url][0] for url in others)
    assert after[changing][0] >= before[changing][0]
    assert all(after[url][1] >= before[url][1] for url in before)
    assert sum(count for _, count in after.values()) > sum(count for _, count in before.values())
    assert 0 == crawling.outrider("verify", output).returncode


def test_optimal_visits_a_page_that_changes_more_often_than_the_others(tmp_path: Path) -> None:
    with site(pages(lambda number: int(2 * time.monotonic()) if number == 0 else 0)) as served:
        done = crawling.outrider(*arguments(served, tmp_path / "out", "optimal", "--max-seconds", "10"))
        assert 3 == done.returncode, done.stderr
        counts = visits(served)
        assert most_above(served.requests, RATE) <= RATE + 1
    others = sum(counts[f"/{number}"] for number in range(1, PAGES)) / (PAGES - 1)
    assert counts["/0"] >= 1.4 * others, counts


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--revisit", "monthly", "--rate", "1"), ("revisit", "uniform, adaptive, halving, nutch, optimal, age")),
        (("--revisit", "Optimal", "--rate", "1"), ("revisit", "did you mean 'optimal'")),
        (("--revisit", "uniform", "--rate", "0"), ("rate", "use a number from 1e-06")),
        (("--revisit", "uniform", "--rate", "nan"), ("rate", "use a number from 1e-06")),
        (("--rate", "-1"), ("rate", "use a number from 1e-06")),
        (("--rate", "inf"), ("rate", "use a number from 1e-06")),
        (("--revisit", "optimal"), ("revisit 'optimal'", "set `rate`")),
        (("--revisit", "uniform"), ("revisit 'uniform'", "set `rate`")),
        (("--discovery-share", "0.5"), ("discovery_share", "set both")),
        (("--discovery-share", "0.5", "--rate", "1"), ("discovery_share", "set both")),
        (("--discovery-share", "2", "--rate", "1", "--revisit", "age"), ("discovery-share", "from 0 to 1")),
    ],
)
def test_wrong_options_are_refused_by_name_before_any_connection(
    quiet: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: Sequence[str], words: Sequence[str]
) -> None:
    assert 2 == run(["crawl", f"{quiet.root}/", "-o", str(tmp_path / "out"), *FAST, *options])
    message = capsys.readouterr().err
    assert all(word in message for word in words), message
    assert [] == quiet.requests
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("option", [("--revisit", "uniform"), ("--rate", "2"), ("--discovery-share", "0.5")])
def test_a_worker_is_referred_to_the_server_for_rule_and_rate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: Sequence[str]
) -> None:
    assert 2 == run(["work", "http://127.0.0.1:9", "-o", str(tmp_path / "out"), *option])
    message = capsys.readouterr().err
    assert option[0] in message
    assert "outrider serve" in message


@pytest.mark.parametrize(
    ("name", "value", "way_out"), [("catalog", "sqlite:x.db", "outrider export"), ("archive", "file:x", "stay")]
)
def test_a_worker_refuses_destinations_that_it_would_ignore(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
    way_out: str,
) -> None:
    words = ["work", "http://127.0.0.1:9", "-o", str(tmp_path / "out")]
    variable = f"OUTRIDER_{name.upper()}"
    monkeypatch.setenv(variable, value)
    assert 2 == run(words)
    message = capsys.readouterr().err
    assert variable in message
    assert way_out in message
    assert not (tmp_path / "out").exists()
    monkeypatch.delenv(variable)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "outrider.toml").write_text(f'{name} = "{value}"\n')
    assert 2 == run(words)
    assert "remove the line" in capsys.readouterr().err


def test_a_server_with_a_function_of_pages_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == run(["serve", str(tmp_path / "out"), "--http", "127.0.0.1:0", "--revisit", "os.path:join"])
    assert "outrider work" in capsys.readouterr().err


def test_a_server_plans_visits_by_its_rule(tmp_path: Path) -> None:
    options = ("--http", "127.0.0.1:0", "--revisit", "optimal", "--rate", "3", "--drain", "0")
    with subprocess.Popen(
        crawling.command("serve", tmp_path / "out", *options), stderr=subprocess.PIPE, text=True, cwd=crawling.ROOT
    ) as server:
        assert server.stderr is not None
        address = server.stderr.readline().rpartition(" ")[2].strip()
        with Frontier.connect(address) as frontier:
            frontier.discover([PAGE])
            (robots,) = frontier.lease(want=1, errands=True, wait_seconds=10)
            frontier.report([robots.robots(404)])
            (page,) = frontier.lease(want=1, errands=True, wait_seconds=10)
            frontier.report([page.done(digest=b"the page")])
            found, numbers = frontier.explain(PAGE), frontier.statistics()["revisits"]
        server.terminate()
        assert 4 == server.wait(20)
    assert ("waiting", "planned") == (found.state, found.status.reason)
    assert found.revisit is not None
    assert ("optimal", 1) == (found.revisit.rule, found.revisit.visits)
    assert ("optimal", 3.0, 1) == (numbers["rule"], numbers["rate"], numbers["planned"])
