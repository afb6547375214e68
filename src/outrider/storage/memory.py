"""Files in memory that vanish with the process; `Frontier.memory()` uses them."""

from __future__ import annotations

import errno
import os

from outrider.errors import StoreInUseError
from outrider.storage.files import flat_name


class _MemoryFile:
    """One open file over the bytes of a name."""

    def __init__(self, content: bytearray) -> None:
        self._content = content

    def read_at(self, offset: int, length: int) -> bytes:
        return bytes(self._content[offset : offset + length])

    def write_at(self, offset: int, data: bytes) -> None:
        if offset > len(self._content):
            self._content.extend(bytes(offset - len(self._content)))
        self._content[offset : offset + len(data)] = data

    def size(self) -> int:
        return len(self._content)

    def truncate(self, length: int) -> None:
        if length > len(self._content):
            self._content.extend(bytes(length - len(self._content)))
        del self._content[length:]

    def sync(self) -> None:
        """Nothing outlives the process."""

    def close(self) -> None:
        """The bytes stay under their name."""


class MemoryFiles:
    """A directory without a disk, with the methods of `Files`."""

    def __init__(self) -> None:
        self._files: dict[str, bytearray] = {}
        self._locked = False

    def open(self, name: str, *, create: bool = False) -> _MemoryFile:
        """Raises FileNotFoundError unless `create`."""
        if flat_name(name) not in self._files:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.describe(name))
            self._files[name] = bytearray()
        return _MemoryFile(self._files[name])

    def names(self) -> list[str]:
        return sorted(self._files)

    def rename(self, old: str, new: str) -> None:
        if old not in self._files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.describe(old))
        self._files[flat_name(new)] = self._files.pop(old)

    def remove(self, name: str) -> None:
        if self._files.pop(name, None) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.describe(name))

    def sync_directory(self) -> None:
        """Nothing outlives the process."""

    def free_bytes(self) -> int:
        return 1 << 26  # small segments: a log in memory is rarely large

    def lock(self) -> None:
        if self._locked:
            raise StoreInUseError(f"{self.describe()} is open in this process already (pid {os.getpid()})")
        self._locked = True

    def unlock(self) -> None:
        self._locked = False

    def describe(self, name: str = "") -> str:
        return f"memory/{name}" if name else "memory"

    def __repr__(self) -> str:
        return f"<MemoryFiles {len(self._files)} files>"
