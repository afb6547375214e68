"""Records in columns: versions of cards in the order of their keys, and how many layers of them become the newest ones.

A key is (crawl, slot, low 56 bits of the fingerprint). A version is whole, with a body, or a head alone: then the body
is that of the next older version that has one. A version of state 0 says that the record is gone, with
all that was before.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from outrider.kernels import gather_spans
from outrider.kernels.card_layout import HEAD, HEAD_BYTES, OPAQUE, Heads
from outrider.limits import KEYS_LOOKED_FOR_ALONE_MAX, MERGE_ROWS

Int64s = npt.NDArray[np.int64]
Keys = npt.NDArray[Any]
"""16 bytes each: crawl << 16 | slot, the fingerprint without its high byte; u64 big endian, so they sort as keys do."""

KEY_BYTES = 16
FINGERPRINT_MASK = np.uint64((1 << 56) - 1)
_LENGTHS = ("url_bytes", "referrer_bytes", "extra_bytes")
_KEY = np.dtype((np.bytes_, KEY_BYTES))
_KEY_OF_HEAD = struct.Struct("<Q32xI4xH")  # fingerprint, crawl, slot
_SORT_BITS_MIN = 24  # that must be left for the fingerprint in a number to sort by


def body_bytes(heads: Heads) -> Int64s:
    """How long the body of each card is, as its head says."""
    lengths = heads["url_bytes"].astype(np.int64)
    lengths += heads["referrer_bytes"]
    lengths += heads["extra_bytes"]
    return lengths


def pack_keys(crawls: npt.ArrayLike, slots: npt.ArrayLike, fingerprints: npt.ArrayLike) -> Keys:
    """The keys of these columns (u32, u16, u64), of one length."""
    prints = np.asarray(fingerprints, np.uint64)
    pairs = np.empty((len(prints), 2), ">u8")
    pairs[:, 0] = np.asarray(crawls, np.uint32).astype(np.uint64) << np.uint64(16) | np.asarray(slots, np.uint16)
    pairs[:, 1] = prints & FINGERPRINT_MASK
    return pairs.view(_KEY).ravel()


def distinct(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Returns the distinct values in order. The first call of `np.unique` loads masked arrays, which needs 20 ms."""
    ordered = np.sort(values)
    first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


class RecordColumns:
    """heads: n of `HEAD`. whole: n of bool. The body of row i is arena[offsets[i]:offsets[i + 1]]."""

    __slots__ = ("_keys", "_prints", "arena", "heads", "offsets", "whole")

    def __init__(self, heads: Heads, whole: npt.NDArray[np.bool_], arena: bytes | memoryview, offsets: Int64s) -> None:
        self.heads = heads
        self.whole = whole
        self.arena = arena
        self.offsets = offsets
        self._keys: Keys | None = None
        self._prints: npt.NDArray[np.uint32] | None = None

    def __len__(self) -> int:
        return len(self.heads)

    @classmethod
    def none(cls) -> RecordColumns:
        """No records."""
        return cls(np.zeros(0, HEAD), np.zeros(0, np.bool_), b"", np.zeros(1, np.int64))

    @classmethod
    def concatenate(cls, parts: Sequence[RecordColumns]) -> RecordColumns:
        """One after the other, not sorted."""
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return cls.none()
        rows = sum(len(part) for part in parts)
        offsets = np.empty(rows + 1, np.int64)
        heads = np.empty(rows, OPAQUE)
        bodies, row, base = [], 0, 0
        for part in parts:
            end = row + len(part)
            first, last = int(part.offsets[0]), int(part.offsets[-1])
            np.add(part.offsets[:-1], base - first, out=offsets[row:end])
            heads[row:end] = part.heads.view(OPAQUE)
            bodies.append(memoryview(part.arena)[first:last])
            row, base = end, base + last - first
        offsets[rows] = base
        return cls(heads.view(HEAD), np.concatenate([part.whole for part in parts]), b"".join(bodies), offsets)

    @property
    def keys(self) -> Keys:
        """The key of each record; packed once."""
        if self._keys is None:
            self._keys = pack_keys(self.heads["crawl"], self.heads["slot"], self.heads["fingerprint"])
        return self._keys

    @property
    def prints(self) -> npt.NDArray[np.uint32]:
        """The low bits of the fingerprint of each record; made once."""
        if self._prints is None:
            self._prints = self.heads["fingerprint"].astype(np.uint32)
        return self._prints

    def rows_of(self, keys: Keys) -> npt.NDArray[np.intp]:
        """Returns the rows with these keys (sorted), where the records are sorted and have distinct keys.

        Few keys are searched one by one: packing the keys of all recent records would need tens of milliseconds.
        """
        if self._keys is None and len(keys) <= KEYS_LOOKED_FOR_ALONE_MAX:
            return np.array([row for key in _pairs(keys) if (row := self._row_of(key)) is not None], np.intp)
        first, last = self.keys.searchsorted(keys[[0, -1]]).tolist() if len(keys) else (0, 0)
        if first == last and (last == len(self) or not len(keys) or self.keys[last] != keys[-1]):
            return np.zeros(0, np.intp)  # keys of one host are neighbours, and few pieces contain any of them
        rows = self.keys.searchsorted(keys)
        return rows[self.keys.take(rows, mode="clip") == keys] if len(self) else rows[:0]

    def _row_of(self, key: tuple[int, int]) -> int | None:
        octets = self.heads.view(np.uint8).data

        def key_at(row: int) -> tuple[int, int]:
            fingerprint, crawl, slot = _KEY_OF_HEAD.unpack_from(octets, HEAD_BYTES * row)
            return crawl << 16 | slot, fingerprint & int(FINGERPRINT_MASK)

        row = bisect_left(range(len(self)), key, key=key_at)
        return row if row < len(self) and key_at(row) == key else None

    @property
    def nbytes(self) -> int:
        """Bytes of memory that they use, keys included."""
        return len(self.heads) * (HEAD_BYTES + 1 + 8 + KEY_BYTES) + int(self.offsets[-1] - self.offsets[0])

    def slice(self, begin: int, end: int) -> RecordColumns:
        """Rows begin to end, over the same memory."""
        part = RecordColumns(self.heads[begin:end], self.whole[begin:end], self.arena, self.offsets[begin : end + 1])
        if self._keys is not None:
            part._keys = self._keys[begin:end]
        return part

    def take(self, rows: npt.NDArray[np.intp], bodies: npt.NDArray[np.intp] | None = None) -> RecordColumns:
        """Returns the heads of these rows with the bodies of those (-1: without a body)."""
        if bodies is None:
            bodies = rows
            whole = self.whole[rows]
            starts, ends = self.offsets[:-1][rows], self.offsets[1:][rows]
        else:
            whole = bodies >= 0
            starts, ends = self.offsets[:-1][bodies], self.offsets[1:][bodies]
            ends = np.where(whole, ends, starts)
        heads = self.heads.view(OPAQUE)[rows].view(HEAD)
        if bodies is not rows:
            other = np.flatnonzero((bodies != rows) & whole)
            if len(other):
                for name in _LENGTHS:
                    heads[name][other] = self.heads[name][bodies[other]]
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(ends - starts, out=offsets[1:])
        return RecordColumns(heads, whole, gather_spans(self.arena, starts, ends), offsets)

    def living(self) -> RecordColumns:
        """Drops removed records. A head whose body is in no run is marked as without a body."""
        state = self.heads["state"]
        found = self if state.all() else self.take(np.flatnonzero(state))
        if found.whole.all():
            return found
        heads = found.heads.view(OPAQUE).copy().view(HEAD)
        for name in _LENGTHS:
            heads[name][~found.whole] = 0
        return RecordColumns(heads, found.whole, found.arena, found.offsets)


def prints_of(keys: Keys) -> npt.NDArray[np.uint32]:
    """Returns the low bits of the fingerprints of keys, as `RecordColumns.prints`."""
    return np.ascontiguousarray(keys).view(">u8").reshape(-1, 2)[:, 1].astype(np.uint32)


def _pairs(keys: Keys) -> Iterator[tuple[int, int]]:
    """Keys as (crawl << 16 | slot, low 56 bits of the fingerprint)."""
    numbers = np.ascontiguousarray(keys).view(">u8").reshape(-1, 2)
    yield from zip(numbers[:, 0].tolist(), numbers[:, 1].tolist(), strict=True)


def newest(records: RecordColumns) -> RecordColumns:
    """Merges versions, oldest first, to one record per key, in the order of keys."""
    if not len(records):
        return records
    order, first = _sorted(records.heads)
    if first.all():
        return records.take(order)
    begins = np.flatnonzero(first)
    heads = order[np.append(begins[1:], len(order)) - 1]
    if records.whole.all():
        return records.take(heads)
    return records.take(heads, np.maximum.reduceat(np.where(records.whole[order], order, -1), begins))


def _sorted(heads: Heads) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
    """The order of the rows by key, older ones first, and which rows of that order begin a new key."""
    high = heads["crawl"].astype(np.uint64) << np.uint64(16) | heads["slot"]
    low = heads["fingerprint"] & FINGERPRINT_MASK
    least = high.min()
    bits = int(high.max() - least).bit_length()
    first = np.ones(len(heads), np.bool_)
    row_bits = len(heads).bit_length()
    if bits + row_bits <= 64 - _SORT_BITS_MIN:
        # Sorting numbers alone is several times faster than sorting places by numbers, and one number is faster than
        # two: (crawl, slot) first, then as much of the fingerprint as has room, then the row. Where that does not
        # separate keys, the slow way decides.
        short = (high - least) << np.uint64(64 - bits) if bits else np.zeros(len(heads), np.uint64)
        short |= (low << np.uint64(8)) >> np.uint64(bits)
        rows = np.uint64((1 << row_bits) - 1)
        short &= ~rows
        short |= np.arange(len(heads), dtype=np.uint64)
        short.sort()
        order = (short & rows).view(np.int64)
        short |= rows
        np.not_equal(short[1:], short[:-1], out=first[1:])
        same = np.flatnonzero(~first)
        if not len(same) or (low[order[same]] == low[order[same - 1]]).all():
            return order, first
    order = np.lexsort((low, high))
    high, low = high[order], low[order]
    np.not_equal(high[1:], high[:-1], out=first[1:])
    first[1:] |= low[1:] != low[:-1]
    return order, first


class _Cursor:
    """How far a stream has been read, or a piece in memory."""

    __slots__ = ("_at", "_batch", "_piece", "_rest")

    def __init__(self, stream: Iterator[RecordColumns], *, piece: bool) -> None:
        self._rest = stream
        self._batch = RecordColumns.none()
        self._piece = piece
        self._at = 0

    def fill(self) -> bool:
        """Has rows at hand, or the stream is at its end."""
        while self._at >= len(self._batch):
            batch = next(self._rest, None)
            if batch is None:
                return False
            self._batch, self._at = batch, 0
        return True

    def ahead(self, reach: int) -> bytes:
        """The key up to which all records are available. In memory that is everything; `reach` rows of it suffice."""
        keys = self._batch.keys
        return bytes(keys[min(self._at + reach, len(keys)) - 1 if self._piece else -1])

    def upto(self, bound: Keys) -> RecordColumns | None:
        """The rows at hand with keys up to the bound, if there are any."""
        begin = self._at
        self._at = int(self._batch.keys.searchsorted(bound, "right"))
        return self._batch.slice(begin, self._at) if self._at > begin else None

    def rest(self) -> Iterator[RecordColumns]:
        if self._at < len(self._batch):
            yield self._batch.slice(self._at, len(self._batch))
        yield from self._rest


def merged(streams: Iterable[Iterator[RecordColumns]], pieces: Sequence[RecordColumns] = ()) -> Iterator[RecordColumns]:
    """Yields the newest records of streams (oldest stream first) and of pieces in memory above them, sorted, in parts.

    Each stream and piece is sorted, without equal keys. At most one read of each stream and MERGE_ROWS rows of the
    pieces are in memory. The first parts are small, so that the first page of a listing appears soon.
    """
    cursors = [_Cursor(stream, piece=False) for stream in streams]
    cursors += [_Cursor(iter([piece]), piece=True) for piece in pieces]
    cursors = [cursor for cursor in cursors if cursor.fill()]
    most = max(64, MERGE_ROWS // max(len(pieces), 1))
    reach = max(32, most // 16)
    while len(cursors) > 1:
        # Each round ends where the first of them runs out. Pieces look ahead from their position, not to the end of
        # fixed portions: those would run out one at a time, and each round would serve only one of them.
        bound = np.array(min(cursor.ahead(reach) for cursor in cursors), _KEY)
        parts = [part for cursor in cursors if (part := cursor.upto(bound)) is not None]
        yield newest(RecordColumns.concatenate(parts)) if len(parts) > 1 else parts[0]
        cursors = [cursor for cursor in cursors if cursor.fill()]
        reach = min(2 * reach, most)
    for cursor in cursors:
        yield from cursor.rest()
