"""Trains whose requests are permitted one by one: none is sent after the permission has ended, and each fetch has an
answer."""

from __future__ import annotations

import asyncio
from functools import wraps

import pytest

from outrider.errors import ClosedError
from outrider.fetch.checked_trains import CheckedTrains
from outrider.fetch.downloader import Request
from outrider.limits import TRAIN_SECONDS_MAX
from unit.test_crawl_fetching import Hand
from unit.test_crawl_visit import response

TAGS = [1, 2, 3]


class Checked:
    """A train of three fetches, and what was said of each: its status, or None for a released one."""

    def __init__(self):
        self.hand, self.permitted, self.said = Hand(), True, []
        self.trains = CheckedTrains(self.hand, lambda tag: self.permitted)

    def begin(self):
        self.trains.begin([(tag, Request(f"http://a.test/{tag}", "192.0.2.1", "Test")) for tag in TAGS], self._ended)

    def _ended(self, tag, answer):
        self.said.append((tag, getattr(answer, "status", answer)))


@pytest.fixture
def checked():
    return Checked()


def in_loop(test):
    """Runs a test in an event loop."""

    @wraps(test)
    def run(**arguments):
        asyncio.run(test(**arguments))

    return run


@in_loop
async def test_the_requests_of_a_train_are_sent_one_by_one(checked):
    checked.begin()
    assert [[1]] == checked.hand.begun
    for tag in TAGS:
        checked.hand.answers(tag, response())
    assert [[1], [2], [3]] == checked.hand.begun
    assert [(tag, 200) for tag in TAGS] == checked.said


@in_loop
async def test_no_request_is_sent_after_the_permission_has_ended(checked):
    checked.begin()
    checked.permitted = False
    checked.hand.answers(1, response())
    await asyncio.sleep(0)
    assert [[1]] == checked.hand.begun
    assert [(1, 200), (2, None), (3, None)] == checked.said


@in_loop
async def test_a_train_without_permission_is_released_and_not_within_the_call(checked):
    checked.permitted = False
    checked.begin()
    assert ([], []) == (checked.hand.begun, checked.said)
    await asyncio.sleep(0)
    assert ([], [(tag, None) for tag in TAGS]) == (checked.hand.begun, checked.said)


@pytest.mark.parametrize("answer", [response(503), OSError("cut"), None], ids=["503", "error", "released"])
@in_loop
async def test_a_train_ends_after_an_answer_that_is_not_well(checked, answer):
    checked.begin()
    checked.hand.answers(1, answer)
    await asyncio.sleep(0)
    assert [[1]] == checked.hand.begun
    assert [(2, None), (3, None)] == checked.said[1:]


@in_loop
async def test_a_train_that_has_lasted_too_long_is_released(checked):
    checked.begin()
    checked.trains._trains[1].began -= TRAIN_SECONDS_MAX
    checked.hand.answers(1, response())
    await asyncio.sleep(0)
    assert [(1, 200), (2, None), (3, None)] == checked.said


@in_loop
async def test_a_train_that_is_let_go_ends_after_its_current_fetch(checked):
    checked.begin()
    checked.trains.let_go(3)
    checked.hand.answers(1, response())
    await asyncio.sleep(0)
    assert [(1, 200), (2, None), (3, None)] == checked.said
    assert [[1]] == checked.hand.begun


@in_loop
async def test_a_cancelled_fetch_has_no_answer_and_the_later_ones_are_released(checked):
    checked.begin()
    checked.trains.cancel(1)
    checked.hand.answers(1, response())  # it was on its way
    await asyncio.sleep(0)
    assert [("cancel", 1)] == checked.hand.orders
    assert [(2, None), (3, None)] == checked.said


@in_loop
async def test_a_fetch_that_is_cancelled_while_its_train_is_released_has_no_answer(checked):
    checked.begin()
    checked.permitted = False
    ended, checked.said = checked.trains._trains[1].ended, []

    def cancels(tag, answer):
        ended(tag, answer)
        if tag == 2:
            checked.trains.cancel(3)

    checked.trains._trains[1].ended = cancels
    checked.hand.answers(1, response())
    await asyncio.sleep(0)
    assert [(1, 200), (2, None)] == checked.said


@in_loop
async def test_each_fetch_has_an_answer_when_the_downloader_is_closed(checked):
    checked.begin()
    closed = ClosedError("closed")

    def refuses(train, ended):
        raise closed

    checked.hand.begin = refuses
    checked.hand.answers(1, response())
    assert [(1, 200), (2, closed), (3, closed)] == checked.said
    with pytest.raises(ClosedError):
        checked.begin()
    checked.trains.cancel(1)
    assert [] == checked.hand.orders  # it was never begun


@in_loop
async def test_a_cancelled_later_fetch_ends_its_train_after_the_current_one(checked):
    checked.begin()
    checked.trains.cancel(2)
    assert [] == checked.hand.orders
    checked.hand.answers(1, response())
    await asyncio.sleep(0)
    assert [(1, 200), (3, None)] == checked.said
