"""Rows of a catalog: from lines of `pages.jsonl`, and from listed URLs. A line that cannot be read is counted.

A visit changes the row of its URL in `urls`, and adds a row to `page_content`. Visits of one URL in one batch are
joined, so that a batch names each URL once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from outrider.catalog.fitting import Fitting, checked_instant
from outrider.catalog.schema import STATE_AFTER, STATES, TABLES
from outrider.clock import LAST_OF_RFC3339, rfc3339_exact
from outrider.journey import State, Word
from outrider.robots.agent_groups import groups_of
from outrider.url import host_of

_CUT: Final = {column.name: column.characters_max for table in TABLES for column in table.columns}
_HAS_CONTENT: Final = frozenset(word.value for word in Word if word.has_content)
_STATES: Final = {state.value: word for state, word in STATES.items()}
ARCHIVE_PREFIX: Final = "archive/"


class UrlKey(NamedTuple):
    """The columns of a URL that never change. hash: SHA-256 of the URL."""

    hash: bytes
    url: str
    host: str
    host_hash: int


class VisitRow(NamedTuple):
    """What the visits of one batch changed in the row of a URL. A column of None keeps its value, except `status`.

    source: the hash of the URL on whose page it was found. fetched_at: None without a request, and then `status` keeps
    its value too. answered: how many of the visits were answered.
    """

    key: UrlKey
    depth: int | None
    source: bytes | None
    priority: float | None
    fetched_at: str | None
    answered: int
    status: int | None
    content_hash: str | None
    simhash: int | None
    content_length: int | None
    content_type: str | None
    state: str


class ContentRow(NamedTuple):
    """A row of `page_content`; url: the hash of its URL. The other columns are those of the table, in its order."""

    url: bytes
    fetch_id: int
    raw_content_key: str | None
    content_length: int | None
    content_type: str | None
    charset: str | None
    title: str | None
    meta_description: str | None
    canonical_url: str | None
    language: str | None
    content_hash: str | None
    simhash: int | None
    fetched_at: str
    http_date: str | None
    last_modified: str | None


class ListedUrl(NamedTuple):
    """A URL as the frontier lists it."""

    key: UrlKey
    depth: int | None
    source: bytes | None
    discovered_at: str | None
    priority: float | None
    fetched_at: str | None
    next_fetch_at: str | None
    status: int | None
    state: str


class RobotsRow(NamedTuple):
    """A row of `robots_cache`, in the order of the table. parsed_rules, sitemaps: JSON."""

    host: str
    fetched_at: str | None
    expires_at: str | None
    status_code: int | None
    content: str | None
    parsed_rules: str
    crawl_delay: float | None
    sitemaps: str
    error_message: str | None


@dataclass(slots=True)
class Batch:
    """The rows of some lines, each URL once in `visits`; the numbers of cut values and unreadable lines."""

    visits: list[VisitRow] = field(default_factory=list)
    pages: list[ContentRow] = field(default_factory=list)
    cut: int = 0
    unreadable: int = 0


class _CrawlLine(msgspec.Struct):
    url: str
    outcome: str
    fetched_at: str
    token: Any = None
    status: Any = None
    bytes: Any = None
    content_type: Any = None
    digest: Any = None
    simhash: Any = None
    depth: Any = None
    referrer: Any = None
    priority: Any = None
    title: Any = None
    description: Any = None
    canonical: Any = None
    charset: Any = None
    language: Any = None
    http_date: Any = None
    last_modified: Any = None
    warc: Any = None


_DECODER: Final = msgspec.json.Decoder(_CrawlLine)


def batch_of(lines: Iterable[bytes], archive_prefix: str = ARCHIVE_PREFIX) -> Batch:
    """Returns the rows of lines of `pages.jsonl`. archive_prefix: the beginning of the keys of archive files."""
    fitting, found = Fitting(), Batch()
    visits: dict[bytes, VisitRow] = {}
    for text in lines:
        line = _decoded(text)
        key = _key_or_none(line.url) if line is not None else None
        at = checked_instant(line.fetched_at) if line is not None else None
        if line is None or key is None or at is None or line.outcome not in STATE_AFTER:
            found.unreadable += 1
            continue
        page = _page(line, key, at, fitting, archive_prefix)
        if page is not None:
            found.pages.append(page)
        visit = _visit(line, key, at, fitting)
        earlier = visits.get(key.hash)
        visits[key.hash] = visit if earlier is None else _joined(earlier, visit)
    found.visits = list(visits.values())
    found.cut = fitting.cut
    return found


def _decoded(text: bytes) -> _CrawlLine | None:
    try:
        return _DECODER.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    try:  # more tolerant: lone surrogates, which are cut later
        return msgspec.convert(json.loads(text), _CrawlLine)
    except (ValueError, RecursionError, msgspec.ValidationError):
        return None


def _key_or_none(url: str) -> UrlKey | None:
    """Returns the key of a URL; None for a text that a line of a crawl cannot have."""
    try:
        return key_of(url)
    except (UnicodeEncodeError, IndexError):
        return None


@lru_cache(maxsize=4_096)
def _host_hash(host: str) -> int:
    return int.from_bytes(hashlib.sha256(host.encode()).digest()[:8], "big", signed=True)


@lru_cache(maxsize=16_384)
def key_of(url: str, unique_key: bytes | None = None) -> UrlKey:
    """Returns the key of a canonical URL. unique_key: of a URL in a crawl whose caller says which URLs are the same."""
    host = host_of(url) if url.startswith(("http://", "https://")) else ""
    return UrlKey(hashlib.sha256(unique_key or url.encode()).digest(), url.replace("\0", "%00"), host, _host_hash(host))


def _source(referrer: object) -> bytes | None:
    key = _key_or_none(referrer) if isinstance(referrer, str) and referrer else None
    return None if key is None else key.hash


def raw_content_key(warc: object, prefix: str = ARCHIVE_PREFIX) -> str | None:
    """Returns the place of a record as `KEY#bytes=FIRST-LAST`: one ranged request for these bytes of KEY returns one
    gzip member. warc: the field of a line; None for another value. A revisit of the same payload has the place of the
    response with the payload."""
    if not isinstance(warc, Mapping):
        return None
    warc = warc.get("payload") or warc
    if not isinstance(warc, Mapping):
        return None
    file, offset, length = (warc.get(name) for name in ("file", "offset", "length"))
    if not isinstance(file, str) or type(offset) is not int or type(length) is not int or offset < 0 or length < 1:
        return None
    return f"{prefix}{file}#bytes={offset}-{offset + length - 1}"


def _page(line: _CrawlLine, key: UrlKey, at: str, fitting: Fitting, archive_prefix: str) -> ContentRow | None:
    """Returns the row of a visit; None without a lease, which no request had."""
    token = fitting.whole(line.token)
    if token is None:
        return None
    text, cut = fitting.text, _CUT
    return ContentRow(
        key.hash,
        token,
        text(raw_content_key(line.warc, archive_prefix), cut["raw_content_key"]),
        fitting.whole(line.bytes),
        text(line.content_type, cut["content_type"]),
        text(line.charset, cut["charset"]),
        text(line.title, cut["title"]),
        text(line.description, cut["meta_description"]),
        text(line.canonical, cut["canonical_url"]),
        text(line.language, cut["language"]),
        text(line.digest, cut["content_hash"]),
        fitting.simhash(line.simhash),
        at,
        fitting.http_date(line.http_date),
        fitting.http_date(line.last_modified),
    )


def _visit(line: _CrawlLine, key: UrlKey, at: str, fitting: Fitting) -> VisitRow:
    quiet = Fitting()  # the same values were counted for `page_content`
    status = quiet.whole(line.status)
    kept = line.outcome in _HAS_CONTENT
    return VisitRow(
        key,
        fitting.whole(line.depth),
        _source(line.referrer),
        fitting.real(line.priority),
        at if line.token is not None else None,
        int(status is not None),
        status,
        quiet.text(line.digest, _CUT["last_content_hash"]) if kept else None,
        quiet.simhash(line.simhash) if kept else None,
        (quiet.whole(line.bytes) or None) if kept else None,
        quiet.text(line.content_type, _CUT["content_type"]) if kept else None,
        STATE_AFTER[line.outcome],
    )


def _joined(earlier: VisitRow, later: VisitRow) -> VisitRow:
    """Returns both visits of one URL as one."""
    latest = later if later.fetched_at is not None else earlier
    return later._replace(
        fetched_at=latest.fetched_at,
        status=latest.status,
        answered=earlier.answered + later.answered,
        content_hash=later.content_hash if later.content_hash is not None else earlier.content_hash,
        simhash=later.simhash if later.simhash is not None else earlier.simhash,
        content_length=later.content_length if later.content_length is not None else earlier.content_length,
        content_type=later.content_type if later.content_type is not None else earlier.content_type,
    )


def listed_urls(rows: Sequence[Mapping[str, Any]]) -> list[ListedUrl]:
    """Returns the rows of URLs as the question `urls` returns them (`UrlStatus` as JSON values), each URL once."""
    found: dict[bytes, ListedUrl] = {}
    for row in rows:
        unique = row.get("unique_key")
        key = key_of(row["url"], unique.encode() if unique else None)
        found[key.hash] = ListedUrl(
            key,
            row["depth"],
            _source(row["referrer"]),
            _instant(row.get("discovered_at")),
            row["priority"],
            _instant(row.get("fetched_at")),
            _instant(row["due"]) if row["state"] == State.WAITING else None,
            row["status"],
            _STATES[row["state"]],
        )
    return list(found.values())


def robots_rows(rows: Sequence[Mapping[str, Any]]) -> list[RobotsRow]:
    """Returns the rows of robots.txt files as the question `robots-files` returns them."""
    fitting, found = Fitting(), []
    for row in rows:
        text = fitting.text(row["text"], _CUT["content"])
        found.append(
            RobotsRow(
                str(fitting.text(row["authority"], _CUT["host"])),
                _instant(row["fetched_at"]),
                _instant(row["expires_at"]),
                row["status"],
                text or None,
                json.dumps(groups_of(text or ""), ensure_ascii=False),
                row["crawl_delay"],
                json.dumps([fitting.text(one, _CUT["url"]) for one in row["sitemaps"]], ensure_ascii=False),
                fitting.text(row["error"], _CUT["error_message"]),
            )
        )
    return found


def _instant(at: int | None) -> str | None:
    return rfc3339_exact(at) if at is not None and 0 <= at <= LAST_OF_RFC3339 else None
