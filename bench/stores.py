"""`stores`: the cost of a durable link, in our store and in RocksDB, LMDB and SQLite, batches of 1 to 1,000.

The task is the same for all: find the new links, store them, and return when they are on disk. A database receives
fingerprints that were made before, and stores the URL under each. The frontier does more in the same
call: it parses, normalizes and hashes each URL, and queues it by host and priority. Each run has its own process and
an empty folder, and each answer waits for its sync.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

from bench.measuring import CACHE, PEERS_PYTHON, ROOT, run, sync_seconds
from bench.tables import Table, middle, ratio

BATCHES = {1: 300, 100: 20_000, 1_000: 100_000}  # URLs per call: URLs in all
STORES = ("outrider", "rocksdb", "lmdb", "sqlite")
ROUNDS = 3
CHILD = ROOT / "bench" / "stores_peer.py"


def tables() -> list[Table]:
    """Returns one row per store and batch size: CPU and wall time of a new and of a known link, bytes on disk."""
    CACHE.mkdir(parents=True, exist_ok=True)
    rows: list[tuple[object, ...]] = []
    for batch, count in BATCHES.items():
        found: dict[str, list[dict[str, float]]] = {store: [] for store in STORES}
        for _ in range(ROUNDS):
            for store in STORES:  # in turns: a slow minute of the machine affects all of them
                found[store].append(_measured(store, batch, count))
        ours = _middle(found["outrider"])
        for store in STORES:
            cells = _middle(found[store])
            rows.append(
                (
                    *(store, batch, cells["new_cpu"], cells["new_wall"], ratio(cells["new_cpu"], ours["new_cpu"])),
                    *(cells["known_cpu"], cells["known_wall"], ratio(cells["known_cpu"], ours["known_cpu"])),
                    cells["bytes"],
                )
            )
    columns = ("store", "a call", "new: CPU µs", "wall µs", "to ours", "known: CPU µs", "wall µs", "to ours", "bytes")
    notes = (
        f"Medians of {ROUNDS} rounds, per URL; one sync of this disk needs {sync_seconds(CACHE) * 1e3:.3f} ms.",
        "bytes: of the closed store on disk per URL of about 50 bytes, without preallocated space.",
        "outrider also parses, normalizes, hashes and queues each URL. The databases get finished fingerprints.",
        "rocksdb: WriteBatch with sync. lmdb: one transaction a call, synced. sqlite: WAL, synchronous=FULL.",
    )
    return [Table("stores", "A durable link in our store and in databases", columns, tuple(rows), notes)]


def _measured(store: str, batch: int, count: int) -> dict[str, float]:
    folder = Path(tempfile.mkdtemp(prefix="stores-", dir=CACHE))
    python = sys.executable if store == "outrider" else PEERS_PYTHON
    try:
        answer = folder / "answer.json"
        run([python, CHILD, store, folder / "store", batch, count, answer])
        found: dict[str, float] = json.loads(answer.read_text())
        return found
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _middle(found: list[dict[str, float]]) -> dict[str, float]:
    return {name: middle([one[name] for one in found]) for name in found[0]}
