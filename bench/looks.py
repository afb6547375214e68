"""`looks`: queries of users and scrapers to a frontier of a million hosts, and the time of `lease` during these
queries.

Each query is sent to `outrider serve` over HTTP. Measured are the wall time until the whole answer is read, and the CPU
time of the server. The leases are made in their own process, in memory so that syncs of the disk do not count: first
alone, then with a thread that makes every query in turn without a pause, and alone again.
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.measuring import CACHE, ROOT, cpu_seconds_of_process, run
from bench.serving import SETTINGS, served
from bench.tables import Table, middle, quantile
from outrider import Frontier
from outrider.crawl.questions.crawl_queries import LOOKS
from outrider.crawl.setup.directory import FRONTIER_NAME
from outrider.journey import OutcomeBatch
from outrider.service.http_server import SWITCH_SECONDS
from outrider.url import UrlBatch

HOSTS = 1_000_000
LARGE, LARGE_URLS = "large.example", 5_000
TIMES = 9
LEASES = 3_000
WANT = 10
LOOK_MS, PAGE_MS = 200.0, 10.0
LEASE_MS = {"p99": 1.0, "max": 10.0}
NO_PAUSES = {"delay": 0, "delay_factor": 0}
_MADE_AT_ONCE = 20_000
_APART_SECONDS = 0.25  # the server shares the counts of a fifth of a second

PATHS = {
    "stats": "/api/v1/stats",
    "metrics": "/metrics",
    "why-idle": "/api/v1/why-idle",
    "hosts, 100": "/api/v1/hosts?limit=100",
    "hosts, 1,000": "/api/v1/hosts?limit=1000",
    "hosts, 100 that are blocked": "/api/v1/hosts?limit=100&state=blocked",
    "urls, 100": "/api/v1/urls?limit=100",
    "urls, 100 dead letters": "/api/v1/urls?limit=100&state=gone",
    "workers": "/api/v1/workers",
    "explain": f"/api/v1/explain?url=http://{LARGE}/17",
    "urls, 100 of a host of 5,000": f"/api/v1/urls?limit=100&host={LARGE}",
    "urls, of a host of one": "/api/v1/urls?limit=100&host=h70.example70.org",
}
_PAGES = ("urls, 100 of a host of 5,000", "urls, of a host of one")


def tables(*, hosts: int | None = None) -> list[Table]:
    """Returns one table of queries and one of leases."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="looks-", dir=CACHE) as name:
        out = Path(name) / "found.json"
        words: list[str | Path] = [sys.executable, "-m", "bench.looks", "--hosts", str(hosts or HOSTS), "--out", out]
        run(
            [*words, "--directory", Path(name) / "crawl"],
            environment={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", **SETTINGS},
        )
        found = json.loads(out.read_text(encoding="utf-8"))
    return [asked_table(found["asked"], hosts or HOSTS), leased_table(found["leased"], hosts or HOSTS)]


# -- the child ---------------------------------------------------------------------------------------------------------


def fill(frontier: Frontier, hosts: int) -> None:
    """Adds N hosts with one URL and one with many. A third is visited; every fiftieth URL is a dead letter."""
    for first in range(0, hosts, _MADE_AT_ONCE):
        last = min(first + _MADE_AT_ONCE, hosts)
        frontier.discover(UrlBatch.of([f"http://h{i}.example{i % 977}.org/p" for i in range(first, last)]))
    frontier.discover([f"http://{LARGE}/{i}" for i in range(LARGE_URLS)])
    left = hosts // 3
    while left > 0 and (leases := frontier.lease(min(1_000, left))):
        verdicts = ["done" if i % 50 else "gone" for i in range(len(leases))]
        frontier.report(OutcomeBatch(tokens=leases.tokens, verdicts=verdicts, seconds=[0.1] * len(leases)))
        left -= len(leases)


def asked_over_http(directory: Path, times: int) -> dict[str, dict[str, float]]:
    """Returns the median and longest wall time of each query, and the CPU time of the server, in milliseconds."""
    found = {}
    with served(directory) as (pid, port):
        connection = http.client.HTTPConnection("127.0.0.1", port)
        for name, path in PATHS.items():
            walls: list[float] = []
            cpus: list[float] = []
            for _ in range(times):
                time.sleep(_APART_SECONDS)
                used, began = cpu_seconds_of_process(pid), time.perf_counter()
                connection.request("GET", path)
                answer = connection.getresponse()
                content = answer.read()
                walls.append(time.perf_counter() - began)
                cpus.append(cpu_seconds_of_process(pid) - used)
                assert answer.status == 200, content[:500]
            found[name] = {"p50": middle(walls) * 1e3, "max": max(walls) * 1e3, "cpu": sum(cpus) / times * 1e3}
        connection.close()
    return found


def leased_beside(frontier: Frontier, leases: int, beside: Sequence[Callable[[], object]]) -> dict[str, float]:
    """Returns wall times of `lease` in milliseconds while another thread makes these calls in turn, and their
    number."""
    stop, calls = threading.Event(), 0

    def ask() -> None:
        nonlocal calls
        while not stop.is_set():
            for call in beside:
                call()
                calls += 1

    asker = threading.Thread(target=ask)
    if beside:
        asker.start()
    walls: list[float] = []
    try:
        while len(walls) < leases:
            began = time.perf_counter()
            given = frontier.lease(WANT)
            walls.append(time.perf_counter() - began)
            assert given, "hosts are ready"
            frontier.report(OutcomeBatch(tokens=given.tokens, verdicts="done", seconds=[0.1] * len(given)))
    finally:
        stop.set()
        if beside:
            asker.join()
    return {
        "p50": quantile(walls, 0.5) * 1e3,
        "p99": quantile(walls, 0.99) * 1e3,
        "max": max(walls) * 1e3,
        "leases": len(walls),
        "looks": calls,
    }


def looks_of(frontier: Frontier) -> list[Callable[[], object]]:
    """Returns the same queries as calls."""
    questions: list[tuple[str, dict[str, Any]]] = [
        ("why-idle", {}),
        ("hosts", {"limit": 100}),
        ("hosts", {"limit": 100, "state": "blocked"}),
        ("urls", {"limit": 100}),
        ("urls", {"limit": 100, "state": "gone"}),
        ("urls", {"limit": 100, "host": LARGE}),
        ("explain", {"url": f"http://{LARGE}/17"}),
    ]
    asked = [lambda name=name, given=given: LOOKS[name](frontier, given) for name, given in questions]
    return [frontier.statistics, frontier._metrics, frontier.workers, *asked]


def measure(directory: Path, hosts: int, leases: int, times: int) -> dict[str, Any]:
    """Returns the figures of both tables."""
    with Frontier.open(directory / FRONTIER_NAME, settings=dict(NO_PAUSES), robots="caller") as frontier:
        fill(frontier, hosts)
    asked = asked_over_http(directory, times)
    sys.setswitchinterval(SWITCH_SECONDS)  # as `outrider serve` does
    with Frontier.memory(settings=dict(NO_PAUSES), robots="caller") as frontier:
        fill(frontier, hosts)
        looks = looks_of(frontier)
        ways: dict[str, list[Callable[[], object]]] = {"alone": [], "beside all questions": looks, "alone again": []}
        return {"asked": asked, "leased": {way: leased_beside(frontier, leases, some) for way, some in ways.items()}}


# -- the tables --------------------------------------------------------------------------------------------------------


def _reached(value: float, limit: float) -> str:
    return "reached" if value <= limit else "MISSED"


def asked_table(found: Mapping[str, Mapping[str, float]], hosts: int) -> Table:
    """Returns each query with its limit. A page of one host's URLs has a limit of CPU time."""
    rows = []
    for name, one in found.items():
        limit, value = (PAGE_MS, one["cpu"]) if name in _PAGES else (LOOK_MS, one["p50"])
        what = f"CPU {limit:g}" if name in _PAGES else f"{limit:g}"
        rows.append((name, one["p50"], one["max"], one["cpu"], what, _reached(value, limit)))
    columns = ("question", "answered in ms", "longest", "server's CPU ms", "to reach", "")
    notes = (
        f"{hosts:,} hosts with one URL and one with {LARGE_URLS:,}; over HTTP, each query {TIMES} times, with pauses",
        "in which counts expire. A page of one host's URLs has a limit of CPU time, the other queries of their median.",
    )
    return Table("looks", "Questions to a served frontier", columns, tuple(rows), notes)


def leased_table(found: Mapping[str, Mapping[str, float]], hosts: int) -> Table:
    """Returns the leases without and with the queries."""
    rows = []
    for way, one in found.items():
        said = [f"{part} {_reached(one[part], limit)}" for part, limit in LEASE_MS.items()]
        rows.append((way, one["p50"], one["p99"], one["max"], one["leases"], one["looks"], ", ".join(said)))
    limits = ", ".join(f"{part} {limit:g} ms" for part, limit in LEASE_MS.items())
    columns = (f"lease({WANT})", "p50 ms", "p99", "longest", "leases", "questions", "")
    notes = (
        f"{hosts:,} hosts, in memory, reports between the leases; limits: {limits}. The querying thread never pauses.",
    )
    return Table("looks.lease", "Leases beside questions", columns, tuple(rows), notes)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--hosts", type=int, required=True)
    parser.add_argument("--leases", type=int, default=LEASES)
    parser.add_argument("--times", type=int, default=TIMES)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    found = measure(given.directory, given.hosts, given.leases, given.times)
    given.out.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
