"""Made URLs for N hosts, some 85 bytes each. `frontier` and its peers are filled with them."""

from __future__ import annotations

from collections.abc import Iterator

BATCH = 1_000  # URLs per call
WORDS = (
    "about",
    "article",
    "archive",
    "author",
    "book",
    "chapter",
    "city",
    "company",
    "country",
    "culture",
    "data",
    "day",
    "design",
    "engine",
    "event",
    "family",
    "film",
    "food",
    "garden",
    "guide",
    "health",
    "history",
    "house",
    "image",
    "index",
    "island",
    "journal",
    "kitchen",
    "language",
    "law",
    "library",
    "list",
    "machine",
    "map",
    "market",
    "member",
    "model",
    "music",
    "nature",
    "news",
    "number",
    "office",
    "paper",
    "people",
    "photo",
    "place",
    "poem",
    "press",
    "product",
    "project",
    "record",
    "region",
    "report",
    "review",
    "river",
    "school",
    "science",
    "season",
    "section",
    "sport",
    "story",
    "street",
    "study",
    "summer",
    "table",
    "team",
    "text",
    "theory",
    "tool",
    "town",
    "travel",
    "tree",
    "value",
    "video",
    "view",
    "village",
    "voice",
    "water",
    "weather",
    "winter",
    "work",
    "world",
    "year",
    "yellow",
    "young",
    "zone",
)
SUFFIXES = ("com", "org", "net", "info")


def url_of(row: int, queues: int) -> str:
    """Returns the URL of a row: host `row % queues`. Each host has its own registrable domain."""
    host, number = row % queues, (row * 2_654_435_761) & 0xFFFFFFFF
    words = [WORDS[(number >> shift) % len(WORDS)] for shift in (3, 9, 14, 20, 25)]
    return (
        f"https://www.site{host:07d}.{SUFFIXES[host & 3]}/{words[0]}/{1999 + (number >> 7) % 27}/"
        f"{words[1]}-{words[2]}-{words[3]}-{words[4]}-{row:08d}.html?page=2"
    )


def batches(first: int, last: int, queues: int) -> Iterator[list[str]]:
    """Yields the URLs of these rows, one call's share at a time. If there are many hosts, no call has a host twice."""
    for begin in range(first, last, BATCH):
        yield [url_of(row, queues) for row in range(begin, min(begin + BATCH, last))]
