"""Rings and timetable: shares of the classes, no starvation, no growth, nothing early."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from outrider.frontier.ready import Ready, Timetable, mixed
from outrider.frontier.tables import Host
from outrider.limits import OLDEST_DRAW_EVERY


def hosts(count: int) -> list[Host]:
    return [Host(0, row, f"h{row}") for row in range(count)]


def test_nobody_is_drawn_from_empty_rings():
    ready = Ready(1)
    assert (None, False) == (ready.draw(), ready.anybody())


def test_who_is_offered_is_drawn_once():
    ready, (host,) = Ready(1), hosts(1)
    ready.offer(host, 5, 0)
    assert (True, host, None, False) == (ready.anybody(), ready.draw(), ready.draw(), ready.anybody())


def test_who_is_withdrawn_is_not_drawn():
    ready, (host,) = Ready(1), hosts(1)
    ready.offer(host, 5, 0)
    ready.withdraw(host)
    assert (False, None) == (ready.anybody(), ready.draw())


def test_a_better_class_moves_a_host_up_and_a_worse_one_does_not_move_it_down():
    ready, (host,) = Ready(1), hosts(1)
    rings = []
    for klass in (3, 7, 2):
        ready.offer(host, klass, 0)
        rings.append(host.ring)
    assert [3, 7, 7] == rings
    assert (host, None) == (ready.draw(), ready.draw())


def test_shares_are_proportional_to_two_to_the_class():
    ready, (low, high) = Ready(42), hosts(2)
    drawn: Counter[str] = Counter()
    for _ in range(4_000):
        ready.offer(low, 4, 0)
        ready.offer(high, 6, 0)
        host = ready.draw()
        assert host is not None
        drawn[host.name] += 1
    # Seven of eight draws go by class (1 : 4), every eighth to whoever is ready longest: that is the one passed over.
    expected = 4_000 * 7 / 8 * 4 / 5
    assert abs(drawn["h1"] - expected) < 0.05 * 4_000, drawn


def test_a_ready_host_waits_for_no_more_than_eight_draws_per_ready_host():
    """However unlucky its class: with n others always ready, it comes within 8 (n + 1) draws."""
    ready, rng = Ready(7), random.Random(7)
    others = hosts(20)
    unlucky = Host(0, 99, "unlucky")
    ready.offer(unlucky, 0, 0)
    for host in others:
        ready.offer(host, 15, 0)
    for draw in range(1, OLDEST_DRAW_EVERY * 21 + 1):
        host = ready.draw()
        if host is unlucky:
            break
        assert host is not None
        ready.offer(host, rng.choice([14, 15]), draw)
    assert unlucky is host


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 15), st.booleans()), max_size=200), st.integers(0, 2**64 - 1)
)
def test_a_host_is_in_the_rings_once_or_not_at_all(steps, seed):
    ready, some = Ready(seed), hosts(5)
    inside: set[str] = set()
    for which, klass, offers in steps:
        if offers:
            ready.offer(some[which], klass, 0)
            inside.add(some[which].name)
        elif klass % 2:
            ready.withdraw(some[which])
            inside.discard(some[which].name)
        else:
            host = ready.draw()
            assert (host is None) == (not inside)
            if host is not None:
                inside.remove(host.name)
        assert bool(inside) == ready.anybody()
    assert inside == {host.name for host in ready.hosts()}


def test_rings_do_not_grow_with_the_draws():
    ready, some = Ready(3), hosts(10)
    for turn in range(20_000):
        for host in some:
            ready.offer(host, turn % 16, 0)
        ready.draw()
    assert len(ready._oldest) + sum(len(ring) for ring in ready._rings) < 2_000


def test_a_host_is_due_at_its_time_and_not_before():
    timetable, (host,) = Timetable(), hosts(1)
    timetable.rest(host, 100)
    assert ([], [host], []) == (timetable.take_due(99), timetable.take_due(100), timetable.take_due(200))


def test_hosts_are_due_in_the_order_of_their_times():
    timetable, (a, b, c) = Timetable(), hosts(3)
    for host, until in ((a, 30), (b, 10), (c, 20)):
        timetable.rest(host, until)
    assert (10, [b, c, a]) == (timetable.next(), timetable.take_due(30))


def test_a_later_booking_takes_the_place_of_an_earlier_one():
    timetable, (host,) = Timetable(), hosts(1)
    timetable.rest(host, 10)
    timetable.rest(host, 50)
    assert (50, [], [host]) == (timetable.next(), timetable.take_due(49), timetable.take_due(50))


def test_an_earlier_booking_takes_the_place_of_a_later_one():
    timetable, (host,) = Timetable(), hosts(1)
    timetable.rest(host, 50)
    timetable.rest(host, 10)
    assert ([host], []) == (timetable.take_due(10), timetable.take_due(50))


def test_a_host_booked_again_and_again_for_the_same_time_is_booked_once():
    """Links that come in while a host rests for a day must not fill the memory."""
    timetable, (host,) = Timetable(), hosts(1)
    for _ in range(1_000):
        timetable.rest(host, 50)
    assert (1, 1) == (len(timetable._heap), timetable.waiting())


def test_a_host_that_was_due_can_be_booked_for_the_same_time_again():
    timetable, ready, (host,) = Timetable(), Ready(1), hosts(1)
    timetable.rest(host, 50)
    timetable.take_due(50)
    ready.offer(host, 1, 50)
    ready.draw()
    timetable.rest(host, 50)
    assert [host] == timetable.take_due(50)


def test_mixed_bits_are_those_of_splitmix64():
    """The first outputs of the reference implementation for seed 1234567 (Vigna)."""
    expected = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    assert expected == [mixed(1_234_567, number) for number in range(5)]
