"""The crawl: the loop of lease, fetch, read and report, and what is said about it."""

from outrider.crawl.start import crawl, start

__all__ = ["crawl", "start"]
