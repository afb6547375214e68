"""`crawl`: whole crawls by `outrider crawl` beside Scrapy's; the same web, seeds, hosts and concurrency, in turns.

Ours writes its WARC archive and its kill-safe store, with pauses off; Scrapy keeps nothing but what is in its memory.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench.measuring import CACHE, PEERS_PYTHON, ROOT, Measured, run
from bench.tables import Table, middle, ratio
from bench.webs import BenchWeb, serving

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
PRESET = os.environ.get("BENCH_WEB", "small")
CONCURRENCY = 64
CRAWL_SECONDS_MAX = 600.0
OURS = {
    "outrider": ("--warc",),
    "outrider, on_page": ("--warc", "--on-page", "bench.hooked:title"),
    "outrider, no WARC": ("--no-warc",),
}
"""Our crawls by name, and the options in which they differ."""


@dataclass(frozen=True)
class Crawl:
    """One crawl: its price, how many answers it got, and their share of the pages that it had to get."""

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
    """Runs both in turns, after one crawl of each that is not counted where the web was not read yet."""
    if not PEERS_PYTHON.exists():
        return [Table("crawl", "Whole crawls", ("crawler",), (), ("No .venv-bench here: make bench makes it.",))]
    CACHE.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="crawl-", dir=CACHE))
    try:
        with serving(directory / "web", PRESET) as web:
            found: dict[str, list[Crawl]] = {name: [] for name in (*OURS, "scrapy", "scrapy, lean")}
            for row in range(ROUNDS):
                for name, more in OURS.items():
                    found[name].append(ours(web, directory / f"out-{row}", *more))
                found["scrapy"].append(_theirs(web))
                found["scrapy, lean"].append(_theirs(web, "--lean"))
            return [_table(web, found)]
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def ours(web: BenchWeb, output: Path, *more: str, parts: Path | None = None) -> Crawl:
    """One crawl of our own. parts: a file for the CPU seconds of its parts."""
    command: list[str | Path] = [sys.executable]
    if parts is not None:
        command += ["-m", "bench.parts", parts]
    else:
        command += ["-c", "import sys; from outrider.cli.main import main; sys.exit(main())"]
    command += ["crawl", f"@{web.seeds}", "-o", output, "--hosts", web.hosts, "--concurrency", str(CONCURRENCY)]
    command += ["--delay", "0", "--delay-factor", "0", "--progress", "none", *more]
    crawl = _crawl(web, command, {"PYTHONPATH": str(ROOT)})
    shutil.rmtree(output, ignore_errors=True)
    return crawl


def _theirs(web: BenchWeb, *how: str) -> Crawl:
    command: list[str | Path] = [PEERS_PYTHON, ROOT / "bench" / "scrapy_peer.py", "--seeds", web.seeds]
    command += ["--hosts", web.hosts, "--concurrency", str(CONCURRENCY), *how]
    return _crawl(web, command, {"PYTHONPATH": ""})


def _crawl(web: BenchWeb, command: list[str | Path], environment: dict[str, str]) -> Crawl:
    mark = web.mark()
    measured = run(command, seconds_max=CRAWL_SECONDS_MAX, environment=environment)
    got = web.got(mark)
    once = set(got)
    share = len(once & web.must_fetch) / len(web.must_fetch)
    print(
        f"  {Path(str(command[0])).parts[-3]}: {len(got)} pages, {measured.wall_seconds:.1f} s, "
        f"{measured.cpu_seconds:.1f} CPU s, {share:.2%} of what must be fetched",
        file=sys.stderr,
        flush=True,
    )
    return Crawl(measured, len(got), len(got) - len(once), share)


def _table(web: BenchWeb, found: dict[str, list[Crawl]]) -> Table:
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
        if name not in OURS:
            against = (ratio(ours[0], theirs[0]), None, ratio(theirs[1], ours[1]), None, ratio(theirs[2], ours[2]))
            rows.append((f"against {name}", *against, None, None, None))
    hooked = ratio(middles["outrider, on_page"][1], ours[1])
    rows.append(("on_page against none", None, None, hooked, None, None, None, None, None))
    notes = (
        f"On {web.title}; {len(found['outrider'])} of each in turns, medians; concurrency {CONCURRENCY}.",
        "Pages a second count from the start of the program to its end; CPU seconds are the crawler's alone.",
        "The ratio is ours over theirs for pages/s and theirs over ours for CPU and memory: more is better for us.",
        "Scrapy follows links by its LinkExtractor; the lean one by a single XPath and a set for each page.",
        "on_page is a Python function that returns the title; its ratio is CPU with it over CPU without, at most 1.10.",
        "Ours asks a host for one page at a time and has WARC and the kill-safe store on; Scrapy asks for eight.",
    )
    return Table("crawl", "Whole crawls beside Scrapy", columns, tuple(rows), notes)
