"""The contract of every kernel, for the native build and its plain twin."""

from __future__ import annotations

import random
import struct
import threading
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.kinds import NATIVE, U32_MAX, U64_MAX, WITHOUT_NATIVE, both
from outrider import kernels
from outrider.kernels import framing, siphash

TWIN = SimpleNamespace(
    crc32c=framing.crc32c,
    pack_frames=framing.pack_frames,
    scan_frames=framing.scan_frames,
    find_frame=framing.find_frame,
    fingerprints=siphash.fingerprints,
)
BOTH = both(TWIN)
KEY = bytes(range(16))

u8 = st.integers(0, 255)
u64 = st.integers(0, U64_MAX)
rows_of_frames = st.lists(st.tuples(u64, u64, st.integers(0, U32_MAX), u8, u8, u8, st.binary(max_size=200)), max_size=8)
any_text = st.text(st.characters(codec=None), max_size=60)  # lone surrogates too


def frames_of(rows, at=0):
    """The answer of a scan of packed rows, computed apart from any kernel."""
    frames = []
    for lsn, synced, epoch, kind, version, codec, payload in rows:
        frames.append((at + 31, len(payload), lsn, synced, epoch, kind, version, codec))
        at += 31 + len(payload)
    return frames


def noise(size, seed=1):
    return random.Random(seed).randbytes(size)


# ---------------------------------------------------------------------------------------------------- checksums


@BOTH
@pytest.mark.parametrize(
    ("expected", "data"),
    [
        (0x00000000, b""),
        (0xE3069283, b"123456789"),
        # RFC 3720 appendix B.4.
        (0x8A9136AA, bytes(32)),
        (0x62A8AB43, b"\xff" * 32),
        (0x46DD794E, bytes(range(32))),
        (0x113FDB5C, bytes(reversed(range(32)))),
    ],
)
def test_the_published_checksums_match(kernel, expected, data):
    assert expected == kernel.crc32c(data)


@BOTH
@given(data=st.binary(max_size=300), cut=st.integers(0, 300))
def test_checksums_of_pieces_add_up(kernel, data, cut):
    assert kernel.crc32c(data) == kernel.crc32c(data[cut:], kernel.crc32c(data[:cut]))


@BOTH
@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_any_buffer_is_checksummed_alike(kernel, wrap):
    assert 0xE3069283 == kernel.crc32c(wrap(b"123456789"))


@BOTH
@pytest.mark.parametrize("seed", [-1, 2**32, 2**64])
def test_a_checksum_seed_is_a_u32(kernel, seed):
    with pytest.raises(ValueError, match="seed is a u32"):
        kernel.crc32c(b"", seed)


@BOTH
@pytest.mark.parametrize("data", ["text", None, 5])
def test_an_argument_that_is_not_a_buffer_is_refused(kernel, data):
    with pytest.raises(TypeError):
        kernel.crc32c(data)


@BOTH
def test_a_buffer_with_gaps_is_refused(kernel):
    with pytest.raises(BufferError):
        kernel.crc32c(memoryview(b"abcdef")[::2])


# ------------------------------------------------------------------------------------------------------- frames


@BOTH
def test_a_frame_is_laid_out_as_drawn(kernel):
    """| length u32 | crc u32 | LSN u64 | synced u64 | epoch u32 | kind, version, codec | payload |, little endian."""
    covered = struct.pack("<QQIBBB", 0x0102030405060708, 9, 10, 11, 12, 13) + b"payload"
    expected = struct.pack("<II", len(covered), framing.crc32c(covered)) + covered
    assert expected == kernel.pack_frames([(0x0102030405060708, 9, 10, 11, 12, 13, b"payload")])


@BOTH
@given(rows=rows_of_frames)
def test_a_scan_returns_the_packed_frames(kernel, rows):
    log = kernel.pack_frames(rows)
    assert (frames_of(rows), len(log), kernels.END) == kernel.scan_frames(log)


@BOTH
@given(rows=rows_of_frames, before=st.binary(max_size=40), limit=st.integers(0, 9))
def test_a_scan_begins_at_its_start_and_ends_at_its_limit(kernel, rows, before, limit):
    log = before + kernel.pack_frames(rows)
    expected = frames_of(rows, len(before))[:limit]
    end = expected[-1][0] + expected[-1][1] if expected else len(before)
    reason = kernels.END if end == len(log) else kernels.LIMIT
    assert (expected, end, reason) == kernel.scan_frames(log, len(before), limit)


@BOTH
@pytest.mark.parametrize("wrap", [bytearray, memoryview])
def test_any_buffer_is_scanned_alike(kernel, wrap):
    log = kernel.pack_frames([(1, 0, 1, 2, 1, 0, b"hello")])
    assert kernel.scan_frames(log) == kernel.scan_frames(wrap(log))


@BOTH
def test_any_buffer_is_packed_alike(kernel):
    packed = {kernel.pack_frames([(1, 0, 1, 2, 1, 0, wrap(b"hello"))]) for wrap in (bytes, bytearray, memoryview)}
    assert 1 == len(packed)


@BOTH
def test_an_empty_payload_makes_a_frame(kernel):
    assert ([(31, 0, 0, 0, 0, 0, 0, 0)], 31, kernels.END) == kernel.scan_frames(
        kernel.pack_frames([(0, 0, 0, 0, 0, 0, b"")])
    )


@BOTH
@pytest.mark.parametrize("zeros", [1, 7, 8, 9, 4096])
def test_zeros_after_the_frames_are_unused_space(kernel, zeros):
    log = kernel.pack_frames([(1, 0, 1, 2, 1, 0, b"hello")])
    assert kernels.ZEROS == kernel.scan_frames(log + bytes(zeros))[2]


@BOTH
def test_eight_zero_bytes_are_not_a_frame(kernel):
    """Their crc would be right for an empty frame; the length forbids it."""
    assert ([], 0, kernels.ZEROS) == kernel.scan_frames(bytes(8))
    assert -1 == kernel.find_frame(bytes(4096))


@BOTH
def test_a_log_cut_at_any_byte_returns_its_whole_frames(kernel):
    rows = [(1, 0, 1, 2, 1, 0, b"first"), (2, 1, 1, 2, 1, 0, b""), (3, 1, 1, 2, 1, 0, bytes(40))]
    log, frames = kernel.pack_frames(rows), frames_of(rows)
    ends = [offset + length for offset, length, *_ in frames]
    for cut in range(len(log)):
        whole = [end for end in ends if end <= cut]
        found, end, reason = kernel.scan_frames(log[:cut])
        assert (frames[: len(whole)], whole[-1] if whole else 0) == (found, end)
        assert (kernels.END if cut in (0, *ends) else kernels.SHORT) == reason


@BOTH
def test_every_flipped_bit_is_noticed(kernel):
    rows = [(1, 0, 1, 2, 1, 0, b"first"), (2, 1, 1, 2, 1, 0, b"second")]
    log, frames = kernel.pack_frames(rows), frames_of(rows)
    first_end = 31 + len(b"first")
    for bit in range(8 * len(log)):
        damaged = bytearray(log)
        damaged[bit // 8] ^= 1 << bit % 8
        found, end, reason = kernel.scan_frames(damaged)
        whole = 0 if bit // 8 < first_end else 1
        assert (frames[:whole], whole * first_end) == (found, end)
        # A longer length runs past the buffer; everything else is seen as damage.
        assert reason in ((kernels.BAD, kernels.SHORT) if bit // 8 - end < 4 else (kernels.BAD,))


@BOTH
@given(rows=rows_of_frames.filter(bool), place=st.integers(0), value=u8)
def test_every_changed_byte_is_noticed(kernel, rows, place, value):
    log = bytearray(kernel.pack_frames(rows))
    place %= len(log)
    if log[place] == value:
        value ^= 0xFF
    log[place] = value
    frames, end, reason = kernel.scan_frames(log)
    assert end <= place
    assert frames_of(rows)[: len(frames)] == frames
    assert kernels.END != reason


@BOTH
@pytest.mark.parametrize("length", [0, 1, 22, 256 * 1024 * 1024 - 7, U32_MAX])
def test_an_impossible_length_is_damage_and_not_a_torn_tail(kernel, length):
    log = struct.pack("<II", length, 5) + bytes(100)
    assert ([], 0, kernels.BAD) == kernel.scan_frames(log)


@BOTH
def test_the_largest_possible_length_is_a_frame_to_wait_for(kernel):
    log = struct.pack("<II", kernels.FRAME_BYTES_MAX - 8, 5)
    assert ([], 0, kernels.SHORT) == kernel.scan_frames(log)


@BOTH
@pytest.mark.parametrize("column", range(6))
@pytest.mark.parametrize("beyond", [-1, 2**64])
def test_a_number_that_does_not_fit_its_field_is_refused_and_its_row_named(kernel, column, beyond):
    row = [1, 1, 1, 1, 1, 1, b""]
    row[column] = beyond
    with pytest.raises(ValueError, match="row 1: a number does not fit"):
        kernel.pack_frames([(1, 1, 1, 1, 1, 1, b""), tuple(row)])


@BOTH
def test_the_bounds_of_every_field_fit(kernel):
    row = (U64_MAX, U64_MAX, U32_MAX, 255, 255, 255, b"")
    assert frames_of([row]) == kernel.scan_frames(kernel.pack_frames([row]))[0]


@BOTH
def test_a_payload_beyond_the_largest_frame_is_refused(kernel):
    payload = bytes(kernels.FRAME_BYTES_MAX - kernels.FRAME_HEADER_BYTES + 1)
    with pytest.raises(ValueError, match="row 0: a payload of 268435426 bytes exceeds"):
        kernel.pack_frames([(1, 1, 1, 1, 1, 1, payload)])


@BOTH
@pytest.mark.parametrize("start", [-1, 4])
@pytest.mark.parametrize("verb", ["scan_frames", "find_frame"])
def test_a_start_outside_the_buffer_is_refused(kernel, verb, start):
    with pytest.raises(ValueError, match="outside a buffer of 3 bytes"):
        getattr(kernel, verb)(b"abc", start)


@BOTH
def test_a_negative_limit_is_refused(kernel):
    with pytest.raises(ValueError, match="not negative"):
        kernel.scan_frames(b"", 0, -1)


@BOTH
@given(before=st.binary(max_size=70), rows=rows_of_frames.filter(bool), after=st.binary(max_size=40))
def test_a_frame_is_found_at_any_alignment(kernel, before, rows, after):
    log = before + kernel.pack_frames(rows) + after
    assert len(before) == kernel.find_frame(log)
    assert len(before) == kernel.find_frame(log, len(before))


@BOTH
@pytest.mark.parametrize("payload_bytes", [0, 400, 512, 5000, 100_000])
@pytest.mark.parametrize("distance", [1, 511, 512, 513, 70_000])
def test_a_frame_is_found_at_any_distance(kernel, distance, payload_bytes):
    log = noise(distance) + kernel.pack_frames([(9, 8, 7, 6, 5, 4, noise(payload_bytes, seed=2))])
    for start in (0, 1, distance):
        assert distance == kernel.find_frame(log, start)
    assert -1 == kernel.find_frame(log, distance + 1)


@BOTH
def test_a_frame_is_found_after_a_damaged_one(kernel):
    log = bytearray(kernel.pack_frames([(1, 0, 1, 2, 1, 0, bytes(300)), (2, 1, 1, 2, 1, 0, b"second")]))
    log[100] ^= 1
    assert 331 == kernel.find_frame(log)


@BOTH
def test_a_cut_frame_is_not_found(kernel):
    log = kernel.pack_frames([(1, 0, 1, 2, 1, 0, b"hello")])
    assert [-1] * len(log) == [kernel.find_frame(log[:cut]) for cut in range(len(log))]


@BOTH
def test_the_search_among_false_lengths_stays_quick(kernel):
    """Every fourth byte begins a length that covers half the buffer; a check of each by its bytes would run for
    hours."""
    false = struct.pack("<I", 1 << 20) * (1 << 17)
    assert -1 == kernel.find_frame(false + bytes(1 << 20), len(false) - 40_000)


# ------------------------------------------------------------------------------------------------- fingerprints

# Messages 00 01 02 ... of growing length under the key 00 ... 0f: the vectors that Rust's SipHash-1-3 is tested with.
SIPHASH_13 = bytes.fromhex(
    "dcc40f055801acab 93ca577df39bf4c9 4dd4c74d029bcb82 fbf7dde7b80af88b "
    "2883d388605775cf 673b53492fd5f9de a7229fc5502b0dc5 4011b19b987d92d3 "
    "8e9a298d11959036 e43d066cb38ea425 7f09ff92ee85de79 52c34df9c118c170 "
    "a2d9b457b184a378 a7ff29120c766f30 345df9c011a15a60 5699512a6dd820d3"
)


@BOTH
def test_the_published_fingerprints_match(kernel):
    messages = ["".join(map(chr, range(size))) for size in range(len(SIPHASH_13) // 8)]
    assert SIPHASH_13 == kernel.fingerprints(messages, KEY)


@BOTH
def test_no_texts_have_no_fingerprints(kernel):
    assert b"" == kernel.fingerprints([], KEY)


@BOTH
def test_equal_texts_have_equal_fingerprints_and_another_key_changes_them(kernel):
    one = kernel.fingerprints(["http://example.org/"] * 2, KEY)
    assert one[:8] == one[8:]
    assert one != kernel.fingerprints(["http://example.org/"] * 2, bytes(16))


@BOTH
def test_a_batch_is_its_texts_one_after_the_other(kernel):
    texts = [f"http://example.org/{number}" for number in range(3000)]
    assert b"".join(kernel.fingerprints([text], KEY) for text in texts) == kernel.fingerprints(texts, KEY)


@BOTH
def test_lone_surrogates_have_fingerprints_of_their_own(kernel):
    prints = kernel.fingerprints(["\ud800", "\udfff", "?", "\N{REPLACEMENT CHARACTER}"], KEY)
    assert 4 == len({prints[at : at + 8] for at in range(0, 32, 8)})


@BOTH
@pytest.mark.parametrize("key", [b"", bytes(15), bytes(17)])
def test_a_key_has_sixteen_bytes(kernel, key):
    with pytest.raises(ValueError, match=f"has 16 bytes, not {len(key)}"):
        kernel.fingerprints(["a"], key)


@BOTH
@pytest.mark.parametrize("texts", ["one string", [b"bytes"], ["good", None], 7])
def test_only_sequences_of_texts_have_fingerprints(kernel, texts):
    with pytest.raises(TypeError):
        kernel.fingerprints(texts, KEY)


@BOTH
def test_threads_get_the_same_fingerprints_at_the_same_time(kernel):
    """Large batches release the GIL."""
    texts = [f"http://example.org/{number}" for number in range(2000)]
    expected = kernel.fingerprints(texts, KEY)
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(kernel.fingerprints(texts, KEY) == expected)) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [True] * 4 == results


# -------------------------------------------------------------------------------------------- twin beside kernel


@WITHOUT_NATIVE
@given(texts=st.lists(any_text, max_size=20), key=st.binary(min_size=16, max_size=16))
def test_twin_and_kernel_return_the_same_fingerprints(texts, key):
    assert TWIN.fingerprints(texts, key) == NATIVE.fingerprints(texts, key)


@WITHOUT_NATIVE
@given(rows=rows_of_frames)
def test_twin_and_kernel_pack_the_same_frames(rows):
    assert TWIN.pack_frames(rows) == NATIVE.pack_frames(rows)


@WITHOUT_NATIVE
@given(rows=rows_of_frames, damage=st.lists(st.tuples(st.integers(0), u8), max_size=3), after=st.binary(max_size=50))
def test_twin_and_kernel_see_the_same_in_damaged_logs(rows, damage, after):
    log = bytearray(TWIN.pack_frames(rows) + after)
    for place, value in damage:
        if log:
            log[place % len(log)] = value
    assert TWIN.scan_frames(log) == NATIVE.scan_frames(log)
    assert TWIN.find_frame(log) == NATIVE.find_frame(log)


@WITHOUT_NATIVE
@given(data=st.binary(max_size=2000), seed=st.integers(0, U32_MAX))
def test_twin_and_kernel_return_the_same_checksum(data, seed):
    assert TWIN.crc32c(data, seed) == NATIVE.crc32c(data, seed)
