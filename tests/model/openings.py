"""One store, opened from its kept schedule and by a scan of its ledger: everything that is derived must be equal."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from functools import partial
from typing import Any

import numpy as np
import pytest

from model.world import everything_of
from outrider.engine.opening import read_store
from outrider.frontier.format.card_columns import Cards
from outrider.frontier.state import recovery
from outrider.frontier.state.replay import Window
from outrider.frontier.state.seen import contents_of
from outrider.frontier.state.tables import Tables
from outrider.frontier.state.url_table import QUEUED, WAITING
from outrider.frontier.stores.spilled_keys import SpilledKeys
from outrider.kernels.card_layout import PLANNED
from outrider.limits import SLOTS
from outrider.sim.disk import FaultyFiles
from outrider.storage.manifest import Manifest
from outrider.storage.memory import MemoryFiles


def schedules(disk: FaultyFiles) -> list[str]:
    """The names of the kept schedules on a disk."""
    return [name for name in disk.names() if name.startswith("schedule-") and name.endswith(".ckpt")]


def compare_openings(disk: FaultyFiles, **how: Any) -> bool:
    """Reads a store in both ways, and changes nothing. how: as for `read_store`. Returns whether it has a schedule that
    counts. Raises AssertionError when the two states differ."""
    manifest = Manifest.load(disk)
    if manifest is None or not schedules(disk):
        return False
    without = disk.copy()
    for name in schedules(without):
        without.remove(name)
    # Windows of a few facts carry leases, which a window of the whole log does not.
    rows = random.Random("".join(disk.names())).choice([1, 5, 30])
    kept, note = _tables(disk, manifest, partial(Window, rows_max=rows), **how)
    scanned, _ = _tables(without, manifest, Window, **how)
    assert not note, note
    used = not kept.urls.scanned
    if kept.urls.unread is not None:
        rng = random.Random(kept.urls.order)
        kept.urls.unread.read(np.array(rng.sample(range(SLOTS), 100), np.uint16))
        while kept.urls.unread is not None:
            kept.urls.unread.read_some(rng.randrange(50_000))
    assert scanned.urls.scanned
    of_kept, of_scanned = _derived(kept), _derived(scanned)
    assert of_kept.keys() == of_scanned.keys()
    for name, value in of_kept.items():
        assert value == of_scanned[name], f"{name}: kept {value}, scanned {of_scanned[name]}"
    _compare_seen(kept, scanned)
    for tables in (kept, scanned):
        tables.recall_all()
    assert everything_of(kept) == everything_of(scanned)
    for tables in (kept, scanned):
        tables.close()
    return used


def _tables(disk: FaultyFiles, manifest: Manifest, window: Any, **how: Any) -> tuple[Tables, str]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(recovery, "Window", window)
        _, tables, log, note = read_store(disk, manifest, **{"scratch": MemoryFiles(), **how})
    log.close()
    return tables, note


def _derived(tables: Tables) -> dict[str, Any]:
    """Returns everything that a recovery derives, without the order of rows. Planned URLs are one list for all
    places: a scan puts them where their records say, and the process that stopped had moved some."""
    urls, queues = tables.urls, tables.queues
    rows = np.flatnonzero(queues.there(np.arange(queues.count))).astype(np.uint32)
    rows = rows[~tables.crawls.are_gone(queues.crawl[rows])]
    for hashes in (queues.hash[rows], tables.hosts.hash[np.flatnonzero(tables.hosts.there)]):
        assert len(np.unique(hashes)) == len(hashes), "a host or queue has one row"
    planned = sorted(
        order for cards in urls.planned.unload(1_000) for order in cards.filter(~urls.void(cards.heads)).heads["order"]
    )
    backlog: dict[int, list[tuple[bytes, bytes]]] = {}
    for row in rows.tolist():
        cards = urls.backlog.drain(row, int(urls.backlog.waiting([row])[0]))
        looked_at = cards.heads["reason"] == PLANNED
        planned += cards.heads["order"][looked_at].tolist()
        backlog[int(queues.hash[row])] = _listed(cards.filter(~looked_at))
    waiting = {}
    for cards in urls.calendar.unload(1_000):
        for card in _listed(cards.filter(~urls.void(cards.heads))):
            waiting[card] = waiting.get(card, 0) + 1
    spent = {
        int(queues.hash[row]): _listed(cards.filter(~urls.void(cards.heads)))
        for row in rows.tolist()
        if len(cards := urls.spent.drain(row, 1_000_000))
    }
    leased = urls.open_leases()
    return {
        "planned": sorted(map(int, planned)),
        "backlog": {queue: cards for queue, cards in backlog.items() if cards},
        "calendar": waiting,
        "spent": {queue: cards for queue, cards in spent.items() if cards},
        "counts": _counts(urls.counts, planned),
        "counts of crawls": {row: _counts(some, planned) for row, some in urls.of_crawls.items() if any(some)},
        "queues": {
            int(queues.hash[row]): tuple(
                int(getattr(queues, name)[row])
                for name in ("parked", "done", "gone", "open", *(() if planned else ("waiting",)))
            )
            for row in rows.tolist()
        },
        "queues of crawls": {row: some for row, some in queues.of_crawls.items() if not tables.crawls.gone[row]},
        "turns of hosts": Counter(
            {tables.hosts.name(row): int(tables.hosts.in_flight[row]) for row in np.flatnonzero(tables.hosts.there)}
        ),
        "leases": sorted(zip(leased.deadlines.tolist(), leased.holders.tolist(), _listed(leased.cards), strict=True)),
        "order and token": (urls.order, tables.token, tables.now),
        "cold": len(tables.cold),
    }


def _listed(cards: Cards) -> list[tuple[bytes, bytes]]:
    offsets = cards.offsets.tolist()
    return [
        (cards.heads[row].tobytes(), cards.arena[start:end])
        for row, (start, end) in enumerate(itertools.pairwise(offsets))
    ]


def _counts(counts: Any, planned: list[int]) -> list[int]:
    found = list(counts)
    if planned:
        found[WAITING] += found[QUEUED]
        found[QUEUED] = 0
    return found


def _compare_seen(kept: Tables, scanned: Tables) -> None:
    """Compares the seen keys. URLs of deleted queues and earlier contents of a URL may be missing in both."""
    for tables, other in ((scanned, kept), (kept, scanned)):
        for cards in tables.urls.ledger.scan():
            living = cards.filter(~tables.urls.void(cards.heads))
            heads = living.heads
            assert other.urls.seen.check(heads["crawl"], heads["slot"], heads["fingerprint"]).all()
            assert all(other.urls.seen.has_contents(contents_of(living)))
    if kept.urls.voids():
        return
    here, there = kept.urls.seen.of_crawls, scanned.urls.seen.of_crawls
    for row in {*here, *there}:
        sets = [keys[row] for keys in (here, there) if row in keys]
        if not any(isinstance(keys, SpilledKeys) for keys in sets):  # its length is an upper bound
            counts = [len(keys[row]) if row in keys else 0 for keys in (here, there)]
            assert counts[0] == counts[1], f"seen in {row}: kept {counts[0]}, scanned {counts[1]}"
