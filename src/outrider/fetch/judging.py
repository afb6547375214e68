"""From a whole answer to its meaning: what the tables of `fetch/meaning.py` say about its status, error and content.

Crawls, `Fetcher` and requests by hand judge answers here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from outrider.clock import Instant, wall
from outrider.errors import InvalidUrlError
from outrider.fetch.challenge import sign_of
from outrider.fetch.downloader import Decoding, Response
from outrider.fetch.failures import FetchError, retry_after_seconds
from outrider.fetch.freshness import fresh_seconds
from outrider.fetch.meaning import (
    CONTENTS,
    NOT_MODIFIED,
    REDIRECTS,
    REFUSALS,
    ROBOTS_HOPS,
    TRUNCATED,
    Content,
    Meaning,
    meaning_of,
    requested_wait,
    robots_meaning,
)
from outrider.fetch.payment import payment_of
from outrider.journey import Kind, Lease, Link, Outcome, RobotsAnswer, UrlColumns, Word
from outrider.limits import BODY_BYTES_MAX, MICROSECONDS, ROBOTS_BYTES_MAX
from outrider.robots import verdict_of_status, whole_lines
from outrider.sniffing import declared_type, is_binary
from outrider.url import as_received, join


def challenge_of(response: Response) -> str | None:
    """The sign by which an answer is a challenge for a browser or a person, None for any other answer."""
    if response.status is None or response.error is not None:
        return None
    return sign_of(response.status, response.headers, response.content)


def meaning_of_page(
    response: Response, *, challenged: bool, validated: bool = False, may_be_packed: bool = False
) -> Meaning:
    """Returns the meaning of the answer to a request for a page, its content included. challenged: whether it has the
    sign of a challenge (`challenge_of`). validated: whether the request had validators. may_be_packed: whether the
    content itself may be compressed, as a sitemap's."""
    status, error = response.status, response.error
    found = meaning_of(
        status,
        str(error) if error is not None else None,
        challenged=challenged,
        moved=error is None and status in REDIRECTS and location_of(response) is not None,
        validated=validated and status == NOT_MODIFIED,
    )
    return CONTENTS[content_of(response, may_be_packed=may_be_packed)] if found.word == Word.DONE else found


def content_of(response: Response, *, may_be_packed: bool = False) -> Content:
    """Returns the state of an answer's content after its codings.

    A coding that is unknown, or that the body does not have, leaves the bytes as they are (Fetch, "handle content
    codings"). They are the page, unless its type is text and they are not.
    """
    decoding, content = response.decoding, response.content
    if decoding is Decoding.UNKNOWN and not may_be_packed and _is_disguised(response):
        return Content.DISGUISED
    if decoding is Decoding.BROKEN and not content and not response.truncated:
        return Content.LOST
    if response.truncated or decoding is Decoding.CUT:
        return Content.CUT
    if decoding is Decoding.BROKEN:
        return Content.BROKEN
    return Content.CHECKSUM if decoding is Decoding.CHECKSUM else Content.WHOLE


def _is_disguised(response: Response) -> bool:
    """Whether a body should be text by its type, and is not. A body without a type is a page."""
    essence = declared_type(response.headers.joined("content-type")).essence or "text/html"
    is_text = essence.startswith("text/") or essence.endswith(("xml", "json", "javascript"))
    return is_text and is_binary(response.content)


def retry_after_of(response: Response, at: Instant) -> float | None:
    """Returns the seconds of an answer's Retry-After, if they count for its status. at: the time of the answer."""
    field = response.headers.get("retry-after")
    return None if field is None else requested_wait(response.status, retry_after_seconds(field, at / MICROSECONDS))


def robots_of(
    response: Response | None, error: str | None, at: Instant, *, challenged: bool
) -> tuple[RobotsAnswer, str | None]:
    """Returns the meaning of an answer as a robots.txt, and its error; each hop of a redirect is an answer (RFC 9309
    section 2.3.1).

    response: None without an answer. error: of the request. challenged: as of `meaning_of_page`. at: the time of it.
    """
    status = response.status if response is not None else None
    is_file = verdict_of_status(status) == "rules" or status == HTTPStatus.PARTIAL_CONTENT
    if response is not None and is_file and error is None and not challenged:
        error = _fault_of_file(response)
    counted, error = robots_meaning(status, error, challenged=challenged)
    if response is None or counted is None:
        return RobotsAnswer(None), error
    body = whole_lines(response.content, cut=_is_cut(response)) if is_file else b""
    location = location_of(response) if counted in ROBOTS_HOPS else None
    return RobotsAnswer(counted, body, location, fresh_seconds(response.headers, at / MICROSECONDS)), error


def _is_cut(response: Response) -> bool:
    """Whether a limit of ours cut a file. The lines before the cut apply (RFC 9309 section 2.5)."""
    enough = len(response.content) >= min(ROBOTS_BYTES_MAX, BODY_BYTES_MAX)
    return response.truncated == "length" or (response.decoding is Decoding.CUT and enough)


def _fault_of_file(response: Response) -> str | None:
    """Returns the error of a robots.txt with a status of success, or None.

    A body that breaks off, or whose coding cannot be undone, is not a robots.txt but a network error (RFC 9309 section
    2.3.1.4): a missing line may forbid, and half of a line may forbid all.
    """
    content, decoding = response.content, response.decoding
    if response.truncated not in (None, "length"):
        return TRUNCATED
    # Text is read whatever coding it declares, and so are all lines of a stream with a wrong checksum. Bytes
    # that are not text may be rules in a coding that we cannot undo.
    if decoding is Decoding.UNKNOWN and is_binary(content):
        return str(FetchError.DECODE)
    # Where the limit fell into a coded body, its coding breaks off too.
    if decoding in (Decoding.BROKEN, Decoding.CUT) and not (_is_cut(response) and content):
        return str(FetchError.DECODE)
    return None


def meaning_of_request(response: Response | None, error: FetchError | None) -> Meaning:
    """Returns the meaning of a request for a page. response: None if no request could be made; error: why."""
    if response is None:
        return meaning_of(None, str(error) if error is not None else None)
    return meaning_of_page(response, challenged=challenge_of(response) is not None)


def outcome_of_request(
    lease: Lease,
    response: Response | None,
    error: FetchError | None,
    links: Sequence[str | Link] | UrlColumns,
    fields: Mapping[str, Any],
) -> Outcome:
    """The outcome of a lease whose request a program made by itself. fields: further ones of `Outcome`. Raises
    SettingsError for a name that no field has."""
    now, status = wall(), response.status if response is not None else None
    challenged = response is not None and challenge_of(response) is not None
    told: dict[str, Any] = {
        "seconds": response.seconds if response is not None and response.request_head else None,
        "status": status,
        "challenged": challenged,
        "payment": payment_of(response) if response is not None else None,
        "retry_after_seconds": retry_after_of(response, now) if response is not None else None,
    }
    if lease.kind is Kind.ROBOTS:
        word = str(error) if error is not None else None
        answer, word = robots_of(response, word, now, challenged=challenged)
        told |= {"robots": answer, "error": word, "refused": status in REFUSALS, "answered": False}
        return lease.done(**{**told, **fields})
    found = meaning_of_request(response, error)
    told |= {"error": found.error, "refused": found.refused}
    if found.word.has_content:
        told["links"] = links
    elif found.word == Word.REDIRECT and response is not None:
        told["location"] = location_of(response)
    return msgspec.structs.replace(lease.done(**{**told, **fields}), verdict=found.verdict)


def location_of(response: Response) -> str | None:
    """Returns the canonical URL of a redirect's target (RFC 9110 section 10.2.2); None if it cannot be crawled."""
    written = written_location(response)
    if written is None:
        return None
    try:
        return join(response.url, written)
    except InvalidUrlError:
        return None


def written_location(response: Response) -> str | None:
    """The Location field as the site wrote it, its octets beyond ASCII percent-encoded."""
    value = response.headers.get("location")
    return None if value is None else as_received(value)
