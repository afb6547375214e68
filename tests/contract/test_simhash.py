"""The contract of the SimHash of a text, for the native build and its plain twin."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.kinds import NATIVE, WITHOUT_NATIVE, both
from outrider.kernels import simhash as twin
from outrider.kernels.siphash import fingerprints
from outrider.page import near_pairs

BOTH = both(twin)
KEY = bytes(range(16))
WHITE = [chr(point) for point in range(0x80, sys.maxunicode + 1) if chr(point).isspace()]


def hash_of(*words):
    """The hash of a shingle by its definition."""
    value = 0
    for word in words:
        octets = fingerprints([word], KEY)
        value = (value * 0x9E3779B97F4A7C15 + int.from_bytes(octets, "little")) % 2**64
        value ^= value >> 32
        value = value * 0xD6E8FEB86659FD93 % 2**64
        value ^= value >> 32
    return value


@BOTH
def test_the_definition_counted_bit_by_bit(kernel):
    words = [f"w{number % 300}" for number in range(700)]
    shingles = {hash_of(*words[at : at + 3]) for at in range(len(words) - 2)}
    expected = 0
    for bit in range(64):
        expected |= (2 * sum(shingle >> bit & 1 for shingle in shingles) > len(shingles)) << bit
    assert (expected, 300) == kernel.simhash_of_text(" ".join(words).encode(), KEY, 1_000)


@BOTH
def test_fewer_words_than_three_are_one_shingle(kernel):
    assert (hash_of("one"), 1) == kernel.simhash_of_text(b" One!", KEY, 9)
    assert (hash_of("one", "two"), 1) == kernel.simhash_of_text(b"one-TWO", KEY, 9)


@BOTH
def test_a_shingle_counts_once(kernel):
    assert kernel.simhash_of_text(b"a b c a b", KEY, 9) == kernel.simhash_of_text(b"a b c a b c a b", KEY, 9)


@BOTH
@pytest.mark.parametrize("parting", [chr(point) for point in range(0x80) if not chr(point).isalnum()] + WHITE)
def test_characters_that_separate_words(kernel, parting):
    expected = kernel.simhash_of_text(b"one two two", KEY, 9)
    assert expected == kernel.simhash_of_text(f"{parting}one{parting}{parting}two{parting}two".encode(), KEY, 9)


@BOTH
@pytest.mark.parametrize("text", ["Wörter", "naïve\u200bty", "\u2013", "9", "日本", "\u3001", "\u2030", "ÄÖ"])
def test_other_characters_belong_to_words_as_they_are(kernel, text):
    assert (hash_of(text.replace("W", "w")), 1) == kernel.simhash_of_text(text.encode(), KEY, 9)


@BOTH
def test_no_more_words_count_than_requested(kernel):
    assert kernel.simhash_of_text(b"a b", KEY, 9) == kernel.simhash_of_text(b" a b c", KEY, 2)
    assert (0, 0) == kernel.simhash_of_text(b"a b c", KEY, 0)
    with pytest.raises(ValueError, match="-1 words"):
        kernel.simhash_of_text(b"a", KEY, -1)


@BOTH
def test_a_text_without_words_is_zero(kernel):
    assert [(0, 0)] * 2 == [kernel.simhash_of_text(text, KEY, 9) for text in (b"", " .\u2003\u3000-".encode())]


@BOTH
def test_a_key_of_another_size_is_refused(kernel):
    with pytest.raises(ValueError, match="16 bytes, not 3"):
        kernel.simhash_of_text(b"a", b"key", 9)


@BOTH
def test_any_buffer_will_do(kernel):
    assert kernel.simhash_of_text(b"one two", KEY, 9) == kernel.simhash_of_text(
        memoryview(bytearray(b"one two")), bytearray(KEY), 9
    )


PIECES = [
    *(b"a", b"bc", b"Z9", b" ", b"\n", b"\xc2\xa0", b"\xe2\x80\x83"),
    *(b"\xe2\x80", b"\xe3", b"\xc2", b"\x80", b"\xff"),
]


@WITHOUT_NATIVE
@given(st.lists(st.sampled_from(PIECES), max_size=900), st.integers(0, 400))
def test_both_agree_on_any_octets(pieces, words_max):
    text = b"".join(pieces)
    assert twin.simhash_of_text(text, KEY, words_max) == NATIVE.simhash_of_text(text, KEY, words_max)


DESIGNS = pytest.mark.parametrize("tables", [4, 10, 16, 20])
U64 = st.integers(0, 2**64 - 1)


@BOTH
@DESIGNS
def test_every_pair_within_three_bits_is_found_and_no_pair_farther_apart(kernel, tables):
    index = kernel.SimHashIndex(3, tables)
    numbers = [hash_of(str(number)) for number in range(120)]
    for number in numbers:
        assert index.add(number)
    for place, number in enumerate(numbers):
        bits = [(place * 7 + step * step * 5) % 64 for step in range(5)]
        for count in range(6):
            other = number
            for bit in dict.fromkeys(bits[:count]):
                other ^= 1 << bit
            expected = sorted(
                (one for one in numbers if (one ^ other).bit_count() <= 3),
                key=lambda one, other=other: ((one ^ other).bit_count(), one),
            )
            assert expected == index.near(other)


@BOTH
@DESIGNS
@pytest.mark.parametrize("distance", [0, 1, 2, 3])
def test_the_distance_is_kept(kernel, tables, distance):
    index = kernel.SimHashIndex(distance, tables)
    for bits in (0, 1, 3, 7, 15):
        index.add(bits << 30)
    assert [0, 1, 3, 7][: distance + 1] == [near >> 30 for near in index.near(0)]


@BOTH
def test_a_fingerprint_is_kept_once(kernel):
    index = kernel.SimHashIndex()
    assert [True, False, 1] == [index.add(5), index.add(5), len(index)]
    assert [5] == index.near(4)


@BOTH
@DESIGNS
def test_many_at_once_are_answered_as_one_by_one(kernel, tables):
    index = kernel.SimHashIndex(3, tables)
    numbers = [hash_of(str(number)) for number in range(60)] * 2
    assert [60, 60] == [index.add_many(np.array(numbers, np.uint64)), len(index)]
    asked = [number ^ 1 << place for place, number in enumerate(numbers[:60])] + [0, 2**64 - 1]
    found, counts = index.near_many(np.array(asked, "<u8").tobytes())
    rest = np.frombuffer(found, "<u8").tolist()
    for one, count in zip(asked, np.frombuffer(counts, "<u4").tolist(), strict=True):
        assert rest[:count] == index.near(one)
        rest = rest[count:]
    assert [] == rest


@BOTH
@DESIGNS
def test_thousands_added_together_are_found_as_one_by_one(kernel, tables):
    """Some are there before, some appear twice, and some share all the bits of a table's key."""
    numbers = [hash_of(str(number)) for number in range(1_200)]
    together, single = (kernel.SimHashIndex(3, tables) for _ in range(2))
    crowded = [numbers[0] ^ low for low in range(300)]
    for some in (numbers[:7], numbers + crowded + numbers[:50], numbers[600:] * 2):
        new = sum(map(single.add, some))
        assert [new, len(single)] == [together.add_many(np.array(some, np.uint64)), len(together)]
    asked = np.array([*numbers[:200], *(number ^ 0x8001 for number in crowded[::3])], np.uint64)
    assert single.near_many(asked) == together.near_many(asked)
    assert [single.candidates(one) for one in crowded[:9]] == [together.candidates(one) for one in crowded[:9]]


@BOTH
def test_a_column_of_something_else_is_refused(kernel):
    with pytest.raises(ValueError, match="fingerprints: 9 bytes are no column of 8"):
        kernel.SimHashIndex().near_many(bytes(9))
    with pytest.raises(BufferError, match="fingerprints"):
        kernel.SimHashIndex().add_many(np.zeros(2, np.uint32))


def test_near_pairs_are_found_among_more_fingerprints_than_an_index_has_room_for():
    chance = np.random.default_rng(3)
    asked = chance.integers(0, 2**64, 500, np.uint64)
    planted = asked[:90] ^ np.uint64(0b1010_0001)
    far = asked[90:200] ^ np.uint64(0b1111 << 40)
    known = np.concatenate([chance.integers(0, 2**64, 5_000, np.uint64), planted, far])
    chance.shuffle(known)
    for tables in (4, 10, 16, 20):
        found = near_pairs(asked, (known[at : at + 999] for at in range(0, len(known), 999)), tables=tables)
        assert sorted(zip(asked[:90].tolist(), planted.tolist(), strict=True)) == sorted(found)


@BOTH
def test_a_design_that_is_not_there_is_refused(kernel):
    with pytest.raises(ValueError, match="4, 10, 16 and 20"):
        kernel.SimHashIndex(3, 5)
    with pytest.raises(ValueError, match="0 to 3"):
        kernel.SimHashIndex(4)
    with pytest.raises(OverflowError):
        kernel.SimHashIndex().add(2**64)


@BOTH
@pytest.mark.parametrize(("tables", "bits"), [(4, [16]), (10, [25, 26]), (16, [28]), (20, [31, 32, 33])])
def test_a_table_compares_as_many_bits_as_its_design_says(kernel, tables, bits):
    """Manku, Jain, Das Sarma 2007: this number of bits must agree before two fingerprints are compared."""
    assert set(bits) == {mask.bit_count() for mask in twin.choices(tables)}
    index = kernel.SimHashIndex(3, tables)
    index.add(0)
    assert tables == index.candidates(0)
    assert [sum(not mask & 1 << bit for mask in twin.choices(tables)) for bit in range(64)] == [
        index.candidates(1 << bit) for bit in range(64)
    ]


@WITHOUT_NATIVE
@DESIGNS
@given(st.lists(U64, max_size=20), st.lists(st.integers(0, 63), max_size=5))
def test_both_indexes_agree(tables, numbers, flips):
    mine, others = NATIVE.SimHashIndex(3, tables), twin.SimHashIndex(3, tables)
    for number in numbers:
        assert others.add(number) == mine.add(number)
        for flip in flips:
            number ^= 1 << flip
        assert (others.near(number), others.candidates(number)) == (mine.near(number), mine.candidates(number))
