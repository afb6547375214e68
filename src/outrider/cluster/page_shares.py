"""The limit of pages of a whole crawl (`--max-pages`), divided into shares that partitions take one after the other.

Share k is the object `shares/k`, written by the node that takes it. An object is written once, so a share has one
taker, and the shares in their order say how many pages are given away. A partition takes a share when it has used up
its pages, and notes the sum of its shares in its store. If a node dies between these two, its share is not used. So
the limit is never exceeded. Shares grow with what a partition has used, and shrink towards the end.
"""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from outrider.errors import DamagedStoreError
from outrider.limits import PAGES_SHARE_FIRST, PAGES_SHARES_PER_PARTITION

_FOLDER: Final = "shares/"


class _Share(msgspec.Struct, frozen=True):
    """One share. through: how many pages this and all earlier shares have together. partition: who took it."""

    through: int
    partition: int


_SHARES: Final = msgspec.json.Decoder(_Share)


class SharedObjects(Protocol):
    """Objects that all nodes see."""

    def create(self, name: str, octets: bytes) -> bool: ...
    def read(self, name: str) -> bytes | None: ...
    def names(self, prefix: str) -> list[str]: ...


class PageShares:
    """The shares of one limit. Several threads may call it."""

    def __init__(self, objects: SharedObjects, cluster: str, partitions: int, limit: int) -> None:
        """cluster: the prefix of its objects."""
        self._objects, self._prefix, self._partitions, self.limit = objects, f"{cluster}/{_FOLDER}", partitions, limit
        self._known: tuple[int, int] | None = None  # the number of the last known share, and its `through`

    def take(self, partition: int, before: int) -> int:
        """Takes the next share, and returns its pages; 0 if no page is left. before: the pages of all shares that the
        partition has taken. Raises UnreachableError, DamagedStoreError."""
        number, through = self._known or self._last()
        while True:
            pages = self._size(self.limit - through, before)
            if pages < 1:
                self._known = number, through
                return 0
            share = _Share(through + pages, partition)
            if self._objects.create(self._name(number + 1), msgspec.json.encode(share)):
                self._known = number + 1, share.through
                return pages
            number, through = number + 1, self._through(number + 1)  # another partition was first

    def _size(self, left: int, before: int) -> int:
        most = max(1, left // (PAGES_SHARES_PER_PARTITION * self._partitions))
        return min(left, most, before + PAGES_SHARE_FIRST)

    def _name(self, number: int) -> str:
        return f"{self._prefix}{number:08}"

    def _last(self) -> tuple[int, int]:
        names = self._objects.names(self._prefix)
        if not names:
            return 0, 0
        number = int(names[-1].removeprefix(self._prefix))
        return number, self._through(number)

    def _through(self, number: int) -> int:
        octets = self._objects.read(self._name(number))
        try:
            if octets is None:
                raise DamagedStoreError(f"the object {self._name(number)} is missing")
            return _SHARES.decode(octets).through
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DamagedStoreError(f"the object {self._name(number)} is not a share of pages ({error})") from None
