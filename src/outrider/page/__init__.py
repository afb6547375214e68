"""Reads a page: bytes in, links, directives, text and a SimHash out."""

from outrider.page.reader import FOLLOWABLE, FoundLinks, Page, PageLink, read

__all__ = ["FOLLOWABLE", "FoundLinks", "Page", "PageLink", "read"]
