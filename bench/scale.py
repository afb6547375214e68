"""`scale`: seen keys in memory, beyond their memory, and in RocksDB: CPU of a check, memory, disk, false rate and wrong
answers, at 10⁷ keys or as many as `--keys` says. The figures of each set are written to `bench/results/scale-N.json`
when they are complete."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from bench.confined import confined
from bench.measuring import CACHE, PEERS_PYTHON, RESULTS, ROOT, NoRoomError, machine, run
from bench.scale_peer import BATCH, BYTES_PER_KEY, FILTER_BITS, PASS_KEYS_MAX, SAMPLE
from bench.tables import Table, ratio

KEYS = 10_000_000
SECONDS_MAX = 3_600.0
MICROSECONDS_MAX_PER_KEY = 10
DISK_BYTES_PER_KEY = {"in memory": 0, "on disk": 13, "RocksDB": 40}
"""Free space that each set needs: a merge has old and new files at once."""
PROCESS_BYTES = 200_000_000
"""Memory of a confined process in addition to that of its set: Python, numpy, a batch and its answers."""
KEYS_OF_OTHERS_MAX = 20_000_000
"""Beyond it, only the set on disk is measured."""


def tables(keys: int | None = None, memory: int | None = None) -> list[Table]:
    """Returns a row for the set in memory, for the set on disk, and for RocksDB if it is installed. memory: bytes for
    the set on disk and RocksDB. Raises NoRoomError, ChildFailedError."""
    total = keys or KEYS
    memory = memory or BYTES_PER_KEY * total
    others = ["in memory", "RocksDB"] if total <= KEYS_OF_OTHERS_MAX else []
    methods = [name for name in ("in memory", "on disk", "RocksDB") if name in ("on disk", *others)]
    if not PEERS_PYTHON.exists():
        methods = [name for name in methods if name != "RocksDB"]
    CACHE.mkdir(parents=True, exist_ok=True)
    needed, free = total * max(DISK_BYTES_PER_KEY[method] for method in methods), shutil.disk_usage(CACHE).free
    if free < needed:
        raise NoRoomError(
            f"scale: {total:,} keys need {needed / 1e9:.1f} GB in {CACHE}, and {free / 1e9:.1f} GB are free: "
            "use a smaller --keys"
        )
    found: dict[str, dict[str, float]] = {}
    for method in methods:
        found[method] = _measured(method, total, memory)
        _keep(total, memory, found)
    ours = found["on disk"]
    rows: list[tuple[object, ...]] = []
    for method, one in found.items():
        rows.append(
            (
                *(method, total, one["insertion"], one["known"], one["new"]),
                *(ratio(one[name], ours[name]) for name in ("insertion", "known", "new")),
                *(one["memory"] / 1e6, one["disk"], one["known_read"], one.get("false"), int(one["wrong"])),
            )
        )
    columns = (
        *("seen keys", "keys", "insertion µs", "known key µs", "new key µs", "to ours", "to ours", "to ours"),
        *("memory MB", "disk B a key", "B read, known", "false %", "wrong answers"),
    )
    where = "not confined"
    if ours["confined"]:
        where = "a cgroup confines the set to them and 200 MB, the others to four times as much"
    notes = (
        f"CPU time. Keys in random order, in calls of {BATCH:,}; {SAMPLE:,} known and as many new keys are checked.",
        f"On disk and RocksDB: {memory / total:.3g} bytes of memory a key; {where}. Memory: growth of the process.",
        "The pages of all files are dropped before the checks. B read: from the disk, for a check of a known key.",
        "False: new keys that the filter did not deny.",
        f"RocksDB: batches, no write-ahead log, a filter of {FILTER_BITS} bits a key, keys without values.",
    )
    return [Table("scale", "Seen keys in memory, on disk and in RocksDB", columns, tuple(rows), notes), _batched(ours)]


def _batched(ours: Mapping[str, float]) -> Table:
    """Returns the cost of keys that are checked one by one, and in one pass over all files."""
    rows = tuple(
        (
            *(name, int(ours[f"{way}_keys"]), ours[f"{way}_cpu"], ours[f"{way}_wall"]),
            *(ratio(ours[f"{way}_wall"], ours["pass_wall"]), ours[f"{way}_read"], int(ours[f"{way}_wrong"])),
        )
        for name, way in (("known, one a call", "alone"), ("in one pass", "pass"))
    )
    columns = ("keys", "checked", "CPU µs", "wall µs", "to a pass", "B read", "wrong answers")
    notes = (
        "For each key. The pages of all files are dropped before each row.",
        f"A pass compares a tenth as many keys as there are, at most {PASS_KEYS_MAX:,}, 9 of 10 known.",
    )
    return Table("scale.batched", "Keys on disk one by one, and in one pass", columns, rows, notes)


def _keep(total: int, memory: int, found: dict[str, dict[str, float]]) -> None:
    """Writes the figures that are complete."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"scale-{total}.json"
    path.write_text(json.dumps({"machine": machine(), "keys": total, "memory": memory, "sets": found}, indent=1) + "\n")
    print(f"scale: kept in {path.relative_to(ROOT)}", file=sys.stderr, flush=True)


def _measured(method: str, total: int, memory: int) -> dict[str, float]:
    folder = Path(tempfile.mkdtemp(prefix="scale-", dir=CACHE))
    limit = memory + PROCESS_BYTES
    if method != "on disk":
        limit *= 4  # the set in memory needs it, and RocksDB keeps more than the memory that it is given
    try:
        answer = folder / "answer.json"
        with confined(limit) as environment:
            python = PEERS_PYTHON if method == "RocksDB" else sys.executable
            words = [python, "-m", "bench.scale_peer", method, str(total), str(memory), folder / "keys", answer]
            seconds_max = SECONDS_MAX + MICROSECONDS_MAX_PER_KEY * total / 1e6
            run(words, seconds_max=seconds_max, environment=environment, shows_progress=True)
        found: dict[str, float] = json.loads(answer.read_text())
        return found
    finally:
        shutil.rmtree(folder, ignore_errors=True)
