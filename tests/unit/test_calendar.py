"""The calendar: each card waits for an instant and is returned then, the earliest first."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from limiting import set_limits
from outrider.frontier.format.card_columns import Cards
from outrider.frontier.stores.calendar import Calendar
from outrider.kernels.card_layout import HEAD
from outrider.storage.memory import MemoryFiles

SECOND, HOUR, DAY = 1_000_000, 3_600_000_000, 86_400_000_000


def cards_of(dues, first=0, klass=0):
    heads = np.zeros(len(dues), HEAD)
    heads["due"], heads["klass"] = dues, klass
    heads["order"] = np.arange(first, first + len(dues))
    heads["fingerprint"] = heads["order"] + np.uint64(1000)
    bodies = [b"https://example.org/%d" % order for order in heads["order"].tolist()]
    heads["url_bytes"] = [len(body) for body in bodies]
    return Cards(heads, b"".join(bodies), np.cumsum([0, *map(len, bodies)]).astype(np.int64))


def rows(cards):
    return [
        (int(head["due"]), -int(head["klass"]), int(head["order"]), cards.url(row))
        for row, head in enumerate(cards.heads)
    ]


def all_due(calendar, now, most=1_000):
    """Calls in the way in which `next` requires them."""
    got, calls = [], 0
    while (following := calendar.next()) is not None and following <= now:
        got += rows(calendar.due(now, most))
        calls += 1
        assert calls < 1_000, "no progress"
    return got


def test_due_cards_are_returned_and_the_other_cards_wait():
    calendar = Calendar(MemoryFiles(), name="c", now=HOUR)
    calendar.put(cards_of([HOUR + 5 * SECOND, HOUR + 3 * SECOND, HOUR + 4 * SECOND]))
    assert HOUR + 3 * SECOND == calendar.next()
    assert [] == rows(calendar.due(HOUR + 3 * SECOND - 1, 10))
    assert [1, 2] == [row[2] for row in rows(calendar.due(HOUR + 4 * SECOND, 10))]
    assert (1, HOUR + 5 * SECOND) == (len(calendar), calendar.next())


def test_the_earliest_due_cards_are_returned_first_and_no_more_than_wanted():
    calendar = Calendar(MemoryFiles(), name="c")
    calendar.put(cards_of(np.random.default_rng(1).permutation(500)))
    assert list(range(7)) == calendar.due(5_000, 7).heads["due"].tolist()
    assert list(range(7, 400)) == calendar.due(399, 5_000).heads["due"].tolist()
    assert 100 == len(calendar)


def test_cards_due_at_one_instant_are_sorted_by_class_and_order_and_insertion():
    calendar = Calendar(None, name="c")
    cards = cards_of([9, 9, 9, 9], klass=[3, 15, 0, 15])
    calendar.put(cards)
    back = calendar.due(9, 10)
    assert sorted(rows(cards)) == rows(back)
    assert [15, 15, 3, 0] == back.heads["klass"].tolist()
    assert [1001, 1003, 1000, 1002] == back.heads["fingerprint"].tolist()


def test_a_card_years_ahead_is_in_a_bucket_that_is_moved_when_due():
    calendar = Calendar(MemoryFiles(), name="c")
    dues = np.random.default_rng(2).integers(400 * DAY, 401 * DAY, 6_000)
    calendar.put(cards_of(dues))
    assert calendar.next() <= dues.min()
    assert calendar.statistics()["cards_on_disk"] > 5_000
    assert [] == all_due(calendar, int(dues.min()) - 1)
    got = all_due(calendar, 401 * DAY)
    assert np.sort(dues).tolist() == [row[0] for row in got]


def test_a_call_moves_a_bounded_number_of_cards():
    calendar = Calendar(MemoryFiles(), name="c")
    calendar.put(cards_of(np.full(5_000, 400 * DAY)))
    on_disk = calendar.statistics()["cards_on_disk"]
    assert on_disk > 4_000
    got = []
    while len(calendar):
        before = calendar._waiting.statistics()["loaded"]
        got += rows(calendar.due(400 * DAY, 100))
        assert calendar._waiting.statistics()["loaded"] - before <= 512 + 64
    assert list(range(5_000)) == [row[2] for row in got]


def test_more_cards_of_one_second_than_memory_allows_are_also_in_order(monkeypatch):
    set_limits(monkeypatch, CALENDAR_COMING_CARDS_MAX=500)
    calendar = Calendar(MemoryFiles(), name="c", now=DAY)
    calendar.put(cards_of(DAY + np.random.default_rng(3).permutation(3_000)))
    got = [row[0] for row in all_due(calendar, DAY + 999)]
    assert calendar.statistics()["cards_on_disk"] > 1_000
    calendar.put(cards_of([DAY + 2_500, DAY + 5], first=9_000))
    assert calendar.next() <= DAY + 5
    got += [row[0] for row in all_due(calendar, DAY + SECOND)]
    assert [*range(DAY, DAY + 1_000), DAY + 5, *range(DAY + 1_000, DAY + 2_501), DAY + 2_500] == got[:2_503]
    assert 3_002 == len(got)


def test_a_card_that_is_already_late_is_due_at_once():
    calendar = Calendar(MemoryFiles(), name="c", now=9 * DAY)
    calendar.put(cards_of([5, -(2**63), 9 * DAY, 2**63 - 1]))
    assert -(2**63) == calendar.next()
    assert [1, 0, 2] == [row[2] for row in rows(calendar.due(9 * DAY, 10))]
    assert [3] == [row[2] for row in all_due(calendar, 2**63 - 1)]
    assert None is calendar.next()


def test_a_clock_that_moves_back_is_harmless():
    calendar = Calendar(MemoryFiles(), name="c")
    calendar.put(cards_of([DAY, 2 * DAY]))
    assert [DAY] == [row[0] for row in all_due(calendar, DAY)]
    calendar.put(cards_of([5], first=7))
    assert [] == rows(calendar.due(4, 10))
    assert [7] == [row[2] for row in all_due(calendar, 5)]
    assert [2 * DAY] == [row[0] for row in all_due(calendar, 2 * DAY)]


def test_urls_are_forgotten_wherever_they_wait():
    calendar = Calendar(MemoryFiles(), name="c")
    cards = cards_of(np.arange(2_000) * HOUR, klass=4)
    calendar.put(cards)
    calendar.forget(cards.take([3, 1_999, 700]))
    assert 1_997 == len(calendar) == calendar.statistics()["cards"]
    got = [row[2] for row in all_due(calendar, 3_000 * HOUR)]
    assert [order for order in range(2_000) if order not in (3, 700, 1_999)] == got


def test_buckets_with_too_many_old_copies_are_written_anew(monkeypatch):
    set_limits(monkeypatch, CALENDAR_MOVED_CARDS_MAX=50)
    calendar = Calendar(MemoryFiles(), name="c")
    cards = cards_of(np.arange(1, 2_001) * HOUR)
    calendar.put(cards)
    for row in range(0, 2_000, 2):
        calendar.forget(cards.take([row]))
        assert len(calendar._moved) < 50
    assert [*range(1, 2_000, 2)] == [row[2] for row in all_due(calendar, 3_000 * HOUR)]


def test_coming_cards_with_too_many_old_copies_are_written_anew(monkeypatch):
    set_limits(monkeypatch, CALENDAR_MOVED_CARDS_MAX=50)
    calendar = Calendar(MemoryFiles(), name="c", now=HOUR)
    calendar.put(cards_of(np.arange(100)))
    for turn in range(200):
        calendar.forget(cards_of([turn], first=0))
        calendar.put(cards_of([turn + 1], first=0))
        assert len(calendar._moved) < 50
    assert (100, 1) == (len(calendar), calendar.next())
    assert [*range(1, 100), 0] == [row[2] for row in all_due(calendar, HOUR)]


@pytest.mark.parametrize(("klass", "order"), [(18, 0), (0, 2**58)])
def test_a_card_with_an_impossible_class_or_order_is_refused(klass, order):
    calendar = Calendar(MemoryFiles(), name="c")
    with pytest.raises(ValueError, match=str(klass or order)):
        calendar.put(cards_of([5], first=order, klass=klass))
    assert 0 == len(calendar)


def test_closing_removes_the_files():
    files = MemoryFiles()
    calendar = Calendar(files, name="c")
    calendar.put(cards_of(np.full(1_000, HOUR)))
    assert ["c-00000001.tail"] == files.names()
    calendar.close()
    assert ([], 0, None) == (files.names(), len(calendar), calendar.next())


instants = st.one_of(st.integers(0, 200 * SECOND), st.integers(0, 100 * DAY), st.integers(-(2**63), 2**63 - 1))
histories = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.lists(st.tuples(instants, st.integers(0, 15)), max_size=30)),
        st.tuples(st.just("due"), st.tuples(instants, st.integers(0, 40))),
        st.tuples(st.just("wait"), st.integers(0, 100 * DAY)),
        st.tuples(st.just("forget"), st.lists(st.integers(0, 200), max_size=5)),
        st.tuples(st.just("move"), st.tuples(st.lists(st.integers(0, 200), max_size=5), instants)),
        st.just(("purge", None)),
    ),
    max_size=25,
)


@given(history=histories)
def test_the_calendar_is_a_sorted_list(history):
    calendar = Calendar(MemoryFiles(), name="c")
    model: list[tuple] = []
    put = Cards.none()
    number = now = 0
    for verb, what in history:
        if verb == "put":
            cards = cards_of([row[0] for row in what], first=number, klass=[row[1] for row in what])
            calendar.put(cards)
            put = Cards.concatenate([put, cards])
            model = sorted(model + rows(cards))
            number += len(what)
        elif verb in ("forget", "move"):
            chosen = what if verb == "forget" else what[0]
            here = [row[2] for row in model]
            there = put.filter(np.isin(put.heads["order"], [order for order in chosen if order in here]))
            calendar.forget(there)
            model = [row for row in model if row[2] not in chosen]
            put = put.filter(~np.isin(put.heads["order"], there.heads["order"]))
            if verb == "move":
                heads = there.changed()
                heads["due"] = what[1]
                there = there.with_heads(heads)
                calendar.put(there)
                put = Cards.concatenate([put, there])
                model = sorted(model + rows(there))
        elif verb == "purge":
            calendar._purge()
        else:
            at, most = what if verb == "due" else (now + what, 1_000)
            now = max(now, min(at, 2**62))
            expected = [row for row in model if row[0] <= at][:most]
            assert expected == rows(calendar.due(at, most))
            model = [row for row in model if row not in expected]
        assert len(model) == len(calendar)
        if model:
            assert calendar.next() <= model[0][0]
        else:
            assert calendar.next() is None
    assert model == all_due(calendar, 2**63 - 1)
