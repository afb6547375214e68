"""Reads WARC and ARC files record by record, in bounded memory: our own, and those of other programs.

A file may be packed, with one gzip member per record, or plain. A record that cannot be read is a `Damage` with its
place. The records before it count, and so does the beginning of a record that the file cuts off.
Sources: ISO 28500:2017 (WARC 1.1); the ARC file format of the Internet Archive, version 1,
https://archive.org/web/researcher/ArcFileFormat.php
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from isal import igzip_lib

from outrider.limits import WARC_HEAD_BYTES_MAX, WARC_READ_BYTES_MAX

_STEP_BYTES: Final = 1 << 16  # read and unpacked at once
_GZIP: Final = b"\x1f\x8b"
_BLANK: Final = b"\r\n"
_ARC_LINE: Final = re.compile(rb"(\S.*) ([0-9a-fA-F.:]+) ([0-9]{14}) (\S*) ([0-9]+)\r?\n", re.DOTALL).fullmatch
_ARC_HEAD: Final = b"filedesc://"
_DIGITS: Final = re.compile(r"[0-9]{1,18}").fullmatch


class Stream(Protocol):
    """The bytes of a file from its beginning."""

    def read(self, size: int, /) -> bytes:
        """Up to `size` bytes; none at the end."""
        ...


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """One record. `offset` and `length` are its place in the file, of its gzip member if it is packed.

    `kind` is its WARC-Type, `arc_header` or `response` in an ARC file. `fields` have lower-case names; those of an ARC
    record have the names of WARC. `block` has the first bytes of the block, as many as the reader keeps. `is_cut`: the
    block has less bytes than its head says, because the file ends.
    """

    kind: str
    offset: int
    length: int
    fields: Mapping[str, str]
    block: bytes
    block_bytes: int
    is_cut: bool = False


class Damage(NamedTuple):
    """A place that could not be read, and why. is_end: the file ends there, inside a record."""

    offset: int
    why: str
    is_end: bool = False


class _BadRecord(Exception):  # noqa: N818 - it becomes a Damage
    """Why a record cannot be read."""

    def __init__(self, why: str, *, is_end: bool = False) -> None:
        self.why, self.is_end = why, is_end
        super().__init__(why)


class _NoRecord(_BadRecord):
    """No record begins at a place."""


class _Plain:
    """A file that is not packed, as one stream of lines and bytes."""

    may_pass_line = True

    def __init__(self, stream: Stream, first: bytes, begin: int) -> None:
        self._stream = stream
        self.begun_at = begin
        """The first byte of the record, or of its gzip member."""
        self._buffer, self._at = first, 0
        self._read = begin + len(first)

    @property
    def offset(self) -> int:
        """The place of the next byte in the file."""
        return self._read - (len(self._buffer) - self._at)

    def begin(self) -> bool:
        """Passes over the blank lines before a record. Returns whether there is one."""
        while self._peek(1) in (b"\r", b"\n"):
            self._at += 1
        self.begun_at = self.offset
        return bool(self._peek(1))

    def finish(self) -> None:
        """A record may be followed by anything: the next one is looked for there."""

    def line(self, bytes_max: int) -> bytes:
        """Returns the next line with its end; less at the end of the file. Raises _BadRecord for a longer one."""
        while True:
            end = self._buffer.find(b"\n", self._at, self._at + bytes_max)
            if end >= 0:
                line = self._buffer[self._at : end + 1]
                self._at = end + 1
                return line
            if len(self._buffer) - self._at >= bytes_max:
                raise _BadRecord(f"the head of a record is longer than {bytes_max:,} bytes")
            if not self._more():
                line, self._at = self._buffer[self._at :], len(self._buffer)
                return line

    def take(self, count: int) -> bytes:
        """Returns up to `count` of the next bytes, at least one; none at the end."""
        if self._at == len(self._buffer) and not self._more():
            return b""
        piece = self._buffer[self._at : self._at + count]
        self._at += len(piece)
        return piece

    def _peek(self, count: int) -> bytes:
        if self._at == len(self._buffer):
            self._more()
        return self._buffer[self._at : self._at + count]

    def _more(self) -> bool:
        """Adds bytes to the buffer. Returns whether there are more."""
        piece = self._piece()
        self._buffer, self._at = self._buffer[self._at :] + piece, 0
        return bool(piece)

    def _piece(self) -> bytes:
        piece = self._stream.read(_STEP_BYTES)
        self._read += len(piece)
        return piece


class _Packed(_Plain):
    """A file of gzip members, each as a stream of lines and bytes that ends with the member."""

    may_pass_line = False

    def __init__(self, stream: Stream, first: bytes, begin: int) -> None:
        super().__init__(stream, b"", begin)
        self._packed = first
        self._read = begin + len(first)
        self._inflater = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)
        self._is_new = True

    @property
    def offset(self) -> int:
        """The first byte after the member that was read last."""
        return self._read - len(self._packed)

    def begin(self) -> bool:
        """Begins the next member. Returns whether there is one."""
        if not self._is_new:
            self._inflater = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)
        self._buffer, self._at, self._is_new = b"", 0, False
        self.begun_at = self.offset
        if not self._packed:
            self._refill()
        return bool(self._packed)

    def finish(self) -> None:
        """Reads to the end of the member. Raises _BadRecord if it has more than blank lines."""
        while piece := self.take(_STEP_BYTES):
            if piece.strip(_BLANK):
                raise _BadRecord("its gzip member goes on after the record; each record needs a member of its own")

    def _refill(self) -> None:
        self._packed = self._stream.read(_STEP_BYTES)
        self._read += len(self._packed)

    def _piece(self) -> bytes:
        inflater = self._inflater
        while not inflater.eof:
            if inflater.needs_input and not self._packed:
                self._refill()
                if not self._packed:
                    raise _BadRecord("the file ends inside a gzip member", is_end=True)
            try:
                piece = inflater.decompress(self._packed, _STEP_BYTES)
            except igzip_lib.IsalError as error:  # type: ignore[misc]  # an instance in the stub
                raise _BadRecord(f"its gzip member is damaged ({error})") from None
            self._packed = inflater.unused_data if inflater.eof else b""
            if piece:
                return bytes(piece)
        return b""


def read_records(stream: Stream, keep_bytes: int, begin: int = 0) -> Iterator[ReadRecord | Damage]:
    """Yields the records of a file in order, and last the damage that ends it. keep_bytes: how much of each block is
    kept. begin: the place in the file where the stream begins.

    The bytes of a longer block are passed over, so memory is bounded by this and by the limits of a head. In a plain
    file, one line between two records is damage after which reading goes on: a length that is a little wrong leaves
    one. Raises the errors of `stream.read`.
    """
    first = stream.read(_STEP_BYTES)
    source = (_Packed if first.startswith(_GZIP) else _Plain)(stream, first, begin)
    may_pass_line = False
    offset = begin
    while True:
        try:
            if not source.begin():
                return
            offset = source.begun_at
            head = source.line(WARC_HEAD_BYTES_MAX)
            kind, fields, length = _head(source, head)
        except _NoRecord as bad:
            yield Damage(offset, bad.why)
            if not may_pass_line:
                return
            may_pass_line = False
            continue
        except _BadRecord as bad:
            yield Damage(offset, bad.why, bad.is_end)
            return
        made, damage = _record(source, offset, (kind, fields, length), keep_bytes)
        yield made
        if damage is not None:
            yield damage
            return
        may_pass_line = source.may_pass_line


def _record(
    source: _Plain, offset: int, head: tuple[str, dict[str, str], int], keep_bytes: int
) -> tuple[ReadRecord, Damage | None]:
    """Returns a record with its block, and the damage in or after it."""
    kind, fields, length = head
    pieces: list[bytes] = []
    kept = count = 0
    damage = None
    try:
        while count < length and (piece := source.take(length - count)):
            count += len(piece)
            if kept < keep_bytes:
                pieces.append(piece[: keep_bytes - kept])
                kept += len(pieces[-1])
        if count == length:
            source.finish()
        else:
            damage = Damage(offset, f"the block ends after {count:,} of {length:,} bytes", is_end=True)
    except _BadRecord as bad:
        damage = Damage(offset, bad.why, bad.is_end)
    is_cut = count < length
    return ReadRecord(kind, offset, source.offset - offset, fields, b"".join(pieces), count, is_cut), damage


def _head(source: _Plain, first: bytes) -> tuple[str, dict[str, str], int]:
    """Returns the kind, the fields and the length of the block of a record, after its first line. Raises _NoRecord,
    _BadRecord."""
    if first.startswith(b"WARC/"):
        return _warc_head(source)
    arc = _ARC_LINE(first)
    if arc is None:
        twice = "; the file is packed twice, unpack it once" if first.startswith(_GZIP) else ""
        raise _NoRecord(f"no record begins there, but {first.strip()[:40].decode('latin-1')!r}{twice}")
    url, address, at, media_type, length = (part.decode("utf-8", "replace") for part in arc.groups())
    kind = "arc_header" if first.startswith(_ARC_HEAD) else "response"
    fields = {
        "warc-target-uri": url,
        "warc-ip-address": address,
        "warc-date": f"{at[:4]}-{at[4:6]}-{at[6:8]}T{at[8:10]}:{at[10:12]}:{at[12:]}Z",
        "content-type": media_type,
    }
    return kind, fields, _length(length)


def _warc_head(source: _Plain) -> tuple[str, dict[str, str], int]:
    fields: dict[str, str] = {}
    room, last = WARC_HEAD_BYTES_MAX, ""
    while True:
        line = source.line(room)
        room -= len(line)
        if not line.endswith(b"\n"):
            raise _BadRecord("the file ends inside the head of a record", is_end=True)
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        if not text:
            break
        if text[0] in " \t" and last:
            fields[last] += " " + text.strip(" \t")
            continue
        name, found, value = text.partition(":")
        last = name.strip(" \t").lower() if found else ""
        if last:
            fields.setdefault(last, value.strip(" \t"))
    kind = fields.get("warc-type", "")
    if not kind:
        raise _BadRecord("a record without WARC-Type")
    return kind.lower(), fields, _length(fields.get("content-length", ""))


def _length(text: str) -> int:
    if not _DIGITS(text):
        raise _BadRecord(f"Content-Length {text[:60]!r} is not the length of a block")
    length = int(text)
    if length > WARC_READ_BYTES_MAX:
        raise _BadRecord(f"a block of {length:,} bytes is longer than {WARC_READ_BYTES_MAX:,}")
    return length
