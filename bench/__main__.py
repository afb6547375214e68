"""python -m bench [NAME…] [--json]: runs the named benches or all, prints their tables and stores them as JSON."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from datetime import UTC, datetime

from bench.measuring import CACHE, RESULTS, ROOT, ChildFailedError, NoRoomError, machine, sync_seconds
from bench.tables import Table
from outrider.crawl.setup.options import size_reader

BENCHES = (
    "kernels",
    "robots",
    "urls",
    "reading",
    "fetching",
    "log",
    "ledger",
    "stores",
    "catalogs",
    "cold",
    "cluster",
    "scale",
    "queued",
    "drained",
    "service",
    "openings",
    "looks",
    "parts",
    "reach",
    "replay",
    "archives",
    "destinations",
    "permission",
    "crawl",
    "builds",
    "work",
    "polite",
    "revisits",
    "queues",
    "frontier",
)  # quick ones first
MEMORY_LEAST, MEMORY_MOST = 16 << 20, 1 << 40
LATEST = RESULTS / "latest.json"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHES)}; default: all")
    parser.add_argument("--json", action="store_true", help="prints JSON instead of tables")
    parser.add_argument(
        "--quick", action="store_true", help="frontier: small sizes, to check that everything runs; service: one round"
    )
    parser.add_argument(
        "--queues",
        type=_sizes,
        metavar="N,N",
        help="frontier, service: sizes instead of 10000,100000,1000000; frontier: 10000000 needs half an hour and some "
        "10 GB; openings: hosts instead of 10000,1000000",
    )
    parser.add_argument(
        "--drawn",
        type=_sizes,
        default=(),
        metavar="N,N",
        help="frontier: further sizes, in memory, only for the drawing; 10000000 needs six minutes and 12 GB",
    )
    parser.add_argument(
        "--hosts",
        type=lambda text: int(text.replace("_", "")),
        metavar="N",
        help="cold: hosts instead of 300000; 10000000 needs a quarter of an hour and 2 GB; looks: instead of 1000000; "
        "drained: instead of 1000000; 10000000 needs half an hour, some 1.4 GB and 5 GB of disk",
    )
    parser.add_argument(
        "--keys",
        type=lambda text: int(text.replace("_", "")),
        metavar="N",
        help="scale: keys instead of 10000000; 1000000000 needs half an hour, 13 GB of disk and the memory below",
    )
    parser.add_argument(
        "--urls",
        type=lambda text: int(text.replace("_", "")),
        metavar="N",
        help="queued: URLs instead of 10000000; 100000000 needs half an hour and 30 GB of disk; openings: these on a "
        "million hosts, and only openings after a kill; 100000000 needs half an hour and 20 GB",
    )
    parser.add_argument(
        "--memory",
        type=_memory,
        metavar="SIZE",
        help="scale: memory of the set on disk, such as 1700M, instead of 4 bytes a key; queued, drained: memory_bytes",
    )
    given = parser.parse_args(arguments)
    options = {
        "cold": {"hosts": given.hosts},
        "scale": {"keys": given.keys, "memory": given.memory},
        "queued": {"urls": given.urls, "memory": given.memory},
        "drained": {"hosts": given.hosts, "memory": given.memory},
        "looks": {"hosts": given.hosts},
        "service": {"queues": given.queues, "quick": given.quick},
        "openings": {"queues": given.queues or (), "urls": given.urls},
        "frontier": {"quick": given.quick, "queues": given.queues, "drawn": given.drawn},
    }
    unknown = set(given.names) - set(BENCHES)
    if unknown:
        parser.error(f"no bench is called {', '.join(sorted(unknown))}; there are {', '.join(BENCHES)}")
    sync = sync_seconds(CACHE)
    where = {**machine(), "sync_seconds_median": sync, "taken_at": datetime.now(UTC).isoformat(timespec="seconds")}
    _say(
        f"{where['system']}, {where['cores']} cores, load {where['load']}, Python {where['python']}; "
        f"one sync of the disk takes {sync * 1e3:.2f} ms (median).",
        "Compare the ratios: both sides of each were measured in this run, in turns.",
        "",
    )
    found: list[Table] = []
    failed = 0
    for name in given.names or BENCHES:
        _say(f"… {name}")
        try:
            tables = importlib.import_module(f"bench.{name}").tables(**options.get(name, {}))
        except (ChildFailedError, NoRoomError) as error:
            failed += 1
            _say(str(error), "")
            continue
        found.extend(tables)
        if not given.json:
            print("\n".join(line for table in tables for line in table.lines()), flush=True)
    result = {"machine": where, "tables": [table.as_json() for table in found]}
    RESULTS.mkdir(parents=True, exist_ok=True)
    LATEST.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if given.json:
        print(json.dumps(result))
    _say(f"Kept in {LATEST.relative_to(ROOT)}")
    return 1 if failed else 0


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(size.replace("_", "")) for size in text.split(","))


def _memory(text: str) -> int:
    try:
        return size_reader(MEMORY_LEAST, MEMORY_MOST)(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from error


def _say(*lines: str) -> None:
    print("\n".join(lines), file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
