"""Object storage: S3, or a folder through the same interface.

A sealed file of an archive is written by one request, so an interrupted upload leaves nothing, and only if its name is
free. It is compared with its file afterwards: by the MD5 in the answer of the server, or by reading it. Credentials are
read from the environment by the library. No text made here contains an answer of the server, except for its error code.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, BinaryIO, Final, NamedTuple

from outrider.errors import DamagedStoreError, SettingsError, UnreachableError
from outrider.install_hints import install_command
from outrider.limits import (
    OBJECT_CONNECT_SECONDS_MAX,
    OBJECT_READ_BYTES,
    OBJECT_REQUEST_SECONDS_MAX,
    OBJECT_RETRIES,
    OBJECT_RETRY_SECONDS_MAX,
)
from outrider.storage.object_address import FOLDER, S3, key_in

_CODE: Final = re.compile(r"<Code>([A-Za-z0-9]{1,60})</Code>").search
_STATUS: Final = re.compile(r"status code: ([0-9]{3})").search
_REFUSED: Final = frozenset({"401", "403"})
_NO_BUCKET: Final = "NoSuchBucket"
_FULL: Final = re.compile(
    r"QuotaExceeded</Code>|StorageFull</Code>|InsufficientStorage|status code: 507"  # servers that speak S3
    r"|No space left on device|Disk quota exceeded"  # folders
).search
_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")


class StoredObject(NamedTuple):
    """An object as its store describes it. md5: None if the store does not say it."""

    bytes: int
    md5: str | None


class ObjectStore:
    """The objects below an address. Raises SettingsError for a store that refuses (wrong credentials, no such bucket),
    UnreachableError for one that does not answer or is full: both may be over later."""

    def __init__(self, address: str) -> None:
        """Raises SettingsError without the library."""
        try:
            import obstore
            from obstore import store
        except ImportError:
            raise SettingsError(
                "object storage needs the package obstore, which is not installed; install it with "
                f"{install_command('s3')}"
            ) from None
        self.address = address
        self._library: Any = obstore
        if address.startswith(FOLDER):
            try:
                self._store: Any = store.LocalStore(address.removeprefix(FOLDER), mkdir=True)
            except (OSError, ValueError) as error:
                raise self._problem(error) from None
            return
        bucket, _, prefix = address.removeprefix(S3).partition("/")
        endpoint = next((os.environ[name] for name in _ENDPOINTS if os.environ.get(name)), "")
        self._store = store.S3Store(
            bucket,
            prefix=prefix or None,
            client_options={
                "allow_http": endpoint.startswith("http://"),
                "connect_timeout": f"{OBJECT_CONNECT_SECONDS_MAX}s",
                "timeout": f"{OBJECT_REQUEST_SECONDS_MAX}s",
            },
            retry_config={
                "max_retries": OBJECT_RETRIES,
                "retry_timeout": timedelta(seconds=OBJECT_RETRY_SECONDS_MAX),
            },
        )

    def key(self, name: str) -> str:
        """The whole key of an object in its bucket, or its path in a folder."""
        return key_in(self.address, name)

    def put_text(self, name: str, text: str) -> None:
        """Writes a small object unless its name is taken."""
        try:
            self._library.put(self._store, name, text.encode(), mode="create", use_multipart=False)
        except Exception as error:  # noqa: BLE001 - the library's classes; each becomes one of ours
            if not self._is_taken(error):
                raise self._problem(error) from None

    def put_new(self, name: str, octets: bytes) -> bool:
        """Writes an object unless its name is taken. Returns whether it was written."""
        try:
            self._library.put(self._store, name, octets, mode="create", use_multipart=False)
        except Exception as error:  # noqa: BLE001 - as above
            if not self._is_taken(error):
                raise self._problem(error) from None
            return False
        return True

    def names(self, prefix: str) -> list[str]:
        """Returns the names of all objects that begin with a prefix, which ends a part of the name; sorted."""
        folder, _, begin = prefix.rpartition("/")
        try:
            found = [one["path"] for some in self._library.list(self._store, folder or None) for one in some]
        except Exception as error:  # noqa: BLE001 - as above
            raise self._problem(error) from None
        return sorted(name for name in found if name.startswith(f"{folder}/{begin}" if folder else begin))

    def put_file(self, name: str, path: str) -> StoredObject:
        """Writes a file as a new object, and compares it with the file. An equal object of that name, of an interrupted
        call, is accepted. Raises SettingsError if the name has another object, DamagedStoreError if the object is not
        equal afterwards."""
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as octets:
            wanted = StoredObject(len(octets), hashlib.md5(octets, usedforsecurity=False).hexdigest())
            is_taken = False
            view = memoryview(octets)
            try:
                self._library.put(self._store, name, view, mode="create", use_multipart=False)
            except Exception as error:  # noqa: BLE001 - as above
                is_taken = self._is_taken(error)
                if not is_taken:
                    raise self._problem(error) from None
            finally:
                view.release()
        if self.is_equal(name, wanted):
            return wanted
        if is_taken:
            raise SettingsError(
                f"{self.address} has another object with the name {name}, and nothing was overwritten; remove it, or "
                "choose another prefix"
            )
        raise DamagedStoreError(f"{self.address}: the object {name} is not equal to {path} after its upload")

    def is_equal(self, name: str, wanted: StoredObject) -> bool:
        """Whether an object has this length and MD5; it is read if the store does not say its MD5."""
        found = self.find(name)
        if found is None or found.bytes != wanted.bytes:
            return False
        return found.md5 == wanted.md5 or self._md5(name, found.bytes) == wanted.md5

    def put_content(self, name: str, file: BinaryIO, *, replace: bool) -> bool:
        """Writes an object from the content of a file, which is not empty. replace: in place of an older one, of which
        readers see one of the two; else only if its name is free. Returns whether it was written."""
        file.flush()
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as octets, memoryview(octets) as view:
            try:
                self._library.put(
                    self._store, name, view, mode="overwrite" if replace else "create", use_multipart=False
                )
            except Exception as error:  # noqa: BLE001 - as above
                if replace or not self._is_taken(error):
                    raise self._problem(error) from None
                return False
        return True

    def remove(self, name: str) -> None:
        """Removes an object; a missing one is accepted."""
        try:
            self._library.delete(self._store, name)
        except Exception as error:  # noqa: BLE001 - as above
            if not isinstance(error, FileNotFoundError) or _NO_BUCKET in str(error):
                raise self._problem(error) from None

    def find(self, name: str) -> StoredObject | None:
        """Describes an object; None if there is none."""
        try:
            found = self._library.head(self._store, name)
        except Exception as error:  # noqa: BLE001 - as above
            if isinstance(error, FileNotFoundError) and _NO_BUCKET not in str(error):
                return None
            raise self._problem(error) from None
        tag = str(found.get("e_tag") or "").strip('"')
        return StoredObject(int(found["size"]), tag if re.fullmatch(r"[0-9a-f]{32}", tag) else None)

    def read_at(self, name: str, offset: int, length: int) -> bytes:
        """Reads a part of an object. Raises FileNotFoundError."""
        try:
            return bytes(self._library.get_range(self._store, name, start=offset, length=length))
        except Exception as error:  # noqa: BLE001 - as above
            if isinstance(error, FileNotFoundError):
                raise FileNotFoundError(self.key(name)) from None
            raise self._problem(error) from None

    def _md5(self, name: str, length: int) -> str:
        digest = hashlib.md5(usedforsecurity=False)
        for at in range(0, length, OBJECT_READ_BYTES):
            digest.update(self.read_at(name, at, min(OBJECT_READ_BYTES, length - at)))
        return digest.hexdigest()

    def _is_taken(self, error: BaseException) -> bool:
        return type(error).__name__ == "AlreadyExistsError" or isinstance(error, FileExistsError)

    def _problem(self, error: BaseException) -> SettingsError | UnreachableError:
        """Returns an error of ours for one of the library."""
        text = str(error)
        code, status = _CODE(text), _STATUS(text)
        word = code[1] if code is not None else f"status {status[1]}" if status is not None else ""
        if _NO_BUCKET in text:
            return SettingsError(f"{self.address}: there is no such bucket; make it, or name another one")
        if _FULL(text):
            return UnreachableError(f"{self.address} is full{f' ({word})' if word else ''}; make room there")
        if status is not None and status[1] in _REFUSED:
            return SettingsError(
                f"{self.address} refuses ({word}); check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and the rights of "
                "that user to read and write"
            )
        if self.address.startswith(FOLDER) and isinstance(error, OSError | ValueError):
            return SettingsError(f"{self.address} cannot be used ({type(error).__name__}); choose another folder")
        return UnreachableError(f"{self.address} does not answer{f' ({word})' if word else ''}; try again later")


def pieces_of(store: ObjectStore, name: str, length: int) -> Iterator[bytes]:
    """Yields an object in pieces."""
    for at in range(0, length, OBJECT_READ_BYTES):
        yield store.read_at(name, at, min(OBJECT_READ_BYTES, length - at))
