"""A visit and its meaning: the answer to a lease in, the outcome and its lines out (no clock, no socket).

`fetch/meaning.py` has the meaning of statuses and errors (docs/answers.md); here the content adds its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec
from msgspec import UNSET

from outrider.archive import shown_digest
from outrider.clock import Instant, instant, rfc3339, rfc3339_exact, seconds
from outrider.crawl.output.line_fields import PolitenessLine
from outrider.crawl.run.hooks import HookFailed
from outrider.crawl.setup.options import UNVERIFIED
from outrider.fetch.downloader import Decoding, Response, is_validator
from outrider.fetch.failures import FetchError, http_date
from outrider.fetch.judging import (
    challenge_of,
    location_of,
    meaning_of_page,
    retry_after_of,
    robots_of,
    written_location,
)
from outrider.fetch.meaning import NOT_MODIFIED, REFUSALS, meaning_of
from outrider.fetch.payment import payment_of
from outrider.fetch.response_bytes import payload_of
from outrider.frontier.policy.revisit import retry_at
from outrider.journey import Conditional, Kind, Lease, Link, Outcome, PageLine, Verdict, Word
from outrider.limits import (
    BODY_BYTES_MAX,
    DESCRIPTION_CHARACTERS_MAX,
    DNS_KNOWN_SECONDS,
    LINE_FIELD_CHARACTERS_MAX,
    RETRY_SECONDS,
    TEXT_DIGEST_BYTES,
    URL_BYTES_MAX,
)
from outrider.page import Page
from outrider.robots import preferences_of, verdict_of_status
from outrider.url import UrlBatch
from outrider.uses import NOTHING_SAID, Preferences

UNSENT: Final = frozenset({FetchError.BLOCKED_ADDRESS, FetchError.BLOCKED_PORT})
_NONE: Final[Mapping[str, Any]] = {}
_encode: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Visit:
    """The result of one lease.

    `response` is None when no request was sent; then `error` says why. `at` is the wall clock when the visit began,
    `now` the frontier's clock when it ended. `address` is the answer to an errand of that kind.
    `stopped`: the crawl was interrupted, at `began` if a request was under way. `fault`: a hook failed before
    there was an answer, with a request under way since `began` if that is set. `groups`: the clocks that the host
    shares with others.
    """

    lease: Lease
    at: Instant
    now: Instant
    response: Response | None = None
    error: FetchError | None = None
    error_text: str = ""
    stopped: bool = False
    began: Instant | None = None
    address: str | None = None
    fault: HookFailed | None = None
    groups: tuple[dict[str, Any], ...] = ()
    _sign: str | None = field(
        default=None, init=False, repr=False, compare=False
    )  # "" for no sign, None before a check

    @property
    def failure(self) -> FetchError | None:
        """The class of the visit's error; None for a visit without one."""
        return self.response.error if self.response is not None else self.error

    @property
    def error_class(self) -> str | None:
        """The word for the visit's error, that of a failed hook too."""
        return self.fault.word if self.fault is not None else str(self.failure) if self.failure is not None else None

    @property
    def seconds(self) -> float | None:
        """The duration of the request; None without a request."""
        if self.response is not None:
            return self.response.seconds if self.sent else None
        if self.fault is not None and self.began is not None:
            return max(0.0, seconds(self.now - self.began))
        return None

    @property
    def first_byte_seconds(self) -> float | None:
        """The time to the first byte of an answer; None without one."""
        response = self.response
        if response is None or response.status is None or response.first_byte_at is None:
            return None
        return max(0.0, seconds(response.first_byte_at - response.started_at))

    @property
    def status(self) -> int | None:
        """The HTTP status of the answer, None without an answer."""
        return self.response.status if self.response is not None else None

    @property
    def sign(self) -> str | None:
        """The sign by which an answer is a challenge for a browser or a person, None for any other."""
        if self._sign is None:
            found = challenge_of(self.response) if self.response is not None else None
            object.__setattr__(self, "_sign", found or "")
        return self._sign or None

    @property
    def sent(self) -> bool:
        """Whether a request was sent, or at least a connection was tried."""
        return self.response is not None and not (not self.response.request_head and self.response.error in UNSENT)


def visit_bytes(visit: Visit) -> int:
    """Returns about the memory of a finished visit: the received bytes, and the decoded content if it is separate."""
    response = visit.response
    if response is None:
        return 0
    return len(response.body) + (len(response.content) if response.content is not response.body else 0)


def large_bytes(visit: Visit) -> int:
    """How many of them a page has beyond the usual limit of an answer."""
    return max(0, visit_bytes(visit) - BODY_BYTES_MAX) if visit.lease.kind is Kind.PAGE else 0


@dataclass(frozen=True, slots=True)
class Judgement:
    """The meaning of a visit to a page. `word` is the outcome in pages.jsonl."""

    word: Word
    verdict: Verdict
    error: str | None = None
    location: str | None = None
    retry_after: float | None = None
    refused: bool = False
    challenged: bool = False  # the answer has the sign of a challenge

    def as_known(self, word: Word) -> Judgement:
        """The same for a page whose content is known, with this word for it. A cut one stays `truncated`, because its
        end may differ."""
        return replace(self, word=word) if self.word == Word.DONE else self


def judged(visit: Visit, retries: int = len(RETRY_SECONDS), *, may_be_packed: bool = False) -> Judgement:
    """Returns the meaning of a visit to a page, before the content is compared with other pages. retries: how often a
    failed page is tried again. may_be_packed: whether the content itself may be compressed, as a sitemap's."""
    lease, response, challenged = visit.lease, visit.response, visit.sign is not None
    if visit.fault is not None:
        return Judgement(Word.ERROR, Verdict.GONE, visit.fault.word)
    if response is None:
        found = meaning_of(None, str(visit.error) if visit.error is not None else None)
    else:
        found = meaning_of_page(
            response, challenged=challenged, validated=bool(validators_of(lease)), may_be_packed=may_be_packed
        )
    word, verdict = found.word, found.verdict
    if word.has_content and visit.status != NOT_MODIFIED:
        return Judgement(word, verdict, found.error)
    if verdict is Verdict.RETRY and retry_at(lease.attempt, visit.now, retries=retries) is None:
        word = Word.ERROR
        if retries < len(RETRY_SECONDS):  # else the frontier ends the page, by the same rule
            verdict = Verdict.GONE
    target = location_of(response) if response is not None and word == Word.REDIRECT else None
    asked = None if response is None or word == Word.UNCHANGED else retry_after_of(response, visit.at)
    return Judgement(word, verdict, found.error, target, asked, found.refused, challenged)


def validators_of(lease: Lease) -> tuple[tuple[str, str], ...]:
    """Returns the fields that request a page only if it has changed: RFC 9110 sections 13.1.2 and 13.1.3."""
    fields = (("If-None-Match", lease.etag), ("If-Modified-Since", lease.last_modified))
    return tuple((name, value) for name, value in fields if value and is_validator(value))


def confirmed_by(visit: Visit) -> bytes | None:
    """Returns the mark of the archived response that a 304 confirms, b"" if no mark is known. None for another
    answer."""
    if visit.status != NOT_MODIFIED or not validators_of(visit.lease):
        return None
    return visit.lease.warc_record or b""


def has_text_of(page: Page, lease: Lease) -> bool:
    """Whether a page has the text of its last visit, as far as the record of the URL keeps the digest of it."""
    return bool(page.octets) and page.text_digest.to_bytes(TEXT_DIGEST_BYTES, "little") == lease.text_digest


@dataclass(frozen=True, slots=True)
class _Validators:
    """The fields of an outcome that later requests for the page are made of; None leaves the record of the URL as it
    is."""

    etag: str | None = None
    last_modified: str | None = None
    text_digest: bytes | None = None
    warc_record: bytes | None = None


def _validators_after_304(lease: Lease, etag: str | None, date: str | None) -> _Validators:
    """A 304 confirms the validators that were sent. It renews the date if its ETag is that of the page: RFC 9111
    section 4.3.4. Another ETag is not accepted, because it may be another one with each answer."""
    if etag is None or etag != lease.etag or lease.last_modified is None or date in (None, lease.last_modified):
        return _Validators()
    return _Validators(etag, date, lease.text_digest, lease.warc_record)


def _validators_to_try(lease: Lease, response: Response, etag: str | None, date: str | None) -> tuple[str | None, ...]:
    """Returns the ETag and the date for the next request for an unchanged page that was sent whole.

    If both were sent, the one that is still the same is tried alone. A server evaluates the date only without an ETag
    (RFC 9110 section 13.1.3), and the ETag may be another one with each answer, or one that the server does not
    recognise. The date counts only if it is a strong validator: RFC 9110 section 8.8.2.2.
    """
    if lease.etag is not None and lease.last_modified is not None:
        if date == lease.last_modified and _is_strong(date, response):
            return None, date
        if etag == lease.etag and date != lease.last_modified:
            return etag, None
    return etag, date


def _is_strong(date: str, response: Response) -> bool:
    """Whether a page was at least a second old, by the clock of its server, when it was sent."""
    now = seconds(response.started_at)
    modified, sent = http_date(date, now), http_date(response.headers.get("date") or "", now)
    return modified is not None and sent is not None and sent - modified >= 1.0


def _conditional(
    lease: Lease, word: Word, status: int | None, validators: tuple[str | None, ...]
) -> Conditional | None:
    """How the server answered a request with validators if it sent an unchanged page whole; None for any other
    visit. validators: the ETag and the date of the answer."""
    if word is not Word.UNCHANGED or status == NOT_MODIFIED or not validators_of(lease):
        return None
    same = validators == (lease.etag or validators[0], lease.last_modified or validators[1])
    return Conditional.IGNORED if same else Conditional.RENEWED


def content_digest(response: Response) -> tuple[bytes, str]:
    """Returns the SHA-1 of a page's content, which finds copies (20 bytes), and the digest of its WARC record.

    They differ if the content was compressed: the record's digest is that of the compressed payload.
    """
    payload = payload_of(response)
    digest = hashlib.sha1(payload, usedforsecurity=False).digest()
    shown = shown_digest(digest)
    if response.content is payload or response.content == payload:
        return digest, shown
    return hashlib.sha1(response.content, usedforsecurity=False).digest(), shown


def page_outcome(
    visit: Visit,
    judgement: Judgement,
    *,
    page: Page | None,
    links: UrlBatch | list[Link],
    digest: bytes | None,
    digest_shown: str | None,
    warc: dict[str, Any] | None,
    preferences: Preferences = NOTHING_SAID,
    items: msgspec.Raw | None = None,
    not_followed: Mapping[str, int] = _NONE,
    follows: bool = True,
    due_again: float | None = None,
    copy_of: tuple[str, int | None] | None = None,
    probe: str | None = None,
    repeats: bool = False,
    first_copy: bool = False,
    foreign_copy: bool = False,
    keeps_text: bool = False,
    warc_record: bytes | None = None,
) -> Outcome:
    """Returns the outcome of a page's lease with its two lines. items: of `on_page`, as JSON. follows: whether the
    target of a redirect is wanted. due_again: seconds until the next visit of the page. copy_of: the URL of which the
    page is a copy, and the number of different bits of their SimHashes (None: the same bytes). probe: the random URL
    that was answered with such a page. repeats: it has no new content all the same. first_copy: it has none, and no URL
    of its shape had that page before. foreign_copy: it has none either, and is the first copy of a page of another host
    on its own. keeps_text: the outcome has the digest of the page's text. warc_record: the mark of the answer."""
    response, status = visit.response, visit.status
    line = _page_line(visit, judgement, page, len(links), digest, digest_shown, warc, copy_of, probe)
    _add_reading(line, preferences, items, not_followed)
    octets = _encode(line)
    page_is_here = judgement.verdict is Verdict.DONE and judgement.location is None
    again = visit.now + instant(due_again) if due_again is not None and page_is_here else None
    if judgement.verdict is Verdict.AGAIN:  # in another spelling
        again, follows = visit.now, False
    # A 304 leaves the digest and the validators of the page: it may repeat only a part of them.
    accepted = page_is_here and status != NOT_MODIFIED
    kept = _validators_kept(visit, page_is_here, digest, warc_record)
    if accepted and keeps_text and page is not None:
        kept = replace(kept, text_digest=page.text_digest.to_bytes(TEXT_DIGEST_BYTES, "little"))
    return Outcome(
        visit.lease.token,
        judgement.verdict if again is None else Verdict.AGAIN,
        at=again,
        seconds=visit.seconds,
        first_byte_seconds=visit.first_byte_seconds,
        challenged=judgement.challenged,
        payment=payment_of(response) if response is not None else None,
        status=status,
        error=judgement.error,
        ended_at=response.ended_at if response is not None else visit.now,
        retry_after_seconds=judgement.retry_after,
        refused=judgement.refused,
        location=judgement.location if follows else None,
        links=links,
        answered=status is not None,
        line=octets,
        politeness=politeness_line(visit),
        digest=digest if accepted else None,
        duplicate=judgement.word == Word.DUPLICATE,
        repeats=repeats,
        first_copy=first_copy,
        foreign_copy=foreign_copy,
        text_digest=kept.text_digest,
        bytes_read=len(response.content) if response is not None else 0,
        etag=kept.etag,
        last_modified=kept.last_modified,
        warc_record=kept.warc_record,
    )


def _validators_kept(visit: Visit, page_is_here: bool, digest: bytes | None, warc_record: bytes | None) -> _Validators:
    """What the record of the URL keeps for the next request; digest: of the content."""
    lease, response = visit.lease, visit.response
    if response is None or not page_is_here:
        return _Validators()
    etag, date = (_validator(response.headers.get(name)) for name in ("etag", "last-modified"))
    if visit.status == NOT_MODIFIED:
        return _validators_after_304(lease, etag, date)
    if digest is not None and digest == lease.digest:
        etag, date = _validators_to_try(lease, response, etag, date)
    # Without a validator no request will be answered by a 304 that refers to this record.
    return _Validators(etag, date, warc_record=warc_record if etag or date else None)


def _page_line(
    visit: Visit,
    judgement: Judgement,
    page: Page | None,
    links: int,
    digest: bytes | None,
    digest_shown: str | None,
    warc: dict[str, Any] | None,
    copy_of: tuple[str, int | None] | None,
    probe: str | None,
) -> PageLine:
    """The line of `pages.jsonl`, with the arguments of `page_outcome`."""
    lease, response, status = visit.lease, visit.response, visit.status
    field_of = response.headers.get if response is not None else _NONE.get
    line = PageLine(
        url=lease.url,
        outcome=judgement.word,
        status=status,
        error=UNSET if judgement.error is None else judgement.error,
        fetched_at=rfc3339(visit.at),
        seconds=round(response.seconds, 6) if response is not None else None,
        bytes=len(response.content) if response is not None else 0,
        content_type=_cut(field_of("content-type")),
        digest=digest_shown if status != NOT_MODIFIED else None,
        depth=lease.depth,
        referrer=_cut(lease.referrer, URL_BYTES_MAX),
        priority=round(lease.priority, 6),
        attempt=lease.attempt,
        location=_location_shown(judgement, response),
        http_date=_cut(field_of("date")),
        last_modified=_cut(field_of("last-modified")),
        etag=_cut(field_of("etag")),
        links=links,
        token=lease.token,
        warc=warc,
    )
    if page is not None:
        _add_content(line, page)
    if response is not None:
        _add_answer(line, response, digest)
        validators = tuple(_validator(field_of(name)) for name in ("etag", "last-modified"))
        line.conditional = _conditional(lease, judgement.word, status, validators) or UNSET
    if copy_of is not None:
        line.duplicate_of = copy_of[0]
        line.distance = UNSET if copy_of[1] is None else copy_of[1]
    if probe is not None:
        line.probe = probe
    return line


def _add_content(line: PageLine, page: Page) -> None:
    """Returns the fields from the content of the page."""
    line.title = _cut(page.title) or None
    line.description = _cut(page.description, DESCRIPTION_CHARACTERS_MAX) or None
    line.canonical = _cut(page.canonical, URL_BYTES_MAX)
    line.charset = page.charset if page.octets or page.title or line.links else None
    line.language = _cut(page.language)
    if page.octets:
        line.simhash, line.text_digest = f"{page.simhash:016x}", f"{page.text_digest:016x}"
        line.shingles = page.shingles
    if page.image is not None:
        line.image = page.image._asdict()
    if page.robots:
        line.directives = [_cut(word) for word in sorted(page.robots)]
    if page.left_out:
        line.links_left_out = page.left_out


def _add_reading(
    line: PageLine, preferences: Preferences, items: msgspec.Raw | None, not_followed: Mapping[str, int]
) -> None:
    """Adds what the reading found, apart from the content of the page."""
    line.preferences = preferences if preferences.said else UNSET
    line.items = UNSET if items is None else items
    line.not_followed = dict(not_followed) or UNSET


def _add_answer(line: PageLine, response: Response, digest: bytes | None) -> None:
    """Returns the fields about the answer. digest: of the page's content."""
    # A content that is the body itself has the digest of the record.
    if digest is not None and response.content is not response.body:
        content = shown_digest(digest)
        if content != line.digest:
            line.content_digest = content
    if response.url != line.url:
        line.requested = response.url
    payment = payment_of(response)
    if payment is not None:
        line.payment = payment
    if response.decoding is not Decoding.WHOLE:
        line.decoding = response.decoding.value
    if response.url.startswith("https:"):
        marks = [UNVERIFIED] * (not response.verified) + [response.client] * (response.client is not None)
        line.tls = " ".join(map(str, marks)) if marks else UNSET


def robots_outcome(visit: Visit) -> Outcome:
    """The outcome of an errand for a robots.txt; each hop of a redirect is one (RFC 9309 section 2.3.1)."""
    response = visit.response
    answer, error = robots_of(response, visit.error_class, visit.at, challenged=visit.sign is not None)
    return Outcome(
        visit.lease.token,
        Verdict.DONE,
        seconds=visit.seconds,
        first_byte_seconds=visit.first_byte_seconds,
        challenged=visit.sign is not None,
        status=visit.status,
        error=error,
        ended_at=response.ended_at if response is not None else visit.now,
        retry_after_seconds=retry_after_of(response, visit.at) if response is not None else None,
        refused=visit.status in REFUSALS,
        robots=answer,
        answered=False,
        politeness=politeness_line(visit),
    )


def errand_outcome(
    visit: Visit, judgement: Judgement, links: UrlBatch | list[Link], digest: bytes | None = None
) -> Outcome:
    """The outcome of an errand for a sitemap or a probe; each hop of a redirect is one. links: the pages that it
    names. digest: of a content that later visits are compared with."""
    response = visit.response
    is_here = judgement.verdict is Verdict.DONE and judgement.location is None
    kept = _validators_kept(visit, is_here and digest is not None, digest, None)
    return Outcome(
        visit.lease.token,
        judgement.verdict,
        seconds=visit.seconds,
        first_byte_seconds=visit.first_byte_seconds,
        challenged=visit.sign is not None,
        status=visit.status,
        error=judgement.error,
        ended_at=response.ended_at if response is not None else visit.now,
        retry_after_seconds=judgement.retry_after,
        refused=judgement.refused,
        location=judgement.location,
        links=links,
        answered=False,
        politeness=politeness_line(visit),
        digest=digest if is_here and visit.status != NOT_MODIFIED else None,
        etag=kept.etag,
        last_modified=kept.last_modified,
    )


def address_outcome(visit: Visit) -> Outcome:
    """The outcome of an errand for an address; which failures may pass is the fetcher's word, as with pages."""
    lease = visit.lease
    if visit.address is not None:
        return lease.located(visit.address, ttl_seconds=DNS_KNOWN_SECONDS)
    error = str(visit.failure) if visit.failure is not None else None
    may_pass = error is not None and meaning_of(None, error).verdict is Verdict.RETRY
    return lease.retry(error=error) if may_pass else lease.gone(error=error)


def politeness_line(visit: Visit) -> bytes | None:
    """Returns the record of one request that was sent; None without a request."""
    response = visit.response
    if response is None and visit.fault is not None and visit.began is not None:
        return politeness_of(visit, visit.began, visit.now, visit.seconds or 0.0, visit.fault.word)
    if response is None or not visit.sent:
        return None
    return politeness_of(visit, response.started_at, response.ended_at, response.seconds, visit.error_class)


def politeness_of(visit: Visit, started: Instant, ended: Instant, took: float, error: str | None) -> bytes:
    """The record of a request with these instants."""
    lease, response = visit.lease, visit.response
    before = lease.ended_before
    first = response.first_byte_at if response is not None else None
    robots_digest, robots_line = lease.ruled_by or (UNSET, 0)
    line = PolitenessLine(
        *(lease.host, lease.authority, lease.url, str(lease.kind), rfc3339_exact(started)),
        rfc3339_exact(first) if first is not None else None,
        rfc3339_exact(ended),
        round(took, 6),
        round(lease.gap_seconds, 6) if before is not None and lease.gap_seconds is not None else None,
        round(seconds(started - before), 6) if before is not None else None,
        lease.gap_reason if before is not None else None,
        *(visit.groups, visit.status, error, lease.token),
        lease.capacity if lease.capacity > 1 else UNSET,
        rules_digest(response.content) if response is not None and _is_rules(visit) else UNSET,
        robots_digest,
        robots_line or UNSET,
        (lease.about_uses and preferences_of(lease.about_uses).uses) or UNSET,
    )
    return sealed(_encode(line))


def rules_digest(content: bytes) -> str:
    """Returns the digest of a robots.txt, as its line in the record has it."""
    return "sha256:" + hashlib.sha256(content).hexdigest()


def _is_rules(visit: Visit) -> bool:
    """Whether a visit received the rules of a robots.txt."""
    return visit.lease.kind is Kind.ROBOTS and verdict_of_status(visit.status) == "rules"


def sealed(line: bytes) -> bytes:
    """Returns a line of JSON, an object, whose last field is a check of its other bytes: an edit breaks it."""
    return b'%b,"seal":"%b"}' % (line[:-1], seal_of(line))


def seal_of(line: bytes) -> bytes:
    """Sixteen hex digits for a line without a seal."""
    return hashlib.blake2b(line, digest_size=8).hexdigest().encode()


def _location_shown(judgement: Judgement, response: Response | None) -> str | None:
    if judgement.location is not None:
        return _cut(judgement.location, URL_BYTES_MAX)
    return _cut(written_location(response)) if response is not None else None


def _validator(text: str | None) -> str | None:
    """Returns an ETag or Last-Modified for the next request; None for one that is too long to store or not text. It
    only saves a download, and a part of it would not."""
    if text is None or len(text) > LINE_FIELD_CHARACTERS_MAX:
        return None
    return _cut(text)


def _cut(text: str | None, characters_max: int = LINE_FIELD_CHARACTERS_MAX) -> str | None:
    if text is None:
        return None
    whole = text[:characters_max]
    # Half a character (a lone surrogate) cannot be written as UTF-8.
    return whole if whole.isascii() else whole.encode("utf-8", "replace").decode()
