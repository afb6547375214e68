"""A server on loopback that treats each connection as a test says: late, cut, endless, broken, or well."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any


class Connection:
    """The server's side of one connection."""

    def __init__(self, site: Site, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.site = site
        self.reader = reader
        self.writer = writer

    async def request(self) -> bytes:
        """The next request's head; ends the script when the client is gone."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        self.site.requests.append(head)
        return head

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def drip(self, data: bytes, seconds: float) -> None:
        """One byte after another."""
        for at in range(len(data)):
            await self.send(data[at : at + 1])
            await asyncio.sleep(seconds)

    async def hang(self) -> None:
        await asyncio.sleep(60)

    def reset(self) -> None:
        """Ends with RST, also with bytes still to be sent."""
        raw: socket.socket = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Script = Callable[[Connection], Awaitable[None]]


class Site:
    """A running server: its port, and the requests that it saw."""

    def __init__(self) -> None:
        self.port = 0
        self.connections = 0
        self.requests: list[bytes] = []


@contextlib.asynccontextmanager
async def hostile(script: Script, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> AsyncIterator[Site]:
    """Runs `script` for each connection and then closes it."""
    site = Site()
    running: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        site.connections += 1
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, ssl.SSLError):
                await script(Connection(site, reader, writer))
                await writer.drain()
            writer.close()
        except asyncio.CancelledError:
            writer.transport.abort()
            raise

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(serve(reader, writer))
        running.add(task)
        task.add_done_callback(running.discard)

    def told(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        # No caller gets the error when a client resets a connection of a cancelled script.
        if not isinstance(context.get("exception"), ConnectionError):
            loop.default_exception_handler(context)

    asyncio.get_running_loop().set_exception_handler(told)
    server = await asyncio.start_server(accept, host, 0, ssl=tls, limit=1 << 20)
    site.port = server.sockets[0].getsockname()[1]
    try:
        yield site
    finally:
        server.close()
        for task in list(running):
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await asyncio.sleep(0)  # transports close in the next turn of the loop


@contextlib.contextmanager
def served(script: Script) -> Iterator[int]:
    """The port of such a server in a thread of its own, for tests that wait."""
    ports: list[int] = []
    begun, over = threading.Event(), threading.Event()

    async def main() -> None:
        async with hostile(script) as site:
            ports.append(site.port)
            begun.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    begun.wait(10)
    try:
        yield ports[0]
    finally:
        over.set()
        thread.join()


def answers(*answers: bytes) -> Script:
    """A script that sends one answer per request, the last one again and again, and keeps the connection."""

    async def script(connection: Connection) -> None:
        for number in range(1_000_000):
            await connection.request()
            await connection.send(answers[min(number, len(answers) - 1)])

    return script


def closes_after(answer: bytes) -> Script:
    """A script that sends one answer and closes."""

    async def script(connection: Connection) -> None:
        await connection.request()
        await connection.send(answer)

    return script
