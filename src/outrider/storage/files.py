"""The only access of storage to the machine: one directory of files, owned by one process at a time.

The rest of this room uses the two Protocols `Files` and `File`, so that tests can use a disk that forgets unsynced
bytes. Every implementation promises:

- `write_at` writes all bytes or raises; the bytes may be lost, in part or whole, until `sync` has returned.
- A created, renamed or removed name may reappear in its old state until `sync_directory` has returned.
- No space (also: quota, file size limit) is `StoreFullError`, no descriptor is `TooManyFilesError`; any other refusal
  to write or sync is `StoreFailedError`; bytes that cannot be read are `DamagedStoreError`; a missing name is
  `FileNotFoundError`.

A locked `Directory` checks before each change that the lock file at its path is still the locked one. If the file was
removed or replaced, or in a forked child, it changes nothing and raises `LostLockError`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NoReturn, Protocol

from outrider.errors import (
    DamagedStoreError,
    LostLockError,
    OutriderError,
    StoreError,
    StoreFailedError,
    StoreFullError,
    StoreInUseError,
    TooManyFilesError,
)

LOCK_NAME = "lock"
"""The file that the owner of a directory locks. It contains the owner's process id."""
TEMPORARY_SUFFIX = ".tmp"
_READ_BYTES = 1 << 20  # at once, by `lines_of`
"""Suffix of unfinished files of `replace` and of checkpoints. The next owner of the store may remove them."""

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
_NOT_WRITABLE = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_NO_FILE = frozenset({errno.EISDIR, errno.ENXIO, errno.EOPNOTSUPP})
_KINDS = {
    stat.S_ISDIR: "a directory",
    stat.S_ISFIFO: "a pipe",
    stat.S_ISSOCK: "a socket",
    stat.S_ISBLK: "a device",
    stat.S_ISCHR: "a device",
}
_PID_BYTES_MAX = 32
_COPY_BYTES = 1 << 20

# fdatasync does not write the times of a file; where it is missing (macOS) fsync is the only way.
_sync_data = getattr(os, "fdatasync", os.fsync)


class File(Protocol):
    """One open file: bytes at offsets."""

    def read_at(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes from `offset`, fewer only where the file ends. Raises DamagedStoreError."""
        ...

    def write_at(self, offset: int, data: bytes) -> None:
        """All of `data` at `offset`, or an error. Raises StoreFullError, StoreFailedError."""
        ...

    def size(self) -> int:
        """Its length in bytes."""
        ...

    def truncate(self, length: int) -> None:
        """Cuts or extends (with zeros) to `length` bytes. Raises StoreFullError, StoreFailedError."""
        ...

    def sync(self) -> None:
        """Returns when everything written to this file is on the device (fdatasync). Raises StoreFailedError."""
        ...

    def close(self) -> None:
        """Closes the descriptor. Writes and syncs nothing."""
        ...


class Files(Protocol):
    """One directory of flat names."""

    def open(self, name: str, *, create: bool = False) -> File:
        """Opens an existing file, or with `create` a new one if it is missing. Raises FileNotFoundError, StoreError."""
        ...

    def names(self) -> list[str]:
        """Every name in the directory, sorted; files of other programs included. Raises DamagedStoreError,
        TooManyFilesError."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Renames `old` to `new` in one step, and replaces an older file of that name. Raises as `remove`."""
        ...

    def remove(self, name: str) -> None:
        """Removes the name. Raises FileNotFoundError, StoreFailedError."""
        ...

    def sync_directory(self) -> None:
        """Returns when all names that were made, changed or removed are on the device. Raises StoreFailedError."""
        ...

    def free_bytes(self) -> int:
        """Bytes that this user may still write, according to the file system. Quotas are not included."""
        ...

    def lock(self) -> None:
        """Makes this process the owner until `unlock` or its death. Raises StoreInUseError naming its process."""
        ...

    def unlock(self) -> None:
        """Ends the ownership; without one nothing happens."""
        ...

    def describe(self, name: str = "") -> str:
        """The path of a name, or of the directory, for messages."""
        ...


def replace(files: Files, name: str, data: bytes) -> None:
    """Makes `data` the whole content of `name`, durably: after a crash the file has the old content or the new.

    Raises StoreFullError (the old content remains) and StoreFailedError.
    """
    replace_in_pieces(files, name, [data])


def replace_in_pieces(files: Files, name: str, pieces: Iterable[bytes]) -> None:
    """As `replace`, for content that is more than should be in memory at once."""
    temporary = name + TEMPORARY_SUFFIX
    file = files.open(temporary, create=True)
    try:
        file.truncate(0)
        position = 0
        for piece in pieces:
            file.write_at(position, piece)
            position += len(piece)
        file.sync()
    except StoreError:
        file.close()
        remove_if_possible(files, temporary)
        raise
    file.close()
    files.rename(temporary, name)
    files.sync_directory()


def remove_if_possible(files: Files, name: str) -> bool:
    """Removes a file that is no longer needed. Returns False where the disk refuses; the caller tries again later,
    because one file too many is harmless."""
    try:
        files.remove(name)
    except FileNotFoundError:
        return True
    except StoreError:
        return False
    return True


def read_whole(files: Files, name: str, *, bytes_max: int) -> bytes:
    """The whole content of a small file. Raises FileNotFoundError, and DamagedStoreError beyond `bytes_max`."""
    file = files.open(name)
    try:
        size = file.size()
        if size > bytes_max:
            raise DamagedStoreError(f"{files.describe(name)} has {size} bytes, more than the {bytes_max} it may have")
        return file.read_at(0, size)
    finally:
        file.close()


def append_synced(files: Files, name: str, length: int, octets: bytes) -> int:
    """Writes after the first `length` bytes of a file, durably, in place of what is there. Makes the file if `length`
    is 0. Returns its new length. Raises StoreError."""
    file = files.open(name, create=True)
    try:
        file.truncate(length)
        file.write_at(length, octets)
        file.sync()
    finally:
        file.close()
    if not length:
        files.sync_directory()
    return length + len(octets)


def lines_of(file: File, line_bytes_max: int) -> Iterator[bytes]:
    """Yields the whole lines of a file, up to one that is longer than `line_bytes_max`."""
    at, rest = 0, b""
    while len(rest) <= line_bytes_max and (piece := file.read_at(at, _READ_BYTES)):
        at += len(piece)
        *whole, rest = (rest + piece).split(b"\n")
        yield from whole


# Descriptors of locks. A lock belongs to the open file, which a forked child shares. So the child closes its copy;
# otherwise the store would stay locked after the owner's death.
_held_locks: set[int] = set()


def _close_inherited_locks() -> None:
    for descriptor in _held_locks:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _held_locks.clear()


os.register_at_fork(after_in_child=_close_inherited_locks)


class Directory:
    """A real directory: mode 0700, files 0600, never followed through symbolic links, addressed by descriptor."""

    def __init__(self, path: str | os.PathLike[str], *, create: bool = True, read_only: bool = False) -> None:
        """Opens `path`. With `create` it makes the directory and its parents if they are missing.

        `read_only` opens files for reading only, so that you can inspect a store of another user or on a read-only
        mount. Raises StoreError when the path is not a directory, cannot be written or may be written by all users,
        FileNotFoundError when it is missing and `create` is False.
        """
        self._path = Path(path)
        self._read_only = read_only
        self._lock: int | None = None
        self._locked = (0, 0)  # device and number of the lock file
        self._lock_stamp = 0  # its ctime when its name was looked at
        self._descriptor = -1
        made = False
        try:
            if create and not read_only and not self._path.exists():
                self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
                made = True
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self._path)) from None
        except OSError as error:
            self._refuse(error, "")
        if made:
            try:
                self._sync_parent()
            except BaseException:
                # Remove it again, or the next attempt would find it and wrongly assume that its name is durable.
                self.close()
                with contextlib.suppress(OSError):
                    self._path.rmdir()
                raise
        if not read_only:
            self._check_writable()

    def __repr__(self) -> str:
        return f"<Directory {self._path}{' read-only' if self._read_only else ''}>"

    def _check_writable(self) -> None:
        mode = os.fstat(self._descriptor).st_mode
        if mode & stat.S_IWOTH:
            self.close()
            raise StoreError(
                f"{self._path} may be written by every user of this machine; "
                f"run `chmod o-w {self._path}` or choose another directory"
            )
        # By effective user, as the kernel will decide; the root user passes on a read-only mount only if it is
        # writable.
        if not os.access(self._path, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
            self.close()
            raise StoreError(
                f"{self._path} cannot be written by user {os.geteuid()}; "
                "choose another directory, or change its owner or mode, or mount it writable"
            )

    def _sync_parent(self) -> None:
        # The new directory's own name must survive as well, or its synced files would be out of reach.
        parent = self._path.absolute().parent
        try:
            descriptor = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            self._refuse(error, "")
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise StoreFailedError(f"{parent}: {error.strerror}") from error
        finally:
            os.close(descriptor)

    def _refuse(self, error: OSError, name: str) -> NoReturn:
        """Says an error of the machine in the words of the store."""
        where = self.describe(name)
        why = error.strerror or str(error)
        if error.errno in _NO_SPACE:
            raise StoreFullError(f"{where}: {why}; free space on this file system") from error
        if error.errno in _NO_DESCRIPTORS:
            raise TooManyFilesError(
                f"{where}: {why}; raise the limit (`ulimit -n`) or lower the concurrency"
            ) from error
        if error.errno in _NOT_WRITABLE:
            what = "read" if self._read_only else "written"
            way_out = "change its owner or mode" + ("" if name else ", or choose another directory")
            raise StoreError(f"{where} cannot be {what} by user {os.geteuid()} ({why}); {way_out}") from error
        if error.errno == errno.ENOTDIR or (error.errno == errno.EEXIST and not name):
            raise StoreError(f"{where} is not a directory; choose another name") from error
        if error.errno == errno.ELOOP and name:
            raise StoreError(
                f"{where} is a symbolic link, which a store does not allow; put the file itself there"
            ) from error
        if error.errno in _NO_FILE and name:
            raise StoreError(f"{where} is {self._kind(name)}, where a store has files; move it away") from error
        raise StoreFailedError(f"{where}: {why}") from error

    def check_owner(self) -> None:
        """Raises LostLockError where this was locked and the lock is this process's no longer."""
        if self._lock is None:
            return
        if self._lock not in _held_locks:
            raise LostLockError(f"{self.describe()} belongs to the process that this one is a child of; open it here")
        # Removing or renaming a file stamps it; looking at its name costs four times what a look at the stamp costs.
        stamp = os.fstat(self._lock).st_ctime_ns
        if stamp == self._lock_stamp:
            return
        try:
            there = os.stat(LOCK_NAME, dir_fd=self._descriptor, follow_symlinks=False)
        except FileNotFoundError:
            what = "was removed"
        except OSError as error:
            what = f"cannot be looked at ({error.strerror})"
        else:
            if (there.st_dev, there.st_ino) == self._locked:
                self._lock_stamp = stamp
                return
            what = "was replaced"
        raise LostLockError(
            f"{self.describe(LOCK_NAME)} {what} while the store was open; see that no other process has it, "
            "and open it again"
        )

    def open(self, name: str, *, create: bool = False) -> File:
        if create:
            self.check_owner()
        flags = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # the last for a pipe, at which no call shall wait
        if self._read_only:
            flags |= os.O_RDONLY
        else:
            flags |= os.O_RDWR | (os.O_CREAT if create else 0)
        try:
            descriptor = os.open(flat_name(name), flags, 0o600, dir_fd=self._descriptor)
        except FileNotFoundError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.describe(name)) from None
        except OSError as error:
            self._refuse(error, name)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            self._refuse(OSError(errno.EISDIR, os.strerror(errno.EISDIR)), name)
        return _DirectoryFile(self, name, descriptor)

    def _kind(self, name: str) -> str:
        """Names the kind of the entry (directory, pipe, …) that is in the place of a file."""
        with contextlib.suppress(OSError):
            mode = os.lstat(name, dir_fd=self._descriptor).st_mode
            return next((words for test, words in _KINDS.items() if test(mode)), "no file")
        return "no file"

    def names(self) -> list[str]:
        try:
            return sorted(os.listdir(self._descriptor))
        except OSError as error:
            if error.errno in _NO_DESCRIPTORS:
                self._refuse(error, "")
            raise DamagedStoreError(f"{self.describe()} cannot be listed: {error.strerror}") from error

    def rename(self, old: str, new: str) -> None:
        self.check_owner()
        try:
            os.rename(flat_name(old), flat_name(new), src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
        except FileNotFoundError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.describe(old)) from None
        except OSError as error:
            self._refuse(error, new)

    def remove(self, name: str) -> None:
        self.check_owner()
        try:
            os.unlink(flat_name(name), dir_fd=self._descriptor)
        except FileNotFoundError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.describe(name)) from None
        except OSError as error:
            self._refuse(error, name)

    def sync_directory(self) -> None:
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise StoreFailedError(f"{self.describe()}: {error.strerror}") from error

    def free_bytes(self) -> int:
        try:
            space = os.fstatvfs(self._descriptor)
        except OSError as error:
            self._refuse(error, "")
        return space.f_bavail * space.f_frsize

    def lock(self) -> None:
        if self._lock is not None:
            raise StoreInUseError(f"{self.describe()} is open in this process already (pid {os.getpid()})")
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(LOCK_NAME, flags, 0o600, dir_fd=self._descriptor)
        except OSError as error:
            self._refuse(error, LOCK_NAME)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(descriptor, _PID_BYTES_MAX, 0).strip()
            os.close(descriptor)
            if owner.isdigit() and int(owner) == os.getpid():
                raise StoreInUseError(
                    f"{self.describe()} is open in this process already (pid {os.getpid()}); use that one, or close it"
                ) from None
            who = f"process {int(owner)}" if owner.isdigit() else "another process"
            raise StoreInUseError(
                f"{self.describe()} is in use by {who}; stop that process, or use `outrider status`"
            ) from None
        except OSError as error:
            os.close(descriptor)
            raise StoreError(
                f"{self.describe(LOCK_NAME)} cannot be locked ({error.strerror}); use a local file system"
            ) from error
        # The number only serves the message above: a disk too full for it must not stop an opening.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
        held = os.fstat(descriptor)
        self._lock, self._locked = descriptor, (held.st_dev, held.st_ino)
        _held_locks.add(descriptor)

    def unlock(self) -> None:
        # Keep the file: removing it would let two processes lock two files of one name.
        if self._lock is None:
            return
        descriptor, self._lock = self._lock, None
        if descriptor not in _held_locks:
            return  # in a forked child: not ours, and closed already
        _held_locks.discard(descriptor)
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
        os.close(descriptor)

    def describe(self, name: str = "") -> str:
        return str(self._path / name) if name else str(self._path)

    def keep_copy(self, name: str, folder: str) -> None:
        """Keeps the current `name` as folder/name below, durably: by a second link, by a copy where links fail.

        The name remains. A file that replaces it does not change the one below. Raises as `open` and `File.write_at`.
        """
        below = self._folder(folder)
        try:
            os.link(
                flat_name(name),
                flat_name(name),
                src_dir_fd=self._descriptor,
                dst_dir_fd=below._descriptor,
                follow_symlinks=False,
            )
            below.sync_directory()
        except FileExistsError:
            return
        except FileNotFoundError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.describe(name)) from None
        except OSError:
            self._copy_into(below, name)
        finally:
            below.close()

    def put_copy(self, name: str, folder: str, data: bytes) -> None:
        """Writes folder/name below, durably. Raises as `replace`."""
        below = self._folder(folder)
        try:
            replace(below, name, data)
        finally:
            below.close()

    def _folder(self, folder: str) -> Directory:
        made = Directory(self._path / flat_name(folder), create=True)
        try:
            self.sync_directory()
        except BaseException:
            made.close()
            raise
        return made

    def _copy_into(self, below: Directory, name: str) -> None:
        with contextlib.closing(self.open(name)) as source, contextlib.closing(below.open(name, create=True)) as target:
            for begin in range(0, source.size(), _COPY_BYTES):
                target.write_at(begin, source.read_at(begin, _COPY_BYTES))
            target.sync()
        below.sync_directory()

    def close(self) -> None:
        """Unlocks the directory and closes its descriptor."""
        self.unlock()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class _DirectoryFile:
    """A file of a `Directory`."""

    def __init__(self, directory: Directory, name: str, descriptor: int) -> None:
        self._directory = directory
        self._name = name
        self._descriptor = descriptor

    def __repr__(self) -> str:
        return f"<file {self._directory.describe(self._name)}>"

    def _where(self, offset: int) -> str:
        return f"{self._directory.describe(self._name)} at byte {offset}"

    def _error(self, error: OSError, offset: int) -> OutriderError:
        why = error.strerror or str(error)
        if error.errno in _NO_SPACE:
            return StoreFullError(f"{self._where(offset)}: {why}; free space on this file system")
        return StoreFailedError(f"{self._where(offset)}: {why}")

    def read_at(self, offset: int, length: int) -> bytes:
        try:
            data = os.pread(self._descriptor, length, offset)
            if len(data) == length or not data:
                return data
            # A read may be short before the end (2 GiB at most per call, network file systems).
            parts, got = [data], len(data)
            while got < length:
                data = os.pread(self._descriptor, length - got, offset + got)
                if not data:
                    break
                parts.append(data)
                got += len(data)
        except OSError as error:
            raise DamagedStoreError(f"{self._where(offset)} cannot be read: {error.strerror}") from error
        return b"".join(parts)

    def write_at(self, offset: int, data: bytes) -> None:
        self._directory.check_owner()
        try:
            written = os.pwrite(self._descriptor, data, offset)
            if written < len(data):
                rest = memoryview(data)
                while written < len(data):
                    more = os.pwrite(self._descriptor, rest[written:], offset + written)
                    if more == 0:
                        raise OSError(errno.EIO, "a write made no progress")
                    written += more
        except OSError as error:
            raise self._error(error, offset) from error

    def size(self) -> int:
        try:
            return os.fstat(self._descriptor).st_size
        except OSError as error:
            raise self._error(error, 0) from error

    def truncate(self, length: int) -> None:
        self._directory.check_owner()
        try:
            os.ftruncate(self._descriptor, length)
        except OSError as error:
            raise self._error(error, length) from error

    def sync(self) -> None:
        try:
            _sync_data(self._descriptor)
        except OSError as error:
            # Also for ENOSPC: the written bytes may or may not be gone from the cache, so a retry would be wrong.
            raise StoreFailedError(f"{self._directory.describe(self._name)}: {error.strerror}") from error

    def close(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


def is_no_space(error: OSError) -> bool:
    """Whether the machine said that a file system, a quota or a limit of sizes is full."""
    return error.errno in _NO_SPACE


def flat_name(name: str) -> str:
    """The name itself. Raises ValueError when it could lead out of its directory."""
    if not name or name in {".", ".."} or "/" in name or "\0" in name:
        raise ValueError(f"{name!r} is not the name of a file in a store: names are flat")
    return name
