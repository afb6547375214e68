"""`frontier`: the cost of the three verbs at 10^4, 10^5 and 10^6 queues, compared with other schedulers.

Each size runs in its own process, in memory and on disk, on a virtual clock (bench/frontier_engine.py). The store on
disk is abandoned with open leases and opened again. The peers are filled with 10^2 to 10^5 hosts and emptied
(bench/frontier_peers.py). It prints tables, the contract's figures with their limits, and makes a drawing.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.frontier_peers import PEERS, POPS_SECONDS, SECONDS_MAX
from bench.measuring import CACHE, PEERS_PYTHON, RESULTS, ROOT, ChildFailedError, run
from bench.tables import Table
from bench.urlfrontier_peer import serving
from outrider.chart import ChartLine, log_log
from outrider.limits import LOG_BYTES_BEFORE_CHECKPOINT

QUEUES = (10_000, 100_000, 1_000_000)
QUEUES_QUICK = (2_000,)
BUDGETS = ((10_000, 150, 64), (10_000, 450, 256), (1, 1_500_000, 64))
"""(queues, URLs each, megabytes) of the frontiers that are filled beyond their budget."""
BUDGETS_QUICK = ((1_000, 200, 16),)
HOSTS_DUE = (1 << 19, 1 << 20)
"""Sizes that show the memory of one more host that is due soon: columns of hosts fill huge pages at these sizes."""
HOSTS_DUE_QUICK = (2_000, 20_000)
HOSTS_DUE_BUDGET = 16  # megabytes; cards use all of it at either size, except at the quick ones
HOSTS_DRAWN = (100, 1_000)  # sizes that are measured only for the drawing
HOSTS_OF_PEERS = (100, 1_000, 10_000, 100_000)
HOSTS_OF_PEERS_QUICK = (100, 1_000)
JAR = "OUTRIDER_BENCH_URLFRONTIER_JAR"
PEER_WITHOUT_REDIS = f"{PEERS['scrapy-redis']}: no redis-server on PATH (apt-get install redis-server)."
ENVIRONMENT = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
SECONDS_OF_A_SIZE_MAX = 1_800.0

Found = Mapping[str, Any]


@dataclass(frozen=True)
class Figure:
    """One line of the contract: the measured value in `unit`, and the value that it must reach."""

    what: str
    measured: float
    unit: str
    most: float | None = None
    least: float | None = None

    @property
    def share(self) -> float:
        """The used share of the limit. A value above 1 misses the limit."""
        if self.most is not None:
            return self.measured / self.most
        assert self.least is not None
        return self.least / self.measured

    def row(self) -> tuple[object, ...]:
        sign, limit = ("≤", self.most) if self.most is not None else ("≥", self.least)
        reached = "reached" if self.share <= 1 else "MISSED"
        return (self.what, self.measured, f"{sign} {limit:,g} {self.unit}", f"{self.share:.2f}", reached)


def tables(*, quick: bool = False, queues: Sequence[int] | None = None, drawn: Sequence[int] = ()) -> list[Table]:
    """Runs everything. quick: small sizes, half a minute. queues: sizes that replace 10^4, 10^5 and 10^6. drawn:
    further sizes, in memory and only for the drawing."""
    sizes = tuple(sorted(queues or (QUEUES_QUICK if quick else QUEUES)))
    memory: dict[int, Found] = {}
    crawls: dict[int, Found] = {}
    shared: dict[int, Found] = {}
    durable: dict[int, Found] = {}
    recovered: dict[int, Found] = {}
    CACHE.mkdir(parents=True, exist_ok=True)
    for size in sizes:
        memory[size] = _visit(size, None)
        if size != QUEUES[1]:
            crawls[size] = _crawl(size)
        shared[size] = _shared(size)
        with child_directory() as directory:
            durable[size] = _visit(size, directory / "frontier")
            recovered[size] = _recover(durable[size], directory / "frontier")
    budgets = [_beyond(*one) for one in (BUDGETS_QUICK if quick else BUDGETS)]
    due = [_due(size) for size in (HOSTS_DUE_QUICK if quick else HOSTS_DUE)]
    all_drawn = {size: _visit(size, None, bare=True) for size in (*HOSTS_DRAWN, *drawn) if size not in memory} | memory
    drawn_durable = dict(durable)
    for size in HOSTS_DRAWN:
        if size not in durable:
            with child_directory() as directory:
                drawn_durable[size] = _visit(size, directory / "frontier")
    peers, missing = _peers(HOSTS_OF_PEERS_QUICK if quick else HOSTS_OF_PEERS)
    found = {
        "memory": all_drawn,
        "crawls": crawls,
        "shared": shared,
        "durable": drawn_durable,
        "recovered": recovered,
        "budgets": budgets,
        "due": due,
        "peers": peers,
        "missing": missing,
    }
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "frontier.json").write_text(json.dumps(found, indent=1), encoding="utf-8")
    (RESULTS / "frontier.svg").write_text(drawing(all_drawn, drawn_durable, peers), encoding="utf-8")
    return [
        discover_table(durable),
        visit_table(memory, durable, crawls),
        shared_table(shared),
        stalls_table(memory, durable),
        store_table(durable, recovered),
        budgets_table(budgets),
        due_table(due),
        peers_table(all_drawn, drawn_durable, peers, missing),
        Table(
            "frontier.figures",
            "Frontier: the figures to reach",
            ("what", "measured", "reach", "of the limit", ""),
            tuple(
                figure.row() for figure in figures(memory, durable, recovered, budgets, all_drawn, due, crawls, shared)
            ),
            (
                "Of the limit: the share of it that was used up; above 1 the figure is missed.",
                "Not measured here: the seen-set at 10⁷ to 10⁹ keys, cold hosts on disk, gRPC.",
            ),
        ),
    ]


# -- running -------------------------------------------------------------------------------------------------------


def each_of(queues: int) -> int:
    """Returns the number of URLs per queue, large enough that no queue is empty during the visits."""
    return {2: 400, 3: 60, 4: 20, 5: 8, 6: 3}.get(len(str(queues)) - 1, 2)


def visits_of(queues: int) -> int:
    """Returns the number of leases and reports that are measured of each kind."""
    return min(60_000, queues * each_of(queues) // 8)


def _visit(queues: int, directory: Path | None, *, bare: bool = False) -> Found:
    sizes = ["--queues", str(queues), "--each", str(each_of(queues)), "--visits", str(visits_of(queues))]
    sizes += ["--bare"] if bare else []
    return _child("visit", [*sizes, *(["--directory", str(directory)] if directory else [])])


def _crawl(queues: int) -> Found:
    sizes = ["--queues", str(queues), "--each", str(each_of(queues)), "--visits", str(visits_of(queues) // 2)]
    return _child("crawl", sizes)


def _shared(queues: int) -> Found:
    sizes = ["--queues", str(queues), "--each", str(each_of(queues)), "--visits", str(visits_of(queues))]
    return _child("shared", sizes)


def _beyond(queues: int, each: int, megabytes: int) -> Found:
    with child_directory() as directory:
        sizes = ["--queues", str(queues), "--each", str(each), "--budget", str(megabytes)]
        return _child("memory", [*sizes, "--directory", str(directory / "frontier")])


def _due(queues: int) -> Found:
    with child_directory() as directory:
        sizes = ["--queues", str(queues), "--each", "2", "--budget", str(HOSTS_DUE_BUDGET)]
        return _child("hosts", [*sizes, "--directory", str(directory / "frontier")])


def _recover(abandoned: Found, directory: Path) -> Found:
    sizes = ["--queues", str(abandoned["queues"]), "--each", str(abandoned["each"]), "--at", str(abandoned["at"])]
    return _child("recover", [*sizes, "--directory", str(directory)])


def _child(what: str, arguments: Sequence[str]) -> Found:
    with child_directory() as directory:
        out = directory / "found.json"
        run(
            [sys.executable, "-m", "bench.frontier_engine", what, *arguments, "--out", out],
            environment=ENVIRONMENT,
            seconds_max=SECONDS_OF_A_SIZE_MAX,
        )
        found: Found = json.loads(out.read_text(encoding="utf-8"))
        return found


@contextlib.contextmanager
def child_directory() -> Iterator[Path]:
    """Makes a directory for a child until the block ends."""
    path = Path(tempfile.mkdtemp(prefix="frontier-", dir=CACHE))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _peers(sizes: Sequence[int]) -> tuple[dict[str, dict[int, Found]], list[str]]:
    """Returns the cost of each peer at each number of hosts, until a step needs too long, and the peers that could not
    run, with the reason."""
    found: dict[str, dict[int, Found]] = {}
    missing: list[str] = []
    if not PEERS_PYTHON.exists():
        return found, ["No .venv-bench here: make bench makes it."]
    jar = os.environ.get(JAR, "")
    for name, title in PEERS.items():
        if name == "scrapy-redis" and not has_redis():
            missing.append(PEER_WITHOUT_REDIS)
            continue
        if name == "urlfrontier" and not (jar and shutil.which("java")):
            missing.append(f"{title}: {JAR} names the jar of its service, and java runs it; not given here.")
            continue
        found[name] = {}
        for hosts in sizes:
            one = found[name][hosts] = peer(name, hosts, Path(jar))
            if "take" not in one:
                break
    return found, missing


def has_redis() -> bool:
    """Whether a Redis can be started here."""
    return shutil.which("redis-server") is not None


def peer(name: str, hosts: int, jar: Path, *, seconds_max: float = SECONDS_MAX) -> Found:
    """Measures one peer at one number of hosts: `fill` and `take`. If filling needed too long, `take` is missing."""
    with child_directory() as directory, contextlib.ExitStack() as ending:
        arguments: list[str] = []
        try:
            if name == "scrapy-redis":
                address, server = ending.enter_context(redis(directory))
                arguments = ["--redis", address, "--server", str(server)]
            elif name == "urlfrontier":
                port = _free_port()
                server = ending.enter_context(serving(jar, port, directory))
                arguments = ["--address", f"127.0.0.1:{port}", "--server", str(server)]
            out = directory / "found.json"
            run(
                [
                    *(PEERS_PYTHON, "-m", "bench.frontier_peers", name, "--hosts", str(hosts), *arguments),
                    *("--seconds", str(seconds_max), "--directory", directory / "jobs", "--out", out),
                ],
                environment=ENVIRONMENT,
                seconds_max=3 * seconds_max,
            )
            found: Found = json.loads(out.read_text(encoding="utf-8"))
        except (ChildFailedError, OSError) as error:
            print(error, file=sys.stderr)
            return {"failed": str(error).strip().splitlines()[-1][:100]}
        return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def redis(directory: Path) -> Iterator[tuple[str, int]]:
    """Starts a Redis on loopback that stores nothing on disk, and returns its address and process id."""
    port = _free_port()
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    server = subprocess.Popen([*command, "--dir", directory], stdout=subprocess.DEVNULL)
    try:
        for _ in range(100):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            time.sleep(0.05)
        yield f"redis://127.0.0.1:{port}/0", server.pid
    finally:
        server.terminate()
        server.wait()


# -- showing -------------------------------------------------------------------------------------------------------


def discover_table(durable: Mapping[int, Found]) -> Table:
    """Returns the figures per URL, in calls of 1,000, on disk."""
    kinds = {
        "new_hosts": "new, and its host",
        "new_texts": "new, list[str]",
        "new_columns": "new, UrlBatch",
        "known_texts": "known, list[str]",
        "known_columns": "known, UrlBatch",
    }
    rows = []
    for size, found in durable.items():
        for kind, title in kinds.items():
            one = found[kind]
            if one is not None:
                rows.append(
                    (
                        *(title, size, one["cpu"] * 1e6, one["wall"] * 1e6, 1 / one["wall"]),
                        *(one["call_wall"]["p99"] * 1e3, one["call_wall"]["max"] * 1e3),
                    )
                )
    columns = ("discover", "queues", "CPU µs", "wall µs", "URLs a second", "call p99 ms", "max ms")
    notes = (
        "Calls of 1,000 URLs of 85 bytes, no two of one host in a call, synced before they return.",
        "A UrlBatch contains its fingerprints. Making it is not in the figure.",
        _sync_note(durable),
    )
    return Table("frontier.discover", "Frontier: discover, on the disk", columns, tuple(rows), notes)


def visit_table(
    memory: Mapping[int, Found], durable: Mapping[int, Found], crawls: Mapping[int, Found] | None = None
) -> Table:
    """Returns the cost of lease and report per URL: with robots="caller" and bare outcomes, and as in a crawl."""
    rows: list[tuple[object, ...]] = []
    for where, sizes in (("memory", memory), ("disk", durable)):
        for size, found in sizes.items():
            cpu, wall = found["all_ready"]["cpu"], found["all_ready"]["wall"]
            rows.append(("all ready, calls of 1,000", where, size, "0.0%", cpu * 1e6, wall * 1e6, 1 / wall))
            for one in found["visits"]:
                what = f"calls of {one['want']:,}"
                what += ", with a checkpoint" if one["checkpointing"] else ""
                what += f", {one['short_calls']} short" if one["short_calls"] else ""
                what += ", list of Outcome" if found["columns"] and not one["columns"] else ""
                cpu, wall = one["cpu"], one["wall"]
                rows.append((what, where, size, f"{one['resting']:.1%}", cpu * 1e6, wall * 1e6, 1 / wall))
            spread = spread_over_rounds(found)
            rows.append(("calls of 100, spread over the rounds", where, size, None, spread * 1e6, None, None))
    for size, found in (crawls or {}).items():
        for one in found["visits"]:
            what = "calls of 100, a crawl's road" + (", links" if one["links"] else "")
            what += "" if one["columns"] else ", list of Outcome"
            rows.append((what, "memory", size, None, one["cpu"] * 1e6, one["wall"] * 1e6, 1 / one["wall"]))
    columns = ("lease + report", "store", "queues", "resting", "CPU µs", "wall µs", "URLs a second")
    form = "reported in columns" if all(found["columns"] for found in memory.values()) else "reported as Outcome each"
    notes = (
        "A crawl's road: robots.txt errands, outcomes with lines, digests and validators, each Lease read.",
        "links: found in pages, judged by the rules for traps, their returns counted. Other rows have seed URLs.",
        'Every other row is robots="caller", with outcomes of only seconds and status.',
        f"Per URL, {form} unless the row says otherwise. Calls of 100 include the CPU time of one checkpoint,",
        f"divided by the visits in {LOG_BYTES_BEFORE_CHECKPOINT >> 20} MB of log. Then the next one may begin.",
        _sync_note(durable),
    )
    return Table("frontier.visit", "Frontier: lease + report", columns, tuple(rows), notes)


def _road(one: Found) -> str:
    return f"calls of {one['want']:,}" + (", a crawl's road" if one["crawl"] else "")


def shared_table(shared: Mapping[int, Found]) -> Table:
    """Returns the cost of lease and report per URL with and without clocks that the hosts of a machine share."""
    rows = tuple(
        (_road(one), size, one["without"] * 1e6, one["shared"] * 1e6, f"{one['ratio']:.2f}")
        for size, found in shared.items()
        for one in found["visits"]
    )
    notes = (
        "Four hosts an address, the clock that `crawl` has by default: two requests at once, 0.25 s. In memory, in one",
        "process and in turns. The ratio is the median of five. A part of the difference is other work: hosts whose",
        "machine pauses wait for it, and are checked again.",
    )
    columns = ("lease + report", "queues", "without, CPU µs", "with, CPU µs", "with / without")
    return Table("frontier.shared", "Frontier: clocks that hosts share", columns, rows, notes)


def spread_over_rounds(found: Found) -> float:
    """Returns CPU seconds per lease and report in calls of 100, with the share of a checkpoint in a long run."""
    plain, beside = _plain(found, 100), _plain(found, 100, checkpointing=True)
    round_seconds = max(0.0, beside["cpu"] - plain["cpu"]) * beside["visits"]
    return float(plain["cpu"] + round_seconds * plain["log_bytes"] / LOG_BYTES_BEFORE_CHECKPOINT)


def stalls_table(memory: Mapping[int, Found], durable: Mapping[int, Found]) -> Table:
    """Returns the duration of one call."""
    rows = []
    for where, sizes in (("memory", memory), ("disk", durable)):
        for size, found in sizes.items():
            for one in found["visits"]:
                if one["want"] != min(100, size) or one["columns"] != found["columns"]:
                    continue
                beside = f"{one['checkpoints']} finished" if one["checkpointing"] else "none"
                for verb in ("lease", "report"):
                    wall, cpu = one[f"{verb}_wall"], one[f"{verb}_cpu"]
                    rows.append(
                        (
                            *(f"{verb} of 100", where, size, beside, wall["p50"] * 1e3, wall["p99"] * 1e3),
                            *(wall["max"] * 1e3, cpu["p99"] * 1e3, cpu["max"] * 1e3),
                        )
                    )
            empty = found["nothing_ready"]
            walls = empty["wall"]
            rows.append(
                (
                    *("lease, nothing ready", where, size, "none", walls["p50"] * 1e3, walls["p99"] * 1e3),
                    *(walls["max"] * 1e3, None, empty["cpu"] * 1e3),
                )
            )
    columns = ("one call", "store", "queues", "checkpoint beside", "p50 ms", "p99 ms", "max ms", "p99 CPU", "max CPU")
    notes = (
        "Wall time; on disk with the call's sync. CPU: of the calling thread, in ms; for an empty call the mean.",
        _sync_note(durable),
    )
    return Table("frontier.stalls", "Frontier: how long one call takes", columns, tuple(rows), notes)


def store_table(durable: Mapping[int, Found], recovered: Mapping[int, Found]) -> Table:
    """Returns memory, disk, recovery, and queries about one URL."""
    rows: list[tuple[object, ...]] = []
    sizes = tuple(durable)

    def add(what: str, values: Mapping[int, object]) -> None:
        rows.append((what, *(values[size] for size in sizes)))

    add("URLs", {size: durable[size]["queues"] * durable[size]["each"] for size in sizes})
    add("RSS, B per host with one URL", {size: durable[size]["rss_per_host"] for size in sizes})
    add("RSS, B per further URL within its budget", {size: durable[size]["rss_per_url"] for size in sizes})
    add("RSS when full, MB", {size: durable[size]["rss"] / 1e6 for size in sizes})
    for moment, title in (("bytes_with_log", "queued"), ("bytes_after_checkpoint", "after checkpoint()")):
        for kind in sorted({kind for found in durable.values() for kind in found[moment]}):
            per_url = {size: durable[size][moment].get(kind, 0) / _urls(durable[size]) for size in sizes}
            if max(per_url.values()) >= 0.05:
                add(f"disk, B per URL, {title}: {kind}", per_url)
    add("checkpoint(), s", {size: durable[size]["checkpoint_seconds"] for size in sizes})
    add("recovery, s wall", {size: recovered[size]["wall"] for size in sizes})
    add("recovery, s CPU", {size: recovered[size]["cpu"] for size in sizes})
    add(
        "log it replayed, MB at most",
        {size: durable[size]["bytes_at_the_end"].get("log", 0) / 1e6 for size in sizes},
    )
    for where, one_of in (("running", durable), ("just opened", recovered)):
        for name in ("status", "explain", "explain_idle"):
            if all(name in one_of[size]["lookups"] for size in sizes):
                for part, kind in (("p50", name), ("max", name), ("max CPU", f"{name}_cpu")):
                    add(
                        f"{name}, {part} ms, {where}",
                        {size: one_of[size]["lookups"][kind][part.split()[0]] * 1e3 for size in sizes},
                    )
    columns = ("what", *(f"{size:,} queues" for size in sizes))
    notes = (
        "Recovery: from Frontier.open to the first lease, of a store whose process ended with open leases; files warm.",
    )
    return Table("frontier.store", "Frontier: memory, disk, recovery", columns, tuple(rows), notes)


def budgets_table(budgets: Sequence[Found]) -> Table:
    """Returns the growth of a process beyond the budget for its memory."""
    rows = [
        (
            f"{one['queues']:,} queues, {_urls(one):,} URLs",
            one["budget"] >> 20,
            one["peak"] / (1 << 20),
            one["per_url"],
            one["seen_per_url"],
            one["per_url"] - one["seen_per_url"],
        )
        for one in budgets
    ]
    columns = ("filled", "memory_bytes, MB", "peak RSS, MB", "B per further URL", "of them seen-set", "without it")
    notes = (
        "The peak of the last third compared with that of the second. The RSS does not include the empty process.",
    )
    return Table("frontier.budget", "Frontier: memory beyond its budget", columns, tuple(rows), notes)


def peers_table(
    memory: Mapping[int, Found],
    durable: Mapping[int, Found],
    peers: Mapping[str, Mapping[int, Found]],
    missing: Sequence[str],
) -> Table:
    """Returns the URLs that are leased and reported per CPU second and per second."""
    sizes = sorted({*memory, *(hosts for found in peers.values() for hosts in found)})
    rows: list[tuple[object, ...]] = []
    for title, found in (("Outrider, memory", memory), ("Outrider, on the disk", durable)):
        for want in (1, 100, 1_000) if found is memory else (100, 1_000):
            cells = {size: _plain(found[size], want) for size in sizes if size in found}
            rows.append(
                (f"{title}, calls of {want:,}", *(_rates(cells.get(size), "cpu", "wall") for size in sizes)),
            )
    for name, by_hosts in peers.items():
        cells_of_peer: list[object] = []
        for size in sizes:
            one = by_hosts.get(size)
            if one is None:
                cells_of_peer.append(None)
            elif "take" in one:
                take = one["take"]
                cells_of_peer.append(f"{take['count'] / take['cpu']:,.0f} ({take['count'] / take['wall']:,.0f})")
            else:
                cells_of_peer.append(_ending(one))
        rows.append((PEERS[name], *cells_of_peer))
    notes = (
        "Per CPU second, with that of a server; in brackets: per second of wall time. Ours applies politeness (on a",
        "virtual clock) and reports each URL; Scrapy and scrapy-redis only pop, Crawlee fetches and marks as handled:",
        "the three have no pauses. URLFrontier serves a queue at most once a second, which limits its wall time",
        "if there are few hosts.",
        f"A peer stops if adding needs more than {SECONDS_MAX:.0f} s. Leasing ends after {POPS_SECONDS:.0f} s.",
        *missing,
    )
    columns = ("URLs out", *(f"{size:,} hosts" for size in sizes))
    return Table("frontier.peers", "Frontier: URLs taken out, against hosts", columns, tuple(rows), notes)


def per_host(due: Sequence[Found], what: str) -> float:
    """Returns the bytes of one more host: the slope between the two sizes."""
    first, last = due
    return float((last[what] - first[what]) / (last["queues"] - first["queues"]))


def due_table(due: Sequence[Found]) -> Table:
    """Returns the memory of hosts that are due soon, and the part that does not depend on their number."""
    rows = []
    for moment, title in (
        ("ready", "one URL, never visited, all ready"),
        ("resting", "visited and resting, one URL left"),
    ):
        slope, last = per_host(due, moment), due[-1]
        rows.append(
            (
                title,
                last[moment] / last["queues"],
                slope,
                per_host(due, f"{moment}_seen"),
                per_host(due, f"{moment}_cards"),
                (last[moment] - slope * last["queues"]) / 1e6,
            )
        )
    sizes = " and ".join(f"{one['queues']:,}" for one in due)
    columns = ("hosts", "RSS, B per host", "slope, B per host", "of it seen-set", "cards", "fixed, MB")
    notes = (
        f"{sizes} hosts, memory_bytes {HOSTS_DUE_BUDGET} MB, after a checkpoint; RSS per host is that of the larger.",
        "Fixed: the memory at either size, with the cards within the budget and tables of fixed length.",
    )
    return Table("frontier.due", "Frontier: memory of hosts that are due soon", columns, tuple(rows), notes)


def figures(
    memory: Mapping[int, Found],
    durable: Mapping[int, Found],
    recovered: Mapping[int, Found],
    budgets: Sequence[Found],
    drawn: Mapping[int, Found],
    due: Sequence[Found] = (),
    crawls: Mapping[int, Found] | None = None,
    shared: Mapping[int, Found] | None = None,
) -> list[Figure]:
    """Returns the measured lines of the contract."""
    result = []
    for size, found in (shared or {}).items():
        for one in found["visits"]:
            what = f"lease + report with clocks of machines, {_road(one)}, {size:,} queues"
            result.append(Figure(what, one["ratio"], "times that without", most=1.4))
    if durable:
        spelled = durable[max(durable)]["spell"]
        result.append(Figure("canonicalise + key + fingerprint, list[str]", spelled * 1e6, "µs", most=0.3))
    for size, found in durable.items():
        at = f"{size:,} queues"
        for kind, title, most in (
            ("new_hosts", "discover, new and its host", 1.5),
            ("new_texts", "discover, new, list[str]", 1.5),
            ("new_columns", "discover, new, UrlBatch", 1.5),
            ("known_texts", "discover, known, list[str]", 0.3),
            ("known_columns", "discover, known, UrlBatch", 0.1),
        ):
            if found[kind] is not None:
                result.append(Figure(f"{title}, {at}", found[kind]["cpu"] * 1e6, "µs", most=most))
    for size, found in (crawls or {}).items():
        for one in found["visits"]:
            form = ("links, " if one["links"] else "") + ("in columns" if one["columns"] else "list of Outcome")
            what = f"lease + report on a crawl's road, {form}, calls of 100, {size:,} queues"
            result.append(Figure(what, one["cpu"] * 1e6, "µs", most=15.0))
    for where, sizes in (("memory", memory), ("disk", durable)):
        for size, found in sizes.items():
            at = f"{size:,} queues, {where}"
            if where == "disk":
                at += f" (sync p99 {max(found[when]['p99'] for when in ('sync_before', 'sync_after')) * 1e3:.2g} ms)"
            plain = spread_over_rounds(found)
            result.append(Figure(f"lease + report, calls of 100, {at}", plain * 1e6, "µs", most=4.0))
            hundreds = [
                one
                for one in found["visits"]
                if one["want"] == min(100, size) and one["columns"] == found["columns"] and one["lease_wall"]
            ]
            for part, most in (("p99", 1.0), ("max", 10.0)):
                worst = max(one["lease_wall"][part] for one in hundreds)
                result.append(Figure(f"one lease(100), {part}, checkpoint beside, {at}", worst * 1e3, "ms", most=most))
            if where == "disk":
                result.append(
                    Figure(
                        f"lease + report, calls of 1,000, {at}",
                        1 / _plain(found, 1_000)["wall"],
                        "URL/s",
                        least=300_000,
                    )
                )
            result.append(
                Figure(f"nothing ready, {size:,} queues, {where}", found["nothing_ready"]["cpu"] * 1e3, "ms", most=0.02)
            )
    for size, found in durable.items():
        at = f"{size:,} queues"
        with_log, without = _disk(found, "bytes_with_log"), _disk(found, "bytes_after_checkpoint")
        result += [
            Figure(f"disk per queued URL with its log, {at}", with_log, "B", most=80),
            Figure(f"disk per queued URL after a checkpoint, {at}", without, "B", most=45),
        ]
        ledger = _ledger(found, "bytes_after_checkpoint")
        if ledger:
            result.append(Figure(f"ledger per URL, {at}", ledger / _urls(found), "B", most=90))
        result.append(
            Figure(f"recovery per million URLs, {at}", recovered[size]["wall"] / _urls(found) * 1e6, "s", most=0.5)
        )
        for name in ("status", "explain"):
            worst = max(
                (one["lookups"][name]["max"] for one in (found, recovered[size]) if name in one["lookups"]),
                default=None,
            )
            if worst is not None:
                result.append(Figure(f"{name}, longest, {at}", worst * 1e3, "ms", most=10))
    for moment in ("ready", "resting") if due else ():
        sizes_due = " to ".join(f"{one['queues']:,}" for one in due)
        what = f"memory per host that is due soon, {moment}, slope from {sizes_due}"
        result.append(Figure(what, per_host(due, moment), "B", most=160))
    for one in budgets:
        beyond = f"beyond {one['budget'] >> 20} MB, {one['queues']:,} queues"
        growth = one["per_url"] - one["seen_per_url"]
        result.append(Figure(f"memory per further URL {beyond}, without the seen-set", growth, "B", most=2))
    for first, last, most in ((10_000, 1_000_000, 2), (100, 10_000_000, 10)):
        rates = [1 / _plain(found, 100)["cpu"] for size, found in drawn.items() if first <= size <= last]
        if len(rates) > 1:
            what = f"URL/s, the best of {first:,} to {min(last, max(drawn)):,} queues against the worst, memory"
            result.append(Figure(what, max(rates) / min(rates), "x", most=most))
    return result


def drawing(memory: Mapping[int, Found], durable: Mapping[int, Found], peers: Mapping[str, Mapping[int, Found]]) -> str:
    """Draws the leased URLs per CPU second over the number of hosts, for all schedulers."""
    lines = [
        ChartLine(title, tuple((size, 1 / _plain(found[size], 100)["cpu"]) for size in sorted(found)), ours=True)
        for title, found in (("Outrider, memory", memory), ("Outrider, on the disk", durable))
    ]
    for name, by_hosts in peers.items():
        points = tuple(
            (hosts, one["take"]["count"] / one["take"]["cpu"]) for hosts, one in by_hosts.items() if "take" in one
        )
        last = by_hosts[max(by_hosts)]
        lines.append(ChartLine(PEERS[name].split(", its")[0], points, ending="" if "take" in last else _ending(last)))
    return log_log(
        lines,
        title="URLs out of the frontier for each second of CPU",
        x_title="hosts with URLs waiting",
        y_title="URLs a CPU second",
    )


def _plain(found: Found, want: int, *, checkpointing: bool = False) -> Found:
    """Returns the run in calls of this size, in the form that is best for us."""
    want = min(want, found["queues"])
    one: Found = next(
        one
        for one in found["visits"]
        if one["want"] == want and one["checkpointing"] == checkpointing and one["columns"] == found["columns"]
    )
    return one


def _rates(one: Found | None, *names: str) -> str | None:
    if one is None:
        return None
    cpu, wall = (1 / one[name] for name in names)
    return f"{cpu:,.0f} ({wall:,.0f})"


def _ending(one: Found) -> str:
    if "failed" in one:
        return "too many open files" if "Too many open files" in one["failed"] else "failed"
    return f"adding > {SECONDS_MAX:.0f} s"


def _urls(found: Found) -> int:
    return int(found["queues"] * found["each"])


def _ledger(found: Found, moment: str) -> int:
    return sum(size for kind, size in found[moment].items() if kind.startswith(("ledger", "run")))


def _disk(found: Found, moment: str) -> float:
    return (sum(found[moment].values()) - _ledger(found, moment)) / _urls(found)


def _sync_note(durable: Mapping[int, Found]) -> str:
    """Returns the duration of a sync at the time of these figures."""
    texts = []
    for size, found in durable.items():
        before, after = found["sync_before"], found["sync_after"]
        texts.append(
            f"{size:,}: {before['p50'] * 1e3:.2f}/{before['p99'] * 1e3:.2f} and "
            f"{after['p50'] * 1e3:.2f}/{after['p99'] * 1e3:.2f}"
        )
    return f"fdatasync of the disk, p50/p99 ms, before and after each size: {'; '.join(texts)}."
