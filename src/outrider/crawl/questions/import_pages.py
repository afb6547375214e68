"""The pages of a crawl without a frontier, for another frontier: lines of pages.jsonl as records of URLs, and links
from the archive."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from outrider.crawl.output.archive_source import ArchiveSource
from outrider.crawl.output.written_lines import place_of
from outrider.crawl.questions.single_page import archived
from outrider.errors import OutriderError
from outrider.journey import RECORD_FIELDS, Form, Link, Word
from outrider.limits import DEPTH_MAX, LINKS_PER_PAGE_MAX
from outrider.storage.files import Directory

_WORDS: Final = {word.value: word for word in Word}
_DIGEST: Final = "sha1:"


def is_line(record: Mapping[str, Any]) -> bool:
    """Whether a record is a line of pages.jsonl."""
    return isinstance(record.get("outcome"), str) and "state" not in record


def is_final(line: Mapping[str, Any]) -> bool:
    """Whether the URL of a line is done with: no further attempt was due."""
    word = _WORDS.get(line["outcome"])
    return word is not None and word.final


def record_of(line: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a line as the record of its URL. A URL with a further attempt, or refused by robots.txt, is queued."""
    record = {name: line.get(name) for name in ("url", "depth", "referrer", "priority")}
    word = _WORDS.get(line["outcome"])
    if word is None or not word.final:
        return record | {"state": "queued"}
    record["status"] = line.get("status")
    if word.failed:
        reason = "error" if line.get("status") is None else "status"
        return record | {"state": "gone", "reason": reason, "error": line.get("error")}
    record["state"] = "done"
    if word.has_content:
        texts = (name for name, told in RECORD_FIELDS.items() if told.form is Form.TEXT)
        record |= {name: line.get(name) for name in texts} | {"digest": _hex_of(line)}
    return record


def _hex_of(line: Mapping[str, Any]) -> str | None:
    """Returns the digest of a page's content in hex digits; None for a line without a digest."""
    shown = line.get("content_digest") or line.get("digest")
    if not isinstance(shown, str) or not shown.startswith(_DIGEST):
        return None
    try:
        return base64.b32decode(shown.removeprefix(_DIGEST)).hex()
    except binascii.Error:
        return None


@contextmanager
def archive_beside(path: str) -> Iterator[Directory | None]:
    """Yields the archive in the directory of a line file, None without one."""
    try:
        files = ArchiveSource(os.path.dirname(path))
    except (OSError, OutriderError):
        yield None
        return
    try:
        yield files
    finally:
        files.close()


def links_of(line: Mapping[str, Any], files: Directory | None, path: str) -> list[Link] | None:
    """Returns the links of a line's page, read from its record, or the target of its redirect; None for links
    without a record. Raises DamagedStoreError, FileNotFoundError."""
    url, depth = str(line["url"]), line.get("depth")
    depth = depth if isinstance(depth, int) else 0
    if line["outcome"] == Word.REDIRECT:
        target = line.get("location")
        if not isinstance(target, str):
            return []
        # The target of a seed's redirect widens the scope as a seed does, which has no referrer.
        return [Link(target, depth=depth, hops=1, referrer=url) if depth else Link(target)]
    if not line.get("links"):
        return []
    if files is None or line.get("warc") is None:
        return None
    page = archived(files, place_of(line, url, path), url)[2]
    found = [] if page is None else page.followed()[:LINKS_PER_PAGE_MAX]
    return [Link(link, depth=min(depth + 1, DEPTH_MAX), referrer=url) for link in found]
