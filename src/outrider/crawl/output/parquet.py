"""Rows of a Parquet file in pieces with a bound in bytes, whatever the file says.

A file of some kilobytes may contain a value of a megabyte in each of a million rows: by a dictionary, by shared
prefixes, or by a packed page. So texts stay in dictionaries until a piece of rows is used, the heads of all pages
are read before a row group, and a piece has as many rows as fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, Final, NamedTuple

import numpy as np

from outrider.errors import NamedPathError
from outrider.limits import (
    IMPORT_BYTES_AT_ONCE,
    IMPORT_GROUP_BYTES_MAX,
    IMPORT_LINE_BYTES_MAX,
    IMPORT_ROWS_AT_ONCE,
    PARQUET_FIXED_BYTES_MAX,
    PARQUET_HEAD_BYTES_MAX,
)

Record = dict[str, Any]
TOO_LONG: Final = f"it is longer than {IMPORT_LINE_BYTES_MAX:,} bytes"
_DICTIONARY_PAGE: Final = 2
_SHARING: Final = (5, 6, 7)  # encodings by deltas: a value may repeat parts of the value before
_HEAD_BYTES: Final = 512  # nearly all heads of pages are shorter


def rows_of(pa: Any, pq: Any, path: str, known: Sequence[str]) -> Iterator[Record | str]:
    """Yields the cells of each row by their columns, or the fault of the row. known: columns that must not be nested.
    Other nested columns are left out.

    Raises NamedPathError for a file that needs too much memory, ArrowException and OSError for an unreadable file.
    """
    with open(path, "rb") as octets, pq.ParquetFile(path) as file:
        schema = file.schema_arrow
        if "url" not in schema.names:
            raise NamedPathError(f"{path!r} has no column `url`; use a file that `outrider export` wrote")
        flat = [field.name for field in schema if _is_flat(pa, field.type)]
        for name in known:
            if name in schema.names and name not in flat:
                raise NamedPathError(f"{path!r}: column `{name}` must contain texts or numbers")
        texts = [name for name in flat if _is_text(pa, schema.field(name).type)]
        told = file.metadata
        for group in range(told.num_row_groups):
            rows, sharing = _rows_at_once(octets, path, told.row_group(group), set(flat))
            # Arrow cannot read a column with deltas into a dictionary.
            kept = [name for name in texts if name not in sharing]
            with pq.ParquetFile(path, metadata=told, read_dictionary=kept, pre_buffer=False) as opened:
                for batch in opened.iter_batches(rows, row_groups=[group], columns=flat, use_threads=False):
                    yield from _rows(pa, batch)


def _is_flat(pa: Any, kind: Any) -> bool:
    wide = pa.types.is_fixed_size_binary(kind) and kind.byte_width > PARQUET_FIXED_BYTES_MAX
    return not (pa.types.is_nested(kind) or wide)


def _is_text(pa: Any, kind: Any) -> bool:
    sorts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(is_sort(kind) for is_sort in sorts)


def _rows(pa: Any, batch: Any) -> Iterator[Record | str]:
    """Yields the rows of a batch in pieces with a bounded number of bytes."""
    sizes = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        sizes += _sizes(pa, column)
    ends = sizes.cumsum()
    first = 0
    while first < len(sizes):
        if sizes[first] > IMPORT_LINE_BYTES_MAX:
            yield TOO_LONG
            first += 1
            continue
        before = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + IMPORT_BYTES_AT_ONCE, "right")))
        long = np.flatnonzero(sizes[first:last] > IMPORT_LINE_BYTES_MAX)
        last = first + int(long[0]) if len(long) else last
        yield from _plain(pa, batch.slice(first, last - first))
        first = last


def _sizes(pa: Any, column: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Returns the bytes of each cell."""
    if pa.types.is_dictionary(column.type):
        inner = _sizes(pa, column.dictionary)
        places = column.indices.fill_null(0).to_numpy(zero_copy_only=False)
        return inner[places] if len(inner) else np.zeros(len(column), np.int64)
    if _is_text(pa, column.type):
        import pyarrow.compute

        return np.asarray(pyarrow.compute.binary_length(column).fill_null(0), np.int64)
    return np.full(len(column), 8, np.int64)


def _plain(pa: Any, batch: Any) -> list[Record | str]:
    columns = [_simple(pa, column) for column in batch.columns]
    return _cells(pa.RecordBatch.from_arrays(columns, names=batch.schema.names))


def _simple(pa: Any, column: Any) -> Any:
    """Returns a column without a dictionary. A time becomes microseconds since 1970: Python has no time after the year
    9999."""
    if pa.types.is_dictionary(column.type):
        return column.dictionary_decode()
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("us", tz=column.type.tz), safe=False).cast(pa.int64())
    return column


def _cells(batch: Any) -> list[Record | str]:
    try:
        rows: list[Record | str] = batch.to_pylist()
        return rows
    except (ValueError, OverflowError) as error:
        if batch.num_rows == 1:
            return [f"a cell cannot be read ({error!s:.200})"]
    return [cells for row in range(batch.num_rows) for cells in _cells(batch.slice(row, 1))]


# -- the heads of pages -----------------------------------------------------------------------------------------------


def _rows_at_once(octets: BinaryIO, path: str, group: Any, wanted: set[str]) -> tuple[int, set[str]]:
    """Returns how many rows of a row group are read in one step, and the columns with values that repeat parts of other
    values.

    Raises NamedPathError for a group with pages that need more memory unpacked than an import may use.
    """
    held = plain = shared = 0
    sharing: set[str] = set()
    for number in range(group.num_columns):
        chunk = group.column(number)
        if chunk.path_in_schema.partition(".")[0] not in wanted and chunk.path_in_schema not in wanted:
            continue
        pages = _pages_of(octets, path, chunk)
        sizes = [page.bytes for page in pages if page.kind != _DICTIONARY_PAGE]
        most = max(sizes, default=0)
        # Both are in memory twice: unpacked, and as values.
        most += sum(page.bytes for page in pages if page.kind == _DICTIONARY_PAGE)
        held += 2 * most
        plain += sum(sizes)
        if any(page.encoding in _SHARING for page in pages):
            sharing.add(chunk.path_in_schema)
            shared += most
        if held > IMPORT_GROUP_BYTES_MAX:
            raise NamedPathError(
                f"{path!r}: the pages of a row group have more than {IMPORT_GROUP_BYTES_MAX:,} bytes unpacked (column "
                f"`{chunk.path_in_schema!s:.80}`); write the file again with smaller pages"
            )
    rows = IMPORT_ROWS_AT_ONCE
    if plain > IMPORT_GROUP_BYTES_MAX:
        rows = max(1, rows * IMPORT_GROUP_BYTES_MAX // plain)
    if shared:
        rows = min(rows, max(1, IMPORT_GROUP_BYTES_MAX // (2 * shared)))
    return rows, sharing


class _Page(NamedTuple):
    kind: int
    bytes: int
    encoding: int


def _pages_of(octets: BinaryIO, path: str, chunk: Any) -> list[_Page]:
    """Returns the heads of the pages of a column, in order. Raises NamedPathError for an unreadable head."""
    at = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < at:
        at = chunk.dictionary_page_offset
    end = at + chunk.total_compressed_size
    found: list[_Page] = []
    while at < end:
        head, length = _head_at(octets, path, at)
        size, packed = head.get(2), head.get(3)
        if not isinstance(size, int) or not isinstance(packed, int) or size < 0 or packed < 0:
            raise _damaged(path, at)
        told: dict[int, Any] = next((head[number] for number in (5, 7, 8) if isinstance(head.get(number), dict)), {})
        encoding = told.get(4 if 8 in head else 2, 0)
        kind = head.get(1)
        found.append(_Page(kind if isinstance(kind, int) else -1, size, encoding if isinstance(encoding, int) else -1))
        at += length + packed
    return found


def _head_at(octets: BinaryIO, path: str, at: int) -> tuple[dict[int, Any], int]:
    for most in (_HEAD_BYTES, PARQUET_HEAD_BYTES_MAX):
        octets.seek(at)
        read = octets.read(most)
        try:
            return _struct(read, 0, 0)
        except IndexError:
            if len(read) < most:
                break
        except ValueError:
            break
    raise _damaged(path, at)


def _damaged(path: str, at: int) -> NamedPathError:
    return NamedPathError(f"{path!r} cannot be read as Parquet: it is damaged (no page header at byte {at:,})")


def _struct(octets: bytes, at: int, depth: int) -> tuple[dict[int, Any], int]:
    """Returns a struct of Thrift's compact protocol: its numbers, truths and structs by field. Raises IndexError for a
    struct that is longer than the octets, ValueError for other octets."""
    if depth > 8:
        raise ValueError("structs nest too deep")
    fields: dict[int, Any] = {}
    number = 0
    while True:
        head = octets[at]
        at += 1
        if head == 0:
            return fields, at
        kind, step = head & 15, head >> 4
        if step:
            number += step
        else:
            number, at = _number(octets, at)
        if kind in (1, 2):
            fields[number] = kind == 1
        else:
            fields[number], at = _value(octets, at, kind, depth)


def _value(octets: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (4, 5, 6):
        return _number(octets, at)
    if kind == 12:
        return _struct(octets, at, depth + 1)
    if kind == 8:  # a text, which is skipped
        length, at = _varint(octets, at)
        if at + length > len(octets):
            raise IndexError
        return None, at + length
    width = {3: 1, 7: 8}.get(kind)
    if width is None:
        raise ValueError("the head of a page has an unknown field")
    return None, at + width


def _number(octets: bytes, at: int) -> tuple[int, int]:
    value, at = _varint(octets, at)
    return (value >> 1) ^ -(value & 1), at


def _varint(octets: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        octet = octets[at]
        at += 1
        value |= (octet & 127) << shift
        if octet < 128:
            return value, at
    raise ValueError("a number has too many octets")
