"""The gRPC server under many streams without traffic, messages above the limit, clients that read slowly or vanish, and
queues that are deleted: other clients do not wait, memory is bounded, and no thread stays busy."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import threading
import time

import grpc
import pytest
from bench.joined_stream import JoinedStream
from bench.measuring import cpu_seconds_of_process, resident_bytes_of
from bench.tables import quantile
from bench.urlfrontier_peer import PUT_URLS, item

from e2e.crawling import wait_for
from grpc_client import PROTOCOL, Client, discovered, running_loop
from outrider import Frontier
from servers.served import servers

STREAMS = 2_000
BYTES_PER_STREAM_MAX = 32 << 10
ROUNDS, ROUNDS_MAX, LEASES = 3, 10, 200
IDLE_SECONDS = 2.0
BUSY_SHARE_MAX = 0.25
OPENING_SECONDS_MAX = 60
MESSAGE_BYTES = 64 << 20
PROCESSES = multiprocessing.get_context("spawn")
TOO_MUCH = bytes(MESSAGE_BYTES)
MESSAGE_ROOM_BYTES = 32 << 20
LEASE_SECONDS = 0.05
"""Under this, a lease may wait longer than in a quiet server: it shares one disk with the syncs of other clients."""
PAUSE_SECONDS = 0.2
"""Between two acts of a client that disturbs: it must not use the machine up."""
LARGE_URLS, METADATA = 2_000, "x" * 4_000
IN_FLIGHT, ACKNOWLEDGED_SECONDS_MAX = 100_000, 60


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


def leases_wait(others, quiet):
    """Whether leases wait for other clients. The machine may be busy with other tests, so the best round counts."""
    return min(others) > max(2 * min(quiet), LEASE_SECONDS)


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
        assert not leases_wait(idle, quiet), (quiet, idle)
        assert min(growths) < STREAMS * BYTES_PER_STREAM_MAX, growths
        assert growths[-1] <= growths[0], f"memory grows with each round: {growths}"


def test_a_message_of_64_mb_is_refused_before_it_arrives(server):
    process, address = server
    client = Client(address)
    client.put(discovered("http://a.test/"))
    before = resident_bytes_of(process.pid)
    with pytest.raises(grpc.RpcError) as raised:
        client.put(TOO_MUCH)
    assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert resident_bytes_of(process.pid) - before < MESSAGE_ROOM_BYTES
    assert client.ask("GetStats")["size"] == 1


def sends_too_much(address):
    client = Client(address)
    with contextlib.suppress(grpc.RpcError):
        client.put(TOO_MUCH)
    client.close()


def vanishes(address):
    client, gone = Client(address), threading.Event()

    def items():
        yield discovered("http://vanish.test/")
        gone.wait()

    streams = [client.stream("PutURLs", items()) for _ in range(10)]
    for stream in streams:
        next(stream)
    client.close()  # while all of them are open
    gone.set()


def deletes_what_it_is_given(address):
    client = Client(address)
    client.put(*(discovered(f"http://deleted.test/{row}") for row in range(100)))
    urls = client.stream("GetURLs", {"key": "deleted.test", "max_urls_per_queue": 100})
    client.ask("DeleteQueue", {"key": "deleted.test"})
    list(urls)
    client.close()


def again_and_again(act, address, begun, ended):
    """A client that disturbs, in a process of its own. It leaves the processor to the server."""
    os.nice(19)
    while not ended.wait(PAUSE_SECONDS):
        act(address)
        begun.set()


@contextlib.contextmanager
def repeated(act, address):
    begun, ended = PROCESSES.Event(), PROCESSES.Event()
    process = PROCESSES.Process(target=again_and_again, args=(act, address, begun, ended))
    process.start()
    try:
        assert begun.wait(OPENING_SECONDS_MAX)
        yield
        assert process.is_alive(), "the client failed"
    finally:
        ended.set()
        process.join()


@contextlib.contextmanager
def slow_reader(address):
    """A client that reads the first of many large URLs, and no more."""
    client = Client(address)
    for first in range(0, LARGE_URLS, 500):
        rows = range(first, first + 500)
        client.put(*(discovered(f"http://large{row}.test/", m=[METADATA]) for row in rows))
    opened = []

    def reads():
        urls = client.stream("GetURLs", {"delay_requestable": 1}, seconds=OPENING_SECONDS_MAX)
        opened.append(urls)
        return next(urls, None) is not None

    wait_for(reads)  # URLs that a call before did not read are handed out again after a second
    try:
        yield
    finally:
        opened[-1].cancel()
        client.close()


@pytest.mark.parametrize(
    "disturbed",
    [
        lambda address: repeated(sends_too_much, address),
        lambda address: repeated(vanishes, address),
        lambda address: repeated(deletes_what_it_is_given, address),
        slow_reader,
    ],
    ids=["large messages", "clients that vanish", "deleted queues", "slow reader"],
)
def test_a_client_that_disturbs_delays_no_lease_of_others(server, disturbed):
    process, address = server
    with Frontier.connect(f"grpc://{address}", worker="ann") as frontier:
        frontier.set_delay(0.0)
        frontier.discover([f"http://h{number}.test/" for number in range(50)])
        quiet, others, sizes = [], [], []
        while len(quiet) < ROUNDS or (leases_wait(others, quiet) and len(quiet) < ROUNDS_MAX):
            quiet.append(p99(frontier))
            with disturbed(address):
                others.append(p99(frontier))
            sizes.append(resident_bytes_of(process.pid))
        assert not leases_wait(others, quiet), (quiet, others)
        assert sizes[-1] - sizes[0] < MESSAGE_ROOM_BYTES, f"memory grows with each round: {sizes}"
        used = cpu_seconds_of_process(process.pid)
        threading.Event().wait(IDLE_SECONDS)
        busy = (cpu_seconds_of_process(process.pid) - used) / IDLE_SECONDS
        assert busy < BUSY_SHARE_MAX, f"{busy:.0%} of a core"


def test_a_hundred_thousand_items_in_flight_are_acknowledged_in_a_minute(server):
    _, address = server
    items = [item(f"http://h{row % 500}.test/{row}", known=False) for row in range(IN_FLIGHT)]
    with JoinedStream(int(address.rpartition(":")[2]), PUT_URLS) as stream:
        begun = time.monotonic()
        stream.send(items)
        answers = stream.answers(IN_FLIGHT)
        assert time.monotonic() - begun < ACKNOWLEDGED_SECONDS_MAX
    assert len(set(answers)) == IN_FLIGHT
    assert Client(address).ask("GetStats")["size"] == IN_FLIGHT
