"""Fetching from servers that are slow, break off or speak no HTTP: each fault has its name, and ends in its time."""

from __future__ import annotations

import asyncio
import gzip
import os
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from e2e.downloaders import each_downloader, lines_to_make, new  # noqa: F401 - a fixture
from e2e.hostile import Connection, Script, answers, closes_after, hostile
from outrider.clock import wall
from outrider.fetch.curl import CurlDownloader
from outrider.fetch.downloader import Request, Response
from outrider.fetch.failures import FetchError

pytestmark = pytest.mark.usefixtures("each_downloader")

AGENT = "Outrider/0.1 (+https://example.org/bot)"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"


def fetch(script: Script, **limits: Any) -> Response:
    async def main() -> Response:
        async with hostile(script) as site:
            downloader = new()
            try:
                return await downloader.fetch(Request(f"http://site.test:{site.port}/", "127.0.0.1", AGENT, **limits))
            finally:
                await downloader.close()

    return asyncio.run(main())


def fetch_from(url: str, address: str = "127.0.0.1", **limits: Any) -> Response:
    async def main() -> Response:
        downloader = new()
        try:
            return await downloader.fetch(Request(url, address, AGENT, **limits))
        finally:
            await downloader.close()

    return asyncio.run(main())


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Below the default limits (30 s idle, 60 s in all) and far above the test's own, for the machine may be busy."""
    begin = time.monotonic()
    yield
    assert seconds > time.monotonic() - begin


def outcome(response: Response) -> tuple[FetchError | None, int | None, str | None, bytes]:
    return response.error, response.status, response.truncated, response.body


# Time


def test_a_server_that_accepts_and_says_nothing() -> None:
    with at_most(10):
        response = fetch(Connection.hang, idle_seconds=0.2)
    assert (FetchError.FIRST_BYTE_TIMEOUT, None, None, b"") == outcome(response)


def test_a_head_that_arrives_too_slowly_reaches_the_total_limit() -> None:
    async def script(connection: Connection) -> None:
        await connection.request()
        await connection.drip(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1_000, 0.01)

    with at_most(10):
        response = fetch(script, idle_seconds=0.3, total_seconds=0.6)
    assert (FetchError.TOTAL_TIMEOUT, None, None, b"") == outcome(response)


def test_one_endless_header_line_that_drips_is_not_an_answer() -> None:
    async def script(connection: Connection) -> None:
        await connection.request()
        await connection.drip(b"HTTP/1.1 200 OKKKKKKKK" * 100, 0.01)

    with at_most(10):
        response = fetch(script, idle_seconds=0.3, total_seconds=0.6)
    assert FetchError.FIRST_BYTE_TIMEOUT == response.error


def test_a_body_that_drips_beyond_the_total_limit_is_a_cut_page() -> None:
    async def script(connection: Connection) -> None:
        await connection.request()
        await connection.send(HEAD)
        await connection.drip(b"x" * 100, 0.02)

    with at_most(10):
        response = fetch(script, idle_seconds=0.3, total_seconds=0.5)
    assert (None, 200, "time") == outcome(response)[:3]
    assert 5 < len(response.body) < 50


def test_a_body_that_stalls() -> None:
    async def script(connection: Connection) -> None:
        await connection.request()
        await connection.send(HEAD + b"abc")
        await connection.hang()

    with at_most(10):
        response = fetch(script, idle_seconds=0.2)
    assert (FetchError.IDLE_TIMEOUT, 200, "time", b"abc") == outcome(response)


def test_the_request_that_stalled_is_not_charged_with_connecting() -> None:
    async def script(connection: Connection) -> None:
        await connection.request()
        await asyncio.sleep(0.3)
        await connection.send(HEAD + b"x" * 100)

    response = fetch(script)
    assert 0.3 <= response.seconds < 5


def test_an_address_that_never_answers() -> None:
    """A full accept queue drops further connections, as a black hole does."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        with at_most(10):
            response = fetch_from(f"http://site.test:{port}/", connect_seconds=0.3)
        for filler in fillers:
            filler.close()
    assert (FetchError.CONNECT_TIMEOUT, None, None, b"") == outcome(response)
    assert b"" == response.request_head


# Connections


def test_a_closed_port_refuses() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        response = fetch_from(f"http://site.test:{unused.getsockname()[1]}/")
    assert (FetchError.CONNECT_REFUSED, None, b"") == (response.error, response.status, response.request_head)


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (b"", (FetchError.RESET, None, None, b"")),
        (b"HTTP/1.1 2", (FetchError.RESET, None, None, b"")),
        (b"HTTP/1.1 200 OK\r\nX: y\r\n", (FetchError.RESET, None, None, b"")),
        (HEAD, (None, 200, "disconnect", b"")),
        (HEAD + b"abc", (None, 200, "disconnect", b"abc")),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", (None, 200, "disconnect", b"5\r\nab")),
        (b"HTTP/1.1 200 OK\r\n\r\nabc", (None, 200, "disconnect", b"abc")),
    ],
)
def test_a_reset_at_each_phase(sent: bytes, expected: tuple[Any, ...]) -> None:
    async def script(connection: Connection) -> None:
        await connection.request()
        await connection.send(sent)
        await asyncio.sleep(0.1)  # a reset overtakes bytes that the other side has not read
        connection.reset()

    assert expected == outcome(fetch(script))


def test_a_reset_before_the_request() -> None:
    async def script(connection: Connection) -> None:
        connection.reset()

    assert FetchError.RESET == fetch(script).error


@pytest.mark.parametrize("sent", [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nX: y", b"HTTP/1.1 103 Early\r\n\r\n"])
def test_a_connection_closed_within_the_head_may_do_better_later(sent: bytes) -> None:
    response = fetch(closes_after(sent))
    assert (FetchError.RESET, None, None, b"") == outcome(response)


def test_a_connection_closed_without_a_byte_is_an_empty_reply() -> None:
    assert (FetchError.EMPTY_REPLY, None, None, b"") == outcome(fetch(closes_after(b"")))


@pytest.mark.parametrize(
    ("sent", "body"),
    [
        (HEAD + b"abc", b"abc"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n", b"5\r\nabcde\r\n"),
    ],
)
def test_a_body_shorter_than_promised_is_a_cut_page(sent: bytes, body: bytes) -> None:
    assert (None, 200, "disconnect", body) == outcome(fetch(closes_after(sent)))


def test_bytes_beyond_the_promised_length_are_not_the_bodys() -> None:
    response = fetch(closes_after(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n\r\nsmuggled"))
    assert (None, 200, None, b"ok") == outcome(response)


def test_bytes_beyond_the_last_chunk_are_not_the_bodys() -> None:
    sent = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\nsmuggled"
    assert (None, 200, None, b"2\r\nok\r\n0\r\n\r\n") == outcome(fetch(closes_after(sent)))


# Not HTTP


@pytest.mark.parametrize(
    "sent",
    [
        b"<html>an answer of 1991</html>",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x16\x03\x01\x00\x05hello",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 000 Nothing\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX\x00Y: z\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: y\rTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon here\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello",
    ],
)
def test_an_answer_that_is_not_http(sent: bytes) -> None:
    assert (FetchError.MALFORMED, b"") == outcome(fetch(closes_after(sent)))[::3]


@pytest.mark.parametrize("chunk", [b"zz\r\nhello\r\n", b"-5\r\nhello\r\n", b"\r\n\r\n", b"fffffffffffffffffff\r\nx"])
def test_invalid_chunks(chunk: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    response = fetch(closes_after(head + b"2\r\nok\r\n" + chunk))
    assert (FetchError.MALFORMED, 200, "unspecified", b"ok") == (
        response.error,
        response.status,
        response.truncated,
        response.content,
    )


def test_a_transfer_coding_that_was_not_requested_is_decoded() -> None:
    packed = gzip.compress(b"hello")
    body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(packed), packed)
    response = fetch(closes_after(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n" + body))
    assert (None, body, b"hello") == (response.error, response.body, response.content)


def test_a_length_beyond_all_numbers_ends_with_the_connection() -> None:
    response = fetch(closes_after(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\nok"))
    assert (None, 200, None, b"ok") == outcome(response)


def test_a_redirect_to_a_bad_chunk_keeps_its_location() -> None:
    head = b"HTTP/1.1 302 Found\r\nLocation: /x\r\nTransfer-Encoding: chunked\r\n\r\n"
    response = fetch(closes_after(head + b"nonsense"))
    assert (302, "/x") == (response.status, response.headers.get("location"))


# Floods


async def _endless(connection: Connection, first: bytes, again: bytes) -> None:
    await connection.request()
    await connection.send(first)
    while True:
        await connection.send(again)


@pytest.mark.parametrize(
    ("first", "again"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"X-Flood: yyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n" * 100),
        (b"HTTP/1.1 200 OK\r\nX-Long: ", b"y" * 65_536),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
        (b"", b"HTTP/1.1 103 Early Hints\r\nLink: " + b"y" * 4_000 + b"\r\n\r\n"),
        (b"HTTP/1.1 200 " + b"y" * 1_000_000 + b"\r\n", b"X: y\r\n" * 10_000),
    ],
    ids=["lines", "one line", "100-continue", "early hints", "status line"],
)
def test_a_flood_of_head_is_cut_off(first: bytes, again: bytes) -> None:
    with at_most(20):
        response = fetch(lambda connection: _endless(connection, first, again))
    assert (FetchError.TOO_MANY_HEADERS, None, b"") == (response.error, response.status, response.head)


def test_a_header_of_one_megabyte_is_refused() -> None:
    response = fetch(closes_after(b"HTTP/1.1 200 OK\r\nX-Big: " + b"y" * 1_000_000 + b"\r\n\r\n"))
    assert FetchError.TOO_MANY_HEADERS == response.error


def test_many_ordinary_headers_are_let_pass() -> None:
    head = b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: %b\r\n" % (n, b"y" * 200) for n in range(500))
    response = fetch(closes_after(head + b"Content-Length: 2\r\n\r\nok"))
    assert (200, 501, b"ok") == (response.status, len(response.headers), response.body)


def test_a_flood_of_trailers_is_cut_off() -> None:
    first = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n"
    with at_most(20):
        response = fetch(lambda connection: _endless(connection, first, b"X-Trailer: y\r\n" * 100))
    assert (200, b"ok") == (response.status, response.content)
    assert len(response.body) <= 2_000_000


def test_chunk_extensions_without_end_are_cut_off() -> None:
    first = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x="
    with at_most(20):
        response = fetch(lambda connection: _endless(connection, first, b"y" * 65_536))
    assert 2_000_000 >= len(response.head) + len(response.body)
    assert b"" == response.content


def test_controls_in_a_header_are_kept_in_the_bytes() -> None:
    """The archive is exact; text for a terminal is made safe where it is printed."""
    head = b"HTTP/1.1 200 OK\r\nX-Note: \x1b[31mred\x07\r\nContent-Length: 0\r\n\r\n"
    assert head == fetch(closes_after(head)).head


# Addresses


@pytest.mark.parametrize("script", [closes_after(OK), answers(OK)], ids=["new connection", "kept connection"])
def test_a_peer_other_than_the_chosen_address_is_refused_to_libcurl(script: Script) -> None:
    """The request is sent only to its own address, even if libcurl would connect to, or has a connection to,
    another."""

    async def main() -> tuple[FetchError | None, int]:
        async with hostile(script) as site:
            downloader = CurlDownloader(clock=wall)
            request = Request(f"http://127.0.0.1:{site.port}/", "127.0.0.1", AGENT)
            assert 200 == (await downloader.fetch(request)).status
            transfer = downloader._idle[-1]
            prepare = transfer.prepare

            def astray(*arguments: Any) -> None:
                prepare(*arguments)
                transfer.address = "93.184.216.34"  # as if libcurl had found another address than the one checked

            transfer.prepare = astray  # type: ignore[method-assign]
            response = await downloader.fetch(request)
            await downloader.close()
            return response.error, len(site.requests)

    assert (FetchError.BLOCKED_ADDRESS, 1) == asyncio.run(main())


def test_a_request_is_sent_to_the_given_address_without_any_resolver() -> None:
    async def main() -> tuple[int | None, bytes]:
        async with hostile(closes_after(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")) as site:
            downloader = new()
            response = await downloader.fetch(Request(f"http://nowhere.invalid:{site.port}/", "127.0.0.1", AGENT))
            await downloader.close()
            return response.status, site.requests[0].split(b"\r\n")[1].split(b":")[1]

    assert (200, b" nowhere.invalid") == asyncio.run(main())


def test_an_ipv6_address_is_sent_in_brackets() -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")

    async def main() -> int | None:
        try:
            async with hostile(closes_after(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"), host="::1") as site:
                downloader = new()
                response = await downloader.fetch(Request(f"http://[::1]:{site.port}/", "::1", AGENT))
                await downloader.close()
                return response.status
        except OSError:
            pytest.skip("no IPv6 here")

    assert 200 == asyncio.run(main())


# Descriptors and memory


def test_every_descriptor_is_given_back() -> None:
    """Ended, cut, timed out, refused and cancelled fetches alike."""

    async def script(connection: Connection) -> None:
        if b"/hang" in await connection.request():
            await connection.reader.read()  # until the client closes
            return
        await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + b"x" * 5_000)

    async def main() -> tuple[int, int]:
        async with hostile(script) as site:

            async def use() -> None:
                downloader = new()
                tasks = [
                    asyncio.create_task(
                        downloader.fetch(
                            Request(
                                f"http://h{number}.test:{site.port}/{path}",
                                "127.0.0.1",
                                AGENT,
                                bytes_max=bytes_max,
                                idle_seconds=idle,
                            )
                        )
                    )
                    for number, (path, bytes_max, idle) in enumerate(
                        [("", 9_000, 5.0), ("", 900, 5.0), ("hang", 9_000, 0.1), ("hang", 9_000, 5.0)] * 5
                    )
                ]
                await asyncio.sleep(0.3)
                for task in tasks[3::4]:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                await downloader.close()

            await use()
            await asyncio.sleep(0.05)
            before = len(os.listdir("/dev/fd"))
            await use()
            await asyncio.sleep(0.05)
            return before, len(os.listdir("/dev/fd"))

    before, after = asyncio.run(main())
    assert before == after


def test_a_shortage_of_descriptors_is_a_passing_error(project: Path) -> None:
    code = textwrap.dedent(
        """
        import asyncio, resource, socket
        from collections import Counter
        from outrider.clock import wall
        from outrider.fetch.downloader import Request
        async def main():
            downloader = Downloader(clock=wall)
            listener = socket.create_server(("127.0.0.1", 0), backlog=100)  # the kernel accepts, nobody answers
            port = listener.getsockname()[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (15, 4096))
            def ask(n):
                return downloader.fetch(Request(f"http://h{n}.test:{port}/", "127.0.0.1", "A", idle_seconds=0.2))
            first = await asyncio.gather(*(ask(n) for n in range(30)))
            assert {r.error.retryable for r in first} == {True}, Counter(r.error for r in first)
            assert {"internal", "first_byte_timeout"} == {r.error for r in first}, Counter(r.error for r in first)
            await downloader.close()
            print("survived")
        asyncio.run(main())
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", lines_to_make() + code],
        capture_output=True,
        text=True,
        cwd=project,
        env={"PYTHONPATH": str(project / "src")},
        timeout=60,
        check=False,
    )
    assert ("survived\n", "") == (done.stdout, done.stderr)


def test_a_hundred_hostile_answers_at_once_stay_small(project: Path) -> None:
    """Fifty endless bodies and fifty bombs: bodies of 2 MB are freed one after another, nothing else grows."""
    code = textwrap.dedent(
        """
        import asyncio, gzip, resource, sys
        from e2e.hostile import hostile
        from outrider.clock import wall
        from outrider.fetch.downloader import Request
        bomb = gzip.compress(bytes(10_000_000))
        async def script(connection):
            if b"/bomb" in await connection.request():
                await connection.send(b"HTTP/1.1 200 OK\\r\\nContent-Encoding: gzip\\r\\n\\r\\n" + bomb)
                return
            await connection.send(b"HTTP/1.1 200 OK\\r\\n\\r\\n")
            while True:
                await connection.send(b"x" * 65536)
        async def main():
            async with hostile(script) as site:
                downloader = Downloader(clock=wall, connections_max=10)
                async def ask(n):
                    kind = "bomb" if n % 2 else "endless"
                    response = await downloader.fetch(Request(f"http://h{n}.test:{site.port}/{kind}", "127.0.0.1", "A"))
                    return len(response.content)
                await ask(0), await ask(1)
                before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
                sizes = await asyncio.gather(*(ask(n) for n in range(100)))
                after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
                assert max(sizes) <= 2_000_000, max(sizes)
                await downloader.close()
                print((after - before) // 1024)
        asyncio.run(main())
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", lines_to_make() + code],
        capture_output=True,
        text=True,
        cwd=project,
        env={"PYTHONPATH": f"{project / 'src'}:{project / 'tests'}"},
        timeout=60,
        check=False,
    )
    assert "" == done.stderr
    assert int(done.stdout) < 64
