"""The contract of the filter of blocks, for the native build and its plain twin."""

from __future__ import annotations

import numpy as np
import pytest

from contract.kinds import NATIVE, WITHOUT_NATIVE, both
from outrider.kernels import blocked_bloom

BOTH = both(blocked_bloom)


def drawn(count, *, seed):
    draw = np.random.default_rng(seed)
    return draw.integers(0, 4_096, count, dtype=np.uint16), draw.integers(0, 2**56, count, dtype=np.uint64)


@BOTH
def test_a_key_that_was_added_is_always_found(kernel):
    made = kernel.BlockedBloom(40, 6)
    keys = drawn(2_000, seed=1)
    assert bytes(2_000) == made.check(*keys)
    made.add(*keys)
    assert b"\1" * 2_000 == made.check(*keys)
    assert {"keys": 2_000, "bits": 40 * 512, "bytes": 40 * 64, "hashes": 6} == made.statistics()
    assert 2_000 == len(made)


@BOTH
def test_few_other_keys_are_found(kernel):
    made = kernel.BlockedBloom(12 * 4_096 // 512, 6)
    made.add(*drawn(4_096, seed=1))
    assert sum(made.check(*drawn(20_000, seed=2))) < 20_000 * 0.008


@BOTH
def test_only_56_bits_of_a_fingerprint_count_and_the_slot_does(kernel):
    made = kernel.BlockedBloom(1_000, 8)
    made.add(np.array([3], np.uint16), np.array([2**56 + 5], np.uint64))
    assert b"\1\0" == made.check(np.array([3, 4], np.uint16), np.array([5, 5], np.uint64))


def in_order(keys):
    """The upper 64 bits of each key."""
    return keys[0].astype(np.uint64) << np.uint64(52) | keys[1] >> np.uint64(4)


def divided(kernel, lines, *, firsts, keys):
    """A filter whose only part was replaced by parts with these first keys and these lines, and has these keys."""
    made = kernel.BlockedBloom(1, 6)
    made.begin(0, np.array(firsts, np.uint64), np.array(lines, np.uint64))
    made.fill(*keys)
    made.replace()
    return made


def columns(made):
    return [np.frombuffer(column, np.uint64).tolist() for column in made.parts()]


@BOTH
def test_parts_replace_a_part_and_only_their_keys_move(kernel):
    keys = drawn(3_000, seed=1)
    low, high = 1 << 61, 1 << 63
    made = divided(kernel, [20, 40, 50], firsts=[0, low, high], keys=keys)
    counts = [int(np.count_nonzero((in_order(keys) >= a) & (in_order(keys) < b))) for a, b in ((0, low), (low, high))]
    assert [[0, low, high], [*counts, 3_000 - sum(counts)], [20, 40, 50]] == columns(made)
    rows = (in_order(keys) >= low) & (in_order(keys) < high)
    some = tuple(column[rows] for column in keys)
    made.begin(1, np.array([low, low + 9], np.uint64), np.array([3, 300], np.uint64))
    assert {"keys": 3_000, "bits": 110 * 512, "bytes": 413 * 64, "hashes": 6} == made.statistics()
    assert b"\1" * 3_000 == made.check(*keys)
    made.fill(*some)
    made.replace()
    assert b"\1" * 3_000 == made.check(*keys)
    assert [[0, low, low + 9, high], [counts[0], 0, counts[1], 3_000 - sum(counts)], [20, 3, 300, 50]] == columns(made)
    assert {"keys": 3_000, "bits": 373 * 512, "bytes": 373 * 64, "hashes": 6} == made.statistics()
    made.add(*drawn(100, seed=2))
    assert (3_100, b"\1" * 100) == (len(made), made.check(*drawn(100, seed=2)))


@BOTH
def test_a_key_with_the_first_prefix_of_a_part_is_in_it_and_a_smaller_one_is_not(kernel):
    first = 7 << 52 | 5
    edge = np.array([7, 7, 7, 4_095], np.uint16), np.array([5 << 4, (5 << 4) + 15, (5 << 4) - 1, 2**56 - 1], np.uint64)
    made = divided(kernel, [1, 1], firsts=[0, first], keys=edge)
    assert [[0, first], [1, 3], [1, 1]] == columns(made)


@BOTH
def test_new_parts_that_are_abandoned_change_nothing(kernel):
    made = kernel.BlockedBloom(40, 6)
    made.add(*drawn(500, seed=1))
    before = made.parts(), made.statistics(), made.check(*drawn(5_000, seed=2))
    made.begin(0, np.array([0, 77], np.uint64), np.array([5, 6], np.uint64))
    made.fill(*drawn(50, seed=3))
    made.abandon()
    assert before == (made.parts(), made.statistics(), made.check(*drawn(5_000, seed=2)))
    for verb in (made.replace, lambda: made.fill(*drawn(50, seed=3))):
        with pytest.raises(ValueError, match="no part is being replaced"):
            verb()


@BOTH
@pytest.mark.parametrize(
    ("part", "firsts", "lines", "why"),
    [
        (2, [0], [1], "part: use 0 to 1, not 2"),
        (1, [], [], "firsts"),
        (1, [4], [1], "firsts"),
        (1, [5, 5], [1, 1], "firsts"),
        (0, [0, 5], [1, 1], "firsts"),
        (0, [0, 3], [1, 0], "lines"),
        (0, [0, 3], [1], "firsts"),
    ],
)
def test_parts_that_cannot_be_are_refused(kernel, part, firsts, lines, why):
    made = divided(kernel, [1, 1], firsts=[0, 5], keys=drawn(10, seed=1))
    before = made.parts()
    with pytest.raises(ValueError, match=why):
        made.begin(part, np.array(firsts, np.uint64), np.array(lines, np.uint64))
    assert before == made.parts()


@WITHOUT_NATIVE
def test_both_kinds_set_the_same_bits_in_parts():
    firsts = [0, *np.unique(in_order(drawn(20, seed=9))).tolist()]
    lines = list(range(1, len(firsts) + 1))
    twin, native = (divided(kind, lines, firsts=firsts, keys=drawn(4_000, seed=3)) for kind in (blocked_bloom, NATIVE))
    assert twin.check(*drawn(5_000, seed=4)) == native.check(*drawn(5_000, seed=4))
    assert twin.parts() == native.parts()


@WITHOUT_NATIVE
@pytest.mark.parametrize(("lines", "hashes"), [(1, 1), (7, 6), (300, 16)])
def test_both_kinds_set_the_same_bits(lines, hashes):
    twin, native = blocked_bloom.BlockedBloom(lines, hashes), NATIVE.BlockedBloom(lines, hashes)
    for made in (twin, native):
        made.add(*drawn(20 * lines, seed=3))
    assert twin.check(*drawn(5_000, seed=4)) == native.check(*drawn(5_000, seed=4))
    assert twin.statistics() == native.statistics()


@WITHOUT_NATIVE
@pytest.mark.parametrize(("bits", "hashes", "rate"), [(10, 7, 0.00968), (12, 8, 0.00447), (16, 8, 0.000997)])
def test_the_false_rates_are_those_of_blocks_of_512_bits(bits, hashes, rate):
    made = NATIVE.BlockedBloom(bits * 2_000_000 // 512, hashes)
    made.add(*drawn(2_000_000, seed=5))
    found = np.frombuffer(made.check(*drawn(2_000_000, seed=6)), np.uint8).mean()
    assert 0.85 * rate < found < 1.03 * rate  # the bits of a key are spread better than chance would


@BOTH
@pytest.mark.parametrize(
    ("lines", "hashes", "why"), [(0, 6, "lines"), (2**31, 6, "lines"), (1, 0, "hash"), (1, 17, "hash")]
)
def test_sizes_that_cannot_be_are_refused(kernel, lines, hashes, why):
    with pytest.raises(ValueError, match=why):
        kernel.BlockedBloom(lines, hashes)
