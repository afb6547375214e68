"""`polite`: how close a crawl with gaps is to the rate that its hosts permit, and how late its requests are.

A made web of 1,000 hosts answers each request after 20 ms. Each host requires a second of pause after an answer, a few
of them more. So most permit one request per 1.02 s. This limit is computed from the crawl's own record of requests:
the durations of the answers plus the required gaps, divided by the same durations plus the actual gaps.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tests.e2e import localweb

from bench.measuring import CACHE, run
from bench.tables import Table, quantile

HOSTS = 1_000
WEB = ("--ips", "200", "--fanout", "20", "--locality", "0.9", "--latency", "const:0.02", "--no-log")
CONCURRENCIES = (64, 256)
SECONDS = 60
BEGINNING_SECONDS = 5.0
COUNTED_FROM_SECONDS = 10.0
COUNTED_BEFORE_END_SECONDS = 2.0


@dataclass(frozen=True)
class _Asked:
    """One request: its start in seconds since the first one, its duration, its gap and the required gap."""

    at: float
    took: float
    gap: float | None
    required: float

    @property
    def late(self) -> float:
        """Milliseconds between the earliest permitted moment and the request."""
        assert self.gap is not None
        return (self.gap - self.required) * 1e3


def tables() -> list[Table]:
    """Runs one crawl for each concurrency, or nothing without the made web in the parent folder."""
    if not localweb.available():
        print("  polite needs the reference web next to the project, which is missing", file=sys.stderr)
        return []
    CACHE.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="polite-", dir=CACHE))
    try:
        with localweb.synthetic(directory / "web", HOSTS, *WEB) as web:
            rows = [_crawl(web, directory / f"out-{concurrency}", concurrency) for concurrency in CONCURRENCIES]
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    columns = (
        "concurrency",
        "requests/s",
        "of the possible",
        "late ms, p50",
        "p99",
        f"p99 of {BEGINNING_SECONDS:.0f} s",
    )
    notes = (
        f"{HOSTS:,} hosts, a gap of 1 s or more, answers after 20 ms, {SECONDS} s, no WARC.",
        f"The rate counts from second {COUNTED_FROM_SECONDS:.0f} on.",
        f"Lateness counts after the first {BEGINNING_SECONDS:.0f} s. The next column has the p99 of these seconds.",
    )
    return [Table("polite", "Crawls with gaps", (*columns, "CPU s per 1,000", "breaches"), tuple(rows), notes)]


def _crawl(web: localweb.LocalWeb, output: Path, concurrency: int) -> tuple[object, ...]:
    command: list[str | Path] = [sys.executable, "-m", "outrider", "crawl", f"@{web.seeds}", "-o", output]
    command += ["--hosts", web.hosts, "--concurrency", str(concurrency), "--delay", "1", "--delay-factor", "0"]
    command += ["--max-seconds", str(SECONDS), "--no-warc", "--progress", "none"]
    measured = run(command, good=(0, 3))
    asked = list(_asked(output / "politeness.jsonl"))
    shutil.rmtree(output, ignore_errors=True)
    last = max(one.at for one in asked)
    span = last - COUNTED_FROM_SECONDS - COUNTED_BEFORE_END_SECONDS
    counted = [one for one in asked if COUNTED_FROM_SECONDS <= one.at < COUNTED_FROM_SECONDS + span]
    rate = len(counted) / span
    kept = [(one.took, one.required, one.gap) for one in counted if one.gap is not None]
    share = sum(took + required for took, required, _ in kept) / sum(took + gap for took, _, gap in kept)
    begin = [one.late for one in asked if one.gap is not None and one.at < BEGINNING_SECONDS]
    late = [one.late for one in asked if one.gap is not None and one.at >= BEGINNING_SECONDS]
    breaches = sum(one < 0 for one in begin + late)
    cpu = measured.cpu_seconds / len(asked) * 1e3
    print(
        f"  concurrency {concurrency}: {rate:.0f} requests/s, {share:.1%} of the possible", file=sys.stderr, flush=True
    )
    p99 = quantile(late, 0.99)
    return (concurrency, rate, f"{share:.1%}", quantile(late, 0.5), p99, quantile(begin, 0.99), cpu, breaches)


def _asked(file: Path) -> Iterator[_Asked]:
    first: float | None = None
    with file.open("rb") as lines:
        for line in lines:
            told = json.loads(line)
            at = datetime.fromisoformat(told["started_at"]).timestamp()
            first = at if first is None else min(first, at)
            yield _Asked(at - first, told["seconds"], told["gap"], told["gap_required"] or 0.0)
