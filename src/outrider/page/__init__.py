"""Reads a page: bytes in, links, directives, text and a SimHash out."""

from outrider.page.reader import FOLLOWABLE, NO_LINKS, Alternate, FoundLinks, Page, PageLink, read
from outrider.page.simhash import simhash_of_text

__all__ = ["FOLLOWABLE", "NO_LINKS", "Alternate", "FoundLinks", "Page", "PageLink", "read", "simhash_of_text"]
