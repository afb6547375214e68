"""The contract of the timetable of waiting hosts, for the native build and its plain twin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.kinds import MANY, WITHOUT_NATIVE, both, i64, instants, longest, native_of, rows, too_long, u32
from outrider.kernels.timetable import Timetable as Twin

NATIVE = native_of(Twin)
BOTH = both(Twin)
FAR = 2**62


@BOTH
def test_a_host_is_due_from_its_very_microsecond_on(kernel):
    timetable = kernel()
    timetable.rest(u32(7), i64(1_000_001))
    assert ([], [7]) == (rows(timetable.due(1_000_000, 9)), rows(timetable.due(1_000_001, 9)))


@BOTH
def test_a_host_is_due_once_and_then_no_longer_booked(kernel):
    timetable = kernel()
    timetable.rest(u32(7), i64(5))
    timetable.due(5, 9)
    assert ([], [-1], 0) == (rows(timetable.due(FAR, 9)), instants(timetable.until(u32(7))), len(timetable))


@BOTH
def test_hosts_are_due_in_the_order_of_instant_and_row(kernel):
    timetable = kernel()
    timetable.rest(u32(5, 1, 9, 2), i64(30, 20, 10, 20))
    assert [9, 1, 2, 5] == rows(timetable.due(30, 9))


@BOTH
def test_the_last_booking_counts_be_it_earlier_or_later(kernel):
    timetable = kernel()
    timetable.rest(u32(1, 2, 3, 3), i64(50, 10, 5, 60))
    timetable.rest(u32(1, 2), i64(10, 50))
    assert [[1], [2], [3]] == [rows(timetable.due(now, 9)) for now in (49, 59, 60)]


@BOTH
def test_hosts_beyond_the_maximum_wait_for_the_next_call(kernel):
    timetable = kernel()
    timetable.rest(u32(1, 2, 3), i64(3, 1, 2))
    assert ([2, 3], [1]) == (rows(timetable.due(9, 2)), rows(timetable.due(9, 2)))


@BOTH
def test_a_cancelled_host_is_not_due(kernel):
    timetable = kernel()
    timetable.rest(u32(1, 2), i64(3, 4))
    timetable.cancel(u32(1, 77))
    assert (4, [2]) == (timetable.next(), rows(timetable.due(9, 9)))


@BOTH
def test_next_is_the_earliest_booking_after_changes_too(kernel):
    timetable = kernel()
    said = [timetable.next()]
    for until in (FAR, 10, 0, 2**63 - 1):
        timetable.rest(u32(1), i64(until))
        said.append(timetable.next())
    assert [-1, FAR, 10, 0, 2**63 - 1] == said


@BOTH
def test_years_may_pass_between_two_calls(kernel):
    timetable = kernel()
    timetable.rest(u32(1, 2, 3), i64(0, 10**9, FAR))
    assert ([1, 2], [3]) == (rows(timetable.due(FAR - 1, 9)), rows(timetable.due(FAR, 9)))


@BOTH
def test_rows_may_be_any_except_the_reserved_one(kernel):
    timetable = kernel()
    timetable.rest(u32(2**24 + 3, 0, 2**32 - 2), i64(1, 2, 3))
    assert [2**24 + 3, 0, 2**32 - 2] == rows(timetable.due(9, 9))
    with pytest.raises(ValueError, match="4294967295"):
        timetable.rest(u32(2**32 - 1), i64(1))


@BOTH
def test_raw_bytes_are_columns_too(kernel):
    timetable = kernel()
    timetable.rest(u32(1, 2).tobytes(), bytearray(i64(4, 3).tobytes()))
    assert ([4, 3], [2, 1]) == (instants(timetable.until(u32(1, 2).tobytes())), rows(timetable.due(9, 9)))


@BOTH
def test_a_refused_call_books_no_host(kernel):
    timetable = kernel()
    for hosts, until, message in [
        (u32(1, 2), i64(3), "2 hosts and 1 until"),
        (u32(1, 2), i64(3, -4), "until: -4 lies before 1970"),
        (b"12345", i64(3), "hosts: 5 bytes"),
    ]:
        with pytest.raises(ValueError, match=message):
            timetable.rest(hosts, until)
    with pytest.raises(BufferError):
        timetable.rest(i64(1), i64(3))
    assert 0 == len(timetable)


@BOTH
@pytest.mark.parametrize(("now", "most", "message"), [(2**63, 1, "now is a i64"), (1, -1, "most is a u64, not -1")])
def test_numbers_beyond_their_type_are_refused(kernel, now, most, message):
    with pytest.raises(ValueError, match=message):
        kernel().due(now, most)


hosts_drawn = st.one_of(st.integers(0, 12), st.sampled_from([2**14, 2**24 + 1, 2**32 - 2]))
instants_drawn = st.one_of(st.integers(0, 30), st.sampled_from([128_000, 2**40, FAR, 2**63 - 1]))
acts = st.one_of(
    st.tuples(st.just("rest"), st.lists(st.tuples(hosts_drawn, instants_drawn), max_size=8)),
    st.tuples(st.just("cancel"), st.lists(hosts_drawn, max_size=4)),
    st.tuples(st.just("due"), st.one_of(instants_drawn, st.just(-1)), st.integers(0, 6)),
)


@WITHOUT_NATIVE
@given(history=st.lists(acts, max_size=30))
def test_twin_and_kernel_agree_on_every_history(history):
    twin, native = Twin(), NATIVE()
    for act, *given_ in history:
        if act == "rest":
            hosts, until = u32(*(h for h, _ in given_[0])), i64(*(t for _, t in given_[0]))
            answers = [timetable.rest(hosts, until) for timetable in (twin, native)]
        elif act == "cancel":
            answers = [timetable.cancel(u32(*given_[0])) for timetable in (twin, native)]
        else:
            answers = [timetable.due(*given_) for timetable in (twin, native)]
        assert answers[0] == answers[1]
        assert (twin.next(), len(twin)) == (native.next(), len(native))
        all_hosts = u32(*range(13), 2**14, 2**24 + 1, 2**32 - 2)
        assert twin.until(all_hosts) == native.until(all_hosts)


@given(history=st.lists(acts, max_size=30))
def test_the_twin_is_a_sorted_dict(history):
    timetable, booked = Twin(), {}
    for act, *given_ in history:
        if act == "rest":
            timetable.rest(u32(*(h for h, _ in given_[0])), i64(*(t for _, t in given_[0])))
            booked.update(given_[0])
        elif act == "cancel":
            timetable.cancel(u32(*given_[0]))
            for host in given_[0]:
                booked.pop(host, None)
        else:
            now, most = given_
            due = sorted((until, host) for host, until in booked.items() if until <= now)[:most]
            assert [host for _, host in due] == rows(timetable.due(now, most))
            for _, host in due:
                del booked[host]
        assert min(booked.values(), default=-1) == timetable.next()


def a_million_booked():
    """Booking them, all blocked until one instant, a year passed in one call, all hosts moved: the maximum, not p99."""
    timetable = NATIVE()
    random = np.random.default_rng(1)
    order = random.permutation(MANY).astype(np.uint32).reshape(-1, 1000)
    spread = random.integers(0, 3600 * 10**6, order.shape)
    year = 365 * 86400 * 10**6
    return {
        "rest": longest((lambda r=r: timetable.rest(order[r], spread[r])) for r in range(len(order))),
        "next": longest(timetable.next for _ in range(100)),
        "due": longest((lambda: timetable.due(year, 1000)) for _ in range(300)),
        "same": longest((lambda r=r: timetable.rest(order[r], np.full(1000, 2 * year))) for r in range(300)),
        "cancel": longest((lambda r=r: timetable.cancel(order[r])) for r in range(300, 400)),
    }


@WITHOUT_NATIVE
def test_no_call_of_a_thousand_delays_a_million_booked_hosts():
    assert {} == too_long(a_million_booked)
