"""`work`: one worker and its server (`outrider serve`, `outrider work`) compared with `outrider crawl`, in turns. Both
have the same bundled web without pauses, the same settings, a kill-safe store and an archive.

BENCH_ROUNDS is the number of rounds. Both must fetch each page of the web, and their lines of a page must have the same
fields.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.measuring import CACHE, ROOT, ChildFailedError, cpu_seconds_of_process
from bench.tables import Table, middle, ratio
from outrider.sim.web import DemoWeb

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
HOSTS, PAGES = 40, 3_000
CONCURRENCY = 64
SECONDS_MAX = 300.0
ALONE, SERVED = "crawl", "serve and work"


@dataclass(frozen=True)
class Web:
    """The bundled web while it is served."""

    seeds: Path
    hosts: Path
    must_fetch: frozenset[str]


@dataclass(frozen=True)
class Ran:
    """One crawl: its wall time, the CPU seconds of its processes, its pages, and the fields of a page's line."""

    wall_seconds: float
    cpu_seconds: float
    pages: frozenset[str]
    fields: frozenset[str]


def tables() -> list[Table]:
    """Runs both in turns."""
    CACHE.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="work-", dir=CACHE))
    try:
        with _web(directory / "web") as web:
            found: dict[str, list[Ran]] = {ALONE: [], SERVED: []}
            for row in range(ROUNDS):
                for name, run in ((ALONE, _alone), (SERVED, _served)):
                    place = directory / f"{name.split()[0]}-{row}"
                    ran = run(web, place)
                    _say(f"  {name}: {len(ran.pages)} pages, {ran.wall_seconds:.2f} s, {ran.cpu_seconds:.2f} CPU s")
                    found[name].append(ran)
                    shutil.rmtree(place, ignore_errors=True)
            return [_table(web, found)]
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _web(directory: Path) -> Iterator[Web]:
    command = [sys.executable, "-m", "outrider.sim.web", "--directory", str(directory), "--plain"]
    command += ["--hosts", str(HOSTS), "--pages", str(PAGES)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        ready = json.loads(child.stdout.readline())
        must = DemoWeb(hosts=HOSTS, pages=PAGES, port=ready["port"], quirks=False).must_fetch()
        try:
            yield Web(Path(ready["seeds"]), Path(ready["hosts"]), frozenset(must))
        finally:
            child.stdin.close()


def _outrider(*words: object, **how: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "outrider", *map(str, words)]
    environment = {**os.environ, "OUTRIDER_DELAY": "0", "OUTRIDER_DELAY_FACTOR": "0"}
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment, **how)


def _ended(child: subprocess.Popen[str]) -> float:
    """Waits for the end of a child and returns its CPU seconds."""
    assert child.stderr is not None
    with child.stderr:
        told = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise ChildFailedError(f"outrider ended with {child.returncode}: {told[-500:]}")
    return usage.ru_utime + usage.ru_stime


def _alone(web: Web, place: Path) -> Ran:
    began = time.monotonic()
    words = ("crawl", f"@{web.seeds}", "-o", place, "--hosts", web.hosts, "--concurrency", CONCURRENCY)
    crawl = _outrider(*words, "--progress", "none")
    cpu = _ended(crawl)
    return _ran(time.monotonic() - began, cpu, place)


def _served(web: Web, place: Path) -> Ran:
    """Returns the wall time of the worker, and the CPU seconds of the worker and of the server during that time."""
    place.mkdir()
    server = _outrider("serve", place / "served", "--http", "127.0.0.1:0", "--hosts", web.hosts)
    assert server.stderr is not None
    try:
        line = server.stderr.readline()
        while "serving at" not in line:
            if not line:
                raise ChildFailedError("the server did not start")
            line = server.stderr.readline()
        address = line.split()[-1]
        added = _outrider("add", place / "served", f"@{web.seeds}", stdout=subprocess.DEVNULL)
        _ended(added)
        began, before = time.monotonic(), cpu_seconds_of_process(server.pid)
        worker = _outrider(
            *("work", address, "-o", place / "worker", "--hosts", web.hosts, "--concurrency", CONCURRENCY)
        )
        cpu = _ended(worker)
        wall = time.monotonic() - began
        cpu += cpu_seconds_of_process(server.pid) - before
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate()
    return _ran(wall, cpu, place / "worker")


def _ran(wall: float, cpu: float, place: Path) -> Ran:
    lines = [json.loads(line) for line in (place / "pages.jsonl").read_text().splitlines()]
    return Ran(wall, cpu, frozenset(line["url"] for line in lines), frozenset().union(*lines))


def _table(web: Web, found: dict[str, list[Ran]]) -> Table:
    rows: list[tuple[object, ...]] = []
    middles: dict[str, tuple[float, float]] = {}
    for name, runs in found.items():
        wall, cpu = middle([one.wall_seconds for one in runs]), middle([one.cpu_seconds for one in runs])
        middles[name] = wall, cpu
        share = min(len(one.pages & web.must_fetch) / len(web.must_fetch) for one in runs)
        rows.append((name, f"{wall:.2f}", f"{cpu:.2f}", len(runs[-1].pages), f"{share:.2%}"))
    (wall, cpu), (wall_served, cpu_served) = middles[ALONE], middles[SERVED]
    pages = all(one.pages == found[ALONE][0].pages for runs in found.values() for one in runs)
    fields = found[ALONE][-1].fields ^ found[SERVED][-1].fields
    notes = (
        f"Served: {ratio(wall_served, wall)} of the wall time, {ratio(cpu_served, cpu)} of the CPU time.",
        "All runs have the same pages." if pages else "THE RUNS HAVE DIFFERENT PAGES.",
        "The lines have the same fields." if not fields else f"THE LINES DIFFER IN {', '.join(sorted(fields))}.",
    )
    title = f"a worker and its server beside a crawl; the bundled web, {HOSTS} hosts, no pauses"
    return Table("work", title, ("", "wall s", "CPU s", "pages", "must-fetch got"), tuple(rows), notes)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
