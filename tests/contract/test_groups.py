"""The contract of the groups of hosts, for the native build and its plain twin."""

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
from outrider.kernels.host_cells import HOST

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


def asked(groups, *hosts, now=0, klass=5, crawl=0):
    """Returns the hosts that began, and the hosts that lost their turns."""
    classes, crawls = np.full(len(hosts), klass, np.uint8), np.full(len(hosts), crawl, np.uint32)
    went, displaced = groups.admit(u32(*hosts), classes, crawls, now)
    return list(went), rows(displaced)


def admit(groups, *hosts, **how):
    """Returns the hosts that began; no host lost a turn."""
    went, displaced = asked(groups, *hosts, **how)
    assert [] == displaced
    return went


def begin(groups, *hosts, **how):
    """Returns the hosts that got their turns and began."""
    went = admit(groups, *hosts, **how)
    groups.take(u32(*[host for host, gone in zip(hosts, went, strict=True) if gone]))
    return went


@BOTH
def test_a_host_without_groups_may_begin(kernel):
    assert [1, 1] == admit(kernel(), 7, 7)


@BOTH
def test_a_group_grants_as_many_turns_as_it_has(kernel):
    groups = made(kernel, {0: 2}, {1: [0], 2: [0], 3: [0]})
    assert ([1, 1, 0], [2], 1) == (admit(groups, 1, 2, 3), rows(groups.in_flight(u32(0))), len(groups))


@BOTH
def test_a_host_gets_a_turn_of_every_group_or_of_no_group(kernel):
    groups = made(kernel, {0: 2, 1: 1}, {1: [0, 1], 2: [0, 1]})
    assert [1, 0] == admit(groups, 1, 2)
    assert ([1, 1], [NONE, 1]) == (rows(groups.in_flight(u32(0, 1))), rows(groups.waits_at(u32(1, 2))))


@BOTH
def test_a_group_waits_until_its_clock(kernel):
    groups = made(kernel, {0: 1}, {1: [0]})
    groups.set_clock(u32(0), i64(100))
    assert ([0], [1]) == (admit(groups, 1, now=99), admit(groups, 1, now=100))


@BOTH
def test_waiting_hosts_are_counted_by_group_crawl_and_class(kernel):
    groups = made(kernel, {0: 1, 1: 1}, {host: [0] for host in range(6)} | {6: [1]})
    begin(groups, 0)
    groups.admit(u32(1, 2, 3, 4, 4, 5), u8(3, 3, 7, 15, 15, 0), u32(1, 1, 1, 1, 2, 2), 0)
    assert [5, 0] == rows(groups.waiting(u32(0, 1)))
    asked = u32(0, 0, 0, 0, 0, 1), u32(1, 1, 1, 2, 3, 1), u8(3, 4, 15, 0, 0, 0)
    assert [4, 2, 1, 2, 0, 0] == rows(groups.waiting_for(*asked, 9))
    assert [3, 2, 1, 2, 0, 0] == rows(groups.waiting_for(*asked, 3))
    with pytest.raises(ValueError, match="not defined"):
        groups.waiting(u32(2))
    with pytest.raises(ValueError, match="15"):
        groups.waiting_for(u32(0), u32(0), u8(16), 1)
    with pytest.raises(ValueError, match="make no rows"):
        groups.waiting_for(u32(0), u32(0, 1), u8(0), 1)


@BOTH
def test_a_release_moves_clocks_forward_only(kernel):
    groups = made(kernel, {0: 2, 1: 1}, {1: [0, 1], 2: [0]})
    begin(groups, 1, 2)
    groups.release(u32(1, 2), i64(50, 40))
    assert ([50, 50], [0, 0]) == (instants(groups.clock(u32(0, 1))), rows(groups.in_flight(u32(0, 1))))


@BOTH
def test_a_host_without_a_turn_returns_no_turn(kernel):
    groups = made(kernel, {0: 1}, {1: [0], 2: [0]})
    admit(groups, 1)
    groups.release(u32(2), i64(5))
    assert ([1], [5]) == (rows(groups.in_flight(u32(0))), instants(groups.clock(u32(0))))


@BOTH
def test_a_host_may_have_several_turns(kernel):
    groups = made(kernel, {0: 2}, {1: [0]})
    said = [begin(groups, 1), begin(groups, 1), begin(groups, 1), rows(groups.in_flight(u32(0)))]
    groups.release(u32(1), i64(0))
    assert [[1], [1], [0], [2], [1]] == [*said, rows(groups.in_flight(u32(0)))]


@BOTH
def test_one_free_turn_wakes_one_host_the_best_class_first_then_the_longest_wait(kernel):
    groups = made(kernel, {0: 1}, {host: [0] for host in range(9)})
    begin(groups, 0)
    groups.admit(u32(1, 2, 3, 4), u8(3, 7, 7, 15), u32(0, 0, 0, 0), 0)
    woken = []
    for host in (0, 4, 2, 3):
        groups.release(u32(host), i64(0))
        woken += [rows(groups.wake(0, 9))]
        begin(groups, *woken[-1])
    assert ([[4], [2], [3], [1]], 0) == (woken, len(groups))


@BOTH
def test_no_host_is_woken_before_the_clock_and_next_returns_it(kernel):
    groups = made(kernel, {0: 1, 1: 1}, {1: [0], 2: [0], 3: [1]})
    begin(groups, 1, 2)
    said = [groups.next()]
    groups.release(u32(1), i64(50))
    groups.set_clock(u32(1), i64(40))
    admit(groups, 3, now=30)
    said += [groups.next(), rows(groups.wake(39, 9)), rows(groups.wake(49, 9)), groups.next(), rows(groups.wake(50, 9))]
    assert [-1, 40, [], [3], 50, [2]] == said
    assert -1 == groups.next()


@BOTH
def test_groups_are_woken_in_the_order_of_their_clocks_up_to_the_limit(kernel):
    groups = made(kernel, {0: 2, 1: 2}, {1: [0], 2: [0], 3: [1], 4: [1]})
    groups.set_clock(u32(0, 1), i64(20, 10))
    admit(groups, 1, 2, 3, 4)
    assert [[3, 4, 1], [2], []] == [rows(groups.wake(20, 3)) for _ in range(3)]


@BOTH
def test_a_woken_host_that_is_refused_again_keeps_its_time(kernel):
    groups = made(kernel, {0: 1}, {host: [0] for host in range(4)})
    begin(groups, 0, 1, 2)
    groups.release(u32(0), i64(0))
    assert [1] == rows(groups.wake(0, 1))
    assert [1, 0] == begin(groups, 3, 1)  # another was faster
    groups.release(u32(3), i64(0))
    assert [1] == rows(groups.wake(0, 1))


@BOTH
def test_a_host_that_requests_again_keeps_its_time_and_gets_the_new_class(kernel):
    groups = made(kernel, {0: 1}, {host: [0] for host in range(4)})
    begin(groups, 0, 1, 2, 3)
    admit(groups, 1, klass=5)
    admit(groups, 3, klass=6)
    groups.release(u32(0), i64(0))
    assert ([3], [1], [2]) == tuple(rows(groups.wake(0, 1)) for _ in range(3))


@BOTH
def test_forgotten_hosts_wait_no_more(kernel):
    groups = made(kernel, {0: 1}, {1: [0], 2: [0]})
    begin(groups, 1, 2)
    groups.forget(u32(2, 77))
    groups.release(u32(1), i64(5))
    assert (0, -1, []) == (len(groups), groups.next(), rows(groups.wake(5, 9)))


@BOTH
def test_hosts_that_step_aside_return_to_their_place(kernel):
    groups = made(kernel, {0: 1}, {1: [0], 2: [0], 3: [0]})
    admit(groups, 1, 2, 3)
    groups.step_aside(u32(1, 2, 77))
    assert ([0], [NONE]) == (rows(groups.in_flight(u32(0))), rows(groups.waits_at(u32(2))))
    assert [1, 0] == begin(groups, 3, 2)
    assert [0] == admit(groups, 1)
    groups.release(u32(3), i64(0))
    assert ([1], [2]) == tuple(rows(groups.wake(0, 1)) for _ in range(2))


@BOTH
def test_a_host_that_leaves_returns_its_turns_and_may_begin(kernel):
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
def test_turns_of_open_leases_are_counted_without_a_request(kernel):
    groups = made(kernel, {0: 1}, {1: [0], 2: [0], 3: [0]})
    groups.take(u32(1, 2, 77))
    said = [rows(groups.in_flight(u32(0))), admit(groups, 3)]
    groups.release(u32(1), i64(0))
    assert [[2], [0], []] == [*said, rows(groups.wake(0, 9))]


@BOTH
def test_turns_and_clocks_follow_the_cells_of_hosts(kernel):
    groups = made(kernel, {0: 3}, {1: [0], 2: [0]})
    groups.define(1, 1, 5)
    groups.join(u32(2), u32(1))
    admit(groups, 1)
    cells = np.zeros(3, HOST)
    cells["in_flight"], cells["rest_until"], cells["ended"] = [9, 1, 2], [99, 40, 30], [99, 0, 20]
    groups.follow(u32(1, 2, 2), cells)
    assert ([3, 2], [40, 25]) == (rows(groups.in_flight(u32(0, 1))), instants(groups.clock(u32(0, 1))))
    cells["in_flight"] = 0
    groups.follow(u32(2, 1), cells)
    assert ([0, 0], [40, 25]) == (rows(groups.in_flight(u32(0, 1))), instants(groups.clock(u32(0, 1))))


@BOTH
def test_no_host_follows_cells_that_lack_a_row(kernel):
    groups = made(kernel, {0: 3}, {1: [0]})
    cells = np.ones(2, HOST)
    with pytest.raises(IndexError, match="row 2 lies outside the column cells"):
        groups.follow(u32(1, 2), cells)
    assert [0] == rows(groups.in_flight(u32(0)))


@BOTH
def test_a_closed_group_refuses_all_hosts_and_wakes_no_host(kernel):
    groups = made(kernel, {0: 1}, {1: [0], 2: [0]})
    assert [1, 0] == admit(groups, 1, 2)
    groups.close(u32(0))
    groups.forget(u32(1))
    assert ([], -1, [0]) == (rows(groups.wake(9, 9)), groups.next(), admit(groups, 2))
    groups.open(u32(0))
    assert ([2], [1]) == (rows(groups.wake(9, 9)), admit(groups, 2))


@BOTH
def test_a_host_with_a_turn_may_begin_once_its_groups_have_waited(kernel):
    groups = made(kernel, {0: 1}, {1: [0], 2: [0]})
    admit(groups, 1, 2)
    groups.set_clock(u32(0), i64(5))
    assert [b"\0\0\1", b"\1\0\1"] == [groups.may_go(u32(1, 2, 3), now) for now in (4, 5)]
    assert (b"\1\0\0", [1, 0, 0]) == (groups.stands(u32(1, 2, 3)), rows(groups.turns(u32(1, 2, 3))))


@BOTH
def test_a_larger_capacity_lets_more_hosts_begin(kernel):
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
def test_values_that_do_not_fit_are_refused(kernel):
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
        (lambda: groups.admit(u32(1), u8(16), u32(0), 0), "classes: 16 is more than 15"),
        (lambda: groups.admit(u32(1), u8(), u32(0), 0), "1 hosts and 0 classes"),
        (lambda: groups.admit(u32(1), u8(1), u32(), 0), "1 hosts and 0 crawls"),
        (lambda: groups.claimants(-1, 0, 0, 1), "crawl is a u32, not -1"),
        (lambda: groups.claim(u32(2**32 - 1), 0, 0), "hosts: at 0 stands 4294967295"),
        (lambda: groups.release(u32(1), i64()), "1 hosts and 0 until"),
        (lambda: groups.wake(0, -1), "most is a u64, not -1"),
        (lambda: groups.forget(u32(2**32 - 1)), "hosts: at 0 stands 4294967295"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()


@BOTH
def test_a_better_class_gets_the_turn_of_a_ready_host_which_then_waits_in_front(kernel):
    groups = made(kernel, {0: 1}, {host: [0] for host in range(5)})
    admit(groups, 1, 2, 3)  # 1 stands, 2 and 3 wait
    assert ([1], [1]) == asked(groups, 4, klass=9)
    assert ([0], []) == asked(groups, 0, klass=8)
    said = [rows(groups.waits_at(u32(0, 1, 4))), rows(groups.in_flight(u32(0)))]
    for host in (4, 0, 1, 2):
        groups.take(u32(host))
        groups.release(u32(host), i64(0))
        said += [rows(groups.wake(0, 9))]
        admit(groups, *said[-1])
    assert [[0, 0, NONE], [1], [0], [1], [2], [3]] == said


@BOTH
def test_hosts_of_equal_class_and_hosts_that_began_or_are_pinned_keep_their_turns(kernel):
    groups = made(kernel, {0: 1, 1: 1, 2: 1}, {1: [0], 2: [1], 3: [2], 4: [0], 5: [1], 6: [2]})
    admit(groups, 1, 2, 3)
    groups.take(u32(2))
    groups.hold(u32(3, 77))
    assert [0] == admit(groups, 4, klass=5)
    assert [0, 0] == admit(groups, 5, 6, klass=15)
    assert -1 == groups.next()


@BOTH
def test_turns_are_claimed_from_all_groups_or_from_no_group(kernel):
    groups = made(kernel, {0: 1, 1: 1, 2: 1}, {1: [0], 2: [1], 3: [0, 1], 4: [0, 2], 5: [2]})
    admit(groups, 1, 2)
    begin(groups, 5)
    # one of its groups is being visited: the host that stands in the other stays
    assert ([0], []) == asked(groups, 4, klass=9)
    assert ([1], [1, 2]) == asked(groups, 3, klass=9)
    assert ([2, 0, 1], [1, 1, 1]) == (rows(groups.waits_at(u32(4, 1, 2))), rows(groups.in_flight(u32(0, 1, 2))))


@BOTH
def test_a_host_that_loses_its_turn_returns_the_turns_of_its_other_groups(kernel):
    groups = made(kernel, {0: 1, 1: 1}, {1: [0, 1], 2: [1], 3: [0]})
    admit(groups, 1, 2)
    assert ([1], [1]) == asked(groups, 3, klass=9)
    assert ([2], [1]) == (rows(groups.wake(0, 9)), admit(groups, 2))


@BOTH
def test_the_lowest_class_yields_and_among_equals_the_latest_request(kernel):
    groups = made(kernel, {0: 3}, {host: [0] for host in range(8)})
    admit(groups, 1, 2, klass=3)
    admit(groups, 3, klass=4)
    assert [2, 1, 3] == [asked(groups, host, klass=9)[1][0] for host in (4, 5, 6)]
    assert ([0], []) == asked(groups, 7, klass=9)


@BOTH
def test_a_ready_host_whose_group_waits_again_waits_in_front(kernel):
    groups = made(kernel, {0: 2}, {host: [0] for host in range(5)})
    begin(groups, 0)
    admit(groups, 1, 2)
    groups.release(u32(0), i64(50))
    assert [0] == admit(groups, 1, now=10)
    assert [1, 2] == rows(groups.wake(50, 9))


@BOTH
def test_a_ready_host_that_falls_below_a_waiting_host_yields(kernel):
    groups = made(kernel, {0: 1}, {1: [0], 2: [0], 3: [0]})
    admit(groups, 1, klass=9)
    admit(groups, 2, klass=5)
    assert [1] == admit(groups, 1, klass=5)
    assert [0] == admit(groups, 1, klass=4)
    assert ([2], [1]) == (rows(groups.wake(0, 1)), admit(groups, 2))


@BOTH
def test_a_host_that_waited_for_a_clock_is_woken_where_a_lower_class_is_ready(kernel):
    groups = made(kernel, {0: 2}, {host: [0] for host in range(5)})
    begin(groups, 0)
    admit(groups, 1, klass=3)
    groups.release(u32(0), i64(50))
    admit(groups, 2, 3, 4, klass=9)
    assert ([], [2, 3]) == (rows(groups.wake(49, 9)), rows(groups.wake(50, 9)))
    assert ([1, 1, 0], [1]) == asked(groups, 2, 3, 4, now=50, klass=9)


@BOTH
def test_every_eighth_turn_is_for_the_first_request_and_no_class_claims_it(kernel):
    groups = made(kernel, {0: 1}, {host: [0] for host in range(30)})
    begin(groups, 0)
    admit(groups, 1, klass=0)
    went = []
    last = 0
    for newcomer in range(2, 30):
        admit(groups, newcomer, klass=9)
        groups.release(u32(last), i64(0))
        (last,) = rows(groups.wake(0, 9))
        admit(groups, last, klass=9 if last > 1 else 0)
        if last == 1:
            assert ([0], []) == asked(groups, 29, klass=15)
        groups.take(u32(last))
        went.append(last)
    assert (1, list(range(2, 9))) == (went[7], went[:7])


@BOTH
def test_favoured_hosts_keep_their_turns_until_they_began(kernel):
    groups = made(kernel, {0: 1}, {1: [0], 2: [0]})
    groups.favour(u32(1, 77))
    admit(groups, 1, klass=0)
    assert ([0], []) == asked(groups, 2, klass=15)
    groups.take(u32(1))
    groups.release(u32(1), i64(0))
    admit(groups, 1, klass=0)
    assert [2] == rows(groups.wake(0, 9))
    assert ([1], [1]) == asked(groups, 2, klass=15)


@BOTH
def test_crawls_alternate_among_equals(kernel):
    groups = made(kernel, {0: 1}, {host: [0] for host in range(12)})
    begin(groups, 0)
    for host in range(1, 6):
        admit(groups, host, crawl=1)
    for host in range(6, 9):
        admit(groups, host, crawl=2)
    admit(groups, 9, crawl=3)
    woken = [host for _ in range(9) if groups.release(u32(0), i64(0)) is None for host in rows(groups.wake(0, 1))]
    assert [1, 6, 9, 2, 7, 3, 8, 4, 5] == woken


@BOTH
def test_claimants_are_hosts_of_the_crawl_where_a_host_is_ready(kernel):
    groups = made(kernel, dict.fromkeys(range(5), 1), {host: [host % 5] for host in range(20)})
    admit(groups, 4, 0, 1, 2)
    groups.take(u32(1))
    admit(groups, 5, 6, 7, klass=3, crawl=1)
    admit(groups, 9, klass=2, crawl=1)
    admit(groups, 10, 11, 12, klass=4, crawl=1)
    groups.set_clock(u32(2), i64(9))
    assert ([10, 9], [], [10]) == (
        rows(groups.claimants(1, 0, 0, 9)),
        rows(groups.claimants(0, 0, 0, 9)),
        rows(groups.claimants(1, 0, 0, 1)),
    )
    went, displaced = groups.claim(u32(10, 6, 77), 0, 0)
    assert ([1, 0, 1], [0]) == (list(went), rows(displaced))
    groups.hold(u32(10))
    assert [9] == rows(groups.claimants(1, 0, 0, 9))


@BOTH
def test_a_host_of_several_crawls_claims_for_each_of_them(kernel):
    groups = made(kernel, {0: 1}, {1: [0], 2: [0]})
    admit(groups, 1)
    groups.admit(u32(2, 2), u8(3, 4), u32(7, 8), 0)
    assert [[2], [2], []] == [rows(groups.claimants(crawl, 0, 0, 9)) for crawl in (7, 8, 0)]
    groups.forget(u32(1))
    assert [[], []] == [rows(groups.claimants(crawl, 0, 0, 9)) for crawl in (7, 8)]


@BOTH
def test_a_turn_granted_by_age_is_safe_from_claims_for_a_while_and_granted_again_when_it_was_lost(kernel):
    groups = made(kernel, {0: 1}, {1: [0], 2: [0], 3: [0]})
    groups.favour(u32(1))
    admit(groups, 1, klass=0, now=100)
    admit(groups, 2, 3, klass=9, crawl=1, now=100)
    assert [] == rows(groups.claimants(1, 149, 50, 9))
    assert [0] == list(groups.claim(u32(2), 149, 50)[0])
    assert [2] == rows(groups.claimants(1, 150, 50, 9))
    went, displaced = groups.claim(u32(2), 150, 50)
    assert ([1], [1]) == (list(went), rows(displaced))
    groups.take(u32(2))
    groups.release(u32(2), i64(0))
    assert [1] == rows(groups.wake(150, 9))


hosts_drawn = st.integers(0, 9)
groups_drawn = st.integers(0, 5)
instants_drawn = st.integers(0, 12)
crawls_drawn = st.integers(0, 2)
many_hosts = st.lists(hosts_drawn, max_size=6)
asking = st.tuples(
    st.just("admit"), st.lists(st.tuples(hosts_drawn, st.integers(0, 15), crawls_drawn), max_size=8), instants_drawn
)
acts = st.one_of(
    st.tuples(st.just("define"), groups_drawn, st.integers(1, 3)),
    st.tuples(st.just("join"), st.lists(st.tuples(hosts_drawn, groups_drawn), max_size=5)),
    asking,
    asking,
    st.tuples(st.just("release"), st.lists(st.tuples(hosts_drawn, instants_drawn), max_size=6)),
    st.tuples(st.just("wake"), instants_drawn, st.integers(0, 5)),
    st.tuples(st.just("set_clock"), st.lists(st.tuples(groups_drawn, instants_drawn), max_size=3)),
    st.tuples(st.just("claim"), many_hosts, instants_drawn, st.integers(0, 4)),
    st.tuples(st.just("claimants"), crawls_drawn, instants_drawn, st.integers(0, 4), st.integers(0, 4)),
    st.tuples(st.sampled_from(["forget", "leave", "take", "take", "hold", "favour", "step_aside"]), many_hosts),
)


def answer_of(groups, act, given_):
    try:
        if act in ("define", "wake", "claimants"):
            return getattr(groups, act)(*given_)
        if act in ("forget", "leave", "take", "hold", "favour", "claim", "step_aside"):
            return getattr(groups, act)(u32(*given_[0]), *given_[1:])
        if act == "admit":
            some, classes, crawls = ([row[i] for row in given_[0]] for i in range(3))
            return groups.admit(u32(*some), u8(*classes), u32(*crawls), given_[1])
        first, second = ([pair[i] for pair in given_[0]] for i in range(2))
        return getattr(groups, act)(u32(*first), np.array(second, np.uint32 if act == "join" else np.int64))
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
            lambda groups: groups.waiting(u32(*defined)),
            lambda groups: [
                groups.waiting_for(u32(*defined), u32(*[crawl] * len(defined)), u8(*[klass] * len(defined)), 3)
                for crawl in range(3)
                for klass in (0, 5, 15)
            ],
            lambda groups: [groups.claimants(crawl, 12, 0, 99) for crawl in range(3)],
        ):
            assert said(twin) == said(native)


HOSTS, CAPACITIES = 8, (1, 2, 1, 3)
memberships = st.lists(st.sets(st.integers(0, 3), min_size=1, max_size=3), min_size=HOSTS, max_size=HOSTS)
turns_asked = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.integers(0, HOSTS - 1), st.integers(0, 15), crawls_drawn),
        st.tuples(st.just("draw"), st.integers(0, HOSTS - 1)),
        st.tuples(st.just("end"), st.integers(0, HOSTS - 1), st.integers(0, 3)),
        st.tuples(st.just("move"), st.integers(1, 4)),
        st.tuples(st.just("claim"), crawls_drawn),
    ),
    max_size=60,
)


@BOTH
@given(members=memberships, history=turns_asked)
def test_turns_are_never_too_many_or_early_and_no_host_waits_for_a_free_turn(kernel, members, history):
    groups = made(kernel, dict(enumerate(CAPACITIES)), {host: sorted(some) for host, some in enumerate(members)})
    now, clocks_, wanted = 0, [0] * 4, {}
    stands, busy = set(), set()

    def ask(host):
        klass, crawl = wanted[host]
        went, displaced = groups.admit(u32(host), u8(klass), u32(crawl), now)
        for other in rows(displaced):
            assert wanted[other][0] < klass
            assert other in stands
            stands.discard(other)
        stands.discard(host)
        stands.update([host] * went[0])

    def wake():
        for _ in range(1_000):
            woken = rows(groups.wake(now, 3))
            if not woken:
                return
            for host in woken:
                ask(host)
        raise AssertionError("waking never ends")

    for act, *given_ in history:
        if act == "ask" and given_[0] not in busy:
            wanted[given_[0]] = tuple(given_[1:])
            ask(given_[0])
        elif act == "draw" and given_[0] in stands and all(clocks_[group] <= now for group in members[given_[0]]):
            groups.hold(u32(given_[0]))
            groups.take(u32(given_[0]))
            stands.discard(given_[0])
            busy.add(given_[0])
        elif act == "end" and given_[0] in busy:
            busy.discard(given_[0])
            del wanted[given_[0]]
            groups.release(u32(given_[0]), i64(now + given_[1]))
            for group in members[given_[0]]:
                clocks_[group] = max(clocks_[group], now + given_[1])
        elif act == "move":
            now += given_[0]
        elif act == "claim":
            claimants = rows(groups.claimants(given_[0], now, 2, 2))
            assert all(wanted[host][1] == given_[0] for host in claimants)
            went, displaced = groups.claim(u32(*claimants), now, 2)
            stands -= set(rows(displaced))
            stands |= {host for host, gone in zip(claimants, went, strict=True) if gone} - set(rows(displaced))
        wake()
        held = [sum(group in members[host] for host in stands | busy) for group in range(4)]
        assert held == rows(groups.in_flight(u32(*range(4))))
        assert all(taken <= most for taken, most in zip(held, CAPACITIES, strict=True))
        waiting = set(wanted) - stands - busy
        assert len(waiting) == len(groups)
        for host in waiting:
            free = all(held[group] < CAPACITIES[group] and clocks_[group] <= now for group in members[host])
            assert not free, f"{host} waits though nothing keeps it"


def a_million_who_wait():
    """All at one group of a thousand turns, and each at one of a hundred thousand other groups."""
    groups = NATIVE()
    groups.define(0, 1000)
    for group in range(1, 100_001):
        groups.define(group, 1)
    hosts = np.arange(MANY, dtype=np.uint32).reshape(-1, 1000)
    classes = (hosts % 16).astype(np.uint8)
    crawls = np.arange(1000, dtype=np.uint32) % 10
    until = np.full(1000, 10**6)

    def join(r):
        groups.join(hosts[r], np.zeros(1000, np.uint32))
        groups.join(hosts[r], 1 + hosts[r] % 100_000)

    def admit_(r, now):
        groups.admit(hosts[r], classes[r], crawls, now)

    return {
        "join": longest((lambda r=r: join(r)) for r in range(len(hosts))),
        "admit": longest((lambda r=r: admit_(r, 0)) for r in range(len(hosts))),
        "release": longest((lambda r=r: groups.release(hosts[r], until)) for r in range(10)),
        "wake": longest((lambda: groups.wake(10**6, 1000)) for _ in range(100)),
        "next": longest(groups.next for _ in range(100)),
        "claimants": longest((lambda c=c: groups.claimants(c, 10**6, 0, 1000)) for c in range(10)),
        "admit again": longest((lambda r=r: admit_(r, 10**6)) for r in range(100)),
        "leave": longest((lambda r=r: groups.leave(hosts[r])) for r in range(100)),
    }


@WITHOUT_NATIVE
def test_no_call_of_a_thousand_delays_a_million_waiting_hosts():
    assert {} == too_long(a_million_who_wait)
