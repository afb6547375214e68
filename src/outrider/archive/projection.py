"""A text file that repeats the log, line by line: appended after the log's sync, cut and written again on opening."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence

from outrider.archive.tail import Tail
from outrider.errors import DamagedStoreError
from outrider.identity.merkle_tree import LineTree
from outrider.storage.files import File, Files

_READ_BYTES = 1 << 20
_PLAIN = bytes(range(0x20, 0x7F))
# Controls (C0, DEL, C1), line and paragraph separators, and the marks that turn the direction of text, as UTF-8.
_STEERING = re.compile(rb"[\x00-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xa9]")


def tame(line: bytes) -> bytes:
    """One line of JSON with every character that could break a line or steer a terminal written as `\\uXXXX`."""
    if not line.translate(None, _PLAIN):
        return line
    return _STEERING.sub(lambda match: b"\\u%04x" % ord(match.group().decode("utf-8")), line)


def chained(chain: bytes, lines: Iterable[bytes]) -> bytes:
    """Returns the digest of lines after others with the digest `chain`; b"" at the start."""
    for line in lines:
        chain = hashlib.blake2b(chain + line, digest_size=16).digest()
    return chain


def _read_lines(file: File, length: int) -> Iterator[list[bytes]]:
    """Yields the lines up to a length, many at once."""
    begun = b""
    for at in range(0, length, _READ_BYTES):
        *lines, begun = (begun + file.read_at(at, min(_READ_BYTES, length - at))).split(b"\n")
        yield lines


class Projection:
    """Lines in one file; the caller logs `length` with its place in the log after a `sync`, and opens there again."""

    def __init__(self, files: Files, name: str, *, has_tree: bool = False) -> None:
        """has_tree: whether it keeps a tree over its lines."""
        self._has_tree = has_tree
        self.tree = LineTree()
        """The tree over all lines (RFC 9162), empty without one."""
        self._files = files
        self._name = name
        self._tail: Tail | None = None
        self._new_name = False
        self._chain = b""

    def __repr__(self) -> str:
        return f"<Projection {self._name} {self.length} bytes>"

    @property
    def chain(self) -> str:
        """A digest of all lines in order, as 32 hex digits: each line is hashed with the digest of the earlier ones."""
        return self._chain.hex()

    @property
    def length(self) -> int:
        """Bytes of whole lines; durable after `sync`."""
        return self._tail.length if self._tail is not None else 0

    def open_at(self, length: int, chain: str | None = None, tree: LineTree | None = None) -> None:
        """Opens the file, makes it if `length` is 0, and cuts everything after `length`.

        chain, tree: of the lines up to there, None to read them.
        Raises DamagedStoreError when the file is missing or shorter, or when no line ends there.
        """
        self.close()
        path = self._files.describe(self._name)
        try:
            file = self._files.open(self._name, create=length == 0)
        except FileNotFoundError:
            raise DamagedStoreError(f"{path} is missing; the log says it has {length} bytes") from None
        try:
            size = file.size()
            if size < length:
                raise DamagedStoreError(f"{path} has {size} bytes; the log says {length}")
            if length > 0 and file.read_at(length - 1, 1) != b"\n":
                raise DamagedStoreError(f"{path}: no line ends at byte {length}, where the log says one does")
            if size > length:
                file.truncate(length)
        except BaseException:
            file.close()
            raise
        self._take_up(file, length, chain, tree)
        self._tail = Tail(file, length, unsynced=size != length)
        self._new_name = length == 0

    def _take_up(self, file: File, length: int, chain: str | None, tree: LineTree | None) -> None:
        """Sets digest and tree of the lines up to a length."""
        self._chain = bytes.fromhex(chain or "")
        self.tree = tree or LineTree()
        reads_tree = self._has_tree and tree is None
        if chain is None or reads_tree:
            for lines in _read_lines(file, length):
                if chain is None:
                    self._chain = chained(self._chain, lines)
                if reads_tree:
                    self.tree.extend(lines)

    def append(self, lines: Sequence[bytes]) -> None:
        """Writes the lines (without their ends) in order, all or nothing. Raises StoreFullError, StoreFailedError."""
        assert self._tail is not None, "open_at comes first"
        if lines:
            tamed = [tame(line) for line in lines]
            self._tail.append(b"\n".join((*tamed, b"")))
            self._chain = chained(self._chain, tamed)
            if self._has_tree:
                self.tree.extend(tamed)

    def sync(self) -> None:
        """Returns when all appended lines are on the device. Raises StoreFullError, StoreFailedError."""
        assert self._tail is not None, "open_at comes first"
        self._tail.sync()
        if self._new_name:
            self._files.sync_directory()
            self._new_name = False

    def close(self) -> None:
        """Closes the descriptor; syncs nothing."""
        if self._tail is not None:
            self._tail.close()
            self._tail = None
