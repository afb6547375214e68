"""The files of an archive for readers: from the directory of the crawl, or from object storage if they are not here."""

from __future__ import annotations

import os
from typing import Final

from outrider.crawl.output.object_list import ListedObject, ObjectList
from outrider.crawl.setup.directory import ARCHIVE_NAME
from outrider.errors import StoreFailedError
from outrider.limits import OBJECT_READ_BYTES
from outrider.storage.files import Directory, File
from outrider.storage.object_store import ObjectStore

_READ_ONLY: Final = "an object is only read"


class StoredFile:
    """An object as a file that is only read."""

    def __init__(self, store: ObjectStore, listed: ListedObject) -> None:
        self._store, self._listed = store, listed
        self._at = 0

    def read_at(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes from `offset`. Raises FileNotFoundError, SettingsError, UnreachableError."""
        length = min(length, self._listed.bytes - offset)
        return self._store.read_at(self._listed.name, offset, length) if length > 0 else b""

    def read(self, size: int, /) -> bytes:
        """The next bytes, many for each request."""
        piece = self.read_at(self._at, min(size, OBJECT_READ_BYTES))
        self._at += len(piece)
        return piece

    def seek(self, offset: int) -> None:
        """Sets the place of the next `read`."""
        self._at = offset

    def size(self) -> int:
        """Its length in bytes."""
        return self._listed.bytes

    def write_at(self, offset: int, data: bytes) -> None:
        """Raises StoreFailedError."""
        raise StoreFailedError(_READ_ONLY)

    def truncate(self, length: int) -> None:
        """Raises StoreFailedError."""
        raise StoreFailedError(_READ_ONLY)

    def sync(self) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""


class ArchiveSource(Directory):
    """The archive of a crawl, only for reading. `open` also raises SettingsError and UnreachableError about a store."""

    def __init__(self, directory: str) -> None:
        """Raises FileNotFoundError without an archive, StoreError."""
        super().__init__(os.path.join(directory, ARCHIVE_NAME), create=False, read_only=True)
        self._directory = directory
        self._listed: ObjectList | None = None
        self._stores: dict[str, ObjectStore] = {}

    def open(self, name: str, *, create: bool = False) -> File:
        """Opens a file of the directory, or its object. Raises as `Directory.open`."""
        try:
            return super().open(name, create=create)
        except FileNotFoundError:
            stored = self.stored(name)
            if stored is None:
                raise
            return stored

    def stored(self, name: str) -> StoredFile | None:
        """Returns the object of a file; None if it is not listed."""
        if self._listed is None:
            self._listed = ObjectList(self._directory)
        listed = self._listed.objects.get(name)
        if listed is None:
            return None
        if listed.store not in self._stores:
            self._stores[listed.store] = ObjectStore(listed.store)
        return StoredFile(self._stores[listed.store], listed)
