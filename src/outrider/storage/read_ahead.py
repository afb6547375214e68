"""Reading ahead: a second thread makes the next items of an iterator while the caller works on the earlier ones."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator
from typing import Generic, TypeVar

from outrider.limits import AHEAD_ITEMS

Item = TypeVar("Item")


class _LastItem(Generic[Item]):
    """The end of the items. error: the exception that ended the iterator, None when it had no more items."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


def ahead(items: Iterator[Item], *, most: int = AHEAD_ITEMS) -> Iterator[Item]:
    """Yields the items in their order. Up to `most` of them are made before the caller needs them.

    It pays where making an item releases the interpreter: reading, unpacking, long native calls. An error of `items`
    is raised here, in its place. When this iterator is closed early, the thread ends with its current item.
    """
    made: queue.Queue[Item | _LastItem[Item]] = queue.Queue(most)
    unwanted = threading.Event()

    def make() -> None:
        end: _LastItem[Item] = _LastItem(None)
        try:
            for item in items:
                made.put(item)
                if unwanted.is_set():
                    return
        except BaseException as error:  # noqa: BLE001 - it is raised where the items are taken
            end = _LastItem(error)
        made.put(end)

    thread = threading.Thread(target=make, name="outrider-ahead", daemon=True)
    thread.start()
    try:
        while True:
            item = made.get()
            if isinstance(item, _LastItem):
                if item.error is not None:
                    raise item.error
                return
            yield item
    finally:
        unwanted.set()
        while thread.is_alive():
            with contextlib.suppress(queue.Empty):
                made.get(timeout=0.01)
        thread.join()
