"""A focused crawler: it follows the links of pages about a topic, the best page's links first, and stays off the rest.

python examples/focused.py OUT CONTACT TOPIC URL...
"""

from __future__ import annotations

import sys

import outrider


def score(text: str, topic: str) -> float:
    """How much a text is about the topic: 0 for not at all, 1 for a mention every fifty words."""
    words = text.lower().split()
    return min(1.0, 50 * words.count(topic) / max(1, len(words)))


def crawl(output: str, contact: str | None, topic: str, seeds: list[str], **options):
    def on_page(page):
        page.score = score(f"{page.title} {page.text}", topic)
        if page.score == 0 and page.depth > 0:
            page.follow = []  # nothing here: its links are left alone
        return {"score": round(page.score, 3)}

    def priority(urls, page):
        return [0.5 if page is None else 0.1 + 0.9 * page.score] * len(urls)

    told = {"output": output, "contact": contact, "scope": "any", "max_depth": 4, **options}
    return outrider.crawl(seeds, on_page=on_page, priority=priority, **told)


if __name__ == "__main__":
    _, where, who, about, *urls = sys.argv
    print(crawl(where, who, about, urls, progress="log").ending or "finished")
