"""Reads a page: bytes in, links, directives, text and a SimHash out."""

from outrider.kernels import SimHashIndex
from outrider.page.likeness import SHINGLES_MIN, SIMHASH_VERSION, simhash, simhash_of_text
from outrider.page.reader import FOLLOWABLE, NO_LINKS, Alternate, FoundLinks, Page, PageLink, read

__all__ = [
    "FOLLOWABLE",
    "NO_LINKS",
    "SHINGLES_MIN",
    "SIMHASH_VERSION",
    "Alternate",
    "FoundLinks",
    "Page",
    "PageLink",
    "SimHashIndex",
    "read",
    "simhash",
    "simhash_of_text",
]
