"""The contract of the runs of same bodies, for the native build and its plain twin."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.kinds import WITHOUT_NATIVE, both, native_of, rows, u8, u64
from outrider.kernels.same_bodies import SameBodies as Twin

NATIVE = native_of(Twin)
BOTH = both(Twin)
HOST, OTHER = 7, 2**64 - 1


def taken(kernel, *pages, most=9, enough=2):
    """The places of signs. pages: (host, body, token, copy, path)."""
    hosts, bodies, tokens, copies, paths = zip(*pages, strict=True)
    return rows(kernel(most, enough).take(u64(*hosts), u64(*bodies), u64(*tokens), u8(*copies), u64(*paths)))


@BOTH
def test_copies_in_a_row_are_a_sign_where_the_host_sent_another_body_before(kernel):
    pages = [(HOST, 1, 1, 0, 0), (HOST, 2, 2, 1, 0), (HOST, 2, 3, 1, 0), (HOST, 2, 4, 1, 0), (HOST, 2, 5, 1, 0)]
    assert [3, 4] == taken(kernel, *pages)
    assert [] == taken(kernel, *pages[1:])


@BOTH
def test_pages_that_are_not_copies_and_repeated_reports_do_not_count(kernel):
    begun = [(HOST, 1, 1, 0, 0), (HOST, 2, 2, 0, 0), (HOST, 2, 3, 1, 0)]
    assert [] == taken(kernel, *begun, (HOST, 2, 3, 1, 0), (HOST, 2, 4, 0, 0))
    assert [4] == taken(kernel, *begun, (HOST, 2, 4, 0, 0), (HOST, 2, 5, 1, 0))


@BOTH
def test_a_path_counts_once_it_had_several_bodies(kernel):
    begun, other = [(HOST, 1, 1, 0, 0), (HOST, 2, 2, 0, 0)], (OTHER, 9, 8, 0, 5)
    asked = [(HOST, 2, token, 1, 5) for token in range(3, 6)]
    assert [] == taken(kernel, *begun, *asked)
    assert [4, 5] == taken(kernel, other, *begun, *asked)


@BOTH
def test_the_newest_are_remembered_and_the_oldest_begin_anew(kernel):
    others = [(host, 1, 1, 0, 0) for host in range(100, 106)]
    run = [(HOST, 2, token, 1, 0) for token in range(2, 5)]
    for between, expected in [(2, [5]), (6, [])]:
        assert expected == taken(kernel, (HOST, 1, 1, 0, 0), *others[:between], *run, most=3)


@BOTH
def test_a_refused_call_counts_nothing(kernel):
    bodies = kernel(9, 1)
    with pytest.raises(ValueError, match="2 hosts and 1 copies"):
        bodies.take(u64(1, 2), u64(1, 2), u64(1, 2), u8(1), u64(0, 0))
    with pytest.raises(BufferError):
        bodies.take(u64(1), u64(1), u64(1), u64(1), u64(0))
    with pytest.raises(ValueError, match="most is a u64, not -1"):
        kernel(-1, 1)


few = st.integers(0, 3)
pages_drawn = st.tuples(few, few, st.integers(0, 9), st.integers(0, 1), few)


@WITHOUT_NATIVE
@given(calls=st.lists(st.lists(pages_drawn, min_size=1, max_size=12), max_size=8), most=few, enough=few)
def test_twin_and_kernel_agree_on_every_history(calls, most, enough):
    twin, native = Twin(most, enough), NATIVE(most, enough)
    for pages in calls:
        hosts, bodies, tokens, copies, paths = zip(*pages, strict=True)
        columns = (u64(*hosts), u64(*bodies), u64(*tokens), u8(*copies), u64(*paths))
        assert rows(twin.take(*columns)) == rows(native.take(*columns))
