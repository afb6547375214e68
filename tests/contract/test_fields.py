"""The contract of the fields of a head, for the native build and its plain twin."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.kinds import WITHOUT_NATIVE, both, native_of
from outrider.kernels import fields as twin

NATIVE = native_of(twin)
BOTH = both(twin)


@BOTH
@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (b"", ()),
        (b"A: 1\r\nB:2\r\n\r\n", (("A", "1"), ("B", "2"))),
        (b"A : \t1 \t\r\n", (("A", "1"),)),
        (b"A: b: c\n", (("A", "b: c"),)),
        (b"A:", (("A", ""),)),
        (b"no colon\r\n: no name\r\nA: 1\r\n", (("A", "1"),)),
        (b"A: 1\r\n 2\r\n\t3: 4\r\nB: 5\r\n", (("A", "1 2 3: 4"), ("B", "5"))),
        (b"A:\r\n \r\n\t2\r\n", (("A", "2"),)),
        (b"A: 1\r\nno colon\r\n 2\r\n", (("A", "1 2"),)),
        (b" A: 1\r\n B: 2\r\n", ((" A", "1 B: 2"),)),
        (b"X-L: \xe9\xff\r\n\xc0: \x00\r\n", (("X-L", "\xe9\xff"), ("\xc0", "\x00"))),
    ],
)
def test_fields_in_order(kernel, lines, expected):
    assert expected == kernel.head_fields(b"HTTP/1.1 200: fine\r\n" + lines)


@BOTH
def test_the_index_has_names_in_lower_case_and_all_values(kernel):
    head = b"HTTP/1.1 200\r\nVia: a\r\n\xc0B: 1\r\nvia:\r\nETag: x\r\nVIA: c\r\n"
    assert (
        {"via": "a", "\xe0b": "1", "etag": "x"},
        {"via": ["a", "", "c"]},
    ) == kernel.head_index(head)


@BOTH
def test_values_that_are_the_same_count_twice(kernel):
    assert ({"a": ""}, {"a": ["", ""]}) == kernel.head_index(b"HTTP/1.1 200\nA:\nA:\n")


@BOTH
@pytest.mark.parametrize("name", ["head_fields", "head_index"])
def test_other_arguments_are_refused(kernel, name):
    with pytest.raises(TypeError):
        getattr(kernel, name)("HTTP/1.1 200\nA: 1\n")


@BOTH
def test_many_lines_need_linear_time(kernel):
    count = 50_000
    heads = (b"A: 1\n" * count, b"A: 1\n" + b" \n" * count, b"A: 1\n" + b"x\n" * count)
    assert [count, 1, 1] == [len(kernel.head_fields(b"HTTP/1.1 200\n" + lines)) for lines in heads]


lines = st.lists(
    st.one_of(
        st.binary(max_size=12),
        st.sampled_from(
            [b"A: 1\r", b"a:2", b" 3\r", b"\t4: 5 \r", b" \r", b"nothing", b": 6", b" :", b"B \t:\t7 \t\r"]
        ),
        st.tuples(st.sampled_from([b"A", b"b", b"\xc0"]), st.binary(max_size=6)).map(lambda pair: b": ".join(pair)),
    ),
    max_size=9,
)


@WITHOUT_NATIVE
@given(lines)
def test_both_read_the_same_in_any_bytes(lines):
    head = b"\n".join([b"HTTP/1.1 200 OK", *lines])
    assert twin.head_fields(head) == NATIVE.head_fields(head)
    assert twin.head_index(head) == NATIVE.head_index(head)
