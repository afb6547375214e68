"""The digest of what a page says, which small changes around it leave alone; the plain twin of the native kernel."""

from __future__ import annotations

import re

from outrider.kernels.framing import Bytes
from outrider.kernels.siphash import hash_messages

_HAS_DIGIT = re.compile(rb"[0-9]").search


def text_digest(text: Bytes, key: Bytes, words_min: int) -> int:
    """Returns the SipHash-1-3 of the words of a text in UTF-8, under the key of 16 bytes; 0 for a text without words.

    ASCII white space separates words, a line feed separates blocks. Words with an ASCII digit are dropped, then blocks
    of fewer than `words_min` words. If no block is left, all blocks count. Each word is hashed with a blank after it.
    Raises ValueError for a key of another size or a `words_min` below 0.
    """
    if words_min < 0:
        raise ValueError(f"{words_min} words are fewer than none")
    blocks = [[word for word in block.split() if not _HAS_DIGIT(word)] for block in bytes(text).split(b"\n")]
    kept = [block for block in blocks if len(block) >= words_min]
    words = [word for block in kept if block for word in block] or [word for block in blocks for word in block]
    found = hash_messages([b"".join(word + b" " for word in words)], bytes(key))
    return int.from_bytes(found, "little") if words else 0
