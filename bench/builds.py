"""`builds`: the embedded crawl of this checkout and of another one, in turns, by the CPU of a page.

BENCH_OTHER is the folder of the other checkout, with its native kernels built in its `src`. For another commit:

    git worktree add ../other COMMIT
    (cd ../other && VIRTUAL_ENV=$OLDPWD/.venv $OLDPWD/.venv/bin/maturin develop --release --locked --skip-install)
    BENCH_OTHER=../other BENCH_ROUNDS=15 python -m bench builds

BENCH_WEB selects the web (small, medium), and BENCH_ROUNDS the number of crawls of each.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from bench import crawl
from bench.measuring import CACHE, ROOT
from bench.tables import Table, middle
from bench.webs import serving

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "9"))
HERE, OTHER = "this build", "the other one"


def tables() -> list[Table]:
    """Crawls in turns; nothing if no other checkout is named."""
    other = os.environ.get("BENCH_OTHER")
    if not other:
        return []
    sources = {HERE: ROOT / "src", OTHER: Path(other).resolve() / "src"}
    CACHE.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="builds-", dir=CACHE))
    try:
        found: dict[str, list[crawl.Crawl]] = {name: [] for name in sources}
        with serving(folder / "web", crawl.PRESET) as web:
            for turn in range(ROUNDS):
                for name in [*sources][:: -1 if turn % 2 else 1]:  # each is the first of half of the turns
                    found[name].append(crawl.ours(web, folder / "out", "--warc", source=sources[name]))
            title = web.title
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    costs = {name: [one.cpu_per_thousand for one in some] for name, some in found.items()}
    turns = middle([here / there for here, there in zip(costs[HERE], costs[OTHER], strict=True)])
    best = min(costs[HERE]) / min(costs[OTHER])
    rows = (
        *((name, middle(some), min(some)) for name, some in costs.items()),
        ("this build to the other one", f"{turns:.3f}x", f"{best:.3f}x"),
    )
    notes = (f"On {title}; {ROUNDS} crawls each, in turns. The ratio is the median of the ratios of all turns.",)
    return [Table("builds", "The embedded crawl of two builds", ("", "CPU s per 1,000", "best"), rows, notes)]
