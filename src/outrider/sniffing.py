"""Whether bytes are text, by the first of them (WHATWG MIME Sniffing sections 3, 5 and 7.2)."""

from __future__ import annotations

import re
from typing import Final

SNIFFED_BYTES: Final = 1_445
"""The resource header: the bytes that are looked at."""
MARKS: Final = (b"\xfe\xff", b"\xff\xfe", b"\xef\xbb\xbf")
"""Marks of the byte order in front of text: UTF-16 with the high byte first, with the low byte first, UTF-8."""
_BINARY: Final = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]")


def is_binary(body: bytes) -> bool:
    """Whether a body is no text: it begins with no mark, and has a byte early on that no text has."""
    return not body.startswith(MARKS) and _BINARY.search(body, 0, SNIFFED_BYTES) is not None
