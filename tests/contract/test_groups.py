"""What the groups of hosts promise, asked of the native build and of their plain twin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.kinds import (
    MANY,
    NONE,
    WITHOUT_NATIVE,
    both,
    i64,
    instants,
    longest,
    native_of,
    rows,
    too_long,
    u8,
    u32,
)
from outrider.kernels.groups import Groups as Twin

NATIVE = native_of(Twin)
BOTH = both(Twin)


def made(kernel, capacities, members):
    """Groups of these capacities, and hosts that join the groups named."""
    groups = kernel()
    for group, capacity in capacities.items():
        groups.define(group, capacity)
    for host, joined in members.items():
        groups.join(np.full(len(joined), host, np.uint32), u32(*joined))
    return groups


def admit(groups, *hosts, now=0, klass=5):
    return list(groups.admit(u32(*hosts), np.full(len(hosts), klass, np.uint8), now))


@BOTH
def test_a_host_without_groups_may_go(kernel):
    assert [1, 1] == admit(kernel(), 7, 7)


@BOTH
def test_a_group_gives_as_many_turns_as_it_has(kernel):
    groups = made(kernel, {0: 2}, {1: [0], 2: [0], 3: [0]})
    assert ([1, 1, 0], [2], 1) == (admit(groups, 1, 2, 3), rows(groups.in_flight(u32(0))), len(groups))


@BOTH
def test_a_turn_of_every_group_is_taken_or_none(kernel):
    groups = made(kernel, {0: 2, 1: 1}, {1: [0, 1], 2: [0, 1]})
    assert [1, 0] == admit(groups, 1, 2)
    assert ([1, 1], [NONE, 1]) == (rows(groups.in_flight(u32(0, 1))), rows(groups.waits_at(u32(1, 2))))


@BOTH
def test_a_group_rests_until_its_clock(kernel):
    groups = made(kernel, {0: 1}, {1: [0]})
    groups.set_clock(u32(0), i64(100))
    assert ([0], [1]) == (admit(groups, 1, now=99), admit(groups, 1, now=100))


@BOTH
def test_a_release_moves_clocks_forward_only(kernel):
    groups = made(kernel, {0: 2, 1: 1}, {1: [0, 1], 2: [0]})
    admit(groups, 1, 2)
    groups.release(u32(1, 2), i64(50, 40))
    assert ([50, 50], [0, 0]) == (instants(groups.clock(u32(0, 1))), rows(groups.in_flight(u32(0, 1))))


@BOTH
def test_a_host_that_holds_no_turn_gives_none_back(kernel):
    groups = made(kernel, {0: 1}, {1: [0], 2: [0]})
    admit(groups, 1)
    groups.release(u32(2), i64(5))
    assert ([1], [5]) == (rows(groups.in_flight(u32(0))), instants(groups.clock(u32(0))))


@BOTH
def test_a_host_may_hold_several_turns(kernel):
    groups = made(kernel, {0: 2}, {1: [0]})
    said = [admit(groups, 1, 1, 1), rows(groups.in_flight(u32(0)))]
    groups.release(u32(1), i64(0))
    assert [[1, 1, 0], [2], [1]] == [*said, rows(groups.in_flight(u32(0)))]


@BOTH
def test_one_free_turn_wakes_one_host_the_best_class_first_then_who_waits_longest(kernel):
    groups = made(kernel, {0: 1}, {host: [0] for host in range(9)})
    admit(groups, 0)
    groups.admit(u32(1, 2, 3, 4), u8(3, 7, 7, 15), 0)
    woken = []
    for host in (0, 4, 2, 3):
        groups.release(u32(host), i64(0))
        woken += [rows(groups.wake(0, 9))]
        admit(groups, *woken[-1])
    assert ([[4], [2], [3], [1]], 0) == (woken, len(groups))


@BOTH
def test_nobody_is_woken_before_the_clock_and_next_tells_it(kernel):
    groups = made(kernel, {0: 1, 1: 1}, {1: [0], 2: [0], 3: [1]})
    admit(groups, 1, 2)
    said = [groups.next()]
    groups.release(u32(1), i64(50))
    groups.set_clock(u32(1), i64(40))
    admit(groups, 3, now=30)
    said += [groups.next(), rows(groups.wake(39, 9)), rows(groups.wake(49, 9)), groups.next(), rows(groups.wake(50, 9))]
    assert [-1, 40, [], [3], 50, [2]] == said
    assert -1 == groups.next()


@BOTH
def test_groups_are_woken_in_the_order_of_their_clocks_at_most_so_many(kernel):
    groups = made(kernel, {0: 2, 1: 2}, {1: [0], 2: [0], 3: [1], 4: [1]})
    groups.set_clock(u32(0, 1), i64(20, 10))
    admit(groups, 1, 2, 3, 4)
    assert [[3, 4, 1], [2], []] == [rows(groups.wake(20, 3)) for _ in range(3)]


@BOTH
def test_a_woken_host_that_is_refused_again_keeps_its_time(kernel):
    groups = made(kernel, {0: 1}, {host: [0] for host in range(4)})
    admit(groups, 0, 1, 2)
    groups.release(u32(0), i64(0))
    assert [1] == rows(groups.wake(0, 1))
    assert [1, 0] == admit(groups, 3, 1)  # another was faster
    groups.release(u32(3), i64(0))
    assert [1] == rows(groups.wake(0, 1))


@BOTH
def test_who_asks_again_keeps_its_time_and_has_the_new_class(kernel):
    groups = made(kernel, {0: 1}, {host: [0] for host in range(4)})
    admit(groups, 0, 1, 2, 3)
    admit(groups, 1, klass=5)
    admit(groups, 3, klass=6)
    groups.release(u32(0), i64(0))
    assert ([3], [1], [2]) == tuple(rows(groups.wake(0, 1)) for _ in range(3))


@BOTH
def test_forgotten_hosts_wait_no_more(kernel):
    groups = made(kernel, {0: 1}, {1: [0], 2: [0]})
    admit(groups, 1, 2)
    groups.forget(u32(2, 77))
    groups.release(u32(1), i64(5))
    assert (0, -1, []) == (len(groups), groups.next(), rows(groups.wake(5, 9)))


@BOTH
def test_a_host_that_leaves_gives_its_turns_back_and_may_go(kernel):
    groups = made(kernel, {0: 1}, {1: [0], 2: [0], 3: [0]})
    admit(groups, 1, 2, 3)
    groups.leave(u32(1, 2, 77))
    assert ([0], 1, [1], [3]) == (
        rows(groups.in_flight(u32(0))),
        len(groups),
        admit(groups, 2),
        rows(groups.wake(0, 9)),
    )


@BOTH
def test_turns_of_open_leases_are_taken_without_asking(kernel):
    groups = made(kernel, {0: 1}, {1: [0], 2: [0], 3: [0]})
    groups.take(u32(1, 2, 77))
    said = [rows(groups.in_flight(u32(0))), admit(groups, 3)]
    groups.release(u32(1), i64(0))
    assert [[2], [0], []] == [*said, rows(groups.wake(0, 9))]


@BOTH
def test_a_larger_capacity_lets_more_go(kernel):
    groups = made(kernel, {0: 1}, {1: [0], 2: [0], 3: [0]})
    admit(groups, 1, 2, 3)
    groups.define(0, 2)
    assert [2] == rows(groups.wake(0, 9))


@BOTH
def test_a_host_belongs_to_four_groups_at_most(kernel):
    groups = made(kernel, dict.fromkeys(range(6), 1), {1: [0, 1, 2]})
    with pytest.raises(ValueError, match="host 1 belongs to 4 groups already, 4 is one more"):
        groups.join(u32(2, 1, 1, 1), u32(5, 0, 3, 4))
    admit(groups, 1, 2)
    assert [1, 1, 1, 0, 0, 0] == rows(groups.in_flight(u32(*range(6))))


@BOTH
def test_what_does_not_fit_is_refused(kernel):
    groups = made(kernel, {0: 1}, {1: [0]})
    for call, message in [
        (lambda: groups.define(0, 0), "group 0 needs a capacity above 0"),
        (lambda: groups.define(2**32 - 1, 1), "group: 4294967295 is no row"),
        (lambda: groups.define(-1, 1), "group is a u32, not -1"),
        (lambda: groups.join(u32(1), u32(9)), "group 9 is not defined"),
        (lambda: groups.clock(u32(9)), "group 9 is not defined"),
        (lambda: groups.in_flight(u32(9)), "group 9 is not defined"),
        (lambda: groups.set_clock(u32(9), i64(1)), "group 9 is not defined"),
        (lambda: groups.set_clock(u32(0), i64(-1)), "clocks: -1 lies before 1970"),
        (lambda: groups.admit(u32(1), u8(16), 0), "classes: 16 is more than 15"),
        (lambda: groups.admit(u32(1), u8(), 0), "1 hosts and 0 classes"),
        (lambda: groups.release(u32(1), i64()), "1 hosts and 0 until"),
        (lambda: groups.wake(0, -1), "most is a u64, not -1"),
        (lambda: groups.forget(u32(2**32 - 1)), "hosts: at 0 stands 4294967295"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()


hosts_drawn = st.integers(0, 9)
groups_drawn = st.integers(0, 5)
instants_drawn = st.integers(0, 12)
many_hosts = st.lists(hosts_drawn, max_size=6)
acts = st.one_of(
    st.tuples(st.just("define"), groups_drawn, st.integers(1, 3)),
    st.tuples(st.just("join"), st.lists(st.tuples(hosts_drawn, groups_drawn), max_size=5)),
    st.tuples(st.just("admit"), st.lists(st.tuples(hosts_drawn, st.integers(0, 15)), max_size=8), instants_drawn),
    st.tuples(st.just("admit"), st.lists(st.tuples(hosts_drawn, st.integers(0, 15)), max_size=8), instants_drawn),
    st.tuples(st.just("release"), st.lists(st.tuples(hosts_drawn, instants_drawn), max_size=6)),
    st.tuples(st.just("wake"), instants_drawn, st.integers(0, 5)),
    st.tuples(st.just("set_clock"), st.lists(st.tuples(groups_drawn, instants_drawn), max_size=3)),
    st.tuples(st.sampled_from(["forget", "leave", "take"]), many_hosts),
)


def answer_of(groups, act, given_):
    try:
        if act in ("define", "wake"):
            return getattr(groups, act)(*given_)
        if act in ("forget", "leave", "take"):
            return getattr(groups, act)(u32(*given_[0]))
        first, second = ([pair[i] for pair in given_[0]] for i in range(2))
        dtype = {"join": np.uint32, "admit": np.uint8}.get(act, np.int64)
        return getattr(groups, act)(u32(*first), np.array(second, dtype), *given_[1:])
    except ValueError as error:
        return str(error)


@WITHOUT_NATIVE
@given(history=st.lists(acts, max_size=50))
def test_twin_and_kernel_agree_on_every_history(history):
    twin, native = Twin(), NATIVE()
    defined = set()
    for group in range(3):
        for groups in (twin, native):
            groups.define(group, 1 + group % 2)
            groups.join(u32(*range(group, 10)), np.full(10 - group, group, np.uint32))
        defined.add(group)
    for act, *given_ in history:
        assert answer_of(twin, act, given_) == answer_of(native, act, given_)
        if act == "define":
            defined.add(given_[0])
        for said in (
            len,
            lambda groups: groups.next(),
            lambda groups: groups.waits_at(u32(*range(11))),
            lambda groups: groups.clock(u32(*defined)),
            lambda groups: groups.in_flight(u32(*defined)),
        ):
            assert said(twin) == said(native)


def a_million_who_wait():
    """All at one group of a thousand turns, and each at one of a hundred thousand others."""
    groups = NATIVE()
    groups.define(0, 1000)
    for group in range(1, 100_001):
        groups.define(group, 1)
    hosts = np.arange(MANY, dtype=np.uint32).reshape(-1, 1000)
    classes = (hosts % 16).astype(np.uint8)
    until = np.full(1000, 10**6)

    def join(r):
        groups.join(hosts[r], np.zeros(1000, np.uint32))
        groups.join(hosts[r], 1 + hosts[r] % 100_000)

    return {
        "join": longest((lambda r=r: join(r)) for r in range(len(hosts))),
        "admit": longest((lambda r=r: groups.admit(hosts[r], classes[r], 0)) for r in range(len(hosts))),
        "release": longest((lambda r=r: groups.release(hosts[r], until)) for r in range(10)),
        "wake": longest((lambda: groups.wake(10**6, 1000)) for _ in range(100)),
        "next": longest(groups.next for _ in range(100)),
        "admit again": longest((lambda r=r: groups.admit(hosts[r], classes[r], 10**6)) for r in range(100)),
        "leave": longest((lambda r=r: groups.leave(hosts[r])) for r in range(100)),
    }


@WITHOUT_NATIVE
def test_no_call_of_a_thousand_holds_up_a_million_who_wait():
    assert {} == too_long(a_million_who_wait)
