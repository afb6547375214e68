"""Lines in the order of their bytes, however many: sorted parts on disk, merged at the end."""

from __future__ import annotations

import heapq
import tempfile
from collections.abc import Iterable, Iterator
from typing import IO, Final

from outrider.limits import SORT_BYTES_AT_ONCE, SORT_PARTS_MAX

_BUFFER_BYTES: Final = 1 << 16


class SortedLines:
    """Takes lines in any order, and returns them sorted. Memory is bounded by `SORT_BYTES_AT_ONCE`.

    The parts are files without a name in `folder`: they end with the process. Raises OSError for a full disk.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._lines: list[bytes] = []
        self._bytes = 0
        self._parts: list[IO[bytes]] = []

    def add(self, line: bytes) -> None:
        """Adds a line with its end."""
        self._lines.append(line)
        self._bytes += len(line)
        if self._bytes >= SORT_BYTES_AT_ONCE:
            self._write(sorted(self._lines))
            self._lines, self._bytes = [], 0
            if len(self._parts) >= SORT_PARTS_MAX:
                parts, self._parts = self._parts, []
                self._write(_merged(parts))
                _close(parts)

    def __iter__(self) -> Iterator[bytes]:
        """Yields all lines, sorted."""
        yield from heapq.merge(_merged(self._parts), sorted(self._lines))

    def close(self) -> None:
        """Removes the parts."""
        _close(self._parts)
        self._parts = []

    def _write(self, lines: Iterable[bytes]) -> None:
        part = tempfile.TemporaryFile(dir=self._folder, buffering=_BUFFER_BYTES)  # noqa: SIM115 - closed by `close`
        self._parts.append(part)
        part.writelines(lines)


def _merged(parts: Iterable[IO[bytes]]) -> Iterator[bytes]:
    parts = list(parts)
    for part in parts:
        part.seek(0)
    return heapq.merge(*parts)


def _close(parts: Iterable[IO[bytes]]) -> None:
    for part in parts:
        part.close()
