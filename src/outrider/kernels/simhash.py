"""SimHash (Charikar 2002): 64 bits that differ in few places when texts differ in few words; the plain twin."""

from __future__ import annotations

import re
import struct
from collections import Counter
from itertools import islice

from outrider.kernels.framing import Bytes
from outrider.kernels.siphash import hash_messages

_WORD_ENDS = re.compile(
    rb"(?:[\x00-/:-@\[-`{-\x7f]|\xc2[\x85\xa0]|\xe1\x9a\x80|\xe2\x80[\x80-\x8a\xa8\xa9\xaf]|\xe2\x81\x9f|\xe3\x80\x80)+"
)


def simhash_of_words(text: Bytes, key: Bytes, words_max: int) -> int:
    """The SimHash of the first `words_max` words of a text in UTF-8, as they are spelled; 0 when there are none.

    A bit is set if the words that have it in their own hash (SipHash-1-3 under the key of 16 bytes) outweigh those that
    have not, each weighing as much as it is often. ASCII that is neither letter nor digit parts words, and so does any
    white space of Unicode; octets that are no UTF-8 belong to words. Raises ValueError for a key of another size or a
    `words_max` below 0.
    """
    if words_max < 0:
        raise ValueError(f"{words_max} words are fewer than none")
    counts = Counter(islice(filter(None, _WORD_ENDS.split(bytes(text))), words_max))
    packed = hash_messages(counts, bytes(key))
    sums = [0] * 64
    for (value,), weight in zip(struct.iter_unpack("<Q", packed), counts.values(), strict=True):
        for bit in range(64):
            sums[bit] += weight if value >> bit & 1 else -weight
    return sum(1 << bit for bit in range(64) if sums[bit] > 0)
