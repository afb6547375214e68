"""The instructions that two builds need for the same work, as valgrind counts them: a part of `bench builds`.

A count repeats within a percent or two on a machine whose CPU seconds differ by more. It has no part for waiting or for
caches.
"""

from __future__ import annotations

import compileall
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bench import crawl
from bench.measuring import CACHE, ROOT, ChildFailedError, run
from bench.tables import Table, ratio
from bench.webs import serving

PROGRAM = "valgrind"
COUNTING = (
    "env",
    "PYTHONHASHSEED=0",
    PROGRAM,
    "--tool=cachegrind",
    "--cache-sim=no",
    "--cachegrind-out-file=/dev/null",
)
COUNTED = re.compile(r"I +refs: +([\d,]+)")
SECONDS_MAX = 1_200.0
WEB = "small"
QUEUES = 10_000
WANTS = (100, 1_000)
FEW, MANY = 10_000, 30_000
"""Two numbers of visits. What a process needs for anything else is the same with both."""
FEW_EACH, MANY_EACH = 4, 8
"""The same for URLs of each queue."""


def tables(sources: Mapping[str, Path]) -> Table:
    """Returns the instructions of each build by name for a page of a crawl, a new URL, and a lease with its report.
    If valgrind fails or is missing, the table has no rows, and says why."""
    columns = ("instructions", *sources, "ratio")
    try:
        rows, notes = _counted(sources)
    except ChildFailedError as error:
        rows, notes = (), (" ".join(str(error).split())[-400:],)
    return Table("builds.instructions", "Instructions of two builds, counted by valgrind", columns, rows, notes)


def _counted(sources: Mapping[str, Path]) -> tuple[tuple[tuple[object, ...], ...], tuple[str, ...]]:
    """Returns the rows and notes. Raises ChildFailedError."""
    if shutil.which(PROGRAM) is None:
        raise ChildFailedError(f"{PROGRAM} is not installed, so nothing was counted.")
    CACHE.mkdir(parents=True, exist_ok=True)
    for source in (*sources.values(), ROOT / "bench"):
        compileall.compile_dir(source, quiet=2)  # the first process that imports a module would compile it
    works: dict[str, Callable[[Path], float]] = {"frontier: a new URL": _new_url}
    works |= {f"frontier: lease + report, calls of {want:,}": _visits_of(want) for want in WANTS}
    rows = [_row(what, [work(source) for source in sources.values()]) for what, work in works.items()]
    with tempfile.TemporaryDirectory(prefix="instructions-", dir=CACHE) as folder:
        with serving(Path(folder) / "web", WEB) as web:
            counts = []
            for source in sources.values():
                done = crawl.ours(web, Path(folder) / "out", "--warc", source=source, before=COUNTING)
                counts.append(counted(done.measured.said) / done.pages)
            rows.append(_row("crawl: a page, with the start of the program", counts))
        title = web.title
    notes = (
        f"The frontier has {QUEUES:,} queues in memory. A visit is the difference of {FEW:,} and {MANY:,} visits,",
        f"a new URL that of {FEW_EACH} and {MANY_EACH} URLs in each queue.",
        f"The crawl is that of {title}.",
    )
    return tuple(rows), notes


def counted(said: str) -> int:
    """Returns the number of instructions in the output of the program. Raises ChildFailedError without one."""
    found = COUNTED.search(said)
    if found is None:
        raise ChildFailedError(f"{PROGRAM} counted no instructions: {said[-400:]}")
    return int(found[1].replace(",", ""))


def _row(what: str, counts: Sequence[float]) -> tuple[object, ...]:
    return (what, *map(round, counts), ratio(*counts))


def _new_url(source: Path) -> float:
    few, many = (_frontier(source, each=each, visits=0, want=1) for each in (FEW_EACH, MANY_EACH))
    return (many - few) / (QUEUES * (MANY_EACH - FEW_EACH))


def _visits_of(want: int) -> Callable[[Path], float]:
    def count(source: Path) -> float:
        few, many = (_frontier(source, each=MANY_EACH, visits=visits, want=want) for visits in (FEW, MANY))
        return (many - few) / (MANY - FEW)

    return count


def _frontier(source: Path, *, each: int, visits: int, want: int) -> int:
    sizes = ("--queues", str(QUEUES), "--each", str(each), "--visits", str(visits), "--want", str(want))
    done = run(
        [*COUNTING, sys.executable, "-m", "bench.frontier_engine", "calls", *sizes],
        environment={"PYTHONPATH": f"{source}:{ROOT}"},
        seconds_max=SECONDS_MAX,
    )
    return counted(done.said)
