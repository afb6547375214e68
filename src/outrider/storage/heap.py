"""Returns freed memory to the system, where the C library would keep it for later."""

from __future__ import annotations

import ctypes
from collections.abc import Callable


def _system_trim() -> Callable[[int], int] | None:
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None  # not glibc
    trim.argtypes, trim.restype = [ctypes.c_size_t], ctypes.c_int
    found: Callable[[int], int] = trim
    return found


_TRIM = _system_trim()


def give_back() -> None:
    """Returns freed memory now; for a second thread. No other thread can allocate meanwhile: 0.07 ms for each megabyte
    freed since the last call. Does nothing with a C library other than glibc."""
    if _TRIM is not None:
        _TRIM(0)
