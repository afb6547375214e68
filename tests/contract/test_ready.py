"""The contract of the rings of ready queues, for the native build and its plain twin."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.kinds import MANY, WITHOUT_NATIVE, both, longest, native_of, rows, too_long, u8, u32
from outrider.kernels.ready import Ready as Twin

NATIVE = native_of(Twin)
BOTH = both(Twin)


def offer(ready, queues, crawl, klass):
    count = len(queues)
    ready.offer(u32(*queues), np.full(count, crawl, np.uint32), np.full(count, klass, np.uint8))


@BOTH
def test_queues_of_one_class_are_drawn_in_the_order_of_their_offers(kernel):
    ready = kernel(1)
    offer(ready, [5, 3, 4], 0, 7)
    assert ([5, 3], [4], []) == (rows(ready.draw(2)), rows(ready.draw(2)), rows(ready.draw(2)))


@BOTH
def test_a_class_is_drawn_twice_as_often_as_the_one_below(kernel):
    """Chance decides 14,000 of 16,000 draws, two thirds of them for the better class; the other draws pick the older
    queues."""
    ready = kernel(42)
    for klass in (3, 4):
        offer(ready, range(klass * 100_000, klass * 100_000 + 20_000), 0, klass)
    drawn = Counter(row // 100_000 for row in rows(ready.draw(16_000)))
    assert 14_000 * 2 / 3 == pytest.approx(drawn[4], rel=0.02)


@BOTH
def test_every_eighth_draw_is_the_queue_that_has_been_ready_longest(kernel):
    ready = kernel(1)
    offer(ready, [1000], 0, 0)
    offer(ready, range(100), 0, 15)
    assert 7 == rows(ready.draw(50)).index(1000)


@BOTH
def test_every_eighth_draw_of_one_crawl_is_its_longest_ready(kernel):
    ready = kernel(1)
    offer(ready, [2000], 1, 0)
    offer(ready, [1000], 6, 0)
    offer(ready, range(100), 6, 15)
    assert (7, [2000]) == (rows(ready.draw(50, 6)).index(1000), rows(ready.draw(9, 1)))


@BOTH
def test_a_better_class_moves_a_queue_and_it_has_been_ready_as_long(kernel):
    ready = kernel(1)
    offer(ready, [1000], 0, 0)
    offer(ready, range(50), 0, 5)
    offer(ready, [1000], 0, 5)  # at the end of the ring, but the oldest
    drawn = rows(ready.draw(51))
    assert (51, 7) == (len(drawn), drawn.index(1000))


@BOTH
@pytest.mark.parametrize("klass", [0, 4, 5])
def test_a_class_that_is_not_better_changes_nothing(kernel, klass):
    ready = kernel(1)
    offer(ready, [1, 2], 0, 5)
    offer(ready, [1], 0, klass)
    assert ([1, 2], 0) == (rows(ready.draw(9)), len(ready))


@BOTH
def test_crawls_alternate_within_a_class(kernel):
    ready = kernel(1)
    offer(ready, [0, 1, 2, 3], 0, 5)
    offer(ready, [100, 101], 1, 5)
    offer(ready, [200], 2, 5)
    assert [0, 100, 200, 1, 101, 2, 3] == rows(ready.draw(9))


@BOTH
def test_a_crawl_that_returns_gets_its_turn_last(kernel):
    ready = kernel(1)
    offer(ready, [0], 0, 5)
    offer(ready, [100, 101], 1, 5)
    ready.withdraw(u32(0))
    offer(ready, [0], 0, 5)
    assert [100, 0, 101] == rows(ready.draw(9))


@BOTH
def test_a_withdrawn_queue_is_not_drawn(kernel):
    ready = kernel(1)
    offer(ready, [1, 2, 3], 0, 5)
    ready.withdraw(u32(2, 77))
    assert (b"\1\0\1\0", 2, [1, 3]) == (ready.standing(u32(1, 2, 3, 77)), len(ready), rows(ready.draw(9)))


@BOTH
def test_a_queue_offered_for_another_crawl_leaves_the_first(kernel):
    ready = kernel(1)
    offer(ready, [1], 0, 5)
    offer(ready, [1], 3, 2)
    assert (1, [], [1]) == (len(ready), rows(ready.draw(9, 0)), rows(ready.draw(9, 3)))


def in_order(ready, crawl, *keys):
    """Offers queues of a crawl with an exact order: (queue, due, order)."""
    queues, dues, orders = zip(*keys, strict=True)
    crawls = np.full(len(keys), crawl, np.uint32)
    ready.offer_in_order(u32(*queues), crawls, np.array(dues, np.int64), np.array(orders, np.uint64))


@BOTH
def test_a_crawl_with_an_exact_order_is_drawn_by_due_and_order(kernel):
    ready = kernel(1)
    in_order(ready, 4, (5, -1, 9), (3, -(2**53), 2**63), (4, -1, 8), (6, 2**53, 0))
    assert [3, 4, 5, 6] == rows(ready.draw(9, 4))
    in_order(ready, 4, *((queue, -queue, 0) for queue in range(100)))
    assert list(reversed(range(100))) == rows(ready.draw(100))


@BOTH
def test_a_queue_in_an_exact_order_gets_a_new_place_and_leaves_it(kernel):
    ready = kernel(1)
    in_order(ready, 0, (1, 5, 0), (2, 6, 0), (3, 7, 0))
    in_order(ready, 0, (3, 1, 0), (1, 9, 0))
    ready.withdraw(u32(2))
    assert (2, [3, 1]) == (len(ready), rows(ready.draw(9, 0)))


@BOTH
def test_a_crawl_with_an_exact_order_has_its_turns_among_others(kernel):
    ready = kernel(1)
    offer(ready, [100, 101, 102], 1, 8)
    in_order(ready, 0, (1, 3, 0), (2, 2, 0), (3, 1, 0))
    assert [100, 3, 101, 2, 102, 1] == rows(ready.draw(9))


@BOTH
def test_a_refused_offer_in_order_offers_no_queue(kernel):
    ready, dues, orders = kernel(1), np.zeros(1, np.int64), np.zeros(1, np.uint64)
    for queues, crawls, message in [
        (u32(1, 2), u32(0, 0), "2 queues and 1 dues"),
        (u32(1), u32(0, 0), "1 queues and 2 crawls"),
        (u32(2**32 - 1), u32(0), "queues: at 0 stands 4294967295"),
    ]:
        with pytest.raises(ValueError, match=message):
            ready.offer_in_order(queues, crawls, dues, orders)
    assert 0 == len(ready)


@BOTH
def test_the_same_seed_draws_the_same_urls(kernel):
    drawn = []
    for seed in (5, 5, 6):
        ready = kernel(seed)
        for klass in range(16):
            offer(ready, range(klass * 100, klass * 100 + 20), 0, klass)
        drawn.append(rows(ready.draw(100)))
    assert (True, False) == (drawn[0] == drawn[1], drawn[0] == drawn[2])


@BOTH
def test_a_refused_offer_offers_no_host(kernel):
    ready = kernel(2**64 - 1)
    for queues, crawls, classes, message in [
        (u32(1, 2), u32(0), u8(1, 2), "2 queues and 1 crawls"),
        (u32(1), u32(0), u8(1, 2), "1 queues and 2 classes"),
        (u32(1, 2), u32(0, 0), u8(1, 16), "classes: 16 is more than 15"),
        (u32(1, 2**32 - 1), u32(0, 0), u8(1, 2), "queues: at 1 stands 4294967295"),
    ]:
        with pytest.raises(ValueError, match=message):
            ready.offer(queues, crawls, classes)
    assert 0 == len(ready)


@BOTH
def test_numbers_beyond_their_type_are_refused(kernel):
    for call, message in [
        (lambda: kernel(-1), "seed is a u64, not -1"),
        (lambda: kernel(1).draw(-1), "want is a u64, not -1"),
        (lambda: kernel(1).draw(1, 2**32), "crawl is a u32, not 4294967296"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()


queues_drawn = st.one_of(st.integers(0, 40), st.sampled_from([2**14, 2**24 + 1]))
crawls_drawn = st.integers(0, 3)
acts = st.one_of(
    st.tuples(st.just("offer"), st.lists(st.tuples(queues_drawn, crawls_drawn, st.integers(0, 15)), max_size=20)),
    st.tuples(st.just("withdraw"), st.lists(queues_drawn, max_size=6)),
    st.tuples(st.just("draw"), st.integers(0, 12), st.one_of(st.none(), crawls_drawn)),
)


@WITHOUT_NATIVE
@given(seed=st.integers(0, 2**64 - 1), history=st.lists(acts, max_size=30))
def test_twin_and_kernel_agree_on_every_history(seed, history):
    twin, native = Twin(seed), NATIVE(seed)
    everybody = u32(*range(41), 2**14, 2**24 + 1)
    for act, *given_ in history:
        answers = []
        for ready in (twin, native):
            if act == "offer":
                queues, crawls, classes = ([row[i] for row in given_[0]] for i in range(3))
                answers.append(ready.offer(u32(*queues), u32(*crawls), u8(*classes)))
            elif act == "withdraw":
                answers.append(ready.withdraw(u32(*given_[0])))
            else:
                answers.append(ready.draw(*given_))
        assert answers[0] == answers[1]
        for said in (len, lambda r: r.standing(everybody)):
            assert said(twin) == said(native)
    assert twin.draw(99) == native.draw(99)


def a_million_who_stand():
    ready = NATIVE(1)
    random = np.random.default_rng(1)
    order = random.permutation(MANY).astype(np.uint32).reshape(-1, 1000)
    crawls = (order % 3).astype(np.uint32)
    classes = random.integers(0, 16, order.shape).astype(np.uint8)
    return {
        "offer": longest((lambda r=r: ready.offer(order[r], crawls[r], classes[r])) for r in range(len(order))),
        "draw": longest((lambda: ready.draw(1000)) for _ in range(200)),
        "draw of one": longest((lambda: ready.draw(1000, 1)) for _ in range(200)),
        "withdraw": longest((lambda r=r: ready.withdraw(order[r])) for r in range(200)),
        "offer again": longest((lambda r=r: ready.offer(order[r], crawls[r], classes[r])) for r in range(200)),
    }


@WITHOUT_NATIVE
def test_no_call_of_a_thousand_delays_a_million_ready_hosts():
    assert {} == too_long(a_million_who_stand)
