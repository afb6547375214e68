"""From a worker's result to an outcome: the same meaning of statuses and errors as in a crawl (fetch/meaning.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from outrider.crawl.run.visit import validators_of
from outrider.engine.messages import KEPT_TEXTS, NewUrl, Result
from outrider.engine.sent_outcomes import link_of
from outrider.fetch.failures import FetchError
from outrider.fetch.meaning import CONTENTS, REFUSALS, ROBOTS_HOPS, Content, meaning_of, requested_wait, robots_meaning
from outrider.frontier.state.errand import KINDS as ERRANDS
from outrider.journey import Lease, Outcome, RobotsAnswer, Verdict, Word
from outrider.limits import DEPTH_MAX
from outrider.url import spell

_UNASKED: Final = frozenset(
    {FetchError.DNS_UNKNOWN, FetchError.DNS_TEMPORARY, FetchError.BLOCKED_ADDRESS, FetchError.BLOCKED_PORT}
)
"""Errors before any request: no request was sent to the host, and it need not rest."""


def outcome_of(result: Result, lease: Lease) -> Outcome:
    """Returns the outcome of one lease. A result without `fetch_time_ms` rests the host like a request of no length,
    unless the error means that no request was sent."""
    asked = result.http_status is not None or result.error not in _UNASKED
    seconds = result.fetch_time_ms / 1000 if result.fetch_time_ms is not None else 0.0 if asked else None
    row = ERRANDS.get(lease.kind)
    own = _OF_ANSWERS.get(row.answer) if row is not None else None
    return own(result, lease, seconds) if own is not None else _of_page(result, lease, seconds)


def _failure_of(result: Result, status: int | None) -> str | None:
    """Returns the error of a result, None for a good one. A failure with a status below 300 always has an error."""
    if result.status == "success":
        return None
    return result.error or ("error" if status is not None and status < 300 else None)


def _of_robots(result: Result, lease: Lease, seconds: float | None) -> Outcome:
    failure = _failure_of(result, result.http_status)
    status, error = robots_meaning(result.http_status, failure, challenged=result.challenged)
    body = (result.body or "").encode("utf-8", "replace")
    answer = RobotsAnswer(None)
    if status is not None:
        answer = RobotsAnswer(status, body, result.location if status in ROBOTS_HOPS else None, result.fresh_seconds)
    return Outcome(
        lease.token,
        Verdict.DONE,
        seconds=seconds,
        challenged=result.challenged,
        status=result.http_status,
        error=error,
        retry_after_seconds=requested_wait(result.http_status, result.retry_after),
        refused=result.http_status in REFUSALS,
        robots=answer,
    )


def _of_address(result: Result, lease: Lease, seconds: float | None) -> Outcome:
    if result.status == "success" and result.address is not None:
        return lease.located(result.address)
    may_pass = meaning_of(None, result.error).verdict is Verdict.RETRY
    return lease.retry(error=result.error) if may_pass else lease.gone(error=result.error)


_OF_ANSWERS: Final[Mapping[str | None, Callable[[Result, Lease, float | None], Outcome]]] = {
    "robots": _of_robots,
    "address": _of_address,
}
"""Errands whose answer is a field of `Outcome`, by that field. The rest are answered like pages."""


def _of_page(result: Result, lease: Lease, seconds: float | None) -> Outcome:
    depth = min(lease.depth + 1, DEPTH_MAX)
    links = tuple(
        link_of(_absolute(one, lease.url), crawl=lease.crawl, referrer=lease.url, depth=depth) for one in result.links
    )
    status = result.http_status if result.http_status is not None else 200 if result.status == "success" else None
    found = meaning_of(
        status,
        _failure_of(result, status),
        challenged=result.challenged,
        moved=result.location is not None,
        validated=bool(validators_of(lease)),
    )
    if result.status == "success" and result.error == FetchError.DECODE and found.word == Word.DONE:
        found = CONTENTS[Content.CHECKSUM]  # the worker could decode a part of it
    verdict = found.verdict
    return Outcome(
        lease.token,
        verdict,
        seconds=seconds,
        first_byte_seconds=result.first_byte_ms / 1000 if result.first_byte_ms is not None else None,
        challenged=result.challenged,
        payment=result.payment,
        status=status,
        error=found.error,
        retry_after_seconds=None if found.word == Word.UNCHANGED else requested_wait(status, result.retry_after),
        refused=found.refused,
        location=result.location if found.word == "redirect" else None,
        links=links if verdict == Verdict.DONE else (),
        answered=result.http_status is not None or result.status == "success",
        digest=result.content_hash.encode() if result.content_hash and verdict == Verdict.DONE else None,
        duplicate=result.is_duplicate,
        bytes_read=result.content_length or 0,
        **{name: getattr(result, name) for name in KEPT_TEXTS},
    )


def _absolute(link: str | NewUrl, page: str) -> str | NewUrl:
    """Returns a link as a reference on its page; an unusable reference stays as it is, and the answer says so."""
    if not isinstance(link, str):
        return link
    return spell((link,), page)[0] or link
