"""The child of `frontier`: one frontier of N queues, filled, visited and abandoned, and its recovery.

    python -m bench.frontier_engine visit --queues N --each N --visits N [--directory DIR] [--bare] --out FILE
    python -m bench.frontier_engine crawl --queues N --each N --visits N --out FILE
    python -m bench.frontier_engine shared --queues N --each N --visits N --out FILE
    python -m bench.frontier_engine recover --directory DIR --out FILE
    python -m bench.frontier_engine memory --queues N --each N --budget MB --directory DIR --out FILE
    python -m bench.frontier_engine hosts --queues N --each 2 --budget MB --directory DIR --out FILE
    python -m bench.frontier_engine profile --queues N --each N --visits N [--directory DIR]
    python -m bench.frontier_engine calls --queues N --each N --visits N --want N

The clock is virtual. After its first visit each host pauses for 1 to 21 seconds, evenly spread. Before each call the
clock moves until 0.1 % of the queues are ready, or the number that the call wants if that is larger.
`--bare` measures only the values of the drawing, without checkpoints.
`visit` ends with os._exit and open leases, so its store is like that of a killed process. `recover` opens this store.
`crawl` visits as a crawl does: with errands for robots.txt files, and outcomes with lines, digests and validators. It
uses seed URLs first, and then links, which the rules for traps judge.
`shared` visits two frontiers in turns: one with a crawl's clocks of shared machines, one without.
`memory` fills a frontier far beyond its memory budget and measures the growth by then. `hosts` adds N hosts with a
small budget, and measures the memory of the process when it is idle.
`calls` fills a frontier in memory, visits it in calls of `--want`, and measures nothing: another program does.
`profile` shows by cProfile the time of functions in discover, in lease and report in calls of 100, and in opening.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import outrider.engine
import outrider.journey
from bench.made import BATCH, batches, url_of
from bench.measuring import Spent, resident_bytes, sync_latencies
from bench.tables import quantile
from outrider import Frontier
from outrider.crawl.setup.group_settings import machines as shared_machines
from outrider.crawl.setup.options import CrawlOptions
from outrider.journey import Code, LeaseBatch, Link
from outrider.storage.heap import give_back
from outrider.storage.memory import MemoryFiles
from outrider.url import UrlBatch, host_of

KEYS = (bytes(range(16)), bytes(range(16, 32)))  # fixed, so that a UrlBatch already contains its fingerprints
AHEAD = ("next.seg", "reserve.seg")  # zeroed and still empty
STARTED_AT = 1_800_000_000_000_000
TICK = 1_000  # microseconds: the resolution of the clock
REST_TICKS_MIN, REST_TICKS_MAX = 1_000, 21_000  # the pause of a host after a visit
LEASE_SECONDS = 600.0
RESTING_SHARE = 0.999
KNOWN_URLS = 100_000
HOSTS_PER_MACHINE = 4
SHARED_TURNS = 5  # visits of each of the two frontiers
SHARED_GAP = 250_000  # microseconds: the pause of a machine after a request
EMPTY_CALLS = 2_000
LOOKUPS = 300
PAGE = "https://www.example.org/news/2026/11/"  # the page of the links
PAGE_LINE = b'{"url":"' + b"x" * 700 + b'"}'  # the length of a line of pages.jsonl
POLITENESS_LINE = b'{"host":"' + b"y" * 260 + b'"}'
MODIFIED = "Tue, 01 Jan 2030 00:00:00 GMT"
ROBOTS = b"User-agent: *\nDisallow: /private/\nDisallow: /search\n"


class Rests:
    """The virtual clock, and the times at which visited hosts are ready again."""

    def __init__(self) -> None:
        self.at = self._began = STARTED_AT
        self.ready = 0
        self._tick = 0
        self._due: npt.NDArray[np.int64] = np.zeros(1 << 16, np.int64)
        self._chance = np.random.default_rng(5)

    def __call__(self) -> int:
        return self.at

    def seconds(self, count: int) -> npt.NDArray[np.float64]:
        """Returns the durations of these fetches, and stores when their hosts are ready again: ten times as long
        later."""
        ticks = self._chance.integers(REST_TICKS_MIN, REST_TICKS_MAX, count)
        # Ready one tick later: clocks may round up, never down.
        rows = self._tick + ticks + 2
        if len(self._due) <= (most := int(rows.max(initial=0))):
            self._due = np.concatenate([self._due, np.zeros(most + 1, np.int64)])
        np.add.at(self._due, rows, 1)
        return ticks / 10_000

    def start_later(self, microseconds: int) -> None:
        """Moves the start of the clock forward, past pauses that this bench has not stored."""
        self._began += microseconds
        self.at += microseconds

    def wait_for(self, ready: int) -> bool:
        """Moves the clock until this number of hosts is ready. Returns False if that can never happen."""
        while self.ready < ready:
            self._tick += 1
            if self._tick >= len(self._due):
                return False
            self.ready += int(self._due[self._tick])
        self.at = self._began + self._tick * TICK
        return True


def outcomes_of(leases: LeaseBatch, seconds: npt.NDArray[np.float64], *, columns: bool) -> Any:
    """The form of a report: columns, or an Outcome for each lease."""
    if columns:
        return outrider.journey.OutcomeBatch(  # type: ignore[attr-defined]
            tokens=leases.tokens, verdicts="done", seconds=seconds, statuses=200
        )
    return [lease.done(seconds=took) for lease, took in zip(leases, seconds.tolist(), strict=True)]


def visit_all(frontier: Frontier, rests: Rests, spent: Spent, *, columns: bool) -> int:
    """Visits each queue once, while all are ready. Returns their number."""
    visited = 0
    while leases := spent.call(lambda: frontier.lease(BATCH, ttl_seconds=LEASE_SECONDS)):
        seconds = rests.seconds(len(leases))
        spent.call(lambda some=leases, took=seconds: frontier.report(outcomes_of(some, took, columns=columns)))
        visited += len(leases)
    return visited


def visit(
    frontier: Frontier,
    rests: Rests,
    want: int,
    visits: int,
    queues: int,
    *,
    columns: bool,
    checkpointing: bool = False,
) -> dict[str, Any]:
    """Makes `visits` leases and reports in calls of `want`, while most hosts pause; starts a checkpoint if wanted."""
    want = min(want, queues)
    settle(frontier)
    finished, logged = checkpoints(frontier), log_bytes(frontier)
    if checkpointing:
        begin_checkpoint(frontier)
    ready = max(want, round(queues * (1 - RESTING_SHARE)))
    leasing, reporting = [], []
    spent = Spent()
    visited = short = 0
    while visited < visits and rests.wait_for(ready):
        leases = spent.call(lambda: frontier.lease(want, ttl_seconds=LEASE_SECONDS))
        leasing.append((spent.walls[-1], spent.cpus[-1]))
        short += len(leases) < want
        # A short call leased all that was ready. So a host without URLs must not be counted again.
        rests.ready = rests.ready - len(leases) if len(leases) == want else 0
        if not leases:
            continue
        seconds = rests.seconds(len(leases))
        report = spent.call(lambda some=leases, took=seconds: frontier.report(outcomes_of(some, took, columns=columns)))
        reporting.append((spent.walls[-1], spent.cpus[-1]))
        assert all(code == "ok" for code in report), "every lease was open"
        visited += len(leases)
    if checkpointing:
        settle(frontier)  # the work of a round in its thread is part of the round
    spent.end()
    return {
        "log_bytes": (log_bytes(frontier) - logged) / max(1, visited),
        "want": want,
        "columns": columns,
        "checkpointing": checkpointing,
        "checkpoints": checkpoints(frontier) - finished,
        "visits": visited,
        "resting": 1 - ready / queues,
        "short_calls": short,
        "cpu": spent.cpu / max(1, visited),
        "wall": spent.wall / max(1, visited),
        "lease_wall": spread([wall for wall, _ in leasing]),
        "lease_cpu": spread([cpu for _, cpu in leasing]),
        "report_wall": spread([wall for wall, _ in reporting]),
        "report_cpu": spread([cpu for _, cpu in reporting]),
    }


def spread(values: Sequence[float]) -> dict[str, float] | None:
    """Returns p50, p99 and the largest."""
    if not values:
        return None
    return {"p50": quantile(values, 0.5), "p99": quantile(values, 0.99), "max": max(values)}


def discover(
    frontier: Frontier, calls: Iterator[list[str]], expected: Code, *, columns: bool = False
) -> dict[str, Any]:
    """Makes all these calls. Returns their cost per URL, and the longest of them."""
    spent, count = Spent(), 0
    for urls in calls:
        links = UrlBatch.of(urls, key=KEYS[0]) if columns else urls
        codes = spent.call(lambda some=links: frontier.discover(some))
        assert all(code == expected for code in codes), f"each of these URLs is {expected}"
        count += len(urls)
    spent.end()
    return {
        "count": count,
        "cpu": spent.cpu / count,
        "wall": spent.wall / count,
        "call_wall": spread(spent.walls),
        "call_cpu": spread(spent.cpus),
    }


def fill(frontier: Frontier, queues: int, each: int) -> dict[str, Any]:
    """Adds one URL to each host, then the other URLs: half as texts, half in columns. Measures memory meanwhile."""
    base = resident_bytes()
    hosts = discover(frontier, batches(0, queues, queues), Code.NEW)
    with_hosts = resident_bytes()
    middle = queues + queues * (each - 1) // 2 // BATCH * BATCH
    texts = discover(frontier, batches(queues, middle, queues), Code.NEW) if middle > queues else None
    columns = discover(frontier, batches(middle, queues * each, queues), Code.NEW, columns=True)
    full = resident_bytes()
    rows = np.random.default_rng(2).integers(0, queues * each, min(KNOWN_URLS, queues * each)).tolist()
    calls = [[url_of(row, queues) for row in rows[begin : begin + BATCH]] for begin in range(0, len(rows), BATCH)]
    return {
        "new_hosts": hosts,
        "new_texts": texts,
        "new_columns": columns,
        "known_texts": discover(frontier, iter(calls), Code.KNOWN),
        "known_columns": discover(frontier, iter(calls), Code.KNOWN, columns=True),
        "spell": spelling(calls),
        "url_bytes": sum(len(url) for call in calls for url in call) / len(rows),
        "rss_base": base,
        "rss_per_host": (with_hosts - base) / queues,
        "rss_per_url": (full - with_hosts) / (queues * (each - 1)),
        "rss": full,
    }


def spelling(calls: list[list[str]]) -> float:
    """Returns CPU seconds per URL of canonical text, key and fingerprint: the smallest value of three rounds."""
    best = float("inf")
    for _ in range(3):
        spent = Spent()
        for urls in calls:
            spent.call(lambda some=urls: UrlBatch.of(some, key=KEYS[0]))
        best = min(best, sum(spent.cpus))
    return best / sum(map(len, calls))


def nothing_ready(frontier: Frontier) -> dict[str, Any]:
    """Measures calls that find no ready host. Ready URLs are leased and reported before, and no checkpoint is due."""
    while leases := frontier.lease(BATCH, ttl_seconds=LEASE_SECONDS):
        frontier.report([lease.done(seconds=5.0) for lease in leases])
    frontier.checkpoint()
    spent = Spent()
    for _ in range(EMPTY_CALLS):
        assert not spent.call(lambda: frontier.lease(100, ttl_seconds=LEASE_SECONDS))
    spent.end()
    return {"cpu": sum(spent.cpus) / EMPTY_CALLS, "wall": spread(spent.walls)}


def lookups(frontier: Frontier, queues: int, each: int) -> dict[str, Any]:
    """Measures `status`, and `explain` if it exists, for random URLs."""
    found: dict[str, Any] = {}
    rows = np.random.default_rng(3).integers(0, queues * each, LOOKUPS).tolist()
    for name in ("status", "explain"):
        ask = getattr(frontier, name, None)
        if ask is None:
            continue
        spent = Spent()
        for row in rows:
            url = url_of(row, queues)
            spent.call(lambda verb=ask, one=url: verb(one))
        found[name] = spread(spent.walls)
        found[f"{name}_cpu"] = spread(spent.cpus)
    idle = getattr(frontier, "explain_idle", None)
    if idle is not None:
        spent = Spent()
        for _ in range(20):
            spent.call(idle)
        found["explain_idle"] = spread(spent.walls)
        found["explain_idle_cpu"] = spread(spent.cpus)
    return found


def begin_checkpoint(frontier: Frontier) -> None:
    """Starts a round now, as a long log does by itself. The calls that follow do a part of its work."""
    if frontier._rounds.under_way is None:
        frontier._rounds.join()  # a merge may be under way, and no round begins during one
        frontier._rounds.begin(frontier.now())


def settle(frontier: Frontier) -> None:
    """Ends a round that is under way, so that its time does not count for later calls."""
    if frontier._rounds.under_way is not None:
        frontier.checkpoint()
    else:
        frontier._rounds.join()


def log_bytes(frontier: Frontier) -> int:
    """Returns the bytes of the frames in the log."""
    log = frontier.statistics()["log"]
    return int(log["frame_bytes"]) if isinstance(log, dict) else 0


def checkpoints(frontier: Frontier) -> int:
    """Returns the number of finished checkpoints."""
    told = frontier.statistics()["checkpoint"]
    return int(told["number"]) if isinstance(told, dict) else 0


def store_bytes(directory: Path) -> dict[str, int]:
    """Returns the bytes of the store by their use. Of the log's last segment only the written part counts, because the
    rest is zeroed in advance."""
    sizes: dict[str, int] = {}
    for path in directory.rglob("*"):
        if path.is_file() and path.name not in AHEAD:
            name = re.match(r"[a-z]+", path.relative_to(directory).as_posix())
            kind = name[0] if name else "other"
            sizes[kind] = sizes.get(kind, 0) + path.stat().st_size
    last = max(directory.glob("log-*.seg"), default=None)
    if last is not None:
        sizes["log"] -= last.stat().st_size - len(last.read_bytes().rstrip(b"\0"))
    return sizes


def run_visits(given: argparse.Namespace) -> dict[str, Any]:
    """Measures everything in one process, and then leaves open leases as a crash does."""
    queues, each = given.queues, given.each
    rests = Rests()
    durable = given.directory is not None
    found: dict[str, Any] = {"queues": queues, "each": each, "durable": durable}
    if durable:
        found["sync_before"] = _sync(given.directory.parent)
        frontier = Frontier.open(given.directory, clock=rests, keys=KEYS, robots="caller")
    else:
        frontier = Frontier.memory(clock=rests, robots="caller")
    if durable:
        found |= fill(frontier, queues, each)
        found["bytes_with_log"] = store_bytes(given.directory)
        begun = time.perf_counter()
        frontier.checkpoint()
        found["checkpoint_seconds"] = time.perf_counter() - begun
        found["bytes_after_checkpoint"] = store_bytes(given.directory)
    else:
        for urls in batches(0, queues * each, queues):
            frontier.discover(urls)
    columns = hasattr(outrider.journey, "OutcomeBatch")
    found["columns"] = columns
    spent = Spent()
    visited = visit_all(frontier, rests, spent, columns=columns)
    spent.end()
    assert visited == queues, f"{visited} of {queues} queues were ready at first"
    found["all_ready"] = {"cpu": spent.cpu / visited, "wall": spent.wall / visited}
    found["rss_after_visits"] = resident_bytes()
    found["visits"] = []
    for want, visits, form, checkpointing in _plans(given.visits, durable=durable, columns=columns):
        if given.bare and (checkpointing or form != columns):
            continue
        found["visits"].append(
            visit(frontier, rests, want, max(visits, 1), queues, columns=form, checkpointing=checkpointing)
        )
    if given.bare:
        return found
    found["nothing_ready"] = nothing_ready(frontier)
    found["lookups"] = lookups(frontier, queues, each)
    if durable:
        # The recovery needs a tail of the log, and open leases.
        rests.wait_for(min(100, queues))
        visit(frontier, rests, 1_000, given.visits, queues, columns=columns)
        rests.wait_for(min(100, queues))
        found["leases_open"] = len(frontier.lease(100, ttl_seconds=LEASE_SECONDS))
        found["bytes_at_the_end"] = store_bytes(given.directory)
        found["at"] = rests.at
        found["sync_after"] = _sync(given.directory.parent)
    return found


def _plans(visits: int, *, durable: bool, columns: bool) -> list[tuple[int, int, bool, bool]]:
    """Returns (URLs per call, visits, reported in columns, with a checkpoint) for each measurement, in order."""
    plans = [(100, visits, columns, False), (100, visits, columns, True), (1_000, visits, columns, False)]
    if columns:
        plans.append((100, visits // 4, False, False))
    if not durable:
        plans.append((1, visits // 20, columns, False))
    return plans


def full_outcomes(leases: LeaseBatch, seconds: npt.NDArray[np.float64], now: int, *, columns: bool) -> Any:
    """Returns the outcomes that a crawl reports for pages: lines of some hundred bytes, digests, validators, bytes."""
    tokens = leases.tokens
    digests = [b"%020d" % token for token in tokens]
    etags = [f'"{token:x}"' for token in tokens]
    if columns:
        rows = len(tokens)
        return outrider.journey.OutcomeBatch(
            *(tokens, "done", seconds, 200),
            ended_at=now,
            answered=True,
            lines=[PAGE_LINE] * rows,
            politeness=[POLITENESS_LINE] * rows,
            digests=digests,
            bytes_read=[30_000] * rows,
            etags=etags,
            last_modified=[MODIFIED] * rows,
        )
    return [
        outrider.journey.Outcome(
            *(token, outrider.journey.Verdict.DONE),
            seconds=took,
            status=200,
            ended_at=now,
            answered=True,
            line=PAGE_LINE,
            politeness=POLITENESS_LINE,
            digest=digest,
            bytes_read=30_000,
            etag=etag,
            last_modified=MODIFIED,
        )
        for token, took, digest, etag in zip(tokens, seconds.tolist(), digests, etags, strict=True)
    ]


def answer_errands(frontier: Frontier) -> None:
    """Answers every errand for a robots.txt, and releases pages of the same call."""
    while leases := list(frontier.lease(BATCH, ttl_seconds=LEASE_SECONDS, errands=True)):
        errands = [lease for lease in leases if lease.kind is outrider.journey.Kind.ROBOTS]
        frontier.report([lease.robots(200, ROBOTS, seconds=0.1) for lease in errands])
        frontier.release([lease.token for lease in leases if lease.kind is not outrider.journey.Kind.ROBOTS])
        if not errands:
            return


def run_crawl(given: argparse.Namespace) -> dict[str, Any]:
    """Returns the cost as in a crawl, in calls of 100: full outcomes one by one, then in columns. First of seed URLs,
    then of links in pages, with a crawl's rules for traps."""
    visits = [one for links in (False, True) for one in _crawl_visits(given, links=links)]
    return {"queues": given.queues, "each": given.each, "visits": visits}


def _crawl_visits(given: argparse.Namespace, *, links: bool) -> list[dict[str, Any]]:
    rests = Rests()
    settings = {"traps": CrawlOptions().frontier_settings()["traps"]} if links else None
    frontier = Frontier.open(MemoryFiles(), clock=rests, robots="errands", output=True, settings=settings)
    for urls in batches(0, given.queues * given.each, given.queues):
        frontier.discover([Link(url, depth=1, referrer=PAGE) for url in urls] if links else urls)
    answer_errands(frontier)
    rests.start_later(REST_TICKS_MAX * TICK)
    found: list[dict[str, Any]] = []
    want = min(100, given.queues)
    while _full_visit(frontier, rests, min(BATCH, given.queues), Spent(), columns=True):
        pass  # each host once, all of them ready
    settle(frontier)
    for columns in (False, True):
        spent, visited = Spent(), 0
        while visited < given.visits and rests.wait_for(max(want, round(given.queues * (1 - RESTING_SHARE)))):
            count = _full_visit(frontier, rests, want, spent, columns=columns)
            rests.ready = rests.ready - count if count == want else 0
            visited += count
        cpu, wall = sum(spent.cpus) / visited, sum(spent.walls) / visited
        found.append({"links": links, "columns": columns, "visits": visited, "cpu": cpu, "wall": wall})
    return found


def _full_visit(frontier: Frontier, rests: Rests, want: int, spent: Spent, *, columns: bool) -> int:
    """Makes one lease and its report, and returns the number of pages. The figure includes leases, not outcomes."""
    leases = spent.call(lambda: frontier.lease(want, ttl_seconds=LEASE_SECONDS, errands=True))
    if leases:
        spent.call(lambda: list(leases))  # a crawl looks at each of them
        outcomes = full_outcomes(leases, rests.seconds(len(leases)), rests.at, columns=columns)
        report = spent.call(lambda: frontier.report(outcomes))
        assert all(code == "ok" for code in report), "every lease was open"
    return len(leases)


def run_shared(given: argparse.Namespace) -> dict[str, Any]:
    """Returns the cost of clocks that hosts share. Frontiers with four hosts per machine and without such clocks are
    visited in turns: with robots="caller" in calls of 100 and 1,000, and as in a crawl in calls of 100."""
    found: dict[str, Any] = {"queues": given.queues, "each": given.each, "visits": []}
    for crawl in (False, True):
        pair = [_met(given.queues, given.each, crawl=crawl, machines=machines) for machines in (False, True)]
        for want in (100,) if crawl else (100, 1_000):
            want = min(want, given.queues // 10)  # a call for all hosts would wait for machines
            prices: list[list[float]] = [[], []]
            for _ in range(SHARED_TURNS):
                for mine, (frontier, rests) in zip(prices, pair, strict=True):
                    visits = max(1, given.visits // SHARED_TURNS)
                    mine.append(_visit_some(frontier, rests, want, visits, given.queues, crawl=crawl))
            without, shared = (quantile(mine, 0.5) for mine in prices)
            ratio = quantile([both / one for one, both in zip(*prices, strict=True)], 0.5)
            found["visits"].append({"want": want, "crawl": crawl, "without": without, "shared": shared, "ratio": ratio})
        frontier = pair[1][0]
        found["waiting"] = frontier.statistics()["groups"]["waiting"]  # type: ignore[index]
        del pair, frontier
    return found


def _met(queues: int, each: int, *, crawl: bool, machines: bool) -> tuple[Frontier, Rests]:
    """Returns a frontier whose hosts were visited once each, and its clock."""
    rests = Rests()
    settings = {"group": shared_machines()} if machines else None
    road: dict[str, Any] = {"robots": "errands", "output": True} if crawl else {}
    frontier = Frontier.open(MemoryFiles(), clock=rests, settings=settings, **{"robots": "caller", **road})
    for urls in batches(0, queues * each, queues):
        frontier.discover(urls)
    if crawl:
        answer_errands(frontier)
        rests.start_later(REST_TICKS_MAX * TICK)
    for first in range(0, queues if machines else 0, BATCH):
        rows = range(first, min(first + BATCH, queues))
        told = {host_of(url_of(row, queues)): row // HOSTS_PER_MACHINE for row in rows}
        frontier.set_addresses({host: f"93.{at >> 16}.{at >> 8 & 255}.{at & 255}" for host, at in told.items()})
    visited = 0
    while visited < queues:
        visited += visit_all(frontier, rests, Spent(), columns=True)
        rests.start_later(SHARED_GAP)
    return frontier, rests


def _visit_some(frontier: Frontier, rests: Rests, want: int, visits: int, queues: int, *, crawl: bool) -> float:
    """Returns CPU seconds per lease and report."""
    if not crawl:
        return float(visit(frontier, rests, want, visits, queues, columns=True)["cpu"])
    spent, visited = Spent(), 0
    while visited < visits and rests.wait_for(want):
        count = _full_visit(frontier, rests, want, spent, columns=True)
        rests.ready = rests.ready - count if count == want else 0
        visited += count
    return sum(spent.cpus) / max(1, visited)


def run_recovery(given: argparse.Namespace) -> dict[str, Any]:
    """Opens an abandoned store, makes the first lease, and queries random URLs."""
    wall, cpu = time.perf_counter(), time.process_time()
    frontier = Frontier.open(given.directory, clock=lambda: int(given.at), robots="caller")
    opened = time.perf_counter() - wall
    frontier.lease(1)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    statistics = frontier.statistics()
    found = {
        "open_wall": opened,
        "wall": wall,
        "cpu": cpu,
        "accepted": statistics.get("accepted"),
        "rss": resident_bytes(),
        "lookups": lookups(frontier, given.queues, given.each),
    }
    frontier.close()
    return found


def run_profile(given: argparse.Namespace) -> None:
    """Prints the slowest functions. Native kernels are shown as built-in methods."""
    queues, rests = given.queues, Rests()
    columns = hasattr(outrider.journey, "OutcomeBatch")

    def opened() -> Frontier:
        if given.directory is None:
            return Frontier.memory(clock=rests, robots="caller")
        return Frontier.open(
            given.directory, clock=rests, keys=None if given.directory.exists() else KEYS, robots="caller"
        )

    frontier = opened()
    rows = queues * given.each
    calls = list(batches(0, rows, queues))
    _profiled("discover, new", rows, lambda: discover(frontier, iter(calls), Code.NEW))
    _profiled("discover, known", rows, lambda: discover(frontier, iter(calls), Code.KNOWN))
    _profiled("lease + report, all ready", queues, lambda: visit_all(frontier, rests, Spent(), columns=columns))
    _profiled(
        "lease + report, calls of 100, resting",
        given.visits,
        lambda: visit(frontier, rests, 100, given.visits, queues, columns=columns),
    )
    if given.directory is not None:
        frontier.close()
        _profiled("opening", rows, opened)


def run_calls(given: argparse.Namespace) -> None:
    rests = Rests()
    frontier = Frontier.memory(clock=rests, robots="caller")
    discover(frontier, batches(0, given.queues * given.each, given.queues), Code.NEW)
    visit_all(frontier, rests, Spent(), columns=True)
    visit(frontier, rests, given.want, given.visits, given.queues, columns=True)


def run_memory(given: argparse.Namespace) -> dict[str, Any]:
    """Returns the growth of a process per URL beyond its budget. The ledger fills and empties its share again and
    again, so two peaks are compared: that of the second third and that of the last."""
    rests, rows = Rests(), given.queues * given.each
    settings = {"memory_bytes": given.budget << 20}
    frontier = Frontier.open(given.directory, clock=rests, keys=KEYS, settings=settings, robots="caller")
    base = resident_bytes()
    peaks, seen = [0, 0, 0], [0, 0, 0]
    for number, urls in enumerate(batches(0, rows, given.queues)):
        frontier.discover(urls)
        if number % 10 == 9:
            third = min(number * BATCH * 3 // rows, 2)
            peaks[third] = max(peaks[third], resident_bytes() - base)
            seen[third] = seen_bytes(frontier)
    return {
        "queues": given.queues,
        "each": given.each,
        "budget": given.budget << 20,
        "peak": max(peaks),
        "per_url": (peaks[2] - peaks[1]) / (rows / 3),
        "seen_per_url": (seen[2] - seen[1]) / (rows / 3),
    }


def run_hosts(given: argparse.Namespace) -> dict[str, Any]:
    """Returns the memory of a process for N hosts that are due soon: with one URL and never visited, all of them ready;
    and visited once and pausing, with one URL left. The process is idle: the ledger's newest records are in a run,
    no merge is under way, and freed memory was returned to the system."""
    rests, queues = Rests(), given.queues
    settings = {"memory_bytes": given.budget << 20}
    frontier = Frontier.open(given.directory, clock=rests, keys=KEYS, settings=settings, robots="caller")
    base = resident_bytes()
    found: dict[str, Any] = {"queues": queues, "budget": given.budget << 20}

    def note(moment: str) -> None:
        settle(frontier)
        frontier.checkpoint()
        give_back()
        structures = frontier.statistics()["structures"]
        assert isinstance(structures, dict)
        found[moment] = resident_bytes() - base
        found[f"{moment}_cards"] = structures["backlog"]["bytes"]
        found[f"{moment}_seen"] = seen_bytes(frontier)

    for urls in batches(0, queues, queues):
        frontier.discover(urls)
    note("ready")
    for urls in batches(queues, 2 * queues, queues):
        frontier.discover(urls)
    visited = visit_all(frontier, rests, Spent(), columns=True)
    assert visited == queues, f"{visited} of {queues} hosts were ready"
    note("resting")
    return found


def seen_bytes(frontier: Frontier) -> int:
    """Returns the memory of the seen-set."""
    structures = frontier.statistics()["structures"]
    return int(structures["seen"]["bytes"]) if isinstance(structures, dict) else 0


def _profiled(title: str, count: int, work: Callable[[], object]) -> None:
    profile = cProfile.Profile()
    profile.enable()
    work()
    profile.disable()
    print(f"\n{title}: {count:,} URLs")
    pstats.Stats(profile).sort_stats("tottime").print_stats(22)


def _sync(directory: Path) -> dict[str, float] | None:
    return spread(sync_latencies(directory))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("visit", "crawl", "shared", "recover", "memory", "hosts", "profile", "calls"))
    parser.add_argument("--queues", type=int, required=True)
    parser.add_argument("--each", type=int, required=True)
    parser.add_argument("--visits", type=int, default=0)
    parser.add_argument("--bare", action="store_true", help="only the values of the drawing")
    parser.add_argument("--budget", type=int, default=0, help="megabytes")
    parser.add_argument("--want", type=int, default=1, help="URLs of a call")
    parser.add_argument("--at", type=int, default=0)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.what == "profile":
        run_profile(given)
        return
    if given.what == "calls":
        run_calls(given)
        return
    run = {
        "visit": run_visits,
        "crawl": run_crawl,
        "shared": run_shared,
        "recover": run_recovery,
        "memory": run_memory,
        "hosts": run_hosts,
    }
    found = run[given.what](given)
    given.out.write_text(json.dumps(found), encoding="utf-8")
    # No close and no destructors: the next opening finds the files of a killed process.
    os._exit(0)


if __name__ == "__main__":
    main()
