"""Columns of numbers as the kernels accept them: raw bytes, little endian, or a buffer of items of the exact type."""

from __future__ import annotations

from operator import index
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from outrider.kernels.framing import Bytes
from outrider.limits import CLASSES

Column: TypeAlias = Bytes | npt.NDArray[Any]
"""A sequence of numbers: bytes, or an array of exactly the type that the kernel needs."""

Records: TypeAlias = npt.NDArray[Any]
"""Records or numbers by row."""

NONE = 0xFFFF_FFFF
"""Means "no row"; so it cannot be a row."""
_FORMATS = {"u": "BHILQN", "i": "bhilqn"}
_RANGES = {"u32": (0, 2**32), "u64": (0, 2**64), "i64": (-(2**63), 2**63)}


def column(buffer: Column, dtype: str, name: str) -> npt.NDArray[Any]:
    """Returns the numbers of a column. Raises BufferError for another type, ValueError for a number of bytes that does
    not fit."""
    view, kind = memoryview(cast("Bytes", buffer)), np.dtype(dtype)
    octets = view.tobytes()
    form = view.format.lstrip("@=<")
    if not (view.itemsize == kind.itemsize and form in _FORMATS[kind.kind]) and form not in ("B", "c"):
        raise BufferError(f"{name}: items of type {view.format!r} are no {kind.kind}{8 * kind.itemsize}")
    if len(octets) % kind.itemsize:
        raise ValueError(f"{name}: {len(octets)} bytes are no column of {kind.itemsize} bytes each")
    return np.frombuffer(octets, dtype)


def rows(buffer: Column, name: str) -> list[int]:
    """A column of u32 rows; ValueError if one is NONE."""
    numbers: list[int] = column(buffer, "<u4", name).tolist()
    if NONE in numbers:
        raise ValueError(f"{name}: at {numbers.index(NONE)} stands {NONE}, no row")
    return numbers


def instants(buffer: Column, name: str) -> list[int]:
    """Returns a column of instants, int64. Raises ValueError for an instant before 1970."""
    numbers: list[int] = column(buffer, "<i8", name).tolist()
    early = next((number for number in numbers if number < 0), None)
    if early is not None:
        raise ValueError(f"{name}: {early} lies before 1970")
    return numbers


def classes_of(buffer: Column) -> list[int]:
    """A column of u8 classes; ValueError if one exceeds the best."""
    numbers: list[int] = column(buffer, "u1", "classes").tolist()
    large = next((number for number in numbers if number >= CLASSES), None)
    if large is not None:
        raise ValueError(f"classes: {large} is more than {CLASSES - 1}")
    return numbers


def same_length(first: str, expected: int, name: str, actual: int) -> None:
    """ValueError unless both columns have the same length."""
    if expected != actual:
        raise ValueError(f"{expected} {first} and {actual} {name} make no rows")


def instant(value: int, name: str) -> int:
    """Returns one instant. Raises ValueError for an instant before 1970."""
    value = number(value, "i64", name)
    if value < 0:
        raise ValueError(f"{name}: {value} lies before 1970")
    return value


def octets(buffer: Column, item_bytes: int, name: str) -> bytes:
    """Returns the bytes of a buffer of bytes, or of items of `item_bytes` bytes each, as in structured arrays."""
    view = memoryview(cast("Bytes", buffer))
    if view.itemsize not in (1, item_bytes):
        raise BufferError(f"{name}: items of {view.itemsize} bytes are not of {item_bytes}")
    if view.nbytes % item_bytes:
        raise ValueError(f"{name}: {view.nbytes} bytes are no column of {item_bytes} bytes each")
    return view.tobytes()


def number(value: int, kind: str, name: str) -> int:
    """One number of a call; ValueError when it does not fit u32, u64 or i64."""
    value = index(value)
    low, high = _RANGES[kind]
    if not low <= value < high:
        raise ValueError(f"{name} is a {kind}, not {value}")
    return value


def packed(numbers: list[int], dtype: str) -> bytes:
    """The numbers as bytes, little endian."""
    return np.array(numbers, dtype).tobytes()


def records(buffer: Column, dtype: np.dtype[Any], name: str) -> Records:
    """Returns the whole items of a buffer without a copy; bytes after the last whole item are ignored."""
    view = memoryview(cast("Bytes", buffer))
    if not view.c_contiguous:
        raise BufferError("the buffer must be contiguous")
    if view.itemsize not in (1, dtype.itemsize):
        raise ValueError(f"{name} are numbers of {dtype.itemsize} bytes, not {view.itemsize}")
    raw = np.frombuffer(view, np.uint8)
    return raw[: len(raw) // dtype.itemsize * dtype.itemsize].view(dtype)


def must_have(known: Records, row: int, name: str) -> None:
    """IndexError for a row that a column does not have."""
    if row >= len(known):
        raise IndexError(f"row {row} lies outside the column {name}")
