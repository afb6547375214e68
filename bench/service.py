"""`service`: leases and results over REST and over the gRPC of URLFrontier at batches of 1 to 1,000, compared with
an embedded frontier and scrapy-redis. `service_grpc.py` has the calls of URLFrontier one by one.

The server is `outrider serve` on a directory. The client is one process with one kept connection. The embedded frontier
is opened on a directory as the server opens it. Pauses are off, because scrapy-redis has no pauses. Each host's
robots.txt is answered before the measurement. All run in turns.
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from bench import service_grpc
from bench.frontier import PEER_WITHOUT_REDIS, has_redis, peer
from bench.frontier_peers import PEERS
from bench.joined_stream import JoinedStream
from bench.made import BATCH, batches
from bench.measuring import CACHE, PEERS_PYTHON, ROOT, cpu_seconds_of_process, run
from bench.serving import SETTINGS, served
from bench.tables import Table, middle, quantile
from bench.urlfrontier_peer import PUT_URLS, UrlFrontier, item
from outrider.crawl.questions.crawl_queries import changing

HOSTS = 10_000
EACH = 6
VISITS = {1: 1_500, 10: 6_000, 100: 20_000, 1_000: 20_000}
"""URLs that are leased and reported, by batch. No host is empty meanwhile."""
ROUNDS = 3
LEAST_AGAINST_PEER = 5.0  # URLs per CPU second of the server at 100, compared with scrapy-redis
LEAST_AGAINST_REST = {1: 100.0, 100: 3.0}  # CPU of the server per URL by REST, compared with gRPC, by batch
PEER = "scrapy-redis"
REST, GRPC, EMBEDDED = "REST", "gRPC", "embedded"
API = "/api/v1/frontier"
WORKER = "bench"

Found = Mapping[str, Any]
Add = Callable[[list[str]], object]
Ask = Callable[[int], list[tuple[Any, str]]]
Tell = Callable[[list[tuple[Any, str]]], None]
"""Leases as (token or URL, kind), and their results."""


def tables(
    *,
    rounds: int = ROUNDS,
    hosts: int = HOSTS,
    visits: Mapping[int, int] | None = None,
    queues: Sequence[int] | None = None,
    quick: bool = False,
) -> list[Table]:
    """Returns one row for each way and batch: medians of the rounds; and the calls of URLFrontier with these numbers
    of queues. quick: one round."""
    rounds = 1 if quick else rounds
    CACHE.mkdir(parents=True, exist_ok=True)
    counts = dict(visits or VISITS)
    found: dict[tuple[str, int], list[Found]] = {}
    missing = _missing()
    for _ in range(rounds):
        for way in (REST, GRPC, EMBEDDED):
            for batch, one in _ours(way, hosts, counts).items():
                found.setdefault((way, batch), []).append(one)
        if missing is None:
            one = peer(PEER, hosts, Path())
            if "take" in one:
                found.setdefault((PEER, 1), []).append(one)
            else:
                missing = f"{PEERS[PEER]}: {one.get('failed', 'adding took too long')}."
    return [
        table(found, hosts, rounds, missing if (PEER, 1) not in found else None),
        service_grpc.table(queues or service_grpc.QUEUES),
    ]


def _missing() -> str | None:
    """Returns the reason why the peer cannot run here."""
    if not PEERS_PYTHON.exists():
        return "No .venv-bench here: make bench makes it."
    return None if has_redis() else PEER_WITHOUT_REDIS


def _ours(way: str, hosts: int, counts: Mapping[int, int]) -> dict[int, Found]:
    """Runs one of our rounds in its own process."""
    with tempfile.TemporaryDirectory(prefix="service-", dir=CACHE) as name:
        directory, out = Path(name) / "crawl", Path(name) / "found.json"
        words: list[str | Path] = [sys.executable, "-m", "bench.service", way, "--hosts", str(hosts)]
        words += ["--visits", json.dumps(counts), "--directory", directory, "--out", out]
        environment = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", **SETTINGS}
        run(words, environment=environment)
        return {int(batch): one for batch, one in json.loads(out.read_text(encoding="utf-8")).items()}


# -- the child ---------------------------------------------------------------------------------------------------------


def _measured(
    add: Add, ask: Ask, tell: Tell, cpu: Callable[[], float], hosts: int, counts: Mapping[int, int]
) -> dict[int, dict[str, Any]]:
    """Makes leases and results of each batch. cpu: seconds of the process that decides."""
    used = cpu()
    for urls in batches(0, hosts * EACH, hosts):
        add(urls)
    adding = (cpu() - used) / (hosts * EACH)
    # The errands of all hosts are done first, so that the rounds have only pages.
    while got := ask(BATCH):
        tell(got)
        if all(kind == "page" for _, kind in got):
            break
    found: dict[int, dict[str, Any]] = {}
    for batch, visits in counts.items():
        leasing, telling, done, calls = [], [], 0, 0
        begun, used, own = time.perf_counter(), cpu(), time.process_time()
        while done < visits:
            first = time.perf_counter()
            got = ask(batch)
            second = time.perf_counter()
            assert got, "there are URLs left"
            tell(got)
            leasing.append(second - first)
            telling.append(time.perf_counter() - second)
            done, calls = done + len(got), calls + 2
        wall = time.perf_counter() - begun
        found[batch] = {
            "count": done,
            "adding": adding,
            "calls": calls,
            "wall": wall,
            "cpu": cpu() - used,
            "own": time.process_time() - own,
            "next": [quantile(leasing, share) for share in (0.5, 0.99)],
            "results": [quantile(telling, share) for share in (0.5, 0.99)],
        }
    return found


def embedded(given: argparse.Namespace, counts: Mapping[int, int]) -> dict[int, dict[str, Any]]:
    """Calls the verbs in one process, with a list of Outcome as the server makes it."""
    with changing(str(given.directory), create=True) as frontier:
        held: dict[int, Any] = {}

        def ask(want: int) -> list[tuple[int, str]]:
            leases = frontier.lease(want, worker=WORKER, errands=True)
            held.update((one.token, one) for one in leases)
            return [(one.token, str(one.kind)) for one in leases]

        def tell(leases: list[tuple[int, str]]) -> None:
            frontier.report(
                [
                    held[token].done(seconds=0.0, status=200) if kind == "page" else _no_rules(held[token])
                    for token, kind in leases
                ]
            )
            held.clear()

        return _measured(frontier.discover, ask, tell, time.process_time, given.hosts, counts)


def _no_rules(lease: Any) -> Any:
    from outrider.journey import Outcome, RobotsAnswer, Verdict

    return Outcome(lease.token, Verdict.DONE, seconds=0.0, status=404, robots=RobotsAnswer(404, b"", None, None))


def rest(given: argparse.Namespace, counts: Mapping[int, int]) -> dict[int, dict[str, Any]]:
    """Calls the same over HTTP."""
    with served(given.directory) as (pid, port):
        connection = http.client.HTTPConnection("127.0.0.1", port)
        encode, decode = msgspec.json.encode, msgspec.json.decode
        lease_id = 0

        def asked(method: str, path: str, body: Any = None) -> Any:
            octets = None if body is None else encode(body)
            connection.request(method, API + path, octets, {"Content-Type": "application/json"} if octets else {})
            answer = connection.getresponse()
            content = answer.read()
            assert answer.status == 200, content[:500]
            return decode(content)

        def ask(want: int) -> list[tuple[int, str]]:
            nonlocal lease_id
            answer = asked("GET", f"/next?worker_id={WORKER}&batch_size={want}")
            lease_id = answer["lease_id"]
            return [(one["token"], one["kind"]) for one in answer["urls"]]

        def tell(leases: list[tuple[int, str]]) -> None:
            rows = [
                {"token": token, "status": "success", "http_status": 200 if kind == "page" else 404, "fetch_time_ms": 0}
                for token, kind in leases
            ]
            asked("POST", "/results", {"lease_id": lease_id, "results": rows})

        def add(urls: list[str]) -> None:
            asked("POST", "/urls", {"urls": urls})

        return _measured(add, ask, tell, lambda: cpu_seconds_of_process(pid), given.hosts, counts)


def grpc(given: argparse.Namespace, counts: Mapping[int, int]) -> dict[int, dict[str, Any]]:
    """Calls `GetURLs` and `PutURLs` of URLFrontier: one URL of each queue, and an update for each. All updates are sent
    in one stream, as StormCrawler sends them."""
    with (
        served(given.directory, "--grpc") as (pid, port),
        UrlFrontier(f"127.0.0.1:{port}") as client,
        JoinedStream(port, PUT_URLS) as updates,
    ):

        def ask(want: int) -> list[tuple[str, str]]:
            return [(url, "page") for url in client.get(want)]

        def tell(leases: list[tuple[str, str]]) -> None:
            updates.send([item(url, known=True) for url, _ in leases])
            updates.answers(len(leases))

        return _measured(client.put_batch, ask, tell, lambda: cpu_seconds_of_process(pid), given.hosts, counts)


# -- the table ---------------------------------------------------------------------------------------------------------


def table(found: Mapping[tuple[str, int], Sequence[Found]], hosts: int, rounds: int, missing: str | None) -> Table:
    """Returns medians of the rounds. Without the peer, its ratio is omitted."""
    rows: list[tuple[object, ...]] = []
    prices: dict[str, tuple[float, float]] = {}  # CPU seconds per URL in the largest batch, and with adding it
    for (way, batch), ones in found.items():
        if way == PEER:
            price = middle([one["take"]["cpu"] / one["take"]["count"] for one in ones])
            adding = middle([one["fill"]["cpu"] / one["fill"]["count"] for one in ones])
            calls = middle([one["take"]["count"] / one["take"]["wall"] for one in ones])
            cells: list[float | None] = [calls, *[None] * 4, price * 1e6, None]
        else:
            price = middle([one["cpu"] / one["count"] for one in ones])
            adding = middle([one["adding"] for one in ones])
            times = [middle([one[call][at] for one in ones]) * 1e3 for call in ("next", "results") for at in (0, 1)]
            own = middle([one["own"] / one["count"] for one in ones]) * 1e6 if way != EMBEDDED else None
            cells = [middle([one["calls"] / one["wall"] for one in ones]), *times, price * 1e6, own]
        prices[way] = price, price + adding
        rows.append((way, batch, *cells, 1 / price, adding * 1e6))
    notes = [
        f"{hosts:,} hosts of {EACH} URLs, on disk, each call synced; pauses off; medians of {rounds} in turns.",
        "gRPC: GetURLs of as many queues, and their updates in one stream that is open all the time.",
        f"CPU: of the server's process; of the whole process if embedded; of scheduler and Redis for {PEER},",
        "which stores nothing on disk, has no pauses and accepts no results: it pops one URL per call.",
        "Adding: CPU per new URL, in calls of 1,000; one per call for the peer.",
    ]
    if missing is None:
        (ours, ours_whole), (theirs, theirs_whole) = prices[REST], prices[PEER]
        reached = "reached" if theirs / ours >= LEAST_AGAINST_PEER else "MISSED"
        notes.append(
            f"URLs per CPU second, REST in the largest batches compared with {PEER}: {theirs / ours:.2f}x "
            f"(to reach: {LEAST_AGAINST_PEER:g}x, {reached}); with adding {theirs_whole / ours_whole:.2f}x."
        )
    else:
        notes.append(missing)
    notes += [_against_rest(found, batch) for way, batch in found if way == GRPC and (REST, batch) in found]
    columns = (
        *("", "batch", "requests/s", "next p50 ms", "p99", "results p50 ms", "p99"),
        *("CPU µs/URL", "client's", "URLs/CPU s", "adding, CPU µs"),
    )
    return Table("service", "Leases and results over REST and gRPC", columns, tuple(rows), tuple(notes))


def _against_rest(found: Mapping[tuple[str, int], Sequence[Found]], batch: int) -> str:
    """Returns how much more CPU time of the server a URL costs over REST in batches of this size."""
    largest = max(size for way, size in found if way == GRPC)
    rest, grpc = (
        middle([one["cpu"] / one["count"] for one in found[way, size]])
        for way, size in ((REST, batch), (GRPC, largest))
    )
    aim = LEAST_AGAINST_REST.get(batch)
    reached = "" if aim is None else f" (to reach: {aim:g}x, {'reached' if rest / grpc >= aim else 'MISSED'})"
    return f"CPU/URL of REST, {batch} a call, compared with gRPC, {largest} a call: {rest / grpc:.1f}x{reached}."


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=(REST, GRPC, EMBEDDED))
    parser.add_argument("--hosts", type=int, required=True)
    parser.add_argument("--visits", type=json.loads, required=True)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    counts = {int(batch): count for batch, count in given.visits.items()}
    found = {REST: rest, GRPC: grpc, EMBEDDED: embedded}[given.way](given, counts)
    given.out.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
