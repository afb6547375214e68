"""Content codings: decoded within limits on output, memory, frames and layers, for any input."""

from __future__ import annotations

import gzip
import random
import resource
import struct
import sys
import zlib
from collections.abc import Callable

import brotli
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.fetch.codings import decoded, zstd
from outrider.fetch.downloader import Decoding
from timing import seconds_of

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": lambda data: brotli.compress(data, quality=4),
    "zstd": zstd.compress,
}
TEXT = b"".join(b"line %d of a text\n" % number for number in range(5_000))


@pytest.mark.parametrize("coding", PACK)
def test_a_content_is_unpacked_whole(coding: str) -> None:
    packed = PACK[coding](TEXT)
    assert (TEXT, Decoding.WHOLE) == decoded(packed, [coding], len(TEXT))


@pytest.mark.parametrize("coding", PACK)
def test_a_content_longer_than_the_limit_is_cut_there(coding: str) -> None:
    packed = PACK[coding](TEXT)
    assert (TEXT[:-1], Decoding.CUT) == decoded(packed, [coding], len(TEXT) - 1)


@pytest.mark.parametrize("coding", PACK)
def test_a_content_that_ends_early_yields_its_beginning(coding: str) -> None:
    packed = PACK[coding](TEXT)
    content, verdict = decoded(packed[: len(packed) // 2], [coding], 1 << 20)
    assert Decoding.BROKEN is verdict
    assert TEXT.startswith(content)


@pytest.mark.parametrize("coding", PACK)
def test_a_bomb_yields_the_limit_and_uses_little_memory(coding: str) -> None:
    bomb = PACK[coding](bytes(40_000_000))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    content, verdict = decoded(bomb, [coding], 2_000_000)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert (2_000_000, Decoding.CUT, True) == (len(content), verdict, grown < 32 << 10)


def test_layers_are_decoded_in_turn_and_at_most_two() -> None:
    packed = zstd.compress(brotli.compress(TEXT, quality=1))
    assert (TEXT, Decoding.WHOLE) == decoded(packed, ["br", "zstd"], 1 << 20)
    assert Decoding.UNKNOWN is decoded(gzip.compress(packed), ["br", "zstd", "gzip"], 1 << 20)[1]


def test_frames_of_zstd_are_one_content_and_skippable_frames_are_ignored() -> None:
    skipped = struct.pack("<II", 0x184D2A53, 5) + b"aside"
    packed = zstd.compress(b"one ") + skipped + zstd.compress(b"two") + b"\x00padding"
    assert (b"one two", Decoding.WHOLE) == decoded(packed, ["zstd"], 100)


def test_a_content_with_thousands_of_frames_is_cut() -> None:
    packed = zstd.compress(b"") * 5_000 + zstd.compress(b"end")
    assert (b"", Decoding.CUT) == decoded(packed, ["zstd"], 100)


def test_a_frame_with_a_window_of_a_gigabyte_is_refused() -> None:
    """The window is a descriptor in the frame's head. Memory for it would be allocated before a byte of content."""
    packed = zstd.compress(
        TEXT, options={zstd.CompressionParameter.window_log: 27, zstd.CompressionParameter.content_size_flag: 0}
    )
    streaming = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 27})
    packed = streaming.compress(TEXT) + streaming.flush()
    assert Decoding.BROKEN is decoded(packed, ["zstd"], 1 << 20)[1]


@pytest.mark.parametrize("coding", PACK)
def test_a_page_that_only_claims_to_be_packed_is_unchanged(coding: str) -> None:
    assert (b"<html>a page</html>", Decoding.UNKNOWN) == decoded(b"<html>a page</html>", [coding], 100)


@pytest.mark.parametrize("codings", [["aws-chunked"], ["gzip", "aws-chunked"], ["x-rot13", "gzip"], ["*"], ["chunked"]])
def test_a_list_with_an_unknown_coding_leaves_the_bytes_unchanged(codings: list[str]) -> None:
    packed = gzip.compress(b"a page")
    assert (packed, Decoding.UNKNOWN) == decoded(packed, codings, 100)


def checked(data: bytes) -> bytes:
    return zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1})


CHECKSUMS: dict[str, tuple[str, bytes, int]] = {
    "gzip": ("gzip", gzip.compress(TEXT), 8),
    "the length of gzip": ("gzip", gzip.compress(TEXT), 4),
    "gzip with a name": ("gzip", b"\x1f\x8b\x08\x0c" + bytes(6) + b"\x02\x00xxname\0" + gzip.compress(TEXT)[10:], 8),
    "the second of gzip": ("gzip", gzip.compress(TEXT[:99]) + gzip.compress(TEXT[99:]), 8),
    "deflate": ("deflate", zlib.compress(TEXT), 4),
    "zstd": ("zstd", checked(TEXT), 4),
    "the second of zstd": ("zstd", checked(TEXT[:99]) + checked(TEXT[99:]), 4),
}


@pytest.mark.parametrize("case", CHECKSUMS)
@pytest.mark.parametrize(
    ("end", "verdict"), [(b"wrong!!!", Decoding.CHECKSUM), (b"", Decoding.BROKEN)], ids=["wrong", "missing"]
)
def test_a_content_whose_checksum_is_wrong_or_missing_is_kept_whole(case: str, end: bytes, verdict: Decoding) -> None:
    coding, packed, length = CHECKSUMS[case]
    damaged = packed[:-length] + end[:length]
    assert (TEXT, verdict) == decoded(damaged, [coding], len(TEXT))


def test_a_member_after_one_with_a_wrong_checksum_is_kept_too() -> None:
    damaged = gzip.compress(b"one ")[:-8] + bytes(8) + gzip.compress(b"two")
    assert (b"one two", Decoding.CHECKSUM) == decoded(damaged, ["gzip"], 100)


@pytest.mark.parametrize("coding", PACK)
def test_a_content_with_a_fault_is_kept_up_to_the_fault(coding: str) -> None:
    """The fault is where a decoder notices it, or the checksum after it does. Brotli has no checksum, and may not
    notice it."""
    text = random.Random(7).randbytes(150_000).hex().encode()
    packed = checked(text) if coding == "zstd" else PACK[coding](text)
    at = len(packed) * 3 // 4
    content, verdict = decoded(packed[:at] + b"\xff" * 64 + packed[at + 64 :], [coding], 1 << 20)
    kept = next((place for place, (a, b) in enumerate(zip(content, text, strict=False)) if a != b), len(content))
    told = verdict in (Decoding.BROKEN, Decoding.CHECKSUM)
    assert (True, True) == (told or coding == "br", kept > len(text) // 2)


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_small_content_with_a_fault_is_kept_up_to_the_last_byte_before_it(coding: str) -> None:
    """A stored block, and then a block of an unknown kind."""
    block = b"\x00" + struct.pack("<HH", 5, 5 ^ 0xFFFF) + b"<p>hi" + b"\x07" + bytes(20)
    head = gzip.compress(b"")[:10] if coding == "gzip" else b""
    assert (b"<p>hi", Decoding.BROKEN) == decoded(head + block, [coding], 100)


@given(st.sampled_from(sorted(PACK)), st.binary(max_size=300), st.integers(0, 100))
def test_any_bytes_are_decoded_within_the_limit(coding: str, data: bytes, bytes_max: int) -> None:
    for body in (data, PACK[coding](data)[:-3] + data[:5], PACK[coding](data) + data):
        content, verdict = decoded(body, [coding], bytes_max)
        assert len(content) <= bytes_max
        assert isinstance(verdict, Decoding)


def _zstd_with_a_wrong_sum() -> bytes:
    packed = bytearray(zstd.compress(b"", options={zstd.CompressionParameter.checksum_flag: 1}))
    packed[-1] ^= 1
    return bytes(packed)


@pytest.mark.parametrize(
    ("coding", "member", "verdict"),
    [
        ("gzip", gzip.compress(b""), Decoding.WHOLE),
        ("gzip", gzip.compress(b"")[:-8] + b"\xff" * 8, Decoding.CHECKSUM),
        ("zstd", b"\x50\x2a\x4d\x18\0\0\0\0", Decoding.WHOLE),
        ("zstd", _zstd_with_a_wrong_sum(), Decoding.CHECKSUM),
    ],
    ids=["whole gzip", "gzip with a wrong sum", "whole zstd", "zstd with a wrong sum"],  # a member has its time in it
)
def test_members_before_a_long_tail_need_time_in_proportion_to_the_size(
    coding: str, member: bytes, verdict: Decoding
) -> None:
    body = member * 1_000 + b"rest" * 5_000_000  # 8 to 40 seconds when each member copied the tail
    found: list[tuple[bytes, Decoding]] = []
    assert seconds_of(lambda: found.append(decoded(body, [coding], 50_000_000))) < 3
    assert [(b"", verdict)] == found


@pytest.mark.parametrize("size", [1, 65_535, 65_536, 65_537, 600_000])
def test_members_of_any_size_are_decoded_completely(size: int) -> None:
    contents = [random.Random(size + n).randbytes(size) for n in range(3)]
    for name, pack in (("gzip", gzip.compress), ("zstd", zstd.compress)):
        body = b"".join(map(pack, contents))
        assert (b"".join(contents), Decoding.WHOLE) == decoded(body, [name], 4 * size)
        assert (contents[0], Decoding.CUT) == decoded(body, [name], size)
