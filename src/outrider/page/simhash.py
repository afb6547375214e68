"""SimHash of a page: its words in lower case, under one key for ever."""

from __future__ import annotations

from outrider.kernels import simhash_of_words
from outrider.limits import WORDS_PER_PAGE_MAX

# Fixed for ever: fingerprints of pages are compared across crawls, and nothing is gained by colliding with oneself.
_KEY = b"outrider simhash"


def simhash_of_text(text: str) -> int:
    """The 64-bit SimHash of the words of a text, lower case, each weighted by how often it occurs; 0 for no words."""
    return simhash_of_words(text.lower().encode("utf-8", "replace"), _KEY, WORDS_PER_PAGE_MAX)
