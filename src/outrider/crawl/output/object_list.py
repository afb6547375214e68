"""`DIR/objects.jsonl`: the files of an archive that are in object storage, each listed after its upload was checked.

    {"id": "5f3a…", "store": "s3://…"}                  first: it makes names unique among crawls with one prefix
    {"file": "crawl-000000.warc.gz", "store": "s3://…", "name": "5f3a…-crawl-000000.warc.gz", "bytes": n, "md5": "…"}

A line is synced before its file may be deleted. A torn line at the end is overwritten: its upload is found and listed
again.
"""

from __future__ import annotations

import os
from typing import Final

import msgspec

from outrider.errors import NamedPathError, StoreFailedError, StoreFullError
from outrider.storage.files import is_no_space
from outrider.storage.object_address import key_in

OBJECTS_FILE: Final = "objects.jsonl"
_ID_BYTES: Final = 8


def new_id() -> str:
    """Returns an id for a crawl without one."""
    return os.urandom(_ID_BYTES).hex()


class ListedObject(msgspec.Struct):
    """A file of the archive, and its object."""

    file: str
    store: str
    name: str
    bytes: int
    md5: str


class _Id(msgspec.Struct):
    id: str
    store: str = ""


class ObjectList:
    """The listed objects of a crawl by the names of their files."""

    def __init__(self, directory: str) -> None:
        """Reads the list; a missing one is empty. Raises NamedPathError."""
        self.path = os.path.join(directory, OBJECTS_FILE)
        self.id = self.store = ""
        self.objects: dict[str, ListedObject] = {}
        self._length = 0
        try:
            with open(self.path, "rb") as file:
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    self._take(line)
                    self._length += len(line)
        except FileNotFoundError:
            return
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise NamedPathError(f"{self.path} cannot be read ({error}); restore it from a copy") from None

    def _take(self, line: bytes) -> None:
        if not self.id:
            first = msgspec.json.decode(line, type=_Id)
            self.id, self.store = first.id, first.store
            return
        one = msgspec.json.decode(line, type=ListedObject)
        self.objects[one.file] = one

    @property
    def prefix(self) -> str:
        """The beginning of the keys of objects, "" before the first upload."""
        return key_in(self.store, f"{self.id}-") if self.store else ""

    def begin(self, identity: str, store: str) -> str:
        """Returns the id of the crawl; keeps this one with its store if there is none. Raises StoreError."""
        if not self.id:
            self._append(_Id(identity, store))
            self.id, self.store = identity, store
        return self.id

    def add(self, one: ListedObject) -> None:
        """Lists an object; it is on the disk when this returns. Raises StoreError."""
        self._append(one)
        self.objects[one.file] = one

    def _append(self, entry: ListedObject | _Id) -> None:
        line = msgspec.json.encode(entry) + b"\n"
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                os.ftruncate(descriptor, self._length)
                if os.pwrite(descriptor, line, self._length) != len(line):
                    raise StoreFullError(f"{self.path}: the line was not written whole; free space")
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            folder = os.open(os.path.dirname(self.path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            if is_no_space(error):
                raise StoreFullError(f"{self.path}: {error.strerror}; free space") from None
            raise StoreFailedError(f"{self.path}: {error.strerror}") from None
        self._length += len(line)
