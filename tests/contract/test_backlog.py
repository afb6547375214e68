"""The contract of the backlog's kernel, for the native build and its plain twin."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.kinds import WITHOUT_NATIVE, both, native_of
from outrider.kernels import backlog as twin
from outrider.kernels.card_layout import HEAD

NATIVE = native_of(twin.Backlog)
BOTH = both(twin.Backlog)


NONE_ASIDE = {"queues_aside": 0, "cards_aside": 0}


def card(fingerprint=0, order=0, due=0, klass=0, url=b"http://a/", referrer=b"", extra=b""):
    head = np.zeros(1, HEAD)
    head["fingerprint"], head["order"], head["due"], head["klass"] = fingerprint, order, due, klass
    head["url_bytes"], head["referrer_bytes"], head["extra_bytes"] = len(url), len(referrer), len(extra)
    return head.tobytes() + url + referrer + extra


def columns(cards):
    offsets = np.cumsum([0, *(len(card) - 72 for card in cards)]).astype(np.int64)
    return b"".join(card[:72] for card in cards), b"".join(card[72:] for card in cards), offsets.tobytes()


def cards_of(heads, arena, offsets):
    ends = np.frombuffer(offsets, np.int64)
    return [heads[72 * row : 72 * row + 72] + arena[ends[row] : ends[row + 1]] for row in range(len(ends) - 1)]


def u32(*numbers):
    return struct.pack(f"<{len(numbers)}I", *numbers)


def u64(*numbers):
    return struct.pack(f"<{len(numbers)}Q", *numbers)


def put(backlog, *rows):
    """Rows of (queue, card)."""
    backlog.put(u32(*(queue for queue, _ in rows)), *columns([card for _, card in rows]))


@BOTH
def test_the_best_has_the_highest_class_then_the_earliest_due_then_the_lowest_order(kernel):
    backlog = kernel()
    ranked = [
        card(order=2**64 - 1, due=2**62, klass=15),
        card(order=9, due=-(2**63), klass=3),
        card(order=8, due=-1, klass=3),
        card(order=7, due=2, klass=3),
        card(order=2**63, due=2, klass=3),
        card(order=0, due=-5, klass=0),
    ]
    put(backlog, *((7, ranked[rank]) for rank in (3, 0, 5, 4, 1, 2)))
    assert ranked == cards_of(*backlog.peek(7, 100))
    assert ranked == cards_of(*backlog.drain(7, 100))
    assert 0 == len(backlog)


@BOTH
def test_cards_equal_in_all_three_are_ordered_by_their_bytes(kernel):
    backlog = kernel()
    alike = [card(fingerprint=number, url=url) for number in (1, 2) for url in (b"http://a/", b"http://b/")]
    put(backlog, *((0, alike[rank]) for rank in (2, 1, 3, 0)))
    assert sorted(alike) == cards_of(*backlog.drain(0, 4))


@BOTH
def test_a_card_is_returned_as_it_was_put(kernel):
    backlog = kernel()
    whole = card(1, 2, 3, 4, b"http://a/" + b"x" * 8000, "réferrer".encode(), bytes(range(256)) * 300)
    put(backlog, (5, whole))
    found, *taken = backlog.take(u32(5))
    assert b"\1" == found
    assert [whole] == cards_of(*taken)
    assert {"cards": 0, "bytes": 0, "queues": 0, **NONE_ASIDE} == backlog.statistics()


@BOTH
def test_a_queue_named_twice_returns_its_two_best(kernel):
    backlog = kernel()
    put(backlog, (1, card(order=3)), (1, card(order=1)), (1, card(order=2)), (2, card(order=9)))
    found, *taken = backlog.take(u32(1, 3, 1, 2, 2))
    assert bytes([1, 0, 1, 1, 0]) == found
    assert [card(order=1), card(order=2), card(order=9)] == cards_of(*taken)
    assert u32(1, 0, 0) == backlog.waiting(u32(1, 2, 3))


@BOTH
def test_the_best_of_a_queue_can_be_looked_at(kernel):
    backlog = kernel()
    put(backlog, (1, card(order=3, due=4, klass=5)), (2, card(order=8, klass=2)), (2, card(order=7, due=-1, klass=2)))
    assert bytes([5, 255, 2]) == backlog.best(u32(1, 9, 2))
    expected = (bytes([5, 255, 2]), struct.pack("<3q", 4, 0, -1), u64(3, 0, 7))
    assert expected == backlog.best_keys(u32(1, 9, 2))


@BOTH
def test_urls_are_removed_from_any_place(kernel):
    backlog = kernel()
    put(backlog, *((1, card(fingerprint=number, order=number)) for number in range(10)), (2, card(fingerprint=4)))
    found, *removed = backlog.remove(u32(1, 2, 1, 1, 2), u64(7, 4, 0, 77, 4))
    assert bytes([1, 1, 1, 0, 0]) == found
    assert [card(7, 7), card(4), card(0, 0)] == cards_of(*removed)
    assert [card(number, number) for number in (1, 2, 3, 4, 5, 6, 8, 9)] == cards_of(*backlog.drain(1, 10))


@BOTH
def test_the_better_of_two_cards_with_one_fingerprint_is_first(kernel):
    backlog = kernel()
    put(backlog, (1, card(5, order=9)), (1, card(5, order=2)), (1, card(6, order=1)))
    found, *removed = backlog.remove(u32(1, 1, 1), u64(5, 5, 5))
    assert bytes([1, 1, 0]) == found
    assert [card(5, order=2), card(5, order=9)] == cards_of(*removed)


@BOTH
def test_the_worst_are_spilled_in_order(kernel):
    backlog = kernel()
    put(backlog, *((1, card(order=number)) for number in (5, 3, 1, 4, 2)))
    assert [card(order=number) for number in (3, 4, 5)] == cards_of(*backlog.spill(1, 2))
    assert [] == cards_of(*backlog.spill(1, 2))
    assert [card(order=number) for number in (1, 2)] == cards_of(*backlog.drain(1, 9))


@BOTH
def test_queues_that_grew_too_long_are_reported_once(kernel):
    backlog = kernel()
    put(backlog, *((queue, card(order=n)) for queue in (9, 4) for n in range(4)), *((2, card(order=n)) for n in (1, 2)))
    assert u32(4, 9) == backlog.heads_over(3)
    assert b"" == backlog.heads_over(1)
    put(backlog, (2, card(order=3)))
    assert u32(2) == backlog.heads_over(2)


@BOTH
def test_long_queues_are_looked_for_some_rows_at_a_time(kernel):
    backlog = kernel()
    assert (b"", 0) == backlog.longer_than(0, 10, 0)
    put(backlog, *((queue, card(order=n)) for queue in (3, 5000, 5001) for n in range(queue % 4 + 1)))
    assert (u32(3), 10) == backlog.longer_than(0, 10, 3)
    assert (u32(3), 5001) == backlog.longer_than(0, 5001, 1)
    assert (u32(5001), 0) == backlog.longer_than(5001, 10, 1)
    assert (b"", 0) == backlog.longer_than(6000, 10, 1)


@WITHOUT_NATIVE
def test_thousands_put_at_once_are_ordered_as_if_put_one_by_one():
    rng = np.random.default_rng(7)
    backlogs = [NATIVE(), twin.Backlog()]
    for count in (1_023, 1_024, 5_000, 3, 6_000):
        queues = (rng.integers(0, 40, count) ** 2).astype(np.uint32)
        numbers = rng.integers(0, 50, (count, 2)).tolist()
        some = columns([card(n, n, due, n % 16, b"http://a/%d" % n) for n, (_, due) in enumerate(numbers)])
        for backlog in backlogs:
            backlog.put(queues, *some)
        native, plain = ([backlog.heads_over(300), backlog.statistics()] for backlog in backlogs)
        assert native == plain
    for queue in range(1_600):
        native, plain = (cards_of(*backlog.drain(queue, 10_000)) for backlog in backlogs)
        assert native == plain


@BOTH
def test_statistics_count_cards_bytes_and_queues(kernel):
    backlog = kernel()
    put(backlog, (1, card(url=b"u" * 88)), (1, card(url=b"u" * 89)), (3, card(url=b"u" * 8)))
    assert {"cards": 3, "bytes": 160 + 176 + 80 + 3 * 24, "queues": 2, **NONE_ASIDE} == backlog.statistics()
    assert 3 == len(backlog)
    assert "<Backlog 3 cards in 2 queues>" == repr(backlog)


@BOTH
def test_columns_may_be_arrays(kernel):
    backlog = kernel()
    heads = np.zeros(2, HEAD)
    heads["url_bytes"], heads["order"] = 3, [2, 1]
    arena = np.frombuffer(b"abcdef", np.uint8)
    backlog.put(np.array([1, 1], np.uint32), heads, arena, np.array([0, 3, 6], np.int64))
    assert b"defabc" == backlog.drain(1, 2)[1]


@BOTH
@pytest.mark.parametrize(
    ("error", "message", "arguments"),
    [
        (IndexError, "row 1: 4294967295 is no queue", (u32(0, 2**32 - 1), *columns([card(), card()]))),
        (ValueError, "2 queues need 144 bytes of heads and 3 offsets, not 72 and 2", (u32(0, 1), *columns([card()]))),
        (
            ValueError,
            "row 0: a body from 0 to 10 lies outside 9",
            (u32(0), card()[:72], b"123456789", struct.pack("<2q", 0, 10)),
        ),
        (ValueError, "row 0: a body from -1 to 8 lies", (u32(0), card()[:72], b"123456789", struct.pack("<2q", -1, 8))),
        (
            ValueError,
            "row 0: the head tells of 9 bytes of body, there are 8",
            (u32(0), card()[:72], b"12345678", struct.pack("<2q", 0, 8)),
        ),
        (ValueError, "queues are numbers of 4 bytes; 3 bytes are none", (b"abc", *columns([card()]))),
        (ValueError, "queues are numbers of 4 bytes, not 8", (np.zeros(1, np.int64), *columns([card()]))),
    ],
)
def test_columns_that_do_not_fit_change_nothing(kernel, error, message, arguments):
    backlog = kernel()
    with pytest.raises(error, match=message):
        backlog.put(*arguments)
    assert 0 == len(backlog)
    assert b"\0\0\0\0" == backlog.waiting(u32(0))


@BOTH
@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (IndexError, "4294967295", lambda backlog: backlog.take(u32(2**32 - 1))),
        (IndexError, "4294967295", lambda backlog: backlog.best(u32(2**32 - 1))),
        (IndexError, "4294967295", lambda backlog: backlog.waiting(u32(2**32 - 1))),
        (IndexError, "4294967295", lambda backlog: backlog.remove(u32(2**32 - 1), u64(1))),
        (IndexError, "4294967295", lambda backlog: backlog.drain(2**32 - 1, 1)),
        (IndexError, "-1", lambda backlog: backlog.peek(-1, 1)),
        (ValueError, "most is not negative, as -1 is", lambda backlog: backlog.drain(0, -1)),
        (ValueError, "keep is not negative, as -2 is", lambda backlog: backlog.spill(0, -2)),
        (ValueError, "most is at least 1, not 0", lambda backlog: backlog.heads_over(0)),
        (ValueError, "2 queues and 1 fingerprints", lambda backlog: backlog.remove(u32(1, 2), u64(1))),
    ],
)
def test_invalid_arguments_of_calls_are_refused(kernel, error, message, call):
    backlog = kernel()
    put(backlog, (0, card()))
    with pytest.raises(error, match=message):
        call(backlog)
    assert 1 == len(backlog)


@BOTH
def test_a_row_far_away_is_a_queue_like_any_other(kernel):
    backlog = kernel()
    put(backlog, (2**32 - 2, card()), (0, card()))
    assert u32(1, 0, 1) == backlog.waiting(u32(0, 1, 2**32 - 2))


@BOTH
def test_a_queue_of_many_cards_keeps_its_order(kernel):
    """In the native one a heap of several segments."""
    backlog = kernel()
    orders = np.random.default_rng(1).permutation(20_000)
    heads = np.zeros(20_000, HEAD)
    heads["order"], heads["fingerprint"] = orders, orders
    backlog.put(np.zeros(20_000, np.uint32), heads, b"", np.zeros(20_001, np.int64))
    assert list(range(100)) == np.frombuffer(backlog.peek(0, 100)[0], HEAD)["order"].tolist()
    assert list(range(5_000)) == np.frombuffer(backlog.take(np.zeros(5_000, np.uint32))[1], HEAD)["order"].tolist()
    assert [19_000] == np.frombuffer(backlog.remove(u32(0), u64(19_000))[1], HEAD)["order"].tolist()
    rest = [order for order in range(5_000, 20_000) if order != 19_000]
    assert rest[9_000:] == np.frombuffer(backlog.spill(0, 9_000)[0], HEAD)["order"].tolist()
    assert rest[:9_000] == np.frombuffer(backlog.drain(0, 9_001)[0], HEAD)["order"].tolist()


@BOTH
def test_a_queue_set_aside_keeps_its_class_and_length_until_it_is_put_again(kernel):
    backlog = kernel()
    best, other = card(order=4, klass=9), card(order=1, klass=2, extra=b"x" * 20_000)
    put(backlog, (1, other), (1, best), (70_000, card(klass=15)), (3, card()))
    assert (u32(1, 3), 4) == backlog.short(0, 4)
    assert (u32(70_000), 0) == backlog.short(4, 80_000)
    counts, *whole = backlog.whole(u32(2, 1))
    assert (u32(0, 2), [best, other]) == (counts, cards_of(*whole))
    assert 4 == len(backlog)
    backlog.set_aside(u32(1, 70_000), u64(2**55 - 1, 1))
    expected = {"cards": 1, "bytes": 80 + 16 + 24, "queues": 1, "queues_aside": 2, "cards_aside": 3}
    assert (1, expected) == (len(backlog), backlog.statistics())
    assert u64(2**55 - 1, 0, 1) == backlog.aside(u32(1, 2, 70_000))
    assert (u32(2, 0, 1), bytes((9, 255, 15))) == (backlog.waiting(u32(1, 2, 70_000)), backlog.best(u32(1, 2, 70_000)))
    assert (bytes((9,)), u64(0), u64(0)) == backlog.best_keys(u32(1))
    assert bytes(1) == backlog.take(u32(1))[0]
    assert bytes(1) == backlog.remove(u32(1), u64(0))[0]
    assert [b"", b""] == [backlog.drain(1, 9)[0], backlog.spill(1, 0)[0]]
    assert (u32(3), 0) == backlog.short(0, 80_000)
    with pytest.raises(ValueError, match="row 1: the cards of 1 are aside"):
        put(backlog, (3, card()), (1, card()))
    backlog.set_aside(u32(1), u64(2**40))
    backlog.forget_aside(u32(1, 2, 3))
    assert (u64(0, 1), u32(0, 1)) == (backlog.aside(u32(1, 70_000)), backlog.waiting(u32(1, 3)))
    put(backlog, (1, other), (1, best))
    assert [best, other] == cards_of(*backlog.drain(1, 9))


@BOTH
def test_a_queue_that_cannot_be_set_aside_is_refused_and_stays(kernel):
    backlog = kernel()
    put(backlog, *((1, card(order=order)) for order in range(9)), (2, card(klass=16)), (3, card()))
    for queue in (0, 1, 2):
        with pytest.raises(ValueError, match="cannot be set aside"):
            backlog.set_aside(u32(3, queue), u64(1, 1))
    for place in (0, 2**55):
        with pytest.raises(ValueError, match=f"row 0: {place} is no place"):
            backlog.set_aside(u32(3), u64(place))
    with pytest.raises(ValueError, match="1 queues and 2 places"):
        backlog.set_aside(u32(3), u64(1, 2))
    with pytest.raises(IndexError):
        backlog.set_aside(u32(3, 0xFFFFFFFF), u64(1, 1))
    assert (11, NONE_ASIDE) == (len(backlog), {name: backlog.statistics()[name] for name in NONE_ASIDE})


queues = st.integers(0, 3)
few_cards = st.lists(
    st.tuples(
        queues,
        st.builds(
            card,
            fingerprint=st.integers(0, 12),
            order=st.integers(0, 6),
            due=st.integers(-2, 2),
            klass=st.integers(0, 3),
            url=st.sampled_from([b"a", b"b" * 30, b"c" * 31]),
            extra=st.sampled_from([b"", b"x", b"y" * 20_000]),
        ),
    ),
    max_size=40,
)
some_queues = st.lists(queues, max_size=12)
histories = st.lists(
    st.one_of(
        st.tuples(st.just("put"), few_cards),
        st.tuples(st.just("take"), some_queues),
        st.tuples(st.just("remove"), st.lists(st.tuples(queues, st.integers(0, 12)), max_size=12)),
        st.tuples(st.sampled_from(["drain", "spill", "peek"]), st.tuples(queues, st.integers(0, 30))),
        st.tuples(st.just("heads_over"), st.integers(1, 20)),
        st.tuples(st.just("longer_than"), st.tuples(queues, st.integers(0, 5), st.integers(0, 9))),
        st.tuples(st.just("short"), st.tuples(queues, st.integers(0, 5))),
        st.tuples(st.just("set_aside"), st.lists(st.tuples(queues, st.integers(0, 2**55)), max_size=4)),
        st.tuples(st.sampled_from(["whole", "aside", "forget_aside"]), some_queues),
    ),
    max_size=25,
)


def answer_of(verb, *given_):
    """The answer of a call, or its refusal."""
    try:
        return verb(*given_)
    except ValueError as error:
        return str(error)


@WITHOUT_NATIVE
@given(history=histories)
def test_kernel_and_twin_answer_alike(history):
    backlogs = NATIVE(), twin.Backlog()
    rows = u32(*range(5))
    for verb, what in history:
        if verb == "put":
            answers = [answer_of(put, backlog, *what) for backlog in backlogs]
        elif verb == "set_aside":
            pairs = u32(*(queue for queue, _ in what)), u64(*(place for _, place in what))
            answers = [answer_of(backlog.set_aside, *pairs) for backlog in backlogs]
        elif verb in ("whole", "aside", "forget_aside"):
            answers = [getattr(backlog, verb)(u32(*what)) for backlog in backlogs]
        elif verb == "take":
            answers = [backlog.take(u32(*what)) for backlog in backlogs]
        elif verb == "remove":
            given_ = u32(*(queue for queue, _ in what)), u64(*(number for _, number in what))
            answers = [backlog.remove(*given_) for backlog in backlogs]
        elif verb == "longer_than":
            answers = [backlog.longer_than(*what) for backlog in backlogs]
        elif verb == "heads_over":
            answers = [backlog.heads_over(what) for backlog in backlogs]
        else:
            answers = [getattr(backlog, verb)(*what) for backlog in backlogs]
        assert answers[0] == answers[1]
        states = [
            (len(backlog), backlog.statistics(), backlog.waiting(rows), backlog.best_keys(rows)) for backlog in backlogs
        ]
        assert states[0] == states[1]
