"""SimHash of a page: its words in lower case, under one key for ever."""

from __future__ import annotations

from outrider.kernels import simhash_of_words
from outrider.limits import WORDS_PER_PAGE_MAX

# Fixed for ever: fingerprints of pages are compared across crawls, and nothing is gained by colliding with oneself.
_KEY = b"outrider simhash"


def simhash_of_text(text: bytes) -> int:
    """The 64-bit SimHash of the words of a text in UTF-8, ASCII in lower case, weighted by count; 0 for none."""
    return simhash_of_words(text.lower(), _KEY, WORDS_PER_PAGE_MAX)
