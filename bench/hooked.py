"""A hook as a user writes one: `bench crawl` measures its cost."""

from __future__ import annotations

from outrider.page import Page


def title(page: Page) -> dict[str, str]:
    """The title of a page as a field of its line."""
    return {"named": page.title or ""}
