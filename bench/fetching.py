"""`fetching`: one page from loopback by each downloader, in CPU time of the client's process with all its threads.

A server in its own process answers with the same 30 kB. 32 hosts are requested at once, each over one connection.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.tables import Table, ratio
from outrider.clock import wall
from outrider.fetch.curl import CurlDownloader
from outrider.fetch.downloader import Request
from outrider.fetch.native import NativeDownloader
from outrider.kernels import in_use

PAGES = int(os.environ.get("BENCH_FETCHES", "4000"))
HOSTS = 32
ROUNDS = 3
_SERVER = """
import asyncio, gzip, sys
body = (b"<p>%s</p>" % (b"words and words " * 2_000))[:30_000]
answers = {
    b"/plain": b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body) + body,
    b"/fresh": b"HTTP/1.1 200 OK\\r\\nConnection: close\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body) + body,
}
packed = gzip.compress(body)
answers[b"/gzip"] = (
    b"HTTP/1.1 200 OK\\r\\nContent-Encoding: gzip\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(packed) + packed
)
class Answering(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
    def data_received(self, data):
        path = data.split(b" ", 2)[1]
        self.transport.write(answers[path])
        if path == b"/fresh":
            self.transport.close()
async def main():
    server = await asyncio.get_running_loop().create_server(Answering, "127.0.0.1", 0, backlog=1_024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.sleep(3_600)
asyncio.run(main())
"""
WAYS = {"kept connection": "/plain", "kept connection, gzip": "/gzip", "new connection for each page": "/fresh"}


@contextmanager
def served() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", _SERVER], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.terminate()
        process.wait()


def price(kind: type[CurlDownloader | NativeDownloader], port: int, path: str) -> float:
    """Returns the CPU microseconds of one fetch."""

    async def main() -> float:
        downloader = kind(clock=wall)

        async def one(host: int, pages: int) -> None:
            request = Request(f"http://h{host}.test:{port}{path}", "127.0.0.1", "bench")
            for _ in range(pages):
                response = await downloader.fetch(request)
                assert (response.status, len(response.content)) == (200, 30_000), response.error_text

        await asyncio.gather(*(one(host, 3) for host in range(HOSTS)))
        before = time.process_time()
        await asyncio.gather(*(one(host, PAGES // HOSTS) for host in range(HOSTS)))
        took = time.process_time() - before
        await downloader.close()
        return took / (PAGES // HOSTS * HOSTS) * 1e6

    return asyncio.run(main())


def tables() -> list[Table]:
    """Measures each way by each downloader, in turns. The smallest value of the rounds counts."""
    kinds: list[type[CurlDownloader | NativeDownloader]] = [CurlDownloader]
    if in_use() == "native":
        kinds.append(NativeDownloader)
    rows = []
    with served() as port:
        for words, path in WAYS.items():
            least = [min(price(kind, port, path) for _ in range(ROUNDS)) for kind in kinds]
            cells = [f"{micros:.0f} µs" for micros in least]
            rows.append((words, *cells, ratio(least[0], least[-1])))
    names = ("libcurl", "fetch kernel")[: len(kinds)]
    return [Table("fetching", "One fetch", ("way", *names, "ratio"), tuple(rows), (f"{PAGES} fetches of 30 kB each.",))]
