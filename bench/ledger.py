"""`ledger`: the cost of a record to append, write, find, scan and merge, and its bytes on disk."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bench.measuring import CACHE
from bench.tables import Table
from bench.urls import sample
from outrider.frontier.format.card_columns import Cards
from outrider.frontier.stores.ledger import Ledger
from outrider.kernels import hash_spans
from outrider.kernels.card_layout import HEAD
from outrider.storage.files import Directory

RECORDS = 200_000
BATCH = 1_000
FINDS = 300
STORE = bytes(range(16))


def tables() -> list[Table]:
    """Returns one row per step: CPU µs per record, and remarks."""
    CACHE.mkdir(parents=True, exist_ok=True)
    path = Path(tempfile.mkdtemp(prefix="ledger-", dir=CACHE))
    try:
        rows, notes = _steps(path)
    finally:
        shutil.rmtree(path, ignore_errors=True)
    return [Table("ledger", "The ledger, for each record", ("step", "records", "CPU µs"), tuple(rows), notes)]


def _steps(path: Path) -> tuple[list[tuple[object, ...]], tuple[str, ...]]:
    cards = _cards()
    batches = [cards.take(np.arange(begin, begin + BATCH)) for begin in range(0, RECORDS, BATCH)]
    ledger = Ledger.open(Directory(path), store=STORE, names=[])
    longest = 0.0
    began = time.process_time()
    for batch in batches:
        before = time.thread_time()
        ledger.append(batch)
        longest = max(longest, time.thread_time() - before)
    rows: list[tuple[object, ...]] = [(f"append, {BATCH:,} a call", RECORDS, _since(began, RECORDS))]
    asked = cards.heads[:: RECORDS // FINDS]
    rows.append(("find one, in memory", len(asked), _cpu(lambda: _find(ledger, asked), len(asked))))
    ledger.freeze()
    rows.append(("write a run", RECORDS, _cpu(ledger.write_frozen, RECORDS)))
    size = ledger.statistics().bytes
    rows.append(("find one, in a run", len(asked), _cpu(lambda: _find(ledger, asked), len(asked))))
    rows.append(("scan one run", RECORDS, _cpu(lambda: _scan(ledger), RECORDS)))
    rows.append(("scan its heads", RECORDS, _cpu(lambda: _scan_heads(ledger), RECORDS)))
    for first in range(3):
        ledger.append_heads(cards.heads[first::4])
        ledger.freeze()
        ledger.write_frozen()
    versions = ledger.statistics().records
    rows.append(("scan four runs, per version", versions, _cpu(lambda: _scan(ledger), versions)))
    rows.append(("merge four runs, per version", versions, _cpu(lambda: _merge(ledger), versions)))
    ledger.close()
    text = int(cards.heads["url_bytes"].sum()) / RECORDS
    notes = (
        f"A record needs {size / RECORDS:.1f} bytes of disk. Its URL has {text:.1f} before compression.",
        "The URLs are made, and more similar than real ones.",
        f"The longest append needed {longest * 1e3:.2f} ms of CPU.",
    )
    return rows, notes


def _since(began: float, count: int) -> float:
    return (time.process_time() - began) / count * 1e6


def _cpu(work: Callable[[], object], count: int) -> float:
    began = time.process_time()
    work()
    return _since(began, count)


def _find(ledger: Ledger, asked: np.ndarray) -> None:
    for row in range(len(asked)):
        one = asked[row : row + 1]
        here, _ = ledger.find(one["crawl"], one["slot"], one["fingerprint"])
        assert here.all()


def _scan(ledger: Ledger) -> None:
    assert sum(len(cards) for cards in ledger.scan()) == RECORDS


def _scan_heads(ledger: Ledger) -> None:
    assert sum(len(heads) for heads in ledger.scan_heads()) == RECORDS


def _merge(ledger: Ledger) -> None:
    assert ledger.merge(), "four runs, none of them beyond the size of the largest"


def _cards() -> Cards:
    urls = [b"%s?page=%d" % (url.encode(), row) for row, url in enumerate(_many())]
    hosts = [url.split(b"/", 3)[2] for url in urls]
    offsets, ends = (np.array([0, *map(len, texts)]).cumsum() for texts in (urls, hosts))
    arena = b"".join(urls)
    heads = np.zeros(RECORDS, HEAD)
    heads["fingerprint"] = np.frombuffer(hash_spans(arena, offsets[:-1], offsets[1:], STORE), np.uint64)
    heads["queue"] = np.frombuffer(hash_spans(b"".join(hosts), ends[:-1], ends[1:], STORE), np.uint64)
    heads["slot"] = heads["queue"] >> np.uint64(52)
    heads["order"], heads["state"], heads["url_bytes"] = np.arange(RECORDS), 1, np.diff(offsets)
    return Cards(heads, arena, offsets)


def _many() -> list[str]:
    some = sample(2_000)
    return [some[row % len(some)] for row in range(RECORDS)]
