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
