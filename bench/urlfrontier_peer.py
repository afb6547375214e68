"""The part of the URLFrontier protocol that benches need, over gRPC, with messages written by hand.

Fields by number, as in the published urlfrontier.proto (crawler-commons/url-frontier): URLInfo url = 1, key = 2;
URLItem discovered = 1, known = 2, ID = 3; Known and DiscoveredURLItem info = 1; KnownURLItem refetchable_from_date = 2;
GetParams max_urls_per_queue = 1, max_queues = 2, delay_requestable = 4.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

SERVICE = "/urlfrontier.URLFrontier/"
PUT_URLS = SERVICE + "PutURLs"
START_SECONDS_MAX = 60.0


class UrlFrontier:
    """A client of one service."""

    def __init__(self, address: str) -> None:
        import grpc

        self._channel: Any = grpc.insecure_channel(address)
        self._put = self._channel.stream_stream(PUT_URLS)
        self._get = self._channel.unary_stream(SERVICE + "GetURLs")
        self._batch = self._channel.stream_stream(SERVICE + "PutDiscovered")
        self._stats = self._channel.unary_unary(SERVICE + "GetStats")
        self._delay = self._channel.unary_unary(SERVICE + "SetDelay")

    def __enter__(self) -> UrlFrontier:
        return self

    def __exit__(self, *error: object) -> None:
        self._channel.close()

    def put(self, urls: Sequence[str], *, known: bool = False) -> None:
        """Puts URLs as discovered, or as fetched and never due again. Returns when each is acknowledged."""
        self.put_messages([item(url, known=known) for url in urls])

    def put_messages(self, items: Sequence[bytes]) -> None:
        """Puts items that are made. Returns when each is acknowledged."""
        answers = sum(1 for _ in self._put(iter(items)))
        assert answers == len(items), f"{answers} answers for {len(items)} items"

    def put_batch(self, urls: Sequence[str], *, batch: int = 256) -> None:
        """Puts URLs as discovered with `PutDiscovered`. Returns when each batch is acknowledged."""
        messages = [
            b"".join(octets(2, info(url)) for url in urls[first : first + batch])
            for first in range(0, len(urls), batch)
        ]
        answers = sum(1 for _ in self._batch(iter(messages)))
        assert answers == len(messages), f"{answers} answers for {len(messages)} batches"

    def stats(self) -> bytes:
        """Returns the answer of GetStats for the crawl DEFAULT."""
        answer: bytes = self._stats(b"")
        return answer

    def get(self, queues: int) -> list[str]:
        """Returns one URL of each of at most N queues that are due."""
        request = number(1, 1) + number(2, queues) + number(4, 300)
        return [url_in(answer) for answer in self._get(request)]

    def no_delay(self) -> None:
        """Sets the pause between two URLs of a queue to the service's own second, and waits until the service
        answers."""
        self._delay(number(2, 0), wait_for_ready=True, timeout=START_SECONDS_MAX)


def item(url: str, *, known: bool, date: int = 0) -> bytes:
    """An URLItem. date: from when a known URL may be requested, in seconds; 0 if it is done."""
    return octets(2 if known else 1, octets(1, info(url)) + number(2, date)) + octets(3, url.encode())


def info(url: str) -> bytes:
    """An URLInfo with the host as its key."""
    return octets(1, url.encode()) + octets(2, (urlsplit(url).hostname or "").encode())


def url_in(info: bytes) -> str:
    """Returns the first field of an URLInfo, which is also first on the wire."""
    assert info[0] == 10, "an URLInfo begins with its url"
    length, at = varint_in(info, 1)
    return info[at : at + length].decode()


def octets(field: int, content: bytes) -> bytes:
    """Returns a field with a length: text, bytes or a message."""
    return bytes((field << 3 | 2,)) + varint(len(content)) + content


def number(field: int, value: int) -> bytes:
    """Returns a numeric field; it is omitted if it is 0, as in proto3."""
    return bytes((field << 3,)) + varint(value) if value else b""


def varint(value: int) -> bytes:
    """Encodes seven bits per byte, the lowest first."""
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)


def varint_in(content: bytes, at: int) -> tuple[int, int]:
    """Returns the number at a place, and the place after it."""
    value = shift = 0
    while True:
        octet = content[at]
        value |= (octet & 127) << shift
        at, shift = at + 1, shift + 7
        if octet < 128:
            return value, at


@contextlib.contextmanager
def serving(jar: Path, port: int, directory: Path) -> Iterator[int]:
    """Runs the service with its default backend, RocksDB, in `directory`. Returns its process id."""
    log = directory / "urlfrontier.log"
    with log.open("wb") as said:
        server = subprocess.Popen(
            ["java", "-Xmx4g", "-jar", jar, "-p", str(port)], cwd=directory, stdout=said, stderr=said
        )
        try:
            yield server.pid
        finally:
            server.terminate()
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
