"""`queues`: Outrider in the place of Scrapy's queue, compared with Scrapy's own queues and scrapy-redis.

One request at a time, as Scrapy's engine asks for them. Crawls are of a site of many hosts on loopback, without delays.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path

from bench.frontier import ENVIRONMENT, PEER_WITHOUT_REDIS, Found, child_directory, has_redis, peer, redis
from bench.frontier_peers import PEERS
from bench.many_hosts import serving
from bench.measuring import PEERS_PYTHON, ChildFailedError, run
from bench.scrapy_queues import SIZES
from bench.tables import Table, middle, ratio

POP_HOSTS = (100, 1_000, 10_000, 100_000)
CRAWLS = {100: 30, 10_000: 1}
"""The numbers of hosts of the crawls, and the pages of each host."""
CRAWL_SECONDS_MAX = 300.0
MEMORY_SECONDS_MAX = 600.0
ROUNDS = int(os.environ.get("BENCH_QUEUE_ROUNDS", "1"))
QUEUES = ("scrapy-outrider", "scrapy-outrider-jobdir", "scrapy", "scrapy-plain", "scrapy-jobdir", "scrapy-redis")
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
    return [_pops(queues, notes), *_crawls(queues, notes), _memory()]


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
    for hosts, pages in CRAWLS.items():
        found: dict[str, list[Found]] = {queue: [] for queue in queues}
        with serving(hosts, pages) as web:
            for _ in range(ROUNDS):
                for queue in queues:
                    with contextlib.suppress(ChildFailedError):
                        one = _child("crawl", queue, "--port", str(web.port), "--indexes", str(web.indexes))
                        found[queue].append(one)
                        _say(queue, hosts, one)
            total = web.total
        own = middle([one["answers"] / one["seconds"] for one in found["scrapy"]]) if found["scrapy"] else None
        for queue, crawls in found.items():
            if not crawls:
                rates.append((PEERS[queue], hosts, None, None, None, None))
                continue
            rate = middle([one["answers"] / one["seconds"] for one in crawls])
            cost = middle([one["cpu"] / one["answers"] for one in crawls]) * 1e3
            rates.append((PEERS[queue], hosts, rate, ratio(rate, own), cost, crawls[0]["answers"]))
            assert crawls[0]["answers"] == total or crawls[0]["reason"] != "finished", queue
            wall, cpu = (max(one[name] for one in crawls) * 1e3 for name in ("longest_wall", "longest_cpu"))
            longest.append((PEERS[queue], hosts, wall, cpu))
    crawl = Table(
        "queues.crawls",
        "Scrapy's queue: whole crawls",
        ("", "hosts", "pages/s", "against its default queue", "CPU s per 1,000", "pages"),
        tuple(rates),
        ("One XPath a page, 64 requests at once, no delay; from the start of the spider to its end.", *notes),
    )
    calls = Table(
        "queues.calls",
        "Scrapy's queue: the longest call of the scheduler on the event loop",
        ("", "hosts", "ms", "CPU ms of its thread"),
        tuple(longest),
        ("In these crawls. The first figure includes other programs and threads that had the core.",),
    )
    return [crawl, calls]


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
