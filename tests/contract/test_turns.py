"""The contract of one look at many hosts, for the native build and its plain twin."""

from __future__ import annotations

import random
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.kinds import NATIVE, NONE, WITHOUT_NATIVE, both, rows, u32
from outrider.kernels.backlog import Backlog
from outrider.kernels.card_layout import HEAD, ORDERED_LIFO
from outrider.kernels.groups import Groups
from outrider.kernels.host_cells import HOST
from outrider.kernels.ready import Ready
from outrider.kernels.timetable import Timetable
from outrider.kernels.turns import count_leases, settle_shared_turns, settle_turns

TWIN = SimpleNamespace(
    Backlog=Backlog,
    Groups=Groups,
    Ready=Ready,
    Timetable=Timetable,
    settle_turns=settle_turns,
    settle_shared_turns=settle_shared_turns,
)
TWINS = SimpleNamespace(count_leases=count_leases)
BOTH = both(TWIN)
ODD = 3 | 1 << 15


class Hosts:
    """Four hosts, each with the queue of ten times its row; queue 20 is empty."""

    def __init__(self, kernel):
        self.kernel = kernel
        self.cells = np.zeros(4, HOST)
        self.first_queue[:], self.flags[:], self.rest_until[:] = [0, 10, 20, 30], [0, 4, 0, 8], 50
        self.crawl = np.zeros(40, np.uint32)
        self.backlog, self.ready, self.timetable = kernel.Backlog(), kernel.Ready(7), kernel.Timetable()
        self.put(0, 10, 30)

    def put(self, *queues, klass=5):
        heads = np.zeros(len(queues), HEAD)
        heads["klass"], heads["order"] = klass, np.arange(len(queues))
        self.backlog.put(u32(*queues), heads.tobytes(), b"", np.zeros(len(queues) + 1, np.int64))

    def __getattr__(self, name):
        return self.cells[name]

    def look(self, *hosts, now=50):
        told = (u32(*hosts), now, ODD, self.cells, self.crawl, self.backlog, self.ready, self.timetable)
        return rows(self.kernel.settle_turns(*told))

    def share(self, *hosts, capacity=1, gap=-1):
        """These hosts share a clock, and are looked at with it from now on."""
        self.groups = self.kernel.Groups()
        self.groups.define(7, capacity, gap)
        self.groups.join(u32(*hosts), u32(*(7 for _ in hosts)))
        return self

    def look_shared(self, *hosts, now=50, located=b""):
        """Odd hosts, those that lost their turns and are odd, and those that need an address."""
        columns = (self.cells, self.crawl, located)
        told = (now, ODD, *columns, self.backlog, self.groups, self.ready, self.timetable)
        return [rows(column) for column in self.kernel.settle_shared_turns(u32(*hosts), *told)]

    def standing(self):
        return rows(self.ready.draw(99))

    def booked(self, *hosts):
        return np.frombuffer(self.timetable.until(u32(*hosts)), np.int64).tolist()


@BOTH
def test_a_host_whose_rest_is_over_is_offered_and_a_waiting_host_is_booked(kernel):
    hosts = Hosts(kernel)
    hosts.rest_until[1] = 51
    assert [] == hosts.look(0, 1, 3)
    assert ([-1, 51, -1], [0, 30]) == (hosts.booked(0, 1, 3), sorted(hosts.standing()))


@BOTH
def test_a_host_that_waits_again_leaves_the_rings(kernel):
    hosts = Hosts(kernel)
    hosts.look(0, 1)
    hosts.rest_until[0] = 60
    hosts.look(0)
    assert ([60], [10]) == (hosts.booked(0), hosts.standing())


@BOTH
@pytest.mark.parametrize("booked", [False, True])
def test_an_empty_queue_and_a_host_that_is_visited_have_no_place(kernel, booked):
    hosts = Hosts(kernel)
    hosts.look(0, 1, now=49 if booked else 50)
    hosts.in_flight[1] = 256
    hosts.backlog.take(u32(0))
    assert [] == hosts.look(0, 1, 2)
    assert ([-1, -1, -1], []) == (hosts.booked(0, 1, 2), hosts.standing())


@BOTH
def test_a_queue_is_offered_under_its_crawl_and_the_class_of_its_best_card(kernel):
    hosts = Hosts(kernel)
    hosts.crawl[10] = 3
    hosts.put(30, klass=15)
    hosts.look(0, 1, 3)
    assert ([10], [30, 0]) == (rows(hosts.ready.draw(9, 3)), rows(hosts.ready.draw(9, 0)))


@BOTH
@pytest.mark.parametrize("shared", [False, True])
def test_queues_of_a_crawl_with_an_exact_order_are_offered_by_due_and_order(kernel, shared):
    hosts = Hosts(kernel)
    for queue, due in ((0, -1), (10, -3), (30, -2)):
        hosts.backlog.drain(queue, 9)
        heads = np.zeros(1, HEAD)
        heads["klass"], heads["due"] = ORDERED_LIFO, due
        hosts.backlog.put(u32(queue), heads.tobytes(), b"", np.zeros(2, np.int64))
    hosts.share(0, capacity=3).look_shared(0, 1, 3) if shared else hosts.look(0, 1, 3)
    assert [10, 30, 0] == rows(hosts.ready.draw(9, 0))


@BOTH
@pytest.mark.parametrize("odd", [2, 1 << 15])
def test_odd_hosts_are_given_back_before_anything_is_done(kernel, odd):
    hosts = Hosts(kernel)
    hosts.first_queue[0], hosts.flags[3] = NONE, 8 | odd
    assert [0, 3] == hosts.look(3, 0, 1, 3, 0)
    assert [] == hosts.standing()


@BOTH
def test_a_row_outside_the_cells_is_refused_before_anything_is_done(kernel):
    hosts = Hosts(kernel)
    hosts.cells = hosts.cells[:3]
    with pytest.raises(IndexError, match="row 3 lies outside the column cells"):
        hosts.look(0, 3)
    assert [] == hosts.standing()


@BOTH
def test_a_queue_outside_its_column_is_refused_before_anything_is_done(kernel):
    hosts = Hosts(kernel)
    hosts.crawl = hosts.crawl[:30]
    with pytest.raises(IndexError, match="row 30 lies outside the column crawl"):
        hosts.look(0, 3)
    assert [] == hosts.standing()


@BOTH
def test_an_instant_before_1970_is_refused(kernel):
    hosts = Hosts(kernel)
    hosts.rest_until[1] = -5
    with pytest.raises(ValueError, match="rest_until: -5 lies before 1970"):
        hosts.look(1)


@BOTH
def test_the_first_named_host_of_a_shared_turn_is_offered_and_the_rest_wait(kernel):
    hosts = Hosts(kernel).share(0, 1)
    assert [[], [], []] == hosts.look_shared(3, 1, 0)
    assert ([10, 30], [7]) == (sorted(hosts.standing()), rows(hosts.groups.waits_at(u32(0))))


@BOTH
def test_a_host_that_waits_or_is_visited_returns_its_turn(kernel):
    hosts = Hosts(kernel).share(0, 1)
    hosts.look_shared(0, 1)
    hosts.rest_until[0] = 60
    hosts.look_shared(0)
    hosts.look_shared(1)
    assert ([10], [60]) == (hosts.standing(), hosts.booked(0))
    hosts.in_flight[1] = 1
    hosts.look_shared(1)
    assert [0] == rows(hosts.groups.in_flight(u32(7)))


@BOTH
def test_a_better_class_gets_the_turn_and_the_queue_of_the_other_leaves_the_rings(kernel):
    hosts = Hosts(kernel).share(0, 1)
    hosts.look_shared(0)
    hosts.put(10, klass=9)
    assert [[], [], []] == hosts.look_shared(1)
    assert [10] == hosts.standing()


@BOTH
@pytest.mark.parametrize("odd", [1, 1 << 15])
def test_an_odd_host_that_lost_its_turn_is_given_back_with_its_queue_in_the_rings(kernel, odd):
    hosts = Hosts(kernel).share(0, 1)
    hosts.look_shared(0)
    hosts.put(10, klass=9)
    hosts.flags[0] = odd
    assert [[], [0], []] == hosts.look_shared(1)
    assert [0, 10] == sorted(hosts.standing())


@BOTH
def test_due_hosts_whose_address_is_not_known_step_aside(kernel):
    hosts = Hosts(kernel).share(0, 1)
    hosts.look_shared(0)
    located = np.array([50, 51, 0, 0], np.int64)
    assert [[], [], [0]] == hosts.look_shared(0, 1, located=located)
    assert [10] == hosts.standing()


@BOTH
def test_odd_hosts_are_returned_before_any_host_requests_a_turn(kernel):
    hosts = Hosts(kernel).share(0, 1)
    hosts.flags[3] = 1
    assert [[3], [], []] == hosts.look_shared(3, 0, 3)
    assert ([], [0]) == (hosts.standing(), rows(hosts.groups.in_flight(u32(7))))


@BOTH
def test_an_address_outside_its_column_is_refused_before_anything_is_done(kernel):
    hosts = Hosts(kernel).share(0, 1)
    with pytest.raises(IndexError, match="row 3 lies outside the column located"):
        hosts.look_shared(0, 3, located=np.array([99, 99, 99], np.int64))
    assert ([], [0]) == (hosts.standing(), rows(hosts.groups.in_flight(u32(7))))


@WITHOUT_NATIVE
@given(st.integers(0, 2**32), st.integers(1, 30))
def test_both_assign_every_host_that_shares_clocks_the_same_place(seed, steps):
    """As in a frontier: cells change, groups follow, woken hosts and some other hosts are checked."""
    rng = random.Random(seed)
    count = rng.randrange(1, 30)
    pair = [Hosts(TWIN), Hosts(NATIVE)]
    first = rng.sample(range(40), count)
    members = [(host, group) for host in range(count) for group in rng.sample(range(1, 5), rng.choice([0, 1, 1, 2]))]
    settings = [(group, rng.randrange(1, 4), rng.choice([-1, 0, 2])) for group in range(1, 5)]
    for hosts in pair:
        hosts.cells = np.zeros(count, HOST)
        hosts.first_queue[:] = first
        hosts.crawl = u32(*(queue % 3 for queue in range(40)))
        hosts.groups = hosts.kernel.Groups()
        for one in settings:
            hosts.groups.define(*one)
        hosts.groups.join(u32(*(host for host, _ in members)), u32(*(group for _, group in members)))
    now = 0
    for _ in range(steps):
        now += rng.randrange(4)
        put, klass = [queue for queue in first if rng.random() < 0.2], rng.randrange(16)
        host, busy, until, ended = (
            rng.randrange(count),
            rng.choice([0, 0, 1, 2]),
            now + rng.randrange(6),
            rng.choice([0, now]),
        )
        flag, shut = rng.choice([0, 0, 0, 0, 1, 4, 1 << 8, 1 << 15]), rng.choice([None, None, None, 1, 2])
        some, draws = rng.choices(range(count), k=rng.randrange(1, count + 1)), rng.randrange(5)
        located = np.array([now + rng.choice([0, 1, 9]) for _ in range(count)], np.int64) if rng.random() < 0.5 else b""
        answers = []
        for hosts in pair:
            hosts.put(*put, klass=klass)
            hosts.in_flight[host], hosts.rest_until[host], hosts.flags[host] = busy, until, flag
            hosts.ended[host] = ended
            hosts.groups.open(u32(1, 2))
            hosts.groups.close(u32(*([] if shut is None else [shut])))
            everyone = u32(*range(count))
            hosts.groups.follow(everyone, hosts.cells)
            woken = rows(hosts.groups.wake(now, 9))
            looks = [hosts.look_shared(*woken, now=now), hosts.look_shared(*some, now=now, located=located)]
            drawn = hosts.ready.draw(draws)
            hosts.groups.hold(u32(*(first.index(queue) for queue in rows(drawn))))
            told = [hosts.groups.may_go(everyone, now), hosts.groups.stands(everyone), hosts.groups.turns(everyone)]
            answers.append((woken, looks, rows(drawn), told, hosts.booked(*range(count)), hosts.groups.next()))
        assert answers[0] == answers[1]


@WITHOUT_NATIVE
@given(st.integers(0, 2**32), st.integers(1, 30))
def test_both_assign_every_host_the_same_place(seed, steps):
    rng = random.Random(seed)
    count = rng.randrange(1, 30)
    pair = [Hosts(TWIN), Hosts(NATIVE)]
    first = rng.sample(range(40), count)
    for hosts in pair:
        hosts.cells = np.zeros(count, HOST)
        hosts.first_queue[:] = first
        hosts.crawl = u32(*(queue % 3 for queue in range(40)))
    now = 0
    for _ in range(steps):
        now += rng.randrange(4)
        put, klass = [queue for queue in first if rng.random() < 0.2], rng.randrange(16)
        take = [queue for queue in first if rng.random() < 0.1]
        host, busy, until = rng.randrange(count), rng.choice([0, 0, 1]), now + rng.randrange(6)
        flag = rng.choice([0, 0, 0, 0, 1, 4, 1 << 8, 1 << 15])
        some, draws = rng.choices(range(count), k=rng.randrange(1, count + 1)), rng.randrange(5)
        answers = []
        for hosts in pair:
            hosts.put(*put, klass=klass)
            hosts.backlog.take(u32(*take))
            hosts.in_flight[host], hosts.rest_until[host], hosts.flags[host] = busy, until, flag
            odd = hosts.look(*some, now=now)
            answers.append((odd, rows(hosts.ready.draw(draws)), hosts.booked(*range(count))))
        assert answers[0] == answers[1]


@both(TWINS)
def test_leases_are_counted_at_the_hosts_of_their_queues(kernel):
    cells = np.zeros(3, HOST)
    cells["in_flight"], cells["flags"] = [255, 0, 65_535], [0, 8, 1 << 8]
    opened = rows(kernel.count_leases(u32(3, 0, 2, 1), True, u32(1, 2, 0, 1), cells.view(np.uint8)))
    assert ([1, 1, 2], [256, 2, 0]) == (opened, cells["in_flight"].tolist())
    ended = rows(kernel.count_leases(u32(3, 1, 2), False, u32(1, 2, 0, 1), cells.view(np.uint8)))
    assert ([1, 2, 0], [255, 1, 65_535]) == (ended, cells["in_flight"].tolist())
    assert [0, 8, 1 << 8] == cells["flags"].tolist()


@both(TWINS)
@pytest.mark.parametrize(("queue", "column"), [(2, "hosts"), (1, "cells")])
def test_nothing_is_counted_where_a_row_is_out_of_range(kernel, queue, column):
    cells = np.zeros(3, HOST)
    with pytest.raises(IndexError, match=f"lies outside the column {column}"):
        kernel.count_leases(u32(0, queue), True, u32(0, 3), cells.view(np.uint8))
    assert not cells["in_flight"].any()


@both(TWINS)
def test_cells_that_cannot_be_written_to_are_refused(kernel):
    with pytest.raises(BufferError, match="to be written to"):
        kernel.count_leases(u32(0), True, u32(0), np.zeros(3, HOST).tobytes())


@both(TWINS)
def test_an_incomplete_record_is_not_a_row(kernel):
    """Bytes after the last whole item of a column are not a row; faults of columns are reported before faults of
    rows."""
    cells = np.zeros(100, np.uint8)
    assert b"" == kernel.count_leases(u32(0, 1), True, u32(0, 1).tobytes() + b"?", cells)
    assert [1, 1] == cells[:96].view(HOST)["in_flight"].tolist()
    for queue, column in ((2, "hosts"), (1, "cells")):
        with pytest.raises(IndexError, match=f"lies outside the column {column}"):
            kernel.count_leases(u32(queue), True, u32(0, 2).tobytes() + b"?", cells)
    with pytest.raises(BufferError, match="to be written to"):
        kernel.count_leases(u32(9), True, u32(0), bytes(48))
    with pytest.raises(ValueError, match="hosts are numbers of 4 bytes, not 8"):
        kernel.count_leases(u32(0), True, np.zeros(1, np.uint64), cells)
