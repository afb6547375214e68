"""A site with any number of hosts at one port of loopback, for `queues`: index pages that link to all hosts, and pages
of each host in a row.

    /index/I   links to the hosts I * 1,000 and following     h0.test … h9999.test
    /N         links to /N+1 of the same host, up to the last page
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from outrider.clock import elapsed

LINKS_PER_INDEX = 1_000


class ManyHosts:
    """hosts: their number; pages: of each host. answered: the number of answers. arrived: when each URL was requested,
    a reading of `elapsed`."""

    def __init__(self, hosts: int, pages: int) -> None:
        self.hosts, self.pages = hosts, pages
        self.port = 0
        self.answered = 0
        self.arrived: dict[str, int] = {}

    @property
    def total(self) -> int:
        """The number of pages, with the index."""
        return self.hosts * self.pages + self.indexes

    @property
    def indexes(self) -> int:
        """The number of index pages."""
        return -(-self.hosts // LINKS_PER_INDEX)

    @property
    def names(self) -> str:
        """The hosts as lines of /etc/hosts."""
        return "".join(f"127.0.0.1 h{host}.test\n" for host in range(self.hosts))

    def body(self, target: str) -> str:
        """Returns the links of a page."""
        kind, _, number = target.strip("/").rpartition("/")
        if kind == "index":
            first = int(number) * LINKS_PER_INDEX
            hosts = range(first, min(first + LINKS_PER_INDEX, self.hosts))
            return "".join(f'<a href="http://h{host}.test:{self.port}/1">x</a>' for host in hosts)
        return f'<a href="/{int(number) + 1}">x</a>' if int(number) < self.pages else ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers the requests of one connection."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                at, target = elapsed(), head.split(b" ", 2)[1].decode("ascii")
                host = head.partition(b"\r\nHost: ")[2].partition(b"\r\n")[0].decode("ascii")
                self.arrived[f"http://{host}{target}"] = at
                body = self.body(target).encode()
                self.answered += 1
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(body) + body
                )
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@contextmanager
def serving(hosts: int, pages: int) -> Iterator[ManyHosts]:
    """Answers in a thread of this process until the block ends."""
    web, loop = ManyHosts(hosts, pages), asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(web.answer, "127.0.0.1", 0))
    web.port = server.sockets[0].getsockname()[1]
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield web
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        loop.close()
