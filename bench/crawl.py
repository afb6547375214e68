"""`crawl`: whole crawls by `outrider crawl` and by other crawlers, with the same web, seeds, hosts and concurrency.

Ours has its kill-safe store, and writes its WARC archive if the row says so. Pauses are off. The other crawlers store
nothing on disk. BENCH_WEB selects the web (small, medium), BENCH_ROUNDS the number of our rounds, and BENCH_PEER_ROUNDS
that of the other crawlers.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.measuring import CACHE, ROOT, ChildFailedError, Measured, run
from bench.rivals import rivals
from bench.tables import Table, middle, ratio
from bench.webs import BenchWeb, serving, serving_tls

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
PEER_ROUNDS = int(os.environ.get("BENCH_PEER_ROUNDS", "1"))
PRESET = os.environ.get("BENCH_WEB", "medium")
CONCURRENCY = 64
CRAWL_SECONDS_MAX = 900.0  # wget2 may stop within an endless web
KEPT = "import sys; from outrider.cli.main import main; sys.exit(main())"
NOT_KEPT = f"from outrider.fetch import native; native.IDLE_CONNECTION_SECONDS_MAX = 0.0; {KEPT}"
"""The programs of our crawls: `outrider`, and the same with a new connection for each page."""
OURS = {
    "outrider": ("--warc",),
    "outrider, on_page": ("--warc", "--on-page", "bench.hooked:title"),
    "outrider, on_page with a selector": ("--warc", "--on-page", "bench.hooked:selected"),
    "outrider, no WARC": ("--no-warc",),
}
"""Our crawls by name, and the options that differ."""
OURS_TLS = {"outrider, TLS": KEPT, "outrider, TLS, no connection kept": NOT_KEPT}
"""Our crawls of the same web by https with WARC, and the program of each."""


@dataclass(frozen=True)
class Crawl:
    """One crawl: its cost, the number of its answers, and their share of the required pages."""

    measured: Measured
    pages: int
    twice: int
    share: float

    @property
    def pages_per_second(self) -> float:
        return self.pages / self.measured.wall_seconds

    @property
    def cpu_per_thousand(self) -> float:
        return self.measured.cpu_seconds / self.pages * 1_000


def tables() -> list[Table]:
    """Runs all crawlers in turns. If a peer fails or is missing, it is named with the reason."""
    CACHE.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="crawl-", dir=CACHE))
    absent: list[str] = []
    try:
        with serving(directory / "web", PRESET) as web, serving_tls(PRESET) as tls:
            found: dict[str, list[Crawl]] = {name: [] for name in OURS}
            others = rivals() if PEER_ROUNDS else []  # some are compiled first, in minutes
            for row in range(max(ROUNDS, PEER_ROUNDS)):
                for name, more in OURS.items() if row < ROUNDS else ():
                    found[name].append(ours(web, directory / f"out-{row}", *more))
                for name, program in OURS_TLS.items() if tls is not None and row < ROUNDS else ():
                    crawl = ours(tls, directory / f"out-{row}", "--warc", "--ca", tls.authority, program=program)
                    found.setdefault(name, []).append(crawl)
                for one in others if row < PEER_ROUNDS else ():
                    if one.command is None:
                        absent.append(f"{one.name} is not here: {one.reason}.")
                        continue
                    place = directory / f"peer-{row}"
                    try:
                        crawl = _crawl(one.name, web, one.command(web, place, CONCURRENCY), {"PYTHONPATH": ""})
                        found.setdefault(one.name, []).append(crawl)
                    except ChildFailedError as error:
                        absent.append(f"{one.name} failed: {' '.join(str(error).split())[:160]}.")
                    shutil.rmtree(place, ignore_errors=True)
            return [_table(web, found, dict.fromkeys(absent))]
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def ours(
    web: BenchWeb,
    output: Path,
    *more: str | Path,
    parts: Path | None = None,
    program: str = KEPT,
    source: Path = ROOT / "src",
    before: Sequence[str] = (),
) -> Crawl:
    """Runs one crawl of our own. parts: a file for the CPU seconds of its parts. source: the build that crawls.
    before: the words of a program that runs it."""
    command: list[str | Path] = [*before, sys.executable]
    if parts is not None:
        command += ["-m", "bench.parts", parts]
    else:
        command += ["-c", program]
    command += ["crawl", f"@{web.seeds}", "-o", output, "--hosts", web.hosts, "--concurrency", str(CONCURRENCY)]
    command += ["--delay", "0", "--delay-factor", "0", "--progress", "none", *more]
    crawl = _crawl("outrider", web, command, {"PYTHONPATH": f"{source}{os.pathsep}{ROOT}"})
    shutil.rmtree(output, ignore_errors=True)
    return crawl


def _crawl(name: str, web: BenchWeb, command: list[str | Path], environment: dict[str, str]) -> Crawl:
    mark = web.mark()
    measured = run(command, seconds_max=CRAWL_SECONDS_MAX, environment=environment)
    got = web.got(mark)
    once = set(got)
    share = len(once & web.must_fetch) / len(web.must_fetch)
    print(
        f"  {name}: {len(got)} pages, {measured.wall_seconds:.1f} s, "
        f"{measured.cpu_seconds:.1f} CPU s, {share:.2%} of what must be fetched",
        file=sys.stderr,
        flush=True,
    )
    return Crawl(measured, len(got), len(got) - len(once), share)


def _table(web: BenchWeb, found: dict[str, list[Crawl]], absent: Iterable[str]) -> Table:
    columns = ("", "pages/s", "best", "CPU s per 1,000", "best", "peak MB", "pages", "twice", "must-fetch got")
    rows: list[tuple[object, ...]] = []
    middles: dict[str, tuple[float, float, float]] = {}
    for name, crawls in found.items():
        rates = [crawl.pages_per_second for crawl in crawls]
        costs = [crawl.cpu_per_thousand for crawl in crawls]
        peaks = [crawl.measured.peak_bytes / 1e6 for crawl in crawls]
        middles[name] = (middle(rates), middle(costs), middle(peaks))
        last = crawls[-1]
        got = f"{min(crawl.share for crawl in crawls):.2%}"
        rows.append(
            (name, middle(rates), max(rates), middle(costs), min(costs), middle(peaks), last.pages, last.twice, got)
        )
    ours = middles["outrider"]
    for name, theirs in middles.items():
        if not name.startswith("outrider"):
            against = (ratio(ours[0], theirs[0]), None, ratio(theirs[1], ours[1]), None, ratio(theirs[2], ours[2]))
            rows.append((f"against {name}", *against, None, None, None))
    hooked = ratio(middles["outrider, on_page"][1], ours[1])
    rows.append(("on_page against none", None, None, hooked, None, None, None, None, None))
    selected = ratio(middles["outrider, on_page with a selector"][1], ours[1])
    rows.append(("on_page with a selector against none", None, None, selected, None, None, None, None, None))
    notes = (
        f"On {web.title}; {ROUNDS} of ours, {PEER_ROUNDS} of each peer, in turns, medians; concurrency {CONCURRENCY}.",
        "Pages per second count from the start of the program to its end. CPU seconds are only the crawler's.",
        "The ratio is ours / theirs for pages/s, and theirs / ours for CPU and memory: more is better for us.",
        "Scrapy follows links by its LinkExtractor, the lean one by a single XPath and a set per page.",
        "on_page is a Python function that returns the title. Its ratio is CPU with it / CPU without it, at most 1.10.",
        "With one CSS selector the ratio is at most 1.60.",
        "Ours requests one page at a time per host, with robots.txt, politeness and the store. Scrapy requests eight.",
        "wget2 and spider follow only `a` elements.",
        *absent,
    )
    return Table("crawl", "Whole crawls beside others", columns, tuple(rows), notes)
