"""Batch loops: native where they were built, their plain twins otherwise.

`OUTRIDER_KERNELS=python` forces the twins, `OUTRIDER_KERNELS=native` forbids them; unset or empty takes the native
kernels when they are there. `in_use()` says which were taken.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

from outrider.errors import OutriderError


class KernelsError(OutriderError, ImportError):
    """The kernels that OUTRIDER_KERNELS asks for cannot be used."""

    exit_code = 2


def _choose(wish: str) -> Literal["native", "python"]:
    if wish not in ("", "native", "python"):
        raise KernelsError(f"OUTRIDER_KERNELS is {wish!r}; it may be 'native', 'python' or unset")
    if wish == "python":
        return "python"
    try:
        import outrider._native  # noqa: F401
    except ImportError as error:
        if wish == "native":
            raise KernelsError(
                f"OUTRIDER_KERNELS is 'native' but there is no native build ({error}); "
                "run `make install` with a Rust toolchain at hand, or unset the variable"
            ) from error
        return "python"
    return "native"


_IN_USE = _choose(os.environ.get("OUTRIDER_KERNELS", ""))

if TYPE_CHECKING or _IN_USE == "python":
    from outrider.kernels.framing import crc32c, find_frame, pack_frames, scan_frames
    from outrider.kernels.siphash import fingerprints
else:
    from outrider._native import crc32c, find_frame, fingerprints, pack_frames, scan_frames

FRAME_HEADER_BYTES = 31
"""Bytes of a frame before its payload."""
FRAME_BYTES_MAX = 256 * 1024 * 1024
"""The largest frame, header included."""
FINGERPRINT_KEY_BYTES = 16
"""Bytes of a key for `fingerprints`."""
END, ZEROS, SHORT, BAD, LIMIT = 0, 1, 2, 3, 4
"""Why a scan of frames ended: exhausted, unused space, runs past the buffer, damage, enough frames."""


def in_use() -> Literal["native", "python"]:
    """Which kernels this process runs on."""
    return _IN_USE


__all__ = [
    "BAD",
    "END",
    "FINGERPRINT_KEY_BYTES",
    "FRAME_BYTES_MAX",
    "FRAME_HEADER_BYTES",
    "LIMIT",
    "SHORT",
    "ZEROS",
    "KernelsError",
    "crc32c",
    "find_frame",
    "fingerprints",
    "in_use",
    "pack_frames",
    "scan_frames",
]
