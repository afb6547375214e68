"""`builds`: this checkout and another one, in turns: the embedded crawl by the CPU of a page, the frontier by that
of a URL, and DRUM by that of a link; and the instructions of both, which valgrind counts.

BENCH_OTHER is the folder of the other checkout, with its native kernels built in its `src`. For another commit:

    git worktree add ../other COMMIT
    (cd ../other && VIRTUAL_ENV=$OLDPWD/.venv $OLDPWD/.venv/bin/maturin develop --release --locked --skip-install)
    BENCH_OTHER=../other BENCH_ROUNDS=15 python -m bench builds

BENCH_WEB selects the web (small, medium), BENCH_ROUNDS the number of rounds, and BENCH_BUILDS some of the parts (crawl,
frontier, drum, instructions).
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

from bench import crawl, instructions
from bench.frontier import child_directory
from bench.measuring import CACHE, ROOT, run
from bench.tables import Table, middle
from bench.webs import serving

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "9"))
HERE, OTHER = "this build", "the other one"
Measured = TypeVar("Measured")
FRONTIER = ("--queues", "10000", "--each", "8", "--visits", "20000", "--bare")
"""A frontier that is small enough for many rounds; `bench.frontier_engine` explains it."""
LINKS = (
    (10_000_000, 32, 0, 100_000),
    (10_000_000, 32, 110, 100_000),
    (3_000_000, 4, 110, 1_000),
    (3_000_000, 32, 0, 1_000),
)
"""Links, megabytes of memory, bytes of their text, links of a call."""
CHILD_SECONDS_MAX = 300.0


def tables() -> list[Table]:
    """Measures in turns; nothing if no other checkout is named."""
    other = os.environ.get("BENCH_OTHER")
    if not other:
        return []
    sources = {HERE: ROOT / "src", OTHER: Path(other).resolve() / "src"}
    CACHE.mkdir(parents=True, exist_ok=True)
    parts = {"crawl": _crawls, "frontier": frontiers, "drum": _drums, "instructions": instructions.tables}
    return [parts[part](sources) for part in os.environ.get("BENCH_BUILDS", ",".join(parts)).split(",")]


def _crawls(sources: Mapping[str, Path]) -> Table:
    folder = Path(tempfile.mkdtemp(prefix="builds-", dir=CACHE))
    try:
        with serving(folder / "web", crawl.PRESET) as web:
            found = _in_turns(sources, lambda source: crawl.ours(web, folder / "out", "--warc", source=source))
            title = web.title
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    costs = {name: [one.cpu_per_thousand for one in some] for name, some in found.items()}
    rows = (
        *((name, middle(some), min(some)) for name, some in costs.items()),
        ("this build to the other one", *_ratios(costs)),
    )
    notes = (f"On {title}; {ROUNDS} crawls each, in turns. The ratio is the median of the ratios of all turns.",)
    return Table("builds", "The embedded crawl of two builds", ("", "CPU s per 1,000", "best"), rows, notes)


def frontiers(sources: Mapping[str, Path]) -> Table:
    """Measures crawls with the usual order: a lease and a report of each URL, in memory and on the disk."""
    rows: list[tuple[object, ...]] = []
    for place in ("memory", "disk"):
        found = _in_turns(sources, partial(_visits, on_disk=place == "disk"))
        for visit in found[HERE][0]:
            costs = {name: [one[visit] for one in some] for name, some in found.items()}
            rows.append((f"{place}, {visit}", *(middle(some) for some in costs.values()), *_ratios(costs)))
    notes = (
        f"10,000 queues; {ROUNDS} rounds each, in turns. The ratio is the median of the ratios of all turns.",
        "The last column compares the best rounds.",
    )
    columns = ("CPU µs per URL", HERE, OTHER, "this build to the other one", "best")
    return Table("builds.frontier", "The frontier of two builds: lease and report", columns, tuple(rows), notes)


def _visits(source: Path, *, on_disk: bool) -> dict[str, float]:
    """Returns the CPU microseconds of a URL for each way to visit."""
    with child_directory() as directory:
        out = directory / "found.json"
        where = ("--directory", directory / "frontier") if on_disk else ()
        run(
            [sys.executable, "-m", "bench.frontier_engine", "visit", *FRONTIER, *where, "--out", out],
            environment={"PYTHONPATH": f"{source}:{ROOT}"},
            seconds_max=CHILD_SECONDS_MAX,
        )
        found = json.loads(out.read_text(encoding="utf-8"))
    costs = {"all ready": found["all_ready"]["cpu"] * 1e6}
    return costs | {f"calls of {one['want']:,}": one["cpu"] * 1e6 for one in found["visits"]}


def _drums(sources: Mapping[str, Path]) -> Table:
    rows: list[tuple[object, ...]] = []
    for links, memory, payload, batch in LINKS:
        found = _in_turns(sources, partial(_drum, links=links, memory=memory, payload=payload, batch=batch))
        for part in found[HERE][0]:
            costs = {name: [one[part] for one in some] for name, some in found.items()}
            what = f"{part}: {links:,} links, {memory} MB, {payload} B each, calls of {batch:,}"
            rows.append((what, *(middle(some) for some in costs.values()), *_ratios(costs)))
    notes = (f"One of ten links is new; {ROUNDS} rounds each, in turns. Ratios as for the frontier.",)
    columns = ("CPU µs per link", HERE, OTHER, "this build to the other one", "best")
    return Table("builds.drum", "DRUM of two builds", columns, tuple(rows), notes)


def _drum(source: Path, *, links: int, memory: int, payload: int, batch: int) -> dict[str, float]:
    """Returns the CPU microseconds of a link for requests and for merges."""
    with child_directory() as directory:
        out = directory / "found.json"
        words = [links, memory << 20, payload, batch, directory / "keys", out]
        run(
            [sys.executable, "-m", "bench.drum_peer", *map(str, words)],
            environment={"PYTHONPATH": f"{source}:{ROOT}"},
            seconds_max=CHILD_SECONDS_MAX,
        )
        found: dict[str, float] = json.loads(out.read_text(encoding="utf-8"))
    return found


def _in_turns(sources: Mapping[str, Path], measure: Callable[[Path], Measured]) -> dict[str, list[Measured]]:
    found: dict[str, list[Measured]] = {name: [] for name in sources}
    for turn in range(ROUNDS):
        for name in [*sources][:: -1 if turn % 2 else 1]:  # each is the first of half of the turns
            found[name].append(measure(sources[name]))
    return found


def _ratios(costs: Mapping[str, list[float]]) -> tuple[str, str]:
    """Returns the median ratio of all turns, and that of the best ones."""
    turns = middle([here / there for here, there in zip(costs[HERE], costs[OTHER], strict=True)])
    return f"{turns:.3f}x", f"{min(costs[HERE]) / min(costs[OTHER]):.3f}x"
