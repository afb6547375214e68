"""The crawl: the loop of lease, fetch, read and report, and what is said about it."""
