"""The contract of the set of seen keys, for the native build and its plain twin."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.kinds import NATIVE, U64_MAX, WITHOUT_NATIVE, both
from outrider.kernels import fingerprint_set

BOTH = both(fingerprint_set)
SLOTS, FINGERPRINT_MAX = 4_096, 2**56 - 1


def columns(*keys):
    slots = np.array([slot for slot, _ in keys], dtype=np.uint16)
    return slots, np.array([fingerprint for _, fingerprint in keys], dtype=np.uint64)


def drawn(count, *, seed, slots=SLOTS):
    draw = np.random.default_rng(seed)
    return draw.integers(0, slots, count, dtype=np.uint16), draw.integers(0, U64_MAX, count, dtype=np.uint64)


EDGES = columns((0, 0), (0, FINGERPRINT_MAX), (4_095, 0), (4_095, FINGERPRINT_MAX), (7, 2**55))


@BOTH
def test_a_key_is_there_once_it_was_added(kernel):
    made = kernel.FingerprintSet()
    assert bytes(5) == made.check(*EDGES)
    assert b"\1" * 5 == made.add(*EDGES)
    assert b"\1" * 5 == made.check(*EDGES)
    assert bytes(5) == made.add(*EDGES)
    assert 5 == len(made)


@BOTH
def test_slot_and_fingerprint_count_both(kernel):
    made = kernel.FingerprintSet()
    made.add(*columns((3, 5)))
    assert bytes([1, 0, 0, 0, 0]) == made.check(*columns((3, 5), (3, 4), (3, 6), (2, 5), (4, 5)))


@BOTH
def test_only_the_lower_56_bits_of_a_fingerprint_count(kernel):
    made = kernel.FingerprintSet()
    assert b"\1" == made.add(*columns((3, 2**56 + 5)))
    assert b"\1\1" == made.check(*columns((3, 5), (3, 2**63 + 5)))
    assert b"\0" == made.add(*columns((3, 5)))


@BOTH
def test_only_the_first_of_equal_keys_in_a_batch_is_new(kernel):
    made = kernel.FingerprintSet()
    assert bytes([1, 1, 0, 1, 0]) == made.add(*columns((9, 9), (1, 1), (9, 9), (1, 2), (1, 1)))
    assert bytes([1, 0, 0]) == made.add(*columns((4_000, 1), (4_000, 1), (4_000, 1)))
    assert 4 == len(made)


@BOTH
def test_equal_keys_of_a_batch_that_is_large_are_new_once(kernel):
    made = kernel.FingerprintSet()
    slots, fingerprints = drawn(3_000, seed=2, slots=3)
    twice = np.concatenate([slots, slots]), np.concatenate([fingerprints, fingerprints])
    assert b"\1" * 3_000 + bytes(3_000) == made.add(*twice)


@BOTH
def test_a_removed_key_is_gone_and_may_be_added_again(kernel):
    made = kernel.FingerprintSet()
    made.add(*EDGES)
    assert bytes([1, 0, 0]) == made.remove(*columns((0, 0), (0, 0), (0, 1)))
    assert bytes([0, 1, 1, 1, 1]) == made.check(*EDGES)
    assert 4 == len(made)
    assert bytes([1, 0, 0, 0, 0]) == made.add(*EDGES)
    assert 5 == len(made)


@BOTH
def test_packed_keys_can_be_removed_and_added_again(kernel):
    made = kernel.FingerprintSet()
    slots, fingerprints = drawn(5_000, seed=3, slots=2)
    made.add(slots, fingerprints)
    assert b"\1" * 2_000 == made.remove(slots[:2_000], fingerprints[:2_000])
    assert bytes(2_000) + b"\1" * 3_000 == made.check(slots, fingerprints)
    assert bytes(20) == made.remove(slots[:20], fingerprints[:20])
    assert b"\1" * 20 == made.add(slots[:20], fingerprints[:20])
    assert 3_020 == len(made)


@BOTH
def test_a_set_is_emptied_key_by_key(kernel):
    made = kernel.FingerprintSet()
    slots, fingerprints = drawn(9_000, seed=4, slots=1)
    made.add(slots, fingerprints)
    assert b"\1" * 9_000 == made.remove(slots, fingerprints)
    assert (0, bytes(9_000)) == (len(made), made.check(slots, fingerprints))
    assert b"\1" * 9_000 == made.add(slots, fingerprints)


@BOTH
def test_buffers_may_be_bytes_or_columns_with_gaps(kernel):
    made = kernel.FingerprintSet()
    heads = np.zeros(3, dtype=[("fingerprint", "<u8"), ("slot", "<u2")])
    heads["fingerprint"], heads["slot"] = [5, 6, 7], [1, 2, 3]
    assert b"\1" * 3 == made.add(heads["slot"], heads["fingerprint"])
    assert b"\1" * 3 == made.check(heads["slot"].tobytes(), bytearray(heads["fingerprint"].tobytes()))


@BOTH
@pytest.mark.parametrize("verb", ["check", "add", "remove"])
def test_an_empty_batch_is_answered_with_nothing(kernel, verb):
    assert b"" == getattr(kernel.FingerprintSet(), verb)(b"", b"")


@BOTH
@pytest.mark.parametrize("verb", ["check", "add", "remove"])
def test_wrong_batches_are_refused_and_nothing_was_done(kernel, verb):
    made = kernel.FingerprintSet()
    call = getattr(made, verb)
    slots, fingerprints = columns((1, 1), (2, 2))
    with pytest.raises(ValueError, match="2 slots and 1 fingerprints make no rows"):
        call(slots, fingerprints[:1])
    with pytest.raises(ValueError, match="place 1: a slot is below 4096, not 4096"):
        call(*columns((1, 1), (4_096, 2)))
    with pytest.raises(ValueError, match="slots: 3 bytes are no column of 2 bytes each"):
        call(bytes(3), fingerprints)
    with pytest.raises(BufferError, match=r"slots: items of type '\w' are no u16"):
        call(fingerprints, fingerprints)
    with pytest.raises(TypeError):
        call([1, 2], fingerprints)
    assert 0 == len(made)


@BOTH
def test_statistics_count_keys_and_bytes(kernel):
    made = kernel.FingerprintSet()
    made.add(*drawn(1_000, seed=6))
    statistics = made.statistics()
    assert {"keys", "bytes"} == set(statistics)
    assert 1_000 == statistics["keys"]
    assert statistics["bytes"] > 4_000


@WITHOUT_NATIVE
@pytest.mark.parametrize("order", ["drawn", "ascending"])
def test_a_key_uses_at_most_6_bytes(order):
    """As dense as 10 million keys in 4,096 slots are, in few of them."""
    slots, fingerprints = drawn(100_000, seed=7, slots=41)
    if order == "ascending":
        at = np.lexsort((fingerprints & np.uint64(FINGERPRINT_MAX), slots))
        slots, fingerprints = slots[at], fingerprints[at]
    made = NATIVE.FingerprintSet()
    empty = made.statistics()["bytes"]
    for start in range(0, 100_000, 1_000):
        made.add(slots[start : start + 1_000], fingerprints[start : start + 1_000])
    # Room to merge in is kept once per set, not per key.
    assert made.statistics()["bytes"] - empty - 100_000 <= 6 * 100_000


@WITHOUT_NATIVE
def test_a_large_batch_lets_other_threads_run():
    made, go_on, passes = NATIVE.FingerprintSet(), threading.Event(), 0
    slots, fingerprints = drawn(400_000, seed=8)
    done = threading.Thread(target=lambda: (made.add(slots, fingerprints), go_on.set()))
    done.start()
    while not go_on.is_set():
        passes += 1
    done.join()
    assert 400_000 == len(made)
    assert passes > 0


@WITHOUT_NATIVE
@pytest.mark.parametrize("slots", [1, 3, SLOTS])
def test_both_kernels_answer_alike_on_many_keys(slots):
    draw = np.random.default_rng(slots)
    native, twin = NATIVE.FingerprintSet(), fingerprint_set.FingerprintSet()
    numbers, fingerprints = drawn(20_000, seed=slots, slots=slots)
    ascending = np.lexsort((fingerprints & np.uint64(FINGERPRINT_MAX), numbers))
    for size in (1, 40, 700, 3_000, 9_000, 3_000, 700, 9_000):
        at = draw.integers(0, 20_000, size)
        some = ascending[np.sort(draw.integers(0, 20_000, size))]
        for verb, chosen in (("add", at), ("check", some), ("remove", at[::3]), ("add", some), ("remove", some[::2])):
            keys = numbers[chosen], fingerprints[chosen]
            assert getattr(twin, verb)(*keys) == getattr(native, verb)(*keys)
            assert len(twin) == len(native)
    assert twin.check(numbers, fingerprints) == native.check(numbers, fingerprints)


keys = st.tuples(
    st.sampled_from([0, 1, 4_095]),
    st.one_of(st.integers(0, 12), st.integers(0, U64_MAX), st.sampled_from([FINGERPRINT_MAX, FINGERPRINT_MAX - 1])),
)
spans = st.tuples(
    st.sampled_from([0, 1, 4_095]),
    st.one_of(st.integers(0, 20), st.integers(0, U64_MAX)),
    st.integers(1, 2**48),
    st.integers(1, 5_000),
    st.booleans(),
)
verbs = st.sampled_from(["add", "add", "remove", "check"])
histories = st.lists(
    st.one_of(st.tuples(verbs, st.lists(keys, max_size=60)), st.tuples(verbs, spans)),
    max_size=10,
)


@WITHOUT_NATIVE
@given(histories)
def test_both_kernels_answer_alike_on_any_history(history):
    native, twin = NATIVE.FingerprintSet(), fingerprint_set.FingerprintSet()
    for verb, argument in history:
        if isinstance(argument, list):
            batch = columns(*argument)
        else:
            slot, start, step, count, downwards = argument
            fingerprints = [(start + step * number) % 2**64 for number in range(count)]
            batch = columns(*((slot, print_) for print_ in (reversed(fingerprints) if downwards else fingerprints)))
        assert getattr(twin, verb)(*batch) == getattr(native, verb)(*batch)
        assert len(twin) == len(native)
