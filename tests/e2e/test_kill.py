"""kill -9 at random moments, then resume: nothing is lost, reported twice, or requested too early."""

from __future__ import annotations

import random
import re
import signal
import subprocess
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from e2e import crawling
from outrider.engine import Frontier
from outrider.identity.merkle_tree import LineTree
from outrider.identity.signed_note import head_of
from outrider.sim.verdict import Breach, judge


def killed_again_and_again(directory: Path, rounds: int, seed: int, *, hosts: int, pages: int, delay: float) -> None:
    """Kills a crawl `rounds` times, lets it end, and checks everything that was promised."""
    chance = random.Random(seed)
    output = directory / "out"
    open_leases = 0
    with crawling.web(directory / "web", hosts=hosts, pages=pages, seed=seed) as served:
        first = crawling.on(served, output, "--delay", str(delay))
        crawl = crawling.started(*first)
        for _ in range(rounds):
            kill_after(crawl, chance.uniform(0.05, 1.2))
            open_leases += leases_open(output)
            # Before it has written its settings there is no crawl to continue.
            begun = (output / "outrider.toml").exists()
            crawl = crawling.started(*(["resume", output] if begun else first))
        assert 0 == crawl.wait(180)
        verdict = judge(served.log_file, delay=delay)
        refetched = sum(count - 1 for count in verdict.asked_often().values())
        assert [] == verdict.breaches
        assert served.web.must_fetch() == crawling.fetched(output)
        assert ([], []) == (crawling.doubled(output), crawling.final_twice(output))
        assert [] == crawling.not_kept_once(output)
        assert refetched <= open_leases, f"seed {seed}: {refetched} refetched, {open_leases} leases were open"
        assert verified(output) == ()


def wait_for_requests(log_file: Path, size: int, crawl: subprocess.Popen) -> None:
    """Waits until the crawl has sent a request, so that it is killed at work on a busy machine, too."""
    crawling.wait_for(lambda: crawl.poll() is not None or log_file.stat().st_size > size, seconds=60)


def kill_after(crawl: subprocess.Popen, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and crawl.poll() is None:
        time.sleep(0.01)
    crawl.send_signal(signal.SIGKILL)
    crawl.wait(60)


def leases_open(output: Path) -> int:
    """The leases in the store of a dead process: pages and errands."""
    if not (output / "frontier" / "manifest.json").exists():
        return 0
    frontier = Frontier.look(output / "frontier")
    try:
        statistics = frontier.statistics()
        return int(statistics["urls"]["leased"]) + int(statistics["errands"])
    finally:
        frontier.close()


def hosts_asked(output: Path) -> set[str]:
    """The hosts at which a dead process had a page open: no record can say how they answered."""
    if not (output / "frontier" / "manifest.json").exists():
        return set()
    frontier = Frontier.look(output / "frontier")
    try:
        return {urlsplit(row.url).hostname or "" for row in frontier.urls(state="leased")}
    finally:
        frontier.close()


def verified(output: Path) -> tuple[str, ...]:
    frontier = Frontier.look(output / "frontier")
    try:
        return tuple(frontier.verify().problems)
    finally:
        frontier.close()


def test_a_crawl_survives_being_killed(tmp_path):
    killed_again_and_again(tmp_path, rounds=3, seed=11, hosts=8, pages=120, delay=0.08)


def test_a_crawl_that_was_killed_says_crashed_and_looking_does_not_change_that(tmp_path):
    output = tmp_path / "out"
    with crawling.web(tmp_path / "web", hosts=3, pages=60) as served:
        crawl = crawling.started(*crawling.on(served, output, "--delay", "0.2"))
        crawling.wait_for(lambda: (output / "pages.jsonl").exists() and (output / "pages.jsonl").stat().st_size > 0)
        kill_after(crawl, 0)
    told = [crawling.outrider("status", output).stdout.splitlines()[0] for _ in range(2)]
    assert ["state       crashed"] * 2 == told


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [21, 22, 23])
def test_a_crawl_survives_being_killed_twelve_times(tmp_path, seed):
    killed_again_and_again(tmp_path, rounds=12, seed=seed, hosts=10, pages=300, delay=0.15)


def could_know(breach: Breach, *, delay: float, heard: bool) -> bool:
    """Whether a crawl could have the rule that it broke. A Retry-After or a Crawl-delay that arrived as its reader
    died was never written down; the robots.txt is then requested again after the crawl's own delay."""
    if breach.rule == "retry-after":
        return heard
    gap = re.match(r"\S+/robots\.txt at \S+: a gap of (\S+) s", breach.text) if breach.rule == "gap" else None
    return gap is None or float(gap[1]) < delay


def test_a_killed_crawl_reads_its_sitemaps_and_fetches_what_they_name(tmp_path):
    output, kills = tmp_path / "out", 3
    with crawling.web(tmp_path / "web", hosts=18, pages=180, quirks=True) as served:
        first = crawling.on(served, output, "--sitemaps", "--delay", "0.05", "--max-pages-per-host", "30")
        crawl = crawling.started(*first)
        open_leases, unheard = 0, set[str]()
        for _ in range(kills):
            before = served.log_file.stat().st_size
            wait_for_requests(served.log_file, before, crawl)
            kill_after(crawl, 0.3)
            open_leases += leases_open(output)
            unheard |= hosts_asked(output)
            begun = (output / "outrider.toml").exists()
            crawl = crawling.started(*(["resume", output] if begun else first))
        assert crawl.wait(120) in (0, 3)
        verdict = judge(served.log_file, delay=0.05)
        refetched = sum(count - 1 for count in verdict.asked_often().values())
        pages = {url for url in served.web.must_fetch() | served.web.mapped() if not url.endswith("/sitemap.xml")}
        assert set() == pages - crawling.fetched(output) - {url for url in pages if served.web.endless(url)}
        assert served.web.mapped() - served.web.must_fetch()
        broken = [(host.host, breach) for host in verdict.hosts.values() for breach in host.broken]
        assert [] == [breach for host, breach in broken if could_know(breach, delay=0.05, heard=host not in unheard)]
        assert refetched <= open_leases
        assert ([], []) == (crawling.doubled(output), crawling.final_twice(output))


@pytest.mark.parametrize("rounds", [2, pytest.param(20, marks=pytest.mark.long)])
def test_the_record_of_a_killed_crawl_is_one_chain(tmp_path: Path, rounds: int) -> None:
    """Each signed head is of the first lines of the record at its end, whatever was killed in between."""
    chance, output, me = random.Random(rounds), tmp_path / "out", tmp_path / "me"
    made = ("identity", "init", me, "--url", "https://bot.example", "--contact", "you@example.org")
    assert 0 == crawling.outrider(*made).returncode
    with crawling.web(tmp_path / "web", hosts=10, pages=60 + 20 * rounds, seed=rounds) as served:
        words = crawling.on(served, output, "--identity", str(me))
        for round_ in range(1, rounds + 1):
            assert 3 == crawling.outrider(*words, "--max-pages", str(20 * round_)).returncode
            words = ["resume", output]
            killed = crawling.started(*words, "--max-pages", str(20 * round_ + 10))
            kill_after(killed, chance.uniform(0.3, 0.8))
        assert 0 == crawling.outrider(*words, "--max-pages", "none").returncode
    lines = (output / "politeness.jsonl").read_bytes().splitlines()
    notes = [path.read_text().splitlines(keepends=True)[:-1] for path in (output / "heads").iterdir()]  # not the key
    heads = [head_of("".join(note)) for note in notes]
    assert len(heads) > rounds
    assert len(lines) == max(head.size for head in heads)
    for head in heads:
        tree = LineTree()
        tree.extend(lines[: head.size])
        assert head.root == tree.root()
    proof = tmp_path / "record.proof"
    assert 0 == crawling.outrider("politeness", output, "--proof", proof).returncode
    assert 0 == crawling.outrider("politeness", "--check", proof).returncode
