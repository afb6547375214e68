"""A DNS server on loopback that answers truly or falsely, fails or stays silent, as a test wants."""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
from collections.abc import AsyncIterator, Collection, Iterator

A = 1
NO_ERROR, SERVFAIL, NXDOMAIN, REFUSED = 0, 2, 3, 5


class Stub(asyncio.DatagramProtocol):
    """A DNS server: a name's answers by a table of addresses and TTLs; names that are not in it do not exist.

    rcode: an answer to everything. silent: no answer at all. garbage: names whose answer is not a DNS message.
    """

    def __init__(
        self,
        table: dict[str, list[tuple[str, int]]],
        *,
        rcode: int = NO_ERROR,
        silent: bool = False,
        garbage: Collection[str] = (),
    ) -> None:
        self.table, self.rcode, self.silent, self.garbage = table, rcode, silent, garbage
        self.asked: list[str] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        name, kind, question = read_question(data)
        if kind == A:
            self.asked.append(name)
        if self.silent:
            return
        if name in self.garbage:
            self.transport.sendto(data[:2] + b"\xff" * 40, address)  # type: ignore[attr-defined]
            return
        found = self.table.get(name)
        rcode = self.rcode or (NXDOMAIN if found is None else NO_ERROR)
        records = [(one, ttl) for one, ttl in found or () if kind == A and not rcode]
        reply = struct.pack("!2sHHHHH", data[:2], 0x8180 | rcode, 1, len(records), 0, 0) + question
        for one, ttl in records:
            reply += struct.pack("!HHHIH", 0xC00C, A, 1, ttl, 4) + bytes(map(int, one.split(".")))
        self.transport.sendto(reply, address)  # type: ignore[attr-defined]


def read_question(data: bytes) -> tuple[str, int, bytes]:
    """The name in lower case, the kind, and the bytes of the question."""
    labels, at = [], 12
    while data[at]:
        labels.append(data[at + 1 : at + 1 + data[at]].decode().lower())
        at += 1 + data[at]
    return ".".join(labels), int.from_bytes(data[at + 1 : at + 3], "big"), data[12 : at + 5]


@contextlib.asynccontextmanager
async def served(*stubs: Stub) -> AsyncIterator[list[str]]:
    loop = asyncio.get_running_loop()
    transports = [
        (await loop.create_datagram_endpoint(lambda stub=stub: stub, local_addr=("127.0.0.1", 0)))[0]  # type: ignore[misc]
        for stub in stubs
    ]
    try:
        yield [f"127.0.0.1:{transport.get_extra_info('sockname')[1]}" for transport in transports]
    finally:
        for transport in transports:
            transport.close()


@contextlib.contextmanager
def served_beside(stub: Stub) -> Iterator[str]:
    """The server in a thread of its own: `127.0.0.1:PORT`."""
    loop, address = asyncio.new_event_loop(), []
    begun, ended = threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with served(stub) as servers:
            address.extend(servers)
            begun.set()
            await ended.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    begun.wait(10)
    try:
        yield address[0]
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(10)
        loop.close()
