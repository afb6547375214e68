"""Records as files: JSON Lines, CSV and Parquet, each written whole or not at all and read row by row with its place.

A record is a mapping of names to JSON values. JSON Lines has it unchanged. CSV and Parquet have the columns of a
`Shape`. `Shape.widened` adds a typed column for each other field of the records. Fields without a column share the last
column, `more`, as JSON. Reading returns the written records, without the fields whose value is null.

A CSV cell of a text column is the text itself. It is a JSON string if the text is empty, begins with a quotation mark,
contains a control character, or begins like a formula of a spreadsheet (`=`, `+`, `-`, `@`, tab): the quotation mark
makes it harmless there (OWASP, "CSV Injection"). A time is RFC 3339. A cell of any other column is JSON.
"""

from __future__ import annotations

import csv
import io
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, BinaryIO, Final, TypeVar

import msgspec

from outrider.clock import LAST_OF_RFC3339, rfc3339, rfc3339_exact
from outrider.crawl.output.parquet import rows_of
from outrider.errors import NamedPathError, StoreFailedError, StoreFullError
from outrider.install_hints import install_command
from outrider.journey import RECORD_FIELDS, Form
from outrider.limits import (
    EXPORT_BYTES_AT_ONCE,
    EXPORT_COLUMNS_MAX,
    EXPORT_ROWS_AT_ONCE,
    IMPORT_BYTES_AT_ONCE,
    IMPORT_LINE_BYTES_MAX,
    IMPORT_ROWS_AT_ONCE,
)
from outrider.storage.files import is_no_space

Record = dict[str, Any]
MORE: Final = "more"
Row = TypeVar("Row")
JSON_LINES, CSV, PARQUET, URLS = ".jsonl", ".csv", ".parquet", ".txt"
SITEMAPS: Final = (".xml", ".xml.gz", ".rss", ".atom")
WRITTEN: Final = (JSON_LINES, CSV, PARQUET)
READ: Final = (*WRITTEN, URLS, *SITEMAPS)


@dataclass(frozen=True, slots=True)
class Shape:
    """The columns of one kind of record, name → kind.

    Kinds: `text`, `whole` (64 bits), `real`, `truth`, `json`, and two kinds of time: `instant` (a record has
    microseconds since 1970) and `moment` (a record has RFC 3339 text). more: whether the last column, `more`, has the
    fields without a column.
    """

    columns: Mapping[str, str]
    more: bool = True

    def row(self, record: Mapping[str, Any]) -> list[Any]:
        """Returns the cells of a record, in the order of `names`."""
        cells = [record.get(name) for name in self.columns]
        if not self.more:
            return cells
        left = {name: value for name, value in record.items() if name not in self.columns and value is not None}
        return [*cells, left or None]

    @property
    def names(self) -> list[str]:
        """The names of the columns, in order."""
        return [*self.columns, MORE] if self.more else [*self.columns]

    @property
    def kinds(self) -> list[str]:
        """The kinds of the columns, in order."""
        return [*self.columns.values(), "json"] if self.more else [*self.columns.values()]

    def widened(self, records: Iterable[Mapping[str, Any]]) -> Shape:
        """Adds a column for each other field of the records, in the order of first appearance. Fields after the first
        `EXPORT_COLUMNS_MAX` share the column `more`."""
        found: dict[str, str] = {}
        more = False
        for record in records:
            for name, value in record.items():
                if value is None or name in self.columns:
                    continue
                known = found.get(name)
                if known is None and (name == MORE or len(found) >= EXPORT_COLUMNS_MAX):
                    more = True
                elif known != "json":
                    found[name] = _column_kind(known, _kind_of(value))
        own = {name: "whole" if kind == _LARGE else kind for name, kind in found.items()}
        return Shape({**self.columns, **own}, more)


_LARGE: Final = "large"  # a whole number that a column of floating-point numbers would round
_EXACT_MAX: Final = 1 << 53


def _kind_of(value: object) -> str:
    if isinstance(value, bool):
        return "truth"
    if isinstance(value, int):
        if -_EXACT_MAX <= value <= _EXACT_MAX:
            return "whole"
        return _LARGE if -(2**63) <= value < 2**63 else "json"
    if isinstance(value, float):
        return "real"
    return "text" if isinstance(value, str) else "json"


def _column_kind(known: str | None, of_value: str) -> str:
    """Returns the kind of a column after one more value: `json`, except for numbers that keep their value."""
    if known is None or known == of_value:
        return of_value
    return {frozenset(("whole", "real")): "real", frozenset(("whole", _LARGE)): _LARGE}.get(
        frozenset((known, of_value)), "json"
    )


_KINDS: Final = {Form.METADATA: "json", Form.COUNT: "whole", Form.INSTANT: "instant", Form.REAL: "real"}
"""The kind of a column by the form of a record's field; other forms are texts."""
FRONTIER: Final = Shape(
    {
        "url": "text",
        "crawl": "text",
        "unique": "text",
        "order": "text",
        "key": "text",
        "state": "text",
        "reason": "text",
        "priority": "real",
        "depth": "whole",
        "hops": "whole",
        "referrer": "text",
        "due": "instant",
        "fetched_at": "instant",
        "revisit_seconds": "real",
        "attempts": "whole",
        "losses": "whole",
        "status": "whole",
        "error": "text",
        **{name: _KINDS.get(told.form, "text") for name, told in RECORD_FIELDS.items()},
    }
)
PAGES: Final = Shape(
    {
        "url": "text",
        "outcome": "text",
        "status": "whole",
        "error": "text",
        "fetched_at": "moment",
        "seconds": "real",
        "bytes": "whole",
        "content_type": "text",
        "digest": "text",
        "simhash": "text",
        "shingles": "whole",
        "text_digest": "text",
        "content_digest": "text",
        "duplicate_of": "text",
        "distance": "whole",
        "probe": "text",
        "depth": "whole",
        "referrer": "text",
        "priority": "real",
        "attempt": "whole",
        "location": "text",
        "title": "text",
        "description": "text",
        "canonical": "text",
        "charset": "text",
        "language": "text",
        "http_date": "text",
        "last_modified": "text",
        "etag": "text",
        "links": "whole",
        "links_left_out": "whole",
        "tls": "text",
        "decoding": "text",
        "requested": "text",
        "conditional": "text",
        "payment": "text",
        "image": "json",
        "preferences": "json",
        "new_links": "whole",
        "token": "whole",
        "warc": "json",
    }
)

ITEMS: Final = Shape({}, more=False)
"""All columns of items follow from their fields, because an item may have its own field `url` or `token`."""
_NO_ITEMS: Final = Shape({"url": "text", "token": "whole"}, more=False)


class Count:
    """The number of written records."""

    def __init__(self) -> None:
        self.total = 0

    def add(self, count: int) -> None:
        """Adds `count` rows."""
        self.total += count


def form_of(path: str, known: tuple[str, ...]) -> str:
    """Returns the form of a file by the end of its name. Raises NamedPathError."""
    ending = os.path.splitext(path)[1].lower()
    if path.lower().endswith(".xml.gz"):
        ending = ".xml.gz"
    if ending not in known:
        raise NamedPathError(f"{path!r}: unknown form; use a name that ends in {', '.join(known)}")
    if ending == PARQUET:
        _arrow()
    return ending


# -- writing ----------------------------------------------------------------------------------------------------------


def write_records(path: str, records: Iterable[Mapping[str, Any]], shape: Shape, count: Callable[[int], None]) -> None:
    """Writes all records to a file. Afterwards the file is complete, or as it was before.

    count: is called with the rows of each step. Raises NamedPathError for a place that cannot be written,
    StoreFullError, StoreFailedError.
    """
    form = form_of(path, WRITTEN)
    with replacing(path) as file:
        if form == PARQUET:
            _write_parquet(file, records, shape, count)
            return
        if form == CSV:
            file.write(_csv_line([_cell(name, "text") for name in shape.names]).encode())
        lines = _lines_of(records) if form == JSON_LINES else _csv_of(records, shape)
        for some in _portions(lines, len):
            file.write("".join(some).encode())
            count(len(some))


def write_table(
    path: str, records: Callable[[], Iterable[Mapping[str, Any]]], shape: Shape, count: Callable[[int], None]
) -> None:
    """Writes records whose own fields become columns, as `write_records` does.

    records: returns the same records at each call. A table needs two passes, because its types follow from all rows.
    """
    if form_of(path, WRITTEN) != JSON_LINES:
        shape = shape.widened(records())
        if not shape.names:
            shape = _NO_ITEMS
    write_records(path, records(), shape, count)


def _lines_of(records: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for record in records:
        yield json_text(record) + "\n"


def json_text(value: object) -> str:
    """Returns JSON in ASCII without blanks. The delete character is escaped like other control characters."""
    return json.dumps(value, ensure_ascii=True, separators=(",", ":")).replace("\x7f", "\\u007f")


def _csv_of(records: Iterable[Mapping[str, Any]], shape: Shape) -> Iterator[str]:
    kinds = shape.kinds
    for record in records:
        yield _csv_line([_cell(value, kind) for value, kind in zip(shape.row(record), kinds, strict=True)])


def _csv_line(cells: Iterable[str]) -> str:
    """The dialect of RFC 4180, with only a line feed at the end."""
    row = io.StringIO()
    csv.writer(row, lineterminator="\n").writerow(cells)
    return row.getvalue()


def _cell(value: object, kind: str) -> str:
    if value is None:
        return ""
    if kind == "instant" and isinstance(value, int):
        return rfc3339_exact(value) if 0 <= value <= LAST_OF_RFC3339 else str(value)
    if not isinstance(value, str) or kind not in ("text", "moment"):
        return json_text(value)
    plain = value != "" and value[0] not in _JSON_BEGINS and value.isprintable()
    return value if plain else json_text(str(value))


_JSON_BEGINS: Final = frozenset('"=+-@')
"""A text with such a start is a formula for a spreadsheet, or looks like JSON. Control characters count, too."""


def _write_parquet(
    file: BinaryIO, records: Iterable[Mapping[str, Any]], shape: Shape, count: Callable[[int], None]
) -> None:
    pa, pq = _arrow()
    time = pa.timestamp("us", tz="UTC")
    types = {"text": pa.string(), "whole": pa.int64(), "real": pa.float64(), "truth": pa.bool_(), "json": pa.string()}
    types |= {"instant": time, "moment": time}
    kinds = shape.kinds
    schema = pa.schema([(name, types[kind]) for name, kind in zip(shape.names, kinds, strict=True)])
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        rows = (
            [
                _arrow_cell(cell, kind) if kind in ("json", "moment") and cell is not None else cell
                for cell, kind in zip(shape.row(record), kinds, strict=True)
            ]
            for record in records
        )
        for some in _portions(rows, lambda row: sum(len(cell) for cell in row if isinstance(cell, str))):
            columns = zip(*some, strict=True)
            arrays = [pa.array(cells, field.type) for cells, field in zip(columns, schema, strict=True)]
            writer.write_batch(pa.record_batch(arrays, schema=schema))
            count(len(some))


def _portions(rows: Iterable[Row], bytes_of: Callable[[Row], int]) -> Iterator[list[Row]]:
    """Yields the rows in the lists that are written at once. bytes_of: about the bytes of a row."""
    portion: list[Row] = []
    size = 0
    for row in rows:
        portion.append(row)
        size += bytes_of(row)
        if len(portion) >= EXPORT_ROWS_AT_ONCE or size >= EXPORT_BYTES_AT_ONCE:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


def _arrow_cell(value: object, kind: str) -> object:
    return json_text(value) if kind == "json" else instant_of(value)


def instant_of(value: object) -> int:
    """Returns the microseconds since 1970 of an RFC 3339 time. A time without a zone is UTC. Raises NamedPathError."""
    try:
        time = datetime.fromisoformat(str(value))
    except ValueError:
        raise NamedPathError(f"{value!r:.80} is not a time such as 2026-01-02T03:04:05.678Z") from None
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH) // timedelta(microseconds=1)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@contextmanager
def replacing(path: str) -> Iterator[BinaryIO]:
    """Opens a new file next to `path`. When the block ends well, the file is synced and renamed to `path`."""
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path):
        raise NamedPathError(f"{path!r} is a directory; name a file")
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{os.path.basename(path)}.", suffix=".tmp", dir=folder)
    except OSError as error:
        raise _refusal(error, path) from error
    try:
        with os.fdopen(descriptor, "wb", buffering=1 << 20) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(folder)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
            raise _refusal(error, path) from error
        raise


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _refusal(error: OSError, path: str) -> NamedPathError | StoreFullError | StoreFailedError:
    why = error.strerror or str(error)
    if is_no_space(error):
        return StoreFullError(f"{path}: {why}; an existing file was not changed")
    if isinstance(error, FileNotFoundError | NotADirectoryError | PermissionError | IsADirectoryError):
        return NamedPathError(f"{path!r} cannot be written ({why}); choose another place")
    return StoreFailedError(f"{path}: {why}; an existing file was not changed")


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise NamedPathError(
            "Parquet needs the package pyarrow, which is not installed; install it with "
            f"{install_command('parquet')}, or choose a name that ends in .jsonl or .csv"
        ) from None
    return pyarrow, pyarrow.parquet


# -- reading ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Read:
    """One row of a file: its place, and its record or its fault."""

    place: int | str
    """The line (from 1), of a Parquet file the row; a place in words in other files."""
    record: Record | None = None
    fault: str = ""

    @property
    def bytes(self) -> int:
        """The approximate size of the texts of the record in bytes."""
        return 0 if self.record is None else sum(map(_bytes_of, self.record.values()))


def _bytes_of(value: object) -> int:
    if isinstance(value, str):
        return len(value)
    return 8 if value is None or isinstance(value, int | float) else len(json_text(value))


def in_batches(rows: Iterator[Read]) -> Iterator[list[Read]]:
    """Yields rows in groups, bounded in number and bytes."""
    batch: list[Read] = []
    room = IMPORT_BYTES_AT_ONCE
    for read in rows:
        batch.append(read)
        room -= read.bytes
        if len(batch) >= IMPORT_ROWS_AT_ONCE or room <= 0:
            yield batch
            batch, room = [], IMPORT_BYTES_AT_ONCE
    if batch:
        yield batch


def read_records(path: str, shape: Shape) -> Iterator[Read]:
    """Yields the rows of a file in order. A row that cannot be read is named, and the rest follows.

    A `.txt` has one URL per line. Empty lines and lines that begin with # are skipped. Raises NamedPathError for a
    file that cannot be read at all.
    """
    form = form_of(path, READ)
    try:
        if form == PARQUET:
            yield from _read_parquet(path, shape)
            return
        with open(path, "rb") as file:
            if form == CSV:
                yield from _read_csv(file, path, shape)
            else:
                for place, line in read_lines(file):
                    read = _read_line(place, line, as_json=form == JSON_LINES)
                    if read is not None:
                        yield read
    except OSError as error:
        raise NamedPathError(f"{path!r} cannot be read ({error.strerror or error})") from None


def read_lines(file: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """Yields each line with its number; None for a line that is too long."""
    number = 0
    while line := file.readline(IMPORT_LINE_BYTES_MAX):
        number += 1
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")  # a byte order mark of some editors
        if len(line) < IMPORT_LINE_BYTES_MAX or line.endswith(b"\n"):
            yield number, line
            continue
        while (rest := file.readline(IMPORT_LINE_BYTES_MAX)) and not rest.endswith(b"\n"):
            pass
        yield number, None


def _read_line(place: int, line: bytes | None, *, as_json: bool) -> Read | None:
    if line is None:
        return Read(place, fault=f"it is longer than {IMPORT_LINE_BYTES_MAX:,} bytes")
    text = line.strip()
    if not text or (not as_json and text.startswith(b"#")):
        return None
    try:
        decoded = text.decode()
    except UnicodeDecodeError:
        return Read(place, fault="it is not UTF-8")
    if not as_json:
        return Read(place, {"url": decoded})
    return _read_object(place, decoded)


def _read_object(place: int, text: str) -> Read:
    try:
        value = _json_of(text)
    except (ValueError, RecursionError) as error:
        return Read(place, fault=f"not JSON ({error})")
    if not isinstance(value, dict):
        return Read(place, fault="not a JSON object")
    return Read(place, value)


def _json_of(text: str) -> object:
    """Returns a JSON value. Raises ValueError, RecursionError."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return json.loads(text)  # slower, and accepts half characters, which metadata may contain


class _Texts:
    """The lines of a file for `csv`. A row may have several lines. A row that is too long ends there, as a fault."""

    def __init__(self, file: BinaryIO) -> None:
        self._lines = read_lines(file)
        self.place = 0
        self.faults: list[Read] = []
        self.bytes = 0
        """The line number of the row that is being read."""

    def __iter__(self) -> _Texts:
        return self

    def __next__(self) -> str:
        """Raises csv.Error for a row that is too long."""
        for number, line in self._lines:
            self.place = number
            if line is None:
                self.faults.append(Read(number, fault=f"it is longer than {IMPORT_LINE_BYTES_MAX:,} bytes"))
                continue
            self.bytes += len(line)
            if self.bytes > IMPORT_LINE_BYTES_MAX:
                raise csv.Error(f"it is longer than {IMPORT_LINE_BYTES_MAX:,} bytes")
            try:
                return line.decode()
            except UnicodeDecodeError:
                self.faults.append(Read(number, fault="it is not UTF-8"))
        raise StopIteration


def _read_csv(file: BinaryIO, path: str, shape: Shape) -> Iterator[Read]:
    texts = _Texts(file)
    csv.field_size_limit(IMPORT_LINE_BYTES_MAX)
    reader = csv.reader(texts, strict=True)
    head = _head(reader, path)
    while True:
        texts.bytes = 0
        try:
            cells = next(reader, None)
        except csv.Error as error:
            yield Read(texts.place, fault=f"not a row of a table ({error})")
            continue
        yield from texts.faults
        texts.faults.clear()
        if cells is None:
            return
        if cells:
            yield _of_texts(texts.place, cells, head, shape)


def _head(reader: Iterator[list[str]], path: str) -> list[str]:
    try:
        head = next(reader, [])
    except csv.Error as error:
        raise NamedPathError(f"{path!r}: the first line does not name columns ({error})") from None
    head = [str(_value(name, "text")) for name in head]
    if "url" not in head:
        raise NamedPathError(
            f"{path!r} has no column `url`; its first line must name the columns, as in a file of `outrider export`"
        )
    return head


def _of_texts(place: int, cells: list[str], head: list[str], shape: Shape) -> Read:
    if len(cells) != len(head):
        return Read(place, fault=f"it has {len(cells)} cells, but the head has {len(head)}")
    record: Record = {}
    for name, cell in zip(head, cells, strict=True):
        value = _value(cell, shape.columns.get(name, ""))
        if name == MORE and isinstance(value, dict):
            record.update(value)
        elif value is not None:
            record[name] = value
    return Read(place, record)


def _value(cell: str, kind: str) -> object:
    if cell == "":
        return None
    if kind == "instant" and not cell.lstrip("-").isdecimal():
        with suppress(NamedPathError):
            return instant_of(cell)
        return cell
    if kind == "moment":
        return cell
    if kind == "text" and cell[0] != '"':
        return cell
    if cell[0] in '"[{-0123456789' or cell in ("true", "false", "null"):
        try:
            return json.loads(cell)
        except (ValueError, RecursionError):
            return cell
    return cell


def _read_parquet(path: str, shape: Shape) -> Iterator[Read]:
    pa, pq = _arrow()
    try:
        for place, cells in enumerate(rows_of(pa, pq, path, shape.names), 1):
            yield _of_cells(place, cells, shape) if isinstance(cells, dict) else Read(place, fault=cells)
    except pa.ArrowException as error:
        raise NamedPathError(
            f"{path!r} cannot be read as Parquet ({error}); use a file that `outrider export` wrote"
        ) from None


def _of_cells(place: int, cells: Record, shape: Shape) -> Read:
    record: Record = {}
    for name, value in cells.items():
        if value is None:
            continue
        kind = shape.columns.get(name)
        if name != MORE and kind != "json":
            is_time = kind == "moment" and isinstance(value, int)
            record[name] = (rfc3339_exact if value % 1_000 else rfc3339)(value) if is_time else value
            continue
        try:
            inner = json.loads(value)
        except (ValueError, TypeError, RecursionError) as error:
            return Read(place, fault=f"{name} is not JSON ({error})")
        if name == MORE and isinstance(inner, dict):
            record.update(inner)
        else:
            record[name] = inner
    return Read(place, record)
