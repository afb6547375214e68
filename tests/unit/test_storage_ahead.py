"""Reading ahead gives what the iterator gives, errors in their place, and leaves no thread behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from outrider.storage.read_ahead import ahead


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "outrider-ahead"]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 100])
def test_all_items_come_in_their_order(count: int) -> None:
    assert list(ahead(iter(range(count)), most=2)) == list(range(count))
    assert not threads()


def test_an_error_is_raised_behind_the_items_before_it() -> None:
    def items() -> Iterator[int]:
        yield 1
        yield 2
        raise ValueError("three")

    got: list[int] = []
    with pytest.raises(ValueError, match="three"):
        got.extend(ahead(items()))
    assert got == [1, 2]
    assert not threads()


def test_no_more_is_made_than_was_allowed_before_it_is_asked_for() -> None:
    made = []
    full = threading.Event()

    def items() -> Iterator[int]:
        for number in range(100):
            made.append(number)
            if number == 3:
                full.set()
            yield number

    some = ahead(items(), most=2)
    assert next(some) == 0
    assert full.wait(10)  # two that wait, and one in hand that finds no place
    assert made == [0, 1, 2, 3]
    some.close()
    assert not threads()
    assert len(made) < 100


def test_what_nobody_asks_for_is_not_begun() -> None:
    begun = []

    def items() -> Iterator[int]:
        begun.append(1)
        yield 1

    ahead(items())
    assert not begun
    assert not threads()
