"""Where the files of a Parquet catalog are: a folder, or a bucket of object storage.

A file has its name only when it is complete. Each change of the catalog ends with a new position, and a position is
accepted from one process only:

    folder   position.json, replaced under a lock of the folder
    bucket   position/000000000042.json, written only if no object has this number; the highest number counts

A process that finds the number taken has lost the catalog to another one. An opening takes a number, too: so a process
that was stalled meanwhile cannot store a position after the opening removed its parts. `If-Match` would be the other
way, but several servers accept more than one such request.
"""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import BinaryIO, Final, Protocol

from outrider.catalog.destination import (
    CatalogAccessError,
    CatalogError,
    CatalogInUseError,
    FullCatalogError,
    UnavailableCatalogError,
)
from outrider.errors import OutriderError, SettingsError, UnreachableError
from outrider.limits import CATALOG_POSITION_BYTES_MAX, CATALOG_POSITIONS_KEPT
from outrider.storage.files import is_no_space
from outrider.storage.object_store import ObjectStore

_POSITION_FILE: Final = "position.json"
_LOCK_FILE: Final = "lock"
_TEMPORARY: Final = ".tmp"
_POSITIONS: Final = "position/"
_POSITION_NAME: Final = re.compile(rf"{_POSITIONS}([0-9]{{12}})\.json").fullmatch


class PartStore(Protocol):
    """The files of one catalog. All methods raise CatalogError and its kin. A name has its folders, parted by "/"."""

    @property
    def name(self) -> str:
        """The address, for messages."""
        ...

    def locked(self) -> AbstractContextManager[None]:
        """Keeps other processes from changes for the length of a block, where the store can do so."""
        ...

    def names(self) -> Iterator[str]:
        """Yields the names of all files but those of positions."""
        ...

    def position(self) -> bytes | None:
        """Returns the newest position; None before the first. `is_moved` and `put_position` continue from it."""
        ...

    def put_position(self, text: bytes) -> None:
        """Stores the next position. Raises CatalogInUseError if another process stored one meanwhile."""
        ...

    def is_moved(self) -> bool:
        """Whether another process stored a position since `position` or `put_position`."""
        ...

    def begin(self, name: str) -> BinaryIO:
        """Returns a file for the content of `name`."""
        ...

    def finish(self, name: str, file: BinaryIO, *, replace: bool = False) -> None:
        """Gives a file its name, durably. `drop` comes next. replace: in place of an older one; without it, raises
        CatalogInUseError where another process may have taken the name."""
        ...

    def drop(self, name: str, file: BinaryIO) -> None:
        """Closes a file, and removes it if it has no name."""
        ...

    def remove(self, name: str) -> None:
        """Removes a file; a missing one is accepted."""
        ...

    def problem(self, error: OSError) -> OutriderError:
        """Returns an error of ours for one of a file that `begin` returned."""
        ...


def _in_use(name: str) -> CatalogInUseError:
    return CatalogInUseError(f"{name} was changed meanwhile; end the other `outrider catalog`")


class FolderParts:
    """The parts in a folder."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen: bytes | None = None

    @property
    def name(self) -> str:
        return f"parquet:{self._path}"

    @contextmanager
    def locked(self) -> Iterator[None]:
        with self._explained():
            os.makedirs(self._path, mode=0o700, exist_ok=True)
            descriptor = os.open(self._whole(_LOCK_FILE), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            with self._explained():
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def names(self) -> Iterator[str]:
        with self._explained():
            for folder, folders, files in os.walk(self._path):
                folders.sort()
                for file in sorted(files):
                    name = os.path.relpath(os.path.join(folder, file), self._path)
                    if name not in (_LOCK_FILE, _POSITION_FILE, _POSITION_FILE + _TEMPORARY):
                        yield name

    def position(self) -> bytes | None:
        self._seen = self._read_position()
        return self._seen

    def _read_position(self) -> bytes | None:
        with self._explained(), suppress(FileNotFoundError), open(self._whole(_POSITION_FILE), "rb") as file:
            return file.read(CATALOG_POSITION_BYTES_MAX)
        return None

    def put_position(self, text: bytes) -> None:
        if self.is_moved():  # under the lock, so nothing comes between
            raise _in_use(self.name)
        file = self.begin(_POSITION_FILE)
        try:
            with self._explained():
                file.write(text)
            self.finish(_POSITION_FILE, file)
        finally:
            self.drop(_POSITION_FILE, file)
        self._seen = text

    def is_moved(self) -> bool:
        return self._read_position() != self._seen

    def begin(self, name: str) -> BinaryIO:
        with self._explained():
            os.makedirs(os.path.dirname(self._whole(name)), mode=0o700, exist_ok=True)
            return open(self._whole(name) + _TEMPORARY, "wb")

    def finish(self, name: str, file: BinaryIO, *, replace: bool = False) -> None:
        path = self._whole(name)
        with self._explained():
            file.flush()
            os.fsync(file.fileno())
            os.replace(path + _TEMPORARY, path)
            folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def drop(self, name: str, file: BinaryIO) -> None:
        with suppress(OSError):
            file.close()
        with suppress(OSError):  # after a good end it has the other name
            os.unlink(self._whole(name) + _TEMPORARY)

    def remove(self, name: str) -> None:
        with self._explained(), suppress(FileNotFoundError):
            os.unlink(self._whole(name))

    def _whole(self, name: str) -> str:
        return os.path.join(self._path, name)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Raises errors of files as ours."""
        try:
            yield
        except OSError as error:
            raise self.problem(error) from None

    def problem(self, error: OSError) -> OutriderError:
        text = f"{self.name} ({error.strerror or error})"
        if is_no_space(error):
            return FullCatalogError(f"{text}; free some space")
        return CatalogError(f"{text}; make the folder writable, or name another one")


class BucketParts:
    """The parts below an address of object storage. A file waits in the temporary folder until its upload."""

    def __init__(self, address: str) -> None:
        """address: checked by `checked_object_store`. Raises SettingsError without the library."""
        self._store = ObjectStore(address)
        self._number = 0  # of the newest position that this process knows

    @property
    def name(self) -> str:
        return f"parquet:{self._store.address}"

    def locked(self) -> AbstractContextManager[None]:
        return nullcontext()  # the numbers of positions exclude others

    def names(self) -> Iterator[str]:
        with self._explained():
            yield from (name for name in self._store.names("") if _number_in(name) is None)

    def position(self) -> bytes | None:
        with self._explained():
            found = self._numbers()
            self._number = found[-1] if found else 0
            if not found:
                return None
            newest = _numbered(found[-1])
            described = self._store.find(newest)
            if described is None:
                raise _in_use(self.name)
            return self._store.read_at(newest, 0, min(described.bytes, CATALOG_POSITION_BYTES_MAX))

    def put_position(self, text: bytes) -> None:
        number = self._number + 1
        with self._explained():
            if not self._store.put_new(_numbered(number), text):
                raise _in_use(self.name)
            found = self._numbers()
            if found[-1] != number:  # this process was stalled so long that its number was free again
                self._store.remove(_numbered(number))
                raise _in_use(self.name)
            self._number = number
            for old in found[:-CATALOG_POSITIONS_KEPT]:
                self._store.remove(_numbered(old))

    def _numbers(self) -> list[int]:
        """The numbers of the positions, in their order."""
        numbers = map(_number_in, self._store.names(_POSITIONS))
        return sorted(number for number in numbers if number is not None)

    def is_moved(self) -> bool:
        with self._explained():
            return self._store.find(_numbered(self._number + 1)) is not None

    def begin(self, name: str) -> BinaryIO:
        with self._explained():
            return tempfile.TemporaryFile()

    def finish(self, name: str, file: BinaryIO, *, replace: bool = False) -> None:
        with self._explained():
            if not self._store.put_content(name, file, replace=replace):
                raise _in_use(self.name)

    def drop(self, name: str, file: BinaryIO) -> None:
        with suppress(OSError):
            file.close()

    def remove(self, name: str) -> None:
        with self._explained():
            self._store.remove(name)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Raises errors of the store as those of a catalog."""
        try:
            yield
        except UnreachableError as error:
            raise UnavailableCatalogError(error.facts) from None
        except SettingsError as error:
            raise CatalogAccessError(error.facts) from None
        except OSError as error:
            raise self.problem(error) from None

    def problem(self, error: OSError) -> OutriderError:
        text = f"{self.name}: the temporary folder {tempfile.gettempdir()} ({error.strerror or error})"
        if is_no_space(error):
            return FullCatalogError(f"{text}; free some space there, or set TMPDIR")
        return CatalogError(f"{text}; set TMPDIR to a writable one")


def _numbered(number: int) -> str:
    return f"{_POSITIONS}{number:012d}.json"


def _number_in(name: str) -> int | None:
    """The number of a position; None for another name."""
    match = _POSITION_NAME(name)
    return None if match is None else int(match[1])
