"""The contract of the summary of columns of values, for the native build and its plain twin."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.kinds import NATIVE, WITHOUT_NATIVE, both
from outrider.kernels import values

BOTH = both(values)
NONE = type(None)


class Text(str):
    __slots__ = ()


class Octets(bytes):
    pass


@BOTH
@pytest.mark.parametrize(
    ("column", "kinds", "longest"),
    [
        ([], set(), 0),
        ([None, None], {NONE}, 0),
        ([b"", b"abc", b"\xff\xff"], {bytes}, 3),
        (("a", None, "abcd", ""), {str, NONE}, 4),
        (["a", b"abc"], {str, bytes}, 3),
        (["abc", "é"], {str}, -1),
        (["abc", "\ud800"], {str}, -1),
        ([b"abc", 1, True], {bytes, int, bool}, -1),
        ([1, b"abc", 2], {int, bytes}, -1),
        ([Text("a"), "abc"], {Text, str}, -1),
        ([Octets(b"a"), None], {Octets, NONE}, -1),
        ([(), [], {}, 0.5], {tuple, list, dict, float}, -1),
    ],
)
def test_types_and_the_longest_are_returned(kernel, column, kinds, longest):
    assert [(kinds, longest), ({NONE}, 0)] == kernel.kinds_of([column, (None,)])
    assert isinstance(kernel.kinds_of((column,))[0][0], frozenset)


@BOTH
@pytest.mark.parametrize("column", ["abc", b"abc", {1: 2}, iter([]), 5])
def test_a_column_is_a_list_or_tuple(kernel, column):
    with pytest.raises(TypeError, match=f"a column is a list or tuple, not {type(column).__name__}"):
        kernel.kinds_of([[], column])
    assert [] == kernel.kinds_of([])


value = st.one_of(st.none(), st.binary(max_size=5), st.text(max_size=5), st.integers(), st.booleans())


@WITHOUT_NATIVE
@given(st.lists(st.lists(value) | st.lists(st.none() | st.text(st.characters(max_codepoint=130))), max_size=5))
def test_twin_and_kernel_agree_on_any_columns(columns):
    assert values.kinds_of(columns) == NATIVE.kinds_of(columns)
