"""The meaning of an answer: what a status or an error says about the URL that was asked for, decided here alone.

Crawls, workers and results over REST ask this table. docs/answers.md is made from it:
`python -m outrider.fetch.meaning > docs/answers.md`.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from outrider.fetch.outcomes import FetchError
from outrider.journey import Verdict, Word

REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
NOT_MODIFIED: Final = 304
REFUSALS: Final = frozenset({429, 503})  # the site has too much to do
STATUSES: Final = range(100, 1_000)  # three digits, of which the first is not 0: RFC 9110 section 15
_ERRORS: Final = {str(error): error for error in FetchError}


class Needs(Enum):
    """What else an answer must have, besides its status."""

    NOTHING = ""
    LOCATION = "with a location that can be crawled"
    VALIDATORS = "to a request with validators"


@dataclass(frozen=True, slots=True)
class Meaning:
    """word: the outcome in `pages.jsonl`, before the content is read, and while attempts are left. verdict: for the
    frontier. error: the class, None for none. refused: the host has too much to do, and rests."""

    word: Word
    verdict: Verdict
    error: str | None = None
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """The statuses that mean the same, the first row that fits counts. source: where that is written."""

    statuses: Collection[int]
    needs: Needs
    meaning: Meaning
    source: str = ""


_GONE = Meaning(Word.GONE, Verdict.GONE)
ROWS: Final = (
    Row(range(200, 300), Needs.NOTHING, Meaning(Word.DONE, Verdict.DONE), "RFC 9110 section 15.3"),
    Row({NOT_MODIFIED}, Needs.VALIDATORS, Meaning(Word.DUPLICATE, Verdict.DONE), "RFC 9110 section 15.4.5"),
    Row(REDIRECTS, Needs.LOCATION, Meaning(Word.REDIRECT, Verdict.DONE), "RFC 9110 section 15.4"),
    Row(REDIRECTS, Needs.NOTHING, Meaning(Word.GONE, Verdict.GONE, "bad_location"), "RFC 9110 section 10.2.2"),
    *(
        Row({status}, Needs.NOTHING, Meaning(Word.RETRY, Verdict.RETRY, f"http_{status}", status in REFUSALS), source)
        for status, source in (
            (408, "RFC 9110 section 15.5.9"),
            (425, "RFC 8470 section 5.2"),
            (429, "RFC 6585 section 4"),
            *((status, "RFC 9110 section 15.6") for status in range(500, 600)),
            *((status, "RFC 9110 section 15") for status in range(600, 1_000)),  # invalid: as 5xx
        )
    ),
    Row(STATUSES, Needs.NOTHING, _GONE),
)
CHALLENGED: Final = Meaning(Word.RETRY, Verdict.RETRY, str(FetchError.NOT_WELCOME))

_BY_STATUS: Final = {status: tuple(row for row in ROWS if status in row.statuses) for status in STATUSES}


def meaning_of(
    status: int | None, error: str | None, *, challenged: bool = False, moved: bool = False, validated: bool = False
) -> Meaning:
    """The meaning of an answer. status: None where none came. error: of the request, None for a whole answer; a word
    that is no `FetchError` is one that only its sender knows. challenged: the answer has the sign of a challenge.
    moved: it names a location that can be crawled. validated: the request had validators."""
    known = _ERRORS.get(error) if error is not None else None
    if known is not None:
        if known.retryable:
            return Meaning(Word.RETRY, Verdict.RETRY, error, status in REFUSALS)
        return Meaning(Word.ERROR, Verdict.GONE, error)
    if challenged:
        return replace(CHALLENGED, refused=True) if status in REFUSALS else CHALLENGED
    if status is None:  # an error that only its sender knows may pass; the frontier's own steps end it
        return Meaning(Word.RETRY, Verdict.RETRY, error or "error")
    met = {Needs.NOTHING: True, Needs.LOCATION: moved, Needs.VALIDATORS: validated}
    found = next((row.meaning for row in _BY_STATUS.get(status, ()) if met[row.needs]), _GONE)
    if error is None:
        return found
    return Meaning(Word.ERROR, Verdict.GONE, error) if found.word == Word.DONE else replace(found, error=error)


def rest_asked(status: int | None, retry_after: float | None) -> float | None:
    """The wait of a Retry-After that counts: that of a redirect or a failure (RFC 9110 section 10.2.3)."""
    return retry_after if status is not None and status >= 300 else None


def page() -> str:
    """docs/answers.md, in Markdown."""
    return "\n".join(_page()) + "\n"


def _page() -> Iterator[str]:
    yield from (
        "# The meaning of an answer",
        "",
        "Outrider gives an answer one meaning, for crawls, workers and results over REST. This page is made from the",
        "table that decides it: `python -m outrider.fetch.meaning > docs/answers.md`.",
        "",
        "`outcome` is the word in `pages.jsonl`. A `retry` becomes `error` at its last attempt. The content of a page",
        "that is `done` may change the word to `truncated` or `duplicate`, and to `error` where no byte of it can be",
        "decoded.",
        "",
        "## Statuses",
        "",
        "The first row that fits counts.",
        "",
        "| status | outcome | the frontier is told | error | source |",
        "|---|---|---|---|---|",
    )
    merged: dict[tuple[str, ...], list[int]] = {}
    for row in ROWS:
        error = "http_STATUS" if (row.meaning.error or "").startswith("http_") else row.meaning.error or ""
        cells = (row.needs.value, row.meaning.word, _told(row.meaning), error, row.source)
        merged.setdefault(cells, []).extend(row.statuses)
    for (needs, word, told, error, source), statuses in merged.items():
        named = "any other" if len(statuses) == len(STATUSES) else _ranges(statuses)
        yield f"| {f'{named} {needs}'.strip()} | {word} | {told} | {f'`{error}`' if error else ''} | {source} |"
    yield from (
        "",
        f"A challenge for a browser or a person is `{CHALLENGED.word}`, with the error `{CHALLENGED.error}`, at any",
        "status. Two of them in a row park the host.",
        "",
        "## Errors",
        "",
        "An error of this list counts before the status of its answer. With the status 429 or 503, a `retry` is also",
        "`refused`. A worker may report an error of its own: without a status it is `retry`, with that of a page it is",
        "`error`, and with any other status the row above counts, with that error.",
        "",
        "| error | outcome | the frontier is told |",
        "|---|---|---|",
    )
    for error in FetchError:
        found = meaning_of(None, str(error))
        yield f"| `{error}` | {found.word} | {_told(found)} |"


def _told(meaning: Meaning) -> str:
    return f"{meaning.verdict}, refused" if meaning.refused else str(meaning.verdict)


def _ranges(statuses: list[int]) -> str:
    """100 101 102 404 as `100–102, 404`."""
    spans: list[list[int]] = []
    for status in sorted(statuses):
        if spans and spans[-1][1] == status - 1:
            spans[-1][1] = status
        else:
            spans.append([status, status])
    return ", ".join(f"{first}" if first == last else f"{first}–{last}" for first, last in spans)


if __name__ == "__main__":
    sys.stdout.write(page())
