"""`cluster`: the costs of a link to another partition, of a takeover, of an append, and of a node.

The topics of links and takeovers are in memory; appends and nodes have three brokers (`cluster_kafka.py`). A page
reports links that are new or known, to hosts of its own partition or of another one. A takeover with a directory that
ends where the changelog ends is compared with the opening of the same store.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from pathlib import Path

from bench import cluster_kafka
from bench.measuring import CACHE
from bench.tables import Table, middle, ratio
from outrider import Frontier
from outrider.cluster.counting import RecordTopic
from outrider.cluster.description import new_manifest
from outrider.cluster.owning import Owned, Partition, claim, make_ready, open_store
from outrider.sim.topic import Faults, FaultyTopic, MemoryObjects
from outrider.storage.files import Directory
from outrider.storage.memory import MemoryFiles
from outrider.url import UrlBatch

ROUNDS = 5
HOSTS = 400
LINKS = 20_000
LINKS_A_PAGE = 50
STORED = 30_000  # URLs of the store that is taken over
SETTINGS = {"delay": 0.0, "delay_factor": 0.0, "scope": "any"}


def tables() -> list[Table]:
    """Returns the costs of links, the times of an opening and a takeover, and the costs of a node on Kafka."""
    CACHE.mkdir(parents=True, exist_ok=True)
    return [_links(), _takeover(), *cluster_kafka.tables(_claimed)]


# -- links ------------------------------------------------------------------------------------------------------------


def _links() -> Table:
    partition = new_manifest("bench", 2, created="2026-01-01T00:00:00Z", random_bytes=bytes(range(48))).partition(0)
    found: dict[str, list[float]] = {}
    for round_ in range(ROUNDS):
        for name, seconds in _links_once(partition, round_).items():
            found.setdefault(name, []).append(seconds)
    costs = {name: middle(values) / LINKS * 1e6 for name, values in found.items()}
    rows = tuple(
        (kind, costs[f"own {kind}"], costs[f"other {kind}"], ratio(costs[f"other {kind}"], costs[f"own {kind}"]))
        for kind in ("new", "known")
    )
    notes = (
        f"Medians of {ROUNDS} rounds in one process, CPU µs per link; {LINKS_A_PAGE} links a page, {HOSTS} hosts each.",
        "other, known: links that were sent lately.",
    )
    return Table(
        "links", "A link to another partition", ("link", "own: CPU µs", "other: CPU µs", "to own"), rows, notes
    )


def _links_once(partition: Partition, round_: int) -> dict[str, float]:
    hosts = {"own": _hosts(partition, here=True), "other": _hosts(partition, here=False)}
    costs = {}
    for whose, names in hosts.items():
        with Frontier.open(
            MemoryFiles(), slots=partition.slots, keys=partition.keys, robots="caller", settings=SETTINGS
        ) as frontier:
            pages = LINKS // LINKS_A_PAGE
            frontier.discover([f"http://{hosts['own'][page % HOSTS]}/page/{page}" for page in range(2 * pages)])
            urls = [f"http://{names[row % HOSTS]}/{round_}/section/{row}.html" for row in range(LINKS)]
            for kind in ("new", "known"):
                costs[f"{whose} {kind}"] = _reported(frontier, pages, urls)
    return costs


def _hosts(partition: Partition, *, here: bool) -> list[str]:
    manifest = new_manifest("bench", 2, created="2026-01-01T00:00:00Z", random_bytes=bytes(range(48)))
    names = [f"host{row}.test" for row in range(4 * HOSTS)]
    numbers = manifest.partitions_of(UrlBatch.of([f"http://{name}/" for name in names])).tolist()
    return [name for name, number in zip(names, numbers, strict=True) if (number == partition.number) is here][:HOSTS]


def _reported(frontier: Frontier, pages: int, urls: list[str]) -> float:
    """Reports pages with these links. Returns the CPU seconds of the reports."""
    spent, at = 0.0, 0
    while at < len(urls):
        leases = [*frontier.lease(min(40, pages))]
        outcomes = []
        for lease in leases:
            outcomes.append(lease.done(seconds=0.0, links=UrlBatch.of(urls[at : at + LINKS_A_PAGE])))
            at += LINKS_A_PAGE
        begun = time.process_time()
        frontier.report(outcomes)
        spent += time.process_time() - begun
    return spent


# -- takeover ---------------------------------------------------------------------------------------------------------


def _takeover() -> Table:
    folder = Path(tempfile.mkdtemp(prefix="cluster-", dir=CACHE))
    try:
        partition = new_manifest("bench", 1, created="2026-01-01T00:00:00Z", random_bytes=bytes(48)).partition(0)
        topic = FaultyTopic(random.Random(1), Faults(), read_max=1_000).seen_by(lambda: None, lambda: True)
        owned, _ = _claimed(partition, topic, folder)
        for begin in range(0, STORED, 1_000):
            rows = range(begin, begin + 1_000)
            owned.frontier.discover([f"http://host{row // 10}.test/section/{row}.html" for row in rows])
        owned.give_up()
        opened, taken = [], []
        for _ in range(ROUNDS):  # in turns
            opened.append(_opening(folder))
            owned, seconds = _claimed(partition, topic, folder)
            taken.append(seconds)
            owned.give_up()
        rows = (
            ("opening", middle(opened) * 1e3, None),
            ("takeover", middle(taken) * 1e3, ratio(middle(taken), middle(opened))),
        )
        notes = (f"Medians of {ROUNDS} rounds, in turns, of one store with {STORED:,} URLs. The topic is in memory.",)
        return Table("takeover", "The takeover of a partition", ("what", "wall ms", "to opening"), rows, notes)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _opening(folder: Path) -> float:
    """Opens a copy, because an opening writes a frame that the changelog does not have. Returns the seconds."""
    copy = folder.with_name(f"{folder.name}-copy")
    shutil.copytree(folder, copy)
    try:
        begun = time.perf_counter()
        with Frontier.open(copy, settings=SETTINGS, robots="caller") as frontier:
            seconds = time.perf_counter() - begun
            assert frontier.statistics()["accepted"] == STORED
        return seconds
    finally:
        shutil.rmtree(copy)


def _claimed(partition: Partition, topic: RecordTopic, folder: Path) -> tuple[Owned, float]:
    """Claims a partition and opens its store. Returns it, and the seconds without the wait for a former owner."""
    begun = time.perf_counter()
    claimed = claim(topic, partition, None, node="bench", mark=str(begun), pause=lambda: None)
    remade = make_ready(Directory(str(folder)), partition, claimed, topic, MemoryObjects())
    owned = open_store(
        Directory(str(folder)),
        claimed,
        topic,
        tenure_seconds=10.0,
        elapsed=lambda: int(time.monotonic() * 1e6),
        pause=lambda: None,
        settings=SETTINGS,
        robots="caller",
    )
    seconds = time.perf_counter() - begun
    assert remade is (claimed.before.epoch == 0), "the directory ends where the changelog ends"
    return owned, seconds
