"""Snapshots: the newest checkpoint of a partition and its runs as objects, and the place in the changelog after them.

An object is never changed, and its name has the epoch and the LSN at which its snapshot starts. The list of a snapshot
is written last, so a snapshot whose list is there is whole. A node that claims a partition without its directory makes
it of a snapshot and of the frames after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Protocol

import msgspec

from outrider.cluster.counting import Counting
from outrider.errors import DamagedStoreError
from outrider.frontier.state.recovery import run_names
from outrider.kernels import crc32c
from outrider.limits import SNAPSHOT_PIECE_BYTES
from outrider.storage.checkpoint import checkpoint_name, newest_checkpoint
from outrider.storage.files import Files, replace_in_pieces

_LISTS: Final = "snapshots/"
_FILES: Final = "files/"
SNAPSHOTS_KEPT: Final = 2
"""The newest ones: a node that claims may have read the list of the one before the newest."""


class Objects(Protocol):
    """The objects of one partition, by name, in object storage."""

    def put(self, name: str, pieces: Iterable[bytes]) -> None:
        """Writes an object that is there as a whole or not at all. Raises UnreachableError."""
        ...

    def get(self, name: str) -> Iterator[bytes]:
        """Returns the content of an object in pieces. Raises FileNotFoundError, UnreachableError."""
        ...

    def names(self, prefix: str) -> list[str]:
        """Returns the names that begin with a prefix, sorted. Raises UnreachableError."""
        ...

    def remove(self, name: str) -> None:
        """Removes an object; a missing one is accepted. Raises UnreachableError, and SettingsError if it may not."""
        ...


class SnapshotFile(msgspec.Struct, frozen=True):
    """One file of a store. object: the name of its content."""

    name: str
    object: str
    bytes: int
    crc: int


class Snapshot(msgspec.Struct, frozen=True):
    """The parts of which a store is made. start_lsn: frames after it are necessary, for the checkpoint, or for lines
    that are not sealed. position, epoch, lsn, crc, closed: what counts before the first of these frames, or earlier
    (`Counting`)."""

    start_lsn: int
    position: int
    epoch: int
    lsn: int
    crc: int
    closed: bool
    files: list[SnapshotFile]

    def counting(self) -> Counting:
        """Returns what counts where a reader of the changelog begins."""
        return Counting(self.position, self.epoch, self.lsn, self.crc, closed=self.closed)


_SNAPSHOTS: Final = msgspec.json.Decoder(Snapshot)


def newest_snapshot(objects: Objects) -> Snapshot | None:
    """Returns the newest snapshot of a partition. Raises DamagedStoreError, UnreachableError."""
    while names := objects.names(_LISTS):
        try:
            return _list_of(objects, names[-1])
        except FileNotFoundError:
            if objects.names(_LISTS) == names:
                raise DamagedStoreError(f"the object {names[-1]!r:.200}, the list of a snapshot, is missing") from None
    return None


def delete_old(objects: Objects) -> int:
    """Deletes the snapshots that have two newer ones, and each object that neither of these two has and that was made
    for an older one. Returns how many snapshots.

    So objects of an interrupted upload are deleted, too, when two newer snapshots are there. If their upload goes on
    after that, its snapshot is an old one, which no node reads. Raises DamagedStoreError, SettingsError,
    UnreachableError.
    """
    names = objects.names(_LISTS)
    old, kept = names[:-SNAPSHOTS_KEPT], names[-SNAPSHOTS_KEPT:]
    if len(kept) < SNAPSHOTS_KEPT:
        return 0
    try:
        needed = {one.object for name in kept for one in _list_of(objects, name).files}
    except FileNotFoundError:
        return 0  # another node owns the partition, and deletes
    for name in old:
        objects.remove(name)
    oldest = _order_of_list(kept[0])
    for name in objects.names(_FILES):
        if name not in needed and _order_of_object(name) < oldest:
            objects.remove(name)
    return len(old)


def _order_of_list(name: str) -> tuple[str, str]:
    """Returns the LSN and the epoch at which a snapshot starts, as digits of one width. The names of lists have this
    order."""
    start, _, epoch = name.removeprefix(_LISTS).removesuffix(".json").partition("-")
    return start, epoch


def _order_of_object(name: str) -> tuple[str, str]:
    """Returns the same of the snapshot for which an object was made."""
    epoch, _, rest = name.removeprefix(_FILES).partition("/")
    return rest.partition("/")[0], epoch


def _list_of(objects: Objects, name: str) -> Snapshot:
    """Reads the list of a snapshot. Raises DamagedStoreError, FileNotFoundError, UnreachableError."""
    try:
        return _SNAPSHOTS.decode(b"".join(objects.get(name)))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DamagedStoreError(f"the object {name!r:.200} is not a list of a snapshot ({error})") from None


def upload(
    files: Files, objects: Objects, *, store: bytes, counting: Counting, start_lsn: int, kept_after: int
) -> Snapshot | None:
    """Uploads the newest checkpoint of a store and its runs, and lists them. Files that the newest snapshot has are not
    uploaded again. start_lsn: of the checkpoint. kept_after: frames after it are necessary. counting: the state
    of the topic at an LSN that is not above it.

    Returns None if there is no such checkpoint any more: a newer one has replaced it. Raises UnreachableError.
    """
    checkpoint = newest_checkpoint(files, store=store)
    if checkpoint is None or checkpoint.start_lsn != start_lsn:
        return None
    last = newest_snapshot(objects)
    there = {(one.name, one.bytes, one.crc): one for one in last.files} if last is not None else {}
    listed = []
    for name in [*run_names(checkpoint), checkpoint_name(checkpoint.number)]:
        try:
            size, crc = _measured(files, name)
            found = there.get((name, size, crc))
            if found is None:
                found = SnapshotFile(name, f"{_FILES}{counting.epoch:016x}/{start_lsn:016x}/{name}", size, crc)
                objects.put(found.object, _pieces(files, name))
        except FileNotFoundError:
            return None  # a newer checkpoint does not list the run
        listed.append(found)
    snapshot = Snapshot(
        kept_after, counting.position, counting.epoch, counting.lsn, counting.crc, counting.closed, listed
    )
    objects.put(f"{_LISTS}{start_lsn:016x}-{counting.epoch:016x}.json", [msgspec.json.encode(snapshot)])
    return snapshot


def download(files: Files, objects: Objects, snapshot: Snapshot) -> None:
    """Makes the files of a snapshot. Raises DamagedStoreError for an object that is missing or differs,
    UnreachableError, StoreFullError."""
    for one in snapshot.files:
        try:
            replace_in_pieces(files, one.name, objects.get(one.object))
        except FileNotFoundError:
            raise DamagedStoreError(f"the object {one.object!r:.200} of a snapshot is missing") from None
        if (one.bytes, one.crc) != _measured(files, one.name):
            raise DamagedStoreError(f"the object {one.object!r:.200} differs from the file that was uploaded")


def _pieces(files: Files, name: str) -> Iterator[bytes]:
    file = files.open(name)
    try:
        position, size = 0, file.size()
        while position < size:
            piece = file.read_at(position, SNAPSHOT_PIECE_BYTES)
            position += len(piece)
            yield piece
    finally:
        file.close()


def _measured(files: Files, name: str) -> tuple[int, int]:
    """Returns the bytes of a file and their checksum."""
    size = crc = 0
    for piece in _pieces(files, name):
        size, crc = size + len(piece), crc32c(piece, crc)
    return size, crc
