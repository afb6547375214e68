"""Facts: the content of the log. A frame's payload is | now i64 | block … |, a block is | kind u8 | version u8 | rows
u32
| columns |.

A block contains facts of one kind, column by column. Fixed-width columns are little-endian and shuffled: the first
bytes of all rows, then the second bytes … (bytes that hardly change from row to row are then neighbours, and compress).
`text` and `blob` columns are their lengths (u32 each) and then their bytes. `cards` are the heads, shuffled likewise,
and then the bodies, whose lengths are in the heads; `heads` are heads alone. Every fact names the slot it changes and
contains absolute values, never differences. So replay of a fact twice, or of an older one before a newer one, ends in
the same state."""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from itertools import pairwise
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from outrider.clock import Instant
from outrider.errors import DamagedStoreError, ForeignStoreError
from outrider.frontier.format.card_columns import Cards
from outrider.kernels import gather_spans, shuffle_columns
from outrider.kernels.card_layout import HEAD, HEAD_BYTES, OPAQUE
from outrider.limits import FACT_TEXT_BYTES_MAX, FACTS_COMPRESSED_BYTES_MIN, FACTS_ZSTD_LEVEL, RUN_BODY_BYTES_MAX
from outrider.storage.record_columns import body_bytes

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

FRAME_KIND = 2  # the log frame kind that carries facts
PLAIN, ZSTD = 0, 1  # codecs of a frame

_WIDTHS = {"u8": "u1", "u16": "<u2", "u32": "<u4", "u64": "<u8", "i64": "<i8", "f64": "<f8"}
DTYPES = {name: np.dtype(width) for name, width in _WIDTHS.items()}
BLOCK = struct.Struct("<BBI")  # the head of a block: kind, version, rows
_NOW = struct.Struct("<q")
INSTANT_BYTES = _NOW.size


_VERSION_FAR = 31
"""No release skips this number of versions: a higher number is a byte of a text, because a length before it is
wrong."""


class Fact(IntEnum):
    """The kinds of facts; numbers are never reused."""

    __hash__ = int.__hash__  # that of Enum hashes the name, in Python, and is slow

    OPENING = 1
    CLOSING = 2
    CRAWL = 3
    HOLDER = 4
    REQUEST = 5
    WATERMARK = 6
    PROJECTION = 7
    TALLY = 8
    SCOPE = 9
    TOKEN = 10
    ERROR = 11
    RUNS = 12
    CRAWL_RULES = 13
    ACCEPTED = 14
    HOST = 16
    HOST_CELLS = 17
    AUTHORITY = 18
    ROBOTS = 19
    RULES = 20
    QUEUE = 21
    QUEUE_RULES = 22
    VOID = 23
    OUTBOX = 24
    ARRIVED = 25
    DELIVERED = 26
    ADDRESS = 27
    LOCATED = 28
    COLD_REST = 29
    LEFT = 30
    CARD = 32
    HEAD = 33
    LEASE = 35
    ERRAND = 36
    EXTEND = 37
    LOCATING = 38
    QUEUED_ERRAND = 39
    LEASED_ERRAND = 40
    RETURNS = 41
    ROBOTS_FILE = 42
    REQUEUE = 43
    CRAWL_UNIQUE = 44
    RESTED = 45
    SIGNALS = 46
    PAYMENT = 47
    LINE = 48
    CRAWL_ORDER = 49


Whole = TypeVar("Whole")
Real = TypeVar("Real")


class HostCells(Generic[Whole, Real]):
    """The durable cells of a host, as the type checker knows them: columns in memory, numbers in a draft. They are the
    columns of HOST_CELLS, below.

    ended, rest_until, refused_at: instants; gap, back_off: seconds; reason: a GapReason; answered: pages; throttle: the
    share of its rate that an overloaded host loses; latency_ms: milliseconds to a first byte; block_score: points for
    signs (policy/block_detection.py)."""

    __slots__ = ()

    ended: Whole
    rest_until: Whole
    gap: Real
    reason: Whole
    back_off: Real
    refused_at: Whole
    answered: Whole
    throttle: Real
    latency_ms: Whole
    block_score: Whole


class Applied(Enum):
    """How the tables apply the facts of a kind, by their method `_<name of the kind>`."""

    BY_ROW = "by_row"  # one fact after the other
    IN_COLUMNS = "in_columns"  # all facts of a block at once
    NOWHERE = "nowhere"  # the tables keep no such facts: lines belong to the projections, runs to the checkpoint


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a kind of fact: its name and its type (u8 u16 u32 u64 i64 f64 text blob cards heads). since: the
    first version of the kind with it; default: its value in facts of older versions."""

    name: str
    type: str
    since: int
    default: Any = None


@dataclass(frozen=True, slots=True)
class FactKind:
    """The declaration of a kind of facts. version: the written version, that of its newest column;
    in_windows: recovery may gather facts of this kind and apply their net effect (replay.py)."""

    fact: Fact
    version: int
    columns: tuple[Column, ...]
    applied: Applied
    in_windows: bool


_FIRST_VERSION = 2  # version 1 belonged to store format 1


def _column(text: str) -> Column:
    """`name:type`, or `name:type=default@version` for a later column; defaults are numbers or empty texts."""
    name, _, rest = text.partition(":")
    kind, _, later = rest.partition("=")
    if not later:
        return Column(name, kind, _FIRST_VERSION)
    default, _, since = later.partition("@")
    value: Any = default.encode() if kind == "blob" else default
    if kind in DTYPES:
        value = float(default) if kind == "f64" else int(default)
    return Column(name, kind, int(since), value)


def _kind(fact: Fact, columns: str, *, applied: Applied = Applied.BY_ROW, in_windows: bool = False) -> FactKind:
    found = tuple(map(_column, columns.split()))
    return FactKind(fact, max(column.since for column in found), found, applied, in_windows)


# The order of the kinds is the order of blocks in a frame: a fact that makes a host, queue or crawl precedes the
# facts that name it. The order of the columns is the format. Append a new column at the end, with its default and the
# next version of the kind.
KINDS: dict[int, FactKind] = {
    kind.fact: kind
    for kind in (
        _kind(Fact.OPENING, "slot:u16 number:u32 at:i64 wall:i64 boot:text elapsed:i64"),
        _kind(Fact.CRAWL, "slot:u16 row:u32 name:text generation:u32"),
        # A kind of its own, so that older releases refuse a store with such a crawl, and open the others.
        _kind(Fact.CRAWL_UNIQUE, "slot:u16 row:u32 unique:text"),
        _kind(Fact.CRAWL_ORDER, "slot:u16 row:u32 order:text"),
        _kind(Fact.CRAWL_RULES, "slot:u16 row:u32 state:u8"),
        _kind(Fact.HOLDER, "slot:u16 row:u32 name:text opening:u32"),
        _kind(Fact.SCOPE, "slot:u16 crawl:u32 url:text"),
        _kind(Fact.ERROR, "slot:u16 number:u16 text:text"),
        _kind(Fact.ACCEPTED, "slot:u16 order:u64 at:i64", in_windows=True),
        _kind(Fact.HOST, "slot:u16 host:u64 name:text", applied=Applied.IN_COLUMNS, in_windows=True),
        _kind(
            Fact.QUEUE,
            "slot:u16 queue:u64 host:u64 crawl:u32 key:text",
            applied=Applied.IN_COLUMNS,
            in_windows=True,
        ),
        _kind(
            Fact.QUEUE_RULES,
            "slot:u16 queue:u64 paused:u8 blocked_until:i64 delay:f64 limit:u32",
            applied=Applied.IN_COLUMNS,
        ),
        _kind(Fact.VOID, "slot:u16 queue:u64 order:u64"),
        _kind(Fact.AUTHORITY, "slot:u16 name:text"),
        _kind(
            Fact.OUTBOX,
            "slot:u16 sequence:u64 target:u16 crawl:text key:text due:i64 priority:f64 depth:u16 hops:u8 "
            "seed:u8 referrer:text metadata:blob url:text unique:u8=0@3 unique_key:blob=@3",
        ),
        _kind(Fact.ARRIVED, "slot:u16 source:u16 sequence:u64"),
        _kind(Fact.DELIVERED, "slot:u16 sequence:u64"),
        _kind(Fact.LEFT, "slot:u16 host:u64 token:u64 address:text"),
        _kind(Fact.ADDRESS, "slot:u16 host:u64 address:text"),
        _kind(Fact.LOCATED, "slot:u16 host:u64 address:text expires:i64 next_at:i64 attempts:u8 error:text"),
        _kind(
            Fact.HOST_CELLS,
            "slot:u16 host:u64 ended:i64 rest_until:i64 gap:f64 reason:u8 back_off:f64 refused_at:i64 answered:u32 "
            "throttle:f64=0.0@3 latency_ms:u16=0@4 block_score:u8=0@5",
            applied=Applied.IN_COLUMNS,
            in_windows=True,
        ),
        _kind(Fact.COLD_REST, "slot:u16 at:i64 delay:f64"),
        _kind(
            Fact.ROBOTS,
            "slot:u16 name:text state:u8 expires:i64 next_at:i64 attempts:u8 hops:u8 status:u16 url:text error:text "
            "again:u8=2@3 fetched:i64=0@4 failing_since:i64=0@4",
        ),
        _kind(Fact.ROBOTS_FILE, "slot:u16 digest:u64 body:blob"),
        _kind(Fact.RULES, "slot:u16 name:text digest:u64 body:blob"),
        _kind(
            Fact.QUEUED_ERRAND,
            "slot:u16 kind:u8 crawl:u32 name:text url:text next_at:i64 attempts:u8 hops:u8 losses:u8 error:text "
            "ended:u8 etag:text=@3 last_modified:text=@3 digest:blob=@3 fetched:i64=0@3 change_rate:f64=0.0@3 "
            "change_confidence:f64=0.0@3 revisit_interval:f64=0.0@3 revisit_memory:f64=0.0@3",
        ),
        _kind(Fact.HEAD, "token:u64 heads:heads", applied=Applied.IN_COLUMNS, in_windows=True),
        _kind(Fact.CARD, "token:u64 cards:cards", applied=Applied.IN_COLUMNS, in_windows=True),
        _kind(
            Fact.LEASE,
            "slot:u16 queue:u64 fingerprint:u64 order:u64 token:u64 deadline:i64 holder:u32 not_before:i64",
            applied=Applied.IN_COLUMNS,
            in_windows=True,
        ),
        _kind(Fact.EXTEND, "slot:u16 token:u64 deadline:i64", applied=Applied.IN_COLUMNS, in_windows=True),
        _kind(Fact.REQUEUE, "slot:u16 token:u64 due:i64 priority:f64"),
        _kind(Fact.ERRAND, "slot:u16 name:text token:u64 deadline:i64 holder:u32"),
        _kind(Fact.LEASED_ERRAND, "slot:u16 kind:u8 crawl:u32 name:text token:u64 deadline:i64 holder:u32"),
        _kind(Fact.LOCATING, "slot:u16 host:u64 token:u64 deadline:i64 holder:u32"),
        _kind(Fact.RESTED, "slot:u16 token:u64 ended:i64", applied=Applied.IN_COLUMNS, in_windows=True),
        _kind(
            Fact.RETURNS,
            "slot:u16 name:u64 fetched:u32 share:f64 passed:u32 since:i64 found:u32",
            applied=Applied.IN_COLUMNS,
            in_windows=True,
        ),
        _kind(
            Fact.SIGNALS,
            "slot:u16 host:u64 visits:f64 unchanged_time:f64 unchanged_signals:f64 changed_time:f64 "
            "changed_signals:f64 changes:f64",
            in_windows=True,
        ),
        _kind(Fact.PAYMENT, "slot:u16 place:text in_row:u8 asked:u32 terms:text charged:text", in_windows=True),
        _kind(Fact.TOKEN, "slot:u16 token:u64 order:u64", in_windows=True),
        _kind(Fact.TALLY, "slot:u16 name:text value:u64", in_windows=True),
        _kind(
            Fact.LINE,
            "slot:u16 token:u64 stream:u8 new_links:i64 text:blob",
            applied=Applied.NOWHERE,
            in_windows=True,
        ),
        _kind(Fact.WATERMARK, "slot:u16 writer:text value:blob", in_windows=True),
        _kind(Fact.PROJECTION, "slot:u16 stream:text length:u64 lsn:u64", in_windows=True),
        _kind(Fact.REQUEST, "slot:u16 client:text sequence:u64 verb:u8 answer:blob", in_windows=True),
        _kind(Fact.CLOSING, "slot:u16 number:u32 state:text"),
        _kind(Fact.RUNS, "slot:u16 name:text", applied=Applied.NOWHERE),
    )
}
ORDERS = frozenset({Fact.CRAWL, Fact.CRAWL_RULES, Fact.QUEUE_RULES, Fact.VOID})
"""Kinds that orders about crawls and queues are made of. Recovery applies their frames one by one, which is slow."""
PLACES = {fact: place for place, fact in enumerate(KINDS)}
"""The place of each kind in a frame."""

_JUDGED: dict[int, tuple[tuple[int, Column, np.dtype[Any] | None], ...]] = {
    kind.fact: tuple(
        (place, column, DTYPES.get(column.type))
        for place, column in enumerate(kind.columns)
        if column.type in ("text", "cards") or DTYPES.get(column.type, np.dtype("f8")).kind in "iu"
    )
    for kind in KINDS.values()
}
"""The columns of each kind whose values may be too large: (place, column, type of its numbers)."""

_FIXED: dict[int, tuple[np.dtype[Any], ...]] = {
    kind.fact: tuple(DTYPES[column.type] for column in kind.columns)
    for kind in KINDS.values()
    if all(column.type in DTYPES for column in kind.columns)
}
"""The column types of kinds whose columns all have a fixed width."""

STREAMS = ("pages", "politeness")  # LINE.stream is the place in this list
PROJECTIONS = (*STREAMS, "items")  # files whose lengths are kept; that of items repeats a part of the lines of pages
LINES_AFTER = 1  # lines are after this LSN: the first frame of a log is that of an opening and has no lines


@dataclass(frozen=True, slots=True, eq=False)
class TextColumn:
    """Many texts in UTF-8: their bytes one after the other, and how long each is (u32)."""

    octets: bytes
    lengths: npt.NDArray[np.uint32]

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[str]:
        return iter(self.list())

    def list(self) -> list[str]:
        """Each text as a string."""
        return [piece.decode("utf-8", "surrogatepass") for piece in self.pieces()]

    def pieces(self) -> Iterator[bytes]:
        """Each text as bytes."""
        at = 0
        for length in self.lengths.tolist():
            yield self.octets[at : at + length]
            at += length

    def take(self, rows: npt.NDArray[np.intp]) -> TextColumn:
        """The texts of these rows, in this order."""
        if len(rows) == len(self) and (rows == np.arange(len(rows))).all():
            return self
        ends = np.cumsum(self.lengths, dtype=np.int64)
        starts = ends - self.lengths
        octets = gather_spans(self.octets, np.ascontiguousarray(starts[rows]), np.ascontiguousarray(ends[rows]))
        return TextColumn(octets, self.lengths[rows])

    @classmethod
    def of(cls, texts: Sequence[str]) -> TextColumn:
        """Makes a column from strings, which may contain half surrogate pairs."""
        joined = "".join(texts)
        octets = joined.encode("utf-8", "surrogatepass")
        if len(octets) == len(joined):  # all ASCII
            return cls(octets, _lengths(texts))
        return cls(octets, _lengths([text.encode("utf-8", "surrogatepass") for text in texts]))


def _lengths(pieces: Sequence[str] | Sequence[bytes]) -> npt.NDArray[np.uint32]:
    return np.fromiter(map(len, pieces), np.uint32, len(pieces))


def no_texts(rows: int) -> TextColumn:
    """`rows` empty texts."""
    return TextColumn(b"", np.zeros(rows, np.uint32))


Row = tuple[Any, ...]
Values = Any  # one column: an array, a list of texts or bytes, Cards, or heads
Block = tuple[int, Sequence[Values]]  # (kind, its columns as in the newest version of that kind)


def columns_of(rows: Sequence[Row]) -> list[Values]:
    """Rows of facts as columns."""
    return [list(column) for column in zip(*rows, strict=True)]


def arrays_of(kind: int, values: Sequence[Values]) -> list[Values]:
    """Columns of one kind of facts, with columns of fixed width as arrays of their type."""
    return [
        np.ascontiguousarray(cells, DTYPES[column.type]) if column.type in DTYPES else cells
        for column, cells in zip(KINDS[kind].columns, values, strict=True)
    ]


_SINGLE = {
    "u8": struct.Struct("<B"),
    "u16": struct.Struct("<H"),
    "u32": struct.Struct("<I"),
    "u64": struct.Struct("<Q"),
    "i64": struct.Struct("<q"),
    "f64": struct.Struct("<d"),
}


def _encode_one(columns: Sequence[Column], values: Sequence[Values], parts: list[bytes]) -> None:
    """Encodes a single fact: shuffling would not change the order of its bytes."""
    for column, (cell,) in zip(columns, values, strict=True):
        if column.type in _SINGLE:
            parts.append(_SINGLE[column.type].pack(cell))
        else:
            octets = cell.encode("utf-8", "surrogatepass") if isinstance(cell, str) else cell
            parts += (_SINGLE["u32"].pack(len(octets)), octets)


UNFIT = (ArithmeticError, LookupError, TypeError, ValueError)
"""The errors of `apply` for facts that should never have been logged."""


class UnfitFactsError(ValueError):
    """A fact has a value that does not fit its column, or that the tables cannot store."""


def sealed(now: Instant, blocks: Sequence[Block]) -> bytes:
    """The payload of one frame for the log, not compressed. Raises UnfitFactsError for facts that could be logged and
    not applied: every opening applies the whole log."""
    for kind, values in blocks:
        why = unfit(kind, values)
        if why:
            raise UnfitFactsError(why)
    try:
        return encode(now, blocks)
    except (OverflowError, ValueError, TypeError, struct.error) as error:
        raise UnfitFactsError(str(error)) from error


def unfit(kind: int, values: Sequence[Values]) -> str:
    """Why facts of one kind cannot be applied, judged by their sizes; "" where they can."""
    for place, column, dtype in _JUDGED[kind]:
        cells = values[place]
        if dtype is not None:  # `encode` checks numbers in lists
            if type(cells) is list or cells.dtype is dtype or cells.dtype == dtype or cells.dtype.kind not in "iu":
                continue
            if (cells != cells.astype(dtype)).any():
                return f"{column.name} has a number beyond {column.type}"
        elif column.type == "text":
            if isinstance(cells, TextColumn) and len(cells.octets) <= FACT_TEXT_BYTES_MAX:
                continue
            longest = int(cells.lengths.max()) if isinstance(cells, TextColumn) else _longest(cells)
            if longest > FACT_TEXT_BYTES_MAX:
                return f"{column.name} has {longest:,} bytes; a name in the log may have {FACT_TEXT_BYTES_MAX:,}"
        elif column.type == "cards":
            why = cells.misfit(RUN_BODY_BYTES_MAX)
            if why or cells.offsets[0] or cells.offsets[-1] != len(cells.arena):
                return why or "the bodies of cards do not fill their arena"
    return ""


def _longest(texts: Sequence[str]) -> int:
    """Bytes of the longest text; when all texts are surely short enough, only its characters."""
    characters = max(map(len, texts), default=0)
    if 4 * characters <= FACT_TEXT_BYTES_MAX:
        return characters
    return max(len(text.encode("utf-8", "surrogatepass")) for text in texts)


def encode_in_pieces(now: Instant, blocks: Sequence[Block], bytes_max: int) -> Iterator[bytes]:
    """The facts as several payloads, in order. Each has at most `bytes_max` bytes, or is a single fact that is
    longer."""
    payload = encode(now, blocks)
    rows = sum(len(values[0]) for _, values in blocks)
    if len(payload) <= bytes_max or rows <= 1:
        yield payload
        return
    del payload
    for kind, values in blocks:
        count = len(values[0])
        halves = (0, count // 2, count) if len(blocks) == 1 else (0, count)
        for first, last in pairwise(halves):
            places = np.arange(first, last)
            some = [cells.take(places) if isinstance(cells, TextColumn) else cells[first:last] for cells in values]
            yield from encode_in_pieces(now, [(kind, some)], bytes_max)


def encode(now: Instant, blocks: Sequence[Block]) -> bytes:
    """Returns the payload of one frame, uncompressed. Columns are in the declared order; each has one value per
    fact."""
    parts = [_NOW.pack(now)]
    for kind, values in blocks:
        rows = len(values[0])
        if not rows:
            continue
        parts.append(BLOCK.pack(kind, KINDS[kind].version, rows))
        if rows == 1 and all(type(cells) is list for cells in values):
            _encode_one(KINDS[kind].columns, values, parts)
            continue
        widths = _FIXED.get(kind)
        if widths is not None and len(widths) == len(values):
            parts.append(shuffle_columns(map(np.asarray, values, widths)))
            continue
        fixed: list[Any] = []  # columns since the last part
        for column, cells in zip(KINDS[kind].columns, values, strict=True):
            if column.type in _WIDTHS:
                fixed.append(np.asarray(cells, DTYPES[column.type]))
            elif column.type == "heads":
                fixed.append(cells.view(OPAQUE))
            else:
                if column.type == "cards":
                    fixed.append(cells.heads.view(OPAQUE))
                    octets = cells.arena
                elif column.type == "blob":
                    fixed.append(_lengths(cells))
                    octets = b"".join(cells)
                else:
                    texts = cells if isinstance(cells, TextColumn) else TextColumn.of(cells)
                    fixed.append(texts.lengths)
                    octets = texts.octets
                parts += (shuffle_columns(fixed), octets)
                fixed = []
        if fixed:
            parts.append(shuffle_columns(fixed))
    return b"".join(parts)


class Compressor:
    """Compresses payloads for frames: (bytes, codec). One thread at a time."""

    def __init__(self) -> None:
        self._zstd = zstd.ZstdCompressor(level=FACTS_ZSTD_LEVEL)

    def pack(self, payload: bytes) -> tuple[bytes, int]:
        """A payload as a frame carries it. Small ones stay as they are: compressing them costs more than it saves."""
        if len(payload) < FACTS_COMPRESSED_BYTES_MIN:
            return payload, PLAIN
        small = self._zstd.compress(payload, self._zstd.FLUSH_FRAME)
        return (small, ZSTD) if len(small) < len(payload) else (payload, PLAIN)


def unpacked(payload: bytes, codec: int, *, bytes_max: int) -> bytes:
    """The payload of a frame. Raises DamagedStoreError, ForeignStoreError."""
    if codec == PLAIN:
        return payload
    if codec != ZSTD:
        raise ForeignStoreError(f"a frame has codec {codec}, made by a newer release: open it with that one")
    try:
        plain: bytes = zstd.ZstdDecompressor().decompress(payload, bytes_max)
    except zstd.ZstdError as error:
        raise DamagedStoreError(f"a frame of facts cannot be unpacked ({error})") from error
    return plain


def instant_of(payload: bytes) -> Instant:
    """The `now` under which the facts of this payload were decided."""
    if len(payload) < _NOW.size:
        raise DamagedStoreError("a frame of facts is shorter than its instant")
    return int(_NOW.unpack_from(payload)[0])


def decode(payload: bytes) -> Iterator[tuple[int, list[Values]]]:
    """The blocks of a payload: (kind, columns as declared): arrays, `TextColumn`, lists of bytes, cards or heads.
    Columns that an older version of the kind lacks have their defaults.

    Raises DamagedStoreError for lengths that do not fit, ForeignStoreError for kinds or versions of another release.
    """
    at = _NOW.size
    end = len(payload)
    while at < end:
        if end - at < BLOCK.size:
            raise DamagedStoreError(f"a frame of facts ends inside a block's head at byte {at}")
        kind, version, rows = BLOCK.unpack_from(payload, at)
        at += BLOCK.size
        known = KINDS.get(kind)
        if known is None or not _FIRST_VERSION <= version <= known.version:
            if version > _VERSION_FAR:
                raise DamagedStoreError(f"no block of facts begins at byte {at - BLOCK.size} of a frame")
            raise ForeignStoreError(
                f"it holds facts of kind {kind} version {version}, made by another release: open it with that one"
            )
        values: list[Values] = []
        for column in known.columns:
            if column.since > version:
                values.append(_defaults(column, rows))
            elif column.type in _WIDTHS:
                cells, at = _unshuffled(payload, at, rows, np.dtype(_WIDTHS[column.type]))
                values.append(cells)
            elif column.type == "heads":
                heads, at = _unshuffled(payload, at, rows, HEAD)
                values.append(heads)
            elif column.type == "cards":
                cards, at = _cards(payload, at, rows)
                values.append(cards)
            else:
                lengths, at = _unshuffled(payload, at, rows, np.dtype("<u4"))
                end_of_texts = at + int(lengths.sum(dtype=np.int64))
                if end_of_texts > end:
                    raise DamagedStoreError(f"a column of facts runs past its frame at byte {at}")
                texts = TextColumn(payload[at:end_of_texts], lengths)
                values.append(texts if column.type == "text" else list(texts.pieces()))
                at = end_of_texts
        yield kind, values


def _defaults(column: Column, rows: int) -> Values:
    """A column that facts of an older version lack."""
    if column.type in DTYPES:
        return np.full(rows, column.default, DTYPES[column.type])
    return [column.default] * rows if column.type == "blob" else TextColumn.of([column.default] * rows)


def _unshuffled(payload: bytes, at: int, rows: int, dtype: np.dtype[Any]) -> tuple[npt.NDArray[Any], int]:
    size = dtype.itemsize * rows
    if at + size > len(payload):
        raise DamagedStoreError(f"a column of facts runs past its frame at byte {at}")
    return unshuffled([(payload, at)], rows, dtype), at + size


def unshuffled(places: Sequence[tuple[bytes, int]], rows: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Returns one column from its shuffled pieces: each place is (bytes, offset in them) with `rows` rows. The result
    is read-only."""
    width = dtype.itemsize
    if not rows:
        return np.zeros(0, dtype)
    if width == 1 or rows == 1:
        octets = b"".join(payload[at : at + width * rows] for payload, at in places)
    else:
        # Each plane (all first bytes, all second bytes …) counts as one item of `rows` bytes: shuffling the planes
        # produces rows.
        plane = np.dtype((np.void, rows))
        octets = shuffle_columns(np.frombuffer(payload, plane, width, at) for payload, at in places)
    return np.frombuffer(octets, dtype)


def _cards(payload: bytes, at: int, rows: int) -> tuple[Cards, int]:
    if rows * HEAD_BYTES > len(payload) - at:
        raise DamagedStoreError(f"a column of cards runs past its frame at byte {at}")
    heads, at = _unshuffled(payload, at, rows, HEAD)
    offsets = np.zeros(rows + 1, np.int64)
    np.cumsum(body_bytes(heads), out=offsets[1:])
    end = at + int(offsets[-1])
    if end > len(payload):
        raise DamagedStoreError(f"the bodies of cards run past their frame at byte {at}")
    return Cards(heads, payload[at:end], offsets), end


def drawing() -> str:
    """Returns the schema as a table in Markdown, for docs/formats/facts.md (a test compares the two)."""
    lines = ["| fact | number | version | columns |", "|---|---|---|---|"]
    for fact in Fact:
        cells = ", ".join(map(_drawn, KINDS[fact].columns))
        lines.append(f"| {fact.name.lower()} | {int(fact)} | {KINDS[fact].version} | {cells} |")
    return "\n".join(lines)


def _drawn(column: Column) -> str:
    later = f" (from version {column.since}; {column.default!r} before)" if column.since > _FIRST_VERSION else ""
    return f"{column.name} {column.type}{later}"
