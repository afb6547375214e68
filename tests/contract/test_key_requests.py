"""The contract of the kernel of DRUM, for the native build and its plain twin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.kinds import NATIVE, U64_MAX, WITHOUT_NATIVE, both
from outrider.kernels import key_requests
from outrider.kernels.key_requests import Operation, request_type, row_type

BOTH = both(key_requests)


def requests(*rows, payload_bytes=0, valued=True):
    """Each row: key, value, operation; the payload is zeros."""
    made = np.zeros(len(rows), request_type(payload_bytes, valued))
    for name, column in zip(("key", "value", "operation"), zip(*rows, strict=True), strict=False):
        if name in made.dtype.names:
            made[name] = np.array(column, made.dtype[name])
    return made.tobytes()


def block(*rows, valued=True):
    """Each row: key, value."""
    return np.array([row if valued else row[:1] for row in rows], row_type(valued)).tobytes()


def read(answers, *, valued=True):
    """Known, values, rows, as lists."""
    known, values, rows = answers
    return (
        list(known),
        np.frombuffer(values, np.uint64).tolist(),
        np.frombuffer(rows, row_type(valued)).tolist(),
    )


@BOTH
def test_each_request_is_answered_as_its_key_was_before_it(kernel):
    asked = requests(
        (9, 5, Operation.CHECK),
        (U64_MAX, 5, Operation.CHECK_UPDATE),
        (9, 6, Operation.UPDATE),
        (0, 2, Operation.APPEND),
        (9, 2, Operation.APPEND),
        (9, 0, Operation.CHECK),
        (0, U64_MAX, Operation.APPEND),
        (7, 1, Operation.CHECK),
    )
    answers = read(kernel.answer_requests(asked, 0, True, [block((7, 70), (9, 90)), block((9, 91))], False))
    assert [1, 0, 1, 0, 1, 1, 1, 1] == answers[0]
    assert [91, 0, 91, 0, 6, 8, 2, 70] == answers[1]
    assert [(0, 1), (9, 8), (U64_MAX, 5)] == answers[2]


@BOTH
def test_all_rows_are_returned_in_order_the_newest_of_each_key(kernel):
    blocks = [block((1, 10), (5, 50)), block((8, 80), (9, 90)), block((5, 51), (6, 60)), b""]
    asked = requests((8, 81, Operation.UPDATE), (7, 0, Operation.CHECK), (2, 20, Operation.UPDATE))
    answers = read(kernel.answer_requests(asked, 0, True, blocks, True))
    assert [(1, 10), (2, 20), (5, 51), (6, 60), (8, 81), (9, 90)] == answers[2]


@BOTH
def test_keys_without_values_have_the_value_0(kernel):
    asked = requests((3, 0, Operation.APPEND), (3, 0, Operation.CHECK), payload_bytes=5, valued=False)
    answers = kernel.answer_requests(asked, 5, False, [block((1,), (3,), valued=False)], True)
    assert ([1, 1], [0, 0], [(1,), (3,)]) == read(answers, valued=False)


@BOTH
def test_nothing_is_asked(kernel):
    assert (b"", b"", b"") == kernel.answer_requests(b"", 0, True, [], True)
    assert (b"", b"", block((4, 40))) == kernel.answer_requests(b"", 0, True, [block((4, 40))], True)


@BOTH
@pytest.mark.parametrize(
    ("how", "message"),
    [
        ((bytes(18), 0, True, []), "requests: 18 bytes are no column of 17 bytes each"),
        ((b"", 0, True, [b"", bytes(8)]), "block 1: 8 bytes are no column of 16 bytes each"),
        ((requests((1, 1, 0)), 0, True, []), "place 0: an operation is 1 to 4, not 0"),
        ((requests((1, 1, 1), (1, 1, 5)), 0, True, []), "place 1: an operation is 1 to 4, not 5"),
        ((b"", 0, True, [b"", block((4, 1), (4, 2))]), "block 1: the keys do not ascend"),
        ((b"", 0, True, [block((4, 1), (3, 2))]), "block 0: the keys do not ascend"),
    ],
)
def test_damaged_input_is_refused(kernel, how, message):
    with pytest.raises(ValueError, match=message):
        kernel.answer_requests(*how, False)


def numbers(bits):
    return st.integers(0, 2**bits - 1).map(lambda number: number << (64 - bits))


@WITHOUT_NATIVE
@given(
    st.lists(st.tuples(numbers(5) | numbers(64), numbers(64), st.sampled_from(list(Operation))), max_size=60),
    st.lists(st.dictionaries(numbers(5) | numbers(64), numbers(64), max_size=20), max_size=4),
    st.integers(0, 9),
    st.booleans(),
    st.booleans(),
)
def test_both_kinds_answer_the_same(rows, runs, payload_bytes, valued, whole):
    asked = requests(*rows, payload_bytes=payload_bytes, valued=valued)
    blocks = [block(*sorted(run.items()), valued=valued) for run in runs]
    how = (asked, payload_bytes, valued, blocks, whole)
    assert key_requests.answer_requests(*how) == NATIVE.answer_requests(*how)


@WITHOUT_NATIVE
@pytest.mark.parametrize("bits", [64, 20, 1])
def test_both_kinds_answer_many_requests_the_same(bits):
    draw = np.random.default_rng(bits)
    made = np.zeros(20_000, request_type(3, True))
    made["key"] = draw.integers(0, 2**bits, len(made), np.uint64)
    made["value"] = draw.integers(0, 2**64, len(made), np.uint64)
    made["operation"] = draw.integers(1, 5, len(made))
    run = np.zeros(5_000, row_type(True))
    run["key"] = np.sort(draw.choice(made["key"], len(run)) + np.arange(len(run), dtype=np.uint64) % np.uint64(2))
    blocks = [run[np.append(run["key"][1:] != run["key"][:-1], True)].tobytes()]
    how = (made.tobytes(), 3, True, blocks, True)
    assert key_requests.answer_requests(*how) == NATIVE.answer_requests(*how)
