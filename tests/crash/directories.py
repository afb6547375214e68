"""Real directories in which a process dies at a call, or with a disk that is full in the midst of a write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from outrider.errors import StoreFullError
from outrider.storage.files import Directory, File

CHANGING = ("rename", "remove", "sync_directory", "keep_copy", "put_copy")


class Killed(BaseException):
    """The process is gone."""


class Killer:
    """Counts the calls that change the names of any `Directory`, and kills at one of them where `at` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        self.at: int | None = None
        for name in CHANGING:
            monkeypatch.setattr(Directory, name, self._counted(getattr(Directory, name)))

    def arm(self, at: int) -> None:
        """Kills at this call from now on, 1 is the next."""
        self.calls, self.at = 0, at

    def disarm(self) -> None:
        """No process is killed any more."""
        self.at = None

    def _counted(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **more: Any) -> Any:
            self.calls += 1
            if self.calls == self.at:
                raise Killed
            return method(*arguments, **more)

        return call


class FullDirectory(Directory):
    """A directory whose disk has room for this number of bytes: a write beyond it stops midway."""

    room = 10**9

    def open(self, name: str, *, create: bool = False) -> File:
        return _FullFile(self, super().open(name, create=create))


class _FullFile:
    def __init__(self, directory: FullDirectory, file: File) -> None:
        self.directory = directory
        self.file = file
        self.read_at, self.size, self.truncate = file.read_at, file.size, file.truncate
        self.sync, self.close = file.sync, file.close

    def write_at(self, offset: int, data: bytes) -> None:
        self.file.write_at(offset, data[: self.directory.room])
        if len(data) > self.directory.room:
            raise StoreFullError("no space left")
        self.directory.room -= len(data)
