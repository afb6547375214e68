"""`queues`: Outrider in the place of the queues of Scrapy and Crawlee, compared with their own and scrapy-redis.

One request at a time, as Scrapy's engine asks for them. Crawls are of a site of many hosts on loopback, without delays.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from itertools import pairwise
from pathlib import Path

from bench.frontier import ENVIRONMENT, PEER_WITHOUT_REDIS, Found, child_directory, has_redis, peer, redis
from bench.frontier_peers import CRAWLEE, PEERS
from bench.many_hosts import serving
from bench.measuring import PEERS_PYTHON, ChildFailedError, run
from bench.rivals import may_mount, with_hosts
from bench.scrapy_queues import SIZES
from bench.tables import Table, middle, ratio
from outrider.clock import seconds

CRAWLEE_HOSTS = 100
LATE = (40, 26)
"""The hosts and the pages of each host of the crawl with a delay."""
POP_HOSTS = (100, 1_000, 10_000, 100_000)
CRAWLS = {100: 30, 10_000: 1, 100_000: 1}
"""The numbers of hosts of the crawls, and the pages of each host."""
CRAWL_HOSTS = [int(hosts) for hosts in os.environ.get("BENCH_QUEUE_HOSTS", ",".join(map(str, CRAWLS))).split(",")]
"""The numbers of hosts that are measured."""
CRAWL_SECONDS = float(os.environ.get("BENCH_QUEUE_SECONDS", "240"))
"""A crawl ends after this time, and its rate is that of the pages until then."""
CRAWL_SECONDS_MAX = CRAWL_SECONDS + 120.0
MEMORY_SECONDS_MAX = 1_800.0  # a million durable requests on a busy machine
ROUNDS = int(os.environ.get("BENCH_QUEUE_ROUNDS", "1"))
ALL_QUEUES = ("scrapy-outrider", "scrapy-outrider-jobdir", "scrapy", "scrapy-plain", "scrapy-jobdir", "scrapy-redis")
QUEUES = tuple(os.environ.get("BENCH_QUEUES", ",".join(ALL_QUEUES)).split(","))
"""The queues whose pops and crawls are measured. The others are compared with `scrapy`."""
OURS = "scrapy-outrider-jobdir"
IN_MEMORY = (OURS, "scrapy", "scrapy-plain")
"""The queues whose memory is measured."""
NOWHERE = Path()
FILL_SECONDS_MAX = 60.0


def tables() -> list[Table]:
    """Measures all queues in turns."""
    if not PEERS_PYTHON.exists():
        raise ChildFailedError("No .venv-bench here: make bench makes it.")
    queues = [queue for queue in QUEUES if queue != "scrapy-redis" or has_redis()]
    notes = () if has_redis() else (PEER_WITHOUT_REDIS,)
    parts = {
        "pops": lambda: [_pops(queues, notes)],
        "crawls": lambda: _crawls(queues, notes),
        "late": lambda: [_late()],
        "crawlee": lambda: [_crawlee()],
        "memory": lambda: [_memory()],
    }
    wanted = os.environ.get("BENCH_QUEUE_PARTS", ",".join(parts)).split(",")
    return [table for part in wanted for table in parts[part]()]


def _pops(queues: list[str], notes: tuple[str, ...]) -> Table:
    rows = []
    for queue in queues:
        cells: list[object] = []
        for hosts in POP_HOSTS:
            found = [peer(queue, hosts, NOWHERE, seconds_max=FILL_SECONDS_MAX) for _ in range(ROUNDS)]
            taken = [one["take"]["count"] / one["take"]["cpu"] for one in found if "take" in one]
            cells.append(middle(taken) if taken else found[0].get("failed", f"adding > {FILL_SECONDS_MAX:.0f} s"))
        _say(queue, cells)
        rows.append((PEERS[queue], *cells))
    columns = ("requests per CPU second", *(f"{hosts:,} hosts" for hosts in POP_HOSTS))
    told = "One call of next_request at a time. Ours also stores that each page is processed."
    return Table("queues.pops", "Scrapy's queue: requests out, against hosts", columns, tuple(rows), (told, *notes))


def _crawls(queues: list[str], notes: tuple[str, ...]) -> list[Table]:
    rates, longest = [], []
    limit = ("--seconds", str(CRAWL_SECONDS))
    left = len(CRAWL_HOSTS) * ROUNDS * len(queues)
    for hosts in CRAWL_HOSTS:
        found: dict[str, list[Found]] = {queue: [] for queue in queues}
        with serving(hosts, CRAWLS[hosts]) as web:
            for _ in range(ROUNDS):
                for queue in queues:
                    _say(f"{left} crawls left, at most {left * CRAWL_SECONDS_MAX / 60:,.0f} minutes")
                    left -= 1
                    with contextlib.suppress(ChildFailedError):
                        one = _child("crawl", queue, "--port", str(web.port), "--indexes", str(web.indexes), *limit)
                        found[queue].append(one)
                        _say(queue, hosts, one)
            total = web.total
        own = middle([one["answers"] / one["seconds"] for one in found["scrapy"]]) if found.get("scrapy") else None
        for queue, crawls in found.items():
            if not crawls:
                rates.append((PEERS[queue], hosts, None, None, None, None))
                continue
            rate = middle([one["answers"] / one["seconds"] for one in crawls])
            cost = middle([one["cpu"] / one["answers"] for one in crawls]) * 1e3
            rates.append((PEERS[queue], hosts, rate, ratio(rate, own), cost, crawls[0]["answers"]))
            assert crawls[0]["answers"] == total or crawls[0]["reason"] != "finished", queue
            one = max(crawls, key=lambda one: float(one["longest_cpu"]))
            without = max(crawls, key=lambda one: float(one["longest_own"]))
            times = (max(one["longest_wall"] for one in crawls), one["longest_cpu"], one["longest_collecting"])
            calls = (*(time * 1e3 for time in times), one["longest_name"])
            longest.append((PEERS[queue], hosts, *calls, without["longest_own"] * 1e3, without["longest_own_name"]))
    crawl = Table(
        "queues.crawls",
        "Scrapy's queue: whole crawls",
        ("", "hosts", "pages/s", "against its default queue", "CPU s per 1,000", "pages"),
        tuple(rates),
        ("One XPath a page, 64 requests at once, no delay; from the start of the spider to its end.", *notes),
    )
    longest_calls = Table(
        "queues.calls",
        "Scrapy's queue: the longest call of the scheduler on the event loop",
        ("", "hosts", "ms", "CPU ms", "of it collecting", "call", "CPU ms without", "call"),
        tuple(longest),
        (
            "In these crawls. The first figure includes other programs and threads that had the core.",
            "Python collects garbage in any call: of all objects of the program.",
        ),
    )
    return [crawl, longest_calls]


def _late() -> Table:
    stages: list[list[float]] = []
    with serving(*LATE) as web:
        found = _child("late", OURS, "--port", str(web.port), "--indexes", str(web.indexes))
        assert found["reason"] == "finished", found["reason"]
        for url, (due, leased, taken) in found["requests"].items():
            instants = (due, leased, taken, web.arrived[url])
            stages.append([seconds(later - sooner) * 1e3 for sooner, later in pairwise(instants)])
            stages[-1].append(seconds(instants[-1] - due) * 1e3)
    names = ("due to leased", "leased to taken by the engine", "taken to arrived at the server", "due to arrived")
    rows = []
    for name, times in zip(names, zip(*stages, strict=True), strict=True):
        ordered = sorted(times)
        rows.append((name, *(ordered[int(share * (len(ordered) - 1))] for share in (0.5, 0.9, 0.99, 1.0))))
        _say(*rows[-1])
    told = f"{LATE[0]} hosts with {LATE[1]} pages in a row, delay 1 s; without the first request of each host."
    columns = ("ms", "p50", "p90", "p99", "longest")
    return Table(
        "queues.late", "Scrapy's queue: from due to sent, with Outrider and a JOBDIR", columns, tuple(rows), (told,)
    )


def _crawlee() -> Table:
    title = "Crawlee's queue: whole crawls"
    columns = ("", "pages/s", "against its memory", "against its files", "CPU s per 1,000")
    if not may_mount():
        told = "Not measured: Crawlee asks the system for names, and this user may mount no hosts file for it."
        return Table("queues.crawlee", title, columns, (), (told,))
    found: dict[str, list[Found]] = {queue: [] for queue in CRAWLEE}
    with serving(CRAWLEE_HOSTS, CRAWLS[CRAWLEE_HOSTS]) as web:
        for _ in range(ROUNDS):
            for queue in CRAWLEE:
                with child_directory() as directory:
                    out = directory / "found.json"
                    words = [PEERS_PYTHON, "-m", "bench.crawlee_queues", queue, "--port", str(web.port)]
                    words += ["--indexes", str(web.indexes), "--directory", directory / "queue", "--out", out]
                    command = with_hosts(web.names, directory / "names", words)
                    measured = run(command, environment=ENVIRONMENT, seconds_max=CRAWL_SECONDS_MAX)
                    one = json.loads(out.read_text(encoding="utf-8")) | {"cpu": measured.cpu_seconds}
                assert one["answers"] == web.total, queue
                found[queue].append(one)
                _say(queue, one)
    rows: list[tuple[object, ...]] = []
    rates = {queue: middle([one["answers"] / one["seconds"] for one in crawls]) for queue, crawls in found.items()}
    for queue, crawls in found.items():
        cost = middle([one["cpu"] / one["answers"] for one in crawls]) * 1e3
        own = ratio(rates[queue], rates["crawlee"]), ratio(rates[queue], rates["crawlee-files"])
        rows.append((CRAWLEE[queue], rates[queue], *own, cost))
    told = f"{CRAWLEE_HOSTS} hosts, 64 requests at once, no delay; from the start of the crawler to its end."
    return Table("queues.crawlee", title, columns, tuple(rows), (told,))


def _memory() -> Table:
    rows: list[tuple[object, ...]] = []
    slopes = {}
    for queue in IN_MEMORY:
        found = _child("memory", queue)
        small, large = (found[str(size)] for size in SIZES)
        slopes[queue] = (large - small) / (SIZES[1] - SIZES[0])
        against = ratio(slopes[queue], slopes[OURS])
        rows.append((PEERS[queue], small / 1e6, large / 1e6, slopes[queue], against))
        _say(*rows[-1])
    columns = ("", *(f"MB at {size:,}" for size in SIZES), "B per request", "against ours")
    title = "Scrapy's queue: memory of waiting requests"
    return Table("queues.memory", title, columns, tuple(rows), ("1,000 hosts.",))


def _child(what: str, queue: str, *more: str) -> Found:
    with child_directory() as directory, contextlib.ExitStack() as ending:
        words = [PEERS_PYTHON, "-m", "bench.scrapy_queues", what, queue, *more]
        if queue == "scrapy-redis":
            address, _ = ending.enter_context(redis(directory))
            words += ["--redis", address]
        out = directory / "found.json"
        limit = CRAWL_SECONDS_MAX if what == "crawl" else MEMORY_SECONDS_MAX
        words += ["--directory", directory / "jobs", "--out", out]
        measured = run(words, environment=ENVIRONMENT, seconds_max=limit)
        found: Found = json.loads(out.read_text(encoding="utf-8"))
        return found | {"cpu": measured.cpu_seconds}


def _say(*words: object) -> None:
    print(" ", *words, file=sys.stderr, flush=True)
