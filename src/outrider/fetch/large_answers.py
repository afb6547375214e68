"""The memory for what answers have beyond the usual limit, as crates/fetch/src/large.rs has it, for one event loop."""

from __future__ import annotations

from collections.abc import Callable, Hashable


class LargeAnswers:
    """Bytes of all transfers above the usual limit, by transfer.

    A transfer counts with the bytes that have arrived. Above the bound only the oldest large transfer reads, so that
    one always finishes. All pause while the caller has no room.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._shares: dict[Hashable, int] = {}  # the oldest first
        self._resting = False
        self._waiting: dict[Hashable, Callable[[], object]] = {}

    def __repr__(self) -> str:
        return f"<Large {self._bytes} bytes of {len(self._shares)} transfers, {len(self._waiting)} rest>"

    def rest(self, resting: bool) -> None:
        """Pauses or resumes all of them."""
        self._resting = resting
        self._tell()

    def grow(self, transfer: Hashable, size: int) -> None:
        """Sets the bytes of a transfer above the usual limit."""
        self._bytes += size - self._shares.get(transfer, 0)
        self._shares[transfer] = size

    def goes_on(self, transfer: Hashable) -> bool:
        """Whether a transfer may read more."""
        if transfer not in self._shares:
            return True
        return not self._resting and (self._bytes <= self._bytes_max or transfer == next(iter(self._shares)))

    def wait(self, transfer: Hashable, go_on: Callable[[], object]) -> None:
        """Calls `go_on` once the transfer may read more, and has not left."""
        self._waiting[transfer] = go_on

    def leave(self, transfer: Hashable) -> None:
        """A transfer has ended, one way or another."""
        self._waiting.pop(transfer, None)
        size = self._shares.pop(transfer, None)
        if size is not None:
            self._bytes -= size
            self._tell()

    def _tell(self) -> None:
        for transfer in [waiting for waiting in self._waiting if self.goes_on(waiting)]:
            self._waiting.pop(transfer)()
