"""`openings`: the CPU time of an opening from a kept schedule and by a scan of the ledger, in turns.

    python -m bench openings [--queues N,N]

One store has 400 URLs on each of 10,000 hosts, the other 3 on each of a million; `--queues` sets other numbers of hosts
for both. Each reading is a process of its own, which changes nothing in the store.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.frontier_engine import KEYS, STARTED_AT, Rests
from bench.made import batches
from bench.measuring import CACHE, ROOT
from bench.tables import Table
from outrider import Frontier
from outrider.engine.opening import read_store
from outrider.limits import MEMORY_BYTES
from outrider.storage.files import Directory
from outrider.storage.manifest import Manifest

SIZES = ((10_000, 400), (1_000_000, 3))
TURNS = 3
SCHEDULES = "schedule-*.ckpt"


def tables(queues: Sequence[int] = ()) -> list[Table]:
    """Returns a row per store: CPU seconds of closing with and without the file, of both openings, and bytes."""
    CACHE.mkdir(parents=True, exist_ok=True)
    sizes = [(hosts, each) for hosts, (_, each) in zip(queues, SIZES, strict=False)] or SIZES
    rows = []
    for hosts, each in sizes:
        path = Path(tempfile.mkdtemp(prefix="openings-", dir=CACHE))
        try:
            rows.append(_row(path, hosts, each))
        finally:
            shutil.rmtree(path, ignore_errors=True)
    columns = ("hosts", "URLs", "checkpoint s", "stop s", "file MB", "B a URL", "kept s", "scan s", "kept/scan")
    notes = (
        "CPU seconds. checkpoint: one without calls since the last one; stop: the same, and the kept schedule.",
        f"kept, scan: the middle one of {TURNS} readings in turns, without the bookings of hosts.",
    )
    return [Table("openings", "Openings from a kept schedule and by a scan", columns, tuple(rows), notes)]


def _row(path: Path, queues: int, each: int) -> tuple[object, ...]:
    store, urls = path / "store", queues * each
    frontier = Frontier.open(store, clock=Rests(), keys=KEYS, robots="caller")
    for batch in batches(0, urls, queues):
        frontier.discover(batch)
    frontier.checkpoint()
    began = time.process_time()
    frontier.checkpoint()
    noted = time.process_time()
    frontier.close()
    stopped = time.process_time()
    (schedule,) = store.glob(SCHEDULES)
    size, hidden = schedule.stat().st_size, path / schedule.name
    kept, scanned = [], []
    for _ in range(TURNS):
        kept.append(_read(path, scans=False))
        schedule.rename(hidden)
        scanned.append(_read(path, scans=True))
        hidden.rename(schedule)
    one, other = sorted(kept)[TURNS // 2], sorted(scanned)[TURNS // 2]
    return queues, urls, noted - began, stopped - noted, size / 1e6, size / urls, one, other, one / other


def _read(path: Path, *, scans: bool) -> float:
    """Reads the store in a new process, and returns the CPU seconds."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.openings", str(path)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    result = json.loads(done.stdout)
    assert result["scanned"] is scans, result
    return float(result["seconds"])


def main() -> None:
    """Reads the store in a folder, and prints the CPU seconds and whether it scanned. Tails are written next to it."""
    path = Path(sys.argv[1])
    scratch = path / "scratch"
    files = Directory(path / "store", create=False, read_only=True)
    manifest = Manifest.load(files)
    assert manifest is not None
    began = time.process_time()
    _, restored, log, note = read_store(
        files, manifest, scratch=Directory(scratch), now=STARTED_AT, memory_bytes=MEMORY_BYTES
    )
    seconds = time.process_time() - began
    assert not note, note
    print(json.dumps({"seconds": seconds, "scanned": restored.urls.scanned}))
    restored.close()
    log.close()


if __name__ == "__main__":
    main()
