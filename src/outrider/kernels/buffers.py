"""Numbers that a caller hands to a kernel as a buffer: of their own type, as numpy has them, or little-endian bytes."""

from __future__ import annotations

import struct
from typing import Any, Literal

import numpy.typing as npt

Buffer = npt.NDArray[Any] | bytes | bytearray | memoryview
"""What holds numbers; `collections.abc.Buffer` comes with Python 3.12 only."""

_SIZES = {"H": 2, "I": 4, "Q": 8}


def numbers_of(buffer: Buffer, code: Literal["H", "I", "Q"]) -> tuple[int, ...]:
    """The u16 (H), u32 (I) or u64 (Q) of a buffer.

    Raises BufferError when it holds other numbers, ValueError when it is bytes that end within a number, TypeError when
    it is no buffer.
    """
    size = _SIZES[code]
    view = memoryview(buffer)  # type: ignore[arg-type]  # a numpy array is a buffer in Python 3.11 too
    kind = view.format.lstrip("@=<")
    if kind not in ("B", "c") and not (kind in ("H", "I", "L", "Q") and view.itemsize == size):
        raise BufferError(f"a buffer of u{8 * size} or of bytes is wanted")
    if view.nbytes % size:
        raise ValueError(f"{view.nbytes} bytes are no whole number of u{8 * size}")
    return struct.unpack(f"<{view.nbytes // size}{code}", view.tobytes())
