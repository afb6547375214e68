"""Exchanges as records of WARC, with their digests; the plain twin of the native kernel."""

from __future__ import annotations

import hashlib
from base64 import b32encode
from collections.abc import Sequence
from typing import Any, TypeAlias, cast

import numpy as np

from outrider.kernels.columns import number
from outrider.kernels.framing import Bytes

Exchange: TypeAlias = tuple[str, str, int, Bytes, Bytes, Bytes, str | None, int | None, Bytes | None, Bytes | None]
"""URL, address, instant in µs, head of the request, head, body, why it ends early, token, content if it differs from
the payload, payload (the body without its transfer codings) if it differs from the body."""

Packed: TypeAlias = tuple[str, bytes, bytes, bytes]
"""The payload's digest as it is written, the content's (20 bytes), the record of the response, that of the request."""

_FIELDS = 10
IDS_BYTES = 32
"""The random bytes of the two record ids of an exchange."""
_LAST = 253_402_300_799_999_999  # the last microsecond of the year 9999: RFC 3339 has four digits for a year
_END = b"\r\n\r\n"


def warc_records(exchanges: Sequence[Exchange], ids: Bytes) -> list[Packed]:
    """Returns the response and the request record of each exchange.

    `ids` has 32 random bytes for each exchange, from which the UUIDs of both records are made. A record has the fields
    that docs/formats/archive.md lists.
    Raises ValueError for a URL, address or reason that is not visible ASCII, for an instant or token outside u64,
    for a row without 10 fields, for another number of ids. Buffers must not be written to while a call runs.
    """
    rows = [_with_bytes(_shaped(row, exchange)) for row, exchange in enumerate(exchanges)]
    rows = [_checked(row, exchange) for row, exchange in enumerate(rows)]
    octets = _octets(ids)
    if len(octets) != IDS_BYTES * len(rows):
        raise ValueError(f"{len(octets)} bytes are no ids of {len(rows)} exchanges")
    return [_packed(exchange, octets[IDS_BYTES * row :][:IDS_BYTES]) for row, exchange in enumerate(rows)]


def _shaped(row: int, exchange: Exchange) -> Exchange:
    if not isinstance(exchange, tuple):
        raise TypeError(f"an exchange is a tuple, not {type(exchange).__name__}")
    if len(exchange) != _FIELDS:
        raise ValueError(f"row {row}: an exchange has {_FIELDS} fields, not {len(exchange)}")
    return exchange


def _with_bytes(exchange: Exchange) -> Exchange:
    url, address, at, request_head, head, body, truncated, token, *others = exchange
    octets = _octets(request_head), _octets(head), _octets(body)
    content, payload = (None if other is None else _octets(other) for other in others)
    return (url, address, at, *octets, truncated, token, content, payload)


def _checked(row: int, exchange: Exchange) -> Exchange:
    url, address, at, request_head, head, body, truncated, token, content, payload = exchange
    url, address, at = _visible(row, "URL", url), _visible(row, "address", address), number(at, "u64", "an instant")
    if truncated is not None:
        truncated = _visible(row, "reason", truncated)
    token = None if token is None else number(token, "u64", "a token")
    return url, address, at, request_head, head, body, truncated, token, content, payload


def _visible(row: int, name: str, text: str) -> str:
    if not isinstance(text, str):
        raise TypeError(f"{name}: a str is asked for, not {type(text).__name__}")
    if not (text.isascii() and text.isprintable() and text and " " not in text):
        raise ValueError(f"row {row}: this {name} cannot stand in a record")
    return text


def _octets(buffer: Bytes) -> bytes:
    view = memoryview(cast("Any", buffer))
    if not view.c_contiguous or view.itemsize != 1:
        raise BufferError("the buffer must be contiguous, and of bytes")
    return view.tobytes()


def _packed(exchange: Exchange, ids: bytes) -> Packed:
    url, address, at, request_head, head, body, truncated, token, content, unframed = exchange
    response_id, request_id = record_id(ids[: IDS_BYTES // 2]), record_id(ids[IDS_BYTES // 2 :])
    common = f"WARC-Date: {_date(at)}\r\nWARC-Target-URI: {url}\r\nWARC-IP-Address: {address}\r\n"
    if token is not None:
        common += f"Outrider-Token: {token}\r\n"
    payload_digest = _sha1(bytes(body if unframed is None else unframed))
    payload = _shown(payload_digest)
    block, request_block = bytes(head) + bytes(body), bytes(request_head)
    cut = f"WARC-Truncated: {truncated}\r\n" if truncated is not None else ""
    response = (
        f"WARC/1.1\r\nWARC-Type: response\r\nWARC-Record-ID: {response_id}\r\n{common}"
        f"WARC-Block-Digest: {_shown(_sha1(block))}\r\nWARC-Payload-Digest: {payload}\r\n{cut}"
        f"Content-Type: application/http; msgtype=response\r\nContent-Length: {len(block)}\r\n\r\n"
    )
    request = (
        f"WARC/1.1\r\nWARC-Type: request\r\nWARC-Record-ID: {request_id}\r\n{common}"
        f"WARC-Concurrent-To: {response_id}\r\nWARC-Block-Digest: {_shown(_sha1(request_block))}\r\n"
        f"Content-Type: application/http; msgtype=request\r\nContent-Length: {len(request_block)}\r\n\r\n"
    )
    first, second = response.encode("ascii") + block + _END, request.encode("ascii") + request_block + _END
    return payload, payload_digest if content is None else _sha1(bytes(content)), first, second


def _sha1(octets: bytes) -> bytes:
    return hashlib.sha1(octets, usedforsecurity=False).digest()


def _shown(digest: bytes) -> str:
    return "sha1:" + b32encode(digest).decode("ascii")


def _date(at: int) -> str:
    """RFC 3339 in UTC with microseconds."""
    return f"{np.datetime64(min(at, _LAST), 'us')}Z"


def record_id(random: bytes) -> str:
    """A version 4 UUID (RFC 9562 section 5.4) of 16 random bytes, as a URN in angle brackets."""
    bits = bytearray(random)
    bits[6] = bits[6] & 0x0F | 0x40
    bits[8] = bits[8] & 0x3F | 0x80
    digits = bits.hex()
    return f"<urn:uuid:{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}>"
