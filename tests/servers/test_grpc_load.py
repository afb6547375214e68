"""The gRPC server under many streams without traffic, and under a message above the limit: other clients do not wait,
memory is bounded, and no thread stays busy."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time

import grpc
import pytest
from bench.measuring import cpu_seconds_of_process, resident_bytes_of
from bench.tables import quantile

from grpc_client import PROTOCOL, Client, discovered, running_loop
from outrider import Frontier
from servers.served import servers

STREAMS = 2_000
BYTES_PER_STREAM_MAX = 32 << 10
ROUNDS, LEASES = 3, 200
IDLE_SECONDS = 2.0
BUSY_SHARE_MAX = 0.25
OPENING_SECONDS_MAX = 60
MESSAGE_BYTES = 64 << 20
MESSAGE_ROOM_BYTES = 32 << 20


@pytest.fixture
def server(tmp_path):
    """The process of a server, and its address."""
    with servers() as start:
        process, line = start(tmp_path / "crawl", "--grpc", "127.0.0.1:0")
        assert "serving gRPC at" in line, line
        yield process, line.split()[-1]


def p99(frontier):
    """The time in which 99 of 100 calls of `lease` are answered, in seconds."""
    times = []
    for _ in range(LEASES):
        begun = time.perf_counter()
        leases = frontier.lease(1)
        times.append(time.perf_counter() - begun)
        frontier.release([one.token for one in leases])
    return quantile(times, 0.99)


@contextlib.contextmanager
def idle_streams(loop, address):
    """Streams of PutURLs that are open, each with one item and its acknowledgement."""
    put = PROTOCOL.calls["PutURLs"]

    async def opened():
        channel = grpc.aio.insecure_channel(address)
        call = channel.stream_stream(put.path)

        async def one(number):
            stream = call()
            await stream.write(PROTOCOL.write("URLItem", discovered(f"http://idle.test/{number}")))
            assert PROTOCOL.read("AckMessage", await stream.read())["ID"] == f"http://idle.test/{number}"
            return stream

        # A client may begin 2,000 calls a second, and the leases are calls, too.
        streams = []
        for first in range(0, STREAMS, STREAMS // 4):
            streams += await asyncio.gather(*map(one, range(first, first + STREAMS // 4)))
        return channel, streams

    async def closed(channel, streams):
        for stream in streams:
            stream.cancel()
        await channel.close()

    held = asyncio.run_coroutine_threadsafe(opened(), loop).result(OPENING_SECONDS_MAX)
    try:
        yield
    finally:
        asyncio.run_coroutine_threadsafe(closed(*held), loop).result(OPENING_SECONDS_MAX)


def test_idle_streams_delay_no_lease_and_use_little_memory_and_no_cpu(server):
    process, address = server
    with running_loop() as loop, Frontier.connect(f"grpc://{address}", worker="ann") as frontier:
        frontier.set_delay(0.0)
        frontier.discover([f"http://h{number}.test/" for number in range(50)])
        quiet, idle, growths = [], [], []
        for _ in range(ROUNDS):
            quiet.append(p99(frontier))
            before = resident_bytes_of(process.pid)
            with idle_streams(loop, address):
                growths.append(resident_bytes_of(process.pid) - before)
                idle.append(p99(frontier))
                used = cpu_seconds_of_process(process.pid)
                threading.Event().wait(IDLE_SECONDS)
                busy = (cpu_seconds_of_process(process.pid) - used) / IDLE_SECONDS
                assert busy < BUSY_SHARE_MAX, f"{busy:.0%} of a core"
        # The machine may be busy with other tests, so the best round counts.
        assert min(idle) <= 2 * min(quiet), (quiet, idle)
        assert min(growths) < STREAMS * BYTES_PER_STREAM_MAX, growths
        assert growths[-1] <= growths[0], f"memory grows with each round: {growths}"


def test_a_message_of_64_mb_is_refused_before_it_arrives(server):
    process, address = server
    client = Client(address)
    client.put(discovered("http://a.test/"))
    before = resident_bytes_of(process.pid)
    with pytest.raises(grpc.RpcError) as raised:
        client.put(bytes(MESSAGE_BYTES))
    assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert resident_bytes_of(process.pid) - before < MESSAGE_ROOM_BYTES
    assert client.ask("GetStats")["size"] == 1
