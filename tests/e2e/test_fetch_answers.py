"""Fetching from servers that answer: exact bytes, one connection, requests as promised, all answers bounded."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import Callable
from typing import Any

import brotli
import pytest
from backports import zstd

from e2e.downloaders import AnyDownloader, each_downloader, new, run  # noqa: F401 - a fixture
from e2e.hostile import Connection, Script, Site, answers, closes_after, hostile
from outrider.errors import ClosedError, InvalidUrlError, SettingsError
from outrider.fetch.downloader import Decoding, Request, Response
from outrider.fetch.failures import FetchError
from outrider.fetch.judging import written_location

pytestmark = pytest.mark.usefixtures("each_downloader")

AGENT = "Outrider/0.1 (+https://example.org/bot)"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


PACK: dict[str, Callable[[bytes], bytes]] = {"br": brotli.compress, "zstd": zstd.compress}


def one(script: Script, path: str = "/", **limits: Any) -> Response:
    async def act(downloader: AnyDownloader, site: Site) -> Response:
        return await downloader.fetch(Request(f"http://site.test:{site.port}{path}", "127.0.0.1", AGENT, **limits))

    return run(script, act)


def head_of(*fields: str, status: str = "200 OK") -> bytes:
    return "".join(f"{line}\r\n" for line in (f"HTTP/1.1 {status}", *fields, "")).encode("latin-1")


# Requests on the wire


def test_the_request_head_kept_is_the_one_the_server_got() -> None:
    async def act(downloader: AnyDownloader, site: Site) -> tuple[bytes, bytes, int]:
        request = Request(
            f"http://site.test:{site.port}/a/../b%2f?q=1&r=|\"'", "127.0.0.1", AGENT, (("If-None-Match", '"x y"'),)
        )
        response = await downloader.fetch(request)
        return response.request_head, site.requests[0], site.port

    kept, got, port = run(closes_after(OK), act)
    assert kept == got
    assert (
        f"GET /a/../b%2f?q=1&r=|\"' HTTP/1.1\r\nHost: site.test:{port}\r\nUser-Agent: {AGENT}\r\n"
        "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\nAccept-Encoding: gzip\r\n"
        'If-None-Match: "x y"\r\n\r\n'
    ).encode() == got


@pytest.mark.parametrize("octets", [b'"\xfc"', '"ü"'.encode(), b"\x80\xff", b'W/"\x85 x"'])
def test_a_validator_beyond_ascii_is_sent_back_byte_for_byte(octets: bytes) -> None:
    async def act(downloader: AnyDownloader, site: Site) -> tuple[bytes, bytes]:
        url = f"http://site.test:{site.port}/"
        first = await downloader.fetch(Request(url, "127.0.0.1", AGENT))
        etag = first.headers.get("etag")
        assert etag is not None
        second = await downloader.fetch(Request(url, "127.0.0.1", AGENT, (("If-None-Match", etag),)))
        return second.request_head, site.requests[1]

    kept, got = run(answers(b"HTTP/1.1 200 OK\r\nETag: %b\r\nContent-Length: 2\r\n\r\nok" % octets), act)
    assert kept == got
    assert b"\r\nIf-None-Match: %b\r\n\r\n" % octets in got


def test_a_url_without_a_path_requests_the_root() -> None:
    async def act(downloader: AnyDownloader, site: Site) -> bytes:
        await downloader.fetch(Request(f"http://site.test:{site.port}?q", "127.0.0.1", AGENT))
        return site.requests[0].split(b"\r\n")[0]

    assert b"GET /?q HTTP/1.1" == run(closes_after(OK), act)


@pytest.mark.parametrize(
    "url",
    [
        "http://a.test/ x",
        "http://a.test/\r\nX: y",
        "http://a.test/\x00",
        "http://a.test/\t",
        "http://a.test/é",
        "http://a.test/#f",
        "http://user:secret@a.test/",
        "http://a\r\n.test/",
        "http://a.test:99999/",
        "http://a.test:0/",
        "file:///etc/passwd",
        "gopher://a.test/",
        "//a.test/",
        "http:///x",
        "http://a.test/" + "x" * 9_000,
    ],
)
def test_a_url_that_must_not_be_sent_is_refused(url: str) -> None:
    with pytest.raises(InvalidUrlError):
        Request(url, "127.0.0.1", AGENT)


@pytest.mark.parametrize(
    "headers",
    [
        (("X", "a\r\nY: b"),),
        (("X", "a\nb"),),
        (("X", "a\x00"),),
        (("X\r\nY", "b"),),
        (("X y", "b"),),
        (("X:", "b"),),
        (("", "b"),),
        (("X", ""),),
        (("X", "é"),),
        (("Host", "other.test"),),
        (("Content-Length", "5"),),
        (("transfer-encoding", "chunked"),),
    ],
)
def test_a_header_that_would_split_or_bend_the_request_is_refused(headers: tuple[tuple[str, str], ...]) -> None:
    with pytest.raises(SettingsError):
        Request("http://a.test/", "127.0.0.1", AGENT, headers)


@pytest.mark.parametrize("agent", ["", "a\r\nX: y", "a\x00", " a", "ü"])
def test_a_user_agent_that_cannot_be_sent_is_refused(agent: str) -> None:
    with pytest.raises(SettingsError):
        Request("http://a.test/", "127.0.0.1", agent)


def test_an_invalid_address_is_refused_as_a_key() -> None:
    with pytest.raises(SettingsError):
        Request("http://a.test/", "a.test", AGENT)


# Responses


def test_head_and_body_are_the_bytes_on_the_wire() -> None:
    """Case, blanks, order, doubled fields, bytes beyond ASCII: nothing is tidied."""
    head = b"HTTP/1.1 200  Fine \r\nx-LOWER:   two  blanks \r\nSet-Cookie: a=1\r\nset-cookie: b=2\r\nX-L: \xe9\xff\r\n"
    head += b"Content-Length: 5\r\n\r\n"
    response = one(closes_after(head + b"\x00\xffabc"))
    assert (head, b"\x00\xffabc", b"\x00\xffabc", 200) == (
        response.head,
        response.body,
        response.content,
        response.status,
    )


def test_headers_are_found_in_any_case() -> None:
    response = one(closes_after(head_of("Set-Cookie: a=1", "set-cookie: b=2", "Content-Length: 0")))
    assert ("a=1", ["a=1", "b=2"], None) == (
        response.headers.get("SET-COOKIE"),
        response.headers.get_all("Set-cookie"),
        response.headers.get("location"),
    )


def test_a_redirect_is_an_answer_and_is_not_followed() -> None:
    async def act(downloader: AnyDownloader, site: Site) -> tuple[int | None, str | None, int]:
        response = await downloader.fetch(Request(f"http://site.test:{site.port}/", "127.0.0.1", AGENT))
        await asyncio.sleep(0.05)
        return response.status, response.headers.get("location"), len(site.requests)

    script = answers(head_of("Location: /other", "Content-Length: 0", status="301 Moved"), OK)
    assert (301, "/other", 1) == run(script, act)


def test_chunks_are_kept_as_received_and_decoded_for_the_content() -> None:
    body = b"5;name=value\r\nhello\r\n1\r\n \r\n05\r\nworld\r\n0\r\nX-Trailer: t\r\n\r\n"
    response = one(closes_after(head_of("Transfer-Encoding: chunked") + body))
    assert (body, b"hello world", None, None) == (
        response.body,
        response.content,
        response.truncated,
        response.error,
    )


def test_gzip_is_kept_as_received_and_decoded_for_the_content() -> None:
    packed = gzip.compress(b"hello" * 1_000)
    response = one(closes_after(head_of("Content-Encoding: gzip", f"Content-Length: {len(packed)}") + packed))
    assert (packed, b"hello" * 1_000, Decoding.WHOLE) == (response.body, response.content, response.decoding)


def test_gzip_within_chunks_is_undone_in_turn() -> None:
    packed = gzip.compress(b"hello")
    body = b"%x\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (7, packed[:7], len(packed) - 7, packed[7:])
    response = one(closes_after(head_of("Content-Encoding: gzip", "Transfer-Encoding: chunked") + body))
    assert (body, b"hello") == (response.body, response.content)


@pytest.mark.parametrize("wbits", [15, -15])
def test_deflate_is_undone_with_and_without_its_wrapping(wbits: int) -> None:
    deflater = zlib.compressobj(wbits=wbits)
    packed = deflater.compress(b"hello" * 50) + deflater.flush()
    response = one(closes_after(head_of("Content-Encoding: deflate", f"Content-Length: {len(packed)}") + packed))
    assert (b"hello" * 50, Decoding.WHOLE) == (response.content, response.decoding)


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
def test_an_answer_without_a_body_ends_with_its_head(status: str) -> None:
    response = one(answers(head_of("ETag: x", status=status)))
    assert (int(status[:3]), b"", None) == (response.status, response.body, response.error)


def test_an_interim_answer_is_passed_over() -> None:
    response = one(closes_after(head_of("Link: x", status="103 Early Hints") + head_of(status="100 Continue") + OK))
    assert (200, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", b"ok") == (
        response.status,
        response.head,
        response.body,
    )


def test_a_body_without_a_length_ends_with_the_connection() -> None:
    response = one(closes_after(b"HTTP/1.0 200 OK\r\n\r\nabc"))
    assert (b"abc", None, None) == (response.body, response.truncated, response.error)


def test_lines_may_end_with_lf_alone() -> None:
    response = one(closes_after(b"HTTP/1.1 200 OK\nContent-Length: 2\nX-A: b\n\nok"))
    assert (200, b"HTTP/1.1 200 OK\nContent-Length: 2\nX-A: b\n\n", b"ok", "b") == (
        response.status,
        response.head,
        response.body,
        response.headers.get("x-a"),
    )


def test_a_folded_line_is_one_value() -> None:
    response = one(closes_after(b"HTTP/1.1 200 OK\r\nX-A: one\r\n  two\r\nContent-Length: 2\r\n\r\nok"))
    assert ("one two", b"ok") == (response.headers.get("x-a"), response.body)


def test_times_are_those_of_the_clock() -> None:
    ticks = iter([1_000_000, 3_500_000])

    async def main() -> Response:
        async with hostile(closes_after(OK)) as site:
            downloader = new(clock=lambda: next(ticks))
            response = await downloader.fetch(Request(f"http://site.test:{site.port}/", "127.0.0.1", AGENT))
            await downloader.close()
            return response

    response = asyncio.run(main())
    assert response.first_byte_at is not None
    # The kernel's threads report when a request began and ended after its submission; the clock bounds both.
    assert 1_000_000 <= response.started_at < response.first_byte_at <= response.ended_at <= 3_500_000
    assert 0 < response.seconds < 30


# One connection per host, used again


def test_a_kept_connection_is_used_again() -> None:
    async def act(downloader: AnyDownloader, site: Site) -> tuple[int, int, list[bool]]:
        request = Request(f"http://site.test:{site.port}/", "127.0.0.1", AGENT)
        made = [(await downloader.fetch(request)).new_connection for _ in range(5)]
        return site.connections, len(site.requests), made

    assert (1, 5, [True, False, False, False, False]) == run(answers(OK), act)


def test_hosts_at_one_address_share_no_connection() -> None:
    async def act(downloader: AnyDownloader, site: Site) -> int:
        for name in ("a.test", "b.test", "a.test"):
            await downloader.fetch(Request(f"http://{name}:{site.port}/", "127.0.0.1", AGENT))
        return site.connections

    assert 2 == run(answers(OK), act)


def test_a_host_has_one_connection_at_a_time() -> None:
    open_now, most = 0, 0

    async def script(connection: Connection) -> None:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        try:
            while True:
                await connection.request()
                await asyncio.sleep(0.01)
                await connection.send(OK)
        finally:
            open_now -= 1

    async def act(downloader: AnyDownloader, site: Site) -> list[int | None]:
        request = Request(f"http://site.test:{site.port}/", "127.0.0.1", AGENT)
        return [response.status for response in await asyncio.gather(*(downloader.fetch(request) for _ in range(8)))]

    assert ([200] * 8, 1) == (run(script, act), most)


def test_a_connection_to_another_address_is_not_used_for_a_new_answer_of_the_resolver() -> None:
    async def main() -> tuple[int, int]:
        async with hostile(answers(OK), host="0.0.0.0") as site:
            downloader = new()
            for address in ("127.0.0.1", "127.0.0.2"):
                response = await downloader.fetch(Request(f"http://site.test:{site.port}/", address, AGENT))
                assert 200 == response.status
            await downloader.close()
            return site.connections, len(site.requests)

    assert (2, 2) == asyncio.run(main())


def test_a_request_on_a_kept_connection_that_dies_is_not_repeated_unseen() -> None:
    """A second request would have neither gap nor lease. Later requests use new connections."""

    async def script(connection: Connection) -> None:
        await connection.request()
        await connection.send(OK)
        await connection.request()

    async def act(downloader: AnyDownloader, site: Site) -> tuple[list[FetchError | None], int]:
        errors = [
            (await downloader.fetch(Request(f"http://site.test:{site.port}/{n}", "127.0.0.1", AGENT))).error
            for n in range(4)
        ]
        await asyncio.sleep(0.05)
        return errors, len(site.requests)

    assert ([None, FetchError.RESET, None, None], 4) == run(script, act)


@pytest.mark.parametrize(
    "answer",
    [
        head_of("Content-Length: 2", "Transfer-Encoding: chunked") + b"2\r\nok\r\n0\r\n\r\n",
        head_of("Content-Length: 2", "Content-Length: 2") + b"ok",
    ],
)
def test_after_an_answer_with_two_readings_a_new_connection_is_made(answer: bytes) -> None:
    async def act(downloader: AnyDownloader, site: Site) -> tuple[list[bytes], int]:
        contents = [
            (await downloader.fetch(Request(f"http://site.test:{site.port}/", "127.0.0.1", AGENT))).content
            for _ in range(2)
        ]
        return contents, site.connections

    assert ([b"ok", b"ok"], 2) == run(answers(answer), act)


# Bounds


def test_head_and_body_together_are_cut_at_the_bound() -> None:
    async def endless(connection: Connection) -> None:
        await connection.request()
        await connection.send(head_of("Content-Type: text/html"))
        while True:
            await connection.send(b"x" * 65_536)

    response = one(endless)
    assert ("length", None, 2_000_000) == (
        response.truncated,
        response.error,
        len(response.head) + len(response.body),
    )


def test_a_body_that_just_fits_is_not_cut() -> None:
    head = head_of("Content-Length: 500")
    response = one(closes_after(head + b"x" * 500), bytes_max=len(head) + 500)
    assert (None, 500) == (response.truncated, len(response.body))


def test_a_body_of_one_byte_too_much_is_cut() -> None:
    head = head_of("Content-Length: 501")
    response = one(closes_after(head + b"x" * 501), bytes_max=len(head) + 500)
    assert ("length", 500) == (response.truncated, len(response.body))


def test_a_cut_connection_is_not_used_again() -> None:
    async def act(downloader: AnyDownloader, site: Site) -> tuple[list[str | None], int]:
        request = Request(f"http://site.test:{site.port}/", "127.0.0.1", AGENT, bytes_max=1_000)
        cuts = [(await downloader.fetch(request)).truncated for _ in range(2)]
        return cuts, site.connections

    assert (["length", "length"], 2) == run(answers(head_of("Content-Length: 5000") + b"x" * 5_000), act)


def test_a_gzip_bomb_returns_no_more_than_the_bound() -> None:
    packed = gzip.compress(bytes(50_000_000))
    response = one(closes_after(head_of("Content-Encoding: gzip", f"Content-Length: {len(packed)}") + packed))
    assert (None, Decoding.CUT, 2_000_000) == (response.truncated, response.decoding, len(response.content))


def test_two_layers_of_gzip_are_undone_and_three_are_not() -> None:
    layers = [b"hello"]
    for _ in range(3):
        layers.append(gzip.compress(layers[-1]))
    found = []
    for count in (2, 3):
        codings = ", ".join(["gzip"] * count)
        head = head_of(f"Content-Encoding: {codings}", f"Content-Length: {len(layers[count])}")
        response = one(closes_after(head + layers[count]))
        found.append((response.content, response.decoding))
    assert [(b"hello", Decoding.WHOLE), (layers[3], Decoding.UNKNOWN)] == found


def test_a_coding_that_is_unknown_leaves_the_bytes_and_says_so() -> None:
    response = one(closes_after(head_of("Content-Encoding: x-rot13", "Content-Length: 3") + b"abc"))
    assert (b"abc", Decoding.UNKNOWN, None) == (response.content, response.decoding, response.error)


@pytest.mark.parametrize("octets", ["/é".encode("latin-1"), "/中".encode("gbk"), "/é".encode(), b"/\x85\xa0"])
def test_a_location_beyond_ascii_is_returned_octet_by_octet(octets: bytes) -> None:
    head = b"HTTP/1.1 302 Found\r\nLocation: " + octets + b"\r\nContent-Length: 0\r\n\r\n"
    response = one(closes_after(head))
    expected = "/" + "".join(f"%{octet:02X}" for octet in octets[1:])
    assert (expected, head) == (written_location(response), response.head)


@pytest.mark.parametrize("coding", ["br", "zstd"])
def test_newer_codings_are_decoded_although_they_were_not_requested(coding: str) -> None:
    packed = PACK[coding](b"hello" * 1_000)
    response = one(closes_after(head_of(f"Content-Encoding: {coding}", f"Content-Length: {len(packed)}") + packed))
    assert (packed, b"hello" * 1_000, Decoding.WHOLE) == (response.body, response.content, response.decoding)


def test_broken_gzip_returns_the_part_that_could_be_decoded() -> None:
    packed = gzip.compress(bytes(range(256)) * 400, 0)
    broken = packed[:50_000]
    response = one(closes_after(head_of("Content-Encoding: gzip", f"Content-Length: {len(broken)}") + broken))
    assert Decoding.BROKEN == response.decoding
    assert (bytes(range(256)) * 400).startswith(response.content)
    assert 40_000 < len(response.content) < 50_000


def test_plain_text_that_says_it_is_gzip_is_given_as_it_is() -> None:
    response = one(closes_after(head_of("Content-Encoding: gzip", "Content-Length: 6") + b"<html>"))
    assert (b"<html>", Decoding.UNKNOWN) == (response.content, response.decoding)


def test_many_gzip_members_are_one_content() -> None:
    packed = gzip.compress(b"ab") * 1_000
    response = one(closes_after(head_of("Content-Encoding: gzip", f"Content-Length: {len(packed)}") + packed))
    assert (b"ab" * 1_000, Decoding.WHOLE) == (response.content, response.decoding)


def test_thousands_of_gzip_members_are_cut() -> None:
    packed = gzip.compress(b"") * 5_000 + gzip.compress(b"end")
    response = one(closes_after(head_of("Content-Encoding: gzip", f"Content-Length: {len(packed)}") + packed))
    assert (b"", Decoding.CUT) == (response.content, response.decoding)


# The downloader's own life


def test_a_port_of_another_protocol_is_not_connected_to() -> None:
    async def act(downloader: AnyDownloader, site: Site) -> tuple[FetchError | None, int]:
        response = await downloader.fetch(Request("http://site.test:6379/", "127.0.0.1", AGENT))
        return response.error, downloader.statistics()["connections"]

    assert (FetchError.BLOCKED_PORT, 0) == run(answers(OK), act)


def test_a_proxy_in_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1/")
    assert 200 == one(closes_after(OK)).status


def test_no_cookie_is_sent_back() -> None:
    async def act(downloader: AnyDownloader, site: Site) -> list[bool]:
        for _ in range(2):
            await downloader.fetch(Request(f"http://site.test:{site.port}/", "127.0.0.1", AGENT))
        return [b"cookie" in request.lower() for request in site.requests]

    assert [False, False] == run(answers(head_of("Set-Cookie: a=b; Path=/", "Content-Length: 0")), act)


def test_closing_ends_what_is_in_flight() -> None:
    async def main() -> tuple[FetchError | None, bool]:
        async with hostile(Connection.hang) as site:
            downloader = new()
            request = Request(f"http://site.test:{site.port}/", "127.0.0.1", AGENT)
            fetch = asyncio.create_task(downloader.fetch(request))
            await asyncio.sleep(0.05)
            await downloader.close()
            response = await fetch
            with pytest.raises(ClosedError):
                await downloader.fetch(request)
            return response.error, downloader.statistics()["running"] == 0

    assert (FetchError.INTERNAL, True) == asyncio.run(main())


def test_a_cancelled_fetch_leaves_room_for_the_next() -> None:
    async def script(connection: Connection) -> None:
        if b"/slow" in await connection.request():
            await connection.hang()
        await connection.send(OK)

    async def act(downloader: AnyDownloader, site: Site) -> tuple[int | None, int]:
        slow = asyncio.create_task(downloader.fetch(Request(f"http://site.test:{site.port}/slow", "127.0.0.1", AGENT)))
        await asyncio.sleep(0.05)
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        response = await downloader.fetch(Request(f"http://site.test:{site.port}/", "127.0.0.1", AGENT))
        return response.status, downloader.statistics()["running"]

    assert (200, 0) == run(script, act, connections_max=1)
