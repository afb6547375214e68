"""A disk in memory that can lose unsynced bytes, become full and refuse calls, with the same `Files` as a real one.

`FaultyFiles` contains only files. `CrashDisk` also contains the state of the device and, in order, every change
that is not on it: `crash_images` makes disks as a power cut could leave them.
"""

from __future__ import annotations

import errno
import os
import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from outrider.errors import OutriderError, StoreFailedError, StoreFullError, StoreInUseError
from outrider.storage.files import LOCK_NAME, File, flat_name

SECTOR_BYTES, PAGE_BYTES = 512, 4_096
"""What a device and a page cache write whole: the sizes at which writes tear."""


@dataclass(eq=False, slots=True)
class _Node:
    """A file's content under any name: as processes see it, and as it is on the device."""

    live: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)


@dataclass(frozen=True, slots=True)
class _Write:
    node: _Node
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class _Truncation:
    node: _Node
    length: int


@dataclass(frozen=True, slots=True)
class _Naming:
    """`old` ceases to be a name, `new` becomes the node's; either may be missing."""

    old: str | None
    new: str | None
    node: _Node


_Change = _Write | _Truncation | _Naming
_Moment = tuple[list[_Change], dict[str, _Node], dict[_Node, bytes]]  # pending, names on the device, their content


@dataclass(slots=True)
class _Failure:
    """Makes one later call fail, or all from then on."""

    calls_left: int
    error: int
    forever: bool
    verb: str | None
    partial: bool


class FaultyFiles:
    """A directory in memory. Counted calls (they change something): open of a new file, write, truncate, sync, rename,
    remove, sync_directory."""

    def __init__(self, *, capacity_bytes: int | None = None, name: str = "memory") -> None:
        """`capacity_bytes`: the size of the disk; writing beyond it is StoreFullError."""
        self.capacity_bytes = capacity_bytes
        self.calls: list[tuple[str, str]] = []
        """Every counted call: (verb, name), in order."""
        self._name = name
        self._nodes: dict[str, _Node] = {}
        self._locked = False
        self._failures: list[_Failure] = []
        self._guard = threading.RLock()
        self._other_bytes = 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {len(self._nodes)} files, {self.used_bytes()} bytes>"

    # ---------------------------------------------------------------------------------------- the Files Protocol

    def open(self, name: str, *, create: bool = False) -> File:
        flat_name(name)
        with self._guard:
            node = self._nodes.get(name)
            if node is None:
                if not create:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.describe(name))
                self._call("open", name)
                node = _Node()
                self._nodes[name] = node
                self._note(_Naming(None, name, node))
            return _FaultyFile(self, name, node)

    def names(self) -> list[str]:
        with self._guard:
            return sorted(self._nodes)

    def rename(self, old: str, new: str) -> None:
        flat_name(new)
        with self._guard:
            node = self._existing(old)
            self._call("rename", f"{old} {new}")
            del self._nodes[old]
            self._nodes[new] = node
            self._note(_Naming(old, new, node))

    def remove(self, name: str) -> None:
        with self._guard:
            node = self._existing(name)
            self._call("remove", name)
            del self._nodes[name]
            self._note(_Naming(name, None, node))

    def sync_directory(self) -> None:
        with self._guard:
            self._call("sync_directory", "")
            self._note_directory_synced()

    def free_bytes(self) -> int:
        with self._guard:
            if self.capacity_bytes is None:
                return 1 << 40
            return max(0, self.capacity_bytes - self.used_bytes())

    def lock(self) -> None:
        with self._guard:
            if self._locked:
                raise StoreInUseError(f"{self.describe()} is in use by process {os.getpid()}; stop it first")
            self._locked = True
            if LOCK_NAME not in self._nodes:
                node = _Node()
                self._nodes[LOCK_NAME] = node
                self._note(_Naming(None, LOCK_NAME, node))

    def unlock(self) -> None:
        with self._guard:
            self._locked = False

    def describe(self, name: str = "") -> str:
        return f"{self._name}/{name}" if name else self._name

    # ---------------------------------------------------------------------------------------- for tests

    def fail(
        self, nth_call: int, error: int, *, forever: bool = False, verb: str | None = None, partial: bool = False
    ) -> None:
        """Makes the nth counted call from now on (1 = the next) fail with an errno such as `errno.EIO`.

        `forever`: and all after it. `verb`: counts only calls of one kind, such as `"sync"`. `partial`: a write that
        fails leaves its first half.
        """
        with self._guard:
            self._failures.append(_Failure(nth_call, error, forever, verb, partial))

    def mend(self) -> None:
        """Ends all failures."""
        with self._guard:
            self._failures.clear()

    def fill(self, length: int) -> None:
        """The bytes of this disk's capacity that other programs use."""
        with self._guard:
            self._other_bytes = length

    def used_bytes(self) -> int:
        """The sizes of all files and of foreign content."""
        with self._guard:
            return self._other_bytes + sum(len(node.live) for node in self._nodes.values())

    def contents(self) -> dict[str, bytes]:
        """Every file's content, by name."""
        with self._guard:
            return {name: bytes(node.live) for name, node in sorted(self._nodes.items())}

    def put(self, name: str, data: bytes) -> None:
        """Makes `data` the content of a file without the store's knowledge: damage, an older copy, a foreign file."""
        with self._guard:
            self._nodes[name] = _Node(bytearray(data), bytearray(data))

    def drop(self, name: str) -> None:
        """Loses a file without the store's knowledge."""
        with self._guard:
            del self._nodes[name]

    def copy(self) -> FaultyFiles:
        """Another disk with the same files, unlocked, without capacity and failures."""
        other = FaultyFiles(name=self._name)
        for name, data in self.contents().items():
            other.put(name, data)
        return other

    # ---------------------------------------------------------------------------------------- the inside

    def _existing(self, name: str) -> _Node:
        node = self._nodes.get(name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.describe(name))
        return node

    def _call(self, verb: str, name: str) -> None:
        self._call_partial(verb, name)

    def _call_partial(self, verb: str, name: str) -> OutriderError | None:
        """Counts a call; raises the failure that is due, or returns it when half of the write is to be done first."""
        self.calls.append((verb, name))
        due: _Failure | None = None
        for failure in list(self._failures):
            if failure.verb not in (None, verb):
                continue
            failure.calls_left -= 1
            if failure.calls_left <= 0:
                due = due or failure
                if not failure.forever:
                    self._failures.remove(failure)
        if due is None:
            return None
        facts = f"{self.describe(name)}: {os.strerror(due.error)}"
        no_space = due.error in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) and verb not in ("sync", "sync_directory")
        error: OutriderError = StoreFullError(facts) if no_space else StoreFailedError(facts)
        if due.partial and verb == "write":
            return error
        raise error

    def _write(self, name: str, node: _Node, offset: int, data: bytes) -> None:
        with self._guard:
            failure = self._call_partial("write", name)
            if failure is not None:
                data = data[: len(data) // 2]
            growth = max(0, offset + len(data) - len(node.live))
            if growth > self.free_bytes():
                raise StoreFullError(f"{self.describe(name)} at byte {offset}: {os.strerror(errno.ENOSPC)}")
            if offset > len(node.live):
                node.live.extend(bytes(offset - len(node.live)))
            node.live[offset : offset + len(data)] = data
            self._note(_Write(node, offset, bytes(data)))
            if failure is not None:
                raise failure

    def _truncate(self, name: str, node: _Node, length: int) -> None:
        with self._guard:
            self._call("truncate", name)
            if length - len(node.live) > self.free_bytes():
                raise StoreFullError(f"{self.describe(name)} at byte {length}: {os.strerror(errno.ENOSPC)}")
            _resize(node.live, length)
            self._note(_Truncation(node, length))

    def _sync(self, name: str, node: _Node) -> None:
        with self._guard:
            self._call("sync", name)
            self._note_synced(node)

    def _read(self, node: _Node, offset: int, length: int) -> bytes:
        with self._guard:
            return bytes(node.live[offset : offset + length])

    def _note(self, change: _Change) -> None:
        """A change was made that no sync has reached."""

    def _note_synced(self, node: _Node) -> None:
        """A file's changes are on the device."""

    def _note_directory_synced(self) -> None:
        """The names are on the device."""


class CrashDisk(FaultyFiles):
    """A disk that remembers what is on the device and which changes are still on their way there."""

    def __init__(self, *, capacity_bytes: int | None = None, name: str = "disk") -> None:
        super().__init__(capacity_bytes=capacity_bytes, name=name)
        self._durable_names: dict[str, _Node] = {}
        self._pending: list[_Change] = []

    def put(self, name: str, data: bytes) -> None:
        super().put(name, data)
        self._durable_names[name] = self._nodes[name]

    def drop(self, name: str) -> None:
        super().drop(name)
        self._durable_names.pop(name, None)

    @property
    def unsynced(self) -> int:
        """How many changes would be at risk now."""
        return len(self._pending)

    def crash_images(self, rng: random.Random, count: int) -> Iterator[CrashDisk]:
        """Returns disks as a power cut at this moment could leave them, each fresh and unlocked.

        Nothing unsynced survives; everything does; the changes up to a point (each, or `count` of them if there are
        more); `count` random subsets of them; names without data and data without names; `count` times a prefix or
        subset with writes torn at 512 or 4,096 bytes and with growth without its data.
        """
        with self._guard:  # one moment for all images, even if other threads write meanwhile
            pending, device = list(self._pending), dict(self._durable_names)
            durable = {node: bytes(node.durable) for node in (*device.values(), *(one.node for one in pending))}
        moment = (pending, device, durable)
        every = range(len(pending))
        yield self._image(moment, set())
        if not pending:
            return
        yield self._image(moment, set(every))
        cuts = list(every)[1:]
        for cut in cuts if len(cuts) <= count else sorted(rng.sample(cuts, count)):
            yield self._image(moment, set(range(cut)))
        for _ in range(count):
            yield self._image(moment, {number for number in every if rng.random() < 0.5})
        namings = {number for number in every if isinstance(pending[number], _Naming)}
        if namings:
            yield self._image(moment, set(every) - namings)
            yield self._image(moment, namings)
        for turn in range(count):
            grain = PAGE_BYTES if turn % 2 else SECTOR_BYTES
            if turn % 4 < 2:
                kept = set(range(rng.randint(1, len(pending))))
            else:
                kept = {number for number in every if rng.random() < 0.7}
            yield self._image(moment, kept, rng=rng, grain=grain)

    def _image(self, moment: _Moment, kept: set[int], *, rng: random.Random | None = None, grain: int = 0) -> CrashDisk:
        """Returns the device with some of the changes; with `rng` writes are pieces of `grain` bytes, or missing."""
        pending, device, durable = moment
        nodes: dict[_Node, bytearray] = {}

        def content(node: _Node) -> bytearray:
            return nodes.setdefault(node, bytearray(durable[node]))

        names = dict(device)
        for number, change in enumerate(pending):
            if number not in kept:
                continue
            if isinstance(change, _Naming):
                if change.old is not None and names.get(change.old) is change.node:
                    del names[change.old]
                if change.new is not None:
                    names[change.new] = change.node
            elif isinstance(change, _Truncation):
                _resize(content(change.node), change.length)
            elif rng is None:
                _place(content(change.node), change.offset, change.data)
            else:
                _place_torn(content(change.node), change.offset, change.data, rng, grain)
        image = CrashDisk(name=self._name)
        for name, node in names.items():
            image.put(name, bytes(content(node)))
        return image

    def _note(self, change: _Change) -> None:
        self._pending.append(change)

    def _note_synced(self, node: _Node) -> None:
        rest: list[_Change] = []
        for one in self._pending:
            if isinstance(one, _Naming) or one.node is not node:
                rest.append(one)
            elif isinstance(one, _Write):
                _place(node.durable, one.offset, one.data)
            else:
                _resize(node.durable, one.length)
        self._pending = rest

    def _note_directory_synced(self) -> None:
        self._durable_names = dict(self._nodes)
        self._pending = [one for one in self._pending if not isinstance(one, _Naming)]


class _FaultyFile:
    """A file of a `FaultyFiles`: it stays the same file when its name changes."""

    def __init__(self, files: FaultyFiles, name: str, node: _Node) -> None:
        self._files = files
        self._name = name
        self._node = node

    def read_at(self, offset: int, length: int) -> bytes:
        return self._files._read(self._node, offset, length)

    def write_at(self, offset: int, data: bytes) -> None:
        self._files._write(self._name, self._node, offset, data)

    def size(self) -> int:
        return len(self._node.live)

    def truncate(self, length: int) -> None:
        self._files._truncate(self._name, self._node, length)

    def sync(self) -> None:
        self._files._sync(self._name, self._node)

    def close(self) -> None:
        """Closes nothing: it has no descriptor."""


def _resize(content: bytearray, length: int) -> None:
    if length < len(content):
        del content[length:]
    else:
        content.extend(bytes(length - len(content)))


def _place(content: bytearray, offset: int, data: bytes) -> None:
    if offset + len(data) > len(content):
        _resize(content, offset + len(data))
    content[offset : offset + len(data)] = data


def _place_torn(content: bytearray, offset: int, data: bytes, rng: random.Random, grain: int) -> None:
    """Writes all, a prefix, or any of the pieces; if the file grew, its length may change without the data."""
    how = rng.randrange(4)
    end = offset + len(data)
    if how == 0:
        _place(content, offset, data)
        return
    if how == 1 and end > len(content):
        _resize(content, end)
        return
    first = rng.randrange(0, len(data) // grain + 2)
    begin = offset
    number = 0
    while begin < end:
        stop = min(end, (begin // grain + 1) * grain)
        if number < first if how == 2 else rng.random() < 0.5:
            _place(content, begin, data[begin - offset : stop - offset])
        begin, number = stop, number + 1
