"""The contract of the pages of sorted keys, for the native build and its plain twin."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.kinds import NATIVE, WITHOUT_NATIVE, both
from outrider.kernels import fingerprint_set, key_pages

BOTH = both(key_pages)
SETS = both(fingerprint_set)
PAGE, FINGERPRINT_MAX = key_pages.PAGE_BYTES, 2**56 - 1


def columns(keys):
    keys = list(keys)
    return (
        np.array([key >> 56 for key in keys], np.uint16),
        np.array([key & FINGERPRINT_MAX for key in keys], np.uint64),
    )


def keys_in(pair):
    slots, fingerprints = np.frombuffer(pair[0], np.uint16), np.frombuffer(pair[1], np.uint64)
    return [slot << 56 | print_ for slot, print_ in zip(slots.tolist(), fingerprints.tolist(), strict=True)]


def drawn(count, *, seed=1, bits=68):
    draw = np.random.default_rng(seed)
    whole = zip(draw.integers(0, 2**34, count).tolist(), draw.integers(0, 2**34, count).tolist(), strict=True)
    return sorted({(high << 34 | low) >> (68 - bits) for high, low in whole})


def numbers(pages, first=0):
    return np.arange(first, first + len(pages) // PAGE, dtype=np.uint32)


SETS_OF_KEYS = [
    [0],
    [(1 << 68) - 1],
    [0, (1 << 68) - 1],
    [5, 6, 1 << 60, (1 << 60) + 1],
    list(range(1 << 20, (1 << 20) + 20_000)),  # one bucket for each
    [number << 30 | 5 for number in range(3_000)],
    drawn(3_000),
    drawn(3_000, bits=20),
    drawn(20_000, bits=40),
]


@BOTH
@pytest.mark.parametrize("keys", SETS_OF_KEYS, ids=len)
def test_keys_are_unpacked_as_they_were_packed(kernel, keys):
    pages, taken = kernel.pack_keys(*columns(keys), 7, True)
    assert (len(keys), 0) == (taken, len(pages) % PAGE)
    assert keys == keys_in(kernel.unpack_keys(pages, numbers(pages, 7)))


@BOTH
def test_only_full_pages_are_made_unless_all_is_wanted(kernel):
    keys = drawn(5_000)
    pages, taken = kernel.pack_keys(*columns(keys), 0, False)
    assert 0 < taken < 5_000
    assert keys[:taken] == keys_in(kernel.unpack_keys(pages, numbers(pages)))
    assert (b"", 0) == kernel.pack_keys(*columns(keys[:50]), 0, False)


@WITHOUT_NATIVE
@given(st.sets(st.integers(0, (1 << 68) - 1), max_size=300), st.integers(1, 68), st.booleans())
def test_both_kinds_make_the_same_pages(keys, bits, whole):
    made = columns(sorted({key >> (68 - bits) for key in keys}))
    assert key_pages.pack_keys(*made, 3, whole) == NATIVE.pack_keys(*made, 3, whole)


@WITHOUT_NATIVE
def test_both_kinds_make_the_same_pages_of_many_keys():
    for bits in (20, 40, 60, 68):
        made = columns(drawn(8_000, bits=bits))
        assert key_pages.pack_keys(*made, 0, True) == NATIVE.pack_keys(*made, 0, True)


@BOTH
def test_keys_are_found_in_the_pages_that_have_them(kernel):
    keys = drawn(20_000, bits=50)
    pages, _ = kernel.pack_keys(*columns(keys), 0, True)
    for wanted in (keys, keys[::97], [keys[0] - 1, keys[0], keys[-1], keys[-1] + 1], drawn(3_000, seed=2, bits=50)):
        there = set(keys)
        found = kernel.find_keys(pages, numbers(pages), *columns(wanted))
        assert [key in there for key in wanted] == list(map(bool, found))
    some = numbers(pages)[::3]
    part = b"".join(pages[at * PAGE :][:PAGE] for at in some.tolist())
    there = set(keys_in(kernel.unpack_keys(part, some)))
    assert [key in there for key in keys] == list(map(bool, kernel.find_keys(part, some, *columns(keys))))


@BOTH
def test_each_damage_of_a_page_is_noticed(kernel):
    pages, _ = kernel.pack_keys(*columns(drawn(2_000)), 0, True)
    for at in (0, 4, 9, 10, 13, 20, 30, 4_000, 4_095, 4_096 + 17):
        broken = bytearray(pages)
        broken[at] ^= 4
        with pytest.raises(ValueError, match=f"page {at // PAGE} is damaged"):
            kernel.unpack_keys(bytes(broken), numbers(pages))
        with pytest.raises(ValueError, match=f"page {at // PAGE} is damaged"):
            kernel.find_keys(bytes(broken), numbers(pages), *columns([3]))
    with pytest.raises(ValueError, match="page 0 is damaged"):
        kernel.unpack_keys(pages, numbers(pages, 1))
    with pytest.raises(ValueError, match="not 1 pages"):
        kernel.unpack_keys(pages, numbers(pages)[:1])
    with pytest.raises(ValueError, match="page 0 is damaged"):
        kernel.unpack_keys(bytes(PAGE), numbers(pages)[:1])


@BOTH
def test_keys_must_ascend(kernel):
    for keys in ([2, 1], [1, 1]):
        with pytest.raises(ValueError, match="place 1: the keys do not ascend"):
            kernel.pack_keys(*columns(keys), 0, True)
        with pytest.raises(ValueError, match="place 1: the keys do not ascend"):
            kernel.find_keys(b"", b"", *columns(keys))
    with pytest.raises(ValueError, match="slot"):
        kernel.sort_keys(np.array([4_096], np.uint16), np.array([1], np.uint64))


@BOTH
def test_keys_are_sorted_and_each_stays_once(kernel):
    keys = drawn(2_000, bits=10)
    mixed = [*keys[::2], *keys, *keys[1::3]]
    assert keys == keys_in(kernel.sort_keys(*columns(mixed)))
    assert (b"", b"") == kernel.sort_keys(b"", b"")


@BOTH
def test_keys_are_ranked_in_their_order(kernel):
    keys = drawn(2_000, bits=10)
    mixed = [*keys[::2], *keys, *keys[1::3], (1 << 68) - 1, 0]
    slots, fingerprints, places = kernel.rank_keys(*columns(mixed))
    ranked = keys_in((slots, fingerprints))
    assert sorted(set(mixed)) == ranked
    assert mixed == [ranked[place] for place in np.frombuffer(places, np.uint32)]
    assert (b"", b"", b"") == kernel.rank_keys(b"", b"")


@BOTH
def test_a_key_needs_half_a_bit_more_than_the_best_code(kernel):
    """Differences of n keys spread evenly in 68 bits cost log2(2^68 / n) + 1.44 bits by the best code."""
    keys = drawn(20_000, seed=3)
    pages, taken = kernel.pack_keys(*columns(keys), 0, False)
    best = 68 - math.log2(len(keys)) + 1.44
    assert best < 8 * len(pages) / taken < 1.01 * (best + 0.6)


@SETS
def test_the_keys_of_a_set_are_read_in_order_from_any_place(kernel):
    keys = drawn(30_000, seed=5, bits=58)
    made = kernel.FingerprintSet()
    assert (b"", b"") == made.keys_from(0, 0, 10)
    made.add(*columns(keys))
    made.remove(*columns(keys[::3]))
    rest = [key for place, key in enumerate(keys) if place % 3]
    found, first = [], 0
    while some := keys_in(made.keys_from(first >> 56, first & FINGERPRINT_MAX, 1_000)):
        found += some
        first = some[-1] + 1
    assert rest == found
    assert rest[100:] == keys_in(made.keys_from(rest[100] >> 56, rest[100] & FINGERPRINT_MAX, 10**6))
    with pytest.raises(ValueError, match="a slot is below 4096"):
        made.keys_from(4_096, 0, 1)
