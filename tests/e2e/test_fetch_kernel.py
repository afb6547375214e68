"""The fetch kernel under load and at its ends: batches, time limits, forks, exits with everything still in flight."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from e2e.hostile import Connection, answers, hostile
from e2e.test_fetch_trains import Told, paths, train
from outrider.clock import wall
from outrider.errors import ClosedError, SettingsError
from outrider.fetch import FetchError
from outrider.fetch.downloader import Request, Response
from outrider.fetch.native import NativeDownloader
from outrider.kernels import in_use

pytestmark = pytest.mark.skipif(in_use() != "native", reason="the fetch kernel was not built")

AGENT = "Outrider/0.1 (+https://example.org/bot)"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def run(project: Path, code: str, *arguments: str, wanted: int = 0) -> subprocess.CompletedProcess:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        capture_output=True,
        text=True,
        cwd=project,
        env={"PYTHONPATH": f"{project / 'src'}:{project / 'tests'}"},
        timeout=240,
        check=False,
    )
    assert (wanted, "") == (done.returncode, done.stderr), done
    return done


def test_many_hosts_are_fetched_at_once() -> None:
    async def main() -> tuple[set[int | None], int]:
        async with hostile(answers(OK)) as site:
            downloader = NativeDownloader(clock=wall)
            requests = [Request(f"http://h{n % 50}.test:{site.port}/{n}", "127.0.0.1", AGENT) for n in range(500)]
            responses = await asyncio.gather(*map(downloader.fetch, requests))
            await downloader.close()
            assert [request.url for request in requests] == [response.url for response in responses]
            return {response.status for response in responses}, site.connections

    assert ({200}, 50) == asyncio.run(main())


def test_threads_share_the_hosts_among_them() -> None:
    async def main() -> tuple[set[int | None], int]:
        async with hostile(answers(OK)) as site:
            downloader = NativeDownloader(clock=wall, threads=3)
            requests = [Request(f"http://h{n % 20}.test:{site.port}/{n}", "127.0.0.1", AGENT) for n in range(100)]
            responses = await asyncio.gather(*map(downloader.fetch, requests))
            await downloader.close()
            return {response.status for response in responses}, site.connections

    assert ({200}, 20) == asyncio.run(main())


def test_no_request_of_a_train_begins_before_the_one_before_it_has_ended() -> None:
    """A long head is some time on its way to the threads; the times of all count from one instant."""

    async def main() -> list[tuple[int, int]]:
        async with hostile(answers(OK)) as site:
            downloader = NativeDownloader(clock=wall)
            asked, all_asked, times = wall(), asyncio.Event(), []
            fields = (("X-Long", "x" * 200_000),)

            def ended(tag: int, response: Response) -> None:
                times.append((response.started_at, response.ended_at))
                if len(times) == 20:
                    all_asked.set()

            url = f"http://h.test:{site.port}/"
            downloader.begin([(n, Request(url, "127.0.0.1", AGENT, fields)) for n in range(20)], ended)
            await all_asked.wait()
            await downloader.close()
            return [(asked, asked), *times]

    times = asyncio.run(main())
    assert [] == [(before, began) for (_, before), (began, _) in pairwise(times) if began < before]


def test_sockets_stay_within_their_number_kept_ones_included() -> None:
    open_now, most = 0, 0

    async def script(connection: Connection) -> None:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        try:
            while True:
                await connection.request()
                await connection.send(OK)
        finally:
            open_now -= 1

    async def main() -> int:
        async with hostile(script) as site:
            downloader = NativeDownloader(clock=wall, connections_max=4)
            for n in range(40):
                await downloader.fetch(Request(f"http://h{n}.test:{site.port}/", "127.0.0.1", AGENT))
                await asyncio.sleep(0)
            await asyncio.sleep(0.05)
            await downloader.close()
            return most

    # The server notices a closed connection a little later than the new one.
    assert asyncio.run(main()) <= 5


def test_bodies_that_are_not_collected_pause_the_reading_and_are_whole_in_the_end(project: Path) -> None:
    """The inbox is full after 16 MB; a loop that is delayed meanwhile neither grows nor loses anything."""
    code = """
        import asyncio, resource, threading, time
        from e2e.hostile import hostile
        from outrider.clock import wall
        from outrider.fetch.downloader import Request
        from outrider.fetch.native import NativeDownloader
        body = bytes(1_900_000)
        async def script(connection):
            await connection.request()
            await connection.send(b"HTTP/1.1 200 OK\\r\\nContent-Length: 1900000\\r\\n\\r\\n" + body)
        ports = []
        def serve():
            async def main():
                async with hostile(script) as site:
                    ports.append(site.port)
                    await asyncio.sleep(60)
            asyncio.run(main())
        threading.Thread(target=serve, daemon=True).start()
        while not ports:
            time.sleep(0.01)
        async def main():
            downloader = NativeDownloader(clock=wall)
            async def ask(n):
                response = await downloader.fetch(Request(f"http://h{n}.test:{ports[0]}/", "127.0.0.1", "A"))
                return len(response.content), response.error
            tasks = [asyncio.create_task(ask(n)) for n in range(60)]
            await asyncio.sleep(0.2)
            time.sleep(1)  # the loop is held up, and takes nothing
            found = await asyncio.gather(*tasks)
            assert {(1_900_000, None)} == set(found), set(found)
            await downloader.close()
            print("whole")
        asyncio.run(main())
    """
    assert "whole\n" == run(project, code).stdout


SERVER = """
import asyncio, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
ANSWER = b"HTTP/1.1 200 OK\\r\\nContent-Length: 5\\r\\n\\r\\nhello"
class Answering(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
    def data_received(self, data):
        asyncio.get_running_loop().call_later(float(sys.argv[1]), self.transport.write, ANSWER)
async def main():
    server = await asyncio.get_running_loop().create_server(Answering, "127.0.0.1", 0, backlog=10_000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""
LOAD = """
    import asyncio, resource, subprocess, sys
    from outrider.clock import wall
    from outrider.fetch.downloader import Request
    from outrider.fetch.native import NativeDownloader
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    seconds, server = sys.argv[1], sys.argv[5]
    hosts, times, fewer = map(int, sys.argv[2:5])
    serving = subprocess.Popen([sys.executable, "-c", server, seconds], stdout=subprocess.PIPE, text=True)
    port = int(serving.stdout.readline())
    def resident():
        return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
    async def main():
        downloader = NativeDownloader(clock=wall, connections_max=hosts)
        async def ask(n, times):
            request = Request(f"http://h{n}.test:{port}/", "127.0.0.1", "A", connect_seconds=60)
            for _ in range(times):
                response = await downloader.fetch(request)
                assert (200, b"hello") == (response.status, response.content), response
        await asyncio.gather(*(ask(n, fewer) for n in range(hosts)))
        first = resident()
        await asyncio.gather(*(ask(n, times - fewer) for n in range(hosts)))
        await downloader.close()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print((resident() - first) // 1_000_000, peak // 1_000_000)
    try:
        asyncio.run(main())
    finally:
        serving.kill()
        serving.wait()
        serving.stdout.close()
"""


def megabytes_of(project: Path, seconds: float, hosts: int, times: int, fewer: int) -> list[int]:
    """Returns how much the process grew after the first `fewer` of `times` fetches from each host, and its peak."""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < hosts + 100:
        pytest.skip("a process may not have so many sockets here")
    return [int(word) for word in run(project, LOAD, *map(str, (seconds, hosts, times, fewer)), SERVER).stdout.split()]


@pytest.mark.long
def test_ten_thousand_hosts_that_answer_after_five_seconds_need_below_two_hundred_megabytes(project: Path) -> None:
    _, peak = megabytes_of(project, 5, 10_000, 1, 1)
    assert peak < 200


@pytest.mark.long
def test_memory_stays_flat_over_many_fetches(project: Path) -> None:
    grown, _ = megabytes_of(project, 0, 50, 3_000, 300)
    assert grown < 5


def test_a_process_that_was_forked_off_is_refused_in_words() -> None:
    async def main() -> None:
        async with hostile(answers(OK)) as site:
            downloader = NativeDownloader(clock=wall)
            request = Request(f"http://site.test:{site.port}/", "127.0.0.1", AGENT)
            assert 200 == (await downloader.fetch(request)).status
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    downloader.fetch(request).send(None)
                except ClosedError as error:
                    code = 7 if "before a fork" in str(error) else 2
                finally:
                    os._exit(code)
            _, status = os.waitpid(child, 0)  # noqa: ASYNC222 - the child only raises
            assert 7 == os.waitstatus_to_exitcode(status)
            assert 200 == (await downloader.fetch(request)).status
            await downloader.close()

    asyncio.run(main())


EXITS = """
    import asyncio, gc, os, signal, socket, sys, threading
    from outrider.clock import wall
    from outrider.fetch.downloader import Request
    from outrider.fetch.native import NativeDownloader
    how, wanted, times = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    for _ in range(times):  # a child for each exit, before there is a thread: the imports are done once
        if not (child := os.fork()):
            break
        assert wanted == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    else:
        sys.exit()
    listener = socket.create_server(("127.0.0.1", 0), backlog=1_000)  # the kernel accepts, nobody answers
    port = listener.getsockname()[1]
    async def main():
        downloader = NativeDownloader(clock=wall, connections_max=200)
        def begin():
            requests = (Request(f"http://h{n}.test:{port}/", "127.0.0.1", "A") for n in range(200))
            return [asyncio.ensure_future(downloader.fetch(request)) for request in requests]
        tasks = begin()
        await asyncio.sleep(0.02)
        if how == "return":
            return
        if how == "exit":
            sys.exit(3)
        if how == "raise":
            raise SystemExit(4)
        if how == "interrupt":
            threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT)).start()
            await asyncio.gather(*tasks)
        if how == "collect":
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            asyncio.get_running_loop().remove_reader(downloader._engine.fileno())
            begin = task = tasks = downloader = None
            await asyncio.sleep(0)  # the loop lets go of the last tasks
            gc.collect()
            assert not [t for t in os.listdir("/proc/self/task")
                        if "outrider-fetch" in open(f"/proc/self/task/{t}/comm").read()]
        if how == "close":
            await downloader.close()
            assert {"internal"} == {str((await task).error) for task in tasks}
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        sys.exit(5)
    print("ended")
"""
CODES = {"return": 0, "exit": 3, "raise": 4, "interrupt": 5, "collect": 0, "close": 0}


def exits(project: Path, how: str, times: int) -> None:
    run(project, EXITS, how, str(CODES[how]), str(times))


@pytest.mark.parametrize("how", CODES)
def test_fifty_exits_with_everything_in_flight_are_clean(project: Path, how: str) -> None:
    exits(project, how, 9)


@pytest.mark.long
@pytest.mark.parametrize("how", CODES)
def test_five_hundred_exits_with_everything_in_flight_are_clean(project: Path, how: str) -> None:
    exits(project, how, 84)


def test_a_request_that_the_kernel_cannot_accept_fails_alone() -> None:
    async def main() -> tuple[bool, FetchError | None]:
        downloader = NativeDownloader(clock=wall)
        wrong = Request("http://a.test:8099/", "127.0.0.1", "outrider", bytes_max=-1)
        right = Request("http://b.test:8099/", "[127.0.0.1]", "outrider", total_seconds=0.2)
        found = await asyncio.wait_for(
            asyncio.gather(downloader.fetch(wrong), downloader.fetch(right), return_exceptions=True), 20
        )
        await downloader.close()
        assert isinstance(found[1], Response)
        return isinstance(found[0], SettingsError), found[1].error

    failed, error = asyncio.run(main())
    assert (True, True) == (failed, error is not None)


def test_a_train_with_a_request_that_the_kernel_cannot_accept_is_split() -> None:
    """Its other requests are sent all the same, in their order, and so is a train of the same batch."""

    async def main() -> tuple[list[object], list[str]]:
        async with hostile(answers(OK)) as site:
            downloader, told = NativeDownloader(clock=wall), Told()
            sizes = {"a": 100_000, "b": -1, "c": 100_000}
            mixed = [(tag, replace(one, bytes_max=sizes[tag])) for tag, one in train(site, *"abc")]
            downloader.begin(mixed, told.ended)
            downloader.begin(train(site, "d", host="other.test"), told.ended)
            await told.so_many(4)
            await downloader.close()
            ends = dict(told.ends)
            found = [one.status if isinstance(one, Response) else type(one) for one in map(ends.__getitem__, "abcd")]
            return found, [path for path in paths(site) if path != "d"]

    assert ([200, SettingsError, 200, 200], ["a", "c"]) == asyncio.run(main())


def test_no_answer_ends_before_the_site_has_sent_it() -> None:
    """A turn of the loop that was slow between the beginning of a fetch and its submission was subtracted from its end,
    and the next request to its host was sent before its gap was over."""
    sent_at: list[int] = []

    async def tells(connection: Connection) -> None:
        while True:
            await connection.request()
            sent_at.append(wall())
            await connection.send(OK)

    async def main() -> list[int]:
        async with hostile(tells) as site:
            downloader, told = NativeDownloader(clock=wall), Told()
            asyncio.get_running_loop().call_soon(time.sleep, 0.1)
            downloader.begin(train(site, *"abc"), told.ended)
            await told.so_many(3)
            await downloader.close()
            return [answer.ended_at for _, answer in told.ends if isinstance(answer, Response)]

    ends = asyncio.run(main())
    assert all(sent <= ended for sent, ended in zip(sent_at, ends, strict=True))
