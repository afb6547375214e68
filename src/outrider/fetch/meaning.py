"""The meaning of an answer: what a status or an error says about the URL that was asked for, decided here alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from outrider.fetch.outcomes import FetchError
from outrider.journey import Verdict

REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
RETRIED: Final = frozenset({408, 425, 429})  # RFC 9110 and 8470: the same request may do later; so may any 5xx
NOT_MODIFIED: Final = 304  # the content is the one whose validators were sent: RFC 9110 section 15.4.5
REFUSALS: Final = frozenset({429, 503})  # the site has too much to do
ERRORS: Final = frozenset(map(str, FetchError))


@dataclass(frozen=True, slots=True)
class Meaning:
    """The outcome word of a page, the verdict for the frontier, and the class of the error."""

    word: str
    verdict: Verdict
    error: str | None = None
    refused: bool = False


def meaning_of(
    status: int | None, error: str | None, *, challenged: bool = False, moved: bool = False, validated: bool = False
) -> Meaning:
    """The meaning of an answer. error: of the request, None for a whole answer; a word that is no `FetchError` is one
    that only its sender knows. challenged: it carries the sign of a challenge. moved: it names a URL that can be
    crawled as its location. validated: the request had validators."""
    refused = status in REFUSALS
    if error in ERRORS:
        if FetchError(error).retryable:
            return Meaning("retry", Verdict.RETRY, error, refused)
        return Meaning("error", Verdict.GONE, error)
    if status is None:
        return Meaning("retry", Verdict.RETRY, error or "error")
    if challenged:
        return Meaning("retry", Verdict.RETRY, str(FetchError.NOT_WELCOME), refused)
    if 200 <= status < 300:
        return Meaning("done", Verdict.DONE) if error is None else Meaning("error", Verdict.GONE, error)
    if status == NOT_MODIFIED and validated:
        return Meaning("duplicate", Verdict.DONE)
    if status in REDIRECTS:
        return Meaning("redirect", Verdict.DONE) if moved else Meaning("gone", Verdict.GONE, "bad_location")
    if status in RETRIED or 500 <= status < 600:
        return Meaning("retry", Verdict.RETRY, error or f"http_{status}", refused)
    return Meaning("gone", Verdict.GONE, error)
