"""The texts of an Arrow array, read without a copy: the Arrow C data interface, in capsules.

Source: arrow.apache.org, "The Arrow C data interface" and "The Arrow PyCapsule Interface". No Arrow library is needed.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_OFFSETS = {"u": "<i4", "z": "<i4", "U": "<i8", "Z": "<i8"}
"""Formats of texts and bytes, and what their offsets are."""


class _Schema(ctypes.Structure):
    _fields_ = (
        ("format", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("metadata", ctypes.c_void_p),
        ("flags", ctypes.c_int64),
        ("n_children", ctypes.c_int64),
        ("children", ctypes.c_void_p),
        ("dictionary", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    )


class _Array(ctypes.Structure):
    _fields_ = (
        ("length", ctypes.c_int64),
        ("null_count", ctypes.c_int64),
        ("offset", ctypes.c_int64),
        ("n_buffers", ctypes.c_int64),
        ("n_children", ctypes.c_int64),
        ("buffers", ctypes.POINTER(ctypes.c_void_p)),
        ("children", ctypes.c_void_p),
        ("dictionary", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    )


@dataclass(frozen=True, slots=True)
class ArrowTexts:
    """The rows of an array: row i is octets[offsets[i]:offsets[i + 1]]."""

    octets: memoryview
    offsets: npt.NDArray[np.int64]
    nulls: npt.NDArray[np.bool_] | None
    """The rows that are null; None without nulls."""
    owner: object
    """The owner of the memory; it must live as long as the rows."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def text(self, row: int) -> str:
        """Returns a row as text; bytes that are not UTF-8 become U+FFFD."""
        return bytes(self.octets[self.offsets[row] : self.offsets[row + 1]]).decode("utf-8", "replace")


def texts_of(array: object) -> ArrowTexts:
    """The texts of an object with `__arrow_c_array__`. Raises TypeError for anything else, other types and streams."""
    export = getattr(array, "__arrow_c_array__", None)
    if export is None:
        chunks = "; of an array in chunks give each chunk" if hasattr(array, "__arrow_c_stream__") else ""
        raise TypeError(f"a {type(array).__name__} is not an Arrow array: it has no __arrow_c_array__{chunks}")
    capsules = export()
    schema = ctypes.cast(_pointer(capsules[0], b"arrow_schema"), ctypes.POINTER(_Schema)).contents
    found = ctypes.cast(_pointer(capsules[1], b"arrow_array"), ctypes.POINTER(_Array)).contents
    layout = (schema.format or b"").decode("ascii", "replace")
    if layout not in _OFFSETS or schema.dictionary or found.n_buffers != 3:
        raise TypeError(f"an Arrow array of format {layout!r} contains no plain texts: cast it to large_utf8")
    count = found.length + 1 if found.length else 0
    width = np.dtype(_OFFSETS[layout]).itemsize
    offsets = np.frombuffer(_memory(found.buffers[1], (found.offset + count) * width), _OFFSETS[layout])
    offsets = offsets[found.offset :].astype(np.int64) if count else np.zeros(1, dtype=np.int64)
    nulls = None
    if found.null_count != 0 and found.buffers[0]:
        bits = np.frombuffer(_memory(found.buffers[0], (found.offset + found.length + 7) // 8), np.uint8)
        nulls = np.unpackbits(bits, bitorder="little")[found.offset : found.offset + found.length] == 0
    some = nulls is not None and bool(nulls.any())
    return ArrowTexts(_memory(found.buffers[2], int(offsets[-1])), offsets, nulls if some else None, (array, capsules))


def _pointer(capsule: object, name: bytes) -> int:
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype = ctypes.c_void_p
    get.argtypes = (ctypes.py_object, ctypes.c_char_p)
    found: int = get(capsule, name)  # raises ValueError for a capsule of another name
    return found


def _memory(address: int | None, size: int) -> memoryview:
    """Returns bytes at an address; Arrow keeps them alive as long as its capsules."""
    if not size or not address:
        return memoryview(b"")
    return np.frombuffer(memoryview((ctypes.c_ubyte * size).from_address(address)), np.uint8).data
