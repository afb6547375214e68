"""Reading in advance returns the items of the iterator, errors in their place, and leaves no thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from outrider.storage.read_ahead import ahead


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "outrider-ahead"]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 100])
def test_all_items_are_in_their_order(count: int) -> None:
    assert list(ahead(iter(range(count)), most=2)) == list(range(count))
    assert not threads()


def test_an_error_is_raised_after_the_items_before_it() -> None:
    def items() -> Iterator[int]:
        yield 1
        yield 2
        raise ValueError("three")

    got: list[int] = []
    with pytest.raises(ValueError, match="three"):
        got.extend(ahead(items()))
    assert got == [1, 2]
    assert not threads()


def test_no_more_items_are_made_in_advance_than_allowed() -> None:
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
    assert full.wait(10)  # two that wait, and one ready that has no place
    assert made == [0, 1, 2, 3]
    some.close()
    assert not threads()
    assert len(made) < 100


def test_an_iterator_without_a_reader_is_not_started() -> None:
    begun = []

    def items() -> Iterator[int]:
        begun.append(1)
        yield 1

    ahead(items())
    assert not begun
    assert not threads()
