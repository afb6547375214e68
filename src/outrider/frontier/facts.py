"""Facts: what the log holds. A frame's payload is | now i64 | block … |, a block is | kind u8 | version u8 | rows u32
| columns |.

A block holds facts of one kind, column by column: fixed-width columns are packed little-endian arrays, `text` and
`blob` columns are their lengths (u32 each) and then their bytes. Every fact names the slot it changes and says absolute
values, never differences, so that replaying a fact twice, or an older one before a newer one, ends in the same state.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from outrider.clock import Instant
from outrider.errors import DamagedStoreError, ForeignStoreError

FACTS_VERSION = 1
FRAME_KIND = 1  # the log frame kind that carries facts

_CODES = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "i64": "q", "f64": "d"}
_WIDTHS = {"u8": 1, "u16": 2, "u32": 4, "u64": 8, "i64": 8, "f64": 8}
_BLOCK = struct.Struct("<BBI")
_NOW = struct.Struct("<q")
_SWAP = sys.byteorder == "big"


class Fact(IntEnum):
    """The kinds of facts; numbers are never reused."""

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
    HOST = 16
    HOST_CELLS = 17
    AUTHORITY = 18
    ROBOTS = 19
    RULES = 20
    QUEUE = 21
    OUTBOX = 24
    ARRIVED = 25
    DELIVERED = 26
    URL = 32
    URL_CELLS = 33
    VISIT = 34
    LEASE = 35
    ERRAND = 36
    LINE = 48


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a kind of fact: its name and its type (u8 u16 u32 u64 i64 f64 text blob)."""

    name: str
    type: str


def _columns(text: str) -> tuple[Column, ...]:
    return tuple(Column(*part.split(":")) for part in text.split())


# The order of the columns is the format. A changed list is a new version beside the old one.
SCHEMA: dict[tuple[int, int], tuple[Column, ...]] = {
    (Fact.OPENING, 1): _columns("slot:u16 number:u32 at:i64 wall:i64 boot:text elapsed:i64"),
    (Fact.CLOSING, 1): _columns("slot:u16 number:u32 state:text"),
    (Fact.CRAWL, 1): _columns("slot:u16 row:u32 name:text generation:u32"),
    (Fact.HOLDER, 1): _columns("slot:u16 row:u32 name:text opening:u32"),
    (Fact.REQUEST, 1): _columns("slot:u16 client:text sequence:u64 verb:u8 answer:blob"),
    (Fact.WATERMARK, 1): _columns("slot:u16 writer:text value:blob"),
    (Fact.PROJECTION, 1): _columns("slot:u16 stream:text length:u64 lsn:u64"),
    (Fact.TALLY, 1): _columns("slot:u16 name:text value:u64"),
    (Fact.SCOPE, 1): _columns("slot:u16 crawl:u32 url:text"),
    (Fact.TOKEN, 1): _columns("slot:u16 token:u64"),
    (Fact.HOST, 1): _columns("slot:u16 row:u32 name:text"),
    (Fact.HOST_CELLS, 1): _columns(
        "slot:u16 row:u32 ended:i64 rest_until:i64 gap:f64 reason:u8 back_off:f64 refused_at:i64 answered:u32"
    ),
    (Fact.AUTHORITY, 1): _columns("slot:u16 row:u32 host:u32 name:text"),
    (Fact.ROBOTS, 1): _columns(
        "slot:u16 row:u32 state:u8 expires:i64 next_at:i64 attempts:u8 hops:u8 status:u16 url:text error:text"
    ),
    (Fact.RULES, 1): _columns("slot:u16 row:u32 digest:u64 body:blob"),
    (Fact.QUEUE, 1): _columns("slot:u16 row:u32 crawl:u32 host:u32 key:text"),
    (Fact.OUTBOX, 1): _columns(
        "slot:u16 sequence:u64 target:u16 crawl:text key:text due:i64 priority:f64 depth:u16 hops:u8 seed:u8"
        " referrer:text metadata:blob url:text"
    ),
    (Fact.ARRIVED, 1): _columns("slot:u16 source:u16 sequence:u64"),
    (Fact.DELIVERED, 1): _columns("slot:u16 sequence:u64"),
    (Fact.URL, 1): _columns(
        "slot:u16 row:u32 queue:u32 fingerprint:u64 state:u8 reason:u8 due:i64 priority:f64 depth:u16 hops:u8"
        " referrer:text metadata:blob url:text"
    ),
    (Fact.URL_CELLS, 1): _columns(
        "slot:u16 row:u32 state:u8 reason:u8 due:i64 attempts:u16 losses:u8 status:u16 token:u64 error:text"
    ),
    (Fact.VISIT, 1): _columns("slot:u16 row:u32 at:i64 digest:blob etag:text modified:text metadata:blob"),
    (Fact.LEASE, 1): _columns("slot:u16 row:u32 token:u64 deadline:i64 holder:u32 not_before:i64"),
    (Fact.ERRAND, 1): _columns("slot:u16 row:u32 token:u64 deadline:i64 holder:u32"),
    (Fact.LINE, 1): _columns("slot:u16 row:u32 token:u64 stream:u8 new_links:i64 text:blob"),
}

STREAMS = ("pages", "politeness")  # LINE.stream is the place in this list

Row = tuple[Any, ...]
Block = tuple[int, Sequence[Row]]  # (kind, rows as in the newest schema of that kind)


def encode(now: Instant, blocks: Sequence[Block]) -> bytes:
    """The payload of one frame. Rows hold one value per column, in the schema's order; text as str, blobs as bytes."""
    parts = [_NOW.pack(now)]
    for kind, rows in blocks:
        if not rows:
            continue
        columns = SCHEMA[kind, FACTS_VERSION]
        parts.append(_BLOCK.pack(kind, FACTS_VERSION, len(rows)))
        for column, values in zip(columns, zip(*rows, strict=True), strict=True):
            if column.type in _CODES:
                parts.append(_packed(_CODES[column.type], values))
            else:
                texts = [v.encode("utf-8", "surrogatepass") if isinstance(v, str) else v for v in values]
                parts.append(_packed("I", [len(t) for t in texts]))
                parts.append(b"".join(texts))
    return b"".join(parts)


def _packed(code: str, values: Sequence[Any]) -> bytes:
    column: array[Any] = array(code, values)
    if _SWAP:  # pragma: no cover - the format is little-endian everywhere
        column.byteswap()
    return column.tobytes()


def instant_of(payload: bytes) -> Instant:
    """The `now` under which the facts of this payload were decided."""
    if len(payload) < _NOW.size:
        raise DamagedStoreError("a frame of facts is shorter than its instant")
    return int(_NOW.unpack_from(payload)[0])


def decode(payload: bytes) -> Iterator[tuple[int, list[Row]]]:
    """The blocks of a payload, rows as tuples in the schema's order.

    Raises DamagedStoreError for lengths that do not fit, ForeignStoreError for kinds or versions of a newer release.
    """
    view = memoryview(payload)
    at = _NOW.size
    end = len(payload)
    while at < end:
        if end - at < _BLOCK.size:
            raise DamagedStoreError(f"a frame of facts ends inside a block's head at byte {at}")
        kind, version, count = _BLOCK.unpack_from(payload, at)
        at += _BLOCK.size
        columns = SCHEMA.get((kind, version))
        if columns is None:
            raise ForeignStoreError(
                f"it holds facts of kind {kind} version {version}, made by a newer release: open it with that one"
            )
        values: list[Sequence[object]] = []
        for column in columns:
            if column.type in _CODES:
                size = _WIDTHS[column.type] * count
                values.append(_unpacked(_CODES[column.type], view, at, size, end))
                at += size
                continue
            lengths = _unpacked("I", view, at, 4 * count, end)
            at += 4 * count
            if at + sum(lengths) > end:
                raise DamagedStoreError(f"a column of facts runs past its frame at byte {at}")
            cells: list[object] = []
            for length in lengths:
                piece = payload[at : at + length]
                cells.append(piece.decode("utf-8", "surrogatepass") if column.type == "text" else piece)
                at += length
            values.append(cells)
        yield kind, list(zip(*values, strict=True))


def _unpacked(code: str, view: memoryview, at: int, size: int, end: int) -> array[int]:
    if at + size > end:
        raise DamagedStoreError(f"a column of facts runs past its frame at byte {at}")
    column: array[int] = array(code)
    column.frombytes(view[at : at + size])
    if _SWAP:  # pragma: no cover
        column.byteswap()
    return column


def drawing() -> str:
    """The schema as a table in Markdown, for docs/formats/facts.md (a test holds the two together)."""
    lines = ["| fact | number | version | columns |", "|---|---|---|---|"]
    for (kind, version), columns in SCHEMA.items():
        cells = ", ".join(f"{column.name} {column.type}" for column in columns)
        lines.append(f"| {Fact(kind).name.lower()} | {kind} | {version} | {cells} |")
    return "\n".join(lines)
