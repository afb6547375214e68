"""Lines of output: the frontier adds a count to a page's line, and writes a line for each refusal that it decides
itself."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET

from outrider.clock import Instant, rfc3339
from outrider.journey import PageLine, Word
from outrider.uses import NOTHING_SAID, Preferences


def completed(text: bytes, new_links: int) -> bytes:
    """Returns a line with the number of new links, which only the frontier can count; unchanged for a number below
    0."""
    if new_links < 0:
        return text
    opened = text[:-1] if text.endswith(b"}") else text.rstrip().removesuffix(b"}")
    return opened + (_NO_NEW_LINKS if not new_links else b',"new_links":%d}' % new_links)


def all_completed(texts: Sequence[bytes], new_links: Sequence[int]) -> list[bytes]:
    """As `completed`, for many lines."""
    if any(new_links):
        return list(map(completed, texts, new_links))
    return [text[:-1] + _NO_NEW_LINKS if text[-1:] == b"}" else completed(text, 0) for text in texts]


_NO_NEW_LINKS = b',"new_links":0}'


def refusal(
    url: str,
    now: Instant,
    *,
    outcome: Word,
    error: str | None,
    depth: int,
    referrer: str,
    priority: float,
    preferences: Preferences = NOTHING_SAID,
) -> bytes:
    """A line of `pages.jsonl` for a URL that ends without a request: attempt 0, and null for the values of an
    answer. preferences: what its robots.txt says about its uses."""
    line = PageLine(
        url=url,
        outcome=outcome,
        error=error or UNSET,
        fetched_at=rfc3339(now),
        depth=depth,
        referrer=referrer.encode("utf-8", "replace").decode() or None,
        priority=priority,
        attempt=0,
        preferences=preferences if preferences.said else UNSET,
    )
    return msgspec.json.encode(line)
