"""The calls of URLFrontier at `outrider serve --grpc`, with 10,000 and more queues: CPU of the server, wall times,
memory and disk for each URL, and the restart after kill -9.

One client sends messages that are made before the measurement. The figures of the Java service are recorded: they were
measured on another machine, and its jar does not take part.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench.joined_stream import send_joined
from bench.measuring import CACHE, ROOT, cpu_seconds_of_process, resident_bytes_of, run
from bench.serving import SETTINGS, served
from bench.tables import Table, quantile
from bench.urlfrontier_peer import PUT_URLS, UrlFrontier, item

QUEUES = (10_000, 100_000, 1_000_000)
PUTS = 20_000
"""URLs in one PutURLs stream."""
HAND_OUTS = 100
WARM_URLS = 500
CALLS = 200
LATER = 4_000_000_000
"""A date in 2096, in seconds: URLs with it are not ready."""
ROWS = (
    ("PutDiscovered(256) new, CPU µs/URL", "batch_new", 3.0, "10-20"),
    ("PutDiscovered(256) known, CPU µs/URL", "batch_known", 1.5, "8-18"),
    ("PutURLs new, CPU µs/URL", "put_new", 10.0, "45"),
    ("PutURLs known, CPU µs/URL", "put_known", 5.0, "9"),
    ("PutURLs updates, CPU µs/URL", "put_update", None, None),
    ("PutURLs new, items sent alone, CPU µs/URL", "alone_new", None, None),
    ("PutURLs known, items sent alone, CPU µs/URL", "alone_known", None, None),
    ("PutURLs updates, items sent alone, CPU µs/URL", "alone_update", None, None),
    ("GetURLs 100 x 1, CPU ms/call", "get", 0.5, "29-66"),
    ("GetURLs 100 x 1, p50 ms", "get_p50", None, None),
    ("GetURLs 100 x 1, p99 ms", "get_p99", None, None),
    ("GetURLs, nothing ready, CPU ms/call", "nothing", 0.1, "54; 740-1,100 at 1,000,000 queues"),
    ("GetStats, CPU ms/call", "stats", 1.0, "330-487"),
    ("resident memory, bytes/URL", "memory", None, "350-710 a queue"),
    ("disk, bytes/URL", "disk", None, "470-600"),
    ("restart after kill -9, s", "restart", None, "4 a million URLs"),
)
"""Each row: what, its name, the figure to reach, and the recorded figure of the Java service."""

Found = Mapping[str, float]


def table(queues: Sequence[int]) -> Table:
    """Measures each number of queues in a process of its own."""
    CACHE.mkdir(parents=True, exist_ok=True)
    found = [_measured_apart(count) for count in queues]
    rows = tuple(
        (what, *(one[name] for one in found), "-" if limit is None else f"{limit:g}", recorded or "-")
        for what, name, limit, recorded in ROWS
    )
    columns = ("", *(f"{count:,} queues" for count in queues), "to reach", "URLFrontier 2.6, recorded")
    notes = (
        f"One URL a queue, {PUTS:,} more in one stream of PutURLs. Its items are joined into frames of HTTP/2, or sent",
        "alone by grpcio, which is the client of all other rows.",
        "CPU: of the server's process, with its sending and receiving. Each acknowledgement is synced.",
    )
    return Table("service-grpc", "The calls of URLFrontier", columns, rows, notes)


def _measured_apart(queues: int) -> Found:
    with tempfile.TemporaryDirectory(prefix="service-grpc-", dir=CACHE) as name:
        out = Path(name) / "found.json"
        words = [sys.executable, "-m", "bench.service_grpc", str(queues), str(Path(name) / "crawl"), str(out)]
        run(words, environment={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", **SETTINGS})
        found: Found = json.loads(out.read_text(encoding="utf-8"))
        return found


# -- the child ---------------------------------------------------------------------------------------------------------


def measured(
    directory: Path, queues: int, *, puts: int = PUTS, calls: int = CALLS, hand_outs: int = HAND_OUTS
) -> Found:
    """Measures all rows with one server, then kills it and starts it again."""
    found: dict[str, float] = {}
    urls = [f"https://www.host{number:07d}.example/some/path/of/a/page/article.html" for number in range(queues)]
    with served(directory, "--grpc", killed=True) as (pid, port), UrlFrontier(f"127.0.0.1:{port}") as client:

        def cost(work: Callable[[], Any], count: int, unit: float) -> float:
            before = cpu_seconds_of_process(pid)
            work()
            return (cpu_seconds_of_process(pid) - before) / count * unit

        # The first calls read tables of the library.
        warm = [f"https://warm{number}.example/" for number in range(WARM_URLS)]
        client.put_batch(warm)
        client.put(client.get(WARM_URLS), known=True)
        before = resident_bytes_of(pid)
        found["batch_new"] = cost(lambda: client.put_batch(urls), queues, 1e6)
        found["batch_known"] = cost(lambda: client.put_batch(urls), queues, 1e6)
        found["memory"] = (resident_bytes_of(pid) - before) / queues
        found["disk"] = sum(one.stat().st_blocks * 512 for one in directory.rglob("*") if one.is_file()) / queues

        def joined(items: Sequence[bytes]) -> None:
            answers = len(send_joined(port, PUT_URLS, items))
            assert answers == len(items), f"{answers} answers for {len(items)} items"

        ways: dict[str, Callable[[Sequence[bytes]], None]] = {"put": joined, "alone": client.put_messages}
        for way, send in ways.items():
            others = [url.replace("article", way) for url in (urls * (puts // queues + 1))[:puts]]
            others = [f"{url}?{number // queues}" for number, url in enumerate(others)]
            for known in (False, True):
                items = [item(url, known=known) for url in others]
                for name in ("update",) if known else ("new", "known"):
                    found[f"{way}_{name}"] = cost(partial(send, items), puts, 1e6)
        times: list[float] = []

        def get() -> None:
            for _ in range(hand_outs):
                begun = time.perf_counter()
                got = client.get(min(100, queues // hand_outs))
                times.append(time.perf_counter() - begun)
                assert got, "there are URLs left"

        found["get"] = cost(get, hand_outs, 1e3)
        found["get_p50"], found["get_p99"] = (quantile(times, share) * 1e3 for share in (0.5, 0.99))
        while got := client.get(10_000):  # one client may have a million URLs in process
            joined([item(url, known=True, date=LATER) for url in got])
        found["nothing"] = cost(lambda: [client.get(100) for _ in range(calls)], calls, 1e3)
        found["stats"] = cost(lambda: [client.stats() for _ in range(calls)], calls, 1e3)
    begun = time.perf_counter()
    with served(directory, "--grpc") as (_, port), UrlFrontier(f"127.0.0.1:{port}") as client:
        client.stats()
        found["restart"] = time.perf_counter() - begun
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("queues", type=int)
    parser.add_argument("directory", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    given.out.write_text(json.dumps(measured(given.directory, given.queues)), encoding="utf-8")


if __name__ == "__main__":
    main()
