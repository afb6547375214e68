"""`openings`: the CPU time of an opening after a kill, after a clean stop, and by a scan of the ledger, in turns.

    python -m bench openings [--queues N,N] [--urls N]

One store has 400 URLs on each of 10,000 hosts, another as many after ten times the log, and a third 3 on each of a
million. Each ends with a checkpoint, and leases and releases that make REPLAYED_BYTES of log. `--queues` sets other
numbers of hosts. `--urls` measures only openings after a kill instead: of a store with this number on a million hosts,
and of one with 3 on each, in turns. Each reading is a process of its own, which changes nothing in the store.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.frontier_engine import KEYS, STARTED_AT, Rests
from bench.made import batches
from bench.measuring import CACHE, ROOT
from bench.scale_peer import StepProgress
from bench.tables import Table, ratio
from outrider import Frontier
from outrider.engine.opening import read_store
from outrider.limits import KEPT_URLS_MAX, MEMORY_BYTES
from outrider.storage.files import Directory
from outrider.storage.manifest import Manifest

SIZES = ((10_000, 400, 1), (10_000, 400, 10), (1_000_000, 3, 1))
"""(hosts, URLs on each, log in multiples of that of the URLs)"""
HOSTS, FEW_EACH = 1_000_000, 3
TURNS = 3
SCHEDULES = "schedule-*.ckpt"
LEASED = 1_000
REPLAYED_BYTES = 16 << 20
"""The length of the log after the last checkpoint of each store."""


def tables(queues: Sequence[int] = (), urls: int | None = None) -> list[Table]:
    """Returns a row per store: CPU seconds of the openings, of closing with and without the file, and its bytes."""
    CACHE.mkdir(parents=True, exist_ok=True)
    sizes: Sequence[tuple[int, int, int]] = SIZES
    if queues:
        sizes = [(hosts, 3 if place else 400, 1) for place, hosts in enumerate(queues)]
    if urls is not None:
        return [_large(max(FEW_EACH, urls // HOSTS))]
    rows = []
    for size in sizes:
        path = Path(tempfile.mkdtemp(prefix="openings-", dir=CACHE))
        try:
            rows.append(_row(path, *size))
        finally:
            shutil.rmtree(path, ignore_errors=True)
    columns = (
        *("hosts", "URLs", "log MB", "replayed MB", "after a kill s", "MB", "all slots s", "scan s", "kill/scan"),
        *("checkpoint s", "stop s", "file MB", "kept s", "kept/scan"),
    )
    notes = (
        "Replayed: the part of the log after the start of the last checkpoint.",
        "CPU seconds. After a kill: the opening, and its most memory; all slots: reading all URLs later.",
        "checkpoint: one without calls since the last one; stop: the same, and the kept schedule of file MB.",
        f"Each opening: the middle one of {TURNS} readings in turns, without the bookings of hosts.",
    )
    return [
        Table("openings", "Openings after a kill, from a kept schedule, and by a scan", columns, tuple(rows), notes)
    ]


def _large(each: int) -> Table:
    """Returns a row for the few URLs, and one for these."""
    path = Path(tempfile.mkdtemp(prefix="openings-", dir=CACHE))
    try:
        stores = {size: path / str(size) for size in (FEW_EACH, each)}
        made = {
            size: _child("fill", one / "store", HOSTS, size, 1, ends=-signal.SIGKILL) for size, one in stores.items()
        }
        readings: dict[int, list[dict[str, Any]]] = {size: [] for size in stores}
        for _ in range(TURNS):
            for size, one in stores.items():
                readings[size].append(_child("open", one))
    finally:
        shutil.rmtree(path, ignore_errors=True)
    few = _middle(readings[FEW_EACH])
    rows = tuple(
        (
            *(HOSTS, HOSTS * size, made[size]["log"] / 1e6, made[size]["replayed"] / 1e6),
            *(_middle(some), ratio(_middle(some), few), _middle(some, "peak")),
        )
        for size, some in readings.items()
    )
    columns = ("hosts", "URLs", "log MB", "replayed MB", "after a kill s", "to the first", "MB")
    notes = (f"CPU seconds; the middle one of {TURNS} openings in turns. MB: the most memory of the process.",)
    return Table("openings.large", "Openings after a kill, by the number of URLs", columns, rows, notes)


def _row(path: Path, hosts: int, each: int, log: int) -> tuple[object, ...]:
    store, urls = path / "store", hosts * each
    made = _child("fill", store, hosts, each, log, ends=-signal.SIGKILL)
    killed, scanned = _readings(path, "later")
    after, slots, scan = _middle(killed), _middle(killed, "all"), _middle(scanned)
    log_megabytes, replayed_megabytes = made["log"] / 1e6, made["replayed"] / 1e6
    row = (hosts, urls, log_megabytes, replayed_megabytes, after, _middle(killed, "peak"), slots, scan, after / scan)
    stopped = _child("stop", store)
    if urls > KEPT_URLS_MAX:
        return (*row, stopped["checkpoint"], stopped["stop"], None, None, None)
    (schedule,) = store.glob(SCHEDULES)
    size = schedule.stat().st_size
    kept, scanned = _readings(path, "kept")
    return (
        *row,
        *(stopped["checkpoint"], stopped["stop"], size / 1e6, _middle(kept), _middle(kept) / _middle(scanned)),
    )


def _middle(readings: Sequence[dict[str, Any]], what: str = "seconds") -> float:
    return float(sorted(one[what] for one in readings)[TURNS // 2])


def _readings(path: Path, how: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Reads the store with and without the file next to its checkpoint, in turns."""
    (schedule,) = (path / "store").glob(SCHEDULES)
    hidden = path / schedule.name
    readings: dict[str, list[dict[str, Any]]] = {how: [], "scanned": []}
    for _ in range(TURNS):
        readings[how].append(_child("read", path))
        schedule.rename(hidden)
        readings["scanned"].append(_child("read", path))
        hidden.rename(schedule)
    for name, some in readings.items():
        assert all(one["how"] == name for one in some), readings
    return readings[how], readings["scanned"]


def _child(*words: object, ends: int = 0) -> dict[str, Any]:
    """Does this in a new process, and returns what it prints."""
    command = [sys.executable, "-m", "bench.openings", *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == ends, f"{command} ended with {done.returncode}"
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    """Does what the first argument says, and prints a JSON object."""
    what, path, *numbers = sys.argv[1:]
    if what == "fill":
        _fill(Path(path), *map(int, numbers))
    elif what == "stop":
        _stop(Path(path))
    else:
        _read(Path(path), rest=what == "read")


def _fill(store: Path, hosts: int, each: int, log: int) -> None:
    """Makes a store, and kills the process."""
    frontier: Any = Frontier.open(store, clock=Rests(), keys=KEYS, robots="caller")
    progress = StepProgress("filling", hosts * each, "URLs")
    for batch in batches(0, hosts * each, hosts):
        frontier.discover(batch)
        progress.add(len(batch))
    made = frontier._log
    _log_more(frontier, log * made.frame_bytes)
    frontier.checkpoint()
    _log_more(frontier, made.frame_bytes + REPLAYED_BYTES)
    covered = frontier.statistics()["checkpoint"]["start_lsn"]
    print(json.dumps({"log": made.frame_bytes, "replayed": made.bytes_after(covered)}), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def _log_more(frontier: Any, wanted: int) -> None:
    """Leases and releases until the log has this number of bytes."""
    while frontier._log.frame_bytes < wanted:
        leases = frontier.lease(LEASED)
        assert len(leases), "no URL is ready, so the log grows no more"
        frontier.release(leases.tokens)


def _stop(store: Path) -> None:
    """Opens a store, makes two checkpoints, and stops."""
    frontier = Frontier.open(store, clock=Rests(), keys=KEYS, robots="caller")
    frontier.statistics()  # reads all slots
    frontier.checkpoint()
    began = time.process_time()
    frontier.checkpoint()
    noted = time.process_time()
    frontier.close()
    print(json.dumps({"checkpoint": noted - began, "stop": time.process_time() - noted}))


def _read(path: Path, *, rest: bool) -> None:
    """Opens the store in a folder. Tails are written next to it. rest: reads the slots that the opening left, too."""
    files = Directory(path / "store", create=False, read_only=True)
    manifest = Manifest.load(files)
    assert manifest is not None
    began = time.process_time()
    _, restored, log, note = read_store(
        files, manifest, scratch=Directory(path / "scratch"), now=STARTED_AT, memory_bytes=MEMORY_BYTES
    )
    seconds, peak = time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    assert not note, note
    how = "scanned" if restored.urls.scanned else "kept"
    if restored.urls.unread is not None:
        how = "later"
        if rest:
            restored.urls.unread.read_all()
    print(json.dumps({"seconds": seconds, "peak": peak, "all": time.process_time() - began - seconds, "how": how}))
    restored.close()
    log.close()


if __name__ == "__main__":
    main()
