"""Replay: a changed function over the archive of 1,000 pages, beside a fresh crawl with it, without gaps."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from bench.measuring import run
from bench.tables import Table
from bench.webs import serving

PAGES = 1_000
ROUNDS = 3


def _items(path: Path) -> list[str]:
    """The items without their tokens, sorted: two crawls give out other tokens."""
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return sorted(json.dumps({name: one[name] for name in one if name != "token"}) for one in found)


def tables() -> list[Table]:
    """Crawls a web with a function, crawls again with another one, and replays that one over the first archive."""
    outrider = [sys.executable, "-m", "outrider"]
    crawls, replays, same = [], [], True
    with tempfile.TemporaryDirectory() as place, serving(Path(place)) as web:
        gaps = ["--hosts", str(web.hosts), "--delay", "0", "--delay-factor", "0", "--max-pages", str(PAGES)]
        crawl = [*outrider, "crawl", f"@{web.seeds}", *gaps, "--on-page", "bench.hooked:title"]
        for number in range(ROUNDS):
            fresh = Path(place) / f"fresh{number}"
            crawls.append(run([*crawl, "-o", str(fresh)], good=(0, 3)).wall_seconds)
            again = [*outrider, "replay", str(fresh), "--on-page", "bench.hooked:title"]
            replays.append(run(again).wall_seconds)
            same = same and _items(fresh / "items.jsonl") == _items(fresh / "replayed.jsonl")
        title = web.title
    rows = (("crawl without gaps", min(crawls), 1.0), ("replay", min(replays), min(crawls) / min(replays)))
    notes = (f"{PAGES:,} pages of {title}; both with the start of their processes.",)
    notes += ("Both have the same items.",) if same else ("THE ITEMS DIFFER.",)
    return [Table("replay", "A function over known pages", ("way", "seconds", "times as fast"), rows, notes)]
