"""Pieces of text in any case; the plain twin of the native kernel."""

from __future__ import annotations

from outrider.kernels.columns import octets
from outrider.kernels.framing import Bytes


def holds_all(text: Bytes, pieces: tuple[Bytes, ...], bytes_max: int) -> bool:
    """Whether the first `bytes_max` bytes of a text contain each of the pieces, which are in lower case.

    ASCII letters match in any case, all other bytes exactly.
    """
    if bytes_max < 0:
        raise OverflowError(f"{bytes_max} bytes are fewer than none")
    if not isinstance(pieces, tuple):
        raise TypeError(f"pieces are a tuple, not {type(pieces).__name__}")
    lower = octets(text, 1, "a text")[:bytes_max].lower()
    needles = [octets(piece, 1, "a piece") for piece in pieces]  # check all, even after a piece that is missing
    return all(needle in lower for needle in needles)
