"""The contract of the planes of heads, for the native build and its plain twin."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.kinds import NATIVE, WITHOUT_NATIVE, both
from outrider.kernels import planes
from outrider.kernels.card_layout import HEAD

BOTH = both(planes)


def some_heads(rows, seed, *, few=True):
    rng = np.random.default_rng(seed)
    heads = np.zeros(rows, HEAD)
    heads["fingerprint"] = np.sort(rng.integers(0, 2**63, rows))
    heads["order"] = rng.integers(0, 2**24, rows)
    heads["queue"] = rng.integers(0, 3, rows) * 0x9E37 if few else rng.integers(0, 2**63, rows)
    heads["priority"] = rng.choice([0.5, 0.45, 1.0], rows)
    heads["due"] = rng.choice([-5, 0, 2**62], rows)
    heads["state"] = 1
    return heads


@BOTH
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 8, 9, 255, 256, 512, 5000])
@pytest.mark.parametrize("few", [False, True])
def test_packed_columns_are_returned_unchanged(kernel, rows, few):
    heads = some_heads(rows, rows, few=few)
    whole = bytes(row % 3 % 2 for row in range(rows))
    assert (heads.tobytes(), whole) == kernel.unpack_heads(kernel.pack_heads(heads.tobytes(), whole), rows)


@BOTH
def test_equal_rows_need_the_space_of_one(kernel):
    heads = np.full(300, 7, np.uint8).repeat(72).tobytes()
    packed = kernel.pack_heads(heads, b"\1" * 300)
    # The difference of equal fingerprints is 0 from the second row on: seven of its bytes vary.
    assert 10 + 73 + 6 + 7 * 300 == len(packed)
    assert (heads, b"\1" * 300) == kernel.unpack_heads(packed, 300)


@BOTH
def test_the_packed_bytes_are_those_that_are_drawn(kernel):
    heads = np.zeros(8, HEAD)
    heads["fingerprint"] = [(9 << 56) | number for number in (5, 6, 7, 8, 9, 10, 11, 12)]
    heads["queue"] = [70, 60, 70, 60, 70, 60, 70, 60]
    heads["state"] = 4
    template = bytearray(73)
    template[7], template[60], template[72] = 9, 4, 1
    drawn = (1 | 1 << 8).to_bytes(10, "little") + template + struct.pack("<3H", 2, 0, 0) + struct.pack("<2Q", 60, 70)
    drawn += bytes([5, 1, 1, 1, 1, 1, 1, 1]) + bytes([1, 0, 1, 0, 1, 0, 1, 0])
    assert drawn == kernel.pack_heads(heads.view(np.uint8), b"\2" * 8)


@BOTH
def test_wrong_sizes_are_refused_with_their_numbers(kernel):
    for heads, whole in [(b"", b""), (bytes(71), b"\1"), (bytes(72), b"\1\1"), (bytes(72 * 65_537), bytes(65_537))]:
        with pytest.raises(ValueError, match=rf"{len(heads)} bytes are no heads of {len(whole)} cards"):
            kernel.pack_heads(heads, whole)
    packed = kernel.pack_heads(some_heads(9, 1).tobytes(), b"\1" * 9)
    for other, rows in [(packed, 0), (packed, -1), (packed, 8), (packed, 70_000), (packed[:-1], 9), (packed[:88], 9)]:
        with pytest.raises(ValueError, match=rf"{len(other)} bytes are no packed heads of {rows} cards"):
            kernel.unpack_heads(other, rows)


@BOTH
def test_a_place_beyond_its_list_is_refused(kernel):
    packed = bytearray(kernel.pack_heads(some_heads(16, 2).tobytes(), b"\1" * 16))
    packed[-16:] = b"\xff" * 16
    matched = 0
    for at in range(89, len(packed)):
        bent = bytearray(packed)
        bent[at] = 0xFF
        try:
            kernel.unpack_heads(bytes(bent), 16)
        except ValueError as error:
            matched += f"{len(packed)} bytes are no packed heads of 16 cards" == str(error)
    assert matched >= 16


@WITHOUT_NATIVE
@given(st.integers(1, 80), st.integers(0, 2**32), st.integers(0, 3))
def test_both_pack_to_the_same_bytes(rows, seed, kind):
    rng = random.Random(seed)
    if kind == 0:
        heads = rng.randbytes(72 * rows)
    elif kind == 1:
        heads = b"".join(rng.choice([bytes(72), b"\xff" * 72]) for _ in range(rows))
    else:
        heads = some_heads(rows, seed, few=kind == 2).tobytes()
    whole = bytes(rng.choice([0, 1, 1, 255]) for _ in range(rows))
    packed = planes.pack_heads(heads, whole)
    assert packed == NATIVE.pack_heads(heads, whole)
    assert planes.unpack_heads(packed, rows) == NATIVE.unpack_heads(packed, rows)


@WITHOUT_NATIVE
@given(st.integers(1, 20), st.integers(0, 2**32), st.binary(max_size=400))
def test_both_refuse_the_same_bytes(rows, seed, noise):
    rng = random.Random(seed)
    packed = bytearray(planes.pack_heads(some_heads(rows, seed).tobytes(), b"\1" * rows))
    packed[rng.randrange(len(packed))] ^= 1 << rng.randrange(8)

    def told(kernel, data):
        try:
            return kernel.unpack_heads(data, rows)
        except ValueError as error:
            return str(error)

    for data in (bytes(packed), noise):
        assert told(planes, data) == told(NATIVE, data)


COLUMNS = [
    np.array([0x0201, 0x0403, 0x0605], np.uint16),
    np.array([7, 8, 9], np.uint8),
    b"abc",
    some_heads(3, 1)["slot"],
    some_heads(3, 1).view((np.void, 72)),
    np.broadcast_to(np.uint32(5), 3),
    np.zeros(0, np.int64),
]


@BOTH
def test_columns_are_shuffled_one_after_the_other(kernel):
    assert b"\1\3\5\2\4\6abc" == kernel.shuffle_columns([COLUMNS[0], b"abc"])
    assert b"" == kernel.shuffle_columns([])


@BOTH
@pytest.mark.parametrize("column", [np.zeros((2, 2), np.uint8), np.arange(3)[::-1]])
def test_a_value_that_is_not_a_column_is_not_shuffled(kernel, column):
    with pytest.raises(BufferError, match="one dimension"):
        kernel.shuffle_columns([column])


@WITHOUT_NATIVE
@given(st.lists(st.sampled_from(range(len(COLUMNS))), max_size=5), st.integers(1, 200), st.integers(0, 2**32))
def test_both_shuffle_alike(chosen, rows, seed):
    heads = some_heads(rows, seed, few=False)
    columns = [COLUMNS[place] for place in chosen] + [heads[name] for name in ("fingerprint", "state", "due")]
    columns.append(heads.view((np.void, 72))[::2])
    assert planes.shuffle_columns(columns) == NATIVE.shuffle_columns(columns)
