"""Hooks as a user writes them. `bench crawl` measures their costs."""

from __future__ import annotations

from outrider.crawl.run.hooks import CrawledPage


def title(page: CrawledPage) -> dict[str, str]:
    """Returns the title of a page as an item."""
    return {"named": page.title or ""}


def selected(page: CrawledPage) -> dict[str, str | None]:
    """Returns the title of a page by a CSS selector, as an item."""
    return {"named": page.css("title::text").get()}
