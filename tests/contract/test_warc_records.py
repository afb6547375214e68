"""The contract of records of WARC, for the native build and its plain twin."""

from __future__ import annotations

import hashlib
import random
from base64 import b32encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.kinds import WITHOUT_NATIVE, both, native_of
from outrider.kernels import warc as twin

NATIVE = native_of(twin)
BOTH = both(twin)
AT = 1_767_323_045_678_901  # 2026-01-02T03:04:05.678901Z
REQUEST = b"GET /a HTTP/1.1\r\nHost: site.test\r\n\r\n"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"
IDS = bytes(range(32))


def exchange(**fields: Any) -> Any:
    known = {
        "url": "http://site.test/a",
        "address": "192.0.2.7",
        "at": AT,
        "request_head": REQUEST,
        "head": HEAD,
        "body": b"<html>",
        "truncated": None,
        "token": None,
        "content": None,
        "payload": None,
    }
    return tuple((known | fields).values())


def shown(octets: bytes) -> str:
    return "sha1:" + b32encode(hashlib.sha1(octets, usedforsecurity=False).digest()).decode()


def prose(chance: random.Random, count: int) -> bytes:
    words = [chance.randbytes(chance.randrange(1, 9)).hex().encode() for _ in range(60)]
    text = b" ".join(chance.choice(words) for _ in range(count // 3 + 1))
    return text[:count]


@BOTH
def test_the_records_of_an_exchange(kernel):
    (packed,) = kernel.warc_records([exchange(token=1_003, truncated="time")], IDS)
    assert (
        shown(b"<html>"),
        hashlib.sha1(b"<html>", usedforsecurity=False).digest(),
        (
            "WARC/1.1\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:00010203-0405-4607-8809-0a0b0c0d0e0f>\r\n"
            "WARC-Date: 2026-01-02T03:04:05.678901Z\r\nWARC-Target-URI: http://site.test/a\r\n"
            "WARC-IP-Address: 192.0.2.7\r\nOutrider-Token: 1003\r\n"
            f"WARC-Block-Digest: {shown(HEAD + b'<html>')}\r\nWARC-Payload-Digest: {shown(b'<html>')}\r\n"
            "WARC-Truncated: time\r\nContent-Type: application/http; msgtype=response\r\nContent-Length: 50\r\n\r\n"
        ).encode()
        + HEAD
        + b"<html>\r\n\r\n",
        (
            "WARC/1.1\r\nWARC-Type: request\r\nWARC-Record-ID: <urn:uuid:10111213-1415-4617-9819-1a1b1c1d1e1f>\r\n"
            "WARC-Date: 2026-01-02T03:04:05.678901Z\r\nWARC-Target-URI: http://site.test/a\r\n"
            "WARC-IP-Address: 192.0.2.7\r\nOutrider-Token: 1003\r\n"
            "WARC-Concurrent-To: <urn:uuid:00010203-0405-4607-8809-0a0b0c0d0e0f>\r\n"
            f"WARC-Block-Digest: {shown(REQUEST)}\r\n"
            "Content-Type: application/http; msgtype=request\r\nContent-Length: 36\r\n\r\n"
        ).encode()
        + REQUEST
        + b"\r\n\r\n",
    ) == packed


@BOTH
def test_fields_that_are_not_known_are_left_out(kernel):
    (packed,) = kernel.warc_records([exchange()], IDS)
    _, _, response, request = packed
    assert [False] * 4 == [name in text for name in (b"Token", b"Truncated") for text in (response, request)]


@BOTH
def test_the_digest_of_a_content_of_its_own(kernel):
    (packed,) = kernel.warc_records([exchange(content=b"other")], IDS)
    assert (shown(b"<html>"), hashlib.sha1(b"other", usedforsecurity=False).digest()) == packed[:2]


@BOTH
def test_the_digest_of_a_payload_without_its_chunks(kernel):
    """WARC 1.1 section 5.9: the block keeps the chunks, the payload's digest is without them."""
    framed = b"5\r\nhello\r\n0\r\n\r\n"
    (packed,) = kernel.warc_records([exchange(body=framed, payload=b"hello")], IDS)
    digest = hashlib.sha1(b"hello", usedforsecurity=False).digest()
    assert (shown(b"hello"), digest, True, True) == (
        *packed[:2],
        f"WARC-Payload-Digest: {shown(b'hello')}\r\n".encode() in packed[2],
        f"WARC-Block-Digest: {shown(HEAD + framed)}\r\n".encode() in packed[2],
    )
    (packed,) = kernel.warc_records([exchange(body=framed, payload=b"", content=b"other")], IDS)
    assert (shown(b""), hashlib.sha1(b"other", usedforsecurity=False).digest()) == packed[:2]


@BOTH
def test_each_exchange_of_a_batch_has_its_own_ids(kernel):
    rows = [exchange(url=f"http://site.test/{row}", body=b"%d" % row * 9_000) for row in range(5)]
    chance = random.Random(3)
    ids = chance.randbytes(32 * 5)
    alone = [kernel.warc_records([one], ids[32 * row :][:32])[0] for row, one in enumerate(rows)]
    assert alone == kernel.warc_records(rows, ids)


@BOTH
def test_empty_input_returns_no_records(kernel):
    assert [] == kernel.warc_records([], b"")


@BOTH
@pytest.mark.parametrize("at", [0, 951_868_799_999_999, 4_107_542_400_000_001, 253_402_300_799_999_999, 2**64 - 1])
def test_dates_to_the_last_of_them(kernel, at):
    (packed,) = kernel.warc_records([exchange(at=at)], IDS)
    dates = {
        0: b"1970-01-01T00:00:00.000000Z",
        951_868_799_999_999: b"2000-02-29T23:59:59.999999Z",
        4_107_542_400_000_001: b"2100-03-01T00:00:00.000001Z",
    }
    date = dates.get(at, b"9999-12-31T23:59:59.999999Z")
    assert [1, 1] == [text.count(b"\r\nWARC-Date: " + date + b"\r\n") for text in packed[2:]]


@BOTH
@pytest.mark.parametrize("field", ["url", "address", "truncated"])
@pytest.mark.parametrize("text", ["", "a b", "a\r\nX: y", "é", "a\x7f", "\ud800", "a\x00"])
def test_a_text_that_would_add_a_field_is_refused(kernel, field, text):
    with pytest.raises(ValueError, match="row 1: this"):
        kernel.warc_records([exchange(), exchange(**{field: text})], 2 * IDS)


@BOTH
@pytest.mark.parametrize(
    ("rows", "ids", "error"),
    [
        ([exchange()], IDS[:31], ValueError),
        ([exchange()], 2 * IDS, ValueError),
        ([exchange()[:8]], IDS, ValueError),
        ([exchange(at=-1)], IDS, ValueError),
        ([exchange(at=2**64)], IDS, ValueError),
        ([exchange(token=-1)], IDS, ValueError),
        ([exchange(token="1")], IDS, TypeError),
        ([exchange(url=b"http://a/")], IDS, TypeError),
        ([exchange(body="text")], IDS, TypeError),
        ([list(exchange())], IDS, TypeError),
        ([exchange(url="é"), exchange()[:8]], 2 * IDS, ValueError),
        ([exchange()], "ids", TypeError),
        (None, b"", TypeError),
    ],
)
def test_other_arguments_are_refused(kernel, rows, ids, error):
    with pytest.raises(error):
        kernel.warc_records(rows, ids)


@BOTH
def test_any_buffer_of_bytes_will_do(kernel):
    parts = {"request_head": REQUEST, "head": HEAD, "body": b"x" * 40_000, "content": b"y", "payload": b"z"}
    views = {name: memoryview(bytearray(octets)) for name, octets in parts.items()}
    assert kernel.warc_records([exchange(**parts)], IDS) == kernel.warc_records([exchange(**views)], bytearray(IDS))


SIZES = (0, 1, 255, 256, 257, 700, 1_023, 1_024, 5_000, 32_767, 65_535, 65_536, 200_000)


@BOTH
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["prose", "noise", "zeros", "noise behind prose", "prose behind noise"])
def test_bodies_of_any_size_are_returned(kernel, kind, size):
    chance = random.Random(size)
    text, noise = prose(chance, size), chance.randbytes(size)
    bodies = {
        "prose": text,
        "noise": noise,
        "zeros": bytes(size),
        "noise behind prose": text + noise,
        "prose behind noise": noise + text,
    }
    body = bodies[kind]
    (packed,) = kernel.warc_records([exchange(body=body)], IDS)
    payload, _, response, _ = packed
    assert (shown(body), True) == (payload, response.endswith(b"\r\n\r\n" + body + b"\r\n\r\n"))


pieces = st.lists(
    st.one_of(
        st.binary(max_size=40),
        st.tuples(st.binary(min_size=1, max_size=12), st.integers(1, 400)).map(lambda one: one[0] * one[1]),
        st.tuples(st.integers(0, 2**32), st.integers(0, 3_000)).map(
            lambda one: random.Random(one[0]).randbytes(one[1])
        ),
        st.tuples(st.integers(0, 2**32), st.integers(0, 9_000)).map(lambda one: prose(random.Random(one[0]), one[1])),
    ),
    max_size=12,
).map(b"".join)


@WITHOUT_NATIVE
@given(
    bodies=st.lists(pieces, max_size=3),
    at=st.integers(0, 2**63),
    token=st.none() | st.integers(0, 2**64 - 1),
    truncated=st.sampled_from([None, "length", "time"]),
    content=st.none() | pieces,
    payload=st.none() | pieces,
    seed=st.integers(0, 2**32),
)
def test_both_write_the_same_records(bodies, at, token, truncated, content, payload, seed):
    more = {"at": at, "token": token, "truncated": truncated, "content": content, "payload": payload}
    rows = [exchange(**more, body=body) for body in bodies]
    ids = random.Random(seed).randbytes(32 * len(rows))
    assert twin.warc_records(rows, ids) == NATIVE.warc_records(rows, ids)
