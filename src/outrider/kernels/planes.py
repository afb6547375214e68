"""Heads of cards byte by byte, as a compressor likes them: all first bytes, all second bytes …; the plain twin."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import cast

import numpy as np
import numpy.typing as npt

from outrider.kernels.card_layout import HEAD, HEAD_BYTES
from outrider.kernels.columns import Column, column
from outrider.kernels.framing import Bytes

PLANES = HEAD_BYTES + 1
"""The bytes of a head, and one that says whether the version is whole."""
PLANES_ROWS_MAX = 65_536  # a block has 2,048; places in the lists of values are u16
_MASK_BYTES = (PLANES + 7) // 8
_LISTED = ("queue", "due", "priority")
_COUNTS = struct.Struct("<3H")
_LIST_AT = _MASK_BYTES + PLANES + _COUNTS.size
_LOW = np.uint64((1 << 56) - 1)


def shuffle_columns(columns: Iterable[Column]) -> bytes:
    """Returns the bytes of columns, one column after the other, of each the first bytes of all items, then the second …

    A column is a buffer of one dimension. Its items may have gaps, as a field of records has, or be one and the
    same. Raises BufferError for any other.
    """
    parts: list[bytes] = []
    for given in columns:
        view = memoryview(cast("Bytes", given))
        if view.ndim != 1 or view.strides is None or view.strides[0] < 0:
            raise BufferError("a column has one dimension, and runs forwards")
        cells = np.frombuffer(view.tobytes(), np.uint8)
        parts.append(cells.reshape(len(view), view.itemsize).T.tobytes())
    return b"".join(parts)


def pack_heads(heads: Column, whole: Column) -> bytes:
    """Packs heads, sorted by key, with a byte for each that says whether it is whole (not 0), in planes.

    | mask, 10 bytes: bit i is set if byte i of the rows varies | template, 73 bytes: the other bytes, as in all rows |
    3 × u16: the number of listed values for queue, due and priority | the values, u64 each, ascending | planes: of each
    byte that varies the value in every row |. Byte 72 of a row is `whole`. Before that the low 56 bits of a fingerprint
    become the difference to the previous row, and a queue, due or priority its place among the distinct values if
    there are at least two and at most one for four rows. Raises ValueError for no rows or more than PLANES_ROWS_MAX.
    """
    cells, flags = column(heads, "u1", "heads"), column(whole, "u1", "whole")
    rows = len(flags)
    if not 0 < rows <= PLANES_ROWS_MAX or len(cells) != rows * HEAD_BYTES:
        raise ValueError(f"{len(cells)} bytes are no heads of {rows} cards, 1 to {PLANES_ROWS_MAX}")
    matrix = np.empty((rows, PLANES), np.uint8)
    matrix[:, :HEAD_BYTES] = cells.reshape(rows, HEAD_BYTES)
    matrix[:, HEAD_BYTES] = flags != 0
    prints = _column_of(matrix, "fingerprint")
    steps = prints.copy()
    steps[1:] -= prints[:-1]
    _set_column(matrix, "fingerprint", (steps & _LOW) | (prints & ~_LOW))
    counts, lists = [], []
    for name in _LISTED:
        values, places = np.unique(_column_of(matrix, name), return_inverse=True)
        listed = 1 < len(values) <= rows // 4
        counts.append(len(values) if listed else 0)
        if listed:
            lists.append(values.astype("<u8").tobytes())
            _set_column(matrix, name, places.astype(np.uint64))
    varies = (matrix != matrix[0]).any(axis=0)
    template = np.where(varies, 0, matrix[0]).astype(np.uint8)
    mask = np.packbits(varies, bitorder="little")
    planes = matrix[:, varies].T
    return b"".join((mask.tobytes(), template.tobytes(), _COUNTS.pack(*counts), *lists, planes.tobytes()))


def unpack_heads(packed: Column, rows: int) -> tuple[bytes, bytes]:
    """Returns the heads and the bytes `whole` (0 or 1) that were packed. Raises ValueError for bytes that cannot be a
    result of `pack_heads` for this number of rows."""
    cells = column(packed, "u1", "packed")
    wrong = f"{len(cells)} bytes are no packed heads of {rows} cards"
    if not 0 < rows <= PLANES_ROWS_MAX or len(cells) < _LIST_AT:
        raise ValueError(wrong)
    varies = np.flatnonzero(np.unpackbits(cells[:_MASK_BYTES], bitorder="little"))
    counts = _COUNTS.unpack_from(cells.tobytes(), _LIST_AT - _COUNTS.size)
    at = _LIST_AT + 8 * sum(counts)
    if len(cells) != at + len(varies) * rows or (len(varies) and varies[-1] >= PLANES):
        raise ValueError(wrong)
    matrix = np.empty((rows, PLANES), np.uint8)
    matrix[:] = cells[_MASK_BYTES : _MASK_BYTES + PLANES]
    matrix[:, varies] = cells[at:].reshape(len(varies), rows).T
    steps = _column_of(matrix, "fingerprint")
    _set_column(matrix, "fingerprint", (np.cumsum(steps, dtype=np.uint64) & _LOW) | (steps & ~_LOW))
    at = _LIST_AT
    for name, count in zip(_LISTED, counts, strict=True):
        if count:
            values = np.frombuffer(cells[at : at + 8 * count].tobytes(), "<u8")
            places = _column_of(matrix, name)
            if places.max() >= count:
                raise ValueError(wrong)
            _set_column(matrix, name, values[places.astype(np.intp)])
            at += 8 * count
    return matrix[:, :HEAD_BYTES].tobytes(), (matrix[:, HEAD_BYTES] != 0).tobytes()


def _column_of(matrix: npt.NDArray[np.uint8], name: str) -> npt.NDArray[np.uint64]:
    at = HEAD.fields[name][1]  # type: ignore[index]  # None is only said of types without fields
    return np.frombuffer(matrix[:, at : at + 8].tobytes(), "<u8")


def _set_column(matrix: npt.NDArray[np.uint8], name: str, values: npt.NDArray[np.uint64]) -> None:
    at = HEAD.fields[name][1]  # type: ignore[index]  # None is only said of types without fields
    matrix[:, at : at + 8] = np.frombuffer(values.astype("<u8").tobytes(), np.uint8).reshape(len(values), 8)
