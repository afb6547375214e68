"""`destinations`: the cost of a crawl with catalogs and object storage, and the speed of uploads.

The bundled web is crawled without a destination, and with more of them at a time, in turns. The libraries of
destinations start once per run. So each crawl is measured with few and with many pages: the difference is the cost of a
page. The servers of PostgreSQL and S3 are excluded, as is the web.

BENCH_ROUNDS is the number of rounds. BENCH_OTHER is the folder of another build with its `.venv`: it is measured in the
same turns, without a destination.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from bench.measuring import CACHE, ROOT, Measured, run
from bench.tables import Table, middle, ratio
from outrider.storage.object_store import ObjectStore

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
OTHER = os.environ.get("BENCH_OTHER")
HOSTS, SIZES = 40, (500, 3_000)
PACED_HOSTS, PACED_PAGES, PACED_SECONDS = 120, 12_000, 20
FILES, FILE_BYTES = 8, 64 << 20
BUCKET = "bench"
NONE, SQLITE, DATABASES, CATALOGS, ALL = "none", "SQLite", "and PostgreSQL", "and Parquet", "and S3"


@dataclass
class _Servers:
    """The servers that this machine has, and the words for those that it lacks."""

    postgres: Any = None
    store: Any = None
    missing: list[str] = field(default_factory=list)
    databases: int = 0

    @property
    def environment(self) -> Mapping[str, str]:
        return self.store.environment if self.store is not None else {}

    @property
    def choices(self) -> list[str]:
        """The destinations that can be measured; each has those before it, too."""
        names = [NONE, SQLITE, DATABASES, CATALOGS, ALL]
        unavailable = {DATABASES: self.postgres is None, ALL: self.store is None}
        return [name for name in names if not unavailable.get(name)]

    def flags(self, name: str, place: Path) -> list[str]:
        """The options for these destinations, each new."""
        names = self.choices[1 : self.choices.index(name) + 1]
        words: list[str] = []
        for one in names:
            if one == SQLITE:
                words += ["--catalog", f"sqlite:{place}.db"]
            elif one == DATABASES:
                self.databases += 1
                words += ["--catalog", self.postgres.database(f"bench{self.databases}")]
            elif one == CATALOGS:
                words += ["--catalog", f"parquet:{place}-parts"]
            else:
                words += ["--archive", f"s3://{BUCKET}/{place.name}"]
        return words


@contextmanager
def _servers(folder: Path) -> Iterator[_Servers]:
    """Starts PostgreSQL and SeaweedFS until the block ends."""
    sys.path.insert(0, str(ROOT / "tests"))
    import pytest

    from servers.postgres import postgres_server
    from servers.seaweed import seaweed_server

    found = _Servers()
    with ExitStack() as stack:
        try:
            found.postgres = stack.enter_context(postgres_server())
        except pytest.skip.Exception as missing:
            found.missing.append(str(missing))
        try:
            found.store = stack.enter_context(seaweed_server(ROOT, folder / "weed"))
            found.store.make_bucket(BUCKET)
        except pytest.fail.Exception as missing:
            found.missing.append(str(missing))
        yield found


@contextmanager
def _web(directory: Path, hosts: int, pages: int) -> Iterator[list[str]]:
    """Serves the bundled web until the block ends. Yields the words of a crawl of it, without its output."""
    command = [sys.executable, "-m", "outrider.sim.web", "--directory", str(directory), "--plain"]
    command += ["--hosts", str(hosts), "--pages", str(pages)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        ready = json.loads(child.stdout.readline())
        try:
            yield ["-m", "outrider", "crawl", f"@{ready['seeds']}", "--hosts", ready["hosts"], "--progress", "none"]
        finally:
            child.stdin.close()


def tables() -> list[Table]:
    """Measures the CPU time of a page, the rate with default gaps, and uploads."""
    CACHE.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="destinations-", dir=CACHE))
    try:
        with _servers(folder) as servers:
            return [_costs(servers, folder), _rates(servers, folder), *_uploads(servers, folder)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _crawl(
    servers: _Servers,
    name: str,
    place: Path,
    words: Sequence[str],
    *,
    python: Path | str = sys.executable,
    good: tuple[int, ...] = (0,),
) -> tuple[Measured, int]:
    """Crawls with these destinations. Returns the cost and the number of pages."""
    flags = servers.flags(name, place)
    found = run([python, *words, "-o", place, *flags], good=good, environment=servers.environment)
    with (place / "pages.jsonl").open("rb") as lines:
        count = sum(1 for _ in lines)
    shutil.rmtree(place)
    return found, count


def _costs(servers: _Servers, folder: Path) -> Table:
    names = [*servers.choices, *([OTHER] if OTHER else [])]
    costs: dict[str, dict[int, list[float]]] = {name: {pages: [] for pages in SIZES} for name in names}
    for pages in SIZES:
        with _web(folder / f"web-{pages}", HOSTS, pages) as words:
            for row in range(ROUNDS):
                # The first one of a round differs, because a machine may become slower or faster meanwhile.
                for name in (*names[row % len(names) :], *names[: row % len(names)]):
                    other = name == OTHER
                    found, count = _crawl(
                        servers,
                        NONE if other else name,
                        folder / f"out-{pages}-{row}-{names.index(name)}",
                        [*words, "--delay", "0", "--delay-factor", "0"],
                        python=Path(name) / ".venv/bin/python" if other else sys.executable,
                    )
                    _say(f"  {name}: {count} pages, {found.cpu_seconds:.2f} CPU s, {found.wall_seconds:.1f} s")
                    costs[name][pages].append(found.cpu_seconds)
                    assert count == pages
    few, many = SIZES
    start = {name: middle(found[few]) for name, found in costs.items()}
    end = {name: middle(found[many]) for name, found in costs.items()}
    marginal = {name: (end[name] - start[name]) / (many - few) for name in names}
    rows = [
        (
            "another build, none" if name == OTHER else name,
            start[name] / few * 1e6,
            end[name] / many * 1e6,
            marginal[name] * 1e6,
            ratio(end[name], end[NONE]),
            ratio(marginal[name], marginal[NONE]),
        )
        for name in names
    ]
    columns = ("destinations", f"µs a page, {few:,}", f"{many:,}", "each further page", "of none", "further, of none")
    notes = (
        f"CPU time. Medians of {ROUNDS} rounds in turns; the bundled web of {HOSTS} hosts, no delays, with WARC.",
        "Each row has the destinations of the rows before it, too. Of none: the crawl of the larger number of pages.",
        *(f"Missing: {one}" for one in servers.missing),
    )
    return Table("destinations", "A crawl with destinations", columns, tuple(rows), notes)


def _rates(servers: _Servers, folder: Path) -> Table:
    names = [NONE, servers.choices[-1]]
    found: dict[str, list[float]] = {name: [] for name in names}
    with _web(folder / "web-paced", PACED_HOSTS, PACED_PAGES) as words:
        for row in range(max(1, ROUNDS - 1)):
            for name in names:
                place = folder / f"paced-{row}-{names.index(name)}"
                limit = ["--max-seconds", str(PACED_SECONDS)]
                _, count = _crawl(servers, name, place, [*words, *limit], good=(0, 3))
                found[name].append(count / PACED_SECONDS)
                _say(f"  {name}: {count} pages in {PACED_SECONDS} s")
    rate = {name: middle(rates) for name, rates in found.items()}
    rows = [(name, rate[name], ratio(rate[name], rate[NONE])) for name in names]
    notes = (f"{PACED_HOSTS} hosts, {PACED_SECONDS} s, the default delays. The second row has all destinations.",)
    columns = ("destinations", "pages/s", "of none")
    return Table("destination rates", "Pages per second with the default delays", columns, tuple(rows), notes)


def _uploads(servers: _Servers, folder: Path) -> Iterator[Table]:
    """Yields the table of uploads if the machine has a store."""
    if servers.store is None:
        return
    import obstore

    path = folder / "file"
    path.write_bytes(os.urandom(FILE_BYTES))
    with mock.patch.dict(os.environ, servers.environment):
        store = ObjectStore(f"s3://{BUCKET}/uploads")
    bare = servers.store.client(BUCKET)
    octets = path.read_bytes()
    works: dict[str, Callable[[int], object]] = {
        "outrider": lambda row: store.put_file(f"{row}", str(path)),
        "bare put": lambda row: obstore.put(bare, f"bare/{row}", octets, use_multipart=False),
    }
    spent: dict[str, list[float]] = {name: [] for name in works}
    for row in range(FILES):
        for name, work in works.items():
            began = time.perf_counter()
            work(row)
            spent[name].append(time.perf_counter() - began)
    speed = {name: FILES * FILE_BYTES / sum(seconds) / 1e6 for name, seconds in spent.items()}
    rows = [(name, speed[name], f"{speed[name] / speed['bare put']:.2f}x") for name in works]
    notes = (
        f"{FILES} files of {FILE_BYTES >> 20} MB to SeaweedFS on this machine, in turns.",
        "Outrider's upload also reads the file, makes its MD5, and compares it with that of the store.",
    )
    yield Table("uploads", "Uploads to object storage", ("", "MB/s", "of bare"), tuple(rows), notes)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
