"""The words by which pages without end are known: those of a calendar, a filter, a session differ in names and numbers.

Words with digits are left out, and so are texts of links to URLs of the page's own kind: they are the trap's own doors.
Texts of other links stay, so a list that leads to new articles is none.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from typing import Final

from outrider.frontier.policy.returns import shape_of
from outrider.limits import WORDING_BYTES_MAX, WORDING_LINKS_MAX
from outrider.page import Page
from outrider.url.traps import may_be_endless

_HAS_DIGIT: Final = re.compile(rb"[0-9]").search


def wording_of(page: Page, url: str) -> int | None:
    """A number for host and words of a page, the same for pages that differ in names and numbers; None for a page
    without text, and for one whose URL and title are those of a page that stands alone."""
    if not page.octets or not may_be_endless(url, page.title):
        return None
    words = Counter(word for word in page.octets[:WORDING_BYTES_MAX].split() if not _HAS_DIGIT(word))
    found = page.found
    own = _kind(url)
    for row, text in enumerate(found.texts[:WORDING_LINKS_MAX]):
        if text and not text.isdigit() and _kind(found.urls[row]) == own:
            words.subtract(word for word in text.encode().split() if not _HAS_DIGIT(word))
    told = b"\n".join(b"%b %d" % (word, count) for word, count in sorted(words.items()) if count > 0)
    octets = own[0].encode() + b"\n" + told
    return int.from_bytes(hashlib.blake2b(octets, digest_size=8).digest(), "little")


def _kind(url: str) -> tuple[str, str]:
    """Host and shape of the path of a canonical URL."""
    host, slash, rest = url.partition("://")[2].partition("/")
    return host, shape_of(slash + rest.partition("?")[0].partition(";")[0])
