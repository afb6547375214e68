"""Measures a cluster on three real brokers: an append against a bare producer, and a node against the embedded crawl.

The brokers are those of the tests. Their CPU time is not in the figures: both sides are the process under measurement.
"""

from __future__ import annotations

import importlib
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import crawl
from bench.measuring import CACHE, ROOT
from bench.tables import Table, middle, quantile, ratio
from bench.webs import BenchWeb, serving
from outrider.cluster.counting import RecordTopic
from outrider.cluster.description import new_manifest, read_cluster_file
from outrider.cluster.kafka import Brokers
from outrider.cluster.owning import Owned, Partition

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
PRESET = os.environ.get("BENCH_WEB", "medium")
PARTITIONS = 64
APPENDS = 300
LIBRARIES = ROOT / "target" / "kafka"
INSTALL = "the libraries of Kafka are missing: `make test-servers` gets them (Java 17, Maven)"

Claim = Callable[[Partition, RecordTopic, Path], tuple[Owned, float]]


def tables(claim: Claim) -> list[Table]:
    """Returns both tables; one with the reason if Kafka is not available. claim: claims a partition and opens it."""
    if shutil.which("java") is None or not LIBRARIES.is_dir():
        return [Table("node", "A node on Kafka", ("what",), (), (f"Not measured: {INSTALL}.",))]
    sys.path.insert(0, str(ROOT / "tests"))  # the brokers of the tests
    kafka: Any = importlib.import_module("servers.kafka").Kafka
    folder = Path(tempfile.mkdtemp(prefix="kafka-", dir=CACHE))
    try:
        with kafka(folder / "brokers") as brokers:
            return [_appends(folder, brokers.address, claim), _nodes(folder, brokers.address)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# -- appends ----------------------------------------------------------------------------------------------------------


def _appends(folder: Path, address: str, claim: Claim) -> Table:
    """Adds one URL with each call to a partition, and sends a record of the same size by a bare producer."""
    brokers = Brokers(read_cluster_file(str(_cluster_file(folder, "appends", address))), client="bench")
    try:
        brokers.make_topics(1)
        partition = new_manifest("appends", 1, created="2026-01-01T00:00:00Z", random_bytes=bytes(48)).partition(0)
        owned, _ = claim(partition, brokers.changelog(0), folder / "store")
        frame = 200 + len("http://host1000.test/")
        produce = _bare(address, brokers.file.topic("dead"), bytes(frame))
        ours: list[float] = []
        theirs: list[float] = []
        for row in range(APPENDS):
            ours.append(_seconds(lambda row=row: owned.frontier.discover([f"http://host{row}.test/"])))
            theirs.append(_seconds(produce))
        owned.give_up()
    finally:
        brokers.close()
    rows = tuple(
        (
            name,
            quantile(ours, share) * 1e3,
            quantile(theirs, share) * 1e3,
            ratio(quantile(ours, share), quantile(theirs, share)),
        )
        for name, share in (("p50", 0.5), ("p95", 0.95))
    )
    notes = (
        f"{APPENDS} calls each, in turns, wall ms. Ours is a whole `discover` of one URL: decision, disk and topic.",
        "Bare: a record of the same size by confluent-kafka alone. Both with acks=all on three brokers.",
    )
    return Table(
        "append", "An append to a changelog on Kafka", ("", "a partition", "bare producer", "to bare"), rows, notes
    )


def _seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def _bare(address: str, topic: str, record: bytes) -> Callable[[], None]:
    """Returns a function that sends a record and waits until all brokers have it."""
    library: Any = importlib.import_module("confluent_kafka")
    producer = library.Producer({"bootstrap.servers": address, "acks": "all", "linger.ms": 0})

    def produce() -> None:
        over = threading.Event()
        producer.produce(topic, value=record, partition=0, on_delivery=lambda *_: over.set())
        while not over.is_set():
            producer.poll(1.0)

    return produce


# -- nodes ------------------------------------------------------------------------------------------------------------


def _nodes(folder: Path, address: str) -> Table:
    """Crawls the same web without a cluster, and with one node that has all partitions, in turns."""
    found: dict[str, list[crawl.Crawl]] = {"embedded": [], "node": []}
    names = itertools.count()
    with serving(folder / "web", PRESET) as web:
        for _ in range(ROUNDS):
            found["embedded"].append(crawl.ours(web, folder / "out", "--warc"))
            found["node"].append(_node(folder, address, web, f"nodes-{next(names)}"))
    costs = {name: middle([one.cpu_per_thousand for one in some]) for name, some in found.items()}
    rows = tuple(
        (
            name,
            middle([one.pages_per_second for one in some]),
            costs[name],
            ratio(costs[name], costs["embedded"]),
            min(one.share for one in some),
        )
        for name, some in found.items()
    )
    notes = (
        f"On {web.title}; {ROUNDS} crawls each, in turns, medians; {PARTITIONS} partitions on one node, three brokers.",
        "CPU seconds of the crawling process alone, with its start and its end. At most 1.2 times the embedded crawl.",
    )
    columns = ("", "pages/s", "CPU s per 1,000", "to embedded", "must-fetch got")
    return Table("node", "A node on Kafka beside the embedded crawl", columns, rows, notes)


def _node(folder: Path, address: str, web: BenchWeb, name: str) -> crawl.Crawl:
    """Makes a cluster, and crawls with one node."""
    file = _cluster_file(folder, name, address)
    command = [sys.executable, "-c", crawl.KEPT, "cluster", "init", str(file), "--partitions", str(PARTITIONS)]
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    return crawl.ours(web, folder / name, "--warc", "--cluster", file)


def _cluster_file(folder: Path, name: str, address: str) -> Path:
    file = folder / f"{name}.toml"
    file.write_text(f'name = "{name}"\nkafka = "{address}"\nobjects = "file:{folder / "objects"}"\n')
    return file
