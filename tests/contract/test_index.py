"""The contract of the index of hashes, for the native build and its plain twin."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.kinds import NATIVE, NONE, U64_MAX, WITHOUT_NATIVE, both, rows, u32, u64
from outrider.kernels import index

BOTH = both(index)
ODD_HASHES = [0, 1, U64_MAX, U64_MAX - 1, 2**63, 2**32, 2**56]


@BOTH
def test_a_hash_that_was_never_added_has_no_row(kernel):
    made = kernel.Index()
    assert [NONE] * 7 == rows(made.find(u64(*ODD_HASHES)))
    assert 0 == len(made)


@BOTH
def test_any_hash_gets_any_row_except_the_reserved_one(kernel):
    made = kernel.Index()
    wanted = [0, 5, NONE - 1, 5, 3, 2, 1]
    made.add(u64(*ODD_HASHES), u32(*wanted))
    assert wanted == rows(made.find(u64(*ODD_HASHES)))
    assert 7 == len(made)


@BOTH
def test_a_known_hash_gets_the_new_row_also_within_a_batch(kernel):
    made = kernel.Index()
    made.add(u64(8, 9, 8), u32(1, 2, 3))
    assert [3, 2] == rows(made.find(u64(8, 9)))
    made.add(u64(9), u32(4))
    assert [3, 4] == rows(made.find(u64(8, 9)))
    assert 2 == len(made)


@BOTH
def test_a_removed_hash_has_no_row_and_unknown_ones_are_passed_over(kernel):
    made = kernel.Index()
    made.add(u64(1, 2, 3), u32(10, 20, 30))
    made.remove(u64(2, 2, 77))
    assert [10, NONE, 30] == rows(made.find(u64(1, 2, 3)))
    assert 2 == len(made)


@BOTH
def test_buffers_may_be_bytes_or_a_column_with_gaps(kernel):
    made = kernel.Index()
    made.add(u64(1, 2, 3).tobytes(), bytearray(u32(4, 5, 6).tobytes()))
    column = np.zeros(3, dtype=[("a", "<u8"), ("b", "<u2")])
    column["a"] = [3, 2, 1]
    assert [6, 5, 4] == rows(made.find(column["a"]))
    assert [6] == rows(made.find(memoryview(u64(3))))


@BOTH
def test_an_empty_batch_changes_nothing(kernel):
    made = kernel.Index()
    made.add(b"", b"")
    made.remove(u64())
    assert (b"", 0) == (made.find(b""), len(made))


@BOTH
def test_more_hashes_than_rows_are_refused(kernel):
    with pytest.raises(ValueError, match="2 hashes and 1 rows make no rows"):
        kernel.Index().add(u64(1, 2), u32(1))


@BOTH
def test_the_reserved_row_is_refused_and_nothing_is_added(kernel):
    made = kernel.Index()
    with pytest.raises(ValueError, match="rows: at 1 stands 4294967295, no row"):
        made.add(u64(1, 2), u32(1, NONE))
    assert 0 == len(made)


@BOTH
def test_bytes_that_end_within_a_number_are_refused(kernel):
    made = kernel.Index()
    for call in (made.find, made.remove):
        with pytest.raises(ValueError, match="hashes: 9 bytes are no column of 8 bytes each"):
            call(bytes(9))
    with pytest.raises(ValueError, match="rows: 5 bytes are no column of 4 bytes each"):
        made.add(bytes(8), bytes(5))


@BOTH
@pytest.mark.parametrize("kind", [np.int64, np.uint32, np.float64])
def test_other_numbers_are_refused(kernel, kind):
    with pytest.raises(BufferError, match=r"hashes: items of type '\w' are no u64"):
        kernel.Index().find(np.zeros(2, dtype=kind))


@BOTH
def test_an_argument_that_is_not_a_buffer_is_refused(kernel):
    for wrong in ([1, 2], "text", None):
        with pytest.raises(TypeError):
            kernel.Index().find(wrong)


@BOTH
def test_statistics_count_entries_and_bytes(kernel):
    made = kernel.Index()
    made.add(u64(*range(1000)), u32(*range(1000)))
    statistics = made.statistics()
    assert {"entries", "bytes"} == set(statistics)
    assert 1000 == statistics["entries"]
    assert statistics["bytes"] >= 12_000


@WITHOUT_NATIVE
@pytest.mark.parametrize("entries", [100_000, 117_000, 140_000])
def test_an_entry_uses_at_most_20_bytes_at_any_moment_of_growth(entries):
    made = NATIVE.Index()
    numbers = np.arange(entries, dtype=np.uint64)
    made.add(numbers, numbers.astype(np.uint32))
    assert made.statistics()["bytes"] <= 20 * entries


@BOTH
def test_a_large_batch_is_answered_like_a_small_one(kernel):
    made = kernel.Index()
    numbers = np.arange(70_000, dtype=np.uint64)
    made.add(numbers, numbers.astype(np.uint32))
    assert numbers.tolist() == rows(made.find(numbers))
    made.remove(numbers[:66_000])
    assert list(range(66_000, 70_000)) == rows(made.find(numbers[66_000:]))
    assert 4_000 == len(made)


@WITHOUT_NATIVE  # the twin is a dictionary, which keeps its room
def test_memory_is_freed_with_the_removed_entries():
    made = NATIVE.Index()
    empty = made.statistics()["bytes"]
    numbers = np.arange(50_000, dtype=np.uint64)
    made.add(numbers, numbers.astype(np.uint32))
    made.remove(numbers)
    assert (0, empty) == (len(made), made.statistics()["bytes"])


@WITHOUT_NATIVE
def test_an_index_of_100000_hosts_added_and_removed_answers_like_its_twin():
    draw = np.random.default_rng(5)
    native, twin = NATIVE.Index(), index.Index()
    for _ in range(20):
        hashes = draw.integers(0, 2**17, 10_000, dtype=np.uint64) * np.uint64(0x9E37_79B9_7F4A_7C15)
        rows = draw.integers(0, NONE, 10_000, dtype=np.uint32)
        gone = hashes[draw.integers(0, 10_000, 4_000)]
        for made in (native, twin):
            made.add(hashes, rows)
            made.remove(gone)
        assert twin.find(hashes) == native.find(hashes)
        assert len(twin) == len(native)


hashes = st.one_of(st.sampled_from(ODD_HASHES), st.integers(0, 40), st.integers(0, U64_MAX))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(st.tuples(hashes, st.integers(0, NONE - 1)), max_size=60)),
        st.tuples(st.just("remove"), st.lists(hashes, max_size=60)),
        st.tuples(st.just("find"), st.lists(hashes, max_size=20)),
        st.tuples(st.just("many"), st.integers(0, U64_MAX)),
    ),
    max_size=12,
)


@WITHOUT_NATIVE
@given(steps)
def test_both_kernels_answer_alike_on_any_history(history):
    native, twin = NATIVE.Index(), index.Index()
    for verb, argument in history:
        if verb == "add":
            keys, said = u64(*(key for key, _ in argument)), u32(*(row for _, row in argument))
            native.add(keys, said)
            twin.add(keys, said)
        elif verb == "remove":
            native.remove(u64(*argument))
            twin.remove(u64(*argument))
        elif verb == "many":
            start = random.Random(argument).randrange(30)
            keys = np.arange(start, start + 300, dtype=np.uint64)
            native.add(keys, keys.astype(np.uint32))
            twin.add(keys, keys.astype(np.uint32))
        else:
            assert twin.find(u64(*argument)) == native.find(u64(*argument))
        assert len(twin) == len(native)
    keys = u64(*ODD_HASHES, *range(400))
    assert twin.find(keys) == native.find(keys)
