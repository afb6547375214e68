"""SimHash (Charikar 2002): 64 bits that differ in few places when texts differ in few words."""

from __future__ import annotations

from collections import Counter

import numpy as np

from outrider.kernels import fingerprints
from outrider.limits import WORDS_PER_PAGE_MAX

# Fixed for ever: fingerprints of pages are compared across crawls, and nothing is gained by colliding with oneself.
_KEY = b"outrider simhash"
# ASCII that is neither letter nor digit parts words, and so does any white space. Octets of other characters stay as
# they are: a table of 256 octets is six times as fast as a regular expression.
_PARTED = bytes(octet if octet >= 0x80 or chr(octet).isalnum() else 0x20 for octet in range(256))


def simhash_of_text(text: str) -> int:
    """The 64-bit SimHash of the words of a text, lower case, each weighted by how often it occurs; 0 for no words.

    A bit is set if the words that have it in their own hash outweigh those that have not.
    """
    words = text.lower().encode("utf-8", "replace").translate(_PARTED).decode("utf-8").split()
    if len(words) > WORDS_PER_PAGE_MAX:
        words = words[:WORDS_PER_PAGE_MAX]
    if not words:
        return 0
    counts = Counter(words)
    hashes = np.frombuffer(fingerprints(list(counts), _KEY), dtype=np.uint8).reshape(-1, 8)
    weights = np.fromiter(counts.values(), dtype=np.float32, count=len(counts))
    bits = np.unpackbits(hashes, axis=1, bitorder="little").astype(np.float32)
    # float32 sums are exact up to 2**24, far above WORDS_PER_PAGE_MAX.
    outweigh = 2.0 * (weights @ bits) > weights.sum()
    return int.from_bytes(np.packbits(outweigh, bitorder="little").tobytes(), "little")
