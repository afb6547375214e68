"""An index of a line file: finds the lines of a URL or of a host without reading the file. It can always be made again.

The owner of the line file writes sorted runs into a folder next to it. Each run covers one part of the file; the runs
follow one another without a gap from the beginning. Lines after the last run are found by reading them.

    run    := header block*           pages-000000000000-000000200000.run: the lines from one byte to another
    header := "ORLINES1" | key, 16 bytes | begin u64 | end u64 | entries u64 | digest, 8 bytes | crc32 of these u32
    block  := keys u64 * n | offsets, low u32 * n | offsets, high u16 * n | crc32 of these u32

A block has 256 entries, the last one of a run has fewer. Entries are sorted by key, then by offset. The high half of a
key is a keyed hash of the line's host, the low half one of its URL, or 0 for lines of requests. So the lines of a host
are neighbours. `digest` is that of the bytes of the line file before `end`: by it, a reader recognises another file.

An entry is a hint. A reader compares it with its line, and reads the whole file if the index and the file disagree.
Nothing is synced: a torn block fails its checksum.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import struct
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, BinaryIO, Final, NamedTuple, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from outrider import kernels
from outrider.archive.projection import tame
from outrider.errors import DamagedStoreError, OutriderError, StoreError
from outrider.limits import (
    LINE_INDEX_FANOUT,
    LINE_INDEX_RETRY_BYTES,
    LINE_INDEX_RUN_BYTES,
    LINE_INDEX_STEP_BLOCKS,
    OUTPUT_LINE_BYTES_MAX,
)
from outrider.storage.files import TEMPORARY_SUFFIX, Directory, File, Files, remove_if_possible
from outrider.url.spelling import undotted

INDEX_FOLDER: Final = "index"
READ_BACK_BYTES: Final = 1 << 20
BLOCK_ENTRIES: Final = 256  # the last step of a search reads 4 KB
_MAGIC: Final = b"ORLINES1"
_HEADER: Final = struct.Struct("<8s16sQQQ8s")
_CRC: Final = struct.Struct("<I")
_HEADER_BYTES: Final = _HEADER.size + _CRC.size
_ENTRY_BYTES: Final = 14
_BLOCK_BYTES: Final = BLOCK_ENTRIES * _ENTRY_BYTES + _CRC.size
_KEY_BYTES: Final = kernels.FINGERPRINT_KEY_BYTES
_DIGESTED_BYTES: Final = 4_096  # some lines, each with a token and an instant of its own
_LINE_READ_BYTES: Final = 4_096  # most lines are shorter
_ATTEMPTS: Final = 3  # to read runs that their owner merges meanwhile
_LINES_AT_ONCE: Final = 1_024
_NAME: Final = re.compile(r"([a-z]+)-([0-9a-f]{12})-([0-9a-f]{12})\.run")
_BUSY: Final = 99  # the level of a run that is merged: no level is as high
_KEY_MAX: Final = (1 << 64) - 1
_OFFSET_MAX: Final = (1 << 63) - 1
_LOW: Final = np.uint64(0xFFFF_FFFF)
_HALF: Final = np.uint64(32)

_Keys = npt.NDArray[np.uint64]
_Offsets = npt.NDArray[np.int64]
_Pair = tuple[_Offsets, _Offsets]
_Marks = npt.NDArray[np.bool_]
Wanted = Callable[[dict[str, Any]], bool]


class StaleIndexError(OutriderError):
    """The index does not belong to this line file, or is damaged."""


# -- the keys of lines -------------------------------------------------------------------------------------------------

_PAGE_HTTP: Final = b'{"url":"http://'
_PAGE_HTTPS: Final = b'{"url":"https://'
_REQUEST: Final = b'{"host":"'
_WINDOW_BYTES: Final = 80  # the beginning of a line, with hosts of the usual length


class _Spans(NamedTuple):
    """Where each line has its host and its URL, in the bytes of all lines; and which lines are not of the usual form:
    these are decoded."""

    hosts: _Pair
    urls: _Pair
    regular: _Marks


def _split(octets: bytes) -> _Pair:
    """Returns where each line begins and ends."""
    ends = np.flatnonzero(np.frombuffer(octets, np.uint8) == ord("\n"))
    return np.concatenate(([0], ends[:-1] + 1)), ends


def keys_of(octets: bytes, begins: _Offsets, ends: _Offsets, key: bytes) -> tuple[_Keys, _Marks]:
    """Returns the key of each line in `octets`, and whether it has one: a line without URL and host has none."""
    octets = octets.ljust(_WINDOW_BYTES, b"\0")
    spans = (_request_spans if octets.startswith(_REQUEST) else _page_spans)(octets, begins, ends)
    has_key = np.ones(len(begins), np.bool_)
    odd = np.flatnonzero(~spans.regular).tolist()
    texts: list[bytes] = []
    at = len(octets)
    for row in odd:
        host, url = _texts_of_line(octets[begins[row] : ends[row]])
        has_key[row] = bool(host or url)
        for (starts, stops), text in ((spans.hosts, host), (spans.urls, url)):
            starts[row], stops[row] = at, at + len(text)
            texts.append(text)
            at += len(text)
    if odd:
        octets = b"".join((octets, *texts))
    keys = (_hashed(octets, spans.hosts, key) & _LOW) << _HALF
    starts, stops = spans.urls
    if stops.any():
        keys |= np.where(starts < stops, _hashed(octets, spans.urls, key) & _LOW, np.uint64(0))
    return keys, has_key


def _hashed(octets: bytes, spans: _Pair, key: bytes) -> _Keys:
    return np.frombuffer(kernels.hash_spans(octets, *spans, key), np.uint64)


def _windows(octets: bytes, begins: _Offsets) -> npt.NDArray[np.uint8]:
    """Returns the first bytes of each line, a row for each; those of another line for a line too near to the end."""
    windows = np.lib.stride_tricks.sliding_window_view(np.frombuffer(octets, np.uint8), _WINDOW_BYTES)
    return windows[np.minimum(begins, len(windows) - 1)]


def _starts_with(windows: npt.NDArray[np.uint8], head: bytes) -> _Marks:
    matches: _Marks = (windows[:, : len(head)] == np.frombuffer(head, np.uint8)).all(axis=1)
    return matches


def _page_spans(octets: bytes, begins: _Offsets, ends: _Offsets) -> _Spans:
    """The spans of lines that begin with the URL."""
    windows = _windows(octets, begins)
    secure = _starts_with(windows, _PAGE_HTTPS)
    regular = secure | _starts_with(windows, _PAGE_HTTP)
    beyond = windows[:, len(_PAGE_HTTPS) :]
    marks = (beyond == ord("/")) | (beyond == ord(":"))
    after = marks.argmax(axis=1)
    first, last = begins + len(_PAGE_HTTP) + secure, begins + len(_PAGE_HTTPS) + after
    rows = np.arange(len(begins))
    regular &= marks[rows, after] & (last > first) & (begins <= len(octets) - _WINDOW_BYTES)
    regular &= (windows[rows, first - begins] != ord("[")) & (windows[rows, last - begins - 1] != ord("."))
    find = octets.find
    quotes = np.array([find(b'"', at) for at in (begins + len(_PAGE_HTTPS)).tolist()], np.int64)
    regular &= (quotes > last) & (quotes < ends)
    return _regular_spans(octets, (first, last), (begins + len(b'{"url":"'), quotes), regular)


def _request_spans(octets: bytes, begins: _Offsets, ends: _Offsets) -> _Spans:
    """The spans of lines that begin with the host. Their URLs have no part in the key."""
    windows = _windows(octets, begins)
    regular = _starts_with(windows, _REQUEST)
    after = (windows[:, len(_REQUEST) :] == ord('"')).argmax(axis=1)
    first, nothing = begins + len(_REQUEST), np.zeros(len(begins), np.int64)
    regular &= (after > 0) & (begins <= len(octets) - _WINDOW_BYTES)
    return _regular_spans(octets, (first, first + after), (nothing, nothing), regular)


def _regular_spans(octets: bytes, hosts: _Pair, urls: _Pair, regular: _Marks) -> _Spans:
    """Returns spans in which each text has only one form: one with a backslash has others too, and is decoded."""
    host_starts, host_ends, url_starts, url_ends = (np.where(regular, column, 0) for column in (*hosts, *urls))
    for starts, ends in ((host_starts, host_ends), (url_starts, url_ends)):
        if b"\\" in kernels.gather_spans(octets, starts, ends):
            pairs = zip(starts.tolist(), ends.tolist(), strict=True)
            regular &= np.fromiter((b"\\" not in octets[start:end] for start, end in pairs), np.bool_, len(starts))
    return _Spans((host_starts, host_ends), (url_starts, url_ends), regular)


def _texts_of_line(line: bytes) -> tuple[bytes, bytes]:
    """Returns host and URL of any line as the key has them; b"" for a text that the line or the key does not have."""
    try:
        fields = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return b"", b""
    if not isinstance(fields, dict):
        return b"", b""
    host, url = fields.get("host"), fields.get("url")
    if isinstance(host, str):
        return _text(host), b""
    return (_host_in(_text(url)), _text(url)) if isinstance(url, str) else (b"", b"")


def _text(text: str) -> bytes:
    """Returns a text as a line contains it between its quotation marks."""
    return tame(msgspec.json.encode(text))[1:-1]


def _host_in(url: bytes) -> bytes:
    """Returns the host in a URL, without port and without the dot at its end; b"" for a text that is not a URL."""
    scheme, found, rest = url.partition(b"://")
    if scheme not in (b"http", b"https") or not found:
        return b""
    authority = rest.partition(b"/")[0]
    if authority.startswith(b"["):
        return authority.partition(b"]")[0] + b"]"
    return undotted(authority.partition(b":")[0].decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def _key_of_url(url: str, key: bytes) -> int:
    return _key_of(_host_in(_text(url)), _text(url), key)


def _key_of_host(host: str, key: bytes) -> int:
    """Returns the smallest key of the host: the half of the URL is 0."""
    return _key_of(_text(host), b"", key)


def _key_of(host: bytes, url: bytes, key: bytes) -> int:
    spans = np.array([0, len(host)], np.int64), np.array([len(host), len(host) + len(url)], np.int64)
    of_host, of_url = map(int, _hashed(host + url, spans, key))
    return (of_host & 0xFFFF_FFFF) << 32 | (of_url & 0xFFFF_FFFF if url else 0)


# -- one run -----------------------------------------------------------------------------------------------------------


class _Place(NamedTuple):
    """The part of the line file that a run covers."""

    begin: int
    end: int

    def name(self, stream: str) -> str:
        return f"{stream}-{self.begin:012x}-{self.end:012x}.run"

    @property
    def level(self) -> int:
        """How often its lines were merged, by its length."""
        units, level = (self.end - self.begin) // (LINE_INDEX_RUN_BYTES * 7 // 8), 0
        while units >= LINE_INDEX_FANOUT:
            units //= LINE_INDEX_FANOUT
            level += 1
        return level


def _chain(names: Iterable[str], stream: str) -> list[_Place]:
    """Returns the runs of a line file that follow one another from its beginning, the longest ones."""
    ends: dict[int, int] = {}
    for name in names:
        match = _NAME.fullmatch(name)
        if match is not None and match[1] == stream:
            begin, end = int(match[2], 16), int(match[3], 16)
            ends[begin] = max(end, ends.get(begin, 0))
    chain: list[_Place] = []
    at = 0
    while (end := ends.get(at, 0)) > at:
        chain.append(_Place(at, end))
        at = end
    return chain


def _digest_before(lines: File, end: int) -> bytes:
    begin = max(0, end - _DIGESTED_BYTES)
    return hashlib.blake2b(lines.read_at(begin, end - begin), digest_size=8).digest()


def _header(key: bytes, place: _Place, entries: int, digest: bytes) -> bytes:
    head = _HEADER.pack(_MAGIC, key, *place, entries, digest)
    return head + _CRC.pack(zlib.crc32(head))


def _blocks(keys: _Keys, offsets: _Offsets) -> bytes:
    """Returns sorted entries as blocks."""
    low, high = (offsets & 0xFFFF_FFFF).astype("<u4"), (offsets >> 32).astype("<u2")
    parts: list[bytes] = []
    for at in range(0, len(keys), BLOCK_ENTRIES):
        to = at + BLOCK_ENTRIES
        body = keys[at:to].tobytes() + low[at:to].tobytes() + high[at:to].tobytes()
        parts += (body, _CRC.pack(zlib.crc32(body)))
    return b"".join(parts)


def _entries_of(block: bytes) -> tuple[_Keys, _Offsets]:
    """Returns the keys and the offsets in a block without its checksum."""
    count = len(block) // _ENTRY_BYTES
    low, high = np.frombuffer(block, "<u4", count, 8 * count), np.frombuffer(block, "<u2", count, 12 * count)
    return np.frombuffer(block, "<u8", count), high.astype(np.int64) << 32 | low


class _LineRun:
    """A run, open for reading. Raises StaleIndexError for a damaged one, and for one of another line file."""

    def __init__(self, files: Files, stream: str, place: _Place, lines: File) -> None:
        """Raises FileNotFoundError too, if its owner merged it meanwhile."""
        self._name = place.name(stream)
        self._files = files
        self._file = files.open(self._name)
        try:
            self.key, self.entries = self._read_header(place, lines)
        except BaseException:
            self._file.close()
            raise
        self.block_count = -(-self.entries // BLOCK_ENTRIES)
        self._known: dict[int, bytes] = {}

    def _read_header(self, place: _Place, lines: File) -> tuple[bytes, int]:
        head = self._file.read_at(0, _HEADER_BYTES)
        if len(head) < _HEADER_BYTES or head[-_CRC.size :] != _CRC.pack(zlib.crc32(head[: -_CRC.size])):
            raise self._stale("its header is damaged")
        magic, key, begin, end, entries, digest = _HEADER.unpack(head[: -_CRC.size])
        blocks = -(-entries // BLOCK_ENTRIES)
        size = _HEADER_BYTES + entries * _ENTRY_BYTES + blocks * _CRC.size
        if magic != _MAGIC or (begin, end) != place or self._file.size() != size:
            raise self._stale("its header does not match its name and its length")
        if lines.size() < end or _digest_before(lines, end) != digest:
            raise self._stale("it was made of another line file")
        return key, entries

    def _stale(self, why: str) -> StaleIndexError:
        return StaleIndexError(f"{self._files.describe(self._name)}: {why}")

    def blocks(self, first: int, count: int) -> tuple[_Keys, _Offsets]:
        """Returns the entries of some blocks, one at least."""
        columns = [_entries_of(body) for body in self.bodies(first, count)]
        return np.concatenate([keys for keys, _ in columns]), np.concatenate([offsets for _, offsets in columns])

    def bodies(self, first: int, count: int) -> Iterator[bytes]:
        """Yields blocks without their checksums."""
        count = min(count, self.block_count - first)
        octets = self._file.read_at(_HEADER_BYTES + first * _BLOCK_BYTES, count * _BLOCK_BYTES)
        for number in range(count):
            block = octets[number * _BLOCK_BYTES : (number + 1) * _BLOCK_BYTES]
            body = block[: -_CRC.size]
            if not body or len(body) % _ENTRY_BYTES or block[len(body) :] != _CRC.pack(zlib.crc32(body)):
                raise self._stale(f"block {first + number} is damaged")
            yield body

    def _keys(self, number: int) -> memoryview:
        """Returns the keys of a block. A search reads few of them, so no array is made."""
        body = self._known.get(number) or self._known.setdefault(number, next(self.bodies(number, 1)))
        return memoryview(body)[: len(body) // _ENTRY_BYTES * 8].cast("Q")

    def _first_block(self, least: int) -> int:
        """Returns the first block with a key that is not smaller; the number of blocks without one."""
        return bisect_left(range(self.block_count), least, key=lambda number: self._keys(number)[-1])

    def offsets_of_key(self, wanted: int) -> Iterator[int]:
        """Yields the offsets of the lines with a key, the last one first."""
        last = self._first_block(wanted + 1)
        for number in range(min(last, self.block_count - 1), -1, -1):
            keys = self._keys(number)
            begin, end = bisect_left(keys, wanted), bisect_right(keys, wanted)
            if begin < end:
                yield from _entries_of(self._known[number])[1][begin:end][::-1].tolist()
            if begin > 0:
                return

    def offsets_of_host(self, least: int) -> _Offsets:
        """Returns the offsets of the lines whose keys have the upper half of `least`, in the order of the file."""
        most = least | 0xFFFF_FFFF
        found: list[_Offsets] = [np.zeros(0, np.int64)]
        for number in range(self._first_block(least), self.block_count):
            keys, offsets = self.blocks(number, 1)
            found.append(offsets[(keys >= least) & (keys <= most)])
            if keys[-1] > most:
                break
        return np.sort(np.concatenate(found))

    def close(self) -> None:
        self._file.close()


# -- the owner ---------------------------------------------------------------------------------------------------------


class _MergeCursor:
    """The next entries of a run that is merged."""

    def __init__(self, run: _LineRun) -> None:
        self.run = run
        self.keys, self.offsets = np.zeros(0, np.uint64), np.zeros(0, np.int64)
        self._read = 0

    def fill(self) -> bool:
        """Reads entries if no entry is left. Returns whether the cursor has entries."""
        if not len(self.keys) and self._read < self.run.block_count:
            self.keys, self.offsets = self.run.blocks(self._read, LINE_INDEX_STEP_BLOCKS)
            self._read += LINE_INDEX_STEP_BLOCKS
        return len(self.keys) > 0

    def is_read(self) -> bool:
        """Whether no block is left after the entries in memory."""
        return self._read >= self.run.block_count

    def take(self, key: np.uint64, offset: np.int64) -> tuple[_Keys, _Offsets]:
        """Returns the entries up to this one, in the order of keys and offsets, and removes them here."""
        low, high = (int(np.searchsorted(self.keys, key, side)) for side in ("left", "right"))
        count = low + int(np.searchsorted(self.offsets[low:high], offset, "right"))
        taken = self.keys[:count], self.offsets[:count]
        self.keys, self.offsets = self.keys[count:], self.offsets[count:]
        return taken


class _Merge:
    """Neighbouring runs become one run, in steps."""

    def __init__(self, files: Files, stream: str, places: Sequence[_Place], lines: File) -> None:
        self.places = list(places)
        self.place = _Place(places[0].begin, places[-1].end)
        self._files = files
        self._name = self.place.name(stream)
        self._cursors: list[_MergeCursor] = []
        self._file: File | None = None
        try:
            self._cursors.extend(_MergeCursor(_LineRun(files, stream, place, lines)) for place in places)
            self._file = files.open(self._name + TEMPORARY_SUFFIX, create=True)
            self._file.truncate(0)
            entries = sum(cursor.run.entries for cursor in self._cursors)
            head = _header(self._cursors[0].run.key, self.place, entries, _digest_before(lines, self.place.end))
            self._file.write_at(0, head)
        except BaseException:
            self.close()
            raise
        self._written = _HEADER_BYTES
        self._rest: tuple[_Keys, _Offsets] = (np.zeros(0, np.uint64), np.zeros(0, np.int64))

    def step(self) -> bool:
        """Merges the next entries. Returns whether the run is complete; then it has its name."""
        assert self._file is not None, "close comes last"
        live = [cursor for cursor in self._cursors if cursor.fill()]
        # No entry that is not in memory yet precedes the smallest last entry of a run with more blocks.
        lasts = [(cursor.keys[-1], cursor.offsets[-1]) for cursor in live if not cursor.is_read()]
        bound = min(lasts, default=(np.uint64(_KEY_MAX), np.int64(_OFFSET_MAX)))
        taken = [self._rest, *(cursor.take(*bound) for cursor in live)]
        keys, offsets = (np.concatenate(column) for column in zip(*taken, strict=True))
        order = np.argsort(keys, kind="stable")  # the runs are in the order of their offsets
        keys, offsets = keys[order], offsets[order]
        whole = len(keys) if not lasts else len(keys) // BLOCK_ENTRIES * BLOCK_ENTRIES
        data = _blocks(keys[:whole], offsets[:whole])
        self._file.write_at(self._written, data)
        self._written += len(data)
        self._rest = keys[whole:], offsets[whole:]
        if lasts:
            return False
        self.close()
        self._files.rename(self._name + TEMPORARY_SUFFIX, self._name)
        return True

    def drop(self) -> None:
        """Removes the incomplete run."""
        self.close()
        remove_if_possible(self._files, self._name + TEMPORARY_SUFFIX)

    def close(self) -> None:
        """Closes the files."""
        for cursor in self._cursors:
            cursor.run.close()
        if self._file is not None:
            self._file.close()
            self._file = None


class Folder(Files, Protocol):
    """The folder of an index."""

    def close(self) -> None:
        """Closes its descriptor."""
        ...


class LineIndex:
    """The runs of one line file, for its owner. A call makes bounded steps; an error of the disk only delays them."""

    def __init__(
        self,
        folder: Callable[[], Folder],
        stream: str,
        lines: File,
        length: int,
        *,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """folder: opens the folder of the runs, and makes it if it is missing. stream: the word that begins the names
        of the runs. lines: the line file, whose first `length` bytes are whole lines. The index closes it."""
        self.fault: StoreError | FileNotFoundError | None = None
        """The last error of the disk. None if the last steps had no error."""
        self._folder = folder
        self._stream = stream
        self._lines = lines
        self._key = random_bytes(_KEY_BYTES)
        self._files: Folder | None = None
        self._seen = length
        self._retry_at = 0
        self._forget()
        self.advance(length)

    def __repr__(self) -> str:
        return f"<LineIndex {self._stream} {len(self._places)} runs to byte {self.covered}>"

    @property
    def covered(self) -> int:
        """The length of the part of the line file that the runs cover."""
        return self._places[-1].end if self._places else 0

    def advance(self, length: int) -> None:
        """Continues the index of a line file whose first `length` bytes are whole lines. A call reads two times the
        new lines and one more piece at most, and makes one step of a merge for each piece."""
        room = LINE_INDEX_RUN_BYTES + 2 * max(0, length - self._seen)
        self._seen = length
        if length < self._retry_at:
            return
        try:
            files = self._files or self._open(length)
            while room > 0 and length - self.covered >= LINE_INDEX_RUN_BYTES:
                room -= LINE_INDEX_RUN_BYTES
                self._add_run(files, length)
                files = self._step(files)
            if not self._at_rest:
                self._step(files)
            self.fault = None
        except (StoreError, FileNotFoundError) as error:
            # The folder is opened again when the line file has grown: a full disk is not asked at each call.
            self.fault, self._retry_at = error, length + LINE_INDEX_RETRY_BYTES
            self._close_folder()

    def _forget(self) -> None:
        self._merges: dict[int, _Merge] = {}
        self._places: list[_Place] = []
        self._unverified: list[tuple[_Place, int]] = []
        self._at_rest = False

    def _open(self, length: int) -> Folder:
        """Keeps the runs that match the first `length` bytes of the line file, and removes all others."""
        files = self._files = self._folder()
        names = files.names()
        for place in _chain(names, self._stream):
            if place.end > length or not self._matches(files, place):
                break
            self._places.append(place)
            self._unverified.append((place, 0))
        kept = {place.name(self._stream) for place in self._places}
        for name in names:
            if name.startswith(f"{self._stream}-") and name not in kept:
                remove_if_possible(files, name)
        return files

    def _matches(self, files: Files, place: _Place) -> bool:
        try:
            run = _LineRun(files, self._stream, place, self._lines)
        except (StaleIndexError, FileNotFoundError, DamagedStoreError):
            return False
        run.close()
        if not self._places:
            self._key = run.key
        return run.key == self._key

    def _add_run(self, files: Files, length: int) -> None:
        """Indexes the next lines."""
        begin, size, piece = self.covered, LINE_INDEX_RUN_BYTES, b""
        while not (end := piece.rfind(b"\n") + 1):
            piece = self._lines.read_at(begin, min(size, length - begin))
            if len(piece) < min(size, length - begin):
                raise DamagedStoreError(f"the line file of {self._stream} is shorter than {length} bytes")
            size *= 2  # a line may be longer than a run
        begins, ends = _split(piece[:end])
        keys, has_key = keys_of(piece, begins, ends, self._key)
        keys, offsets = keys[has_key], begins[has_key] + begin
        order = np.argsort(keys, kind="stable")
        place = _Place(begin, begin + end)
        head = _header(self._key, place, len(keys), _digest_before(self._lines, place.end))
        name = place.name(self._stream)
        with contextlib.closing(files.open(name + TEMPORARY_SUFFIX, create=True)) as file:
            file.truncate(0)
            file.write_at(0, head + _blocks(keys[order], offsets[order]))
        files.rename(name + TEMPORARY_SUFFIX, name)
        self._places.append(place)
        self._at_rest = False

    def _step(self, files: Folder) -> Folder:
        """Checks some blocks of an earlier process, or merges some entries. Begins again after damage. Returns the
        opened folder."""
        try:
            if self._unverified:
                self._verify(files)
            elif (merge := self._next_merge(files)) is None:
                self._at_rest = True
            elif merge.step():
                self._replace(files, merge)
        except (StaleIndexError, FileNotFoundError, DamagedStoreError):
            self._close_folder()
            return self._open(0)
        return files

    def _verify(self, files: Files) -> None:
        place, first = self._unverified.pop()
        last = first + LINE_INDEX_STEP_BLOCKS * LINE_INDEX_FANOUT
        with contextlib.closing(_LineRun(files, self._stream, place, self._lines)) as run:
            for _ in run.bodies(first, last - first):
                pass  # it checks each block
            if last < run.block_count:
                self._unverified.append((place, last))

    def _next_merge(self, files: Files) -> _Merge | None:
        """Returns the merge of the shortest runs. Longer ones continue later, so there are never many runs."""
        busy = {place for merge in self._merges.values() for place in merge.places}
        levels = [_BUSY if place in busy else place.level for place in self._places]
        for level in sorted({*levels, *self._merges} - {_BUSY}):
            if level in self._merges:
                return self._merges[level]
            for at in range(len(levels) - LINE_INDEX_FANOUT + 1):
                if max(levels[at : at + LINE_INDEX_FANOUT]) == level:
                    places = self._places[at : at + LINE_INDEX_FANOUT]
                    merge = self._merges[level] = _Merge(files, self._stream, places, self._lines)
                    return merge
        return None

    def _replace(self, files: Files, merge: _Merge) -> None:
        """Puts the merged run in the place of its parts. A reader that has listed the parts lists the folder again."""
        self._merges = {level: one for level, one in self._merges.items() if one is not merge}
        at = self._places.index(merge.places[0])
        self._places[at : at + len(merge.places)] = [merge.place]
        for place in merge.places:
            remove_if_possible(files, place.name(self._stream))

    def _close_folder(self) -> None:
        for merge in self._merges.values():
            merge.drop()
        self._forget()
        if self._files is not None:
            self._files.close()
            self._files = None

    def close(self) -> None:
        """Closes all files, also the line file. The next owner continues."""
        self._close_folder()
        self._lines.close()


# -- readers -----------------------------------------------------------------------------------------------------------


class _Search:
    """The runs of a line file for readers in any process. `covered`: the part of the file that they cover."""

    def __init__(self, path: str) -> None:
        """path: the line file."""
        self._directory, self._name = os.path.split(path)
        self._stream = self._name.partition(".")[0]
        try:
            self._places = _chain(os.listdir(os.path.join(self._directory, INDEX_FOLDER)), self._stream)
        except OSError:
            self._places = []
        self.covered = self._places[-1].end if self._places else 0

    @contextlib.contextmanager
    def _runs(self) -> Iterator[Iterator[_LineRun]]:
        """Opens the runs one after another, the newest first. Raises StaleIndexError, StoreError, FileNotFoundError."""
        with contextlib.ExitStack() as held:

            def directory(path: str) -> Directory:
                return held.enter_context(contextlib.closing(Directory(path, create=False, read_only=True)))

            folder = directory(os.path.join(self._directory, INDEX_FOLDER))
            lines = held.enter_context(contextlib.closing(directory(self._directory or ".").open(self._name)))

            def opened() -> Iterator[_LineRun]:
                for place in reversed(self._places):
                    with contextlib.closing(_LineRun(folder, self._stream, place, lines)) as run:
                        yield run

            yield opened()

    def last_line(self, file: BinaryIO, url: str, wanted: Wanted) -> dict[str, Any] | None:
        """Returns the last wanted line about a URL in the covered part."""
        key_of = functools.cache(functools.partial(_key_of_url, url))  # the runs of an index have one key
        with self._runs() as runs:
            for run in runs:
                entry = key_of(run.key)
                for offset in run.offsets_of_key(entry):
                    line = _line_at(file, offset)
                    _check([line], entry, run.key, exact=True)
                    fields = msgspec.json.decode(line, type=dict[str, Any])
                    if fields.get("url") == url and wanted(fields):
                        return fields
        return None

    def lines_of_host(self, file: BinaryIO, host: str) -> Iterator[tuple[int, bytes]]:
        """Yields offset and line of the covered lines whose keys have this host."""
        parts: list[tuple[_Offsets, int, bytes]] = []
        key_of = functools.cache(functools.partial(_key_of_host, host))
        with self._runs() as runs:
            for run in runs:
                wanted = key_of(run.key)
                parts.append((run.offsets_of_host(wanted), wanted, run.key))
        for offsets, wanted, key in reversed(parts):
            for at in range(0, len(offsets), _LINES_AT_ONCE):
                places = offsets[at : at + _LINES_AT_ONCE].tolist()
                lines = [_line_at(file, offset) for offset in places]
                _check(lines, wanted, key, exact=False)
                yield from zip(places, lines, strict=True)


def _line_at(file: BinaryIO, offset: int) -> bytes:
    """Returns the line that begins at a byte, without its end. Raises StaleIndexError where no line begins."""
    begin, size = max(0, offset - 1), _LINE_READ_BYTES
    while True:
        octets = os.pread(file.fileno(), size, begin)
        end = octets.find(b"\n", offset - begin)
        if end >= 0 and (offset == 0 or octets[:1] == b"\n"):
            return octets[offset - begin : end]
        if len(octets) < size or size > OUTPUT_LINE_BYTES_MAX or (offset and octets[:1] != b"\n"):
            raise StaleIndexError(f"no line begins at byte {offset}")
        size *= 8


def _check(lines: list[bytes], wanted: int, key: bytes, *, exact: bool) -> None:
    """Raises StaleIndexError if a line has another key than its entry. exact: the URL's half too."""
    octets = b"".join(line + b"\n" for line in lines)
    keys, has_key = keys_of(octets, *_split(octets), key)
    differs = keys ^ np.uint64(wanted)
    if not has_key.all() or (differs if exact else differs >> _HALF).any():
        raise StaleIndexError("the index and its line file differ")


def last_line(
    path: str, url: str, bytes_max: int | None = None, wanted: Wanted = lambda line: True
) -> dict[str, Any] | None:
    """Returns the last whole line about a URL in a file of pages: from the index, and for lines after it from the end
    of the file. bytes_max: how much of the file is read where there is no index. wanted: skips lines for which it is
    not true. None without a line or a file.

    Raises OSError, and DecodeError for a line that is not JSON.
    """
    with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
        for _ in range(_ATTEMPTS):
            index = _Search(path)
            found = _last_in(file, url, index.covered, bytes_max, wanted)
            if found is not None or not index.covered:
                return found
            try:
                return index.last_line(file, url, wanted)
            except FileNotFoundError:
                continue
            except (StaleIndexError, StoreError):
                break
        return _last_in(file, url, 0, bytes_max, wanted)
    return None


def _last_in(file: BinaryIO, url: str, begin: int, bytes_max: int | None, wanted: Wanted) -> dict[str, Any] | None:
    """Returns the last whole wanted line about a URL in the lines from a byte on, read from the end."""
    named = b'"url":"%b"' % _text(url)
    end = file.seek(0, os.SEEK_END)
    least = max(0, begin - 1)  # with the end of the line before
    if bytes_max is not None:
        least = max(least, end - bytes_max)
    carried = b""  # the end of a line that begins in the piece before
    whole = False  # the bytes after the last end of a line are still being written
    while end > least:
        begin = max(least, end - READ_BACK_BYTES)
        file.seek(begin)
        piece = file.read(end - begin) + carried
        end = begin
        first = 0 if begin == 0 else piece.find(b"\n") + 1
        if begin and not first:
            carried, whole = (piece, whole) if len(piece) <= OUTPUT_LINE_BYTES_MAX else (b"", False)
            continue
        last = len(piece) if whole else piece.rfind(b"\n") + 1
        carried, whole = piece[:first], True
        place = piece.rfind(named, first, last)
        while place >= 0:
            start = piece.rfind(b"\n", first, place) + 1 or first
            line = msgspec.json.decode(piece[start : piece.find(b"\n", place) + 1], type=dict[str, Any])
            if line.get("url") == url and wanted(line):
                return line
            place = piece.rfind(named, first, start)
    return None


def lines_of_host(path: str, host: str, *, indexed: bool = True) -> Iterator[tuple[int, bytes]]:
    """Yields offset and line (without its end) of all whole lines of a host, in the order of the file, and perhaps of
    hosts with the same hash. None without the file.

    Raises StaleIndexError at any line if index and file differ; with `indexed=False` the whole file is read.
    """
    with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
        index = _Search(path) if indexed else None
        at = 0
        if index is not None and index.covered:
            try:
                yield from index.lines_of_host(file, host)
            except (FileNotFoundError, StoreError) as error:
                raise StaleIndexError(str(error)) from error
            at = index.covered
        key = bytes(_KEY_BYTES)
        wanted = np.uint64(_key_of_host(host, key)) >> _HALF
        file.seek(at)
        while lines := list(islice(_whole_lines(file), _LINES_AT_ONCE)):
            octets = b"".join(lines)
            keys, has_key = keys_of(octets, *_split(octets), key)
            for line, is_of_host in zip(lines, has_key & (keys >> _HALF == wanted), strict=True):
                if is_of_host:
                    yield at, line[:-1]
                at += len(line)


def _whole_lines(file: BinaryIO) -> Iterator[bytes]:
    while (line := file.readline(OUTPUT_LINE_BYTES_MAX)).endswith(b"\n"):
        yield line
