"""Payload digests of WARC records and lines: those of the content without transfer codings, on each downloader."""

from __future__ import annotations

import asyncio
import gzip
import zlib

import pytest

from e2e.downloaders import each_downloader, new  # noqa: F401 - a fixture
from e2e.hostile import closes_after, hostile
from outrider.archive import payload_digest
from outrider.crawl.run.visit import content_digest
from outrider.fetch.downloader import Request
from outrider.fetch.response_bytes import payload_of

pytestmark = pytest.mark.usefixtures("each_downloader")
PACKED = gzip.compress(b"hello world", mtime=0)  # no time in it: two processes must collect the same names


def chunked(octets: bytes) -> bytes:
    return (
        b"".join(b"%x;x=y\r\n%b\r\n" % (len(some), some) for some in (octets[:5], octets[5:]) if some)
        + b"0\r\nX: t\r\n\r\n"
    )


@pytest.mark.parametrize(
    ("fields", "body", "payload", "content"),
    [
        ("Content-Length: 5", b"hello", b"hello", b"hello"),
        ("Transfer-Encoding: chunked", chunked(b"hello world"), b"hello world", b"hello world"),
        ("Transfer-Encoding: chunked\r\nContent-Encoding: gzip", chunked(PACKED), PACKED, b"hello world"),
        ("Transfer-Encoding: gzip, chunked", chunked(PACKED), b"hello world", b"hello world"),
        (
            "Transfer-Encoding: deflate, chunked\r\nContent-Encoding: gzip",
            *(chunked(zlib.compress(PACKED)), PACKED, b"hello world"),
        ),
        ("Transfer-Encoding: chunked\r\nContent-Encoding: x-rot13", chunked(b"uryyb"), b"uryyb", b"uryyb"),
        ("Transfer-Encoding: chunked", b"5\r\nhello\r\n9\r\nbreaks", b"hellobreaks", b"hellobreaks"),
    ],
)
def test_a_payload_is_the_body_without_its_transfer_codings(
    fields: str, body: bytes, payload: bytes, content: bytes
) -> None:
    async def main() -> None:
        answer = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n{fields}\r\n\r\n".encode() + body
        async with hostile(closes_after(answer)) as site:
            downloader = new()
            try:
                request = Request(f"http://site.test:{site.port}/", "127.0.0.1", "Test")
                response = await downloader.fetch(request)
            finally:
                await downloader.close()
        assert (body, payload, content) == (response.body, payload_of(response), response.content)
        assert payload_digest(payload) == content_digest(response)[1]

    asyncio.run(main())
