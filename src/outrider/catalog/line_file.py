"""The lines of a growing file: whole lines after a position, and a check that a position belongs to the file.

An opening of a crawl cuts `pages.jsonl` at a noted length and writes the later lines again from its log. They are equal
byte for byte, so a position after the cut becomes valid again. The digest of a position covers all lines before it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from outrider.archive.projection import chained
from outrider.errors import NamedPathError
from outrider.limits import CATALOG_LINES_BYTES_AT_ONCE, OUTPUT_LINE_BYTES_MAX

_TAIL_BYTES: Final = 4_096  # some lines, each with a token and an instant of its own


@dataclass(frozen=True, slots=True)
class Position:
    """A place after whole lines: their number, their length in bytes, and the digest of all of them in order, as 32
    hexadecimal digits ("" at the start)."""

    lines: int = 0
    length: int = 0
    chain: str = ""

    def after(self, lines: Sequence[bytes]) -> Position:
        """Returns the position after more lines, which are without their ends."""
        chain = chained(bytes.fromhex(self.chain), lines).hex()
        return Position(self.lines + len(lines), self.length + sum(map(len, lines)) + len(lines), chain)


START: Final = Position()


class LineFile:
    """Reads the lines of one file from a position on. The file may be missing, shorter than the position for a while,
    or replaced by another one."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._position = START
        self._tail = b""  # the bytes before the position, as they were read
        self._identity = (0, 0)

    @property
    def position(self) -> Position:
        """The position after the last lines that were read."""
        return self._position

    def length(self) -> int:
        """Returns the length of the file in bytes, 0 without one."""
        try:
            return os.stat(self._path, follow_symlinks=False).st_size
        except OSError:
            return 0

    def seek(self, position: Position) -> str:
        """Continues after `position`. Returns "" if it belongs to this file, otherwise the reason in words: then
        nothing changes. It reads all lines before it."""
        found = Position()
        tail = b""
        descriptor = self._opened()
        try:
            size = os.fstat(descriptor).st_size if descriptor >= 0 else 0
            if size < position.length:
                return f"it is after {position.length:,} bytes, and the file has {size:,}"
            while found.length < position.length:
                lines = _read(descriptor, found.length, position.length)
                if not lines:
                    return f"no line ends at byte {position.length:,}"
                found = found.after(lines)
                tail = (tail + b"\n".join((*lines, b"")))[-_TAIL_BYTES:]
            if found != position:
                return f"the {position.lines:,} lines before it are other ones"
            self._position, self._tail, self._identity = position, tail, _identity(descriptor)
            return ""
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    def next(self) -> list[bytes] | None:
        """Returns the next lines without their ends, and moves the position after them; [] if there are no further
        lines now. None if the file is not the one of the position any more, or shorter: `seek` says which."""
        descriptor = self._opened()
        if descriptor < 0:
            return [] if not self._position.length else None
        try:
            own = _identity(descriptor)
            if not self._position.length:
                self._identity = own
            begin = self._position.length - len(self._tail)
            if own != self._identity or os.pread(descriptor, len(self._tail), begin) != self._tail:
                return None
            lines = _read(descriptor, self._position.length, None)
        finally:
            os.close(descriptor)
        if lines:
            self._position = self._position.after(lines)
            self._tail = (self._tail + b"\n".join((*lines, b"")))[-_TAIL_BYTES:]
        return lines

    def _opened(self) -> int:
        """Returns a descriptor, -1 without the file. Raises NamedPathError."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            return -1
        except OSError as error:
            raise NamedPathError(f"{self._path} cannot be read ({error.strerror}); make it readable") from None
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
        raise NamedPathError(f"{self._path} is not a regular file; restore the file of the crawl")


def _identity(descriptor: int) -> tuple[int, int]:
    if descriptor < 0:
        return 0, 0
    there = os.fstat(descriptor)
    return there.st_dev, there.st_ino


def _read(descriptor: int, begin: int, end: int | None) -> list[bytes]:
    """Returns whole lines from `begin` on, not beyond `end`: as many as have `CATALOG_LINES_BYTES_AT_ONCE`, at least
    one if it is whole."""
    want = CATALOG_LINES_BYTES_AT_ONCE
    while True:
        here = want if end is None else min(want, end - begin)
        data = os.pread(descriptor, here, begin)
        last = data.rfind(b"\n")
        if last >= 0:
            return data[:last].split(b"\n")
        if len(data) < here or here < want or want > OUTPUT_LINE_BYTES_MAX:
            return []
        want *= 2
