"""The growing end of a file: appended bytes are there whole or not at all, also when the disk refuses a write."""

from __future__ import annotations

import contextlib

from outrider.errors import StoreError
from outrider.storage.files import File


class Tail:
    """Appends after `length`, the bytes that count. The remains of a failed write are cut before the next one."""

    def __init__(self, file: File, length: int, *, torn: bool = False, unsynced: bool = False) -> None:
        """torn: bytes that do not count may follow `length`. unsynced: the file has changed already."""
        self.length = length
        self._file = file
        self._torn = torn
        self._unsynced = unsynced

    def append(self, data: bytes) -> None:
        """All of `data`, or nothing. Raises StoreFullError, StoreFailedError."""
        self.mend()
        self._torn = True
        try:
            self._file.write_at(self.length, data)
        except StoreError:
            with contextlib.suppress(StoreError):
                self.mend()
            raise
        self._torn = False
        self._unsynced = True
        self.length += len(data)

    def mend(self) -> None:
        """Cuts the rest of a failed write. Raises StoreFullError, StoreFailedError."""
        if self._torn:
            self._file.truncate(self.length)
            self._torn = False

    def sync(self) -> None:
        """Returns when all that counts is on the device. Raises StoreFullError, StoreFailedError."""
        self.mend()
        if self._unsynced:
            self._file.sync()
            self._unsynced = False

    def close(self) -> None:
        """Closes the descriptor; syncs nothing."""
        self._file.close()
